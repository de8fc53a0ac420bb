//! The vector instructions of micro-kernels: EVEX encoding for AVX-512, VEX encoding for AVX2.

use super::asm::{Assembler, Bits, Condition, Gpr, Map, Masking, Mem, Prefix, Source, VectorOp};
use super::stored::Stored;
use girih_exec::Isa;

/// The mask register of the tail (AVX-512).
const TAIL_MASK: u8 = 1;
/// The number of the constant that masks the tail (AVX2).
const TAIL_CONSTANT: u16 = 0;

const fn op(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map, prefix, opcode, wide: false, bits: Bits::B512 }
}
pub(super) const LOAD: VectorOp = op(Map::M0F, Prefix::None, 0x10);
pub(super) const STORE: VectorOp = op(Map::M0F, Prefix::None, 0x11);
const MASKED_LOAD: VectorOp = op(Map::M0F38, Prefix::P66, 0x2c);
const MASKED_STORE: VectorOp = op(Map::M0F38, Prefix::P66, 0x2e);
const FROM_HALF: VectorOp = op(Map::M0F38, Prefix::P66, 0x13);
/// Words and bytes to 32 bits, with zero extension or sign extension.
const WIDEN: VectorOp = op(Map::M0F38, Prefix::P66, 0x33);
const EXTEND: VectorOp = op(Map::M0F38, Prefix::P66, 0x23);
const WIDEN_BYTES: VectorOp = op(Map::M0F38, Prefix::P66, 0x31);
const EXTEND_BYTES: VectorOp = op(Map::M0F38, Prefix::P66, 0x21);
const SHIFT: VectorOp = op(Map::M0F, Prefix::P66, 0x72);
pub(super) const XOR: VectorOp = op(Map::M0F, Prefix::P66, 0xef);
pub(super) const SPLAT: VectorOp = op(Map::M0F38, Prefix::P66, 0x18);
/// `dst += a * b`, rounded once.
const MULTIPLY_ADD: VectorOp = op(Map::M0F38, Prefix::P66, 0xb8);
/// The low half of a product of integers.
const MULTIPLY: VectorOp = op(Map::M0F38, Prefix::P66, 0x40);
/// The sum of the two products of pairs of 16-bit integers.
const MULTIPLY_PAIRS: VectorOp = op(Map::M0F, Prefix::P66, 0xf5);
const ADD: VectorOp = op(Map::M0F, Prefix::P66, 0xfe);
const GREATER: VectorOp = op(Map::M0F, Prefix::P66, 0x66);
const SELECT: VectorOp = op(Map::M0F3A, Prefix::P66, 0x4a);

/// The number of lanes of a vector register.
pub(super) fn lanes(isa: Isa) -> usize {
    if isa >= Isa::Avx512 { 16 } else { 8 }
}

/// The number of vector registers.
pub(super) fn registers(isa: Isa) -> usize {
    if isa >= Isa::Avx512 { 32 } else { 16 }
}

/// The lanes of a vector register that an instruction loads or stores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lanes {
    All,
    /// The first lanes, whose number [`Emitter::set_tail`] sets. Loads clear the other lanes.
    Tail,
}

/// Emits the instructions of a micro-kernel.
pub(super) struct Emitter {
    pub asm: Assembler,
    isa: Isa,
    constants: Vec<Vec<u8>>,
}

impl Emitter {
    pub fn new(isa: Isa) -> Emitter {
        Emitter { asm: Assembler::default(), isa, constants: Vec::new() }
    }

    /// The code with its constants.
    pub fn finish(self) -> Vec<u8> {
        self.asm.finish(&self.constants)
    }

    /// Whether the encoding is EVEX, which has mask registers and broadcasts from memory.
    pub fn evex(&self) -> bool {
        self.isa >= Isa::Avx512
    }

    /// The size of a vector register in bytes.
    pub fn bytes(&self) -> usize {
        4 * lanes(self.isa)
    }

    /// Sets the number of lanes of the tail, before any other constant is made; two registers are
    /// clobbered.
    pub fn set_tail(&mut self, tail: usize, [count, scratch]: [Gpr; 2]) {
        if self.evex() {
            self.asm.set(count, tail as u64);
            return self.asm.low_bits(TAIL_MASK, count, scratch);
        }
        assert!(self.constants.is_empty(), "the mask is constant {TAIL_CONSTANT}");
        let mask = |lane: usize| if lane < tail { [0xff; 4] } else { [0; 4] };
        self.constants.push((0..lanes(self.isa)).flat_map(mask).collect());
    }

    /// Emits `dst = op(a, b)` on whole registers.
    pub fn plain(&mut self, op: VectorOp, dst: u8, a: u8, b: Source) {
        self.encode(op, dst, a, b, Masking::default(), None);
    }

    fn encode(
        &mut self,
        op: VectorOp,
        dst: u8,
        a: u8,
        b: Source,
        masking: Masking,
        imm: Option<u8>,
    ) {
        if self.evex() {
            return self.asm.evex(op, dst, a, b, masking, imm);
        }
        assert_eq!(masking, Masking::default(), "AVX2 has no mask registers");
        self.asm.vex(VectorOp { bits: Bits::B256, ..op }, dst, a, b, imm);
    }

    fn tail_masking(zero: bool) -> Masking {
        Masking { mask: TAIL_MASK, zero }
    }

    pub fn clear(&mut self, reg: u8) {
        self.plain(XOR, reg, reg, Source::Reg(reg));
    }

    /// Loads elements in packed form: as f32 or 32-bit integers. On AVX2, only elements of 32 bits
    /// can be loaded with fewer lanes.
    pub fn load(&mut self, stored: Stored, out: u8, from: Source, lanes: Lanes) {
        let op = match stored {
            Stored::F32 | Stored::I32 | Stored::Pair => LOAD,
            Stored::F16 => FROM_HALF,
            Stored::BF16 | Stored::U16 => WIDEN,
            Stored::I16 => EXTEND,
            Stored::U8 => WIDEN_BYTES,
            Stored::I8 => EXTEND_BYTES,
        };
        match lanes {
            Lanes::All => self.plain(op, out, 0, from),
            Lanes::Tail if self.evex() => {
                self.encode(op, out, 0, from, Self::tail_masking(true), None);
            }
            Lanes::Tail => {
                assert_eq!(stored.size(), 4, "AVX2 has no masked loads of {stored:?}");
                self.plain(LOAD, out, 0, Source::Mem(Mem::Constant(TAIL_CONSTANT)));
                self.plain(MASKED_LOAD, out, out, from);
            }
        }
        if stored == Stored::BF16 {
            self.encode(SHIFT, 6, out, Source::Reg(out), Masking::default(), Some(16));
        }
    }

    /// Stores a register of 32-bit elements. `spare` is clobbered if not all lanes are stored.
    pub fn store(&mut self, from: u8, to: Source, lanes: Lanes, spare: u8) {
        match lanes {
            Lanes::All => self.plain(STORE, from, 0, to),
            Lanes::Tail if self.evex() => {
                self.encode(STORE, from, 0, to, Self::tail_masking(false), None);
            }
            Lanes::Tail => {
                self.plain(LOAD, spare, 0, Source::Mem(Mem::Constant(TAIL_CONSTANT)));
                self.plain(MASKED_STORE, from, spare, to);
            }
        }
    }

    /// Loads a register at an address, and replaces its first lanes with the lanes at another
    /// address. `spare` is clobbered on AVX2.
    pub fn load_split(
        &mut self,
        out: u8,
        [rest, first]: [Source; 2],
        lanes: Lanes,
        split: Split,
        spare: u8,
    ) {
        self.load(Stored::F32, out, rest, lanes);
        match split {
            Split::Mask(mask) => {
                self.encode(LOAD, out, 0, first, Masking { mask, zero: false }, None);
            }
            Split::Memory(mask) => {
                self.plain(LOAD, spare, 0, Source::Mem(mask));
                self.encode(SELECT, out, out, first, Masking::default(), Some(spare << 4));
            }
        }
    }

    /// Stores a mask of the first lanes of 16, whose number is at `count`, for [`Split::Memory`].
    /// Two vector registers are clobbered.
    pub fn first_lanes_mask(&mut self, count: Mem, to: [Mem; 2], [number, mask]: [u8; 2]) {
        self.plain(SPLAT, number, 0, Source::Mem(count));
        for (half, to) in to.into_iter().enumerate() {
            let lanes = (0..8u32).flat_map(|lane| (8 * half as u32 + lane).to_le_bytes());
            let constant = self.constants.len() as u16;
            self.constants.push(lanes.collect());
            self.plain(GREATER, mask, number, Source::Mem(Mem::Constant(constant)));
            self.plain(STORE, mask, 0, Source::Mem(to));
        }
    }

    /// `sum += a * b`; for integers, `spare` is clobbered by the product.
    pub fn multiply_add(&mut self, stored: Stored, sum: u8, a: u8, b: Source, spare: u8) {
        if !stored.is_integer() {
            return self.plain(MULTIPLY_ADD, sum, a, b);
        }
        let multiply = if stored == Stored::Pair { MULTIPLY_PAIRS } else { MULTIPLY };
        self.plain(multiply, spare, a, b);
        self.plain(ADD, sum, sum, Source::Reg(spare));
    }

    /// Emits a loop of `count` repetitions of the body, `unroll` per iteration; at least one.
    pub fn repeat(&mut self, count: Gpr, unroll: usize, body: impl Fn(&mut Emitter, usize)) {
        let (main, rest, one, done) =
            (self.asm.label(), self.asm.label(), self.asm.label(), self.asm.label());
        let step = unroll as i32;
        self.asm.sub(count, step);
        self.asm.jump_if(Condition::Below, rest);
        self.asm.align(32);
        self.asm.bind(main);
        body(self, unroll);
        self.asm.sub(count, step);
        self.asm.jump_if(Condition::NotBelow, main);
        self.asm.bind(rest);
        if unroll > 1 {
            self.asm.add(count, step);
            self.asm.jump_if(Condition::Equal, done);
            self.asm.bind(one);
            body(self, 1);
            self.asm.sub(count, 1);
            self.asm.jump_if(Condition::NotEqual, one);
        }
        self.asm.bind(done);
    }
}

/// The location of the number of a vector's first lanes.
#[derive(Clone, Copy)]
pub(super) enum Split {
    /// In a mask register (AVX-512).
    Mask(u8),
    /// As a mask of a register's lanes, in memory (AVX2).
    Memory(Mem),
}

/// The operand in memory at a distance in bytes.
pub(super) fn at(base: Gpr, bytes: usize) -> Source {
    Source::Mem(Mem::Offset { base, displacement: bytes as i32 })
}

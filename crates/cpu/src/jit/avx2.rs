//! Loops for x86-64 with AVX2, F16C and BMI: of 8 lanes, or of 4 if any value has 64-bit lanes;
//! 32-bit lanes then use half of a register.
//!
//! Masks are vectors of all ones or zeros, as wide as the widest values. The last, partial
//! iteration runs on copies in the stack frame, so no memory beyond the given elements is touched.
//! The code calls only functions for single lanes, and does not change the control registers.

use super::allocate::{Allocated, Location, Registers, Step};
use super::arithmetic::Shift;
use super::asm::{Bits, Condition, Gpr, Label, Map, Mem, Prefix, Source, VectorOp};
use super::cycle::Cycle;
use super::emitter::{
    COUNT, Emitter, Encoder, FROM_HALF, INDEX, LOAD, RSP, SPLAT_64, STORE, STORE_32, STORE_64,
    TO_HALF, op, short, widen,
};
use super::ir::{At, Binary, Compare, Element, Inst, KernelProgram, Lane, Logic};
use girih_exec::ChainFold;

/// Temporaries.
const COUNTER: Gpr = Gpr(1);
const DATA: Gpr = Gpr(10);
/// The index of an element of the last iteration; then the address of the masks for the elements
/// that are left.
const BUFFER: Gpr = Gpr(11);

const UPPER_HALF: VectorOp = op(Map::M0F3A, Prefix::P66, 0x39);
const SHUFFLE: VectorOp = short(Map::M0F, Prefix::None, 0xc6);
const PERMUTE_64: VectorOp = VectorOp { wide: true, ..op(Map::M0F3A, Prefix::P66, 0x01) };
const XOR: VectorOp = op(Map::M0F, Prefix::P66, 0xef);
const EQUAL: VectorOp = op(Map::M0F, Prefix::P66, 0x76);
const GREATER_BYTES: VectorOp = op(Map::M0F, Prefix::P66, 0x64);
const SIGN_EXTEND: VectorOp = op(Map::M0F38, Prefix::P66, 0x25);
const PACK_SIGNED_32: VectorOp = short(Map::M0F, Prefix::P66, 0x6b);
const PACK_UNSIGNED_32: VectorOp = short(Map::M0F38, Prefix::P66, 0x2b);
const PACK_SIGNED_16: VectorOp = short(Map::M0F, Prefix::P66, 0x63);
const PACK_UNSIGNED_16: VectorOp = short(Map::M0F, Prefix::P66, 0x67);
const MASKED_LOAD: VectorOp = op(Map::M0F38, Prefix::P66, 0x8c);
const MASKED_STORE: VectorOp = op(Map::M0F38, Prefix::P66, 0x8e);
/// Moves a general register to a vector register.
const MOVE: VectorOp = short(Map::M0F, Prefix::P66, 0x6e);
const ABS_8: VectorOp = short(Map::M0F38, Prefix::P66, 0x1c);

/// The maximum number of registers for carries of a cycle.
pub(super) const CARRIES: u8 = 6;

/// Emits the loop as a function `(table of pointers, number of elements)`; `None` if there are more
/// pointers than registers.
pub(super) fn emit(program: &KernelProgram, allocated: &Allocated) -> Option<Vec<u8>> {
    let machine = Avx2 { streams: vec![], frame: Frame::default(), tail: None, partial: false };
    let mut emitter = Emitter::new(program, allocated, machine)?;
    if program.cycle.is_none() {
        emitter.find_streams();
    }
    emitter.machine.frame = emitter.layout(allocated);
    Some(emitter.function(allocated))
}

/// The registers for a program's values.
pub(super) fn registers(program: &KernelProgram) -> Registers {
    Emitter::<Avx2>::registers(program)
}

/// A stream of elements that are loaded or stored.
#[derive(Clone, Copy)]
struct Stream {
    at: At,
    element: Element,
    /// The stride, in elements.
    step: u8,
    stored: bool,
}

/// The layout of the stack frame, and its size in bytes.
#[derive(Clone, Copy, Default)]
struct Frame {
    /// The copies of the last iteration, with `buffer` bytes each.
    buffers: i32,
    buffer: i32,
    /// All ones for all lanes of a reduction, followed by the same number of zeros.
    masks: i32,
    bytes: i32,
}

pub(super) struct Avx2 {
    streams: Vec<Stream>,
    frame: Frame,
    /// If the last iteration is being emitted, the number of its part.
    tail: Option<i32>,
    /// Whether the last vector of a cycle is being emitted, whose masks are in the frame.
    partial: bool,
}

impl Encoder for Emitter<'_, Avx2> {
    const REGISTERS: Registers = Registers { vectors: 15, masks: 0..0, invariants: 5, carries: 0 };
    const POINTERS: &'static [Gpr] =
        &[Gpr(2), Gpr(8), Gpr(9), Gpr(3), Gpr(12), Gpr(13), Gpr(14), Gpr(15)];
    const CALLER_SAVED: usize = 3;
    const BITS: Bits = Bits::B256;
    const WHOLE_CONSTANTS: bool = true;
    const SPLAT_WIDE: VectorOp = SPLAT_64;
    const CARRIES: u8 = CARRIES;

    fn vector(&mut self, op: VectorOp, dst: u8, a: u8, b: Source, imm: Option<u8>) {
        self.asm.vex(op, dst, a, b, imm);
    }

    fn frame(&self, _: &Allocated) -> i32 {
        self.machine.frame.bytes
    }

    /// Copies the elements that the last iteration loads to the frame, padded with zeros, and
    /// copies the elements that it stores from the frame.
    fn rest(&mut self, body: &[Step], done: Label) {
        self.asm.compare(INDEX, COUNT);
        self.asm.jump_if(Condition::Equal, done);
        self.plain(XOR, Self::SCRATCH, Self::SCRATCH, Source::Reg(Self::SCRATCH));
        let Frame { buffers, buffer, .. } = self.machine.frame;
        let streams = self.machine.streams.len() as i32;
        self.fill(Self::SCRATCH, buffers, buffer * streams);
        self.copy(false);
        self.set_masks();
        for part in 0..self.parts() {
            self.machine.tail = Some(part);
            self.part(part, body);
        }
        self.machine.tail = None;
        self.copy(true);
    }

    fn own(&mut self, inst: Inst, out: u8, [a, b, c]: [Location; 3]) {
        match inst {
            Inst::Compare(compare, lane, ..) => {
                let (op, predicate) = self.comparison(compare, lane);
                self.vector(op, out, self.reg(a), self.source(b), predicate);
                if self.is_wide() && lane == Lane::Word {
                    self.plain(SIGN_EXTEND, out, 0, Source::Reg(out));
                }
            }
            Inst::Logic(logic, ..) => {
                let opcode = match logic {
                    Logic::And => 0xdb,
                    Logic::Or => 0xeb,
                    Logic::Xor => 0xef,
                };
                let op = op(Map::M0F, Prefix::P66, opcode);
                self.plain(op, out, self.reg(a), Source::Reg(self.reg(b)));
            }
            Inst::Not(_) => {
                let ones = Source::Reg(Self::SCRATCH);
                self.plain(EQUAL, Self::SCRATCH, Self::SCRATCH, ones);
                self.plain(XOR, out, self.reg(a), ones);
            }
            Inst::Select { lane, .. } => {
                let mut mask = self.reg(a);
                if self.is_wide() && lane == Lane::Word {
                    self.lower_words(Self::SCRATCH, mask);
                    mask = Self::SCRATCH;
                }
                self.blend(lane, out, mask, self.source(b), self.reg(c));
            }
            _ => unreachable!("{inst:?} is written for all instruction sets"),
        }
    }

    fn accumulate(&mut self, lane: Lane, from: u8) {
        let (to, from) = (self.accumulator, Source::Reg(from));
        let Some(part) = self.machine.tail else { return self.plain(LOAD, to, 0, from) };
        let displacement = part * self.lanes * bytes(lane);
        let mask = Source::Mem(Mem::Offset { base: BUFFER, displacement });
        self.plain(self.on_floats(lane, LOAD), Self::SCRATCH, 0, mask);
        self.blend(lane, to, Self::SCRATCH, from, to);
    }

    fn load(&mut self, at: At, element: Element, out: u8) {
        let from = self.elements(at, element, false);
        if self.machine.partial {
            self.load_mask(element.lane());
            return self.plain(self.on(element.lane(), MASKED_LOAD), out, Self::SCRATCH, from);
        }
        let op = match element {
            Element::Wide => LOAD,
            Element::Word => self.on_words(LOAD),
            Element::Half => self.on_words(FROM_HALF),
            Element::BFloat16 => self.on_words(widen(2, false)),
            Element::Short { signed } => self.on_words(widen(2, signed)),
            Element::Byte { signed } => self.on_words(widen(1, signed)),
            // Widen to lanes as wide as masks: the opcode for 64 bits follows the one for 32.
            Element::Bool if self.is_wide() => op(Map::M0F38, Prefix::P66, 0x32),
            Element::Bool => widen(1, false),
        };
        self.plain(op, out, 0, from);
        match element {
            Element::BFloat16 => self.shift(Shift::Left, Lane::Word, out, out, 16),
            Element::Bool => {
                // 0 - 1 is all ones.
                self.plain(XOR, Self::SCRATCH, Self::SCRATCH, Source::Reg(Self::SCRATCH));
                let lane = if self.is_wide() { Lane::Wide } else { Lane::Word };
                let (minus, _) = self.binary(Binary::SubI, lane);
                self.plain(minus, out, Self::SCRATCH, Source::Reg(out));
            }
            _ => {}
        }
    }

    /// A stride of two takes two vectors, of which the second begins where the first ends; the
    /// second vector's elements at odd positions are taken. Each half of a register holds elements
    /// of the first vector, then elements of the second. For other strides, each element is taken
    /// from a vector of its own, which begins so early that the element is in its lane. No vector
    /// reaches beyond the first and the last element.
    fn load_every(&mut self, at: At, element: Element, step: u8, out: u8) {
        if self.machine.tail.is_some() {
            // The copies are consecutive.
            return self.load(at, element, out);
        }
        let (size, lane, base) = (element.size() as i32, element.lane(), self.base(at.pointer));
        let bytes =
            |displacement| Source::Mem(Mem::Offset { base, displacement: at.bytes + displacement });
        let (load, shuffle) = (self.on_floats(lane, LOAD), self.on_floats(lane, SHUFFLE));
        self.plain(load, out, 0, bytes(0));
        if step > 2 {
            let opcode = if lane == Lane::Wide { 0x0d } else { 0x0c };
            let blend =
                VectorOp { wide: false, ..self.on(lane, op(Map::M0F3A, Prefix::P66, opcode)) };
            for i in 1..self.lanes {
                let from = bytes(i * (step as i32 - 1) * size);
                self.vector(blend, out, out, from, Some(1 << i));
            }
            return;
        }
        let taken = if lane == Lane::Wide { 0b1010 } else { 0b11_01_10_00 };
        let second = bytes((self.lanes - 1) * size);
        self.vector(shuffle, out, out, second, Some(taken));
        if shuffle.bits == Bits::B256 {
            self.vector(PERMUTE_64, out, 0, Source::Reg(out), Some(0b11_01_10_00));
        }
    }

    fn store(&mut self, pointer: u16, element: Element, value: u8) {
        let to = self.elements(At { pointer, bytes: 0 }, element, true);
        if self.machine.partial {
            self.load_mask(element.lane());
            return self.plain(self.on(element.lane(), MASKED_STORE), value, Self::SCRATCH, to);
        }
        match element {
            Element::Wide => self.plain(STORE, value, 0, to),
            Element::Word => self.plain(self.on_words(STORE), value, 0, to),
            Element::Half => self.vector(self.on_words(TO_HALF), value, 0, to, Some(0)),
            Element::BFloat16 => {
                self.shift(Shift::Right, Lane::Word, Self::SCRATCH, value, 16);
                self.pack_shorts(Self::SCRATCH, false, to);
            }
            Element::Short { signed } => self.pack_shorts(value, signed, to),
            Element::Byte { signed } => {
                self.pack_bytes(value, signed);
                self.store_bytes(to);
            }
            Element::Bool => {
                let mut words = value;
                if self.is_wide() {
                    self.lower_words(Self::SCRATCH, value);
                    words = Self::SCRATCH;
                }
                // Bytes 0 and -1.
                self.pack_bytes(words, true);
                self.plain(ABS_8, Self::SCRATCH, 0, Source::Reg(Self::SCRATCH));
                self.store_bytes(to);
            }
        }
    }

    fn mask_of_bytes(&mut self, out: u8) {
        self.plain(XOR, out, out, Source::Reg(out));
        self.plain(GREATER_BYTES, out, Self::SCRATCH, Source::Reg(out));
    }

    fn lower_words(&mut self, out: u8, a: u8) {
        let upper = Source::Reg(Self::SCRATCH);
        self.vector(UPPER_HALF, a, 0, upper, Some(1));
        self.vector(SHUFFLE, out, a, upper, Some(0x88));
    }

    fn test_mask(&mut self, mask: u8) {
        // movmskps or movmskpd
        let prefix = if self.is_wide() { Prefix::P66 } else { Prefix::None };
        self.plain(op(Map::M0F, prefix, 0x50), COUNTER.0, 0, Source::Reg(mask));
        self.asm.test(COUNTER);
    }

    fn tested(&mut self, to: Gpr, _: u8) {
        self.asm.copy(to, COUNTER);
    }

    /// Stores the masks of the elements that are left, for 32-bit and for 64-bit lanes.
    fn start_partial(&mut self) {
        self.machine.partial = true;
        for (number, lane) in [Lane::Word, Lane::Wide].into_iter().enumerate() {
            if lane == Lane::Wide && !self.is_wide() {
                continue;
            }
            let (greater, _) = self.comparison(Compare::GtI, lane);
            self.plain(VectorOp { wide: true, ..MOVE }, Self::SCRATCH, 0, Source::Reg(COUNT.0));
            self.splat_from(lane == Lane::Wide, Self::SCRATCH, Source::Reg(Self::SCRATCH));
            let lanes = Source::Mem(Mem::Constant((self.constants.len() + number) as u16));
            self.plain(greater, Self::SCRATCH, Self::SCRATCH, lanes);
            let displacement = self.machine.frame.masks + number as i32 * Self::VECTOR;
            let to = Source::Mem(Mem::Offset { base: RSP, displacement });
            self.plain(STORE, Self::SCRATCH, 0, to);
        }
    }

    fn end_partial(&mut self) {
        self.machine.partial = false;
    }

    /// The numbers of 32-bit and of 64-bit lanes.
    fn constants(&self) -> Vec<Vec<u8>> {
        let lanes = self.lanes as usize;
        let cut = |c: &Cycle| c.points > 1 && !c.points.is_multiple_of(lanes);
        let partial = self.program.cycle.as_ref().is_some_and(cut);
        if !partial {
            return vec![];
        }
        let words = (0..8u32).flat_map(u32::to_le_bytes).collect();
        let wide = (0..4u64).flat_map(u64::to_le_bytes).collect();
        if self.is_wide() { vec![words, wide] } else { vec![words] }
    }

    fn keep_mask(&mut self, _: u8, _: i32, _: bool) {
        unreachable!("masks are vectors")
    }
}

/// The size of a lane in bytes.
fn bytes(lane: Lane) -> i32 {
    if lane == Lane::Wide { 8 } else { 4 }
}

impl Emitter<'_, Avx2> {
    /// Whether any value, and therefore each mask, has 64-bit lanes.
    fn is_wide(&self) -> bool {
        self.words == Bits::B128
    }

    /// Loads the mask of the last vector of a cycle into the scratch register.
    fn load_mask(&mut self, lane: Lane) {
        let number = (lane == Lane::Wide) as i32;
        let displacement = self.machine.frame.masks + number * Self::VECTOR;
        let from = Source::Mem(Mem::Offset { base: RSP, displacement });
        self.plain(LOAD, Self::SCRATCH, 0, from);
    }

    fn find_streams(&mut self) {
        for inst in &self.program.insts {
            let (at, element, step) = match *inst {
                Inst::Load(at, element) => (at, element, 1),
                Inst::LoadEvery(at, element, step) => (at, element, step),
                Inst::Store(pointer, element, _) => (At { pointer, bytes: 0 }, element, 1),
                _ => continue,
            };
            let stored = matches!(inst, Inst::Store(..));
            self.machine.streams.push(Stream { at, element, step, stored });
        }
    }

    fn layout(&self, allocated: &Allocated) -> Frame {
        let buffers = Self::VECTOR * allocated.slots as i32;
        let buffer = Self::VECTOR * self.parts();
        let masks = buffers + buffer * self.machine.streams.len() as i32;
        if self.program.cycle.is_some() {
            return Frame { buffers, buffer, masks: buffers, bytes: buffers + 2 * Self::VECTOR };
        }
        let fold = self.program.fold.map_or(0, |f| bytes(f.lane) * ChainFold::LANES as i32);
        Frame { buffers, buffer, masks, bytes: masks + 2 * fold }
    }

    /// The elements of this iteration; in the last iteration, their copy.
    fn elements(&self, at: At, element: Element, stored: bool) -> Source {
        let Some(part) = self.machine.tail else { return self.element(at, element) };
        let of = |s: &Stream| (s.at, s.element, s.stored) == (at, element, stored);
        let number = self.machine.streams.iter().position(of).expect("each has its stream");
        let displacement = self.copied(number) + part * self.lanes * element.size() as i32;
        Source::Mem(Mem::Offset { base: RSP, displacement })
    }

    /// The offset of the copy of a stream in the frame.
    fn copied(&self, stream: usize) -> i32 {
        let Frame { buffers, buffer, .. } = self.machine.frame;
        buffers + buffer * stream as i32
    }

    /// Fills `bytes` bytes of the frame with a vector.
    fn fill(&mut self, with: u8, at: i32, bytes: i32) {
        for displacement in (at..at + bytes).step_by(Self::VECTOR as usize) {
            self.plain(STORE, with, 0, Source::Mem(Mem::Offset { base: RSP, displacement }));
        }
    }

    /// Sets [`BUFFER`] to the address from which the masks are all ones for as many lanes as there
    /// are elements left, for a reduction. The scratch register is 0.
    fn set_masks(&mut self) {
        let Some(fold) = self.program.fold else { return };
        let (each, at) = (bytes(fold.lane), self.machine.frame.masks);
        let lanes = each * ChainFold::LANES as i32;
        self.fill(Self::SCRATCH, at + lanes, lanes);
        self.plain(EQUAL, Self::SCRATCH, Self::SCRATCH, Source::Reg(Self::SCRATCH));
        self.fill(Self::SCRATCH, at, lanes);
        self.asm.copy(BUFFER, INDEX);
        self.asm.sub_reg(BUFFER, COUNT);
        self.asm.lea_indexed(BUFFER, RSP, BUFFER, each as u8, at + lanes);
    }

    /// `out = mask ? then : other`.
    fn blend(&mut self, lane: Lane, out: u8, mask: u8, then: Source, other: u8) {
        let opcode = if lane == Lane::Wide { 0x4b } else { 0x4a };
        // Without bit W for any lane type.
        let bits = self.on(lane, LOAD).bits;
        let blend = VectorOp { bits, ..op(Map::M0F3A, Prefix::P66, opcode) };
        self.vector(blend, out, other, then, Some(mask << 4));
    }

    /// Copies the elements from the index to the count: loaded elements to the frame, stored
    /// elements from the frame.
    fn copy(&mut self, stored: bool) {
        let next = self.asm.label();
        self.asm.copy(COUNTER, INDEX);
        self.asm.zero(BUFFER);
        self.asm.bind(next);
        for i in 0..self.machine.streams.len() {
            let Stream { at, element, step, stored: out } = self.machine.streams[i];
            if out != stored {
                continue;
            }
            let (base, scale) = (self.base(at.pointer), element.size() as u8);
            let copy =
                Mem::Indexed { base: RSP, index: BUFFER, scale, displacement: self.copied(i) };
            let place = match step {
                1 => Mem::Indexed { base, index: COUNTER, scale, displacement: at.bytes },
                _ => Mem::Offset { base, displacement: at.bytes },
            };
            let (from, to) = if stored { (copy, place) } else { (place, copy) };
            self.asm.load_element(DATA, from, scale);
            self.asm.store_element(DATA, to, scale);
        }
        if !stored {
            for i in 0..self.going.len() {
                let (reg, bytes) = self.going[i];
                self.asm.add(reg, bytes);
            }
        }
        self.asm.add(COUNTER, 1);
        self.asm.add(BUFFER, 1);
        self.asm.compare(COUNTER, COUNT);
        self.asm.jump_if(Condition::Below, next);
    }

    /// Packs 32-bit values that fit 16 bits into the lower half of the scratch register.
    fn pack(&mut self, value: u8, pack: VectorOp) {
        if self.is_wide() {
            self.plain(pack, Self::SCRATCH, value, Source::Reg(value));
        } else if value == Self::SCRATCH {
            // Packing works on each half of the register; then gather the packed halves.
            self.plain(
                VectorOp { bits: Bits::B256, ..pack },
                Self::SCRATCH,
                Self::SCRATCH,
                Source::Reg(Self::SCRATCH),
            );
            let permute = VectorOp { wide: true, ..op(Map::M0F3A, Prefix::P66, 0x00) };
            self.vector(permute, Self::SCRATCH, 0, Source::Reg(Self::SCRATCH), Some(0x08));
        } else {
            self.vector(UPPER_HALF, value, 0, Source::Reg(Self::SCRATCH), Some(1));
            self.plain(pack, Self::SCRATCH, value, Source::Reg(Self::SCRATCH));
        }
    }

    fn pack_shorts(&mut self, value: u8, signed: bool, to: Source) {
        self.pack(value, if signed { PACK_SIGNED_32 } else { PACK_UNSIGNED_32 });
        let store = if self.is_wide() { STORE_64 } else { VectorOp { bits: Bits::B128, ..STORE } };
        self.plain(store, Self::SCRATCH, 0, to);
    }

    fn pack_bytes(&mut self, value: u8, signed: bool) {
        self.pack(value, PACK_SIGNED_32);
        let pack = if signed { PACK_SIGNED_16 } else { PACK_UNSIGNED_16 };
        self.plain(pack, Self::SCRATCH, Self::SCRATCH, Source::Reg(Self::SCRATCH));
    }

    fn store_bytes(&mut self, to: Source) {
        self.plain(if self.is_wide() { STORE_32 } else { STORE_64 }, Self::SCRATCH, 0, to);
    }

    /// The instruction and its predicate. Comparisons of floats do not signal for quiet NaNs.
    fn comparison(&self, compare: Compare, lane: Lane) -> (VectorOp, Option<u8>) {
        let float = self.on_floats(lane, op(Map::M0F, Prefix::None, 0xc2));
        let (equal, greater) = match lane {
            Lane::Wide => (op(Map::M0F38, Prefix::P66, 0x29), op(Map::M0F38, Prefix::P66, 0x37)),
            _ => (EQUAL, op(Map::M0F, Prefix::P66, 0x66)),
        };
        match compare {
            Compare::EqF => (float, Some(0x00)),
            Compare::LtF => (float, Some(0x11)),
            Compare::LeF => (float, Some(0x12)),
            Compare::Unordered => (float, Some(0x03)),
            Compare::EqI => (self.on(lane, equal), None),
            Compare::GtI => (self.on(lane, greater), None),
            Compare::LtI | Compare::LeI | Compare::LtU | Compare::LeU => {
                unreachable!("{compare:?} is no instruction of AVX2")
            }
        }
    }
}

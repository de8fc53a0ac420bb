//! GEMM micro-kernels for AVX-512: a tile of the result (mr rows by nr columns) stays in registers
//! while the loop runs over K.
//!
//! An element of the result is one chain of fused multiply-adds in the order of K, for any tile and
//! any division of K into calls: tiles of all shapes give the same bits. Integers are accumulated
//! modulo 2^32, where the order does not matter.

use super::arena::{self, Code};
use super::asm::{Assembler, Bits, Condition, Gpr, Map, Masking, Mem, Prefix, Source, VectorOp};
use super::indirect;
pub(crate) use super::stored::Stored;
use super::symbols::{self, Symbol};
use girih_kernel::Isa;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// The prefetch distance in rows of packed B, which comes from the L2 cache.
const PREFETCH_ROWS: usize = 8;

/// The registers must hold the accumulators, the vectors of a row of B and an element of A.
const REGISTERS: usize = 32;

pub(super) const MASK: u8 = 1;
pub(super) const CALL: Gpr = Gpr(7);
pub(super) const COUNT: Gpr = Gpr(10);
/// The address of A, or, for an A that is read in memory, the addresses of every third row.
const A_ADDRESSES: [Gpr; 6] = [Gpr(6), Gpr(3), Gpr(5), Gpr(12), Gpr(13), Gpr(14)];
/// Bytes between the rows of A in memory.
const LDA: Gpr = Gpr(15);

const fn op(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map, prefix, opcode, wide: false, bits: Bits::B512 }
}
pub(super) const LOAD: VectorOp = op(Map::M0F, Prefix::None, 0x10);
pub(super) const STORE: VectorOp = op(Map::M0F, Prefix::None, 0x11);
const FROM_HALF: VectorOp = op(Map::M0F38, Prefix::P66, 0x13);
/// Words and bytes to 32 bits, with zero extension or sign extension.
const WIDEN: VectorOp = op(Map::M0F38, Prefix::P66, 0x33);
const EXTEND: VectorOp = op(Map::M0F38, Prefix::P66, 0x23);
const WIDEN_BYTES: VectorOp = op(Map::M0F38, Prefix::P66, 0x31);
const EXTEND_BYTES: VectorOp = op(Map::M0F38, Prefix::P66, 0x21);
const SHIFT: VectorOp = op(Map::M0F, Prefix::P66, 0x72);
const XOR: VectorOp = op(Map::M0F, Prefix::P66, 0xef);
const SPLAT: VectorOp = op(Map::M0F38, Prefix::P66, 0x18);
/// `dst += a * b`, rounded once.
const MULTIPLY_ADD: VectorOp = op(Map::M0F38, Prefix::P66, 0xb8);
/// The low half of a product of integers.
const MULTIPLY: VectorOp = op(Map::M0F38, Prefix::P66, 0x40);
const ADD: VectorOp = op(Map::M0F, Prefix::P66, 0xfe);

/// The shape and operands of a micro-kernel: mr rows by `vectors` vectors of 16 columns (nr / 16).
/// The last vector is masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Microkernel {
    pub mr: usize,
    pub vectors: usize,
    pub stored: Stored,
    /// True if B is read in memory (not packed), and the call gives the address that is prefetched
    /// for each row. Otherwise B is packed, and one line per row is prefetched from what the call
    /// gives.
    pub b_in_place: bool,
    /// The micro-kernel also writes the vectors of B to memory, in packed form.
    pub packs_b: bool,
    /// A is f32 and is read in memory, each row along K; otherwise A is packed.
    pub a_in_place: bool,
    /// B is f32 and its vectors are read through an indirection. A set bit marks a vector whose
    /// lanes are at two addresses.
    pub indirect: Option<u8>,
}

/// The arguments of a micro-kernel. `k` is at least 1.
#[repr(C)]
pub(crate) struct MicrokernelCall {
    /// Packed A, `[k][mr]`, or the first row of A in memory.
    pub a: *const f32,
    /// The first row of B, and bytes between rows; or, for an indirection, the addresses of the
    /// vectors ([`Indirection`](super::indirect::Indirection)).
    pub b: *const u8,
    pub ldb: isize,
    /// The result, and bytes between its rows.
    pub c: *mut f32,
    pub ldc: isize,
    pub k: usize,
    /// Columns of the last vector, 1 to 16.
    pub lanes: usize,
    /// 1 to add to the result, 0 to overwrite it.
    pub accumulate: usize,
    /// Where the vectors of B are written in packed form.
    pub packed_b: *mut f32,
    /// The first row to prefetch, and bytes between those rows.
    pub prefetch: *const u8,
    pub prefetch_stride: isize,
    /// Bytes between the rows of A, if A is not packed.
    pub lda: isize,
}

/// A generated function and its code.
pub(crate) struct Function<Call> {
    /// Declared before the code, so that a debugger forgets the name before the memory is freed.
    _symbol: Symbol,
    code: Code,
    call: std::marker::PhantomData<fn(&Call)>,
}

impl<Call> Function<Call> {
    /// Calls the function.
    ///
    /// # Safety
    /// The pointers of the call are valid for what the shape of this function reads and writes.
    #[inline]
    pub unsafe fn call(&self, call: &Call) {
        type Entry<Call> = unsafe extern "sysv64" fn(*const Call);
        // SAFETY: the address is that of a function generated for this machine with this signature,
        // which follows the calling convention; the code lives as long as `self`.
        unsafe {
            let run: Entry<Call> = std::mem::transmute(self.code.address());
            run(call);
        }
    }

    /// The machine code.
    pub fn bytes(&self) -> &[u8] {
        self.code.bytes()
    }

    pub(super) fn install(code: &[u8], name: &str) -> Option<Self> {
        let code = arena::install(code)?;
        let _symbol = symbols::announce(&code, name);
        Some(Function { _symbol, code, call: std::marker::PhantomData })
    }
}

/// True if the machine has the instructions of these micro-kernels and they are not disabled.
pub(super) fn enabled() -> bool {
    super::function::enabled() && super::function::level() >= Isa::Avx512
}

impl Microkernel {
    /// True if the registers suffice.
    fn fits(&self) -> bool {
        let a_fits =
            !self.a_in_place || self.mr <= 3 * A_ADDRESSES.len() && self.indirect.is_none();
        let b_fits = self.indirect.is_none() || self.vectors <= indirect::MAX_VECTORS;
        self.mr * self.vectors + self.vectors < REGISTERS && a_fits && b_fits
    }

    /// Generates the micro-kernel; `None` if code cannot be generated.
    pub fn compile(&self) -> Option<Function<MicrokernelCall>> {
        if !enabled() {
            return None;
        }
        Function::install(&self.emit(), &format!("tile {} by {}", self.mr, LANES * self.vectors))
    }

    /// Rows of B per iteration: enough to hide the loop overhead.
    fn k_unroll(&self) -> usize {
        if self.a_in_place { 1 } else { (24 / (self.mr * self.vectors)).clamp(1, 4) }
    }

    /// The registers for the addresses of A.
    fn a_addresses(&self) -> &'static [Gpr] {
        if self.a_in_place { &A_ADDRESSES[..self.mr.div_ceil(3)] } else { &A_ADDRESSES[..1] }
    }

    /// The callee-saved registers that the micro-kernel uses.
    fn callee_saved(&self) -> impl DoubleEndedIterator<Item = Gpr> + use<> {
        let step = self.a_in_place.then_some(LDA);
        let b_addresses: &[Gpr] = if self.indirect.is_some() { &indirect::SAVED } else { &[] };
        self.a_addresses()[1..].iter().chain(b_addresses).copied().chain(step)
    }

    pub(super) fn emit(&self) -> Vec<u8> {
        assert!(self.fits() && self.mr > 0 && self.vectors > 0, "{self:?}");
        let mut e = Emitter::default();
        let (a, b, ldb, packed_b) = (A_ADDRESSES[0], Gpr(2), Gpr(1), Gpr(11));
        let (c, ldc, scratch) = (Gpr(8), Gpr(9), Gpr(0));
        self.callee_saved().for_each(|reg| e.asm.push(reg));
        e.asm.load(scratch, CALL, 48);
        e.asm.low_bits(MASK, scratch, packed_b);
        for (i, reg) in [a, b, ldb, c, ldc, COUNT].into_iter().enumerate() {
            e.asm.load(reg, CALL, 8 * i as i32);
        }
        self.load_b_addresses(&mut e, [scratch, packed_b]);
        e.asm.load(packed_b, CALL, 64);
        self.load_a_addresses(&mut e);
        self.init_accumulators(&mut e, c, ldc, scratch);
        let (prefetch, prefetch_stride) = (CALL, scratch);
        e.asm.load(prefetch_stride, CALL, 80);
        e.asm.load(prefetch, CALL, 72);
        e.k_loop(self.k_unroll(), |e, count| {
            for i in 0..count {
                self.rank_1_update(e, b, i);
                if self.indirect.is_none() {
                    self.advance_b(e, [b, ldb], [prefetch, prefetch_stride], packed_b);
                }
            }
            if self.indirect.is_some() {
                self.advance_offsets(e, count);
            }
            let step = if self.a_in_place { 4 } else { 4 * self.mr * count };
            self.a_addresses().iter().for_each(|&address| e.asm.add(address, step as i32));
        });
        for r in 0..self.mr {
            for v in 0..self.vectors {
                let to = at(c, 64 * v);
                e.asm.evex(STORE, self.accumulator(r, v), 0, to, self.masking(v, false), None);
            }
            e.asm.add_reg(c, ldc);
        }
        self.callee_saved().rev().for_each(|reg| e.asm.pop(reg));
        e.asm.leave();
        e.asm.finish(&[])
    }

    /// Computes the addresses of every third row of A.
    fn load_a_addresses(&self, e: &mut Emitter) {
        if !self.a_in_place {
            return;
        }
        e.asm.load(LDA, CALL, 88);
        for pair in self.a_addresses().windows(2) {
            e.asm.lea_indexed(pair[1], pair[0], LDA, 2, 0);
            e.asm.add_reg(pair[1], LDA);
        }
    }

    /// The address of a row's element of A, at a step of the iteration.
    fn a_element(&self, row: usize, step: usize) -> Mem {
        if !self.a_in_place {
            let displacement = (4 * (step * self.mr + row)) as i32;
            return Mem::Offset { base: A_ADDRESSES[0], displacement };
        }
        let base = A_ADDRESSES[row / 3];
        match row % 3 {
            0 => Mem::Offset { base, displacement: 0 },
            after => Mem::Indexed { base, index: LDA, scale: after as u8, displacement: 0 },
        }
    }

    /// The register of an accumulator.
    fn accumulator(&self, row: usize, vector: usize) -> u8 {
        (row * self.vectors + vector) as u8
    }

    /// The register of a vector of B.
    pub(super) fn b_register(&self, vector: usize) -> u8 {
        (self.mr * self.vectors + vector) as u8
    }

    pub(super) fn masking(&self, vector: usize, zero: bool) -> Masking {
        match vector + 1 == self.vectors {
            true => Masking { mask: MASK, zero },
            false => Masking::default(),
        }
    }

    /// Loads the accumulators from the result, or clears them.
    fn init_accumulators(&self, e: &mut Emitter, c: Gpr, ldc: Gpr, scratch: Gpr) {
        let (begin, ready) = (e.asm.label(), e.asm.label());
        e.asm.load(scratch, CALL, 56);
        e.asm.sub(scratch, 1);
        e.asm.jump_if(Condition::Below, begin);
        e.asm.copy(scratch, c);
        for r in 0..self.mr {
            for v in 0..self.vectors {
                let from = at(scratch, 64 * v);
                e.asm.evex(LOAD, self.accumulator(r, v), 0, from, self.masking(v, true), None);
            }
            e.asm.add_reg(scratch, ldc);
        }
        e.asm.zero(scratch);
        e.asm.jump_if(Condition::Equal, ready);
        e.asm.bind(begin);
        (0..self.mr * self.vectors).for_each(|sum| e.clear(sum as u8));
        e.asm.bind(ready);
    }

    /// Loads a row of B.
    fn load_b_row(&self, e: &mut Emitter, b: Gpr) {
        let size = self.stored.size();
        for v in 0..self.vectors {
            let from = at(b, LANES * size * v);
            e.widen(self.stored, self.b_register(v), from, self.masking(v, true));
            if !self.b_in_place {
                e.asm.prefetch(b, (LANES * size * (v + PREFETCH_ROWS * self.vectors)) as i32);
            } else if (v * size).is_multiple_of(4) {
                e.asm.prefetch(CALL, (LANES * size * v) as i32);
            }
            if self.packs_b {
                e.plain(STORE, self.b_register(v), 0, at(Gpr(11), 64 * v));
            }
        }
    }

    /// Advances to the next row of B.
    fn advance_b(&self, e: &mut Emitter, [b, ldb]: [Gpr; 2], prefetch: [Gpr; 2], packed_b: Gpr) {
        e.asm.add_reg(b, ldb);
        if !self.b_in_place {
            e.asm.prefetch(prefetch[0], 0);
        }
        e.asm.add_reg(prefetch[0], prefetch[1]);
        if self.packs_b {
            e.asm.add(packed_b, 64 * self.vectors as i32);
        }
    }

    /// Multiplies one row of B by the elements of A at the same index of K.
    fn rank_1_update(&self, e: &mut Emitter, b: Gpr, step: usize) {
        match self.indirect {
            Some(_) => self.load_indirect_row(e, step),
            None => self.load_b_row(e, b),
        }
        let spare = self.b_register(self.vectors);
        for r in 0..self.mr {
            let element = self.a_element(r, step);
            if let Mem::Offset { base, displacement } = element
                && (self.vectors == 1 || self.stored.is_integer())
            {
                let element = Source::Mem(Mem::Broadcast { base, displacement });
                for v in 0..self.vectors {
                    e.multiply_add(
                        self.stored,
                        self.accumulator(r, v),
                        self.b_register(v),
                        element,
                        spare,
                    );
                }
                continue;
            }
            e.plain(SPLAT, spare, 0, Source::Mem(element));
            for v in 0..self.vectors {
                e.plain(
                    MULTIPLY_ADD,
                    self.accumulator(r, v),
                    spare,
                    Source::Reg(self.b_register(v)),
                );
            }
        }
    }
}

/// The operand in memory at a distance in bytes.
pub(super) fn at(base: Gpr, bytes: usize) -> Source {
    Source::Mem(Mem::Offset { base, displacement: bytes as i32 })
}

#[derive(Default)]
pub(super) struct Emitter {
    pub asm: Assembler,
}

impl Emitter {
    pub(super) fn plain(&mut self, op: VectorOp, dst: u8, a: u8, b: Source) {
        self.asm.evex(op, dst, a, b, Masking::default(), None);
    }

    pub(super) fn clear(&mut self, reg: u8) {
        self.plain(XOR, reg, reg, Source::Reg(reg));
    }

    /// Loads elements in packed form: as f32 or 32-bit integers.
    pub(super) fn widen(&mut self, stored: Stored, out: u8, from: Source, masking: Masking) {
        let op = match stored {
            Stored::F32 | Stored::I32 => LOAD,
            Stored::F16 => FROM_HALF,
            Stored::BF16 | Stored::U16 => WIDEN,
            Stored::I16 => EXTEND,
            Stored::U8 => WIDEN_BYTES,
            Stored::I8 => EXTEND_BYTES,
        };
        self.asm.evex(op, out, 0, from, masking, None);
        if stored == Stored::BF16 {
            self.asm.evex(SHIFT, 6, out, Source::Reg(out), Masking::default(), Some(16));
        }
    }

    /// `sum += a * b`; for integers, `spare` is clobbered by the product.
    pub(super) fn multiply_add(&mut self, stored: Stored, sum: u8, a: u8, b: Source, spare: u8) {
        if !stored.is_integer() {
            return self.plain(MULTIPLY_ADD, sum, a, b);
        }
        self.plain(MULTIPLY, spare, a, b);
        self.plain(ADD, sum, sum, Source::Reg(spare));
    }

    /// Emits a loop of `COUNT` repetitions of the body, `k_unroll` per iteration; at least one.
    fn k_loop(&mut self, k_unroll: usize, body: impl Fn(&mut Emitter, usize)) {
        let (main, rest, one, done) =
            (self.asm.label(), self.asm.label(), self.asm.label(), self.asm.label());
        let step = k_unroll as i32;
        self.asm.sub(COUNT, step);
        self.asm.jump_if(Condition::Below, rest);
        self.asm.align(32);
        self.asm.bind(main);
        body(self, k_unroll);
        self.asm.sub(COUNT, step);
        self.asm.jump_if(Condition::NotBelow, main);
        self.asm.bind(rest);
        if k_unroll > 1 {
            self.asm.add(COUNT, step);
            self.asm.jump_if(Condition::Equal, done);
            self.asm.bind(one);
            body(self, 1);
            self.asm.sub(COUNT, 1);
            self.asm.jump_if(Condition::NotEqual, one);
        }
        self.asm.bind(done);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    pub(in crate::jit) const STORED: [Stored; 3] = [Stored::F32, Stored::F16, Stored::BF16];

    pub(in crate::jit) fn draw(n: usize, seed: usize) -> Vec<f32> {
        // Few bits, so that the values are exact in every format.
        (0..n).map(|i| ((i * 7919 + seed * 104_729) % 251) as f32 / 32.0 - 4.0).collect()
    }

    pub(in crate::jit) fn bytes(values: &[f32], stored: Stored) -> Vec<u8> {
        let of = |&x: &f32| match stored {
            Stored::F32 => x.to_le_bytes().to_vec(),
            Stored::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
            Stored::BF16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
            _ => unreachable!("integers are tested with their products"),
        };
        values.iter().flat_map(of).collect()
    }

    /// Runs a tile over `k` rows of B, some of them in a second call.
    fn run(kernel: Microkernel, k: usize, lanes: usize) {
        let Some(function) = kernel.compile() else { return };
        let columns = (kernel.vectors - 1) * LANES + lanes;
        let pitch = columns + 3;
        let a = draw(k * kernel.mr, 1);
        // The same A with each row along K.
        let rows: Vec<f32> = (0..a.len()).map(|i| a[i % k * kernel.mr + i / k]).collect();
        let b: Vec<f32> = draw(k * pitch, 2).iter().map(|x| x.round()).collect();
        let stored = bytes(&b, kernel.stored);
        let mut c = vec![7.0f32; kernel.mr * pitch];
        let mut packed_b = vec![0f32; k * kernel.vectors * LANES];
        let first = k.div_ceil(3);
        for (start, end) in [(0, first), (first, k)] {
            if start == end {
                continue;
            }
            let step = pitch * kernel.stored.size();
            let call = MicrokernelCall {
                a: if kernel.a_in_place { &rows[start..] } else { &a[start * kernel.mr..] }
                    .as_ptr(),
                b: stored[start * step..].as_ptr(),
                ldb: step as isize,
                c: c.as_mut_ptr(),
                ldc: 4 * pitch as isize,
                k: end - start,
                lanes,
                accumulate: (start > 0) as usize,
                packed_b: packed_b[start * kernel.vectors * LANES..].as_mut_ptr(),
                prefetch: stored.as_ptr(),
                prefetch_stride: 64,
                lda: 4 * k as isize,
            };
            // SAFETY: the operands and the result have these sizes.
            unsafe { function.call(&call) };
        }
        for r in 0..kernel.mr {
            for j in 0..pitch {
                let dot =
                    (0..k).fold(0f32, |s, i| a[i * kernel.mr + r].mul_add(b[i * pitch + j], s));
                let want = if j < columns { dot } else { 7.0 };
                assert_eq!(c[r * pitch + j], want, "{kernel:?} k {k} lanes {lanes} at {r} {j}");
            }
        }
        if kernel.packs_b {
            for (i, &packed) in packed_b.iter().enumerate() {
                let (row, column) = (i / (kernel.vectors * LANES), i % (kernel.vectors * LANES));
                let want = if column < columns { b[row * pitch + column] } else { 0.0 };
                assert_eq!(packed, want, "{kernel:?} kept {row} {column}");
            }
        }
    }

    #[test]
    fn tiles_of_every_shape_are_chains_of_multiply_adds_within_their_columns() {
        for vectors in 1..=8 {
            for rows in 1..=24 {
                let i = rows + vectors;
                let (stored, packs_b) = (STORED[i % 3], i % 2 == 0);
                for a_in_place in [false, true] {
                    let b_in_place = i % 4 < 2;
                    let kernel = Microkernel {
                        mr: rows,
                        vectors,
                        stored,
                        b_in_place,
                        packs_b,
                        a_in_place,
                        indirect: None,
                    };
                    if kernel.fits() {
                        for (k, lanes) in [(1, 16), (2, 1), (5, 7), (16, 15)] {
                            run(kernel, k, lanes);
                        }
                    }
                }
            }
        }
    }

    fn names(kernel: Microkernel) -> Vec<Mnemonic> {
        let code = kernel.emit();
        let decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
        decoder.into_iter().map(|i| i.mnemonic()).collect()
    }

    #[test]
    fn a_tile_of_eight_rows_and_three_vectors_loads_eleven_times_for_24_multiply_adds() {
        let kernel = Microkernel {
            mr: 8,
            vectors: 3,
            stored: Stored::F32,
            b_in_place: false,
            packs_b: false,
            a_in_place: false,
            indirect: None,
        };
        let names = names(kernel);
        assert!(!names.contains(&Mnemonic::INVALID));
        let count = |name| names.iter().filter(|m| **m == name).count();
        assert_eq!(count(Mnemonic::Vfmadd231ps), 24);
        assert_eq!(count(Mnemonic::Vbroadcastss), 8);
        // Three rows' loads, and the result's before and after.
        assert_eq!(count(Mnemonic::Vmovups), 3 + 2 * 24);
    }

    #[test]
    fn a_tile_of_bytes_extends_them_as_it_loads_and_broadcasts_in_its_products() {
        let kernel = Microkernel {
            mr: 8,
            vectors: 3,
            stored: Stored::I8,
            b_in_place: false,
            packs_b: false,
            a_in_place: false,
            indirect: None,
        };
        let names = names(kernel);
        assert!(!names.contains(&Mnemonic::INVALID));
        let count = |name| names.iter().filter(|m| **m == name).count();
        assert_eq!((count(Mnemonic::Vpmovsxbd), count(Mnemonic::Vbroadcastss)), (3, 0));
        assert_eq!((count(Mnemonic::Vpmulld), count(Mnemonic::Vpaddd)), (24, 24));
    }
}

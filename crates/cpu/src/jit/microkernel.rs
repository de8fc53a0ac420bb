//! GEMM micro-kernels for AVX2 and AVX-512: a tile of the result (mr rows by nr columns) stays in
//! registers while the loop runs over K.
//!
//! An element of the result is one chain of fused multiply-adds in the order of K, for any tile and
//! any division of K into calls: tiles of all shapes give the same bits, on both instruction sets.
//! Integers are accumulated modulo 2^32, where the order does not matter.

use super::arena::{self, Code};
use super::asm::{Condition, Gpr, Mem, Source};
use super::function::level;
use super::indirect;
pub(crate) use super::stored::Stored;
use super::symbols::{self, Symbol};
use super::vector::{self, Emitter, Lanes, SPLAT, at};
use girih_exec::Isa;
use std::mem::offset_of;

/// The number of columns of a vector of a panel: one register on AVX-512, two registers on AVX2.
pub(crate) const LANES: usize = 16;

/// The prefetch distance in rows of packed B, which comes from the L2 cache.
const PREFETCH_ROWS: usize = 8;

pub(super) const CALL: Gpr = Gpr(7);
pub(super) const COUNT: Gpr = Gpr(10);
/// The address of A; if A is read in memory, the addresses of every third row, or of all rows.
pub(super) const A_ADDRESSES: [Gpr; 6] = [Gpr(6), Gpr(3), Gpr(5), Gpr(12), Gpr(13), Gpr(14)];
/// The number of bytes between the rows of A in memory; for an indirection, the distance along K.
pub(super) const LDA: Gpr = Gpr(15);
/// The address of the current row of B.
pub(super) const B_ROW: Gpr = Gpr(2);
/// The address to which the vectors of B are written in packed form.
pub(super) const PACKED_B: Gpr = Gpr(11);
/// The pointer to the result, and the number of bytes between its rows.
pub(super) const C: Gpr = Gpr(8);
pub(super) const LDC: Gpr = Gpr(9);
pub(super) const SCRATCH: Gpr = Gpr(0);

/// The source from which a micro-kernel reads A, which is f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SourceOfA {
    /// A packed tile, `[k][mr]`.
    Packed,
    /// Rows in memory, at a constant distance; each row is contiguous along K.
    InPlace,
    /// Rows of several tiles in memory, each row at its own address, with the same distances along K
    /// ([`IndirectRows`](super::indirect::IndirectRows)). B is packed as f32, in whole registers.
    Indirect,
}

/// The shape and operands of a micro-kernel: mr rows by `vectors` vectors of 16 columns (nr / 16);
/// the last vector has `tail` columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Microkernel {
    pub mr: usize,
    pub vectors: usize,
    /// The number of columns of the last vector: 1 to 16.
    pub tail: usize,
    pub stored: Stored,
    /// Whether B is read in memory (not packed), and the call has the address that is prefetched
    /// for each row. Otherwise B is packed, and one line per row is prefetched from the address in
    /// the call.
    pub b_in_place: bool,
    /// Whether the micro-kernel also writes the vectors of B to memory, in packed form.
    pub packs_b: bool,
    pub a: SourceOfA,
    /// If present, B is f32 and its vectors are read through an indirection. A set bit marks a
    /// vector whose lanes are at two addresses.
    pub indirect: Option<u8>,
}

/// The arguments of a micro-kernel. `k` is at least 1.
#[repr(C)]
pub(crate) struct MicrokernelCall {
    /// Packed A, `[k][mr]`, the first row of A in memory, or, for an indirection, the rows of several
    /// tiles ([`IndirectRows`](super::indirect::IndirectRows)).
    pub a: *const f32,
    /// The first row of B, and the number of bytes between rows; or, for an indirection, the
    /// addresses of the vectors ([`Indirection`](super::indirect::Indirection)).
    pub b: *const u8,
    pub ldb: isize,
    /// The result, and the number of bytes between its rows.
    pub c: *mut f32,
    pub ldc: isize,
    pub k: usize,
    /// 1 to add to the result, 0 to overwrite it.
    pub accumulate: usize,
    /// The address to which the vectors of B are written in packed form.
    pub packed_b: *mut f32,
    /// The first row to prefetch, and the number of bytes between the rows to prefetch.
    pub prefetch: *const u8,
    pub prefetch_stride: isize,
    /// The number of bytes between the rows of A, if A is not packed.
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

/// Whether the machine has the instructions of these micro-kernels and they are not disabled.
pub(crate) fn enabled() -> bool {
    super::function::enabled() && level() >= Isa::Avx2
}

/// Whether the machine also has AVX-512.
pub(crate) fn avx512_enabled() -> bool {
    enabled() && level() >= Isa::Avx512
}

impl Microkernel {
    /// The micro-kernel of `mr` rows by `columns` columns of f32 whose operands are packed.
    pub fn packed(mr: usize, columns: usize) -> Microkernel {
        Microkernel {
            mr,
            vectors: columns.div_ceil(LANES),
            tail: (columns - 1) % LANES + 1,
            stored: Stored::F32,
            b_in_place: false,
            packs_b: false,
            a: SourceOfA::Packed,
            indirect: None,
        }
    }

    /// The number of registers of a row of the tile.
    pub(super) fn row_registers(&self) -> usize {
        let columns = (self.vectors - 1) * LANES + self.tail;
        columns.div_ceil(vector::lanes(level()))
    }

    /// The number of registers for vectors of B: a row of B, or two registers in turn if each
    /// vector is used once.
    fn b_registers(&self) -> usize {
        if self.mr == 1 { self.row_registers().min(2) } else { self.row_registers() }
    }

    /// Whether an element of A is broadcast by the instruction that multiplies it.
    fn broadcasts_in_place(&self) -> bool {
        level() >= Isa::Avx512
            && self.a == SourceOfA::Packed
            && (self.vectors == 1 || self.stored.is_integer())
            && self.stored != Stored::Pair
    }

    /// The number of registers for an element of A, and for the products of integers or the masks
    /// of split vectors.
    fn spare_registers(&self) -> usize {
        let product = self.stored.is_integer() && !self.broadcasts_in_place();
        let mask = self.indirect.is_some() && level() < Isa::Avx512;
        if product || mask { 2 } else { 1 }
    }

    /// Whether there are enough registers (for the accumulators, the vectors of B and an element of
    /// A), and no load may leave B: on AVX2, first lanes are loaded without a mask.
    pub(crate) fn fits(&self) -> bool {
        let a_fits = match self.a {
            SourceOfA::Packed => true,
            SourceOfA::InPlace => self.mr <= 3 * A_ADDRESSES.len() && self.indirect.is_none(),
            SourceOfA::Indirect => {
                let packed_b = self.stored == Stored::F32 && !self.b_in_place;
                self.mr <= A_ADDRESSES.len() && packed_b && self.indirect.is_none()
            }
        };
        let b_fits = self.indirect.is_none() || self.vectors <= indirect::max_vectors();
        let masked = level() >= Isa::Avx512 || !self.split(self.vectors - 1);
        let b_fits = b_fits && (masked || self.lanes(self.row_registers() - 1) == Lanes::All);
        let accumulators = self.mr * self.row_registers();
        let needed = accumulators + self.b_registers() + self.spare_registers();
        needed <= vector::registers(level()) && a_fits && b_fits
    }

    /// Generates the micro-kernel; `None` if code cannot be generated.
    pub fn compile(&self) -> Option<Function<MicrokernelCall>> {
        if !enabled() {
            return None;
        }
        Function::install(&self.emit(), &format!("tile {} by {}", self.mr, LANES * self.vectors))
    }

    /// The number of rows of B per iteration: enough to hide the loop overhead.
    pub(super) fn k_unroll(&self) -> usize {
        let in_flight = if level() >= Isa::Avx512 { 24 } else { 48 };
        match self.a {
            SourceOfA::InPlace => 1,
            _ => (in_flight / (self.mr * self.row_registers())).clamp(1, 4),
        }
    }

    /// The registers for the addresses of A.
    fn a_addresses(&self) -> &'static [Gpr] {
        let addresses = match self.a {
            SourceOfA::Packed => 1,
            SourceOfA::InPlace => self.mr.div_ceil(3),
            SourceOfA::Indirect => self.mr,
        };
        &A_ADDRESSES[..addresses]
    }

    /// The callee-saved registers that the micro-kernel uses.
    fn callee_saved(&self) -> impl DoubleEndedIterator<Item = Gpr> + use<> {
        let step = (self.a != SourceOfA::Packed).then_some(LDA);
        let b_addresses: &[Gpr] = if self.indirect.is_some() { &indirect::SAVED } else { &[] };
        self.a_addresses()[1..].iter().chain(b_addresses).copied().chain(step)
    }

    pub(super) fn emit(&self) -> Vec<u8> {
        assert!(self.fits() && self.mr > 0 && self.vectors > 0, "{self:?}");
        assert!((1..=LANES).contains(&self.tail), "{self:?}");
        assert!(self.b_in_place || !self.packs_b, "{self:?}");
        let mut e = Emitter::new(level());
        self.callee_saved().for_each(|reg| e.asm.push(reg));
        if self.lanes(self.row_registers() - 1) == Lanes::Tail {
            e.set_tail(self.tail % vector::lanes(level()), [SCRATCH, PACKED_B]);
        }
        match self.a {
            SourceOfA::Indirect => self.emit_tiles(&mut e),
            SourceOfA::Packed | SourceOfA::InPlace => self.emit_tile(&mut e),
        }
        self.callee_saved().rev().for_each(|reg| e.asm.pop(reg));
        e.asm.leave();
        e.finish()
    }

    /// Emits the code of one tile.
    fn emit_tile(&self, e: &mut Emitter) {
        let ldb = Gpr(1);
        for (reg, at) in [
            (A_ADDRESSES[0], offset_of!(MicrokernelCall, a)),
            (B_ROW, offset_of!(MicrokernelCall, b)),
            (ldb, offset_of!(MicrokernelCall, ldb)),
            (C, offset_of!(MicrokernelCall, c)),
            (LDC, offset_of!(MicrokernelCall, ldc)),
            (COUNT, offset_of!(MicrokernelCall, k)),
        ] {
            e.asm.load(reg, CALL, at as i32);
        }
        self.load_b_addresses(e, [SCRATCH, PACKED_B]);
        e.asm.load(PACKED_B, CALL, offset_of!(MicrokernelCall, packed_b) as i32);
        self.load_a_addresses(e);
        self.init_accumulators(e);
        let (prefetch, prefetch_stride) = (CALL, SCRATCH);
        e.asm.load(prefetch_stride, CALL, offset_of!(MicrokernelCall, prefetch_stride) as i32);
        e.asm.load(prefetch, CALL, offset_of!(MicrokernelCall, prefetch) as i32);
        e.repeat(COUNT, self.k_unroll(), |e, count| {
            for i in 0..count {
                self.rank_1_update(e, i);
                if self.indirect.is_none() {
                    self.advance_b(e, ldb, [prefetch, prefetch_stride]);
                }
            }
            if self.indirect.is_some() {
                self.advance_offsets(e, count);
            }
            let in_place = self.a == SourceOfA::InPlace;
            let step = if in_place { 4 } else { 4 * self.mr * count };
            self.a_addresses().iter().for_each(|&address| e.asm.add(address, step as i32));
        });
        self.store_accumulators(e);
    }

    /// Stores the accumulators to the result; C then points to the row below the tile.
    pub(super) fn store_accumulators(&self, e: &mut Emitter) {
        for r in 0..self.mr {
            for v in 0..self.row_registers() {
                let to = at(C, e.bytes() * v);
                e.store(self.accumulator(r, v), to, self.lanes(v), self.b_register(0));
            }
            e.asm.add_reg(C, LDC);
        }
    }

    /// Computes the addresses of every third row of an A in memory.
    fn load_a_addresses(&self, e: &mut Emitter) {
        if self.a != SourceOfA::InPlace {
            return;
        }
        e.asm.load(LDA, CALL, offset_of!(MicrokernelCall, lda) as i32);
        for pair in self.a_addresses().windows(2) {
            e.asm.lea_indexed(pair[1], pair[0], LDA, 2, 0);
            e.asm.add_reg(pair[1], LDA);
        }
    }

    /// The address of a row's element of A, at a step of the iteration.
    fn a_element(&self, row: usize, step: usize) -> Mem {
        match self.a {
            SourceOfA::Packed => {
                let displacement = (4 * (step * self.mr + row)) as i32;
                return Mem::Offset { base: A_ADDRESSES[0], displacement };
            }
            SourceOfA::Indirect => {
                let base = A_ADDRESSES[row];
                return Mem::Indexed { base, index: LDA, scale: 1, displacement: 0 };
            }
            SourceOfA::InPlace => {}
        }
        let base = A_ADDRESSES[row / 3];
        match row % 3 {
            0 => Mem::Offset { base, displacement: 0 },
            after => Mem::Indexed { base, index: LDA, scale: after as u8, displacement: 0 },
        }
    }

    /// The register of an accumulator.
    fn accumulator(&self, row: usize, vector: usize) -> u8 {
        (row * self.row_registers() + vector) as u8
    }

    /// The register that a vector of B is loaded to.
    pub(super) fn b_register(&self, vector: usize) -> u8 {
        (self.mr * self.row_registers() + vector % self.b_registers()) as u8
    }

    /// A register for an element of A or a product of integers.
    pub(super) fn spare_register(&self, number: usize) -> u8 {
        (self.mr * self.row_registers() + self.b_registers() + number) as u8
    }

    /// The lanes of a register of a row that are columns of the tile.
    pub(super) fn lanes(&self, register: usize) -> Lanes {
        let whole = self.tail.is_multiple_of(vector::lanes(level()));
        if whole || register + 1 < self.row_registers() { Lanes::All } else { Lanes::Tail }
    }

    /// Loads the accumulators from the result, or clears them.
    pub(super) fn init_accumulators(&self, e: &mut Emitter) {
        let (begin, ready) = (e.asm.label(), e.asm.label());
        e.asm.load(SCRATCH, CALL, offset_of!(MicrokernelCall, accumulate) as i32);
        e.asm.sub(SCRATCH, 1);
        e.asm.jump_if(Condition::Below, begin);
        e.asm.copy(SCRATCH, C);
        for r in 0..self.mr {
            for v in 0..self.row_registers() {
                let from = at(SCRATCH, e.bytes() * v);
                e.load(Stored::F32, self.accumulator(r, v), from, self.lanes(v));
            }
            e.asm.add_reg(SCRATCH, LDC);
        }
        e.asm.zero(SCRATCH);
        e.asm.jump_if(Condition::Equal, ready);
        e.asm.bind(begin);
        (0..self.mr * self.row_registers()).for_each(|sum| e.clear(sum as u8));
        e.asm.bind(ready);
    }

    /// The address of a vector of the current row of B.
    fn b_vector(&self, e: &Emitter, vector: usize) -> Source {
        at(B_ROW, e.bytes() / 4 * self.stored.size() * vector)
    }

    /// Whether the vector of B is an operand in memory of its only multiplication. (The other
    /// factor is then in a register, because an instruction has only one operand in memory.)
    fn multiplies_in_memory(&self, vector: usize) -> bool {
        let once = self.mr == 1 && self.stored == Stored::F32 && !self.packs_b;
        let once = once && !self.broadcasts_in_place() && self.a != SourceOfA::Indirect;
        let whole = !self.b_in_place || self.lanes(vector) == Lanes::All;
        once && self.indirect.is_none() && whole
    }

    /// Loads a vector of a row of B, and prefetches the lines of B of later rows.
    fn load_b_vector(&self, e: &mut Emitter, v: usize) {
        let size = self.stored.size();
        let bytes = e.bytes() / 4 * size;
        if !self.multiplies_in_memory(v) {
            // Packed panels are padded with zeros.
            let lanes = if self.b_in_place { self.lanes(v) } else { Lanes::All };
            e.load(self.stored, self.b_register(v), self.b_vector(e, v), lanes);
        }
        let row_bytes = LANES * size * self.vectors;
        if !self.b_in_place && (bytes * v).is_multiple_of(LANES * size) {
            e.asm.prefetch(B_ROW, (bytes * v + PREFETCH_ROWS * row_bytes) as i32);
        } else if self.b_in_place && (bytes * v).is_multiple_of(64) {
            e.asm.prefetch(CALL, (bytes * v) as i32);
        }
        if self.packs_b {
            e.store(self.b_register(v), at(PACKED_B, e.bytes() * v), Lanes::All, 0);
        }
    }

    /// Advances to the next row of B.
    fn advance_b(&self, e: &mut Emitter, ldb: Gpr, prefetch: [Gpr; 2]) {
        e.asm.add_reg(B_ROW, ldb);
        if !self.b_in_place {
            e.asm.prefetch(prefetch[0], 0);
        }
        e.asm.add_reg(prefetch[0], prefetch[1]);
        if self.packs_b {
            e.asm.add(PACKED_B, 64 * self.vectors as i32);
        }
    }

    /// Multiplies one row of B by the elements of A at the same index of K.
    pub(super) fn rank_1_update(&self, e: &mut Emitter, step: usize) {
        let load = |e: &mut Emitter, v: usize| match (self.indirect, self.a) {
            (Some(_), _) => self.load_indirect_vector(e, v),
            (None, SourceOfA::Indirect) => self.load_packed_vector(e, v, step),
            (None, _) => self.load_b_vector(e, v),
        };
        if self.indirect.is_some() {
            self.load_offset(e, step);
        } else if self.a == SourceOfA::Indirect {
            self.load_row_offset(e, step);
        }
        if self.mr == 1 {
            let a = self.a_factor(e, 0, step);
            for v in 0..self.row_registers() {
                load(e, v);
                self.multiply_add(e, 0, v, a);
            }
        } else {
            (0..self.row_registers()).for_each(|v| load(e, v));
            for r in 0..self.mr {
                let a = self.a_factor(e, r, step);
                (0..self.row_registers()).for_each(|v| self.multiply_add(e, r, v, a));
            }
        }
        if self.indirect.is_some() {
            self.prefetch_offset(e, step);
        }
    }

    /// An element of A in all lanes: in a register, or in memory if the multiplication broadcasts
    /// it.
    fn a_factor(&self, e: &mut Emitter, row: usize, step: usize) -> Source {
        let element = self.a_element(row, step);
        if let Mem::Offset { base, displacement } = element
            && self.broadcasts_in_place()
        {
            return Source::Mem(Mem::Broadcast { base, displacement });
        }
        let register = self.spare_register(self.spare_registers() - 1);
        e.plain(SPLAT, register, 0, Source::Mem(element));
        Source::Reg(register)
    }

    /// Adds the product of an element of A and a vector of B to an accumulator.
    fn multiply_add(&self, e: &mut Emitter, row: usize, vector: usize, a: Source) {
        let (sum, spare) = (self.accumulator(row, vector), self.spare_register(0));
        match a {
            Source::Reg(a) if self.multiplies_in_memory(vector) => {
                e.multiply_add(self.stored, sum, a, self.b_vector(e, vector), spare);
            }
            a => e.multiply_add(self.stored, sum, self.b_register(vector), a, spare),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;

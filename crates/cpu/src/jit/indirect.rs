//! Micro-kernels of indirect convolution, which read the windows of an image in memory: each vector
//! of B has an address of its own, or, if the windows are the rows of A, each row has one.

use super::asm::{Condition, Gpr, Mem, Source};
use super::function::level;
use super::microkernel::{
    A_ADDRESSES, B_ROW, C, CALL, COUNT, LANES, LDA, LDC, Microkernel, MicrokernelCall, PACKED_B,
    SCRATCH, enabled,
};
use super::stored::Stored;
use super::vector::{self, Emitter, Lanes, Split, at};
use girih_exec::Isa;
use std::mem::offset_of;

/// The maximum number of vectors of a panel: each vector needs two registers for addresses, and a
/// mask.
pub(crate) const MAX_VECTORS: usize = 3;

/// The maximum number of vectors of a panel on this machine. On AVX2, masks are in the 128 bytes
/// below the stack pointer that a function may use without allocating them (the red zone, System V
/// ABI 3.2.2).
pub(crate) fn max_vectors() -> usize {
    if level() >= Isa::Avx512 { MAX_VECTORS } else { 2 }
}

/// The prefetch distance in rows: an image may come from the L3 cache.
pub(crate) const PREFETCH_ROWS: usize = 18;

/// The indirection: the data that [`MicrokernelCall::b`](super::microkernel::MicrokernelCall::b)
/// points to. The first lanes of a vector may be at another address than its other lanes. Both
/// addresses are addresses of lane 0.
#[repr(C)]
pub(crate) struct Indirection {
    /// The number of bytes from the addresses to each row, and to [`PREFETCH_ROWS`] more rows,
    /// which are only prefetched.
    pub offsets: *const isize,
    pub rest: [*const u8; MAX_VECTORS],
    pub first: [*const u8; MAX_VECTORS],
    /// The number of first lanes.
    pub first_lanes: [usize; MAX_VECTORS],
}

/// The maximum number of rows of a tile whose rows have addresses of their own.
pub(crate) const MAX_ROWS: usize = A_ADDRESSES.len();

/// The maximum number of registers of a row of such a tile, on any machine.
pub(crate) const MAX_ROW_REGISTERS: usize = 4;

/// The shape of tiles whose rows have addresses of their own.
#[derive(Clone, Copy)]
pub(crate) struct IndirectTiles {
    /// The number of lanes of a register.
    pub lanes: usize,
    /// The minimum number of registers of a row: fewer leave most accumulators of AVX-512 unused.
    pub min_row_registers: usize,
    /// The maximum number of registers of a row.
    pub row_registers: usize,
    /// The maximum number of accumulators.
    pub accumulators: usize,
}

/// The shape of tiles that read A through an indirection on this machine; `None` if code cannot be
/// generated.
pub(crate) fn tiles() -> Option<IndirectTiles> {
    let (min_row_registers, row_registers, accumulators) =
        if level() >= Isa::Avx512 { (2, MAX_ROW_REGISTERS, 24) } else { (1, 3, 12) };
    let lanes = vector::lanes(level());
    enabled().then_some(IndirectTiles { lanes, min_row_registers, row_registers, accumulators })
}

/// The prefetch distance in rows of packed B, if A is read through an indirection: a panel of B may
/// come from the L2 cache.
const PANEL_PREFETCH_ROWS: usize = 8;

/// The indirection of A: the data that [`MicrokernelCall::a`](super::microkernel::MicrokernelCall::a)
/// points to. Element `k` of a row is at the address of the row plus offset `k`. The rows are those of
/// one or more tiles, whose results follow each other.
#[repr(C)]
pub(crate) struct IndirectRows {
    /// The number of bytes from the address of a row to its elements.
    pub offsets: *const isize,
    /// The addresses of the rows, and their end.
    pub rows: *const *const u8,
    pub rows_end: *const *const u8,
}

/// The pointer to the addresses of the rows of the next tile.
const ROWS: Gpr = PACKED_B;

const REST: [Gpr; MAX_VECTORS] = [Gpr(3), Gpr(5), Gpr(12)];
const FIRST: [Gpr; MAX_VECTORS] = [Gpr(13), Gpr(14), Gpr(15)];
/// The masks of first lanes, in consecutive mask registers after the mask of the tail (AVX-512).
const FIRST_MASK: u8 = 2;
/// The pointer to the next row's offset, and the offset.
const OFFSETS: Gpr = Gpr(1);
const OFFSET: Gpr = Gpr(2);
const STACK: Gpr = Gpr(4);
/// The callee-saved registers that the micro-kernel uses.
pub(super) const SAVED: [Gpr; 2 * MAX_VECTORS] =
    [Gpr(3), Gpr(5), Gpr(12), Gpr(13), Gpr(14), Gpr(15)];

impl Microkernel {
    /// Whether a vector's first lanes are at another address.
    pub(super) fn split(&self, vector: usize) -> bool {
        self.indirect.is_some_and(|split| split >> vector & 1 == 1)
    }

    /// Loads the addresses of the vectors, and makes the masks of first lanes; two registers are
    /// clobbered.
    pub(super) fn load_b_addresses(&self, e: &mut Emitter, [lost, scratch]: [Gpr; 2]) {
        if self.indirect.is_none() {
            return;
        }
        for v in 0..self.vectors {
            let at = |field: usize| (field + 8 * v) as i32;
            e.asm.load(REST[v], OFFSET, at(offset_of!(Indirection, rest)));
            if !self.split(v) {
                continue;
            }
            e.asm.load(FIRST[v], OFFSET, at(offset_of!(Indirection, first)));
            let first_lanes = at(offset_of!(Indirection, first_lanes));
            if e.evex() {
                e.asm.load(lost, OFFSET, first_lanes);
                e.asm.low_bits(FIRST_MASK + v as u8, lost, scratch);
            } else {
                let count = Mem::Offset { base: OFFSET, displacement: first_lanes };
                let masks = [2 * v, 2 * v + 1].map(Self::first_mask);
                e.first_lanes_mask(count, masks, [0, 1]);
            }
        }
        e.asm.load(OFFSETS, OFFSET, 0);
    }

    /// The operand with the mask of a register's first lanes (AVX2), below the stack pointer.
    fn first_mask(register: usize) -> Mem {
        Mem::Offset { base: STACK, displacement: -32 * (register as i32 + 1) }
    }

    /// Loads the offset of the row that comes `step` rows after the first of the iteration.
    pub(super) fn load_offset(&self, e: &mut Emitter, step: usize) {
        e.asm.load(OFFSET, OFFSETS, 8 * step as i32);
    }

    /// Loads a register of a row whose offset is loaded.
    pub(super) fn load_indirect_vector(&self, e: &mut Emitter, register: usize) {
        let (v, within) = (register * e.bytes() / (4 * LANES), register * e.bytes() % (4 * LANES));
        let at = |base| {
            Source::Mem(Mem::Indexed { base, index: OFFSET, scale: 1, displacement: within as i32 })
        };
        let (out, lanes) = (self.b_register(register), self.lanes(register));
        if !self.split(v) {
            return e.load(Stored::F32, out, at(REST[v]), lanes);
        }
        let split = match e.evex() {
            true => Split::Mask(FIRST_MASK + v as u8),
            false => Split::Memory(Self::first_mask(register)),
        };
        e.load_split(out, [at(REST[v]), at(FIRST[v])], lanes, split, self.spare_register(0));
    }

    /// Prefetches a later row.
    pub(super) fn prefetch_offset(&self, e: &mut Emitter, step: usize) {
        if self.indirect == Some(0) {
            // A tile with split vectors would wait for these additional loads.
            e.asm.load(OFFSET, OFFSETS, 8 * (step + PREFETCH_ROWS) as i32);
            (0..=self.vectors).for_each(|v| e.asm.prefetch_at(REST[0], OFFSET, 1, 64 * v as i32));
        }
    }

    /// Advances by `rows` rows.
    pub(super) fn advance_offsets(&self, e: &mut Emitter, rows: usize) {
        e.asm.add(OFFSETS, 8 * rows as i32);
    }

    /// Emits a loop over the tiles of an [`IndirectRows`].
    pub(super) fn emit_tiles(&self, e: &mut Emitter) {
        let call = |e: &mut Emitter, to, field: usize| e.asm.load(to, CALL, field as i32);
        let (a, next) = (offset_of!(MicrokernelCall, a), e.asm.label());
        call(e, C, offset_of!(MicrokernelCall, c));
        call(e, LDC, offset_of!(MicrokernelCall, ldc));
        call(e, ROWS, a);
        e.asm.load(ROWS, ROWS, offset_of!(IndirectRows, rows) as i32);
        e.asm.bind(next);
        for (r, &address) in A_ADDRESSES[..self.mr].iter().enumerate() {
            e.asm.load(address, ROWS, 8 * r as i32);
        }
        call(e, OFFSETS, a);
        e.asm.load(OFFSETS, OFFSETS, offset_of!(IndirectRows, offsets) as i32);
        call(e, B_ROW, offset_of!(MicrokernelCall, b));
        call(e, COUNT, offset_of!(MicrokernelCall, k));
        self.init_accumulators(e);
        e.repeat(COUNT, self.k_unroll(), |e, count| {
            (0..count).for_each(|i| self.rank_1_update(e, i));
            e.asm.add(OFFSETS, 8 * count as i32);
            e.asm.add(B_ROW, (e.bytes() * self.row_registers() * count) as i32);
        });
        self.store_accumulators(e);
        e.asm.add(ROWS, 8 * self.mr as i32);
        call(e, SCRATCH, a);
        e.asm.load(SCRATCH, SCRATCH, offset_of!(IndirectRows, rows_end) as i32);
        e.asm.compare(ROWS, SCRATCH);
        e.asm.jump_if(Condition::Below, next);
    }

    /// Loads the offset of the elements of A that come `step` indices of K after the first of the
    /// iteration.
    pub(super) fn load_row_offset(&self, e: &mut Emitter, step: usize) {
        e.asm.load(LDA, OFFSETS, 8 * step as i32);
    }

    /// Loads a register of the packed row of B that comes `step` rows after the first of the
    /// iteration, and prefetches a later row.
    pub(super) fn load_packed_vector(&self, e: &mut Emitter, register: usize, step: usize) {
        let row = e.bytes() * self.row_registers();
        let from = at(B_ROW, row * step + e.bytes() * register);
        e.load(Stored::F32, self.b_register(register), from, Lanes::All);
        if register == 0 || e.evex() {
            let ahead = row * (step + PANEL_PREFETCH_ROWS) + e.bytes() * register;
            e.asm.prefetch(B_ROW, ahead as i32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::microkernel::SourceOfA;
    use super::super::microkernel::tests::draw;
    use super::*;

    /// The offset of a vector's other lanes, the offset of its first lanes, and the number of first
    /// lanes.
    const REST_AT: usize = 60;
    const FIRST: usize = 20;
    const SPLIT: usize = 5;

    /// Runs a tile over `k` rows at irregular distances.
    fn run(kernel: Microkernel, k: usize) {
        let Some(function) = kernel.compile() else { return };
        let (a, data) = (draw(k * kernel.mr, 1), draw(300 * MAX_VECTORS + 400, 2));
        let rows: Vec<isize> = (0..k + PREFETCH_ROWS).map(|i| i as isize * 37 % 200).collect();
        let at = |v: usize, lane: usize| data[300 * v + lane..].as_ptr() as *const u8;
        let bytes: Vec<isize> = rows.iter().map(|row| 4 * row).collect();
        let indirect = Indirection {
            offsets: bytes.as_ptr(),
            rest: std::array::from_fn(|v| at(v, REST_AT)),
            first: std::array::from_fn(|v| at(v, FIRST)),
            first_lanes: std::array::from_fn(|v| SPLIT + v),
        };
        let columns = (kernel.vectors - 1) * LANES + kernel.tail;
        let pitch = columns + 3;
        let mut c = vec![7.0f32; kernel.mr * pitch];
        let call = MicrokernelCall {
            a: a.as_ptr(),
            b: (&raw const indirect).cast(),
            ldb: 0,
            c: c.as_mut_ptr(),
            ldc: 4 * pitch as isize,
            k,
            accumulate: 0,
            packed_b: std::ptr::null_mut(),
            prefetch: std::ptr::null(),
            prefetch_stride: 0,
            lda: 0,
        };
        // SAFETY: the operands and the result have these sizes.
        unsafe { function.call(&call) };
        let b = |i: usize, column: usize| {
            let (v, lane) = (column / LANES, column % LANES);
            let first = kernel.split(v) && lane < SPLIT + v;
            data[300 * v + lane + if first { FIRST } else { REST_AT } + rows[i] as usize]
        };
        for (at, &found) in c.iter().enumerate() {
            let (r, j) = (at / pitch, at % pitch);
            let dot = (0..k).fold(0f32, |s, i| a[i * kernel.mr + r].mul_add(b(i, j.min(47)), s));
            let want = if j < columns { dot } else { 7.0 };
            assert_eq!(found, want, "{kernel:?} k {k} at {r} {j}");
        }
    }

    #[test]
    fn indirect_tiles_equal_chains_of_multiply_adds() {
        crate::jit::on_each_level(run_every_shape);
    }

    fn run_every_shape() {
        let shapes = [(1, 1), (1, 2), (2, 2), (6, 1), (4, 3), (9, 3), (14, 2), (13, 2), (24, 1)];
        for (rows, vectors) in shapes {
            for split in 0..1 << vectors {
                let packed = Microkernel::packed(rows, LANES * vectors);
                let kernel = Microkernel { indirect: Some(split), ..packed };
                for (k, tail) in [(1, 16), (2, 1), (5, 7), (16, 15), (3, 8)] {
                    let kernel = Microkernel { tail, ..kernel };
                    if kernel.fits() {
                        run(kernel, k);
                    }
                }
            }
        }
    }

    /// Runs tiles of rows at irregular addresses over `k` rows of packed B, some of them in a second
    /// call.
    fn run_rows(kernel: Microkernel, tiles: usize, k: usize) {
        let Some(function) = kernel.compile() else { return };
        let columns = (kernel.vectors - 1) * LANES + kernel.tail;
        let lanes = vector::lanes(level());
        let width = columns.next_multiple_of(lanes);
        let (data, b) = (draw(3000, 1), draw(k * width, 2));
        let row_at = |r: usize| r * r * 3 + 100 * r;
        let offset = |i: usize| i * 37 % 200;
        let offsets: Vec<isize> = (0..k).map(|i| 4 * offset(i) as isize).collect();
        let rows: Vec<_> =
            (0..tiles * kernel.mr).map(|r| data[row_at(r)..].as_ptr() as *const u8).collect();
        let pitch = columns + 3;
        let mut c = vec![7.0f32; rows.len() * pitch];
        let first = k.div_ceil(3);
        for (start, end) in [(0, first), (first, k)].into_iter().filter(|(start, end)| start < end)
        {
            let std::ops::Range { start: first, end: rows_end } = rows.as_ptr_range();
            let offsets = offsets[start..].as_ptr();
            let indirect = IndirectRows { offsets, rows: first, rows_end };
            let call = MicrokernelCall {
                a: (&raw const indirect).cast(),
                b: b[start * width..].as_ptr().cast(),
                ldb: 0,
                c: c.as_mut_ptr(),
                ldc: 4 * pitch as isize,
                k: end - start,
                accumulate: (start > 0) as usize,
                packed_b: std::ptr::null_mut(),
                prefetch: std::ptr::null(),
                prefetch_stride: 0,
                lda: 0,
            };
            // SAFETY: the operands and the result have these sizes.
            unsafe { function.call(&call) };
        }
        for (at, &found) in c.iter().enumerate() {
            let (r, j) = (at / pitch, at % pitch);
            let a = |i: usize| data[row_at(r) + offset(i)];
            let dot = |j: usize| (0..k).fold(0f32, |s, i| a(i).mul_add(b[i * width + j], s));
            let want = if j < columns { dot(j) } else { 7.0 };
            assert_eq!(found, want, "{kernel:?} k {k} at {r} {j}");
        }
    }

    #[test]
    fn tiles_of_indirect_rows_equal_chains_of_multiply_adds() {
        crate::jit::on_each_level(|| {
            for (mr, vectors) in (1..=MAX_ROWS).flat_map(|mr| [1, 2, 4].map(|v| (mr, v))) {
                for (k, tail) in [(1, 16), (2, 8), (4, 5), (9, 16), (16, 13), (31, 8)] {
                    let packed = Microkernel::packed(mr, LANES * (vectors - 1) + tail);
                    let kernel = Microkernel { a: SourceOfA::Indirect, ..packed };
                    assert!(kernel.fits() || level() == Isa::Avx2 && vectors > 1);
                    if kernel.fits() {
                        run_rows(kernel, k % 3 + 1, k);
                    }
                }
            }
        });
    }
}

//! Micro-kernels of indirect convolution: each vector of B has an address of its own, as the
//! windows of an image require.

use super::asm::{Gpr, Mem, Source};
use super::function::level;
use super::microkernel::{LANES, Microkernel};
use super::stored::Stored;
use super::vector::{Emitter, Split};
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
}

#[cfg(test)]
mod tests {
    use super::super::microkernel::MicrokernelCall;
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
        let (stored, [b_in_place, packs_b, a_in_place]) = (Stored::F32, [false; 3]);
        let shapes = [(1, 1), (1, 2), (2, 2), (6, 1), (4, 3), (9, 3), (14, 2), (13, 2), (24, 1)];
        for (rows, vectors) in shapes {
            for split in 0..1 << vectors {
                let indirect = Some(split);
                let kernel = Microkernel {
                    mr: rows,
                    vectors,
                    tail: 0,
                    stored,
                    b_in_place,
                    packs_b,
                    a_in_place,
                    indirect,
                };
                for (k, tail) in [(1, 16), (2, 1), (5, 7), (16, 15), (3, 8)] {
                    let kernel = Microkernel { tail, ..kernel };
                    if kernel.fits() {
                        run(kernel, k);
                    }
                }
            }
        }
    }
}

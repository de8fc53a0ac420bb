//! Split-K for GEMMs of few rows with many weights, whose time is that of reading the weights.
//!
//! K is divided into parts whose partial results are added at the end. Each thread then reads
//! consecutive memory, the same weights in every run, so its own caches may hold them. (If only the
//! columns were divided, a thread would read the same half of every page, which maps to half of the
//! cache sets.)

use super::microkernels::LANES;
use super::operand::{CTile, Operand};
use super::{Gemm, Memory};
use crate::kernel::SharedBindings;
use crate::pool::Pool;
use girih_kernel::{Bindings, ExecError, Prepared};

/// The most rows: beyond them arithmetic takes longer than reading the weights.
const MAX_M: usize = 32;
/// The fewest bytes of weights of a part.
const MIN_PART_BYTES: usize = 1 << 18;
/// The fewest K of a part.
const MIN_PART_K: usize = 128;
/// The most parts.
const MAX_PARTS: usize = 4;

/// The number of split-K parts of a GEMM of `m` rows: a power of two.
pub(super) fn split_k_parts(m: usize, n: usize, k: usize, rhs: &Operand) -> usize {
    let row_major = rhs.outer.stride() == Some(1) && rhs.k_dims.stride().is_some();
    if m > MAX_M || n < LANES || !row_major {
        return 1;
    }
    let worth = (n.saturating_mul(k).saturating_mul(rhs.stored.size()) / MIN_PART_BYTES)
        .min(k / MIN_PART_K);
    let worth = worth.clamp(1, MAX_PARTS);
    1 << worth.ilog2()
}

/// The f32 with the bits of the sum of two integers that are given by their bits as f32.
pub(super) fn add_bits(a: f32, b: f32) -> f32 {
    f32::from_bits(a.to_bits().wrapping_add(b.to_bits()))
}

impl Gemm {
    /// The address of a part's partial result from a row and column on.
    pub(super) fn partial_result(
        &self,
        partial_results: *mut f32,
        part: usize,
        row: usize,
        column: usize,
    ) -> CTile {
        let start = partial_results.wrapping_add((part * self.m + row) * self.n + column);
        CTile { start, ldc: self.n as isize }
    }

    /// Adds the partial results as a binary tree, and runs the epilogue.
    ///
    /// # Safety
    /// As [`Gemm::run`]; `partial_results` holds the partial results.
    pub(super) unsafe fn reduce_split_k(
        &self,
        partial_results: Memory,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let thread_bindings = SharedBindings(*bindings);
        let cost_ns = (self.blocking.split_k * self.m * self.n / 8) as u64;
        pool.run(self.m, cost_ns, &|row, scratch| {
            let bindings = thread_bindings.get();
            let line = |part: usize| self.partial_result(partial_results.get(), part, row, 0);
            let mut gap = 1;
            while gap < self.blocking.split_k {
                for part in (0..self.blocking.split_k).step_by(2 * gap) {
                    // SAFETY: rows of two different parts; no other call has this row.
                    let (to, from) = unsafe {
                        let (to, from) = (line(part).start, line(part + gap).start);
                        let to = std::slice::from_raw_parts_mut(to, self.n);
                        (to, std::slice::from_raw_parts(from, self.n))
                    };
                    let sums = to.iter_mut().zip(from);
                    match self.rhs.stored.is_integer() {
                        true => sums.for_each(|(to, from)| *to = add_bits(*to, *from)),
                        false => sums.for_each(|(to, from)| *to += from),
                    }
                }
                gap *= 2;
            }
            let sum = line(0);
            match &self.c_in_place {
                Some(matrix) => {
                    let to = matrix.tile(bindings, &self.batch, 0, row, 0).start;
                    // SAFETY: a row of the result and one of the first part, which do not overlap.
                    unsafe { to.copy_from_nonoverlapping(sum.start, self.n) };
                    Ok(())
                }
                // SAFETY: the caller's promise.
                None => unsafe {
                    self.run_epilogue(
                        prepared,
                        (0, row..row + 1, 0..self.n),
                        sum,
                        bindings,
                        scratch,
                    )
                },
            }
        })
    }
}

//! Split-K for GEMMs of few rows with many weights, whose time is the time of reading the weights.
//!
//! K is divided into parts whose partial results are added at the end. Each thread then reads
//! consecutive memory, the same weights in every run, so its own caches may hold them. (If only the
//! columns were divided, a thread would read the same half of every page, which maps to half of the
//! cache sets.)

use super::memory::SharedMemory;
use super::operand::CTile;
use super::plan::BlockedGemm;
use super::problem::{CBlock, Problem};
use crate::kernel::SharedBindings;
use crate::pool::Pool;
use girih_exec::{Bindings, ExecError, Prepared};

/// The f32 whose bits are the sum of two integers, which are also given as f32 with their bits.
pub(super) fn add_bits(a: f32, b: f32) -> f32 {
    f32::from_bits(a.to_bits().wrapping_add(b.to_bits()))
}

impl BlockedGemm {
    /// The address of a part's partial result from a row and column on.
    pub(super) fn partial_result(
        &self,
        partial_results: *mut f32,
        part: usize,
        row: usize,
        column: usize,
    ) -> CTile {
        let start =
            partial_results.wrapping_add((part * self.problem.m + row) * self.problem.n + column);
        CTile { start, ldc: self.problem.n as isize }
    }

    /// Adds the partial results, and runs the epilogue.
    ///
    /// # Safety
    /// As [`add_parts`].
    pub(super) unsafe fn reduce_split_k(
        &self,
        partial_results: SharedMemory,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let (problem, parts) = (&self.problem, self.blocking.split_k);
        // SAFETY: the caller's promise.
        unsafe { add_parts(problem, parts, partial_results, prepared, bindings, pool) }
    }
}

/// Adds the partial results `[parts][m][n]` of a problem without a batch as a binary tree, and runs
/// the epilogue.
///
/// # Safety
/// As [`BlockedGemm::run`]; `partial_results` holds the partial results.
pub(super) unsafe fn add_parts(
    problem: &Problem,
    parts: usize,
    partial_results: SharedMemory,
    prepared: &Prepared,
    bindings: &Bindings<'_>,
    pool: &Pool,
) -> Result<(), ExecError> {
    let thread_bindings = SharedBindings(*bindings);
    let (m, n) = (problem.m, problem.n);
    let integers = problem.b.in_memory().stored.is_integer();
    let cost_ns = (parts * m * n / 8) as u64;
    pool.run(m, cost_ns, &|row, scratch| {
        let bindings = thread_bindings.get();
        let line = |part: usize| partial_results.get().wrapping_add((part * m + row) * n);
        let mut gap = 1;
        while gap < parts {
            for part in (0..parts - gap).step_by(2 * gap) {
                // SAFETY: rows of two different parts; no other call has this row.
                let (to, from) = unsafe {
                    let to = std::slice::from_raw_parts_mut(line(part), n);
                    (to, std::slice::from_raw_parts(line(part + gap), n))
                };
                let sums = to.iter_mut().zip(from);
                match integers {
                    true => sums.for_each(|(to, from)| *to = add_bits(*to, *from)),
                    false => sums.for_each(|(to, from)| *to += from),
                }
            }
            gap *= 2;
        }
        let sum = CTile { start: line(0), ldc: n as isize };
        let c_row = CBlock { batch: 0, rows: row..row + 1, columns: 0..n };
        match problem.c_tile(&c_row, bindings) {
            Some(to) => {
                // SAFETY: a row of the result and one of the first part, which do not overlap.
                unsafe { to.start.copy_from_nonoverlapping(sum.start, n) };
                Ok(())
            }
            // SAFETY: the caller's promise.
            None => unsafe { problem.run_epilogue(prepared, &c_row, sum, bindings, scratch) },
        }
    })
}

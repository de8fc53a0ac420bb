//! GEMMs of many small matrices, such as rotations: several entries of the batch are multiplied at a time,
//! each in a lane of its own. A micro-kernel per entry would take most of its time to start.
//!
//! Each element is one chain of multiply-adds along K, as in a blocked GEMM.

use super::drive::run_chunks;
use super::memory::CHUNK;
use super::microkernels::Stored;
use super::operand::{Matrix, Operand, along_all};
use super::problem::Problem;
use crate::kernel::{SharedBindings, with_memory};
use crate::pool::Pool;
use girih_exec::{Bindings, ExecError};
use std::arch::x86_64::*;
use std::ops::Range;

/// The number of entries that are multiplied at a time.
const LANES: usize = 16;
/// The number of entries of a chunk, a multiple of the lanes.
const CHUNK_ENTRIES: usize = 512;
/// The minimum number of entries.
const MIN_ENTRIES: usize = 8;
/// The maximum number of elements of C, and of A and B.
const MAX_RESULTS: usize = 64;
const MAX_ELEMENTS: usize = 128;

/// A GEMM of a batch of small matrices.
pub(super) struct SmallGemm {
    pub problem: Problem,
    /// The distances of the elements of A, `[m][k]`, of B, `[k][n]`, and of C, `[m][n]`, from the first
    /// element of an entry.
    a: Vec<isize>,
    b: Vec<isize>,
    c: Vec<isize>,
}

/// Whether the entries of a batch are multiplied several at a time: they are small matrices of f32 in
/// memory, and so is the result.
pub(super) fn is_for_small(problem: &Problem) -> bool {
    let Problem { m, n, k, batches, .. } = *problem;
    let floats = |operand: &Operand| match operand {
        Operand::Memory(matrix) => matrix.stored == Stored::F32,
        Operand::Fused(_) => false,
    };
    let small = m * n <= MAX_RESULTS && m * k <= MAX_ELEMENTS && k * n <= MAX_ELEMENTS;
    let in_memory = floats(&problem.a) && floats(&problem.b) && problem.c.is_some();
    small && batches >= MIN_ENTRIES && in_memory
}

impl SmallGemm {
    /// The problem must satisfy [`is_for_small`].
    pub fn new(problem: Problem) -> SmallGemm {
        let Problem { m, n, k, .. } = problem;
        let (a, b) = (problem.a.in_memory(), problem.b.in_memory());
        let of_a = (0..m * k).map(|i| a.outer.at(i / k) + a.k_dims.at(i % k)).collect();
        let of_b = (0..k * n).map(|i| b.outer.at(i % n) + b.k_dims.at(i / n)).collect();
        let ldc = problem.c.as_ref().map_or(0, |c| c.ldc);
        let of_c = (0..m * n).map(|i| (i / n) as isize * ldc + (i % n) as isize).collect();
        SmallGemm { a: of_a, b: of_b, c: of_c, problem }
    }

    /// The approximate time on one core in nanoseconds: copying takes most of it.
    pub fn cost_ns(&self) -> u64 {
        let Problem { m, n, k, batches, .. } = self.problem;
        let each = (m * k + k * n + m * n) / 2 + m * n * k / LANES;
        batches.saturating_mul(each) as u64
    }

    /// Runs the GEMM, whose kernel has no epilogue.
    ///
    /// # Safety
    /// As [`GeneratedGemm::run`](super::GeneratedGemm::run).
    pub unsafe fn run(&self, bindings: &Bindings<'_>, pool: &Pool) -> Result<(), ExecError> {
        let Problem { m, n, k, batches, .. } = self.problem;
        let thread_bindings = SharedBindings(*bindings);
        let chunks = batches.div_ceil(CHUNK_ENTRIES);
        let work = 4 * CHUNK_ENTRIES * (m * k + k * n + m * n);
        run_chunks(pool, (chunks, 1), (work, self.cost_ns()), |chunk, _, _| {
            let entries = chunk * CHUNK_ENTRIES..((chunk + 1) * CHUNK_ENTRIES).min(batches);
            let sizes = [m * k, k * n, m * n].map(|elements| elements * LANES);
            with_memory(&CHUNK, sizes.iter().sum::<usize>() * 4, |memory| {
                let memory = memory.cast::<f32>();
                // SAFETY: the memory has room for all three.
                let memory = unsafe { std::slice::from_raw_parts_mut(memory, sizes.iter().sum()) };
                let (a, rest) = memory.split_at_mut(sizes[0]);
                let (b, c) = rest.split_at_mut(sizes[1]);
                for first in entries.clone().step_by(LANES) {
                    let group = first..(first + LANES).min(entries.end);
                    // SAFETY: the caller's promise; each chunk runs once.
                    unsafe { self.run_group(group, thread_bindings.get(), [a, b, c]) };
                }
            });
            Ok(())
        })
    }

    /// Multiplies at most [`LANES`] entries, in memory for that many A, B and C.
    ///
    /// # Safety
    /// As [`SmallGemm::run`]; no other thread has these entries.
    unsafe fn run_group(
        &self,
        entries: Range<usize>,
        bindings: &Bindings<'_>,
        [a, b, c]: [&mut [f32]; 3],
    ) {
        let Problem { m, n, k, .. } = self.problem;
        let (left, right) = (self.problem.a.in_memory(), self.problem.b.in_memory());
        // SAFETY: the elements of the entries; the caller's promise. The machine was asked.
        unsafe {
            self.gather(left, &self.a, &entries, bindings, a);
            self.gather(right, &self.b, &entries, bindings, b);
            multiply(a, b, c, (m, n, k));
        }
        let result = self.problem.c.as_ref().expect("a condition of this variant");
        let (start, mut distances) = (result.start(bindings), [0; LANES]);
        along_all(&self.problem.batch, &result.batch, entries.start, &mut distances);
        for (lane, distance) in distances.iter().enumerate().take(entries.len()) {
            let to = start.wrapping_offset(*distance);
            for (lanes, distance) in c.chunks_exact(LANES).zip(&self.c) {
                // SAFETY: an element of the result.
                unsafe { to.offset(*distance).write(lanes[lane]) };
            }
        }
    }

    /// Copies the elements of some entries to `[elements][LANES]`.
    ///
    /// # Safety
    /// The elements are valid for reads.
    unsafe fn gather(
        &self,
        matrix: &Matrix,
        distances: &[isize],
        entries: &Range<usize>,
        bindings: &Bindings<'_>,
        to: &mut [f32],
    ) {
        let (extents, mut starts) = (&self.problem.batch, [0; LANES]);
        along_all(extents, &matrix.batch, entries.start, &mut starts);
        let first = bindings.buffers[matrix.buffer].cast::<f32>().wrapping_offset(matrix.offset);
        for (lane, start) in starts.iter().enumerate().take(entries.len()) {
            let start = first.wrapping_offset(*start).cast_const();
            for (lanes, &distance) in to.chunks_exact_mut(LANES).zip(distances) {
                // SAFETY: the caller's promise.
                lanes[lane] = unsafe { start.offset(distance).read_unaligned() };
            }
        }
        // The rest of the lanes of the last group are computed, but not stored.
        if entries.len() < LANES {
            to.chunks_exact_mut(LANES).for_each(|lanes| lanes[entries.len()..].fill(0.0));
        }
    }
}

/// `c = a b` in each lane. On AVX-512 it would take as long: copying takes most of the time.
///
/// # Safety
/// The machine has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply(a: &[f32], b: &[f32], c: &mut [f32], (m, n, k): (usize, usize, usize)) {
    const WIDTH: usize = 8;
    let whole = [(a.len(), m * k), (b.len(), k * n), (c.len(), m * n)];
    assert!(whole.iter().all(|&(len, elements)| len == elements * LANES));
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let mut sums = [_mm256_setzero_ps(); LANES / WIDTH];
        for l in 0..k {
            for (part, sum) in sums.iter_mut().enumerate() {
                // SAFETY: lanes of elements, whose number was checked.
                let [x, y] = unsafe {
                    let x = a.as_ptr().add((i * k + l) * LANES + part * WIDTH);
                    let y = b.as_ptr().add((l * n + j) * LANES + part * WIDTH);
                    [_mm256_loadu_ps(x), _mm256_loadu_ps(y)]
                };
                *sum = _mm256_fmadd_ps(x, y, *sum);
            }
        }
        for (part, sum) in sums.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe {
                let to = c.as_mut_ptr().add((i * n + j) * LANES + part * WIDTH);
                _mm256_storeu_ps(to, sum);
            }
        }
    }
}

//! GEMMs of many small matrices, such as rotations: several entries of the batch are multiplied at a time,
//! each in a lane of its own. A micro-kernel per entry would take most of its time to start.
//!
//! Each element is one chain of multiply-adds along K, as in a blocked GEMM.

use super::drive::run_chunks;
use super::memory::CHUNK;
use super::microkernels::{Stored, avx512_enabled};
use super::operand::{Matrix, Operand};
use super::problem::{CBlock, Problem};
use crate::kernel::{SharedBindings, with_memory};
use crate::pool::Pool;
use girih_exec::{Bindings, ExecError};
use std::ops::Range;

/// The number of entries that are multiplied at a time.
const LANES: usize = 16;
/// The minimum number of entries.
const MIN_ENTRIES: usize = 8;
/// The maximum number of elements of C, and of A and B.
const MAX_RESULTS: usize = 64;
const MAX_ELEMENTS: usize = 128;

/// A GEMM of a batch of small matrices.
pub(super) struct SmallGemm {
    pub problem: Problem,
    /// The distances of the elements of A, `[m][k]`, and of B, `[k][n]`, from the first element of an
    /// entry.
    a: Vec<isize>,
    b: Vec<isize>,
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
        SmallGemm { a: of_a, b: of_b, problem }
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
        let groups = batches.div_ceil(LANES);
        let work = 4 * LANES * (m * k + k * n + m * n);
        run_chunks(pool, (groups, 1), (work, self.cost_ns()), |group, _, _| {
            let entries = group * LANES..((group + 1) * LANES).min(batches);
            let sizes = [m * k, k * n, m * n].map(|elements| elements * LANES);
            with_memory(&CHUNK, sizes.iter().sum::<usize>() * 4, |memory| {
                // SAFETY: the memory has room for all three; the caller's promise.
                unsafe {
                    let memory =
                        std::slice::from_raw_parts_mut(memory.cast::<f32>(), sizes.iter().sum());
                    let (a, rest) = memory.split_at_mut(sizes[0]);
                    let (b, c) = rest.split_at_mut(sizes[1]);
                    self.run_group(entries, thread_bindings.get(), [a, b, c]);
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
            match avx512_enabled() {
                true => multiply_avx512(a, b, c, (m, n, k)),
                false => multiply_avx2(a, b, c, (m, n, k)),
            }
        }
        for (lane, batch) in entries.enumerate() {
            let block = CBlock { batch, rows: 0..m, columns: 0..n };
            let to = self.problem.c_tile(&block, bindings).expect("a condition of this strategy");
            for (i, lanes) in c.chunks_exact(LANES).enumerate() {
                let at = (i / n) as isize * to.ldc + (i % n) as isize;
                // SAFETY: an element of the result.
                unsafe { to.start.offset(at).write(lanes[lane]) };
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
        for (lane, batch) in entries.clone().enumerate() {
            let start = matrix.start(bindings, &self.problem.batch, batch).cast::<f32>();
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

/// `c = a b` in each lane.
#[inline(always)]
fn multiply(a: &[f32], b: &[f32], c: &mut [f32], (m, n, k): (usize, usize, usize)) {
    let lanes = |of: &[f32], at: usize| -> [f32; LANES] {
        of[at * LANES..][..LANES].try_into().expect("as many lanes")
    };
    for i in 0..m {
        for j in 0..n {
            let mut sums = [0f32; LANES];
            for l in 0..k {
                let (a, b) = (lanes(a, i * k + l), lanes(b, l * n + j));
                for lane in 0..LANES {
                    sums[lane] = a[lane].mul_add(b[lane], sums[lane]);
                }
            }
            c[(i * n + j) * LANES..][..LANES].copy_from_slice(&sums);
        }
    }
}

/// # Safety
/// The machine has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_avx2(a: &[f32], b: &[f32], c: &mut [f32], sizes: (usize, usize, usize)) {
    multiply(a, b, c, sizes);
}

/// # Safety
/// The machine has AVX-512.
#[target_feature(enable = "avx512f,fma")]
unsafe fn multiply_avx512(a: &[f32], b: &[f32], c: &mut [f32], sizes: (usize, usize, usize)) {
    multiply(a, b, c, sizes);
}

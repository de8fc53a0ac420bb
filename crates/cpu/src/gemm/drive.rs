//! Runs a blocked GEMM on the threads: packs A if all chunks use it, divides C into chunks, and
//! combines the partial results of split-K.

use super::chunk::{BlockA, Chunk, PackedOperands};
use super::memory::{PARTIAL_RESULTS, SharedMemory, WHOLE_A};
use super::plan::{BlockedGemm, PACK_COST, ReadA, ReadB};
use super::prepacked::PrepackedB;
use crate::kernel::{SharedBindings, with_memory};
use crate::pool::Pool;
use crate::prepacked::PrepackedStore;
use girih_exec::{Bindings, ExecError, Prepared, Scratch};
use std::ops::Range;

/// The number of multiplications of a task: one task runs several small GEMMs of a batch.
const TASK_MULTIPLICATIONS: usize = 1 << 19;

/// Runs `chunks` chunks for each of `batches` GEMMs, of `work` multiplications each: calls
/// `run(batch, chunk, scratch)` on the threads of the pool.
pub(super) fn run_chunks(
    pool: &Pool,
    (batches, chunks): (usize, usize),
    (work, cost_ns): (usize, u64),
    run: impl Fn(usize, usize, &mut Scratch) -> Result<(), ExecError> + Sync,
) -> Result<(), ExecError> {
    let all = batches * chunks;
    let at_once = (TASK_MULTIPLICATIONS * chunks / work.max(1)).clamp(1, all);
    pool.run(all.div_ceil(at_once), cost_ns, &|task, scratch| {
        (task * at_once..((task + 1) * at_once).min(all))
            .try_for_each(|i| run(i / chunks, i % chunks, scratch))
    })
}

impl BlockedGemm {
    /// Runs the GEMM and the epilogue of its kernel. `store` may hold B prepacked.
    ///
    /// # Safety
    /// As [`GeneratedGemm::run`](super::GeneratedGemm::run).
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
        store: Option<&dyn PrepackedStore>,
    ) -> Result<(), ExecError> {
        // SAFETY: the caller's promise.
        let prepacked = store.and_then(|store| unsafe { self.prepacked_b(store, bindings, pool) });
        let b = prepacked.as_ref().map(|prepacked| PrepackedB(prepacked.start as *const f32));
        let whole = self.a == ReadA::PackedWhole;
        let bytes = if whole { self.problem.m * self.k * 4 } else { 0 };
        with_memory(&WHOLE_A, bytes, |memory| {
            let memory = SharedMemory(memory as *mut f32);
            let a = BlockA::Packed { start: memory.0, row: 0, k: 0, depth: self.k };
            let packed = PackedOperands { a: whole.then_some(a), b };
            // SAFETY: the caller's promise; the memory has room for all tiles.
            unsafe {
                if whole {
                    self.pack_whole_a(memory, bindings, pool)?;
                }
                if self.blocking.split_k == 1 {
                    return self.run_all_chunks(prepared, bindings, pool, packed, None);
                }
                let elements = self.blocking.split_k * self.problem.m * self.problem.n;
                with_memory(&PARTIAL_RESULTS, elements * 4, |results| {
                    let results = SharedMemory(results as *mut f32);
                    self.run_all_chunks(prepared, bindings, pool, packed, Some(results))?;
                    self.reduce_split_k(results, prepared, bindings, pool)
                })
            }
        })
    }

    /// Runs all chunks. With split-K, the partial results go to `partial_results` and the epilogue
    /// is not run.
    ///
    /// # Safety
    /// As [`BlockedGemm::run`]; `partial_results` has room for all parts.
    unsafe fn run_all_chunks(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
        packed: PackedOperands,
        partial_results: Option<SharedMemory>,
    ) -> Result<(), ExecError> {
        let (blocking, split_k) = (&self.blocking, self.blocking.split_k);
        let (m_chunks, n_chunks) = (blocking.m_chunks, blocking.n_chunks);
        let work =
            self.element_work().saturating_mul(self.problem.n).saturating_mul(blocking.part_k);
        let all = (self.problem.batches * split_k, m_chunks * n_chunks);
        let thread_bindings = SharedBindings(*bindings);
        let (packed, partial_results) = (&packed, &partial_results);
        run_chunks(pool, all, (work, self.cost_ns()), |of, i, scratch| {
            let range = |i: usize, of: usize, all: usize| -> Range<usize> {
                i * all / of..(i + 1) * all / of
            };
            let chunk = Chunk {
                batch: of / split_k,
                part: of % split_k,
                tiles: range(i / n_chunks, m_chunks, blocking.m_tiles),
                panels: range(i % n_chunks, n_chunks, blocking.n_panels),
            };
            let bindings = thread_bindings.get();
            // SAFETY: the caller's promise; chunks do not overlap.
            unsafe {
                self.run_chunk(prepared, &chunk, *packed, *partial_results, bindings, scratch)
            }
        })
    }

    /// The approximate time on one core in nanoseconds.
    pub fn cost_ns(&self) -> u64 {
        self.problem.cost_ns(self.k, self.element_work())
    }

    /// The approximate time of packing all of B on one core in nanoseconds.
    pub fn packing_ns(&self) -> u64 {
        let without = self.problem.arithmetic_ns(self.k, self.problem.m);
        self.problem.arithmetic_ns(self.k, self.element_work()) - without
    }

    /// The number of multiplications per element of B, including the cost of packing the element.
    fn element_work(&self) -> usize {
        self.problem.m + if self.packs_b_ahead() { PACK_COST } else { 0 }
    }

    /// Whether a slab is packed before any tile of the chunk runs.
    pub fn packs_b_ahead(&self) -> bool {
        matches!(self.b, ReadB::PackedAhead(_) | ReadB::Pairs(_))
    }
}

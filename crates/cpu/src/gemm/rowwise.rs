//! GEMMs of kernels over rows: they run on a few rows of an entry of the batch at a time, and reuse
//! the packed B for consecutive rows.

use super::blocking::Blocking;
use super::chunk::{BlockA, BlockB, Chunk, KBlock};
use super::memory::CHUNK;
use super::microkernels::LANES;
use super::operand::CTile;
use super::plan::{BlockedGemm, ReadA};
use super::problem::{CBlock, Problem};
use crate::kernel::with_memory;
use girih_exec::{Bindings, CompiledGemm, ExecError, Prepared, Scratch};
use girih_kernel::Kernel;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;

/// The maximum number of elements of a result that an epilogue reads: they stay in the L2 cache
/// until then.
const EPILOGUE_ELEMENTS: usize = 1 << 16;

/// A GEMM of a kernel over rows that is ready to run.
pub(crate) struct RowwiseGemm {
    /// One plan for each number of rows that the GEMM is run on; the plans differ only in that
    /// number.
    pub(super) plans: SmallVec<[(usize, BlockedGemm); 2]>,
}

impl RowwiseGemm {
    /// `None` for dtypes and machines without generated micro-kernels. `rows` are the numbers of
    /// rows, the most frequent one first.
    pub fn new(kernel: &Kernel, rows: &[usize]) -> Option<RowwiseGemm> {
        let mut plans: SmallVec<[(usize, BlockedGemm); 2]> = SmallVec::new();
        for &rows in rows {
            let problem = Problem::new(kernel, &[])?;
            let blocking = match plans.first() {
                Some((_, first)) => first.blocking.with_m(rows),
                None => blocking(&problem, rows),
            };
            let a = ReadA::in_place(&problem, &blocking).unwrap_or(ReadA::PackedByChunk);
            plans.push((rows, BlockedGemm::packed_ahead(problem, blocking, a)?));
        }
        Some(RowwiseGemm { plans })
    }

    fn of_rows(&self, rows: usize) -> &BlockedGemm {
        let found = self.plans.iter().find(|p| p.0 == rows);
        &found.expect("it is run on the numbers of rows that it was compiled for").1
    }
}

/// The blocking for `rows` rows: with all columns in one panel, if A can then be read in memory.
fn blocking(problem: &Problem, rows: usize) -> Blocking {
    let blocking = Blocking::for_rows(rows, problem.n, problem.k);
    let one = blocking.in_one_panel(problem.n);
    one.filter(|one| ReadA::in_place(problem, one).is_some()).unwrap_or(blocking)
}

impl BlockedGemm {
    /// N rounded up to whole vectors.
    fn padded_n(&self) -> usize {
        self.problem.n.next_multiple_of(LANES)
    }

    /// The number of panels whose sums are complete before the epilogue runs: all panels, if the
    /// GEMM has no epilogue or K takes several blocks.
    fn panels_at_once(&self, rows: usize) -> usize {
        let panels = self.blocking.n_panels;
        match self.problem.c.is_none() && self.k <= self.blocking.kc {
            true => (EPILOGUE_ELEMENTS / (rows * self.blocking.nr())).clamp(1, panels),
            false => panels,
        }
    }

    /// Computes some panels for the rows of an entry from `row` on. B is packed from address
    /// `packed_b` on; if `first` is true, this call packs it. A is packed with the first panels, or
    /// read in memory.
    ///
    /// # Safety
    /// As [`CompiledGemm::run`]; `packed_a` has room for a block of A's rows, `c` for the result.
    unsafe fn run_panels(
        &self,
        (batch, row): (usize, usize),
        panels: Range<usize>,
        (packed_b, first): (*mut f32, bool),
        packed_a: *mut f32,
        bindings: &Bindings<'_>,
        c: CTile,
    ) {
        let (blocking, extents) = (&self.blocking, &self.problem.batch);
        let [a, b] = [&self.problem.a, &self.problem.b]
            .map(|operand| operand.in_memory().start(bindings, extents, batch));
        let chunk = Chunk { batch, part: 0, tiles: 0..blocking.m_tiles, panels };
        for k in (0..self.k).step_by(blocking.kc) {
            let k_range = k..(k + blocking.kc).min(self.k);
            let at = |p: usize| {
                packed_b.wrapping_add(k * self.padded_n() + p * k_range.len() * blocking.nr())
            };
            let block_a = match self.a {
                ReadA::InPlace { lda } => {
                    BlockA::InPlace { start: a.wrapping_offset(row as isize * lda), lda }
                }
                _ => BlockA::Packed { start: packed_a, row: 0, k, depth: k_range.len() },
            };
            // SAFETY: the caller's promise.
            unsafe {
                if first {
                    self.pack_b(b, &chunk.panels, &k_range, at(chunk.panels.start));
                }
                if chunk.panels.start == 0 && !self.a.is_in_place() {
                    self.pack_a(a, row, chunk.tiles.clone(), k_range.clone(), packed_a);
                }
                for p in chunk.panels.clone().step_by(blocking.slab_panels) {
                    let slab = p..(p + blocking.slab_panels).min(chunk.panels.end);
                    let block = KBlock {
                        chunk: &chunk,
                        k_range: k_range.clone(),
                        k_end: self.k,
                        a: block_a,
                        b: BlockB::Unpacked(b),
                        panels: at(p),
                        addresses: Cell::new(None),
                    };
                    self.run_slab(&block, &slab, c);
                }
            }
        }
    }
}

impl CompiledGemm for RowwiseGemm {
    fn packed_bytes(&self) -> usize {
        let (_, plan) = &self.plans[0];
        plan.padded_n() * plan.k * 4
    }

    unsafe fn run(
        &self,
        kernel: &Prepared,
        rows: Range<usize>,
        packed_b: *mut u8,
        first: bool,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let gemm = self.of_rows(rows.len());
        let (problem, blocking) = (&gemm.problem, &gemm.blocking);
        let (batch, row) = (rows.start / problem.m, rows.start % problem.m);
        let (all, each) = (blocking.n_panels, gemm.panels_at_once(rows.len()));
        let packed = match gemm.a.is_in_place() {
            true => 0,
            false => (rows.len() * blocking.kc).next_multiple_of(LANES),
        };
        let tile = if problem.c.is_none() { rows.len() * each * blocking.nr() } else { 0 };
        with_memory(&CHUNK, (packed + tile) * 4, |memory| {
            let packed_a = memory as *mut f32;
            let tile = packed_a.wrapping_add(packed);
            for panels in (0..all).step_by(each).map(|p| p..(p + each).min(all)) {
                let columns = blocking.columns(&panels, problem.n);
                let c_block = CBlock { batch, rows: row..row + rows.len(), columns };
                let in_memory = problem.c_tile(&c_block, bindings);
                let ldc = c_block.columns.len() as isize;
                let c = in_memory.unwrap_or(CTile { start: tile, ldc });
                let b = (packed_b as *mut f32, first);
                // SAFETY: the caller's promise; the memory has room for both.
                unsafe {
                    gemm.run_panels((batch, row), panels, b, packed_a, bindings, c);
                    if in_memory.is_none() {
                        problem.run_epilogue(kernel, &c_block, c, bindings, scratch)?;
                    }
                }
            }
            Ok(())
        })
    }

    fn code(&self) -> Vec<Vec<u8>> {
        self.plans.iter().flat_map(|(_, gemm)| gemm.code()).collect()
    }
}

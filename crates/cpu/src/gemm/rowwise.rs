//! GEMMs of kernels over rows: they run on a few rows of an entry of the batch at a time, and reuse
//! the packed B for consecutive rows.

use super::chunk::KBlock;
use super::microkernels::LANES;
use super::{CHUNK_MEMORY, CTile, Chunk, Gemm, OperandA, with_memory};
use crate::gemm::blocking::Blocking;
use girih_kernel::exec::CompiledGemm;
use girih_kernel::{Bindings, Core, ExecError, Kernel, Prepared, Scratch};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;

/// The most elements of a result that an epilogue reads: they stay in the L2 cache until then.
const TILE: usize = 1 << 16;

/// A GEMM of a kernel over rows that is ready to run.
pub(crate) struct RowwiseGemm {
    /// One GEMM per number of rows that it is run on; they differ only in that number.
    pub(super) gemms: SmallVec<[(usize, Gemm); 2]>,
}

impl RowwiseGemm {
    /// `None` for dtypes and machines without generated micro-kernels. `rows` are the numbers of
    /// rows, the most frequent one first.
    pub fn new(kernel: &Kernel, rows: &[usize]) -> Option<RowwiseGemm> {
        let Core::Gemm { lhs, rhs, .. } = &kernel.core else { return None };
        let mut gemms: SmallVec<[(usize, Gemm); 2]> = SmallVec::new();
        for &rows in rows {
            let gemm = match gemms.first() {
                Some((_, first)) => {
                    let blocking = first.blocking.with_m(rows);
                    Gemm::with_blocking(kernel, lhs, rhs, |_, _, _, _| blocking)?
                }
                None => {
                    let blocking = |_, n, k, _: &_| Blocking::for_rows(rows, n, k);
                    Gemm::with_blocking(kernel, lhs, rhs, blocking)?.with_one_panel()
                }
            };
            gemms.push((rows, gemm));
        }
        for (_, gemm) in &mut gemms {
            gemm.a_in_place = gemm.a_in_place_stride();
            gemm.compile()?;
        }
        Some(RowwiseGemm { gemms })
    }

    fn of_rows(&self, rows: usize) -> &Gemm {
        let found = self.gemms.iter().find(|p| p.0 == rows);
        &found.expect("it is run on the numbers of rows that it was compiled for").1
    }
}

impl Gemm {
    /// The same GEMM with one panel, if A can then be read in memory.
    fn with_one_panel(mut self) -> Gemm {
        let blocking = self.blocking.clone();
        if let Some(one) = blocking.in_one_panel(self.n) {
            self.blocking = one;
            if self.a_in_place_stride().is_none() {
                self.blocking = blocking;
            }
        }
        self
    }

    /// N rounded up to whole vectors.
    fn padded(&self) -> usize {
        self.n.next_multiple_of(LANES)
    }

    /// Panels whose sums are complete before the epilogue runs: all, if the GEMM has no epilogue or
    /// K takes several blocks.
    fn panels_at_once(&self, rows: usize) -> usize {
        let panels = self.blocking.n_panels;
        match self.c_in_place.is_none() && self.k <= self.blocking.kc {
            true => (TILE / (rows * self.blocking.nr())).clamp(1, panels),
            false => panels,
        }
    }

    /// Computes some panels for some rows of an entry. B is packed from address `packed_b` on; if
    /// `first` is true, this call packs it. A is packed with the first panels, or read in memory.
    ///
    /// # Safety
    /// As [`CompiledGemm::run`]; `packed` has room for a block of A's rows, `c` for the result.
    unsafe fn run_panels(
        &self,
        (batch, row): (usize, usize),
        panels: Range<usize>,
        (packed_b, first): (*mut f32, bool),
        packed: *mut f32,
        bindings: &Bindings<'_>,
        c: CTile,
    ) {
        let (blocking, start) = (&self.blocking, self.rhs.start(bindings, &self.batch, batch));
        let chunk = Chunk { batch, part: 0, tiles: 0..blocking.m_tiles, panels };
        for k in (0..self.k).step_by(blocking.kc) {
            let k_range = k..(k + blocking.kc).min(self.k);
            let at = |p: usize| {
                packed_b.wrapping_add(k * self.padded() + p * k_range.len() * blocking.nr())
            };
            let a = match self.a_in_place {
                Some(lda) => {
                    let start = self.lhs.start(bindings, &self.batch, batch);
                    OperandA::InPlace { start: start.wrapping_offset(row as isize * lda), lda }
                }
                None => OperandA::Packed { start: packed, row: 0, k, depth: k_range.len() },
            };
            // SAFETY: the caller's promise.
            unsafe {
                if first {
                    self.pack_b(start, &chunk.panels, &k_range, at(chunk.panels.start));
                }
                if chunk.panels.start == 0 && self.a_in_place.is_none() {
                    let start = self.lhs.start(bindings, &self.batch, batch);
                    self.pack_a(start, row, chunk.tiles.clone(), k_range.clone(), packed);
                }
                for p in chunk.panels.clone().step_by(blocking.slab_panels) {
                    let slab = p..(p + blocking.slab_panels).min(chunk.panels.end);
                    let (chunk, k_range, panels) = (&chunk, k_range.clone(), at(p));
                    let (end, b, addresses) = (self.k, None, Cell::new(None));
                    let block = KBlock {
                        chunk,
                        k_range,
                        k_end: end,
                        b_start: start,
                        a,
                        panels,
                        prepacked_b: b,
                        addresses,
                    };
                    self.run_slab(&block, &slab, c);
                }
            }
        }
    }
}

impl CompiledGemm for RowwiseGemm {
    fn packed_bytes(&self) -> usize {
        let (_, gemm) = &self.gemms[0];
        gemm.padded() * gemm.k * 4
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
        let (batch, row) = (rows.start / gemm.m, rows.start % gemm.m);
        let (all, width) = (gemm.blocking.n_panels, gemm.blocking.nr());
        let each = gemm.panels_at_once(rows.len());
        let packed = match gemm.a_in_place {
            Some(_) => 0,
            None => (rows.len() * gemm.blocking.kc).next_multiple_of(LANES),
        };
        let tile = if gemm.c_in_place.is_none() { rows.len() * each * width } else { 0 };
        with_memory(&CHUNK_MEMORY, (packed + tile) * 4, |memory| {
            let packed_rows = memory as *mut f32;
            let tile = packed_rows.wrapping_add(packed);
            for panels in (0..all).step_by(each).map(|p| p..(p + each).min(all)) {
                let columns = panels.start * width..(panels.end * width).min(gemm.n);
                let c = match &gemm.c_in_place {
                    Some(matrix) => matrix.tile(bindings, &gemm.batch, batch, row, 0),
                    None => CTile { start: tile, ldc: columns.len() as isize },
                };
                let b = (packed_b as *mut f32, first);
                // SAFETY: the caller's promise; the memory has room for both.
                unsafe {
                    let place = (batch, row);
                    gemm.run_panels(place, panels, b, packed_rows, bindings, c);
                    if gemm.c_in_place.is_none() {
                        let part = (batch, row..row + rows.len(), columns);
                        gemm.run_epilogue(kernel, part, c, bindings, scratch)?;
                    }
                }
            }
            Ok(())
        })
    }

    fn code(&self) -> Vec<Vec<u8>> {
        self.gemms.iter().flat_map(|(_, gemm)| gemm.code()).collect()
    }
}

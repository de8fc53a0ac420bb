//! Prepacked weights: a B that is the same in many runs is packed once and stored with the buffer
//! that it was packed from.

use super::memory::SharedMemory;
use super::microkernels::{LANES, Stored};
use super::operand::{Matrix, Operand};
use super::plan::BlockedGemm;
use crate::kernel::SharedBindings;
use crate::pool::Pool;
use crate::prepacked::{PrepackedStore, PrepackedWeights};
use girih_exec::Bindings;

/// The minimum number of elements of a B for which prepacking pays: fewer elements are packed in
/// negligible time.
const MIN_ELEMENTS: usize = 1 << 12;

/// Prepacked B: all panels, each with all of K.
#[derive(Clone, Copy)]
pub(super) struct PrepackedB(pub *const f32);

// SAFETY: the panels are complete before threads share the pointer, and are only read then.
unsafe impl Sync for PrepackedB {}

impl Matrix {
    /// The buffer of the matrix, if it can be prepacked: it has constant strides, and is the same for
    /// the whole batch. `sizes` are the rows or columns, and K.
    pub fn prepackable(&self, sizes: [usize; 2], batch: &[usize]) -> Option<usize> {
        let plain = self.outer.stride().is_some() && self.k_dims.stride().is_some();
        let worth = sizes[0] * sizes[1] >= MIN_ELEMENTS;
        (plain && worth && self.is_same_in_batch(batch)).then_some(self.buffer)
    }

    /// The prepacked form of `bytes` bytes in which panels have `width` columns, of a matrix that is
    /// [prepackable](Matrix::prepackable) with these sizes. `store` decides whether to create it now,
    /// by `pack`, which returns false on failure.
    pub fn prepacked(
        &self,
        store: &dyn PrepackedStore,
        bindings: &Bindings<'_>,
        ([outer, k], batch): ([usize; 2], &[usize]),
        (width, bytes): (usize, usize),
        mut pack: impl FnMut(*mut u8) -> bool,
    ) -> Option<PrepackedWeights> {
        let strides = [self.outer.stride()?, self.k_dims.stride()?].map(|stride| stride as usize);
        let start = self.start(bindings, batch, 0) as usize;
        let key = [start, strides[0], strides[1], k, outer, width];
        store.get_or_pack(self.buffer, &key, bytes, &mut pack)
    }
}

impl BlockedGemm {
    /// The buffer of B, if the GEMM can read B prepacked. Other data types than f32 take more memory
    /// in packed form.
    pub fn prepackable(&self) -> Option<usize> {
        let Operand::Memory(b) = &self.problem.b else { return None };
        if b.stored != Stored::F32 {
            return None;
        }
        b.prepackable([self.problem.n, self.k], &self.problem.batch)
    }

    /// Prepacked B; `store` decides whether to pack it now.
    ///
    /// # Safety
    /// As [`BlockedGemm::run`].
    pub(super) unsafe fn prepacked_b(
        &self,
        store: &dyn PrepackedStore,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Option<PrepackedWeights> {
        self.prepackable()?;
        let (b, extents) = (self.problem.b.in_memory(), &self.problem.batch);
        let (k, n) = (self.problem.k, self.problem.n);
        let bytes = n.next_multiple_of(LANES) * k * 4;
        let form = (self.blocking.nr(), bytes);
        b.prepacked(store, bindings, ([n, k], extents), form, |to| {
            let (to, thread_bindings) = (SharedMemory(to as *mut f32), SharedBindings(*bindings));
            let packed = pool.run(self.blocking.n_panels, (bytes / 16) as u64, &|panel, _| {
                let start = b.start(thread_bindings.get(), extents, 0);
                let to = to.get().wrapping_add(self.panel_offset(panel, 0));
                // SAFETY: the caller's promise; `to` has room for all panels.
                unsafe { self.pack_b(start, &(panel..panel + 1), &(0..k), to) };
                Ok(())
            });
            packed.is_ok()
        })
    }

    /// The offset in prepacked B, in elements, of a panel at index `k` of K.
    pub(super) fn panel_offset(&self, panel: usize, k: usize) -> usize {
        panel * self.blocking.nr() * self.k
            + k * self.blocking.padded_columns(panel, self.problem.n)
    }
}

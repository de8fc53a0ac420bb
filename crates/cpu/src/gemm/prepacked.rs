//! Prepacked weights: a B that is the same in many runs is packed once and stored with the buffer
//! that it was packed from.

use super::memory::SharedMemory;
use super::microkernels::{LANES, Stored};
use super::operand::Operand;
use super::plan::BlockedGemm;
use crate::kernel::SharedBindings;
use crate::pool::Pool;
use crate::prepacked::{PrepackedStore, PrepackedWeights};
use girih_exec::Bindings;

/// The minimum number of elements of a B for which prepacking pays: fewer elements are packed in
/// negligible time.
pub(super) const MIN_ELEMENTS: usize = 1 << 12;

/// Prepacked B: all panels, each with all of K.
#[derive(Clone, Copy)]
pub(super) struct PrepackedB(pub *const f32);

// SAFETY: the panels are complete before threads share the pointer, and are only read then.
unsafe impl Sync for PrepackedB {}

impl BlockedGemm {
    /// The buffer of B, if the GEMM can read B prepacked.
    pub fn prepackable(&self) -> Option<usize> {
        let Operand::Memory(b) = &self.problem.b else { return None };
        let plain = b.outer.stride().is_some() && b.k_dims.stride().is_some();
        let worth = self.problem.n * self.k >= MIN_ELEMENTS && b.stored == Stored::F32;
        (plain && worth && b.is_same_in_batch(&self.problem.batch)).then_some(b.buffer)
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
        let buffer = self.prepackable()?;
        let (b, extents) = (self.problem.b.in_memory(), &self.problem.batch);
        let (outer, k_stride) = (b.outer.stride()?, b.k_dims.stride()?);
        let start = b.start(bindings, extents, 0);
        let (k, n) = (self.problem.k, self.problem.n);
        let width = self.blocking.nr();
        let key = [start as usize, outer as usize, k_stride as usize, k, n, width];
        let bytes = n.next_multiple_of(LANES) * k * 4;
        store.get_or_pack(buffer, &key, bytes, &mut |to| {
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

//! Prepacked weights: a B that is the same in many runs is packed once and stored with the buffer
//! that it was packed from.

use super::microkernels::{LANES, Stored};
use super::{Gemm, Memory};
use crate::kernel::SharedBindings;
use crate::pool::Pool;
use crate::prepacked::{PrepackedStore, PrepackedWeights};
use girih_kernel::Bindings;

/// The fewest elements of a B that is worth prepacking: fewer are packed in negligible time.
const MIN_ELEMENTS: usize = 1 << 12;

/// Prepacked B: all panels, each with all of K.
#[derive(Clone, Copy)]
pub(super) struct PrepackedB(pub *const f32);

// SAFETY: the panels are complete before threads share the pointer, and are only read then.
unsafe impl Sync for PrepackedB {}

impl Gemm {
    /// The buffer of B, if the GEMM can read B prepacked.
    pub fn prepackable(&self) -> Option<usize> {
        let plain = self.rhs.outer.stride().is_some() && self.rhs.k_dims.stride().is_some();
        let others = self.dots.is_some() || self.amx_vnni.is_some() || self.prologues[1].is_some();
        let one = self.rhs.batch.iter().zip(&self.batch).all(|(s, e)| *s == 0 || *e == 1);
        let worth = self.n * self.k >= MIN_ELEMENTS && self.rhs.stored == Stored::F32;
        (plain && one && worth && !others).then_some(self.rhs.buffer)
    }

    /// Prepacked B; `store` decides whether to pack it now.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    pub(super) unsafe fn prepacked_b(
        &self,
        store: &dyn PrepackedStore,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Option<PrepackedWeights> {
        let buffer = self.prepackable()?;
        let (outer, k_stride) = (self.rhs.outer.stride()?, self.rhs.k_dims.stride()?);
        let start = self.rhs.start(bindings, &self.batch, 0);
        let width = self.blocking.nr();
        let key = [start as usize, outer as usize, k_stride as usize, self.k, self.n, width];
        let bytes = self.n.next_multiple_of(LANES) * self.k * 4;
        store.get_or_pack(buffer, &key, bytes, &mut |to| {
            let (to, thread_bindings) = (Memory(to as *mut f32), SharedBindings(*bindings));
            let packed = pool.run(self.blocking.n_panels, (bytes / 16) as u64, &|panel, _| {
                let start = self.rhs.start(thread_bindings.get(), &self.batch, 0);
                let to = to.get().wrapping_add(self.panel_offset(panel, 0));
                // SAFETY: the caller's promise; the form has room for all panels.
                unsafe { self.pack_b(start, &(panel..panel + 1), &(0..self.k), to) };
                Ok(())
            });
            packed.is_ok()
        })
    }

    /// The offset in prepacked B, in elements, of a panel at index `k` of K.
    pub(super) fn panel_offset(&self, panel: usize, k: usize) -> usize {
        panel * self.blocking.nr() * self.k + k * self.packed_columns(panel)
    }

    /// Columns of a packed panel.
    pub(super) fn packed_columns(&self, panel: usize) -> usize {
        let width = self.blocking.nr();
        (self.n - panel * width).min(width).next_multiple_of(LANES)
    }
}

//! Right operands that are the same in one run after another, as weights are: packed once and kept
//! with what they were made of.

use super::{Memory, Product};
use crate::jit::tile::{LANES, Stored};
use crate::keep::{Keep, Kept};
use crate::kernel::Shared;
use crate::pool::Pool;
use girih_kernel::Bindings;

/// Elements of a right operand that is worth keeping: fewer are packed in no time.
const LEAST: usize = 1 << 12;

/// The right operand, all panels packed, each with all of its shared indices.
#[derive(Clone, Copy)]
pub(super) struct Right(pub *const f32);

// SAFETY: it is complete before threads share it, and only read then.
unsafe impl Sync for Right {}

impl Product {
    /// The buffer of the right operand, if it would rather read that packed.
    pub fn weights(&self) -> Option<usize> {
        let plain = self.rhs.outer.step().is_some() && self.rhs.shared.step().is_some();
        let others = self.dots.is_some() || self.matrix.is_some() || self.made[1].is_some();
        let one = self.rhs.batch.iter().zip(&self.batch).all(|(s, e)| *s == 0 || *e == 1);
        let worth = self.n * self.k >= LEAST && self.rhs.stored == Stored::F32;
        (plain && one && worth && !others).then_some(self.rhs.buffer)
    }

    /// The right operand as it is kept, packed now if it is time.
    ///
    /// # Safety
    /// As [`Product::run`].
    pub(super) unsafe fn kept(
        &self,
        keep: &dyn Keep,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Option<Kept> {
        let buffer = self.weights()?;
        let (outer, shared) = (self.rhs.outer.step()?, self.rhs.shared.step()?);
        let start = self.rhs.start(bindings, &self.batch, 0);
        let width = self.cut.width();
        let key = [start as usize, outer as usize, shared as usize, self.k, self.n, width];
        let bytes = self.n.next_multiple_of(LANES) * self.k * 4;
        keep.form(buffer, &key, bytes, &mut |to| {
            let (to, shared) = (Memory(to as *mut f32), Shared(*bindings));
            let packed = pool.run(self.cut.panels, (bytes / 16) as u64, &|panel, _| {
                let start = self.rhs.start(shared.get(), &self.batch, 0);
                let to = to.get().wrapping_add(self.panel(panel, 0));
                // SAFETY: the caller's promise; the form has room for all panels.
                unsafe { self.pack_right(start, &(panel..panel + 1), &(0..self.k), to) };
                Ok(())
            });
            packed.is_ok()
        })
    }

    /// The element of a right operand that is kept where a panel's shared indices from `k` on begin.
    pub(super) fn panel(&self, panel: usize, k: usize) -> usize {
        panel * self.cut.width() * self.k + k * self.width_of(panel)
    }

    /// Columns of a packed panel.
    pub(super) fn width_of(&self, panel: usize) -> usize {
        let width = self.cut.width();
        (self.n - panel * width).min(width).next_multiple_of(LANES)
    }
}

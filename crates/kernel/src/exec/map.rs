//! Kernels whose dimensions are all parallel.

use super::code::{Code, Frame};
use super::isa::Isa;
use super::lower::{Lower, Order};
use super::{BLOCK, Bindings, ExecError, Scratch, chunk_points};
use crate::ir::Kernel;

/// A map made ready.
pub(super) struct Map {
    code: Code,
    points: usize,
    chunk: usize,
}

/// The parallel dimensions in their own order.
pub(super) fn parallel_order(kernel: &Kernel) -> Order {
    kernel.extents[..kernel.parallel].iter().copied().enumerate().collect()
}

impl Map {
    pub fn new(kernel: &Kernel, isa: Isa) -> Map {
        let order: Order = kernel.extents.iter().copied().enumerate().collect();
        let code = Lower::new(kernel, &kernel.body, &order, isa).finish(&kernel.stores, &[]);
        let points = kernel.points();
        let chunk = chunk_points(points, code.cost_ps, BLOCK);
        Map { code, points, chunk }
    }

    pub fn chunks(&self) -> usize {
        self.points.div_ceil(self.chunk)
    }

    pub fn cost_ps(&self) -> usize {
        self.points.saturating_mul(self.code.cost_ps)
    }

    /// # Safety
    /// As [`super::Prepared::run_chunk`].
    pub unsafe fn run_chunk(
        &self,
        chunk: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (start, end) = (chunk * self.chunk, ((chunk + 1) * self.chunk).min(self.points));
        let (slots, regs) = scratch.reserve(self.code.slot_bytes, self.code.places.len());
        // SAFETY: scratch memory of the sizes asked for; the caller's promise for the bindings.
        unsafe {
            let frame = Frame::new(&self.code, slots, regs, bindings, BLOCK.min(end - start));
            run_points(&frame, start, end)
        }
    }
}

/// Runs a frame over `[start, end)` by blocks.
///
/// # Safety
/// As [`Frame::run`] for these points; the frame was made for blocks of `min(BLOCK, end - start)`.
pub(super) unsafe fn run_points(
    frame: &Frame<'_>,
    start: usize,
    end: usize,
) -> Result<(), ExecError> {
    let mut p = start;
    while p < end {
        let n = BLOCK.min(end - p);
        // SAFETY: the caller's promise.
        unsafe { frame.run(p, n)? };
        p += n;
    }
    Ok(())
}

//! Kernels whose dimensions are all parallel.

use super::chain::Target;
use super::code::{Code, Frame};
use super::lower::{Dim, Lower, Order};
use super::{BLOCK, Bindings, ExecError, Scratch, chunk_points};
use crate::ir::{Access, Kernel};

/// A map made ready.
pub(super) struct Map {
    code: Code,
    points: usize,
    chunk: usize,
}

/// The parallel dimensions in their own order.
pub(super) fn parallel_order(kernel: &Kernel) -> Order {
    kernel.extents[..kernel.parallel].iter().enumerate().map(Dim::whole).collect()
}

/// Elements along each side of a tile, and of the blocks it is made of: a block is 16 runs of 32
/// elements or the other way round.
const TILE: usize = 64;
const BLOCK_SIDES: (usize, usize) = (16, BLOCK / 16);

/// An order by tiles, if the kernel reads or writes across the rows: where something moves by one
/// element along another dimension than the last, which most do not, whole tiles are in cache.
fn tiled(kernel: &Kernel) -> Option<Order> {
    let last = kernel.extents.len().checked_sub(1)?;
    let accesses = || kernel.accesses.iter().chain(kernel.stores.iter().map(|s| &s.access));
    let across = |a: &Access| {
        let unit = |d: &usize| a.strides[*d].unsigned_abs() == 1 && kernel.extents[*d] >= TILE;
        let far = a.strides[last].unsigned_abs() >= BLOCK_SIDES.0;
        if far { (0..last).rev().find(unit) } else { None }
    };
    let other = accesses().find_map(across)?;
    let whole = |d: usize| kernel.extents[d].is_multiple_of(TILE);
    if !whole(other) || !whole(last) {
        return None;
    }
    let part = |of: usize, extent: usize, step: usize| Dim { of, extent, step };
    let mut order = parallel_order(kernel);
    order[other] = part(other, kernel.extents[other] / TILE, TILE);
    order[last] = part(last, kernel.extents[last] / TILE, TILE);
    let (down, across) = BLOCK_SIDES;
    order.extend([
        part(other, TILE / down, down),
        part(last, TILE / across, across),
        part(other, down, 1),
        part(last, across, 1),
    ]);
    Some(order)
}

impl Map {
    pub fn new(kernel: &Kernel, target: Target<'_>) -> Map {
        let order = tiled(kernel).unwrap_or_else(|| parallel_order(kernel));
        let code = Lower::new(kernel, &kernel.body, &order, target).finish(&kernel.stores, &[]);
        let points = kernel.points();
        let chunk = chunk_points(points, code.cost_ps, BLOCK);
        Map { code, points, chunk }
    }

    /// What runs at its points.
    pub fn code(&self) -> &Code {
        &self.code
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
            let n = self.code.block.min(end - start);
            let frame = Frame::new(&self.code, slots, regs, bindings, n);
            run_points(&frame, self.code.block, start, end)
        }
    }
}

/// Runs a frame over `[start, end)` by blocks.
///
/// # Safety
/// As [`Frame::run`] for these points; the frame was made for blocks of that size.
pub(super) unsafe fn run_points(
    frame: &Frame<'_>,
    block: usize,
    start: usize,
    end: usize,
) -> Result<(), ExecError> {
    let mut p = start;
    while p < end {
        let n = block.min(end - p);
        // SAFETY: the caller's promise.
        unsafe { frame.run(p, n)? };
        p += n;
    }
    Ok(())
}

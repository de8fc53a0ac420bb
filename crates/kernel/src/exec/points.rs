//! Maps that are run at some of their points at a time, in the order of their dimensions: parts of
//! kernels over rows, and operands of products.

use super::chain::Target;
use super::code::{Code, Frame};
use super::lower::Lower;
use super::map::{parallel_order, run_points};
use super::{Bindings, Compiler, ExecError, Isa, Scratch};
use crate::ir::Kernel;
use smallvec::SmallVec;
use std::ops::Range;

/// Points of a map whose result goes to other places than it says: lines of as many points each.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// The first point.
    pub first: usize,
    /// Points of each line.
    pub points: usize,
    /// How many lines.
    pub lines: usize,
    /// Points from the beginning of a line to that of the next one.
    pub step: usize,
    /// Where the first line's results go.
    pub to: *mut u8,
    /// Bytes from there to those of the next line.
    pub pitch: usize,
}

/// A map made ready to run at any of its points.
pub struct Points(Code);

impl Points {
    /// For results that are read soon.
    ///
    /// Panics: if the kernel is not well formed, or no map.
    pub fn compiled(kernel: &Kernel, compiler: &dyn Compiler) -> Points {
        Points::new(
            kernel,
            Target { isa: Isa::best(), compiler: Some(compiler), streams: false, often: false },
        )
    }

    pub(super) fn new(kernel: &Kernel, target: Target<'_>) -> Points {
        let order = parallel_order(kernel);
        let lower = Lower::new(kernel, &kernel.body, &order, target);
        Points(lower.finish(&kernel.stores, &[]))
    }

    /// What runs at a point.
    pub(super) fn code(&self) -> &Code {
        &self.0
    }

    /// Runs a map whose only result, of elements of `size` bytes in a buffer, is in the order of its
    /// points; it goes where the lines say instead.
    ///
    /// Errors: as [`Points::run`].
    ///
    /// # Safety
    /// As [`Points::run`] for all lines; there is room for what goes where.
    pub unsafe fn run_lines(
        &self,
        lines: &Lines,
        (buffer, size): (usize, usize),
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let mut lines = *lines;
        if lines.step == lines.points && lines.pitch == lines.points * size {
            (lines.points, lines.lines) = (lines.points * lines.lines, 1);
        }
        let mut table: SmallVec<[*mut u8; 32]> = SmallVec::from_slice(bindings.buffers);
        let code = &self.0;
        for line in 0..lines.lines {
            let first = lines.first + line * lines.step;
            // Such that the line's results lie there.
            table[buffer] = lines.to.wrapping_add(line * lines.pitch).wrapping_sub(first * size);
            let bindings = Bindings { buffers: &table, ..*bindings };
            // SAFETY: the caller's promise; scratch memory of the sizes asked for.
            unsafe {
                if line == 0 && lines.lines > 1 && lines.points <= code.block {
                    let (slots, regs) = scratch.reserve(code.slot_bytes, code.places.len());
                    let frame = Frame::new(code, slots, regs, &bindings, lines.points);
                    let (all, pitch) = ((lines.lines, lines.step), lines.pitch as isize);
                    if frame.run_lines(first, lines.points, all, (buffer, pitch)) {
                        return Ok(());
                    }
                }
                self.run(first..first + lines.points, &bindings, scratch)?;
            }
        }
        Ok(())
    }

    /// The machine code that was made for it, function by function, constants included.
    pub fn machine_code(&self) -> Vec<Vec<u8>> {
        self.0.functions().map(|f| f.code().to_vec()).collect()
    }

    /// Runs it at points that follow each other, numbered in row-major order.
    ///
    /// Errors: [`ExecError::IndexOutOfBounds`], if the map has an index.
    ///
    /// # Safety
    /// The points lie in the space; the bindings fulfil [`Bindings`]' contract at these points.
    pub unsafe fn run(
        &self,
        points: Range<usize>,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let code = &self.0;
        let (slots, regs) = scratch.reserve(code.slot_bytes, code.places.len());
        // SAFETY: scratch memory of the sizes asked for; the caller's promise for the bindings.
        unsafe {
            let frame = Frame::new(code, slots, regs, bindings, code.block.min(points.len()));
            run_points(&frame, code.block, points.start, points.end)
        }
    }
}

//! Maps that run on ranges of their points, in the order of their dimensions: parts of kernels over
//! rows, and fused operands of GEMMs.

use super::code::{Code, Frame};
use super::lower::Lower;
use super::map::{parallel_order, run_points};
use super::{Bindings, Bounds, Compiler, ExecError, Isa, PrepareOptions, Scratch};
use girih_kernel::Kernel;
use smallvec::SmallVec;
use std::ops::Range;

/// Points of a map whose result is redirected: lines with an equal number of points.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// The first point.
    pub first: usize,
    /// The number of points of each line.
    pub points: usize,
    /// The number of lines.
    pub lines: usize,
    /// The number of points between the starts of consecutive lines.
    pub step: usize,
    /// The destination of the first line's results.
    pub to: *mut u8,
    /// The number of bytes between the destinations of consecutive lines.
    pub pitch: usize,
}

/// A map that is prepared to run on any range of its points.
pub struct Points(Code);

impl Points {
    /// Prepares a map whose results are read soon, so that they should stay in the cache.
    ///
    /// Panics: if the kernel is not well formed, or not a map.
    pub fn compiled(kernel: &Kernel, compiler: &dyn Compiler) -> Points {
        Points::new(
            kernel,
            PrepareOptions {
                isa: Isa::best(),
                compiler: Some(compiler),
                streams: false,
                often: false,
            },
        )
    }

    pub(super) fn new(kernel: &Kernel, options: PrepareOptions<'_>) -> Points {
        let order = parallel_order(kernel);
        let lower = Lower::new(kernel, &kernel.body, &order, options);
        Points(lower.finish(&kernel.stores, &[]))
    }

    /// The code of the map.
    pub(super) fn code(&self) -> &Code {
        &self.0
    }

    /// Runs a map whose only result is in the order of its points, in a buffer with elements of
    /// `size` bytes; the result is written to the destinations of the lines instead.
    ///
    /// Errors: as [`Points::run`].
    ///
    /// # Safety
    /// As [`Points::run`] for all lines; the destinations are valid for writes.
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
            // Set the buffer's address such that the line's results are at their destination.
            table[buffer] = lines.to.wrapping_add(line * lines.pitch).wrapping_sub(first * size);
            let bounds = bindings.bounds.map(|bounds| {
                let mut bounds: SmallVec<[Bounds; 32]> = SmallVec::from_slice(bounds);
                let end = lines.points * size + (lines.lines - 1 - line) * lines.pitch;
                let at = |bytes: usize| (first * size + bytes) as isize;
                bounds[buffer] = Bounds { start: at(0), end: at(end) };
                bounds
            });
            let bindings = Bindings { buffers: &table, bounds: bounds.as_deref(), ..*bindings };
            // SAFETY: the caller's promise; scratch memory of the requested sizes.
            unsafe {
                if line == 0 && lines.lines > 1 && lines.points <= code.block {
                    let (slots, regs) = scratch.reserve(code.slot_bytes, code.places.len());
                    let frame = Frame::new(code, slots, regs, &bindings, lines.points);
                    let (all, pitch) = ((lines.lines, lines.step), lines.pitch as isize);
                    if frame.run_lines(first, lines.points, all, (buffer, pitch))? {
                        return Ok(());
                    }
                }
                self.run(first..first + lines.points, &bindings, scratch)?;
            }
        }
        Ok(())
    }

    /// The generated machine code, one entry per function, including constants.
    pub fn machine_code(&self) -> Vec<Vec<u8>> {
        self.0.functions().map(|f| f.code().to_vec()).collect()
    }

    /// Runs the map at consecutive points, numbered in row-major order.
    ///
    /// Errors: [`ExecError::IndexOutOfBounds`], if the map reads an index.
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
        // SAFETY: scratch memory of the requested sizes; the caller's promise for the bindings.
        unsafe {
            let frame = Frame::new(code, slots, regs, bindings, code.block.min(points.len()));
            run_points(&frame, code.block, points.start, points.end)
        }
    }
}

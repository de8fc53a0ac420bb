//! Checked mode: every access of a kernel is compared with the bounds of its buffer before it
//! happens, so that a defect of fusion, of the verifier or of the executor is an error and not a
//! crash. The bindings of a run have the bounds, or none; a run without bounds checks nothing.
//!
//! The checks are where loops and functions get their addresses: they compare the first and the last
//! byte that a call will access, as computed from the same numbers as the call's arguments.

use super::code::{Code, Direct, Frame, Source, Step, Write};
use super::stream::{Fused, Stream};
use super::walk::Walk;
use super::{Bindings, ExecError};
use std::ops::Range;

/// The bytes of a buffer that a kernel may access, counted from the buffer's address in the bindings.
/// For a local, which holds only the rows that are being computed, they begin at the first of these
/// rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The first byte.
    pub start: isize,
    /// The end: the number after that of the last byte.
    pub end: isize,
}

impl Bounds {
    /// The bounds of a buffer without memory.
    pub const NOTHING: Bounds = Bounds { start: 0, end: 0 };

    /// The bounds of a buffer of that many bytes.
    pub fn of(bytes: usize) -> Bounds {
        Bounds { start: 0, end: bytes as isize }
    }
}

impl Bindings<'_> {
    /// Whether accesses are checked.
    #[inline(always)]
    pub fn is_checked(&self) -> bool {
        self.bounds.is_some()
    }

    /// Fails if an access of these bytes leaves the buffer, in checked mode.
    ///
    /// Errors: [`ExecError::OutsideOfBuffer`].
    #[inline(always)]
    pub fn check(&self, buffer: usize, bytes: Range<isize>) -> Result<(), ExecError> {
        match self.bounds {
            None => Ok(()),
            Some(bounds) => check_within(bounds, buffer, bytes),
        }
    }

    /// As [`Bindings::check`], for the elements from `low` to `high` of `size` bytes.
    #[inline(always)]
    pub(crate) fn check_elements(
        &self,
        buffer: usize,
        (low, high): (isize, isize),
        size: usize,
    ) -> Result<(), ExecError> {
        if self.bounds.is_none() {
            return Ok(());
        }
        let size = size as isize;
        self.check(buffer, low.saturating_mul(size)..high.saturating_add(1).saturating_mul(size))
    }

    /// As [`Bindings::check`], for `n` positions of a walk over elements of `size` bytes.
    pub(crate) fn check_walk(
        &self,
        buffer: usize,
        walk: &Walk,
        size: usize,
        (p, n): (usize, usize),
    ) -> Result<(), ExecError> {
        match walk.span(p, n) {
            Some(span) => self.check_elements(buffer, span, size),
            None => Ok(()),
        }
    }
}

#[cold]
fn check_within(bounds: &[Bounds], buffer: usize, bytes: Range<isize>) -> Result<(), ExecError> {
    let bounds = bounds.get(buffer).copied().unwrap_or(Bounds::NOTHING);
    match bytes.is_empty() || bounds.start <= bytes.start && bytes.end <= bounds.end {
        true => Ok(()),
        false => Err(ExecError::OutsideOfBuffer { buffer, bytes, bounds }),
    }
}

impl Code {
    /// Checks all accesses of the points `[p, p + n)` that do not depend on values: those of loops,
    /// of functions and of stores.
    pub(crate) fn check(
        &self,
        bindings: &Bindings<'_>,
        (p, n): (usize, usize),
    ) -> Result<(), ExecError> {
        self.check_setup(bindings)?;
        for Direct { buffer, offset, size, .. } in &self.directs {
            let first = offset + p as isize;
            let span = (first, first + n as isize - 1);
            bindings.check_elements(*buffer as usize, span, *size as usize)?;
        }
        for Write { buffer, walk, size, .. } in &self.writes {
            bindings.check_walk(*buffer as usize, walk, *size as usize, (p, n))?;
        }
        for step in &self.steps {
            match step {
                Step::Read { buffer, walk, size, .. } => {
                    bindings.check_walk(*buffer as usize, walk, *size as usize, (p, n))?;
                }
                Step::Fused(fused) => fused.check_points(bindings, (p, n))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks the accesses that happen once, before the first block.
    pub(crate) fn check_setup(&self, bindings: &Bindings<'_>) -> Result<(), ExecError> {
        for step in &self.setup {
            if let Step::Splat { source: Source::Element(buffer, element), size, .. } = step {
                bindings.check_elements(*buffer as usize, (*element, *element), *size as usize)?;
            }
        }
        Ok(())
    }
}

impl Fused {
    /// Checks the elements that the streams have at some points.
    fn check_points(
        &self,
        bindings: &Bindings<'_>,
        (p, n): (usize, usize),
    ) -> Result<(), ExecError> {
        for (at, stream) in self.streams.iter().enumerate() {
            let Stream::Memory { buffer, walk, size } = stream else { continue };
            let Some((low, high)) = walk.span(p, n) else { continue };
            let (before, after) = self.reach(at);
            let size = *size as isize;
            let bytes = low * size + before..(high + 1) * size + after;
            bindings.check(*buffer as usize, bytes)?;
        }
        Ok(())
    }

    /// Checks a call of the function at `len` points of each of `count` rows, which are `steps` bytes
    /// apart, with these addresses of the first row.
    pub(crate) fn check_call(
        &self,
        pointers: &[*mut u8],
        (len, count): (usize, usize),
        steps: &[isize],
        bindings: &Bindings<'_>,
    ) -> Result<(), ExecError> {
        for (at, (stream, pointer)) in self.streams.iter().zip(pointers).enumerate() {
            let Stream::Memory { buffer, walk, size } = stream else { continue };
            let size = *size as isize;
            // Results are written to consecutive elements.
            let stride = if at < self.inputs { walk.inner().1 * size } else { size };
            let (across, down) = (
                stride * (len.max(1) as isize - 1),
                steps.get(at).copied().unwrap_or(0) * (count.max(1) as isize - 1),
            );
            let base = bindings.buffers[*buffer as usize];
            let first = (*pointer as isize).wrapping_sub(base as isize);
            let (before, after) = self.reach(at);
            let low = first + across.min(0) + down.min(0) + before;
            let high = first + across.max(0) + down.max(0) + size + after;
            bindings.check(*buffer as usize, low..high)?;
        }
        Ok(())
    }

    /// The bytes before and after the elements of a stream that the function accesses through its
    /// address: those of inputs without an address of their own.
    fn reach(&self, stream: usize) -> (isize, isize) {
        let beside = self.besides.iter().filter(|(of, _)| *of as usize == stream);
        beside.fold((0, 0), |(low, high), &(_, distance)| {
            (low.min(distance as isize), high.max(distance as isize))
        })
    }
}

impl Frame<'_> {
    /// Checks the accesses of the points `[p, p + n)`, in checked mode.
    #[inline(always)]
    pub(crate) fn check(&self, p: usize, n: usize) -> Result<(), ExecError> {
        match self.bindings().bounds {
            None => Ok(()),
            Some(_) => self.code().check(self.bindings(), (p, n)),
        }
    }
}

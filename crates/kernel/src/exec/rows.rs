//! Kernels over rows: several maps and reductions run on a few rows after another, while what they
//! hand to each other is in cache.

use super::chain::Target;
use super::code::{Code, Frame};
use super::lower::Lower;
use super::map::{parallel_order, run_points};
use super::reduce::Reduce;
use super::{Bindings, ExecError, Scratch, chunk_points};
use crate::ir::{Core, Kernel, Rows as Definition};
use smallvec::SmallVec;

/// Elements that are worked on at a time: a few rows, or one if it is longer.
const GROUP_ELEMENTS: usize = 8192;

enum Part {
    Map(Code),
    Reduce(Box<Reduce>),
}

/// A buffer that holds the rows being worked on and no others.
struct Local {
    buffer: usize,
    row_bytes: usize,
    /// In the memory for locals.
    offset: usize,
}

/// A kernel over rows made ready.
pub(super) struct Rows {
    /// With the points that each has per row.
    parts: Vec<(Part, usize)>,
    locals: Vec<Local>,
    local_bytes: usize,
    rows: usize,
    /// Rows worked on at a time, and rows of a chunk.
    group: usize,
    chunk: usize,
    cost_ps: usize,
}

impl Rows {
    pub fn new(kernel: &Kernel, definition: &Definition, target: Target<'_>) -> Rows {
        let rows = kernel.points();
        let mut cost_ps = 0usize;
        let mut widest = 1;
        let part = |part: &Kernel| {
            let per_row = part.points() / rows;
            widest = widest.max(per_row.saturating_mul(part.reduced()));
            let local = |b| definition.locals.iter().any(|l| l.buffer == b);
            let streams = !part.stores.iter().any(|s| local(s.access.buffer));
            let target = Target { streams, ..target };
            let made = match &part.core {
                Core::Reduce { .. } => Part::Reduce(Box::new(Reduce::new(part, target))),
                _ => {
                    let order = parallel_order(part);
                    let lower = Lower::new(part, &part.body, &order, target);
                    Part::Map(lower.finish(&part.stores, &[]))
                }
            };
            cost_ps = cost_ps.saturating_add(match &made {
                Part::Map(code) => part.points().saturating_mul(code.cost_ps),
                Part::Reduce(reduce) => reduce.cost_ps(),
            });
            (made, per_row)
        };
        let parts: Vec<_> = definition.parts.iter().map(part).collect();
        let group = (GROUP_ELEMENTS / widest).clamp(1, rows);
        let mut local_bytes = 0;
        let local = |l: &crate::ir::Local| {
            let offset = local_bytes;
            local_bytes += (group * l.row_bytes).next_multiple_of(64);
            Local { buffer: l.buffer.0 as usize, row_bytes: l.row_bytes, offset }
        };
        let locals = definition.locals.iter().map(local).collect();
        let chunk = chunk_points(rows, cost_ps / rows, group);
        Rows { parts, locals, local_bytes, rows, group, chunk, cost_ps }
    }

    /// What runs at its points, part by part.
    pub fn codes(&self) -> Vec<&Code> {
        let mut codes = Vec::new();
        for (part, _) in &self.parts {
            match part {
                Part::Map(code) => codes.push(code),
                Part::Reduce(reduce) => codes.extend(reduce.codes()),
            }
        }
        codes
    }

    pub fn chunks(&self) -> usize {
        self.rows.div_ceil(self.chunk)
    }

    pub fn cost_ps(&self) -> usize {
        self.cost_ps
    }

    /// # Safety
    /// As [`super::Prepared::run_chunk`].
    pub unsafe fn run_chunk(
        &self,
        chunk: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (mut row, end) = (chunk * self.chunk, ((chunk + 1) * self.chunk).min(self.rows));
        // Taken while in use, so that the parts' own scratch memory does not move it.
        let mut locals = scratch.take_locals(self.local_bytes);
        let memory = locals.as_mut_ptr() as *mut u8;
        let mut table: SmallVec<[*mut u8; 32]> = SmallVec::from_slice(bindings.buffers);
        let mut done = Ok(());
        while row < end && done.is_ok() {
            let rows = self.group.min(end - row);
            for local in &self.locals {
                // Such that the first of these rows lies where the local starts.
                let start = memory.wrapping_add(local.offset);
                table[local.buffer] = start.wrapping_sub(row * local.row_bytes);
            }
            let bindings = Bindings { buffers: &table, ..*bindings };
            // SAFETY: the caller's promise; the locals have room for the group's rows, and the
            // parts reach no others.
            done = unsafe { self.run_group(row, rows, &bindings, scratch) };
            row += rows;
        }
        scratch.give_locals(locals);
        done
    }

    /// # Safety
    /// As [`Rows::run_chunk`], for these rows.
    unsafe fn run_group(
        &self,
        row: usize,
        rows: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        for (part, per_row) in &self.parts {
            let points = row * per_row..(row + rows) * per_row;
            // SAFETY: scratch memory of the sizes asked for; the caller's promise for the bindings.
            unsafe {
                match part {
                    Part::Map(code) => {
                        let (slots, regs) = scratch.reserve(code.slot_bytes, code.places.len());
                        let n = code.block.min(points.len());
                        let frame = Frame::new(code, slots, regs, bindings, n);
                        run_points(&frame, code.block, points.start, points.end)?;
                    }
                    Part::Reduce(reduce) => reduce.run_points(points, bindings, scratch)?,
                }
            }
        }
        Ok(())
    }
}

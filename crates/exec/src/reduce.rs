//! Reductions.
//!
//! There are two orders of the work, chosen by the strides of the prologue's operands:
//! * [`inner`]: the reduced dimensions vary fastest; a row is folded block by block;
//! * [`outer`]: the parallel dimensions vary fastest; whole rows of points are combined
//!   elementwise.
//!
//! Both compute the one tree that [`fold`] describes, so the choice changes no bit. Neither does
//! the split of a long reduction with few points: its first phase stores one partial result per
//! point and part in the workspace, and the second phase combines them; a part is a power of two of
//! blocks.

mod inner;
mod outer;

use super::cast::compute;
use super::code::{Code, Frame, Load, Reg};
use super::fold::{self, ArgFold, Cascade, Fold, LANES};
use super::lower::{Dim, Lower, Order};
use super::map::parallel_order;
use super::stop::Pace;
use super::{BLOCK, Bindings, ExecError, MAX_SIZE, PrepareOptions, Scratch, chunk_ps};
use girih_kernel::{Core, Inst, Kernel, ReduceOp};
use std::ops::Range;

/// The size in bytes of a row of points of an outer reduction. The row is long enough for
/// contiguous reads, and short enough for its lanes to stay in the cache.
const ROW_BYTES: usize = 2048;

/// The minimum length of a row for which a function call pays, and the minimum number of elements
/// for which compiling a function pays if rows have at most half a block.
const SHORTEST: usize = 64;
const WORTH: usize = 1 << 12;

#[derive(Clone, Copy)]
enum Kind {
    Fold(Fold),
    Arg(ArgFold),
}

/// A prepared reduction.
pub(super) struct PreparedReduce {
    prologue: Code,
    value: Reg,
    /// The size in bytes of the prologue's value in its compute type.
    size: usize,
    body: Code,
    kind: Kind,
    /// The elements, if the prologue only loads them.
    load: Option<Load>,
    outer: bool,
    points: usize,
    reduced: usize,
    /// The number of points per chunk, and the number of chunks of points.
    point_chunk: usize,
    point_chunks: usize,
    /// The number of reduced elements per part, and the number of parts.
    part: usize,
    parts: usize,
}

/// The prologue's frame and the memory of a chunk.
struct Work<'a> {
    prologue: Frame<'a>,
    /// One block for the best values of an arg reduction.
    best: *mut u8,
    /// A row of results for each lane (inner: one result).
    lanes: *mut u8,
    levels: *mut u8,
    pace: Pace,
}

/// Whether most operands of the prologue have smaller strides along the parallel dimensions than
/// along the reduced dimensions.
fn prefers_outer(kernel: &Kernel, prologue: &girih_kernel::Block) -> bool {
    let closest = |strides: &[isize], dims: Range<usize>| {
        dims.filter(|&d| kernel.extents[d] > 1 && strides[d] != 0)
            .map(|d| strides[d].unsigned_abs())
            .min()
            .unwrap_or(usize::MAX)
    };
    let mut votes = 0isize;
    for inst in &prologue.insts {
        if let Inst::Load(id) = inst {
            let strides = &kernel.access(*id).strides;
            // Operands that are small relative to the space do not count.
            let reach = kernel.extents.iter().zip(strides).filter(|(_, s)| **s != 0);
            let reach: usize = reach.map(|(e, _)| e).product();
            if reach.saturating_mul(8) < kernel.points().saturating_mul(kernel.reduced()) {
                continue;
            }
            let parallel = closest(strides, 0..kernel.parallel);
            let reduced = closest(strides, kernel.parallel..kernel.extents.len());
            votes += (parallel < reduced) as isize - (reduced < parallel) as isize;
        }
    }
    votes > 0 && kernel.points() > 1
}

impl PreparedReduce {
    pub fn new(kernel: &Kernel, options: PrepareOptions<'_>) -> PreparedReduce {
        let Core::Reduce { prologue, value, op, stores } = &kernel.core else {
            unreachable!("the caller matched the core")
        };
        let outer = prefers_outer(kernel, prologue);
        let mut order: Order = kernel.extents.iter().enumerate().map(Dim::whole).collect();
        if outer {
            order.rotate_left(kernel.parallel);
        }
        let dtype = kernel.dtype(prologue, *value);
        let lower = Lower::new(kernel, prologue, &order, options);
        let reg = lower.val(*value);
        let few = kernel.points().saturating_mul(kernel.reduced()) < WORTH;
        let short = kernel.reduced() < SHORTEST || few && kernel.reduced() <= BLOCK / 2;
        let prologue = match outer || short {
            true => lower.finish(stores, &[reg]),
            false => lower.finish_fold(stores, reg, *op, kernel.reduced()),
        };
        let parallel = parallel_order(kernel);
        let body = Lower::new(kernel, &kernel.body, &parallel, options).finish(&kernel.stores, &[]);
        let arg = matches!(op, ReduceOp::ArgMax | ReduceOp::ArgMin);
        let kind = if arg {
            Kind::Arg(fold::arg_fold(*op, dtype, options.isa))
        } else {
            Kind::Fold(fold::fold(*op, dtype, options.isa))
        };
        let space = kernel.points().saturating_mul(kernel.reduced());
        // Halves and narrow types have other sizes in memory than in computations.
        let load = prologue.only_load(reg, space);
        let load = load.filter(|load| load.size as usize == compute(dtype).size());
        let mut reduce = PreparedReduce {
            load,
            prologue,
            value: reg,
            size: compute(dtype).size(),
            body,
            kind,
            outer,
            points: kernel.points(),
            reduced: kernel.reduced(),
            point_chunk: 0,
            point_chunks: 0,
            part: kernel.reduced(),
            parts: 1,
        };
        reduce.split(arg);
        reduce
    }

    /// Divides the space into chunks: over the points if there are enough points, else over the
    /// reduced range too.
    fn split(&mut self, arg: bool) {
        let wanted = (self.cost_ps() / chunk_ps()).max(1);
        // An outer reduction needs contiguous runs of points; an inner reduction needs whole
        // points.
        let long = self.reduced >= 2 * BLOCK && self.points >= 2 * BLOCK;
        let grain = if self.outer { if long { self.points_at_once() } else { 64 } } else { 1 };
        let by_points = self.points.div_ceil(grain).min(wanted);
        self.point_chunk = self.points.div_ceil(by_points).next_multiple_of(grain).min(self.points);
        self.point_chunks = self.points.div_ceil(self.point_chunk);
        if arg || self.point_chunks >= wanted.min(16) {
            return;
        }
        let parts = (wanted / self.point_chunks).clamp(1, 64);
        let blocks = self.reduced.div_ceil(parts).div_ceil(BLOCK).next_power_of_two();
        self.part = (blocks * BLOCK).min(self.reduced);
        self.parts = self.reduced.div_ceil(self.part);
    }

    /// The code of the prologue and of the body.
    pub fn codes(&self) -> [&Code; 2] {
        [&self.prologue, &self.body]
    }

    pub fn chunks(&self) -> [usize; 2] {
        let combine = if self.parts > 1 { self.points.div_ceil(BLOCK) } else { 0 };
        [self.point_chunks * self.parts, combine]
    }

    pub fn cost_ps(&self) -> usize {
        let element = self.prologue.cost_ps + 10 * self.size;
        let row = self.reduced.saturating_mul(element).saturating_add(self.body.cost_ps + 5000);
        self.points.saturating_mul(row)
    }

    pub fn workspace_bytes(&self) -> usize {
        if self.parts > 1 { self.parts * self.points * self.size } else { 0 }
    }

    /// The number of points whose results are computed at once.
    fn points_at_once(&self) -> usize {
        if self.outer { BLOCK.min(ROW_BYTES / self.size) } else { BLOCK }
    }

    fn level_bytes(&self) -> usize {
        if self.outer { ROW_BYTES } else { MAX_SIZE }
    }

    /// # Safety
    /// As [`super::Prepared::run_chunk`].
    pub unsafe fn run_chunk(
        &self,
        phase: usize,
        chunk: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        // SAFETY: the caller's promise.
        unsafe {
            if phase == 1 {
                return self.combine_chunk(chunk, bindings, scratch);
            }
            let (part, point) = (chunk / self.point_chunks, chunk % self.point_chunks);
            let points =
                point * self.point_chunk..((point + 1) * self.point_chunk).min(self.points);
            self.run_part((self.parts > 1).then_some(part), points, bindings, scratch)
        }
    }

    /// Reduces some points completely, and runs the body on them.
    ///
    /// # Safety
    /// The points lie in the space; the bindings fulfil their contract.
    pub unsafe fn run_points(
        &self,
        points: Range<usize>,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        // SAFETY: the caller's promise.
        unsafe { self.run_part(None, points, bindings, scratch) }
    }

    /// The second phase: combines the partial results of a block of points.
    ///
    /// # Safety
    /// As [`PreparedReduce::run_chunk`].
    unsafe fn combine_chunk(
        &self,
        chunk: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (mem, regs) = scratch.reserve(self.body.slot_bytes, self.body.places.len());
        let start = chunk * BLOCK;
        let n = BLOCK.min(self.points - start);
        // SAFETY: scratch memory of the requested sizes; the caller's promise for the bindings.
        unsafe {
            let body = Frame::new(&self.body, mem, regs, bindings, n);
            let total = self.combine_parts(start, n, bindings.workspace);
            body.set_core(total);
            body.run(start, n)
        }
    }

    /// Reduces a part of the range at some points and stores partial results; without a part,
    /// reduces the whole range and runs the body.
    ///
    /// # Safety
    /// As [`PreparedReduce::run_chunk`].
    unsafe fn run_part(
        &self,
        part: Option<usize>,
        points: Range<usize>,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let range = match part {
            Some(part) => part * self.part..((part + 1) * self.part).min(self.reduced),
            None => 0..self.reduced,
        };
        let levels = Cascade::levels(range.len().div_ceil(BLOCK)) * self.level_bytes();
        let levels = levels.next_multiple_of(64);
        let lanes = if self.outer { LANES * ROW_BYTES } else { 64 };
        let slots = 2 * BLOCK * MAX_SIZE + lanes + levels;
        let bytes = slots + self.prologue.slot_bytes + self.body.slot_bytes;
        let (mem, regs) =
            scratch.reserve(bytes, self.prologue.places.len() + self.body.places.len());
        // SAFETY: the offsets lie within the requested scratch memory; the caller's promise for
        // the bindings.
        unsafe {
            let body_slots = mem.add(slots + self.prologue.slot_bytes);
            let body_regs = regs.add(self.prologue.places.len());
            let n = BLOCK.min(points.len() * range.len());
            let work = Work {
                prologue: Frame::new(&self.prologue, mem.add(slots), regs, bindings, n),
                best: mem.add(BLOCK * MAX_SIZE),
                lanes: mem.add(2 * BLOCK * MAX_SIZE),
                levels: mem.add(2 * BLOCK * MAX_SIZE + lanes),
                pace: Pace::new(),
            };
            let step = self.points_at_once();
            let block = step.min(points.len());
            let body = || Frame::new(&self.body, body_slots, body_regs, bindings, block);
            let body = part.is_none().then(body);
            for start in points.clone().step_by(step) {
                let n = step.min(points.end - start);
                match (&body, part) {
                    (Some(body), _) => {
                        self.reduce(&work, start, n, range.clone(), mem)?;
                        body.set_core(mem);
                        body.run(start, n)?;
                    }
                    (None, part) => {
                        let at = (part.unwrap_or(0) * self.points + start) * self.size;
                        self.reduce(&work, start, n, range.clone(), bindings.workspace.add(at))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Combines the partial results of all parts for the points `[start, start + n)`; returns the
    /// address of the results.
    ///
    /// # Safety
    /// The workspace holds the partial results of all parts.
    unsafe fn combine_parts(&self, start: usize, n: usize, workspace: *mut u8) -> *const u8 {
        let Kind::Fold(fold) = self.kind else { unreachable!("arg reductions are not split") };
        let at = |part: usize| workspace.wrapping_add((part * self.points + start) * self.size);
        let mut gap = 1;
        while gap < self.parts {
            for part in (0..self.parts - gap).step_by(2 * gap) {
                // SAFETY: both partial results lie in the workspace and are distinct.
                unsafe {
                    let (null, x) = (std::ptr::null(), at(part + gap));
                    (fold.combine)(at(part), x, null, null, n);
                }
            }
            gap *= 2;
        }
        at(0)
    }

    /// Reduces `range` at each of the points `[start, start + n)` into `out`.
    ///
    /// # Safety
    /// `n <= BLOCK`; `out` is valid for `n` results; points and range lie in the space.
    unsafe fn reduce(
        &self,
        work: &Work<'_>,
        start: usize,
        n: usize,
        range: Range<usize>,
        out: *mut u8,
    ) -> Result<(), ExecError> {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.kind, self.outer) {
                (Kind::Fold(fold), false) => self.inner(&fold, work, start, n, range, out),
                (Kind::Fold(fold), true) => self.outer(&fold, work, start, n, range, out),
                (Kind::Arg(arg), false) => self.arg_inner(&arg, work, start, n, out as *mut i64),
                (Kind::Arg(arg), true) => self.arg_outer(&arg, work, start, n, out as *mut i64),
            }
        }
    }
}

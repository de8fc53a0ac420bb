//! Reductions.
//!
//! There are two orders of the work, chosen by the strides of the prologue's operands:
//! * *inner*: the reduced dimensions vary fastest; a row is folded block by block;
//! * *outer*: the parallel dimensions vary fastest; whole rows of points are combined elementwise.
//!
//! Both compute the one tree that [`fold`] describes, so the choice changes no bit. Neither does
//! the split of a long reduction with few points: its first phase stores one partial result per
//! point and part in the workspace, and the second phase combines them; a part is a power of two of
//! blocks.

use super::cast::compute;
use super::code::{Code, Frame, Reg};
use super::fold::{self, ArgFold, ArgState, Cascade, Fold, LANES};
use super::lower::{Dim, Lower, Order};
use super::map::parallel_order;
use super::{BLOCK, Bindings, ExecError, MAX_SIZE, PrepareOptions, Scratch, chunk_ps};
use girih_kernel::{Core, Inst, Kernel, ReduceOp};
use std::ops::Range;

/// Bytes of a row of points of an outer reduction: long enough for contiguous reads, and short
/// enough for its lanes to stay in the cache.
const ROW_BYTES: usize = 2048;

/// The shortest row that is worth a function call, and the minimum number of elements for which a
/// function is worth compiling if rows have at most half a block.
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
    /// Bytes of the prologue's value in its compute type.
    size: usize,
    body: Code,
    kind: Kind,
    outer: bool,
    points: usize,
    reduced: usize,
    /// Points per chunk, and chunks of points.
    point_chunk: usize,
    point_chunks: usize,
    /// Reduced elements per part, and parts.
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
}

/// True if most operands of the prologue have smaller strides along the parallel dimensions than
/// along the reduced ones.
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
            Kind::Arg(fold::arg_fold(*op, dtype))
        } else {
            Kind::Fold(fold::fold(*op, dtype, options.isa))
        };
        let mut reduce = PreparedReduce {
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

    /// Divides the space into chunks: over the points if there are enough of them, else over the
    /// reduced range too.
    fn split(&mut self, arg: bool) {
        let wanted = (self.cost_ps() / chunk_ps()).max(1);
        // An outer reduction needs contiguous runs, an inner one whole points.
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

    /// Points whose results are computed at once.
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

    /// # Safety
    /// As [`PreparedReduce::reduce`].
    unsafe fn inner(
        &self,
        fold: &Fold,
        work: &Work<'_>,
        start: usize,
        n: usize,
        range: Range<usize>,
        out: *mut u8,
    ) -> Result<(), ExecError> {
        let null = std::ptr::null();
        if self.reduced <= BLOCK {
            // SAFETY: the caller's promise; such rows are never split.
            return unsafe { self.inner_short(fold, work, (start, n), out) };
        }
        // SAFETY: the points and the range lie in the space, a block's worth at a time.
        unsafe {
            if let (Some(total), true) = (self.prologue.total, self.whole_blocks()) {
                return self.inner_blocks((fold, total), work, (start, n), range, out);
            }
            let bytes = self.level_bytes();
            for i in 0..n {
                let row = (start + i) * self.reduced;
                let mut cascade = Cascade::new(work.levels, bytes, self.size, 1, fold.combine);
                for r in range.clone().step_by(BLOCK) {
                    let len = BLOCK.min(range.end - r);
                    work.prologue.run(row + r, len)?;
                    if let Some(total) = self.prologue.total {
                        cascade.push(work.prologue.reg(total));
                        continue;
                    }
                    let x = work.prologue.reg(self.value);
                    (fold.rows)(work.lanes, x, len as *const u8, null, 1);
                    cascade.push(work.lanes);
                }
                let total = cascade.finish();
                std::ptr::copy_nonoverlapping(total, out.add(i * self.size), self.size);
            }
        }
        Ok(())
    }

    /// Reduces rows of at most a block, several per run; there is room for a block of results.
    ///
    /// # Safety
    /// As [`PreparedReduce::reduce`], of the whole range.
    unsafe fn inner_short(
        &self,
        fold: &Fold,
        work: &Work<'_>,
        (start, n): (usize, usize),
        out: *mut u8,
    ) -> Result<(), ExecError> {
        let (total, any) = (self.prologue.total, self.prologue.block > BLOCK);
        let group = if total.is_some() && any { BLOCK } else { BLOCK / self.reduced };
        for i in (0..n).step_by(group) {
            let rows = group.min(n - i);
            // SAFETY: the points lie in the space, and so do their rows.
            unsafe {
                let out = out.add(i * self.size);
                work.prologue.run((start + i) * self.reduced, rows * self.reduced)?;
                if let Some(total) = total {
                    let x = work.prologue.reg(total);
                    std::ptr::copy_nonoverlapping(x, out, rows * self.size);
                    continue;
                }
                let (x, len) = (work.prologue.reg(self.value), self.reduced as *const u8);
                (fold.rows)(out, x, len, std::ptr::null(), rows);
            }
        }
        Ok(())
    }

    /// True if a run of the prologue may have several whole blocks; it then gives the result of
    /// each block.
    fn whole_blocks(&self) -> bool {
        self.prologue.block > BLOCK && self.reduced.is_multiple_of(BLOCK)
    }

    /// Reduces rows of whole blocks, as many blocks at a time as there is room for results: those
    /// of several rows, or a power of two of blocks.
    ///
    /// # Safety
    /// As [`PreparedReduce::reduce`]; `total` holds the results of blocks.
    unsafe fn inner_blocks(
        &self,
        (fold, total): (&Fold, Reg),
        work: &Work<'_>,
        (start, n): (usize, usize),
        range: Range<usize>,
        out: *mut u8,
    ) -> Result<(), ExecError> {
        let (null, size) = (std::ptr::null(), self.size);
        let blocks = range.len() / BLOCK;
        // Parts of consecutive rows are not contiguous.
        let at_once = if range.len() == self.reduced { (BLOCK / blocks).max(1) } else { 1 };
        for i in (0..n).step_by(at_once) {
            let (rows, row) = (at_once.min(n - i), (start + i) * self.reduced);
            // SAFETY: the points lie in the space, and so does the range; a register has room for a
            // block of results.
            unsafe {
                let x = work.prologue.reg(total);
                if blocks <= BLOCK {
                    work.prologue.run(row + range.start, rows * range.len())?;
                    (fold.blocks)(out.add(i * size), x, blocks as *const u8, null, rows);
                    continue;
                }
                let bytes = self.level_bytes();
                let mut cascade = Cascade::new(work.levels, bytes, size, 1, fold.combine);
                for r in range.clone().step_by(BLOCK * BLOCK) {
                    let len = (BLOCK * BLOCK).min(range.end - r);
                    work.prologue.run(row + r, len)?;
                    (fold.blocks)(work.lanes, x, (len / BLOCK) as *const u8, null, 1);
                    cascade.push(work.lanes);
                }
                std::ptr::copy_nonoverlapping(cascade.finish(), out.add(i * size), size);
            }
        }
        Ok(())
    }

    /// The number of rows of the points `[start, start + n)` in one block of the outer order:
    /// several if these are all points.
    fn rows_at_once(&self, n: usize) -> usize {
        if n == self.points { (BLOCK / n).max(1) } else { 1 }
    }

    /// # Safety
    /// As [`PreparedReduce::reduce`].
    unsafe fn outer(
        &self,
        fold: &Fold,
        work: &Work<'_>,
        start: usize,
        n: usize,
        range: Range<usize>,
        out: *mut u8,
    ) -> Result<(), ExecError> {
        let row = n * self.size;
        // SAFETY: the points and the range lie in the space, at most a block at a time; a cascade's
        // vector is a row of points.
        unsafe {
            let bytes = self.level_bytes();
            let mut cascade = Cascade::new(work.levels, bytes, self.size, n, fold.combine);
            for r in range.clone().step_by(BLOCK) {
                self.fold_rows(fold, work, (start, n), r..(r + BLOCK).min(range.end))?;
                cascade.push(work.lanes);
            }
            std::ptr::copy_nonoverlapping(cascade.finish(), out, row);
        }
        Ok(())
    }

    /// Folds at most a block of rows of the `n` points from `start` on into the first lane.
    ///
    /// # Safety
    /// As [`PreparedReduce::reduce`].
    unsafe fn fold_rows(
        &self,
        fold: &Fold,
        work: &Work<'_>,
        (start, n): (usize, usize),
        range: Range<usize>,
    ) -> Result<(), ExecError> {
        let (null, row) = (std::ptr::null(), n * self.size);
        let used = LANES.min(range.len());
        let at_once = self.rows_at_once(n).min(LANES);
        let mut r = range.start;
        // SAFETY: rows and lanes are dense, so consecutive rows meet consecutive lanes; `rows` ends
        // before the lanes wrap.
        unsafe {
            (fold.identity)(work.lanes, null, null, null, used * n);
            let load = self.prologue.only_load(self.value).filter(|_| n < self.points);
            if let Some(load) = load {
                // Parts of rows are apart in memory in any order, so read those of a lane one after
                // another, and combine them in registers.
                let step = self.points * self.size;
                let between = (LANES * step) as *const u8;
                for lane in 0..used {
                    let first = (range.start + lane) * self.points + start;
                    let rows = (range.len() - lane).div_ceil(LANES) as *const u8;
                    let (x, to) = (work.prologue.address(load, first), work.lanes.add(lane * row));
                    (fold.combine_rows)(to, x, between, rows, n);
                }
                r = range.end;
            }
            while r < range.end {
                let lane = (r - range.start) % LANES;
                let rows = at_once.min(range.end - r).min(LANES - lane);
                work.prologue.run(r * self.points + start, rows * n)?;
                let x = work.prologue.reg(self.value);
                (fold.combine)(work.lanes.add(lane * row), x, null, null, rows * n);
                r += rows;
            }
            let mut width = LANES / 2;
            while width > 0 {
                // Lanes beyond the used ones hold the identity, which changes nothing.
                let upper = used.min(2 * width).saturating_sub(width);
                let from = work.lanes.add(width.min(used) * row);
                (fold.combine)(work.lanes, from, null, null, upper * n);
                width /= 2;
            }
        }
        Ok(())
    }

    /// # Safety
    /// As [`PreparedReduce::reduce`], of the whole range.
    unsafe fn arg_inner(
        &self,
        arg: &ArgFold,
        work: &Work<'_>,
        start: usize,
        n: usize,
        out: *mut i64,
    ) -> Result<(), ExecError> {
        let group = (BLOCK / self.reduced).max(1);
        // SAFETY: the points lie in the space, at most a block at a time.
        unsafe {
            for i in (0..n).step_by(group) {
                let rows = group.min(n - i);
                let mut states = [ArgState::START; BLOCK];
                for r in (0..self.reduced).step_by(BLOCK) {
                    let len = BLOCK.min(self.reduced - r);
                    work.prologue.run((start + i) * self.reduced + r, rows * len)?;
                    let x = work.prologue.reg(self.value);
                    for (row, state) in states[..rows].iter_mut().enumerate() {
                        (arg.scan)(state, x.add(row * len * self.size), r as i64, len);
                    }
                }
                for (row, state) in states[..rows].iter().enumerate() {
                    *out.add(i + row) = state.index;
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// As [`PreparedReduce::reduce`], of the whole range.
    unsafe fn arg_outer(
        &self,
        arg: &ArgFold,
        work: &Work<'_>,
        start: usize,
        n: usize,
        out: *mut i64,
    ) -> Result<(), ExecError> {
        let at_once = self.rows_at_once(n);
        // SAFETY: the points lie in the space, at most a block at a time.
        unsafe {
            for r in (0..self.reduced).step_by(at_once) {
                let rows = at_once.min(self.reduced - r);
                work.prologue.run(r * self.points + start, rows * n)?;
                let x = work.prologue.reg(self.value);
                for row in 0..rows {
                    let index = (r + row) as i64;
                    (arg.step)(work.best, out, x.add(row * n * self.size), index, n);
                }
            }
        }
        Ok(())
    }
}

//! The outer order: the parallel dimensions vary fastest. Whole rows of points are combined
//! elementwise.

use super::{PreparedReduce, Work};
use crate::fold::{ArgFold, Cascade, Fold};
use crate::{BLOCK, ExecError};
use std::ops::Range;
use std::ptr::without_provenance;

/// The minimum number of contiguous elements of a row for which rows are combined in memory.
const MIN_IN_MEMORY: usize = 32;
/// The size in bytes of the columns that are folded at a time.
const COLUMNS_BYTES: usize = 512;

impl PreparedReduce {
    /// The number of rows of the points `[start, start + n)` in one block of the outer order;
    /// several if these points are all points.
    fn rows_at_once(&self, n: usize) -> usize {
        if n == self.points { (BLOCK / n).max(1) } else { 1 }
    }

    /// # Safety
    /// As [`PreparedReduce::reduce`].
    pub(super) unsafe fn outer(
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
                work.pace.step(BLOCK.min(range.end - r) * n)?;
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
        let lanes = fold.lanes;
        let used = lanes.min(range.len());
        let at_once = self.rows_at_once(n).min(lanes);
        let mut r = range.start;
        // SAFETY: rows and lanes are dense, so consecutive rows meet consecutive lanes; `rows` ends
        // before the lanes wrap.
        unsafe {
            if self.fold_in_memory(fold, work, (start, n), range.clone())? {
                return Ok(());
            }
            (fold.identity)(work.lanes, null, null, null, used * n);
            while r < range.end {
                let lane = (r - range.start) % lanes;
                let rows = at_once.min(range.end - r).min(lanes - lane);
                work.prologue.run(r * self.points + start, rows * n)?;
                let x = work.prologue.reg(self.value);
                (fold.combine)(work.lanes.add(lane * row), x, null, null, rows * n);
                r += rows;
            }
            let mut width = lanes / 2;
            while width > 0 {
                // Lanes beyond the used lanes hold the identity, which does not change the result.
                let upper = used.min(2 * width).saturating_sub(width);
                let from = work.lanes.add(width.min(used) * row);
                (fold.combine)(work.lanes, from, null, null, upper * n);
                width /= 2;
            }
        }
        Ok(())
    }

    /// As [`Self::fold_rows`], of elements in memory, if the prologue only loads them and rows have
    /// enough contiguous elements; otherwise returns `false`. A few columns at a time, so that their
    /// lanes stay in the L1 cache.
    ///
    /// # Safety
    /// As [`Self::fold_rows`].
    unsafe fn fold_in_memory(
        &self,
        fold: &Fold,
        work: &Work<'_>,
        (start, n): (usize, usize),
        range: Range<usize>,
    ) -> Result<bool, ExecError> {
        let (size, bindings) = (self.size, work.prologue.bindings());
        let Some(load) = &self.load else { return Ok(false) };
        let (run, stride) = load.walk.inner();
        if stride != 1 || run.min(n) < MIN_IN_MEMORY {
            return Ok(false);
        }
        let (first, rows) = (range.start * self.points + start, range.len());
        let Some(step) = load.walk.row_step(first, (rows, self.points)) else { return Ok(false) };
        load.check((first, n), bindings)?;
        load.check((first + (rows - 1) * self.points, n), bindings)?;
        let lanes = work.lanes.wrapping_add((n * size).next_multiple_of(64));
        let mut done = 0;
        while done < n {
            let left = run - (first + done) % run;
            let columns = left.min(n - done).min(COLUMNS_BYTES / size);
            let x = load.address(first + done, bindings);
            let step = without_provenance((step * size as isize) as usize);
            // SAFETY: the rows lie in the space; there is room for the lanes of these columns after
            // the row of results.
            unsafe {
                (fold.columns)(lanes, x, step, without_provenance(rows), columns);
                let to = work.lanes.add(done * size);
                std::ptr::copy_nonoverlapping(lanes, to, columns * size);
            }
            done += columns;
        }
        Ok(true)
    }

    /// # Safety
    /// As [`PreparedReduce::reduce`], of the whole range.
    pub(super) unsafe fn arg_outer(
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
                work.pace.step(rows * n)?;
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

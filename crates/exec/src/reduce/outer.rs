//! The outer order: the parallel dimensions vary fastest. Whole rows of points are combined
//! elementwise.

use super::{PreparedReduce, Work};
use crate::fold::{ArgFold, Cascade, Fold};
use crate::{BLOCK, ExecError};
use std::ops::Range;
use std::ptr::without_provenance;

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
            (fold.identity)(work.lanes, null, null, null, used * n);
            let load = self.prologue.only_load(self.value).filter(|_| n < self.points);
            if let Some(load) = load {
                let (at, end) = (range.start * self.points, (range.end - 1) * self.points);
                work.prologue.check_load(load, at + start, end + start + n)?;
                // Parts of rows are apart in memory in any order, so read the parts of a lane one
                // after another, and combine them in registers.
                let step = self.points * self.size;
                let between = without_provenance(lanes * step);
                for lane in 0..used {
                    let first = (range.start + lane) * self.points + start;
                    let rows = without_provenance((range.len() - lane).div_ceil(lanes));
                    let (x, to) = (work.prologue.address(load, first), work.lanes.add(lane * row));
                    (fold.combine_rows)(to, x, between, rows, n);
                }
                r = range.end;
            }
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

//! The inner order: the reduced dimensions vary fastest. A row is folded block by block, or several
//! short rows at a time.

use super::{PreparedReduce, Work};
use crate::code::{Load, Reg};
use crate::fold::{ArgFold, ArgState, Cascade, Fold};
use crate::{BLOCK, ExecError};
use std::ops::Range;
use std::ptr::without_provenance;

impl PreparedReduce {
    /// # Safety
    /// As [`PreparedReduce::reduce`].
    pub(super) unsafe fn inner(
        &self,
        fold: &Fold,
        work: &Work<'_>,
        start: usize,
        n: usize,
        range: Range<usize>,
        out: *mut u8,
    ) -> Result<(), ExecError> {
        let null = std::ptr::null();
        if let Some(load) = self.load.as_ref().filter(|l| fold.exact && l.walk.is_dense()) {
            // SAFETY: the caller's promise.
            return unsafe { self.inner_in_memory((fold, load), work, (start, n), range, out) };
        }
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
                    work.pace.step(len)?;
                    work.prologue.run(row + r, len)?;
                    if let Some(total) = self.prologue.total {
                        cascade.push(work.prologue.reg(total));
                        continue;
                    }
                    let x = work.prologue.reg(self.value);
                    (fold.rows)(work.lanes, x, without_provenance(len), null, 1);
                    cascade.push(work.lanes);
                }
                let total = cascade.finish();
                std::ptr::copy_nonoverlapping(total, out.add(i * self.size), self.size);
            }
        }
        Ok(())
    }

    /// Reduces rows in memory whose elements may be combined in any order. A row ends early at a result
    /// that no further element changes.
    ///
    /// # Safety
    /// As [`PreparedReduce::reduce`].
    unsafe fn inner_in_memory(
        &self,
        (fold, load): (&Fold, &Load),
        work: &Work<'_>,
        (start, n): (usize, usize),
        range: Range<usize>,
        out: *mut u8,
    ) -> Result<(), ExecError> {
        /// The number of elements after which a row may end.
        const PIECE: usize = 1 << 12;
        let null = std::ptr::null();
        let (bindings, size) = (work.prologue.bindings(), self.size);
        let short = range.len() <= PIECE && range.len() == self.reduced;
        let at_once = if short { PIECE / self.reduced } else { 1 };
        for i in (0..n).step_by(at_once) {
            let (first, to) = ((start + i) * self.reduced, out.wrapping_add(i * size));
            // SAFETY: the points and the range lie in the space; a result for each point.
            unsafe {
                if short {
                    let (rows, row) = (at_once.min(n - i), self.reduced);
                    work.pace.step(rows * row)?;
                    load.check((first, rows * row), bindings)?;
                    let x = load.address(first, bindings);
                    (fold.rows)(to, x, without_provenance(row), null, rows);
                    continue;
                }
                (fold.identity)(to, null, null, null, 1);
                for r in range.clone().step_by(PIECE) {
                    let len = PIECE.min(range.end - r);
                    work.pace.step(len)?;
                    load.check((first + r, len), bindings)?;
                    let x = load.address(first + r, bindings);
                    (fold.rows)(work.lanes, x, without_provenance(len), null, 1);
                    (fold.combine)(to, work.lanes, null, null, 1);
                    if fold.last.is_some_and(|last| last == *to) {
                        break;
                    }
                }
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
            work.pace.step(rows * self.reduced)?;
            // SAFETY: the points lie in the space, and so do their rows.
            unsafe {
                let out = out.add(i * self.size);
                work.prologue.run((start + i) * self.reduced, rows * self.reduced)?;
                if let Some(total) = total {
                    let x = work.prologue.reg(total);
                    std::ptr::copy_nonoverlapping(x, out, rows * self.size);
                    continue;
                }
                let (x, len) = (work.prologue.reg(self.value), without_provenance(self.reduced));
                (fold.rows)(out, x, len, std::ptr::null(), rows);
            }
        }
        Ok(())
    }

    /// Whether a run of the prologue may have several whole blocks. The run then returns the result
    /// of each block.
    fn whole_blocks(&self) -> bool {
        self.prologue.block > BLOCK && self.reduced.is_multiple_of(BLOCK)
    }

    /// Reduces rows of whole blocks, as many blocks at a time as there is room for results: the
    /// blocks of several rows, or a power of two of blocks.
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
            work.pace.step(rows * (blocks * BLOCK).min(BLOCK * BLOCK))?;
            // SAFETY: the points lie in the space, and so does the range; a register has room for a
            // block of results.
            unsafe {
                let x = work.prologue.reg(total);
                if blocks <= BLOCK {
                    work.prologue.run(row + range.start, rows * range.len())?;
                    (fold.blocks)(out.add(i * size), x, without_provenance(blocks), null, rows);
                    continue;
                }
                let bytes = self.level_bytes();
                let mut cascade = Cascade::new(work.levels, bytes, size, 1, fold.combine);
                for r in range.clone().step_by(BLOCK * BLOCK) {
                    let len = (BLOCK * BLOCK).min(range.end - r);
                    work.pace.step(len)?;
                    work.prologue.run(row + r, len)?;
                    (fold.blocks)(work.lanes, x, without_provenance(len / BLOCK), null, 1);
                    cascade.push(work.lanes);
                }
                std::ptr::copy_nonoverlapping(cascade.finish(), out.add(i * size), size);
            }
        }
        Ok(())
    }

    /// # Safety
    /// As [`PreparedReduce::reduce`], of the whole range.
    pub(super) unsafe fn arg_inner(
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
                    work.pace.step(rows * len)?;
                    work.prologue.run((start + i) * self.reduced + r, rows * len)?;
                    let x = work.prologue.reg(self.value);
                    for (row, state) in states[..rows].iter_mut().enumerate() {
                        let state = (&raw mut *state).cast::<u8>();
                        let x = x.add(row * len * self.size);
                        (arg.scan)(state, x, without_provenance(r), std::ptr::null(), len);
                    }
                }
                for (row, state) in states[..rows].iter().enumerate() {
                    *out.add(i + row) = state.index;
                }
            }
        }
        Ok(())
    }
}

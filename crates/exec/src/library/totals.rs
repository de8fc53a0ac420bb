//! Running sums and products.
//!
//! Each step waits for the one before it, so that a processor with one row at a time idles: four rows
//! are processed at once. A long row of sums is divided into blocks, four of which are processed at
//! once, and then the total of the blocks before a block is added to each of its sums. The blocks, and
//! so the order of all additions, depend on the length of the row only.

use super::{Args, Element, PART, take};
use girih_linalg::Team;
use num_complex::{Complex32, Complex64};
use std::array::from_fn;
use std::ops::Range;
use std::sync::Mutex;

/// The length of a block.
const BLOCK: usize = 1 << 13;
/// The type of sums and products. Integers wrap.
pub(super) trait Number: Element {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn is_finite(self) -> bool;
}

macro_rules! numbers {
    ($($int:ty)*; $($ty:ty)*) => {
        $(impl Number for $int {
            #[inline(always)]
            fn plus(self, other: $int) -> $int {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn times(self, other: $int) -> $int {
                self.wrapping_mul(other)
            }

            fn is_finite(self) -> bool {
                true
            }
        })*
        $(impl Number for $ty {
            #[inline(always)]
            fn plus(self, other: $ty) -> $ty {
                self + other
            }

            #[inline(always)]
            fn times(self, other: $ty) -> $ty {
                self * other
            }

            fn is_finite(self) -> bool {
                <$ty>::is_finite(self)
            }
        })*
    };
}

numbers!(i64 u64; f32 f64 Complex32 Complex64);

/// Running sums of rows.
pub(super) fn sums<T: Number>(args: &mut Args<'_>) {
    let (rows, len) = (args.operand::<T>(0), args.operands[0].1[0]);
    let scan = Scan { reverse: args.flag, team: args.team, combine: T::plus };
    let Some(out) = args.result::<T>(0) else { return };
    if len <= 2 * BLOCK {
        return scan.rows(rows, out, len);
    }
    for (row, out) in rows.chunks(len).zip(out.chunks_mut(len)) {
        // The sum of a block may overflow where the total before it would have prevented that.
        if !scan.blocks(row, out) {
            scan.rows(row, out, len);
        }
    }
}

/// Running products of rows. The product of a block may overflow, or lose digits near zero, where
/// the total before it would prevent that: there are no blocks.
pub(super) fn products<T: Number>(args: &mut Args<'_>) {
    let (rows, len) = (args.operand::<T>(0), args.operands[0].1[0]);
    let scan = Scan { reverse: args.flag, team: args.team, combine: T::times };
    if let Some(out) = args.result::<T>(0) {
        scan.rows(rows, out, len);
    }
}

struct Scan<'a, F> {
    /// Whether rows are combined from their ends.
    reverse: bool,
    team: &'a dyn Team,
    combine: F,
}

impl<F> Scan<'_, F> {
    /// Scans rows of `len` elements.
    fn rows<T: Number>(&self, rows: &[T], out: &mut [T], len: usize)
    where
        F: Fn(T, T) -> T,
    {
        if len == 0 {
            return;
        }
        for (rows, out) in rows.chunks(4 * len).zip(out.chunks_mut(4 * len)) {
            if rows.len() == 4 * len {
                self.lanes::<T, 4>(rows, out);
                continue;
            }
            for (row, out) in rows.chunks(len).zip(out.chunks_mut(len)) {
                self.lanes::<T, 1>(row, out);
            }
        }
    }

    /// Scans the blocks of a long row. False if sums are not finite, or if the team was stopped; the
    /// result is then unspecified.
    fn blocks<T: Number>(&self, row: &[T], out: &mut [T]) -> bool
    where
        F: Fn(T, T) -> T + Sync,
    {
        let cost_ns = row.len() as u64 / 3;
        let groups: Vec<_> = match self.reverse {
            // Blocks begin at the end.
            true => row.rchunks(4 * BLOCK).zip(out.rchunks_mut(4 * BLOCK)).map(part).collect(),
            false => row.chunks(4 * BLOCK).zip(out.chunks_mut(4 * BLOCK)).map(part).collect(),
        };
        self.team.share(groups.len(), cost_ns, &|number| {
            let group = take(&groups[number]);
            match group {
                Some((row, out)) if row.len() == 4 * BLOCK => self.lanes::<T, 4>(row, out),
                Some((row, out)) if self.reverse => {
                    row.rchunks(BLOCK)
                        .zip(out.rchunks_mut(BLOCK))
                        .for_each(|(r, o)| self.lanes::<T, 1>(r, o));
                }
                Some((row, out)) => self.rows(row, out, BLOCK),
                None => (),
            }
        });
        let mut blocks: Vec<&mut [T]> = match self.reverse {
            true => out.rchunks_mut(BLOCK).collect(),
            false => out.chunks_mut(BLOCK).collect(),
        };
        let mut before: Option<T> = None;
        let mut later = Vec::with_capacity(blocks.len());
        for block in blocks.drain(..) {
            let last = if self.reverse { block.first() } else { block.last() };
            let Some(&last) = last else { continue };
            let total = before.map_or(last, |before| (self.combine)(before, last));
            if !last.is_finite() {
                return false;
            }
            if let Some(before) = before {
                later.push(Mutex::new(Some((before, block))));
            }
            before = Some(total);
        }
        self.team.share(later.len(), cost_ns, &|number| {
            let block = take(&later[number]);
            if let Some((before, block)) = block {
                block.iter_mut().for_each(|sum| *sum = (self.combine)(before, *sum));
            }
        });
        true
    }

    /// Scans `N` rows, one behind the other in memory, at once.
    fn lanes<T: Number, const N: usize>(&self, rows: &[T], out: &mut [T])
    where
        F: Fn(T, T) -> T,
    {
        let len = rows.len() / N;
        let Some(last) = len.checked_sub(1) else { return };
        let first = if self.reverse { last } else { 0 };
        let mut sums: [T; N] = from_fn(|lane| rows[lane * len + first]);
        (0..N).for_each(|lane| out[lane * len + first] = sums[lane]);
        for range in self.ranges(len) {
            let count = range.len();
            let from: [&[T]; N] = from_fn(|lane| &rows[lane * len + range.start..][..count]);
            let mut parts = out.chunks_exact_mut(len).map(|row| &mut row[range.clone()]);
            let to: [&mut [T]; N] = from_fn(|_| parts.next().unwrap_or_default());
            // All slices have the length of the loop, so that it tests no indices.
            let (from, to) = (from.map(|x| &x[..count]), to.map(|x| &mut x[..count]));
            let mut step = |i: usize| {
                for lane in 0..N {
                    sums[lane] = (self.combine)(sums[lane], from[lane][i]);
                    to[lane][i] = sums[lane];
                }
            };
            match self.reverse {
                true => (0..count).rev().for_each(step),
                false => (0..count).for_each(&mut step),
            }
        }
    }

    /// The elements of a row behind its first one, in parts. They end early if the team is stopped.
    fn ranges(&self, len: usize) -> impl Iterator<Item = Range<usize>> {
        let part = move |start: usize| start..(start + PART).min(len);
        let reverse = self.reverse;
        (1..len)
            .step_by(PART)
            .take_while(|&start| start == 1 || !self.team.stopped())
            .map(part)
            .map(move |part| if reverse { len - part.end..len - part.start } else { part })
    }
}

type Part<'a, T> = Mutex<Option<(&'a [T], &'a mut [T])>>;

fn part<'a, T>(pair: (&'a [T], &'a mut [T])) -> Part<'a, T> {
    Mutex::new(Some(pair))
}

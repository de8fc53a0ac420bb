//! Routines on rows: sorting, searching, scans.

use super::{Args, Element};
use girih_linalg::Team;
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use std::cmp::Ordering;
use std::ops::Not;

/// Elements with a total order. NaN is larger than every number, and the zeros are equal.
pub(crate) trait Ordered: Element {
    /// Whether equal elements are indistinguishable, so that their order does not matter.
    const PLAIN: bool;
    /// An integer of the same size, with the same order.
    type Key: Ord + Copy + Not<Output = Self::Key>;
    fn key(self) -> Self::Key;
    fn order(self, other: Self) -> Ordering;
    fn is_nan(self) -> bool;
}

macro_rules! ordered {
    ($($int:ty)*; $($float:ty => $key:ty)*) => {
        $(impl Ordered for $int {
            const PLAIN: bool = true;
            type Key = $int;
            #[inline(always)]
            fn key(self) -> $int {
                self
            }
            #[inline(always)]
            fn order(self, other: Self) -> Ordering {
                self.cmp(&other)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
        })*
        $(impl Ordered for $float {
            const PLAIN: bool = false;
            type Key = $key;
            #[inline(always)]
            fn key(self) -> $key {
                let bits = self.to_bits() as $key;
                let rising = if bits < 0 { bits ^ <$key>::MAX } else { bits };
                let zero = if bits == <$key>::MIN { 0 } else { rising };
                let nan = bits & <$key>::MAX > <$float>::INFINITY.to_bits() as $key;
                if nan { <$key>::MAX } else { zero }
            }
            #[inline(always)]
            fn order(self, other: Self) -> Ordering {
                self.partial_cmp(&other).unwrap_or_else(|| self.is_nan().cmp(&other.is_nan()))
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self != self
            }
        })*
    };
}

ordered!(u8 u16 u32 u64 i8 i16 i32 i64; f16 => i16 bf16 => i16 f32 => i32 f64 => i64);

/// The number of elements that a loop processes between two looks at whether the run was stopped.
const PART: usize = 1 << 16;

/// Sorts a row: result 0 is the elements, result 1 their positions. Stable.
pub(super) fn sort<T: Ordered>(args: &mut Args<'_>) {
    let (row, descending, team) = (args.operand::<T>(0), args.flag, args.team);
    let order = |a: T, b: T| if descending { b.order(a) } else { a.order(b) };
    if args.result::<i64>(1).is_none() {
        let Some(out) = args.result::<T>(0) else { return };
        out.copy_from_slice(row);
        let sort = |part: &mut [T]| match T::PLAIN {
            true => part.sort_unstable_by(|a, b| order(*a, *b)),
            false => part.sort_by(|a, b| order(*a, *b)),
        };
        return sort_by_runs(out, sort, |a, b| order(*a, *b).is_lt(), team);
    }
    // The position decides between equal elements, so the sort need not be stable.
    let mut pairs: Vec<(T, i64)> = Vec::with_capacity(row.len());
    for part in row.chunks(RUN) {
        if row_is_stopped(team, row.len()) {
            return;
        }
        pairs.extend(part.iter().copied().zip(pairs.len() as i64..));
    }
    let order = |a: &(T, i64), b: &(T, i64)| order(a.0, b.0).then(a.1.cmp(&b.1));
    let sort = |part: &mut [(T, i64)]| part.sort_unstable_by(order);
    sort_by_runs(&mut pairs, sort, |a, b| order(a, b).is_lt(), team);
    if let Some(out) = args.result::<i64>(1) {
        out.iter_mut().zip(&pairs).for_each(|(out, pair)| *out = pair.1);
    }
    if let Some(out) = args.result::<T>(0) {
        out.iter_mut().zip(&pairs).for_each(|(out, pair)| *out = pair.0);
    }
}

/// The length of the runs of which [`sort_by_runs`] merges longer ones.
const RUN: usize = 1 << 18;

/// Sorts with `sort`, which must be stable unless equal elements are indistinguishable. A long row
/// is sorted in runs, which are merged, so that the team is asked now and then whether to stop.
fn sort_by_runs<T: Copy>(
    row: &mut [T],
    sort: impl Fn(&mut [T]),
    less: impl Fn(&T, &T) -> bool,
    team: &dyn Team,
) {
    let (count, mut width) = (row.len(), RUN);
    for run in row.chunks_mut(RUN) {
        if row_is_stopped(team, count) {
            return;
        }
        sort(run);
    }
    if count <= RUN {
        return;
    }
    let mut spare = row.to_vec();
    let (mut from, mut to, mut in_row) = (row, spare.as_mut_slice(), true);
    while width < count {
        for (from, to) in from.chunks(2 * width).zip(to.chunks_mut(2 * width)) {
            let (first, second) = from.split_at(width.min(from.len()));
            if !merge(first, second, to, &less, team) {
                return;
            }
        }
        (from, to, in_row) = (to, from, !in_row);
        width *= 2;
    }
    if !in_row {
        to.copy_from_slice(from);
    }
}

/// Whether the team is to stop; asked only by rows of several parts.
fn row_is_stopped(team: &dyn Team, len: usize) -> bool {
    len >= PART && team.stopped()
}

/// Merges two sorted runs; of equal elements, those of the first run come first. False if the team
/// was stopped.
fn merge<T: Copy>(
    first: &[T],
    second: &[T],
    out: &mut [T],
    less: impl Fn(&T, &T) -> bool,
    team: &dyn Team,
) -> bool {
    let (mut i, mut j) = (0, 0);
    for part in out.chunks_mut(PART) {
        if team.stopped() {
            return false;
        }
        let mut done = 0;
        while done < part.len() && i < first.len() && j < second.len() {
            let takes_second = less(&second[j], &first[i]);
            part[done] = if takes_second { second[j] } else { first[i] };
            j += takes_second as usize;
            i += !takes_second as usize;
            done += 1;
        }
        // One of the runs is at its end.
        let rest = &mut part[done..];
        let from_first = rest.len().min(first.len() - i);
        rest[..from_first].copy_from_slice(&first[i..i + from_first]);
        let from_second = rest.len() - from_first;
        rest[from_first..].copy_from_slice(&second[j..j + from_second]);
        (i, j) = (i + from_first, j + from_second);
    }
    true
}

/// The best elements of a row: result 0 is the elements, result 1 their positions. Stable.
pub(super) fn best<T: Ordered>(args: &mut Args<'_>) {
    let (row, largest, team) = (args.operand::<T>(0), args.flag, args.team);
    let count = args.result::<T>(0).map(|out| out.len());
    let Some(count) = count.or_else(|| args.result::<i64>(1).map(|out| out.len())) else { return };
    let chosen = match largest {
        true => first(row, count, |x| !x.key(), team),
        false => first(row, count, T::key, team),
    };
    if chosen.len() < count {
        return;
    }
    if let Some(out) = args.result::<i64>(1) {
        out.iter_mut().zip(&chosen).for_each(|(out, pair)| *out = pair.1 as i64);
    }
    if let Some(out) = args.result::<T>(0) {
        out.iter_mut().zip(&chosen).for_each(|(out, pair)| *out = row[pair.1]);
    }
}

/// The `count` smallest keys in order, with their positions, which decide between equal keys.
///
/// Candidates are collected until there are twice as many as requested. Then all but the best are
/// dropped, and the worst of these is a limit that most of the later elements do not pass. So the
/// time is O(row + count log count) for any order of the elements. If the team was stopped, there
/// are no results.
fn first<T: Copy, K: Ord + Copy>(
    row: &[T],
    count: usize,
    key: impl Fn(T) -> K,
    team: &dyn Team,
) -> Vec<(K, usize)> {
    /// The number of elements that are compared with the limit at once.
    const CHUNK: usize = 64;
    if count == 0 {
        return Vec::new();
    }
    let room = (2 * count).max(2 * CHUNK);
    let mut found: Vec<(K, usize)> = Vec::with_capacity((room + CHUNK).min(row.len()));
    let mut limit = None;
    for (number, chunk) in row.chunks(CHUNK).enumerate() {
        if number % (PART / CHUNK) == PART / CHUNK - 1 && team.stopped() {
            return Vec::new();
        }
        let pairs = chunk.iter().map(|&x| key(x)).zip(number * CHUNK..);
        match limit {
            None => found.extend(pairs),
            // Test the chunk without a branch per element. A later element that equals the limit is
            // dropped.
            Some(limit) if !chunk.iter().fold(false, |any, &x| any | (key(x) < limit)) => continue,
            Some(limit) => found.extend(pairs.filter(|pair| pair.0 < limit)),
        }
        if found.len() >= room {
            found.select_nth_unstable(count - 1);
            found.truncate(count);
            limit = Some(found[count - 1].0);
        }
    }
    if found.len() > count {
        found.select_nth_unstable(count - 1);
        found.truncate(count);
    }
    sort_by_runs(&mut found, |part| part.sort_unstable(), |a, b| a < b, team);
    found
}

/// For each value, the number of elements of the ascending row that come before it.
pub(super) fn search<T: Ordered>(args: &mut Args<'_>) {
    let (row, values, right) = (args.operand::<T>(0), args.operand::<T>(1), args.flag);
    let team = args.team;
    let Some(out) = args.result::<i64>(0) else { return };
    for (i, (out, &value)) in out.iter_mut().zip(values).enumerate() {
        if is_stopped(i, team) {
            return;
        }
        let before = |x: &T| match x.order(value) {
            Ordering::Less => true,
            Ordering::Equal => right,
            Ordering::Greater => false,
        };
        *out = row.partition_point(before) as i64;
    }
}

/// Whether the team is to stop; asked at every [`PART`]-th element but the first.
#[inline(always)]
fn is_stopped(done: usize, team: &dyn Team) -> bool {
    done % PART == PART - 1 && team.stopped()
}

/// The positions of a row of `n` elements, ascending or descending. They end early if the team is
/// stopped.
fn positions(n: usize, reverse: bool, team: &dyn Team) -> impl Iterator<Item = usize> + '_ {
    let all = (0..n).take_while(move |&i| !is_stopped(i, team));
    all.map(move |i| if reverse { n - 1 - i } else { i })
}

fn extremum<T: Ordered>(args: &mut Args<'_>, loses: Ordering) {
    let (row, reverse, team) = (args.operand::<T>(0), args.flag, args.team);
    let mut best: Option<usize> = None;
    let next = |best: &mut Option<usize>, i: usize| {
        let keeps = |b: usize| {
            row[b].is_nan() && !row[i].is_nan() || !row[i].is_nan() && row[i].order(row[b]) == loses
        };
        let chosen = best.filter(|&b| keeps(b)).unwrap_or(i);
        *best = Some(chosen);
        chosen
    };
    if args.result::<T>(0).is_some() {
        for i in positions(row.len(), reverse, team) {
            let chosen = next(&mut best, i);
            if let Some(out) = args.result::<T>(0) {
                out[i] = row[chosen];
            }
        }
        best = None;
    }
    if let Some(out) = args.result::<i64>(1) {
        for i in positions(row.len(), reverse, team) {
            out[i] = next(&mut best, i) as i64;
        }
    }
}

/// Running maxima and their positions: the last position of equal maxima, and the last NaN once
/// there is a NaN.
pub(super) fn running_max<T: Ordered>(args: &mut Args<'_>) {
    extremum::<T>(args, Ordering::Less);
}

/// Running minima and their positions: the last position of equal minima, and the last NaN once
/// there is a NaN.
pub(super) fn running_min<T: Ordered>(args: &mut Args<'_>) {
    extremum::<T>(args, Ordering::Greater);
}

/// The type of sums and products. Integers wrap.
pub(super) trait Number: Element {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! numbers {
    ($($int:ty)*; $($ty:ty)*) => {
        $(impl Number for $int {
            fn plus(self, other: $int) -> $int {
                self.wrapping_add(other)
            }

            fn times(self, other: $int) -> $int {
                self.wrapping_mul(other)
            }
        })*
        $(impl Number for $ty {
            fn plus(self, other: $ty) -> $ty {
                self + other
            }

            fn times(self, other: $ty) -> $ty {
                self * other
            }
        })*
    };
}

numbers!(i64 u64; f32 f64 Complex32 Complex64);

/// Inclusive scan: each element is combined with all elements before it.
pub(super) fn running<T: Number>(args: &mut Args<'_>, combine: fn(T, T) -> T) {
    let (row, reverse, team) = (args.operand::<T>(0), args.flag, args.team);
    let Some(out) = args.result::<T>(0) else { return };
    let mut sum: Option<T> = None;
    for i in positions(row.len(), reverse, team) {
        let next = sum.map_or(row[i], |sum| combine(sum, row[i]));
        out[i] = next;
        sum = Some(next);
    }
}

/// A linear recurrence: the previous result, times a factor, plus a summand is result 0; the
/// previous result is result 1.
pub(super) fn recurrence<T: Number + Default>(args: &mut Args<'_>) {
    let (factors, summands, reverse) = (args.operand::<T>(0), args.operand::<T>(1), args.flag);
    let team = args.team;
    let (mut last, mut first) = (T::default(), true);
    for i in positions(factors.len(), reverse, team) {
        let before = std::mem::take(&mut last);
        // There is no previous result: skip the factor, which may be infinite.
        last = match std::mem::take(&mut first) {
            true => summands[i],
            false => summands[i].plus(factors[i].times(before)),
        };
        if let Some(out) = args.result::<T>(0) {
            out[i] = last;
        }
        if let Some(out) = args.result::<T>(1) {
            out[i] = before;
        }
    }
}

/// Real numbers whose exponentials are summed.
pub(super) trait Exponent: Element + Into<f64> {
    fn rounded(value: f64) -> Self;
}

impl Exponent for f32 {
    fn rounded(value: f64) -> f32 {
        value as f32
    }
}

impl Exponent for f64 {
    fn rounded(value: f64) -> f64 {
        value
    }
}

/// Logarithms of running sums of exponentials: the sum is relative to the largest exponent, in f64.
pub(super) fn log_sum_exp<T: Exponent>(args: &mut Args<'_>) {
    let (row, reverse, team) = (args.operand::<T>(0), args.flag, args.team);
    let Some(out) = args.result::<T>(0) else { return };
    let (mut largest, mut sum) = (f64::NEG_INFINITY, 0.0f64);
    for i in positions(row.len(), reverse, team) {
        let x: f64 = row[i].into();
        if x.is_nan() {
            (largest, sum) = (x, x);
        } else if x > largest {
            // If the old sum is zero, or the new exponent is infinite, the old sum does not count.
            let scale = if largest == f64::NEG_INFINITY { 0.0 } else { (largest - x).exp() };
            (largest, sum) = (x, sum * scale + 1.0);
        } else if x > f64::NEG_INFINITY && largest < f64::INFINITY {
            sum += (x - largest).exp();
        }
        let value = if sum == 0.0 { f64::NEG_INFINITY } else { largest + sum.ln() };
        out[i] = T::rounded(value);
    }
}

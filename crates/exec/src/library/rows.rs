//! Routines on rows: sorting, searching, scans.

use super::{Args, Element};
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

/// Sorts a row: result 0 is the elements, result 1 their positions. Stable.
pub(super) fn sort<T: Ordered>(args: &mut Args<'_>) {
    let (row, descending) = (args.operand::<T>(0), args.flag);
    let order = |a: T, b: T| if descending { b.order(a) } else { a.order(b) };
    if args.result::<i64>(1).is_none() {
        let Some(out) = args.result::<T>(0) else { return };
        out.copy_from_slice(row);
        match T::PLAIN {
            true => out.sort_unstable_by(|a, b| order(*a, *b)),
            false => out.sort_by(|a, b| order(*a, *b)),
        }
        return;
    }
    // The position decides between equal elements, so the sort need not be stable.
    let mut pairs: Vec<(T, i64)> = row.iter().copied().zip(0..).collect();
    pairs.sort_unstable_by(|a, b| order(a.0, b.0).then(a.1.cmp(&b.1)));
    if let Some(out) = args.result::<i64>(1) {
        out.iter_mut().zip(&pairs).for_each(|(out, pair)| *out = pair.1);
    }
    if let Some(out) = args.result::<T>(0) {
        out.iter_mut().zip(&pairs).for_each(|(out, pair)| *out = pair.0);
    }
}

/// The best elements of a row: result 0 is the elements, result 1 their positions. Stable.
pub(super) fn best<T: Ordered>(args: &mut Args<'_>) {
    let (row, largest) = (args.operand::<T>(0), args.flag);
    let count = args.result::<T>(0).map(|out| out.len());
    let Some(count) = count.or_else(|| args.result::<i64>(1).map(|out| out.len())) else { return };
    let chosen = match largest {
        true => first(row, count, |x| !x.key()),
        false => first(row, count, T::key),
    };
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
/// time is O(row + count log count) for any order of the elements.
fn first<T: Copy, K: Ord + Copy>(row: &[T], count: usize, key: impl Fn(T) -> K) -> Vec<(K, usize)> {
    /// The number of elements that are compared with the limit at once.
    const CHUNK: usize = 64;
    if count == 0 {
        return Vec::new();
    }
    let room = (2 * count).max(2 * CHUNK);
    let mut found: Vec<(K, usize)> = Vec::with_capacity((room + CHUNK).min(row.len()));
    let mut limit = None;
    for (number, chunk) in row.chunks(CHUNK).enumerate() {
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
    found.sort_unstable();
    found
}

/// For each value, the number of elements of the ascending row that come before it.
pub(super) fn search<T: Ordered>(args: &mut Args<'_>) {
    let (row, values, right) = (args.operand::<T>(0), args.operand::<T>(1), args.flag);
    let Some(out) = args.result::<i64>(0) else { return };
    for (out, &value) in out.iter_mut().zip(values) {
        let before = |x: &T| match x.order(value) {
            Ordering::Less => true,
            Ordering::Equal => right,
            Ordering::Greater => false,
        };
        *out = row.partition_point(before) as i64;
    }
}

/// The positions of a row of `n` elements, ascending or descending.
fn positions(n: usize, reverse: bool) -> impl Iterator<Item = usize> {
    (0..n).map(move |i| if reverse { n - 1 - i } else { i })
}

fn extremum<T: Ordered>(args: &mut Args<'_>, loses: Ordering) {
    let (row, reverse) = (args.operand::<T>(0), args.flag);
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
        for i in positions(row.len(), reverse) {
            let chosen = next(&mut best, i);
            if let Some(out) = args.result::<T>(0) {
                out[i] = row[chosen];
            }
        }
        best = None;
    }
    if let Some(out) = args.result::<i64>(1) {
        for i in positions(row.len(), reverse) {
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
    let (row, reverse) = (args.operand::<T>(0), args.flag);
    let Some(out) = args.result::<T>(0) else { return };
    let mut sum: Option<T> = None;
    for i in positions(row.len(), reverse) {
        let next = sum.map_or(row[i], |sum| combine(sum, row[i]));
        out[i] = next;
        sum = Some(next);
    }
}

/// A linear recurrence: the previous result, times a factor, plus a summand is result 0; the
/// previous result is result 1.
pub(super) fn recurrence<T: Number + Default>(args: &mut Args<'_>) {
    let (factors, summands, reverse) = (args.operand::<T>(0), args.operand::<T>(1), args.flag);
    let (mut last, mut first) = (T::default(), true);
    for i in positions(factors.len(), reverse) {
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
    let (row, reverse) = (args.operand::<T>(0), args.flag);
    let Some(out) = args.result::<T>(0) else { return };
    let (mut largest, mut sum) = (f64::NEG_INFINITY, 0.0f64);
    for i in positions(row.len(), reverse) {
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

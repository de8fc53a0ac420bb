//! Scans of rows.

use super::order::Ordered;
use super::totals::Number;
use super::{Args, Element, PART};
use girih_linalg::Team;

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

/// Running bests by a key, the last of equal ones: elements and positions.
fn extremum<T: Ordered>(args: &mut Args<'_>, key: impl Fn(T) -> T::Key) {
    let (row, reverse, team) = (args.operand::<T>(0), args.flag, args.team);
    match args.two_results::<T, i64>() {
        (Some(values), Some(places)) => running(row, &key, (reverse, team), |i, x, at| {
            (values[i], places[i]) = (x, at as i64);
        }),
        (Some(values), None) => running(row, &key, (reverse, team), |i, x, _| values[i] = x),
        (None, Some(places)) => {
            running(row, &key, (reverse, team), |i, _, at| places[i] = at as i64)
        }
        (None, None) => {}
    }
}

/// Calls `write` at each position with the best element so far and its position. A step has no branch
/// that depends on the elements.
#[inline(always)]
fn running<T: Ordered>(
    row: &[T],
    key: &impl Fn(T) -> T::Key,
    (reverse, team): (bool, &dyn Team),
    mut write: impl FnMut(usize, T, usize),
) {
    let start = if reverse { row.len().saturating_sub(1) } else { 0 };
    let Some(&first) = row.get(start) else { return };
    let (mut best, mut value, mut chosen) = (key(first), first, start);
    for i in positions(row.len(), reverse, team) {
        let (x, next) = (row[i], key(row[i]));
        let wins = next >= best;
        best = if wins { next } else { best };
        value = if wins { x } else { value };
        chosen = if wins { i } else { chosen };
        write(i, value, chosen);
    }
}

/// Running maxima and their positions: the last position of equal maxima, and the last NaN once
/// there is a NaN.
pub(super) fn running_max<T: Ordered>(args: &mut Args<'_>) {
    extremum::<T>(args, T::key);
}

/// Running minima and their positions: the last position of equal minima, and the last NaN once
/// there is a NaN.
pub(super) fn running_min<T: Ordered>(args: &mut Args<'_>) {
    // NaN is last in both orders.
    let nan = T::NAN.key();
    extremum::<T>(args, move |x| if x.is_nan() { nan } else { !x.key() });
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

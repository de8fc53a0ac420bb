//! Sorting of rows, and the best elements of rows.

use super::order::Ordered;
use super::radix::{Radix, next_run};
use super::{Args, PART};
use girih_linalg::Team;
use std::sync::{Mutex, PoisonError};

/// Sorts a row: result 0 is the elements, result 1 their positions. Stable.
pub(super) fn sort<T: Ordered>(args: &mut Args<'_>) {
    let (row, falls, team) = (args.operand::<T>(0), args.flag, args.team);
    let (elements, positions) = args.two_results::<T, i64>();
    if row.len() <= COMPARED {
        return by_comparison(row, falls, elements, positions);
    }
    let survey = Survey::of(row, falls, team);
    let Some(positions) = positions else {
        return match elements {
            Some(out) if survey.in_order => out.copy_from_slice(row),
            Some(out) => by_value(row, falls, &survey, out, team),
            None => (),
        };
    };
    if survey.in_order {
        (0..).zip(&mut *positions).for_each(|(at, position)| *position = at);
    } else {
        by_position(row, falls, survey.varying, positions, team);
    }
    if let Some(out) = elements.filter(|_| !row_is_stopped(team, row.len())) {
        out.iter_mut().zip(positions).for_each(|(out, at)| *out = row[*at as usize]);
    }
}

/// The greatest length of a row that is sorted by comparisons.
const COMPARED: usize = 256;

/// Sorts a short row.
fn by_comparison<T: Ordered>(
    row: &[T],
    falls: bool,
    elements: Option<&mut [T]>,
    positions: Option<&mut [i64]>,
) {
    let order = |a: T, b: T| if falls { b.order(a) } else { a.order(b) };
    let Some(positions) = positions else {
        if let Some(out) = elements {
            out.copy_from_slice(row);
            out.sort_by(|&a, &b| order(a, b));
        }
        return;
    };
    (0..).zip(&mut *positions).for_each(|(at, position)| *position = at);
    positions.sort_by(|&a, &b| order(row[a as usize], row[b as usize]));
    if let Some(out) = elements {
        out.iter_mut().zip(positions).for_each(|(out, at)| *out = row[*at as usize]);
    }
}

/// The properties of a row that decide how the row is sorted.
struct Survey {
    /// The bits in which ranks differ.
    varying: u64,
    /// Whether the elements are in order.
    in_order: bool,
    /// Whether ranks tell all elements.
    told: bool,
}

impl Survey {
    fn of<T: Ordered>(row: &[T], falls: bool, team: &dyn Team) -> Survey {
        let mut survey = Survey { varying: 0, in_order: true, told: true };
        let Some(first) = row.first().map(|x| x.rank()) else { return survey };
        let part = |part: &[T]| {
            let differing = |bits, x: &T| bits | (x.rank() ^ first);
            let varying = part.iter().fold(T::Rank::default(), differing);
            (varying.into(), part.iter().fold(true, |told, x| told & x.is_told()))
        };
        let parts: Vec<_> = row.chunks(PART).map(|_| Mutex::new((0, true))).collect();
        team.share(parts.len(), row.len() as u64 / 2, &|number| {
            if row.len() < PART || !team.stopped() {
                let start = number * PART;
                let found = part(&row[start..(start + PART).min(row.len())]);
                *parts[number].lock().unwrap_or_else(PoisonError::into_inner) = found;
            }
        });
        for part in parts {
            let (varying, told) = part.into_inner().unwrap_or_else(PoisonError::into_inner);
            survey.varying |= varying;
            survey.told &= told;
        }
        let rises = |pair: &[T]| match falls {
            true => pair[0].rank() >= pair[1].rank(),
            false => pair[0].rank() <= pair[1].rank(),
        };
        let mut starts = (0..row.len()).step_by(PART);
        survey.in_order = starts.all(|start| {
            let end = (start + PART + 1).min(row.len());
            !row_is_stopped(team, row.len()) && row[start..end].windows(2).all(rises)
        });
        survey
    }
}

/// The elements in order.
fn by_value<T: Ordered>(row: &[T], falls: bool, survey: &Survey, out: &mut [T], team: &dyn Team) {
    let zero = T::Rank::default();
    let flip = if falls { !zero } else { zero };
    Radix { key: T::Rank::into, team }.sort_row(
        row,
        |_, x| x.rank() ^ flip,
        out,
        survey.varying,
        |ranks, _, out: &mut [T]| {
            out.iter_mut().zip(ranks).for_each(|(out, &mut rank)| *out = T::of_rank(rank ^ flip));
        },
    );
    if survey.told || row_is_stopped(team, row.len()) {
        return;
    }
    // The zeros and the NaNs of the row, in their order, take the places of those of the ranks.
    for group in [T::default().rank(), T::NAN.rank()] {
        let before = |x: &T| if falls { x.rank() > group } else { x.rank() < group };
        let start = out.partition_point(before);
        let members = row.iter().filter(|x| x.rank() == group);
        out[start..].iter_mut().zip(members).for_each(|(out, &x)| *out = x);
    }
}

/// The positions of the elements in order; their ranks differ in the bits `varying`.
fn by_position<T: Ordered>(row: &[T], falls: bool, varying: u64, out: &mut [i64], team: &dyn Team) {
    let bits = usize::BITS - row.len().leading_zeros();
    let flip = if falls { u64::MAX } else { 0 };
    let order = Order { row, flip, bits, team };
    let low = (u64::BITS - varying.leading_zeros()).saturating_sub(order.room());
    order.radix().sort_row(
        row,
        |at, x| order.item(at, x, low),
        out,
        varying >> low,
        |items, room, out| {
            order.finish(items, room, low);
            out.iter_mut().zip(items).for_each(|(out, &mut item)| *out = order.at(item) as i64);
        },
    );
}

/// The order of a row's elements. What is sorted is integers: the last bits are an element's position,
/// and the bits before them are from its rank. If there is no room for the whole rank, elements whose
/// first bits agree are sorted again by the next bits.
struct Order<'a, T> {
    row: &'a [T],
    /// The bits of ranks that are inverted.
    flip: u64,
    /// The number of bits of a position.
    bits: u32,
    team: &'a dyn Team,
}

impl<'a, T: Ordered> Order<'a, T> {
    /// The number of bits beside a position.
    fn room(&self) -> u32 {
        u64::BITS - self.bits
    }

    fn radix(&self) -> Radix<'a, impl Fn(u64) -> u64 + Sync + use<T>> {
        let bits = self.bits;
        Radix { key: move |item| item >> bits, team: self.team }
    }

    /// An element's position, and the bits of its rank from `low` on. Where there are more bits than
    /// room, the first ones, which are the same for all items, are lost.
    #[inline(always)]
    fn item(&self, at: usize, x: T, low: u32) -> u64 {
        let rank: u64 = x.rank().into();
        ((rank ^ self.flip) >> low) << self.bits | at as u64
    }

    #[inline(always)]
    fn at(&self, item: u64) -> usize {
        (item & ((1 << self.bits) - 1)) as usize
    }

    /// Sorts items, which are sorted but for the `low` last bits of ranks.
    fn finish(&self, items: &mut [u64], room: &mut [u64], low: u32) {
        if low == 0 {
            return;
        }
        let (mut end, next) = (0, low.saturating_sub(self.room()));
        while let Some(run) = next_run(items, end, |item| item >> self.bits) {
            end = run.end;
            if row_is_stopped(self.team, run.len()) {
                return;
            }
            let (items, room) = (&mut items[run.clone()], &mut room[run]);
            for item in &mut *items {
                let at = self.at(*item);
                *item = self.item(at, self.row[at], next);
            }
            self.radix().sort(items, room);
            self.finish(items, room, next);
        }
    }
}

/// Whether the team is to stop; asked only by rows of several parts.
fn row_is_stopped(team: &dyn Team, len: usize) -> bool {
    len >= PART && team.stopped()
}

/// The best elements of a row: result 0 is the elements, result 1 their positions. Stable.
pub(super) fn best<T: Ordered>(args: &mut Args<'_>) {
    let (row, largest, team) = (args.operand::<T>(0), args.flag, args.team);
    let (elements, positions) = args.two_results::<T, i64>();
    let count = elements.as_ref().map(|out| out.len());
    let Some(count) = count.or(positions.as_ref().map(|out| out.len())) else { return };
    let chosen = match largest {
        true => first(row, count, |x| !x.key(), team),
        false => first(row, count, T::key, team),
    };
    if chosen.len() < count {
        return;
    }
    let flip = if largest { u64::MAX } else { 0 };
    let chosen = in_order(chosen, |at| row[at].rank().into() ^ flip, team);
    if let Some(out) = positions {
        out.iter_mut().zip(&chosen).for_each(|(out, &at)| *out = at as i64);
    }
    if let Some(out) = elements {
        out.iter_mut().zip(&chosen).for_each(|(out, &at)| *out = row[at]);
    }
}

/// The positions of chosen keys, in the order of the keys, and of equal keys in their own.
fn in_order<K: Ord + Copy>(
    mut chosen: Vec<(K, usize)>,
    rank: impl Fn(usize) -> u64 + Sync,
    team: &dyn Team,
) -> Vec<usize> {
    let long = chosen.len() >= PART;
    if !long {
        chosen.sort_unstable();
    }
    let mut positions: Vec<usize> = chosen.into_iter().map(|pair| pair.1).collect();
    if long {
        let mut spare = vec![0; positions.len()];
        Radix { key: |at| at as u64, team }.sort(&mut positions, &mut spare);
        Radix { key: rank, team }.sort(&mut positions, &mut spare);
    }
    positions
}

/// The `count` smallest keys in any order, with their positions, which decide between equal keys.
///
/// Candidates are collected until there are twice as many as requested. Then all but the best are
/// dropped, and the worst of these is a limit that most of the later elements do not pass. So the
/// time is O(row + count) for any order of the elements. If the team was stopped, there are no
/// results.
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
    found
}

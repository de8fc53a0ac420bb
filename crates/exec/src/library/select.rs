//! The elements that sorting would put at given places, without sorting.
//!
//! A long row is divided into classes by the leading bits of ranks. Threads count the members of
//! classes, and only the classes that have a wanted place are looked at again. The rank at a place
//! does not depend on how the row was divided.

use super::order::Ordered;
use super::{Args, PART};
use girih_linalg::Team;
use std::sync::{Mutex, PoisonError};

/// The elements of a row at places of its ascending order, and their positions. Of equal elements the
/// first comes first; places beyond the row count as its ends.
pub(super) fn select<T: Ordered>(args: &mut Args<'_>) {
    let (row, places, team) = (args.operand::<T>(0), args.operand::<i64>(1), args.team);
    let (mut elements, mut positions) = args.two_results::<T, i64>();
    let Some(last) = row.len().checked_sub(1) else {
        // No place has an element.
        elements.into_iter().for_each(|out| out.fill(T::default()));
        return positions.into_iter().for_each(|out| out.fill(0));
    };
    let place = |place: i64| place.clamp(0, last as i64) as usize;
    let mut wanted: Vec<usize> = places.iter().map(|&at| place(at)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let Some(found) = ranks_at(row, &wanted, team) else { return };
    let members = Members::new(row, &found, positions.is_some());
    for (i, &at) in places.iter().enumerate() {
        let at = place(at);
        let Ok(number) = wanted.binary_search(&at) else { continue };
        let position = members.position(number, at);
        if let Some(out) = &mut positions {
            out[i] = position.unwrap_or_default() as i64;
        }
        if let Some(out) = &mut elements {
            out[i] = position.map_or_else(|| T::of_rank(found[number]), |at| row[at]);
        }
    }
}

/// The members of a row that have a rank that was found, where rank and place do not tell which
/// member is meant.
struct Members {
    /// For each rank, the number of smaller elements and the positions of its members.
    all: Vec<Option<(usize, Vec<usize>)>>,
}

impl Members {
    /// The members of all ranks, if positions are needed; otherwise those of ranks that differing
    /// elements have: zeros of both signs, and NaN.
    fn new<T: Ordered>(row: &[T], found: &[T::Rank], needed: bool) -> Members {
        let mixed = [T::default().rank(), T::NAN.rank()];
        let told = needed || row.iter().fold(true, |told, x| told & x.is_told());
        let members = |(number, rank): (usize, &T::Rank)| {
            if !needed && (told || !mixed.contains(rank)) {
                return None;
            }
            // Places that follow each other often have one rank.
            let same = |before: &T::Rank| before == rank;
            if number > 0 && same(&found[number - 1]) {
                return None;
            }
            let less = row.iter().map(|x| (x.rank() < *rank) as usize).sum();
            let equal = |x: &(usize, &T)| x.1.rank() == *rank;
            Some((less, row.iter().enumerate().filter(equal).map(|x| x.0).collect()))
        };
        Members { all: found.iter().enumerate().map(members).collect() }
    }

    /// The position of the element at a place, whose rank is the `number`-th.
    fn position(&self, number: usize, place: usize) -> Option<usize> {
        let (less, members) = self.all[..=number].iter().rev().find_map(Option::as_ref)?;
        members.get(place.checked_sub(*less)?).copied()
    }
}

/// The least number of elements that are divided into classes.
const LONG: usize = 1 << 15;
/// The number of classes.
const CLASSES: usize = 1 << 12;

/// The ranks at places, which ascend; `None` if the team was stopped.
fn ranks_at<T: Ordered>(row: &[T], wanted: &[usize], team: &dyn Team) -> Option<Vec<T::Rank>> {
    let mut found = Vec::with_capacity(wanted.len());
    if row.len() < LONG {
        let mut ranks: Vec<T::Rank> = row.iter().map(|x| x.rank()).collect();
        narrow(&mut ranks, 0, wanted, &mut found);
        return Some(found);
    }
    let ends = of_parts(row, team, |part| {
        part.iter().fold((!T::Rank::default(), T::Rank::default()), |(least, most), x| {
            (least.min(x.rank()), most.max(x.rank()))
        })
    })?;
    let least: u64 = ends.iter().map(|end| end.0).min().unwrap_or_default().into();
    let most: u64 = ends.iter().map(|end| end.1).max().unwrap_or_default().into();
    let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(CLASSES.ilog2());
    let class = |x: &T| ((Into::<u64>::into(x.rank()) - least) >> shift) as usize % CLASSES;
    let counts = of_parts(row, team, |part| {
        let mut counts = vec![0u32; CLASSES];
        part.iter().for_each(|x| counts[class(x)] += 1);
        counts
    })?;
    let count = |class: usize| counts.iter().map(|part| part[class] as usize).sum::<usize>();
    let (mut start, mut rest) = (0, wanted);
    for number in 0..CLASSES {
        let end = start + count(number);
        let (here, others) = rest.split_at(rest.partition_point(|&place| place < end));
        rest = others;
        if !here.is_empty() {
            let members = of_parts(row, team, |part| {
                let members = part.iter().filter(|x| class(x) == number);
                members.map(|x| x.rank()).collect::<Vec<_>>()
            })?;
            narrow(&mut members.concat(), start, here, &mut found);
        }
        start = end;
    }
    Some(found)
}

/// Appends the ranks at places, which ascend; the ranks given are those from place `start` on.
fn narrow<R: Ord + Copy>(ranks: &mut [R], start: usize, wanted: &[usize], found: &mut Vec<R>) {
    let middle = wanted.len() / 2;
    let Some(&place) = wanted.get(middle) else { return };
    let (before, &mut rank, after) = ranks.select_nth_unstable(place - start);
    narrow(before, start, &wanted[..middle], found);
    found.push(rank);
    narrow(after, place + 1, &wanted[middle + 1..], found);
}

/// The result of `work` for each part of a row; `None` if the team was stopped.
fn of_parts<T: Ordered, R: Send>(
    row: &[T],
    team: &dyn Team,
    work: impl Fn(&[T]) -> R + Sync,
) -> Option<Vec<R>> {
    let parts: Vec<_> = row.chunks(PART).map(|part| (part, Mutex::new(None))).collect();
    team.share(parts.len(), row.len() as u64, &|number| {
        let (part, place) = &parts[number];
        if !team.stopped() {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(work(part));
        }
    });
    let found = parts.into_iter().map(|part| part.1);
    found.map(|found| found.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

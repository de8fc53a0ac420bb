//! Stable sorting by the digits of keys.
//!
//! A long row is divided into buckets by the leading bits of its keys. The threads of the team share
//! the parts of the row, and then the buckets, each of which fits a cache and is sorted by one thread:
//! by a few digits, the last one first, which put almost every item in its place. Items that agree in
//! these digits are sorted among each other. A stable sort has one result, so that it depends on
//! neither parts nor threads.

use super::{PART, take};
use girih_linalg::Team;
use std::ops::Range;
use std::slice::IterMut;
use std::sync::{Mutex, PoisonError};

/// An item that is sorted, such as an element, or an element with its position.
pub(super) trait Item: Copy + Default + Send + Sync {}
impl<T: Copy + Default + Send + Sync> Item for T {}

/// The greatest number of items that are sorted by insertion.
const SHORT: usize = 24;
/// The least number of items that are divided into buckets.
const LONG: usize = 1 << 15;
/// The number of leading bits that choose the bucket of an item.
const LEADING: u32 = 12;
const CLASSES: usize = 1 << LEADING;
/// The number of buckets, at most.
const BUCKETS: usize = 256;
/// The number of bits of a digit, at most.
const DIGIT: u32 = 9;
/// The number of digits, at most.
const DIGITS: u32 = 3;
/// The least number of items that are sorted by all digits, even if fewer tell most of them apart.
const MANY: usize = 1 << 10;

/// A sort of items by keys, which are unsigned integers.
pub(super) struct Radix<'a, K> {
    pub key: K,
    pub team: &'a dyn Team,
}

impl<K> Radix<'_, K> {
    /// Sorts the items of a row's elements by their keys, which differ in the bits `varying`. Each
    /// part of the sorted items is given to `finish` with spare room and its part of the result; items
    /// whose keys agree in the first [`LEADING`] of those bits are in one part. If the team is
    /// stopped, the result is unspecified.
    pub fn sort_row<T: Item, I: Item, O: Send>(
        &self,
        row: &[T],
        item: impl Fn(usize, T) -> I + Sync,
        out: &mut [O],
        varying: u64,
        finish: impl Fn(&mut [I], &mut [I], &mut [O]) + Sync,
    ) where
        K: Fn(I) -> u64 + Sync,
    {
        if row.len() < LONG {
            let mut items: Vec<I> = row.iter().enumerate().map(|(i, &x)| item(i, x)).collect();
            let mut room = vec![I::default(); row.len()];
            if items.len() <= SHORT {
                self.insert(&mut items);
            } else {
                self.by_digits(&mut items, &mut room, varying);
            }
            return finish(&mut items, &mut room, out);
        }
        let mut items = vec![I::default(); row.len()];
        let ends = self.distribute(row, &item, &mut items, varying);
        self.each_bucket(&mut items, out, &ends, |items, out| {
            let mut room = vec![I::default(); items.len()];
            self.sort(items, &mut room);
            finish(items, &mut room, out);
        });
    }

    /// Sorts the items; `room` has their length.
    pub fn sort<I: Item>(&self, items: &mut [I], room: &mut [I])
    where
        K: Fn(I) -> u64 + Sync,
    {
        if items.len() <= SHORT {
            return self.insert(items);
        }
        let first = (self.key)(items[0]);
        let differing = |bits, &item: &I| bits | ((self.key)(item) ^ first);
        let varying = items.iter().fold(0, differing);
        if varying == 0 || items.len() >= PART && self.team.stopped() {
            return;
        }
        if items.len() < LONG {
            return self.by_digits(items, room, varying);
        }
        let ends = self.distribute(items, &|_, item| item, room, varying);
        self.each_bucket(room, items, &ends, |from, to| {
            self.sort(from, to);
            to.copy_from_slice(from);
        });
    }

    fn insert<I: Item>(&self, items: &mut [I])
    where
        K: Fn(I) -> u64,
    {
        for i in 1..items.len() {
            let (item, mut at) = (items[i], i);
            let key = (self.key)(item);
            while at > 0 && (self.key)(items[at - 1]) > key {
                items[at] = items[at - 1];
                at -= 1;
            }
            items[at] = item;
        }
    }

    /// Sorts fewer than [`LONG`] items, whose keys differ in the bits `varying`.
    fn by_digits<I: Item>(&self, items: &mut [I], room: &mut [I], varying: u64)
    where
        K: Fn(I) -> u64 + Sync,
    {
        let high = u64::BITS - varying.leading_zeros();
        let all = high <= DIGITS * DIGIT && items.len() >= MANY;
        // With eight times as many values as items, most items are alone.
        let bits = if all { high } else { high.min(items.len().ilog2() + 3) };
        let digits = bits.div_ceil(DIGIT).max(1);
        let width = bits.div_ceil(digits);
        let low = high.saturating_sub(digits * width);
        let mask = (1usize << width) - 1;
        let mut counts = [[0u32; 1 << DIGIT]; DIGITS as usize];
        let digit = |item: I, number: u32| {
            ((self.key)(item) >> (low + number * width)) as usize & mask & ((1 << DIGIT) - 1)
        };
        for &item in &*items {
            for number in 0..digits {
                counts[number as usize][digit(item, number)] += 1;
            }
        }
        let (mut from, mut to) = (&mut *items, &mut *room);
        for number in 0..digits {
            let counts = &mut counts[number as usize];
            let mut sum = 0;
            for count in &mut counts[..=mask] {
                (*count, sum) = (sum, sum + *count);
            }
            for &item in &*from {
                let place = &mut counts[digit(item, number)];
                to[*place as usize] = item;
                *place += 1;
            }
            (from, to) = (to, from);
        }
        if digits % 2 == 1 {
            to.copy_from_slice(from);
        }
        if low > 0 {
            self.sort_runs(items, room, low);
        }
    }

    /// Sorts each run of items whose keys agree but for their `low` last bits.
    fn sort_runs<I: Item>(&self, items: &mut [I], room: &mut [I], low: u32)
    where
        K: Fn(I) -> u64 + Sync,
    {
        let (mut end, prefix) = (0, |item: I| (self.key)(item) >> low);
        while let Some(run) = next_run(items, end, prefix) {
            end = run.end;
            self.sort(&mut items[run.clone()], &mut room[run]);
        }
    }

    /// Writes the items of a row, whose keys differ in the bits `varying`, bucket by bucket. Returns
    /// the ends of the buckets. A bucket has the items of one or several classes, which are the
    /// leading bits of keys.
    fn distribute<T: Item, I: Item>(
        &self,
        row: &[T],
        item: &(impl Fn(usize, T) -> I + Sync),
        out: &mut [I],
        varying: u64,
    ) -> Vec<usize>
    where
        K: Fn(I) -> u64 + Sync,
    {
        let low = (u64::BITS - varying.leading_zeros()).saturating_sub(LEADING);
        let class = |item: I| ((self.key)(item) >> low) as usize % CLASSES;
        let parts = (row.len() >> 16).clamp(2, 16).max(row.len() >> 31);
        let size = row.len().div_ceil(parts);
        // Calls `work` with each item of a part.
        let each = |part: usize, work: &mut dyn FnMut(usize, &[T])| {
            let start = (part * size).min(row.len());
            let part = &row[start..(start + size).min(row.len())];
            for (chunk, i) in part.chunks(PART).zip((start..).step_by(PART)) {
                if self.team.stopped() {
                    return;
                }
                work(i, chunk);
            }
        };
        let counts: Vec<_> = (0..parts).map(|_| Mutex::new(vec![0u32; CLASSES])).collect();
        self.team.share(parts, row.len() as u64, &|number| {
            let mut held = counts[number].lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(counts) = <&mut [u32; CLASSES]>::try_from(&mut held[..]) else { return };
            each(number, &mut |start, chunk| {
                for (i, &x) in chunk.iter().enumerate() {
                    counts[class(item(start + i, x))] += 1;
                }
            });
        });
        let counts =
            counts.into_iter().map(|c| c.into_inner().unwrap_or_else(PoisonError::into_inner));
        let (map, places, ends) = divide(&counts.collect::<Vec<_>>(), out);
        self.team.share(parts, 2 * row.len() as u64, &|number| {
            let Some(mut places) = take(&places[number]) else { return };
            each(number, &mut |start, chunk| {
                for (i, &x) in chunk.iter().enumerate() {
                    let item = item(start + i, x);
                    if let Some(place) = places[map[class(item)] as usize].next() {
                        *place = item;
                    }
                }
            });
        });
        ends
    }

    /// Calls `work` with each bucket of both rows.
    fn each_bucket<I: Item, O: Send>(
        &self,
        mut from: &mut [I],
        mut to: &mut [O],
        ends: &[usize],
        work: impl Fn(&mut [I], &mut [O]) + Sync,
    ) {
        let (mut start, mut buckets) = (0, Vec::with_capacity(ends.len()));
        let cost_ns = 5 * from.len() as u64;
        for &end in ends {
            let (first, rest) = from.split_at_mut(end - start);
            let (second, others) = to.split_at_mut(end - start);
            buckets.push(Mutex::new(Some((first, second))));
            (from, to, start) = (rest, others, end);
        }
        self.team.share(buckets.len(), cost_ns, &|number| {
            if let Some((from, to)) = take(&buckets[number]).filter(|_| !self.team.stopped()) {
                work(from, to);
            }
        });
    }
}

/// The bucket of each class.
type Map = Box<[u8; CLASSES]>;
/// The places of one part's items in each bucket.
type Places<'a, I> = Box<[IterMut<'a, I>; BUCKETS]>;

/// The data of one part of a row, until the thread that works on the part takes the data.
type Shared<T> = Mutex<Option<T>>;

/// Divides a row into buckets of about the same size, and the buckets among the parts, by the numbers
/// of items of each class in each part. Returns the ends of the buckets, too.
fn divide<'a, I: Item>(
    counts: &[Vec<u32>],
    mut out: &'a mut [I],
) -> (Map, Vec<Shared<Places<'a, I>>>, Vec<usize>) {
    // A class of that size has a bucket of its own, so that there are at most twice as many buckets
    // as such sizes fit, and one more.
    let size = out.len().div_ceil(BUCKETS / 2 - 1);
    let (mut map, mut buckets) = (Box::new([0; CLASSES]), vec![vec![0; counts.len()]]);
    let mut filled = 0;
    for class in 0..CLASSES {
        let total = counts.iter().map(|part| part[class] as usize).sum::<usize>();
        if filled >= size || filled > 0 && total >= size {
            buckets.push(vec![0; counts.len()]);
            filled = 0;
        }
        map[class] = (buckets.len() - 1) as u8;
        filled += total;
        let bucket = buckets.last_mut().into_iter().flatten();
        bucket.zip(counts).for_each(|(bucket, part)| *bucket += part[class] as usize);
    }
    let empty = || Box::new(std::array::from_fn(|_| IterMut::default()));
    let mut places: Vec<Places<'a, I>> = counts.iter().map(|_| empty()).collect();
    let (mut ends, mut end) = (Vec::with_capacity(buckets.len()), 0);
    for (number, bucket) in buckets.iter().enumerate() {
        for (part, &count) in bucket.iter().enumerate() {
            let (first, rest) = out.split_at_mut(count);
            places[part][number] = first.iter_mut();
            (out, end) = (rest, end + count);
        }
        ends.push(end);
    }
    (map, places.into_iter().map(|p| Mutex::new(Some(p))).collect(), ends)
}

/// The first run of at least two items with the same key, from `start` on.
pub(super) fn next_run<I: Copy>(
    items: &[I],
    start: usize,
    key: impl Fn(I) -> u64,
) -> Option<Range<usize>> {
    let items = items.get(start..)?;
    let mut last = key(*items.first()?);
    let follows = |&item: &I| std::mem::replace(&mut last, key(item)) == last;
    let first = items[1..].iter().position(follows)?;
    let same = |&&item: &&I| key(item) == key(items[first]);
    let more = items[first + 1..].iter().take_while(same).count();
    Some(start + first..start + first + 1 + more)
}

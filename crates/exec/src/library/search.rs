//! Searches in ascending rows.

use super::order::Ordered;
use super::{Args, take};
use girih_linalg::Team;
use std::hint::select_unpredictable;
use std::sync::Mutex;

/// The number of values that are searched at once, so that none waits for the memory of another.
const GROUP: usize = 8;
/// The number of values that a thread searches.
const SHARE: usize = 1 << 13;

/// For each value, the number of elements of the ascending row that come before it.
pub(super) fn search<T: Ordered>(args: &mut Args<'_>) {
    let (row, values, right) = (args.operand::<T>(0), args.operand::<T>(1), args.flag);
    let team = args.team;
    let Some(out) = args.result::<i64>(0) else { return };
    // Many searches read most elements several times.
    if values.len() < row.len() / 4 {
        let search = Search { at: |i: usize| row[i].key(), len: row.len(), team };
        return search.all(values, right, out);
    }
    let mut keys = Vec::with_capacity(row.len());
    for part in row.chunks(SHARE) {
        if row.len() > SHARE && team.stopped() {
            return;
        }
        keys.extend(part.iter().map(|x| x.key()));
    }
    Search { at: |i: usize| keys[i], len: row.len(), team }.all(values, right, out);
}

/// A search in a row of keys.
struct Search<'a, F> {
    at: F,
    len: usize,
    team: &'a dyn Team,
}

impl<F> Search<'_, F> {
    fn all<T: Ordered>(&self, values: &[T], right: bool, out: &mut [i64])
    where
        F: Fn(usize) -> T::Key + Sync,
    {
        let steps = (usize::BITS - self.len.leading_zeros()) as u64;
        let cost_ns = values.len() as u64 * (2 + steps) / 2;
        let parts: Vec<_> = out.chunks_mut(SHARE).map(|part| Mutex::new(Some(part))).collect();
        self.team.share(parts.len(), cost_ns, &|number| {
            let out = take(&parts[number]);
            let Some(out) = out.filter(|_| parts.len() == 1 || !self.team.stopped()) else {
                return;
            };
            let values = &values[number * SHARE..];
            for (out, values) in out.chunks_mut(GROUP).zip(values.chunks(GROUP)) {
                // In the last group, the last value is searched several times.
                let last = values[values.len() - 1];
                let keys = std::array::from_fn(|i| values.get(i).copied().unwrap_or(last).key());
                let found = match right {
                    true => self.group(keys, |x, key| x <= key),
                    false => self.group(keys, |x, key| x < key),
                };
                out.iter_mut().zip(found).for_each(|(out, found)| *out = found as i64);
            }
        });
    }

    /// For each key, the number of keys of the row that are before it. Each step halves the rest of
    /// the row for all keys, without branches.
    #[inline(always)]
    fn group<K: Copy>(&self, keys: [K; GROUP], before: impl Fn(K, K) -> bool) -> [usize; GROUP]
    where
        F: Fn(usize) -> K,
    {
        let (mut found, mut rest) = ([0; GROUP], self.len);
        while rest > 0 {
            let half = rest.div_ceil(2);
            for (found, &key) in found.iter_mut().zip(&keys) {
                let next = *found + half;
                let is_before = before((self.at)(next - 1), key);
                *found = select_unpredictable(is_before, next, *found);
            }
            rest -= half;
        }
        found
    }
}

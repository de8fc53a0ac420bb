//! The calls of a function that were used last, for functions that keep a program per kind of call.

use girih_sync::{Mutex, MutexGuard};
use std::sync::{Arc, PoisonError};

/// The maximum number of entries; the least recently used one is evicted.
const MOST: usize = 16;

/// Entries in the order of their last use, shared by threads. No lock is held while code of users
/// runs: when entries are compared, and when they are dropped.
pub struct RecentlyUsed<T> {
    /// The most recently used entry is the first.
    entries: Mutex<Vec<Arc<T>>>,
}

impl<T> Default for RecentlyUsed<T> {
    fn default() -> RecentlyUsed<T> {
        RecentlyUsed { entries: Mutex::default() }
    }
}

impl<T> RecentlyUsed<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most recently used entry for which `serves` returns a value, with the value.
    pub fn find<R>(&self, mut serves: impl FnMut(&T) -> Option<R>) -> Option<(Arc<T>, R)> {
        let mut at = 0;
        loop {
            let entry = self.lock().get(at)?.clone();
            if let Some(found) = serves(&entry) {
                if at > 0 {
                    let mut entries = self.lock();
                    if let Some(now) = entries.iter().position(|other| Arc::ptr_eq(other, &entry)) {
                        entries[..=now].rotate_right(1);
                    }
                }
                return Some((entry, found));
            }
            at += 1;
        }
    }

    /// Adds an entry.
    pub fn insert(&self, entry: Arc<T>) {
        let mut entries = self.lock();
        let evicted = (entries.len() >= MOST).then(|| entries.pop());
        entries.insert(0, entry);
        drop(entries);
        drop(evicted);
    }

    /// Drops the entries.
    pub fn clear(&self) {
        let entries = std::mem::take(&mut *self.lock());
        drop(entries);
    }

    /// Calls `visit` with the entries under the lock, if no thread holds it.
    ///
    /// Errors: the first error of `visit`.
    pub fn try_visit<E>(&self, visit: impl FnMut(&Arc<T>) -> Result<(), E>) -> Result<(), E> {
        match self.entries.try_lock() {
            Ok(entries) => entries.iter().try_for_each(visit),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted() {
        let entries = RecentlyUsed::default();
        let find = |wanted: usize| entries.find(|&entry| (entry == wanted).then_some(())).is_some();
        (0..MOST).for_each(|entry| entries.insert(Arc::new(entry)));
        assert!(find(0));
        entries.insert(Arc::new(MOST));
        assert!(find(0) && find(MOST) && !find(1));
        entries.clear();
        assert!(!find(0));
    }

    #[test]
    fn a_comparison_may_use_the_entries() {
        let entries = RecentlyUsed::default();
        entries.insert(Arc::new(1));
        let found = entries.find(|&entry| {
            entries.insert(Arc::new(2));
            (entry == 1).then_some(entry)
        });
        assert_eq!(found.map(|(_, entry)| entry), Some(1));
    }
}

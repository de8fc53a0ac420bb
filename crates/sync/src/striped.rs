//! Values that threads have copies of, so that threads which write often do not share a cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Number of copies. More threads than this share them.
const STRIPES: usize = 16;

thread_local! {
    /// The stripe of this thread; [`STRIPES`] before it is asked for.
    static STRIPE: Cell<usize> = const { Cell::new(STRIPES) };
}

/// Threads that have asked for a stripe so far.
static THREADS: AtomicUsize = AtomicUsize::new(0);

#[inline]
fn stripe() -> usize {
    let stripe = STRIPE.get();
    if stripe < STRIPES {
        return stripe;
    }
    let stripe = THREADS.fetch_add(1, Relaxed) % STRIPES;
    STRIPE.set(stripe);
    stripe
}

/// A copy of `T` for each thread, on cache lines of its own. Threads beyond the sixteenth share copies,
/// so `T` has to be safe to share.
#[derive(Debug, Default)]
pub struct Striped<T>([Line<T>; STRIPES]);

/// Two lines of 64 bytes, since processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

impl<T> Striped<T> {
    /// Copies that `make` makes.
    pub fn new(mut make: impl FnMut() -> T) -> Striped<T> {
        Striped(std::array::from_fn(|_| Line(make())))
    }

    /// The copy of this thread.
    #[inline]
    pub fn mine(&self) -> &T {
        &self.0[stripe()].0
    }

    /// All copies.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|line| &line.0)
    }
}

/// A count that many threads add to. Adding is quick, reading is not.
#[derive(Debug, Default)]
pub struct Counter(Striped<AtomicU64>);

impl Counter {
    /// Adds to the count.
    #[inline]
    pub fn add(&self, number: u64) {
        self.0.mine().fetch_add(number, Relaxed);
    }

    /// The sum of what was added so far, which may miss what other threads add meanwhile.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|copy| copy.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_threads_are_summed() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.get(), 4000 * STRIPES as u64);
    }

    #[test]
    fn a_thread_keeps_its_copy_and_neighbours_share_no_line() {
        let striped = Striped::new(|| 0u8);
        assert!(std::ptr::eq(striped.mine(), striped.mine()));
        let places: Vec<usize> =
            striped.iter().map(|copy| std::ptr::from_ref(copy).addr()).collect();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 128), "{places:?}");
    }
}

//! Values with a copy for each thread, so that frequent writers do not share a cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The number of copies. With more threads, threads share copies.
const STRIPES: usize = 16;

thread_local! {
    /// The stripe of this thread; [`STRIPES`] until it is assigned.
    static STRIPE: Cell<usize> = const { Cell::new(STRIPES) };
}

/// The number of threads with a stripe.
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

/// A copy of `T` for each thread, on separate cache lines. Threads beyond the sixteenth share
/// copies, so `T` must be thread-safe.
#[derive(Debug, Default)]
pub struct Striped<T>([Line<T>; STRIPES]);

/// Aligned to two 64-byte lines, since processors prefetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

impl<T> Striped<T> {
    /// Creates each copy by `make`.
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

/// A counter that many threads increment. Incrementing is fast, reading is slow.
#[derive(Debug, Default)]
pub struct Counter(Striped<AtomicU64>);

impl Counter {
    /// A counter at 0.
    pub const fn new() -> Counter {
        Counter(Striped([const { Line(AtomicU64::new(0)) }; STRIPES]))
    }

    /// Adds to the count, modulo 2^64.
    #[inline]
    pub fn add(&self, number: u64) {
        self.0.mine().fetch_add(number, Relaxed);
    }

    /// The current sum, which may miss concurrent additions of other threads.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|copy| copy.load(Relaxed)).fold(0, u64::wrapping_add)
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

//! The locking protocol between threads, their stripes, and the state of a pool. The code is
//! generic over a [`Kind`] of locks, so that tests run the same code with the locks of a model
//! checker and check every interleaving.
//!
//! Lock order: one stripe at a time, then the state.

use super::regions::State;
use super::stripe::Stripe;
use girih_sync::{Mutex, Striped};
use std::ops::DerefMut;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The types of locks and flags.
pub(super) trait Kind {
    type Mutex<T>;
    type Flag;
    /// Locked stripes, each for one or several threads.
    type Stripes;

    fn mutex<T>(value: T) -> Self::Mutex<T>;
    /// Each critical section leaves the value consistent, even if it panics.
    fn lock<T>(mutex: &Self::Mutex<T>) -> impl DerefMut<Target = T>;
    fn flag(value: bool) -> Self::Flag;
    fn get(flag: &Self::Flag) -> bool;
    fn set(flag: &Self::Flag, value: bool);
    fn stripes() -> Self::Stripes;
    fn each(stripes: &Self::Stripes, f: impl FnMut(&Self::Mutex<Stripe>));
}

/// The locks of real threads.
pub(super) struct Threads;

impl Kind for Threads {
    type Mutex<T> = Mutex<T>;
    type Flag = AtomicBool;
    type Stripes = Striped<Mutex<Stripe>>;

    fn mutex<T>(value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    #[inline]
    fn lock<T>(mutex: &Mutex<T>) -> impl DerefMut<Target = T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flag(value: bool) -> AtomicBool {
        AtomicBool::new(value)
    }

    #[inline]
    fn get(flag: &AtomicBool) -> bool {
        flag.load(Relaxed)
    }

    fn set(flag: &AtomicBool, value: bool) {
        flag.store(value, Relaxed);
    }

    fn stripes() -> Striped<Mutex<Stripe>> {
        Striped::default()
    }

    fn each(stripes: &Striped<Mutex<Stripe>>, f: impl FnMut(&Mutex<Stripe>)) {
        stripes.iter().for_each(f);
    }
}

/// The memory of a pool: free intervals, stripes, and counts of the memory in use.
pub(super) struct Blocks<K: Kind = Threads> {
    state: K::Mutex<State>,
    pub stripes: K::Stripes,
    /// Whether stripes may be used: only in region mode, and without a limit, because enforcing a
    /// limit needs the exact number of bytes in use.
    striped: K::Flag,
}

impl<K: Kind> Blocks<K> {
    pub fn new(state: State, striped: bool) -> Blocks<K> {
        Blocks { state: K::mutex(state), stripes: K::stripes(), striped: K::flag(striped) }
    }

    #[inline]
    pub fn lock(&self) -> impl DerefMut<Target = State> {
        K::lock(&self.state)
    }

    /// Merges the counts of all stripes and coalesces all blocks in free lists.
    pub fn gather(&self) -> impl DerefMut<Target = State> {
        K::each(&self.stripes, |stripe| drop(self.empty(&mut K::lock(stripe))));
        let mut state = self.lock();
        state.coalesce_all();
        state
    }

    /// Moves the counts and the blocks of a stripe to the pool.
    fn empty(&self, stripe: &mut Stripe) -> impl DerefMut<Target = State> {
        let mut state = self.lock();
        state.merge(&mut stripe.change);
        stripe.free_lists.drain(|id, offset, reserved| state.free(id, offset, reserved));
        state
    }

    /// Sets the maximum number of bytes in use. `striped`: whether stripes may be used from now on.
    pub fn set_limit(&self, limit: Option<usize>, striped: bool) {
        // Set the flag before emptying the stripes, so that they stay empty afterwards.
        K::set(&self.striped, striped);
        self.gather().limit = limit;
    }

    /// Allocates `reserved` bytes for a request of `size` bytes, for a thread with the stripe
    /// `mine`. Passes region and offset to `listed` if the stripe has a block, else calls `find` with
    /// the state.
    #[inline]
    pub fn reserve<H>(
        &self,
        mine: &K::Mutex<Stripe>,
        (reserved, size): (usize, usize),
        listed: impl FnOnce(usize, usize) -> H,
        find: impl FnOnce(&mut State) -> Option<H>,
    ) -> Option<H> {
        let mut stripe = K::lock(mine);
        // Read the flag under the stripe's lock: `set_limit` clears it before it locks each stripe.
        if K::get(&self.striped)
            && let Some((id, offset)) = stripe.free_lists.pop(reserved)
        {
            stripe.change.allocated(reserved, size);
            if stripe.change.is_large() {
                self.lock().merge(&mut stripe.change);
            }
            return Some(listed(id, offset));
        }
        let mut state = self.lock();
        state.merge(&mut stripe.change);
        let found = find(&mut state)?;
        stripe.change.allocated(reserved, size);
        state.merge(&mut stripe.change);
        Some(found)
    }

    /// Frees memory from [`Blocks::reserve`], for a thread with the stripe `mine`. `place` is its
    /// region and offset; without `place`, calls `unmap`.
    #[inline]
    pub fn free(
        &self,
        mine: &K::Mutex<Stripe>,
        place: Option<(usize, usize)>,
        (reserved, size): (usize, usize),
        unmap: impl FnOnce(),
    ) {
        let mut stripe = K::lock(mine);
        stripe.change.freed(reserved, size);
        if K::get(&self.striped)
            && Stripe::is_small(reserved)
            && let Some((id, offset)) = place
        {
            if stripe.change.is_large() || !stripe.has_room(reserved) {
                drop(self.empty(&mut stripe));
            }
            return stripe.free_lists.push(id, offset, reserved);
        }
        let mut state = self.lock();
        state.merge(&mut stripe.change);
        match place {
            _ if reserved == 0 => (),
            Some((id, offset)) => state.free(id, offset, reserved),
            None => unmap(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ALIGNMENT;
    use super::*;
    use loom::sync::{Arc, Mutex as LoomMutex, atomic::AtomicBool as LoomBool};

    /// The locks of the model checker, with two stripes.
    struct Model;

    impl Kind for Model {
        type Mutex<T> = LoomMutex<T>;
        type Flag = LoomBool;
        type Stripes = [LoomMutex<Stripe>; 2];

        fn mutex<T>(value: T) -> LoomMutex<T> {
            LoomMutex::new(value)
        }

        fn lock<T>(mutex: &LoomMutex<T>) -> impl DerefMut<Target = T> {
            mutex.lock().unwrap()
        }

        fn flag(value: bool) -> LoomBool {
            LoomBool::new(value)
        }

        fn get(flag: &LoomBool) -> bool {
            flag.load(Relaxed)
        }

        fn set(flag: &LoomBool, value: bool) {
            flag.store(value, Relaxed);
        }

        fn stripes() -> Self::Stripes {
            std::array::from_fn(|_| LoomMutex::new(Stripe::default()))
        }

        fn each(stripes: &Self::Stripes, f: impl FnMut(&LoomMutex<Stripe>)) {
            stripes.iter().for_each(f);
        }
    }

    /// A pool of a few blocks, with a flag for each block that is allocated.
    struct Shared {
        blocks: Blocks<Model>,
        taken: Vec<LoomBool>,
    }

    impl Shared {
        fn new(blocks: usize) -> Arc<Shared> {
            Arc::new(Shared {
                blocks: Blocks::new(State::new(&[blocks * ALIGNMENT]), true),
                taken: (0..blocks).map(|_| LoomBool::new(false)).collect(),
            })
        }

        /// Allocates a block for a thread with that stripe; retries after gathering the blocks of
        /// all stripes.
        fn allocate(&self, stripe: usize) -> Option<usize> {
            let mine = &self.blocks.stripes[stripe];
            let take = || {
                let sizes = (ALIGNMENT, 1);
                self.blocks.reserve(
                    mine,
                    sizes,
                    |id, at| (id, at),
                    |state| {
                        let over = |limit| ALIGNMENT > usize::saturating_sub(limit, state.in_use());
                        if state.limit.is_some_and(over) { None } else { state.find(ALIGNMENT) }
                    },
                )
            };
            let found = take().or_else(|| {
                drop(self.blocks.gather());
                take()
            });
            let (_, offset) = found?;
            let number = offset / ALIGNMENT;
            assert!(!self.taken[number].swap(true, Relaxed), "two have block {number}");
            Some(number)
        }

        fn free(&self, stripe: usize, number: usize) {
            assert!(self.taken[number].swap(false, Relaxed));
            let place = Some((0, number * ALIGNMENT));
            let mine = &self.blocks.stripes[stripe];
            self.blocks.free(mine, place, (ALIGNMENT, 1), || unreachable!("of a region"));
        }

        /// Checks that no block is in use, that free memory is coalesced, and that the allocations
        /// were counted.
        fn check(&self, allocations: u64) {
            let stats = self.blocks.gather().stats();
            assert_eq!((stats.in_use, stats.requested, stats.blocks), (0, 0, 0));
            assert_eq!(stats.largest_free, self.taken.len() * ALIGNMENT);
            assert_eq!(stats.allocations, allocations);
        }
    }

    /// Checks every interleaving with up to three preemptions.
    fn model(f: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(f);
    }

    #[test]
    fn no_block_is_shared_or_lost_in_every_interleaving() {
        model(|| {
            let shared = Shared::new(2);
            let work = |shared: Arc<Shared>, stripe| {
                move || {
                    (0..2)
                        .filter_map(|_| shared.allocate(stripe))
                        .inspect(|&number| shared.free(stripe, number))
                        .count() as u64
                }
            };
            let other = loom::thread::spawn(work(shared.clone(), 1));
            let made = work(shared.clone(), 0)() + other.join().unwrap();
            // There is one block per thread, so no allocation fails.
            assert_eq!(made, 4);
            shared.check(4);
        });
    }

    #[test]
    fn a_block_freed_by_another_thread_than_allocated_it_is_found_in_every_interleaving() {
        model(|| {
            let shared = Shared::new(1);
            let number = shared.allocate(0).unwrap();
            let other = shared.clone();
            let freeing = loom::thread::spawn(move || other.free(1, number));
            // Before the free there is no block; afterwards the other thread's stripe has it.
            let early = shared.allocate(0);
            freeing.join().unwrap();
            let late = early.or_else(|| shared.allocate(0)).expect("the only block is free");
            shared.free(0, late);
            shared.check(2);
        });
    }

    #[test]
    fn a_limit_holds_once_set_in_every_interleaving() {
        model(|| {
            let shared = Shared::new(2);
            let kept = [shared.allocate(0), shared.allocate(1)].map(Option::unwrap);
            let other = shared.clone();
            let working = loom::thread::spawn(move || {
                other.free(1, kept[1]);
                let again = other.allocate(1);
                if let Some(number) = again {
                    other.free(1, number);
                }
                u64::from(again.is_some())
            });
            shared.blocks.set_limit(Some(ALIGNMENT), false);
            let made = working.join().unwrap();
            assert_eq!(shared.allocate(0), None, "one block is in use, and no more are granted");
            shared.free(0, kept[0]);
            let last = shared.allocate(0).expect("within the limit");
            assert_eq!(shared.allocate(1), None);
            shared.free(0, last);
            shared.blocks.set_limit(None, true);
            shared.check(3 + made);
        });
    }
}

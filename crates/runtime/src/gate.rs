//! The gate of a queue: lets a caller that waits for its own work run it on its own thread without the
//! scheduler's lock, so that threads with a queue each share no lock.
//!
//! A gate is open while its queue has neither work nor anybody who waits for it. Such a caller enters an
//! open gate and leaves it again, with one atomic operation each. Whoever holds the scheduler's lock
//! closes the gate before it looks at the queue; callers then take the lock as well. A caller that leaves
//! a closed gate says so, and takes the lock to open it and to wake whoever closed it.

use girih_sync::fork;
use std::sync::atomic::{AtomicU64, Ordering, Ordering::*};

/// A caller is inside.
const ENTERED: u64 = 1;
/// Callers have to take the scheduler's lock.
const CLOSED: u64 = 2;
/// The bits below the count of forks.
const BITS: u32 = 2;

/// The operations of an atomic word that a gate needs. A trait, so that tests check every interleaving of
/// the gate's own code by words of a model checker.
pub(crate) trait Word {
    /// A word that holds 0.
    fn zero() -> Self;
    fn load(&self, order: Ordering) -> u64;
    /// As [`AtomicU64::compare_exchange`].
    fn exchange(&self, old: u64, new: u64, success: Ordering) -> Result<u64, u64>;
    /// As [`AtomicU64::fetch_and`].
    fn and(&self, mask: u64, order: Ordering) -> u64;
}

impl Word for AtomicU64 {
    fn zero() -> AtomicU64 {
        AtomicU64::new(0)
    }

    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline]
    fn exchange(&self, old: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        self.compare_exchange(old, new, success, Relaxed)
    }

    #[inline]
    fn and(&self, mask: u64, order: Ordering) -> u64 {
        self.fetch_and(mask, order)
    }
}

/// One word: whether somebody is inside, whether it is closed, and the forks of the process when that was
/// written. A word of the parent of a fork means an open gate in the child: the thread that was inside is
/// not there any more.
#[derive(Debug)]
pub(crate) struct Gate<W = AtomicU64>(W);

impl<W: Word> Default for Gate<W> {
    fn default() -> Gate<W> {
        Gate(W::zero())
    }
}

impl<W: Word> Gate<W> {
    /// Enters; false if somebody is inside, or if the gate is closed.
    #[inline]
    pub fn enter(&self) -> bool {
        let (word, now) = (self.0.load(Relaxed), fork::count() << BITS);
        let open = word == now || word >> BITS != now >> BITS;
        open && self.0.exchange(word, now | ENTERED, Acquire).is_ok()
    }

    /// Leaves; true if the gate was closed meanwhile, so that somebody has to open it.
    #[inline]
    #[must_use]
    pub fn leave(&self) -> bool {
        self.0.and(!ENTERED, Release) & CLOSED != 0
    }

    /// Closes the gate for those who have not entered; true if somebody is inside. To be called under
    /// the scheduler's lock.
    pub fn close(&self) -> bool {
        let mut word = self.0.load(Relaxed);
        loop {
            let now = fork::count() << BITS;
            let there = if word >> BITS == now >> BITS { word } else { now };
            match self.0.exchange(word, there | CLOSED, AcqRel) {
                Ok(_) => return there & ENTERED != 0,
                Err(other) => word = other,
            }
        }
    }

    /// Whether somebody is inside.
    pub fn is_entered(&self) -> bool {
        let word = self.0.load(Acquire);
        word >> BITS == fork::count() && word & ENTERED != 0
    }

    /// Opens the gate. To be called under the scheduler's lock.
    pub fn open(&self) {
        self.0.and(!CLOSED, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{Gate, Ordering, Ordering::*, Word};
    use loom::sync::atomic::AtomicU64;
    use loom::sync::{Arc, Condvar, Mutex};

    impl Word for AtomicU64 {
        fn zero() -> Self {
            Self::new(0)
        }

        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }

        fn exchange(&self, old: u64, new: u64, success: Ordering) -> Result<u64, u64> {
            self.compare_exchange(old, new, success, Relaxed)
        }

        fn and(&self, mask: u64, order: Ordering) -> u64 {
            self.fetch_and(mask, order)
        }
    }

    /// A queue as the scheduler has it: the gate, the lock with the work that is pending, and the condition
    /// that workers and those who wait sleep on.
    #[derive(Default)]
    struct Queue {
        gate: Gate<AtomicU64>,
        pending: Mutex<u32>,
        changed: Condvar,
        /// What has run. Counted without an atomic addition, so that a count is missing where two ran at
        /// once, or where one did not see what the one before it did.
        runs: AtomicU64,
    }

    impl Queue {
        fn run(&self) {
            let before = self.runs.load(Relaxed);
            self.runs.store(before + 1, Relaxed);
        }

        /// A caller with work of its own; false if it has to enqueue that.
        fn call(&self) -> bool {
            if !self.gate.enter() {
                return false;
            }
            self.run();
            if self.gate.leave() {
                let pending = self.pending.lock().unwrap();
                if *pending == 0 {
                    self.gate.open();
                }
                drop(pending);
                self.changed.notify_all();
            }
            true
        }

        /// Enqueues work and does it as a worker would, after who is inside.
        fn enqueue_and_work(&self) {
            let mut pending = self.pending.lock().unwrap();
            self.gate.close();
            *pending += 1;
            while self.gate.is_entered() {
                pending = self.changed.wait(pending).unwrap();
            }
            self.run();
            *pending -= 1;
            self.gate.open();
        }

        /// Waits until nothing of the queue runs.
        fn synchronize(&self) {
            let mut pending = self.pending.lock().unwrap();
            while self.gate.close() {
                pending = self.changed.wait(pending).unwrap();
            }
            if *pending == 0 {
                self.gate.open();
            }
        }
    }

    #[test]
    fn callers_and_workers_take_turns_in_every_interleaving() {
        loom::model(|| {
            let queue = Arc::new(Queue::default());
            let caller = queue.clone();
            let caller = loom::thread::spawn(move || u64::from(caller.call()));
            queue.enqueue_and_work();
            let called = caller.join().unwrap();
            assert!(queue.call(), "the gate is open again");
            assert_eq!(queue.runs.load(Relaxed), called + 2);
        });
    }

    #[test]
    fn who_waits_is_woken_in_every_interleaving() {
        // Three threads have too many interleavings for a quick test unless preemptions are few.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let queue = Arc::new(Queue::default());
            let threads = [queue.clone(), queue.clone()];
            let threads = threads.map(|queue| loom::thread::spawn(move || queue.call()));
            queue.synchronize();
            let called: u64 = threads.map(|thread| u64::from(thread.join().unwrap())).iter().sum();
            assert!(queue.call(), "the gate is open again");
            assert_eq!(queue.runs.load(Relaxed), called + 1);
        });
    }

    #[test]
    fn one_enters_and_a_closed_gate_lets_nobody_in() {
        let gate: Gate = Gate::default();
        assert!(gate.enter() && !gate.enter());
        assert!(!gate.leave() && gate.enter());
        assert!(gate.close(), "somebody is inside");
        assert!(gate.leave(), "who leaves is told");
        assert!(!gate.enter() && !gate.close());
        gate.open();
        assert!(gate.enter());
    }
}

//! The gate of a queue: it lets a caller that waits for its own work run the work on its own thread
//! without the scheduler's lock, so that threads with different queues do not contend for the lock.
//!
//! A gate is open while its queue has no work and no thread waits for the queue. A caller enters an
//! open gate and leaves it with one atomic operation each. A thread with the scheduler's lock
//! closes the gate before it reads the queue; then callers have to take the lock, too. `leave`
//! tells a caller that the gate was closed meanwhile; the caller then takes the lock to open the
//! gate and to wake the threads that closed it.

use girih_sync::fork;
use std::sync::atomic::{AtomicU64, Ordering, Ordering::*};

/// A caller is inside.
const ENTERED: u64 = 1;
/// Callers have to take the scheduler's lock instead.
const CLOSED: u64 = 2;
/// The number of bits below the count of forks.
const BITS: u32 = 2;

/// The operations of an atomic word that a gate needs. A trait, so that tests run the same code
/// with the words of a model checker and check every interleaving.
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

/// One word: the two flags, and the fork count of the process at the time of the write. A word that
/// the parent process wrote before a fork means an open gate in the child, because the thread that
/// was inside does not exist in the child.
#[derive(Debug)]
pub(crate) struct Gate<W = AtomicU64> {
    word: W,
    /// The number of the queue's next primitive. Only the thread that runs the queue's work uses it.
    next: AtomicU64,
}

impl<W: Word> Default for Gate<W> {
    fn default() -> Gate<W> {
        Gate { word: W::zero(), next: AtomicU64::new(0) }
    }
}

impl<W: Word> Gate<W> {
    /// Enters the gate; false if a caller is inside, or the gate is closed.
    #[inline]
    pub fn enter(&self) -> bool {
        let (word, now) = (self.word.load(Relaxed), fork::count() << BITS);
        let open = word == now || word >> BITS != now >> BITS;
        open && self.word.exchange(word, now | ENTERED, Acquire).is_ok()
    }

    /// The number of the queue's next primitive, from 0. The calling thread runs the queue's work.
    #[inline]
    pub fn next_number(&self) -> u64 {
        let number = self.next.load(Relaxed);
        self.next.store(number + 1, Relaxed);
        number
    }

    /// Leaves the gate; true if it was closed meanwhile, so that the caller has to open it.
    #[inline]
    #[must_use]
    pub fn leave(&self) -> bool {
        self.word.and(!ENTERED, Release) & CLOSED != 0
    }

    /// Closes the gate for callers that have not entered; true if a caller is inside. Requires the
    /// scheduler's lock.
    pub fn close(&self) -> bool {
        let mut word = self.word.load(Relaxed);
        loop {
            let now = fork::count() << BITS;
            let there = if word >> BITS == now >> BITS { word } else { now };
            match self.word.exchange(word, there | CLOSED, AcqRel) {
                Ok(_) => return there & ENTERED != 0,
                Err(other) => word = other,
            }
        }
    }

    /// Whether a caller is inside.
    pub fn is_entered(&self) -> bool {
        let word = self.word.load(Acquire);
        word >> BITS == fork::count() && word & ENTERED != 0
    }

    /// Opens the gate. Requires the scheduler's lock.
    pub fn open(&self) {
        self.word.and(!CLOSED, Release);
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

    /// A model of the scheduler's queue: the gate, the lock with the number of pending units of
    /// work, and the condition variable for workers and waiting threads.
    #[derive(Default)]
    struct Queue {
        gate: Gate<AtomicU64>,
        pending: Mutex<u32>,
        changed: Condvar,
        /// The number of runs. Incremented without an atomic addition, so that an increment is lost
        /// if two runs overlap or a run does not see the previous one's effects.
        runs: AtomicU64,
    }

    impl Queue {
        fn run(&self) {
            let before = self.runs.load(Relaxed);
            self.runs.store(before + 1, Relaxed);
        }

        /// Runs a caller's own work; false if the caller has to enqueue the work.
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

        /// Enqueues work and runs it like a worker, after the caller that is inside has left.
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

        /// Waits until no work of the queue runs.
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
    fn waiters_are_woken_in_every_interleaving() {
        // Bound the preemptions: three threads have too many interleavings for a quick test.
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
    fn a_gate_admits_one_thread_and_none_when_closed() {
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

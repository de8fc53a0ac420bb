//! The gate of a queue: lets a caller that waits for its own work run it on its own thread without the
//! scheduler's lock, so that threads with a queue each share no lock.
//!
//! A gate is open while its queue has neither work nor anybody who waits for it. Such a caller enters an
//! open gate and leaves it again, with one atomic operation each. Whoever holds the scheduler's lock
//! closes the gate before it looks at the queue; callers then take the lock as well. A caller that leaves
//! a closed gate says so, and takes the lock to open it and to wake whoever closed it.

use girih_sync::fork;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// A caller is inside.
const ENTERED: u64 = 1;
/// Callers have to take the scheduler's lock.
const CLOSED: u64 = 2;
/// The bits below the count of forks.
const BITS: u32 = 2;

/// One word: whether somebody is inside, whether it is closed, and the forks of the process when that was
/// written. A word of the parent of a fork means an open gate in the child: the thread that was inside is
/// not there any more.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU64);

impl Gate {
    /// Enters; false if somebody is inside, or if the gate is closed.
    #[inline]
    pub fn enter(&self) -> bool {
        let (word, now) = (self.0.load(Relaxed), fork::count() << BITS);
        let open = word == now || word >> BITS != now >> BITS;
        open && self.0.compare_exchange(word, now | ENTERED, Acquire, Relaxed).is_ok()
    }

    /// Leaves; true if the gate was closed meanwhile, so that somebody has to open it.
    #[inline]
    #[must_use]
    pub fn leave(&self) -> bool {
        self.0.fetch_and(!ENTERED, Release) & CLOSED != 0
    }

    /// Closes the gate for those who have not entered; true if somebody is inside. To be called under
    /// the scheduler's lock.
    pub fn close(&self) -> bool {
        let mut word = self.0.load(Relaxed);
        loop {
            let now = fork::count() << BITS;
            let there = if word >> BITS == now >> BITS { word } else { now };
            match self.0.compare_exchange_weak(word, there | CLOSED, AcqRel, Relaxed) {
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
        self.0.fetch_and(!CLOSED, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn one_enters_and_a_closed_gate_lets_nobody_in() {
        let gate = Gate::default();
        assert!(gate.enter() && !gate.enter());
        assert!(!gate.leave() && gate.enter());
        assert!(gate.close(), "somebody is inside");
        assert!(gate.leave(), "who leaves is told");
        assert!(!gate.enter() && !gate.close());
        gate.open();
        assert!(gate.enter());
    }

    #[test]
    fn threads_are_never_inside_together_nor_inside_a_closed_gate() {
        let (gate, inside) = (Gate::default(), AtomicUsize::new(0));
        let alone = || {
            assert_eq!(inside.fetch_add(1, SeqCst), 0);
            inside.fetch_sub(1, SeqCst);
        };
        let lock = girih_sync::Mutex::new(());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if gate.enter() {
                            alone();
                            if gate.leave() {
                                let _held = lock.lock();
                                gate.open();
                            }
                        }
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let _held = lock.lock();
                    if !gate.close() {
                        alone();
                        gate.open();
                    }
                }
            });
        });
    }
}

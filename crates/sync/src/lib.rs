//! Locks that are free when the process forks, and a count of forks.
//!
//! The child of a fork has one thread and a copy of all memory. A lock that another thread held
//! stays held forever, and the data it guards may be inconsistent. Therefore a thread marks a
//! *section*: a fork waits until no other thread is in a section, and threads that want to enter a
//! section wait until the fork is over. Every lock of this crate is held within a section. In the
//! child each lock is thus free and guards consistent data, except for the locks of the forking
//! thread.
//!
//! To avoid deadlock, a section may wait only for other sections. In particular it must not wait
//! for Python's interpreter lock, which the forking thread holds, nor for a condition.
//! `Condvar::wait` leaves the section while it waits, so its mutex must be the only lock of the
//! thread.
//!
//! Code of users ([`foreign`]) may do anything, so it never runs in a section: it is called where no
//! section is open ([`foreign::assert_allowed`]), and a value whose destructor runs such code
//! ([`Foreign`]) that is dropped in a section is destroyed at the end of the section. As the holder
//! of a lock thus never waits for the interpreter, a thread that has the interpreter may wait for a
//! lock. It may not wait for a condition, which only a thread that needs the interpreter may fulfil
//! ([`foreign::set_interpreter_probe`]). Debug builds check all of this where it happens.

mod barrier;
mod condvar;
pub mod foreign;
pub mod fork;
mod mutex;
mod once;
mod section;
mod striped;

pub use condvar::{Condvar, WaitTimeout};
pub use foreign::Foreign;
pub use mutex::{Mutex, MutexGuard};
pub use once::{LazyLock, OnceLock};
pub use section::{Section, in_section};
pub use striped::{Counter, Striped};

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::Duration;

    /// The exit status of a child that runs `f`; `None` if it does not end in time.
    fn in_child(f: impl FnOnce() -> bool) -> Option<i32> {
        // SAFETY: the child touches memory of its own and ends by `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "no process to be had");
        if pid == 0 {
            let status = if f() { 0 } else { 1 };
            // SAFETY: ends the process.
            unsafe { libc::_exit(status) };
        }
        for _ in 0..20_000 {
            let mut status = 0;
            // SAFETY: `pid` is a child of this process.
            if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
                return Some(libc::WEXITSTATUS(status));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        None
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no fork")]
    fn a_forked_child_finds_locks_free_and_their_data_consistent() {
        // Handlers are registered when a thread first enters a section; the threads below may start
        // late.
        drop(Section::enter());
        let pair = Arc::new((Mutex::new((0u64, 0u64)), Mutex::new(()), Condvar::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..3)
            .map(|i| {
                let (pair, stop) = (pair.clone(), stop.clone());
                std::thread::spawn(move || {
                    while !stop.load(Relaxed) {
                        let outer = pair.1.lock().unwrap();
                        let mut both = pair.0.lock().unwrap();
                        both.0 += 1;
                        std::hint::black_box(&mut *both);
                        both.1 += 1;
                        drop(outer);
                        if i == 0 {
                            let wait = Duration::from_micros(10);
                            drop(pair.2.wait_timeout(both, wait).unwrap());
                        } else {
                            pair.2.notify_all();
                        }
                    }
                })
            })
            .collect();
        let before = fork::count();
        for _ in 0..50 {
            let status = in_child(|| {
                let free = pair.1.try_lock().is_ok();
                let both = *pair.0.lock().unwrap();
                free && both.0 == both.1 && fork::count() == before + 1
            });
            assert_eq!(status, Some(0), "1: a lock is held or data half changed; none: it hangs");
        }
        assert_eq!(fork::count(), before, "counted in children only");
        stop.store(true, Relaxed);
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no fork")]
    fn a_fork_waits_for_values_being_made() {
        static VALUE: OnceLock<u32> = OnceLock::new();
        let (sender, started) = std::sync::mpsc::channel();
        let maker = std::thread::spawn(move || {
            VALUE.get_or_init(|| {
                sender.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(30));
                7
            });
        });
        started.recv().unwrap();
        assert_eq!(in_child(|| VALUE.get() == Some(&7)), Some(0));
        maker.join().unwrap();
    }

    #[test]
    fn sections_nest_and_belong_to_their_thread() {
        assert!(!in_section());
        let outer = Section::enter();
        let inner = Section::enter();
        drop(outer);
        assert!(in_section());
        std::thread::spawn(|| assert!(!in_section())).join().unwrap();
        drop(inner);
        assert!(!in_section());
    }

    #[test]
    fn a_notification_wakes_all_and_a_time_limit_ends_a_wait() {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let pair = pair.clone();
                std::thread::spawn(move || {
                    let mut ready = pair.0.lock().unwrap();
                    while !*ready {
                        ready = pair.1.wait(ready).unwrap();
                    }
                })
            })
            .collect();
        *pair.0.lock().unwrap() = true;
        pair.1.notify_all();
        waiters.into_iter().for_each(|w| w.join().unwrap());
        let guard = pair.0.lock().unwrap();
        assert!(pair.1.wait_timeout(guard, Duration::from_millis(1)).unwrap().1.timed_out());
    }
}

//! Thread affinity: the CPU that each worker of a pool is bound to.
//!
//! Each worker is bound to a CPU of its own, so that the data in that CPU's caches is there for the
//! worker's next job. The caller is not bound. If the system ran the caller on a worker's CPU, the
//! two threads would take turns for a long time, since only the caller can be moved. So the worker
//! is then bound to the CPU that no worker is bound to.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The affinity of a pool's threads.
pub(crate) struct Affinity {
    /// The CPUs that the threads may use; empty if there are fewer CPUs than threads.
    cpus: Vec<usize>,
    /// The CPU of each thread; [`Affinity::UNBOUND`] for the caller, which is the first thread.
    assigned: Vec<AtomicUsize>,
}

impl Affinity {
    /// The CPU of a thread that is not bound, which is the initial `bound` of `bind_worker`.
    pub const UNBOUND: usize = usize::MAX;

    /// The affinity for that many threads. No thread is bound if there are fewer CPUs than threads,
    /// since binding would then only slow the threads down.
    pub fn new(threads: usize) -> Affinity {
        let cpus = if threads <= available() { allowed() } else { vec![] };
        Affinity::among(cpus, threads)
    }

    fn among(mut cpus: Vec<usize>, threads: usize) -> Affinity {
        if cpus.len() < threads {
            cpus.clear();
        }
        let of = |thread: usize| match thread {
            0 => Affinity::UNBOUND,
            _ => cpus.get(thread).copied().unwrap_or(Affinity::UNBOUND),
        };
        Affinity {
            assigned: (0..threads).map(|thread| AtomicUsize::new(of(thread))).collect(),
            cpus,
        }
    }

    /// If the caller runs on a worker's CPU, assigns another CPU to the worker, which moves when it
    /// runs next.
    pub fn free_caller_cpu(&self) {
        if !self.cpus.is_empty() {
            self.free_cpu(current());
        }
    }

    fn free_cpu(&self, here: usize) {
        let worker_on = |cpu: usize| {
            self.assigned.iter().find(move |assignment| assignment.load(Relaxed) == cpu)
        };
        let Some(assignment) = worker_on(here) else { return };
        if let Some(&free) = self.cpus.iter().find(|&&cpu| worker_on(cpu).is_none()) {
            assignment.store(free, Relaxed);
        }
    }

    /// Binds this thread, the given worker, to its CPU; `bound` holds the CPU to which it is bound
    /// now.
    pub fn bind_worker(&self, worker: usize, bound: &mut usize) {
        let assignment = self.assigned[worker].load(Relaxed);
        if assignment != *bound {
            bind(assignment);
            *bound = assignment;
        }
    }
}

/// The number of CPUs of this process, from its affinity mask and its control group's quota.
pub(crate) fn available() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// The CPUs in this thread's affinity mask; empty if the system does not report them.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    // SAFETY: the set is plain data, filled by the call within its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return vec![];
        }
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    vec![]
}

/// Binds this thread to a CPU; if that fails, the affinity is unchanged.
#[cfg(target_os = "linux")]
fn bind(cpu: usize) {
    // SAFETY: the set is plain data, and `cpu` is one of `allowed`, below the set's size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(not(target_os = "linux"))]
fn bind(_: usize) {}

/// The CPU that this thread runs on.
#[cfg(target_os = "linux")]
fn current() -> usize {
    // SAFETY: the call has no preconditions; its error is -1, which is no CPU's number.
    unsafe { libc::sched_getcpu() as usize }
}

#[cfg(not(target_os = "linux"))]
fn current() -> usize {
    Affinity::UNBOUND
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(affinity: &Affinity) -> Vec<usize> {
        affinity.assigned.iter().map(|assignment| assignment.load(Relaxed)).collect()
    }

    #[test]
    fn a_worker_moves_off_the_cpu_of_the_caller() {
        let affinity = Affinity::among(vec![2, 4, 6], 3);
        assert_eq!(assigned(&affinity), [Affinity::UNBOUND, 4, 6]);
        affinity.free_cpu(2);
        assert_eq!(assigned(&affinity), [Affinity::UNBOUND, 4, 6]);
        affinity.free_cpu(6);
        assert_eq!(assigned(&affinity), [Affinity::UNBOUND, 4, 2]);
        affinity.free_cpu(4);
        assert_eq!(assigned(&affinity), [Affinity::UNBOUND, 6, 2]);
    }

    #[test]
    fn threads_are_not_bound_if_there_are_fewer_cpus() {
        let affinity = Affinity::among(vec![0, 1], 3);
        assert_eq!(assigned(&affinity), [Affinity::UNBOUND; 3]);
        affinity.free_caller_cpu();
        assert_eq!(assigned(&affinity), [Affinity::UNBOUND; 3]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn bind_worker_pins_the_worker_to_its_cpu() {
        let Some(&cpu) = allowed().last() else { return };
        let affinity = Affinity::among(vec![cpu; 2], 2);
        std::thread::spawn(move || {
            let mut bound = Affinity::UNBOUND;
            affinity.bind_worker(1, &mut bound);
            assert_eq!((allowed(), current(), bound), (vec![cpu], cpu, cpu));
        })
        .join()
        .expect("the worker is bound");
    }
}

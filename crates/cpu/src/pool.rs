//! The thread pool: runs independent chunks of one job, which threads claim one by one.
//!
//! Each thread is assigned a range of consecutive chunks, which is the same for the same job every
//! time, so that the thread's caches hold the data that it uses again. A thread claims its own
//! chunks from the front. When it has none left, it steals chunks of other threads from the back. A
//! claim is a compare-and-swap on a word that contains the number of the job. So the caller runs
//! all chunks that no worker has claimed, and waits only for chunks in progress: at worst the job
//! takes as long as on the caller alone. Workers are bound to CPUs of their own (`affinity`), spin
//! for a short while after a job and then park. A long job wakes them, and so does a burst of short
//! jobs that is long in total. With fewer CPUs than threads, no thread spins. A caller that finds
//! the pool busy (because the call is nested, or another thread uses the pool) runs its chunks
//! alone. The caller decides the chunks, which never depend on the number of threads.
//!
//! A run that is cancelled (`watched`) ends between two chunks.

use crate::affinity::{Affinity, available};
use crate::wait::{Sleepers, spin};
use girih_exec::tuning::tuning;
use girih_exec::{ExecError, Scratch, stoppable};
use girih_runtime::{ChunkCounts, RunControl};
use girih_sync::{Mutex, MutexGuard, fork};
use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*, fence};
use std::thread::Thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The minimum time of a job that can be cancelled, in nanoseconds.
const WATCH_NS: u64 = 20_000;
/// The time of work between two checks of the clock by a job that can be cancelled, in nanoseconds.
const CLOCK_NS: u64 = 50_000;

/// The number of bits of a deque's word for its next chunk, and for its end.
const CHUNK_BITS: u32 = 20;
const CHUNK_MASK: u64 = (1 << CHUNK_BITS) - 1;
const EPOCH_MASK: u64 = u64::MAX >> (2 * CHUNK_BITS);

/// The minimum time of a job, or of a burst of jobs, that wakes parked workers.
fn wake_ns() -> u64 {
    tuning().wake_work_ns as u64
}

/// The time for which a worker without work spins before it parks, and a caller before it sleeps.
fn spin_time() -> Duration {
    Duration::from_nanos(tuning().spin_ns as u64)
}

/// The function of a job: called with a chunk's number and the thread's scratch memory.
pub type Job<'a> = dyn Fn(usize, &mut Scratch) -> Result<(), ExecError> + Sync + 'a;

/// `GIRIH_NUM_THREADS` is not a valid number of threads.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("GIRIH_NUM_THREADS is {value:?}; expected a whole number from 1 to 1024")]
pub struct InvalidThreads {
    /// The variable's value.
    pub value: String,
}

/// The deque of a work-stealing thread: the chunks of a job that are assigned to the thread, as
/// `epoch | end | next`. Each deque is in a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Deque(AtomicU64);

impl Deque {
    /// Publishes the chunks of a job; all earlier chunks have been claimed.
    fn offer(&self, epoch: u64, chunks: Range<usize>) {
        let word = epoch << (2 * CHUNK_BITS) | (chunks.end as u64) << CHUNK_BITS;
        self.0.store(word | chunks.start as u64, Release);
    }

    /// The number of the job whose chunks the deque has.
    fn epoch(&self) -> u64 {
        Deque::parts(self.0.load(Acquire)).0
    }

    /// Claims the first chunk for the thread that owns the deque; `None` if none is left.
    fn claim_first(&self) -> Option<usize> {
        let first = |word| {
            let (_, end, next) = Deque::parts(word);
            (next < end).then_some(word + 1)
        };
        let before = self.0.fetch_update(AcqRel, Acquire, first).ok()?;
        Some(Deque::parts(before).2)
    }

    /// Claims the last chunk for another thread, if the deque belongs to that job.
    fn claim_last(&self, epoch: u64) -> Option<usize> {
        let last = |word| {
            let (of, end, next) = Deque::parts(word);
            (of == epoch && next < end).then(|| word - (1 << CHUNK_BITS))
        };
        let before = self.0.fetch_update(AcqRel, Acquire, last).ok()?;
        Some(Deque::parts(before).1 - 1)
    }

    /// Epoch, end and next chunk of a word.
    fn parts(word: u64) -> (u64, usize, usize) {
        let chunk = |bits: u64| (bits & CHUNK_MASK) as usize;
        (word >> (2 * CHUNK_BITS), chunk(word >> CHUNK_BITS), chunk(word))
    }
}

/// The state that the threads of one pool share. It is never freed, because a caller may still have a
/// reference when the pool changes its threads; the pool uses it again instead.
struct Team {
    /// One deque per thread, the caller's deque first.
    deques: Vec<Deque>,
    /// The job, a `*const &Job`, valid while claimed chunks of its epoch are unfinished.
    job: AtomicPtr<()>,
    /// The last job that is published to every thread.
    offered: AtomicU64,
    /// The number of finished chunks.
    done: AtomicUsize,
    /// The queue on which the caller sleeps until all chunks are finished.
    caller: Sleepers,
    /// The time for which threads spin before they sleep.
    spin: Duration,
    /// Whether a caller uses the team.
    busy: AtomicBool,
    /// The error of the lowest-numbered chunk that failed.
    error: Mutex<Option<(usize, ExecError)>>,
    workers: Mutex<Vec<Thread>>,
    affinity: Affinity,
    parked: AtomicUsize,
    /// The total time of the jobs of a burst during which workers stayed parked, and the time at
    /// which the last of these jobs began, in nanoseconds after `start_time`.
    missed_ns: AtomicU64,
    last_missed_ns: AtomicU64,
    start_time: Instant,
    stop: AtomicBool,
    /// The number of workers that have been started and have not ended.
    running: AtomicUsize,
    /// The number of forks of the process before the team was created.
    forks: u64,
}

/// A pool of threads. The caller of [`Pool::run`] is one of them.
pub struct Pool {
    team: AtomicPtr<Team>,
    /// The teams that the pool used before.
    dismissed: Mutex<Vec<&'static Team>>,
}

impl Pool {
    /// A pool of that many threads, including the caller (at least one). Workers start when they
    /// are first needed.
    pub fn new(threads: usize) -> Pool {
        let team = Box::into_raw(Box::new(Team::new(threads.max(1))));
        let (team, dismissed) = (AtomicPtr::new(team), Mutex::default());
        Pool { team, dismissed }
    }

    /// A pool of `GIRIH_NUM_THREADS` threads, or of as many as there are CPUs for this process.
    ///
    /// Errors: [`InvalidThreads`].
    pub fn from_env() -> Result<Pool, InvalidThreads> {
        match std::env::var("GIRIH_NUM_THREADS") {
            Err(std::env::VarError::NotPresent) => Ok(Pool::new(available())),
            Ok(value) => match value.trim().parse() {
                Ok(n @ 1..=1024) => Ok(Pool::new(n)),
                _ => Err(InvalidThreads { value }),
            },
            Err(std::env::VarError::NotUnicode(value)) => {
                Err(InvalidThreads { value: value.to_string_lossy().into_owned() })
            }
        }
    }

    /// The number of threads, including the caller.
    pub fn num_threads(&self) -> usize {
        self.team().threads()
    }

    /// Changes the number of threads (at least one) for jobs that start later.
    pub fn set_num_threads(&self, threads: usize) {
        let threads = threads.max(1);
        if self.num_threads() == threads {
            return;
        }
        let mut dismissed = lock(&self.dismissed);
        let again = dismissed.iter().position(|team| team.threads() == threads && team.employ());
        let new = match again {
            Some(at) => std::ptr::from_ref(dismissed.swap_remove(at)).cast_mut(),
            None => Box::into_raw(Box::new(Team::new(threads))),
        };
        let old = self.team.swap(new, AcqRel);
        // SAFETY: teams are never freed.
        let old = unsafe { &*old };
        old.dismiss();
        dismissed.push(old);
    }

    /// The team. In the child of a fork, a new team: the workers of the old team do not exist
    /// there, and its locks may be held for ever.
    fn team(&self) -> &'static Team {
        // SAFETY: the pointer comes from a box that is never freed.
        let team = unsafe { &*self.team.load(Acquire) };
        if team.forks == fork::count() {
            return team;
        }
        let new = Box::into_raw(Box::new(Team::new(team.threads())));
        let old = std::ptr::from_ref(team).cast_mut();
        // If another thread was faster, its team stays, and this one is never used.
        let _ = self.team.compare_exchange(old, new, AcqRel, Acquire);
        // SAFETY: as above.
        unsafe { &*self.team.load(Acquire) }
    }

    /// Starts the workers that do not run yet. Without this call, the first job for several threads
    /// starts them.
    pub fn start(&self) {
        self.team().start();
    }

    /// Wakes parked workers if the total time of the following work is long enough, so that they
    /// are awake when it begins. Call once before a sequence of jobs.
    pub fn prepare(&self, total_ns: u64) {
        let team = self.team();
        if total_ns >= wake_ns() && team.parked.load(Relaxed) > 0 {
            team.wake();
        }
    }

    /// Runs chunks `0..chunks` of a job, in any order and on any threads, and waits for all of
    /// them. `cost_ns`, the job's approximate time on one core in nanoseconds, decides whether
    /// several threads run the job.
    ///
    /// Errors: the error of the lowest-numbered chunk that failed; a panic in a chunk is
    /// [`ExecError::Panicked`]; [`ExecError::Stopped`] within `watched`. Chunks after a failed one
    /// may or may not have run.
    pub fn run(&self, chunks: usize, cost_ns: u64, job: &Job<'_>) -> Result<(), ExecError> {
        let control = CONTROL.get();
        if control.is_null() || cost_ns < WATCH_NS {
            return self.run_all(chunks, cost_ns, job);
        }
        // SAFETY: `watched` set it on this thread and is still on the stack below.
        let control = unsafe { &*control };
        let per_clock = (CLOCK_NS as u128 * chunks as u128 / u128::from(cost_ns)).max(1) as usize;
        self.run_all(chunks, cost_ns, &|chunk, scratch| {
            if control.stopped() || chunk % per_clock == 0 && control.check() {
                return Err(ExecError::Stopped);
            }
            // On every thread, so that long loops within a chunk find the control.
            watched(control, || stoppable(is_stopped, || job(chunk, scratch)))
        })
    }

    fn run_all(&self, chunks: usize, cost_ns: u64, job: &Job<'_>) -> Result<(), ExecError> {
        let team = self.team();
        let shared = chunks > 1 && team.threads() > 1 && cost_ns >= tuning().split_work_ns as u64;
        let shared = shared && chunks as u64 <= CHUNK_MASK;
        if !shared || team.busy.swap(true, Acquire) {
            count(chunks, 0);
            return alone(chunks, job);
        }
        team.start();
        let wakes = cost_ns >= wake_ns() || team.has_missed(cost_ns);
        if !wakes && team.all_parked() {
            team.busy.store(false, Release);
            count(chunks, 0);
            return alone(chunks, job);
        }
        let (own, result) = team.run_on_all(chunks, wakes, job);
        team.busy.store(false, Release);
        count(chunks, chunks - own);
        result
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.team().dismiss();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds a lock of the pool; after a poisoning the data is still valid.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Counts a job of the calling thread, once, so that chunks cost no increments.
fn count(chunks: usize, of_workers: usize) {
    ChunkCounts { chunks: chunks as u64, chunks_of_workers: of_workers as u64 }.record();
}

thread_local! {
    /// The control that may cancel the jobs of this thread; null if there is none.
    static CONTROL: Cell<*const RunControl> = const { Cell::new(std::ptr::null()) };
}

/// Runs `f`; jobs that `f` runs on a pool from this thread end early when `control` stops them.
pub(crate) fn watched<R>(control: &RunControl, f: impl FnOnce() -> R) -> R {
    struct Restore(*const RunControl);
    impl Drop for Restore {
        fn drop(&mut self) {
            CONTROL.set(self.0);
        }
    }
    let _restore = Restore(CONTROL.replace(control));
    f()
}

/// Fails if the jobs of this thread are cancelled; checks the clock if `clock` is true.
pub(crate) fn proceed(clock: bool) -> Result<(), ExecError> {
    let control = CONTROL.get();
    if control.is_null() {
        return Ok(());
    }
    // SAFETY: `watched` set it on this thread and is still on the stack below.
    let control = unsafe { &*control };
    match control.stopped() || clock && control.check() {
        true => Err(ExecError::Stopped),
        false => Ok(()),
    }
}

/// Whether the jobs of this thread are cancelled; checks the clock.
pub(crate) fn is_stopped() -> bool {
    proceed(true).is_err()
}

/// Whether a control may cancel the jobs of this thread.
pub(crate) fn is_watched() -> bool {
    !CONTROL.get().is_null()
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::new(Scratch::new());
}

/// Calls `f` with the thread's scratch memory; a nested call gets memory of its own.
fn with_scratch<R>(f: impl FnOnce(&mut Scratch) -> R) -> R {
    let mut scratch = SCRATCH.take();
    let result = f(&mut scratch);
    SCRATCH.set(scratch);
    result
}

/// Runs one chunk; a panic becomes an error.
fn guarded(job: &Job<'_>, chunk: usize, scratch: &mut Scratch) -> Result<(), ExecError> {
    catch_unwind(AssertUnwindSafe(|| job(chunk, scratch)))
        .unwrap_or_else(|panic| Err(ExecError::Panicked(message(panic.as_ref()))))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown".into())
}

/// Runs all chunks on this thread, in order.
fn alone(chunks: usize, job: &Job<'_>) -> Result<(), ExecError> {
    with_scratch(|scratch| (0..chunks).try_for_each(|chunk| guarded(job, chunk, scratch)))
}

impl Team {
    fn new(threads: usize) -> Team {
        Team {
            deques: (0..threads).map(|_| Deque::default()).collect(),
            job: AtomicPtr::new(std::ptr::null_mut()),
            offered: AtomicU64::new(0),
            done: AtomicUsize::new(0),
            caller: Sleepers::default(),
            spin: if threads <= available() { spin_time() } else { Duration::ZERO },
            busy: AtomicBool::new(false),
            error: Mutex::new(None),
            workers: Mutex::new(vec![]),
            affinity: Affinity::new(threads),
            parked: AtomicUsize::new(0),
            missed_ns: AtomicU64::new(0),
            last_missed_ns: AtomicU64::new(0),
            start_time: Instant::now(),
            stop: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            forks: fork::count(),
        }
    }

    fn threads(&self) -> usize {
        self.deques.len()
    }

    /// Starts the workers that do not run yet. The pool continues without a worker that cannot
    /// start.
    fn start(&'static self) {
        let mut workers = lock(&self.workers);
        if !workers.is_empty() {
            return;
        }
        for i in 1..self.threads() {
            let name = format!("girih-{i}");
            self.running.fetch_add(1, Relaxed);
            match std::thread::Builder::new().name(name).spawn(move || self.work(i)) {
                Ok(handle) => workers.push(handle.thread().clone()),
                Err(_) => self.ended(),
            }
        }
    }

    /// Counts a worker that has ended.
    fn ended(&self) {
        self.running.fetch_sub(1, Release);
    }

    /// Whether all workers are parked, so that no worker would see a job that wakes none.
    fn all_parked(&self) -> bool {
        self.parked.load(Relaxed) + 1 >= self.threads()
    }

    /// Records a job that is too short to wake parked workers; true if the jobs of a burst are long
    /// enough in total. So a loop over short jobs runs on the caller alone for about as long as
    /// waking the workers takes, and then on all threads. Called by the thread that uses the team.
    fn has_missed(&self, cost_ns: u64) -> bool {
        if self.parked.load(Relaxed) == 0 {
            return false;
        }
        let now = self.start_time.elapsed().as_nanos() as u64;
        let burst = now - self.last_missed_ns.swap(now, Relaxed) < self.spin.as_nanos() as u64;
        let missed = cost_ns + if burst { self.missed_ns.load(Relaxed) } else { 0 };
        let long = missed >= wake_ns();
        self.missed_ns.store(if long { 0 } else { missed }, Relaxed);
        long
    }

    fn wake(&self) {
        lock(&self.workers).iter().for_each(Thread::unpark);
    }

    /// Makes a dismissed team ready for use; false if some of its workers have not ended yet, or if
    /// the team is of the parent of a fork.
    fn employ(&self) -> bool {
        if self.forks != fork::count() {
            return false;
        }
        let mut workers = lock(&self.workers);
        if self.running.load(Acquire) > 0 {
            return false;
        }
        workers.clear();
        self.stop.store(false, Release);
        true
    }

    fn dismiss(&self) {
        self.stop.store(true, Release);
        if self.forks == fork::count() {
            self.wake();
        }
    }

    /// Publishes a job, wakes parked workers if `wakes` is true, runs chunks of the job, and waits
    /// for the chunks that other threads have claimed. Returns the number of chunks that the caller
    /// ran.
    fn run_on_all(
        &self,
        chunks: usize,
        wakes: bool,
        job: &Job<'_>,
    ) -> (usize, Result<(), ExecError>) {
        let epoch = self.deques[0].epoch().wrapping_add(1) & EPOCH_MASK;
        self.job.store((&raw const job) as *mut (), Relaxed);
        self.done.store(0, Relaxed);
        let (all, bound) = (self.threads(), |i: usize| i * chunks / self.threads());
        for i in (0..all).rev() {
            self.deques[i].offer(epoch, bound(i)..bound(i + 1));
        }
        self.offered.store(epoch, Release);
        // A worker that parks now either sees the job, or is counted as parked here.
        fence(SeqCst);
        if wakes && self.parked.load(Relaxed) > 0 {
            self.wake();
        }
        self.affinity.free_caller_cpu();
        let own = with_scratch(|scratch| {
            std::iter::from_fn(|| self.claim_and_run(0, scratch).then_some(())).count()
        });
        // While other threads run the last chunks, only this thread notices an interrupt.
        let look = || drop(proceed(true));
        self.caller.wait(self.spin, || self.done.load(Acquire) >= chunks, look);
        let error = lock(&self.error).take();
        (own, error.map_or(Ok(()), |(_, error)| Err(error)))
    }

    /// Claims a chunk of the current job for a thread and runs it; false if no chunk is left.
    fn claim_and_run(&self, thread: usize, scratch: &mut Scratch) -> bool {
        let own = &self.deques[thread];
        let chunk = own.claim_first().or_else(|| {
            // Steal only from the job whose chunks this thread has: a thread does not join a job
            // before its own chunks are published.
            let epoch = own.epoch();
            let other = |i: usize| &self.deques[(thread + i) % self.threads()];
            (1..self.threads()).find_map(|i| other(i).claim_last(epoch))
        });
        let Some(chunk) = chunk else { return false };
        // SAFETY: the claim succeeded on this job's epoch, so its caller is in `run_on_all` and
        // stays there, keeping `job` alive, until `done` counts this chunk.
        let job = unsafe { *(self.job.load(Relaxed) as *const &Job<'_>) };
        if let Err(error) = guarded(job, chunk, scratch) {
            let mut first = lock(&self.error);
            if first.as_ref().is_none_or(|(at, _)| chunk < *at) {
                *first = Some((chunk, error));
            }
        }
        self.done.fetch_add(1, SeqCst);
        // The caller may have begun another job already; it then finds no chunk finished, and
        // sleeps again.
        self.caller.wake();
        true
    }

    /// The main loop of a worker.
    fn work(&self, thread: usize) {
        let mut scratch = Scratch::new();
        let mut bound = Affinity::UNBOUND;
        while !self.stop.load(Acquire) {
            self.affinity.bind_worker(thread, &mut bound);
            let seen = self.offered.load(Acquire);
            if self.claim_and_run(thread, &mut scratch) {
                continue;
            }
            // No chunk of this job is left. Poll a single word until the next job is published; the
            // words of the deques are written by other threads.
            let offered = || self.offered.load(Acquire) != seen || self.stop.load(Acquire);
            if spin(self.spin, offered) {
                continue;
            }
            self.parked.fetch_add(1, SeqCst);
            fence(SeqCst);
            // A thread that publishes a job from here on wakes this one: an unpark before the call
            // is kept as a token.
            if !offered() {
                std::thread::park();
            }
            self.parked.fetch_sub(1, SeqCst);
        }
        self.ended();
    }
}

#[cfg(test)]
mod tests;

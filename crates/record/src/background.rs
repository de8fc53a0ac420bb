//! Background compilation: one thread that compiles programs while the caller continues.

use crate::error::{Error, Result};
use crate::nested;
use girih_runtime::Completion;
use girih_sync::{Mutex, fork};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// The job channel of the thread, and the fork count of the process when the thread was started.
static THREAD: Mutex<Option<(u64, Sender<Job>)>> = Mutex::new(None);

/// The unfinished jobs of this process.
static JOBS: Jobs = Jobs { pending: AtomicUsize::new(0), forks: AtomicU64::new(0) };

struct Jobs {
    pending: AtomicUsize,
    /// The fork count of the process when the jobs were counted. In a child process, the jobs of
    /// the parent do not exist.
    forks: AtomicU64,
}

/// A job counted in [`JOBS`]; dropping it decrements the count.
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        JOBS.pending.fetch_sub(1, SeqCst);
    }
}

/// Whether a job is queued or running.
pub fn is_busy() -> bool {
    JOBS.forks.load(SeqCst) == fork::count() && JOBS.pending.load(SeqCst) > 0
}

/// Runs `work` after the queued jobs, or immediately if there are none.
pub fn in_order(work: impl FnOnce() + Send + 'static) {
    if is_busy() { spawn(work) } else { work() }
}

/// Waits for all jobs queued so far.
///
/// Errors: [`girih_runtime::Error::Cancelled`] if the user of this thread interrupted the wait.
pub fn wait() -> Result<()> {
    if !is_busy() {
        return Ok(());
    }
    let done = Completion::pending();
    let finished = done.clone();
    // Decrement the count before the wait ends, so that `is_busy` is false after the wait.
    enqueue(move |counted| {
        drop(counted);
        finished.finish(Ok(()));
    });
    done.wait_or_interrupt().map_err(Error::from)
}

/// Waits for all jobs queued so far if there are at least `most` jobs, as back-pressure.
///
/// Errors: as [`wait`].
pub fn wait_for_room(most: usize) -> Result<()> {
    match is_busy() && JOBS.pending.load(SeqCst) >= most {
        true => wait(),
        false => Ok(()),
    }
}

/// Queues a job. If no thread can be started, the calling thread runs the job.
pub fn spawn(job: impl FnOnce() + Send + 'static) {
    enqueue(move |_counted| job());
}

/// Like [`spawn`], for a job that drops its [`Counted`] itself.
fn enqueue(job: impl FnOnce(Counted) + Send + 'static) {
    if JOBS.forks.swap(fork::count(), SeqCst) != fork::count() {
        JOBS.pending.store(0, SeqCst);
    }
    JOBS.pending.fetch_add(1, SeqCst);
    let counted = Counted;
    let job = move || job(counted);
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    // A thread does not survive a fork. Leak the channel of the parent's thread instead of dropping
    // it: the thread may have held the channel's internal lock at the fork.
    std::mem::forget(thread.take_if(|(forks, _)| *forks != fork::count()));
    if thread.is_none() {
        let (sender, jobs) = channel::<Job>();
        let builder = std::thread::Builder::new().name("girih-compile".into());
        let work = move || jobs.into_iter().for_each(|job| job());
        *thread = builder.spawn(work).is_ok().then(|| (fork::count(), sender));
    }
    let job: Job = Box::new(job);
    let unsent = match &*thread {
        Some((_, sender)) => sender.send(job).err().map(|unsent| unsent.0),
        None => Some(job),
    };
    drop(thread);
    if let Some(job) = unsent {
        job();
    }
}

/// A program being compiled in the background.
#[derive(Clone, Debug)]
pub struct Compilation(pub(crate) Arc<Completion>);

impl Compilation {
    /// Whether the compilation has ended, successfully or not.
    pub fn done(&self) -> bool {
        self.0.poll().is_some()
    }

    /// Waits for the end of the compilation.
    ///
    /// Errors: the error of the compilation; [`Error::InvalidArgument`] inside of a callback or a
    /// pass.
    pub fn wait(&self) -> Result<()> {
        nested::check("waiting for a compilation")?;
        self.0.wait_or_interrupt().map_err(Error::from)
    }
}

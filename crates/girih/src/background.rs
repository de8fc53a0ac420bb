//! Compiling in the background: one thread that makes programs while their user goes on.

use crate::{Error, Result};
use girih_runtime::Completion;
use girih_sync::{Mutex, fork};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// The thread's inbox, and the forks of the process before it was started.
static THREAD: Mutex<Option<(u64, Sender<Job>)>> = Mutex::new(None);

/// Jobs not yet done, of this process.
static JOBS: Jobs = Jobs { pending: AtomicUsize::new(0), forks: AtomicU64::new(0) };

struct Jobs {
    pending: AtomicUsize,
    /// Forks of the process when the jobs were counted: in a later one they are gone.
    forks: AtomicU64,
}

/// A job among [`JOBS`], until it is done or dropped.
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        JOBS.pending.fetch_sub(1, SeqCst);
    }
}

/// Whether a job is waiting or being done.
pub(crate) fn is_busy() -> bool {
    JOBS.forks.load(SeqCst) == fork::count() && JOBS.pending.load(SeqCst) > 0
}

/// Does `work` after the jobs before it: now, if there are none.
pub(crate) fn in_order(work: impl FnOnce() + Send + 'static) {
    if is_busy() { spawn(work) } else { work() }
}

/// Waits for the jobs so far.
///
/// Errors: [`girih_runtime::Error::Cancelled`] if the user of this thread interrupted the wait.
pub(crate) fn wait() -> Result<()> {
    if !is_busy() {
        return Ok(());
    }
    let done = Completion::pending();
    let finished = done.clone();
    // Counted no more when the wait ends: who has waited finds nothing busy.
    enqueue(move |counted| {
        drop(counted);
        finished.finish(Ok(()));
    });
    done.wait_or_interrupt().map_err(Error::from)
}

/// Waits for the jobs so far if there are that many.
///
/// Errors: as [`wait`].
pub(crate) fn wait_for_room(most: usize) -> Result<()> {
    match is_busy() && JOBS.pending.load(SeqCst) >= most {
        true => wait(),
        false => Ok(()),
    }
}

/// Has a job done after those before it; on this thread if there is no other to be had.
pub(crate) fn spawn(job: impl FnOnce() + Send + 'static) {
    enqueue(move |_counted| job());
}

/// As [`spawn`], of a job that says when it counts no more.
fn enqueue(job: impl FnOnce(Counted) + Send + 'static) {
    if JOBS.forks.swap(fork::count(), SeqCst) != fork::count() {
        JOBS.pending.store(0, SeqCst);
    }
    JOBS.pending.fetch_add(1, SeqCst);
    let counted = Counted;
    let job = move || job(counted);
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    // A thread does not survive a fork. Its inbox is left alone: the thread may have held the lock
    // that the channel has inside.
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
    /// Whether it has ended, well or not.
    pub fn done(&self) -> bool {
        self.0.poll().is_some()
    }

    /// Waits for its end.
    ///
    /// Errors: what compiling failed with.
    pub fn wait(&self) -> Result<()> {
        self.0.wait_or_interrupt().map_err(Error::from)
    }
}

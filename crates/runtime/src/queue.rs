//! Device queues: the primitive, asynchronous FIFOs of copies and launches, and the completions and
//! events by which their progress is seen.

use crate::{
    ArgumentBlock, Buffer, DeviceHandle, Error, LoadedProgram, Result, Scheduler, Value, control,
};
use girih_sync::{Condvar, Mutex, MutexGuard, fork};
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, PoisonError};

/// Host memory that a copy fills and its reader shares.
pub type HostBytes = Arc<Mutex<Box<[u8]>>>;

/// One primitive, as the scheduler runs it.
pub enum ControlBlock {
    /// Host bytes, owned by the copy, into device memory.
    CopyToDevice {
        /// The bytes.
        source: Box<[u8]>,
        /// Where they go.
        target: DeviceHandle,
        /// Keeps the target alive, where nothing else does.
        buffer: Option<Arc<Buffer>>,
    },
    /// Device memory into a host buffer that the reader shares.
    CopyFromDevice {
        /// Where the bytes are.
        source: DeviceHandle,
        /// Where they go; its length is the number of bytes.
        target: HostBytes,
        /// Keeps the source alive.
        buffer: Arc<Buffer>,
    },
    /// A loaded program with its arguments.
    Launch {
        /// The program.
        program: LoadedProgram,
        /// Its arguments, shared by the launches of one run.
        arguments: Arc<ArgumentBlock>,
    },
    /// Marks one record of an event as reached.
    Record(Arc<Completion>),
    /// Holds the queue until that record of an event is reached.
    Wait(Arc<Completion>),
}

impl fmt::Debug for ControlBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ControlBlock::CopyToDevice { .. } => "copy_to_device",
            ControlBlock::CopyFromDevice { .. } => "copy_from_device",
            ControlBlock::Launch { .. } => "launch",
            ControlBlock::Record(_) => "record",
            ControlBlock::Wait(_) => "wait",
        })
    }
}

/// The outcome of a submission, for anyone to wait on.
pub struct Completion {
    state: Mutex<Progress>,
    done: Condvar,
    /// Forks of the process before: in a later one nobody is left to bring the outcome.
    forks: u64,
}

#[derive(Default)]
struct Progress {
    result: Option<Result<()>>,
    then: Vec<Continuation>,
}

/// Called with the outcome before anybody else sees it.
type Continuation = Box<dyn FnOnce(&Result<()>) + Send>;

impl Completion {
    /// A completion that has not happened.
    pub fn pending() -> Arc<Completion> {
        let (state, done) = (Mutex::default(), Condvar::new());
        Arc::new(Completion { state, done, forks: fork::count() })
    }

    /// The outcome, if there is one yet.
    pub fn poll(&self) -> Option<Result<()>> {
        self.outcome(&self.lock())
    }

    /// What was under way when the process forked has failed in the child.
    fn outcome(&self, state: &Progress) -> Option<Result<()>> {
        let lost = || (self.forks != fork::count()).then_some(Err(Error::Forked));
        state.result.clone().or_else(lost)
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Each critical section leaves the state whole, also when it unwinds.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until there is an outcome.
    pub fn wait(&self) -> Result<()> {
        let mut state = self.lock();
        loop {
            match self.outcome(&state) {
                Some(outcome) => return outcome,
                None => state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Like [`Completion::wait`], but gives up when the user of this thread wants to stop.
    ///
    /// Errors: [`Error::Cancelled`] if it gave up; else the outcome's.
    pub fn wait_or_interrupt(&self) -> Result<()> {
        if !control::interruptible() {
            return self.wait();
        }
        let mut state = self.lock();
        loop {
            if let Some(outcome) = self.outcome(&state) {
                return outcome;
            }
            let (guard, timeout) = self
                .done
                .wait_timeout(state, control::POLL)
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if timeout.timed_out() {
                // Not while holding the lock: whoever brings the outcome must not wait for the hook.
                drop(state);
                if control::interrupted() {
                    return Err(Error::Cancelled { operation: "waiting for a run".into() });
                }
                state = self.lock();
            }
        }
    }

    /// Sets the outcome; the first one stays.
    pub fn finish(&self, outcome: Result<()>) {
        let then = std::mem::take(&mut self.lock().then);
        then.into_iter().for_each(|f| f(&outcome));
        let mut state = self.lock();
        state.result.get_or_insert(outcome);
        // Added while the others ran.
        let late = std::mem::take(&mut state.then);
        drop(state);
        self.done.notify_all();
        if !late.is_empty() {
            let outcome = self.wait();
            late.into_iter().for_each(|f| f(&outcome));
        }
    }

    /// Has `f` called with the outcome: by the thread that brings it, before those that wait go on;
    /// or at once if it is there already.
    pub fn then(&self, f: impl FnOnce(&Result<()>) + Send + 'static) {
        let mut state = self.lock();
        let Some(outcome) = state.result.clone() else { return state.then.push(Box::new(f)) };
        drop(state);
        f(&outcome);
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completion({:?})", self.poll())
    }
}

/// A point in a queue that other queues and the host can wait for. An event not yet recorded holds
/// nobody.
#[derive(Clone, Debug, Default)]
pub struct Event(Arc<Mutex<Option<Arc<Completion>>>>);

impl Event {
    /// An event that has not been recorded.
    pub fn new() -> Event {
        Event::default()
    }

    pub(crate) fn arm(&self) -> Arc<Completion> {
        let completion = Completion::pending();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(completion.clone());
        completion
    }

    pub(crate) fn recorded(&self) -> Option<Arc<Completion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if the last record so far has been reached, or there is none.
    pub fn query(&self) -> bool {
        self.recorded().is_none_or(|c| c.poll().is_some())
    }

    /// Blocks until the last record has been reached.
    pub fn synchronize(&self) {
        if let Some(completion) = self.recorded() {
            // Reaching the event is all that is asked; what failed before it is its queue's matter.
            let _ = completion.wait();
        }
    }
}

/// Blocks that run one after the other; the first failure cancels the rest.
pub(crate) struct Submission {
    pub blocks: SmallVec<[ControlBlock; 4]>,
    /// Submissions of other queues whose results this one reads.
    pub after: SmallVec<[Arc<Completion>; 2]>,
    pub completion: Arc<Completion>,
}

impl Submission {
    /// The arguments of the first launch: its run's.
    pub fn arguments(&self) -> Option<&Arc<ArgumentBlock>> {
        self.blocks.iter().find_map(|block| match block {
            ControlBlock::Launch { arguments, .. } => Some(arguments),
            _ => None,
        })
    }
}

/// A FIFO of primitives on one device. Everything but `synchronize` returns at once; there is no
/// order between queues but by events.
pub struct DeviceQueue {
    index: usize,
    scheduler: Arc<Scheduler>,
}

impl DeviceQueue {
    /// A new queue of the scheduler's device.
    pub fn new(scheduler: &Arc<Scheduler>) -> DeviceQueue {
        DeviceQueue { index: scheduler.add_queue(), scheduler: scheduler.clone() }
    }

    /// The queue's number, unique on its device while the queue lives.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The scheduler that drains the queue.
    pub fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    fn enqueue(&self, block: ControlBlock) -> Arc<Completion> {
        let completion = Completion::pending();
        self.submit(Submission {
            blocks: SmallVec::from_iter([block]),
            after: SmallVec::new(),
            completion: completion.clone(),
        });
        completion
    }

    pub(crate) fn submit(&self, submission: Submission) {
        self.scheduler.submit(self.index, submission);
    }

    pub(crate) fn submit_and_wait(&self, submission: Submission) -> Result<()> {
        self.scheduler.submit_and_wait(self.index, submission)
    }

    /// Copies `source` to the start of `buffer`.
    ///
    /// Errors: [`Error::InvalidHandle`] if the buffer is smaller than the source.
    pub fn copy_to_device(&self, source: Box<[u8]>, buffer: &Arc<Buffer>) -> Result<()> {
        buffer.check_size(source.len(), self.scheduler.device().as_ref())?;
        let (target, buffer) = (buffer.handle(), Some(buffer.clone()));
        self.enqueue(ControlBlock::CopyToDevice { source, target, buffer });
        Ok(())
    }

    /// Copies the first `size` bytes of a value to the host; read them when the completion is
    /// there.
    ///
    /// Errors: [`Error::InvalidHandle`] if the value holds fewer; [`Error::HostMemory`].
    pub fn copy_from_device(
        &self,
        value: &Value,
        size: usize,
    ) -> Result<(HostBytes, Arc<Completion>)> {
        let (target, block) = self.download(value, size)?;
        Ok((target, self.enqueue(block)))
    }

    /// The block that copies the first `size` bytes of a value to the host, and where they go.
    pub(crate) fn download(&self, value: &Value, size: usize) -> Result<(HostBytes, ControlBlock)> {
        value.check_size(size, self.scheduler.device().as_ref())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| Error::HostMemory { requested: size })?;
        bytes.resize(size, 0);
        let target = Arc::new(Mutex::new(bytes.into_boxed_slice()));
        let (source, buffer) = (value.handle(), value.buffer.clone());
        let block = ControlBlock::CopyFromDevice { source, target: target.clone(), buffer };
        Ok((target, block))
    }

    /// Launches a loaded program.
    pub fn launch(&self, program: LoadedProgram, arguments: Arc<ArgumentBlock>) -> Arc<Completion> {
        self.enqueue(ControlBlock::Launch { program, arguments })
    }

    /// Marks the event when everything enqueued so far is done.
    pub fn record(&self, event: &Event) {
        self.enqueue(ControlBlock::Record(event.arm()));
    }

    /// Holds what is enqueued from here on until the event's last record so far is reached; records
    /// made after this call hold nobody here.
    pub fn wait(&self, event: &Event) {
        if let Some(record) = event.recorded() {
            self.enqueue(ControlBlock::Wait(record));
        }
    }

    /// Blocks until everything enqueued so far is done.
    ///
    /// Errors: the first failure of the queue since the last call, with the operation that failed.
    pub fn synchronize(&self) -> Result<()> {
        self.scheduler.synchronize(self.index)
    }
}

impl Drop for DeviceQueue {
    fn drop(&mut self) {
        self.scheduler.remove_queue(self.index);
    }
}

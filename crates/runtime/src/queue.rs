//! Device queues: the primitive, asynchronous FIFOs of copies and launches, and the completions and
//! events by which their progress is seen.

use crate::gate::Gate;
use crate::primitive::Repeat;
use crate::{
    ArgumentBlock, Buffer, ControlBlock, Device, DeviceId, Error, LoadedProgram, Result, Scheduler,
    StridedCopy, Value, control,
};
use girih_sync::{Condvar, Mutex, MutexGuard, OnceLock, fork};
use smallvec::SmallVec;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Host memory that a copy fills and its reader shares.
pub type HostBytes = Arc<Mutex<Box<[u8]>>>;

/// Host memory of so many bytes, all 0.
///
/// Errors: [`Error::HostMemory`].
pub(crate) fn host_bytes(size: usize) -> Result<HostBytes> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| Error::HostMemory { requested: size })?;
    bytes.resize(size, 0);
    Ok(Arc::new(Mutex::new(bytes.into_boxed_slice())))
}

/// The outcome of a submission, for anyone to wait on.
pub struct Completion {
    state: Mutex<Progress>,
    done: Condvar,
    /// Somebody who waited has been given the failure.
    told: AtomicBool,
    /// The clock of the device that did the work when it was done.
    at: OnceLock<(DeviceId, Duration)>,
    /// Forks of the process before: in a later one nobody is left to bring the outcome.
    forks: u64,
}

#[derive(Default)]
struct Progress {
    result: Option<Result<()>>,
    then: Vec<Continuation>,
    /// Called when the outcome can be seen.
    wakers: Vec<Box<dyn FnOnce() + Send>>,
}

/// Called with the outcome before anybody else sees it.
type Continuation = Box<dyn FnOnce(&Result<()>) + Send>;

impl Completion {
    /// A completion that has not happened.
    pub fn pending() -> Arc<Completion> {
        let (state, done) = (Mutex::default(), Condvar::new());
        let told = AtomicBool::new(false);
        Arc::new(Completion { state, done, told, at: OnceLock::new(), forks: fork::count() })
    }

    /// Notes the device's clock when the work was done.
    pub(crate) fn done_at(&self, device: DeviceId, at: Duration) {
        let _ = self.at.set((device, at));
    }

    /// The device's clock when the work was done, if that device did it.
    pub(crate) fn time_on(&self, device: DeviceId) -> Option<Duration> {
        self.at.get().filter(|(by, _)| *by == device).map(|(_, at)| *at)
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

    /// Blocks until there is an outcome. A queue does not report a failure that was returned here at
    /// its next synchronise again.
    pub fn wait(&self) -> Result<()> {
        self.tell(self.wait_untold())
    }

    /// Notes that the caller is given a failure.
    fn tell(&self, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() {
            self.told.store(true, Relaxed);
        }
        outcome
    }

    /// Whether somebody who waited has been given the failure.
    pub(crate) fn told(&self) -> bool {
        self.told.load(Relaxed)
    }

    /// Blocks until there is an outcome; a failure stays to be reported.
    pub(crate) fn wait_untold(&self) -> Result<()> {
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
        self.tell(self.wait_untold_or_interrupt())
    }

    /// As [`Completion::wait_or_interrupt`]; a failure stays to be reported.
    pub(crate) fn wait_untold_or_interrupt(&self) -> Result<()> {
        let outcome = self.outcome(&self.lock());
        outcome.unwrap_or_else(|| control::waiting(|| self.block_or_interrupt()))
    }

    fn block_or_interrupt(&self) -> Result<()> {
        if !control::interruptible() {
            return self.wait_untold();
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
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.done.notify_all();
        wakers.into_iter().for_each(|wake| wake());
        if !late.is_empty() {
            let outcome = self.wait_untold();
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

    /// Has `wake` called as soon as the outcome can be seen; false, and no call, if it can be already.
    pub(crate) fn wake(&self, wake: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.lock();
        let pending = self.outcome(&state).is_none();
        if pending {
            state.wakers.push(Box::new(wake));
        }
        pending
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completion({:?})", self.poll())
    }
}

/// One record of an event: reached when everything enqueued before it is done.
#[derive(Debug)]
pub struct EventRecord {
    completion: Arc<Completion>,
    /// The device's clock when it was reached.
    at: OnceLock<Duration>,
}

impl EventRecord {
    fn new() -> Arc<EventRecord> {
        Arc::new(EventRecord { completion: Completion::pending(), at: OnceLock::new() })
    }

    pub(crate) fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }

    /// The device's clock when it was reached, if it was.
    pub(crate) fn reached_at(&self) -> Option<Duration> {
        self.at.get().copied()
    }

    /// The queue has come to it, at that time of the device's clock.
    pub(crate) fn reach(&self, at: Duration) {
        self.at.get_or_init(|| at);
        self.completion.finish(Ok(()));
    }
}

/// A point in a queue that other queues and the host can wait for. An event not yet recorded holds
/// nobody. A counted handle.
#[derive(Clone, Debug, Default)]
pub struct Event(Arc<Mutex<Option<Arc<EventRecord>>>>);

impl Event {
    /// An event that has not been recorded.
    pub fn new() -> Event {
        Event::default()
    }

    /// A new record of the event, for the queue that is to reach it.
    pub fn arm(&self) -> Arc<EventRecord> {
        let record = EventRecord::new();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.clone());
        record
    }

    /// The last record so far.
    pub fn recorded(&self) -> Option<Arc<EventRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if the last record so far has been reached, or there is none.
    pub fn query(&self) -> bool {
        self.recorded().is_none_or(|record| record.completion.poll().is_some())
    }

    /// Blocks until the last record has been reached.
    ///
    /// Errors: [`Error::Cancelled`] if the user of this thread interrupted the wait.
    pub fn synchronize(&self) -> Result<()> {
        match self.recorded().map(|record| record.completion.wait_or_interrupt()) {
            Some(Err(error @ Error::Cancelled { .. })) => Err(error),
            // Reaching the event is all that is asked; what failed before it is its queue's matter.
            _ => Ok(()),
        }
    }

    /// Time of the device's clock between the last records of this event and a later one; negative
    /// if the other was reached first.
    ///
    /// Errors: [`Error::EventNotReached`] if one of them has not been recorded, or not been reached.
    pub fn elapsed_seconds(&self, end: &Event) -> Result<f64> {
        let at = |event: &Event, which| {
            let record = event.recorded().ok_or(Error::EventNotReached { which, recorded: false });
            let reached = record?.at.get().copied();
            reached.ok_or(Error::EventNotReached { which, recorded: true })
        };
        let (start, end) = (at(self, "first")?, at(end, "second")?);
        Ok(end.as_secs_f64() - start.as_secs_f64())
    }
}

/// Blocks that run one after the other; the first failure cancels the rest.
pub(crate) struct Submission {
    pub blocks: SmallVec<[ControlBlock; 4]>,
    /// Submissions of other queues whose results this one reads.
    pub after: SmallVec<[Arc<Completion>; 2]>,
    pub completion: Arc<Completion>,
    /// Somebody waits for the outcome: it runs also after a failure of its queue.
    pub awaited: bool,
}

impl Submission {
    /// What must be done before this one can begin.
    pub fn dependencies(&self) -> impl Iterator<Item = &Arc<Completion>> {
        let waits = self.blocks.iter().filter_map(|block| match block {
            ControlBlock::Wait(record) => Some(record.completion()),
            _ => None,
        });
        self.after.iter().chain(waits)
    }

    /// True if running it would not wait for another queue.
    pub fn is_ready(&self) -> bool {
        self.dependencies().all(|completion| completion.poll().is_some())
    }

    /// The arguments of the first launch or loop: its run's.
    pub fn arguments(&self) -> Option<&Arc<ArgumentBlock>> {
        self.blocks.iter().find_map(|block| match block {
            ControlBlock::Launch { arguments, .. }
            | ControlBlock::Loop { arguments, .. }
            | ControlBlock::Repeat { arguments, .. } => Some(arguments),
            _ => None,
        })
    }
}

/// A FIFO of primitives on one device. Everything but `synchronize` returns at once; there is no
/// order between queues but by events.
pub struct DeviceQueue {
    index: usize,
    gate: Arc<Gate>,
    scheduler: Arc<Scheduler>,
}

impl DeviceQueue {
    /// A new queue of the scheduler's device, of priority 0.
    pub fn new(scheduler: &Arc<Scheduler>) -> DeviceQueue {
        DeviceQueue::with_priority(scheduler, 0)
    }

    /// A new queue of the scheduler's device. The policy [`crate::Policy::Priority`] serves queues of
    /// lower numbers first, as CUDA does.
    pub fn with_priority(scheduler: &Arc<Scheduler>, priority: i32) -> DeviceQueue {
        DeviceQueue::add(scheduler, priority, false)
    }

    fn add(scheduler: &Arc<Scheduler>, priority: i32, helper: bool) -> DeviceQueue {
        let (index, gate) = scheduler.add_queue(priority, helper);
        DeviceQueue { index, gate, scheduler: scheduler.clone() }
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
            awaited: false,
        });
        completion
    }

    pub(crate) fn submit(&self, submission: Submission) {
        self.scheduler.submit(self.index, submission);
    }

    pub(crate) fn submit_and_wait(&self, submission: Submission) -> Result<()> {
        self.scheduler.submit_and_wait(self.index, &self.gate, submission)
    }

    /// The device that the queue's work runs on.
    pub fn device(&self) -> &Arc<dyn Device> {
        self.scheduler.device()
    }

    /// Another queue of the same device, of priority 0, whose owner reports its failures.
    pub(crate) fn helper(&self) -> DeviceQueue {
        DeviceQueue::add(&self.scheduler, 0, true)
    }

    /// Runs `work` on this thread as if it were a submission, if nothing is enqueued before it and the
    /// device may begin one more; None otherwise.
    pub(crate) fn run_idle(
        &self,
        work: impl FnOnce(&dyn Device) -> Result<()>,
    ) -> Option<Result<()>> {
        self.scheduler.run_idle(self.index, &self.gate, work)
    }

    /// Copies `source` to the start of `buffer`.
    ///
    /// Errors: [`Error::InvalidHandle`] if the buffer is smaller than the source.
    pub fn copy_to_device(&self, source: Box<[u8]>, buffer: &Arc<Buffer>) -> Result<()> {
        buffer.check_size(source.len(), self.device().as_ref())?;
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
        value.check_size(size, self.device().as_ref())?;
        let target = host_bytes(size)?;
        let (source, buffer) = (value.handle(), Some(value.buffer.clone()));
        let block = ControlBlock::CopyFromDevice { source, target: target.clone(), buffer };
        Ok((target, block))
    }

    /// Copies between places of the device's memory, from and to where the offsets say.
    ///
    /// Errors: [`Error::InvalidHandle`] unless all bytes that are touched are the buffers'.
    pub fn copy_on_device(
        &self,
        source: (&Arc<Buffer>, usize),
        target: (&Arc<Buffer>, usize),
        run: usize,
        repeats: &[Repeat],
    ) -> Result<Arc<Completion>> {
        let device = self.device().as_ref();
        let (from, to) = (source.0.handle().offset(source.1), target.0.handle().offset(target.1));
        let copy = StridedCopy { source: from, target: to, run, repeats: repeats.into() };
        let (read, written) = copy.spans();
        for ((buffer, offset), span) in [(source, read), (target, written)] {
            buffer.at(offset, span, device)?;
        }
        let buffers = SmallVec::from([source.0.clone(), target.0.clone()]);
        Ok(self.enqueue(ControlBlock::CopyOnDevice { copy, buffers }))
    }

    /// Launches a loaded program.
    pub fn launch(&self, program: LoadedProgram, arguments: Arc<ArgumentBlock>) -> Arc<Completion> {
        self.enqueue(ControlBlock::Launch { program, arguments })
    }

    /// Marks the event when everything enqueued so far is done.
    pub fn record(&self, event: &Event) {
        self.enqueue_record(event.arm());
    }

    /// Reaches the record of an event when everything enqueued so far is done.
    pub fn enqueue_record(&self, record: Arc<EventRecord>) {
        self.enqueue(ControlBlock::Record(record));
    }

    /// Holds what is enqueued from here on until the event's last record so far is reached; records
    /// made after this call hold nobody here.
    pub fn wait(&self, event: &Event) {
        if let Some(record) = event.recorded() {
            self.enqueue_wait(record);
        }
    }

    /// Holds what is enqueued from here on until that record of an event is reached.
    pub fn enqueue_wait(&self, record: Arc<EventRecord>) {
        self.enqueue(ControlBlock::Wait(record));
    }

    /// Blocks until fewer than `most` (at least 1) of the queue's submissions have not begun, so that who
    /// enqueues faster than the device works takes no more and more memory.
    ///
    /// Errors: [`Error::Cancelled`] if the user of this thread interrupted the wait.
    pub fn wait_for_room(&self, most: usize) -> Result<()> {
        self.scheduler.wait_for_room(self.index, most.max(1))
    }

    /// Whether everything enqueued so far is done.
    pub fn query(&self) -> bool {
        self.scheduler.is_idle(self.index)
    }

    /// Blocks until everything enqueued so far is done.
    ///
    /// Errors: the first failure of the queue since the last call, with the operation that failed,
    /// unless somebody who waited for that operation has been given it. Until then nothing that was
    /// enqueued behind the failure runs, except what somebody waits for.
    pub fn synchronize(&self) -> Result<()> {
        self.scheduler.synchronize(self.index)
    }
}

impl Drop for DeviceQueue {
    fn drop(&mut self) {
        self.scheduler.remove_queue(self.index);
    }
}

//! Device queues, which are asynchronous FIFOs of primitives, and the completions and events that
//! report their progress.

#[cfg(test)]
use crate::LoadedProgram;
use crate::gate::Gate;
use crate::primitive::{ControlBlock, Lane, Repeat, Runs, StridedCopy};
use crate::progress::Progress;
use crate::{
    ArgumentBlock, Buffer, Device, DeviceId, Error, LoadedPlan, Result, Scheduler, Value, control,
};
use girih_sync::{Condvar, Mutex, MutexGuard, OnceLock, fork};
use smallvec::SmallVec;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Host memory that a copy fills and a reader shares.
pub type HostBytes = Arc<Mutex<Box<[u8]>>>;

/// Host memory of `size` zero bytes.
///
/// Errors: [`Error::HostMemory`].
pub(crate) fn host_bytes(size: usize) -> Result<HostBytes> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| Error::HostMemory { requested: size })?;
    bytes.resize(size, 0);
    Ok(Arc::new(Mutex::new(bytes.into_boxed_slice())))
}

/// The outcome of a submission. Any thread may wait for it.
pub struct Completion {
    state: Mutex<State>,
    done: Condvar,
    /// Whether a waiting thread has received the failure.
    reported: AtomicBool,
    /// The device that did the work, and its clock when the work was done.
    at: OnceLock<(DeviceId, Duration)>,
    /// The process's fork count at creation. After a fork, no thread of the child delivers the
    /// outcome.
    forks: u64,
}

#[derive(Default)]
struct State {
    result: Option<Result<()>>,
    then: Vec<Continuation>,
    /// Called once the outcome is visible.
    wakers: Vec<Box<dyn FnOnce() + Send>>,
}

/// Called with the outcome before the outcome is visible to others.
type Continuation = Box<dyn FnOnce(&Result<()>) + Send>;

impl Completion {
    /// A completion without an outcome yet.
    pub fn pending() -> Arc<Completion> {
        let (state, done) = (Mutex::default(), Condvar::new());
        let reported = AtomicBool::new(false);
        Arc::new(Completion { state, done, reported, at: OnceLock::new(), forks: fork::count() })
    }

    /// Records the device's clock at the end of the work.
    pub(crate) fn done_at(&self, device: DeviceId, at: Duration) {
        let _ = self.at.set((device, at));
    }

    /// The device's clock at the end of the work, if that device did the work.
    pub(crate) fn time_on(&self, device: DeviceId) -> Option<Duration> {
        self.at.get().filter(|(by, _)| *by == device).map(|(_, at)| *at)
    }

    /// The outcome, if there is one yet.
    pub fn poll(&self) -> Option<Result<()>> {
        self.outcome(&self.lock())
    }

    /// The outcome. Work that was under way when the process forked fails in the child.
    fn outcome(&self, state: &State) -> Option<Result<()>> {
        let lost = || (self.forks != fork::count()).then_some(Err(Error::Forked));
        state.result.clone().or_else(lost)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each critical section leaves the state consistent, even if it panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until there is an outcome. The queue's next synchronise does not report a failure
    /// that this call returned.
    pub fn wait(&self) -> Result<()> {
        self.report(self.wait_unreported())
    }

    /// Records that the caller receives a failure.
    fn report(&self, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() {
            self.reported.store(true, Relaxed);
        }
        outcome
    }

    /// Whether a waiting thread has received the failure.
    pub(crate) fn is_reported(&self) -> bool {
        self.reported.load(Relaxed)
    }

    /// Blocks until there is an outcome. The queue still reports a failure.
    pub(crate) fn wait_unreported(&self) -> Result<()> {
        let mut state = self.lock();
        loop {
            match self.outcome(&state) {
                Some(outcome) => return outcome,
                None => state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Like [`Completion::wait`], but stops waiting when the user of this thread interrupts.
    ///
    /// Errors: [`Error::Cancelled`] after an interruption; else the outcome's.
    pub fn wait_or_interrupt(&self) -> Result<()> {
        self.report(self.wait_unreported_or_interrupt())
    }

    /// As [`Completion::wait_or_interrupt`], but the queue still reports a failure.
    pub(crate) fn wait_unreported_or_interrupt(&self) -> Result<()> {
        let outcome = self.outcome(&self.lock());
        outcome.unwrap_or_else(|| {
            control::check_nested("waiting for a run")?;
            control::waiting(|| self.block_or_interrupt())
        })
    }

    fn block_or_interrupt(&self) -> Result<()> {
        if !control::interruptible() {
            return self.wait_unreported();
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
                // Do not hold the lock: the thread that delivers the outcome must not wait for the
                // hook.
                drop(state);
                if control::interrupted() {
                    return Err(Error::Cancelled { operation: "waiting for a run".into() });
                }
                state = self.lock();
            }
        }
    }

    /// Sets the outcome. Later calls have no effect.
    pub fn finish(&self, outcome: Result<()>) {
        let then = std::mem::take(&mut self.lock().then);
        then.into_iter().for_each(|f| f(&outcome));
        let mut state = self.lock();
        state.result.get_or_insert(outcome);
        // Continuations that were added while the others ran.
        let late = std::mem::take(&mut state.then);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.done.notify_all();
        wakers.into_iter().for_each(|wake| wake());
        if !late.is_empty() {
            let outcome = self.wait_unreported();
            late.into_iter().for_each(|f| f(&outcome));
        }
    }

    /// Calls `f` with the outcome: on the thread that delivers it, before waiting threads continue;
    /// or immediately if there is an outcome already.
    pub fn then(&self, f: impl FnOnce(&Result<()>) + Send + 'static) {
        let mut state = self.lock();
        let Some(outcome) = state.result.clone() else { return state.then.push(Box::new(f)) };
        drop(state);
        f(&outcome);
    }

    /// Calls `wake` once the outcome is visible. Returns false, without a call, if it is visible
    /// already.
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

/// One record of an event, reached when everything enqueued before it is done.
#[derive(Debug)]
pub struct EventRecord {
    completion: Arc<Completion>,
    /// The device's clock when the record was reached.
    at: OnceLock<Duration>,
}

impl EventRecord {
    fn new() -> Arc<EventRecord> {
        Arc::new(EventRecord { completion: Completion::pending(), at: OnceLock::new() })
    }

    pub(crate) fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }

    /// The device's clock when the record was reached; `None` before that.
    pub(crate) fn reached_at(&self) -> Option<Duration> {
        self.at.get().copied()
    }

    /// Marks the record as reached, at that time of the device's clock.
    pub(crate) fn reach(&self, at: Duration) {
        self.at.get_or_init(|| at);
        self.completion.finish(Ok(()));
    }
}

/// A point in a queue that other queues and the host can wait for. Waiting for an event that has
/// not been recorded returns immediately. A reference-counted handle.
#[derive(Clone, Debug, Default)]
pub struct Event(Arc<Mutex<Option<Arc<EventRecord>>>>);

impl Event {
    /// An event that has not been recorded.
    pub fn new() -> Event {
        Event::default()
    }

    /// Makes a new record of the event, which a queue has to reach.
    pub fn arm(&self) -> Arc<EventRecord> {
        let record = EventRecord::new();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.clone());
        record
    }

    /// The latest record.
    pub fn recorded(&self) -> Option<Arc<EventRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the latest record has been reached; true if there is none.
    pub fn query(&self) -> bool {
        self.recorded().is_none_or(|record| record.completion.poll().is_some())
    }

    /// Blocks until the latest record has been reached.
    ///
    /// Errors: [`Error::Cancelled`] if the user of this thread interrupted the wait.
    pub fn synchronize(&self) -> Result<()> {
        match self.recorded().map(|record| record.completion.wait_or_interrupt()) {
            Some(Err(error @ (Error::Cancelled { .. } | Error::Nested(_)))) => Err(error),
            // The event only marks a point of its queue; that queue reports failures before the
            // event.
            _ => Ok(()),
        }
    }

    /// The time in seconds of the device's clock from the latest record of this event to that of
    /// `end`; negative if `end` was reached first.
    ///
    /// Errors: [`Error::EventNotReached`] if one of the events has not been recorded or not been
    /// reached.
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

/// Control blocks that run in order; the first failure cancels the rest.
pub(crate) struct Submission {
    pub blocks: SmallVec<[ControlBlock; 4]>,
    /// Submissions of other queues on whose results this one depends.
    pub after: SmallVec<[Arc<Completion>; 2]>,
    pub completion: Arc<Completion>,
    /// Whether a thread waits for the outcome: then the submission runs even after a failure of its
    /// queue.
    pub awaited: bool,
    /// How far the submission has come.
    pub progress: Progress,
}

impl Submission {
    /// A submission of these blocks, which does not depend on other queues.
    pub fn new(blocks: SmallVec<[ControlBlock; 4]>, completion: Arc<Completion>) -> Submission {
        let (after, progress) = (SmallVec::new(), Progress::default());
        Submission { blocks, after, completion, awaited: false, progress }
    }

    /// The completions that this submission has to wait for.
    pub fn dependencies(&self) -> impl Iterator<Item = &Arc<Completion>> {
        let waits = self.blocks.iter().filter_map(|block| match block {
            ControlBlock::Wait(record) => Some(record.completion()),
            _ => None,
        });
        self.after.iter().chain(waits)
    }

    /// Whether the submission can run without waiting for another queue.
    pub fn is_ready(&self) -> bool {
        self.dependencies().all(|completion| completion.poll().is_some())
    }

    /// The arguments of the first launch or loop, which are the arguments of the run.
    pub fn arguments(&self) -> Option<&Arc<ArgumentBlock>> {
        self.blocks.iter().find_map(|block| match block {
            ControlBlock::Launch { arguments, .. }
            | ControlBlock::Loop { arguments, .. }
            | ControlBlock::Repeat { arguments, .. } => Some(arguments),
            _ => None,
        })
    }
}

/// A FIFO of primitives on one device. Nothing but `synchronize` and `wait_for_room` blocks. Only
/// events order the work of different queues.
pub struct DeviceQueue {
    index: usize,
    gate: Arc<Gate>,
    scheduler: Arc<Scheduler>,
}

impl DeviceQueue {
    /// A new queue of the scheduler's device, with priority 0.
    pub fn new(scheduler: &Arc<Scheduler>) -> DeviceQueue {
        DeviceQueue::with_priority(scheduler, 0)
    }

    /// A new queue of the scheduler's device. The default policy serves queues with lower numbers
    /// first, as CUDA does.
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
        self.submit(Submission::new(SmallVec::from_iter([block]), completion.clone()));
        completion
    }

    pub(crate) fn submit(&self, submission: Submission) {
        self.scheduler.submit(self.index, submission);
    }

    pub(crate) fn submit_and_wait(&self, submission: Submission) -> Result<()> {
        self.scheduler.submit_and_wait(self.index, &self.gate, submission)
    }

    /// The device that runs the queue's work.
    pub fn device(&self) -> &Arc<dyn Device> {
        self.scheduler.device()
    }

    /// The queue for a thread that runs its work.
    pub(crate) fn lane(&self) -> Lane<'_> {
        Lane { device: self.device(), queue: self.index, gate: &self.gate }
    }

    /// A new queue of the same device, with priority 0, whose owner reports its failures.
    pub(crate) fn helper(&self) -> DeviceQueue {
        DeviceQueue::add(&self.scheduler, 0, true)
    }

    /// Runs `work` on this thread as if it were a submission, if the queue is empty and the device
    /// may start another submission; else returns `None`.
    pub(crate) fn run_idle(
        &self,
        work: impl FnOnce(&Lane<'_>) -> Result<()>,
    ) -> Option<Result<()>> {
        self.scheduler.run_idle(self.index, &self.gate, work)
    }

    /// Copies `source` to the start of `buffer`.
    ///
    /// Errors: [`Error::InvalidHandle`] if the buffer is smaller than the source.
    pub fn copy_to_device(&self, source: Box<[u8]>, buffer: &Arc<Buffer>) -> Result<()> {
        let target = buffer.span(0, source.len(), self.device().as_ref())?;
        let buffer = Some(buffer.clone());
        self.enqueue(ControlBlock::CopyToDevice { source, target, buffer });
        Ok(())
    }

    /// Copies the first `size` bytes of a value to the host. The bytes are valid once the
    /// completion has an outcome.
    ///
    /// Errors: [`Error::InvalidHandle`] if the value has fewer bytes; [`Error::HostMemory`].
    pub fn copy_from_device(
        &self,
        value: &Value,
        size: usize,
    ) -> Result<(HostBytes, Arc<Completion>)> {
        let source = value.span(size, self.device().as_ref())?;
        let (target, buffer) = (host_bytes(size)?, Some(value.buffer().clone()));
        let block = ControlBlock::CopyFromDevice { source, target: target.clone(), buffer };
        Ok((target, self.enqueue(block)))
    }

    /// Copies within the device's memory, from and to the given buffers and offsets in bytes.
    ///
    /// Errors: [`Error::InvalidHandle`] unless all accessed bytes belong to the buffers.
    pub fn copy_on_device(
        &self,
        source: (&Arc<Buffer>, usize),
        target: (&Arc<Buffer>, usize),
        run: usize,
        repeats: &[Repeat],
    ) -> Result<Arc<Completion>> {
        let device = self.device().as_ref();
        let runs = Runs { run, repeats: repeats.into() };
        let (read, written) = runs.spans();
        let from = source.0.span(source.1, read, device)?;
        let to = target.0.span(target.1, written, device)?;
        let buffers = SmallVec::from([source.0.clone(), target.0.clone()]);
        let copy = StridedCopy { source: from, target: to, runs };
        Ok(self.enqueue(ControlBlock::CopyOnDevice { copy, buffers }))
    }

    /// Launches a loaded program of the plan that the arguments were bound for.
    ///
    /// Errors: [`Error::OtherPlan`] for arguments of another plan; [`Error::NotLoaded`] for a number
    /// that no program of the plan has.
    pub fn launch(
        &self,
        plan: &LoadedPlan,
        program: usize,
        arguments: &Arc<ArgumentBlock>,
    ) -> Result<Arc<Completion>> {
        arguments.check_plan(plan)?;
        let loaded = plan.programs.get(program).ok_or(Error::NotLoaded { index: program })?.clone();
        let arguments = arguments.clone();
        Ok(self.enqueue(ControlBlock::Launch { program: loaded, arguments }))
    }

    /// Launches a program of no plan.
    #[cfg(test)]
    pub(crate) fn launch_program(
        &self,
        program: LoadedProgram,
        arguments: Arc<ArgumentBlock>,
    ) -> Arc<Completion> {
        self.enqueue(ControlBlock::Launch { program, arguments })
    }

    /// Records the event: it is reached when everything enqueued so far is done.
    pub fn record(&self, event: &Event) {
        self.enqueue_record(event.arm());
    }

    /// Enqueues a record of an event, which is reached when everything enqueued so far is done.
    pub fn enqueue_record(&self, record: Arc<EventRecord>) {
        self.enqueue(ControlBlock::Record(record));
    }

    /// Blocks later submissions of this queue until the event's current record is reached. Later
    /// records of the event have no effect on this call.
    pub fn wait(&self, event: &Event) {
        if let Some(record) = event.recorded() {
            self.enqueue_wait(record);
        }
    }

    /// Blocks later submissions of this queue until that record of an event is reached.
    pub fn enqueue_wait(&self, record: Arc<EventRecord>) {
        self.enqueue(ControlBlock::Wait(record));
    }

    /// Back-pressure: blocks until fewer than `most` (at least 1) submissions of the queue have not
    /// begun, so that a caller that enqueues faster than the device works does not use unbounded
    /// memory.
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
    /// unless a thread that waited for that operation has received it. Until this call, no
    /// submission after the failure runs, except those that a thread waits for.
    pub fn synchronize(&self) -> Result<()> {
        self.scheduler.synchronize(self.index)
    }
}

impl Drop for DeviceQueue {
    fn drop(&mut self) {
        self.scheduler.remove_queue(self.index);
    }
}

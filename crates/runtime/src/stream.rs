//! Streams: ordered submission of operations on tensors. A stream owns one device queue and lowers
//! each operation of a plan to primitives of that queue.

use crate::primitive::Lane;
use crate::queue::{Submission, host_bytes};
use crate::step::{Blocks, Lowering};
use crate::{
    ArgumentBlock, Completion, Device, DeviceQueue, Error, HostStep, LoadedPlan, Operands,
    Operation, Result, Scheduler, Step, Value,
};
use smallvec::SmallVec;
use std::slice;
use std::sync::{Arc, PoisonError};

/// An ordered, asynchronous sequence of operations on one device.
pub struct Stream {
    queue: DeviceQueue,
}

impl Stream {
    /// A new stream of the scheduler's device.
    pub fn new(scheduler: &Arc<Scheduler>) -> Stream {
        Stream::with_priority(scheduler, 0)
    }

    /// A new stream of the scheduler's device; see [`DeviceQueue::with_priority`] for the priority.
    pub fn with_priority(scheduler: &Arc<Scheduler>, priority: i32) -> Stream {
        Stream { queue: DeviceQueue::with_priority(scheduler, priority) }
    }

    /// The stream's queue of primitives, for copies and events.
    pub fn queue(&self) -> &DeviceQueue {
        &self.queue
    }

    /// A new stream of the same device, with priority 0, whose owner reports its failures.
    pub(crate) fn helper(&self) -> Stream {
        Stream { queue: self.queue.helper() }
    }

    /// Submits one operation without waiting.
    ///
    /// Errors: [`Error::OtherPlan`] for arguments that were bound for another plan;
    /// [`Error::Compile`] for an operation that does not fit the plan; [`Error::InvalidHandle`] for
    /// tensors of other devices, or with fewer bytes than a step accesses.
    pub fn launch(&self, operation: &Operation, operands: Operands<'_>) -> Result<Arc<Completion>> {
        if let Operands::Plan(plan, _) = operands
            && !plan.operations.iter().any(|own| std::ptr::eq(own, operation))
        {
            let mut defects = Vec::new();
            operation.defects(plan, &mut defects);
            if !defects.is_empty() {
                return Err(Error::Compile(defects.join("; ")));
            }
        }
        let mut batch = self.batch();
        Lowering::new(batch.device, operands)?.operation(operation, &mut batch.blocks)?;
        Ok(batch.submit(self, []))
    }

    /// An empty batch of operations of this stream's device.
    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch { device: self.queue.device().as_ref(), blocks: Blocks::new(), awaited: false }
    }

    /// Submits every operation of a loaded plan as one unit: the first failure cancels the rest.
    /// With `wait`, returns when all are done. The outcome is stored in `completion` in both cases.
    /// The plan starts when everything in `after` is done.
    ///
    /// Errors: [`Error::OtherPlan`] for arguments that were bound for another plan; with `wait`, the
    /// failure of the run.
    pub fn run(
        &self,
        plan: &LoadedPlan,
        arguments: &Arc<ArgumentBlock>,
        after: SmallVec<[Arc<Completion>; 2]>,
        completion: Arc<Completion>,
        wait: bool,
    ) -> Result<()> {
        let mut batch = self.batch();
        batch.plan(plan, arguments)?;
        let work = Submission { after, ..Submission::new(batch.blocks, completion) };
        match wait {
            true => self.queue.submit_and_wait(work),
            false => {
                self.queue.submit(work);
                Ok(())
            }
        }
    }

    /// Runs every operation of a loaded plan on this thread, if the queue is empty and the plan
    /// only launches and copies constant bytes; else returns `None`.
    ///
    /// Errors: [`Error::OtherPlan`] for arguments that were bound for another plan; the failure of
    /// the run.
    pub fn run_idle(&self, plan: &LoadedPlan, arguments: &ArgumentBlock) -> Option<Result<()>> {
        if !plan.facts.simple {
            return None;
        }
        if let Err(error) = arguments.check_plan(plan) {
            return Some(Err(error));
        }
        self.queue.run_idle(|lane| {
            let mut at = 0;
            let mut launch = |index: usize| {
                at += 1;
                let program = plan.programs.get(index).ok_or(Error::NotLoaded { index })?;
                lane.launch(program, arguments, at - 1)?.wait()
            };
            for operation in &plan.operations {
                for step in &operation.steps {
                    match step {
                        Step::Launch(program) => launch(*program)?,
                        Step::CopyToDevice { source, buffer } => {
                            let target = arguments.span(plan, *buffer, lane.device.as_ref())?;
                            lane.copy_to_device(source, target.place())?.wait()?;
                        }
                        _ => unreachable!("simple plans have no other steps"),
                    }
                }
                operation.compute.map_or(Ok(()), &mut launch)?;
            }
            Ok(())
        })
    }

    /// Copies `size` bytes of a value to the host, after earlier submissions, and waits.
    ///
    /// Errors: [`Error::InvalidHandle`] if the value has fewer bytes; [`Error::HostMemory`].
    pub fn download(&self, value: &Value, size: usize) -> Result<Box<[u8]>> {
        let target = host_bytes(size)?;
        let operands = Operands::Tensors(slice::from_ref(value), slice::from_ref(&target));
        self.run_once(Operation::copy_from_device(), operands)?;
        let mut bytes = target.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *bytes))
    }

    /// Runs one operation, and waits for it.
    pub(crate) fn run_once(&self, operation: Operation, operands: Operands<'_>) -> Result<()> {
        let mut batch = self.batch();
        batch.add(operation, operands)?;
        self.queue.submit_and_wait(Submission::new(batch.blocks, Completion::pending()))
    }

    /// Copies the caller's bytes to an offset of a value on this thread, if the queue is empty; else
    /// returns `None`.
    ///
    /// Errors: [`Error::InvalidHandle`] if the value has fewer bytes; the failure of the copy.
    pub(crate) fn copy_idle(&self, bytes: &[u8], target: &Value, at: usize) -> Option<Result<()>> {
        self.queue.run_idle(|lane| copy_now(lane, bytes, target, at))
    }

    /// As [`Stream::copy_idle`], on a thread that runs work of the device: the copy is part of that
    /// work.
    pub(crate) fn copy_inside(&self, bytes: &[u8], target: &Value, at: usize) -> Result<()> {
        copy_now(&self.queue.lane(), bytes, target, at)
    }

    /// Blocks until everything submitted so far is done.
    ///
    /// Errors: the first failure since the last call.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.synchronize()
    }
}

fn copy_now(lane: &Lane<'_>, bytes: &[u8], target: &Value, at: usize) -> Result<()> {
    let target = target.skip(at).span(bytes.len(), lane.device.as_ref())?;
    lane.copy_to_device(bytes, target.place())?.wait()
}

/// Operations that are submitted as one unit: the first failure cancels the rest.
pub(crate) struct Batch<'a> {
    device: &'a dyn Device,
    blocks: Blocks,
    awaited: bool,
}

impl Batch<'_> {
    /// Appends an operation.
    ///
    /// Errors: as [`Stream::launch`].
    pub fn add(&mut self, operation: Operation, operands: Operands<'_>) -> Result<()> {
        Lowering::new(self.device, operands)?.operation_once(operation, &mut self.blocks)
    }

    /// Appends every operation of a plan.
    ///
    /// Errors: [`Error::OtherPlan`] for arguments that were bound for another plan.
    pub fn plan(&mut self, plan: &LoadedPlan, arguments: &Arc<ArgumentBlock>) -> Result<()> {
        let lowering = Lowering::new(self.device, Operands::Plan(plan, arguments))?;
        plan.operations.iter().try_for_each(|o| lowering.operation(o, &mut self.blocks))
    }

    /// Appends a function of the host.
    pub fn host(
        &mut self,
        name: &str,
        run: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        let step = Step::Host(HostStep::new(name, move |_| run()));
        self.add(Operation::steps(name, [step]), Operands::Tensors(&[], &[]))
    }

    /// Runs the batch even after a failure of its stream, because somebody waits for its outcome.
    pub fn awaited(self) -> Self {
        Batch { awaited: true, ..self }
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Submits the batch to a stream. It starts when everything in `after` is done.
    pub fn submit(
        self,
        stream: &Stream,
        after: impl IntoIterator<Item = Arc<Completion>>,
    ) -> Arc<Completion> {
        let completion = Completion::pending();
        self.submit_as(stream, after, completion.clone());
        completion
    }

    /// As [`Batch::submit`], with a completion of the caller.
    pub fn submit_as(
        self,
        stream: &Stream,
        after: impl IntoIterator<Item = Arc<Completion>>,
        completion: Arc<Completion>,
    ) {
        let (after, awaited) = (after.into_iter().collect(), self.awaited);
        let work = Submission { after, awaited, ..Submission::new(self.blocks, completion) };
        stream.queue.submit(work);
    }
}

//! Streams: ordered submission of operations on tensors. A stream owns one device queue and lowers
//! each operation of a plan to primitives of that queue.

use crate::primitive::ControlBlock;
use crate::queue::Submission;
use crate::step::Lowering;
use crate::{
    ArgumentBlock, Completion, DeviceQueue, Error, LoadedPlan, Operation, Result, Scheduler, Step,
    Value,
};
use smallvec::SmallVec;
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

    /// Submits one operation of a loaded plan without waiting.
    ///
    /// Errors: [`Error::OtherPlan`] for arguments that were bound for another plan;
    /// [`Error::Compile`] for an operation that does not fit the plan.
    pub fn launch(
        &self,
        plan: &LoadedPlan,
        operation: &Operation,
        arguments: &Arc<ArgumentBlock>,
    ) -> Result<Arc<Completion>> {
        let own = plan.operations.iter().any(|own| std::ptr::eq(own, operation));
        let mut defects = Vec::new();
        if !own {
            operation.defects(plan, &mut defects);
        }
        if !defects.is_empty() {
            return Err(Error::Compile(defects.join("; ")));
        }
        let completion = Completion::pending();
        let mut blocks = SmallVec::new();
        self.lowering(plan, arguments)?.operation(operation, &mut blocks)?;
        self.queue.submit(Submission::new(blocks, completion.clone()));
        Ok(completion)
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
        let lowering = self.lowering(plan, arguments)?;
        let mut blocks = SmallVec::new();
        for operation in &plan.operations {
            lowering.operation(operation, &mut blocks)?;
        }
        let work = Submission { after, ..Submission::new(blocks, completion) };
        if wait {
            self.queue.submit_and_wait(work)
        } else {
            self.queue.submit(work);
            Ok(())
        }
    }

    fn lowering<'a>(
        &'a self,
        plan: &'a LoadedPlan,
        arguments: &'a Arc<ArgumentBlock>,
    ) -> Result<Lowering<'a>> {
        arguments.check_plan(plan)?;
        Ok(Lowering { plan, device: self.queue.device().as_ref(), arguments })
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
        let (target, block) = self.queue.download(value, size)?;
        self.copy(block)?;
        let mut bytes = target.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *bytes))
    }

    fn copy(&self, block: ControlBlock) -> Result<()> {
        let blocks = SmallVec::from_iter([block]);
        self.queue.submit_and_wait(Submission::new(blocks, Completion::pending()))
    }

    /// Blocks until everything submitted so far is done.
    ///
    /// Errors: the first failure since the last call.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.synchronize()
    }
}

//! Streams: ordered submission of operations on tensors. A stream owns one device queue and turns
//! each operation of a plan into that queue's primitives.

use crate::queue::Submission;
use crate::{
    ArgumentBlock, Completion, ControlBlock, DeviceHandle, DeviceQueue, Error, ExecutionPlan,
    Operation, Result, Scheduler, Step, Value, scheduler,
};
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};

/// Ordered, asynchronous submission of operations to one device.
pub struct Stream {
    queue: DeviceQueue,
}

impl Stream {
    /// A new stream of the scheduler's device.
    pub fn new(scheduler: &Arc<Scheduler>) -> Stream {
        Stream::with_priority(scheduler, 0)
    }

    /// A new stream of the scheduler's device; see [`DeviceQueue::with_priority`].
    pub fn with_priority(scheduler: &Arc<Scheduler>, priority: i32) -> Stream {
        Stream { queue: DeviceQueue::with_priority(scheduler, priority) }
    }

    /// The primitive queue underneath, for copies and events.
    pub fn queue(&self) -> &DeviceQueue {
        &self.queue
    }

    /// Submits one operation of a loaded plan and returns at once.
    ///
    /// Errors: [`Error::NotLoaded`].
    pub fn launch(
        &self,
        plan: &ExecutionPlan,
        operation: &Operation,
        arguments: &Arc<ArgumentBlock>,
    ) -> Result<Arc<Completion>> {
        let completion = Completion::pending();
        let mut blocks = SmallVec::new();
        lower(plan, operation, arguments, &mut blocks)?;
        self.queue.submit(Submission {
            blocks,
            after: SmallVec::new(),
            completion: completion.clone(),
            awaited: false,
        });
        Ok(completion)
    }

    /// Submits every operation of a loaded plan as one unit: the first failure cancels the rest.
    /// With `wait` it returns when all are done, else at once; the outcome is in `completion`
    /// either way. The plan starts when everything in `after` is done.
    ///
    /// Errors: [`Error::NotLoaded`]; with `wait`, whatever the run fails with.
    pub fn run(
        &self,
        plan: &ExecutionPlan,
        arguments: &Arc<ArgumentBlock>,
        after: SmallVec<[Arc<Completion>; 2]>,
        completion: Arc<Completion>,
        wait: bool,
    ) -> Result<()> {
        let mut blocks = SmallVec::new();
        for operation in &plan.operations {
            lower(plan, operation, arguments, &mut blocks)?;
        }
        let work = Submission { blocks, after, completion, awaited: false };
        if wait {
            self.queue.submit_and_wait(work)
        } else {
            self.queue.submit(work);
            Ok(())
        }
    }

    /// Runs every operation of a loaded plan at once on this thread, if nothing is queued or running
    /// before it; None if something is.
    ///
    /// Errors: [`Error::NotLoaded`]; whatever the run fails with.
    pub fn run_idle(&self, plan: &ExecutionPlan, arguments: &ArgumentBlock) -> Option<Result<()>> {
        let queue = self.queue.index();
        self.queue.scheduler().run_idle(queue, |device| {
            let mut at = 0;
            let mut launch = |index: usize| {
                at += 1;
                let program = plan.programs.get(index).ok_or(Error::NotLoaded { index })?;
                scheduler::launch(device, queue, program, arguments, at - 1)
            };
            for operation in &plan.operations {
                for step in &operation.steps {
                    match step {
                        Step::Launch(program) => launch(*program)?,
                        Step::CopyToDevice { source, buffer } => {
                            let target = arguments.addresses[*buffer];
                            let target = DeviceHandle::physical(target);
                            scheduler::copy_to_device(device, Some(queue), source, target)?;
                        }
                    }
                }
                operation.compute.map_or(Ok(()), &mut launch)?;
            }
            Ok(())
        })
    }

    /// Copies `size` bytes of a value to the host, after what was submitted before, and waits.
    ///
    /// Errors: [`Error::InvalidHandle`] if the value holds fewer; [`Error::HostMemory`].
    pub fn download(&self, value: &Value, size: usize) -> Result<Box<[u8]>> {
        let (target, block) = self.queue.download(value, size)?;
        self.copy(block)?;
        let mut bytes = target.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *bytes))
    }

    fn copy(&self, block: ControlBlock) -> Result<()> {
        self.queue.submit_and_wait(Submission {
            blocks: SmallVec::from_iter([block]),
            after: SmallVec::new(),
            completion: Completion::pending(),
            awaited: true,
        })
    }

    /// Blocks until everything submitted so far is done.
    ///
    /// Errors: the first failure since the last call.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.synchronize()
    }
}

/// An operation as primitives: its steps in order, then its compute.
fn lower(
    plan: &ExecutionPlan,
    operation: &Operation,
    arguments: &Arc<ArgumentBlock>,
    blocks: &mut SmallVec<[ControlBlock; 4]>,
) -> Result<()> {
    let launch = |index: usize| match plan.programs.get(index) {
        Some(program) => {
            Ok(ControlBlock::Launch { program: program.clone(), arguments: arguments.clone() })
        }
        None => Err(Error::NotLoaded { index }),
    };
    for step in &operation.steps {
        blocks.push(match step {
            Step::Launch(program) => launch(*program)?,
            Step::CopyToDevice { source, buffer } => ControlBlock::CopyToDevice {
                source: source.clone(),
                target: DeviceHandle::physical(arguments.addresses[*buffer]),
                buffer: None,
            },
        });
    }
    if let Some(program) = operation.compute {
        blocks.push(launch(program)?);
    }
    Ok(())
}

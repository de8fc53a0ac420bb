//! The lowering of operations to the control blocks of a queue.

use super::{MovingPart, Operation, Step};
use crate::handle::{Span, invalid};
use crate::primitive::{ControlBlock, Iteration, MovingHandle, Runs, StridedCopy};
use crate::queue::HostBytes;
use crate::{
    ArgumentBlock, Buffer, Device, DeviceHandle, DeviceId, Error, ExecutionPlan, LoadedPlan,
    Result, Value,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// The memory that the steps of an operation name by numbers.
#[derive(Clone, Copy)]
pub enum Operands<'a> {
    /// The buffers and slots of a loaded plan, as they were bound for a run.
    Plan(&'a LoadedPlan, &'a Arc<ArgumentBlock>),
    /// Tensors as buffers, and host memory as slots. There are no programs.
    Tensors(&'a [Value], &'a [HostBytes]),
}

/// Lowers operations to control blocks.
pub(crate) struct Lowering<'a> {
    device: &'a dyn Device,
    memory: Memory<'a>,
}

/// As [`Operands`], also for the plans that a loaded plan calls.
#[derive(Clone, Copy)]
enum Memory<'a> {
    Plan(&'a ExecutionPlan, &'a Arc<ArgumentBlock>),
    Tensors(&'a [Value], &'a [HostBytes]),
}

/// The control blocks that a lowering appends to.
pub(crate) type Blocks = SmallVec<[ControlBlock; 4]>;

/// Bytes of a buffer, and what keeps them alive if the arguments of the run do not.
type Bytes = (Span, Option<Arc<Buffer>>);

impl<'a> Lowering<'a> {
    /// A lowering of operations with these operands.
    ///
    /// Errors: [`Error::OtherPlan`] for arguments that were bound for another plan.
    pub fn new(device: &'a dyn Device, operands: Operands<'a>) -> Result<Lowering<'a>> {
        let memory = match operands {
            Operands::Plan(plan, arguments) => {
                arguments.check_plan(plan)?;
                Memory::Plan(plan, arguments)
            }
            Operands::Tensors(tensors, slots) => Memory::Tensors(tensors, slots),
        };
        Ok(Lowering { device, memory })
    }

    /// Lowers an operation: its steps in order, then its compute program.
    pub fn operation(&self, operation: &Operation, blocks: &mut Blocks) -> Result<()> {
        for step in &operation.steps {
            self.step(step, None, blocks)?;
        }
        self.compute(operation.compute, blocks)
    }

    /// As [`Lowering::operation`], of an operation that is launched once: its bytes are not copied.
    pub fn operation_once(&self, operation: Operation, blocks: &mut Blocks) -> Result<()> {
        for step in operation.steps {
            match step {
                Step::CopyToDevice { source, buffer } => {
                    let (target, buffer) = self.part((buffer, 0), source.len())?;
                    blocks.push(ControlBlock::CopyToDevice { source, target, buffer });
                }
                step => self.step(&step, None, blocks)?,
            }
        }
        self.compute(operation.compute, blocks)
    }

    fn compute(&self, program: Option<usize>, blocks: &mut Blocks) -> Result<()> {
        blocks.extend(program.map(|program| self.launch(program)).transpose()?);
        Ok(())
    }

    fn steps(&self, steps: &[Step], iteration: Option<&Iteration>) -> Result<Box<[ControlBlock]>> {
        let mut blocks = Blocks::new();
        steps.iter().try_for_each(|step| self.step(step, iteration, &mut blocks))?;
        Ok(blocks.into_vec().into())
    }

    /// The plan and its arguments.
    ///
    /// Errors: [`Error::NotLoaded`] with the number of a program or callee of no plan.
    fn plan(&self, index: usize) -> Result<(&ExecutionPlan, &Arc<ArgumentBlock>)> {
        match self.memory {
            Memory::Plan(plan, arguments) => Ok((plan, arguments)),
            Memory::Tensors(..) => Err(Error::NotLoaded { index }),
        }
    }

    /// Lowers the operations of a callee, with the caller's memory.
    fn call(&self, index: usize, blocks: &mut Blocks) -> Result<()> {
        let (plan, caller) = self.plan(index)?;
        let callee = plan.callees.get(index).ok_or(Error::NotLoaded { index })?;
        let address = |at: &Option<usize>| at.map_or(0, |at| caller.addresses[at]);
        let words = |at: &Option<usize>| {
            at.and_then(|at| caller.words.get(at)).copied().unwrap_or_default()
        };
        let mut block = ArgumentBlock {
            pool: caller.pool,
            addresses: callee.buffers.iter().map(address).collect(),
            words: callee.words.iter().map(words).collect(),
            slots: callee.plan.new_slots()?,
            caller: Some(caller.clone()),
            ..ArgumentBlock::default()
        };
        if callee.plan.facts.copies_handles {
            let nowhere = DeviceHandle::physical(DeviceId::HOST, 0);
            let handle = |at: &Option<usize>| at.map_or(nowhere, |at| caller.handles[at]);
            block.handles = callee.buffers.iter().map(handle).collect();
        }
        let block = Arc::new(block);
        let memory = Memory::Plan(&callee.plan, &block);
        let lowering = Lowering { device: self.device, memory };
        callee.plan.operations.iter().try_for_each(|o| lowering.operation(o, blocks))
    }

    fn launch(&self, index: usize) -> Result<ControlBlock> {
        let (plan, arguments) = self.plan(index)?;
        let program = plan.programs.get(index).ok_or(Error::NotLoaded { index })?.clone();
        Ok(ControlBlock::Launch { program, arguments: arguments.clone() })
    }

    /// The arguments whose control stops loops.
    fn arguments(&self) -> Arc<ArgumentBlock> {
        match self.memory {
            Memory::Plan(_, arguments) => arguments.clone(),
            Memory::Tensors(..) => Arc::default(),
        }
    }

    /// The `size` bytes from byte `offset` of a buffer on.
    fn part(&self, (buffer, offset): (usize, usize), size: usize) -> Result<Bytes> {
        match self.memory {
            Memory::Plan(plan, arguments) => {
                let whole = arguments.span(plan, buffer, self.device)?;
                let part = whole.part(offset, size);
                let part =
                    part.ok_or_else(|| invalid(self.device, whole.handle.offset(offset), size));
                Ok((part?, None))
            }
            Memory::Tensors(tensors, _) => {
                let value = tensors.get(buffer).ok_or_else(|| missing("tensor", buffer))?;
                let span = value.buffer().span(
                    value.offset().saturating_add(offset),
                    size,
                    self.device,
                )?;
                Ok((span, Some(value.buffer().clone())))
            }
        }
    }

    /// All bytes of a buffer. The copy of a slot checks how many it needs when it runs: until then,
    /// an earlier copy may have taken the slot's bytes.
    fn whole(&self, buffer: usize) -> Result<Bytes> {
        match self.memory {
            Memory::Plan(plan, arguments) => Ok((arguments.span(plan, buffer, self.device)?, None)),
            Memory::Tensors(tensors, _) => {
                let size = tensors.get(buffer).map_or(0, Value::size_bytes);
                self.part((buffer, 0), size)
            }
        }
    }

    fn slot(&self, slot: usize) -> Result<HostBytes> {
        self.slots().get(slot).cloned().ok_or_else(|| missing("slot", slot))
    }

    fn slots(&self) -> &[HostBytes] {
        match self.memory {
            Memory::Plan(_, arguments) => arguments.slots(),
            Memory::Tensors(_, slots) => slots,
        }
    }

    fn moving(&self, part: &MovingPart) -> Result<MovingHandle> {
        let MovingPart { buffer, start, step } = *part;
        let (plan, arguments) = self.plan(buffer)?;
        Ok(MovingHandle { buffer: arguments.span(plan, buffer, self.device)?, start, step })
    }

    fn step(&self, step: &Step, iteration: Option<&Iteration>, blocks: &mut Blocks) -> Result<()> {
        blocks.push(match step {
            Step::Call(callee) => return self.call(*callee, blocks),
            Step::CopyPart { source, target, bytes } => {
                let (source, target) = (self.moving(source)?, self.moving(target)?);
                let iteration = iteration.cloned().unwrap_or_default();
                ControlBlock::CopyPart { source, target, bytes: *bytes, iteration }
            }
            Step::Repeat { times, body } => {
                let iteration = Iteration::default();
                let body = self.steps(body, Some(&iteration))?;
                ControlBlock::Repeat { times: *times, iteration, body, arguments: self.arguments() }
            }
            Step::Launch(program) => self.launch(*program)?,
            Step::CopyToDevice { source, buffer } => {
                let (target, buffer) = self.part((*buffer, 0), source.len())?;
                ControlBlock::CopyToDevice { source: source.clone(), target, buffer }
            }
            Step::CopyFromSlot { slot, buffer } => {
                let source = self.slot(*slot)?;
                let (target, buffer) = self.whole(*buffer)?;
                ControlBlock::CopyFromSlot { source, target, buffer }
            }
            Step::CopyFromDevice { buffer, slot } => {
                let target = self.slot(*slot)?;
                let (source, buffer) = self.whole(*buffer)?;
                ControlBlock::CopyFromDevice { source, target, buffer }
            }
            Step::CopyArguments { buffers, target } => {
                let (_, arguments) = self.plan(*target)?;
                let source = handles(arguments, buffers);
                let (target, buffer) = self.part((*target, 0), source.len())?;
                ControlBlock::CopyToDevice { source, target, buffer }
            }
            Step::CopyOnDevice { source, target, run, repeats } => {
                let runs = Runs { run: *run, repeats: repeats.clone() };
                let (read, written) = runs.spans();
                let (source, from) = self.part(*source, read)?;
                let (target, to) = self.part(*target, written)?;
                let copy = StridedCopy { source, target, runs };
                ControlBlock::CopyOnDevice { copy, buffers: from.into_iter().chain(to).collect() }
            }
            Step::Host(step) => {
                ControlBlock::Host { step: step.clone(), slots: self.slots().into() }
            }
            Step::Loop { condition, slot, body } => ControlBlock::Loop {
                condition: self.steps(condition, iteration)?,
                slot: self.slot(*slot)?,
                body: self.steps(body, iteration)?,
                arguments: self.arguments(),
            },
            Step::Branch { slot, branches } => ControlBlock::Branch {
                slot: self.slot(*slot)?,
                branches: branches
                    .iter()
                    .map(|steps| self.steps(steps, iteration))
                    .collect::<Result<_>>()?,
            },
        });
        Ok(())
    }
}

/// The bytes of handles that a correction program reads.
pub(super) fn handles(arguments: &ArgumentBlock, buffers: &[usize]) -> Box<[u8]> {
    let words = buffers.iter().flat_map(|&buffer| arguments.handles[buffer].words());
    words.flat_map(u64::to_le_bytes).collect()
}

fn missing(what: &str, number: usize) -> Error {
    Error::Compile(format!("an operation names {what} {number}, which it was not launched with"))
}

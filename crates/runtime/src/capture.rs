//! Capture and replay: a sequence of launches is put together once, with its intermediate results in
//! memory of its own, and launched again and again with other arguments, as one submission. CUDA's
//! graphs are of this kind.
//!
//! A cached call of a compiled function ([`Executor::call`]) is a replay of a sequence of one launch: a
//! compiled function is one closed graph of one device, whose plan is bound to other arguments each time.
//! Both bind by the same code. What a [`Replay`] has besides, a call must not have: intermediate results in
//! memory of the sequence, for which replays wait for each other, where calls of several threads run at
//! once; and a submission with its completion and an argument block for each launch, which a call on an
//! idle queue has on the stack or not at all.

use crate::executor::Reused;
use crate::plan::ArgumentSpec;
use crate::queue::Submission;
use crate::step::Lowering;
use crate::{
    Argument, Buffer, CachedPlan, Completion, Error, Executor, Result, RunControl, Stream, Value,
    Values,
};
use girih_ir::TensorSpec;
use girih_sync::Mutex;
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};

/// An argument of a launch that is captured.
#[derive(Clone, Debug)]
pub enum Captured {
    /// The argument of that number of each replay.
    Input(usize),
    /// A result of a launch captured before.
    Result {
        /// Number of the launch.
        launch: usize,
        /// Number of the result.
        output: usize,
    },
    /// The same in each replay: a tensor, a scalar, or the key of a random leaf.
    Fixed(Argument),
}

/// A sequence of launches being put together.
pub struct Capture {
    inputs: Vec<TensorSpec>,
    launches: Vec<CapturedLaunch>,
}

struct CapturedLaunch {
    plan: CachedPlan,
    arguments: Vec<Captured>,
}

impl Capture {
    /// A sequence that takes arguments of these specs.
    pub fn new(inputs: impl IntoIterator<Item = TensorSpec>) -> Capture {
        Capture { inputs: inputs.into_iter().collect(), launches: Vec::new() }
    }

    /// Adds a launch of a loaded plan; gives its results, as arguments of later ones.
    ///
    /// Errors: [`Error::ArgumentCount`]; [`Error::ArgumentMismatch`] for an argument of another spec or
    /// kind than the plan's, an input or result that there is not.
    pub fn launch(&mut self, plan: &CachedPlan, arguments: &[Captured]) -> Result<Vec<Captured>> {
        let order = |at: usize| plan.order.as_ref().map_or(at, |o| o.arguments[at] as usize);
        let expected = plan.plan.arguments.len();
        if expected != arguments.len() {
            return Err(Error::ArgumentCount { expected, found: arguments.len() });
        }
        for (at, expected) in plan.plan.arguments.iter().enumerate() {
            let index = order(at);
            self.check(index, expected, &arguments[index])?;
        }
        let launch = self.launches.len();
        self.launches.push(CapturedLaunch { plan: plan.clone(), arguments: arguments.to_vec() });
        let outputs = 0..plan.plan.outputs.len();
        Ok(outputs.map(|output| Captured::Result { launch, output }).collect())
    }

    fn check(&self, index: usize, expected: &ArgumentSpec, given: &Captured) -> Result<()> {
        let found = match given {
            Captured::Input(number) => self.inputs.get(*number).cloned(),
            Captured::Result { launch, output } => self.result(*launch, *output),
            Captured::Fixed(Argument::Tensor(_, spec)) => Some(spec.clone()),
            // Compared by whoever made it, or of a kind that the run compares.
            Captured::Fixed(_) => return Ok(()),
        };
        let found = found.map(ArgumentSpec::Tensor);
        if found.as_ref() == Some(expected) {
            return Ok(());
        }
        let found = found.map_or_else(|| format!("{given:?}"), |found| format!("{found:?}"));
        Err(Error::ArgumentMismatch { index, expected: format!("{expected:?}"), found })
    }

    fn result(&self, launch: usize, output: usize) -> Option<TensorSpec> {
        let plan = &self.launches.get(launch)?.plan;
        let at = plan
            .order
            .as_ref()
            .map_or(Some(output), |o| o.outputs.get(output).map(|&at| at as usize))?;
        plan.plan.outputs.get(at).map(|output| output.spec.clone())
    }

    /// Ends the capture: `outputs` are what each replay gives, all others of the results are kept in
    /// memory that the replays share.
    ///
    /// Errors: [`Error::OutOfMemory`]; [`Error::ArgumentMismatch`] for an output that is no result.
    pub fn finish(self, executor: &Arc<Executor>, outputs: &[Captured]) -> Result<Replay> {
        let mut results: Vec<Vec<Target>> = Vec::new();
        let mut temporary_bytes = 0;
        for (launch, captured) in self.launches.iter().enumerate() {
            temporary_bytes = temporary_bytes.max(captured.plan.plan.temporary_bytes);
            let target = |output: usize| {
                let is = |o: &Captured| matches!(o, Captured::Result { launch: l, output: n } if (*l, *n) == (launch, output));
                match outputs.iter().any(is) {
                    true => Ok(Target::New),
                    false => {
                        let spec = self.result(launch, output);
                        let bytes = spec.map_or(0, |spec| spec.size_bytes());
                        let buffer = executor.device().allocator().allocate(bytes)?;
                        Ok(Target::Kept(Value::new(buffer)))
                    }
                }
            };
            let count = captured.plan.plan.outputs.len();
            results.push((0..count).map(target).collect::<Result<_>>()?);
        }
        let mut given = Vec::new();
        for (index, output) in outputs.iter().enumerate() {
            match output {
                Captured::Result { launch, output } if self.result(*launch, *output).is_some() => {
                    given.push((*launch, *output));
                }
                _ => {
                    let (expected, found) = ("a result of a launch".into(), format!("{output:?}"));
                    return Err(Error::ArgumentMismatch { index, expected, found });
                }
            }
        }
        let temporaries = match temporary_bytes {
            0 => None,
            bytes => Some(Arc::new(executor.device().allocator().allocate(bytes)?)),
        };
        Ok(Replay {
            executor: executor.clone(),
            capture: self,
            results,
            outputs: given,
            temporaries,
            last: Mutex::default(),
        })
    }
}

/// Where a result of a captured launch goes.
enum Target {
    /// To a new block in each replay.
    New,
    /// To memory that replays share.
    Kept(Value),
}

/// A captured sequence, ready to be launched. Replays share the memory of intermediate results, so that
/// each begins when the one before is done.
pub struct Replay {
    executor: Arc<Executor>,
    capture: Capture,
    results: Vec<Vec<Target>>,
    outputs: Vec<(usize, usize)>,
    temporaries: Option<Arc<Buffer>>,
    /// The outcome of the last replay.
    last: Mutex<Option<Arc<Completion>>>,
}

impl Replay {
    /// Enqueues all launches on a stream, as one submission, and returns at once. A failure cancels the
    /// rest of the sequence, and concerns no later replay.
    ///
    /// Errors: [`Error::ArgumentCount`]; [`Error::ArgumentMismatch`] for a value smaller than its spec;
    /// [`Error::OutOfMemory`] for the results.
    pub fn launch(&self, stream: &Stream, inputs: &[Value]) -> Result<(Values, Arc<Completion>)> {
        let expected = self.capture.inputs.len();
        if expected != inputs.len() {
            return Err(Error::ArgumentCount { expected, found: inputs.len() });
        }
        let device = self.executor.device().id();
        let mut made: SmallVec<[Values; 8]> = SmallVec::new();
        let mut blocks = SmallVec::new();
        for (captured, targets) in self.capture.launches.iter().zip(&self.results) {
            let plan = &captured.plan;
            let argument = |argument: &Captured| match argument {
                Captured::Input(number) => Argument::Checked(inputs[*number].clone()),
                Captured::Result { launch, output } => {
                    Argument::Checked(made[*launch][*output].clone())
                }
                Captured::Fixed(argument) => argument.clone(),
            };
            let arguments: SmallVec<[Argument; 4]> =
                captured.arguments.iter().map(argument).collect();
            let kept = |target: &Target| match target {
                Target::New => None,
                Target::Kept(value) => Some(value.clone()),
            };
            let temporaries = self.temporaries.clone().filter(|_| plan.plan.temporary_bytes > 0);
            let reused = Reused { targets: targets.iter().map(kept).collect(), temporaries };
            let control: RunControl = self.executor.control(None, false);
            let (block, values) = self.executor.bind_reusing(plan, &arguments, control, reused)?;
            let lowering = Lowering { plan: &plan.plan, device, arguments: &block };
            let operations = &plan.plan.operations;
            operations.iter().try_for_each(|o| lowering.operation(o, &mut blocks))?;
            self.executor.count_run(&plan.plan);
            made.push(values);
        }
        let results = self.outputs.iter().map(|&(launch, output)| made[launch][output].clone());
        let results = results.collect();
        let completion = Completion::pending();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(completion.clone());
        // A replay that failed is done, too: what it leaves is written over.
        let after = before.filter(|before| before.poll().is_none()).into_iter().collect();
        let submission =
            Submission { blocks, after, completion: completion.clone(), awaited: false };
        stream.queue().submit(submission);
        Ok((results, completion))
    }

    /// Number of launches of a replay.
    pub fn launches(&self) -> usize {
        self.capture.launches.iter().map(|captured| captured.plan.plan.launches()).sum()
    }
}

//! Capture and replay: a sequence of launches is captured once and replayed many times with other
//! arguments, as one submission, like a CUDA graph.
//!
//! A sequence of several launches owns the memory of its intermediate results, so its replays run
//! one after another. A sequence of one launch, such as a compiled function, has no intermediate
//! results: several threads can replay it at the same time, and [`Replay::call`] on an idle queue
//! runs it on the calling thread and allocates only results and temporaries.

use crate::call::Times;
use crate::executor::Reused;
use crate::plan::ArgumentSpec;
use crate::{
    Argument, Buffer, CachedPlan, Completion, Error, LoadedPlan, PlanExecutor, Result, RunControl,
    Stream, Value, Values,
};
use girih_ir::TensorSpec;
use girih_sync::Mutex;
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// An argument of a captured launch.
#[derive(Clone, Debug)]
pub enum Captured {
    /// The replay's argument with this index.
    Input(usize),
    /// A result of an earlier captured launch.
    Result {
        /// The index of the launch.
        launch: usize,
        /// The index of the result.
        output: usize,
    },
    /// The same argument in each replay: a tensor, a scalar, or the key of a random leaf.
    Fixed(Argument),
}

/// A sequence of launches under capture.
pub struct Capture {
    inputs: Vec<ArgumentSpec>,
    launches: Vec<CapturedLaunch>,
}

struct CapturedLaunch {
    plan: CachedPlan,
    arguments: Vec<Captured>,
}

impl Capture {
    /// A sequence whose replays take arguments of these specs: tensors, scalars, keys of random
    /// leaves.
    pub fn new<T: Into<ArgumentSpec>>(inputs: impl IntoIterator<Item = T>) -> Capture {
        Capture { inputs: inputs.into_iter().map(Into::into).collect(), launches: Vec::new() }
    }

    /// Adds a launch of a loaded plan; returns its results, to be used as arguments of later
    /// launches.
    ///
    /// Errors: [`Error::ArgumentCount`]; [`Error::ArgumentMismatch`] for an argument whose spec or
    /// kind is not the plan's, or an input or result that does not exist.
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

    fn num_launches(&self) -> usize {
        self.launches.iter().map(|captured| captured.plan.plan.launches()).sum()
    }

    fn check(&self, index: usize, expected: &ArgumentSpec, given: &Captured) -> Result<()> {
        let found = match given {
            Captured::Input(number) => self.inputs.get(*number).cloned(),
            Captured::Result { launch, output } => {
                self.result(*launch, *output).map(ArgumentSpec::Tensor)
            }
            Captured::Fixed(Argument::Tensor(_, spec)) => Some(ArgumentSpec::Tensor(spec.clone())),
            // The caller knows the spec, or the run checks the kind.
            Captured::Fixed(_) => return Ok(()),
        };
        if found.as_ref() == Some(expected) {
            return Ok(());
        }
        let found = found.map_or_else(|| format!("{given:?}"), |found| found.to_string());
        Err(Error::ArgumentMismatch { index, expected: expected.to_string(), found })
    }

    fn result(&self, launch: usize, output: usize) -> Option<TensorSpec> {
        let plan = &self.launches.get(launch)?.plan;
        let at = plan
            .order
            .as_ref()
            .map_or(Some(output), |o| o.outputs.get(output).map(|&at| at as usize))?;
        plan.plan.outputs.get(at).map(|output| output.spec.clone())
    }

    /// Ends the capture. Each replay returns the results in `outputs`; the other results stay in
    /// memory that the replays share.
    ///
    /// Errors: [`Error::OutOfMemory`]; [`Error::ArgumentMismatch`] for an output that is not a
    /// result of a launch.
    pub fn finish(self, executor: &Arc<PlanExecutor>, outputs: &[Captured]) -> Result<Replay> {
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
        let generation = executor.generation();
        let sequence = Sequence {
            capture: self,
            results,
            outputs: given,
            temporaries,
            last: Mutex::default(),
        };
        let launches = Launches::Several(Box::new(sequence));
        Ok(Replay { executor: executor.clone(), generation, launches })
    }
}

impl From<TensorSpec> for ArgumentSpec {
    fn from(spec: TensorSpec) -> ArgumentSpec {
        ArgumentSpec::Tensor(spec)
    }
}

/// The memory for a result of a captured launch.
enum Target {
    /// A new block for each replay.
    New,
    /// Memory that the replays share.
    Kept(Value),
}

/// A captured sequence, ready to be launched.
pub struct Replay {
    executor: Arc<PlanExecutor>,
    /// The executor's generation at capture.
    generation: u64,
    launches: Launches,
}

enum Launches {
    /// One launch, which takes the replay's arguments in the same order and returns all its
    /// results.
    One(CachedPlan),
    Several(Box<Sequence>),
}

/// Launches that share memory, so each replay waits for the previous one.
struct Sequence {
    capture: Capture,
    results: Vec<Vec<Target>>,
    outputs: Vec<(usize, usize)>,
    temporaries: Option<Arc<Buffer>>,
    /// The completion of the last replay.
    last: Mutex<Option<Arc<Completion>>>,
}

impl Replay {
    /// Captures one launch of the plan that `find` returns. The launch takes the replay's arguments
    /// in the same order and returns all its results. Compiled functions are captured this way.
    ///
    /// Errors: those of `find`.
    pub fn of(
        executor: &Arc<PlanExecutor>,
        find: impl FnOnce() -> Result<CachedPlan>,
    ) -> Result<Replay> {
        // Read the generation first: if it changes during `find`, the replay is stale.
        let generation = executor.generation();
        Ok(Replay { executor: executor.clone(), generation, launches: Launches::One(find()?) })
    }

    /// Whether `executor` captured the sequence and would find the same plans now: its options have
    /// not changed, its caches have not been cleared, and it uses a cache at all. If so, counts a
    /// cache hit.
    pub fn is_current(&self, executor: &PlanExecutor) -> bool {
        executor.recall(self.generation)
    }

    /// The plan of the first launch; `None` if there are no launches.
    pub fn plan(&self) -> Option<&LoadedPlan> {
        match &self.launches {
            Launches::One(plan) => Some(&plan.plan),
            Launches::Several(sequence) => sequence.capture.launches.first().map(|l| &l.plan.plan),
        }
    }

    /// Enqueues all launches on a stream as one submission, without waiting. A failure cancels the
    /// rest of the sequence, and does not affect later replays.
    ///
    /// Errors: [`Error::ArgumentCount`]; [`Error::ArgumentMismatch`] for an argument of another
    /// kind, or a value smaller than its spec; [`Error::OutOfMemory`] for the results.
    pub fn launch(
        &self,
        stream: &Stream,
        inputs: &[Argument],
    ) -> Result<(Values, Arc<Completion>)> {
        let completion = Completion::pending();
        let values = match &self.launches {
            Launches::One(plan) => {
                let control = self.executor.control(None, false);
                let (block, values) = self.executor.bind(plan, inputs, control)?;
                let (plan, done) = (&plan.plan, completion.clone());
                self.executor.start(stream, plan, &block, SmallVec::new(), done, false)?;
                values
            }
            Launches::Several(sequence) => {
                sequence.launch(&self.executor, stream, inputs, None, completion.clone())?
            }
        };
        Ok((values, completion))
    }

    /// Launches the sequence and waits for it. Each launch is stopped after `limit`, if given.
    ///
    /// Errors: as [`Replay::launch`], and the failure of a launch.
    /// Cost: one launch on an idle queue allocates the results and a block for the temporaries.
    pub fn call(
        &self,
        stream: &Stream,
        inputs: &[Argument],
        limit: Option<Duration>,
    ) -> Result<Values> {
        match &self.launches {
            Launches::One(plan) => self.executor.call(stream, plan, inputs, limit),
            Launches::Several(sequence) => {
                let completion = Completion::pending();
                let (executor, done) = (&self.executor, completion.clone());
                let values = sequence.launch(executor, stream, inputs, limit, done)?;
                completion.wait_or_interrupt()?;
                Ok(values)
            }
        }
    }

    /// As [`Replay::call`], with the times of binding, of the run, and of each kernel. With several
    /// launches, only the time of the run.
    pub fn call_timed(
        &self,
        stream: &Stream,
        inputs: &[Argument],
        limit: Option<Duration>,
    ) -> Result<(Values, Times)> {
        match &self.launches {
            Launches::One(plan) => self.executor.call_timed(stream, plan, inputs, limit),
            Launches::Several(_) => {
                let start = Instant::now();
                let values = self.call(stream, inputs, limit)?;
                Ok((values, Times { run: start.elapsed(), ..Times::default() }))
            }
        }
    }

    /// The number of kernel launches per replay.
    pub fn launches(&self) -> usize {
        match &self.launches {
            Launches::One(plan) => plan.plan.launches(),
            Launches::Several(sequence) => sequence.capture.num_launches(),
        }
    }
}

impl Sequence {
    fn launch(
        &self,
        executor: &PlanExecutor,
        stream: &Stream,
        inputs: &[Argument],
        limit: Option<Duration>,
        completion: Arc<Completion>,
    ) -> Result<Values> {
        let expected = self.capture.inputs.len();
        if expected != inputs.len() {
            return Err(Error::ArgumentCount { expected, found: inputs.len() });
        }
        let mut made: SmallVec<[Values; 8]> = SmallVec::new();
        let mut batch = stream.batch();
        for (captured, targets) in self.capture.launches.iter().zip(&self.results) {
            let plan = &captured.plan;
            let argument = |argument: &Captured| match argument {
                Captured::Input(number) => match &inputs[*number] {
                    // Do not donate: another launch of the sequence may read the argument.
                    Argument::Donated(value) => Argument::Checked(value.clone()),
                    input => input.clone(),
                },
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
            let control: RunControl = executor.control(limit, false);
            let (block, values) = executor.bind_reusing(plan, &arguments, control, reused)?;
            batch.plan(&plan.plan, &block)?;
            executor.count_run(&plan.plan);
            made.push(values);
        }
        let results = self.outputs.iter().map(|&(launch, output)| made[launch][output].clone());
        let results = results.collect();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(completion.clone());
        // A failed replay counts as done: the next replay overwrites its memory.
        let after = before.filter(|before| before.poll().is_none());
        batch.submit_as(stream, after, completion);
        Ok(results)
    }
}

//! Traced programs at arguments of certain specs: all that a call need not find out again is kept,
//! so that calling is little more than running.

use crate::context::{self, Context};
use crate::node::{CompactSpec, State};
use crate::{Executor, Profile, Result, Tensor, TracedProgram, devices, nans, random, trace};
use girih_ir::dim::Symbol;
use girih_ir::{OpCode, TensorSpec};
use girih_runtime::{Argument, CompileOptions, FoundPlan, Value};
use girih_sync::{Mutex, MutexGuard, Striped};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// A traced program with the specs of its arguments and of the tensors outside that it refers to.
/// Every call with such tensors is served by it.
pub struct BoundProgram {
    program: Arc<TracedProgram>,
    given: Vec<Spec>,
    /// Sizes of the program's symbols.
    sizes: Vec<(&'static Symbol, usize)>,
    takes: Vec<Take>,
    /// How much of the generator's sequence a run takes.
    draws: u64,
    outputs: Vec<Spec>,
    /// The plan of the last call, for each thread, so that threads share neither a lock nor a count.
    found: Striped<Mutex<Option<Found>>>,
}

/// A plan, and the options that it was compiled under.
type Found = Arc<(CompileOptions, FoundPlan)>;

/// The spec of an argument or a result: as nodes hold it, so that to compare it and to make a node of it
/// is quick, if that is possible.
enum Spec {
    Compact(CompactSpec),
    Whole(TensorSpec),
}

impl Spec {
    fn of(spec: &TensorSpec) -> Spec {
        CompactSpec::of(spec).map_or_else(|| Spec::Whole(spec.clone()), Spec::Compact)
    }

    fn is_of(&self, tensor: &Tensor) -> bool {
        match self {
            Spec::Compact(spec) => tensor.node().compact_spec() == *spec,
            Spec::Whole(spec) => tensor.spec() == *spec,
        }
    }

    /// A tensor that has this value.
    fn tensor(&self, value: Value) -> Tensor {
        let (op, state) = (OpCode::Input.into(), State::Available(value));
        Tensor::from_node(match self {
            Spec::Compact(spec) => context::add_compact(op, *spec, None, state),
            Spec::Whole(spec) => context::add_node(op, spec, None, state),
        })
    }
}

/// Where an argument of the program comes from.
enum Take {
    /// What the call gives, by position.
    Given(usize),
    /// A tensor that the program holds.
    Held(Tensor),
    /// A place in the generator's sequence that the program holds.
    Drawn(u64, u64),
    /// So far behind the generator's next place.
    Draws(u64),
}

impl BoundProgram {
    /// Of a program at arguments that it serves ([`TracedProgram::refuses`] none of them).
    ///
    /// Errors: [`crate::Error::InvalidArgument`] if it does not serve them.
    pub fn new(program: Arc<TracedProgram>, arguments: &[TensorSpec]) -> Result<BoundProgram> {
        program.check(arguments)?;
        let sizes = program.sizes(arguments).map_err(crate::Error::InvalidArgument)?;
        let given: Vec<TensorSpec> = arguments.iter().chain(program.captures()).cloned().collect();
        let graph = program.graph();
        let (begins, draws) = program.draws(&sizes)?;
        let mut next = 0;
        let take = |id| {
            let node = graph.node(id);
            if node.op.is_random() {
                return Ok::<_, crate::Error>(match program.program().drawn(id) {
                    Some((key, offset)) => Take::Drawn(key, offset),
                    None => Take::Draws(begins[&id]),
                });
            }
            Ok(match program.program().held(id) {
                Some(tensor) => Take::Held(tensor.clone()),
                None => {
                    next += 1;
                    Take::Given(next - 1)
                }
            })
        };
        let takes = graph.arguments().map(take).collect::<Result<Vec<_>>>()?;
        let output = |&id: &girih_ir::NodeId| {
            let spec = graph.spec(id);
            let shape = spec.shape.bind("compile", spec.dtype, &sizes)?;
            Ok(Spec::of(&TensorSpec { shape, dtype: spec.dtype }))
        };
        let outputs = graph.outputs().iter().map(output).collect::<Result<Vec<_>>>()?;
        let given = given.iter().map(Spec::of).collect();
        let found = Striped::default();
        Ok(BoundProgram { program, given, sizes, takes, draws, outputs, found })
    }

    /// True for tensors of exactly these specs: arguments, then tensors outside.
    pub fn serves(&self, given: &[Tensor]) -> bool {
        given.len() == self.given.len()
            && given.iter().zip(&self.given).all(|(tensor, spec)| spec.is_of(tensor))
            && self.program.refuses_context(given).is_none()
    }

    /// About how long the last call's plan takes on one thread, in nanoseconds; nothing before the
    /// first call.
    pub fn cost_ns(&self) -> Option<u64> {
        let cost = |found: &Found| found.1.plan().cost_ns;
        let mut found = self.found.iter().map(lock);
        found.find_map(|found| found.as_ref().map(cost))
    }

    /// The program's outputs at tensors that it [serves](BoundProgram::serves); see
    /// [`TracedProgram::call`].
    ///
    /// Errors: as there.
    #[track_caller]
    pub fn call(&self, given: &[Tensor]) -> Result<Vec<Tensor>> {
        self.call_donating(given, &[])
    }

    /// Like [`BoundProgram::call`], with the tensors at some positions donated: the caller needs them
    /// no more, and the program may write its results over them. Of each the caller has one handle
    /// beside that in `given`; those that somebody else has too, or that are not computed yet, stay
    /// as they are.
    ///
    /// Errors: as [`BoundProgram::call`]; [`crate::Error::Donated`] for what was donated before.
    #[track_caller]
    pub fn call_donating(&self, given: &[Tensor], donated: &[usize]) -> Result<Vec<Tensor>> {
        if trace::is_active() {
            // Part of another program, whose calls are to run this one.
            return self.program.record(&given.iter().collect::<Vec<_>>(), &self.sizes);
        }
        // Filled in place: it is too large to be moved about.
        let mut arguments: SmallVec<[Argument; 8]> = SmallVec::new();
        if !self.arguments(given, &mut arguments)? {
            let refs: SmallVec<[&Tensor; 8]> = given.iter().collect();
            return match crate::eval(refs.iter().copied()) {
                Ok(()) => self.call_donating(given, donated),
                Err(crate::Error::TracedValue { .. }) => self.program.record(&refs, &self.sizes),
                Err(error) => Err(error),
            };
        }
        let executor = self.executor(given, &mut arguments)?;
        let looked = Context::current().debug_nans()?;
        // To find a NaN the program is run again, so that its arguments must stay.
        for &at in donated.iter().filter(|_| !looked) {
            self.donate(given, at, &mut arguments);
        }
        let values = self.run(&executor, &arguments)?;
        if looked {
            self.look_for_nans(&executor, &arguments, &values)?;
        }
        Ok(self.outputs.iter().zip(values).map(|(spec, value)| spec.tensor(value)).collect())
    }

    /// What the plan takes; false if some of what is given has no value yet.
    fn arguments(&self, given: &[Tensor], arguments: &mut SmallVec<[Argument; 8]>) -> Result<bool> {
        for take in &self.takes {
            arguments.push(match take {
                Take::Given(at) => match &*given[*at].node().state() {
                    State::Available(value) => Argument::Checked(value.clone()),
                    _ => return Ok(false),
                },
                Take::Held(tensor) => {
                    Argument::Checked(crate::eval::value(tensor, "a compiled function")?)
                }
                Take::Drawn(key, offset) => Argument::RandomKey { key: *key, offset: *offset },
                Take::Draws(offset) => Argument::RandomKey { key: 0, offset: *offset },
            });
        }
        // Nothing is drawn by a call that has to wait.
        if self.draws > 0 {
            let (key, start) = random::take(self.draws);
            for (take, argument) in self.takes.iter().zip(arguments) {
                if let Take::Draws(offset) = take {
                    *argument = Argument::RandomKey { key, offset: start.wrapping_add(*offset) };
                }
            }
        }
        Ok(true)
    }

    /// Takes the memory of a tensor, if only the caller has it.
    fn donate(&self, given: &[Tensor], at: usize, arguments: &mut [Argument]) {
        /// The caller's, and that in `given`.
        const HANDLES: usize = 2;
        let node = given[at].node();
        let takes = |take: &&Take| matches!(take, Take::Given(other) if *other == at);
        if Arc::strong_count(node) != HANDLES || self.takes.iter().filter(takes).count() != 1 {
            return;
        }
        let mut state = node.state();
        if !matches!(&*state, State::Available(_)) {
            return;
        }
        let held = std::mem::replace(&mut *state, State::Donated);
        drop(state);
        // The argument's is the last reference now, unless somebody else reads the memory.
        drop(held);
        for (take, argument) in self.takes.iter().zip(arguments) {
            if let (Take::Given(other), Argument::Checked(value)) = (take, &*argument)
                && *other == at
            {
                *argument = Argument::Donated(value.clone());
            }
        }
    }

    /// The executor of the device that the arguments are on. Arguments of no certain device are brought
    /// there.
    ///
    /// Errors: [`crate::Error::MixedDevices`].
    fn executor(
        &self,
        given: &[Tensor],
        arguments: &mut [Argument],
    ) -> Result<Cow<'static, Executor>> {
        let context = Context::current();
        let executor = context.executor_ref(context.device())?;
        let id = executor.runtime().device().id();
        let is_here = |a: &Argument| a.value().is_none_or(|v| v.buffer.handle().device() == id);
        if arguments.iter().all(is_here) {
            return Ok(executor);
        }
        self.executor_elsewhere(given, arguments).map(Cow::Owned)
    }

    #[cold]
    fn executor_elsewhere(&self, given: &[Tensor], arguments: &mut [Argument]) -> Result<Executor> {
        let taken = |take: &Take| match take {
            Take::Given(at) => Some(given[*at].clone()),
            Take::Held(tensor) => Some(tensor.clone()),
            Take::Drawn(..) | Take::Draws(_) => None,
        };
        let taken: Vec<Option<Tensor>> = self.takes.iter().map(taken).collect();
        let tensors: Vec<&Tensor> = taken.iter().flatten().collect();
        let executor = crate::eval::executor_of("compile", &tensors)?;
        for (argument, tensor) in arguments.iter_mut().zip(&taken) {
            if let (Argument::Checked(value), Some(tensor)) = (&mut *argument, tensor) {
                *argument = Argument::Checked(devices::carried(value, &tensor.spec(), &executor)?);
            }
        }
        Ok(executor)
    }

    fn run(&self, executor: &Executor, arguments: &[Argument]) -> Result<girih_runtime::Values> {
        let runtime = executor.runtime();
        let options = Context::current().options(runtime);
        let profiled = executor.config().profile;
        let start = profiled.then(Instant::now);
        let known = lock(self.found.mine()).clone();
        let known = known.filter(|found| found.0 == options && runtime.recall(&found.1));
        let found = match known {
            Some(found) => found,
            None => {
                let symbolic = self.program.symbolic();
                let plan = || runtime.plan_at(symbolic, &self.sizes, options);
                let found = Arc::new((options, runtime.remember(plan)?));
                *lock(self.found.mine()) = Some(found.clone());
                found
            }
        };
        let limit = executor.limit();
        let stream = Context::current().runtime_stream(runtime);
        let Some(start) = start else {
            return runtime
                .call(&stream, &found.1, arguments, limit)
                .map_err(|e| self.program.failed(e));
        };
        let compile = start.elapsed();
        let timed = runtime.call_timed(&stream, &found.1, arguments, limit);
        let (values, times) = timed.map_err(|e| self.program.failed(e))?;
        executor.set_profile(Profile {
            compile,
            transfer: times.bind,
            execution: times.run,
            kernels: times.kernels,
            ..Profile::default()
        });
        Ok(values)
    }

    /// Fails if a value has a NaN, with the op and the line that gave the first.
    fn look_for_nans(
        &self,
        executor: &Executor,
        arguments: &[Argument],
        values: &[Value],
    ) -> Result<()> {
        let graph = self.program.program().graph().bind(&self.sizes)?;
        let results = graph.outputs().iter().copied().zip(values.iter().cloned());
        let results: Vec<_> = results.collect();
        nans::check(executor, &graph, arguments, &results).map_err(|e| self.program.failed(e))
    }
}

fn lock(found: &Mutex<Option<Found>>) -> MutexGuard<'_, Option<Found>> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

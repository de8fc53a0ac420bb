//! Traced programs bound to arguments of certain specs. Everything that does not change between
//! calls is computed once, so that the overhead of a call is small.

use crate::tiled::{CallPath, TiledCall};
use crate::{Device, Profile, Result, Tensor, TracedProgram, random};
use girih_ir::dim::Symbol;
use girih_ir::{Attrs, OpCode, TensorSpec};
use girih_record::context::{self, Context};
use girih_record::executor::DeviceExecutor;
use girih_record::node::{CompactSpec, State};
use girih_record::{devices, eval, nans, nested, trace};
use girih_runtime::{Argument, CompileOptions, PlanExecutor, PlanState, Replay, Value};
use girih_sync::{Mutex, MutexGuard, OnceLock, Striped};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// A traced program bound to the specs of its arguments and of the captured tensors. The program
/// serves every call with tensors of these specs.
pub struct BoundProgram {
    program: Arc<TracedProgram>,
    given: Vec<Spec>,
    /// The sizes of the program's symbols.
    sizes: Vec<(&'static Symbol, usize)>,
    takes: Vec<Take>,
    /// The calls tile by tile, if the arguments are larger than a tile.
    tiled: Option<TiledCall>,
    /// Whether the program has tensors on a mesh of its own.
    on_mesh: bool,
    /// The number of blocks of the random generator's sequence that a run consumes.
    draws: u64,
    outputs: Vec<Spec>,
    /// The captured launch of the first call. It is never replaced, so reading it takes neither a
    /// lock nor a reference count.
    first: OnceLock<Arc<Captured>>,
    /// The captured launch of the last call, for calls that the first launch does not serve. Per
    /// thread, so that threads share neither a lock nor a reference count.
    recent: Striped<Mutex<Option<Arc<Captured>>>>,
    /// The result of [`BoundProgram::cost_ns`]; `u64::MAX` for `None`.
    cost_ns: AtomicU64,
}

/// A captured launch of a program.
struct Captured {
    /// The compile options of the context, if it had options of its own. Otherwise the executor's
    /// options at the time of the capture are part of the replay.
    options: Option<CompileOptions>,
    replay: Replay,
}

/// The spec of an argument or a result. The compact form, which nodes store, is used if possible,
/// because it is quick to compare and to make a node of.
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

    /// A tensor with this spec and the value `value`.
    fn tensor(&self, value: Value) -> Tensor {
        let (op, state) = (OpCode::Input.into(), State::Available(value));
        Tensor::from_node(match self {
            Spec::Compact(spec) => context::add_compact(op, *spec, None, state),
            Spec::Whole(spec) => context::add_node(op, spec, None, state),
        })
    }
}

/// The source of an argument of the program.
pub(crate) enum Take {
    /// The tensor at this position of the call's tensors.
    Given(usize),
    /// A tensor that the program holds.
    Held(Tensor),
    /// A key and an offset of the random generator that the program holds.
    Drawn(u64, u64),
    /// An offset from the current position of the random generator.
    Draws(u64),
}

impl BoundProgram {
    /// Binds a program to arguments that the program serves, that is, for which
    /// [`TracedProgram::refuses`] returns `None`.
    ///
    /// Errors: [`crate::Error::InvalidArgument`] for arguments that the program does not serve.
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
        let tiled = program.tile_of(&sizes).map(TiledCall::new);
        let on_mesh = graph.nodes().any(|(_, node)| matches!(node.op.attrs, Attrs::Sharding(_)))
            || takes.iter().any(|take| match take {
                Take::Held(tensor) => tensor.node().place().is_sharded(),
                _ => false,
            });
        Ok(BoundProgram {
            program,
            given,
            sizes,
            takes,
            tiled,
            on_mesh,
            draws,
            outputs,
            first: OnceLock::new(),
            recent: Striped::default(),
            cost_ns: AtomicU64::new(u64::MAX),
        })
    }

    pub(crate) fn program(&self) -> &TracedProgram {
        &self.program
    }

    pub(crate) fn sizes(&self) -> &[(&'static Symbol, usize)] {
        &self.sizes
    }

    pub(crate) fn takes(&self) -> &[Take] {
        &self.takes
    }

    /// Whether the given tensors (the arguments, then the captured tensors) have exactly the bound
    /// specs.
    pub fn serves(&self, given: &[Tensor]) -> bool {
        given.len() == self.given.len()
            && given.iter().zip(&self.given).all(|(tensor, spec)| spec.is_of(tensor))
            && self.program.refuses_context(given).is_none()
    }

    /// The estimated time of the plan that was found last, on one thread, in nanoseconds; `None`
    /// before the first call.
    pub fn cost_ns(&self) -> Option<u64> {
        Some(self.cost_ns.load(Relaxed)).filter(|cost| *cost != u64::MAX)
    }

    /// Runs the program on tensors that it [serves](BoundProgram::serves) and returns its outputs;
    /// see [`TracedProgram::call`].
    ///
    /// Errors: as [`TracedProgram::call`].
    #[track_caller]
    pub fn call(&self, given: &[Tensor]) -> Result<Vec<Tensor>> {
        self.call_donating(given, &[])
    }

    /// Like [`BoundProgram::call`], with the tensors at the positions `donated` donated: the caller
    /// does not use them again, and the program may write its results into their memory. The caller
    /// holds one handle of each donated tensor besides the one in `given`. Tensors with further
    /// handles, and tensors that are not computed yet, are not donated.
    ///
    /// Errors: as [`BoundProgram::call`]; [`crate::Error::Donated`] for tensors that were donated
    /// before.
    #[track_caller]
    pub fn call_donating(&self, given: &[Tensor], donated: &[usize]) -> Result<Vec<Tensor>> {
        loop {
            if let Some(outputs) = self.call_computed(given, donated)? {
                return Ok(outputs);
            }
            // Arguments that a transform traces have no value of their own: the call is recorded.
            let targets: SmallVec<[_; 8]> = given.iter().map(Tensor::node).collect();
            match eval::eval_recorded(&targets) {
                Ok(()) => {}
                Err(crate::Error::TracedValue { .. }) => return self.record(given),
                Err(error) => return Err(error),
            }
        }
    }

    /// Like [`BoundProgram::call_donating`], but does not wait for tensors: returns `None` if one
    /// of them is not computed yet.
    ///
    /// Errors: as [`BoundProgram::call_donating`].
    #[track_caller]
    pub fn call_computed(
        &self,
        given: &[Tensor],
        donated: &[usize],
    ) -> Result<Option<Vec<Tensor>>> {
        // The call is a part of another program, or `backward` may come back to it, so record it
        // instead of running it.
        if trace::is_active() || self.has_gradient(given) {
            return self.record(given).map(Some);
        }
        nested::check("a call of a compiled function")?;
        if self.on_mesh {
            return self.call_on_mesh(given).map(Some);
        }
        // The vector is filled in place because it is too large to move cheaply.
        let mut arguments: SmallVec<[Argument; 8]> = SmallVec::new();
        if !self.arguments(given, &mut arguments)? {
            return match given.iter().any(|tensor| tensor.node().place().is_sharded()) {
                true => self.call_on_mesh(given).map(Some),
                false => Ok(None),
            };
        }
        if let Some(tiled) = &self.tiled
            && let Some(values) = self.call_tiled(tiled, &arguments)?
        {
            return Ok(Some(self.results(values)));
        }
        let executor = self.executor(given, &mut arguments)?;
        let search = Context::current().debug_nans()?;
        // The search for a NaN runs the program again, so do not donate its arguments.
        for &at in donated.iter().filter(|_| !search) {
            self.donate(given, at, &mut arguments);
        }
        let values = self.run(&executor, &arguments)?;
        if search {
            self.look_for_nans(&executor, &arguments, &values)?;
        }
        Ok(Some(self.results(values)))
    }

    /// A call with tensors on a mesh, or of a program that shards some: the program of the mesh is
    /// found by the recorded graph and the shardings.
    #[track_caller]
    fn call_on_mesh(&self, given: &[Tensor]) -> Result<Vec<Tensor>> {
        let outputs = self.record(given)?;
        eval::eval_recorded(&outputs.iter().map(Tensor::node).collect::<Vec<_>>())?;
        Ok(outputs)
    }

    /// The tensors of the results.
    #[inline]
    fn results(&self, values: impl IntoIterator<Item = Value>) -> Vec<Tensor> {
        self.outputs.iter().zip(values).map(|(spec, value)| spec.tensor(value)).collect()
    }

    /// How a call with tensors that the program [serves](BoundProgram::serves) runs.
    pub fn path(&self, given: &[Tensor]) -> CallPath {
        if let Some(tiles) = self.tiled.as_ref().and_then(|tiled| self.count_tiles(tiled)) {
            return CallPath::Tiled(tiles);
        }
        let executor = eval::executor_of("compile", &given.iter().collect::<Vec<_>>());
        let Ok(executor) = executor else { return CallPath::Compiled };
        let options = Context::current().options(executor.runtime());
        match executor.runtime().plan_state(self.program.symbolic(), &self.sizes, options) {
            PlanState::Exact => CallPath::Exact,
            PlanState::Symbolic => CallPath::Symbolic,
            PlanState::New => CallPath::Compiled,
        }
    }

    /// Whether results of these tensors require gradients.
    #[inline]
    fn has_gradient(&self, given: &[Tensor]) -> bool {
        given.iter().any(|tensor| tensor.node().is_tracked())
            && !self.program.takes_gradients()
            && Context::current().grad()
    }

    #[track_caller]
    fn record(&self, given: &[Tensor]) -> Result<Vec<Tensor>> {
        self.program.record(&given.iter().collect::<Vec<_>>(), &self.sizes)
    }

    /// Collects the arguments of the plan. Returns `false` if a given tensor has no value yet.
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
        // Advance the generator only now, since a call that has to wait returns above.
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

    /// Donates the memory of a tensor if only the caller holds the tensor.
    fn donate(&self, given: &[Tensor], at: usize, arguments: &mut [Argument]) {
        /// The number of handles of a tensor that can be donated: the caller's handle and the
        /// handle in `given`.
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
        // `arguments` now holds the last reference, unless something else reads the memory.
        drop(held);
        for (take, argument) in self.takes.iter().zip(arguments) {
            if let (Take::Given(other), Argument::Checked(value)) = (take, &*argument)
                && *other == at
            {
                *argument = Argument::Donated(value.clone());
            }
        }
    }

    /// The executor of the device that holds the arguments. Arguments that are not committed to a
    /// device are copied to that device.
    ///
    /// Errors: [`crate::Error::MixedDevices`].
    fn executor(
        &self,
        given: &[Tensor],
        arguments: &mut [Argument],
    ) -> Result<Cow<'static, DeviceExecutor>> {
        let context = Context::current();
        let executor = match context.is_plain()? {
            true => Cow::Borrowed(devices::executor(Device::of_process())?),
            false => context.executor_ref(context.device())?,
        };
        let id = executor.runtime().device().id();
        let is_here = |a: &Argument| a.value().is_none_or(|v| v.device() == id);
        if arguments.iter().all(is_here) {
            return Ok(executor);
        }
        self.executor_elsewhere(given, arguments).map(Cow::Owned)
    }

    #[cold]
    fn executor_elsewhere(
        &self,
        given: &[Tensor],
        arguments: &mut [Argument],
    ) -> Result<DeviceExecutor> {
        let taken = |take: &Take| match take {
            Take::Given(at) => Some(given[*at].clone()),
            Take::Held(tensor) => Some(tensor.clone()),
            Take::Drawn(..) | Take::Draws(_) => None,
        };
        let taken: Vec<Option<Tensor>> = self.takes.iter().map(taken).collect();
        let tensors: Vec<&Tensor> = taken.iter().flatten().collect();
        let executor = eval::executor_of("compile", &tensors)?;
        for (argument, tensor) in arguments.iter_mut().zip(&taken) {
            if let (Argument::Checked(value), Some(tensor)) = (&mut *argument, tensor) {
                *argument = Argument::Checked(eval::carried(value, &tensor.spec(), &executor)?);
            }
        }
        Ok(executor)
    }

    fn run(
        &self,
        executor: &DeviceExecutor,
        arguments: &[Argument],
    ) -> Result<girih_runtime::Values> {
        let runtime = executor.runtime();
        let start = executor.config().profile.then(Instant::now);
        let context = Context::current();
        let options = if context.is_plain()? { None } else { context.own_options() };
        let serves =
            |found: &Captured| found.options == options && found.replay.is_current(runtime);
        let recent;
        let replay = match self.first.get() {
            Some(first) if serves(first) => &first.replay,
            _ => {
                let found = lock(self.recent.mine()).clone().filter(|found| serves(found));
                recent = found.map_or_else(|| self.capture(runtime, options), Ok)?;
                &recent.replay
            }
        };
        let limit = executor.limit();
        let Some(start) = start else {
            let values = context
                .with_runtime_stream(runtime, |stream| replay.call(stream, arguments, limit));
            return values.map_err(|e| self.program.failed(e));
        };
        let compile = start.elapsed();
        let timed = context
            .with_runtime_stream(runtime, |stream| replay.call_timed(stream, arguments, limit));
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

    /// Finds or compiles the plan and captures its launch for later calls.
    #[cold]
    fn capture(
        &self,
        runtime: &Arc<PlanExecutor>,
        options: Option<CompileOptions>,
    ) -> Result<Arc<Captured>> {
        let start = Instant::now();
        let replay = Replay::of(runtime, || {
            let options = options.unwrap_or_else(|| runtime.options());
            runtime.plan_at(self.program.symbolic(), &self.sizes, options)
        })?;
        self.program.count_compile_time(start.elapsed());
        let cost_ns = replay.plan().map_or(u64::MAX, |plan| plan.cost_ns);
        self.cost_ns.store(cost_ns, Relaxed);
        let found = Arc::new(Captured { options, replay });
        if self.first.set(found.clone()).is_err() {
            drop(self.recent.mine().replace(Some(found.clone())));
        }
        Ok(found)
    }

    /// Fails if a value contains a NaN, with the op and the line that computed the first one.
    fn look_for_nans(
        &self,
        executor: &DeviceExecutor,
        arguments: &[Argument],
        values: &[Value],
    ) -> Result<()> {
        let graph = self.program.program().graph().bind(&self.sizes)?;
        let results = graph.outputs().iter().copied().zip(values.iter().cloned());
        let results: Vec<_> = results.collect();
        nans::check(executor, &graph, arguments, &results).map_err(|e| self.program.failed(e))
    }
}

impl TracedProgram {
    /// The outputs for these arguments and these values of the captured tensors.
    ///
    /// Runs the program immediately and returns computed tensors. Only if an argument depends on a
    /// placeholder of a function that is being traced, or a tensor requires a gradient
    /// ([`Tensor::requires_grad`]), the program is recorded instead, and its outputs are lazy.
    /// Compiled functions can therefore be differentiated. The results of a function that takes
    /// gradients itself require none.
    ///
    /// Errors: [`crate::Error::InvalidArgument`] for arguments that the program does not serve;
    /// [`crate::Error::Evaluation`].
    #[track_caller]
    pub fn call(
        self: &Arc<Self>,
        arguments: &[&Tensor],
        captures: &[&Tensor],
    ) -> Result<Vec<Tensor>> {
        let specs: Vec<TensorSpec> = arguments.iter().map(|t| t.spec()).collect();
        let bound = BoundProgram::new(self.clone(), &specs)?;
        let found: Vec<TensorSpec> = captures.iter().map(|t| t.spec()).collect();
        if found != self.captures() {
            return Err(crate::Error::InvalidArgument(format!(
                "the function refers to tensors {:?} where it was traced with {:?}",
                found,
                self.captures()
            )));
        }
        let given: Vec<Tensor> = arguments.iter().chain(captures).map(|&t| t.clone()).collect();
        bound.call(&given)
    }
}

fn lock(recent: &Mutex<Option<Arc<Captured>>>) -> MutexGuard<'_, Option<Arc<Captured>>> {
    recent.lock().unwrap_or_else(PoisonError::into_inner)
}

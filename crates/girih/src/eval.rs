//! Evaluation: cuts the needed graph out of the recording, compiles it into a plan, and runs the
//! plan.
//!
//! An evaluation claims the nodes that it computes (`claim`) while no other cut can contain them,
//! so that two threads never compute a node twice: the second thread finds the node scheduled and
//! waits for the first. Evaluations without a common lazy node do not synchronise. An evaluation
//! runs on one device; values on other devices are copied first.

mod claim;

pub(crate) use claim::settle_or_interrupt;

use self::claim::{Claim, Claimed, claim};
use crate::cut::{Cut, CutGraph, cut, suspects};
use crate::devices::{self, Device, Transferred};
use crate::error::Error;
use crate::location::Location;
use crate::node::{Node, State};
use crate::{
    Compilation, Context, Executor, Profile, Result, Tensor, background, context, host, nans,
    nested, trace,
};
use girih_ir::{Graph, NodeId, OpCode, TensorSpec};
use girih_runtime::{Argument, CachedPlan, CompileOptions, Completion, Value};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The runtime executor of this thread's context on its current device.
pub(crate) fn executor() -> Result<Arc<girih_runtime::PlanExecutor>> {
    Ok(Context::current().executor()?.runtime().clone())
}

/// The executor of this thread's context for the device of these tensors.
///
/// Errors: [`Error::MixedDevices`] if the tensors are on several devices.
pub(crate) fn executor_of(what: &'static str, tensors: &[&Tensor]) -> Result<Executor> {
    Context::current().executor_for(Device::common(what, tensors)?)
}

/// The closed graph that an evaluation by an executor would cut now, after waiting for nodes that
/// other evaluations compute. Values needed from other devices are computed. With `keep`,
/// intermediates with other references are outputs too.
pub(crate) fn cut_out(executor: &Executor, targets: &[&Tensor], keep: bool) -> Result<CutGraph> {
    nested::check("compilation")?;
    let mut transferred = Transferred::default();
    let device = executor.runtime().device().id();
    loop {
        match cut(device, targets, &transferred, keep, |_| ())? {
            Cut::Ready(cut, ()) => return Ok(cut),
            Cut::Elsewhere(nodes) => devices::transfer_values(&nodes, executor, &mut transferred)?,
            // A failure of the other evaluation is reported to its own caller; the node is lazy
            // again then.
            Cut::Blocked(node) => {
                settle_or_interrupt(&node)?;
            }
        }
    }
}

/// Computes the values of tensors, with one run per device, so that shared work is done once.
/// Available tensors cost nothing.
///
/// In a function that is differentiated, the values at its arguments are computed, so that their
/// errors are raised; the tensors stay lazy.
///
/// Errors: [`Error::Evaluation`]; the tensors stay lazy and may be evaluated again.
/// [`Error::TracedValue`] if a tensor depends on a placeholder without a value, as in a function
/// that is compiled or batched.
pub fn eval<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    match eval_recorded(&targets) {
        Err(error @ Error::TracedValue { .. }) => {
            let there: Option<Vec<Tensor>> =
                targets.iter().map(|target| crate::transform::at_arguments(target)).collect();
            let Some(there) = there else { return Err(error) };
            eval_recorded(&there.iter().collect::<Vec<_>>())
        }
        outcome => outcome,
    }
}

/// As [`eval`], but values that depend on placeholders are errors.
pub(crate) fn eval_recorded(targets: &[&Tensor]) -> Result<()> {
    if all_available(targets) {
        return Ok(());
    }
    check_reads(targets, "evaluation")?;
    by_device(targets, |executor, targets| {
        if !executor.config().profile {
            return eval_on(executor, targets.iter().copied(), None);
        }
        let mut profile = Profile::default();
        let outcome = eval_on(executor, targets.iter().copied(), Some(&mut profile));
        executor.set_profile(profile);
        outcome
    })
}

/// Calls `run` with the tensors of each device and the executor of this context for the device.
fn by_device(
    targets: &[&Tensor],
    mut run: impl FnMut(&Executor, &[&Tensor]) -> Result<()>,
) -> Result<()> {
    let Some(first) = targets.first() else { return Ok(()) };
    let device = first.device();
    if targets.iter().all(|t| t.device() == device) {
        return run(&Context::current().executor_for(device)?, targets);
    }
    let mut devices: Vec<Device> = targets.iter().map(|t| t.device()).collect();
    devices.sort_by_key(|device| device.index());
    devices.dedup();
    for device in devices {
        let own: Vec<&Tensor> = targets.iter().filter(|t| t.device() == device).copied().collect();
        run(&Context::current().executor_for(device)?, &own)?;
    }
    Ok(())
}

/// Computes the values of tensors with an executor, and adds the times to `profile`.
pub(crate) fn eval_on<'a>(
    executor: &Executor,
    tensors: impl IntoIterator<Item = &'a Tensor>,
    mut profile: Option<&mut Profile>,
) -> Result<()> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    let mut transferred = Transferred::default();
    loop {
        while !run(executor, &targets, &mut transferred, true, &mut profile)? {}
        // A failed run of another evaluation leaves the tensors lazy. Then compute them here, so
        // that this caller receives the error.
        let mut there = true;
        for target in &targets {
            there &= settle_or_interrupt(target.node())?;
        }
        if there {
            return Ok(());
        }
    }
}

/// Computes a tensor that was just recorded, unless it depends on a placeholder.
pub(crate) fn eagerly(tensor: &Tensor) -> Result<()> {
    eagerly_all(std::slice::from_ref(tensor))
}

/// Computes tensors that were just recorded, unless they depend on a placeholder.
pub(crate) fn eagerly_all(tensors: &[Tensor]) -> Result<()> {
    match host::outside(|| eval_recorded(&tensors.iter().collect::<Vec<_>>())) {
        Err(Error::TracedValue { .. } | Error::OutsideValue { .. }) => Ok(()),
        outcome => outcome,
    }
}

/// Maximum number of pending evaluations of a stream, as back-pressure: starting another one waits.
const MAX_QUEUED: usize = 64;

/// Starts the evaluation of tensors and returns immediately, even if it has to be compiled first.
/// Reading a value waits for the evaluation. If 64 evaluations of the stream have not begun, the
/// call waits until one has begun, so that a loop which never reads uses bounded memory.
///
/// Errors: those of binding arguments; [`Error::TracedValue`]. Errors of compilation and execution
/// are reported when a value is read.
pub fn async_eval<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    if all_available(&targets) {
        return Ok(());
    }
    check_reads(&targets, "evaluation")?;
    nested::check("evaluation")?;
    background::wait_for_room(MAX_QUEUED)?;
    let started = by_device(&targets, |executor, targets| {
        let stream = Context::current().runtime_stream(executor.runtime());
        stream.queue().wait_for_room(MAX_QUEUED)?;
        while !run(executor, targets, &mut Transferred::default(), false, &mut None)? {}
        Ok(())
    });
    match started {
        // The values at the arguments of a function that is differentiated: see [`eval`].
        Err(Error::TracedValue { .. }) => eval(targets),
        outcome => outcome,
    }
}

/// Compiles the graph that leads to tensors in the background, without running it. A later
/// evaluation finds the program in the cache.
///
/// Errors: [`Error::TracedValue`].
pub fn compile_only<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Compilation> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    let executor = executor_of("compile_only", &targets)?;
    let cut = cut_out(&executor, &targets, true)?;
    let completion = Completion::pending();
    let (graph, outcome) = (cut.graph, completion.clone());
    let options = Context::current().options(executor.runtime());
    background::spawn(move || {
        outcome.finish(executor.runtime().plan(&graph, options).map(|_| ()));
    });
    Ok(Compilation(completion))
}

fn all_available(targets: &[&Tensor]) -> bool {
    targets.iter().all(|t| matches!(&*t.node().state(), State::Available(_)))
}

/// Fails for values that a function being compiled must not read.
fn check_reads(targets: &[&Tensor], what: &'static str) -> Result<()> {
    if !trace::is_active() {
        return Ok(());
    }
    let lazy = targets.iter().filter(|t| !all_available(&[t]));
    lazy.into_iter().try_for_each(|target| trace::check_read(target, what))
}

/// The tensor's data; evaluates the tensor if needed. `what` names the operation in errors.
pub(crate) fn value(tensor: &Tensor, what: &'static str) -> Result<Value> {
    trace::check_read(tensor, what)?;
    if let State::Available(value) = &*tensor.node().state() {
        return Ok(value.clone());
    }
    match eval_recorded(&[tensor]) {
        Err(Error::TracedValue { argument, shape, at, .. }) => {
            // In a function that is differentiated, the value at its arguments is read. It is a
            // constant: no derivative flows through what is computed from it.
            return match crate::transform::at_arguments(tensor) {
                Some(there) => value(&there, what),
                None => Err(Error::TracedValue { what, argument, shape, at }),
            };
        }
        outcome => outcome?,
    }
    match &*tensor.node().state() {
        State::Available(value) => Ok(value.clone()),
        _ => unreachable!("a successful evaluation leaves its targets available"),
    }
}

/// The profile to which times are added, if any.
type Times<'a> = Option<&'a mut Profile>;

/// Runs one evaluation. Returns `false` if it first had to wait for another evaluation. If memory
/// is insufficient for the intermediates with other references, the run is repeated with only the
/// targets as outputs.
fn run(
    executor: &Executor,
    targets: &[&Tensor],
    transferred: &mut Transferred,
    wait: bool,
    times: &mut Times<'_>,
) -> Result<bool> {
    nested::check("evaluation")?;
    match attempt(executor, targets, transferred, wait, true, times) {
        Err(Error::Evaluation { source, .. })
            if matches!(*source, girih_runtime::Error::OutOfMemory { .. }) =>
        {
            attempt(executor, targets, transferred, wait, false, times)
        }
        outcome => outcome,
    }
}

fn attempt(
    executor: &Executor,
    targets: &[&Tensor],
    transferred: &mut Transferred,
    wait: bool,
    keep: bool,
    times: &mut Times<'_>,
) -> Result<bool> {
    if all_available(targets) {
        return Ok(true);
    }
    let start = times.as_ref().map(|_| Instant::now());
    let device = executor.runtime().device().id();
    let (cut, claim) = match claim(device, targets, transferred, keep)? {
        Claimed::Work(cut, claim) => (cut, claim),
        Claimed::Nothing => return Ok(true),
        Claimed::Blocked(node) => {
            // A failure of the other evaluation is reported to its own caller; the node is lazy
            // again then.
            settle_or_interrupt(&node)?;
            return Ok(false);
        }
        Claimed::Elsewhere(nodes) if wait => {
            devices::transfer_values(&nodes, executor, transferred)?;
            return Ok(false);
        }
        Claimed::Elsewhere(_) => {
            evaluate_in_background(targets);
            return Ok(true);
        }
    };
    if let (Some(profile), Some(start)) = (times.as_mut(), start) {
        profile.extraction += start.elapsed();
    }
    let verify = Context::current().verify_shapes()?;
    let options = Context::current().options(executor.runtime());
    let nodes = cut.graph.len();
    let search = Context::current().debug_nans()?.then(|| NanSearch::new(&cut));
    let wait = wait || search.is_some();
    let stream = Context::current().runtime_stream(executor.runtime());
    let work = Work { executor: executor.clone(), stream, cut, claim, keep, verify, options };
    if wait {
        let outcome = work.run(None, true, times);
        crate::memory::return_memory(nodes);
        if let (Ok(true), Some(search)) = (&outcome, search) {
            search.check(executor)?;
        }
        return outcome;
    }
    match executor.runtime().cached_plan(&work.cut.graph, options) {
        // Queue behind pending compilations, because a stream runs programs in submission order.
        Some(program) if !background::is_busy() => work.run(Some(program), false, times),
        program => {
            // A failure leaves the tensors lazy; reading one computes it again and reports the
            // error.
            background::spawn(move || {
                drop(work.run(program, false, &mut None));
                crate::memory::return_memory(nodes);
            });
            Ok(true)
        }
    }
}

/// The data needed to search the results of a run for NaNs afterwards.
struct NanSearch {
    graph: Graph,
    arguments: Vec<Argument>,
    results: Vec<(NodeId, Arc<Node>)>,
    recorded: Vec<(u32, Location)>,
}

impl NanSearch {
    fn new(cut: &CutGraph) -> NanSearch {
        NanSearch {
            graph: cut.graph.clone(),
            arguments: cut.arguments.clone(),
            results: cut.outputs.iter().copied().zip(cut.output_nodes()).collect(),
            recorded: cut.nodes.iter().map(|node| (node.id(), node.location())).collect(),
        }
    }

    fn check(self, executor: &Executor) -> Result<()> {
        let value = |(id, node): &(NodeId, Arc<Node>)| match &*node.state() {
            State::Available(value) => Some((*id, value.clone())),
            _ => None,
        };
        let results: Vec<_> = self.results.iter().filter_map(value).collect();
        nans::check(executor, &self.graph, &self.arguments, &results).map_err(|error| {
            let recorded = |id: NodeId| {
                let (number, line) = self.recorded[id.index()];
                (Some(number), line)
            };
            let at = suspects(&self.graph, self.graph.outputs(), recorded, &error);
            Error::evaluation(error, at)
        })
    }
}

/// A cut graph and its claim.
struct Work {
    executor: Executor,
    stream: Arc<girih_runtime::Stream>,
    cut: CutGraph,
    claim: Arc<Claim>,
    /// Whether intermediates with other references are outputs.
    keep: bool,
    verify: bool,
    options: CompileOptions,
}

impl Work {
    /// Compiles, binds and starts the graph. Returns `false` if a run that the evaluation waited
    /// for has failed.
    fn run(self, program: Option<CachedPlan>, wait: bool, times: &mut Times<'_>) -> Result<bool> {
        let Work { cut, claim, .. } = &self;
        let outcome = self.start(program, wait, times);
        let store = times.as_ref().map(|_| Instant::now());
        match outcome {
            Ok(()) if wait => claim.settle(true),
            Ok(()) => claim.queued(),
            Err(error) => {
                claim.completion.finish(Err(error.clone()));
                claim.settle(false);
                if let girih_runtime::Error::Dependency(_) = error {
                    // The nodes of the failed run are lazy again, and this evaluation computes
                    // them.
                    return Ok(false);
                }
                let at = cut.suspects(&error);
                return Err(Error::evaluation(error, at));
            }
        }
        if let (Some(profile), Some(store)) = (times.as_mut(), store) {
            profile.store += store.elapsed();
        }
        Ok(true)
    }

    fn start(
        &self,
        program: Option<CachedPlan>,
        wait: bool,
        times: &mut Times<'_>,
    ) -> girih_runtime::Result<()> {
        let Work { cut, claim, .. } = self;
        let runtime = self.executor.runtime();
        let mut watch = Stopwatch::new(times.is_some());
        let compiled = runtime.num_compiles();
        let program = match program {
            Some(program) => program,
            None => self.plan()?,
        };
        let plan = &program.plan;
        let lookup = watch.lap();
        let control = runtime.control(self.executor.limit(), times.is_some());
        let (block, values) = runtime.bind(&program, &cut.arguments, control)?;
        let transfer = watch.lap();
        claim.bind(&values);
        let completion = &claim.completion;
        if !wait {
            // The thread that runs the plan settles the claim, so that a loop which never reads
            // keeps no history.
            let claim = claim.clone();
            completion.then(move |outcome| claim.settle(outcome.is_ok()));
        }
        let outcome = {
            let (after, completion) = (cut.after.clone(), completion.clone());
            runtime.start(&self.stream, plan, &block, after, completion, wait)
        };
        if let Some(profile) = times.as_mut() {
            if runtime.num_compiles() > compiled {
                profile.optimization += plan.times.optimize;
                profile.codegen += plan.times.codegen;
                let before = plan.times.optimize + plan.times.codegen;
                profile.compile += lookup.saturating_sub(before);
            } else {
                profile.compile += lookup;
            }
            profile.transfer += transfer;
            profile.execution += transfer + watch.lap();
            profile.kernels.extend(block.control().take_times());
        }
        outcome
    }

    /// The program of the graph. With shape verification, the result specs of the program are
    /// compared with the recorded specs.
    fn plan(&self) -> girih_runtime::Result<CachedPlan> {
        let graph = &self.cut.graph;
        if self.verify {
            girih_ir::agreement::check(graph)?;
        }
        let runtime = self.executor.runtime();
        let program = match self.keep {
            true => runtime.plan_keeping(graph, self.cut.num_targets, self.options)?,
            // There was no memory for outputs other than the targets.
            false => runtime.plan(graph, self.options)?,
        };
        if self.verify {
            for (i, &output) in graph.outputs().iter().enumerate() {
                let order = program.order.as_ref();
                let at = order.map_or(i, |order| order.outputs[i] as usize);
                let (said, built) = (graph.spec(output), &program.plan.outputs[at].spec);
                if said != built {
                    let at = format!("{output} = {}", graph.node(output).op.name());
                    let reason = format!("its shape rule says {said}, but {built} was built");
                    return Err(girih_ir::Error::Invalid { at, reason }.into());
                }
            }
        }
        Ok(program)
    }
}

/// A stopwatch that measures the times between laps if it is on.
struct Stopwatch(Option<Instant>);

impl Stopwatch {
    fn new(on: bool) -> Stopwatch {
        Stopwatch(on.then(Instant::now))
    }

    fn lap(&mut self) -> Duration {
        let Some(last) = &mut self.0 else { return Duration::ZERO };
        let now = Instant::now();
        now - std::mem::replace(last, now)
    }
}

/// Evaluates tensors on a background thread, which waits for the values on other devices.
fn evaluate_in_background(targets: &[&Tensor]) {
    let targets: Vec<Tensor> = targets.iter().map(|t| (*t).clone()).collect();
    let frame = Context::current().frame();
    background::spawn(move || {
        let own = Context::current().swap(frame);
        // A failure leaves the tensors lazy; reading one computes it again and reports the error.
        let _ = eval(&targets);
        Context::current().swap(own);
    });
}

/// A tensor with a copy of `bytes`, in the layout of `spec`, on the current device.
pub(crate) fn from_bytes(spec: &TensorSpec, bytes: &[u8]) -> Result<Tensor> {
    let executor = executor()?;
    let value = executor.upload_on(&Context::current().runtime_stream(&executor), bytes)?;
    Ok(Tensor::available(OpCode::Input, spec, value))
}

/// Fails if there is no memory for `count` objects of `bytes_each` bytes, such as handles.
pub(crate) fn room_for(count: usize, bytes_each: usize) -> Result<()> {
    let requested = count.saturating_mul(bytes_each);
    // The device's memory size is the machine's, or the limit that the user sets.
    let most = executor()?.device().properties().memory_bytes;
    match requested <= most {
        true => Ok(()),
        false => Err(girih_runtime::Error::HostMemory { requested }.into()),
    }
}

/// Fails if the current device has no memory for a tensor of that many bytes now.
pub(crate) fn check_room_on_device(bytes: usize) -> Result<()> {
    // Allocating collects garbage if need be; pages are provided when they are first written.
    drop(executor()?.device().allocator().allocate(bytes)?);
    Ok(())
}

/// A tensor whose bytes `read` supplies in parts.
pub(crate) fn from_reader(spec: &TensorSpec, read: impl FnMut(usize, &mut [u8])) -> Result<Tensor> {
    let executor = executor()?;
    let stream = Context::current().runtime_stream(&executor);
    let value = executor.upload_staged(&stream, spec.size_bytes(), read)?;
    Ok(Tensor::available(OpCode::Input, spec, value))
}

/// The tensor's elements, row-major.
pub(crate) fn to_bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let value = value(tensor, "reading a tensor")?;
    let executor = Context::current().executor_for(Device::of(&value))?;
    let bytes = executor.runtime().download(&value, tensor.spec().size_bytes())?;
    Ok(bytes.into_vec())
}

/// Records a placeholder in the current graph: a leaf without a value, for tracing a function.
pub(crate) fn placeholder(spec: &TensorSpec) -> Tensor {
    Tensor::from_node(context::add_node(OpCode::Input.into(), spec, None, State::Leaf))
}

//! Evaluation: cuts the needed graph out of the recording, compiles it into a plan, and runs the
//! plan.
//!
//! An evaluation claims the nodes that it computes (`claim`) while no other cut can contain them,
//! so that two threads never compute a node twice: the second thread finds the node scheduled and
//! waits for the first. Evaluations without a common lazy node do not synchronise. An evaluation
//! runs on one device; values on other devices are copied first.

mod claim;
mod mesh;
mod transfer;

pub use self::mesh::{Collective, forget_mesh_programs, from_parts, parts, plan_on_mesh};
pub use claim::settle_or_interrupt;
pub use transfer::carried;

use self::claim::{Claim, Claimed, claim};
use self::transfer::transfer_values;
use crate::background::{self, Compilation};
use crate::context::{self, Context};
use crate::cut::{Cut, CutGraph, Transferred, cut, suspects};
use crate::device::Device;
use crate::error::{Error, Result, evaluation_error};
use crate::executor::{DeviceExecutor, Profile};
use crate::location::Location;
use crate::memory::return_memory;
use crate::mesh::Home;
use crate::node::{Node, State};
use crate::{host, nans, nested, trace};
use girih_ir::{Graph, NodeId, OpCode, TensorSpec};
use girih_runtime::{Argument, CachedPlan, CompileOptions, Completion, Value};
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The runtime executor of this thread's context on its current device.
pub fn executor() -> Result<Arc<girih_runtime::PlanExecutor>> {
    Ok(Context::current().executor()?.runtime().clone())
}

/// The executor of this thread's context for the device of these tensors.
///
/// Errors: [`Error::MixedDevices`] if the tensors are on several devices.
pub fn executor_of<H: Borrow<Arc<Node>>>(
    what: &'static str,
    tensors: &[&H],
) -> Result<DeviceExecutor> {
    Context::current().executor_for(Device::common(what, tensors)?)
}

/// The closed graph that an evaluation by an executor would cut now, after waiting for nodes that
/// other evaluations compute. Values needed from other devices are computed. With `keep`,
/// intermediates with other references are outputs too.
///
/// Errors: [`Error::TracedValue`]; those of the other evaluations.
pub fn cut_out<H: Borrow<Arc<Node>>>(
    executor: &DeviceExecutor,
    targets: &[&H],
    keep: bool,
) -> Result<CutGraph> {
    let targets: SmallVec<[&Arc<Node>; 4]> =
        targets.iter().map(|&target| target.borrow()).collect();
    nested::check("compilation")?;
    let mut transferred = Transferred::default();
    let home = Home::Device(executor.runtime().device().id());
    loop {
        match cut(home, &targets, &transferred, keep, |_| ())? {
            Cut::Ready(cut, ()) => return Ok(cut),
            Cut::Elsewhere(nodes) => transfer_values(&nodes, executor, &mut transferred)?,
            // A failure of the other evaluation is reported to its own caller; the node is lazy
            // again then.
            Cut::Blocked(node) => {
                settle_or_interrupt(&node)?;
            }
        }
    }
}

/// Computes the values of nodes, with one run per device, so that shared work is done once.
/// Available nodes cost nothing.
///
/// Errors: [`Error::Evaluation`]; the nodes stay lazy and may be evaluated again.
/// [`Error::TracedValue`] if a node depends on a placeholder.
pub fn eval_recorded(targets: &[&Arc<Node>]) -> Result<()> {
    if all_available(targets) {
        return Ok(());
    }
    check_reads(targets, "evaluation")?;
    by_device(targets, |executor, targets| {
        if !executor.config().profile {
            return eval_on(executor, targets, None);
        }
        let mut profile = Profile::default();
        let outcome = eval_on(executor, targets, Some(&mut profile));
        executor.set_profile(profile);
        outcome
    })
}

/// Calls `run` with the tensors of each device and the executor of this context for the device.
/// Tensors on meshes are computed first.
fn by_device(
    targets: &[&Arc<Node>],
    mut run: impl FnMut(&DeviceExecutor, &[&Arc<Node>]) -> Result<()>,
) -> Result<()> {
    let Some(first) = targets.first() else { return Ok(()) };
    let device = trace::device_of(first);
    let is_here =
        |target: &&Arc<Node>| !target.place().is_sharded() && target.place().device() == device;
    if targets.iter().all(is_here) {
        return run(&Context::current().executor_for(device)?, targets);
    }
    let (sharded, on_devices): (Vec<_>, Vec<_>) =
        targets.iter().copied().partition(|target| target.place().is_sharded());
    mesh::eval(&sharded)?;
    let mut devices: Vec<Device> = on_devices.iter().map(|t| t.place().device()).collect();
    devices.sort_by_key(|device| device.index());
    devices.dedup();
    for device in devices {
        let is_here = |target: &&&Arc<Node>| target.place().device() == device;
        let own: Vec<&Arc<Node>> = on_devices.iter().filter(is_here).copied().collect();
        run(&Context::current().executor_for(device)?, &own)?;
    }
    Ok(())
}

/// Computes the values of nodes with an executor, and adds the times to `profile`.
///
/// Errors: as [`eval_recorded`].
pub fn eval_on(
    executor: &DeviceExecutor,
    targets: &[&Arc<Node>],
    mut profile: Option<&mut Profile>,
) -> Result<()> {
    let mut transferred = Transferred::default();
    loop {
        while !run(executor, targets, &mut transferred, true, &mut profile)? {}
        // A failed run of another evaluation leaves the tensors lazy. Then compute them here, so
        // that this caller receives the error.
        let mut there = true;
        for target in targets {
            there &= settle_or_interrupt(target)?;
        }
        if there {
            return Ok(());
        }
    }
}

/// Computes nodes that were just recorded, unless they depend on a placeholder.
pub(crate) fn eagerly(nodes: &[Arc<Node>]) -> Result<()> {
    match host::outside(|| eval_recorded(&nodes.iter().collect::<Vec<_>>())) {
        Err(Error::TracedValue { .. } | Error::OutsideValue { .. }) => Ok(()),
        outcome => outcome,
    }
}

/// Maximum number of pending evaluations of a stream, as back-pressure: starting another one waits.
const MAX_QUEUED: usize = 64;

/// Starts the evaluation of nodes and returns immediately, even if it has to be compiled first.
/// Reading a value waits for the evaluation. If 64 evaluations of the stream have not begun, the
/// call waits until one has begun, so that a loop which never reads uses bounded memory.
///
/// Errors: those of binding arguments; [`Error::TracedValue`]. Errors of compilation and execution
/// are reported when a value is read.
pub fn async_eval(targets: &[&Arc<Node>]) -> Result<()> {
    if all_available(targets) {
        return Ok(());
    }
    check_reads(targets, "evaluation")?;
    nested::check("evaluation")?;
    background::wait_for_room(MAX_QUEUED)?;
    if targets.iter().any(|target| target.place().is_sharded()) {
        evaluate_in_background(targets);
        return Ok(());
    }
    by_device(targets, |executor, targets| {
        let stream = Context::current().runtime_stream(executor.runtime());
        stream.queue().wait_for_room(MAX_QUEUED)?;
        while !run(executor, targets, &mut Transferred::default(), false, &mut None)? {}
        Ok(())
    })
}

/// Compiles the graph that leads to nodes in the background, without running it. A later
/// evaluation finds the program in the cache.
///
/// Errors: [`Error::TracedValue`].
pub fn compile_only(targets: &[&Arc<Node>]) -> Result<Compilation> {
    if targets.iter().any(|target| target.place().is_sharded()) {
        return mesh::compile_only(targets);
    }
    let executor = executor_of("compile_only", targets)?;
    let cut = cut_out(&executor, targets, true)?;
    let completion = Completion::pending();
    let (graph, outcome) = (cut.graph, completion.clone());
    let options = Context::current().options(executor.runtime());
    background::spawn(move || {
        outcome.finish(executor.runtime().plan(&graph, options).map(|_| ()));
    });
    Ok(Compilation(completion))
}

fn all_available(targets: &[&Arc<Node>]) -> bool {
    targets.iter().all(|target| target.has_value())
}

/// Fails for values that a function being compiled must not read.
fn check_reads(targets: &[&Arc<Node>], what: &'static str) -> Result<()> {
    if !trace::is_active() {
        return Ok(());
    }
    let mut lazy = targets.iter().filter(|target| !target.has_value());
    lazy.try_for_each(|target| trace::check_read(target, what))
}

/// The node's data; evaluates the node if needed. `what` names the operation in errors.
///
/// Errors: as [`eval_recorded`].
pub fn value(node: &Arc<Node>, what: &'static str) -> Result<Value> {
    trace::check_read(node, what)?;
    if let Some(value) = known(node) {
        return value;
    }
    eval_recorded(&[node]).map_err(|error| match error {
        Error::TracedValue { argument, shape, at, .. } => {
            Error::TracedValue { what, argument, shape, at }
        }
        error => error,
    })?;
    known(node)
        .unwrap_or_else(|| unreachable!("a successful evaluation leaves its targets available"))
}

/// The value of an available node; that of a node on a mesh is gathered on the host.
fn known(node: &Arc<Node>) -> Option<Result<Value>> {
    let parts = match &*node.state() {
        State::Available(value) => return Some(Ok(value.clone())),
        State::Sharded(parts) => parts.clone(),
        _ => return None,
    };
    Some(mesh::gathered(node, &parts))
}

/// The profile to which times are added, if any.
type Times<'a> = Option<&'a mut Profile>;

/// Runs one evaluation. Returns `false` if it first had to wait for another evaluation. If memory
/// is insufficient for the intermediates with other references, the run is repeated with only the
/// targets as outputs.
fn run(
    executor: &DeviceExecutor,
    targets: &[&Arc<Node>],
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
    executor: &DeviceExecutor,
    targets: &[&Arc<Node>],
    transferred: &mut Transferred,
    wait: bool,
    keep: bool,
    times: &mut Times<'_>,
) -> Result<bool> {
    if all_available(targets) {
        return Ok(true);
    }
    let start = times.as_ref().map(|_| Instant::now());
    let home = Home::Device(executor.runtime().device().id());
    let (cut, claim) = match claim(home, targets, transferred, keep)? {
        Claimed::Work(cut, claim) => (cut, claim),
        Claimed::Nothing => return Ok(true),
        Claimed::Blocked(node) => {
            // A failure of the other evaluation is reported to its own caller; the node is lazy
            // again then.
            settle_or_interrupt(&node)?;
            return Ok(false);
        }
        Claimed::Elsewhere(nodes) if wait => {
            transfer_values(&nodes, executor, transferred)?;
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
        return_memory(nodes);
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
                return_memory(nodes);
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

    fn check(self, executor: &DeviceExecutor) -> Result<()> {
        let value = |(id, node): &(NodeId, Arc<Node>)| Some(known(node)?.map(|value| (*id, value)));
        let results = self.results.iter().filter_map(value).collect::<Result<Vec<_>>>()?;
        nans::check(executor, &self.graph, &self.arguments, &results).map_err(|error| {
            let recorded = |id: NodeId| {
                let (number, line) = self.recorded[id.index()];
                (Some(number), line)
            };
            let at = suspects(&self.graph, self.graph.outputs(), recorded, &error);
            evaluation_error(error, at)
        })
    }
}

/// A cut graph and its claim.
struct Work {
    executor: DeviceExecutor,
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
                return Err(evaluation_error(error, at));
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

/// Evaluates nodes on a background thread, which waits for the values on other devices.
fn evaluate_in_background(targets: &[&Arc<Node>]) {
    let targets: Vec<Arc<Node>> = targets.iter().map(|&target| target.clone()).collect();
    let frame = Context::current().frame();
    background::spawn(move || {
        let own = Context::current().swap(frame);
        // A failure leaves the tensors lazy; reading one computes it again and reports the error.
        let _ = eval_recorded(&targets.iter().collect::<Vec<_>>());
        Context::current().swap(own);
    });
}

/// A copy of `bytes` in the memory of the current device.
///
/// Errors: [`Error::Evaluation`] if there is no memory.
pub fn upload(bytes: &[u8]) -> Result<Value> {
    let executor = executor()?;
    Ok(executor.upload_on(&Context::current().runtime_stream(&executor), bytes)?)
}

/// Fails if there is no memory for `count` objects of `bytes_each` bytes, such as handles.
///
/// Errors: [`Error::Evaluation`].
pub fn room_for(count: usize, bytes_each: usize) -> Result<()> {
    let requested = count.saturating_mul(bytes_each);
    // The device's memory size is the machine's, or the limit that the user sets.
    let most = executor()?.device().properties().memory_bytes;
    match requested <= most {
        true => Ok(()),
        false => Err(girih_runtime::Error::HostMemory { requested }.into()),
    }
}

/// Fails if the current device has no memory for a tensor of that many bytes now.
///
/// Errors: [`Error::Evaluation`].
pub fn check_room_on_device(bytes: usize) -> Result<()> {
    // Allocating collects garbage if need be; pages are provided when they are first written.
    drop(executor()?.device().allocator().allocate(bytes)?);
    Ok(())
}

/// `size` bytes in the memory of the current device, which `read` supplies in parts: it fills memory
/// with the bytes that start at a given offset.
///
/// Errors: [`Error::Evaluation`] if there is no memory.
pub fn upload_parts(size: usize, read: impl FnMut(usize, &mut [u8])) -> Result<Value> {
    let executor = executor()?;
    let stream = Context::current().runtime_stream(&executor);
    Ok(executor.upload_staged(&stream, size, read)?)
}

/// Records a placeholder in the current graph: a leaf without a value, for tracing a function.
pub fn placeholder(spec: &TensorSpec) -> Arc<Node> {
    context::add_node(OpCode::Input.into(), spec, None, State::Leaf)
}

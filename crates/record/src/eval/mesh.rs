//! Evaluation on a mesh: the graph that leads to the targets is partitioned into a program for each
//! processor, once for equal graphs and shardings, and the programs run on the mesh's devices.
//! Values on one device that a mesh needs are spread over it, and values on a mesh that a device or a
//! reader needs are gathered.

use super::claim::{Claim, Claimed, claim, settle_or_interrupt};
use super::{NanSearch, carried, eval_recorded, value};
use crate::background::Compilation;
use crate::context::{self, Context};
use crate::cut::{Cut, CutGraph, Transferred, cut};
use crate::device::Device;
use crate::error::{Error, Result, evaluation_error};
use crate::executor::DeviceExecutor;
use crate::location::Location;
use crate::mesh::{Home, MeshPlacement, PlacedMesh, placed};
use crate::nested;
use crate::node::{Held, Node, State, drop_state};
use crate::place::Place;
use girih_dist::partition::{Exchange, Partition, partition};
use girih_dist::{Kind, reshard};
use girih_ir::{DeviceMesh, NodeId, OpCode, P, Sharding, TensorSpec};
use girih_runtime::mesh::{Exchanged, Lane, MeshArgument, MeshProgram, MeshRun};
use girih_runtime::{Argument, CompileOptions, Completion, Value};
use girih_sync::Mutex;
use rustc_hash::FxHashMap;
use std::sync::{Arc, PoisonError};

/// Computes nodes on meshes, mesh by mesh.
///
/// Errors: as [`eval_recorded`]; [`Error::DeviceUnavailable`] for a ghost mesh.
pub(super) fn eval(targets: &[&Arc<Node>]) -> Result<()> {
    let mut rest: Vec<&Arc<Node>> =
        targets.iter().copied().filter(|target| !target.has_value()).collect();
    while let Some(mesh) = rest.first().and_then(|node| node.place().sharding()) {
        let mesh = mesh.mesh();
        let is_here = |node: &&Arc<Node>| Home::Mesh(mesh).has(node.place().sharding());
        let (own, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_here);
        eval_on(mesh, &own)?;
        rest = others;
    }
    Ok(())
}

/// Fails for a mesh without devices.
fn check_devices(mesh: &PlacedMesh) -> Result<()> {
    if !mesh.devices().is_empty() {
        return Ok(());
    }
    let reason = format!(
        "the mesh {} has no devices, so that nothing can be computed on it; shapes, shardings and \
         plans are known without",
        mesh.mesh()
    );
    Err(Error::DeviceUnavailable { name: "ghost".into(), reason })
}

fn eval_on(mesh: &'static PlacedMesh, targets: &[&Arc<Node>]) -> Result<()> {
    check_devices(mesh)?;
    loop {
        while !run(mesh, targets)? {}
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

/// Runs one evaluation. Returns `false` if it first had to wait, or to compute values elsewhere.
fn run(mesh: &'static PlacedMesh, targets: &[&Arc<Node>]) -> Result<bool> {
    nested::check("evaluation")?;
    let (cut, claim) = match claim(Home::Mesh(mesh), targets, &Transferred::default(), true)? {
        Claimed::Work(cut, claim) => (cut, claim),
        Claimed::Nothing => return Ok(true),
        Claimed::Blocked(node) => {
            settle_or_interrupt(&node)?;
            return Ok(false);
        }
        Claimed::Elsewhere(nodes) => {
            nodes.iter().try_for_each(spread)?;
            return Ok(false);
        }
    };
    let search = match Context::current().debug_nans()? {
        true => Some(nan_search(&cut)?),
        false => None,
    };
    match compute(mesh, &cut, &claim) {
        Ok(()) => {
            claim.completion.finish(Ok(()));
            claim.settle(true);
            if let Some(search) = search {
                search.check(&Context::current().executor_for(Device::CPU)?)?;
            }
            Ok(true)
        }
        Err(error) => {
            claim.completion.finish(Err(error.clone()));
            claim.settle(false);
            let at = cut.suspects(&error);
            Err(evaluation_error(error, at))
        }
    }
}

/// The search for NaNs in the results of a run, which computes the whole graph on the host.
fn nan_search(cut: &CutGraph) -> Result<NanSearch> {
    let host = Context::current().executor_for(Device::CPU)?;
    let mut search = NanSearch::new(cut);
    let ids: Vec<NodeId> = cut.graph.arguments().collect();
    for (at, argument) in search.arguments.iter_mut().enumerate() {
        let spec = cut.graph.spec(ids[at]).clone();
        let parts = cut.parts.iter().find(|(position, _)| *position == at);
        let value = match (parts, argument.value()) {
            (Some((_, parts)), _) => gathered(&cut.nodes[ids[at].index()], parts)?,
            (None, Some(value)) => carried(value, &spec, &host)?,
            (None, None) => continue,
        };
        *argument = Argument::Tensor(value, spec);
    }
    Ok(search)
}

/// Compiles the programs of nodes on one mesh, without running them.
///
/// Errors: as [`plan_on_mesh`]; those of the compilation.
pub(super) fn compile_only(targets: &[&Arc<Node>]) -> Result<Compilation> {
    nested::check("compilation")?;
    let (mesh, cut) = cut_of(targets)?;
    check_devices(mesh)?;
    let (lanes, options) = lanes(mesh.devices())?;
    let completion = Completion::pending();
    let compiled = program(mesh, &cut, &lanes, options);
    completion.finish(compiled.map(|_| ()));
    Ok(Compilation(completion))
}

fn compute(mesh: &'static PlacedMesh, cut: &CutGraph, claim: &Claim) -> girih_runtime::Result<()> {
    let (lanes, options) = lanes(mesh.devices())?;
    let program = program(mesh, cut, &lanes, options)?;
    let first = Context::current().executor_for(mesh.first_device()).map_err(runtime_error)?;
    let arguments = arguments(mesh, cut, &first).map_err(runtime_error)?;
    let outputs = program.run(&lanes, &arguments, run_of(&first))?;
    let nodes = cut.outputs.iter().map(|id| &cut.nodes[id.index()]);
    let held = nodes.zip(outputs).map(|(node, parts)| match node.place().is_sharded() {
        true => Held::Parts(parts),
        // Computed whole by every processor.
        false => Held::One(parts[0].clone()),
    });
    claim.bind_held(&held.collect::<Vec<_>>());
    Ok(())
}

/// How programs run in this context.
fn run_of(first: &DeviceExecutor) -> MeshRun {
    MeshRun { mode: Context::current().mesh_mode(), limit: first.limit() }
}

fn runtime_error(error: Error) -> girih_runtime::Error {
    match error {
        Error::Evaluation { source, .. } => *source,
        other => girih_runtime::Error::Compile(other.to_string()),
    }
}

/// The lanes of devices, with the options of their programs.
fn lanes(devices: &[Device]) -> girih_runtime::Result<(Vec<Lane>, CompileOptions)> {
    let context = Context::current();
    let mut options = CompileOptions::default();
    let mut lanes = Vec::with_capacity(devices.len());
    for &device in devices {
        let executor = context.executor_for(device).map_err(runtime_error)?.runtime().clone();
        options = context.options(&executor);
        let stream = context.runtime_stream(&executor);
        lanes.push(Lane { executor, stream });
    }
    Ok((lanes, options))
}

/// The arguments of a program. A value on a device outside of the mesh is moved to its first device.
fn arguments(
    mesh: &PlacedMesh,
    cut: &CutGraph,
    first: &DeviceExecutor,
) -> Result<Vec<MeshArgument>> {
    let mut parts = cut.parts.iter().peekable();
    let ids = cut.graph.arguments();
    let of = |((at, argument), id): ((usize, &Argument), NodeId)| {
        Ok(match argument {
            &Argument::Scalar(bits) => MeshArgument::Scalar(bits),
            &Argument::RandomKey { key, offset } => MeshArgument::RandomKey { key, offset },
            tensor => match parts.next_if(|(position, _)| *position == at) {
                Some((_, parts)) => MeshArgument::Parts(parts.clone()),
                None => {
                    let value = tensor.value().expect("the other arguments are tensors");
                    let spec = cut.graph.spec(id);
                    let value = match mesh.devices().contains(&Device::of(value)) {
                        true => value.clone(),
                        false => carried(value, spec, first)?,
                    };
                    MeshArgument::Whole(value, spec.size_bytes())
                }
            },
        })
    };
    cut.arguments.iter().enumerate().zip(ids).map(of).collect()
}

/// The key of a mesh program: the mesh, the graph, and the placements of its arguments and outputs. An
/// argument or output that is whole has no placement.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    mesh: usize,
    graph: Vec<u8>,
    placements: Vec<Option<u16>>,
    options: CompileOptions,
}

impl Key {
    fn new(mesh: &'static PlacedMesh, cut: &CutGraph, options: CompileOptions) -> Key {
        let mut graph = Vec::with_capacity(cut.graph.len() * 40);
        cut.graph.encode(&mut graph);
        let number =
            |id: NodeId| cut.nodes[id.index()].place().sharding().map(MeshPlacement::number);
        let mut parts = cut.parts.iter().peekable();
        let inputs = cut.graph.arguments().enumerate();
        let inputs = inputs.map(|(at, id)| {
            parts.next_if(|(position, _)| *position == at).and_then(|_| number(id))
        });
        let placements = inputs.chain(cut.outputs.iter().copied().map(number)).collect();
        Key { mesh: std::ptr::from_ref(mesh) as usize, graph, placements, options }
    }
}

/// The number of mesh programs that are kept.
const CAPACITY: usize = 256;

/// The programs by key, with the time of their last use.
type Programs = FxHashMap<Key, (Arc<MeshProgram>, u64)>;

static PROGRAMS: Mutex<Option<(Programs, u64)>> = Mutex::new(None);

/// The program of a cut graph.
fn program(
    mesh: &'static PlacedMesh,
    cut: &CutGraph,
    lanes: &[Lane],
    options: CompileOptions,
) -> girih_runtime::Result<Arc<MeshProgram>> {
    let key = Key::new(mesh, cut, options);
    if let Some(known) = recalled(&key) {
        return Ok(known);
    }
    let (inputs, outputs) = specs_of(cut);
    let partition = partitioned(mesh, cut, &inputs, outputs)?;
    let program = Arc::new(MeshProgram::compile(partition, lanes, options)?);
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let (programs, clock) = programs.get_or_insert_default();
    if programs.len() >= CAPACITY {
        let oldest = programs.values().map(|(_, used)| *used).min();
        programs.retain(|_, (_, used)| Some(*used) != oldest);
    }
    *clock += 1;
    programs.insert(key, (program.clone(), *clock));
    Ok(program)
}

/// The specs of the arguments and of the outputs of a cut graph.
fn specs_of(cut: &CutGraph) -> (Vec<P>, Vec<P>) {
    let spec_of = |id: NodeId| match cut.nodes[id.index()].place().sharding() {
        Some(placement) => {
            // A value that somebody holds has the axes that its sharding says, and no others.
            let mut spec = placement.sharding().spec().clone();
            spec.dims.iter_mut().for_each(|dim| dim.is_open = false);
            spec
        }
        None => P::default(),
    };
    // A value on one device is whole.
    let has_parts = |at: usize| cut.parts.iter().any(|(position, _)| *position == at);
    let inputs = cut.graph.arguments().enumerate();
    let inputs = inputs.map(|(at, id)| if has_parts(at) { spec_of(id) } else { P::default() });
    let inputs = inputs.collect();
    (inputs, cut.outputs.iter().copied().map(spec_of).collect())
}

fn partitioned(
    mesh: &PlacedMesh,
    cut: &CutGraph,
    inputs: &[P],
    outputs: Vec<P>,
) -> girih_ir::Result<Partition> {
    let outputs: Vec<Option<P>> = outputs.into_iter().map(Some).collect();
    partition(&cut.graph, mesh.mesh(), inputs, &outputs)
}

/// A collective of the program that would compute some tensors.
#[derive(Clone, Debug)]
pub struct Collective {
    /// Which one.
    pub kind: Kind,
    /// The axes of the mesh along which processors exchange parts.
    pub axes: Vec<String>,
    /// The bytes that cross between processors.
    pub bytes: usize,
    /// Shape and dtype of the whole tensor.
    pub tensor: TensorSpec,
    /// The specs before and after.
    pub specs: [P; 2],
    /// The op that needs the tensor; `None` for a result of the program.
    pub cause: Option<&'static str>,
    /// The line that recorded the op, or the result.
    pub line: Location,
}

/// The programs of the processors that an evaluation of nodes on one mesh would run now, and their
/// collectives. Nothing is computed but values that are elsewhere. The mesh may be a ghost.
///
/// Errors: as [`eval_recorded`]; [`Error::InvalidArgument`] for nodes that are not on one mesh.
pub fn plan_on_mesh(targets: &[&Arc<Node>]) -> Result<(Partition, Vec<Collective>)> {
    let (mesh, cut) = cut_of(targets)?;
    let (inputs, outputs) = specs_of(&cut);
    let partition = partitioned(mesh, &cut, &inputs, outputs)?;
    let collectives = partition.exchanges().map(|exchange| described(exchange, &cut)).collect();
    Ok((partition, collectives))
}

/// The mesh that nodes are on, and the graph that an evaluation would cut.
fn cut_of(targets: &[&Arc<Node>]) -> Result<(&'static PlacedMesh, CutGraph)> {
    let mesh = targets.first().and_then(|node| node.place().sharding()).map(MeshPlacement::mesh);
    let is_here = |mesh| targets.iter().all(|node| Home::Mesh(mesh).has(node.place().sharding()));
    let Some(mesh) = mesh.filter(|mesh| is_here(mesh)) else {
        return Err(Error::InvalidArgument(
            "expected tensors on one mesh; explain those of each mesh, and those on one device, by \
             themselves"
                .into(),
        ));
    };
    let cut = loop {
        match cut(Home::Mesh(mesh), targets, &Transferred::default(), true, |_| ())? {
            Cut::Ready(cut, ()) => break cut,
            Cut::Elsewhere(_) if mesh.devices().is_empty() => check_devices(mesh)?,
            Cut::Elsewhere(nodes) => nodes.iter().try_for_each(spread)?,
            Cut::Blocked(node) => drop(settle_or_interrupt(&node)?),
        }
    };
    Ok((mesh, cut))
}

fn described(exchange: &Exchange, cut: &CutGraph) -> Collective {
    let specs = exchange.shardings.each_ref().map(|sharding| sharding.spec().clone());
    let line = exchange.user.or(cut.outputs.first().copied());
    Collective {
        kind: exchange.plan.kind,
        axes: exchange.axes().into_iter().map(str::to_string).collect(),
        bytes: exchange.bytes(),
        tensor: exchange.tensor.clone(),
        specs,
        cause: exchange.user.map(|id| cut.graph.node(id).op.name()),
        line: line.map_or(Location::default(), |id| cut.nodes[id.index()].location()),
    }
}

/// Drops all programs of meshes; running ones are not affected.
pub fn forget_mesh_programs() {
    drop(PROGRAMS.take());
}

fn recalled(key: &Key) -> Option<Arc<MeshProgram>> {
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let (programs, clock) = programs.as_mut()?;
    let (program, used) = programs.get_mut(key)?;
    *clock += 1;
    *used = *clock;
    Some(program.clone())
}

/// Computes a node that a mesh needs from outside of it. A reshard of a value on one device, or on
/// another mesh, gets its parts.
fn spread(node: &Arc<Node>) -> Result<()> {
    let mut source = None;
    if node.code() == OpCode::Reshard {
        node.state().for_each_input(|input| source = Some(input.clone()));
    }
    let (Some(source), Some(placement)) = (source, node.place().sharding()) else {
        return eval_recorded(&[node]);
    };
    let whole = value(&source, "shard")?;
    let parts = scattered(&whole, &node.spec(), placement)?;
    let mut state = node.state();
    if let State::Unary(..) = &*state {
        let lazy = std::mem::replace(&mut *state, State::Sharded(parts));
        drop(state);
        drop_state(lazy);
    }
    Ok(())
}

/// The mesh of one device.
fn alone(device: Device) -> girih_ir::Result<Sharding> {
    let mesh = DeviceMesh::new(&[1], &["one"])?.with_devices(&[device.index().into()])?;
    Ok(Sharding::replicated(mesh))
}

/// The parts of a value on one device under a sharding.
///
/// Errors: those of the copies.
fn scattered(value: &Value, spec: &TensorSpec, placement: &MeshPlacement) -> Result<Arc<[Value]>> {
    let from = Device::of(value);
    let targets = placement.mesh().devices();
    moved(
        spec,
        (&alone(from)?, &[from]),
        (placement.sharding(), targets),
        std::slice::from_ref(value),
    )
}

/// The whole value of a node on a mesh, in the memory of the host.
///
/// Errors: those of the copies.
pub(super) fn gathered(node: &Node, parts: &[Value]) -> Result<Value> {
    let placement = node.place().sharding().expect("a node with parts is on a mesh");
    let devices = placement.mesh().devices();
    // A reader on the host gets the value there; if the first device has all, it need not move.
    let to = Device::CPU;
    let moved = moved(&node.spec(), (placement.sharding(), devices), (&alone(to)?, &[to]), parts)?;
    Ok(moved[0].clone())
}

/// The part of each processor of a node on a mesh.
///
/// Errors: as [`eval_recorded`].
pub fn parts(node: &Arc<Node>) -> Result<Arc<[Value]>> {
    crate::trace::check_read(node, "shards")?;
    eval_recorded(&[node])?;
    match &*node.state() {
        State::Sharded(parts) => Ok(parts.clone()),
        State::Available(value) => Ok(Arc::new([value.clone()])),
        _ => unreachable!("a successful evaluation leaves its targets available"),
    }
}

/// A tensor on a mesh whose parts are these nodes' values, which are moved to the mesh's devices.
///
/// Errors: those of evaluating and moving the nodes; [`Error::DeviceUnavailable`] for a mesh without
/// devices, or with devices that the process does not have.
pub fn from_parts(
    spec: &TensorSpec,
    sharding: &Sharding,
    parts: &[Arc<Node>],
) -> Result<Arc<Node>> {
    let placement = placed(sharding)?;
    check_devices(placement.mesh())?;
    let parts = parts.iter().zip(placement.mesh().devices()).map(|(part, &device)| {
        let executor = Context::current().executor_for(device)?;
        carried(&value(part, "from_shards")?, &part.spec(), &executor)
    });
    let state = State::Sharded(parts.collect::<Result<_>>()?);
    let place = Some(Place::sharded(placement));
    Ok(context::add_node(OpCode::Input.into(), spec, place, state))
}

/// Moves parts from one sharding to another, perhaps on another mesh.
fn moved(
    spec: &TensorSpec,
    (from, sources): (&Sharding, &[Device]),
    (to, targets): (&Sharding, &[Device]),
    parts: &[Value],
) -> Result<Arc<[Value]>> {
    let shape = spec.shape.hints();
    let plan = reshard(from, to, shape)?;
    let (sources, options) = lanes(sources)?;
    let (targets, _) = lanes(targets)?;
    let steps = plan.lower(from, to, spec)?;
    let old = girih_dist::rectangles(from, shape)?;
    let old: Vec<TensorSpec> =
        old.iter().map(|rect| TensorSpec::new(rect.extent.as_slice(), spec.dtype)).collect();
    let made = Exchanged::compile(&steps, &old, (&sources, &targets), options)?;
    Ok(made.run(parts, &sources, &targets, MeshRun::default())?)
}

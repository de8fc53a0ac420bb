//! Cutting a closed graph out of a recording: what is needed, what is there, what is kept.

use crate::devices::Brought;
use crate::hints;
use crate::location::Location;
use crate::node::{Node, State, drop_state};
use crate::{Context, Error, Result, Tensor};
use girih_ir::graph::Node as GraphNode;
use girih_ir::ops::ItemRank;
use girih_ir::{Attrs, Class, Graph, Literal, NodeId, Op, OpCode};
use girih_runtime::{Argument, Completion, DeviceId, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// A closed graph cut out of the recording, with everything a run of it needs.
pub(crate) struct CutGraph {
    pub graph: Graph,
    /// The recorded node behind each node of the graph.
    pub nodes: Vec<Arc<Node>>,
    pub arguments: Vec<Argument>,
    /// Runs of scheduled operands.
    pub after: SmallVec<[Arc<Completion>; 2]>,
    /// Nodes to be computed and kept: the lazy targets, then intermediates somebody holds.
    pub outputs: Vec<NodeId>,
    /// How many of them are targets.
    pub num_targets: usize,
}

pub(crate) enum Cut {
    Ready(CutGraph),
    /// Another evaluation has this node, and its run is not queued yet or has failed.
    Blocked(Arc<Node>),
    /// The values of these nodes are to be brought from other devices first.
    Elsewhere(Vec<Arc<Node>>),
}

impl CutGraph {
    pub fn output_nodes(&self) -> Vec<Arc<Node>> {
        self.outputs.iter().map(|id| self.nodes[id.index()].clone()).collect()
    }

    /// The ops that an error most likely means: line, name, shape and dtype.
    pub fn suspects(&self, error: &girih_runtime::Error) -> Vec<String> {
        let recorded = |id: NodeId| {
            let node = &self.nodes[id.index()];
            (Some(node.id()), node.location())
        };
        suspects(&self.graph, &self.outputs, recorded, error)
    }
}

/// Whether a node may read at positions that another holds: composites do if they take integers.
fn may_index(graph: &Graph, node: &GraphNode) -> bool {
    match node.op.class() {
        Class::Index | Class::Control => true,
        Class::Composite => node.inputs.iter().any(|&i| graph.spec(i).dtype.is_int()),
        _ => false,
    }
}

/// The ops of a graph that an error of its run most likely means: name, number and spec, and the line
/// that recorded them.
pub(crate) fn suspects(
    graph: &Graph,
    outputs: &[NodeId],
    recorded: impl Fn(NodeId) -> (Option<u32>, Location),
    error: &girih_runtime::Error,
) -> Vec<String> {
    use girih_runtime::Error::{
        Host, IndexOutOfBounds, LabelOutOfRange, Linalg, NotANumber, OutOfMemory,
    };
    let ids: Vec<NodeId> = match error {
        IndexOutOfBounds { .. } | LabelOutOfRange { .. } => {
            graph.nodes().filter(|(_, n)| may_index(graph, n)).map(|n| n.0).collect()
        }
        Host(failure) => {
            let own = |n: &GraphNode| match n.op.as_host() {
                Some((_, call)) => call.op().name() == failure.op,
                None => n.op.as_control().is_some(),
            };
            graph.nodes().filter(|(_, n)| own(n)).map(|n| n.0).collect()
        }
        Linalg { operation, .. } => {
            graph.nodes().filter(|(_, n)| n.op.name() == operation).map(|n| n.0).collect()
        }
        NotANumber { node, .. } => vec![NodeId(*node)],
        OutOfMemory { .. } => {
            graph.ids().max_by_key(|&id| graph.spec(id).size_bytes()).into_iter().collect()
        }
        _ => outputs.to_vec(),
    };
    let describe = |id: NodeId| {
        let (op, spec) = (graph.node(id).op.name(), graph.spec(id));
        let (number, line) = recorded(id);
        let number = number.map_or(String::new(), |number| format!(" (node {number})"));
        let what = format!("{op}{number} -> {spec}");
        match line {
            line if line.is_known() => format!("{what}, recorded at {line}"),
            _ => what,
        }
    };
    ids.into_iter().map(describe).collect()
}

enum Visit {
    Enter(Arc<Node>),
    Exit(Arc<Node>),
}

/// Room made at once: most graphs are small, and cutting one out is what each evaluation pays.
const TYPICAL_NODES: usize = 24;

/// Depth-first from the targets, operands first; so equal computations are cut out alike, whatever
/// the order they were recorded in. To be called while claiming. The graph is that of one device, with
/// values `brought` from others. `keep`: also compute what somebody holds and would compute again
/// otherwise.
///
/// Errors: [`Error::TracedValue`].
pub(crate) fn cut(
    device: DeviceId,
    targets: &[&Tensor],
    brought: &Brought,
    keep: bool,
) -> Result<Cut> {
    let mut walk = Walk {
        device,
        brought,
        elsewhere: Vec::new(),
        cut: CutGraph {
            graph: Graph::with_capacity(TYPICAL_NODES),
            nodes: Vec::with_capacity(TYPICAL_NODES),
            arguments: Vec::with_capacity(TYPICAL_NODES),
            after: SmallVec::new(),
            outputs: Vec::new(),
            num_targets: 0,
        },
        ids: FxHashMap::with_capacity_and_hasher(TYPICAL_NODES, Default::default()),
        uses: Vec::with_capacity(TYPICAL_NODES),
        stack: Vec::with_capacity(TYPICAL_NODES),
    };
    for target in targets {
        if let Some(blocked) = walk.reach(target)? {
            return Ok(Cut::Blocked(blocked));
        }
    }
    if !walk.elsewhere.is_empty() {
        return Ok(Cut::Elsewhere(walk.elsewhere));
    }
    if keep {
        walk.add_siblings();
    }
    walk.choose_outputs(targets, keep);
    if hints::any() {
        let CutGraph { graph, nodes, .. } = &mut walk.cut;
        hints::note_all(graph, (0..).map(NodeId).zip(nodes.iter()));
    }
    Ok(Cut::Ready(walk.cut))
}

/// A graph being cut out.
struct Walk<'a> {
    device: DeviceId,
    brought: &'a Brought,
    elsewhere: Vec<Arc<Node>>,
    cut: CutGraph,
    ids: FxHashMap<*const Node, NodeId>,
    /// References to each node from within the graph, to tell references from outside.
    uses: Vec<u32>,
    stack: Vec<Visit>,
}

impl Walk<'_> {
    /// Adds what leads to a tensor; gives the node that another evaluation has, if it meets one.
    fn reach(&mut self, target: &Tensor) -> Result<Option<Arc<Node>>> {
        self.stack.push(Visit::Enter(target.node().clone()));
        while let Some(visit) = self.stack.pop() {
            let (Visit::Enter(node) | Visit::Exit(node)) = &visit;
            if self.ids.contains_key(&Arc::as_ptr(node)) {
                continue;
            }
            match visit {
                Visit::Enter(node) => match leaf(&node, self.device, self.brought, &mut self.cut) {
                    Leaf::Elsewhere => {
                        // Stands for itself: the graph is cut out again when the value is here.
                        let id = self.cut.graph.leaf(OpCode::Input.into(), node.spec());
                        self.elsewhere.push(node.clone());
                        self.add(node, id);
                    }
                    Leaf::Is(op) => {
                        let id = self.cut.graph.leaf(op, node.spec());
                        self.add(node, id);
                    }
                    Leaf::Blocked => return Ok(Some(node)),
                    Leaf::Donated => {
                        return Err(Error::Donated { shape: node.shape().to_string() });
                    }
                    Leaf::Placeholder => {
                        node.check()?;
                        // Read when the error is shown: to find the line may need the interpreter,
                        // which must not be waited for here.
                        return Err(Error::TracedValue {
                            what: "evaluation",
                            argument: crate::trace::name_of(&node),
                            shape: node.shape().to_string(),
                            at: Some(target.node().location()).filter(|l| l.is_known()),
                        });
                    }
                    Leaf::No => self.enter(node),
                },
                Visit::Exit(node) => {
                    let mut inputs: SmallVec<[NodeId; 3]> = SmallVec::new();
                    node.state().for_each_input(|i| inputs.push(self.ids[&Arc::as_ptr(i)]));
                    inputs.iter().for_each(|i| self.uses[i.index()] += 1);
                    let id = self.cut.graph.push_unchecked(node.op(), &inputs, node.spec());
                    self.add(node, id);
                }
            }
        }
        Ok(None)
    }

    fn enter(&mut self, node: Arc<Node>) {
        self.stack.push(Visit::Exit(node.clone()));
        let first = self.stack.len();
        node.state().for_each_input(|input| {
            if !self.ids.contains_key(&Arc::as_ptr(input)) {
                self.stack.push(Visit::Enter(input.clone()));
            }
        });
        // Popped last in, first out: the first operand comes first.
        self.stack[first..].reverse();
    }

    fn add(&mut self, node: Arc<Node>, id: NodeId) {
        self.ids.insert(Arc::as_ptr(&node), id);
        self.cut.nodes.push(node);
        self.uses.push(0);
    }

    /// Adds what somebody holds of the other results of a routine that is called here: they come
    /// out of the same call, and would need another one later. Found by their numbers, so that
    /// recording pays nothing for it.
    fn add_siblings(&mut self) {
        let several = |id: &NodeId| {
            let op = &self.cut.graph.node(*id).op;
            let single = match op.as_host() {
                Some((_, call)) => call.results().len() == 1,
                None => matches!(op.def().item_rank, ItemRank::Matrix([_])),
            };
            match op.as_control() {
                Some((_, control)) => control.num_results(op.code) > 1,
                None => op.class() == Class::Library && !single,
            }
        };
        let calls: Vec<NodeId> = self.cut.graph.ids().filter(several).collect();
        if calls.is_empty() {
            return;
        }
        let recording = Context::current().graph();
        for id in calls {
            let node = self.cut.nodes[id.index()].clone();
            for other in recording.around(node.id()) {
                if self.ids.contains_key(&Arc::as_ptr(&other)) || !is_sibling(&node, &other) {
                    continue;
                }
                let inputs = self.cut.graph.node(id).inputs.clone();
                inputs.iter().for_each(|i| self.uses[i.index()] += 1);
                let sibling = self.cut.graph.push_unchecked(other.op(), &inputs, other.spec());
                self.add(other, sibling);
            }
        }
    }

    fn choose_outputs(&mut self, targets: &[&Tensor], keep: bool) {
        let cut = &mut self.cut;
        let mut is_output = vec![false; cut.nodes.len()];
        let held = |id: NodeId| {
            // Our own list holds one reference.
            keep && Arc::strong_count(&cut.nodes[id.index()]) > self.uses[id.index()] as usize + 1
        };
        let targets = targets.iter().map(|t| self.ids[&Arc::as_ptr(t.node())]);
        let targets = targets.filter(|&id| is_computed(&cut.graph, id));
        let mut is_new = |id: &NodeId| !std::mem::replace(&mut is_output[id.index()], true);
        let mut outputs: Vec<NodeId> = targets.filter(&mut is_new).collect();
        let num_targets = outputs.len();
        let kept = cut.graph.ids().filter(|&id| held(id)).filter_map(|id| kept(&cut.graph, id));
        outputs.extend(kept.filter(is_new));
        (cut.outputs, cut.num_targets) = (outputs, num_targets);
        cut.graph.set_outputs(cut.outputs.iter().copied());
    }
}

/// True for another result of the same call, not computed yet.
fn is_sibling(node: &Node, other: &Node) -> bool {
    let same = match (node.attrs(), other.attrs()) {
        (Attrs::Control { control: a, .. }, Attrs::Control { control: b, .. }) => Arc::ptr_eq(a, b),
        (Attrs::Host { call: a, .. }, Attrs::Host { call: b, .. }) => Arc::ptr_eq(a, b),
        (_, &Attrs::Library { result, .. }) => node.op().with_result(result) == other.op(),
        _ => false,
    };
    if node.code() != other.code() || !same {
        return false;
    }
    let operands = |node: &Node| {
        let mut operands: SmallVec<[*const Node; 2]> = SmallVec::new();
        if let state @ (State::Unary(..) | State::Binary(..) | State::Nary(..)) = &*node.state() {
            state.for_each_input(|input| operands.push(Arc::as_ptr(input)));
        }
        operands
    };
    let found = operands(other);
    !found.is_empty() && found == operands(node)
}

/// False for values that are there or scheduled already.
fn is_computed(graph: &Graph, id: NodeId) -> bool {
    !matches!(graph.node(id).op.code, OpCode::Input | OpCode::Parameter)
}

/// What to compute for a node that somebody holds: nothing if it costs nothing to make again
/// (constants, views of values that are there), what it is a view of if that is smaller (a
/// broadcast), else the node itself.
fn kept(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let mut base = id;
    while let Class::View | Class::Reshape = graph.node(base).op.class() {
        base = graph.node(base).inputs[0];
    }
    let op = &graph.node(base).op;
    if op.class() == Class::Leaf && !op.is_random() {
        return None;
    }
    let larger = graph.spec(id).size_bytes() > graph.spec(base).size_bytes();
    Some(if larger { base } else { id })
}

enum Leaf {
    Is(Op),
    /// An argument of a function being traced.
    Placeholder,
    /// A tensor that a compiled function was given to overwrite.
    Donated,
    /// Its value comes from another device.
    Elsewhere,
    Blocked,
    No,
}

/// How a node enters the graph as a leaf, with its argument; or that it is none.
fn leaf(node: &Arc<Node>, device: DeviceId, brought: &Brought, cut: &mut CutGraph) -> Leaf {
    let mut state = node.state();
    let is_here = |value: &Value| value.buffer.handle().device() == device;
    let value = match &*state {
        State::Available(value) if is_here(value) => value.clone(),
        State::Available(_) => match brought.get(&Arc::as_ptr(node)) {
            Some(value) => value.clone(),
            None => return Leaf::Elsewhere,
        },
        State::Random { key, offset } => {
            cut.arguments.push(Argument::RandomKey { key: *key, offset: *offset });
            return Leaf::Is(node.op());
        }
        State::Scheduled(scheduled) if scheduled.value.as_ref().is_some_and(|v| !is_here(v)) => {
            return Leaf::Elsewhere;
        }
        State::Scheduled(scheduled) => match (&scheduled.value, scheduled.completion.poll()) {
            (Some(value), Some(Ok(()))) => value.clone(),
            (Some(value), None) if scheduled.queued => {
                cut.after.push(scheduled.completion.clone());
                value.clone()
            }
            _ => return Leaf::Blocked,
        },
        State::Leaf if node.code() == OpCode::Constant => {
            return Leaf::Is(constant(node, &mut cut.arguments));
        }
        State::Leaf if node.code() == OpCode::Input => return Leaf::Placeholder,
        State::Leaf | State::Literal => return Leaf::Is(node.op()),
        State::Donated => return Leaf::Donated,
        State::Unary(_, input) if node.code() == OpCode::ToDevice => {
            let (from, to) = (input.place(), node.place());
            // To the operand's own device it only says where that is computed.
            return match from.device() == to.device() || from.is_floating() {
                true => Leaf::No,
                false => Leaf::Elsewhere,
            };
        }
        State::Unary(_, input) => match view_of_data(node, input) {
            None => return Leaf::No,
            Some(value) => {
                let lazy = std::mem::replace(&mut *state, State::Available(value.clone()));
                drop(state);
                drop_state(lazy);
                value
            }
        },
        State::Binary(..) | State::Nary(..) => return Leaf::No,
    };
    let code = match node.code() {
        OpCode::Parameter => OpCode::Parameter,
        _ => OpCode::Input,
    };
    cut.arguments.push(Argument::Tensor(value, node.spec()));
    Leaf::Is(code.into())
}

/// A slice of whole leading rows of data that is there is that data, further on, and so is there
/// too: a loop over batches runs one program, whatever the batch's position.
fn view_of_data(node: &Node, input: &Arc<Node>) -> Option<Value> {
    let Attrs::Slice(dims) = node.attrs() else { return None };
    let shape = input.shape();
    let (rows, inner) = dims.split_first()?;
    let whole = |(d, &size): (&girih_ir::ops::SliceDim, &usize)| d.start == 0 && d.size == size;
    if rows.step != 1 || !inner.iter().zip(&shape[1..]).all(whole) {
        return None;
    }
    let State::Available(value) = &*input.state() else { return None };
    let row_bytes = shape[1..].iter().product::<usize>() * node.dtype().size();
    Some(Value { buffer: value.buffer.clone(), offset: value.offset + rows.start * row_bytes })
}

/// Values that let the compiler simplify are part of the program; all others are run-time scalars,
/// so that a learning rate never causes a recompile.
fn constant(node: &Node, arguments: &mut Vec<Argument>) -> Op {
    let &Attrs::Value(bits) = node.attrs() else { return node.op() };
    let value = Literal { dtype: node.dtype(), bits }.as_f64();
    if value == 0.0 || value == 1.0 || !value.is_finite() {
        return node.op();
    }
    arguments.push(Argument::Scalar(bits));
    OpCode::Constant.into()
}

/// The graph that leads to some tensors, as recorded: before any pass, with data as leaves.
///
/// Errors: [`Error::TracedValue`] never: placeholders are inputs here.
pub fn graph_of<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Graph> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    targets.iter().try_for_each(|target| target.node().check())?;
    let (graph, ids) = recorded(&targets);
    let mut graph = graph;
    graph.set_outputs(targets.iter().map(|t| ids[&Arc::as_ptr(t.node())]));
    Ok(graph)
}

/// The recorded graph in recording order, with the position of each node.
pub(crate) fn recorded(targets: &[&Tensor]) -> (Graph, FxHashMap<*const Node, NodeId>) {
    let nodes = in_recording_order(ancestors(targets, |_| false));
    let mut graph = Graph::new();
    let mut ids: FxHashMap<*const Node, NodeId> = FxHashMap::default();
    for node in &nodes {
        let mut inputs: SmallVec<[NodeId; 3]> = SmallVec::new();
        let state = node.state();
        state.for_each_input(|input| inputs.push(ids[&Arc::as_ptr(input)]));
        let (op, spec) = match &*state {
            State::Available(_) if node.code() == OpCode::Parameter => (node.op(), node.spec()),
            State::Available(_) => (OpCode::Input.into(), node.spec()),
            // Nothing is fed to a random leaf by the user, but to a reader it is data.
            State::Random { .. } => (OpCode::Input.into(), node.spec()),
            _ => (node.op(), node.spec()),
        };
        drop(state);
        let id = graph.push_unchecked(op, &inputs, spec);
        note(&mut graph, id, node);
        ids.insert(Arc::as_ptr(node), id);
    }
    (graph, ids)
}

/// Notes the scope a node was recorded in, for pictures and files, and its hints.
pub(crate) fn note(graph: &mut Graph, id: NodeId, node: &Arc<Node>) {
    hints::note(graph, id, node);
    if let Some(path) = node.location().scope().path() {
        graph.set_hint(id, "scope", path);
    }
}

/// Sorted by number, as long as that leaves operands before users: numbers are those of the graph
/// that recorded a node, so it does unless several graphs are involved.
pub(crate) fn in_recording_order(nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
    let mut sorted = nodes.clone();
    sorted.sort_by_key(|node| node.id());
    let mut seen: FxHashSet<*const Node> = FxHashSet::default();
    let ordered = sorted.iter().all(|node| {
        let mut ready = true;
        node.state().for_each_input(|input| ready &= seen.contains(&Arc::as_ptr(input)));
        seen.insert(Arc::as_ptr(node));
        ready
    });
    if ordered { sorted } else { nodes }
}

/// Everything the targets depend on, operands before users. Nothing beyond a node for which `stop`
/// holds.
pub(crate) fn ancestors(targets: &[&Tensor], stop: impl Fn(&Arc<Node>) -> bool) -> Vec<Arc<Node>> {
    let mut seen: FxHashSet<*const Node> = FxHashSet::default();
    let mut order = Vec::new();
    let mut stack: Vec<Visit> = Vec::new();
    for target in targets {
        stack.push(Visit::Enter(target.node().clone()));
        while let Some(visit) = stack.pop() {
            match visit {
                Visit::Exit(node) => order.push(node),
                Visit::Enter(node) => {
                    if !seen.insert(Arc::as_ptr(&node)) {
                        continue;
                    }
                    stack.push(Visit::Exit(node.clone()));
                    if !stop(&node) {
                        let first = stack.len();
                        node.state().for_each_input(|i| stack.push(Visit::Enter(i.clone())));
                        stack[first..].reverse();
                    }
                }
            }
        }
    }
    order
}

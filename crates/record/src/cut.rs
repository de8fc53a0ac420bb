//! Cuts a closed graph out of a recording: collects the needed nodes, the available values and the
//! outputs to keep.

mod walk;

pub(crate) use walk::cut;

use crate::context::current_graph;
use crate::error::Result;
use crate::hints;
use crate::location::Location;
use crate::node::{Node, State};
use crate::order::{ancestors, in_recording_order};
use girih_ir::graph::Node as GraphNode;
use girih_ir::{Class, Graph, NodeId, OpCode};
use girih_runtime::{Argument, Completion, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::sync::Arc;

/// Values of other devices that were copied to the device of an evaluation, by node.
pub type Transferred = FxHashMap<*const Node, Value>;

/// A closed graph cut out of the recording, with everything a run of it needs.
#[derive(Default)]
pub struct CutGraph {
    /// The graph; its outputs are [`CutGraph::outputs`].
    pub graph: Graph,
    /// The recorded node of each node of the graph.
    pub nodes: Vec<Arc<Node>>,
    /// The argument of each leaf that takes one.
    pub arguments: Vec<Argument>,
    /// The parts of arguments on a mesh, by the position of the argument, of which `arguments` has the
    /// first part.
    pub parts: Vec<(usize, Arc<[Value]>)>,
    /// Completions of scheduled operands.
    pub after: SmallVec<[Arc<Completion>; 2]>,
    /// Nodes to compute and keep: the lazy targets, then intermediates with other references.
    pub outputs: Vec<NodeId>,
    /// The number of targets among the outputs.
    pub num_targets: usize,
}

#[allow(clippy::large_enum_variant, reason = "a cut is matched at once, so boxing only costs")]
pub(crate) enum Cut<T> {
    /// The graph, and the result of the caller's function, which ran while no other cut could
    /// contain a lazy node of the graph.
    Ready(CutGraph, T),
    /// Another evaluation computes this node, and its run is not queued yet or has failed.
    Blocked(Arc<Node>),
    /// The values of these nodes must first be copied from other devices.
    Elsewhere(Vec<Arc<Node>>),
}

impl CutGraph {
    pub(crate) fn output_nodes(&self) -> Vec<Arc<Node>> {
        self.outputs.iter().map(|id| self.nodes[id.index()].clone()).collect()
    }

    /// The ops that are the likely causes of an error: line, name, shape and dtype.
    pub fn suspects(&self, error: &girih_runtime::Error) -> Vec<String> {
        let recorded = |id: NodeId| {
            let node = &self.nodes[id.index()];
            (Some(node.id()), node.location())
        };
        suspects(&self.graph, &self.outputs, recorded, error)
    }
}

/// Whether a node may read at positions given by another node's values. A composite with an integer
/// operand may read at such positions.
fn may_index(graph: &Graph, node: &GraphNode) -> bool {
    match node.op.class() {
        Class::Index | Class::Control => true,
        Class::Composite => node.inputs.iter().any(|&i| graph.spec(i).dtype.is_int()),
        _ => false,
    }
}

/// The ops of a graph that are the likely causes of an error of its run: name, number, spec, and
/// the line that recorded them.
pub fn suspects(
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
        NotANumber { node, inside: Some(inside), .. } => {
            let (number, line) = recorded(NodeId(*node));
            let line =
                Some(Location::from_number(inside.source)).filter(|l| l.is_known()).unwrap_or(line);
            let what =
                format!("{} in {}{} -> {}", inside.op, inside.place, numbered(number), inside.spec);
            return vec![at_line(what, line)];
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
        at_line(format!("{op}{} -> {spec}", numbered(number)), line)
    };
    ids.into_iter().map(describe).collect()
}

fn numbered(node: Option<u32>) -> String {
    node.map_or(String::new(), |number| format!(" (node {number})"))
}

fn at_line(what: String, line: Location) -> String {
    match line.is_known() {
        true => format!("{what}, recorded at {line}"),
        false => what,
    }
}

/// The recorded graph that leads to some nodes, before any pass, with data as leaves.
///
/// Errors: the error of a target that carries an error. A placeholder is an input of the graph, not
/// an error.
pub fn graph_of<'a, H>(targets: impl IntoIterator<Item = &'a H>) -> Result<Graph>
where
    H: Borrow<Arc<Node>> + 'a,
{
    let targets: SmallVec<[&Arc<Node>; 4]> = targets.into_iter().map(H::borrow).collect();
    targets.iter().try_for_each(|target| target.check())?;
    let (mut graph, ids) = recorded(&targets);
    graph.set_outputs(targets.iter().map(|&target| ids[&Arc::as_ptr(target)]));
    Ok(graph)
}

/// The recorded graph that leads to some nodes, as text: see [`graph_of`]. If the current graph
/// keeps its history ([`RecordingGraph::with_history`](crate::graph::RecordingGraph::with_history)),
/// it contains ops whose values have been computed.
///
/// Errors: those of [`graph_of`].
pub fn graph_text<'a, H>(targets: impl IntoIterator<Item = &'a H>) -> Result<String>
where
    H: Borrow<Arc<Node>> + 'a,
{
    let targets: SmallVec<[&Arc<Node>; 4]> = targets.into_iter().map(H::borrow).collect();
    match current_graph().history_of(&targets) {
        Some(graph) => Ok(graph.to_string()),
        None => graph_of(targets).map(|graph| graph.to_string()),
    }
}

/// The recorded graph in recording order, with the id of each node.
fn recorded(targets: &[&Arc<Node>]) -> (Graph, FxHashMap<*const Node, NodeId>) {
    let nodes = in_recording_order(ancestors(targets, |_| false));
    let mut graph = Graph::new();
    let mut ids: FxHashMap<*const Node, NodeId> = FxHashMap::default();
    for node in &nodes {
        let mut inputs: SmallVec<[NodeId; 3]> = SmallVec::new();
        let state = node.state();
        state.for_each_input(|input| inputs.push(ids[&Arc::as_ptr(input)]));
        let (op, spec) = match &*state {
            state if state.is_available() => match node.code() {
                OpCode::Parameter => (node.op(), node.spec()),
                _ => (OpCode::Input.into(), node.spec()),
            },
            // A random leaf is not fed by the user, but a reader of the graph sees it as data.
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

/// Adds the named scope of a node as a hint for drawings and files, and the node's hints.
pub fn note(graph: &mut Graph, id: NodeId, node: &Arc<Node>) {
    hints::note(graph, id, node);
    if let Some(path) = node.location().scope().path() {
        graph.set_hint(id, "scope", path);
    }
}

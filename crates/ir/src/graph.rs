//! Closed graphs: compact arenas of topologically ordered nodes, with their verifier. A front end
//! extracts a closed graph for each evaluation.

use crate::dim::{Guard, Sizes, Symbol};
use crate::hints::Hints;
use crate::ops::control::Control;
use crate::ops::fields::Context;
use crate::ops::{Attrs, Class, OpCall};
use crate::rewrite::Origins;
use crate::sharding::Table;
use crate::source::Sources;
use crate::{DType, Error, Iteration, Literal, Op, OpCode, Result, TensorSpec};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Position of a node in its graph.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The position as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Operands of a node.
pub type Operands = SmallVec<[NodeId; 3]>;

/// One value: an op, its operands and its spec.
#[derive(Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Node {
    /// The op.
    pub op: Op,
    /// The operands.
    pub inputs: Operands,
    /// Shape and dtype of the result.
    pub spec: TensorSpec,
}

impl Clone for Node {
    fn clone(&self) -> Node {
        // A memory copy; the derived clone would copy each operand separately.
        let inputs = SmallVec::from_slice(&self.inputs);
        Node { op: self.op.clone(), inputs, spec: self.spec.clone() }
    }
}

impl Node {
    /// True if a size of the node is symbolic.
    pub fn is_symbolic(&self) -> bool {
        let attrs = &self.op.attrs;
        let symbolic = matches!(attrs, Attrs::OfSize(_)) || attrs.has_symbolic_regions();
        symbolic || self.spec.shape.is_symbolic()
    }

    /// True if the op adds or multiplies any number of half floats into one element. By definition
    /// they are accumulated in f32 and rounded once: a sum that is rounded to f16 after each step
    /// stops growing at 2048, and one of bf16 at 256. Decomposition casts the operands of such an
    /// op to f32.
    pub fn accumulates_halves(&self) -> bool {
        let dtype = self.spec.dtype;
        dtype != dtype.widened() && (self.op.def().accumulates)(&self.op.attrs)
    }
}

/// A closed graph. Nodes are in topological order: operands precede their users. Outputs may
/// repeat. The nodes whose op takes an argument are the graph's arguments, in node order.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Graph {
    nodes: Vec<Node>,
    outputs: Vec<NodeId>,
    #[serde(skip)]
    pub(crate) origins: Origins,
    #[serde(skip)]
    pub(crate) sources: Sources,
    /// Hints of the nodes that have hints.
    pub(crate) hints: Option<Arc<BTreeMap<NodeId, Hints>>>,
    #[serde(skip)]
    interface: Option<Arc<Interface>>,
    /// Shardings of the nodes that have one. Stored programs are for one device and have none.
    #[serde(skip)]
    pub(crate) shardings: Option<Arc<Table>>,
}

/// Facts for callers that are not stored in nodes. The interface does not change the computed
/// values, so the canonical encoding leaves it out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Interface {
    /// One name for each output, or empty.
    output_names: Vec<String>,
    guards: Vec<Guard>,
}

impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        self.nodes == other.nodes
            && self.outputs == other.outputs
            && self.hints == other.hints
            && self.shardings == other.shardings
            && self.output_names() == other.output_names()
            && self.guards() == other.guards()
    }
}

impl Eq for Graph {}

impl Hash for Graph {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.nodes, &self.outputs).hash(state);
    }
}

impl Graph {
    /// True if `is` holds for an op of the graph or of a region in it.
    pub fn any_op(&self, is: &dyn Fn(&Op) -> bool) -> bool {
        self.nodes().any(|(_, node)| {
            let regions = node.op.as_control().map(|(_, control)| &control.regions[..]);
            is(&node.op) || regions.unwrap_or(&[]).iter().any(|region| region.any_op(is))
        })
    }

    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// An empty graph with capacity for `nodes` nodes.
    pub fn with_capacity(nodes: usize) -> Graph {
        Graph { nodes: Vec::with_capacity(nodes), ..Graph::default() }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node with this id. Panics if the id is out of range.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Spec of a node.
    pub fn spec(&self, id: NodeId) -> &TensorSpec {
        &self.node(id).spec
    }

    /// All ids in topological order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// All nodes with their ids, in topological order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, n)| (NodeId(i as u32), n))
    }

    /// The outputs.
    pub fn outputs(&self) -> &[NodeId] {
        &self.outputs
    }

    /// Replaces the outputs and clears their names.
    pub fn set_outputs(&mut self, outputs: impl IntoIterator<Item = NodeId>) {
        self.outputs = outputs.into_iter().collect();
        if !self.output_names().is_empty() {
            self.interface_mut().output_names.clear();
        }
    }

    /// Appends a node to the outputs, unless it is an output already, and returns its position
    /// among the outputs. If the outputs have names, the name of the new output is the node's name,
    /// or `%` and the node's number.
    ///
    /// Errors: [`Error::Invalid`] for an id out of range, or a name that another output has.
    pub fn mark_output(&mut self, id: NodeId) -> Result<usize> {
        if id.index() >= self.nodes.len() {
            let reason = format!("there is no node {id} among {}", self.nodes.len());
            return Err(Error::Invalid { at: "outputs".into(), reason });
        }
        if let Some(place) = self.outputs.iter().position(|&output| output == id) {
            return Ok(place);
        }
        let mut names = self.output_names().to_vec();
        self.outputs.push(id);
        if !names.is_empty() {
            names.push(self.hints(id).get("name").cloned().unwrap_or_else(|| id.to_string()));
            if let Err(error) = self.set_output_names(names) {
                self.outputs.pop();
                return Err(error);
            }
        }
        Ok(self.outputs.len() - 1)
    }

    /// The names of the outputs in order; empty if the outputs are unnamed.
    pub fn output_names(&self) -> &[String] {
        self.interface.as_ref().map_or(&[], |interface| &interface.output_names)
    }

    /// Names the outputs in order. An output's name is independent of the node's name, since one
    /// node may be several outputs.
    ///
    /// Errors: [`Error::Invalid`] for a wrong number of names, or a name given twice.
    pub fn set_output_names(&mut self, names: Vec<String>) -> Result<()> {
        let invalid = |reason| Error::Invalid { at: "outputs".into(), reason };
        if names.len() != self.outputs.len() {
            let counts = (names.len(), self.outputs.len());
            return Err(invalid(format!("{} names for {} outputs", counts.0, counts.1)));
        }
        let twice = (1..names.len()).find(|&i| names[..i].contains(&names[i]));
        if let Some(i) = twice {
            return Err(invalid(format!("two of them are called '{}'", names[i])));
        }
        self.interface_mut().output_names = names;
        Ok(())
    }

    /// Conditions on the sizes of symbols under which the graph is valid.
    pub fn guards(&self) -> &[Guard] {
        self.interface.as_ref().map_or(&[], |interface| &interface.guards)
    }

    /// Replaces the guards.
    pub fn set_guards(&mut self, guards: Vec<Guard>) {
        if self.guards() != guards {
            self.interface_mut().guards = guards;
        }
    }

    fn interface_mut(&mut self) -> &mut Interface {
        Arc::make_mut(self.interface.get_or_insert_default())
    }

    /// The symbols in sizes, attributes and regions, each once.
    pub fn symbols(&self) -> Vec<&'static Symbol> {
        let mut found = Vec::new();
        for node in &self.nodes {
            node.spec.shape.dims().for_each(|dim| dim.symbols(&mut found));
            node.op.attrs.symbols(&mut found);
        }
        self.guards().iter().for_each(|guard| guard.gather(&mut found));
        found
    }

    /// Turns an input into a parameter.
    ///
    /// Panics if the node is not an input.
    pub fn make_parameter(&mut self, id: NodeId) {
        let op = &mut self.nodes[id.index()].op;
        assert_eq!(op.code, OpCode::Input, "{id} is no input");
        *op = OpCode::Parameter.into();
    }

    /// Replaces a node's op by an op whose result has the same spec for the same operands.
    pub fn replace_op(&mut self, id: NodeId, op: Op) {
        self.nodes[id.index()].op = op;
    }

    /// The facts about a node that writing or reading its attributes depends on.
    pub fn context(&self, id: NodeId) -> Context<'_> {
        let node = self.node(id);
        let first = node.inputs.first().map(|&i| self.spec(i));
        Context {
            rank: first.map(|spec| spec.shape.rank()),
            dtype: Some(first.unwrap_or(&node.spec).dtype),
            result: Some(&node.spec.shape),
            ..Context::default()
        }
    }

    /// The arguments in node order: nodes whose values the caller supplies when the program runs.
    pub fn arguments(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes().filter(|(_, n)| n.op.takes_argument()).map(|(id, _)| id)
    }

    /// The number of nodes that are not leaves.
    pub fn num_ops(&self) -> usize {
        self.nodes.iter().filter(|n| n.op.class() != Class::Leaf).count()
    }

    /// Appends a leaf.
    pub fn leaf(&mut self, op: Op, spec: TensorSpec) -> NodeId {
        debug_assert_eq!(op.class(), Class::Leaf);
        self.push_unchecked(op, &[], spec)
    }

    /// Appends an op after checking operands and attributes.
    pub fn push(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        let spec = {
            let specs: SmallVec<[&TensorSpec; 3]> = inputs.iter().map(|&i| self.spec(i)).collect();
            op.infer(&specs)?
        };
        Ok(self.push_unchecked(op, inputs, spec))
    }

    /// Appends a node whose spec is already inferred.
    pub fn push_unchecked(&mut self, op: Op, inputs: &[NodeId], spec: TensorSpec) -> NodeId {
        self.append(Node { op, inputs: SmallVec::from_slice(inputs), spec })
    }

    /// Appends a node whose spec is already inferred.
    pub fn append(&mut self, node: Node) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("a graph holds at most 2^32 nodes"));
        debug_assert!(node.inputs.iter().all(|i| *i < id));
        self.nodes.push(node);
        self.origins.append();
        self.sources.append(id.index());
        id
    }

    /// The loop nest of a node, if its op's relation is affine.
    pub fn iteration(&self, id: NodeId) -> Option<Iteration> {
        let node = self.node(id);
        let specs: SmallVec<[&TensorSpec; 3]> = node.inputs.iter().map(|&i| self.spec(i)).collect();
        let rule = node.op.def().iteration?;
        Some(rule(OpCall { op: &node.op, inputs: &specs }, &node.spec))
    }

    /// The value of a constant that is embedded in the program.
    pub fn literal(&self, id: NodeId) -> Option<Literal> {
        let node = self.node(id);
        match (node.op.code, &node.op.attrs) {
            (OpCode::Constant, &Attrs::Value(bits)) => {
                Some(Literal { dtype: node.spec.dtype, bits })
            }
            _ => None,
        }
    }

    /// True if a size of the graph is symbolic.
    pub fn is_symbolic(&self) -> bool {
        self.nodes.iter().any(Node::is_symbolic)
    }

    /// Replaces symbols by sizes. Every guard of the graph must hold for these sizes.
    ///
    /// Errors: [`Error::SizeOverflow`] for a tensor that is too large; [`Error::InvalidShape`] if a
    /// symbol has no size.
    pub fn bind(&self, sizes: &Sizes) -> Result<Graph> {
        self.bound(sizes, sizes)
    }

    /// Replaces symbols by sizes: in constants that are computed from a size by those of `whole`,
    /// elsewhere by those of `part`.
    fn bound(&self, whole: &Sizes, part: &Sizes) -> Result<Graph> {
        let mut graph = self.clone();
        graph.set_guards(Vec::new());
        for node in &mut graph.nodes {
            let sizes = match node.op.attrs {
                Attrs::OfSize(_) => whole,
                _ => part,
            };
            let name = node.op.name();
            node.spec.shape = node.spec.shape.bind(name, node.spec.dtype, part)?;
            node.op.attrs = node.op.attrs.bind(name, &node.spec, sizes)?;
        }
        Ok(graph)
    }

    /// The program for a part of its axes: sizes of values are those of the part, and constants that
    /// are computed from a size keep the `whole` size. `None` if a region has symbolic sizes, whose
    /// constants are not told apart.
    ///
    /// Errors: as [`Graph::bind`]; those of [`Graph::verify`], if sizes that the program takes to be
    /// equal are not.
    pub fn bind_part(&self, whole: &Sizes, part: &Sizes) -> Result<Option<Graph>> {
        if self.nodes.iter().any(|node| node.op.attrs.has_symbolic_regions()) {
            return Ok(None);
        }
        let graph = self.bound(whole, part)?;
        graph.verify()?;
        Ok(Some(graph))
    }

    /// Number of uses of each node as an operand or output.
    pub fn use_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.nodes.len()];
        let uses = self.nodes.iter().flat_map(|n| &n.inputs).chain(&self.outputs);
        uses.for_each(|id| counts[id.index()] += 1);
        counts
    }

    /// For each node, whether an output depends on the node (outputs included).
    pub fn live(&self) -> Vec<bool> {
        self.ancestors(&self.outputs)
    }

    /// For each node, whether it is one of the nodes `of`, or one of the nodes `of` depends on it.
    pub fn ancestors(&self, of: &[NodeId]) -> Vec<bool> {
        let mut ancestors = vec![false; self.nodes.len()];
        of.iter().for_each(|id| ancestors[id.index()] = true);
        for (id, node) in self.nodes().rev() {
            if ancestors[id.index()] {
                node.inputs.iter().for_each(|i| ancestors[i.index()] = true);
            }
        }
        ancestors
    }

    /// The part of the graph that computes some nodes, which are its outputs, and the number in the
    /// part of each node of this graph. Nodes keep their order, hints and shardings, and the part the guards.
    pub fn part(&self, outputs: &[NodeId]) -> (Graph, Vec<Option<NodeId>>) {
        let (mut part, mut places) = (Graph::new(), vec![None; self.len()]);
        let wanted = self.ancestors(outputs);
        for (id, node) in self.nodes().filter(|(id, _)| wanted[id.index()]) {
            let inputs = node.inputs.iter().filter_map(|i| places[i.index()]).collect();
            let place = part.append(Node { inputs, ..node.clone() });
            for (key, value) in self.hints(id) {
                part.set_hint(place, key, value);
            }
            places[id.index()] = Some(place);
        }
        part.set_outputs(outputs.iter().filter_map(|o| places[o.index()]));
        part.set_guards(self.guards().to_vec());
        part.shardings = self.moved_shardings(|id| places[id.index()]);
        (part, places)
    }

    /// Total bytes of all values, as if each had its own buffer.
    pub fn estimated_memory_bytes(&self) -> usize {
        self.nodes.iter().map(|n| n.spec.size_bytes()).fold(0, usize::saturating_add)
    }

    /// Checks every invariant, in the graph and in its regions: operands precede users, arities,
    /// inferred specs, attributes of leaves, sizes in range, one mesh, existing outputs.
    ///
    /// Errors: [`Error::Invalid`] naming the first node that breaks an invariant.
    pub fn verify(&self) -> Result<()> {
        let mut last: *const Control = std::ptr::null();
        for (id, node) in self.nodes() {
            let invalid = |reason: String| Error::Invalid {
                at: format!("{id} = {}", node.op.name()),
                reason,
            };
            if let Some(late) = node.inputs.iter().find(|i| **i >= id) {
                return Err(invalid(format!("operand {late} does not precede it")));
            }
            node.spec.shape.check(node.op.name(), node.spec.dtype)?;
            if let Some((_, control)) = node.op.as_control()
                && std::mem::replace(&mut last, Arc::as_ptr(control)) != Arc::as_ptr(control)
            {
                // The results of one call are adjacent and share their regions, so check them once.
                let checked = control.regions.iter().try_for_each(Graph::verify);
                checked.map_err(|error| invalid(format!("in a region: {error}")))?;
            }
            if node.op.class() == Class::Leaf {
                verify_leaf(node).map_err(invalid)?;
                continue;
            }
            let specs: SmallVec<[&TensorSpec; 3]> =
                node.inputs.iter().map(|&i| self.spec(i)).collect();
            let spec = node.op.infer(&specs).map_err(|e| invalid(e.to_string()))?;
            if !spec.equals(&node.spec) {
                return Err(invalid(format!("its spec is {}, inferred {spec}", node.spec)));
            }
        }
        self.verify_shardings()?;
        match self.outputs.iter().find(|o| o.index() >= self.len()) {
            None => Ok(()),
            Some(o) => Err(Error::Invalid {
                at: "outputs".into(),
                reason: format!("{o} does not exist ({} nodes)", self.len()),
            }),
        }
    }
}

/// Checks that a leaf has an op without operands, and attributes of that op's kind.
///
/// Errors: a sentence that says what is wrong.
pub fn verify_leaf(node: &Node) -> Result<(), String> {
    let ok = match (node.op.code, &node.op.attrs) {
        (OpCode::Constant, Attrs::Value(_) | Attrs::None | Attrs::OfSize(_)) => true,
        (OpCode::Iota, Attrs::Axis(axis)) => (*axis as usize) < node.spec.shape.rank(),
        (OpCode::RandomUniform | OpCode::RandomNormal, Attrs::None) => node.spec.dtype.is_float(),
        (OpCode::RandomBits, Attrs::None) => node.spec.dtype == DType::I64,
        (OpCode::Input | OpCode::Parameter, Attrs::None) => true,
        _ => false,
    };
    match (ok, node.inputs.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => Err(format!("attributes {:?} do not fit {}", node.op.attrs, node.spec)),
        (_, false) => Err("a leaf has operands".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;

    #[test]
    fn the_verifier_finds_a_lying_spec() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([3], DType::F32));
        let mut g = b.finish([x]);
        g.push_unchecked(OpCode::Neg.into(), &[x], TensorSpec::new([4], DType::F32));
        let err = g.verify().unwrap_err().to_string();
        assert!(err.contains("neg") && err.contains("f32[4]") && err.contains("f32[3]"), "{err}");
    }
}

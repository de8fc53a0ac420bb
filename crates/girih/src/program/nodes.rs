//! Inspection of a program's nodes, and extraction of subgraphs.

use super::Program;
use crate::{Attribute, Error, Result, Tensor};
use girih_ir::hints::Hints;
use girih_ir::ops::Category;
use girih_ir::{Attrs, Class, Graph, Node, NodeId, Op, OpCode, TensorSpec};
use rustc_hash::FxHashMap;

/// A description of a node.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// The node's number in the program.
    pub id: usize,
    /// The name if it is set, else the op's name with the node's number: `add_4`.
    pub name: String,
    /// The op's name.
    pub op: &'static str,
    /// The op's attributes, as [`crate::apply`] takes them; attributes with their default value may
    /// be missing.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// The category of the op.
    pub category: Category,
    /// `CONSTANT`, `PARAMETER`, `INPUT` or `INTERMEDIATE`.
    pub kind: &'static str,
    /// The index of the node among the results of its call; 0 for ops of one result.
    pub output_index: usize,
    /// The number of the first node that is a result of the same call: of the same op with the same
    /// attributes and operands. For ops of one result, the node's own number.
    pub call: usize,
    /// The shape and dtype.
    pub spec: TensorSpec,
    /// The numbers of the operands.
    pub inputs: Vec<usize>,
    /// The numbers of the nodes that use the node as an operand, ascending: one entry for each
    /// operand, so that the square of the node as a product is listed twice.
    pub users: Vec<usize>,
    /// The hints of the node.
    pub hints: Hints,
    /// The op with its attributes, which [`NodeInfo::apply`] records.
    recorded: Op,
}

impl NodeInfo {
    /// Records the node's op with its attributes on other operands.
    ///
    /// Errors: as [`crate::apply`]. Inputs and parameters are refused, since their data comes from
    /// outside.
    #[track_caller]
    pub fn apply(&self, operands: &[&Tensor]) -> Result<Tensor> {
        match self.recorded.class() {
            Class::Leaf => crate::apply(self.op, operands, &self.attributes),
            _ => Tensor::record(self.recorded.clone(), operands),
        }
    }
}

/// The op of the first result of the node's call; `None` for ops of one result.
fn first_result(node: &Node) -> Option<Op> {
    let several = matches!(
        node.op.attrs,
        Attrs::Library { .. } | Attrs::Host { .. } | Attrs::Part { .. } | Attrs::Control { .. }
    );
    several.then(|| node.op.with_result(0))
}

/// Whether two nodes are results of the same call.
fn is_same_call(graph: &Graph, a: NodeId, b: NodeId) -> bool {
    let (a, b) = (graph.node(a), graph.node(b));
    let same = a.op.code == b.op.code && a.inputs == b.inputs;
    same && first_result(a).is_some_and(|op| first_result(b) == Some(op))
}

impl Program {
    /// The node with number `id`, if it exists.
    pub fn node(&self, id: usize) -> Option<NodeInfo> {
        let graph = self.graph();
        let at = NodeId(u32::try_from(id).ok().filter(|_| id < graph.len())?);
        let edges = graph.nodes().flat_map(|(user, node)| {
            node.inputs.iter().filter(move |&&input| input == at).map(move |_| user.index())
        });
        let users = edges.collect();
        let call = graph.ids().take(id).find(|&other| is_same_call(graph, at, other));
        Some(self.described(at, call.unwrap_or(at), users))
    }

    /// The value that the program holds for the node with number `id`: of a constant, or of a tensor
    /// that the program refers to. `None` for other nodes, whose values a call computes.
    pub fn value(&self, id: usize) -> Option<Tensor> {
        let graph = self.graph();
        let at = NodeId(u32::try_from(id).ok().filter(|_| id < graph.len())?);
        let is_held = self.is_held(at) || graph.node(at).op.code == OpCode::Constant;
        is_held.then(|| self.leaf(at, graph.node(at), None).ok()).flatten()
    }

    /// All nodes, operands before users.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        let graph = self.graph();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); graph.len()];
        for (user, node) in graph.nodes() {
            for input in &node.inputs {
                users[input.index()].push(user.index());
            }
        }
        let mut calls: FxHashMap<(Op, &[NodeId]), NodeId> = FxHashMap::default();
        let described = |(id, users)| {
            let call = match first_result(graph.node(id)) {
                Some(op) => *calls.entry((op, &graph.node(id).inputs)).or_insert(id),
                None => id,
            };
            self.described(id, call, users)
        };
        graph.ids().zip(users).map(described).collect()
    }

    fn described(&self, at: NodeId, call: NodeId, users: Vec<usize>) -> NodeInfo {
        let graph = self.graph();
        let (id, node) = (at.index(), graph.node(at));
        NodeInfo {
            id,
            name: graph.name(at).map_or_else(|| format!("{}_{id}", node.op.name()), Into::into),
            op: node.op.name(),
            attributes: crate::apply::attributes(&node.op, &node.spec, graph.context(at)),
            category: node.op.def().category(),
            kind: match node.op.code {
                OpCode::Constant => "CONSTANT",
                OpCode::Parameter => "PARAMETER",
                OpCode::Input => "INPUT",
                _ => "INTERMEDIATE",
            },
            output_index: node.op.output_index(),
            call: call.index(),
            spec: node.spec.clone(),
            inputs: node.inputs.iter().map(|i| i.index()).collect(),
            users,
            hints: graph.hints(at).clone(),
            recorded: node.op.clone(),
        }
    }

    /// The subgraph that computes the nodes with these numbers, as a program with the inputs and
    /// values that the subgraph needs. Its nodes keep their order and are renumbered.
    ///
    /// Errors: [`Error::InvalidArgument`] if there are no outputs, or a node does not exist.
    pub fn subgraph(&self, outputs: &[usize]) -> Result<Program> {
        let graph = self.graph();
        if let Some(&id) = outputs.iter().find(|&&id| id >= graph.len()) {
            let len = graph.len();
            return Err(Error::InvalidArgument(format!(
                "subgraph: there is no node {id}; the program has {len}"
            )));
        }
        if outputs.is_empty() {
            let reason = "subgraph: name at least one node to be computed".into();
            return Err(Error::InvalidArgument(reason));
        }
        let outputs: Vec<NodeId> = outputs.iter().map(|&id| NodeId(id as u32)).collect();
        let (part, places) = graph.part(&outputs);
        let kept = self.values.iter().filter_map(|(id, v)| Some((places[id.index()]?, v.clone())));
        let values = kept.collect();
        Ok(Program { graph: part, values })
    }
}

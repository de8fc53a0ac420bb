//! Decomposition of composites that would need a whole axis which is cut: their reductions are cheaper
//! to combine than their operands to gather.

use super::Partitioner;
use super::decide::Decision;
use crate::ownership::parts;
use girih_ir::sharding::P;
use girih_ir::{Class, Graph, GraphBuilder, Node, NodeId, Op, Result, TensorSpec};

/// A graph in which composites are decomposed.
pub(super) struct Expanded {
    pub graph: Graph,
    /// For each node, the node of the original graph that it helps to compute.
    pub origin: Vec<NodeId>,
    /// For each node of the original graph, its value here.
    pub nodes: Vec<NodeId>,
    /// The spec of each node, as it follows from its operands alone.
    pub specs: Vec<P>,
}

struct Expansion<'p, 'm> {
    partitioner: &'p mut Partitioner<'m>,
    b: GraphBuilder,
    specs: Vec<P>,
    origin: Vec<NodeId>,
    /// The node of the original graph.
    at: NodeId,
}

impl Partitioner<'_> {
    /// The graph with composites decomposed where that saves a gather, for arguments of these specs.
    pub(super) fn expanded(&mut self, graph: &Graph, arguments: &[P]) -> Result<Expanded> {
        let mut given = arguments.iter();
        let (b, at) = (GraphBuilder::default(), NodeId(0));
        let (specs, origin) = (Vec::new(), Vec::new());
        let mut expansion = Expansion { partitioner: self, b, specs, origin, at };
        let live = graph.live();
        let mut nodes: Vec<NodeId> = Vec::with_capacity(graph.len());
        for (id, node) in graph.nodes() {
            expansion.at = id;
            let inputs: Vec<NodeId> = node.inputs.iter().map(|i| nodes[i.index()]).collect();
            let spec = match node.op.takes_argument() {
                true => given.next().expect("they are counted").clone(),
                false => P::default(),
            };
            nodes.push(match live[id.index()] && node.op.class() != Class::Leaf {
                true => expansion.add(&node.op, &node.spec, &inputs)?,
                false => expansion.append(&node.op, &node.spec, &inputs, spec),
            });
        }
        let graph = expansion.b.finish(graph.outputs().iter().map(|id| nodes[id.index()]));
        Ok(Expanded { graph, origin: expansion.origin, nodes, specs: expansion.specs })
    }

    /// True if a dimension is cut less by `to` than it is.
    pub(super) fn gathers(&self, from: &P, to: &P) -> bool {
        let cut = |spec: &P, dim| parts(self.mesh, spec.axes_of(dim));
        (0..from.dims.len()).any(|dim| cut(from, dim) > cut(to, dim))
    }
}

impl Expansion<'_, '_> {
    fn append(&mut self, op: &Op, spec: &TensorSpec, inputs: &[NodeId], found: P) -> NodeId {
        self.specs.push(found);
        self.origin.push(self.at);
        let inputs = inputs.iter().copied().collect();
        self.b.append(Node { op: op.clone(), inputs, spec: spec.clone() })
    }

    fn add(&mut self, op: &Op, spec: &TensorSpec, inputs: &[NodeId]) -> Result<NodeId> {
        let operands = inputs.iter().map(|i| (&self.specs[i.index()], self.b.spec(*i)));
        let operands: Vec<(&P, &TensorSpec)> = operands.collect();
        let Decision { wanted, found, .. } =
            self.partitioner.decision(op, spec, &operands, None)?;
        let gathers = operands.iter().zip(&wanted);
        let gathers = gathers.into_iter().any(|((from, _), to)| self.partitioner.gathers(from, to));
        match gathers && op.class() == Class::Composite && op.def().decompose.is_some() {
            true => self.decomposed(op, inputs),
            false => Ok(self.append(op, spec, inputs, found)),
        }
    }

    fn decomposed(&mut self, op: &Op, inputs: &[NodeId]) -> Result<NodeId> {
        let mut b = GraphBuilder::default();
        let leaf = |i: &NodeId| b.input(self.b.spec(*i).clone());
        let arguments: Vec<NodeId> = inputs.iter().map(leaf).collect();
        let output = b.decompose(op, &arguments)?;
        let graph = b.finish([output]);
        let live = graph.live();
        let mut nodes: Vec<Option<NodeId>> = inputs.iter().copied().map(Some).collect();
        nodes.resize(graph.len(), None);
        for (id, node) in graph.nodes().skip(inputs.len()).filter(|(id, _)| live[id.index()]) {
            let operand = |i: &NodeId| nodes[i.index()].expect("operands come first");
            let inputs: Vec<NodeId> = node.inputs.iter().map(operand).collect();
            nodes[id.index()] = Some(match node.op.class() {
                Class::Leaf => self.append(&node.op, &node.spec, &inputs, P::default()),
                _ => self.add(&node.op, &node.spec, &inputs)?,
            });
        }
        Ok(nodes[output.index()].expect("the output is live"))
    }
}

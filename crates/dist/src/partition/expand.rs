//! Decomposition of composites that would need a whole axis which is cut: their reductions are cheaper
//! to combine than their operands to gather. Calls are replaced by their bodies, also checkpoints, whose
//! values a processor then keeps.

use super::Partitioner;
use super::decide::Decision;
use crate::ownership::parts;
use girih_ir::ops::control::{Control, ControlOp};
use girih_ir::sharding::{P, Sharding};
use girih_ir::{Class, Graph, GraphBuilder, Node, NodeId, Op, Result, TensorSpec};
use std::collections::HashMap;
use std::sync::Arc;

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

/// A call with the results of its body. It is kept, since its address may be another's when it is
/// dropped.
type Called = (Arc<Control>, Vec<NodeId>);

struct Expansion<'p, 'm> {
    partitioner: &'p mut Partitioner<'m>,
    b: GraphBuilder,
    specs: Vec<P>,
    origin: Vec<NodeId>,
    /// The node of the original graph.
    at: NodeId,
    /// The results of calls, by address and operands.
    calls: HashMap<(usize, Vec<NodeId>), Called>,
}

impl Partitioner<'_> {
    /// The graph with composites decomposed where that saves a gather, for arguments of these specs.
    pub(super) fn expanded(&mut self, graph: &Graph, arguments: &[P]) -> Result<Expanded> {
        let mut given = arguments.iter();
        let (b, at) = (GraphBuilder::default(), NodeId(0));
        let (specs, origin) = (Vec::new(), Vec::new());
        let calls = HashMap::new();
        let mut expansion = Expansion { partitioner: self, b, specs, origin, at, calls };
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
            if let Some(fixed) = graph.partition(id) {
                fixed.check(expansion.partitioner.mesh, node.spec.shape.rank())?;
                expansion.specs[nodes[id.index()].index()] = fixed.clone();
            }
        }
        let mut expanded = expansion.b.finish(graph.outputs().iter().map(|id| nodes[id.index()]));
        for (id, spec) in graph.partitions() {
            let sharding = Sharding::new(expansion.partitioner.mesh.clone(), spec.clone())?;
            expanded.set_sharding(nodes[id.index()], sharding)?;
        }
        let graph = expanded;
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
        if let (Some(ControlOp::Call), Some((result, control))) =
            (op.code.control(), op.as_control())
        {
            return Ok(self.called(control, inputs)?[result]);
        }
        let operands = inputs.iter().map(|i| (&self.specs[i.index()], self.b.spec(*i)));
        let operands: Vec<(&P, &TensorSpec)> = operands.collect();
        let Decision { wanted, found, .. } =
            self.partitioner.decision(op, spec, &operands, None)?;
        let mut gathers = operands.iter().zip(&wanted);
        let gathers = gathers.any(|((from, _), to)| self.partitioner.gathers(from, to));
        if gathers && self.partitioner.constraint(op, spec).is_none() {
            let mut b = GraphBuilder::default();
            let leaf = |i: &NodeId| b.input(self.b.spec(*i).clone());
            let arguments: Vec<NodeId> = inputs.iter().map(leaf).collect();
            if let Some(output) = b.in_parts(op, &arguments)? {
                return Ok(self.inlined(&b.finish([output]), inputs)?[0]);
            }
        }
        Ok(self.append(op, spec, inputs, found))
    }

    /// The results of a call, whose body is recorded once.
    fn called(&mut self, control: &Arc<Control>, inputs: &[NodeId]) -> Result<Vec<NodeId>> {
        let key = (Arc::as_ptr(control) as usize, inputs.to_vec());
        if let Some((_, known)) = self.calls.get(&key) {
            return Ok(known.clone());
        }
        let results = self.inlined(control.body(), inputs)?;
        self.calls.insert(key, (control.clone(), results.clone()));
        Ok(results)
    }

    /// Adds the nodes of a graph of inputs, and returns its outputs.
    fn inlined(&mut self, graph: &Graph, inputs: &[NodeId]) -> Result<Vec<NodeId>> {
        let live = graph.live();
        let mut inputs = inputs.iter();
        let mut nodes: Vec<Option<NodeId>> = vec![None; graph.len()];
        for (id, node) in graph.nodes() {
            if node.op.takes_argument() {
                nodes[id.index()] = inputs.next().copied();
                continue;
            }
            if !live[id.index()] {
                continue;
            }
            let operand = |i: &NodeId| nodes[i.index()].expect("operands come first");
            let inputs: Vec<NodeId> = node.inputs.iter().map(operand).collect();
            nodes[id.index()] = Some(match node.op.class() {
                Class::Leaf => self.append(&node.op, &node.spec, &inputs, P::default()),
                _ => self.add(&node.op, &node.spec, &inputs)?,
            });
        }
        let outputs = graph.outputs().iter();
        Ok(outputs.map(|id| nodes[id.index()].expect("outputs are live")).collect())
    }
}

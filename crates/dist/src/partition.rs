//! Partitioning: a closed graph whose arguments are sharded over a mesh becomes one program for each
//! processor, with the exchanges between them (SPMD).
//!
//! Nodes are taken in order. [`crate::propagate::step`] says how the operands of a node must be
//! sharded and how its result is; an operand that is not is resharded first: by a slice, if each
//! processor has its new part already, else by an [`Exchange`]. Then each processor computes the op
//! on its parts. Partial values are added up as late as an op needs their sum.
//!
//! A composite that would need a whole axis is decomposed first, since its reductions are cheaper to
//! combine than its operands to gather. An op that cannot be computed on parts is computed on
//! whole operands by every processor.
//!
//! The programs are cut into stages: a stage has all ops that depend only on exchanges of earlier
//! stages. Source: GSPMD (Xu et al. 2021).

mod exchange;
mod local;
mod stages;

pub use exchange::Exchange;
pub use stages::{Source, Stage, ValueId};

use crate::ownership::{parts, rectangles};
use crate::propagate::{Call, Operand, step};
use crate::rect::Rect;
use girih_ir::sharding::{DeviceMesh, P, Sharding};
use girih_ir::{Class, Graph, GraphBuilder, Node, NodeId, Op, OpCode, Result, TensorSpec};
use smallvec::SmallVec;
use stages::Stages;

/// The programs of the processors of a mesh, and what they exchange.
#[derive(Clone, Debug)]
pub struct Partition {
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// Each output of the graph with its spec, which is partial only if that was asked for.
    pub outputs: Vec<(ValueId, P)>,
}

impl Partition {
    /// The exchanges, in order.
    pub fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.stages.iter().flat_map(|stage| &stage.exchanges)
    }
}

/// A value of the graph on the mesh.
#[derive(Clone, Debug)]
struct Sharded {
    value: ValueId,
    spec: P,
}

/// Partitions a graph without symbolic sizes over a mesh. `arguments` has the spec of each argument
/// of the graph, of which those of scalars and random keys are not used; `outputs` the specs that the
/// outputs shall have, or `None` for those that follow.
///
/// Errors: [`girih_ir::Error::InvalidArgument`] for specs that are not valid for their tensors.
///
/// Panics if the number of specs is not that of the arguments or outputs.
pub fn partition(
    graph: &Graph,
    mesh: &DeviceMesh,
    arguments: &[P],
    outputs: &[Option<P>],
) -> Result<Partition> {
    assert_eq!(arguments.len(), graph.arguments().count(), "a spec for each argument");
    assert_eq!(outputs.len(), graph.outputs().len(), "an entry for each output");
    let mut partitioner = Partitioner { mesh, stages: Stages::new(mesh.len()), user: None };
    let mut given = arguments.iter().enumerate();
    let live = graph.live();
    let mut values: Vec<Option<Sharded>> = vec![None; graph.len()];
    for (id, node) in graph.nodes() {
        let argument = node.op.takes_argument().then(|| given.next().expect("they are counted"));
        if !live[id.index()] {
            continue;
        }
        partitioner.user = Some(id);
        values[id.index()] = Some(match argument {
            Some((index, spec)) => partitioner.argument(index, node, spec)?,
            None => partitioner.graph_node(graph, node, &values)?,
        });
    }
    partitioner.user = None;
    let mut found = Vec::with_capacity(outputs.len());
    for (id, wanted) in graph.outputs().iter().zip(outputs) {
        let value = values[id.index()].as_ref().expect("outputs are live");
        let spec = match wanted {
            Some(spec) => spec.clone(),
            None => P { partial: Default::default(), ..value.spec.clone() },
        };
        let value = partitioner.resharded(value, &spec, graph.spec(*id))?;
        found.push((value, spec));
    }
    let stages = partitioner.stages.finish(found.iter().map(|(value, _)| *value));
    Ok(Partition { stages, outputs: found })
}

/// Shape and dtype of parts of a tensor.
fn specs_of(parts: &[Rect], tensor: &TensorSpec) -> Vec<TensorSpec> {
    parts.iter().map(|part| TensorSpec::new(part.extent.as_slice(), tensor.dtype)).collect()
}

struct Partitioner<'a> {
    mesh: &'a DeviceMesh,
    stages: Stages,
    /// The node of the graph that is being partitioned.
    user: Option<NodeId>,
}

impl Partitioner<'_> {
    fn sharding(&self, spec: &P) -> Result<Sharding> {
        Sharding::new(self.mesh.clone(), spec.clone())
    }

    /// The shape and dtype of each processor's shard.
    fn local_specs(&self, spec: &P, tensor: &TensorSpec) -> Result<Vec<TensorSpec>> {
        let rects = rectangles(&self.sharding(spec)?, tensor.shape.hints())?;
        Ok(specs_of(&rects, tensor))
    }

    fn argument(&mut self, index: usize, node: &Node, spec: &P) -> Result<Sharded> {
        let is_tensor = matches!(node.op.code, OpCode::Input | OpCode::Parameter);
        // Draws are the same numbers on every processor.
        let spec = if is_tensor { spec.clone() } else { P::default() };
        spec.check(self.mesh, node.spec.shape.rank())?;
        let specs = self.local_specs(&spec, &node.spec)?;
        let value = self.stages.argument(index, node.op.clone(), specs);
        Ok(Sharded { value, spec })
    }

    /// Partitions a node of a graph, whose values so far are `values`.
    fn graph_node(
        &mut self,
        graph: &Graph,
        node: &Node,
        values: &[Option<Sharded>],
    ) -> Result<Sharded> {
        let operand = |i: &NodeId| values[i.index()].clone().expect("operands come first");
        let operands: Vec<Sharded> = node.inputs.iter().map(operand).collect();
        let specs: Vec<&TensorSpec> = node.inputs.iter().map(|&i| graph.spec(i)).collect();
        self.node(&node.op, &node.spec, &operands, &specs)
    }

    /// Partitions an op; `specs` are the specs of the whole operands.
    fn node(
        &mut self,
        op: &Op,
        result: &TensorSpec,
        operands: &[Sharded],
        specs: &[&TensorSpec],
    ) -> Result<Sharded> {
        if op.class() == Class::Leaf {
            let specs = vec![result.clone(); self.mesh.len()];
            let value = self.stages.leaf(op.clone(), specs);
            return Ok(Sharded { value, spec: P::default() });
        }
        let Some((wanted, found)) = self.propagated(op, result, operands, specs)? else {
            return self.replicated(op, result, operands, specs);
        };
        let gathers = operands.iter().zip(&wanted).any(|(operand, to)| self.gathers(operand, to));
        if gathers && op.class() == Class::Composite && op.def().decompose.is_some() {
            return self.decomposed(op, operands, specs);
        }
        let Some(ops) = self.local_ops(op, &wanted, specs, (&found, result))? else {
            return self.replicated(op, result, operands, specs);
        };
        let inputs = self.all_resharded(operands, &wanted, specs)?;
        let value = self.stages.emit(&inputs, |b, at, inputs| ops[at].emit(b, inputs))?;
        Ok(Sharded { value, spec: found })
    }

    /// The specs that the operands must have, and the result's; `None` for an op without factors.
    fn propagated(
        &self,
        op: &Op,
        result: &TensorSpec,
        operands: &[Sharded],
        specs: &[&TensorSpec],
    ) -> Result<Option<(Vec<P>, P)>> {
        let Ok(factors) = op.factors(specs, result) else { return Ok(None) };
        let operands: Vec<Operand<'_>> = operands
            .iter()
            .zip(specs)
            .map(|(operand, tensor)| Operand { tensor, spec: &operand.spec })
            .collect();
        let mesh = self.mesh;
        let call = Call { factors: &factors, operands: &operands, result, mesh, op: Some(op) };
        let step = step(&call)?;
        Ok(Some((step.operands, step.result)))
    }

    /// True if a dimension is cut less by `to` than it is.
    fn gathers(&self, operand: &Sharded, to: &P) -> bool {
        let cut = |spec: &P, dim| parts(self.mesh, spec.axes_of(dim));
        (0..operand.spec.dims.len()).any(|dim| cut(&operand.spec, dim) > cut(to, dim))
    }

    /// Computes a node on whole operands.
    fn replicated(
        &mut self,
        op: &Op,
        result: &TensorSpec,
        operands: &[Sharded],
        specs: &[&TensorSpec],
    ) -> Result<Sharded> {
        let inputs = self.all_resharded(operands, &vec![P::default(); operands.len()], specs)?;
        let value = self.stages.emit(&inputs, |b, _, inputs| {
            let inputs = SmallVec::from_slice(inputs);
            Ok(b.append(Node { op: op.clone(), inputs, spec: result.clone() }))
        })?;
        Ok(Sharded { value, spec: P::default() })
    }

    /// The operands under the wanted specs.
    fn all_resharded(
        &mut self,
        operands: &[Sharded],
        wanted: &[P],
        specs: &[&TensorSpec],
    ) -> Result<SmallVec<[ValueId; 4]>> {
        let all = operands.iter().zip(wanted).zip(specs);
        all.map(|((operand, to), tensor)| self.resharded(operand, to, tensor)).collect()
    }

    /// Partitions the nodes of a composite's decomposition.
    fn decomposed(
        &mut self,
        op: &Op,
        operands: &[Sharded],
        specs: &[&TensorSpec],
    ) -> Result<Sharded> {
        let mut b = GraphBuilder::default();
        let inputs: Vec<NodeId> = specs.iter().map(|&spec| b.input(spec.clone())).collect();
        let output = b.decompose(op, &inputs)?;
        let graph = b.finish([output]);
        let live = graph.live();
        let mut values: Vec<Option<Sharded>> = operands.iter().cloned().map(Some).collect();
        values.resize(graph.len(), None);
        for (id, node) in graph.nodes().skip(inputs.len()).filter(|(id, _)| live[id.index()]) {
            values[id.index()] = Some(self.graph_node(&graph, node, &values)?);
        }
        Ok(values[output.index()].take().expect("the output is live"))
    }
}

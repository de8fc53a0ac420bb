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

mod decide;
mod each;
mod exchange;
mod expand;
mod local;
mod masked;
mod regions;
mod stages;
mod windows;

pub use exchange::Exchange;
pub use stages::{Source, Stage, ValueId};

use crate::ownership::{rectangles, size_of};
use crate::propagate::Operand;
use crate::rect::Rect;
use decide::{Decision, is_tensor_argument, opened};
use each::Each;
use exchange::Change;
use girih_ir::sharding::{AxisRef, DeviceMesh, DimSpec, P, Sharding};
use girih_ir::{Class, Graph, GraphBuilder, Node, NodeId, Op, Result, TensorSpec};
use smallvec::SmallVec;
use stages::{Specs, Stages};
use std::collections::HashMap;
use std::sync::Arc;

/// The programs of the processors of a mesh, and what they exchange.
#[derive(Clone, Debug)]
pub struct Partition {
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// The spec of each argument of the graph, with the axes that open dimensions have taken.
    pub arguments: Vec<P>,
    /// Each output of the graph with its spec, which is partial only if that was asked for.
    pub outputs: Vec<(ValueId, P)>,
}

impl Partition {
    /// The exchanges, in order.
    pub fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.stages.iter().flat_map(|stage| &stage.exchanges)
    }
}

/// A value of the graph on the mesh, with its [plain](Partitioner::plain) spec.
#[derive(Clone, Debug)]
struct Sharded {
    value: ValueId,
    spec: P,
}

/// Partitions a graph without symbolic sizes over a mesh. `arguments` has the spec of each argument
/// of the graph, of which those of scalars and random keys are not used; an open dimension may take
/// axes that its users want. `outputs` has the specs that the outputs shall have, or `None` for those
/// that follow. A value for which the graph's side table has a spec has this one.
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
    let mut partitioner = Partitioner::new(mesh);
    let (expanded, decisions) = partitioner.planned(graph, arguments, outputs)?;
    let graph = &expanded.graph;
    let mut specs = Vec::with_capacity(arguments.len());
    let mut values: Vec<Option<Sharded>> = vec![None; graph.len()];
    for (id, node) in graph.nodes() {
        let Some(decision) = &decisions[id.index()] else { continue };
        partitioner.user = Some(expanded.origin[id.index()]);
        // A processor slices what it needs of other leaves than tensors, and draws only the slice.
        let held = match is_tensor_argument(&node.op) {
            true => decision.found.clone(),
            false => P::default(),
        };
        values[id.index()] = Some(match (node.op.takes_argument(), node.op.class()) {
            (true, _) => {
                specs.push(held);
                partitioner.argument(specs.len() - 1, node, &specs[specs.len() - 1])?
            }
            (_, Class::Leaf) => partitioner.leaf(node)?,
            _ => partitioner.node(graph, node, decision, &values)?,
        });
    }
    partitioner.user = None;
    let mut found = Vec::with_capacity(outputs.len());
    for (id, wanted) in graph.outputs().iter().zip(outputs) {
        let value = values[id.index()].as_ref().expect("outputs are live");
        let spec = match wanted {
            Some(spec) => opened(mesh, spec, &value.spec),
            None => P { partial: Default::default(), ..value.spec.clone() },
        };
        let value = partitioner.resharded(value, &spec, graph.spec(*id))?;
        found.push((value, spec));
    }
    let stages = partitioner.stages.finish(found.iter().map(|(value, _)| *value));
    Ok(Partition { stages, arguments: specs, outputs: found })
}

/// The spec that propagation decides for each node of a graph without symbolic sizes: of arguments and
/// outputs with a spec this spec, whose open dimensions may get axes; of an argument without one, and
/// of leaves that nobody holds, the one that its users agree on; of others the one that follows.
///
/// Errors and panics: as [`partition`].
pub fn propagated(
    graph: &Graph,
    mesh: &DeviceMesh,
    arguments: &[Option<P>],
    outputs: &[Option<P>],
) -> Result<Vec<P>> {
    let open = |rank: usize| P::new(vec![DimSpec::default().open(); rank]);
    let given = arguments.iter().zip(graph.arguments());
    let given = given.map(|(spec, id)| match spec {
        Some(spec) => spec.clone(),
        None => open(graph.spec(id).shape.rank()),
    });
    let given: Vec<P> = given.collect();
    let mut partitioner = Partitioner::new(mesh);
    let (expanded, decisions) = partitioner.planned(graph, &given, outputs)?;
    let spec_of =
        |id: &NodeId| decisions[id.index()].as_ref().map_or_else(P::default, Decision::shown);
    let mut specs: Vec<P> = expanded.nodes.iter().map(spec_of).collect();
    for (spec, id) in specs.iter_mut().zip(graph.ids()) {
        *spec = partitioner.plain(spec, graph.spec(id).shape.rank());
    }
    Ok(specs)
}

/// The spec of one op's result, as it follows from those of its operands: what [`partition`] computes it
/// under if nobody wants another one. It may be partial.
///
/// Errors: as [`crate::propagate::step`].
pub fn result(
    op: &Op,
    operands: &[Operand<'_>],
    result: &TensorSpec,
    mesh: &DeviceMesh,
) -> Result<P> {
    let mut b = GraphBuilder::default();
    let inputs = operands.iter().map(|operand| b.input(operand.tensor.clone())).collect();
    let output = b.append(Node { op: op.clone(), inputs, spec: result.clone() });
    let specs: Vec<P> = operands.iter().map(|operand| operand.spec.clone()).collect();
    for operand in operands {
        operand.spec.check(mesh, operand.tensor.shape.rank())?;
    }
    let mut partitioner = Partitioner::new(mesh);
    let expanded = partitioner.expanded(&b.finish([output]), &specs)?;
    let output = expanded.graph.outputs()[0];
    Ok(partitioner.plain(&expanded.specs[output.index()], result.shape.rank()))
}

/// The changes of spec of tensors of a shape.
type Changes = HashMap<(P, P, Vec<usize>), Arc<Change>>;

struct Partitioner<'a> {
    mesh: &'a DeviceMesh,
    stages: Stages,
    /// The node of the graph that is being partitioned.
    user: Option<NodeId>,
    /// Shape and dtype of the parts of a tensor.
    locals: HashMap<(P, TensorSpec), Specs>,
    changes: Changes,
    windowed: HashMap<windows::Key, Option<Decision>>,
    /// The changes from a spec to windows, by their address.
    window_changes: HashMap<(P, usize), Arc<Change>>,
    /// Branches and loops on parts, by their address and the specs of their operands.
    regions: HashMap<(usize, Vec<P>), regions::Known>,
    /// The other specs under which a value is there.
    versions: HashMap<ValueId, Vec<(P, ValueId)>>,
}

impl<'a> Partitioner<'a> {
    fn new(mesh: &'a DeviceMesh) -> Partitioner<'a> {
        Partitioner {
            mesh,
            stages: Stages::new(mesh.len()),
            user: None,
            locals: HashMap::new(),
            changes: HashMap::new(),
            windowed: HashMap::new(),
            window_changes: HashMap::new(),
            regions: HashMap::new(),
            versions: HashMap::new(),
        }
    }

    /// The graph with composites decomposed, and how each of its nodes is computed.
    fn planned(
        &mut self,
        graph: &Graph,
        arguments: &[P],
        outputs: &[Option<P>],
    ) -> Result<(expand::Expanded, Vec<Option<Decision>>)> {
        assert_eq!(arguments.len(), graph.arguments().count(), "a spec for each argument");
        assert_eq!(outputs.len(), graph.outputs().len(), "an entry for each output");
        let expanded = self.expanded(graph, arguments)?;
        let decisions = self.decisions(&expanded.graph, arguments, outputs)?;
        Ok((expanded, decisions))
    }

    fn sharding(&self, spec: &P) -> Result<Sharding> {
        Sharding::new(self.mesh.clone(), spec.clone())
    }

    /// What a spec says of the elements of each processor: the axes that cut each dimension, and those
    /// of partial values.
    fn plain(&self, spec: &P, rank: usize) -> P {
        let spec = spec.merged(self.mesh);
        let cuts = |axis: &AxisRef| size_of(self.mesh, axis) > 1;
        let dim = |dim: DimSpec| DimSpec::new(dim.axes.into_iter().filter(cuts));
        let mut dims: Vec<DimSpec> = spec.dims.into_iter().map(dim).collect();
        dims.resize(rank, DimSpec::default());
        let partial = spec.partial.into_iter().filter(|(axis, _)| cuts(axis)).collect();
        P { dims, partial, ..P::default() }
    }

    /// The elements of each processor.
    fn rectangles(&self, spec: &P, tensor: &TensorSpec) -> Result<Vec<Rect>> {
        rectangles(&self.sharding(spec)?, tensor.shape.hints())
    }

    /// The shape and dtype of each processor's shard.
    fn local_specs(&mut self, spec: &P, tensor: &TensorSpec) -> Result<Specs> {
        let key = (self.plain(spec, tensor.shape.rank()), tensor.clone());
        if let Some(known) = self.locals.get(&key) {
            return Ok(known.clone());
        }
        let rects = self.rectangles(spec, tensor)?;
        let part = |rect: &Rect| TensorSpec::new(rect.extent.as_slice(), tensor.dtype);
        let specs = Arc::new(Each::collect(rects.iter().map(part)));
        self.locals.insert(key, specs.clone());
        Ok(specs)
    }

    fn argument(&mut self, index: usize, node: &Node, spec: &P) -> Result<Sharded> {
        let specs = self.local_specs(spec, &node.spec)?;
        let value = self.stages.argument(index, node.op.clone(), specs);
        Ok(Sharded { value, spec: self.plain(spec, node.spec.shape.rank()) })
    }

    fn leaf(&mut self, node: &Node) -> Result<Sharded> {
        let specs = self.local_specs(&P::default(), &node.spec)?;
        let spec = self.plain(&P::default(), node.spec.shape.rank());
        Ok(Sharded { value: self.stages.leaf(node.op.clone(), specs), spec })
    }

    /// Partitions a node of a graph, whose values so far are `values`.
    fn node(
        &mut self,
        graph: &Graph,
        node: &Node,
        decision: &Decision,
        values: &[Option<Sharded>],
    ) -> Result<Sharded> {
        let specs = self.local_specs(&decision.found, &node.spec)?;
        let spec = self.plain(&decision.found, node.spec.shape.rank());
        let mut inputs: SmallVec<[ValueId; 4]> = SmallVec::new();
        for (at, (id, to)) in node.inputs.iter().zip(&decision.wanted).enumerate() {
            let operand = values[id.index()].as_ref().expect("operands come first");
            inputs.push(match &decision.windows {
                Some(windows) => self.window(operand, to, &windows[at], graph.spec(*id))?,
                None => self.resharded(operand, to, graph.spec(*id))?,
            });
        }
        if self.constraint(&node.op, &node.spec).is_some() {
            return Ok(Sharded { value: inputs[0], spec });
        }
        let value = match &decision.ops {
            Some(ops) => self.stages.emit(&inputs, specs, ops.forms(), |b, form, inputs| {
                ops.distinct()[form].emit(b, inputs)
            }),
            None => self.stages.emit(&inputs, specs, &None, |b, _, inputs| {
                let inputs = SmallVec::from_slice(inputs);
                Ok(b.append(Node { op: node.op.clone(), inputs, spec: node.spec.clone() }))
            }),
        };
        let value = Sharded { value: value?, spec };
        let Some(fixed) = &decision.fixed else { return Ok(value) };
        let spec = self.plain(fixed, node.spec.shape.rank());
        Ok(Sharded { value: self.resharded(&value, fixed, &node.spec)?, spec })
    }
}

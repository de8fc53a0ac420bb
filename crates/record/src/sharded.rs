//! The place of an op's result of which operands are on a mesh: its sharding follows from those of the
//! operands, by one step of propagation.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::mesh::{MeshPlacement, PlacedMesh, placed};
use crate::node::Node;
use crate::place::Place;
use crate::placement::{mesh_of, mixed, takes};
use girih_dist::Kind;
use girih_dist::partition::partition;
use girih_dist::propagate::{self, Call, Operand, step};
use girih_ir::{Attrs, Class, DeviceMesh, GraphBuilder, NodeId, Op, P, Sharding, TensorSpec};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// The place of the result of an op of which operands are on a mesh. Constants and draws follow the
/// mesh, and a value on one device of the mesh is whole on every processor.
///
/// Errors: [`Error::MixedDevices`] for operands on another mesh, or on a device outside of the mesh.
pub(crate) fn place_of_result(
    op: &Op,
    result: &TensorSpec,
    inputs: &[&Arc<Node>],
) -> Result<Place> {
    let tracked = inputs.iter().any(|input| input.is_tracked());
    if let Attrs::Sharding(sharding) = &op.attrs {
        return Ok(Place::sharded(placed(sharding)?).with_tracked(tracked));
    }
    let mesh = mesh_of(inputs).expect("an operand is on a mesh");
    if !inputs.iter().all(|input| takes(mesh, input) || input.shape().rank() == 0) {
        return Err(mixed(op.name(), inputs.iter().copied()));
    }
    if !Context::current().implicit_reshards() {
        check_operands((op, result), inputs, mesh)?;
    }
    let number = |input: &&Arc<Node>| input.place().sharding().map(MeshPlacement::number);
    let memo = Memo::of(op, inputs.iter().map(|input| (input.spec(), number(input))));
    if let Some(place) = memo.as_ref().and_then(Memo::recall) {
        return Ok(place.with_tracked(tracked));
    }
    let tensors: Vec<TensorSpec> = inputs.iter().map(|input| input.spec()).collect();
    let specs: Vec<&TensorSpec> = tensors.iter().collect();
    let operands = specs_of(inputs);
    let spec = closed(spec_of_result((op, result), &specs, &operands, mesh.mesh())?);
    let sharding = Sharding::new(mesh.mesh().clone(), spec)?;
    let place = Place::sharded(placed(&sharding)?);
    if let Some(memo) = memo {
        memo.remember(place);
    }
    Ok(place.with_tracked(tracked))
}

fn specs_of(inputs: &[&Arc<Node>]) -> Vec<P> {
    let own = |input: &Arc<Node>| input.place().sharding().map(|own| own.sharding().spec().clone());
    inputs.iter().map(|input| own(input).unwrap_or_default()).collect()
}

/// Fails if an operand would be resharded for an op.
///
/// Errors: [`Error::InvalidArgument`].
#[cold]
fn check_operands(
    (op, result): (&Op, &TensorSpec),
    inputs: &[&Arc<Node>],
    mesh: &PlacedMesh,
) -> Result<()> {
    let tensors: Vec<TensorSpec> = inputs.iter().map(|input| input.spec()).collect();
    let tensors: Vec<&TensorSpec> = tensors.iter().collect();
    if result.shape.is_symbolic() || tensors.iter().any(|spec| spec.shape.is_symbolic()) {
        return Ok(());
    }
    let mut b = GraphBuilder::default();
    let nodes: SmallVec<[NodeId; 3]> = tensors.iter().map(|&spec| b.input(spec.clone())).collect();
    let node = girih_ir::graph::Node { op: op.clone(), inputs: nodes, spec: result.clone() };
    let output = b.append(node);
    let plan = partition(&b.finish([output]), mesh.mesh(), &specs_of(inputs), &[None])?;
    let combines = |kind: Kind| matches!(kind, Kind::AllReduce(_) | Kind::ReduceScatter(_));
    // A halo is what an op moves, not a reshard.
    let changes = |[from, to]: &[Sharding; 2]| from.spec() != to.spec();
    let mut implicit = plan.exchanges().filter(|exchange| {
        exchange.user.is_some()
            && exchange.bytes() > 0
            && changes(&exchange.shardings)
            && !combines(exchange.plan.kind)
    });
    let Some(exchange) = implicit.next() else { return Ok(()) };
    let [from, to] = &exchange.shardings;
    Err(Error::InvalidArgument(format!(
        "{}: an operand {} would be resharded from {} to {} ({} of {} bytes), which the scope of \
         implicit_reshards refuses; write it with with_sharding_constraint, or give the operands \
         shardings that agree",
        op.name(),
        exchange.tensor,
        from.spec(),
        to.spec(),
        exchange.plan.kind,
        exchange.bytes()
    )))
}

/// The spec that the operands' specs give the result of an op, as the partitioner decides it for the
/// op by itself.
fn spec_of_result(
    (op, result): (&Op, &TensorSpec),
    tensors: &[&TensorSpec],
    operands: &[P],
    mesh: &DeviceMesh,
) -> girih_ir::Result<P> {
    let operands = tensors.iter().zip(operands);
    let operands = operands.map(|(&tensor, spec)| Operand { tensor, spec });
    let operands: Vec<Operand<'_>> = operands.collect();
    let is_symbolic = |spec: &TensorSpec| spec.shape.is_symbolic();
    if !is_symbolic(result) && !tensors.iter().any(|spec| is_symbolic(spec)) {
        return propagate::result(op, &operands, result, mesh);
    }
    // The sizes are not known yet, and with them the elements that an op would move.
    let Ok(factors) = op.factors(tensors, result) else { return Ok(P::default()) };
    let (operands, factors) = (&operands[..], &factors);
    Ok(step(&Call { factors, operands, result, mesh, op: Some(op) })?.result)
}

/// What the place of a result depends on: the op, and the spec and the placement of each operand.
#[derive(PartialEq, Eq, Hash)]
struct Memo {
    op: Op,
    operands: SmallVec<[(TensorSpec, Option<u16>); 3]>,
}

/// The number of places that a thread remembers.
const REMEMBERED: usize = 1024;

thread_local! {
    /// Programs record the same ops again and again, and a step of propagation takes longer than the
    /// rest of recording.
    static PLACES: RefCell<FxHashMap<Memo, Place>> = RefCell::default();
}

impl Memo {
    /// `None` for ops with large attributes, such as graphs.
    fn of(op: &Op, operands: impl Iterator<Item = (TensorSpec, Option<u16>)>) -> Option<Memo> {
        let large = op.class() == Class::Control || op.as_host().is_some();
        (!large).then(|| Memo { op: op.clone(), operands: operands.collect() })
    }

    fn recall(&self) -> Option<Place> {
        PLACES.with_borrow(|places| places.get(self).copied())
    }

    fn remember(self, place: Place) {
        PLACES.with_borrow_mut(|places| {
            if places.len() >= REMEMBERED {
                places.clear();
            }
            places.insert(self, place);
        });
    }
}

/// The spec of a value that follows from others: without partial sums and priorities.
fn closed(spec: P) -> P {
    let mut spec = P { partial: Default::default(), replicated: Default::default(), ..spec };
    spec.dims.iter_mut().for_each(|dim| (dim.priority, dim.is_open) = (0, false));
    while spec.dims.last().is_some_and(|dim| dim.axes.is_empty()) {
        spec.dims.pop();
    }
    spec
}

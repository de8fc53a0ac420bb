//! Recording of ops: operands are checked, the result's spec, device and source line are known at
//! once, and in eager mode the value too.

use crate::context;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::eval::eagerly;
use crate::location;
use crate::mesh::placed;
use crate::node::{CompactSpec, Node, State};
use crate::place::Place;
use crate::placement::mixed;
use crate::sharded;
use crate::trace::{self, device_of};
use girih_ir::{Attrs, Class, Literal, Op, OpCode, Shape, Sharding, TensorSpec};
use girih_runtime::Value;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::slice::from_ref;
use std::sync::Arc;

/// The result spec that was inferred for an op without attributes, from these operand specs.
#[derive(Clone, Copy)]
struct Inferred {
    code: OpCode,
    operands: usize,
    specs: [CompactSpec; 2],
    result: CompactSpec,
}

/// The number of entries of the table of inferred specs; a power of two.
const INFERRED: usize = 64;

thread_local! {
    /// A cache of inferred specs. Programs record the same ops repeatedly, and the shape rules of
    /// an op would otherwise take longer than the rest of recording.
    static INFERRED_SPECS: RefCell<[Option<Inferred>; INFERRED]> = const { RefCell::new([None; INFERRED]) };
}

/// The node of an op with one or two operands on one device.
fn inferred(
    op: Op,
    [a, b]: [&Arc<Node>; 2],
    operands: usize,
    place: Place,
    state: State,
) -> Result<Arc<Node>> {
    let place = Some(place);
    let (specs, code) = ([a.compact_spec(), b.compact_spec()], op.code);
    let plain = matches!(op.attrs, Attrs::None);
    let slot = (specs[0].slot(INFERRED) + specs[1].slot(INFERRED) + code as usize) % INFERRED;
    let same =
        |known: &Inferred| known.code == code && known.operands == operands && known.specs == specs;
    let known =
        INFERRED_SPECS.with_borrow(|table| table[slot].filter(same).map(|known| known.result));
    if let Some(result) = known.filter(|_| plain) {
        return Ok(context::add_compact(op, result, place, state));
    }
    a.check()?;
    b.check()?;
    let spec = match operands {
        1 => op.infer(&[&a.spec()])?,
        _ => op.infer(&[&a.spec(), &b.spec()])?,
    };
    let result = CompactSpec::of(&spec);
    if let (true, Some(result)) = (plain, result) {
        let entry = Inferred { code, operands, specs, result };
        INFERRED_SPECS.with_borrow_mut(|table| table[slot] = Some(entry));
    }
    Ok(context::add_node(op, &spec, place, state))
}

/// Computes a node that was just recorded if the context is eager.
#[inline]
fn done(node: Arc<Node>) -> Result<Arc<Node>> {
    if context::eager()? {
        eagerly(from_ref(&node))?;
    }
    Ok(node)
}

/// Records an op with one operand after checking it: a fast path, since every op pays for
/// recording.
///
/// Errors: those of the op's shape rule; in eager mode, those of its evaluation.
#[track_caller]
pub fn record_unary(op: Op, a: &Arc<Node>) -> Result<Arc<Node>> {
    if a.place().is_sharded() {
        return record_sharded(op, &[a]);
    }
    let state = State::Unary(location::here(), a.clone());
    done(inferred(op, [a, a], 1, a.place(), state)?)
}

/// Records an op with two operands after checking them: a fast path, as [`record_unary`].
///
/// Errors: as [`record_unary`]; [`Error::MixedDevices`].
#[track_caller]
pub fn record_binary(op: Op, a: &Arc<Node>, b: &Arc<Node>) -> Result<Arc<Node>> {
    let location = location::here();
    let Some(place) = a.place().merge(b.place()) else {
        return record_mixed(op, &[a, b]);
    };
    let state = State::Binary(location, a.clone(), b.clone());
    done(inferred(op, [a, b], 2, place, state)?)
}

/// Records an op on these operands after checking them.
///
/// Errors: as [`record_binary`].
#[track_caller]
pub fn record(op: Op, inputs: &[&Arc<Node>]) -> Result<Arc<Node>> {
    match *inputs {
        [a] => return record_unary(op, a),
        [a, b] => return record_binary(op, a, b),
        _ => {}
    }
    let location = location::here();
    inputs.iter().try_for_each(|node| node.check())?;
    let specs: Vec<TensorSpec> = inputs.iter().map(|node| node.spec()).collect();
    let spec = op.infer(&specs.iter().collect::<Vec<_>>())?;
    let nodes = inputs.iter().map(|&node| node.clone()).collect();
    let state = State::with_inputs(location, nodes);
    let Ok(place) = state.place() else {
        return record_mixed(op, inputs);
    };
    done(context::add_node(op, &spec, place, state))
}

/// Records an op whose operands are committed to several devices. Like in PyTorch, scalars and
/// indices on the host are moved to the device of the other operands.
///
/// Errors: [`Error::MixedDevices`].
#[cold]
#[track_caller]
fn record_mixed(op: Op, inputs: &[&Arc<Node>]) -> Result<Arc<Node>> {
    if inputs.iter().any(|input| input.place().is_sharded()) {
        return record_sharded(op, inputs);
    }
    let moved = colocate(&op, inputs)?;
    record(op, &moved.iter().collect::<SmallVec<[_; 4]>>())
}

/// Records an op of which operands are on a mesh. The sharding of the result follows from those of the
/// operands.
///
/// Errors: [`Error::MixedDevices`] for operands on another mesh, or on a device outside of the mesh.
#[cold]
#[track_caller]
fn record_sharded(op: Op, inputs: &[&Arc<Node>]) -> Result<Arc<Node>> {
    let location = location::here();
    inputs.iter().try_for_each(|node| node.check())?;
    let specs: Vec<TensorSpec> = inputs.iter().map(|node| node.spec()).collect();
    let spec = op.infer(&specs.iter().collect::<Vec<_>>())?;
    let place = sharded::place_of_result(&op, &spec, inputs)?;
    let state = State::with_inputs(location, inputs.iter().map(|&node| node.clone()).collect());
    done(context::add_node(op, &spec, Some(place), state))
}

/// The place of the result of an op with operands in `state`.
///
/// Errors: as [`record`].
fn place_of(op: &Op, spec: &TensorSpec, state: &State) -> Result<Option<Place>> {
    state.place().or_else(|_| {
        let mut inputs: SmallVec<[Arc<Node>; 4]> = SmallVec::new();
        state.for_each_input(|input| inputs.push(input.clone()));
        match inputs.iter().any(|input| input.place().is_sharded()) {
            true => {
                let inputs: SmallVec<[&Arc<Node>; 4]> = inputs.iter().collect();
                sharded::place_of_result(op, spec, &inputs).map(Some)
            }
            false => Err(mixed(op.name(), &inputs)),
        }
    })
}

/// A tensor under a sharding: the tensor itself if it has the sharding, else a node that reshards it.
///
/// Errors: [`Error::Record`] for a spec that is not valid for the tensor; [`Error::DeviceUnavailable`]
/// if the process does not have the mesh's devices.
#[track_caller]
pub fn reshard(node: &Arc<Node>, sharding: &Sharding) -> Result<Arc<Node>> {
    node.check()?;
    let placement = placed(sharding)?;
    if node.place().sharding().is_some_and(|own| std::ptr::eq(own, placement)) {
        return Ok(node.clone());
    }
    let op = Op::new(OpCode::Reshard, Attrs::Sharding(Arc::new(sharding.clone())));
    let spec = op.infer(&[&node.spec()])?;
    let place = Place::sharded(placement).with_tracked(node.is_tracked());
    let state = State::Unary(location::here(), node.clone());
    done(context::add_node(op, &spec, Some(place), state))
}

/// Records several results of one call after checking the operands; in eager mode the results are
/// computed together.
///
/// Errors: as [`record`].
#[track_caller]
pub fn record_results(
    ops: impl IntoIterator<Item = Op>,
    inputs: &[&Arc<Node>],
) -> Result<Vec<Arc<Node>>> {
    let location = location::here();
    inputs.iter().try_for_each(|node| node.check())?;
    let specs: Vec<TensorSpec> = inputs.iter().map(|node| node.spec()).collect();
    let specs: Vec<&TensorSpec> = specs.iter().collect();
    let record = |op: Op| {
        let spec = op.infer(&specs)?;
        let nodes = inputs.iter().map(|&node| node.clone()).collect();
        let state = State::with_inputs(location, nodes);
        let place = place_of(&op, &spec, &state)?;
        Ok(context::add_node(op, &spec, place, state))
    };
    let results = ops.into_iter().map(record).collect::<Result<Vec<_>>>()?;
    if context::eager()? {
        eagerly(&results)?;
    }
    Ok(results)
}

/// Records an op whose spec is already inferred.
pub fn record_inferred(op: Op, spec: &TensorSpec, state: State) -> Arc<Node> {
    let computed = match &state {
        State::Available(_) | State::Sharded(_) | State::Leaf | State::Literal => false,
        _ => context::eager().unwrap_or(false),
    };
    // Callers with operands on several devices have checked them before.
    let place = place_of(&op, spec, &state).unwrap_or_else(|_| state.place().unwrap_or_else(Some));
    let node = context::add_node(op, spec, place, state);
    if computed {
        // On an error the node stays lazy; reading its value reports the error.
        let _ = eagerly(from_ref(&node));
    }
    node
}

/// Records data: a node whose value is available.
pub fn record_value(code: OpCode, spec: &TensorSpec, value: Value) -> Arc<Node> {
    record_inferred(code.into(), spec, State::Available(value))
}

/// Records a constant, whose elements all equal `value`.
pub fn record_constant(value: Literal, shape: Shape) -> Arc<Node> {
    let spec = TensorSpec { shape, dtype: value.dtype };
    let op = Op::new(OpCode::Constant, Attrs::Value(value.bits));
    record_inferred(op, &spec, State::Leaf)
}

/// A node on a device: the node itself if it is committed to the device, else a copy that is
/// computed when it is needed. The ops before the copy run on the node's own device; only
/// constants and random draws are made on the new device, where they have the same values.
/// Gradients are moved back.
///
/// Errors: [`Error::InvalidArgument`] in a function being compiled, which runs on one device.
#[track_caller]
pub fn to_device(node: &Arc<Node>, device: Device) -> Result<Arc<Node>> {
    node.check()?;
    let place = node.place();
    if place.is_sharded() {
        let attrs = Attrs::Devices { from: place.device().index(), to: device.index() };
        let op = Op::new(OpCode::ToDevice, attrs);
        let place = Some(place);
        let state = State::Unary(location::here(), node.clone());
        return done(context::add_node(op, &node.spec(), place, state));
    }
    if place.device() == device && !place.is_floating() {
        return Ok(node.clone());
    }
    if place.device() != device && trace::is_active() {
        return Err(Error::InvalidArgument(format!(
            "to_device: a function that is compiled runs on one device, here {}, and cannot move a \
             tensor to {device}; move it outside of the function",
            place.device()
        )));
    }
    if place.is_floating() {
        // A leaf that can be computed anywhere is recorded for the device.
        let leaf = match &*node.state() {
            State::Leaf if node.code() != OpCode::Input => Some(State::Leaf),
            State::Literal => Some(State::Literal),
            &State::Random { key, offset } => Some(State::Random { key, offset }),
            _ => None,
        };
        if let Some(state) = leaf {
            let made = context::add_node(node.op(), &node.spec(), None, state);
            made.set_device(device);
            return Ok(made);
        }
    }
    if place.device() == device {
        return committed(node, device);
    }
    let attrs = Attrs::Devices { from: place.device().index(), to: device.index() };
    record_unary(Op::new(OpCode::ToDevice, attrs), node)
}

/// The same value, committed to the device that it floats on. There is no move: a reshape to
/// the tensor's own shape is the node that has the place, and the gradient.
#[track_caller]
fn committed(node: &Arc<Node>, device: Device) -> Result<Arc<Node>> {
    let same = Op::new(OpCode::Reshape, Attrs::shape(node.shape()));
    let same = record_unary(same, node)?;
    same.set_device(device);
    Ok(same)
}

/// Moves the operands of an op to one device: the device of the operands that determine it. Scalars
/// and indices on the host follow the other operands.
///
/// Errors: [`Error::MixedDevices`].
fn colocate(op: &Op, inputs: &[&Arc<Node>]) -> Result<Vec<Arc<Node>>> {
    let indexes = |at: usize, t: &Node| at > 0 && op.class() == Class::Index && t.dtype().is_int();
    let follows = |at: usize, t: &Node| {
        device_of(t) == Device::CPU && (t.shape().rank() == 0 || indexes(at, t))
    };
    let committed = inputs.iter().enumerate().filter(|(_, t)| !t.place().is_floating());
    let mut deciding = committed.filter(|(at, t)| !follows(*at, t)).map(|(_, t)| device_of(t));
    let Some(device) = deciding.next() else {
        return Err(mixed(op.name(), inputs.iter().copied()));
    };
    if deciding.any(|other| other != device) {
        return Err(mixed(op.name(), inputs.iter().copied()));
    }
    let moved = |t: &&Arc<Node>| match t.place().is_floating() {
        true => Ok((*t).clone()),
        false => to_device(t, device),
    };
    inputs.iter().map(moved).collect()
}

//! The recorded node, which the tensors of front ends hold.
//!
//! A node with its bookkeeping (reference counts, registry entry) takes at most 100 bytes: shapes
//! up to rank 4 are inline, the edges and the value share one slot, and the source line uses the
//! padding of that slot.

mod spec;

pub use spec::CompactSpec;

use self::spec::{CompactShape, Form};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::memory::return_memory;
use crate::place::{Place, PlaceBits};
use girih_ir::{Attrs, DType, Literal, Op, OpCode, Shape, TensorSpec};
use girih_runtime::{Completion, Value};
use girih_sync::{Mutex, MutexGuard, OnceLock};
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};

/// One value of a recording; only its state changes.
pub struct Node {
    attrs: Attrs,
    shape: CompactShape,
    form: Form,
    code: OpCode,
    /// The placement, whether the tape tracks the node (see [`crate::tape`]), and whether a cut
    /// contains it.
    place: PlaceBits,
    id: u32,
    state: Mutex<State>,
}

/// The state of a node's value.
pub enum State {
    /// A node without operands: a constant, an iota, or a placeholder.
    Leaf,
    /// A constant whose value is always part of the program.
    Literal,
    /// A random leaf with its position in the generator's sequence.
    Random {
        /// The generator's key.
        key: u64,
        /// The position in the key's sequence.
        offset: u64,
    },
    /// An op with one operand, and the line that recorded it.
    Unary(Location, Arc<Node>),
    /// An op with two operands.
    Binary(Location, Arc<Node>, Arc<Node>),
    /// An op with more operands.
    Nary(Location, Box<[Arc<Node>]>),
    /// The node is claimed by an evaluation. The lazy state is kept in case the evaluation fails.
    Scheduled(Box<Scheduled>),
    /// The value is known.
    Available(Value),
    /// The value is known: the part of each processor of the node's mesh.
    Sharded(Arc<[Value]>),
    /// The node's memory was donated to a compiled function.
    Donated,
}

/// The kind of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A constant: all elements have one value.
    Constant,
    /// Trainable data.
    Parameter,
    /// Data from outside.
    Input,
    /// The result of an op.
    Intermediate,
}

/// The state of a tensor's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorState {
    /// The tensor is recorded and not computed yet.
    Lazy,
    /// An evaluation of the tensor is queued or running.
    Scheduled,
    /// The value is available.
    Available,
}

impl std::fmt::Display for TensorState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TensorState::Lazy => "lazy",
            TensorState::Scheduled => "scheduled",
            TensorState::Available => "available",
        })
    }
}

/// The memory of a node's value.
#[derive(Clone)]
pub enum Held {
    /// On one device.
    One(Value),
    /// The part of each processor of the node's mesh.
    Parts(Arc<[Value]>),
}

impl From<Held> for State {
    fn from(held: Held) -> State {
        match held {
            Held::One(value) => State::Available(value),
            Held::Parts(parts) => State::Sharded(parts),
        }
    }
}

/// A claimed node.
pub struct Scheduled {
    /// The state without the claim.
    pub lazy: State,
    /// The end of the run.
    pub completion: Arc<Completion>,
    /// The value, which is set once memory is bound, before the run begins.
    pub value: Option<Held>,
    /// Whether the run is queued. Only then may other evaluations be queued behind the run, because
    /// an evaluation queued earlier could run before its dependency.
    pub queued: bool,
}

/// The tape's function for tracked nodes that are dropped: see [`Node::track`].
static FORGET: OnceLock<fn(usize) -> Pending> = OnceLock::new();

/// Makes the tape forget the tracked node at an address, which is dropped; returns the nodes that the
/// tape kept for it.
fn forget(address: usize) -> Pending {
    FORGET.get().map_or_else(Pending::new, |forget| forget(address))
}

impl Node {
    pub(crate) fn new(op: Op, spec: &TensorSpec, place: Place, state: State, id: u32) -> Node {
        Node::of_compact(op, CompactSpec::of_node(spec), place, state, id)
    }

    /// A node that carries an error, with the spec that it shows.
    pub(crate) fn failed(spec: &TensorSpec, error: Error, id: u32) -> Node {
        let (op, place) = (OpCode::Input.into(), Place::floating(Device::CPU));
        Node::of_compact(op, CompactSpec::failed(spec, error), place, State::Leaf, id)
    }

    /// Returns the error that the node carries, if any.
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.compact_spec().check()
    }

    /// The node's number in the graph that recorded it.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The spec in the form that the node stores.
    #[inline]
    pub fn compact_spec(&self) -> CompactSpec {
        CompactSpec { shape: self.shape, form: self.form }
    }

    /// A node with a compact spec; cheaper than [`Node::new`].
    #[inline]
    pub(crate) fn of_compact(
        op: Op,
        spec: CompactSpec,
        place: Place,
        state: State,
        id: u32,
    ) -> Node {
        let (CompactSpec { shape, form }, Op { code, attrs }) = (spec, op);
        // The caller adds the node to the tape after it is created.
        let place = PlaceBits::new(place.with_tracked(false));
        Node { attrs, shape, form, code, place, id, state: Mutex::new(state) }
    }

    /// The node's device, and whether the tape tracks the node.
    #[inline]
    pub fn place(&self) -> Place {
        self.place.get()
    }

    /// Commits a node without other users to a device.
    pub fn set_device(&self, device: Device) {
        self.place.set(Place::committed(device).with_tracked(self.is_tracked()));
    }

    /// Sets the place of a placeholder to the place of its argument.
    pub fn set_place(&self, place: Place) {
        self.place.set(place.with_tracked(false));
    }

    /// Whether the tape tracks the node.
    #[inline]
    pub fn is_tracked(&self) -> bool {
        self.place().is_tracked()
    }

    /// Makes the tape track the node. `forget` is called with the node's address when the node is
    /// dropped, and returns the nodes that the tape kept for it; it is the same for all nodes.
    pub(crate) fn track(&self, forget: fn(usize) -> Pending) {
        let _ = FORGET.set(forget);
        self.place.set_tracked(true);
    }

    /// Makes the tape track the node no longer.
    pub(crate) fn untrack(&self) {
        self.place.set_tracked(false);
    }

    /// Marks the node for a cut in progress; `false` if another cut has marked it.
    #[inline]
    pub(crate) fn mark_cut(&self) -> bool {
        self.place.mark_cut()
    }

    /// Removes the mark of a cut.
    #[inline]
    pub(crate) fn unmark_cut(&self) {
        self.place.unmark_cut();
    }

    /// The op, with its attributes.
    pub fn op(&self) -> Op {
        Op { code: self.code, attrs: self.attrs.clone() }
    }

    /// The op, without its attributes.
    #[inline]
    pub fn code(&self) -> OpCode {
        self.code
    }

    /// Whether the node is a constant that has not been computed.
    pub fn is_constant(&self) -> bool {
        self.code == OpCode::Constant && matches!(*self.state(), State::Leaf | State::Literal)
    }

    /// The attributes of the op.
    #[inline]
    pub fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.form.dtype()
    }

    /// The sizes of the dimensions.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.compact_spec().shape()
    }

    /// The shape and dtype.
    #[inline]
    pub fn spec(&self) -> TensorSpec {
        TensorSpec { shape: self.shape(), dtype: self.dtype() }
    }

    /// The state of the value, locked.
    #[inline]
    pub fn state(&self) -> MutexGuard<'_, State> {
        // Each critical section leaves the state consistent, even if it unwinds.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kind of the node in its graph.
    pub fn kind(&self) -> NodeKind {
        match self.code {
            OpCode::Constant => NodeKind::Constant,
            OpCode::Parameter => NodeKind::Parameter,
            OpCode::Input => NodeKind::Input,
            _ => NodeKind::Intermediate,
        }
    }

    /// The value of a constant's elements; `None` for other nodes.
    pub fn constant_value(&self) -> Option<Literal> {
        match (self.is_constant(), &self.attrs) {
            (true, &Attrs::Value(bits)) => Some(Literal { dtype: self.dtype(), bits }),
            _ => None,
        }
    }

    /// Makes the value of a constant that was just recorded part of the program, whatever the
    /// value.
    pub fn make_literal(&self) {
        let mut state = self.state();
        if let State::Leaf = *state {
            *state = State::Literal;
        }
    }

    /// The state of the node's value.
    pub fn value_state(&self) -> TensorState {
        match &*self.state() {
            State::Available(_) | State::Sharded(_) => TensorState::Available,
            State::Scheduled(s) => match s.completion.poll() {
                None => TensorState::Scheduled,
                Some(Ok(())) => TensorState::Available,
                Some(Err(_)) => TensorState::Lazy,
            },
            _ => TensorState::Lazy,
        }
    }

    /// Whether the node holds its value: no evaluation is needed, nor has to be waited for.
    #[inline]
    pub fn has_value(&self) -> bool {
        self.state().is_available()
    }

    /// The operands; none for a leaf, and none once the value is available.
    pub fn inputs(&self) -> SmallVec<[Arc<Node>; 3]> {
        let mut inputs = SmallVec::new();
        self.state().for_each_input(|node| inputs.push(node.clone()));
        inputs
    }

    /// The line that recorded the node, while it is lazy.
    pub fn location(&self) -> Location {
        self.state().location()
    }
}

/// The place of a node whose operands have these places; see [`State::place`].
fn merged(places: impl Iterator<Item = Place>) -> Result<Option<Place>, Place> {
    let (mut all, mut mixed) = (None::<Place>, false);
    for place in places {
        let first = all.unwrap_or(place);
        let tracked = first.is_tracked() || place.is_tracked();
        let both = first.merge(place);
        mixed |= both.is_none();
        all = Some(both.unwrap_or(first).with_tracked(tracked));
    }
    match all {
        Some(place) if mixed => Err(place),
        all => Ok(all),
    }
}

impl State {
    /// The state of an op with these operands that the line `location` recorded.
    pub fn with_inputs(location: Location, inputs: SmallVec<[Arc<Node>; 3]>) -> State {
        match inputs.len() {
            0 => State::Leaf,
            1 | 2 => {
                let mut inputs = inputs.into_iter();
                match (inputs.next(), inputs.next()) {
                    (Some(a), Some(b)) => State::Binary(location, a, b),
                    (Some(a), None) => State::Unary(location, a),
                    _ => State::Leaf,
                }
            }
            _ => State::Nary(location, inputs.into_vec().into_boxed_slice()),
        }
    }

    /// Whether the value is known.
    #[inline]
    pub fn is_available(&self) -> bool {
        matches!(self, State::Available(_) | State::Sharded(_))
    }

    /// Calls `f` with each operand of a lazy or scheduled node.
    pub fn for_each_input(&self, mut f: impl FnMut(&Arc<Node>)) {
        match self {
            State::Unary(_, a) => f(a),
            State::Binary(_, a, b) => {
                f(a);
                f(b);
            }
            State::Nary(_, inputs) => inputs.iter().for_each(f),
            State::Scheduled(s) => s.lazy.for_each_input(f),
            State::Leaf
            | State::Literal
            | State::Random { .. }
            | State::Available(_)
            | State::Sharded(_)
            | State::Donated => {}
        }
    }

    /// The place of a node with these operands, tracked if the tape tracks an operand. `None` for a
    /// leaf; `Err` with the place of the first operands if operands are on different devices, or if
    /// an operand is on a mesh.
    #[inline]
    pub fn place(&self) -> Result<Option<Place>, Place> {
        match self {
            State::Unary(_, a) if a.place().is_sharded() => Err(a.place()),
            State::Unary(_, a) => Ok(Some(a.place())),
            State::Binary(_, a, b) => a.place().merge(b.place()).map(Some).ok_or(a.place()),
            State::Nary(_, inputs) => merged(inputs.iter().map(|i| i.place())),
            _ => Ok(None),
        }
    }

    fn location(&self) -> Location {
        match self {
            State::Unary(at, _) | State::Binary(at, ..) | State::Nary(at, _) => *at,
            State::Scheduled(s) => s.lazy.location(),
            State::Leaf
            | State::Literal
            | State::Random { .. }
            | State::Available(_)
            | State::Sharded(_)
            | State::Donated => Location::default(),
        }
    }

    fn release(self, stack: &mut Pending) {
        match self {
            State::Unary(_, a) => stack.push(a),
            State::Binary(_, a, b) => stack.extend([a, b]),
            State::Nary(_, inputs) => stack.extend(inputs),
            State::Scheduled(s) => s.lazy.release(stack),
            State::Leaf
            | State::Literal
            | State::Random { .. }
            | State::Available(_)
            | State::Sharded(_)
            | State::Donated => {}
        }
    }
}

impl Drop for Node {
    /// Drops ancestors without other references iteratively, since recursion would overflow the
    /// stack on a long chain.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.place.get_mut().is_tracked() {
            let (mut stack, address) = (Pending::new(), std::ptr::from_ref(self) as usize);
            stack.extend(forget(address));
            std::mem::replace(
                self.state.get_mut().unwrap_or_else(PoisonError::into_inner),
                State::Leaf,
            )
            .release(&mut stack);
            drop_all(stack);
        } else if !matches!(
            state,
            State::Available(_) | State::Sharded(_) | State::Leaf | State::Literal
        ) {
            drop_state(std::mem::replace(state, State::Leaf));
        }
        self.compact_spec().release();
    }
}

/// Nodes to be dropped.
pub type Pending = SmallVec<[Arc<Node>; 4]>;

/// Drops a state's operands without recursion.
pub fn drop_state(state: State) {
    let mut stack = Pending::new();
    state.release(&mut stack);
    drop_all(stack);
}

/// Drops nodes, and their ancestors without other references, without recursion.
pub fn drop_all(mut stack: Pending) {
    let mut dropped = 0;
    while let Some(node) = stack.pop() {
        let address = Arc::as_ptr(&node) as usize;
        if let Some(mut node) = Arc::into_inner(node) {
            dropped += 1;
            if node.is_tracked() {
                node.untrack();
                stack.extend(forget(address));
            }
            let state = node.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(state, State::Leaf).release(&mut stack);
        }
    }
    return_memory(dropped);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_its_bookkeeping_fits_in_100_bytes() {
        let counts = 2 * size_of::<usize>();
        let registry_entry = size_of::<std::sync::Weak<Node>>();
        assert!(size_of::<Node>() + counts + registry_entry <= 100, "{}", size_of::<Node>());
    }
}

//! The recorded node, to which a tensor handle points.
//!
//! A node with its bookkeeping (reference counts, registry entry) takes at most 100 bytes: shapes
//! up to rank 4 are inline, the edges and the value share one slot, and the source line uses the
//! padding of that slot.

use crate::devices::Device;
use crate::location::Location;
use crate::place::{Place, PlaceByte};
use crate::{Error, Result};
use girih_ir::{Attrs, DType, Op, OpCode, Shape, TensorSpec};
use girih_runtime::{Completion, Value};
use girih_sync::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};

/// One value of a recording; only its state changes.
pub(crate) struct Node {
    attrs: Attrs,
    shape: CompactShape,
    rank: u8,
    dtype: DType,
    code: OpCode,
    /// The device, whether the tape tracks the node (see [`crate::tape`]), and whether a cut
    /// contains it.
    place: PlaceByte,
    id: u32,
    state: Mutex<State>,
}

/// Sizes up to rank 4 below 2^32 are inline; other shapes are interned, with the id in the first
/// word. A table holds the shape as long as the node lives if the shape is symbolic, which occurs
/// only while tracing, or if the interner is full.
type CompactShape = [u32; 4];

/// A spec in the form that nodes store. If two compact specs are equal, the specs are equal. A
/// compact spec whose shape is in the table of a live node, or belongs to a failed node, never
/// compares equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactSpec {
    shape: CompactShape,
    rank: u8,
    dtype: DType,
}

impl PartialEq for CompactSpec {
    #[inline]
    fn eq(&self, other: &CompactSpec) -> bool {
        self.shape == other.shape
            && self.rank == other.rank
            && self.dtype == other.dtype
            && self.rank <= INTERNED
    }
}

impl CompactSpec {
    /// The slot for this spec in a hash table of `entries` entries, a power of two.
    #[inline]
    pub fn slot(&self, entries: usize) -> usize {
        let [a, b, c, d] = self.shape;
        let mixed = a ^ b.rotate_left(7) ^ c.rotate_left(13) ^ d.rotate_left(19);
        (mixed.wrapping_mul(0x9e37_79b9) >> 20) as usize & (entries - 1)
    }

    /// Converts a spec; `None` if only a node can hold it.
    pub fn of(spec: &TensorSpec) -> Option<CompactSpec> {
        let (shape, rank) = compact(&spec.shape)?;
        Some(CompactSpec { shape, rank, dtype: spec.dtype })
    }
}

/// Values of `rank` for shapes that are not inline.
const INTERNED: u8 = u8::MAX - 2;
const IN_TABLE: u8 = u8::MAX - 1;
const FAILED: u8 = u8::MAX;

/// The maximum number of interned shapes, about 6 MB.
const MAX_INTERNED: usize = 1 << 16;

static LARGE_SHAPES: Mutex<NodeTable<Shape>> = Mutex::new(NodeTable::new());
/// The error and the shape of each live failed node.
static FAILURES: Mutex<NodeTable<(Shape, Error)>> = Mutex::new(NodeTable::new());

/// A table of values that belong to live nodes.
struct NodeTable<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> NodeTable<T> {
    const fn new() -> NodeTable<T> {
        NodeTable { entries: Vec::new(), free: Vec::new() }
    }

    fn lock(table: &'static Mutex<NodeTable<T>>) -> MutexGuard<'static, NodeTable<T>> {
        table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&mut self, entry: T) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.entries[id as usize] = Some(entry);
                id
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        }
    }

    fn get(&self, id: u32) -> &T {
        self.entries[id as usize].as_ref().expect("kept as long as its node lives")
    }

    fn release(&mut self, id: u32) {
        self.entries[id as usize] = None;
        self.free.push(id);
    }
}

/// The state of a node's value.
pub(crate) enum State {
    /// A node without operands: a constant, an iota, or a placeholder.
    Leaf,
    /// A constant whose value is always part of the program.
    Literal,
    /// A random leaf with its position in the generator's sequence.
    Random {
        key: u64,
        offset: u64,
    },
    Unary(Location, Arc<Node>),
    Binary(Location, Arc<Node>, Arc<Node>),
    Nary(Location, Box<[Arc<Node>]>),
    /// The node is claimed by an evaluation. The lazy state is kept in case the evaluation fails.
    Scheduled(Box<Scheduled>),
    Available(Value),
    /// The node's memory was donated to a compiled function.
    Donated,
}

/// A claimed node.
pub(crate) struct Scheduled {
    pub lazy: State,
    pub completion: Arc<Completion>,
    /// The value, which is set once memory is bound, before the run begins.
    pub value: Option<Value>,
    /// Whether the run is queued. Only then may other evaluations be queued behind the run, because
    /// an evaluation queued earlier could run before its dependency.
    pub queued: bool,
}

static SHAPES: Mutex<Option<Interner>> = Mutex::new(None);

#[derive(Default)]
struct Interner {
    shapes: Vec<Shape>,
    ids: FxHashMap<Shape, u32>,
}

impl Interner {
    /// The id of a shape; `None` if the interner is full.
    fn intern(&mut self, shape: &Shape, most: usize) -> Option<u32> {
        if let Some(&id) = self.ids.get(shape) {
            return Some(id);
        }
        let id = self.shapes.len() as u32;
        if self.shapes.len() >= most {
            return None;
        }
        self.shapes.push(shape.clone());
        self.ids.insert(shape.clone(), id);
        Some(id)
    }
}

/// The shape, inline or interned; `None` for symbolic shapes, and if the interner is full.
fn compact(shape: &Shape) -> Option<(CompactShape, u8)> {
    if shape.is_symbolic() {
        return None;
    }
    let mut dims = [0; 4];
    let fits = shape.rank() <= 4 && shape.iter().all(|&d| u32::try_from(d).is_ok());
    if !fits {
        let mut table = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
        dims[0] = table.get_or_insert_default().intern(shape, MAX_INTERNED)?;
        return Some((dims, INTERNED));
    }
    for (dim, &size) in dims.iter_mut().zip(shape.iter()) {
        *dim = size as u32;
    }
    Some((dims, shape.rank() as u8))
}

impl Node {
    pub fn new(op: Op, spec: &TensorSpec, place: Place, state: State, id: u32) -> Node {
        let in_table =
            || ([NodeTable::lock(&LARGE_SHAPES).insert(spec.shape.clone()), 0, 0, 0], IN_TABLE);
        let (shape, rank) = compact(&spec.shape).unwrap_or_else(in_table);
        let spec = CompactSpec { shape, rank, dtype: spec.dtype };
        Node::of_compact(op, spec, place, state, id)
    }

    /// A node that carries an error, with the spec that it shows.
    pub fn failed(spec: &TensorSpec, error: Error, id: u32) -> Node {
        let shape = [NodeTable::lock(&FAILURES).insert((spec.shape.clone(), error)), 0, 0, 0];
        let (attrs, code, state) = (Attrs::None, OpCode::Input, Mutex::new(State::Leaf));
        let place = PlaceByte::new(Place::floating(Device::CPU));
        Node { attrs, shape, rank: FAILED, dtype: spec.dtype, code, place, id, state }
    }

    /// Returns the error that the node carries, if any.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.rank == FAILED {
            false => Ok(()),
            true => Err(NodeTable::lock(&FAILURES).get(self.shape[0]).1.clone()),
        }
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    #[inline]
    pub fn compact_spec(&self) -> CompactSpec {
        CompactSpec { shape: self.shape, rank: self.rank, dtype: self.dtype }
    }

    /// A node with a compact spec; cheaper than [`Node::new`].
    pub fn of_compact(op: Op, spec: CompactSpec, place: Place, state: State, id: u32) -> Node {
        let (CompactSpec { shape, rank, dtype }, Op { code, attrs }) = (spec, op);
        // The caller adds the node to the tape after it is created.
        let place = PlaceByte::new(place.with_tracked(false));
        Node { attrs, shape, rank, dtype, code, place, id, state: Mutex::new(state) }
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

    /// Sets whether the tape tracks the node.
    pub fn set_tracked(&self, on: bool) {
        self.place.set_tracked(on);
    }

    /// Marks the node for a cut in progress; `false` if another cut has marked it.
    #[inline]
    pub fn mark_cut(&self) -> bool {
        self.place.mark_cut()
    }

    /// Removes the mark of a cut.
    #[inline]
    pub fn unmark_cut(&self) {
        self.place.unmark_cut();
    }

    pub fn op(&self) -> Op {
        Op { code: self.code, attrs: self.attrs.clone() }
    }

    pub fn code(&self) -> OpCode {
        self.code
    }

    /// Whether the node is a constant that has not been computed.
    pub fn is_constant(&self) -> bool {
        self.code == OpCode::Constant && matches!(*self.state(), State::Leaf | State::Literal)
    }

    pub fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> Shape {
        if self.rank == IN_TABLE {
            return NodeTable::lock(&LARGE_SHAPES).get(self.shape[0]).clone();
        }
        if self.rank == FAILED {
            return NodeTable::lock(&FAILURES).get(self.shape[0]).0.clone();
        }
        if self.rank == INTERNED {
            let table = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
            let table = table.as_ref().expect("the shape was interned when the node was made");
            return table.shapes[self.shape[0] as usize].clone();
        }
        Shape::inline(self.shape.map(|d| d as usize), self.rank as usize)
    }

    pub fn spec(&self) -> TensorSpec {
        TensorSpec { shape: self.shape(), dtype: self.dtype }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        // Each critical section leaves the state consistent, even if it unwinds.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            | State::Donated => {}
        }
    }

    /// The place of a node with these operands, tracked if the tape tracks an operand. `None` for a
    /// leaf; `Err` with the place of the first operands if operands are on different devices.
    #[inline]
    pub fn place(&self) -> Result<Option<Place>, Place> {
        match self {
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
            stack.extend(crate::tape::forget(address));
            std::mem::replace(
                self.state.get_mut().unwrap_or_else(PoisonError::into_inner),
                State::Leaf,
            )
            .release(&mut stack);
            drop_all(stack);
        } else if !matches!(state, State::Available(_) | State::Leaf | State::Literal) {
            drop_state(std::mem::replace(state, State::Leaf));
        }
        match self.rank {
            IN_TABLE => NodeTable::lock(&LARGE_SHAPES).release(self.shape[0]),
            FAILED => NodeTable::lock(&FAILURES).release(self.shape[0]),
            _ => {}
        }
    }
}

/// Nodes to be dropped.
pub(crate) type Pending = SmallVec<[Arc<Node>; 4]>;

/// Drops a state's operands without recursion.
pub(crate) fn drop_state(state: State) {
    let mut stack = Pending::new();
    state.release(&mut stack);
    drop_all(stack);
}

/// Drops nodes, and their ancestors without other references, without recursion.
pub(crate) fn drop_all(mut stack: Pending) {
    let mut dropped = 0;
    while let Some(node) = stack.pop() {
        let address = Arc::as_ptr(&node) as usize;
        if let Some(mut node) = Arc::into_inner(node) {
            dropped += 1;
            if node.is_tracked() {
                node.set_tracked(false);
                stack.extend(crate::tape::forget(address));
            }
            let state = node.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(state, State::Leaf).release(&mut stack);
        }
    }
    crate::memory::return_memory(dropped);
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

    #[test]
    fn a_tensor_is_a_handle_of_one_word_and_a_copy_of_it_records_nothing() {
        assert_eq!(size_of::<crate::Tensor>(), size_of::<usize>());
        let scope = crate::Scope::new();
        let x = crate::Tensor::ones([2], DType::F32).unwrap().neg().unwrap();
        let before = scope.graph().num_nodes();
        let copy = x.clone();
        assert!(copy.is_same(&x) && scope.graph().num_nodes() == before);
    }

    #[test]
    fn shapes_beyond_the_inline_ones_survive() {
        for shape in [
            Shape::from([1, 2, 3, 4, 5]),
            Shape::from([1 << 40, 2]),
            Shape::scalar(),
            Shape::from([0, 7]),
        ] {
            let spec = TensorSpec::new(shape.clone(), DType::I8);
            let node = Node::new(
                OpCode::Input.into(),
                &spec,
                Place::committed(Device::CPU),
                State::Leaf,
                0,
            );
            assert_eq!(node.spec(), spec);
            assert_eq!(node.compact_spec(), CompactSpec::of(&spec).unwrap());
        }
    }

    #[test]
    fn shapes_are_shared_up_to_a_number_of_them() {
        let mut interner = Interner::default();
        let shape = |size| Shape::from([1, 1, 1, 1, size]);
        for size in 0..100 {
            assert_eq!(interner.intern(&shape(size), 10).is_some(), size < 10);
        }
        assert_eq!(interner.intern(&shape(3), 10), interner.intern(&shape(3), 10));
        assert_eq!((interner.shapes.len(), interner.ids.len()), (10, 10));
        // A symbolic shape has no compact spec, so the node's table holds it.
        let symbolic = Shape::of_dims([girih_ir::Dim::symbol("n", 8, 1, None)]);
        assert!(CompactSpec::of(&TensorSpec::new(symbolic, DType::F32)).is_none());
    }
}

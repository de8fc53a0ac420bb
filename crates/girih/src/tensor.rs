//! The tensor handle: metadata of a value, and recording of ops.

use crate::devices;
use crate::location;
use crate::node::{CompactSpec, Node, State};
use crate::place::Place;
use crate::{Error, Result, context};
use girih_ir::ops::Category;
use girih_ir::{Attrs, DType, Literal, Op, OpCode, Shape, TensorSpec};
use girih_runtime::Value;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

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

/// Records an op with one or two operands on one device.
fn recorded(
    op: Op,
    [a, b]: [&Tensor; 2],
    inputs: &[&Tensor],
    place: Place,
    state: State,
) -> Result<Arc<Node>> {
    let place = Some(place);
    let (specs, code) = ([a.node.compact_spec(), b.node.compact_spec()], op.code);
    let plain = matches!(op.attrs, Attrs::None);
    let slot = (specs[0].slot(INFERRED) + specs[1].slot(INFERRED) + code as usize) % INFERRED;
    let same = |known: &Inferred| {
        known.code == code && known.operands == inputs.len() && known.specs == specs
    };
    let known =
        INFERRED_SPECS.with_borrow(|table| table[slot].filter(same).map(|known| known.result));
    if let Some(result) = known.filter(|_| plain) {
        return Ok(context::add_compact(op, result, place, state));
    }
    a.node.check()?;
    b.node.check()?;
    let spec = match inputs {
        [a] => op.infer(&[&a.spec()])?,
        _ => op.infer(&[&a.spec(), &b.spec()])?,
    };
    let result = CompactSpec::of(&spec);
    if let (true, Some(result)) = (plain, result) {
        let operands = inputs.len();
        let entry = Inferred { code, operands, specs, result };
        INFERRED_SPECS.with_borrow_mut(|table| table[slot] = Some(entry));
    }
    Ok(context::add_node(op, &spec, place, state))
}

/// A tensor: a reference-counted handle of a recorded node. Cloning the handle copies no data. The
/// metadata is known without evaluation; the value is computed when it is first needed.
///
/// Threads may send and share tensors.
#[derive(Clone)]
pub struct Tensor {
    node: Arc<Node>,
}

/// A weak reference to a tensor, which does not keep the tensor alive.
#[derive(Clone)]
pub struct WeakTensor(Weak<Node>);

impl WeakTensor {
    /// The tensor, if it is still alive.
    pub fn upgrade(&self) -> Option<Tensor> {
        self.0.upgrade().map(Tensor::from_node)
    }
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

impl Tensor {
    pub(crate) fn from_node(node: Arc<Node>) -> Tensor {
        Tensor { node }
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Records an op on these operands after checking them.
    #[track_caller]
    pub(crate) fn record(op: Op, inputs: &[&Tensor]) -> Result<Tensor> {
        // Fast paths: most ops have one or two operands, and every op pays for recording.
        let location = location::here();
        let node = match inputs {
            [a] => {
                let state = State::Unary(location, a.node.clone());
                recorded(op, [a, a], &[a], a.node.place(), state)?
            }
            [a, b] => {
                let Some(place) = a.node.place().merge(b.node.place()) else {
                    return Tensor::record_mixed(op, inputs);
                };
                let state = State::Binary(location, a.node.clone(), b.node.clone());
                recorded(op, [a, b], &[a, b], place, state)?
            }
            _ => {
                inputs.iter().try_for_each(|t| t.node.check())?;
                let specs: Vec<TensorSpec> = inputs.iter().map(|t| t.spec()).collect();
                let spec = op.infer(&specs.iter().collect::<Vec<_>>())?;
                let nodes = inputs.iter().map(|t| t.node.clone()).collect();
                let state = State::with_inputs(location, nodes);
                let Ok(place) = state.place() else {
                    return Tensor::record_mixed(op, inputs);
                };
                context::add_node(op, &spec, place, state)
            }
        };
        let tensor = Tensor { node };
        if context::eager()? {
            crate::eval::eagerly(&tensor)?;
        }
        Ok(tensor)
    }

    /// Records an op whose operands are committed to several devices. Like in PyTorch, scalars and
    /// indices on the host are moved to the device of the other operands.
    ///
    /// Errors: [`Error::MixedDevices`].
    #[cold]
    #[track_caller]
    fn record_mixed(op: Op, inputs: &[&Tensor]) -> Result<Tensor> {
        let moved = devices::colocate(&op, inputs)?;
        Tensor::record(op, &moved.iter().collect::<Vec<_>>())
    }

    /// Records several results of one call after checking the operands; in eager mode the results
    /// are computed together.
    #[track_caller]
    pub(crate) fn record_results(
        ops: impl IntoIterator<Item = Op>,
        inputs: &[&Tensor],
    ) -> Result<Vec<Tensor>> {
        let location = location::here();
        inputs.iter().try_for_each(|t| t.node.check())?;
        let specs: Vec<TensorSpec> = inputs.iter().map(|t| t.spec()).collect();
        let specs: Vec<&TensorSpec> = specs.iter().collect();
        let record = |op: Op| {
            let spec = op.infer(&specs)?;
            let nodes = inputs.iter().map(|t| t.node.clone()).collect();
            let state = State::with_inputs(location, nodes);
            let place = state.place().map_err(|_| devices::mixed(op.name(), inputs))?;
            Ok(Tensor { node: context::add_node(op, &spec, place, state) })
        };
        let results = ops.into_iter().map(record).collect::<Result<Vec<_>>>()?;
        if context::eager()? {
            crate::eval::eagerly_all(&results)?;
        }
        Ok(results)
    }

    /// Records an op whose spec is already inferred.
    pub(crate) fn with_state(op: Op, spec: &TensorSpec, state: State) -> Tensor {
        let computed = match &state {
            State::Available(_) | State::Leaf | State::Literal => false,
            _ => context::eager().unwrap_or(false),
        };
        // Callers with operands on several devices have checked them before.
        let place = state.place().unwrap_or_else(Some);
        let tensor = Tensor { node: context::add_node(op, spec, place, state) };
        if computed {
            // On an error the tensor stays lazy; reading its value reports the error.
            let _ = crate::eval::eagerly(&tensor);
        }
        tensor
    }

    /// A tensor with an available value.
    pub(crate) fn available(code: OpCode, spec: &TensorSpec, value: Value) -> Tensor {
        Tensor::with_state(code.into(), spec, State::Available(value))
    }

    /// A tensor whose elements all equal `value`.
    pub(crate) fn constant(value: Literal, shape: Shape) -> Tensor {
        let spec = TensorSpec { shape, dtype: value.dtype };
        Tensor::with_state(Op::new(OpCode::Constant, Attrs::Value(value.bits)), &spec, State::Leaf)
    }

    /// Makes the value of a constant that was just recorded part of the program, whatever the
    /// value.
    pub(crate) fn into_literal(self) -> Tensor {
        let mut state = self.node.state();
        if let State::Leaf = *state {
            *state = State::Literal;
        }
        drop(state);
        self
    }

    /// A weak reference to the tensor.
    pub fn downgrade(&self) -> WeakTensor {
        WeakTensor(Arc::downgrade(&self.node))
    }

    /// The shape and dtype.
    pub fn spec(&self) -> TensorSpec {
        self.node.spec()
    }

    /// The sizes of the dimensions.
    pub fn shape(&self) -> Shape {
        self.node.shape()
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape().numel()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.node.dtype()
    }

    /// The name of the op that computes the tensor.
    pub fn op_name(&self) -> &'static str {
        self.node.code().def().name
    }

    /// The op that computes the tensor, with its attributes.
    pub fn op(&self) -> Op {
        self.node.op()
    }

    /// The category of the op that computes the tensor.
    pub fn category(&self) -> Category {
        self.node.code().def().category()
    }

    /// The kind of the node in its graph.
    pub fn kind(&self) -> NodeKind {
        match self.node.code() {
            OpCode::Constant => NodeKind::Constant,
            OpCode::Parameter => NodeKind::Parameter,
            OpCode::Input => NodeKind::Input,
            _ => NodeKind::Intermediate,
        }
    }

    /// The operands; none for a leaf, and none once the value is available.
    pub fn inputs(&self) -> Vec<Tensor> {
        let mut inputs = Vec::new();
        self.node.state().for_each_input(|node| inputs.push(Tensor { node: node.clone() }));
        inputs
    }

    /// The lazy tensors in this thread's graph that use this tensor, each once per operand that is
    /// this tensor. Dropped tensors are not included.
    ///
    /// Cost: linear in the live nodes of the graph.
    pub fn users(&self) -> Vec<Tensor> {
        let uses = |user: Tensor| {
            let count = user.inputs().iter().filter(|input| input.is_same(self)).count();
            std::iter::repeat_n(user, count)
        };
        context::current_graph().live().into_iter().flat_map(uses).collect()
    }

    /// The value of a constant's elements; `None` for other nodes.
    pub fn constant_value(&self) -> Option<Literal> {
        match (self.node.is_constant(), self.node.attrs()) {
            (true, &Attrs::Value(bits)) => Some(Literal { dtype: self.dtype(), bits }),
            _ => None,
        }
    }

    /// The node's number in the graph that recorded it.
    pub fn id(&self) -> u32 {
        self.node.id()
    }

    /// The state of the tensor's value.
    pub fn state(&self) -> TensorState {
        match &*self.node.state() {
            State::Available(_) => TensorState::Available,
            State::Scheduled(s) => match s.completion.poll() {
                None => TensorState::Scheduled,
                Some(Ok(())) => TensorState::Available,
                Some(Err(_)) => TensorState::Lazy,
            },
            _ => TensorState::Lazy,
        }
    }

    /// Whether the tensor's value is not available yet. A tensor with a queued or running
    /// evaluation is lazy until the evaluation is done.
    pub fn is_lazy(&self) -> bool {
        self.state() != TensorState::Available
    }

    /// Whether the tensor holds its value: no evaluation is needed, nor has to be waited for.
    #[inline]
    pub fn has_value(&self) -> bool {
        matches!(&*self.node.state(), State::Available(_))
    }

    /// Whether an evaluation of the tensor is queued or running.
    pub fn is_scheduled(&self) -> bool {
        self.state() == TensorState::Scheduled
    }

    /// Whether both handles refer to the same node.
    pub fn is_same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.node, &other.node)
    }

    /// A tensor that carries an error, which every function that takes the tensor returns.
    pub(crate) fn failed(spec: &TensorSpec, error: Error) -> Tensor {
        Tensor { node: context::add_failed(spec, error) }
    }

    /// The tensor itself, unless an operator that led to it could not be recorded.
    ///
    /// ```
    /// use girih::{DType, Tensor};
    ///
    /// let (a, b) = (Tensor::ones([2], DType::F32)?, Tensor::ones([3], DType::F32)?);
    /// assert!((&a + 1.0).check().is_ok());
    /// assert!((&a + &b).check().is_err());
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: the operator's error; see [`crate::guide::errors`].
    pub fn check(&self) -> Result<&Tensor> {
        self.node.check()?;
        Ok(self)
    }

    /// Computes the value if it is not available yet, and returns the tensor.
    ///
    /// Errors: [`crate::Error::Evaluation`], [`crate::Error::TracedValue`].
    pub fn eval(&self) -> Result<&Tensor> {
        crate::eval([self])?;
        Ok(self)
    }

    /// The same data as a trainable parameter; graphs print it as a parameter. Evaluates the tensor
    /// if needed.
    pub fn into_parameter(self) -> Result<Tensor> {
        let value = crate::eval::value(&self, "a parameter")?;
        Ok(Tensor::available(OpCode::Parameter, &self.spec(), value))
    }
}

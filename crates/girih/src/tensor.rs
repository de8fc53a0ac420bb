//! The tensor handle: metadata of a value, and recording of ops.

mod gradient;
mod placed;
mod sharded;

pub use gradient::{Hook, no_grad, take_roots};

use crate::{Error, Result};
use girih_ir::hints::Hints;
use girih_ir::ops::Category;
use girih_ir::{DType, Literal, Op, OpCode, Shape, TensorSpec};
use girih_record::node::{NodeKind, TensorState};
use girih_record::{Node, State, context, hints, recorder, trace};
use girih_runtime::Value;
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::sync::{Arc, Weak};

/// The nodes of tensors.
fn nodes<'a>(tensors: &[&'a Tensor]) -> SmallVec<[&'a Arc<Node>; 4]> {
    tensors.iter().map(|tensor| &tensor.node).collect()
}

/// A tensor: a reference-counted handle of a recorded node. Cloning the handle copies no data. The
/// metadata is known without evaluation; the value is computed when it is first needed.
///
/// Threads may send and share tensors.
#[derive(Clone)]
pub struct Tensor {
    node: Arc<Node>,
}

/// The recorded node, by which the recording engine knows the tensor.
impl Borrow<Arc<Node>> for Tensor {
    fn borrow(&self) -> &Arc<Node> {
        &self.node
    }
}

/// Sets the names of the arguments of the function being traced, for messages.
pub fn name_arguments(placeholders: &[Tensor], names: impl IntoIterator<Item = String>) {
    trace::name_arguments(placeholders, names);
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

impl Tensor {
    pub(crate) fn from_node(node: Arc<Node>) -> Tensor {
        Tensor { node }
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Records an op on these operands after checking them.
    #[inline]
    #[track_caller]
    pub(crate) fn record(op: Op, inputs: &[&Tensor]) -> Result<Tensor> {
        let node = match *inputs {
            [a] => recorder::record_unary(op, &a.node)?,
            [a, b] => recorder::record_binary(op, &a.node, &b.node)?,
            _ => recorder::record(op, &nodes(inputs))?,
        };
        Ok(Tensor { node })
    }

    /// Records several results of one call after checking the operands; in eager mode the results
    /// are computed together.
    #[track_caller]
    pub(crate) fn record_results(
        ops: impl IntoIterator<Item = Op>,
        inputs: &[&Tensor],
    ) -> Result<Vec<Tensor>> {
        let results = recorder::record_results(ops, &nodes(inputs))?;
        Ok(results.into_iter().map(Tensor::from_node).collect())
    }

    /// Records an op whose spec is already inferred.
    pub(crate) fn with_state(op: Op, spec: &TensorSpec, state: State) -> Tensor {
        Tensor { node: recorder::record_inferred(op, spec, state) }
    }

    /// A tensor with an available value.
    pub(crate) fn available(code: OpCode, spec: &TensorSpec, value: Value) -> Tensor {
        Tensor { node: recorder::record_value(code, spec, value) }
    }

    /// A tensor whose elements all equal `value`.
    pub(crate) fn constant(value: Literal, shape: Shape) -> Tensor {
        Tensor { node: recorder::record_constant(value, shape) }
    }

    /// Makes the value of a constant that was just recorded part of the program, whatever the
    /// value.
    pub(crate) fn into_literal(self) -> Tensor {
        self.node.make_literal();
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
        self.node.kind()
    }

    /// The operands; none for a leaf, and none once the value is available.
    pub fn inputs(&self) -> Vec<Tensor> {
        self.node.inputs().into_iter().map(Tensor::from_node).collect()
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
        let live = context::current_graph().live().into_iter().map(Tensor::from_node);
        live.flat_map(uses).collect()
    }

    /// The value of a constant's elements; `None` for other nodes.
    pub fn constant_value(&self) -> Option<Literal> {
        self.node.constant_value()
    }

    /// The node's number in the graph that recorded it.
    pub fn id(&self) -> u32 {
        self.node.id()
    }

    /// The state of the tensor's value.
    pub fn state(&self) -> TensorState {
        self.node.value_state()
    }

    /// Whether the tensor's value is not available yet. A tensor with a queued or running
    /// evaluation is lazy until the evaluation is done.
    pub fn is_lazy(&self) -> bool {
        self.state() != TensorState::Available
    }

    /// Whether the tensor holds its value: no evaluation is needed, nor has to be waited for.
    #[inline]
    pub fn has_value(&self) -> bool {
        self.node.has_value()
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

    /// Sets a hint of the tensor, replacing the previous value of the key. Hints never change a
    /// value. Programs captured or traced from the tensor keep its hints, in files too, and passes
    /// of users can read them. The compiler reads one hint: `fuse` with the value `no` computes the
    /// op in a kernel of its own, without fusion with its operands or users. Hints do not affect
    /// what was compiled or computed before. Results of forward mode and `vmap` have no hints.
    ///
    /// Errors: [`Error::InvalidArgument`] for an empty key, for a value of `fuse` other than `no`,
    /// and for a `layout` that does not fit the tensor.
    ///
    /// ```
    /// use girih::Tensor;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 4.0], [2])?;
    /// let y = x.sqrt()?;
    /// y.set_hint("fuse", "no")?;
    /// assert_eq!(y.hints()["fuse"], "no");
    /// let z = y.exp()?;
    /// assert_eq!(girih::explain([&z])?.kernels.len(), 2);
    /// # Ok::<(), girih::Error>(())
    /// ```
    pub fn set_hint(&self, key: &str, value: &str) -> Result<()> {
        hints::set(&self.node, key, value)
    }

    /// Copies the hints of a program's node to the tensor recorded for it, except the node's name
    /// and scope, which belong to the program.
    pub(crate) fn put_hints(&self, hints: &Hints) {
        hints::put_all(&self.node, hints);
    }

    /// The hints set by [`Tensor::set_hint`].
    pub fn hints(&self) -> Hints {
        hints::of(&self.node).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_a_handle_of_one_word_and_a_copy_of_it_records_nothing() {
        assert_eq!(size_of::<Tensor>(), size_of::<usize>());
        let scope = crate::Scope::new();
        let x = Tensor::ones([2], DType::F32).unwrap().neg().unwrap();
        let before = scope.graph().num_nodes();
        let copy = x.clone();
        assert!(copy.is_same(&x) && scope.graph().num_nodes() == before);
    }
}

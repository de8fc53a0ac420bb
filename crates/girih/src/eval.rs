//! Evaluation of tensors. In a function that is differentiated, the values at its arguments are
//! computed.

use crate::transform::at_arguments;
use crate::{Compilation, Error, Result, Tensor};
use girih_ir::{Graph, OpCode, TensorSpec};
use girih_record::context::Context;
use girih_record::{Device, Node, eval as engine};
use girih_runtime::Value;
use smallvec::SmallVec;
use std::sync::Arc;

/// The nodes of tensors.
type Nodes<'a> = SmallVec<[&'a Arc<Node>; 4]>;

/// Computes the values of tensors, with one run per device, so that shared work is done once.
/// Available tensors cost nothing.
///
/// In a function that is differentiated, the values at its arguments are computed, so that their
/// errors are raised; the tensors stay lazy.
///
/// Errors: [`Error::Evaluation`]; the tensors stay lazy and may be evaluated again.
/// [`Error::TracedValue`] if a tensor depends on a placeholder without a value, as in a function
/// that is compiled or batched.
pub fn eval<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
    eval_nodes(&tensors.into_iter().map(Tensor::node).collect::<Nodes<'a>>())
}

fn eval_nodes(targets: &[&Arc<Node>]) -> Result<()> {
    match engine::eval_recorded(targets) {
        Err(error @ Error::TracedValue { .. }) => {
            let there: Option<Vec<Arc<Node>>> =
                targets.iter().map(|target| at_arguments(target)).collect();
            let Some(there) = there else { return Err(error) };
            engine::eval_recorded(&there.iter().collect::<Nodes<'_>>())
        }
        outcome => outcome,
    }
}

/// Starts the evaluation of tensors and returns immediately, even if it has to be compiled first.
/// Reading a value waits for the evaluation. If 64 evaluations of the stream have not begun, the
/// call waits until one has begun, so that a loop which never reads uses bounded memory.
///
/// Errors: those of binding arguments; [`Error::TracedValue`]. Errors of compilation and execution
/// are reported when a value is read.
pub fn async_eval<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
    let targets: Nodes<'a> = tensors.into_iter().map(Tensor::node).collect();
    match engine::async_eval(&targets) {
        Err(Error::TracedValue { .. }) => eval_nodes(&targets),
        outcome => outcome,
    }
}

/// Compiles the graph that leads to tensors in the background, without running it. A later
/// evaluation finds the program in the cache.
///
/// Errors: [`Error::TracedValue`].
pub fn compile_only<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Compilation> {
    engine::compile_only(&tensors.into_iter().map(Tensor::node).collect::<Nodes<'a>>())
}

/// The recorded graph that leads to some tensors, before any pass, with data as leaves.
///
/// Errors: the error of a target that carries an error. A placeholder is an input of the graph, not
/// an error.
pub fn graph_of<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Graph> {
    girih_record::cut::graph_of(tensors)
}

/// The recorded graph that leads to some tensors, as text: see [`graph_of`]. If the current graph
/// keeps its history ([`crate::Graph::with_history`]), it contains ops whose values have been
/// computed.
///
/// Errors: those of [`graph_of`].
pub fn graph_text<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<String> {
    girih_record::cut::graph_text(tensors)
}

/// The tensor's data; evaluates the tensor if needed. `what` names the operation in errors.
pub(crate) fn value(tensor: &Tensor, what: &'static str) -> Result<Value> {
    value_of(tensor.node(), what)
}

fn value_of(node: &Arc<Node>, what: &'static str) -> Result<Value> {
    match engine::value(node, what) {
        // In a function that is differentiated, the value at its arguments is read. It is a
        // constant: no derivative flows through what is computed from it.
        Err(error @ Error::TracedValue { .. }) => match at_arguments(node) {
            Some(there) => value_of(&there, what),
            None => Err(error),
        },
        outcome => outcome,
    }
}

/// A tensor with a copy of `bytes`, in the layout of `spec`, on the current device.
pub(crate) fn from_bytes(spec: &TensorSpec, bytes: &[u8]) -> Result<Tensor> {
    Ok(Tensor::available(OpCode::Input, spec, engine::upload(bytes)?))
}

/// A tensor whose bytes `read` supplies in parts.
pub(crate) fn from_reader(spec: &TensorSpec, read: impl FnMut(usize, &mut [u8])) -> Result<Tensor> {
    Ok(Tensor::available(OpCode::Input, spec, engine::upload_parts(spec.size_bytes(), read)?))
}

/// The tensor's elements, row-major.
pub(crate) fn to_bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let value = value(tensor, "reading a tensor")?;
    let executor = Context::current().executor_for(Device::of(&value))?;
    let bytes = executor.runtime().download(&value, tensor.spec().size_bytes())?;
    Ok(bytes.into_vec())
}

/// Records a placeholder in the current graph: a leaf without a value, for tracing a function.
pub(crate) fn placeholder(spec: &TensorSpec) -> Tensor {
    Tensor::from_node(engine::placeholder(spec))
}

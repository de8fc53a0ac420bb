//! Transforms of functions. A [`Trace`] runs the user's function once on placeholders, transforms
//! the graph it recorded, and splices the result into the caller's graph, still lazy; so transforms
//! nest, and differentiate what other transforms recorded.

use crate::cut::ancestors;
use crate::eval::placeholder;
use crate::location::{self, Location};
use crate::node::{Node, State};
use crate::{Error, Result, Tensor};
use girih_ir::{Graph, NodeId, OpCode};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A function being traced: its placeholders in the order they were made.
#[derive(Default)]
pub struct Trace {
    placeholders: Vec<Tensor>,
}

/// What the placeholders of traces under way stand for, by node: who asks for the value of what
/// depends on them gets the one there is at these.
static STANDING_FOR: Mutex<Option<FxHashMap<usize, Tensor>>> = Mutex::new(None);

fn standing_for() -> MutexGuard<'static, Option<FxHashMap<usize, Tensor>>> {
    STANDING_FOR.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Trace {
    fn drop(&mut self) {
        let mut known = standing_for();
        let taken: Vec<Option<Tensor>> = match known.as_mut() {
            Some(known) => {
                self.placeholders.iter().map(|p| known.remove(&address(p.node()))).collect()
            }
            None => Vec::new(),
        };
        drop(known);
        // What they held goes outside the lock.
        drop(taken);
    }
}

fn address(node: &Arc<Node>) -> usize {
    Arc::as_ptr(node) as usize
}

/// A tensor with what placeholders stand for in place of them; None if one of them stands for nothing,
/// as in a function that is compiled.
pub(crate) fn at_arguments(tensor: &Tensor) -> Option<Tensor> {
    let mut tensor = tensor.clone();
    // Arguments of an inner trace may depend on an outer one's.
    loop {
        let order = ancestors(&[&tensor], |_| false);
        let is_placeholder = |node: &&Arc<Node>| {
            node.code() == OpCode::Input && matches!(*node.state(), State::Leaf)
        };
        let mut now: FxHashMap<usize, Arc<Node>> = FxHashMap::default();
        for node in order.iter().filter(is_placeholder) {
            let argument = standing_for().as_ref()?.get(&address(node))?.clone();
            now.insert(address(node), argument.node().clone());
        }
        if now.is_empty() {
            return Some(tensor);
        }
        for node in &order {
            let mut inputs: SmallVec<[Arc<Node>; 3]> = SmallVec::new();
            node.state().for_each_input(|i| inputs.push(i.clone()));
            if !inputs.iter().any(|i| now.contains_key(&address(i))) {
                continue;
            }
            let new = inputs.iter().map(|i| now.get(&address(i)).unwrap_or(i).clone()).collect();
            let state = State::with_inputs(node.location(), new);
            let made = Tensor::with_state(node.op(), &node.spec(), state);
            now.insert(address(node), made.node().clone());
        }
        tensor = Tensor::from_node(now.get(&address(tensor.node()))?.clone());
    }
}

/// The part of a recording that depends on placeholders, as a closed graph.
struct Traced {
    graph: Graph,
    ids: FxHashMap<*const Node, NodeId>,
    /// The tensor that stands outside for each input of the graph, by node.
    outside: FxHashMap<NodeId, Arc<Node>>,
    /// The line that recorded each node of the graph.
    lines: Vec<Location>,
}

impl Trace {
    /// A trace without placeholders.
    pub fn new() -> Trace {
        Trace::default()
    }

    /// A new argument of `like`'s shape and dtype. It has no value: ops on it record.
    pub fn placeholder(&mut self, like: &Tensor) -> Tensor {
        let tensor = placeholder(&like.spec());
        standing_for().get_or_insert_default().insert(address(tensor.node()), like.clone());
        self.placeholders.push(tensor.clone());
        tensor
    }

    /// The traced function's value and gradients at `arguments` (one per placeholder, in order):
    /// records the function and its derivative in the current graph.
    ///
    /// Gives `outputs` with the arguments in place of the placeholders, and the gradient of
    /// `outputs[0]` with respect to each of `wrt`, which are placeholders of this trace. An
    /// argument the output does not depend on gets zeros.
    ///
    /// Errors: [`Error::Transform`] if `outputs[0]` is no scalar or no float, or one of `wrt` is no
    /// float; [`Error::InvalidArgument`] for arguments that do not match the placeholders.
    pub fn gradients(
        &self,
        outputs: &[&Tensor],
        wrt: &[&Tensor],
        arguments: &[&Tensor],
    ) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let Some(output) = outputs.first() else {
            return Err(Error::InvalidArgument("grad: the function returned no tensor".into()));
        };
        outputs.iter().chain(arguments).try_for_each(|t| t.node().check())?;
        let substitution = self.substitution(arguments)?;
        let roots: Vec<&Tensor> = outputs.iter().chain(wrt).copied().collect();
        let traced = self.close(&roots);
        let id = |t: &Tensor| traced.ids[&Arc::as_ptr(t.node())];
        let wrt_ids: Vec<NodeId> = wrt.iter().map(|t| id(t)).collect();
        let mut graph = traced.graph.clone();
        graph.set_outputs(outputs.iter().map(|t| id(t)));
        let graph = girih_transform::gradients(&graph, id(output), &wrt_ids, None)?;
        let mut results = splice(&graph, &traced, &substitution, output.node().location());
        let gradients = results.split_off(outputs.len());
        Ok((results, gradients))
    }

    fn substitution(&self, arguments: &[&Tensor]) -> Result<FxHashMap<*const Node, Arc<Node>>> {
        if arguments.len() != self.placeholders.len() {
            return Err(Error::InvalidArgument(format!(
                "the traced function takes {} tensors, got {}",
                self.placeholders.len(),
                arguments.len()
            )));
        }
        for (placeholder, argument) in self.placeholders.iter().zip(arguments) {
            if placeholder.spec() != argument.spec() {
                return Err(Error::InvalidArgument(format!(
                    "the function was traced for {}, got {}",
                    placeholder.spec(),
                    argument.spec()
                )));
            }
        }
        let pairs = self.placeholders.iter().zip(arguments);
        Ok(pairs.map(|(p, a)| (Arc::as_ptr(p.node()), a.node().clone())).collect())
    }

    /// Cuts out what depends on the placeholders; all else stays outside and becomes inputs.
    fn close(&self, roots: &[&Tensor]) -> Traced {
        let own: FxHashSet<*const Node> =
            self.placeholders.iter().map(|p| Arc::as_ptr(p.node())).collect();
        let mut dependent: FxHashSet<*const Node> = own.clone();
        let order = ancestors(roots, |node| own.contains(&Arc::as_ptr(node)));
        for node in &order {
            let mut depends = false;
            node.state().for_each_input(|i| depends |= dependent.contains(&Arc::as_ptr(i)));
            if depends {
                dependent.insert(Arc::as_ptr(node));
            }
        }
        let mut graph = Graph::new();
        let mut ids: FxHashMap<*const Node, NodeId> = FxHashMap::default();
        let mut outside = FxHashMap::default();
        let mut leaf = |graph: &mut Graph, node: &Arc<Node>| {
            // Constants show their value, so that rules may simplify; they too stand for the
            // node outside, which says whether the value is part of the program.
            let op = if node.is_constant() { node.op() } else { OpCode::Input.into() };
            let id = graph.leaf(op, node.spec());
            outside.insert(id, node.clone());
            id
        };
        for node in &order {
            let address = Arc::as_ptr(node);
            if own.contains(&address) {
                ids.insert(address, leaf(&mut graph, node));
            } else if dependent.contains(&address) {
                // Collected first: an operand's own state is locked below.
                let mut operands: SmallVec<[Arc<Node>; 3]> = SmallVec::new();
                node.state().for_each_input(|operand| operands.push(operand.clone()));
                let id = |o: &Arc<Node>| {
                    *ids.entry(Arc::as_ptr(o)).or_insert_with(|| leaf(&mut graph, o))
                };
                let inputs: SmallVec<[NodeId; 3]> = operands.iter().map(id).collect();
                ids.insert(address, graph.push_unchecked(node.op(), &inputs, node.spec()));
            }
        }
        for root in roots {
            let node = root.node();
            ids.entry(Arc::as_ptr(node)).or_insert_with(|| leaf(&mut graph, node));
        }
        let mut lines = vec![Location::default(); graph.len()];
        for node in &order {
            if let Some(id) = ids.get(&Arc::as_ptr(node)) {
                lines[id.index()] = node.location();
            }
        }
        Traced { graph, ids, outside, lines }
    }
}

/// Records a closed graph that extends a traced one in the current context and gives its outputs.
/// Inputs are the tensors outside, or what is substituted for them. What was traced keeps the line
/// that recorded it; the rest is put down to `line`, unless a front end says better.
fn splice(
    graph: &Graph,
    traced: &Traced,
    substitution: &FxHashMap<*const Node, Arc<Node>>,
    line: Location,
) -> Vec<Tensor> {
    let line = Some(location::entered()).filter(|l| l.is_known()).unwrap_or(line);
    let live = graph.live();
    let mut tensors: Vec<Option<Tensor>> = vec![None; graph.len()];
    for (id, node) in graph.nodes().filter(|(id, _)| live[id.index()]) {
        let tensor = match traced.outside.get(&id) {
            Some(node) => {
                let node = substitution.get(&Arc::as_ptr(node)).unwrap_or(node);
                Tensor::from_node(node.clone())
            }
            None if node.inputs.is_empty() => {
                // A constant of a derivative's rule never varies.
                Tensor::with_state(node.op.clone(), &node.spec, State::Literal)
            }
            None => {
                let operand = |i: &NodeId| {
                    let tensor = tensors[i.index()].as_ref();
                    tensor.expect("operands of live nodes are live and come first").node().clone()
                };
                let inputs = node.inputs.iter().map(operand).collect();
                let line = traced.lines.get(id.index()).copied().unwrap_or(line);
                let state = State::with_inputs(line, inputs);
                Tensor::with_state(node.op.clone(), &node.spec, state)
            }
        };
        tensors[id.index()] = Some(tensor);
    }
    let output = |o: &NodeId| tensors[o.index()].clone().expect("outputs are live");
    graph.outputs().iter().map(output).collect()
}

/// A function that gives the value and the gradients of `f`, a function of some tensors that
/// returns a scalar: one gradient per argument. Nothing is computed until asked for.
///
/// ```
/// use girih::{Tensor, value_and_grad};
///
/// let f = value_and_grad(|x| x[0].mul(&x[0])?.sum(None, false));
/// let (value, gradients) = f(&[Tensor::from_slice(&[1.0f32, 2.0], [2])?])?;
/// assert_eq!(value.item::<f32>()?, 5.0);
/// assert_eq!(gradients[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), girih::Error>(())
/// ```
pub fn value_and_grad<F>(f: F) -> impl Fn(&[Tensor]) -> Result<(Tensor, Vec<Tensor>)>
where
    F: Fn(&[Tensor]) -> Result<Tensor>,
{
    move |arguments| {
        let mut trace = Trace::new();
        let placeholders: Vec<Tensor> = arguments.iter().map(|a| trace.placeholder(a)).collect();
        let output = f(&placeholders)?;
        let wrt: Vec<&Tensor> = placeholders.iter().collect();
        let arguments: Vec<&Tensor> = arguments.iter().collect();
        let (mut outputs, gradients) = trace.gradients(&[&output], &wrt, &arguments)?;
        Ok((outputs.swap_remove(0), gradients))
    }
}

/// A function that gives the gradients of `f`; see [`value_and_grad`].
pub fn grad<F>(f: F) -> impl Fn(&[Tensor]) -> Result<Vec<Tensor>>
where
    F: Fn(&[Tensor]) -> Result<Tensor>,
{
    let f = value_and_grad(f);
    move |arguments| Ok(f(arguments)?.1)
}

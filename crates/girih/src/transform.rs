//! Transforms of functions. A [`Trace`] calls the user's function once on placeholders, transforms
//! the recorded graph, and splices the result into the caller's graph, still lazy. Transforms
//! therefore nest, and can differentiate what other transforms recorded.

mod backward;
mod functions;
mod linear;

use crate::control::Start;
use crate::eval::placeholder;
use crate::outside::{Captures, Outside};
use crate::{Error, Result, Tensor};
use girih_ir::{Dim, Graph, GraphBuilder, NodeId, OpCode, TensorSpec};
use girih_record::location::{self, Location};
use girih_record::order::ancestors;
use girih_record::recorder::record_inferred;
use girih_record::{Node, Place, State, mesh, tape};
use girih_transform::BatchAxis;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use backward::Backward;
pub use functions::*;
pub use linear::Linear;

/// A function being traced, with its placeholders in order of creation.
#[derive(Default)]
pub struct Trace {
    placeholders: Vec<Tensor>,
    start: Start,
}

/// The behaviour of a function's random draws under `vmap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Randomness {
    /// Random draws are an error.
    #[default]
    Error,
    /// Each draw is the same for all members of the batch.
    Same,
    /// Each member of the batch has its own draws.
    Different,
}

/// The arguments that the placeholders of active traces stand for, by node. Reading a value that
/// depends on placeholders evaluates it for these arguments.
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
        // Drop the arguments outside the lock.
        drop(taken);
    }
}

fn address(node: &Arc<Node>) -> usize {
    Arc::as_ptr(node) as usize
}

fn is_placeholder(node: &Arc<Node>) -> bool {
    node.code() == OpCode::Input && matches!(*node.state(), State::Leaf)
}

impl Tensor {
    /// Whether the tensor depends on an argument of a function that is being traced.
    pub fn is_traced(&self) -> bool {
        ancestors(&[self], |_| false).iter().any(is_placeholder)
    }
}

/// A node with placeholders replaced by their arguments; `None` if a placeholder has no argument,
/// as in a function being compiled.
pub(crate) fn at_arguments(node: &Arc<Node>) -> Option<Arc<Node>> {
    let mut node = node.clone();
    // Arguments of an inner trace may depend on placeholders of an outer trace.
    loop {
        let order = ancestors(&[&node], |_| false);
        let mut now: FxHashMap<usize, Arc<Node>> = FxHashMap::default();
        for placeholder in order.iter().filter(|node| is_placeholder(node)) {
            let argument = standing_for().as_ref()?.get(&address(placeholder))?.clone();
            now.insert(address(placeholder), argument.node().clone());
        }
        if now.is_empty() {
            return Some(node);
        }
        node = replaced(&order, now, node)?;
    }
}

/// A node with some of its ancestors replaced; `order` contains the ancestors in topological order.
/// `None` if the node depends on no replaced node.
fn replaced(
    order: &[Arc<Node>],
    mut now: FxHashMap<usize, Arc<Node>>,
    target: Arc<Node>,
) -> Option<Arc<Node>> {
    for node in order {
        let mut inputs: SmallVec<[Arc<Node>; 3]> = SmallVec::new();
        node.state().for_each_input(|i| inputs.push(i.clone()));
        if !inputs.iter().any(|i| now.contains_key(&address(i))) {
            continue;
        }
        let new = inputs.iter().map(|i| now.get(&address(i)).unwrap_or(i).clone()).collect();
        let state = State::with_inputs(node.location(), new);
        now.insert(address(node), record_inferred(node.op(), &node.spec(), state));
    }
    now.get(&address(&target)).cloned()
}

/// The error of a rule that refers to a differentiated tensor, or to a member of the batch.
const REFERS: &str = "a rule refers to a tensor outside that is differentiated or batched; pass the \
                      tensor as an argument of the function";

/// The part of a recording that depends on placeholders, as a closed graph.
struct Traced {
    graph: Graph,
    ids: FxHashMap<*const Node, NodeId>,
    /// The recorded node of each input of the graph.
    outside: FxHashMap<NodeId, Arc<Node>>,
    /// The line that recorded each node of the graph.
    lines: Vec<Location>,
    /// Random draws of the function that are inputs of the graph.
    draws: Vec<Arc<Node>>,
}

impl Traced {
    /// The ids of these tensors' nodes.
    fn of(&self, tensors: &[&Tensor]) -> Vec<NodeId> {
        tensors.iter().map(|t| self.ids[&Arc::as_ptr(t.node())]).collect()
    }
}

/// The place of one member of a batch along the leading dimension.
fn member_place(batch: Place) -> Place {
    let Some(placement) = batch.sharding() else { return batch };
    let sharding = placement.sharding().without_leading_dimension();
    mesh::placed(&sharding).map_or(batch, Place::sharded)
}

impl Trace {
    /// A trace without placeholders.
    pub fn new() -> Trace {
        Trace::default()
    }

    /// A new argument with `like`'s shape and dtype. It has no value; ops on it are recorded.
    pub fn placeholder(&mut self, like: &Tensor) -> Tensor {
        let tensor = placeholder(&like.spec());
        tensor.node().set_place(like.node().place());
        standing_for().get_or_insert_default().insert(address(tensor.node()), like.clone());
        self.placeholders.push(tensor.clone());
        tensor
    }

    /// The traced function's value and gradients for `arguments` (one per placeholder, in order):
    /// records the function and its derivative in the current graph.
    ///
    /// Returns `outputs` for the arguments, and the gradient of `outputs[0]` with respect to each
    /// of `wrt`, which must be placeholders of this trace. The gradient is zero if the output does
    /// not depend on the argument.
    ///
    /// Errors: [`Error::Transform`] if `outputs[0]` is not a floating-point scalar, or one of `wrt`
    /// is not a float; [`Error::InvalidArgument`] for arguments that do not match the placeholders.
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
        tape::count_gradients();
        let substitution = self.substitution(arguments)?;
        let traced = self.traced(outputs, wrt, false);
        let captures = Captures::begin();
        let graph = girih_transform::gradients(
            &traced.graph,
            traced.graph.outputs()[0],
            &traced.of(wrt),
            None,
        )?;
        let outside = self.outside(&captures, &substitution, wrt)?;
        let splice = Splice::new(&traced, &substitution, output.node().location());
        let splice = Splice { put: outside, ..splice };
        let mut results = splice.outputs(&graph);
        let gradients = results.split_off(outputs.len());
        let gradients =
            gradients.iter().zip(wrt).map(|(gradient, like)| gradient.placed_like(like));
        let gradients = gradients.collect::<Result<_>>()?;
        Ok((results, gradients))
    }

    /// The traced function for `arguments`, and its derivative along `tangents` of `wrt`, which
    /// must be placeholders of this trace: `outputs`, and the tangent of each output, which is zero
    /// if the output does not depend on `wrt`.
    ///
    /// Errors: as [`Trace::gradients`]; [`Error::InvalidArgument`] for tangents whose specs differ
    /// from those of `wrt`.
    pub fn jvp(
        &self,
        outputs: &[&Tensor],
        wrt: &[&Tensor],
        arguments: &[&Tensor],
        tangents: &[&Tensor],
    ) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        outputs.iter().chain(arguments).chain(tangents).try_for_each(|t| t.node().check())?;
        let substitution = self.substitution(arguments)?;
        linear::check("jvp", "tangent", wrt.iter().map(|t| t.spec()), tangents)?;
        let traced = self.traced(outputs, wrt, false);
        let captures = Captures::begin();
        let new = girih_transform::jvp(&traced.graph, &traced.of(wrt))?;
        let outside = self.outside(&captures, &substitution, wrt)?;
        let mut splice = Splice::new(&traced, &substitution, line_of(outputs)).moved(&new.map);
        splice.put = outside;
        for (&id, tangent) in new.added.iter().zip(tangents) {
            splice.outside.insert(id, tangent.node().clone());
        }
        let mut results = splice.outputs(&new.graph);
        let tangents = results.split_off(outputs.len());
        Ok((results, tangents))
    }

    /// The traced function for `arguments`, and the linear map of tangents of `wrt`, which must be
    /// placeholders of this trace, to tangents of `outputs`. The map holds the residuals of the
    /// function that it needs, which are recorded once.
    ///
    /// Errors: as [`Trace::gradients`].
    pub fn linearize(
        &self,
        outputs: &[&Tensor],
        wrt: &[&Tensor],
        arguments: &[&Tensor],
    ) -> Result<(Vec<Tensor>, Linear)> {
        outputs.iter().chain(arguments).try_for_each(|t| t.node().check())?;
        let substitution = self.substitution(arguments)?;
        let traced = self.traced(outputs, wrt, false);
        let captures = Captures::begin();
        let new = girih_transform::linearize(&traced.graph, &traced.of(wrt))?;
        let outside = self.outside(&captures, &substitution, wrt)?;
        let splice = Splice::new(&traced, &substitution, line_of(outputs)).moved(&new.map);
        let splice = Splice { put: outside, ..splice };
        Ok(splice.linear("linearize", new.graph, new.added, outputs.len()))
    }

    /// The traced function for `arguments`, and the linear map of cotangents of `outputs` to
    /// cotangents of `wrt`, which must be placeholders of this trace; as [`Trace::linearize`].
    ///
    /// Errors: as [`Trace::gradients`].
    pub fn vjp(
        &self,
        outputs: &[&Tensor],
        wrt: &[&Tensor],
        arguments: &[&Tensor],
    ) -> Result<(Vec<Tensor>, Linear)> {
        outputs.iter().chain(arguments).try_for_each(|t| t.node().check())?;
        tape::count_gradients();
        let substitution = self.substitution(arguments)?;
        let traced = self.traced(outputs, wrt, false);
        let mut b = GraphBuilder::from_graph(traced.graph.clone());
        let outs = traced.graph.outputs();
        let cotangents: Vec<NodeId> =
            outs.iter().map(|&o| b.input(traced.graph.spec(o).clone())).collect();
        let graph = b.finish(outs.iter().copied());
        let captures = Captures::begin();
        let graph = girih_transform::vjp(&graph, outs, &cotangents, &traced.of(wrt))?;
        let outside = self.outside(&captures, &substitution, wrt)?;
        let splice = Splice::new(&traced, &substitution, line_of(outputs));
        let splice = Splice { put: outside, ..splice };
        Ok(splice.linear("vjp", graph, cotangents, outputs.len()))
    }

    /// The transpose of the traced function, which must be linear, up to added constants, in `wrt`,
    /// placeholders of this trace: the linear map of cotangents of `outputs` to cotangents of
    /// `wrt`.
    ///
    /// Errors: [`Error::InvalidArgument`] with the first op that is not linear, and its line; as
    /// [`Trace::gradients`].
    pub fn linear_transpose(
        &self,
        outputs: &[&Tensor],
        wrt: &[&Tensor],
        arguments: &[&Tensor],
    ) -> Result<Linear> {
        outputs.iter().try_for_each(|t| t.node().check())?;
        let traced = self.traced(outputs, wrt, false);
        girih_transform::check_linear(&traced.graph, &traced.of(wrt)).map_err(|error| {
            let line = traced.lines[error.node.index()];
            let at = if line.is_known() { format!(" at {line}") } else { String::new() };
            Error::InvalidArgument(format!(
                "linear_transpose: the function is not linear in its arguments: {error}{at}; vjp gives \
                 the transpose of its derivative at a point"
            ))
        })?;
        Ok(self.vjp(outputs, wrt, arguments)?.1)
    }

    /// Batches the traced function. Marked arguments have an additional leading axis, and so do
    /// results returned with a mark.
    ///
    /// `axis` is the size of the batch, and the name that collectives of the function use for it
    /// ([`Trace::bind_axis`]). `randomness` determines how random draws of the function are
    /// batched.
    ///
    /// Errors: [`Error::InvalidArgument`] for arguments that do not fit the placeholders, and for
    /// random draws with [`Randomness::Error`]; [`Error::Transform`].
    pub fn vmap(
        &self,
        outputs: &[&Tensor],
        arguments: &[&Tensor],
        marks: &[bool],
        axis: BatchAxis<'_>,
        randomness: Randomness,
    ) -> Result<Vec<(Tensor, bool)>> {
        let size = axis.size;
        outputs.iter().chain(arguments).try_for_each(|t| t.node().check())?;
        let mut substitution = self.on_batch(arguments, marks, size)?;
        let traced = self.traced(outputs, &[], randomness != Randomness::Same);
        if let (Randomness::Error, Some(draw)) = (randomness, traced.draws.first()) {
            return Err(Error::InvalidArgument(format!(
                "vmap: the function draws random numbers ({}); pass randomness='same' for one draw \
                 for the whole batch or 'different' for one each, or draw by keys of gr.random",
                draw.code().def().name
            )));
        }
        for draw in &traced.draws {
            let spec = draw.spec();
            let shape = std::iter::once(size).chain(spec.shape.dims()).collect();
            let batch = crate::random::leaf("vmap", draw.code(), shape, spec.dtype)?;
            substitution.insert(Arc::as_ptr(draw), batch.node().clone());
        }
        let own = self.placeholders.iter().zip(marks).filter(|(_, mark)| **mark);
        let members: Vec<&Tensor> = own.clone().map(|(p, _)| p).collect();
        let batched: FxHashSet<*const Node> = own
            .map(|(p, _)| Arc::as_ptr(p.node()))
            .chain(traced.draws.iter().map(Arc::as_ptr))
            .collect();
        let marks: Vec<bool> = traced
            .graph
            .arguments()
            .map(|id| batched.contains(&Arc::as_ptr(&traced.outside[&id])))
            .collect();
        let captures = Captures::begin();
        let (new, marks) = girih_transform::vmap(&traced.graph, &marks, axis)?;
        let outside = self.outside(&captures, &substitution, &members)?;
        let splice = Splice::new(&traced, &substitution, line_of(outputs)).moved(&new.map);
        let splice = Splice { put: outside, ..splice };
        Ok(splice.outputs(&new.graph).into_iter().zip(marks).collect())
    }

    /// A new argument for one member of `like`'s batch: with `like`'s shape without its leading
    /// axis.
    pub fn member(&mut self, like: &Tensor) -> Tensor {
        let spec = like.spec();
        let shape = spec.shape.part(1..);
        let tensor = placeholder(&TensorSpec { shape, dtype: spec.dtype });
        tensor.node().set_place(member_place(like.node().place()));
        self.placeholders.push(tensor.clone());
        tensor
    }

    fn on_batch(
        &self,
        arguments: &[&Tensor],
        marks: &[bool],
        size: Dim,
    ) -> Result<FxHashMap<*const Node, Arc<Node>>> {
        self.check_count(arguments.len())?;
        for ((placeholder, argument), &mark) in self.placeholders.iter().zip(arguments).zip(marks) {
            let mut expected = placeholder.spec();
            if mark {
                expected.shape = std::iter::once(size).chain(expected.shape.dims()).collect();
            }
            if !expected.equals(&argument.spec()) {
                return Err(Error::InvalidArgument(format!(
                    "vmap: the function takes {expected} with its batch, got {}",
                    argument.spec()
                )));
            }
        }
        Ok(self.paired(arguments))
    }

    fn substitution(&self, arguments: &[&Tensor]) -> Result<FxHashMap<*const Node, Arc<Node>>> {
        self.check_count(arguments.len())?;
        for (placeholder, argument) in self.placeholders.iter().zip(arguments) {
            if placeholder.spec() != argument.spec() {
                return Err(Error::InvalidArgument(format!(
                    "the function was traced for {}, got {}",
                    placeholder.spec(),
                    argument.spec()
                )));
            }
        }
        Ok(self.paired(arguments))
    }

    fn check_count(&self, found: usize) -> Result<()> {
        let expected = self.placeholders.len();
        if found == expected {
            return Ok(());
        }
        let reason = format!("the traced function takes {expected} tensors, got {found}");
        Err(Error::InvalidArgument(reason))
    }

    fn paired(&self, arguments: &[&Tensor]) -> FxHashMap<*const Node, Arc<Node>> {
        let pairs = self.placeholders.iter().zip(arguments);
        pairs.map(|(p, a)| (Arc::as_ptr(p.node()), a.node().clone())).collect()
    }

    /// The tensors that rules refer to, with placeholders of this trace replaced by arguments.
    ///
    /// Errors: [`Error::InvalidArgument`] for a tensor that depends on one of the placeholders
    /// `vary`.
    fn outside(
        &self,
        captures: &Captures,
        substitution: &FxHashMap<*const Node, Arc<Node>>,
        vary: &[&Tensor],
    ) -> Result<Outside> {
        let mut tensors = captures.tensors();
        for tensor in tensors.values_mut() {
            let order = ancestors(&[&*tensor], |_| false);
            if order.iter().any(|node| vary.iter().any(|t| Arc::ptr_eq(t.node(), node))) {
                return Err(Error::InvalidArgument(REFERS.into()));
            }
            let own = order.iter().filter_map(|node| {
                Some((address(node), substitution.get(&Arc::as_ptr(node))?.clone()))
            });
            let own: FxHashMap<usize, Arc<Node>> = own.collect();
            if let Some(there) = replaced(&order, own, tensor.node().clone()) {
                *tensor = Tensor::from_node(there);
            }
        }
        Ok(Outside::new(tensors))
    }

    /// The part of the recording from the placeholders to `outputs`, which become the graph's
    /// outputs.
    fn traced(&self, outputs: &[&Tensor], wrt: &[&Tensor], draws: bool) -> Traced {
        let roots: Vec<&Tensor> = outputs.iter().chain(wrt).copied().collect();
        let mut traced = self.close(&roots, draws);
        let outputs = traced.of(outputs);
        traced.graph.set_outputs(outputs);
        traced
    }

    /// Cuts out the nodes that depend on the placeholders, or with `draws` on random draws of the
    /// function; all other nodes become inputs.
    fn close(&self, roots: &[&Tensor], draws: bool) -> Traced {
        let mut own: FxHashSet<*const Node> =
            self.placeholders.iter().map(|p| Arc::as_ptr(p.node())).collect();
        let order = ancestors(roots, |node| own.contains(&Arc::as_ptr(node)));
        let drawn = |node: &&Arc<Node>| draws && self.start.draws(node);
        let draws: Vec<Arc<Node>> = order.iter().filter(drawn).cloned().collect();
        own.extend(draws.iter().map(Arc::as_ptr));
        let mut dependent: FxHashSet<*const Node> = own.clone();
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
            // Constants keep their value, so that rules may simplify. They are also mapped to the
            // recorded node, which determines whether the value is part of the program.
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
                // Collect the operands first, because `leaf` locks an operand's state.
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
        Traced { graph, ids, outside, lines, draws }
    }
}

/// The line that recorded the first output.
fn line_of(outputs: &[&Tensor]) -> Location {
    outputs.first().map_or_else(Location::default, |t| t.node().location())
}

/// Records a transformed graph in the current context. Inputs are replaced by the recorded nodes or
/// their substitutes. Traced nodes keep their lines; other nodes are attributed to one line, unless
/// a front end has entered a line.
struct Splice {
    outside: FxHashMap<NodeId, Arc<Node>>,
    /// The tensors that rules refer to.
    put: Outside,
    lines: Vec<Location>,
    line: Location,
}

impl Splice {
    /// A splice for a graph that extends the traced one.
    fn new(
        traced: &Traced,
        substitution: &FxHashMap<*const Node, Arc<Node>>,
        line: Location,
    ) -> Splice {
        let line = Some(location::entered()).filter(|l| l.is_known()).unwrap_or(line);
        let there = |node: &Arc<Node>| substitution.get(&Arc::as_ptr(node)).unwrap_or(node).clone();
        let outside = traced.outside.iter().map(|(&id, node)| (id, there(node))).collect();
        Splice { outside, put: Outside::default(), lines: traced.lines.clone(), line }
    }

    /// The splice for a graph whose nodes have other ids.
    fn moved(self, map: &[NodeId]) -> Splice {
        let kept = || map.iter().filter(|id| **id != girih_transform::DEAD);
        let len = kept().map(|id| id.index() + 1).max().unwrap_or(0);
        let mut lines = vec![Location::default(); len];
        for (line, id) in self.lines.iter().zip(map) {
            if let Some(at) = lines.get_mut(id.index()) {
                *at = *line;
            }
        }
        let outside = self.outside.into_iter().map(|(id, node)| (map[id.index()], node)).collect();
        Splice { outside, put: self.put, lines, line: self.line }
    }

    /// Records one node.
    fn tensor<'a>(
        &self,
        graph: &Graph,
        id: NodeId,
        operand: impl Fn(NodeId) -> &'a Tensor,
    ) -> Tensor {
        let node = graph.node(id);
        if let Some(node) = self.outside.get(&id) {
            return Tensor::from_node(node.clone());
        }
        if let Some(node) = self.put.leaf(graph, id) {
            return Tensor::from_node(node);
        }
        if node.inputs.is_empty() {
            // A constant in a derivative's rule never changes, so make it a literal.
            return Tensor::with_state(node.op.clone(), &node.spec, State::Literal);
        }
        let inputs = node.inputs.iter().map(|&i| operand(i).node().clone());
        let line = self.lines.get(id.index()).copied().filter(|l| l.is_known());
        let line = line.unwrap_or(self.line);
        let (op, inputs) = match self.put.op(graph, id) {
            Some((op, more)) => (op, inputs.chain(more).collect()),
            None => (node.op.clone(), inputs.collect()),
        };
        Tensor::with_state(op, &node.spec, State::with_inputs(line, inputs))
    }

    /// Records the nodes that the outputs need, and returns the outputs.
    fn outputs(&self, graph: &Graph) -> Vec<Tensor> {
        let live = graph.live();
        let mut tensors: Vec<Option<Tensor>> = vec![None; graph.len()];
        for id in graph.ids().filter(|id| live[id.index()]) {
            let tensor = self.tensor(graph, id, |i| {
                tensors[i.index()].as_ref().expect("operands of live nodes are live and come first")
            });
            tensors[id.index()] = Some(tensor);
        }
        let output = |o: &NodeId| tensors[o.index()].clone().expect("outputs are live");
        graph.outputs().iter().map(output).collect()
    }
}

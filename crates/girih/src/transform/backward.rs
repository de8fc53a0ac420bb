//! `backward`: gradients along the tape, in the imperative style of PyTorch.

use super::{Splice, Traced};
use crate::outside::{Captures, Outside};
use crate::{Error, Result, Tensor, no_grad};
use girih_ir::{Graph, GraphBuilder, Literal, NodeId, OpCode};
use girih_record::node::Node;
use girih_record::tape::{self, Notes, Step};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// Options of [`Tensor::backward_with`].
#[derive(Clone, Copy, Default)]
pub struct Backward<'a> {
    /// The weight of each element of the tensor: the gradient is that of the weighted sum. A scalar
    /// needs none.
    pub cotangent: Option<&'a Tensor>,
    /// Whether the tape keeps its steps for another call.
    pub retain: bool,
    /// Whether the gradients can be differentiated again.
    pub create: bool,
}

impl Tensor {
    /// Accumulates the gradients of this tensor in its leaves, the tensors with
    /// [`Tensor::set_requires_grad`]: see [`Tensor::grad`]. The gradients are recorded lazily and
    /// computed when their values are needed.
    ///
    /// The tensor is a scalar; [`Tensor::backward_with`] takes others, with a cotangent.
    ///
    /// This also works after the tensor, or its operands, have been evaluated.
    ///
    /// Errors: [`Error::InvalidArgument`] for a tensor that does not require a gradient, a missing
    /// cotangent of a tensor that is not a scalar, a cotangent of another spec, and steps of the
    /// tape that an earlier call has released; [`Error::Transform`] for an op without a derivative;
    /// those of hooks.
    ///
    /// ```
    /// use girih::Tensor;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    /// x.set_requires_grad(true)?;
    /// x.mul(&x)?.sum_all()?.backward()?;
    /// assert_eq!(x.grad().expect("it is a leaf").to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    pub fn backward(&self) -> Result<()> {
        self.backward_with(Backward::default())
    }

    /// [`Tensor::backward`] with a cotangent, or for another call or derivative afterwards.
    ///
    /// Errors: as [`Tensor::backward`].
    pub fn backward_with(&self, options: Backward<'_>) -> Result<()> {
        let Backward { cotangent, retain, create } = options;
        let cotangent = self.seed(cotangent)?;
        let walk = TapeWalk::of(self)?;
        let given = || walk.gradients(self, cotangent);
        let given = if create { given()? } else { no_grad(given)? };
        for (node, gradient) in given {
            let old = Tensor::from_node(node.clone()).grad();
            let of = Tensor::from_node(node.clone());
            let sum = || {
                let sum = old.as_ref().map_or(Ok(gradient.clone()), |old| old.add(&gradient));
                sum?.placed_like(&of)
            };
            let sum = if create { sum()? } else { no_grad(sum)? };
            let before = tape::with_notes(&node, |notes| notes.grad.replace(sum.node().clone()));
            drop(before);
        }
        tape::add_root(self.node());
        if !retain && !create {
            tape::release(walk.nodes.iter().map(|(node, _)| node));
        }
        Ok(())
    }

    /// The cotangent of the tensor itself.
    fn seed(&self, cotangent: Option<&Tensor>) -> Result<Tensor> {
        self.node().check()?;
        if !self.requires_grad() {
            return Err(Error::InvalidArgument(format!(
                "backward: {} requires no gradient; call requires_grad_() on the tensors to \
                 differentiate by, or on the model, before it is computed from them, or make an \
                 optimiser with the model's parameters. Results of compiled functions that take \
                 gradients themselves, and what is recorded under no_grad, require none",
                self.spec()
            )));
        }
        match cotangent {
            Some(cotangent) if cotangent.spec() == self.spec() => Ok(cotangent.clone()),
            Some(cotangent) => Err(Error::InvalidArgument(format!(
                "backward: the gradient given is {}; expected {}, as the tensor",
                cotangent.spec(),
                self.spec()
            ))),
            None if self.shape().rank() == 0 => {
                Ok(Tensor::constant(Literal::from_i64(self.dtype(), 1), Default::default()))
            }
            None => Err(Error::InvalidArgument(format!(
                "backward: the tensor has shape {}; a gradient is of a scalar, so reduce it (sum, \
                 mean) or give a gradient of that shape",
                self.shape()
            ))),
        }
    }
}

/// The tracked ancestors of a tensor, operands first, and their gradient states.
struct TapeWalk {
    nodes: Vec<(Arc<Node>, Step)>,
    notes: FxHashMap<*const Node, Notes>,
}

impl TapeWalk {
    fn of(output: &Tensor) -> Result<TapeWalk> {
        let mut walk = TapeWalk { nodes: Vec::new(), notes: FxHashMap::default() };
        let mut seen: FxHashSet<*const Node> = FxHashSet::default();
        // A node is visited again after its operands are done.
        let mut stack = vec![(output.node().clone(), None::<Step>)];
        while let Some((node, step)) = stack.pop() {
            if let Some(step) = step {
                walk.nodes.push((node, step));
                continue;
            }
            if !seen.insert(Arc::as_ptr(&node)) {
                continue;
            }
            let notes = tape::notes(&node);
            let leaf = notes.as_ref().is_some_and(|n| n.leaf);
            let step = match tape::step(&node) {
                Some(step) if !leaf => step,
                None if !leaf => return Err(Error::InvalidArgument(USED_UP.into())),
                _ => Step::default(),
            };
            if notes.as_ref().is_some_and(|n| n.replaced) {
                return Err(Error::InvalidArgument(REPLACED.into()));
            }
            if let Some(notes) = notes {
                walk.notes.insert(Arc::as_ptr(&node), notes);
            }
            stack.push((node, Some(step.clone())));
            stack.extend(step.operands.into_iter().filter(|i| i.is_tracked()).map(|i| (i, None)));
        }
        Ok(walk)
    }

    fn notes(&self, node: &Arc<Node>) -> Option<&Notes> {
        self.notes.get(&Arc::as_ptr(node))
    }

    /// The gradients of leaves and of nodes that retain their gradients. A node whose gradient is
    /// observed has two nodes in the graph: its computed value, and an input for its users. The
    /// cotangent of the input is therefore complete before it becomes the cotangent of the value.
    fn gradients(&self, output: &Tensor, seed: Tensor) -> Result<Vec<(Arc<Node>, Tensor)>> {
        let mut parts = Parts::default();
        for (node, step) in &self.nodes {
            parts.add(node, step, self.notes(node));
        }
        let out = parts.ids[&Arc::as_ptr(output.node())];
        let Parts { graph, outside, looked, .. } = parts;
        let mut b = GraphBuilder::from_graph(graph);
        let mut outputs = vec![out];
        outputs.extend(looked.iter().filter_map(|l| l.value));
        let cotangents: Vec<NodeId> = outputs.iter().map(|&o| b.input(b.spec(o).clone())).collect();
        let wrt: Vec<NodeId> = looked.iter().map(|l| l.input).collect();
        tape::count_gradients();
        let captures = Captures::begin();
        let graph = girih_transform::vjp(&b.finish([]), &outputs, &cotangents, &wrt)?;
        let traced = Traced {
            graph: Graph::new(),
            ids: FxHashMap::default(),
            outside,
            lines: Vec::new(),
            draws: Vec::new(),
        };
        let splice = Splice::new(&traced, &FxHashMap::default(), output.node().location());
        let splice = Splice { put: Outside::new(captures.tensors()), ..splice };
        let mut recorder = Recorder { splice, graph, tensors: FxHashMap::default() };
        recorder.tensors.insert(cotangents[0], seed);
        let mut given = Vec::new();
        // In reverse order: the users of a node come later in the graph, so their cotangents are
        // complete.
        let mut place = cotangents.len();
        let ends: Vec<NodeId> = recorder.graph.outputs().to_vec();
        for (look, end) in looked.iter().zip(ends).rev() {
            let mut gradient = recorder.tensor(end);
            for (_, hook) in self.notes(&look.node).iter().flat_map(|notes| &notes.hooks) {
                if let Some(other) = hook(gradient.node())? {
                    gradient = self.fitting(&look.node, Tensor::from_node(other))?;
                }
            }
            if look.value.is_some() {
                place -= 1;
                recorder.tensors.insert(cotangents[place], gradient.clone());
            }
            if self.notes(&look.node).is_some_and(|n| n.leaf || n.retains) {
                given.push((look.node.clone(), gradient));
            }
        }
        Ok(given)
    }

    fn fitting(&self, node: &Arc<Node>, gradient: Tensor) -> Result<Tensor> {
        if gradient.spec() == node.spec() {
            return Ok(gradient);
        }
        Err(Error::InvalidArgument(format!(
            "register_hook: the hook gave {}; expected {}, as the gradient it was given, or nothing",
            gradient.spec(),
            node.spec()
        )))
    }
}

const USED_UP: &str = "backward: an earlier call of backward has used up how this tensor came about; \
                       pass retain_graph=True to the earlier call, or compute the tensor again";

const REPLACED: &str = "backward: a tensor that requires a gradient has another value now than when \
                        this one was computed from it (an optimiser's step or an assignment in \
                        between); call backward before, or compute the loss again";

/// A node whose gradient is observed.
struct Look {
    node: Arc<Node>,
    /// The input for the node's users.
    input: NodeId,
    /// The node of the graph that computes its value; `None` for a leaf.
    value: Option<NodeId>,
}

/// The closed graph of a walk.
#[derive(Default)]
struct Parts {
    graph: Graph,
    /// For each recorded node, the node of the graph that its users refer to.
    ids: FxHashMap<*const Node, NodeId>,
    outside: FxHashMap<NodeId, Arc<Node>>,
    looked: Vec<Look>,
}

impl Parts {
    fn leaf(&mut self, node: &Arc<Node>) -> NodeId {
        // Rules may use the values of constants.
        let op = if node.is_constant() { node.op() } else { OpCode::Input.into() };
        let id = self.graph.leaf(op, node.spec());
        self.outside.insert(id, node.clone());
        id
    }

    fn add(&mut self, node: &Arc<Node>, step: &Step, notes: Option<&Notes>) {
        let looked = notes.is_some_and(|n| n.leaf || n.retains || !n.hooks.is_empty());
        let mut value = None;
        if !step.operands.is_empty() {
            let inputs: SmallVec<[NodeId; 3]> =
                step.operands.iter().map(|operand| self.operand(operand)).collect();
            // A second node for the same result of a call with an effect would be another call.
            for result in std::iter::once(node).chain(step.results.iter()) {
                self.ids.entry(Arc::as_ptr(result)).or_insert_with(|| {
                    let id = self.graph.push_unchecked(result.op(), &inputs, result.spec());
                    self.outside.insert(id, result.clone());
                    id
                });
            }
            value = Some(self.ids[&Arc::as_ptr(node)]);
        }
        if looked || value.is_none() {
            let input = self.leaf(node);
            self.ids.insert(Arc::as_ptr(node), input);
            self.looked.push(Look { node: node.clone(), input, value });
        }
    }

    fn operand(&mut self, node: &Arc<Node>) -> NodeId {
        match self.ids.get(&Arc::as_ptr(node)) {
            Some(&id) => id,
            None => {
                let id = self.leaf(node);
                self.ids.insert(Arc::as_ptr(node), id);
                id
            }
        }
    }
}

/// Records nodes of a graph on demand.
struct Recorder {
    splice: Splice,
    graph: Graph,
    tensors: FxHashMap<NodeId, Tensor>,
}

impl Recorder {
    /// Records a node and its ancestors; inputs must be in `splice.outside` or `tensors`.
    fn tensor(&mut self, end: NodeId) -> Tensor {
        let mut needed: FxHashSet<NodeId> = FxHashSet::default();
        let mut stack = vec![end];
        while let Some(id) = stack.pop() {
            if self.tensors.contains_key(&id) || !needed.insert(id) {
                continue;
            }
            if !self.splice.outside.contains_key(&id) {
                stack.extend(&self.graph.node(id).inputs);
            }
        }
        let mut order: Vec<NodeId> = needed.into_iter().collect();
        order.sort_unstable();
        for id in order {
            let tensor = self.splice.tensor(&self.graph, id, |i| &self.tensors[&i]);
            self.tensors.insert(id, tensor);
        }
        self.tensors[&end].clone()
    }
}

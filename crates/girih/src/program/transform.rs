//! Transforms of programs: derivatives and batching, as for closures. Each method returns another
//! program with the same held values, and runs nothing.

use super::Program;
use crate::outside::Captures;
use crate::{Error, Result, Tensor};
use girih_ir::dim::Guards;
use girih_ir::{Dim, Graph, GraphBuilder, NodeId, OpCode, Shape, TensorSpec};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

impl Program {
    /// The program that computes the gradients of the first output, a scalar, with respect to the
    /// nodes `wrt`: inputs ([`super::Input::id`]), held parameters, or intermediate values. It has
    /// one output per node, of the node's shape and dtype; the output is zero if the scalar does
    /// not depend on the node. The inputs are those of this program.
    ///
    /// ```
    /// use girih::{Program, Tensor};
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    /// let program = Program::capture(&[&x.mul(&x)?.sum_all()?], &[&x])?;
    /// let gradient = program.grad(&[program.inputs()[0].id])?;
    /// assert_eq!(gradient.call(&[&x])?[0].to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: [`Error::InvalidArgument`] for a program without outputs; [`Error::Transform`] if
    /// the first output is not a floating-point scalar, for a node that does not exist or is not a
    /// float, and for an op without a derivative.
    pub fn grad(&self, wrt: &[NodeId]) -> Result<Program> {
        let mut program = self.value_and_grad(wrt)?;
        let gradients = program.graph.outputs()[self.graph.outputs().len()..].to_vec();
        program.graph.set_outputs(gradients);
        Ok(program)
    }

    /// As [`Program::grad`], with this program's outputs in front of the gradients.
    ///
    /// Errors: as [`Program::grad`].
    pub fn value_and_grad(&self, wrt: &[NodeId]) -> Result<Program> {
        let Some(&output) = self.graph.outputs().first() else {
            return Err(Error::InvalidArgument("grad: the program has no output".into()));
        };
        self.guarded(|| {
            let graph = girih_transform::gradients(&self.graph, output, wrt, None)?;
            Ok(self.with_graph(graph))
        })
    }

    /// Forward mode: the program that computes the outputs, then a tangent for each output. It
    /// takes this program's inputs, then a tangent for each of the nodes `wrt`, of the node's shape
    /// and dtype.
    ///
    /// ```
    /// use girih::{Program, Tensor};
    ///
    /// let (x, v) = (Tensor::from_slice(&[2.0f32], [])?, Tensor::from_slice(&[1.0f32], [])?);
    /// let program = Program::capture(&[&x.mul(&x)?], &[&x])?;
    /// let results = program.jvp(&[program.inputs()[0].id])?.call(&[&x, &v])?;
    /// assert_eq!((results[0].item::<f32>()?, results[1].item::<f32>()?), (4.0, 4.0));
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: [`Error::Transform`] for a node that does not exist or is not a float, and for an op
    /// without a derivative.
    pub fn jvp(&self, wrt: &[NodeId]) -> Result<Program> {
        self.guarded(|| {
            let new = girih_transform::jvp(&self.graph, wrt)?;
            Ok(self.moved(new.graph, |id| Some(new.map[id.index()])))
        })
    }

    /// Reverse mode: the program that computes the outputs, then a cotangent for each of the nodes
    /// `wrt`. It takes this program's inputs, then a cotangent for each output, of its shape and
    /// dtype; cotangents of integer outputs are ignored.
    ///
    /// ```
    /// use girih::{Program, Tensor};
    ///
    /// let x = Tensor::from_slice(&[2.0f32, 3.0], [2])?;
    /// let ct = Tensor::from_slice(&[1.0f32, 10.0], [2])?;
    /// let program = Program::capture(&[&x.mul(&x)?], &[&x])?;
    /// let results = program.vjp(&[program.inputs()[0].id])?.call(&[&x, &ct])?;
    /// assert_eq!(results[1].to_vec::<f32>()?, [4.0, 60.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: as [`Program::jvp`].
    pub fn vjp(&self, wrt: &[NodeId]) -> Result<Program> {
        self.guarded(|| {
            let outputs = self.graph.outputs();
            let mut b = GraphBuilder::from_graph(self.graph.clone());
            let input = |&o: &NodeId| b.input(self.graph.spec(o).clone());
            let cotangents: Vec<NodeId> = outputs.iter().map(input).collect();
            let graph = b.finish(outputs.iter().copied());
            let graph = girih_transform::vjp(&graph, outputs, &cotangents, wrt)?;
            Ok(self.with_graph(graph))
        })
    }

    /// The program for a batch of size `size`: a call computes this program for each member.
    /// `in_axes` has the batch axis of each input, `None` for an unbatched input; `out_axes` has
    /// the batch axis of each output. Values that the program holds, including draws, are the same
    /// for all members. A symbolic size makes a program for batches of any size.
    ///
    /// ```
    /// use girih::{Dim, Program, Tensor};
    ///
    /// let (x, w) = (Tensor::from_slice(&[1.0f32, 2.0], [2])?, Tensor::from_slice(&[3.0f32, 5.0], [2])?);
    /// let program = Program::capture(&[&x.mul(&w)?.sum_all()?], &[&x, &w])?;
    /// let batched = program.vmap(Dim::symbol("batch", 3, 1, None), &[Some(1), None], &[0])?;
    /// for size in [1, 3] {
    ///     let batch = Tensor::ones([2, size], girih::DType::F32)?;
    ///     assert_eq!(batched.call(&[&batch, &w])?[0].to_vec::<f32>()?, vec![8.0; size]);
    /// }
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: [`Error::InvalidArgument`] for a wrong number of axes, an axis out of range, a batch
    /// axis of a run-time constant, no batch axis at all, and a program that draws random numbers
    /// at each call; [`Error::Transform`] for values whose rank would be too high.
    pub fn vmap(
        &self,
        size: impl Into<Dim>,
        in_axes: &[Option<usize>],
        out_axes: &[usize],
    ) -> Result<Program> {
        let size = size.into();
        let axes = self.batch_axes(in_axes, out_axes)?;
        self.guarded(|| {
            let marks: Vec<bool> = axes.iter().map(Option::is_some).collect();
            let (new, marks) = girih_transform::vmap(&self.graph, &marks, size)?;
            let mut b = GraphBuilder::default();
            let (mut leaves, mut fronts) = (Vec::new(), Vec::new());
            for (id, axis) in new.graph.arguments().zip(&axes) {
                let node = new.graph.node(id);
                let to = axis.unwrap_or(0);
                let order = moved_axis(node.spec.shape.rank(), 0, to);
                let shape: Shape = order.iter().map(|&i| node.spec.shape.dim(i)).collect();
                let leaf = b.leaf(node.op.clone(), TensorSpec { shape, dtype: node.spec.dtype });
                leaves.push(leaf);
                fronts.push(along(&mut b, leaf, to, 0)?);
            }
            let results = b.inline(&new.graph, &fronts)?;
            let mut outputs = Vec::with_capacity(results.len());
            for ((id, batched), &axis) in results.into_iter().zip(marks).zip(out_axes) {
                let all = match batched {
                    true => id,
                    false => {
                        let shape = std::iter::once(size).chain(b.shape(id).dims());
                        let shape: Shape = shape.collect();
                        b.broadcast_to(id, shape)?
                    }
                };
                outputs.push(along(&mut b, all, 0, axis)?);
            }
            let old: Vec<NodeId> = self.graph.arguments().collect();
            let new = |id: NodeId| Some(leaves[old.binary_search(&id).expect("it is an argument")]);
            Ok(self.moved(b.finish(outputs), new))
        })
    }

    /// Checks the axes and returns the batch axis of each argument of the graph.
    fn batch_axes(&self, ins: &[Option<usize>], outs: &[usize]) -> Result<Vec<Option<usize>>> {
        let invalid = |reason: String| Err(Error::InvalidArgument(format!("vmap: {reason}")));
        let (inputs, outputs) = (self.inputs(), self.outputs());
        for (what, given, count) in
            [("in_axes", ins.len(), inputs.len()), ("out_axes", outs.len(), outputs.len())]
        {
            if given != count {
                let puts = if what == "in_axes" { "inputs" } else { "outputs" };
                return invalid(format!("{given} {what} for {count} {puts}; give one for each"));
            }
        }
        if ins.iter().all(Option::is_none) {
            return invalid("no input has a batch axis; name one in in_axes".into());
        }
        for (input, axis) in inputs.iter().zip(ins) {
            let Some(axis) = axis else { continue };
            let name = &input.name;
            if self.graph.node(input.id).op.code == OpCode::Constant {
                return invalid(format!("input {name} is a number, the same for the whole batch"));
            }
            if *axis > input.spec.shape.rank() {
                return invalid(format!(
                    "input {name} is {} for each member, so its batch axis is one of 0 to {}, not \
                     {axis}",
                    input.spec,
                    input.spec.shape.rank()
                ));
            }
        }
        for ((name, spec), axis) in outputs.iter().zip(outs) {
            if *axis > spec.shape.rank() {
                return invalid(format!(
                    "output {name} is {spec} for each member, so its batch axis is one of 0 to {}, \
                     not {axis}",
                    spec.shape.rank()
                ));
            }
        }
        let draws =
            |id: &NodeId| self.graph.node(*id).op.is_random() && !self.values.contains_key(id);
        if let Some(id) = self.graph.arguments().find(draws) {
            return invalid(format!(
                "the program draws random numbers at each call ({} of {}); give them as an input",
                self.graph.node(id).op.name(),
                self.graph.spec(id)
            ));
        }
        let axis = |id: NodeId| {
            let at = inputs.iter().position(|input| input.id == id);
            at.and_then(|at| ins[at])
        };
        Ok(self.graph.arguments().map(axis).collect())
    }

    /// The program of a rewritten graph. `map` returns the new node of an argument of this program,
    /// if it exists. Arguments keep their names, other hints and values.
    pub(super) fn moved(&self, graph: Graph, map: impl Fn(NodeId) -> Option<NodeId>) -> Program {
        let mut program = Program::of_graph(graph);
        for id in self.graph.arguments() {
            let Some(new) = map(id) else { continue };
            for (key, value) in self.graph.hints(id) {
                program.graph.set_hint(new, key, value);
            }
        }
        let held = self.values.iter().filter_map(|(&id, held)| Some((map(id)?, held.clone())));
        program.values = held.collect();
        program
    }

    /// The program that holds the tensors from outside that its rules use.
    pub(super) fn with_outside(self, tensors: FxHashMap<u64, Tensor>) -> Result<Program> {
        if tensors.is_empty() {
            return Ok(self);
        }
        let lifted = girih_transform::lift(&self.graph);
        let mut program = self.moved(lifted.graph, |id| Some(lifted.map[id.index()]));
        for (id, key) in lifted.outside {
            program.hold(id, "", &tensors[&key], false)?;
        }
        program.graph.set_guards(self.graph.guards().to_vec());
        if !self.graph.output_names().is_empty() {
            program.graph.set_output_names(self.graph.output_names().to_vec())?;
        }
        Ok(program)
    }

    /// The program with all its custom rules recorded, for a file.
    pub(super) fn with_rules(&self) -> Result<Cow<'_, Program>> {
        let captures = Captures::begin();
        match girih_transform::record_rules(&self.graph)? {
            None => Ok(Cow::Borrowed(self)),
            Some(graph) => {
                let program = self.with_graph(graph);
                Ok(Cow::Owned(program.with_outside(captures.tensors())?))
            }
        }
    }

    /// Runs `write`, which builds a program from this one, and adds to the result this program's
    /// guards and the guards collected meanwhile.
    pub(super) fn guarded<E: From<Error>>(
        &self,
        write: impl FnOnce() -> Result<Program, E>,
    ) -> Result<Program, E> {
        let captures = Captures::begin();
        // While a pass runs, its caller collects the guards.
        if girih_record::nested::in_pass() {
            return Ok(write()?.with_outside(captures.tensors())?);
        }
        let decided = Guards::new();
        let entered = decided.enter();
        let mut program = write()?.with_outside(captures.tensors())?;
        drop(entered);
        let mut guards = self.graph.guards().to_vec();
        guards.extend(decided.collected());
        program.graph.set_guards(guards);
        Ok(program)
    }
}

/// The axes of a value of rank `rank`, in the order that moves axis `from` to `to`.
fn moved_axis(rank: usize, from: usize, to: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).collect();
    if from != to {
        order.remove(from);
        order.insert(to, from);
    }
    order
}

/// Moves axis `from` of a value to `to`.
fn along(b: &mut GraphBuilder, id: NodeId, from: usize, to: usize) -> Result<NodeId> {
    if from == to {
        return Ok(id);
    }
    let order = moved_axis(b.shape(id).rank(), from, to);
    Ok(b.permute(id, &order)?)
}

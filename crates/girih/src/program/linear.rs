//! Linearisation, transposition and checkpoints of programs, as for closures. Each method converts
//! a graph to a graph and runs nothing.

use super::Program;
use crate::outside::Captures;
use crate::{Error, Result, Saved};
use girih_ir::ops::control::{CallMode, Control};
use girih_ir::ops::{Attrs, Class};
use girih_ir::{Graph, GraphBuilder, Node, NodeId, Op, OpCode};
use std::sync::Arc;

/// A graph under construction from nodes of `from`; `map[id]` is the new node of node `id`.
pub(super) struct PartialGraph<'a> {
    pub from: &'a Graph,
    pub b: GraphBuilder,
    pub map: Vec<Option<NodeId>>,
}

impl<'a> PartialGraph<'a> {
    pub fn of(from: &'a Graph) -> PartialGraph<'a> {
        PartialGraph { from, b: GraphBuilder::default(), map: vec![None; from.len()] }
    }

    /// Adds an input that replaces a node.
    pub fn input(&mut self, id: NodeId) {
        self.map[id.index()] = Some(self.b.input(self.from.spec(id).clone()));
    }

    /// Copies a node, whose operands must have been copied before.
    pub fn copy(&mut self, id: NodeId) {
        let node = self.from.node(id);
        let inputs = node.inputs.iter().map(|&operand| self.at(operand)).collect();
        let copy = Node { op: node.op.clone(), inputs, spec: node.spec.clone() };
        self.b.record_as(self.from, id);
        self.map[id.index()] = Some(self.b.append(copy));
    }

    pub fn at(&self, id: NodeId) -> NodeId {
        self.map[id.index()].expect("operands precede their users")
    }

    /// The program that consists of one call of `control` on `operands`. This part must contain
    /// copies of the arguments of `program`, whose names, values and guards the new program keeps.
    pub fn call(
        mut self,
        program: &Program,
        control: Control,
        operands: &[NodeId],
    ) -> Result<Program> {
        let control = Arc::new(control);
        let result = |at| Op::control(OpCode::Call, control.clone(), at);
        let results = 0..program.graph.outputs().len();
        let results = results.map(|at| self.b.emit(result(at), operands));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        let (map, graph) = (self.map, self.b.finish(results));
        let mut new = program.moved(graph, |id| map[id.index()]);
        new.graph.set_guards(program.graph.guards().to_vec());
        if !program.graph.output_names().is_empty() {
            new.graph.set_output_names(program.graph.output_names().to_vec())?;
        }
        Ok(new)
    }

    pub fn finish(self, outputs: impl IntoIterator<Item = NodeId>) -> (Graph, Vec<Option<NodeId>>) {
        let outputs: Vec<NodeId> = outputs.into_iter().map(|id| self.at(id)).collect();
        (self.b.finish(outputs), self.map)
    }
}

/// Whether a node is a constant whose value is part of the graph.
fn is_literal(node: &Node) -> bool {
    node.op.class() == Class::Leaf && !node.op.takes_argument()
}

impl Program {
    /// Linearises the program into two programs. The first program takes this program's inputs, and
    /// returns its outputs, then the residuals that the linear map needs. The second program is the
    /// linear map: it takes the residuals, then a tangent for each of the nodes `wrt`, and returns
    /// a tangent for each output. The map can be called many times while the function is computed
    /// once.
    ///
    /// ```
    /// use girih::{Program, Tensor};
    ///
    /// let (x, v) = (Tensor::from_slice(&[3.0f32], [])?, Tensor::from_slice(&[1.0f32], [])?);
    /// let program = Program::capture(&[&x.mul(&x)?], &[&x])?;
    /// let (values, map) = program.linearize(&[program.inputs()[0].id])?;
    /// let found = values.call(&[&x])?;
    /// assert_eq!(found[0].item::<f32>()?, 9.0);
    /// let given: Vec<&Tensor> = found[1..].iter().chain([&v]).collect();
    /// assert_eq!(map.call(&given)?[0].item::<f32>()?, 6.0);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: as [`Program::jvp`].
    pub fn linearize(&self, wrt: &[NodeId]) -> Result<(Program, Program)> {
        let mut map = Program::of_graph(Graph::new());
        let values = self.guarded(|| {
            let captures = Captures::begin();
            let new = girih_transform::linearize(&self.graph, wrt)?;
            let graph = &new.graph;
            let mut varies = vec![false; graph.len()];
            for (id, node) in graph.nodes() {
                let moved = node.inputs.iter().any(|operand| varies[operand.index()]);
                varies[id.index()] = moved || new.added.contains(&id);
            }
            let (outputs, tangents) = graph.outputs().split_at(self.graph.outputs().len());
            // The values that the map uses, in order; literals are copied into the map.
            let mut used = vec![false; graph.len()];
            tangents.iter().for_each(|id| used[id.index()] = true);
            for (_, node) in graph.nodes().filter(|(id, _)| varies[id.index()]) {
                node.inputs.iter().for_each(|operand| used[operand.index()] = true);
            }
            let fixed = |id: &NodeId| !varies[id.index()];
            let needed: Vec<NodeId> =
                graph.ids().filter(|id| fixed(id) && used[id.index()]).collect();
            let residuals = needed.iter().copied().filter(|&id| !is_literal(graph.node(id)));
            let residuals: Vec<NodeId> = residuals.collect();

            let mut linear = PartialGraph::of(graph);
            residuals.iter().chain(&new.added).for_each(|&id| linear.input(id));
            needed.iter().filter(|id| is_literal(graph.node(**id))).for_each(|&id| linear.copy(id));
            let inner = graph.ids().filter(|id| varies[id.index()] && !new.added.contains(id));
            inner.for_each(|id| linear.copy(id));
            let linear = Program::of_graph(linear.finish(tangents.iter().copied()).0);
            map = linear.with_outside(captures.tensors())?;

            let mut values = PartialGraph::of(graph);
            graph.ids().filter(fixed).for_each(|id| values.copy(id));
            let (values, at) = values.finish(outputs.iter().chain(&residuals).copied());
            let at = |id: NodeId| at[new.map[id.index()].index()];
            self.moved(values, at).with_outside(captures.tensors())
        })?;
        map.graph.set_guards(values.graph.guards().to_vec());
        Ok((values, map))
    }

    /// The transpose of a program that is linear in the inputs `wrt`, up to added constants. It
    /// takes the other inputs, then a cotangent for each output, of its shape and dtype, and
    /// returns a cotangent for each of `wrt`.
    ///
    /// ```
    /// use girih::{Program, Tensor};
    ///
    /// let (x, w) = (Tensor::from_slice(&[1.0f32, 2.0], [2])?, Tensor::from_slice(&[3.0f32, 5.0], [2])?);
    /// let program = Program::capture(&[&x.mul(&w)?], &[&x, &w])?;
    /// let transpose = program.linear_transpose(&[program.inputs()[0].id])?;
    /// assert_eq!(transpose.call(&[&w, &x])?[0].to_vec::<f32>()?, [3.0, 10.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: [`Error::InvalidArgument`] for a node of `wrt` that is not an input, and for a
    /// program that is not linear, with the first op that is not linear; [`Error::Transform`] as
    /// [`Program::vjp`].
    pub fn linear_transpose(&self, wrt: &[NodeId]) -> Result<Program> {
        let invalid = |reason| Error::InvalidArgument(format!("linear_transpose: {reason}"));
        let inputs = self.inputs();
        if let Some(other) = wrt.iter().find(|id| !inputs.iter().any(|input| input.id == **id)) {
            return Err(invalid(format!(
                "{other} is no input of the program; its inputs are {}",
                inputs.iter().map(|i| i.id.to_string()).collect::<Vec<_>>().join(", ")
            )));
        }
        girih_transform::check_linear(&self.graph, wrt).map_err(|error| {
            let node = error.node;
            invalid(format!(
                "the program is not linear: {error} (node {node}); vjp gives the transpose of its \
                 derivative at a point"
            ))
        })?;
        let pullback = self.vjp(wrt)?;
        let graph = &pullback.graph;
        let mut part = PartialGraph::of(graph);
        for id in graph.ids() {
            match wrt.contains(&id) {
                // The pullback of a linear function does not depend on its argument, so a zero
                // replaces it.
                true => {
                    part.map[id.index()] = Some({
                        let spec = graph.spec(id).clone();
                        part.b.constant(girih_ir::Literal::from_i64(spec.dtype, 0), spec.shape)
                    })
                }
                false => part.copy(id),
            }
        }
        let cotangents = &graph.outputs()[self.graph.outputs().len()..];
        let (new, at) = part.finish(cotangents.iter().copied());
        // The zero does not inherit the name and the hints of the input that it replaces.
        let at = |id: NodeId| at[id.index()].filter(|_| !wrt.contains(&id));
        let mut transpose = pullback.moved(new, at);
        transpose.graph.set_guards(graph.guards().to_vec());
        Ok(transpose)
    }

    /// The program with rematerialisation: its reverse-mode derivative recomputes the values
    /// instead of keeping them, except for the values in `policy`: see [`crate::checkpoint`]. The
    /// inputs, outputs and values are those of this program. Random numbers are drawn once.
    ///
    /// ```
    /// use girih::{Program, Saved, Tensor};
    ///
    /// let x = Tensor::from_slice(&[0.0f32], [])?;
    /// let program = Program::capture(&[&x.sin()?.exp()?], &[&x])?.checkpoint(Saved::Nothing)?;
    /// let gradient = program.grad(&[program.inputs()[0].id])?;
    /// assert_eq!(gradient.call(&[&x])?[0].item::<f32>()?, 1.0);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: [`Error::Record`] for outputs that a checkpoint cannot return.
    pub fn checkpoint(&self, policy: Saved) -> Result<Program> {
        let arguments: Vec<NodeId> = self.graph.arguments().collect();
        if arguments.is_empty() || self.graph.outputs().is_empty() {
            return Ok(self.clone());
        }
        let mut body = PartialGraph::of(&self.graph);
        for id in self.graph.ids() {
            match self.graph.node(id).op.takes_argument() {
                true => body.input(id),
                false => body.copy(id),
            }
        }
        let is_contraction = |id: &NodeId| {
            let op = &self.graph.node(*id).op;
            op.class() == Class::Contraction || matches!(op.attrs, Attrs::Conv(_))
        };
        let saved: Vec<NodeId> = match policy {
            Saved::Nothing => Vec::new(),
            Saved::Contractions => self.graph.ids().filter(is_contraction).collect(),
        };
        let saves = saved.len() as u32;
        let (body, _) = body.finish(self.graph.outputs().iter().copied().chain(saved));
        let control = Control { mode: CallMode::Checkpoint, saves, ..Control::default() };
        let control = control.with_regions(vec![body]);
        let mut whole = PartialGraph::of(&self.graph);
        arguments.iter().for_each(|&id| whole.copy(id));
        let operands: Vec<NodeId> = arguments.iter().map(|&id| whole.at(id)).collect();
        whole.call(self, control, &operands)
    }
}

//! Rewriting of programs: a program is copied node by node, and a rule replaces some nodes by newly
//! recorded nodes.

use super::{Exponents, Held, NodeInfo, Program};
use crate::context::{Context, Frame};
use crate::{Error, Graph as Recording, Result, Tensor};
use girih_ir::ops::Category;
use girih_ir::{Graph, NodeId, OpCode, Shape};
use girih_record::order::{ancestors, in_recording_order};
use girih_record::{Node, State};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// A scope with a fresh recording graph and eager mode off, until dropped.
struct Detached(Option<Frame>);

impl Detached {
    fn enter() -> Detached {
        let context = Context::current();
        let frame = context.frame().with_graph(Recording::new()).with_eager(false);
        Detached(Some(context.swap(frame)))
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(frame) = self.0.take() {
            Context::current().swap(frame);
        }
    }
}

impl Program {
    /// The program with nodes replaced. `rule` is called for each node that the outputs need, with
    /// the node's new operands. It returns a replacement tensor, or `None` to keep the node. The
    /// replacement may be any computation on the operands and on constants. `rule` is not called
    /// for inputs, parameters and random leaves, nor for nodes that no output needs. Kept nodes
    /// keep their names and hints.
    ///
    /// ```
    /// use girih::{Program, Tensor};
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 4.0], [2])?;
    /// let program = Program::capture(&[&x.sqrt()?.neg()?], &[&x])?;
    /// let rewritten = program.rewrite(|node, operands| match node.op {
    ///     "sqrt" => operands[0].mul(2.0).map(Some),
    ///     _ => Ok(None),
    /// })?;
    /// assert_eq!(rewritten.call(&[&x])?[0].to_vec::<f32>()?, [-2.0, -8.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: those of the rule; [`Error::InvalidArgument`] if it returns a tensor of another
    /// shape or dtype, or a tensor that depends on an argument of another function.
    pub fn rewrite<E: From<Error>>(
        &self,
        rule: impl FnMut(&NodeInfo, &[Tensor]) -> Result<Option<Tensor>, E>,
    ) -> Result<Program, E> {
        self.guarded(|| self.rewritten(rule))
    }

    fn rewritten<E: From<Error>>(
        &self,
        mut rule: impl FnMut(&NodeInfo, &[Tensor]) -> Result<Option<Tensor>, E>,
    ) -> Result<Program, E> {
        let _detached = Detached::enter();
        let (live, exponents) = (self.graph.live(), Exponents::of(&self.graph));
        let mut became: Vec<Option<Tensor>> = vec![None; self.graph.len()];
        let mut kept: Vec<NodeId> = Vec::new();
        let infos = self.nodes();
        for (id, node) in self.graph.nodes() {
            let argument = self.is_argument(id);
            if !live[id.index()] && !argument {
                continue;
            }
            let operands: Vec<Tensor> =
                node.inputs.iter().filter_map(|i| became[i.index()].clone()).collect();
            let mut replaced = None;
            if !argument {
                let info = &infos[id.index()];
                replaced = rule(info, &operands)?;
                if let Some(tensor) = &replaced {
                    check_spec(info, tensor)?;
                }
            }
            let tensor = match replaced {
                Some(tensor) => tensor,
                None => {
                    kept.push(id);
                    match node.inputs.is_empty() {
                        true => {
                            let leaf = Tensor::with_state(node.op.clone(), &node.spec, State::Leaf);
                            exponents.recorded(id, leaf)
                        }
                        false => {
                            let operands: SmallVec<[&Tensor; 3]> = operands.iter().collect();
                            Tensor::record(node.op.clone(), &operands)?
                        }
                    }
                }
            };
            became[id.index()] = Some(tensor);
        }
        Ok(self.closed(&became, &kept)?)
    }

    /// The program with explicit `broadcast_to` nodes in place of implicit broadcasting: the
    /// operands of an elementwise op have the result's shape, and those of a matrix product have
    /// the same batch axes. This form is for targets and tools without implicit broadcasting.
    ///
    /// ```
    /// use girih::{DType, Program, Tensor};
    ///
    /// let (x, y) = (Tensor::ones([2, 3], DType::F32)?, Tensor::ones([3], DType::F32)?);
    /// let program = Program::capture(&[&x.add(&y)?], &[&x, &y])?.explicit_broadcasts()?;
    /// assert!(program.to_text().contains("broadcast_to"));
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: none for valid programs.
    pub fn explicit_broadcasts(&self) -> Result<Program> {
        self.rewrite(|node, operands| {
            let wanted = |operand: &Tensor| -> Option<Shape> {
                let (own, all) = (operand.shape(), &node.spec.shape);
                match node.category {
                    Category::Elementwise => Some(all.clone()),
                    // A vector operand of a product has no batch axes.
                    Category::Matmul if own.rank() >= 2 && all.rank() >= own.rank() => {
                        let (batch, matrix) = (all.rank() - 2, own.rank() - 2);
                        Some(all.dims().take(batch).chain(own.dims().skip(matrix)).collect())
                    }
                    _ => None,
                }
            };
            let mut stretched = Vec::with_capacity(operands.len());
            let mut changed = false;
            for operand in operands {
                let shape = wanted(operand).filter(|shape| *shape != operand.shape());
                changed |= shape.is_some();
                stretched.push(match shape {
                    Some(shape) => operand.broadcast_to(shape)?,
                    None => operand.clone(),
                });
            }
            match changed {
                true => node.apply(&stretched.iter().collect::<Vec<_>>()).map(Some),
                false => Ok(None),
            }
        })
    }

    /// Whether a node is an input or has a held value.
    fn is_argument(&self, id: NodeId) -> bool {
        self.graph.node(id).op.takes_argument() || self.values.contains_key(&id)
    }

    /// Builds the program from the tensors that replace its nodes.
    fn closed(&self, became: &[Option<Tensor>], kept: &[NodeId]) -> Result<Program> {
        let mut program = Program::of_graph(Graph::new());
        let mut ids: FxHashMap<*const Node, NodeId> = FxHashMap::default();
        let arguments = self.graph.ids().filter(|&id| self.is_argument(id));
        for (id, tensor) in arguments.filter_map(|id| Some((id, became[id.index()].as_ref()?))) {
            let node = self.graph.node(id);
            let new = program.graph.leaf(node.op.clone(), node.spec.clone());
            ids.insert(Arc::as_ptr(tensor.node()), new);
            if let Some(held) = self.values.get(&id) {
                program.values.insert(new, held.clone());
            }
        }
        let output = |id: &NodeId| became[id.index()].as_ref().expect("outputs are live");
        let outputs: Vec<&Tensor> = self.graph.outputs().iter().map(output).collect();
        let order = ancestors(&outputs, |node| ids.contains_key(&Arc::as_ptr(node)));
        for node in in_recording_order(order) {
            if ids.contains_key(&Arc::as_ptr(&node)) {
                continue;
            }
            node.check()?;
            if node.code() == OpCode::Input && matches!(*node.state(), State::Leaf) {
                return Err(Error::InvalidArgument(format!(
                    "rewrite: a node depends on an argument of shape {} of another function; use the \
                     operands that the rule is given, and constants",
                    node.shape()
                )));
            }
            let id = program.add(&node, &ids, None);
            ids.insert(Arc::as_ptr(&node), id);
        }
        for &id in kept {
            let Some(tensor) = &became[id.index()] else { continue };
            if let Some(&new) = ids.get(&Arc::as_ptr(tensor.node())) {
                for (key, value) in self.graph.hints(id) {
                    program.graph.set_hint(new, key, value);
                }
            }
        }
        program.graph.set_outputs(outputs.iter().map(|t| ids[&Arc::as_ptr(t.node())]));
        if !self.graph.output_names().is_empty() {
            program.graph.set_output_names(self.graph.output_names().to_vec())?;
        }
        Ok(program)
    }

    /// A description of the first value that the program holds: a tensor with data, or a random
    /// leaf with a fixed position.
    pub(crate) fn first_held(&self) -> Option<String> {
        let (&id, held) = self.values.first_key_value()?;
        let spec = self.graph.spec(id);
        Some(match held {
            Held::Random { .. } => format!("a random draw of {spec}"),
            _ => format!("a tensor with data, {spec}"),
        })
    }
}

fn check_spec(node: &NodeInfo, tensor: &Tensor) -> Result<()> {
    let (found, spec) = (tensor.spec(), &node.spec);
    if found.dtype == spec.dtype && found.shape.equals(&spec.shape) {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "rewrite: node {} is {spec}; the rule gives {found} in its place",
        node.name
    )))
}

//! Batching rules of branches, loops and calls. With an unbatched predicate, only the selected
//! branch runs. With a batched predicate, all branches are computed and their results are selected
//! element by element; a branch that has an effect or can fail only if a member takes it. A loop with a batched condition runs until no member continues; finished
//! members keep their carries.

use super::{Batch, Value, aligned, on_batch, stretched};
use crate::Result;
use girih_ir::ops::control::{CallRules, Control, ControlOp};
use girih_ir::{
    AxisSet, DType, Dim, Graph, GraphBuilder, Literal, Node, NodeId, Op, OpCode, TensorSpec,
};
use std::sync::Arc;

/// A batched branch or loop.
pub(super) enum Batched {
    /// An op of the same kind, and where its results have their batch axis.
    Call { code: OpCode, control: Arc<Control>, operands: Vec<NodeId>, results: Vec<BatchPosition> },
    /// The results, computed in place.
    Values(Vec<Value>),
}

/// The position of a result's batch axis.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum BatchPosition {
    Nowhere,
    First,
    /// After the axis of a scan's iterations.
    Second,
}

impl BatchPosition {
    pub(super) fn first(batched: bool) -> BatchPosition {
        if batched { BatchPosition::First } else { BatchPosition::Nowhere }
    }

    fn second(batched: bool) -> BatchPosition {
        if batched { BatchPosition::Second } else { BatchPosition::Nowhere }
    }
}

impl Batch<'_> {
    /// Batches a result of a branch or loop.
    pub(super) fn control(&mut self, id: NodeId, node: &Node) -> Result<Value> {
        let leader = self.calls.leader(id);
        if !self.done.contains_key(&leader) {
            let batched = self.call(node)?;
            self.done.insert(leader, batched);
        }
        let (result, _) = node.op.as_control().expect("the op is one of control");
        match &self.done[&leader] {
            Batched::Values(values) => Ok(values[result]),
            Batched::Call { code, control, operands, results } => {
                let y = self.b.emit(Op::control(*code, control.clone(), result), operands)?;
                let id = match results[result] {
                    BatchPosition::Second => exchanged(self.b, y)?,
                    BatchPosition::First | BatchPosition::Nowhere => y,
                };
                Ok(Value { id, batched: results[result] != BatchPosition::Nowhere })
            }
        }
    }

    fn call(&mut self, node: &Node) -> Result<Batched> {
        let operands = self.operands(node);
        let (_, control) = node.op.as_control().expect("the op is one of control");
        let control = control.clone();
        if operands.iter().all(|v| !v.batched) {
            let results = vec![BatchPosition::Nowhere; control.num_results(node.op.code)];
            let operands = operands.iter().map(|v| v.id).collect();
            return Ok(Batched::Call { code: node.op.code, control, operands, results });
        }
        match node.op.code.control().expect("the op is one of control") {
            ControlOp::Cond if operands[0].batched => self.all_branches(&control, &operands),
            ControlOp::Cond => self.regions(OpCode::Cond, &control, &operands, 1),
            ControlOp::Call => match control.call_rules() {
                CallRules::Derived => self.regions(OpCode::Call, &control, &operands, 0),
                _ => self.with_rules(&control, &operands),
            },
            ControlOp::WhileLoop => self.while_loop(&control, operands),
            ControlOp::Scan => self.scan(&control, operands),
        }
    }

    /// A branch on an unbatched predicate, or a call: its regions take the operands from `first`
    /// on.
    fn regions(
        &mut self,
        code: OpCode,
        control: &Control,
        operands: &[Value],
        first: usize,
    ) -> Result<Batched> {
        let (axis, taken) = (self.axis, &operands[first..]);
        let marks: Vec<bool> = taken.iter().map(|v| v.batched).collect();
        let specs: Vec<TensorSpec> = taken.iter().map(|v| self.b.spec(v.id).clone()).collect();
        let mut batched = vec![false; control.regions[0].outputs().len()];
        for region in control.regions.iter() {
            batched.iter_mut().zip(reached(region, &marks)).for_each(|(b, r)| *b |= r);
        }
        let regions = control.regions.iter().map(|region| {
            let (mut r, arguments) = inputs(&specs, &marks);
            let given = on_batch(&mut r, region, &arguments, axis)?;
            let outputs = settled(&mut r, &given, &batched, axis.size)?;
            Ok(r.finish(outputs))
        });
        let control = Arc::new(control.with_regions(regions.collect::<Result<_>>()?));
        let results = batched.into_iter().map(BatchPosition::first).collect();
        let operands = operands.iter().map(|v| v.id).collect();
        Ok(Batched::Call { code, control, operands, results })
    }

    /// A branch on a batched predicate: computes every branch and selects. A branch with ops that
    /// have an effect or can fail is computed only if a member takes it.
    fn all_branches(&mut self, control: &Control, operands: &[Value]) -> Result<Batched> {
        let (axis, index) = (self.axis, operands[0].id);
        let mut chosen: Vec<NodeId> = Vec::new();
        for (number, region) in control.regions.iter().enumerate() {
            let stays = |(_, node): (NodeId, &Node)| node.op.has_effect() || node.op.can_fail();
            let given: Vec<NodeId> = if region.nodes().any(stays) {
                let taken = self.takes(index, number, control.regions.len())?;
                self.branch_if_any(taken, region, &operands[1..])?
            } else {
                let given = on_batch(self.b, region, &operands[1..], axis)?;
                let given = given.into_iter().map(|v| stretched(self.b, v, axis.size));
                given.collect::<Result<_>>()?
            };
            if number == 0 {
                chosen = given;
                continue;
            }
            // An index beyond the branches is clamped.
            let takes = match self.b.dtype(index) {
                DType::Bool => index,
                _ => {
                    let number = self.b.scalar_like(index, number as f64);
                    self.b.ge(index, number)?
                }
            };
            for (before, new) in chosen.iter_mut().zip(given) {
                *before = select(self.b, takes, new, *before)?;
            }
        }
        Ok(Batched::Values(chosen.into_iter().map(|id| Value { id, batched: true }).collect()))
    }

    /// Which members take a branch, of `count` branches. An index beyond the branches is clamped.
    fn takes(&mut self, index: NodeId, number: usize, count: usize) -> Result<NodeId> {
        if self.b.dtype(index) == DType::Bool {
            return if number == 1 { Ok(index) } else { Ok(self.b.bitwise_not(index)?) };
        }
        let this = self.b.scalar_like(index, number as f64);
        Ok(match number {
            // The only branch.
            0 if count == 1 => self.b.eq(index, index)?,
            0 => self.b.le(index, this)?,
            last if last + 1 == count => self.b.ge(index, this)?,
            _ => self.b.eq(index, this)?,
        })
    }

    /// The results of a branch on the batch; zeros if no member takes it.
    fn branch_if_any(
        &mut self,
        taken: NodeId,
        region: &Graph,
        operands: &[Value],
    ) -> Result<Vec<NodeId>> {
        let size = self.axis.size;
        let marks: Vec<bool> = operands.iter().map(|v| v.batched).collect();
        let specs: Vec<TensorSpec> = operands.iter().map(|v| self.b.spec(v.id).clone()).collect();
        let (mut r, arguments) = inputs(&specs, &marks);
        let given = on_batch(&mut r, region, &arguments, self.axis)?;
        let outputs = settled(&mut r, &given, &vec![true; given.len()], size)?;
        let batched = r.finish(outputs);
        let (mut r, _) = inputs(&specs, &marks);
        let zero = |o: &NodeId| {
            let spec = batched.spec(*o);
            r.constant(Literal::from_i64(spec.dtype, 0), spec.shape.clone())
        };
        let zeros: Vec<NodeId> = batched.outputs().iter().map(zero).collect();
        let count = zeros.len();
        let control = Control::default().with_regions(vec![r.finish(zeros), batched]);
        let control = Arc::new(control);
        let any = self.b.reduce(OpCode::ReduceAny, taken, AxisSet::one(0), false)?;
        let all: Vec<NodeId> = std::iter::once(any).chain(operands.iter().map(|v| v.id)).collect();
        let result = |n| Ok(self.b.emit(Op::control(OpCode::Cond, control.clone(), n), &all)?);
        (0..count).map(result).collect()
    }

    fn while_loop(&mut self, control: &Control, mut operands: Vec<Value>) -> Result<Batched> {
        let (axis, c) = (self.axis, control.carries as usize);
        let [condition, body] = &control.regions[..] else { unreachable!("there are two") };
        let mut marks: Vec<bool> = operands.iter().map(|v| v.batched).collect();
        spread_carries(body, c, &mut marks);
        let masked = reached(condition, &marks)[0];
        if masked {
            marks[..c].fill(true);
        }
        for (value, &mark) in operands.iter_mut().zip(&marks) {
            if mark {
                *value = Value { id: stretched(self.b, *value, axis.size)?, batched: true };
            }
        }
        if masked {
            return self.masked_loop(control, operands, &marks);
        }
        let specs: Vec<TensorSpec> = operands.iter().map(|v| self.b.spec(v.id).clone()).collect();
        let (mut r, arguments) = inputs(&specs, &marks);
        let goes_on = on_batch(&mut r, condition, &arguments, axis)?[0].id;
        let condition = r.finish([goes_on]);
        let (mut r, arguments) = inputs(&specs, &marks);
        let given = on_batch(&mut r, body, &arguments, axis)?;
        let outputs = settled(&mut r, &given, &marks[..c], axis.size)?;
        let control = Arc::new(control.with_regions(vec![condition, r.finish(outputs)]));
        let results = marks[..c].iter().map(|&mark| BatchPosition::first(mark)).collect();
        let operands = operands.iter().map(|v| v.id).collect();
        Ok(Batched::Call { code: OpCode::WhileLoop, control, operands, results })
    }

    /// A loop whose condition differs between members. An additional carry marks the members that
    /// continue, so that each iteration computes the condition once. Finished members keep their
    /// carries.
    fn masked_loop(
        &mut self,
        control: &Control,
        mut operands: Vec<Value>,
        marks: &[bool],
    ) -> Result<Batched> {
        let (axis, c) = (self.axis, control.carries as usize);
        let [condition, body] = &control.regions[..] else { unreachable!("there are two") };
        let first = on_batch(self.b, condition, &operands, axis)?[0];
        let first = Value { id: stretched(self.b, first, axis.size)?, batched: true };
        operands.insert(c, first);
        let mut marks = marks.to_vec();
        marks.insert(c, true);
        let specs: Vec<TensorSpec> = operands.iter().map(|v| self.b.spec(v.id).clone()).collect();
        let (mut r, arguments) = inputs(&specs, &marks);
        let any = r.reduce(OpCode::ReduceAny, arguments[c].id, AxisSet::one(0), false)?;
        let any_goes_on = r.finish([any]);
        let (mut r, mut arguments) = inputs(&specs, &marks);
        let goes_on = arguments.remove(c).id;
        let given = on_batch(&mut r, body, &arguments, axis)?;
        let mut outputs = settled(&mut r, &given, &marks[..c], axis.size)?;
        for (new, before) in outputs.iter_mut().zip(&arguments) {
            *new = select(&mut r, goes_on, *new, before.id)?;
        }
        for (argument, &id) in arguments.iter_mut().zip(&outputs) {
            argument.id = id;
        }
        let next = on_batch(&mut r, condition, &arguments, axis)?[0];
        let next = stretched(&mut r, next, axis.size)?;
        outputs.push(r.op(OpCode::And, &[goes_on, next])?);
        let control = control.with_regions(vec![any_goes_on, r.finish(outputs)]);
        let control = Arc::new(Control { carries: control.carries + 1, ..control });
        let results = vec![BatchPosition::First; c + 1];
        let operands = operands.iter().map(|v| v.id).collect();
        Ok(Batched::Call { code: OpCode::WhileLoop, control, operands, results })
    }

    /// The iterations remain the leading axis of slices and stacks; the batch axis is second.
    fn scan(&mut self, control: &Control, mut operands: Vec<Value>) -> Result<Batched> {
        let (axis, c, x) = (self.axis, control.carries as usize, control.slices as usize);
        let body = &control.regions[0];
        let mut marks: Vec<bool> = operands.iter().map(|v| v.batched).collect();
        spread_carries(body, c, &mut marks);
        for (value, _) in operands[..c].iter_mut().zip(&marks).filter(|(_, mark)| **mark) {
            *value = Value { id: stretched(self.b, *value, axis.size)?, batched: true };
        }
        for value in operands[c..c + x].iter_mut().filter(|v| v.batched) {
            value.id = exchanged(self.b, value.id)?;
        }
        let spec = |(i, v): (usize, &Value)| {
            let spec = self.b.spec(v.id);
            let slice = (c..c + x).contains(&i);
            let shape = if slice { spec.shape.part(1..) } else { spec.shape.clone() };
            TensorSpec { shape, dtype: spec.dtype }
        };
        let specs: Vec<TensorSpec> = operands.iter().enumerate().map(spec).collect();
        let mut batched = reached(body, &marks);
        batched[..c].copy_from_slice(&marks[..c]);
        let (mut r, arguments) = inputs(&specs, &marks);
        let given = on_batch(&mut r, body, &arguments, axis)?;
        let outputs = settled(&mut r, &given, &batched, axis.size)?;
        let control = Arc::new(control.with_regions(vec![r.finish(outputs)]));
        let last = batched[..c].iter().map(|&mark| BatchPosition::first(mark));
        let stacked =
            batched[c..].iter().chain(&marks[..c]).map(|&mark| BatchPosition::second(mark));
        let results = last.chain(stacked).collect();
        let operands = operands.iter().map(|v| v.id).collect();
        Ok(Batched::Call { code: OpCode::Scan, control, operands, results })
    }
}

/// A region's inputs as values.
pub(super) fn inputs(specs: &[TensorSpec], marks: &[bool]) -> (GraphBuilder, Vec<Value>) {
    let mut r = GraphBuilder::default();
    let pairs = specs.iter().zip(marks);
    let values =
        pairs.map(|(spec, &batched)| Value { id: r.input(spec.clone()), batched }).collect();
    (r, values)
}

/// Adds the batch axis to the results that the marks name.
pub(super) fn settled(
    r: &mut GraphBuilder,
    given: &[Value],
    marks: &[bool],
    size: Dim,
) -> Result<Vec<NodeId>> {
    let one = |(&value, &mark): (&Value, &bool)| match mark {
        true => stretched(r, value, size),
        false => Ok(value.id),
    };
    given.iter().zip(marks).map(one).collect()
}

/// Marks the carries that become batched in any iteration.
fn spread_carries(body: &Graph, carries: usize, marks: &mut [bool]) {
    loop {
        let given = reached(body, marks);
        match (0..carries).find(|&i| given[i] && !marks[i]) {
            Some(carry) => marks[carry] = true,
            None => return,
        }
    }
}

/// The outputs that depend on the marked arguments.
fn reached(graph: &Graph, marks: &[bool]) -> Vec<bool> {
    let mut reached = vec![false; graph.len()];
    graph.arguments().zip(marks).for_each(|(id, &mark)| reached[id.index()] = mark);
    for (id, node) in graph.nodes() {
        reached[id.index()] |= node.inputs.iter().any(|i| reached[i.index()]);
    }
    graph.outputs().iter().map(|o| reached[o.index()]).collect()
}

/// Exchanges the first two axes.
fn exchanged(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let rank = b.shape(x).rank();
    let order: Vec<usize> = [1, 0].into_iter().chain(2..rank).collect();
    Ok(b.permute(x, &order)?)
}

/// Selects one of two values for each member.
fn select(b: &mut GraphBuilder, takes: NodeId, new: NodeId, before: NodeId) -> Result<NodeId> {
    let rank = b.shape(new).rank() - 1;
    let takes = aligned(b, takes, rank)?;
    Ok(b.select(takes, new, before)?)
}

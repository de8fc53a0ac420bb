//! Reverse mode through branches and loops; calls are in [`crate::call`].
//!
//! The derivative of a branch is a branch on the same predicate whose regions are the derivatives.
//! The derivative of a scan is a scan in the other direction. Each iteration recomputes one step of
//! the forward scan from its slices and its initial carries, and applies reverse mode to the step.
//! The initial carries come from the *history*, which is another result of the forward scan, so
//! that the forward loop runs once. The derivative carries the cotangents of the carries and
//! accumulates the cotangents of captured values, those of half floats in f32; it returns the
//! cotangents of the slices. Both derivatives are ordinary ops that can be differentiated again.

use crate::effects;
use crate::reverse::{cotangents, depends};
use crate::{Error, Result};
use girih_ir::ops::control::{Control, ControlOp};
use girih_ir::{Graph, GraphBuilder, Literal, Node, NodeId, Op, OpCode, TensorSpec};
use std::collections::HashMap;
use std::sync::Arc;

/// The results of each call, by the first result in the graph (the leader of the call).
#[derive(Default)]
pub(crate) struct Calls {
    results: HashMap<NodeId, Vec<NodeId>>,
    leaders: HashMap<NodeId, NodeId>,
}

impl Calls {
    /// The calls of a graph.
    pub fn of(graph: &Graph) -> Calls {
        let mut first: HashMap<(Op, &[NodeId]), NodeId> = HashMap::new();
        let mut calls = Calls::default();
        for (id, node) in graph.nodes().filter(|(_, n)| n.op.as_control().is_some()) {
            let leader = first.entry((node.op.with_result(0), &node.inputs)).or_insert(id);
            // A second occurrence of a result with an effect belongs to another call.
            let again = |&known: &NodeId| graph.node(known).op == node.op;
            if node.op.has_effect() && calls.results(*leader).iter().any(again) {
                *leader = id;
            }
            let leader = *leader;
            calls.results.entry(leader).or_default().push(id);
            calls.leaders.insert(id, leader);
        }
        calls
    }

    /// The results of the call whose leader is the node; empty if the node is not a leader.
    pub fn results(&self, leader: NodeId) -> &[NodeId] {
        self.results.get(&leader).map_or(&[], Vec::as_slice)
    }

    /// The leader of the call that the node is a result of.
    pub fn leader(&self, result: NodeId) -> NodeId {
        self.leaders.get(&result).copied().unwrap_or(result)
    }
}

/// A call with the cotangents of its results.
pub(crate) struct Call {
    pub node: Node,
    /// Result indices with their cotangents.
    pub cotangents: Vec<(usize, NodeId)>,
    /// Which operands need a cotangent.
    pub wanted: Vec<bool>,
    /// The nodes of the call's results.
    pub results: Vec<NodeId>,
}

impl Call {
    /// A result of the call. If the call has an effect, the node that exists is used: another one
    /// might become another call.
    pub fn result(&self, b: &mut GraphBuilder, number: usize) -> Result<NodeId> {
        let (_, control) = self.node.op.as_control().expect("the op is one of control");
        let op = Op::control(self.node.op.code, control.clone(), number);
        let same = |&id: &NodeId| op.has_effect() && b.graph().node(id).op == op;
        match self.results.iter().copied().find(same) {
            Some(id) => Ok(id),
            None => Ok(b.emit(op, &self.node.inputs)?),
        }
    }
}

/// Appends the cotangents of a call's operands; returns pairs of operand and cotangent.
///
/// Errors: the errors of the derivative rules of the regions' ops.
pub(crate) fn vjp(b: &mut GraphBuilder, call: &Call) -> Result<Vec<(NodeId, NodeId)>> {
    match call.node.op.code.control().expect("the op is one of control") {
        ControlOp::Cond => branch(b, call),
        ControlOp::Scan => scan(b, call),
        ControlOp::Call => crate::call::vjp(b, call),
        ControlOp::WhileLoop => Err(refused(call.node.op.name(), NO_REVERSE_WHILE)),
    }
}

pub(crate) fn inputs(
    b: &mut GraphBuilder,
    specs: impl IntoIterator<Item = TensorSpec>,
) -> Vec<NodeId> {
    specs.into_iter().map(|spec| b.input(spec)).collect()
}

/// The nodes that outputs depend on, and all inputs.
pub(crate) fn trimmed(graph: &Graph) -> Graph {
    let live = graph.live();
    let mut map = vec![NodeId(0); graph.len()];
    let mut new = Graph::new();
    for (id, node) in graph.nodes().filter(|(id, n)| live[id.index()] || n.op.takes_argument()) {
        let inputs = node.inputs.iter().map(|i| map[i.index()]).collect();
        new.record_at(graph.source(id));
        map[id.index()] = new.append(Node { inputs, ..node.clone() });
    }
    new.set_outputs(graph.outputs().iter().map(|o| map[o.index()]));
    new
}

fn branch(b: &mut GraphBuilder, call: &Call) -> Result<Vec<(NodeId, NodeId)>> {
    let (_, control) = call.node.op.as_control().expect("the op is one of control");
    let operands = &call.node.inputs[1..];
    let spec = |b: &GraphBuilder, id: NodeId| b.spec(id).clone();
    let saved = effects::outputs(control, 0);
    let mut regions = Vec::with_capacity(control.regions.len());
    for region in control.regions.iter() {
        let mut r = GraphBuilder::default();
        let taken = inputs(&mut r, operands.iter().map(|&i| spec(b, i)));
        let cts = inputs(&mut r, call.cotangents.iter().map(|&(_, ct)| spec(b, ct)));
        let output = |at: usize| region.outputs()[at];
        let known = inputs(&mut r, saved.iter().map(|&n| region.spec(output(n)).clone()));
        let given = r.inline(region, &taken)?;
        let outputs: Vec<NodeId> = call.cotangents.iter().map(|&(n, _)| given[n]).collect();
        let wrt = chosen(&taken, &call.wanted[1..]);
        let graph = cotangents(&r.finish([]), &outputs, &cts, &wrt)?;
        let own = saved.iter().zip(known).filter(|(n, _)| effects::is_effect(region, output(**n)));
        let (nodes, values): (Vec<NodeId>, Vec<NodeId>) = own.map(|(&n, v)| (given[n], v)).unzip();
        let graph = trimmed(&effects::with_values(&graph, &nodes, &values));
        effects::check(&graph)?;
        regions.push(graph);
    }
    let derivative = Arc::new(control.with_regions(regions));
    let all = call.node.inputs.iter().copied().chain(call.cotangents.iter().map(|c| c.1));
    let mut all: Vec<NodeId> = all.collect();
    for number in saved {
        all.push(call.result(b, number)?);
    }
    let wanted = chosen(operands, &call.wanted[1..]);
    let emit = |(result, operand): (usize, NodeId)| {
        let op = Op::control(OpCode::Cond, derivative.clone(), result);
        Ok((operand, b.emit(op, &all)?))
    };
    wanted.into_iter().enumerate().map(emit).collect()
}

const NO_REVERSE_WHILE: &str = "while_loop has no reverse-mode derivative, because the number of its iterations is not known \
     before it runs; give it max_iterations, or use scan, or fori_loop with int bounds. Forward mode \
     (jvp, jacfwd) goes through it";

/// The elements whose mark is set.
pub(crate) fn chosen(all: &[NodeId], marks: &[bool]) -> Vec<NodeId> {
    all.iter().zip(marks).filter(|(_, mark)| **mark).map(|(id, _)| *id).collect()
}

/// Which inputs of a loop's body are active: the inputs that are active from outside, and the
/// carries that become active in an iteration.
pub(crate) fn active_inputs(control: &Control, wanted: &[bool]) -> Vec<bool> {
    let body = control.regions.last().expect("a loop has a body");
    let mut active = wanted.to_vec();
    loop {
        let given = depends(body, &active);
        let new = (0..control.carries as usize).find(|&c| given[c] && !active[c]);
        match new {
            Some(carry) => active[carry] = true,
            None => return active,
        }
    }
}

/// A scan to differentiate: its operands by kind.
struct Parts<'a> {
    control: &'a Control,
    carries: &'a [NodeId],
    slices: &'a [NodeId],
    captured: &'a [NodeId],
    /// For each carry, whether it has a cotangent.
    active: Vec<bool>,
    wanted_slices: &'a [bool],
    wanted_captured: &'a [bool],
}

fn scan(b: &mut GraphBuilder, call: &Call) -> Result<Vec<(NodeId, NodeId)>> {
    let (_, control) = call.node.op.as_control().expect("the op is one of control");
    let (c, x) = (control.carries as usize, control.slices as usize);
    let (carries, rest) = call.node.inputs.split_at(c);
    let (slices, captured) = rest.split_at(x);
    let mut active = active_inputs(control, &call.wanted);
    active.truncate(c);
    let (wanted_slices, wanted_captured) = call.wanted[c..].split_at(x);
    let parts =
        Parts { control, carries, slices, captured, active, wanted_slices, wanted_captured };
    let given = control.regions[0].outputs().len();
    let of = |number: usize| call.cotangents.iter().find(|(n, _)| *n == number).map(|(_, ct)| *ct);
    let stacked = (c..given).filter_map(|n| Some((n, of(n)?))).collect::<Vec<_>>();
    let histories: Vec<(usize, NodeId)> = (0..c)
        .filter(|&carry| parts.active[carry])
        .filter_map(|carry| Some((carry, of(given + carry)?)))
        .collect();
    let saved = effects::outputs(control, c);
    let body = step(b, &parts, &stacked, &histories, &saved)?;
    let active_carries = chosen(carries, &parts.active);
    let wanted = chosen(captured, wanted_captured);
    let mut operands: Vec<NodeId> = Vec::new();
    for (carry, &id) in carries.iter().enumerate().filter(|(carry, _)| parts.active[*carry]) {
        operands.push(of(carry).unwrap_or_else(|| b.zeros_like(id)));
    }
    for &id in &wanted {
        let TensorSpec { shape, dtype } = b.spec(id).clone();
        operands.push(b.constant(Literal::from_i64(dtype.widened(), 0), shape));
    }
    let count = operands.len();
    for carry in 0..c {
        operands.push(call.result(b, given + carry)?);
    }
    operands.extend(slices.iter().chain(stacked.iter().chain(&histories).map(|(_, ct)| ct)));
    for number in saved {
        operands.push(call.result(b, number)?);
    }
    let slices_now = operands.len() - count;
    operands.extend(captured);
    let derivative = Control {
        carries: count as u32,
        slices: slices_now as u32,
        length: control.length,
        reverse: !control.reverse,
        ..Control::default()
    };
    let derivative = Arc::new(derivative.with_regions(vec![body]));
    // Cotangents of carries and captured values are carries of the derivative; cotangents of slices
    // are stacked.
    let targets = active_carries.into_iter().chain(wanted).chain(chosen(slices, wanted_slices));
    let mut found = Vec::new();
    for (result, target) in targets.enumerate() {
        let op = Op::control(OpCode::Scan, derivative.clone(), result);
        let found_wide = b.emit(op, &operands)?;
        found.push((target, b.cast(found_wide, b.dtype(target))?));
    }
    Ok(found)
}

/// The body of the derivative: recomputes one step, except for the outputs `saved`, then computes
/// its cotangents.
fn step(
    outer: &GraphBuilder,
    parts: &Parts<'_>,
    stacked: &[(usize, NodeId)],
    histories: &[(usize, NodeId)],
    saved: &[usize],
) -> Result<Graph> {
    let mut r = GraphBuilder::default();
    let whole = |id: &NodeId| outer.spec(*id).clone();
    let part = |id: &NodeId| {
        let spec = outer.spec(*id);
        TensorSpec { shape: spec.shape.part(1..), dtype: spec.dtype }
    };
    let ct_carries = inputs(&mut r, chosen(parts.carries, &parts.active).iter().map(whole));
    let summed = |id: &NodeId| {
        let spec = outer.spec(*id);
        TensorSpec { shape: spec.shape.clone(), dtype: spec.dtype.widened() }
    };
    let sums = inputs(&mut r, chosen(parts.captured, parts.wanted_captured).iter().map(summed));
    let carries = inputs(&mut r, parts.carries.iter().map(whole));
    let slices = inputs(&mut r, parts.slices.iter().map(part));
    let ct_stacked = inputs(&mut r, stacked.iter().map(|(_, ct)| part(ct)));
    let ct_histories = inputs(&mut r, histories.iter().map(|(_, ct)| part(ct)));
    let region = &parts.control.regions[0];
    let known = inputs(&mut r, saved.iter().map(|&n| region.spec(region.outputs()[n]).clone()));
    let captured = inputs(&mut r, parts.captured.iter().map(whole));
    let taken = [&carries[..], &slices, &captured].concat();
    let given = r.inline(region, &taken)?;
    let mut outputs = chosen(&given[..parts.carries.len()], &parts.active);
    outputs.extend(stacked.iter().map(|(number, _)| given[*number]));
    let cts = [&ct_carries[..], &ct_stacked].concat();
    let mut wrt = chosen(&carries, &parts.active);
    let (first_sum, first_slice) = (wrt.len(), wrt.len() + sums.len());
    wrt.extend(chosen(&captured, parts.wanted_captured));
    wrt.extend(chosen(&slices, parts.wanted_slices));
    let graph = cotangents(&r.finish([]), &outputs, &cts, &wrt)?;
    let saved: Vec<NodeId> = saved.iter().map(|&n| given[n]).collect();
    let graph = effects::with_values(&graph, &saved, &known);
    let mut results = graph.outputs().to_vec();
    let mut r = GraphBuilder::from_graph(graph);
    for ((carry, _), ct) in histories.iter().zip(ct_histories) {
        // The history holds the initial carries of an iteration.
        let at = parts.active[..*carry].iter().filter(|active| **active).count();
        results[at] = r.add(results[at], ct)?;
    }
    for (sum, result) in sums.iter().zip(&mut results[first_sum..first_slice]) {
        let wide = r.widen(*result)?;
        *result = r.add(*sum, wide)?;
    }
    let graph = trimmed(&r.finish(results));
    effects::check(&graph)?;
    Ok(graph)
}

/// The error for an op without a derivative.
pub(crate) fn refused(op: &'static str, reason: &'static str) -> Error {
    Error::NoDerivative { op, reason }
}

//! Ops with an effect in derivatives. Reverse mode recomputes the body of a loop, a branch or a
//! checkpoint, but must not run its ops with an effect again, which might have other results. The
//! body therefore returns the values of these ops, and the derivative takes them from the call.

use crate::control::{inputs, trimmed};
use crate::{Error, Result};
use girih_ir::graph::Operands;
use girih_ir::ops::control::{Control, ControlOp};
use girih_ir::{Graph, GraphBuilder, Node, NodeId, Op, OpCode, TensorSpec};
use std::collections::HashMap;
use std::sync::Arc;

const AGAIN: &str = "the derivative needs the result of a callback with an effect, which it cannot call \
                     again; return the result from the function that is differentiated, or use \
                     pure_callback";

/// A branch or loop and its operands.
type Call = (Arc<Control>, Vec<NodeId>);

/// The outputs from position `from` on that an op with an effect computes in any region.
pub(crate) fn outputs(control: &Control, from: usize) -> Vec<usize> {
    let computed = |region: &Graph, at: usize| is_effect(region, region.outputs()[at]);
    let regions = &control.regions;
    (from..control.body().outputs().len())
        .filter(|&at| regions.iter().any(|region| computed(region, at)))
        .collect()
}

/// The numbers of the results of a branch, scan or call that its reverse-mode derivative reads,
/// other than those that are differentiated: the values of ops with an effect, the histories of a
/// scan, and what a checkpoint saves.
pub fn results_read(code: OpCode, control: &Control) -> Vec<usize> {
    let given = control.body().outputs().len();
    let read = |code, rest: std::ops::Range<usize>| {
        let mut numbers = outputs(control, first(code, control));
        numbers.retain(|number| !rest.contains(number));
        numbers.extend(rest);
        numbers
    };
    match code.control() {
        Some(ControlOp::Scan) => read(ControlOp::Scan, given..control.num_results(code)),
        Some(ControlOp::Call) => read(ControlOp::Call, given - control.saves as usize..given),
        Some(ControlOp::Cond) => read(ControlOp::Cond, given..given),
        Some(ControlOp::WhileLoop) | None => Vec::new(),
    }
}

/// True if an op with an effect computes the node.
pub(crate) fn is_effect(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).op.has_effect()
}

/// The graph with `values` in place of the nodes `nodes`, and of other nodes that are the same
/// result of the same op with an effect.
pub(crate) fn with_values(graph: &Graph, nodes: &[NodeId], values: &[NodeId]) -> Graph {
    let mut new = Graph::new();
    let mut now: Vec<NodeId> = graph.ids().collect();
    let mut known: HashMap<(&Op, Operands), NodeId> = HashMap::new();
    for (id, node) in graph.nodes() {
        let inputs: Operands = node.inputs.iter().map(|i| now[i.index()]).collect();
        let at = nodes.iter().position(|n| *n == id);
        if node.op.has_effect() {
            let key = (&node.op, inputs.clone());
            match at {
                Some(at) => drop(known.insert(key, values[at])),
                None => now[id.index()] = known.get(&key).copied().unwrap_or(id),
            }
        }
        if let Some(at) = at {
            now[id.index()] = values[at];
        }
        new.record_at(graph.source(id));
        new.append(Node { inputs, ..node.clone() });
    }
    new.set_outputs(graph.outputs().iter().map(|o| now[o.index()]));
    new
}

/// A call without its ops with an effect: its regions take their values, which the call returns at
/// the indices `saved`, as operands. These follow the slices of a scan, or all operands.
///
/// Errors: [`Error::NoDerivative`] if the call does not return the values.
pub(crate) fn separated(
    code: ControlOp,
    control: &Control,
    operands: &[TensorSpec],
    saved: &[usize],
) -> Result<Control> {
    let at = position(code, control, operands.len());
    let mut regions = Vec::with_capacity(control.regions.len());
    for region in control.regions.iter() {
        let mut r = GraphBuilder::default();
        let taken = inputs(&mut r, operands[..at].iter().cloned());
        let output = |n: usize| region.outputs()[n];
        let known = inputs(&mut r, saved.iter().map(|&n| region.spec(output(n)).clone()));
        let rest = inputs(&mut r, operands[at..].iter().cloned());
        let own = saved.iter().zip(known).filter(|(n, _)| is_effect(region, output(**n)));
        let values: HashMap<NodeId, NodeId> = own.map(|(&n, value)| (output(n), value)).collect();
        let outputs = without_effects(&mut r, region, &[taken, rest].concat(), &values)?;
        let region = trimmed(&r.finish(outputs));
        check(&region)?;
        regions.push(region);
    }
    let slices = if code == ControlOp::Scan { saved.len() as u32 } else { 0 };
    Ok(Control { slices: control.slices + slices, ..control.with_regions(regions) })
}

/// Appends a region without its ops with an effect, whose values are known by node. Branches and
/// loops take the values of the ops within them.
fn without_effects(
    r: &mut GraphBuilder,
    region: &Graph,
    arguments: &[NodeId],
    values: &HashMap<NodeId, NodeId>,
) -> Result<Vec<NodeId>> {
    let mut now: Vec<NodeId> = Vec::with_capacity(region.len());
    let mut arguments = arguments.iter();
    let mut made: HashMap<(Op, &[NodeId]), Option<Call>> = HashMap::new();
    for (id, node) in region.nodes() {
        if node.op.takes_argument() {
            now.push(*arguments.next().expect("all are given"));
            continue;
        }
        let mut inputs: Operands = node.inputs.iter().map(|i| now[i.index()]).collect();
        let mut op = node.op.clone();
        match node.op.as_control().filter(|_| node.op.has_effect()) {
            Some((result, control)) => {
                let key = (node.op.with_result(0), &node.inputs[..]);
                if !made.contains_key(&key) {
                    let new = inner(r, region, node, control, &inputs, values)?;
                    made.insert(key.clone(), new);
                }
                if let Some((control, operands)) = &made[&key] {
                    op = Op::control(node.op.code, control.clone(), result);
                    inputs = operands.iter().copied().collect();
                }
            }
            None if values.contains_key(&id) => {
                now.push(values[&id]);
                continue;
            }
            None => {}
        }
        r.record_as(region, id);
        now.push(r.append(Node { op, inputs, spec: node.spec.clone() }));
    }
    Ok(region.outputs().iter().map(|o| now[o.index()]).collect())
}

/// A branch or loop within a region, without its ops with an effect, and its operands; `None` if
/// the region does not return their values.
fn inner(
    r: &GraphBuilder,
    region: &Graph,
    node: &Node,
    control: &Control,
    inputs: &[NodeId],
    values: &HashMap<NodeId, NodeId>,
) -> Result<Option<Call>> {
    let code = node.op.code.control().expect("the op is one of control");
    let saved = outputs(control, first(code, control));
    let value = |number: &usize| {
        let is_it = |(_, other): &(NodeId, &Node)| {
            other.op.as_control().is_some_and(|(result, _)| result == *number)
                && other.op.with_result(0) == node.op.with_result(0)
                && other.inputs == node.inputs
        };
        region.nodes().filter(is_it).find_map(|(id, _)| values.get(&id).copied())
    };
    let Some(known) = saved.iter().map(value).collect::<Option<Vec<NodeId>>>() else {
        return Ok(None);
    };
    let skip = (code == ControlOp::Cond) as usize;
    let specs = operand_specs(control, inputs[skip..].iter().map(|&id| r.spec(id)));
    let new = Arc::new(separated(code, control, &specs, &saved)?);
    let at = skip + position(code, control, specs.len());
    let (front, rest) = inputs.split_at(at);
    Ok(Some((new, [front, &known, rest].concat())))
}

/// The specs of the regions' operands: those of slices without the axis of the iterations.
pub(crate) fn operand_specs<'a>(
    control: &Control,
    operands: impl Iterator<Item = &'a TensorSpec>,
) -> Vec<TensorSpec> {
    let slices = control.carries as usize..(control.carries + control.slices) as usize;
    let spec = |(i, spec): (usize, &TensorSpec)| {
        let shape = if slices.contains(&i) { spec.shape.part(1..) } else { spec.shape.clone() };
        TensorSpec { shape, dtype: spec.dtype }
    };
    operands.enumerate().map(spec).collect()
}

/// The first output that may be the value of an op within: a scan does not stack its carries.
pub(crate) fn first(code: ControlOp, control: &Control) -> usize {
    if code == ControlOp::Scan { control.carries as usize } else { 0 }
}

/// The position of the values among the `count` operands of the regions.
pub(crate) fn position(code: ControlOp, control: &Control, count: usize) -> usize {
    match code {
        ControlOp::Scan => (control.carries + control.slices) as usize,
        _ => count,
    }
}

/// Fails if a derivative would run an op with an effect again.
///
/// Errors: [`Error::NoDerivative`].
pub(crate) fn check(graph: &Graph) -> Result<()> {
    let live = graph.live();
    match graph.nodes().find(|(id, node)| live[id.index()] && node.op.has_effect()) {
        None => Ok(()),
        Some((_, node)) => Err(Error::NoDerivative { op: node.op.name(), reason: AGAIN }),
    }
}

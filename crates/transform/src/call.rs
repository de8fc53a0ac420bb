//! Derivatives of calls: checkpoints, whose derivative recomputes the body, and functions with
//! custom derivative rules.

use crate::control::{self, Call, chosen, inputs, trimmed};
use crate::effects;
use crate::reverse::cotangents;
use crate::rules;
use crate::{Error, Result};
use girih_ir::ops::control::{CallMode, CallRules, Control};
use girih_ir::{Graph, GraphBuilder, NodeId, Op, OpCode, TensorSpec};
use std::sync::Arc;

/// The error for a call with custom rules if an operand that is not an argument of the function is
/// differentiated.
const CAPTURED: &str = "a function with its own derivative rule refers to a tensor outside that is \
                        differentiated; pass the tensor as an argument";

/// Appends the cotangents of a call's operands; returns pairs of operand and cotangent.
pub(crate) fn vjp(b: &mut GraphBuilder, call: &Call) -> Result<Vec<(NodeId, NodeId)>> {
    let (_, control) = call.node.op.as_control().expect("the op is one of control");
    match control.call_rules() {
        CallRules::Derived if control.mode == CallMode::Inline => derived(b, call, control),
        CallRules::Derived => recomputed(b, call, control),
        CallRules::Jvp(rule) => by_forward_rule(b, call, control, rule),
        CallRules::Backward(backward) => by_reverse_rule(b, call, control, backward),
        CallRules::Vjp { .. } | CallRules::Later(_) => {
            Err(control::refused("call", "rules are recorded before they are used"))
        }
    }
}

fn specs(b: &GraphBuilder, ids: &[NodeId]) -> Vec<TensorSpec> {
    ids.iter().map(|&id| b.spec(id).clone()).collect()
}

/// Differentiates the body in place. The optimiser merges the forward ops of both bodies.
fn derived(b: &mut GraphBuilder, call: &Call, control: &Control) -> Result<Vec<(NodeId, NodeId)>> {
    let saved = effects::outputs(control, 0);
    let (region, wanted) = derivative(b, call, control.body(), &saved)?;
    let operands = with_saved(b, call, &saved)?;
    Ok(wanted.into_iter().zip(b.inline(&region, &operands)?).collect())
}

/// The derivative of a body as a region. It takes the call's operands, the saved outputs of the
/// body by index, and cotangents; it returns the cotangents of the wanted operands.
fn derivative(
    b: &GraphBuilder,
    call: &Call,
    body: &Graph,
    saved: &[usize],
) -> Result<(Graph, Vec<NodeId>)> {
    let operands = &call.node.inputs;
    let mut r = GraphBuilder::default();
    let taken = inputs(&mut r, specs(b, operands));
    let known = inputs(&mut r, saved.iter().map(|&n| body.spec(body.outputs()[n]).clone()));
    let cts = inputs(&mut r, call.cotangents.iter().map(|&(_, ct)| b.spec(ct).clone()));
    let given = r.inline(body, &taken)?;
    let outputs: Vec<NodeId> = call.cotangents.iter().map(|&(n, _)| given[n]).collect();
    let wrt = chosen(&taken, &call.wanted);
    let graph = cotangents(&r.finish([]), &outputs, &cts, &wrt)?;
    let saved: Vec<NodeId> = saved.iter().map(|&n| given[n]).collect();
    let graph = trimmed(&effects::with_values(&graph, &saved, &known));
    effects::check(&graph)?;
    Ok((graph, chosen(operands, &call.wanted)))
}

/// The derivative of a checkpoint: an isolated call that recomputes the body, except for the values
/// that the checkpoint saves.
fn recomputed(
    b: &mut GraphBuilder,
    call: &Call,
    control: &Control,
) -> Result<Vec<(NodeId, NodeId)>> {
    let count = control.body().outputs().len();
    let first = count - control.saves as usize;
    let mut saved: Vec<usize> = effects::outputs(control, 0);
    saved.retain(|&number| number < first);
    saved.extend(first..count);
    let (region, wanted) = derivative(b, call, control.body(), &saved)?;
    let operands = with_saved(b, call, &saved)?;
    let isolated = Control { mode: CallMode::Isolated, ..Control::default() };
    let isolated = Arc::new(isolated.with_regions(vec![region]));
    let emit = |(result, operand): (usize, NodeId)| {
        let op = Op::control(OpCode::Call, isolated.clone(), result);
        Ok((operand, b.emit(op, &operands)?))
    };
    wanted.into_iter().enumerate().map(emit).collect()
}

/// The operands of a derivative: those of the call, its saved results, and the cotangents.
fn with_saved(b: &mut GraphBuilder, call: &Call, saved: &[usize]) -> Result<Vec<NodeId>> {
    let mut operands = call.node.inputs.to_vec();
    for &number in saved {
        operands.push(call.result(b, number)?);
    }
    operands.extend(call.cotangents.iter().map(|c| c.1));
    Ok(operands)
}

/// True if a region uses the operand.
fn refers(control: &Control, operand: usize) -> bool {
    let uses = |graph: &Graph| graph.arguments().nth(operand).map(|id| graph.live()[id.index()]);
    control.regions.iter().any(|region| uses(region) == Some(true))
}

/// Positions of the operands that the rules differentiate with respect to.
fn arguments(b: &GraphBuilder, call: &Call, control: &Control) -> Result<Vec<usize>> {
    let count = control.carries as usize;
    if (count..call.wanted.len()).any(|i| call.wanted[i] && refers(control, i)) {
        return Err(control::refused(call.node.op.name(), CAPTURED));
    }
    Ok((0..count).filter(|&i| b.dtype(call.node.inputs[i]).is_inexact()).collect())
}

/// A cotangent for each inexact result of a call, zeros if there is none.
fn all_cotangents(b: &mut GraphBuilder, call: &Call, control: &Control) -> Vec<NodeId> {
    let body = control.body();
    let mut all = Vec::new();
    let count = match control.mode {
        CallMode::Forward => body.outputs().len() - control.saves as usize,
        _ => body.outputs().len(),
    };
    for (number, &output) in body.outputs().iter().enumerate().take(count) {
        let spec = body.spec(output);
        if !spec.dtype.is_inexact() {
            continue;
        }
        let found = call.cotangents.iter().find(|(n, _)| *n == number).map(|(_, ct)| *ct);
        all.push(found.unwrap_or_else(|| {
            let zero = girih_ir::Literal::from_i64(spec.dtype, 0);
            b.constant(zero, spec.shape.clone())
        }));
    }
    all
}

/// Applies the backward part of a VJP rule. The call runs the forward part, so its last results are
/// the residuals.
fn by_reverse_rule(
    b: &mut GraphBuilder,
    call: &Call,
    control: &Control,
    backward: &Graph,
) -> Result<Vec<(NodeId, NodeId)>> {
    let by = arguments(b, call, control)?;
    let mut operands = call.node.inputs.to_vec();
    let all = control.body().outputs().len();
    for number in all - control.saves as usize..all {
        operands.push(call.result(b, number)?);
    }
    operands.extend(all_cotangents(b, call, control));
    let found = b.inline(backward, &operands)?;
    Ok(by.iter().map(|&i| call.node.inputs[i]).zip(found).collect())
}

/// Transposes a JVP rule.
fn by_forward_rule(
    b: &mut GraphBuilder,
    call: &Call,
    control: &Control,
    rule: &Graph,
) -> Result<Vec<(NodeId, NodeId)>> {
    let by = arguments(b, call, control)?;
    let operands = &call.node.inputs;
    let mut r = GraphBuilder::default();
    let taken = inputs(&mut r, specs(b, operands));
    let along = inputs(&mut r, by.iter().map(|&i| b.spec(operands[i]).clone()));
    let cts = all_cotangents(b, call, control);
    let given_cts = inputs(&mut r, specs(b, &cts));
    let all: Vec<NodeId> = taken.iter().chain(&along).copied().collect();
    let given = r.inline(rule, &all)?;
    let outputs = &given[control.body().outputs().len()..];
    let graph = trimmed(&cotangents(&r.finish([]), outputs, &given_cts, &along)?);
    let live = graph.live();
    let mut ids = graph.arguments().skip(operands.len());
    if ids.by_ref().take(by.len()).any(|id| live[id.index()]) {
        return Err(NOT_LINEAR);
    }
    // The transpose does not depend on the tangents, so any values of their specs will do.
    let tangents = by.iter().map(|&i| operands[i]);
    let all: Vec<NodeId> = operands.iter().copied().chain(tangents).chain(cts).collect();
    let found = b.inline(&graph, &all)?;
    Ok(by.iter().map(|&i| operands[i]).zip(found).collect())
}

const NOT_LINEAR: Error = Error::NoDerivative {
    op: "call",
    reason: "the rule of a custom_jvp function is not linear in the tangents, so it has no \
             transpose for reverse mode; write a rule whose tangents are linear, or use custom_vjp",
};

/// Forward mode of a call by its JVP rule: the control that runs the rule, and its operands with
/// their tangents.
///
/// Errors: [`Error::NoDerivative`] for a function with only a VJP rule, and for varying tensors
/// that the function captures.
pub(crate) fn forward_rule(
    b: &mut GraphBuilder,
    control: &Control,
    operands: &[NodeId],
    tangents: &[Option<NodeId>],
) -> Result<(Control, Vec<NodeId>)> {
    let CallRules::Jvp(rule) = control.call_rules() else {
        return Err(control::refused("call", rules::NO_FORWARD));
    };
    let count = control.carries as usize;
    if (count..tangents.len()).any(|i| tangents[i].is_some() && refers(control, i)) {
        return Err(control::refused("call", CAPTURED));
    }
    let mut all = operands.to_vec();
    for (&operand, tangent) in operands.iter().zip(tangents).take(count) {
        if b.dtype(operand).is_inexact() {
            all.push(tangent.unwrap_or_else(|| b.zeros_like(operand)));
        }
    }
    Ok((Control::default().with_regions(vec![rule.clone()]), all))
}

//! Records custom derivative rules when a derivative is taken.
//!
//! A call keeps its operands, results and id; only its regions change. In reverse mode it runs the
//! forward part of a VJP rule in place of its body ([`CallMode::Forward`]), so that the function is
//! not computed once for its value and again for its rule. When the derivative is complete, such a
//! call becomes a plain call ([`plain`]).

use crate::batch::{BatchAxis, batched_rules};
use crate::control::{Calls, active_inputs, refused};
use crate::reverse::active_nodes;
use crate::{Error, Result};
use girih_ir::ops::control::{CallMode, CallRules, Control, ControlOp, Recorded, RulesLater};
use girih_ir::{Graph, NodeId, Op, OpCode, TensorSpec};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The kind of derivative for which rules are recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Forward,
    Reverse,
}

/// Recursion limit for rules that call their own function, when they are recorded for a file.
const FILE_DEPTH: usize = 3;

pub(crate) const NO_FORWARD: &str = "a custom_vjp function has no forward-mode derivative; define it with \
                          custom_jvp, whose rule serves both modes, or use reverse mode";

fn has_rules(graph: &Graph) -> bool {
    let ruled = |op: &Op| {
        let control = op.as_control().filter(|_| op.code == OpCode::Call);
        control.is_some_and(|(_, c)| !matches!(c.call_rules(), CallRules::Derived))
    };
    graph.any_op(&ruled)
}

/// Records rules in the calls that `outputs` depend on and that depend on `wrt`. Ids do not change.
///
/// Errors: the rules' errors, and rules whose arguments or results do not match the function.
pub(crate) fn settle<'a>(
    graph: &'a Graph,
    outputs: &[NodeId],
    wrt: &[NodeId],
    mode: Mode,
) -> Result<Cow<'a, Graph>> {
    if !has_rules(graph) {
        return Ok(Cow::Borrowed(graph));
    }
    let active = active_nodes(graph, wrt);
    let mut needed = vec![false; graph.len()];
    outputs.iter().for_each(|o| needed[o.index()] = true);
    let calls = Calls::of(graph);
    let mut new = graph.clone();
    let mut done: HashSet<NodeId> = HashSet::new();
    for (id, node) in graph.nodes().rev() {
        if !needed[id.index()] {
            continue;
        }
        node.inputs.iter().for_each(|i| needed[i.index()] = true);
        let Some((_, control)) = node.op.as_control() else { continue };
        let marks: Vec<bool> = node.inputs.iter().map(|i| active[i.index()]).collect();
        let leader = calls.leader(id);
        if !marks.contains(&true) || !done.insert(leader) {
            continue;
        }
        let specs: Vec<TensorSpec> = node.inputs.iter().map(|&i| graph.spec(i).clone()).collect();
        let Some(settled) = settled(node.op.code, control, &marks, &specs, mode)? else { continue };
        let settled = Arc::new(settled);
        for &result in calls.results(leader) {
            let number = graph.node(result).op.output_index();
            new.replace_op(result, Op::control(node.op.code, settled.clone(), number));
        }
    }
    Ok(Cow::Owned(new))
}

/// Records rules in a region, for a derivative with respect to the marked inputs; `None` if nothing
/// changes.
fn region(graph: &Graph, marks: &[bool], mode: Mode) -> Result<Option<Graph>> {
    let wrt: Vec<NodeId> =
        graph.arguments().zip(marks).filter(|(_, mark)| **mark).map(|(id, _)| id).collect();
    match settle(graph, graph.outputs(), &wrt, mode)? {
        Cow::Borrowed(_) => Ok(None),
        Cow::Owned(new) => Ok(Some(new)),
    }
}

/// Records rules in the regions of a control op; `None` if nothing changes.
fn settled(
    code: OpCode,
    control: &Control,
    marks: &[bool],
    specs: &[TensorSpec],
    mode: Mode,
) -> Result<Option<Control>> {
    let inside = |from: usize, marks: &[bool]| -> Result<Option<Control>> {
        let mut changed = false;
        let mut regions = Vec::with_capacity(control.regions.len());
        for (at, graph) in control.regions.iter().enumerate() {
            let new = if at < from { None } else { region(graph, marks, mode)? };
            changed |= new.is_some();
            regions.push(new.unwrap_or_else(|| graph.clone()));
        }
        Ok(changed.then(|| control.with_regions(regions)))
    };
    match code.control().expect("the op is one of control") {
        ControlOp::Cond => inside(0, &marks[1..]),
        ControlOp::WhileLoop | ControlOp::Scan => {
            inside(control.regions.len() - 1, &active_inputs(control, marks))
        }
        ControlOp::Call => match control.call_rules() {
            CallRules::Derived => inside(0, marks),
            CallRules::Backward(_) => Ok(None),
            CallRules::Later(later) => {
                if mode == Mode::Forward && !later.rules().is_forward() {
                    return Err(refused("call", NO_FORWARD));
                }
                let rules = recorded(later, control, specs)?;
                Ok(Some(ruled(control, rules, specs, mode)?))
            }
            CallRules::Jvp(rule) if mode == Mode::Reverse => {
                let rule = Recorded::Jvp(rule.clone());
                Ok(Some(ruled(control, rule, specs, mode)?))
            }
            CallRules::Vjp { forward, backward } if mode == Mode::Reverse => {
                let (forward, backward) = (forward.clone(), backward.clone());
                Ok(Some(ruled(control, Recorded::Vjp { forward, backward }, specs, mode)?))
            }
            CallRules::Jvp(_) | CallRules::Vjp { .. } => Ok(None),
        },
    }
}

/// Records the rules for operands of these specs, and batches them by the call's batch levels.
fn recorded(later: &RulesLater, control: &Control, specs: &[TensorSpec]) -> Result<Recorded> {
    let mut of_levels = vec![specs.to_vec()];
    for level in later.levels() {
        let mut member = of_levels.last().expect("there is one").clone();
        for (spec, _) in member.iter_mut().zip(&level.marks).filter(|(_, mark)| **mark) {
            spec.shape = spec.shape.part(1..);
        }
        of_levels.push(member);
    }
    let member = of_levels.pop().expect("there is one");
    let mut rules = later.rules().record(&member).map_err(Error::Host)?;
    let results = control.body().outputs().len();
    for (level, specs) in later.levels().iter().zip(of_levels).rev() {
        let axis = BatchAxis { size: level.size, name: level.name.as_deref() };
        let carries = control.carries as usize;
        rules = batched_rules(&rules, results, &specs, &level.marks, carries, axis)?;
    }
    Ok(rules)
}

/// The call with its rules as regions.
fn ruled(control: &Control, rules: Recorded, specs: &[TensorSpec], mode: Mode) -> Result<Control> {
    let body = control.body();
    let plain = Control { later: None, ..control.clone() };
    let regions = match &rules {
        Recorded::Jvp(rule) => vec![rule.clone(), body.clone()],
        Recorded::Vjp { forward, backward } => {
            vec![forward.clone(), backward.clone(), body.clone()]
        }
    };
    let explicit = plain.with_regions(regions);
    // The op's shape rule reports mismatches.
    let specs: Vec<&TensorSpec> = specs.iter().collect();
    Op::control(OpCode::Call, Arc::new(explicit.clone()), 0).infer(&specs)?;
    match (rules, mode) {
        (Recorded::Jvp(rule), Mode::Reverse) => {
            // Reverse mode transposes the JVP rule, so differentiate calls in the rule with respect
            // to the tangents.
            let count = specs.len();
            let marks: Vec<bool> = (0..rule.arguments().count()).map(|i| i >= count).collect();
            let rule = region(&rule, &marks, mode)?.unwrap_or(rule);
            Ok(plain.with_regions(vec![rule, body.clone()]))
        }
        (Recorded::Vjp { forward, backward }, Mode::Reverse) => {
            let saves = (forward.outputs().len() - body.outputs().len()) as u32;
            let plain = Control { mode: CallMode::Forward, saves, ..plain };
            Ok(plain.with_regions(vec![backward, forward]))
        }
        _ => Ok(explicit),
    }
}

/// Turns calls that run the forward part of a rule into plain calls, once the derivative is
/// complete.
pub(crate) fn plain(graph: &mut Graph) {
    let is_forward = |op: &Op| op.as_control().is_some_and(|(_, c)| c.mode == CallMode::Forward);
    if !graph.any_op(&is_forward) {
        return;
    }
    let mut done: HashMap<*const Control, Arc<Control>> = HashMap::new();
    for id in graph.ids() {
        let op = graph.node(id).op.clone();
        let Some((result, control)) = op.as_control() else { continue };
        if !is_forward(&op) && !control.regions.iter().any(|r| r.any_op(&is_forward)) {
            continue;
        }
        let made = done.entry(Arc::as_ptr(control)).or_insert_with(|| {
            let regions = match control.mode {
                CallMode::Forward => &control.regions[1..],
                _ => &control.regions[..],
            };
            let mut regions = regions.to_vec();
            regions.iter_mut().for_each(plain);
            Arc::new(match control.mode {
                CallMode::Forward => Control::default().with_regions(regions),
                _ => control.with_regions(regions),
            })
        });
        graph.replace_op(id, Op::control(op.code, made.clone(), result));
    }
}

/// Records all rules in the graph, for a file; `None` if there are none. A rule that calls its own
/// function is recorded up to the third order; higher derivatives differentiate the body.
///
/// Errors: the errors of taking a derivative.
pub fn record_rules(graph: &Graph) -> Result<Option<Graph>> {
    let is_later = |op: &Op| op.as_control().is_some_and(|(_, c)| c.later.is_some());
    if !graph.any_op(&is_later) {
        return Ok(None);
    }
    let mut new = graph.clone();
    written(&mut new, 0)?;
    Ok(Some(new))
}

fn written(graph: &mut Graph, depth: usize) -> Result<()> {
    let mut done: HashMap<*const Control, Arc<Control>> = HashMap::new();
    for id in graph.ids() {
        let op = graph.node(id).op.clone();
        let Some((result, control)) = op.as_control() else { continue };
        let key = Arc::as_ptr(control);
        let made = match done.get(&key) {
            Some(made) => made.clone(),
            None => {
                let inputs = graph.node(id).inputs.iter();
                let specs: Vec<TensorSpec> = inputs.map(|&i| graph.spec(i).clone()).collect();
                let made = Arc::new(written_control(control, &specs, depth)?);
                done.insert(key, made.clone());
                made
            }
        };
        graph.replace_op(id, Op::control(op.code, made, result));
    }
    Ok(())
}

/// Records the rules of a call or loop for operands of these specs, and the rules in its regions.
fn written_control(
    control: &Arc<Control>,
    specs: &[TensorSpec],
    mut depth: usize,
) -> Result<Control> {
    let mut made = (**control).clone();
    if let Some(later) = made.later.take() {
        if depth < FILE_DEPTH {
            let rules = recorded(&later, control, specs)?;
            made = ruled(control, rules, specs, Mode::Forward)?;
        } else {
            made.carries = 0;
        }
        depth += 1;
    }
    let mut regions = made.regions.to_vec();
    regions.iter_mut().try_for_each(|region| written(region, depth))?;
    Ok(made.with_regions(regions))
}

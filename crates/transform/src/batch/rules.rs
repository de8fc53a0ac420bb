//! Batching of calls with custom derivative rules.

use super::regions::{BatchPosition, Batched, inputs, settled};
use super::{Batch, BatchAxis, Value, on_batch};
use crate::Result;
use girih_ir::ops::control::{CallRules, Control, Recorded, RulesLevel};
use girih_ir::{AxisSet, Graph, GraphBuilder, NodeId, OpCode, TensorSpec};
use std::sync::Arc;

impl Batch<'_> {
    /// Batches a call with custom derivative rules. All results and residuals get the batch axis.
    /// The backward part of a VJP rule sums the cotangents of unbatched operands over the batch.
    /// Rules that are recorded later are recorded for one member and then batched.
    pub(super) fn with_rules(&mut self, control: &Control, operands: &[Value]) -> Result<Batched> {
        let axis = self.axis;
        let marks: Vec<bool> = operands.iter().map(|v| v.batched).collect();
        let specs: Vec<TensorSpec> = operands.iter().map(|v| self.b.spec(v.id).clone()).collect();
        let (r, outputs) = region(control.body(), &specs, &marks, &[], axis)?;
        let body = r.finish(outputs);
        let count = body.outputs().len();
        let carries = control.carries as usize;
        let batched = |rules: Recorded| batched_rules(&rules, count, &specs, &marks, carries, axis);
        let mut control = control.clone();
        let mut regions = Vec::new();
        match control.call_rules() {
            CallRules::Derived | CallRules::Backward(_) => {}
            CallRules::Later(later) => {
                let name = axis.name.map(str::to_string);
                let later =
                    later.batched(RulesLevel { size: axis.size, name, marks: marks.clone() });
                control.later = Some(later);
            }
            CallRules::Jvp(rule) => {
                let Recorded::Jvp(rule) = batched(Recorded::Jvp(rule.clone()))? else {
                    unreachable!("a forward rule's batch is one")
                };
                regions.push(rule);
            }
            CallRules::Vjp { forward, backward } => {
                let rules = Recorded::Vjp { forward: forward.clone(), backward: backward.clone() };
                let Recorded::Vjp { forward, backward } = batched(rules)? else {
                    unreachable!("a reverse rule's batch is one")
                };
                regions.extend([forward, backward]);
            }
        }
        regions.push(body);
        let control = Arc::new(control.with_regions(regions));
        let operands = operands.iter().map(|v| v.id).collect();
        let results = vec![BatchPosition::First; count];
        Ok(Batched::Call { code: OpCode::Call, control, operands, results })
    }
}

/// A batched region whose operands have these specs, with further inputs; all outputs are batched.
fn region(
    graph: &Graph,
    specs: &[TensorSpec],
    marks: &[bool],
    further: &[(TensorSpec, bool)],
    axis: BatchAxis<'_>,
) -> Result<(GraphBuilder, Vec<NodeId>)> {
    let all: Vec<TensorSpec> =
        specs.iter().cloned().chain(further.iter().map(|f| f.0.clone())).collect();
    let marks: Vec<bool> = marks.iter().copied().chain(further.iter().map(|f| f.1)).collect();
    let (mut r, arguments) = inputs(&all, &marks);
    let given = on_batch(&mut r, graph, &arguments, axis)?;
    let all = vec![true; given.len()];
    let outputs = settled(&mut r, &given, &all, axis.size)?;
    Ok((r, outputs))
}

/// Batches the rules of a call with `results` results. `specs` are the operands' specs with the
/// batch axis; the first `carries` operands are differentiated with respect to.
pub(crate) fn batched_rules(
    rules: &Recorded,
    results: usize,
    specs: &[TensorSpec],
    marks: &[bool],
    carries: usize,
    axis: BatchAxis<'_>,
) -> Result<Recorded> {
    let inexact = |i: &usize| specs[*i].dtype.is_inexact();
    let by: Vec<usize> = (0..carries).filter(inexact).collect();
    match rules {
        Recorded::Jvp(rule) => {
            let along: Vec<(TensorSpec, bool)> =
                by.iter().map(|&i| (specs[i].clone(), marks[i])).collect();
            let (r, outputs) = region(rule, specs, marks, &along, axis)?;
            Ok(Recorded::Jvp(r.finish(outputs)))
        }
        Recorded::Vjp { forward, backward } => {
            let (r, outputs) = region(forward, specs, marks, &[], axis)?;
            let forward = r.finish(outputs);
            let given = forward.outputs();
            let whole = |&o: &NodeId| (forward.spec(o).clone(), true);
            let mut further: Vec<(TensorSpec, bool)> = given[results..].iter().map(whole).collect();
            let of_results = given[..results].iter().map(whole);
            further.extend(of_results.filter(|(s, _)| s.dtype.is_inexact()));
            let (mut r, mut outputs) = region(backward, specs, marks, &further, axis)?;
            for (output, _) in outputs.iter_mut().zip(&by).filter(|(_, i)| !marks[**i]) {
                *output = r.sum(*output, AxisSet::one(0), false)?;
            }
            Ok(Recorded::Vjp { forward, backward: r.finish(outputs) })
        }
    }
}

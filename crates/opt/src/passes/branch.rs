//! Inlines control ops whose execution is known at compile time. A `cond` on a literal becomes its
//! selected branch, and a `call` that is not isolated becomes its body. A `while_loop` whose
//! condition is the literal false becomes its carries, and so does a `scan` of length 0.
//!
//! Laws. Never worse: the inlined ops would have run anyway. Terminates: each change removes a
//! control op, and regions are finite. Exact: the same ops on the same operands.

use crate::Pass;
use girih_ir::graph::Operands;
use girih_ir::ops::control::{CallMode, ControlOp};
use girih_ir::{Graph, GraphBuilder, Literal, Node, NodeId, Op, Result};
use rustc_hash::FxHashMap;

/// The pass that this module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Branch;

impl Pass for Branch {
    fn name(&self) -> &str {
        "branch"
    }

    fn run(&self, graph: &Graph) -> Result<Option<Graph>> {
        // The inlined results of each call, so that all result nodes share one copy.
        let mut known: FxHashMap<(Op, Operands), Vec<NodeId>> = FxHashMap::default();
        let is_control = |_: &Graph, node: &Node| node.op.as_control().is_some();
        graph.rewrite_if(is_control, |b, node| {
            let Some((result, control)) = node.op.as_control() else { return Ok(None) };
            let (carries, given) = (control.carries as usize, control.body().outputs().len());
            let mut inlined = |b: &mut GraphBuilder, region: &Graph, operands: &[NodeId]| {
                let key = (node.op.with_result(0), node.inputs.clone());
                if let Some(outputs) = known.get(&key) {
                    return Ok(Some(outputs[result]));
                }
                let outputs = b.inline(region, operands)?;
                let output = outputs[result];
                known.insert(key, outputs);
                Ok(Some(output))
            };
            let Some(op) = node.op.code.control() else { return Ok(None) };
            match op {
                ControlOp::Cond => {
                    let Some(literal) = b.graph().literal(node.inputs[0]) else { return Ok(None) };
                    let chosen = literal.as_int().clamp(0, control.regions.len() as i128 - 1);
                    inlined(b, &control.regions[chosen as usize], &node.inputs[1..])
                }
                ControlOp::Call if control.mode == CallMode::Isolated => Ok(None),
                ControlOp::Call => inlined(b, control.body(), &node.inputs),
                ControlOp::WhileLoop => {
                    let condition = &control.regions[0];
                    let predicate = condition.literal(condition.outputs()[0]);
                    let never = predicate.is_some_and(|literal| literal.as_int() == 0);
                    Ok(never.then(|| node.inputs[result]))
                }
                ControlOp::Scan if control.length.known() != Some(0) => Ok(None),
                ControlOp::Scan if result < carries => Ok(Some(node.inputs[result])),
                ControlOp::Scan => {
                    debug_assert!(result < given + carries);
                    Ok(Some(nothing(b, node)))
                }
            }
        })
    }
}

/// A constant without elements.
fn nothing(b: &mut GraphBuilder, node: &Node) -> NodeId {
    b.constant(Literal::from_i64(node.spec.dtype, 0), node.spec.shape.clone())
}

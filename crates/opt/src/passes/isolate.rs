//! Turns ops with the hint `fuse="no"` into isolated calls, in regions too, so that they are
//! computed in kernels of their own. Leaves, and ops that call or run regions, are separate
//! already.
//!
//! Laws. Never worse: the user has requested the cost. Terminates: the new calls have no hint.
//! Exact: the same ops compute the same values.

use crate::Pass;
use girih_ir::ops::control::{CallMode, Control};
use girih_ir::{Class, Graph, GraphBuilder, Node, NodeId, Op, OpCode, Result};
use std::sync::Arc;

/// The pass that this module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Isolate;

impl Pass for Isolate {
    fn name(&self) -> &str {
        "isolate"
    }

    fn run(&self, graph: &Graph) -> Result<Option<Graph>> {
        isolate(graph)
    }
}

fn isolate(graph: &Graph) -> Result<Option<Graph>> {
    if !is_hinted(graph) {
        return Ok(None);
    }
    let hinted: Vec<NodeId> = graph.isolated().collect();
    // The results of one call are adjacent and share their regions.
    let mut last: Option<(Arc<Control>, Arc<Control>)> = None;
    graph.rewrite_nodes(|b, id, node| {
        if let Some((result, control)) = node.op.as_control() {
            if !control.regions.iter().any(is_hinted) {
                return Ok(None);
            }
            let known = last.take().filter(|(old, _)| Arc::ptr_eq(old, control));
            let (_, new) = last.insert(match known {
                Some(known) => known,
                None => (control.clone(), Arc::new(in_regions(control)?)),
            });
            return b.emit(Op::control(node.op.code, new.clone(), result), &node.inputs).map(Some);
        }
        match hinted.binary_search(&id).is_ok() && node.op.class() != Class::Leaf {
            true => alone(b, node).map(Some),
            false => Ok(None),
        }
    })
}

/// True if a node of the graph, or of a region in it, is hinted.
fn is_hinted(graph: &Graph) -> bool {
    let within = |node: &Node| {
        let control = node.op.as_control();
        control.is_some_and(|(_, control)| control.regions.iter().any(is_hinted))
    };
    graph.isolated().next().is_some() || graph.nodes().any(|(_, node)| within(node))
}

fn in_regions(control: &Control) -> Result<Control> {
    let rewritten = |region| Ok(isolate(region)?.unwrap_or_else(|| region.clone()));
    let graphs: Result<Vec<Graph>> = control.regions.iter().map(rewritten).collect();
    Ok(control.with_regions(graphs?))
}

/// An isolated call whose body is the single op.
fn alone(b: &mut GraphBuilder, node: &Node) -> Result<NodeId> {
    let mut body = GraphBuilder::default();
    let inputs: Vec<NodeId> = node.inputs.iter().map(|&i| body.input(b.spec(i).clone())).collect();
    let result = body.emit(node.op.clone(), &inputs)?;
    let control = Control { mode: CallMode::Isolated, ..Control::default() };
    let control = Arc::new(control.with_regions(vec![body.finish([result])]));
    b.emit(Op::control(OpCode::Call, control, 0), &node.inputs)
}

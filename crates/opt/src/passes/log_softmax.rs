//! `log(softmax(x))` becomes `log_softmax(x)`, which does not underflow to -inf.
//!
//! Laws. Never worse: one composite replaces a composite and a logarithm. Terminates: each rewrite
//! removes a logarithm. Not exact, on purpose: the result is more accurate, so this pass has its
//! own switch. It runs before decomposition, which hides the pattern.

use crate::Pass;
use girih_ir::{Graph, Node, Op, OpCode};

/// The pass that this module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSoftmax;

impl Pass for LogSoftmax {
    fn name(&self) -> &str {
        "log_softmax"
    }

    fn run(&self, graph: &Graph) -> girih_ir::Result<Option<Graph>> {
        graph.rewrite_if(
            |graph, node| softmax_of(graph, node).is_some(),
            |b, node| {
                let Some(softmax) = softmax_of(b.graph(), node).cloned() else { return Ok(None) };
                let op = Op::new(OpCode::LogSoftmax, softmax.op.attrs);
                b.emit(op, &softmax.inputs).map(Some)
            },
        )
    }
}

/// The softmax of which the node is the logarithm.
fn softmax_of<'a>(graph: &'a Graph, node: &Node) -> Option<&'a Node> {
    let operand = graph.node(*node.inputs.first()?);
    let found = (node.op.code, operand.op.code) == (OpCode::Log, OpCode::Softmax);
    found.then_some(operand)
}

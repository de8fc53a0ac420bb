//! `log(softmax(x))` becomes `log_softmax(x)`, which does not underflow to -inf.
//!
//! Laws. Never worse: one composite instead of a composite and a logarithm. Terminates: each rewrite
//! removes a logarithm. Not exact, on purpose: the result is the more accurate one, so this pass
//! has its own switch. Runs before decomposition, which hides the pattern.

use crate::Pass;
use girih_ir::{Graph, Op, OpCode};

/// See the module.
pub struct LogSoftmax;

impl Pass for LogSoftmax {
    fn name(&self) -> &'static str {
        "log_softmax"
    }

    fn run(&self, graph: &Graph) -> girih_ir::Result<Option<Graph>> {
        graph.rewrite(|b, node| {
            if node.op.code != OpCode::Log {
                return Ok(None);
            }
            let softmax = b.graph().node(node.inputs[0]).clone();
            if softmax.op.code != OpCode::Softmax {
                return Ok(None);
            }
            let op = Op::new(OpCode::LogSoftmax, softmax.op.attrs);
            b.emit(op, &softmax.inputs).map(Some)
        })
    }
}

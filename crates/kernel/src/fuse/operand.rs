//! Operands of GEMMs. Integers may be stored in a narrower dtype than the dtype in which they are
//! multiplied, so that a cast before a GEMM costs neither a pass nor memory.

use super::FusionOptions;
use girih_ir::{Class, Graph, Node, NodeId, OpCode};

/// Whether a node is a cast of integers to a wider dtype, which a GEMM applies as it reads.
pub(super) fn extends(graph: &Graph, node: &Node) -> bool {
    if node.op.code != OpCode::Cast {
        return false;
    }
    let (from, to) = (graph.spec(node.inputs[0]).dtype, node.spec.dtype);
    from.is_int() && to.is_int() && from.size() < to.size()
}

/// The value that a GEMM reads from memory for an operand, possibly through views: the operand
/// itself, or the operand of a cast that the GEMM applies.
pub(super) fn source(graph: &Graph, operand: NodeId, options: FusionOptions) -> NodeId {
    let mut id = operand;
    loop {
        let node = graph.node(id);
        match node.op.class() {
            Class::Reshape => id = node.inputs[0],
            Class::View if options.views => id = node.inputs[0],
            _ if options.elementwise && extends(graph, node) => return node.inputs[0],
            _ => return operand,
        }
    }
}

//! Constant folding on splats, which are the only constants that a program embeds. An op whose
//! operands are all splats has a splat result, so shapes of any size fold at the cost of a scalar.
//!
//! Laws. Never worse: a node becomes a constant. Terminates: a constant is never folded again.
//! Exact: only ops whose result IEEE 754 determines are folded, by the arithmetic of
//! [`girih_ir::scalar`]. `exp` for instance is not folded, since its last bit depends on the library. A NaN
//! result is not folded, since its payload is undetermined, nor is the maximum or minimum of two
//! zeros.

use crate::Pass;
use girih_ir::ops::Attrs;
use girih_ir::{Class, Graph, Literal, Node, OpCode, scalar};
use smallvec::SmallVec;

/// The pass that this module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fold;

impl Pass for Fold {
    fn name(&self) -> &str {
        "fold"
    }

    fn run(&self, graph: &Graph) -> girih_ir::Result<Option<Graph>> {
        graph.rewrite_if(
            |graph, node| fold(graph, node).is_some(),
            |b, node| {
                let value = fold(b.graph(), node);
                Ok(value.map(|value| b.constant(value, node.spec.shape.clone())))
            },
        )
    }
}

/// The value of all elements of a node, if it can be folded.
fn fold(graph: &Graph, node: &Node) -> Option<Literal> {
    if node.inputs.is_empty() {
        return None;
    }
    let literals: Option<SmallVec<[Literal; 3]>> =
        node.inputs.iter().map(|&i| graph.literal(i)).collect();
    let literals = literals?;
    match node.op.class() {
        Class::View | Class::Reshape => Some(literals[0]),
        Class::Combine => {
            let same = |l: &Literal| *l == literals[0];
            let border = match &node.op.attrs {
                Attrs::Pad(pad) => pad.1 == literals[0].bits,
                _ => true,
            };
            (border && literals.iter().all(same)).then_some(literals[0])
        }
        Class::Elementwise if is_determined(node, &literals) => {
            let value = scalar::apply(&node.op, node.spec.dtype, &literals);
            value.literal().filter(|_| !value.is_nan())
        }
        _ => None,
    }
}

/// True if IEEE 754 or integer arithmetic determines the result for these operands.
fn is_determined(node: &Node, operands: &[Literal]) -> bool {
    let zeros = match (node.op.code, operands) {
        // Devices may differ on which of 0 and -0 is larger.
        (OpCode::Maximum | OpCode::Minimum, [a, b]) => a.as_f64() == b.as_f64() && a != b,
        _ => false,
    };
    node.op.def().exact && !zeros
}

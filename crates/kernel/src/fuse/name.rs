//! Kernel names, for users who read programs and profiles: the names of the fused ops. The name of
//! a kernel of several ops is `fused_` and the names of the ops in order of computation, including
//! the reduction or GEMM: `fused_matmul_add_relu`, `fused_mul_reduce_sum`.

use girih_ir::ops::Sample;
use girih_ir::{Class, Graph, GraphBuilder, NodeId, OpCode};
use girih_sync::LazyLock;

/// The maximum length of a name; the remaining ops are counted instead of listed.
const MAX_LEN: usize = 64;

/// A composite after which kernels are named.
struct Idiom {
    /// The primitives of its decomposition, in the order in which a kernel computes them.
    codes: Vec<OpCode>,
    name: &'static str,
}

/// The composites after which kernels are named.
static IDIOMS: LazyLock<Vec<Idiom>> = LazyLock::new(|| {
    let named = OpCode::ALL.iter().filter(|code| code.def().names_kernels);
    named.flat_map(|code| code.samples()).map(|sample| Idiom::of(&sample)).collect()
});

impl Idiom {
    /// The idiom of the op in a sample.
    fn of(sample: &Sample) -> Idiom {
        let mut b = GraphBuilder::default();
        let operands = sample.inputs.iter().map(|x| b.input(x.spec().clone()));
        let operands: Vec<NodeId> = operands.collect();
        let composite = b.emit(sample.op.clone(), &operands).expect("an op takes its samples");
        let graph = b.finish([composite]);
        let primitives = graph.decomposed().expect("an op takes its samples");
        // A kernel computes each op after its operands, from the first operand to the last.
        let ordered = primitives.expect("the op is a composite").canonical().graph;
        let ops = ordered.nodes().filter(|(_, node)| node.op.class() != Class::Leaf);
        Idiom { codes: ops.map(|(_, node)| node.op.code).collect(), name: sample.op.name() }
    }
}

/// The name of a product followed by an addition. Each of the two ops is rounded. No composite
/// decomposes to these two ops.
const FMA: &str = "fma";

/// The name of a kernel that computes `ops` in this order; `fallback` if there are none.
pub(super) fn of(graph: &Graph, ops: &[NodeId], fallback: &str) -> String {
    let mut name = String::with_capacity(MAX_LEN);
    name.push_str("fused");
    let (mut at, mut words, mut last) = (0, 0, fallback);
    while at < ops.len() {
        let (word, taken) = word(graph, &ops[at..]);
        if name.len() + word.len() + 1 > MAX_LEN {
            name.push_str(&format!("_and_{}_more", ops.len() - at));
            break;
        }
        name.push('_');
        name.push_str(word);
        at += taken;
        words += 1;
        last = word;
    }
    match words {
        // The name of a single idiom has no prefix `fused_`.
        0 | 1 if last != FMA => last.to_string(),
        _ => name,
    }
}

/// The first word for a sequence of ops, and the number of ops that the word stands for.
fn word(graph: &Graph, ops: &[NodeId]) -> (&'static str, usize) {
    let code = |id: NodeId| graph.node(id).op.code;
    for Idiom { codes, name } in IDIOMS.iter() {
        if ops.len() >= codes.len() && codes.iter().zip(ops).all(|(c, &o)| *c == code(o)) {
            return (name, codes.len());
        }
    }
    if let [product, sum, ..] = *ops
        && (code(product), code(sum)) == (OpCode::Mul, OpCode::Add)
        && graph.node(sum).inputs.contains(&product)
    {
        return (FMA, 2);
    }
    let node = graph.node(ops[0]);
    // The operand makes a maximum a relu, so the name is not a property of the op.
    let zero = |&i: &NodeId| graph.literal(i).is_some_and(|l| l.is(0.0));
    match node.op.code {
        OpCode::Maximum if node.inputs.iter().any(zero) => ("relu", 1),
        _ => (node.op.name(), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primitives_of_an_idiom_are_in_the_order_of_kernels() {
        use OpCode::*;
        let idioms: Vec<(&str, &[OpCode])> = IDIOMS.iter().map(|i| (i.name, &*i.codes)).collect();
        assert_eq!(
            idioms,
            [
                ("sigmoid", &[Neg, Exp, Add, Div][..]),
                ("gelu", &[Mul, Mul, Erfc, Mul]),
                ("gelu", &[Mul, Minimum, Mul, Add, Mul, Neg, Exp, Add, Div, Mul]),
            ]
        );
    }
}

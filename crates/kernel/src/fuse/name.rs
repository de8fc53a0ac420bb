//! Kernel names: the fused ops, for people who read programs and profiles. A kernel of several ops
//! is `fused_` and their names in order of computation, including its reduction or GEMM:
//! `fused_matmul_add_relu`, `fused_mul_reduce_sum`.

use girih_ir::{Graph, NodeId, OpCode};

/// The longest name before the remaining ops are counted instead of listed.
const MAX_LEN: usize = 64;

/// Sequences of primitives that have a common name; each op uses the one before it or the first.
const IDIOMS: &[(&[OpCode], &str)] = {
    use OpCode::*;
    &[
        (&[Neg, Exp, Add, Div], "sigmoid"),
        (&[Mul, Mul, Erf, Add, Mul], "gelu"),
        (&[Mul, Mul, Add, Mul, Neg, Exp, Add, Div, Mul], "gelu"),
    ]
};

/// The name of a product followed by an addition. Each of the two ops is rounded.
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
        // A single idiom is not called fused.
        0 | 1 if last != FMA => last.to_string(),
        _ => name,
    }
}

/// The first word of a sequence of ops, and how many ops it stands for.
fn word(graph: &Graph, ops: &[NodeId]) -> (&'static str, usize) {
    let code = |id: NodeId| graph.node(id).op.code;
    for (codes, name) in IDIOMS {
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
    let zero = |&i: &NodeId| graph.literal(i).is_some_and(|l| l.is(0.0));
    match node.op.code {
        OpCode::Maximum if node.inputs.iter().any(zero) => ("relu", 1),
        _ => (node.op.name(), 1),
    }
}

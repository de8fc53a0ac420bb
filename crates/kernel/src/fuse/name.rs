//! Kernel names: what was fused, for people who read programs and profiles.

use girih_ir::{Class, Graph, NodeId, OpCode};

/// Longest name before the rest is counted instead of listed.
const MAX_LEN: usize = 64;

/// Sequences of primitives that people know under one name.
const IDIOMS: &[(&[OpCode], &str)] =
    &[(&[OpCode::Neg, OpCode::Exp, OpCode::Add, OpCode::Div], "sigmoid")];

/// The name of a kernel that computes `ops` in this order; `fallback` if there are none.
pub(super) fn of(graph: &Graph, ops: &[NodeId], fallback: &str) -> String {
    let mut name = String::with_capacity(MAX_LEN);
    let leads_with_core = ops.first().is_some_and(|&o| is_core(graph, o));
    if ops.len() > 1 && !leads_with_core {
        name.push_str("fused");
    }
    let (mut at, mut words) = (0, 0);
    while at < ops.len() {
        let (word, taken) = word(graph, &ops[at..]);
        if name.len() + word.len() + 1 > MAX_LEN {
            name.push_str(&format!("_and_{}_more", ops.len() - at));
            break;
        }
        if !name.is_empty() {
            name.push('_');
        }
        name.push_str(word);
        at += taken;
        words += 1;
    }
    match words {
        0 => fallback.to_string(),
        // One idiom is nothing fused.
        1 => name.strip_prefix("fused_").map(str::to_string).unwrap_or(name),
        _ => name,
    }
}

/// True for the ops a kernel is built around.
fn is_core(graph: &Graph, op: NodeId) -> bool {
    matches!(graph.node(op).op.class(), Class::Reduction | Class::Contraction)
}

/// The first word of a sequence of ops, and how many ops it stands for.
fn word(graph: &Graph, ops: &[NodeId]) -> (&'static str, usize) {
    let code = |id: NodeId| graph.node(id).op.code;
    for (codes, name) in IDIOMS {
        if ops.len() >= codes.len() && codes.iter().zip(ops).all(|(c, &o)| *c == code(o)) {
            return (name, codes.len());
        }
    }
    let node = graph.node(ops[0]);
    let zero = |&i: &NodeId| graph.literal(i).is_some_and(|l| l.is(0.0));
    match node.op.code {
        OpCode::Maximum if node.inputs.iter().any(zero) => ("relu", 1),
        _ => (node.op.name(), 1),
    }
}

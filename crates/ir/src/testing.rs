//! Random well-typed graphs from the registry, and regions of branches and loops, for tests of text
//! and file forms, passes and back ends. The seed determines a random graph.

mod files;
mod floats;
mod golden;
mod regions;

pub use files::random_file;
pub use floats::graph_of_floats;
pub use golden::compare_golden;
pub use regions::{region, scanned};

use crate::ops::{Attrs, Class};
use crate::{Array, DType, Graph, Node, NodeId, Op, OpCode, Shape, TensorSpec};
use smallvec::SmallVec;

/// A small pseudorandom generator (splitmix64), sufficient for tests.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`, 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.bits() % n as u64) as usize }
    }
}

const SHAPES: &[&[usize]] =
    &[&[], &[1], &[2], &[3], &[0], &[2, 3], &[3, 2], &[2, 2], &[3, 1], &[2, 1, 3], &[2, 2, 2]];

/// A random leaf with random shape, dtype and attributes.
fn leaf(rng: &mut Rng, code: OpCode) -> Option<Node> {
    let shape = Shape::from(SHAPES[rng.below(SHAPES.len())]);
    let spec = TensorSpec::new(shape, DType::ALL[rng.below(DType::ALL.len())]);
    let cx = crate::ops::fields::Context { dtype: Some(spec.dtype), ..Default::default() };
    let mut attrs = code.blank_attrs();
    let _ = attrs.fields_mut(&mut |_, field| {
        field.arbitrary(cx, &mut |n| rng.below(n));
        Ok::<(), ()>(())
    });
    if code == OpCode::Constant && rng.below(3) == 0 {
        attrs = Attrs::None;
    }
    let node = Node { op: Op::new(code, attrs), inputs: SmallVec::new(), spec };
    crate::graph::verify_leaf(&node).is_ok().then_some(node)
}

/// Appends one of the op's samples, with inputs as operands.
fn push_sample(graph: &mut Graph, code: OpCode, rng: &mut Rng) -> Option<NodeId> {
    let samples = code.samples();
    let sample = samples.get(rng.below(samples.len()))?;
    let operand = |x: &Array| graph.leaf(OpCode::Input.into(), x.spec().clone());
    let inputs: SmallVec<[NodeId; 3]> = sample.inputs.iter().map(operand).collect();
    graph.push(sample.op.clone(), &inputs).ok()
}

/// Appends a node of the op with random operands of the graph and random attributes, if `tries`
/// attempts find one. Every hundredth attempt uses one of the op's samples, since some ops accept
/// almost no random operands.
pub fn push_random(graph: &mut Graph, code: OpCode, rng: &mut Rng, tries: usize) -> Option<NodeId> {
    let def = code.def();
    for i in 1..=tries {
        if def.class == Class::Leaf {
            if let Some(node) = leaf(rng, code) {
                return Some(graph.append(node));
            }
            continue;
        }
        if i % 100 == 0
            && let Some(id) = push_sample(graph, code, rng)
        {
            return Some(id);
        }
        let most = def.arity.1.min(def.arity.0 + 2);
        let count = def.arity.0 + rng.below(most - def.arity.0 + 1);
        if graph.is_empty() {
            return None;
        }
        let inputs: SmallVec<[NodeId; 3]> =
            (0..count).map(|_| NodeId(rng.below(graph.len()) as u32)).collect();
        let first = inputs.first().map(|&i| graph.spec(i));
        let cx = crate::ops::fields::Context {
            rank: first.map(|spec| spec.shape.rank()),
            dtype: first.map(|spec| spec.dtype),
            result: None,
            ..Default::default()
        };
        let mut attrs = code.blank_attrs();
        let _ = attrs.fields_mut(&mut |_, field| {
            field.arbitrary(cx, &mut |n| rng.below(n));
            Ok::<(), ()>(())
        });
        let op = Op::new(code, attrs);
        let specs: SmallVec<[&TensorSpec; 3]> = inputs.iter().map(|&i| graph.spec(i)).collect();
        // Small enough for evaluation.
        let small = op.infer(&specs).is_ok_and(|spec| spec.numel() <= 4096);
        drop(specs);
        if small {
            return graph.push(op, &inputs).ok();
        }
    }
    None
}

/// Inputs of every small shape and dtype.
pub fn pool() -> Graph {
    let mut graph = Graph::new();
    for &dtype in &DType::ALL {
        for &shape in SHAPES {
            graph.leaf(OpCode::Input.into(), TensorSpec::new(shape, dtype));
        }
    }
    graph
}

/// A random graph of about `size` nodes over all ops, with some hints and with outputs that may
/// repeat.
pub fn random_graph(seed: u64, size: usize) -> Graph {
    let mut rng = Rng(seed);
    let mut graph = Graph::new();
    let leaves = [OpCode::Input, OpCode::Parameter, OpCode::Constant, OpCode::Iota];
    for i in 0..size {
        let few = graph.len() < 3 || i % 5 == 0;
        let code = match few {
            true => leaves[rng.below(leaves.len())],
            false => OpCode::ALL[rng.below(OpCode::ALL.len())],
        };
        let Some(id) = push_random(&mut graph, code, &mut rng, 20) else { continue };
        if rng.below(8) == 0 {
            graph.set_name(id, ["x", "layer 1.weight", "ü\"\\\n", "%0", ""][rng.below(5)]);
        }
        if rng.below(12) == 0 {
            graph.set_hint(id, ["fuse", "a key", "", "scope"][rng.below(4)], "no, \u{7}{}");
        }
    }
    let outputs: Vec<NodeId> = (0..rng.below(4))
        .filter(|_| !graph.is_empty())
        .map(|_| NodeId(rng.below(graph.len()) as u32))
        .collect();
    graph.set_outputs(outputs);
    graph
}

/// Number of mutations that a test runs: `usual`, or the value of `GIRIH_MUTATIONS`.
pub fn mutations(usual: usize) -> usize {
    std::env::var("GIRIH_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Mutates bytes at a few random positions: flips, overwrites with edge values, cuts, repeats, and
/// inserts tokens.
pub fn mutate(bytes: &mut Vec<u8>, tokens: &[&[u8]], rng: &mut Rng) {
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(bytes.len());
        match rng.below(7) {
            _ if bytes.is_empty() => bytes.push(rng.bits() as u8),
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5)],
            2 => bytes.truncate(at),
            3 => {
                let end = (at + 1 + rng.below(8)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + 1 + rng.below(32)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                let to = rng.below(bytes.len());
                bytes.splice(to..to, part);
            }
            5 if !tokens.is_empty() => {
                let token = tokens[rng.below(tokens.len())];
                bytes.splice(at..at, token.iter().copied());
            }
            _ => {
                let word = [0u64, 1, u64::MAX, i64::MAX as u64, 1 << 32, 0xffff][rng.below(6)];
                let end = (at + [1, 2, 4, 8][rng.below(4)]).min(bytes.len());
                let len = end - at;
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..len]);
            }
        }
    }
}

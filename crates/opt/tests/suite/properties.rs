//! Property tests on random well-typed programs from the op registry: optimised and unoptimised
//! programs give the same bits.

use girih_ir::ops::{Attrs, AxisSet, PadDim, ScatterMode, SliceDim};
use girih_ir::{Array, Class, DType, Graph, GraphBuilder, Literal, NodeId, Op, OpCode, TensorSpec};
use girih_opt::{Law, OptOptions, PassFlag, optimize};
use girih_reference::evaluate;
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

const DTYPES: [DType; 6] = [DType::F32, DType::F32, DType::F16, DType::I32, DType::U8, DType::Bool];
const SHAPES: [&[usize]; 7] = [&[], &[3], &[2, 3], &[1, 3], &[2, 1], &[2, 3, 1], &[0, 3]];
/// Edge values that often expose wrong rewrites.
const VALUES: [f64; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    0.5,
    -3.7,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    300.0,
    1e-30,
];

/// Bytes that determine one node.
type Choice = [u8; 6];

/// Attributes of an op for an operand of this spec, from `bits`; not always valid.
fn attributes(code: OpCode, spec: &TensorSpec, bits: [u8; 2]) -> Attrs {
    let rank = spec.shape.rank();
    let axis = bits[0] % rank.max(1) as u8;
    let axes = AxisSet(bits[0] as u32 & AxisSet::all(rank).0);
    let keepdims = bits[1] & 1 == 1;
    let slice = |(i, &size): (usize, &usize)| match bits[1] >> i & 1 {
        1 if size > 1 => SliceDim { start: 1, size: size.div_ceil(2) - 1, step: 2 },
        _ => SliceDim { start: 0, size, step: 1 },
    };
    let pad = |i: usize| PadDim { low: (bits[0] >> i & 1) as usize, ..PadDim::default() };
    match code {
        OpCode::Cast => Attrs::DType(DTYPES[bits[0] as usize % DTYPES.len()]),
        OpCode::Reshape => Attrs::shape(match bits[0] % 3 {
            0 => vec![spec.numel()],
            1 => [&[1], &*spec.shape].concat(),
            _ => spec.shape.iter().copied().filter(|&d| d != 1).collect(),
        }),
        OpCode::BroadcastTo => Attrs::shape(SHAPES[bits[0] as usize % SHAPES.len()]),
        OpCode::Permute => Attrs::perm((0..rank).map(|i| (i + bits[0] as usize) % rank)),
        OpCode::Slice | OpCode::UpdateSlice => {
            Attrs::Slice(Arc::new(spec.shape.iter().enumerate().map(slice).collect()))
        }
        OpCode::Pad => Attrs::Pad(Arc::new(((0..rank).map(pad).collect(), 0))),
        OpCode::Flip => Attrs::axes(axes, false),
        OpCode::Var => Attrs::Moments { axes, keepdims, correction: 1.0.into() },
        OpCode::Gelu => Attrs::Approximate(keepdims),
        OpCode::LayerNorm => Attrs::Norm { ndims: 1, eps: 1e-5.into() },
        OpCode::ScatterAdd | OpCode::ScatterAddAlongAxis => Attrs::Scatter { axis, size: 3 },
        OpCode::Scatter | OpCode::ScatterAlongAxis => {
            Attrs::ScatterInto { axis, mode: ScatterMode::ALL[bits[1] as usize % 5] }
        }
        OpCode::Argmax | OpCode::Argmin => Attrs::axes(AxisSet::one(axis as usize), keepdims),
        OpCode::Mean | OpCode::LogSumExp => Attrs::axes(axes, keepdims),
        _ => match code.def().class {
            Class::Reduction => Attrs::axes(axes, keepdims),
            Class::Index | Class::Composite | Class::Combine => Attrs::Axis(axis),
            Class::Library => Attrs::routine(keepdims),
            _ => Attrs::None,
        },
    }
}

/// Records the op that the choice encodes, if it is well typed.
fn record(b: &mut GraphBuilder, nodes: &[NodeId], choice: Choice) -> Option<NodeId> {
    let [kind, first, second, third, bits @ ..] = choice;
    let pick = |at: u8| nodes[at as usize % nodes.len()];
    if kind % 5 == 0 {
        let dtype = DTYPES[first as usize % DTYPES.len()];
        let value = Literal::from_f64(dtype, VALUES[third as usize % VALUES.len()]);
        return Some(b.constant(value, SHAPES[second as usize % SHAPES.len()]));
    }
    let code = OpCode::ALL[kind as usize % OpCode::ALL.len()];
    // Powers of floats are the only rewrite in the table that is not exact.
    let inexact = code == OpCode::Pow && b.dtype(pick(first)).is_float();
    if code.def().class == Class::Leaf || inexact {
        return None;
    }
    let mut inputs = vec![pick(first)];
    // The other operands get the same dtype, since most ops would reject them otherwise.
    let alike: Vec<NodeId> =
        nodes.iter().copied().filter(|&n| b.dtype(n) == b.dtype(inputs[0])).collect();
    let others = [second, third].map(|at| alike[at as usize % alike.len()]);
    inputs.extend(&others[..code.def().arity.0 - 1]);
    if bits[0] % 2 == 0 && inputs.len() == 2 {
        let value = Literal::from_f64(b.dtype(inputs[0]), VALUES[third as usize % VALUES.len()]);
        inputs[1] = b.constant(value, SHAPES[second as usize % SHAPES.len()]);
    }
    match (code, code.def().class) {
        (OpCode::Where, _) => {
            let conditions = nodes.iter().copied().filter(|&n| b.dtype(n) == DType::Bool);
            let conditions: Vec<NodeId> = conditions.collect();
            inputs = vec![conditions[third as usize % conditions.len()], inputs[0], inputs[1]];
        }
        // Random values as indices would almost always be out of range.
        (_, Class::Index) => {
            let index = Literal::from_i64(DType::I32, -((third & 1) as i64));
            let x = b.shape(inputs[0]).clone();
            if matches!(code, OpCode::Scatter | OpCode::ScatterAlongAxis) && x.rank() > 0 {
                let rows = [x[bits[0] as usize % x.rank()]].as_slice().into();
                let shape = if code == OpCode::Scatter { rows } else { x };
                inputs = vec![inputs[0], b.constant(index, shape), inputs[0]];
                let attrs = attributes(code, b.spec(inputs[0]), bits);
                return b.emit(Op::new(code, attrs), &inputs).ok();
            }
            if matches!(code, OpCode::WrapIndex | OpCode::CheckLabel) {
                let index = Literal::from_i64(DType::I32, (third & 1) as i64);
                inputs[0] = b.constant(index, x);
                return b.emit(Op::new(code, Attrs::Size(2)), &inputs).ok();
            }
            let at = matches!(code, OpCode::Take | OpCode::TakeAlongAxis) as usize;
            let shape = b.shape(inputs[1 - at]).clone();
            inputs[at] = b.constant(index, shape);
        }
        _ => {}
    }
    // The sign of a computed NaN is undefined, and these ops expose it.
    if matches!(code, OpCode::Copysign | OpCode::Signbit) {
        inputs = inputs.into_iter().map(|x| without_nans(b, x)).collect();
    }
    let attrs = attributes(code, b.spec(inputs[0]), bits);
    if let (OpCode::UpdateSlice, Attrs::Slice(dims)) = (code, &attrs) {
        let part = b.slice(inputs[0], dims.to_vec()).ok()?;
        inputs[1] =
            b.emit(Op::new(OpCode::Flip, Attrs::axes(AxisSet::default(), false)), &[part]).ok()?;
    }
    b.emit(Op::new(code, attrs), &inputs).ok()
}

/// Replaces NaN by one.
fn without_nans(b: &mut GraphBuilder, x: NodeId) -> NodeId {
    let one = b.constant(Literal::from_f64(b.dtype(x), 1.0), []);
    let number = b.emit(OpCode::Eq.into(), &[x, x]).expect("equality takes every dtype");
    b.select(number, x, one).expect("the operands broadcast")
}

fn program(choices: &[Choice]) -> Graph {
    let mut b = GraphBuilder::default();
    let mut nodes = Vec::new();
    for (i, dtype) in DTYPES.into_iter().enumerate() {
        nodes.push(b.input(TensorSpec::new(SHAPES[i], dtype)));
        nodes.push(b.input(TensorSpec::new([2, 3], dtype)));
    }
    for &choice in choices {
        nodes.extend(record(&mut b, &nodes, choice));
    }
    // Most unused nodes become outputs; the others are dead.
    let uses = b.graph().use_counts();
    let unused = nodes.into_iter().filter(|id| uses[id.index()] == 0 && id.0 % 4 > 0);
    let outputs: Vec<NodeId> = unused.collect();
    b.finish(outputs)
}

fn arguments(graph: &Graph, seed: usize) -> Vec<Array> {
    // Knuth's linear congruential generator.
    let mut at = seed as u64;
    let mut value = |dtype| {
        at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Literal::from_f64(dtype, VALUES[(at >> 33) as usize % VALUES.len()])
    };
    let fill = |id| {
        let spec: &TensorSpec = graph.spec(id);
        let values: Vec<Literal> = (0..spec.numel()).map(|_| value(spec.dtype)).collect();
        Array::new(spec.clone(), values)
    };
    graph.arguments().map(fill).collect()
}

/// Equal bits; all NaNs are equal.
fn same(a: &[Array], b: &[Array]) -> bool {
    let bits = |x: &Array| -> Vec<u64> {
        x.elements().map(|e| if e.as_f64().is_nan() { u64::MAX } else { e.bits }).collect()
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.spec() == b.spec() && bits(a) == bits(b))
}

/// The number of ops but reshapes, which take no time: a sum over axes of size one becomes an addition
/// and a reshape.
fn computing(graph: &Graph) -> usize {
    let computes = |(_, node): &(NodeId, &girih_ir::Node)| {
        node.op.class() != Class::Leaf && node.op.code != OpCode::Reshape
    };
    graph.nodes().filter(computes).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn optimised_programs_have_the_same_bits(
        choices in vec(any::<Choice>(), 1..40),
        seed in 0..10_000usize,
    ) {
        let graph = program(&choices);
        let arguments = arguments(&graph, seed);
        // An index out of range is an error that optimisation may remove but not introduce.
        let Ok(expected) = evaluate(&graph, &arguments) else { return Ok(()) };
        let options = OptOptions::default().without(PassFlag::LogSoftmax);
        let optimized = optimize(&graph, options).unwrap();
        let kept: Vec<Array> =
            optimized.live_arguments.iter().map(|&i| arguments[i].clone()).collect();
        let found = evaluate(&optimized.graph, &kept).unwrap();
        let (result, plain) = (&optimized.graph, graph.decomposed().unwrap().unwrap_or(graph));
        prop_assert!(same(&expected, &found), "{expected:?}\n{found:?}\n{plain}\n{result}");
        prop_assert!(computing(result) <= computing(&plain), "{plain}\n{result}");
        let again = optimize(result, options).unwrap();
        prop_assert_eq!(&again.graph, result);
    }

    #[test]
    fn each_pass_keeps_every_bit_and_is_idempotent(
        choices in vec(any::<Choice>(), 1..40),
        seed in 0..10_000usize,
    ) {
        let graph = program(&choices);
        let arguments = arguments(&graph, seed);
        let Ok(expected) = evaluate(&graph, &arguments) else { return Ok(()) };
        for flag in PassFlag::ALL.into_iter().filter(|flag| flag.law() == Law::Exact) {
            let pass = flag.pass();
            let Some(changed) = pass.run(&graph).unwrap() else { continue };
            changed.verify().unwrap();
            let (found, name) = (evaluate(&changed, &arguments).unwrap(), pass.name());
            prop_assert!(same(&expected, &found), "{name}\n{expected:?}\n{found:?}\n{graph}");
            prop_assert_eq!(pass.run(&changed).unwrap(), None, "{} again\n{}", name, changed);
        }
    }

    #[test]
    fn reordered_matmuls_cost_less_and_are_the_same_but_for_rounding(
        sizes in vec(0..7usize, 3..8),
        batches in vec(0..3usize, 7),
        joins in vec(any::<prop::sample::Index>(), 6),
        seed in 0..10_000usize,
    ) {
        for dtype in [DType::I32, DType::F64] {
            let graph = chain(&sizes, &batches, &joins, dtype);
            let pass = PassFlag::MatmulChain.pass();
            let Some(changed) = pass.run(&graph).unwrap() else { continue };
            let clean = PassFlag::DeadCode.pass().run(&changed).unwrap().unwrap();
            clean.verify().unwrap();
            prop_assert_eq!(pass.run(&clean).unwrap(), None);
            prop_assert!(multiplications(&clean) < multiplications(&graph), "{graph}\n{clean}");
            let arguments = small_arguments(&graph, seed);
            let expected = evaluate(&graph, &arguments).unwrap();
            let found = evaluate(&clean, &arguments).unwrap();
            if dtype == DType::I32 {
                prop_assert!(same(&expected, &found), "{graph}\n{clean}");
            }
            for (a, b) in expected[0].to_f64().iter().zip(found[0].to_f64()) {
                prop_assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0), "{a} {b}\n{clean}");
            }
        }
    }
}

/// A chain of matmuls with the given sizes, multiplied in the given order; some factors are
/// batched.
fn chain(sizes: &[usize], batches: &[usize], joins: &[prop::sample::Index], dtype: DType) -> Graph {
    let mut b = GraphBuilder::default();
    let mut factors: Vec<NodeId> = Vec::new();
    for (pair, batch) in sizes.windows(2).zip(batches) {
        let batch: &[usize] = [&[][..], &[2], &[2, 1]][*batch];
        factors.push(b.input(TensorSpec::new([batch, pair].concat(), dtype)));
    }
    for join in joins.iter().take(factors.len() - 1) {
        let at = join.index(factors.len() - 1);
        let right = factors.remove(at + 1);
        factors[at] = b.matmul(factors[at], right).unwrap();
    }
    b.finish([factors[0]])
}

/// Integers small enough that a product of eight matrices neither overflows nor loses a bit in f64.
fn small_arguments(graph: &Graph, seed: usize) -> Vec<Array> {
    let fill = |(position, id): (usize, NodeId)| {
        let spec: &TensorSpec = graph.spec(id);
        let value = |i| ((i * 7 + position * 3 + seed) % 9) as i64 - 4;
        let values = (0..spec.numel()).map(|i| Literal::from_i64(spec.dtype, value(i)));
        Array::new(spec.clone(), values)
    };
    graph.arguments().enumerate().map(fill).collect()
}

fn multiplications(graph: &Graph) -> usize {
    let of = |(id, node): (NodeId, &girih_ir::Node)| match node.op.code {
        OpCode::Matmul => {
            let inner = *graph.spec(node.inputs[0]).shape.last().unwrap();
            graph.spec(id).numel() * inner
        }
        _ => 0,
    };
    graph.nodes().map(of).sum()
}

//! Values of ops at the edges of their domains.

use super::*;
use girih_ir::array::{flat, indices};
use girih_ir::ops::SliceDim;
use girih_ir::{AxisSet, DType, Element, GraphBuilder, Op, TensorSpec};

mod factors;
mod samples;

const INFINITY: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

const F32: DType = DType::F32;

fn vector(dtype: DType, elements: &[f64]) -> Array {
    Array::from_f64([elements.len()], dtype, elements)
}

/// Evaluates one op on vectors.
fn run(op: impl Into<Op>, operands: &[Array]) -> Result<Vec<f64>> {
    let mut b = GraphBuilder::default();
    let inputs: Vec<_> = operands.iter().map(|a| b.input(a.spec().clone())).collect();
    let out = b.emit(op.into(), &inputs)?;
    Ok(evaluate(&b.finish([out]), operands)?[0].to_f64())
}

/// Compares by bits, so that -0 differs from 0; all NaNs are equal.
#[track_caller]
fn check(op: impl Into<Op>, operands: &[Array], expected: &[f64]) {
    let op = op.into();
    let found = run(op.clone(), operands).unwrap();
    let bits = |v: &[f64]| v.iter().map(|x| if x.is_nan() { 1 } else { x.to_bits() }).collect();
    let (f, e): (Vec<u64>, Vec<u64>) = (bits(&found), bits(expected));
    assert_eq!(f, e, "{op:?} of {operands:?} is {found:?}, expected {expected:?}");
}

fn all(code: OpCode) -> Op {
    Op::new(code, Attrs::axes(AxisSet::all(1), false))
}

#[test]
fn integers_wrap_and_division_by_zero_is_zero() {
    let pair = |dtype, a, b| [vector(dtype, a), vector(dtype, b)];
    check(OpCode::Add, &pair(DType::I8, &[127.0], &[1.0]), &[-128.0]);
    check(OpCode::Neg, &[vector(DType::U8, &[1.0])], &[255.0]);
    check(OpCode::Abs, &[vector(DType::I8, &[-128.0])], &[-128.0]);
    let (a, b) = (&[7.0, -7.0, 7.0, -7.0, 5.0], &[2.0, 2.0, -2.0, -2.0, 0.0]);
    check(OpCode::FloorDivide, &pair(DType::I32, a, b), &[3.0, -4.0, -4.0, 3.0, 0.0]);
    check(OpCode::Remainder, &pair(DType::I32, a, b), &[1.0, 1.0, -1.0, -1.0, 0.0]);
    let (a, b) = (&[2.0, 2.0, -1.0, 1.0, 0.0, 3.0], &[10.0, -1.0, -3.0, -2.0, -1.0, 0.0]);
    check(OpCode::Pow, &pair(DType::I32, a, b), &[1024.0, 0.0, -1.0, 1.0, 0.0, 1.0]);
    check(OpCode::Pow, &pair(DType::I8, &[2.0], &[7.0]), &[-128.0]);
}

#[test]
fn floats_divide_down_as_numpy_does() {
    let a = vector(F32, &[7.0, -7.0, 1.0, -1.0, 0.0, 1.0, INFINITY]);
    let b = vector(F32, &[2.0, 2.0, 0.0, 0.0, 0.0, INFINITY, 2.0]);
    let quotients = [3.0, -4.0, INFINITY, -INFINITY, NAN, 0.0, NAN];
    check(OpCode::FloorDivide, &[a.clone(), b.clone()], &quotients);
    check(OpCode::Remainder, &[a, b], &[1.0, 1.0, NAN, NAN, NAN, 1.0, NAN]);
}

#[test]
fn nan_passes_through_extrema_and_sign() {
    let (a, b) = (vector(F32, &[NAN, 1.0, -0.0]), vector(F32, &[1.0, NAN, 0.0]));
    check(OpCode::Maximum, &[a.clone(), b.clone()], &[NAN, NAN, -0.0]);
    check(OpCode::Minimum, &[a.clone(), b], &[NAN, NAN, -0.0]);
    check(OpCode::Sign, &[a], &[NAN, 1.0, 0.0]);
    let x = vector(F32, &[1.0, NAN, 3.0, NAN]);
    check(all(OpCode::ReduceMax), std::slice::from_ref(&x), &[NAN]);
    check(all(OpCode::Argmax), std::slice::from_ref(&x), &[1.0]);
    check(all(OpCode::Argmin), &[x], &[1.0]);
    check(all(OpCode::Argmax), &[vector(F32, &[1.0, 3.0, 3.0])], &[1.0]);
}

#[test]
fn rounding_is_to_even_and_casts_saturate() {
    let x = vector(F32, &[0.5, 1.5, 2.5, -0.5, -1.7]);
    check(OpCode::Round, std::slice::from_ref(&x), &[0.0, 2.0, 2.0, -0.0, -2.0]);
    let to = |dtype| Op::new(OpCode::Cast, Attrs::DType(dtype));
    let x = vector(F32, &[1.9, -1.9, NAN, INFINITY, 300.0]);
    check(to(DType::I8), std::slice::from_ref(&x), &[1.0, -1.0, 0.0, 127.0, 127.0]);
    check(to(DType::U8), std::slice::from_ref(&x), &[1.0, 0.0, 0.0, 255.0, 255.0]);
    check(to(DType::Bool), &[x], &[1.0, 1.0, 1.0, 1.0, 1.0]);
    check(to(DType::I8), &[vector(DType::I32, &[300.0])], &[44.0]);
}

#[test]
fn half_floats_round_after_each_op_and_sum_in_f32() {
    let x = vector(DType::F16, &[2048.0, 1.0]);
    check(OpCode::Add, &[x.clone(), vector(DType::F16, &[1.0, 1.0])], &[2048.0, 2.0]);
    let many = Array::splat(TensorSpec::new([4096], DType::F16), x.get(1));
    check(all(OpCode::ReduceSum), &[many], &[4096.0]);
    let large = vector(DType::F16, &[60000.0, 60000.0]);
    check(all(OpCode::Mean), std::slice::from_ref(&large), &[60000.0]);
    check(all(OpCode::ReduceSum), &[large], &[INFINITY]);
}

#[test]
fn composites_handle_infinities_and_empty_operands() {
    let minus = vector(F32, &[-INFINITY, -INFINITY]);
    check(all(OpCode::LogSumExp), &[minus], &[-INFINITY]);
    check(all(OpCode::LogSumExp), &[vector(F32, &[INFINITY, 0.0])], &[INFINITY]);
    check(all(OpCode::LogSumExp), &[vector(F32, &[])], &[-INFINITY]);
    check(all(OpCode::Mean), &[vector(F32, &[])], &[NAN]);
    let axis = |code| Op::new(code, Attrs::Axis(0));
    check(axis(OpCode::Softmax), &[vector(F32, &[])], &[]);
    check(axis(OpCode::LogSoftmax), &[vector(F32, &[0.0, -1000.0])], &[0.0, -1000.0]);
    check(OpCode::Sigmoid, &[vector(DType::F16, &[-1000.0, 1000.0])], &[0.0, 1.0]);
    check(OpCode::Relu, &[vector(F32, &[NAN, -1.0, 2.0])], &[NAN, 0.0, 2.0]);
    let x = vector(F32, &[-1000.0, 0.0, 1000.0]);
    let ln2 = std::f32::consts::LN_2 as f64;
    check(OpCode::Softplus, &[x], &[0.0, ln2, 1000.0]);
}

#[test]
fn indices_count_from_the_end_and_may_not_leave_the_axis() {
    let x = vector(F32, &[10.0, 20.0, 30.0]);
    let take = Op::new(OpCode::Take, Attrs::Axis(0));
    check(take.clone(), &[x.clone(), vector(DType::I64, &[-1.0, 0.0])], &[30.0, 10.0]);
    for bad in [3.0, -4.0] {
        let error = run(take.clone(), &[x.clone(), vector(DType::I64, &[bad])]).unwrap_err();
        let index = (bad as i128).into();
        assert_eq!(error, Error::IndexOutOfBounds { op: "take", index, axis: 0, size: 3 });
    }
    let huge = Array::new(
        TensorSpec::new([1], DType::U64),
        [Literal { dtype: DType::U64, bits: u64::MAX }],
    );
    let error = run(take, &[x.clone(), huge]).unwrap_err();
    let index = i128::from(u64::MAX).into();
    assert_eq!(error, Error::IndexOutOfBounds { op: "take", index, axis: 0, size: 3 });
    let scatter = Op::new(OpCode::ScatterAdd, Attrs::Scatter { axis: 0, size: 2 });
    check(scatter, &[vector(DType::I64, &[1.0, -1.0, 0.0]), x], &[30.0, 30.0]);
}

#[test]
fn wide_unsigned_integers_and_shifts_keep_every_bit() {
    let number =
        |dtype, v: i128| Array::splat(TensorSpec::new([], dtype), Literal::from_int(dtype, v));
    let apply = |code: OpCode, dtype, a, b| {
        let mut builder = GraphBuilder::default();
        let spec = TensorSpec::new([], dtype);
        let inputs = [builder.input(spec.clone()), builder.input(spec)];
        let out = builder.op(code, &inputs).unwrap();
        let operands = [number(dtype, a), number(dtype, b)];
        evaluate(&builder.finish([out]), &operands).unwrap()[0].get(0).as_int()
    };
    let max = u64::MAX.into();
    assert_eq!(apply(OpCode::Add, DType::U64, max, 2), 1);
    assert_eq!(apply(OpCode::FloorDivide, DType::U64, max, 2), max / 2);
    assert_eq!(apply(OpCode::Maximum, DType::U64, max, 2), max);
    assert_eq!(apply(OpCode::Lt, DType::U64, max, 2), 0);
    assert_eq!(apply(OpCode::Pow, DType::U16, 3, 11), 3i128.pow(11) % 65536);
    assert_eq!(apply(OpCode::ShiftLeft, DType::U64, 3, 63), 1 << 63);
    assert_eq!(apply(OpCode::ShiftLeft, DType::I8, 1, 7), -128);
    assert_eq!(apply(OpCode::ShiftLeft, DType::I8, 1, 8), 0);
    assert_eq!(apply(OpCode::ShiftRight, DType::I8, -128, 100), -1);
    assert_eq!(apply(OpCode::ShiftRight, DType::U64, max, 60), 15);
    assert_eq!(apply(OpCode::ShiftRight, DType::I32, -5, 1), -3);
    assert_eq!(apply(OpCode::ShiftRight, DType::I32, 5, -1), 0);
}

#[test]
fn the_next_value_is_one_bit_away() {
    let next = |dtype, a: f64, b: f64| {
        let pair = [vector(dtype, &[a]), vector(dtype, &[b])];
        run(OpCode::Nextafter, &pair).unwrap()[0]
    };
    assert_eq!(next(DType::F64, 1.0, 2.0), 1.0 + f64::EPSILON);
    assert_eq!(next(DType::F32, 1.0, 0.0), 1.0 - f32::EPSILON as f64 / 2.0);
    assert_eq!(next(DType::F16, 65504.0, INFINITY), INFINITY);
    assert_eq!(next(DType::BF16, -1.0, -INFINITY), -1.0078125);
    assert_eq!(next(DType::F64, 0.0, -1.0), -5e-324);
    assert_eq!(next(DType::F64, -0.0, 1.0), 5e-324);
    assert_eq!(next(DType::F64, 5e-324, -1.0), 0.0);
    assert!(next(DType::F32, NAN, 1.0).is_nan());
}

#[test]
fn complex_numbers_are_added_multiplied_and_compared() {
    let mut b = GraphBuilder::default();
    let part = TensorSpec::new([2], DType::F32);
    let (re, im) = (b.input(part.clone()), b.input(part));
    let z = b.complex(re, im).unwrap();
    let axes = AxisSet::all(1);
    let (sum, square) = (b.sum(z, axes, false).unwrap(), b.mul(z, z).unwrap());
    let product = b.reduce(OpCode::ReduceProd, z, axes, false).unwrap();
    let (size, same) = (b.abs(z).unwrap(), b.eq(z, square).unwrap());
    assert!(b.lt(z, z).is_err() && b.max(z, axes, false).is_err());
    assert!(b.cast(z, DType::F32).is_err());
    let truth = b.cast(z, DType::Bool).unwrap();
    let graph = b.finish([sum, square, product, size, same, truth]);
    let parts = [vector(F32, &[3.0, 0.0]), vector(F32, &[4.0, 2.0])];
    let found = evaluate(&graph, &parts).unwrap();
    let complex = |a: &Array, i: usize| (a.get(i).complex().re, a.get(i).complex().im);
    assert_eq!(complex(&found[0], 0), (3.0, 6.0));
    assert_eq!([complex(&found[1], 0), complex(&found[1], 1)], [(-7.0, 24.0), (-4.0, 0.0)]);
    assert_eq!(complex(&found[2], 0), (-8.0, 6.0));
    assert_eq!(found[3].to_f64(), [5.0, 2.0]);
    assert_eq!((found[4].to_f64(), found[5].to_f64()), (vec![0.0, 0.0], vec![1.0, 1.0]));
}

/// Computes a node by its loop nest: reads operands by the index maps and folds over the reduced
/// dimensions.
fn by_index_maps(graph: &Graph, operands: &[Array]) -> Vec<f64> {
    let out = graph.outputs()[0];
    let (node, nest) = (graph.node(out), graph.iteration(out).unwrap());
    let dims = nest.extents.len();
    let reads: Vec<_> = nest
        .operands
        .iter()
        .zip(operands)
        .map(|(map, x)| map.strides(&x.spec().shape.strides(), dims))
        .collect();
    let mut result = vec![0.0; node.spec.numel()];
    for index in indices(&nest.extents.iter().copied().collect()) {
        let values = reads.iter().zip(operands).map(|((offset, strides), x)| {
            let along = strides.iter().zip(&index).map(|(s, &i)| s * i as isize);
            x.get((offset + along.sum::<isize>()) as usize)
        });
        let values: Vec<Element> = values.collect();
        let value = match node.op.class() {
            Class::Elementwise => scalar::apply(&node.op, node.spec.dtype, &values).as_f64(),
            _ => values.iter().map(|v| v.as_f64()).product(),
        };
        result[flat(&node.spec.shape, &index[..nest.parallel])] += value;
    }
    result
}

#[test]
fn index_maps_read_what_the_definitions_read() {
    let slice = |start, size, step| SliceDim { start, size, step };
    let counting = |shape: &[usize]| {
        let count: usize = shape.iter().product();
        Array::from_f64(shape, F32, &(0..count).map(|i| i as f64).collect::<Vec<_>>())
    };
    let x = || counting(&[2, 3, 4]);
    let slices = std::sync::Arc::new(vec![slice(1, 1, 1), slice(0, 2, 2), slice(1, 2, 2)]);
    let cases: Vec<(Op, Vec<Array>)> = vec![
        (OpCode::Sub.into(), vec![counting(&[2, 1, 3]), counting(&[4, 1])]),
        (OpCode::Neg.into(), vec![x()]),
        (Op::new(OpCode::Permute, Attrs::perm([2, 0, 1])), vec![x()]),
        (Op::new(OpCode::BroadcastTo, Attrs::shape([2, 4, 3])), vec![counting(&[4, 1])]),
        (Op::new(OpCode::Slice, Attrs::Slice(slices)), vec![x()]),
        (Op::new(OpCode::Flip, Attrs::axes(AxisSet(0b101), false)), vec![x()]),
        (Op::new(OpCode::ReduceSum, Attrs::axes(AxisSet(0b101), true)), vec![x()]),
        (Op::new(OpCode::ReduceSum, Attrs::axes(AxisSet(0b010), false)), vec![x()]),
        (OpCode::Matmul.into(), vec![counting(&[5, 1, 2, 3]), counting(&[4, 3, 2])]),
    ];
    for (op, operands) in cases {
        let mut b = GraphBuilder::default();
        let inputs: Vec<_> = operands.iter().map(|a| b.input(a.spec().clone())).collect();
        let out = b.emit(op.clone(), &inputs).unwrap();
        let graph = b.finish([out]);
        let expected = evaluate(&graph, &operands).unwrap()[0].to_f64();
        assert_eq!(by_index_maps(&graph, &operands), expected, "{op:?}");
    }
}

#[test]
fn rows_without_elements_have_results() {
    let empty = || Array::from_f64([2, 0], F32, &[]);
    let routine =
        |code: OpCode, result| Op::new(code, Attrs::Library { result, flag: false, size: 0 });
    let values = Array::from_f64([2, 3], F32, &[1., f64::NAN, -1., 0., 2., 3.]);
    check(routine(OpCode::SearchSorted, 0), &[empty(), values], &[0.; 6]);
    let codes = [OpCode::Sort, OpCode::TopK, OpCode::CumSum, OpCode::CumMax, OpCode::LogCumSumExp];
    for code in codes {
        check(routine(code, 0), &[empty()], &[]);
    }
    check(routine(OpCode::Recurrence, 0), &[empty(), empty()], &[]);
}

//! Sample operands for each differentiable op, away from the points where it has no derivative.

use girih_ir::ops::{Attrs, AxisSet, PadDim, SliceDim};
use girih_ir::reference::Array;
use girih_ir::{DType, Op, OpCode};
use std::sync::Arc;

/// An op with operands in f64 (and indices or conditions).
pub struct Sample {
    pub op: Op,
    pub inputs: Vec<Array>,
}

fn row(op: impl Into<Op>, inputs: impl Into<Vec<Array>>) -> Sample {
    Sample { op: op.into(), inputs: inputs.into() }
}

/// Numbers that are neither equal nor evenly spaced, within `low..high`.
fn spread(shape: &[usize], low: f64, high: f64) -> Array {
    let count: usize = shape.iter().product();
    let value = |i: usize| low + (high - low) * ((i as f64 + 0.5) * 0.618_033_988_75).fract();
    Array::from_f64(shape, DType::F64, &(0..count).map(value).collect::<Vec<_>>())
}

fn integers(shape: &[usize], values: &[f64]) -> Array {
    Array::from_f64(shape, DType::I64, values)
}

fn axes(code: OpCode, axes: &[usize], keepdims: bool) -> Op {
    Op::new(code, Attrs::axes(axes.iter().copied().collect(), keepdims))
}

/// The table.
pub fn samples() -> Vec<Sample> {
    let mut rows = unary();
    rows.extend(binary());
    rows.extend(reductions());
    rows.extend(views());
    rows.extend(indexing());
    rows.extend(composites());
    rows
}

fn unary() -> Vec<Sample> {
    use OpCode::*;
    let whole_line = [
        Neg, Abs, Exp, Expm1, Exp2, Sin, Cos, Atan, Sinh, Cosh, Tanh, Asinh, Erf, Relu, Sigmoid,
        LogSigmoid, Silu, Softplus,
    ];
    let positive = [Log, Log1p, Log2, Log10, Sqrt, Rsqrt, Tan];
    let below_one = [Asin, Acos, Atanh];
    let mut rows: Vec<Sample> = whole_line.map(|c| row(c, [spread(&[5], -2.0, 2.1)])).into();
    rows.extend(positive.map(|c| row(c, [spread(&[5], 0.3, 1.4)])));
    rows.extend(below_one.map(|c| row(c, [spread(&[5], -0.8, 0.85)])));
    rows.push(row(Acosh, [spread(&[5], 1.2, 3.0)]));
    rows.push(row(Op::new(Cast, Attrs::DType(DType::F64)), [spread(&[3], -1.0, 1.0)]));
    for tanh in [false, true] {
        rows.push(row(Op::new(Gelu, Attrs::Approximate(tanh)), [spread(&[5], -2.0, 2.1)]));
    }
    rows
}

fn binary() -> Vec<Sample> {
    use OpCode::*;
    let mut rows = Vec::new();
    for code in [Add, Sub, Mul, Div, Remainder, Pow, Maximum, Minimum, Atan2] {
        let left = spread(&[2, 1, 3], 0.6, 2.9);
        rows.push(row(code, [left.clone(), spread(&[2, 2, 3], 0.55, 1.95)]));
        rows.push(row(code, [left.clone(), spread(&[4, 1], 0.75, 2.15)]));
        rows.push(row(code, [spread(&[], 1.1, 1.3), left]));
    }
    let condition = Array::from_f64([3], DType::Bool, &[1.0, 0.0, 1.0]);
    rows.push(row(Where, [condition, spread(&[2, 1], -1.0, 1.0), spread(&[2, 3], -1.0, 1.0)]));
    rows
}

fn reductions() -> Vec<Sample> {
    use OpCode::*;
    let x = || spread(&[2, 3, 4], -1.5, 1.6);
    let mut rows = Vec::new();
    for code in [ReduceSum, ReduceProd, ReduceMax, ReduceMin, Mean, LogSumExp] {
        rows.push(row(axes(code, &[1], false), [x()]));
        rows.push(row(axes(code, &[0, 2], true), [x()]));
        rows.push(row(axes(code, &[0, 1, 2], false), [x()]));
        rows.push(row(axes(code, &[], false), [spread(&[3], -1.0, 1.0)]));
    }
    // Products with one and with two zeros, of even and odd length.
    for zeros in [&[0.0, 2.0, 3.0][..], &[0.0, 2.0, 0.0, 1.5], &[1.0, 0.0, 0.0, 0.0, 2.0]] {
        let x = Array::from_f64([zeros.len()], DType::F64, zeros);
        rows.push(row(axes(ReduceProd, &[0], false), [x]));
    }
    for (correction, keepdims) in [(0.0, false), (1.0, true)] {
        let axes: AxisSet = [0, 2].into_iter().collect();
        let attrs = Attrs::Moments { axes, keepdims, correction: correction.into() };
        rows.push(row(Op::new(Var, attrs), [x()]));
    }
    rows
}

fn views() -> Vec<Sample> {
    use OpCode::*;
    let x = || spread(&[2, 3, 4], -1.5, 1.6);
    let dim = |start, size, step| SliceDim { start, size, step };
    let slice = vec![dim(1, 1, 1), dim(0, 2, 2), dim(1, 0, 1)];
    let steps = vec![dim(0, 2, 1), dim(0, 2, 2), dim(1, 2, 2)];
    let width = |low, high, interior| PadDim { low, high, interior };
    let widths = vec![width(1, 0, 2), width(0, 2, 0), width(0, 0, 1)];
    vec![
        row(Op::new(Reshape, Attrs::shape([4, 6])), [x()]),
        row(Op::new(Permute, Attrs::perm([2, 0, 1])), [x()]),
        row(Op::new(BroadcastTo, Attrs::shape([2, 4, 3])), [spread(&[4, 1], -1.0, 1.0)]),
        row(Op::new(Slice, Attrs::Slice(Arc::new(slice))), [x()]),
        row(Op::new(Slice, Attrs::Slice(Arc::new(steps))), [x()]),
        row(axes(Flip, &[0, 2], false), [x()]),
        row(Op::new(Pad, Attrs::Pad(Arc::new((widths, 0)))), [x()]),
        row(Op::new(Concat, Attrs::Axis(1)), [x(), spread(&[2, 0, 4], 0.0, 1.0), x()]),
        row(Matmul, [spread(&[3, 2], -1.0, 1.0), spread(&[2, 4], -1.0, 1.0)]),
        row(Matmul, [spread(&[2, 1, 3, 2], -1.0, 1.0), spread(&[5, 2, 2], -1.0, 1.0)]),
        row(Matmul, [spread(&[1, 2], -1.0, 1.0), spread(&[3, 2, 1], -1.0, 1.0)]),
    ]
}

fn indexing() -> Vec<Sample> {
    use OpCode::*;
    let x = || spread(&[2, 3, 4], -1.5, 1.6);
    let scatter = |code, size| Op::new(code, Attrs::Scatter { axis: 1, size });
    let matrix = || integers(&[2, 2], &[0.0, 2.0, -1.0, 0.0]);
    let along = || integers(&[2, 2, 1], &[0.0, 2.0, -1.0, 2.0]);
    vec![
        row(Op::new(Take, Attrs::Axis(1)), [x(), matrix()]),
        row(Op::new(Take, Attrs::Axis(0)), [x(), integers(&[], &[1.0])]),
        row(Op::new(TakeAlongAxis, Attrs::Axis(1)), [spread(&[2, 3, 1], -1.0, 1.0), along()]),
        row(scatter(ScatterAdd, 3), [matrix(), spread(&[2, 2, 2, 3], -1.0, 1.0)]),
        row(scatter(ScatterAddAlongAxis, 3), [along(), spread(&[2, 2, 1], -1.0, 1.0)]),
    ]
}

fn composites() -> Vec<Sample> {
    use OpCode::*;
    let x = || spread(&[2, 3, 4], -1.5, 1.6);
    let norm = |ndims| Op::new(LayerNorm, Attrs::Norm { ndims, eps: 1e-3.into() });
    let affine = |shape: &[usize]| [spread(shape, 0.5, 1.5), spread(shape, -0.5, 0.6)];
    let [weight, bias] = affine(&[4]);
    let [wide_weight, wide_bias] = affine(&[3, 4]);
    let labels = || integers(&[2, 3], &[0.0, 3.0, -1.0, 1.0, -4.0, 2.0]);
    vec![
        row(Op::new(Softmax, Attrs::Axis(1)), [x()]),
        row(Op::new(LogSoftmax, Attrs::Axis(2)), [x()]),
        row(norm(1), [x()]),
        row(norm(1), [x(), weight.clone()]),
        row(norm(1), [x(), weight, bias]),
        row(norm(2), [x(), wide_weight, wide_bias]),
        row(CrossEntropy, [x(), labels()]),
    ]
}

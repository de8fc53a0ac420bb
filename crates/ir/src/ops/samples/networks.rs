//! Samples of neural network ops: windows, convolutions, poolings, norms, attention.

use super::{cube, spread};
use crate::ops::conv::{Conv, ConvDim};
use crate::ops::pool::{Pool, PoolDim};
use crate::ops::samples::Sample;
use crate::ops::window::WindowDim;
use crate::ops::{Attrs, AxisSet};
use crate::{Array, DType, Op, OpCode};
use std::sync::Arc;

pub(in crate::ops) fn windows(code: OpCode) -> Vec<Sample> {
    let dim = |extent, size, step, dilation| WindowDim { extent, size, step, dilation };
    let tables = [
        vec![dim(7, 3, 2, 1)],
        vec![dim(8, 2, 3, 1)],
        vec![dim(9, 3, 1, 3)],
        vec![dim(5, 1, 2, 4)],
        vec![dim(4, 2, 2, 1), dim(5, 3, 1, 2)],
    ];
    let row = |dims: Vec<WindowDim>| {
        let extents: Vec<usize> = dims.iter().map(|d| d.extent).collect();
        let folded = dims.iter().map(WindowDim::count).chain(dims.iter().map(|d| d.size));
        let operand: Vec<usize> = match code {
            OpCode::Windows => [2].into_iter().chain(extents).collect(),
            _ => [2].into_iter().chain(folded).collect(),
        };
        let op = Op::new(code, Attrs::Windows(Arc::new(dims)));
        Sample::new(op, [spread(&operand, (-1.0, 1.0))])
    };
    tables.into_iter().map(row).collect()
}

/// Stride, dilation, padding before and after, and extra elements of the output.
type Along = (usize, usize, usize, usize, usize);

fn conv(code: OpCode, groups: usize, dims: &[Along]) -> Op {
    let dim = |&(stride, dilation, low, high, extra): &Along| ConvDim {
        stride,
        dilation,
        low,
        high,
        extra,
    };
    let dims = dims.iter().map(dim).collect();
    Op::new(code, Attrs::Conv(Arc::new(Conv { dims, groups })))
}

fn operands(x: &[usize], w: &[usize], bias: Option<usize>) -> Vec<Array> {
    let mut operands = vec![spread(x, (-1.0, 1.1)), spread(w, (-0.9, 1.0))];
    operands.extend(bias.map(|n| spread(&[n], (-0.5, 0.6))));
    operands
}

pub(in crate::ops) fn convolutions(code: OpCode) -> Vec<Sample> {
    let row = |groups, dims: &[Along], operands| Sample::new(conv(code, groups, dims), operands);
    vec![
        row(1, &[(1, 1, 0, 0, 0)], operands(&[2, 2, 5], &[3, 2, 3], Some(3))),
        row(1, &[(2, 1, 1, 0, 0)], operands(&[1, 2, 6], &[2, 2, 2], None)),
        row(2, &[(1, 2, 2, 3, 0)], operands(&[1, 4, 4], &[2, 2, 3], Some(2))),
        row(1, &[(3, 1, 0, 0, 0)], operands(&[1, 1, 8], &[1, 1, 2], None)),
        row(1, &[(1, 1, 4, 0, 0)], operands(&[1, 1, 3], &[1, 1, 2], None)),
        row(
            1,
            &[(2, 1, 1, 1, 0), (1, 2, 0, 1, 0)],
            operands(&[1, 2, 4, 5], &[2, 2, 3, 2], Some(2)),
        ),
    ]
}

pub(in crate::ops) fn transposed(code: OpCode) -> Vec<Sample> {
    let row = |groups, dims: &[Along], operands| Sample::new(conv(code, groups, dims), operands);
    vec![
        row(1, &[(1, 1, 0, 0, 0)], operands(&[2, 2, 3], &[2, 3, 2], Some(3))),
        row(2, &[(2, 1, 1, 0, 1)], operands(&[1, 4, 3], &[4, 1, 3], Some(2))),
        row(1, &[(3, 1, 0, 0, 2)], operands(&[1, 1, 3], &[1, 1, 2], None)),
        row(1, &[(1, 2, 1, 2, 1)], operands(&[1, 1, 4], &[1, 2, 3], None)),
        row(1, &[(2, 1, 0, 1, 0), (1, 1, 1, 1, 0)], operands(&[1, 2, 2, 3], &[2, 1, 2, 3], None)),
    ]
}

pub(in crate::ops) fn poolings(code: OpCode) -> Vec<Sample> {
    let pool = |dims: &[[usize; 6]], count_padding| {
        let dim = |&[size, stride, dilation, low, high, extra]: &[usize; 6]| PoolDim {
            size,
            stride,
            dilation,
            low,
            high,
            extra,
        };
        let pool = Pool { dims: dims.iter().map(dim).collect(), count_padding };
        let op = Op::new(code, Attrs::Pool(Arc::new(pool)));
        Sample::new(op, [spread(&[2, 5, 6], (-1.0, 1.2))])
    };
    let two = [[3, 2, 1, 1, 1, 0], [2, 3, 1, 1, 0, 1]];
    let mut rows = vec![pool(&[[2, 2, 1, 0, 0, 0]], true), pool(&two, true), pool(&two, false)];
    if code == OpCode::MaxPool {
        rows.push(pool(&[[2, 1, 2, 0, 1, 0]], true));
    }
    rows
}

pub(in crate::ops) fn standardize(code: OpCode) -> Vec<Sample> {
    let over = |axes: &[usize]| {
        let axes: AxisSet = axes.iter().copied().collect();
        let op = Op::new(code, Attrs::Standardize { axes, eps: 1e-3.into() });
        Sample::new(op, [cube()])
    };
    vec![over(&[0, 2]), over(&[1])]
}

pub(in crate::ops) fn rms_norm(code: OpCode) -> Vec<Sample> {
    let root = |ndims| Op::new(code, Attrs::Norm { ndims, eps: 1e-3.into() });
    vec![
        Sample::new(root(1), [cube()]),
        Sample::new(root(2), [cube(), spread(&[3, 4], (0.5, 1.5))]),
    ]
}

pub(in crate::ops) fn attention(code: OpCode) -> Vec<Sample> {
    let op = |causal| Op::new(code, Attrs::Attention { causal, scale: 0.7.into() });
    let qkv = |q: &[usize], k: &[usize], v: &[usize]| {
        vec![spread(q, (-1.0, 1.1)), spread(k, (-0.9, 1.2)), spread(v, (-1.0, 1.0))]
    };
    let with = |mut operands: Vec<Array>, mask: Array| {
        operands.push(mask);
        operands
    };
    // The last query sees no key.
    let seen = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0];
    let seen = Array::from_f64([3, 3], DType::Bool, &seen);
    let bias = spread(&[2, 1, 3], (-0.5, 0.5));
    vec![
        Sample::new(op(false), qkv(&[2, 3], &[4, 3], &[4, 2])),
        Sample::new(op(true), qkv(&[2, 3, 2], &[1, 3, 2], &[2, 3, 1])),
        Sample::new(op(true), qkv(&[1, 4, 2, 2], &[1, 2, 3, 2], &[1, 2, 3, 2])),
        Sample::new(op(false), with(qkv(&[3, 2], &[3, 2], &[3, 2]), seen)),
        Sample::new(op(false), with(qkv(&[2, 2, 2], &[2, 3, 2], &[2, 3, 2]), bias)),
    ]
}

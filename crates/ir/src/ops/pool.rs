//! Pooling: reduces each window of the last axes to one number.

use super::rules::only;
use super::window::WindowDim;
use super::*;
use crate::{GraphBuilder, Literal, NodeId, Shape};
use std::sync::Arc;

/// One axis of a pooling.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct PoolDim {
    /// Number of elements of a window.
    pub size: usize,
    /// Distance between the starts of adjacent windows.
    pub stride: usize,
    /// Distance between adjacent elements of a window.
    pub dilation: usize,
    /// Padding before the first element.
    pub low: usize,
    /// Padding after the last element.
    pub high: usize,
    /// Elements after the padding that the last window covers; they never count.
    pub extra: usize,
}

impl PoolDim {
    fn window(&self, size: usize) -> WindowDim {
        let padded = size.saturating_add(self.low).saturating_add(self.high);
        WindowDim {
            extent: padded.saturating_add(self.extra),
            size: self.size,
            step: self.stride,
            dilation: self.dilation,
        }
    }
}

/// A pooling's attributes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Pool {
    /// The pooled axes, the last ones of the operand.
    pub dims: Vec<PoolDim>,
    /// Whether the mean includes padding.
    pub count_padding: bool,
}

fn pool_attrs(op: &Op) -> &Pool {
    let Attrs::Pool(pool) = &op.attrs else { unreachable!("the shape rule checks it") };
    pool
}

fn pool(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = call.inputs[0];
    let Attrs::Pool(pool) = &call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs windows".into() });
    };
    let invalid =
        |reason: String| Error::InvalidShape { op: call.name(), shape: spec.shape.clone(), reason };
    let Some(lead) = spec.shape.rank().checked_sub(pool.dims.len()) else {
        return Err(invalid(format!("{} axes are pooled", pool.dims.len())));
    };
    let mut shape = spec.shape.part(..lead);
    let mut padded = shape.clone();
    let sizes = (lead..spec.shape.rank()).map(|axis| spec.shape.dim(axis));
    for (i, (d, size)) in pool.dims.iter().zip(sizes).enumerate() {
        if d.size == 0 || d.stride == 0 || d.dilation == 0 {
            return Err(invalid(format!(
                "window {i} has size {}, stride {} and dilation {}; all must be at least 1",
                d.size, d.stride, d.dilation
            )));
        }
        let (extent, reach) = (size + d.low + d.high + d.extra, d.window(0).reach());
        if !extent.at_least(reach) {
            return Err(invalid(format!(
                "window {i} spans {reach} elements, more than the {extent} there are with padding"
            )));
        }
        shape.push((extent - reach).floor_div(d.stride) + 1usize);
        padded.push(extent);
    }
    padded.check(call.name(), spec.dtype)?;
    Ok(TensorSpec { shape, dtype: spec.dtype })
}

fn max(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    let ok = dtype.is_int() || dtype.is_float();
    require_dtype(call, dtype, ok, "an integer or real floating-point dtype")?;
    pool(call)
}

fn mean(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype.is_float(), "a floating-point dtype")?;
    let spec = pool(call)?;
    match pool_attrs(call.op).dims.iter().all(|d| d.dilation == 1) {
        true => Ok(spec),
        false => Err(Error::InvalidArgument {
            op: call.name(),
            reason: "the windows of a mean have no gaps: dilation must be 1".into(),
        }),
    }
}

/// The windows of the operand padded with `value`, and the axes of the window elements.
fn windows(
    b: &mut GraphBuilder,
    x: NodeId,
    pool: &Pool,
    value: Literal,
) -> Result<(NodeId, AxisSet)> {
    let (shape, n) = (b.shape(x).clone(), pool.dims.len());
    let lead = shape.rank() - n;
    let width = |d: &PoolDim| PadDim { low: d.low, high: d.high + d.extra, interior: 0 };
    let border = std::iter::repeat_n(PadDim::default(), lead).chain(pool.dims.iter().map(width));
    let border: Vec<PadDim> = border.collect();
    let padded = match border.iter().all(|w| *w == PadDim::default()) {
        true => x,
        false => b.pad(x, border, value)?,
    };
    let dims = pool.dims.iter().zip(&shape[lead..]).map(|(d, &size)| d.window(size));
    let windows = b.windows(padded, dims.collect())?;
    Ok((windows, (lead + n..lead + 2 * n).collect()))
}

fn decompose_max(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let dtype = d.b.dtype(d.inputs[0]);
    let lowest = match dtype.int_range() {
        Some((min, _)) => Literal::from_int(dtype, min),
        None => Literal::from_f64(dtype, f64::NEG_INFINITY),
    };
    let (windows, axes) = windows(d.b, d.inputs[0], pool_attrs(d.op), lowest)?;
    d.b.max(windows, axes, false)
}

/// Each cotangent goes to the first element of its window that is the maximum, or NaN: among these
/// elements, the one with the smallest number.
fn max_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (x, op) = (v.inputs[0], v.op.clone());
    let (pool, shape, dtype) = (pool_attrs(&op), v.b.shape(x).clone(), v.b.dtype(x));
    let (windows, axes) = windows(v.b, x, pool, Literal::from_f64(dtype, f64::NEG_INFINITY))?;
    let all = v.b.shape(windows).clone();
    let sizes: Vec<usize> = pool.dims.iter().map(|d| d.size).collect();
    let count: usize = sizes.iter().product();
    let number = v.b.iota([count], DType::I32, 0);
    let number = v.b.reshape(number, sizes)?;
    let best = v.b.expand_reduced(v.output, axes, &all)?;
    let (equal, undefined) = (v.b.eq(windows, best)?, v.b.isnan(windows)?);
    let mut largest = v.b.bitwise_or(equal, undefined)?;
    if pool.dims.iter().any(|d| d.low + d.high + d.extra > 0) {
        // A padding element may equal the maximum, but has no gradient.
        let spatial = shape.part(shape.rank() - pool.dims.len()..);
        let there = v.b.constant(Literal::from_i64(DType::Bool, 1), spatial);
        let (there, _) = self::windows(v.b, there, pool, Literal::from_i64(DType::Bool, 0))?;
        largest = v.b.bitwise_and(largest, there)?;
    }
    let none = v.b.scalar(DType::I32, count as f64);
    let candidates = v.b.select(largest, number, none)?;
    let first = v.b.reduce(OpCode::ReduceMin, candidates, axes, true)?;
    let chosen = v.b.eq(number, first)?;
    let ct = v.b.expand_reduced(v.ct, axes, &all)?;
    let zero = v.scalar(0.0);
    let ct = v.b.select(chosen, ct, zero)?;
    let lead = shape.rank() - pool.dims.len();
    let dims = pool.dims.iter().zip(&shape[lead..]).map(|(d, &size)| d.window(size)).collect();
    let mut ct = v.b.emit(Op::new(OpCode::FoldWindows, Attrs::Windows(Arc::new(dims))), &[ct])?;
    for (i, d) in pool.dims.iter().enumerate() {
        ct = v.b.fit_axis(ct, lead + i, d.low as isize, shape[lead + i])?;
    }
    only(ct)
}

fn decompose_mean(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let (x, pool) = (d.b.widen(d.inputs[0])?, pool_attrs(d.op));
    let shape = d.b.shape(x).clone();
    let (windows, axes) = windows(d.b, x, pool, Literal::from_i64(d.b.dtype(x), 0))?;
    let mut y = d.b.sum(windows, axes, false)?;
    let sizes = &shape[shape.rank() - pool.dims.len()..];
    let mut whole = 1.0;
    for (i, (dim, &size)) in pool.dims.iter().zip(sizes).enumerate() {
        match counts_all(dim, size, pool.count_padding) {
            true => whole *= dim.size as f64,
            false => {
                let after = pool.dims.len() - 1 - i;
                let count = counts(d.b, y, after, dim, size, pool.count_padding)?;
                y = d.b.div(y, count)?;
            }
        }
    }
    let whole = d.b.scalar_like(y, whole);
    let y = d.b.div(y, whole)?;
    d.b.cast(y, d.b.dtype(d.inputs[0]))
}

/// True if every element of every window counts.
fn counts_all(d: &PoolDim, size: usize, padding: bool) -> bool {
    let window = d.window(size);
    let used = (window.count() - 1) * d.stride + window.reach();
    match padding {
        true => used <= size + d.low + d.high,
        false => d.low == 0 && used <= size,
    }
}

/// The number of counted elements in each window along one axis, shaped to broadcast with `y`,
/// which has `after` more axes. A window of only padding has count 0, so its mean is NaN.
fn counts(
    b: &mut GraphBuilder,
    y: NodeId,
    after: usize,
    d: &PoolDim,
    size: usize,
    padding: bool,
) -> Result<NodeId> {
    let (dtype, count) = (b.dtype(y), d.window(size).count());
    let (first, end) = match padding {
        true => (0, size + d.low + d.high),
        false => (d.low, size + d.low),
    };
    let index = b.iota([count], DType::I64, 0);
    let stride = b.scalar(DType::I64, d.stride as f64);
    let start = b.mul(index, stride)?;
    let reach = b.scalar(DType::I64, d.size as f64);
    let stop = b.add(start, reach)?;
    let (first, end) = (b.scalar(DType::I64, first as f64), b.scalar(DType::I64, end as f64));
    let (start, stop) = (b.maximum(start, first)?, b.minimum(stop, end)?);
    let (counted, none) = (b.sub(stop, start)?, b.scalar(DType::I64, 0.0));
    let counted = b.maximum(counted, none)?;
    let counted = b.cast(counted, dtype)?;
    let column: Shape = std::iter::once(count).chain(std::iter::repeat_n(1, after)).collect();
    b.reshape(counted, column)
}

/// The maximum of each window (attribute `Pool`), NaN if any element is NaN. Padding is never the
/// maximum. The first of equal elements gets the gradient.
pub static MAX_POOL: OpDef = OpDef {
    factors: Factoring::Rule(factoring::windows),
    part: Some(parts::pool),
    name: "max_pool",
    doc: "The largest element of each window of the last axes.",
    class: Class::Composite,
    arity: (1, 1),
    infer: max,
    derivative: Derivative::Rule(max_vjp),
    decompose: Some(decompose_max),
    samples: samples::networks::poolings,
    python: Python::Named("max_pool2d"),
    ..OpDef::BLANK
};
/// The mean of each window (attribute `Pool`).
pub static AVG_POOL: OpDef = OpDef {
    linear: Linearity::All,
    factors: Factoring::Rule(factoring::windows),
    part: Some(parts::pool),
    name: "avg_pool",
    doc: "The mean of each window of the last axes.",
    class: Class::Composite,
    arity: (1, 1),
    infer: mean,
    derivative: Derivative::Decompose,
    decompose: Some(decompose_mean),
    samples: samples::networks::poolings,
    python: Python::Named("avg_pool2d"),
    ..OpDef::BLANK
};

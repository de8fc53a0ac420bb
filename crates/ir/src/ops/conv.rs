//! Convolutions (as in deep learning: cross-correlations) over any number of spatial axes, and
//! their transposes. They are composites, so that a backend with native convolutions can keep them.

use super::window::WindowDim;
use super::*;
use crate::{Dim, GraphBuilder, NodeId, Shape};
use smallvec::smallvec;
use std::sync::Arc;

/// One spatial axis of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ConvDim {
    /// Distance between the starts of adjacent windows.
    pub stride: usize,
    /// Distance between adjacent elements of a window.
    pub dilation: usize,
    /// Zeros before the first element.
    pub low: usize,
    /// Zeros after the last element.
    pub high: usize,
    /// Elements appended to a transposed convolution's result.
    pub extra: usize,
}

impl Default for ConvDim {
    fn default() -> Self {
        ConvDim { stride: 1, dilation: 1, low: 0, high: 0, extra: 0 }
    }
}

/// A convolution's attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Conv {
    /// The spatial axes.
    pub dims: Vec<ConvDim>,
    /// Number of groups of channels; a group's output channels read only its input channels.
    pub groups: usize,
}

impl ConvDim {
    fn window(&self, extent: usize, size: usize) -> WindowDim {
        WindowDim { extent, size, step: self.stride, dilation: self.dilation }
    }

    fn padded(&self, size: usize) -> usize {
        size.saturating_add(self.low).saturating_add(self.high)
    }

    /// Size of a transposed convolution's result along the axis; negative if the padding removes
    /// more elements than there are.
    fn transposed(&self, count: usize, size: usize) -> i128 {
        let reach = self.window(0, size).reach() as i128;
        (count as i128 - 1)
            .saturating_mul(self.stride as i128)
            .saturating_add(reach + self.extra as i128)
            - self.low as i128
            - self.high as i128
    }
}

fn conv_attrs(op: &Op) -> &Conv {
    let Attrs::Conv(conv) = &op.attrs else { unreachable!("the shape rule checks it") };
    conv
}

/// The checks that both directions share: dtypes, ranks, positive attributes.
fn parts<'a>(call: OpCall<'a>) -> Result<(&'a Conv, &'a Shape, &'a Shape)> {
    let dtype = same_dtype(call)?;
    require_dtype(call, dtype, dtype != DType::Bool, "an integer or floating-point dtype")?;
    let Attrs::Conv(conv) = &call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs strides".into() });
    };
    let (x, w) = (&call.inputs[0].shape, &call.inputs[1].shape);
    let rank = conv.dims.len() + 2;
    if x.rank() != rank || w.rank() != rank {
        return Err(mismatch(
            call,
            format!(
                "both must have {rank} axes: batch or output channels, channels, and {} spatial",
                rank - 2
            ),
        ));
    }
    let zero = |d: &ConvDim| d.stride == 0 || d.dilation == 0;
    if conv.groups == 0 || conv.dims.iter().any(zero) || w[2..].contains(&0) {
        return Err(mismatch(
            call,
            format!(
                "strides {:?}, dilations {:?}, groups {} and the kernel's sizes must be at least 1",
                conv.dims.iter().map(|d| d.stride).collect::<Vec<_>>(),
                conv.dims.iter().map(|d| d.dilation).collect::<Vec<_>>(),
                conv.groups
            ),
        ));
    }
    Ok((conv, x, w))
}

fn mismatch(call: OpCall<'_>, reason: String) -> Error {
    let (lhs, rhs) = (call.inputs[0].shape.clone(), call.inputs[1].shape.clone());
    Error::ShapeMismatch { op: call.name(), lhs, rhs, reason }
}

fn check_bias(call: OpCall<'_>, channels: usize) -> Result<()> {
    match call.inputs.get(2) {
        Some(bias) if *bias.shape != [channels] => Err(Error::InvalidShape {
            op: call.name(),
            shape: bias.shape.clone(),
            reason: format!("the bias must have one element per output channel, [{channels}]"),
        }),
        _ => Ok(()),
    }
}

fn conv(call: OpCall<'_>) -> Result<TensorSpec> {
    let (conv, x, w) = parts(call)?;
    let (channels, groups) = (x[1], conv.groups);
    if w[1].checked_mul(groups) != Some(channels) || !w[0].is_multiple_of(groups) {
        return Err(mismatch(
            call,
            format!(
                "with groups={groups} the kernel's axis 1 must be {channels} / {groups} channels and \
                 its axis 0 a multiple of {groups}"
            ),
        ));
    }
    check_bias(call, w[0])?;
    let mut shape = Shape::of_dims([x.dim(0), w.dim(0)]);
    let mut padded = x.part(..2);
    for (i, d) in conv.dims.iter().enumerate() {
        let (extent, reach) = (x.dim(2 + i) + d.low + d.high, d.window(0, w[2 + i]).reach());
        if !extent.at_least(reach) {
            return Err(mismatch(
                call,
                format!(
                    "the kernel spans {reach} elements of spatial axis {i}, more than the {extent} \
                     there are with padding"
                ),
            ));
        }
        shape.push((extent - reach).floor_div(d.stride) + 1usize);
        padded.push(extent);
    }
    padded.check(call.name(), call.inputs[0].dtype)?;
    Ok(TensorSpec { shape, dtype: call.inputs[0].dtype })
}

fn conv_transpose(call: OpCall<'_>) -> Result<TensorSpec> {
    let (conv, x, w) = parts(call)?;
    if w[0] != x[1] || !x[1].is_multiple_of(conv.groups) {
        return Err(mismatch(
            call,
            format!(
                "the kernel's axis 0 must be the first's {} channels, a multiple of groups={}",
                x[1], conv.groups
            ),
        ));
    }
    let channels = w[1].saturating_mul(conv.groups);
    check_bias(call, channels)?;
    let mut shape = Shape::of_dims([x.dim(0), channels.into()]);
    for (i, d) in conv.dims.iter().enumerate() {
        let count = x.dim(2 + i);
        if count.known().is_none() && count.at_least(1usize) {
            let reach = d.window(0, w[2 + i]).reach();
            let whole = (count - 1usize) * d.stride + reach + d.extra;
            if whole.at_least(d.low + d.high + 1) {
                shape.push(whole - (d.low + d.high));
                continue;
            }
        }
        let size = match count.get() {
            0 => 0,
            count => d.transposed(count, w[2 + i]),
        };
        match usize::try_from(size) {
            Ok(size) if size > 0 => shape.push(size),
            _ => {
                return Err(mismatch(
                    call,
                    format!("the result would have {size} elements along spatial axis {i}"),
                ));
            }
        }
    }
    Ok(TensorSpec { shape, dtype: call.inputs[0].dtype })
}

/// The windows of a padded operand `[n, c, …]` as `[n, c, positions…, kernel…]`.
fn patches(b: &mut GraphBuilder, x: NodeId, conv: &Conv, kernel: &[usize]) -> Result<NodeId> {
    let mut padded = x;
    let mut dims = Vec::with_capacity(kernel.len());
    let mut widths = vec![PadDim::default(); 2];
    for (i, (d, &size)) in conv.dims.iter().zip(kernel).enumerate() {
        dims.push(d.window(d.padded(b.shape(x)[2 + i]), size));
        widths.push(PadDim { low: d.low, high: d.high, interior: 0 });
    }
    if widths.iter().any(|w| *w != PadDim::default()) {
        let zero = crate::Literal::from_i64(b.dtype(x), 0);
        padded = b.pad(x, widths, zero)?;
    }
    b.windows(padded, dims)
}

/// A shape of `of`'s batch axis and axes of other sizes.
fn with_batch(of: &Shape, axes: impl IntoIterator<Item = usize>) -> Shape {
    std::iter::once(of.dim(0)).chain(axes.into_iter().map(Dim::from)).collect()
}

fn product(sizes: &[usize]) -> usize {
    sizes.iter().product()
}

/// One matrix product for each group: kernels `[groups, out, in * kernel]` times patches
/// `[n, groups, in * kernel, positions]`.
fn decompose_conv(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let (conv, x, w) = (conv_attrs(d.op), d.inputs[0], d.inputs[1]);
    let (xs, ws) = (d.b.shape(x).clone(), d.b.shape(w).clone());
    let n = conv.dims.len();
    let patches = patches(d.b, x, conv, &ws[2..])?;
    // With a stride of at most 2, the elements of a tap are near each other.
    let near = conv.dims.last().is_none_or(|d| d.stride <= 2);
    if ws[1] == 1 && product(&ws[2..]) <= d.b.target.max_taps && near {
        let y = by_taps(d.b, patches, w)?;
        return with_bias(d, y);
    }
    let positions = d.b.shape(patches)[2..2 + n].to_vec();
    let order: Vec<usize> = (0..2).chain(2 + n..2 + 2 * n).chain(2..2 + n).collect();
    let columns = d.b.permute(patches, &order)?;
    let shared = ws[1] * product(&ws[2..]);
    let columns =
        d.b.reshape(columns, with_batch(&xs, [conv.groups, shared, product(&positions)]))?;
    let kernel = d.b.reshape(w, [conv.groups, ws[0] / conv.groups, shared])?;
    let y = d.b.matmul(kernel, columns)?;
    let shape = with_batch(&xs, std::iter::once(ws[0]).chain(positions));
    let y = d.b.reshape(y, shape)?;
    with_bias(d, y)
}

/// With one channel per group the matrix product would have a single row, and gathering its columns
/// costs more than it saves. Instead each tap scales the shifted image, in one elementwise kernel.
/// Half floats are accumulated in f32, as in matrix products.
fn by_taps(b: &mut GraphBuilder, patches: NodeId, w: NodeId) -> Result<NodeId> {
    let (xs, ws, dtype) = (b.shape(patches).clone(), b.shape(w).clone(), b.dtype(w));
    let (n, channels) = (ws.rank() - 2, xs[1]);
    let positions = &xs[2..2 + n];
    let wide = if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
    let mut sum = None;
    for tap in 0..product(&ws[2..]) {
        let (mut image, mut weight, mut rest) = (patches, w, tap);
        for i in (0..n).rev() {
            let at = rest % ws[2 + i];
            rest /= ws[2 + i];
            image = b.slice_axis(image, 2 + n + i, at, 1)?;
            weight = b.slice_axis(weight, 2 + i, at, 1)?;
        }
        let axes = [channels, 1].into_iter().chain(positions.iter().copied());
        let image = b.reshape(image, with_batch(&xs, axes))?;
        let axes = [channels, ws[0] / channels].into_iter().chain(vec![1; n]);
        let weight = b.reshape(weight, axes.collect::<Shape>())?;
        let (image, weight) = (b.cast(image, wide)?, b.cast(weight, wide)?);
        let term = b.mul(image, weight)?;
        sum = Some(match sum {
            Some(sum) => b.add(sum, term)?,
            None => term,
        });
    }
    let y = b.cast(sum.expect("a kernel has taps"), dtype)?;
    b.reshape(y, with_batch(&xs, [ws[0]].into_iter().chain(positions.iter().copied())))
}

fn with_bias(d: &mut Decomposition<'_>, y: NodeId) -> Result<NodeId> {
    let Some(&bias) = d.inputs.get(2) else { return Ok(y) };
    let spatial = d.b.shape(y).rank() - 2;
    let column: Shape = d.b.shape(bias).iter().copied().chain(vec![1; spatial]).collect();
    let bias = d.b.reshape(bias, column)?;
    d.b.add(y, bias)
}

/// The transpose of the convolution: from `y`, which has the shape of its result, to
/// `[n, c, extents…]`.
fn transposed(
    b: &mut GraphBuilder,
    y: NodeId,
    w: NodeId,
    conv: &Conv,
    extents: &[usize],
) -> Result<NodeId> {
    match conv.dims.iter().all(|d| d.stride == 1) {
        true => by_convolution(b, y, w, conv, extents),
        false => by_folding(b, y, w, conv, extents),
    }
}

/// Without strides, the transpose is a convolution with the flipped kernel.
fn by_convolution(
    b: &mut GraphBuilder,
    y: NodeId,
    w: NodeId,
    conv: &Conv,
    extents: &[usize],
) -> Result<NodeId> {
    let (ws, n, groups) = (b.shape(w).clone(), conv.dims.len(), conv.groups);
    let (out, channels) = (ws[0] / groups, ws[1]);
    let with = |lead: &[usize]| -> Shape { lead.iter().chain(&ws[2..]).copied().collect() };
    let w = b.reshape(w, with(&[groups, out, channels]))?;
    let order: Vec<usize> = [0, 2, 1].into_iter().chain(3..3 + n).collect();
    let w = b.permute(w, &order)?;
    let w = b.reshape(w, with(&[groups * channels, out]))?;
    let flip = Op::new(OpCode::Flip, Attrs::axes((2..2 + n).collect(), false));
    let w = b.emit(flip, &[w])?;
    let mut y = y;
    let mut dims = Vec::with_capacity(n);
    for (i, (d, &extent)) in conv.dims.iter().zip(extents).enumerate() {
        let beyond = (ws[2 + i] - 1) * d.dilation;
        let (have, all) = (b.shape(y)[2 + i], extent + beyond);
        // Leave zeros at the border to the convolution's padding, which pads all axes at once.
        let (low, high) =
            match (beyond.checked_sub(d.low), (all + d.low).checked_sub(beyond + have)) {
                (Some(low), Some(high)) => (low, high),
                _ => {
                    y = b.fit_axis(y, 2 + i, d.low as isize - beyond as isize, all)?;
                    (0, 0)
                }
            };
        dims.push(ConvDim { dilation: d.dilation, low, high, ..ConvDim::default() });
    }
    b.emit(Op::new(OpCode::Conv, Attrs::Conv(Arc::new(Conv { dims, groups }))), &[y, w])
}

/// With strides, computes the patches and folds them (col2im), which avoids products with zeros.
fn by_folding(
    b: &mut GraphBuilder,
    y: NodeId,
    w: NodeId,
    conv: &Conv,
    extents: &[usize],
) -> Result<NodeId> {
    let (ys, ws, n, groups) =
        (b.shape(y).clone(), b.shape(w).clone(), conv.dims.len(), conv.groups);
    let (out, shared) = (ws[0] / groups, ws[1] * product(&ws[2..]));
    let kernel = b.reshape(w, [groups, out, shared])?;
    let kernel = b.transpose(kernel)?;
    let rows = b.reshape(y, with_batch(&ys, [groups, out, product(&ys[2..])]))?;
    let patches = b.matmul(kernel, rows)?;
    let channels = groups * ws[1];
    let axes = [channels].into_iter().chain(ws[2..].iter().copied());
    let patches = b.reshape(patches, with_batch(&ys, axes.chain(ys[2..].iter().copied())))?;
    let order: Vec<usize> = (0..2).chain(2 + n..2 + 2 * n).chain(2..2 + n).collect();
    let patches = b.permute(patches, &order)?;
    let window = |i: usize| {
        let d = &conv.dims[i];
        let reach = d.window(0, ws[2 + i]).reach();
        d.window((ys[2 + i] - 1) * d.stride + reach, ws[2 + i])
    };
    let mut x = b.fold_windows(patches, (0..n).map(window).collect())?;
    for (i, (d, &extent)) in conv.dims.iter().zip(extents).enumerate() {
        x = b.fit_axis(x, 2 + i, d.low as isize, extent)?;
    }
    Ok(x)
}

fn decompose_transpose(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let (conv, x, w) = (conv_attrs(d.op), d.inputs[0], d.inputs[1]);
    let sizes = conv.dims.iter().enumerate().map(|(i, dim)| {
        let (count, size) = (d.b.shape(x)[2 + i], d.b.shape(w)[2 + i]);
        dim.transposed(count, size) as usize
    });
    let extents: Vec<usize> = sizes.collect();
    let y = transposed(d.b, x, w, conv, &extents)?;
    with_bias(d, y)
}

/// The cotangent of a kernel: for each kernel element, the products of the operand and cotangent
/// elements that it connects, summed over batch and positions in one matrix product for each group.
fn kernel_cotangent(v: &mut Vjp<'_>, conv: &Conv) -> Result<NodeId> {
    let (x, ct) = (v.inputs[0], v.ct);
    let (cs, ws) = (v.b.shape(ct).clone(), v.b.shape(v.inputs[1]).clone());
    let (n, groups) = (conv.dims.len(), conv.groups);
    let (positions, kernel) = (&cs[2..], &ws[2..]);
    let patches = patches(v.b, x, conv, kernel)?;
    let lead = [groups, ws[1]];
    let axes = lead.iter().chain(positions).chain(kernel).copied();
    let patches = v.b.reshape(patches, with_batch(&cs, axes))?;
    // [groups, batch, positions…, channels, kernel…]
    let order = [1, 0].into_iter().chain(3..3 + n).chain([2]).chain(3 + n..3 + 2 * n);
    let patches = v.b.permute(patches, &order.collect::<Vec<_>>())?;
    let (points, shared) = (cs.dim(0) * product(positions), ws[1] * product(kernel));
    let patches = v.b.reshape(patches, Shape::of_dims([groups.into(), points, shared.into()]))?;
    let ct = v.b.reshape(ct, with_batch(&cs, [groups, ws[0] / groups, product(positions)]))?;
    let ct = v.b.permute(ct, &[1, 2, 0, 3])?;
    let ct = v.b.reshape(ct, Shape::of_dims([groups.into(), (ws[0] / groups).into(), points]))?;
    let w = v.b.matmul(ct, patches)?;
    v.b.reshape(w, ws)
}

fn conv_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let op = v.op.clone();
    let conv = conv_attrs(&op);
    let mut cotangents: Cotangents = smallvec![None; v.inputs.len()];
    if v.wanted[0] {
        let extents = v.b.shape(v.inputs[0])[2..].to_vec();
        cotangents[0] = Some(transposed(v.b, v.ct, v.inputs[1], conv, &extents)?);
    }
    if v.wanted[1] {
        cotangents[1] = Some(kernel_cotangent(v, conv)?);
    }
    if v.inputs.len() > 2 && v.wanted[2] {
        let axes = (0..v.b.shape(v.ct).rank()).filter(|&a| a != 1).collect();
        cotangents[2] = Some(v.b.sum(v.ct, axes, false)?);
    }
    Ok(cotangents)
}

/// Cross-correlation of `[n, c, …]` with kernels `[out, c / groups, …]` (attribute `Conv`), plus an
/// optional bias for each output channel.
pub static CONV: OpDef = OpDef {
    linear: Linearity::In(&[&[0, 2], &[1, 2]]),
    factors: Factoring::Rule(factoring::conv),
    part: Some(parts::conv),
    name: "conv",
    doc: "The products of kernels with all windows of a tensor, summed over channels.",
    class: Class::Composite,
    arity: (2, 3),
    infer: conv,
    derivative: Derivative::Rule(conv_vjp),
    batching: Some(Batching::Rule),
    decompose: Some(decompose_conv),
    samples: samples::networks::convolutions,
    python: Python::Named("conv2d"),
    precision: Precision::Half,
    ..OpDef::BLANK
};
/// The transpose of [`CONV`] with respect to its operand: `[n, in, …]` and kernels
/// `[in, out / groups, …]`.
pub static CONV_TRANSPOSE: OpDef = OpDef {
    linear: Linearity::In(&[&[0, 2], &[1, 2]]),
    factors: Factoring::Rule(factoring::conv_transpose),
    name: "conv_transpose",
    doc: "Kernels scaled by each element and added up where their windows lie.",
    class: Class::Composite,
    arity: (2, 3),
    infer: conv_transpose,
    derivative: Derivative::Decompose,
    batching: Some(Batching::Rule),
    decompose: Some(decompose_transpose),
    samples: samples::networks::transposed,
    python: Python::Named("conv_transpose2d"),
    precision: Precision::Half,
    ..OpDef::BLANK
};

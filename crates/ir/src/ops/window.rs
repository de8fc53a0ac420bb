//! Windows: overlapping parts of the last axes as axes of their own, and the transpose.
//! Convolutions and poolings are composed of them.

use super::rules::only;
use super::*;
use crate::index_map::windows_iteration;
use crate::{Dim, GraphBuilder, Literal, NodeId, Shape};
use std::sync::Arc;

/// The windows along one axis: window `i` holds the elements `i * step + k * dilation` for `k` in
/// `0..size`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct WindowDim {
    /// Size of the axis.
    pub extent: usize,
    /// Number of elements of a window.
    pub size: usize,
    /// Distance between the starts of adjacent windows.
    pub step: usize,
    /// Distance between adjacent elements of a window.
    pub dilation: usize,
}

impl WindowDim {
    /// Number of elements from the first to the last of a window, inclusive.
    pub fn reach(&self) -> usize {
        self.size.saturating_sub(1).saturating_mul(self.dilation).saturating_add(1)
    }

    /// Number of windows that fit in the axis.
    pub fn count(&self) -> usize {
        match self.extent.checked_sub(self.reach()) {
            Some(rest) => rest / self.step + 1,
            None => 0,
        }
    }
}

fn dims_of<'a>(call: OpCall<'a>) -> Result<&'a [WindowDim]> {
    let Attrs::Windows(dims) = &call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs windows".into() });
    };
    for (i, d) in dims.iter().enumerate() {
        let reason = if d.size == 0 || d.step == 0 || d.dilation == 0 {
            format!(
                "window {i} has size {}, step {} and dilation {}; all must be at least 1",
                d.size, d.step, d.dilation
            )
        } else if d.reach() > d.extent {
            format!(
                "window {i} spans {} elements, more than the {} of its axis",
                d.reach(),
                d.extent
            )
        } else {
            continue;
        };
        return Err(Error::InvalidArgument { op: call.name(), reason });
    }
    Ok(dims)
}

fn windows(call: OpCall<'_>) -> Result<TensorSpec> {
    let (spec, dims) = (call.inputs[0], dims_of(call)?);
    let extents = dims.iter().map(|d| d.extent);
    let lead = spec.shape.rank().checked_sub(dims.len());
    let Some(lead) = lead.filter(|&n| spec.shape[n..].iter().copied().eq(extents)) else {
        return Err(Error::InvalidShape {
            op: call.name(),
            shape: spec.shape.clone(),
            reason: format!(
                "the last axes must have the sizes {:?}",
                dims.iter().map(|d| d.extent).collect::<Vec<_>>()
            ),
        });
    };
    let counts = dims.iter().map(WindowDim::count);
    let sizes = dims.iter().map(|d| d.size);
    let shape = spec.shape.dims().take(lead).chain(counts.chain(sizes).map(Dim::from)).collect();
    Ok(TensorSpec { shape, dtype: spec.dtype })
}

fn fold(call: OpCall<'_>) -> Result<TensorSpec> {
    let (spec, dims) = (call.inputs[0], dims_of(call)?);
    require_dtype(call, spec.dtype, spec.dtype != DType::Bool, "numbers to add")?;
    let expected = dims.iter().map(WindowDim::count).chain(dims.iter().map(|d| d.size));
    let lead = spec.shape.rank().checked_sub(2 * dims.len());
    let Some(lead) = lead.filter(|&n| spec.shape[n..].iter().copied().eq(expected.clone())) else {
        return Err(Error::InvalidShape {
            op: call.name(),
            shape: spec.shape.clone(),
            reason: format!(
                "the last axes must have the sizes {:?}, the counts of the windows and their sizes",
                expected.collect::<Vec<_>>()
            ),
        });
    };
    let extents = dims.iter().map(|d| d.extent);
    let shape = spec.shape.dims().take(lead).chain(extents.map(Dim::from)).collect();
    Ok(TensorSpec { shape, dtype: spec.dtype })
}

/// A permutation that moves axis `from` to position `to`.
fn moved(rank: usize, from: usize, to: usize) -> Vec<usize> {
    let mut perm: Vec<usize> = (0..rank).filter(|&a| a != from).collect();
    perm.insert(to, from);
    perm
}

impl GraphBuilder {
    /// Pads one axis of `x` with zeros before, after and between its elements; `x` itself without
    /// padding.
    pub fn pad_axis(&mut self, x: NodeId, axis: usize, dim: PadDim) -> Result<NodeId> {
        if dim == PadDim::default() {
            return Ok(x);
        }
        let mut dims = vec![PadDim::default(); self.shape(x).rank()];
        dims[axis] = dim;
        let zero = Literal::from_i64(self.dtype(x), 0);
        self.pad(x, dims, zero)
    }

    /// `size` elements of an axis from `start` on, which may be negative; zeros outside the axis.
    pub fn fit_axis(
        &mut self,
        x: NodeId,
        axis: usize,
        start: isize,
        size: usize,
    ) -> Result<NodeId> {
        let have = self.shape(x)[axis] as isize;
        let end = start + size as isize;
        let low = (-start).clamp(0, size as isize) as usize;
        let high = (end - have).clamp(0, size as isize - low as isize) as usize;
        let first = start.clamp(0, have) as usize;
        let x = self.slice_axis(x, axis, first, size - low - high)?;
        self.pad_axis(x, axis, PadDim { low, high, interior: 0 })
    }

    /// The windows of the last axes: `[…, extents…] -> […, counts…, sizes…]`.
    pub fn windows(&mut self, x: NodeId, dims: Vec<WindowDim>) -> Result<NodeId> {
        self.emit(Op::new(OpCode::Windows, Attrs::Windows(Arc::new(dims))), &[x])
    }

    /// Adds up overlapping windows: `[…, counts…, sizes…] -> […, extents…]`.
    pub fn fold_windows(&mut self, x: NodeId, dims: Vec<WindowDim>) -> Result<NodeId> {
        self.emit(Op::new(OpCode::FoldWindows, Attrs::Windows(Arc::new(dims))), &[x])
    }
}

/// Folds one axis after the other, so that only one axis at a time has both positions and window
/// elements. Window elements precede positions, so that the sums add rows of positions.
fn decompose_fold(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let Attrs::Windows(dims) = &d.op.attrs else { unreachable!("the shape rule checks it") };
    let (x, n) = (d.inputs[0], dims.len());
    let lead = d.b.shape(x).rank() - 2 * n;
    let order = (0..lead).chain(lead + n..lead + 2 * n).chain(lead..lead + n);
    let x = d.b.permute(x, &order.collect::<Vec<_>>())?;
    // Axes that are folded already have no size axis, and are among the positions.
    let (size, count) = (lead, lead + n);
    dims.iter().try_fold(x, |x, dim| {
        match dim.size == 1 || (dim.dilation == 1 && dim.size <= dim.step) {
            true => fold_disjoint(d.b, x, dim, size, count),
            false => fold_overlapping(d.b, x, dim, size, count),
        }
    })
}

/// Windows that do not overlap are laid out in sequence, with gaps.
fn fold_disjoint(
    b: &mut GraphBuilder,
    x: NodeId,
    dim: &WindowDim,
    size: usize,
    count: usize,
) -> Result<NodeId> {
    let rank = b.shape(x).rank();
    let x = b.permute(x, &moved(rank, size, count))?;
    let (size, count) = (count, count - 1);
    let gap = PadDim { high: dim.step - dim.size, ..PadDim::default() };
    let x = b.pad_axis(x, size, gap)?;
    let shape = b.shape(x);
    let joined = shape.dim(count) * shape.dim(size);
    let joined: Shape =
        shape.dims().take(count).chain([joined]).chain(shape.dims().skip(size + 1)).collect();
    let x = b.reshape(x, joined)?;
    b.fit_axis(x, count, 0, dim.extent)
}

/// Element `k` of window `i` is added at `p = i * step + k * dilation`. Row `k` has its elements at
/// `i * step` and zeros between and after them, with length `extent + dilation`. Reading the rows
/// with pitch `extent` shifts row `k` by `k * dilation`; then the rows are summed. The elements
/// that a row reads from the previous row are zeros, since the last element of a row is at most at
/// `extent - reach`.
fn fold_overlapping(
    b: &mut GraphBuilder,
    x: NodeId,
    dim: &WindowDim,
    size: usize,
    count: usize,
) -> Result<NodeId> {
    let rank = b.shape(x).rank();
    let x = b.permute(x, &moved(rank, size, count - 1))?;
    let used = (dim.count() - 1) * dim.step + 1;
    let spread = PadDim { low: 0, high: dim.extent + dim.dilation - used, interior: dim.step - 1 };
    let x = b.pad_axis(x, count, spread)?;
    let (size, shape) = (count - 1, b.shape(x).clone());
    let with = |axes: &[usize]| -> Shape {
        let axes = axes.iter().map(Dim::from);
        shape.dims().take(size).chain(axes).chain(shape.dims().skip(count + 1)).collect()
    };
    let flat = b.reshape(x, with(&[dim.size * (dim.extent + dim.dilation)]))?;
    let cut = b.slice_axis(flat, size, 0, dim.size * dim.extent)?;
    let rows = b.reshape(cut, with(&[dim.size, dim.extent]))?;
    b.sum(rows, AxisSet::one(size), false)
}

fn windows_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    if v.b.dtype(v.ct) == DType::Bool {
        return Ok(smallvec::smallvec![None]);
    }
    only(v.b.emit(Op::new(OpCode::FoldWindows, v.op.attrs.clone()), &[v.ct])?)
}

fn fold_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    only(v.b.emit(Op::new(OpCode::Windows, v.op.attrs.clone()), &[v.ct])?)
}

/// Overlapping windows of the last axes (attribute `Windows`), as a view: first the positions, then
/// the elements of each window.
pub static WINDOWS: OpDef = OpDef {
    factors: Factoring::Rule(factoring::windows),
    part: Some(parts::windows),
    name: "windows",
    doc: "Windows that slide over the last axes, with steps and gaps, as axes of their own.",
    class: Class::View,
    arity: (1, 1),
    infer: windows,
    iteration: Some(windows_iteration),
    derivative: Derivative::Rule(windows_vjp),
    samples: samples::networks::windows,
    ..OpDef::BLANK
};
/// The transpose of [`WINDOWS`]: adds up overlapping windows.
pub static FOLD_WINDOWS: OpDef = OpDef {
    linear: Linearity::All,
    factors: Factoring::Rule(factoring::windows),
    name: "fold_windows",
    doc: "Windows added up where they overlap: the transpose of windows.",
    class: Class::Composite,
    arity: (1, 1),
    infer: fold,
    derivative: Derivative::Rule(fold_vjp),
    decompose: Some(decompose_fold),
    samples: samples::networks::windows,
    python: Python::Named("fold"),
    ..OpDef::BLANK
};

//! Shape operations: reshapes, permutations, broadcasts, slices, pads, concatenation and splits.

use super::{Axes, Operand, Sizes, value_in, where_};
use crate::{Error, Result, Tensor};
use girih_ir::ops::{PadDim, SliceDim};
use girih_ir::shape::normalize_axis;
use girih_ir::{Attrs, AxisSet, DType, Dim, Literal, Op, OpCode, Shape};
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::sync::Arc;

impl Tensor {
    /// Reshapes the tensor in row-major order to sizes, one of which may be -1, which is inferred:
    /// `x.reshape([2, -1])`, `x.reshape(-1)`, `x.reshape((n, 3))`, or to a [`Shape`].
    ///
    /// Errors: a shape error unless the numbers of elements agree.
    #[track_caller]
    pub fn reshape(&self, sizes: impl Into<Sizes>) -> Result<Tensor> {
        let shape = match sizes.into() {
            Sizes::Shape(shape) => shape,
            Sizes::List(sizes) => resolve(&self.shape(), &sizes)?,
        };
        if shape == self.shape() {
            return Ok(self.clone());
        }
        Tensor::record(Op::new(OpCode::Reshape, Attrs::shape(shape)), &[self])
    }

    /// Merges axes `start..=end` into one.
    #[track_caller]
    pub fn flatten(&self, start: i64, end: i64) -> Result<Tensor> {
        let shape = self.shape();
        if shape.rank() == 0 {
            return self.reshape(Shape::from([1]));
        }
        let start = normalize_axis("flatten", start, shape.rank())?;
        let end = normalize_axis("flatten", end, shape.rank())?;
        if start > end {
            return Err(Error::InvalidArgument(format!(
                "flatten: the first axis ({start}) must not come after the last ({end})"
            )));
        }
        let merged = shape.part(start..end + 1).count();
        let sizes = shape.dims().take(start).chain([merged]).chain(shape.dims().skip(end + 1));
        self.reshape(sizes.collect::<Shape>())
    }

    /// Permutes the axes: axis `i` of the result is axis `axes[i]` of this tensor.
    #[track_caller]
    pub fn permute(&self, axes: impl AsRef<[i64]>) -> Result<Tensor> {
        let rank = self.rank();
        let axes: Vec<usize> = axes
            .as_ref()
            .iter()
            .map(|&a| normalize_axis("permute", a, rank))
            .collect::<Result<_, girih_ir::Error>>()?;
        let mut seen = AxisSet::default();
        for &axis in &axes {
            if seen.contains(axis) {
                return Err(girih_ir::Error::DuplicateAxis { op: "permute", axis }.into());
            }
            seen.insert(axis);
        }
        Tensor::record(Op::new(OpCode::Permute, Attrs::perm(axes)), &[self])
    }

    /// Exchanges two axes.
    #[track_caller]
    pub fn swapaxes(&self, a: i64, b: i64) -> Result<Tensor> {
        let rank = self.rank();
        let (a, b) = (normalize_axis("swapaxes", a, rank)?, normalize_axis("swapaxes", b, rank)?);
        let mut axes: Vec<usize> = (0..rank).collect();
        axes.swap(a, b);
        Tensor::record(Op::new(OpCode::Permute, Attrs::perm(axes)), &[self])
    }

    /// Reverses the order of the axes.
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        let axes = (0..self.rank()).rev();
        Tensor::record(Op::new(OpCode::Permute, Attrs::perm(axes)), &[self])
    }

    /// Broadcasts to a shape: adds leading axes and repeats axes of size one.
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        if shape == self.shape() {
            return Ok(self.clone());
        }
        Tensor::record(Op::new(OpCode::BroadcastTo, Attrs::shape(shape)), &[self])
    }

    /// Removes axes of size one: the given axes, or all of size one (`..`).
    ///
    /// Errors: a shape error if a given axis has another size.
    #[track_caller]
    pub fn squeeze(&self, axes: impl Into<Axes>) -> Result<Tensor> {
        let (axes, shape) = (axes.into(), self.shape());
        let set = match axes.as_slice() {
            None => (0..shape.rank()).filter(|&i| shape.dim(i).equals(1)).collect(),
            Some(axes) => girih_ir::ops::reduce::axis_set("squeeze", Some(axes), shape.rank())?,
        };
        if let Some(axis) = set.iter().find(|&a| !shape.dim(a).equals(1)) {
            let size = shape.dim(axis);
            let reason = format!("axis {axis} has size {size}, only size 1 can be removed");
            return Err(girih_ir::Error::InvalidShape { op: "squeeze", shape, reason }.into());
        }
        match set.is_empty() {
            true => Ok(self.clone()),
            false => self.reshape(shape.reduced(set, false)),
        }
    }

    /// Inserts an axis of size one at position `axis` of the result.
    #[track_caller]
    pub fn unsqueeze(&self, axis: i64) -> Result<Tensor> {
        let shape = self.shape();
        let axis = normalize_axis("unsqueeze", axis, shape.rank() + 1)?;
        let sizes = shape.dims().take(axis).chain([1.into()]).chain(shape.dims().skip(axis));
        self.reshape(sizes.collect::<Shape>())
    }

    /// A slice along each axis.
    #[track_caller]
    pub(crate) fn slice_dims(&self, dims: Vec<SliceDim>) -> Result<Tensor> {
        Tensor::record(Op::new(OpCode::Slice, Attrs::Slice(Arc::new(dims))), &[self])
    }

    /// A slice along each axis; the symbolic sizes are those of `result`.
    #[track_caller]
    pub(crate) fn slice_of(&self, dims: Vec<SliceDim>, result: &Shape) -> Result<Tensor> {
        Tensor::record(Op::new(OpCode::Slice, Attrs::slice(dims, result)), &[self])
    }

    /// `length` elements along an axis, starting at `start`.
    #[track_caller]
    pub fn narrow(&self, axis: i64, start: usize, length: usize) -> Result<Tensor> {
        let shape = self.shape();
        let axis = normalize_axis("narrow", axis, shape.rank())?;
        let whole = |&size: &usize| SliceDim { start: 0, size, step: 1 };
        let mut dims: Vec<SliceDim> = shape.hints().iter().map(whole).collect();
        dims[axis] = SliceDim { start, size: length, step: 1 };
        self.slice_of(dims, &shape.with_dim(axis, length))
    }

    /// Pads with `value`, a number or a tensor of one: `widths[i]` elements before and after along axis
    /// `i`.
    ///
    /// Errors: a shape error unless there is one pair per axis; a dtype error unless the dtype can
    /// represent the value.
    #[track_caller]
    pub fn pad<'a>(
        &self,
        widths: &[(usize, usize)],
        value: impl Into<Operand<'a>>,
    ) -> Result<Tensor> {
        let literal = match value.into() {
            Operand::Int(v) => super::elementwise::int_literal(v, self.dtype())?,
            Operand::Bool(v) => Literal::from_i64(self.dtype(), v as i64),
            Operand::Float(v) => Literal::from_f64(self.dtype(), v),
            Operand::Complex(v) => {
                if !self.dtype().is_complex() {
                    return Operand::Complex(v).constant(self.dtype());
                }
                let (re, im) = (self.real()?.pad(widths, v.re)?, self.imag()?.pad(widths, v.im)?);
                return re.complex(&im);
            }
            value @ (Operand::Tensor(_) | Operand::Weak(_) | Operand::Size(_)) => {
                let value = value_in(value, self.dtype())?;
                if value.rank() > 0 {
                    let reason = "the value to pad with must be one number, of shape []".into();
                    let (op, shape) = ("pad", value.shape());
                    return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
                }
                let inside = Tensor::ones(self.shape(), DType::Bool)?.pad(widths, false)?;
                return where_(&inside, &self.pad(widths, false)?, &value);
            }
        };
        let border = |&(low, high): &(usize, usize)| PadDim { low, high, interior: 0 };
        self.padded(widths.iter().map(border).collect(), literal)
    }

    /// Pads each axis with a value: before, after and between its elements.
    #[track_caller]
    pub(crate) fn padded(&self, dims: Vec<PadDim>, value: Literal) -> Result<Tensor> {
        let attrs = Attrs::Pad(Arc::new((dims, value.bits)));
        Tensor::record(Op::new(OpCode::Pad, attrs), &[self])
    }
}

/// Resolves sizes with at most one -1 to a shape.
fn resolve(from: &Shape, sizes: &[Size]) -> Result<Shape> {
    let Some(unknown) = sizes.iter().position(|size| *size == Size::Known(-1)) else {
        return shape_of("reshape", sizes);
    };
    let invalid = |reason: String| {
        Error::from(girih_ir::Error::InvalidShape { op: "reshape", shape: from.clone(), reason })
    };
    let mut known: SmallVec<[Size; 4]> = SmallVec::from_slice(sizes);
    known[unknown] = Size::Known(1);
    if known.contains(&Size::Known(-1)) {
        return Err(invalid(format!("at most one size may be -1, got {}", listed(sizes))));
    }
    let shape = shape_of("reshape", &known)?;
    let (have, want) = (from.count(), shape.count());
    if want.equals(0) || !have.remainder(want).equals(0) {
        return Err(invalid(format!(
            "{have} elements do not fill {}: they are no multiple of {want}",
            listed(sizes)
        )));
    }
    Ok(shape.with_dim(unknown, have.floor_div(want)))
}

/// `[2, -1]`
fn listed(sizes: &[Size]) -> String {
    let sizes: Vec<String> = sizes.iter().map(|size| size.to_string()).collect();
    format!("[{}]", sizes.join(", "))
}

/// A size as front ends pass it: a number, where -1 may have a special meaning, or a symbolic size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// A number.
    Known(i64),
    /// A symbolic size of a traced function's argument, or an expression of such sizes.
    Symbolic(Dim),
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Size::Known(size) => size.fmt(f),
            Size::Symbolic(dim) => dim.fmt(f),
        }
    }
}

impl Size {
    /// The size as a number; a symbolic size is fixed to its value.
    pub fn get(self) -> i64 {
        match self {
            Size::Known(size) => size,
            Size::Symbolic(dim) => dim.get() as i64,
        }
    }
}

/// A shape with sizes that may be symbolic.
///
/// Errors: as [`Shape::from_signed`].
pub fn shape_of(op: &'static str, sizes: &[Size]) -> Result<Shape> {
    let numbers: Vec<i64> = sizes
        .iter()
        .map(|size| match size {
            Size::Known(size) => *size,
            Size::Symbolic(dim) => dim.hint() as i64,
        })
        .collect();
    let shape = Shape::from_signed(op, &numbers)?;
    let dims = shape.dims().zip(sizes).map(|(dim, size)| match size {
        Size::Known(_) => dim,
        Size::Symbolic(dim) => *dim,
    });
    Ok(dims.collect())
}

/// Converts tensors to their common dtype.
#[track_caller]
fn unified<T: Borrow<Tensor>>(op: &'static str, tensors: &[T]) -> Result<Vec<Tensor>> {
    let Some((first, rest)) = tensors.split_first() else {
        return Err(Error::InvalidArgument(format!("{op}: at least one tensor is needed")));
    };
    let dtype = rest
        .iter()
        .try_fold(first.borrow().dtype(), |dtype, t| dtype.promote(t.borrow().dtype()))?;
    tensors.iter().map(|t| t.borrow().astype(dtype)).collect()
}

/// Concatenates tensors along an axis.
#[track_caller]
pub fn concat<T: Borrow<Tensor>>(tensors: &[T], axis: i64) -> Result<Tensor> {
    let tensors = unified("concat", tensors)?;
    let axis = normalize_axis("concat", axis, tensors[0].rank())?;
    let refs: Vec<&Tensor> = tensors.iter().collect();
    Tensor::record(Op::new(OpCode::Concat, Attrs::Axis(axis as u8)), &refs)
}

/// Stacks tensors of equal shapes along a new axis.
#[track_caller]
pub fn stack<T: Borrow<Tensor>>(tensors: &[T], axis: i64) -> Result<Tensor> {
    let Some(first) = tensors.first().map(|t| t.borrow().shape()) else {
        return Err(Error::InvalidArgument("stack: at least one tensor is needed".into()));
    };
    if let Some(other) = tensors.iter().map(|t| t.borrow().shape()).find(|s| !s.equals(&first)) {
        let reason = "all shapes must be equal".to_string();
        let (op, lhs, rhs) = ("stack", first, other);
        return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
    }
    let axis = normalize_axis("stack", axis, first.rank() + 1)? as i64;
    let parts = tensors.iter().map(|t| t.borrow().unsqueeze(axis)).collect::<Result<Vec<_>>>()?;
    concat(&parts, axis)
}

/// Splits an axis into consecutive parts of the given sizes.
///
/// Errors: a shape error unless the sizes add up to the size of the axis.
#[track_caller]
pub fn split(x: &Tensor, sizes: &[usize], axis: i64) -> Result<Vec<Tensor>> {
    let shape = x.shape();
    let at = normalize_axis("split", axis, shape.rank())?;
    let total = sizes.iter().fold(0usize, |sum, &s| sum.saturating_add(s));
    if !shape.dim(at).equals(total) {
        let reason = format!("parts {sizes:?} add up to {total}, axis {at} has {}", shape.dim(at));
        return Err(girih_ir::Error::InvalidShape { op: "split", shape, reason }.into());
    }
    Tensor::check_room(sizes.len(), super::arrange::HANDLE_BYTES)?;
    if sizes.is_empty() {
        return Ok(Vec::new());
    }
    let mut end = 0;
    let inner = sizes.iter().take(sizes.len().saturating_sub(1));
    let places = inner.map(|size| {
        end += size;
        end
    });
    split_at(x, places.collect(), at as i64)
}

/// Splits an axis at these ascending positions; the parts are the results of one op.
///
/// Errors: a shape error for positions that do not ascend or are out of range.
#[track_caller]
pub fn split_at(x: &Tensor, places: Vec<usize>, axis: i64) -> Result<Vec<Tensor>> {
    let axis = normalize_axis("split", axis, x.rank())?;
    let places = Arc::new(places);
    let ops = (0..=places.len()).map(|result| Op::split(axis, places.clone(), result));
    Tensor::record_results(ops, &[x])
}

//! Creation of constants and ranges.

use super::elementwise::int_literal;
use crate::{Error, Result, Tensor};
use girih_ir::{Attrs, DType, Dim, Literal, Op, OpCode, Shape, TensorSpec};
use girih_record::node::State;
use std::ops::Range;

use super::Operand;

impl Tensor {
    /// A tensor of zeros.
    pub fn zeros(shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        Tensor::splat("zeros", Literal::from_i64(dtype, 0), shape.into())
    }

    /// A tensor of ones.
    pub fn ones(shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        Tensor::splat("ones", Literal::from_i64(dtype, 1), shape.into())
    }

    /// A tensor whose elements all equal `value`.
    ///
    /// Errors: for an integer that the dtype cannot hold; for a tensor as value.
    pub fn full<'a>(
        value: impl Into<Operand<'a>>,
        shape: impl Into<Shape>,
        dtype: DType,
    ) -> Result<Tensor> {
        let literal = match value.into() {
            Operand::Bool(v) => Literal::from_i64(dtype, v as i64),
            Operand::Int(v) => int_literal(v, dtype)?,
            Operand::Float(v) => Literal::from_f64(dtype, v),
            value @ (Operand::Complex(_) | Operand::Weak(_) | Operand::Size(_)) => {
                let shape = shape.into();
                shape.check("full", dtype)?;
                return value.constant(dtype)?.broadcast_to(shape);
            }
            Operand::Tensor(_) => {
                return Err(Error::InvalidArgument(
                    "full: the value must be a scalar; use broadcast_to for a tensor".into(),
                ));
            }
        };
        Tensor::splat("full", literal, shape.into())
    }

    /// A tensor of zeros of the shape and dtype of this one.
    pub fn zeros_like(&self) -> Result<Tensor> {
        Tensor::zeros(self.check()?.shape(), self.dtype())?.placed_like(self)
    }

    /// A tensor of ones of the shape and dtype of this one.
    pub fn ones_like(&self) -> Result<Tensor> {
        Tensor::ones(self.check()?.shape(), self.dtype())?.placed_like(self)
    }

    fn splat(op: &'static str, literal: Literal, shape: Shape) -> Result<Tensor> {
        shape.check(op, literal.dtype)?;
        Ok(Tensor::constant(literal, shape))
    }

    /// The index of each element along an axis.
    pub fn iota(shape: impl Into<Shape>, axis: usize, dtype: DType) -> Result<Tensor> {
        let spec = TensorSpec::new(shape, dtype);
        spec.shape.check("iota", dtype)?;
        if axis >= spec.shape.rank() {
            let (axis, rank) = (axis as i64, spec.shape.rank());
            return Err(girih_ir::Error::AxisOutOfRange { op: "iota", axis, rank }.into());
        }
        let op = Op::new(OpCode::Iota, Attrs::Axis(axis as u8));
        Ok(Tensor::with_state(op, &spec, State::Leaf))
    }

    /// The numbers of a range: `Tensor::arange(0..5, DType::I64)` has 0 to 4. See
    /// [`Tensor::arange_step`] for other steps than 1.
    ///
    /// Errors: as [`Tensor::arange_step`].
    #[track_caller]
    pub fn arange<'a, N: Into<Operand<'a>>>(range: Range<N>, dtype: DType) -> Result<Tensor> {
        Tensor::arange_step(range.start, range.end, 1, dtype)
    }

    /// `start, start + step, …` up to but excluding `stop`; exact if all three are integers.
    ///
    /// If the dtype is one of integers and a bound or the step is not whole, the first two values are
    /// rounded toward zero, and the others follow at their distance, as in NumPy.
    ///
    /// Errors: [`Error::InvalidArgument`] for a step of zero, bounds that are not finite, or a
    /// tensor; a dtype error if the dtype cannot hold an integer of the range.
    #[track_caller]
    pub fn arange_step<'a>(
        start: impl Into<Operand<'a>>,
        stop: impl Into<Operand<'a>>,
        step: impl Into<Operand<'a>>,
        dtype: DType,
    ) -> Result<Tensor> {
        let (start, stop, step) = (start.into(), stop.into(), step.into());
        let symbolic = |v: &Operand<'_>| matches!(v, Operand::Size(size) if size.known().is_none());
        if let Some(step) = whole(step).filter(|&step| step != 0)
            && [start, stop].iter().any(symbolic)
            && let (Some(first), Some(last)) = (bound(start), bound(stop))
        {
            return symbolic_range(start, first, last, step, dtype);
        }
        if let (Some(start), Some(stop), Some(step)) = (whole(start), whole(stop), whole(step))
            && !dtype.is_inexact()
        {
            return whole_range(start, stop, step, dtype);
        }
        let (start, stop, step) = (real(start)?, real(stop)?, real(step)?);
        let share = (stop - start) / step;
        let finite = [start, stop].iter().all(|v| v.is_finite());
        if step == 0.0 || !finite || share.is_nan() {
            return Err(no_range(start, stop, step));
        }
        // A step that is too large for a quotient is a step all the same: the first value is there.
        let underflow = share == 0.0 && share.is_sign_positive() && stop != start;
        let count = if underflow { 1 } else { share.ceil().max(0.0) as i64 };
        let n = Shape::from_signed("arange", &[count])?;
        if count < 2 {
            return Tensor::full(start, n, DType::F64)?.astype(dtype);
        }
        if dtype.is_int() {
            let (first, second) = (start as i128, (start + step) as i128);
            return spaced(first, second - first, count, dtype);
        }
        // The range is computed in f64 and rounded once.
        let steps = Tensor::iota(n, 0, DType::F64)?;
        steps.mul(step)?.add(start)?.astype(dtype)
    }

    /// `num` evenly spaced values from `start` to `stop`, both included; rounded down for integer
    /// dtypes.
    ///
    /// Errors: [`Error::InvalidArgument`] unless the bounds are real numbers.
    #[track_caller]
    pub fn linspace<'a>(
        start: impl Into<Operand<'a>>,
        stop: impl Into<Operand<'a>>,
        num: impl Into<Dim>,
        dtype: DType,
    ) -> Result<Tensor> {
        Tensor::spaced(start.into(), stop.into(), num.into(), true, dtype)
    }

    /// `num` evenly spaced values from `start` up to but excluding `stop`; rounded down for integer
    /// dtypes.
    ///
    /// Errors: as [`Tensor::linspace`].
    #[track_caller]
    pub fn linspace_exclusive<'a>(
        start: impl Into<Operand<'a>>,
        stop: impl Into<Operand<'a>>,
        num: impl Into<Dim>,
        dtype: DType,
    ) -> Result<Tensor> {
        Tensor::spaced(start.into(), stop.into(), num.into(), false, dtype)
    }

    #[track_caller]
    fn spaced(
        start: Operand<'_>,
        stop: Operand<'_>,
        num: Dim,
        endpoint: bool,
        dtype: DType,
    ) -> Result<Tensor> {
        let Some(num) = num.known() else {
            return symbolic_linspace(start, stop, num, endpoint, dtype);
        };
        let (start, stop) = (real(start)?, real(stop)?);
        let divisions = if endpoint { num.saturating_sub(1) } else { num };
        let step = (stop - start) / divisions.max(1) as f64;
        let index = Tensor::iota([num], 0, DType::F64)?;
        let mut values = index.mul(step)?.add(start)?;
        if endpoint && num > 1 {
            // The last value is exactly `stop`, regardless of the rounding of the steps.
            let last = index.eq(divisions as f64)?;
            values = super::where_(&last, stop, &values)?;
        }
        if dtype.is_int() {
            values = values.floor()?;
        }
        values.astype(dtype)
    }

    /// The identity matrix of `n` rows.
    #[track_caller]
    pub fn eye(n: impl Into<Dim>, dtype: DType) -> Result<Tensor> {
        let n = n.into();
        Tensor::eye_of(n, n, 0, dtype)
    }

    /// Ones on the `k`-th diagonal of an `n` by `m` matrix, zeros elsewhere.
    #[track_caller]
    pub fn eye_of(n: impl Into<Dim>, m: impl Into<Dim>, k: i64, dtype: DType) -> Result<Tensor> {
        let shape = Shape::of_dims([n.into(), m.into()]);
        let rows = Tensor::iota(shape.clone(), 0, DType::I64)?;
        let columns = Tensor::iota(shape, 1, DType::I64)?;
        rows.add(k)?.eq(&columns)?.astype(dtype)
    }
}

/// The value as an integer, if it is an integer; a float must be whole and at most 2^53 in
/// magnitude.
fn whole(value: Operand<'_>) -> Option<i128> {
    match value {
        Operand::Bool(v) => Some(v as i128),
        Operand::Int(v) => Some(v),
        Operand::Float(v) => {
            (v.fract() == 0.0 && v.abs() <= (1u64 << 53) as f64).then_some(v as i128)
        }
        Operand::Size(size) => size.known().map(|size| size as i128),
        Operand::Complex(_) | Operand::Tensor(_) | Operand::Weak(_) => None,
    }
}

/// A bound of a range as a size, and the magnitude of a negative bound.
fn bound(value: Operand<'_>) -> Option<(Dim, usize)> {
    match value {
        Operand::Size(size) => Some((size, 0)),
        value => match whole(value)? {
            v @ ..0 => Some((0.into(), usize::try_from(-v).ok()?)),
            v => Some((usize::try_from(v).ok()?.into(), 0)),
        },
    }
}

/// The integers between two bounds, at least one of which is symbolic, with a constant step.
#[track_caller]
fn symbolic_range(
    start: Operand<'_>,
    first: (Dim, usize),
    last: (Dim, usize),
    step: i128,
    dtype: DType,
) -> Result<Tensor> {
    let stride = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
    // Shift both bounds by the magnitude of a negative bound, so that they become sizes.
    let (low, high) = if step > 0 { (first, last) } else { (last, first) };
    let (low, high) = (low.0 + high.1, high.0 + low.1);
    let distance = if high.at_least(low) { high - low } else { 0.into() };
    let count = match stride {
        1 => distance,
        _ => (distance + (stride - 1)).floor_div(stride),
    };
    let steps = Tensor::iota(Shape::of_dims([count]), 0, DType::I64)?;
    let scaled = if step == 1 { steps } else { steps.mul(Operand::Int(step))? };
    if matches!(whole(start), Some(0)) {
        scaled.astype(dtype)
    } else {
        scaled.add(start)?.astype(dtype)
    }
}

/// A symbolic number of evenly spaced values.
#[track_caller]
fn symbolic_linspace(
    start: Operand<'_>,
    stop: Operand<'_>,
    num: Dim,
    endpoint: bool,
    dtype: DType,
) -> Result<Tensor> {
    let (start, stop) = (start.constant(DType::F64)?, stop.constant(DType::F64)?);
    let index = Tensor::iota(Shape::of_dims([num]), 0, DType::F64)?;
    let ends = endpoint && num.at_least(2);
    let divisions = if ends { num - 1 } else { num };
    let step = stop.sub(&start)?.div(Operand::Size(divisions))?;
    let mut values = index.mul(&step)?.add(&start)?;
    if ends {
        let last = index.eq(Operand::Size(divisions))?;
        values = super::where_(&last, &stop, &values)?;
    }
    if dtype.is_int() {
        values = values.floor()?;
    }
    values.astype(dtype)
}

fn real(value: Operand<'_>) -> Result<f64> {
    match value {
        Operand::Bool(v) => Ok(v as i64 as f64),
        Operand::Int(v) => Ok(v as f64),
        Operand::Float(v) => Ok(v),
        Operand::Complex(v) => {
            Err(Error::InvalidArgument(format!("arange: the bounds must be real numbers, got {v}")))
        }
        Operand::Size(size) => Ok(size.get() as f64),
        Operand::Tensor(_) | Operand::Weak(_) => {
            Err(Error::InvalidArgument("arange: the bounds must be numbers, got a tensor".into()))
        }
    }
}

fn no_range(
    start: impl std::fmt::Display,
    stop: impl std::fmt::Display,
    step: impl std::fmt::Display,
) -> Error {
    Error::InvalidArgument(format!(
        "arange: no range from {start} to {stop} by {step}; the bounds must be finite and the step not \
         zero"
    ))
}

#[track_caller]
fn whole_range(start: i128, stop: i128, step: i128, dtype: DType) -> Result<Tensor> {
    if step == 0 {
        return Err(no_range(start, stop, step));
    }
    let count = ((stop - start + step - step.signum()) / step).max(0);
    spaced(start, step, count.try_into().unwrap_or(i64::MAX), dtype)
}

/// `count` integers from `start` on.
#[track_caller]
fn spaced(start: i128, step: i128, count: i64, dtype: DType) -> Result<Tensor> {
    let n = Shape::from_signed("arange", &[count])?;
    if count > 0 {
        // The dtype holds the whole range if it holds the first and the last value.
        int_literal(start, dtype)?;
        int_literal(start + (i128::from(count) - 1) * step, dtype)?;
    }
    // Compute in 64 bits with wraparound: a negative step of u64 is a large number.
    let wide = if dtype == DType::U64 { DType::U64 } else { DType::I64 };
    let scalar = |v: i128| Tensor::constant(Literal::from_int(wide, v), Shape::scalar());
    let steps = Tensor::iota(n, 0, wide)?;
    let scaled = if step == 1 { steps } else { steps.mul(&scalar(step))? };
    if start == 0 { scaled.astype(dtype) } else { scaled.add(&scalar(start))?.astype(dtype) }
}

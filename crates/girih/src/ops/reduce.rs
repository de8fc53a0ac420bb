//! Reductions. `None` as `axes` means all axes; negative axes count from the end.

use super::default_int;
use crate::{Error, Result, Tensor, precision};
use girih_ir::ops::reduce::axis_set;
use girih_ir::{Attrs, AxisSet, DType, Op, OpCode, Real};

impl Tensor {
    #[track_caller]
    fn reduce(&self, code: OpCode, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        let axes = axis_set(code.def().name, axes, self.rank())?;
        Tensor::record(Op::new(code, Attrs::axes(axes, keepdims)), &[self])
    }

    /// Converts the elements to the accumulator dtype.
    #[track_caller]
    fn accumulated(&self, code: OpCode) -> Result<Tensor> {
        self.astype(precision::computed_in(code, self.dtype().accumulator()))
    }

    /// The sum. Signed integers and bool are summed as i64, unsigned integers as u64.
    #[track_caller]
    pub fn sum(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.accumulated(OpCode::ReduceSum)?.reduce(OpCode::ReduceSum, axes, keepdims)
    }

    /// The product. Signed integers and bool are multiplied as i64, unsigned integers as u64.
    #[track_caller]
    pub fn prod(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.accumulated(OpCode::ReduceProd)?.reduce(OpCode::ReduceProd, axes, keepdims)
    }

    /// The largest element; NaN if any element is NaN.
    #[track_caller]
    pub fn max(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.reduce(OpCode::ReduceMax, axes, keepdims)
    }

    /// The smallest element; NaN if any element is NaN.
    #[track_caller]
    pub fn min(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.reduce(OpCode::ReduceMin, axes, keepdims)
    }

    /// Whether any element is nonzero.
    #[track_caller]
    pub fn any(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.astype(DType::Bool)?.reduce(OpCode::ReduceAny, axes, keepdims)
    }

    /// Whether all elements are nonzero.
    #[track_caller]
    pub fn all(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.astype(DType::Bool)?.reduce(OpCode::ReduceAll, axes, keepdims)
    }

    #[track_caller]
    fn arg(&self, code: OpCode, axis: Option<i64>, keepdims: bool) -> Result<Tensor> {
        if let Some(axis) = axis {
            return self.reduce(code, Some(&[axis]), keepdims);
        }
        let flat = self.reshape(&[-1])?.reduce(code, Some(&[0]), false)?;
        match keepdims {
            true => flat.reshape(&vec![1; self.rank()]),
            false => Ok(flat),
        }
    }

    /// The index (i64) of the first largest element along an axis; without an axis, in row-major
    /// order.
    #[track_caller]
    pub fn argmax(&self, axis: Option<i64>, keepdims: bool) -> Result<Tensor> {
        self.arg(OpCode::Argmax, axis, keepdims)
    }

    /// The index (i64) of the first smallest element along an axis; without an axis, in row-major
    /// order.
    #[track_caller]
    pub fn argmin(&self, axis: Option<i64>, keepdims: bool) -> Result<Tensor> {
        self.arg(OpCode::Argmin, axis, keepdims)
    }

    /// The mean; NaN over an empty axis. Integers become f32.
    #[track_caller]
    pub fn mean(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.astype(self.dtype().to_float())?.reduce(OpCode::Mean, axes, keepdims)
    }

    /// The variance, with `correction` subtracted from the count in the divisor (0: population
    /// variance, 1: Bessel's correction). Integers become f32. The variance of complex numbers is
    /// real: the sum of the variances of both parts.
    #[track_caller]
    pub fn var(&self, axes: Option<&[i64]>, correction: f64, keepdims: bool) -> Result<Tensor> {
        if self.dtype().is_complex() {
            let part = |x: Tensor| x.var(axes, correction, keepdims);
            return part(self.real()?)?.add(&part(self.imag()?)?);
        }
        let x = self.astype(self.dtype().to_float())?;
        let axes = axis_set("var", axes, self.rank())?;
        let correction = Real::from(correction);
        Tensor::record(Op::new(OpCode::Var, Attrs::Moments { axes, keepdims, correction }), &[&x])
    }

    /// The standard deviation: the square root of [`Tensor::var`], without overflow or underflow of
    /// the variance. The gradient is 0 where the standard deviation is 0.
    #[track_caller]
    pub fn std(&self, axes: Option<&[i64]>, correction: f64, keepdims: bool) -> Result<Tensor> {
        let root = |x: &Tensor, keepdims| x.var(axes, correction, keepdims)?.safe_root(2.0);
        let x = self.astype(self.dtype().to_float())?;
        super::linalg::within_range(&x, axes, keepdims, true, root)
    }

    /// `log(sum(exp(x)))` without overflow; -inf over an empty axis.
    #[track_caller]
    pub fn logsumexp(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.float_for(OpCode::LogSumExp)?.reduce(OpCode::LogSumExp, axes, keepdims)
    }

    /// The number of nonzero elements, as i64.
    #[track_caller]
    pub fn count_nonzero(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.astype(DType::Bool)?.astype(default_int())?.sum(axes, keepdims)
    }

    /// Reverses some axes; all of them for `None`.
    #[track_caller]
    pub fn flip(&self, axes: Option<&[i64]>) -> Result<Tensor> {
        let axes = axis_set("flip", axes, self.rank())?;
        if axes == AxisSet::default() {
            return Ok(self.clone());
        }
        Tensor::record(Op::new(OpCode::Flip, Attrs::axes(axes, false)), &[self])
    }

    /// Whether the only element is nonzero, for Python's `if`. Evaluates the tensor.
    ///
    /// Errors: [`Error::NotScalar`] unless there is exactly one element.
    pub fn truth(&self) -> Result<bool> {
        if self.numel() != 1 {
            return Err(Error::NotScalar { what: "a truth value", shape: self.shape() });
        }
        self.astype(DType::Bool)?.item()
    }
}

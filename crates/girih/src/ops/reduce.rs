//! Reductions over one axis, several, or all (`..`), which [`crate::keepdims`] leaves with size one.

use super::{Axes, ReducedAxes, default_int};
use crate::{Error, Result, Tensor, precision};
use girih_ir::ops::reduce::axis_set;
use girih_ir::{Attrs, AxisSet, DType, Op, OpCode, Real};

impl Tensor {
    #[track_caller]
    fn reduce(&self, code: OpCode, over: &ReducedAxes) -> Result<Tensor> {
        let axes = axis_set(code.def().name, over.as_slice(), self.rank())?;
        Tensor::record(Op::new(code, Attrs::axes(axes, over.keepdims)), &[self])
    }

    /// Converts the elements to the accumulator dtype.
    #[track_caller]
    fn accumulated(&self, code: OpCode) -> Result<Tensor> {
        self.astype(precision::computed_in(code, self.dtype().accumulator()))
    }

    /// The sum. Signed integers and bool are summed as i64, unsigned integers as u64.
    #[track_caller]
    pub fn sum(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.accumulated(OpCode::ReduceSum)?.reduce(OpCode::ReduceSum, &over.into())
    }

    /// The product. Signed integers and bool are multiplied as i64, unsigned integers as u64.
    #[track_caller]
    pub fn prod(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.accumulated(OpCode::ReduceProd)?.reduce(OpCode::ReduceProd, &over.into())
    }

    /// Fails if a reduced axis is empty, also where the result has no elements.
    fn nonempty(&self, code: OpCode, over: &ReducedAxes) -> Result<()> {
        let (op, shape) = (code.def().name, self.shape());
        let axes = axis_set(op, over.as_slice(), self.rank())?;
        if axes.iter().any(|axis| shape.dim(axis).equals(0)) {
            let reason = "the reduced axes are empty and the op has no identity".into();
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        }
        Ok(())
    }

    #[track_caller]
    fn extremum(&self, code: OpCode, over: &ReducedAxes) -> Result<Tensor> {
        self.nonempty(code, over)?;
        match self.dtype().is_complex() {
            true => super::lexicographic::extremum(self, over, code == OpCode::ReduceMax),
            false => self.reduce(code, over),
        }
    }

    /// The largest element; NaN if any element is NaN. Complex numbers are ordered as in
    /// [`Tensor::sort`].
    ///
    /// Errors: an axis error; a shape error over an empty axis.
    #[track_caller]
    pub fn max(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.extremum(OpCode::ReduceMax, &over.into())
    }

    /// The smallest element; NaN if any element is NaN. Complex numbers are ordered as in
    /// [`Tensor::sort`].
    ///
    /// Errors: as [`Tensor::max`].
    #[track_caller]
    pub fn min(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.extremum(OpCode::ReduceMin, &over.into())
    }

    /// Whether any element is nonzero.
    #[track_caller]
    pub fn any(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.astype(DType::Bool)?.reduce(OpCode::ReduceAny, &over.into())
    }

    /// Whether all elements are nonzero.
    #[track_caller]
    pub fn all(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.astype(DType::Bool)?.reduce(OpCode::ReduceAll, &over.into())
    }

    /// The sum of all elements, as [`Tensor::sum`] over `..`.
    #[track_caller]
    pub fn sum_all(&self) -> Result<Tensor> {
        self.sum(..)
    }

    /// The product of all elements, as [`Tensor::prod`] over `..`.
    #[track_caller]
    pub fn prod_all(&self) -> Result<Tensor> {
        self.prod(..)
    }

    /// The mean of all elements, as [`Tensor::mean`] over `..`.
    #[track_caller]
    pub fn mean_all(&self) -> Result<Tensor> {
        self.mean(..)
    }

    /// The largest of all elements, as [`Tensor::max`] over `..`.
    #[track_caller]
    pub fn max_all(&self) -> Result<Tensor> {
        self.max(..)
    }

    /// The smallest of all elements, as [`Tensor::min`] over `..`.
    #[track_caller]
    pub fn min_all(&self) -> Result<Tensor> {
        self.min(..)
    }

    #[track_caller]
    fn arg(&self, code: OpCode, over: &ReducedAxes) -> Result<Tensor> {
        match over.as_slice() {
            Some(&[axis]) => {
                self.nonempty(code, over)?;
                return match self.dtype().is_complex() {
                    true => {
                        let largest = code == OpCode::Argmax;
                        super::lexicographic::arg(self, axis, over.keepdims, largest)
                    }
                    false => self.reduce(code, over),
                };
            }
            Some(axes) => {
                let name = code.def().name;
                return Err(Error::InvalidArgument(format!(
                    "{name}: the position is along one axis, or .. for all, got axes {axes:?}"
                )));
            }
            None => {}
        }
        let flat = self.reshape(-1)?.arg(code, &0.into())?;
        match over.keepdims {
            true => flat.reshape(vec![1; self.rank()]),
            false => Ok(flat),
        }
    }

    /// The index (i64) of the first largest element along an axis, or for `..` in row-major order;
    /// NaN is largest.
    ///
    /// Errors: [`Error::InvalidArgument`] for several axes; an axis error; a shape error over an
    /// empty axis.
    #[track_caller]
    pub fn argmax(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.arg(OpCode::Argmax, &over.into())
    }

    /// The index (i64) of the first smallest element along an axis, or for `..` in row-major order;
    /// NaN is smallest.
    ///
    /// Errors: as [`Tensor::argmax`].
    #[track_caller]
    pub fn argmin(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.arg(OpCode::Argmin, &over.into())
    }

    /// The mean; NaN over an empty axis. Integers become f32.
    #[track_caller]
    pub fn mean(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.astype(self.dtype().to_float())?.reduce(OpCode::Mean, &over.into())
    }

    /// The variance of a population: [`Tensor::var_with`] without a correction.
    #[track_caller]
    pub fn var(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.var_with(over, 0.0)
    }

    /// The variance, with `correction` subtracted from the count in the divisor (0: population
    /// variance, 1: Bessel's correction). Integers become f32. The variance of complex numbers is
    /// real: the sum of the variances of both parts.
    #[track_caller]
    pub fn var_with(&self, over: impl Into<ReducedAxes>, correction: f64) -> Result<Tensor> {
        let over = over.into();
        if self.dtype().is_complex() {
            let part = |x: Tensor| x.var_with(over.clone(), correction);
            return part(self.real()?)?.add(&part(self.imag()?)?);
        }
        let x = self.astype(self.dtype().to_float())?;
        let axes = axis_set("var", over.as_slice(), self.rank())?;
        let (keepdims, correction) = (over.keepdims, Real::from(correction));
        Tensor::record(Op::new(OpCode::Var, Attrs::Moments { axes, keepdims, correction }), &[&x])
    }

    /// The standard deviation of a population: [`Tensor::std_with`] without a correction.
    #[track_caller]
    pub fn std(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.std_with(over, 0.0)
    }

    /// The standard deviation: the square root of [`Tensor::var_with`], without overflow or
    /// underflow of the variance. The gradient is 0 where the standard deviation is 0.
    #[track_caller]
    pub fn std_with(&self, over: impl Into<ReducedAxes>, correction: f64) -> Result<Tensor> {
        let over = over.into();
        let axes = over.as_slice();
        let root = |x: &Tensor, keepdims| {
            x.var_with(Axes::from(axes).reduced(keepdims), correction)?.safe_root(2.0)
        };
        let x = self.astype(self.dtype().to_float())?;
        super::linalg::within_range(&x, axes, over.keepdims, true, root)
    }

    /// `log(sum(exp(x)))` without overflow; -inf over an empty axis.
    #[track_caller]
    pub fn logsumexp(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.float_for(OpCode::LogSumExp)?.reduce(OpCode::LogSumExp, &over.into())
    }

    /// The number of nonzero elements, as i64.
    #[track_caller]
    pub fn count_nonzero(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.astype(DType::Bool)?.astype(default_int())?.sum(over)
    }

    /// Reverses some axes, or all of them (`..`).
    #[track_caller]
    pub fn flip(&self, axes: impl Into<Axes>) -> Result<Tensor> {
        let axes = axis_set("flip", axes.into().as_slice(), self.rank())?;
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

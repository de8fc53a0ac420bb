//! Running sums, products, extrema along an axis.

use super::shape::concat;
use crate::{Result, Tensor, precision};
use girih_ir::shape::normalize_axis;
use girih_ir::{Attrs, DType, Op, OpCode};

impl Tensor {
    #[track_caller]
    fn running(&self, code: OpCode, axis: i64, result: u8) -> Result<Tensor> {
        let op = Op::new(code, Attrs::routine(false)).with_result(result);
        self.by_rows(code.def().name, axis, |x| Tensor::record(op, &[x]))
    }

    /// Sums or products in `dtype`, or in the dtype that sums are taken in; half floats are
    /// accumulated in f32 and rounded at the end.
    #[track_caller]
    fn running_total(
        &self,
        code: OpCode,
        axis: i64,
        dtype: Option<DType>,
        initial: Option<f64>,
    ) -> Result<Tensor> {
        let dtype = dtype.unwrap_or(precision::computed_in(code, self.dtype().accumulator()));
        let wide = self.astype(dtype.accumulator().widened())?.running(code, axis, 0)?;
        let out = wide.astype(dtype)?;
        let Some(initial) = initial else { return Ok(out) };
        let at = normalize_axis(code.def().name, axis, self.rank())?;
        let first = Tensor::full(initial, self.shape().with_dim(at, 1usize), dtype)?;
        concat(&[&first, &out], axis)
    }

    /// Sums of the elements up to each along an axis. Integers and bool are summed as i64, unless
    /// a dtype is given. With `include_initial` a zero comes first, and the axis is one longer.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn cumsum(&self, axis: i64, dtype: Option<DType>, include_initial: bool) -> Result<Tensor> {
        self.running_total(OpCode::CumSum, axis, dtype, include_initial.then_some(0.0))
    }

    /// Products of the elements up to each along an axis. Integers and bool are multiplied as i64,
    /// unless a dtype is given. With `include_initial` a one comes first, and the axis is one
    /// longer.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn cumprod(
        &self,
        axis: i64,
        dtype: Option<DType>,
        include_initial: bool,
    ) -> Result<Tensor> {
        self.running_total(OpCode::CumProd, axis, dtype, include_initial.then_some(1.0))
    }

    /// The largest of the elements up to each along an axis; NaN from the first NaN on.
    #[track_caller]
    pub fn cummax(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMax, axis, 0)
    }

    /// Where the largest of the elements up to each is (i64): the last of equal ones.
    #[track_caller]
    pub fn argcummax(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMax, axis, 1)
    }

    /// The smallest of the elements up to each along an axis; NaN from the first NaN on.
    #[track_caller]
    pub fn cummin(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMin, axis, 0)
    }

    /// Where the smallest of the elements up to each is (i64): the last of equal ones.
    #[track_caller]
    pub fn argcummin(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMin, axis, 1)
    }

    /// Logarithms of the sums of the exponentials up to each element, without overflow. Integers
    /// become f32.
    #[track_caller]
    pub fn logcumsumexp(&self, axis: i64) -> Result<Tensor> {
        let dtype = self.dtype().to_float();
        self.astype(dtype.widened())?.running(OpCode::LogCumSumExp, axis, 0)?.astype(dtype)
    }
}

//! Cumulative sums, products and extrema along an axis.

use super::shape::concat;
use crate::{Result, Tensor, precision};
use girih_ir::shape::normalize_axis;
use girih_ir::{Attrs, DType, Op, OpCode};

/// Options of [`Tensor::cumsum_with`] and [`Tensor::cumprod_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cumulative {
    /// The dtype in which the elements are combined, which is that of the result; by default the
    /// accumulator of the tensor's dtype.
    pub dtype: Option<DType>,
    /// Whether the result starts with the value of no elements, so that the axis is one longer.
    pub include_initial: bool,
}

impl Tensor {
    #[track_caller]
    fn running(&self, code: OpCode, axis: i64, result: u8) -> Result<Tensor> {
        let op = Op::new(code, Attrs::routine(false)).with_result(result);
        self.by_rows(code.def().name, axis, |x| Tensor::record(op, &[x]))
    }

    /// Cumulative sums or products in `dtype`, by default the accumulator dtype; half floats are
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

    /// Cumulative sums along an axis. Integers and bool are summed as i64.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn cumsum(&self, axis: i64) -> Result<Tensor> {
        self.cumsum_with(axis, Cumulative::default())
    }

    /// Cumulative sums along an axis, in a given dtype, or starting with a zero.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn cumsum_with(&self, axis: i64, options: Cumulative) -> Result<Tensor> {
        let initial = options.include_initial.then_some(0.0);
        self.running_total(OpCode::CumSum, axis, options.dtype, initial)
    }

    /// Cumulative products along an axis. Integers and bool are multiplied as i64.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn cumprod(&self, axis: i64) -> Result<Tensor> {
        self.cumprod_with(axis, Cumulative::default())
    }

    /// Cumulative products along an axis, in a given dtype, or starting with a one.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn cumprod_with(&self, axis: i64, options: Cumulative) -> Result<Tensor> {
        let initial = options.include_initial.then_some(1.0);
        self.running_total(OpCode::CumProd, axis, options.dtype, initial)
    }

    /// The cumulative maximum along an axis; NaN from the first NaN on.
    #[track_caller]
    pub fn cummax(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMax, axis, 0)
    }

    /// The index of the cumulative maximum (i64); the last of equal elements.
    #[track_caller]
    pub fn argcummax(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMax, axis, 1)
    }

    /// The cumulative minimum along an axis; NaN from the first NaN on.
    #[track_caller]
    pub fn cummin(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMin, axis, 0)
    }

    /// The index of the cumulative minimum (i64); the last of equal elements.
    #[track_caller]
    pub fn argcummin(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMin, axis, 1)
    }

    /// The logarithm of the cumulative sum of exponentials, without overflow. Integers become f32.
    #[track_caller]
    pub fn logcumsumexp(&self, axis: i64) -> Result<Tensor> {
        let dtype = self.dtype().to_float();
        self.astype(dtype.widened())?.running(OpCode::LogCumSumExp, axis, 0)?.astype(dtype)
    }
}

//! Cumulative sums, products and extrema along an axis.

use super::elementwise::principal;
use super::index::Index;
use super::shape::concat;
use crate::{Operand, Result, Tensor, precision};
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

/// The direction of a cumulative operation, and the elements that each result combines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Whether elements are combined from the end of the axis to each element.
    pub reverse: bool,
    /// Whether a result leaves out the element at its own position. The first result is then that
    /// of no elements: 0 for sums, 1 for products, the smallest number for maxima.
    pub exclusive: bool,
}

impl Tensor {
    #[track_caller]
    fn running(&self, code: OpCode, axis: i64, result: u8, reverse: bool) -> Result<Tensor> {
        let op = Op::new(code, Attrs::routine(reverse)).with_result(result);
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
        reverse: bool,
    ) -> Result<Tensor> {
        let dtype = dtype.unwrap_or(precision::computed_in(code, self.dtype().accumulator()));
        let wide = self.astype(dtype.accumulator().widened())?.running(code, axis, 0, reverse)?;
        wide.astype(dtype)
    }

    /// These cumulative results with `initial` in front of the first one, in the direction of the
    /// operation.
    #[track_caller]
    fn with_initial(
        &self,
        op: &'static str,
        axis: i64,
        initial: Operand<'_>,
        reverse: bool,
    ) -> Result<Tensor> {
        let at = normalize_axis(op, axis, self.rank())?;
        let first = Tensor::full(initial, self.shape().with_dim(at, 1usize), self.dtype())?;
        concat(&if reverse { [self, &first] } else { [&first, self] }, axis)
    }

    /// These cumulative results, or for an exclusive operation each one's predecessor and first
    /// `initial`.
    #[track_caller]
    fn excluded(
        &self,
        op: &'static str,
        axis: i64,
        initial: Operand<'_>,
        how: Running,
    ) -> Result<Tensor> {
        if !how.exclusive {
            return Ok(self.clone());
        }
        let at = normalize_axis(op, axis, self.rank())?;
        let (start, stop) = if how.reverse { (Some(1), None) } else { (None, Some(-1)) };
        let mut entries = vec![Index::ALL; at];
        entries.push(Index::Slice { start, stop, step: 1 });
        self.with_initial(op, axis, initial, how.reverse)?.index(&entries)
    }

    /// Cumulative sums along an axis. Integers and bool are summed as i64.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn cumsum(&self, axis: i64) -> Result<Tensor> {
        self.cumsum_with(axis, Cumulative::default())
    }

    /// Cumulative sums along an axis in the given direction, with or without the own element; as
    /// [`Tensor::cumsum_with`].
    #[track_caller]
    pub fn cumsum_by(&self, axis: i64, dtype: Option<DType>, how: Running) -> Result<Tensor> {
        self.running_total(OpCode::CumSum, axis, dtype, how.reverse)?.excluded(
            "cumsum",
            axis,
            0.0.into(),
            how,
        )
    }

    /// Cumulative sums along an axis, in a given dtype, or starting with a zero.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn cumsum_with(&self, axis: i64, options: Cumulative) -> Result<Tensor> {
        let out = self.running_total(OpCode::CumSum, axis, options.dtype, false)?;
        match options.include_initial {
            true => out.with_initial("cumsum", axis, 0.0.into(), false),
            false => Ok(out),
        }
    }

    /// Cumulative products along an axis in the given direction, with or without the own element;
    /// as [`Tensor::cumprod_with`].
    #[track_caller]
    pub fn cumprod_by(&self, axis: i64, dtype: Option<DType>, how: Running) -> Result<Tensor> {
        let out = self.running_total(OpCode::CumProd, axis, dtype, how.reverse)?;
        out.excluded("cumprod", axis, 1.0.into(), how)
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
        let out = self.running_total(OpCode::CumProd, axis, options.dtype, false)?;
        match options.include_initial {
            true => out.with_initial("cumprod", axis, 1.0.into(), false),
            false => Ok(out),
        }
    }

    /// The cumulative maximum along an axis; NaN from the first NaN on.
    #[track_caller]
    pub fn cummax(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMax, axis, 0, false)
    }

    /// The cumulative maximum along an axis in the given direction, with or without the own element;
    /// of no elements it is the smallest number of the dtype (infinite for floats).
    #[track_caller]
    pub fn cummax_by(&self, axis: i64, how: Running) -> Result<Tensor> {
        let initial = extreme(self.dtype(), false);
        self.running(OpCode::CumMax, axis, 0, how.reverse)?.excluded("cummax", axis, initial, how)
    }

    /// The index of the cumulative maximum (i64); the last of equal elements.
    #[track_caller]
    pub fn argcummax(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMax, axis, 1, false)
    }

    /// The cumulative minimum along an axis; NaN from the first NaN on.
    #[track_caller]
    pub fn cummin(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMin, axis, 0, false)
    }

    /// The cumulative minimum along an axis in the given direction, with or without the own element;
    /// of no elements it is the largest number of the dtype (infinite for floats).
    #[track_caller]
    pub fn cummin_by(&self, axis: i64, how: Running) -> Result<Tensor> {
        let initial = extreme(self.dtype(), true);
        self.running(OpCode::CumMin, axis, 0, how.reverse)?.excluded("cummin", axis, initial, how)
    }

    /// The index of the cumulative minimum (i64); the last of equal elements.
    #[track_caller]
    pub fn argcummin(&self, axis: i64) -> Result<Tensor> {
        self.running(OpCode::CumMin, axis, 1, false)
    }

    /// The logarithm of the cumulative sum of exponentials, without overflow. Integers become f32.
    #[track_caller]
    pub fn logcumsumexp(&self, axis: i64) -> Result<Tensor> {
        self.logcumsumexp_by(axis, Running::default())
    }

    /// The logarithm of the cumulative sum of exponentials in the given direction, with or without
    /// the own element; of no elements it is minus infinity. As [`Tensor::logcumsumexp`].
    #[track_caller]
    pub fn logcumsumexp_by(&self, axis: i64, how: Running) -> Result<Tensor> {
        let (op, dtype) = ("logcumsumexp", self.dtype().to_float());
        let out = match dtype.is_complex() {
            true => self.running_logaddexp(op, axis, how.reverse)?,
            false => {
                let x = self.astype(dtype.widened())?;
                x.running(OpCode::LogCumSumExp, axis, 0, how.reverse)?.astype(dtype)?
            }
        };
        out.excluded(op, axis, f64::NEG_INFINITY.into(), how)
    }

    /// Cumulative `logaddexp` of complex numbers: each step combines each element with the one that
    /// is 1, 2, 4, ... positions before it, so that no element is rounded by a later, larger one.
    #[track_caller]
    fn running_logaddexp(&self, op: &'static str, axis: i64, reverse: bool) -> Result<Tensor> {
        let at = normalize_axis(op, axis, self.rank())?;
        let size = self.shape()[at];
        let (mut out, mut step) = (principal(self)?, 1);
        while step < size {
            let rest = self.shape().with_dim(at, step);
            let empty = Tensor::full(f64::NEG_INFINITY, rest, self.dtype())?;
            let before = match reverse {
                false => concat(&[&empty, &out.narrow(axis, 0, size - step)?], axis)?,
                true => concat(&[&out.narrow(axis, step, size - step)?, &empty], axis)?,
            };
            out = before.logaddexp(&out)?;
            step *= 2;
        }
        Ok(out)
    }
}

/// The largest or the smallest number of a dtype.
fn extreme(dtype: DType, largest: bool) -> Operand<'static> {
    match dtype.int_range() {
        Some((min, max)) => Operand::Int(if largest { max } else { min }),
        None => Operand::Float(if largest { f64::INFINITY } else { f64::NEG_INFINITY }),
    }
}

//! Reductions that ignore NaN, with NumPy's names. If all elements are NaN, sums and products are
//! those of an empty axis; means, variances and extrema are NaN; positions of extrema are -1.

use super::elementwise::Operand;
use super::{Cumulative, ReducedAxes};
use crate::{Result, Tensor, default_int, where_};
use girih_ir::DType;

impl Tensor {
    /// Replaces NaN by a number. Integers are unchanged.
    #[track_caller]
    fn without_nan(&self, value: f64) -> Result<Tensor> {
        match self.dtype().is_inexact() {
            true => where_(&self.isnan()?, value, self),
            false => Ok(self.clone()),
        }
    }

    /// The number of elements that are not NaN, as `dtype`.
    #[track_caller]
    fn numbers(&self, over: &ReducedAxes, dtype: DType) -> Result<Tensor> {
        let counted = self.isnan()?.logical_not()?.astype(default_int())?;
        counted.sum(over.clone())?.astype(dtype)
    }

    /// The sum of the elements that are not NaN.
    #[track_caller]
    pub fn nansum(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.without_nan(0.0)?.sum(over)
    }

    /// The product of the elements that are not NaN.
    #[track_caller]
    pub fn nanprod(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.without_nan(1.0)?.prod(over)
    }

    /// The mean of the elements that are not NaN.
    #[track_caller]
    pub fn nanmean(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        let dtype = self.dtype().to_float();
        let x = self.astype(dtype.widened())?;
        let over = over.into();
        let count = x.numbers(&over, x.dtype())?;
        x.nansum(over)?.div(&count)?.astype(dtype)
    }

    /// The variance of the elements that are not NaN: [`Tensor::nanvar_with`] without a correction.
    #[track_caller]
    pub fn nanvar(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.nanvar_with(over, 0.0)
    }

    /// The variance of the elements that are not NaN, with `correction` subtracted from their
    /// number; NaN if the difference is not positive.
    #[track_caller]
    pub fn nanvar_with(&self, over: impl Into<ReducedAxes>, correction: f64) -> Result<Tensor> {
        let over = over.into();
        let dtype = self.dtype().to_float();
        let x = self.astype(dtype.widened())?;
        let centred = x.sub(&x.nanmean(over.axes.clone().reduced(true))?)?.without_nan(0.0)?;
        // The centred value of an infinity is NaN, and must not be ignored.
        let centred = where_(&x.isinf()?, f64::NAN, &centred)?;
        let degrees = x.numbers(&over, x.dtype())?.sub(correction)?;
        let squares = centred.square()?.sum(over)?;
        let some = degrees.gt(0.0)?;
        let safe = where_(&some, &degrees, 1.0)?;
        where_(&some, &squares.div(&safe)?, f64::NAN)?.astype(dtype)
    }

    /// The standard deviation of the elements that are not NaN: [`Tensor::nanstd_with`] without a
    /// correction.
    #[track_caller]
    pub fn nanstd(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.nanstd_with(over, 0.0)
    }

    /// The standard deviation of the elements that are not NaN: the square root of
    /// [`Tensor::nanvar_with`].
    #[track_caller]
    pub fn nanstd_with(&self, over: impl Into<ReducedAxes>, correction: f64) -> Result<Tensor> {
        let over = over.into();
        self.in_wide(|x| x.nanvar_with(over, correction)?.sqrt())
    }

    #[track_caller]
    fn nan_extremum(&self, over: ReducedAxes, largest: bool) -> Result<Tensor> {
        let neutral = if largest { f64::NEG_INFINITY } else { f64::INFINITY };
        let of = |x: Tensor| if largest { x.max(over.clone()) } else { x.min(over.clone()) };
        let found = of(self.without_nan(neutral)?)?;
        match self.dtype().is_inexact() {
            true => where_(&self.isnan()?.all(over)?, f64::NAN, &found),
            false => Ok(found),
        }
    }

    /// The largest element that is not NaN.
    #[track_caller]
    pub fn nanmax(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.nan_extremum(over.into(), true)
    }

    /// The smallest element that is not NaN.
    #[track_caller]
    pub fn nanmin(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.nan_extremum(over.into(), false)
    }

    #[track_caller]
    fn nan_position(&self, over: ReducedAxes, largest: bool) -> Result<Tensor> {
        // A replaced NaN equals an infinity. If the extremum is that infinity, take the first
        // number instead, so that a number wins over an earlier NaN.
        let found =
            |x: &Tensor| if largest { x.argmax(over.clone()) } else { x.argmin(over.clone()) };
        if !self.dtype().is_inexact() {
            return found(self);
        }
        let neutral = if largest { f64::NEG_INFINITY } else { f64::INFINITY };
        let nan = self.isnan()?;
        let filled = self.without_nan(neutral)?;
        let first_number = nan.astype(DType::I8)?.argmin(over.clone())?;
        let best = if largest { filled.max(over.clone())? } else { filled.min(over.clone())? };
        let at = where_(&best.eq(neutral)?, &first_number, &found(&filled)?)?;
        where_(&nan.all(over)?, -1, &at)
    }

    /// The index (i64) of the first largest element that is not NaN; -1 if all are NaN.
    #[track_caller]
    pub fn nanargmax(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.nan_position(over.into(), true)
    }

    /// The index (i64) of the first smallest element that is not NaN; -1 if all are NaN.
    #[track_caller]
    pub fn nanargmin(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        self.nan_position(over.into(), false)
    }

    /// Cumulative sums that ignore NaN.
    #[track_caller]
    pub fn nancumsum(&self, axis: i64, dtype: Option<DType>) -> Result<Tensor> {
        self.without_nan(0.0)?.cumsum_with(axis, Cumulative { dtype, ..Cumulative::default() })
    }

    /// Cumulative products that ignore NaN.
    #[track_caller]
    pub fn nancumprod(&self, axis: i64, dtype: Option<DType>) -> Result<Tensor> {
        self.without_nan(1.0)?.cumprod_with(axis, Cumulative { dtype, ..Cumulative::default() })
    }

    /// Replaces NaN and infinities by numbers, by default 0 and the dtype's extremes; for complex
    /// numbers, in each part. Integers and bool are unchanged.
    #[track_caller]
    pub fn nan_to_num(&self, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
        let dtype = self.dtype();
        if dtype.is_complex() {
            let part = |x: Tensor| x.nan_to_num(nan, posinf, neginf);
            return part(self.real()?)?.complex(&part(self.imag()?)?);
        }
        let Some(largest) = largest(dtype) else { return Ok(self.clone()) };
        let (high, low) = (posinf.unwrap_or(largest), neginf.unwrap_or(-largest));
        let x = where_(&self.eq(f64::INFINITY)?, high, self)?;
        let x = where_(&self.eq(f64::NEG_INFINITY)?, low, &x)?;
        where_(&self.isnan()?, nan, Operand::Tensor(&x))
    }
}

/// The largest finite number of a floating-point dtype.
fn largest(dtype: DType) -> Option<f64> {
    Some(match dtype {
        DType::F64 => f64::MAX,
        DType::F32 => f32::MAX.into(),
        DType::F16 => 65504.0,
        DType::BF16 => f32::from_bits(0x7f7f_0000).into(),
        _ => return None,
    })
}

//! Reductions that ignore NaN, with NumPy's names. If all elements are NaN, sums and products are
//! those of an empty axis; means, variances and extrema are NaN; positions of extrema are -1.

use super::elementwise::Operand;
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
    fn numbers(&self, axes: Option<&[i64]>, keepdims: bool, dtype: DType) -> Result<Tensor> {
        let counted = self.isnan()?.logical_not()?.astype(default_int())?;
        counted.sum(axes, keepdims)?.astype(dtype)
    }

    /// The sum of the elements that are not NaN.
    #[track_caller]
    pub fn nansum(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.without_nan(0.0)?.sum(axes, keepdims)
    }

    /// The product of the elements that are not NaN.
    #[track_caller]
    pub fn nanprod(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.without_nan(1.0)?.prod(axes, keepdims)
    }

    /// The mean of the elements that are not NaN.
    #[track_caller]
    pub fn nanmean(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        let dtype = self.dtype().to_float();
        let x = self.astype(dtype.widened())?;
        let count = x.numbers(axes, keepdims, x.dtype())?;
        x.nansum(axes, keepdims)?.div(&count)?.astype(dtype)
    }

    /// The variance of the elements that are not NaN, with `correction` subtracted from their
    /// number; NaN if the difference is not positive.
    #[track_caller]
    pub fn nanvar(&self, axes: Option<&[i64]>, correction: f64, keepdims: bool) -> Result<Tensor> {
        let dtype = self.dtype().to_float();
        let x = self.astype(dtype.widened())?;
        let centred = x.sub(&x.nanmean(axes, true)?)?.without_nan(0.0)?;
        // The centred value of an infinity is NaN, and must not be ignored.
        let centred = where_(&x.isinf()?, f64::NAN, &centred)?;
        let degrees = x.numbers(axes, keepdims, x.dtype())?.sub(correction)?;
        let squares = centred.square()?.sum(axes, keepdims)?;
        let some = degrees.gt(0.0)?;
        let safe = where_(&some, &degrees, 1.0)?;
        where_(&some, &squares.div(&safe)?, f64::NAN)?.astype(dtype)
    }

    /// The standard deviation of the elements that are not NaN: the square root of
    /// [`Tensor::nanvar`].
    #[track_caller]
    pub fn nanstd(&self, axes: Option<&[i64]>, correction: f64, keepdims: bool) -> Result<Tensor> {
        self.in_wide(|x| x.nanvar(axes, correction, keepdims)?.sqrt())
    }

    #[track_caller]
    fn nan_extremum(&self, axes: Option<&[i64]>, keepdims: bool, largest: bool) -> Result<Tensor> {
        let neutral = if largest { f64::NEG_INFINITY } else { f64::INFINITY };
        let of = |x: &Tensor| if largest { x.max(axes, keepdims) } else { x.min(axes, keepdims) };
        let found = of(&self.without_nan(neutral)?)?;
        match self.dtype().is_inexact() {
            true => where_(&self.isnan()?.all(axes, keepdims)?, f64::NAN, &found),
            false => Ok(found),
        }
    }

    /// The largest element that is not NaN.
    #[track_caller]
    pub fn nanmax(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.nan_extremum(axes, keepdims, true)
    }

    /// The smallest element that is not NaN.
    #[track_caller]
    pub fn nanmin(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.nan_extremum(axes, keepdims, false)
    }

    #[track_caller]
    fn nan_position(&self, axis: Option<i64>, keepdims: bool, largest: bool) -> Result<Tensor> {
        // A replaced NaN equals an infinity. If the extremum is that infinity, take the first
        // number instead, so that a number wins over an earlier NaN.
        let found = if largest { Tensor::argmax } else { Tensor::argmin };
        if !self.dtype().is_inexact() {
            return found(self, axis, keepdims);
        }
        let neutral = if largest { f64::NEG_INFINITY } else { f64::INFINITY };
        let nan = self.isnan()?;
        let axes = axis.map(|axis| [axis]);
        let axes = axes.as_ref().map(<[i64; 1]>::as_slice);
        let filled = self.without_nan(neutral)?;
        let first_number = nan.astype(DType::I8)?.argmin(axis, keepdims)?;
        let best =
            if largest { filled.max(axes, keepdims)? } else { filled.min(axes, keepdims)? };
        let at = where_(&best.eq(neutral)?, &first_number, &found(&filled, axis, keepdims)?)?;
        where_(&nan.all(axes, keepdims)?, -1, &at)
    }

    /// The index (i64) of the first largest element that is not NaN; -1 if all are NaN.
    #[track_caller]
    pub fn nanargmax(&self, axis: Option<i64>, keepdims: bool) -> Result<Tensor> {
        self.nan_position(axis, keepdims, true)
    }

    /// The index (i64) of the first smallest element that is not NaN; -1 if all are NaN.
    #[track_caller]
    pub fn nanargmin(&self, axis: Option<i64>, keepdims: bool) -> Result<Tensor> {
        self.nan_position(axis, keepdims, false)
    }

    /// Cumulative sums that ignore NaN.
    #[track_caller]
    pub fn nancumsum(&self, axis: i64, dtype: Option<DType>) -> Result<Tensor> {
        self.without_nan(0.0)?.cumsum(axis, dtype, false)
    }

    /// Cumulative products that ignore NaN.
    #[track_caller]
    pub fn nancumprod(&self, axis: i64, dtype: Option<DType>) -> Result<Tensor> {
        self.without_nan(1.0)?.cumprod(axis, dtype, false)
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

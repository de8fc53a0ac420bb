//! Reductions that leave NaN out, with NumPy's names. Over nothing but NaN, sums and products are
//! those of nothing; means, extrema and what is made of them NaN; positions of extrema -1.

use super::elementwise::Operand;
use crate::{Result, Tensor, default_int, where_};
use girih_ir::DType;

impl Tensor {
    /// The tensor with a number in the place of NaN. Integers are themselves.
    #[track_caller]
    fn without_nan(&self, value: f64) -> Result<Tensor> {
        match self.dtype().is_inexact() {
            true => where_(&self.isnan()?, value, self),
            false => Ok(self.clone()),
        }
    }

    /// How many elements are numbers, in the dtype that their sum is taken in.
    #[track_caller]
    fn numbers(&self, axes: Option<&[i64]>, keepdims: bool, dtype: DType) -> Result<Tensor> {
        let counted = self.isnan()?.logical_not()?.astype(default_int())?;
        counted.sum(axes, keepdims)?.astype(dtype)
    }

    /// Sum of the elements that are not NaN.
    #[track_caller]
    pub fn nansum(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.without_nan(0.0)?.sum(axes, keepdims)
    }

    /// Product of the elements that are not NaN.
    #[track_caller]
    pub fn nanprod(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.without_nan(1.0)?.prod(axes, keepdims)
    }

    /// Mean of the elements that are not NaN.
    #[track_caller]
    pub fn nanmean(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        let dtype = self.dtype().to_float();
        let x = self.astype(dtype.widened())?;
        let count = x.numbers(axes, keepdims, x.dtype())?;
        x.nansum(axes, keepdims)?.div(&count)?.astype(dtype)
    }

    /// Variance of the elements that are not NaN, `correction` subtracted from their number; NaN
    /// where that leaves nothing.
    #[track_caller]
    pub fn nanvar(&self, axes: Option<&[i64]>, correction: f64, keepdims: bool) -> Result<Tensor> {
        let dtype = self.dtype().to_float();
        let x = self.astype(dtype.widened())?;
        let centred = x.sub(&x.nanmean(axes, true)?)?.without_nan(0.0)?;
        // A difference of infinities is no number either, and says so.
        let centred = where_(&x.isinf()?, f64::NAN, &centred)?;
        let degrees = x.numbers(axes, keepdims, x.dtype())?.sub(correction)?;
        let squares = centred.square()?.sum(axes, keepdims)?;
        let some = degrees.gt(0.0)?;
        let safe = where_(&some, &degrees, 1.0)?;
        where_(&some, &squares.div(&safe)?, f64::NAN)?.astype(dtype)
    }

    /// Standard deviation of the elements that are not NaN: the root of [`Tensor::nanvar`].
    #[track_caller]
    pub fn nanstd(&self, axes: Option<&[i64]>, correction: f64, keepdims: bool) -> Result<Tensor> {
        self.nanvar(axes, correction, keepdims)?.sqrt()
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

    /// Largest of the elements that are not NaN.
    #[track_caller]
    pub fn nanmax(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.nan_extremum(axes, keepdims, true)
    }

    /// Smallest of the elements that are not NaN.
    #[track_caller]
    pub fn nanmin(&self, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
        self.nan_extremum(axes, keepdims, false)
    }

    #[track_caller]
    fn nan_position(&self, axis: Option<i64>, keepdims: bool, largest: bool) -> Result<Tensor> {
        // Numbers before NaN, then by size: an infinity must win over the NaN before it.
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

    /// Index (i64) of the first largest element that is not NaN, -1 if none is a number.
    #[track_caller]
    pub fn nanargmax(&self, axis: Option<i64>, keepdims: bool) -> Result<Tensor> {
        self.nan_position(axis, keepdims, true)
    }

    /// Index (i64) of the first smallest element that is not NaN, -1 if none is a number.
    #[track_caller]
    pub fn nanargmin(&self, axis: Option<i64>, keepdims: bool) -> Result<Tensor> {
        self.nan_position(axis, keepdims, false)
    }

    /// Running sums that leave NaN out.
    #[track_caller]
    pub fn nancumsum(&self, axis: i64, dtype: Option<DType>) -> Result<Tensor> {
        self.without_nan(0.0)?.cumsum(axis, dtype, false)
    }

    /// Running products that leave NaN out.
    #[track_caller]
    pub fn nancumprod(&self, axis: i64, dtype: Option<DType>) -> Result<Tensor> {
        self.without_nan(1.0)?.cumprod(axis, dtype, false)
    }

    /// NaN and infinities replaced by numbers: 0 and the dtype's extremes by default; of complex
    /// numbers each part. Integers and bool are themselves.
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

/// The largest number of a floating-point dtype.
fn largest(dtype: DType) -> Option<f64> {
    Some(match dtype {
        DType::F64 => f64::MAX,
        DType::F32 => f32::MAX.into(),
        DType::F16 => 65504.0,
        DType::BF16 => f32::from_bits(0x7f7f_0000).into(),
        _ => return None,
    })
}

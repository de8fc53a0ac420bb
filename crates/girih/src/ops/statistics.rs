//! Covariances, and functions given by samples: interpolation, integrals, polynomials.

use crate::{
    Cumulative, DType, Error, Index, Operand, Result, Side, Tensor, concat, keepdims, searchsorted,
    where_,
};
use girih_ir::Shape;
use girih_ir::shape::normalize_axis;

fn bad_shape(op: &'static str, shape: Shape, reason: &str) -> Error {
    girih_ir::Error::InvalidShape { op, shape, reason: reason.into() }.into()
}

/// Fails unless the tensor has one axis with at least `least` elements; returns its size.
fn vector(op: &'static str, what: &str, x: &Tensor, least: usize) -> Result<usize> {
    match (x.rank(), x.shape().first().copied()) {
        (1, Some(size)) if size >= least => Ok(size),
        _ => {
            let reason = format!("{what}: one axis of at least {least} is expected");
            Err(bad_shape(op, x.shape(), &reason))
        }
    }
}

fn slice(x: &Tensor, start: Option<i64>, stop: Option<i64>) -> Result<Tensor> {
    x.index(&[Index::Slice { start, stop, step: 1 }])
}

/// Where the variables of [`cov`] are; the observations are along the other axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variables {
    /// In rows.
    #[default]
    Rows,
    /// In columns.
    Columns,
}

/// The settings of [`cov`].
#[derive(Clone, Default)]
pub struct Covariance<'a> {
    /// Where the variables are.
    pub variables: Variables,
    /// The number subtracted from the number of observations; the default is 1.
    pub correction: Option<f64>,
    /// The number of occurrences of each observation.
    pub frequencies: Option<&'a Tensor>,
    /// The weight of each observation.
    pub weights: Option<&'a Tensor>,
}

/// The covariance matrix of variables, with one row and column per variable; a scalar for a single
/// variable. Integers become f32.
///
/// Errors: a shape error for more than two axes, or unless there is one weight per observation.
#[track_caller]
pub fn cov(x: &Tensor, y: Option<&Tensor>, settings: &Covariance<'_>) -> Result<Tensor> {
    let (out, dtype) = covariances("cov", x, y, settings)?;
    let out = out.astype(dtype)?;
    if out.numel() == 1 { out.reshape(()) } else { Ok(out) }
}

/// The covariance matrix in the accumulation dtype, and the dtype of the result.
#[track_caller]
fn covariances(
    op: &'static str,
    x: &Tensor,
    y: Option<&Tensor>,
    settings: &Covariance<'_>,
) -> Result<(Tensor, DType)> {
    let rows = |x: &Tensor| {
        if x.rank() > 2 {
            return Err(bad_shape(op, x.shape(), "at most two axes are expected"));
        }
        let turned = settings.variables == Variables::Columns && x.rank() == 2;
        if turned { x.t() } else { x.at_least(2) }
    };
    let x = match y {
        Some(y) => concat(&[&rows(x)?, &rows(y)?], 0)?,
        None => rows(x)?,
    };
    let dtype = x.dtype().to_float();
    let x = x.astype(dtype.widened())?;
    let observations = x.shape()[1];
    let correction = settings.correction.unwrap_or(1.0);
    let given = [settings.frequencies, settings.weights];
    let mut weight: Option<Tensor> = None;
    for given in given.into_iter().flatten() {
        if vector(op, "weights", given, 0)? != observations {
            let reason = format!("one weight for each of {observations} observations is expected");
            return Err(bad_shape(op, given.shape(), &reason));
        }
        let given = given.astype(x.dtype().real())?;
        weight = Some(weight.map_or(Ok(given.clone()), |w| w.mul(&given))?);
    }
    let Some(weight) = weight else {
        let centred = x.sub(&x.mean_of_rows()?)?;
        let degrees = (observations as f64 - correction).max(0.0);
        let products = centred.product(&centred.t()?.conj()?)?;
        return Ok((products.mul(1.0 / degrees)?, dtype));
    };
    let total = weight.sum_all()?;
    let mean = x.mul(&weight)?.sum(keepdims(1))?.div(&total)?;
    let centred = x.sub(&mean)?;
    let lost = match settings.weights {
        None => Tensor::full(correction, [], total.dtype())?,
        Some(w) => {
            let squares = weight.mul(&w.astype(total.dtype())?)?.sum_all()?;
            squares.mul(correction)?.div(&total)?
        }
    };
    let degrees = total.sub(&lost)?.maximum(0.0)?;
    Ok((centred.mul(&weight)?.product(&centred.t()?.conj()?)?.div(&degrees)?, dtype))
}

impl Tensor {
    /// The means along the last axis, of real or complex numbers.
    fn mean_of_rows(&self) -> Result<Tensor> {
        self.mean(keepdims(-1))
    }
}

/// Correlation coefficients: covariances divided by the products of standard deviations, clamped to
/// `[-1, 1]`. See [`cov`].
#[track_caller]
pub fn corrcoef(x: &Tensor, y: Option<&Tensor>, variables: Variables) -> Result<Tensor> {
    let settings = Covariance { variables, ..Covariance::default() };
    let (c, dtype) = covariances("corrcoef", x, y, &settings)?;
    let deviation = c.diagonal(0, 0, 1)?.real()?.sqrt()?;
    let c = c.div(&deviation.unsqueeze(1)?)?.div(&deviation)?;
    let within = |x: Tensor| x.clip(-1.0, 1.0);
    let c = match c.dtype().is_complex() {
        true => within(c.real()?)?.complex(&within(c.imag()?)?)?,
        false => within(c)?,
    };
    let c = c.astype(dtype)?;
    if c.numel() == 1 { c.reshape(()) } else { Ok(c) }
}

/// The values of [`interp`] outside the samples.
#[derive(Clone, Copy, Default)]
pub struct Beyond<'a> {
    /// The value below the first coordinate; by default the first sample.
    pub left: Option<Operand<'a>>,
    /// The value above the last coordinate; by default the last sample.
    pub right: Option<Operand<'a>>,
    /// The period of the coordinates; with a period, `left` and `right` are ignored.
    pub period: Option<f64>,
}

/// The values at `x` of the piecewise linear function through the points `(xp, fp)`; `xp` (one
/// axis) must ascend unless a period is given. Gradients flow to `x` and `fp`.
///
/// Errors: a shape error unless `xp` and `fp` have one axis and the same number of elements, at
/// least one.
#[track_caller]
pub fn interp(x: &Tensor, xp: &Tensor, fp: &Tensor, beyond: Beyond<'_>) -> Result<Tensor> {
    let count = vector("interp", "xp", xp, 1)?;
    if vector("interp", "fp", fp, 1)? != count {
        let reason = "xp and fp must have as many elements".to_string();
        let (op, lhs, rhs) = ("interp", xp.shape(), fp.shape());
        return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
    }
    let dtype = x.dtype().promote(xp.dtype())?.to_float();
    let (mut x, mut xp) = (x.astype(dtype)?, xp.astype(dtype)?);
    let mut fp = fp.astype(fp.dtype().to_float().promote(dtype)?)?;
    if let Some(period) = beyond.period {
        if period == 0.0 || !period.is_finite() {
            return Err(Error::InvalidArgument(format!(
                "interp: the period must be a finite number other than zero, got {period}"
            )));
        }
        let period = period.abs();
        (x, xp) = (x.remainder(period)?, xp.remainder(period)?);
        let order = xp.argsort(0)?;
        (xp, fp) = (xp.take(&order, 0)?, fp.take(&order, 0)?);
        let ends =
            |x: &Tensor| Ok::<_, Error>((slice(x, Some(-1), None)?, slice(x, None, Some(1))?));
        let ((last, first), (last_f, first_f)) = (ends(&xp)?, ends(&fp)?);
        xp = concat(&[&last.sub(period)?, &xp, &first.add(period)?], 0)?;
        fp = concat(&[&last_f, &fp, &first_f], 0)?;
    }
    let end = |x: &Tensor, at: i64| x.index(&[Index::At(at)]);
    let (first, last) = (end(&fp, 0)?, end(&fp, -1)?);
    let fixed = |value: Option<Operand<'_>>, default: Tensor| match value {
        Some(value) if beyond.period.is_none() => value.constant(fp.dtype()),
        _ => Ok(default),
    };
    let (left, right) = (fixed(beyond.left, first)?, fixed(beyond.right, last)?);
    let inside = match xp.numel() {
        1 => end(&fp, 0)?.broadcast_to(x.shape())?,
        n => {
            let at = searchsorted(&xp, &x, Side::Right, None)?
                .sub(1)?
                .maximum(0)?
                .minimum(n as i64 - 2)?;
            let next = at.add(1)?;
            let (x0, x1) = (xp.take(&at, 0)?, xp.take(&next, 0)?);
            let (f0, f1) = (fp.take(&at, 0)?, fp.take(&next, 0)?);
            let between = |f0: Tensor, f1: Tensor| between(&x, [&x0, &x1], [&f0, &f1]);
            match fp.dtype().is_complex() {
                true => {
                    between(f0.real()?, f1.real()?)?.complex(&between(f0.imag()?, f1.imag()?)?)?
                }
                false => between(f0, f1)?,
            }
        }
    };
    let inside = where_(&x.gt(&end(&xp, -1)?)?, &right, &inside)?;
    let inside = where_(&x.lt(&end(&xp, 0)?)?, &left, &inside)?;
    where_(&x.isnan()?, f64::NAN, &inside)
}

/// The values at `x` of the lines through the points `(x0, f0)` and `(x1, f1)`, with `x` between
/// `x0` and `x1`. Knots give their values exactly. Beside an infinity, a formula that starts from
/// one knot may give NaN; then the formula from the other knot decides, as in NumPy.
#[track_caller]
fn between(x: &Tensor, [x0, x1]: [&Tensor; 2], [f0, f1]: [&Tensor; 2]) -> Result<Tensor> {
    let (width, rise) = (x1.sub(x0)?, f1.sub(f0)?);
    let width = where_(&width.eq(0.0)?, 1.0, &width)?;
    let forward = f0.add(&rise.mul(&x.sub(x0)?.div(&width)?)?)?;
    let backward = f1.sub(&rise.mul(&x1.sub(x)?.div(&width)?)?)?;
    let value = where_(&forward.isnan()?, &backward, &forward)?;
    let flat = value.isnan()?.bitwise_and(&f0.eq(f1)?)?;
    let value = where_(&flat.bitwise_or(&x.eq(x0)?)?, f0, &value)?;
    where_(&x.eq(x1)?, f1, &value)
}

/// The index (i64) of the interval between neighbours of `bins` (one axis, ascending or descending)
/// that contains each element; 0 before the first. Intervals include their end on the `closed` side:
/// the lower for [`Side::Left`], the upper for [`Side::Right`].
///
/// Errors: a shape error unless `bins` has one axis.
#[track_caller]
pub fn digitize(x: &Tensor, bins: &Tensor, closed: Side) -> Result<Tensor> {
    let side = if closed == Side::Left { Side::Right } else { Side::Left };
    let count = vector("digitize", "bins", bins, 0)?;
    let up = searchsorted(bins, x, side, None)?;
    if count < 2 {
        return Ok(up);
    }
    let reversed = bins.flip(0)?;
    let down = searchsorted(&reversed, x, side, None)?.neg()?.add(count as i64)?;
    let end = |at: i64| bins.index(&[Index::At(at)]);
    where_(&end(0)?.le(&end(-1)?)?, &up, &down)
}

/// The integral along an axis of the piecewise linear function through samples `y`, with
/// coordinates `x` (one axis, or the shape of `y`) or the distance `dx`.
///
/// Errors: an axis error; a shape error for other shapes of `x`.
#[track_caller]
pub fn trapezoid(y: &Tensor, x: Option<&Tensor>, dx: f64, axis: i64) -> Result<Tensor> {
    let at = normalize_axis("trapezoid", axis, y.rank())?;
    let y = y.astype(y.dtype().to_float())?;
    let size = y.shape()[at];
    let rest = size.saturating_sub(1);
    let (low, high) = (y.narrow(axis, 0, rest)?, y.narrow(axis, size - rest, rest)?);
    let both = low.add(&high)?.mul(0.5)?;
    let areas = match x {
        None => both.mul(dx)?,
        Some(x) if x.rank() == 1 => {
            if vector("trapezoid", "x", x, 0)? != size {
                let reason = format!("one coordinate for each of {size} samples is expected");
                return Err(bad_shape("trapezoid", x.shape(), &reason));
            }
            let widths = x.diff(1, 0, None, None)?;
            let sizes = (0..y.rank()).map(|i| if i == at { rest as i64 } else { 1 });
            both.mul(&widths.reshape(sizes.collect::<Vec<_>>())?)?
        }
        Some(x) => both.mul(&x.diff(1, axis, None, None)?)?,
    };
    areas.sum(axis)
}

/// Evaluates at `x` the polynomial with the coefficients `p` (one axis, highest power first).
///
/// Errors: a shape error unless `p` has one axis.
#[track_caller]
pub fn polyval(p: &Tensor, x: &Tensor) -> Result<Tensor> {
    vector("polyval", "p", p, 0)?;
    let dtype = p.dtype().promote(x.dtype())?;
    let dtype = if dtype == DType::Bool { crate::default_int() } else { dtype };
    let (p, x) = (p.astype(dtype)?, x.astype(dtype)?);
    let zero = Tensor::zeros(x.shape(), dtype)?;
    let step = |carries: &[Tensor], parts: &[Tensor]| {
        Ok((vec![carries[0].mul(&x)?.add(&parts[0])?], Vec::new()))
    };
    let (mut sums, _) = crate::scan(step, &[zero], &[p])?;
    Ok(sums.swap_remove(0))
}

/// The order of the columns of [`vander`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Powers {
    /// The highest power first.
    Descending,
    /// The lowest power first.
    Ascending,
}

/// The Vandermonde matrix: powers of the elements of a vector as columns.
///
/// Errors: a shape error unless `x` has one axis.
#[track_caller]
pub fn vander(x: &Tensor, columns: Option<usize>, powers: Powers) -> Result<Tensor> {
    let count = columns.unwrap_or(vector("vander", "x", x, 0)?);
    vector("vander", "x", x, 0)?;
    let dtype = if x.dtype() == DType::Bool { crate::default_int() } else { x.dtype() };
    let x = x.astype(dtype)?.unsqueeze(1)?;
    let size = x.shape()[0];
    let ones = Tensor::ones([size, count.min(1)], dtype)?;
    if count < 2 {
        return Ok(ones);
    }
    let typed = Cumulative { dtype: Some(dtype), ..Cumulative::default() };
    let products = x.broadcast_to([size, count - 1])?.cumprod_with(1, typed)?;
    let all = concat(&[&ones, &products], 1)?;
    match powers {
        Powers::Ascending => Ok(all),
        Powers::Descending => all.flip(1),
    }
}

/// The coefficients, highest power first, of the least-squares polynomial of degree `degree`
/// through the points `(x, y)`, weighted by `w`. Each column of `y` gives one polynomial.
///
/// Errors: a shape error unless `x` has one axis that is not empty, and `y` the same number of
/// rows.
#[track_caller]
pub fn polyfit(
    x: &Tensor,
    y: &Tensor,
    degree: usize,
    rcond: Option<f64>,
    w: Option<&Tensor>,
) -> Result<Tensor> {
    let count = vector("polyfit", "x", x, 1)?;
    if !(1..=2).contains(&y.rank()) || y.shape()[0] != count {
        let reason = "y must have one row for each x, and one or two axes".to_string();
        let (op, lhs, rhs) = ("polyfit", x.shape(), y.shape());
        return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
    }
    let dtype = x.dtype().promote(y.dtype())?.to_float();
    let (x, mut y) = (x.astype(dtype.widened())?, y.astype(dtype.widened())?);
    let mut left = vander(&x, Some(degree + 1), Powers::Descending)?;
    if let Some(w) = w {
        if vector("polyfit", "w", w, 0)? != count {
            let reason = format!("one weight for each of {count} points is expected");
            return Err(bad_shape("polyfit", w.shape(), &reason));
        }
        let w = w.astype(x.dtype().real())?;
        let column = w.unsqueeze(1)?;
        y = if y.rank() == 1 { y.mul(&w)? } else { y.mul(&column)? };
        left = left.mul(&column)?;
    }
    let scale = left.abs()?.square()?.sum(0)?.sqrt()?;
    let scale = where_(&scale.eq(0.0)?, 1.0, &scale)?;
    let epsilon = if x.dtype().real() == DType::F64 { f64::EPSILON } else { f32::EPSILON.into() };
    let rcond = rcond.unwrap_or(count as f64 * epsilon);
    let scaled = left.div(&scale)?;
    let found = super::linalg::lstsq(&scaled, &y, Some(Operand::Float(rcond)))?.solution;
    let scale = if y.rank() == 1 { scale } else { scale.unsqueeze(1)? };
    found.div(&scale)?.astype(dtype)
}

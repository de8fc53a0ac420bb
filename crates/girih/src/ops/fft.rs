//! Discrete Fourier transforms: the array API standard's `fft` extension.
//!
//! `y_k = sum_j x_j exp(-2 pi i j k / n)` along an axis; the inverse has the opposite sign, and
//! [`Norm`] determines the normalisation. An axis is first truncated, or padded with zeros, to the
//! requested length.
//!
//! Dtypes: float32 and complex64 give complex64 (and float32 if the result is real), float64 and
//! complex128 give complex128 (float64); integers, bool and half floats are converted to float32.
//! Gradients: all transforms are linear, and have gradients of any order.
//!
//! Errors: an axis error for axes out of range; [`Error::InvalidArgument`] for lengths below one,
//! and for different numbers of lengths and axes.

use crate::{DType, Error, Result, Tensor, where_};
use girih_ir::ops::fft::half;
use girih_ir::shape::normalize_axis;
use girih_ir::{Attrs, Op, OpCode, Shape};

/// The normalisation of transforms of length `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Norm {
    /// The inverse transform is divided by `n`.
    #[default]
    Backward,
    /// Both transforms are divided by the square root of `n`.
    Ortho,
    /// The forward transform is divided by `n`.
    Forward,
}

impl Norm {
    /// Parses a norm's name: `backward`, `ortho` or `forward`.
    pub fn parse(name: &str) -> Option<Norm> {
        match name {
            "backward" => Some(Norm::Backward),
            "ortho" => Some(Norm::Ortho),
            "forward" => Some(Norm::Forward),
            _ => None,
        }
    }

    /// The norm with forward and inverse transforms exchanged.
    fn swapped(self) -> Norm {
        match self {
            Norm::Backward => Norm::Forward,
            Norm::Ortho => Norm::Ortho,
            Norm::Forward => Norm::Backward,
        }
    }
}

/// The transforms that have ops.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Forward,
    Inverse,
    OfReal,
    ToReal,
}

impl Kind {
    /// Converts the operand to a dtype that the op takes.
    #[track_caller]
    fn operand(self, x: &Tensor) -> Result<Tensor> {
        let dtype = x.dtype().to_float().widened();
        x.astype(if self == Kind::OfReal { dtype } else { dtype.complex() })
    }

    /// The op for transforms of length `n`.
    fn op(self, op: &'static str, n: usize, norm: Norm) -> Result<Op> {
        let inverse = matches!(self, Kind::Inverse | Kind::ToReal);
        let divided = norm == if inverse { Norm::Backward } else { Norm::Forward };
        let library = |flag, size| Attrs::Library { result: 0, flag, size };
        Ok(match self {
            Kind::Forward | Kind::Inverse => Op::new(OpCode::Fft, library(inverse, divided as u32)),
            Kind::OfReal => Op::new(OpCode::Rfft, library(divided, 0)),
            Kind::ToReal => {
                let size = u32::try_from(n).map_err(|_| {
                    Error::InvalidArgument(format!("{op}: n is at most {}, got {n}", u32::MAX))
                })?;
                Op::new(OpCode::Irfft, library(divided, size))
            }
        })
    }

    /// Transforms the rows of a tensor, after truncation or padding to length `n`.
    #[track_caller]
    fn rows(self, op: &'static str, x: &Tensor, n: Option<i64>, norm: Norm) -> Result<Tensor> {
        let len = x.shape().last().copied().unwrap_or(0);
        let default = match self {
            Kind::ToReal => 2 * (len as i64 - 1),
            _ => len as i64,
        };
        let n = n.unwrap_or(default);
        if n < 1 {
            let hint = if n == default { format!(" for an axis of {len}") } else { String::new() };
            return Err(Error::InvalidArgument(format!(
                "{op}: a transform needs at least one element, got n = {n}{hint}"
            )));
        }
        let n = Shape::from_signed(op, &[n])?.numel();
        let x = fitted(x, if self == Kind::ToReal { half(n) } else { n })?;
        let y = Tensor::record(self.op(op, n, norm)?, &[&x])?;
        if norm == Norm::Ortho && n > 1 { y.mul(1.0 / (n as f64).sqrt()) } else { Ok(y) }
    }

    #[track_caller]
    fn along(
        self,
        op: &'static str,
        x: &Tensor,
        n: Option<i64>,
        axis: i64,
        norm: Norm,
    ) -> Result<Tensor> {
        self.operand(x)?.by_rows(op, axis, |x| self.rows(op, x, n, norm))
    }
}

/// Truncates the rows, or pads them with zeros, to length `len`.
#[track_caller]
fn fitted(x: &Tensor, len: usize) -> Result<Tensor> {
    let (rank, have) = (x.rank(), x.shape()[x.rank() - 1]);
    if have == len {
        return Ok(x.clone());
    }
    if have > len {
        return x.narrow(-1, 0, len);
    }
    let mut widths = vec![(0, 0); rank];
    widths[rank - 1].1 = len - have;
    x.pad(&widths, 0)
}

/// The Fourier transform along an axis.
///
/// ```
/// use girih::{Complex32, Tensor, fft};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [4])?;
/// let y = fft::fft(&x, None, -1, fft::Norm::Backward)?;
/// let want = [(10.0, 0.0), (-2.0, 2.0), (-2.0, 0.0), (-2.0, -2.0)];
/// assert_eq!(y.to_vec::<Complex32>()?, want.map(|(re, im)| Complex32::new(re, im)));
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn fft(x: &Tensor, n: Option<i64>, axis: i64, norm: Norm) -> Result<Tensor> {
    Kind::Forward.along("fft", x, n, axis, norm)
}

/// The inverse Fourier transform along an axis.
#[track_caller]
pub fn ifft(x: &Tensor, n: Option<i64>, axis: i64, norm: Norm) -> Result<Tensor> {
    Kind::Inverse.along("ifft", x, n, axis, norm)
}

/// The first `n / 2 + 1` elements of the transform of real numbers; the other elements are their
/// conjugates.
///
/// Errors: also a dtype error for complex numbers.
///
/// ```
/// use girih::{Tensor, fft};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 4.0, 3.0, 5.0], [5])?;
/// let y = fft::rfft(&x, None, -1, fft::Norm::Ortho)?;
/// assert_eq!(y.shape(), [3]);
/// let back = fft::irfft(&y, Some(5), -1, fft::Norm::Ortho)?;
/// let wrong = back.sub(&x)?.abs()?.max_all()?;
/// assert!(wrong.to_vec::<f32>()?[0] < 1e-5);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn rfft(x: &Tensor, n: Option<i64>, axis: i64, norm: Norm) -> Result<Tensor> {
    Kind::OfReal.along("rfft", x, n, axis, norm)
}

/// Inverse of [`rfft`]: the `n` real numbers whose spectrum has this first half; by default
/// `2 (m - 1)` for `m` elements. The imaginary parts of the first element and, for even `n`, of the
/// last element are ignored.
#[track_caller]
pub fn irfft(x: &Tensor, n: Option<i64>, axis: i64, norm: Norm) -> Result<Tensor> {
    Kind::ToReal.along("irfft", x, n, axis, norm)
}

/// The `n` real values of the spectrum of a signal with Hermitian symmetry, whose first half is
/// `x`; by default `2 (m - 1)` for `m` elements.
#[track_caller]
pub fn hfft(x: &Tensor, n: Option<i64>, axis: i64, norm: Norm) -> Result<Tensor> {
    let x = Kind::ToReal.operand(x)?.conj()?;
    Kind::ToReal.along("hfft", &x, n, axis, norm.swapped())
}

/// The first half of the signal with Hermitian symmetry that has this real spectrum: inverse of
/// [`hfft`].
///
/// Errors: also a dtype error for complex numbers.
#[track_caller]
pub fn ihfft(x: &Tensor, n: Option<i64>, axis: i64, norm: Norm) -> Result<Tensor> {
    Kind::OfReal.along("ihfft", x, n, axis, norm.swapped())?.conj()
}

/// The axes to transform, each with its length. Without `s`, the lengths are those of the tensor's
/// axes. Without `axes`, the axes are the last `s.len()` axes if there is `s`, else all axes. A
/// length of -1 means the length of the axis.
fn lengths(
    op: &'static str,
    x: &Tensor,
    s: Option<&[i64]>,
    axes: Option<&[i64]>,
) -> Result<Vec<(i64, i64)>> {
    let (shape, rank) = (x.shape(), x.rank() as i64);
    let axes: Vec<i64> = match (axes, s) {
        (Some(axes), _) => axes.to_vec(),
        (None, Some(s)) => (-(s.len() as i64)..0).collect(),
        (None, None) => (0..rank).collect(),
    };
    if let Some(s) = s.filter(|s| s.len() != axes.len()) {
        return Err(Error::InvalidArgument(format!(
            "{op}: a length per axis is needed, got s = {s:?} and axes = {axes:?}"
        )));
    }
    let length = |(i, axis): (usize, i64)| {
        let have = shape[normalize_axis(op, axis, shape.rank())?] as i64;
        let asked = s.map_or(-1, |s| s[i]);
        Ok((if asked == -1 { have } else { asked }, axis))
    };
    axes.into_iter().enumerate().map(length).collect()
}

/// The last axis with its length; an error if there are no axes.
fn last(op: &'static str, axes: &[(i64, i64)]) -> Result<(i64, i64)> {
    axes.last().copied().ok_or_else(|| {
        Error::InvalidArgument(format!("{op}: at least one axis to transform is needed"))
    })
}

#[track_caller]
fn complex_nd(
    kind: Kind,
    op: &'static str,
    x: &Tensor,
    axes: &[(i64, i64)],
    norm: Norm,
) -> Result<Tensor> {
    let along = |x: Tensor, &(n, axis): &(i64, i64)| kind.along(op, &x, Some(n), axis, norm);
    axes.iter().rev().try_fold(kind.operand(x)?, along)
}

/// The transform along several axes, applied from the last axis to the first; a duplicate axis is
/// transformed twice. Without axes, the last `s.len()` axes are transformed, or all.
///
/// ```
/// use girih::{Complex32, DType, Tensor, fft};
///
/// let y = fft::fftn(&Tensor::ones([2, 3], DType::F32)?, None, None, fft::Norm::Forward)?;
/// assert_eq!(y.to_vec::<Complex32>()?[0], Complex32::new(1.0, 0.0));
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn fftn(x: &Tensor, s: Option<&[i64]>, axes: Option<&[i64]>, norm: Norm) -> Result<Tensor> {
    complex_nd(Kind::Forward, "fftn", x, &lengths("fftn", x, s, axes)?, norm)
}

/// The inverse transform along several axes; see [`fftn`].
#[track_caller]
pub fn ifftn(x: &Tensor, s: Option<&[i64]>, axes: Option<&[i64]>, norm: Norm) -> Result<Tensor> {
    complex_nd(Kind::Inverse, "ifftn", x, &lengths("ifftn", x, s, axes)?, norm)
}

/// The transform of real numbers along several axes: [`rfft`] along the last of `axes`, [`fft`]
/// along the others.
///
/// Errors: also a dtype error for complex numbers, and [`Error::InvalidArgument`] for no axes.
#[track_caller]
pub fn rfftn(x: &Tensor, s: Option<&[i64]>, axes: Option<&[i64]>, norm: Norm) -> Result<Tensor> {
    let axes = lengths("rfftn", x, s, axes)?;
    let (n, axis) = last("rfftn", &axes)?;
    let y = Kind::OfReal.along("rfftn", x, Some(n), axis, norm)?;
    complex_nd(Kind::Forward, "rfftn", &y, &axes[..axes.len() - 1], norm)
}

/// Inverse of [`rfftn`]: real numbers, by default `2 (m - 1)` along the last of `axes`.
///
/// Errors: also [`Error::InvalidArgument`] for no axes.
#[track_caller]
pub fn irfftn(x: &Tensor, s: Option<&[i64]>, axes: Option<&[i64]>, norm: Norm) -> Result<Tensor> {
    let axes = lengths("irfftn", x, s, axes)?;
    let (n, axis) = last("irfftn", &axes)?;
    let mut x = Kind::Inverse.operand(x)?;
    for &(n, axis) in &axes[..axes.len() - 1] {
        x = Kind::Inverse.along("irfftn", &x, Some(n), axis, norm)?;
    }
    Kind::ToReal.along("irfftn", &x, s.map(|_| n), axis, norm)
}

/// The real spectrum of a signal with Hermitian symmetry along several axes, of which `x` is the
/// half along the last of `axes`: [`fft`] along the other axes, then [`hfft`] along the last.
///
/// Errors: also [`Error::InvalidArgument`] for no axes.
#[track_caller]
pub fn hfftn(x: &Tensor, s: Option<&[i64]>, axes: Option<&[i64]>, norm: Norm) -> Result<Tensor> {
    let axes = lengths("hfftn", x, s, axes)?;
    let (n, axis) = last("hfftn", &axes)?;
    let x = complex_nd(Kind::Forward, "hfftn", x, &axes[..axes.len() - 1], norm)?.conj()?;
    Kind::ToReal.along("hfftn", &x, s.map(|_| n), axis, norm.swapped())
}

/// Inverse of [`hfftn`]: half of the signal along the last of `axes`.
///
/// Errors: also a dtype error for complex numbers, and [`Error::InvalidArgument`] for no axes.
#[track_caller]
pub fn ihfftn(x: &Tensor, s: Option<&[i64]>, axes: Option<&[i64]>, norm: Norm) -> Result<Tensor> {
    let axes = lengths("ihfftn", x, s, axes)?;
    let (n, axis) = last("ihfftn", &axes)?;
    let y = Kind::OfReal.along("ihfftn", x, Some(n), axis, norm.swapped())?.conj()?;
    complex_nd(Kind::Inverse, "ihfftn", &y, &axes[..axes.len() - 1], norm)
}

/// The number of samples, and the distance of frequencies.
fn sampling(op: &'static str, n: i64, d: f64, dtype: DType) -> Result<(usize, f64)> {
    if !dtype.is_float() {
        let expected = "a real floating-point dtype";
        return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
    }
    if n < 1 || d == 0.0 || !d.is_finite() {
        return Err(Error::InvalidArgument(format!(
            "{op}: at least one sample, at a distance that is finite and not zero, is needed; got \
             n = {n} and d = {d}"
        )));
    }
    Ok((Shape::from_signed(op, &[n])?.numel(), 1.0 / (n as f64 * d)))
}

/// The frequencies of the elements of a transform of `n` samples at distance `d`: the non-negative
/// frequencies, then the negative ones.
///
/// Errors: [`Error::InvalidArgument`] for `n` below one and a `d` that is zero or not finite; a
/// dtype error for dtypes that are not real floating-point.
///
/// ```
/// use girih::{DType, fft};
///
/// let f = fft::fftfreq(5, 0.1, DType::F64)?;
/// assert_eq!(f.to_vec::<f64>()?, [0.0, 2.0, 4.0, -4.0, -2.0]);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn fftfreq(n: i64, d: f64, dtype: DType) -> Result<Tensor> {
    let (n, step) = sampling("fftfreq", n, d, dtype)?;
    // The frequencies are computed in f64 and rounded once.
    let index = Tensor::iota([n], 0, DType::F64)?;
    let ahead = index.lt(n.div_ceil(2) as f64)?;
    where_(&ahead, &index, &index.sub(n as f64)?)?.mul(step)?.astype(dtype)
}

/// The frequencies of the elements of [`rfft`] of `n` samples at distance `d`.
///
/// Errors: those of [`fftfreq`].
#[track_caller]
pub fn rfftfreq(n: i64, d: f64, dtype: DType) -> Result<Tensor> {
    let (n, step) = sampling("rfftfreq", n, d, dtype)?;
    Tensor::iota([half(n)], 0, DType::F64)?.mul(step)?.astype(dtype)
}

#[track_caller]
fn shifted(op: &'static str, x: &Tensor, axes: Option<&[i64]>, back: bool) -> Result<Tensor> {
    let all: Vec<i64> = (0..x.rank() as i64).collect();
    let axes = axes.unwrap_or(&all);
    axes.iter().try_fold(x.clone(), |x, &axis| {
        let half = x.shape().dim(normalize_axis(op, axis, x.rank())?).floor_div(2);
        x.rolled(half, back, axis)
    })
}

/// Shifts the element of frequency zero to the middle of axes, of all axes by default.
#[track_caller]
pub fn fftshift(x: &Tensor, axes: Option<&[i64]>) -> Result<Tensor> {
    shifted("fftshift", x, axes, false)
}

/// Inverse of [`fftshift`].
#[track_caller]
pub fn ifftshift(x: &Tensor, axes: Option<&[i64]>) -> Result<Tensor> {
    shifted("ifftshift", x, axes, true)
}

//! Window functions of signal processing, which taper towards both ends.

use crate::{Error, Operand, Result, Tensor, where_};
use girih_ir::DType;
use std::f64::consts::PI;

/// A window function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Taper {
    /// A triangular window.
    Bartlett,
    /// A cosine with a second harmonic, `0.42 - 0.5 cos + 0.08 cos`.
    Blackman,
    /// A raised cosine, `0.54 - 0.46 cos`.
    Hamming,
    /// A raised cosine that ends at zero, `0.5 - 0.5 cos`.
    Hann,
    /// Kaiser's window with this beta, based on a Bessel function.
    Kaiser(f64),
}

impl Taper {
    /// The window at `size` points, symmetric.
    ///
    /// Errors: a dtype error for a dtype that is not floating-point; [`Error::InvalidArgument`] for a
    /// beta that is not finite.
    #[track_caller]
    pub fn window(self, size: usize, dtype: DType) -> Result<Tensor> {
        self.over(size, size.saturating_sub(1), dtype)
    }

    /// The window at `size` points of a period, for use with a discrete Fourier transform: a
    /// symmetric window without its last point.
    ///
    /// Errors: those of [`Taper::window`].
    #[track_caller]
    pub fn periodic(self, size: usize, dtype: DType) -> Result<Tensor> {
        self.over(size, size, dtype)
    }

    /// The first `size` points of the window that ends at the point `last`.
    #[track_caller]
    fn over(self, size: usize, last: usize, dtype: DType) -> Result<Tensor> {
        if !dtype.is_float() {
            let (op, expected) = ("window", "a real floating-point dtype");
            return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
        }
        if size < 2 {
            return Tensor::ones([size], dtype);
        }
        let last = last as f64;
        // Compute in f64 and round once.
        let n = Tensor::iota([size], 0, DType::F64)?;
        let cosine = |harmonic: f64| n.mul(2.0 * PI * harmonic / last)?.cos();
        let raised = |high: f64| cosine(1.0)?.mul(high - 1.0)?.add(high);
        let window = match self {
            Taper::Hann => raised(0.5)?,
            Taper::Hamming => raised(0.54)?,
            Taper::Blackman => cosine(1.0)?.mul(-0.5)?.add(&cosine(2.0)?.mul(0.08)?)?.add(0.42)?,
            Taper::Bartlett => {
                let up = n.mul(2.0 / last)?;
                where_(&n.le(last / 2.0)?, &up, &up.neg()?.add(2.0)?)?
            }
            Taper::Kaiser(beta) if beta.is_finite() => {
                let centred = n.mul(2.0 / last)?.sub(1.0)?;
                let inside = centred.square()?.neg()?.add(1.0)?.maximum(0.0)?.sqrt()?;
                let whole = Operand::Float(beta).constant(DType::F64)?.i0()?;
                inside.mul(beta)?.i0()?.div(&whole)?
            }
            Taper::Kaiser(beta) => {
                return Err(Error::InvalidArgument(format!(
                    "kaiser_window: beta must be finite, got {beta}"
                )));
            }
        };
        window.astype(dtype)
    }
}

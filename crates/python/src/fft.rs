//! Fourier transforms for `girih.fft`.

use crate::args::{Axes, IntArg, ShapeArg, TensorArg};
use crate::devices::{DeviceArg, placed};
use crate::dtype::DTypeArg;
use crate::errors::invalid;
use crate::functions::{Out, out};
use crate::location;
use crate::scalars;
use girih::DType;
use girih::fft::{self, Norm};
use pyo3::prelude::*;

/// The norm with this name; the default for None, as in NumPy.
fn norm_of(op: &str, name: Option<&str>) -> PyResult<Norm> {
    let Some(name) = name else { return Ok(Norm::default()) };
    Norm::parse(name).ok_or_else(|| {
        invalid(format!("{op}: norm is 'backward', 'ortho' or 'forward', got '{name}'"))
    })
}

macro_rules! along_one {
    ($($name:ident $function:ident $doc:literal;)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x, n=None, axis=IntArg(-1), norm=None))]
        fn $name(
            py: Python<'_>,
            x: TensorArg,
            n: Option<IntArg>,
            axis: IntArg,
            #[pyo3(from_py_with = scalars::maybe_text)] norm: Option<&str>,
        ) -> Out {
            let _called = location::enter!(py);
            let norm = norm_of(stringify!($function), norm)?;
            out(fft::$function(&x.0, n.map(|n| n.0), axis.0, norm))
        })*
    };
}

along_one! {
    fft_fft fft "The transform along an axis.";
    fft_ifft ifft "The inverse transform along an axis.";
    fft_rfft rfft "The first half of the transform of real numbers along an axis.";
    fft_irfft irfft "The real numbers whose half spectrum along an axis is given.";
    fft_hfft hfft "The real spectrum of a signal with Hermitian symmetry.";
    fft_ihfft ihfft "The signal with Hermitian symmetry that has a real spectrum.";
}

macro_rules! along_several {
    ($($name:ident $function:ident $doc:literal;)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x, s=None, axes=None, norm=None))]
        fn $name(
            py: Python<'_>,
            x: TensorArg,
            s: Option<ShapeArg>,
            axes: Option<Axes>,
            #[pyo3(from_py_with = scalars::maybe_text)] norm: Option<&str>,
        ) -> Out {
            let _called = location::enter!(py);
            let norm = norm_of(stringify!($function), norm)?;
            let axes = axes.unwrap_or_default();
            let s = s.map(|s| s.numbers());
            out(fft::$function(&x.0, s.as_deref(), axes.as_slice(), norm))
        })*
    };
}

along_several! {
    fft_fftn fftn "The transform along several axes.";
    fft_ifftn ifftn "The inverse transform along several axes.";
    fft_rfftn rfftn "The first half of the transform of real numbers along several axes.";
    fft_irfftn irfftn "The real numbers whose half spectrum along several axes is given.";
    fft_hfftn hfftn "The real spectrum of a signal with Hermitian symmetry along several axes.";
    fft_ihfftn ihfftn "The signal with Hermitian symmetry that has a real spectrum.";
}

macro_rules! frequencies {
    ($($name:ident $function:ident $doc:literal;)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (n, d=1.0, dtype=None, device=None))]
        fn $name(
            py: Python<'_>,
            n: IntArg,
            #[pyo3(from_py_with = scalars::number)] d: f64,
            dtype: Option<DTypeArg>,
            device: Option<DeviceArg>,
        ) -> Out {
            let _called = location::enter!(py);
            placed(device, || out(fft::$function(n.0, d, dtype.map_or(DType::F32, |d| d.0))))
        })*
    };
}

frequencies! {
    fft_fftfreq fftfreq "The frequencies of the elements of a transform.";
    fft_rfftfreq rfftfreq "The frequencies of the elements of a transform of real numbers.";
}

macro_rules! shifts {
    ($($name:ident $function:ident $doc:literal;)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x, axes=None))]
        fn $name(py: Python<'_>, x: TensorArg, axes: Option<Axes>) -> Out {
            let _called = location::enter!(py);
            out(fft::$function(&x.0, axes.unwrap_or_default().as_slice()))
        })*
    };
}

shifts! {
    fft_fftshift fftshift "Moves the element of frequency zero to the middle.";
    fft_ifftshift ifftshift "Moves the element of frequency zero back to the front.";
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft fft_fftn fft_ifftn fft_rfftn
        fft_irfftn fft_hfftn fft_ihfftn fft_fftfreq fft_rfftfreq fft_fftshift fft_ifftshift
    }
    Ok(())
}

//! Windows of signals: Hann's and others.

use crate::args::IntArg;
use crate::arrange::counts;
use crate::devices::{DeviceArg, placed};
use crate::dtype::DTypeArg;
use crate::functions::{Out, out};
use crate::location;
use crate::scalars;
use girih::{DType, Taper, Tensor};
use pyo3::prelude::*;

fn window(taper: Taper, size: usize, periodic: bool, dtype: DType) -> girih::Result<Tensor> {
    if periodic { taper.periodic(size, dtype) } else { taper.window(size, dtype) }
}

macro_rules! windows {
    ($($name:ident $symmetric:ident $taper:expr, $doc:literal $plain:literal;)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (window_length, periodic=true, *, dtype=None, device=None))]
        fn $name(
            py: Python<'_>,
            window_length: IntArg,
            #[pyo3(from_py_with = scalars::flag)] periodic: bool,
            dtype: Option<DTypeArg>,
            device: Option<DeviceArg>,
        ) -> Out {
            let _called = location::enter!(py);
            let size = counts(stringify!($name), &[window_length.0])?[0];
            let dtype = dtype.map_or(DType::F32, |d| d.0);
            placed(device, || out(window($taper, size, periodic, dtype)))
        }

        #[doc = $plain]
        #[pyfunction]
        #[pyo3(signature = (m, *, dtype=None, device=None))]
        fn $symmetric(
            py: Python<'_>,
            m: IntArg,
            dtype: Option<DTypeArg>,
            device: Option<DeviceArg>,
        ) -> Out {
            let _called = location::enter!(py);
            let size = counts(stringify!($symmetric), &[m.0.max(0)])?[0];
            let dtype = dtype.map_or(DType::F32, |d| d.0);
            placed(device, || out($taper.window(size, dtype)))
        })*
    };
}

windows! {
    hann_window hanning Taper::Hann,
        "Hann's window, a raised cosine, as PyTorch's: periodic unless symmetric. Dtype: float32."
        "Hann's window of m points, symmetric, as NumPy's. Dtype: float32.";
    hamming_window hamming Taper::Hamming,
        "Hamming's window, a raised cosine, as PyTorch's: periodic unless symmetric. Dtype: float32."
        "Hamming's window of m points, symmetric, as NumPy's. Dtype: float32.";
    blackman_window blackman Taper::Blackman,
        "Blackman's window, as PyTorch's: periodic unless symmetric. Dtype: float32."
        "Blackman's window of m points, symmetric, as NumPy's. Dtype: float32.";
    bartlett_window bartlett Taper::Bartlett,
        "Bartlett's window, a triangle, as PyTorch's: periodic unless symmetric. Dtype: float32."
        "Bartlett's window of m points, symmetric, as NumPy's. Dtype: float32.";
}

/// The Kaiser window, as in PyTorch: periodic unless symmetric. Dtype: float32.
#[pyfunction]
#[pyo3(signature = (window_length, periodic=true, beta=12.0, *, dtype=None, device=None))]
fn kaiser_window(
    py: Python<'_>,
    window_length: IntArg,
    #[pyo3(from_py_with = scalars::flag)] periodic: bool,
    #[pyo3(from_py_with = scalars::number)] beta: f64,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
) -> Out {
    let _called = location::enter!(py);
    let size = counts("kaiser_window", &[window_length.0])?[0];
    let dtype = dtype.map_or(DType::F32, |d| d.0);
    placed(device, || out(window(Taper::Kaiser(beta), size, periodic, dtype)))
}

/// The Kaiser window of m points, symmetric, as in NumPy. Dtype: float32.
#[pyfunction]
#[pyo3(signature = (m, beta, *, dtype=None, device=None))]
fn kaiser(
    py: Python<'_>,
    m: IntArg,
    #[pyo3(from_py_with = scalars::number)] beta: f64,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
) -> Out {
    let _called = location::enter!(py);
    let size = counts("kaiser", &[m.0.max(0)])?[0];
    let dtype = dtype.map_or(DType::F32, |d| d.0);
    placed(device, || out(Taper::Kaiser(beta).window(size, dtype)))
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        hann_window hanning hamming_window hamming blackman_window blackman bartlett_window bartlett
        kaiser_window kaiser
    }
    Ok(())
}

//! Functions that make tensors from nothing but numbers: constants, ranges, random draws.

use crate::args::{OperandArg, ShapeArg, TensorArg, sizes};
use crate::dtype::DTypeArg;
use crate::errors::{IntoPy, invalid};
use crate::functions::{Out, out};
use crate::location;
use girih::{DType, Shape, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The dtype of scalars without one.
fn scalar_dtype(dtype: Option<DTypeArg>, scalars: &[&OperandArg]) -> DType {
    let float = scalars.iter().any(|s| matches!(s, OperandArg::Float(_)));
    let default = if float { DType::F32 } else { girih::default_int() };
    dtype.map_or(default, |d| d.0)
}

fn real(op: &str, value: &OperandArg) -> PyResult<f64> {
    match value {
        OperandArg::Float(v) => Ok(*v),
        OperandArg::Int(v) => Ok(*v as f64),
        OperandArg::Bool(v) => Ok(*v as i64 as f64),
        OperandArg::Tensor(t) if t.numel() == 1 => {
            t.reshape(&[]).and_then(|t| t.to_f64_vec()).map(|v| v[0]).py()
        }
        OperandArg::Tensor(t) => {
            Err(invalid(format!("{op}: a number is expected, got a tensor {}", t.spec())))
        }
    }
}

/// Evenly spaced numbers up to but not including stop; int64, or float32 if any is a float.
#[pyfunction]
#[pyo3(signature = (start, stop=None, step=OperandArg::Int(1), *, dtype=None))]
fn arange(
    py: Python<'_>,
    start: OperandArg,
    stop: Option<OperandArg>,
    step: OperandArg,
    dtype: Option<DTypeArg>,
) -> Out {
    location::enter(py);
    let (start, stop) = match stop {
        Some(stop) => (start, stop),
        None => (OperandArg::Int(0), start),
    };
    let dtype = scalar_dtype(dtype, &[&start, &stop, &step]);
    let value = |v| real("arange", v);
    out(Tensor::arange(value(&start)?, value(&stop)?, value(&step)?, dtype))
}

/// num evenly spaced numbers from start to stop.
#[pyfunction]
#[pyo3(signature = (start, stop, num=50, *, endpoint=true, dtype=None))]
fn linspace(
    py: Python<'_>,
    start: OperandArg,
    stop: OperandArg,
    num: i64,
    endpoint: bool,
    dtype: Option<DTypeArg>,
) -> Out {
    location::enter(py);
    let num = Shape::from_signed("linspace", &[num]).py()?.numel();
    let (start, stop) = (real("linspace", &start)?, real("linspace", &stop)?);
    out(Tensor::linspace(start, stop, num, endpoint, dtype.map_or(DType::F32, |d| d.0)))
}

/// Ones on the k-th diagonal, zeros elsewhere.
#[pyfunction]
#[pyo3(signature = (n, m=None, k=0, *, dtype=None))]
fn eye(py: Python<'_>, n: i64, m: Option<i64>, k: i64, dtype: Option<DTypeArg>) -> Out {
    location::enter(py);
    let shape = Shape::from_signed("eye", &[n, m.unwrap_or(n)]).py()?;
    out(Tensor::eye(shape[0], shape[1], k, dtype.map_or(DType::F32, |d| d.0)))
}

fn filled(op: &'static str, value: &OperandArg, shape: Shape, dtype: DType) -> Out {
    let constant = match value {
        OperandArg::Tensor(_) => {
            let value = real(op, value)?;
            Tensor::full(value, shape, dtype)
        }
        value => Tensor::full(value.operand(), shape, dtype),
    };
    out(constant)
}

/// All one value.
#[pyfunction]
#[pyo3(signature = (shape, value, *, dtype=None))]
fn full(shape: ShapeArg, value: OperandArg, dtype: Option<DTypeArg>) -> Out {
    let default = match value {
        OperandArg::Bool(_) => DType::Bool,
        OperandArg::Int(_) => girih::default_int(),
        OperandArg::Float(_) => DType::F32,
        OperandArg::Tensor(ref t) => t.dtype(),
    };
    filled("full", &value, shape.shape("full")?, dtype.map_or(default, |d| d.0))
}

/// All one value, in the shape and dtype of x.
#[pyfunction]
#[pyo3(signature = (x, value, *, dtype=None))]
fn full_like(x: TensorArg, value: OperandArg, dtype: Option<DTypeArg>) -> Out {
    filled("full_like", &value, x.0.shape(), dtype.map_or(x.0.dtype(), |d| d.0))
}

/// All zero, in the shape and dtype of x.
#[pyfunction]
#[pyo3(signature = (x, *, dtype=None))]
fn zeros_like(x: TensorArg, dtype: Option<DTypeArg>) -> Out {
    out(Tensor::zeros(x.0.shape(), dtype.map_or(x.0.dtype(), |d| d.0)))
}

/// All one, in the shape and dtype of x.
#[pyfunction]
#[pyo3(signature = (x, *, dtype=None))]
fn ones_like(x: TensorArg, dtype: Option<DTypeArg>) -> Out {
    out(Tensor::ones(x.0.shape(), dtype.map_or(x.0.dtype(), |d| d.0)))
}

fn shape_of(op: &'static str, args: &Bound<'_, PyTuple>) -> PyResult<Shape> {
    Shape::from_signed(op, &sizes(args)?).py()
}

macro_rules! filled_shapes {
    ($($name:ident $method:ident $doc:literal,)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (*shape, dtype=None))]
        fn $name(shape: &Bound<'_, PyTuple>, dtype: Option<DTypeArg>) -> Out {
            let shape = shape_of(stringify!($name), shape)?;
            out(Tensor::$method(shape, dtype.map_or(DType::F32, |d| d.0)))
        })*
    };
}

filled_shapes! {
    zeros zeros "All zero; float32 by default.",
    ones ones "All one; float32 by default.",
    randn randn "Standard normal draws; float32 by default.",
    rand rand "Uniform draws in [0, 1); float32 by default.",
}

/// Uniform integers in low..high (0..low with one bound); int64 by default.
#[pyfunction]
#[pyo3(signature = (low, high=None, shape=ShapeArg(Vec::new()), *, dtype=None))]
fn randint(
    py: Python<'_>,
    low: i64,
    high: Option<i64>,
    shape: ShapeArg,
    dtype: Option<DTypeArg>,
) -> Out {
    location::enter(py);
    let (low, high) = high.map_or((0, low), |high| (low, high));
    let dtype = dtype.map_or(girih::default_int(), |d| d.0);
    out(Tensor::randint(low, high, shape.shape("randint")?, dtype))
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        arange linspace eye full full_like zeros zeros_like ones ones_like randn rand randint
    }
    Ok(())
}

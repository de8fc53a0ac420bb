//! Functions that create tensors from numbers: constants, ranges, random draws.

use crate::args::{IntArg, OperandArg, ShapeArg, SizeArg, TensorArg, WideIntArg, shape_or_sizes};
use crate::compiled::PyDim;
use crate::devices::{DeviceArg, placed, placed_like};
use crate::dtype::DTypeArg;
use crate::errors::{IntoPy, invalid};
use crate::functions::{Out, out};
use crate::location;
use crate::scalars;
use girih::{DType, Operand, Shape, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The dtype of a result that is created from scalars without a dtype.
fn scalar_dtype(dtype: Option<DTypeArg>, scalars: &[&OperandArg]) -> DType {
    let float = scalars.iter().any(|s| matches!(s, OperandArg::Float(_) | OperandArg::Weak(_)));
    let default = if float { DType::F32 } else { girih::default_int() };
    dtype.map_or(default, |d| d.0)
}

/// The value of a number, or of a tensor with one element, which is evaluated; integers stay exact.
fn number(py: Python<'_>, op: &str, value: OperandArg) -> PyResult<OperandArg> {
    let (OperandArg::Tensor(tensor) | OperandArg::Weak(tensor)) = value else { return Ok(value) };
    if tensor.numel() != 1 {
        let spec = tensor.spec();
        return Err(invalid(format!("{op}: a number is expected, got a tensor {spec}")));
    }
    let value = crate::data::to_list(py, &tensor.reshape(()).py()?)?;
    value.extract()
}

fn real(py: Python<'_>, op: &str, value: OperandArg) -> PyResult<f64> {
    Ok(match number(py, op, value)? {
        OperandArg::Float(v) => v,
        OperandArg::Int(v) => v as f64,
        OperandArg::Bool(v) => v as i64 as f64,
        OperandArg::Complex(v) => {
            return Err(invalid(format!("{op}: a real number is expected, got {v}")));
        }
        OperandArg::Size(size) => size.get() as f64,
        OperandArg::Tensor(_) | OperandArg::Weak(_) => unreachable!("a number is no tensor"),
    })
}

/// Evenly spaced numbers up to but not including stop; int64, or float32 if any argument is a
/// float.
#[pyfunction]
#[pyo3(signature = (start, stop=None, step=OperandArg::Int(1), *, dtype=None, device=None))]
fn arange(
    start: &Bound<'_, PyAny>,
    stop: Option<&Bound<'_, PyAny>>,
    step: OperandArg,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
) -> Out {
    let py = start.py();
    let _called = location::enter!(py);
    placed(device, || range(py, start, stop, step, dtype))
}

fn range(
    py: Python<'_>,
    start: &Bound<'_, PyAny>,
    stop: Option<&Bound<'_, PyAny>>,
    step: OperandArg,
    dtype: Option<DTypeArg>,
) -> Out {
    if let (None, Ok(dim), OperandArg::Int(1)) = (stop, start.cast::<PyDim>(), &step) {
        let shape = Shape::of_dims([dim.get().0]);
        return out(Tensor::iota(shape, 0, dtype.map_or(girih::default_int(), |d| d.0)));
    }
    let (start, stop): (OperandArg, OperandArg) = match stop {
        Some(stop) => (start.extract()?, stop.extract()?),
        None => (OperandArg::Int(0), start.extract()?),
    };
    let value = |v| number(py, "arange", v);
    let (start, stop, step) = (value(start)?, value(stop)?, value(step)?);
    let dtype = scalar_dtype(dtype, &[&start, &stop, &step]);
    out(Tensor::arange_step(start.operand(), stop.operand(), step.operand(), dtype))
}

/// num evenly spaced numbers from start to stop; steps is another name of num.
#[pyfunction]
#[pyo3(signature = (
    start, stop, num=SizeArg(50.into()), *, endpoint=true, dtype=None, device=None, steps=None
))]
fn linspace(
    py: Python<'_>,
    start: OperandArg,
    stop: OperandArg,
    num: SizeArg,
    #[pyo3(from_py_with = scalars::flag)] endpoint: bool,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
    steps: Option<SizeArg>,
) -> Out {
    let _called = location::enter!(py);
    let (num, dtype) = (steps.unwrap_or(num), dtype.map_or(DType::F32, |d| d.0));
    placed(device, || {
        let (start, stop): (Operand<'_>, Operand<'_>) = match num.0.known() {
            None => (start.operand(), stop.operand()),
            Some(_) => (real(py, "linspace", start)?.into(), real(py, "linspace", stop)?.into()),
        };
        out(match endpoint {
            true => Tensor::linspace(start, stop, num.0, dtype),
            false => Tensor::linspace_exclusive(start, stop, num.0, dtype),
        })
    })
}

/// Ones on the k-th diagonal, zeros elsewhere.
#[pyfunction]
#[pyo3(signature = (n_rows, n_cols=None, k=IntArg(0), *, dtype=None, device=None))]
fn eye(
    py: Python<'_>,
    n_rows: SizeArg,
    n_cols: Option<SizeArg>,
    k: IntArg,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
) -> Out {
    let _called = location::enter!(py);
    let n_cols = n_cols.unwrap_or(n_rows);
    let dtype = dtype.map_or(DType::F32, |d| d.0);
    placed(device, || out(Tensor::eye_of(n_rows.0, n_cols.0, k.0, dtype)))
}

fn filled(value: &OperandArg, shape: Shape, dtype: DType) -> Out {
    out(match value {
        OperandArg::Tensor(t) => t.astype(dtype).and_then(|t| t.broadcast_to(shape)),
        value => Tensor::full(value.operand(), shape, dtype),
    })
}

/// A tensor filled with one value, which may be a tensor that broadcasts to the shape.
#[pyfunction]
#[pyo3(signature = (shape, fill_value, *, dtype=None, device=None))]
fn full(
    py: Python<'_>,
    shape: ShapeArg,
    fill_value: OperandArg,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
) -> Out {
    let _called = location::enter!(py);
    let default = match fill_value {
        OperandArg::Bool(_) => DType::Bool,
        OperandArg::Int(_) | OperandArg::Size(_) => girih::default_int(),
        OperandArg::Float(_) | OperandArg::Weak(_) => DType::F32,
        OperandArg::Complex(_) => DType::C64,
        OperandArg::Tensor(ref t) => t.dtype(),
    };
    let shape = shape.shape("full")?;
    placed(device, || filled(&fill_value, shape, dtype.map_or(default, |d| d.0)))
}

/// A tensor of the shape and dtype of x, filled with one value.
#[pyfunction]
#[pyo3(signature = (x, /, fill_value, *, dtype=None, device=None))]
fn full_like(
    py: Python<'_>,
    x: TensorArg,
    fill_value: OperandArg,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
) -> Out {
    let _called = location::enter!(py);
    let dtype = dtype.map_or(x.0.dtype(), |d| d.0);
    placed_like(device, &x.0, || filled(&fill_value, x.0.shape(), dtype))
}

macro_rules! filled_like {
    ($($name:ident $method:ident $doc:literal,)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x, /, *, dtype=None, device=None))]
        fn $name(
            py: Python<'_>,
            x: TensorArg,
            dtype: Option<DTypeArg>,
            device: Option<DeviceArg>,
        ) -> Out {
            let _called = location::enter!(py);
            let dtype = dtype.map_or(x.0.dtype(), |d| d.0);
            placed_like(device, &x.0, || out(Tensor::$method(x.0.shape(), dtype)))
        })*
    };
}

filled_like! {
    zeros_like zeros "Zeros in the shape and dtype of x.",
    ones_like ones "Ones in the shape and dtype of x.",
    empty_like zeros "A tensor of the shape and dtype of x with unspecified values (zeros).",
}

/// Reads a shape that is given as one integer, one sequence, several integers, or by keyword.
fn shape_of(
    op: &'static str,
    shape: Option<&Bound<'_, PyAny>>,
    sizes: &Bound<'_, PyTuple>,
) -> PyResult<Shape> {
    girih::shape_of(op, &shape_or_sizes(op, shape, sizes)?).py()
}

macro_rules! filled_shapes {
    ($($name:ident $method:ident $doc:literal,)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (shape=None, *sizes, dtype=None, device=None))]
        fn $name(
            shape: Option<&Bound<'_, PyAny>>,
            sizes: &Bound<'_, PyTuple>,
            dtype: Option<DTypeArg>,
            device: Option<DeviceArg>,
        ) -> Out {
            let _called = location::enter!(sizes.py());
            let shape = shape_of(stringify!($name), shape, sizes)?;
            placed(device, || out(Tensor::$method(shape, dtype.map_or(DType::F32, |d| d.0))))
        })*
    };
}

filled_shapes! {
    zeros zeros "Zeros; float32 by default. The shape is one sequence, or several integers.",
    ones ones "Ones; float32 by default. The shape is one sequence, or several integers.",
    empty zeros "A tensor with unspecified values (zeros); float32 by default.",
    randn randn "Standard normal draws; float32 by default.",
    rand rand "Uniform draws in [0, 1); float32 by default.",
}

/// Uniform integers in low..high (0..low with one bound); int64 by default.
#[pyfunction]
#[pyo3(signature = (low, high=None, shape=ShapeArg(Vec::new()), *, dtype=None, device=None))]
fn randint(
    py: Python<'_>,
    low: WideIntArg,
    high: Option<WideIntArg>,
    shape: ShapeArg,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
) -> Out {
    let _called = location::enter!(py);
    let (low, high) = high.map_or((0, low.0), |high| (low.0, high.0));
    let dtype = dtype.map_or(girih::default_int(), |d| d.0);
    let shape = shape.shape("randint")?;
    placed(device, || out(Tensor::randint(low, high, shape, dtype)))
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        arange linspace eye full full_like zeros zeros_like ones ones_like empty empty_like randn rand
        randint
    }
    Ok(())
}

//! Collectives over the named axes of batches, for single tensors; `girih/collectives.py` has the
//! functions on pytrees.

use crate::args::{IntArg, TensorArg, described};
use crate::compiled::dim_object;
use crate::errors::{IntoPy, invalid};
use crate::scalars;
use crate::sequences::{Listed, Pair, PerAxis};
use crate::tensor::PyTensor;
use girih::{AxisNames, BoundAxis, Members};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A batch axis with a name, for [`crate::contexts`] to enter.
#[pyclass(name = "BoundAxis", module = "girih._girih", frozen)]
pub struct PyBoundAxis(pub BoundAxis);

/// The name of an axis, or several names.
struct Names(Vec<String>);

impl<'a, 'py> FromPyObject<'a, 'py> for Names {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            return Ok(Names(vec![scalars::own_text(&object)?]));
        }
        let names = object.extract::<PerAxis<String>>();
        names.map(|names| Names(names.0)).map_err(|_| {
            let found = described(&object);
            invalid(format!("the name of an axis is a str, or a sequence of them, got {found}"))
        })
    }
}

fn with_names<'n, R>(
    py: Python<'_>,
    names: &'n Names,
    f: impl FnOnce(AxisNames<'n>) -> girih::Result<R>,
) -> PyResult<R> {
    crate::location::enter(py);
    let names: Vec<&str> = names.0.iter().map(String::as_str).collect();
    f(AxisNames::from(&names[..])).py()
}

/// Reduces over the members of the axis: `sum`, `mean`, `max` or `min`. Returns: Tensor.
#[pyfunction]
fn collective_reduce(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::text)] kind: &str,
    x: TensorArg,
    axis_name: Names,
) -> PyResult<PyTensor> {
    let f = |names: AxisNames<'_>| match kind {
        "sum" => girih::psum(&x.0, names),
        "mean" => girih::pmean(&x.0, names),
        "max" => girih::pmax(&x.0, names),
        _ => girih::pmin(&x.0, names),
    };
    with_names(py, &axis_name, f).map(PyTensor)
}

fn members(tiled: bool) -> Members {
    if tiled { Members::Tiled } else { Members::Stacked }
}

/// The values of all members. Returns: Tensor.
#[pyfunction]
fn collective_gather(
    py: Python<'_>,
    x: TensorArg,
    axis_name: Names,
    #[pyo3(from_py_with = scalars::whole)] axis: i64,
    #[pyo3(from_py_with = scalars::flag)] tiled: bool,
) -> PyResult<PyTensor> {
    with_names(py, &axis_name, |names| girih::all_gather(&x.0, names, axis, members(tiled)))
        .map(PyTensor)
}

/// This member's part of the sum over the members. Returns: Tensor.
#[pyfunction]
fn collective_scatter(
    py: Python<'_>,
    x: TensorArg,
    axis_name: Names,
    #[pyo3(from_py_with = scalars::whole)] axis: i64,
    #[pyo3(from_py_with = scalars::flag)] tiled: bool,
) -> PyResult<PyTensor> {
    with_names(py, &axis_name, |names| girih::psum_scatter(&x.0, names, axis, members(tiled)))
        .map(PyTensor)
}

/// Gathers one part of the value of each member. Returns: Tensor.
#[pyfunction]
fn collective_exchange(
    py: Python<'_>,
    x: TensorArg,
    axis_name: Names,
    #[pyo3(from_py_with = scalars::whole)] split: i64,
    #[pyo3(from_py_with = scalars::whole)] concat: i64,
    #[pyo3(from_py_with = scalars::flag)] tiled: bool,
) -> PyResult<PyTensor> {
    let f = |names: AxisNames<'_>| girih::all_to_all(&x.0, names, split, concat, members(tiled));
    with_names(py, &axis_name, f).map(PyTensor)
}

/// Checks the index of a member, which must not be negative.
fn member(op: &str, index: i64) -> PyResult<usize> {
    usize::try_from(index)
        .map_err(|_| invalid(format!("{op}: {index} is the index of no member; they begin at 0")))
}

/// Receives another member's value, by pairs of source and destination. Returns: Tensor.
#[pyfunction]
fn collective_permute(
    py: Python<'_>,
    x: TensorArg,
    axis_name: Names,
    pairs: Listed<Pair<IntArg>>,
) -> PyResult<PyTensor> {
    let pair =
        |pair: &Pair<IntArg>| Ok((member("ppermute", pair.0.0)?, member("ppermute", pair.1.0)?));
    let pairs: Vec<(usize, usize)> = pairs.iter().map(pair).collect::<PyResult<_>>()?;
    with_names(py, &axis_name, |names| girih::ppermute(&x.0, names, &pairs)).map(PyTensor)
}

/// Receives another member's value, by a permutation of all members. Returns: Tensor.
#[pyfunction]
fn collective_shuffle(
    py: Python<'_>,
    x: TensorArg,
    axis_name: Names,
    order: Listed<IntArg>,
) -> PyResult<PyTensor> {
    let order: Vec<usize> =
        order.iter().map(|index| member("pshuffle", index.0)).collect::<PyResult<_>>()?;
    with_names(py, &axis_name, |names| girih::pshuffle(&x.0, names, &order)).map(PyTensor)
}

/// The index of this member. Returns: Tensor.
#[pyfunction]
fn collective_index(py: Python<'_>, axis_name: Names) -> PyResult<PyTensor> {
    with_names(py, &axis_name, girih::axis_index).map(PyTensor)
}

/// The number of members of the axis. Returns: int.
#[pyfunction]
fn collective_size<'py>(py: Python<'py>, axis_name: Names) -> PyResult<Bound<'py, PyAny>> {
    dim_object(py, with_names(py, &axis_name, girih::axis_size)?)
}

/// Whether the calling task is inside of a function that is batched over a named axis.
/// Returns: bool.
#[pyfunction]
fn has_named_axes(py: Python<'_>) -> bool {
    crate::contexts::sync(py);
    girih::Context::current().has_named_axes()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyBoundAxis>()?;
    m.add_function(wrap_pyfunction!(has_named_axes, m)?)?;
    m.add_function(wrap_pyfunction!(collective_reduce, m)?)?;
    m.add_function(wrap_pyfunction!(collective_gather, m)?)?;
    m.add_function(wrap_pyfunction!(collective_scatter, m)?)?;
    m.add_function(wrap_pyfunction!(collective_exchange, m)?)?;
    m.add_function(wrap_pyfunction!(collective_permute, m)?)?;
    m.add_function(wrap_pyfunction!(collective_shuffle, m)?)?;
    m.add_function(wrap_pyfunction!(collective_index, m)?)?;
    m.add_function(wrap_pyfunction!(collective_size, m)?)
}

//! Collectives over the named axes of batches, for single tensors; `girih/collectives.py` has the
//! functions on pytrees.

use crate::args::TensorArg;
use crate::compiled::dim_object;
use crate::errors::{IntoPy, invalid};
use crate::tensor::PyTensor;
use girih::{AxisNames, BoundAxis};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A batch axis with a name, for [`crate::contexts`] to enter.
#[pyclass(name = "BoundAxis", module = "girih._girih", frozen)]
pub struct PyBoundAxis(pub BoundAxis);

/// A name of an axis, or several.
struct Names(Vec<String>);

impl<'a, 'py> FromPyObject<'a, 'py> for Names {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            return Ok(Names(vec![object.extract()?]));
        }
        object.extract().map(Names).map_err(|_| {
            invalid(format!(
                "the name of an axis is a str, or a sequence of them, got {}",
                object.repr().map_or_else(|_| "another object".into(), |r| r.to_string())
            ))
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

/// A reduction over the members, by its name: `sum`, `mean`, `max` or `min`. Returns: Tensor.
#[pyfunction]
fn collective_reduce(
    py: Python<'_>,
    kind: &str,
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

/// The values of all members. Returns: Tensor.
#[pyfunction]
fn collective_gather(
    py: Python<'_>,
    x: TensorArg,
    axis_name: Names,
    axis: i64,
    tiled: bool,
) -> PyResult<PyTensor> {
    with_names(py, &axis_name, |names| girih::all_gather(&x.0, names, axis, tiled)).map(PyTensor)
}

/// The member's part of the sum over the members. Returns: Tensor.
#[pyfunction]
fn collective_scatter(
    py: Python<'_>,
    x: TensorArg,
    axis_name: Names,
    axis: i64,
    tiled: bool,
) -> PyResult<PyTensor> {
    with_names(py, &axis_name, |names| girih::psum_scatter(&x.0, names, axis, tiled)).map(PyTensor)
}

/// Parts of the values of all members, one of each. Returns: Tensor.
#[pyfunction]
fn collective_exchange(
    py: Python<'_>,
    x: TensorArg,
    axis_name: Names,
    split: i64,
    concat: i64,
    tiled: bool,
) -> PyResult<PyTensor> {
    let f = |names: AxisNames<'_>| girih::all_to_all(&x.0, names, split, concat, tiled);
    with_names(py, &axis_name, f).map(PyTensor)
}

/// An index of a member, which is not negative.
fn member(op: &str, index: i64) -> PyResult<usize> {
    usize::try_from(index)
        .map_err(|_| invalid(format!("{op}: {index} is the index of no member; they begin at 0")))
}

/// The value of another member, by pairs of a source and a destination. Returns: Tensor.
#[pyfunction]
fn collective_permute(
    py: Python<'_>,
    x: TensorArg,
    axis_name: Names,
    pairs: Vec<(i64, i64)>,
) -> PyResult<PyTensor> {
    let pair = |&(from, to): &(i64, i64)| Ok((member("ppermute", from)?, member("ppermute", to)?));
    let pairs: Vec<(usize, usize)> = pairs.iter().map(pair).collect::<PyResult<_>>()?;
    with_names(py, &axis_name, |names| girih::ppermute(&x.0, names, &pairs)).map(PyTensor)
}

/// The value of another member, by the order of all. Returns: Tensor.
#[pyfunction]
fn collective_shuffle(
    py: Python<'_>,
    x: TensorArg,
    axis_name: Names,
    order: Vec<i64>,
) -> PyResult<PyTensor> {
    let order: Vec<usize> =
        order.into_iter().map(|index| member("pshuffle", index)).collect::<PyResult<_>>()?;
    with_names(py, &axis_name, |names| girih::pshuffle(&x.0, names, &order)).map(PyTensor)
}

/// The member's own index. Returns: Tensor.
#[pyfunction]
fn collective_index(py: Python<'_>, axis_name: Names) -> PyResult<PyTensor> {
    with_names(py, &axis_name, girih::axis_index).map(PyTensor)
}

/// The number of members. Returns: int.
#[pyfunction]
fn collective_size<'py>(py: Python<'py>, axis_name: Names) -> PyResult<Bound<'py, PyAny>> {
    dim_object(py, with_names(py, &axis_name, girih::axis_size)?)
}

/// Whether the calling task is in a function that is batched over a named axis. Returns: bool.
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

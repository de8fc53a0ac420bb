//! Functions that find and count elements. The shape of many results is the number of elements
//! found, so these functions evaluate.

use crate::args::{Axes, IntArg, KeepArg, OperandArg, TensorArg};
use crate::arrange::{counts, many};
use crate::data::as_tensor;
use crate::errors::IntoPy;
use crate::functions::{Out, out};
use crate::interpreter::detach;
use crate::location;
use crate::scalars;
use crate::tensor::PyTensor;
use girih::{Bins, DType, Heights, Nans, Operand, Tensor, Unique};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

/// The number of results that a search is to give, if any.
pub fn sized(op: &'static str, size: Option<IntArg>) -> PyResult<Option<usize>> {
    size.map(|size| Ok(counts(op, &[size.0])?[0])).transpose()
}

/// The indices of the nonzero elements, one tensor per axis. Evaluates x, unless a size is given:
/// then there are that many indices, and missing ones are fill_value.
/// Returns: tuple[Tensor, ...].
#[pyfunction]
#[pyo3(signature = (x, *, size=None, fill_value=IntArg(0)))]
pub fn nonzero(
    py: Python<'_>,
    x: TensorArg,
    size: Option<IntArg>,
    fill_value: IntArg,
) -> PyResult<Bound<'_, PyTuple>> {
    let _called = location::enter!(py);
    let found = match sized("nonzero", size)? {
        Some(size) => x.0.nonzero_of(size, fill_value.0),
        None => detach(py, || x.0.nonzero()),
    };
    PyTuple::new(py, many(found)?)
}

/// The indices of the nonzero elements, one row for each element. Evaluates x, unless a size is
/// given: then there are that many rows, and the indices of missing ones are fill_value.
#[pyfunction]
#[pyo3(signature = (x, *, size=None, fill_value=IntArg(0)))]
fn argwhere(py: Python<'_>, x: TensorArg, size: Option<IntArg>, fill_value: IntArg) -> Out {
    let _called = location::enter!(py);
    match sized("argwhere", size)? {
        Some(size) => out(x
            .0
            .nonzero_of(size, fill_value.0)
            .and_then(|columns| girih::stack(&columns.iter().collect::<Vec<_>>(), 1))),
        None => out(detach(py, || x.0.argwhere())),
    }
}

/// The positions, in row-major order, of the nonzero elements. Evaluates x, unless a size is given:
/// then there are that many positions, and missing ones are fill_value.
#[pyfunction]
#[pyo3(signature = (x, *, size=None, fill_value=IntArg(0)))]
fn flatnonzero(py: Python<'_>, x: TensorArg, size: Option<IntArg>, fill_value: IntArg) -> Out {
    let _called = location::enter!(py);
    match sized("flatnonzero", size)? {
        Some(size) => out(x.0.flatnonzero_of(size, fill_value.0)),
        None => out(detach(py, || x.0.flatnonzero())),
    }
}

/// The number of nonzero elements over axes, all by default. Dtype: int64.
#[pyfunction]
#[pyo3(signature = (x, axis=None, keepdims=None, *, dim=None, keepdim=None))]
fn count_nonzero(
    py: Python<'_>,
    x: TensorArg,
    axis: Option<Axes>,
    keepdims: Option<KeepArg>,
    dim: Option<Axes>,
    #[pyo3(from_py_with = scalars::maybe_flag)] keepdim: Option<bool>,
) -> Out {
    let _called = location::enter!(py);
    let keep = crate::args::keep(keepdims, keepdim)?;
    out(x.0.count_nonzero(crate::args::axes(axis, dim)?.reduced(keep)))
}

/// The slices along an axis, or the elements in row-major order, for which the condition holds.
/// Evaluates the condition.
#[pyfunction]
#[pyo3(signature = (condition, x, axis=None))]
fn compress(py: Python<'_>, condition: TensorArg, x: TensorArg, axis: Option<Axes>) -> Out {
    let _called = location::enter!(py);
    let axis = axis.unwrap_or_default().single("compress")?;
    out(detach(py, || x.0.compress(&condition.0, axis)))
}

/// The elements, in row-major order, for which the condition holds. Evaluates the condition.
#[pyfunction]
fn extract(py: Python<'_>, condition: TensorArg, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(detach(py, || x.0.extract(&condition.0)))
}

fn unique_of(
    py: Python<'_>,
    x: &TensorArg,
    size: Option<IntArg>,
    fill_value: Option<OperandArg>,
) -> PyResult<Unique> {
    let _called = location::enter!(py);
    match sized("unique", size)? {
        Some(size) => {
            let fill = fill_value.as_ref().map(OperandArg::operand);
            x.0.unique_of(size, fill, Nans::Distinct).py()
        }
        None => detach(py, || x.0.unique()).py(),
    }
}

/// The distinct elements and the numbers of their occurrences.
fn counts_of(
    py: Python<'_>,
    x: &TensorArg,
    size: Option<IntArg>,
    fill_value: Option<OperandArg>,
) -> PyResult<(Tensor, Tensor)> {
    if size.is_some() {
        let found = unique_of(py, x, size, fill_value)?;
        return Ok((found.values, found.counts));
    }
    let _called = location::enter!(py);
    detach(py, || x.0.unique_counts(Nans::Distinct)).py()
}

/// The distinct elements in ascending order; NaNs are distinct from each other. Evaluates x, unless
/// a size is given: then there are that many, and missing ones are fill_value, by default the
/// smallest element. It is the same for unique_counts, unique_inverse and unique_all.
#[pyfunction]
#[pyo3(signature = (x, *, size=None, fill_value=None))]
fn unique_values(
    py: Python<'_>,
    x: TensorArg,
    size: Option<IntArg>,
    fill_value: Option<OperandArg>,
) -> Out {
    Ok(PyTensor(counts_of(py, &x, size, fill_value)?.0))
}

/// A named tuple of the module `girih.results`.
fn named<'py>(py: Python<'py>, name: &str, fields: Vec<Tensor>) -> PyResult<Bound<'py, PyAny>> {
    let fields = PyTuple::new(py, fields.into_iter().map(PyTensor))?;
    py.import("girih.results")?.getattr(name)?.call1(fields)
}

/// The distinct elements in ascending order, and the number of occurrences of each. Evaluates x.
/// Returns: UniqueCounts.
#[pyfunction]
#[pyo3(signature = (x, *, size=None, fill_value=None))]
fn unique_counts<'py>(
    py: Python<'py>,
    x: TensorArg,
    size: Option<IntArg>,
    fill_value: Option<OperandArg>,
) -> PyResult<Bound<'py, PyAny>> {
    let (values, counts) = counts_of(py, &x, size, fill_value)?;
    named(py, "UniqueCounts", vec![values, counts])
}

/// The distinct elements in ascending order, and for each element of x its position among them.
/// Evaluates x. Returns: UniqueInverse.
#[pyfunction]
#[pyo3(signature = (x, *, size=None, fill_value=None))]
fn unique_inverse<'py>(
    py: Python<'py>,
    x: TensorArg,
    size: Option<IntArg>,
    fill_value: Option<OperandArg>,
) -> PyResult<Bound<'py, PyAny>> {
    let unique = unique_of(py, &x, size, fill_value)?;
    named(py, "UniqueInverse", vec![unique.values, unique.inverse])
}

/// The distinct elements in ascending order, the position of the first occurrence of each, the
/// position among them of each element of x, and the number of occurrences. Evaluates x.
/// Returns: UniqueAll.
#[pyfunction]
#[pyo3(signature = (x, *, size=None, fill_value=None))]
fn unique_all<'py>(
    py: Python<'py>,
    x: TensorArg,
    size: Option<IntArg>,
    fill_value: Option<OperandArg>,
) -> PyResult<Bound<'py, PyAny>> {
    let Unique { values, indices, inverse, counts } = unique_of(py, &x, size, fill_value)?;
    named(py, "UniqueAll", vec![values, indices, inverse, counts])
}

/// Whether each element of x is among those of test; with invert, whether it is not. Dtype: bool.
#[pyfunction]
#[pyo3(signature = (x, test, /, *, invert=false))]
fn isin(
    py: Python<'_>,
    x: TensorArg,
    test: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = scalars::flag)] invert: bool,
) -> Out {
    let _called = location::enter!(py);
    let found = match OperandArg::of(test)? {
        // As a tensor, a Python integer would be an int64, which does not combine with uint64.
        Some(OperandArg::Int(v)) if v >= 0 && x.0.dtype() == DType::U64 => x.0.eq(Operand::Int(v)),
        _ => {
            let test = as_tensor(test, None)?;
            detach(py, || x.0.isin(&test))
        }
    };
    let found = found.py()?;
    if invert { out(found.logical_not()) } else { Ok(PyTensor(found)) }
}

/// The number of occurrences of each of 0, 1, 2, ..., or the sum of the weights there. Evaluates x,
/// unless length says how many numbers are counted: others are then left out.
#[pyfunction]
#[pyo3(signature = (x, weights=None, minlength=IntArg(0), *, length=None))]
fn bincount(
    py: Python<'_>,
    x: TensorArg,
    weights: Option<TensorArg>,
    minlength: IntArg,
    length: Option<IntArg>,
) -> Out {
    let _called = location::enter!(py);
    if let Some(length) = length {
        let length = counts("bincount", &[length.0])?[0];
        return out(x.0.bincount_of(weights.map(|w| w.0).as_ref(), length));
    }
    let (weights, minlength) = (weights.map(|w| w.0), counts("bincount", &[minlength.0])?[0]);
    out(detach(py, || x.0.bincount(weights.as_ref(), minlength)))
}

/// Bins as NumPy takes them: the number of bins, or their edges.
pub enum BinsArg {
    Count(usize),
    Edges(Tensor),
}

impl BinsArg {
    pub fn of(bins: Option<&Bound<'_, PyAny>>) -> PyResult<BinsArg> {
        match bins {
            None => Ok(BinsArg::Count(10)),
            Some(bins) if bins.is_instance_of::<PyInt>() => {
                Ok(BinsArg::Count(counts("histogram", &[crate::args::integer(bins)?])?[0]))
            }
            Some(bins) => Ok(BinsArg::Edges(bins.extract::<TensorArg>()?.0)),
        }
    }

    pub fn bins(&self, range: Option<(f64, f64)>) -> Bins<'_> {
        match self {
            &BinsArg::Count(count) => Bins::Equal { count, range },
            BinsArg::Edges(edges) => Bins::Edges(edges),
        }
    }
}

/// The edges of intervals: a number of equal intervals over a range, by default the range of x; or
/// the given edges.
#[pyfunction]
#[pyo3(signature = (x, bins=None, range=None))]
fn histogram_bin_edges(
    py: Python<'_>,
    x: TensorArg,
    bins: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = scalars::maybe_bounds)] range: Option<(f64, f64)>,
) -> Out {
    let _called = location::enter!(py);
    out(x.0.histogram_bin_edges(&BinsArg::of(bins)?.bins(range)))
}

pub(crate) fn heights(density: bool) -> Heights {
    if density { Heights::Density } else { Heights::Counts }
}

/// The number of elements in each interval, or the sum of their weights; and the edges.
/// Returns: tuple[Tensor, Tensor].
#[pyfunction]
#[pyo3(signature = (x, bins=None, range=None, density=false, weights=None))]
fn histogram(
    py: Python<'_>,
    x: TensorArg,
    bins: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = scalars::maybe_bounds)] range: Option<(f64, f64)>,
    #[pyo3(from_py_with = scalars::flag)] density: bool,
    weights: Option<TensorArg>,
) -> PyResult<(PyTensor, PyTensor)> {
    let _called = location::enter!(py);
    let (bins, weights) = (BinsArg::of(bins)?, weights.map(|w| w.0));
    let (counts, edges) =
        x.0.histogram(&bins.bins(range), weights.as_ref(), heights(density)).py()?;
    Ok((PyTensor(counts), PyTensor(edges)))
}

#[pymethods]
impl PyTensor {
    /// The indices of the nonzero elements, one tensor per axis. Evaluates, unless a size is given:
    /// then there are that many indices, and missing ones are fill_value.
    /// Returns: tuple[Tensor, ...].
    #[pyo3(signature = (*, size=None, fill_value=IntArg(0)))]
    fn nonzero<'py>(
        &self,
        py: Python<'py>,
        size: Option<IntArg>,
        fill_value: IntArg,
    ) -> PyResult<Bound<'py, PyTuple>> {
        nonzero(py, TensorArg(self.0.clone()), size, fill_value)
    }
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        nonzero argwhere flatnonzero count_nonzero compress extract unique_values unique_counts
        unique_inverse unique_all isin bincount histogram_bin_edges histogram
    }
    Ok(())
}

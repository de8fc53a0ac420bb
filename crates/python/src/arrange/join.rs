//! Functions that join tensors along an axis, and that split a tensor.

use super::{Many, counts, many, refs};
use crate::args::{Axes, IntArg, TensorArg, axis_or_dim};
use crate::compiled::PyDim;
use crate::errors::{IntoPy, invalid};
use crate::functions::{Out, out};
use crate::location;
use crate::sequences::{self, Listed};
use crate::tensor::PyTensor;
use girih::{Index, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PySlice, PyTuple};

/// Concatenates tensors along an axis; with axis None, all their elements. Dtypes promote.
#[pyfunction]
#[pyo3(signature = (tensors, axis=Axes::one(0), *, dim=None))]
fn concat(py: Python<'_>, tensors: Listed<TensorArg>, axis: Axes, dim: Option<Axes>) -> Out {
    let _called = location::enter!(py);
    let axis = match dim {
        Some(dim) => dim,
        None => axis,
    };
    if let Some(axis) = axis.single("concat")? {
        return out(girih::concat(&refs(&tensors), axis));
    }
    let flat = tensors.iter().map(|t| t.0.reshape(-1)).collect::<girih::Result<Vec<_>>>().py()?;
    out(girih::concat(&flat, 0))
}

/// Splits an axis: an int gives the number of equal parts, a sequence the indices at which to cut,
/// as in NumPy. Returns: list[Tensor].
#[pyfunction]
#[pyo3(signature = (x, sections, axis=None, *, dim=None))]
fn split(x: TensorArg, sections: &Bound<'_, PyAny>, axis: Option<Axes>, dim: Option<Axes>) -> Many {
    let _called = location::enter!(sections.py());
    let axis = crate::args::axis("split", axis, dim, 0)?;
    if !sections.is_instance_of::<PyInt>() {
        return split_at(&x.0, sections, axis);
    }
    let count: usize = sections.extract().map_err(|_| {
        invalid(format!("split: the number of parts must be positive, got {sections}"))
    })?;
    many(girih::split_equal(&x.0, count, axis))
}

/// Splits an axis at the given indices; each part ends where the next begins.
fn split_at(x: &Tensor, sections: &Bound<'_, PyAny>, axis: i64) -> Many {
    let at = girih::ir::shape::normalize_axis("split", axis, x.rank()).py()?;
    let given = sequences::read(sections, sequences::MANY, Ok)?;
    if given.iter().any(|item| item.cast::<PyDim>().is_ok()) {
        return split_at_sizes(x, &given, at);
    }
    let cuts = given.iter().map(|cut| Ok(cut.extract::<IntArg>()?.0));
    let cuts = cuts.collect::<PyResult<Vec<i64>>>()?;
    let size = x.shape().hints()[at] as i64;
    if cuts.is_sorted() && cuts.iter().all(|cut| (0..=size).contains(cut)) {
        return many(girih::split_at(x, cuts.iter().map(|&cut| cut as usize).collect(), axis));
    }
    let part = |i: usize| {
        let start = if i == 0 { None } else { Some(cuts[i - 1]) };
        let mut entries = vec![Index::ALL; at];
        entries.push(Index::Slice { start, stop: cuts.get(i).copied(), step: 1 });
        x.index(&entries)
    };
    many((0..=cuts.len()).map(part).collect())
}

/// As [`split_at`], for indices of which some are symbolic: the parts are slices of the axis.
fn split_at_sizes(x: &Tensor, cuts: &[Bound<'_, PyAny>], axis: usize) -> Many {
    let Some(first) = cuts.first() else { return Ok(vec![PyTensor(x.clone())]) };
    let py = first.py();
    let x = Bound::new(py, PyTensor(x.clone()))?;
    let all = PySlice::full(py).into_any();
    let slice = py.get_type::<PySlice>();
    let part = |i: usize| {
        let bound = |at: Option<&Bound<'_, PyAny>>| at.map(|at| at.clone().unbind());
        let start = bound(i.checked_sub(1).and_then(|at| cuts.get(at)));
        let entry = slice.call1((start, bound(cuts.get(i))))?;
        let mut entries = vec![all.clone(); axis];
        entries.push(entry);
        Ok(PyTensor(x.get_item(PyTuple::new(py, entries)?)?.extract::<TensorArg>()?.0))
    };
    (0..=cuts.len()).map(part).collect()
}

/// The slices along an axis, which the slices do not have. Returns: tuple[Tensor, ...].
#[pyfunction]
#[pyo3(signature = (x, /, *, axis=IntArg(0)))]
fn unstack<'py>(py: Python<'py>, x: TensorArg, axis: IntArg) -> PyResult<Bound<'py, PyTuple>> {
    let _called = location::enter!(py);
    PyTuple::new(py, many(girih::unstack(&x.0, axis.0))?)
}

/// Splits an axis: an int gives the number of parts, whose sizes differ by at most one, a sequence
/// the indices at which to cut. Returns: list[Tensor].
#[pyfunction]
#[pyo3(signature = (x, sections, axis=IntArg(0), *, dim=None))]
fn array_split(
    x: TensorArg,
    sections: &Bound<'_, PyAny>,
    axis: IntArg,
    dim: Option<IntArg>,
) -> Many {
    let _called = location::enter!(sections.py());
    let axis = axis_or_dim(axis, dim, 0)?;
    if sections.is_instance_of::<PyInt>() {
        let count = counts("array_split", &[crate::args::integer(sections)?])?[0];
        return many(girih::array_split(&x.0, count, axis));
    }
    split_at(&x.0, sections, axis)
}

macro_rules! stacks {
    ($($name:ident $doc:literal,)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        fn $name(py: Python<'_>, tensors: Listed<TensorArg>) -> Out {
            let _called = location::enter!(py);
            out(girih::$name(&refs(&tensors)))
        })*
    };
}

stacks! {
    hstack "Joins tensors along the second axis, or along the only axis.",
    vstack "Joins tensors along the first axis; tensors with one axis are rows.",
    dstack "Joins tensors along the third axis.",
    column_stack "Joins tensors along the second axis; tensors with one axis are columns.",
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! { concat split unstack array_split hstack vstack dstack column_stack }
    m.add("concatenate", m.getattr("concat")?)?;
    m.add("cat", m.getattr("concat")?)
}

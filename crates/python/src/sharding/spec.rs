//! Partition specs from Python.

use crate::errors::{IntoPy, exception};
use crate::scalars::{self, described};
use crate::sequences;
use girih::sharding::{AxisRef, DimSpec, P, combining};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyIterator, PyString, PyTuple};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Axes of a mesh by name, or sub-axes such as ``"tp:(2)2"``. A str is one.
fn axes_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<AxisRef>> {
    let axis = |axis: &Bound<'_, PyAny>| scalars::text(axis)?.parse::<AxisRef>().py();
    match object.is_instance_of::<PyString>() {
        true => Ok(vec![axis(object)?]),
        false => sequences::read(object, sequences::FEW, |item| axis(&item)),
    }
}

/// The entry of a spec for one dimension: axes that act as one, the first the major one.
#[pyclass(name = "DimSpec", module = "girih", frozen)]
pub struct PyDimSpec(pub DimSpec);

#[pymethods]
impl PyDimSpec {
    #[new]
    #[pyo3(signature = (axes=None, is_open=false, priority=None))]
    fn new(
        axes: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = scalars::flag)] is_open: bool,
        #[pyo3(from_py_with = scalars::maybe_whole)] priority: Option<u32>,
    ) -> PyResult<PyDimSpec> {
        let axes = axes.map(|axes| axes_of(&axes)).transpose()?.unwrap_or_default();
        Ok(PyDimSpec(DimSpec { axes, is_open, priority: priority.unwrap_or_default() }))
    }

    /// The axes that cut the dimension. Returns: tuple[str, ...].
    #[getter]
    fn axes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.axes.iter().map(ToString::to_string))
    }

    /// Whether propagation may add axes. Returns: bool.
    #[getter]
    fn is_open(&self) -> bool {
        self.0.is_open
    }

    /// When entries conflict, the one with the lower number wins. Returns: int.
    #[getter]
    fn priority(&self) -> u32 {
        self.0.priority
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyDimSpec>().is_ok_and(|other| self.0 == other.get().0)
    }

    fn __hash__(&self) -> u64 {
        hashed(&self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        let mut text = format!("DimSpec([{}]", quoted(&self.0.axes).join(", "));
        if self.0.is_open {
            text += ", is_open=True";
        }
        if self.0.priority > 0 {
            text += &format!(", priority={}", self.0.priority);
        }
        text + ")"
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, bool, u32)> {
        Ok((self.axes(py)?, self.0.is_open, self.0.priority))
    }
}

fn hashed(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn quoted<'a>(axes: impl IntoIterator<Item = &'a AxisRef>) -> Vec<String> {
    axes.into_iter().map(|axis| format!("'{axis}'")).collect()
}

/// An entry: None, the text of an entry such as "dp" or "dp?", several axes, or a DimSpec.
fn entry_of(object: &Bound<'_, PyAny>) -> PyResult<DimSpec> {
    if object.is_none() {
        return Ok(DimSpec::default());
    }
    if let Ok(entry) = object.cast::<PyDimSpec>() {
        return Ok(entry.get().0.clone());
    }
    match object.is_instance_of::<PyString>() {
        true => scalars::text(object)?.parse::<DimSpec>().py(),
        false => Ok(DimSpec { axes: axes_of(object)?, ..DimSpec::default() }),
    }
}

/// An entry as it is written in a call of P, if that is shorter than a DimSpec.
fn entry<'py>(py: Python<'py>, entry: &DimSpec) -> PyResult<Bound<'py, PyAny>> {
    if entry.is_open || entry.priority > 0 {
        return Ok(Bound::new(py, PyDimSpec(entry.clone()))?.into_any());
    }
    let names: Vec<String> = entry.axes.iter().map(ToString::to_string).collect();
    match &names[..] {
        [] => Ok(py.None().into_bound(py)),
        [only] => Ok(PyString::new(py, only).into_any()),
        _ => Ok(PyTuple::new(py, names)?.into_any()),
    }
}

/// A spec argument: a P, a tuple or list of the entries of one, None for a spec without entries, or
/// text: that of a spec, as "<dp, *>", or that of its only entry, as "dp".
pub fn spec_of(object: &Bound<'_, PyAny>) -> PyResult<P> {
    if object.is_none() {
        return Ok(P::default());
    }
    if let Ok(spec) = object.cast::<PyP>() {
        return Ok(spec.get().0.clone());
    }
    if object.is_instance_of::<PyString>() {
        let text = scalars::text(object)?;
        return match text.trim_start().starts_with('<') {
            true => text.parse::<P>().py(),
            false => Ok(P::new([text.parse::<DimSpec>().py()?])),
        };
    }
    let entry = |item| entry_of(&item);
    Ok(P { dims: sequences::read(object, sequences::FEW, entry)?, ..P::default() })
}

/// A partition spec: for each dimension of a tensor, the axes of a mesh that cut it.
///
/// An entry is None, the name of an axis, several names that act as one axis, or a :class:`DimSpec`;
/// ``"tp:(2)2"`` is a part of an axis, ``"dp?"`` an entry to which propagation may add axes.
/// Dimensions without an entry are not cut.
#[pyclass(name = "P", module = "girih", frozen)]
pub struct PyP(pub P);

impl PyP {
    /// The spec.
    pub fn spec(&self) -> &P {
        &self.0
    }
}

#[pymethods]
impl PyP {
    #[new]
    #[pyo3(signature = (*entries, replicated=None, partial=None))]
    fn new(
        entries: &Bound<'_, PyTuple>,
        replicated: Option<Bound<'_, PyAny>>,
        partial: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PyP> {
        let mut spec = P::default();
        for entry in entries {
            spec.dims.push(entry_of(&entry)?);
        }
        if let Some(axes) = replicated {
            spec.replicated.extend(axes_of(&axes)?);
        }
        if let Some(partial) = partial {
            let Ok(ops) = partial.cast::<PyDict>() else {
                let found = described(&partial);
                let message =
                    format!("partial: a dict from axes to names of ops is expected, got {found}");
                return Err(exception("DTypeError", message));
            };
            for (axis, op) in ops {
                let axis = scalars::text(&axis)?.parse::<AxisRef>().py()?;
                spec.partial.insert(axis, combining(scalars::text(&op)?).py()?);
            }
        }
        Ok(PyP(spec))
    }

    /// The spec with this text, as str(P) gives it. Returns: P.
    #[staticmethod]
    fn parse(#[pyo3(from_py_with = scalars::text)] text: &str) -> PyResult<PyP> {
        Ok(PyP(text.parse::<P>().py()?))
    }

    /// The entries. Returns: tuple[DimSpec, ...].
    #[getter]
    fn dims<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.dims.iter().map(|entry| PyDimSpec(entry.clone())))
    }

    /// The axes that may not cut the tensor. Returns: frozenset[str].
    #[getter]
    fn replicated<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyFrozenSet>> {
        PyFrozenSet::new(py, self.0.replicated.iter().map(ToString::to_string))
    }

    /// The axes along which devices have partial values, and the op that combines them.
    /// Returns: dict[str, str].
    #[getter]
    fn partial<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let ops = PyDict::new(py);
        for (axis, op) in &self.0.partial {
            ops.set_item(axis.to_string(), op.def().name)?;
        }
        Ok(ops)
    }

    fn __len__(&self) -> usize {
        self.0.dims.len()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = scalars::whole)] index: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let len = self.0.dims.len();
        let at = if index < 0 { index.checked_add_unsigned(len as u64) } else { Some(index) };
        match at.and_then(|at| self.0.dims.get(usize::try_from(at).ok()?)) {
            Some(found) => entry(py, found),
            None => {
                let message = format!("the spec {} has {len} entries, not one at {index}", self.0);
                Err(exception("IndexOutOfBoundsError", message))
            }
        }
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let entries = self.0.dims.iter().map(|dim| entry(py, dim));
        PyTuple::new(py, entries.collect::<PyResult<Vec<_>>>()?)?.try_iter()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyP>().is_ok_and(|other| self.0 == other.get().0)
    }

    fn __hash__(&self) -> u64 {
        hashed(&self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        shown(&self.0)
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let options = PyDict::new(py);
        options.set_item("replicated", self.replicated(py)?)?;
        options.set_item("partial", self.partial(py)?)?;
        Ok((self.dims(py)?, options))
    }
}

/// A spec as Python writes it.
pub fn shown(spec: &P) -> String {
    let entry = |entry: &DimSpec| match &quoted(&entry.axes)[..] {
        _ if entry.is_open || entry.priority > 0 => PyDimSpec(entry.clone()).__repr__(),
        [] => "None".into(),
        [only] => only.clone(),
        several => format!("({})", several.join(", ")),
    };
    let mut parts: Vec<String> = spec.dims.iter().map(entry).collect();
    if !spec.replicated.is_empty() {
        parts.push(format!("replicated={{{}}}", quoted(&spec.replicated).join(", ")));
    }
    if !spec.partial.is_empty() {
        let op =
            |(axis, op): (&AxisRef, &girih::ir::OpCode)| format!("'{axis}': '{}'", op.def().name);
        let ops: Vec<String> = spec.partial.iter().map(op).collect();
        parts.push(format!("partial={{{}}}", ops.join(", ")));
    }
    format!("P({})", parts.join(", "))
}

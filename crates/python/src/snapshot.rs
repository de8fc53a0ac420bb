//! The objects that a dict or list held at one time, for `girih.state`. Each module called while a
//! transform traces a function is remembered, so this must take a fraction of the time of a call.

use crate::tensor::PyTensor;
use girih::Tensor;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyType};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A held object with its key (`None` in a list), and the value of a tensor: an assignment in place
/// changes the value of the same object.
struct Entry {
    key: Option<Py<PyAny>>,
    object: Py<PyAny>,
    tensor: Option<Tensor>,
}

impl Entry {
    fn new(key: Option<Bound<'_, PyAny>>, object: Bound<'_, PyAny>) -> Entry {
        let tensor = object.cast_exact::<PyTensor>().ok().map(|t| t.borrow().0.clone());
        Entry { key: key.map(Bound::unbind), object: object.unbind(), tensor }
    }

    fn is_same(&self, key: Option<&Bound<'_, PyAny>>, object: &Bound<'_, PyAny>) -> bool {
        let keys = match (&self.key, key) {
            (Some(own), Some(key)) => key.is(own),
            (None, None) => true,
            _ => false,
        };
        keys && object.is(&self.object) && self.has_same_value(object)
    }

    fn has_same_value(&self, object: &Bound<'_, PyAny>) -> bool {
        match &self.tensor {
            None => true,
            Some(before) => {
                object.cast::<PyTensor>().is_ok_and(|tensor| tensor.borrow().0.is_same(before))
            }
        }
    }
}

/// The objects that a dict or list held.
#[pyclass(name = "Snapshot", module = "girih._girih", frozen)]
struct PySnapshot(Mutex<Vec<Entry>>);

/// True for objects that hold no tensors.
fn is_closed(object: &Bound<'_, PyAny>) -> bool {
    object.is_none()
        || object.is_exact_instance_of::<PyTensor>()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyString>()
}

impl PySnapshot {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PySnapshot {
    /// Takes a dict or a list.
    #[new]
    fn new(container: &Bound<'_, PyAny>) -> PyResult<PySnapshot> {
        let entries = match container.cast::<PyDict>() {
            Ok(dict) => dict.iter().map(|(key, object)| Entry::new(Some(key), object)).collect(),
            Err(_) => {
                let items = container.cast::<PyList>()?.iter();
                items.map(|object| Entry::new(None, object)).collect()
            }
        };
        Ok(PySnapshot(Mutex::new(entries)))
    }

    /// Whether the container holds other objects, or tensors with other values. Returns: bool.
    fn differs(&self, container: &Bound<'_, PyAny>) -> PyResult<bool> {
        let entries = self.lock();
        let same = match container.cast::<PyDict>() {
            Ok(dict) => {
                let pairs = || dict.iter().zip(entries.iter());
                dict.len() == entries.len()
                    && pairs().all(|((key, object), entry)| entry.is_same(Some(&key), &object))
            }
            Err(_) => {
                let list = container.cast::<PyList>()?;
                let pairs = || list.iter().zip(entries.iter());
                list.len() == entries.len()
                    && pairs().all(|(object, entry)| entry.is_same(None, &object))
            }
        };
        Ok(!same)
    }

    /// The objects with their keys; the keys of a list are positions. Returns: list[tuple[Any, Any]].
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyAny>, Py<PyAny>)>> {
        let item = |(at, entry): (usize, &Entry)| {
            let key = match &entry.key {
                Some(key) => key.bind(py).clone(),
                None => at.into_pyobject(py)?.into_any(),
            };
            Ok((key, entry.object.clone_ref(py)))
        };
        self.lock().iter().enumerate().map(item).collect()
    }

    /// The tensors whose values have changed, by key, with their former values.
    /// Returns: list[tuple[Any, Tensor, Tensor]].
    #[allow(clippy::type_complexity, reason = "it is Python's")]
    fn assigned<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, Py<PyAny>, PyTensor)>> {
        let items = self.items(py)?;
        let entries = self.lock();
        let changed = items.into_iter().zip(entries.iter()).filter_map(|((key, object), entry)| {
            let before = entry.tensor.clone()?;
            let same = entry.has_same_value(object.bind(py));
            (!same).then_some((key, object, PyTensor(before)))
        });
        Ok(changed.collect())
    }

    /// The objects that may hold tensors, other than instances of a class, with their keys.
    /// Returns: list[tuple[Any, Any]].
    fn open<'py>(
        &self,
        py: Python<'py>,
        but: &Bound<'py, PyType>,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, Py<PyAny>)>> {
        let closed = |entry: &Entry| -> PyResult<bool> {
            let object = entry.object.bind(py);
            Ok(is_closed(object) || object.is_instance(but)?)
        };
        let mut all = true;
        for entry in self.lock().iter() {
            all &= closed(entry)?;
        }
        if all {
            return Ok(Vec::new());
        }
        let mut found = self.items(py)?;
        found.retain(|(_, object)| {
            let object = object.bind(py);
            !is_closed(object) && !object.is_instance(but).unwrap_or(false)
        });
        Ok(found)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The lock is only held while no garbage collection can run.
        match self.0.try_lock() {
            Ok(entries) => entries.iter().try_for_each(|entry| {
                visit.call(&entry.key)?;
                visit.call(&entry.object)
            }),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        let entries = std::mem::take(&mut *self.lock());
        drop(entries);
    }
}

/// Adds this file's class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySnapshot>()
}

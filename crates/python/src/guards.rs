//! The places of the objects that a compiled function refers to, and the guards on their contents
//! under which its program is valid.

use crate::errors::invalid;
use crate::tensor::PyTensor;
use girih::{Tensor, TensorSpec};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyList, PyString, PyTuple};

/// A container, and how it holds an object: under a key, in an attribute, or as a cell.
pub struct ContainerSlot {
    container: Py<PyAny>,
    key: Option<Py<PyAny>>,
    is_attribute: bool,
}

/// A slot in Python's form: container, key (None for a cell), and whether the key is an attribute.
pub type WrittenSlot = (Py<PyAny>, Option<Py<PyAny>>, bool);

impl ContainerSlot {
    /// Converts a slot from Python's form.
    pub fn new((container, key, is_attribute): WrittenSlot) -> ContainerSlot {
        ContainerSlot { container, key, is_attribute }
    }

    /// The object in the slot; `None` if the slot is empty or no longer exists.
    fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let container = self.container.bind(py);
        let Some(key) = &self.key else {
            return container.getattr(intern!(py, "cell_contents")).ok();
        };
        let key = key.bind(py);
        if self.is_attribute {
            return container.getattr(key.cast::<PyString>().ok()?).ok();
        }
        match container.cast_exact::<PyDict>() {
            Ok(dict) => dict.get_item(key).ok().flatten(),
            Err(_) => container.get_item(key).ok(),
        }
    }

    /// The tensor in the slot.
    pub fn tensor(&self, py: Python<'_>) -> Option<Tensor> {
        Some(self.get(py)?.cast::<PyTensor>().ok()?.borrow().0.clone())
    }

    /// Stores an object in the slot.
    pub fn set(&self, value: Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        let container = self.container.bind(py);
        match &self.key {
            None => container.setattr(intern!(py, "cell_contents"), value),
            Some(key) if self.is_attribute => {
                container.setattr(key.bind(py).cast::<PyString>()?, value)
            }
            Some(key) => container.set_item(key.bind(py), value),
        }
    }

    /// As [`ContainerSlot::set`]; if a transform traces a function, the function stores the object.
    pub fn set_traced(&self, value: Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        let state = py.import(intern!(py, "girih.state"))?;
        state.call_method1(intern!(py, "announce_container"), (&self.container,))?;
        self.set(value)
    }

    /// Visits the held objects for the garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.container)?;
        visit.call(&self.key)
    }
}

/// The condition on the object in a slot.
enum Expected {
    /// This very object.
    Same(Py<PyAny>),
    /// An object with this type and value, which is immutable: a number, a string, or a tuple of
    /// these.
    Equal(Py<PyAny>),
    /// A list of such immutable objects.
    Items(Vec<Py<PyAny>>),
    /// This container, with this number of items.
    Length(Py<PyAny>, usize),
    /// An object of the same type that equals this copy.
    Contents(Py<PyAny>),
    /// This array, with the same bytes as this copy.
    Bytes(Py<PyAny>, Py<PyAny>),
    /// A tensor with this shape and dtype.
    Spec(TensorSpec),
    /// The tensor that is also in another slot.
    Alias(ContainerSlot),
}

/// True for an object with the same type and value as a known immutable object.
pub fn is_equal(known: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>) -> bool {
    if known.is(object) {
        return true;
    }
    if !known.get_type().is(object.get_type()) {
        return false;
    }
    if let (Ok(a), Ok(b)) = (known.cast::<PyFloat>(), object.cast::<PyFloat>()) {
        return a.value().to_bits() == b.value().to_bits();
    }
    if let (Ok(a), Ok(b)) = (known.cast::<PyTuple>(), object.cast::<PyTuple>()) {
        return a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(&a, &b));
    }
    known.eq(object).unwrap_or(false)
}

impl Expected {
    fn new(py: Python<'_>, kind: &str, value: Py<PyAny>) -> PyResult<Expected> {
        let bound = value.bind(py);
        Ok(match kind {
            "same" => Expected::Same(value),
            "equal" => Expected::Equal(value),
            "items" => {
                let items = bound.cast::<PyList>()?.iter();
                Expected::Items(items.map(Bound::unbind).collect())
            }
            "length" => Expected::Length(value.clone_ref(py), bound.len()?),
            "contents" => Expected::Contents(value),
            "bytes" => Expected::Bytes(bound.call_method0("tobytes")?.unbind(), value),
            "alias" => Expected::Alias(ContainerSlot::new(bound.extract()?)),
            "spec" => Expected::Spec(bound.cast::<PyTensor>()?.borrow().0.spec()),
            _ => return Err(invalid(format!("Guards: there is no kind {kind}"))),
        })
    }

    fn holds(&self, object: &Bound<'_, PyAny>) -> bool {
        let py = object.py();
        match self {
            Expected::Same(known) => object.is(known),
            Expected::Equal(known) => is_equal(known.bind(py), object),
            Expected::Items(known) => object.cast::<PyList>().is_ok_and(|list| {
                list.len() == known.len()
                    && list.iter().zip(known).all(|(o, k)| is_equal(k.bind(py), &o))
            }),
            Expected::Length(known, length) => {
                object.is(known) && object.len().is_ok_and(|found| found == *length)
            }
            Expected::Contents(known) => {
                let known = known.bind(py);
                object.get_type().is(known.get_type()) && object.eq(known).unwrap_or(false)
            }
            Expected::Bytes(bytes, known) => {
                let found = || object.call_method0(intern!(py, "tobytes"));
                object.is(known) && found().and_then(|f| f.eq(bytes)).unwrap_or(false)
            }
            Expected::Alias(other) => {
                let tensor = object.cast::<PyTensor>();
                let is_other = |tensor: &Bound<'_, PyTensor>| {
                    other.tensor(py).is_some_and(|other| other.is_same(&tensor.borrow().0))
                };
                tensor.is_ok_and(is_other)
            }
            Expected::Spec(spec) => {
                object.cast::<PyTensor>().is_ok_and(|tensor| tensor.borrow().0.spec() == *spec)
            }
        }
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Expected::Same(object)
            | Expected::Equal(object)
            | Expected::Length(object, _)
            | Expected::Contents(object) => visit.call(object),
            Expected::Items(items) => items.iter().try_for_each(|item| visit.call(item)),
            Expected::Bytes(bytes, object) => {
                visit.call(bytes)?;
                visit.call(object)
            }
            Expected::Alias(other) => other.traverse(visit),
            Expected::Spec(_) => Ok(()),
        }
    }
}

/// The conditions on slots under which a program is valid.
#[pyclass(name = "Guards", module = "girih._girih", frozen)]
pub struct PyGuards(Vec<(ContainerSlot, Expected)>);

impl PyGuards {
    /// True if all conditions hold.
    pub fn hold(&self, py: Python<'_>) -> bool {
        self.first_broken(py, 0).is_none()
    }

    fn first_broken(&self, py: Python<'_>, from: usize) -> Option<usize> {
        let holds = |(place, expected): &(ContainerSlot, Expected)| {
            place.get(py).is_some_and(|object| expected.holds(&object))
        };
        let broken = self.0.iter().skip(from).position(|guard| !holds(guard))?;
        Some(from + broken)
    }
}

#[pymethods]
impl PyGuards {
    /// Takes slots, each with the kind of its condition and a model of the expected object.
    #[new]
    fn new(py: Python<'_>, written: Vec<(WrittenSlot, String, Py<PyAny>)>) -> PyResult<PyGuards> {
        let guard = |(place, kind, value): (WrittenSlot, String, Py<PyAny>)| {
            Ok((ContainerSlot::new(place), Expected::new(py, &kind, value)?))
        };
        written.into_iter().map(guard).collect::<PyResult<_>>().map(PyGuards)
    }

    /// The first slot, from a position on, whose condition does not hold; None if there is none.
    /// Returns: int | None.
    #[pyo3(signature = (start=0))]
    fn broken(&self, py: Python<'_>, start: usize) -> Option<usize> {
        self.first_broken(py, start)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.iter().try_for_each(|(place, expected)| {
            place.traverse(&visit)?;
            expected.traverse(&visit)
        })
    }
}

/// Adds this file's class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGuards>()
}

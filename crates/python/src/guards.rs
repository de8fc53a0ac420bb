//! The places of the objects that a compiled function refers to, and the guards on their contents
//! under which its program is valid.

use crate::errors::invalid;
use crate::identity::{is_equal, is_same};
use crate::interpreter::intern;
use crate::scalars;
use crate::sequences::Listed;
use crate::tensor::PyTensor;
use girih::{Tensor, TensorSpec};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMemoryView, PyString, PyType};

/// A container, and how it holds an object: under a key, in an attribute, or as a cell. Without a
/// key, an attribute is the container itself.
pub struct ContainerSlot {
    container: Py<PyAny>,
    key: Option<Py<PyAny>>,
    is_attribute: bool,
}

fn is_variable(tensor: &Tensor) -> bool {
    tensor.requires_grad() && tensor.is_leaf()
}

/// A slot in Python's form: container, key, and whether the key is an attribute.
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
            return match self.is_attribute {
                true => Some(container.clone()),
                false => container.getattr(intern!(py, "cell_contents")).ok(),
            };
        };
        let key = key.bind(py);
        if self.is_attribute {
            return container.getattr(key.cast::<PyString>().ok()?).ok();
        }
        // A missing key of a `defaultdict` is not created.
        match container.cast::<PyDict>() {
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

    /// Stores a tensor in the slot. If the slot holds a variable, a tensor that requires a gradient
    /// itself, the tensor is assigned to it (`girih.variables`).
    pub fn store(&self, value: Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        if let Some(held) = self.get(py)
            && let Ok(tensor) = held.cast_exact::<PyTensor>()
            && is_variable(&tensor.borrow().0)
        {
            let variables = py.import(intern!(py, "girih.variables"))?;
            return variables.call_method1(intern!(py, "assign"), (held, value)).map(drop);
        }
        self.set(value)
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
    /// A list or deque of such immutable objects.
    Items(Py<PyType>, Vec<Py<PyAny>>),
    /// This container, with this number of items.
    Length(Py<PyAny>, usize),
    /// This dict, with these keys in this order.
    Keys(Py<PyAny>, Vec<Py<PyAny>>),
    /// An object of the same type that equals this copy.
    Contents(Py<PyAny>),
    /// An object with this key by `girih.guards.exact`.
    Exact(Py<PyAny>),
    /// This array, with the same bytes as this copy.
    Bytes(Py<PyAny>, Py<PyAny>),
    /// This object, whose buffer has the same bytes as this copy.
    Buffer(Py<PyAny>, Py<PyAny>),
    /// This method, as an attribute of a class.
    Method(Py<PyAny>),
    /// An object of this class, whose attributes are this dict and do not hide these names.
    Instance(Py<PyType>, Option<Py<PyDict>>, Vec<Py<PyAny>>),
    /// A tensor with this shape and dtype.
    Spec(TensorSpec),
    /// The tensor that is also in another slot.
    Alias(ContainerSlot),
}

fn buffer<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    PyMemoryView::from(object)?.call_method0(intern!(object.py(), "tobytes"))
}

fn unbound<'py>(
    items: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Vec<Py<PyAny>>> {
    items.map(|item| item.map(Bound::unbind)).collect()
}

impl Expected {
    fn new(py: Python<'_>, kind: &str, value: Py<PyAny>) -> PyResult<Expected> {
        let bound = value.bind(py);
        Ok(match kind {
            "same" => Expected::Same(value),
            "equal" => Expected::Equal(value),
            "items" => Expected::Items(bound.get_type().unbind(), unbound(bound.try_iter()?)?),
            "keys" => {
                let (dict, keys): (Bound<'_, PyAny>, Bound<'_, PyAny>) = bound.extract()?;
                Expected::Keys(dict.unbind(), unbound(keys.try_iter()?)?)
            }
            "exact" => Expected::Exact(value),
            "method" => Expected::Method(value),
            "instance" => {
                let (class, attributes, absent) = bound.extract()?;
                Expected::Instance(class, attributes, absent)
            }
            "buffer" => Expected::Buffer(value.clone_ref(py), buffer(bound)?.unbind()),
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
            Expected::Items(class, known) => match object.cast_exact::<PyList>() {
                Ok(list) => {
                    class.is(object.get_type())
                        && list.len() == known.len()
                        && list.iter().zip(known).all(|(o, k)| is_equal(k.bind(py), &o))
                }
                Err(_) => {
                    let same = |(o, k): (PyResult<Bound<'_, PyAny>>, &Py<PyAny>)| {
                        o.is_ok_and(|o| is_equal(k.bind(py), &o))
                    };
                    class.is(object.get_type())
                        && object.len().is_ok_and(|length| length == known.len())
                        && object
                            .try_iter()
                            .is_ok_and(|mut items| items.by_ref().zip(known).all(same))
                }
            },
            Expected::Keys(known, keys) => {
                let same = |o: &Bound<'_, PyAny>, k: &Py<PyAny>| is_same(k.bind(py), o);
                object.is(known)
                    && object.len().is_ok_and(|length| length == keys.len())
                    && match object.cast_exact::<PyDict>() {
                        Ok(dict) => dict.iter().zip(keys).all(|((o, _), k)| same(&o, k)),
                        // An `OrderedDict` has an order of its own.
                        Err(_) => object.try_iter().is_ok_and(|items| {
                            items.zip(keys).all(|(o, k)| o.is_ok_and(|o| same(&o, k)))
                        }),
                    }
            }
            Expected::Exact(key) => {
                let exact =
                    || py.import(intern!(py, "girih.guards"))?.getattr(intern!(py, "exact"));
                let found = exact().and_then(|exact| exact.call1((object,)));
                found.and_then(|found| found.eq(key)).unwrap_or(false)
            }
            Expected::Buffer(known, bytes) => {
                object.is(known)
                    && buffer(object).and_then(|found| found.eq(bytes)).unwrap_or(false)
            }
            Expected::Method(known) => {
                // A class method is bound anew each time.
                let known = known.bind(py);
                object.is(known)
                    || object.get_type().is(known.get_type()) && object.eq(known).unwrap_or(false)
            }
            Expected::Instance(class, attributes, absent) => {
                object.get_type().is(class)
                    && attributes.as_ref().is_none_or(|attributes| {
                        let attributes = attributes.bind(py);
                        absent.iter().all(|name| !attributes.contains(name).unwrap_or(true))
                    })
            }
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
            | Expected::Exact(object)
            | Expected::Method(object)
            | Expected::Contents(object) => visit.call(object),
            Expected::Items(class, items) => {
                visit.call(class)?;
                items.iter().try_for_each(|item| visit.call(item))
            }
            Expected::Keys(object, items) => {
                visit.call(object)?;
                items.iter().try_for_each(|item| visit.call(item))
            }
            Expected::Instance(class, attributes, _) => {
                visit.call(class)?;
                visit.call(attributes)
            }
            Expected::Bytes(bytes, object) | Expected::Buffer(object, bytes) => {
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
    fn new(
        py: Python<'_>,
        written: Listed<(WrittenSlot, String, Py<PyAny>)>,
    ) -> PyResult<PyGuards> {
        let guard = |(place, kind, value): (WrittenSlot, String, Py<PyAny>)| {
            Ok((ContainerSlot::new(place), Expected::new(py, &kind, value)?))
        };
        written.into_iter().map(guard).collect::<PyResult<_>>().map(PyGuards)
    }

    /// The first slot, from a position on, whose condition does not hold; None if there is none.
    /// Returns: int | None.
    #[pyo3(signature = (start=0))]
    fn broken(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::whole)] start: usize,
    ) -> Option<usize> {
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

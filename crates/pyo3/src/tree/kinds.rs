//! The container types of pytrees, and how to flatten an object of each type.

use super::structure::{Container, DictKind};
use crate::errors::invalid;
use crate::interpreter::{Once, intern};
use crate::sequences;
use crate::tensors::{is_tensor, is_tensor_class};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub type Children<'py> = SmallVec<[Bound<'py, PyAny>; 8]>;

/// How objects of a type are flattened.
#[derive(Clone)]
enum Kind {
    Leaf,
    OrderedDict,
    DefaultDict,
    NamedTuple,
    Dataclass(Arc<Dataclass>),
    Registered(Arc<Registered>),
    /// A class that derives from `dict`.
    DictSubclass,
    /// The lists of this package's modules, which are nothing but lists in trees.
    List,
}

/// A dataclass and its fields. Fields with `metadata={"static": True}` belong to the structure.
pub struct Dataclass {
    pub class: Py<PyType>,
    pub fields: Vec<Py<PyString>>,
    pub static_fields: Vec<Py<PyString>>,
}

/// A type that the user registered, with its functions.
pub struct Registered {
    /// `node -> (children, data)`.
    flatten: Py<PyAny>,
    /// `(data, children) -> node`.
    pub unflatten: Py<PyAny>,
    /// `(node, number of children) -> expressions`.
    names: Option<Py<PyAny>>,
    subclasses: bool,
}

/// The registered types, and the kind of each type encountered so far.
#[derive(Default)]
struct Registry {
    registered: Vec<(Py<PyType>, Arc<Registered>)>,
    /// Kinds by the address of the type. The type is kept alive, so that no other type gets its
    /// address.
    met: FxHashMap<usize, (Py<PyType>, Kind)>,
}

static REGISTRY: Once<Mutex<Registry>> = Once::new();

/// Locks the registry. No Python code may run while the lock is held.
fn registry(py: Python<'_>) -> MutexGuard<'_, Registry> {
    let registry = REGISTRY.get_or_init(py, Mutex::default);
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

fn collections<'py>(
    py: Python<'py>,
    cell: &'static Once<Py<PyType>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyType>> {
    cell.import(py, "collections", name)
}

/// `collections.OrderedDict`.
pub fn ordered_dict(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: Once<Py<PyType>> = Once::new();
    collections(py, &CLASS, "OrderedDict")
}

/// `collections.defaultdict`.
pub fn default_dict(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: Once<Py<PyType>> = Once::new();
    collections(py, &CLASS, "defaultdict")
}

fn kind_of(class: &Bound<'_, PyType>) -> PyResult<Kind> {
    let (py, address) = (class.py(), class.as_ptr() as usize);
    if let Some((_, kind)) = registry(py).met.get(&address) {
        return Ok(kind.clone());
    }
    let kind = find_kind(class)?;
    registry(py).met.insert(address, (class.clone().unbind(), kind.clone()));
    Ok(kind)
}

fn find_kind(class: &Bound<'_, PyType>) -> PyResult<Kind> {
    let py = class.py();
    let of_class = |class: &Bound<'_, PyAny>| -> Option<Arc<Registered>> {
        let registry = registry(py);
        let found = registry.registered.iter().find(|(known, _)| known.is(class));
        found.map(|(_, registered)| registered.clone())
    };
    if let Some(registered) = of_class(class) {
        return Ok(Kind::Registered(registered));
    }
    if class.is(ordered_dict(py)?) {
        return Ok(Kind::OrderedDict);
    }
    if class.is(default_dict(py)?) {
        return Ok(Kind::DefaultDict);
    }
    if class.is_subclass_of::<PyTuple>()? && class.hasattr(intern!(py, "_fields"))? {
        return Ok(Kind::NamedTuple);
    }
    // Types registered with their subclasses (modules) take precedence over dataclasses that derive
    // from them.
    for base in class.mro().iter().skip(1) {
        if let Some(registered) = of_class(&base).filter(|r| r.subclasses) {
            return Ok(Kind::Registered(registered));
        }
    }
    if class.hasattr(intern!(py, "__dataclass_fields__"))? {
        return Ok(Kind::Dataclass(Arc::new(Dataclass::of(class)?)));
    }
    if class.is_subclass_of::<PyList>()? && class.hasattr(intern!(py, "_is_plain_list"))? {
        return Ok(Kind::List);
    }
    Ok(if class.is_subclass_of::<PyDict>()? { Kind::DictSubclass } else { Kind::Leaf })
}

impl Dataclass {
    fn of(class: &Bound<'_, PyType>) -> PyResult<Dataclass> {
        static FIELDS: Once<Py<PyAny>> = Once::new();
        let py = class.py();
        let fields = FIELDS.import(py, "dataclasses", "fields")?.call1((class,))?;
        let mut of = Dataclass {
            class: class.clone().unbind(),
            fields: Vec::new(),
            static_fields: Vec::new(),
        };
        for field in fields.try_iter()? {
            let field = field?;
            let name = field.getattr(intern!(py, "name"))?.cast_into::<PyString>()?.unbind();
            let metadata = field.getattr(intern!(py, "metadata"))?;
            let set = metadata.call_method1(intern!(py, "get"), (intern!(py, "static"),))?;
            match set.is_truthy()? {
                true => of.static_fields.push(name),
                false => of.fields.push(name),
            }
        }
        Ok(of)
    }
}

/// Registers a type as a container of pytrees.
///
/// Errors: the type is already registered.
pub fn register(
    class: &Bound<'_, PyType>,
    flatten: Py<PyAny>,
    unflatten: Py<PyAny>,
    names: Option<Py<PyAny>>,
    subclasses: bool,
) -> PyResult<()> {
    let py = class.py();
    let builtin = [
        py.get_type::<PyList>(),
        py.get_type::<PyTuple>(),
        py.get_type::<PyDict>(),
        py.None().bind(py).get_type(),
    ];
    let known = builtin.iter().any(|known| known.is(class))
        || is_tensor_class(class)
        || class.is(ordered_dict(py)?)
        || class.is(default_dict(py)?)
        || registry(py).registered.iter().any(|(known, _)| known.is(class));
    if known {
        let name = class.qualname()?;
        return Err(invalid(format!("tree.register: {name} is a pytree node already")));
    }
    let registered = Arc::new(Registered { flatten, unflatten, names, subclasses });
    let mut registry = registry(py);
    registry.registered.push((class.clone().unbind(), registered));
    // Clear the table, because types in it may inherit from the new type.
    let met = std::mem::take(&mut registry.met);
    drop(registry);
    drop(met);
    Ok(())
}

/// The keys of a dict in the order of its children: sorted, or by type and text if they cannot be
/// compared.
pub fn sorted_keys<'py>(dict: &Bound<'py, PyDict>) -> PyResult<Children<'py>> {
    let (py, keys) = (dict.py(), dict.keys());
    if let Err(error) = keys.sort() {
        if !error.is_instance_of::<PyTypeError>(py) {
            return Err(error);
        }
        let described = |key: Bound<'py, PyAny>| {
            let class = key.get_type().qualname()?.to_string();
            Ok((class, key.repr()?.to_string(), key))
        };
        let mut described = dict.keys().iter().map(described).collect::<PyResult<Vec<_>>>()?;
        described.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        return Ok(described.into_iter().map(|(.., key)| key).collect());
    }
    Ok(keys.iter().collect())
}

/// True for objects that are leaves by their type, without a lookup.
fn is_plain(node: &Bound<'_, PyAny>) -> bool {
    is_tensor(node)
        || node.is_exact_instance_of::<PyFloat>()
        || node.is_exact_instance_of::<PyInt>()
        || node.is_exact_instance_of::<PyString>()
}

/// The container and its children; `None` for a leaf.
pub fn open<'py>(node: &Bound<'py, PyAny>) -> PyResult<Option<(Container, Children<'py>)>> {
    if is_plain(node) {
        return Ok(None);
    }
    if let Ok(tuple) = node.cast_exact::<PyTuple>() {
        return Ok(Some((Container::Tuple, tuple.iter().collect())));
    }
    if let Ok(list) = node.cast_exact::<PyList>() {
        return Ok(Some((Container::List, list.iter().collect())));
    }
    if let Ok(dict) = node.cast_exact::<PyDict>() {
        return open_dict(dict, DictKind::Plain).map(Some);
    }
    if node.is_none() {
        return Ok(Some((Container::Empty, Children::new())));
    }
    open_other(node)
}

fn open_dict<'py>(
    dict: &Bound<'py, PyDict>,
    kind: DictKind,
) -> PyResult<(Container, Children<'py>)> {
    let inserted: Children<'py> = dict.keys().iter().collect();
    let keys = match kind {
        DictKind::Ordered => inserted.clone(),
        _ => sorted_keys(dict)?,
    };
    let value = |key: &Bound<'py, PyAny>| dict.as_any().get_item(key);
    let children = keys.iter().map(value).collect::<PyResult<_>>()?;
    let is_sorted = keys.iter().zip(&inserted).all(|(a, b)| a.is(b));
    let held = |keys: Children<'py>| keys.into_iter().map(Bound::unbind).collect();
    let inserted = (!is_sorted).then(|| held(inserted));
    Ok((Container::Dict { kind, keys: held(keys), inserted }, children))
}

fn open_other<'py>(node: &Bound<'py, PyAny>) -> PyResult<Option<(Container, Children<'py>)>> {
    let (py, class) = (node.py(), node.get_type());
    Ok(Some(match kind_of(&class)? {
        Kind::Leaf => return Ok(None),
        Kind::List => (Container::List, node.cast::<PyList>()?.iter().collect()),
        Kind::OrderedDict => open_dict(node.cast::<PyDict>()?, DictKind::Ordered)?,
        Kind::DefaultDict => {
            let factory = node.getattr(intern!(py, "default_factory"))?.unbind();
            open_dict(node.cast::<PyDict>()?, DictKind::Default(factory))?
        }
        Kind::DictSubclass => {
            open_dict(node.cast::<PyDict>()?, DictKind::Subclass(class.unbind()))?
        }
        Kind::NamedTuple => {
            let children = node.cast::<PyTuple>()?.iter().collect();
            (Container::NamedTuple(class.unbind()), children)
        }
        Kind::Dataclass(dataclass) => {
            let get = |name: &Py<PyString>| node.getattr(name.bind(py));
            let children = dataclass.fields.iter().map(get).collect::<PyResult<_>>()?;
            let values = dataclass.static_fields.iter().map(|name| Ok(get(name)?.unbind()));
            let values = values.collect::<PyResult<_>>()?;
            (Container::Dataclass { dataclass, values }, children)
        }
        Kind::Registered(registered) => {
            let opened = registered.flatten.bind(py).call1((node,))?;
            let (children, data): (Bound<'py, PyAny>, Py<PyAny>) = opened.extract()?;
            let children = sequences::read(&children, sequences::MANY, Ok)?.into();
            (Container::Registered { class: class.unbind(), registered, data }, children)
        }
    }))
}

/// The Python expressions that lead from an open container to its children.
pub fn names(
    node: &Bound<'_, PyAny>,
    container: &Container,
    count: usize,
) -> PyResult<Vec<String>> {
    let py = node.py();
    Ok(match container {
        Container::Empty => Vec::new(),
        Container::List | Container::Tuple => (0..count).map(|i| format!("[{i}]")).collect(),
        Container::Dict { keys, .. } => {
            let in_brackets = |key: &Py<PyAny>| Ok(format!("[{}]", key.bind(py).repr()?));
            keys.iter().map(in_brackets).collect::<PyResult<_>>()?
        }
        Container::NamedTuple(_) => {
            let fields: Vec<String> = node.getattr(intern!(py, "_fields"))?.extract()?;
            fields.iter().map(|name| format!(".{name}")).collect()
        }
        Container::Dataclass { dataclass, .. } => {
            dataclass.fields.iter().map(|name| format!(".{name}")).collect()
        }
        Container::Registered { registered, .. } => match &registered.names {
            Some(names) => {
                let names = names.bind(py).call1((node, count))?;
                sequences::read(&names, sequences::MANY, |name| name.extract())?
            }
            None => (0..count).map(|i| format!(".<{i}>")).collect(),
        },
    })
}

//! The structure of a pytree: its containers without the leaves.

use super::kinds::{self, Children, Dataclass, Registered};
use crate::errors::invalid;
use crate::identity;
use crate::interpreter::{Once, intern};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyDict, PyList, PyTuple, PyType};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// One container without its children.
pub enum Container {
    /// `None`, which has no children.
    Empty,
    List,
    Tuple,
    Dict {
        kind: DictKind,
        /// The keys in the order of the children.
        keys: Vec<Py<PyAny>>,
        /// The keys in insertion order, if it differs from the order of the children.
        inserted: Option<Vec<Py<PyAny>>>,
    },
    NamedTuple(Py<PyType>),
    Dataclass {
        dataclass: Arc<Dataclass>,
        /// The values of the static fields.
        values: Vec<Py<PyAny>>,
    },
    Registered {
        class: Py<PyType>,
        registered: Arc<Registered>,
        data: Py<PyAny>,
    },
}

/// The type of a dict.
pub enum DictKind {
    Plain,
    /// An `OrderedDict`, whose key order is part of its structure.
    Ordered,
    /// A `defaultdict` with its factory.
    Default(Py<PyAny>),
    /// A class that derives from `dict`, and is built from a dict.
    Subclass(Py<PyType>),
}

/// The structure of a pytree. Its depth is that of a flattened tree, so the recursion is bounded.
pub enum Structure {
    Leaf,
    Node { container: Container, children: Vec<Structure>, num_leaves: usize },
}

/// Returns the next leaf of a tree that is being built.
pub type NextLeaf<'a, 'py> = dyn FnMut() -> PyResult<Bound<'py, PyAny>> + 'a;

/// Takes the next leaf of a tree that is being compared; false if the leaf does not match.
pub type TakeLeaf<'a, 'py> = dyn FnMut(&Bound<'py, PyAny>) -> PyResult<bool> + 'a;

/// True if both are the same object, or equal in Python; if `exact`, only if builtin objects have
/// the same type and value.
fn same(py: Python<'_>, a: &Py<PyAny>, b: &Py<PyAny>, exact: bool) -> PyResult<bool> {
    match exact {
        _ if a.is(b) => Ok(true),
        true => Ok(identity::is_same(a.bind(py), b.bind(py))),
        false => a.bind(py).eq(b.bind(py)),
    }
}

fn all_same(py: Python<'_>, a: &[Py<PyAny>], b: &[Py<PyAny>], exact: bool) -> PyResult<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (a, b) in a.iter().zip(b) {
        if !same(py, a, b, exact)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Container {
    /// True if the containers have the same type and, except for their children, the same content.
    /// If `exact`, the keys of dicts have one order, and `1` is not `True`.
    pub fn is_same(&self, py: Python<'_>, other: &Container, exact: bool) -> PyResult<bool> {
        use Container::*;
        match (self, other) {
            (Empty, Empty) | (List, List) | (Tuple, Tuple) => Ok(true),
            (
                Dict { kind: a, keys, inserted },
                Dict { kind: b, keys: others, inserted: inserted_others },
            ) => {
                let kinds = match (a, b) {
                    (DictKind::Plain, DictKind::Plain) => true,
                    (DictKind::Ordered, DictKind::Ordered) => true,
                    (DictKind::Default(a), DictKind::Default(b)) => same(py, a, b, exact)?,
                    (DictKind::Subclass(a), DictKind::Subclass(b)) => a.is(b),
                    _ => false,
                };
                let order = !exact
                    || match (inserted, inserted_others) {
                        (None, None) => true,
                        (Some(a), Some(b)) => all_same(py, a, b, exact)?,
                        _ => false,
                    };
                Ok(kinds && order && all_same(py, keys, others, exact)?)
            }
            (NamedTuple(a), NamedTuple(b)) => Ok(a.is(b)),
            (Dataclass { dataclass: a, values }, Dataclass { dataclass: b, values: others }) => {
                Ok(a.class.is(&b.class) && all_same(py, values, others, exact)?)
            }
            (Registered { class: a, data, .. }, Registered { class: b, data: other, .. }) => {
                Ok(a.is(b) && same(py, data, other, exact)?)
            }
            _ => Ok(false),
        }
    }

    /// Appends the objects that are part of the container other than its children.
    fn details(&self, py: Python<'_>, found: &mut Vec<Py<PyAny>>) {
        let mut add = |objects: &[Py<PyAny>]| found.extend(objects.iter().map(|o| o.clone_ref(py)));
        match self {
            Container::Empty | Container::List | Container::Tuple | Container::NamedTuple(_) => {}
            Container::Dict { kind, keys, inserted } => {
                add(inserted.as_ref().unwrap_or(keys));
                if let DictKind::Default(factory) = kind {
                    add(std::slice::from_ref(factory));
                }
            }
            Container::Dataclass { values, .. } => add(values),
            Container::Registered { data, .. } => add(std::slice::from_ref(data)),
        }
    }

    fn hash(&self, py: Python<'_>, state: &mut impl Hasher) -> PyResult<()> {
        std::mem::discriminant(self).hash(state);
        let hash_all = |objects: &[Py<PyAny>], state: &mut _| -> PyResult<()> {
            objects.iter().try_for_each(|o| {
                Hash::hash(&o.bind(py).hash()?, state);
                Ok(())
            })
        };
        match self {
            Container::Empty | Container::List | Container::Tuple => {}
            Container::Dict { kind, keys, .. } => {
                std::mem::discriminant(kind).hash(state);
                hash_all(keys, state)?;
            }
            Container::NamedTuple(class) => class.as_ptr().hash(state),
            Container::Dataclass { dataclass, values } => {
                dataclass.class.as_ptr().hash(state);
                hash_all(values, state)?;
            }
            Container::Registered { class, data, .. } => {
                class.as_ptr().hash(state);
                data.bind(py).hash()?.hash(state);
            }
        }
        Ok(())
    }

    /// Builds the container with these children.
    pub fn build<'py>(
        &self,
        py: Python<'py>,
        children: Children<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Container::Empty => Ok(py.None().into_bound(py)),
            Container::List => Ok(PyList::new(py, children)?.into_any()),
            Container::Tuple => Ok(PyTuple::new(py, children)?.into_any()),
            Container::Dict { kind, keys, inserted } => {
                let dict = PyDict::new(py);
                // Insert the keys in their original order first, which the dict keeps.
                for key in inserted.iter().flatten() {
                    dict.set_item(key, py.None())?;
                }
                for (key, child) in keys.iter().zip(children) {
                    dict.set_item(key, child)?;
                }
                match kind {
                    DictKind::Plain => Ok(dict.into_any()),
                    DictKind::Ordered => kinds::ordered_dict(py)?.call1((dict,)),
                    DictKind::Default(factory) => kinds::default_dict(py)?.call1((factory, dict)),
                    DictKind::Subclass(class) => build_dict(class.bind(py), &dict),
                }
            }
            Container::NamedTuple(class) => class.bind(py).call1(PyTuple::new(py, children)?),
            Container::Dataclass { dataclass, values } => {
                build_dataclass(py, dataclass, values, children)
            }
            Container::Registered { registered, data, .. } => {
                registered.unflatten.bind(py).call1((data, PyList::new(py, children)?))
            }
        }
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let all = |objects: &[Py<PyAny>]| objects.iter().try_for_each(|o| visit.call(o));
        match self {
            Container::Empty | Container::List | Container::Tuple => Ok(()),
            Container::Dict { kind, keys, inserted } => {
                match kind {
                    DictKind::Default(factory) => visit.call(factory)?,
                    DictKind::Subclass(class) => visit.call(class)?,
                    DictKind::Plain | DictKind::Ordered => {}
                }
                all(keys)?;
                all(inserted.as_deref().unwrap_or_default())
            }
            Container::NamedTuple(class) => visit.call(class),
            Container::Dataclass { values, .. } => all(values),
            Container::Registered { class, data, .. } => {
                visit.call(class)?;
                visit.call(data)
            }
        }
    }
}

/// Builds an instance of a class that derives from `dict`, by calling the class with a dict. The
/// class may be an attribute dict or a configuration, so its constructor must run.
///
/// Errors: the result does not hold the items of the dict.
fn build_dict<'py>(
    class: &Bound<'py, PyType>,
    dict: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let built = class.call1((dict,));
    let holds = |built: &Bound<'py, PyAny>| {
        let built = built.cast::<PyDict>().ok()?;
        let same = |(key, value): (Bound<'py, PyAny>, Bound<'py, PyAny>)| matches!(built.get_item(key), Ok(Some(found)) if found.is(&value));
        (built.len() == dict.len() && dict.iter().all(same)).then_some(())
    };
    match built {
        Ok(built) if holds(&built).is_some() => Ok(built),
        outcome => {
            let name = class.qualname()?;
            let error = invalid(format!(
                "tree: a {name} is a dict, and {name}(items) does not give one with the same items; \
                 register the class with girih.tree.register, or pass a dict"
            ));
            error.set_cause(class.py(), outcome.err());
            Err(error)
        }
    }
}

/// Builds an instance of a dataclass without calling its `__init__`, which might make checks that
/// fail for placeholders. Fields are not set by `setattr`, which frozen dataclasses reject.
fn build_dataclass<'py>(
    py: Python<'py>,
    dataclass: &Dataclass,
    values: &[Py<PyAny>],
    children: Children<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    static SET: Once<Py<PyAny>> = Once::new();
    let object = py.get_type::<PyAny>();
    let set =
        SET.get_or_try_init(py, || object.getattr(intern!(py, "__setattr__")).map(Bound::unbind))?;
    let node = object.call_method1(intern!(py, "__new__"), (&dataclass.class,))?;
    for (name, child) in dataclass.fields.iter().zip(children) {
        set.call1(py, (&node, name, child))?;
    }
    for (name, value) in dataclass.static_fields.iter().zip(values) {
        set.call1(py, (&node, name, value))?;
    }
    Ok(node)
}

impl Structure {
    pub fn num_leaves(&self) -> usize {
        match self {
            Structure::Leaf => 1,
            Structure::Node { num_leaves, .. } => *num_leaves,
        }
    }

    pub fn is_same(&self, py: Python<'_>, other: &Structure) -> PyResult<bool> {
        match (self, other) {
            (Structure::Leaf, Structure::Leaf) => Ok(true),
            (
                Structure::Node { container: a, children, .. },
                Structure::Node { container: b, children: others, .. },
            ) => {
                if children.len() != others.len() || !a.is_same(py, b, false)? {
                    return Ok(false);
                }
                for (child, other) in children.iter().zip(others) {
                    if !child.is_same(py, other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Appends the objects that are part of the structure.
    pub fn details(&self, py: Python<'_>, found: &mut Vec<Py<PyAny>>) {
        if let Structure::Node { container, children, .. } = self {
            container.details(py, found);
            children.iter().for_each(|child| child.details(py, found));
        }
    }

    /// Hashes the structure: equal structures have equal hashes.
    ///
    /// Errors: errors of unhashable objects.
    pub fn hash(&self, py: Python<'_>, state: &mut impl Hasher) -> PyResult<()> {
        match self {
            Structure::Leaf => 0u8.hash(state),
            Structure::Node { container, children, .. } => {
                1u8.hash(state);
                container.hash(py, state)?;
                children.iter().try_for_each(|child| child.hash(py, state))?;
            }
        }
        Ok(())
    }

    /// Builds the tree with this structure and these leaves.
    pub fn build<'py>(
        &self,
        py: Python<'py>,
        next: &mut NextLeaf<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Structure::Leaf => next(),
            Structure::Node { container, children, .. } => {
                let built = children.iter().map(|child| child.build(py, next));
                container.build(py, built.collect::<PyResult<_>>()?)
            }
        }
    }

    /// Whether an object has this structure. `take` is called in order with the object in the place
    /// of each leaf, and returns whether the object matches. `exact` is as for
    /// [`Container::is_same`].
    ///
    /// Errors: errors of the functions of registered types, and of `take`.
    pub fn matches<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        take: &mut TakeLeaf<'_, 'py>,
        exact: bool,
    ) -> PyResult<bool> {
        let Structure::Node { container, children, .. } = self else { return take(object) };
        match container {
            Container::Empty => Ok(object.is_none()),
            Container::Tuple => match object.cast_exact::<PyTuple>() {
                Ok(tuple) => Structure::all_match(children, tuple.len(), tuple.iter(), take, exact),
                Err(_) => Ok(false),
            },
            Container::List => match object.cast_exact::<PyList>() {
                Ok(list) => Structure::all_match(children, list.len(), list.iter(), take, exact),
                Err(_) => match kinds::open(object)? {
                    Some((Container::List, found)) => {
                        Structure::all_match(children, found.len(), found.into_iter(), take, exact)
                    }
                    _ => Ok(false),
                },
            },
            Container::Dict { kind: DictKind::Plain, keys, inserted } => {
                let Ok(dict) = object.cast_exact::<PyDict>() else { return Ok(false) };
                if dict.len() != keys.len() {
                    return Ok(false);
                }
                let py = object.py();
                let mut pairs = dict.iter().zip(inserted.as_ref().unwrap_or(keys));
                if exact && !pairs.all(|((own, _), key)| identity::is_same(key.bind(py), &own)) {
                    return Ok(false);
                }
                let mut found: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
                for key in keys {
                    match dict.get_item(key)? {
                        Some(child) => found.push(child),
                        None => return Ok(false),
                    }
                }
                Structure::all_match(children, found.len(), found.into_iter(), take, exact)
            }
            _ => match kinds::open(object)? {
                Some((other, found)) if container.is_same(object.py(), &other, exact)? => {
                    Structure::all_match(children, found.len(), found.into_iter(), take, exact)
                }
                _ => Ok(false),
            },
        }
    }

    fn all_match<'py>(
        children: &[Structure],
        count: usize,
        found: impl Iterator<Item = Bound<'py, PyAny>>,
        take: &mut TakeLeaf<'_, 'py>,
        exact: bool,
    ) -> PyResult<bool> {
        if count != children.len() {
            return Ok(false);
        }
        for (child, object) in children.iter().zip(found) {
            if !child.matches(&object, take, exact)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The structure as text, with `*` for leaves, such as `{'a': (*, None)}`.
    pub fn text(&self, py: Python<'_>) -> PyResult<String> {
        let Structure::Node { container, children, .. } = self else { return Ok("*".into()) };
        let inner = children.iter().map(|child| child.text(py)).collect::<PyResult<Vec<_>>>()?;
        let joined = inner.join(", ");
        let of_class = |class: &Py<PyType>| -> PyResult<String> {
            Ok(format!("{}({joined})", class.bind(py).qualname()?))
        };
        Ok(match container {
            Container::Empty => "None".into(),
            Container::List => format!("[{joined}]"),
            Container::Tuple if inner.len() == 1 => format!("({joined},)"),
            Container::Tuple => format!("({joined})"),
            Container::Dict { kind: DictKind::Plain, keys, .. } => {
                let pair = |(key, child): (&Py<PyAny>, &String)| -> PyResult<String> {
                    Ok(format!("{}: {child}", key.bind(py).repr()?))
                };
                let pairs = keys.iter().zip(&inner).map(pair).collect::<PyResult<Vec<_>>>()?;
                format!("{{{}}}", pairs.join(", "))
            }
            Container::Dict { kind: DictKind::Ordered, .. } => format!("OrderedDict({joined})"),
            Container::Dict { kind: DictKind::Default(_), .. } => format!("defaultdict({joined})"),
            Container::Dict { kind: DictKind::Subclass(class), .. } => of_class(class)?,
            Container::NamedTuple(class) | Container::Registered { class, .. } => of_class(class)?,
            Container::Dataclass { dataclass, .. } => of_class(&dataclass.class)?,
        })
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Structure::Leaf => Ok(()),
            Structure::Node { container, children, .. } => {
                container.traverse(visit)?;
                children.iter().try_for_each(|child| child.traverse(visit))
            }
        }
    }
}

//! Pytrees: flattening and unflattening of nested containers of tensors, for `girih.tree`.
//!
//! This module is in Rust because every transform and every call of a compiled function flattens
//! its arguments.

mod kinds;
mod structure;

use structure::{Container, Structure};

use crate::errors::{exception, invalid};
use crate::scalars::{self, described};
use crate::sequences;
use kinds::open;
use pyo3::PyTraverseError;
use pyo3::exceptions::PyRecursionError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};
use rustc_hash::FxHasher;
use std::hash::Hasher;

/// Maximum nesting depth of containers, which is Python's default recursion limit. A list that
/// contains itself exceeds it.
const MAX_DEPTH: usize = 1000;

fn check_depth(depth: usize) -> PyResult<()> {
    match depth < MAX_DEPTH {
        true => Ok(()),
        false => Err(PyRecursionError::new_err(format!(
            "a pytree has more than {MAX_DEPTH} containers within each other; does one hold itself?"
        ))),
    }
}

/// The structure of a pytree without its leaves. Structures can be compared and hashed.
#[pyclass(name = "TreeDef", module = "girih.tree", frozen)]
pub struct PyTreeDef(pub Structure);

#[pymethods]
impl PyTreeDef {
    /// The number of leaves of a tree with this structure. Returns: int.
    #[getter]
    fn num_leaves(&self) -> usize {
        self.0.num_leaves()
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match other.cast::<PyTreeDef>() {
            Ok(other) => self.0.is_same(py, &other.get().0),
            Err(_) => Ok(false),
        }
    }

    /// The objects that are part of the structure: keys of dicts in the order of insertion, static
    /// fields, data of registered types. Returns: list[Any].
    fn details(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        let mut found = Vec::new();
        self.0.details(py, &mut found);
        found
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<u64> {
        let mut hasher = FxHasher::default();
        self.0.hash(py, &mut hasher)?;
        Ok(hasher.finish())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("TreeDef({})", self.0.text(py)?))
    }

    /// Pickles the structure as a tree with this structure.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let zero = || Ok(0i32.into_pyobject(py)?.into_any());
        let sample = slf.get().0.build(py, &mut || zero())?;
        let structure = py.import("girih.tree")?.getattr("structure")?;
        PyTuple::new(py, [structure, PyTuple::new(py, [sample])?.into_any()])
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.traverse(&visit)
    }
}

type Object<'py> = Bound<'py, PyAny>;

/// Opens a node of a walk, unless `is_leaf` keeps it whole.
fn opened<'py>(
    node: &Object<'py>,
    is_leaf: Option<&Object<'py>>,
) -> PyResult<Option<(Container, kinds::Children<'py>)>> {
    if let Some(is_leaf) = is_leaf {
        if !is_leaf.is_callable() {
            let message = format!("tree: is_leaf is a function, got {}", described(is_leaf));
            return Err(exception("DTypeError", message));
        }
        if is_leaf.call1((node,))?.is_truthy()? {
            return Ok(None);
        }
    }
    open(node)
}

fn flatten_into<'py>(
    node: Object<'py>,
    is_leaf: Option<&Object<'py>>,
    depth: usize,
    leaves: &mut Vec<Object<'py>>,
) -> PyResult<Structure> {
    let Some((container, children)) = opened(&node, is_leaf)? else {
        leaves.push(node);
        return Ok(Structure::Leaf);
    };
    check_depth(depth)?;
    let before = leaves.len();
    let below = children.into_iter().map(|child| flatten_into(child, is_leaf, depth + 1, leaves));
    let children = below.collect::<PyResult<Vec<_>>>()?;
    Ok(Structure::Node { container, children, num_leaves: leaves.len() - before })
}

/// Flattens a tree: the leaves in order, and the structure. Returns: tuple[list[Any], TreeDef].
#[pyfunction]
#[pyo3(signature = (tree, is_leaf=None))]
fn tree_flatten<'py>(
    tree: Object<'py>,
    is_leaf: Option<Object<'py>>,
) -> PyResult<(Bound<'py, PyList>, PyTreeDef)> {
    let py = tree.py();
    let mut leaves = Vec::new();
    let structure = flatten_into(tree, is_leaf.as_ref(), 0, &mut leaves)?;
    Ok((PyList::new(py, leaves)?, PyTreeDef(structure)))
}

fn leaves_into<'py>(
    node: Object<'py>,
    depth: usize,
    leaves: &mut Vec<Object<'py>>,
) -> PyResult<()> {
    let Some((_, children)) = open(&node)? else {
        leaves.push(node);
        return Ok(());
    };
    check_depth(depth)?;
    children.into_iter().try_for_each(|child| leaves_into(child, depth + 1, leaves))
}

/// The leaves of a tree in order. Returns: list[Any].
#[pyfunction]
fn tree_leaves(tree: Object<'_>) -> PyResult<Bound<'_, PyList>> {
    let py = tree.py();
    let mut leaves = Vec::new();
    leaves_into(tree, 0, &mut leaves)?;
    PyList::new(py, leaves)
}

fn paths_into<'py>(
    node: Object<'py>,
    path: String,
    is_leaf: Option<&Object<'py>>,
    depth: usize,
    found: &mut Vec<(String, Object<'py>)>,
) -> PyResult<()> {
    let Some((container, children)) = opened(&node, is_leaf)? else {
        found.push((path, node));
        return Ok(());
    };
    check_depth(depth)?;
    let names = kinds::names(&node, &container, children.len())?;
    if names.len() != children.len() {
        let (class, found, count) = (node.get_type().qualname()?, names.len(), children.len());
        return Err(invalid(format!("tree: {class} has {count} children and {found} names")));
    }
    for (child, name) in children.into_iter().zip(names) {
        paths_into(child, format!("{path}{name}"), is_leaf, depth + 1, found)?;
    }
    Ok(())
}

/// The leaves, each with the expression that leads to it. Returns: list[tuple[str, Any]].
#[pyfunction]
#[pyo3(signature = (tree, is_leaf=None))]
fn tree_flatten_with_path<'py>(
    tree: Object<'py>,
    is_leaf: Option<Object<'py>>,
) -> PyResult<Vec<(String, Object<'py>)>> {
    let mut found = Vec::new();
    paths_into(tree, String::new(), is_leaf.as_ref(), 0, &mut found)?;
    Ok(found)
}

/// The leaves of a tree with the given structure; None if the tree has another structure.
/// Returns: list[Any] | None.
#[pyfunction]
fn tree_leaves_like<'py>(
    #[pyo3(from_py_with = scalars::object)] treedef: Bound<'py, PyTreeDef>,
    tree: Object<'py>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let treedef = treedef.get();
    let mut leaves: Vec<Object<'py>> = Vec::with_capacity(treedef.0.num_leaves());
    let mut take = |leaf: &Object<'py>| {
        leaves.push(leaf.clone());
        Ok(open(leaf)?.is_none())
    };
    match treedef.0.matches(&tree, &mut take, false)? {
        true => PyList::new(tree.py(), leaves).map(Some),
        false => Ok(None),
    }
}

/// Builds the tree with this structure and these leaves. Returns: Any.
#[pyfunction]
fn tree_unflatten<'py>(
    #[pyo3(from_py_with = scalars::object)] treedef: Bound<'py, PyTreeDef>,
    leaves: Object<'py>,
) -> PyResult<Object<'py>> {
    let treedef = treedef.get();
    let (py, structure) = (leaves.py(), &treedef.0);
    let most = sequences::MANY.max(structure.num_leaves() + 1);
    let mut given = sequences::read(&leaves, most, Ok)?.into_iter();
    let (found, expected) = (given.len(), structure.num_leaves());
    if found != expected {
        let text = treedef.__repr__(py)?;
        return Err(invalid(format!("tree.unflatten: {text} has {expected} leaves, got {found}")));
    }
    structure.build(py, &mut || Ok(given.next().expect("as many as the structure has")))
}

fn spread_into<'py>(
    prefix: &Object<'py>,
    tree: Object<'py>,
    is_leaf: &Object<'py>,
    depth: usize,
    found: &mut Vec<Object<'py>>,
) -> PyResult<bool> {
    check_depth(depth)?;
    if is_leaf.call1((prefix,))?.is_truthy()? {
        let mut below = Vec::new();
        leaves_into(tree, depth, &mut below)?;
        found.extend(below.iter().map(|_| prefix.clone()));
        return Ok(true);
    }
    let py = tree.py();
    let (Some((container, children)), Some((other, given))) = (open(&tree)?, open(prefix)?) else {
        return Ok(false);
    };
    if children.len() != given.len() || !container.is_same(py, &other, false)? {
        return Ok(false);
    }
    for (part, child) in given.iter().zip(children) {
        if !spread_into(part, child, is_leaf, depth + 1, found)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// For each leaf of a tree, the leaf of the prefix above it; None if the containers differ.
/// Returns: list[Any] | None.
#[pyfunction]
fn tree_spread<'py>(
    prefix: Object<'py>,
    tree: Object<'py>,
    is_leaf: Object<'py>,
) -> PyResult<Option<Vec<Object<'py>>>> {
    let mut found = Vec::new();
    Ok(spread_into(&prefix, tree, &is_leaf, 0, &mut found)?.then_some(found))
}

/// Registers a type as a container of pytrees. Returns: None.
#[pyfunction]
#[pyo3(signature = (node_type, flatten, unflatten, names, subclasses))]
fn tree_register(
    node_type: &Bound<'_, PyType>,
    flatten: Py<PyAny>,
    unflatten: Py<PyAny>,
    names: Option<Py<PyAny>>,
    #[pyo3(from_py_with = scalars::flag)] subclasses: bool,
) -> PyResult<()> {
    kinds::register(node_type, flatten, unflatten, names, subclasses)
}

/// Adds this file's class and functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTreeDef>()?;
    m.add_function(wrap_pyfunction!(tree_flatten, m)?)?;
    m.add_function(wrap_pyfunction!(tree_flatten_with_path, m)?)?;
    m.add_function(wrap_pyfunction!(tree_leaves, m)?)?;
    m.add_function(wrap_pyfunction!(tree_leaves_like, m)?)?;
    m.add_function(wrap_pyfunction!(tree_register, m)?)?;
    m.add_function(wrap_pyfunction!(tree_spread, m)?)?;
    m.add_function(wrap_pyfunction!(tree_unflatten, m)?)
}

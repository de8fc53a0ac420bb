"""Pytrees: flattening and rebuilding nested containers of tensors.

Nodes are lists, tuples, named tuples, dicts (also ``OrderedDict`` and ``defaultdict``),
dataclasses, registered types and ``None`` (a node without children). Other subclasses of ``dict``
are nodes too; they are rebuilt by calling the class with a dict. Everything else is a leaf.

Dict children come in the order of their sorted keys, so two dicts with equal keys have equal
structures for any insertion order; the rebuilt dict has the original insertion order. A dataclass
field with ``metadata={"static": True}`` belongs to the structure, not to the leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from . import _girih
from ._girih import TreeDef
from .errors import DTypeError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

__all__ = [
    "PyTree",
    "TreeDef",
    "flatten",
    "flatten_with_path",
    "leaves",
    "map",
    "register",
    "structure",
    "unflatten",
]

_T = TypeVar("_T")
#: Any nesting of the node types with leaves.
PyTree: TypeAlias = Any


def register(
    cls: type[_T],
    flatten: Callable[[_T], tuple[Sequence[Any], Hashable]],
    unflatten: Callable[[Any, Sequence[Any]], _T],
    *,
    subclasses: bool = False,
    names: Callable[[_T, int], Iterable[str]] | None = None,
) -> None:
    """Makes a type a node of pytrees.

    Args:
        cls: The type. Its subclasses stay leaves unless ``subclasses`` is true.
        flatten: ``node -> (children, data)``; ``data`` is hashable and compared with ``==``.
        unflatten: ``(data, children) -> node``, the inverse.
        subclasses: Whether subclasses of ``cls`` are nodes of the same kind.
        names: ``(node, number of children) -> expressions`` that lead from the node to each child
            in :func:`flatten_with_path`; ``.<0>``, ``.<1>``, ... otherwise.

    Raises:
        InvalidArgumentError: The type is already a node.
    """
    if not isinstance(cls, type):
        raise DTypeError(f"tree.register: expected a class, got a {type(cls).__name__}")
    _girih.tree_register(cls, flatten, unflatten, names, subclasses)


def flatten(
    tree: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeDef]:
    """Flattens a pytree.

    Args:
        tree: Any pytree; a single leaf is a pytree.
        is_leaf: Called for every node; if it returns true the node is a leaf.

    Returns:
        The leaves in order, and the structure from which :func:`unflatten` rebuilds the tree.
    """
    return _girih.tree_flatten(tree, is_leaf)


def flatten_with_path(
    tree: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> list[tuple[str, Any]]:
    """The leaves with the Python expression that leads to each, such as ``"['w'][0]"``.

    Args:
        tree: Any pytree.
        is_leaf: As for :func:`flatten`.
    """
    return _girih.tree_flatten_with_path(tree, is_leaf)


def leaves(tree: PyTree) -> list[Any]:
    """The leaves of a pytree, in order."""
    return _girih.tree_leaves(tree)


def spread(prefix: PyTree, tree: PyTree, is_leaf: Callable[[Any], bool]) -> list[Any] | None:
    """For each leaf of a pytree, the leaf of ``prefix`` above it.

    Args:
        prefix: A pytree whose leaves are at positions of leaves or subtrees of the tree.
        tree: Any pytree.
        is_leaf: The nodes of ``prefix`` that are leaves.

    Returns:
        One entry for each leaf of ``tree``; ``None`` where the containers differ.
    """
    return _girih.tree_spread(prefix, tree, is_leaf)


def leaves_like(treedef: TreeDef, tree: PyTree) -> list[Any] | None:
    """The leaves of a pytree of the given structure; ``None`` if the tree has another structure."""
    return _girih.tree_leaves_like(treedef, tree)


def structure(tree: PyTree) -> TreeDef:
    """The structure of a pytree."""
    return flatten(tree)[1]


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> PyTree:
    """Rebuilds a pytree from its structure and its leaves.

    Raises:
        InvalidArgumentError: The number of leaves does not match.
    """
    return _girih.tree_unflatten(treedef, leaves)


def map(f: Callable[..., Any], tree: PyTree, *rest: PyTree) -> PyTree:
    """Applies ``f`` to corresponding leaves of one or more pytrees with the same structure.

    Returns:
        A pytree of that structure with the results.

    Raises:
        InvalidArgumentError: The structures differ; the message shows both.
    """
    if not callable(f):
        raise DTypeError(f"tree.map: expected a function, got a {type(f).__name__}")
    first, treedef = flatten(tree)
    columns = [first]
    for other in rest:
        other_leaves = leaves_like(treedef, other)
        if other_leaves is None:
            raise InvalidArgumentError(
                f"tree.map: the trees have different structures: {treedef} and {structure(other)}"
            )
        columns.append(other_leaves)
    return unflatten(treedef, [f(*args) for args in zip(*columns, strict=True)])

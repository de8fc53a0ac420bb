"""Pytrees: nested containers of tensors, taken apart and put together again.

Nodes are lists, tuples, named tuples, dicts (also ``OrderedDict`` and ``defaultdict``),
dataclasses, registered types and ``None`` (a node without children). Everything else is a leaf.

Dict children come in the order of their sorted keys, so two dicts with equal keys have equal
structures however they were filled; the dict rebuilt has the original insertion order. A
dataclass field with ``metadata={"static": True}`` belongs to the structure, not to the leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from . import _girih
from ._girih import TreeDef
from .errors import InvalidArgumentError

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
#: Any nesting of the node types around leaves.
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
        InvalidArgumentError: The type is a node already.
    """
    _girih.tree_register(cls, flatten, unflatten, names, subclasses)


def flatten(
    tree: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeDef]:
    """Takes a pytree apart.

    Args:
        tree: Any pytree; a leaf alone is one.
        is_leaf: Asked of every node; where it answers true the node is kept whole.

    Returns:
        The leaves in order and the structure that :func:`unflatten` rebuilds the tree from.
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
    """For each leaf of a pytree the leaf of ``prefix`` that it lies under.

    Args:
        prefix: A pytree whose leaves stand where the tree has leaves or whole subtrees.
        tree: Any pytree.
        is_leaf: Which nodes of ``prefix`` are leaves of it.

    Returns:
        One entry for each leaf of ``tree``; ``None`` where the containers differ.
    """
    return _girih.tree_spread(prefix, tree, is_leaf)


def leaves_like(treedef: TreeDef, tree: PyTree) -> list[Any] | None:
    """The leaves of a pytree of the given structure; ``None`` where it has another."""
    return _girih.tree_leaves_like(treedef, tree)


def structure(tree: PyTree) -> TreeDef:
    """The structure of a pytree."""
    return flatten(tree)[1]


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> PyTree:
    """Rebuilds a pytree from its structure and as many leaves as it has.

    Raises:
        InvalidArgumentError: The number of leaves is another.
    """
    return _girih.tree_unflatten(treedef, leaves)


def map(f: Callable[..., Any], tree: PyTree, *rest: PyTree) -> PyTree:
    """Applies ``f`` to corresponding leaves of one or more pytrees of one structure.

    Returns:
        A pytree of that structure with the results.

    Raises:
        InvalidArgumentError: The structures differ; the message shows both.
    """
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

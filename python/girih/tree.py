"""Pytrees: flattening and rebuilding nested containers of tensors.

Nodes are lists, tuples, named tuples, dicts (also ``OrderedDict`` and ``defaultdict``),
dataclasses, registered types and ``None`` (a node without children). Other subclasses of ``dict``
are nodes too; they are rebuilt by calling the class with a dict. Everything else is a leaf.

Dict children come in the order of their sorted keys, so two dicts with equal keys have equal
structures for any insertion order; the rebuilt dict has the original insertion order. A dataclass
field with ``metadata={"static": True}`` belongs to the structure, not to the leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    "from_names",
    "leaves",
    "map",
    "map_with_path",
    "merge",
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


def map_with_path(
    f: Callable[..., Any],
    tree: PyTree,
    *rest: PyTree,
    is_leaf: Callable[[Any], bool] | None = None,
) -> PyTree:
    """Applies ``f`` to the path of each leaf and to corresponding leaves of one or more pytrees.

    Args:
        f: Called with the path, as in :func:`flatten_with_path`, and a leaf of each tree.
        tree: Any pytree.
        rest: Pytrees of the same structure.
        is_leaf: As for :func:`flatten`, for all trees.

    Returns:
        A pytree of that structure with the results.

    Raises:
        InvalidArgumentError: The structures differ; the message shows both.

    Example:
        >>> import girih as gr
        >>> gr.tree.map_with_path(lambda path, x: path if x else None, {"a": [1, 0], "b": 2})
        {'a': ["['a'][0]", None], 'b': "['b']"}
    """
    if not callable(f):
        raise DTypeError(f"tree.map_with_path: expected a function, got a {type(f).__name__}")
    pairs, treedef = flatten_with_path(tree, is_leaf), flatten(tree, is_leaf)[1]
    columns: list[list[Any]] = []
    for other in rest:
        found, structure_of_other = flatten(other, is_leaf)
        if structure_of_other != treedef:
            raise InvalidArgumentError(
                "tree.map_with_path: the trees have different structures: "
                f"{treedef} and {structure_of_other}"
            )
        columns.append(found)
    rows = zip(pairs, *columns, strict=True)
    return unflatten(treedef, [f(path, leaf, *others) for (path, leaf), *others in rows])


def from_names(named: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> PyTree:
    """A pytree of dicts and lists from leaves with dotted names, such as those of a file.

    Args:
        named: Leaves by name, or pairs of a name and a leaf. The parts of a name are separated by
            dots; a node whose parts are the numbers 0, 1, 2, ... is a list. The empty name is the
            name of a tree that is a leaf.

    Returns:
        The tree.

    Raises:
        DTypeError: The argument is no mapping and no iterable of pairs, or a name is no str.
        InvalidArgumentError: A name is that of a leaf and of a node, or occurs twice.

    Example:
        >>> import girih as gr
        >>> gr.tree.from_names({"layers.0.weight": 1, "layers.1.weight": 2, "bias": 3})
        {'layers': [{'weight': 1}, {'weight': 2}], 'bias': 3}
    """
    pairs = list(named.items()) if isinstance(named, Mapping) else _girih.items_of(named)
    root = _Node()
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise DTypeError(
                f"tree.from_names: expected pairs of a name and a leaf, got a {type(pair).__name__}"
            )
        name, leaf = pair
        if not isinstance(name, str):
            raise DTypeError(f"tree.from_names: a name is a str, got {name!r}")
        root.put(name.split(".") if name else [], name, leaf)
    return root.built()


class _Node:
    """A node of a tree that grows by names."""

    __slots__ = ("children", "leaf")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.leaf: tuple[Any] | None = None

    def put(self, parts: list[str], name: str, leaf: Any) -> None:
        node = self
        for part in parts:
            if node.leaf is not None:
                break
            node = node.children.setdefault(part, _Node())
        if node.leaf is not None or node.children:
            raise InvalidArgumentError(
                f"tree.from_names: {name!r} or its beginning is the name of something else, too"
            )
        node.leaf = (leaf,)

    def built(self) -> PyTree:
        # Nodes are built from the last to the first, so that deep trees need no recursion.
        order: list[_Node] = [self]
        built: dict[int, Any] = {}
        for node in order:
            order += node.children.values()
        for node in reversed(order):
            parts = {part: built.pop(id(child)) for part, child in node.children.items()}
            numbered = [parts.get(str(i), parts) for i in range(len(parts))]
            is_list = bool(parts) and all(str(i) in parts for i in range(len(parts)))
            built[id(node)] = (
                node.leaf[0] if node.leaf is not None else numbered if is_list else parts
            )
        return built[id(self)]


def merge(
    first: PyTree, second: PyTree, combine: Callable[[Any, Any], Any] | None = None
) -> PyTree:
    """One tree with the leaves of two trees of lists, tuples and dicts.

    Args:
        first: A tree. ``None``, an empty container, and what is missing take the value of the other
            tree.
        second: The other tree.
        combine: Called with two leaves at one place; without it that is an error.

    Returns:
        The tree. Lists and tuples are as long as the longer one of the two.

    Raises:
        DTypeError: ``combine`` is no function.
        InvalidArgumentError: There are two leaves at one place, or a leaf and a node.

    Example:
        >>> import girih as gr
        >>> gr.tree.merge({"a": 1, "b": [None, 3]}, {"b": [2], "c": 4})
        {'a': 1, 'b': [2, 3], 'c': 4}
    """
    if combine is not None and not callable(combine):
        raise DTypeError(f"tree.merge: combine is a function, got a {type(combine).__name__}")
    return _merged(first, second, combine)


def _merged(first: PyTree, second: PyTree, combine: Callable[[Any, Any], Any] | None) -> PyTree:
    nodes = (dict, list, tuple)
    if first is None or (isinstance(first, nodes) and not first):
        return first if second is None else second
    if second is None or (isinstance(second, nodes) and not second):
        return first
    if isinstance(first, dict) and isinstance(second, dict):
        keys = [*first, *(key for key in second if key not in first)]
        return type(first)((k, _merged(first.get(k), second.get(k), combine)) for k in keys)
    if isinstance(first, (list, tuple)) and type(first) is type(second):
        count = max(len(first), len(second))
        padded = [[*part, *([None] * (count - len(part)))] for part in (first, second)]
        merged = [_merged(a, b, combine) for a, b in zip(*padded, strict=True)]
        return merged if isinstance(first, list) else tuple(merged)
    if combine is not None and not isinstance(first, nodes) and not isinstance(second, nodes):
        return combine(first, second)
    raise InvalidArgumentError(
        f"tree.merge: both trees have something at one place, a {type(first).__name__} and a "
        f"{type(second).__name__}; give combine= to choose between leaves"
    )

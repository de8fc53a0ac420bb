"""Pytrees: nested containers of tensors, taken apart and put together again.

Nodes are lists, tuples, named tuples, dicts (also ``OrderedDict`` and ``defaultdict``),
dataclasses, registered types and ``None`` (a node without children). Everything else is a leaf.

Dict children come in the order of their sorted keys, so two dicts with equal keys have equal
structures however they were filled; the dict rebuilt has the original insertion order. A
dataclass field with ``metadata={"static": True}`` belongs to the structure, not to the leaves.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

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


class _Kind(NamedTuple):
    """How one container type is taken apart and rebuilt."""

    # container -> (children, names of the children, what else is needed to rebuild it)
    flatten: Callable[[Any], tuple[Sequence[Any], Sequence[str], Hashable]]
    # (type, what else, children) -> container
    unflatten: Callable[[Any, Any, Sequence[Any]], Any]


class _Ordered(tuple[Any, ...]):
    """Dict keys whose insertion order is remembered but takes no part in comparisons."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ordered) and _sorted_keys(self) == _sorted_keys(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple(_sorted_keys(self)))


def _sorted_keys(keys: Iterable[Any]) -> list[Any]:
    keys = list(keys)
    try:
        return sorted(keys)
    except TypeError:
        return sorted(keys, key=lambda k: (type(k).__qualname__, repr(k)))


def _flatten_dict(node: dict[Any, Any]) -> tuple[list[Any], list[str], Hashable]:
    keys = _sorted_keys(node)
    return [node[k] for k in keys], [f"[{k!r}]" for k in keys], _Ordered(node)


def _unflatten_dict(_type: Any, keys: _Ordered, children: Sequence[Any]) -> dict[Any, Any]:
    by_key = dict(zip(_sorted_keys(keys), children, strict=True))
    return {k: by_key[k] for k in keys}


def _flatten_defaultdict(node: defaultdict[Any, Any]) -> tuple[list[Any], list[str], Hashable]:
    children, names, keys = _flatten_dict(node)
    return children, names, (node.default_factory, keys)


def _flatten_ordered(node: OrderedDict[Any, Any]) -> tuple[list[Any], list[str], Hashable]:
    return list(node.values()), [f"[{k!r}]" for k in node], tuple(node)


def _flatten_sequence(node: Sequence[Any]) -> tuple[Sequence[Any], list[str], Hashable]:
    return node, [f"[{i}]" for i in range(len(node))], None


def _flatten_namedtuple(node: Any) -> tuple[Sequence[Any], list[str], Hashable]:
    return node, [f".{f}" for f in node._fields], None


def _flatten_dataclass(node: Any) -> tuple[list[Any], list[str], Hashable]:
    from dataclasses import fields

    children, names, static = [], [], []
    for field in fields(node):
        if field.metadata.get("static"):
            static.append((field.name, getattr(node, field.name)))
        else:
            children.append(getattr(node, field.name))
            names.append(f".{field.name}")
    return children, names, (tuple(n[1:] for n in names), tuple(static))


def _unflatten_dataclass(
    cls: Any, data: tuple[tuple[str, ...], tuple[tuple[str, Any], ...]], children: Sequence[Any]
) -> Any:
    names, static = data
    node = object.__new__(cls)
    for name, value in (*zip(names, children, strict=True), *static):
        # Frozen dataclasses refuse setattr; __init__ might check what placeholders cannot answer.
        object.__setattr__(node, name, value)
    return node


_KINDS: dict[type, _Kind] = {
    type(None): _Kind(lambda _: ((), (), None), lambda *_: None),
    list: _Kind(_flatten_sequence, lambda _t, _d, children: list(children)),
    tuple: _Kind(_flatten_sequence, lambda _t, _d, children: tuple(children)),
    dict: _Kind(_flatten_dict, _unflatten_dict),
    OrderedDict: _Kind(
        _flatten_ordered, lambda _t, keys, children: OrderedDict(zip(keys, children, strict=True))
    ),
    defaultdict: _Kind(
        _flatten_defaultdict,
        lambda t, data, children: defaultdict(data[0], _unflatten_dict(t, data[1], children)),
    ),
}
_NAMEDTUPLE = _Kind(_flatten_namedtuple, lambda cls, _, children: cls(*children))
_DATACLASS = _Kind(_flatten_dataclass, _unflatten_dataclass)


def _kind(node: Any) -> _Kind | None:
    cls = type(node)
    kind = _KINDS.get(cls)
    if kind is not None:
        return kind
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _NAMEDTUPLE
    # Types registered with their subclasses (modules) come before what Python would make of them.
    for base in cls.__mro__[1:]:
        if base in _INHERITED:
            return _KINDS[base]
    return _DATACLASS if hasattr(cls, "__dataclass_fields__") else None


_INHERITED: set[type] = set()


def register(
    cls: type[_T],
    flatten: Callable[[_T], tuple[Sequence[Any], Hashable]],
    unflatten: Callable[[Any, Sequence[Any]], _T],
    *,
    subclasses: bool = False,
) -> None:
    """Makes a type a node of pytrees.

    Args:
        cls: The type. Its subclasses stay leaves unless ``subclasses`` is true.
        flatten: ``node -> (children, data)``; ``data`` is hashable and compared with ``==``.
        unflatten: ``(data, children) -> node``, the inverse.
        subclasses: Whether subclasses of ``cls`` are nodes of the same kind.

    Raises:
        InvalidArgumentError: The type is a node already.
    """
    if cls in _KINDS:
        raise InvalidArgumentError(f"tree.register: {cls.__qualname__} is a pytree node already")

    def named(node: Any) -> tuple[Sequence[Any], Sequence[str], Hashable]:
        children, data = flatten(node)
        return children, [f".<{i}>" for i in range(len(children))], data

    _KINDS[cls] = _Kind(named, lambda _cls, data, children: unflatten(data, children))
    if subclasses:
        _INHERITED.add(cls)


class TreeDef:
    """The structure of a pytree without its leaves. Compares by structure; hashable."""

    __slots__ = ("_children", "_data", "_type", "num_leaves")

    num_leaves: int

    def __init__(
        self, node_type: type | None, data: Hashable, children: tuple[TreeDef, ...]
    ) -> None:
        self._type = node_type
        self._data = data
        self._children = children
        self.num_leaves = 1 if node_type is None else sum(c.num_leaves for c in children)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TreeDef)
            and self._type is other._type
            and self._data == other._data
            and self._children == other._children
        )

    def __hash__(self) -> int:
        return hash((self._type, self._data, self._children))

    def __repr__(self) -> str:
        return f"TreeDef({self._text()})"

    def _text(self) -> str:
        if self._type is None:
            return "*"
        if self._type is type(None):
            return "None"
        inner = [c._text() for c in self._children]
        if self._type is list:
            return f"[{', '.join(inner)}]"
        if self._type is tuple:
            return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
        if isinstance(self._data, _Ordered):
            pairs = zip(_sorted_keys(self._data), inner, strict=True)
            return "{" + ", ".join(f"{k!r}: {v}" for k, v in pairs) + "}"
        return f"{self._type.__qualname__}({', '.join(inner)})"


_LEAF = TreeDef(None, None, ())


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
    out: list[Any] = []
    return out, _flatten_into(tree, is_leaf, out)


def _flatten_into(tree: Any, is_leaf: Callable[[Any], bool] | None, out: list[Any]) -> TreeDef:
    kind = None if is_leaf is not None and is_leaf(tree) else _kind(tree)
    if kind is None:
        out.append(tree)
        return _LEAF
    children, _, data = kind.flatten(tree)
    return TreeDef(type(tree), data, tuple(_flatten_into(c, is_leaf, out) for c in children))


def flatten_with_path(tree: PyTree) -> list[tuple[str, Any]]:
    """The leaves with the Python expression that leads to each, such as ``"['w'][0]"``."""
    out: list[tuple[str, Any]] = []

    def walk(node: Any, path: str) -> None:
        kind = _kind(node)
        if kind is None:
            out.append((path, node))
            return
        children, names, _ = kind.flatten(node)
        for child, name in zip(children, names, strict=True):
            walk(child, path + name)

    walk(tree, "")
    return out


def leaves(tree: PyTree) -> list[Any]:
    """The leaves of a pytree, in order."""
    return flatten(tree)[0]


def structure(tree: PyTree) -> TreeDef:
    """The structure of a pytree."""
    return flatten(tree)[1]


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> PyTree:
    """Rebuilds a pytree from its structure and as many leaves as it has.

    Raises:
        InvalidArgumentError: The number of leaves is another.
    """
    leaves = list(leaves)
    if len(leaves) != treedef.num_leaves:
        raise InvalidArgumentError(
            f"tree.unflatten: {treedef} has {treedef.num_leaves} leaves, got {len(leaves)}"
        )
    return _unflatten(treedef, iter(leaves))


def _unflatten(treedef: TreeDef, leaves: Any) -> Any:
    if treedef._type is None:
        return next(leaves)
    children = [_unflatten(c, leaves) for c in treedef._children]
    kind = _KINDS.get(treedef._type)
    if kind is None:
        if issubclass(treedef._type, tuple):
            kind = _NAMEDTUPLE
        else:
            inherited = (b for b in treedef._type.__mro__ if b in _INHERITED)
            base = next(inherited, None)
            kind = _DATACLASS if base is None else _KINDS[base]
    return kind.unflatten(treedef._type, treedef._data, children)


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
        other_leaves, other_def = flatten(other)
        if other_def != treedef:
            raise InvalidArgumentError(
                f"tree.map: the trees have different structures: {treedef} and {other_def}"
            )
        columns.append(other_leaves)
    return unflatten(treedef, [f(*args) for args in zip(*columns, strict=True)])

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
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

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

    # container -> (children, what else is needed to rebuild it)
    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]]
    # (type, what else, children) -> container
    unflatten: Callable[[Any, Any, Sequence[Any]], Any]
    # (container, number of children) -> what leads from the container to each child
    names: Callable[[Any, int], Iterable[str]]


class _Keys:
    """A dict's keys: the insertion order is remembered but takes no part in comparisons."""

    __slots__ = ("inserted", "ordered")

    def __init__(self, node: dict[Any, Any], ordered: list[Any]) -> None:
        self.inserted = list(node)
        self.ordered = ordered

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keys) and self.ordered == other.ordered

    def __hash__(self) -> int:
        return hash(tuple(self.ordered))


def _sorted_keys(node: dict[Any, Any]) -> list[Any]:
    try:
        return sorted(node)
    except TypeError:
        return sorted(node, key=lambda k: (type(k).__qualname__, repr(k)))


def _flatten_dict(node: dict[Any, Any]) -> tuple[list[Any], _Keys]:
    ordered = _sorted_keys(node)
    return [node[k] for k in ordered], _Keys(node, ordered)


def _unflatten_dict(_type: Any, keys: _Keys, children: Sequence[Any]) -> dict[Any, Any]:
    node = dict(zip(keys.ordered, children, strict=True))
    return node if keys.inserted == keys.ordered else {k: node[k] for k in keys.inserted}


def _flatten_defaultdict(node: defaultdict[Any, Any]) -> tuple[list[Any], Hashable]:
    children, keys = _flatten_dict(node)
    return children, (node.default_factory, keys)


def _in_brackets(keys: Iterable[Any]) -> list[str]:
    return [f"[{k!r}]" for k in keys]


def _sequence_names(_node: Any, count: int) -> list[str]:
    return _in_brackets(range(count))


def _dict_names(node: dict[Any, Any], _count: int) -> list[str]:
    return _in_brackets(_sorted_keys(node))


def _dataclass_fields(node: Any, static: bool) -> list[str]:
    from dataclasses import fields

    return [f.name for f in fields(node) if bool(f.metadata.get("static")) == static]


def _flatten_dataclass(node: Any) -> tuple[list[Any], Hashable]:
    names = _dataclass_fields(node, static=False)
    static = tuple((name, getattr(node, name)) for name in _dataclass_fields(node, static=True))
    return [getattr(node, name) for name in names], (tuple(names), static)


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
    type(None): _Kind(lambda _: ((), None), lambda *_: None, lambda *_: ()),
    list: _Kind(lambda n: (n, None), lambda _t, _d, children: list(children), _sequence_names),
    tuple: _Kind(lambda n: (n, None), lambda _t, _d, children: tuple(children), _sequence_names),
    dict: _Kind(_flatten_dict, _unflatten_dict, _dict_names),
    OrderedDict: _Kind(
        lambda node: (list(node.values()), tuple(node)),
        lambda _t, keys, children: OrderedDict(zip(keys, children, strict=True)),
        lambda node, _: _in_brackets(node),
    ),
    defaultdict: _Kind(
        _flatten_defaultdict,
        lambda t, data, children: defaultdict(data[0], _unflatten_dict(t, data[1], children)),
        _dict_names,
    ),
}
_NAMEDTUPLE = _Kind(
    lambda node: (node, None),
    lambda cls, _, children: cls(*children),
    lambda node, _: [f".{name}" for name in node._fields],
)
_DATACLASS = _Kind(
    _flatten_dataclass,
    _unflatten_dataclass,
    lambda node, _: [f".{name}" for name in _dataclass_fields(node, static=False)],
)
_INHERITED: set[type] = set()


class _KindOf(dict[type, _Kind | None]):
    """How each type met so far is taken apart; ``None`` for leaves."""

    def __missing__(self, cls: type) -> _Kind | None:
        self[cls] = found = self._find(cls)
        return found

    @staticmethod
    def _find(cls: type) -> _Kind | None:
        if cls in _KINDS:
            return _KINDS[cls]
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return _NAMEDTUPLE
        # Types registered with their subclasses (modules) come before what Python makes of them.
        for base in cls.__mro__[1:]:
            if base in _INHERITED:
                return _KINDS[base]
        return _DATACLASS if hasattr(cls, "__dataclass_fields__") else None


_kind_of = _KindOf()


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
    if cls in _KINDS:
        raise InvalidArgumentError(f"tree.register: {cls.__qualname__} is a pytree node already")
    _KINDS[cls] = _Kind(
        flatten,
        lambda _cls, data, children: unflatten(data, children),
        names or (lambda _node, count: [f".<{i}>" for i in range(count)]),
    )
    if subclasses:
        _INHERITED.add(cls)
    _kind_of.clear()


class TreeDef:
    """The structure of a pytree without its leaves. Compares by structure; hashable."""

    __slots__ = ("_children", "_data", "_type", "num_leaves")

    num_leaves: int

    def __init__(
        self,
        node_type: type | None,
        data: Hashable,
        children: tuple[TreeDef, ...],
        num_leaves: int,
    ) -> None:
        self._type = node_type
        self._data: Any = data
        self._children = children
        self.num_leaves = num_leaves

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
        if isinstance(self._data, _Keys):
            pairs = zip(self._data.ordered, inner, strict=True)
            return "{" + ", ".join(f"{k!r}: {v}" for k, v in pairs) + "}"
        return f"{self._type.__qualname__}({', '.join(inner)})"


_LEAF = TreeDef(None, None, (), 1)


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
    cls = type(tree)
    kind = None if is_leaf is not None and is_leaf(tree) else _kind_of[cls]
    if kind is None:
        out.append(tree)
        return _LEAF
    before = len(out)
    children, data = kind.flatten(tree)
    structures = tuple([_flatten_into(c, is_leaf, out) for c in children])
    return TreeDef(cls, data, structures, len(out) - before)


def flatten_with_path(
    tree: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> list[tuple[str, Any]]:
    """The leaves with the Python expression that leads to each, such as ``"['w'][0]"``.

    Args:
        tree: Any pytree.
        is_leaf: As for :func:`flatten`.
    """
    out: list[tuple[str, Any]] = []

    def walk(node: Any, path: str) -> None:
        kind = None if is_leaf is not None and is_leaf(node) else _kind_of[type(node)]
        if kind is None:
            out.append((path, node))
            return
        children, _ = kind.flatten(node)
        for child, name in zip(children, kind.names(node, len(children)), strict=True):
            walk(child, path + name)

    walk(tree, "")
    return out


def leaves(tree: PyTree) -> list[Any]:
    """The leaves of a pytree, in order."""
    out: list[Any] = []
    _leaves_into(tree, out)
    return out


def _leaves_into(tree: Any, out: list[Any]) -> None:
    cls = type(tree)
    kind = _kind_of[cls]
    if kind is None:
        out.append(tree)
        return
    children = [tree[k] for k in _sorted_keys(tree)] if cls is dict else kind.flatten(tree)[0]
    for child in children:
        _leaves_into(child, out)


def spread(prefix: PyTree, tree: PyTree, is_leaf: Callable[[Any], bool]) -> list[Any] | None:
    """For each leaf of a pytree the leaf of ``prefix`` that it lies under.

    Args:
        prefix: A pytree whose leaves stand where the tree has leaves or whole subtrees.
        tree: Any pytree.
        is_leaf: Which nodes of ``prefix`` are leaves of it.

    Returns:
        One entry for each leaf of ``tree``; ``None`` where the containers differ.
    """
    if is_leaf(prefix):
        return [prefix] * structure(tree).num_leaves
    kind = _kind_of[type(tree)]
    if kind is None or type(prefix) is not type(tree):
        return None
    children, data = kind.flatten(tree)
    given, given_data = kind.flatten(prefix)
    if data != given_data or len(children) != len(given):
        return None
    out: list[Any] = []
    for part, child in zip(given, children, strict=True):
        below = spread(part, child, is_leaf)
        if below is None:
            return None
        out += below
    return out


def leaves_like(treedef: TreeDef, tree: PyTree) -> list[Any] | None:
    """The leaves of a pytree of the given structure; ``None`` where it has another."""
    out: list[Any] = []
    return out if _leaves_like(treedef, tree, out) else None


def _leaves_like(treedef: TreeDef, tree: Any, out: list[Any]) -> bool:
    cls = type(tree)
    kind = _kind_of[cls]
    if kind is None:
        out.append(tree)
        return treedef._type is None
    if cls is not treedef._type:
        return False
    children: Any
    if cls is dict:  # the order of its keys is known
        keys = treedef._data.ordered
        if len(tree) != len(keys):
            return False
        try:
            children = [tree[key] for key in keys]
        except KeyError:
            return False
    else:
        children, data = kind.flatten(tree)
        if data != treedef._data or len(children) != len(treedef._children):
            return False
    for structure, child in zip(treedef._children, children, strict=True):
        if not _leaves_like(structure, child, out):
            return False
    return True


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


def _unflatten(treedef: TreeDef, leaves: Iterator[Any]) -> Any:
    cls = treedef._type
    if cls is None:
        return next(leaves)
    kind = _kind_of[cls]
    assert kind is not None
    children = [next(leaves) if c is _LEAF else _unflatten(c, leaves) for c in treedef._children]
    return kind.unflatten(cls, treedef._data, children)


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

"""Pytrees: flattening, unflattening, and registered types."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field

import girih as gr
import pytest
from girih import tree
from hypothesis import given
from hypothesis import strategies as st

Point = namedtuple("Point", "x y")


@dataclass(frozen=True)
class Config:
    weight: object
    name: str = field(default="", metadata={"static": True})
    rest: object = None


trees = st.recursive(
    st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.tuples(inner, inner).map(lambda p: Point(*p))
        | st.tuples(inner, inner).map(lambda p: Config(p[0], "n", p[1]))
    ),
    max_leaves=20,
)


@given(trees)
def test_unflatten_undoes_flatten(t):
    leaves, treedef = tree.flatten(t)
    assert tree.unflatten(treedef, leaves) == t
    assert treedef.num_leaves == len(leaves) == len(tree.flatten_with_path(t))
    assert None not in leaves
    assert tree.structure(t) == treedef
    assert hash(tree.structure(t)) == hash(treedef)
    assert tree.map(lambda x: x, t) == t


def test_paths_lead_to_their_leaves():
    t = {"a": [1, (2, 3)], "p": Point(4, Config(5, "n", {"k": 6}))}
    for path, leaf in tree.flatten_with_path(t):
        assert eval("t" + path, {"t": t}) == leaf


def test_dicts_compare_by_keys_and_keep_their_order():
    a, b = {"x": 1, "y": 2}, {"y": 2, "x": 1}
    assert tree.flatten(a) == tree.flatten(b)
    assert list(tree.map(str, b)) == ["y", "x"]
    assert tree.structure({1: 0, "a": 0}) == tree.structure({"a": 0, 1: 0})
    assert tree.structure({"x": 1}) != tree.structure({"z": 1})


def test_dict_subclasses_keep_their_type():
    d = tree.map(lambda x: x + 1, defaultdict(list, a=1))
    assert (type(d), d.default_factory, d["a"]) == (defaultdict, list, 2)
    o = tree.map(lambda x: x + 1, OrderedDict(b=1, a=2))
    assert o == OrderedDict(b=2, a=3)


def test_static_fields_belong_to_the_structure():
    assert tree.leaves(Config(1, "a", 2)) == [1, 2]
    assert tree.structure(Config(1, "a")) != tree.structure(Config(1, "b"))
    assert tree.map(lambda x: x * 2, Config(1, "a", [3])) == Config(2, "a", [6])


def test_registered_types():
    class Box:
        def __init__(self, content):
            self.content = content

    tree.register(Box, lambda b: ((b.content,), "tag"), lambda _, c: Box(*c))
    assert tree.map(lambda x: x + 1, [Box(1)])[0].content == 2
    with pytest.raises(gr.InvalidArgumentError, match="Box"):
        tree.register(Box, lambda b: ((), None), lambda _, c: None)


def test_is_leaf():
    assert tree.flatten([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple))[0] == [(1, 2), 3]


def test_errors_show_the_structures():
    with pytest.raises(gr.InvalidArgumentError, match=r"\[\*, \*\].*\(\*,\)"):
        tree.map(lambda a, b: a, [1, 2], (1,))
    with pytest.raises(gr.InvalidArgumentError, match="2 leaves, got 1"):
        tree.unflatten(tree.structure([1, 2]), [1])
    assert repr(tree.structure({"a": (1, None)})) == "TreeDef({'a': (*, None)})"


def test_structures_are_copied_and_pickled():
    t = {"b": [1, (2, None)], "a": OrderedDict(z=3), "p": Point(4, 5), "d": defaultdict(int, q=6)}
    treedef = tree.structure(t)
    for copied in (pickle.loads(pickle.dumps(treedef)), copy.deepcopy(treedef)):
        assert copied == treedef
        assert hash(copied) == hash(treedef)
        assert list(tree.unflatten(copied, range(6))) == ["b", "a", "p", "d"]


def test_containers_that_hold_themselves():
    ring = [1]
    ring.append({"again": ring})
    for f in (tree.flatten, tree.leaves, tree.flatten_with_path):
        with pytest.raises(RecursionError, match="hold itself"):
            f(ring)
    deep = 1
    for _ in range(900):
        deep = [deep]
    leaves, treedef = tree.flatten(deep)
    assert leaves == [1]
    assert tree.unflatten(treedef, [2]) != deep
    assert tree.unflatten(treedef, [1]) == deep
    assert treedef == tree.structure(deep)
    assert repr(treedef).count("[") == 900


def test_trees_that_change_while_they_are_taken_apart():
    changing = [1, [2], 3, 4]
    assert tree.flatten(changing, is_leaf=lambda node: node == 3 and changing.clear())[0]
    held = {"a": [1], "b": 2}
    assert tree.flatten(held, is_leaf=lambda node: node == 1 and held.clear())[0] == [1, 2]


def test_exceptions_of_user_functions_propagate():
    class Sealed:
        pass

    def closed(_):
        raise ValueError("sealed")

    tree.register(Sealed, closed, closed)
    for f in (tree.flatten, tree.leaves, tree.structure, tree.flatten_with_path):
        with pytest.raises(ValueError, match="sealed"):
            f([1, Sealed()])
    with pytest.raises(ZeroDivisionError):
        tree.flatten([1], is_leaf=lambda _: 1 / 0)
    with pytest.raises(TypeError, match="unhashable"):
        hash(tree.structure(Config(1, [])))

    class Nameless(Sealed):
        pass

    tree.register(Nameless, lambda _: ((1, 2), None), closed, names=lambda _n, _c: [".a"])
    with pytest.raises(gr.InvalidArgumentError, match="2 children and 1 names"):
        tree.flatten_with_path(Nameless())


def test_types_may_be_registered_after_use():
    class Late:
        def __init__(self, *content):
            self.content = content

    class Later(Late):
        pass

    assert len(tree.leaves([Late(1, 2), Later(3)])) == 2
    tree.register(Late, lambda n: (n.content, None), lambda _, c: Late(*c), subclasses=True)
    assert tree.leaves([Late(1, 2), Later(3)]) == [1, 2, 3]
    assert tree.structure(Late(1)) != tree.structure(Later(1))


def test_a_structure_is_collected_with_what_it_holds():
    class Key:
        pass

    key = Key()
    key.treedef = tree.structure({key: 1})
    alive = weakref.ref(key)
    del key
    gc.collect()
    assert alive() is None


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), st.integers(), max_size=4))
def test_names_give_back_a_tree_of_dicts(named):
    assert tree.from_names(named) == named
    assert tree.from_names({f"x.{name}": leaf for name, leaf in named.items()}) == (
        {"x": named} if named else {}
    )


def test_names_give_lists_where_their_parts_count_from_zero():
    named = {"layers.0.w": 1, "layers.1.w": 2, "b": 3, "odd.1": 4, "odd.2": 5}
    expected = {"layers": [{"w": 1}, {"w": 2}], "b": 3, "odd": {"1": 4, "2": 5}}
    assert tree.from_names(named) == tree.from_names(iter(named.items())) == expected
    assert tree.from_names([("", 7)]) == 7
    assert tree.from_names({}) == {}
    deep = tree.from_names({".".join("a" * 5000): 1})
    for _ in range(5000):
        deep = deep["a"]
    assert deep == 1
    many = [(str(i), i) for i in reversed(range(12))]
    assert tree.from_names(many) == list(range(12))
    for bad in ([("a", 1), ("a.b", 2)], [("a.b", 1), ("a", 2)], [("a", 1), ("a", 2)]):
        with pytest.raises(gr.InvalidArgumentError, match="something else"):
            tree.from_names(bad)
    with pytest.raises(gr.DTypeError):
        tree.from_names([(1, 2)])


def test_map_with_path_passes_paths_and_leaves():
    t = {"a": [1, 2], "b": None, "c": Point(3, 4)}
    paths = dict(tree.flatten_with_path(t))
    assert tree.leaves(tree.map_with_path(lambda path, x: paths[path] == x, t)) == [True] * 4
    assert tree.map_with_path(lambda _, x, y: x + y, t, t)["c"] == Point(6, 8)
    as_leaf = tree.map_with_path(
        lambda path, x: (path, x), {"a": [1]}, is_leaf=lambda x: isinstance(x, list)
    )
    assert as_leaf == {"a": ("['a']", [1])}
    with pytest.raises(gr.InvalidArgumentError, match="different structures"):
        tree.map_with_path(lambda *_: 0, [1], [1, 2])
    with pytest.raises(gr.DTypeError):
        tree.map_with_path(3, [1])


def test_merge_joins_what_two_trees_hold():
    first, second = {"a": 1, "b": [None, 3], "t": (1,)}, {"b": [2], "c": 4, "t": (None, 2)}
    assert tree.merge(first, second) == {"a": 1, "b": [2, 3], "t": (1, 2), "c": 4}
    assert tree.merge(None, first) is first
    assert tree.merge(first, None) is first
    assert tree.merge({"a": {}, "b": 1, "c": []}, {"a": 2, "b": (), "c": []}) == {
        "a": 2,
        "b": 1,
        "c": [],
    }
    assert tree.merge({"a": 1}, {"a": 2}, lambda x, y: x + y) == {"a": 3}
    for one, other in (({"a": 1}, {"a": 2}), ([1], (1,)), ({"a": [1]}, {"a": 1})):
        with pytest.raises(gr.InvalidArgumentError, match="something at one place"):
            tree.merge(one, other)
    with pytest.raises(gr.InvalidArgumentError):
        tree.merge({"a": [1]}, {"a": 1}, lambda x, y: x)

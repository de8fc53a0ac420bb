"""Guards for every kind of object that a compiled function may read: after a change the function is
traced again; what cannot be guarded is refused.
"""

from __future__ import annotations

import array
import collections
import contextvars
import ctypes
import dataclasses
import decimal
import enum
import functools
import itertools
import math
import mmap
import queue
import random
import struct
import types
import weakref

import girih as gr
import numpy as np
import pytest
from girih import nn

ONE = gr.ones([])
#: Tests that change a value many times on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:compile. .* has been traced")


def agrees(f, *changes):
    """Asserts that the compiled function gives the function's own value, before and after each
    change, and keeps its program in between."""
    compiled = gr.compile(f)
    for change in (None, *changes):
        if change is not None:
            change()
        expected = f(ONE).item()
        before = compiled.num_programs
        for _ in range(3):
            got = compiled(ONE).item()
            assert got == expected or (math.isnan(got) and math.isnan(expected))
        assert compiled.num_programs <= before + 1


# Constants by type and bits.


@dataclasses.dataclass(frozen=True)
class Options:
    k: object
    more: object = None


@dataclasses.dataclass(frozen=True, eq=False)
class ById:
    k: object


Pair = collections.namedtuple("Pair", ["a", "b"])


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Equal:
    """Objects that all are equal."""

    def __init__(self, k):
        self.k = k

    def __eq__(self, other):
        return isinstance(other, Equal)

    def __hash__(self):
        return 0


def nan(payload):
    return struct.unpack("d", struct.pack("Q", 0x7FF8_0000_0000_0000 | payload))[0]


def text(value):
    """A number that depends on type and bits of a value."""
    if isinstance(value, float):
        return f"{type(value)}{struct.pack('d', value)}"
    if isinstance(value, complex):
        return f"{type(value)}{struct.pack('dd', value.real, value.imag)}"
    if isinstance(value, (tuple, list, collections.deque)):
        return f"{type(value)}({','.join(map(text, value))})"
    if isinstance(value, (set, frozenset)):
        return f"{type(value)}({','.join(sorted(map(text, value)))})"
    if isinstance(value, dict):
        return f"{type(value)}({','.join(text(k) + text(v) for k, v in value.items())})"
    if isinstance(value, (Options, Equal, types.SimpleNamespace)):
        return f"{type(value)}({text(list(vars(value).values()))})"
    if isinstance(value, (range, slice)):
        return text(("range", value.start, value.stop, value.step))
    return f"{type(value)}{value!r}"


def number(value):
    return float(sum(ord(c) * (i % 97 + 1) for i, c in enumerate(text(value))) % 9973)


#: Values that Python calls equal, or that differ in bits only.
GROUPS = {
    "true, 1 and 1.0": [True, 1, 1.0, np.float64(1.0), np.float32(1.0), np.int8(1), Level.LOW,
                        decimal.Decimal(1), 1 + 0j],
    "zeros": [0.0, -0.0, 0, False, 0j, complex(-0.0, 0.0), complex(0.0, -0.0)],
    "nan": [nan(1), nan(2), -nan(1), math.inf],
    "tuples": [(True,), (1,), (1.0,), (0.0,), (-0.0,), ((1,),), ((True,),), (1, (0.0, "a")),
               (1, (-0.0, "a"))],
    "named tuples": [Pair(1, 2), (1, 2), Pair(True, 2), Pair(1.0, 2), Pair(0.0, 2), Pair(-0.0, 2)],
    "dataclasses": [Options(1), Options(True), Options(1.0), Options(0.0), Options(-0.0),
                    Options((1, Options(1))), Options((1, Options(True))), Options(1, 0.0),
                    Options(1, -0.0)],
    "sets": [frozenset([1]), frozenset([True]), frozenset([1.0]), frozenset([0.0]),
             frozenset([-0.0]), frozenset([(1, 2)]), frozenset([(True, 2)])],
    "ranges": [range(0), range(1, 1), range(0, 4, 2), range(0, 3, 2)],
    "enums": [Color.RED, Color.BLUE, Level.LOW, Level.HIGH],
    "strings": ["1", b"1", "True"],
    "decimals": [decimal.Decimal("1.0"), decimal.Decimal("1.00"), decimal.Decimal("-0"),
                 decimal.Decimal("0")],
    "all equal": [Equal(1), Equal(True), Equal(2.0), Equal(-0.0), Equal(0.0)],
}  # fmt: skip
CASES = [pytest.param(values, id=name) for name, values in GROUPS.items()]


@pytest.mark.parametrize("values", CASES)
def test_static_arguments(values):
    compiled = gr.compile(lambda x, v: x * number(v), static_argnums=1)
    for _ in range(2):
        for value in values:
            for other in (value, copied(value)):
                assert compiled(ONE, other).item() == number(other), (value, compiled.retraced)
    assert compiled.num_programs <= len(values)


def copied(value):
    """An equal object with the same types and bits."""
    if type(value) is float:
        return struct.unpack("d", struct.pack("d", value))[0]
    if type(value) is tuple:
        return tuple(map(copied, value))
    if isinstance(value, Options):
        return Options(copied(value.k), copied(value.more))
    return value


@pytest.mark.parametrize("values", CASES)
def test_leaves_of_arguments(values):
    """Floats are scalars of the program, and containers are trees; all else is part of it."""
    kept = [v for v in values if type(v) is not float and not hasattr(v, "__array_interface__")]
    compiled = gr.compile(lambda x, pair: x * number(pair[0]))
    for _ in range(2):
        for value in kept:
            if not any(isinstance(leaf, float) for leaf in gr.tree.leaves(value)):
                assert compiled(ONE, [value, ONE]).item() == number(value)


@pytest.mark.parametrize("values", CASES)
@pytest.mark.parametrize("place", ["closure", "global", "attribute", "item", "list", "slot",
                                   "default", "partial", "class"])  # fmt: skip
def test_values_in_places(values, place):
    closure, holder, table, items, slot = values[0], types.SimpleNamespace(), {}, [None], Slot()

    class Held:
        value = None

    def default(x, value=values[0]):
        return x * number(value)

    bound = functools.partial(lambda x, value: x * number(value), value=values[0])
    reads = {
        "closure": lambda x: x * number(closure),
        "global": lambda x: x * number(GLOBAL),
        "attribute": lambda x: x * number(holder.value),
        "item": lambda x: x * number(table["value"]),
        "list": lambda x: x * number(items[0]),
        "slot": lambda x: x * number(slot.value),
        "default": default,
        "partial": bound,
        "class": lambda x: x * number(Held.value),
    }

    def put(value):
        nonlocal closure
        global GLOBAL
        closure = GLOBAL = holder.value = table["value"] = items[0] = slot.value = value
        default.__defaults__ = (value,)
        bound.keywords["value"] = Held.value = value

    put(values[0])
    agrees(reads[place], *[functools.partial(put, value) for value in values[1:]])


class Slot:
    __slots__ = ("value",)


@pytest.mark.parametrize("keys", [(1, True, 1.0), (0.0, -0.0, 0), ((1,), (True,), (1.0,))])
def test_keys_of_dicts(keys):
    def f(x, d):
        return x * number(list(d))

    compiled = gr.compile(f)
    for _ in range(2):
        for key in keys:
            d = {key: ONE}
            assert compiled(ONE, d).item() == f(ONE, d).item()
    held = {keys[0]: 1}

    def change(key):
        held.clear()
        held[key] = 1

    agrees(lambda x: x * number(held), *[functools.partial(change, key) for key in keys[1:]])


def test_the_order_of_keys():
    def f(x, d):
        return sum(v * (i + 1) for i, v in enumerate(d.values())) * x

    compiled = gr.compile(f)
    a, b = gr.asarray(2.0), gr.asarray(5.0)
    for _ in range(2):
        for d in ({"a": a, "b": b}, {"b": b, "a": a}, {"a": b, "b": a},
                  collections.defaultdict(int, {"b": b, "a": a})):  # fmt: skip
            assert compiled(ONE, d).item() == f(ONE, d).item()
    held = {"a": 2.0, "b": 5.0}

    def reverse():
        held["a"] = held.pop("a")

    agrees(lambda x: f(x, held), reverse, reverse)


# Containers that change.


def test_deques():
    window = collections.deque([1.0, 2.0])
    ring = collections.deque([1.0, 2.0], maxlen=2)
    mixed = collections.deque([[1.0], {"k": 2.0}])
    total = lambda d: sum(d)
    agrees(lambda x: x * total(window), lambda: window.append(4.0), window.popleft,
           lambda: window.rotate(1), window.clear, lambda: window.extend([True, 1]))  # fmt: skip
    agrees(lambda x: x * ring[0] * len(ring), lambda: ring.append(7.0), ring.pop)
    agrees(lambda x: x * mixed[0][0] * mixed[-1]["k"], lambda: mixed[0].__setitem__(0, 3.0),
           lambda: mixed[1].__setitem__("k", 5.0), mixed.reverse if False else
           lambda: mixed.__setitem__(0, [9.0]))  # fmt: skip
    tensors = collections.deque([gr.asarray(1.0), gr.asarray(2.0)], maxlen=2)
    agrees(lambda x: x * tensors[0] - tensors[1], lambda: tensors.append(gr.asarray(7.0)),
           lambda: tensors.__setitem__(0, gr.asarray(9.0)), tensors.popleft if False else
           lambda: tensors.appendleft(gr.asarray(4.0)))  # fmt: skip


BUFFERS = {
    "array": lambda: array.array("d", [1.0, 2.0]),
    "bytearray": lambda: bytearray([1, 2]),
    "memoryview": lambda: memoryview(array.array("d", [1.0, 2.0])),
    "memoryview, read only": lambda: memoryview(bytearray([1, 2])).toreadonly(),
    "ctypes": lambda: (ctypes.c_double * 2)(1.0, 2.0),
    "NumPy": lambda: np.array([1.0, 2.0]),
    "NumPy, a view that is read only": lambda: read_only(np.array([1.0, 2.0])),
}


def read_only(base):
    view = base[:]
    view.flags.writeable = False
    return view


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers(kind):
    held = BUFFERS[kind]()
    writable = held
    if kind == "memoryview, read only":
        writable = held.obj
    if kind == "NumPy, a view that is read only":
        writable = held.base
    agrees(lambda x: x * float(held[0]), lambda: writable.__setitem__(0, 5),
           lambda: writable.__setitem__(0, 7))  # fmt: skip
    table = {"held": held}
    agrees(lambda x: x * float(table["held"][1]), lambda: writable.__setitem__(1, 9))


def test_large_buffers_are_refused():
    for held in (array.array("d", bytes(80_000)), bytearray(80_000), mmap.mmap(-1, 80_000),
                 read_only(np.zeros(10_000))):  # fmt: skip
        with pytest.raises(gr.InvalidArgumentError, match=r"defaults\[0\], a.*bytes that may"):
            gr.compile(lambda x, held=held: x * float(held[0]))(ONE)
        table = {"k": held}
        with pytest.raises(gr.InvalidArgumentError, match=r"\['k'\], a.*bytes that may"):
            gr.compile(functools.partial(read_first, table))(ONE)


def read_first(table, x):
    return x * float(table["k"][0])


class Registry(collections.UserDict):
    pass


#: Containers of the standard library, each with a function that reads it and its changes.
CONTAINERS = {
    "OrderedDict": (lambda: collections.OrderedDict(a=1.0, b=2.0),
                    [lambda d: d.move_to_end("a"), lambda d: d.update(a=3.0), lambda d: d.pop("b")],
                    lambda d: number(d)),
    "defaultdict": (lambda: collections.defaultdict(lambda: 3.0, a=1.0),
                    [lambda d: d.update(a=2.0), lambda d: d["new"],
                     lambda d: setattr(d, "default_factory", lambda: 5.0)],
                    lambda d: d["a"] + d.default_factory()),
    "Counter": (lambda: collections.Counter("ab"), [lambda c: c.update("aab")],
                lambda c: float(c["a"] + c.total())),
    "ChainMap": (lambda: collections.ChainMap({"a": 1.0}, {"b": 2.0}),
                 [lambda c: c.update(b=7.0), lambda c: c.maps[1].update(b=3.0),
                  lambda c: c.pop("b"), lambda c: c.maps.append({"c": 1.0})],
                 lambda c: c["b"] + len(c)),
    "UserDict": (lambda: collections.UserDict(a=1.0), [lambda d: d.update(a=2.0)],
                 lambda d: d["a"]),
    "subclass of UserDict": (lambda: Registry(a=1.0), [lambda d: d.update(a=2.0)],
                             lambda d: d["a"]),
    "UserList": (lambda: collections.UserList([1.0]), [lambda d: d.append(2.0)], lambda d: sum(d)),
    "proxy": (lambda: Proxied({"a": 1.0}), [lambda p: p.inner.update(a=2.0),
                                            lambda p: p.inner.update(b=4.0)],
              lambda p: sum(p.proxy.values())),
    "views": (lambda: Proxied({"a": 1.0}), [lambda p: p.inner.update(a=2.0),
                                            lambda p: p.inner.update(b=4.0)],
              lambda p: sum(p.values) + len(p.keys)),
    "SimpleNamespace": (lambda: types.SimpleNamespace(a=1.0), [lambda n: setattr(n, "a", 2.0)],
                        lambda n: n.a),
    "set": (lambda: {1, 2}, [lambda s: s.add(5), lambda s: (s.discard(1), s.add(True))],
            lambda s: number(s)),
    "set of strings": (lambda: {"a", "b"}, [lambda s: s.add("c"), lambda s: s.discard("a")],
                       lambda s: float(len(s) * 2 + ("a" in s))),
    "queue": (queue.Queue, [lambda q: q.put(1.0), lambda q: q.get()], lambda q: float(q.qsize())),
    "nested": (lambda: {"a": [{"b": collections.deque([1.0])}]},
               [lambda d: d["a"][0]["b"].append(2.0), lambda d: d["a"].append(1),
                lambda d: d["a"][0].update(c=1)],
               lambda d: float(sum(d["a"][0]["b"]) + len(d["a"]) + len(d["a"][0]))),
    "in a tuple": (lambda: ([1.0], {"a": 2.0}, {3}), [lambda t: t[0].append(2.0),
                                                      lambda t: t[1].update(a=5.0),
                                                      lambda t: t[2].add(4)],
                   lambda t: sum(t[0]) + t[1]["a"] + sum(t[2])),
    "weak reference": (lambda: Referred(), [lambda r: setattr(r.target, "value", 2.0)],
                       lambda r: r.weak().value),
}  # fmt: skip


class Proxied:
    def __init__(self, inner):
        self.inner, self.proxy = inner, types.MappingProxyType(inner)
        self.values, self.keys = inner.values(), inner.keys()


class Target:
    value = 1.0


class Referred:
    def __init__(self):
        self.target = Target()
        self.weak = weakref.ref(self.target)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_containers(kind):
    make, changes, read = CONTAINERS[kind]
    held = make()
    agrees(lambda x: x * read(held), *[functools.partial(c, held) for c in changes])
    inner = types.SimpleNamespace(held=make())
    agrees(lambda x: x * read(inner.held), *[functools.partial(c, inner.held) for c in changes])
    default = make()

    def with_default(x, held=default):
        return x * read(held)

    agrees(with_default, *[functools.partial(c, default) for c in changes])
    partial = make()
    agrees(functools.partial(lambda held, x: x * read(held), partial),
           *[functools.partial(c, partial) for c in changes])  # fmt: skip


def test_named_tuples_and_tuples_that_are_replaced():
    pair, plain = Pair(1.0, [2.0]), (1.0, [2.0])

    def replace(a, b):
        nonlocal pair, plain
        pair, plain = Pair(a, [b]), (a, [b])

    agrees(lambda x: x * (pair.a + pair.b[0]), lambda: replace(3.0, 2.0), lambda: replace(3.0, 4.0))
    agrees(lambda x: x * (plain[0] + plain[1][0]), lambda: replace(5.0, 2.0),
           lambda: plain[1].append(1.0))  # fmt: skip


def test_context_variables():
    scale = contextvars.ContextVar("scale", default=1.0)
    agrees(lambda x: x * scale.get(), lambda: scale.set(2.0), lambda: scale.set(3.0))


def generator():
    yield 1.0
    yield 2.0


REFUSED = {
    "generator": generator,
    "iterator of a list": lambda: iter([1.0, 2.0]),
    "enumerate": lambda: (value for value in [1.0]),
    "count": lambda: itertools.count(1),
    "cycle": lambda: itertools.cycle([1.0]),
    "zip": lambda: map(float, [1, 2, 3]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_iterators_are_refused(kind):
    held = REFUSED[kind]()
    with pytest.raises(gr.InvalidArgumentError, match=r"held, an iterator.*pass the next item"):
        gr.compile(lambda x: x * next(held))(ONE)
    owner = types.SimpleNamespace(data=REFUSED[kind]())
    with pytest.raises(gr.InvalidArgumentError, match=r"owner\.data, an iterator"):
        gr.compile(lambda x: x * next(owner.data))(ONE)
    # The function does not read the attribute, so it is not refused.
    other = types.SimpleNamespace(unread=REFUSED[kind](), scale=2.0)
    assert gr.compile(lambda x: x * other.scale)(ONE).item() == 2.0


def test_generators_of_random_numbers_are_refused():
    for held in (random.Random(0), np.random.default_rng(0), np.random.RandomState(0)):
        with pytest.raises(gr.InvalidArgumentError, match=r"generator of random numbers"):
            gr.compile(lambda x, held=held: x * held.uniform(0, 1))(ONE)


# Code that is replaced.


class Base:
    def inherited(self, x):
        return x * 2.0

    def overridden(self, x):
        return x * 3.0


class Scale(Base):
    factor = 2.0

    def apply(self, x):
        return x * 2.0

    def overridden(self, x):
        return super().overridden(x) + 1.0

    @staticmethod
    def fixed(x):
        return x * 2.0

    @classmethod
    def of_class(cls, x):
        return x * cls.factor

    @property
    def gain(self):
        return 2.0

    @functools.cached_property
    def cached(self):
        return 2.0

    def __call__(self, x):
        return x * 2.0

    def __getitem__(self, at):
        return at * 2.0

    def __add__(self, other):
        return other + 2.0


class Other(Base):
    factor = 7.0

    def apply(self, x):
        return x * 7.0


class Descriptor:
    def __init__(self, value):
        self.value = value

    def __get__(self, instance, owner):
        return self.value


def helper(x):
    return x * 2.0


def replacement(x):
    return x * 5.0


CALLS = {
    "method": (lambda s, x: s.apply(x), "apply", lambda self, x: x * 4.0),
    "inherited method": (lambda s, x: s.inherited(x), "inherited", lambda self, x: x * 4.0),
    "overridden method": (lambda s, x: s.overridden(x), "overridden", lambda self, x: x * 4.0),
    "static method": (lambda s, x: s.fixed(x), "fixed", staticmethod(lambda x: x * 4.0)),
    "class method": (lambda s, x: s.of_class(x), "of_class", classmethod(lambda cls, x: x * 4.0)),
    "property": (lambda s, x: x * s.gain, "gain", property(lambda self: 4.0)),
    "cached property": (lambda s, x: x * s.cached, "cached", property(lambda self: 4.0)),
    "call": (lambda s, x: s(x), "__call__", lambda self, x: x * 4.0),
    "item": (lambda s, x: x * s[3], "__getitem__", lambda self, at: 4.0),
    "operator": (lambda s, x: x * (s + 1), "__add__", lambda self, other: 4.0),
}


def classes():
    """New classes for each test, because tests replace their methods."""
    special = ("__dict__", "__weakref__", "overridden", "cached")
    base = type("Base", (), {k: v for k, v in vars(Base).items() if k not in special[:2]})
    namespace = {k: v for k, v in vars(Scale).items() if k not in special}
    scale = type("Scale", (base,), namespace)

    def overridden(self, x):
        return super(scale, self).overridden(x) + 1.0

    scale.overridden = overridden
    scale.cached = functools.cached_property(lambda self: 2.0)
    scale.cached.__set_name__(scale, "cached")
    for cls in (base, scale):
        cls.__module__ = __name__
    return base, scale


@pytest.mark.parametrize("kind", CALLS)
def test_methods_that_are_replaced_in_the_class(kind):
    call, name, new = CALLS[kind]
    _, scale = classes()
    held = scale()
    agrees(lambda x: call(held, x), lambda: setattr(scale, name, new))
    base, scale = classes()
    held = scale()
    # A method of a base class, and one that hides it.
    if name in vars(base):
        agrees(lambda x: call(held, x), lambda: setattr(base, name, lambda self, x: x * 9.0))
    base, scale = classes()
    sub = type("Sub", (scale,), {"__module__": __name__})
    held = sub()
    agrees(lambda x: call(held, x), lambda: setattr(sub, name, new), lambda: delattr(sub, name))


@pytest.mark.parametrize("kind", ["method", "inherited method", "static method", "class method"])
def test_methods_that_are_set_on_the_object(kind):
    call, name, _ = CALLS[kind]
    _, scale = classes()
    held = scale()
    agrees(lambda x: call(held, x), lambda: setattr(held, name, lambda x: x * 4.0),
           lambda: setattr(held, name, lambda x: x * 6.0), lambda: delattr(held, name))  # fmt: skip
    boxed = ([scale()],)
    agrees(lambda x: call(boxed[0][0], x),
           lambda: setattr(boxed[0][0], name, lambda x: x * 4.0))  # fmt: skip


def test_static_and_class_methods_through_the_class():
    _, scale = classes()
    agrees(lambda x: scale.fixed(x), lambda: setattr(scale, "fixed", staticmethod(replacement)))
    agrees(lambda x: scale.of_class(x), lambda: setattr(scale, "factor", 3.0),
           lambda: setattr(scale, "of_class", classmethod(lambda cls, x: x * 8.0)))  # fmt: skip


def test_classes_and_bases_that_are_replaced():
    base, scale = classes()
    held, inside = scale(), {"s": (scale(),)}
    agrees(lambda x: held.apply(x), lambda: setattr(held, "__class__", Other))
    agrees(lambda x: inside["s"][0].apply(x),
           lambda: setattr(inside["s"][0], "__class__", Other))  # fmt: skip
    third = type("Third", (), {"inherited": lambda self, x: x * 11.0, "__module__": __name__})
    third_scale = type("Mixed", (base, third), {"__module__": __name__})
    mixed = third_scale()
    agrees(lambda x: mixed.inherited(x), lambda: setattr(third_scale, "__bases__", (third, base)))
    bound = scale().apply
    agrees(lambda x: bound(x), lambda: setattr(bound.__self__, "__class__", Other))


def test_descriptors_that_are_replaced():
    cls = type("Described", (), {"value": Descriptor(2.0), "__module__": __name__})
    held = cls()
    agrees(lambda x: x * held.value, lambda: setattr(vars(cls)["value"], "value", 3.0),
           lambda: setattr(cls, "value", Descriptor(4.0)))  # fmt: skip


def test_functions_that_change():
    def scaled(x, options=[2.0], *, more={"a": 1.0}):  # noqa: B006
        return x * options[0] + more["a"]

    f = lambda x: scaled(x)
    agrees(f, lambda: scaled.__defaults__[0].__setitem__(0, 8.0),
           lambda: setattr(scaled, "__defaults__", ([3.0],)),
           lambda: scaled.__kwdefaults__["more"].update(a=4.0),
           lambda: setattr(scaled, "__kwdefaults__", {"more": {"a": 6.0}}),
           lambda: setattr(scaled, "__code__", (lambda x, options, *, more: x * 9.0).__code__),
           )  # fmt: skip
    agrees(scaled, lambda: setattr(scaled, "__code__", (lambda x, o, *, more: x * 3.0).__code__))


def test_globals_and_modules_that_are_patched(monkeypatch):
    agrees(lambda x: helper(x), lambda: monkeypatch.setitem(globals(), "helper", replacement))
    module = types.ModuleType("user_module")
    module.helper = lambda x: x * 2.0
    agrees(lambda x: module.helper(x), lambda: setattr(module, "helper", lambda x: x * 3.0))


def test_functions_within_functions():
    inner = [lambda x: x * 2.0]
    wrapped = functools.wraps(helper)(lambda x: inner[0](x) + 1.0)
    partial = functools.partial(wrapped)
    cached = functools.lru_cache(lambda k: k * 2.0)
    agrees(lambda x: partial(x) * cached(2), lambda: inner.__setitem__(0, lambda x: x * 3.0))


def test_forward_of_modules_that_is_replaced():
    layers = nn.Sequential(nn.Identity(), nn.Sequential(nn.Identity()))

    def at(module, factor):
        return lambda: setattr(module, "forward", lambda x: x * factor)

    agrees(lambda x: layers(x), at(layers[0], 5.0), at(layers[1][0], 3.0), at(layers[1], 2.0),
           lambda: delattr(layers[1], "forward"))  # fmt: skip
    other = nn.Sequential(nn.Identity())
    agrees(other, at(other[0], 5.0), at(other, 7.0))

    class Own(nn.Module):
        def forward(self, x):
            return self.part(x) * 2.0

        def part(self, x):
            return x + 1.0

    own = Own()
    agrees(lambda x: own(x), lambda: setattr(own, "part", lambda x: x + 3.0),
           lambda: setattr(Own, "forward", lambda self, x: x * 4.0))  # fmt: skip
    compiled = nn.Sequential(Own()).compile()
    assert compiled(ONE).item() == 4.0
    Own.forward = lambda self, x: x * 6.0
    assert compiled(ONE).item() == 6.0


def test_messages_say_what_was_replaced():
    _, scale = classes()
    held = scale()
    compiled = gr.compile(lambda x: held.apply(x))
    compiled(ONE)
    held.apply = lambda x: x
    compiled(ONE)
    held.__class__ = type("Third", (), {"__module__": __name__})
    compiled(ONE)
    assert "held.apply was a method" in compiled.retraced[0]
    assert "held was of class Scale and is now of Third" in compiled.retraced[1]

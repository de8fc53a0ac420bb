"""Meshes, partition specs and shardings as data: text, equality, ownership, drawings, errors."""

from __future__ import annotations

import copy
import os
import pickle
import random
import subprocess
import sys

import girih as gr
import pytest
from girih import DeviceMesh, DimSpec, P, Sharding


def mesh(shape=(2, 4), axes=("dp", "tp")):
    return DeviceMesh(shape, axes, devices="ghost")


def outside(code, **environment):
    """What code prints in a process with these environment variables."""
    done = subprocess.run(
        [sys.executable, "-c", "import girih as gr\n" + code],
        env=os.environ | {"GIRIH_DEVICE": "cpu"} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_mesh_has_named_axes_and_devices():
    m = DeviceMesh("pod", (2, 4), ("dp", "tp"), devices="ghost", topology={"dp": (1e-6, 25e9)})
    assert (m.name, m.shape, m.axis_names, m.size) == ("pod", (2, 4), ("dp", "tp"), 8)
    assert (m.is_ghost, m.devices, m.topology) == (True, None, {"dp": (1e-6, 25e9)})
    assert (m.axis_size("tp"), m.coordinates(6)) == (4, (1, 2))
    one = DeviceMesh(1, "x", devices=["mock"])
    assert (one.shape, one.axis_names, one.devices) == ((1,), ("x",), ("mock",))
    assert DeviceMesh((1,), ("x",)).devices == ("cpu",)
    assert m == DeviceMesh((2, 4), ("dp", "tp"), "pod", devices="ghost", topology=m.topology)
    assert m != mesh()
    assert m != "pod"
    assert len({m, mesh(), mesh()}) == 2


def test_the_default_devices_are_the_first_of_the_host():
    code = "print(gr.DeviceMesh((2, 2), ('a', 'b')).devices)"
    assert outside(code, GIRIH_HOST_DEVICES="4") == "('cpu', 'cpu:1', 'cpu:2', 'cpu:3')\n"
    code = """
try:
    gr.DeviceMesh((2, 4), ("dp", "tp"))
except gr.DeviceError as error:
    print(error)
"""
    message = outside(code, GIRIH_HOST_DEVICES="2")
    for part in ("@(dp=2, tp=4)", "8 processors", "2 device(s)", "GIRIH_HOST_DEVICES=8", "ghost"):
        assert part in message


MADE = [
    mesh,
    lambda: DeviceMesh("pod", (2, 1), ("a", "b"), devices="ghost", topology={"b": (0.5, 1.5e9)}),
    lambda: DeviceMesh(2, "x", devices=["mock", "cpu"]),
    lambda: DeviceMesh(1, "x"),
    lambda: DimSpec(["dp", "tp:(2)2"], is_open=True, priority=3),
    DimSpec,
    P,
    lambda: P("dp", None, ("tp", "x:(1)2"), "?", "y? p2", DimSpec([], priority=1)),
    lambda: P(None, replicated={"dp", "x:(2)2"}, partial={"tp": "add"}),
    lambda: Sharding(mesh(), P("dp", "tp?", partial={})),
]


# They are made in the test: a mesh makes its devices, which other tests list.
@pytest.mark.parametrize("make", MADE, ids=range(len(MADE)))
def test_what_repr_writes_and_pickles_and_copies_are_equal(make):
    made = make()
    assert eval(repr(made), {"DeviceMesh": DeviceMesh, "P": P} | vars(gr)) == made
    assert repr(eval(repr(made), vars(gr))) == repr(made)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        found = pickle.loads(pickle.dumps(made, protocol))
        assert (found, hash(found), repr(found)) == (made, hash(made), repr(made))
    assert copy.deepcopy(made) == copy.copy(made) == made


def test_the_text_of_specs():
    cases = {
        "<dp, *>": P("dp", None),
        "<(dp, tp)>": P(("dp", "tp")),
        "<tp:(2)2>": P("tp:(2)2"),
        "<dp?, ?>": P("dp?", "?"),
        "<dp p1>": P(DimSpec(["dp"], is_open=False, priority=1)),
        "<*; replicated={dp}, partial={tp: add}>": P(
            None, replicated={"dp"}, partial={"tp": "add"}
        ),
    }
    for text, spec in cases.items():
        assert str(spec) == text
        assert P.parse(text) == spec
    assert repr(P("dp", None, ("dp", "tp"))) == "P('dp', None, ('dp', 'tp'))"
    assert [str(entry) for entry in P("dp", "?", None).dims] == ["dp", "?", "*"]


def random_axis(rng):
    name = rng.choice(["dp", "tp", "x", "_y2"])
    return name if rng.random() < 0.7 else f"{name}:({rng.choice([1, 2, 8])}){rng.choice([2, 4])}"


def random_spec(rng):
    def entry():
        axes = [random_axis(rng) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        return DimSpec(axes, rng.random() < 0.3, rng.choice([None, 0, 1, 7]))

    ops = ["add", "mul", "maximum", "minimum", "and", "or", "logaddexp"]
    return P(
        *(entry() for _ in range(rng.randrange(5))),
        replicated={random_axis(rng) for _ in range(rng.choice([0, 0, 1, 3]))},
        partial={random_axis(rng): rng.choice(ops) for _ in range(rng.choice([0, 0, 1, 3]))},
    )


def test_random_specs_are_what_their_text_says():
    rng = random.Random(7)
    for _ in range(500):
        spec = random_spec(rng)
        found = P.parse(str(spec))
        assert found == spec
        assert (hash(found), str(found)) == (hash(spec), str(spec))
        assert eval(repr(spec), vars(gr)) == spec
        assert P(*spec, replicated=spec.replicated, partial=spec.partial) == spec


def test_parts_of_a_spec():
    spec = P("dp", None, ("dp2", "tp"), "x?", replicated=["r"], partial={"p": "maximum"})
    assert (len(spec), spec[0], spec[1], spec[-2]) == (4, "dp", None, ("dp2", "tp"))
    assert list(spec) == ["dp", None, ("dp2", "tp"), DimSpec("x", is_open=True)]
    assert (spec.replicated, spec.partial) == (frozenset({"r"}), {"p": "maximum"})
    entry = P(DimSpec(("a", "b"), priority=2)).dims[0]
    assert (entry.axes, entry.is_open, entry.priority) == (("a", "b"), False, 2)
    assert P("dp", None) != P("dp")


def test_a_sharding_takes_a_spec_in_any_form():
    m = mesh()
    assert Sharding(m).spec == P()
    for spec in (P("dp", None), "<dp, *>", ("dp", None), ["dp", None]):
        assert Sharding(m, spec).spec == P("dp", None)
    assert Sharding(m, "dp").spec == P("dp")
    assert str(Sharding(m, "dp")) == "<dp> on mesh @(dp=2, tp=4)"


def test_dimensions_are_cut_in_ceil_chunks():
    """NB-86, NB-90, and several axes that act as one."""
    m = mesh()
    both = Sharding(m, P(("dp", "tp")))
    found = [rect[0] for rect in both.rectangles(10)]
    assert [n for _, n in found] == [2, 2, 2, 2, 2, 0, 0, 0]
    assert [start for start, n in found if n] == [0, 2, 4, 6, 8]
    rows = Sharding(mesh((2,), ("d",)), P("d", None))
    assert rows.rectangles((8, 8)) == [[(0, 4), (0, 8)], [(4, 4), (0, 8)]]
    assert rows.rectangles((5, 3)) == [[(0, 3), (0, 3)], [(3, 2), (0, 3)]]
    assert (rows.shard_shape((5, 3)), rows.shard_shape((5, 3), 1)) == ((3, 3), (2, 3))
    assert [n for [(_, n)] in Sharding(mesh((4,), "x"), "x").rectangles(5)] == [2, 2, 1, 0]
    minor = Sharding(mesh((2, 2), ("a", "b")), P(("b", "a")))
    assert [start for [(start, _)] in minor.rectangles(8)] == [0, 4, 2, 6]
    assert Sharding(m).rectangles(()) == [[]] * 8


def test_the_shards_of_random_shardings_cover_the_tensor_once():
    rng = random.Random(3)
    for _ in range(100):
        m = mesh((rng.randint(1, 3), rng.randint(1, 4)), ("a", "b"))
        spec = rng.choice([P("a", "b"), P("b", "a"), P(("a", "b")), P(None, ("b", "a"))])
        shape = (rng.randint(0, 7), rng.randint(0, 7))
        covered = [
            (i, j)
            for (r, n), (c, k) in Sharding(m, spec).rectangles(shape)
            for i in range(r, r + n)
            for j in range(c, c + k)
        ]
        assert sorted(covered) == [(i, j) for i in range(shape[0]) for j in range(shape[1])]


def test_shardings_are_equal_if_devices_own_the_same():
    def of(spec, shape=(2, 2)):
        return Sharding(mesh(shape, ("a", "b")), spec)

    for x, y in [
        (of("<a>"), of("<a? p1, *; replicated={b}>")),
        (of("<a>", (4, 1)), of("<(a, b)>", (4, 1))),
        (of("<(a, b)>"), of("<a>", (4, 1))),
        (of("<; partial={a: add}>", (1, 4)), of("<>", (1, 4))),
    ]:
        assert x == y
        assert hash(x) == hash(y)
    for x, y in [
        (of("<a>"), of("<b>")),
        (of("<a>"), of("<*, a>")),
        (of("<(a, b)>"), of("<(b, a)>")),
        (of("<a>"), of("<a; partial={b: add}>")),
        (of("<a>", (2, 1)), of("<a>")),
        (Sharding(DeviceMesh(1, "x")), Sharding(mesh((1,), "x"))),
    ]:
        assert x != y
    assert of("<a>") != P("a")


def test_neighbouring_parts_of_an_axis_are_warned_of():
    """NB-101."""
    eight = mesh((8,), "x")
    with pytest.warns(UserWarning, match=r"\(x:\(1\)2, x:\(2\)4\).*is the same as <x>"):
        both = Sharding(eight, P(("x:(1)2", "x:(2)4")))
    assert both == Sharding(eight, "x")
    apart = Sharding(eight, P("x:(1)2", "x:(2)4"))
    assert apart.shard_shape((4, 8)) == (2, 2)


def test_whether_every_device_has_everything():
    assert Sharding(mesh()).is_fully_replicated()
    assert Sharding(mesh(), P(None, replicated={"dp"})).is_fully_replicated((3, 4))
    assert Sharding(mesh((1, 2), ("a", "b")), "a").is_fully_replicated()
    cut = Sharding(mesh(), P("dp"))
    assert not cut.is_fully_replicated()
    assert not cut.is_fully_replicated((4,))
    assert not Sharding(mesh(), P(partial={"dp": "add"})).is_fully_replicated()


TABLE = """\
       0..4   4..8
     ┌──────┬──────┐
0..3 │  0   │  1   │
     ├──────┼──────┤
3..5 │  2   │  3   │
     └──────┴──────┘"""


def test_drawings():
    s = Sharding(mesh((2, 2), ("a", "b")), P("a", "b"))
    assert gr.visualize_sharding(s, (5, 8)) == TABLE
    row = gr.visualize_sharding(Sharding(mesh(), P(("dp", "tp"))), 10)
    assert row.splitlines()[0].split() == ["0..2", "2..4", "4..6", "6..8", "8..10"]
    assert row.endswith("without elements: 5-7")
    assert "[0..1, :, :]" in gr.visualize_sharding(s, (2, 2, 2))
    assert "0-3" in gr.visualize_sharding(Sharding(s.mesh), ())
    svg = gr.visualize_sharding(s, (5, 8), format="svg")
    assert svg.startswith("<svg ")
    assert ">3..5</text>" in svg

    class Held:
        sharding = s
        shape = (5, 8)

    assert gr.visualize_sharding(Held()) == TABLE
    with pytest.raises(gr.InvalidArgumentError, match="'text' and 'svg'"):
        gr.visualize_sharding(s, (5, 8), format="png")
    with pytest.raises(gr.InvalidArgumentError, match="a Sharding and a shape"):
        gr.visualize_sharding(s)
    with pytest.raises(gr.InvalidArgumentError, match="a Sharding and a shape"):
        gr.visualize_sharding(3, (2,))


WRONG = [
    (lambda: DeviceMesh((2, 0), ("a", "b")), gr.InvalidArgumentError, "at least 1"),
    (lambda: DeviceMesh((2, 2), ("a", "a")), gr.InvalidArgumentError, '"a".*twice'),
    (lambda: DeviceMesh((2, 2), ("a",)), gr.InvalidArgumentError, "2 sizes has 1 names"),
    (lambda: DeviceMesh((2,), ("a b",)), gr.InvalidArgumentError, "is not a name"),
    (lambda: DeviceMesh("m", (2,)), gr.InvalidArgumentError, "axes are missing"),
    (lambda: DeviceMesh((2**20, 2**20), ("a", "b")), gr.InvalidArgumentError, "too many"),
    (lambda: DeviceMesh(2, "a", devices="all"), gr.InvalidArgumentError, "ghost"),
    (lambda: DeviceMesh(2, "a", devices=["cpu"]), gr.InvalidArgumentError, "name 2 devices"),
    (lambda: DeviceMesh(2, "a", devices=["cpu", "cpu:0"]), gr.InvalidArgumentError, "twice"),
    (lambda: DeviceMesh(1, "a", devices=["tpu"]), gr.DeviceError, "tpu"),
    (lambda: DeviceMesh(1, "a", topology={"b": (1, 1)}), gr.InvalidArgumentError, "an axis of"),
    (lambda: DeviceMesh(1, "a", topology={"a": (1, 0)}), gr.InvalidArgumentError, "bandwidth"),
    (lambda: DeviceMesh(1, "a", topology=[1]), gr.DTypeError, "a dict"),
    (lambda: mesh().axis_size("pp"), gr.InvalidArgumentError, '"pp".*dp=2, tp=4'),
    (lambda: mesh().coordinates(8), gr.InvalidArgumentError, "0 to 7"),
    (lambda: P(3), gr.DTypeError, "sequence"),
    (lambda: P(("dp", 3)), gr.DTypeError, "a str"),
    (lambda: P("d p"), gr.FormatError, "end of the text"),
    (lambda: P.parse("<dp"), gr.FormatError, "expected"),
    (lambda: P(partial={"dp": "sub"}), gr.InvalidArgumentError, "add, mul, maximum"),
    (lambda: P(partial="dp"), gr.DTypeError, "a dict"),
    (lambda: P("dp")[1], gr.IndexOutOfBoundsError, "1 entries"),
    (lambda: DimSpec("a", priority=-1), gr.InvalidArgumentError, "unsigned 32 bits"),
    (lambda: Sharding("m"), gr.DTypeError, "a DeviceMesh"),
    (lambda: Sharding(mesh(), P("pp")), gr.InvalidArgumentError, '"pp".*no axis of mesh'),
    (lambda: Sharding(mesh(), P("dp", "dp")), gr.InvalidArgumentError, "in dimension 0 and in"),
    (
        lambda: Sharding(mesh(), P("tp:(1)4", "tp:(2)2")),
        gr.InvalidArgumentError,
        "overlap on axis",
    ),
    (lambda: Sharding(mesh(), P("tp:(2)3")), gr.InvalidArgumentError, "divisors of 4"),
    (
        lambda: Sharding(mesh(), P("dp", "tp")).rectangles(3),
        gr.InvalidArgumentError,
        "2 entries for a tensor of rank 1",
    ),
    (lambda: Sharding(mesh(), "dp").rectangles(-1), gr.InvalidArgumentError, "at least 0"),
    (lambda: Sharding(mesh(), "dp").shard_shape(4, 8), gr.InvalidArgumentError, "0 to 7"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_errors_name_the_axis_the_mesh_and_the_cure(call, error, message):
    with pytest.raises(error, match=message):
        call()

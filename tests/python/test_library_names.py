"""The table of names of NumPy, PyTorch and JAX: each has an entry, and what the entry says is true."""

from __future__ import annotations

import contextlib
import math
import re
import sys
import types
from pathlib import Path

import girih as gr
import numpy as np
import pytest
from girih import declined, hints, later, synonyms

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.names import lists, table  # noqa: E402
from scripts.names.differences import DIFFERENCES  # noqa: E402


def test_every_name_has_an_entry_and_the_page_is_up_to_date():
    rows = table.rows()
    assert [f"{row.module}.{row.name}" for row in rows if row.state == "none"] == []
    assert table.PAGE.read_text() == table.page(rows), "run python -m scripts.names"


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_lists_are_those_of_the_installed_libraries(library):
    module = pytest.importorskip(library)
    for part in lists.listed():
        if part.module.partition(".")[0] == library and module.__version__.startswith(part.version):
            now = set(lists.names_of(part.module))
            assert set(part.names) == now


@pytest.mark.parametrize("place", synonyms.ALIASES)
def test_aliases_are_the_objects_they_name(place):
    for name, meant in synonyms.ALIASES[place].items():
        found = getattr(table.owner_of(place), name)
        at = table.owner_of("girih" if meant.startswith("girih.") else place)
        for part in meant.removeprefix("girih.").split("."):
            at = getattr(at, part)
        assert found is at, name


def snippets(text):
    return re.findall(r"`([^`]+)`", text)


def names_in(text):
    """The dotted names of this package in the prose of a text."""
    prose = re.sub(r"`[^`]+`", "", text)
    return re.findall(r"\bgr(?:\.[A-Za-z_]\w*)+", prose)


def namespace(tmp_path):
    """What snippets use: tensors, an axis, a function, NumPy."""
    rng = np.random.default_rng(0)
    square = rng.normal(size=(4, 4))
    image = gr.asarray(rng.normal(size=(1, 1, 4, 4)))
    return {
        "gr": gr, "np": np, "math": math, "f": lambda t: t * 2, "axis": 0, "k": 2, "shape": (3, 4),
        "x": gr.asarray(rng.normal(size=(3, 4))), "y": gr.asarray(rng.normal(size=(3, 4))),
        "m": gr.asarray(square @ square.T + np.eye(4)), "v": gr.asarray(rng.normal(size=4)),
        "z": gr.asarray(rng.normal(size=3) + 1j), "n": gr.asarray([5, 9]), "p": 0.5,
        "mask": gr.asarray(rng.normal(size=(3, 4)) > 0), "index": gr.asarray([1, 0]),
        "image": image, "kernel": image[:, :, :2, :2], "theta": gr.ones(1, 2, 3),
        "path": str(tmp_path / "file"), "data": b"\0\0\0\0",
    }  # fmt: skip


#: Snippets whose integers stand for one number.
ONE = {"np.base_repr(n)": 5, "np.binary_repr(n)": 5, "np.min_scalar_type(n)": 5,
       "x.reshape((1,) * (n - x.ndim) + x.shape)": 3, "gr.arange(n)": 5, "gr.random.binomial(n, p, shape)": 5}  # fmt: skip
#: Names of keywords and functions, not calls.
TEXT = {"if", "gr.nn.functional.conv1d", "gr.linalg.eigvals", "gr.linalg.solve_triangular"}


def texts():
    for place, found in hints.HINTS.items():
        for name, text in found.items():
            yield f"{place}.{name}", text
    for module, found in DIFFERENCES.items():
        for name, text in found.items():
            yield f"{module}.{name}", text
    for reason, names in declined.DECLINED.items():
        yield names.split()[0], reason


@pytest.mark.parametrize(
    ("name", "text"), [*texts()], ids=lambda v: v if "." in v and " " not in v else ""
)
def test_code_of_hints_runs_and_names_exist(name, text, tmp_path):
    for path in names_in(text):
        at = gr
        for part in path.split(".")[1:]:
            at = getattr(at, part)
    for code in snippets(text):
        if code in TEXT:
            continue
        scope = namespace(tmp_path)
        if code in ONE:
            scope["n"] = ONE[code]
        if "fromfile" in code or "memmap" in code:
            np.zeros(4, np.float32).tofile(scope["path"])
        if "gr.save" in code and "savez" not in code:
            scope["path"] += ".npy"
        if "savez" in code:
            scope["path"] += ".npz"
        assign = re.match(r"\w[\w.]*(?:\[[^=]*\])? = ", code)
        run = exec if assign else eval
        with contextlib.ExitStack() as stack:
            found = run(code, scope)
            if isinstance(found, gr.Tensor):
                found.eval()
            elif hasattr(found, "__enter__"):
                stack.enter_context(found)


def test_no_hint_is_for_a_name_that_is_here():
    for place, found in hints.HINTS.items():
        owner = table.owner_of(place)
        assert [name for name in found if hasattr(owner, name)] == []
        assert [name for name in found if name in synonyms._reasons()] == []
    for module, found in DIFFERENCES.items():
        owner = table.owner_of(table.PLACES[module])
        assert [name for name in found if not hasattr(owner, name)] == []


@pytest.mark.parametrize("place", hints.HINTS)
def test_errors_say_what_to_write(place):
    owner = gr.ones(2) if place == "girih.Tensor" else table.owner_of(place)
    for name, text in hints.HINTS[place].items():
        with pytest.raises(AttributeError, match=re.escape(f"here that is {text}")) as caught:
            getattr(owner, name)
        assert caught.value.name == name
    with pytest.raises(AttributeError, match=r"has no attribute 'no_such_name'$"):
        owner.no_such_name  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute '_no_such_name'$"):
        owner._no_such_name  # noqa: B018


def test_errors_say_why_there_is_nothing():
    for name in ("to_sparse", "qscheme"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; declined: tensors are"):
            getattr(gr.ones(2), name)
    with pytest.raises(AttributeError, match="cudnn_convolution'; declined: it is a routine"):
        gr.cudnn_convolution  # noqa: B018
    with pytest.raises(AttributeError, match=r"here that is the method x\.exp_\(\)"):
        gr.exp_  # noqa: B018
    with pytest.raises(AttributeError, match=r"here that is x = gr\.nn\.functional\.celu\(x\)"):
        gr.nn.functional.celu_  # noqa: B018
    with pytest.raises(AttributeError, match=r"here that is the method x\.relu_\(\)"):
        gr.nn.functional.relu_  # noqa: B018


def test_the_tables_are_in_order_and_complete():
    for found in hints.HINTS.values():
        assert list(found) == sorted(found)
    for module, names in later.FUNCTIONS.items():
        made = __import__(f"girih.{module}", fromlist=["__all__"])
        assert sorted(names.split()) == sorted(n for n in made.__all__ if n in gr.__all__)
        assert [n for n in names.split() if getattr(gr, n) is not getattr(made, n)] == []
    for name in later.METHODS:
        assert name in vars(gr.Tensor), f"{name} is a method of the extension too"
        assert isinstance(vars(gr.Tensor)[name], (later.LaterMethod, types.FunctionType))

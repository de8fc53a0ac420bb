"""Tensors print like NumPy's arrays: digits, columns, lines, omitted elements; and the print
options.
"""

from __future__ import annotations

import html

import girih as gr
import numpy as np
import pytest
from conftest import FLOATS, INTS, sample

OPTIONS = gr.get_printoptions()


@pytest.fixture(autouse=True)
def unchanged():
    yield
    gr.set_printoptions(**OPTIONS)


def as_numpy(x):
    """NumPy's repr with this class's name, always with a dtype."""
    dtype = str(x.dtype)
    head = np.array2string(x, separator=", ", prefix="tensor(", suffix=",")
    about = f"dtype={dtype})"
    if (x.size == 0 and x.shape != (0,)) or x.size > np.get_printoptions()["threshold"]:
        about = f"shape={list(x.shape)}, {about}"
    text = f"tensor({head},"
    last = len(text) - (text.rfind("\n") + 1)
    gap = " " if last + len(about) + 1 <= np.get_printoptions()["linewidth"] else "\n" + " " * 7
    return text + gap + about


def check(x):
    x = np.asarray(x)
    assert str(gr.asarray(x)) == str(x)
    assert repr(gr.asarray(x)) == as_numpy(x)


VALUES = [
    [1.0, 2.5, -3.25],
    [0.1, 0.2, 0.3],
    [1 / 3, 2 / 3, 1e-3],
    [1e10, 1.0],
    [1e-10, 1.0],
    [123456789.0, 1.0],
    [12345678.0, 1.5],
    [1e-4, 1.0],
    [9e-5, 0.05],
    [np.nan, 1.0, np.inf],
    [np.nan, -np.inf],
    [np.inf, 0.001],
    [0.0, -0.0],
    [1e100, 1e-100],
    [999.5, 0.9],
    [1000.0, 0.9],
    [-1.5, 100.0, 0.25],
    [1e-300, np.nan],
    [65504.0, 0.1],
    [3.14159265358979, 2.718281828459045],
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("values", VALUES, ids=str)
def test_floats(values, dtype):
    with np.errstate(over="ignore"):
        x = np.array(values).astype(dtype)
    check(x)
    check(x[None])
    check(-x)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 1 / 3, 1e-5, 123456789.0, 1e16, 1e15, 1e300,
                                   np.nan, np.inf, -np.inf, 0.1, -2.5, 65504.0])  # fmt: skip
@pytest.mark.parametrize("dtype", FLOATS)
def test_scalars(value, dtype):
    with np.errstate(over="ignore"):
        x = np.array(value).astype(dtype)
    check(x)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, "bool", "complex64", "complex128"])
@pytest.mark.parametrize(
    "shape",
    [
        (),
        (1,),
        (7,),
        (30,),
        (3, 4),
        (2, 3, 4),
        (0,),
        (0, 3),
        (3, 0),
        (1001,),
        (40, 40),
        (2, 20, 30),
        (1, 1, 1, 1),
        (5, 1),
    ],
)
def test_shapes_and_dtypes(shape, dtype):
    check(sample(shape, dtype))


@pytest.mark.parametrize("values", [[1 + 2j, -3.5 - 0.25j], [np.nan + 1j, np.inf - np.inf * 1j],
                                    [1e10 + 1e-10j, 2.0], [0j, -0.0 - 0.0j]], ids=str)  # fmt: skip
def test_complex(values):
    check(np.array(values))
    for value in values:
        check(np.array(value))


def test_integers_and_truth_values():
    check(np.array([-(2**63), 2**63 - 1]))
    check(np.array([2**64 - 1, 0], np.uint64))
    check(np.array([[1, -100], [20, 3]], np.int8))
    check(np.array([True, True]))
    check(np.array([[True], [False]]))


@pytest.mark.parametrize(
    "options",
    [{"precision": 3}, {"precision": 0}, {"precision": 12}, {"threshold": 5}, {"edgeitems": 1},
     {"threshold": 5, "edgeitems": 2}, {"linewidth": 40}, {"linewidth": 10}, {"suppress": True},
     {"suppress": True, "precision": 2}, {"threshold": 0, "edgeitems": 1}],
    ids=str,
)  # fmt: skip
def test_options(options):
    gr.set_printoptions(**options)
    assert gr.get_printoptions() == {**OPTIONS, **options}
    with np.printoptions(**options):
        for values in VALUES:
            check(np.array(values))
        for shape in [(7,), (30,), (6, 7), (2, 3, 8), (50, 50)]:
            check(sample(shape, "float64"))
            check(sample(shape, "int32"))
            check(sample(shape, "complex64"))


def test_print_options_not_given_are_unchanged():
    gr.set_printoptions(precision=3)
    gr.set_printoptions(linewidth=50)
    assert gr.get_printoptions() == {**OPTIONS, "precision": 3, "linewidth": 50}


def test_bfloat16_has_its_own_shortest_digits():
    x = gr.asarray([0.1, 1 / 3, 100.0], dtype=gr.bfloat16)
    assert str(x) == "[  0.1     0.334 100.   ]"
    assert str(x[0]) == "0.1"


def html_of_text(page):
    """The text of a notebook's preformatted block."""
    assert page.startswith("<pre>")
    assert page.endswith("</pre>")
    return html.unescape(page[5:-6])


def test_printing_records_nothing_and_notebooks_escape():
    x = gr.asarray([1.0, 2.0]) * 2
    before = gr.current_graph().num_nodes
    repr(x)
    assert gr.current_graph().num_nodes == before
    page = x._repr_html_()
    assert page.startswith("<pre>[2. 4.]</pre>")
    assert "float32" in page
    explanation = gr.explain(gr.where(x > 0, x, 0) * 3)
    assert html_of_text(explanation._repr_html_()) == str(explanation)
    traced = []
    gr.compile(lambda x: traced.append((str(x), repr(x), x._repr_html_())) or x)(x)
    assert "traced" in traced[0][0]
    assert "traced" in traced[0][1]
    assert "traced" in traced[0][2]


def test_overflow_errors_name_the_size_and_no_other_dtype():
    for shape in ([2**31, 2**31], [2**40, 2**40]):
        with pytest.raises(gr.ShapeError) as caught:
            gr.zeros(shape, dtype=gr.int8)
        assert "float64" not in str(caught.value)
        assert str(shape[0]) in str(caught.value)

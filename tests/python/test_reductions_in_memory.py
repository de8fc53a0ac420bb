"""Reductions of elements that are only loaded: integers in any order, columns of any layout, the first
of the largest elements, and rows that end early.
"""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

RNG = np.random.default_rng(11)
INTEGERS = ["int8", "uint8", "int16", "int32", "int64", "uint64"]
LENGTHS = [1, 31, 32, 33, 1024, 4095, 4097, 70_001]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["max", "min", "sum", "prod", "argmax", "argmin"])
def test_rows_of_integers(name, length, dtype):
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, (3, length), dtype, endpoint=True)
    for axis in (None, 1):
        found = getattr(gr, name)(gr.asarray(x), axis=axis)
        assert np.array_equal(found.numpy(), getattr(np, name)(x, axis=axis))


@pytest.mark.parametrize("length", LENGTHS)
def test_a_single_element_decides_wherever_it_is(length):
    for at in {0, length // 2, length - 1}:
        x = np.zeros((2, length), bool)
        x[1, at] = True
        t = gr.asarray(x)
        assert gr.any(t).item()
        assert gr.any(t, axis=1).numpy().tolist() == [False, True]
        assert gr.all(~t, axis=1).numpy().tolist() == [True, False]
        assert not gr.all(~t).item()
        assert gr.all(~t[0]).item()
        assert np.array_equal(gr.any(t, axis=0).numpy(), x.any(0))
        assert np.array_equal(gr.all(~t, axis=0).numpy(), (~x).all(0))


SHAPES = [(1100, 40), (40, 1100), (5, 70, 64), (3, 1030, 33), (2, 3, 700, 129), (1025, 1, 600)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "float16"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_columns_of_any_layout(name, shape, dtype):
    if np.dtype(dtype).kind == "f":
        x = RNG.choice([-1.0, 1.0] if name == "prod" else np.arange(-8.0, 9), shape)
    else:
        x = RNG.integers(0, 9, shape)
    x = x.astype(dtype)
    for axis in range(len(shape) - 1):
        with np.errstate(over="ignore", invalid="ignore"):
            expected = _numpy(name, x, axis, dtype)
        found = getattr(gr, name)(gr.asarray(x), axis=axis)
        if dtype == "float16":
            expected = expected.astype("float16")
        tolerance = 1e-2 if dtype == "float16" else 1e-6 if found.dtype == gr.float32 else 0
        np.testing.assert_allclose(
            found.numpy().astype("float64"), expected.astype("float64"), rtol=tolerance
        )


def _numpy(name, x, axis, dtype):
    """NumPy's reduction, with sums and products of halves in f32, as here."""
    if dtype == "float16" and name in {"sum", "prod"}:
        return getattr(np, name)(x, axis=axis, dtype="float32")
    return getattr(np, name)(x, axis=axis)


def test_columns_of_views_have_the_bits_of_columns_of_copies():
    x = gr.asarray(RNG.standard_normal((3, 1500, 70)).astype("float32"))
    for view in (x[:, ::2], x[:, :, 3:], x[::-1], x[:, ::-1], x.swapaxes(0, 1)):
        copy = gr.asarray(view.numpy())
        for axis in range(3):
            assert np.array_equal(gr.sum(view, axis=axis).numpy(), gr.sum(copy, axis=axis).numpy())
            fused = gr.compile(lambda v, axis=axis: gr.sum(v * 1.0, axis=axis))(view)
            assert np.array_equal(fused.numpy(), gr.sum(copy, axis=axis).numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("length", LENGTHS)
def test_the_first_of_equal_elements_and_of_nans(length, dtype):
    x = RNG.integers(-3, 3, (4, length)).astype(dtype)
    x[1, length // 2 :] = np.nan
    x[2, -1] = np.inf
    x[3] = -0.0
    x[3, length // 2] = 0.0
    for name in ("argmax", "argmin"):
        for axis in (None, 1):
            found = getattr(gr, name)(gr.asarray(x), axis=axis).numpy()
            assert np.array_equal(found, getattr(np, name)(x, axis=axis)), (name, axis)


def test_remainders_of_floats_are_those_of_numpy_bit_by_bit():
    values = [0.0, -0.0, 1.0, -1.0, 3.0, -7.5, 1e-45, 1e-38, 3e38, np.inf, -np.inf, np.nan, 0.1]
    extra = RNG.standard_normal(2000).astype("float32") * np.float32(10) ** RNG.integers(
        -30, 30, 2000
    )
    a = np.concatenate([np.repeat(values, len(values)), extra]).astype("float32")
    b = np.concatenate([np.tile(values, len(values)), extra[::-1] + extra / 3]).astype("float32")
    with np.errstate(all="ignore"):
        expected = np.fmod(a, b)
    found = gr.fmod(gr.asarray(a), gr.asarray(b)).numpy()
    assert np.array_equal(found, expected, equal_nan=True)
    number = ~np.isnan(expected)
    assert np.array_equal(np.signbit(found[number]), np.signbit(expected[number]))

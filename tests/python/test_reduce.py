"""Reductions against NumPy and SciPy. One row per op."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import FLOATS, INTS, RTOL, close, sample
from scipy import special

AXES = [None, 0, 1, -1, (0, 2), (0, 1, 2), (-2,), ()]
EXACT = {"max": np.max, "min": np.min, "any": np.any, "all": np.all}
SUMS = {"sum": np.sum, "prod": np.prod}
MOMENTS = {"mean": np.mean, "var": np.var, "std": np.std}


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, "bool"])
@pytest.mark.parametrize("name", [*EXACT, *SUMS, *MOMENTS])
def test_reductions(name, dtype, keepdims, axis):
    x = sample((3, 4, 5), dtype, low=-2, high=2)
    if name == "prod":
        x = sample((2, 3, 2), dtype, low=1, high=2)
    got = getattr(gr, name)(gr.asarray(x), axis=axis, keepdims=keepdims)
    if name in EXACT:
        return close(got, EXACT[name](x, axis=axis, keepdims=keepdims))
    is_float = dtype in FLOATS
    integer = "uint64" if dtype.startswith("uint") else "int64"
    out = dtype if is_float else integer if name in SUMS else "float32"
    f = {**SUMS, **MOMENTS}[name]
    want = np.asarray(f(x.astype(np.float64), axis=axis, keepdims=keepdims)).astype(out)
    tolerance = RTOL.get(out, 0) * 8
    return close(got, want, tolerance, tolerance * 4)


def test_both_spellings_of_axis_and_keepdims():
    x = sample((3, 4), "float32")
    t, want = gr.asarray(x), x.max(1, keepdims=True)
    for got in (
        t.max(1, True), t.max(axis=1, keepdims=True), t.max(dim=1, keepdim=True),
        t.max(dim=[1], keepdims=True), gr.max(t, axis=-1, keepdim=True),
    ):  # fmt: skip
        close(got, want)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg_reductions_take_the_first(name, dtype, keepdims, axis):
    x = sample((6, 7), dtype, low=-1, high=1)  # few distinct integers: many ties
    got = getattr(gr, name)(gr.asarray(x), axis=axis, keepdims=keepdims)
    close(got, getattr(np, name)(x, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min"])
def test_nan_wins(name):
    x = np.array([[1, np.nan, 3], [np.nan, np.nan, 0], [1, 2, 3]], np.float32)
    close(getattr(gr, name)(gr.asarray(x), axis=1), getattr(np, name)(x, axis=1))


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logsumexp(dtype, axis):
    x = sample((4, 6), dtype, low=-80, high=80)
    x[0] = -np.inf
    want = special.logsumexp(x.astype(np.float64), axis=axis).astype(dtype)
    close(gr.logsumexp(gr.asarray(x), axis=axis), want, RTOL[dtype] * 4)
    big = gr.asarray(np.array([1000.0, 1000.0], dtype))
    assert big.logsumexp().item() == pytest.approx(1000 + np.log(2))


@pytest.mark.parametrize("correction", [0, 1, 1.5])
def test_variance_with_correction(correction):
    x = sample((5, 9), "float64") + 1e6
    d = x - x.mean(1, keepdims=True)
    want = (d * d).sum(1) / (9 - correction)
    close(gr.var(gr.asarray(x), axis=1, correction=correction), want, 1e-9)
    close(gr.std(gr.asarray(x), axis=1, correction=correction), np.sqrt(want), 1e-9)


def test_reductions_over_nothing():
    empty = gr.zeros([0, 3])
    close(empty.sum(0), np.zeros(3, "f4"))
    close(empty.prod(0), np.ones(3, "f4"))
    close(empty.any(0), np.zeros(3, bool))
    close(empty.all(0), np.ones(3, bool))
    close(empty.mean(0), np.full(3, np.nan, "f4"))
    close(empty.logsumexp(0), np.full(3, -np.inf, "f4"))
    close(empty.sum(1), np.zeros(0, "f4"))
    close(empty.max(1), np.zeros(0, "f4"))
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(gr.ShapeError):
            getattr(empty, name)(axis=0)


@pytest.mark.parametrize("name", [*EXACT, *SUMS, *MOMENTS, "logsumexp", "argmax"])
@pytest.mark.parametrize(("shape", "axis"), [((2, 3), 2), ((2, 3), -3), ((), 0), ((0,), 1)])
def test_an_axis_out_of_range_is_an_error(name, shape, axis):
    for axes in (axis,) if name == "argmax" else (axis, (axis,)):
        with pytest.raises(gr.AxisError, match=rf"axis {axis} is out of range"):
            getattr(gr, name)(
                gr.ones(shape) > 0 if name in ("any", "all") else gr.ones(shape), axis=axes
            )


def test_scalars_and_size_one():
    close(gr.asarray(3.0).sum(), np.float32(3))
    close(gr.ones([1, 1]).sum(axis=0), np.ones(1, "f4"))
    close(gr.asarray(3.0).argmax(), np.int64(0))


def test_integers_are_summed_in_64_bits():
    close(gr.full([1000], 255, dtype=gr.uint8).sum(), np.uint64(255000))
    close(gr.full([1000], 127, dtype=gr.int8).sum(), np.int64(127000))
    close(gr.ones([300], dtype=gr.bool_).sum(), np.int64(300))
    close(gr.full([2], 2**31 - 1, dtype=gr.int32).prod(), np.int64((2**31 - 1) ** 2))


def test_half_precision_sums_are_taken_in_float32():
    assert gr.ones([4096], dtype=gr.float16).sum().item() == 4096
    assert gr.ones([1 << 16], dtype=gr.bfloat16).sum().item() == 1 << 16


@pytest.mark.parametrize("shape", [(100003,), (1000, 77), (3, 70000), (70000, 3), (17, 5, 400)])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_large_sums_are_precise(shape, axis):
    x = sample(shape, "float32", low=0, high=1)
    close(gr.asarray(x).sum(axis), x.sum(axis, dtype=np.float64).astype("f4"), 2e-6)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 2), (0, 0), (0, 3, 0)])
def test_an_empty_axis_has_no_extreme(name, shape):
    for axis in range(len(shape)):
        x = np.zeros(shape)
        try:
            want = getattr(np, name)(x, axis=axis)
        except ValueError:
            with pytest.raises(gr.ShapeError, match="empty"):
                getattr(gr, name)(gr.asarray(x), axis=axis)
        else:
            assert getattr(gr, name)(gr.asarray(x), axis=axis).shape == want.shape

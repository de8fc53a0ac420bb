"""Functions by the names and arguments that people type first."""

from __future__ import annotations

import functools

import girih as gr
import numpy as np
import pytest


def test_unknown_names_are_plain_errors():
    with pytest.raises(AttributeError, match=r"no attribute 'no_such_name'$"):
        gr.no_such_name  # noqa: B018
    assert not hasattr(gr, "__no_such_name__")
    assert not hasattr(gr.random, "no_such_name")


def test_names_that_people_type_first():
    assert gr.array([1, 2]).tolist() == [1, 2]
    assert gr.cat([[1], [2]]).tolist() == [1, 2]
    assert gr.clamp([1, 5], 2, 3).tolist() == [2, 3]
    assert gr.asarray([1.0, 5.0]).clamp(max=3).tolist() == [1, 3]
    assert gr.jit(lambda x: x + 1)(gr.asarray(1)).item() == 2
    assert gr.mul(2, gr.asarray(3)).item() == 6


def test_axes_of_flatten():
    x = gr.zeros([2, 3, 4, 5])
    assert x.flatten().shape == (120,)
    assert x.flatten(1).shape == (2, 60)
    assert x.flatten(1, 2).shape == (2, 12, 5)
    assert x.flatten(-2).shape == (2, 3, 20)
    assert gr.asarray(1.0).flatten().shape == (1,)
    with pytest.raises(gr.GirihError):
        x.flatten(3, 1)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "int32", "uint8"])
@pytest.mark.parametrize("decimals", [-2, -1, 0, 1, 2, 3])
def test_round_to_decimals(dtype, decimals):
    x = np.linspace(0, 250, 97).astype(dtype)
    if np.dtype(dtype).kind in "fc":
        x = (x / 7).astype(dtype)
    wide = np.complex128 if dtype == "complex64" else np.float64
    want = np.round(x.astype(wide), decimals).astype(dtype)
    np.testing.assert_allclose(
        gr.round(x, decimals).numpy(), want, rtol=2e-3 if dtype == "float16" else 1e-6
    )
    assert gr.asarray(x).round(decimals).numpy().dtype == dtype


def test_round_of_infinities_nan_and_bools():
    x = np.array([np.inf, -np.inf, np.nan, -0.0, 1e300, 0.125])
    np.testing.assert_array_equal(gr.round(x, 2).numpy(), np.round(x, 2))
    assert gr.round([True, False], 1).dtype == gr.bool_


def test_several_axes_are_one_tuple():
    x = gr.ones([2, 3])
    for name in ("sum", "mean", "max", "std", "any", "median", "argmax", "count_nonzero"):
        function = getattr(x, name, None) or functools.partial(getattr(gr, name), x)
        with pytest.raises(TypeError, match=r"axis=\(0, 1\)"):
            function(0, 1)
    assert x.sum(0, True).shape == (1, 3)


def test_diff_takes_its_order_by_position():
    x = np.array([1.0, 4.0, 9.0, 16.0])
    np.testing.assert_array_equal(gr.diff(x, 2).numpy(), np.diff(x, 2))
    np.testing.assert_array_equal(gr.diff(x[None], 1, 1).numpy(), np.diff(x[None], 1, 1))
    np.testing.assert_array_equal(gr.diff(x, axis=0, n=2).numpy(), np.diff(x, 2))

"""NumPy's functions and operators on tensors: recorded if there is an op, else applied to values."""

from __future__ import annotations

import operator

import girih as gr
import numpy as np
import pytest
from conftest import close

X = np.array([[0.5, 1.5, 2.5], [3.0, 4.0, 5.0]], np.float32)


@pytest.mark.parametrize("left", [np.sqrt(2), np.float32(3), np.int64(2), np.bool_(True), X[0], X])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "truediv", "pow", "lt", "eq", "floordiv"])
def test_operators_with_numpy_on_the_left_record(left, op):
    apply = getattr(operator, op)
    y = apply(left, gr.asarray(X))
    assert isinstance(y, gr.Tensor)
    assert y.is_lazy
    expected = apply(gr.asarray(left), gr.asarray(X))
    assert y.dtype == expected.dtype
    close(y, expected.numpy())


def test_numpy_numbers_and_arrays_can_be_differentiated():
    x = gr.asarray(X)
    f = lambda x: np.sum(np.sqrt(np.float32(2)) * x * X + np.exp(x) / np.float32(2))
    expected = np.sqrt(np.float32(2)) * X + np.exp(X) / 2
    close(gr.grad(f)(x), expected, rtol=1e-6)
    close(gr.grad(lambda x: (X @ np.transpose(x)).sum())(x), np.tile(X.sum(0), (2, 1)))
    g = gr.compile(lambda x: np.float32(3) * np.mean(x * np.ones(3, np.float32)))
    close(g(x), 3 * X.mean())


ON_VALUES = {
    "sum": lambda x: np.sum(x),
    "sum of an axis": lambda x: np.sum(x, axis=1, keepdims=True),
    "mean": lambda x: np.mean(x, axis=0),
    "std": lambda x: np.std(x, ddof=1),
    "amax": lambda x: np.amax(x, axis=1),
    "reduce": lambda x: np.add.reduce(x),
    "reduce of an axis": lambda x: np.maximum.reduce(x, axis=1),
    "where": lambda x: np.where(x > 1, x, 0.0),
    "clip": lambda x: np.clip(x, 1, 4),
    "concatenate": lambda x: np.concatenate([x, X]),
    "stack": lambda x: np.stack([X, x], axis=1),
    "reshape": lambda x: np.reshape(x, (3, 2)),
    "ravel": lambda x: np.ravel(x),
    "transpose": lambda x: np.transpose(x, (1, 0)),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, X),
    "dot": lambda x: np.dot(x, X.T),
    "arctan2": lambda x: np.arctan2(x, X),
    "absolute": lambda x: np.abs(-x),
    "norm": lambda x: np.linalg.norm(x),
    "fft": lambda x: np.fft.rfft(x),
    "zeros_like": lambda x: np.zeros_like(x),
    "expand_dims": lambda x: np.expand_dims(x, (0, 2)),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "cbrt": lambda x: np.cbrt(x),
    "fmax": lambda x: np.fmax(x, 2),
    "heaviside": lambda x: np.heaviside(x - 1.5, 0.5),
    "degrees": lambda x: np.degrees(x),
    "ldexp": lambda x: np.ldexp(x, 2),
    "append": lambda x: np.append(x, X[0]),
    "average": lambda x: np.average(x, axis=1, weights=X[0]),
    "delete": lambda x: np.delete(x, 1, axis=1),
    "insert": lambda x: np.insert(x, 1, 9.0, axis=1),
    "ptp": lambda x: np.ptp(x, axis=0),
    "gradient": lambda x: np.gradient(x, axis=1),
    "convolve": lambda x: np.convolve(x[0], X[1]),
    "union1d": lambda x: np.union1d(x, X),
    "sinc": lambda x: np.sinc(x + 0.25),
    "block": lambda x: np.block([[x], [x]]),
    "cumsum": lambda x: np.cumsum(x, axis=1),
    "argmax": lambda x: np.argmax(x, axis=1),
}


@pytest.mark.parametrize("name", ON_VALUES)
def test_functions_with_an_equivalent_give_lazy_tensors(name):
    f = ON_VALUES[name]
    y = f(gr.asarray(X))
    assert isinstance(y, gr.Tensor)
    assert y.is_lazy
    close(y, f(X), rtol=1e-5)


WITHOUT = {
    "spacing": lambda x: np.spacing(x),
    "histogram with a name": lambda x: np.histogram(x, bins="auto")[0],
    "apply_along_axis": lambda x: np.apply_along_axis(np.sum, 0, x),
    "a kind of sort": lambda x: np.sort(x, kind="stable"),
    "an accumulation": lambda x: np.add.accumulate(x),
    "an outer product": lambda x: np.subtract.outer(x, X),
    "a condition": lambda x: np.add(x, 1, where=X > 1, out=np.zeros_like(X)),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_functions_without_an_equivalent_receive_arrays(name):
    f = WITHOUT[name]
    y = f(gr.asarray(X))
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(y, f(X), rtol=1e-6)


def test_assigning_to_an_array_computes():
    a = X.copy()
    a += gr.asarray(X)
    np.testing.assert_array_equal(a, 2 * X)
    a[0] = gr.asarray(X)[0]
    np.testing.assert_array_equal(a[0], X[0])


def test_functions_that_need_values_fail_while_tracing():
    with pytest.raises(gr.TracedValueError):
        gr.grad(lambda x: np.spacing(x).sum())(gr.asarray(X))


def test_facts_are_known_without_a_value():
    x = gr.asarray(X) * 2
    assert (np.shape(x), np.ndim(x), np.size(x)) == ((2, 3), 2, 6)
    assert np.isrealobj(x)
    assert not np.iscomplexobj(x)
    assert x.is_lazy


def test_dtypes_equal_numpys():
    for name in ("float32", "int8", "uint64", "complex128", "bool"):
        dtype, theirs = getattr(gr, name), np.dtype(name)
        assert dtype == theirs
        assert theirs == dtype
        assert dtype == theirs.type
        assert not dtype != theirs  # noqa: SIM202
    assert gr.ones(2).dtype == np.float32
    assert gr.float32 != np.float64
    assert gr.float32 != np.dtype(">f4")
    assert gr.float32 != "float32"
    assert gr.float32 != None  # noqa: E711
    assert gr.int64 == np.dtype(np.int64).type
    assert {gr.float32: 1}[gr.ones(1).dtype] == 1

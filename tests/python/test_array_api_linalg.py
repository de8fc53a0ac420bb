"""The array API standard's linalg extension, against array_api_strict: every function, in every
dtype it supports, on single matrices, batches and empty matrices.
"""

from __future__ import annotations

import array_api_strict as strict
import girih as gr
import numpy as np
import pytest
from test_array_api import ALL, BOOL, COMPLEX, FLOATING, NUMERIC, REAL, both, convert, numbers, same

TOLERANCE = {"float32": 2e-4, "complex64": 2e-4, "float64": 1e-10, "complex128": 1e-10}
STACKS = [(), (2,), (0,), (2, 1)]
F64, C64 = np.dtype("float64"), np.dtype("complex64")


def matrices(stack, dtype, rows=3, columns=None, seed=0):
    """Random matrices, well-conditioned if they are square."""
    columns = rows if columns is None else columns
    x = numbers((*stack, rows, columns), dtype, seed, -1, 2)
    return x + np.eye(rows, columns, dtype=dtype) * 4 if dtype not in BOOL else x


def hermitian(stack, dtype):
    x = matrices(stack, dtype)
    return x @ x.swapaxes(-1, -2).conj()


def square(stack, dtype):
    return [matrices(stack, dtype)]


def rectangle(stack, dtype):
    return [numbers((*stack, 4, 3), dtype)]


def vectors(stack, dtype):
    return [numbers((*stack, 3), dtype), numbers((*stack, 3), dtype, 1)]


# By name: the dtypes, a function that generates the operands, and the keyword arguments of each
# call.
CALLS = {
    "cholesky": (FLOATING, lambda s, d: [hermitian(s, d)], [{}, {"upper": True}]),
    "cross": (NUMERIC, vectors, [{}, {"axis": -1}]),
    "det": (FLOATING, square, [{}]),
    "diagonal": (ALL, rectangle, [{}, {"offset": 1}, {"offset": -2}, {"offset": 9}]),
    "eigvalsh": (FLOATING, lambda s, d: [hermitian(s, d)], [{}]),
    "inv": (FLOATING, square, [{}]),
    "matmul": (NUMERIC, lambda s, d: [matrices(s, d), numbers((3, 2), d)], [{}]),
    "matrix_norm": (FLOATING, rectangle, [
        {}, {"keepdims": True}, *({"ord": o} for o in (1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc"))
    ]),
    "matrix_power": (FLOATING, square, [{"n": n} for n in (0, 1, 3, -2)]),
    "matrix_rank": (FLOATING, rectangle, [{}, {"rtol": 0.5}]),
    "matrix_transpose": (ALL, rectangle, [{}]),
    "pinv": (FLOATING, rectangle, [{}, {"rtol": 1e-3}]),
    "slogdet": (FLOATING, square, [{}]),
    "solve": (FLOATING, lambda s, d: [matrices(s, d), numbers((*s, 3, 2), d)], [{}]),
    "svdvals": (FLOATING, rectangle, [{}]),
    "trace": (NUMERIC, rectangle, [{}, {"offset": 1}, {"offset": -1}]),
    "vecdot": (NUMERIC, vectors, [{}, {"axis": -1}]),
    "vector_norm": (FLOATING, rectangle, [
        {}, {"axis": -1, "keepdims": True}, *({"axis": (-2, -1), "ord": o} for o in (0, 1, 2, 2.5, np.inf, -np.inf))
    ]),
}  # fmt: skip
FACTORS = ["eigh", "qr", "svd"]
OTHERS = ["outer", "tensordot"]


def test_every_function_of_the_extension_is_there_and_compared():
    names = set(strict.linalg.__all__)
    assert {n for n in names if not hasattr(gr.linalg, n)} == set()
    assert set(CALLS) | set(FACTORS) | set(OTHERS) == names
    # From revision 2025.12 of the standard, which array_api_strict does not fully support.
    assert gr.linalg.eig(gr.ones(2, 2))._fields == ("eigenvalues", "eigenvectors")
    assert gr.linalg.eigvals(gr.ones(2, 2)).dtype == gr.complex64


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", CALLS)
def test_linalg(name, stack):
    dtypes, make, settings = CALLS[name]
    for dtype in dtypes:
        operands = make(stack, dtype)
        for kwargs in settings:
            if 0 in stack and name == "vector_norm" and kwargs.get("ord", 2) in (np.inf, -np.inf):
                continue
            args = operands + ([kwargs["n"]] if "n" in kwargs else [])
            rest = {k: v for k, v in kwargs.items() if k != "n"}
            own = getattr(gr.linalg, name)(*convert(args, gr), **rest)
            theirs = getattr(strict.linalg, name)(*convert(args, strict), **rest)
            same(own, theirs, TOLERANCE.get(dtype, 0.0), f"{name}({dtype}, {kwargs})")


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("dtype", FLOATING)
def test_factors_are_of_the_shapes_and_dtypes_of_the_standard_and_make_the_matrix(dtype, stack):
    rtol = TOLERANCE[dtype]
    calls = [("eigh", hermitian(stack, dtype), {})]
    for x in (*rectangle(stack, dtype), rectangle(stack, dtype)[0].swapaxes(-1, -2).copy()):
        calls += [("qr", x, {"mode": mode}) for mode in ("reduced", "complete")]
        calls += [("svd", x, {"full_matrices": full}) for full in (True, False)]
    for name, x, kwargs in calls:
        own = getattr(gr.linalg, name)(convert(x, gr), **kwargs)
        theirs = getattr(strict.linalg, name)(convert(x, strict), **kwargs)
        assert own._fields == theirs._fields
        for got, want in zip(own, theirs, strict=True):
            assert (got.dtype.name, got.shape) == (np.asarray(want).dtype.name, want.shape), name
        parts = [part.numpy() for part in own]
        if name == "qr":
            product = parts[0] @ parts[1]
        elif name == "eigh":
            w, v = parts
            product = v * w[..., None, :] @ v.swapaxes(-1, -2).conj()
        else:
            u, s, vh = parts
            k = s.shape[-1]
            product = u[..., :k] * s[..., None, :] @ vh[..., :k, :]
        np.testing.assert_allclose(product, x, rtol, rtol)


@pytest.mark.parametrize("dtype", NUMERIC)
def test_products_of_tensors(dtype):
    rtol = TOLERANCE.get(dtype, 0.0)
    both("linalg.outer", numbers((3,), dtype), numbers((2,), dtype, 1), rtol=rtol)
    a, b = numbers((2, 3, 4), dtype), numbers((3, 4, 2), dtype, 1)
    for axes in (2, ((1, 2), (0, 1)), ((-1,), (-2,)), 0):
        both("linalg.tensordot", a, b, axes=axes, rtol=rtol)
    for name in ("outer", "tensordot", "vecdot", "matmul", "matrix_transpose"):
        assert getattr(gr.linalg, name).__doc__


def test_traces_in_another_dtype():
    both("linalg.trace", numbers((3, 3), "int8"), dtype=np.dtype("int64"))
    both("linalg.trace", numbers((3, 3), "float32"), dtype=F64, rtol=1e-6)
    both("linalg.trace", numbers((3, 3), "complex128"), dtype=C64, rtol=1e-6)


@pytest.mark.parametrize("dtype", REAL + COMPLEX)
def test_solutions_take_a_vector_for_a_stack(dtype):
    x, b = matrices((2,), dtype), numbers((3,), dtype)
    both("linalg.solve", x, b, rtol=TOLERANCE[dtype])
    same(
        gr.linalg.solve(gr.asarray(x), gr.asarray(x)),
        np.broadcast_to(np.eye(3, dtype=dtype), x.shape),
        TOLERANCE[dtype],
    )

"""``x.view(dtype)`` against NumPy: every pair of dtypes, every bit of NaN, sizes, errors,
transforms.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import girih as gr
import numpy as np
import pytest
from processes import has_avx512

SIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
    "complex64": 8, "complex128": 16,
}  # fmt: skip
PAIRS = [(a, b) for a in SIZES for b in SIZES if b != "bool" or a == "bool"]
RNG = np.random.default_rng(7)


def of_bytes(data, dtype):
    """The tensor and the array with those bytes; for bfloat16, which NumPy does not have, the array
    has its bits.
    """
    if dtype == "bool":
        bits = data & 1
        return gr.asarray(bits.view(np.bool_)), bits.view(np.bool_)
    if dtype == "bfloat16":
        bits = data.view(np.uint16)
        return gr.asarray(bits).view(gr.bfloat16), bits
    return gr.asarray(data.view(dtype)), data.view(dtype)


def same_bits(got, want, dtype):
    """The tensor has the array's shape, dtype and bits."""
    assert got.dtype == getattr(gr, "bool_" if dtype == "bool" else dtype)
    got = got.view(gr.uint16) if dtype == "bfloat16" else got
    got = got.numpy()
    want = want.view(np.uint16 if dtype == "bfloat16" else dtype)
    assert got.shape == want.shape
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(("own", "dtype"), PAIRS, ids=lambda x: x)
@pytest.mark.parametrize("shape", [(96,), (3, 48), (2, 3, 80), (0, 16), (3, 0), (1, 16)])
def test_every_pair_of_dtypes_has_the_bits_of_numpy(own, dtype, shape):
    data = RNG.integers(0, 256, shape, np.uint8)
    t, x = of_bytes(data, own)
    same_bits(t.view(np.dtype(dtype)) if dtype != "bfloat16" else t.view(gr.bfloat16), x, dtype)
    same_bits(t.view(dtype), x, dtype)


@pytest.mark.parametrize("own", ["float16", "bfloat16", "float32", "float64"])
def test_each_kind_of_nan_keeps_its_bits(own):
    size = 8 * SIZES[own]
    mantissa = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[own]
    exponent = ((1 << (size - 1 - mantissa)) - 1) << mantissa
    payloads = [1, 1 << (mantissa - 1), (1 << (mantissa - 1)) + 1, (1 << mantissa) - 1]
    patterns = [exponent | p | sign << (size - 1) for p in payloads for sign in (0, 1)]
    bits = np.array([*patterns, exponent, 0, 1 << (size - 1), 1], f"uint{size}")
    for n in (1, len(bits), 8 * len(bits)):
        some = np.resize(bits, n)
        floats = gr.asarray(some).view(own)
        assert floats.view(f"uint{size}").numpy().tobytes() == some.tobytes()
        assert floats.eval().view(f"int{size}").numpy().tobytes() == some.tobytes()
        turned = gr.asarray(some.reshape(1, -1)).view(own).T.eval()
        assert turned.view(f"uint{size}").numpy().tobytes() == some.tobytes()
    one = gr.full([], int(patterns[0]), dtype=f"uint{size}").view(own).eval()
    assert one.view(f"uint{size}").item() == patterns[0]


def test_bits_of_computed_values():
    x = np.linspace(-3, 3, 41).astype(np.float32)
    for dtype in (np.float16, np.float32, np.float64):
        integer = f"int{8 * np.dtype(dtype).itemsize}"
        got = (gr.asarray(x).astype(dtype) * 2).view(integer) & 0xFF
        want = (x.astype(dtype) * 2).view(integer) & 0xFF
        np.testing.assert_array_equal(got.numpy(), want)
    n = np.arange(-40, 41, dtype=np.int16)
    doubled = (gr.asarray(n) * 7).view(gr.float16)
    np.testing.assert_array_equal((-doubled).numpy(), -((n * 7).view(np.float16)))
    brains = gr.asarray(x).astype(gr.bfloat16)
    shifted = (brains.view(gr.int16).astype(gr.int32) << 16).view(gr.float32)
    np.testing.assert_array_equal(shifted.numpy(), brains.astype(gr.float32).numpy())


def test_a_fast_inverse_square_root():
    x = gr.linspace(0.5, 9, 100, dtype=gr.float32)
    guess = (0x5F3759DF - (x.view(gr.int32) >> 1)).view(gr.float32)
    better = guess * (1.5 - 0.5 * x * guess * guess)
    assert len(gr.explain(better).kernels) == 1
    np.testing.assert_allclose(better.numpy(), 1 / np.sqrt(x.numpy()), rtol=2e-3)


@pytest.mark.parametrize(
    ("own", "dtype"), [(a, b) for a, b in PAIRS if SIZES[a] == SIZES[b]], ids=lambda x: x
)
def test_scalars_are_viewed_in_dtypes_of_equal_size(own, dtype):
    t, x = of_bytes(np.arange(1, 1 + SIZES[own], dtype=np.uint8), own)
    got = t[0].view(dtype)
    assert got.shape == ()
    same_bits(got, x[0], dtype)


def test_tensors_without_order_in_memory():
    x = RNG.integers(0, 2**32, (6, 8), np.uint32)
    t = gr.asarray(x)
    for turned, want in [(t.T, x.T), (t[::2, ::-2], x[::2, ::-2]), (t[:, 3:7], x[:, 3:7])]:
        want = np.ascontiguousarray(want)
        for dtype in ("uint8", "float16", "int32", "uint64"):
            np.testing.assert_array_equal(turned.view(dtype).numpy(), want.view(dtype))
    spread = gr.broadcast_to(gr.asarray(x[0]), (3, 8))
    np.testing.assert_array_equal(
        spread.view(gr.int64).numpy(), np.tile(x[0], (3, 1)).view(np.int64)
    )


def test_python_types_are_dtypes_of_the_precision():
    assert gr.ones([4], dtype=gr.float16).view(float).dtype == gr.float16
    assert gr.ones([4], dtype=gr.float64).view(complex).shape == (2,)
    assert gr.ones([4], dtype=gr.int64).view(float).dtype == gr.asarray([1], dtype=float).dtype
    assert gr.ones([4], dtype=gr.float32).view(int).shape == (2,)


REFUSED = {
    "bytes as bool": (lambda: gr.ones([2], dtype=gr.uint8).view(bool), TypeError, ["view", "bool", "0 and 1", "x != 0"]),
    "floats as bool": (lambda: gr.ones([2]).view(gr.bool_), TypeError, ["view", "bool"]),
    "a scalar as narrower": (lambda: gr.asarray(1.5).view(gr.uint8), ValueError, ["uint8", "1 bytes", "last axis", "[]"]),
    "a scalar as wider": (lambda: gr.asarray(1j).view(gr.complex128), ValueError, ["complex128", "last axis", "[]"]),
    "bytes left over": (lambda: gr.ones([2, 7], dtype=gr.uint8).view(gr.float32), ValueError, ["[2, 7]", "float32", "multiple of 4"]),
    "parts left over": (lambda: gr.ones([3], dtype=gr.float32).view(gr.complex128), ValueError, ["[3]", "multiple of 4"]),
    "no dtype": (lambda: gr.ones([2]).view("int33"), TypeError, ["int33"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_views_that_are_refused_say_why(case):
    call, kind, words = REFUSED[case]
    with pytest.raises(kind) as error:
        call()
    for word in words:
        assert word in str(error.value)
    assert isinstance(error.value, gr.GirihError)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float64", "complex64"])
def test_vmap_views_the_last_axis_of_each_example(dtype):
    x = RNG.standard_normal((5, 8)).astype(np.float32)
    got = gr.vmap(lambda row: row.view(dtype))(gr.asarray(x))
    np.testing.assert_array_equal(got.numpy(), x.view(dtype))
    columns = gr.vmap(lambda row: row.view(dtype), in_axes=1)(gr.asarray(np.ascontiguousarray(x.T)))
    np.testing.assert_array_equal(columns.numpy(), x.view(dtype))
    numbers = gr.vmap(lambda v: v.view(gr.int32))(gr.asarray(x[0]))
    np.testing.assert_array_equal(numbers.numpy(), x[0].view(np.int32))


def test_integer_views_have_no_derivative_and_complex_views_have_one():
    x = gr.asarray([1.0, 2.0, 3.0, 4.0])
    through_bits = gr.grad(lambda x: (x.view(gr.int32).view(gr.float32) * x).sum())
    assert through_bits(x).tolist() == x.tolist()
    _, tangent = gr.jvp(lambda x: x.view(gr.int32).view(gr.float32), (x,), (x,))
    assert tangent.tolist() == [0.0] * 4
    through_parts = gr.grad(lambda x: (x.view(gr.complex64) * 1j).real.sum())
    assert through_parts(x).tolist() == [0, -1, 0, -1]


def test_compiled_views_of_any_length():
    n = gr.Dim("n", min=1)
    narrow = gr.compile(lambda x: x.view(gr.uint8), dynamic_dims={0: {0: n}})
    wide = gr.compile(lambda x: x.view(gr.int64), dynamic_dims={0: {0: n}})
    for rows in (1, 3, 64):
        x = RNG.integers(0, 2**31, (rows, 4), np.int32)
        np.testing.assert_array_equal(narrow(gr.asarray(x)).numpy(), x.view(np.uint8))
        np.testing.assert_array_equal(wide(gr.asarray(x)).numpy(), x.view(np.int64))
    traced = []

    def bits(x):
        traced.append(x.shape)
        return x.view(gr.uint8)

    lengths = gr.compile(bits, dynamic_dims={0: {0: n}})
    for length in (1, 6, 10, 64):
        x = RNG.integers(0, 2**31, length, np.int32)
        np.testing.assert_array_equal(lengths(gr.asarray(x)).numpy(), x.view(np.uint8))
    assert len(traced) == 1


def test_graphs_have_bitcasts_that_text_keeps():
    def flip(x):
        return (x.view(gr.int32) ^ 1).view(gr.float32)

    x = gr.asarray(RNG.standard_normal(8).astype(np.float32))
    graph = gr.make_graph(flip)(x)
    assert [node.op for node in graph.nodes].count("bitcast") == 2
    text = gr.graph_to_text(graph)
    assert "bitcast(" in text
    assert gr.graph_to_text(gr.text_to_graph(text)) == text
    np.testing.assert_array_equal(flip(x).numpy(), (x.numpy().view(np.int32) ^ 1).view(np.float32))


def test_bits_are_the_same_at_each_level_of_instructions():
    here = pathlib.Path(__file__)
    # Without AVX-512, AVX2 is the level at which the tests run anyway.
    wider = [("avx2", "1"), ("avx512", "0")] if has_avx512() else []
    for level, jit in [("baseline", "1"), ("avx2", "0"), *wider]:
        settings = {"GIRIH_CACHE": "0", "GIRIH_ISA": level, "GIRIH_JIT": jit}
        tests = "pairs or pair_of or nan or computed"
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-k", tests, str(here)]
        command[3:3] = ["-p", "no:cacheprovider"]
        done = subprocess.run(
            command, env={**os.environ, **settings}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-3000:]

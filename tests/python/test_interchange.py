"""NumPy, DLPack, the buffer protocol, printing, conversion, import."""

from __future__ import annotations

import array
import copy
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import girih as gr
import numpy as np
import pytest
from conftest import DTYPES, close, sample


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 4), (2, 0, 3)])
def test_arrays_round_trip(dtype, shape):
    x = sample(shape, dtype)
    t = gr.asarray(x)
    assert t.dtype == DTYPES[dtype]
    assert (t.shape, t.ndim, t.size, t.nbytes) == (x.shape, x.ndim, x.size, x.nbytes)
    for back in (t.numpy(), np.asarray(t), np.array(t), np.from_dlpack(t)):
        assert back.dtype == x.dtype
        np.testing.assert_array_equal(back, x)
    assert t.tolist() == x.tolist()


def address(a):
    return a.__array_interface__["data"][0]


def test_arrays_come_and_go_without_a_copy():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    t = gr.asarray(x, copy=False)
    assert address(t.numpy()) == address(x)
    assert address(np.from_dlpack(t)) == address(x)
    assert address(np.asarray(t, copy=False)) == address(x)
    lazy = gr.asarray(x, copy=False) + 1
    assert address(lazy.numpy()) == address(lazy.numpy()) == address(np.from_dlpack(lazy))


def test_copies_are_made_where_asked_for():
    x = np.zeros(3, np.float32)
    copies = [gr.tensor(x), gr.asarray(x), gr.asarray(x, copy=True)]
    x[:] = 1
    assert [t.tolist() for t in copies] == [[0.0] * 3] * 3
    t = gr.ones([3]).eval()
    y = np.array(t, copy=True)
    y[0] = 5
    assert t.tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="copy"):
        t.__array__(np.float64, copy=False)


def test_tensors_cannot_be_written_through_their_arrays():
    a = gr.ones([3]).eval().numpy()
    assert not a.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        a[0] = 2


@pytest.mark.parametrize("convert", [np.asarray, np.array, lambda t: np.asarray(t, "f4")])
def test_arrays_copied_by_numpy_are_writeable_and_independent(convert):
    t = gr.ones([3]).eval()
    a = convert(t)
    assert a.flags.writeable
    a[0] = 2
    assert t.tolist() == [1.0] * 3
    view = np.asarray(t, copy=False)
    assert not view.flags.writeable
    assert np.shares_memory(view, t.numpy())


def test_views_in_another_dtype():
    z = np.array([[1 + 2j, 3 - 4j]])
    t = gr.asarray(z)
    for dtype in (float, gr.float64, "float64", np.float64, np.dtype("f8")):
        np.testing.assert_array_equal(t.view(dtype).numpy(), z.view("f8"))
        np.testing.assert_array_equal(t.view(dtype).view(complex).numpy(), z)
    assert t.astype(gr.complex64).view(float).dtype == gr.float32
    assert t.view(gr.complex128) is not None
    assert gr.ones([2, 0]).view(complex).shape == (2, 0)
    turned = gr.grad(lambda x: (x.view(complex) * 1j).real.sum())(gr.ones([4]))
    assert turned.tolist() == [0, -1, 0, -1]
    shapes = (t.view(2, 1), t.view((2, 1)), t.view([2, -1]), t.view(-1), t.view(1, 2, 1))
    assert [s.shape for s in shapes] == [(2, 1), (2, 1), (2, 1), (2,), (1, 2, 1)]


def test_memory_lives_as_long_as_either_side():
    x = np.ones(1000, np.float32)
    ref = weakref.ref(x)
    t = gr.asarray(x, copy=False)
    del x
    gc.collect()
    assert ref() is not None
    assert t.sum().item() == 1000
    a = t.numpy()
    del t
    gc.collect()
    assert a.sum() == 1000
    del a
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize(
    "view", [lambda x: x.T, lambda x: x[::2], lambda x: x[:, ::-1], lambda x: x[1:, 1:]]
)
def test_arrays_that_are_views(view):
    x = view(np.arange(20, dtype=np.int32).reshape(4, 5))
    close(gr.asarray(x), x)
    close(gr.from_dlpack(x), x) if min(x.strides) > 0 else None
    y = view(gr.asarray(np.arange(20, dtype=np.int32).reshape(4, 5)))
    np.testing.assert_array_equal(np.from_dlpack(y), x)


def test_other_byte_orders_and_dtypes():
    x = np.arange(3, dtype=">f4")
    close(gr.asarray(x), np.arange(3, dtype="f4"))
    for bad in (np.array(["a"]), np.array([1], "clongdouble"), np.array([None])):
        with pytest.raises(gr.DTypeError):
            gr.asarray(bad)


def test_from_dlpack_and_its_device():
    x = np.arange(6, dtype=np.float64).reshape(2, 3)
    t = gr.from_dlpack(x, copy=False)
    close(t, x)
    assert address(t.numpy()) == address(x)
    assert t.__dlpack_device__() == (1, 0)
    assert gr.from_dlpack(gr.ones([2])).tolist() == [1.0, 1.0]
    gr.ones([3]).__dlpack__()  # an unconsumed capsule frees its tensor


def test_buffers_and_sequences_of_tensors():
    close(gr.asarray(array.array("f", [1, 2])), np.array([1, 2], "f4"))
    close(gr.asarray(memoryview(b"\1\2")), np.array([1, 2], "u1"))
    close(gr.asarray([gr.ones([2]), gr.zeros([2])]), np.array([[1, 1], [0, 0]], "f4"))
    t = gr.ones([2])
    assert gr.asarray(t) is t
    assert gr.asarray(t, dtype=gr.int8).dtype == gr.int8


def test_bfloat16_has_no_array_but_converts():
    t = gr.asarray([1.0, 2.0], dtype=gr.bfloat16)
    assert t.tolist() == [1.0, 2.0]
    assert t.astype(gr.float32).numpy().tolist() == [1.0, 2.0]


def test_python_conversions():
    t = gr.asarray([[1, 2], [3, 4]])
    assert len(t) == 2
    assert [row.tolist() for row in t] == [[1, 2], [3, 4]]
    assert int(t[1, 1]) == 4
    assert [10, 20, 30][t[0, 0]] == 20
    assert float(gr.asarray(1.5)) == 1.5
    assert bool(gr.asarray(0)) is False
    assert isinstance(gr.asarray(True).item(), bool)
    with pytest.raises(TypeError):
        len(gr.asarray(1))
    with pytest.raises(TypeError):
        [0][gr.asarray(0.0)]
    with pytest.raises(TypeError):
        iter(gr.asarray(1))


def test_printing():
    assert repr(gr.asarray([1.5, 2.0])).startswith("tensor(")
    text = repr(gr.asarray([[1.5, -2.0], [0.25, 100.0]]))
    assert "1.5" in text
    assert "float32" in text
    assert text.count("\n") == 1
    large = repr(gr.arange(100_000))
    assert "..." in large
    assert len(large) < 500
    assert "nan" in repr(gr.asarray([float("nan"), float("inf")]))
    assert repr(gr.zeros([0, 3])).count("\n") == 0
    assert "True" in repr(gr.asarray([True]))


def test_copying_a_tensor():
    t = gr.asarray([1.0])
    assert copy.copy(t).tolist() == [1.0]
    assert copy.deepcopy([t])[0].tolist() == [1.0]


def run(code, **env):
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | env,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_needs_nothing_else_and_is_no_slower_than_numpy(tmp_path):
    code = """
import sys, time
before = set(sys.modules)
start = time.perf_counter()
import {module}
ms = (time.perf_counter() - start) * 1e3
roots = {{m.split(".")[0] for m in set(sys.modules) - before}} - set(sys.stdlib_module_names)
assert roots == {{"{module}"}}, roots
assert "girih.nn" not in sys.modules
print(ms)
"""
    # The first import of each writes its bytecode, as an installation by pip does, whatever the
    # environment says; later imports read it. Measure both in turns, so that the machine's load is
    # the same; repeat if the load changed.
    bytecode = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    times = []
    for _ in range(10):
        times.append([float(run(code.format(module=m), **bytecode)) for m in ("girih", "numpy")])
        girih, numpy = map(min, zip(*times, strict=True))
        if girih < numpy:
            break
    assert girih < numpy, times


def test_works_without_numpy():
    out = run(
        "import sys; sys.modules['numpy'] = None\n"
        "import girih as gr\n"
        "print((gr.asarray([1.0, 2.0]) * 2).tolist(), gr.nn.Linear(2, 1)(gr.ones([1, 2])).shape)"
    )
    assert out.strip() == "[2.0, 4.0] (1, 1)"


def test_everything_exported_exists():
    for name in gr.__all__:
        assert hasattr(gr, name), name
    assert sorted(gr.__all__) == sorted(set(gr.__all__))
    assert set(gr.__all__) <= set(dir(gr))
    with pytest.raises(AttributeError, match="nothing"):
        gr.nothing  # noqa: B018


def test_docstrings_are_true():
    import doctest
    from importlib import import_module

    for name in ("lazy", "transforms", "tree", "nn.module", "nn.layers", "optim.optimizers"):
        result = doctest.testmod(import_module(f"girih.{name}"))
        assert result.failed == 0, name


def test_every_public_function_has_a_docstring():
    for name in gr.__all__:
        thing = getattr(gr, name)
        if callable(thing):
            assert (thing.__doc__ or "").strip(), name


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int64", "uint8", "float16", "float32", "float64"]
)
def test_numpy_scalars_are_copied_before_their_memory_is_freed(dtype):
    # The array interface of a NumPy scalar points to an array that only the interface owns.
    values = [np.dtype(dtype).type(v) for v in (0, 1)] * 50
    tensors = [gr.asarray(v) for v in values]
    churn = [np.full((), 77, dtype) for _ in range(100)]
    assert [t.item() for t in tensors] == [v.item() for v in values]
    assert all(t.dtype.name == dtype and t.shape == () for t in tensors)
    assert len(churn) == 100


def test_dlpack_copies_when_asked():
    t = gr.arange(4) * 2
    array = np.from_dlpack(t, copy=True) if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else None
    if array is not None:
        array[0] = 7
    assert t.tolist() == [0, 2, 4, 6]


FORK = """
import os
import girih as gr
x = gr.randn([300, 300]).eval()
pending = gr.async_eval(x @ x @ x @ x @ x @ x)
pid = os.fork()
if pid == 0:
    try:
        ok = pending.sum().item() == (x @ x @ x @ x @ x @ x).sum().item()
        ok = ok and gr.async_eval((x * 0 + 1).sum()).item() == 90000
        ok = ok and (gr.ones([300, 300]) @ gr.ones([300, 300])).sum().item() == 300.0**3
    finally:
        os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert pending.shape == (300, 300) and pending.eval() is pending
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_computes_what_its_parent_was_computing():
    run("import warnings; warnings.simplefilter('ignore')" + FORK)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_children_of_busy_parents_do_not_hang():
    script = Path(__file__).parents[2] / "scripts" / "forks.py"
    command = [sys.executable, str(script), "--forks", "30"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("shape", [(), (1,), (4, 3), (2, 1, 5), (4096, 1024)])
@pytest.mark.parametrize("dtype", ["float32", "uint32", "int8", "complex128"])
def test_strides_are_numpys(shape, dtype):
    x, a = gr.zeros(shape, dtype=dtype), np.zeros(shape, dtype)
    assert x.strides == a.strides
    assert x.stride() == tuple(s // a.itemsize for s in a.strides)
    assert [x.stride(d) for d in range(-x.ndim, 0)] == list(x.stride())
    with pytest.raises(IndexError):
        x.stride(x.ndim)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32", "complex64"])
def test_the_data_is_a_typed_view_that_cannot_be_written(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    for x, want in (
        (gr.asarray(array), array),
        (gr.asarray(array).T, array.T),
        (gr.asarray(array)[1, 2], array[1, 2]),
        (gr.zeros([0, 3], dtype=dtype), np.zeros((0, 3), dtype)),
    ):
        view = x.data
        assert (view.format, view.readonly) == (np.asarray(want).data.format, True)
        assert view.shape == want.shape
        assert view.tobytes() == np.ascontiguousarray(want).tobytes()
        with pytest.raises((TypeError, NotImplementedError)):
            view[(0,) * want.ndim] = 1
    del x
    assert view.nbytes == 0
    lazy = gr.ones([2]) + 1
    assert lazy.is_lazy
    assert lazy.data.tolist() == [2.0, 2.0]
    assert lazy.state() == "available"
    with pytest.raises(gr.DTypeError, match=r"astype\(girih.float32\)"):
        gr.ones([2], dtype="bfloat16").data  # noqa: B018
    with pytest.raises(gr.GirihError):
        gr.compile(lambda x: x.data)(gr.ones([2]))

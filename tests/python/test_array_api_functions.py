"""The functions of the array API standard that are not elementwise, against array_api_strict:
creation, manipulation, searching, sets, sorting, statistics, products. One row per function and
use.
"""

from __future__ import annotations

import inspect
import itertools

import array_api_strict as strict
import girih as gr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_array_api import (
    ALL,
    BOOL,
    COMPLEX,
    FLOATING,
    HAVE,
    INTS,
    NONEMPTY,
    NUMERIC,
    REAL,
    REAL_NUMERIC,
    RTOL,
    SHAPES,
    SIGNED,
    UNSIGNED,
    both,
    dtypes,
    needs,
    numbers,
    same,
)

F32 = np.dtype("float32")


# Creation. Dtypes are explicit, because the libraries' defaults differ (float32 in Girih).


@pytest.mark.parametrize("name", ["zeros", "ones"])
@given(data=st.data())
def test_filled(name, data):
    shape, dtype = data.draw(SHAPES), np.dtype(data.draw(dtypes(*ALL)))
    both(name, shape, dtype=dtype)
    both(name, shape=shape, dtype=dtype, device=None)
    x = numbers(shape, "float32")
    both(f"{name}_like", x)
    both(f"{name}_like", x, dtype=dtype, device=None)
    empty = gr.empty(shape, dtype=dtype.name)
    assert (empty.shape, empty.dtype.name) == (shape, dtype.name)
    like = gr.empty_like(gr.asarray(x), dtype=dtype.name)
    assert (like.shape, like.dtype.name) == (shape, dtype.name)
    assert gr.empty_like(gr.asarray(x)).dtype == gr.float32


def test_filled_by_one_integer():
    for name in ("zeros", "ones"):
        both(name, 3, dtype=F32)
    both("full", 3, 2.5, dtype=F32)
    assert gr.empty(3).shape == (3,)


@given(data=st.data())
def test_full(data):
    shape, dtype = data.draw(SHAPES), data.draw(dtypes(*ALL))
    value = {"b": True, "i": 7, "u": 7, "f": 2.5, "c": 2.5 - 1j}[np.dtype(dtype).kind]
    both("full", shape, value, dtype=np.dtype(dtype))
    both("full", shape=shape, fill_value=value, dtype=np.dtype(dtype), device=None)
    both("full_like", numbers(shape, dtype), value)
    both("full_like", numbers(shape, "int32"), fill_value=value, dtype=np.dtype(dtype))


def test_full_takes_the_kind_of_its_value():
    for value, dtype in ((True, gr.bool), (3, gr.int64), (1.5, gr.float32)):
        assert gr.full((2,), value).dtype == dtype


RANGES = [(5,), (2, 5), (0, 10, 3), (10, 0, -3), (0,), (5, 2), (2, 5, -1), (0, 1, 1), (-3, 4, 2)]


@pytest.mark.parametrize("args", RANGES)
@pytest.mark.parametrize("dtype", [d for d in SIGNED + REAL if d in HAVE])
def test_arange(args, dtype):
    both("arange", *args, dtype=np.dtype(dtype))
    both("arange", *args, dtype=np.dtype(dtype), device=None)
    if dtype == "int64":
        both("arange", *args)
    if len(args) == 3:
        both("arange", args[0], stop=args[1], step=args[2], dtype=np.dtype(dtype))


@pytest.mark.parametrize("args", [(0.0, 1.0, 0.25), (1.0, 0.0, -0.3), (0.0, 2.5), (0.5, 3.5, 1)])
def test_arange_of_floats(args):
    both("arange", *args, dtype=np.dtype("float64"), rtol=1e-15)


@given(st.integers(0, 9), st.booleans(), st.sampled_from(REAL))
def test_linspace(num, endpoint, dtype):
    dtype_ = np.dtype(dtype)
    both("linspace", -2.0, 3.0, num, dtype=dtype_, endpoint=endpoint, rtol=RTOL[dtype])
    both("linspace", 3, -2, num=num, dtype=dtype_, device=None, endpoint=endpoint, rtol=RTOL[dtype])


@given(st.integers(0, 4), st.none() | st.integers(0, 4), st.integers(-5, 5), dtypes(*ALL))
def test_eye(rows, columns, k, dtype):
    both("eye", rows, columns, k=k, dtype=np.dtype(dtype))
    both("eye", rows, dtype=np.dtype(dtype), device=None)


@given(SHAPES, dtypes(*ALL))
def test_asarray(shape, dtype):
    x = numbers(shape, dtype)
    for copy in (None, True):
        both("asarray", x.tolist(), dtype=np.dtype(dtype), copy=copy)
        both("asarray", x, copy=copy)
        both("asarray", x, dtype=np.dtype(dtype), device=None, copy=copy)
    own = gr.asarray(x)
    assert gr.asarray(own, copy=False) is own
    assert gr.asarray(own, copy=True) is not own
    with pytest.raises(ValueError, match="copy"):
        gr.asarray([1, 2], copy=False)


def test_asarray_of_python_numbers_and_mixtures():
    for value, dtype in ((True, "bool"), (3, "int64"), (1.5, "float32"), ([1, 2.5], "float32")):
        assert gr.asarray(value).dtype.name == dtype
    if "complex64" in HAVE:
        assert gr.asarray(1j).dtype.name == "complex64"
        assert gr.asarray([1, 2j]).tolist() == [1, 2j]


@pytest.mark.parametrize("name", ["tril", "triu"])
@given(st.integers(0, 4), st.integers(0, 4), st.integers(-5, 5), dtypes(*ALL))
def test_triangles(name, rows, columns, k, dtype):
    needs(name)
    both(name, numbers((2, rows, columns), dtype), k=k)
    both(name, numbers((rows, columns), dtype))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid(indexing):
    needs("meshgrid")
    for sizes in [(), (3,), (3, 2), (2, 1, 4), (0, 2)]:
        both("meshgrid", *(numbers((n,), "int32", n) for n in sizes), indexing=indexing)


# Dtypes.


@pytest.mark.parametrize("kinds", [BOOL, INTS, REAL, COMPLEX, REAL + COMPLEX])
def test_result_type(kinds):
    needs("result_type")
    names = [d for d in kinds if d in HAVE]
    for n in (1, 2, 3):
        for group in itertools.product(names, repeat=n):
            if {"uint64"} & set(group) and set(SIGNED) & set(group):
                with pytest.raises(gr.DTypeError, match="uint64"):
                    gr.result_type(*(getattr(gr, d) for d in group))
                continue
            want = strict.result_type(*(getattr(strict, d) for d in group))
            want = str(want).split(".")[-1]
            assert gr.result_type(*(getattr(gr, d) for d in group)).name == want
            mixed = [
                gr.ones((1,), dtype=d) if i % 2 else getattr(gr, d) for i, d in enumerate(group)
            ]
            assert gr.result_type(*mixed).name == want


def test_result_type_of_scalars():
    needs("result_type")
    for dtype, scalar, want in [
        ("int8", 1, "int8"), ("float32", 1, "float32"), ("float64", 1.5, "float64"),
        ("bool", True, "bool"), ("float32", 1j, "complex64"), ("float64", 1j, "complex128"),
        ("int8", True, "int8"),
    ]:  # fmt: skip
        if want in HAVE:
            assert gr.result_type(getattr(gr, dtype), scalar).name == want
            assert gr.result_type(scalar, gr.ones((2,), dtype=dtype)).name == want
    with pytest.raises((gr.InvalidArgumentError, gr.DTypeError)):
        gr.result_type()
    with pytest.raises(gr.DTypeError):
        gr.result_type(gr.int8, "nothing")


def test_can_cast():
    needs("can_cast")
    for group in (INTS, REAL, COMPLEX, BOOL):
        for a, b in itertools.product([d for d in group if d in HAVE], repeat=2):
            want = strict.can_cast(getattr(strict, a), getattr(strict, b))
            assert gr.can_cast(getattr(gr, a), getattr(gr, b)) is want, (a, b)
            assert gr.can_cast(gr.ones((1,), dtype=a), getattr(gr, b)) is want
    assert not gr.can_cast(gr.float32, gr.int64)
    assert not gr.can_cast(gr.int8, gr.bool)


@given(dtypes(*ALL), dtypes(*ALL), SHAPES, st.booleans())
def test_astype(source, target, shape, copy):
    if source in COMPLEX and target not in COMPLEX:
        return  # the standard leaves it open
    x = np.abs(numbers(shape, source)) if source not in COMPLEX else numbers(shape, source)
    x = np.asarray(x, source)
    both("astype", x, np.dtype(target), copy=copy)
    own = gr.asarray(x)
    if source == target:
        assert (gr.astype(own, getattr(gr, target), copy=False) is own) is True
        assert gr.astype(own, getattr(gr, target)) is not own


# Manipulation.


@given(data=st.data())
def test_broadcast(data):
    needs("broadcast_arrays")
    shape = data.draw(SHAPES)
    part = tuple(1 if data.draw(st.booleans()) else n for n in shape)
    part = part[data.draw(st.integers(0, len(part))) :]
    x, y = numbers(part, "float32"), numbers(shape, "int8")
    both("broadcast_to", x, shape)
    both("broadcast_to", x, shape=shape)
    both("broadcast_arrays", x, y)
    both("broadcast_arrays", x)
    assert gr.broadcast_shapes(part, shape) == strict.broadcast_shapes(part, shape)
    with pytest.raises(gr.ShapeError):
        gr.broadcast_shapes((2,), (3,))


@given(data=st.data())
def test_concat_and_stack(data):
    shape = data.draw(NONEMPTY)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for i in range(data.draw(st.integers(1, 3))):
        own = list(shape)
        own[axis] = data.draw(st.integers(0, 3))
        parts.append(numbers(tuple(own), "float32", i))
    both("concat", parts, axis=axis)
    both("concat", parts, axis=None)
    both("concat", tuple(parts[:1]))
    both("stack", [parts[0], parts[0] + 1], axis=axis)
    both("stack", (parts[0],), axis=-1)


def test_concat_promotes():
    for a, b in [("int8", "int32"), ("float32", "float64"), ("int16", "int8")]:
        both("concat", [numbers((2,), a), numbers((3,), b)])
        both("stack", [numbers((2,), a), numbers((2,), b)])


@given(data=st.data())
def test_axes_inserted_and_dropped(data):
    shape = data.draw(SHAPES)
    x = numbers(shape, data.draw(dtypes(*ALL)))
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    both("expand_dims", x, axis=axis)
    both("expand_dims", x, axis)
    ones = [i for i, n in enumerate(shape) if n == 1]
    if ones:
        both("squeeze", x, ones[0])
        both("squeeze", x, axis=tuple(ones))
        both("squeeze", x, axis=ones[-1] - len(shape))


@given(data=st.data())
def test_axes_moved(data):
    needs("permute_dims")
    shape = data.draw(SHAPES)
    x = numbers(shape, "float32")
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    both("permute_dims", x, order)
    both("permute_dims", x, axes=order)
    both("moveaxis", x, order, tuple(range(len(shape))))
    if shape:
        both("moveaxis", x, 0, -1)
        both("moveaxis", x, -1, 0)
        both("flip", x, axis=data.draw(st.integers(-len(shape), len(shape) - 1)))
        both("flip", x, axis=tuple(range(len(shape))))
    both("flip", x)
    if len(shape) >= 2:
        both("matrix_transpose", x)


@given(SHAPES, st.sampled_from([None, True]))
def test_reshape(shape, copy):
    x = numbers(shape, "int32")
    both("reshape", x, (x.size,))
    both("reshape", x, shape=(1, *shape, 1), copy=copy)
    both("reshape", x, shape[::-1], copy=None)
    assert gr.reshape(gr.asarray(x), (x.size,), copy=False).shape == (x.size,)
    if x.size:
        both("reshape", x, (-1,))
        both("reshape", x, (*shape[:1], -1))


@given(data=st.data())
def test_roll_repeat_tile_unstack(data):
    needs("roll")
    shape = data.draw(NONEMPTY)
    x = numbers(shape, "float32")
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    shift = data.draw(st.integers(-6, 6))
    both("roll", x, shift)
    both("roll", x, shift=shift, axis=axis)
    both("roll", x, (shift, 1), axis=(0, axis))
    both("repeat", x, 2)
    both("repeat", x, 2, axis=axis)
    both("repeat", x, np.arange(shape[axis]), axis=axis)
    both("tile", x, (2,))
    both("tile", x, (2, 1, 3))
    both("tile", x, ())
    both("unstack", x, axis=axis)
    both("unstack", x)


# Searching, sets, sorting.


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@given(data=st.data())
def test_arg_reductions(name, data):
    x = numbers(data.draw(NONEMPTY), data.draw(dtypes(*REAL_NUMERIC)))
    keep = data.draw(st.booleans())
    both(name, x)
    both(name, x, keepdims=keep)
    both(name, x, axis=data.draw(st.integers(-x.ndim, x.ndim - 1)), keepdims=keep)


@given(SHAPES, dtypes(*ALL))
def test_nonzero_and_counts(shape, dtype):
    needs("nonzero")
    x = numbers(shape, dtype, low=-1, high=2)
    if shape:
        both("nonzero", x)
    both("count_nonzero", x)
    both("count_nonzero", x, axis=None, keepdims=True)
    for axis in range(-len(shape), len(shape)):
        both("count_nonzero", x, axis=axis)


@given(data=st.data())
def test_where(data):
    shape = data.draw(SHAPES)
    kinds = data.draw(st.sampled_from([BOOL, SIGNED, REAL, COMPLEX]))
    kinds = [d for d in kinds if d in HAVE] or REAL
    a, b = data.draw(st.sampled_from(kinds)), data.draw(st.sampled_from(kinds))
    both("where", numbers(shape, "bool"), numbers(shape, a), numbers(shape[-1:], b))
    both("where", numbers(shape[1:], "bool"), numbers(shape, a), numbers((), b))


@given(st.integers(0, 6), st.sampled_from(["left", "right"]), dtypes(*REAL_NUMERIC))
def test_searchsorted(n, side, dtype):
    needs("searchsorted")
    x = numbers((n,), dtype)
    values = numbers((2, 3), dtype, 5)
    both("searchsorted", np.sort(x), values, side=side)
    both("searchsorted", x, values, side=side, sorter=np.argsort(x))


@pytest.mark.parametrize("name", ["unique_all", "unique_counts", "unique_inverse", "unique_values"])
@given(SHAPES, dtypes(*BOOL, *REAL_NUMERIC))
def test_unique(name, shape, dtype):
    needs(name)
    both(name, np.asarray(np.round(numbers(shape, dtype, low=-2, high=2)), dtype))


def test_unique_keeps_every_nan():
    needs("unique_values")
    x = np.array([np.nan, 1.0, np.nan, 1.0, -0.0, 0.0], "float32")
    for name in ["unique_counts", "unique_values", "unique_inverse", "unique_all"]:
        own = getattr(gr, name)(gr.asarray(x))
        values = own if isinstance(own, gr.Tensor) else own.values
        assert np.isnan(np.asarray(values)).sum() == 2, name
    assert gr.unique_counts(gr.asarray(x)).counts.tolist() == [2, 2, 1, 1]


@given(SHAPES, dtypes(*INTS), st.booleans())
def test_isin(shape, dtype, invert):
    needs("isin")
    x, among = numbers(shape, dtype), numbers((3,), dtype, 3)
    # array_api_strict 2.6 ignores invert.
    own = gr.isin(gr.asarray(x), gr.asarray(among), invert=invert)
    same(own, np.asarray(np.isin(x, among, invert=invert)))
    both("isin", x, 2)


@pytest.mark.parametrize("name", ["sort", "argsort"])
@given(data=st.data())
def test_sort(name, data):
    needs(name)
    shape = data.draw(NONEMPTY)
    dtype = data.draw(dtypes(*REAL_NUMERIC))
    x = numbers(shape, dtype, low=-3, high=3)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    both(name, x, axis=axis)
    both(name, x, axis=axis, descending=True, stable=True)
    both(name, x)
    if name == "sort":
        both(name, x, stable=False)


@given(data=st.data())
def test_take(data):
    shape = data.draw(NONEMPTY)
    x = numbers(shape, data.draw(dtypes(*ALL)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    indices = np.array(data.draw(st.lists(st.integers(0, shape[axis] - 1), max_size=4)), np.int64)
    both("take", x, indices, axis=axis)
    if len(shape) == 1:
        both("take", x, indices)
    along = np.broadcast_to(np.int64(shape[axis] - 1), shape).copy()
    both("take_along_axis", x, along, axis=axis)
    both("take_along_axis", x, np.zeros(shape, np.int64))


# Statistics.

REDUCTIONS = {
    "all": ALL, "any": ALL, "max": REAL_NUMERIC, "min": REAL_NUMERIC, "mean": FLOATING,
    "prod": NUMERIC, "std": REAL, "sum": NUMERIC, "var": REAL,
}  # fmt: skip
EMPTY_IS_FINE = {"all", "any", "prod", "sum"}


@pytest.mark.parametrize("name", REDUCTIONS)
@given(data=st.data())
def test_reductions(name, data):
    shape = data.draw(SHAPES if name in EMPTY_IS_FINE else NONEMPTY)
    dtype = data.draw(dtypes(*REDUCTIONS[name]))
    if dtype in UNSIGNED and "uint64" not in HAVE:
        return
    x = numbers(shape, dtype, low=-2, high=3)
    rtol = 4 * RTOL.get(dtype, 0)
    keep = data.draw(st.booleans())
    both(name, x, rtol=rtol)
    both(name, x, axis=None, keepdims=keep, rtol=rtol)
    for axis in range(-len(shape), len(shape)):
        both(name, x, axis=axis, keepdims=keep, rtol=rtol)
    if shape:
        both(name, x, axis=tuple(range(len(shape))), keepdims=keep, rtol=rtol)
        both(name, x, axis=(0, -1)[: len(shape)], rtol=rtol)


@pytest.mark.parametrize("name", ["sum", "prod"])
@pytest.mark.parametrize("dtype", [d for d in NUMERIC if d in HAVE])
def test_sums_in_another_dtype(name, dtype):
    x = numbers((3, 4), dtype, low=0, high=3)
    wider = "complex128" if dtype in COMPLEX else "float64" if dtype in REAL else "int64"
    both(name, x, dtype=np.dtype(wider), rtol=RTOL.get(dtype, 0))
    both(name, x, dtype=np.dtype(dtype), axis=1, rtol=RTOL.get(dtype, 0))


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("correction", [0, 1, 0.5, 2.0])
def test_corrections(name, correction):
    both(name, numbers((5, 4), "float64"), correction=correction, rtol=1e-13)
    both(name, numbers((5, 4), "float64"), axis=1, correction=correction, rtol=1e-13)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@given(data=st.data())
def test_cumulative(name, data):
    needs(name)
    shape = data.draw(NONEMPTY)
    dtype = data.draw(dtypes(*NUMERIC))
    if dtype in UNSIGNED and "uint64" not in HAVE:
        return
    x = numbers(shape, dtype, low=-2, high=3)
    rtol = 4 * RTOL.get(dtype, 0)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    initial = data.draw(st.booleans())
    both(name, x, axis=axis, include_initial=initial, rtol=rtol)
    wider = "complex128" if dtype in COMPLEX else "float64" if dtype in REAL else "int64"
    both(name, x, axis=axis, dtype=np.dtype(wider), include_initial=initial, rtol=rtol)
    if len(shape) == 1:
        both(name, x, rtol=rtol)


@given(data=st.data())
def test_diff(data):
    needs("diff")
    shape = data.draw(NONEMPTY)
    x = numbers(shape, data.draw(dtypes(*NUMERIC)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    both("diff", x, rtol=1e-6)
    both("diff", x, axis=axis, n=data.draw(st.integers(0, 3)), rtol=1e-5)
    both("diff", x, axis=axis, prepend=x, append=x, rtol=1e-6)


# Products.


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), dtypes(*NUMERIC))
def test_matmul(m, k, n, dtype):
    rtol = 4 * RTOL.get(dtype, 0)
    both("matmul", numbers((m, k), dtype), numbers((k, n), dtype, 1), rtol=rtol)
    both("matmul", numbers((2, m, k), dtype), numbers((k, n), dtype, 1), rtol=rtol)
    both("matmul", numbers((k,), dtype), numbers((k, n), dtype, 1), rtol=rtol)
    both("matmul", numbers((k,), dtype), numbers((k,), dtype, 1), rtol=rtol)


@given(dtypes(*NUMERIC), st.integers(0, 2))
def test_tensordot_and_vecdot(dtype, axes):
    needs("tensordot")
    needs("vecdot")
    rtol = 8 * RTOL.get(dtype, 0)
    x, y = numbers((2, 3, 4), dtype), numbers((3, 4, 2), dtype, 1)
    if axes == 2:
        both("tensordot", x, y, rtol=rtol)
    both("tensordot", x, y, axes=((0,), (2,)), rtol=rtol)
    both("tensordot", x, numbers((4, 3), dtype), axes=((1, 2), (1, 0)), rtol=rtol)
    both("tensordot", numbers((2,), dtype), y, axes=0, rtol=rtol)
    both("vecdot", x, numbers((4,), dtype, 1), rtol=rtol)
    both("vecdot", x, numbers((2, 3, 4), dtype, 1), axis=-2, rtol=rtol)


# Clip.


@given(SHAPES, dtypes(*REAL_NUMERIC))
def test_clip(shape, dtype):
    x = numbers(shape, dtype)
    low, high = numbers(shape[-1:], dtype, 1, 0, 1), numbers(shape[-1:], dtype, 2, 2, 4)
    both("clip", x, 0, 2)
    both("clip", x, min=1)
    both("clip", x, max=1)
    both("clip", x, low, high)
    both("clip", x)
    if dtype in REAL and x.size:
        x.flat[0] = np.nan
        both("clip", x, -1.0, 1.0)


def test_errors():
    """Where the standard requires an error, Girih raises one."""
    x = gr.ones((2, 3))
    for call in (
        lambda: gr.concat([x, gr.ones((2, 4))], axis=0),
        lambda: gr.squeeze(x, 0),
        lambda: gr.expand_dims(x, axis=5),
        lambda: gr.reshape(x, (4,)),
        lambda: gr.matmul(gr.asarray(1.0), x),
        lambda: gr.matmul(x, x),
        lambda: gr.broadcast_to(x, (2, 4)),
        lambda: gr.sum(x, axis=2),
        lambda: (
            gr.ones((2,), dtype=gr.int8) << gr.ones((2,))
            if hasattr(gr.Tensor, "__lshift__")
            else gr.add(x, "a")
        ),
        lambda: gr.asarray([1, 2], copy=False),
    ):
        with pytest.raises(gr.GirihError):
            call()


def test_same_notices_differences():
    """The comparison function of all these tests detects differences."""
    one = strict.ones((2,), dtype=strict.float32)
    same(gr.ones((2,)), one)
    for other in (gr.zeros((2,)), gr.ones((3,)), gr.ones((2,), dtype="float64"), np.ones(2, "f4")):
        with pytest.raises(AssertionError):
            same(other, one)


def test_several_grids_and_arrays_are_tuples():
    for made in (gr.meshgrid(gr.arange(2), gr.arange(3)), gr.meshgrid(gr.arange(2))):
        assert type(made) is tuple
    assert type(gr.broadcast_arrays(gr.ones([2, 1]), gr.ones([3]))) is tuple
    assert type(gr.unstack(gr.ones([2, 1]))) is tuple


@pytest.mark.parametrize("axes", [(0, 1), (-1, 0), (0, 2), (1, -1), (0, 1, -1)])
def test_several_new_axes(axes):
    x = np.ones((2, 3))
    assert gr.expand_dims(gr.asarray(x), axes).shape == np.expand_dims(x, axes).shape
    assert gr.expand_dims(gr.asarray(x), axis=axes).shape == np.expand_dims(x, axes).shape


@pytest.mark.parametrize("value", [0, 3, 2**63 + 1, 2**64 - 1])
def test_searchsorted_of_python_integers_among_uint64(value):
    x = np.array([1, 3, 2**63, 2**64 - 1], np.uint64)
    for side in ("left", "right"):
        got = gr.searchsorted(gr.asarray(x), value, side=side)
        assert got.item() == np.searchsorted(x, np.uint64(value), side=side)


@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "reshape", "broadcast_to"])
def test_signatures_name_the_shape(name):
    assert "shape" in inspect.signature(getattr(gr, name)).parameters


def test_the_length_of_a_scalar_reads_as_numpys():
    with pytest.raises(TypeError, match=r"len\(\) of unsized object"):
        len(gr.asarray(1.0))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_signs_of_zeros_in_complex_results(dtype):
    parts = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf), (0.0, -0.0, 0.5, -0.5, 2.0, -2.0)
    x = np.array([complex(re, im) for re, im in itertools.product(*parts)], dtype)
    got, want = gr.tanh(gr.asarray(x)).numpy(), np.tanh(x)
    for part in ("real", "imag"):
        a, b = getattr(got, part), getattr(want, part)
        np.testing.assert_allclose(a, b, 1e-6, 1e-7)
        np.testing.assert_array_equal(np.signbit(a[b == 0]), np.signbit(b[b == 0]))
    # The standard requires 0 + 0j for both zeros.
    zero = gr.expm1(gr.asarray(np.array([complex(-0.0, 0.0), 0j], dtype))).numpy()
    assert not np.signbit(zero.view(zero.real.dtype)).any()

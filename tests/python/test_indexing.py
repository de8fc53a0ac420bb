"""Indexing and updates against NumPy, over indices that hypothesis makes up."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import girih as gr
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from conftest import close, sample
from hypothesis import assume, given, settings
from hypothesis import strategies as st

FEW = settings(max_examples=60, deadline=None)


def ours(key):
    """The index with half of NumPy's arrays as tensors."""
    if isinstance(key, tuple):
        return tuple(ours(k) for k in key)
    if isinstance(key, np.ndarray) and key.size % 2:
        return gr.asarray(key.copy())
    return key


def array(shape, dtype="float32", seed=0):
    return sample(shape, dtype, seed)


@st.composite
def mixed(draw):
    """A shape and an index of integers, slices, arrays, masks, new axes and an ellipsis."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4))
    common = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
    entries, axis, masks = [], 0, 0
    while axis < len(shape):
        kind = draw(st.sampled_from(["int", "slice", "array", "array", "mask", "new", "stop"]))
        size = shape[axis]
        if kind == "stop":
            break
        if kind == "new":
            entries.append(None)
            if len(entries) > 7:
                break
            continue
        if kind == "int":
            entries.append(draw(st.integers(-size, size - 1)))
        elif kind == "slice":
            entries.append(draw(st.slices(size)))
        elif kind == "array":
            part = draw(st.integers(0, len(common)))
            sizes = tuple(draw(st.sampled_from([1, s])) for s in common[part:])
            elements = st.integers(-size, size - 1)
            entries.append(
                draw(hnp.arrays(draw(st.sampled_from(["i8", "i4"])), sizes, elements=elements))
            )
        elif masks == 0 and (not common or common[-1] in (1,)):
            masks = 1
            count = draw(st.integers(1, len(shape) - axis))
            entries.append(draw(hnp.arrays("?", shape[axis : axis + count])))
            axis += count - 1
        else:
            entries.append(slice(None))
        axis += 1
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), ...)
    return shape, tuple(entries)


@FEW
@given(st.data())
def test_basic_indices(data):
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    key = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    x = array(shape)
    t = gr.asarray(x)
    close(t[key], np.asarray(x[key]))
    value = array(np.shape(x[key]), seed=1)
    y = x.copy()
    y[key] = value
    t[key] = gr.asarray(value)
    close(t, y)


@FEW
@given(st.data())
def test_integer_arrays_for_every_axis(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
    key = data.draw(hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2)))
    x = array(shape)
    close(gr.asarray(x)[ours(key)], x[key])


def reads_nothing(x, key):
    """True if an index of this form has an empty result."""
    zeros = [np.zeros_like(k) if isinstance(k, np.ndarray) and k.dtype != bool else k for k in key]
    try:
        return x[tuple(zeros)].size == 0
    except IndexError:
        return False


@settings(max_examples=250, deadline=None)
@given(mixed())
def test_mixed_indices_read_and_write_as_numpys(case):
    shape, key = case
    x = array(shape)
    try:
        want = np.asarray(x[key])
    except IndexError:
        # Values are looked at where something is read: of an empty result they may be any.
        assume(not reads_nothing(x, key))
        with pytest.raises(IndexError):
            gr.asarray(x)[ours(key)].eval()
        return
    t = gr.asarray(x)
    close(t[ours(key)], want)
    value = array(want.shape, seed=1)
    y = x.copy()
    y[key] = value
    close(t.at[ours(key)].set(value), y)
    z = x.copy()
    np.add.at(z, key, value)
    close(t.at[ours(key)].add(value), z, 1e-5, 1e-5)
    close(t, x)


@settings(max_examples=60, deadline=None)
@given(mixed())
def test_gradients_of_reading_and_writing(case):
    shape, key = case
    x = array(shape, "float64")
    try:
        want = x[key]
    except IndexError:
        return
    weight = array(want.shape, "float64", 1)
    key = ours(key)
    grad = gr.grad(lambda t: (t[key] * gr.asarray(weight)).sum())(gr.asarray(x))
    expected = np.zeros_like(x)
    np.add.at(expected, case[1], weight)
    close(grad, expected, 1e-12, 1e-12)
    value, outer = array(want.shape, "float64", 2), array(shape, "float64", 3)
    for_x, for_value = gr.grad(
        lambda t, v: (t.at[key].set(v) * gr.asarray(outer)).sum(), argnums=(0, 1)
    )(gr.asarray(x), gr.asarray(value))
    kept = outer.copy()
    kept[case[1]] = 0
    close(for_x, kept)
    # Of several values for one element only the last one counts.
    numbers = np.full(shape, -1)
    numbers[case[1]] = np.arange(want.size).reshape(want.shape)
    last = numbers[case[1]] == np.arange(want.size).reshape(want.shape)
    close(for_value, np.where(last, outer[case[1]], 0))


CASES = {
    "mask": (np.array([True, False, True]),),
    "mask of two axes": (np.arange(12).reshape(3, 4) % 3 == 0,),
    "mask of all": (np.arange(60).reshape(3, 4, 5) % 7 == 0,),
    "mask in the middle": (slice(None), np.array([True, False, True, True])),
    "mask beside an array": (np.array([True, False, True]), np.array([0, 3])),
    "mask apart from an array": (np.array([True, False, True]), slice(1, 3), np.array([1, 4])),
    "true": (True,),
    "false": (False,),
    "true among others": (0, True, slice(1)),
    "nothing chosen": (np.zeros(3, bool),),
    "empty list": ([],),
    "empty array": (np.zeros((0, 2), int),),
    "list": ([2, 0, 2],),
    "two lists": ([0, 2], [1, 3]),
    "lists apart": ([0, 2], slice(None), [1, 3]),
    "broadcast": (np.array([[0], [2]]), np.array([1, 3])),
    "ellipsis between": ([0, 2], ..., [1, 3]),
    "ellipsis of nothing": ([0, 2], [1, 0], ..., [1, 3]),
    "new axis between": ([0, 2], None, [1, 3]),
    "int apart": (0, slice(None), [1, 3]),
    "int beside": (slice(None), 1, [1, 3]),
    "NumPy scalar": (np.int64(-1), np.int8(2)),
    "array of no axes": (np.array(1),),
    "backwards between": ([0, 2], slice(None, None, -2), [1, 3]),
    "backwards outside": (slice(None, None, -1), [1, 3]),
    "backwards everywhere": (slice(None, None, -1), [1, 3], slice(None, None, -2)),
}


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_named_cases(name, dtype):
    key = CASES[name]
    x = array((3, 4, 5), dtype)
    t = gr.asarray(x)
    close(t[key], x[key])
    value = array(x[key].shape, dtype, 1)
    y = x.copy()
    y[key] = value
    t[key] = value
    close(t, y)
    # A value that broadcasts.
    one = value.ravel()[:1].reshape(()) if value.size else np.asarray(1, dtype)
    y[key] = one
    t[key] = gr.asarray(one)
    close(t, y)


@pytest.mark.parametrize("name", ["set", "add", "multiply", "min", "max", "subtract", "divide"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16"])
def test_updates_of_repeated_elements(name, dtype):
    if name == "divide" and dtype == "int32":
        return
    x = array((4, 3), dtype)
    index = np.array([[0, 2, 0], [3, 3, 0]])
    value = np.asarray(array((2, 3, 3), dtype, 1) + np.asarray(5, dtype), dtype)
    want = x.copy()
    if name == "set":
        for i, v in zip(index.ravel(), value.reshape(-1, 3), strict=True):
            want[i] = v
    else:
        ufunc = {"min": np.minimum, "max": np.maximum}.get(name) or getattr(np, name)
        ufunc.at(want, index, value)
    got = getattr(gr.asarray(x).at[index], name)(value)
    close(got, want, 2e-2 if dtype == "float16" else 1e-5, 1e-5)


def test_updates_are_the_same_for_any_number_of_threads():
    index = np.random.default_rng(0).integers(0, 50, 5000)
    value = array((5000, 40))
    results = []
    for threads in (1, 4):
        gr.set_num_threads(threads)
        x = gr.zeros([50, 40])
        got = [x.at[index].set(value), x.at[index].add(value), x.at[index].multiply(value)]
        results.append([g.numpy().tobytes() for g in got])
    gr.set_num_threads(2)
    assert results[0] == results[1]


def test_nan_wins_minima_and_maxima():
    x = gr.asarray([1.0, float("nan"), 3.0])
    value = [float("nan"), 5.0, 9.0]
    assert np.isnan(x.at[[0, 1, 2]].max(value).numpy()).tolist() == [True, True, False]
    assert np.isnan(x.at[[0, 1, 2]].min(value).numpy()).tolist() == [True, True, False]


def test_get_power_and_apply():
    x = gr.asarray([1.0, 2.0, 3.0, 4.0])
    assert x.at[1:3].get().tolist() == [2, 3]
    assert x.at[1:3].power(2).tolist() == [1, 4, 9, 4]
    assert x.at[[1, 3]].power(2.0).tolist() == [1, 4, 3, 16]
    assert x.at[[0, 3]].apply(lambda e: e * 10).tolist() == [10, 2, 3, 40]
    with pytest.raises(gr.DTypeError):
        x.at[0].apply(lambda e: e.astype("float64"))


def test_assignment_is_seen_by_every_reference_to_the_object_and_by_no_other():
    x = gr.zeros([3])
    same, view, before = x, x[0], x + 0
    x[0] = 5
    x += 1
    assert same is x
    assert same.tolist() == [6, 1, 1]
    assert view.item() == 0
    assert before.tolist() == [0, 0, 0]
    y = x[0]
    y += 1
    assert x[0].item() == 6
    x[1:] += 1
    assert x.tolist() == [6, 2, 2]


def test_copies_and_arguments_keep_their_value():
    x = gr.asarray([1.0, 2.0])
    copied, deep, positive = copy.copy(x), copy.deepcopy(x), +x
    of_lists = [x, gr.asarray(x, copy=True)]
    x[0] = 9
    assert [t.tolist()[0] for t in (copied, deep, positive, *of_lists)] == [1, 1, 1, 9, 1]
    assert pickle.loads(pickle.dumps(x)).tolist() == [9, 2]


def test_assignment_waits_for_threads_that_read_the_object():
    x = gr.ones([400, 400])

    def read():
        for _ in range(20):
            x.tolist()

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for i in range(50):
            x[i] = i
        [r.result() for r in readers]
    assert x[49, 0].item() == 49


def test_the_documentation_says_what_happens():
    text = (Path(__file__).parents[2] / "docs" / "indexing.md").read_text()
    names = {"gr": gr}
    exec(text.split("```python")[1].split("```")[0], names)
    assert names["row"].tolist() == [0, 0, 0]
    assert names["same"].tolist() == names["x"].tolist() == [[1, 6, 1], [0, 0, 0]]


def test_assignment_is_lazy():
    x = gr.asarray(np.zeros(4, "f4"))
    before = gr.cache_stats()["runs"]
    x[1] = 2.0
    x[x > 1] = gr.asarray(7.0)
    x[[0, 2]] = 3
    x *= 2
    assert gr.cache_stats()["runs"] == before
    assert x.is_lazy
    assert x.tolist() == [6, 14, 6, 0]


IN_PLACE = {
    "+=": "x += y",
    "-=": "x -= y",
    "*=": "x *= y",
    "/=": "x /= y",
    "//=": "x //= y",
    "%=": "x %= y",
    "**=": "x **= y",
    "&=": "x &= y",
    "|=": "x |= y",
    "^=": "x ^= y",
    "@=": "x @= y",
}


def assign(op, x, y):
    names = {"x": x, "y": y}
    exec(IN_PLACE[op], names)
    return names["x"]


DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float32", "float64"]


@pytest.mark.parametrize("op", IN_PLACE)
def test_operators_in_place_keep_the_dtype_or_fail_as_numpys(op):
    shape = (3, 3)
    for left in DTYPES:
        for right in DTYPES:
            x, y = array(shape, left) + np.asarray(1, left), array(shape, right, 1)
            y = np.where(y == 0, np.asarray(1, right), y) if op in ("/=", "//=", "%=") else y
            y = np.abs(y) if op == "**=" and right != "bool" else y
            t, same = gr.asarray(x), None
            want, error = x.copy(), None
            try:
                with np.errstate(all="ignore"):
                    want = assign(op, want, y)
            except (TypeError, ValueError) as e:
                error = e
            # NumPy subtracts no bool, and has no powers of them; here they would be integers.
            if error is not None:
                with pytest.raises(TypeError):
                    assign(op, t, gr.asarray(y))
                close(t, x)
                continue
            if left == "bool" and op not in ("&=", "|=", "^="):
                continue
            same = t
            t = assign(op, t, gr.asarray(y))
            assert t is same
            assert t.dtype.name == left
            close(t, want, 1e-5, 1e-5)


def test_operators_in_place_keep_the_shape():
    x = gr.zeros([3])
    with pytest.raises(gr.ShapeError):
        x += gr.zeros([2, 3])
    assert x.shape == (3,)
    x += [1, 2, 3]
    assert x.tolist() == [1, 2, 3]


def test_assigning_in_a_differentiated_function():
    def f(x):
        y = x
        y[0] = x[1] * 3
        y *= 2
        return (y * y).sum()

    x = gr.asarray([1.0, 2.0])
    # y = [6 b, 2 b], so f = 40 b².
    assert gr.grad(f)(x).tolist() == [0, 2 * 40 * 2]
    assert x.tolist() == [1, 2]


def test_assigned_values_are_converted_as_numpys():
    x = gr.zeros([3], dtype="int32")
    x[0] = 2.7
    x[1] = gr.asarray(-3.9)
    x[2] = True
    assert x.tolist() == [2, -3, 1]
    for bad in (float("nan"), 1e12, 1 << 40):
        with pytest.raises(ValueError, match="fit"):
            x[0] = bad
    x = np.zeros((2, 3))
    t = gr.asarray(x.copy())
    t[0] = np.ones((1, 1, 3))
    assert t.tolist()[0] == [1, 1, 1]


BAD = {
    "too many": (lambda x: x[0, 0, 0], IndexError),
    "two ellipses": (lambda x: x[..., ...], IndexError),
    "out of range": (lambda x: x[2], IndexError),
    "out of range, negative": (lambda x: x[0, -4], IndexError),
    "huge": (lambda x: x[10**30], IndexError),
    "list out of range": (lambda x: x[[0, 2]], IndexError),
    "second list out of range": (lambda x: x[[0, 1], [0, 3]], IndexError),
    "negative in the second array": (lambda x: x[[0, 1], np.array([0, -4])], IndexError),
    "of a result without elements": (lambda x: x[:, :0][[5]], IndexError),
    "tensor out of range": (lambda x: x[gr.asarray([0, 2])].eval(), IndexError),
    "second tensor out of range": (lambda x: x[[0, 1], gr.asarray([0, 3])].eval(), IndexError),
    "negative in the second": (lambda x: x[[0, 1], gr.asarray([0, -4])].eval(), IndexError),
    "no broadcast": (lambda x: x[[0, 1], [0, 1, 2]], IndexError),
    "mask too long": (lambda x: x[np.ones(3, bool)], IndexError),
    "mask of the wrong axis": (lambda x: x[:, np.ones(2, bool)], IndexError),
    "floats": (lambda x: x[gr.asarray([0.5])], TypeError),
    "string": (lambda x: x["a"], TypeError),
    "zero step": (lambda x: x[::0], ValueError),
    "slice of floats": (lambda x: x[0.5:], ValueError),
    "value too large": (lambda x: x.__setitem__(0, [1.0, 2.0]), ValueError),
    "values for a mask": (lambda x: x.__setitem__(x > 5, [1.0, 2.0]), ValueError),
    "update out of range": (lambda x: x.at[[5]].set(1.0), IndexError),
    "update out of a tensor's range": (
        lambda x: x.at[gr.asarray([5])].set(1.0).eval(), IndexError),
    "update of an empty axis": (lambda x: x[:0].at[[0]].add(1.0), IndexError),
    "put out of range": (lambda x: gr.put_along_axis(x, [[3]], 1.0, axis=1).eval(), IndexError),
    "scatter changes kind": (lambda x: x.astype("int32").at[0].add(0.5), TypeError),
    "division of integers": (lambda x: x.astype("int32").at[0].divide(2), TypeError),
    "where with one": (lambda x: gr.where(x > 0, x), ValueError),
    "nonzero of a scalar": (lambda x: gr.nonzero(x.sum()), ValueError),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_mistakes_have_the_exceptions_of_numpy(name):
    f, error = BAD[name]
    with pytest.raises(error) as caught:
        f(gr.zeros([2, 3]))
    assert isinstance(caught.value, gr.GirihError)

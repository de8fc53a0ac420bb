"""Rules for indices out of range: clip, wrap, and fill or drop."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

X = np.arange(12.0).reshape(3, 4)
AT = np.array([-9, -3, -1, 0, 2, 3, 7])


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_take_is_numpys(mode, axis):
    np.testing.assert_array_equal(gr.take(X, AT, axis, mode=mode), np.take(X, AT, axis, mode=mode))
    at = AT.reshape(7, 1)
    compiled = gr.compile(lambda x, at: x.take(at, axis, mode=mode))
    np.testing.assert_array_equal(
        compiled(gr.asarray(X), gr.asarray(at)), np.take(X, at, axis, mode=mode)
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint16", "bool", "complex64"])
def test_take_fills_what_is_not_there(dtype):
    x = gr.asarray(X.astype(dtype))
    nothing = {"int8": -128, "uint16": 65535, "bool": True}.get(dtype, np.nan)
    got = gr.take(x, AT, 0, mode="fill").numpy()
    inside = (AT >= -3) & (AT < 3)
    np.testing.assert_array_equal(got[inside], X.astype(dtype)[AT[inside]])
    np.testing.assert_array_equal(got[~inside], np.full((3, 4), nothing, dtype))
    own = gr.take(x, AT, 0, mode="fill", fill_value=1).numpy()
    np.testing.assert_array_equal(own[~inside], np.ones((3, 4), dtype))
    assert gr.take(x, AT, 0, fill_value=0).dtype == x.dtype


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8, np.int64])
def test_indices_of_every_dtype_keep_their_values(dtype):
    far = np.iinfo(dtype).max
    at = np.array([0, 2, far], dtype)
    assert gr.take([1, 2, 3], at, mode="clip").tolist() == [1, 3, 3]
    assert gr.take([1, 2, 3], at, mode="wrap").tolist() == [1, 3, 1 + int(far) % 3]
    assert gr.take([1, 2, 3], at, mode="fill", fill_value=9).tolist() == [1, 3, 9]
    assert gr.asarray([1, 2, 3]).at[gr.asarray(at)].set(0, mode="drop").tolist() == [0, 2, 0]


def test_empty_axes_and_no_indices():
    none = gr.zeros([0, 2])
    assert gr.take(none, [1, 5], 0, mode="fill", fill_value=7.0).tolist() == [[7.0, 7.0]] * 2
    for mode in ("clip", "wrap", "fill"):
        assert gr.take(none, gr.zeros([0], dtype=gr.int64), 0, mode=mode).shape == (0, 2)
    for mode in ("clip", "wrap"):
        with pytest.raises(gr.IndexOutOfBoundsError):
            gr.take(none, [1], 0, mode=mode).eval()


def read(x, key, mode, fill=np.nan):
    """What `x.at[key].get(mode=mode)` gives, for keys of arrays and slices."""
    arrays = [np.asarray(k) for k in key if not isinstance(k, slice)]
    axes = [i for i, k in enumerate(key) if not isinstance(k, slice)]
    moved, valid = [], np.ones(np.broadcast_shapes(*(a.shape for a in arrays)), bool)
    for axis, at in zip(axes, arrays, strict=True):
        n = x.shape[axis]
        at = at % n if mode == "wrap" else np.where(at < 0, at + n, at)
        valid = valid & (at >= 0) & (at < n)
        moved.append(np.clip(at, 0, n - 1))
    full = list(key)
    for axis, at in zip(axes, moved, strict=True):
        full[axis] = at
    out = x[tuple(full)].astype(float)
    if mode in ("fill", "drop"):
        mask = np.ones_like(x, bool)
        mask = mask[tuple(full)]
        lead = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
        shape = (1,) * lead + valid.shape + (1,) * (mask.ndim - lead - valid.ndim)
        out = np.where(valid.reshape(shape), out, fill)
    return out, tuple(full), valid


KEYS = [
    (np.array([0, -1, 5]),),
    (slice(None), np.array([[0, -9], [3, 4]])),
    (np.array([1, 7, -2]), np.array([0, 1, 9])),
    (np.array([1, 7, -2]), slice(1, 3), np.array([0, -6, 1])),
    (slice(None, None, -1), np.array([2, 11]), np.array([[-1], [9]])),
]


@pytest.mark.parametrize("mode", ["clip", "wrap", "fill", "drop"])
@pytest.mark.parametrize("number", range(len(KEYS)))
def test_at_reads_and_updates(number, mode):
    key = KEYS[number]
    x = np.arange(24.0).reshape(3, 4, 2)
    expected, inside, valid = read(x, key, mode)
    tensors = tuple(k if isinstance(k, slice) else gr.asarray(k) for k in key)
    np.testing.assert_array_equal(gr.asarray(x).at[tensors].get(mode=mode), expected)
    if mode in ("fill", "drop"):
        filled = read(x, key, mode, 5.0)[0]
        np.testing.assert_array_equal(gr.asarray(x).at[tensors].get(fill_value=5.0), filled)
    # Add one to each of the elements, as often as it is named.
    counts = np.zeros_like(x)
    np.add.at(counts, inside, 1.0)
    if mode in ("fill", "drop"):
        left_out = np.zeros_like(x)
        arrays = [k for k in inside if not isinstance(k, slice)]
        arrays = np.broadcast_arrays(*arrays)
        axes = iter(arrays)
        only = tuple(k if isinstance(k, slice) else next(axes)[~valid] for k in inside)
        np.add.at(left_out, only, 1.0)
        counts -= left_out
    got = gr.compile(lambda x: x.at[tensors].add(1.0, mode=mode))(gr.asarray(x))
    np.testing.assert_array_equal(got, x + counts)
    slope = gr.grad(
        lambda x: (
            x.at[tensors]
            .get(mode=mode, **({"fill_value": 0.0} if mode in ("fill", "drop") else {}))
            .sum()
        )
    )(gr.asarray(x))
    np.testing.assert_array_equal(slope, counts)


def test_numbers_out_of_range_follow_the_mode_too():
    x = gr.asarray([1.0, 2.0])
    assert x.at[5].set(9.0, mode="drop").tolist() == [1.0, 2.0]
    assert x.at[5].set(9.0, mode="clip").tolist() == [1.0, 9.0]
    assert x.at[-3].get(mode="fill", fill_value=0.0).item() == 0.0
    assert x.at[[0, 5]].multiply(3.0, mode="drop").tolist() == [3.0, 2.0]
    with pytest.raises(gr.IndexOutOfBoundsError):
        x.at[5].set(9.0)
    for call in (
        lambda: x.at[0].get(mode="nearest"),
        lambda: gr.take(x, 0, mode="clip", fill_value=1.0),
        lambda: x.at[0].set(1.0, mode="nothing"),
    ):
        with pytest.raises(gr.InvalidArgumentError, match="mode"):
            call()
    with pytest.raises(gr.DTypeError):
        gr.take(x, 0.5, mode="clip")

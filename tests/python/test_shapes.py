"""Views, placement and indexing against NumPy. One row per case, with the call in both libraries."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import close, sample

VIEWS = {
    "reshape": (lambda t: t.reshape(4, 6), lambda x: x.reshape(4, 6)),
    "reshape to a list": (lambda t: t.reshape([6, 4]), lambda x: x.reshape(6, 4)),
    "reshape with -1": (lambda t: gr.reshape(t, (3, -1)), lambda x: x.reshape(3, -1)),
    "flatten": (lambda t: t.flatten(), lambda x: x.ravel()),
    "permute": (lambda t: t.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    "permute, negative": (lambda t: gr.permute(t, [-1, 0, 1]), lambda x: x.transpose(2, 0, 1)),
    "transpose": (lambda t: t.transpose(), lambda x: x.T),
    "transpose two": (lambda t: t.transpose(0, 2), lambda x: x.swapaxes(0, 2)),
    "transpose, all axes": (lambda t: gr.transpose(t, (1, 0, 2)), lambda x: x.transpose(1, 0, 2)),
    "swapaxes": (lambda t: t.swapaxes(0, -1), lambda x: x.swapaxes(0, -1)),
    "T": (lambda t: t.T, lambda x: x.T),
    "mT": (lambda t: t.mT, lambda x: x.swapaxes(-1, -2)),
    "broadcast_to": (
        lambda t: t.broadcast_to((5, 2, 3, 4)),
        lambda x: np.broadcast_to(x, (5, 2, 3, 4)),
    ),
    "expand": (lambda t: t[:, :1].expand(2, 7, 4), lambda x: np.broadcast_to(x[:, :1], (2, 7, 4))),
    "unsqueeze": (lambda t: t.unsqueeze(1), lambda x: x[:, None]),
    "unsqueeze last": (lambda t: t.unsqueeze(dim=-1), lambda x: x[..., None]),
    "expand_dims": (lambda t: gr.expand_dims(t, 0), lambda x: x[None]),
    "squeeze": (lambda t: t[:1, :, 1:2].squeeze(), lambda x: x[:1, :, 1:2].squeeze()),
    "squeeze one": (lambda t: t[:1, :, 1:2].squeeze(0), lambda x: x[:1, :, 1:2].squeeze(0)),
    "flip": (lambda t: t.flip(), lambda x: np.flip(x)),
    "flip axes": (lambda t: gr.flip(t, axis=(0, -1)), lambda x: np.flip(x, (0, -1))),
    "concat": (lambda t: gr.concat([t, t[:1], t], axis=0), lambda x: np.concatenate([x, x[:1], x])),
    "concat dim": (
        lambda t: gr.concat([t, t * 2], dim=-1),
        lambda x: np.concatenate([x, x * 2], -1),
    ),
    "concatenate": (lambda t: gr.concatenate((t, t), 1), lambda x: np.concatenate((x, x), 1)),
    "stack": (lambda t: gr.stack([t, t + 1]), lambda x: np.stack([x, x + 1])),
    "stack last": (lambda t: gr.stack([t, t], axis=-1), lambda x: np.stack([x, x], -1)),
    "pad": (lambda t: gr.pad(t, 1), lambda x: np.pad(x, 1)),
    "pad pair": (
        lambda t: gr.pad(t, (1, 2), value=3),
        lambda x: np.pad(x, (1, 2), constant_values=3),
    ),
    "pad per axis": (
        lambda t: gr.pad(t, ((0, 1), (2, 0), (0, 0))),
        lambda x: np.pad(x, ((0, 1), (2, 0), (0, 0))),
    ),
    "index": (lambda t: t[1], lambda x: x[1]),
    "negative index": (lambda t: t[-1, -2], lambda x: x[-1, -2]),
    "all indices": (lambda t: t[1, 2, 3], lambda x: x[1, 2, 3]),
    "slice": (lambda t: t[:, 1:3], lambda x: x[:, 1:3]),
    "step": (lambda t: t[::2, :, 1::2], lambda x: x[::2, :, 1::2]),
    "negative step": (lambda t: t[::-1, ::-2, 3:0:-1], lambda x: x[::-1, ::-2, 3:0:-1]),
    "out of range slice": (lambda t: t[5:, -99:99], lambda x: x[5:, -99:99]),
    "ellipsis": (lambda t: t[..., 1], lambda x: x[..., 1]),
    "ellipsis inside": (lambda t: t[0, ..., ::2], lambda x: x[0, ..., ::2]),
    "new axes": (lambda t: t[None, :, None, 0], lambda x: x[None, :, None, 0]),
    "empty slice": (lambda t: t[:, 2:2], lambda x: x[:, 2:2]),
    "index tensor": (lambda t: t[gr.asarray([1, 0, 1])], lambda x: x[np.array([1, 0, 1])]),
    "index list": (lambda t: t[[1, 0, -1]], lambda x: x[[1, 0, -1]]),
    "take": (
        lambda t: t.take(gr.asarray([[0, 2], [1, -1]]), axis=1),
        lambda x: x.take([[0, 2], [1, -1]], 1),
    ),
    "take flat": (lambda t: gr.take(t, gr.asarray([0, 23, -1])), lambda x: x.take([0, 23, -1])),
    "view of view": (
        lambda t: t.T[1:][::-1].reshape(-1)[::3],
        lambda x: x.T[1:][::-1].reshape(-1)[::3],
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "uint8"])
@pytest.mark.parametrize("case", VIEWS)
def test_views_and_placement(case, dtype):
    ours, numpys = VIEWS[case]
    x = sample((2, 3, 4), dtype)
    if dtype == "bool" and case in ("concat dim", "stack", "pad pair"):
        pytest.skip("arithmetic on bool")
    got = ours(gr.asarray(x))
    want = np.asarray(numpys(x))
    assert got.shape == want.shape
    close(got, want.astype(dtype))


@pytest.mark.parametrize("case", ["flatten", "transpose", "flip", "pad", "stack", "T"])
def test_views_of_empty_and_scalar_tensors(case):
    ours, numpys = VIEWS[case]
    shapes = [(0,), (2, 0, 3), (1,)] if case == "T" else [(), (0,), (2, 0, 3), (1,)]
    for shape in shapes:
        x = sample(shape, "float32")
        close(ours(gr.asarray(x)), np.asarray(numpys(x)))


@pytest.mark.parametrize(
    ("shape", "to"),
    [
        ((2, 3), (-1, -1)), ((0, 3), (-1, 0)), ((0,), (-1, 0)), ((2, 3), (-1, 4)), ((2, 3), (7,)),
        ((2, 3), (0, -1)), ((), (2,)), ((1,), (-1, -1)),
    ],
)  # fmt: skip
def test_a_reshape_that_does_not_fit_is_an_error(shape, to):
    with pytest.raises(ValueError, match=r"."):
        np.zeros(shape).reshape(to)
    for reshape in (lambda x: x.reshape(to), lambda x: gr.reshape(x, to), lambda x: x.view(*to)):
        with pytest.raises(gr.ShapeError, match="reshape"):
            reshape(gr.zeros(shape))


def test_a_size_that_is_left_out_follows_from_the_others():
    for shape, to in (((0, 3), (-1, 3)), ((2, 6), (3, -1, 2)), ((), (-1,)), ((2, 0), (2, -1))):
        assert gr.zeros(shape).reshape(to).shape == np.zeros(shape).reshape(to).shape


def test_shapes_broadcast_as_numpys():
    rng = np.random.default_rng(1)
    draw = lambda: tuple(rng.choice([0, 1, 1, 2, 3], size=rng.integers(0, 5)).tolist())
    fitting = 0
    for _ in range(10_000):
        a, b = draw(), draw()
        if rng.random() < 0.5:
            # Mostly one that fits: some of the axes, some of them of size 1.
            b = tuple(1 if rng.random() < 0.4 else n for n in a[rng.integers(0, len(a) + 1) :])
        try:
            expected = np.broadcast_shapes(a, b)
        except ValueError:
            with pytest.raises(gr.ShapeError):
                gr.zeros(a) + gr.zeros(b)
        else:
            fitting += 1
            assert (gr.zeros(a) + gr.zeros(b)).shape == expected
    assert 5000 < fitting < 9500


@pytest.mark.parametrize(("sections", "axis"), [(3, 0), (2, 1), ([1, 4], 0), ([2], -1), ([], 0)])
def test_split(sections, axis):
    x = sample((6, 4), "float32")
    parts = gr.split(gr.asarray(x), sections, axis=axis)
    wanted = np.split(x, sections, axis)
    assert len(parts) == len(wanted)
    for got, want in zip(parts, wanted, strict=True):
        close(got, want)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["take_along_axis", "gather"])
def test_take_along_axis(name, axis):
    x = sample((4, 5), "float32")
    i = np.argsort(x, axis)
    close(
        getattr(gr, name)(gr.asarray(x), gr.asarray(i), axis=axis), np.take_along_axis(x, i, axis)
    )


@pytest.mark.parametrize("index_dtype", ["int32", "int64", "uint8"])
def test_one_hot(index_dtype):
    i = np.array([[0, 2], [1, 2]], index_dtype)
    close(gr.one_hot(gr.asarray(i), 3), np.eye(3, dtype="f4")[i])
    close(gr.one_hot(gr.asarray(i), 3, dtype=gr.int8), np.eye(3, dtype="i1")[i])


CREATIONS = {
    "arange": (lambda: gr.arange(7), lambda: np.arange(7)),
    "arange from": (lambda: gr.arange(2, 7), lambda: np.arange(2, 7)),
    "arange step": (lambda: gr.arange(7, -3, -2), lambda: np.arange(7, -3, -2)),
    "arange empty": (lambda: gr.arange(3, 1), lambda: np.arange(3, 1)),
    "arange float": (lambda: gr.arange(0.0, 1.0, 0.25), lambda: np.arange(0, 1, 0.25, dtype="f4")),
    "arange dtype": (lambda: gr.arange(5, dtype=gr.float64), lambda: np.arange(5.0)),
    "linspace": (lambda: gr.linspace(0, 1, 5), lambda: np.linspace(0, 1, 5, dtype="f4")),
    "linspace open": (
        lambda: gr.linspace(2, -2, 4, endpoint=False),
        lambda: np.linspace(2, -2, 4, endpoint=False, dtype="f4"),
    ),
    "linspace one": (lambda: gr.linspace(3, 4, 1), lambda: np.linspace(3, 4, 1, dtype="f4")),
    "eye": (lambda: gr.eye(3), lambda: np.eye(3, dtype="f4")),
    "eye wide": (lambda: gr.eye(2, 4, 1, dtype=gr.int32), lambda: np.eye(2, 4, 1, dtype="i4")),
    "full": (lambda: gr.full([2, 3], 7), lambda: np.full((2, 3), 7)),
    "full float": (lambda: gr.full((2,), 1.5), lambda: np.full(2, 1.5, "f4")),
    "zeros": (lambda: gr.zeros(2, 3), lambda: np.zeros((2, 3), "f4")),
    "zeros scalar": (lambda: gr.zeros([]), lambda: np.zeros((), "f4")),
    "ones": (lambda: gr.ones((4,), dtype="uint8"), lambda: np.ones(4, "u1")),
    "zeros_like": (lambda: gr.zeros_like(gr.arange(3)), lambda: np.zeros(3, "i8")),
    "ones_like": (lambda: gr.ones_like(gr.arange(3), dtype=gr.float32), lambda: np.ones(3, "f4")),
    "full_like": (lambda: gr.full_like(gr.arange(3), 9), lambda: np.full(3, 9)),
    "asarray list": (lambda: gr.asarray([[1, 2], [3, 4]]), lambda: np.array([[1, 2], [3, 4]])),
    "asarray floats": (lambda: gr.asarray([1.0, 2]), lambda: np.array([1, 2], "f4")),
    "asarray bools": (lambda: gr.asarray([True, False]), lambda: np.array([True, False])),
    "asarray scalar": (lambda: gr.asarray(3), lambda: np.asarray(3)),
    "asarray empty": (lambda: gr.asarray([]), lambda: np.zeros(0, "f4")),
    "asarray dtype": (lambda: gr.asarray([1, 2], dtype="int8"), lambda: np.array([1, 2], "i1")),
    "tensor": (lambda: gr.tensor(((1.5,), (2.5,))), lambda: np.array([[1.5], [2.5]], "f4")),
}


@pytest.mark.parametrize("case", CREATIONS)
def test_creation(case):
    ours, numpys = CREATIONS[case]
    close(ours(), numpys(), 1e-6, 1e-7)


def test_random_numbers_follow_the_seed_in_recording_order():
    def draw(order):
        gr.manual_seed(7)
        tensors = [gr.randn([3]), gr.rand(2, 2), gr.randint(0, 10, [4])]
        for i in order:
            tensors[i].eval()
        return [t.tolist() for t in tensors]

    first = draw([0, 1, 2])
    assert first == draw([2, 1, 0])
    assert first != [
        gr.randn([3]).tolist(),
        gr.rand(2, 2).tolist(),
        gr.randint(0, 10, [4]).tolist(),
    ]


def test_random_distributions():
    n = 200_000
    normal = gr.randn([n]).numpy()
    assert abs(normal.mean()) < 0.01
    assert abs(normal.std() - 1) < 0.01
    uniform = gr.rand([n]).numpy()
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.005
    integers = gr.randint(-3, 4, [n]).numpy()
    counts = np.bincount(integers + 3)
    assert len(counts) == 7
    assert abs(counts / n - 1 / 7).max() < 0.005
    for dtype in (gr.float16, gr.bfloat16, gr.float64):
        assert gr.rand([1000], dtype=dtype).dtype == dtype
        assert (gr.rand([1000], dtype=dtype) < 1).all().item()


def test_draws_are_evaluated_once():
    x = gr.randn([10])
    assert x.tolist() == x.tolist()
    assert (x - x).abs().sum().item() == 0


@pytest.mark.parametrize(
    "bounds",
    [(2**60, 2**60 + 3, 1), (-(2**63), -(2**63) + 5, 2), (2**63 - 1, 2**63 - 4, -1), (3, 9, -1),
     (9, 3, 1), (0, -7, -3), (5, 5, 1), (0, 7, 100)],
)  # fmt: skip
def test_arange_of_integers_is_exact(bounds):
    close(gr.arange(*bounds), np.arange(*bounds, dtype=np.int64))


@pytest.mark.parametrize(
    "bounds",
    [(0, 3, 0.2), (-1, -4, -0.9), (-1, -20, -1.2), (0.5, 3, 1), (-2.5, 2, 1.5), (3, 0, 0.5),
     (10, 0, np.inf), (0, 10, np.inf), (0, -10, -np.inf), (2.5, 2.5, 0.5), (0, 1e-300, 1e300)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_arange_by_steps_that_are_not_whole(bounds, dtype):
    got = gr.arange(*bounds, dtype=getattr(gr, dtype)).numpy()
    want = np.arange(*bounds, dtype=dtype if "int" in dtype else "float64")
    np.testing.assert_allclose(got, want, rtol=0 if "int" in dtype else 1e-6)


def test_full_of_a_tensor_is_lazy_and_exact():
    value = gr.asarray(2**60 + 1)
    lazy = value + 0
    assert gr.full([2], lazy).is_lazy
    assert lazy.is_lazy
    assert gr.full([2], lazy).tolist() == [2**60 + 1] * 2
    assert gr.full_like(gr.zeros([2]), np.float32(0.5)).tolist() == [0.5, 0.5]
    gradient = gr.grad(lambda v: (gr.full([3], v) ** 2).sum())(gr.asarray(2.0))
    assert gradient.item() == 12.0

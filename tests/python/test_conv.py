"""Convolutions, poolings, windows and interpolation, against loops over the elements."""

from __future__ import annotations

import girih as gr
import networks_reference as reference
import numpy as np
import pytest
from conftest import Counters, close, sample

# name: shapes of x and weight, bias, options
CONVOLUTIONS = {
    "1d": ((2, 3, 7), (4, 3, 3), True, {}),
    "1d stride": ((1, 2, 8), (3, 2, 3), False, {"stride": 2}),
    "1d dilation and padding": ((2, 2, 6), (2, 2, 3), True, {"dilation": 2, "padding": 2}),
    "1d pairs": ((1, 2, 5), (2, 2, 2), False, {"padding": ((0, 3),)}),
    "1d groups": ((2, 4, 5), (6, 2, 2), True, {"groups": 2}),
    "1d pointwise": ((2, 3, 5), (4, 3, 1), True, {}),
    "1d kernel as large": ((1, 2, 4), (2, 2, 4), False, {}),
    "2d": ((2, 3, 6, 5), (4, 3, 3, 2), True, {}),
    "2d all": ((2, 4, 7, 8), (6, 2, 3, 2), True, {"stride": (2, 3), "padding": (1, 2), "dilation": (2, 1), "groups": 2}),
    "2d depthwise": ((1, 3, 5, 5), (3, 1, 3, 3), False, {"groups": 3, "padding": 1}),
    "2d depthwise doubled": ((1, 2, 5, 5), (4, 1, 3, 3), False, {"groups": 2}),
    "2d depthwise by two": ((2, 3, 7, 9), (3, 1, 3, 3), True, {"groups": 3, "padding": 1, "stride": 2}),
    "2d depthwise by two along rows": ((1, 2, 9, 38), (4, 1, 2, 3), True, {"groups": 2, "padding": (1, 0), "stride": (3, 2)}),
    "2d depthwise by two and three": ((1, 2, 5, 9), (2, 1, 3, 3), False, {"groups": 2, "stride": (2, 3)}),
    "1d depthwise by two": ((1, 2, 99), (4, 1, 4), True, {"groups": 2, "stride": 2, "dilation": 3}),
    "2d pointwise stride": ((1, 2, 5, 5), (3, 2, 1, 1), False, {"stride": 2}),
    "2d stride leaves a rest": ((1, 1, 8, 8), (1, 1, 3, 3), False, {"stride": 3}),
    "2d empty batch": ((0, 2, 5, 5), (3, 2, 3, 3), True, {}),
    "3d": ((1, 2, 4, 5, 4), (2, 2, 2, 3, 2), True, {"stride": (1, 2, 1), "padding": (0, 1, 1)}),
}  # fmt: skip
TRANSPOSED = {
    "1d": ((2, 3, 4), (3, 2, 3), True, {}),
    "1d stride": ((1, 2, 4), (2, 3, 3), True, {"stride": 2}),
    "1d stride over the kernel": ((1, 2, 3), (2, 1, 2), False, {"stride": 4, "output_padding": 3}),
    "1d padded and dilated": ((1, 2, 5), (2, 2, 3), True, {"padding": 2, "dilation": 2}),
    "1d output padding by dilation": ((1, 1, 4), (1, 1, 2), False, {"dilation": 3, "output_padding": 2}),
    "2d all": ((2, 4, 4, 3), (4, 3, 3, 2), True, {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2), "groups": 2, "dilation": (1, 2)}),
    "2d padding beyond the kernel": ((1, 1, 6, 6), (1, 1, 2, 2), False, {"padding": 2}),
    "3d": ((1, 2, 3, 2, 3), (2, 1, 2, 2, 2), True, {"stride": 2}),
}  # fmt: skip
ALL = {**{f"conv {k}": ("conv", *v) for k, v in CONVOLUTIONS.items()}, **{f"transposed {k}": ("conv_transpose", *v) for k, v in TRANSPOSED.items()}}  # fmt: skip


def operands(case, dtype="float64", low=-1.0):
    kind, x, w, bias, options = ALL[case]
    arrays = [sample(x, dtype, 0, low, 1), sample(w, dtype, 1, low, 1)]
    outputs = w[0] if kind == "conv" else w[1] * options.get("groups", 1)
    if bias:
        arrays.append(sample((outputs,), dtype, 2, low, 1))
    function = getattr(gr, f"{kind}{len(w) - 2}d")
    return function, getattr(reference, kind), arrays, options


@pytest.mark.parametrize("case", ALL)
def test_convolution(case):
    function, want, arrays, options = operands(case)
    close(function(*map(gr.asarray, arrays), **options), want(*arrays, **options), 1e-12, 1e-12)


@pytest.mark.parametrize(
    "case",
    [
        "conv 2d all",
        "conv 2d depthwise",
        "conv 2d depthwise doubled",
        "conv 2d depthwise by two",
        "conv 2d depthwise by two along rows",
        "transposed 2d all",
        "transposed 1d",
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_convolution_dtypes(case, dtype):
    function, want, arrays, options = operands(case, dtype, -3.0)
    exact = [a.astype("float64") for a in arrays]
    got = function(*map(gr.asarray, arrays), **options)
    tolerance = {"float16": 2e-2, "float32": 1e-5, "int32": 0}[dtype]
    assert got.dtype.name == dtype
    close(got.astype(gr.float64), want(*exact, **options), tolerance, tolerance)
    if dtype == "float32":
        halves = [gr.asarray(a).astype(gr.bfloat16) for a in arrays]
        rough = function(*halves, **options)
        assert rough.dtype == gr.bfloat16
        close(rough.astype(gr.float64), want(*exact, **options), 5e-2, 1e-1)


@pytest.mark.parametrize("case", [c for c in ALL if "empty" not in c])
def test_convolution_gradients(case):
    function, want, arrays, options = operands(case)
    weight = sample(want(*arrays, **options).shape, "float64", 5)
    value = lambda arrays: (want(*arrays, **options) * weight).sum()
    f = lambda *ts: (function(*ts, **options) * gr.asarray(weight)).sum()
    grads = gr.grad(f, argnums=range(len(arrays)))(*map(gr.asarray, arrays))
    for i, g in enumerate(grads):
        # The function is linear in each operand, so a difference along a random direction is exact.
        step = sample(arrays[i].shape, "float64", 7 + i)
        moved = [a + step if j == i else a for j, a in enumerate(arrays)]
        assert (g.numpy() * step).sum() == pytest.approx(
            value(moved) - value(arrays), rel=1e-9, abs=1e-9
        )


@pytest.mark.parametrize("case", ["conv 2d all", "transposed 2d all"])
def test_second_derivatives_mix_operands(case):
    function, _, arrays, options = operands(case)
    x, w = map(gr.asarray, arrays[:2])
    v = gr.asarray(sample(w.shape, "float64", 8))
    # (d/dx of the sum, contracted with u)'s derivative by w along v is bilinear: f(u, v).
    u = gr.asarray(sample(x.shape, "float64", 9))
    inner = lambda w: (gr.grad(lambda x: function(x, w, **options).sum())(x) * u).sum()
    got = (gr.grad(inner)(w) * v).sum().item()
    assert got == pytest.approx(function(u, v, **options).sum().item(), rel=1e-9)


def test_padding_by_name():
    x, w = sample((1, 2, 7, 6), "float64"), sample((3, 2, 3, 4), "float64", 1)
    same = gr.conv2d(gr.asarray(x), gr.asarray(w), padding="same")
    close(same, reference.conv(x, w, padding=[(1, 1), (1, 2)]), 1e-12, 1e-12)
    strided = gr.conv2d(gr.asarray(x), gr.asarray(w), padding="same", stride=2)
    close(strided, reference.conv(x, w, padding=[(1, 1), (1, 1)], stride=2), 1e-12, 1e-12)
    valid = gr.conv2d(gr.asarray(x), gr.asarray(w), padding="valid")
    close(valid, reference.conv(x, w), 1e-12, 1e-12)


def test_a_batch_axis_may_be_missing():
    x, w = sample((2, 7), "float64"), sample((3, 2, 3), "float64", 1)
    close(gr.conv1d(gr.asarray(x), gr.asarray(w)), reference.conv(x[None], w)[0], 1e-12, 1e-12)
    w = sample((2, 3, 3), "float64", 1)
    close(gr.conv_transpose1d(x, w), reference.conv_transpose(x[None], w)[0], 1e-12, 1e-12)


def test_convolution_of_views():
    x, w = sample((8, 2, 12), "float64"), sample((3, 3, 2), "float64", 1)
    got = gr.conv1d(gr.asarray(x)[::4, :, ::-1], gr.asarray(w).permute(0, 2, 1))
    close(got, reference.conv(x[::4, :, ::-1], w.transpose(0, 2, 1)), 1e-12, 1e-12)


ERRORS = {
    "channels": (lambda: gr.conv2d(gr.ones([1, 3, 5, 5]), gr.ones([2, 4, 3, 3])), gr.ShapeError, r"axis 1 must be 3 / 1"),
    "groups": (lambda: gr.conv1d(gr.ones([1, 4, 5]), gr.ones([3, 2, 3]), groups=2), gr.ShapeError, "groups=2"),
    "no groups": (lambda: gr.conv1d(gr.ones([1, 4, 5]), gr.ones([3, 2, 3]), groups=0), gr.InvalidArgumentError, "groups must be at least 1, got 0"),
    "kernel": (lambda: gr.conv1d(gr.ones([1, 1, 4]), gr.ones([1, 1, 5])), gr.ShapeError, "spans 5 elements.*more than the 4"),
    "rank": (lambda: gr.conv2d(gr.ones([5, 5]), gr.ones([1, 1, 3, 3])), gr.ShapeError, "expected 4 axes"),
    "kernel rank": (lambda: gr.conv2d(gr.ones([1, 1, 5, 5]), gr.ones([1, 1, 3])), gr.ShapeError, "4 axes, got 3"),
    "bias": (lambda: gr.conv1d(gr.ones([1, 1, 5]), gr.ones([2, 1, 3]), gr.ones([3])), gr.ShapeError, r"\[2\]"),
    "stride": (lambda: gr.conv1d(gr.ones([1, 1, 5]), gr.ones([1, 1, 3]), stride=0), gr.InvalidArgumentError, "stride must be at least 1, got 0"),
    "negative": (lambda: gr.conv1d(gr.ones([1, 1, 5]), gr.ones([1, 1, 3]), stride=-1), gr.InvalidArgumentError, "at least 1, got -1"),
    "strides": (lambda: gr.conv2d(gr.ones([1, 1, 5, 5]), gr.ones([1, 1, 3, 3]), stride=(1, 1, 1)), gr.InvalidArgumentError, "3 entries"),
    "padding": (lambda: gr.conv1d(gr.ones([1, 1, 5]), gr.ones([1, 1, 3]), padding="full"), gr.InvalidArgumentError, "full"),
    "bool": (lambda: gr.conv1d(gr.ones([1, 1, 5], dtype="bool"), gr.ones([1, 1, 3], dtype="bool")), gr.DTypeError, "bool"),
    "same transposed": (lambda: gr.conv_transpose1d(gr.ones([1, 1, 5]), gr.ones([1, 1, 3]), padding="same"), gr.InvalidArgumentError, "numbers"),
    "output padding": (lambda: gr.conv_transpose1d(gr.ones([1, 1, 5]), gr.ones([1, 1, 3]), stride=2, output_padding=2), gr.InvalidArgumentError, "less than the stride 2"),
    "nothing left": (lambda: gr.conv_transpose1d(gr.ones([1, 1, 2]), gr.ones([1, 1, 2]), padding=2), gr.ShapeError, "-1 elements"),
    "pool padded size": (lambda: gr.max_pool2d(gr.ones([1, 1, 5, 5]), 10, padding=2), gr.ShapeError, "spans 10 elements, more than the 9"),
    "pool size": (lambda: gr.avg_pool1d(gr.ones([1, 1, 5]), 6), gr.ShapeError, "spans 6"),
    "pool dtype": (lambda: gr.max_pool1d(gr.ones([1, 1, 5], dtype="bool"), 2), gr.DTypeError, "bool"),
    "windows": (lambda: gr.windows(gr.ones([3]), 4), gr.InvalidArgumentError, "spans 4"),
    "fold": (lambda: gr.fold(gr.ones([1, 4, 5]), (3, 3), (2, 2)), gr.ShapeError, "4 positions"),
    "mode": (lambda: gr.interpolate(gr.ones([1, 1, 4]), 2, mode="sinc"), gr.InvalidArgumentError, "sinc"),
    "both": (lambda: gr.interpolate(gr.ones([1, 1, 4]), 2, 2.0), gr.InvalidArgumentError, "one of"),
    "to nothing": (lambda: gr.interpolate(gr.ones([1, 1, 4]), 0), gr.ShapeError, r"\[0\]"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_misuse_is_explained(case):
    call, error, message = ERRORS[case]
    with pytest.raises(error, match=message):
        call()


# name: shape, window, options
POOLS = {
    "1d": ((2, 3, 8), (2,), {}),
    "1d overlapping": ((2, 2, 9), (3,), {"stride": 2}),
    "1d padded": ((1, 2, 7), (3,), {"stride": 2, "padding": 1}),
    "1d ceil": ((1, 2, 8), (3,), {"stride": 2, "ceil_mode": True}),
    "1d ceil padded": ((1, 2, 7), (4,), {"stride": 3, "padding": 1, "ceil_mode": True}),
    "1d ceil drops a window in the padding": ((1, 1, 4), (2,), {"stride": 3, "padding": 1, "ceil_mode": True}),
    "2d": ((2, 3, 6, 4), (2, 2), {}),
    "2d uneven": ((1, 2, 7, 9), (3, 2), {"stride": (2, 3), "padding": (1, 0)}),
    "2d ceil": ((1, 1, 6, 7), (3, 3), {"stride": 2, "padding": 1, "ceil_mode": True}),
    "2d no batch": ((3, 6, 4), (2, 2), {}),
    "2d empty batch": ((0, 3, 6, 4), (2, 2), {}),
    "3d": ((1, 2, 4, 5, 4), (2, 3, 2), {"stride": 1}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int32"])
@pytest.mark.parametrize("case", POOLS)
def test_max_pool(case, dtype):
    shape, size, options = POOLS[case]
    x = sample(shape, dtype, 0, -9, 9)
    got = getattr(gr, f"max_pool{len(size)}d")(gr.asarray(x), size, **options)
    close(got, reference.pool(x, np.max, size, **options), 0)


def test_dilated_max_pool_and_nan():
    x = sample((1, 1, 9), "float64")
    x[0, 0, 4] = np.nan
    got = gr.max_pool1d(gr.asarray(x), 3, stride=1, dilation=2, padding=1)
    close(got, reference.pool(x, np.max, (3,), 1, 1, 2), 0)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("case", POOLS)
def test_avg_pool(case, whole, dtype):
    shape, size, options = POOLS[case]
    x = sample(shape, dtype)
    got = getattr(gr, f"avg_pool{len(size)}d")(
        gr.asarray(x), size, count_include_pad=whole, **options
    )
    want = reference.pool(x.astype("f8"), np.mean, size, whole=whole, **options).astype(dtype)
    close(got, want, 1e-12 if dtype == "float64" else 2e-3, 1e-12)


def test_lp_pool():
    x = sample((1, 2, 6, 6), "float64")
    for p in (1.0, 2.0, 3.0):
        norm = lambda v, axis, p=p: (np.abs(v) ** p).sum(axis) ** (1 / p)
        close(gr.lp_pool2d(x, p, 3, stride=2), reference.pool(x, norm, (3, 3), 2), 1e-12)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((2, 3, 8), (4,)), ((2, 3, 7), (3,)), ((1, 2, 7, 5), (3, 2)), ((1, 2, 6, 5), (6, 1)),
     ((2, 3, 4), (7,)), ((1, 1, 5, 4, 6), (2, 3, 4)), ((0, 3, 7), (3,))],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_adaptive_pools(kind, shape, sizes):
    x = sample(shape, "float64")
    got = getattr(gr, f"adaptive_{kind}_pool{len(sizes)}d")(gr.asarray(x), sizes)
    close(got, reference.adaptive(x, {"avg": np.mean, "max": np.max}[kind], sizes), 1e-12)


@pytest.mark.parametrize("case", [c for c in POOLS if "empty" not in c])
def test_pool_gradients(case):
    shape, size, options = POOLS[case]
    x = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape) * 0.1
    for name, reduce, whole in [("max", np.max, False), ("avg", np.mean, True)]:
        want = lambda x, r=reduce, w=whole: reference.pool(x, r, size, whole=w, **options)
        weight = sample(want(x).shape, "float64", 1)
        f = lambda x, n=name, c=weight: (getattr(gr, f"{n}_pool{len(size)}d")(x, size, **options) * gr.asarray(c)).sum()  # fmt: skip
        g = gr.grad(f)(gr.asarray(x)).numpy()
        # Such a small step does not change the order of the elements.
        step = sample(shape, "float64", 2) * 1e-2
        difference = ((want(x + step) - want(x - step)) * weight).sum() / 2
        assert (g * step).sum() == pytest.approx(difference, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize(
    ("shape", "size", "stride", "dilation"),
    [((9,), (3,), 1, 1), ((2, 9), (3,), 2, 2), ((3, 6, 7), (2, 3), (1, 2), (2, 1))],
)
def test_windows(shape, size, stride, dilation):
    x, n = sample(shape, "int32"), len(size)
    s, d = reference.listed(stride, n), reference.listed(dilation, n)
    reach = [(k - 1) * e + 1 for k, e in zip(size, d, strict=True)]
    want = np.lib.stride_tricks.sliding_window_view(x, reach, axis=range(-n, 0))
    want = want[(..., *[slice(None, None, v) for v in s], *[slice(None, None, v) for v in d])]
    close(gr.windows(gr.asarray(x), size, stride, dilation), want)


def test_unfold_and_fold_are_transposes():
    x = sample((2, 3, 6, 5), "float64")
    options = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}
    columns = gr.unfold(gr.asarray(x), **options)
    w = sample((4, 3, 3, 2), "float64", 1)
    product = (gr.asarray(w.reshape(4, -1)) @ columns).numpy()
    want = reference.conv(x, w, stride=(2, 1), padding=(1, 0), dilation=(1, 2))
    close(product.reshape(want.shape), want, 1e-12, 1e-12)
    c = sample(columns.shape, "float64", 2)
    folded = gr.fold(gr.asarray(c), (6, 5), **options)
    assert folded.shape == x.shape
    assert (folded.numpy() * x).sum() == pytest.approx((columns.numpy() * c).sum())


RESAMPLED = [
    ((1, 2, 5), (9,), None),
    ((1, 2, 9), (4,), None),
    ((2, 1, 4, 6), (8, 9), None),
    ((1, 1, 3, 4), (1, 7), None),
    ((1, 1, 3), (3,), None),
    ((1, 1, 5), (12,), [2.5]),
    ((1, 2, 6, 4), (9, 2), [1.5, 0.5]),
    ((1, 1, 3, 2, 2), (4, 4, 3), None),
]


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "cubic"])
@pytest.mark.parametrize(("shape", "sizes", "scales"), RESAMPLED)
def test_interpolate(shape, sizes, scales, mode, corners):
    if corners and mode.startswith("nearest"):
        pytest.skip("corners are no matter of nearest elements")
    x = sample(shape, "float64")
    how = {"scale_factor": scales} if scales else {"size": sizes}
    got = gr.interpolate(gr.asarray(x), **how, mode=mode, align_corners=corners)
    close(got, reference.interpolate(x, sizes, mode, corners, scales), 1e-12, 1e-12)


def test_interpolate_names_and_dtypes():
    x = sample((1, 1, 4, 4), "float32")
    a, b = (gr.interpolate(gr.asarray(x), 6, mode=m) for m in ("bilinear", "linear"))
    close(a, b.numpy())
    close(
        gr.interpolate(gr.asarray(x), 2, mode="area"), reference.adaptive(x, np.mean, (2, 2)), 1e-6
    )
    whole = gr.asarray(sample((1, 1, 4), "int32"))
    assert gr.interpolate(whole, 8).tolist() == whole.numpy().repeat(2, -1).tolist()
    half = gr.interpolate(gr.asarray(x).astype(gr.float16), 7, mode="cubic")
    assert half.dtype == gr.float16


def test_interpolation_gradients():
    x = sample((1, 1, 5, 4), "float64")
    for mode in ("nearest", "linear", "cubic"):
        weight = sample((1, 1, 7, 6), "float64", 1)
        f = lambda x, m=mode, w=weight: (gr.interpolate(x, (7, 6), mode=m) * gr.asarray(w)).sum()
        step = sample(x.shape, "float64", 2)
        difference = f(gr.asarray(x + step)).item() - f(gr.asarray(x)).item()
        assert (gr.grad(f)(gr.asarray(x)).numpy() * step).sum() == pytest.approx(difference)


def test_a_pooling_is_one_kernel():
    x = gr.ones([2, 3, 8, 8]).eval()
    with Counters() as c:
        gr.max_pool2d(gr.relu(x), 3, stride=2).eval()
    assert c["kernels_launched"] == 1

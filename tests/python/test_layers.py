"""Layers and functions of networks that are not in test_networks.py: embeddings, padding, pooling
with indices, shuffles, sampling, recurrent layers; against NumPy and closed forms.
"""

from __future__ import annotations

import itertools

import girih as gr
import networks_reference as reference
import numpy as np
import pytest
from conftest import close, sample
from girih import nn

F = nn.functional


def t(x, dtype=None):
    return gr.asarray(np.asarray(x), dtype=dtype)


# Embeddings.


def test_padding_learns_nothing_and_starts_at_zero():
    layer = nn.Embedding(5, 3, padding_idx=-2)
    assert layer.padding_idx == 3
    assert layer.weight[3].tolist() == [0.0] * 3
    assert np.abs(layer.weight.numpy()).sum(1)[[0, 1, 2, 4]].min() > 0
    _, grads = nn.value_and_grad(layer, lambda i: layer(i).sum())(t([[3, 1], [1, 3]]))
    assert grads["weight"].tolist() == [[0.0] * 3, [2.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3]
    for bad in (5, -6):
        with pytest.raises(
            gr.InvalidArgumentError, match=f"Embedding: padding_idx {bad} is no row"
        ):
            nn.Embedding(5, 3, padding_idx=bad)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_beyond_a_norm_are_scaled(dtype):
    w = np.asarray([[3, 4], [0.3, 0.4], [0, 0]], dtype)
    layer = nn.Embedding.from_pretrained(gr.asarray(w), max_norm=1.0)
    got = layer(t([0, 1, 2, 0]))
    assert got.dtype.name == dtype
    want = np.asarray([[0.6, 0.8], [0.3, 0.4], [0, 0], [0.6, 0.8]], dtype)
    close(got, want, 2e-3 if dtype == "float16" else 1e-6)
    # The gradient is with respect to the renormalised rows, as if the table had them.
    g = gr.grad(lambda w: (F.embedding(t([0, 1]), w, max_norm=1.0) ** 2).sum())(gr.asarray(w))
    close(g, 2 * np.asarray([[0.6, 0.8], [0.3, 0.4], [0, 0]], dtype), 4e-3)


def test_gradients_by_frequency():
    w, i = gr.ones([4, 2]), t([1, 1, 3, 1])
    g = gr.grad(lambda w: F.embedding(i, w, scale_grad_by_freq=True).sum())(w)
    close(g, np.asarray([[0, 0], [1, 1], [0, 0], [1, 1]], "f4"))
    close(F.embedding(i, w, scale_grad_by_freq=True), np.ones((4, 2), "f4"))


def test_bags():
    w = np.arange(8.0).reshape(4, 2) - 3
    rows = t([[0, 1], [2, 2]])
    close(F.embedding_bag(rows, t(w), mode="sum"), w[[[0, 1], [2, 2]]].sum(1))
    flat, offsets = t([0, 1, 2, 2]), t([0, 2, 2])
    means = np.stack([w[:2].mean(0), [0, 0], w[2]])
    close(F.embedding_bag(flat, t(w), offsets), means)
    largest = np.stack([w[:2].max(0), [0, 0], w[2]])
    close(F.embedding_bag(flat, t(w), offsets, mode="max"), largest)
    bag = nn.EmbeddingBag(4, 2, mode="sum", padding_idx=0, include_last_offset=True)
    assert bag(flat, t([0, 1, 4])).tolist()[0] == [0, 0]
    assert F.embedding_bag(t(np.zeros((2, 0), "i8")), t(w)).tolist() == [[0, 0], [0, 0]]
    assert F.embedding_bag(t(np.zeros(0, "i8")), t(w), t([0])).tolist() == [[0, 0]]
    with pytest.raises(gr.ShapeError, match=r"embedding_bag: .*without offsets"):
        F.embedding_bag(flat, t(w))
    with pytest.raises(gr.InvalidArgumentError, match="per_sample_weights are for the mode 'sum'"):
        F.embedding_bag(rows, t(w), per_sample_weights=gr.ones([2, 2]))
    with pytest.raises(gr.InvalidArgumentError, match="mode is 'sum', 'mean' or 'max', got 'min'"):
        F.embedding_bag(rows, t(w), mode="min")


# Padding.

NUMPY_MODES = {
    "Reflection": "reflect",
    "Replication": "edge",
    "Circular": "wrap",
    "Constant": "constant",
}


@pytest.mark.parametrize("kind", NUMPY_MODES)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_padding_is_numpys(kind, n):
    x = sample((2, 3, 4, 5, 6)[: n + 2], "float32")
    widths = [2, 1, 0, 3, 1, 2][: 2 * n]
    pairs = [(0, 0)] * 2 + [(widths[2 * i], widths[2 * i + 1]) for i in reversed(range(n))]
    options = {"constant_values": 1.5} if kind == "Constant" else {}
    layer = getattr(nn, f"{kind}Pad{n}d")(widths, *options.values())
    want = np.pad(x, pairs, NUMPY_MODES[kind], **options)
    close(layer(t(x)), want)
    # An integer applies to all axes; the batch axis is optional.
    one = getattr(nn, f"{kind}Pad{n}d")(1, *options.values())
    close(one(t(x[0])), np.pad(x[0], [(0, 0)] + [(1, 1)] * n, NUMPY_MODES[kind], **options))
    assert f"padding={tuple(widths)}" in repr(layer)


def test_invalid_padding_is_refused():
    x = gr.ones([1, 3])
    with pytest.raises(
        gr.ShapeError, match=r"ReflectionPad1d: padding \(3, 0\) of axis 1 .* 2 fit"
    ):
        nn.ReflectionPad1d((3, 0))(x)
    with pytest.raises(gr.ShapeError, match="CircularPad1d"):
        nn.CircularPad1d(4)(x)
    with pytest.raises(gr.InvalidArgumentError, match="ZeroPad2d: padding is one width, or 4"):
        nn.ZeroPad2d((1, 2))
    with pytest.raises(gr.ShapeError, match="ZeroPad2d: expected at least 3 axes"):
        nn.ZeroPad2d(1)(x)
    close(nn.ZeroPad1d((-1, 1))(t([[1.0, 2.0]])), np.array([[2.0, 0.0]]))


# Convolutions and poolings.

MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [2, "same", "valid", (1, 2), [(0, 2), (1, 0)]])
def test_padding_modes_of_convolutions(mode, padding):
    x = sample((2, 3, 5, 6), "float64")
    layer = nn.Conv2d(3, 2, (3, 2), padding=padding, padding_mode=mode, dtype=gr.float64)
    pairs = {2: [(2, 2), (2, 2)], "same": [(1, 1), (0, 1)], "valid": [(0, 0)] * 2}
    pairs = pairs.get(padding) if isinstance(padding, (int, str)) else padding
    pairs = [(p, p) if isinstance(p, int) else p for p in pairs]
    padded = np.pad(x, [(0, 0)] * 2 + pairs, MODES[mode])
    want = reference.conv(padded, layer.weight.numpy(), layer.bias.numpy(), 1, 0, 1, 1)
    close(layer(t(x)), want, 1e-11, 1e-12)
    assert f"padding_mode='{mode}'" in repr(layer)


def test_an_unknown_padding_mode_is_refused():
    with pytest.raises(gr.InvalidArgumentError, match=r"Conv1d: padding_mode .*got 'mirror'"):
        nn.Conv1d(1, 1, 1, padding_mode="mirror")
    with pytest.raises(gr.InvalidArgumentError, match=r"conv1d: padding_mode .*got 'mirror'"):
        F.conv1d(gr.ones([1, 1, 3]), gr.ones([1, 1, 1]), padding_mode="mirror")


MISTAKES = [
    (lambda: F.conv2d(gr.ones([1, 1, 4, 4]), gr.ones([1, 1, 2, 2]), stride=0), "conv2d: stride must be at least 1, got 0"),
    (lambda: F.conv2d(gr.ones([1, 1, 4, 4]), gr.ones([1, 1, 2, 2]), stride=(1, -1)), r"conv2d: stride must be at least 1, got \[1, -1\]"),
    (lambda: F.conv1d(gr.ones([1, 1, 4]), gr.ones([1, 1, 2]), padding=-1), "conv1d: padding must be .*none negative; got -1"),
    (lambda: F.conv1d(gr.ones([1, 1, 4]), gr.ones([1, 1, 2]), dilation=0), "conv1d: dilation must be at least 1, got 0"),
    (lambda: F.conv1d(gr.ones([1, 1, 4]), gr.ones([1, 1, 2]), groups=-1), "conv1d: groups must be at least 1, got -1"),
    (lambda: F.conv1d(gr.ones([1, 1, 4]), gr.ones([1, 1, 2]), padding="full"), "conv1d: padding must be .*got 'full'"),
    (lambda: F.conv_transpose1d(gr.ones([1, 1, 4]), gr.ones([1, 1, 2]), output_padding=-2), "conv_transpose1d: output_padding must be at least 0, got -2"),
    (lambda: F.max_pool2d(gr.ones([1, 4, 4]), 0), "max_pool2d: kernel_size must be at least 1, got 0"),
    (lambda: F.max_pool1d(gr.ones([1, 4]), 2, stride=0), "max_pool1d: stride must be at least 1, got 0"),
    (lambda: F.avg_pool3d(gr.ones([1, 4, 4, 4]), 2, padding=[(0, 1), (-1, 0), (0, 0)]), r"avg_pool3d: padding must be .*got \[\(0, 1\), \(-1, 0\), \(0, 0\)\]"),
    (lambda: F.lp_pool1d(gr.ones([1, 4]), 2, 2, -3), "lp_pool1d: stride must be at least 1, got -3"),
    (lambda: F.adaptive_avg_pool1d(gr.ones([1, 4]), 0), "adaptive_avg_pool1d: output_size must be at least 1, got 0"),
    (lambda: F.unfold(gr.ones([1, 1, 4, 4]), 2, stride=0), "unfold: stride must be at least 1, got 0"),
    (lambda: F.fold(gr.ones([1, 4, 9]), (4, 4), 2, dilation=-1), "fold: dilation must be at least 1, got -1"),
    (lambda: gr.windows(gr.ones([4]), 0), "windows: kernel_size must be at least 1, got 0"),
    (lambda: F.group_norm(gr.ones([1, 4, 4]), 0), "group_norm: num_groups must be at least 1, got 0"),
    (lambda: F.pixel_shuffle(gr.ones([4, 2, 2]), -1), "pixel_shuffle: upscale_factor must be at least 1, got -1"),
    (lambda: nn.Conv2d(1, 1, 2, stride=0), "Conv2d: stride must be at least 1, got 0"),
    (lambda: nn.Conv2d(1, 1, 2, padding=-1), "Conv2d: padding must not be negative, got -1"),
    (lambda: nn.ConvTranspose1d(1, 1, 2, dilation=0), "ConvTranspose1d: dilation must be at least 1, got 0"),
    (lambda: nn.MaxPool2d(2, stride=0)(gr.ones([1, 4, 4])), "MaxPool2d: stride must be at least 1, got 0"),
    (lambda: nn.AvgPool1d(2, padding=-1)(gr.ones([1, 4])), "AvgPool1d: padding must be .*got -1"),
    (lambda: F.avg_pool1d(gr.ones([1, 4]), 2, divisor_override=0), "divisor_override must not be 0"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=[text for _, text in MISTAKES])
def test_errors_name_the_function_and_its_argument(mistake):
    call, message = mistake
    with pytest.raises(gr.InvalidArgumentError, match=message):
        call()


@pytest.mark.parametrize("padding", [1, (1, 0), [(0, 1), (1, 0)], "same", "valid"])
def test_poolings_take_every_padding_a_convolution_takes(padding):
    x = sample((2, 7, 5), "float64", low=0.1)
    size, stride = (3, 2), (2, 1)
    pairs = {
        1: [(1, 1)] * 2,
        "valid": [(0, 0)] * 2,
        "same": [(1, 1), (0, 1)],
        (1, 0): [(1, 1), (0, 0)],
    }
    pairs = padding if isinstance(padding, list) else pairs[padding]

    def windows(fill):
        padded = np.pad(x, [(0, 0), *pairs], constant_values=fill)
        view = np.lib.stride_tricks.sliding_window_view(padded, size, (1, 2))
        return view[:, :: stride[0], :: stride[1]]

    close(F.max_pool2d(t(x), size, stride, padding), windows(-np.inf).max((3, 4)))
    close(F.avg_pool2d(t(x), size, stride, padding), windows(0).mean((3, 4)), 1e-12)
    close(
        F.avg_pool2d(t(x), size, stride, padding, divisor_override=4),
        windows(0).sum((3, 4)) / 4,
        1e-12,
    )
    close(F.lp_pool2d(t(x), 3, size, stride, padding=padding), (windows(0) ** 3).sum((3, 4)) ** (1 / 3), 1e-12)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8"])
def test_max_pooling_indices_select_the_maxima(dtype):
    x = sample((2, 3, 5, 6), dtype, low=-3, high=3)
    largest, places = F.max_pool2d_with_indices(t(x), (2, 3), 2, 1)
    assert largest.dtype.name == dtype
    assert places.dtype.name == "int64"
    close(largest, F.max_pool2d(t(x), (2, 3), 2, 1).numpy())
    picked = np.take_along_axis(x.reshape(2, 3, 30), places.numpy().reshape(2, 3, -1), -1)
    close(largest, picked.reshape(largest.shape))
    back = F.max_unpool2d(largest, places, (2, 3), output_size=(5, 6)).numpy()
    flat = back.reshape(2, 3, 30)
    assert (np.take_along_axis(flat, places.numpy().reshape(2, 3, -1), -1) == picked).all()
    assert (np.delete(flat[0, 0], places.numpy()[0, 0].ravel()) == 0).all()


def test_max_pooling_indices_of_equal_elements_are_the_first():
    x = gr.zeros([1, 4, 4])
    assert F.max_pool2d_with_indices(x, 2)[1].tolist() == [[[0, 2], [8, 10]]]
    assert F.adaptive_max_pool2d_with_indices(x, 3)[1].numpy().ravel()[:2].tolist() == [0, 1]
    # Also if all elements equal the padding value.
    low = gr.full([1, 3], -float("inf"))
    assert F.max_pool1d_with_indices(low, 2, 1, 1)[1].tolist() == [[0, 0, 1, 2]]
    nan = t([[1.0, np.nan, 2.0]])
    assert F.max_pool1d_with_indices(nan, 3)[1].tolist() == [[1]]


def test_unpooling_that_does_not_fit():
    with pytest.raises(gr.ShapeError, match=r"max_unpool1d: .*an index is expected for each"):
        F.max_unpool1d(gr.ones([1, 2]), gr.zeros([1, 3], dtype=gr.int64), 2)


# Normalisation.


def test_instance_norm_keeps_running_statistics():
    layer = nn.InstanceNorm1d(2, momentum=0.5, track_running_stats=True, affine=True)
    mean, var = np.zeros(2), np.ones(2)
    for i in range(3):
        x = sample((4, 2, 5), "float32", i)
        got = layer(t(x))
        m, v = x.mean(2), x.var(2)
        close(got, (x - m[..., None]) / np.sqrt(v + 1e-5)[..., None], 1e-4, 1e-5)
        mean += (m.mean(0) - mean) / 2
        var += (x.var(2, ddof=1).mean(0) - var) / 2
    close(layer.running_mean, mean.astype("f4"), 1e-5)
    close(layer.running_var, var.astype("f4"), 1e-5)
    assert layer.num_batches_tracked.item() == 3
    layer.eval()
    want = (x - mean[:, None]) / np.sqrt(var + 1e-5)[:, None]
    close(layer(t(x)), want.astype("f4"), 1e-4, 1e-5)
    close(layer(t(x[0])), want[0].astype("f4"), 1e-4, 1e-5)
    assert set(layer.state_dict()) == {
        *("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }
    average = nn.InstanceNorm2d(1, momentum=None, track_running_stats=True)
    for value in (1.0, 3.0):
        average(gr.full([1, 1, 2, 2], value))
    assert average.running_mean.item() == 2.0
    with pytest.raises(gr.InvalidArgumentError, match=r"InstanceNorm1d: .*1 element"):
        nn.InstanceNorm1d(1, track_running_stats=True)(gr.ones([3, 1, 1]))
    plain = nn.InstanceNorm1d(1)
    assert plain.running_mean is None
    assert not plain.state_dict()


def test_local_response_norm():
    x = sample((2, 5, 3), "float64")
    want = np.empty_like(x)
    for c in range(5):
        near = x[:, max(0, c - 1) : c + 2]
        want[:, c] = x[:, c] / (2 + 0.5 * (near**2).sum(1) / 3) ** 0.75
    close(F.local_response_norm(t(x), 3, 0.5, 0.75, 2.0), want, 1e-12)
    with pytest.raises(gr.InvalidArgumentError, match="size must be at least 1"):
        F.local_response_norm(t(x), 0)


# Shuffles and sampling.


def test_shuffles_are_inverse():
    x = sample((2, 12, 2, 3), "float32")
    y = F.pixel_shuffle(t(x), 2)
    assert y.shape == (2, 3, 4, 6)
    assert y.numpy()[1, 2, 3, 1] == x[1, 2 * 4 + 2 + 1, 1, 0]
    close(F.pixel_unshuffle(y, 2), x)
    close(F.channel_shuffle(F.channel_shuffle(t(x), 3), 4), x)
    for bad in (lambda: F.pixel_shuffle(t(x), 5), lambda: F.pixel_unshuffle(t(x), 2), lambda: F.channel_shuffle(t(x), 5)):  # fmt: skip
        with pytest.raises(gr.ShapeError, match="shuffle: expected"):
            bad()


def test_the_identity_samples_an_image():
    x = sample((2, 3, 4, 5), "float64")
    theta = np.tile(np.eye(2, 3), (2, 1, 1))
    for corners, mode in itertools.product([False, True], ["bilinear", "nearest", "bicubic"]):
        grid = F.affine_grid(t(theta), (2, 3, 4, 5), corners)
        close(F.grid_sample(t(x), grid, mode, align_corners=corners), x, 1e-12, 1e-12)
    turned = theta * [[-1.0], [1.0]]
    grid = F.affine_grid(t(turned), (2, 3, 4, 5))
    close(F.grid_sample(t(x), grid), x[..., ::-1], 1e-12, 1e-12)


def test_sampling_outside():
    x = gr.asarray([[[[1.0, 2.0, 3.0]]]])
    far = gr.asarray([[[[-5.0, 0.0], [5.0, 0.0], [float("nan"), 0.0]]]])
    assert F.grid_sample(x, far).tolist() == [[[[0.0, 0.0, 0.0]]]]
    assert F.grid_sample(x, far, padding_mode="border").tolist()[0][0][0][:2] == [1.0, 3.0]
    # Infinite elements that are not sampled have no effect.
    inf = gr.asarray([[[[float("inf"), 2.0]]]])
    assert F.grid_sample(inf, gr.asarray([[[[3.0, 0.0]]]])).item() == 0.0
    with pytest.raises(gr.ShapeError, match=r"grid_sample: .*expected"):
        F.grid_sample(x, gr.ones([1, 1, 3, 3]))
    with pytest.raises(gr.InvalidArgumentError, match=r"padding_mode is .*got 'wrap'"):
        F.grid_sample(x, far, padding_mode="wrap")
    with pytest.raises(gr.InvalidArgumentError, match="'bicubic' is for two spatial axes, got 3"):
        F.grid_sample(gr.ones([1, 1, 2, 2, 2]), gr.ones([1, 1, 1, 1, 3]), "bicubic")
    with pytest.raises(gr.InvalidArgumentError, match="affine_grid: size is a shape"):
        F.affine_grid(gr.ones([1, 2, 3]), (2, 1, 3, 3))


# Dropout, noise, small layers.


@pytest.mark.parametrize("cls", [nn.Dropout, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_dropout_of_everything_and_nothing(cls):
    x = gr.ones([2, 3, 4, 4])
    assert cls(1)(x).numpy().max() == 0
    assert cls(1.0).eval()(x).numpy().min() == 1
    assert cls(0)(x).numpy().min() == 1
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(
            gr.InvalidArgumentError, match=rf"{cls.__name__}: p must be in \[0, 1\]"
        ):
            cls(bad)


def test_alpha_dropout_keeps_mean_and_variance():
    x = gr.randn([200_000])
    y = F.alpha_dropout(x, 0.3).numpy()
    assert abs(y.mean()) < 0.02
    assert abs(y.std() - 1) < 0.02
    scale = ((1 - 0.3) * (1 + 0.3 * 1.7580993408473766**2)) ** -0.5
    lowest = scale * -1.7580993408473766 * (1 - 0.3)
    assert np.isclose(y, lowest, atol=1e-6).mean() == pytest.approx(0.3, abs=0.01)
    whole = F.alpha_dropout(gr.ones([30, 20, 2, 2]), 0.5, whole_channels=True).numpy()
    assert (whole == whole[..., :1, :1]).all()


def test_random_slopes():
    x = gr.full([1000], -2.0)
    y = F.rrelu(x, 0.1, 0.3, training=True).numpy()
    assert -0.6 <= y.min() < y.max() <= -0.2
    assert abs(y.mean() + 0.4) < 0.02
    close(nn.RReLU(0.1, 0.3).eval()(x), np.full(1000, -0.4, "f4"))
    with pytest.raises(gr.InvalidArgumentError, match="lower must not be above upper"):
        F.rrelu(x, 0.5, 0.1)


def test_gumbel_softmax_samples_categories():
    p = np.array([0.1, 0.2, 0.7])
    logits = gr.broadcast_to(gr.asarray(np.log(p)), [20_000, 3])
    hard = F.gumbel_softmax(logits, hard=True).numpy()
    assert set(np.unique(hard)) == {0.0, 1.0}
    assert (hard.sum(1) == 1).all()
    np.testing.assert_allclose(hard.mean(0), p, atol=0.02)
    soft = F.gumbel_softmax(logits[:50], 0.5, dim=0).numpy()
    np.testing.assert_allclose(soft.sum(0), 1, rtol=1e-6)
    weights = gr.asarray(np.array([1.0, 2.0, 3.0]))
    gradient = gr.grad(lambda x: (F.gumbel_softmax(x, hard=True) * weights).sum())(logits[:5])
    assert np.abs(gradient.numpy()).max() > 0
    np.testing.assert_allclose(gradient.numpy().sum(1), 0, atol=1e-12)
    for bad in (0, -1, float("nan")):
        with pytest.raises(gr.InvalidArgumentError, match="tau must be positive"):
            F.gumbel_softmax(logits, bad)


def test_bilinear_and_linear_layers_agree_with_einsum():
    x, y = sample((4, 2), "float64"), sample((4, 3), "float64", 1)
    layer = nn.Bilinear(2, 3, 5, dtype=gr.float64)
    w, b = layer.weight.numpy(), layer.bias.numpy()
    close(layer(t(x), t(y)), np.einsum("ni,oij,nj->no", x, w, y) + b, 1e-12)
    assert np.abs(w).max() <= 2**-0.5
    assert nn.Bilinear(2, 3, 5, bias=False).bias is None
    with pytest.raises(gr.ShapeError, match=r"bilinear: shapes \[4, 3\], \[4, 3\]"):
        layer(t(y), t(y))
    close(F.linear(t(x), t(w[:, :, 0]), t(b)), x @ w[:, :, 0].T + b, 1e-12)


def test_unflatten_splits_an_axis():
    x = gr.ones([2, 6, 5])
    assert nn.Unflatten(1, (2, -1))(x).shape == (2, 2, 3, 5)
    assert nn.Unflatten(-1, (5, 1))(x).shape == (2, 6, 5, 1)
    for bad in ((4, -1), (2, 2), (-1, -1), (0, -1)):
        with pytest.raises(gr.ShapeError, match=r"Unflatten: sizes .* do not fill axis 1 of shape"):
            nn.Unflatten(1, bad)(x)
    with pytest.raises(gr.AxisError, match="Unflatten: axis 3"):
        nn.Unflatten(3, (1,))(x)
    assert nn.Identity(1, b=2)("anything") == "anything"


def test_softplus_has_a_threshold():
    x = np.array([-800.0, -1.0, 0.0, 1.0, 30.0, 800.0])
    close(F.softplus(t(x), 2.0), np.logaddexp(0, 2 * x) / 2, 1e-12)
    close(F.softplus(t(x), 1.0, 0.5), np.where(x > 0.5, x, np.logaddexp(0, x)), 1e-12)
    assert repr(nn.Softplus(2.0)) == "Softplus(beta=2.0, threshold=20.0)"
    with pytest.raises(gr.InvalidArgumentError, match="beta must not be 0"):
        F.softplus(t(x), 0)
    assert np.isfinite(gr.grad(lambda x: F.softplus(x).sum())(t(x)).numpy()).all()


def test_cosine_similarity_and_pairwise_distance():
    a, b = t([3.0, 4.0]), t([4.0, 3.0])
    assert gr.cosine_similarity(a, b).item() == pytest.approx(0.96)
    assert nn.CosineSimilarity(0)(a, b).item() == pytest.approx(0.96)
    close(gr.cosine_similarity(gr.ones([2, 3]), gr.ones([3]), axis=1), np.ones(2, "f4"), 1e-6)
    with pytest.raises(gr.AxisError, match="cosine_similarity: axis 2"):
        gr.cosine_similarity(gr.ones([2, 3]), gr.ones([2, 3]), axis=2)
    assert F.pairwise_distance(gr.ones([2, 3]), gr.ones([2, 3]), keepdim=True).shape == (2, 1)


# Initialisers.


def test_orthogonal():
    for shape in [(4, 4), (3, 7), (7, 3), (2, 3, 2), (5, 1), (1, 5)]:
        w = nn.init.orthogonal(shape, 2.0, dtype=gr.float64).numpy().reshape(shape[0], -1)
        square = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
        np.testing.assert_allclose(square, 4 * np.eye(len(square)), atol=1e-12)
    # Uniform over orthogonal matrices: an element has either sign with equal probability.
    signs = [np.sign(nn.init.orthogonal([2, 2]).numpy()[0, 0]) for _ in range(200)]
    assert abs(np.mean(signs)) < 0.3
    assert nn.init.orthogonal([0, 3]).shape == (0, 3)
    assert nn.init.orthogonal([3, 3], dtype=gr.float16).dtype == gr.float16
    with pytest.raises(gr.ShapeError, match="orthogonal: needs at least two axes"):
        nn.init.orthogonal([3])


def test_truncated_normal():
    from scipy import stats

    x = nn.init.trunc_normal([100_000], 1.0, 2.0, -1.0, 2.0, dtype=gr.float64).numpy()
    assert -1 <= x.min() < -0.99
    assert 1.99 < x.max() <= 2
    want = stats.truncnorm(-1, 0.5, 1, 2)
    assert x.mean() == pytest.approx(want.mean(), abs=0.01)
    assert x.std() == pytest.approx(want.std(), abs=0.01)
    for std, low, high in [(0, -1, 1), (1, 1, 1), (1, 2, 1)]:
        with pytest.raises(gr.InvalidArgumentError, match="trunc_normal"):
            nn.init.trunc_normal([2], 0, std, low, high)


def test_initialisers_that_keep_channels():
    x = sample((2, 4, 5, 6), "float32")
    close(F.conv2d(t(x), nn.init.dirac([4, 4, 3, 3]), padding=1), x)
    close(F.conv2d(t(x), nn.init.dirac([4, 2, 3, 1], 2), padding=(1, 0), groups=2), x)
    wide = F.conv2d(t(x), nn.init.dirac([6, 4, 1, 1])).numpy()
    assert (wide[:, :4] == x).all()
    assert (wide[:, 4:] == 0).all()
    close(nn.init.eye([2, 3], gr.float64), np.eye(2, 3))
    for bad in (lambda: nn.init.dirac([2, 2]), lambda: nn.init.eye([2]), lambda: nn.init.sparse([2], 0.1)):  # fmt: skip
        with pytest.raises(gr.ShapeError, match="needs"):
            bad()
    with pytest.raises(gr.InvalidArgumentError, match="2 groups do not divide 3"):
        nn.init.dirac([3, 1, 1], 2)


def test_sparse():
    w = nn.init.sparse([10, 400], 0.25, 2.0).numpy()
    assert ((w == 0).sum(0) == 3).all()
    assert w[w != 0].std() == pytest.approx(2.0, abs=0.1)
    assert (nn.init.sparse([4, 2], 1.0).numpy() == 0).all()
    with pytest.raises(gr.InvalidArgumentError, match="sparsity must be in"):
        nn.init.sparse([4, 2], 1.5)


def test_gains():
    gain = nn.init.calculate_gain
    assert gain("linear") == gain("conv2d") == gain("sigmoid") == 1
    assert gain("relu") == pytest.approx(2**0.5)
    assert gain("tanh") == pytest.approx(5 / 3)
    assert gain("leaky_relu") == pytest.approx((2 / 1.0001) ** 0.5)
    assert gain("leaky_relu", 3.0) == pytest.approx(0.2**0.5)
    assert gain("selu") == 0.75
    with pytest.raises(gr.InvalidArgumentError, match="got 'swish'"):
        gain("swish")


# Attention.


def test_attention_masks_and_weights():
    layer = nn.MultiheadAttention(8, 2)
    x = t(sample((3, 5, 8), "float32"))
    padded = np.zeros((3, 5), bool)
    padded[:, 3:] = True
    out, weights = layer(x, key_padding_mask=t(padded), need_weights=True)
    assert weights.shape == (3, 5, 5)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, rtol=1e-5)
    assert (weights.numpy()[..., 3:] == 0).all()
    close(layer(x, key_padding_mask=t(padded)), out.numpy(), 1e-4, 1e-5)
    # Masked positions may have any value.
    other = t(np.where(padded[..., None], 100, x.numpy()))
    close(layer(x, other, other, key_padding_mask=t(padded)), out.numpy(), 1e-4, 1e-5)
    _, apart = layer(x, need_weights=True, average_attn_weights=False)
    assert apart.shape == (3, 2, 5, 5)
    hidden = np.triu(np.ones((5, 5), bool), 1)
    causal = layer(x, is_causal=True).numpy()
    close(layer(x, attn_mask=t(hidden)), causal, 1e-4, 1e-5)
    close(layer(x, mask=t(~hidden)), causal, 1e-4, 1e-5)
    added = np.where(hidden, -np.inf, 0).astype("f4")
    close(layer(x, attn_mask=t(added), key_padding_mask=gr.zeros([3, 5])), causal, 1e-4, 1e-5)
    close(layer(x, attn_mask=t(np.tile(hidden, (6, 1, 1)))), causal, 1e-4, 1e-5)
    both = layer(x, attn_mask=t(added), key_padding_mask=t(padded), mask=t(~hidden))
    close(both, layer(x, is_causal=True, key_padding_mask=t(padded)).numpy(), 1e-4, 1e-5)
    # A query whose keys are all masked has result zero and gradient zero.
    blind = t(np.ones((3, 5), bool))
    value, weights = layer(x, key_padding_mask=blind, need_weights=True)
    assert (weights.numpy() == 0).all()
    close(value, np.broadcast_to(layer.out_proj.bias.numpy(), (3, 5, 8)), 1e-6)
    grad = gr.grad(lambda x: layer(x, key_padding_mask=blind, need_weights=True)[0].sum())(x)
    assert np.isfinite(grad.numpy()).all()
    with pytest.raises(gr.ShapeError, match=r"attn_mask of shape \[4, 5, 5\] is no"):
        layer(x, attn_mask=gr.zeros([4, 5, 5]))


def test_dropout_of_attention():
    layer = nn.MultiheadAttention(8, 2, dropout=0.5)
    x = gr.ones([1, 40, 8])
    _, weights = layer(x, need_weights=True, average_attn_weights=False)
    assert set(np.round(np.unique(weights.numpy()) * 40, 3)) == {0.0, 2.0}
    assert 0.4 < (weights.numpy() == 0).mean() < 0.6
    layer.eval()
    _, weights = layer(x, need_weights=True)
    np.testing.assert_allclose(weights.numpy(), 1 / 40, rtol=1e-5)
    close(F.scaled_dot_product_attention(x, x, x, dropout_p=1.0), np.zeros((1, 40, 8), "f4"))
    for bad in (1.5, -1, True):
        with pytest.raises(gr.InvalidArgumentError, match="dropout must be a share"):
            nn.MultiheadAttention(8, 2, bad)


def test_weights_of_grouped_heads():
    q, k, v = (t(sample(s, "float64", i)) for i, s in enumerate([(2, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 7)]))  # fmt: skip
    out, weights = F.attention_with_weights(q, k, v)
    close(out, F.scaled_dot_product_attention(q, k, v).numpy(), 1e-11, 1e-12)
    assert weights.shape == (2, 4, 3, 6)


def test_grouped_heads_can_be_refused():
    q, k = gr.ones([1, 4, 3, 5]), gr.ones([1, 2, 6, 5])
    assert F.scaled_dot_product_attention(q, k, k, enable_gqa=True).shape == (1, 4, 3, 5)
    with pytest.raises(
        gr.InvalidArgumentError, match=r"enable_gqa=False, but query has shape \[1, 4"
    ):
        F.scaled_dot_product_attention(q, k, k, enable_gqa=False)
    F.scaled_dot_product_attention(q, q, q, enable_gqa=False)


@pytest.mark.parametrize(
    "name",
    ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"],
)
def test_dropout_outside_of_training_is_the_identity(name):
    f, x = getattr(F, name), gr.ones([2, 3, 4, 4, 4] if name == "dropout3d" else [2, 3, 4])
    close(f(x, 0.5, training=False), x.numpy())
    assert (f(x, 1.0, True).numpy() != 1).all()
    with pytest.raises(gr.InvalidArgumentError, match="p must be"):
        f(x, 1.5, training=False)


def test_layers_take_pytorchs_arguments():
    x = gr.asarray(sample((2, 4, 6), "float32"))
    for name in ["Softmax", "Softmin", "LogSoftmax", "GLU"]:
        layer = getattr(nn, name)
        np.testing.assert_array_equal(layer(dim=1)(x), layer(1)(x))
        np.testing.assert_array_equal(layer(dim=-1)(x), layer()(x))
        with pytest.raises(
            gr.InvalidArgumentError, match=f"{name}: axis and dim are two spellings"
        ):
            layer(0, dim=1)
    np.testing.assert_array_equal(
        nn.CosineSimilarity(dim=2)(x, x + 1), nn.CosineSimilarity(2)(x, x + 1)
    )
    assert nn.Flatten(start_dim=0, end_dim=1)(x).shape == (8, 6)
    assert nn.Unflatten(dim=2, unflattened_size=(3, 2))(x).shape == (2, 4, 3, 2)
    assert nn.Embedding(num_embeddings=3, embedding_dim=5).weight.shape == (3, 5)
    plain = nn.LayerNorm(6, elementwise_affine=False)
    unshifted = nn.LayerNorm(6, bias=False)
    assert plain.weight is plain.bias is unshifted.bias is None
    assert unshifted.weight.shape == (6,)
    assert nn.RMSNorm(6, elementwise_affine=False).weight is None
    close(
        F.scaled_dot_product_attention(x, x, x, attn_mask=gr.ones([4, 4], dtype=gr.bool_)),
        F.scaled_dot_product_attention(x, x, x).numpy(),
    )


# Pooling with random windows, and adaptive softmax.


def test_windows_at_random_places():
    x = gr.asarray(sample((3, 2, 9, 7), "float32"))
    layer = nn.FractionalMaxPool2d((2, 3), output_size=(4, 3), return_indices=True)
    y, places = layer(x)
    assert y.shape == places.shape == (3, 2, 4, 3)
    picked = np.take_along_axis(x.numpy().reshape(3, 2, 63), places.numpy().reshape(3, 2, 12), -1)
    close(y, picked.reshape(y.shape))
    assert np.abs(layer(x)[0].numpy() - y.numpy()).max() > 0
    assert F.fractional_max_pool3d(gr.ones([2, 6, 6, 6]), 2, output_ratio=0.5).shape == (2, 3, 3, 3)
    with pytest.raises(gr.InvalidArgumentError, match="give one of output_size and output_ratio"):
        F.fractional_max_pool2d(x, 2)
    with pytest.raises(gr.ShapeError, match="9 windows of size 2 do not fit into 9 elements"):
        F.fractional_max_pool2d(x, 2, (9, 3))


@pytest.mark.parametrize("n", [2, 3])
def test_windows_at_random_places_beside_pytorch(n):
    torch = pytest.importorskip("torch")
    x = sample((2, 3, *(7, 9, 6)[:n]), "float64")
    samples = np.random.default_rng(1).random((2, 3, n))
    theirs = getattr(torch.nn.functional, f"fractional_max_pool{n}d")
    want, at = theirs(
        torch.tensor(x), 2, 3, return_indices=True, _random_samples=torch.tensor(samples)
    )
    ours = getattr(F, f"fractional_max_pool{n}d")
    got, places = ours(t(x), 2, 3, return_indices=True, samples=t(samples))
    close(got, want.numpy())
    close(places, at.numpy())


def test_softmax_in_clusters():
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], div_value=2.0, dtype=gr.float64)
    x, labels = t(sample((5, 8), "float64")), t([0, 2, 4, 11, 7])
    log_p = layer.log_prob(x).numpy()
    np.testing.assert_allclose(np.exp(log_p).sum(-1), 1, rtol=1e-12)
    out, loss = layer(x, labels)
    close(out, log_p[np.arange(5), labels.numpy()], 1e-12)
    assert loss.item() == pytest.approx(-out.numpy().mean())
    close(layer.predict(x), log_p.argmax(-1))
    torch = pytest.importorskip("torch")
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], 2.0, dtype=torch.float64)
    theirs.load_state_dict({n: torch.tensor(p.numpy()) for n, p in layer.state_dict().items()})
    close(out, theirs(torch.tensor(x.numpy()), torch.tensor(labels.numpy())).output.detach().numpy(), 1e-12)  # fmt: skip


@pytest.mark.parametrize("cutoffs", [[], [0], [12], [5, 5], [7, 3]])
def test_cutoffs_that_do_not_ascend(cutoffs):
    with pytest.raises(gr.InvalidArgumentError, match="cutoffs must ascend between 0 and the 12"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 12, cutoffs)

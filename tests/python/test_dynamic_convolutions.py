"""Convolutions and poolings whose spatial sizes are dynamic: one program, exported or not."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

SIZES = ((2, 9, 8), (1, 12, 7), (5, 20, 31))


@pytest.mark.parametrize("options", [{}, {"padding": 1, "stride": 2}, {"dilation": 2}])
def test_an_exported_convolution_serves_all_sizes(tmp_path, options) -> None:
    weights = gr.randn([4, 3, 3, 3])

    @gr.compile(dynamic_dims={0: {0: "n", 2: "h", 3: "w"}})
    def f(x):
        return gr.nn.relu(gr.conv2d(x, weights, **options))

    gr.export(f, gr.ones([2, 3, 9, 8])).save(tmp_path / "conv.pfgb")
    loaded = gr.load_executable(tmp_path / "conv.pfgb")
    for n, h, w in SIZES:
        x = gr.randn([n, 3, h, w])
        want = gr.nn.relu(gr.conv2d(x, weights, **options))
        np.testing.assert_allclose(loaded(x).numpy(), want.numpy(), rtol=1e-5, atol=1e-5)


LAYERS = {
    "conv": gr.nn.Conv2d(3, 4, 3),
    "same": gr.nn.Conv2d(3, 4, 3, padding="same"),
    "strides": gr.nn.Conv2d(3, 6, 3, stride=2, padding=1, groups=3),
    "transposed": gr.nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
    "max pool": gr.nn.MaxPool2d(2),
    "mean pool": gr.nn.AvgPool2d(3, stride=2, padding=1),
    "network": gr.nn.Sequential(
        gr.nn.Conv2d(3, 4, 3, padding=1), gr.nn.ReLU(), gr.nn.MaxPool2d(2), gr.nn.Conv2d(4, 2, 1)
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_one_program_serves_all_spatial_sizes(name):
    layer = LAYERS[name]
    compiled = gr.compile(lambda x: layer(x) * 2, dynamic_dims={0: {0: "n", 2: "h", 3: "w"}})
    for n, h, w in SIZES:
        x = gr.randn([n, 3, h, w])
        want = (layer(x) * 2).numpy()
        np.testing.assert_allclose(compiled(x).numpy(), want, rtol=1e-5, atol=1e-5)
    assert compiled.num_programs == 1, compiled.retraced


def test_a_kernel_larger_than_a_dynamic_size_is_an_error():
    conv = gr.compile(gr.nn.Conv2d(1, 1, 5), dynamic_dims={0: {2: "h"}})
    assert conv(gr.ones([1, 1, 6, 5])).shape == (1, 1, 2, 1)
    with pytest.raises(gr.ShapeError, match="the kernel spans 5 elements of spatial axis 0"):
        conv(gr.ones([1, 1, 4, 5]))
    assert conv(gr.ones([1, 1, 9, 5])).shape == (1, 1, 5, 1)
    assert conv.num_programs == 1

"""Class labels: a label out of range is an error when the loss is computed, and one label marks
ignored elements.
"""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import close, sample

X = sample((3, 4), "float64")
BAD = [4, -1, -2, -101, 100, 2**40]
LOSSES = {
    "cross_entropy": gr.cross_entropy,
    "weighted": lambda x, y: gr.cross_entropy(x, y, weight=np.ones(4)),
    "smoothed": lambda x, y: gr.cross_entropy(x, y, label_smoothing=0.1),
    "nll_loss": gr.nll_loss,
    "no label ignored": lambda x, y: gr.cross_entropy(x, y, ignore_index=None),
    "one_hot": lambda x, y: gr.one_hot(y, 4),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bad", BAD)
def test_a_label_that_names_no_class_is_an_error(name, bad):
    y = LOSSES[name](gr.asarray(X), gr.asarray([0, bad, 1]))
    with pytest.raises(gr.IndexOutOfBoundsError, match=rf"class label {bad} .*4 classes 0\.\.4"):
        y.eval()


def test_an_invalid_label_is_an_error_of_the_gradient():
    g = gr.grad(lambda x: gr.cross_entropy(x, gr.asarray([0, 7, 1])))(gr.asarray(X))
    with pytest.raises(gr.IndexOutOfBoundsError, match="class label 7"):
        g.eval()


def test_a_failed_loss_leaves_the_logits_usable():
    x = gr.asarray(X) * 2
    with pytest.raises(IndexError):
        gr.cross_entropy(x, gr.asarray([0, 4, 1])).eval()
    close(x, X * 2)
    assert gr.cross_entropy(x, gr.asarray([0, 3, 1])).item() > 0


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("classes", [4, 200])
def test_the_label_minus_100_is_ignored(dtype, classes):
    x = sample((3, classes), "float64")
    y = np.array([1, -100, 3], dtype)
    kept = gr.cross_entropy(gr.asarray(x[[0, 2]]), gr.asarray(y[[0, 2]])).item()
    for f in (gr.cross_entropy, lambda x, y: gr.nll_loss(x.log_softmax(-1), y)):
        assert f(gr.asarray(x), gr.asarray(y)).item() == pytest.approx(kept, rel=1e-12)
        g = gr.grad(lambda x, f=f: f(x, gr.asarray(y)))(gr.asarray(x)).numpy()
        assert not g[1].any()
        assert g[[0, 2]].any(1).all()
    none = gr.cross_entropy(gr.asarray(x), gr.asarray(y), "none").numpy()
    assert none[1] == 0
    total = gr.cross_entropy(gr.asarray(x), gr.asarray(y), "sum").item()
    assert total == pytest.approx(2 * kept, rel=1e-12)


def test_labels_of_dtypes_that_cannot_hold_minus_100():
    for dtype in ("uint8", "uint16", "uint64"):
        y = gr.asarray(np.array([1, 0, 3], dtype))
        want = gr.cross_entropy(gr.asarray(X), gr.asarray([1, 0, 3])).item()
        assert gr.cross_entropy(gr.asarray(X), y).item() == pytest.approx(want, rel=1e-12)


def test_the_mean_of_ignored_labels_only_is_nan():
    assert np.isnan(gr.cross_entropy(gr.asarray(X), gr.asarray([-100] * 3)).item())


def test_half_floats_are_summed_in_float32():
    x = gr.asarray(np.full((4096, 2), 0.0, "f4")).astype(gr.bfloat16)
    loss = gr.cross_entropy(x, gr.asarray(np.zeros(4096, "i8")))
    assert loss.dtype == gr.bfloat16
    assert abs(loss.astype(gr.float32).item() - np.log(2)) < 4e-3


def test_one_hot_of_labels():
    close(gr.one_hot(gr.asarray([[0, 2]]), 3), np.array([[[1, 0, 0], [0, 0, 1]]], "f4"))


@pytest.mark.parametrize("layer", [gr.nn.Dropout1d, gr.nn.Dropout2d, gr.nn.Dropout3d])
def test_dropout_of_channels_with_and_without_a_batch(layer):
    n = int(layer.__name__[-2])
    drop = layer(0.5)
    for lead in ((40,), (6, 40)):
        # PyTorch interprets three axes of Dropout2d as a batch of rows.
        if (n, len(lead)) == (2, 1):
            lead = (6, 40)
        y = drop(gr.ones([*lead, *(3,) * (1 if (n, len(lead)) == (2, 0) else n)])).numpy()
        per_channel = y.reshape(*lead, -1)
        assert (per_channel == per_channel[..., :1]).all()
        assert set(np.unique(y)) == {0.0, 2.0}
    rows = gr.nn.Dropout2d(0.5)(gr.ones([6, 40, 3])).numpy()
    assert (rows == rows[..., :1]).all()
    assert set(np.unique(rows[..., 0])) == {0.0, 2.0}


def test_gathers_by_smaller_indices():
    x = sample((3, 4, 5), "float64")
    index = np.array([[[0, 3, 1], [2, 2, 0]]])
    got = gr.gather(gr.asarray(x), gr.asarray(index), axis=1)
    want = np.array([[[x[0, index[0, i, k], k] for k in range(3)] for i in range(2)]])
    close(got, want)
    g = gr.grad(lambda x: gr.gather(x, gr.asarray(index), axis=1).sum())(gr.asarray(x)).numpy()
    assert g.sum() == 6
    assert not g[1:].any()
    with pytest.raises(gr.ShapeError, match="none but axis 1 longer"):
        gr.gather(gr.asarray(x), gr.asarray(np.zeros((4, 2, 5), int)), axis=1)
    with pytest.raises(gr.ShapeError, match="as many axes"):
        gr.gather(gr.asarray(x), gr.asarray([0]), axis=1)

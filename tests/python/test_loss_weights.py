"""Weights per example of losses, and the line that warnings of losses name."""

from __future__ import annotations

import warnings

import girih as gr
import numpy as np
import pytest
from girih import nn

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(3)
LOGITS = RNG.normal(size=(4, 3, 5))
LABELS = np.array([[0, 4, -100], [1, 1, 2], [3, -100, 0], [4, 2, 2]])
SAMPLES = RNG.uniform(0.0, 2.0, size=(4, 3))
CLASSES = RNG.uniform(0.5, 2.0, size=5)


def expected(loss, weight, classes, reduction):
    """From PyTorch's loss per label, and its class weights."""
    loss = loss * weight
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    counted = np.where(LABELS == -100, 0.0, weight)
    if classes is not None:
        counted = counted * classes[np.where(LABELS == -100, 0, LABELS)]
    return loss.sum() / counted.sum()


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [None, CLASSES], ids=["plain", "classes"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_cross_entropy_has_a_weight_per_label(reduction, smoothing, classes, dtype):
    weight = None if classes is None else torch.tensor(classes)
    each = torch.nn.functional.cross_entropy(
        torch.tensor(LOGITS).reshape(12, 5), torch.tensor(LABELS).reshape(12), weight,
        label_smoothing=smoothing, reduction="none",
    )  # fmt: skip
    logits = gr.asarray(LOGITS).astype(getattr(gr, dtype))
    found = gr.cross_entropy(
        logits, LABELS, reduction, weight=classes, label_smoothing=smoothing, sample_weight=SAMPLES
    )
    want = expected(each.reshape(4, 3).numpy(), SAMPLES, classes, reduction)
    rtol = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 3e-2}[dtype]
    np.testing.assert_allclose(found.astype(gr.float64).numpy(), want, rtol=rtol, atol=rtol)


def test_weights_of_one_change_nothing_and_weights_of_zero_leave_out():
    ones, zeros = np.ones((4, 3)), np.zeros((4, 3))
    plain = gr.cross_entropy(LOGITS, LABELS)
    np.testing.assert_allclose(gr.cross_entropy(LOGITS, LABELS, sample_weight=ones), plain)
    assert np.isnan(gr.cross_entropy(LOGITS, LABELS, sample_weight=zeros).item())
    assert gr.cross_entropy(LOGITS, LABELS, "sum", sample_weight=zeros).item() == 0.0
    zeros[1, 2] = 7.0
    found = gr.cross_entropy(LOGITS, LABELS, sample_weight=zeros)
    np.testing.assert_allclose(found, gr.cross_entropy(LOGITS[1, 2], LABELS[1, 2]))


def test_probabilities_and_log_probabilities():
    p = gr.softmax(gr.asarray(RNG.normal(size=(4, 3, 5))))
    each = gr.cross_entropy(LOGITS, p, "none").numpy()
    found = gr.cross_entropy(LOGITS, p, sample_weight=SAMPLES)
    np.testing.assert_allclose(found, (each * SAMPLES).sum() / SAMPLES.sum())
    log_p = gr.log_softmax(gr.asarray(LOGITS))
    np.testing.assert_allclose(
        gr.nll_loss(log_p, LABELS, sample_weight=SAMPLES),
        gr.cross_entropy(LOGITS, LABELS, sample_weight=SAMPLES),
    )


def test_gradients_and_wrong_shapes():
    f = lambda w: gr.cross_entropy(LOGITS, LABELS, "sum", sample_weight=w)
    each = gr.cross_entropy(LOGITS, LABELS, "none")
    np.testing.assert_allclose(gr.grad(f)(gr.asarray(SAMPLES)), each)
    for bad in (np.ones(3), np.ones((4, 3, 5)), 1.0):
        with pytest.raises(gr.ShapeError, match="sample_weight"):
            gr.cross_entropy(LOGITS, LABELS, sample_weight=bad)


def test_the_warning_names_the_line_of_the_user():
    x, y = gr.ones([3, 1]), gr.ones([3])
    calls = [
        lambda: nn.mse(x, y),
        lambda: nn.l1(x, y),
        lambda: nn.functional.mse_loss(x, y),
        lambda: gr.mse_loss(x, y),
        lambda: nn.MSELoss()(x, y),
        lambda: gr.grad(lambda x: nn.mse(x, y))(x),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert [one.filename for one in caught] == [__file__]
        assert caught[0].lineno in range(
            call.__code__.co_firstlineno, call.__code__.co_firstlineno + 1
        )

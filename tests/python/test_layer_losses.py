"""Losses over sequences and label sets, and broadcasting of losses; against enumeration of all
alignments, and formulas in NumPy.
"""

from __future__ import annotations

import itertools

import girih as gr
import numpy as np
import pytest
from conftest import close, sample
from girih import nn

F = nn.functional


def t(x):
    return gr.asarray(np.asarray(x))


def test_broadcasting_losses_warn():
    x, y = gr.asarray([[1.0], [2.0]]), gr.asarray([1.0, 3.0])
    for loss, want in [(F.mse_loss, 1.5), (F.l1_loss, 1.0), (F.huber_loss, 0.625), (F.smooth_l1_loss, 0.625)]:  # fmt: skip
        with pytest.warns(UserWarning, match=r"\[2, 1\] and targets \[2\], which broadcast"):
            assert loss(x, y).item() == pytest.approx(want)
    assert F.poisson_nll_loss(x, y, reduction="none").shape == (2, 2)
    assert F.triplet_margin_loss(gr.ones([4, 3]), gr.ones([1, 3]), gr.ones([3]), reduction="none").shape == (4,)  # fmt: skip
    for loss in (F.mse_loss, F.poisson_nll_loss):
        with pytest.raises(gr.ShapeError, match=rf"{loss.__name__}: shapes \[2\] and \[3\]"):
            loss(gr.ones([2]), gr.ones([3]))


def test_batchmean():
    x, y = sample((4, 3), "float64"), sample((4, 3), "float64", 1, 0.1, 1)
    want = (y * (np.log(y) - x)).sum() / 4
    assert F.kl_div(t(x), t(y), reduction="batchmean").item() == pytest.approx(want)
    assert nn.KLDivLoss(reduction="batchmean")(t(x), t(y)).item() == pytest.approx(want)
    with pytest.raises(
        gr.InvalidArgumentError, match="kl_div: reduction must be 'batchmean', 'mean'"
    ):
        F.kl_div(t(x), t(y), reduction="median")
    with pytest.raises(gr.InvalidArgumentError, match="mse_loss: reduction"):
        F.mse_loss(t(x), t(y), reduction="batchmean")


def ways(p, labels, blank=0):
    """The probability of labels, as the sum over all alignments."""
    total = 0.0
    for way in itertools.product(range(p.shape[1]), repeat=len(p)):
        told = [c for i, c in enumerate(way) if c != blank and (i == 0 or c != way[i - 1])]
        total += np.prod([p[i, c] for i, c in enumerate(way)]) if told == list(labels) else 0.0
    return total


@pytest.mark.parametrize("labels", [[], [1], [1, 2], [2, 2], [1, 2, 1], [2, 2, 2]])
def test_ctc_adds_up_all_ways(labels):
    p = np.exp(sample((4, 3), "float64"))
    p /= p.sum(1, keepdims=True)
    want = ways(p, labels)
    operands = (np.log(p)[:, None], np.array([labels], "i8").reshape(1, -1), [4], [len(labels)])
    loss = F.ctc_loss(*map(t, operands), reduction="none").item()
    assert loss == (pytest.approx(-np.log(want)) if want else float("inf"))
    if not want:
        quiet = F.ctc_loss(*map(t, operands), zero_infinity=True)
        assert quiet.item() == 0
        grad = gr.grad(lambda x: F.ctc_loss(x, *map(t, operands[1:]), zero_infinity=True))
        assert (grad(t(operands[0])).numpy() == 0).all()


def test_ctc_of_a_batch():
    x = gr.log_softmax(t(sample((6, 3, 4), "float32")), -1)
    padded, lengths, steps = t([[1, 2, 3], [3, 3, 0], [0, 0, 0]]), t([3, 2, 0]), t([6, 4, 5])
    each = F.ctc_loss(x, padded, steps, lengths, reduction="none").numpy()
    for i, n in enumerate([3, 2, 0]):
        alone = F.ctc_loss(
            x[: steps.tolist()[i], i], padded[i, :n], steps[i], lengths[i], reduction="none"
        )
        assert alone.item() == pytest.approx(each[i], rel=1e-5)
    joined = F.ctc_loss(x, t([1, 2, 3, 3, 3]), steps, lengths, reduction="none")
    close(joined, each, 1e-6)
    mean = F.ctc_loss(x, padded, steps, lengths).item()
    assert mean == pytest.approx((each / [3, 2, 1]).mean(), rel=1e-5)
    other = F.ctc_loss(gr.roll(x, -1, 2), padded - 1, steps, lengths, blank=3, reduction="none")
    close(other, each, 1e-5)
    step = gr.compile(gr.value_and_grad(lambda x: F.ctc_loss(x, padded, steps, lengths)))
    assert step(x)[0].item() == pytest.approx(mean, rel=1e-5)
    for bad, words in [
        (lambda: F.ctc_loss(x, padded, steps, lengths, blank=4), "blank is 4, expected a class below 4"),
        (lambda: F.ctc_loss(x, padded[:2], steps, lengths), "expected labels"),
        (lambda: F.ctc_loss(x, padded, steps[:2], lengths), "one length per entry"),
        (lambda: F.ctc_loss(x, padded * 1.0, steps, lengths), "integers as labels"),
    ]:  # fmt: skip
        with pytest.raises(gr.GirihError, match=f"ctc_loss: .*{words}"):
            bad()


def test_margin_losses():
    x, y = sample((5, 4), "float64"), np.array([3, 0, 1, 2, 3])
    w = np.array([1.0, 2.0, 0.5, 0.0])
    for p in (1, 2):
        want = [
            w[label]
            * sum(max(0, 0.7 - row[label] + row[i]) ** p for i in range(4) if i != label)
            / 4
            for row, label in zip(x, y, strict=True)
        ]
        got = F.multi_margin_loss(t(x), t(y), p, 0.7, t(w), reduction="none")
        close(got, np.array(want), 1e-12)
    with pytest.raises(gr.InvalidArgumentError, match="multi_margin_loss: p must be 1 or 2, got 3"):
        F.multi_margin_loss(t(x), t(y), 3)
    with pytest.raises(gr.DTypeError, match="MultiLabelMarginLoss: dtype float64"):
        nn.MultiLabelMarginLoss()(t(x), t(x))


@pytest.mark.parametrize("label", [-1, 5])
def test_labels_that_name_no_class_are_errors(label):
    x = gr.log_softmax(gr.zeros([4, 1, 5]), -1)
    for loss in (
        lambda: F.multi_margin_loss(x[0], t([label])),
        lambda: F.ctc_loss(x, t([[1, label]]), t([4]), t([2])),
    ):
        with pytest.raises(gr.IndexOutOfBoundsError):
            gr.eval(loss())
    # Elements after the end of an entry's labels may have any value.
    assert np.isfinite(F.ctc_loss(x, t([[1, label]]), t([4]), t([1])).item())

"""Small steps of half-precision parameters: master weights and stochastic rounding."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from girih import nn, optim

HALVES = ["bfloat16", "float16"]


def dtype_of(name):
    return getattr(gr, name)


def ten_steps(optimizer, dtype, size=1):
    p = [gr.ones([size], dtype=dtype_of(dtype))]
    for _ in range(10):
        p = optimizer.update(p, [gr.ones([size], dtype=dtype_of(dtype))])
    return p[0].astype(gr.float64).numpy()


def test_ten_small_steps_of_a_plain_optimiser_round_to_nothing():
    assert ten_steps(optim.SGD(1e-3), "bfloat16") == 1.0


@pytest.mark.parametrize("dtype", HALVES)
def test_master_weights_keep_small_steps(dtype):
    optimizer = optim.MasterWeights(optim.SGD(1e-3))
    np.testing.assert_allclose(ten_steps(optimizer, dtype), 0.99, rtol=4e-3)
    np.testing.assert_allclose(optimizer.state["master"][0].numpy(), 0.99, rtol=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
def test_stochastic_rounding_is_right_on_average(dtype):
    gr.manual_seed(0)
    found = ten_steps(optim.StochasticRounding(optim.SGD(1e-3)), dtype, 20000)
    np.testing.assert_allclose(found.mean(), 0.99, atol=3e-4)
    # Each is a neighbour, at most ten steps of the dtype away.
    assert len(np.unique(found)) <= 12


@pytest.mark.parametrize("dtype", HALVES)
def test_stochastic_rounding_of_exact_and_extreme_numbers(dtype):
    class Given(optim.Optimizer):
        """Takes the negative gradient as the new parameter."""

        def _step(self, p, g, slots, scalars):
            return (-g + 0.0 * p,)

    largest = float(gr.finfo(dtype_of(dtype)).max)
    values = np.array([0.0, 1.0, -2.0, 0.5, np.inf, -np.inf, np.nan, largest, -largest], np.float32)
    optimizer = optim.StochasticRounding(Given(1.0))
    p = [gr.ones([values.size], dtype=dtype_of(dtype))]
    found = optimizer.update(p, [-gr.asarray(values)])[0].astype(gr.float32).numpy()
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("make", [optim.MasterWeights, optim.StochasticRounding])
def test_other_parameters_are_updated_as_ever(make):
    p = [gr.ones([2]), gr.ones([2], dtype=gr.bfloat16), gr.ones([2], dtype=gr.float64)]
    grads = [gr.full(t.shape, 0.25, dtype=t.dtype) for t in p]
    wrapped, plain = make(optim.Adam(0.1)), optim.Adam(0.1)
    for _ in range(3):
        ours, expected = wrapped.update(p, grads), plain.update(p, grads)
        assert [t.dtype for t in ours] == [t.dtype for t in p]
    for i in (0, 2):
        np.testing.assert_array_equal(ours[i].numpy(), expected[i].numpy())
    empty = make(optim.SGD(0.1)).update([gr.ones([0], dtype=gr.bfloat16)], [gr.ones([0], dtype=gr.bfloat16)])  # fmt: skip
    assert empty[0].shape == (0,)


def test_a_parameter_that_is_changed_otherwise_has_a_new_copy():
    p, g = [gr.ones([2], dtype=gr.bfloat16)], [gr.asarray([1.0, 1.0]).astype(gr.bfloat16)]
    optimizer = optim.MasterWeights(optim.SGD(1e-3))
    for _ in range(2):
        p = optimizer.update(p, g)
    p = [p[0].at[0].set(4.0)]
    p = optimizer.update(p, g)
    np.testing.assert_allclose(optimizer.state["master"][0].numpy(), [3.999, 0.997], rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_in_bfloat16_learns(compiled):
    gr.manual_seed(1)
    model = nn.Linear(4, 1).to(gr.bfloat16)
    x = gr.randn([64, 4]).astype(gr.bfloat16).eval()
    y = (x @ gr.asarray([[1.0], [-2.0], [0.5], [3.0]]).astype(gr.bfloat16)).eval()
    optimizer = optim.MasterWeights(optim.Adam(model.parameters(), lr=3e-3))

    def loss_of():
        return ((model(x) - y).astype(gr.float32) ** 2).mean()

    if compiled:
        optimizer = optim.MasterWeights(optim.Adam(3e-3))
        optimizer.init(model)
        gradients = nn.value_and_grad(model, loss_of)

        @gr.compile
        def step():
            loss, grads = gradients()
            optimizer.update(model, grads)
            return loss
    else:

        def step():
            optimizer.zero_grad()
            loss = loss_of()
            loss.backward()
            optimizer.step()
            return loss

    losses = [step().item() for _ in range(60)]
    assert losses[-1] < 0.9 * losses[0]
    assert model.weight.dtype == gr.bfloat16
    state = optimizer.state_dict()
    assert state["master.weight"].dtype == gr.float32
    optimizer.load_state_dict(state)
    assert step().item() < losses[0]

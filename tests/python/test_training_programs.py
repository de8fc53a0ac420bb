"""Programs with several models and losses in PyTorch's style, beside PyTorch: numbers and memory."""

from __future__ import annotations

import gc

import girih as gr
import numpy as np
import pytest

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=(24, 16, 2)).astype(np.float32)
REAL = RNG.normal(size=(24, 16, 2)).astype(np.float32) + 1


def live():
    gc.collect()
    return gr.current_graph().live_nodes, gr.cache_stats()["memory_bytes"]


def adversaries(lib):
    nn = lib.nn
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    critic = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    return generator, critic


def adversarial(lib, generator, critic):
    """A generator and a critic with an optimiser each; both losses use the generator's result."""
    options = {"lr": 0.01, "betas": (0.5, 0.999)}
    of_generator = lib.optim.Adam(generator.parameters(), **options)
    of_critic = lib.optim.Adam(critic.parameters(), **options)
    loss_fn, losses, counts = lib.nn.BCEWithLogitsLoss(), [], []
    one, zero = lib.ones(16, 1), lib.zeros(16, 1)
    for z, real in zip(NOISE, REAL, strict=True):
        of_critic.zero_grad()
        on_real = loss_fn(critic(lib.asarray(real)), one)
        on_real.backward()
        fake = generator(lib.asarray(z))
        on_fake = loss_fn(critic(fake.detach()), zero)
        on_fake.backward()
        of_critic.step()
        of_generator.zero_grad()
        fooled = loss_fn(critic(fake), one)
        fooled.backward()
        of_generator.step()
        losses.append([on_real.item(), on_fake.item(), fooled.item()])
        counts.append(live() if lib is gr else None)
    return losses, counts


def test_two_models_that_train_against_each_other():
    theirs, ours = adversaries(torch), adversaries(gr)
    for own, other in zip(ours, theirs, strict=True):
        own.load_state_dict(other.state_dict())
    expected, _ = adversarial(torch, *theirs)
    found, counts = adversarial(gr, *ours)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len(set(counts[5:])) == 1


def truncated(lib, rnn, head):
    """Backpropagation through time in pieces: the state goes on without its gradient."""
    optimizer = lib.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.05)
    hidden, losses, counts = None, [], []
    for piece in NOISE:
        x = lib.asarray(piece[:, None, :])
        y, hidden = rnn(x) if hidden is None else rnn(x, hidden)
        loss = (head(y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hidden = hidden.detach()
        losses.append(loss.item())
        counts.append(live() if lib is gr else None)
    return losses, counts


def test_a_recurrent_network_in_pieces():
    torch.manual_seed(1)
    theirs = torch.nn.RNN(2, 4), torch.nn.Linear(4, 1)
    ours = gr.nn.RNN(2, 4), gr.nn.Linear(4, 1)
    for own, other in zip(ours, theirs, strict=True):
        own.load_state_dict(other.state_dict())
    expected, _ = truncated(torch, *theirs)
    found, counts = truncated(gr, *ours)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len(set(counts[5:])) == 1


def test_a_network_whose_layers_are_written_out():
    """PyTorch's first examples: no module, no optimiser, an update under no_grad."""
    results = []
    for lib in (torch, gr):
        w1 = lib.asarray(REAL[0, :2] / 4).requires_grad_()
        w2 = lib.asarray(REAL[1, :2] / 4).requires_grad_()
        x, y = lib.asarray(NOISE[0]), lib.asarray(REAL[2])
        for _ in range(10):
            loss = ((lib.maximum(x @ w1, 0 * x) @ w2 - y) ** 2).sum()
            loss.backward()
            with lib.no_grad():
                w1 -= 1e-3 * w1.grad
                w2 -= 1e-3 * w2.grad
                w1.grad = None
                w2.grad = None
        results.append(loss.item())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)


def test_lbfgs_takes_a_closure():
    a = gr.asarray([3.0, -2.0]).requires_grad_()
    b = torch.tensor([3.0, -2.0], requires_grad=True)
    own, other = gr.optim.LBFGS([a], lr=0.5), torch.optim.LBFGS([b], lr=0.5)

    def closure(opt, p, scale):
        def run():
            opt.zero_grad()
            loss = ((p - 1.0) ** 2 * scale).sum()
            loss.backward()
            return loss

        return run

    for _ in range(3):
        mine = own.step(closure(own, a, gr.asarray([1.0, 20.0])))
        theirs = other.step(closure(other, b, torch.tensor([1.0, 20.0])))
        np.testing.assert_allclose(mine.item(), theirs.item(), rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-4)


def test_norms_that_a_model_gets_later_and_outside_of_the_optimiser():
    nn = gr.nn
    body, head = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4, affine=False)), nn.Linear(4, 1)
    model = nn.Sequential(body, head)
    optimizer = gr.optim.SGD(head.parameters(), lr=0.01)
    body[1] = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4))
    counts = []
    for z in NOISE:
        optimizer.zero_grad()
        model(gr.asarray(z)).mean().backward()
        optimizer.step()
        assert not any(buffer.is_lazy for buffer in model.buffers())
        counts.append(live())
    assert len(set(counts[5:])) == 1

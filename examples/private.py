"""A classifier that is trained privately: no digit of the data says much about the network.

Each step takes the gradient of every digit by itself, `gr.vmap` of `gr.grad`, bounds its norm,
and adds noise to the sum: Abadi et al. 2016. The digits of a step are drawn one by one, so what
an observer of the network can learn about any of them is bounded by the accounting of Mironov et
al. 2019. Writes private.svg: accuracy by how much privacy was spent (epsilon, at delta 1e-4),
for different noise; `--steps N` trains for longer or shorter.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import girih as gr
from digits import load
from girih import nn

SEED = 0
SHARE = 0.15
BOUND = 1.0
DELTA = 1e-4
NOISES = (1.0, 1.5, 3.0)


def spent(noise: float, steps: int) -> float:
    """Epsilon of that many steps, from Renyi divergences of integer orders."""
    best = math.inf
    for order in range(2, 65):
        terms = [
            math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1)
            + k * math.log(SHARE) + (order - k) * math.log(1 - SHARE)
            + (k * k - k) / (2 * noise**2)
            for k in range(order + 1)
        ]  # fmt: skip
        largest = max(terms)
        divergence = largest + math.log(sum(math.exp(t - largest) for t in terms))
        best = min(best, (steps * divergence + math.log(1 / DELTA)) / (order - 1))
    return best


def private_gradient(
    model: nn.Module, parameters: gr.tree.PyTree, x: gr.Tensor, y: gr.Tensor, noise: float
) -> gr.tree.PyTree:
    """The mean gradient of digits drawn at random, each bounded, with noise."""

    def loss(parameters: gr.tree.PyTree, x: gr.Tensor, y: gr.Tensor) -> gr.Tensor:
        return nn.cross_entropy(nn.functional_call(model, parameters, x[None]), y[None])

    each = gr.vmap(gr.grad(loss), in_axes=(None, 0, 0))(parameters, x, y)
    norms = sum((g * g).reshape((g.shape[0], -1)).sum(1) for g in gr.tree.leaves(each)).sqrt()
    drawn = (gr.random.uniform([x.shape[0]]) < SHARE).astype(x.dtype)
    # A gradient above the bound is shortened to it, one of a digit that is not drawn left out.
    weight = drawn * gr.minimum(1.0, BOUND / (norms + 1e-12))
    expected = SHARE * x.shape[0]

    def noisy(g: gr.Tensor) -> gr.Tensor:
        total = gr.einsum("n,n...->...", weight, g)
        return (total + noise * BOUND * gr.random.normal(total.shape)) / expected

    return gr.tree.map(noisy, each)


def main(steps: int, width: int, out: Path) -> None:
    images, labels = load()
    rows = [i for i in range(len(labels)) if i % 5 != 4]
    x, y = (t.take(gr.asarray(rows), axis=0) for t in (gr.asarray(images), gr.asarray(labels)))
    x_test, y_test = gr.asarray(images[4::5]), gr.asarray(labels[4::5])
    gr.eval(x, y, x_test, y_test)
    curves: list[tuple[str, list[tuple[float, float]]]] = []
    for noise in NOISES:
        gr.manual_seed(SEED)
        model = gr.eval(nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 10)))
        optimizer = gr.optim.SGD(1.0, momentum=0.8)
        average = gr.optim.EMA(0.95, warmup=True)
        optimizer.init(model)

        @gr.compile
        def step(
            model: nn.Module = model,
            optimizer: gr.optim.Optimizer = optimizer,
            average: gr.optim.EMA = average,
            noise: float = noise,
        ) -> None:
            grads = private_gradient(model, model.parameters_tree(), x, y, noise)
            optimizer.update(model, grads)
            average.update(model)

        curve = []
        bar = gr.data.progress(range(steps), f"noise {noise}", file=sys.stdout)
        for i in bar:
            step()
            if (i + 1) % max(1, steps // 10) == 0:
                with average.applied(model):
                    right = (model(x_test).argmax(axis=1) == y_test).mean().item()
                curve.append((spent(noise, i + 1), 100 * right))
                bar.set(epsilon=curve[-1][0], accuracy=curve[-1][1])
        curves.append((f"noise {noise}", curve))

    print()
    for name, curve in curves:
        epsilon, accuracy = curve[-1]
        print(f"{name}: accuracy {accuracy:.1f}% at epsilon {epsilon:.2f}")
    out.mkdir(parents=True, exist_ok=True)
    plot = gr.line_plot("Private training", "epsilon", "accuracy in percent", curves)
    (out / "private.svg").write_text(plot, encoding="utf-8")
    print(f"Wrote private.svg to {out}/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("private-out"))
    arguments = parser.parse_args()
    if arguments.steps < 1 or arguments.width < 1:
        parser.error("--steps and --width must be at least 1")
    main(arguments.steps, arguments.width, arguments.out)

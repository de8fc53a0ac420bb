"""A network that satisfies a differential equation: a damped oscillator found from its physics.

The network gives the position at a time. Its loss asks for the equation x'' + 2 d x' + w^2 x = 0
at many times, with derivatives of the network by `gr.grad` within `gr.grad`, and for the
position and speed at the beginning. L-BFGS trains in double precision. Writes oscillator.svg:
the network beside the exact solution; `--steps N` trains for longer or shorter.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import girih as gr
from girih import nn

SEED = 0
DAMPING, FREQUENCY = 0.3, 3.0
END = 5.0


def exact(t: float) -> float:
    """The position at a time: 1 at the beginning, at rest."""
    own = math.sqrt(FREQUENCY**2 - DAMPING**2)
    wave = math.cos(own * t) + DAMPING / own * math.sin(own * t)
    return math.exp(-DAMPING * t) * wave


def main(steps: int, width: int, points: int, out: Path) -> None:
    gr.manual_seed(SEED)
    model = gr.eval(
        nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        ).astype(gr.float64)
    )
    times = gr.eval(gr.linspace(0.0, END, points, dtype=gr.float64)[:, None])
    zero = gr.zeros([1, 1], dtype=gr.float64)

    def position(t: gr.Tensor) -> gr.Tensor:
        return model(t * (2.0 / END) - 1.0)

    # Each position depends on its own time only, so the gradient of the sum is that of each.
    speed = gr.grad(lambda t: position(t).sum())
    acceleration = gr.grad(lambda t: speed(t).sum())

    def loss_of() -> gr.Tensor:
        residual = acceleration(times) + 2 * DAMPING * speed(times) + FREQUENCY**2 * position(times)
        # Later times matter once the earlier ones are right.
        weight = (-times).exp()
        start = (position(zero) - 1.0) ** 2 + speed(zero) ** 2
        return (weight * residual**2).mean() + 10.0 * start.sum()

    loss_and_grad = nn.value_and_grad(model, loss_of)
    warm, fine = gr.optim.Adam(3e-3), gr.optim.LBFGS(0.5, history_size=20)

    def step_of(optimizer: gr.optim.Optimizer) -> gr.CompiledFunction:
        optimizer.init(model)

        @gr.compile
        def step() -> gr.Tensor:
            loss, grads = loss_and_grad()
            optimizer.update(model, grads)
            return loss

        return step

    print(f"{model.num_parameters():,} parameters, {points} times")
    bar = gr.data.progress(range(steps), "training", file=sys.stdout)
    step = step_of(warm)
    for i in bar:
        if i == steps // 2:
            step = step_of(fine)
        bar.set(loss=step().item())

    at = [END * i / 200 for i in range(201)]
    found = position(gr.asarray(at, dtype=gr.float64)[:, None])[:, 0].tolist()
    error = max(abs(a - exact(t)) for t, a in zip(at, found, strict=True))
    print(f"\nlargest error {error:.2e}")
    out.mkdir(parents=True, exist_ok=True)
    series = [
        ("network", list(zip(at, found, strict=True))),
        ("exact", [(t, exact(t)) for t in at]),
    ]
    plot = gr.line_plot("Damped oscillator", "time", "position", series)
    (out / "oscillator.svg").write_text(plot, encoding="utf-8")
    print(f"Wrote oscillator.svg to {out}/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--points", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("oscillator-out"))
    arguments = parser.parse_args()
    if min(arguments.steps, arguments.width, arguments.points) < 1:
        parser.error("--steps, --width and --points must be at least 1")
    main(arguments.steps, arguments.width, arguments.points, arguments.out)

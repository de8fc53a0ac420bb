"""One classifier under four plans: alone, data parallel, tensor parallel, and with cut parameters.

The same training program runs on one device and on eight virtual devices of the host, and comes to
the same loss. What differs is the sharding of the batch and of the parameters: each plan prints
what devices exchange in a step, and how much of the model and of the optimiser's state each of
them holds. Writes parallel.svg: which device has which part of a weight. `--steps N` trains for
longer or shorter.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import girih as gr
from girih import P, nn

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parent.parent / "data" / "digits.csv"
SEED = 0
BATCH = 64

#: The first layer of a pair is cut by its outputs, the second one by its inputs.
TENSOR = {"0.weight": P("tp"), "0.bias": P("tp"), "2.weight": P(None, "tp")}
#: Each weight is cut by its outputs, if these divide.
CUT = {"0.*": P(("dp", "tp")), "2.*": P(("dp", "tp"))}
#: What cuts the batch, and the parameters.
PLANS = {
    "data parallel": (P(("dp", "tp")), {}),
    "tensor parallel": (P("dp"), TENSOR),
    "cut parameters": (P(("dp", "tp")), CUT),
}


def load() -> tuple[list[list[float]], list[int]]:
    """Images as 64 floats in 0..1, and their digits."""
    images, labels = [], []
    for line in DATA.read_text().splitlines():
        *pixels, label = map(int, line.split(","))
        images.append([p / 16 for p in pixels])
        labels.append(label)
    return images, labels


def network(width: int) -> nn.Module:
    """The classifier, which is the same in each plan."""
    gr.manual_seed(SEED)
    return nn.Sequential(
        nn.Linear(64, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10)
    )


def held(model: nn.Module) -> int:
    """The bytes of parameters and Adam's two moments that the first device holds."""
    return sum(3 * 4 * parameter.shards()[0].size for parameter in model.parameters())


def train(
    model: nn.Module, steps: int, batches: Callable[[int], tuple[gr.Tensor, gr.Tensor]]
) -> tuple[float, Counter[str]]:
    """The loss after some steps, and the bytes that each kind of collective moves in a step."""
    optimizer = gr.optim.Adam(1e-3)
    optimizer.init(model)
    x, y = batches(0)

    def loss_of(x: gr.Tensor, y: gr.Tensor) -> gr.Tensor:
        return nn.cross_entropy(model(x), y)

    loss_and_grad = nn.value_and_grad(model, loss_of)
    moved: Counter[str] = Counter()
    if x.sharding is not None:
        loss, grads = loss_and_grad(x, y)
        for collective in gr.explain(loss, grads).collectives:
            moved[collective["op"]] += collective["bytes"]
    last = 0.0
    for step in gr.data.progress(range(steps), "training", file=sys.stdout):
        loss, grads = loss_and_grad(*batches(step))
        optimizer.update(model, grads)
        gr.eval(loss, model, optimizer.state)
        last = loss.item()
    return last, moved


def main(steps: int, width: int, out: Path) -> None:
    gr.set_host_devices(8)
    mesh = gr.DeviceMesh((2, 4), ("dp", "tp"))
    images, labels = load()
    x, y = gr.asarray(images), gr.asarray(labels)
    shuffle = random.Random(SEED)
    chosen = [shuffle.sample(range(len(labels)), BATCH) for _ in range(steps)]

    def alone(step: int) -> tuple[gr.Tensor, gr.Tensor]:
        rows = gr.asarray(chosen[step])
        return gr.eval(x.take(rows, axis=0), y.take(rows, axis=0))

    model = network(width)
    reference, _ = train(model, steps, alone)
    print(f"alone            loss {reference:.6f}, {held(model):,} bytes held")
    for name, (rows, specs) in PLANS.items():
        model = network(width).shard(mesh, specs)

        def batches(step: int, rows: P = rows) -> tuple[gr.Tensor, gr.Tensor]:
            pixels, digits = gr.shard(alone(step), mesh, rows)
            return pixels, digits

        loss, moved = train(model, steps, batches)
        exchanged = ", ".join(f"{op} {size:,}" for op, size in sorted(moved.items()))
        same = "the same" if abs(loss - reference) < 1e-3 * reference else "ANOTHER"
        print(f"{name:16} loss {loss:.6f} ({same}), {held(model):,} bytes held")
        print(f"{'':16} bytes exchanged in a step: {exchanged}")

    out.mkdir(parents=True, exist_ok=True)
    sharding = gr.Sharding(mesh, P("dp", "tp"))
    drawing = gr.visualize_sharding(sharding, (width, 64), format="svg")
    (out / "parallel.svg").write_text(drawing, encoding="utf-8")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {value}")
    return value


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=positive, default=60)
    parser.add_argument("--width", type=positive, default=128)
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    options = parser.parse_args()
    main(options.steps, options.width, options.out)

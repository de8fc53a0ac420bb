"""Trains a classifier on 1,797 handwritten digits; `make demo` runs it.

Writes demo-out/loss.svg, step-graph.svg and step-graph.txt. `--epochs N` trains for longer or
shorter; `--out DIR` writes elsewhere.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from pathlib import Path

import girih as gr

DATA = Path(__file__).parent.parent / "data" / "digits.csv"
SEED = 0
BATCH = 64
PEAK_RATE = 4e-3
NOISE = 0.15


def load() -> tuple[list[list[float]], list[int]]:
    """Images as 64 floats in 0..1, and their digits."""
    images, labels = [], []
    for line in DATA.read_text().splitlines():
        *pixels, label = map(int, line.split(","))
        images.append([p / 16 for p in pixels])
        labels.append(label)
    return images, labels


def draw(images: list[list[float]], truth: list[int], predicted: list[int]) -> str:
    """Images side by side as text, each under what it is taken for and what it is."""
    marks = [
        f"{p} (is {t})" + ("" if p == t else " !") for p, t in zip(predicted, truth, strict=True)
    ]
    lines = ["  ".join(f"{mark:<16}" for mark in marks)]
    for row in range(8):
        pixels = (image[8 * row : 8 * row + 8] for image in images)
        lines.append("  ".join("".join(" ░▒▓█"[round(p * 4)] * 2 for p in row) for row in pixels))
    return "\n".join(line.rstrip() for line in lines)


def main(epochs: int, out: Path) -> None:
    images, labels = load()
    # Held out: every fifth image. The file is in the order it was written in, so this fifth has
    # all the writers, as the rest has.
    held_out = range(4, len(labels), 5)
    training = [i for i in range(len(labels)) if i % 5 != 4]

    gr.manual_seed(SEED)
    shuffle = random.Random(SEED)
    x, y = gr.asarray(images), gr.asarray(labels)
    test = gr.asarray(list(held_out))
    x_test, y_test = gr.eval(x.take(test, axis=0), y.take(test, axis=0))

    model = gr.nn.Sequential(
        gr.nn.Linear(64, 256), gr.nn.GELU(), gr.nn.Linear(256, 128), gr.nn.GELU(),
        gr.nn.Linear(128, 10),
    )  # fmt: skip
    steps = len(training) // BATCH
    optimizer = gr.optim.AdamW(
        lambda step: PEAK_RATE * (1 + math.cos(math.pi * step / (epochs * steps))) / 2
    )
    optimizer.init(model)

    def loss_of(batch: gr.Tensor) -> gr.Tensor:
        # Noise on the pixels, new in each step, against overfitting 1,438 images. Its size was
        # chosen on a fifth of those, not on the held-out ones.
        pixels = x.take(batch, axis=0) + NOISE * gr.randn([BATCH, 64])
        return gr.nn.cross_entropy(model(pixels), y.take(batch, axis=0))

    loss_and_grad = gr.nn.value_and_grad(model, loss_of)

    def train_step(indices: list[int]) -> gr.Tensor:
        loss, grads = loss_and_grad(gr.asarray(indices))
        optimizer.update(model, grads)
        return loss

    print(
        f"{len(training)} digits to train on, {len(y_test)} held out; "
        f"{model.num_parameters()} parameters"
    )
    gr.eval(model, optimizer.state)
    losses: list[float] = []
    compiled = None
    bar = gr.data.progress(range(epochs * steps), "training", file=sys.stdout)
    before = gr.cache_stats()
    started = time.perf_counter()
    for at in bar:
        epoch, step = divmod(at, steps)
        if step == 0:
            shuffle.shuffle(training)
        loss = train_step(training[step * BATCH : (step + 1) * BATCH])
        if compiled is None:
            compiled = gr.compile_graph((loss, model, optimizer.state))
        gr.eval(loss, model, optimizer.state)
        losses.append(loss.item())
        bar.set(epoch=epoch + 1, loss=losses[-1])
    seconds = time.perf_counter() - started
    after = gr.cache_stats()

    model.eval()
    predicted = model(x_test).argmax(axis=1)
    accuracy = (predicted == y_test).mean().item()
    guesses = predicted.tolist()

    def during(counter: str) -> int:
        return after[counter] - before[counter]

    print(f"""
accuracy        {accuracy:.2%} on the held-out fifth
speed           {len(losses) / seconds:,.0f} steps/s ({len(losses):,} steps in {seconds:.2f} s)
nodes recorded  {during("nodes_recorded"):,} ({during("nodes_recorded") // len(losses)} per step)
kernels         {during("kernels_launched") / len(losses):.0f} per step
compiles        {during("compiles")} while training
program cache   {during("hits"):,} hits, {during("misses")} misses
peak memory     {after["peak_memory_bytes"] / 2**20:.1f} MiB
""")
    wrong = [i for i, guess in enumerate(guesses) if guess != labels[held_out[i]]]
    shown = [0, 17, 101, 240, *wrong[:1]]
    print(
        draw(
            [images[held_out[i]] for i in shown],
            [labels[held_out[i]] for i in shown],
            [guesses[i] for i in shown],
        )
    )

    out.mkdir(parents=True, exist_ok=True)
    curve = [(float(i + 1), value) for i, value in enumerate(losses)]
    averaged = [
        (float((e + 1) * steps), sum(losses[e * steps : (e + 1) * steps]) / steps)
        for e in range(epochs)
    ]
    plot = gr.line_plot("Training loss", "step", "loss", [("step", curve), ("epoch", averaged)])
    (out / "loss.svg").write_text(plot, encoding="utf-8")
    if compiled is not None:
        text = f"{compiled.optimized_text}\n\n{compiled.kernels_text}\n"
        (out / "step-graph.txt").write_text(text, encoding="utf-8")
        (out / "step-graph.svg").write_text(compiled.optimized_svg(), encoding="utf-8")
    print(f"\nWrote loss.svg, step-graph.svg and step-graph.txt to {out}/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error("--epochs must be at least 1")
    try:
        main(arguments.epochs, arguments.out)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing was written.")
        sys.exit(130)

"""A convolutional network that reads handwritten digits, and is sure about most of them.

Convolutions with batch norm, in residual blocks, on images that are moved by a pixel at random.
Matrices and kernels are trained by Muon, all else by AdamW. Writes a checkpoint after each
epoch, from which `--resume` goes on to the same result, and confusion.svg: what the held-out
digits are taken for. `--epochs N` trains for longer or shorter.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import girih as gr
from digits import load
from girih import nn

SEED = 0
BATCH = 64


class Block(nn.Module):
    """Two convolutions with batch norm, added to what goes in."""

    def __init__(self, channels: int) -> None:
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: gr.Tensor) -> gr.Tensor:
        y = self.norm(self.first(x)).relu()
        return (x + self.norm2(self.second(y))).relu()


def network(channels: int) -> nn.Sequential:
    """Images ``[batch, 1, 8, 8]`` to scores of ten digits."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), Block(channels), nn.MaxPool2d(2), Block(channels),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * channels, 10),
    )  # fmt: skip


def moved(images: gr.Tensor) -> gr.Tensor:
    """Each image moved by at most a pixel in each direction, at random."""
    padded = nn.functional.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    ways = gr.stack([padded[:, :, i : i + 8, j : j + 8] for i in range(3) for j in range(3)], 0)
    chosen = gr.randint(0, 9, [images.shape[0]])
    return ways[chosen, gr.arange(images.shape[0])]


def confusion(counts: list[list[int]]) -> str:
    """How often each digit is taken for each, as SVG."""
    cell, margin = 34, 40
    size = margin + 10 * cell + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" '
        'font-family="sans-serif" font-size="13" text-anchor="middle">',
        f'<rect width="{size}" height="{size}" fill="white"/>',
        f'<text x="{size // 2}" y="14">taken for</text>',
        f'<text transform="translate(12 {size // 2}) rotate(-90)">is</text>',
    ]
    for i, row in enumerate(counts):
        at = margin + i * cell + cell // 2
        parts += [f'<text x="{at}" y="34">{i}</text>', f'<text x="28" y="{at + 5}">{i}</text>']
        for j, count in enumerate(row):
            share = count / max(1, sum(row))
            color = "#2a6fb0" if i == j else "#c0392b"
            x, y = margin + j * cell, margin + i * cell
            parts.append(
                f'<rect x="{x}" y="{y}" width="{cell - 2}" height="{cell - 2}" fill="{color}" '
                f'fill-opacity="{0.04 + 0.9 * share if count else 0.04:.2f}"/>'
            )
            if count:
                ink = "white" if share > 0.5 else "black"
                middle = f'x="{x + cell // 2 - 1}" y="{y + cell // 2 + 4}"'
                parts.append(f'<text {middle} fill="{ink}">{count}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main(epochs: int, channels: int, resume: bool, out: Path) -> None:
    gr.manual_seed(SEED)
    images, labels = load()
    pixels = gr.asarray(images).reshape((-1, 1, 8, 8))
    rows = [i for i in range(len(labels)) if i % 5 != 4]
    x, y = (t.take(gr.asarray(rows), axis=0) for t in (pixels, gr.asarray(labels)))
    x_test, y_test = pixels[4::5], gr.asarray(labels[4::5])
    loader = gr.data.DataLoader((x, y), BATCH, shuffle=True, drop_last=True, prefetch=2)

    model = gr.eval(network(channels))
    steps = epochs * len(loader)
    schedule = gr.optim.schedules.warmup_cosine
    optimizer = gr.optim.MultiOptimizer(
        [
            gr.optim.Muon(schedule(0.02, steps // 10, steps), weight_decay=0.01),
            gr.optim.AdamW(schedule(3e-3, steps // 10, steps)),
        ],
        [lambda name, p: p.ndim > 1 and p.shape[0] == channels],
    )
    optimizer.init(model)
    loss_and_grad = nn.value_and_grad(
        model, lambda x, y: nn.cross_entropy(model(moved(x)), y, label_smoothing=0.05)
    )

    @gr.compile
    def train_step(x: gr.Tensor, y: gr.Tensor) -> gr.Tensor:
        loss, grads = loss_and_grad(x, y)
        optimizer.update(model, grads)
        return loss

    out.mkdir(parents=True, exist_ok=True)
    file = out / "checkpoint.safetensors"
    if resume:
        saved = gr.load(file)
        parts = {
            part: {k.removeprefix(f"{part}."): v for k, v in saved.items() if k.startswith(part)}
            for part in ("model", "optimizer", "loader")
        }
        model.load_state_dict(parts["model"])
        optimizer.load_state_dict(parts["optimizer"])
        loader.load_state_dict(parts["loader"])
    print(f"{len(rows)} digits to train on; {model.num_parameters():,} parameters")
    bar = gr.data.progress(range(loader.epoch, epochs), "training", file=sys.stdout)
    for epoch in bar:
        # The random numbers of an epoch are its own, so that one can go on from a checkpoint.
        gr.manual_seed(SEED + epoch)
        losses = [train_step(*batch).item() for batch in loader]
        bar.set(loss=sum(losses) / len(losses))
        states = {"model": model, "optimizer": optimizer, "loader": loader}
        gr.save(file, {f"{part}.{k}": v for part, held in states.items()
                       for k, v in held.state_dict().items()})  # fmt: skip

    model.eval()
    guesses = model(x_test).argmax(axis=1).tolist()
    counts = [[0] * 10 for _ in range(10)]
    for truth, guess in zip(y_test.tolist(), guesses, strict=True):
        counts[truth][guess] += 1
    right = sum(counts[i][i] for i in range(10))
    print(f"\naccuracy {right / len(guesses):.2%} on the held-out fifth")
    (out / "confusion.svg").write_text(confusion(counts), encoding="utf-8")
    print(f"Wrote confusion.svg and checkpoint.safetensors to {out}/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--out", type=Path, default=Path("convolutions-out"))
    arguments = parser.parse_args()
    if arguments.epochs < 1 or arguments.channels < 1:
        parser.error("--epochs and --channels must be at least 1")
    main(arguments.epochs, arguments.channels, arguments.resume, arguments.out)

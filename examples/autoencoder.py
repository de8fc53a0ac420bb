"""A variational autoencoder of handwritten digits, that draws digits nobody wrote.

The encoder gives a normal distribution over a few numbers for each image, the decoder an image
for such numbers; both are trained for the bound of Kingma and Welling 2014. Afterwards the
decoder draws images of random numbers, and of numbers on a line between two digits. Writes
digits.svg (the first row as written, the second as decoded; then drawn ones and one line per
row) and loss.svg; `--epochs N` trains for longer or shorter.
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
LATENT = 6
ACROSS = 10


class Autoencoder(nn.Module):
    """Images of 64 pixels to a distribution over a few numbers, and back."""

    def __init__(self, width: int) -> None:
        self.encoder = nn.Sequential(
            nn.Linear(64, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
            nn.Linear(width, 2 * LATENT),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
            nn.Linear(width, 64),
        )  # fmt: skip

    def encode(self, images: gr.Tensor) -> tuple[gr.Tensor, gr.Tensor]:
        """Means, and logarithms of variances."""
        both = self.encoder(images)
        return both[:, :LATENT], both[:, LATENT:]

    def forward(self, images: gr.Tensor) -> gr.Tensor:
        """The negative bound of the likelihood of the images, per image."""
        mean, log_variance = self.encode(images)
        latent = mean + (0.5 * log_variance).exp() * gr.random.normal(mean.shape)
        scores = self.decoder(latent)
        unlikely = nn.functional.binary_cross_entropy_with_logits(scores, images, reduction="none")
        divergence = 0.5 * (mean**2 + log_variance.exp() - 1.0 - log_variance)
        return (unlikely.sum(1) + divergence.sum(1)).mean()


def picture(rows: list[list[list[float]]]) -> str:
    """Images of 8 by 8 pixels in rows, as SVG; each pixel is 0 (paper) to 1 (ink)."""
    cell, gap = 5, 6
    step = 8 * cell + gap
    width, height = step * max(map(len, rows)) + gap, step * len(rows) + gap
    # A path per shade.
    shades: dict[int, list[str]] = {}
    for top, row in enumerate(rows):
        for left, pixels in enumerate(row):
            for i, ink in enumerate(pixels):
                x, y = gap + left * step + i % 8 * cell, gap + top * step + i // 8 * cell
                shades.setdefault(round(8 * ink), []).append(f"M{x} {y}h{cell}v{cell}h-{cell}z")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for shade, places in sorted(shades.items()):
        if shade:
            parts.append(f'<path fill-opacity="{shade / 8}" d="{"".join(places)}"/>')
    return "\n".join([*parts, "</svg>\n"])


def main(epochs: int, width: int, out: Path) -> None:
    gr.manual_seed(SEED)
    images, labels = load()
    held_out = gr.asarray(images[4::5])
    training = [image for i, image in enumerate(images) if i % 5 != 4]
    loader = gr.data.DataLoader(
        gr.asarray(training), BATCH, shuffle=True, drop_last=True, prefetch=2
    )
    model = gr.eval(Autoencoder(width))
    steps = epochs * len(loader)
    optimizer = gr.optim.Adam(gr.optim.schedules.cosine_decay(3e-3, steps, 1e-4))
    optimizer.init(model)
    # The decoder of averaged parameters draws cleaner images than that of the last ones.
    average = gr.optim.EMA(0.99, warmup=True)
    loss_and_grad = nn.value_and_grad(model, model)

    @gr.compile
    def train_step(batch: gr.Tensor) -> gr.Tensor:
        loss, grads = loss_and_grad(batch)
        optimizer.update(model, grads)
        average.update(model)
        return loss

    print(f"{len(training)} digits to train on; {model.num_parameters():,} parameters")
    losses: list[tuple[float, float]] = []
    bar = gr.data.progress(range(epochs), "training", file=sys.stdout)
    for epoch in bar:
        found = [train_step(batch).item() for batch in loader]
        losses.append((epoch + 1.0, sum(found) / len(found)))
        bar.set(loss=losses[-1][1])

    with average.applied(model):
        bound = sum(model(held_out).item() for _ in range(10)) / 10
        ten = gr.asarray([images[labels.index(digit)] for digit in range(10)])
        mean, _ = model.encode(ten)
        drawn = gr.random.normal([3 * ACROSS, LATENT])
        # On the lines from 1 to 7, from 3 to 8 and from 4 to 9.
        share = gr.linspace(0.0, 1.0, ACROSS)[:, None]
        lines = [mean[a] + share * (mean[b] - mean[a]) for a, b in ((1, 7), (3, 8), (4, 9))]
        decoded = model.decoder(gr.concat([mean, drawn, *lines], 0)).sigmoid()
        pictures = [*ten.tolist(), *decoded.tolist()]
    print(f"\nbound on the held-out fifth: {-bound:.2f} nats per image")
    out.mkdir(parents=True, exist_ok=True)
    rows = [pictures[i : i + ACROSS] for i in range(0, len(pictures), ACROSS)]
    (out / "digits.svg").write_text(picture(rows), encoding="utf-8")
    plot = gr.line_plot("Negative bound", "epoch", "nats per image", [("training", losses)])
    (out / "loss.svg").write_text(plot, encoding="utf-8")
    print(f"Wrote digits.svg and loss.svg to {out}/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--width", type=int, default=256, help="features of the hidden layers")
    parser.add_argument("--out", type=Path, default=Path("autoencoder-out"))
    arguments = parser.parse_args()
    if arguments.epochs < 1 or arguments.width < 1:
        parser.error("--epochs and --width must be at least 1")
    main(arguments.epochs, arguments.width, arguments.out)

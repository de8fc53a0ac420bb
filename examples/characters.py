"""A GPT-style character model, trained on this project's documentation, that writes more of it.

The model is a stack of transformer layers with rotary positions; each character sees those
before it. A compiled training step draws its own windows of the text. For sampling, attention
keeps the keys and values of the characters so far in a cache of a fixed size: each new character
is one call of one program. Writes loss.svg and sample.txt; `--steps N` trains for longer or
shorter.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import girih as gr
from girih import nn

DOCS = Path(__file__).parent.parent / "docs"
SEED = 0


class CharacterModel(nn.Module):
    """Embedding, transformer layers, and scores of the next character by the same embedding."""

    def __init__(self, characters: int, width: int, heads: int, layers: int) -> None:
        def layer() -> nn.Module:
            made = nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.1, activation="gelu", norm_first=True
            )
            made.self_attn.rope = nn.RoPE(width // heads)
            return made

        self.embed = nn.Embedding(characters, width)
        self.embed.weight = nn.Parameter(nn.init.normal((characters, width), std=0.02))
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, characters, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: gr.Tensor, caches: list[nn.KVCache] | None = None) -> gr.Tensor:
        x = self.embed(ids)
        return self.head(self.layers(x, is_causal=caches is None, caches=caches))


def read_text() -> str:
    """The documentation, page after page."""
    pages = sorted([*DOCS.glob("*.md"), *(DOCS / "guide").glob("*.md")])
    return "\n\n".join(page.read_text(encoding="utf-8") for page in pages)


def sample(model: CharacterModel, prompt: list[int], length: int, temperature: float) -> list[int]:
    """Characters drawn one after the other: one program for the prompt, one for each of them."""
    caches = model.layers.make_cache([1], len(prompt) + length)

    @gr.compile(donate=("caches",))
    def step(ids: gr.Tensor, caches: list[nn.KVCache]) -> tuple[gr.Tensor, list[nn.KVCache]]:
        scores = model(ids, caches)[:, -1] / temperature
        return gr.random.categorical(scores)[:, None], caches

    ids, drawn = gr.asarray([prompt]), []
    for _ in range(length):
        ids, caches = step(ids, caches)
        drawn.append(ids.item())
    return drawn


def main(steps: int, size: int, out: Path) -> None:
    gr.manual_seed(SEED)
    text = read_text()
    alphabet = sorted(set(text))
    number = {character: i for i, character in enumerate(alphabet)}
    tokens = gr.eval(gr.asarray([number[c] for c in text]))
    # The last tenth is held out.
    border = len(text) * 9 // 10
    context, batch = size, 16
    model = gr.eval(CharacterModel(len(alphabet), size, 4, max(1, size // 32)))
    rate = gr.optim.schedules.warmup_cosine(3e-3, max(1, steps // 20), steps + 1)
    optimizer = gr.optim.AdamW(rate, betas=(0.9, 0.99), weight_decay=0.1)
    optimizer.init(model)

    def loss_of(first: int, last: int) -> gr.Tensor:
        start = gr.randint(first, last - context, [batch, 1])
        window = tokens.take(start + gr.arange(context + 1), axis=0)
        scores = model(window[:, :-1])
        return nn.cross_entropy(scores.reshape((-1, len(alphabet))), window[:, 1:].reshape((-1,)))

    loss_and_grad = nn.value_and_grad(model, lambda: loss_of(0, border))

    @gr.compile
    def train_step() -> gr.Tensor:
        loss, grads = loss_and_grad()
        grads, _ = gr.optim.clip_grad_norm(grads, 1.0)
        optimizer.update(model, grads)
        return loss

    held_out_loss = gr.compile(lambda: loss_of(border, len(text)))
    print(f"{len(text):,} characters, {len(alphabet)} kinds; {model.num_parameters():,} parameters")
    losses: list[tuple[float, float]] = []
    held_out: list[tuple[float, float]] = []
    bar = gr.data.progress(range(steps), "training", file=sys.stdout)
    for step in bar:
        losses.append((step + 1.0, train_step().item()))
        if (step + 1) % max(1, steps // 20) == 0:
            model.eval()
            held_out.append((step + 1.0, sum(held_out_loss().item() for _ in range(4)) / 4))
            model.train()
            bar.set(held_out=held_out[-1][1])
        bar.set(loss=losses[-1][1])

    model.eval()
    started = time.perf_counter()
    pieces, drawn = [], 0
    for prompt in ("# ", "The ", "```python\n"):
        ids = sample(model, [number[c] for c in prompt], max(1, context - len(prompt)), 0.7)
        pieces.append(prompt + "".join(alphabet[i] for i in ids))
        drawn += len(ids)
    seconds = time.perf_counter() - started
    written = "\n\n---\n\n".join(pieces)
    print(f"\n{written}\n\n{drawn / seconds:,.0f} characters/s")
    out.mkdir(parents=True, exist_ok=True)
    series = [("training", losses), ("held out", held_out)]
    plot = gr.line_plot("Loss per character", "step", "nats", series)
    (out / "loss.svg").write_text(plot, encoding="utf-8")
    (out / "sample.txt").write_text(written, encoding="utf-8")
    print(f"Wrote loss.svg and sample.txt to {out}/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--size", type=int, default=128, help="features, and characters of context")
    parser.add_argument("--out", type=Path, default=Path("characters-out"))
    arguments = parser.parse_args()
    if arguments.steps < 1 or arguments.size < 8 or arguments.size % 8:
        parser.error("--steps must be at least 1, --size a multiple of 8")
    main(arguments.steps, arguments.size, arguments.out)

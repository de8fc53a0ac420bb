"""GPT-2 of the smallest published size: a training step, a prompt, and decoding of one token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..measure import Workload, compute
from ..training import NO_MLX, one_hot, ones, training, weight, zeros

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..peers import Library

PER_BLOCK = 12


@dataclass(frozen=True)
class Gpt:
    """The sizes of the model. The output weights are the transposed input embedding."""

    blocks: int = 12
    width: int = 768
    heads: int = 12
    words: int = 50257
    positions: int = 1024

    def parameters(self, rng: np.random.Generator) -> list[np.ndarray]:
        w = self.width
        block = lambda: [
            ones(w), zeros(w), weight(rng, w, 3 * w), zeros(3 * w), weight(rng, w, w), zeros(w),
            ones(w), zeros(w), weight(rng, w, 4 * w), zeros(4 * w), weight(rng, 4 * w, w), zeros(w),
        ]  # fmt: skip
        blocks = [p for _ in range(self.blocks) for p in block()]
        tables = [
            (0.02 * rng.standard_normal((rows, w))).astype(np.float32)
            for rows in (self.words, self.positions)
        ]
        return [*tables, *blocks, ones(w), zeros(w)]

    def split(self, lib: Library, x: Any, p: Sequence[Any]) -> Any:
        """Queries, keys and values, `[3, batch, heads, tokens, width of a head]`."""
        batch, tokens = x.shape[0], x.shape[1]
        shape = (batch, tokens, 3, self.heads, self.width // self.heads)
        return lib.permute((x @ p[0] + p[1]).reshape(shape), (2, 0, 3, 1, 4))

    def block(self, lib: Library, x: Any, p: Sequence[Any], mix: Callable[[Any], Any]) -> Any:
        """Attention by `mix`, which maps queries, keys and values to outputs; then a feed-forward
        layer.
        """
        mixed = lib.permute(
            mix(self.split(lib, lib.layer_norm(x, p[0], p[1]), p[2:4])), (0, 2, 1, 3)
        )
        x = x + mixed.reshape(x.shape) @ p[4] + p[5]
        return x + lib.gelu(lib.layer_norm(x, p[6], p[7]) @ p[8] + p[9]) @ p[10] + p[11]

    def hidden(self, lib: Library, p: Sequence[Any], words: Any) -> Any:
        """The input of the last layer, for all positions."""
        x = lib.take(p[0], words) + p[1][: words.shape[1]]
        for at in range(2, 2 + self.blocks * PER_BLOCK, PER_BLOCK):
            causal = lambda s: lib.causal_attention(s[0], s[1], s[2])
            x = self.block(lib, x, p[at : at + PER_BLOCK], causal)
        return lib.layer_norm(x, p[-2], p[-1])

    def loss(self, lib: Library, p: Sequence[Any], words: Any, labels: Any) -> Any:
        hidden = self.hidden(lib, p, words).reshape((-1, self.width))
        return lib.cross_entropy(hidden @ lib.permute(p[0], (1, 0)), labels)

    def prefill(self, lib: Library, words: Any, *p: Any) -> Any:
        """The logits after the last word."""
        return self.hidden(lib, p, words)[:, -1] @ lib.permute(p[0], (1, 0))

    def decode(self, lib: Library, word: Any, cache: Any, *p: Any) -> Any:
        """Decodes one word: returns the logits after it, and its keys and values in each block.
        `cache` has those of the earlier words, `[blocks, 2, 1, heads, words, width of a head]`.
        """
        x = lib.take(p[0], word) + p[1][cache.shape[4]]
        added = []
        for number in range(self.blocks):
            at = 2 + number * PER_BLOCK

            def mix(s: Any, before: Any = cache[number]) -> Any:
                added.append(s[1:])
                keys, values = (lib.concat([before[i], s[1 + i]], 2) for i in range(2))
                return lib.attention(s[0], keys, values)

            x = self.block(lib, x, p[at : at + PER_BLOCK], mix)
        logits = lib.layer_norm(x, p[-2], p[-1])[:, -1] @ lib.permute(p[0], (1, 0))
        return [logits, *added]

    def flops(self, tokens: int) -> float:
        """The operations of the matrix products of a forward pass, without the logits."""
        return 2.0 * tokens * self.blocks * (12 * self.width**2 + 2 * tokens * self.width)


GPT = Gpt()
TOKENS, PROMPT = 64, 128


def step_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    words = rng.integers(0, GPT.words, (1, TOKENS))
    return [words, one_hot(rng, TOKENS, GPT.words), *GPT.parameters(rng)]


def prompt_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.integers(0, GPT.words, (1, PROMPT)), *GPT.parameters(rng)]


def decode_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    head = GPT.width // GPT.heads
    cache = rng.standard_normal((GPT.blocks, 2, 1, GPT.heads, PROMPT, head)) / math.sqrt(head)
    word = rng.integers(0, GPT.words, (1, 1))
    return [word, cache.astype(np.float32), *GPT.parameters(rng)]


LOGITS = 2.0 * GPT.width * GPT.words
WORKLOADS = [
    Workload(
        "GPT-2, training step of 64 tokens", step_inputs, training(GPT.loss, 2), NO_MLX,
        flops=3 * (GPT.flops(TOKENS) + TOKENS * LOGITS), tolerance=1e-3, memory=True, lazy=False,
        calls=2,
    ),
    Workload(
        "GPT-2, prompt of 128 tokens", prompt_inputs, compute(GPT.prefill), NO_MLX,
        flops=GPT.flops(PROMPT) + LOGITS, tolerance=1e-3, memory=True, lazy=False,
    ),
    Workload(
        "GPT-2, a token after 128", decode_inputs, compute(GPT.decode), NO_MLX,
        bytes=4.0 * (GPT.blocks * 12 * GPT.width**2 + GPT.words * GPT.width), tolerance=1e-3,
        memory=True, lazy=False,
    ),
]  # fmt: skip

"""Models are exchanged between Rust and Python as files of their state.

With ``GIRIH_UPDATE``, this test writes ``tests/data/python.safetensors``, and
``crates/girih/tests/suite/interchange.rs`` writes ``rust.safetensors``. Each file has a model's state, an
input, and the model's output for it; both sides read both files.
"""

from __future__ import annotations

import os
from pathlib import Path

import girih as gr
import numpy as np
import pytest

DATA = Path(__file__).parent.parent / "data"
nn = gr.nn


class Model(nn.Module):
    """Every kind of layer with parameters that Rust supports, with the same names."""

    def __init__(self):
        self.image = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.PReLU(4),
            nn.MaxPool2d(2),
            nn.ConvTranspose2d(4, 2, 2, stride=2, bias=False),
            nn.GroupNorm(2, 2),
            nn.Flatten(),
            nn.Linear(2 * 4 * 4, 8),
            nn.LayerNorm(8),
        )
        self.words = nn.Sequential(
            nn.Embedding(5, 8),
            nn.RMSNorm(8),
            nn.Linear(8, 8, bias=False),
            nn.GELU(),
            nn.Conv1d(3, 3, 1),
            nn.ReLU(),
        )
        self.attention = nn.MultiheadAttention(8, 4, num_kv_heads=2)
        self.head = nn.Linear(8, 3)

    def forward(self, image, words):
        image, words = self.image(image)[:, None], self.words(words)
        return self.head(self.attention(image, words, words)[:, 0])


def write():
    gr.manual_seed(3)
    model = Model()
    image, words = gr.randn([3, 2, 4, 4]), gr.randint(0, 5, [3, 3])
    # Change the running statistics from their initial values.
    model(image, words)
    output = model.eval()(image, words)
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    around = {"input.image": image, "input.words": words, "output": output}
    gr.save(DATA / "python.safetensors", {**state, **around})


@pytest.mark.parametrize("name", ["python.safetensors", "rust.safetensors"])
def test_a_saved_model_gives_the_same_in_both_languages(name):
    if os.environ.get("GIRIH_UPDATE") and name == "python.safetensors":
        write()
    tensors = gr.load(DATA / name)
    image, words = tensors.pop("input.image"), tensors.pop("input.words")
    expected = tensors.pop("output")
    model = Model().eval()
    model.load_state_dict({name.removeprefix("model."): t for name, t in tensors.items()})
    found = model(image, words)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)

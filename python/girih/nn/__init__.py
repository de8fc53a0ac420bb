"""Neural networks: modules, layers, losses, initialisers."""

from __future__ import annotations

from . import init, losses
from .layers import (
    GELU,
    Dropout,
    Embedding,
    Flatten,
    LayerNorm,
    Linear,
    ReLU,
    Sequential,
    Sigmoid,
    SiLU,
    Tanh,
)
from .losses import binary_cross_entropy_with_logits, cross_entropy, l1, mse, nll
from .module import Module, Parameter, functional_call, value_and_grad

__all__ = [
    "GELU",
    "Dropout",
    "Embedding",
    "Flatten",
    "LayerNorm",
    "Linear",
    "Module",
    "Parameter",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Tanh",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "functional_call",
    "init",
    "l1",
    "losses",
    "mse",
    "nll",
    "value_and_grad",
]

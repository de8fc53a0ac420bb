"""Functions on modules and gradients under the names of ``torch.nn.utils``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .reparametrize import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
from .vectors import parameters_to_vector, vector_to_parameters

if TYPE_CHECKING:
    from ..optim.gradients import clip_grad_norm_, clip_grad_value_

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "parameters_to_vector",
    "remove_spectral_norm",
    "remove_weight_norm",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]


def __getattr__(name: str) -> Any:
    # The optimisers are loaded when they are used.
    if name in ("clip_grad_norm_", "clip_grad_value_"):
        from ..optim import gradients

        return getattr(gradients, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)

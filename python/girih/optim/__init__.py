"""Optimisers.

An optimiser's state is a pytree of tensors, recorded lazily like everything else:

    value, grads = step(x, y)
    optimizer.update(model, grads)
    gr.eval(value, model, optimizer.state)

Numbers that change from step to step (the learning rate, what depends on the step count) enter
the graph as tensors, never as literals, so no step compiles anew.
"""

from __future__ import annotations

from .optimizers import SGD, Adam, AdamW, Optimizer, clip_grad_norm

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "clip_grad_norm"]

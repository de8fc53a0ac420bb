"""Optimisers.

An optimiser's state is a pytree of tensors, recorded lazily like everything else. A step changes
the model and the optimiser's state, and is best compiled as a whole:

    loss_and_grad = gr.nn.value_and_grad(model, lambda x, y: gr.nn.mse(model(x), y))

    @gr.compile
    def step(x, y):
        loss, grads = loss_and_grad(x, y)
        optimizer.update(model, grads)
        return loss

Without ``compile`` it is the same program, which is recorded in each step and found in the cache:

    loss, grads = loss_and_grad(x, y)
    optimizer.update(model, grads)
    gr.eval(loss, model, optimizer.state)

In functional form, parameters and state are arguments and results, and may be donated:

    state = optimizer.init(params)

    @gr.compile(donate=("params", "state"))
    def step(params, state, x, y):
        loss, grads = gr.value_and_grad(loss_fn)(params, x, y)
        params, state = optimizer.apply(grads, state, params)
        return loss, params, state

In PyTorch's style, the optimiser holds the parameters, and ``step`` computes everything:

    optimizer = gr.optim.SGD(model.parameters(), lr=0.1)
    loss = gr.nn.mse(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

All of them give the same bits. Values that change from step to step (the count, the learning rate)
are tensors in the state, so no step is recompiled; schedules are functions of the count as a tensor
(:mod:`girih.optim.schedules`).
"""

from __future__ import annotations

from . import lr_scheduler, schedules
from .adaptive import ASGD, Adadelta, Adagrad, Lion, RMSprop, Rprop
from .averages import EMA
from .base import Optimizer
from .combined import Accumulate, MultiOptimizer, SkipNonFinite
from .gradients import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value,
    clip_grad_value_,
    global_norm,
)
from .half import MasterWeights, StochasticRounding
from .lbfgs import LBFGS
from .matrices import Adafactor, Muon
from .optimizers import SGD, Adam, Adamax, AdamW, NAdam, RAdam

__all__ = [
    "ASGD",
    "EMA",
    "LBFGS",
    "SGD",
    "Accumulate",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "MasterWeights",
    "MultiOptimizer",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SkipNonFinite",
    "StochasticRounding",
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value",
    "clip_grad_value_",
    "global_norm",
    "lr_scheduler",
    "schedules",
]

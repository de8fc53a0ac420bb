"""Schedulers of learning rates, with PyTorch's rates."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from girih import nn, optim

torch = pytest.importorskip("torch")

SCHEDULERS = [
    ("StepLR", {"step_size": 2, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5], "gamma": 0.5}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 3}),
    ("LinearLR", {"start_factor": 0.25, "total_iters": 4}),
    ("PolynomialLR", {"total_iters": 6, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 10}),
    ("OneCycleLR", {"max_lr": 0.5, "epochs": 2, "steps_per_epoch": 5, "anneal_strategy": "linear"}),
    ("LambdaLR", {"lr_lambda": lambda n: 1 / (n + 1)}),
    ("MultiplicativeLR", {"lr_lambda": lambda n: 0.9}),
]


@pytest.mark.parametrize("case", SCHEDULERS, ids=lambda c: c[0])
def test_schedulers_have_pytorchs_rates(case):
    name, options = case
    rates = []
    for lib in (torch, gr):
        w = torch.zeros(2, requires_grad=True) if lib is torch else gr.zeros([2])
        opt = lib.optim.SGD([{"params": [w]}], lr=0.1)
        scheduler = getattr(lib.optim.lr_scheduler, name)(opt, **options)
        found = []
        for _ in range(9):
            found.append(opt.param_groups[0]["lr"])
            (w * w).sum().backward()
            opt.step()
            scheduler.step()
        rates.append([*found, scheduler.get_last_lr()[0]])
    np.testing.assert_allclose(rates[1], rates[0], rtol=1e-6, atol=1e-12)


def test_sequential_and_plateau_schedulers():
    rates = []
    for lib in (torch, gr):
        w = torch.zeros(2, requires_grad=True) if lib is torch else gr.zeros([2])
        opt, sched = lib.optim.SGD([w], lr=0.1), lib.optim.lr_scheduler
        first = sched.ConstantLR(opt, factor=0.1, total_iters=2)
        both = sched.SequentialLR(opt, [first, sched.ExponentialLR(opt, gamma=0.5)], [2])
        found = []
        for _ in range(5):
            found.append(opt.param_groups[0]["lr"])
            (w * w).sum().backward()
            opt.step()
            both.step()
        for mode in ("min", "max"):
            plateau = sched.ReduceLROnPlateau(opt, mode, patience=1, factor=0.5, cooldown=1)
            for loss in (1.0, 0.9, 0.95, 0.95, 0.95, 0.95, 0.95, 2.0, 2.0):
                plateau.step(loss)
                found.append(opt.param_groups[0]["lr"])
        rates.append(found)
    np.testing.assert_allclose(rates[1], rates[0], rtol=1e-6)


def test_a_scheduler_is_restored_and_checks_its_optimiser():
    own = nn.Linear(2, 1)
    optimizer = optim.SGD(own.parameters(), lr=0.1)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for _ in range(3):
        scheduler.step()
    state = scheduler.state_dict()
    other = optim.SGD(own.parameters(), lr=0.1)
    again = optim.lr_scheduler.StepLR(other, 2, 0.5).load_state_dict(state)
    assert again.get_last_lr() == scheduler.get_last_lr() == [0.05]
    with pytest.raises(gr.InvalidArgumentError, match="expected"):
        again.load_state_dict({"epoch": 3})
    with pytest.raises(gr.InvalidArgumentError, match="holds no parameters"):
        optim.lr_scheduler.StepLR(optim.SGD(0.1), 2)
    rate = optim.schedules.constant(0.1)
    with pytest.raises(gr.InvalidArgumentError, match="schedule already"):
        optim.lr_scheduler.StepLR(optim.SGD(own.parameters(), rate), 2)

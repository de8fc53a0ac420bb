"""Steps of each optimiser that Rust's `girih::optim` has too, in the form of the file that the tests
of both languages compare with: ``python tests/python/optim_table.py`` writes it."""

from __future__ import annotations

import json
from pathlib import Path

import girih as gr

FILE = Path(__file__).resolve().parents[2] / "crates/girih/tests/suite/optimizers.json"

#: A name of both languages, and the settings besides the learning rate; ``shape`` is that of the
#: parameter.
CASES = [
    ("SGD", {}),
    ("SGD", {"weight_decay": 0.1, "maximize": True}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    ("SGD", {"momentum": 0.5, "dampening": 0.3}),
    ("ASGD", {"t0": 2.0, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"eps": 0.0}),
    ("AdamW", {}),
    ("AdamW", {"weight_decay": 0.1, "amsgrad": True, "maximize": True}),
    ("Adamax", {"weight_decay": 0.1}),
    ("Adamax", {"eps": 0.0}),
    ("NAdam", {"weight_decay": 0.1, "momentum_decay": 0.01}),
    ("RAdam", {"betas": [0.8, 0.9], "weight_decay": 0.1}),
    ("RMSprop", {}),
    ("RMSprop", {"alpha": 0.9, "momentum": 0.5, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1}),
    ("Adagrad", {"eps": 0.0}),
    ("Adadelta", {"rho": 0.8, "weight_decay": 0.1}),
    ("Lion", {"weight_decay": 0.1}),
    ("Rprop", {}),
    ("Muon", {"shape": [5, 1]}),
    ("Muon", {"shape": [1, 5], "nesterov": False, "adjust_lr_fn": "match_rms_adamw", "eps": 0.0}),
    ("Adafactor", {}),
    ("Adafactor", {"shape": [5, 1], "weight_decay": 0.1}),
    ("LBFGS", {"history_size": 3}),
]
RATE = 0.125
START = [1.0, -2.0, 0.5, 0.0, 3.25]
#: The gradients of eight steps; the last element has none in the first two.
GRADIENTS = [
    [0.5, -1.5, 2.0, 0.25, 0.0],
    [-1.0, -0.75, 1.0, 0.5, 0.0],
    [0.25, 3.0, -0.125, 0.0, 1.0],
    [0.0, 0.5, -4.0, 1.5, -1.0],
    [1.0, 1.0, 1.0, -2.0, 0.5],
    [2.0, -0.5, 0.375, 0.25, 0.5],
    [-0.5, 0.0, 0.625, 8.0, -3.0],
    [0.125, -0.25, 1.0, 0.5, 2.0],
]


def steps(name, settings, dtype):
    """The parameters after each step, as the bits of float64."""
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()}
    shape = settings.pop("shape", (len(START),))
    optimizer = getattr(gr.optim, name)(RATE, **settings)
    parameters, rows = [gr.asarray(START, dtype=dtype).reshape(shape)], []
    for gradient in GRADIENTS:
        given = gr.asarray(gradient, dtype=dtype).reshape(shape)
        parameters = optimizer.update(parameters, [given])
        gr.eval(parameters, optimizer.state)
        flat = parameters[0].astype(gr.float64).reshape(-1)
        rows.append(flat.numpy().view("int64").tolist())
    return rows


def table():
    """What the file has."""
    cases = [
        {
            "name": name,
            "settings": settings,
            "dtype": dtype,
            "steps": steps(name, settings, getattr(gr, dtype)),
        }
        for name, settings in CASES
        for dtype in ("float32", "float64", "bfloat16")
    ]
    return {"rate": RATE, "start": START, "gradients": GRADIENTS, "cases": cases}


if __name__ == "__main__":
    FILE.write_text(json.dumps(table(), indent=None, separators=(",", ":")) + "\n")

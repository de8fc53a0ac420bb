"""Random programs in checked mode, where each access of a kernel is compared with the bounds of its
buffer. The programs are those of ``random_programs.py``; ``tests/long`` has the long form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import girih as gr
import numpy as np
import pytest

PROGRAMS = Path(__file__).with_name("random_programs.py")


def run_checked(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Runs Python in checked mode, in a process of its own: a fault ends the process."""
    environment = {**os.environ, "GIRIH_CHECK": "1", "GIRIH_CACHE": "0"}
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.mark.parametrize("seed", [0, 1_000_000])
def test_random_programs_access_their_own_memory_and_compute_what_the_model_does(seed):
    done = run_checked(str(PROGRAMS), "--programs", "1000", "--seed", str(seed))
    # The last seed in the output is that of the program that ended the process.
    assert done.returncode == 0, (done.returncode, done.stdout[-4000:], done.stderr[-200:])


def assigned(y, to, at):
    y[to] = y[at] if isinstance(y, gr.Tensor) else np.array(y[at])
    return y


def at_set(y):
    return y.at[gr.asarray([1])].set(y[:1])


def model_of_at_set(y):
    return assigned(y, slice(1, 2), slice(0, 1))


#: Updates of a value by a part of itself, and their models.
UPDATES = {
    "element": (lambda y: assigned(y, 0, 1), lambda y: assigned(y, 0, 1)),
    "shifted": (
        lambda y: assigned(y, slice(1, None), slice(None, -1)),
        lambda y: assigned(y, slice(1, None), slice(None, -1)),
    ),
    "at set": (at_set, model_of_at_set),
    "put_along_axis": (
        lambda y: gr.put_along_axis(y, gr.asarray([3]), y[:1], axis=0),
        lambda y: assigned(y, 3, 0),
    ),
    "as_strided_scatter": (
        lambda y: gr.as_strided_scatter(y, y[:2], (2,), (1,), 3),
        lambda y: assigned(y, slice(3, 5), slice(0, 2)),
    ),
    "twice": (
        lambda y: assigned(at_set(y), slice(4, 8), slice(0, 4)),
        lambda y: assigned(model_of_at_set(y), slice(4, 8), slice(0, 4)),
    ),
}
VALUES = {
    "exp": (gr.exp, np.exp),
    "tanh": (gr.tanh, np.tanh),
    "sum": (lambda x: gr.exp(x) / gr.exp(x).sum(), lambda x: np.exp(x) / np.exp(x).sum()),
}
FORMS = {
    "plain": lambda fun, x: fun(x),
    "compiled": lambda fun, x: gr.compile(lambda x: fun(x) * 1)(x),
    "batched": lambda fun, x: gr.vmap(fun)(gr.stack([x, x]))[1],
    "one of three": lambda fun, x: gr.stack([fun(x) * 2, fun(x), fun(x) + 1])[1],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("update", UPDATES)
def test_a_value_that_dies_is_updated_by_a_part_of_itself(update, value, form):
    data = np.linspace(-1, 1, 33, dtype="f4")
    (change, model), (make, make_model) = UPDATES[update], VALUES[value]
    for unrelated in range(3):
        result = FORMS[form](lambda x: change(make(x)), gr.asarray(data))
        others = [gr.arange(9 + i) * 0.5 for i in range(unrelated)]
        gr.eval(result, *others)
        np.testing.assert_allclose(result.numpy(), model(make_model(data)), rtol=1e-5, atol=1e-6)
        for i, other in enumerate(others):
            np.testing.assert_array_equal(other.numpy(), np.arange(9 + i) * 0.5)


def test_checked_mode_is_a_switch():
    done = run_checked("-c", "import girih as gr; print(gr.arange(3).tolist())")
    assert (done.returncode, done.stdout.strip()) == (0, "[0, 1, 2]"), done.stderr
    program = "import os; os.environ['GIRIH_CHECK'] = 'perhaps'\nimport girih as gr\n"
    done = run_checked("-c", program + "gr.arange(3).tolist()")
    assert "GIRIH_CHECK=perhaps: expected 1" in done.stderr

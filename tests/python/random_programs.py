"""Random programs, compared with a model in NumPy.

A program is what a user might write: values that are updated in place by parts of themselves and then
die, several results, unrelated small kernels beside them, handles dropped before anything is
evaluated, views, reductions, products, loops. Sizes are mostly small, 0 and 1 among them, because
small kernels are those that are fused with each other.

``python random_programs.py --programs 1000 --seed 0`` runs programs of consecutive seeds in one
process. With ``GIRIH_CHECK=1``, each access of their kernels is checked.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

import girih as gr
import numpy as np
from random_maker import Maker, Program
from random_steps import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

#: Tolerance relative to the largest number of a program.
TOLERANCE = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-12}


def execute(program: Program, inputs: list[Any]) -> list[Any]:
    """The results of a program on tensors. Values are named by this function alone."""
    values: dict[int, Any] = dict(enumerate(inputs))
    inputs.clear()
    number = len(program.inputs)
    for step, drops, evals in zip(program.steps, program.drops, program.evals, strict=True):
        args = [values[a] for a in step.args]
        if step.consumes:
            del values[step.args[0]]
        values[number] = step.run(*args)
        del args
        if program.mode == "each":
            gr.eval(values[number])
        for drop in drops:
            del values[drop]
        for name in evals:
            gr.eval(values[name])
        number += 1
    return [values[result] for result in program.results]


def results_of(program: Program, tensors: list[Any]) -> list[Any]:
    """The results of a program on tensors, which it consumes, in the program's mode."""
    if program.mode == "compile":
        found = gr.compile(lambda *xs: tuple(execute(program, list(xs))))(*tensors)
    elif program.mode == "vmap":
        found = gr.vmap(lambda *xs: tuple(execute(program, list(xs))))(*tensors)
    else:
        found = execute(program, tensors)
    tensors.clear()
    return list(found)


def run(program: Program) -> None:
    """Runs a program, and raises an AssertionError if a result is not that of the model."""
    results = results_of(program, [gr.asarray(x) for x in program.inputs])
    others = [gr.arange(size) * 0.5 for size in program.unrelated]
    gr.eval(*results, *others)
    for size, other in zip(program.unrelated, others, strict=True):
        np.testing.assert_array_equal(other.numpy(), np.arange(size) * 0.5)
    for number, result in zip(program.results, results, strict=True):
        check(program, number, result)


def check(program: Program, number: int, result: Any) -> None:
    """Raises an AssertionError if a result is not that of the model."""
    expected, found = program.expected[number], result.numpy()
    if program.mode == "vmap":
        found = found[0]
    assert found.shape == expected.shape, (
        f"v{number}: shape {found.shape}, expected {expected.shape}"
    )
    assert found.dtype == expected.dtype, f"v{number}: {found.dtype}, expected {expected.dtype}"
    tolerance = max((TOLERANCE.get(str(v), 0.0) for v in dtypes(program)), default=0.0)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(
            found.astype("f8"),
            expected.astype("f8"),
            rtol=tolerance,
            atol=tolerance * program.largest,
            err_msg=f"v{number}",
        )
    else:
        np.testing.assert_array_equal(found, expected, err_msg=f"v{number}")


def dtypes(program: Program) -> set[str]:
    """The dtypes of the floats of a program: the least exact one decides."""
    return {str(x.dtype) for x in program.inputs} | {
        step.text.split()[1] for step in program.steps if step.text.startswith("astype")
    }


def main(run: Callable[[Program, int], object], about: str | None) -> int:
    """The command: runs programs of consecutive seeds by a function of a program and its seed."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep-going", action="store_true", help="count failures instead of ending"
    )
    options = parser.parse_args()
    start, failures = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.programs):
        program = Maker(seed, KINDS).program
        # The last seed names the program that ended the process.
        sys.stderr.write(f"\r{seed} ")
        try:
            run(program, seed)
        except Exception as error:
            failures += 1
            print(
                f"\nprogram {seed} failed: {type(error).__name__}: {error}\n{program}", flush=True
            )
            if not options.keep_going:
                return 1
        if seed % 500 == 499:
            gr.clear_cache()
            if seed % 10_000 == 9_999:
                print(
                    f"{seed + 1 - options.seed} programs in {time.monotonic() - start:.0f} s",
                    flush=True,
                )
    print(f"\n{options.programs} programs, {failures} failures, {time.monotonic() - start:.0f} s")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(lambda program, _: run(program), __doc__))

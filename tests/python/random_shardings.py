"""Random programs whose inputs are sharded over random meshes, compared with the model in NumPy.

The programs are those of ``random_programs.py``: sizes are small, 0 and 1 among them, so that axes do
not divide them and shards are empty.

``python random_shardings.py --programs 1000 --seed 0`` runs programs of consecutive seeds.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import Any

import girih as gr
import numpy as np
from random_maker import Maker, Program
from random_programs import TOLERANCE, dtypes, execute
from random_steps import KINDS

#: Shapes and axes of meshes.
MESHES = [
    ((2,), ("a",)),
    ((3,), ("a",)),
    ((2, 2), ("a", "b")),
    ((2, 3), ("a", "b")),
    ((7,), ("a",)),
]


def spec_of(chance: random.Random, axes: tuple[str, ...], rank: int) -> gr.P:
    """A random spec: each axis cuts a dimension, or none."""
    entries: list[list[str]] = [[] for _ in range(rank)]
    for axis in chance.sample(axes, len(axes)):
        if rank and chance.random() < 0.75:
            entries[chance.randrange(rank)].append(axis)
    return gr.P(*(tuple(names) or None for names in entries))


def sharded(chance: random.Random, mesh: gr.DeviceMesh, tensor: gr.Tensor) -> gr.Tensor:
    """The tensor on the mesh, or, now and then, as it is."""
    if chance.random() < 0.15:
        return tensor
    return tensor.shard(mesh, spec_of(chance, mesh.axis_names, tensor.ndim))


def run(program: Program, seed: int) -> list[gr.Tensor]:
    """Runs a program, and raises an AssertionError if a result is not that of the model. Returns the
    results."""
    chance = random.Random(seed)
    mesh = gr.DeviceMesh(*chance.choice(MESHES))
    tensors = [sharded(chance, mesh, gr.asarray(x)) for x in program.inputs]
    if program.mode == "compile":
        results = gr.compile(lambda *xs: tuple(execute(program, list(xs))))(*tensors)
    elif program.mode == "vmap":
        results = gr.vmap(lambda *xs: tuple(execute(program, list(xs))))(*tensors)
    else:
        results = execute(program, tensors)
    del tensors
    gr.eval(*results)
    for number, result in zip(program.results, results, strict=True):
        check(program, number, result)
    return results


def check(program: Program, number: int, result: Any) -> None:
    """Compares a result with the model's; the parts have the shapes of its sharding."""
    expected, found = program.expected[number], result.numpy()
    if program.mode == "vmap":
        found = found[0]
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), f"v{number}"
    if result.sharding is not None:
        rectangles = result.sharding.rectangles(result.shape)
        shapes = [tuple(extent for _, extent in rectangle) for rectangle in rectangles]
        assert [part.shape for part in result.shards()] == shapes, f"v{number}"
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep-going", action="store_true", help="count failures instead of ending"
    )
    options = parser.parse_args()
    gr.set_host_devices(7)
    start, failures = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.programs):
        program = Maker(seed, KINDS).program
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
    print(f"\n{options.programs} programs, {failures} failures, {time.monotonic() - start:.0f} s")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())

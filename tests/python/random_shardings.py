"""Random programs whose inputs are sharded over random meshes, compared with the model in NumPy.

The programs are those of ``random_programs.py``: sizes are small, 0 and 1 among them, so that axes do
not divide them and shards are empty.

``python random_shardings.py --programs 1000 --seed 0`` runs programs of consecutive seeds.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import girih as gr
import random_programs

if TYPE_CHECKING:
    from random_maker import Program

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
    results = random_programs.results_of(program, tensors)
    gr.eval(*results)
    for number, result in zip(program.results, results, strict=True):
        random_programs.check(program, number, result)
        if result.sharding is not None:
            rectangles = result.sharding.rectangles(result.shape)
            shapes = [tuple(extent for _, extent in rectangle) for rectangle in rectangles]
            assert [part.shape for part in result.shards()] == shapes, f"v{number}"
    return results


if __name__ == "__main__":
    gr.set_host_devices(7)
    sys.exit(random_programs.main(run, __doc__))

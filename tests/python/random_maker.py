"""Draws random programs, and computes what each of their values is in NumPy.

The steps that a program is drawn from are those of ``random_steps.py``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import girih as gr
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float64", "float16")
INTS = ("int32", "int64", "uint8", "int8")

#: Values above this are bounded by a tanh, so that rounding errors stay comparable.
LARGE = 40.0


@dataclass
class Step:
    """One line of a program: a value computed from earlier ones, by Girih and by NumPy."""

    text: str
    args: tuple[int, ...]
    run: Callable[..., Any]
    model: Callable[..., Array]
    #: Whether the first argument's handle is changed by the step and becomes its result.
    consumes: bool = False


@dataclass
class Program:
    """Steps over numbered values, the first of which are the inputs."""

    seed: int
    inputs: list[Array]
    steps: list[Step] = field(default_factory=list)
    #: After each step, the values whose handles are dropped.
    drops: list[tuple[int, ...]] = field(default_factory=list)
    #: After each step, the values that are evaluated at once.
    evals: list[tuple[int, ...]] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    #: Sizes of small programs beside the results, of no relation to them.
    unrelated: list[int] = field(default_factory=list)
    mode: str = "eval"
    expected: dict[int, Array] = field(default_factory=dict)
    largest: float = 1.0

    def __str__(self) -> str:
        lines = [f"# seed {self.seed}, mode {self.mode}"]
        for i, x in enumerate(self.inputs):
            lines.append(f"v{i} = {x.dtype}{list(x.shape)}: {x.ravel().tolist()[:12]}")
        for i, step in enumerate(self.steps):
            number = len(self.inputs) + i
            args = ", ".join(f"v{a}" for a in step.args)
            after = [f"; del v{d}" for d in self.drops[i]] + [f"; eval v{e}" for e in self.evals[i]]
            lines.append(f"v{number} = {step.text}({args}){''.join(after)}")
        lines.append(f"results {self.results}, unrelated {self.unrelated}")
        return "\n".join(lines)


class Maker:
    """Draws a program, and computes its model as it goes.

    Args:
        seed: Of all that is drawn.
        kinds: Functions that add a step to a program, if one of its values fits, with weights.
    """

    def __init__(self, seed: int, kinds: Mapping[Callable[[Maker], None], float]) -> None:
        self.kinds = kinds
        self.draw = random.Random(seed)
        self.program = Program(seed, [])
        self.values: dict[int, Array] = {}
        self.next = 0
        draw = self.draw
        self.large = draw.random() < 0.06
        self.program.mode = draw.choice(["eval"] * 6 + ["compile", "each", "vmap"])
        for _ in range(draw.randint(1, 3)):
            self.input()
        for _ in range(draw.randint(2, 9)):
            self.step()
        alive = sorted(self.values)
        count = min(len(alive), draw.randint(1, 3))
        # Mostly the last values, which depend on most of the others.
        last = alive[-count:] if draw.random() < 0.8 else draw.sample(alive, count)
        self.program.results = last
        self.program.expected = {number: constant(self.values[number]) for number in last}
        self.program.unrelated = [
            draw.choice([1, 2, 3, 9, 17]) for _ in range(draw.choice([0, 1, 1, 2]))
        ]

    # Values.

    def shape(self) -> tuple[int, ...]:
        draw = self.draw
        rank = draw.choice([0, 1, 1, 1, 1, 2, 2, 2, 3])
        sizes = [1, 2, 3, 3, 4, 5, 8, 9] if rank > 1 else [0, 1, 2, 3, 5, 8, 9, 16, 33]
        if self.large:
            # Enough for several blocks, tiles, chunks and groups of rows.
            sizes = [1, 3, 16, 33, 40, 65] if rank > 1 else [513, 1000, 4097]
        shape = tuple(draw.choice(sizes) for _ in range(rank))
        return (*shape[:-1], 0) if shape and draw.random() < 0.02 else shape

    def array(self, shape: tuple[int, ...], dtype: str) -> Array:
        count = int(np.prod(shape))
        if dtype == "bool":
            values: list[Any] = [self.draw.random() < 0.5 for _ in range(count)]
        elif dtype in INTS:
            values = [self.draw.randint(0, 7) for _ in range(count)]
        else:
            values = [self.draw.randint(-24, 24) / 16 for _ in range(count)]
        return constant(np.array(values, dtype).reshape(shape))

    def input(self) -> None:
        dtype = self.draw.choice(FLOATS[:1] * 6 + FLOATS + INTS[:2] + ("bool",))
        shape = self.shape()
        if self.program.mode == "vmap":
            shape = (3, *shape)
        self.program.inputs.append(self.array(shape, dtype))
        self.values[self.next] = self.program.inputs[-1]
        if self.program.mode == "vmap":
            # The model is that of the first member; the others are computed by the same function.
            self.values[self.next] = self.program.inputs[-1][0]
        self.next += 1

    def add(
        self,
        text: str,
        args: tuple[int, ...],
        run: Callable[..., Any],
        model: Callable[..., Array] | None = None,
        consumes: bool = False,
    ) -> int:
        step = Step(text, args, run, model or run, consumes)
        with np.errstate(all="ignore"):
            value = np.asarray(step.model(*(self.values[a] for a in args)))
        if consumes:
            del self.values[args[0]]
        self.program.steps.append(step)
        self.program.drops.append(())
        self.program.evals.append(())
        number, self.next = self.next, self.next + 1
        self.values[number] = value
        if value.dtype.kind == "f" and value.size:
            largest = float(np.max(np.abs(value.astype("float64"))))
            # Of rounding errors, too, before a tanh makes the values small.
            self.program.largest = max(self.program.largest, min(largest, 1e4))
            if not largest < LARGE:
                bounded = self.add("bounded", (number,), *BOUNDED)
                del self.values[number]
                self.program.drops[-1] = (number,)
                return bounded
        return number

    def pick(self, want: Callable[[Array], bool] = lambda _: True) -> int | None:
        """A value, mostly a recent one."""
        fits = [number for number, value in self.values.items() if want(value)]
        if not fits:
            return None
        return self.draw.choice(fits[-3:] if self.draw.random() < 0.7 else fits)

    # Steps.

    def step(self) -> None:
        kind = self.draw.choices(list(self.kinds), list(self.kinds.values()))[0]
        before = self.next
        kind(self)
        if self.next == before:
            return
        draw = self.draw
        if len(self.values) > 2 and draw.random() < 0.35:
            # Handles die before anything is evaluated.
            number = draw.choice(sorted(self.values)[:-1])
            del self.values[number]
            self.program.drops[-1] = (*self.program.drops[-1], number)
        if self.program.mode == "eval" and draw.random() < 0.08:
            self.program.evals[-1] = (max(self.values),)


BOUNDED = (lambda x: gr.tanh(x) * 1, lambda x: (np.tanh(x) * 1).astype(x.dtype))


def constant(array: Array) -> Array:
    """A copy that nothing changes: a compiled function may refer to it."""
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def is_float(x: Array) -> bool:
    return x.dtype.kind == "f"


def has_elements(x: Array) -> bool:
    return x.ndim > 0 and x.size > 0

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
import random
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import girih as gr
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float64", "float16")
INTS = ("int32", "int64", "uint8", "int8")

#: Tolerance relative to the largest number of a program.
TOLERANCE = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-12}
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
    """Draws a program, and computes its model as it goes."""

    def __init__(self, seed: int) -> None:
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
        kind = self.draw.choices(KINDS, WEIGHTS)[0]
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


def unary(m: Maker) -> None:
    a = m.pick(is_float)
    if a is None:
        return
    name = m.draw.choice(["exp", "tanh", "sin", "cos", "negative", "abs", "square", "sigmoid"])
    if name == "sigmoid":
        m.add(name, (a,), gr.sigmoid, lambda x: (1 / (1 + np.exp(-x.astype("f8")))).astype(x.dtype))
    elif name == "negative":
        m.add(name, (a,), lambda x: -x)
    else:
        m.add(name, (a,), getattr(gr, name), getattr(np, name))


def expensive(m: Maker) -> None:
    """The value that is cheaper to store than to compute again."""
    a = m.pick(is_float)
    if a is not None:
        name = m.draw.choice(["exp", "tanh", "sin"])
        m.add(name, (a,), getattr(gr, name), getattr(np, name))


def binary(m: Maker) -> None:
    a = m.pick()
    if a is None:
        return
    x = m.values[a]
    fits = lambda y: y.dtype == x.dtype and (y.shape == x.shape or y.ndim == 0 or x.ndim == 0)
    b = m.pick(fits)
    if b is None:
        return
    names = (
        ["logical_and", "logical_or"]
        if x.dtype == bool
        else ["add", "multiply", "subtract", "maximum", "minimum"]
    )
    name = m.draw.choice(names)
    m.add(name, (a, b), getattr(gr, name), getattr(np, name))


def scalar(m: Maker) -> None:
    a = m.pick(lambda x: x.dtype != bool)
    if a is None:
        return
    number = (
        m.draw.choice([2, 3, 1])
        if m.values[a].dtype.kind in "iu"
        else m.draw.choice([0.5, 2.0, -1.0, 1.5])
    )
    if m.draw.random() < 0.5:
        m.add(f"times {number}", (a,), lambda x: x * number, lambda x: x * x.dtype.type(number))
    else:
        m.add(f"plus {number}", (a,), lambda x: x + number, lambda x: x + x.dtype.type(number))


def cast(m: Maker) -> None:
    a = m.pick(lambda x: x.dtype.kind in "fib" and x.dtype != "uint8")
    if a is None:
        return
    x = m.values[a]
    to = m.draw.choice(["float32", "float64"] if x.dtype.kind in "ib" else FLOATS)
    m.add(f"astype {to}", (a,), lambda x: x.astype(to))


def reduction(m: Maker) -> None:
    a = m.pick(has_elements)
    if a is None:
        return
    x = m.values[a]
    axis = m.draw.choice([None, *range(x.ndim)])
    keep = m.draw.random() < 0.5
    if x.dtype == bool:
        name = m.draw.choice(["any", "all"])
    elif x.dtype.kind == "f":
        name = m.draw.choice(["sum", "max", "min", "mean"])
    else:
        name = m.draw.choice(["max", "min", "argmax"])
    if name == "argmax":
        m.add("argmax", (a,), lambda x: gr.argmax(x, axis=axis), lambda x: np.argmax(x, axis=axis))
        return
    model = lambda x: getattr(np, name)(
        x.astype("f8") if is_float(x) else x, axis=axis, keepdims=keep
    ).astype(x.dtype)
    m.add(
        f"{name} axis={axis} keepdims={keep}",
        (a,),
        lambda x: getattr(gr, name)(x, axis=axis, keepdims=keep),
        model,
    )


def softmax(m: Maker) -> None:
    a = m.pick(lambda x: is_float(x) and has_elements(x))
    if a is None:
        return

    def model(x: Array) -> Array:
        e = np.exp(x.astype("f8") - x.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True)).astype(x.dtype)

    m.add("softmax", (a,), lambda x: gr.softmax(x, axis=-1), model)


def normalised(m: Maker) -> None:
    a = m.pick(lambda x: is_float(x) and has_elements(x) and x.dtype != "float16")
    if a is None:
        return
    m.add(
        "normalised",
        (a,),
        lambda x: (
            (x - x.mean(axis=-1, keepdims=True)) / (gr.square(x).sum(axis=-1, keepdims=True) + 1)
        ),
        lambda x: (
            (x - x.mean(-1, keepdims=True))
            / (np.square(x).sum(-1, keepdims=True) + x.dtype.type(1))
        ),
    )


def product(m: Maker) -> None:
    a = m.pick(
        lambda x: (x.ndim >= 2 and x.dtype.kind == "f") or (x.ndim == 2 and x.dtype == "int32")
    )
    if a is None:
        return
    wide = lambda x: x.astype("f8") if is_float(x) else x
    if m.draw.random() < 0.5:
        m.add(
            "times its transpose",
            (a,),
            lambda x: x @ x.swapaxes(-1, -2),
            lambda x: (wide(x) @ wide(x).swapaxes(-1, -2)).astype(x.dtype),
        )
        return
    x = m.values[a]
    b = m.pick(lambda y: y.ndim == 2 and y.dtype == x.dtype and y.shape[0] == x.shape[-1])
    if b is not None:
        m.add(
            "matmul", (a, b), lambda x, y: x @ y, lambda x, y: (wide(x) @ wide(y)).astype(x.dtype)
        )


def view(m: Maker) -> None:
    a = m.pick(lambda x: x.ndim > 0)
    if a is None:
        return
    x = m.values[a]
    draw = m.draw
    kind = draw.choice(
        ["reshape", "transpose", "slice", "flip", "broadcast", "stack", "concat", "pad", "row"]
    )
    if kind == "reshape":
        shape = draw.choice([(-1,), (1, *x.shape), (*x.shape, 1)]) if x.size else (1, *x.shape)
        m.add(f"reshape {shape}", (a,), lambda x: x.reshape(shape))
    elif kind == "transpose":
        m.add("transpose", (a,), lambda x: gr.transpose(x), np.transpose)
    elif kind == "slice":
        key = part(draw, x.shape)
        m.add(f"slice {key}", (a,), lambda x: x[key], lambda x: x[key].copy())
    elif kind == "flip":
        m.add("flip", (a,), lambda x: gr.flip(x, axis=0), lambda x: np.flip(x, axis=0).copy())
    elif kind == "broadcast":
        shape = (draw.choice([1, 2, 3]), *x.shape)
        m.add(
            f"broadcast {shape}",
            (a,),
            lambda x: gr.broadcast_to(x, shape),
            lambda x: np.broadcast_to(x, shape).copy(),
        )
    elif kind == "stack":
        m.add("stack", (a,), lambda x: gr.stack([x, x]), lambda x: np.stack([x, x]))
    elif kind == "concat":
        b = m.pick(lambda y: y.dtype == x.dtype and y.shape == x.shape)
        m.add(
            "concat",
            (a, a if b is None else b),
            lambda x, y: gr.concat([x, y]),
            lambda x, y: np.concatenate([x, y]),
        )
    elif kind == "pad" and x.dtype != bool:
        widths = [(draw.randint(0, 2), draw.randint(0, 2)) for _ in x.shape]
        m.add(f"pad {widths}", (a,), lambda x: gr.pad(x, widths), lambda x: np.pad(x, widths))
    elif x.shape[0]:
        i = draw.randrange(x.shape[0])
        m.add(f"row {i}", (a,), lambda x: x[i], lambda x: x[i].copy())


def part(draw: random.Random, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Slices of some axes."""
    key = []
    for size in shape[: draw.randint(1, len(shape))]:
        start, stop = sorted((draw.randint(0, size), draw.randint(0, size)))
        key.append(slice(start, stop, draw.choice([1, 1, 1, 2])))
    return tuple(key)


def same_size(draw: random.Random, size: int) -> tuple[slice, slice]:
    """Two parts of an axis of equal length."""
    length = draw.randint(1, size) if draw.random() < 0.5 else 1
    first, second = draw.randint(0, size - length), draw.randint(0, size - length)
    return slice(first, first + length), slice(second, second + length)


def own(m: Maker) -> int | None:
    """A value to be updated: mostly one that was just computed. Inputs of compiled functions and of
    batches are not changed in place."""
    inputs = len(m.program.inputs) if m.program.mode in ("compile", "vmap") else 0
    fits = [n for n, x in m.values.items() if n >= inputs and has_elements(x)]
    return m.draw.choice(fits[-2:]) if fits else None


def moved(m: Maker) -> None:
    """A part of a value replaces another part of it."""
    a = own(m)
    if a is None:
        return
    to, at = same_size(m.draw, m.values[a].shape[0])
    if m.draw.random() < 0.6:

        def assign(y: Any) -> Any:
            y[to] = y[at] if isinstance(y, gr.Tensor) else y[at].copy()
            return y

        def model(y: Array) -> Array:
            return assign(y.copy())

        m.add(f"assign [{to}] = [{at}]", (a,), assign, model, consumes=True)
        return
    i, j = to.start, at.start

    def element(y: Any) -> Any:
        y[i] = y[j]
        return y

    m.add(f"assign [{i}] = [{j}]", (a,), element, lambda y: element(y.copy()), consumes=True)


def updated(m: Maker) -> None:
    """``at[...]`` with a part of the value itself, or of a function of it."""
    a = own(m)
    if a is None:
        return
    y = m.values[a]
    draw = m.draw
    to, at = same_size(draw, y.shape[0])
    modes = ["set"] if y.dtype == bool else ["set", "set", "add", "multiply", "min", "max"]
    mode = draw.choice(modes)
    negate = y.dtype.kind == "f" and draw.random() < 0.5
    indices = list(range(to.start, to.stop))
    draw.shuffle(indices)
    listed = draw.random() < 0.5
    key: Any = indices if listed else to

    def run(y: Any) -> Any:
        value = -y[at] if negate else y[at]
        return getattr(y.at[gr.asarray(key) if listed else key], mode)(value)

    def model(y: Array) -> Array:
        new, value = y.copy(), (-y[at] if negate else y[at]).copy()
        ufunc = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}
        new[key] = value if mode == "set" else ufunc[mode](new[key], value)
        return new

    m.add(f"at[{key}].{mode}({'-' if negate else ''}[{at}])", (a,), run, model)
    if draw.random() < 0.7 and a in m.values:
        del m.values[a]
        m.program.drops[-1] = (*m.program.drops[-1], a)


def augmented(m: Maker) -> None:
    """``y += x`` and ``y[...] *= number``."""
    a = own(m)
    if a is None or m.values[a].dtype.kind != "f":
        return
    y = m.values[a]
    b = m.pick(lambda x: x.shape == y.shape and x.dtype == y.dtype)
    if b is not None and b != a and m.draw.random() < 0.5:

        def add(y: Any, x: Any) -> Any:
            y += x
            return y

        m.add("y += x", (a, b), add, lambda y, x: y + x, consumes=True)
        return
    key = part(m.draw, y.shape)

    def scale(y: Any) -> Any:
        y[key] *= 0.5
        return y

    m.add(f"y[{key}] *= 0.5", (a,), scale, lambda y: scale(y.copy()), consumes=True)


def masked(m: Maker) -> None:
    a = own(m)
    if a is None or m.values[a].dtype == bool:
        return
    y = m.values[a]
    mask = m.array(y.shape, "bool")

    def assign(y: Any) -> Any:
        y[gr.asarray(mask) if isinstance(y, gr.Tensor) else mask] = 1
        return y

    m.add(
        f"y[mask {mask.ravel().tolist()}] = 1",
        (a,),
        assign,
        lambda y: assign(y.copy()),
        consumes=True,
    )


def placed(m: Maker) -> None:
    """put_along_axis, take_along_axis and as_strided_scatter with parts of the value."""
    a = own(m)
    if a is None:
        return
    y = m.values[a]
    draw = m.draw
    kind = draw.choice(["put", "take", "strided"])
    if kind == "strided":
        n = draw.randint(1, y.size)
        offset = draw.randint(0, y.size - n)

        def strided(y: Array) -> Array:
            new = y.copy().ravel()
            new[offset : offset + n] = y.ravel()[:n]
            return new.reshape(y.shape)

        m.add(
            f"as_strided_scatter {n} at {offset}",
            (a,),
            lambda y: gr.as_strided_scatter(y, y.reshape(-1)[:n], (n,), (1,), offset),
            strided,
        )
        return
    index = constant(np.array([draw.randrange(y.shape[0])] * y[:1].size).reshape(y[:1].shape))
    if kind == "take":
        m.add(
            f"take_along_axis {index.ravel()[0]}",
            (a,),
            lambda y: gr.take_along_axis(y, gr.asarray(index), axis=0),
            lambda y: np.take_along_axis(y, index, 0),
        )
        return

    def put(y: Array) -> Array:
        new = y.copy()
        np.put_along_axis(new, index, y[:1], 0)
        return new

    m.add(
        f"put_along_axis {index.ravel()[0]}",
        (a,),
        lambda y: gr.put_along_axis(y, gr.asarray(index), y[:1], axis=0),
        put,
    )


def where(m: Maker) -> None:
    a = m.pick(lambda x: x.dtype != bool and x.size > 0)
    if a is None:
        return
    x = m.values[a]
    condition = m.array(x.shape, "bool")
    b = m.pick(lambda y: y.shape == x.shape and y.dtype == x.dtype)
    m.add(
        "where",
        (a, a if b is None else b),
        lambda x, y: gr.where(gr.asarray(condition), x, y),
        lambda x, y: np.where(condition, x, y),
    )


def ordered(m: Maker) -> None:
    a = m.pick(has_elements)
    if a is None or m.values[a].dtype == bool:
        return
    if m.draw.random() < 0.5:
        m.add("sort", (a,), lambda x: gr.sort(x, axis=-1), lambda x: np.sort(x, axis=-1))
    elif is_float(m.values[a]):
        m.add(
            "cumsum",
            (a,),
            lambda x: gr.cumsum(x, axis=0),
            lambda x: np.cumsum(x.astype("f8"), axis=0).astype(x.dtype),
        )


def branch(m: Maker) -> None:
    a = m.pick(lambda x: is_float(x) and x.size > 0)
    if a is None:
        return
    chosen = m.draw.random() < 0.5
    first = m.values[a].ndim > 0

    def changed(y: Any) -> Any:
        y = gr.exp(y * 0.5)
        return y.at[0].set(y[-1]) if first else y

    def model(y: Array) -> Array:
        if not chosen:
            return y * y.dtype.type(2)
        new = np.exp(y * y.dtype.type(0.5))
        if first:
            new[0] = new[-1]
        return new

    m.add(
        f"cond {chosen}",
        (a,),
        lambda x: gr.cond(gr.asarray(chosen), changed, lambda y: y * 2.0, x),
        model,
    )


def repeated(m: Maker) -> None:
    """A while loop that updates a part of its carry."""
    a = m.pick(lambda x: is_float(x) and x.ndim > 0 and x.size > 0 and x.dtype != "float16")
    if a is None:
        return
    count = m.draw.choice([0, 1, 3])

    def body(carry: Any) -> Any:
        i, y = carry
        y = gr.sin(y)
        return i + 1, y.at[-1].set(y[0])

    def run(x: Any) -> Any:
        return gr.while_loop(lambda carry: carry[0] < count, body, (gr.asarray(0), x))[1]

    def model(y: Array) -> Array:
        for _ in range(count):
            y = np.sin(y)
            y[-1] = y[0]
        return y

    m.add(f"while {count}", (a,), run, model)


def loop(m: Maker) -> None:
    a = m.pick(lambda x: is_float(x) and x.ndim > 0 and x.size > 0 and x.dtype != "float16")
    if a is None:
        return
    length = m.draw.choice([1, 2, 6])
    shifts = m.draw.random() < 0.5

    def body(carry: Any, _: Any) -> Any:
        carry = gr.tanh(carry)
        if shifts:
            carry = carry.at[0].set(carry[-1])
        return carry, carry.sum()

    def model(y: Array) -> Array:
        for _ in range(length):
            y = np.tanh(y)
            if shifts:
                y[0] = y[-1]
        return y

    m.add(f"scan {length}", (a,), lambda x: gr.scan(body, x, None, length=length)[0], model)


KINDS: list[Callable[[Maker], None]] = [
    unary, expensive, binary, scalar, cast, reduction, softmax, normalised, product, view, moved, updated,
    augmented, masked, placed, where, ordered, branch, loop, repeated,
]  # fmt: skip
WEIGHTS = [8, 10, 10, 4, 3, 8, 3, 3, 4, 12, 14, 12, 4, 4, 8, 3, 2, 1.5, 1.5, 1]


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


def run(program: Program) -> None:
    """Runs a program, and raises an AssertionError if a result is not that of the model."""
    tensors = [gr.asarray(x) for x in program.inputs]
    if program.mode == "compile":
        results = gr.compile(lambda *xs: tuple(execute(program, list(xs))))(*tensors)
    elif program.mode == "vmap":
        results = gr.vmap(lambda *xs: tuple(execute(program, list(xs))))(*tensors)
    else:
        results = execute(program, tensors)
    del tensors
    others = [gr.arange(size) * 0.5 for size in program.unrelated]
    gr.eval(*results, *others)
    for size, other in zip(program.unrelated, others, strict=True):
        np.testing.assert_array_equal(other.numpy(), np.arange(size) * 0.5)
    for number, result in zip(program.results, results, strict=True):
        expected = program.expected[number]
        found = result.numpy()
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep-going", action="store_true", help="count failures instead of ending"
    )
    options = parser.parse_args()
    start, failures = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.programs):
        program = Maker(seed).program
        # The last seed names the program that ended the process.
        sys.stderr.write(f"\r{seed} ")
        try:
            run(program)
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
    sys.exit(main())

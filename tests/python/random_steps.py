"""The steps of random programs: what each one computes, by Girih and by NumPy.

Each function adds a step to a program if one of the program's values fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import girih as gr
import numpy as np
from random_maker import FLOATS, Array, Maker, constant, has_elements, is_float

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


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


#: How often each step is drawn.
KINDS: dict[Callable[[Maker], None], float] = {
    unary: 8,
    expensive: 10,
    binary: 10,
    scalar: 4,
    cast: 3,
    reduction: 8,
    softmax: 3,
    normalised: 3,
    product: 4,
    view: 12,
    moved: 14,
    updated: 12,
    augmented: 4,
    masked: 4,
    placed: 8,
    where: 3,
    ordered: 2,
    branch: 1.5,
    loop: 1.5,
    repeated: 1,
}

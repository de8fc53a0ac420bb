"""Function transforms in Girih and JAX: batching, forward and reverse mode, loops,
rematerialisation.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from .measure import Build, Call, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from .peers import Library

    Inputs: TypeAlias = Callable[[np.random.Generator], list[np.ndarray]]
    Make: TypeAlias = Callable[[Library], Callable[..., Any]]

BOTH = ("girih", "jax")


def of(lib: Library) -> Any:
    """The module with the library's transforms."""
    return import_module("jax" if lib.name == "jax" else "girih")


def loops(lib: Library) -> Any:
    """The module with the library's control flow."""
    return import_module("jax.lax" if lib.name == "jax" else "girih")


def compiled(make: Make) -> Build:
    """A call of the compiled function that `make` returns for the library."""

    def build(lib: Library, arrays: Sequence[np.ndarray]) -> Call:
        tensors = [lib.tensor(a) for a in arrays]
        function = lib.compiled(make(lib))
        return lambda: lib.finish(function(*tensors))

    return build


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def positive(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
    a = normal(rng, count, n, n)
    return a @ a.transpose(0, 2, 1) + n * np.eye(n, dtype=np.float32)


# Per-example gradients of an MLP.


def example_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    return [
        normal(rng, 64, 128) / 8,
        normal(rng, 128, 10) / 12,
        normal(rng, 256, 64),
        normal(rng, 256, 10),
    ]


def example_gradients(lib: Library) -> Callable[..., Any]:
    def loss(weights: Any, x: Any, y: Any) -> Any:
        return ((lib.xp.tanh(x @ weights[0]) @ weights[1] - y) ** 2).sum()

    batched = of(lib).vmap(of(lib).grad(loss), in_axes=(None, 0, 0))
    return lambda a, b, x, y: batched([a, b], x, y)


# A Hessian.


def curvature(lib: Library) -> Callable[..., Any]:
    def f(x: Any, a: Any) -> Any:
        return lib.xp.exp(-((lib.xp.sin(a @ x) ** 2).sum()) / 64) + (x**3).sum()

    return of(lib).hessian(f)


# The directional derivative of a long loop.


def along_loop(lib: Library) -> Callable[..., Any]:
    def f(c: Any, xs: Any) -> Any:
        return loops(lib).scan(lambda c, x: (lib.xp.tanh(c * 0.9 + x), c.sum()), c, xs)[0]

    return lambda c, xs: of(lib).jvp(lambda c: f(c, xs), (c,), (c,))[1]


# A training step of an LSTM: gradients, and Adam's update of weights and moments.


def lstm_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    weights = [normal(rng, 64, 512) / 8, normal(rng, 128, 512) / 12, normal(rng, 512)]
    first = [np.zeros_like(w) for w in weights]
    second = [np.ones_like(w) for w in weights]
    return [*weights, *first, *second, normal(rng, 40, 16, 64)]


def adam(xp: Any, weights: Any, first: Any, second: Any, gradients: Any) -> list[Any]:
    """Weights and moments after a step of Adam, in the order of the arguments."""
    first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
    second = [0.999 * v + 0.001 * (g * g) for v, g in zip(second, gradients, strict=True)]
    moved = zip(weights, first, second, strict=True)
    return [w - 1e-3 * m / (xp.sqrt(v) + 1e-8) for w, m, v in moved] + first + second


def lstm_step(lib: Library) -> Callable[..., Any]:
    xp = lib.xp

    def gate(x: Any) -> Any:
        return 0.5 * xp.tanh(0.5 * x) + 0.5

    def loss(weights: Any, xs: Any) -> Any:
        w, u, b = weights

        def step(carry: Any, x: Any) -> Any:
            h, c = carry
            z = x @ w + h @ u + b
            i, f, g, o = z[:, :128], z[:, 128:256], z[:, 256:384], z[:, 384:]
            c = gate(f) * c + gate(i) * xp.tanh(g)
            h = gate(o) * xp.tanh(c)
            return (h, c), (h * h).sum()

        start = xp.zeros((16, 128), dtype=xp.float32)
        return loops(lib).scan(step, (start, start), xs)[1].sum()

    by = of(lib).grad(loss)

    def train(*arrays: Any) -> Any:
        *state, xs = arrays
        return adam(xp, state[:3], state[3:6], state[6:], by(list(state[:3]), xs))

    return train


# A decoding step: a new key and value are written to the cache, and attention reads the whole
# cache.


def decode_inputs(batch: int) -> Inputs:
    def make(rng: np.random.Generator) -> list[np.ndarray]:
        cache = [normal(rng, batch, 8, 512, 64) for _ in range(2)]
        new = [normal(rng, batch, 8, 1, 64) for _ in range(3)]
        return [*cache, *new]

    return make


def decode(lib: Library) -> Callable[..., Any]:
    xp = lib.xp

    def step(keys: Any, values: Any, q: Any, k: Any, v: Any) -> Any:
        keys, values = keys.at[:, :, 400:401].set(k), values.at[:, :, 400:401].set(v)
        scores = (q @ xp.swapaxes(keys, -1, -2)) / 8
        weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        weights = weights / xp.sum(weights, axis=-1, keepdims=True)
        return weights @ values

    return step


# A training step of a transformer that keeps only the inputs of each layer and rematerialises the
# rest.

LAYERS, BATCH, LENGTH, WIDTH, HEADS = 6, 4, 256, 128, 4


def transformer_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    return [
        normal(rng, LAYERS, WIDTH, 3 * WIDTH) / 12,
        normal(rng, LAYERS, WIDTH, WIDTH) / 12,
        normal(rng, LAYERS, WIDTH, 4 * WIDTH) / 12,
        normal(rng, LAYERS, 4 * WIDTH, WIDTH) / 23,
        normal(rng, BATCH, LENGTH, WIDTH),
    ]


def checkpointed(lib: Library) -> Callable[..., Any]:
    xp = lib.xp

    def norm(x: Any) -> Any:
        x = x - xp.mean(x, axis=-1, keepdims=True)
        return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-5)

    def attention(x: Any, qkv: Any) -> Any:
        heads = xp.reshape(x @ qkv, (BATCH, LENGTH, 3, HEADS, WIDTH // HEADS))
        q, k, v = (xp.swapaxes(heads[:, :, i], 1, 2) for i in range(3))
        scores = q @ xp.swapaxes(k, -1, -2) / (WIDTH // HEADS) ** 0.5
        weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        weights = weights / xp.sum(weights, axis=-1, keepdims=True)
        return xp.reshape(xp.swapaxes(weights @ v, 1, 2), (BATCH, LENGTH, WIDTH))

    def layer(x: Any, qkv: Any, out: Any, up: Any, down: Any) -> Any:
        x = x + attention(norm(x), qkv) @ out
        return x + lib.gelu(norm(x) @ up) @ down

    kept = of(lib).checkpoint(layer)

    def loss(weights: Any, x: Any) -> Any:
        for i in range(LAYERS):
            x = kept(x, *(w[i] for w in weights))
        return (x * x).mean()

    by = of(lib).grad(loss)

    def train(*arrays: Any) -> Any:
        *weights, x = arrays
        return [w - 0.1 * g for w, g in zip(weights, by(list(weights), x), strict=True)]

    return train


def row(name: str, inputs: Inputs, make: Make, **options: Any) -> Workload:
    options = {"tolerance": 1e-3, "lazy": False, **options}
    return Workload(name, inputs, compiled(make), BOTH, **options)


def solving(lib: Library) -> Callable[..., Any]:
    return of(lib).vmap(lib.xp.linalg.solve)  # type: ignore[no-any-return]


def factoring(lib: Library) -> Callable[..., Any]:
    return of(lib).vmap(lib.xp.linalg.cholesky)  # type: ignore[no-any-return]


WORKLOADS = [
    row(
        "gradients of an MLP for each of 256 examples",
        example_inputs,
        example_gradients,
        quick=True,
    ),
    row(
        "Hessian of a function of 64 numbers",
        lambda rng: [normal(rng, 64) / 8, normal(rng, 64, 64) / 8],
        curvature,
    ),
    row(
        "jvp of a scan of 1000 steps",
        lambda rng: [normal(rng, 64), normal(rng, 1000, 64)],
        along_loop,
    ),
    row(
        "vmapped solve of 1000 8x8 systems",
        lambda rng: [positive(rng, 1000, 8), normal(rng, 1000, 8)],
        solving,
    ),
    row("vmapped cholesky of 1000 8x8 matrices", lambda rng: [positive(rng, 1000, 8)], factoring),
    row("training step of an LSTM, 40 steps of width 128", lstm_inputs, lstm_step, tolerance=1e-2),
    *(
        row(f"attention to a cache of 512 keys, batch {batch}", decode_inputs(batch), decode)
        for batch in (1, 16)
    ),
    row(
        "training step of a transformer of 6 checkpointed layers",
        transformer_inputs,
        checkpointed,
        tolerance=1e-2,
        memory=True,
    ),
]

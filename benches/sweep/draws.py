"""Random draws. Libraries have generators of their own, so shapes and moments are compared."""

from __future__ import annotations

import math
from typing import Any

from .rows import BYTES, Call, Operand, Row, jax, only

#: The seed that JAX's draws need; other libraries have the state of a generator.
SEED = Operand((), "int32", "integers", high=1000)


def draw(
    name: str, op: str, shape: tuple[int, ...], dtype: str, girih: Any, level: int = 1,
    numpy: Any = None, torch: Any = None, of_jax: Any = None, operands: tuple[Operand, ...] = (),
) -> Row:  # fmt: skip
    """A row of draws: each call takes the shape, and after it the operands."""

    def call(body: Any) -> Call | None:
        return None if body is None else lambda xp, seed, *x: body(xp, shape, *x)

    in_jax: Call | None = None
    if of_jax is not None:
        in_jax = lambda xp, seed, *x: of_jax(jax().random.key(seed), shape, *x)
    calls = only(call(girih), numpy=call(numpy), torch=call(torch), jax=in_jax)
    size = math.prod(shape) * BYTES[dtype]
    moved = float(size + sum(o.bytes for o in operands))
    return Row(
        name, "draws", op, (SEED, *operands), calls, bytes=moved, tolerance=0.2, check="moments",
        level=level,
    )  # fmt: skip


def generator(xp: Any) -> Any:
    """A generator of NumPy."""
    return xp.random.default_rng(0)


def rows() -> list[Row]:
    """All rows of this module."""
    out = []
    forms = [("tiny", (64,), 0), ("64 KB", (1 << 14,), 1), ("4 MB", (1 << 20,), 1),
             ("16 MB", (1 << 22,), 1)]  # fmt: skip
    for size, shape, level in forms:
        out += [
            draw(f"randn, {size}", "randn", shape, "float32", lambda xp, s: xp.randn(s), level,
                 numpy=lambda xp, s: generator(xp).standard_normal(s, xp.float32),
                 torch=lambda xp, s: xp.randn(s),
                 of_jax=lambda key, s: jax().random.normal(key, s)),
            draw(f"rand, {size}", "rand", shape, "float32", lambda xp, s: xp.rand(s), level,
                 numpy=lambda xp, s: generator(xp).random(s, xp.float32),
                 torch=lambda xp, s: xp.rand(s),
                 of_jax=lambda key, s: jax().random.uniform(key, s)),
        ]  # fmt: skip
    million, m = (1 << 20,), Operand((1 << 20,), kind="positive")
    logits = Operand((4096, 100))
    return [
        *out,
        draw("randint of 1M", "randint", million, "int64", lambda xp, s: xp.randint(0, 1000, s),
             numpy=lambda xp, s: generator(xp).integers(0, 1000, s),
             torch=lambda xp, s: xp.randint(0, 1000, s),
             of_jax=lambda key, s: jax().random.randint(key, s, 0, 1000)),
        draw("randperm of 100,000", "permutation", (100_000,), "int64",
             lambda xp, s: xp.random.permutation(s[0]),
             numpy=lambda xp, s: generator(xp).permutation(s[0]),
             torch=lambda xp, s: xp.randperm(s[0]),
             of_jax=lambda key, s: jax().random.permutation(key, s[0])),
        draw("bernoulli of 1M", "bernoulli", million, "bool",
             lambda xp, s: xp.random.bernoulli(0.3, s),
             numpy=lambda xp, s: generator(xp).random(s, xp.float32) < 0.3,
             torch=lambda xp, s: xp.empty(s, dtype=xp.bool).bernoulli_(0.3),
             of_jax=lambda key, s: jax().random.bernoulli(key, 0.3, s)),
        draw("exponential of 1M", "exponential", million, "float32",
             lambda xp, s: xp.random.exponential(shape=s),
             numpy=lambda xp, s: generator(xp).standard_exponential(s, xp.float32),
             torch=lambda xp, s: xp.empty(s).exponential_(),
             of_jax=lambda key, s: jax().random.exponential(key, s)),
        draw("gamma of 1M with shape 2", "gamma", million, "float32",
             lambda xp, s: xp.random.gamma(2.0, shape=s),
             numpy=lambda xp, s: generator(xp).standard_gamma(2.0, s, xp.float32),
             of_jax=lambda key, s: jax().random.gamma(key, 2.0, s)),
        draw("poisson of 1M with mean 4", "poisson", million, "int64",
             lambda xp, s: xp.random.poisson(4.0, shape=s),
             numpy=lambda xp, s: generator(xp).poisson(4.0, s),
             torch=lambda xp, s: xp.poisson(xp.full(s, 4.0)),
             of_jax=lambda key, s: jax().random.poisson(key, 4.0, s)),
        draw("beta of 1M", "beta", million, "float32", lambda xp, s: xp.random.beta(2.0, 3.5, s),
             numpy=lambda xp, s: generator(xp).beta(2.0, 3.5, s),
             of_jax=lambda key, s: jax().random.beta(key, 2.0, 3.5, s)),
        draw("binomial of 1M, 12 trials", "binomial", million, "int64",
             lambda xp, s: xp.random.binomial(12, 0.3, s),
             numpy=lambda xp, s: generator(xp).binomial(12, 0.3, s),
             torch=lambda xp, s: xp.binomial(xp.full(s, 12.0), xp.full(s, 0.3)),
             of_jax=lambda key, s: jax().random.binomial(key, 12.0, 0.3, s)),
        draw("categorical of 4,096 rows of 100", "categorical", (4096,), "int64",
             lambda xp, s, x: xp.random.categorical(x),
             torch=lambda xp, s, x: xp.multinomial(xp.softmax(x, -1), 1)[:, 0],
             of_jax=lambda key, s, x: jax().random.categorical(key, x), operands=(logits,)),
        draw("dropout of 1M", "dropout", million, "float32",
             lambda xp, s, x: xp.nn.functional.dropout(x, 0.1, True),
             torch=lambda xp, s, x: xp.nn.functional.dropout(x, 0.1, True), operands=(m,)),
        draw("randn in bf16, 1M", "randn", million, "bfloat16",
             lambda xp, s: xp.randn(s, dtype=xp.bfloat16),
             torch=lambda xp, s: xp.randn(s, dtype=xp.bfloat16)),
        draw("randn in f64, 1M", "randn", million, "float64",
             lambda xp, s: xp.randn(s, dtype=xp.float64),
             numpy=lambda xp, s: generator(xp).standard_normal(s),
             torch=lambda xp, s: xp.randn(s, dtype=xp.float64)),
        draw("x + 0.1 randn, 1M", "randn", million, "float32",
             lambda xp, s, x: x + 0.1 * xp.randn(x.shape),
             torch=lambda xp, s, x: x + 0.1 * xp.randn_like(x),
             of_jax=lambda key, s, x: x + 0.1 * jax().random.normal(key, x.shape), operands=(m,)),
    ]  # fmt: skip


ROWS = rows()

"""What a row of the sweep is: its operands, its call in each library, and what it needs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import measure

if TYPE_CHECKING:
    from .. import peers

#: The sizes of operands in bytes.
SIZES = {"tiny": 256, "64 KB": 1 << 16, "4 MB": 1 << 22, "64 MB": 1 << 26}
#: The libraries of the sweep.
LIBRARIES = ("girih", "numpy", "torch", "jax")
#: Bytes of an element, by dtype.
BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "float32", "uint32"), 4),
    **dict.fromkeys(("int64", "float64", "complex64"), 8),
    "complex128": 16,
}
SHORT = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8",
    "uint8": "u8", "int16": "i16", "int32": "i32", "int64": "i64", "uint32": "u32", "bool": "bool",
    "complex64": "c64", "complex128": "c128",
}  # fmt: skip
#: Axes longer than this are shorter in a row's small form.
LONG = 16

Body = Callable[..., Any]
#: A row's call in one library: the path of a function of the library, or a function of the library
#: and the tensors.
Call = str | Body


@dataclass(frozen=True)
class Operand:
    """An operand of a row.

    Attributes:
        shape: The shape.
        dtype: The dtype's name.
        kind: Which values: `normal`, `positive` (0.1 to 2), `unit` (-0.9 to 0.9), `above` (1.1 to
            3), `integers` (`low` to `high`), `indices` (0 to `high`, which is an axis's length),
            `sorted`, `distinct` (a permutation of 0 to the length), `definite` matrices,
            `dominant` matrices or `triangular` ones.
        high: The upper bound of integers and indices, exclusive.
        low: The lower bound of integers.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    kind: str = "normal"
    high: int = 0
    low: int = 0

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes of all elements."""
        return self.size * BYTES[self.dtype]

    def shrunk(self) -> Operand:
        """The operand with short axes, for tests."""
        high = shorter(self.high) if self.kind == "indices" else self.high
        return replace(self, shape=tuple(map(shorter, self.shape)), high=high)


def shorter(length: int) -> int:
    """The length of an axis in a row's small form; equal lengths stay equal, and even ones even."""
    if length <= LONG:
        return length
    return 16 * (1 + length.bit_length() % 3) + length % 2


@functools.lru_cache(maxsize=24)
def generate(operand: Operand, seed: int = 0) -> np.ndarray:
    """The values of an operand, the same in every call."""
    rng = np.random.default_rng(seed)
    dtype = "float32" if operand.dtype == "bfloat16" else operand.dtype
    return np.asarray(VALUES[operand.kind](operand, rng), dtype, order="C")


def _normal(operand: Operand, rng: np.random.Generator) -> np.ndarray:
    if operand.dtype == "bool":
        return rng.random(operand.shape, np.float32) < 0.5
    values = rng.standard_normal(operand.shape, np.float32)
    if operand.dtype.startswith("complex"):
        return values + 1j * rng.standard_normal(operand.shape, np.float32)
    return values


def _within(low: float, high: float) -> Callable[[Operand, np.random.Generator], np.ndarray]:
    return lambda operand, rng: low + (high - low) * rng.random(operand.shape, np.float32)


def _integers(operand: Operand, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(operand.low, operand.high, operand.shape)


def _definite(operand: Operand, rng: np.random.Generator) -> np.ndarray:
    n = operand.shape[-1]
    a = rng.standard_normal(operand.shape)
    return a @ np.swapaxes(a, -1, -2) / n + np.eye(n)


VALUES: dict[str, Callable[[Operand, np.random.Generator], np.ndarray]] = {
    "normal": _normal,
    "positive": _within(0.1, 2.0),
    "unit": _within(-0.9, 0.9),
    "above": _within(1.1, 3.0),
    "integers": _integers,
    "indices": _integers,
    "sorted": lambda operand, rng: np.sort(_normal(operand, rng), axis=-1),
    "distinct": lambda operand, rng: rng.permutation(operand.size).reshape(operand.shape),
    "definite": _definite,
    "dominant": lambda operand, rng: (
        rng.standard_normal(operand.shape) / operand.shape[-1] ** 0.5
        + 3 * np.eye(operand.shape[-1])
    ),
    "triangular": lambda operand, rng: np.tril(
        rng.standard_normal(operand.shape) / operand.shape[-1] + np.eye(operand.shape[-1])
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row of the sweep.

    Attributes:
        name: The unique name.
        family: The family, the group in the report.
        op: The operation; counts of kernels are by operation.
        operands: The operands.
        calls: The call by library; a library without one does not take part.
        flops: The least number of floating-point operations, as in `measure.Workload`.
        bytes: The least number of bytes read and written; by default those of the operands and of
            a result like the first one.
        dtype: The dtype of the multiplications, as in `measure.Workload`.
        tolerance: The maximum difference, relative to the largest value or 1.
        check: What is compared: `values`, `sorted` values, or `moments` of draws.
        compiled: Whether Girih and JAX compile the call. Functions whose results have a size that
            depends on values cannot be.
        level: 0 if the row is part of `--quick`, 1 if it is part of a sweep, 2 if it is only
            measured with `--full`.
    """

    name: str
    family: str
    op: str
    operands: tuple[Operand, ...]
    calls: Mapping[str, Call]
    flops: float = 0.0
    bytes: float = -1.0
    dtype: str = "f32"
    tolerance: float = 1e-4
    check: str = "values"
    compiled: bool = True
    level: int = 1

    @property
    def moved(self) -> float:
        """The least number of bytes to read and write."""
        if self.bytes >= 0:
            return self.bytes
        results = self.operands[0].bytes if self.operands else 0
        return sum(o.bytes for o in self.operands) + results

    def wide(self) -> bool:
        """Whether an operand has numbers of 64 bits, which JAX has only if it is asked for them."""
        return any(o.dtype in ("float64", "int64", "complex128") for o in self.operands)

    def shrunk(self) -> Row:
        """The row with short axes, for tests."""
        return replace(self, operands=tuple(o.shrunk() for o in self.operands))

    def workload(self) -> measure.Workload:
        """The row as a workload of `measure`."""
        return measure.Workload(
            self.name, lambda _: self.arrays(), self.build, tuple(self.calls), flops=self.flops,
            bytes=self.moved, dtype=self.dtype, tolerance=self.tolerance, lazy=False,
        )  # fmt: skip

    def arrays(self) -> list[np.ndarray]:
        """The operands' values. Operands that are alike have different values."""
        return [generate(o, seed) for seed, o in enumerate(self.operands)]

    def tensors(self, library: peers.Library) -> list[Any]:
        """The operands as tensors of a library."""
        return [
            library.low(a) if o.dtype == "bfloat16" else library.tensor(a)
            for o, a in zip(self.operands, self.arrays(), strict=True)
        ]

    def body(self, library: peers.Library) -> Body:
        """The call of a library as a function of tensors."""
        call = self.calls[library.name]
        return (
            resolved(library, call)
            if isinstance(call, str)
            else functools.partial(call, library.xp)
        )

    def build(self, library: peers.Library, _: Sequence[np.ndarray]) -> Callable[[], Any]:
        """The timed call."""
        tensors, body = self.tensors(library), self.body(library)
        function = library.compiled(plain(body)) if self.compiled else body
        if library.name == "girih" and not self.compiled:
            return lambda: evaluated(library.xp, function(*tensors))
        return lambda: library.finish(function(*tensors))


def plain(body: Body) -> Body:
    """The body as a function that compilers take: partial functions and builtins have no code."""
    return lambda *tensors: body(*tensors)


def evaluated(xp: Any, value: Any) -> Any:
    """A value of Girih, computed."""
    xp.eval(value)
    return value


def resolved(library: peers.Library, path: str) -> Body:
    """The function of a library at a dotted path; of JAX also outside of `jax.numpy`."""
    roots = [library.xp, *([library.jax] if library.name == "jax" else [])]  # type: ignore[attr-defined]
    for root in roots:
        try:
            return functools.reduce(getattr, path.split("."), root)  # type: ignore[no-any-return]
        except AttributeError:
            continue
    if library.name == "jax":
        # Modules such as jax.scipy.special are attributes only once they have been imported.
        module, _, name = path.rpartition(".")
        return getattr(import_module(f"jax.{module}"), name)  # type: ignore[no-any-return]
    raise AttributeError(f"{library.name} has no {path}")


def libs(shared: Call | None = None, **own: Call | None) -> dict[str, Call]:
    """Calls by library: those given by name, and `shared` for the others."""
    found = {name: own.get(name, shared) for name in LIBRARIES}
    return {name: call for name, call in found.items() if call is not None}


def only(shared: Call | None = None, **own: Call | None) -> dict[str, Call]:
    """Calls of Girih and of the libraries given by name; `shared` is Girih's."""
    return libs(None, **{"girih": shared, **own})


def jax() -> Any:
    """JAX itself, for calls outside of `jax.numpy`."""
    return import_module("jax")


def shape_text(*shapes: tuple[int, ...]) -> str:
    """Shapes as the names of rows show them."""
    texts = ["[" + ", ".join(map(str, shape)) + "]" for shape in shapes]
    return ", ".join(texts)

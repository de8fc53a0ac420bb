"""Dtype inspection functions, and the inspection API of the array API standard.

The extension implements promotion: see docs/dtypes.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from . import _girih
from ._girih import has_protocol
from .checks import explain_public
from .errors import DTypeError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._girih import DType, Tensor

__all__ = [
    "FloatInfo",
    "IntInfo",
    "__array_namespace_info__",
    "astype",
    "can_cast",
    "finfo",
    "iinfo",
    "isdtype",
    "result_type",
]

# Dtype names by kind, as in the array API; `isdtype` supports more dtypes than the standard.
_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_REAL = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")
_KINDS = {
    "bool": ("bool",),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _REAL,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED + _UNSIGNED + _REAL + _COMPLEX,
}
_EXTRA = {"real floating": ("float16", "bfloat16"), "numeric": ("float16", "bfloat16")}

# The numbers of bits of the exponent and of the fraction.
_FORMATS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}
_PARTS = {"complex64": "float32", "complex128": "float64"}


class FloatInfo(NamedTuple):
    """Limits of a floating-point dtype; for a complex dtype, of its real and imaginary parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntInfo(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype(of: Any) -> DType:
    """The dtype of a tensor, or the dtype that an object names."""
    if isinstance(of, _girih.Tensor):
        return of.dtype
    return of if isinstance(of, _girih.DType) else _girih.zeros((), dtype=of).dtype


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a floating-point or complex dtype, or of the dtype of a tensor.

    Raises ``DTypeError`` for other dtypes.
    """
    dtype = _dtype(type)
    part = _PARTS.get(dtype.name, dtype.name)
    if part not in _FORMATS:
        raise DTypeError(f"finfo: a floating-point dtype is expected, got {dtype}; see iinfo")
    exponent, fraction = _FORMATS[part]
    bias = 2 ** (exponent - 1) - 1
    largest = (2.0 - 2.0**-fraction) * 2.0**bias
    dtype = _girih.DType(part)
    bits = 1 + exponent + fraction
    return FloatInfo(bits, 2.0**-fraction, largest, -largest, 2.0 ** (1 - bias), dtype)


def iinfo(type: Any, /) -> IntInfo:
    """Limits of an integer dtype, or of the dtype of a tensor.

    Raises ``DTypeError`` for other dtypes.
    """
    dtype = _dtype(type)
    if dtype.name not in _KINDS["integral"]:
        raise DTypeError(f"iinfo: an integer dtype is expected, got {dtype}; see finfo")
    bits = 8 * dtype.itemsize
    signed = dtype.name in _SIGNED
    high = 2 ** (bits - signed) - 1
    return IntInfo(bits, high, -high - 1 if signed else 0, dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of the given kind: a dtype, the name of a kind, or a tuple of these.

    Kinds: "bool", "signed integer", "unsigned integer", "integral", "real floating" (float16 and
    bfloat16, too), "complex floating", "numeric".
    """
    asked = _dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(asked, one) for one in kind)
    if isinstance(kind, _girih.DType):
        return asked == kind
    if isinstance(kind, str) and kind in _KINDS:
        return asked.name in _KINDS[kind] + _EXTRA.get(kind, ())
    known = ", ".join(map(repr, _KINDS))
    raise InvalidArgumentError(f"isdtype: a kind is a dtype or one of {known}, got {kind!r}")


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype to which tensors, dtypes and Python numbers promote.

    Raises ``DTypeError`` if there is none, ``InvalidArgumentError`` if all arguments are numbers.
    """
    numbers = [x for x in arrays_and_dtypes if _is_number(x)]
    dtypes = [_dtype(x) for x in arrays_and_dtypes if not _is_number(x)]
    if not dtypes:
        raise InvalidArgumentError("result_type: give at least one tensor or dtype")
    # The dtype of a selection between two values, by the promotion rules of all functions.
    result, condition = dtypes[0], _girih.ones((), dtype="bool")
    for other in [*(_girih.zeros((), dtype=d) for d in dtypes[1:]), *numbers]:
        result = _girih.where(condition, _girih.zeros((), dtype=result), other).dtype
    return result


def _is_number(x: object) -> bool:
    numbers = (int, float, complex, _girih.SymbolicDim, _girih.SymbolicFloat)
    return isinstance(x, numbers) and not has_protocol(x, "dtype")


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion can turn a dtype, or the dtype of a tensor, into another dtype."""
    target = _dtype(to)
    try:
        return result_type(_dtype(from_), target) == target
    except DTypeError:
        return False


def astype(
    x: Tensor, dtype: DType | str, /, *, copy: bool = True, device: str | None = None
) -> Tensor:
    """Casts to another dtype; without ``copy``, returns x itself if it already has the dtype."""
    dtype, x = _dtype(dtype), _girih.asarray(x, device=device)
    return x if not copy and x.dtype == dtype else x.astype(dtype)


def _device(device: object) -> None:
    if device is not None:
        _girih.check_device(device)


class __array_namespace_info__:  # noqa: N801 - the standard's name
    """Information about this package in the form of the array API standard."""

    __module__ = "girih"

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing and data-dependent shapes are supported; they evaluate the data."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self) -> str:
        """The default device of new tensors."""
        return _girih.device_name()

    def devices(self) -> tuple[str, ...]:
        """All devices, the current one first."""
        return tuple(name for name, _, _ in _girih.devices())

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """Default dtypes of Python numbers."""
        _device(device)
        names = {
            "real floating": "float32",
            "complex floating": "complex64",
            "integral": "int64",
            "indexing": "int64",
        }
        return {kind: _girih.DType(name) for kind, name in names.items()}

    def dtypes(
        self, *, device: str | None = None, kind: str | Sequence[str] | None = None
    ) -> dict[str, DType]:
        """The standard's dtypes, all or of some kinds, by name."""
        _device(device)
        kinds = ("bool", "numeric") if kind is None else (kind,) if isinstance(kind, str) else kind
        unknown = [k for k in kinds if k not in _KINDS]
        if unknown:
            known = ", ".join(map(repr, _KINDS))
            raise InvalidArgumentError(f"dtypes: a kind is one of {known}, got {unknown[0]!r}")
        return {name: _girih.DType(name) for k in kinds for name in _KINDS[k]}


explain_public(globals())

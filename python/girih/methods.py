"""Methods of tensors by PyTorch's names, written with the functions and operators of this package.

``girih.later`` lists the methods and installs them: this module is imported at the first use of
one. Names that end in an underscore give the tensor object another value, as ``+=`` does.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from . import _girih
from ._girih import Tensor
from .arranging import whole_number
from .checks import explain_public, items
from .errors import DTypeError, InvalidArgumentError, ShapeError
from .selection import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._girih import DType

__all__ = [
    "add",
    "adjoint",
    "bernoulli_",
    "clamp_max",
    "clamp_min",
    "clone",
    "contiguous",
    "copy_",
    "cross",
    "dim",
    "div",
    "element_size",
    "expand_as",
    "exponential_",
    "fill_",
    "fill_diagonal_",
    "is_complex",
    "is_contiguous",
    "is_floating_point",
    "is_nonzero",
    "is_same_size",
    "is_signed",
    "logdet",
    "method",
    "new_empty",
    "new_full",
    "new_ones",
    "new_tensor",
    "new_zeros",
    "normal_",
    "numel",
    "random_",
    "reshape_as",
    "select",
    "split",
    "sub",
    "sum_to_size",
    "t",
    "type",
    "type_as",
    "unbind",
    "unfold",
    "uniform_",
    "unique",
    "view_as",
    "where",
    "zero_",
]

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_COMPLEX = ("complex64", "complex128")


def _tensor(name: str, x: Any) -> Tensor:
    """The operand of a method that is called as a function."""
    if isinstance(x, Tensor):
        return x
    raise DTypeError(f"{name}: a method of tensors, called with a {x.__class__.__name__}")


def _cast(name: str, dtype: str) -> Callable[[Tensor], Tensor]:
    """The method that casts to a dtype."""

    def cast(x: Tensor) -> Tensor:
        return _tensor(name, x).astype(dtype)

    cast.__name__ = cast.__qualname__ = name
    cast.__doc__ = f"The elements as {dtype}."
    return cast


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transposes of matrices, the last two axes."""
    return _girih.conj(_tensor("adjoint", x).mT)


def t(x: Tensor) -> Tensor:
    """The transpose of a matrix; a vector or number as it is."""
    if x.ndim > 2:
        raise ShapeError(f"t: a matrix is expected, got {list(x.shape)}; see mT and swapaxes")
    return x.T


def add(x: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """``x + alpha * other``."""
    return _girih.add(x, other if _is_one(alpha) else _girih.multiply(other, alpha))


def sub(x: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """``x - alpha * other``."""
    return _girih.subtract(x, other if _is_one(alpha) else _girih.multiply(other, alpha))


def _is_one(alpha: Any) -> bool:
    return alpha.__class__.__name__ in ("int", "float") and alpha == 1


def div(x: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """The quotient, rounded toward zero with the mode "trunc", and down with "floor"."""
    if rounding_mode is None:
        return _girih.divide(x, other)
    if rounding_mode == "floor":
        return _girih.floor_divide(x, other)
    if rounding_mode != "trunc":
        raise InvalidArgumentError(
            f"div: rounding_mode is None, 'trunc' or 'floor', got {rounding_mode!r}"
        )
    if not x.dtype.name.startswith(("int", "uint")):
        return _girih.trunc(_girih.divide(x, other))
    # The remainder has the sign of x, so that the rest is a multiple of the divisor.
    rest = _girih.fmod(x, other)
    return _girih.floor_divide(_girih.subtract(x, rest), other)


def clamp_min(x: Tensor, min: Any) -> Tensor:
    """Elements that are not below a limit."""
    return _girih.clip(x, min, None)


def clamp_max(x: Tensor, max: Any) -> Tensor:
    """Elements that are not above a limit."""
    return _girih.clip(x, None, max)


def clone(x: Tensor, *, memory_format: Any = None) -> Tensor:
    """The same elements as another object, to which gradients flow back."""
    return _girih.positive(x)


def contiguous(x: Tensor, *, memory_format: Any = None) -> Tensor:
    """The tensor itself: all tensors are row-major."""
    return x


def is_contiguous(x: Tensor, *, memory_format: Any = None) -> bool:
    """True: all tensors are row-major."""
    return True


def dim(x: Tensor) -> int:
    """The number of axes."""
    return x.ndim


def numel(x: Tensor) -> int:
    """The number of elements."""
    return x.size


def element_size(x: Tensor) -> int:
    """The number of bytes of an element."""
    return x.dtype.itemsize


def is_floating_point(x: Tensor) -> bool:
    """Whether the dtype is a real floating-point one."""
    return x.dtype.name in _FLOATS


def is_complex(x: Tensor) -> bool:
    """Whether the dtype is complex."""
    return x.dtype.name in _COMPLEX


def is_signed(x: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return not x.dtype.name.startswith(("uint", "bool"))


def is_nonzero(x: Tensor) -> bool:
    """Whether the only element is not 0. Evaluates."""
    return bool(_tensor("is_nonzero", x).item() != 0)


def is_same_size(x: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape."""
    return x.shape == other.shape


def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """The tensor broadcast to the shape of another one."""
    return _girih.broadcast_to(x, other.shape)


def view_as(x: Tensor, other: Tensor) -> Tensor:
    """The same elements in the shape of another tensor."""
    return _tensor("view_as", x).reshape(other.shape)


def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    """The same elements in the shape of another tensor."""
    return _tensor("reshape_as", x).reshape(other.shape)


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """The elements in the dtype of another tensor."""
    return x.astype(other.dtype)


def type(x: Tensor, dtype: DType | str | None = None) -> Any:
    """The elements in another dtype; without one the name of the own."""
    return x.dtype.name if dtype is None else x.astype(dtype)


def _sizes(name: str, shape: tuple[Any, ...]) -> tuple[Any, ...]:
    one = len(shape) == 1 and isinstance(shape[0], (tuple, list))
    sizes = shape[0] if one else shape
    return tuple(s if isinstance(s, _girih.SymbolicDim) else whole_number(name, s) for s in sizes)


def new_zeros(
    x: Tensor, *shape: Any, dtype: DType | str | None = None, device: Any = None
) -> Tensor:
    """Zeros, in the dtype and on the device of the tensor unless others are given."""
    return new_full(x, _sizes("new_zeros", shape), 0, dtype=dtype, device=device)


def new_ones(
    x: Tensor, *shape: Any, dtype: DType | str | None = None, device: Any = None
) -> Tensor:
    """Ones, in the dtype and on the device of the tensor unless others are given."""
    return new_full(x, _sizes("new_ones", shape), 1, dtype=dtype, device=device)


def new_empty(
    x: Tensor, *shape: Any, dtype: DType | str | None = None, device: Any = None
) -> Tensor:
    """Unspecified elements (zeros), in the dtype and on the device of the tensor."""
    return new_full(x, _sizes("new_empty", shape), 0, dtype=dtype, device=device)


def new_full(
    x: Tensor,
    shape: Sequence[int],
    fill_value: Any,
    *,
    dtype: DType | str | None = None,
    device: Any = None,
) -> Tensor:
    """One value everywhere, in the dtype and on the device of the tensor."""
    where = x.device if device is None else device
    return _girih.full(shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=where)


def new_tensor(
    x: Tensor, data: Any, *, dtype: DType | str | None = None, device: Any = None
) -> Tensor:
    """What ``gr.asarray`` makes of data, in the dtype and on the device of the tensor."""
    where = x.device if device is None else device
    return _girih.asarray(data, x.dtype if dtype is None else dtype, device=where)


def select(x: Tensor, dim: int, index: int) -> Tensor:
    """One slice of an axis, without the axis."""
    from .arranging import axis_of

    return x[(slice(None),) * axis_of("select", dim, x.ndim) + (index,)]


def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices of an axis."""
    return tuple(_girih.unstack(x, axis=dim))


def split(x: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of an axis of a size, the last one perhaps smaller, or of several sizes. The function
    ``gr.split`` takes the number of parts instead, as NumPy's.
    """
    from .arranging import axis_of

    axis = axis_of("split", dim, x.ndim)
    size = x.shape[axis]
    if hasattr(split_size, "__index__"):
        width = split_size.__index__()
        if width < 1:
            raise InvalidArgumentError(f"split: the size of a part is positive, got {width}")
        cuts = list(range(width, size, width))
    else:
        widths = items(split_size)
        if sum(widths) != size or any(width < 0 for width in widths):
            raise ShapeError(f"split: parts {widths} do not add up to axis {axis} of size {size}")
        cuts = [sum(widths[: i + 1]) for i in range(len(widths) - 1)]
    return tuple(_girih.split(x, cuts, axis))


def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """The windows of an axis, whose elements are a new last axis. The function ``gr.unfold`` gives
    the patches of a convolution instead.
    """
    from .arranging import axis_of

    axis = axis_of("unfold", dimension, x.ndim)
    if not 1 <= size <= x.shape[axis] or step < 1:
        raise InvalidArgumentError(
            f"unfold: windows of {size} elements, {step} apart, are not on axis {axis} of size "
            f"{x.shape[axis]}"
        )
    windows = _girih.windows(_girih.moveaxis(x, axis, -1), size, step)
    return _girih.moveaxis(windows, -2, axis)


def unique(
    x: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements, or slices of an axis, in ascending order. Evaluates. The function
    ``gr.unique`` has NumPy's arguments.
    """
    return _girih.unique(x, False, return_inverse, return_counts, dim)


def where(x: Tensor, condition: Any, other: Any) -> Tensor:
    """The elements where a condition is true, and those of another tensor elsewhere."""
    return _girih.where(condition, x, other)


def cross(x: Tensor, other: Any, dim: int = -1) -> Tensor:
    """Cross products of vectors of three elements along an axis."""
    return _girih.linalg_cross(x, other, dim)


def logdet(x: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where it is negative."""
    sign, logarithm = _girih.linalg_slogdet(x)
    return _girih.where(sign < 0, math.nan, logarithm)


def sum_to_size(x: Tensor, *size: Any) -> Tensor:
    """The sum over the axes that broadcasting from a shape has added or enlarged."""
    x, shape = _tensor("sum_to_size", x), _sizes("sum_to_size", size)
    lead = x.ndim - len(shape)
    own = tuple(x.shape)
    if lead < 0 or any(s not in (1, o) for s, o in zip(shape, own[lead:], strict=True)):
        raise ShapeError(f"sum_to_size: {list(shape)} does not broadcast to {list(own)}")
    axes = [lead + i for i, size in enumerate(shape) if size == 1 and own[lead + i] != 1]
    over = [*range(lead), *axes]
    return x if not over else x.sum(over, dtype=x.dtype).reshape(shape)


def _rebound(name: str, x: Tensor, value: Tensor) -> Tensor:
    """Gives a tensor object another value of its shape and dtype; returns the object."""
    if value.shape != _tensor(name, x).shape:
        raise ShapeError(
            f"{name}: the result {list(value.shape)} does not fit the tensor {list(x.shape)}"
        )
    if (dtype := x.dtype) != value.dtype:
        if kind_of(value.dtype) > kind_of(dtype):
            raise DTypeError(f"{name}: a result of {value.dtype} does not fit a tensor of {dtype}")
        value = value.astype(dtype)
    _girih.rebind(x, value)
    return x


def fill_(x: Tensor, value: Any) -> Tensor:
    """Sets all elements to one value."""
    return _rebound("fill_", x, _girih.full_like(x, value))


def zero_(x: Tensor) -> Tensor:
    """Sets all elements to 0."""
    return _rebound("zero_", x, _girih.zeros_like(x))


def copy_(x: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Sets the elements to those of another tensor, which broadcasts and is cast."""
    value = _girih.broadcast_to(_girih.asarray(src), x.shape).astype(x.dtype)
    value = value.to(x.device)
    # The source is not to require a gradient as x does.
    return _rebound("copy_", x, value.detach() if x.requires_grad else value)


def fill_diagonal_(x: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Sets the elements of the main diagonal to one value."""
    if wrap:
        raise InvalidArgumentError("fill_diagonal_: a diagonal that wraps is not supported")
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) > 1):
        raise ShapeError(
            f"fill_diagonal_: a matrix, or equal sizes, are expected, got {list(x.shape)}"
        )
    places = _girih.arange(min(x.shape))
    return _rebound("fill_diagonal_", x, x.at[(places,) * x.ndim].set(fill_value))


def uniform_(x: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Sets the elements to uniform draws from a range."""
    from . import random

    return _rebound("uniform_", x, random.uniform(x.shape, low=low, high=high, dtype=x.dtype))


def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Sets the elements to normal draws."""
    from . import random

    return _rebound("normal_", x, random.normal(x.shape, loc=mean, scale=std, dtype=x.dtype))


def exponential_(x: Tensor, lambd: float = 1.0) -> Tensor:
    """Sets the elements to draws of an exponential distribution of a rate."""
    from . import random

    return _rebound("exponential_", x, random.exponential(x.shape, dtype=x.dtype) / lambd)


def bernoulli_(x: Tensor, p: Any = 0.5) -> Tensor:
    """Sets the elements to 1 with a probability, and to 0 otherwise."""
    from . import random

    draws = random.uniform(x.shape) < _girih.asarray(p)
    return _rebound("bernoulli_", x, draws.astype(x.dtype))


def random_(x: Tensor, low: int = 0, high: int | None = None) -> Tensor:
    """Sets the elements to integers from low below high; with one bound from 0 below it."""
    from . import random
    from .dtypes import finfo, iinfo

    if high is None and low == 0:
        whole = x.dtype.name.startswith(("int", "uint"))
        high = iinfo(x.dtype).max if whole else 2 if x.dtype.name == "bool" else None
        high = round(2 / finfo(x.dtype).eps) if high is None else high
    elif high is None:
        low, high = 0, low
    return _rebound("random_", x, random.randint(low, high, x.shape).astype(x.dtype))


def _in_place(name: str) -> Callable[..., Tensor]:
    """The method that gives a tensor object the result of the method without the underscore."""
    plain = name.removesuffix("_")

    def in_place(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _rebound(name, x, getattr(_tensor(name, x), plain)(*args, **kwargs))

    in_place.__name__ = in_place.__qualname__ = name
    in_place.__doc__ = f"Gives the tensor object the result of ``{plain}``; returns the object."
    return in_place


def method(name: str) -> Callable[..., Any]:
    """The function behind a method of the table in ``girih.later``: its first argument is the
    tensor.

    Raises:
        KeyError: There is no such method.
    """
    import girih

    from .later import METHODS

    path = METHODS[name]
    if path == "in place":
        return _in_place(name)
    if path.startswith("cast "):
        return _cast(name, path.removeprefix("cast "))
    if path.startswith("methods."):
        found: Callable[..., Any] = globals()[path.removeprefix("methods.")]
        return found
    function: Callable[..., Any] = attrgetter(path)(girih)
    return function


explain_public(globals())

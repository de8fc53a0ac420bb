"""Elementwise functions of NumPy and PyTorch that are compositions of ops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import _girih
from ._girih import Tensor
from .checks import explain_public
from .errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._girih import _TensorLike

__all__ = [
    "addcdiv",
    "addcmul",
    "bitwise_count",
    "cbrt",
    "deg2rad",
    "divmod",
    "float_power",
    "fmax",
    "fmin",
    "frac",
    "frexp",
    "gcd",
    "heaviside",
    "iscomplex",
    "isneginf",
    "isposinf",
    "isreal",
    "lcm",
    "ldexp",
    "lerp",
    "log_cosh",
    "logaddexp2",
    "modf",
    "polar",
    "rad2deg",
    "view_as_complex",
    "view_as_real",
]

_COMPLEX = ("complex64", "complex128")
_WHOLE = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def _kind(name: str, x: _TensorLike, real: bool = True) -> Tensor:
    """A floating-point tensor: integers and bool become float32."""
    x = _girih.asarray(x)
    if real and x.dtype.name in _COMPLEX:
        raise DTypeError(f"{name}: real numbers are expected, got {x.dtype}")
    return x.astype(_girih.float32) if x.dtype.name in _WHOLE else x


def deg2rad(x: _TensorLike, /) -> Tensor:
    """Degrees as radians.

    Example:
        >>> gr.deg2rad([180.0])
        tensor([3.1415927], dtype=float32)
    """
    return _kind("deg2rad", x) * (math.pi / 180)


def rad2deg(x: _TensorLike, /) -> Tensor:
    """Radians as degrees.

    Example:
        >>> gr.rad2deg([0.0, gr.pi])
        tensor([  0., 180.], dtype=float32)
    """
    return _kind("rad2deg", x) * (180 / math.pi)


def cbrt(x: _TensorLike, /) -> Tensor:
    """The cube root, negative for negative numbers.

    Example:
        >>> gr.cbrt([27.0, -8.0])
        tensor([ 3., -2.], dtype=float32)
    """
    x = _kind("cbrt", x)
    plain = _girih.logical_and(_girih.isfinite(x), x != 0)
    size = _girih.where(plain, x.abs(), 1.0)
    root = size ** (1 / 3)
    # A step of Newton's method: the exponent is not exactly one third.
    root = root - (root - size / (root * root)) / 3
    # A zero has an infinite slope, which a quotient by it gives.
    return _girih.where(plain, root * _girih.sign(x), _girih.where(x == 0, x * x.abs(), x))


def isposinf(x: _TensorLike, /) -> Tensor:
    """Whether each element is positive infinity. Dtype: bool.

    Example:
        >>> gr.isposinf([1.0, float("inf"), -float("inf")])
        tensor([False,  True, False], dtype=bool)
    """
    x = _kind("isposinf", x)
    return x == math.inf


def isneginf(x: _TensorLike, /) -> Tensor:
    """Whether each element is negative infinity. Dtype: bool.

    Example:
        >>> gr.isneginf([1.0, float("inf"), -float("inf")])
        tensor([False, False,  True], dtype=bool)
    """
    x = _kind("isneginf", x)
    return x == -math.inf


def isreal(x: _TensorLike, /) -> Tensor:
    """Whether the imaginary part of each element is 0. Dtype: bool.

    Example:
        >>> gr.isreal([1.0 + 0.0j, 2.0j])
        tensor([ True, False], dtype=bool)
    """
    return _girih.imag(_girih.asarray(x)) == 0


def iscomplex(x: _TensorLike, /) -> Tensor:
    """Whether the imaginary part of each element is not 0. Dtype: bool.

    Example:
        >>> gr.iscomplex([1.0 + 0.0j, 2.0j])
        tensor([False,  True], dtype=bool)
    """
    return _girih.imag(_girih.asarray(x)) != 0


def log_cosh(x: _TensorLike, /) -> Tensor:
    """The logarithm of the hyperbolic cosine, without overflow.

    Example:
        >>> gr.log_cosh([0.0, 1000.0])
        tensor([  0.      , 999.306853], dtype=float32)
    """
    x = _kind("log_cosh", x)
    # Near 0 by the sine of half the argument, beyond by the larger exponential.
    near = x.abs() < 1
    half = _girih.sinh(_girih.where(near, 0.5 * x, 0.0))
    far = _girih.where(near, 1.0, x.abs())
    large = far + _girih.log1p(_girih.exp(-2 * far)) - math.log(2)
    return _girih.where(near, _girih.log1p(2 * half * half), large)


def logaddexp2(x1: _TensorLike, x2: _TensorLike, /) -> Tensor:
    """``log2(2**x1 + 2**x2)``, without overflow.

    Example:
        >>> gr.logaddexp2([1000.0], [1000.0])
        tensor([1001.], dtype=float32)
    """
    x1, x2 = _girih.broadcast_arrays(_girih.asarray(x1), _girih.asarray(x2))
    high = _girih.maximum(x1, x2)
    high = high.astype(_girih.float32) if high.dtype.name in _WHOLE else high
    same = x1 == x2
    gap = _girih.where(same, 0.0, (x1 - x2).abs().astype(high.dtype))
    return high + _girih.log1p(_girih.exp2(-gap)) / math.log(2)


def fmax(x1: _TensorLike, x2: _TensorLike, /) -> Tensor:
    """The larger of two, the other one where one is NaN.

    Example:
        >>> gr.fmax([1.0, float("nan")], [2.0, 3.0])
        tensor([2., 3.], dtype=float32)
    """
    return _without_nan(_girih.maximum, x1, x2)


def fmin(x1: _TensorLike, x2: _TensorLike, /) -> Tensor:
    """The smaller of two, the other one where one is NaN.

    Example:
        >>> gr.fmin([1.0, float("nan")], [2.0, 3.0])
        tensor([1., 3.], dtype=float32)
    """
    return _without_nan(_girih.minimum, x1, x2)


def _without_nan(
    function: Callable[[Any, Any], Tensor], x1: _TensorLike, x2: _TensorLike
) -> Tensor:
    first = _girih.where(_girih.isnan(x1), x2, x1)
    return function(first, _girih.where(_girih.isnan(x2), x1, x2))


def heaviside(x1: _TensorLike, x2: _TensorLike, /) -> Tensor:
    """The step function: 0 below 0, 1 above, and x2 at 0; NaN for NaN.

    Args:
        x1: where the function is taken.
        x2: the value at 0.

    Example:
        >>> gr.heaviside([-1.0, 0.0, 1.0], 0.5)
        tensor([0. , 0.5, 1. ], dtype=float32)
    """
    x1 = _kind("heaviside", x1)
    step = _girih.where(_girih.isnan(x1), x1, (x1 > 0).astype(x1.dtype))
    return _girih.where(x1 == 0, x2, step)


def float_power(x1: _TensorLike, x2: _TensorLike, /) -> Tensor:
    """The first to the power of the second in float64, or in complex128 if either is complex.

    Args:
        x1: the bases.
        x2: the exponents; shapes broadcast.

    Example:
        >>> gr.float_power([2], -1)
        tensor([0.5], dtype=float64)
    """
    pair = [_girih.asarray(x1), _girih.asarray(x2)]
    wide = any(x.dtype.name in _COMPLEX for x in pair)
    dtype = _girih.complex128 if wide else _girih.float64
    return _girih.power(pair[0].astype(dtype), pair[1].astype(dtype))


def divmod(x1: _TensorLike, x2: _TensorLike, /) -> tuple[Tensor, Tensor]:
    """``floor_divide`` and ``remainder``.

    Returns:
        The quotients and the remainders.

    Example:
        >>> gr.divmod([7], [2])
        (tensor([3], dtype=int64), tensor([1], dtype=int64))
    """
    return _girih.floor_divide(x1, x2), _girih.remainder(x1, x2)


def frac(x: _TensorLike, /) -> Tensor:
    """The part after the decimal point, ``x - trunc(x)``.

    Example:
        >>> gr.frac([1.5, -2.25])
        tensor([ 0.5 , -0.25], dtype=float32)
    """
    return modf(x)[0]


def modf(x: _TensorLike, /) -> tuple[Tensor, Tensor]:
    """The part after the decimal point, and the integer part; both have the sign of x.

    Returns:
        Two tensors of the shape of x; the first part of infinity is 0.

    Example:
        >>> gr.modf([1.5])
        (tensor([0.5], dtype=float32), tensor([1.], dtype=float32))
    """
    x = _kind("modf", x)
    whole = _girih.trunc(x)
    infinite = _girih.isinf(x)
    part = _girih.where(infinite, 0.0, x) - _girih.where(infinite, 0.0, whole)
    return _girih.copysign(part, x), whole


def ldexp(x1: _TensorLike, x2: _TensorLike, /) -> Tensor:
    """``x1 * 2**x2``, also where the power itself overflows.

    Args:
        x1: numbers.
        x2: integers; shapes broadcast.

    Raises:
        DTypeError: x2 has no integers.

    Example:
        >>> gr.ldexp([0.75], 4)
        tensor([12.], dtype=float32)
    """
    x1, x2 = _kind("ldexp", x1), _girih.asarray(x2)
    if x2.dtype.name not in _WHOLE:
        raise DTypeError(f"ldexp: the exponents are integers, got {x2.dtype}")
    # Three factors, because the largest number over the smallest exceeds the largest.
    limit = 1100 * 2
    exponent = _girih.clip(x2.astype(_girih.int64), -limit, limit)
    third = _girih.trunc(exponent.astype(_girih.float64) / 3).astype(_girih.int64)
    for part in (third, third, exponent - 2 * third):
        x1 = x1 * _girih.exp2(part.astype(x1.dtype))
    return x1


def frexp(x: _TensorLike, /) -> tuple[Tensor, Tensor]:
    """Mantissas between 0.5 and 1, and exponents: ``x == mantissa * 2**exponent``.

    Returns:
        The mantissas with the sign of x, and the exponents (int32); zeros, infinities and NaN are
        their own mantissas, with the exponent 0.

    Example:
        >>> gr.frexp([8.0])
        (tensor([0.5], dtype=float32), tensor([4], dtype=int32))
    """
    x = _kind("frexp", x)
    plain = _girih.logical_and(_girih.isfinite(x), x != 0)
    safe = _girih.stop_gradient(_girih.where(plain, x.abs(), 1.0)).astype(_girih.float64)
    # Subnormal numbers of float64 have no exact reciprocal power.
    small = safe < 1e-290
    safe = _girih.where(small, safe * 2.0**200, safe)
    exponent = _girih.floor(_girih.log2(safe)) + 1
    mantissa = safe * _girih.exp2(-exponent)
    exponent = exponent + (mantissa >= 1).astype(exponent.dtype)
    exponent = exponent - (mantissa < 0.5).astype(exponent.dtype)
    exponent = _girih.where(small, exponent - 200, exponent)
    exponent = _girih.where(plain, exponent, 0.0).astype(_girih.int32)
    return ldexp(x, -exponent), exponent


def gcd(x1: _TensorLike, x2: _TensorLike, /) -> Tensor:
    """The greatest common divisor of integers, 0 of two zeros.

    Raises:
        DTypeError: An operand has no integers.

    Example:
        >>> gr.gcd([12, 0], [18, 5])
        tensor([6, 5], dtype=int64)
    """
    from .control import while_loop

    x1, x2 = _integers("gcd", x1, x2)
    # Euclid's algorithm, for all elements until the last one is done.
    found: Tensor = while_loop(
        lambda pair: (pair[1] != 0).any(),
        lambda pair: (
            _girih.where(pair[1] == 0, pair[0], pair[1]),
            _girih.where(pair[1] == 0, pair[1], pair[0] % pair[1]),
        ),
        (x1.abs(), x2.abs()),
    )[0]
    return found


def lcm(x1: _TensorLike, x2: _TensorLike, /) -> Tensor:
    """The least common multiple of integers, 0 if either is 0.

    Raises:
        DTypeError: An operand has no integers.

    Example:
        >>> gr.lcm([4, 0], [6, 5])
        tensor([12,  0], dtype=int64)
    """
    x1, x2 = _integers("lcm", x1, x2)
    divisor = gcd(x1, x2)
    return (x1 // _girih.where(divisor == 0, 1, divisor) * x2).abs()


def _integers(name: str, x1: _TensorLike, x2: _TensorLike) -> tuple[Tensor, Tensor]:
    from .dtypes import result_type

    given = [x if isinstance(x, int) else _girih.asarray(x) for x in (x1, x2)]
    pair = [_girih.asarray(x) for x in given]
    for x in pair:
        if x.dtype.name not in _WHOLE[1:]:
            raise DTypeError(f"{name}: integers are expected, got {x.dtype}")
    dtype = pair[0].dtype
    if any(isinstance(x, Tensor) for x in given):
        dtype = result_type(*given)
    first, second = _girih.broadcast_arrays(*(x.astype(dtype) for x in pair))
    return first, second


def bitwise_count(x: _TensorLike, /) -> Tensor:
    """The number of ones in the binary form of the absolute value of integers. Dtype: uint8.

    Raises:
        DTypeError: The elements are no integers.

    Example:
        >>> gr.bitwise_count([0, 7, -8])
        tensor([0, 3, 1], dtype=uint8)
    """
    x = _girih.asarray(x)
    if x.dtype.name not in _WHOLE:
        raise DTypeError(f"bitwise_count: integers are expected, got {x.dtype}")
    bits = 8 * x.dtype.itemsize
    size = x.astype(_girih.uint8) if x.dtype.name == "bool" else x.abs().view(f"uint{bits}")
    v = size.astype(_girih.uint64)
    # Sums of neighbouring bits, pairs, and groups of four, in all bytes at once.
    v = v - ((v >> 1) & 0x5555555555555555)
    v = (v & 0x3333333333333333) + ((v >> 2) & 0x3333333333333333)
    v = (v + (v >> 4)) & 0x0F0F0F0F0F0F0F0F
    return ((v * 0x0101010101010101) >> 56).astype(_girih.uint8)


def lerp(x: _TensorLike, end: _TensorLike, weight: _TensorLike) -> Tensor:
    """Between two tensors, ``x + weight * (end - x)``.

    Args:
        x: the values for a weight of 0.
        end: the values for a weight of 1.
        weight: numbers, of which shapes broadcast.

    Example:
        >>> gr.lerp([0.0], [10.0], 0.25)
        tensor([2.5], dtype=float32)
    """
    x, end = _girih.asarray(x), _girih.asarray(end)
    gap = end - x
    weight = weight if isinstance(weight, (int, float)) else _girih.asarray(weight)
    # From the nearer end, so that a weight of 1 gives exactly `end`.
    near = weight < 0.5
    if isinstance(near, bool):
        return x + weight * gap if near else end - gap * (1 - weight)
    return _girih.where(near, x + weight * gap, end - gap * (1 - weight))


def addcmul(
    x: _TensorLike, tensor1: _TensorLike, tensor2: _TensorLike, *, value: _TensorLike = 1
) -> Tensor:
    """``x + value * tensor1 * tensor2``.

    Args:
        x: what is added to.
        tensor1: the first factors.
        tensor2: the second factors; shapes broadcast.
        value: a number, the third factor.

    Example:
        >>> gr.addcmul([1.0], [2.0], [3.0], value=0.5)
        tensor([4.], dtype=float32)
    """
    product = _girih.multiply(tensor1, tensor2)
    plain = isinstance(value, int) and value == 1
    return _girih.add(x, product if plain else _girih.multiply(product, value))


def addcdiv(
    x: _TensorLike, tensor1: _TensorLike, tensor2: _TensorLike, *, value: _TensorLike = 1
) -> Tensor:
    """``x + value * tensor1 / tensor2``.

    Args:
        x: what is added to.
        tensor1: the dividends.
        tensor2: the divisors; shapes broadcast.
        value: a number, a factor of the quotient.

    Example:
        >>> gr.addcdiv([1.0], [6.0], [3.0], value=0.5)
        tensor([2.], dtype=float32)
    """
    quotient = _girih.divide(tensor1, tensor2)
    plain = isinstance(value, int) and value == 1
    return _girih.add(x, quotient if plain else _girih.multiply(quotient, value))


def polar(abs: _TensorLike, angle: _TensorLike) -> Tensor:
    """Complex numbers from absolute values and angles.

    Args:
        abs: the absolute values.
        angle: the angles in radians; shapes broadcast.

    Example:
        >>> gr.polar([2.0], [0.0])
        tensor([2.+0.j], dtype=complex64)
    """
    size, turn = _kind("polar", abs), _kind("polar", angle)
    return _girih.complex(size * _girih.cos(turn), size * _girih.sin(turn))


def view_as_real(x: _TensorLike, /) -> Tensor:
    """Real and imaginary parts of complex numbers along a new last axis of size 2.

    Raises:
        DTypeError: The elements are not complex.

    Example:
        >>> gr.view_as_real([1.0 + 2.0j])
        tensor([[1., 2.]], dtype=float32)
    """
    x = _girih.asarray(x)
    if x.dtype.name not in _COMPLEX:
        raise DTypeError(f"view_as_real: complex numbers are expected, got {x.dtype}")
    return _girih.stack([_girih.real(x), _girih.imag(x)], -1)


def view_as_complex(x: _TensorLike, /) -> Tensor:
    """Complex numbers of real and imaginary parts along the last axis, which has size 2.

    Raises:
        DTypeError: The elements are not real.
        ShapeError: The last axis has another size.

    Example:
        >>> gr.view_as_complex([[1.0, 2.0]])
        tensor([1.+2.j], dtype=complex64)
    """
    from .errors import ShapeError

    x = _kind("view_as_complex", x)
    if x.ndim == 0 or x.shape[-1] != 2:
        raise ShapeError(f"view_as_complex: the last axis has size 2, got {list(x.shape)}")
    return _girih.complex(x[..., 0], x[..., 1])


explain_public(globals())

"""Special functions by the names of ``scipy.special``, ``torch.special`` and ``jax.scipy.special``.

Each is a composition of ops, so it is differentiable, batched and compiled as they are. Arguments
are tensors, numbers or arrays; integers give float32. Where a function has no value it is NaN.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import _girih
from ._girih import (
    Tensor,
    digamma,
    erf,
    erfc,
    erfinv,
    exp2,
    expm1,
    i0,
    i1,
    log1p,
    log_softmax,
    logsumexp,
    polygamma,
    softmax,
)
from ._girih import igamma as gammainc
from ._girih import igammac as gammaincc
from ._girih import lgamma as gammaln
from ._girih import log_sigmoid as log_expit
from ._girih import sigmoid as expit
from .checks import explain_public
from .errors import InvalidArgumentError
from .special_parts import (
    beta_fraction,
    hurwitz,
    in_float32,
    log_beta,
    log_distribution,
    polynomial,
    quantile,
    real_operands,
    scaled_bessel,
)

if TYPE_CHECKING:
    from ._girih import _TensorLike

__all__ = [
    "betainc",
    "betaln",
    "boxcox",
    "boxcox1p",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "huber",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "kl_div",
    "log1p",
    "log_expit",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "pseudo_huber",
    "rel_entr",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
    "zeta",
]

_INF, _NAN = float("inf"), float("nan")


def xlogy(x: _TensorLike, y: _TensorLike, /) -> Tensor:
    """``x * log(y)``, and 0 where x is 0, unless y is NaN.

    Args:
        x: the factors.
        y: the arguments of the logarithm; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.xlogy([0.0, 2.0], [0.0, 1.0])
        tensor([0., 0.], dtype=float32)
    """
    x, y = real_operands("xlogy", x, y)
    # The logarithm of 1 in place of an infinite one, whose product with 0 would be NaN.
    infinite = _girih.logical_and(x == 0, _girih.logical_or(y <= 0, y == _INF))
    return x * _girih.log(_girih.where(infinite, 1.0, y))


def xlog1py(x: _TensorLike, y: _TensorLike, /) -> Tensor:
    """``x * log(1 + y)``, precise for small y, and 0 where x is 0, unless y is NaN.

    Args:
        x: the factors.
        y: the arguments of the logarithm, less 1; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.xlog1py([0.0, 2.0], [-1.0, 0.0])
        tensor([0., 0.], dtype=float32)
    """
    x, y = real_operands("xlog1py", x, y)
    infinite = _girih.logical_and(x == 0, _girih.logical_or(y <= -1, y == _INF))
    return x * log1p(_girih.where(infinite, 0.0, y))


def logit(x: _TensorLike, /, eps: float | None = None) -> Tensor:
    """``log(x / (1 - x))``, the inverse of ``expit``: infinite at 0 and 1, NaN beyond.

    Args:
        x: probabilities.
        eps: limits x to ``eps..1 - eps`` first; by default nothing is limited.

    Returns:
        A tensor of the shape of x.

    Raises:
        InvalidArgumentError: eps is not between 0 and 0.5.

    Example:
        >>> gr.special.logit([0.5, 1.0])
        tensor([ 0., inf], dtype=float32)
    """
    (x,) = real_operands("logit", x)
    if eps is not None:
        if not 0 <= eps <= 0.5:
            raise InvalidArgumentError(f"logit: eps is from 0 to 0.5, got {eps}")
        x = _girih.clip(x, eps, 1 - eps)
    # Near 1/2 the quotient is near 1, where its logarithm loses digits.
    near = (x - 0.5).abs() < 0.25
    ratio = _girih.where(near, (2 * x - 1) / (1 - x), 0.0)
    far = _girih.where(near, 0.25, x)
    return _girih.where(near, log1p(ratio), _girih.log(far) - log1p(-far))


def entr(x: _TensorLike, /) -> Tensor:
    """The entropy of a probability, ``-x * log(x)``: 0 at 0, -inf below.

    Args:
        x: probabilities.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.entr([0.0, 1.0, -1.0])
        tensor([  0.,   0., -inf], dtype=float32)
    """
    (x,) = real_operands("entr", x)
    safe = _girih.where(x > 0, x, 1.0)
    inside = _girih.where(x == 0, 0.0, -x * _girih.log(safe))
    return _girih.where(x < 0, -_INF, inside)


def rel_entr(x: _TensorLike, y: _TensorLike, /) -> Tensor:
    """The relative entropy ``x * log(x / y)``: 0 where x is 0 and y is not negative, inf where
    either is out of its range.

    Args:
        x: probabilities.
        y: probabilities; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.rel_entr([0.0, 1.0], [1.0, 1.0])
        tensor([0., 0.], dtype=float32)
    """
    x, y = real_operands("rel_entr", x, y)
    both = _girih.logical_and(x > 0, y > 0)
    zero = _girih.logical_and(x == 0, y >= 0)
    ratio = _girih.where(both, x, 1.0) / _girih.where(both, y, 1.0)
    # The quotient may overflow or underflow where its logarithm does not.
    plain = _girih.logical_and(ratio > 1e-30, ratio < 1e30)
    parts = _girih.log(_girih.where(both, x, 1.0)) - _girih.log(_girih.where(both, y, 1.0))
    logarithm = _girih.where(plain, _girih.log(_girih.where(plain, ratio, 1.0)), parts)
    value = _girih.where(zero, 0.0, _girih.where(both, x * logarithm, _INF))
    return _girih.where(_girih.logical_or(_girih.isnan(x), _girih.isnan(y)), _NAN, value)


def kl_div(x: _TensorLike, y: _TensorLike, /) -> Tensor:
    """The term of the Kullback-Leibler divergence, ``x * log(x / y) - x + y``. It is not the loss
    ``gr.nn.functional.kl_div``.

    Args:
        x: probabilities.
        y: probabilities; shapes broadcast.

    Returns:
        A tensor of the promoted dtype; inf where either is out of its range.

    Example:
        >>> gr.special.kl_div([0.0, 1.0], [1.0, 1.0])
        tensor([1., 0.], dtype=float32)
    """
    x, y = real_operands("kl_div", x, y)
    inside = _girih.logical_and(x >= 0, y >= 0)
    outside = _girih.logical_and(x > 0, y == 0)
    inside = _girih.logical_and(inside, _girih.logical_not(outside))
    nan = _girih.logical_or(_girih.isnan(x), _girih.isnan(y))
    return _girih.where(_girih.logical_or(inside, nan), rel_entr(x, y) - x + y, _INF)


def ndtr(x: _TensorLike, /) -> Tensor:
    """The cumulative distribution of the standard normal distribution, precise in both tails.

    Args:
        x: numbers.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.ndtr([0.0])
        tensor([0.5], dtype=float32)
    """
    (x,) = real_operands("ndtr", x)
    return in_float32(lambda x: 0.5 * erfc(x * -math.sqrt(0.5)), x)


def log_ndtr(x: _TensorLike, /) -> Tensor:
    """The logarithm of ``ndtr``, without underflow.

    Args:
        x: numbers.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.log_ndtr([-100.0])
        tensor([-5005.524], dtype=float32)
    """
    (x,) = real_operands("log_ndtr", x)
    return in_float32(log_distribution, x)


def ndtri(p: _TensorLike, /) -> Tensor:
    """The inverse of ``ndtr``: infinite at 0 and 1, NaN beyond.

    Args:
        p: probabilities.

    Returns:
        A tensor of the shape of p.

    Example:
        >>> gr.special.ndtri([0.5, 1.0])
        tensor([ 0., inf], dtype=float32)
    """
    (p,) = real_operands("ndtri", p)
    return in_float32(quantile, p)


def erfcinv(x: _TensorLike, /) -> Tensor:
    """The inverse of ``erfc``, precise near 0: infinite at 0 and 2, NaN beyond.

    Args:
        x: numbers from 0 to 2.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.erfcinv([1.0, 0.0])
        tensor([ 0., inf], dtype=float32)
    """
    (x,) = real_operands("erfcinv", x)
    return in_float32(lambda x: -math.sqrt(0.5) * quantile(0.5 * x), x)


def i0e(x: _TensorLike, /) -> Tensor:
    """``exp(-|x|) * i0(x)``, without overflow.

    Args:
        x: numbers.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.i0e([0.0, 1000.0])
        tensor([1.        , 0.01261724], dtype=float32)
    """
    (x,) = real_operands("i0e", x)
    return in_float32(lambda x: scaled_bessel(i0, 0, x), x)


def i1e(x: _TensorLike, /) -> Tensor:
    """``exp(-|x|) * i1(x)``, without overflow.

    Args:
        x: numbers.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.i1e([0.0, 1000.0])
        tensor([0.        , 0.01261093], dtype=float32)
    """
    (x,) = real_operands("i1e", x)
    return in_float32(lambda x: scaled_bessel(i1, 1, x), x)


def betaln(a: _TensorLike, b: _TensorLike, /) -> Tensor:
    """The logarithm of the beta function of positive numbers.

    Args:
        a: the first arguments.
        b: the second ones; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.betaln([1.0], [1.0])
        tensor([0.], dtype=float32)
    """
    a, b = real_operands("betaln", a, b)
    return in_float32(log_beta, a, b)


def multigammaln(a: _TensorLike, /, d: int) -> Tensor:
    """The logarithm of the multivariate gamma function of d dimensions.

    Args:
        a: numbers above ``(d - 1) / 2``.
        d: the number of dimensions, at least 1.

    Returns:
        A tensor of the shape of a.

    Raises:
        InvalidArgumentError: d is not a positive integer.

    Example:
        >>> gr.special.multigammaln([2.0], 1)
        tensor([0.], dtype=float32)
    """
    (a,) = real_operands("multigammaln", a)
    if not isinstance(d, int) or not 1 <= d <= 1 << 16:
        raise InvalidArgumentError(f"multigammaln: d is an integer from 1 to 65536, got {d!r}")
    parts = gammaln(a[..., None] - _girih.arange(d, dtype=a.dtype) / 2).sum(-1)
    return parts + d * (d - 1) / 4 * math.log(math.pi)


#: Steps of the continued fraction, enough for parameters of some thousands: at 1,000 one point in a
#: hundred needs more than 100. All are taken, since a loop of fixed length has both derivatives.
_STEPS = {"float64": 256}


def _betainc(a: Tensor, b: Tensor, x: Tensor, steps: int) -> Tensor:
    valid = _girih.logical_and(_girih.logical_and(a > 0, b > 0), (x - 0.5).abs() <= 0.5)
    inside = _girih.logical_and(_girih.logical_and(x > 0, x < 1), valid)
    a, b = _girih.where(inside, a, 1.0), _girih.where(inside, b, 1.0)
    x0 = _girih.where(inside, x, 0.5)
    # The fraction converges fast below the mean; above, the function is one minus its mirror.
    mirrored = x0 > (a + 1) / (a + b + 2)
    p, q = _girih.where(mirrored, b, a), _girih.where(mirrored, a, b)
    y = _girih.where(mirrored, 1 - x0, x0)
    front = _girih.exp(xlogy(p, y) + xlog1py(q, -y) - log_beta(p, q)) / p
    value = front * beta_fraction(p, q, y, steps)
    value = _girih.where(mirrored, 1 - value, value)
    ends = _girih.where(valid, _girih.where(x >= 1, 1.0, 0.0), _NAN)
    return _girih.where(inside, value, ends)


def betainc(a: _TensorLike, b: _TensorLike, x: _TensorLike, /) -> Tensor:
    """The regularised incomplete beta function, with derivatives by all three arguments.

    Args:
        a: the first parameter, positive.
        b: the second parameter, positive.
        x: the upper end of the integral, from 0 to 1; shapes broadcast.

    Returns:
        A tensor of the promoted dtype; NaN where an argument is out of its range.

    Example:
        >>> gr.special.betainc([2.0], [2.0], [0.5])
        tensor([0.5], dtype=float32)
    """
    a, b, x = real_operands("betainc", a, b, x)
    dtype = x.dtype
    # The factor before the fraction is the exponential of large logarithms.
    a, b, x = (v.astype(_girih.float64) for v in _girih.broadcast_arrays(a, b, x))
    return _betainc(a, b, x, _STEPS.get(dtype.name, 96)).astype(dtype)


def zeta(x: _TensorLike, q: _TensorLike = 1.0, /) -> Tensor:
    """The zeta function of Hurwitz, the sum of ``(k + q) ** -x`` over k = 0, 1, 2, ...; that of
    Riemann by default.

    Args:
        x: the exponents: inf at 1, NaN below.
        q: the first terms: positive; NaN below, where the sum has a pole or none is real.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.zeta([2.0])
        tensor([1.644934], dtype=float32)
    """
    x, q = real_operands("zeta", x, q)

    def value(x: Tensor, q: Tensor) -> Tensor:
        valid = _girih.logical_and(_girih.logical_and(x > 1, x < _INF), q > 0)
        found = hurwitz(_girih.where(valid, x, 2.0), _girih.where(valid, q, 1.0))
        pole = _girih.logical_or(x == 1, _girih.logical_and(q == 0, x > 1))
        beyond = _girih.where(q > 1, 0.0, _girih.where(q == 1, 1.0, _INF))
        other = _girih.where(_girih.logical_and(x == _INF, q > 0), beyond, _NAN)
        return _girih.where(valid, found, _girih.where(pole, _INF, other))

    return in_float32(value, x, q)


def sinc(x: _TensorLike, /) -> Tensor:
    """``sin(pi * x) / (pi * x)``, and 1 at 0.

    Args:
        x: numbers.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.sinc([0.0, 0.5])
        tensor([1.       , 0.6366198], dtype=float32)
    """
    x = _girih.asarray(x)
    if x.dtype.name.startswith("complex"):
        zero = x == 0
        y = math.pi * _girih.where(zero, 1.0, x)
        return _girih.where(zero, 1.0, _girih.sin(y) / y)
    (x,) = real_operands("sinc", x)
    # Around 0 the series, whose derivatives exist there too.
    y = math.pi * x
    near = y.abs() < 0.3
    square = _girih.where(near, y * y, 0.0)
    terms = [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)]
    # The distance from the nearest zero, by which sines of large arguments keep their digits.
    whole = _girih.stop_gradient(_girih.round(x))
    sign = 1 - 2 * _girih.remainder(whole, 2)
    far = _girih.where(near, 1.0, y)
    value = sign * _girih.sin(math.pi * _girih.where(near, 0.5, x - whole)) / far
    value = _girih.where(_girih.isinf(x), 0.0, value)
    return _girih.where(near, polynomial(square, terms), value)


def huber(delta: _TensorLike, r: _TensorLike, /) -> Tensor:
    """The Huber function: ``r**2 / 2`` up to delta, ``delta * (|r| - delta / 2)`` beyond.

    Args:
        delta: where the function becomes linear; inf for negative values.
        r: residuals; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.huber(1.0, [0.5, 3.0])
        tensor([0.125, 2.5  ], dtype=float32)
    """
    delta, r = real_operands("huber", delta, r)
    size = r.abs()
    value = _girih.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta))
    return _girih.where(delta < 0, _INF, value)


def pseudo_huber(delta: _TensorLike, r: _TensorLike, /) -> Tensor:
    """A smooth form of the Huber function, ``delta**2 * (sqrt(1 + (r / delta)**2) - 1)``.

    Args:
        delta: where the function becomes nearly linear; inf for negative values.
        r: residuals; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.pseudo_huber(1.0, [0.0])
        tensor([0.], dtype=float32)
    """
    delta, r = real_operands("pseudo_huber", delta, r)
    safe = _girih.where(delta > 0, delta, 1.0)
    square = (r / safe) ** 2
    # The difference of the root and 1 without cancellation.
    value = safe * safe * (square / (_girih.sqrt(1 + square) + 1))
    value = _girih.where(_girih.logical_or(delta == 0, r == 0), 0.0, value)
    return _girih.where(delta < 0, _INF, value)


def boxcox(x: _TensorLike, lmbda: _TensorLike, /) -> Tensor:
    """The transform of Box and Cox: ``(x**lmbda - 1) / lmbda``, and ``log(x)`` for lmbda 0.

    Args:
        x: positive numbers.
        lmbda: the exponents; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.boxcox([2.0], 2.0)
        tensor([1.5], dtype=float32)
    """
    x, lmbda = real_operands("boxcox", x, lmbda)
    return _power(_girih.log(x), lmbda)


def boxcox1p(x: _TensorLike, lmbda: _TensorLike, /) -> Tensor:
    """The transform of Box and Cox of ``1 + x``, precise for small x.

    Args:
        x: numbers above -1.
        lmbda: the exponents; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.boxcox1p([1.0], 2.0)
        tensor([1.5], dtype=float32)
    """
    x, lmbda = real_operands("boxcox1p", x, lmbda)
    return _power(log1p(x), lmbda)


def _power(logarithm: Tensor, lmbda: Tensor) -> Tensor:
    zero = lmbda == 0
    safe = _girih.where(zero, 1.0, lmbda)
    return _girih.where(zero, logarithm, expm1(safe * logarithm) / safe)


def __getattr__(name: str) -> Any:
    from . import synonyms

    return synonyms.attribute(__name__, name)


explain_public(globals())

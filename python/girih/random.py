"""Random numbers: distributions, permutations and choices, from the global seed or from keys.

Without ``key`` the draws come from the process's generator, which :func:`girih.manual_seed` seeds:
the same seed gives the same numbers in the order in which draws are recorded, in any order of
evaluation, and each call of a compiled function draws new numbers. With ``key`` the numbers depend
on the key alone: the same key always gives the same numbers. :func:`key` creates a key from a seed,
:func:`split` and :func:`fold_in` create new keys from a key; use each key once. A key is a uint64
scalar and may be an argument or result of compiled functions, ``scan``, ``while_loop`` and other
control flow::

    >>> import girih as gr
    >>> key = gr.random.key(0)
    >>> first, second = gr.random.split(key)
    >>> x = gr.random.normal((2, 3), key=first)

What all distributions take means the same everywhere. ``shape`` is the shape of the result, to
which the parameters broadcast; without it the result has the broadcast shape of the parameters.
``device`` is the device of the result, by default the current one. Results are float32 unless a
parameter is a tensor of another floating-point dtype or ``dtype`` is given; integers are int64.
Draws that are a closed formula of the parameters (uniform, normal, exponential, Laplace, Gumbel,
logistic, Cauchy and truncated normal) have gradients with respect to the parameters; so have draws
by rejection (gamma, beta, Dirichlet), by implicit differentiation of their distribution functions.

All functions raise :class:`girih.DTypeError` for unsupported dtypes and for tensors that are not
keys, :class:`girih.ShapeError` for parameters that do not broadcast to ``shape`` and for more than
one key. Parameters outside a distribution's domain give NaN, or -1 for counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from . import _girih
from ._girih import manual_seed
from .checks import explain_public
from .errors import InvalidArgumentError, ShapeError
from .random_discrete import (
    bernoulli,
    binomial,
    categorical,
    choice,
    multinomial,
    permutation,
    poisson,
    rademacher,
    randint,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._girih import Tensor

__all__ = [
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "key",
    "laplace",
    "logistic",
    "manual_seed",
    "multinomial",
    "multivariate_normal",
    "normal",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]

Shape: TypeAlias = "int | Sequence[int] | None"


def key(seed: Any) -> Tensor:
    """Creates a key from a seed.

    Args:
        seed: an integer of at most 64 bits, or a tensor with one integer.

    Returns:
        A uint64 scalar.

    Example:
        >>> gr.random.key(0).dtype
        girih.uint64
    """
    return _girih.random_key(seed)


def split(key: Tensor, num: int | Sequence[int] = 2) -> Tensor:
    """Creates new keys, whose draws are independent of each other and of the draws of the key.

    Args:
        key: a key.
        num: the number of keys, or the shape of the result.

    Returns:
        Keys in that shape; iterating over them gives one after the other.

    Example:
        >>> first, second = gr.random.split(gr.random.key(0))
    """
    return _girih.random_split(key, num)


def fold_in(key: Tensor, data: Any) -> Tensor:
    """Creates a new key from a key and an integer, such as a step number, which may be traced.

    Args:
        key: a key.
        data: an integer, or a tensor of integers, each of which gives a key.

    Returns:
        A key, or keys in the shape of data.

    Example:
        >>> keys = [gr.random.fold_in(gr.random.key(0), step) for step in range(3)]
    """
    return _girih.random_fold_in(key, data)


def bits(
    shape: Shape = (), *, dtype: Any = None, key: Tensor | None = None, device: Any = None
) -> Tensor:
    """Integers in which every bit is 0 or 1 with equal probability.

    Args:
        shape: the shape of the result.
        dtype: an integer dtype, uint32 by default.

    Returns:
        Integers of that dtype.

    Example:
        >>> gr.random.bits((2,), dtype=gr.uint8).shape
        (2,)
    """
    return _girih.random_bits(shape, dtype, key, device)


def uniform(
    shape: Shape = None,
    *,
    low: Any = 0.0,
    high: Any = 1.0,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Uniform draws in ``[low, high)``.

    Args:
        shape: the shape of the result, by default that of the bounds.
        low: the lower bound.
        high: the upper bound, which no draw reaches unless both bounds are equal.
        dtype: a floating-point dtype.

    Returns:
        Numbers; gradients flow to the bounds.

    Example:
        >>> gr.random.uniform((2, 3), low=-1.0).shape
        (2, 3)
    """
    return _girih.random_uniform(low, high, shape, dtype, key, device)


def normal(
    shape: Shape = None,
    *,
    loc: Any = 0.0,
    scale: Any = 1.0,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Normal draws.

    Args:
        loc: the mean.
        scale: the standard deviation.
        dtype: a floating-point or complex dtype; of complex numbers, real and imaginary part are
            independent and each has half the variance.

    Returns:
        Numbers; gradients flow to the parameters.

    Example:
        >>> gr.random.normal(loc=gr.zeros(3), scale=2.0).shape
        (3,)
    """
    return _girih.random_normal(loc, scale, shape, dtype, key, device)


def multivariate_normal(
    mean: Any,
    cov: Any,
    shape: Shape = None,
    *,
    method: Literal["cholesky", "eigh", "svd"] = "cholesky",
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Normal draws of vectors with given covariances.

    Args:
        mean: [..., n], the means.
        cov: [..., n, n], the covariances, of which one triangle is read; leading axes broadcast
            with those of mean.
        shape: the shape of the result without its last axis, by default that of the parameters.
        method: the factorisation of cov: cholesky needs a positive definite matrix; eigh and svd
            take singular ones, too.
        dtype: a floating-point dtype.

    Returns:
        [*shape, n]; gradients flow to the parameters.

    Raises:
        InvalidArgumentError: there is no such method.
        LinAlgError: cov is not positive definite, for cholesky; raised at evaluation.

    Example:
        >>> gr.random.multivariate_normal([0.0, 1.0], [[2.0, 1.0], [1.0, 2.0]], (4,)).shape
        (4, 2)
    """
    from . import linalg

    centre, spread = _girih.asarray(mean), _girih.asarray(cov)
    if centre.ndim < 1 or spread.ndim < 2 or {*spread.shape[-2:]} != {centre.shape[-1]}:
        raise ShapeError(
            "multivariate_normal: expected mean [..., n] and cov [..., n, n], got shapes "
            f"{list(centre.shape)} and {list(spread.shape)}"
        )
    if method not in ("cholesky", "eigh", "svd"):
        raise InvalidArgumentError(
            f"multivariate_normal: method is 'cholesky', 'eigh' or 'svd', got {method!r}"
        )
    outer = _girih.broadcast_shapes(centre.shape[:-1], spread.shape[:-2])
    if shape is not None:
        given = (shape,) if isinstance(shape, int) else tuple(shape)
        outer = _girih.broadcast_shapes(outer, given)
        if tuple(outer) != given:
            raise ShapeError(
                f"multivariate_normal: parameters of shapes {list(centre.shape)} and "
                f"{list(spread.shape)} do not broadcast to the shape {list(given)} of vectors"
            )
    if method == "cholesky":
        factor = linalg.cholesky(spread)
    else:
        values, vectors = linalg.eigh(spread) if method == "eigh" else linalg.svd(spread)[1::-1]
        # Rounding may give a negative eigenvalue in place of 0.
        factor = vectors * _girih.sqrt(_girih.maximum(values, 0.0))[..., None, :]
    factor = factor if dtype is None else factor.astype(dtype)
    draws = normal((*outer, centre.shape[-1]), dtype=factor.dtype, key=key, device=device)
    result = centre + _girih.matmul(factor, draws[..., None])[..., 0]
    return result if dtype is None else result.astype(dtype)


def laplace(
    shape: Shape = None,
    *,
    loc: Any = 0.0,
    scale: Any = 1.0,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Draws of density ``exp(-abs(x - loc) / scale) / (2 * scale)``; arguments as in normal."""
    return _girih.random_laplace(loc, scale, shape, dtype, key, device)


def gumbel(
    shape: Shape = None,
    *,
    loc: Any = 0.0,
    scale: Any = 1.0,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Draws with ``P(x <= t) = exp(-exp(-(t - loc) / scale))``; arguments as in normal."""
    return _girih.random_gumbel(loc, scale, shape, dtype, key, device)


def logistic(
    shape: Shape = None,
    *,
    loc: Any = 0.0,
    scale: Any = 1.0,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Draws with ``P(x <= t) = sigmoid((t - loc) / scale)``; arguments as in normal."""
    return _girih.random_logistic(loc, scale, shape, dtype, key, device)


def cauchy(
    shape: Shape = None,
    *,
    loc: Any = 0.0,
    scale: Any = 1.0,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Draws of Cauchy's distribution, which has no mean; arguments as in normal."""
    return _girih.random_cauchy(loc, scale, shape, dtype, key, device)


def exponential(
    shape: Shape = None,
    *,
    scale: Any = 1.0,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Draws of density ``exp(-x / scale) / scale``; arguments as in normal.

    Example:
        >>> gr.random.exponential((2,), scale=0.5).shape
        (2,)
    """
    return _girih.random_exponential(scale, shape, dtype, key, device)


def truncated_normal(
    lower: Any,
    upper: Any,
    shape: Shape = None,
    *,
    loc: Any = 0.0,
    scale: Any = 1.0,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Draws of the normal distribution truncated to an interval.

    Args:
        lower: the lower bound, in units of the result.
        upper: the upper bound. Both may be far from the mean.
        loc: the mean before truncation.
        scale: the standard deviation before truncation.
        dtype: a floating-point dtype.

    Returns:
        Numbers; gradients flow to the parameters.

    Example:
        >>> x = gr.random.truncated_normal(-2.0, 2.0, (1000,))
    """
    return _girih.random_truncated_normal(lower, upper, loc, scale, shape, dtype, key, device)


def gamma(
    a: Any,
    shape: Shape = None,
    *,
    scale: Any = 1.0,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Gamma draws, of density proportional to ``x**(a - 1) * exp(-x / scale)``.

    Args:
        a: the positive shape parameter.
        scale: a factor.
        dtype: a floating-point dtype.

    Returns:
        Numbers; gradients flow to ``a`` and scale.

    Example:
        >>> gr.random.gamma(2.5, (4,)).shape
        (4,)
    """
    return _girih.random_gamma(a, scale, shape, dtype, key, device)


def beta(
    a: Any,
    b: Any,
    shape: Shape = None,
    *,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Beta draws, of density proportional to ``x**(a - 1) * (1 - x)**(b - 1)``.

    Args:
        a: the first positive parameter.
        b: the second positive parameter.
        dtype: a floating-point dtype.

    Returns:
        Numbers in ``[0, 1]``; gradients flow to the parameters.

    Example:
        >>> gr.random.beta(2.0, 3.0, (4,)).shape
        (4,)
    """
    return _girih.random_beta(a, b, shape, dtype, key, device)


def dirichlet(
    alpha: Any,
    shape: Shape = None,
    *,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Vectors of positive numbers that sum to one.

    Args:
        alpha: [..., k], the positive concentrations.
        shape: the shape of the result without its last axis, by default that of alpha's other axes.
        dtype: a floating-point dtype.

    Returns:
        [*shape, k]; gradients flow to ``alpha``.

    Example:
        >>> gr.random.dirichlet([1.0, 2.0, 3.0], (4,)).shape
        (4, 3)
    """
    return _girih.random_dirichlet(alpha, shape, dtype, key, device)


def __getattr__(name: str) -> Any:
    from . import synonyms

    return synonyms.attribute(__name__, name)


explain_public(globals())

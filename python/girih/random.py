"""Random numbers: distributions, orders and choices, by the global seed or by keys.

Without ``key`` the process's generator draws, which :func:`girih.manual_seed` starts: the same
seed gives the same numbers in the order in which draws are recorded, whatever is evaluated first,
and a compiled function draws anew in each call. With ``key`` the numbers depend on the key alone:
the same key gives the same numbers wherever and whenever. :func:`key` makes one of a seed,
:func:`split` and :func:`fold_in` new ones of another; use each key once. A key is a uint64 scalar
and may be an argument or result of compiled functions, ``scan``, ``while_loop`` and other control
flow::

    >>> import girih as gr
    >>> key = gr.random.key(0)
    >>> first, second = gr.random.split(key)
    >>> x = gr.random.normal((2, 3), key=first)

``shape`` is that of the result, to which the parameters broadcast; without it the result has
theirs. Results are float32 unless a parameter is a tensor of another floating-point dtype or
``dtype`` says so; integers are int64. Draws that a formula makes of the parameters (uniform,
normal, exponential, Laplace, Gumbel, logistic, Cauchy and truncated normal ones) have gradients
with respect to them; draws by rejection (gamma, beta, Dirichlet) have none with respect to their
shapes.

All functions raise :class:`girih.DTypeError` for dtypes that they cannot give and for tensors that
are no keys, :class:`girih.ShapeError` for parameters that do not broadcast to ``shape`` and for
more than one key. Parameters outside a distribution's domain give NaN, or -1 where counts are
drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from . import _girih
from ._girih import manual_seed

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
    """A key of a seed.

    Args:
        seed: an integer of at most 64 bits, or a tensor of one.

    Returns:
        A uint64 scalar.

    Example:
        >>> gr.random.key(0).dtype
        girih.uint64
    """
    return _girih.random_key(seed)


def split(key: Tensor, num: int | Sequence[int] = 2) -> Tensor:
    """New keys, whose draws have nothing to do with each other's or with the key's.

    Args:
        key: a key.
        num: how many, or the shape of the result.

    Returns:
        Keys in that shape; iterating over them gives one after the other.

    Example:
        >>> first, second = gr.random.split(gr.random.key(0))
    """
    return _girih.random_split(key, num)


def fold_in(key: Tensor, data: Any) -> Tensor:
    """A new key of a key and an integer, such as the number of a step, which may be traced.

    Args:
        key: a key.
        data: an integer; a tensor of integers gives as many keys.

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
        shape: of the result.
        dtype: an integer dtype, uint32 by default.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

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
        shape: of the result, by default that of the bounds.
        low: the lower bound.
        high: the upper bound, which only rounding reaches.
        dtype: a floating-point dtype.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

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
        shape: of the result, by default that of the parameters.
        loc: the mean.
        scale: the standard deviation.
        dtype: a floating-point dtype.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

    Returns:
        Numbers; gradients flow to the parameters.

    Example:
        >>> gr.random.normal(loc=gr.zeros(3), scale=2.0).shape
        (3,)
    """
    return _girih.random_normal(loc, scale, shape, dtype, key, device)


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
    """Normal draws of which only those between two bounds are taken.

    Args:
        lower: the lower bound, in units of the result.
        upper: the upper bound. Both may be far from the mean.
        shape: of the result, by default that of the parameters.
        loc: the mean before truncation.
        scale: the standard deviation before truncation.
        dtype: a floating-point dtype.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

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
        shape: of the result, by default that of the parameters.
        scale: a factor.
        dtype: a floating-point dtype.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

    Returns:
        Numbers; a gradient flows to scale, that of ``a`` is refused.

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
        b: the second.
        shape: of the result, by default that of the parameters.
        dtype: a floating-point dtype.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

    Returns:
        Numbers in ``[0, 1]``; gradients are refused.

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
        shape: of the result without its last axis, by default that of alpha's other axes.
        dtype: a floating-point dtype.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

    Returns:
        [*shape, k]; gradients are refused.

    Example:
        >>> gr.random.dirichlet([1.0, 2.0, 3.0], (4,)).shape
        (4, 3)
    """
    return _girih.random_dirichlet(alpha, shape, dtype, key, device)


def bernoulli(
    p: Any = 0.5,
    shape: Shape = None,
    *,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """True with probability p.

    Args:
        p: the probability.
        shape: of the result, by default that of p.
        dtype: any dtype, bool by default.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

    Returns:
        Truth values.

    Example:
        >>> gr.random.bernoulli(0.3, (4,)).dtype
        girih.bool
    """
    return _girih.random_bernoulli(p, shape, dtype, key, device)


def rademacher(
    shape: Shape = (), *, dtype: Any = None, key: Tensor | None = None, device: Any = None
) -> Tensor:
    """-1 or 1 with equal probability, int64 by default; arguments as in bernoulli."""
    return _girih.random_rademacher(shape, dtype, key, device)


def poisson(
    lam: Any,
    shape: Shape = None,
    *,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Counts of events that are expected lam times.

    Args:
        lam: the expectation, not negative.
        shape: of the result, by default that of lam.
        dtype: any dtype, int64 by default.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

    Returns:
        Counts.

    Example:
        >>> gr.random.poisson(3.5, (4,)).dtype
        girih.int64
    """
    return _girih.random_poisson(lam, shape, dtype, key, device)


def binomial(
    n: Any,
    p: Any,
    shape: Shape = None,
    *,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Counts of successes among n trials.

    Args:
        n: how many trials: whole numbers from 0 up.
        p: the probability of each.
        shape: of the result, by default that of the parameters.
        dtype: any dtype, int64 by default.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

    Returns:
        Counts.

    Example:
        >>> gr.random.binomial(10, 0.3, (4,)).shape
        (4,)
    """
    return _girih.random_binomial(n, p, shape, dtype, key, device)


def multinomial(
    n: Any,
    p: Any,
    shape: Shape = None,
    *,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """How often each category comes among n draws, as NumPy's: for indices see categorical, choice.

    Args:
        n: how many draws: a whole number, or a tensor of them.
        p: [..., k], weights of the categories, which need not sum to one.
        shape: of the result without its last axis, by default that of p's other axes.
        dtype: any dtype, int64 by default.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

    Returns:
        [*shape, k], counts that sum to n.

    Example:
        >>> gr.random.multinomial(10, [0.2, 0.3, 0.5]).sum().item()
        10
    """
    return _girih.random_multinomial(n, p, shape, dtype, key, device)


def categorical(
    logits: Any,
    axis: int = -1,
    shape: Shape = None,
    *,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Indices along an axis, with the probabilities that softmax gives.

    Args:
        logits: logarithms of weights, of any size.
        axis: the axis of the categories.
        shape: of the result; it ends with the logits' other axes, by default there are no more.
        dtype: of the indices, int64 by default.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

    Returns:
        Indices.

    Example:
        >>> gr.random.categorical(gr.log(gr.asarray([0.1, 0.9])), shape=(5,)).shape
        (5,)
    """
    return _girih.random_categorical(logits, axis, shape, dtype, key, device)


def randint(
    low: int,
    high: int | None = None,
    shape: Shape = (),
    *,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Uniform integers in ``[low, high)``, or ``[0, low)`` with one bound.

    Args:
        low: the least.
        high: one past the largest.
        shape: of the result.
        dtype: an integer dtype, int64 by default.
        key: what to draw from, by default the process's generator.
        device: where the result is, by default on the current device.

    Returns:
        Integers.

    Raises:
        InvalidArgumentError: there is no integer between the bounds, or the dtype cannot hold one.

    Example:
        >>> gr.random.randint(1, 7, (3,)).shape
        (3,)
    """
    return _girih.random_randint(low, high, shape, dtype, key, device)


def permutation(
    x: Any, axis: int = 0, *, independent: bool = False, key: Tensor | None = None
) -> Tensor:
    """The integers below x, or the slices of a tensor, in random order; the tensor stays as it is.

    Args:
        x: an int or a tensor.
        axis: the axis along which slices are moved.
        independent: whether each line along the axis has an order of its own.
        key: what to draw from, by default the process's generator.

    Returns:
        int64 indices, or a tensor like x.

    Example:
        >>> gr.random.permutation(5).sum().item()
        10
    """
    return _girih.random_permutation(x, axis, independent, key)


def choice(
    a: Any,
    shape: Shape = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    *,
    key: Tensor | None = None,
) -> Tensor:
    """Integers below a, or slices of a tensor, chosen at random.

    Args:
        a: an int or a tensor.
        shape: of the choices.
        replace: whether one may be chosen again.
        p: weights, one for each, which need not sum to one; by default all are equal.
        axis: the axis of a along which slices are chosen.
        key: what to draw from, by default the process's generator.

    Returns:
        int64 indices; of a tensor its slices, shape in the place of the axis.

    Raises:
        InvalidArgumentError: more are asked for than there are.

    Example:
        >>> gr.random.choice(5, (3,), replace=False).shape
        (3,)
    """
    return _girih.random_choice(a, shape, replace, p, axis, key)


def __getattr__(name: str) -> Any:
    from . import synonyms

    if (meant := synonyms.RANDOM_ALIASES.get(name)) is not None:
        return globals()[meant]
    raise synonyms.missing(__name__, name, synonyms.RANDOM_HINTS)

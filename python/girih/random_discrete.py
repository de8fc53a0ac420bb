"""Draws of integers, booleans and elements, which :mod:`girih.random` offers with all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _girih

if TYPE_CHECKING:
    from ._girih import Tensor
    from .random import Shape

__all__ = [
    "bernoulli",
    "binomial",
    "categorical",
    "choice",
    "multinomial",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
]


def bernoulli(
    p: Any = 0.5,
    shape: Shape = None,
    *,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """True with probability p, also for events as rare as 1e-15.

    Args:
        p: the probability.
        shape: the shape of the result, by default that of p.
        dtype: any dtype, bool by default.

    Returns:
        Values that are true with probability p.

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
    """Poisson draws: counts of events whose expected number is lam.

    Args:
        lam: the expectation, not negative.
        shape: the shape of the result, by default that of lam.
        dtype: any dtype, int64 by default.

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
    """Binomial draws: counts of successes among n trials.

    Args:
        n: the number of trials: whole numbers from 0 up.
        p: the probability of success in a trial.
        dtype: any dtype, int64 by default.

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
    """Counts of each category among n draws, as in NumPy; for indices see categorical and choice.

    Args:
        n: the number of draws: a whole number, or a tensor of whole numbers.
        p: [..., k], weights of the categories, which need not sum to one.
        shape: the shape of the result without its last axis, by default that of p's other axes.
        dtype: any dtype, int64 by default.

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
        shape: the shape of the result, which ends with the logits' other axes; by default it has
            only these axes.
        dtype: the dtype of the indices, int64 by default.

    Returns:
        Indices.

    Example:
        >>> gr.random.categorical(gr.log(gr.asarray([0.1, 0.9])), shape=(5,)).shape
        (5,)
    """
    return _girih.random_categorical(logits, axis, shape, dtype, key, device)


def randint(
    low: Any,
    high: Any = None,
    shape: Shape = None,
    *,
    dtype: Any = None,
    key: Tensor | None = None,
    device: Any = None,
) -> Tensor:
    """Uniform integers in ``[low, high)``, or ``[0, low)`` with one bound.

    Args:
        low: the smallest value: an integer, or a tensor of integers.
        high: one more than the largest value. Tensors of bounds broadcast; where no integer is
            between them, the result is low.
        shape: the shape of the result, by default that of the bounds.
        dtype: an integer dtype, int64 by default.

    Returns:
        Integers.

    Raises:
        InvalidArgumentError: there is no integer between two numbers, or the dtype does not hold
            all of them.

    Example:
        >>> gr.random.randint(1, 7, (3,)).shape
        (3,)
        >>> gr.random.randint(0, gr.asarray([1, 10])).shape
        (2,)
    """
    return _girih.random_randint(low, high, shape, dtype, key, device)


def permutation(
    x: Any, axis: int = 0, *, independent: bool = False, key: Tensor | None = None
) -> Tensor:
    """The integers below x, or the slices of a tensor, in random order; the tensor does not change.

    Args:
        x: an int or a tensor.
        axis: the axis along which slices are permuted.
        independent: whether each line along the axis has its own order.

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
        shape: the shape of the choices.
        replace: whether an element may be chosen more than once.
        p: the weights of the elements, which need not sum to one; by default all are equal.
        axis: the axis of a along which slices are chosen.

    Returns:
        int64 indices; for a tensor, its slices, with shape in place of the axis.

    Raises:
        InvalidArgumentError: more choices than elements (or than positive weights) without
            replacement; weights that are negative, NaN or infinite, or all zero. Weights that a
            traced function computes are not checked.

    Example:
        >>> gr.random.choice(5, (3,), replace=False).shape
        (3,)
    """
    return _girih.random_choice(a, shape, replace, p, axis, key)

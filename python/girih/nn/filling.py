"""Initialisers that fill a tensor in place, under PyTorch's names: ``kaiming_normal_(weight)``.

They draw the numbers of the functions of a shape, :mod:`girih.nn.init`, and give them to the
tensor, so that all who hold it see them. Each returns the tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _girih
from .._girih import Tensor
from ..checks import explain_public
from ..errors import DTypeError, InvalidArgumentError
from ..variables import assign
from . import init

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]


def _filled(function: str, tensor: Tensor, values: Callable[[], Tensor]) -> Tensor:
    """Gives a tensor other elements, in its dtype and on its device."""
    if not isinstance(tensor, Tensor):
        raise DTypeError(
            f"{function}: expected a tensor to fill, got a {type(tensor).__name__}; "
            f"girih.nn.init.{function[:-1]} makes a tensor of a shape"
        )
    if not tensor.is_leaf:
        raise InvalidArgumentError(
            f"{function}: the tensor of shape {list(tensor.shape)} is a result of tensors that "
            "require gradients; fill those"
        )
    new = values()
    new = new if new.dtype == tensor.dtype else new.astype(tensor.dtype)
    new = new if new.device == tensor.device else new.to_device(tensor.device)
    if tensor.requires_grad:
        assign(tensor, new)
    else:
        _girih.rebind(tensor, new)
    return tensor


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str, function: str) -> float:
    """The standard deviation that keeps the variance."""
    if mode not in ("fan_in", "fan_out"):
        raise InvalidArgumentError(f"{function}: mode is 'fan_in' or 'fan_out', got {mode!r}")
    fan = init._fans(tensor.shape, function)[mode == "fan_out"]
    slope = a if nonlinearity == "leaky_relu" else None
    return init.calculate_gain(nonlinearity, slope) * init._over(1.0, fan)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fills a tensor with uniform numbers.

    Args:
        tensor: The tensor.
        a: The lower bound.
        b: The upper bound.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.uniform_(gr.zeros([2, 3]), 1.0, 2.0).min().item() >= 1.0
        True
    """
    return _filled("uniform_", tensor, lambda: init.uniform(tensor.shape, a, b, tensor.dtype))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fills a tensor with normal numbers.

    Args:
        tensor: The tensor.
        mean: The mean.
        std: The standard deviation.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.normal_(gr.zeros([2, 3]), std=0.02).shape
        (2, 3)
    """
    return _filled("normal_", tensor, lambda: init.normal(tensor.shape, mean, std, tensor.dtype))


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Fills a tensor with normal numbers between two bounds.

    Args:
        tensor: The tensor.
        mean: The mean before truncation.
        std: The standard deviation before truncation.
        a: The lower bound.
        b: The upper bound.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.trunc_normal_(gr.zeros([100])).max().item() <= 2.0
        True
    """
    return _filled(
        "trunc_normal_",
        tensor,
        lambda: init.trunc_normal(tensor.shape, mean, std, a, b, tensor.dtype),
    )


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fills a tensor with one number.

    Args:
        tensor: The tensor.
        val: The number.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.constant_(gr.zeros([2]), 0.5).tolist()
        [0.5, 0.5]
    """
    return _filled("constant_", tensor, lambda: init.constant(tensor.shape, val, tensor.dtype))


def ones_(tensor: Tensor) -> Tensor:
    """Fills a tensor with ones.

    Args:
        tensor: The tensor.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.ones_(gr.zeros([2])).tolist()
        [1.0, 1.0]
    """
    return _filled("ones_", tensor, lambda: init.ones(tensor.shape, tensor.dtype))


def zeros_(tensor: Tensor) -> Tensor:
    """Fills a tensor with zeros.

    Args:
        tensor: The tensor.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.zeros_(gr.ones([2])).tolist()
        [0.0, 0.0]
    """
    return _filled("zeros_", tensor, lambda: init.zeros(tensor.shape, tensor.dtype))


def eye_(tensor: Tensor) -> Tensor:
    """Fills a tensor with the identity matrix.

    Args:
        tensor: The tensor.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.eye_(gr.zeros([2, 2])).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return _filled("eye_", tensor, lambda: init.eye(tensor.shape, tensor.dtype))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fills a tensor with the kernel that keeps its input.

    Args:
        tensor: The tensor.
        groups: The number of groups of channels.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.dirac_(gr.zeros([1, 1, 3])).tolist()
        [[[0.0, 1.0, 0.0]]]
    """
    return _filled("dirac_", tensor, lambda: init.dirac(tensor.shape, groups, tensor.dtype))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fills a tensor with uniform numbers, of a variance by fan-in and fan-out.

    Args:
        tensor: The tensor.
        gain: The factor of the standard deviation.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.xavier_uniform_(gr.zeros([3, 3])).max().item() <= 1.0
        True
    """
    return _filled(
        "xavier_uniform_", tensor, lambda: init.xavier_uniform(tensor.shape, gain, tensor.dtype)
    )


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fills a tensor with normal numbers, of a variance by fan-in and fan-out.

    Args:
        tensor: The tensor.
        gain: The factor of the standard deviation.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.xavier_normal_(gr.zeros([3, 3])).shape
        (3, 3)
    """
    return _filled(
        "xavier_normal_", tensor, lambda: init.xavier_normal(tensor.shape, gain, tensor.dtype)
    )


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Fills a tensor with uniform numbers, of a variance by one of the fans.

    Args:
        tensor: The tensor.
        a: The slope of ``leaky_relu`` below zero.
        mode: ``"fan_in"`` or ``"fan_out"``: the variance of which direction is kept.
        nonlinearity: The function that follows; see :func:`calculate_gain`.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.kaiming_uniform_(gr.zeros([6, 6])).max().item() <= 1.0
        True
    """

    def values() -> Tensor:
        bound = 3.0**0.5 * _kaiming(tensor, a, mode, nonlinearity, "kaiming_uniform_")
        return init.uniform(tensor.shape, -bound, bound, tensor.dtype)

    return _filled("kaiming_uniform_", tensor, values)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Fills a tensor with normal numbers, of a variance by one of the fans.

    Args:
        tensor: The tensor.
        a: The slope of ``leaky_relu`` below zero.
        mode: ``"fan_in"`` or ``"fan_out"``: the variance of which direction is kept.
        nonlinearity: The function that follows; see :func:`calculate_gain`.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.kaiming_normal_(gr.zeros([6, 6]), nonlinearity="relu").shape
        (6, 6)
    """

    def values() -> Tensor:
        std = _kaiming(tensor, a, mode, nonlinearity, "kaiming_normal_")
        return init.normal(tensor.shape, 0.0, std, tensor.dtype)

    return _filled("kaiming_normal_", tensor, values)


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fills a tensor with orthonormal rows or columns.

    Args:
        tensor: The tensor.
        gain: The length of the rows or columns.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.orthogonal_(gr.zeros([1, 1])).abs().tolist()
        [[1.0]]
    """
    return _filled("orthogonal_", tensor, lambda: init.orthogonal(tensor.shape, gain, tensor.dtype))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Fills a tensor with normal numbers, of which some in each column are zero.

    Args:
        tensor: The tensor.
        sparsity: The fraction of zeros.
        std: The standard deviation of the others.

    Returns:
        The tensor itself.

    Example:
        >>> import girih as gr
        >>> (gr.nn.init.sparse_(gr.ones([4, 1]), 0.5) == 0).sum().item()
        2
    """
    return _filled(
        "sparse_", tensor, lambda: init.sparse(tensor.shape, sparsity, std, tensor.dtype)
    )


explain_public(globals())

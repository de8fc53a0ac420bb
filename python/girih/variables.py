"""Variables: tensors that require a gradient themselves.

A tensor is a value, but one for which ``requires_grad_()`` was called is a variable: what takes its
place (an update, a loaded file, the result of a compiled step) is assigned to it, so that all who
hold it see the new value, and it keeps requiring a gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _girih, lazy
from .scopes import no_grad

if TYPE_CHECKING:
    from ._girih import Tensor

__all__ = ["assign", "copy_to", "is_inexact", "is_variable", "mark", "variable"]


def is_variable(tensor: Tensor) -> bool:
    """Whether a tensor requires a gradient itself, not as a result of others."""
    return tensor.requires_grad and tensor.is_leaf


def mark(tensor: Tensor) -> None:
    """Makes a tensor a variable, and not the tensors that have its value so far."""
    if tensor.requires_grad:
        return
    if not _girih.is_tracing():
        copy = tensor.detach()
        _girih.rebind(tensor, copy if tensor.is_lazy else lazy.eval(copy))
    tensor.requires_grad_()


def copy_to(variable: Tensor, value: Tensor) -> None:
    """Gives a tensor that requires a gradient the value of a tensor that others hold, which does
    not come to require one."""
    if not _girih.is_same(variable, value):
        copy = value.detach()
        assign(variable, copy if value.is_lazy else lazy.eval(copy))


def assign(variable: Tensor, value: Tensor) -> None:
    """Gives a tensor that requires a gradient a new result, which only the caller holds."""
    if _girih.is_same(variable, value):
        return
    if value.requires_grad:
        value = value.detach()
    gradient = variable.grad
    fits = value.dtype == variable.dtype and value.shape == variable.shape
    if gradient is not None and not fits:
        variable.grad = None
    if _girih.is_grad_enabled():
        with no_grad():
            _girih.rebind(variable, value)
    else:
        _girih.rebind(variable, value)
    if gradient is not None and not fits and value.shape == gradient.shape:
        variable.grad = gradient.detach().astype(value.dtype)


def variable(value: Tensor) -> Tensor:
    """A tensor that takes the place of one that requires a gradient, and requires one itself."""
    if value.requires_grad and not value.is_leaf:
        value = value.detach()
    if not value.requires_grad and is_inexact(value):
        value.requires_grad_()
    return value


def is_inexact(tensor: Tensor) -> bool:
    """Whether a tensor may require a gradient."""
    return "float" in tensor.dtype.name or "complex" in tensor.dtype.name

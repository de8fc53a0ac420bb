"""Restores previous values if the new values cannot be computed.

A new parameter or running statistic is computed from the previous one, so the old value exists
until the new value has been computed. A weak reference remembers the old value: it is freed when
the new value has been computed.
"""

from __future__ import annotations

import weakref
from typing import Any

from . import _girih
from ._girih import Tensor
from .checks import explain_public
from .errors import InvalidArgumentError

__all__ = ["before", "remember", "rollback"]

#: The previous tensors, by holder and name.
_before: weakref.WeakKeyDictionary[Any, dict[Any, _girih.WeakTensor]] = weakref.WeakKeyDictionary()


def remember(holder: Any, name: Any, old: Any, new: Any) -> None:
    """Records that a tensor is about to be replaced by a lazy tensor."""
    if type(old) is Tensor and type(new) is Tensor and new.is_lazy and not old.is_lazy:
        _before.setdefault(holder, {})[name] = _girih.weak(old)


def rollback(*targets: Any) -> Any:
    """Restores the previous values of modules and optimisers whose new values are not computed.

    After a step that cannot be evaluated (an index out of range, too little memory) parameters,
    buffers and state depend on the failed computation. This function restores their last values.

    Args:
        *targets: Modules, optimisers, parameter averages and loss scalers.

    Returns:
        The argument if there is one, a tuple if there are several.

    Raises:
        InvalidArgumentError: An argument is of another type.

    Example:
        >>> import girih as gr
        >>> model, optimizer = gr.eval(gr.nn.Embedding(3, 2)), gr.optim.SGD(0.1)
        >>> step = gr.nn.value_and_grad(model, lambda i: model(i).sum())
        >>> _, grads = step(gr.asarray([7]))
        >>> _ = optimizer.update(model, grads)
        >>> _ = gr.rollback(model, optimizer)
        >>> gr.eval(model).weight.shape
        (3, 2)
    """
    from .nn.module import Module
    from .nn.places import put
    from .optim.state import Stateful

    found: dict[int, Tensor] = {}
    for target in targets:
        if isinstance(target, Module):
            for module in target.modules():
                for name, value in list(module.__dict__.items()):
                    if type(value) is Tensor:
                        # Tied tensors stay tied.
                        old = found.setdefault(id(value), before(module, name, value))
                        if old is not value:
                            put(module, name, old)
        elif isinstance(target, Stateful):
            target._restore()
        else:
            raise InvalidArgumentError(
                f"rollback: expected modules and optimisers, got {type(target).__name__}"
            )
    return targets[0] if len(targets) == 1 else targets


def before(holder: Any, name: Any, now: Any) -> Any:
    """The previous tensor in place of a tensor that is not computed; other tensors unchanged."""
    weak = _before.get(holder, {}).get(name)
    if weak is None or type(now) is not Tensor or not now.is_lazy:
        return now
    old = weak.tensor()
    return now if old is None else old


explain_public(globals())

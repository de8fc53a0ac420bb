"""Going back to the values there were, where the new ones cannot be computed.

A new parameter or running statistic is computed from the one before it, so the old value is there
as long as the new one is not. It is remembered without keeping it: once the new value is there, the
old one goes.
"""

from __future__ import annotations

import weakref
from typing import Any

from . import _girih
from ._girih import Tensor
from .errors import InvalidArgumentError

__all__ = ["before", "remember", "rollback"]

#: What tensors there were before, by who holds them and under which name.
_before: weakref.WeakKeyDictionary[Any, dict[Any, _girih.WeakTensor]] = weakref.WeakKeyDictionary()


def remember(holder: Any, name: Any, old: Any, new: Any) -> None:
    """Notes that a tensor is about to be replaced by one that is yet to be computed."""
    if type(old) is Tensor and type(new) is Tensor and new.is_lazy and not old.is_lazy:
        _before.setdefault(holder, {})[name] = _girih.weak(old)


def rollback(*targets: Any) -> Any:
    """Gives modules and optimisers the values back that they had, where new ones are not computed.

    After a step that cannot be evaluated (an index out of range, too little memory) parameters,
    buffers and state depend on what fails. This goes back to the last values that were there.

    Args:
        *targets: Modules, optimisers, averages of parameters and scalers of losses.

    Returns:
        The argument if there is one, a tuple if there are several.

    Raises:
        InvalidArgumentError: Something else is given.

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
    from .optim.state import Stateful

    found: dict[int, Tensor] = {}
    for target in targets:
        if isinstance(target, Module):
            for module in target.modules():
                for name, value in list(module.__dict__.items()):
                    if type(value) is Tensor:
                        # What is one tensor remains one.
                        old = found.setdefault(id(value), before(module, name, value))
                        module.__dict__[name] = old
        elif isinstance(target, Stateful):
            target._restore()
        else:
            raise InvalidArgumentError(
                f"rollback: expected modules and optimisers, got {type(target).__name__}"
            )
    return targets[0] if len(targets) == 1 else targets


def before(holder: Any, name: Any, now: Any) -> Any:
    """What a holder had in place of a tensor that is not computed; others as they are."""
    weak = _before.get(holder, {}).get(name)
    if weak is None or type(now) is not Tensor or not now.is_lazy:
        return now
    old = weak.tensor()
    return now if old is None else old

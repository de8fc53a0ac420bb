"""Modules as functions of their parameters: calls with given parameters, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import transforms, tree
from ..checks import explain_public
from ..errors import InvalidArgumentError
from ..names import name_of
from ..state import announce
from .places import changes, places_in, read, write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._girih import Tensor
    from .module import Module

__all__ = ["functional_call", "value_and_grad"]


def functional_call(
    module: Module, parameters: Mapping[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """Calls a module with the given parameters; the module itself does not change.

    Args:
        module: The module.
        parameters: A tree in the form of :meth:`Module.parameters_tree`.

    Example:
        >>> import girih as gr
        >>> model = gr.nn.Linear(2, 1)
        >>> loss = lambda p, x: gr.nn.functional_call(model, p, x).sum()
        >>> grads = gr.grad(loss)(model.parameters_tree(), gr.ones([3, 2]))
        >>> grads["bias"].tolist()
        [3.0]
    """
    found = changes(module, parameters)
    before = [(holder, name, holder.__dict__[name]) for holder, name, _ in found]
    try:
        for holder, name, tensor in found:
            announce(holder)
            holder.__dict__[name] = tensor
        return module(*args, **kwargs)
    finally:
        for holder, name, tensor in before:
            holder.__dict__[name] = tensor


class Trained:
    """The trained parameters of a module, and placeholders in their place while a function is
    traced.

    Attributes:
        structure: The structure of the tree of parameters.
    """

    def __init__(self, module: Module) -> None:
        self._tree, _ = places_in(module)
        self._places, self.structure = tree.flatten(self._tree)
        self._parameters = read(self._places)

    def variables(self, position: int | str, name: str) -> list[Tensor]:
        """The parameters, checked; the rest is for errors."""
        return transforms.as_variables(self._parameters, self._tree, position, name)

    def enter(self, stand_ins: list[Tensor]) -> None:
        """Puts placeholders in the place of the parameters."""
        write(self._places, stand_ins)

    def leave(self, stand_ins: list[Tensor]) -> None:
        """Puts the parameters back. One that the function has replaced is stored like any other
        tensor."""
        kept = [
            (place, parameter)
            for place, parameter, stand_in in zip(
                self._places, self._parameters, stand_ins, strict=True
            )
            if place.attributes[place.name] is stand_in
        ]
        write([place for place, _ in kept], [parameter for _, parameter in kept])


def value_and_grad(
    model: Module, fun: Callable[..., Any], has_aux: bool = False
) -> Callable[..., Any]:
    """Like :func:`girih.value_and_grad`, with respect to a model's parameters.

    Args:
        model: The model that ``fun`` uses, usually as a closure.
        fun: Returns a floating-point scalar tensor, or with ``has_aux`` a pair with an auxiliary
            pytree. The tensors that it stores in objects, such as the model's buffers, are stored
            as by a call of ``fun``.
        has_aux: Whether ``fun`` also returns an auxiliary pytree.

    Returns:
        A function of ``fun``'s arguments that returns ``(value, grads)``, or ``((value, aux),
        grads)``; ``grads`` has the form of ``model.parameters_tree()``, which
        ``optimizer.update(model, grads)`` takes.

    Example:
        >>> import girih as gr
        >>> model = gr.nn.Linear(2, 1)
        >>> step = gr.nn.value_and_grad(model, lambda x: model(x).sum())
        >>> value, grads = step(gr.ones([3, 2]))
        >>> grads["bias"].tolist()
        [3.0]
    """

    name = name_of(fun)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        trained = Trained(model)

        def with_parameters(stand_ins: list[Tensor]) -> tuple[Any, Any]:
            trained.enter(stand_ins)
            result = fun(*args, **kwargs)
            trained.leave(stand_ins)
            return _pair(result) if has_aux else (result, None)

        value, grads, aux = transforms.differentiate(
            with_parameters, trained.variables(0, name), name, has_aux=True,
            roots=(fun, args, kwargs),
        )  # fmt: skip
        grads = tree.unflatten(trained.structure, grads)
        return ((value, aux), grads) if has_aux else (value, grads)

    return wrapped


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise InvalidArgumentError(
            "nn.value_and_grad: with has_aux=True the function must return (value, aux)"
        )
    return result


explain_public(globals())

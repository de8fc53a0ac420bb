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
        where, _ = places_in(model)
        places, treedef = tree.flatten(where)
        parameters = read(places)

        def with_parameters(stand_ins: list[Tensor]) -> tuple[Any, Any]:
            write(places, stand_ins)
            result = fun(*args, **kwargs)
            # A parameter that the function has replaced is stored like any other tensor.
            kept = [
                (place, parameter)
                for place, parameter, stand_in in zip(places, parameters, stand_ins, strict=True)
                if place.attributes[place.name] is stand_in
            ]
            write([place for place, _ in kept], [parameter for _, parameter in kept])
            return _pair(result) if has_aux else (result, None)

        variables = transforms.as_variables(parameters, where, 0, name)
        value, grads, aux = transforms.differentiate(
            with_parameters, variables, name, has_aux=True, roots=(fun, args, kwargs)
        )
        grads = tree.unflatten(treedef, grads)
        return ((value, aux), grads) if has_aux else (value, grads)

    return wrapped


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise InvalidArgumentError(
            "nn.value_and_grad: with has_aux=True the function must return (value, aux)"
        )
    return result


explain_public(globals())

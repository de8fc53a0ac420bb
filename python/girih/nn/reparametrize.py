"""Weights computed from other tensors at each use: weight norm and spectral norm.

The class of the layer is replaced by a subclass whose weight is a property. Trees and files
contain, in place of the weight, the tensors from which it is computed.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _girih, random
from ..checks import explain_public
from ..errors import InvalidArgumentError
from .module import Module, Parameter
from .places import PARAMETER_NAMES

if TYPE_CHECKING:
    from .._girih import Tensor

__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]

_T = TypeVar("_T", bound=Module)


def _norm_except(x: Tensor, dim: int | None) -> Tensor:
    """The norms over all axes but one; the reduced axes are kept with size 1."""
    if dim is None:
        return _girih.linalg_vector_norm(x, 2.0, False)
    return _girih.linalg_vector_norm(x, 2.0, True, [a for a in range(x.ndim) if a != dim])


class _WeightNorm:
    """A weight as a direction and its length."""

    function = "weight_norm"

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def start(self, module: Module, weight: Tensor) -> None:
        setattr(module, f"{self.name}_g", Parameter(_norm_except(weight, self.dim)))
        setattr(module, f"{self.name}_v", Parameter(weight))

    def held(self) -> list[str]:
        return [f"{self.name}_g", f"{self.name}_v"]

    def weight(self, module: Module) -> Tensor:
        g, v = (module.__dict__[name] for name in self.held())
        scaled: Tensor = v * (g / _norm_except(v, self.dim))
        return scaled

    def before_forward(self, module: Module) -> None:
        """Does nothing: weight norm has no buffers to update."""


class _SpectralNorm:
    """A matrix divided by its largest singular value, which power iterations estimate."""

    function = "spectral_norm"

    def __init__(self, name: str, dim: int, iterations: int, eps: float) -> None:
        self.name, self.dim, self.iterations, self.eps = name, dim, iterations, eps

    def start(self, module: Module, weight: Tensor) -> None:
        rows = weight.shape[self.dim]
        u = random.normal((rows,), dtype=weight.dtype)
        v = random.normal((prod(weight.shape) // max(1, rows),), dtype=weight.dtype)
        setattr(module, f"{self.name}_orig", Parameter(weight))
        setattr(module, f"{self.name}_u", self._unit(u))
        setattr(module, f"{self.name}_v", self._unit(v))
        self._iterate(module, 15)

    def held(self) -> list[str]:
        return [f"{self.name}_orig", f"{self.name}_u", f"{self.name}_v"]

    def _unit(self, x: Tensor) -> Tensor:
        return x / _girih.maximum(_girih.linalg_vector_norm(x, 2.0, False), self.eps)

    def _matrix(self, weight: Tensor) -> Tensor:
        moved = _girih.moveaxis(weight, self.dim, 0)
        return moved.reshape((moved.shape[0], prod(moved.shape[1:])))

    def _iterate(self, module: Module, times: int) -> None:
        weight, u, v = (module.__dict__[name] for name in self.held())
        matrix = self._matrix(_girih.stop_gradient(weight))
        for _ in range(times):
            u = self._unit(matrix @ v)
            v = self._unit(matrix.T @ u)
        setattr(module, f"{self.name}_u", u)
        setattr(module, f"{self.name}_v", v)

    def weight(self, module: Module) -> Tensor:
        weight, u, v = (module.__dict__[name] for name in self.held())
        scaled: Tensor = weight / (u * (self._matrix(weight) @ v)).sum()
        return scaled

    def before_forward(self, module: Module) -> None:
        if module.training:
            self._iterate(module, self.iterations)


@cache
def _class(base: Any, kind: Any, options: tuple[Any, ...]) -> Any:
    """The subclass of a layer's class whose weight is computed at each use."""
    rule: _WeightNorm | _SpectralNorm = kind(*options)

    def forward(self: Module, *args: Any, **kwargs: Any) -> Any:
        rule.before_forward(self)
        return base.forward(self, *args, **kwargs)

    def reduce(self: Module, _protocol: Any) -> Any:
        return _empty, (base, kind, options), self.__dict__.copy()

    body = {
        rule.name: property(rule.weight),
        "forward": forward,
        "__reduce_ex__": reduce,
        "_reparametrization": rule,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    return type(base.__name__, (base,), body)


def _empty(base: Any, kind: Any, options: tuple[Any, ...]) -> Module:
    made = _class(base, kind, options)
    module: Module = made.__new__(made)
    return module


def _reparametrized(module: Any, name: str, kind: Any, options: tuple[Any, ...]) -> None:
    function = kind.function
    if not isinstance(module, Module):
        raise InvalidArgumentError(f"{function}: expected a module, got {type(module).__name__}")
    if name not in module.__dict__.get(PARAMETER_NAMES, ()) or module.__dict__.get(name) is None:
        raise InvalidArgumentError(
            f"{function}: {type(module).__name__} has no parameter {name!r} of its own"
        )
    weight: Tensor = module.__dict__[name]
    dim = options[1]
    if dim is not None and not -weight.ndim <= dim < weight.ndim:
        raise InvalidArgumentError(
            f"{function}: dim {dim} is no axis of {name}, of shape {list(weight.shape)}"
        )
    if dim is not None:
        options = (name, dim % weight.ndim, *options[2:])
    delattr(module, name)
    base: Any = type(module)
    module.__class__ = _class(base, kind, options)
    rule: _WeightNorm | _SpectralNorm = vars(type(module))["_reparametrization"]
    rule.start(module, weight)


def _removed(module: Any, name: str, kind: Any) -> None:
    rule: Any = getattr(module, "_reparametrization", None)
    if not isinstance(rule, kind) or rule.name != name:
        raise InvalidArgumentError(
            f"remove_{kind.function}: {name!r} of {type(module).__name__} is not made by it"
        )
    weight = getattr(module, name)
    for held in rule.held():
        delattr(module, held)
    module.__class__ = type(module).__mro__[1]
    setattr(module, name, Parameter(weight))


def weight_norm(module: _T, name: str = "weight", dim: int | None = 0) -> _T:
    """Reparametrises a weight as a direction ``weight_v`` and its length ``weight_g``.

    Salimans and Kingma 2016. Both are trained. The results of the layer do not change.

    Args:
        module: The layer.
        name: The name of the layer's parameter.
        dim: The axis along which each slice has its own length; ``None`` for one length.

    Returns:
        The layer.

    Raises:
        InvalidArgumentError: The layer has no such parameter, or the parameter has no such axis.

    Example:
        >>> import girih as gr
        >>> layer = gr.nn.weight_norm(gr.nn.Linear(3, 2))
        >>> {name: p.shape for name, p in layer.named_parameters()}
        {'bias': (2,), 'weight_g': (2, 1), 'weight_v': (2, 3)}
    """
    _reparametrized(module, name, _WeightNorm, (name, dim))
    return module


def spectral_norm(
    module: _T,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int = 0,
) -> _T:
    """Divides a weight, as a matrix, by its largest singular value: Miyato et al. 2018.

    The parameter is ``weight_orig``; the vectors of the power iteration are buffers, ``weight_u``
    and ``weight_v``, which each call in training mode updates.

    Args:
        module: The layer.
        name: The name of the layer's parameter.
        n_power_iterations: The number of iterations per call.
        eps: The lower bound of the norms in divisions.
        dim: The axis of the weight that becomes the rows of the matrix; 1 for transposed
            convolutions.

    Returns:
        The layer.

    Raises:
        InvalidArgumentError: The layer has no such parameter, the parameter has no such axis, or
            the number of iterations is below 1.

    Example:
        >>> import girih as gr
        >>> layer = gr.nn.spectral_norm(gr.nn.Linear(3, 3, bias=False))
        >>> round(gr.linalg.svdvals(layer.weight)[0].item(), 2)
        1.0
    """
    if n_power_iterations < 1:
        raise InvalidArgumentError(
            f"spectral_norm: n_power_iterations must be at least 1, got {n_power_iterations}"
        )
    _reparametrized(module, name, _SpectralNorm, (name, dim, n_power_iterations, eps))
    return module


def remove_weight_norm(module: _T, name: str = "weight") -> _T:
    """Makes the weight a parameter again, with its current value.

    Args:
        module: The layer, from :func:`weight_norm`.
        name: The name of the layer's parameter.

    Returns:
        The layer.

    Raises:
        InvalidArgumentError: The parameter has no weight norm.

    Example:
        >>> import girih as gr
        >>> layer = gr.nn.remove_weight_norm(gr.nn.weight_norm(gr.nn.Linear(3, 2)))
        >>> sorted(layer.state_dict())
        ['bias', 'weight']
    """
    _removed(module, name, _WeightNorm)
    return module


def remove_spectral_norm(module: _T, name: str = "weight") -> _T:
    """Makes the weight a parameter again, with its current value.

    Args:
        module: The layer, from :func:`spectral_norm`.
        name: The name of the layer's parameter.

    Returns:
        The layer.

    Raises:
        InvalidArgumentError: The parameter has no spectral norm.

    Example:
        >>> import girih as gr
        >>> layer = gr.nn.remove_spectral_norm(gr.nn.spectral_norm(gr.nn.Linear(3, 2)))
        >>> sorted(layer.state_dict())
        ['bias', 'weight']
    """
    _removed(module, name, _SpectralNorm)
    return module


explain_public(globals())

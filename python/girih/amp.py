"""Mixed precision: autocast of matrix products to half precision, and loss scaling.

scaler = gr.amp.LossScaler()                        # float16 only; bfloat16 needs none
optimizer = gr.optim.SkipNonFinite(gr.optim.AdamW(1e-3))

def loss_of(x, y):
    with gr.amp.autocast(gr.float16):
        scores = model(x)
    return scaler.scale(gr.nn.cross_entropy(scores, y))

loss_and_grad = gr.nn.value_and_grad(model, loss_of)

@gr.compile
def step(x, y):
    loss, grads = loss_and_grad(x, y)
    grads, finite = scaler.unscale(grads)
    optimizer.update(model, grads)
    scaler.update(finite)
    return loss / scaler.scale_factor
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from . import _girih, lazy, tree
from ._girih import Tensor
from .checks import check_constructor, explain_public
from .errors import DTypeError, InvalidArgumentError
from .optim.combined import all_finite
from .optim.state import Stateful
from .scopes import Scope, no_grad

if TYPE_CHECKING:
    from ._girih import DType
    from .optim.base import Optimizer
    from .tree import PyTree

__all__ = ["LossScaler", "autocast"]


@check_constructor
class autocast(Scope[None]):  # noqa: N801 - reads as a function where it is used
    """A context manager and decorator that computes matrix products in half precision.

    Matrix products, contractions, convolutions and attention compute in ``dtype`` on operands in
    float32 and half precision. Functions with a large dynamic range and long sums (``exp``,
    ``log``, ``pow``, ``sum``, ``prod``, ``cumsum``, ``softmax``, norms, losses and the like)
    compute in float32 on operands in half precision. Other functions compute in the dtypes of their
    operands, and tensors in float64, complex dtypes and integers are not cast. The lists of
    functions are those of ``torch.autocast``; of ``girih.linalg``, autocast affects only
    ``multi_dot``.

    Modules with parameters follow the same rules: linear layers, convolutions, bilinear and
    recurrent layers cast float32 parameters and arguments, norms and losses compute in float32, and
    results of the outermost module are float32. Parameters and their gradients keep their dtypes.

    The scope belongs to the asyncio task, or else the thread, that entered it. Functions under
    :func:`girih.compile` have one program for calls inside of the scope and another for calls
    outside.

    Args:
        dtype: ``girih.bfloat16`` or ``girih.float16``.
        enabled: Whether autocast is on; if False, the block disables autocast.

    Raises:
        DTypeError: ``dtype`` is another dtype, or ``enabled`` is no bool.

    Example:
        >>> import girih as gr
        >>> a, layer = gr.ones([2, 2]), gr.nn.Linear(2, 2)
        >>> with gr.amp.autocast():
        ...     product, total = a @ a, (a @ a).sum()
        ...     result = layer(a)
        >>> product.dtype, total.dtype, result.dtype
        (girih.bfloat16, girih.float32, girih.float32)
    """

    def __init__(self, dtype: DType | None = None, enabled: bool = True) -> None:
        name = "bfloat16" if dtype is None else getattr(dtype, "name", str(dtype))
        if name not in ("bfloat16", "float16"):
            raise DTypeError(f"amp.autocast: dtype is bfloat16 or float16, got {name}")
        half = name if enabled else "off"
        super().__init__(lambda n: _girih.enter_scope(n, autocast=half), lambda: None)


class LossScaler(Stateful):
    """Scales a loss so that gradients in float16 do not underflow; the scale adapts to overflow.

    The scale is multiplied by ``backoff_factor`` after non-finite gradients, and by
    ``growth_factor`` after ``growth_interval`` consecutive steps with finite gradients. The state
    consists of tensors, so a compiled step is one program.

    Args:
        init_scale: The initial scale.
        growth_factor: The factor by which the scale grows, above 1.
        backoff_factor: The factor by which the scale shrinks, between 0 and 1.
        growth_interval: The number of steps with finite gradients after which the scale grows.

    Attributes:
        state: ``{"scale": factor, "finite_steps": count}``, both tensors.

    Raises:
        InvalidArgumentError: A factor is out of range.

    Example:
        >>> import girih as gr
        >>> scaler = gr.amp.LossScaler(4.0)
        >>> grads, finite = scaler.unscale([gr.asarray([8.0])])
        >>> scaler.update(finite)
        >>> grads[0].tolist(), finite.item(), scaler.scale_factor.item()
        ([2.0], True, 4.0)
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        for ok, text, value in (
            (init_scale > 0, "init_scale must be above 0", init_scale),
            (growth_factor > 1, "growth_factor must be above 1", growth_factor),
            (0 < backoff_factor < 1, "backoff_factor must be between 0 and 1", backoff_factor),
            (growth_interval >= 1, "growth_interval must be at least 1", growth_interval),
        ):
            if not ok:
                raise InvalidArgumentError(f"LossScaler: {text}, got {value}")
        self.growth_factor, self.backoff_factor = growth_factor, backoff_factor
        self.growth_interval = growth_interval
        scale = _girih.asarray(init_scale, dtype=_girih.float32)
        self.state = {"scale": scale, "finite_steps": _girih.zeros([], dtype=_girih.int64)}
        lazy.eval(self.state)
        #: Whether the gradients of each optimiser are finite, since the last update.
        self._found: dict[int, Tensor] = {}

    @property
    def scale_factor(self) -> Tensor:
        """The scale, a float32 scalar tensor."""
        factor: Tensor = self.state["scale"]
        return factor

    def scale(self, loss: Tensor) -> Tensor:
        """Multiplies the loss by the scale, which scales its gradients too.

        Args:
            loss: The loss, preferably in float32.

        Returns:
            The scaled loss.
        """
        return loss * self.scale_factor.astype(loss.dtype)

    def unscale(self, grads: PyTree) -> tuple[PyTree, Tensor]:
        """Divides gradients by the scale, and checks whether all of them are finite.

        Args:
            grads: Gradients of the scaled loss.

        Returns:
            The gradients divided by the scale, and a bool scalar tensor.
        """
        back = 1.0 / self.scale_factor
        for leaf in tree.leaves(grads):
            if not isinstance(leaf, Tensor):
                raise DTypeError(
                    f"LossScaler.unscale: expected a tree of tensors, got a {type(leaf).__name__}"
                )
        out = tree.map(lambda g: g * back.astype(g.dtype), grads)
        return out, all_finite(out)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides the gradients of an optimiser's parameters by the scale, for clipping.

        Args:
            optimizer: An optimiser that holds parameters.

        Raises:
            InvalidArgumentError: The optimiser holds no parameters, or its gradients are unscaled
                already.
        """
        if not optimizer._held:
            raise InvalidArgumentError(
                "LossScaler.unscale_: the optimiser holds no parameters; use unscale(grads)"
            )
        if id(optimizer) in self._found:
            raise InvalidArgumentError(
                "LossScaler.unscale_: the gradients of the optimiser are unscaled already; call "
                "update() after each step"
            )
        with no_grad():
            held = [one.tensor() for one in optimizer._held]
            held = [tensor for tensor in held if tensor.grad is not None]
            grads, finite = self.unscale([tensor.grad for tensor in held])
            for tensor, gradient in zip(held, grads, strict=True):
                tensor.grad = gradient
        self._found[id(optimizer)] = finite

    def step(self, optimizer: Optimizer) -> None:
        """Makes a step of an optimiser, unless a gradient is not finite.

        Args:
            optimizer: An optimiser that holds parameters.

        Raises:
            InvalidArgumentError: The optimiser holds no parameters; or a function is being traced,
                in which :class:`girih.optim.SkipNonFinite` decides.

        Example:
            >>> import girih as gr
            >>> model, scaler = gr.nn.Linear(2, 1), gr.amp.LossScaler()
            >>> optimizer = gr.optim.SGD(model.parameters(), lr=0.1)
            >>> scaler.scale(model(gr.ones([4, 2])).mean()).backward()
            >>> scaler.step(optimizer)
            >>> scaler.update()
            >>> optimizer.state["step"].item()
            1
        """
        if _girih.is_tracing():
            raise InvalidArgumentError(
                "LossScaler.step: whether the gradients are finite is not known while a function "
                "is traced; use unscale_(optimizer) and an optimiser in gr.optim.SkipNonFinite"
            )
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        if self._found[id(optimizer)].item():
            optimizer.step()

    def update(self, finite: Tensor | None = None) -> None:
        """Updates the scale for the next step.

        Args:
            finite: The flag that :meth:`unscale` returned; not needed after :meth:`step`.

        Raises:
            InvalidArgumentError: There is no flag, and there was no step.
        """
        if finite is not None:
            self._adapt(finite)
            return
        if not self._found:
            raise InvalidArgumentError(
                "LossScaler.update: give the flag that unscale returned, or call step first"
            )
        flags = list(self._found.values())
        self._found = {}
        self._adapt(functools.reduce(lambda a, b: a & b, flags))
        if not _girih.is_tracing():
            lazy.eval(self.state)

    def _adapt(self, finite: Tensor) -> None:
        steps = _girih.where(finite, self.state["finite_steps"] + 1, 0)
        grows = steps >= self.growth_interval
        largest = 2.0**126
        grown = _girih.minimum(self.state["scale"] * self.growth_factor, largest)
        kept = _girih.where(grows, grown, self.state["scale"])
        fallen = self.state["scale"] * self.backoff_factor
        scale = _girih.where(finite, kept, fallen)
        self._advance({"scale": scale, "finite_steps": _girih.where(grows, 0, steps)})


explain_public(globals())

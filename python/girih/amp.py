"""Mixed precision: products in half precision, all else in float32, and scaled losses for float16.

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

from contextlib import ContextDecorator
from typing import TYPE_CHECKING

from . import _girih, lazy, tree
from .errors import DTypeError, InvalidArgumentError
from .nn.precision import current
from .optim.combined import all_finite
from .optim.state import Stateful

if TYPE_CHECKING:
    from types import TracebackType

    from ._girih import DType, Tensor
    from .tree import PyTree

__all__ = ["LossScaler", "autocast"]


class autocast(ContextDecorator):  # noqa: N801 - reads as a function where it is used
    """A context manager, and a decorator, in which modules compute products in half precision.

    Linear layers, convolutions, bilinear and recurrent layers cast their float32 parameters and
    arguments; norms and losses compute in float32; others take what they get. Results of the
    outermost module are float32. Parameters, their gradients and float64 tensors stay as they are.

    It belongs to the thread that entered it. Functions under :func:`girih.compile` look whether it
    is as it was when they were traced.

    Args:
        dtype: ``girih.bfloat16`` or ``girih.float16``.
        enabled: Whether it is; else the block computes as without.

    Raises:
        DTypeError: Another dtype.

    Example:
        >>> import girih as gr
        >>> layer = gr.nn.Linear(2, 2)
        >>> @gr.amp.autocast()
        ... def text(x):
        ...     return gr.graph_to_text(layer(x))
        >>> "bf16" in text(gr.ones([3, 2]))
        True
    """

    def __init__(self, dtype: DType | None = None, enabled: bool = True) -> None:
        name = "bfloat16" if dtype is None else getattr(dtype, "name", str(dtype))
        if name not in ("bfloat16", "float16"):
            raise DTypeError(f"amp.autocast: dtype is bfloat16 or float16, got {name}")
        self._dtype = name if enabled else None
        self._before: list[str | None] = []

    def __enter__(self) -> None:
        self._before.append(current.dtype)
        current.dtype = self._dtype

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        current.dtype = self._before.pop()


class LossScaler(Stateful):
    """Scales a loss, so that gradients in float16 do not vanish, by as much as they can bear.

    The scale is multiplied by ``backoff_factor`` after gradients that are not finite, and by
    ``growth_factor`` after ``growth_interval`` steps of finite ones. All of that is tensors, so a
    compiled step is one program.

    Args:
        init_scale: The first scale.
        growth_factor: Above 1.
        backoff_factor: Between 0 and 1.
        growth_interval: Steps.

    Attributes:
        state: ``{"scale": factor, "finite_steps": count}``, tensors, all of it tensors.

    Raises:
        InvalidArgumentError: A factor that is out of range.

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

    @property
    def scale_factor(self) -> Tensor:
        """The scale, a float32 scalar tensor."""
        factor: Tensor = self.state["scale"]
        return factor

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale; its gradients are so too.

        Args:
            loss: The loss, best in float32.

        Returns:
            The scaled loss.
        """
        return loss * self.scale_factor.astype(loss.dtype)

    def unscale(self, grads: PyTree) -> tuple[PyTree, Tensor]:
        """Gradients of the loss itself, and whether all of them are finite.

        Args:
            grads: Gradients of the scaled loss.

        Returns:
            The gradients divided by the scale, and a bool scalar tensor.
        """
        back = 1.0 / self.scale_factor
        out = tree.map(lambda g: g * back.astype(g.dtype), grads)
        return out, all_finite(out)

    def update(self, finite: Tensor) -> None:
        """Goes on to the scale of the next step.

        Args:
            finite: Of :meth:`unscale`.
        """
        steps = _girih.where(finite, self.state["finite_steps"] + 1, 0)
        grows = steps >= self.growth_interval
        largest = 2.0**126
        grown = _girih.minimum(self.state["scale"] * self.growth_factor, largest)
        kept = _girih.where(grows, grown, self.state["scale"])
        fallen = self.state["scale"] * self.backoff_factor
        scale = _girih.where(finite, kept, fallen)
        self._advance({"scale": scale, "finite_steps": _girih.where(grows, 0, steps)})

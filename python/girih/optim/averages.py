"""Averages of parameters over training steps."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import _girih, lazy, tree
from ..errors import DTypeError, InvalidArgumentError
from ..nn.places import places_in, read, write
from ..scopes import no_grad
from ..tracing import StateMadeError
from ..variables import is_variable
from .base import check, checked, compute_dtype, trained
from .state import Stateful, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..nn.module import Module
    from ..tree import PyTree

__all__ = ["EMA"]


class EMA(Stateful):
    """An exponential moving average of parameters, which often generalises better than the last
    parameters.

    ``average = decay average + (1 - decay) parameters``; the first update copies the parameters.
    Averages of half-precision parameters are stored in float32.

    Args:
        decay: The weight of the old average.
        warmup: Whether the decay of update ``n`` (from 0) is at most ``(1 + n) / (10 + n)``, so
            that early parameters have little weight.

    Attributes:
        state: ``{"step": count, "average": tree like the parameters}``, after :meth:`init` or the
            first update.

    Raises:
        InvalidArgumentError: ``decay`` is not in [0, 1].

    Example:
        >>> import girih as gr
        >>> model, ema = gr.eval(gr.nn.Linear(2, 1)), gr.optim.EMA(0.9)
        >>> ema.update(model)
        >>> model.weight = model.weight + 1.0
        >>> ema.update(model)
        >>> with ema.applied(model):
        ...     averaged = model.weight
        >>> round((model.weight - averaged).mean().item(), 4)
        0.9
    """

    def __init__(self, decay: float = 0.999, warmup: bool = False) -> None:
        check(0 <= decay <= 1, "decay must be in [0, 1]", decay)
        self.decay, self.warmup = decay, warmup
        self.state = {}

    def init(self, target: Module | PyTree) -> dict[str, Any]:
        """Initialises the state before the first update."""
        state: dict[str, Any] = {"step": _girih.zeros([], dtype=_girih.int64)}
        state["average"] = tree.map(
            lambda p: _girih.zeros(p.shape, dtype=compute_dtype(p)),
            checked("EMA.init", trained(target)),
        )
        lazy.eval(state)
        self._adopt(state)
        return state

    def apply(self, target: Module | PyTree, state: dict[str, Any]) -> dict[str, Any]:
        """One update in functional form: returns the state after these parameters.

        Args:
            target: A model or a tree of parameters.
            state: The state from :meth:`init`, or from the previous update.

        Returns:
            The new state, lazy.

        Raises:
            InvalidArgumentError: The state belongs to other parameters.
        """
        parameters = trained(target)
        if not isinstance(state, dict):
            raise DTypeError(f"EMA.apply: state is a dict, got a {type(state).__name__}")
        leaves, treedef = tree.flatten(parameters)
        old = tree.leaves_like(treedef, state.get("average"))
        if old is None:
            raise InvalidArgumentError(
                f"EMA.apply: the state is not that of parameters {treedef}; begin with init"
            )
        count = state["step"].astype(_girih.float64)
        decay: Any = self.decay + 0.0 * count
        if self.warmup:
            decay = _girih.minimum(decay, (1.0 + count) / (10.0 + count))
        decay = _girih.where(count == 0, 0.0, decay)
        new = []
        for average, p in zip(old, leaves, strict=True):
            share = cast(1.0 - decay, average.dtype)
            moved = average + (cast(p, average.dtype) - average) * share
            # The first update copies the bits, because a difference and a sum may round.
            new.append(_girih.where(count == 0, cast(p, average.dtype), moved))
        return {"step": state["step"] + 1, "average": tree.unflatten(treedef, new)}

    def update(self, target: Module | PyTree) -> None:
        """Adds the parameters to the average; in a compiled step it is part of the program.

        The average is lazy, unless the parameters require gradients.

        Args:
            target: A model or a tree of parameters.
        """
        if not self.state:
            self.init(target)
            if _girih.is_tracing():
                raise StateMadeError
        leaves = tree.leaves(trained(target))
        with no_grad():
            self._advance(self.apply(target, self.state))
        # In PyTorch's loop, nothing else evaluates the average.
        if any(map(is_variable, leaves)) and not _girih.is_tracing():
            lazy.eval(self.state)

    @contextmanager
    def applied(self, model: Module) -> Iterator[Module]:
        """A context in which the model has the averages as its parameters.

        Args:
            model: The model whose parameters are averaged.

        Yields:
            The model.

        Raises:
            InvalidArgumentError: There is no average of this model's parameters.
        """
        where, _ = places_in(model)
        places, treedef = tree.flatten(where)
        averages = tree.leaves_like(treedef, self.state.get("average"))
        if averages is None or self.state["step"].item() == 0:
            raise InvalidArgumentError("EMA.applied: nothing of this model is averaged yet")
        own = read(places)
        write(places, [cast(a, p.dtype) for a, p in zip(averages, own, strict=True)])
        try:
            yield model
        finally:
            write(places, own)

"""Optimisers that keep small steps of half-precision parameters.

A bfloat16 number has eight bits: a step of less than 1/512 of a parameter rounds to nothing, in
every step again. Master weights are float32 copies to which all steps are added; stochastic
rounding makes a step with a probability, so that the mean is right, and needs no memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _girih, random, tree
from .combined import Combined
from .state import cast

if TYPE_CHECKING:
    from .._girih import Tensor
    from ..tree import PyTree
    from .base import Optimizer

__all__ = ["MasterWeights", "StochasticRounding"]

_HALVES = ("float16", "bfloat16")


class _Wide(Combined):
    """The base of wrappers whose optimiser updates half-precision parameters in float32."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        super().__init__({"optimizer": optimizer})
        self._hold_as(optimizer)

    def _wide(self, p: Tensor, slots: list[Tensor]) -> Tensor:
        """The parameter that the optimiser updates."""
        return cast(p, _girih.float32)

    def _narrow(self, new: Tensor, p: Tensor) -> Tensor:
        """The new parameter in its own dtype."""
        raise NotImplementedError

    def _updated(
        self,
        target: PyTree,
        parameters: list[Tensor],
        treedef: tree.TreeDef,
        grads: PyTree,
        state: dict[str, Any],
    ) -> tuple[list[Tensor], dict[str, Any]]:
        columns = [self._column(state.get(slot), treedef, f"state '{slot}'") for slot in self.slots]
        rows = list(zip(*columns, strict=True)) if columns else [()] * len(parameters)
        wide = [
            self._wide(p, list(slots)) if p.dtype.name in _HALVES else p
            for p, slots in zip(parameters, rows, strict=True)
        ]
        done, inner = self._stepped("optimizer", tree.unflatten(treedef, wide), grads, state)
        updated = [
            self._narrow(new, p) if p.dtype.name in _HALVES else new
            for new, p in zip(done, parameters, strict=True)
        ]
        new_state = {**state, "step": state["step"] + 1, "optimizer": inner}
        for slot in self.slots:
            kept = [
                new if p.dtype.name in _HALVES else old
                for new, p, old in zip(done, parameters, columns[0], strict=True)
            ]
            new_state[slot] = tree.unflatten(treedef, kept)
        return updated, new_state


class MasterWeights(_Wide):
    """Keeps a float32 copy of each half-precision parameter, which the optimiser updates.

    The parameter is the copy, rounded. A parameter that is changed otherwise, such as by loading a
    file, has a new copy from then on, element by element.

    Args:
        optimizer: The optimiser.

    Example:
        >>> import girih as gr
        >>> half = [gr.ones([1], dtype=gr.bfloat16)]
        >>> optimizer = gr.optim.MasterWeights(gr.optim.SGD(1e-3))
        >>> for _ in range(10):
        ...     half = optimizer.update(half, [gr.ones([1], dtype=gr.bfloat16)])
        >>> half[0].tolist(), round(optimizer.state["master"][0].item(), 4)
        ([0.98828125], 0.99)
    """

    slots = ("master",)

    def _initial(self, slot: str, p: Tensor) -> Tensor:
        # Other parameters need no copy.
        wide = p.dtype.name in _HALVES
        return +cast(p.detach(), _girih.float32) if wide else _girih.zeros([0], dtype=p.dtype)

    def _wide(self, p: Tensor, slots: list[Tensor]) -> Tensor:
        return _girih.where(cast(slots[0], p.dtype) == p, slots[0], cast(p, _girih.float32))

    def _narrow(self, new: Tensor, p: Tensor) -> Tensor:
        return cast(new, p.dtype)


class StochasticRounding(_Wide):
    """Rounds new half-precision parameters up or down at random, so that they are right on average.

    The probability of each neighbour follows from the distance to it. The random numbers are those
    of :func:`girih.manual_seed`.

    Args:
        optimizer: The optimiser.

    Example:
        >>> import girih as gr
        >>> half = [gr.ones([10000], dtype=gr.bfloat16)]
        >>> optimizer = gr.optim.StochasticRounding(gr.optim.SGD(1e-3))
        >>> for _ in range(10):
        ...     half = optimizer.update(half, [gr.ones([10000], dtype=gr.bfloat16)])
        >>> round(half[0].astype(gr.float32).mean().item(), 3)
        0.99
    """

    def _narrow(self, new: Tensor, p: Tensor) -> Tensor:
        near = cast(cast(new, p.dtype), new.dtype)
        # The neighbour on the other side of the exact value.
        away = _girih.where(new > near, float("inf"), float("-inf"))
        other = cast(_girih.nextafter(cast(near, p.dtype), cast(away, p.dtype)), new.dtype)
        gap = other - near
        share = _girih.where(new == near, 0.0, (new - near) / _girih.where(gap == 0, 1.0, gap))
        moved = random.uniform(new.shape, dtype=new.dtype) < share
        finite = _girih.isfinite(near) & _girih.isfinite(other)
        return cast(_girih.where(moved & finite, other, near), p.dtype)

"""Types of functions of functions.

A transform keeps the parameters of the function (``P``) and its result (``R``), and a module is
called with the parameters of its ``forward``.
"""

from __future__ import annotations

from typing import ParamSpec, Protocol, TypeVar

__all__ = ["Forwards", "P", "Q", "R"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
_R_co = TypeVar("_R_co", covariant=True)


class Forwards(Protocol[P, _R_co]):
    """A module whose ``forward`` takes ``P`` and returns ``R``."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> _R_co:
        """The module's computation."""
        ...

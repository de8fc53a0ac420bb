"""Named tuples that functions with several results return."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ._girih import Tensor

__all__ = ["UniqueAll", "UniqueCounts", "UniqueInverse"]


class UniqueAll(NamedTuple):
    """The results of ``unique_all``."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The results of ``unique_counts``."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The results of ``unique_inverse``."""

    values: Tensor
    inverse_indices: Tensor

"""Named tuples that functions with several results return."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ._girih import Tensor

__all__ = ["UniqueAll", "UniqueCounts", "UniqueInverse"]


class UniqueAll(NamedTuple):
    """What ``unique_all`` gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` gives."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` gives."""

    values: Tensor
    inverse_indices: Tensor

"""All rows, and the ops of the table that no row has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    dense,
    draws,
    elementwise,
    images,
    indexing,
    loops,
    networks,
    ordering,
    products,
    reductions,
    shapes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .rows import Row

MODULES = (
    elementwise, reductions, ordering, indexing, shapes, products, images, dense, networks, loops,
    draws,
)  # fmt: skip
ROWS: list[Row] = [row for module in MODULES for row in module.ROWS]

#: Ops of the table without a row, and why.
WITHOUT = {
    "parameter": "a value from outside",
    "polygamma": "a special function that no peer has in float32",
    "igammac": "as igamma",
    "igamma_grad_a": "the derivative of igamma",
    "complex": "part of Fourier transforms",
    "to_device": "one device is measured",
    "reshard": "one device is measured",
    "direction": "part of gradients",
    "recurrence": "a pass makes it of scans",
    "cofactors": "part of gradients",
    "cofactor_slopes": "part of gradients",
    "lu": "as solve",
    "eig": "as eigh, in complex numbers",
    "custom": "a function of the user",
    "all_reduce": "several devices",
    "all_gather": "several devices",
    "fold_windows": "part of gradients",
}


def choose(quick: bool, full: bool, wanted: Sequence[str]) -> list[Row]:
    """The rows of a run; `wanted` are parts of names or families, which select from all rows."""
    limit = 0 if quick else 2 if full or wanted else 1
    rows = [row for row in ROWS if row.level <= limit]
    if not wanted:
        return rows
    texts = [text.casefold() for text in wanted]
    return [r for r in rows if any(t in f"{r.family}: {r.name}".casefold() for t in texts)]

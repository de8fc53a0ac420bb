"""Layouts of tensors on the processing elements (PEs) of a wafer: which part of a tensor each PE
has, what moves from one layout to another, and plans of layouts and memory for a program.

A layout annotates: values stay on their device, and everything here computes with sizes. Axes that
are not divisible give the last PEs fewer elements, or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _girih
from ._girih import (
    GraphLayouts,
    Layout,
    LayoutPlanner,
    MemoryBudget,
    MemoryPlan,
    TileTransfer,
    Transform,
)
from .checks import explain_public
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ._girih import Program, _DTypeLike

    _Tile = tuple[Sequence[int], Sequence[int]]

__all__ = [
    "GraphLayouts",
    "Layout",
    "LayoutPlanner",
    "MemoryBudget",
    "MemoryPlan",
    "TileTransfer",
    "Transform",
    "auto",
    "block_cyclic",
    "col_partition",
    "custom",
    "get_tile_shape",
    "grid",
    "memory_usage_per_pe",
    "plan_memory",
    "replicated",
    "row_partition",
    "single_pe",
    "transform",
]


def single_pe() -> Layout:
    """The whole tensor on PE (0, 0).

    Returns:
        A layout.

    Example:
        >>> print(gr.layout.single_pe())
        SinglePE
    """
    return Layout.single_pe()


def row_partition(num_pes: int) -> Layout:
    """The first axis is split over PEs, one in each row.

    Args:
        num_pes: The number of PEs.

    Returns:
        A layout.

    Raises:
        InvalidArgumentError: The number is 0, or too large.

    Example:
        >>> gr.layout.row_partition(4).tile_shape((10, 3), (3, 0))
        (1, 3)
    """
    return Layout.row_partition(num_pes)


def col_partition(num_pes: int) -> Layout:
    """The second axis is split over PEs, one in each column.

    Args:
        num_pes: The number of PEs.

    Returns:
        A layout.

    Raises:
        InvalidArgumentError: The number is 0, or too large.

    Example:
        >>> gr.layout.col_partition(4).tile_shape((10, 8))
        (10, 2)
    """
    return Layout.col_partition(num_pes)


def grid(rows: int, cols: int) -> Layout:
    """The first axis is split over rows, the second one over columns of PEs.

    Args:
        rows: The number of rows.
        cols: The number of columns.

    Returns:
        A layout.

    Raises:
        InvalidArgumentError: A number is 0, or too large.

    Example:
        >>> gr.layout.grid(32, 32).tile_shape((1024, 1024))
        (32, 32)
    """
    return Layout.grid(rows, cols)


def block_cyclic(rows: int, cols: int, block_rows: int, block_cols: int) -> Layout:
    """A grid whose PEs get blocks in turn.

    Args:
        rows: The number of rows.
        cols: The number of columns.
        block_rows: The rows of a block.
        block_cols: The columns of a block.

    Returns:
        A layout.

    Raises:
        InvalidArgumentError: A number is 0, or too large.

    Example:
        >>> gr.layout.block_cyclic(2, 1, 2, 4).rectangles((6, 4))
        [((0, 0), (2, 4)), ((4, 0), (2, 4))]
    """
    return Layout.block_cyclic(rows, cols, block_rows, block_cols)


def replicated(rows: int, cols: int) -> Layout:
    """Every PE has the whole tensor.

    Args:
        rows: The number of rows.
        cols: The number of columns.

    Returns:
        A layout.

    Raises:
        InvalidArgumentError: A number is 0, or too large.

    Example:
        >>> gr.layout.replicated(2, 2).memory_usage((8, 8))["total"]
        1024
    """
    return Layout.replicated(rows, cols)


def custom(
    rows: int,
    cols: int,
    shape: int | Sequence[int],
    tiles: Sequence[_Tile] | Callable[[int, int], _Tile],
) -> Layout:
    """A table says which rectangle of a tensor each PE has.

    Args:
        rows: The number of rows.
        cols: The number of columns.
        shape: The shape of the tensors that the layout is for.
        tiles: The rectangle of each PE as (start, extent): a list in row-major order, or a function
            of row and column.

    Returns:
        A layout.

    Raises:
        InvalidArgumentError: The rectangles do not cover each element once.

    Example:
        >>> halves = gr.layout.custom(2, 1, (4,), [([3], [1]), ([0], [3])])
        >>> halves.tile_shape((4,), (1, 0))
        (3,)
    """
    return Layout.custom(rows, cols, shape, tiles)


def auto(shape: int | Sequence[int], dtype: _DTypeLike = "float32") -> Layout:
    """The layout with the fewest PEs of a WSE-2 on which a tensor fits.

    Among equals it is the one whose tile is most nearly square, then the one with fewer rows. Tiles
    have at most 32,768 bytes. :class:`LayoutPlanner` chooses within other limits.

    Args:
        shape: The shape of the tensor.
        dtype: Its dtype.

    Returns:
        A layout.

    Raises:
        OutOfMemoryError: No layout fits.

    Example:
        >>> print(gr.layout.auto((1024, 1024)), gr.layout.auto((8192,)))
        Grid(8, 16) SinglePE
    """
    return Layout.auto(shape, dtype)


def _parts(tensor: Any, layout: Layout | None, dtype: Any) -> tuple[Any, Layout, Any]:
    """Shape, layout and dtype of a tensor, or of a shape with a layout."""
    if layout is None:
        layout = getattr(tensor, "layout", None)
    if not isinstance(layout, Layout):
        raise InvalidArgumentError("the tensor has no layout; give layout=Layout.grid(2, 2)")
    if dtype is None:
        dtype = getattr(tensor, "dtype", "float32")
    return getattr(tensor, "shape", tensor), layout, dtype


def get_tile_shape(
    tensor: Any, pe_coord: tuple[int, int] = (0, 0), layout: Layout | None = None
) -> tuple[int, ...]:
    """The shape of the part of a tensor that a PE has.

    Args:
        tensor: A tensor, or its shape.
        pe_coord: The PE as (row, column).
        layout: The layout. Default: that of the tensor.

    Returns:
        The sizes; some are 0 if the PE has no elements.

    Raises:
        InvalidArgumentError: There is no layout.
        IndexOutOfBoundsError: The layout has no such PE.
        ShapeError: The layout is for tensors of another rank.

    Example:
        >>> gr.layout.get_tile_shape(gr.ones((10, 4)), (1, 0), gr.layout.grid(4, 2))
        (3, 2)
    """
    shape, layout, _ = _parts(tensor, layout, None)
    return layout.tile_shape(shape, pe_coord)


def memory_usage_per_pe(
    tensor: Any, layout: Layout | None = None, dtype: _DTypeLike | None = None
) -> dict[str, int | float]:
    """The bytes that the PEs of a layout have of a tensor.

    Args:
        tensor: A tensor, or its shape.
        layout: The layout. Default: that of the tensor.
        dtype: The dtype. Default: that of the tensor; of a shape float32.

    Returns:
        The bytes of the smallest tile ("min") and of the largest one ("max"), their mean over all
        PEs ("average") and their sum ("total").

    Raises:
        InvalidArgumentError: There is no layout.
        ShapeError: The layout is for tensors of another rank.

    Example:
        >>> gr.layout.memory_usage_per_pe((1024, 1024), gr.layout.grid(32, 32))
        {'min': 4096, 'max': 4096, 'average': 4096.0, 'total': 4194304}
    """
    shape, layout, dtype = _parts(tensor, layout, dtype)
    return layout.memory_usage(shape, dtype)


def transform(
    src: Layout | str,
    dst: Layout | str,
    shape: int | Sequence[int],
    dtype: _DTypeLike = "float32",
) -> Transform:
    """The transfers between PEs that change the layout of a tensor, and what they cost.

    A PE that several can serve gets its elements from the nearest, the one that has sent least
    among equals.

    Args:
        src: The layout before.
        dst: The layout after.
        shape: The shape of the tensor.
        dtype: Its dtype.

    Returns:
        The kind of change, its cost, and all pieces of the new tiles.

    Raises:
        InvalidArgumentError: A layout has too many PEs.
        ShapeError: A layout is for tensors of another rank.

    Example:
        >>> found = gr.layout.transform("Grid(2, 2)", "Grid(1, 4)", (4, 4))
        >>> found.type, found.bytes_moved, len(found.transfers)
        ('RESHARD', 56, 8)
    """
    return _girih.layout_transform(src, dst, shape, dtype)


def plan_memory(
    graph: Program,
    layouts: GraphLayouts | Layout | str | Mapping[str | int, Layout | str],
    budget: MemoryBudget | None = None,
) -> MemoryPlan:
    """Where the PEs have the tiles of a program's values, planned by their live ranges.

    All PEs have a value at the same offset. An elementwise op writes over an operand that nobody
    reads later.

    Args:
        graph: A program, as :func:`girih.make_graph` gives it.
        layouts: What a :class:`LayoutPlanner` gives, the layout of each value by the name or number
            of its node, or one layout for all values; all its PEs have those of too low a rank.
        budget: The memory of a PE. Default: 48 KB less 8 KB for code and 4 KB for the stack.

    Returns:
        The plan.

    Raises:
        OutOfMemoryError: A PE has too little memory; the message names it, the largest value and a
            layout that fits.
        InvalidArgumentError: A value has no layout.

    Example:
        >>> graph = gr.make_graph(lambda x: gr.exp(-x))(gr.ones((64, 64)))
        >>> gr.layout.plan_memory(graph, gr.layout.grid(2, 2)).max_pe_memory_used
        4096
    """
    return _girih.layout_plan_memory(graph, layouts, budget)


explain_public(globals())

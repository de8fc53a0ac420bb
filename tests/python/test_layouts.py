"""Layouts on processing elements (PEs): tiles, transfers, plans of layouts and of memory. The figures
are those of the documents that the requirements come from, by the numbers of `docs/seeds.md`.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import random

import girih as gr
import numpy as np
import pytest
from girih.layout import (
    Layout,
    LayoutPlanner,
    MemoryBudget,
    get_tile_shape,
    memory_usage_per_pe,
    plan_memory,
    transform,
)

#: A planner without a limit of memory, for examples that are too large for a PE.
UNLIMITED = LayoutPlanner(max_memory_per_pe=1 << 40)
DIAGONAL = Layout.custom(2, 2, (4, 4), lambda r, c: ([2 * r, 2 * ((r + c) % 2)], [2, 2]))


def graph(fun, *shapes):
    return gr.make_graph(fun)(*(gr.zeros(shape) for shape in shapes))


def moves(plan):
    """The transforms of a plan, without the layouts."""
    lines = str(plan).splitlines()
    return [line for line in lines if " to " in line]


# Layouts.


def test_layouts_in_every_form():
    """ML-107: constructors, functions and text."""
    module = gr.layout
    for made, function, text, pes in [
        (Layout.single_pe(), module.single_pe(), "SinglePE", 1),
        (Layout.row_partition(4), module.row_partition(4), "RowPartition(4)", 4),
        (Layout.col_partition(4), module.col_partition(4), "ColPartition(4)", 4),
        (Layout.grid(11, 12), module.grid(11, 12), "Grid(11, 12)", 132),
        (
            Layout.block_cyclic(2, 3, 4, 5),
            module.block_cyclic(2, 3, 4, 5),
            "BlockCyclic(2, 3, 4, 5)",
            6,
        ),
        (Layout.replicated(2, 2), module.replicated(2, 2), "Replicated(2, 2)", 4),
    ]:
        assert made == function == Layout(text)
        assert (str(made), made.total_pes, made.pe_rows * made.pe_cols) == (text, pes, pes)
        assert made != Layout("Grid(7, 7)")
    table = [((0, 0), (2, 4)), ((2, 0), (2, 4))]
    assert module.custom(2, 1, (4, 4), table) == Layout.custom(2, 1, [4, 4], table)
    assert str(Layout.grid(4, 8).with_axes(["col", None, "row"])) == "Grid(4, 8)[1, -1, 0]"


@pytest.mark.parametrize(
    "made",
    [Layout("Grid(4, 8)[1, -1, 0]"), Layout.single_pe(), DIAGONAL, MemoryBudget(1000, 1, 2, 3)],
    ids=str,
)
def test_what_repr_writes_and_pickles_and_copies_are_equal(made):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        found = pickle.loads(pickle.dumps(made, protocol))
        assert (found, hash(found), repr(found)) == (made, hash(made), repr(made))
    assert copy.deepcopy(made) == copy.copy(made) == eval(repr(made)) == made


def test_the_documented_layouts_of_a_matrix():
    """ML-27, 28."""
    rows, shape = Layout.row_partition(4), (1024, 1024)
    tiles = [rows.rectangles(shape, (row, 0)) for row in range(4)]
    bounds = [(start[0], start[0] + extent[0] - 1) for [(start, extent)] in tiles]
    assert bounds == [(0, 255), (256, 511), (512, 767), (768, 1023)]
    usage = memory_usage_per_pe(shape, rows)
    assert (usage["min"], usage["max"]) == (1 << 20, 1 << 20)
    with pytest.raises(gr.OutOfMemoryError, match=r"1048576 B, more than the 32768 B"):
        LayoutPlanner().check(rows, shape)
    grid = Layout.grid(32, 32)
    assert get_tile_shape(shape, (31, 31), grid) == (32, 32)
    usage = memory_usage_per_pe(shape, grid)
    assert (usage["max"], usage["total"], grid.total_pes) == (4096, 1 << 22, 1024)
    LayoutPlanner().check(grid, shape)


def test_layouts_that_are_found_fit():
    """ML-30, 31, 33, 34, 35, 37, 40, 108."""

    def auto(*shape, dtype="float32"):
        assert Layout.auto(shape, dtype) == gr.layout.auto(shape, dtype)
        return str(LayoutPlanner().auto(shape, dtype))

    assert auto(8192) == "SinglePE"
    assert auto(8193) == "RowPartition(2)"
    assert auto(1024, 1024) == "Grid(8, 16)"
    assert Layout.auto((1024, 1024)).tile_shape((1024, 1024)) == (128, 64)
    assert memory_usage_per_pe((1024, 1024), Layout.auto((1024, 1024)))["max"] == 32_768
    assert Layout.auto((1024, 1024), gr.float16).total_pes == 64
    assert LayoutPlanner().min_pes_required((1024, 1024)) == 128
    assert auto(8_388_608) == "Grid(2, 512)[0+1]"
    assert auto(dtype="float64") == auto(0, 7) == "SinglePE"
    for shape in [(1024, 4, 4, 4), (512, 4, 4, 4), (65_536, 4), (1000, 1000), (1100, 1000)]:
        layout = Layout.auto(shape)
        LayoutPlanner().check(layout, shape)
        least = LayoutPlanner().min_pes_required(shape)
        assert least <= layout.total_pes <= least + 2


def test_each_constraint_counts():
    """ML-29."""

    def layout(**constraints):
        return str(LayoutPlanner(**constraints).auto((1024, 1024)))

    assert layout() == "Grid(8, 16)"
    assert layout(max_memory_per_pe=8192) == "Grid(16, 32)"
    assert layout(max_pe_rows=4) == "Grid(4, 32)"
    assert layout(max_pe_cols=4) == "Grid(32, 4)"
    assert layout(prefer_square_tiles=False) == "Grid(1, 128)"
    with pytest.raises(gr.OutOfMemoryError, match="no layout fits"):
        layout(min_tile_elements=10_000)


def test_no_layout_that_is_found_exceeds_its_limit():
    """ML-32."""
    rng = random.Random(5)
    for index in range(10_000):
        shape = [2 ** rng.randrange(12) + rng.randrange(3) for _ in range(rng.randint(1, 4))]
        dtype = rng.choice(["float16", "float32", "float64"])
        try:
            layout = Layout.auto(shape, dtype)
        except gr.OutOfMemoryError:
            continue
        LayoutPlanner(min_tile_elements=1).check(layout, shape, dtype)
        if index % 10:
            continue
        usage = memory_usage_per_pe(shape, layout, dtype)
        size = int(np.prod(shape, dtype=object)) * gr.DType(dtype).itemsize
        assert usage["max"] <= 32_768
        assert usage["total"] == size


def test_the_weights_of_the_documented_network():
    """ML-111, 114, 115, 116."""

    def usage(shape, layout, dtype="float32"):
        found = memory_usage_per_pe(shape, layout, dtype)
        return found["min"], found["max"], round(found["average"], 6), found["total"]

    grids = [Layout.grid(11, 12), Layout.grid(5, 7)]
    assert [grid.total_pes for grid in grids] == [132, 35]
    assert grids[0].tile_shape((1024, 512)) == (94, 43)
    assert grids[1].tile_shape((512, 256)) == (103, 37)
    assert usage((1024, 512), grids[0]) == (13_104, 16_168, 15_887.515152, 2_097_152)
    assert usage((512, 256), grids[1]) == (13_600, 15_244, 14_979.657143, 524_288)
    assert usage((256, 10), Layout.single_pe()) == (10_240, 10_240, 10_240.0, 10_240)
    assert usage((2, 2), Layout.grid(3, 3)) == (0, 4, 1.777778, 16)
    assert usage((4, 4), Layout.grid(2, 2), "int8") == (4, 4, 4.0, 16)
    weights = gr.zeros((4, 4), dtype=gr.float64)
    assert memory_usage_per_pe(weights, Layout.grid(2, 2))["total"] == 128


def test_tiles_of_tensors():
    """ML-110: shapes, tensors, and objects that have a layout."""
    x = gr.zeros((10, 3))
    assert get_tile_shape(x, layout=Layout.row_partition(4)) == (3, 3)
    assert get_tile_shape((10, 3), (3, 0), Layout.row_partition(4)) == (1, 3)

    class Held:
        shape, dtype, layout = (10, 3), gr.float16, Layout.row_partition(4)

    assert get_tile_shape(Held(), (3, 0)) == (1, 3)
    assert memory_usage_per_pe(Held()) == {"min": 6, "max": 18, "average": 15.0, "total": 60}
    with pytest.raises(gr.IndexOutOfBoundsError, match=r"\[4, 0\] is outside of \[4, 1\]"):
        get_tile_shape(x, (4, 0), Layout.row_partition(4))
    with pytest.raises(gr.InvalidArgumentError, match="has no layout"):
        get_tile_shape(x)


def test_a_layout_is_a_sharding_over_rows_and_columns():
    found = Layout.grid(2, 4).sharding(3)
    assert (found.spec, found.mesh.shape, found.mesh.is_ghost) == (
        gr.P("row", "col", None),
        (2, 4),
        True,
    )
    assert Layout("Grid(2, 4)[0+1]").sharding(1).spec == gr.P(("row", "col"))
    assert Layout.block_cyclic(2, 2, 1, 1).sharding(2) is None
    assert DIAGONAL.sharding(2) is None
    assert Layout.grid(4, 1).compatible_with(Layout.row_partition(4), (10, 3))
    assert not Layout.grid(4, 4).compatible_with(Layout.grid(4, 8), (8, 8))


# Transforms.


def applied(found, src, dst, shape):
    """The new tiles that the transfers make of the old tiles of a numbered tensor."""
    whole = np.arange(int(np.prod(shape))).reshape(shape)
    tiles = {}
    for pe in itertools.product(range(src.pe_rows), range(src.pe_cols)):
        tile = tiles[pe] = np.zeros(src.tile_shape(shape, pe), int)
        parts = src.rectangles(shape, pe)
        mask = np.zeros(whole.shape, bool)
        for start, extent in parts:
            mask[tuple(slice(s, s + e) for s, e in zip(start, extent, strict=True))] = True
        # Elements are in a tile in their order in the tensor, axis by axis.
        kept = [np.flatnonzero(mask.any(axis=1 - axis)) for axis in range(2)]
        tile[...] = whole[np.ix_(*kept)] if tile.size else 0
    made = {
        pe: np.full(dst.tile_shape(shape, pe), -1)
        for pe in itertools.product(range(dst.pe_rows), range(dst.pe_cols))
    }
    for t in found.transfers:
        here = tuple(slice(s, s + e) for s, e in zip(t.source_start, t.extent, strict=True))
        there = tuple(slice(s, s + e) for s, e in zip(t.target_start, t.extent, strict=True))
        assert (made[t.target][there] == -1).all()
        made[t.target][there] = tiles[t.source][here]
    return made


def test_transfers_give_the_new_tiles():
    """ML-76, 80."""
    layouts = [
        *map(Layout, ["SinglePE", "RowPartition(3)", "ColPartition(2)", "Grid(2, 3)"]),
        *map(Layout, ["BlockCyclic(2, 2, 1, 2)", "Replicated(2, 2)", "Grid(2, 3)[1, 0]"]),
        Layout.custom(2, 1, (5, 4), [((3, 0), (2, 4)), ((0, 0), (3, 4))]),
    ]
    for src, dst in itertools.product(layouts, layouts):
        found = transform(src, dst, (5, 4))
        # Tiles of `dst` by a transform that does not move: from itself.
        expected = applied(transform(dst, dst, (5, 4)), dst, dst, (5, 4))
        made = applied(found, src, dst, (5, 4))
        assert all((made[pe] == expected[pe]).all() for pe in expected), (src, dst)
        crossing = [t for t in found.transfers if not t.is_local]
        assert found.bytes_moved == 4 * sum(int(np.prod(t.extent)) for t in crossing)


def test_transforms_have_types():
    """ML-67."""
    for src, dst, kind in [
        ("Grid(4, 1)", "RowPartition(4)", "IDENTITY"),
        ("RowPartition(4)", "Grid(1, 4)[1, -1]", "REDISTRIBUTE"),
        ("SinglePE", "Replicated(2, 2)", "REPLICATE"),
        ("Grid(4, 4)", "SinglePE", "GATHER"),
        ("SinglePE", "BlockCyclic(2, 2, 1, 1)", "SCATTER"),
        ("Grid(2, 4)", "Grid(2, 4)[1, 0]", "TRANSPOSE"),
        ("Grid(2, 4)", "Grid(4, 2)", "RESHARD"),
    ]:
        assert transform(src, dst, (8, 8)).type == kind
        assert transform(Layout(src), Layout(dst), (8, 8)).type == kind


def test_the_documented_costs():
    """ML-68, 70, 72, 73, 74."""
    shape = (1024, 1024)

    def cost(src, dst, dtype="float32"):
        found = transform(src, dst, shape, dtype)
        return found.bytes_moved, found.wavelets, found.wavelet_hops, found.critical_path

    assert cost("Grid(4, 4)", "Grid(4, 4)") == (0, 0, 0, 0)
    gather = cost("Grid(4, 4)", "SinglePE")
    assert gather == (15 << 18, 15 << 16, 3_145_728, (15 << 16) + 6)
    assert cost("SinglePE", "Grid(4, 4)") == gather
    assert cost("Grid(4, 4)", "SinglePE", "float16")[0] == 15 << 17
    assert cost("SinglePE", "Replicated(4, 4)")[2] == (1 << 20) * 15
    assert cost("Grid(4, 4)", "Replicated(4, 4)")[:3:2] == (15 << 22, (1 << 20) * 15)


def test_the_hops_of_a_redistribution_are_those_of_its_transfers():
    """ML-71: the mean of all pairs of 4 x 4 PEs is 2.5 hops."""
    hops = 0
    for down, right in itertools.product(range(4), range(4)):

        def tile(row, col, down=down, right=right):
            return ((row + down) % 4, (col + right) % 4), (1, 1)

        found = transform("Grid(4, 4)", Layout.custom(4, 4, (4, 4), tile), (4, 4))
        assert found.type == ("IDENTITY" if down == right == 0 else "REDISTRIBUTE")
        hops += found.wavelet_hops
    assert hops / 256 == 2.5


def test_the_documented_gather_and_scatter():
    """ML-77, 78."""
    found = transform("RowPartition(4)", "SinglePE", (10, 3))
    pieces = [(t.source, t.start, t.extent) for t in found.transfers]
    assert pieces == [
        ((0, 0), (0, 0), (3, 3)),
        ((1, 0), (3, 0), (3, 3)),
        ((2, 0), (6, 0), (3, 3)),
        ((3, 0), (9, 0), (1, 3)),
    ]
    found = transform("SinglePE", "Grid(2, 2)", (4, 4))
    pieces = [(t.target, t.source_start, t.target_start) for t in found.transfers]
    assert pieces == [
        ((0, 0), (0, 0), (0, 0)),
        ((0, 1), (0, 2), (0, 0)),
        ((1, 0), (2, 0), (0, 0)),
        ((1, 1), (2, 2), (0, 0)),
    ]


def test_the_documented_reshards():
    """ML-79."""

    def facts(src, dst, shape):
        found = transform(src, dst, shape)
        crossing = sum(not t.is_local for t in found.transfers)
        return len(found.transfers), crossing, found.bytes_moved, 4 * found.wavelet_hops

    assert facts("Grid(2, 2)", "Grid(1, 4)", (4, 4)) == (8, 7, 56, 96)
    large = facts("Grid(4, 4)", "Grid(2, 8)", (1024, 1024))
    assert large == (32, 31, 4_063_232, 12_582_912)


# Plans of layouts.


def product(a, b, c=None, sizes=(64, 64, 64)):
    n, k, m = sizes
    program = graph(lambda a, b: a @ b, (n, k), (k, m))
    result = program.nodes[-1].id
    given = {"a": a, "b": b} | ({} if c is None else {result: c})
    return UNLIMITED.plan(program, given)


def test_the_documented_matrix_products():
    """ML-65, 88, 89, 102: the smaller operand is replicated."""
    sizes = (1024, 512, 256)
    plan = product("RowPartition(4)", "ColPartition(4)", sizes=sizes)
    assert moves(plan) == ["%1 to Replicated(4, 1): REPLICATE, 1966080 B"]
    assert plan.layouts[2] == Layout.row_partition(4)
    plan = product("RowPartition(4)", "Grid(4, 1)[-1, 0]", sizes=sizes)
    assert moves(plan) == ["%1 to Replicated(4, 1): REPLICATE, 1572864 B"]

    def replicated(src, dst, shape):
        return transform(src, dst, shape).bytes_moved

    assert replicated("Grid(1, 4)[1, -1]", "Replicated(1, 4)", (1024, 512)) == 6_291_456
    assert replicated("RowPartition(4)", "Replicated(1, 4)", (1024, 512)) == 7_864_320
    # Grids: each PE has its rows of A and its columns of B.
    plan = product("Grid(4, 4)", "Grid(4, 4)", "Grid(4, 4)")
    assert [(t["value"], str(t["to"])) for t in plan.operands] == [
        (0, "Grid(4, 4)[0, -1]"),
        (1, "Grid(4, 4)[-1, 1]"),
    ]
    assert plan.cost["bytes_moved"] == 2 * 12 * 64 * 64 * 4 / 4
    given = product("Grid(2, 8)", "Grid(4, 4)[-1, 1]", "Grid(4, 4)")
    assert [(t["value"], t["type"]) for t in given.operands] == [(0, "RESHARD")]
    assert product("Grid(4, 4)[0, -1]", "Grid(4, 4)[-1, 1]").num_transforms == 0


def test_a_bias_is_replicated_along_the_other_axis():
    """ML-87."""
    program = graph(lambda x, bias: (x + bias) * 0.5, (64, 512), (512,))
    plan = LayoutPlanner().plan(program, {"x": Layout.grid(4, 4)})
    [bias] = plan.operands
    assert (bias["value"], str(bias["to"]), bias["bytes_moved"]) == (
        1,
        "Grid(4, 4)[1]",
        15 * 128 * 4,
    )
    plan_memory(program, plan)


def test_a_sum_of_a_grid_combines_partial_sums():
    """ML-90: 15 numbers move."""
    program = graph(lambda x: (x.sum(), x.sum(axis=1)), (64, 64))
    plan = LayoutPlanner().plan(program, {"x": "Grid(4, 4)"})
    whole, rows = plan.results
    assert whole["spec"] == gr.P(partial={"row": "add", "col": "add"})
    assert (whole["to"], whole["bytes_moved"]) == (Layout.single_pe(), 60)
    assert rows["spec"] == gr.P("row", partial={"col": "add"})
    assert (rows["to"], rows["bytes_moved"]) == (Layout.row_partition(4), 12 * 16 * 4)
    plan_memory(program, plan)


def test_a_value_is_transformed_once_for_all_users():
    """ML-85, 86."""
    program = graph(lambda x: (x * x, -x), (64, 64))
    x, square, negated = (node.id for node in program.nodes)
    given = {x: "RowPartition(4)", square: "Grid(2, 2)", negated: "Grid(2, 2)"}
    plan = LayoutPlanner().insert_transforms(program, given)
    assert plan.num_transforms == 1
    assert plan.operands[0]["users"] == [(square, 0), (square, 1), (negated, 0)]
    assert str(LayoutPlanner().insert_transforms(program, given)) == str(plan)
    assert len(plan_memory(program, plan).placements) == 4
    assert len(plan_memory(program, given).placements) == 4


def network(x, w1, b1, w2, b2, w3, b3):
    for w, b in [(w1, b1), (w2, b2), (w3, b3)]:
        x = gr.relu(x @ w + b)
    return x


def documented_network():
    widths = [(1024, 512), (512, 256), (256, 10)]
    shapes = [shape for n, m in widths for shape in ((n, m), (m,))]
    return graph(network, (32, 1024), *shapes)


def test_the_documented_network_fits_in_the_memory_of_the_pes():
    """ML-39, 63, 118."""
    program, planner = documented_network(), LayoutPlanner()
    plan = planner.plan(program)
    with pytest.raises(gr.OutOfMemoryError, match=r"^PE \(0, 0\) exceeds memory: \d+ > 36864"):
        plan_memory(program, plan)
    # Each value where it needs the fewest PEs.
    fewest = {node.id: Layout.auto(node.shape) for node in program.nodes}
    greedy = planner.insert_transforms(program, fewest)
    assert plan.cost["bytes_moved"] <= greedy.cost["bytes_moved"]
    layouts, memory = planner.plan_within(program)
    assert memory.max_pe_memory_used <= 36_864
    assert memory.max_pe_memory_used < memory.without_reuse
    assert plan_memory(program, layouts).placements == memory.placements


def test_the_documented_weights_are_used_where_they_are():
    """ML-119: the transforms of the documented layouts, and their bytes."""
    program = documented_network()
    given = {"w1": Layout.grid(11, 12), "w2": Layout.grid(5, 7), "w3": Layout.single_pe()}
    plan = LayoutPlanner().plan(program, given)
    kinds = [(t["type"], str(t["to"]), t["bytes_moved"]) for t in plan.operands]
    assert kinds == [
        ("RESHARD", "Grid(11, 12)[-1, 0]", 1_560_832),
        ("SCATTER", "Grid(1, 12)[1]", 1876),
        ("RESHARD", "Grid(5, 7)[-1, 0]", 445_568),
        ("SCATTER", "Grid(1, 7)[1]", 876),
        ("SCATTER", "Grid(1, 7)[1, -1]", 8760),
    ]
    partial = [(str(t["spec"]), str(t["to"]), t["bytes_moved"]) for t in plan.results]
    assert partial == [
        ("<*, col; partial={row: add}>", "ColPartition(12)", 655_360),
        ("<*, col; partial={row: add}>", "ColPartition(7)", 131_072),
        ("<*, *; partial={col: add}>", "SinglePE", 7680),
    ]


def test_the_documented_script_prints_the_layouts_of_its_weights(capsys):
    """ML-117."""
    for n, m in [(1024, 512), (512, 256), (256, 10)]:
        tiles = -(-n * m // 4096)
        rows = int(tiles**0.5)
        small = n * m * 4 <= 32 * 1024
        layout = Layout.single_pe() if small else Layout.grid(rows, -(-tiles // rows))
        print(f"Linear({n}, {m}):")
        print(f"  Weight layout: {layout}")
        print(f"  PEs used: {layout.pe_rows * layout.pe_cols}")
        print(f"  Memory per PE: {memory_usage_per_pe((n, m), layout)}")
    assert capsys.readouterr().out == (
        "Linear(1024, 512):\n  Weight layout: Grid(11, 12)\n  PEs used: 132\n  Memory per PE: "
        "{'min': 13104, 'max': 16168, 'average': 15887.515151515152, 'total': 2097152}\n"
        "Linear(512, 256):\n  Weight layout: Grid(5, 7)\n  PEs used: 35\n  Memory per PE: "
        "{'min': 13600, 'max': 15244, 'average': 14979.657142857142, 'total': 524288}\n"
        "Linear(256, 10):\n  Weight layout: SinglePE\n  PEs used: 1\n  Memory per PE: "
        "{'min': 10240, 'max': 10240, 'average': 10240.0, 'total': 10240}\n"
    )


def test_plans_of_trees_are_as_cheap_as_the_best_of_all_assignments():
    """ML-103."""
    layouts = ["SinglePE", "RowPartition(2)", "Grid(2, 2)", "Grid(2, 2)[1, 0]"]
    trees = [
        (lambda a, b, c: (a @ b) + c.T, 3),
        (lambda a, b: gr.softmax(a + b, axis=1), 2),
        (lambda a, b: (a.T @ b).T, 2),
        (lambda a: gr.exp(-a.T), 1),
    ]
    planner = LayoutPlanner()
    rng = random.Random(1)

    def cost(plan):
        return tuple(plan.cost.values())

    for fun, operands in trees:
        program = graph(fun, *[(8, 8)] * operands)
        ids = [node.id for node in program.nodes]
        assert len(ids) <= 8
        allowed = {node: rng.sample(layouts, 2 if len(ids) > 5 else 3) for node in ids}
        best = min(
            cost(planner.insert_transforms(program, dict(zip(ids, chosen, strict=True))))
            for chosen in itertools.product(*allowed.values())
        )
        assert cost(planner.plan(program, allowed)) == best


# Plans of memory.


def test_a_budget_reserves_code_stack_and_routing():
    """ML-06, 49."""
    budget = MemoryBudget()
    assert (budget.total, budget.code, budget.stack, budget.routing) == (49_152, 8192, 4096, 0)
    assert (budget.data, MemoryBudget(routing=2048).data) == (36_864, 34_816)
    with pytest.raises(gr.OutOfMemoryError, match="leaves no memory for data; reserve less"):
        _ = MemoryBudget(code=50_000).data


def test_double_buffers_fill_the_data_memory():
    """ML-105."""
    regions = MemoryBudget().double_buffer(4096)
    assert [region[:2] for region in regions] == [(0, 16_384), (16_384, 16_384), (32_768, 4096)]
    less = MemoryBudget(routing=2048).double_buffer(4096)
    assert (less[0][1], sum(less[-1][:2])) == (15_360, 34_816)
    with pytest.raises(gr.OutOfMemoryError, match="no room for two buffers"):
        MemoryBudget().double_buffer(36_860)


def test_a_plan_that_does_not_fit_is_refused_with_a_cure():
    """ML-26, 50, 51, 52, 53."""
    program = graph(lambda x: x, (10_000,))
    with pytest.raises(gr.OutOfMemoryError) as caught:
        plan_memory(program, Layout.single_pe())
    assert str(caught.value) == (
        "PE (0, 0) exceeds memory: 40000 > 36864 (49152 B - 8192 B code - 4096 B stack - 0 B "
        "routing), as do 1 of 1 PEs; the largest region is tensor_0 of %0 with 40000 B as "
        "SinglePE; use RowPartition(2)"
    )
    with pytest.raises(gr.OutOfMemoryError, match="as do 4 of 4 PEs"):
        plan_memory(program, Layout.replicated(2, 2))
    program = graph(lambda *xs: sum(xs[1:], xs[0]), *[(1024,)] * 10)
    with pytest.raises(gr.OutOfMemoryError, match=r"^PE \(0, 0\) exceeds memory: 40960 > 36864"):
        plan_memory(program, "SinglePE")
    with pytest.raises(gr.InvalidArgumentError, match="no layout for %0; give each value"):
        plan_memory(program, {})
    with pytest.raises(
        gr.OutOfMemoryError, match=r"4194304 B, more than the 32768 B.*Grid\(8, 16\)"
    ):
        LayoutPlanner().check("SinglePE", (1024, 1024))


def chain(step, length):
    def run(x):
        for _ in range(length):
            x = step(x)
        return x

    return run


def test_values_take_the_place_of_values_that_are_dead():
    """ML-56, 57, 58, 60, 61."""

    def peak(fun, *shapes):
        return plan_memory(graph(fun, *shapes), "SinglePE").max_pe_memory_used

    assert peak(chain(lambda x: x.T, 10), (16, 16)) == 2 * 1024
    # A transpose of a transpose may be recorded as such; a product cannot be written over.
    assert peak(chain(lambda x: x @ x, 10), (16, 16)) == 2 * 1024
    assert peak(lambda x: (x @ x) @ (x.T @ x), (16, 16)) >= 3 * 1024
    assert peak(chain(lambda x: gr.sin(x), 10), (16, 16)) == 1024
    assert peak(lambda x: (gr.sin(x), x), (256,)) == 2 * 1024
    plan = plan_memory(graph(chain(lambda x: gr.sin(x), 10), (16, 16)), "Grid(2, 2)")
    assert (plan.max_pe_memory_used, plan.without_reuse) == (256, 11 * 256)
    assert (plan.total_memory_used, plan.mesh) == (1024, (2, 2))
    assert plan.average_utilization == pytest.approx(256 / 36_864)
    assert plan.free_bytes((1, 1)) == 36_864 - 256
    assert {name for _, _, name in plan.regions((0, 1))} == {f"tensor_{n}" for n in range(11)}


def test_all_pes_have_what_one_layout_does_not_divide():
    plan = plan_memory(graph(lambda x: (x * 2).sum(), (64, 64)), "Grid(2, 2)")
    found = {p["name"]: str(p["layout"]) for p in plan.placements if p["layout"] is not None}
    assert found["tensor_0"] == "Grid(2, 2)"
    assert found[plan.placements[-1]["name"]] == "Replicated(2, 2)"


def test_a_transform_has_old_and_new_tiles_at_once():
    """ML-62."""
    program = graph(lambda x: -x, (64, 64))
    given = {"x": "RowPartition(4)", 1: "Grid(2, 2)"}
    plan = plan_memory(program, given)
    assert [p["name"] for p in plan.placements] == ["tensor_0", "transform_0_1_0", "tensor_1"]
    assert plan.max_pe_memory_used == 3 * 4096
    with pytest.raises(gr.OutOfMemoryError, match="exceeds memory"):
        plan_memory(program, given, MemoryBudget(3 * 4096 - 1, 0, 0, 0))


WRONG = [
    (lambda: Layout("Tree(3)"), gr.FormatError, "no layout; expected SinglePE"),
    (lambda: Layout.grid(0, 2), gr.InvalidArgumentError, "number of rows is 0"),
    (lambda: Layout.grid(2**40, 2**30), gr.InvalidArgumentError, "counted"),
    (lambda: Layout.grid(2**20, 2**10), gr.InvalidArgumentError, "16777216 at most"),
    (lambda: Layout.grid(-1, 2), gr.InvalidArgumentError, "unsigned"),
    (lambda: Layout.block_cyclic(1, 1, 0, 1), gr.InvalidArgumentError, "rows of a block is 0"),
    (lambda: Layout.custom(1, 2, (2,), [((0,), (2,))]), gr.InvalidArgumentError, "1 rectangles"),
    (
        lambda: Layout.custom(1, 2, (2,), [((0,), (2,)), ((1,), (1,))]),
        gr.InvalidArgumentError,
        "elements in common",
    ),
    (lambda: Layout.custom(2**20, 1, (2,), len), gr.InvalidArgumentError, "use fewer"),
    (lambda: Layout.grid(2, 2).with_axes(["up"]), gr.InvalidArgumentError, "'both' or None"),
    (lambda: Layout.grid(2, 2).with_axes(["row"] * 2), gr.InvalidArgumentError, "one axis at"),
    (lambda: Layout.grid(2, 2).tile_shape((3,)), gr.ShapeError, "rank 1"),
    (lambda: Layout.grid(2, 2).tile_shape((3, 3), (2, 0)), gr.IndexOutOfBoundsError, "outside"),
    (lambda: Layout.grid(2, 2).tile_shape((3, -3)), gr.InvalidArgumentError, "at least 0"),
    (lambda: Layout.auto((4,), "float31"), gr.DTypeError, "float31"),
    (lambda: Layout.auto((2**20, 2**20)), gr.OutOfMemoryError, "no layout fits"),
    (lambda: transform("Grid(2, 2)", 3, (4, 4)), gr.DTypeError, "a Layout"),
    (lambda: transform("Grid(2, 2)", "SinglePE", (4,)), gr.ShapeError, "rank 1"),
    (lambda: LayoutPlanner().plan(3), gr.DTypeError, "a Program"),
    (
        lambda: LayoutPlanner().plan(graph(lambda x: -x, (4,)), {"y": "SinglePE"}),
        gr.InvalidArgumentError,
        "called 'y'; its arguments are x",
    ),
    (
        lambda: LayoutPlanner().plan(graph(lambda x: -x, (4,)), {7: "SinglePE"}),
        gr.IndexOutOfBoundsError,
        "no node 7",
    ),
    (
        lambda: LayoutPlanner().plan(graph(lambda x: -x, (10_000,)), {"x": ["SinglePE"]}),
        gr.OutOfMemoryError,
        "40000 B, more than the 32768 B",
    ),
    (
        lambda: LayoutPlanner(max_pe_rows=4).check("RowPartition(8)", (1024,)),
        gr.OutOfMemoryError,
        "the fabric 4 x 994",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_errors_name_the_sizes_and_the_cure(call, error, message):
    with pytest.raises(error, match=message):
        call()

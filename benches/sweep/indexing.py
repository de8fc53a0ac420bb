"""Gathers, scatters, and updates of parts."""

from __future__ import annotations

from typing import Any

from .rows import Operand, Row, jax, libs, only

MILLION = 1 << 20


def gathers() -> list[Row]:
    """Elements and rows at computed positions."""
    table, numbers = Operand((100_000, 64)), Operand((MILLION,))
    to_rows = Operand((100_000,), "int32", "indices", high=100_000)
    to_numbers = Operand((MILLION,), "int32", "indices", high=MILLION)
    long = Operand((MILLION,), "int64", "indices", high=MILLION)
    m = Operand((2048, 2048))
    columns = Operand((2048,), "int64", "indices", high=2048)
    each = Operand((2048, 2048), "int64", "indices", high=2048)
    one = Operand((2048, 1), "int64", "indices", high=2048)
    take = libs(
        lambda xp, x, i: xp.take(x, i, axis=0), torch=lambda xp, x, i: xp.index_select(x, 0, i)
    )
    along = libs(lambda xp, x, i: xp.take_along_axis(x, i, axis=1),
                 torch=lambda xp, x, i: xp.take_along_dim(x, i, 1))  # fmt: skip
    index = libs(lambda xp, x, i: x[i])
    words, tokens = Operand((50_257, 256)), Operand((8, 512), "int32", "indices", high=50_257)
    return [
        Row("take 100,000 rows of 64", "gathers", "take", (table, to_rows), take,
            bytes=2.0 * table.bytes),
        Row("take 1M numbers of 1M", "gathers", "take", (numbers, to_numbers), take,
            bytes=3.0 * numbers.bytes),
        Row("take 1M numbers of 1M by int64", "gathers", "take", (numbers, long), take,
            bytes=4.0 * numbers.bytes),
        Row("x[i], 1M numbers of 1,000", "gathers", "index",
            (Operand((1000,)), Operand((MILLION,), "int64", "indices", high=1000)), index,
            bytes=3.0 * numbers.bytes),
        Row("x[i], rows of 3", "gathers", "index",
            (Operand((100_000, 3)), Operand((300_000,), "int64", "indices", high=100_000)), index,
            bytes=300_000.0 * 32),
        Row("x[i], tiny", "gathers", "index",
            (Operand((16, 4)), Operand((16,), "int64", "indices", high=16)), index, level=0),
        Row("x[:, i], 2,048 columns", "gathers", "index", (m, columns),
            libs(lambda xp, x, i: x[:, i]), bytes=2.0 * m.bytes),
        Row("x[i, j], 1M numbers of a matrix", "gathers", "index",
            (m, Operand((MILLION,), "int64", "indices", high=2048),
             Operand((MILLION,), "int64", "indices", high=2048)),
            libs(lambda xp, x, i, j: x[i, j]), bytes=MILLION * 24.0),
        Row("take_along_axis of rows, 2,048 x 2,048", "gathers", "take_along_axis", (m, each),
            along,            bytes=4.0 * m.bytes),
        Row("take_along_axis, one of each row", "gathers", "take_along_axis", (m, one), along,
            bytes=2048.0 * 16),
        Row("take_along_axis of columns, 2,048 x 2,048", "gathers", "take_along_axis", (m, each),
            libs(lambda xp, x, i: xp.take_along_axis(x, i, axis=0),
                 torch=lambda xp, x, i: xp.take_along_dim(x, i, 0)), bytes=4.0 * m.bytes),
        Row("embedding, 4,096 tokens of width 256", "gathers", "embedding", (words, tokens),
            only(lambda xp, w, i: xp.nn.functional.embedding(i, w), numpy=lambda xp, w, i: w[i],
                 torch=lambda xp, w, i: xp.nn.functional.embedding(i, w),
                 jax=lambda xp, w, i: w[i]), bytes=4096.0 * 256 * 8),
        Row("x[::2, ::2], 2,048 x 2,048", "gathers", "slice", (m,),
            libs(lambda xp, x: x[::2, ::2] + 0.0), bytes=1.5 * m.bytes),
        Row("x[100:-100, 100:-100] copied", "gathers", "slice", (m,),
            libs(lambda xp, x: x[100:-100, 100:-100] + 0.0 if x.shape[0] > 300 else x + 0.0),
            bytes=1.7 * m.bytes),
        Row("diagonal of 2,048 x 2,048", "gathers", "diagonal", (m,),
            libs(lambda xp, x: xp.diagonal(x) + 0.0), bytes=2048.0 * 8),
        Row("one_hot of 65,536 in 64", "gathers", "one_hot",
            (Operand((65536,), "int64", "indices", high=16),),
            only(lambda xp, i: xp.one_hot(i, 64, dtype=xp.float32),
                 torch=lambda xp, i: xp.nn.functional.one_hot(i, 64).float(),
                 jax=lambda xp, i: jax().nn.one_hot(i, 64, dtype="float32"),
                 numpy=lambda xp, i: xp.eye(64, dtype=xp.float32)[i]), bytes=65536.0 * 264),
    ]  # fmt: skip


def numpy_set(xp: Any, x: Any, i: Any, v: Any) -> Any:
    out = x.copy()
    out[i] = v
    return out


def numpy_add(xp: Any, x: Any, i: Any, v: Any) -> Any:
    out = x.copy()
    xp.add.at(out, i, v)
    return out


def scatters() -> list[Row]:
    """Updates of single elements and rows, of slices, and by masks."""
    bins, m = Operand((1000,)), Operand((2048, 2048))
    values = Operand((MILLION,), kind="unit")
    places = Operand((MILLION,), "int64", "indices", high=1000)
    own = Operand((MILLION,), "int64", "distinct")
    wide = Operand((10_000, 64))
    rows = Operand((50_000,), "int64", "indices", high=10_000)
    parts = Operand((50_000, 64), kind="unit")
    add = libs(lambda xp, x, i, v: x.at[i].add(v), numpy=numpy_add,
               torch=lambda xp, x, i, v: x.index_add(0, i, v))  # fmt: skip
    put = libs(lambda xp, x, i, v: x.at[i].set(v), numpy=numpy_set,
               torch=lambda xp, x, i, v: x.index_put((i,), v))  # fmt: skip
    largest = libs(lambda xp, x, i, v: x.at[i].max(v), numpy=None,
                   torch=lambda xp, x, i, v: x.scatter_reduce(0, i, v, "amax"))  # fmt: skip
    unit = Operand((2048, 2048), kind="unit")
    words, tokens = Operand((50_257, 128)), Operand((4096,), "int64", "indices", high=50_257)
    steps = Operand((4096, 128), kind="unit")
    return [
        Row("scatter-add of 1M into 1,000", "scatters", "scatter_add", (bins, places, values), add,
            bytes=MILLION * 12.0, tolerance=1e-3),
        Row("scatter-add of 1M into 1M", "scatters", "scatter_add",
            (Operand((MILLION,)), Operand((MILLION,), "int64", "indices", high=MILLION), values),
            add, bytes=MILLION * 20.0, tolerance=1e-3),
        Row("scatter-add of 50,000 rows of 64 into 10,000", "scatters", "scatter_add",
            (wide, rows, parts), add, bytes=2.0 * wide.bytes + parts.bytes, tolerance=1e-3),
        Row("scatter-max of 1M into 1,000", "scatters", "scatter_max", (bins, places, values),
            largest, bytes=MILLION * 12.0),
        Row("set 1M of 1M by a permutation", "scatters", "scatter", (values, own, values), put,
            bytes=MILLION * 20.0),
        Row("embedding with sparse update", "scatters", "embedding", (words, tokens, steps),
            libs(lambda xp, w, i, g: w.at[i].add(-0.1 * g), numpy=None,
                 torch=lambda xp, w, i, g: w.index_add(0, i, g, alpha=-0.1)),
            bytes=2.0 * words.bytes, tolerance=1e-3),
        Row("set a slice of 2,048 x 2,048", "scatters", "update_slice", (m, Operand((16,))),
            libs(lambda xp, x, v: x.at[:, 4:12].set(v[:8]), numpy=None,
                 torch=lambda xp, x, v: xp.slice_scatter(x, v[:8].expand(x.shape[0], 8), 1, 4, 12)),
            bytes=2.0 * m.bytes),
        Row("masked fill, 2,048 x 2,048", "scatters", "where", (m, Operand((2048, 2048), "bool")),
            libs(lambda xp, x, c: xp.where(c, 0.0, x),
                 torch=lambda xp, x, c: x.masked_fill(c, 0.0)),
            bytes=2.25 * m.bytes),
        Row("put_along_axis, one of each row", "scatters", "scatter_along_axis",
            (m, Operand((2048, 1), "int64", "indices", high=2048), Operand((2048, 1))),
            libs(lambda xp, x, i, v: xp.put_along_axis(x, i, v, 1, inplace=False), numpy=None,
                 girih=lambda xp, x, i, v: xp.put_along_axis(x, i, v, 1),
                 torch=lambda xp, x, i, v: x.scatter(1, i, v)), bytes=2.0 * m.bytes),
        Row("scatter-add along rows, [2048, 2048] into 64", "scatters", "scatter_add_along_axis",
            (Operand((2048, 64)), Operand((2048, 2048), "int64", "indices", high=64), unit),
            only(lambda xp, x, i, v: xp.scatter_add(x, 1, i, v),
                 torch=lambda xp, x, i, v: x.scatter_add(1, i, v)), bytes=3.0 * m.bytes,
            tolerance=1e-3),
        Row("tril of 2,048 x 2,048", "scatters", "tril", (m,), libs("tril"), bytes=1.5 * m.bytes),
        Row("segment sums of 1M in 1,000", "scatters", "scatter_add",
            (values, Operand((MILLION,), "int32", "indices", high=1000)),
            only(lambda xp, v, i: xp.segment_sum(v, i, 1000),
                 jax=lambda xp, v, i: jax().ops.segment_sum(v, i, 1000),
                 numpy=lambda xp, v, i: xp.bincount(i, v, 1000).astype(xp.float32)),
            bytes=MILLION * 8.0, tolerance=1e-3),
    ]  # fmt: skip


ROWS = [*gathers(), *scatters()]

"""Sorting, selecting, searching, sets and statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from .rows import SHORT, Call, Operand, Row, jax, libs, only

MILLION = 1 << 20


def pair(xp: Any, x: Any) -> Any:
    return xp.sort(x, dim=-1)[0]


def sorts() -> list[Row]:
    """Sorted values and orders, of vectors, rows and columns."""
    rows = []
    calls = libs("sort", torch=pair)
    order: dict[str, Call] = libs("argsort")
    for dtype, kind in (
        ("float32", "normal"), ("int32", "integers"), ("int64", "integers"),
        ("float64", "normal"), ("uint8", "integers"),
    ):  # fmt: skip
        high = 200 if dtype == "uint8" else 1 << 30
        x = Operand((MILLION,), dtype, kind, high=high)
        rows.append(Row(f"sort of 1M, {SHORT[dtype]}", "sorting", "sort", (x,), calls))
        if dtype in ("float32", "int32"):
            distinct = Operand((MILLION,), dtype, "distinct")
            rows.append(
                Row(f"argsort of 1M, {SHORT[dtype]}", "sorting", "argsort", (distinct,), order,
                    bytes=MILLION * 12)
            )  # fmt: skip
    wide, square, short = Operand((1024, 1024)), Operand((512, 512)), Operand((65536, 16))
    few = Operand((MILLION,), "int32", "integers", high=1000)
    return [
        *rows,
        Row("sort, f32, tiny", "sorting", "sort", (Operand((64,)),), calls, level=0),
        Row("sort, f32, 64 KB", "sorting", "sort", (Operand((16384,)),), calls),
        Row("sort of rows, f32 [1024, 1024]", "sorting", "sort", (wide,), calls),
        Row("sort of rows of 16, f32", "sorting", "sort", (short,), calls),
        Row("sort of columns, f32 [512, 512]", "sorting", "sort", (square,),
            libs(lambda xp, x: xp.sort(x, axis=0), torch=lambda xp, x: xp.sort(x, dim=0)[0])),
        Row("sort of 1M with 1,000 values, i32", "sorting", "sort", (few,), calls),
        Row("sort of sorted 1M, f32", "sorting", "sort", (Operand((MILLION,), kind="sorted"),),
            calls),
        Row("argsort of rows, f32 [1024, 1024]", "sorting", "argsort",
            (Operand((1024, 1024), kind="distinct"),), order, bytes=float(12 << 20)),
        Row("argsort, f32, 64 KB", "sorting", "argsort", (Operand((16384,), kind="distinct"),),
            order),
    ]  # fmt: skip


def _jax_topk(xp: Any, x: Any, count: int) -> Any:
    return jax().lax.top_k(x, count)[0]


def selections() -> list[Row]:
    """Elements by rank: top k, partitions, medians and quantiles."""
    rows = []
    for shape, count in (((MILLION,), 100), ((1024, 1024), 5), ((32, 50257), 50), ((65536, 16), 2)):
        top = lambda xp, x, count=count: xp.topk(x, min(count, x.shape[-1]))[0]
        least = lambda xp, x, count=count: _jax_topk(xp, x, min(count, x.shape[-1]))
        rows.append(
            Row(f"topk {count} of {list(shape)}", "selection", "topk", (Operand(shape),),
                only(top, torch=top, jax=least), bytes=4.0 * np.prod(shape))
        )  # fmt: skip
    m, v = Operand((1000, 1001)), Operand((MILLION + 1,))
    median_rows = lambda xp, x: xp.median(x, axis=-1)
    torch_rows = lambda xp, x: xp.median(x, dim=-1)[0]
    least = lambda xp, x: xp.sort(xp.partition(x, len(x) // 1000)[: len(x) // 1000])
    tenth = lambda xp, x: xp.quantile(x, 0.1, axis=-1)
    return [
        *rows,
        Row("median of rows, [1000, 1001]", "selection", "median", (m,),
            libs(median_rows, torch=torch_rows), bytes=m.bytes),
        Row("median of columns, [1001, 1000]", "selection", "median", (Operand((1001, 1000)),),
            libs(lambda xp, x: xp.median(x, axis=0), torch=lambda xp, x: xp.median(x, dim=0)[0]),
            bytes=m.bytes),
        Row("median of 1M", "selection", "median", (v,), libs("median"), bytes=v.bytes),
        Row("median of rows of 15", "selection", "median", (Operand((65536, 15)),),
            libs(median_rows, torch=torch_rows), bytes=65536.0 * 60),
        Row("quantile 0.1 of rows, [1000, 1001]", "selection", "quantile", (m,), libs(tenth),
            bytes=m.bytes),
        Row("quantile 0.1 of 1M", "selection", "quantile", (v,),
            libs(lambda xp, x: xp.quantile(x, 0.1)), bytes=v.bytes),
        Row("percentile of three, [1000, 1001]", "selection", "quantile", (m,),
            libs(lambda xp, x: xp.quantile(
                xp.asarray(x), xp.asarray([0.25, 0.5, 0.75], dtype=xp.float32), axis=-1),
                 torch=lambda xp, x: xp.quantile(x, xp.tensor([0.25, 0.5, 0.75]), dim=-1)),
            bytes=m.bytes),
        Row("partition of 1M, the least 1,000 in order", "selection", "partition", (v,),
            only(least, numpy=least), bytes=v.bytes),
        Row("kthvalue of rows, [1000, 1001]", "selection", "kthvalue", (m,),
            only(lambda xp, x: xp.kthvalue(x, 10)[0], torch=lambda xp, x: xp.kthvalue(x, 10)[0],
                 numpy=lambda xp, x: xp.partition(x, 9, axis=-1)[:, 9]), bytes=m.bytes),
    ]  # fmt: skip


def searches() -> list[Row]:
    """Searches, sets, and indices of elements."""
    grid, queries = Operand((10000,), kind="sorted"), Operand((MILLION,))
    ints = Operand((MILLION,), "int32", "integers", high=1000)
    many = Operand((MILLION,), "int32", "integers", high=1 << 30)
    long = Operand((MILLION,), "int64", "integers", high=1000)
    flags, mask = Operand((MILLION,), "bool"), Operand((2048, 2048), "bool")
    few = Operand((1000,), "int32", "integers", high=100000)
    unique = libs("unique_values", numpy="unique", torch="unique", jax="unique")
    nonzero = lambda xp, x: xp.nonzero(x)[0]
    split = lambda xp, x: xp.nonzero(x, as_tuple=True)[0]
    found = libs(lambda xp, x, q: xp.searchsorted(x, q))
    return [
        Row("searchsorted of 1M in 10,000", "searching", "searchsorted", (grid, queries), found,
            bytes=MILLION * 12.0),
        Row("searchsorted of 1M sorted in 10,000", "searching", "searchsorted",
            (grid, Operand((MILLION,), kind="sorted")), found, bytes=MILLION * 12.0),
        Row("searchsorted of 1M in 16", "searching", "searchsorted",
            (Operand((16,), kind="sorted"), queries), found, bytes=MILLION * 12.0),
        Row("searchsorted of 1,000 in 1M", "searching", "searchsorted",
            (Operand((MILLION,), kind="sorted"), Operand((1000,))), found, bytes=1e5),
        Row("digitize of 1M in 100", "searching", "digitize",
            (queries, Operand((100,), kind="sorted")),
            libs(lambda xp, x, b: xp.digitize(x, b),
                 torch=lambda xp, x, b: xp.bucketize(x, b, right=True)), bytes=MILLION * 12.0),
        Row("unique_values of 1M, 1,000 values, i32", "searching", "unique", (ints,), unique,
            compiled=False, bytes=ints.bytes),
        Row("unique_values of 1M, most distinct, i32", "searching", "unique", (many,), unique,
            compiled=False, bytes=2.0 * ints.bytes),
        Row("unique_values of 1M, 1,000 values, i64", "searching", "unique", (long,), unique,
            compiled=False, bytes=long.bytes),
        Row("unique_values of 1M, f32", "searching", "unique", (queries,), unique, compiled=False),
        Row("unique_counts of 1M, i32", "searching", "unique", (ints,),
            libs(lambda xp, x: list(xp.unique_counts(x)),
                 torch=lambda xp, x: list(xp.unique(x, return_counts=True)),
                 jax=lambda xp, x: list(xp.unique(x, return_counts=True))),
            compiled=False, bytes=ints.bytes),
        Row("nonzero of 1M", "searching", "nonzero", (flags,),
            libs(nonzero, torch=split), compiled=False, bytes=MILLION * 5.0),
        Row("nonzero of 2,048 x 2,048", "searching", "nonzero", (mask,),
            libs(lambda xp, x: list(xp.nonzero(x)),
                 torch=lambda xp, x: list(xp.nonzero(x, as_tuple=True))),
            compiled=False, bytes=MILLION * 36.0),
        Row("elements by mask, 1M", "searching", "mask", (queries, flags),
            libs(lambda xp, x, m: x[m]), compiled=False, bytes=MILLION * 7.0),
        Row("isin of 1M in 1,000, i32", "searching", "isin",
            (Operand((MILLION,), "int32", "integers", high=100000), few), libs("isin"),
            bytes=MILLION * 5.0),
        Row("interp of 1M in 1,000", "searching", "interp",
            (queries, Operand((1000,), kind="sorted"), Operand((1000,))),
            libs("interp", torch=None), bytes=MILLION * 8.0, tolerance=1e-2),
    ]  # fmt: skip


def statistics() -> list[Row]:
    """Histograms and counts."""
    unit = Operand((MILLION,), kind="unit")
    labels = Operand((MILLION,), "int32", "indices", high=1000)
    m = Operand((256, 4096))
    return [
        Row("histogram of 1M in 100 bins", "statistics", "histogram", (unit,),
            libs(lambda xp, x: xp.histogram(x, 100, (-1.0, 1.0))[0],
                 torch=lambda xp, x: xp.histc(x, 100, -1.0, 1.0)), bytes=unit.bytes,
            tolerance=2e-2),
        Row("histogram of 1M in 10 bins, own range", "statistics", "histogram", (unit,),
            libs(lambda xp, x: xp.histogram(x, 10)[0], torch=lambda xp, x: xp.histc(x, 10)),
            bytes=unit.bytes, tolerance=2e-2),
        Row("bincount of 1M into 1,000", "statistics", "bincount", (labels,),
            libs(lambda xp, x: xp.bincount(x, minlength=1000),
                 jax=lambda xp, x: xp.bincount(x, length=1000),
                 girih=lambda xp, x: xp.bincount(x, length=1000)), bytes=labels.bytes),
        Row("bincount with weights, 1M", "statistics", "bincount", (labels, unit),
            libs(lambda xp, x, w: xp.bincount(x, w, 1000),
                 jax=lambda xp, x, w: xp.bincount(x, w, length=1000),
                 girih=lambda xp, x, w: xp.bincount(x, w, length=1000)), bytes=2.0 * labels.bytes,
            tolerance=1e-3),
        Row("cov of 256 variables of 4,096", "statistics", "cov", (m,), libs("cov"),
            flops=2.0 * 256 * 256 * 4096, tolerance=1e-3),
        Row("corrcoef of 256 variables of 4,096", "statistics", "corrcoef", (m,), libs("corrcoef"),
            flops=2.0 * 256 * 256 * 4096, tolerance=1e-3),
        Row("histogram, tiny", "statistics", "histogram", (Operand((64,), kind="unit"),),
            libs(lambda xp, x: xp.histogram(x, 10, (-1.0, 1.0))[0],
                 torch=lambda xp, x: xp.histc(x, 10, -1.0, 1.0)), tolerance=2e-2, level=0),
    ]  # fmt: skip


ROWS = [*sorts(), *selections(), *searches(), *statistics()]

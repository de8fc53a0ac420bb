"""Reductions and running sums: whole tensors, leading, middle and last axes, short and long
rows.
"""

from __future__ import annotations

from typing import Any

from .rows import SHORT, SIZES, Call, Operand, Row, libs, shape_text

#: Name of a layout: the shape, and the axis.
LAYOUTS: dict[str, tuple[tuple[int, ...], int | None]] = {
    "all of 1M": ((1 << 20,), None),
    "rows": ((1024, 1024), 1),
    "columns": ((1024, 1024), 0),
    "middle axis": ((64, 256, 64), 1),
    "rows of 16": ((65536, 16), 1),
    "rows of 4": ((1 << 18, 4), 1),
    "long rows": ((16, 65536), 1),
    "two of three axes": ((64, 256, 64), -2),
}
SOME = ("all of 1M", "rows", "columns", "rows of 16")


REDUCTIONS: dict[str, tuple[dict[str, Call | None], tuple[str, ...]]] = {
    "sum": ({}, tuple(LAYOUTS)),
    "max": ({"torch": "amax"}, tuple(LAYOUTS)),
    "mean": ({}, ("all of 1M", "rows", "columns", "middle axis", "rows of 16")),
    "var": ({}, SOME),
    "std": ({}, ("rows",)),
    "prod": ({}, ("all of 1M", "rows", "columns")),
    "min": ({"torch": "amin"}, ("all of 1M", "columns")),
    "argmax": ({}, SOME),
    "argmin": ({}, ("rows", "columns")),
    "logsumexp": ({"numpy": None, "jax": "scipy.special.logsumexp"}, SOME),
    "norm": ({"girih": "linalg.norm", "numpy": "linalg.norm", "torch": "linalg.norm",
              "jax": "linalg.norm"}, SOME),
    "nansum": ({}, ("rows",)),
    "count_nonzero": ({}, ("all of 1M", "rows")),
}  # fmt: skip
#: Divisors of variances differ: PyTorch's is one less by default.
BIASED = {"var", "std"}


def reduce_call(op: str, own: dict[str, Call | None], axis: int | None) -> dict[str, Call]:
    """The calls of a reduction along an axis; -2 is the last two axes of three."""
    axes: Any = (1, 2) if axis == -2 else axis

    def call(name: str, extra: dict[str, Any]) -> Call:
        def body(xp: Any, x: Any) -> Any:
            function = xp
            for part in name.split("."):
                function = getattr(function, part)
            return function(x, axis=axes, **extra) if axes is not None else function(x, **extra)

        return body

    calls: dict[str, Call | None] = {}
    for library in ("girih", "numpy", "torch", "jax"):
        name = own.get(library, op)
        extra = {"correction": 0} if op in BIASED and library == "torch" else {}
        if name == "scipy.special.logsumexp":
            calls[library] = lambda xp, x: _jax_logsumexp(x, axes)
        elif name == "linalg.norm" and axis is None:
            calls[library] = call("linalg.norm", {})
        elif isinstance(name, str) and library == "torch" and op in ("logsumexp",) and axes is None:
            calls[library] = lambda xp, x: xp.logsumexp(x, 0)
        elif name == "count_nonzero" and library == "torch":
            calls[library] = lambda xp, x: xp.count_nonzero(x, dim=axes)
        else:
            calls[library] = call(name, extra) if isinstance(name, str) else None
    return libs(**calls)


def _jax_logsumexp(x: Any, axis: Any) -> Any:
    from .rows import jax

    return jax().scipy.special.logsumexp(x, axis=axis)


def whole() -> list[Row]:
    """Reductions in float32 by layout."""
    rows = []
    for op, (own, layouts) in REDUCTIONS.items():
        for layout in layouts:
            shape, axis = LAYOUTS[layout]
            kind = "unit" if op != "prod" else "positive"
            x = Operand(shape, "float32", kind)
            rows.append(
                Row(
                    f"{op} of {layout}, f32 {shape_text(shape)}", "reductions", op, (x,),
                    reduce_call(op, own, axis), bytes=x.bytes, flops=2.0 * x.size,
                    tolerance=1e-3 if op == "prod" else 1e-4,
                )
            )  # fmt: skip
    return rows


def sized() -> list[Row]:
    """Sums and maxima of a vector by size."""
    rows = []
    for size, total in SIZES.items():
        x = Operand((total // 4,))
        for op, own in (("sum", {}), ("max", {"torch": "amax"}), ("argmax", {}), ("var", {})):
            rows.append(
                Row(
                    f"{op}, f32, {size}", "reductions", op, (x,), reduce_call(op, dict(own), None),
                    bytes=x.bytes, tolerance=1e-3, level=0 if size == "tiny" else 1,
                )
            )  # fmt: skip
    return rows


def typed() -> list[Row]:
    """Sums and maxima in other dtypes."""
    rows = []
    forms = [
        ("float64", "normal"),
        ("int32", "integers"),
        ("int64", "integers"),
        ("uint8", "integers"),
    ]
    for dtype, kind in [*forms, ("bfloat16", "normal"), ("float16", "unit")]:
        for layout in ("all of 1M", "rows", "columns"):
            shape, axis = LAYOUTS[layout]
            x = Operand(shape, dtype, kind, high=100)
            for op, own in (("sum", {}), ("max", {"torch": "amax"})):
                calls = reduce_call(op, dict(own), axis)
                # NumPy and Girih sum bytes in wider integers than JAX.
                if dtype == "bfloat16":
                    del calls["numpy"]
                if op == "sum" and dtype in ("uint8", "int32"):
                    del calls["jax"]
                low = dtype in ("bfloat16", "float16")
                rows.append(
                    Row(
                        f"{op} of {layout}, {SHORT[dtype]} {shape_text(shape)}", "reductions", op,
                        (x,), calls, bytes=x.bytes, tolerance=5e-2 if low else 1e-4,
                        level=1 if layout != "columns" or op == "sum" else 2,
                    )
                )  # fmt: skip
    flags = Operand((1024, 1024), "bool")
    for op in ("any", "all"):
        for axis, layout in ((None, "all"), (1, "rows"), (0, "columns")):
            rows.append(
                Row(f"{op} of {layout}, bool [1024, 1024]", "reductions", op, (flags,),
                    reduce_call(op, {}, axis), bytes=flags.bytes)
            )  # fmt: skip
    return rows


def parts() -> list[Row]:
    """Reductions of operands that are not stored in order, or computed first."""
    m = Operand((1024, 1024))
    twice = Operand((1024, 2048))
    cube = Operand((128, 64, 128))
    table: list[tuple[str, str, tuple[Operand, ...], dict[str, Call], float]] = [
        ("sum of every second column", "sum", (twice,),
         libs(lambda xp, x: x[:, ::2].sum(1)), 8 << 20),
        ("sum of x.T along rows", "sum", (m,), libs(lambda xp, x: x.T.sum(1)), 4 << 20),
        ("sum of x * y", "sum", (m, m), libs(lambda xp, x, y: (x * y).sum()), 8 << 20),
        ("mean of x > 0 along rows", "mean", (m,),
         libs(lambda xp, x: (x > 0).sum(1)), 4 << 20),
        ("max minus min of rows", "max", (m,),
         libs(lambda xp, x: x.max(1) - x.min(1),
              torch=lambda xp, x: x.amax(1) - x.amin(1)), 4 << 20),
        ("sum along axes 0 and 2", "sum", (cube,), libs(lambda xp, x: x.sum((0, 2))), 4 << 20),
        ("max along axis 0 of three", "max", (cube,),
         libs(lambda xp, x: x.max(0), torch=lambda xp, x: x.amax(0)), 4 << 20),
        ("sum of squares of rows of 3", "sum", (Operand((1 << 18, 3)),),
         libs(lambda xp, x: (x * x).sum(-1)), 3 << 20),
        ("sum of rows of 64", "sum", (Operand((1 << 14, 64)),),
         libs(lambda xp, x: x.sum(-1)), 4 << 20),
        ("max of rows of 7", "max", (Operand((1 << 17, 7)),),
         libs(lambda xp, x: x.max(-1), torch=lambda xp, x: x.amax(-1)), 28 << 17),
        ("argmax of rows of 10", "argmax", (Operand((1 << 16, 10)),),
         libs(lambda xp, x: xp.argmax(x, -1)), 40 << 16),
    ]  # fmt: skip
    return [
        Row(name, "reductions", op, operands, calls, bytes=float(moved), tolerance=1e-3)
        for name, op, operands, calls, moved in table
    ]


def running() -> list[Row]:
    """Cumulative sums, products and maxima."""
    long, m = Operand((1 << 20,), kind="unit"), Operand((2048, 2048), kind="unit")
    short = Operand((65536, 16), kind="unit")
    rows = []
    for op, own in (
        ("cumsum", {}),
        ("cumprod", {}),
        ("cummax", {"numpy": lambda xp, x: xp.maximum.accumulate(x, -1),
                    "torch": lambda xp, x: xp.cummax(x, -1)[0],
                    "jax": lambda xp, x: _jax_cummax(x)}),
        ("logcumsumexp", {"numpy": lambda xp, x: xp.logaddexp.accumulate(x, -1),
                          "jax": lambda xp, x: _jax_logcumsumexp(x)}),
    ):  # fmt: skip
        last: Any = lambda xp, x, op=op: getattr(xp, op)(x, -1)
        first: Any = lambda xp, x, op=op: getattr(xp, op)(x, 0)
        forms = [("1M", long, last), ("rows", m, last), ("rows of 16", short, last)]
        for layout, x, call in forms:
            rows.append(
                Row(f"{op} of {layout}, f32 {shape_text(x.shape)}", "running", op, (x,),
                    libs(call, **own), tolerance=1e-3)
            )  # fmt: skip
        if not own:
            rows.append(
                Row(f"{op} of columns, f32 [2048, 2048]", "running", op, (m,), libs(first),
                    tolerance=1e-3)
            )  # fmt: skip
    for dtype in ("int32", "int64", "float64"):
        x = Operand((1 << 20,), dtype, "integers" if dtype != "float64" else "normal", high=10)
        calls = libs(lambda xp, x: xp.cumsum(x, 0))
        if dtype == "int32":
            del calls["jax"]
        rows.append(
            Row(f"cumsum of 1M, {SHORT[dtype]}", "running", "cumsum", (x,), calls, tolerance=1e-3,
                bytes=x.bytes + 8 * x.size)
        )  # fmt: skip
    rows.append(
        Row("diff of rows, f32 [2048, 2048]", "running", "diff", (m,),
            libs(lambda xp, x: xp.diff(x)))
    )  # fmt: skip
    least = libs(
        lambda xp, x: xp.cummin(x, -1), numpy=lambda xp, x: xp.minimum.accumulate(x, -1),
        torch=lambda xp, x: xp.cummin(x, -1)[0], jax=lambda xp, x: _jax_cummin(x),
    )  # fmt: skip
    rows.append(Row("cummin of rows, f32 [2048, 2048]", "running", "cummin", (m,), least))
    small = Operand((64,))
    rows.append(
        Row("cumsum, f32, tiny", "running", "cumsum", (small,), libs(lambda xp, x: xp.cumsum(x, 0)),
            level=0)
    )  # fmt: skip
    return rows


def _jax_cummax(x: Any) -> Any:
    from .rows import jax

    return jax().lax.cummax(x, x.ndim - 1)


def _jax_cummin(x: Any) -> Any:
    from .rows import jax

    return jax().lax.cummin(x, x.ndim - 1)


def _jax_logcumsumexp(x: Any) -> Any:
    from .rows import jax

    return jax().lax.cumlogsumexp(x, x.ndim - 1)


ROWS = [*whole(), *sized(), *typed(), *parts(), *running()]

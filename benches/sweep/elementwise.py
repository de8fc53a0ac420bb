"""Elementwise operations, generated from the op table: sizes, dtypes, layouts, casts."""

from __future__ import annotations

from typing import Any

from .rows import BYTES, SHORT, SIZES, Call, Operand, Row, libs, only

CHEAP, DEAR = 2.0, 20.0
#: Two vector instructions in the table of operations count as one each of these.
SP = "scipy.special."

#: By op of one operand: kind of values, operations per element, and its names. The first is
#: Girih's, `None` for a library that has no such function.
UNARY: dict[str, tuple[str, float, Call, Call | None, Call | None, Call | None]] = {
    "abs": ("normal", CHEAP, "abs", "abs", "abs", "abs"),
    "neg": ("normal", CHEAP, "negative", "negative", "neg", "negative"),
    "sign": ("normal", CHEAP, "sign", "sign", "sign", "sign"),
    "floor": ("normal", CHEAP, "floor", "floor", "floor", "floor"),
    "ceil": ("normal", CHEAP, "ceil", "ceil", "ceil", "ceil"),
    "trunc": ("normal", CHEAP, "trunc", "trunc", "trunc", "trunc"),
    "round": ("normal", CHEAP, "round", "round", "round", "round"),
    "exp": ("normal", DEAR, "exp", "exp", "exp", "exp"),
    "expm1": ("normal", DEAR, "expm1", "expm1", "expm1", "expm1"),
    "exp2": ("normal", DEAR, "exp2", "exp2", "exp2", "exp2"),
    "log": ("positive", DEAR, "log", "log", "log", "log"),
    "log1p": ("positive", DEAR, "log1p", "log1p", "log1p", "log1p"),
    "log2": ("positive", DEAR, "log2", "log2", "log2", "log2"),
    "log10": ("positive", DEAR, "log10", "log10", "log10", "log10"),
    "sqrt": ("positive", CHEAP, "sqrt", "sqrt", "sqrt", "sqrt"),
    "rsqrt": ("positive", CHEAP, "rsqrt", lambda xp, x: 1 / xp.sqrt(x), "rsqrt", "lax.rsqrt"),
    "sin": ("normal", DEAR, "sin", "sin", "sin", "sin"),
    "cos": ("normal", DEAR, "cos", "cos", "cos", "cos"),
    "tan": ("unit", DEAR, "tan", "tan", "tan", "tan"),
    "asin": ("unit", DEAR, "asin", "asin", "asin", "asin"),
    "acos": ("unit", DEAR, "acos", "acos", "acos", "acos"),
    "atan": ("normal", DEAR, "atan", "atan", "atan", "atan"),
    "sinh": ("normal", DEAR, "sinh", "sinh", "sinh", "sinh"),
    "cosh": ("normal", DEAR, "cosh", "cosh", "cosh", "cosh"),
    "tanh": ("normal", DEAR, "tanh", "tanh", "tanh", "tanh"),
    "asinh": ("normal", DEAR, "asinh", "asinh", "asinh", "asinh"),
    "acosh": ("above", DEAR, "acosh", "acosh", "acosh", "acosh"),
    "atanh": ("unit", DEAR, "atanh", "atanh", "atanh", "atanh"),
    "erf": ("normal", DEAR, "erf", None, "erf", SP + "erf"),
    "erfc": ("normal", DEAR, "erfc", None, "erfc", SP + "erfc"),
    "erfinv": ("unit", 2 * DEAR, "erfinv", None, "erfinv", SP + "erfinv"),
    "lgamma": ("positive", 2 * DEAR, "lgamma", None, "lgamma", SP + "gammaln"),
    "digamma": ("positive", 2 * DEAR, "digamma", None, "digamma", SP + "digamma"),
    "i0": ("normal", 2 * DEAR, "i0", None, "i0", SP + "i0"),
    "i1": ("normal", 2 * DEAR, "i1", None, "special.i1", SP + "i1"),
    "isnan": ("normal", CHEAP, "isnan", "isnan", "isnan", "isnan"),
    "isinf": ("normal", CHEAP, "isinf", "isinf", "isinf", "isinf"),
    "isfinite": ("normal", CHEAP, "isfinite", "isfinite", "isfinite", "isfinite"),
    "signbit": ("normal", CHEAP, "signbit", "signbit", "signbit", "signbit"),
    "relu": ("normal", CHEAP, "relu", lambda xp, x: xp.maximum(x, 0), "relu", "nn.relu"),
    "sigmoid": ("normal", DEAR, "sigmoid", None, "sigmoid", "nn.sigmoid"),
    "log_sigmoid": (
        "normal", DEAR, "nn.functional.log_sigmoid", None, "nn.functional.logsigmoid",
        "nn.log_sigmoid",
    ),
    "silu": ("normal", DEAR, "nn.functional.silu", None, "nn.functional.silu", "nn.silu"),
    "softplus": (
        "normal", 2 * DEAR, "nn.functional.softplus", None, "nn.functional.softplus", "nn.softplus",
    ),
    "gelu": (
        "normal", DEAR, "nn.functional.gelu", None, "nn.functional.gelu",
        lambda xp, x: _jax_gelu(x),
    ),
}  # fmt: skip
#: Ops of which all sizes are measured in each sweep; of others one.
CORE = {"abs", "exp", "log", "tanh", "sqrt", "sin", "sigmoid", "erf"}
#: Ops that are measured in other dtypes, too.
WIDE = {"abs", "exp", "log", "tanh", "sin", "sqrt", "sigmoid", "erf"}

#: By op of two operands: kinds of both values, operations, and names as above.
BINARY: dict[str, tuple[str, str, float, Call, Call | None, Call | None, Call | None]] = {
    "add": ("normal", "normal", CHEAP, "add", "add", "add", "add"),
    "sub": ("normal", "normal", CHEAP, "subtract", "subtract", "subtract", "subtract"),
    "mul": ("normal", "normal", CHEAP, "multiply", "multiply", "multiply", "multiply"),
    "div": ("normal", "positive", CHEAP, "divide", "divide", "divide", "divide"),
    "floor_divide": ("normal", "positive", CHEAP, *["floor_divide"] * 4),
    "remainder": ("normal", "positive", CHEAP, *["remainder"] * 4),
    "fmod": ("normal", "positive", CHEAP, *["fmod"] * 4),
    "pow": ("positive", "normal", 2 * DEAR, "pow", "power", "pow", "power"),
    "maximum": ("normal", "normal", CHEAP, *["maximum"] * 4),
    "minimum": ("normal", "normal", CHEAP, *["minimum"] * 4),
    "atan2": ("normal", "positive", DEAR, *["atan2"] * 3, "arctan2"),
    "hypot": ("normal", "normal", CHEAP, *["hypot"] * 4),
    "logaddexp": ("normal", "normal", 2 * DEAR, *["logaddexp"] * 4),
    "copysign": ("normal", "normal", CHEAP, *["copysign"] * 4),
    "nextafter": ("normal", "normal", CHEAP, *["nextafter"] * 4),
    "igamma": (
        "positive", "positive", 5 * DEAR, "igamma", None, "special.gammainc", SP + "gammainc",
    ),
}  # fmt: skip
CORE_BINARY = {"add", "div", "pow", "maximum"}

INTEGER: dict[str, tuple[str, str, str, str]] = {
    "add": ("add", "add", "add", "add"),
    "mul": ("multiply", "multiply", "multiply", "multiply"),
    "floor_divide": ("floor_divide", "floor_divide", "floor_divide", "floor_divide"),
    "remainder": ("remainder", "remainder", "remainder", "remainder"),
    "maximum": ("maximum", "maximum", "maximum", "maximum"),
    "and": ("bitwise_and", "bitwise_and", "bitwise_and", "bitwise_and"),
    "xor": ("bitwise_xor", "bitwise_xor", "bitwise_xor", "bitwise_xor"),
    "shift_left": ("bitwise_left_shift", "left_shift", "bitwise_left_shift", "left_shift"),
    "shift_right": ("bitwise_right_shift", "right_shift", "bitwise_right_shift", "right_shift"),
}
COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip
#: Casts: from and to.
CASTS = (
    ("float32", "float64"), ("float32", "float16"), ("float32", "bfloat16"), ("float32", "int32"),
    ("float32", "int8"), ("float32", "uint8"), ("float32", "bool"), ("float32", "int64"),
    ("float64", "float32"), ("float16", "float32"), ("bfloat16", "float32"), ("int32", "float32"),
    ("uint8", "float32"), ("int64", "int32"), ("int64", "float32"), ("bool", "float32"),
    ("float32", "complex64"), ("int8", "int32"),
)  # fmt: skip


def _jax_gelu(x: Any) -> Any:
    from .rows import jax

    return jax().nn.gelu(x, approximate=False)


def level(core: bool, size: str) -> int:
    """All sizes of core operations belong to a sweep, of others one."""
    if core:
        return 0 if size == "tiny" else 1
    return 1 if size == "4 MB" else 2


def count(size: str, dtype: str) -> int:
    """The number of elements of an operand of a size."""
    return SIZES[size] // BYTES[dtype]


def tolerance(dtype: str) -> float:
    """The difference that a dtype's results may have."""
    return {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 2e-5)


def vector(size: str, dtype: str, kind: str = "normal", **bounds: int) -> Operand:
    return Operand((count(size, dtype),), dtype, kind, **bounds)


def unary() -> list[Row]:
    rows = []
    for op, (kind, flops, girih, numpy, torch, jax) in UNARY.items():
        for size in SIZES:
            operand = vector(size, "float32", kind)
            rows.append(
                Row(
                    f"{op}, f32, {size}", "unary", op, (operand,),
                    libs(girih=girih, numpy=numpy, torch=torch, jax=jax),
                    flops=flops * operand.size, tolerance=1e-4, level=level(op in CORE, size),
                )
            )  # fmt: skip
        for dtype in ("float64", "float16", "bfloat16") if op in WIDE else ():
            operand = vector("4 MB", dtype, kind)
            calls = libs(girih=girih, numpy=numpy, torch=torch, jax=jax)
            if dtype == "bfloat16":
                calls.pop("numpy", None)
            rows.append(
                Row(
                    f"{op}, {SHORT[dtype]}, 4 MB", "unary", op, (operand,), calls,
                    flops=flops * operand.size, tolerance=tolerance(dtype),
                )
            )  # fmt: skip
    complex_row = lambda op, call: Row(
        f"{op}, c64, 4 MB", "unary", op, (vector("4 MB", "complex64"),), libs(call)
    )
    flags = Row(
        "not, bool, 4 MB", "unary", "not", (vector("4 MB", "bool"),), libs("logical_not")
    )  # fmt: skip
    return [
        *rows, flags, complex_row("abs", "abs"), complex_row("exp", "exp"),
        complex_row("conj", lambda xp, x: x.conj() * 2),
        complex_row("real", lambda xp, x: x.real + 1),
        complex_row("imag", lambda xp, x: x.imag + 1), complex_row("angle", "angle"),
    ]  # fmt: skip


def binary() -> list[Row]:
    rows = []
    for op, (first, second, flops, girih, numpy, torch, jax) in BINARY.items():
        for size in SIZES:
            x, y = vector(size, "float32", first), vector(size, "float32", second)
            rows.append(
                Row(
                    f"{op}, f32, {size}", "binary", op, (x, y),
                    libs(girih=girih, numpy=numpy, torch=torch, jax=jax), flops=flops * x.size,
                    level=level(op in CORE_BINARY, size),
                )
            )  # fmt: skip
    for op in ("add", "mul"):
        _, _, flops, girih, numpy, torch, jax = BINARY[op]
        for dtype in ("float64", "float16", "bfloat16", "complex64"):
            x = vector("4 MB", dtype)
            calls = libs(girih=girih, numpy=numpy, torch=torch, jax=jax)
            if dtype == "bfloat16":
                calls.pop("numpy", None)
            rows.append(
                Row(
                    f"{op}, {SHORT[dtype]}, 4 MB", "binary", op, (x, x), calls,
                    flops=flops * x.size, tolerance=tolerance(dtype),
                )
            )  # fmt: skip
    return rows


def integers() -> list[Row]:
    rows = []
    for op, (girih, numpy, torch, jax) in INTEGER.items():
        forms = [("int32", "64 KB"), ("int32", "4 MB"), ("int64", "4 MB"), ("uint8", "4 MB")]
        for dtype, size in forms:
            high = 6 if op.startswith("shift") else 100
            x = vector(size, dtype, "integers", high=100)
            y = vector(size, dtype, "integers", low=1, high=high)
            rows.append(
                Row(
                    f"{op}, {SHORT[dtype]}, {size}", "integer", op, (x, y),
                    libs(girih=girih, numpy=numpy, torch=torch, jax=jax),
                )
            )  # fmt: skip
    for dtype in ("int32", "int64"):
        x = vector("4 MB", dtype, "integers", high=1000)
        name = SHORT[dtype]
        rows += [
            Row(f"x % 7, {name}, 4 MB", "integer", "remainder", (x,), libs(lambda xp, x: x % 7)),
            Row(
                f"x // 7, {name}, 4 MB", "integer", "floor_divide", (x,), libs(lambda xp, x: x // 7)
            ),
            Row(f"x & 7, {name}, 4 MB", "integer", "and", (x,), libs(lambda xp, x: x & 7)),
            Row(f"abs, {name}, 4 MB", "integer", "abs", (x,), libs("abs")),
        ]
    return rows


def comparisons() -> list[Row]:
    rows = []
    torch = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
    for op, name in COMPARISONS.items():
        forms = [("float32", "4 MB")]
        if op == "lt":
            sizes = [("float32", size) for size in ("tiny", "64 KB", "64 MB")]
            others = [
                (dtype, "4 MB") for dtype in ("float64", "int32", "int64", "uint8", "float16")
            ]
            forms += [*sizes, *others]
        for dtype, size in forms:
            kind, high = ("normal", 0) if dtype.startswith("float") else ("integers", 100)
            x = vector(size, dtype, kind, high=high)
            rows.append(
                Row(
                    f"{op}, {SHORT[dtype]}, {size}", "comparison", op, (x, x),
                    libs(name, torch=torch[op]), bytes=2 * x.bytes + x.size,
                )
            )  # fmt: skip
    flags = vector("4 MB", "bool")
    pair = (flags, flags)
    return [
        *rows,
        Row("and, bool, 4 MB", "comparison", "and", pair, libs("logical_and")),
        Row("or, bool, 4 MB", "comparison", "or", pair, libs("logical_or")),
    ]


def selected() -> list[Row]:
    """Choices between two values, and other functions of three."""
    rows = []
    for size in SIZES:
        x = vector(size, "float32")
        flags = Operand(x.shape, "bool")
        rows += [
            Row(f"where, f32, {size}", "ternary", "where", (x, x, flags),
                libs(lambda xp, x, y, c: xp.where(c, x, y)), level=level(True, size)),
            Row(f"clip, f32, {size}", "ternary", "clip", (x,),
                libs(lambda xp, x: xp.clip(x, -1.0, 1.0)), level=level(False, size)),
        ]  # fmt: skip
    x, y = vector("4 MB", "float32"), vector("4 MB", "float32", "unit")
    return [
        *rows,
        Row("x * y + z, f32, 4 MB", "ternary", "fma", (x, x, y),
            libs(lambda xp, x, y, z: x * y + z)),
        Row("where(x > 0, x, 0.1 * x), f32, 4 MB", "ternary", "where", (x,),
            libs(lambda xp, x: xp.where(x > 0, x, 0.1 * x))),
        Row("x ** 2, f32, 4 MB", "ternary", "pow", (x,), libs(lambda xp, x: x**2)),
        Row("x ** 3.5, f32, 4 MB", "ternary", "pow", (vector("4 MB", "float32", "positive"),),
            libs(lambda xp, x: x**3.5)),
        Row("lerp, f32, 4 MB", "ternary", "lerp", (x, x, y),
            only(lambda xp, x, y, w: x + (y - x) * w, torch="lerp",
                 jax=lambda xp, x, y, w: x + (y - x) * w)),
        Row("nan_to_num, f32, 4 MB", "ternary", "nan_to_num", (x,), libs("nan_to_num")),
    ]  # fmt: skip


def cast_call(target: str) -> dict[str, Call]:
    """Casts to a dtype."""
    named = lambda xp, x: x.astype(getattr(xp, "bool_" if target == "bool" else target))
    own = lambda xp, x: x.astype(getattr(xp, target))
    torch = lambda xp, x: x.to(getattr(xp, target))
    return libs(named, girih=own, torch=torch, numpy=None if target == "bfloat16" else named)


def casts() -> list[Row]:
    rows = []
    for source, target in CASTS:
        kind, high = ("normal", 0)
        if source.startswith(("int", "uint")):
            kind, high = "integers", 100
        if target == "uint8":
            kind = "positive"
        x = vector("4 MB", source, kind, high=high)
        calls = cast_call(target)
        if source == "bfloat16":
            del calls["numpy"]
        rows.append(
            Row(
                f"cast {SHORT[source]} to {SHORT[target]}, 4 MB", "cast", "cast", (x,), calls,
                bytes=x.bytes + x.size * BYTES[target],
                tolerance=1e-2 if "float16" in target else 1e-6,
            )
        )  # fmt: skip
    return rows


def _half_times(xp: Any, x: Any, y: Any) -> Any:
    half = x.shape[1] // 2
    return x[:, :half] * y[:, :half]


def layouts() -> list[Row]:
    """Operands that are parts, turned or stretched, in additions, exp and a choice."""
    m, v = Operand((1024, 1024)), Operand((1024,))
    column, one = Operand((1024, 1)), Operand(())
    wide, cube, long = Operand((1024, 2048)), Operand((64, 256, 64)), Operand(((1 << 20) + 1,))
    twice = Operand((2 << 20,))
    flip = lambda xp, x, axis: xp.flip(x, (axis,))
    n = 4 << 20
    table: list[tuple[str, tuple[Operand, ...], Any, float]] = [
        ("x + row", (m, v), lambda xp, x, y: x + y, 2 * n),
        ("x + column", (m, column), lambda xp, x, y: x + y, 2 * n),
        ("row + column", (v, column), lambda xp, x, y: x + y, n),
        ("x + scalar", (m, one), lambda xp, x, y: x + y, 2 * n),
        ("x.T + y", (m, m), lambda xp, x, y: x.T + y, 3 * n),
        ("exp(x.T)", (m,), lambda xp, x: xp.exp(x.T), 2 * n),
        ("x[::2] + y[::2]", (twice, twice), lambda xp, x, y: x[::2] + y[::2], 5 * n),
        ("x[1:] + x[:-1]", (long,), lambda xp, x: x[1:] + x[:-1], 2 * n),
        ("x[:, ::2] + 1", (wide,), lambda xp, x: x[:, ::2] + 1, 3 * n),
        ("x[:, :1024] * y", (wide, m), _half_times, 3 * n),
        ("x[:, ::2, :] + 1", (cube,), lambda xp, x: x[:, ::2, :] + 1, n),
        ("exp of reversed rows", (m,), lambda xp, x: xp.exp(flip(xp, x, 1)), 2 * n),
        ("reversed rows + y", (m, m), lambda xp, x, y: flip(xp, x, 1) + y, 3 * n),
        ("reversed order of rows + y", (m, m), lambda xp, x, y: flip(xp, x, 0) + y, 3 * n),
        ("where(row > 0, x, y)", (m, m, v), lambda xp, x, y, r: xp.where(r > 0, x, y), 3 * n),
        ("cube + middle axis", (cube, Operand((256, 1))), lambda xp, x, y: x + y, 2 * n),
        ("cube + leading axis", (cube, Operand((64, 1, 1))), lambda xp, x, y: x + y, 2 * n),
        ("x + y on [1048576, 3] and [3]", (Operand((1 << 20, 3)), Operand((3,))),
         lambda xp, x, y: x + y, 6 * n),
        ("x * y of [262144, 4] and [262144, 1]", (Operand((1 << 18, 4)), Operand((1 << 18, 1))),
         lambda xp, x, y: x * y, 2 * n),
    ]  # fmt: skip
    return [
        Row(name, "layouts", "layouts", operands, libs(call), bytes=float(moved))
        for name, operands, call, moved in table
    ]


ROWS = [
    *unary(), *binary(), *integers(), *comparisons(), *selected(), *casts(), *layouts(),
]  # fmt: skip

"""Linear algebra and Fourier transforms."""

from __future__ import annotations

import math
from typing import Any

from .rows import SHORT, Call, Operand, Row, libs, shape_text

#: Name: function, the kind of matrices, and operations over the cube of the size.
FACTORS: dict[str, tuple[Call, str, float]] = {
    "cholesky": ("linalg.cholesky", "definite", 1 / 3),
    "inv": ("linalg.inv", "dominant", 2.0),
    "det": ("linalg.det", "dominant", 2 / 3),
    "slogdet": (lambda xp, x: xp.linalg.slogdet(x)[1], "dominant", 2 / 3),
    "qr": (lambda xp, x: abs(xp.linalg.qr(x)[1]), "dominant", 4 / 3),
    "eigvalsh": ("linalg.eigvalsh", "definite", 4 / 3),
    "eigh": (lambda xp, x: xp.linalg.eigh(x)[0], "definite", 4.0),
    "svdvals": ("linalg.svdvals", "dominant", 8 / 3),
    "pinv": ("linalg.pinv", "dominant", 8.0),
}
#: Functions that are measured in float64 only with `--full`.
LESS = {"det", "slogdet", "qr", "eigvalsh", "pinv"}


def factors() -> list[Row]:
    """Factorisations of one matrix and of many."""
    rows = []
    for op, (call, kind, cost) in FACTORS.items():
        for shape, dtype in (
            ((256, 256), "float32"), ((64, 64), "float32"), ((16, 16), "float32"),
            ((1000, 8, 8), "float32"), ((128, 128), "float64"),
        ):  # fmt: skip
            x = Operand(shape, dtype, kind)
            n = shape[-1]
            calls = libs(call)
            rare = n == 64 or (dtype == "float64" and op in LESS)
            rows.append(
                Row(f"{op} of {shape_text(shape)}, {SHORT[dtype]}", "linear algebra", op, (x,),
                    calls, flops=cost * n**3 * (x.size / n**2), tolerance=1e-2,
                    level=0 if n == 16 else 2 if rare else 1)
            )  # fmt: skip
    return rows


def solutions() -> list[Row]:
    """Systems of equations."""
    solve: dict[str, Call] = libs("linalg.solve")
    rows = []
    for shape, other in (
        ((256, 256), (256,)), ((256, 256), (256, 64)), ((64, 64), (64, 64)),
        ((1000, 8, 8), (1000, 8, 1)),
    ):  # fmt: skip
        a, b = Operand(shape, kind="dominant"), Operand(other)
        rows.append(
            Row(f"solve of {shape_text(shape, other)}", "linear algebra", "solve", (a, b), solve,
                flops=2 / 3 * a.size * shape[-1], tolerance=1e-2)
        )  # fmt: skip
    lower, b = Operand((256, 256), kind="triangular"), Operand((256, 64))
    triangular: dict[str, Call] = libs(
        lambda xp, a, b: xp.linalg.solve_triangular(a, b, lower=True),
        numpy=None, torch=lambda xp, a, b: xp.linalg.solve_triangular(a, b, upper=False),
        jax=jax_triangular,
    )  # fmt: skip
    tall = Operand((1024, 64))
    return [
        *rows,
        Row("triangular solve of [256, 256], [256, 64]", "linear algebra", "solve_triangular",
            (lower, b), triangular, flops=256.0 * 256 * 64, tolerance=1e-2),
        Row("lstsq of [1024, 64], [1024]", "linear algebra", "lstsq", (tall, Operand((1024, 1))),
            libs(lambda xp, a, b: xp.linalg.lstsq(a, b)[0],
                 numpy=lambda xp, a, b: xp.linalg.lstsq(a, b, rcond=None)[0]),
            flops=2.0 * 1024 * 64 * 64, tolerance=1e-2),
        Row("matrix power 5 of [128, 128]", "linear algebra", "matrix_power",
            (Operand((128, 128), kind="triangular"),),
            libs(lambda xp, x: xp.linalg.matrix_power(x, 5)), flops=6.0 * 128**3, tolerance=1e-2),
    ]  # fmt: skip


def jax_triangular(xp: Any, a: Any, b: Any) -> Any:
    from .rows import jax

    return jax().scipy.linalg.solve_triangular(a, b, lower=True)


def transforms() -> list[Row]:
    """Fourier transforms: of vectors, rows, columns, planes, real and complex numbers."""
    forms: list[tuple[str, tuple[int, ...], str, Call]] = [
        ("fft of 1M", (1 << 20,), "complex64", "fft.fft"),
        ("fft of 1,048,575", ((1 << 20) - 1,), "complex64", "fft.fft"),
        ("fft of 4,099, a prime", (4099,), "complex64", "fft.fft"),
        ("fft of rows, 1,024 x 1,024", (1024, 1024), "complex64", "fft.fft"),
        ("fft of rows, 1,024 x 1,000", (1024, 1000), "complex64", "fft.fft"),
        ("fft of columns, 1,024 x 1,024", (1024, 1024), "complex64",
         lambda xp, x: xp.fft.fft(x, None, 0)),
        ("fft of rows of 16", (16384, 16), "complex64", "fft.fft"),
        ("fft of 64", (64,), "complex64", "fft.fft"),
        ("fft of 16,384", (16384,), "complex64", "fft.fft"),
        ("ifft of rows, 1,024 x 1,024", (1024, 1024), "complex64", "fft.ifft"),
        ("rfft 1024 x 1024", (1024, 1024), "float32", "fft.rfft"),
        ("rfft of 1M", (1 << 20,), "float32", "fft.rfft"),
        ("irfft of rows, 1,024 x 513", (1024, 513), "complex64", "fft.irfft"),
        ("fft2 512 x 512", (512, 512), "complex64", lambda xp, x: xp.fft.fftn(x, None, (0, 1))),
        ("rfft2 512 x 512", (512, 512), "float32", lambda xp, x: xp.fft.rfftn(x, None, (0, 1))),
        ("fftn of 64 x 64 x 64", (64, 64, 64), "complex64", "fft.fftn"),
        ("fft of rows, f64, 512 x 512", (512, 512), "complex128", "fft.fft"),
        ("fftshift of 1,024 x 1,024", (1024, 1024), "float32", "fft.fftshift"),
    ]  # fmt: skip
    rows = []
    for name, shape, dtype, call in forms:
        x = Operand(shape, dtype)
        flops = 0.0 if "shift" in name else 5.0 * x.size * math.log2(max(2, shape[-1]))
        rows.append(
            Row(name, "fft", name.split()[0], (x,), libs(call), flops=flops, tolerance=1e-3,
                level=0 if shape == (64,) else 1)
        )  # fmt: skip
    return rows


ROWS = [*factors(), *solutions(), *transforms()]

"""Products: matrices, vectors in both orders, many small matrices, bytes and half precision; and
distances, which are products, too.
"""

from __future__ import annotations

from typing import Any

from .rows import BYTES, SHORT, Call, Operand, Row, jax, libs, shape_text

PRODUCT: dict[str, Call] = libs(lambda xp, x, y: x @ y)
#: The dtype by which `limits` has the peak rate.
KINDS = {"bfloat16": "bf16", "int8": "int8"}


def flops_of(x: Operand, y: Operand) -> float:
    """Two operations for each multiply-add of `x @ y`."""
    columns = y.shape[-1] if len(y.shape) > 1 else 1
    return 2.0 * x.size * columns


def least_bytes(x: Operand, y: Operand) -> float:
    """The bytes of both operands and of the product."""
    rows = x.size / x.shape[-1]
    columns = y.shape[-1] if len(y.shape) > 1 else 1
    return x.bytes + y.bytes + rows * columns * BYTES[x.dtype]


def product(x: tuple[int, ...], y: tuple[int, ...], dtype: str = "float32", level: int = 1) -> Row:
    """A row of `x @ y`."""
    kind = "integers" if dtype.startswith("int") else "normal"
    a, b = (Operand(shape, dtype, kind, high=50, low=-50) for shape in (x, y))
    calls = dict(PRODUCT)
    if dtype == "bfloat16":
        del calls["numpy"]
    low = dtype in ("bfloat16", "float16")
    return Row(
        f"{shape_text(x)} @ {shape_text(y)}, {SHORT[dtype]}", "products", "matmul", (a, b), calls,
        flops=flops_of(a, b), bytes=least_bytes(a, b), dtype=KINDS.get(dtype, "f32"),
        tolerance=2e-2 if low else 1e-3, level=level,
    )  # fmt: skip


def plain() -> list[Row]:
    """Products without batches."""
    n = 4096
    return [
        product((8, 8), (8, 8), level=0), product((64, 64), (64, 64)),
        *(product((k, k), (k, k)) for k in (128, 256, 512, 1024)),
        product((256, 256), (256, 256), "float64"), product((512, 512), (512, 512), "float64"),
        product((256, 256), (256, 256), "bfloat16"), product((512, 512), (512, 512), "bfloat16"),
        product((512, 512), (512, 512), "float16"), product((256, 256), (256, 256), "int32"),
        product((256, 256), (256, 256), "complex64"),
        product((n, n), (n,)), product((n,), (n, n)), product((1, n), (n, n)),
        product((n, n), (n, 1)), product((2048, 2048), (2048,), "float64"),
        product((2048,), (2048, 2048), "float64"), product((n, n), (n,), "bfloat16"),
        product((n,), (n, n), "bfloat16"), product((1024, 1024), (1024,)),
        product((256, 256), (256,)), product((256,), (256, 256)), product((16, 16), (16,), level=0),
        product((n, 64), (64,)), product((64, n), (n,)), product((100_000, 16), (16,)),
        product((16,), (16, 100_000)), product((n, n), (n, 4)), product((4, n), (n, n)),
        product((100_000, 16), (16, 16)), product((16, 10_000), (10_000, 16)),
        product((1024, 8), (8, 1024)), product((1000, 1000), (1000, 1000)),
        product((333, 777), (777, 111)), product((1 << 20,), (1 << 20,)), product((64,), (64,)),
    ]  # fmt: skip


def batched() -> list[Row]:
    """Many products."""
    sizes = ((4096, 4), (4096, 3), (4096, 8), (1024, 16), (512, 32), (128, 64), (32, 128))
    rows = [product((b, k, k), (b, k, k)) for b, k in sizes]
    return [
        *rows,
        product((1024, 16, 16), (1024, 16, 16), "float64"),
        product((128, 64, 64), (128, 64, 64), "bfloat16"),
        product((1024, 64, 64), (1024, 64, 1)),
        product((1024, 1, 64), (1024, 64, 64)),
        product((64, 256, 64), (64, 64, 256)),
        product((512, 32, 32), (32, 32)),
        product((16, 4, 4), (16, 4, 4), level=0),
    ]


def turned() -> list[Row]:
    """Operands that are transposed, and other contractions."""
    m, n = Operand((512, 512)), Operand((4096, 4096))
    v, tall = Operand((4096,)), Operand((100_000, 16))
    q = Operand((8, 12, 128, 64))
    bytes_ = Operand((512, 512), "int8", "integers", high=100, low=-100)
    gemm = 2.0 * 512**3
    wide = libs(
        lambda xp, x, y: x.astype(xp.int32) @ y.astype(xp.int32),
        torch=lambda xp, x, y: xp._int_mm(x, y),
        jax=lambda xp, x, y: jax().lax.dot(x, y, preferred_element_type=xp.int32),
    )
    vector = Operand((4096,), "int8", "integers", high=100, low=-100)
    square = Operand((4096, 4096), "int8", "integers", high=100, low=-100)
    einsum = lambda text: libs(lambda xp, *x: xp.einsum(text, *x))
    table: list[tuple[str, tuple[Operand, ...], dict[str, Call], float, float, str]] = [
        ("x @ w.T, 512", (m, m), libs(lambda xp, x, y: x @ y.T), gemm, 3.0 * m.bytes, "f32"),
        ("x.T @ y, 512", (m, m), libs(lambda xp, x, y: x.T @ y), gemm, 3.0 * m.bytes, "f32"),
        ("x.T @ v, 4,096", (n, v), libs(lambda xp, x, y: x.T @ y), 2.0 * n.size, n.bytes, "f32"),
        ("v @ x.T, 4,096", (v, n), libs(lambda xp, x, y: x @ y.T), 2.0 * n.size, n.bytes, "f32"),
        ("x.T @ x of [100000, 16]", (tall,), libs(lambda xp, x: x.T @ x), 32.0 * tall.size,
         tall.bytes, "f32"),
        ("int8 @ int8 in int32, 512", (bytes_, bytes_), wide, gemm, 6.0 * bytes_.bytes, "int8"),
        ("int8 matrix @ vector in int32, 4,096", (square, vector),
         libs(lambda xp, x, y: x.astype(xp.int32) @ y.astype(xp.int32), numpy=None,
              torch=lambda xp, x, y: xp.mv(x.int(), y.int()),
              jax=lambda xp, x, y: jax().lax.dot(x, y, preferred_element_type=xp.int32)),
         2.0 * square.size, square.bytes, "int8"),
        ("scores q @ k.T, 8 x 12 heads of 128 x 64", (q, q),
         libs(lambda xp, x, y: x @ xp.swapaxes(y, -1, -2)), 2.0 * 96 * 128 * 128 * 64,
         2.0 * q.bytes + 96 * 128 * 128 * 4, "f32"),
        ("einsum bij,bjk->bik, 64 of 64", (Operand((64, 64, 64)),) * 2, einsum("bij,bjk->bik"),
         2.0 * 64**4, 3.0 * 64**3 * 4, "f32"),
        ("einsum ij,ij->i, 2,048", (Operand((2048, 2048)),) * 2, einsum("ij,ij->i"), 2.0 * 2048**2,
         8.0 * 2048**2, "f32"),
        ("einsum ijk,kl->ijl", (Operand((64, 64, 64)), Operand((64, 64))), einsum("ijk,kl->ijl"),
         2.0 * 64**4, 8.0 * 64**3, "f32"),
        ("einsum bi,bj->bij, [256, 64]", (Operand((256, 64)),) * 2, einsum("bi,bj->bij"), 0.0,
         4.0 * 256 * 64 * 64, "f32"),
        ("vecdot of rows, 2,048", (Operand((2048, 2048)),) * 2,
         libs("vecdot", torch="linalg.vecdot"), 2.0 * 2048**2, 8.0 * 2048**2, "f32"),
        ("x @ w + b, relu, 256", (Operand((256, 256)), Operand((256, 256)), Operand((256,))),
         libs(lambda xp, x, w, b: xp.maximum(x @ w + b, 0.0),
              torch=lambda xp, x, w, b: xp.addmm(b, x, w).relu_()), 2.0 * 256**3, 12.0 * 256**2,
         "f32"),
        ("x @ y, [1024, 1024] of every second", (Operand((1024, 2048)), Operand((1024, 256))),
         libs(lambda xp, x, y: x[:, ::2] @ y[: x.shape[1] // 2]), 2.0 * 1024 * 1024 * 256,
         10.0 * 2**20, "f32"),
    ]  # fmt: skip
    return [
        Row(name, "products", "matmul", operands, calls, flops=flops, bytes=moved, dtype=kind,
            tolerance=1e-3)
        for name, operands, calls, flops, moved, kind in table
    ]  # fmt: skip


def by_difference(xp: Any, x: Any, y: Any) -> Any:
    apart = x[:, None] - y[None]
    return (apart * apart).sum(-1)


def by_product(xp: Any, x: Any, y: Any) -> Any:
    return (x * x).sum(-1)[:, None] + (y * y).sum(-1) - 2.0 * (x @ y.T)


def kmeans(xp: Any, x: Any, centres: Any) -> Any:
    """The nearest centre of each point, and the points' sum by centre."""
    nearest = xp.argmin(by_product(xp, x, centres), 1)
    mine = (nearest[:, None] == xp.arange(centres.shape[0])) * 1.0
    return mine.T @ x


def kmeans_in_torch(xp: Any, x: Any, centres: Any) -> Any:
    nearest = xp.cdist(x, centres).argmin(1)
    return xp.zeros_like(centres).index_add(0, nearest, x)


def graph_layer(xp: Any, x: Any, w: Any, a: Any, b: Any, mask: Any) -> Any:
    """Attention over the edges of a dense graph, as in a graph attention layer."""
    h = x @ w
    scores = h @ a + (h @ b).T
    scores = xp.where(mask, xp.where(scores > 0, scores, 0.2 * scores), -1e9)
    e = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    return (e / xp.sum(e, axis=1, keepdims=True)) @ h


def graph_layer_in_torch(xp: Any, x: Any, w: Any, a: Any, b: Any, mask: Any) -> Any:
    h = x @ w
    scores = xp.nn.functional.leaky_relu(h @ a + (h @ b).T, 0.2).masked_fill(~mask, -1e9)
    return xp.softmax(scores, 1) @ h


def distances() -> list[Row]:
    """Distances of points, and what is made of them."""
    points, few = Operand((2048, 64)), Operand((1024, 3))
    cdist = lambda xp, x, y: xp.cdist(x, y) ** 2
    gemm = 2.0 * 2048 * 2048 * 64
    cosine = lambda xp, x, y: (
        (x @ y.T) / (xp.linalg.norm(x, axis=1)[:, None] * xp.linalg.norm(y, axis=1))
    )
    return [
        Row("squared distances of 2,048 points in 64 dimensions", "distances", "distances",
            (points, points), libs(by_difference, torch=cdist), flops=gemm,
            bytes=4.0 * 2048 * 2048, tolerance=1e-3),
        Row("squared distances by a product, 2,048 of 64", "distances", "distances",
            (points, points), libs(by_product), flops=gemm, bytes=4.0 * 2048 * 2048,
            tolerance=1e-3),
        Row("squared distances of 1,024 points in 3 dimensions", "distances", "distances",
            (few, few), libs(by_difference), flops=8.0 * 2**20, bytes=4.0 * 2**20),
        Row("cdist of 2,048 points in 64 dimensions", "distances", "distances", (points, points),
            libs("cdist", numpy=None, jax=None), flops=gemm, bytes=4.0 * 2048 * 2048,
            tolerance=1e-2),
        Row("absolute distances of 512 points in 64", "distances", "distances",
            (Operand((512, 64)),) * 2,
            libs(lambda xp, x, y: abs(x[:, None] - y[None]).sum(-1),
                 torch=lambda xp, x, y: xp.cdist(x, y, 1.0)), flops=4.0 * 512 * 512 * 64),
        Row("cosine similarities of 1,024 of 64", "distances", "distances",
            (Operand((1024, 64)),) * 2, libs(cosine), flops=gemm / 4, bytes=4.0 * 2**20),
        Row("k-means step, 10,000 points of 16, 32 centres", "distances", "k-means",
            (Operand((10_000, 16)), Operand((32, 16))), libs(kmeans, torch=kmeans_in_torch),
            flops=4.0 * 10_000 * 16 * 32, bytes=640_000.0, tolerance=1e-2),
        Row("graph attention layer, 1,024 nodes of 64", "distances", "graph attention",
            (Operand((1024, 64)), Operand((64, 64), kind="unit"), Operand((64, 1), kind="unit"),
             Operand((64, 1), kind="unit"), Operand((1024, 1024), "bool")),
            libs(graph_layer, torch=graph_layer_in_torch), flops=2.0 * 1024 * 1024 * 64,
            bytes=float(2**20), tolerance=1e-3),
    ]  # fmt: skip


ROWS = [*plain(), *batched(), *turned(), *distances()]

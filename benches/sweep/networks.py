"""Layers of networks: softmax, norms, losses, attention, embeddings, and some gradients."""

from __future__ import annotations

import math
from typing import Any

from .rows import Call, Operand, Row, jax, libs, only, shape_text

#: Shapes of rows, from short to long.
ROWS_OF = ((65536, 4), (65536, 16), (16384, 64), (4096, 256), (1024, 1024), (32, 50257))


def softmax_in_numpy(xp: Any, x: Any) -> Any:
    e = xp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm_in(xp: Any, x: Any, w: Any, b: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / xp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b


def rms_norm_in(xp: Any, x: Any, w: Any) -> Any:
    return x / xp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w


def on_rows() -> list[Row]:
    """Softmax and norms of short and long rows."""
    rows = []
    softmax: dict[str, Call] = only(
        lambda xp, x: xp.softmax(x, -1), numpy=softmax_in_numpy,
        torch=lambda xp, x: xp.softmax(x, -1), jax="nn.softmax",
    )  # fmt: skip
    logs: dict[str, Call] = only(
        lambda xp, x: xp.log_softmax(x, -1), torch=lambda xp, x: xp.log_softmax(x, -1),
        jax="nn.log_softmax",
    )  # fmt: skip
    norm = lambda xp, x, w, b: xp.nn.functional.layer_norm(x, x.shape[-1:], w, b)
    norms: dict[str, Call] = only(norm, torch=norm, numpy=layer_norm_in, jax=layer_norm_in)
    rms: dict[str, Call] = only(
        lambda xp, x, w: xp.nn.functional.rms_norm(x, x.shape[-1:], w, 1e-5),
        torch=lambda xp, x, w: xp.nn.functional.rms_norm(x, x.shape[-1:], w, 1e-5),
        numpy=rms_norm_in, jax=rms_norm_in,
    )  # fmt: skip
    for shape in ROWS_OF:
        x, w = Operand(shape), Operand(shape[-1:])
        text = shape_text(shape)
        rows += [
            Row(f"softmax {text}", "softmax and norms", "softmax", (x,), softmax,
                flops=28.0 * x.size),
            Row(f"log_softmax {text}", "softmax and norms", "log_softmax", (x,), logs,
                flops=28.0 * x.size, level=1 if shape[1] in (16, 1024) else 2),
            Row(f"layer norm {text}", "softmax and norms", "layer_norm", (x, w, w), norms,
                bytes=2.0 * x.bytes, tolerance=1e-3),
            Row(f"rms norm {text}", "softmax and norms", "rms_norm", (x, w), rms,
                bytes=2.0 * x.bytes, level=1 if shape[1] in (16, 1024) else 2, tolerance=1e-3),
        ]  # fmt: skip
    return rows


def other_norms() -> list[Row]:
    """Softmax along other axes, and norms of images."""
    x, c = Operand((8, 64, 56, 56)), Operand((64,))
    first = lambda xp, x: xp.softmax(x, 0)
    m = Operand((1024, 1024))
    trained = lambda xp, x, w, b: xp.nn.functional.batch_norm(x, None, None, w, b, True)
    grouped = lambda xp, x: xp.nn.functional.group_norm(x, 8)

    def in_jax(x: Any, axes: tuple[int, ...]) -> Any:
        centred = x - x.mean(axes, keepdims=True)
        return centred / ((centred * centred).mean(axes, keepdims=True) + 1e-5) ** 0.5

    by_channel = lambda xp, x, w, b: in_jax(x, (0, 2, 3)) * w[:, None, None] + b[:, None, None]
    by_group = lambda xp, x: in_jax(x.reshape(x.shape[0], 8, -1), (2,)).reshape(x.shape)
    short = Operand((64, 16))
    return [
        Row("softmax along axis 0, [1024, 1024]", "softmax and norms", "softmax", (m,),
            only(first, torch=first, jax=lambda xp, x: jax().nn.softmax(x, 0)),
            flops=28.0 * m.size),
        Row("softmax, tiny", "softmax and norms", "softmax", (short,),
            only(lambda xp, x: xp.softmax(x, -1), torch=lambda xp, x: xp.softmax(x, -1),
                 jax="nn.softmax", numpy=softmax_in_numpy), level=0),
        Row("softmax bf16 [1024, 1024]", "softmax and norms", "softmax",
            (Operand((1024, 1024), "bfloat16"),),
            only(lambda xp, x: xp.softmax(x, -1), torch=lambda xp, x: xp.softmax(x, -1),
                 jax="nn.softmax"), flops=28.0 * m.size, tolerance=2e-2),
        Row("batch norm in training, [8, 64, 56, 56]", "softmax and norms", "batch_norm", (x, c, c),
            only(trained, torch=trained, jax=by_channel), bytes=2.0 * x.bytes, tolerance=1e-3),
        Row("group norm of 8 groups, [8, 64, 56, 56]", "softmax and norms", "group_norm", (x,),
            only(grouped, torch=grouped, jax=by_group), bytes=2.0 * x.bytes, tolerance=1e-3),
        Row("normalised rows, [16384, 64]", "softmax and norms", "normalize",
            (Operand((16384, 64)),),
            only(lambda xp, x: xp.nn.functional.normalize(x, axis=-1),
                 torch=lambda xp, x: xp.nn.functional.normalize(x, dim=-1),
                 jax=lambda xp, x: x / xp.linalg.norm(x, axis=-1, keepdims=True))),
    ]  # fmt: skip


def losses() -> list[Row]:
    """Losses with labels and targets."""
    rows = []
    cross = lambda xp, x, y: xp.nn.functional.cross_entropy(x, y)

    def in_jax(xp: Any, x: Any, y: Any) -> Any:
        logs = jax().nn.log_softmax(x)
        return -xp.take_along_axis(logs, y[:, None], 1).mean()

    for shape in ((65536, 10), (4096, 1000), (128, 50257)):
        x = Operand(shape)
        y = Operand(shape[:1], "int64", "indices", high=shape[1])
        rows.append(
            Row(f"cross entropy {shape_text(shape)}", "losses", "cross_entropy", (x, y),
                only(cross, torch=cross, jax=in_jax), flops=26.0 * x.size, bytes=x.bytes)
        )  # fmt: skip
    m, unit = Operand((1024, 1024)), Operand((1024, 1024), kind="positive")
    square = lambda xp, x, y: xp.nn.functional.mse_loss(x, y)
    binary = lambda xp, x, y: xp.nn.functional.binary_cross_entropy_with_logits(x, y * 0.5)
    likely = lambda xp, x, y: xp.nn.functional.binary_cross_entropy(x * 0.5, y * 0.5)
    huber = lambda xp, x, y: xp.nn.functional.huber_loss(x, y)
    return [
        *rows,
        Row("mse loss [1024, 1024]", "losses", "mse_loss", (m, m),
            only(square, torch=square, jax=lambda xp, x, y: ((x - y) ** 2).mean()),
            bytes=2.0 * m.bytes),
        Row("binary cross entropy of logits [1024, 1024]", "losses", "binary_cross_entropy",
            (m, unit), only(binary, torch=binary), flops=40.0 * m.size, bytes=2.0 * m.bytes),
        Row("binary cross entropy of probabilities [1024, 1024]", "losses", "binary_cross_entropy",
            (unit, unit), only(likely, torch=likely), flops=60.0 * m.size, bytes=2.0 * m.bytes),
        Row("huber loss [1024, 1024]", "losses", "huber_loss", (m, m), only(huber, torch=huber),
            bytes=2.0 * m.bytes),
    ]  # fmt: skip


def _swapped(x: Any) -> Any:
    return x.swapaxes(1, 2)


def attention() -> list[Row]:
    """Attention by length, width, mask and number of queries."""
    forms: list[tuple[str, tuple[int, ...], tuple[int, ...], bool, int]] = [
        ("causal attention, 12 heads, 1,024 x 64", (1, 12, 1024, 64), (1, 12, 1024, 64), True, 1),
        ("attention, 12 heads, 1,024 x 64", (1, 12, 1024, 64), (1, 12, 1024, 64), False, 1),
        ("causal attention, 32 x 8 heads, 128 x 64", (32, 8, 128, 64), (32, 8, 128, 64), True, 1),
        ("attention, 8 x 8 heads, 256 x 32", (8, 8, 256, 32), (8, 8, 256, 32), False, 1),
        ("attention of one query, 32 heads, 2,048 keys of 128", (1, 32, 1, 128), (1, 32, 2048, 128),
         False, 1),
        ("attention, tiny", (1, 2, 8, 16), (1, 2, 8, 16), False, 0),
    ]  # fmt: skip
    rows = []
    for name, queries, keys, causal, level in forms:
        ours = lambda xp, q, k, v, c=causal: xp.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=c
        )
        in_jax = lambda xp, q, k, v, c=causal: _swapped(
            jax().nn.dot_product_attention(_swapped(q), _swapped(k), _swapped(v), is_causal=c)
        )
        q, k = Operand(queries), Operand(keys)
        pairs = q.size / queries[-1] * keys[-2] * (0.5 if causal else 1.0)
        rows.append(
            Row(name, "attention", "attention", (q, k, k), only(ours, torch=ours, jax=in_jax),
                flops=pairs * (4.0 * queries[-1] + 20), bytes=2.0 * (q.bytes + k.bytes),
                tolerance=1e-3, level=level)
        )  # fmt: skip
    mask = Operand((256, 256), "bool")
    x = Operand((8, 8, 256, 32))
    masked = lambda xp, q, k, v, m: xp.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=m
    )
    return [
        *rows,
        Row("attention with a mask, 8 x 8 heads, 256 x 32", "attention", "attention",
            (x, x, x, mask), only(masked, torch=masked), flops=64.0 * 256 * 256 * 148,
            tolerance=1e-3),
    ]  # fmt: skip


def gradients() -> list[Row]:
    """Gradients of sums, which training computes; the forward pass is part of them."""
    rows = []

    def derived(loss: Any, of_jax: Any = None) -> dict[str, Call]:
        def torch(xp: Any, x: Any, *rest: Any) -> Any:
            x = x.detach().requires_grad_()
            return xp.autograd.grad(loss(xp, x, *rest), x)[0]

        return only(
            lambda xp, x, *rest: xp.grad(lambda x: loss(xp, x, *rest))(x), torch=torch,
            jax=lambda xp, x, *rest: jax().grad(lambda x: (of_jax or loss)(xp, x, *rest))(x),
        )  # fmt: skip

    def chosen_in_jax(xp: Any, x: Any, y: Any) -> Any:
        return -xp.take_along_axis(jax().nn.log_softmax(x), y[:, None], 1).mean()

    table: list[tuple[str, str, tuple[Operand, ...], dict[str, Call]]] = [
        ("gradient of the sum of tanh, 4 MB", "tanh", (Operand((1 << 20,)),),
         derived(lambda xp, x: xp.tanh(x).sum())),
        ("gradient of a product's sum of squares, 512", "matmul", (Operand((512, 512)),) * 2,
         derived(lambda xp, x, w: ((x @ w) ** 2).mean())),
        ("gradient of cross entropy [4096, 1000]", "cross_entropy",
         (Operand((4096, 1000)), Operand((4096,), "int64", "indices", high=1000)),
         derived(lambda xp, x, y: xp.nn.functional.cross_entropy(x, y), chosen_in_jax)),
        ("gradient of a softmax's square, [16384, 64]", "softmax", (Operand((16384, 64)),),
         derived(lambda xp, x: (xp.softmax(x, -1) ** 2).sum(),
                 lambda xp, x: (jax().nn.softmax(x, -1) ** 2).sum())),
        ("gradient of a gather, 50,000 rows of 64", "take",
         (Operand((10_000, 64)), Operand((50_000,), "int64", "indices", high=10_000)),
         derived(lambda xp, x, i: (x[i] ** 2).sum())),
        ("gradient of one element per row, [4096, 256]", "take_along_axis",
         (Operand((4096, 256)), Operand((4096, 8), "int64", "indices", high=256)),
         derived(lambda xp, x, i: ((xp.take_along_dim if xp.__name__ == "torch"
                                    else xp.take_along_axis)(x, i, 1) ** 2).sum())),
        ("gradient of max along rows, [2048, 512]", "max", (Operand((2048, 512)),),
         derived(lambda xp, x: (xp.amax(x, 1) ** 2).sum(), lambda xp, x: (x.max(1) ** 2).sum())),
    ]  # fmt: skip
    for name, op, operands, calls in table:
        flops = 3 * 2.0 * 512**3 if op == "matmul" else 0.0
        rows.append(
            Row(name, "gradients", op, operands, calls, flops=flops, bytes=2.0 * operands[0].bytes,
                tolerance=1e-3)
        )  # fmt: skip
    return rows


def others() -> list[Row]:
    """A recurrent cell, a linear layer of one row, and rotary positions."""
    x = Operand((64, 256))
    w = Operand((256, 4, 256), kind="unit")

    def rotated(xp: Any, x: Any, c: Any, s: Any) -> Any:
        half = x.shape[-1] // 2
        c, s = c[..., :half], s[..., :half]
        a, b = x[..., :half], x[..., half:]
        return (xp.concatenate if xp.__name__ != "torch" else xp.cat)(
            [a * c - b * s, b * c + a * s], -1
        )

    angles = Operand((1024, 32))
    linear = lambda xp, x, w, b: xp.nn.functional.linear(x, w, b)
    return [
        Row("cell of an LSTM, batch 64, width 256", "layers", "lstm", (x, x, w, w),
            only(gated("sigmoid"), torch=gated("sigmoid"), jax=gated(None)),
            flops=4.0 * 64 * 256 * 1024, tolerance=1e-3),
        Row("rotary positions, [12, 1024, 64]", "layers", "concat",
            (Operand((12, 1024, 64)), angles, angles), libs(rotated), bytes=2.0 * 12 * 1024 * 256),
        Row("linear layer of one row, 1,024 to 4,096", "layers", "linear",
            (Operand((1, 1024)), Operand((4096, 1024)), Operand((4096,))),
            only(linear, torch=linear, numpy=lambda xp, x, w, b: x @ w.T + b,
                 jax=lambda xp, x, w, b: x @ w.T + b), flops=2.0 * 4096 * 1024,
            bytes=4.0 * 4096 * 1024, tolerance=1e-3),
        Row("dropout-free MLP of width 64, batch 8", "layers", "matmul",
            (Operand((8, 64)), Operand((64, 64), kind="unit"), Operand((64, 64), kind="unit")),
            libs(lambda xp, x, a, b: xp.tanh(xp.tanh(x @ a) @ b)), flops=4.0 * 8 * 64 * 64,
            tolerance=1e-3, level=0),
    ]  # fmt: skip


def gated(name: str | None) -> Any:
    """The cell of an LSTM with weights `[inputs, gates, units]`."""

    def call(xp: Any, x: Any, h: Any, w: Any, u: Any) -> Any:
        sigmoid = getattr(xp, name) if name else jax().nn.sigmoid
        scale = 1 / math.sqrt(x.shape[-1])
        flat = lambda m: m.reshape(m.shape[0], -1) * scale
        gates = (x @ flat(w) + h @ flat(u)).reshape(x.shape[0], 4, -1)
        i, f, g, o = (gates[:, k] for k in range(4))
        return sigmoid(o) * xp.tanh(sigmoid(f) * h + sigmoid(i) * xp.tanh(g))

    return call


ROWS = [*on_rows(), *other_norms(), *losses(), *attention(), *gradients(), *others()]

"""Borders, turns, repetitions, joins, transpositions and other moves of elements."""

from __future__ import annotations

from typing import Any

from .rows import Call, Operand, Row, libs, only, shape_text

TORCH_MODES = {
    "constant": "constant",
    "reflect": "reflect",
    "edge": "replicate",
    "wrap": "circular",
}


def pads() -> list[Row]:
    """Each mode on an image, and constant and reflected borders of other shapes."""
    rows = []
    image, small, line = Operand((2000, 2000)), Operand((16, 16)), Operand((1 << 20,))
    batch = Operand((8, 64, 56, 56))

    def call(mode: str, rank: int) -> dict[str, Call]:
        widths = [(0, 0)] * (rank - 2) + [(2, 2)] * min(rank, 2)
        torch_widths = (2, 2) * min(rank, 2)

        def torch(xp: Any, x: Any) -> Any:
            if mode == "constant":
                return xp.nn.functional.pad(x, torch_widths)
            lead = (None,) * (min(rank, 2) + 1 - x.ndim) if x.ndim < 3 else ()
            padded = xp.nn.functional.pad(x[lead], torch_widths, mode=TORCH_MODES[mode])
            return padded[(0,) * len(lead)]

        return libs(lambda xp, x: xp.pad(x, widths, mode=mode), torch=torch)

    for mode in TORCH_MODES:
        often = mode in ("constant", "reflect")
        rows += [
            Row(f"pad {mode}, 2,000 x 2,000", "shapes", f"pad {mode}", (image,), call(mode, 2)),
            Row(f"pad {mode}, [8, 64, 56, 56]", "shapes", f"pad {mode}", (batch,), call(mode, 4),
                level=1 if often else 2),
            Row(f"pad {mode}, tiny", "shapes", f"pad {mode}", (small,), call(mode, 2),
                level=0 if mode == "reflect" else 1 if often else 2),
        ]  # fmt: skip
    symmetric = libs(lambda xp, x: xp.pad(x, 2, mode="symmetric"), torch=None)
    return [
        *rows,
        Row("pad symmetric, 2,000 x 2,000", "shapes", "pad symmetric", (image,), symmetric),
        Row("pad reflect, 1M", "shapes", "pad reflect", (line,), call("reflect", 1)),
        Row("pad wrap, 1M", "shapes", "pad wrap", (line,), call("wrap", 1)),
        Row("pad of the last axis, [65536, 16]", "shapes", "pad constant", (Operand((65536, 16)),),
            libs(lambda xp, x: xp.pad(x, ((0, 0), (1, 1))),
                 torch=lambda xp, x: xp.nn.functional.pad(x, (1, 1)))),
    ]  # fmt: skip


def turns() -> list[Row]:
    """Rolls, flips, rotations and repetitions."""
    m, byte = Operand((2048, 2048)), Operand((2048, 2048), "uint8", "integers", high=200)
    image, line, quarter = Operand((16, 3, 256, 256)), Operand((1 << 20,)), Operand((1 << 18,))
    rows = []
    for name, x in (("f32 2,048 x 2,048", m), ("u8 2,048 x 2,048", byte)):
        for axis, along in ((1, "along rows"), (0, "along columns")):
            rows += [
                Row(f"roll {along}, {name}", "shapes", "roll", (x,),
                    libs(lambda xp, x, a=axis: xp.roll(x, 5, a))),
                Row(f"flip {along}, {name}", "shapes", "flip", (x,),
                    libs(lambda xp, x, a=axis: xp.flip(x, (a,)),
                         numpy=lambda xp, x, a=axis: xp.flip(x, (a,)).copy())),
            ]  # fmt: skip
    repeated = lambda count, axis: libs(
        lambda xp, x: xp.repeat(x, count, axis),
        torch=lambda xp, x: xp.repeat_interleave(x, count, axis),
    )
    return [
        *rows,
        Row("roll along both, f32 2,048 x 2,048", "shapes", "roll", (m,),
            libs(lambda xp, x: xp.roll(x, (5, 3), (0, 1)))),
        Row("roll of 1M", "shapes", "roll", (line,), libs(lambda xp, x: xp.roll(x, 5, 0))),
        Row("roll, tiny", "shapes", "roll", (Operand((64,)),), libs(lambda xp, x: xp.roll(x, 5, 0)),
            level=0),
        Row("flip of 1M", "shapes", "flip", (line,),
            libs(lambda xp, x: xp.flip(x, (0,)), numpy=lambda xp, x: xp.flip(x, (0,)).copy())),
        Row("flip of images along their width", "shapes", "flip", (image,),
            libs(lambda xp, x: xp.flip(x, (3,)), numpy=lambda xp, x: xp.flip(x, (3,)).copy())),
        Row("rot90 of 2,048 x 2,048", "shapes", "rot90", (m,),
            libs(lambda xp, x: xp.rot90(x), numpy=lambda xp, x: xp.rot90(x).copy(),
                 torch=lambda xp, x: xp.rot90(x).contiguous())),
        Row("repeat(x, 8) of 256K", "shapes", "repeat", (quarter,), repeated(8, 0),
            bytes=9.0 * quarter.bytes),
        Row("repeat rows twice, [1024, 1024]", "shapes", "repeat", (Operand((1024, 1024)),),
            repeated(2, 0), bytes=float(12 << 20)),
        Row("repeat columns twice, [1024, 1024]", "shapes", "repeat", (Operand((1024, 1024)),),
            repeated(2, 1), bytes=float(12 << 20)),
        Row("repeat columns 3 times, [65536, 4]", "shapes", "repeat", (Operand((65536, 4)),),
            repeated(3, 1), bytes=float(4 << 20)),
        Row("tile 8 times, 256K", "shapes", "tile", (quarter,),
            libs(lambda xp, x: xp.tile(x, (8,))),
            bytes=9.0 * quarter.bytes),
        Row("tile 2 x 2, [1024, 1024]", "shapes", "tile", (Operand((1024, 1024)),),
            libs(lambda xp, x: xp.tile(x, (2, 2))), bytes=float(20 << 20)),
        Row("tile of rows of 3, 100,000 times", "shapes", "tile", (Operand((3,)),),
            libs(lambda xp, x: xp.tile(x, (100_000, 1))), bytes=1.2e6),
    ]  # fmt: skip


def joins() -> list[Row]:
    """Concatenations, stacks and splits."""
    m, v, thin = Operand((1024, 1024)), Operand((1 << 20,)), Operand((1 << 18, 3))
    small = Operand((16,))
    concat = lambda axis: libs(
        lambda xp, *x: xp.concatenate(x, axis=axis), torch=lambda xp, *x: xp.cat(x, axis)
    )
    stack = lambda axis: libs(
        lambda xp, *x: xp.stack(x, axis=axis), torch=lambda xp, *x: xp.stack(x, axis)
    )
    table: list[tuple[str, str, tuple[Operand, ...], dict[str, Call], float]] = [
        ("concat of 1M and 1M", "concat", (v, v), concat(0), 16 << 20),
        ("concat along rows, [1024, 1024]", "concat", (m, m), concat(1), 16 << 20),
        ("concat along columns, [1024, 1024]", "concat", (m, m), concat(0), 16 << 20),
        ("concat of rows of 3 and 3", "concat", (thin, thin), concat(1), 12 << 20),
        ("concat of 8 tiny", "concat", (small,) * 8, concat(0), 1024),
        ("concat along the middle axis", "concat", (Operand((64, 64, 128)),) * 2,
         concat(1), 8 << 20),
        ("stack of 1M and 1M, first axis", "stack", (v, v), stack(0), 16 << 20),
        ("stack of 1M and 1M, last axis", "stack", (v, v), stack(-1), 16 << 20),
        ("stack of three 256K, last axis", "stack", (Operand((1 << 18,)),) * 3, stack(-1), 6 << 20),
        ("stack of 16 tiny", "stack", (small,) * 16, stack(0), 2048),
    ]  # fmt: skip
    return [
        *(Row(name, "shapes", op, operands, calls, bytes=float(moved),
              level=0 if "tiny" in name else 1)
          for name, op, operands, calls, moved in table),
        Row("split in 4 along rows and add", "shapes", "split", (m,),
            libs(lambda xp, x: sum(xp.split(x, 4, 1)),
                 torch=lambda xp, x: sum(xp.split(x, x.shape[1] // 4, 1))), bytes=float(5 << 20)),
    ]  # fmt: skip


def transpositions() -> list[Row]:
    """Copies in another order of axes."""
    rows = []
    forms: list[tuple[tuple[int, ...], tuple[int, ...], str]] = [
        ((2048, 2048), (1, 0), "float32"), ((2048, 2048), (1, 0), "float64"),
        ((2048, 2048), (1, 0), "uint8"), ((2048, 2048), (1, 0), "bfloat16"),
        ((1 << 18, 3), (1, 0), "float32"), ((3, 1 << 18), (1, 0), "float32"),
        ((128, 128, 64), (0, 2, 1), "float32"), ((128, 128, 64), (2, 1, 0), "float32"),
        ((128, 128, 64), (1, 0, 2), "float32"), ((128, 128, 64), (2, 0, 1), "float32"),
        ((8, 64, 56, 56), (0, 2, 3, 1), "float32"), ((8, 56, 56, 64), (0, 3, 1, 2), "float32"),
        ((8, 512, 12, 64), (0, 2, 1, 3), "float32"), ((16, 3, 256, 256), (0, 2, 3, 1), "uint8"),
        ((16, 16), (1, 0), "float32"),
    ]  # fmt: skip
    for shape, axes, dtype in forms:
        x = Operand(shape, dtype, "integers" if dtype == "uint8" else "normal", high=200)
        copied = lambda xp, x, axes=axes: xp.permute_dims(x, axes) + 0
        calls = libs(
            copied,
            girih=lambda xp, x, axes=axes: xp.permute_dims(x, axes),
            numpy=lambda xp, x, axes=axes: xp.ascontiguousarray(xp.transpose(x, axes)),
            torch=lambda xp, x, axes=axes: x.permute(axes).contiguous(),
            jax=lambda xp, x, axes=axes: xp.transpose(x, axes),
        )
        if dtype == "bfloat16":
            del calls["numpy"]
        rows.append(
            Row(f"transpose {shape_text(shape)} to {axes}, {dtype}", "shapes", "permute", (x,),
                calls, level=0 if shape == (16, 16) else 1)
        )  # fmt: skip
    m, column = Operand((2048, 2048)), Operand((2048, 1))
    return [
        *rows,
        Row("broadcast of a column to 2,048 x 2,048", "shapes", "broadcast_to", (column,),
            libs(lambda xp, x: xp.broadcast_to(x, (x.shape[0], x.shape[0])) + 0.0,
                 numpy=lambda xp, x: xp.broadcast_to(x, (x.shape[0], x.shape[0])).copy(),
                 torch=lambda xp, x: xp.broadcast_to(x, (x.shape[0], x.shape[0])).contiguous()),
            bytes=float(16 << 20)),
        Row("x.T reshaped to a vector", "shapes", "reshape", (m,),
            libs(lambda xp, x: x.T.reshape(-1)), bytes=2.0 * m.bytes),
        Row("patches of 3 x 3, [4, 16, 64, 64]", "shapes", "unfold", (Operand((4, 16, 64, 64)),),
            only("nn.functional.unfold" and (lambda xp, x: xp.nn.functional.unfold(x, 3)),
                 torch=lambda xp, x: xp.nn.functional.unfold(x, 3)), bytes=4.0 * 4 * 16 * 9 * 3844),
        Row("windows of 8 over 1M, summed", "shapes", "windows", (Operand((1 << 20,)),),
            only(lambda xp, x: x.unfold(0, 8, 1).sum(-1),
                 torch=lambda xp, x: x.unfold(0, 8, 1).sum(-1),
                 numpy=lambda xp, x: xp.lib.stride_tricks.sliding_window_view(x, 8).sum(-1)),
            bytes=float(8 << 20)),
        Row("outer of 2,048 and 2,048", "shapes", "outer", (Operand((2048,)),) * 2, libs("outer"),
            bytes=2.0 * m.bytes / 2),
        Row("kron of 64 x 64 and 32 x 32", "shapes", "kron", (Operand((64, 64)), Operand((32, 32))),
            libs("kron"), bytes=float(16 << 20)),
        Row("meshgrid of 2,048 and added", "shapes", "meshgrid", (Operand((2048,)),) * 2,
            libs(lambda xp, x, y: sum(xp.meshgrid(x, y, indexing="ij"))), bytes=float(16 << 20)),
    ]  # fmt: skip


ROWS = [*pads(), *turns(), *joins(), *transpositions()]

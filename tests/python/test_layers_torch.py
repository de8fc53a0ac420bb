"""Layers and losses against PyTorch: one expression per case, evaluated in both libraries.

``F`` is ``nn.functional`` and ``nn`` the module ``nn`` of each library; if spellings differ, a row
has both. Values are compared in several dtypes, derivatives of first and second order in float64.
"""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

torch = pytest.importorskip("torch")

rng = np.random.default_rng(7)
LABELS = rng.integers(0, 5, (4,))
SIGNS = np.where(rng.random((4, 5)) < 0.5, -1.0, 1.0)
SETS = np.array([[3, 0, -1, 1, 2], [4, 3, 2, 1, 0], [-1, 1, 2, 3, 4], [2, -1, -1, -1, -1]])
BITS = (rng.random((4, 5)) < 0.5).astype("f8")
ROWS = rng.integers(0, 6, (3, 4))
FLAT = rng.integers(0, 6, (9,))
OFFSETS = np.array([0, 3, 3, 7])
ENDS = np.array([0, 3, 3, 7, 9])
IMAGE, VOLUME, LINE = (2, 4, 6, 8), (2, 4, 4, 6, 5), (2, 4, 9)
GRID = rng.uniform(-1.4, 1.4, (2, 5, 3, 2))
GRID3 = rng.uniform(-1.4, 1.4, (2, 2, 3, 4, 3))
EMIT = np.array([[1, 2, 2, 3], [4, 1, 0, 0], [2, 2, 2, 2]])
STEPS, LENGTHS = np.array([9, 7, 9]), np.array([4, 2, 4])
MASKED = np.array([[False, False, True, True, False], [False] * 5])
SEEN = np.triu(np.ones((3, 5), bool), 3)

# Options of a row: the order of derivatives to compare (default 2), and constant operands.
ONCE, NONE = {"order": 1}, {"order": 0}
POOL = {"x": LINE}
#: (expression, or Girih's and PyTorch's), operands by name as shapes or values, options.
CASES = [
    # Activations.
    ("F.softplus(x, 2.5, 1.5)", {"x": (3, 4)}),
    ("F.softplus(x)", {"x": 12 * rng.normal(size=(3, 4))}),
    ("F.rrelu(x, 0.2, 0.6)", {"x": (3, 4)}, ONCE),
    ("nn.RReLU(0.2, 0.6).eval()(x)", {"x": (3, 4)}, ONCE),
    ("nn.Softmax2d()(x)", {"x": IMAGE}),
    # Poolings.
    ("F.avg_pool1d(x, 3, 2, 1, True)", POOL),
    ("F.avg_pool1d(x, 3, 2, 1, True, False)", POOL),
    ("F.avg_pool2d(x, (3, 2), (2, 1), (1, 0), divisor_override=5)", {"x": IMAGE}),
    ("F.avg_pool2d(x, 3, 2, 1, True, False)", {"x": IMAGE}),
    ("F.avg_pool3d(x, 2, 3, 1, True, divisor_override=-3)", {"x": VOLUME}),
    ("nn.AvgPool2d(3, 2, 1, True, False, 7)(x)", {"x": IMAGE}),
    ("F.lp_pool1d(x, 2, 3, 2)", POOL),
    ("F.lp_pool1d(x.abs(), 3.0, 4, 3, ceil_mode=True)", POOL),
    ("F.lp_pool2d(x.abs(), 1.5, (2, 3), ceil_mode=True)", {"x": IMAGE}),
    ("nn.LPPool3d(2, 2, ceil_mode=True)(x)", {"x": VOLUME}),
    ("F.max_pool1d(x, 3, 2, 1, 2, True)", POOL, ONCE),
    *(
        (
            (f"F.max_pool{n}d_with_indices(x, {args})[{part}]", f"F.max_pool{n}d(x, {args}, return_indices=True)[{part}]"),
            {"x": shape},
            ONCE if part == 0 else NONE,
        )
        for part in (0, 1)
        for n, shape, args in [
            (1, LINE, "3, 2, 1"), (1, LINE, "2, 2, 1, 2"), (2, IMAGE, "(3, 2), (1, 2), (1, 0)"),
            (2, IMAGE, "2, 3, 1, 3"), (3, VOLUME, "2, 1, 1"), (1, LINE, "4, 3, 2, 1, True"),
            (2, np.round(rng.normal(size=IMAGE)), "3, 1, 1"), (1, np.full((1, 1, 5), -np.inf), "3, 2"),
        ]
    ),
    *(
        (
            (f"F.adaptive_max_pool{n}d_with_indices(x, {size})[{part}]", f"F.adaptive_max_pool{n}d(x, {size}, return_indices=True)[{part}]"),
            {"x": shape},
            ONCE if part == 0 else NONE,
        )
        for part in (0, 1)
        for n, shape, size in [
            (1, LINE, 4), (1, LINE, 3), (2, IMAGE, (4, 5)), (2, IMAGE, (6, 3)), (3, VOLUME, (3, 4, 2)),
            (2, np.round(rng.normal(size=IMAGE)), (4, 5)),
        ]
    ),
    ("nn.MaxPool2d(2, return_indices=True)(x)[1]", {"x": IMAGE}, NONE),
    ("nn.AdaptiveMaxPool2d((4, 5), return_indices=True)(x)[1]", {"x": IMAGE}, NONE),
    *(
        (
            (f"F.max_unpool{n}d(*F.max_pool{n}d_with_indices(x, {args}), {args}{size})", f"F.max_unpool{n}d(*F.max_pool{n}d(x, {args}, return_indices=True), {args}{size})"),
            {"x": shape},
            ONCE,
        )
        for n, shape, args, size in [
            (1, LINE, "3", ""), (1, LINE, "2", ", output_size=(9,)"), (2, IMAGE, "2", ""),
            (2, IMAGE, "2", ", output_size=(2, 4, 7, 8)"), (2, IMAGE, "(3, 4), (3, 4), 1", ", output_size=(6, 8)"),
            (3, (2, 2, 4, 6, 2), "2", ""), (2, IMAGE[1:], "2", ""),
        ]
    ),
    # Convolutions.
    *(
        (
            (f"F.conv{n}d(x, w, b, {args}, padding_mode='{mode}')", f"conv_module({n}, x, w, b, '{mode}', {args})"),
            {"x": (2, 2, *(5, 6, 4)[:n]), "w": (3, 2, *(3, 2, 3)[:n]), "b": (3,)},
        )
        for mode in ("reflect", "replicate", "circular")
        for n, args in [(1, "2, 2"), (1, "1, 'same', 2"), (2, "1, (2, 1)"), (2, "1, 'same'"), (3, "2, 1")]
    ),
    # Norms.
    ("F.local_response_norm(x, 3, 0.5, 0.6, 1.5)", {"x": LINE}),
    ("F.local_response_norm(x, 2, 0.5)", {"x": IMAGE}),
    ("F.local_response_norm(x, 9, 0.5, 2.0, 0.3)", {"x": VOLUME}),
    ("nn.LocalResponseNorm(4, 0.1)(x)", {"x": IMAGE}),
    (
        ("F.instance_norm(x, w, b, running_mean=m, running_var=v, use_input_stats=False)", "F.instance_norm(x, m, v, w, b, False)"),
        {"x": IMAGE, "w": (4,), "b": (4,), "m": (4,), "v": rng.uniform(0.5, 2, 4)},
        {"fixed": "mv"},
    ),
    # Shuffles, patches.
    ("F.pixel_shuffle(x, 2)", {"x": (3, 8, 2, 3)}),
    ("F.pixel_shuffle(x, 3)", {"x": (18, 2, 1)}),
    ("F.pixel_unshuffle(x, 2)", {"x": (2, 3, 4, 6)}),
    ("nn.PixelUnshuffle(3)(nn.PixelShuffle(3)(x))", {"x": (1, 18, 2, 3)}),
    (("F.channel_shuffle(x, 2)", "F.channel_shuffle(x, 2)"), {"x": (2, 6, 3, 2)}, ONCE),
    ("nn.Unfold((2, 3), 1, 1, 2)(x)", {"x": (2, 3, 5, 6)}),
    ("nn.Fold((5, 6), (2, 3), 1, 1, 2)(x)", {"x": (2, 12, 9)}),
    ("nn.UpsamplingBilinear2d(scale_factor=2)(x)", {"x": (1, 2, 3, 4)}),
    ("nn.UpsamplingNearest2d((5, 7))(x)", {"x": (1, 2, 3, 4)}),
    # Padding.
    *(
        (f"nn.{kind}Pad{n}d({widths}{', 1.5' if kind == 'Constant' else ''})(x)", {"x": (2, 3, 5, 6, 4)[: n + 2]})
        for kind in ("Reflection", "Replication", "Circular", "Constant", "Zero")
        for n, widths in [(1, 2), (1, (3, 1)), (2, 1), (2, (2, 1, 0, 3)), (3, 1), (3, (1, 0, 2, 1, 3, 2)), (2, (-1, 2, 1, -2))]
        if not (kind == "Circular" and isinstance(widths, tuple) and min(widths) < 0)
    ),
    # Grids.
    *(
        (f"F.affine_grid(x, {size}, align_corners={corners})", {"x": (2, len(size) - 2, len(size) - 1)})
        for size in [(2, 3, 4, 5), (2, 1, 1, 3), (2, 3, 2, 3, 4)]
        for corners in (False, True)
    ),
    *(
        (f"F.grid_sample(x, g, '{mode}', '{outside}', {corners})", {"x": (2, 3, 4, 6), "g": GRID}, ONCE)
        for mode in ("bilinear", "nearest", "bicubic")
        for outside in ("zeros", "border", "reflection")
        for corners in (False, True)
    ),
    *(
        (f"F.grid_sample(x, g, '{mode}', '{outside}', {corners})", {"x": (2, 3, 4, 3, 5), "g": GRID3}, ONCE)
        for mode in ("bilinear", "nearest")
        for outside in ("zeros", "border", "reflection")
        for corners in (False, True)
    ),
    ("F.grid_sample(x, g, align_corners=True)", {"x": (1, 1, 1, 1), "g": rng.uniform(-1, 1, (1, 2, 2, 2))}, ONCE),
    # Linear.
    ("F.linear(x, w, b)", {"x": (2, 3, 4), "w": (5, 4), "b": (5,)}),
    ("F.bilinear(x, y, w, b)", {"x": (2, 3), "y": (2, 4), "w": (5, 3, 4), "b": (5,)}),
    (("nn.Unflatten(1, (2, -1))(x)", "nn.Unflatten(1, (2, -1))(x)"), {"x": (3, 6, 2)}),
    ("nn.Identity(54, a=3)(x)", {"x": (3,)}),
    # Distances.
    ("F.cosine_similarity(x, y)", {"x": (3, 4), "y": (3, 4)}),
    ("F.cosine_similarity(x, y, dim=0)", {"x": (4,), "y": (4,)}),
    ("F.cosine_similarity(x, y, dim=-1)", {"x": (2, 1, 4), "y": (3, 4)}),
    ("nn.CosineSimilarity(-2)(x, y)", {"x": (2, 3, 4), "y": (2, 3, 4)}),
    ("F.pairwise_distance(x, y, keepdim=True)", {"x": (3, 4), "y": (3, 4)}),
    ("nn.PairwiseDistance(3.0)(x, y)", {"x": (3, 4), "y": (3, 4)}),
    # Embeddings.
    ("F.embedding(i, w)", {"w": (6, 3), "i": ROWS}),
    ("F.embedding(i, w, padding_idx=2)", {"w": (6, 3), "i": ROWS}),
    ("F.embedding(i, w, padding_idx=-1)", {"w": (6, 3), "i": ROWS}),
    ("F.embedding(i, w, scale_grad_by_freq=True)", {"w": (6, 3), "i": ROWS}, ONCE),
    ("F.embedding(i, w, max_norm=1.0)", {"w": (6, 3), "i": ROWS}, NONE),
    ("F.embedding(i, w, max_norm=2.0, norm_type=1.0)", {"w": (6, 3), "i": ROWS}, NONE),
    *(
        (f"F.embedding_bag({args}, mode='{mode}', padding_idx={padding})", {"w": (6, 3), "i": ROWS, "f": FLAT, "o": OFFSETS, "e": ENDS}, ONCE)
        for args in ("i, w", "f, w, o", "f, w, e, include_last_offset=True")
        for mode in ("sum", "mean", "max")
        for padding in (None, 2)
    ),
    ("F.embedding_bag(i, w, mode='sum', per_sample_weights=p)", {"w": (6, 3), "i": ROWS, "p": (3, 4)}, ONCE),
    # Losses.
    *(
        (f"F.{loss}, reduction='{reduction}')", operands)
        for reduction in ("mean", "sum", "none")
        for loss, operands in [
            ("multilabel_soft_margin_loss(x, y", {"x": (4, 5), "y": BITS}),
            ("multilabel_soft_margin_loss(x, y, w", {"x": (4, 5), "y": BITS, "w": (5,)}),
            ("triplet_margin_with_distance_loss(x, y, z, swap=True, margin=0.4", {"x": (4, 5), "y": (4, 5), "z": (4, 5)}),
            ("triplet_margin_loss(x, y, z", {"x": (4, 5), "y": (1, 5), "z": (4, 5)}),
            ("poisson_nll_loss(x, y", {"x": (4, 5), "y": (5,)}),
        ]
    ),
    *(
        (f"F.{loss}, reduction='{reduction}')", operands, {"order": 1, "fixed": "w"})
        for reduction in ("mean", "sum", "none")
        for loss, operands in [
            ("multilabel_margin_loss(x, y", {"x": (4, 5), "y": SETS}),
            ("multi_margin_loss(x, y", {"x": (4, 5), "y": LABELS}),
            ("multi_margin_loss(x, y, 2, 0.7, w", {"x": (4, 5), "y": LABELS, "w": (5,)}),
        ]
    ),
    ("F.multi_margin_loss(x, y)", {"x": (5,), "y": np.array(3)}, ONCE),
    ("F.multilabel_margin_loss(x, y)", {"x": (5,), "y": SETS[0]}, ONCE),
    *((f"F.{loss}(x, y)", {"x": (4, 1), "y": (3,)}, ONCE) for loss in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss")),
    ("F.kl_div(x, y, reduction='batchmean')", {"x": (4, 5), "y": rng.uniform(0.1, 1, (4, 5))}, ONCE),
    ("nn.KLDivLoss(reduction='batchmean', log_target=True)(x, y)", {"x": (3, 2, 2), "y": (3, 2, 2)}, ONCE),
    *(
        (f"F.ctc_loss(F.log_softmax(x, dim=-1), y, s, l{more}, reduction='{reduction}')", {"x": (9, 3, 5), "y": y, "s": STEPS, "l": LENGTHS}, ONCE)
        for reduction in ("mean", "sum", "none")
        for y, more in [(EMIT, ""), (np.concatenate([e[:n] for e, n in zip(EMIT, LENGTHS, strict=True)]), ""), (EMIT - (EMIT > 0), ", blank=4")]
    ),
    ("F.ctc_loss(F.log_softmax(x, dim=-1), y, s, l, zero_infinity=True)", {"x": (9, 3, 5), "y": EMIT, "s": np.array([9, 1, 5]), "l": LENGTHS}, ONCE),
    ("F.ctc_loss(F.log_softmax(x, dim=-1), y, s, l, reduction='none')", {"x": (9, 3, 5), "y": EMIT, "s": np.array([9, 1, 5]), "l": np.array([0, 2, 1])}, NONE),
    ("F.ctc_loss(F.log_softmax(x, dim=-1), y, s, l, reduction='none')", {"x": (9, 5), "y": EMIT[0], "s": np.array(9), "l": np.array(4)}, ONCE),
    # Attention.
    ("F.scaled_dot_product_attention(q, k, v)", {"q": (2, 3, 4), "k": (2, 5, 4), "v": (2, 5, 6)}),
    (
        ("F.attention_with_weights(q, k, v, ~m)[0]", "F.scaled_dot_product_attention(q, k, v, ~m)"),
        {"q": (2, 3, 4), "k": (2, 5, 4), "v": (2, 5, 6), "m": SEEN},
    ),
]  # fmt: skip


def conv_module(n, x, w, b, mode, *args):
    """PyTorch has padding modes only in modules."""
    kind = getattr(torch.nn, f"Conv{n}d")
    layer = kind(x.shape[1], w.shape[0], w.shape[2:], *args, padding_mode=mode)
    return torch.func.functional_call(layer, {"weight": w, "bias": b}, (x,))


def channel_shuffle(x, groups):
    """PyTorch's own function has no derivative."""
    return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)


def evaluated(code, ours, values):
    names = dict(values)
    if ours:
        names.update(F=gr.nn.functional, nn=gr.nn)
    else:
        names.update(F=torch.nn.functional, nn=torch.nn, conv_module=conv_module)
        code = code.replace("F.channel_shuffle", "channel_shuffle")
        names.update(channel_shuffle=channel_shuffle)
    return eval(code, {}, names)


def operands(specs, dtype):
    """Arrays by name, and the names of the differentiated operands."""
    draws = np.random.default_rng(3)
    arrays, wanted = {}, []
    for name, spec in specs.items():
        if isinstance(spec, tuple):
            spec = draws.normal(size=spec)
        if spec.dtype.kind == "f":
            # Both libraries get the same values after rounding.
            spec = torch.tensor(spec).to(getattr(torch, dtype)).double().numpy()
            wanted.append(name)
        arrays[name] = spec
    return arrays, wanted


def in_girih(array, dtype):
    tensor = gr.asarray(array)
    return tensor.astype(getattr(gr, dtype)) if array.dtype.kind == "f" else tensor


def in_torch(array, dtype):
    tensor = torch.tensor(array)
    return tensor.to(getattr(torch, dtype)) if array.dtype.kind == "f" else tensor


def to_array(value):
    if isinstance(value, gr.Tensor):
        return value.astype(gr.float64).numpy() if "float" in value.dtype.name else value.numpy()
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return value.double().numpy() if value.is_floating_point() else value.numpy()
    return np.asarray(value)


def compare(got, want, tolerance):
    got, want = to_array(got), to_array(want)
    assert got.shape == want.shape
    finite = np.abs(want[np.isfinite(want)])
    scale = max(1.0, finite.max(initial=0.0))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def identifier(case):
    code = case[0] if isinstance(case[0], str) else case[0][0]
    shapes = (spec if isinstance(spec, tuple) else spec.shape for spec in case[1].values())
    return code + " " + " ".join(str(list(shape)) for shape in shapes)


#: PyTorch does not support these in bfloat16 on a CPU, or rounds intermediate results.
NO_HALVES = (
    *(
        "ctc",
        "multi_margin",
        "multilabel_margin",
        "bicubic",
        "embedding_bag",
        "avg_pool3d",
        "LPPool3d",
    ),
    *("local_response_norm", "LocalResponseNorm", "affine_grid", "'nearest'"),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES, ids=identifier)
def test_values(case, dtype):
    code, specs = case[:2]
    ours, theirs = (code, code) if isinstance(code, str) else code
    if dtype == "bfloat16" and any(word in ours for word in NO_HALVES):
        pytest.skip("not in PyTorch")
    arrays, _ = operands(specs, dtype)
    want = evaluated(theirs, False, {n: in_torch(a, dtype) for n, a in arrays.items()})
    got = evaluated(ours, True, {n: in_girih(a, dtype) for n, a in arrays.items()})
    compare(got, want, {"float64": 1e-11, "float32": 2e-5, "bfloat16": 4e-2}[dtype])
    if isinstance(got, gr.Tensor) and want.is_floating_point():
        assert got.dtype.name == dtype


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [c for c in CASES if c[2:] != (NONE,)], ids=identifier)
def test_derivatives(case):
    code, specs = case[:2]
    options = case[2] if case[2:] else {}
    order = options.get("order", 2)
    ours, theirs = (code, code) if isinstance(code, str) else code
    arrays, wanted = operands(specs, "float64")
    wanted = [n for n in wanted if n not in options.get("fixed", "")]
    fixed = {n: a for n, a in arrays.items() if n not in wanted}

    tensors = {n: in_torch(arrays[n], "float64").requires_grad_() for n in wanted}
    others = {n: in_torch(a, "float64") for n, a in fixed.items()}
    result = evaluated(theirs, False, {**tensors, **others})
    weights = np.random.default_rng(5).normal(size=tuple(result.shape))
    leaves = list(tensors.values())
    scalar = (result * torch.tensor(weights)).sum()
    options = {"create_graph": order == 2, "allow_unused": True, "materialize_grads": True}
    first = torch.autograd.grad(scalar, leaves, **options)
    slopes = [np.random.default_rng(6).normal(size=arrays[n].shape) for n in wanted]

    def value(values):
        constants = {n: in_girih(a, "float64") for n, a in fixed.items()}
        named = dict(zip(wanted, values, strict=True))
        return (evaluated(ours, True, {**named, **constants}) * gr.asarray(weights)).sum()

    points = [in_girih(arrays[n], "float64") for n in wanted]
    for got, want in zip(gr.grad(value)(points), first, strict=True):
        compare(got, want, 1e-9)
    if order < 2:
        return
    along = sum((g * torch.tensor(s)).sum() for g, s in zip(first, slopes, strict=True))
    if not along.requires_grad:
        second = [torch.zeros_like(leaf) for leaf in leaves]
    else:
        second = torch.autograd.grad(along, leaves, allow_unused=True, materialize_grads=True)

    def slope(values):
        gradients = gr.grad(value)(values)
        terms = zip(gradients, slopes, strict=True)
        return sum((g * gr.asarray(s)).sum() for g, s in terms)

    for got, want in zip(gr.grad(slope)(points), second, strict=True):
        compare(got, want, 1e-8)

"""Methods and functions by PyTorch's names against PyTorch: values, gradients, in-place variants."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
import torch
from girih import later

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4))
Y = RNG.normal(size=(3, 4))
P = RNG.uniform(0.1, 0.9, (3, 4))
CUBE = RNG.normal(size=(2, 3, 4))
SQUARE = RNG.normal(size=(4, 4)) + 4 * np.eye(4)
V, U = RNG.normal(size=4), RNG.normal(size=3)
I = RNG.integers(-9, 9, (3, 4))
J = RNG.integers(1, 9, (3, 4))
MASK = X > 0
ROWS = np.array([2, 0, 2])
PLACES = RNG.integers(0, 3, (3, 4))
COMPLEX = X + 1j * Y

UNARY = [
    "absolute",
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "fix",
    "floor",
    "frac",
    "i0",
    "isneginf",
    "isposinf",
    "isreal",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "neg",
    "negative",
    "positive",
    "rad2deg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
PAIRS = [
    "arctan2",
    "atan2",
    "copysign",
    "div",
    "divide",
    "eq",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "ge",
    "greater",
    "greater_equal",
    "gt",
    "hypot",
    "le",
    "less",
    "less_equal",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_or",
    "logical_xor",
    "lt",
    "maximum",
    "minimum",
    "mul",
    "multiply",
    "ne",
    "nextafter",
    "not_equal",
    "remainder",
    "sub",
    "subtract",
    "true_divide",
    "add",
    "xlogy",
]
WHOLE = [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "floor_divide",
    "gcd",
    "lcm",
    "remainder",
    "fmod",
]

# Calls of methods: the tensor, the name, positional arguments, keywords.
CALLS = [
    *[(P, name, ()) for name in UNARY if name != "acosh"], (P + 1, "acosh", ()), (P + 1, "arccosh", ()),
    *[(X, name, (Y,)) for name in PAIRS if name != "xlogy"], (X, "xlogy", (P,)),
    *[(np.abs(I), name, (J,)) for name in WHOLE],
    *[(X if name != "byte" else np.abs(X), name, ()) for name in ("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cfloat", "cdouble")],
    (I, "float", ()), (MASK, "float", ()), (P, "pow", (2.5,)), (P, "float_power", (2,)), (X, "heaviside", (Y,)),
    (X, "clone", ()), (X, "contiguous", ()), (X, "t", ()), (V, "t", ()), (CUBE, "adjoint", ()), (COMPLEX, "adjoint", ()),
    (X, "add", (Y,), {"alpha": 2.5}), (X, "sub", (Y,), {"alpha": 0.5}), (I, "add", (I,), {"alpha": 3}),
    (X, "div", (Y,), {"rounding_mode": "trunc"}), (X, "div", (Y,), {"rounding_mode": "floor"}),
    (I, "div", (J,), {"rounding_mode": "trunc"}), (I, "div", (-J,), {"rounding_mode": "trunc"}), (I, "div", (J,), {"rounding_mode": "floor"}),
    (X, "clamp_min", (0.1,)), (X, "clamp_max", (0.1,)), (X, "clamp", (), {"min": -0.5, "max": 0.5}),
    (V, "expand_as", (X,)), (X, "view_as", (X.T,)), (X, "reshape_as", (X.T,)), (X, "type_as", (X.astype(np.float32),)),
    (X, "new_zeros", (2, 3)), (X, "new_ones", ((2, 3),)), (I, "new_full", ((2,), 7)), (X, "new_tensor", ([1, 2],)),
    (X, "select", (1, 2)), (X, "select", (0, -1)), (CUBE, "unbind", (1,)), (CUBE, "split", (2,), {"dim": -1}),
    (CUBE, "split", ([1, 2],), {"dim": 1}), (V, "split", (3,)), (V, "chunk", (3,)), (CUBE, "chunk", (2,), {"dim": 2}), (V, "chunk", (7,)),
    (CUBE, "tensor_split", (2, 2)), (CUBE, "hsplit", (3,)), (CUBE, "dsplit", (2,)), (X, "vsplit", (3,)),
    (V, "unfold", (0, 2, 1)), (CUBE, "unfold", (1, 2, 1)), (CUBE, "unfold", (-1, 2, 2)),
    (X, "where", (MASK, Y)), (X, "where", (MASK, 0.0)), (CUBE, "sum_to_size", (3, 1)), (CUBE, "sum_to_size", (1, 3, 4)), (CUBE, "sum_to_size", (2, 3, 4)),
    (RNG.normal(size=(2, 3)), "cross", (RNG.normal(size=(2, 3)),), {"dim": 1}), (SQUARE, "logdet", ()), (-np.eye(3), "logdet", ()),
    (SQUARE, "det", ()), (SQUARE, "inverse", ()), (SQUARE, "matrix_exp", ()), (SQUARE, "matrix_power", (3,)), (SQUARE, "slogdet", ()),
    (X, "pinverse", ()), (X, "norm", ()),
    (X, "mm", (X.T,)), (X, "matmul", (V,)), (CUBE, "bmm", (CUBE.swapaxes(1, 2),)), (X, "mv", (V,)), (V, "dot", (V,)), (U, "ger", (V,)), (U, "outer", (V,)),
    (Y, "addmm", (RNG.normal(size=(3, 2)), RNG.normal(size=(2, 4))), {"beta": 0.5, "alpha": 2}), (Y * np.nan, "addmm", (RNG.normal(size=(3, 2)), RNG.normal(size=(2, 4))), {"beta": 0}),
    (U, "addmv", (X, V), {"alpha": 2.0}), (X, "addr", (U, V), {"beta": -1}), (X[0], "addmm", (RNG.normal(size=(3, 2)), RNG.normal(size=(2, 4)))),
    (RNG.normal(size=(2, 3, 3)), "baddbmm", (CUBE, CUBE.swapaxes(1, 2)), {"alpha": 0.5}), (RNG.normal(size=(3, 3)), "addbmm", (CUBE, CUBE.swapaxes(1, 2)), {"beta": 2}),
    (X, "addcmul", (Y, P), {"value": 0.5}), (X, "addcdiv", (Y, P), {"value": 0.5}), (X, "addcmul", (Y, V)), (I, "addcmul", (I, I)),
    (X, "lerp", (Y, 0.25)), (X, "lerp", (Y, 0.75)), (X, "lerp", (Y, P)), (X, "dist", (Y,)), (X, "dist", (Y, 1)), (X, "dist", (Y, 3.0)),
    (X, "index_select", (1, ROWS)), (X, "index_add", (0, ROWS, Y)), (X, "index_add", (0, ROWS, Y), {"alpha": 2}), (I, "index_add", (1, ROWS, I[:, :3])),
    (X, "index_copy", (0, np.array([2, 0]), Y[:2])), (X, "index_fill", (1, ROWS, 7.0)), (X, "index_put", ((ROWS, ROWS), U)), (X, "index_put", ((ROWS, ROWS), U), {"accumulate": True}),
    *[(P, "index_reduce", (0, ROWS, P + 1, mode), {"include_self": keep}) for mode in ("prod", "mean", "amax", "amin") for keep in (True, False)],
    (X, "scatter", (0, PLACES[:1], Y)), (X, "scatter", (0, np.arange(3)[::-1, None] * np.ones((3, 2), int), Y)), (X, "scatter", (1, PLACES, 5.0)),
    (X, "scatter", (1, np.argsort(X, 1)[:, :2], Y)), (X, "scatter_add", (0, PLACES, Y)), (X, "scatter_add", (1, PLACES[:2, :3], Y)), (I, "scatter_add", (0, PLACES, I)),
    (X, "scatter", (0, PLACES, Y), {"reduce": "add"}), (X, "scatter", (0, PLACES, Y), {"reduce": "multiply"}),
    *[(P, "scatter_reduce", (0, PLACES, P + 1, mode), {"include_self": keep}) for mode in ("sum", "prod", "mean", "amax", "amin") for keep in (True, False)],
    (I, "scatter_reduce", (0, PLACES, J, "mean")), (X, "masked_fill", (MASK, 9.0)), (X, "masked_fill", (MASK[:, :1], -np.inf)), (I, "masked_fill", (MASK, 2)),
    (X, "masked_select", (MASK,)), (X, "masked_scatter", (MASK, Y)), (X, "masked_scatter", (MASK[0], Y)), (X, "select_scatter", (V, 0, 1)),
    (X, "slice_scatter", (Y[:, :2],), {"dim": 1, "start": 1, "end": 3}), (X, "slice_scatter", (Y[:2],), {"step": 2}),
    (X, "diagonal_scatter", (U,)), (CUBE, "diagonal_scatter", (RNG.normal(size=(3, 2)), 1, 0, 2)), (X, "diag_embed", ()), (V, "diag_embed", (-1,)),
    (CUBE, "diag_embed", (1, 0, 2)), (V, "diag", ()), (X, "diagflat", ()), (X, "tril", ()), (X, "triu", (1,)), (CUBE, "flipud", ()), (CUBE, "fliplr", ()), (X, "rot90", ()),
    (X, "roll", (1, 1)), (X, "tile", ((2, 1),)), (CUBE, "movedim", (0, 2)), (CUBE, "moveaxis", (0, 2)), (CUBE, "swapdims", (0, 2)), (CUBE, "narrow", (1, 1, 2)),
    (CUBE, "unflatten", (2, (2, 2))), (CUBE, "unflatten", (-1, (-1, 4))), (X, "repeat_interleave", (2,), {"dim": 1}), (X, "take_along_dim", (np.argsort(X, 1), 1)),
    (X, "topk", (2,)), (X, "kthvalue", (2,)), (X, "kthvalue", (2, 0, True)), (X, "kthvalue", (2,), {"dim": 0, "keepdim": True}), (I, "mode", (), {"dim": 0, "keepdim": True}), (X, "aminmax", (), {"dim": 0, "keepdim": True}), (np.array([[1, 3, 3, 2, 2]]), "mode", ()), (I, "mode", (0,)), (X, "msort", ()),
    (X, "aminmax", ()), (X, "amax", (1,)), (X, "amin", (0, True)), (X, "argwhere", ()), (I, "count_nonzero", ()), (I, "unique", ()), (I[0], "unique_consecutive", ()),
    (np.array([1, 1, 2, 2, 1]), "unique_consecutive", (), {"return_inverse": True, "return_counts": True}), (I, "unique", (), {"return_inverse": True, "return_counts": True}),
    (np.array([[1, 1], [1, 1], [2, 1]]), "unique_consecutive", (), {"dim": 0}), (X, "cov", ()), (X, "corrcoef", ()), (X, "diff", ()), (X, "diff", (), {"dim": 0}), (P * 30, "mvlgamma", (3,)),
    (V, "inner", (V,)), (X, "kron", (Y,)), (COMPLEX[0], "vdot", (COMPLEX[1],)), (X, "frexp", ()), (X, "ldexp", (I,)), (X, "hardshrink", ()), (X, "prelu", (np.array([0.2]),)),
    (np.array([0, 1, 1, 5]), "bincount", ()), (X, "histc", ()),
]  # fmt: skip
CALLS = [call for call in CALLS if call[1] != "histc"]
#: The order of results that PyTorch does not define, or its scalars of another dtype.
NO_DTYPE = {"float_power", "index_put"}


def tensors(value, make):
    if isinstance(value, np.ndarray):
        return make(value.copy())
    if isinstance(value, (tuple, list)):
        return type(value)(tensors(v, make) for v in value)
    return value


def plain(value):
    if isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if isinstance(value, gr.Tensor):
        return value.astype("float32").numpy() if value.dtype == gr.bfloat16 else value.numpy()
    return value


def same(got, want, rtol=1e-12):
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            same(one, other, rtol)
        return
    got, want = plain(got), plain(want)
    assert np.shape(got) == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-13)


def id_of(call):
    return call[1]


@pytest.mark.filterwarnings("ignore:.*(beta|deprecated)")
@pytest.mark.parametrize("call", CALLS, ids=id_of)
def test_methods_give_what_pytorch_gives(call):
    x, name, args, *options = call
    options = options[0] if options else {}
    theirs = tensors(args, torch.from_numpy)
    want = getattr(torch.from_numpy(np.array(x)), name)(*theirs, **options)
    ours = tensors(args, gr.asarray)
    got = getattr(gr.asarray(x), name)(*ours, **options)
    loose = 1e-6 if name in ("half", "bfloat16", "i0", "erfinv") else 1e-12
    if name == "index_select" or name == "kthvalue":
        loose = 0
    same(got, want, loose)
    if isinstance(want, torch.Tensor) and name not in NO_DTYPE:
        assert str(want.dtype).removeprefix("torch.") == got.dtype.name


DIFFERENTIABLE = [
    call for call in CALLS
    if isinstance(call[0], np.ndarray) and call[0].dtype.kind == "f" and call[-1] not in ({"reduce": "add"}, {"reduce": "multiply"})
    and call[1] not in ("nextafter", "igamma", "cholesky", "masked_select", "frexp", "int", "long", "mode", "isreal", "float_power", "logdet", "half", "bfloat16", "unique", "dist", "addmm", "floor_divide", "heaviside", "sgn", "index_reduce")
]  # fmt: skip


@pytest.mark.parametrize("call", DIFFERENTIABLE, ids=id_of)
def test_gradients_are_those_of_pytorch(call):
    x, name, args, *options = call
    options = options[0] if options else {}
    leaf = torch.from_numpy(x.copy()).requires_grad_()
    out = getattr(leaf, name)(*tensors(args, torch.from_numpy), **options)
    parts = out if isinstance(out, (tuple, list)) else [out]
    parts = [p for p in parts if p.is_floating_point() or p.is_complex()]
    if not parts or not any(p.requires_grad for p in parts):
        return
    sum((p.abs() ** 2).sum() for p in parts if p.requires_grad).backward()

    def loss(v):
        found = getattr(v, name)(*tensors(args, gr.asarray), **options)
        found = found if isinstance(found, (tuple, list)) else [found]
        return sum((gr.abs(p) ** 2).sum() for p in found if p.is_floating_point() or p.is_complex())

    got = gr.grad(loss)(gr.asarray(x))
    want = leaf.grad.numpy() if leaf.grad is not None else np.zeros_like(x)
    np.testing.assert_allclose(
        got.numpy(), want, rtol=1e-5 if name == "cfloat" or name == "float" else 1e-9, atol=1e-12
    )


NEEDS = {
    **dict.fromkeys([*PAIRS, "igamma", "igammac", "heaviside", "float_power", "pow"], (Y,)),
    **dict.fromkeys(WHOLE, (J,)), "ldexp": (I,), "copy": (Y,),
    "addbmm": (RNG.normal(size=(2, 3, 2)), RNG.normal(size=(2, 2, 4))), "baddbmm": (RNG.normal(size=(2, 3, 2)), RNG.normal(size=(2, 2, 4))),
    "addcdiv": (Y, P), "addcmul": (Y, P), "addmm": (RNG.normal(size=(3, 2)), RNG.normal(size=(2, 4))), "addmv": (X, V), "addr": (U, V),
    "clamp_max": (0.1,), "clamp_min": (0.1,), "clamp": (-0.5, 0.5), "clip": (-0.5, 0.5), "cumprod": (1,), "cumsum": (0,),
    "index_add": (0, ROWS, Y), "index_copy": (0, np.array([2, 0]), Y[:2]), "index_fill": (1, ROWS, 7.0), "index_put": ((ROWS[:2], ROWS[:2]), U[:2]),
    "index_reduce": (0, ROWS, Y, "amax"), "lerp": (Y, 0.25), "masked_fill": (MASK, 9.0), "masked_scatter": (MASK, Y), "mvlgamma": (2,),
    "scatter": (1, np.argsort(X, 1)[:, :2], Y), "scatter_add": (0, PLACES, Y), "scatter_reduce": (0, PLACES, Y, "amax"), "fill": (2.5,), "fill_diagonal": (9.0,),
}  # fmt: skip
DRAWS = ("uniform_", "normal_", "exponential_", "bernoulli_", "random_", "requires_grad_")


@pytest.mark.parametrize("name", [n for n in later.METHODS if n.endswith("_") and n not in DRAWS])
def test_in_place_methods_give_the_object_another_value(name):
    plain_name = name.removesuffix("_")
    x = {"addmv": U, "baddbmm": CUBE, "mvlgamma": P + 3, "acosh": P + 1, "arccosh": P + 1}.get(
        plain_name, P
    )
    whole = plain_name in WHOLE and plain_name not in ("floor_divide", "remainder", "fmod")
    x = np.abs(I) if whole or plain_name == "bitwise_not" else x
    args = NEEDS.get(plain_name, ())
    if plain_name in ("igamma", "igammac", "float_power", "pow", "xlogy"):
        args = (P,)
    theirs = torch.from_numpy(x.copy())
    assert getattr(theirs, name)(*tensors(args, torch.from_numpy)) is theirs
    ours = gr.asarray(x)
    other = ours
    assert getattr(ours, name)(*tensors(args, gr.asarray)) is ours
    same(ours, theirs, 1e-6 if plain_name in ("i0", "erfinv") else 1e-12)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    assert other is ours


def test_draws_in_place():
    gr.manual_seed(0)
    x = gr.zeros(2000)
    assert x.uniform_(1, 3) is x
    assert 1 <= float(x.min()) < 1.1
    assert 2.9 < float(x.max()) < 3
    assert abs(float(x.normal_(2.0, 0.5).mean()) - 2) < 0.1
    assert abs(float(x.exponential_(2.0).mean()) - 0.5) < 0.1
    assert abs(float(x.bernoulli_(0.25).mean()) - 0.25) < 0.05
    assert sorted(set(x.random_(2, 5).tolist())) == [2.0, 3.0, 4.0]
    assert set(gr.zeros(50, dtype="bool").random_().tolist()) == {True, False}
    assert int(gr.zeros(50, dtype="int8").random_().min()) >= 0


def test_a_result_that_does_not_fit_is_refused_and_changes_nothing():
    x = gr.asarray([1, 2])
    with pytest.raises(
        gr.DTypeError, match="div_: a result of float32 does not fit a tensor of int64"
    ):
        x.div_(2)
    with pytest.raises(gr.ShapeError, match=r"add_: the result \[2, 2\] does not fit"):
        x.add_(gr.ones(2, 2, dtype="int64"))
    with pytest.raises(gr.InvalidArgumentError, match="requires a gradient"):
        gr.ones(2).requires_grad_().mul_(2)
    assert x.tolist() == [1, 2]
    with gr.no_grad():
        assert gr.ones(2).requires_grad_().mul_(2).requires_grad


FACTS = [
    "dim",
    "ndimension",
    "numel",
    "nelement",
    "element_size",
    "is_floating_point",
    "is_complex",
    "is_signed",
    "is_contiguous",
]


@pytest.mark.parametrize("name", FACTS)
def test_facts_are_plain_numbers(name):
    for x in (X, X.astype(np.float32), I, MASK, COMPLEX, np.zeros((0, 2)), np.float64(1.5)):
        got = getattr(gr.asarray(x), name)()
        want = getattr(torch.from_numpy(np.array(x)), name)()
        assert got == want
        assert type(got) is type(want)


def test_what_has_no_values_of_its_own():
    x = gr.asarray(X)
    assert x.type() == "float64"
    assert x.type("float32").dtype == gr.float32
    assert x.is_same_size(x.T) is False
    assert gr.asarray(2.0).is_nonzero() is True
    np.testing.assert_array_equal(gr.asarray(COMPLEX).H.numpy(), COMPLEX.conj().T)
    np.testing.assert_array_equal(gr.asarray(COMPLEX).mH.numpy(), COMPLEX.conj().T)
    with pytest.raises(gr.ShapeError, match="H: a matrix is expected"):
        gr.asarray(CUBE).H  # noqa: B018
    y = x.clone()
    y += 1
    np.testing.assert_array_equal(x.numpy(), X)
    leaf = gr.ones(3).requires_grad_()
    leaf.clone().sum().backward()
    assert leaf.grad.tolist() == [1.0, 1.0, 1.0]


FUNCTIONS = [
    ("cartesian_prod", (U, V)), ("block_diag", (X, Y[:1])), ("cdist", (X, Y)), ("cdist", (CUBE, CUBE[:1]), {"p": 1.0}), ("cdist", (X, Y), {"p": float("inf")}),
    ("polar", (P, X)), ("view_as_real", (COMPLEX,)), ("view_as_complex", (RNG.normal(size=(3, 2)),)), ("std_mean", (X,)), ("var_mean", (X, 1), {"correction": 0}), ("std_mean", (X,), {"dim": 0, "keepdim": True}),
    ("logaddexp2", (X, Y)), ("mm", (X, X.T)), ("mv", (X, V)), ("ger", (U, V)), ("sgn", (COMPLEX,)), ("movedim", (CUBE, 0, 1)), ("broadcast_tensors", (X, V)),
    ("tensor_split", (X, 2)), ("repeat_interleave", (X, 2)), ("xlogy", (X, P)), ("logit", (P,)), ("pinverse", (X,)), ("tril", (X, -1)),
    ("combinations", (V, 2, True)), ("combinations", (V, 0)), ("combinations", (V, 9)), ("narrow", (CUBE, 1, -2, 2)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("call", FUNCTIONS, ids=lambda c: c[0])
def test_functions_give_what_pytorch_gives(call):
    name, args, *options = call
    options = options[0] if options else {}
    want = getattr(torch, name)(*tensors(args, torch.from_numpy), **options)
    same(getattr(gr, name)(*tensors(args, gr.asarray), **options), want)


def test_methods_are_attributes_of_the_class():
    for name in later.METHODS:
        assert callable(getattr(gr.Tensor, name))
        assert name in dir(gr.Tensor)
        assert getattr(gr.asarray([1.0]), name).__doc__
    assert gr.Tensor.float(gr.asarray([1])).dtype == gr.float32
    x = gr.ones(2)
    assert hasattr(x, "masked_fill")
    assert not hasattr(x, "no_such_method")
    assert not hasattr(x, "__no_such_method__")


def test_methods_in_compiled_code_and_batches():
    def f(x):
        y = x.clone().mul(2).masked_fill(x > 0.5, 0.0)
        y.add_(1.0)
        return y.index_add(0, gr.asarray([0, 0]), x[:2]).sum(0)

    x = gr.asarray(X)
    np.testing.assert_allclose(gr.compile(f)(x).numpy(), f(x).numpy())
    np.testing.assert_allclose(
        gr.vmap(f)(gr.asarray(CUBE)).numpy(), np.stack([f(gr.asarray(c)).numpy() for c in CUBE])
    )

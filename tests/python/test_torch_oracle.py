"""PyTorch as an oracle: every function, module, loss and optimiser of the tables in
`torch_table.py`, values and derivatives of first and second order, in several dtypes.
"""

from __future__ import annotations

import contextlib
import re
import zlib

import girih as gr
import numpy as np
import pytest
import test_layers_torch
import torch_table as table

torch = pytest.importorskip("torch")
# PyTorch warns about some of its own options.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

#: Tolerances relative to the largest element, for values, first and second derivatives (None: not
#: compared).
TOLERANCE = {
    "float64": (1e-11, 1e-10, 1e-9),
    "float32": (1e-5, 1e-4, None),
    "bfloat16": (2e-2, 5e-2, None),
}
#: Functions of PyTorch with another calling convention than operands and options.
TORCH = {
    "torch_var": lambda x, **o: torch.var(x, **{"correction": 0, **o}),
    "torch_std": lambda x, **o: torch.std(x, **{"correction": 0, **o}),
    "torch_group_norm": lambda x, w, b, num_groups, eps=1e-5: torch.nn.functional.group_norm(x, num_groups, w, b, eps),
    "torch_batch_norm": lambda x, w, b, eps=1e-5: torch.nn.functional.batch_norm(x, None, None, w, b, True, eps=eps),
    "torch_instance_norm": lambda x, w, b: torch.nn.functional.instance_norm(x, weight=w, bias=b),
}  # fmt: skip
GIRIH = {
    "torch_var": gr.var,
    "torch_std": gr.std,
    "pdist": gr.nn.functional.pdist,
    "amax": gr.max,
    "amin": gr.min,
    "group_norm": lambda x, w, b, num_groups, eps=1e-5: gr.group_norm(x, num_groups, w, b, eps),
    "batch_norm": lambda x, w, b, eps=1e-5: gr.batch_norm(x, None, None, w, b, True, eps=eps),
    "instance_norm": lambda x, w, b: gr.instance_norm(x, weight=w, bias=b),
}
#: PyTorch does not support bfloat16 for them on a CPU, or computes in bfloat16 where Girih uses
#: float32.
NO_HALVES = {
    *("logcumsumexp", "cumprod", "fold", "torch_instance_norm", "power", "nearest-exact"),
    *("avg_pool3d", "lp_pool3d", "pdist", "triplet_margin_loss"),
}


@contextlib.contextmanager
def without_onednn():
    """PyTorch's own kernels: on processors with AMX, oneDNN's transposed convolutions of bfloat16
    (PyTorch 2.15) leave out the bias where no element contributes."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


#: PyTorch has no second derivative, or, for binary_cross_entropy, one that does not match the
#: first.
ONCE = {
    *("binary_cross_entropy", "BCELoss", "hardsigmoid", "Hardsigmoid", "amax", "amin", "l1_loss"),
    *("maximum", "minimum", "L1Loss", "hinge_embedding_loss", "HingeEmbeddingLoss"),
    *("margin_ranking_loss", "MarginRankingLoss", "MultiMarginLoss", "attention"),
}
#: PyTorch multiplies by a constant rounded to float32.
ROUNDED = {"hardsigmoid", "Hardsigmoid"}


def cases(rows):
    """A row, its options and an identifier, for each set of options."""
    return list(_cases(rows))


def _cases(rows):
    for row in rows:
        for options in row[-1] if isinstance(row[-1][0], dict) else row[2]:
            words = [f"{k}={v}" for k, v in options.items()]
            yield pytest.param(row, options, id="-".join([row[0], *map(str, words)]))


def side(options, ours):
    """The options for one of the libraries."""
    picked = {
        k: (v.ours if ours else v.theirs) if isinstance(v, table.Two) else v
        for k, v in options.items()
    }
    return {k: v for k, v in picked.items() if v is not table.NEVER}


def operands(specs, seed):
    """Arrays in float64 or int64, and whether each of them is differentiated."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    arrays, wanted = [], []
    for spec in specs:
        if isinstance(spec, table.Labels):
            arrays.append(rng.integers(0, spec.classes, spec.shape))
        elif isinstance(spec, table.Signs):
            arrays.append(rng.choice([-1.0, 1.0], spec.shape))
        else:
            bounds = spec if isinstance(spec, table.Within) else table.Within(spec, -2.0, 2.0)
            arrays.append(rng.uniform(bounds.low, bounds.high, bounds.shape))
        fixed = isinstance(spec, (table.Labels, table.Signs)) or getattr(spec, "fixed", False)
        wanted.append(not fixed)
    return arrays, wanted


def to_torch(array, dtype):
    t = torch.from_numpy(np.array(array))
    return t.to(getattr(torch, dtype)) if t.is_floating_point() else t


def to_girih(tensor):
    """The same numbers; bfloat16 numbers are exact in float32."""
    if tensor.dtype == torch.bfloat16:
        return gr.asarray(tensor.detach().float().numpy()).astype(gr.bfloat16)
    return gr.asarray(tensor.detach().numpy().copy())


def numbers(x):
    if isinstance(x, gr.Tensor):
        return (x.astype(gr.float32) if x.dtype == gr.bfloat16 else x).numpy()
    return x.detach().to(torch.float32 if x.dtype == torch.bfloat16 else x.dtype).numpy(force=True)


def weights(shape, k):
    return np.cos(1.0 + k + 1.7 * np.arange(np.prod(shape, dtype=int))).reshape(shape)


def compare(what, got, want, rtol):
    got, want = numbers(got), numbers(want)
    assert got.shape == want.shape, f"{what}: {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, expected {want.dtype}"
    scale = max(1.0, np.abs(want).max(initial=0.0)) if np.isfinite(want).all() else 1.0
    np.testing.assert_allclose(got, want, rtol, rtol * scale, err_msg=what)


def pulled(f, args, at, order, seed):
    """Girih's value, gradients, and gradients of a combination of the gradients with respect to
    ``at``.
    """
    to = lambda y, k: gr.asarray(weights(y.shape, k)).astype(y.dtype)
    total = lambda *a: (f(*a) * to(f(*a), seed)).sum()
    first = gr.grad(total, argnums=at)
    out = [f(*args), first(*args)]
    if order == 2:
        of_first = lambda *a: sum((g * to(g, seed + 1 + i)).sum() for i, g in enumerate(first(*a)))
        out.append(gr.grad(of_first, argnums=at)(*args))
    return out


def pulled_torch(f, args, at, order, seed):
    """The same for PyTorch."""
    to = lambda y, k: torch.from_numpy(weights(y.shape, k)).to(y.dtype)
    inputs = [args[i] for i in at]
    y = f(*args)
    graph = order == 2
    first = torch.autograd.grad((y * to(y, seed)).sum(), inputs, create_graph=graph)
    out = [y, first]
    if graph:
        total = sum((g * to(g, seed + 1 + i)).sum() for i, g in enumerate(first))
        # The first derivative may be constant.
        second = [None] * len(inputs)
        if total.requires_grad:
            second = torch.autograd.grad(total, inputs, allow_unused=True)
        out.append(
            [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, second, strict=True)]
        )
    return out


def check(name, ours, theirs, args, at, dtype):
    """Compares a function in both libraries on the same numbers, differentiated with respect to
    ``at``.
    """
    value_tol, first_tol, second_tol = TOLERANCE[dtype]
    first_tol = max(first_tol, 1e-7 if name in ROUNDED else 0.0)
    order = 0 if not at else 2 if second_tol is not None and name not in ONCE else 1
    if order == 0:
        compare("value", ours(*map(to_girih, args)), theirs(*args), value_tol)
        return
    for i in at:
        args[i].requires_grad_()
    want = pulled_torch(theirs, args, at, order, len(name))
    got = pulled(ours, [to_girih(a) for a in args], tuple(at), order, len(name))
    compare("value", got[0], want[0], value_tol)
    for k, (rtol, kind) in enumerate(
        [(first_tol, "gradient"), (second_tol, "second derivative")][:order]
    ):
        for i, g, w in zip(at, got[k + 1], want[k + 1], strict=True):
            compare(f"{kind} by argument {i}", g, w, rtol)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("row", "options"), cases(table.FUNCTIONS))
def test_functions(row, options, dtype):
    name, other, specs, _ = row
    if dtype == "bfloat16" and ({other, options.get("mode")} & NO_HALVES):
        pytest.skip("PyTorch does not compare")
    ours = GIRIH.get(name) or getattr(gr, name)
    theirs = TORCH.get(other) or getattr(torch.nn.functional, other, None) or getattr(torch, other)
    arrays, wanted = operands(specs, name + str(options))
    args = [to_torch(a, dtype) for a in arrays]
    at = [i for i, w in enumerate(wanted) if w]
    ours_options, their_options = side(options, True), side(options, False)
    with without_onednn() if dtype == "bfloat16" else contextlib.nullcontext():
        check(
            name,
            lambda *a: ours(*a, **ours_options),
            lambda *a: theirs(*a, **their_options),
            args,
            at,
            dtype,
        )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("row", "options"), cases(table.MODULES))
def test_modules(row, options, dtype):
    name, arguments, _, specs = row
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*arguments, **side(options, False)).to(getattr(torch, dtype))
    ours = getattr(gr.nn, name)(*arguments, **side(options, True))
    state = {k: to_girih(v) for k, v in theirs.state_dict().items() if k in ours.state_dict()}
    assert state.keys() == ours.state_dict().keys()
    ours.load_state_dict(state, assign=True)
    keys = [k for k, _ in theirs.named_parameters()]
    arrays, wanted = operands(specs, name + str(options))
    count = len(arrays)
    args = [to_torch(a, dtype) for a in arrays] + [p.detach().clone() for p in theirs.parameters()]
    at = [i for i, w in enumerate(wanted) if w] + list(range(count, len(args)))

    def call_ours(*a):
        tree = dict(zip(keys, a[count:], strict=True))
        return gr.nn.functional_call(ours, tree, *a[:count]) if tree else ours(*a[:count])

    def call_theirs(*a):
        return torch.func.functional_call(
            theirs, dict(zip(keys, a[count:], strict=True)), a[:count]
        )

    check(name, call_ours, call_theirs, args, at, dtype)
    # Load the buffers as training left them, such as running statistics.
    ours.load_state_dict(state, assign=True)
    theirs.load_state_dict(
        {k: torch.from_numpy(v.numpy().copy()) for k, v in state.items()}, strict=False
    )
    x = [to_torch(a, dtype) for a in arrays]
    theirs(*x)
    ours(*map(to_girih, x))
    for k, v in theirs.state_dict().items():
        if k in state:
            compare(k, ours.state_dict()[k], v, 1e-5)
    ours.eval()
    theirs.eval()
    compare("evaluation mode", ours(*map(to_girih, x)), theirs(*x), TOLERANCE[dtype][0])


def test_every_name_that_both_libraries_have_is_compared():
    """In this file, or by an expression of `test_layers_torch.py`."""
    expressions = set(
        re.findall(r"\w+", " ".join(str(case[0]) for case in test_layers_torch.CASES))
    )
    compared = {row[0] for row in (*table.FUNCTIONS, *table.MODULES, *table.OPTIMIZERS)}
    known = compared | expressions | table.ELSEWHERE.keys()
    pairs = (
        (gr.nn, torch.nn, lambda x: isinstance(x, type)),
        (gr.nn.functional, torch.nn.functional, callable),
        (gr.optim, torch.optim, lambda x: isinstance(x, type) and x is not torch.optim.Optimizer),
    )
    for ours, theirs, counts in pairs:
        shared = [n for n in ours.__all__ if counts(getattr(theirs, n, None))]
        missing = [n for n in shared if n not in known]
        assert not missing, f"no row of torch_table.py compares {missing} of {theirs.__name__}"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "options"), table.OPTIMIZERS, ids=str)
def test_optimizers(name, options, dtype):
    start, steps = np.linspace(-1, 1, 6).reshape(2, 3), 5
    rtol = {"float64": 1e-12, "float32": 1e-5}[dtype]
    if name in ("NAdam", "ASGD"):
        # PyTorch keeps a product over the steps, or its rate, in float32.
        rtol = max(rtol, 1e-7)
    theirs = torch.nn.Parameter(to_torch(start, dtype))
    ours = {"w": to_girih(theirs)}
    optimizer = getattr(torch.optim, name)([theirs], lr=0.05, **side(options, False))
    own = getattr(gr.optim, name)(learning_rate=0.05, **side(options, True))
    for step in range(steps):
        g = to_torch(np.sin(start * 3 + step), dtype)
        theirs.grad = g
        optimizer.step()
        ours = own.update(ours, {"w": to_girih(g)})
        compare(f"step {step}", ours["w"], theirs, rtol)


def test_the_first_weights_of_attention_are_those_of_pytorch():
    theirs = torch.nn.MultiheadAttention(96, 4)
    ours = gr.nn.MultiheadAttention(96, 4)
    packed = theirs.in_proj_weight.detach().numpy()
    for projection in (ours.q_proj, ours.k_proj, ours.v_proj):
        w = projection.weight.numpy()
        np.testing.assert_allclose(np.abs(w).max(), np.abs(packed).max(), 2e-2)
        np.testing.assert_allclose(w.std(), packed.std(), 5e-2)
        assert not projection.bias.numpy().any()
    assert not ours.out_proj.bias.numpy().any()
    apart = gr.nn.MultiheadAttention(96, 4, kdim=32, vdim=64)
    theirs = torch.nn.MultiheadAttention(96, 4, kdim=32, vdim=64)
    for ours, packed in (
        (apart.k_proj, theirs.k_proj_weight),
        (apart.v_proj, theirs.v_proj_weight),
    ):
        np.testing.assert_allclose(ours.weight.numpy().std(), packed.detach().numpy().std(), 6e-2)


@pytest.mark.parametrize("bias", [True, False])
def test_multihead_attention(bias):
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(12, 3, bias=bias, batch_first=True).double()
    ours = gr.nn.MultiheadAttention(12, 3, bias=bias)
    state = {}
    for i, p in enumerate("qkv"):
        state[f"{p}_proj.weight"] = to_girih(theirs.in_proj_weight[12 * i : 12 * (i + 1)])
        if bias:
            state[f"{p}_proj.bias"] = to_girih(theirs.in_proj_bias[12 * i : 12 * (i + 1)])
    state.update({f"out_proj.{k}": to_girih(v) for k, v in theirs.out_proj.state_dict().items()})
    ours.load_state_dict(state, assign=True)
    arrays, _ = operands([(2, 5, 12), (2, 4, 12), (2, 4, 12)], "attention")
    args = [to_torch(a, "float64") for a in arrays]
    check(
        "attention", ours, lambda *a: theirs(*a, need_weights=False)[0], args, [0, 1, 2], "float64"
    )

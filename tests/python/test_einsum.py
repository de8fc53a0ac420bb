"""Tensor contractions, against NumPy's einsum and related functions."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import close, sample

# subscripts and shapes of the operands
CASES = {
    "copy": ("ij->ij", [(2, 3)]),
    "transpose": ("ij->ji", [(2, 3)]),
    "implicit transpose": ("ba", [(2, 3)]),
    "sum": ("ij->", [(2, 3)]),
    "row sums": ("ij->i", [(2, 3)]),
    "trace": ("ii", [(3, 3)]),
    "diagonal": ("ii->i", [(3, 3)]),
    "diagonal of three": ("iii->i", [(3, 3, 3)]),
    "two diagonals": ("iijj->ji", [(2, 2, 3, 3)]),
    "diagonal apart": ("iji->ij", [(3, 2, 3)]),
    "scalar": ("->", [()]),
    "scalars": (",->", [(), ()]),
    "scaling": (",ij->ij", [(), (2, 3)]),
    "dot": ("i,i->", [(4,), (4,)]),
    "outer": ("i,j->ij", [(2,), (3,)]),
    "product": ("ij,ij->ij", [(2, 3), (2, 3)]),
    "frobenius": ("ij,ij", [(2, 3), (2, 3)]),
    "matmul": ("ij,jk", [(2, 3), (3, 4)]),
    "matmul transposed": ("ij,kj->ki", [(2, 3), (4, 3)]),
    "matrix vector": ("ij,j", [(2, 3), (3,)]),
    "batched": ("bij,bjk->bik", [(2, 3, 4), (2, 4, 2)]),
    "batch in the middle": ("ibj,jbk->kbi", [(3, 2, 4), (4, 2, 5)]),
    "two inner": ("ijk,jkl->il", [(2, 3, 4), (3, 4, 2)]),
    "summed alone": ("ij,kl->ik", [(2, 3), (2, 4)]),
    "everything": ("abcd,cdbe->ae", [(2, 3, 2, 2), (2, 2, 3, 4)]),
    "diagonal times": ("ii,ij->j", [(3, 3), (3, 2)]),
    "chain": ("ab,bc,cd,de->ae", [(2, 3), (3, 4), (4, 2), (2, 3)]),
    "three at one label": ("ai,bi,ci->abc", [(2, 3), (3, 3), (2, 3)]),
    "hadamard of three": ("i,i,i->i", [(3,), (3,), (3,)]),
    "spaces": (" i j , j k -> i k ", [(2, 3), (3, 4)]),
    "ellipsis": ("...ij,...jk->...ik", [(2, 5, 2, 3), (5, 3, 4)]),
    "ellipsis broadcast": ("...ij,...jk", [(2, 1, 2, 3), (5, 3, 4)]),
    "ellipsis in the middle": ("i...j->j...i", [(2, 5, 3)]),
    "ellipsis of nothing": ("...i,...i->...", [(4,), (2, 4)]),
    "implicit ellipsis": ("...ij->...ji", [(2, 3, 4)]),
    "ones broadcast": ("ij,ij->ij", [(2, 1), (1, 3)]),
    "ones contracted": ("ij,jk->ik", [(2, 1), (3, 4)]),
    "ones on one diagonal": ("ii->i", [(3, 3)]),
    "empty": ("ij,jk->ik", [(2, 0), (0, 4)]),
    "empty result": ("ij,jk->ik", [(0, 2), (2, 4)]),
    "upper and lower case": ("aA,Ab->ab", [(2, 3), (3, 2)]),
}


@pytest.mark.parametrize("optimize", [False, True, "optimal", "greedy"])
@pytest.mark.parametrize("name", CASES)
def test_einsum(name, optimize):
    subscripts, shapes = CASES[name]
    arrays = [sample(s, "float64", i) for i, s in enumerate(shapes)]
    want = np.asarray(np.einsum(subscripts, *arrays))
    got = gr.einsum(subscripts, *map(gr.asarray, arrays), optimize=optimize)
    close(got, want, 1e-12, 1e-12)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float16", "float32"])
def test_einsum_keeps_dtypes(dtype):
    a, b = sample((3, 4), dtype, 0, -2, 2), sample((4, 2), dtype, 1, -2, 2)
    rtol = 1e-2 if dtype == "float16" else 1e-6
    close(
        gr.einsum("ij,jk->ki", gr.asarray(a), gr.asarray(b)),
        np.einsum("ij,jk->ki", a, b),
        rtol,
        rtol,
    )
    close(gr.einsum("ij->j", gr.asarray(a)), np.einsum("ij->j", a), rtol, rtol)


def test_einsum_promotes_and_counts_truth_values():
    got = gr.einsum("i,i", gr.asarray([1, 2]), gr.asarray([0.5, 0.25]))
    assert got.item() == 1.0
    counted = gr.einsum("i,i", gr.asarray([True, True, False]), gr.asarray([True, True, True]))
    assert (counted.item(), counted.dtype) == (2, gr.int64)


def test_einsum_with_lists_of_labels():
    a, b = sample((2, 3), "float64"), sample((4, 3, 5), "float64", 1)
    close(gr.einsum(a, [0, 1], b, [..., 1, 30], [0, ..., 30]), np.einsum(a, [0, 1], b, [..., 1, 30], [0, ..., 30]), 1e-12)  # fmt: skip
    close(gr.einsum(a, [7, 3]), np.einsum(a, [7, 3]), 1e-12)


def test_einsum_of_views():
    a, b = sample((6, 8), "float64"), sample((3, 4), "float64", 1)
    got = gr.einsum("ij,ij->j", gr.asarray(a)[::2, ::-2], gr.asarray(b))
    close(got, np.einsum("ij,ij->j", a[::2, ::-2], b), 1e-12)


def test_many_operands():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 4, 15)
    arrays = [sample((sizes[i], sizes[i + 1]), "float64", i) for i in range(14)]
    letters = "abcdefghijklmno"
    text = ",".join(letters[i : i + 2] for i in range(14)) + "->ao"
    close(gr.einsum(text, *arrays), np.linalg.multi_dot(arrays), 1e-10, 1e-8)


def test_paths_are_cheap_and_complete():
    shapes = [(50, 60), (60, 70), (70, 80), (80, 1)]
    path, text = gr.einsum_path("ab,bc,cd,de->ae", *[gr.zeros(s) for s in shapes])
    assert path == [(2, 3), (1, 2), (0, 1)]
    assert "FLOPs" in text
    want, _ = np.einsum_path("ab,bc,cd,de->ae", *[np.zeros(s) for s in shapes], optimize="optimal")
    assert path == want[1:]
    assert gr.einsum_path("ij->", gr.zeros([2, 3]))[0] == [(0,)]
    assert gr.einsum_path("a,a,a", *[gr.ones([2])] * 3, optimize=False)[0] == [(0, 1), (0, 1)]


@pytest.mark.parametrize("name", CASES)
def test_einsum_gradients(name):
    subscripts, shapes = CASES[name]
    if 0 in [size for shape in shapes for size in shape]:
        pytest.skip("nothing to differentiate")
    arrays = [sample(s, "float64", i) for i, s in enumerate(shapes)]
    weight = sample(np.einsum(subscripts, *arrays).shape, "float64", 9)
    f = lambda *xs: (gr.einsum(subscripts, *xs) * gr.asarray(weight)).sum()
    grads = gr.grad(f, argnums=range(len(arrays)))(*map(gr.asarray, arrays))
    for i, g in enumerate(grads):
        # The function is linear in each operand, so a difference of two points is the derivative.
        step = sample(shapes[i], "float64", 20 + i)
        moved = [a + step if j == i else a for j, a in enumerate(arrays)]
        value = lambda xs: (np.einsum(subscripts, *xs) * weight).sum()
        if len({id(a) for a in arrays}) == len(arrays):
            assert (g.numpy() * step).sum() == pytest.approx(value(moved) - value(arrays), rel=1e-9, abs=1e-9)  # fmt: skip


ERRORS = {
    "count": (lambda: gr.einsum("ij", gr.ones([2, 2]), gr.ones([2, 2])), gr.InvalidArgumentError, "1 terms for 2"),
    "none": (lambda: gr.einsum(), gr.InvalidArgumentError, "operands"),
    "rank": (lambda: gr.einsum("ijk", gr.ones([2, 2])), gr.InvalidArgumentError, "operand 0 has 2 axes.*names 3"),
    "no ellipsis": (lambda: gr.einsum("i", gr.ones([2, 2])), gr.InvalidArgumentError, "names 1"),
    "two ellipses": (lambda: gr.einsum("...i...", gr.ones([2])), gr.InvalidArgumentError, "one ellipsis"),
    "label": (lambda: gr.einsum("i1", gr.ones([2, 2])), gr.InvalidArgumentError, "'1' is no label"),
    "size": (lambda: gr.einsum("ij,jk", gr.ones([2, 3]), gr.ones([4, 2])), gr.ShapeError, "label 'j' stands for 3"),
    "output": (lambda: gr.einsum("ij->ik", gr.ones([2, 3])), gr.InvalidArgumentError, "output's 'k'"),
    "twice": (lambda: gr.einsum("ij->ii", gr.ones([2, 3])), gr.InvalidArgumentError, "twice"),
    "list": (lambda: gr.einsum(gr.ones([2]), [52]), gr.InvalidArgumentError, "0 to 51"),
    "optimize": (lambda: gr.einsum("i", gr.ones([2]), optimize="best"), gr.InvalidArgumentError, "optimize"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_misuse_is_explained(case):
    call, error, message = ERRORS[case]
    with pytest.raises(error, match=message):
        call()


TENSORDOT = [
    ((2, 3, 4), (3, 4, 5), 2),
    ((2, 3), (4, 5), 0),
    ((2, 3), (3,), 1),
    ((2, 3, 4), (4, 3, 2), ([1, 0], [1, 2])),
    ((2, 3, 4), (4, 3, 2), ([-1], [0])),
    ((2, 3, 4), (5, 3), (1, 1)),
    ((1, 3), (3, 1), 1),
    ((2, 0), (0, 3), 1),
]


@pytest.mark.parametrize(("left", "right", "axes"), TENSORDOT)
def test_tensordot(left, right, axes):
    a, b = sample(left, "float64"), sample(right, "float64", 1)
    close(gr.tensordot(gr.asarray(a), gr.asarray(b), axes), np.tensordot(a, b, axes), 1e-12, 1e-12)


def test_tensordot_refuses_what_does_not_fit():
    a, b = gr.ones([2, 3]), gr.ones([3, 2])
    with pytest.raises(gr.ShapeError, match="axis 1 has 3, axis 1 has 2"):
        gr.tensordot(a, b, ([1], [1]))
    with pytest.raises(gr.InvalidArgumentError, match="2 axes of the first"):
        gr.tensordot(a, b, ([0, 1], [0]))
    with pytest.raises(gr.InvalidArgumentError, match="3 axes"):
        gr.tensordot(a, b, 3)
    with pytest.raises(gr.AxisError):
        gr.tensordot(gr.ones([2, 2]), gr.ones([2, 2]), ([0, 0], [0, 1]))


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("outer", (2,), (3,)),
        ("outer", (2, 2), (3,)),
        ("inner", (3,), (3,)),
        ("inner", (2, 3), (4, 3)),
        ("inner", (), (4,)),
        ("dot", (3,), (3,)),
        ("dot", (2, 3), (3, 2)),
        ("dot", (2, 3), (3,)),
        ("dot", (2, 3), (4, 3, 2)),
        ("dot", (), (2,)),
        ("vdot", (2, 3), (3, 2)),
        ("kron", (2, 3), (3, 2)),
        ("kron", (2,), (3, 2)),
        ("kron", (), (2,)),
        ("kron", (2, 1, 2), (2, 3)),
    ],
)
def test_products(name, left, right):
    a, b = sample(left, "float64"), sample(right, "float64", 1)
    close(
        getattr(gr, name)(gr.asarray(a), gr.asarray(b)), np.asarray(getattr(np, name)(a, b)), 1e-12
    )


@pytest.mark.parametrize(
    ("left", "right", "axis"),
    [((2, 3), (2, 3), -1), ((4, 2, 3), (3,), -1), ((2, 3, 4), (2, 3, 4), -2), ((3,), (3,), 0)],
)
def test_vecdot(left, right, axis):
    a, b = sample(left, "float64"), sample(right, "float64", 1)
    close(gr.vecdot(gr.asarray(a), gr.asarray(b), axis=axis), np.asarray((a * b).sum(axis)), 1e-12)
    with pytest.raises(gr.ShapeError, match="one size"):
        gr.vecdot(gr.ones([2, 3]), gr.ones([2]))

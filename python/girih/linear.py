"""Products of matrices and vectors by the names of NumPy, PyTorch and JAX, as compositions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from . import _girih
from .checks import explain_public
from .errors import InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._girih import Tensor, _TensorLike

__all__ = [
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "cartesian_prod",
    "cdist",
    "combinations",
    "correlate",
    "dist",
    "matvec",
    "vecmat",
]


def _scaled(x: _TensorLike, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """``beta * x + alpha * product``; with beta 0, x is ignored, NaN and infinities too."""
    if not (isinstance(alpha, (int, float)) and alpha == 1):
        product = _girih.multiply(product, alpha)
    if isinstance(beta, (int, float)) and beta == 0:
        shape = _girih.broadcast_shapes(_girih.asarray(x).shape, product.shape)
        return _girih.broadcast_to(product, shape)
    if not (isinstance(beta, (int, float)) and beta == 1):
        x = _girih.multiply(x, beta)
    return _girih.add(x, product)


def _ranks(name: str, *pairs: tuple[Any, int]) -> list[Tensor]:
    made = []
    for value, rank in pairs:
        x = _girih.asarray(value)
        if x.ndim != rank:
            raise ShapeError(f"{name}: a tensor of rank {rank} is expected, got {list(x.shape)}")
        made.append(x)
    return made


def addmm(
    x: _TensorLike, mat1: _TensorLike, mat2: _TensorLike, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * x + alpha * (mat1 @ mat2)`` of matrices.

    Args:
        x: what is added to; it broadcasts to the product's shape.
        mat1: [m, k].
        mat2: [k, n].
        beta: a number, the factor of x; with 0 x is ignored.
        alpha: a number, the factor of the product.

    Example:
        >>> gr.addmm([1.0], [[2.0]], [[3.0]])
        tensor([[7.]], dtype=float32)
    """
    a, b = _ranks("addmm", (mat1, 2), (mat2, 2))
    return _scaled(x, a @ b, beta, alpha)


def addmv(
    x: _TensorLike, mat: _TensorLike, vec: _TensorLike, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * x + alpha * (mat @ vec)`` of a matrix and a vector.

    Args:
        x: what is added to; it broadcasts to the product's shape.
        mat: [m, k].
        vec: [k].
        beta: a number, the factor of x; with 0 x is ignored.
        alpha: a number, the factor of the product.

    Example:
        >>> gr.addmv([1.0], [[2.0]], [3.0])
        tensor([7.], dtype=float32)
    """
    a, b = _ranks("addmv", (mat, 2), (vec, 1))
    return _scaled(x, a @ b, beta, alpha)


def addr(
    x: _TensorLike, vec1: _TensorLike, vec2: _TensorLike, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * x + alpha * outer(vec1, vec2)`` of vectors.

    Args:
        x: what is added to; it broadcasts to the product's shape.
        vec1: [m].
        vec2: [n].
        beta: a number, the factor of x; with 0 x is ignored.
        alpha: a number, the factor of the product.

    Example:
        >>> gr.addr([1.0], [2.0], [3.0])
        tensor([[7.]], dtype=float32)
    """
    a, b = _ranks("addr", (vec1, 1), (vec2, 1))
    return _scaled(x, _girih.outer(a, b), beta, alpha)


def baddbmm(
    x: _TensorLike, batch1: _TensorLike, batch2: _TensorLike, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * x + alpha * (batch1 @ batch2)`` of batches of matrices.

    Args:
        x: what is added to; it broadcasts to the product's shape.
        batch1: [b, m, k].
        batch2: [b, k, n].
        beta: a number, the factor of x; with 0 x is ignored.
        alpha: a number, the factor of the products.

    Example:
        >>> gr.baddbmm([1.0], [[[2.0]]], [[[3.0]]])
        tensor([[[7.]]], dtype=float32)
    """
    a, b = _ranks("baddbmm", (batch1, 3), (batch2, 3))
    return _scaled(x, a @ b, beta, alpha)


def addbmm(
    x: _TensorLike, batch1: _TensorLike, batch2: _TensorLike, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * x + alpha * sum(batch1 @ batch2)``, the sum over a batch of matrices.

    Args:
        x: what is added to; it broadcasts to [m, n].
        batch1: [b, m, k].
        batch2: [b, k, n].
        beta: a number, the factor of x; with 0 x is ignored.
        alpha: a number, the factor of the sum.

    Example:
        >>> gr.addbmm([1.0], [[[2.0]]], [[[3.0]]])
        tensor([[7.]], dtype=float32)
    """
    a, b = _ranks("addbmm", (batch1, 3), (batch2, 3))
    return _scaled(x, _girih.einsum("bmk,bkn->mn", a, b), beta, alpha)


def matvec(x1: _TensorLike, x2: _TensorLike, /) -> Tensor:
    """Products of matrices and vectors: [..., m, n] and [..., n] to [..., m].

    Example:
        >>> gr.matvec([[1.0, 2.0]], [3.0, 4.0])
        tensor([11.], dtype=float32)
    """
    return (_girih.asarray(x1) @ _vector("matvec", x2)[..., None])[..., 0]


def vecmat(x1: _TensorLike, x2: _TensorLike, /) -> Tensor:
    """Products of conjugated vectors and matrices: [..., n] and [..., n, m] to [..., m].

    Example:
        >>> gr.vecmat([3.0, 4.0], [[1.0], [2.0]])
        tensor([11.], dtype=float32)
    """
    row = _girih.conj(_vector("vecmat", x1))[..., None, :]
    return (row @ _girih.asarray(x2))[..., 0, :]


def _vector(name: str, x: _TensorLike) -> Tensor:
    x = _girih.asarray(x)
    if x.ndim == 0:
        raise ShapeError(f"{name}: a vector is expected, got a scalar")
    return x


def dist(x: _TensorLike, other: _TensorLike, p: float = 2) -> Tensor:
    """The p-norm of the difference of two tensors, over all elements.

    Args:
        x: the first.
        other: the second; shapes broadcast.
        p: the order of the norm.

    Example:
        >>> gr.dist([0.0, 0.0], [3.0, 4.0])
        tensor(5., dtype=float32)
    """
    gap = _girih.subtract(x, other).reshape(-1)
    return _girih.linalg_vector_norm(gap, axis=None, keepdims=False, ord=p)


def cdist(x1: _TensorLike, x2: _TensorLike, p: float = 2.0) -> Tensor:
    """The p-norm distance of each row of the first from each row of the second.

    Args:
        x1: [..., m, k].
        x2: [..., n, k].
        p: the order of the norm, not negative.

    Returns:
        [..., m, n].

    Raises:
        ShapeError: Rows have different lengths, or there are none.
        InvalidArgumentError: p is negative.

    Example:
        >>> gr.cdist([[0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]])
        tensor([[5., 1.]], dtype=float32)
    """
    a, b = _girih.asarray(x1), _girih.asarray(x2)
    if min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(
            f"cdist: rows of one length are expected, got {list(a.shape)} and {list(b.shape)}"
        )
    if p < 0:
        raise InvalidArgumentError(f"cdist: p is not negative, got {p}")
    gap = a[..., :, None, :] - b[..., None, :, :]
    return _girih.linalg_vector_norm(gap, axis=-1, keepdims=False, ord=p)


def correlate(
    a: _TensorLike, v: _TensorLike, mode: Literal["full", "same", "valid"] = "valid"
) -> Tensor:
    """The cross-correlation of two vectors, the second one conjugated.

    Args:
        a: a vector.
        v: a vector.
        mode: "full" for every overlap, "same" for as many as the longer one has, "valid" for
            complete overlaps.

    Raises:
        ShapeError: One is no vector, or empty.
        InvalidArgumentError: There is no such mode.

    Example:
        >>> gr.correlate([1.0, 2.0, 3.0], [0.0, 1.0])
        tensor([2., 3.], dtype=float32)
    """
    long, short, swapped = _ordered(a, v, mode)
    if not swapped:
        return _slid(long, _girih.conj(short), mode)
    # The other one slides, so the shifts have the other sign.
    return _girih.flip(_slid(_girih.conj(long), short, mode))


def _ordered(a: _TensorLike, v: _TensorLike, mode: str) -> tuple[Tensor, Tensor, bool]:
    """Two vectors of one dtype, the longer one first, and whether that is the second."""
    from .dtypes import result_type

    pair = [_girih.asarray(a), _girih.asarray(v)]
    for x in pair:
        if x.ndim != 1 or x.shape[0] == 0:
            raise ShapeError(f"correlate: vectors with elements are expected, got {list(x.shape)}")
    if mode not in ("full", "same", "valid"):
        raise InvalidArgumentError(f"correlate: mode is 'full', 'same' or 'valid', got {mode!r}")
    dtype = result_type(*pair)
    dtype = _girih.int64 if dtype.name == "bool" else dtype
    first, second = (x.astype(dtype) for x in pair)
    if second.shape[0] > first.shape[0]:
        return second, first, True
    return first, second, False


def _slid(long: Tensor, kernel: Tensor, mode: str) -> Tensor:
    """Products of the kernel with the windows of the longer vector."""
    n = kernel.shape[0]
    before, after = {"full": (n - 1, n - 1), "valid": (0, 0), "same": (n // 2, n - 1 - n // 2)}[
        mode
    ]
    return _girih.windows(_girih.pad(long, [(before, after)]), n) @ kernel


def cartesian_prod(*tensors: _TensorLike) -> Tensor:
    """All combinations of an element of each vector, one per row.

    Args:
        tensors: vectors.

    Raises:
        ShapeError: One is no vector, or there are none.

    Example:
        >>> gr.cartesian_prod([1, 2], [3, 4])
        tensor([[1, 3],
                [1, 4],
                [2, 3],
                [2, 4]], dtype=int64)
    """
    vectors = _ranks("cartesian_prod", *((tensor, 1) for tensor in tensors))
    if not vectors:
        raise ShapeError("cartesian_prod: at least one vector is expected")
    if len(vectors) == 1:
        return vectors[0]
    grids = _girih.meshgrid(*vectors, indexing="ij")
    return _girih.stack([grid.reshape(-1) for grid in grids], -1)


def combinations(x: _TensorLike, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of r elements of a vector in their order, one per row.

    Args:
        x: a vector.
        r: how many elements each choice has.
        with_replacement: whether an element may be chosen more than once.

    Raises:
        ShapeError: x is no vector.
        InvalidArgumentError: r is negative.

    Example:
        >>> gr.combinations([1, 2, 3])
        tensor([[1, 2],
                [1, 3],
                [2, 3]], dtype=int64)
    """
    import itertools

    (x,) = _ranks("combinations", (x, 1))
    if r < 0:
        raise InvalidArgumentError(f"combinations: r is not negative, got {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows: Sequence[tuple[int, ...]] = list(choose(range(x.shape[0]), r))
    if not rows or r == 0:
        return _girih.zeros((0,) if r == 0 else (0, r), dtype=x.dtype)
    return _girih.take(x, _girih.asarray(rows), 0)


explain_public(globals())

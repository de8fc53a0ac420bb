"""Loops composed of other loops: ``associative_scan`` and ``map``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _girih, tree
from .batching import vmap
from .checks import explain_public
from .control import scan
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._girih import Tensor

__all__ = ["associative_scan", "map"]


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """Applies a function to each slice of ``xs`` along the leading axis, and stacks the results.

    Args:
        f: Takes a slice of ``xs``; returns a pytree of tensors.
        xs: A pytree of tensors with the same leading length.
        batch_size: The number of slices that are computed together, as by :func:`vmap`, which takes
            more memory and less time.

    Returns:
        A pytree of tensors with the leading axis of ``xs``.

    Raises:
        InvalidArgumentError: The lengths of ``xs`` differ, or ``batch_size`` is below 1.

    Example:
        >>> import girih as gr
        >>> gr.map(lambda x: x.sum(), gr.ones([3, 2])).tolist()
        [2.0, 2.0, 2.0]
    """
    if batch_size is None:
        return scan(lambda _, x: (None, f(x)), None, xs)[1]
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise InvalidArgumentError(
            f"map: batch_size must be an int of 1 or more, got {batch_size!r}"
        )
    xs = tree.map(_girih.asarray, xs)
    given: Any = None
    length = _girih.scan_length(tree.leaves(xs), given)
    whole = length // batch_size * batch_size
    rest = vmap(f)(tree.map(lambda x: x[whole:], xs)) if whole < length or not length else None
    if not whole:
        return rest
    parts = tree.map(lambda x: x[:whole].reshape([-1, batch_size, *x.shape[1:]]), xs)
    out = scan(lambda _, x: (None, vmap(f)(x)), None, parts)[1]
    out = tree.map(lambda y: y.reshape([whole, *y.shape[2:]]), out)
    if rest is None:
        return out
    return tree.map(lambda a, b: _girih.concat([a, b], axis=0), out, rest)


def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """Prefix combinations of the slices along an axis by an associative function.

    The combinations are computed as a tree, in ``2 log2(n)`` steps on decreasing numbers of slices;
    :func:`scan` takes ``n`` sequential steps (Blelloch 1990).

    Args:
        fn: Takes two pytrees of tensors with several slices each, and combines them slice by slice;
            it must be associative.
        elems: A pytree of tensors with the same length along the axis.
        reverse: Combines from the last slice to the first.
        axis: The axis of the slices.

    Returns:
        A pytree like ``elems``: slice ``i`` is the combination of the slices up to ``i``.

    Raises:
        InvalidArgumentError: There are no tensors, or their lengths along the axis differ.

    Example:
        >>> import girih as gr
        >>> gr.associative_scan(gr.multiply, gr.asarray([1.0, 2.0, 3.0, 4.0])).tolist()
        [1.0, 2.0, 6.0, 24.0]
    """
    leaves, structure = tree.flatten(elems)
    parts = [_girih.moveaxis(_girih.asarray(leaf), axis, 0) for leaf in leaves]
    if not parts:
        raise InvalidArgumentError("associative_scan: elems holds no tensors")
    given: Any = None
    length = _girih.scan_length(parts, given)

    def combine(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        result = fn(tree.unflatten(structure, a), tree.unflatten(structure, b))
        out = tree.leaves_like(structure, result)
        if out is None:
            raise InvalidArgumentError(
                f"associative_scan: the function must return the structure of elems, {structure}, "
                f"got {tree.structure(result)}"
            )
        return out

    if reverse:
        parts = [_girih.flip(part, axis=0) for part in parts]
    out = _running(combine, parts, length)
    if reverse:
        out = [_girih.flip(part, axis=0) for part in out]
    return tree.unflatten(structure, [_girih.moveaxis(part, 0, axis) for part in out])


def _running(
    combine: Callable[[list[Tensor], list[Tensor]], list[Tensor]], parts: list[Tensor], length: int
) -> list[Tensor]:
    """Combines pairs, scans the pairs recursively, and computes the remaining combinations."""
    if length < 2:
        return parts
    pairs = combine([p[: length - 1 : 2] for p in parts], [p[1::2] for p in parts])
    odd = _running(combine, pairs, length // 2)
    before = odd if length % 2 else [p[:-1] for p in odd]
    between = [p[2::2] for p in parts]
    even = combine(before, between) if length > 2 else between
    first = [p[:1] for p in parts]
    even = [_girih.concat([a, b], axis=0) for a, b in zip(first, even, strict=True)]
    return [_interleaved(a, b, length) for a, b in zip(even, odd, strict=True)]


def _interleaved(even: Tensor, odd: Tensor, length: int) -> Tensor:
    """Interleaves slices 0, 2, ... from one tensor with slices 1, 3, ... from another."""
    pairs = _girih.stack([even[: length // 2], odd], axis=1)
    flat = pairs.reshape([length // 2 * 2, *even.shape[1:]])
    return flat if length % 2 == 0 else _girih.concat([flat, even[-1:]], axis=0)


explain_public(globals())

"""Positions in a sequence: rotary and sinusoidal encodings, and caches of keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _girih, lazy
from ..errors import InvalidArgumentError, ShapeError
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import DType, Tensor

__all__ = ["KVCache", "RoPE", "SinusoidalPositionalEncoding"]


def _angles(n: Any, dims: int, base: float, scale: float, offset: Any, dtype: DType) -> Tensor:
    """``[n, dims / 2]``: positions, from the offset on, times decreasing frequencies."""
    positions = (_girih.arange(n) + offset).astype(dtype) * scale
    powers = _girih.arange(0, dims, 2, dtype=dtype) * (-1.0 / dims)
    frequencies = _girih.asarray(base, dtype=dtype) ** powers
    angles: Tensor = positions[:, None] * frequencies
    return angles


def _wide(x: Tensor) -> DType:
    """A wider dtype, because angles of large positions need more than half precision."""
    return _girih.float64 if x.dtype == _girih.float64 else _girih.float32


def _float(x: Tensor) -> DType:
    """The dtype of the result: float32 for integers, which do not hold sines."""
    return x.dtype if "float" in x.dtype.name else _girih.float32


def _check_features(module: str, x: Tensor, dims: int, exact: bool) -> None:
    wrong = x.ndim < 2 or (x.shape[-1] != dims if exact else x.shape[-1] < dims)
    if wrong:
        raise ShapeError(
            f"{module}: expected [..., n, {dims}{'' if exact else ' or more'}], got shape "
            f"{list(x.shape)}"
        )


def _check_dims(module: str, dims: int, base: float) -> None:
    if dims < 2 or dims % 2:
        raise InvalidArgumentError(f"{module}: dims must be even and at least 2, got {dims}")
    if not base > 0:
        raise InvalidArgumentError(f"{module}: base must be above 0, got {base}")


class RoPE(Module):
    """Rotary position embedding: rotates pairs of features by an angle proportional to the
    position.

    Dot products of queries and keys then depend only on the distance of their positions: Su et al.
    2021. Shapes: ``[..., n, features]`` for argument and result.

    Args:
        dims: The number of leading features that are rotated; even.
        traditional: Whether pairs are neighbours (0 with 1, 2 with 3), as in the paper; otherwise a
            feature of the first half is paired with a feature of the second half, as in LLaMA's
            published weights.
        base: The number whose powers are the wavelengths.
        scale: A factor of positions; below 1 for longer sequences than in training.

    Raises:
        InvalidArgumentError: ``dims`` is odd, or ``base`` is not above 0.

    Example:
        >>> import girih as gr
        >>> rope, q = gr.nn.RoPE(4), gr.ones([3, 4])
        >>> turned, later = rope(q), rope(q, offset=10)
        >>> gr.allclose(turned @ turned.T, later @ later.T, rtol=1e-4).item()
        True
    """

    def __init__(
        self, dims: int, traditional: bool = False, base: float = 10000.0, scale: float = 1.0
    ) -> None:
        _check_dims("RoPE", dims, base)
        self.dims, self.traditional, self.base, self.scale = dims, traditional, base, scale

    def forward(self, x: Tensor, offset: int | Tensor = 0) -> Tensor:
        """Rotates the features.

        Args:
            x: ``[..., n, features]``.
            offset: The position of the first element: a number, or an integer scalar tensor.

        Returns:
            ``[..., n, features]``.

        Raises:
            ShapeError: There are fewer features than ``dims``.
        """
        _check_features("RoPE", x, self.dims, exact=False)
        x = x.astype(_float(x))
        angles = _angles(x.shape[-2], self.dims, self.base, self.scale, offset, _wide(x))
        cos, sin = _girih.cos(angles).astype(x.dtype), _girih.sin(angles).astype(x.dtype)
        half = self.dims // 2
        if self.traditional:
            first, second = x[..., 0 : self.dims : 2], x[..., 1 : self.dims : 2]
        else:
            first, second = x[..., :half], x[..., half : self.dims]
        turned = [first * cos - second * sin, second * cos + first * sin]
        if self.traditional:
            turned = [_girih.stack(turned, -1).reshape((*x.shape[:-1], self.dims))]
        rest = [] if x.shape[-1] == self.dims else [x[..., self.dims :]]
        parts = [*turned, *rest]
        return parts[0] if len(parts) == 1 else _girih.concat(parts, -1)


class SinusoidalPositionalEncoding(Module):
    """Adds sines and cosines of the position to the features: Vaswani et al. 2017, section 3.5.

    Even features get sines, odd features get cosines. Shapes: ``[..., n, dims]`` for argument and
    result.

    Args:
        dims: The number of features; even.
        base: The number whose powers are the wavelengths.

    Raises:
        InvalidArgumentError: ``dims`` is odd, or ``base`` is not above 0.

    Example:
        >>> import girih as gr
        >>> gr.nn.SinusoidalPositionalEncoding(4)(gr.zeros([2, 4]))[0].tolist()
        [0.0, 1.0, 0.0, 1.0]
    """

    def __init__(self, dims: int, base: float = 10000.0) -> None:
        _check_dims("SinusoidalPositionalEncoding", dims, base)
        self.dims, self.base = dims, base

    def forward(self, x: Tensor, offset: int | Tensor = 0) -> Tensor:
        """Adds the encoding.

        Args:
            x: ``[..., n, dims]``.
            offset: The position of the first element: a number, or an integer scalar tensor.

        Returns:
            ``[..., n, dims]``.

        Raises:
            ShapeError: The number of features differs.
        """
        _check_features("SinusoidalPositionalEncoding", x, self.dims, exact=True)
        x = x.astype(_float(x))
        angles = _angles(x.shape[-2], self.dims, self.base, 1.0, offset, _wide(x))
        waves = _girih.stack([_girih.sin(angles), _girih.cos(angles)], -1)
        return x + waves.reshape((x.shape[-2], self.dims)).astype(x.dtype)


@dataclass
class KVCache:
    """Keys and values of the positions that an attention layer has processed.

    Attention with a cache appends the keys and values of new positions to the cache and attends to
    all positions so far. The capacity is fixed, so that one compiled program serves all steps. The
    cache is a pytree, so that a compiled function can take it (as a donated argument) and return
    it.

    Attributes:
        keys: ``[..., num_kv_heads, capacity, head_dim]``.
        values: The values, with the same shape as the keys.
        length: The number of positions, an integer scalar tensor.

    Example:
        >>> import girih as gr
        >>> layer = gr.nn.MultiheadAttention(8, 2)
        >>> x, cache = gr.randn([1, 3, 8]), layer.make_cache([1], 3)
        >>> parts = [layer(x[:, i : i + 1], cache=cache) for i in range(3)]
        >>> whole = layer(x, is_causal=True)
        >>> gr.allclose(gr.concat(parts, 1), whole, atol=1e-5).item(), cache.length.item()
        (True, 3)
    """

    keys: Tensor
    values: Tensor
    length: Tensor

    @classmethod
    def zeros(cls, shape: Sequence[int], dtype: DType | None = None) -> KVCache:
        """An empty cache.

        Args:
            shape: ``[..., num_kv_heads, capacity, head_dim]``.
            dtype: The dtype of keys and values; float32 by default.

        Returns:
            The cache, evaluated.

        Raises:
            ShapeError: The shape has fewer than three axes.
        """
        if len(shape) < 3:
            raise ShapeError(
                f"KVCache: expected a shape [..., num_kv_heads, capacity, head_dim], got "
                f"{list(shape)}"
            )
        dtype = _girih.float32 if dtype is None else dtype
        keys, values = (_girih.zeros(list(shape), dtype=dtype) for _ in range(2))
        made = cls(keys, values, _girih.zeros([], dtype=_girih.int64))
        lazy.eval(made)
        return made

    @property
    def capacity(self) -> int:
        """The maximum number of positions."""
        return int(self.keys.shape[-2])

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Appends new positions.

        Args:
            keys: ``[..., num_kv_heads, n, head_dim]``.
            values: The values, with the same shape as the keys.

        Returns:
            All keys, all values, and a mask ``[n, capacity]``: True where a new position attends to
            a position of the cache, which are the positions up to its own.

        Raises:
            ShapeError: The shapes do not match the cache, or there are more positions than its
                capacity.
            IndexOutOfBoundsError: The cache is full; raised when the result is evaluated.
        """
        for name, new, old in (("keys", keys, self.keys), ("values", values, self.values)):
            same = new.ndim == old.ndim and (*new.shape[:-2], new.shape[-1]) == (
                *old.shape[:-2],
                old.shape[-1],
            )
            if not same or new.shape[-2] > self.capacity:
                raise ShapeError(
                    f"KVCache: {name} of shape {list(new.shape)} do not go into a cache of shape "
                    f"{list(old.shape)}"
                )
        at = self.length + _girih.arange(keys.shape[-2])
        places: list[Any] = [old.at[..., at, :] for old in (self.keys, self.values)]
        self.keys = places[0].set(keys.astype(self.keys.dtype))
        self.values = places[1].set(values.astype(self.values.dtype))
        self.length = self.length + keys.shape[-2]
        seen = _girih.arange(self.capacity) <= at[:, None]
        return self.keys, self.values, seen

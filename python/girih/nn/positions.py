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

__all__ = ["ALiBi", "KVCache", "RoPE", "SinusoidalPositionalEncoding"]


def _frequencies(dims: int, base: float, dtype: DType) -> Tensor:
    """Decreasing powers of the base, ``[dims / 2]``."""
    powers = _girih.arange(0, dims, 2, dtype=dtype) * (-1.0 / dims)
    found: Tensor = _girih.asarray(base, dtype=dtype) ** powers
    return found


def _angles(module: str, x: Tensor, frequencies: Tensor, scale: float, offset: Any) -> Tensor:
    """``[n, dims / 2]``: positions, from the offset on, times frequencies. An offset with axes
    belongs to the first axes of ``x``, and its angles broadcast with ``x``."""
    places = _girih.arange(x.shape[-2])
    if isinstance(offset, _girih.Tensor) and offset.ndim:
        leading = x.shape[: offset.ndim]
        if offset.ndim > x.ndim - 2 or tuple(offset.shape) != tuple(leading):
            raise ShapeError(
                f"{module}: an offset is one number, or one for each entry of the first axes of x; "
                f"got offsets of shape {list(offset.shape)} for x of shape {list(x.shape)}"
            )
        offset = offset.reshape((*offset.shape, *([1] * (x.ndim - 1 - offset.ndim))))
    positions = (places + offset).astype(frequencies.dtype) * scale
    angles: Tensor = positions[..., None] * frequencies
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
        frequencies: The angles per position, ``[dims / 2]``, in place of powers of ``base``; a
            buffer, which is not trained.

    Raises:
        InvalidArgumentError: ``dims`` is odd, or ``base`` is not above 0.
        ShapeError: There are not ``dims / 2`` frequencies.

    Example:
        >>> import girih as gr
        >>> rope, q = gr.nn.RoPE(4), gr.ones([3, 4])
        >>> turned, later = rope(q), rope(q, offset=10)
        >>> gr.allclose(turned @ turned.T, later @ later.T, rtol=1e-4).item()
        True
    """

    def __init__(
        self,
        dims: int,
        traditional: bool = False,
        base: float = 10000.0,
        scale: float = 1.0,
        frequencies: Tensor | None = None,
    ) -> None:
        _check_dims("RoPE", dims, base)
        self.dims, self.traditional, self.base, self.scale = dims, traditional, base, scale
        self.frequencies = None if frequencies is None else _girih.asarray(frequencies)
        if self.frequencies is not None and tuple(self.frequencies.shape) != (dims // 2,):
            raise ShapeError(
                f"RoPE: expected {dims // 2} frequencies for dims={dims}, got shape "
                f"{list(self.frequencies.shape)}"
            )

    def forward(self, x: Tensor, offset: int | Tensor = 0) -> Tensor:
        """Rotates the features.

        Args:
            x: ``[..., n, features]``.
            offset: The position of the first element: a number, or an integer tensor, which may
                have the first axes of ``x``, ``[batch]``, for sequences that begin at different
                positions.

        Returns:
            ``[..., n, features]``.

        Raises:
            ShapeError: There are fewer features than ``dims``, or offsets that do not fit.
        """
        _check_features("RoPE", x, self.dims, exact=False)
        x = x.astype(_float(x))
        if self.frequencies is None:
            frequencies = _frequencies(self.dims, self.base, _wide(x))
        else:
            frequencies = self.frequencies.astype(_wide(x))
        angles = _angles("RoPE", x, frequencies, self.scale, offset)
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
            offset: The position of the first element: a number, or an integer tensor, which may
                have the first axes of ``x``.

        Returns:
            ``[..., n, dims]``.

        Raises:
            ShapeError: The number of features differs, or offsets do not fit.
        """
        name = "SinusoidalPositionalEncoding"
        _check_features(name, x, self.dims, exact=True)
        x = x.astype(_float(x))
        frequencies = _frequencies(self.dims, self.base, _wide(x))
        angles = _angles(name, x, frequencies, 1.0, offset)
        waves = _girih.stack([_girih.sin(angles), _girih.cos(angles)], -1)
        return x + waves.reshape((*angles.shape[:-1], self.dims)).astype(x.dtype)


class ALiBi(Module):
    """Attention with linear biases: a key's score falls with its distance from the query: Press,
    Smith and Lewis 2022.

    Each head has a slope; the slopes are a geometric sequence from ``2 ** (-8 / num_heads)`` to
    ``2 ** -8``. Shapes: ``[..., num_heads, n, m]`` for argument and result.

    Args:
        num_heads: The number of heads.

    Raises:
        InvalidArgumentError: There is no head.

    Example:
        >>> import girih as gr
        >>> alibi, q = gr.nn.ALiBi(2), gr.ones([2, 3, 4])
        >>> alibi(gr.zeros([2, 1, 3]))[0].tolist()
        [[0.0, -0.0625, -0.125]]
        >>> gr.scaled_dot_product_attention(q, q, q, alibi.bias(3, 3)).shape
        (2, 3, 4)
    """

    def __init__(self, num_heads: int) -> None:
        if num_heads < 1:
            raise InvalidArgumentError(f"ALiBi: num_heads must be at least 1, got {num_heads}")
        self.num_heads = num_heads

    def bias(self, n: int, m: int, offset: int | Tensor = 0, dtype: DType | None = None) -> Tensor:
        """The biases of ``n`` queries and ``m`` keys, which are also a mask for attention.

        Args:
            n: The number of queries.
            m: The number of keys.
            offset: The position of the first query.
            dtype: The dtype of the biases, float32 by default.

        Returns:
            ``[num_heads, n, m]``.
        """
        wide = _girih.float64 if dtype == _girih.float64 else _girih.float32
        numbers = _girih.arange(1, self.num_heads + 1, dtype=wide)
        slopes = _girih.exp2(numbers * (-8.0 / self.num_heads))
        distance = _girih.abs((_girih.arange(n) + offset)[:, None] - _girih.arange(m))
        biases: Tensor = -slopes[:, None, None] * distance.astype(wide)
        return biases if dtype is None else biases.astype(dtype)

    def forward(self, scores: Tensor, offset: int | Tensor = 0) -> Tensor:
        """Adds the biases to scores.

        Args:
            scores: ``[..., num_heads, n, m]``.
            offset: The position of the first query: a number, or an integer scalar tensor.

        Returns:
            ``[..., num_heads, n, m]``.

        Raises:
            ShapeError: The number of heads differs.
        """
        if scores.ndim < 3 or scores.shape[-3] != self.num_heads:
            raise ShapeError(
                f"ALiBi: expected [..., {self.num_heads}, n, m], got shape {list(scores.shape)}"
            )
        scores = scores.astype(_float(scores))
        return scores + self.bias(scores.shape[-2], scores.shape[-1], offset, scores.dtype)


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

"""Attention as a module."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from .. import _girih
from ..errors import InvalidArgumentError, ShapeError
from . import init
from .layers import Linear
from .module import Module, Parameter
from .positions import KVCache, RoPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import DType, Tensor

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Multi-head attention: Vaswani et al. 2017, section 3.2.2.

    Shapes: query ``[..., n, embed_dim]``, key ``[..., m, kdim]``, value ``[..., m, vdim]``, result
    ``[..., n, embed_dim]``. With ``num_kv_heads`` below ``num_heads`` each head of keys and values
    serves a group of query heads (grouped-query attention): Ainslie et al. 2023.

    Args:
        embed_dim: The number of features of queries and results.
        num_heads: The number of heads; it must divide ``embed_dim``.
        dropout: The probability of dropping an attention weight in training mode.
        bias: Whether the projections have biases.
        kdim: The number of features of keys, ``embed_dim`` by default.
        vdim: The number of features of values, ``embed_dim`` by default.
        num_kv_heads: The number of heads of keys and values, ``num_heads`` by default.
        dtype: The dtype of the parameters.
        rope: A rotary position embedding for queries and keys.
        add_bias_kv: Whether to append a learnable key and value (``bias_k``, ``bias_v``).
        add_zero_attn: Whether to append a key and value of zeros at the end.

    Every query attends to the appended keys; the attention weights have a column for each of them.

    Raises:
        InvalidArgumentError: ``num_heads`` does not divide ``embed_dim``, ``num_kv_heads`` does not
            divide ``num_heads``, or ``dropout`` is outside ``[0, 1]``.

    Example:
        >>> import girih as gr
        >>> layer = gr.nn.MultiheadAttention(8, 2)
        >>> out, weights = layer(gr.ones([3, 5, 8]), need_weights=True)
        >>> out.shape, weights.shape
        ((3, 5, 8), (3, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        num_kv_heads: int | None = None,
        dtype: DType | None = None,
        rope: RoPE | None = None,
        *,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
    ) -> None:
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise InvalidArgumentError(
                f"MultiheadAttention: dropout must be a share in [0, 1], got {dropout}"
            )
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or embed_dim % num_heads:
            raise InvalidArgumentError(
                f"MultiheadAttention: {num_heads} heads do not divide {embed_dim} features"
            )
        if kv_heads < 1 or num_heads % kv_heads:
            raise InvalidArgumentError(
                f"MultiheadAttention: {kv_heads} heads of keys do not divide {num_heads} heads"
            )
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, kv_heads
        self.dropout, self.rope = dropout, rope
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        inner = embed_dim // num_heads * kv_heads
        self.q_proj = Linear(embed_dim, embed_dim, bias, dtype)
        self.k_proj = Linear(embed_dim if kdim is None else kdim, inner, bias, dtype)
        self.v_proj = Linear(embed_dim if vdim is None else vdim, inner, bias, dtype)
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype)
        self.bias_k: Tensor | None = None
        self.bias_v: Tensor | None = None
        if add_bias_kv:
            self.bias_k = Parameter(init.xavier_normal((1, 1, inner), dtype=dtype))
            self.bias_v = Parameter(init.xavier_normal((1, 1, inner), dtype=dtype))
        self.add_zero_attn = add_zero_attn
        self._start(dtype)

    def _start(self, dtype: DType | None) -> None:
        """Initialises the projections by Xavier initialisation; the projections of query, key and
        value are initialised as one matrix if they have the same number of features. Biases start
        at zero."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        shapes = [tuple(p.weight.shape) for p in projections]
        joint = len({features for _, features in shapes}) == 1
        rows = sum(out for out, _ in shapes)
        for projection, shape in zip(projections, shapes, strict=True):
            fans = shape[1] + (rows if joint else shape[0])
            gain = (sum(shape) / fans) ** 0.5 if fans else 1.0
            projection.weight = Parameter(init.xavier_uniform(shape, gain, dtype))
        for projection in (*projections, self.out_proj):
            if projection.bias is not None:
                projection.bias = Parameter(init.zeros(projection.bias.shape, dtype))

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
        average_attn_weights: bool = True,
        cache: KVCache | None = None,
    ) -> Any:
        """Applies the layer; by default keys are the query, and values are the keys.

        Masks combine: a query attends to a key only if all masks allow it. A query without any
        allowed key gets zeros.

        Args:
            query: ``[..., n, embed_dim]``.
            key: ``[..., m, kdim]``.
            value: ``[..., m, vdim]``.
            mask: Broadcasts to ``[..., num_heads, n, m]``: bool, True to attend to a key, or
                numbers that are added to the scores; see
                :func:`girih.scaled_dot_product_attention`.
            is_causal: Whether query i attends only to keys up to i.
            key_padding_mask: ``[..., m]`` as in PyTorch: bool, True to *ignore* a key, or numbers
                that are added to the scores.
            attn_mask: ``[n, m]``, ``[..., num_heads, n, m]`` or ``[batch * num_heads, n, m]`` as in
                PyTorch: bool, True to *ignore* a key, or numbers that are added to the scores.
            need_weights: Whether to return ``(result, weights)``.
            average_attn_weights: Whether to average the returned weights over heads: ``[..., n,
                m]``; otherwise ``[..., num_heads, n, m]``.
            cache: A cache from :meth:`make_cache`. The queries follow the positions in the cache,
                and the keys and values of the queries are appended to the cache. Each query attends
                to the positions up to its own, so that ``is_causal`` has no further effect. Masks
                then cover all ``m = capacity`` positions.

        Returns:
            The result, ``[..., n, embed_dim]``, or a pair with the weights.

        Raises:
            ShapeError: The shapes of operands or masks do not fit.
        """
        key = query if key is None else key
        value = key if value is None else value
        mask = self._joined_masks(query, mask, key_padding_mask, attn_mask)
        q = _split(self.q_proj(query), self.num_heads)
        k = _split(self.k_proj(key), self.num_kv_heads)
        v = _split(self.v_proj(value), self.num_kv_heads)
        if self.rope is not None:
            start = 0 if cache is None else cache.length
            q, k = self.rope(q, start), self.rope(k, start)
        if cache is not None:
            k, v, seen = cache.append(k, v)
            mask, is_causal = seen if mask is None else _both(seen, mask), False
        if self.bias_k is not None or self.add_zero_attn:
            if is_causal:
                causal = _girih.tril(_girih.ones((q.shape[-2], k.shape[-2]), dtype=_girih.bool_))
                mask, is_causal = causal if mask is None else _both(causal, mask), False
            k, v, mask = self._extended(k, v, mask)
        rate = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            out, weights = _girih.attention_with_weights(q, k, v, mask, rate, is_causal)
            weights = weights.mean(-3) if average_attn_weights else weights
        else:
            out = _girih.scaled_dot_product_attention(q, k, v, mask, rate, is_causal)
        out = out.swapaxes(-2, -3)
        joined: Tensor = self.out_proj(
            out.reshape((*out.shape[:-2], out.shape[-2] * out.shape[-1]))
        )
        return (joined, weights) if need_weights else joined

    def _extended(
        self, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Appends the layer's own keys and values, and extends the mask so that queries attend to
        them."""
        size, keys, values = (*k.shape[:-2], 1, k.shape[-1]), [k], [v]
        if self.bias_k is not None and self.bias_v is not None:
            for parts, bias in ((keys, self.bias_k), (values, self.bias_v)):
                one = bias.reshape((self.num_kv_heads, 1, size[-1])).astype(k.dtype)
                parts.append(one.broadcast_to(size))
        if self.add_zero_attn:
            for parts in (keys, values):
                parts.append(_girih.zeros(size, dtype=k.dtype))
        if mask is not None:
            mask = mask.broadcast_to((*mask.shape[:-1], k.shape[-2]))
            seen = True if mask.dtype == _girih.bool_ else 0.0
            column = _girih.full((*mask.shape[:-1], len(keys) - 1), seen, dtype=mask.dtype)
            mask = _girih.concat([mask, column], -1)
        return _girih.concat(keys, -2), _girih.concat(values, -2), mask

    def make_cache(
        self, batch: Sequence[int], capacity: int, dtype: DType | None = None
    ) -> KVCache:
        """An empty cache for the layer.

        Args:
            batch: The sizes of the query axes before the positions: ``[]``, or ``[batch]``.
            capacity: The maximum number of positions.
            dtype: The dtype of keys and values, by default that of the parameters.

        Returns:
            The cache.

        Raises:
            ShapeError: A size is negative.
        """
        features = self.embed_dim // self.num_heads
        dtype = self.k_proj.weight.dtype if dtype is None else dtype
        return KVCache.zeros([*batch, self.num_kv_heads, capacity, features], dtype)

    def _joined_masks(
        self,
        query: Tensor,
        mask: Tensor | None,
        padding: Tensor | None,
        attn_mask: Tensor | None,
    ) -> Tensor | None:
        """Combines all masks into one with the convention of this package."""
        masks = [] if mask is None else [mask]
        if padding is not None:
            by_key = padding.unsqueeze(-2).unsqueeze(-2)
            masks.append(~by_key if padding.dtype == _girih.bool_ else by_key)
        if attn_mask is not None:
            if attn_mask.ndim == 3 and query.ndim > 2:
                size = (*query.shape[:-2], self.num_heads, *attn_mask.shape[-2:])
                if attn_mask.shape[0] != prod(size[:-2]):
                    raise ShapeError(
                        f"MultiheadAttention: attn_mask of shape {list(attn_mask.shape)} is no "
                        f"[batch * num_heads, n, m] for {prod(size[:-3])} entries and "
                        f"{self.num_heads} heads"
                    )
                attn_mask = attn_mask.reshape(size)
            masks.append(~attn_mask if attn_mask.dtype == _girih.bool_ else attn_mask)
        joined: Tensor | None = None
        for m in masks:
            joined = m if joined is None else _both(joined, m)
        return joined


def _both(one: Tensor, other: Tensor) -> Tensor:
    """Combines two masks: bool, or numbers that are added to the scores."""
    if one.dtype == other.dtype == _girih.bool_:
        return one & other
    added = [
        _girih.where(m, 0.0, float("-inf")) if m.dtype == _girih.bool_ else m for m in (one, other)
    ]
    return added[0] + added[1]


def _split(x: Tensor, heads: int) -> Tensor:
    """``[..., n, heads * e] -> [..., heads, n, e]``."""
    return x.reshape((*x.shape[:-1], heads, x.shape[-1] // heads)).swapaxes(-2, -3)

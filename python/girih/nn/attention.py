"""Attention as a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _girih
from ..errors import InvalidArgumentError
from .layers import Linear
from .module import Module

if TYPE_CHECKING:
    from .._girih import DType, Tensor

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention in several subspaces at once: Vaswani et al. 2017, section 3.2.2.

    Shapes: query ``[..., n, embed_dim]``, key ``[..., m, kdim]``, value ``[..., m, vdim]``, result
    ``[..., n, embed_dim]``. With ``num_kv_heads`` below ``num_heads`` each head of keys and values
    serves a group of the query's: Ainslie et al. 2023.

    Args:
        embed_dim: Features of queries and results.
        num_heads: Subspaces; they divide the features.
        bias: Whether the projections have biases.
        kdim: Features of keys, ``embed_dim`` by default.
        vdim: Features of values, ``embed_dim`` by default.
        num_kv_heads: Heads of keys and values, ``num_heads`` by default.
        dtype: Of the parameters.

    Raises:
        InvalidArgumentError: The heads do not divide the features, or the heads of keys the heads.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        num_kv_heads: int | None = None,
        dtype: DType | None = None,
    ) -> None:
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
        inner = embed_dim // num_heads * kv_heads
        self.q_proj = Linear(embed_dim, embed_dim, bias, dtype)
        self.k_proj = Linear(embed_dim if kdim is None else kdim, inner, bias, dtype)
        self.v_proj = Linear(embed_dim if vdim is None else vdim, inner, bias, dtype)
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Applies the layer; keys are the query by default, values the keys.

        The mask broadcasts to ``[..., num_heads, n, m]``; see
        :func:`girih.scaled_dot_product_attention`.
        """
        key = query if key is None else key
        value = key if value is None else value
        out = _girih.scaled_dot_product_attention(
            _split(self.q_proj(query), self.num_heads),
            _split(self.k_proj(key), self.num_kv_heads),
            _split(self.v_proj(value), self.num_kv_heads),
            mask,
            is_causal,
        )
        out = out.swapaxes(-2, -3)
        joined: Tensor = self.out_proj(
            out.reshape((*out.shape[:-2], out.shape[-2] * out.shape[-1]))
        )
        return joined


def _split(x: Tensor, heads: int) -> Tensor:
    """``[..., n, heads * e] -> [..., heads, n, e]``."""
    return x.reshape((*x.shape[:-1], heads, x.shape[-1] // heads)).swapaxes(-2, -3)

"""Transformer layers and stacks of layers: Vaswani et al. 2017."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from .. import _girih
from ..errors import InvalidArgumentError
from .attention import MultiheadAttention
from .containers import ModuleList
from .layers import Dropout, LayerNorm, Linear
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._girih import DType, Tensor
    from .positions import KVCache

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


def _activation(name: str, given: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if callable(given):
        return given
    if given not in ("relu", "gelu"):
        raise InvalidArgumentError(
            f"{name}: activation is 'relu', 'gelu' or a function, got {given!r}"
        )
    return _girih.relu if given == "relu" else _girih.gelu


class _Layer(Module):
    """Attention and two linear layers, each with a residual connection and a norm."""

    def _setup(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float,
        activation: str | Callable[[Tensor], Tensor],
        layer_norm_eps: float,
        norm_first: bool,
        bias: bool,
        dtype: DType | None,
        norms: int,
    ) -> None:
        self.d_model, self.nhead, self.dim_feedforward = d_model, nhead, dim_feedforward
        self.activation, self.layer_norm_eps = activation, layer_norm_eps
        self.norm_first, self.bias = norm_first, bias
        self._function = _activation(type(self).__name__, activation)
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, dtype=dtype)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype)
        self.dropout = Dropout(dropout)
        for i in range(1, norms + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype))
            setattr(self, f"dropout{i}", Dropout(dropout))

    def _around(self, i: int, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Applies a block with a residual connection, and a norm before or after the block."""
        norm, dropout = getattr(self, f"norm{i}"), getattr(self, f"dropout{i}")
        out: Tensor
        out = x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))
        return out

    def _feed_forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear2(self.dropout(self._function(self.linear1(x))))
        return out


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual connection and a norm.

    Shapes: ``[..., n, d_model]`` for argument and result; the batch axes come first.

    Args:
        d_model: The number of features.
        nhead: The number of attention heads; it must divide ``d_model``.
        dim_feedforward: The number of hidden features of the feed-forward network.
        dropout: The probability of dropping an element or an attention weight in training mode.
        activation: ``"relu"``, ``"gelu"`` or a function.
        layer_norm_eps: A number added to variances.
        norm_first: Whether norms come before the blocks (pre-norm), not after the residual sums.
        bias: Whether linear layers and norms have biases.
        dtype: The dtype of the parameters.

    Raises:
        InvalidArgumentError: ``nhead`` does not divide ``d_model``, ``dropout`` is outside ``[0,
            1]``, or the activation is unknown.

    Example:
        >>> import girih as gr
        >>> gr.nn.TransformerEncoderLayer(8, 2, 16)(gr.ones([3, 5, 8])).shape
        (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        bias: bool = True,
        dtype: DType | None = None,
    ) -> None:
        sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        self._setup(*sizes, norm_first, bias, dtype, norms=2)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Applies the layer.

        Args:
            src: ``[..., n, d_model]``.
            src_mask: The ``attn_mask`` of :class:`MultiheadAttention`: bool, True to *ignore* a
                key, or numbers that are added to the scores.
            src_key_padding_mask: ``[..., n]``, in the same form as ``src_mask``.
            is_causal: Whether a position attends only to positions up to its own.
            cache: The keys and values of the positions before ``src``; see
                :meth:`MultiheadAttention.forward`.

        Returns:
            ``[..., n, d_model]``.
        """

        def attention(x: Tensor) -> Tensor:
            out: Tensor = self.self_attn(
                x,
                attn_mask=src_mask,
                key_padding_mask=src_key_padding_mask,
                is_causal=is_causal,
                cache=cache,
            )
            return out

        return self._around(2, self._around(1, src, attention), self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the output of an encoder, and a feed-forward network.

    Shapes: ``[..., n, d_model]`` and memory ``[..., m, d_model]`` to ``[..., n, d_model]``.

    Args:
        d_model: The number of features. All arguments are those of
            :class:`TransformerEncoderLayer`.
        nhead: The number of heads.
        dim_feedforward: The number of hidden features.
        dropout: The dropout probability.
        activation: ``"relu"``, ``"gelu"`` or a function.
        layer_norm_eps: A number added to variances.
        norm_first: Whether norms come first.
        bias: Whether linear layers and norms have biases.
        dtype: The dtype of the parameters.

    Raises:
        InvalidArgumentError: As for :class:`TransformerEncoderLayer`.

    Example:
        >>> import girih as gr
        >>> layer = gr.nn.TransformerDecoderLayer(8, 2, 16)
        >>> layer(gr.ones([3, 4, 8]), gr.ones([3, 5, 8])).shape
        (3, 4, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        bias: bool = True,
        dtype: DType | None = None,
    ) -> None:
        sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        self._setup(*sizes, norm_first, bias, dtype, norms=3)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, dtype=dtype)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Applies the layer; masks as in :class:`TransformerEncoderLayer`.

        Args:
            tgt: ``[..., n, d_model]``.
            memory: ``[..., m, d_model]``.
            tgt_mask: The mask of the self-attention.
            memory_mask: The mask of the attention to memory.
            tgt_key_padding_mask: ``[..., n]``.
            memory_key_padding_mask: ``[..., m]``.
            tgt_is_causal: Whether a position attends only to positions up to its own.
            memory_is_causal: Whether a position attends only to memory positions up to its own.
            cache: The keys and values of the positions before ``tgt``; see
                :meth:`MultiheadAttention.forward`.

        Returns:
            ``[..., n, d_model]``.
        """

        def own(x: Tensor) -> Tensor:
            out: Tensor = self.self_attn(
                x,
                attn_mask=tgt_mask,
                key_padding_mask=tgt_key_padding_mask,
                is_causal=tgt_is_causal,
                cache=cache,
            )
            return out

        def other(x: Tensor) -> Tensor:
            out: Tensor = self.multihead_attn(
                x,
                memory,
                attn_mask=memory_mask,
                key_padding_mask=memory_key_padding_mask,
                is_causal=memory_is_causal,
            )
            return out

        x = self._around(2, self._around(1, tgt, own), other)
        return self._around(3, x, self._feed_forward)


class _Stack(Module):
    def __init__(
        self,
        layer: Module | Callable[[], Module],
        num_layers: int,
        norm: Module | None = None,
    ) -> None:
        if num_layers < 0:
            raise InvalidArgumentError(
                f"{type(self).__name__}: num_layers must not be negative, got {num_layers}"
            )
        self.num_layers = num_layers
        self.layers = ModuleList(
            copy.deepcopy(layer) if isinstance(layer, Module) else layer()
            for _ in range(num_layers)
        )
        self.norm = norm

    def make_cache(
        self, batch: Sequence[int], capacity: int, dtype: DType | None = None
    ) -> list[KVCache]:
        """Empty caches of the self-attention of each layer.

        Args:
            batch: The sizes of the axes before the positions: ``[]``, or ``[batch]``.
            capacity: The maximum number of positions.
            dtype: The dtype of keys and values, by default that of the parameters.

        Returns:
            A cache per layer.

        Raises:
            ShapeError: A size is negative.
        """
        layers: list[Any] = list(self.layers)
        return [layer.self_attn.make_cache(batch, capacity, dtype) for layer in layers]

    def _caches(self, caches: Sequence[KVCache] | None) -> Sequence[KVCache | None]:
        """A cache, or None, for each layer."""
        if caches is None:
            return [None] * self.num_layers
        if len(caches) != self.num_layers:
            raise InvalidArgumentError(
                f"{type(self).__name__}: {self.num_layers} layers need as many caches, got "
                f"{len(caches)}"
            )
        return caches


class TransformerEncoder(_Stack):
    """A stack of encoder layers, with an optional norm after them.

    Args:
        layer: A layer, which is copied so that all layers have the same initial weights; or a
            function that creates a layer, so that each layer has its own initial weights.
        num_layers: The number of layers.
        norm: A norm that is applied after the layers.

    Raises:
        InvalidArgumentError: ``num_layers`` is negative.

    Example:
        >>> import girih as gr
        >>> make = lambda: gr.nn.TransformerEncoderLayer(8, 2, 16)
        >>> gr.nn.TransformerEncoder(make, 2)(gr.ones([3, 5, 8])).shape
        (3, 5, 8)
    """

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        caches: Sequence[KVCache] | None = None,
    ) -> Tensor:
        """Applies the layers; see :meth:`TransformerEncoderLayer.forward`.

        Args:
            src: ``[..., n, d_model]``.
            mask: Like ``src_mask`` of the layers.
            src_key_padding_mask: As in the layers.
            is_causal: Whether a position attends only to positions up to its own.
            caches: The caches from :meth:`make_cache`.

        Returns:
            ``[..., n, d_model]``.

        Raises:
            InvalidArgumentError: The number of caches is not the number of layers.
        """
        for layer, cache in zip(self.layers, self._caches(caches), strict=True):
            src = layer(src, mask, src_key_padding_mask, is_causal, cache)
        out: Tensor = src if self.norm is None else self.norm(src)
        return out


class TransformerDecoder(_Stack):
    """A stack of decoder layers, with an optional norm after them.

    Args:
        layer: A layer, which is copied so that all layers have the same initial weights; or a
            function that creates a layer, so that each layer has its own initial weights.
        num_layers: The number of layers.
        norm: A norm that is applied after the layers.

    Raises:
        InvalidArgumentError: ``num_layers`` is negative.

    Example:
        >>> import girih as gr
        >>> make = lambda: gr.nn.TransformerDecoderLayer(8, 2, 16)
        >>> gr.nn.TransformerDecoder(make, 2)(gr.ones([3, 4, 8]), gr.ones([3, 5, 8])).shape
        (3, 4, 8)
    """

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        caches: Sequence[KVCache] | None = None,
        **masks: Any,
    ) -> Tensor:
        """Applies the layers; masks as in :meth:`TransformerDecoderLayer.forward`, by name.

        Args:
            tgt: ``[..., n, d_model]``.
            memory: ``[..., m, d_model]``.
            caches: The caches from :meth:`make_cache`.
            **masks: The masks by name.

        Returns:
            ``[..., n, d_model]``.

        Raises:
            InvalidArgumentError: The number of caches is not the number of layers.
        """
        for layer, cache in zip(self.layers, self._caches(caches), strict=True):
            tgt = layer(tgt, memory, **masks, cache=cache)
        out: Tensor = tgt if self.norm is None else self.norm(tgt)
        return out


class Transformer(Module):
    """An encoder, and a decoder that attends to the output of the encoder.

    Shapes: source ``[..., m, d_model]``, target and result ``[..., n, d_model]``.

    Args:
        d_model: The number of features.
        nhead: The number of attention heads.
        num_encoder_layers: The number of encoder layers.
        num_decoder_layers: The number of decoder layers.
        dim_feedforward: The number of hidden features of the feed-forward networks.
        dropout: The dropout probability in training mode.
        activation: ``"relu"``, ``"gelu"`` or a function.
        layer_norm_eps: A number added to variances.
        norm_first: Whether norms come before the blocks (pre-norm), not after the residual sums.
        bias: Whether linear layers and norms have biases.
        dtype: The dtype of the parameters.

    Raises:
        InvalidArgumentError: As for :class:`TransformerEncoderLayer`.

    Example:
        >>> import girih as gr
        >>> model = gr.nn.Transformer(8, 2, 1, 1, 16)
        >>> model(gr.ones([3, 5, 8]), gr.ones([3, 4, 8])).shape
        (3, 4, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        bias: bool = True,
        dtype: DType | None = None,
    ) -> None:
        self.d_model, self.nhead = d_model, nhead

        def layer(kind: Any) -> Callable[[], Module]:
            sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
            return lambda: kind(*sizes, norm_first, bias, dtype)

        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype) for _ in range(2)]
        encoders, decoders = layer(TransformerEncoderLayer), layer(TransformerDecoderLayer)
        self.encoder = TransformerEncoder(encoders, num_encoder_layers, norms[0])
        self.decoder = TransformerDecoder(decoders, num_decoder_layers, norms[1])

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
    ) -> Tensor:
        """Encodes the source and decodes the target with it; masks as in the layers."""
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        out: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
        )
        return out

    @staticmethod
    def generate_square_subsequent_mask(size: int) -> Tensor:
        """An additive causal mask: a position attends only to positions up to its own.

        Args:
            size: The number of positions.

        Returns:
            ``[size, size]``, 0 up to the diagonal and minus infinity above it.
        """
        seen = _girih.tril(_girih.ones([size, size], dtype=_girih.bool_))
        return _girih.where(seen, 0.0, float("-inf"))

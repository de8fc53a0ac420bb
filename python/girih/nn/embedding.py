"""Embeddings: tables whose rows are looked up by integer indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .. import _girih
from ..errors import InvalidArgumentError, ShapeError
from . import init
from .module import Module, Parameter

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._girih import DType, Tensor

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """The table and the options of its rows."""

    weight: Tensor

    def _setup(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, dtype: DType | None
    ) -> None:
        name = type(self).__name__
        if num_embeddings < 0 or embedding_dim < 0:
            raise InvalidArgumentError(
                f"{name}: sizes must not be negative, got {num_embeddings} and {embedding_dim}"
            )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        weight = init.normal((num_embeddings, embedding_dim), dtype=dtype)
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise InvalidArgumentError(
                    f"{name}: padding_idx {padding_idx} is no row of a table of {num_embeddings}"
                )
            padding_idx %= num_embeddings
            kept = _girih.arange(num_embeddings) != padding_idx
            weight = _girih.where(kept.unsqueeze(1), weight, 0.0)
        self.padding_idx = padding_idx
        self.weight = Parameter(weight)

    @classmethod
    def from_pretrained(cls, weight: Tensor, **options: Any) -> Self:
        """A layer with a given table, ``[num_embeddings, embedding_dim]``.

        Args:
            weight: The table.
            options: Other arguments of the layer.

        Returns:
            The layer.

        Raises:
            ShapeError: The table does not have two axes.
        """
        if weight.ndim != 2:
            raise ShapeError(
                f"{cls.__name__}: expected a table [rows, columns], got shape {list(weight.shape)}"
            )
        layer = cls(*weight.shape, **options)
        layer.weight = weight
        return layer


class Embedding(_Table):
    """Rows of a table, indexed by integers.

    Shapes: weight ``[num_embeddings, embedding_dim]``, indices of any shape, result ``indices.shape
    + [embedding_dim]``. The initial table is standard normal.

    Args:
        num_embeddings: The number of rows.
        embedding_dim: The number of columns.
        padding_idx: A row that starts at zero and is not trained.
        max_norm: Looked-up rows with a larger norm are scaled to this norm. The table itself does
            not change, because a layer changes no parameter.
        norm_type: The norm of ``max_norm``.
        scale_grad_by_freq: Whether the gradient of a row is divided by the number of its look-ups.
        dtype: The dtype of the table.

    Raises:
        InvalidArgumentError: A size is negative, or ``padding_idx`` is not a row.

    Example:
        >>> import girih as gr
        >>> layer = gr.nn.Embedding(4, 2, padding_idx=0)
        >>> layer(gr.asarray([0, 3])).shape, layer(gr.asarray(0)).tolist()
        ((2, 2), [0.0, 0.0])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        dtype: DType | None = None,
    ) -> None:
        self._setup(num_embeddings, embedding_dim, padding_idx, dtype)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq = scale_grad_by_freq

    def forward(self, indices: Tensor) -> Tensor:
        """Looks up the rows."""
        return _girih.embedding(
            indices,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
        )


class EmbeddingBag(_Table):
    """Reduces bags of table rows, without storing the looked-up rows.

    Shapes: weight ``[num_embeddings, embedding_dim]``; indices ``[bags, n]``, or ``[n]`` with the
    offsets of the bags; result ``[bags, embedding_dim]``.

    Args:
        num_embeddings: The number of rows.
        embedding_dim: The number of columns.
        max_norm: As in :class:`Embedding`.
        norm_type: The norm of ``max_norm``.
        scale_grad_by_freq: As in :class:`Embedding`.
        mode: ``"sum"``, ``"mean"`` or ``"max"``; an empty bag gives zeros.
        include_last_offset: Whether the last offset is the end of the last bag.
        padding_idx: A row that is ignored.
        dtype: The dtype of the table.

    Raises:
        InvalidArgumentError: A size is negative, or ``padding_idx`` is not a row.

    Example:
        >>> import girih as gr
        >>> bag = gr.nn.EmbeddingBag.from_pretrained(gr.asarray([[1.0], [2.0], [4.0]]), mode="sum")
        >>> bag(gr.asarray([0, 1, 2, 2]), gr.asarray([0, 3])).tolist()
        [[7.0], [4.0]]
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: Literal["sum", "mean", "max"] = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        dtype: DType | None = None,
    ) -> None:
        self._setup(num_embeddings, embedding_dim, padding_idx, dtype)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode: Literal["sum", "mean", "max"] = mode
        self.include_last_offset = include_last_offset

    def forward(
        self,
        indices: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Looks up the rows and reduces the bags."""
        return _girih.embedding_bag(
            indices,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

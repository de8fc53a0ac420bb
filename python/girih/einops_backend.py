"""The backend of einops: ``einops.rearrange`` and its kin on tensors record ops.

einops knows libraries by the subclasses of its backend class. It is imported when einops is: see
``girih.later``.
"""

from __future__ import annotations

from typing import Any

from einops._backends import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    AbstractBackend,
)

from . import _girih

__all__ = ["GirihBackend"]


class GirihBackend(AbstractBackend):  # type: ignore[misc]
    """What einops asks of a library."""

    framework_name = "girih"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Whether a value is a tensor of this package."""
        return isinstance(tensor, _girih.Tensor)

    def from_numpy(self, x: Any) -> Any:
        """An array as a tensor."""
        return _girih.asarray(x)

    def to_numpy(self, x: Any) -> Any:
        """A tensor as an array."""
        return x.numpy()

    def arange(self, start: int, stop: int) -> Any:
        """Consecutive integers."""
        return _girih.arange(start, stop)

    def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
        """Tensors along a new first axis."""
        return _girih.stack(tensors)

    def add_axis(self, x: Any, new_position: int) -> Any:
        """The tensor with an axis of size one."""
        return _girih.expand_dims(x, new_position)

    def tile(self, x: Any, repeats: Any) -> Any:
        """The tensor repeated along axes."""
        return _girih.tile(x, tuple(repeats))

    def concat(self, tensors: list[Any], axis: int) -> Any:
        """Tensors joined along an axis."""
        return _girih.concat(tensors, axis)

    def is_float_type(self, x: Any) -> bool:
        """Whether the dtype is a floating-point one."""
        return x.dtype.name in ("float16", "bfloat16", "float32", "float64")

    def einsum(self, pattern: str, *x: Any) -> Any:
        """A sum of products."""
        return _girih.einsum(pattern, *x)

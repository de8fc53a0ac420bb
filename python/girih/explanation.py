"""What happens to a graph between recording and running: :func:`explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _girih

if TYPE_CHECKING:
    from .tree import PyTree

__all__ = ["Explanation", "explain"]


class Explanation:
    """What evaluating some tensors would do. ``print`` shows it as text.

    The same as data is :meth:`to_dict`, whose entries are attributes as well. Nodes are named as in
    the text of the graphs, ``%3``; kernels by their position.
    """

    __slots__ = ("_data", "_json", "_text")

    def __init__(self, text: str, json: str) -> None:
        self._text = text
        self._json = json
        self._data: dict[str, Any] | None = None

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        kernels, refusals = len(self.kernels), len(self.refusals)
        return f"Explanation(kernels={kernels}, refusals={refusals}, cache={self.cache['state']!r})"

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return self._json

    def to_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, strings and numbers."""
        if self._data is None:
            import json

            self._data = json.loads(self._json)
        return dict(self._data or {})

    def __getattr__(self, name: str) -> Any:
        data = {} if name.startswith("_") else self.to_dict()
        if name not in data:
            raise AttributeError(
                f"an Explanation has no {name!r}; it has {', '.join(sorted(data))}"
            )
        return data[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.to_dict()})


def explain(*outputs: PyTree, asm: bool = False) -> Explanation:
    """What evaluating tensors, or pytrees of tensors, would do; runs and caches nothing.

    Args:
        outputs: What to explain.
        asm: Also show the machine code generated for each kernel: in the text, and function by
            function as ``assembly`` of each of ``kernels``.

    Returns:
        An explanation with ``graph`` as recorded and the ``lines`` its nodes come from; ``stages``,
        the graph after each pass, and ``optimized``, the last; ``kernels`` with the ops each
        computes, its lines and its ``traffic`` (bytes and FLOPs); ``refusals``, what was not fused
        and why; ``operations``; ``memory``, where values live; and ``cache``: whether the program
        is compiled already, and if not which fields make it another than those that are.

    Example:
        >>> import girih as gr
        >>> x = gr.ones([3]).eval()
        >>> e = gr.explain(gr.relu(x * 2 + 1))
        >>> [kernel["name"] for kernel in e.kernels]
        ['fused_fma_relu']
        >>> e.traffic
        {'bytes_read': 12, 'bytes_written': 12, 'flops': 9}
    """
    from .lazy import _some_tensors

    return Explanation(*_girih.explain_tensors(_some_tensors(outputs, "explain"), asm))

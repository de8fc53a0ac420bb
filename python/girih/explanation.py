""":func:`explain`: how a recorded graph is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _girih
from .checks import explain_public
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from .tree import PyTree

__all__ = ["Explanation", "explain"]


class Explanation:
    """Explains what evaluating some tensors would do. ``print`` shows it as text.

    :meth:`to_dict` returns the same information as data, whose entries are also attributes. Nodes
    have the same names as in the text of the graphs, ``%3``; kernels are numbered by position.
    """

    __slots__ = ("_c", "_data", "_json", "_text")

    def __init__(self, text: str, json: str, c: str | None) -> None:
        self._text = text
        self._json = json
        self._c = c
        self._data: dict[str, Any] | None = None

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        kernels, refusals = len(self.kernels), len(self.refusals)
        return f"Explanation(kernels={kernels}, refusals={refusals}, cache={self.cache['state']!r})"

    def _repr_html_(self) -> str:
        """The whole text, which a notebook shows."""
        from html import escape

        return f"<pre>{escape(self._text)}</pre>"

    def to_json(self) -> str:
        """The explanation as one JSON object."""
        return self._json

    def to_c(self) -> str:
        """The kernels as one C11 file, with a function for each kernel and a function ``program``
        that calls them in order. Library routines and functions of custom ops are ``extern``.

        Raises: InvalidArgumentError for tensors of a device whose kernels are not written as C.
        """
        if self._c is None:
            raise InvalidArgumentError(
                "to_c: this device has kernels of its own, which are not written as C; explain "
                'the same function with tensors on "cpu"'
            )
        return self._c

    def to_dict(self) -> dict[str, Any]:
        """The explanation as dicts, lists, strings and numbers."""
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
    """Explains what evaluating tensors, or pytrees of tensors, would do; runs and caches nothing.

    Args:
        outputs: The tensors whose evaluation to explain.
        asm: Also show the machine code generated for each kernel: in the text, and function by
            function as ``assembly`` of each of ``kernels``.

    Returns:
        An explanation with ``graph``, the recorded graph, and ``lines``, the source lines of its
        nodes; ``stages``, the graph after each pass, and ``optimized``, the graph after the last
        pass; ``kernels`` with the ops, source lines and ``traffic`` (bytes and FLOPs) of each
        kernel; ``refusals``, the fusions that were declined, with reasons; ``operations``;
        ``memory``, the memory of the values; and ``cache``: whether the program is already
        compiled, and if not, in which fields it differs from the most similar cached program.
        For tensors on a mesh, the lists have the programs of the first device, stage after stage,
        ``programs`` has each by itself, and ``collectives`` what the devices exchange: ``op``,
        ``axes``, ``bytes`` (all that cross between devices), ``tensor``, ``cause`` (the operation
        that needs it) and ``line``.

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

    tensors = _some_tensors(outputs, "explain")
    if any(tensor.sharding is not None for tensor in tensors):
        return _on_mesh(*_girih.explain_on_mesh(tensors, asm))
    return Explanation(*_girih.explain_tensors(tensors, asm))


def _on_mesh(programs: list[tuple[str, str]], collectives: list[dict[str, Any]]) -> Explanation:
    """The explanation of the programs of one device of a mesh, stage by stage."""
    import json

    data: dict[str, Any] = {"collectives": collectives}
    lines = []
    for number, (text, explained) in enumerate(programs):
        lines.append(f"stage {number} of {len(programs)}, on the first device\n{text.rstrip()}\n")
        for name, value in json.loads(explained).items():
            if isinstance(value, list):
                data.setdefault(name, []).extend(value)
            else:
                data[name] = value if number == 0 else data[name]
    data["programs"] = [json.loads(explained) for _, explained in programs]
    lines.append("collectives")
    for one in collectives:
        line = "" if one["line"] is None else f", {one['line']}"
        lines.append(
            f"  {one['op']} of {one['tensor']} from {one['from']} to {one['to']}: "
            f"{one['bytes']} bytes, for {one['cause']}{line}"
        )
    return Explanation("\n".join(lines), json.dumps(data), None)


explain_public(globals())

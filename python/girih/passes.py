"""Passes of users: functions from program to program that evaluations run before all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from . import _girih
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._girih import Program

__all__ = ["GraphPass", "graph_pass"]


class GraphPass(_girih.GraphPass):
    """A pass, as :func:`graph_pass` makes it; calling it calls the function.

    Attributes:
        name: Its name in errors and explanations.
        function: The function it is made of.
    """

    function: Callable[[Program], Program | None]

    def __new__(cls, function: Callable[[Program], Program | None], name: str) -> GraphPass:
        """A pass of that name made of a function."""
        made = super().__new__(cls, function, name)
        assert isinstance(made, GraphPass)
        made.function = function
        return made

    def __call__(self, program: Program) -> Program | None:
        """The function's program of a program."""
        return self.function(program)

    def __repr__(self) -> str:
        return f"<GraphPass {self.name}>"


@overload
def graph_pass(fun: Callable[[Program], Program | None], /) -> GraphPass: ...


@overload
def graph_pass(
    fun: None = None, /, *, name: str | None = None
) -> Callable[[Callable[[Program], Program | None]], GraphPass]: ...


def graph_pass(fun: Any = None, /, *, name: str | None = None) -> Any:
    """Makes a pass of a function from program to program; a decorator.

    The function is given the whole program of an evaluation in one call: all nodes that its outputs
    need, as they were recorded, before any other pass. It gives an equal program, most simply by
    ``program.rewrite(rule)``, or None to leave it as it is. What it may look at: ``program.nodes``
    with their ``op``, ``attributes``, ``inputs``, ``users`` and ``hints``, ``program.inputs`` and
    ``program.outputs``. The pass runs where it is named in :func:`with_passes` or in
    :class:`ExecutorConfig`.

    It is asked once per program, whose result is kept in memory, and not on disk; so for equal
    programs it has to give equal ones. It must not evaluate tensors: an evaluation waits for it.
    Whatever it gives is verified. An error in it, an ill-formed graph, and a program whose inputs
    or outputs have other shapes or dtypes fail the evaluation with the name of the pass.

    Args:
        fun: The function.
        name: Its name in errors and explanations; by default the function's.

    Returns:
        The pass; a decorator, if only a name is given.

    Raises:
        InvalidArgumentError: ``fun`` is no function.

    Example:
        >>> import girih as gr
        >>> @gr.graph_pass
        ... def tanh_instead(program):
        ...     def rule(node, *operands):
        ...         if node.op == "sigmoid":
        ...             return (gr.tanh(operands[0] / 2) + 1) / 2
        ...     return program.rewrite(rule)
        >>> with gr.with_passes(tanh_instead):
        ...     gr.sigmoid(gr.asarray([0.0, 20.0])).tolist()
        [0.5, 1.0]
    """
    if fun is None:
        return lambda function: _named(function, name)
    return _named(fun, name)


def _named(fun: Any, name: str | None) -> GraphPass:
    if not callable(fun):
        raise InvalidArgumentError(f"graph_pass: expected a function, got {type(fun).__name__}")
    own: str = getattr(fun, "__name__", type(fun).__name__)
    return GraphPass(fun, own if name is None else name)

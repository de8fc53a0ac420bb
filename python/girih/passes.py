"""User-defined passes: functions from program to program that run before all other passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from . import _girih
from .checks import explain_public
from .errors import InvalidArgumentError
from .names import name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._girih import Program

__all__ = ["GraphPass", "graph_pass"]


class GraphPass(_girih.GraphPass):
    """A pass created by :func:`graph_pass`; calling it calls the function.

    Attributes:
        name: The name of the pass in errors and explanations.
        function: The wrapped function.
    """

    function: Callable[[Program], Program | None]

    def __new__(cls, function: Callable[[Program], Program | None], name: str) -> GraphPass:
        """Creates a pass with a name from a function."""
        made = super().__new__(cls, function, name)
        assert isinstance(made, GraphPass)
        made.function = function
        return made

    def __call__(self, program: Program) -> Program | None:
        """Applies the function to a program."""
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
    """A decorator that creates a pass from a function from program to program.

    The function receives the whole program of an evaluation in one call: all nodes that its outputs
    need, as they were recorded, before any other pass. It returns an equivalent program, most
    simply by ``program.rewrite(rule)``, or None for no change. It may read ``program.nodes`` with
    their ``op``, ``attributes``, ``inputs``, ``users`` and ``hints``, ``program.inputs`` and
    ``program.outputs``. :func:`with_passes` or :class:`ExecutorConfig` enables the pass.

    It is called once per program. The result is cached in memory, and not on disk, so the function
    must return equal programs for equal programs. It must not evaluate tensors, because an
    evaluation waits for it. The returned program is verified. An exception in the function, an
    ill-formed graph, and a program whose inputs or outputs have other shapes or dtypes raise an
    error of the evaluation that names the pass.

    Args:
        fun: The function.
        name: The name of the pass in errors and explanations; by default the name of the function.

    Returns:
        The pass; a decorator, if only a name is given.

    Raises:
        InvalidArgumentError: ``fun`` is not a function.

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
    own: str = name_of(fun)
    return GraphPass(fun, own if name is None else name)


explain_public(globals())

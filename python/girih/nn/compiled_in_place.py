"""Modules compiled in place: methods that make calls of a module run compiled programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..checks import explain_methods

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from ..compiled import CompiledFunction

__all__ = ["CompiledInPlace"]

#: Attributes of a module with its compile options and its compiled function.
_COMPILE, _COMPILED = "_compile", "_compiled"


@explain_methods
class CompiledInPlace:
    """The mixin of :class:`girih.nn.Module` for compilation in place. Modules define
    ``forward``."""

    forward: Callable[..., Any]

    def compile(self, **options: Any) -> Self:
        """Compiles the module in place: from now on its calls run compiled programs of ``forward``.

        Parameters and their names do not change. :meth:`train` and :meth:`eval` mode have separate
        programs. A direct call of ``forward`` is not compiled. A copy of the module, or a pickled
        module, is compiled too and has its own programs.

        Args:
            options: The options of :func:`girih.compile`, for the arguments of ``forward``.

        Returns:
            The module.

        Raises:
            InvalidArgumentError: An option names an argument that ``forward`` does not have.

        Example:
            >>> import girih as gr
            >>> model = gr.nn.Linear(2, 1).compile(dynamic_dims={0: {0: "batch"}})
            >>> model(gr.ones([3, 2])).shape, model(gr.ones([5, 2])).shape
            ((3, 1), (5, 1))
            >>> model.compiled_forward.num_programs
            1
            >>> model.uncompile().compiled_forward
        """
        before = self.__dict__.get(_COMPILE), self.__dict__.pop(_COMPILED, None)
        self.__dict__[_COMPILE] = dict(options)
        try:
            self._forward_compiled()
        except Exception:
            self.uncompile()
            if before[0] is not None:
                self.__dict__.update({_COMPILE: before[0], _COMPILED: before[1]})
            raise
        return self

    def uncompile(self) -> Self:
        """Undoes :meth:`compile`: calls run ``forward`` again."""
        self.__dict__.pop(_COMPILE, None)
        self.__dict__.pop(_COMPILED, None)
        return self

    @property
    def compiled_forward(self) -> CompiledFunction[..., Any] | None:
        """The compiled function of a module that was compiled in place; ``None`` for other
        modules."""
        return self._forward_compiled() if _COMPILE in self.__dict__ else None

    def _forward_compiled(self) -> CompiledFunction[..., Any]:
        compiled: CompiledFunction[..., Any] | None = self.__dict__.get(_COMPILED)
        if compiled is None:
            from ..compiled import CompiledFunction

            compiled = CompiledFunction(self.forward, **self.__dict__[_COMPILE])
            self.__dict__[_COMPILED] = compiled
        return compiled

    def __getstate__(self) -> dict[str, Any]:
        """The state without programs: a copy compiles its own."""
        return {name: value for name, value in self.__dict__.items() if name != _COMPILED}

"""Modules compiled in place: the methods that have a module's calls run programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from ..compiled import CompiledFunction

__all__ = ["CompiledInPlace"]

#: Where a module has the options that it was compiled with, and the function that they make.
_COMPILE, _COMPILED = "_compile", "_compiled"


class CompiledInPlace:
    """What :class:`girih.nn.Module` has to be compiled in place. Modules define ``forward``."""

    forward: Callable[..., Any]

    def compile(self, **options: Any) -> Self:
        """Compiles the module in place: its calls run programs of ``forward`` from now on.

        Everything else stays: parameters and their names, :meth:`train` and :meth:`eval`, which
        have programs of their own, and ``forward``, which is not compiled where it is called by
        name. A copy of the module, or one that was pickled, is compiled too and has its own
        programs.

        Args:
            options: As :func:`girih.compile` takes them, arguments being those of ``forward``.

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
    def compiled_forward(self) -> CompiledFunction | None:
        """What runs the calls of a module that was compiled in place; ``None`` for others."""
        return self._forward_compiled() if _COMPILE in self.__dict__ else None

    def _forward_compiled(self) -> CompiledFunction:
        compiled: CompiledFunction | None = self.__dict__.get(_COMPILED)
        if compiled is None:
            from ..compiled import CompiledFunction

            compiled = CompiledFunction(self.forward, **self.__dict__[_COMPILE])
            self.__dict__[_COMPILED] = compiled
        return compiled

    def __getstate__(self) -> dict[str, Any]:
        """Without programs: a copy makes its own."""
        return {name: value for name, value in self.__dict__.items() if name != _COMPILED}

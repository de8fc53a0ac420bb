"""Hooks of modules: functions that are called before and after ``forward``."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ..checks import explain_methods
from ..errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

__all__ = ["HOOKS", "HookHandle", "Hooked", "with_hooks"]

#: The attribute of a module with its hooks: those before ``forward``, and those after it.
HOOKS = "_hooks"
#: The numbers of hooks.
_numbers = itertools.count(1)
#: The number of hooks added and removed; compiled functions compare it.
_changes = 0
#: A hook, and whether it takes the keyword arguments.
_Hooks = dict[int, tuple["Callable[..., Any]", bool]]


@explain_methods
class HookHandle:
    """The handle of a hook, by which it can be removed; as a context manager, at the end of a
    block."""

    __slots__ = ("_hooks", "_number")

    def __init__(self, hooks: _Hooks, number: int) -> None:
        self._hooks, self._number = hooks, number

    def remove(self) -> None:
        """Removes the hook, if it is still there."""
        if self._hooks.pop(self._number, None) is not None:
            _changed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _changed() -> None:
    global _changes
    _changes += 1


@explain_methods
class Hooked:
    """The mixin of :class:`girih.nn.Module` for hooks."""

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Adds a function that is called after ``forward``, to look at its result or replace it.

        Args:
            hook: ``hook(module, args, output)``; a result other than ``None`` replaces the output.
            prepend: Whether the hook is called before the other hooks.
            with_kwargs: Whether the hook takes the keyword arguments too, ``hook(module, args,
                kwargs, output)``.

        Returns:
            The handle that removes the hook.

        Raises:
            DTypeError: The hook is no function.

        Example:
            >>> import girih as gr
            >>> model, shapes = gr.nn.Linear(2, 3), []
            >>> with model.register_forward_hook(lambda m, args, out: shapes.append(out.shape)):
            ...     y = model(gr.ones([4, 2]))
            >>> shapes
            [(4, 3)]
        """
        return _added(self, 1, hook, prepend, with_kwargs)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Adds a function that is called before ``forward``, to look at its arguments or replace
        them.

        Args:
            hook: ``hook(module, args)``; a result other than ``None`` replaces the arguments.
            prepend: Whether the hook is called before the other hooks.
            with_kwargs: Whether the hook takes the keyword arguments too, ``hook(module, args,
                kwargs)``; its result is then ``(args, kwargs)``.

        Returns:
            The handle that removes the hook.

        Raises:
            DTypeError: The hook is no function.

        Example:
            >>> import girih as gr
            >>> model = gr.nn.Identity()
            >>> handle = model.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
            >>> model(gr.ones([1])).tolist()
            [2.0]
            >>> handle.remove()
            >>> model(gr.ones([1])).tolist()
            [1.0]
        """
        return _added(self, 0, hook, prepend, with_kwargs)


def _added(module: Any, at: int, hook: Any, prepend: bool, with_kwargs: bool) -> HookHandle:
    if not callable(hook):
        raise DTypeError(
            f"{type(module).__name__}: a hook is a function, got a {type(hook).__name__}"
        )
    _changed()
    both: tuple[_Hooks, _Hooks] = module.__dict__.setdefault(HOOKS, ({}, {}))
    number = next(_numbers)
    hooks = both[at]
    others = dict(hooks)
    hooks[number] = (hook, with_kwargs)
    if prepend:
        for key, other in others.items():
            del hooks[key]
            hooks[key] = other
    return HookHandle(hooks, number)


def with_hooks(module: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
    """The computation of a module with its hooks."""
    before, after = module.__dict__[HOOKS]
    if not before and not after:
        return forward

    def hooked(*args: Any, **kwargs: Any) -> Any:
        for hook, with_kwargs in list(before.values()):
            new = hook(module, args, kwargs) if with_kwargs else hook(module, args)
            if new is not None and with_kwargs:
                args, kwargs = new
            elif new is not None:
                args = new if isinstance(new, tuple) else (new,)
        result = forward(*args, **kwargs)
        for hook, with_kwargs in list(after.values()):
            extra = (kwargs,) if with_kwargs else ()
            new = hook(module, args, *extra, result)
            result = result if new is None else new
        return result

    return hooked

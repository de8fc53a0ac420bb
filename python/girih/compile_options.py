"""The options of ``compile``: dynamic axes, tiles, and the arguments that an option names."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .checks import explain_public, items
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    #: Axis and name of each dynamic axis of an argument.
    Axes: TypeAlias = Mapping[int, "str | Dim"]
    Dynamic: TypeAlias = list[tuple[int, str, "tuple[int, int | None] | None", "int | None"]]
    #: The size of a tile along each tiled axis of an argument.
    Tiles: TypeAlias = Mapping[int, int]

__all__ = ["Dim"]


class Dim:
    """A dynamic dimension with a range, for ``dynamic_dims``.

    Args:
        name: Letters, digits and underscores. Axes with the same name have the same size.
        min: The smallest allowed size.
        max: The largest allowed size; None for no limit.
    """

    __slots__ = ("max", "min", "name")

    def __init__(self, name: str, min: int = 1, max: int | None = None) -> None:
        self.name = name
        self.min = min
        self.max = max

    def __repr__(self) -> str:
        return f"Dim({self.name!r}, min={self.min}, max={self.max})"


def is_module(fun: Any) -> bool:
    """Whether a function is a module."""
    from .nn.module import Module

    return isinstance(fun, Module)


def _signature(fun: Any) -> inspect.Signature:
    """The signature of a function; for a module, the signature of its ``forward``."""
    import inspect

    try:
        return inspect.signature(fun.forward if is_module(fun) else fun)
    except LookupError:  # A callable dict may raise KeyError for attributes that it lacks.
        return inspect.signature(functools.partial(type(fun).__call__, fun))


def parameter_names(fun: Any) -> list[str]:
    """The names of the positional parameters of a function."""
    import inspect

    try:
        parameters = _signature(fun).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in positional]


def _number(axis: object, argument: int | str) -> int:
    """The number of an axis of an argument."""
    try:
        return operator.index(axis)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgumentError(
            f"compile: the axes of argument {argument!r} are numbers, got {axis!r}"
        ) from None


def dynamic_axes(
    fun: Callable[..., Any], name: str, dynamic_dims: Mapping[int | str, Axes] | None
) -> dict[int | str, Dynamic]:
    """The dynamic axes by position and by name of the argument."""
    if dynamic_dims is None:
        return {}
    if not isinstance(dynamic_dims, Mapping):
        raise InvalidArgumentError(
            "compile: dynamic_dims is a dict from arguments to their dynamic axes, got a "
            f"{type(dynamic_dims).__name__}"
        )
    try:
        parameters = list(_signature(fun).parameters)
    except (TypeError, ValueError):
        parameters = []
    out: dict[int | str, Dynamic] = {}
    for argument, axes in dynamic_dims.items():
        if isinstance(argument, int) and argument < 0:
            argument += len(parameters)
        if isinstance(argument, str) and parameters and argument not in parameters:
            raise InvalidArgumentError(
                f"compile: {name} has no argument {argument!r}; it has {', '.join(parameters)}"
            )
        if not isinstance(axes, Mapping):
            raise InvalidArgumentError(
                f"compile: dynamic_dims is {{argument: {{axis: name}}}}, as in "
                f"{{0: {{0: 'batch'}}}}; got {axes!r} for argument {argument!r}"
            )
        dims: Dynamic = []
        for axis, dim in axes.items():
            if isinstance(dim, Dim):
                dims.append((_number(axis, argument), dim.name, (dim.min, dim.max), None))
            elif isinstance(dim, str):
                dims.append((_number(axis, argument), dim, None, None))
            else:
                raise InvalidArgumentError(
                    f"compile: axis {axis} of argument {argument!r} needs a name or a girih.Dim, "
                    f"got {dim!r}"
                )
        out[argument] = dims
        if isinstance(argument, int) and argument < len(parameters):
            out[parameters[argument]] = dims
        elif argument in parameters:
            out[parameters.index(str(argument))] = dims
    return out


def add_tiles(
    fun: Callable[..., Any],
    name: str,
    tile: Mapping[int | str, Tiles],
    dims: dict[int | str, Dynamic],
) -> None:
    """Adds the sizes of tiles to the dynamic axes. A tiled axis without a name gets one."""
    if not isinstance(tile, Mapping):
        raise InvalidArgumentError(
            "compile: tile is a dict from arguments to the sizes of tiles along their axes, as in "
            f"{{0: {{0: 1024}}}}; got a {type(tile).__name__}"
        )
    for argument, sizes in tile.items():
        if not isinstance(sizes, Mapping):
            raise InvalidArgumentError(
                f"compile: tile is {{argument: {{axis: size}}}}, as in {{0: {{0: 1024}}}}; got "
                f"{sizes!r} for argument {argument!r}"
            )
        for axis, size in sizes.items():
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise InvalidArgumentError(
                    f"compile: the tile along axis {axis} of argument {argument!r} is a number of "
                    f"elements, at least 1; got {size!r}"
                )
        known = {axis: (axis, label, limits) for axis, label, limits, _ in dims.get(argument, [])}
        for axis in sizes:
            number = _number(axis, argument)
            label = f"tile_{argument}_{number}".replace("-", "last")
            known.setdefault(number, (number, label, None))
        checked = dynamic_axes(fun, name, {argument: {}})
        tiled = [(*dim, sizes.get(dim[0])) for dim in known.values()]
        dims.update(dict.fromkeys(checked, tiled))


def chosen_arguments(
    fun: Callable[..., Any], name: str, chosen: int | str | Sequence[int | str], option: str
) -> set[int | str]:
    """The arguments that an option names: by position, and by name if an argument has both."""
    if isinstance(chosen, (int, str)):
        chosen = [chosen]
    try:
        parameters = list(_signature(fun).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters]
    open_ended = not parameters or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    out: set[int | str] = set()
    for argument in items(chosen):
        if not isinstance(argument, (int, str)):
            raise InvalidArgumentError(
                f"compile: {option} has positions and names of arguments, got a "
                f"{type(argument).__name__}"
            )
        at = names.index(argument) if isinstance(argument, str) and argument in names else argument
        if isinstance(at, int) and -len(names) <= at < len(names):
            at %= len(names)
            out |= {at, names[at]}
        elif open_ended and (isinstance(at, str) or at >= 0):
            out.add(at)
        else:
            raise InvalidArgumentError(
                f"compile: {option} names argument {argument!r}, which {name} does not have; it "
                f"has {', '.join(names)}"
            )
    return out


explain_public(globals())

"""``compile``: functions traced once and run as programs.

The function is called with tensors that have no value; what it does to them is recorded,
compiled, and run from then on without calling it. Axes declared dynamic have symbolic sizes
meanwhile, so that one program serves many.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _girih, tree
from ._girih import Tensor
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from ._girih import Program, TracedFunction

    #: Axis and name of each dynamic axis of an argument.
    _Axes: TypeAlias = Mapping[int, "str | Dim"]
    _Dynamic: TypeAlias = list[tuple[int, str, "tuple[int, int | None] | None"]]

__all__ = ["CompiledFunction", "Dim", "compile"]


class Dim:
    """A dynamic dimension with a range, for ``dynamic_dims``.

    Args:
        name: Letters, digits and underscores. Axes of one name have one size.
        min: The smallest size it may have.
        max: The largest size it may have; any for None.
    """

    __slots__ = ("max", "min", "name")

    def __init__(self, name: str, min: int = 1, max: int | None = None) -> None:
        self.name = name
        self.min = min
        self.max = max

    def __repr__(self) -> str:
        return f"Dim({self.name!r}, min={self.min}, max={self.max})"


class _Place:
    """Where something that the function refers to is held. Calls look there for tensors."""

    __slots__ = ("container", "key", "path")

    def __init__(self, container: Any, key: Any, path: str) -> None:
        self.container = container
        self.key = key
        self.path = path

    def pair(self) -> tuple[Any, Any]:
        """Container and key; None is the key of a cell."""
        if self.key is None and not isinstance(self.container, types.CellType):
            raise _NoPatternError
        return self.container, self.key

    def read(self) -> Any:
        if isinstance(self.container, types.CellType):
            return self.container.cell_contents
        return self.container[self.key]

    def write(self, value: Any) -> None:
        if isinstance(self.container, types.CellType):
            self.container.cell_contents = value
        else:
            self.container[self.key] = value


_OPAQUE: tuple[Any, ...] = (
    type, types.ModuleType, types.BuiltinFunctionType, str, bytes, int, float, complex,
)  # fmt: skip


def _items(value: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """What a value holds: container, key and path of each."""
    if isinstance(value, dict):
        yield from ((value, key, f"{path}[{key!r}]") for key in value)
    elif isinstance(value, (list, tuple)):
        yield from ((value, i, f"{path}[{i}]") for i in range(len(value)))
    elif isinstance(value, functools.partial):
        held = {"func": value.func, "args": value.args, "keywords": value.keywords}
        yield from ((held, key, f"{path}.{key}") for key in held)
    elif isinstance(value, types.MethodType):
        held = {"self": value.__self__, "func": value.__func__}
        yield from ((held, key, path) for key in held)
    elif isinstance(value, types.FunctionType):
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=True):
            yield cell, None, name
        # What this package's functions use of their modules is no user's state.
        if (value.__module__ or "").split(".")[0] == __package__:
            return
        used = {name for name in value.__code__.co_names if name in value.__globals__}
        yield from ((value.__globals__, name, name) for name in sorted(used))
        for code in value.__code__.co_consts:
            if isinstance(code, types.CodeType):
                inner = {name for name in code.co_names if name in value.__globals__} - used
                yield from ((value.__globals__, name, name) for name in sorted(inner))
        yield from _items(value.__defaults__ or (), f"{path}.defaults")
        yield from _items(value.__kwdefaults__ or {}, f"{path}.defaults")
    elif not isinstance(value, _OPAQUE):
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            yield from ((attributes, name, f"{path}.{name}") for name in attributes)


def _places(root: Any, name: str) -> list[_Place]:
    """Everything that a function refers to, by where it is held."""
    found: list[_Place] = []
    seen: set[int] = set()
    pending: list[tuple[Any, str]] = [(root, name)]
    while pending:
        value, path = pending.pop()
        if id(value) in seen or isinstance(value, Tensor):
            continue
        seen.add(id(value))
        for container, key, inner in _items(value, path):
            place = _Place(container, key, inner)
            try:
                held = place.read()
            except (ValueError, LookupError):
                continue  # An empty cell.
            found.append(place)
            pending.append((held, inner))
    return found


def _holds_tensors(value: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in tree.leaves(value))


class _Program:
    """A traced function with what it takes and gives beside tensors."""

    __slots__ = ("changed", "names", "outside", "static", "traced", "treedef", "where")

    def __init__(
        self,
        traced: TracedFunction,
        outside: list[_Place],
        changed: list[_Place],
        leaves: list[Any],
        treedef: tree.TreeDef,
    ) -> None:
        self.traced = traced
        self.outside = outside
        self.changed = changed
        self.treedef = treedef
        self.where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self.static = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.names: list[str] = []

    def export(self, function: str) -> Program:
        """The program with the tensors it refers to, under their names in modules."""
        from .nn.module import parameters_alive

        if self.changed:
            paths = ", ".join(place.path for place in self.changed)
            raise InvalidArgumentError(
                f"{function} puts tensors into {paths} when it is called, which a saved program "
                "cannot; return them, or save a function that does not (model.eval() for running "
                "statistics)"
            )
        if len(self.where) != len(self.static):
            others = [leaf for i, leaf in enumerate(self.static) if i not in self.where]
            raise InvalidArgumentError(
                f"{function} returns {others[0]!r} beside tensors; a saved program gives tensors"
            )
        shape = tree.unflatten(self.treedef, list(range(len(self.static))))
        names = {id(tensor): name for name, tensor in parameters_alive()}
        outside = []
        for place in self.outside:
            tensor = place.read()
            name = names.get(id(tensor))
            outside.append((name or place.path, tensor, name is not None))
        return self.traced.export(outside, self.names, output_names(shape))

    def pattern(self) -> Any:
        """What the result is built from."""
        tensors = set(self.where)
        leaves = ((i in tensors, leaf) for i, leaf in enumerate(self.static))
        return _result_pattern(self.treedef, leaves, itertools.count())

    def __call__(self, tensors: list[Tensor]) -> Any:
        outputs = self.traced.call(tensors, [place.read() for place in self.outside])
        leaves = list(self.static)
        for i, tensor in zip(self.where, outputs, strict=False):
            leaves[i] = tensor
        for place, tensor in zip(self.changed, outputs[len(self.where) :], strict=True):
            place.write(tensor)
        return tree.unflatten(self.treedef, leaves)


def dotted(path: str) -> str:
    """A pytree path, ``['layer'][0].weight``, as the name of a tensor: ``layer.0.weight``."""
    parts = path.replace("]", "").replace("[", ".").replace("'", "").replace('"', "")
    return parts.strip(".")


def output_names(value: Any) -> list[str]:
    """Names of the leaves of what a program gives: of a dict or module, else none."""
    from .nn.module import Module

    if not isinstance(value, (Mapping, Module)):
        return []
    paths = [path for path, _ in tree.flatten_with_path(value)]
    if isinstance(value, Module):
        # Its trees of parameters and of buffers, which have no names in common.
        paths = [path[path.index(">") + 1 :] for path in paths]
    return [dotted(path) for path in paths]


def _argument_names(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[str]:
    """A name per tensor among the arguments: the parameter's, then its path in a pytree."""
    import inspect

    from .nn.module import Module

    try:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return []
    parameters = [
        (name, value, bound.signature.parameters[name].kind)
        for name, value in bound.arguments.items()
    ]
    given: list[tuple[str, Any]] = []
    for name, value, kind in parameters:
        if kind is inspect.Parameter.VAR_POSITIONAL:
            given += [(f"{name}.{i}", item) for i, item in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            given += value.items()
        else:
            given.append((name, value))
    by_name = dict(given)
    ordered = given[: len(args)] + [(name, by_name[name]) for name in kwargs]
    names = []
    for name, value in ordered:
        for path, leaf in tree.flatten_with_path(value):
            array = hasattr(leaf, "__dlpack__") or hasattr(leaf, "__array_interface__")
            if (isinstance(leaf, Tensor) or array) and not isinstance(value, Module):
                names.append(dotted(name + path))
    return names


class _NoPatternError(Exception):
    """A structure that the compiled call does not know."""


def _pattern(value: Any, module: type, count: Iterator[int]) -> Any:
    """A pytree as `CompiledCall` compares it: tensors by number, all else as it is."""
    cls = type(value)
    if cls is Tensor:
        return next(count)
    if value is None or isinstance(value, module):
        return ("s", value)
    if cls is list or cls is tuple:
        return ("t" if cls is tuple else "l", [_pattern(v, module, count) for v in value])
    if cls is dict:
        keys = tree._sorted_keys(value)
        return ("d", keys, [_pattern(value[key], module, count) for key in keys])
    if tree._kind_of[cls] is not None or hasattr(value, "__dlpack__"):
        raise _NoPatternError
    if hasattr(value, "__array_interface__"):
        raise _NoPatternError
    return ("s", value)


def _result_pattern(
    treedef: tree.TreeDef, leaves: Iterator[tuple[bool, Any]], count: Iterator[int]
) -> Any:
    """What a result is built from: its structure, and its leaves that are no tensors."""
    cls = treedef._type
    if cls is None:
        is_tensor, leaf = next(leaves)
        return next(count) if is_tensor else ("s", leaf)
    children = [_result_pattern(child, leaves, count) for child in treedef._children]
    if cls is type(None):
        return ("s", None)
    if cls is list or cls is tuple:
        return ("t" if cls is tuple else "l", children)
    if cls is dict:
        keys = treedef._data
        by_key = dict(zip(keys.ordered, children, strict=True))
        return ("d", keys.inserted, [by_key[key] for key in keys.inserted])
    raise _NoPatternError


class CompiledFunction(_girih.CompiledCall):
    """What :func:`compile` gives: called like the function.

    Calls in a way in which it was called before do not come here: the base class has noted which
    program serves them.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        dynamic_dims: Mapping[int | str, _Axes] | None = None,
        donate: int | str | Sequence[int | str] = (),
    ) -> None:
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._name = getattr(fun, "__name__", type(fun).__name__)
        self._dims = _checked(fun, self._name, dynamic_dims or {})
        self._donate = _donated(fun, self._name, donate)
        self._programs: dict[Any, list[_Program]] = {}
        self._reasons: list[str] = []

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function's value, by a program made before if one serves the arguments."""
        tensors, dynamic, donated, key, rebuild = self._taken_apart(args, kwargs)
        if any(isinstance(size, _girih.SymbolicDim) for t in tensors for size in t.shape):
            return self._fun(*args, **kwargs)  # Part of another function being compiled.
        programs = self._programs.setdefault(key, [])
        refusals = []
        for program in programs:
            refused = program.traced.refuses(tensors)
            if refused is None:
                return self._served(program, args, kwargs, tensors, donated)
            refusals.append(refused)
        program = self._trace(tensors, dynamic, rebuild)
        if refusals:
            self._reasons.append(refusals[-1])
        programs.append(program)
        return self._served(program, args, kwargs, tensors, donated)

    def _served(
        self,
        program: _Program,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[Tensor],
        donated: list[int],
    ) -> Any:
        """The program's value; later calls of this way go to it directly, if the base class can."""
        from .nn.module import Module

        count = itertools.count()
        try:
            positional = _pattern(args, Module, count)
            # Tensors are numbered in the order of the call.
            values = [_pattern(value, Module, count) for value in kwargs.values()]
            named = ("d", list(kwargs), values) if kwargs else None
            outside = [place.pair() for place in program.outside]
            changed = [place.pair() for place in program.changed]
            result = program.pattern()
        except _NoPatternError:
            return program(tensors)
        way = (positional, named)
        self.remember(way, tensors, donated, outside, program.traced, result, changed)
        value = self.direct(args, kwargs)
        return program(tensors) if value is NotImplemented else value

    @property
    def num_programs(self) -> int:
        """How many times the function has been traced."""
        return sum(len(programs) for programs in self._programs.values())

    @property
    def guards(self) -> list[list[str]]:
        """Per program, what has to hold of the symbolic sizes for it to be used."""
        return [p.traced.guards for programs in self._programs.values() for p in programs]

    @property
    def retraced(self) -> list[str]:
        """Why the last program there was did not serve, for each time that one was made anew."""
        return list(self._reasons)

    @property
    def graphs(self) -> list[str]:
        """The programs as traced, as text."""
        return [p.traced.text for programs in self._programs.values() for p in programs]

    def to_program(self, *args: Any, **kwargs: Any) -> Program:
        """The program that serves these arguments, to be saved: traced, but not run.

        It takes the tensors among the arguments, dynamic axes being symbolic, and holds what the
        function refers to. A dict as the function's value gives its outputs names.

        Args:
            *args: As in a call. Without any, the function has one program, which is meant.
            **kwargs: As in a call.

        Returns:
            The program; :func:`save_graph` writes it.

        Raises:
            InvalidArgumentError: There is no program or more than one, the function's value holds
                something that is no tensor, or the function puts tensors somewhere when called.

        Example:
            >>> import girih as gr
            >>> double = gr.compile(lambda x: x * 2, dynamic_dims={0: {0: "n"}})
            >>> double.to_program(gr.ones([3])).inputs
            [('x', ['n'], 'float32')]
        """
        if args or kwargs:
            tensors, dynamic, _, key, rebuild = self._taken_apart(args, kwargs)
            programs = self._programs.setdefault(key, [])
            serving = [p for p in programs if p.traced.refuses(tensors) is None]
            if not serving:
                serving = [self._trace(tensors, dynamic, rebuild)]
                programs.extend(serving)
            program = serving[0]
            program.names = _argument_names(self._fun, args, kwargs)
        else:
            known = [p for programs in self._programs.values() for p in programs]
            if len(known) != 1:
                raise InvalidArgumentError(
                    f"{self._name} has {len(known)} programs; say for which arguments it is to be "
                    "saved, as in save_graph(file, function, inputs=[...])"
                )
            program = known[0]
        return program.export(self._name)

    def clear(self) -> None:
        """Forgets all programs: the next call traces the function again."""
        self.forget()
        self._programs.clear()
        self._reasons.clear()

    def __repr__(self) -> str:
        return f"<compiled {self._name}, {self.num_programs} programs>"

    def _taken_apart(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Tensor], list[_Dynamic], list[int], Any, Callable[[list[Tensor]], Any]]:
        """Tensors, their dynamic axes, which are donated, what else makes a program another; and
        the way back.
        """
        from .nn.module import Module

        names: list[int | str] = [*range(len(args)), *kwargs]
        tensors: list[Tensor] = []
        dynamic: list[_Dynamic] = []
        donated: list[int] = []
        parts: list[tuple[list[Any], list[int], tree.TreeDef]] = []
        statics: list[Any] = []
        for name, value in zip(names, [*args, *kwargs.values()], strict=True):
            leaves, treedef = tree.flatten(value, lambda node: isinstance(node, Module))
            axes = self._dims.get(name, [])
            where = []
            for i, leaf in enumerate(leaves):
                if not isinstance(leaf, Tensor):
                    if not (hasattr(leaf, "__dlpack__") or hasattr(leaf, "__array_interface__")):
                        statics.append((type(leaf), leaf))
                        continue
                    leaf = _girih.asarray(leaf)
                where.append(i)
                leaves[i] = None
                if name in self._donate:
                    donated.append(len(tensors))
                tensors.append(leaf)
                dynamic.append(axes)
            parts.append((leaves, where, treedef))
            statics.append((name, treedef, tuple(where)))
        key = tuple(statics)
        try:
            hash(key)
        except TypeError as error:
            raise InvalidArgumentError(
                f"compile: what is not a tensor among the arguments of {self._name} must be "
                f"hashable, for a program is made per value: {error}"
            ) from None

        def rebuild(placeholders: list[Tensor]) -> Any:
            rest = iter(placeholders)
            values = []
            for leaves, where, treedef in parts:
                filled = list(leaves)
                for i in where:
                    # A handle of its own: the function may assign to its arguments.
                    filled[i] = +next(rest)
                values.append(tree.unflatten(treedef, filled))
            call = dict(zip(kwargs, values[len(args) :], strict=True))
            return self._fun(*values[: len(args)], **call)

        rebuild.statics = [leaf for leaves, _, _ in parts for leaf in leaves]  # type: ignore[attr-defined]
        return tensors, dynamic, donated, key, rebuild

    def _trace(
        self, tensors: list[Tensor], dynamic: list[_Dynamic], rebuild: Callable[..., Any]
    ) -> _Program:
        places = _places(self._fun, self._name)
        places += _places(rebuild.statics, "argument ")  # type: ignore[attr-defined]
        before = [place.read() for place in places]
        outside = [
            (place, value)
            for place, value in zip(places, before, strict=True)
            if isinstance(value, Tensor)
        ]
        leaves: list[Any] = []
        changed: list[_Place] = []
        treedef: tree.TreeDef | None = None

        def traced(placeholders: list[Tensor]) -> list[Tensor]:
            nonlocal leaves, treedef
            try:
                leaves, treedef = tree.flatten(rebuild(placeholders))
                changed.extend(_changes(places, before, self._name))
                new = [place.read() for place in changed]
            finally:
                for place, value in zip(places, before, strict=True):
                    if isinstance(value, Tensor) and place.read() is not value:
                        place.write(value)
            return [leaf for leaf in leaves if isinstance(leaf, Tensor)] + new

        held = [value for _, value in outside]
        program, used = _girih.trace_function(tensors, dynamic, held, traced)
        assert treedef is not None
        return _Program(program, [outside[i][0] for i in used], changed, leaves, treedef)


def _changes(places: list[_Place], before: list[Any], name: str) -> list[_Place]:
    """Where the function has put other tensors than there were."""
    changed = []
    for place, value in zip(places, before, strict=True):
        new = place.read()
        if new is value:
            continue
        if isinstance(value, Tensor) and isinstance(new, Tensor):
            changed.append(place)
        elif _holds_tensors(new):
            place.write(value)
            raise InvalidArgumentError(
                f"compile: {name} puts tensors into {place.path} while it is traced, where there "
                "was something else before; return them, and put them there where it is called"
            )
    return changed


def _checked(
    fun: Callable[..., Any], name: str, dynamic_dims: Mapping[int | str, _Axes]
) -> dict[int | str, _Dynamic]:
    """The dynamic axes by position and by name of the argument."""
    import inspect

    try:
        parameters = list(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        parameters = []
    out: dict[int | str, _Dynamic] = {}
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
        dims: _Dynamic = []
        for axis, dim in axes.items():
            if isinstance(dim, Dim):
                dims.append((int(axis), dim.name, (dim.min, dim.max)))
            elif isinstance(dim, str):
                dims.append((int(axis), dim, None))
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


def _donated(
    fun: Callable[..., Any], name: str, donate: int | str | Sequence[int | str]
) -> set[int | str]:
    """Donated arguments by position and by name, as far as they have both."""
    import inspect

    if isinstance(donate, (int, str)):
        donate = [donate]
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters]
    open_ended = not parameters or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    out: set[int | str] = set()
    for argument in donate:
        at = names.index(argument) if isinstance(argument, str) and argument in names else argument
        if isinstance(at, int) and -len(names) <= at < len(names):
            at %= len(names)
            out |= {at, names[at]}
        elif isinstance(at, int) and at >= 0 and open_ended:
            out.add(at)
        else:
            raise InvalidArgumentError(
                f"compile: donate names argument {argument!r}, which {name} does not have; it has "
                f"{', '.join(names)}"
            )
    return out


def compile(
    fun: Callable[..., Any] | None = None,
    dynamic_dims: Mapping[int | str, _Axes] | None = None,
    donate: int | str | Sequence[int | str] = (),
) -> Any:
    """A function that is traced once and from then on run as a compiled program.

    The first call traces ``fun``, as :func:`grad` does; later ones run its program and no Python
    of the function. A program serves arguments of the same structure, dtypes, shapes, and values
    of what is no tensor. Axes named in ``dynamic_dims`` may have other sizes: what the function
    does with such a size stays symbolic, and where it decides by one (``if x.shape[0] > 8``,
    ``range(n)``) the program is for the sizes for which the decision is the same, and others are
    traced anew.

    The first call at new sizes lowers the optimised program to kernels for them (``bindings`` in
    :func:`cache_stats`), which takes a part of the time of compiling; it is kept.

    Tensors that the function refers to (parameters of a module it uses, variables of functions
    around it, globals) are arguments of the program: a call takes what is held in the same place
    then. Where the function puts another tensor in such a place (the running statistics of a batch
    norm), so does each call. Numbers it refers to are those of tracing; so pass what varies, such
    as a learning rate, as a tensor. Random numbers are drawn anew at each call.

    Args:
        fun: Of pytrees of tensors and of hashable values, to a pytree. Without it ``compile`` is a
            decorator with options.
        dynamic_dims: Per argument, by position or name, the axes that are dynamic with their names:
            ``{0: {0: "batch"}}``. Axes of one name have one size. A :class:`Dim` in place of a name
            gives a range. Of an argument that is a pytree, all tensors have these axes.
        donate: Arguments, by position or name, whose tensors are not needed after the call, such as
            the old parameters and the optimiser's state of a training step. Results are written
            over them where that is possible, which saves memory and time; using them later is an
            error. Of tensors that somebody else refers to nothing is taken.

    Returns:
        A :class:`CompiledFunction`. Its results are there when a call returns, as it runs the
        program at once; only where an argument depends on one of a function being traced, as under
        :func:`grad`, is the program recorded there instead.

    Raises:
        ShapeError: Axes of one name differ in size, or a size is out of its range.
        AxisError: An argument has no such axis.
        InvalidArgumentError: ``dynamic_dims`` or ``donate`` names no argument, a value is not
            hashable, or a tensor donated before is used.

    Example:
        >>> import girih as gr
        >>> @gr.compile(dynamic_dims={0: {0: "batch"}})
        ... def total(x):
        ...     print("traced for", x.shape)
        ...     return x.sum() / 2
        >>> total(gr.ones([2, 3])).item()
        traced for (batch, 3)
        3.0
        >>> total(gr.ones([5, 3])).item()
        7.5
    """
    if fun is None:
        return functools.partial(compile, dynamic_dims=dynamic_dims, donate=donate)
    return CompiledFunction(fun, dynamic_dims, donate)

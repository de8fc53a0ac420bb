"""``compile``: functions traced once and run as programs.

The function is called with tensors that have no value; what it does to them is recorded,
compiled, and run from then on without calling it. Axes declared dynamic have symbolic sizes
meanwhile, so that one program serves many.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _girih, tree
from ._girih import SymbolicDim, SymbolicFloat, Tensor
from .errors import InvalidArgumentError
from .names import argument_names
from .references import references
from .tracing import Program, trace

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from .exporting import Lowered
    from .references import References
    from .tracing import Pattern

    #: Axis and name of each dynamic axis of an argument.
    _Axes: TypeAlias = Mapping[int, "str | Dim"]
    _Dynamic: TypeAlias = list[tuple[int, str, "tuple[int, int | None] | None"]]

__all__ = ["CompiledFunction", "Dim", "compile"]

#: Programs that are kept per signature; the one made first makes room.
_MOST_PROGRAMS = 64
#: How often something may differ in one place before a warning says so.
_MANY_RETRACES = 8


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
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
    ) -> None:
        # A module's attributes are its own, and may change.
        functools.update_wrapper(self, fun, updated=() if _is_module(fun) else ("__dict__",))
        self._fun = fun
        self._name = getattr(fun, "__name__", type(fun).__name__)
        self._dims = _checked(fun, self._name, dynamic_dims or {})
        self._donate = _arguments(fun, self._name, donate, "donate")
        self._static = _arguments(fun, self._name, static_argnums, "static_argnums")
        self._static |= _arguments(fun, self._name, static_argnames, "static_argnames")
        self._parameters = _parameter_names(fun)
        self._programs: dict[Any, list[Program]] = {}
        self._reasons: list[str] = []
        #: How often something else was found in a place than before.
        self._paths: dict[str, int] = {}

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function's value, by a program made before if one serves the arguments."""
        call = _Call(self, args, kwargs)
        if any(isinstance(size, SymbolicDim) for t in call.tensors for size in t.shape):
            return self._fun(*args, **kwargs)  # Part of another function being compiled.
        if _girih.has_named_axes():
            # Collectives may refer to the member of a batch, which no program takes.
            return self._fun(*args, **kwargs)
        program = self._program(call)
        result = program.pattern()
        if result is not None:
            refs = program.places
            self.remember(
                (call.patterns[: len(args)], call.named()),
                call.tensors,
                call.donated,
                [refs[at].written() for at in program.outside],
                program.traced,
                result,
                [
                    (output, [refs[at].written() for at in places])
                    for output, places in program.changed.items()
                ],
                program.guards,
                [(refs[at].written(), value) for at, value in program.effects],
            )
            value = self.direct(args, kwargs)
            if value is not NotImplemented:
                return value
        return program(call.tensors)

    def _program(self, call: _Call) -> Program:
        """The program that serves the tensors of a call: one made before, or a new one."""
        programs = self._programs.setdefault(call.key(), [])
        tensors = call.tensors
        refusals = []
        for program in programs:
            refused = program.refuses(tensors)
            if refused is None:
                return program
            refusals.append(refused)

        def look() -> References:
            objects = (call.objects(), "argument ")
            return references((self._fun, self._name), objects, name=self._name)

        refs = look() if programs else None
        for program in programs:
            if refs is not None and program.serves_at(refs, tensors):
                return program
        program = trace(call.run, tensors, call.dynamic, look, self._name, call.names())
        if refusals:
            self._retraced(*refusals[-1])
        programs.append(program)
        if len(programs) > _MOST_PROGRAMS:
            del programs[0]
        return program

    def _retraced(self, path: str, reason: str) -> None:
        """Notes why a program was made anew; warns of what makes one with nearly every call."""
        self._reasons.append(reason)
        if not path:
            return
        self._paths[path] = self._paths.get(path, 0) + 1
        if self._paths[path] == _MANY_RETRACES:
            warnings.warn(
                f"compile: {self._name} has been traced {_MANY_RETRACES} times because {path} "
                f"differs from call to call ({reason}); pass it as an argument, or hold it in a "
                "tensor",
                RuntimeWarning,
                stacklevel=4,
            )

    def _shown(self, name: int | str, value: Any) -> list[str]:
        """The leaves of an argument, for messages."""
        if isinstance(name, int):
            name = self._parameters[name] if name < len(self._parameters) else f"{name}"
        if isinstance(value, (Tensor, *_FLOATS)):
            return [f"'{name}'"]
        return [f"'{name}{path}'" for path, _ in tree.flatten_with_path(value, _is_module)]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: the object is the first argument."""
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        """Attributes of a compiled module are the module's."""
        fun = self.__dict__.get("_fun")
        if fun is None or name.startswith("__") or not _is_module(fun):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(fun, name)

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

    def to_program(self, *args: Any, **kwargs: Any) -> _girih.Program:
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
            program = self._traced_for(args, kwargs)
        else:
            known = [p for programs in self._programs.values() for p in programs]
            if len(known) != 1:
                raise InvalidArgumentError(
                    f"{self._name} has {len(known)} programs; say for which arguments it is to be "
                    "saved, as in save_graph(file, function, inputs=[...])"
                )
            program = known[0]
        return program.export(self._name)

    def _traced_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
        """The program that serves these arguments, with their names."""
        program = self._program(_Call(self, args, kwargs))
        program.names = argument_names(self._fun, args, kwargs, self._static)
        return program

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces the function for arguments like these, and neither compiles nor runs it.

        Args:
            *args: As in a call.
            **kwargs: As in a call.

        Returns:
            The :class:`Lowered` function: ``text()`` shows its graph, ``compile()`` compiles it.

        Raises:
            InvalidArgumentError: As of :func:`export`.

        Example:
            >>> import girih as gr
            >>> double = gr.compile(lambda x: x * 2).lower(gr.ones([2])).compile()
            >>> double(gr.asarray([1.0, 2.0])).tolist()
            [2.0, 4.0]
        """
        from .exporting import lower

        return lower(self._traced_for, self._name, args, kwargs)

    def clear(self) -> None:
        """Forgets all programs: the next call traces the function again."""
        self.forget()
        self._programs.clear()
        self._reasons.clear()
        self._paths.clear()

    def __repr__(self) -> str:
        return f"<compiled {self._name}, {self.num_programs} programs>"


class _Call:
    """The arguments of a call, taken apart.

    Attributes:
        tensors: What the program takes of them: tensors, arrays, and floats as scalars.
        dynamic: The dynamic axes of each tensor.
        donated: Positions of the tensors that the caller does not need any more.
        patterns: Each argument as later calls are compared with it.
    """

    __slots__ = ("_args", "_fun", "_kwargs", "donated", "dynamic", "patterns", "tensors")

    def __init__(
        self, fun: CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._fun, self._args, self._kwargs = fun, args, kwargs
        self.tensors: list[Tensor] = []
        self.dynamic: list[_Dynamic] = []
        self.donated: list[int] = []
        self.patterns: list[Pattern] = [
            self._static(name, value) if name in fun._static else self._taken(name, value)
            for name, value in self._arguments()
        ]

    def _arguments(self) -> Iterator[tuple[int | str, Any]]:
        """The arguments with their positions or names."""
        yield from enumerate(self._args)
        yield from self._kwargs.items()

    def _static(self, name: int | str, value: Any) -> Pattern:
        if isinstance(value, Tensor):
            raise InvalidArgumentError(
                f"compile: argument {name!r} of {self._fun._name} is static, and is a tensor; a "
                "program is made per value of a static argument, so pass a number "
                "(for instance by .item()), or do not name it"
            )
        return _A_LEAF, [(None, value, False)]

    def _taken(self, name: int | str, value: Any) -> Pattern:
        leaves, treedef = tree.flatten(value, _is_module)
        return treedef, [self._leaf(name, leaf) for leaf in leaves]

    def _leaf(self, name: int | str, leaf: Any) -> tuple[int | None, Any, bool]:
        is_float = type(leaf) in _FLOATS
        if is_float:
            leaf = _scalar(leaf)
        elif not isinstance(leaf, Tensor):
            if not (hasattr(leaf, "__dlpack__") or hasattr(leaf, "__array_interface__")):
                return None, leaf, False
            leaf = _girih.asarray(leaf)
        at = len(self.tensors)
        if name in self._fun._donate and not is_float:
            self.donated.append(at)
        self.tensors.append(leaf)
        self.dynamic.append([] if is_float else self._fun._dims.get(name, []))
        return at, None, is_float

    def named(self) -> list[tuple[str, Pattern]]:
        """The patterns of the arguments by name."""
        return list(zip(self._kwargs, self.patterns[len(self._args) :], strict=True))

    def objects(self) -> list[Any]:
        """What is no tensor among the leaves."""
        return [leaf for _, leaves in self.patterns for at, leaf, _ in leaves if at is None]

    def key(self) -> Any:
        """What makes a program another beside the tensors."""
        key = tuple(
            (
                name,
                treedef,
                tuple(
                    (type(leaf), leaf) if at is None else is_float for at, leaf, is_float in leaves
                ),
            )
            for (name, _), (treedef, leaves) in zip(self._arguments(), self.patterns, strict=True)
        )
        try:
            hash(key)
        except TypeError as error:
            raise InvalidArgumentError(
                f"compile: what is not a tensor among the arguments of {self._fun._name} must be "
                f"hashable, for a program is made per value: {error}"
            ) from None
        return key

    def names(self) -> list[str]:
        """Of each tensor the expression that leads to it, for messages."""
        named = []
        for (name, value), (_, leaves) in zip(self._arguments(), self.patterns, strict=True):
            if any(at is not None for at, *_ in leaves):
                shown = self._fun._shown(name, value)
                named += [shown[i] for i, (at, *_) in enumerate(leaves) if at is not None]
        return named

    def run(self, placeholders: list[Tensor]) -> Any:
        """The function at the arguments, with these in place of the tensors."""
        rest = iter(placeholders)
        values = []
        for treedef, leaves in self.patterns:
            filled = [
                # A handle of its own: the function may assign to its arguments.
                leaf if at is None else SymbolicFloat(next(rest)) if is_float else +next(rest)
                for at, leaf, is_float in leaves
            ]
            values.append(tree.unflatten(treedef, filled))
        count = len(self._args)
        named = dict(zip(self._kwargs, values[count:], strict=True))
        return self._fun._fun(*values[:count], **named)


#: The structure of a leaf alone.
_A_LEAF = tree.structure(0)

#: What becomes a scalar of the program.
_FLOATS = (float, SymbolicFloat)


def _scalar(value: Any) -> Tensor:
    """A float, or a number of a function being compiled, as a tensor of float64 without axes."""
    if isinstance(value, SymbolicFloat):
        return value.tensor
    return _girih.asarray(value, dtype=_girih.float64)


def _is_module(fun: Any) -> bool:
    from .nn.module import Module

    return isinstance(fun, Module)


def _signature(fun: Any) -> inspect.Signature:
    """What a function takes; of a module, what its ``forward`` takes."""
    import inspect

    return inspect.signature(fun.forward if _is_module(fun) else fun)


def _parameter_names(fun: Any) -> list[str]:
    import inspect

    try:
        parameters = _signature(fun).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in positional]


def _checked(
    fun: Callable[..., Any], name: str, dynamic_dims: Mapping[int | str, _Axes]
) -> dict[int | str, _Dynamic]:
    """The dynamic axes by position and by name of the argument."""
    try:
        parameters = list(_signature(fun).parameters)
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


def _arguments(
    fun: Callable[..., Any], name: str, chosen: int | str | Sequence[int | str], option: str
) -> set[int | str]:
    """Arguments that an option names, by position and by name, as far as they have both."""
    if isinstance(chosen, (int, str)):
        chosen = [chosen]
    try:
        parameters = list(_signature(fun).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters]
    open_ended = not parameters or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    out: set[int | str] = set()
    for argument in chosen:
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


def compile(
    fun: Callable[..., Any] | None = None,
    dynamic_dims: Mapping[int | str, _Axes] | None = None,
    donate: int | str | Sequence[int | str] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
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
    norm), so does each call. Of everything else that it may have read (numbers, strings, functions,
    a module's ``training``) a program is for what was found at tracing: where something else is
    found the function is traced anew. So pass what varies, such as a learning rate, as an argument,
    or hold it in a tensor. A Python float among the arguments is a scalar of the program, which
    serves all its values; integers, bools and strings are part of the program. Random numbers are
    drawn at each call as the function would.

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
        static_argnums: Arguments, by position, that are values by which the function decides, such
            as floats in an ``if``: a program is made per value. They must be hashable.
        static_argnames: The same by name.

    Returns:
        A :class:`CompiledFunction`. Its results are there when a call returns, as it runs the
        program at once; only where an argument depends on one of a function being traced, as under
        :func:`grad`, is the program recorded there instead.

    Raises:
        ShapeError: Axes of one name differ in size, or a size is out of its range.
        AxisError: An argument has no such axis.
        InvalidArgumentError: ``dynamic_dims``, ``donate`` or a static argument names no argument, a
            value is not hashable, a tensor donated before is used, or the function refers to
            something that may change and cannot be watched.
        TracedValueError: The function asks for the value of a tensor.

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
        return functools.partial(
            compile,
            dynamic_dims=dynamic_dims,
            donate=donate,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
        )
    return CompiledFunction(fun, dynamic_dims, donate, static_argnums, static_argnames)

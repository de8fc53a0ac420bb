"""``compile``: functions traced once and run as programs.

The function is called with tensors that have no value. The recorded operations are compiled, and
later calls run the program without calling the function. Axes declared dynamic have symbolic sizes
during tracing, so that one program serves many sizes.
"""

from __future__ import annotations

import contextlib
import functools
import types
import warnings
from typing import TYPE_CHECKING, Any, Generic, overload

from . import _girih, effects, tree
from ._girih import SymbolicDim, SymbolicFloat, Tensor, has_protocol
from .checks import explain_public
from .compile_options import (
    Dim,
    add_tiles,
    chosen_arguments,
    dynamic_axes,
    is_module,
    parameter_names,
)
from .errors import InvalidArgumentError
from .guards import exact
from .names import argument_names, name_of
from .references import references
from .signatures import P, R
from .tracing import Program, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Concatenate

    from .compile_options import Axes, Dynamic, Tiles
    from .exporting import Lowered
    from .references import References
    from .signatures import Q
    from .tracing import Pattern

__all__ = ["CompiledFunction", "Dim", "compile"]

#: Maximum number of programs per signature; the oldest one is evicted first.
_MOST_PROGRAMS = 64
#: How often a guard may fail in one place before a warning.
_MANY_RETRACES = 8


class CompiledFunction(_girih.CompiledCall, Generic[P, R]):
    """The result of :func:`compile`, which is called like the function.

    Calls with a known signature do not reach this class: the base class remembers which program
    serves them.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        dynamic_dims: Mapping[int | str, Axes] | None = None,
        donate: int | str | Sequence[int | str] = (),
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
        tile: Mapping[int | str, Tiles] | None = None,
    ) -> None:
        # The attributes of a module belong to the module, and may change.
        updated = () if is_module(fun) else ("__dict__",)
        # A callable dict may raise KeyError for attributes that it lacks.
        with contextlib.suppress(LookupError):
            functools.update_wrapper(self, fun, updated=updated)
        self._fun = fun
        self._name = name_of(fun)
        self._dims = dynamic_axes(fun, self._name, dynamic_dims)
        add_tiles(fun, self._name, {} if tile is None else tile, self._dims)
        self._donate = chosen_arguments(fun, self._name, donate, "donate")
        self._static = chosen_arguments(fun, self._name, static_argnums, "static_argnums")
        self._static |= chosen_arguments(fun, self._name, static_argnames, "static_argnames")
        self._parameters = parameter_names(fun)
        self._programs: dict[Any, list[Program]] = {}
        self._reasons: list[str] = []
        #: How often the guard of each place has failed.
        self._paths: dict[str, int] = {}

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function's value, from an existing program if one serves the arguments."""
        call = _Call(self, args, kwargs)
        if any(isinstance(size, SymbolicDim) for t in call.tensors for size in t.shape):
            return self._fun(*args, **kwargs)  # Part of an enclosing compiled function.
        if _girih.has_named_axes():
            # Collectives may refer to the member of a batch, which cannot be an argument of a
            # program.
            return self._fun(*args, **kwargs)
        program = self._program(call)
        if program.is_ordered and effects.is_tracing():
            # Its calls wait for those that the function being traced has recorded before.
            return self._fun(*args, **kwargs)
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
        """The program that serves the tensors of a call: an existing one or a new one."""
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
        """Records why the function was traced again; warns of a cause that recurs with nearly every
        call."""
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
        return [f"'{name}{path}'" for path, _ in tree.flatten_with_path(value, is_module)]

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
            """The function's value, from a program if one serves the arguments."""
            ...

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> CompiledFunction[P, R]: ...
    @overload
    def __get__(
        self: CompiledFunction[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Binds the function as a method: the object is the first argument."""
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        """Attributes of a compiled module are those of the module."""
        fun = self.__dict__.get("_fun")
        if fun is None or name.startswith("__") or not is_module(fun):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(fun, name)

    def path(self, *args: Any, **kwargs: Any) -> str:
        """How a call with these arguments runs. Nothing is traced, compiled or run.

        Args:
            *args: As in a call.
            **kwargs: As in a call.

        Returns:
            ``"exact"`` for a program that is compiled for these sizes, ``"symbolic"`` for one whose
            kernels are lowered for them, ``"tiled: 16 tiles"`` for the program of a tile, and
            ``"compile"`` if the function is traced, or the program compiled.

        Example:
            >>> import girih as gr
            >>> double = gr.compile(lambda x: x * 2, tile={0: {0: 1000}})
            >>> y = double(gr.ones([2500]))
            >>> double.path(gr.ones([9999]))
            'tiled: 10 tiles'
        """
        call = _Call(self, args, kwargs)
        for program in self._programs.get(call.key(), []):
            if program.refuses(call.tensors) is None:
                return program.traced.path(call.tensors)
        return "compile"

    @property
    def num_programs(self) -> int:
        """How many times the function has been traced."""
        return sum(len(programs) for programs in self._programs.values())

    @property
    def compile_time_ms(self) -> float:
        """Milliseconds of compiling the programs for the sizes of their calls, or of loading them
        from the caches, without tracing and running."""
        programs = (p for programs in self._programs.values() for p in programs)
        return sum(program.traced.compile_time_ms for program in programs)

    @property
    def guards(self) -> list[list[str]]:
        """The guards of each program: the conditions on symbolic sizes under which it is valid."""
        return [p.traced.guards for programs in self._programs.values() for p in programs]

    @property
    def retraced(self) -> list[str]:
        """For each time that the function was traced again, why the previous program was not
        valid."""
        return list(self._reasons)

    @property
    def graphs(self) -> list[str]:
        """The programs as traced, as text."""
        return [p.traced.text for programs in self._programs.values() for p in programs]

    def to_program(self, *args: Any, **kwargs: Any) -> _girih.Program:
        """The program that serves these arguments, for saving. It is traced, but not run.

        Its inputs are the tensors among the arguments, with symbolic dynamic axes, and it contains
        the tensors that the function refers to. If the function returns a dict, its keys name the
        outputs.

        Args:
            *args: As in a call. Without arguments, the function must have exactly one program.
            **kwargs: As in a call.

        Returns:
            The program; :func:`save_graph` writes it.

        Raises:
            InvalidArgumentError: There is no program or more than one, the function's value holds a
                leaf that is not a tensor, or the function stores tensors outside when called.

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
        """Traces the function for arguments like these, without compiling or running it.

        Args:
            *args: As in a call.
            **kwargs: As in a call.

        Returns:
            The :class:`Lowered` function: ``text()`` shows its graph, ``compile()`` compiles it.

        Raises:
            InvalidArgumentError: As for :func:`export`.

        Example:
            >>> import girih as gr
            >>> double = gr.compile(lambda x: x * 2).lower(gr.ones([2])).compile()
            >>> double(gr.asarray([1.0, 2.0])).tolist()
            [2.0, 4.0]
        """
        from .exporting import lower

        return lower(self._traced_for, self._name, args, kwargs)

    def clear(self) -> None:
        """Drops all programs: the next call traces the function again."""
        self.forget()
        self._programs.clear()
        self._reasons.clear()
        self._paths.clear()

    def __repr__(self) -> str:
        return f"<compiled {self._name}, {self.num_programs} programs>"


class _Call:
    """The flattened arguments of a call.

    Attributes:
        tensors: The inputs of the program: tensors, arrays, and floats as scalars.
        dynamic: The dynamic axes of each tensor.
        donated: Positions of the donated tensors.
        patterns: Each argument in the form with which later calls are compared.
    """

    __slots__ = ("_args", "_fun", "_kwargs", "donated", "dynamic", "patterns", "tensors")

    def __init__(
        self, fun: CompiledFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._fun, self._args, self._kwargs = fun, args, kwargs
        self.tensors: list[Tensor] = []
        self.dynamic: list[Dynamic] = []
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
        leaves, treedef = tree.flatten(value, is_module)
        return treedef, [self._leaf(name, leaf) for leaf in leaves]

    def _leaf(self, name: int | str, leaf: Any) -> tuple[int | None, Any, bool]:
        is_float = type(leaf) in _FLOATS
        if is_float:
            leaf = _scalar(leaf)
        elif not isinstance(leaf, Tensor):
            if not (has_protocol(leaf, "__dlpack__") or has_protocol(leaf, "__array_interface__")):
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
        """The leaves that are not tensors."""
        return [leaf for _, leaves in self.patterns for at, leaf, _ in leaves if at is None]

    def key(self) -> Any:
        """The part of the signature that does not come from tensors."""
        try:
            return self._key()
        except TypeError as error:
            raise InvalidArgumentError(
                f"compile: what is not a tensor among the arguments of {self._fun._name} must be "
                f"hashable, for a program is made per value: {error}"
            ) from None

    def _key(self) -> Any:
        hash(tuple(self.objects()))
        key = tuple(
            (
                name,
                treedef,
                tuple(map(exact, treedef.details())),
                tuple(exact(leaf) if at is None else is_float for at, leaf, is_float in leaves),
            )
            for (name, _), (treedef, leaves) in zip(self._arguments(), self.patterns, strict=True)
        )
        hash(key)
        return key

    def names(self) -> list[str]:
        """The expression that leads to each tensor, for messages."""
        named = []
        for (name, value), (_, leaves) in zip(self._arguments(), self.patterns, strict=True):
            if any(at is not None for at, *_ in leaves):
                shown = self._fun._shown(name, value)
                named += [shown[i] for i, (at, *_) in enumerate(leaves) if at is not None]
        return named

    def run(self, placeholders: list[Tensor]) -> Any:
        """Calls the function on the arguments, with placeholders in place of the tensors."""
        rest = iter(placeholders)
        values = []
        for treedef, leaves in self.patterns:
            filled = [
                # The function may assign to its arguments, so it gets its own handles.
                leaf if at is None else SymbolicFloat(next(rest)) if is_float else +next(rest)
                for at, leaf, is_float in leaves
            ]
            values.append(tree.unflatten(treedef, filled))
        count = len(self._args)
        named = dict(zip(self._kwargs, values[count:], strict=True))
        return self._fun._fun(*values[:count], **named)


#: The structure of a single leaf.
_A_LEAF = tree.structure(0)

#: Types that become scalars of the program.
_FLOATS = (float, SymbolicFloat)


def _scalar(value: Any) -> Tensor:
    """A float, or a symbolic float of a function being compiled, as a float64 scalar tensor."""
    if isinstance(value, SymbolicFloat):
        return value.tensor
    return _girih.asarray(value, dtype=_girih.float64)


@overload
def compile(
    fun: Callable[P, R],
    dynamic_dims: Mapping[int | str, Axes] | None = None,
    donate: int | str | Sequence[int | str] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    tile: Mapping[int | str, Tiles] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
) -> CompiledFunction[P, R]: ...
@overload
def compile(
    fun: None = None,
    dynamic_dims: Mapping[int | str, Axes] | None = None,
    donate: int | str | Sequence[int | str] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    tile: Mapping[int | str, Tiles] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
) -> Callable[[Callable[P, R]], CompiledFunction[P, R]]: ...
def compile(
    fun: Callable[..., Any] | None = None,
    dynamic_dims: Mapping[int | str, Axes] | None = None,
    donate: int | str | Sequence[int | str] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    tile: Mapping[int | str, Tiles] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
) -> Any:
    """Returns a function that is traced once and then run as a compiled program.

    The first call traces ``fun``, as :func:`grad` does; later calls run the program without running
    Python code of the function. A program serves arguments with the same structure, dtypes and
    shapes, and the same values of arguments that are not tensors. Axes named in ``dynamic_dims``
    may have other sizes: computations with such a size stay symbolic. If the function makes a
    decision by a size (``if x.shape[0] > 8``, ``range(n)``), the program is valid for the sizes
    with the same decision, and other sizes cause a new trace.

    The first call at new sizes lowers the optimised program to kernels for these sizes
    (``bindings`` in :func:`cache_stats`), which takes a fraction of the time of compiling; the
    result is cached.

    Tensors that the function refers to (parameters of a module it uses, variables of enclosing
    functions, globals) are inputs of the program: each call reads the current tensor of each place.
    If the function stores another tensor in such a place (the running statistics of a batch norm),
    each call does so too. Other objects that the function may have read (numbers, strings,
    functions, the ``training`` flag of a module) are guards: if one of them has changed, the
    function is traced again. So pass varying values, such as a learning rate, as arguments, or hold
    them in tensors. A Python float among the arguments is a scalar of the program, and one program
    serves all its values; integers, bools and strings are part of the program. Each call draws
    random numbers as the function would.

    Args:
        fun: A function from pytrees of tensors and hashable values to a pytree. Without it
            ``compile`` is a decorator with options.
        dynamic_dims: For each argument, by position or name, the dynamic axes with their names:
            ``{0: {0: "batch"}}``. Axes with the same name have the same size. A :class:`Dim` in
            place of a name sets a range. If an argument is a pytree, all its tensors have these
            axes.
        donate: Arguments, by position or name, whose tensors are not used after the call, such as
            the old parameters and the optimiser state of a training step. Results reuse their
            memory where possible, which saves memory and time; using a donated tensor later is an
            error. Memory that another object refers to is not reused.
        static_argnums: Arguments, by position, whose values are fixed in the program, such as
            floats in an ``if``: each value has its own program. They must be hashable.
        static_argnames: As ``static_argnums``, by name.
        tile: For each argument, by position or name, the size of a tile along axes: ``{0: {0:
            1024}}``. Larger tensors run tile by tile, by the program that is compiled for a tile,
            with a smaller last tile. Corresponding axes of all arguments must be named. Axes of
            elementwise ops, of products, and of reductions that are results can be tiled; a
            function that needs a whole axis runs as a whole (:meth:`CompiledFunction.path` says
            which). A sum over a tiled axis adds the sums of tiles, and is rounded in that order. In
            the scope of another device, tensors of the host stream through that device tile by
            tile, so they may be larger than its memory; the results are on the host.
        in_shardings: The shardings that positional arguments get if they have others: a
            :class:`Sharding` for all of them, or a tuple with an entry for each, which is a
            sharding, None, or a pytree of such that is a prefix of the argument.
        out_shardings: The shardings of the results: a sharding, None, or a pytree of such that is a
            prefix of the results.

    Returns:
        A :class:`CompiledFunction`. A call runs the program immediately, so its results are
        computed when the call returns. Only if an argument is a placeholder of another trace, as
        under :func:`grad`, or a tensor that the function uses requires a gradient, does the call
        record the program instead: :func:`grad` and ``backward`` come back through it. The results
        of a function that takes gradients itself require none.

    Raises:
        ShapeError: Axes with the same name differ in size, or a size is out of its range.
        AxisError: An argument has no such axis.
        InvalidArgumentError: ``dynamic_dims``, ``donate``, ``tile`` or a static argument names no
            argument, the size of a tile is less than 1, a value is not hashable, a tensor donated
            before is used, or the function refers to an object that may change and cannot be
            guarded.
        TracedValueError: The function reads the value of a tensor.

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
            tile=tile,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
        )
    if in_shardings is not None or out_shardings is not None:
        from .meshes import constrained_function

        fun = constrained_function(fun, in_shardings, out_shardings)
    return CompiledFunction(fun, dynamic_dims, donate, static_argnums, static_argnames, tile)


explain_public(globals())

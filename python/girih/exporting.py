"""Ahead-of-time compilation: functions are lowered for given arguments, compiled before they are
called, and written to files that other processes load and call without tracing.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from . import _girih
from ._girih import Program, SymbolicFloat, Tensor, has_protocol
from .checks import explain_public
from .compiled import CompiledFunction, _scalar
from .errors import DTypeError, FormatError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tracing import Program as TracedProgram

__all__ = ["Executable", "Lowered", "export", "load_executable"]

#: The hint on the first node of a program with the nesting of arguments and results.
_HINT = "executable"


class _Output:
    """The position of an output of a program."""

    def __init__(self, position: int) -> None:
        self.position = position


def _layout(value: Any, tensors: list[Any], what: str) -> Any:
    """The nesting of a pytree as JSON; appends its tensors and floats to `tensors`."""
    if type(value) in (float, SymbolicFloat):
        value = _scalar(value)
    if isinstance(value, Tensor) or has_protocol(value, "__array_interface__"):
        tensors.append(_girih.asarray(value))
        return len(tensors) - 1
    if isinstance(value, _Output):
        return value.position
    if value is None:
        return None
    if isinstance(value, (bool, int, str)):
        return {"value": value}
    if type(value) in (list, tuple):
        items = [_layout(item, tensors, what) for item in value]
        return {"list" if type(value) is list else "tuple": items}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": {key: _layout(value[key], tensors, what) for key in sorted(value)}}
    raise InvalidArgumentError(
        f"export: {what} hold a {type(value).__name__}, which a file has no form for; use tensors, "
        "numbers, strings and None in lists, tuples and dicts with text for keys. A module is part "
        "of the function: export a function that calls it, or the module itself"
    )


def _filled(layout: Any, tensors: list[Tensor]) -> Any:
    """The pytree of a layout, filled with these tensors."""
    if layout is None:
        return None
    if isinstance(layout, int):
        return tensors[layout]
    ((kind, inner),) = layout.items()
    if kind == "value":
        return inner
    if kind == "dict":
        return {key: _filled(item, tensors) for key, item in inner.items()}
    items = [_filled(item, tensors) for item in inner]
    return items if kind == "list" else tuple(items)


def _shown(layout: Any) -> str:
    """A layout as readable text, with ``*`` for tensors."""
    if layout is None:
        return "None"
    if isinstance(layout, int):
        return "*"
    ((kind, inner),) = layout.items()
    if kind == "value":
        return repr(inner)
    if kind == "dict":
        return "{" + ", ".join(f"{key!r}: {_shown(item)}" for key, item in inner.items()) + "}"
    items = ", ".join(_shown(item) for item in inner)
    if kind == "list":
        return f"[{items}]"
    return f"({items},)" if len(inner) == 1 else f"({items})"


class Executable:
    """A function compiled for arguments of given shapes and structure.

    It is called like the function and runs without tracing Python code. The tensors may differ from
    the tensors at lowering; integers, strings and structure must be the same. Dynamic axes may have
    other sizes. Its results are lazy.
    """

    def __init__(self, program: Program, arguments: Any, value: Any) -> None:
        self._program = program
        self._arguments = arguments
        self._value = value

    @property
    def program(self) -> Program:
        """The program: the graph, and the values of the tensors that the function refers to."""
        return self._program

    def text(self) -> str:
        """The graph as text.

        Returns:
            The text, as :func:`graph_to_text` gives it.
        """
        return self._program.text

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's value at these arguments.

        Raises:
            InvalidArgumentError: The nesting of the arguments differs from the nesting at lowering.
        """
        tensors: list[Any] = []
        found = _layout((args, kwargs), tensors, "the arguments")
        if found != self._arguments:
            raise InvalidArgumentError(
                f"the executable takes {_call(self._arguments)}, got {_call(found)}; * is a tensor "
                "or a float"
            )
        outputs = self._program(*tensors)
        if isinstance(outputs, dict):
            outputs = list(outputs.values())
        elif isinstance(outputs, Tensor):
            outputs = [outputs]
        return _filled(self._value, list(outputs))

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the executable with its values; :func:`load_executable` reads it.

        Args:
            file: A file that ends in ``.pfgb``.

        Raises:
            InvalidArgumentError: The file has another suffix: other formats do not store values.
            OSError: The file cannot be written.
        """
        path = os.fspath(file)
        if not path.endswith(".pfgb"):
            raise InvalidArgumentError(
                f"{path}: executables are saved as .pfgb files, which hold values"
            )
        _girih.write_file(path, self._program.serialize())

    def __repr__(self) -> str:
        ops = self._program.num_ops
        return f"Executable({_call(self._arguments)} -> {_shown(self._value)}, {ops} ops)"


def _call(layout: Any) -> str:
    """The text of the arguments in a call."""
    args, kwargs = layout["tuple"]
    named = [f"{key}={_shown(item)}" for key, item in kwargs["dict"].items()]
    return "(" + ", ".join([_shown(item) for item in args["tuple"]] + named) + ")"


class Lowered:
    """A function that is traced for given arguments and not yet compiled."""

    def __init__(self, executable: Executable, tensors: list[Any]) -> None:
        self._executable = executable
        self._tensors = tensors

    @property
    def program(self) -> Program:
        """The program: the graph, and the values of the tensors that the function refers to."""
        return self._executable.program

    def text(self) -> str:
        """The graph as text.

        Returns:
            The text, as :func:`graph_to_text` gives it.
        """
        return self._executable.text()

    def compile(self) -> Executable:
        """Compiles the program for the sizes of the arguments at lowering.

        This evaluates the arguments if they have no values yet, and runs nothing else: no random
        draws are used up.

        Returns:
            The :class:`Executable`, which can be called or saved.

        Raises:
            EvaluationError: The program cannot be compiled.
        """
        _girih.compile_program(self.program, self._tensors)
        return self._executable

    def __repr__(self) -> str:
        return repr(self._executable).replace("Executable", "Lowered", 1)


def lower(
    trace: Callable[..., TracedProgram],
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Lowered:
    """The program that `trace` returns for these arguments, with the nesting of arguments and
    results."""
    # A fixed order, independent of the order in the call.
    kwargs = {key: kwargs[key] for key in sorted(kwargs)}
    tensors: list[Any] = []
    arguments = _layout((args, kwargs), tensors, "the arguments")
    traced = trace(args, kwargs)
    program = traced.export(name)
    value = _layout(traced.value_of(_Output), [], f"the value of {name}")
    if program.num_nodes == 0:
        raise InvalidArgumentError(f"export: {name} gives no tensors")
    program.set_hint(0, _HINT, json.dumps({"arguments": arguments, "value": value}))
    return Lowered(Executable(program, arguments, value), tensors)


def model_of(value: Any, inputs: tuple[Tensor, ...]) -> Executable:
    """The recorded program that computes the tensors of a pytree, for calls with other inputs."""
    given: list[Any] = []
    arguments = _layout((inputs, {}), given, "the inputs")
    outputs: list[Any] = []
    layout = _layout(value, outputs, "the values")
    if not outputs:
        raise InvalidArgumentError("eval: there are no tensors that a model could give")
    program = _girih.capture(outputs, given, [], [], [])
    program.set_hint(0, _HINT, json.dumps({"arguments": arguments, "value": layout}))
    return Executable(program, arguments, layout)


def export(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Executable:
    """Compiles a function ahead of time for arguments like these; it is traced and not run.

    Args:
        fun: The function, or the result of :func:`compile`, whose ``dynamic_dims`` stay dynamic. A
            module is a function too.
        *args: As in a call: tensors, whose shapes and dtypes are used for tracing, floats, which
            stay arguments, and other values, which become part of the program. A
            :class:`ShapeDtypeStruct` stands for a tensor.
        **kwargs: As in a call.

    Returns:
        The compiled program, which can be called like the function, or saved for other processes.

    Raises:
        InvalidArgumentError: Arguments or results cannot be stored in files, or the function stores
            tensors outside when it is called.
        TracedValueError: The function reads the value of a tensor.
    """
    if not callable(fun):
        raise DTypeError(f"export: expected a function, got a {type(fun).__name__}")
    from .callbacks import from_specs

    compiled = fun if isinstance(fun, CompiledFunction) else CompiledFunction(fun)
    args, kwargs = from_specs((args, kwargs))
    return compiled.lower(*args, **kwargs).compile()


def load_executable(file: str | os.PathLike[str]) -> Executable:
    """Reads a file that :meth:`Executable.save` has written.

    Nothing is traced, and the function's Python code is not needed.

    Args:
        file: The file.

    Returns:
        The executable.

    Raises:
        FormatError: The file is not an executable.
        OSError: The file cannot be read.
    """
    path = os.fspath(file)
    program = _girih.program_from_file(path)
    text = program.hints(0).get(_HINT) if program.num_nodes else None
    if text is None:
        raise FormatError(
            f"{path}: the program in it was not exported, so nothing says how its arguments are "
            "nested; gr.load_graph reads it"
        )
    try:
        layouts = json.loads(text)
        arguments, value = layouts["arguments"], layouts["value"]
        _check(arguments, len(program.inputs))
        _check(value, len(program.outputs))
        _call(arguments)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(
            f"{path}: what says how arguments are nested is damaged: {error}"
        ) from None
    return Executable(program, arguments, value)


def _check(layout: Any, count: int) -> None:
    """Raises ValueError if the data are not a layout with this number of tensors."""
    if layout is None:
        return
    if isinstance(layout, int):
        if not 0 <= layout < count:
            raise ValueError(f"there is no tensor {layout} among {count}")
        return
    ((kind, inner),) = layout.items()
    if kind not in ("value", "list", "tuple", "dict"):
        raise ValueError(f"unknown kind {kind!r}")
    if kind != "value":
        for item in inner.values() if kind == "dict" else inner:
            _check(item, count)


explain_public(globals())

"""Serialisation of graphs and tensors: text, PFGB, DOT, and files of tensors.

A serialised graph is a :class:`Program`: the graph with its values. It can be called with tensors
like the function from which it was recorded.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from . import _girih, tree
from ._girih import Program, Tensor, has_protocol
from .checks import explain_public, items
from .compiled import CompiledFunction
from .devices import device as device_scope
from .errors import DTypeError, InvalidArgumentError
from .lazy import _some_tensors
from .names import dotted, output_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO, TypeAlias

    from .devices import Device
    from .nn import Module
    from .tree import PyTree

    _Path: TypeAlias = str | os.PathLike[str]
    #: A path, or a file object.
    _File: TypeAlias = _Path | BinaryIO
    _Inputs: TypeAlias = Tensor | Sequence[Tensor] | Mapping[str, Tensor] | None

__all__ = [
    "deserialize",
    "dump_graphviz",
    "graph_to_dot",
    "graph_to_text",
    "load",
    "load_graph",
    "make_graph",
    "save",
    "save_graph",
    "savez",
    "savez_compressed",
    "serialize",
    "text_to_graph",
]


def _program(output: Any, inputs: _Inputs, function: str) -> Program:
    if isinstance(output, Program):
        return output
    if isinstance(inputs, Tensor):
        inputs = [inputs]
    if isinstance(inputs, Mapping):
        names, tensors = list(inputs), list(inputs.values())
    else:
        tensors = [] if inputs is None else items(inputs)
        names = [""] * len(tensors)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise InvalidArgumentError(
                f"{function}: inputs are tensors, by name or in a list; got {tensor!r}"
            )
    if isinstance(output, CompiledFunction):
        by_name = isinstance(inputs, Mapping)
        args, kwargs = ([], dict(inputs)) if by_name else (tensors, {})  # type: ignore[arg-type]
        return output.to_program(*args, **kwargs)
    outputs = _some_tensors(output, function)
    # Import lazily: graphs without modules do not need this module.
    from .nn.alive import parameters_alive

    return _girih.capture(outputs, tensors, names, output_names(output), parameters_alive())


def serialize(output: PyTree, inputs: _Inputs = None) -> bytes:
    """Serialises the program that computes tensors, as the contents of a PFGB file.

    Parameters of modules become parameters of the program, with their values and dotted names. If
    the output is a dict (or a module), calling the program returns a dict with its keys; keys of
    nested dicts are joined by dots.

    Args:
        output: A tensor, a pytree of tensors, a :class:`Program`, or a function from
            :func:`compile`. A compiled function is written with its dynamic dimensions, so that the
            program serves any size; it is traced at the inputs, or must have been called before.
        inputs: The tensors that the program takes as inputs, in order or by name. All other values
            (parameters, data, evaluated tensors) are stored in the file.

    Returns:
        The file contents; :func:`deserialize` reads the program.

    Raises:
        InvalidArgumentError: An output or an input is not a tensor, two outputs have the same name,
            or a compiled function has several programs and no inputs select one.

    Example:
        >>> import girih as gr
        >>> @gr.compile(dynamic_dims={0: {0: "batch"}})
        ... def scores(x):
        ...     return {"sum": x.sum(axis=1), "double": x * 2}
        >>> program = gr.deserialize(gr.serialize(scores, inputs=[gr.ones([2, 3])]))
        >>> program.inputs
        [('x', ['batch', 3], 'float32')]
        >>> program(gr.ones([5, 3]))["sum"].tolist()
        [3.0, 3.0, 3.0, 3.0, 3.0]
    """
    return _program(output, inputs, "serialize").serialize()


def deserialize(data: bytes | bytearray | memoryview) -> Program:
    """Reads a program from the contents of a PFGB file; call the program with its inputs.

    Args:
        data: Bytes, or another object with the buffer protocol.

    Raises:
        FormatError: The bytes are not a PFGB file.
        DTypeError: The argument has no bytes.

    Example:
        >>> import girih as gr
        >>> x = gr.asarray([1.0, 2.0])
        >>> program = gr.deserialize(gr.serialize(x * 3, inputs=[x]))
        >>> program(gr.asarray([5.0, 6.0])).tolist()
        [15.0, 18.0]
    """
    if not isinstance(data, bytes):
        try:
            data = memoryview(data).tobytes()
        except TypeError:
            raise DTypeError(
                f"deserialize: expected bytes from serialize, got a {type(data).__name__}"
            ) from None
    return _girih.program_from_bytes(data)


def make_graph(fun: Callable[..., Any]) -> Callable[..., _girih.Program]:
    """A function that returns the graph of ``fun`` at its arguments, as an object for inspection.

    Args:
        fun: A function of pytrees of tensors. It is traced, and nothing is computed.

    Returns:
        A function of the same arguments that returns a :class:`Program`: its ``inputs``,
        ``outputs``, ``nodes``, ``node(id)``, ``subgraph(nodes)`` and ``text``. The program can be
        called and saved. A :class:`ShapeDtypeStruct` among the arguments stands for a tensor.

    Raises:
        InvalidArgumentError: The function's value holds a leaf that is not a tensor.

    Example:
        >>> import girih as gr
        >>> graph = gr.make_graph(lambda x: gr.sin(x) + 1)(gr.ones([2]))
        >>> [node.name for node in graph.nodes]
        ['x', 'sin_1', 'constant_2', 'add_3']
        >>> graph.node(3).inputs, graph.node(1).users
        ([1, 2], [3])
        >>> graph.subgraph([1])(gr.zeros([2])).tolist()
        [0.0, 0.0]
    """
    from .callbacks import from_specs
    from .compiled import compile

    compiled: Any = compile(fun)

    def graph_of(*args: Any, **kwargs: Any) -> _girih.Program:
        args, kwargs = from_specs((args, kwargs))
        program: _girih.Program = compiled.to_program(*args, **kwargs)
        return program

    return graph_of


def save_graph(file: _Path, output: PyTree, inputs: _Inputs = None) -> None:
    """Writes the program that computes tensors, in the format of the file suffix.

    ``.pfgb`` includes values; ``.txt``, ``.girih`` (text), ``.dot``, ``.svg`` and ``.html`` have
    only the graph. See :func:`serialize` for the arguments.

    Raises:
        InvalidArgumentError: The suffix is not supported; or as for :func:`serialize`.
        OSError: The file cannot be written.
    """
    path = _path("save_graph", file, output)
    _program(output, inputs, "save_graph").save(path)


def load_graph(file: _Path) -> Program:
    """Reads a program from a PFGB or text file; call the program with its inputs.

    Raises:
        FormatError: The file is not a graph in one of these formats.
        OSError: The file cannot be read.
    """
    return _girih.program_from_file(os.fspath(file))


def graph_to_text(output: PyTree) -> str:
    """The graph of a program, or of the computation of tensors, as text."""
    if isinstance(output, Program):
        return output.text
    return _girih.graph_text(_some_tensors(output, "graph_to_text"))


def text_to_graph(text: str) -> Program:
    """Parses a program from text, as :func:`graph_to_text` prints it. It contains no values.

    Raises:
        FormatError: The text is not a graph; the message shows the line and a caret.

    Example:
        >>> import girih as gr
        >>> double = gr.text_to_graph('''Graph:
        ...   %0 = input([2], f32)
        ...   %1 = add(%0, %0) -> [2]
        ...   outputs: [%1]''')
        >>> double(gr.asarray([1.0, 2.0])).tolist()
        [2.0, 4.0]
    """
    return _girih.program_from_text(text)


def graph_to_dot(output: PyTree) -> str:
    """The graph of a program, or of the computation of tensors, in DOT."""
    if isinstance(output, Program):
        return output.to_dot()
    return _girih.graph_dot(_some_tensors(output, "graph_to_dot"))


def dump_graphviz(output: PyTree, file: _Path) -> None:
    """Writes the graph of a program, or of the computation of tensors, in DOT."""
    _girih.write_file(os.fspath(file), graph_to_dot(output).encode())


def _named(value: PyTree) -> tuple[list[str], list[Tensor]]:
    pairs = tree.flatten_with_path(value)
    names = [dotted(path) for path, _ in pairs]
    return names, [_girih.asarray(leaf) for _, leaf in pairs]


def _path(name: str, file: Any, value: Any) -> str:
    """The path of the file that a function writes.

    Raises:
        InvalidArgumentError: The arguments are in the order of ``torch.save``.
    """
    if isinstance(value, (str, os.PathLike)) and not isinstance(file, (str, bytes, os.PathLike)):
        raise InvalidArgumentError(
            f"{name}: the file comes first, as in girih.{name}({os.fspath(value)!r}, value); got a "
            f"{type(file).__name__} and then the file"
        )
    path: str = os.fspath(file)
    return path


def save(
    file: _File,
    value: PyTree,
    *,
    metadata: Mapping[str, str] | None = None,
    format: str | None = None,
    float8: Mapping[str, str] | None = None,
) -> None:
    """Writes a tensor or a pytree of tensors, evaluated, to ``.npy``, ``.npz`` or ``.safetensors``.

    Tensors are named by their path in the tree, ``layer.0.weight``; tensors of a module by its
    ``state_dict``. The file is written atomically. If the file exists, it is replaced and keeps its
    mode; a symbolic link keeps its target.

    Args:
        file: A path, or a file object that is open for writing bytes.
        value: Tensors, or objects that convert to tensors, in nested containers or modules.
        metadata: Texts by name that are stored beside the tensors, in ``.safetensors`` only.
        format: ``npy``, which takes exactly one tensor, ``npz`` or ``safetensors``; by default the
            suffix of the path, and for a file object ``npy`` for one tensor and else ``npz``.
        float8: The tensors, by name, that are written as floats of 8 bits, ``"e4m3"`` or
            ``"e5m2"``, in ``.safetensors`` only. Elements are rounded to the nearest, ties to even;
            one beyond the largest float is an error. :func:`load` reads them as float16, which has
            all of their values.

    Example:
        >>> import girih as gr, tempfile
        >>> model, file = gr.nn.Linear(2, 1), tempfile.mkdtemp() + "/model.safetensors"
        >>> gr.save(file, model, metadata={"steps": "100"})
        >>> sorted(gr.load(file))
        ['bias', 'weight']
        >>> again = gr.nn.Linear(2, 1).load_state_dict(gr.load(file))
        >>> gr.load(file, return_metadata=True)[1]
        {'steps': '100'}

    Raises:
        InvalidArgumentError: The suffix or a dtype is not supported, or two tensors have one name.
        OSError: The file cannot be written.
    """
    _save(file, value, "save", metadata, format, float8=float8)


def _save(
    file: _File,
    value: PyTree,
    function: str,
    metadata: Mapping[str, str] | None = None,
    format: str | None = None,
    compressed: bool = False,
    float8: Mapping[str, str] | None = None,
) -> None:
    opened = _opened(file, "write")
    path = None if opened is not None else _path(function, file, value)
    names, tensors = _named(value)
    if format is None and path is None:
        format = "npy" if names == [""] else "npz"
    texts = [] if metadata is None else [*metadata.items()]
    for pair in texts:
        if not all(isinstance(text, str) for text in pair):
            raise InvalidArgumentError(
                f"{function}: metadata are texts by name, got {pair[1]!r} for {pair[0]!r}"
            )
    # The suffix of the name is the format.
    name = f"file.{format}" if path is None or format is not None else path
    short = [] if float8 is None else [*float8.items()]
    for held in ("metadata",) * bool(texts) + ("float8",) * bool(short):
        if not os.fsdecode(name).endswith(".safetensors"):
            raise InvalidArgumentError(
                f"{function}: only files of format safetensors hold {held}, got {file!r}"
            )
    data = _girih.file_of_tensors(name, names, tensors, texts, compressed, short)
    if path is None:
        opened.write(data)
    else:
        _girih.write_file(path, data)


def _opened(file: _File, method: str) -> Any:
    """The file, if it is a file object."""
    return file if not isinstance(file, (str, bytes)) and has_protocol(file, method) else None


def savez(file: _File, *tensors: Any, **named: Any) -> None:
    """Writes tensors by name, as ``save`` of a dict; unnamed tensors are ``arr_0``, ``arr_1``, ...

    Args:
        file: A path, to which ``.npz`` is added unless it has a suffix of a file of tensors, or a
            file object that is open for writing bytes.
        tensors: Tensors without names.
        named: Tensors by name.

    Raises:
        InvalidArgumentError: A name equals the name of an unnamed tensor.
    """
    _save(_zipped(file), _numbered("savez", tensors, named), "savez", format=_zip_format(file))


def savez_compressed(file: _File, *tensors: Any, **named: Any) -> None:
    """Writes tensors by name, deflated, to an ``.npz`` file; arguments and names as in ``savez``.

    A compressed file is smaller, and is copied when it is read, not memory-mapped.

    Raises:
        InvalidArgumentError: A name equals the name of an unnamed tensor, or the suffix of the path
            is that of another format.

    Example:
        >>> import girih as gr, io
        >>> file = io.BytesIO()
        >>> gr.savez_compressed(file, x=gr.zeros([1000]))
        >>> len(file.getvalue()) < 1000, gr.load(io.BytesIO(file.getvalue()))["x"].shape
        (True, (1000,))
    """
    if (format := _zip_format(file)) not in (None, "npz"):
        raise InvalidArgumentError(f"savez_compressed: writes .npz files, got a .{format} file")
    value = _numbered("savez_compressed", tensors, named)
    _save(_zipped(file), value, "savez_compressed", format="npz", compressed=True)


def _numbered(function: str, tensors: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    numbered = {f"arr_{i}": tensor for i, tensor in enumerate(tensors)}
    if taken := sorted(numbered.keys() & named.keys()):
        raise InvalidArgumentError(
            f"{function}: {taken[0]!r} is the name of a tensor given by position; rename the other"
        )
    return {**numbered, **named}


#: The formats of files of tensors, which are their suffixes.
_FORMATS = ("npy", "npz", "safetensors")


def _zip_format(file: _File) -> str | None:
    """The format for tensors by name: that of the path's suffix, else npz."""
    if _opened(file, "write") is not None:
        return "npz"
    suffix = os.path.splitext(os.fsdecode(os.fspath(file)))[1].lstrip(".")  # type: ignore[arg-type]
    return suffix if suffix in _FORMATS else "npz"


def _zipped(file: _File) -> _File:
    """The file, with the suffix .npz if the path has no suffix of a format."""
    if _opened(file, "write") is not None:
        return file
    path = os.fsdecode(os.fspath(file))  # type: ignore[arg-type]
    return path if path.rpartition(".")[2] in _FORMATS else f"{path}.npz"


def load(
    file: _File,
    like: PyTree = None,
    *,
    device: Device | str | None = None,
    shardings: Any = None,
    return_metadata: bool = False,
) -> Any:
    """Reads a file of tensors: ``.npy``, ``.npz`` or ``.safetensors``.

    Aligned and uncompressed data of a path are memory-mapped without a copy, so the file must not
    change while its tensors exist. Floats of 8 bits are read as float16, which has their values.

    Args:
        file: The path of a file, or a file object that is open for reading bytes, which is read to
            its end; its format follows from the contents.
        like: A pytree with the structure that was saved; the result has this structure with the
            tensors of the file. A module is copied; ``like`` does not change.
        device: The device that the tensors are put on; the current one if None.
        shardings: The :class:`Sharding` of the tensors, a pytree of shardings and Nones that is a
            prefix of the result, or a function of the path and the tensor that returns one. Each
            device reads its part.
        return_metadata: Whether to return the metadata of the file as a second result.

    Returns:
        A tensor for ``.npy``, else a dict of tensors by name; with ``like`` a pytree like it. With
        ``return_metadata`` a pair of that and a dict of texts by name.

    Raises:
        FormatError: The contents do not match the suffix of the file.
        DeviceError: There is no such device.
        InvalidArgumentError: The suffix is not supported, or the file lacks a tensor of ``like``.
        OSError: The file cannot be read.
    """
    data = None if (opened := _opened(file, "read")) is None else _contents(opened)
    with nullcontext() if device is None else device_scope(device):
        tensors = dict(
            _girih.load_tensors(os.fspath(file))  # type: ignore[arg-type]
            if data is None
            else _girih.tensors_of_bytes(data)
        )
    found = _arranged(file, tensors, like)
    if shardings is not None:
        from .meshes import placed

        found = placed(found, shardings, "load: shardings")
    if not return_metadata:
        return found
    texts = (
        _girih.file_metadata(os.fspath(file))  # type: ignore[arg-type]
        if data is None
        else _girih.metadata_of_bytes(data)
    )
    return found, dict(texts)


def _contents(file: Any) -> bytes:
    data = file.read()
    if not isinstance(data, bytes):
        raise InvalidArgumentError(
            f"load: the file object must give bytes, got a {type(data).__name__}; open it with 'rb'"
        )
    return data


def _arranged(file: _File, tensors: dict[str, Tensor], like: PyTree) -> Any:
    """The tensors of a file in the structure of ``like``, if it is given."""
    if like is None:
        return tensors[""] if list(tensors) == [""] else tensors
    names = [dotted(path) for path, _ in tree.flatten_with_path(like)]
    missing = [name for name in names if name not in tensors]
    if missing:
        raise InvalidArgumentError(
            f"load: {str(file)!r} has no {', '.join(missing)}; it holds {', '.join(tensors)}"
        )
    from .nn import Module

    loaded = iter([tensors[name] for name in names])
    parts, structure = tree.flatten(like, is_leaf=lambda node: isinstance(node, Module))
    whole = [_copy(p, loaded) if isinstance(p, Module) else next(loaded) for p in parts]
    return tree.unflatten(structure, whole)


def _copy(module: Module, tensors: Iterator[Tensor]) -> Module:
    """A copy of a module whose tensors are replaced by the next tensors."""
    names = [dotted(path) for path, _ in tree.flatten_with_path(module)]
    named = dict(zip(names, tensors))  # noqa: B905
    return copy.deepcopy(module).load_state_dict(named, assign=True)


explain_public(globals())

"""Writes python/girih/_girih.pyi, the stubs of the extension module, by looking at the extension.

Signatures and sentences come from the extension itself. Types come from names: a parameter called
``axis`` has one type everywhere (PARAMETERS), unless a row names the function too. A function gives a
tensor unless its documentation ends with ``Returns: TYPE.``; so do the properties. Run it with
``make stubs`` once the extension is built; ``make test`` runs it with ``--check`` and compares the
result with the extension by stubtest.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from girih.later import LaterMethod

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = Path(__file__).parent.parent / "python" / "girih" / "_girih.pyi"
WIDTH = 100
BASETYPE = 1 << 10  # Py_TPFLAGS_BASETYPE: the class may be subclassed

# Types of parameters by name, without the None that a default of None adds. A new name needs a row.
SIZES = "int | Sequence[int]"
OPERAND = "_TensorLike"
TILES = (
    "Sequence[tuple[Sequence[int], Sequence[int]]]"
    " | Callable[[int, int], tuple[Sequence[int], Sequence[int]]]"
)
PARAMETERS = {
    **dict.fromkeys(["shape", "sizes", "axes", "sections", "normalized_shape"], SIZES),
    **dict.fromkeys(["axis", "dim"], SIZES),
    **dict.fromkeys(
        ["fill_value", "x", "src", "x1", "x2", "y", "other", "value", "condition", "min", "max"],
        OPERAND,
    ),
    **dict.fromkeys(["indices", "labels", "logits", "weight", "bias"], OPERAND),
    **dict.fromkeys(
        ["axis1", "axis2", "node", "k", "n_rows", "n_cols", "num", "num_classes", "seed"], "int"
    ),
    **dict.fromkeys(["low", "high", "threads", "passes", "fusion", "user", "spatial_axes"], "int"),
    **dict.fromkeys(["start", "stop", "step", "correction", "eps", "d"], "float"),
    **dict.fromkeys(["antialias", "blocking", "compressed", "enable_timing", "flip"], "bool"),
    **dict.fromkeys(["inclusive", "reverse"], "bool"),
    **dict.fromkeys(["asm", "copy", "endpoint", "keepdim", "keepdims", "on"], "bool"),
    **dict.fromkeys(["api_version", "name", "text", "title", "x_label", "y_label"], "str"),
    **dict.fromkeys(["descending", "include_initial", "largest", "stable"], "bool"),
    **dict.fromkeys(["complete", "full_matrices", "lower", "unit_diagonal", "upper"], "bool"),
    "tensordot.axes": "int | tuple[int | Sequence[int], int | Sequence[int]]",
    **dict.fromkeys(["ord"], "float | str"),
    **dict.fromkeys(["rtol", "loc", "a", "b", "lam"], OPERAND),
    **dict.fromkeys(["replace", "independent"], "bool"),
    **dict.fromkeys(["rowvar", "cov.bias", "equal_nan", "right", "periodic", "increasing"], "bool"),
    **dict.fromkeys(["return_index", "return_inverse", "return_counts"], "bool"),
    **dict.fromkeys(["atol", "ddof", "dx", "nan", "neginf", "period", "posinf", "rcond"], "float"),
    **dict.fromkeys(["aweights", "fweights", "fp", "left", "q", "w", "xp"], OPERAND),
    **dict.fromkeys(["deg", "decimals", "start_dim", "end_dim", "window_length"], "int"),
    "interp.right": OPERAND,
    **dict.fromkeys(["polyval.p"], OPERAND),
    "histogram2d.range": "Sequence[tuple[float, float]]",
    "histogram2d.bins": "int | Sequence[Any] | Tensor | Any",
    **dict.fromkeys(["kaiser.beta", "kaiser_window.beta"], "float"),
    **dict.fromkeys(["unbiased", "sparse"], "bool"),
    **dict.fromkeys(["steps", "diagonal", "diff.dim", "array_split.dim", "bincount.length"], "int"),
    "dims": SIZES,
    **dict.fromkeys(["gather.axis", "Tensor.gather.axis"], f"{SIZES} | {OPERAND}"),
    "index": OPERAND,
    "Tensor.view.shape": f"{SIZES} | _DTypeLike",
    **dict.fromkeys(["meshgrid.tensors", "broadcast_arrays.tensors"], OPERAND),
    "method": "str",
    "call": "Callable[..., list[bytes]]",
    "rules": "Any",
    **dict.fromkeys(["version", "identity"], "int"),
    **dict.fromkeys(["signature", "settings"], "str"),
    "dtypes": "Sequence[tuple[str, Sequence[Any]]]",
    "effect": "bool",
    "likes": "Sequence[Tensor]",
    **dict.fromkeys(["precision", "edgeitems", "linewidth"], "int"),
    "set_printoptions.threshold": "int",
    "suppress": "bool",
    **dict.fromkeys(["sorted", "sorter", "values"], OPERAND),
    **dict.fromkeys(["key", "memo", "stream", "device"], "Any"),
    "to.target": "Tensor | _DTypeLike | Any",
    **dict.fromkeys(["max_version", "dl_device"], "tuple[int, int]"),
    **dict.fromkeys(
        ["wrt", "aux", "args", "given", "outputs", "saved", "tangents"], "Sequence[Tensor]"
    ),
    "batched": "Sequence[bool]",
    "gradient": "Tensor",
    **dict.fromkeys(["requires_grad", "retain_graph", "create_graph"], "bool"),
    "hook": "Callable[[Tensor], Tensor | None]",
    "randomness": "str",
    **dict.fromkeys(["like", "output"], "Tensor"),
    **dict.fromkeys(["graph", "previous"], "Graph"),
    **dict.fromkeys(["kernel_size", "stride", "dilation", "output_padding", "output_size"], SIZES),
    "input_dilation": SIZES,
    "sinks": OPERAND,
    **dict.fromkeys(["random_randint.low", "random_randint.high"], "Any"),
    "metadata": "Sequence[tuple[str, str]]",
    "float8": "Sequence[tuple[str, str]]",
    **dict.fromkeys(
        [
            f"{name}.{parameter}"
            for name in ("nonzero", "argwhere", "flatnonzero")
            for parameter in ("size", "fill_value")
        ],
        "int",
    ),
    "unique.size": "int",
    **dict.fromkeys(["take.mode", "get.mode", "set.mode", "add.mode", "subtract.mode"], "str"),
    **dict.fromkeys(["multiply.mode", "divide.mode", "power.mode", "min.mode", "max.mode"], "str"),
    **dict.fromkeys(["query", "target", "anchor", "positive", "negative", "var"], OPERAND),
    **dict.fromkeys(["attn_mask", "log_probabilities", "running_mean", "running_var"], OPERAND),
    **dict.fromkeys(["pos_weight", "sample_weight"], OPERAND),
    **dict.fromkeys(["groups", "num_groups", "ignore_index"], "int"),
    **dict.fromkeys(["alpha", "beta", "delta", "lambd", "margin", "min_val", "max_val"], "float"),
    **dict.fromkeys(["negative_slope", "norm_type", "p", "scale", "threshold"], "float"),
    **dict.fromkeys(["label_smoothing"], "float"),
    **dict.fromkeys(["align_corners", "ceil_mode", "count_include_pad", "full"], "bool"),
    **dict.fromkeys(
        ["is_causal", "log_input", "log_target", "swap", "training", "enable_gqa"], "bool"
    ),
    **dict.fromkeys(["whole_channels"], "bool"),
    **dict.fromkeys(["hard", "include_last_offset", "scale_grad_by_freq"], "bool"),
    **dict.fromkeys(["use_input_stats", "zero_infinity"], "bool"),
    **dict.fromkeys(["input_lengths", "offsets", "per_sample_weights", "target_lengths"], OPERAND),
    **dict.fromkeys(["blank", "downscale_factor", "padding_idx", "upscale_factor"], "int"),
    **dict.fromkeys(["divisor_override", "dropout_p", "max_norm", "tau"], "float"),
    **dict.fromkeys(["grid", "theta"], OPERAND),
    "padding_mode": "str",
    "embedding_bag.mode": "Literal['sum', 'mean', 'max']",
    "grid_sample.mode": "str",
    "kl_div.reduction": "Literal['mean', 'sum', 'none', 'batchmean']",
    "local_response_norm.k": "float",
    "local_response_norm.size": "int",
    "multi_margin_loss.p": "int",
    **dict.fromkeys(["rrelu.lower", "rrelu.upper"], "float"),
    "norm": "str",
    "s": "Sequence[int]",
    "operands": "Any",
    **dict.fromkeys(
        [
            "Tensor.set_hint.key",
            "Tensor.set_hint.value",
            "Program.set_hint.key",
            "Program.set_hint.value",
        ],
        "str",
    ),
    "bodies": "Sequence[Body]",
    "body": "Body",
    "init": "Sequence[Tensor]",
    "xs": "Sequence[Tensor]",
    "length": "int",
    "reverse": "bool",
    "padding": "int | Sequence[int] | Sequence[tuple[int, int]] | Literal['same', 'valid']",
    "scale_factor": "float | Sequence[float]",
    "size": SIZES,
    "optimize": "bool | Literal['auto', 'optimal', 'greedy']",
    **dict.fromkeys(["inputs", "outputs"], "Sequence[Tensor]"),
    "argv": "Sequence[str]",
    "data": "bytes",
    "node": "int",
    "path": "str | PathLike[str]",
    **dict.fromkeys(
        [
            *("fresh", "history", "eager", "verify", "nans", "grad", "reshards", "use_cache"),
            "profile",
        ],
        "bool",
    ),
    **dict.fromkeys(["before"], "Any"),
    "executor": "ExecutorHandle",
    **dict.fromkeys(["end", "event"], "Event"),
    **dict.fromkeys(
        ["Event.record.stream", "Event.wait.stream", "Stream.wait_stream.stream"], "Stream"
    ),
    "enter_scope.stream": "Stream",
    "priority": "int",
    "nodes": "Sequence[int]",
    "timeout_seconds": "float",
    "approximate": "Literal['none', 'tanh']",
    "dtype": "_DTypeLike",
    "names": "Sequence[str]",
    "output_names": "Sequence[str]",
    "parameters": "Sequence[tuple[str, Tensor]]",
    "TracedFunction.export.outside": "Sequence[tuple[str, Tensor, builtins.bool]]",
    "reduction": "Literal['mean', 'sum', 'none']",
    "side": "Literal['left', 'right']",
    "dynamic": "Sequence[Sequence[tuple[int, str, tuple[int, int | None] | None]]]",
    "outside": "Sequence[Tensor]",
    "places": "Sequence[tuple[Any, Any, bool]]",
    "changed": "Sequence[tuple[int, Sequence[tuple[Any, Any, bool]]]]",
    "guards": "Guards",
    "tensor": "Tensor",
    "scope": "int",
    "outer": "ScopeHandle",
    "options": "tuple[int, int, int] | None",
    "effects": "Sequence[tuple[tuple[Any, Any, bool], Any]]",
    "written": "Sequence[tuple[tuple[Any, Any, bool], str, Any]]",
    "way": "tuple[Any, Any]",
    "kwargs": "Any",
    "donated": "Sequence[int]",
    "program": "TracedFunction",
    "compile_program.program": "Program",
    "result": "Any",
    "traced": "Callable[[list[Tensor]], list[Tensor]]",
    "rule": "Callable[..., _TensorLike | None]",
    "op": "str | Node",
    "attributes": "Any",
    "compile_options_switched.passes": "Sequence[GraphPass]",
    "ExecutorHandle.passes": "Sequence[GraphPass]",
    "GraphPass.function": "Callable[[Program], Program | None]",
    "series": "Sequence[tuple[str, Sequence[tuple[float, float]]]]",
    "tensors": "Sequence[_TensorLike]",
    **dict.fromkeys(["shift", "repetitions", "source", "destination", "shapes"], SIZES),
    **dict.fromkeys(["prepend", "append", "test", "weights", "values", "constant_values"], OPERAND),
    **dict.fromkeys(["repeats", "bins"], "int | Sequence[int] | Tensor | Any"),
    **dict.fromkeys(["minlength", "storage_offset", "offset", "n", "m"], "int"),
    **dict.fromkeys(["density", "invert"], "bool"),
    "function": "Callable[[Tensor], _TensorLike]",
    "indexing": "Literal['xy', 'ij']",
    "mode": "str | float | Tensor",
    "range": "tuple[float, float]",
    **dict.fromkeys(["func", "types", "ufunc", "object"], "Any"),
    "items_of.values": "Any",
    **dict.fromkeys(["__array_function__.args", "__array_ufunc__.inputs"], "Any"),
    "__array_ufunc__.method": "str",
    "widths": "int | Sequence[int] | Sequence[Sequence[int]]",
    "DeviceMesh.axes": "str | Sequence[str]",
    "DeviceMesh.devices": "str | Sequence[Any]",
    "DeviceMesh.shape": f"{SIZES} | str",
    "DeviceMesh.name": "Any",
    "topology": "dict[str, tuple[float, float]]",
    "DeviceMesh.axis_size.axis": "str",
    "DimSpec.axes": "str | Iterable[str]",
    "is_open": "bool",
    "entries": "str | Sequence[str] | DimSpec | None",
    "replicated": "str | Iterable[str]",
    "partial": "dict[str, str]",
    "mesh": "DeviceMesh",
    "spec": "P | str | Sequence[str | Sequence[str] | DimSpec | None]",
    "position": "int",
    "sharding": "Any",
    **dict.fromkeys(["from_shards.sharding", "reshard.sharding"], "Sharding"),
    **dict.fromkeys(["shards", "targets"], "Sequence[_TensorLike]"),
    "set_host_devices.number": "int",
    "enter_scope.mesh": "tuple[str, int]",
    **dict.fromkeys(["rows", "cols", "num_pes", "block_rows", "block_cols", "rank"], "int"),
    "pe_coord": "tuple[int, int]",
    **dict.fromkeys(["Layout.custom.tiles", "layout.tiles"], TILES),
    "Layout.with_axes.axes": "Sequence[str | None]",
    "Layout.compatible_with.other": "Layout",
    **dict.fromkeys(["layout.src", "layout.dst", "LayoutPlanner.check.layout"], "Layout | str"),
    **dict.fromkeys(["max_memory_per_pe", "min_tile_elements"], "int"),
    **dict.fromkeys(["max_pe_rows", "max_pe_cols"], "int"),
    "prefer_square_tiles": "bool",
    **dict.fromkeys(
        [
            "layout.graph",
            "LayoutPlanner.plan.graph",
            "LayoutPlanner.plan_within.graph",
            "LayoutPlanner.insert_transforms.graph",
        ],
        "Program",
    ),
    **dict.fromkeys(
        ["layout.layouts", "LayoutPlanner.insert_transforms.layouts"],
        "GraphLayouts | Layout | str | Mapping[str | int, Layout | str]",
    ),
    "layouts": "Mapping[str | int, Layout | str | Sequence[Layout | str]]",
    "budget": "MemoryBudget",
    **dict.fromkeys(["total", "code", "stack", "routing", "scratch"], "int"),
    "visualize_sharding.format": "Literal['text', 'svg']",
}

# The functions behind girih.random have no defaults: that module has, and says what may be missing.
for name in ("shape", "high"):
    PARAMETERS[f"random.{name}"] = f"{PARAMETERS[name]} | None"
for name in ("alpha", "data", "high", "low", "lower", "n", "p", "scale", "seed", "upper"):
    PARAMETERS.setdefault(f"random.{name}", OPERAND)
PARAMETERS |= {
    **dict.fromkeys(["split", "concat", "collective.axis"], "int"),
    "enter_scope.axis": "BoundAxis",
    "non_blocking": "bool",
    "keeps": "Callable[[str, Tensor], bool] | None",
    "autocast": "str",
    "Trace.vmap.name": "str | None",
    "axis_name": "str | Sequence[str]",
    "pairs": "Sequence[tuple[int, int]]",
    "order": "Sequence[int]",
    "kind": "str",
    "tiled": "bool",
    **dict.fromkeys(["tree", "prefix"], "Any"),
    "treedef": "TreeDef",
    "is_leaf": "Callable[[Any], bool]",
    "tree_unflatten.leaves": "Iterable[Any]",
    "tree_register.node_type": "builtins.type",
    "tree_register.flatten": "Callable[[Any], tuple[Sequence[Any], Any]]",
    "tree_register.unflatten": "Callable[[Any, Sequence[Any]], Any]",
    "tree_register.names": "Callable[[Any, int], Iterable[str]] | None",
    "tree_register.subclasses": "bool",
    "container": "dict[Any, Any] | list[Any]",
    "but": "builtins.type",
    "is_traced.tensor": "Tensor",
    **dict.fromkeys(["is_same.a", "is_same.b", "rebind.tensor", "rebind.value"], "Tensor"),
}

# What Python's data model says of special methods, or what one of a class gives. The rest are
# operators, which give tensors.
SPECIAL = {
    "At.__getitem__": "Indexed",
    "__array__": "Any",
    "__bool__": "bool",
    "__bytes__": "bytes",
    "__getnewargs__": "tuple[Any, ...]",
    "__getnewargs_ex__": "tuple[tuple[Any, ...], dict[str, Any]]",
    "P.__getitem__": "str | tuple[str, ...] | DimSpec | None",
    "P.__iter__": "Iterator[str | tuple[str, ...] | DimSpec | None]",
    "__call__": "Any",
    "__complex__": "builtins.complex",  # the module has a function of that name
    "__dlpack__": "Any",
    "__dlpack_device__": "tuple[int, int, int]",
    "__float__": "float",
    "__hash__": "int",
    "__index__": "int",
    "__int__": "int",
    "__iter__": "Iterator[Tensor]",
    "__len__": "int",
    "__reduce__": "tuple[Any, ...]",
    "__setitem__": "None",
}
# Functions whose result depends on which parameters are given: parameters and result of each way.
OVERLOADS = {
    "where": [
        ([f"condition: {OPERAND}", "/"], "tuple[Tensor, ...]"),
        ([f"condition: {OPERAND}", f"x: {OPERAND}", f"y: {OPERAND}", "/"], "Tensor"),
    ],
}
# Special methods that every class has, and those whose inherited stubs say enough.
INHERITED = {"__new__", "__repr__", "__str__", "__format__", "__init__", "__doc__", "__module__"}
BOOLEAN = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"}

HEAD = '''\
# Generated by scripts/stubs.py from the extension: run `make stubs` after changing that.
"""Girih's extension module: tensors, operations and the runtime behind them."""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, SupportsFloat, TypeAlias, final, overload

from typing_extensions import disjoint_base

from .linalg import QRResult, SlogdetResult
from .ordering import AMinMax, KthValue, Mode
from .results import UniqueAll, UniqueCounts, UniqueInverse

# What becomes an operand: tensors, Python numbers, nested sequences, arrays of other libraries.
_TensorLike: TypeAlias = Tensor | SupportsFloat | Sequence[Any] | Any
# What names an element type: a DType, its name, Python's or NumPy's type.
_DTypeLike: TypeAlias = DType | str | type[Any] | Any

'''


def documentation(thing: object) -> tuple[str, str | None]:
    """The sentences of a docstring, and the type after ``Returns:`` if there is one."""
    text = " ".join((getattr(thing, "__doc__", None) or "").split())
    found = re.search(r"\s*Returns: (.+)\.$", text)
    return (text[: found.start()], found[1].strip("`")) if found else (text, None)


def default(value: object) -> str:
    """A default as stubs write it: what is no plain literal is left out."""
    plain = value is None or isinstance(value, (bool, int, float, str))
    return repr(value) if plain else "..."


def parameter(owner: str, p: inspect.Parameter) -> str:
    """One parameter with its type."""
    module = owner.split("_")[0]
    rows = (f"{owner}.{p.name}", f"{module}.{p.name}", p.name)
    kind = next((PARAMETERS[row] for row in rows if row in PARAMETERS), None)
    if kind is None:
        raise SystemExit(
            f"{owner}: parameter {p.name!r} has no type; add it to PARAMETERS in {__file__}"
        )
    stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    if p.default is p.empty:
        return f"{stars}{p.name}: {kind}"
    none = " | None" if p.default is None else ""
    return f"{p.name}: {kind}{none} = {default(p.default)}"


def parameters(
    owner: str, thing: object, shown: Callable[[str, inspect.Parameter], str] = parameter
) -> list[str]:
    """A callable's parameters, with the markers of positional-only and keyword-only ones."""
    out: list[str] = []
    positional_only = keyword_only = False
    for p in inspect.signature(thing).parameters.values():  # type: ignore[arg-type]
        if positional_only and p.kind is not p.POSITIONAL_ONLY:
            out.append("/")
        positional_only = p.kind is p.POSITIONAL_ONLY
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            out.append("*")
        keyword_only |= p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        first = not out and p.name in ("self", "cls", "type")
        out.append(("cls" if p.name != "self" else "self") if first else shown(owner, p))
    return [*out, "/"] if positional_only and out[-1] not in ("self", "cls") else out


def function(
    name: str, params: list[str], result: str, doc: str, indent: str = "", hidden: bool = False
) -> str:
    """One stub; the docstring is its body. With hidden, methods hide the built-in types."""
    if hidden:
        params, result = [qualified(p) for p in params], qualified(result)
    ignored = {"__eq__": "override", "__ne__": "override", "__ipow__": "misc"}.get(name)
    note = f"  # type: ignore[{ignored}]" if ignored and result == "Tensor" else ""
    line = f"{indent}def {name}({', '.join(params)}) -> {result}:"
    if len(line) > WIDTH:
        line = f"{indent}def {name}(\n"
        line += "".join(f"{indent}    {p},\n" for p in params) + f"{indent}) -> {result}:"
    return f"{line} ...{note}\n" if not doc else f"{line}\n{docstring(doc, indent + '    ')}"


def docstring(doc: str, indent: str) -> str:
    """Sentences as a docstring, filled."""
    if len(doc) + len(indent) + 6 <= WIDTH:
        return f'{indent}"""{doc}"""\n'
    text = textwrap.fill(f'"""{doc}', WIDTH, initial_indent=indent, subsequent_indent=indent)
    return f'{text}\n{indent}"""\n'


#: Attributes of the extension's classes that can be assigned to.
ASSIGNED = ("Tensor.grad", "Tensor.requires_grad")


def method(cls: type, name: str, thing: object) -> str:
    """The stub of one attribute of a class."""
    owner = f"{cls.__name__}.{name}"
    stub = functools.partial(function, indent="    ", hidden=cls.__name__ == "Tensor")
    doc, result = documentation(thing)
    plain = not name.startswith("__")
    if plain and result is None and cls.__name__ == "Tensor":
        result = "Tensor"
    if inspect.isgetsetdescriptor(thing):
        result = required(owner, result)
        text = "    @property\n" + stub(name, ["self"], result, doc)
        if owner in ASSIGNED:
            value = stub(name, ["self", f"value: {result}"], "None", "")
            text += f"    @{name}.setter\n{value}"
        return text
    if name in ("__pow__", "__rpow__"):
        return f"    def {name}(self, value: Any, mod: None = None, /) -> {cls.__name__}: ...\n"
    if name.startswith("__"):
        fallback = "bool" if name in BOOLEAN and cls.__name__ != "Tensor" else cls.__name__
        if name in BOOLEAN and cls.__name__ == "SymbolicFloat":
            fallback = "Any"  # a tensor, but of what follows from sizes alone a bool
        if name in ("__eq__", "__ne__"):
            value = "object" if fallback == "bool" else "Any"
            return stub(name, ["self", f"value: {value}", "/"], fallback, "")
        if name == "__call__":
            # The slot's own signature says nothing.
            operands = ["self", f"*args: {OPERAND}", f"**kwargs: {OPERAND}"]
            return stub(name, operands, SPECIAL[name], "")
        params = parameters(owner, thing)
        if name == "__array__":
            params = [p.replace("_DTypeLike", "Any") for p in params]
        gives = SPECIAL.get(owner) or SPECIAL.get(name, fallback)
        return stub(name, params, result or gives, "")
    kind = type(vars(cls)[name]).__name__
    head = {"staticmethod": "    @staticmethod\n", "classmethod_descriptor": "    @classmethod\n"}
    params = parameters(owner, thing)
    if kind == "classmethod_descriptor":
        params = ["cls", *params] if params[:1] != ["cls"] else params
    return head.get(kind, "") + stub(name, params, required(owner, result), doc)


#: Names of types that methods of tensors hide in the class.
HIDDEN = re.compile(r"(?<![\w.'])(bool|float|int|type)\b(?!')")


def qualified(text: str) -> str:
    """A parameter or type with the built-in types that methods hide under their full names."""
    name, colon, rest = text.partition(": ")
    kind, equals, value = (rest if colon else name).partition(" = ")
    return (name + colon if colon else "") + HIDDEN.sub(r"builtins.\1", kind) + equals + value


def later_method(name: str, later: LaterMethod) -> str:
    """The stub of a method whose function is elsewhere in the package."""
    called = later.function
    if inspect.isfunction(called):
        doc = inspect.cleandoc(called.__doc__ or "").split("\n\n")[0]
        params = parameters(name, later, plain_parameter)
        result = str(inspect.signature(called).return_annotation)
    else:
        doc, found = documentation(called)
        params, result = parameters(called.__name__, later), found or "Tensor"
    return function(name, params, result, " ".join(doc.split()), "    ", hidden=True)


def plain_parameter(_owner: str, p: inspect.Parameter) -> str:
    """A parameter of a function of the package, whose annotation is a string."""
    stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    kind = str(p.annotation)
    value = "" if p.default is p.empty else f" = {default(p.default)}"
    return f"{stars}{p.name}: {kind}{value}"


def required(owner: str, result: str | None) -> str:
    """A type that the documentation has to give."""
    if result is None:
        raise SystemExit(f"{owner}: end its documentation with 'Returns: TYPE.'")
    return result


def class_stub(cls: type) -> str:
    """A class with its constructor, properties and methods, by name."""
    doc, _ = documentation(cls)
    final = "@disjoint_base\n" if cls.__flags__ & BASETYPE else "@final\n"
    bases = [b.__name__ for b in cls.__bases__ if b is not object]
    out = [f"{final}class {cls.__name__}{'(' + ', '.join(bases) + ')' if bases else ''}:\n"]
    out.append(docstring(doc, "    ") + "\n")
    if "__new__" in vars(cls):
        params = ["cls", *parameters(cls.__name__, cls)]
        out.append(function("__new__", params, cls.__name__, "", "    "))
    comparisons = {"__lt__", "__le__", "__gt__", "__ge__"}
    for name, value in sorted(vars(cls).items()):
        # Classes that compare for equality only have the other slots, too, and refuse.
        ordered = cls.__name__ in ("Tensor", "SymbolicDim", "SymbolicFloat")
        unordered = name in comparisons and not ordered
        if name in INHERITED or unordered:
            continue
        if isinstance(value, float):
            out.append(f"    {name}: builtins.float\n")
            continue
        if value is None:
            out.append(f"    {name}: None\n")
            continue
        if isinstance(value, LaterMethod):
            out.append(later_method(name, value))
            continue
        if isinstance(value, property):
            doc = " ".join((value.__doc__ or "").split())
            text = function(name, ["self"], "Tensor", doc, "    ", hidden=True)
            out.append(f"    @property\n{text}")
            continue
        if name == "__getattr__" and cls.__name__ == "Tensor":
            continue  # It only raises, and would give every name a type.
        thing = value if inspect.isgetsetdescriptor(value) else getattr(cls, name)
        out.append(method(cls, name, thing))
    return "".join(out) + "\n"


def stubs() -> str:
    """The whole file. Sorted by name, so that changes to different functions do not touch."""
    from girih import _girih

    # `bool`, `max`, ... of the module are shadowed only where annotations do not use them.
    things = {
        n: v for n, v in sorted(vars(_girih).items()) if not n.startswith("_") and n != "bool"
    }
    constants = {n: v for n, v in things.items() if type(v).__name__ == "DType"}
    classes = [v for v in things.values() if isinstance(v, type)]
    public = sorted(n for n in _girih.__all__)
    out = [HEAD, "__all__ = [\n", *(f'    "{n}",\n' for n in public), "]\n\n__version__: str\n"]
    out += [f"{name}: DType\n" for name in constants]
    out += ["\n", *(class_stub(cls) for cls in classes)]
    for name, thing in things.items():
        if callable(thing) and not isinstance(thing, type):
            doc, result = documentation(thing)
            for params, gives in OVERLOADS.get(name, []):
                out.append("@overload\n" + function(name, params, gives, doc))
            if name in OVERLOADS:
                continue
            out.append(function(name, parameters(name, thing), result or "Tensor", doc))
    return "".join(out)


def main() -> int:
    """Writes the file, or with --check says whether it is up to date."""
    text = stubs()
    if "--check" in sys.argv[1:]:
        if PATH.read_text() != text:
            print(f"{PATH} is not what scripts/stubs.py writes; run `make stubs`", file=sys.stderr)
            return 1
        return 0
    PATH.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

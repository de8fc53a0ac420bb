"""Writes python/girih/_girih.pyi, the stubs of the extension module.

Most operations exist twice, as a function and as a method; one row here gives both. Run it with
``make stubs``; ``make test`` runs it with ``--check`` and compares the result with the extension
by stubtest.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

PATH = Path(__file__).parent.parent / "python" / "girih" / "_girih.pyi"
EXTENSION = Path(__file__).parent.parent / "crates" / "python" / "src" / "lib.rs"

AXES = "axis: _Axes = ..., keepdims: _Flag = ..., *, dim: _Axes = ..., keepdim: _Flag = ..."
AXIS = "axis: int | None = ..., *, dim: int | None = ..."
ARG = (
    "axis: int | None = ..., keepdims: _Flag = ..., *, dim: int | None = ..., keepdim: _Flag = ..."
)

UNARY = {
    "abs": "Absolute value. Integers wrap at their smallest value.",
    "sign": "-1, 0 or 1; NaN for NaN.",
    "floor": "Largest integer not above each element. Integers are returned as they are.",
    "ceil": "Smallest integer not below each element. Integers are returned as they are.",
    "round": "Nearest integer, halves to even. Integers are returned as they are.",
    "trunc": "Integer part. Integers are returned as they are.",
    "square": "``x * x``.",
    "reciprocal": "``1 / x``.",
    "exp": "Exponential.",
    "expm1": "``exp(x) - 1``, precise near 0.",
    "exp2": "``2**x``.",
    "log": "Natural logarithm; NaN below 0, -inf at 0.",
    "log1p": "``log(1 + x)``, precise near 0.",
    "log2": "Logarithm to base 2.",
    "log10": "Logarithm to base 10.",
    "sqrt": "Square root; NaN below 0.",
    "rsqrt": "``1 / sqrt(x)``.",
    "sin": "Sine.",
    "cos": "Cosine.",
    "tan": "Tangent.",
    "asin": "Inverse sine.",
    "acos": "Inverse cosine.",
    "atan": "Inverse tangent.",
    "sinh": "Hyperbolic sine.",
    "cosh": "Hyperbolic cosine.",
    "tanh": "Hyperbolic tangent.",
    "asinh": "Inverse hyperbolic sine.",
    "acosh": "Inverse hyperbolic cosine.",
    "atanh": "Inverse hyperbolic tangent.",
    "erf": "Error function.",
    "isnan": "Whether each element is NaN. Dtype: bool.",
    "isinf": "Whether each element is infinite. Dtype: bool.",
    "isfinite": "Whether each element is neither NaN nor infinite. Dtype: bool.",
    "logical_not": "Whether each element is zero. Dtype: bool.",
    "relu": "``max(x, 0)``; NaN for NaN.",
    "sigmoid": "``1 / (1 + exp(-x))``.",
    "log_sigmoid": "``log(sigmoid(x))``, without overflow.",
    "silu": "``x * sigmoid(x)``.",
    "softplus": "``log(1 + exp(x))``, without overflow.",
}

# Functions of one tensor that are methods as well: name, other parameters, sentence.
BOTH = [
    ("sum", AXES.replace("*,", "*, dtype: DType | str | None = ...,"), "Sum over axes, all by default. Integers and bool are summed in int64."),
    ("prod", AXES.replace("*,", "*, dtype: DType | str | None = ...,"), "Product over axes, all by default. Integers and bool are multiplied in int64."),
    ("mean", AXES, "Mean over axes, all by default; NaN over nothing. Integers give float32."),
    ("max", AXES, "Largest element over axes, all by default; NaN wins. Over nothing a ShapeError."),
    ("min", AXES, "Smallest element over axes, all by default; NaN wins. Over nothing a ShapeError."),
    ("any", AXES, "Whether any element is nonzero, over axes, all by default. Dtype: bool."),
    ("all", AXES, "Whether all elements are nonzero, over axes, all by default. Dtype: bool."),
    ("argmax", ARG, "Index of the first largest element along an axis, or of the flattened tensor. Dtype: int64."),
    ("argmin", ARG, "Index of the first smallest element along an axis, or of the flattened tensor. Dtype: int64."),
    ("var", AXES.replace("*,", "*, correction: float | None = ...,"), "Variance over axes, all by default; the sum of squares is divided by ``n - correction``, n by default."),
    ("std", AXES.replace("*,", "*, correction: float | None = ...,"), "Standard deviation over axes; see var."),
    ("logsumexp", AXES, "``log(sum(exp(x)))`` over axes, without overflow; -inf over nothing."),
    ("squeeze", "axis: _Axes = ..., *, dim: _Axes = ...", "Drops axes of size one: those named, or all."),
    ("unsqueeze", AXIS, "Inserts an axis of size one."),
    ("flip", "axis: _Axes = ..., *, dim: _Axes = ...", "Reverses axes, all by default."),
    ("softmax", AXIS, "Exponentials normalised to sum to one along an axis, the last by default."),
    ("log_softmax", AXIS, "Logarithm of softmax, without underflow."),
    ("gelu", "approximate: Literal['none', 'tanh'] = ...", "``x * Phi(x)``, by erf or by the tanh formula."),
    ("clip", "min: _TensorLike | None = ..., max: _TensorLike | None = ...", "Elements limited to ``min..max``; either may be missing."),
    ("matmul", "other: _TensorLike", "Matrix product of all ranks, as NumPy's. Shapes: [..., m, k] and [..., k, n] -> [..., m, n]; leading axes broadcast."),
    ("take", "indices: _TensorLike, " + AXIS, "Elements at integer indices along an axis, or of the flattened tensor. Negative indices count from the end; others out of range raise when evaluated."),
    ("take_along_axis", "indices: _TensorLike, " + AXIS, "Elements at integer indices along an axis, position by position."),
    ("gather", "indices: _TensorLike, " + AXIS, "Same as take_along_axis."),
]  # fmt: skip

BINARY = {
    "add": "Sum.",
    "subtract": "Difference.",
    "multiply": "Product.",
    "divide": "True quotient; integers give float32.",
    "floor_divide": "Quotient rounded down.",
    "remainder": "Remainder with the sign of the divisor.",
    "power": "``a ** b``.",
    "maximum": "Larger of two elements; NaN wins.",
    "minimum": "Smaller of two elements; NaN wins.",
    "atan2": "Angle of the point (b, a).",
    "equal": "``a == b``. Dtype: bool.",
    "not_equal": "``a != b``. Dtype: bool.",
    "less": "``a < b``. Dtype: bool.",
    "less_equal": "``a <= b``. Dtype: bool.",
    "greater": "``a > b``. Dtype: bool.",
    "greater_equal": "``a >= b``. Dtype: bool.",
    "logical_and": "Whether both are nonzero. Dtype: bool.",
    "logical_or": "Whether either is nonzero. Dtype: bool.",
    "logical_xor": "Whether exactly one is nonzero. Dtype: bool.",
    "bitwise_and": "Bits set in both. Dtypes: integers and bool.",
    "bitwise_or": "Bits set in either. Dtypes: integers and bool.",
    "bitwise_xor": "Bits set in one. Dtypes: integers and bool.",
}

FREE = [
    ("bitwise_not", "x: _TensorLike", "Tensor", "Bits flipped. Dtypes: integers and bool."),
    ("where", "condition: _TensorLike, x: _TensorLike, y: _TensorLike", "Tensor", "Elements of x where the condition holds, of y elsewhere; all broadcast."),
    ("reshape", "x: _TensorLike, *shape: int | Sequence[int]", "Tensor", "The same elements under another shape; one size may be -1."),
    ("permute", "x: _TensorLike, *axes: int | Sequence[int]", "Tensor", "Axes in the given order."),
    ("transpose", "x: _TensorLike, *axes: int | Sequence[int]", "Tensor", "Axes in the given order; two ints exchange those axes; none reverses all."),
    ("swapaxes", "x: _TensorLike, axis1: int, axis2: int", "Tensor", "Two axes exchanged."),
    ("broadcast_to", "x: _TensorLike, *shape: int | Sequence[int]", "Tensor", "Stretched to a shape."),
    ("expand_dims", "x: _TensorLike, " + AXIS, "Tensor", "Inserts an axis of size one."),
    ("concat", "tensors: Sequence[_TensorLike], axis: int | None = ..., *, dim: int | None = ...", "Tensor", "Tensors one after the other along an axis. Dtypes promote."),
    ("concatenate", "tensors: Sequence[_TensorLike], axis: int | None = ..., *, dim: int | None = ...", "Tensor", "Same as concat."),
    ("stack", "tensors: Sequence[_TensorLike], axis: int | None = ..., *, dim: int | None = ...", "Tensor", "Tensors of one shape side by side along a new axis."),
    ("split", "x: _TensorLike, sections: int | Sequence[int], axis: int | None = ..., *, dim: int | None = ...", "list[Tensor]", "An int cuts into that many equal parts; a sequence gives the indices to cut at, as NumPy's."),
    ("pad", "x: _TensorLike, widths: int | Sequence[int] | Sequence[Sequence[int]], value: float = ...", "Tensor", "A border of a value: one width, one (before, after), or one per axis."),
    ("one_hot", "indices: _TensorLike, num_classes: int, *, dtype: DType | str | None = ...", "Tensor", "One at each index along a new last axis, zero elsewhere; float32 by default."),
    ("arange", "start: float, stop: float | None = ..., step: float = ..., *, dtype: DType | str | None = ...", "Tensor", "Evenly spaced numbers up to but not including stop; int64, or float32 if any is a float."),
    ("linspace", "start: float, stop: float, num: int = ..., *, endpoint: bool = ..., dtype: DType | str | None = ...", "Tensor", "num evenly spaced numbers from start to stop."),
    ("eye", "n: int, m: int | None = ..., k: int = ..., *, dtype: DType | str | None = ...", "Tensor", "Ones on the k-th diagonal, zeros elsewhere."),
    ("full", "shape: int | Sequence[int], value: float, *, dtype: DType | str | None = ...", "Tensor", "All one value, which may be a tensor that broadcasts to the shape."),
    ("zeros", "*shape: int | Sequence[int], dtype: DType | str | None = ...", "Tensor", "All zero; float32 by default."),
    ("ones", "*shape: int | Sequence[int], dtype: DType | str | None = ...", "Tensor", "All one; float32 by default."),
    ("full_like", "x: _TensorLike, value: float, *, dtype: DType | str | None = ...", "Tensor", "All one value, in the shape and dtype of x."),
    ("zeros_like", "x: _TensorLike, *, dtype: DType | str | None = ...", "Tensor", "All zero, in the shape and dtype of x."),
    ("ones_like", "x: _TensorLike, *, dtype: DType | str | None = ...", "Tensor", "All one, in the shape and dtype of x."),
    ("asarray", "value: object, dtype: DType | str | None = ..., *, copy: bool | None = ...", "Tensor", "A tensor of numbers, nested sequences, or an array of another library. Arrays whose memory is row-major are shared, not copied, and must not change while the tensor lives; copy=True copies them. Python floats give float32, ints int64, bools bool. Never a literal of the graph: other values are the same program."),
    ("tensor", "value: object, dtype: DType | str | None = ...", "Tensor", "asarray with a copy."),
    ("from_dlpack", "value: object, /, *, device: object = ..., copy: bool | None = ...", "Tensor", "A tensor over the memory of an object with __dlpack__."),
    ("randn", "*shape: int | Sequence[int], dtype: DType | str | None = ...", "Tensor", "Standard normal draws; float32 by default."),
    ("rand", "*shape: int | Sequence[int], dtype: DType | str | None = ...", "Tensor", "Uniform draws in [0, 1); float32 by default."),
    ("randint", "low: int, high: int | None = ..., shape: int | Sequence[int] = ..., *, dtype: DType | str | None = ...", "Tensor", "Uniform integers in low..high (0..low with one bound); int64 by default."),
    ("manual_seed", "seed: int", "None", "Restarts the random numbers: the same seed gives the same numbers, in the order recorded."),
    ("layer_norm", "x: _TensorLike, normalized_shape: int | Sequence[int], weight: _TensorLike | None = ..., bias: _TensorLike | None = ..., eps: float = ...", "Tensor", "Normalises over the last axes (their sizes, or how many), then scales and shifts."),
    ("cross_entropy", "logits: _TensorLike, labels: _TensorLike, reduction: Literal['mean', 'sum', 'none'] = ...", "Tensor", "-log_softmax(logits)[label]. Shapes: [..., classes] and [...]."),
    ("stop_gradient", "x: _TensorLike", "Tensor", "The same value, held constant by gradients."),
    ("eval_many", "tensors: list[Tensor]", "None", "Evaluates tensors in one run."),
    ("async_eval_many", "tensors: list[Tensor]", "None", "Starts evaluating tensors in one run."),
    ("compile_graph", "tensors: list[Tensor], optimize: bool", "CompilationInfo", "Compiles without running."),
    ("graph_stats", "tensors: list[Tensor]", "tuple[int, int, int]", "Nodes, ops and bytes of the graph that leads to tensors."),
    ("graph_text", "tensors: list[Tensor]", "str", "The graph that leads to tensors, as text."),
    ("current_graph", "", "Graph", "The graph this thread records into."),
    ("create_graph", "", "Graph", "A new graph."),
    ("push_graph", "graph: Graph | None = ...", "Graph", "Enters a graph, a fresh one for None; gives the one before, for pop_graph."),
    ("pop_graph", "previous: Graph", "None", "Goes back to the graph that push_graph gave."),
    ("cache_stats", "", "dict[str, int]", "Counters of the program cache and the runtime."),
    ("clear_cache", "", "None", "Forgets compiled programs."),
    ("set_num_threads", "threads: int", "None", "How many threads kernels may use."),
    ("reset_peak_memory", "", "None", "Starts peak_memory_bytes anew from what is in use."),
    ("compile_options", "", "tuple[int, int]", "Which passes and kinds of fusion run, as bit sets."),
    ("set_compile_options", "passes: int, fusion: int", "None", "Sets which passes and kinds of fusion run."),
    ("compile_options_without", "names: list[str]", "tuple[int, int]", "The bit sets of everything but the named."),
    ("line_plot", "title: str, x_label: str, y_label: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]]", "str", "A line plot as SVG text."),
]  # fmt: skip

METHODS = [
    ("reshape", "*shape: int | Sequence[int]", "Tensor", "The same elements under another shape; one size may be -1."),
    ("permute", "*axes: int | Sequence[int]", "Tensor", "Axes in the given order."),
    ("transpose", "*axes: int | Sequence[int]", "Tensor", "Axes in the given order; two ints exchange those axes; none reverses all."),
    ("swapaxes", "axis1: int, axis2: int", "Tensor", "Two axes exchanged."),
    ("expand", "*shape: int | Sequence[int]", "Tensor", "Same as broadcast_to."),
    ("broadcast_to", "*shape: int | Sequence[int]", "Tensor", "Stretched to a shape."),
    ("flatten", "", "Tensor", "All elements along one axis."),
    ("astype", "dtype: DType | str", "Tensor", "Cast to another dtype."),
    ("to", "dtype: DType | str", "Tensor", "Same as astype."),
    ("detach", "", "Tensor", "The same value, held constant by gradients."),
    ("eval", "", "Tensor", "Computes the value, now; returns the tensor itself."),
    ("execute", "", "Tensor", "Same as eval."),
    ("realize", "", "Tensor", "Same as eval."),
    ("materialize", "", "Tensor", "Same as eval."),
    ("item", "", "Any", "The only element as a Python number. Evaluates."),
    ("tolist", "", "Any", "The elements as nested lists. Evaluates."),
    ("numpy", "", "Any", "The elements as a NumPy array. Evaluates."),
    ("__array__", "dtype: Any = ..., copy: bool | None = ...", "Any", ""),
    ("__dlpack__", "*, stream: Any = ..., max_version: tuple[int, int] | None = ..., dl_device: tuple[int, int] | None = ..., copy: bool | None = ...", "Any", ""),
    ("__dlpack_device__", "", "tuple[int, int]", ""),
    ("__getitem__", "key: Any, /", "Tensor", ""),
    ("__len__", "", "int", ""),
    ("__iter__", "", "Iterator[Tensor]", ""),
    ("__bool__", "", "bool", ""),
    ("__int__", "", "int", ""),
    ("__float__", "", "float", ""),
    ("__index__", "", "int", ""),
    ("__hash__", "", "int", ""),
    ("__copy__", "", "Tensor", ""),
    ("__deepcopy__", "memo: Any, /", "Tensor", ""),
    ("__reduce__", "", "tuple[Any, ...]", ""),
    ("__neg__", "", "Tensor", ""),
    ("__abs__", "", "Tensor", ""),
    ("__invert__", "", "Tensor", ""),
]  # fmt: skip

OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"]
COMPARISONS = ["lt", "le", "gt", "ge"]

PROPERTIES = [
    ("shape", "tuple[int, ...]", "Sizes of the axes."),
    ("dtype", "DType", "Element type."),
    ("ndim", "int", "Number of axes."),
    ("size", "int", "Number of elements."),
    ("nbytes", "int", "Bytes of all elements."),
    ("device", "str", 'Where the value lives: "cpu".'),
    ("is_lazy", "bool", "Whether there is no value yet."),
    ("T", "Tensor", "Axes reversed."),
    ("mT", "Tensor", "The last two axes exchanged."),
]

DTYPES = [
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]

HEAD = '''\
# Generated by scripts/stubs.py; run `make stubs` after changing it.
"""Girih's extension module: tensors, operations and the runtime behind them."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, SupportsFloat, TypeAlias, final

_Axes: TypeAlias = int | Sequence[int] | None
_Flag: TypeAlias = bool | None
# What becomes an operand: tensors, Python numbers, nested sequences, arrays of other libraries.
_TensorLike: TypeAlias = Tensor | SupportsFloat | Sequence[Any] | Any

__all__ = []

__version__: str
'''

CLASSES = '''
@final
class DType:
    """An element type. Equal only to itself; comparing it with anything else is False."""

    def __new__(cls, name: str) -> DType: ...
    @property
    def name(self) -> str:
        """Name, such as "float32"."""
    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Graph:
    """A recording graph: the scope in which nodes were made. It keeps nothing alive."""

    @property
    def id(self) -> int:
        """A number no other graph of the process has."""
    @property
    def num_nodes(self) -> int:
        """Nodes recorded here so far."""
    @property
    def live_nodes(self) -> int:
        """Those that still exist."""

@final
class CompilationInfo:
    """What compiling a graph gave."""

    @property
    def compile_time_ms(self) -> float:
        """Milliseconds from the recorded graph to the plan."""
    @property
    def num_nodes(self) -> int:
        """Nodes as recorded."""
    @property
    def num_nodes_optimized(self) -> int:
        """Nodes after the passes."""
    @property
    def num_kernels(self) -> int:
        """Kernels the plan launches."""
    @property
    def graph_text(self) -> str:
        """The graph as recorded."""
    @property
    def optimized_text(self) -> str:
        """The graph after the passes."""
    @property
    def kernels_text(self) -> str:
        """The kernels."""
    def optimized_svg(self) -> str:
        """A drawing of the graph after the passes."""

@final
class Trace:
    """One function being differentiated: its placeholders and, at the end, its gradients."""

    def __new__(cls) -> Trace: ...
    def placeholder(self, like: Tensor) -> Tensor:
        """A tensor of that shape and dtype without a value."""
    def value_and_grad(
        self, output: Tensor, wrt: list[Tensor], aux: list[Tensor], args: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Value, gradients and aux with args in place of the placeholders, recorded lazily."""
'''


def function(name: str, params: str, result: str, doc: str, indent: str = "") -> str:
    """One stub; the docstring is its body."""
    line = f"{indent}def {name}({params}) -> {result}:"
    if len(line) > 100:
        parts = [p.strip() for p in split(params)]
        line = f"{indent}def {name}(\n"
        line += "".join(f"{indent}    {p},\n" for p in parts) + f"{indent}) -> {result}:"
    if not doc:
        return f"{line} ...\n"
    inner = indent + "    "
    if len(doc) + len(inner) + 6 <= 100:
        return f'{line}\n{inner}"""{doc}"""\n'
    text = textwrap.fill(f'"""{doc}', 100, initial_indent=inner, subsequent_indent=inner)
    return f'{line}\n{text}\n{inner}"""\n'


def split(params: str) -> list[str]:
    """Parameters at the commas outside brackets."""
    out, depth = [""], 0
    for c in params:
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            out.append("")
        else:
            out[-1] += c
    return out


def stubs() -> str:
    """The whole file."""
    out = [HEAD]
    # `bool` is a dtype here, and `sum`, `max`, ... are functions: builtins stay reachable below
    # because annotations never use those names.
    out += [f"{name}: DType\n" for name in DTYPES]
    out.append(CLASSES)
    out.append(
        '\n@final\nclass Tensor:\n    """A lazy tensor: a handle of a value that is computed when needed."""\n\n'
    )
    for name, result, doc in PROPERTIES:
        out.append("    @property\n" + function(name, "self", result, doc, "    "))
    for name, params, result, doc in METHODS:
        out.append(function(name, f"self, {params}" if params else "self", result, doc, "    "))
    for op in OPERATORS:
        third = ", mod: None = None" if op == "pow" else ""
        out.append(
            f"    def __{op}__(self, value: Any, {'mod: Any = None, ' if third else ''}/) -> Tensor: ...\n"
        )
        out.append(
            f"    def __r{op}__(self, value: Any, {'mod: Any = None, ' if third else ''}/) -> Tensor: ...\n"
        )
    for op in COMPARISONS:
        out.append(f"    def __{op}__(self, value: Any, /) -> Tensor: ...\n")
    for op in ("eq", "ne"):
        out.append(
            f"    def __{op}__(self, value: Any, /) -> Tensor: ...  # type: ignore[override]\n"
        )
    for name, doc in UNARY.items():
        out.append(function(name, "self", "Tensor", doc, "    "))
    for name, params, doc in BOTH:
        out.append(function(name, f"self, {params}", "Tensor", doc, "    "))
    out.append("\n")
    for name, doc in UNARY.items():
        out.append(function(name, "x: _TensorLike", "Tensor", doc))
    for name, doc in BINARY.items():
        out.append(function(name, "a: _TensorLike, b: _TensorLike", "Tensor", doc))
    for name, params, doc in BOTH:
        first = "a: _TensorLike" if name == "matmul" else "x: _TensorLike"
        params = params.replace("other:", "b:") if name == "matmul" else params
        out.append(function(name, f"{first}, {params}", "Tensor", doc))
    for name, params, result, doc in FREE:
        out.append(function(name, params, result, doc))
    text = "".join(out)
    names = re.findall(r"^(?:class |def )?([A-Za-z]\w*)(?:\(|:)", text, re.MULTILINE)
    public = sorted({*names, "__version__"} - internal())
    return text.replace("__all__ = []", "__all__ = [" + ", ".join(f'"{n}"' for n in public) + "]")


def internal() -> set[str]:
    """The names that the extension keeps for the package's own modules."""
    rust = EXTENSION.read_text()
    names = rust[rust.index("const INTERNAL") : rust.index("];")]
    return set(re.findall(r'"(\w+)"', names))


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

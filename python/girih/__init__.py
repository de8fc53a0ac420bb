"""Girih: a lazy tensor compiler and runtime.

    import girih as gr

Operations on tensors record a graph. When a value is needed (because it is printed, converted, or
passed to ``gr.eval``), the graph is optimised, compiled to a few kernels and run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _girih, errors, later, tree
from ._girih import *
from ._girih import bool_
from .batching import vmap
from .collectives import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
)
from .compiled import CompiledFunction, Dim, compile
from .control import cond, fori_loop, scan, switch, while_loop
from .derivatives import (
    hessian,
    hvp,
    jacfwd,
    jacrev,
    jvp,
    linear_transpose,
    linearize,
    vjp,
)
from .devices import (
    Device,
    MemoryStats,
    device,
    devices,
    memory_stats,
    reset_peak_memory_stats,
    warmup,
)
from .dtypes import (
    __array_namespace_info__,
    astype,
    can_cast,
    finfo,
    iinfo,
    isdtype,
    result_type,
)
from .errors import (
    AxisError,
    CheckError,
    CopyRequiredError,
    DeviceError,
    DTypeError,
    EvaluationCancelledError,
    EvaluationError,
    EvaluationTimeoutError,
    FormatError,
    GirihError,
    IndexOutOfBoundsError,
    InvalidArgumentError,
    LinAlgError,
    MissingNameError,
    OutOfMemoryError,
    ShapeError,
    TracedValueError,
)
from .executor import (
    Context,
    ExecutionResult,
    Executor,
    ExecutorConfig,
    Profile,
    use_executor,
)
from .explanation import Explanation, explain
from .forms import (
    deserialize,
    dump_graphviz,
    graph_to_dot,
    graph_to_text,
    load,
    load_graph,
    make_graph,
    save,
    save_graph,
    savez,
    savez_compressed,
    serialize,
    text_to_graph,
)
from .lazy import (
    async_eval,
    cache_stats,
    clear_cache,
    compile_graph,
    compile_only,
    create_graph,
    current_graph,
    eval,
    get_graph_stats,
    graph_scope,
    is_lazy,
    print_graph,
    reuse_graph,
    with_passes,
    without_passes,
)
from .loops import associative_scan, map
from .rollback import rollback
from .rules import (
    checkpoint,
    checkpoint_name,
    custom_jvp,
    custom_vjp,
    optimization_barrier,
    stop_gradient,
)
from .scopes import (
    debug_nans,
    eager_mode,
    enable_grad,
    is_eager,
    is_grad_enabled,
    named_scope,
    no_grad,
    set_debug_nans,
    set_eager,
    set_source_lines,
    stream,
    verify_shapes,
)
from .transforms import grad, value_and_grad

if TYPE_CHECKING:
    from . import amp, data, debug, fft, layout, linalg, nn, optim, random, special
    from .arranging import *
    from .callbacks import ShapeDtypeStruct, io_callback, pure_callback
    from .custom import CustomOp, custom_op
    from .elementary import *
    from .exporting import Executable, Lowered, export, load_executable
    from .grids import *
    from .linear import *
    from .meshes import (
        implicit_reshards,
        mesh_mode,
        shard,
        shard_map,
        with_sharding_constraint,
    )
    from .ordering import *
    from .passes import GraphPass, graph_pass
    from .products import convolve, gather_mm, segmented_mm
    from .profiling import Span, profile
    from .segments import *
    from .selection import *
    from .sets import *
    from .shapes import eval_shape

bool = bool_

# The array API standard: https://data-apis.org/array-api/2025.12
__array_api_version__ = "2025.12"
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None
pi = 3.141592653589793
pow = power

#: Modules that are not needed for computing, which are imported when they are first named.
_MODULES = frozenset(
    ("amp", "data", "debug", "fft", "layout", "linalg", "nn", "optim", "random", "special")
)
#: Names that few programs need, with their modules, which are imported at first use.
_LATER = {
    **dict.fromkeys(["ShapeDtypeStruct", "io_callback", "pure_callback"], "callbacks"),
    **dict.fromkeys(["CustomOp", "custom_op"], "custom"),
    **dict.fromkeys(["Executable", "Lowered", "export", "load_executable"], "exporting"),
    **dict.fromkeys(["GraphPass", "graph_pass"], "passes"),
    **dict.fromkeys(["Span", "profile"], "profiling"),
    **{name: module for module, names in later.FUNCTIONS.items() for name in names.split()},
}

# All names of the extension are public here; the other names belong to this package.
__all__ = [
    "amp",
    "CheckError",
    "CustomOp",
    "ShapeDtypeStruct",
    "custom_op",
    "debug",
    "io_callback",
    "pure_callback",
    "checkpoint",
    "checkpoint_name",
    "custom_jvp",
    "custom_vjp",
    "hessian",
    "hvp",
    "make_graph",
    "GraphPass",
    "graph_pass",
    "jacfwd",
    "jacrev",
    "jvp",
    "linear_transpose",
    "linearize",
    "optimization_barrier",
    "stop_gradient",
    "vjp",
    "vmap",
    "all_gather",
    "all_to_all",
    "axis_index",
    "axis_size",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "pshuffle",
    "psum",
    "psum_scatter",
    "associative_scan",
    "map",
    "while_loop",
    "switch",
    "scan",
    "fori_loop",
    "cond",
    "debug_nans",
    "set_debug_nans",
    "verify_shapes",
    "use_executor",
    "set_source_lines",
    "stream",
    "memory_stats",
    "named_scope",
    "set_eager",
    "is_eager",
    "is_grad_enabled",
    "enable_grad",
    "no_grad",
    "eager_mode",
    "compile_only",
    "Executable",
    "Lowered",
    "export",
    "load_executable",
    "Profile",
    "Span",
    "ExecutorConfig",
    "Executor",
    "ExecutionResult",
    "EvaluationTimeoutError",
    "EvaluationCancelledError",
    "Context",
    "AxisError",
    "CopyRequiredError",
    "CompiledFunction",
    "Dim",
    "DTypeError",
    "Device",
    "DeviceError",
    "EvaluationError",
    "Explanation",
    "FormatError",
    "GirihError",
    "IndexOutOfBoundsError",
    "InvalidArgumentError",
    "LinAlgError",
    "MissingNameError",
    "MemoryStats",
    "OutOfMemoryError",
    "ShapeError",
    "TracedValueError",
    "__array_api_version__",
    "__array_namespace_info__",
    "astype",
    "async_eval",
    "bool",
    "cache_stats",
    "can_cast",
    "clear_cache",
    "compile",
    "compile_graph",
    "convolve",
    "create_graph",
    "current_graph",
    "data",
    "deserialize",
    "device",
    "devices",
    "dump_graphviz",
    "e",
    "errors",
    "eval",
    "explain",
    "fft",
    "finfo",
    "gather_mm",
    "get_graph_stats",
    "grad",
    "graph_scope",
    "graph_to_dot",
    "graph_to_text",
    "iinfo",
    "inf",
    "is_lazy",
    "isdtype",
    "layout",
    "linalg",
    "load",
    "load_graph",
    "nan",
    "newaxis",
    "nn",
    "optim",
    "pi",
    "pow",
    "print_graph",
    "random",
    "reset_peak_memory_stats",
    "result_type",
    "reuse_graph",
    "profile",
    "rollback",
    "save",
    "save_graph",
    "savez",
    "savez_compressed",
    "segmented_mm",
    "serialize",
    "text_to_graph",
    "tree",
    "value_and_grad",
    "warmup",
    "with_passes",
    "without_passes",
    "special",
    "eval_shape",
    "AMinMax",
    "KthValue",
    "Mode",
    "aminmax",
    "append",
    "argpartition",
    "average",
    "block",
    "block_diag",
    "chunk",
    "delete",
    "diag_embed",
    "diag_indices",
    "dsplit",
    "ediff1d",
    "fromfunction",
    "geomspace",
    "gradient",
    "hsplit",
    "identity",
    "insert",
    "ix_",
    "kthvalue",
    "lexsort",
    "logspace",
    "mode",
    "msort",
    "narrow",
    "partition",
    "ptp",
    "ravel_multi_index",
    "std_mean",
    "tril_indices",
    "triu_indices",
    "unflatten",
    "unravel_index",
    "unwrap",
    "var_mean",
    "vsplit",
    "addcdiv",
    "addcmul",
    "bitwise_count",
    "cbrt",
    "deg2rad",
    "divmod",
    "float_power",
    "fmax",
    "fmin",
    "frac",
    "frexp",
    "gcd",
    "heaviside",
    "iscomplex",
    "isneginf",
    "isposinf",
    "isreal",
    "lcm",
    "ldexp",
    "lerp",
    "log_cosh",
    "logaddexp2",
    "modf",
    "polar",
    "rad2deg",
    "view_as_complex",
    "view_as_real",
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "cartesian_prod",
    "cdist",
    "combinations",
    "correlate",
    "dist",
    "matvec",
    "vecmat",
    "diagonal_scatter",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "index_select",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "implicit_reshards",
    "mesh_mode",
    "shard",
    "shard_map",
    "with_sharding_constraint",
    "select_scatter",
    "slice_scatter",
    "intersect1d",
    "setdiff1d",
    "setxor1d",
    "trim_zeros",
    "union1d",
    "unique_consecutive",
]
__all__ += _girih.__all__

later.install()


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if (module := _LATER.get(name)) is not None:
        value: object = getattr(import_module(f".{module}", __name__), name)
        globals()[name] = value
        return value
    return import_module(".synonyms", __name__).attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Girih: a lazy tensor compiler and runtime.

    import girih as gr

Operations on tensors record a graph. When a value is needed (because it is printed, converted, or
passed to ``gr.eval``), the graph is optimised, compiled to a few kernels and run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _girih, errors, tree
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
    from . import amp, data, debug, fft, linalg, nn, optim, random
    from .callbacks import ShapeDtypeStruct, io_callback, pure_callback
    from .custom import CustomOp, custom_op
    from .exporting import Executable, Lowered, export, load_executable
    from .passes import GraphPass, graph_pass
    from .products import convolve, gather_mm, segmented_mm
    from .profiling import Span, profile

bool = bool_

# The array API standard: https://data-apis.org/array-api/2025.12
__array_api_version__ = "2025.12"
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None
pi = 3.141592653589793
pow = power

#: Names that few programs need, with their modules, which are imported at first use.
_LATER = {
    **dict.fromkeys(["ShapeDtypeStruct", "io_callback", "pure_callback"], "callbacks"),
    **dict.fromkeys(["CustomOp", "custom_op"], "custom"),
    **dict.fromkeys(["Executable", "Lowered", "export", "load_executable"], "exporting"),
    **dict.fromkeys(["GraphPass", "graph_pass"], "passes"),
    **dict.fromkeys(["Span", "profile"], "profiling"),
    **dict.fromkeys(["convolve", "gather_mm", "segmented_mm"], "products"),
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
    "segmented_mm",
    "serialize",
    "text_to_graph",
    "tree",
    "value_and_grad",
    "warmup",
    "with_passes",
    "without_passes",
]
__all__ += _girih.__all__


def __getattr__(name: str) -> object:
    from importlib import import_module

    # Modules that are not needed for computing are imported when they are first named.
    if name in ("amp", "data", "debug", "fft", "linalg", "nn", "optim", "random"):
        return import_module(f".{name}", __name__)
    if (module := _LATER.get(name)) is not None:
        value: object = getattr(import_module(f".{module}", __name__), name)
        globals()[name] = value
        return value
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    synonyms = import_module(".synonyms", __name__)
    if (meant := synonyms.ALIASES.get(name)) is not None:
        from operator import attrgetter

        return attrgetter(meant)(import_module(__name__))
    raise synonyms.missing(__name__, name, synonyms.HINTS)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

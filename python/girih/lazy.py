"""Control over laziness: when graphs are evaluated, how they look, where they are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from . import _girih, tree
from ._girih import Compilation, CompilationInfo, Graph, Tensor
from .errors import InvalidArgumentError
from .scopes import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from ._girih import GraphPass
    from .exporting import Executable
    from .tree import PyTree

__all__ = [
    "async_eval",
    "cache_stats",
    "clear_cache",
    "compile_graph",
    "compile_only",
    "create_graph",
    "current_graph",
    "eval",
    "get_graph_stats",
    "graph_scope",
    "is_lazy",
    "print_graph",
    "reuse_graph",
    "with_passes",
    "without_passes",
]


def _tensors(value: PyTree) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    found: list[Tensor] = []
    for leaf in tree.leaves(value):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif isinstance(leaf, Graph):
            found += leaf.unrealized()
    return found


def _some_tensors(value: PyTree, function: str) -> list[Tensor]:
    tensors = _tensors(value)
    if not tensors:
        raise InvalidArgumentError(
            f"{function}: expected a tensor or a tree of tensors, got {value!r}"
        )
    return tensors


@overload
def eval(
    *trees: PyTree, inputs: Sequence[Tensor] = (), return_model: Literal[True]
) -> Executable: ...
@overload
def eval(*trees: PyTree, return_model: Literal[False] = False) -> Any: ...
def eval(*trees: PyTree, inputs: Sequence[Tensor] = (), return_model: bool = False) -> Any:
    """Evaluates tensors, all in one run: what they share is computed once.

    Args:
        *trees: Tensors or pytrees of tensors, modules included; a :class:`Graph` stands for all
            tensors recorded in it that are reachable. Other leaves are left alone.
        inputs: With ``return_model``, the tensors that the executable takes, in their order; it
            holds the values of all others.
        return_model: Whether to return the program that computed the values, to be called with
            other inputs or saved. The trees are then of tensors in lists, tuples and dicts.

    Returns:
        The same objects: the argument itself if there is one, a tuple if there are several,
        ``()`` if there are none. With ``return_model`` an :class:`Executable` that gives them.

    Raises:
        EvaluationError: The program failed; the tensors stay lazy and usable.
        OutOfMemoryError: So did an allocation.
        InvalidArgumentError: There are ``inputs`` without ``return_model``, or no tensors with it.
    """
    tensors = [t for value in trees for t in _tensors(value)]
    value = trees[0] if len(trees) == 1 else trees
    if return_model:
        from .exporting import model_of

        # Before the run: what has a value has forgotten how it was computed.
        model = model_of(value, tuple(inputs))
        _girih.eval_many(tensors)
        return model
    if inputs:
        raise InvalidArgumentError("eval: inputs are those of the model; set return_model=True")
    if tensors:
        _girih.eval_many(tensors)
    return value


def async_eval(*trees: PyTree) -> Any:
    """Starts evaluating tensors and returns at once; like :func:`eval` otherwise.

    Nothing is waited for, compiling neither, unless 64 evaluations of the stream have not begun: a
    loop that never reads holds no more memory than those need. Whoever asks for a value first waits
    for it, and sees the error if there is one.
    """
    tensors = [t for value in trees for t in _tensors(value)]
    if tensors:
        _girih.async_eval_many(tensors)
    return trees[0] if len(trees) == 1 else trees


def compile_only(*trees: PyTree) -> Compilation:
    """Starts compiling what leads to tensors, in the background, and runs nothing.

    A later evaluation finds the program in the cache.

    Returns:
        Something to :meth:`~Compilation.wait` for, if need be.
    """
    return _girih.compile_only_many(_some_tensors(trees, "compile_only"))


def is_lazy(value: Any) -> bool:
    """Whether a tensor has no value yet. Numbers, arrays and whatever else is none have theirs."""
    return isinstance(value, Tensor) and value.is_lazy


def compile_graph(output: PyTree, optimize: bool = True) -> CompilationInfo:
    """Compiles the graph that leads to a tensor, or a pytree of tensors, without running it.

    A later evaluation of the same tensors finds the compiled program in the cache.

    Args:
        output: What the graph computes.
        optimize: Whether passes run; without them every node stays as recorded.

    Returns:
        Timing, node and kernel counts, and the graph before and after as text and as a picture.
    """
    return _girih.compile_graph(_some_tensors(output, "compile_graph"), optimize)


def get_graph_stats(output: PyTree) -> dict[str, int]:
    """Counts over the graph that leads to a tensor, or a pytree of tensors.

    Returns:
        ``num_nodes``, ``num_ops`` (nodes that are not leaves) and ``estimated_memory_bytes``
        (of all values together, were each kept).
    """
    nodes, ops, size = _girih.graph_stats(_some_tensors(output, "get_graph_stats"))
    return {"num_nodes": nodes, "num_ops": ops, "estimated_memory_bytes": size}


def print_graph(output: PyTree, file: TextIO | None = None) -> None:
    """Prints the graph that leads to a tensor, or a pytree of tensors.

    Args:
        output: What the graph computes.
        file: Where to, standard output by default.
    """
    print(_girih.graph_text(_some_tensors(output, "print_graph")), file=file)


def graph_scope() -> Scope[Graph]:
    """A context manager that records into a fresh graph and yields it.

    Tensors that leave the scope stay valid. Scopes nest, and belong to the thread or asyncio task
    that enters them.

    Example:
        >>> import girih as gr
        >>> with gr.graph_scope() as g:
        ...     total = gr.ones([100]).sum()
        >>> total.item()
        100.0
    """
    return Scope(lambda n: _girih.enter_scope(n, fresh=True), _girih.current_graph)


def reuse_graph(graph: Graph) -> Scope[Graph]:
    """A context manager that records into the given graph and yields it.

    Raises:
        InvalidArgumentError: ``graph`` is no :class:`Graph`.
    """
    if not isinstance(graph, Graph):
        raise InvalidArgumentError(
            f"reuse_graph: expected a Graph (see create_graph), got {type(graph).__name__}"
        )
    return Scope(lambda n: _girih.enter_scope(n, graph=graph), _girih.current_graph)


def _switched(passes: tuple[str | GraphPass, ...], on: bool) -> Scope[None]:
    names = [p for p in passes if isinstance(p, str)]
    own = [p for p in passes if not isinstance(p, str)]
    for other in own:
        if not isinstance(other, _girih.GraphPass):
            function = "with_passes" if on else "without_passes"
            raise InvalidArgumentError(
                f"{function}: expected names and what gr.graph_pass gives, got {other!r}"
            )

    def enter(number: int) -> None:
        options = _girih.compile_options_switched(names, own, on)
        _girih.enter_scope(number, options=options)

    return Scope(enter, lambda: None)


def without_passes(*names: str | GraphPass) -> Scope[None]:
    """A context manager in which programs are compiled without the named passes and fusions.

    For finding out what an optimisation does, or whether one is to blame. Belongs to the thread or
    asyncio task; programs compiled before stay in the cache and are found again outside. Nests.

    Args:
        names: Of passes (``isolate``, ``dead_code``, ``fold``, ``simplify``, ``log_softmax``,
            ``decompose``, ``cse``, ``branch``, ``prune``, ``loop_motion``, ``matmul_chain``) and
            kinds of fusion (``elementwise``, ``views``, ``reduction_prologue``,
            ``reduction_epilogue``, ``matmul_epilogue``, ``rows``, ``matmul_prologue``), and
            passes that :func:`graph_pass` gave.

    Raises:
        InvalidArgumentError: a name of neither.

    Example:
        >>> import girih as gr
        >>> x = gr.asarray([1.0, 2.0])
        >>> with gr.without_passes("elementwise"):
        ...     gr.compile_graph((x + x) * x).num_kernels
        2
    """
    return _switched(names, False)


def with_passes(*names: str | GraphPass) -> Scope[None]:
    """A context manager in which programs are compiled with the named passes and fusions.

    For passes that must be asked for, because they change how results are rounded:
    ``matmul_chain`` multiplies chains of matrices in the cheapest order. Passes that
    :func:`graph_pass` gave run before all others, in the order in which they were named. Otherwise
    like :func:`without_passes`, whose effect it undoes.

    Raises:
        InvalidArgumentError: a name of neither.

    Example:
        >>> import girih as gr
        >>> a, b, x = gr.ones([64, 64]), gr.ones([64, 64]), gr.ones([64, 1])
        >>> with gr.with_passes("matmul_chain"):
        ...     (a @ b @ x).sum().item()
        262144.0
    """
    return _switched(names, True)


def create_graph() -> Graph:
    """A new, empty graph to record into with :func:`reuse_graph`."""
    return _girih.create_graph()


def current_graph() -> Graph:
    """The graph this thread records into."""
    return _girih.current_graph()


def cache_stats() -> dict[str, int]:
    """Counters since the process began, of this context's executor.

    Returns:
        ``hits``, ``misses`` and ``compiles`` of the program cache, ``disk_hits`` (programs an
        earlier process had compiled), ``bindings`` (programs of :func:`compile` bound to sizes they
        had not run at), ``cached_kernels`` and
        ``cache_size_bytes`` in it now, ``kernels_launched``, ``nodes_recorded``, ``runs``
        (programs executed) and ``peak_memory_bytes``.
    """
    return _girih.cache_stats()


def clear_cache() -> None:
    """Forgets all compiled programs; those running are not disturbed."""
    _girih.clear_cache()

"""Control over laziness: evaluation and display of graphs, and choice of the recording graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from . import _girih, tree
from ._girih import Compilation, CompilationInfo, Graph, Tensor
from .checks import explain_public, items
from .errors import DTypeError, InvalidArgumentError
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


#: The default of the inputs of a model.
_NO_INPUTS: tuple[Tensor, ...] = ()


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
def eval(*trees: PyTree, inputs: Sequence[Tensor] = _NO_INPUTS, return_model: bool = False) -> Any:
    """Evaluates tensors in one run, so that shared computations run once.

    Args:
        *trees: Tensors or pytrees of tensors, modules included; a :class:`Graph` stands for all
            reachable tensors recorded in it. Other leaves are ignored.
        inputs: With ``return_model``, the tensors that the executable takes, in order; it stores
            the values of all other tensors.
        return_model: Whether to return the program that computed the values, which can be called
            with other inputs or saved. The trees must then be tensors in lists, tuples and dicts.

    Returns:
        The same objects: the argument itself if there is one, a tuple if there are several, ``()``
        if there are none. With ``return_model`` an :class:`Executable` that returns them.

    Raises:
        EvaluationError: The program failed; the tensors stay lazy and usable.
        OutOfMemoryError: An allocation failed; the tensors stay lazy and usable.
        InvalidArgumentError: ``inputs`` without ``return_model``, or no tensors with it.
    """
    tensors = [t for value in trees for t in _tensors(value)]
    value = trees[0] if len(trees) == 1 else trees
    if return_model:
        from .exporting import model_of

        # Before the run, because a tensor with a value drops the graph that computed it.
        model = model_of(value, tuple(items(inputs)))
        _girih.eval_many(tensors)
        return model
    if inputs is not _NO_INPUTS and items(inputs):
        raise InvalidArgumentError("eval: inputs are those of the model; set return_model=True")
    if tensors:
        _girih.eval_many(tensors)
    return value


def async_eval(*trees: PyTree) -> Any:
    """Starts evaluating tensors and returns immediately; otherwise like :func:`eval`.

    The call waits neither for the evaluation nor for compilation, unless 64 evaluations of the
    stream have not started; this limits the memory of a loop that never reads a value. The first
    read of a value waits for it, and raises the error if there is one.
    """
    tensors = [t for value in trees for t in _tensors(value)]
    if tensors:
        _girih.async_eval_many(tensors)
    return trees[0] if len(trees) == 1 else trees


def compile_only(*trees: PyTree) -> Compilation:
    """Starts compiling the graph of tensors in the background, and runs nothing.

    A later evaluation finds the program in the cache.

    Returns:
        A handle with :meth:`~Compilation.wait`.
    """
    return _girih.compile_only_many(_some_tensors(trees, "compile_only"))


def is_lazy(value: Any) -> bool:
    """Whether a tensor has no value yet; False for numbers, arrays and other objects."""
    return isinstance(value, Tensor) and value.is_lazy


def compile_graph(output: PyTree, optimize: bool = True) -> CompilationInfo:
    """Compiles the graph of a tensor, or a pytree of tensors, without running it.

    A later evaluation of the same tensors finds the compiled program in the cache.

    Args:
        output: The tensors that the graph computes.
        optimize: Whether passes run; without passes every node stays as recorded.

    Returns:
        Timing, node and kernel counts, and the graph before and after the passes, as text and as a
        picture.
    """
    return _girih.compile_graph(_some_tensors(output, "compile_graph"), optimize)


def get_graph_stats(output: PyTree) -> dict[str, int]:
    """Statistics of the graph of a tensor, or a pytree of tensors.

    Returns:
        ``num_nodes``, ``num_ops`` (nodes that are not leaves) and ``estimated_memory_bytes`` (the
        sum over all values, if each were stored).
    """
    nodes, ops, size = _girih.graph_stats(_some_tensors(output, "get_graph_stats"))
    return {"num_nodes": nodes, "num_ops": ops, "estimated_memory_bytes": size}


def print_graph(output: PyTree, file: TextIO | None = None) -> None:
    """Prints the graph of a tensor, or a pytree of tensors.

    Args:
        output: The tensors that the graph computes.
        file: The file to print to, standard output by default.
    """
    print(_girih.graph_text(_some_tensors(output, "print_graph")), file=file)


def graph_scope(*, history: bool = False) -> Scope[Graph]:
    """A context manager that records into a new graph and yields it.

    Tensors that leave the scope stay valid. Scopes nest, and belong to the thread or asyncio task
    that enters them.

    Args:
        history: Whether the graph keeps the ops that are recorded in it, with their operands, when
            their values have been computed or dropped. Its ``dump()`` and, in the scope,
            :func:`print_graph` show them, in eager mode as well. Otherwise a computed tensor has
            forgotten its operands. The graph grows with each op as long as it lives; it holds no
            values.

    Example:
        >>> import girih as gr
        >>> with gr.graph_scope() as g:
        ...     total = gr.ones([100]).sum()
        >>> total.item()
        100.0
        >>> with gr.graph_scope(history=True) as g, gr.eager_mode():
        ...     y = gr.tanh(gr.ones([2]) + 1)
        >>> g.dump().splitlines()[-1]
        '  %3 = tanh(%2) -> f32[2] (available)'
    """
    if not isinstance(history, bool):
        raise DTypeError(f"graph_scope: history is a bool, got a {type(history).__name__}")
    return Scope(lambda n: _girih.enter_scope(n, fresh=True, history=history), _girih.current_graph)


def reuse_graph(graph: Graph) -> Scope[Graph]:
    """A context manager that records into the given graph and yields it.

    Raises:
        InvalidArgumentError: ``graph`` is not a :class:`Graph`.
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

    Use it to see the effect of an optimisation, or to find out whether one causes an error. The
    scope belongs to the thread or asyncio task. Programs that were compiled before stay in the
    cache and are used again outside of the scope. Scopes nest.

    Args:
        names: Names of passes (``isolate``, ``dead_code``, ``fold``, ``simplify``, ``log_softmax``,
            ``decompose``, ``cse``, ``branch``, ``prune``, ``loop_motion``, ``matmul_chain``) and
            kinds of fusion (``elementwise``, ``views``, ``reduction_prologue``,
            ``reduction_epilogue``, ``matmul_epilogue``, ``rows``, ``matmul_prologue``,
            ``horizontal``, ``reuse``, ``rematerialisation``, ``borders``), and passes created by
            :func:`graph_pass`.

    Raises:
        InvalidArgumentError: No pass or fusion has this name.

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

    Some passes are off by default because they change the rounding of results: ``matmul_chain``
    multiplies chains of matrices in the cheapest order. Passes created by :func:`graph_pass` run
    before all others, in the order of ``names``. Otherwise this is like :func:`without_passes`,
    whose effect it undoes.

    Raises:
        InvalidArgumentError: No pass or fusion has this name.

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
    """The graph into which this thread records."""
    return _girih.current_graph()


def cache_stats() -> dict[str, float]:
    """Counters since the process began, of this context's executor.

    Returns:
        ``hits``, ``misses`` and ``compiles`` of the program cache, ``disk_hits`` (programs that an
        earlier process had compiled), ``bindings`` (programs of :func:`compile` that were bound to
        new sizes), ``compile_time_ms`` (the milliseconds of compiling, binding and loading from
        disk, on all threads, without running; :func:`profile` measures runs), ``cached_kernels``
        and ``cache_size_bytes`` (the current contents of the cache), ``kernels_launched``,
        ``nodes_recorded``, ``runs`` (programs executed) and ``peak_memory_bytes``. ``chunks`` is
        the number of parts of kernels that threads may run independently, and ``chunks_of_workers``
        the number of these parts that ran on another thread than the one that launched the kernel;
        both count all executors.
    """
    return _girih.cache_stats()


def clear_cache() -> None:
    """Drops all compiled programs; running programs are not affected."""
    _girih.clear_cache()


explain_public(globals())

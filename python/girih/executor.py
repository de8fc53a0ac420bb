"""Executors, which run programs and measure them, and the context that owns an executor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from . import _girih, errors
from .checks import check_constructor, explain_public, items
from .scopes import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._girih import Graph, Tensor

__all__ = ["Context", "ExecutionResult", "Executor", "ExecutorConfig", "Profile", "use_executor"]


class ExecutorConfig(NamedTuple):
    """How an executor runs programs.

    Args:
        use_cache: Whether compiled programs are cached, in memory and on disk.
        profile: Whether stages and kernels are timed; see :attr:`Executor.profile`.
        device: The device that runs programs: the name of one of :func:`devices`.
        timeout_seconds: A run that takes longer is stopped and fails with
            :class:`EvaluationTimeoutError`; None for no limit.
        passes: Passes created by :func:`graph_pass`, which run in this order before all others.
    """

    use_cache: bool = True
    profile: bool = False
    device: str = _girih.device_name()
    timeout_seconds: float | None = 300
    passes: Sequence[_girih.GraphPass] = ()


class ExecutionResult(NamedTuple):
    """The result of :meth:`Executor.execute`: on failure a message and no outputs."""

    success: bool
    error_message: str
    compile_time_ms: float
    transfer_time_ms: float
    compute_time_ms: float
    outputs: dict[int, Tensor]


class Profile(NamedTuple):
    """The times of an evaluation by stage and by kernel, in milliseconds.

    ``stages`` are extraction, optimization, codegen, compile, execution and store, in this order;
    ``kernels`` are in the order they ran.
    """

    stages: dict[str, float]
    kernels: list[tuple[str, float]]

    @property
    def compile_time_ms(self) -> float:
        """Milliseconds of the stages that compile: optimization, codegen and compile."""
        return sum(self.stages[name] for name in ("optimization", "codegen", "compile"))

    @property
    def execution_time_ms(self) -> float:
        """Milliseconds of the execution stage, in which no program is compiled."""
        return self.stages["execution"]


@check_constructor
class Executor:
    """Runs programs according to a configuration, with its own program cache.

    All executors share the memory and queue of the device, so an executor can read tensors that
    another one computed.

    Args:
        config: The configuration.

    Raises:
        DeviceError: the device does not exist or is not available.
        InvalidArgumentError: an invalid time limit.

    Example:
        >>> import girih as gr
        >>> with gr.use_executor(gr.Executor(gr.ExecutorConfig(profile=True))) as executor:
        ...     _ = gr.ones([3]).exp().eval()
        >>> list(executor.profile.stages)
        ['extraction', 'optimization', 'codegen', 'compile', 'execution', 'store']
    """

    __slots__ = ("_handle",)

    def __init__(self, config: ExecutorConfig | None = None) -> None:
        config = config or ExecutorConfig()
        limit = config.timeout_seconds
        self._handle = _girih.ExecutorHandle(
            config.use_cache,
            config.profile,
            str(config.device),
            float("inf") if limit is None else limit,
            items(config.passes),
        )

    @property
    def config(self) -> ExecutorConfig:
        """The configuration of the executor."""
        use_cache, profile, device, seconds, passes = self._handle.config()
        limit = None if seconds == float("inf") else seconds
        return ExecutorConfig(use_cache, profile, device, limit, tuple(passes))

    def execute(self, graph: Graph, output_ids: Sequence[int]) -> ExecutionResult:
        """Computes nodes of a recording graph in one run, so that shared work is done once.

        Args:
            graph: The graph that recorded the nodes.
            output_ids: The numbers of the nodes in the graph (:attr:`Tensor.node_id`).

        Returns:
            The outputs by node number, with times. Errors are reported in the result; after an
            error the tensors stay lazy and can be evaluated again.
        """
        return ExecutionResult(*self._handle.execute(graph, items(output_ids)))

    def execute_single(self, graph: Graph, output_id: int, dtype: Any = None) -> list[Any]:
        """Computes one node of a recording graph and returns its elements as nested lists.

        Raises:
            DTypeError: ``dtype`` is given, and the node has another dtype.
            GirihError: the evaluation fails.
        """
        tensor = self._handle.execute_single(graph, output_id)
        if dtype is not None and tensor.dtype != _girih.zeros([], dtype=dtype).dtype:
            raise errors.DTypeError(
                f"execute_single: the tensor holds {tensor.dtype.name}, not {dtype}; "
                "convert it with astype first"
            )
        values: list[Any] = tensor.reshape(-1).tolist()
        return values

    def compile_only(self, graph: Graph, output_ids: Sequence[int] = ()) -> bool:
        """Compiles the program that computes nodes of a recording graph, without running it.

        Args:
            graph: The graph that recorded the nodes.
            output_ids: The numbers of the nodes; by default all nodes without a value and without a
                user.

        Returns:
            Whether the program was compiled: False if it was cached.
        """
        return self._handle.compile_only(graph, items(output_ids))

    def clear_cache(self) -> None:
        """Drops compiled programs; running programs are not affected."""
        self._handle.clear_cache()

    def cache_stats(self) -> dict[str, float]:
        """The counters of :func:`girih.cache_stats` for this executor alone."""
        return self._handle.cache_stats()

    def cancel_all(self) -> None:
        """Stops the running and the queued evaluations of this executor; any thread may call it.

        A caller that waits for a stopped evaluation gets :class:`EvaluationCancelledError`; the
        tensors stay lazy. Later evaluations are not affected.
        """
        self._handle.cancel_all()

    @property
    def profile(self) -> Profile | None:
        """The profile of the last evaluation; None unless profiling is on."""
        profile = self._handle.profile()
        return None if profile is None else Profile(dict(profile[0]), profile[1])

    def __repr__(self) -> str:
        return f"Executor({self.config})"


def _executor(handle: _girih.ExecutorHandle) -> Executor:
    executor = Executor.__new__(Executor)
    executor._handle = handle
    return executor


class Context:
    """The context of the calling thread or asyncio task: its graph and its executor.

    Example:
        >>> import girih as gr
        >>> gr.Context.current().executor().config.device
        'cpu'
    """

    __slots__ = ()

    @staticmethod
    def current() -> Context:
        """The context of the caller, which is created on first use."""
        return Context()

    def graph(self) -> Graph:
        """The graph to which ops are recorded."""
        return _girih.current_graph()

    def set_graph(self, graph: Graph) -> None:
        """Records to ``graph`` from now on; :func:`reuse_graph` does this for a block."""
        _girih.set_graph(graph)

    def executor(self) -> Executor:
        """The executor of this context's programs: the context's own, or that of the process."""
        return _executor(_girih.ExecutorHandle.current())

    def set_executor(self, executor: Executor) -> None:
        """Makes ``executor`` the executor of this context's programs from now on."""
        executor._handle.make_current()


class _ExecutorScope(Scope[Executor]):
    """A scope in which an executor runs the programs."""

    def __init__(self, executor: Executor) -> None:
        handle = executor._handle
        super().__init__(lambda n: _girih.enter_scope(n, executor=handle), lambda: executor)


def use_executor(executor: Executor) -> Scope[Executor]:
    """A context manager in which ``executor`` runs the programs; its value is the executor."""
    if not isinstance(executor, Executor):
        raise errors.InvalidArgumentError(
            f"use_executor: expected an Executor, got {type(executor).__name__}"
        )
    return _ExecutorScope(executor)


explain_public(globals())

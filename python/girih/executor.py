"""Executors: how programs are run, and what running them took; and the context that owns one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from . import _girih, errors
from .scopes import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._girih import Graph, Tensor

__all__ = ["Context", "ExecutionResult", "Executor", "ExecutorConfig", "Profile", "use_executor"]


class ExecutorConfig(NamedTuple):
    """How an executor runs programs.

    Args:
        use_cache: Whether compiled programs are kept, in memory and on disk.
        profile: Whether stages and kernels are timed, see :attr:`Executor.profile`.
        device: Where programs run: the name of one of :func:`devices`.
        timeout_seconds: A run that takes longer is stopped and fails with
            :class:`EvaluationTimeoutError`; None for no limit.
        passes: Passes that :func:`graph_pass` gave, run in this order before all others.
    """

    use_cache: bool = True
    profile: bool = False
    device: str = _girih.device_name()
    timeout_seconds: float | None = 300
    passes: Sequence[_girih.GraphPass] = ()


class ExecutionResult(NamedTuple):
    """What :meth:`Executor.execute` came to: on failure a message and no outputs."""

    success: bool
    error_message: str
    compile_time_ms: float
    transfer_time_ms: float
    compute_time_ms: float
    outputs: dict[int, Tensor]


class Profile(NamedTuple):
    """Where the time of an evaluation went, in milliseconds.

    ``stages`` are extraction, optimization, codegen, compile, execution and store, in this order;
    ``kernels`` are in the order they ran.
    """

    stages: dict[str, float]
    kernels: list[tuple[str, float]]


class Executor:
    """Runs programs as its configuration says, with a program cache of its own.

    All executors share the device's memory and queue: what one computes another may read.

    Args:
        config: How it runs programs.

    Raises:
        DeviceError: a device that does not exist or is not here.
        InvalidArgumentError: a time limit that is none.

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
            list(config.passes),
        )

    @property
    def config(self) -> ExecutorConfig:
        """How it runs programs."""
        use_cache, profile, device, seconds, passes = self._handle.config()
        limit = None if seconds == float("inf") else seconds
        return ExecutorConfig(use_cache, profile, device, limit, tuple(passes))

    def execute(self, graph: Graph, output_ids: Sequence[int]) -> ExecutionResult:
        """Computes nodes of a recording graph, all in one run: shared work is done once.

        Args:
            graph: Where they were recorded.
            output_ids: Their numbers there (:attr:`Tensor.node_id`).

        Returns:
            The outputs by number, with times. What goes wrong is in the result; the tensors then
            stay lazy and can be evaluated again.
        """
        return ExecutionResult(*self._handle.execute(graph, list(output_ids)))

    def execute_single(self, graph: Graph, output_id: int, dtype: Any = None) -> list[Any]:
        """Computes one node of a recording graph and gives its elements as nested lists.

        Raises:
            DTypeError: ``dtype`` is given, and the node holds another.
            GirihError: what evaluation fails with.
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
        """Compiles what computes nodes of a recording graph, without running it.

        Args:
            graph: Where they were recorded.
            output_ids: Their numbers; by default everything without a value and without a user.

        Returns:
            Whether there was anything to compile: False if it was cached.
        """
        return self._handle.compile_only(graph, list(output_ids))

    def clear_cache(self) -> None:
        """Forgets compiled programs; those running are not disturbed."""
        self._handle.clear_cache()

    def cache_stats(self) -> dict[str, int]:
        """What :func:`girih.cache_stats` counts, of this executor alone."""
        return self._handle.cache_stats()

    def cancel_all(self) -> None:
        """Stops every run of this executor that is under way or queued, from any thread.

        Who waits for one gets :class:`EvaluationCancelledError`; the tensors stay lazy. What is
        evaluated later is not concerned.
        """
        self._handle.cancel_all()

    @property
    def profile(self) -> Profile | None:
        """Where the time of the last evaluation went; None unless profiling."""
        profile = self._handle.profile()
        return None if profile is None else Profile(dict(profile[0]), profile[1])

    def __repr__(self) -> str:
        return f"Executor({self.config})"


def _executor(handle: _girih.ExecutorHandle) -> Executor:
    executor = Executor.__new__(Executor)
    executor._handle = handle
    return executor


class Context:
    """The calling thread's, or asyncio task's, context: its graph and its executor.

    Example:
        >>> import girih as gr
        >>> gr.Context.current().executor().config.device
        'cpu'
    """

    __slots__ = ()

    @staticmethod
    def current() -> Context:
        """The caller's; made when first asked for."""
        return Context()

    def graph(self) -> Graph:
        """The graph ops are recorded to."""
        return _girih.current_graph()

    def set_graph(self, graph: Graph) -> None:
        """Records to ``graph`` from here on; see :func:`reuse_graph` for a while only."""
        _girih.set_graph(graph)

    def executor(self) -> Executor:
        """What runs this context's programs: its own, or the process'."""
        return _executor(_girih.ExecutorHandle.current())

    def set_executor(self, executor: Executor) -> None:
        """Runs this context's programs by ``executor`` from here on."""
        executor._handle.make_current()


class _ExecutorScope(Scope[Executor]):
    """Runs programs by an executor until its block ends."""

    def __init__(self, executor: Executor) -> None:
        handle = executor._handle
        super().__init__(lambda n: _girih.enter_scope(n, executor=handle), lambda: executor)


def use_executor(executor: Executor) -> Scope[Executor]:
    """A context manager in which programs are run by ``executor``, which it yields."""
    if not isinstance(executor, Executor):
        raise errors.InvalidArgumentError(
            f"use_executor: expected an Executor, got {type(executor).__name__}"
        )
    return _ExecutorScope(executor)

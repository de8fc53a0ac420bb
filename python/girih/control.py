"""Control flow in the graph: ``cond``, ``switch``, ``while_loop``, ``scan``, ``fori_loop``.

Each function calls the user's functions once, with placeholders, and records one op; the recordings
of the user's functions are its regions. So a loop with any number of iterations is one node,
compiled once and launched once, and nothing is computed until a value is needed. Signatures and
semantics are those of JAX.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _girih, effects, tree
from ._girih import SymbolicDim, SymbolicFloat, Tensor, has_protocol
from .checks import explain_public, items
from .errors import InvalidArgumentError
from .names import name_of
from .stored import Carried, common

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["cond", "fori_loop", "scan", "switch", "while_loop"]

_Number = (bool, int, float, complex, SymbolicDim, SymbolicFloat)


#: Numbers of iterations.
_INTS = (int, SymbolicDim)


class _Traced(NamedTuple):
    """The results of a function that was called with placeholders."""

    body: _girih.Body
    leaves: list[Any]
    structure: tree.TreeDef
    names: list[str]
    #: The calls with an effect.
    frame: effects.Frame

    @property
    def tokens(self) -> list[Tensor]:
        """The tokens of the calls with an effect."""
        return self.frame.tokens


def _tensors(leaves: Sequence[Any]) -> list[Tensor]:
    return [leaf if isinstance(leaf, Tensor) else _girih.asarray(leaf) for leaf in leaves]


def _name(path: str, what: str) -> str:
    return f"{what}{path}"


def _trace(
    fun: Callable[..., Any],
    like: Sequence[Tensor],
    parts: Sequence[Tensor],
    arguments: Callable[[list[Tensor]], Sequence[Any]],
    what: str,
    carried: Carried | None = None,
    root: Any = None,
) -> _Traced:
    """Calls ``fun(*arguments(placeholders))``.

    Args:
        fun: The function.
        like: Tensors like the first arguments of the body.
        parts: Tensors with slices like the further arguments.
        arguments: The arguments of the function, from their placeholders.
        what: The name of the result, for messages.
        carried: State that the loop carries, whose placeholders follow those of ``like``.
        root: The user's function, if ``fun`` calls it.
    """
    body = _girih.Body()
    stand_ins = [body.placeholder(tensor) for tensor in like]
    held = [body.placeholder(tensor) for tensor in carried.tensors] if carried else []
    stand_ins += [body.part(tensor) for tensor in parts]
    # The function may assign to its arguments, so it gets its own handles.
    with effects.collected(root or fun) as frame:
        if carried:
            carried.enter(held)
        result = fun(*arguments([+s if s.dtype.name != "bool" else s for s in stand_ins]))
    leaves, structure = tree.flatten(result)
    names = [_name(path, what) for path, _ in tree.flatten_with_path(result)]
    for leaf, name in zip(leaves, names, strict=True):
        if not isinstance(leaf, (Tensor, *_Number)) and not has_protocol(leaf, "__array__"):
            raise InvalidArgumentError(
                f"{name} of {_of(fun)} is a {type(leaf).__name__}; expected a tensor or a number"
            )
    return _Traced(body, leaves, structure, names, frame)


def _of(fun: Any) -> str:
    return name_of(fun)


def _like(leaf: Any, wanted: Tensor | None) -> Tensor:
    """A leaf as a tensor; a number takes the dtype of the corresponding value."""
    if isinstance(leaf, Tensor):
        return leaf
    if wanted is not None and isinstance(leaf, _Number):
        return _girih.asarray(leaf, dtype=wanted.dtype)
    return _girih.asarray(leaf)


def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
) -> Any:
    """``true_fun(*operands)`` where ``pred`` is true, else ``false_fun(*operands)``.

    Args:
        pred: A bool scalar tensor. It is not evaluated: the result is lazy.
        true_fun: Returns a pytree of tensors. It may close over tensors.
        false_fun: Returns a pytree of the same structure, shapes and dtypes. Tracing calls both
            functions once; evaluation runs only one of the branches, and only the tensors that
            this branch stores in objects (the running statistics of a layer) change.
        operands: Pytrees of tensors.

    Raises:
        InvalidArgumentError: The branches' results differ; the message names the leaf.

    Example:
        >>> import girih as gr
        >>> x = gr.asarray([4.0, 9.0])
        >>> gr.cond((x > 0).all(), gr.sqrt, gr.negative, x).tolist()
        [2.0, 3.0]
    """
    return _choose(_like(pred, None), [false_fun, true_fun], operands, "cond")


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """``branches[index](*operands)``, with the index clamped to the valid range; see :func:`cond`.

    Args:
        index: An integer scalar tensor, or an int.
        branches: Functions that return pytrees of the same structure, shapes and dtypes.
        operands: Pytrees of tensors.

    Raises:
        InvalidArgumentError: There are no branches, or their results differ.

    Example:
        >>> import girih as gr
        >>> gr.switch(gr.asarray(7), [gr.sqrt, gr.negative], gr.asarray(4.0)).item()
        -4.0
    """
    branches = items(branches)
    if not branches:
        raise InvalidArgumentError("switch: needs at least one branch")
    return _choose(_like(index, None), branches, operands, "switch")


def _choose(
    index: Any, branches: list[Callable[..., Any]], operands: tuple[Any, ...], op: str
) -> Any:
    leaves, structure = tree.flatten(operands)
    like = _tensors(leaves)

    def arguments(stand_ins: list[Tensor]) -> Sequence[Any]:
        return tuple(tree.unflatten(structure, stand_ins))

    traced = [_trace(fun, like, [], arguments, "result") for fun in branches]
    first = traced[0]
    for fun, branch in zip(branches[1:], traced[1:], strict=True):
        if branch.structure != first.structure:
            raise InvalidArgumentError(
                f"{op}: the branches return different structures: {_of(branches[0])} "
                f"{first.structure}, {_of(fun)} {branch.structure}"
            )
    # A number takes the dtype that a tensor has in another branch.
    columns = list(zip(*(t.leaves for t in traced), strict=True))
    known = [next((x for x in column if isinstance(x, Tensor)), None) for column in columns]
    most = max(len(branch.tokens) for branch in traced)
    stored = common(op, list(map(_of, branches)), [t.frame.stored for t in traced])
    for branch, own in zip(traced, stored, strict=True):
        outputs = [_like(leaf, like) for leaf, like in zip(branch.leaves, known, strict=True)]
        tokens = _tokens(branch)
        missing = [_girih.zeros([], dtype=_girih.uint8)] * (most - len(tokens))
        branch.body.set_outputs(outputs + own.tensors + tokens + missing)
    bodies = [t.body for t in traced]
    names = first.names + stored[0].names() + ["token"] * most
    results = _girih.record_cond(index, bodies, like, names, op == "switch")
    count, end = len(first.leaves), len(results) - most
    stored[0].store(results[count:end])
    effects.emit(results[end:], results, any(t.frame.is_ordered for t in traced))
    return tree.unflatten(first.structure, results[:count])


def _tokens(traced: _Traced) -> list[Tensor]:
    """The tokens of a function's calls as scalars."""
    return [effects.scalar(token) for token in traced.tokens]


class _Carry:
    """The initial carries of a loop. Numbers take the dtype of the body's result."""

    def __init__(self, init: Any, op: str) -> None:
        self.op = op
        self.leaves, self.structure = tree.flatten(init)
        self.names = [_name(path, "carry") for path, _ in tree.flatten_with_path(init)]
        self.weak = [isinstance(leaf, _Number) for leaf in self.leaves]
        self.tensors = _tensors(self.leaves)

    def rebuild(self, tensors: Sequence[Tensor]) -> Any:
        return tree.unflatten(self.structure, tensors)

    def adapt(self, given: Sequence[Any]) -> bool:
        """Gives numbers the dtypes of the body's results; true if that changes anything."""
        changed = False
        for i, result in enumerate(given):
            if self.weak[i] and isinstance(result, Tensor):
                if result.dtype != self.tensors[i].dtype and result.shape == ():
                    self.tensors[i] = _girih.asarray(self.leaves[i]).astype(result.dtype)
                    changed = True
                self.weak[i] = False
        return changed

    def check(self, structure: tree.TreeDef, fun: Any) -> None:
        if structure != self.structure:
            raise InvalidArgumentError(
                f"{self.op}: {_of(fun)} must return carries of the structure that it takes, "
                f"{self.structure}; it returns {structure}"
            )

    def outputs(self, given: Sequence[Any]) -> list[Tensor]:
        return [_like(leaf, own) for leaf, own in zip(given, self.tensors, strict=True)]


def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    max_iterations: int | None = None,
) -> Any:
    """``val = init_val``, then ``val = body_fun(val)`` as long as ``cond_fun(val)`` is true.

    Forward-mode derivatives (:func:`jvp`) run the loop once. Reverse mode needs ``max_iterations``:
    the loop then becomes a :func:`scan` of that many steps, in which the steps after the end
    compute nothing. The size of the carry decides how reverse mode obtains the values of a step. If
    ``max_iterations`` carries take up to 16 MiB, or their size is symbolic, reverse mode saves the
    carry of every step (a stack). Larger loops run in blocks of about ``sqrt(max_iterations)``
    steps: reverse mode saves the first carry of each block and recomputes the others, block by
    block, which costs one more forward pass. Callbacks with an effect are called in each iteration.

    Args:
        cond_fun: Returns a bool scalar tensor.
        body_fun: Returns a pytree with the structure, shapes and dtypes of its argument.
        init_val: A pytree of tensors. A number becomes a tensor of the dtype of the body's result.
        max_iterations: The loop ends after this number of iterations even if the condition is true.

    Raises:
        InvalidArgumentError: The body changes a structure, shape or dtype; the message names the
            leaf. The condition does not return a bool scalar, or a function draws random numbers.

    Example:
        >>> import girih as gr
        >>> gr.while_loop(lambda x: x < 1000, lambda x: x * 2, 1).item()
        1024
    """
    if max_iterations is not None:
        return _bounded(cond_fun, body_fun, init_val, max_iterations)
    carry = _Carry(init_val, "while_loop")

    def arguments(stand_ins: list[Tensor]) -> Sequence[Any]:
        return (carry.rebuild(stand_ins),)

    carried = Carried("while_loop")

    def traced_with(fun: Callable[..., Any], what: str = "") -> _Traced:
        return _trace(fun, carry.tensors, [], arguments, what, carried)

    body = traced_with(body_fun)
    carry.check(body.structure, body_fun)
    while carry.adapt(body.leaves) or carried.learn(_of(body_fun), body.frame.stored):
        body = traced_with(body_fun)
    condition = traced_with(cond_fun, "the condition")
    if not carried.keeps(condition.frame.stored):
        condition.frame.stored.refuse(
            f"while_loop: the condition {_of(cond_fun)}", "which only the body may; return it there"
        )
    goes_on = [_like(leaf, None) for leaf in condition.leaves]
    given = carry.outputs(body.leaves) + carried.outputs(_of(body_fun), body.frame.stored)
    init, names = carry.tensors + carried.tensors, carry.names + carried.names
    traced = (condition, body)
    called = any(t.tokens for t in traced)
    if called:
        # The tokens of an unknown number of iterations cannot be stacked, so a carry depends on
        # them.
        init.append(_girih.zeros([], dtype=_girih.uint8))
        names.append("token")
        waits, before = (t.body.placeholder(init[-1]) for t in traced)
        # All tokens are zero, so that they change neither the condition nor the carry.
        goes_on = [_after(flag, [waits, *_tokens(condition)]) for flag in goes_on]
        given.append(_after(before, _tokens(body)))
    condition.body.set_outputs(goes_on)
    body.body.set_outputs(given)
    results = _girih.record_while_loop([condition.body, body.body], init, names)
    if called:
        effects.emit(results[-1:], results, any(t.frame.is_ordered for t in traced))
        del results[-1]
    count = len(carry.tensors)
    carried.store(results[count:])
    return carry.rebuild(results[:count])


def _after(value: Tensor, tokens: Sequence[Tensor]) -> Tensor:
    """The value, bool or uint8, with a dependency on the calls with these tokens."""
    for token in tokens:
        value = value | (token if value.dtype == token.dtype else token != 0)
    return value


#: Maximum bytes of the carries of all steps of a bounded loop that reverse mode saves.
_STACKED_BYTES = 1 << 24


def _known_bytes(leaf: Tensor) -> int:
    """The bytes of a tensor; 0 if its size is symbolic, because reading a symbolic size fixes
    it."""
    sizes = leaf.shape
    known = all(isinstance(size, int) for size in sizes)
    return math.prod(sizes) * leaf.dtype.itemsize if known else 0


def _bounded(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any, limit: int
) -> Any:
    """A loop with a maximum number of iterations, as a scan."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidArgumentError(
            f"while_loop: max_iterations must be an int that is not negative, got {limit!r}"
        )

    def step(pair: Any, _: Any) -> Any:
        goes_on, value = pair
        value = cond(goes_on, body_fun, lambda value: value, value)
        return (_girih.logical_and(goes_on, cond_fun(value)), value), None

    def steps(pair: Any, count: int) -> Any:
        return scan(step, pair, length=count)[0]

    start = tree.map(lambda leaf: _like(leaf, None), init_val)
    pair = (_like(cond_fun(start), None), start)
    if limit * sum(map(_known_bytes, tree.leaves(start))) <= _STACKED_BYTES:
        return steps(pair, limit)[1]
    block = math.isqrt(limit - 1) + 1
    pair, _ = scan(lambda pair, _: (steps(pair, block), None), pair, length=limit // block)
    return steps(pair, limit % block)[1]


def scan(
    f: Callable[[Any, Any], Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Carries a value along the leading axis of ``xs``::

        carry = init
        ys = []
        for x in xs:
            carry, y = f(carry, x)
            ys.append(y)
        return carry, stack(ys)

    It can be differentiated, any number of times. Random numbers drawn by ``f`` are new in each
    iteration.

    Args:
        f: Takes the carry and one slice of ``xs``; returns the next carry, of the same structure,
            shapes and dtypes, and a pytree to be stacked (or ``None``).
        init: A pytree of tensors. A number becomes a tensor with the dtype of the result of ``f``.
        xs: A pytree of tensors with the same leading length; ``None`` if only ``length`` is given.
        length: The number of iterations; required without ``xs``.
        reverse: Iterates from the last slice to the first; stacked results keep the order of
            ``xs``.

    Returns:
        The last carry and the stacked results.

    Raises:
        InvalidArgumentError: ``f`` changes the carry's structure, a shape or dtype, the lengths of
            ``xs`` differ, or no length is known.

    Example:
        >>> import girih as gr
        >>> last, sums = gr.scan(lambda c, x: (c + x, c + x), 0.0, gr.asarray([1.0, 2.0, 3.0]))
        >>> last.item(), sums.tolist()
        (6.0, [1.0, 3.0, 6.0])
    """
    carry = _Carry(init, "scan")
    leaves, structure = tree.flatten(xs)
    parts = _tensors(leaves)
    if length is not None and (isinstance(length, bool) or not isinstance(length, _INTS)):
        raise InvalidArgumentError(f"scan: length must be an int, got {length!r}")
    if isinstance(length, int) and length < 0:
        raise InvalidArgumentError(f"scan: length must not be negative, got {length}")
    given: Any = length
    count = _girih.scan_length(parts, given)

    carried = Carried("scan")

    def arguments(stand_ins: list[Tensor]) -> Sequence[Any]:
        at = len(carry.tensors)
        return carry.rebuild(stand_ins[:at]), tree.unflatten(structure, stand_ins[at:])

    def traced_step() -> _Traced:
        return _trace(step, carry.tensors, parts, arguments, "", carried, f)

    def step(*args: Any) -> Any:
        result = f(*args)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidArgumentError(
                f"scan: {_of(f)} must return a pair (carry, y), got {type(result).__name__}"
                + (f" of {len(result)}" if isinstance(result, tuple) else "")
            )
        carry.check(tree.structure(result[0]), f)
        return result

    traced, own = traced_step(), len(carry.tensors)
    while carry.adapt(traced.leaves[:own]) or carried.learn(_of(f), traced.frame.stored):
        traced = traced_step()
    outputs = carry.outputs(traced.leaves[:own]) + carried.outputs(_of(f), traced.frame.stored)
    outputs += [_like(leaf, None) for leaf in traced.leaves[own:]]
    traced.body.set_outputs(outputs + traced.tokens)
    init = carry.tensors + carried.tensors
    names = carry.names + carried.names
    names += [f"xs{path}" for path, _ in tree.flatten_with_path(xs)]
    results = _girih.record_scan(traced.body, init, parts, count, reverse, names, False)
    carried.store(results[own : len(init)])
    effects.emit(results[len(outputs) :], results, traced.frame.is_ordered)
    del results[own : len(init)]
    last, stacks = tree.unflatten(traced.structure, results[: traced.structure.num_leaves])
    return last, stacks


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """``val = init_val``, then ``val = body_fun(i, val)`` for ``i`` from ``lower`` below ``upper``.

    With int bounds it is a :func:`scan` and supports reverse mode; with tensors as bounds it is a
    :func:`while_loop`.

    Args:
        lower: The first value of ``i``: an int or an integer scalar tensor.
        upper: The exclusive upper bound of ``i``.
        body_fun: Takes ``i``, a tensor, and the value; returns the next value, a pytree of the same
            structure, shapes and dtypes.
        init_val: A pytree of tensors. A number becomes a tensor of the dtype of the body's result.

    Raises:
        InvalidArgumentError: The body changes a structure, shape or dtype.

    Example:
        >>> import girih as gr
        >>> gr.fori_loop(0, 10, lambda i, total: total + i, 0).item()
        45
    """
    if isinstance(lower, Tensor) or isinstance(upper, Tensor):
        start, end = _like(lower, upper), _like(upper, lower)
        looped = while_loop(
            lambda pair: pair[0] < end,
            lambda pair: (pair[0] + 1, body_fun(pair[0], pair[1])),
            (start, init_val),
        )
        return looped[1]
    for bound in (lower, upper):
        if isinstance(bound, bool) or not isinstance(bound, _INTS):
            raise InvalidArgumentError(f"fori_loop: expected int bounds, got {bound!r}")

    def step(pair: Any, _: Any) -> Any:
        i, value = pair
        return (i + 1, body_fun(i, value)), None

    length = upper - lower if upper > lower else 0
    (_, last), _ = scan(step, (_girih.asarray(lower), init_val), length=length)
    return last


explain_public(globals())

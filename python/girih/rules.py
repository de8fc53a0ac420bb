"""Functions with custom derivatives: ``checkpoint``, ``custom_jvp``, ``custom_vjp``.

Each function calls the user's function once, with placeholders, and records one ``call`` op whose
region is the recording. A call costs nothing in a compiled program, because a pass replaces it by
its body. Rules are called when a derivative is taken.
"""

from __future__ import annotations

import operator
from contextvars import ContextVar
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from . import _girih, effects, tree
from ._girih import Tensor
from .bodies import Arguments, RecordedBody, described, leaves_of, like, own_handles, referred
from .checks import explain_public, items
from .errors import DTypeError, InvalidArgumentError
from .names import name_of
from .transforms import INEXACT, Transformed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .signatures import P, R

__all__ = [
    "checkpoint",
    "checkpoint_name",
    "custom_jvp",
    "custom_vjp",
    "optimization_barrier",
    "stop_gradient",
]

#: Tensors named in the checkpointed functions that are being called, by name.
_NAMED: ContextVar[list[tuple[str, Tensor]] | None] = ContextVar("named", default=None)


@overload
def checkpoint(
    fun: Callable[P, R],
    *,
    policy: str | Sequence[str] | Callable[[str, Tensor], bool] = "nothing",
) -> Callable[P, R]: ...
@overload
def checkpoint(
    fun: None = None,
    *,
    policy: str | Sequence[str] | Callable[[str, Tensor], bool] = "nothing",
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    policy: str | Sequence[str] | Callable[[str, Tensor], bool] = "nothing",
) -> Any:
    """Makes a function recompute its values in its reverse-mode derivative instead of saving them.

    This trades time for memory (rematerialisation): a checkpointed layer saves only its arguments,
    and the values that the policy selects, for the derivative. The cost is one more forward
    computation. The results and gradients are the same. Also a decorator.

    Args:
        fun: A function of pytrees; its tensors may be arguments or outside tensors, such as the
            parameters of a module. Its random numbers are drawn once.
        policy: The values to save: ``"nothing"``, ``"dots"`` (results of matrix products and
            convolutions), ``"everything"`` (no checkpoint), names given by :func:`checkpoint_name`,
            or a function of the op's name and the tensor, which is called for each tensor that
            ``fun`` recorded, in order, and returns True for tensors to save.

    Returns:
        A function of the same arguments.

    Raises:
        InvalidArgumentError: There is no such policy.

    Example:
        >>> import girih as gr
        >>> block = gr.checkpoint(lambda x: gr.exp(gr.sin(x)))
        >>> gr.grad(lambda x: block(x).sum())(gr.zeros([2])).tolist()
        [1.0, 1.0]
    """
    if fun is None:
        return partial(checkpoint, policy=policy)
    keeps = policy if callable(policy) else None
    names: Sequence[str] = (
        () if isinstance(policy, str) or callable(policy) else tuple(items(policy))
    )
    if isinstance(policy, str) and policy not in ("nothing", "dots", "everything"):
        raise InvalidArgumentError(
            "checkpoint: policy must be 'nothing', 'dots', 'everything', a sequence of names or a "
            f"function of an op's name and a tensor, got {policy!r}"
        )

    def checkpointed(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if policy == "everything":
            return fun(*args, **kwargs)
        arguments = Arguments((args, kwargs))
        body = RecordedBody.of(arguments.tensors)
        named: list[tuple[str, Tensor]] = []
        token = _NAMED.set(named)
        try:
            own_args, own_kwargs = arguments.rebuilt(body.own())
            with effects.collected(fun, args, kwargs) as frame:
                leaves, structure = leaves_of(fun(*own_args, **own_kwargs), name_of(fun))
        finally:
            _NAMED.reset(token)
        body.body.set_outputs(leaves + frame.outputs())
        saved = [tensor for name, tensor in named if name in names]
        results = _girih.record_checkpoint(
            body.body, arguments.tensors, saved, policy == "dots", keeps
        )
        frame.emit(results[len(leaves) :], results)
        return tree.unflatten(structure, results[: len(leaves)])

    return Transformed(fun, checkpointed, "checkpoint")


def optimization_barrier(operand: Any) -> Any:
    """Returns the same values after a barrier that no pass optimises across.

    Computations before and after the barrier are never fused, and equal computations on both sides
    are not shared. The barrier is differentiable.

    Args:
        operand: A pytree of tensors and numbers.

    Returns:
        A tree of the same structure, of tensors.

    Raises:
        DTypeError: A leaf is neither a tensor nor a number.

    Example:
        >>> import girih as gr
        >>> x = gr.optimization_barrier(gr.asarray([1.0, 2.0]))
        >>> (x + 1).tolist()
        [2.0, 3.0]
    """
    leaves, structure = leaves_of(operand, "the operand of optimization_barrier")
    return tree.unflatten(structure, _girih.record_barrier(leaves))


def stop_gradient(x: Any) -> Any:
    """Returns the same values, which derivatives treat as constants.

    Args:
        x: A tensor, an object that converts to one, or a pytree of these.

    Returns:
        A tensor of the shape and dtype of ``x``, or a tree of the same structure.

    Raises:
        DTypeError: A leaf is neither a tensor nor a number.

    Example:
        >>> import girih as gr
        >>> gr.grad(lambda x: x * gr.stop_gradient(x))(gr.asarray(3.0)).item()
        3.0
    """
    if isinstance(x, Tensor):
        return _girih.stop_gradient(x)
    leaves, structure = tree.flatten(x)
    return tree.unflatten(structure, [_girih.stop_gradient(leaf) for leaf in leaves])


def checkpoint_name(x: Tensor, name: str) -> Tensor:
    """Names a tensor for the policy of the enclosing :func:`checkpoint`.

    Args:
        x: A tensor that the checkpointed function computed.
        name: A name for ``policy=[...]``.

    Returns:
        ``x``.

    Raises:
        DTypeError: ``x`` is not a tensor.

    Example:
        >>> import girih as gr
        >>> f = lambda x: gr.sin(gr.checkpoint_name(gr.exp(x), "exp"))
        >>> g = gr.grad(lambda x: gr.checkpoint(f, policy=["exp"])(x).sum())
        >>> g(gr.zeros([1])).shape
        (1,)
    """
    if not isinstance(x, Tensor):
        raise DTypeError(f"checkpoint_name: expected a tensor, got {type(x).__name__}")
    named = _NAMED.get()
    if named is not None:
        named.append((name, x))
    return x


def _calls(frame: effects.Frame) -> Tensor:
    """The token of all calls with an effect that a function makes; its value is zero."""
    scalars = [effects.scalar(token) for token in frame.tokens]
    return reduce(operator.or_, scalars, _girih.zeros([], dtype=_girih.uint8))


def _after(frame: effects.Frame, values: Sequence[Tensor]) -> list[Tensor]:
    """Values with a dependency on the calls that a function makes, so that computing a value makes
    the calls."""
    if not frame.tokens:
        return list(values)
    never = _calls(frame) != 0
    return [_girih.where(never, _girih.zeros_like(value), value) for value in values]


class _Custom:
    """The common base of both kinds of functions with rules."""

    _kind: str
    _define: str
    #: Whether the rule is a forward-mode rule.
    _forward: bool

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        self._fun = fun
        self._static = tuple(items(nondiff_argnums))
        self._rules: tuple[Callable[..., Any], ...] = ()
        self.__name__ = name_of(fun)
        self.__doc__ = getattr(fun, "__doc__", None)
        self.__wrapped__ = fun

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else partial(self, instance)

    def __repr__(self) -> str:
        return f"<{self._kind} {self.__name__}>"

    def __call__(self, *args: Any) -> Any:
        """Calls the function; its derivative is computed by the rule."""
        raise NotImplementedError

    def _split(self, args: tuple[Any, ...]) -> tuple[list[Any], tuple[Any, ...]]:
        """The non-differentiable arguments, and the other arguments."""
        count = len(args)
        static = {i % count if -count <= i < count else count for i in self._static}
        if count in static:
            raise InvalidArgumentError(
                f"{self._kind}: nondiff_argnums {self._static} name an argument that "
                f"{self.__name__} was not given; it was called with {count}"
            )
        rest = tuple(arg for i, arg in enumerate(args) if i not in static)
        return [args[i] for i in sorted(static)], rest

    def _joined(self, static: list[Any], rest: Sequence[Any], count: int) -> list[Any]:
        where = {i % count for i in self._static}
        first, second = iter(static), iter(rest)
        return [next(first if i in where else second) for i in range(count)]

    def _body(
        self, arguments: Arguments, static: list[Any]
    ) -> tuple[RecordedBody, Any, list[Tensor], effects.Frame]:
        """Calls the function on placeholders; returns the body, the structure of the result, its
        leaves, and the calls with an effect."""
        body = RecordedBody.of(arguments.tensors)
        rest = arguments.rebuilt(body.own())[0]
        call = self._joined(static, rest, len(static) + len(rest))
        with effects.collected(self._fun, call) as frame:
            leaves, structure = leaves_of(self._fun(*call), self.__name__)
        return body, structure, leaves, frame

    def _ruled(self, rules: type[_Rules], args: tuple[Any, ...]) -> Any:
        """The results of the function at these arguments; ``rules`` records its derivative."""
        static, rest = self._split(args)
        arguments = Arguments((rest,))
        if not any(arguments.inexact):
            return self._fun(*args)
        body, structure, results, calls = self._body(arguments, static)
        tokens = [_calls(calls)] if calls.tokens else []
        body.body.set_outputs(results + tokens + calls.stored.tensors)
        further = _Further(bool(tokens), calls.stored.places())
        later = rules(self, static, arguments.template(), structure, further, len(args))
        found = _girih.record_ruled(
            body.body,
            arguments.tensors,
            later,
            self.__name__,
            self._forward,
            referred(later.functions, static),
        )
        count = len(results) + len(tokens)
        calls.stored.store(found[count:])
        effects.emit(found[len(results) : count], found, calls.is_ordered)
        return tree.unflatten(structure, found[: len(results)])


class _Further(NamedTuple):
    """The results of a function with rules that it does not return itself."""

    #: Whether there is a token of the function's calls.
    token: bool
    #: The places in which the function stores tensors: for each tensor, the first one, and its
    #: position among the tensors there.
    places: list[tuple[Any, str, int]]


class _Rules:
    """The rules of one call of a function, which are called when a derivative is taken.

    The Rust side calls ``run`` with the body to record into, and placeholders for the arguments.
    ``run`` returns the body of a backward rule, if there is one.
    """

    def __init__(
        self,
        of: Any,
        static: list[Any],
        arguments: Arguments,
        structure: tree.TreeDef,
        further: _Further,
        count: int,
    ) -> None:
        self._of = of
        self._name: str = of.__name__
        self._static = static
        self._arguments = arguments
        #: The structure of the function's result.
        self._structure = structure
        self._further = further
        self._count = count
        #: The rule functions.
        self.functions: tuple[Callable[..., Any], ...] = of._rules

    def run(self, body: _girih.Body, stand_ins: list[Tensor]) -> _girih.Body | None:
        raise NotImplementedError

    def _check(self, structure: tree.TreeDef, what: str) -> None:
        if structure != self._structure:
            raise InvalidArgumentError(
                f"the rule of {self._name} must give {what} of the structure that it returns, "
                f"{self._structure}, got {structure}"
            )

    def _values(self, values: list[Tensor], frame: effects.Frame) -> list[Tensor]:
        """All results: those that the function returns, the token, and the stored tensors."""
        tokens = [_calls(frame)] if self._further.token else []
        return [*values, *tokens, *self._stored(frame)]

    def _stored(self, frame: effects.Frame) -> list[Tensor]:
        """The tensors that the rule stores in the places in which the function does."""
        places = self._further.places
        found = frame.stored.tensors_at(places)
        if found is None or len(found) < len(frame.stored.tensors):
            missing = next((path for _, path, _ in places), "objects")
            own = next(iter(frame.stored.places()), None)
            raise InvalidArgumentError(
                f"the function {self._name} and its rule must store tensors in the same places, "
                f"for instance because the rule calls the function; the function stores in "
                f"{missing if places else 'none'}, the rule in {own[1] if own else 'none'}"
            )
        return found


class _Jvp(_Rules):
    def run(self, body: _girih.Body, stand_ins: list[Tensor]) -> _girih.Body | None:
        arguments = self._arguments.at(stand_ins)
        pairs = zip(stand_ins, arguments.inexact, strict=True)
        along_them = [body.placeholder(t) for t, varies in pairs if varies]
        primals = arguments.rebuilt(own_handles(stand_ins))[0]
        tangents = arguments.tangents(own_handles(along_them))[0]
        (rule,) = self.functions
        with effects.collected(rule, self._static) as frame:
            given = rule(*self._static, tuple(primals), tuple(tangents))
        if not isinstance(given, tuple) or len(given) != 2:
            raise InvalidArgumentError(
                f"the rule of {self._name} must return (output, tangent), got {described(given)}"
            )
        values, found = leaves_of(given[0], self._name)
        self._check(found, "an output")
        along, found = tree.flatten(given[1])
        self._check(found, "a tangent")
        outputs = zip(values, along, strict=True)
        tangents_out = [like(t, y) for y, t in outputs if y.dtype.name in INEXACT]
        # Derivatives treat stored tensors as constants.
        stored = [y for y in self._stored(frame) if y.dtype.name in INEXACT]
        tangents_out += [_girih.zeros_like(y) for y in stored]
        body.set_outputs(self._values(values, frame) + _after(frame, tangents_out))
        return None


class _Vjp(_Rules):
    def run(self, body: _girih.Body, stand_ins: list[Tensor]) -> _girih.Body | None:
        arguments = self._arguments.at(stand_ins)
        own = arguments.rebuilt(own_handles(stand_ins))[0]
        fwd, bwd = self.functions
        with effects.collected(fwd, self._static) as frame:
            given = fwd(*self._of._joined(self._static, own, self._count))
        if not isinstance(given, tuple) or len(given) != 2:
            raise InvalidArgumentError(
                f"the forward rule of {self._name} must return (output, residuals), got "
                f"{described(given)}"
            )
        values, found = leaves_of(given[0], self._name)
        self._check(found, "an output")
        residuals = Arguments((given[1],))
        body.set_outputs(self._values(values, frame) + _after(frame, residuals.tensors))
        # Stored tensors have cotangents too, which are not used.
        cotangents = [y for y in [*values, *self._stored(frame)] if y.dtype.name in INEXACT]
        backward = RecordedBody.of(residuals.tensors + cotangents)
        handles = backward.own()
        kept = residuals.rebuilt(handles[: len(residuals.tensors)])[0]
        rest = iter(handles[len(residuals.tensors) :])
        cts = [next(rest) if y.dtype.name in INEXACT else _girih.zeros_like(y) for y in values]
        with effects.collected(bwd, self._static) as of_backward:
            returned = bwd(*self._static, kept, tree.unflatten(self._structure, cts))
        name = f"the backward rule of {self._name}"
        of_backward.stored.refuse(name, "which is part of a derivative; return the tensor instead")
        given_back = arguments.cotangents(returned, self._name)
        backward.body.set_outputs(_after(of_backward, given_back))
        return backward.body


class custom_jvp(_Custom):  # noqa: N801  (a decorator)
    """A function with a custom derivative rule for both modes.

    Args:
        fun: A function of pytrees of tensors. It may refer to outside tensors, but is not
            differentiable with respect to them.
        nondiff_argnums: Positions of arguments that are not tensors or not differentiated; the rule
            takes them first.

    Raises:
        InvalidArgumentError: It is called without a rule (see :meth:`defjvp`), or the rule does not
            return a value and a tangent with the function's structure.

    Example:
        >>> import girih as gr
        >>> @gr.custom_jvp
        ... def safe_log(x):
        ...     return gr.log(x)
        >>> @safe_log.defjvp
        ... def rule(primals, tangents):
        ...     (x,), (t,) = primals, tangents
        ...     return safe_log(x), t / gr.maximum(x, 1e-3)
        >>> gr.grad(safe_log)(gr.asarray(0.0)).item()
        1000.0
    """

    _kind, _define, _forward = "custom_jvp", "defjvp", True

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the rule: ``rule(*nondiff, primals, tangents)`` returns ``(output, tangent)``.

        Args:
            rule: Takes the arguments and their tangents as tuples; must be linear in the tangents.
                Tangents of integers are zeros. The rule is called when a derivative is taken, and
                may call the function itself; derivatives of all orders use the rule. Also a
                decorator.

        Returns:
            The rule.

        Example:
            >>> import girih as gr
            >>> f = gr.custom_jvp(gr.sin)
            >>> _ = f.defjvp(lambda primals, tangents: (gr.sin(primals[0]), 2 * tangents[0]))
            >>> gr.grad(f)(gr.asarray(0.0)).item()
            2.0
        """
        self._rules = (rule,)
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Sets a rule for each argument, whose tangents are added.

        Args:
            rules: For each argument ``rule(tangent, output, *args)``, which returns the tangent of
                the output along the tangent of this argument, or None for a rule that gives zero.

        Raises:
            InvalidArgumentError: There are ``nondiff_argnums``, or, when a derivative is taken,
                another number of arguments.

        Example:
            >>> import girih as gr
            >>> f = gr.custom_jvp(lambda x, y: x * y)
            >>> f.defjvps(lambda t, out, x, y: t * y, None)
            >>> [g.item() for g in gr.grad(f, (0, 1))(gr.asarray(2.0), gr.asarray(3.0))]
            [3.0, 0.0]
        """
        if self._static:
            raise InvalidArgumentError(
                f"custom_jvp: defjvps is for functions without nondiff_argnums, which are "
                f"{self._static} here; use defjvp"
            )

        def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            if len(primals) != len(rules):
                raise InvalidArgumentError(
                    f"custom_jvp: {self.__name__} has {len(rules)} rules by defjvps, but was "
                    f"called with {len(primals)} arguments"
                )
            output = self(*primals)
            total = tree.map(_girih.zeros_like, output)
            for part, tangent in zip(rules, tangents, strict=True):
                if part is not None:
                    total = tree.map(operator.add, total, part(tangent, output, *primals))
            return output, total

        self._rules = (rule,)

    def __call__(self, *args: Any) -> Any:
        """Calls the function; its derivative is computed by the rule."""
        if not self._rules:
            raise InvalidArgumentError(
                f"custom_jvp: {self.__name__} has no rule; give it one with @{self.__name__}.defjvp"
            )
        return self._ruled(_Jvp, args)


class custom_vjp(_Custom):  # noqa: N801  (a decorator)
    """A function with a custom reverse-mode derivative rule.

    It does not support forward mode (``jvp``, ``jacfwd``): see :class:`custom_jvp`.

    Args:
        fun: A function of pytrees of tensors. It may refer to outside tensors, but is not
            differentiable with respect to them.
        nondiff_argnums: Positions of arguments that are not tensors or not differentiated; the
            backward rule takes them first.

    Raises:
        InvalidArgumentError: It is called without rules (see :meth:`defvjp`), or a rule returns a
            wrong structure.

    Example:
        >>> import girih as gr
        >>> @gr.custom_vjp
        ... def clip_gradient(x):
        ...     return x
        >>> clip_gradient.defvjp(lambda x: (x, None), lambda _, ct: (gr.clip(ct, -1.0, 1.0),))
        >>> gr.grad(lambda x: (clip_gradient(x) * 5.0).sum())(gr.ones([2])).tolist()
        [1.0, 1.0]
    """

    _kind, _define, _forward = "custom_vjp", "defvjp", False

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Sets the rule.

        Args:
            fwd: Takes the arguments of the function; returns ``(output, residuals)``, where
                residuals are any pytree. When a derivative is taken, ``fwd`` runs in place of the
                function. Both rules are called only when a derivative is taken.
            bwd: ``bwd(*nondiff, residuals, cotangent)`` returns a tuple with a pytree of cotangents
                for each differentiated argument, or None for zeros.

        Example:
            >>> import girih as gr
            >>> f = gr.custom_vjp(gr.sin)
            >>> f.defvjp(lambda x: (gr.sin(x), x), lambda x, ct: (ct * gr.cos(x) * 2,))
            >>> gr.grad(f)(gr.asarray(0.0)).item()
            2.0
        """
        self._rules = (fwd, bwd)

    def __call__(self, *args: Any) -> Any:
        """Calls the function; its derivative is computed by the rule."""
        if not self._rules:
            raise InvalidArgumentError(
                f"custom_vjp: {self.__name__} has no rule; give it one with "
                f"{self.__name__}.defvjp(fwd, bwd)"
            )
        return self._ruled(_Vjp, args)


explain_public(globals())

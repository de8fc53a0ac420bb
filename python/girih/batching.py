"""``vmap``: turns a function of one example into a function of a batch of examples.

The function is called once, with placeholders for one member of the batch; the recorded graph is
rewritten for the whole batch and recorded, still lazy, in the caller's graph.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

from . import _girih, effects, tree
from ._girih import SymbolicFloat, Tensor, has_protocol
from .checks import explain_public
from .errors import DTypeError, InvalidArgumentError
from .names import name_of
from .scopes import Scope
from .transforms import Transformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from .signatures import P, R

__all__ = ["vmap"]

#: How random draws without a key behave in a batch.
_RANDOMNESS = ("error", "same", "different")


def vmap(
    fun: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    axis_name: str | None = None,
    axis_size: int | None = None,
    randomness: Literal["error", "same", "different"] = "error",
) -> Callable[P, R]:
    """Turns ``fun`` into a function that computes all members of a batch in one program.

    Args:
        fun: A function of pytrees of tensors for one member of the batch. It is called once. It may
            close over tensors; those are the same for all members.
        in_axes: The axis of each argument that holds the batch: an int for all of them, or a tuple
            with one entry for each positional argument, which is an int, None (the same for all
            members) or a pytree of these that is a prefix of the argument's structure. Keyword
            arguments have the batch in their leading axis.
        out_axes: The position of the batch axis in the results, in the form of ``in_axes``. None
            requires a result that is the same for all members.
        axis_name: A name for the batch axis, by which the function refers to the other members:
            ``psum`` and the other collectives. It hides an axis of the same name further out.
        axis_size: The size of the batch; needed if no argument has it.
        randomness: How random draws without a key behave: ``"error"`` raises, ``"same"`` draws once
            for all members, ``"different"`` draws separately for each member. Draws with keys
            depend on the keys.

    Returns:
        A function of arguments with a batch axis.

    Raises:
        InvalidArgumentError: An axis does not exist, batches have different sizes, ``in_axes`` do
            not fit the arguments, or a result varies over the batch although ``out_axes`` is None.

    Example:
        >>> import girih as gr
        >>> dot = lambda x, y: (x * y).sum()
        >>> x = gr.asarray([[1.0, 2.0], [3.0, 4.0]])
        >>> gr.vmap(dot, in_axes=(0, None))(x, gr.ones([2])).tolist()
        [3.0, 7.0]
    """
    if axis_name is not None and not isinstance(axis_name, str):
        raise InvalidArgumentError(f"vmap: axis_name must be a str, got {axis_name!r}")
    if randomness not in _RANDOMNESS:
        raise InvalidArgumentError(
            f"vmap: randomness must be one of {', '.join(map(repr, _RANDOMNESS))}, got "
            f"{randomness!r}"
        )

    def batched(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _Call(fun, args, kwargs, in_axes, axis_size).run(out_axes, randomness, axis_name)

    return Transformed(fun, batched, "vmap")


def _is_axis(spec: Any) -> bool:
    return spec is None or (isinstance(spec, int) and not isinstance(spec, bool))


def _axes_of(spec: Any, value: Any, what: str) -> list[int | None]:
    """The batch axis of each leaf of a value."""
    axes = tree.spread(spec, value, _is_axis)
    if axes is None:
        raise InvalidArgumentError(
            f"vmap: {what} {spec!r} does not fit {tree.structure(value)}; expected an int, None, "
            "or a pytree of such with the same containers"
        )
    return axes


class _Call:
    """One call of a batched function."""

    def __init__(
        self,
        fun: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        in_axes: Any,
        axis_size: int | None,
    ) -> None:
        self._fun = fun
        leaves, self._structure = tree.flatten((args, kwargs))
        axes = self._axes(args, kwargs, in_axes)
        self._leaves: list[Any] = leaves
        #: Positions of the batched leaves, and these leaves with the batch axis first.
        self._where = [i for i, axis in enumerate(axes) if axis is not None]
        self._batch = [self._moved(leaves[i], axes[i]) for i in self._where]
        self._like = self._sized(axis_size)

    def _axes(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Any
    ) -> list[int | None]:
        name = name_of(self._fun)
        if isinstance(in_axes, list):
            in_axes = tuple(in_axes)
        if _is_axis(in_axes):
            in_axes = (in_axes,) * len(args)
        if not isinstance(in_axes, tuple) or len(in_axes) != len(args):
            raise InvalidArgumentError(
                f"vmap: in_axes must be an int or a tuple with one entry for each of the "
                f"{len(args)} arguments of {name}, got {in_axes!r}"
            )
        return _axes_of(in_axes, args, "in_axes") + [0] * tree.structure(kwargs).num_leaves

    def _moved(self, leaf: Any, axis: int | None) -> Tensor:
        assert axis is not None
        if not isinstance(leaf, Tensor):
            if not has_protocol(leaf, "__array__") and not isinstance(
                leaf, (bool, int, float, complex, SymbolicFloat)
            ):
                raise DTypeError(
                    f"vmap: an argument of {name_of(self._fun)} holds a {type(leaf).__name__}; "
                    "expected a tensor. Pass in_axes=None for what is the same for all members"
                )
            leaf = _girih.asarray(leaf)
        if not -leaf.ndim <= axis < leaf.ndim:
            raise InvalidArgumentError(
                f"vmap: an argument of {name_of(self._fun)} has shape {list(leaf.shape)}, which "
                f"has no axis {axis}; name its batch axis in in_axes, or None"
            )
        return leaf if axis == 0 else _girih.moveaxis(leaf, axis, 0)

    def _sized(self, axis_size: int | None) -> Tensor:
        """A tensor whose leading axis is the batch."""
        name = name_of(self._fun)
        if not self._batch:
            if axis_size is None:
                raise InvalidArgumentError(
                    f"vmap: no argument of {name} has a batch axis; name one in in_axes or pass "
                    "axis_size"
                )
            return _girih.zeros([axis_size])
        sizes = [leaf.shape[0] for leaf in self._batch]
        if axis_size is not None:
            sizes.append(axis_size)
        if any(size != sizes[0] for size in sizes[1:]):
            raise InvalidArgumentError(
                f"vmap: batch axes of the arguments of {name} must have one size, got "
                f"{', '.join(map(str, sizes))}"
            )
        return self._batch[0]

    def run(self, out_axes: Any, randomness: str, axis_name: str | None) -> Any:
        trace = _girih.Trace()
        members = [trace.member(leaf) for leaf in self._batch]
        leaves = list(self._leaves)
        for i, member in zip(self._where, members, strict=True):
            # The function may assign to its arguments, so it gets its own handles.
            leaves[i] = +member if member.dtype.name != "bool" else member
        args, kwargs = tree.unflatten(self._structure, leaves)
        batch = list(self._batch)
        # The containers of the arguments are new ones, and nobody else sees what changes in them.
        roots = (self._fun, [leaf for leaf in self._leaves if not isinstance(leaf, Tensor)])
        with effects.collected(*roots) as frame, ExitStack() as scope:
            if axis_name is not None:
                axis, indices = trace.bind_axis(axis_name, self._like)
                batch.append(indices)
                scope.enter_context(Scope(lambda n: _girih.enter_scope(n, axis=axis), lambda: None))
            result = self._fun(*args, **kwargs)
        outputs, structure = tree.flatten(result)
        axes = _axes_of(out_axes, result, "out_axes")
        tensors = [self._output(leaf) for leaf in outputs]
        batched = trace.vmap(
            tensors + frame.outputs(),
            batch,
            [True] * len(batch),
            self._like,
            randomness,
            axis_name,
        )
        count = len(tensors)
        batched, others = batched[:count], batched[count:]
        self._check_stored(frame, others)
        frame.emit([other for other, _ in others], [y for y, _ in batched])
        pairs = zip(batched, axes, strict=True)
        return tree.unflatten(structure, [self._placed(y, b, axis) for (y, b), axis in pairs])

    def _check_stored(self, frame: effects.Frame, others: list[tuple[Tensor, bool]]) -> None:
        """Fails if the function stores a tensor that varies over the batch."""
        marks = zip(frame.stored.tensors, others[len(frame.tokens) :], strict=True)
        varies = {id(tensor) for tensor, (_, batched) in marks if batched}
        path = frame.stored.path_of(varies)
        if path is not None:
            raise InvalidArgumentError(
                f"vmap: {name_of(self._fun)} stores a tensor in {path} that varies over the batch, "
                "and one object cannot hold the tensors of all members; return the tensor, combine "
                "the members first (with axis_name and pmean or psum), or do without it "
                "(module.eval() for running statistics). The objects hold what they held before"
            )

    def _output(self, leaf: Any) -> Tensor:
        if isinstance(leaf, Tensor):
            return leaf
        if isinstance(leaf, (bool, int, float, complex, SymbolicFloat)) or has_protocol(
            leaf, "__array__"
        ):
            return _girih.asarray(leaf)
        raise DTypeError(
            f"vmap: {name_of(self._fun)} returned a {type(leaf).__name__}; expected tensors, in "
            "any pytree"
        )

    def _placed(self, y: Tensor, batched: bool, axis: int | None) -> Tensor:
        if axis is None:
            if batched:
                raise InvalidArgumentError(
                    f"vmap: out_axes is None for a result of {name_of(self._fun)} that varies over "
                    "the batch; name an axis"
                )
            return y
        if not batched:
            y = _girih.broadcast_to(y, (self._like.shape[0], *y.shape))
        if not -y.ndim <= axis < y.ndim:
            raise InvalidArgumentError(
                f"vmap: out_axes is {axis} for a result of {name_of(self._fun)} of shape "
                f"{list(y.shape)} with the batch in front"
            )
        return y if axis == 0 else _girih.moveaxis(y, 0, axis)


explain_public(globals())

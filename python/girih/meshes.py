"""Tensors on meshes of devices: trees of tensors under shardings, and functions of one shard.

A sharding is a :class:`DeviceMesh` with a spec :class:`P`. Operations on sharded tensors are
recorded as on any others; what each device computes and sends follows from the shardings.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Literal

from . import _girih, tree
from ._girih import P, Sharding, Tensor
from .batching import vmap
from .checks import explain_public
from .errors import InvalidArgumentError, ShapeError
from .scopes import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._girih import DeviceMesh
    from .tree import PyTree

__all__ = ["implicit_reshards", "mesh_mode", "shard", "shard_map", "with_sharding_constraint"]


def _is_sharding(value: Any) -> bool:
    return isinstance(value, Sharding) or _girih.is_spec(value)


def _spread(prefix: Any, value: Any, what: str, each: str) -> list[Any]:
    """The spec or sharding of each leaf of a tree."""
    found = tree.spread(prefix, value, _is_sharding)
    if found is None:
        raise InvalidArgumentError(
            f"{what} {prefix!r} do not fit {tree.structure(value)}; expected {each}, or a pytree "
            "of such that is a prefix of the tensors'"
        )
    return found


def _chosen(specs: Any, value: Any, what: str, each: str) -> list[Any]:
    """As :func:`_spread`; ``specs`` may also be a function of the path and the leaf."""
    if callable(specs) and not _is_sharding(specs):
        return [specs(path, leaf) for path, leaf in tree.flatten_with_path(value)]
    return _spread(specs, value, what, each)


def shard(x: PyTree, mesh: DeviceMesh, specs: Any = None) -> PyTree:
    """Puts tensors on a mesh of devices, each of which gets the part that the spec gives it.

    Values do not change: operations on the results give what they give for whole tensors, and are
    computed by all devices. Gradients have the shardings of their arguments.

    Args:
        x: A tensor or a pytree of tensors; other leaves stay.
        mesh: The mesh.
        specs: A spec :class:`P` (or its text, or None, which leaves tensors whole on every device);
            a pytree of specs that is a prefix of ``x``; or a function of the path and the leaf that
            returns a spec.

    Returns:
        The tensors on the mesh.

    Raises:
        InvalidArgumentError: An axis is unknown or repeated, or a spec has too many entries.
        DeviceError: The process does not have the mesh's devices.

    Example:
        >>> import girih as gr
        >>> gr.set_host_devices(2)
        >>> mesh = gr.DeviceMesh((2,), ("dp",))
        >>> x = gr.shard(gr.arange(6.0).reshape(3, 2), mesh, gr.P("dp"))
        >>> (x * 2).sharding.spec, [part.shape for part in x.shards()]
        (P('dp'), [(2, 2), (1, 2)])
        >>> x.sum().item()
        15.0
    """
    leaves, structure = tree.flatten(x)
    found = _chosen(specs, x, "shard: specs", "a spec")
    on_mesh = [
        _girih.reshard(leaf, Sharding(mesh, spec)) if isinstance(leaf, Tensor) else leaf
        for leaf, spec in zip(leaves, found, strict=True)
    ]
    return tree.unflatten(structure, on_mesh)


def with_sharding_constraint(x: PyTree, shardings: Any) -> PyTree:
    """The same tensors under the given shardings, whatever sharding they would have.

    Args:
        x: A tensor or a pytree of tensors; other leaves stay.
        shardings: A :class:`Sharding`; a spec :class:`P` on the mesh that a tensor is on; or a
            pytree of such that is a prefix of ``x``.

    Returns:
        The tensors under the shardings.

    Raises:
        InvalidArgumentError: A spec is given for a tensor that is on no mesh, or is not valid for
            the tensor.

    Example:
        >>> import girih as gr
        >>> gr.set_host_devices(2)
        >>> mesh = gr.DeviceMesh((2,), ("dp",))
        >>> x = gr.ones([4, 4]).shard(mesh, gr.P("dp"))
        >>> gr.with_sharding_constraint(x + 1, gr.P(None, "dp")).sharding.spec
        P(None, 'dp')
    """
    return placed(x, shardings, "with_sharding_constraint: shardings")


def implicit_reshards(mode: Literal["allow", "error"]) -> Scope[None]:
    """A context manager that says whether operations may reshard their operands.

    Args:
        mode: ``"error"`` refuses an operation that would move parts of an operand between devices;
            partial sums are still added. ``"allow"`` is the default.

    Returns:
        The context manager.

    Raises:
        InvalidArgumentError: Another mode.

    Example:
        >>> import girih as gr
        >>> gr.set_host_devices(2)
        >>> mesh = gr.DeviceMesh((2,), ("a",))
        >>> x = gr.ones([4, 4]).shard(mesh, gr.P("a"))
        >>> with gr.implicit_reshards("error"):
        ...     y = x + x
        ...     try:
        ...         x + x.T
        ...     except gr.InvalidArgumentError as error:
        ...         print(str(error).split(" (")[0])
        add: an operand f32[4, 4] would be resharded from <*, a> to <a, *>
    """
    if mode not in ("allow", "error"):
        raise InvalidArgumentError(
            f"implicit_reshards: mode must be 'allow' or 'error', got {mode!r}"
        )
    allowed = mode == "allow"
    return Scope(lambda n: _girih.enter_scope(n, reshards=allowed), lambda: None)


def mesh_mode(mode: Literal["sequential", "concurrent", "chaos"], *, seed: int = 0) -> Scope[None]:
    """A context manager that says in which order the devices of a mesh run.

    Results have the same bits in each mode: partial sums are added in the order of the devices.

    Args:
        mode: ``"sequential"``, the default: one device after the other, on the calling thread,
            since the devices of one host share its processor. ``"concurrent"``: all at once, with
            a thread for each. ``"chaos"``: all at once, each after random delays, to test programs.
        seed: The seed of the delays.

    Returns:
        The context manager.

    Raises:
        InvalidArgumentError: Another mode.

    Example:
        >>> import girih as gr
        >>> gr.set_host_devices(2)
        >>> x = gr.arange(4.0).shard(gr.DeviceMesh((2,), ("a",)), gr.P("a"))
        >>> with gr.mesh_mode("chaos", seed=1):
        ...     x.sum().item()
        6.0
    """
    if mode not in ("sequential", "concurrent", "chaos"):
        raise InvalidArgumentError(
            f"mesh_mode: mode must be 'sequential', 'concurrent' or 'chaos', got {mode!r}"
        )
    return Scope(lambda n: _girih.enter_scope(n, mesh=(mode, seed)), lambda: None)


def constrained_function(fun: Callable[..., Any], ins: Any, outs: Any) -> Callable[..., Any]:
    """A function with shardings for its positional arguments and for its results; None for none."""

    @functools.wraps(fun)
    def constrained(*args: Any, **kwargs: Any) -> Any:
        if ins is not None:
            each = tuple(ins for _ in args) if _is_sharding(ins) else ins
            args = placed(args, each, "compile: in_shardings")
        results = fun(*args, **kwargs)
        return results if outs is None else placed(results, outs, "compile: out_shardings")

    return constrained


def placed(values: Any, shardings: Any, what: str) -> Any:
    """Tensors under shardings: a prefix tree, or a function of path and leaf. None leaves a tensor
    as it is."""
    found = _chosen(shardings, values, what, "a sharding or None")
    leaves, structure = tree.flatten(values)

    def put(leaf: Any, sharding: Any) -> Any:
        if sharding is None or not isinstance(leaf, Tensor):
            return leaf
        return _girih.reshard(leaf, _girih.sharding_for(sharding, leaf))

    return tree.unflatten(structure, map(put, leaves, found))


class _Leaf:
    """How a tensor is cut into the shards that a mapped function gets.

    A dimension that is cut becomes one dimension for each axis, and one within the shard. The
    dimensions of the axes come first, in the order of the mesh.
    """

    def __init__(self, mesh: DeviceMesh, spec: Any, rank: int) -> None:
        self.mesh = mesh
        self.spec = _girih.Sharding(mesh, spec).spec
        self.cut = [self._axes(dim) for dim in range(rank)]
        self.axes = [name for name in mesh.axis_names if any(name in axes for axes in self.cut)]
        if len(self.spec) > rank:
            raise InvalidArgumentError(
                f"shard_map: the spec {self.spec} has {len(self.spec)} entries for a tensor of "
                f"rank {rank}; give at most one for each dimension"
            )

    def _axes(self, dim: int) -> tuple[str, ...]:
        entry = self.spec.dims[dim].axes if dim < len(self.spec) else ()
        for axis in entry:
            if axis not in self.mesh.axis_names:
                raise InvalidArgumentError(
                    f"shard_map: {axis} is a part of an axis; a function is mapped over whole axes"
                )
        return tuple(entry)

    def _parts(self, dim: int) -> list[int]:
        return [self.mesh.axis_size(axis) for axis in self.cut[dim]]

    def split(self, x: Tensor) -> Tensor:
        """The shards of a tensor, along leading dimensions."""
        x = _girih.reshard(x, Sharding(self.mesh, self.spec))
        sizes: list[int] = []
        at: dict[str, int] = {}
        inner = []
        for dim, size in enumerate(x.shape):
            parts = self._parts(dim)
            if size % math.prod(parts):
                axes = " x ".join(f"{a}={n}" for a, n in zip(self.cut[dim], parts, strict=True))
                raise ShapeError(
                    f"shard_map: dimension {dim} of a tensor of shape {list(x.shape)} has size "
                    f"{size}, which {axes} do not divide; pad it, or leave it whole"
                )
            for axis, part in zip(self.cut[dim], parts, strict=True):
                at[axis] = len(sizes)
                sizes.append(part)
            inner.append(len(sizes))
            sizes.append(size // math.prod(parts))
        order = [at[axis] for axis in self.axes] + inner
        x = _girih.permute_dims(_girih.reshape(x, sizes), order)
        return _girih.reshard(x, Sharding(self.mesh, P(*self.axes)))

    def join(self, x: Tensor) -> Tensor:
        """The tensor whose shards are along leading dimensions."""
        x = _girih.reshard(x, Sharding(self.mesh, P(*self.axes)))
        order: list[int] = []
        sizes = []
        for dim, axes in enumerate(self.cut):
            order += [self.axes.index(axis) for axis in axes] + [len(self.axes) + dim]
            sizes.append(math.prod(self._parts(dim)) * x.shape[len(self.axes) + dim])
        x = _girih.reshape(_girih.permute_dims(x, order), sizes)
        return _girih.reshard(x, Sharding(self.mesh, self.spec))


def shard_map(
    fun: Callable[..., Any],
    mesh: DeviceMesh,
    in_specs: Any,
    out_specs: Any,
    *,
    check: bool = True,
) -> Callable[..., Any]:
    """Maps a function of the shards of one device over all devices of a mesh.

    The function is called once, with tensors of the shapes of a shard. The axes of the mesh are
    named axes inside of it, as those of :func:`vmap` are: ``psum(x, "dp")`` and the other
    collectives exchange values between devices.

    Args:
        fun: A function of pytrees of shards to pytrees of shards.
        mesh: The mesh.
        in_specs: How each argument is cut: a spec for all of them, or a tuple with an entry for
            each argument, which is a spec or a pytree of specs that is a prefix of the argument.
        out_specs: How the results make up the whole ones: a spec, or a pytree of specs that is a
            prefix of the results. Along axes that a spec does not have, all devices have the same.
        check: Whether it is an error if a result varies along an axis that its spec does not have.
            With False, the result of the first device along the axis is taken.

    Returns:
        A function of whole tensors to whole tensors on the mesh.

    Raises:
        ShapeError: A dimension is not divided by the axes that cut it.
        InvalidArgumentError: A result varies along an axis that its spec does not have; a spec is
            not valid.

    Example:
        >>> import girih as gr
        >>> gr.set_host_devices(2)
        >>> mesh = gr.DeviceMesh((2,), ("dp",))
        >>> f = gr.shard_map(lambda x: x / gr.psum(x.sum(), "dp"), mesh, gr.P("dp"), gr.P("dp"))
        >>> f(gr.asarray([1.0, 2.0, 3.0, 4.0])).tolist()
        [0.10000000149011612, 0.20000000298023224, 0.30000001192092896, 0.4000000059604645]
    """

    @functools.wraps(fun)
    def mapped(*args: Any) -> Any:
        leaves, structure = tree.flatten(args)
        found = _spread(_entries(in_specs, args), args, "shard_map: in_specs", "a spec")
        arrays = [x if isinstance(x, Tensor) else _girih.asarray(x) for x in leaves]
        cuts = [_Leaf(mesh, s, x.ndim) for s, x in zip(found, arrays, strict=True)]
        shards = [cut.split(x) for cut, x in zip(cuts, arrays, strict=True)]
        run = _Run(fun, structure, mesh, out_specs, check)
        results = run.over(list(mesh.axis_names), cuts)(*shards)
        joined = [cut.join(x) for cut, x in zip(run.cuts, results, strict=True)]
        return tree.unflatten(run.structure, joined)

    return mapped


def _entries(in_specs: Any, args: tuple[Any, ...]) -> Any:
    """A spec for each argument; one spec is for all of them."""
    return tuple(in_specs for _ in args) if _is_sharding(in_specs) else tuple(in_specs)


class _Run:
    """One call of a mapped function."""

    def __init__(
        self, fun: Any, structure: tree.TreeDef, mesh: DeviceMesh, out_specs: Any, check: bool
    ) -> None:
        self.fun = fun
        self.arguments = structure
        self.mesh = mesh
        self.out_specs = out_specs
        self.check = check
        #: How the results are put together, and their batch axes, once the function has run.
        self.cuts: list[_Leaf] = []
        self.out_axes: dict[str, list[int | None]] = {name: [] for name in mesh.axis_names}
        self.structure = structure

    def _inside(self, *shards: Tensor) -> list[Tensor]:
        """The results of the function for one device."""
        results = self.fun(*tree.unflatten(self.arguments, shards))
        leaves, self.structure = tree.flatten(results)
        specs = _spread(self.out_specs, results, "shard_map: out_specs", "a spec")
        tensors = [x if isinstance(x, Tensor) else _girih.asarray(x) for x in leaves]
        self.cuts = [_Leaf(self.mesh, s, x.ndim) for s, x in zip(specs, tensors, strict=True)]
        for name, axes in self.out_axes.items():
            varies = [name in cut.axes or not self.check for cut in self.cuts]
            axes[:] = [0 if along else None for along in varies]
        return tensors

    def over(self, names: list[str], cuts: list[_Leaf]) -> Callable[..., list[Tensor]]:
        """The function, batched over the axes of these names."""
        if not names:
            return self._inside
        name, *rest = names
        batched = vmap(
            self.over(rest, cuts),
            tuple(0 if name in cut.axes else None for cut in cuts),
            # Filled in when the function has run, and read afterwards.
            self.out_axes[name],
            axis_name=name,
            axis_size=self.mesh.axis_size(name),
            randomness="different",
        )

        def chosen(*shards: Tensor) -> list[Tensor]:
            results = batched(*shards)
            if self.check:
                return results
            along = zip(self.cuts, results, strict=True)
            return [x if name in cut.axes else x[0] for cut, x in along]

        return chosen


explain_public(globals())

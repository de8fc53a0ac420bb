"""Dtypes, devices and shardings of the tensors of a module."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from .. import _girih
from .._girih import Tensor
from ..checks import explain_methods
from ..errors import DTypeError, InvalidArgumentError
from .places import locations, put

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from .._girih import DeviceMesh, DType

__all__ = ["Moving"]


@explain_methods
class Moving:
    """The mixin of :class:`girih.nn.Module` for dtypes, devices and shardings."""

    def astype(self, dtype: DType) -> Self:
        """Casts all floating-point parameters and buffers."""
        return self._mapped(lambda t: t.astype(dtype) if "float" in t.dtype.name else t)

    def half(self) -> Self:
        """Casts all floating-point parameters and buffers to float16."""
        return self.astype(_girih.float16)

    def bfloat16(self) -> Self:
        """Casts all floating-point parameters and buffers to bfloat16."""
        return self.astype(_girih.bfloat16)

    def float(self) -> Self:
        """Casts all floating-point parameters and buffers to float32."""
        return self.astype(_girih.float32)

    def double(self) -> Self:
        """Casts all floating-point parameters and buffers to float64."""
        return self.astype(_girih.float64)

    def cpu(self) -> Self:
        """Moves all parameters and buffers to the CPU."""
        return self.to("cpu")

    def to(self, target: Any = None, dtype: Any = None, *, device: Any = None) -> Self:
        """Moves parameters and buffers to a device, or casts floating-point ones to a dtype.

        Args:
            target: A device or its name, a dtype, or a tensor, whose dtype and device they get.
            dtype: The dtype.
            device: The device.

        Returns:
            The module.

        Raises:
            DeviceError: The target is neither a dtype nor a device.
        """
        if isinstance(target, Tensor):
            dtype = target.dtype if dtype is None else dtype
            target = target.device
        if target is not None:
            try:
                dtype = _girih.zeros((), dtype=target).dtype
            except DTypeError:
                device = target if device is None else device
        if device is not None:
            self._mapped(lambda tensor: tensor.to_device(device))
        if dtype is not None:
            self.astype(_girih.zeros((), dtype=dtype).dtype)
        return self

    def shard(self, mesh: DeviceMesh, specs: Mapping[str, Any] | None = None) -> Self:
        """Puts all parameters and buffers on a mesh of devices.

        Args:
            mesh: The mesh.
            specs: Specs (:class:`girih.P`, its text, or None) by patterns of names, such as
                ``"*.qkv.weight"``, in which ``*`` stands for any text. The first pattern that
                matches the name of a tensor decides; a tensor that none matches is whole on every
                device.

        Returns:
            The module.

        Raises:
            InvalidArgumentError: A pattern matches no name, or a spec is not valid for its tensor.

        Example:
            >>> import girih as gr
            >>> gr.set_host_devices(2)
            >>> mesh = gr.DeviceMesh((2,), ("tp",))
            >>> layer = gr.nn.Linear(4, 6).shard(mesh, {"weight": gr.P("tp")})
            >>> layer.weight.sharding.spec, layer.bias.is_fully_replicated
            (P('tp'), True)
        """
        rules = dict(specs or {})
        unused = set(rules)
        chosen: dict[int, Any] = {}
        names = [path for path, _ in locations(self)]
        for path, (holder, name) in locations(self):
            matching = [rule for rule in rules if fnmatchcase(path, rule)]
            unused -= set(matching[:1])
            spec = rules[matching[0]] if matching else None
            tensor = holder.__dict__[name]
            chosen.setdefault(id(tensor), tensor.shard(mesh, spec))
        if unused:
            raise InvalidArgumentError(
                f"shard: no tensor of the module has a name that {sorted(unused)} decide; the "
                f"names are {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"
            )
        return self._mapped(lambda tensor: chosen[id(tensor)])

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Replaces all tensors by the results of a function, so that tied tensors stay tied."""
        found = [place for _, place in locations(self)]
        old = {id(holder.__dict__[name]): holder.__dict__[name] for holder, name in found}
        new = {key: function(tensor) for key, tensor in old.items()}
        for holder, name in found:
            held = holder.__dict__[name]
            if id(held) in new and held is not new[id(held)]:
                put(holder, name, new[id(held)])
        return self

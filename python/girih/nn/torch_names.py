"""States of modules between this package's names and PyTorch's, where the two differ.

Most modules have PyTorch's names. Attention has its projections of queries, keys and values apart,
where PyTorch packs them into one matrix; parametrized weights are flat names here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _girih
from .attention import MultiheadAttention
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._girih import Tensor

__all__ = ["from_torch", "to_torch"]

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
#: Names of PyTorch's parametrizations, by ours.
_PARAMETRIZED = {
    "weight_norm": {"_g": "original0", "_v": "original1"},
    "spectral_norm": {"_orig": "original", "_u": "0._u", "_v": "0._v"},
}


def _prefixes(value: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Module]]:
    """The modules in a module, with what their tensors' names begin with."""
    if isinstance(value, Module):
        if id(value) in seen:
            return
        seen.add(id(value))
        yield prefix, value
    items: Any = ()
    if isinstance(value, Module):
        items = vars(value).items()
    elif isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    for key, inner in items:
        if isinstance(inner, (Module, dict, list, tuple)):
            yield from _prefixes(inner, f"{prefix}{key}.", seen)


def from_torch(module: Module, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Values by PyTorch's names under this package's names; others as they are."""
    out = dict(values)
    for prefix, inner in _prefixes(module, "", set()):
        if isinstance(inner, MultiheadAttention):
            _unpack(prefix, inner, out)
        for ours, theirs in _renamed(inner):
            if prefix + theirs in out and prefix + ours not in out:
                out[prefix + ours] = out.pop(prefix + theirs)
    return out


def to_torch(module: Module, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state by PyTorch's names."""
    out = dict(values)
    for prefix, inner in _prefixes(module, "", set()):
        if isinstance(inner, MultiheadAttention):
            _pack(prefix, inner, out)
        for ours, theirs in _renamed(inner):
            out[prefix + theirs] = out.pop(prefix + ours)
    return out


def _renamed(module: Module) -> list[tuple[str, str]]:
    """Names of a module's own tensors, ours and PyTorch's."""
    rule = getattr(module, "_reparametrization", None)
    if rule is None:
        return []
    names = _PARAMETRIZED[rule.function].items()
    return [(rule.name + ours, f"parametrizations.{rule.name}.{theirs}") for ours, theirs in names]


def _unpack(prefix: str, module: MultiheadAttention, values: dict[str, Tensor]) -> None:
    sizes = [getattr(module, name).weight.shape[0] for name in _PROJECTIONS]
    for kind in ("weight", "bias"):
        packed = values.get(f"{prefix}in_proj_{kind}")
        # A matrix of another size stays, and is refused by its name.
        if packed is not None and packed.shape[:1] == (sum(sizes),):
            del values[f"{prefix}in_proj_{kind}"]
            at = 0
            for name, size in zip(_PROJECTIONS, sizes, strict=True):
                values[f"{prefix}{name}.{kind}"] = packed[at : at + size]
                at += size
    for name in _PROJECTIONS:
        if f"{prefix}{name}_weight" in values:
            values[f"{prefix}{name}.weight"] = values.pop(f"{prefix}{name}_weight")


def _pack(prefix: str, module: MultiheadAttention, values: dict[str, Tensor]) -> None:
    weights = [values.pop(f"{prefix}{name}.weight") for name in _PROJECTIONS]
    if module.kdim == module.vdim == module.embed_dim:
        values[f"{prefix}in_proj_weight"] = _girih.concat(weights, 0)
    else:
        for name, weight in zip(_PROJECTIONS, weights, strict=True):
            values[f"{prefix}{name}_weight"] = weight
    biases = [values.pop(f"{prefix}{name}.bias", None) for name in _PROJECTIONS]
    known = [bias for bias in biases if bias is not None]
    if known:
        values[f"{prefix}in_proj_bias"] = _girih.concat(known, 0)

"""Converts state dicts between this package's names and PyTorch's names.

Most modules have PyTorch's names. Attention has separate projections of queries, keys and values,
which PyTorch packs into one matrix; parametrised weights have flat names in this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _girih
from .attention import MultiheadAttention
from .places import submodules

if TYPE_CHECKING:
    from .._girih import Tensor
    from .module import Module

__all__ = ["from_torch", "to_torch"]

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
#: Names of PyTorch's parametrisations, by the names of this package.
_PARAMETRIZED = {
    "weight_norm": {"_g": "original0", "_v": "original1"},
    "spectral_norm": {"_orig": "original", "_u": "0._u", "_v": "0._v"},
}


def from_torch(module: Module, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Renames values from PyTorch's names to this package's names; other values are unchanged."""
    out = dict(values)
    for name, inner in submodules(module, every=True):
        prefix = f"{name}." if name else ""
        if isinstance(inner, MultiheadAttention):
            _unpack(prefix, inner, out)
        for ours, theirs in _renamed(inner):
            if prefix + theirs in out and prefix + ours not in out:
                out[prefix + ours] = out.pop(prefix + theirs)
    return out


def to_torch(module: Module, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state dict with PyTorch's names."""
    out = dict(values)
    for name, inner in submodules(module):
        prefix = f"{name}." if name else ""
        if isinstance(inner, MultiheadAttention):
            _pack(prefix, inner, out)
        for ours, theirs in _renamed(inner):
            out[prefix + theirs] = out.pop(prefix + ours)
    return out


def _renamed(module: Module) -> list[tuple[str, str]]:
    """Names of a module's own tensors, in this package and in PyTorch."""
    rule = getattr(module, "_reparametrization", None)
    if rule is None:
        return []
    names = _PARAMETRIZED[rule.function].items()
    return [(rule.name + ours, f"parametrizations.{rule.name}.{theirs}") for ours, theirs in names]


def _unpack(prefix: str, module: MultiheadAttention, values: dict[str, Tensor]) -> None:
    sizes = [getattr(module, name).weight.shape[0] for name in _PROJECTIONS]
    for kind in ("weight", "bias"):
        packed = values.get(f"{prefix}in_proj_{kind}")
        # A matrix of another size keeps its name, so that loading reports the name.
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

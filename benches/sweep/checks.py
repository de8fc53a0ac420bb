"""The comparison of a row's values: large ones in part, and draws by their moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..measure import WrongValueError

if TYPE_CHECKING:
    from .. import peers
    from .rows import Row

#: Of larger values, about this many elements are compared.
COMPARED = 1 << 17
#: Fewer draws than this have no moments to compare.
FEW = 1000


def array(library: peers.Library, value: Any) -> np.ndarray:
    """A result as an array of NumPy, without a copy where possible."""
    if "bfloat16" in str(value.dtype):
        value = library.numpy(value)
    return np.asarray(value.detach() if hasattr(value, "detach") else value)


def arrays(library: peers.Library, value: Any) -> list[np.ndarray]:
    """A result, or several, as arrays."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [array(library, part) for part in parts]


def sample(values: np.ndarray) -> np.ndarray:
    """A part of the elements: every n-th, where n has no factors in common with axes."""
    flat = values.reshape(-1)
    if flat.size <= 2 * COMPARED:
        return flat
    return flat[:: flat.size // COMPARED | 1]


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The maximum difference, relative to the largest finite value or 1. NaN equals NaN.

    Raises:
        WrongValueError: The shapes differ.
    """
    if found.shape != expected.shape:
        raise WrongValueError(f"shapes {found.shape} and {expected.shape}")
    wide = np.complex128 if np.iscomplexobj(found) or np.iscomplexobj(expected) else np.float64
    a, b = (sample(v).astype(wide) for v in (found, expected))
    if not a.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)
    apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    sizes = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(sizes.max(initial=0.0)))
    worst = float(apart.max())
    return float("inf") if np.isnan(worst) else worst / scale


def moments(values: np.ndarray) -> np.ndarray:
    """Mean and deviation of draws, in units of the deviation or 1."""
    if values.size < FEW:
        return np.zeros(2)
    wide = values.astype(np.float64)
    return np.array([wide.mean(), wide.std()]) / max(1.0, float(wide.std()))


def compare(row: Row, found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The maximum difference of two results of a row.

    Raises:
        WrongValueError: The numbers of results or the shapes differ.
    """
    if len(found) != len(expected):
        raise WrongValueError(f"{len(found)} and {len(expected)} results")
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        if row.check == "moments":
            if a.shape != b.shape:
                raise WrongValueError(f"shapes {a.shape} and {b.shape}")
            a, b = moments(a), moments(b)
        worst = max(worst, difference(a, b))
    return worst


def check(row: Row, values: dict[str, list[np.ndarray]]) -> None:
    """Compares all libraries' values with those of the first peer, or Girih's own alone.

    Raises:
        WrongValueError: A value differs by more than the row's tolerance.
    """
    names = [name for name in values if name != "girih"]
    if not names:
        return
    reference = names[0]
    for name, value in values.items():
        try:
            apart = compare(row, value, values[reference])
        except WrongValueError as error:
            raise WrongValueError(f"{row.name}: {name} and {reference}: {error}") from None
        if not apart <= row.tolerance:
            raise WrongValueError(
                f"{row.name}: {name} differs from {reference} by {apart:.2g}, more than "
                f"{row.tolerance:.2g}"
            )

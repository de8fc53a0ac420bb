"""Runs other libraries on Girih's tensors, and says which parts pass.

    python scripts/interop.py [NAME...]

Each part is a function `library_what`; one whose library is not installed is skipped. What is
compared with is the same library on NumPy's arrays. Parts that cannot pass are in `KNOWN`,
with why; one of them that passes is a failure.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

# SciPy looks at it when it is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import girih as gr
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

RNG = np.random.default_rng(0)
LABELS = np.array([0, 1, 1, 0, 1, 0, 1, 1, 0, 0])
PREDICTED = np.array([0, 1, 0, 0, 1, 1, 1, 1, 0, 1])
SCORES = np.array([0.1, 0.8, 0.4, 0.3, 0.9, 0.6, 0.7, 0.75, 0.2, 0.55])


def close(found: Any, expected: Any, rtol: float = 1e-5) -> None:
    """Fails unless both are equal, up to float32's rounding."""
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=rtol, atol=1e-6)


def dispatched(metric: str, *arrays: np.ndarray) -> None:
    """A metric of scikit-learn with array dispatch."""
    import sklearn
    from sklearn import metrics

    function = getattr(metrics, metric)
    expected = function(*arrays)
    with sklearn.config_context(array_api_dispatch=True):
        found = function(*(gr.asarray(a) for a in arrays))
    several = isinstance(expected, tuple)
    for f, e in zip(*((found, expected) if several else ([found], [expected])), strict=True):
        close(f, e)


def sklearn_roc_auc_score() -> None:
    """The area under the curve."""
    dispatched("roc_auc_score", LABELS, SCORES)


def sklearn_roc_curve() -> None:
    """Rates and thresholds."""
    dispatched("roc_curve", LABELS, SCORES)


def sklearn_matthews_corrcoef() -> None:
    """The correlation of two labelings."""
    dispatched("matthews_corrcoef", LABELS, PREDICTED)


def sklearn_accuracy_score() -> None:
    """The share of equal labels."""
    dispatched("accuracy_score", LABELS, PREDICTED)


def sklearn_mean_squared_error() -> None:
    """A metric of regressions."""
    dispatched("mean_squared_error", SCORES, SCORES[::-1].copy())


def scipy_sosfilt() -> None:
    """A filter in second-order sections."""
    from scipy import signal

    sections, x = signal.butter(4, 0.2, output="sos"), RNG.standard_normal(50)
    close(signal.sosfilt(gr.asarray(sections), gr.asarray(x)), signal.sosfilt(sections, x))


def scipy_of_arrays() -> None:
    """SciPy takes arrays made of tensors."""
    from scipy import signal
    from scipy.interpolate import RBFInterpolator

    sections, x = signal.butter(4, 0.2, output="sos"), RNG.standard_normal(50)
    own = np.array(gr.asarray(sections)), np.array(gr.asarray(x))
    close(gr.asarray(signal.sosfilt(*own)) * 2, 2 * signal.sosfilt(sections, x))
    points, values = RNG.standard_normal((20, 2)), RNG.standard_normal(20)
    tensors = gr.asarray(points), gr.asarray(values)
    made = RBFInterpolator(*(np.asarray(t) for t in tensors))(points[:3])
    close(made, RBFInterpolator(points, values)(points[:3]), 1e-4)


def scipy_rbf_interpolator() -> None:
    """Interpolation of scattered points."""
    from scipy.interpolate import RBFInterpolator

    points, values = RNG.standard_normal((20, 2)), RNG.standard_normal(20)
    at = RNG.standard_normal((5, 2))
    expected = RBFInterpolator(points, values)(at)
    close(RBFInterpolator(gr.asarray(points), gr.asarray(values))(gr.asarray(at)), expected, 1e-4)


def scipy_sparse() -> None:
    """A sparse matrix is refused, and the error says what to do."""
    from scipy import sparse

    for made in (sparse.csr_matrix(np.eye(3)), sparse.coo_array(np.eye(3))):
        message = ""
        try:
            gr.asarray(made)
        except gr.DTypeError as error:
            message = str(error)
        assert "sparse" in message, message
        assert "toarray" in message, message
    close(gr.asarray(sparse.csr_matrix(np.eye(3)).toarray()), np.eye(3))


def einops_rearrange() -> None:
    """Axes named, split and joined, on the values and in a backend of einops."""
    import einops
    from einops import array_api

    x = RNG.standard_normal((2, 3, 4, 6)).astype(np.float32)
    pattern = "b c (h p) (w q) -> b (h w) (p q c)"
    expected = einops.rearrange(x, pattern, p=2, q=3)
    close(array_api.rearrange(gr.asarray(x), pattern, p=2, q=3), expected)
    close(
        array_api.reduce(gr.asarray(x), "b c h w -> b c", "mean"),
        einops.reduce(x, "b c h w -> b c", "mean"),
    )
    close(
        array_api.repeat(gr.asarray(x[0, 0]), "h w -> h k w", k=2),
        einops.repeat(x[0, 0], "h w -> h k w", k=2),
    )


def einops_lazy() -> None:
    """What einops records has gradients, by its own functions and by those of the standard."""
    import einops
    from einops import array_api

    for library in (einops, array_api):
        f = lambda x, of=library: (of.rearrange(x, "a b -> (b a)") * gr.arange(6.0)).sum()
        close(gr.grad(f)(gr.ones((2, 3))), np.arange(6.0).reshape(3, 2).T)
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    for call in (
        lambda t: einops.reduce(t, "a b (c 2) -> b c", "max"),
        lambda t: einops.repeat(t, "a b c -> a k b c", k=2),
        lambda t: einops.einsum(t, t, "a b c, a d c -> a b d"),
        lambda t: einops.pack([t, t[:, 0]], "a * c")[0],
        lambda t: einops.rearrange([t, t], "n a b c -> a (n b) c"),
    ):
        close(call(gr.asarray(x)), call(x), 1e-5)


def scipy_products() -> None:
    """A sparse matrix times a tensor, and solvers whose functions give tensors."""
    from scipy import integrate, optimize, sparse

    made, x = sparse.csr_matrix(np.arange(9.0).reshape(3, 3)), gr.asarray(np.arange(3.0))
    close(made @ x, made @ x.numpy())
    close(made @ gr.stack([x, x], 1), made @ np.stack([x.numpy()] * 2, 1))
    root = optimize.fsolve(lambda v: gr.cos(gr.asarray(v)) - v, gr.asarray(1.0, gr.float64))
    close(root, [0.7390851332151607], 1e-6)
    start = gr.asarray([1.0], gr.float64)
    close(optimize.least_squares(lambda v: gr.asarray(v) ** 2 - 2, start).x, [2**0.5], 1e-6)
    t = gr.asarray(np.linspace(0, 1, 20))
    found, _ = optimize.curve_fit(lambda t, a, b: a * gr.exp(t * b), t, 2 * gr.exp(t * 0.5))
    close(found, [2.0, 0.5], 1e-6)
    solved = integrate.solve_ivp(lambda t, y: -gr.asarray(y), (0, 1), start)
    close(solved.y[:, -1], [np.exp(-1.0)], 1e-3)


PARTS: dict[str, Callable[[], None]] = {
    name: part
    for name, part in list(globals().items())
    if name.partition("_")[0] in ("sklearn", "scipy", "einops") and callable(part)
}


#: Parts that cannot pass, and why.
KNOWN: dict[str, str] = {}


def missing(name: str) -> bool:
    """Whether a part's library is not installed."""
    return find_spec(name.partition("_")[0]) is None


def main(names: list[str]) -> int:
    """Runs the command; 1 if a part fails."""
    failed = 0
    for name in names or PARTS:
        if missing(name):
            print(f"{name}: skipped, {name.partition('_')[0]} is not installed")
            continue
        try:
            PARTS[name]()
        except Exception:
            if name in KNOWN:
                print(f"{name}: cannot pass, as {KNOWN[name]}")
                continue
            failed += 1
            print(f"{name}: failed\n{traceback.format_exc()}")
        else:
            failed += name in KNOWN
            print(f"{name}: passed{', and is in KNOWN' if name in KNOWN else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Solvers of SciPy with functions that give tensors; dtypes as NumPy's; the backend of einops."""

from __future__ import annotations

import subprocess
import sys

import girih as gr
import numpy as np
import pytest
from scipy import optimize, sparse


@pytest.mark.parametrize(
    "name", ["bool", "int8", "uint16", "int64", "float16", "float32", "complex128"]
)
def test_dtypes_are_dtypes_of_numpy(name):
    dtype = gr.asarray(0).astype(name).dtype
    assert np.dtype(dtype) == np.dtype(name)
    assert dtype.dtype == np.dtype(name)
    assert (dtype.char, dtype.kind) == (np.dtype(name).char, np.dtype(name).kind)
    assert np.zeros(2, dtype=dtype).dtype == name


def test_bfloat16_is_no_dtype_of_numpy():
    with pytest.raises(TypeError):
        np.dtype(gr.bfloat16)
    with pytest.raises(AttributeError, match="NumPy has no dtype bfloat16; convert to float32"):
        gr.bfloat16.dtype  # noqa: B018
    assert not hasattr(gr.bfloat16, "char")


def test_solvers_take_tensors_and_functions_of_tensors():
    root = optimize.fsolve(lambda v: gr.cos(gr.asarray(v)) - v, gr.asarray(1.0, gr.float64))
    np.testing.assert_allclose(root, [0.7390851332151607])
    start = gr.asarray([1.0], gr.float64)
    found = optimize.least_squares(lambda v: gr.asarray(v) ** 2 - 2, start)
    np.testing.assert_allclose(found.x, [2**0.5], rtol=1e-6)
    t = gr.asarray(np.linspace(0, 1, 20))
    fit, _ = optimize.curve_fit(lambda t, a, b: a * gr.exp(t * b), t, 2 * gr.exp(t * 0.5))
    np.testing.assert_allclose(fit, [2.0, 0.5], rtol=1e-6)


@pytest.mark.parametrize("form", ["csr_matrix", "csc_array", "coo_array", "dia_matrix"])
def test_sparse_matrices_multiply_tensors(form):
    dense = np.arange(9.0).reshape(3, 3)
    made = getattr(sparse, form)(dense)
    for dtype in ("float32", "float64", "int64"):
        x = gr.asarray(np.arange(3)).astype(dtype)
        np.testing.assert_allclose(made @ x, dense @ x.numpy())
        y = gr.stack([x, x + 1], 1)
        np.testing.assert_allclose(made @ y, dense @ y.numpy())


BACKENDS = """
_loaded = {}

class AbstractBackend:
    framework_name: str

def get_backend(tensor):
    import sys
    for cls in AbstractBackend.__subclasses__():
        if cls.framework_name in sys.modules and cls().is_appropriate_type(tensor):
            return cls()
    raise RuntimeError(f"Tensor type unknown to einops {type(tensor)}")
"""


@pytest.mark.parametrize("order", ["girih, einops._backends", "einops._backends, girih"])
def test_einops_finds_the_backend_in_any_order_of_imports(order, tmp_path):
    # A package with einops' way to find backends, which need not be installed.
    (tmp_path / "einops").mkdir()
    (tmp_path / "einops" / "__init__.py").write_text("")
    (tmp_path / "einops" / "_backends.py").write_text(BACKENDS)
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import {order}
import numpy as np
x = girih.ones(2, 3)
backend = einops._backends.get_backend(x)
assert backend.framework_name == "girih"
assert backend.tile(x, (1, 2)).shape == (2, 6)
assert backend.add_axis(x, 1).shape == (2, 1, 3)
assert backend.concat([x, x], 0).shape == (4, 3)
assert backend.stack_on_zeroth_dimension([x, x]).shape == (2, 2, 3)
assert backend.is_float_type(x) and not backend.is_float_type(x.int())
assert backend.einsum("ij,kj->ik", x, x).tolist() == [[3.0, 3.0], [3.0, 3.0]]
assert backend.arange(1, 3).tolist() == [1, 2]
assert isinstance(backend.to_numpy(backend.from_numpy(np.ones(2))), np.ndarray)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
    subprocess.run(
        [sys.executable, "-c", "import girih, sys; assert 'einops' not in sys.modules"],
        check=True,
        timeout=100,
    )


def test_einops_itself():
    einops = pytest.importorskip("einops")
    x = gr.asarray(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(einops.rearrange(x, "a b -> b a").numpy(), x.numpy().T)

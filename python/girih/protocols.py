"""NumPy's functions on tensors: ``__array_ufunc__`` and ``__array_function__``.

A function with an equivalent in Girih records the equivalent: ``np.sqrt(2) * x``, ``array * x`` and
``np.sum(x)`` give lazy tensors and are differentiable. Any other function, and any call with
arguments that the equivalent does not accept, computes on the values as NumPy arrays.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from . import _girih
from ._girih import Tensor
from .errors import TracedValueError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__: list[str] = []

# Functions with the same name and semantics in NumPy and Girih.
_UFUNCS = """
add subtract multiply floor_divide remainder negative positive exp exp2 log log2 log10 log1p expm1
sqrt square cbrt reciprocal sin cos tan sinh cosh tanh hypot logaddexp sign floor ceil trunc rint
maximum minimum greater greater_equal less less_equal equal not_equal logical_and logical_or
logical_xor logical_not bitwise_and bitwise_or bitwise_xor isfinite isinf isnan signbit copysign
nextafter fmod matmul deg2rad rad2deg fmax fmin heaviside logaddexp2 float_power gcd lcm ldexp modf
frexp divmod bitwise_count
""".split()  # noqa: SIM905
_RENAMED_UFUNCS = {
    "absolute": "abs", "fabs": "abs", "divide": "divide", "true_divide": "divide",
    "power": "power", "degrees": "rad2deg", "radians": "deg2rad", "conjugate": "conj",
    "arccos": "acos",
    "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctanh": "atanh", "arctan2": "atan2", "invert": "bitwise_not", "mod": "remainder",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift",
}  # fmt: skip
_REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min",
    "logical_and": "all", "logical_or": "any",
}  # fmt: skip
_FUNCTIONS = """
sum prod mean std var max min all any argmax argmin cumsum reshape ravel transpose moveaxis swapaxes
squeeze expand_dims broadcast_to broadcast_arrays concatenate stack hstack vstack dstack
column_stack split array_split flip flipud fliplr roll rot90 tile where clip sort argsort take
take_along_axis einsum tensordot dot matmul vecdot outer diag diagonal trace tril triu diff
nonzero argwhere
count_nonzero searchsorted zeros_like ones_like full_like empty_like meshgrid isin real imag angle
matrix_transpose unstack cumulative_sum cumulative_prod atleast_1d atleast_2d atleast_3d
permute_dims allclose isclose array_equal median quantile percentile nan_to_num interp cov
corrcoef vander cross
kron append average delete insert ptp partition argpartition block gradient unwrap ediff1d lexsort
convolve correlate union1d intersect1d setdiff1d setxor1d trim_zeros hsplit vsplit dsplit ix_ isreal
iscomplex isposinf isneginf sinc inner nansum nanmean nanmax nanmin nanstd nanvar
""".split()  # noqa: SIM905
_RENAMED_FUNCTIONS = {"amax": "max", "amin": "min", "round": "round", "concat": "concatenate"}
_LINALG = """
norm inv det slogdet solve cholesky qr svd eigh eigvalsh pinv matrix_rank matrix_power vector_norm
matrix_norm multi_dot lstsq eig eigvals cond svdvals
""".split()  # noqa: SIM905
_FFT = """
fft ifft rfft irfft fft2 ifft2 fftn ifftn rfftn irfftn hfft ihfft fftshift ifftshift
""".split()  # noqa: SIM905


def _values(value: Any) -> Any:
    """Converts tensors in arguments to NumPy arrays, which evaluates them."""
    if isinstance(value, Tensor):
        if _girih.is_traced(value):
            raise TracedValueError(
                "a function of NumPy that Girih does not have needs values, which arguments of a "
                "function that is traced do not have; to compute with them as constants, convert "
                "them with numpy()"
            )
        return value.numpy()
    if type(value) in (list, tuple):
        return type(value)(_values(v) for v in value)
    if type(value) is dict:
        return {k: _values(v) for k, v in value.items()}
    return value


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def _takes(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a function's signature accepts the arguments."""
    signature = _signature(function)
    if signature is None:
        return False
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


@functools.cache
def _operation(name: str) -> Callable[..., Any] | None:
    import girih

    named = name if name in _UFUNCS else _RENAMED_UFUNCS.get(name)
    return getattr(girih, named, None) if named else None


def ufunc(function: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A NumPy ufunc with a tensor among its operands."""
    import girih

    if kwargs.get("out") is None:
        kwargs = {k: v for k, v in kwargs.items() if k != "out"}
    name = function.__name__
    if method == "__call__" and not kwargs:
        operation = _operation(name)
        if operation is not None and _takes(operation, inputs, {}):
            return operation(*inputs)
    elif method == "reduce" and name in _REDUCTIONS:
        options = {"axis": 0, **kwargs}
        options = {k: v for k, v in options.items() if k != "dtype" or v is not None}
        reduction = getattr(girih, _REDUCTIONS[name])
        if _takes(reduction, inputs, options):
            return reduction(*inputs, **options)
    return getattr(function, method)(*_values(inputs), **_values(kwargs))


@functools.cache
def _equivalent(module: str, name: str) -> Callable[..., Any] | None:
    import girih

    if module == "numpy.linalg":
        return getattr(girih.linalg, name, None) if name in _LINALG else None
    if module == "numpy.fft":
        return getattr(girih.fft, name, None) if name in _FFT else None
    named = name if name in _FUNCTIONS else _RENAMED_FUNCTIONS.get(name)
    return getattr(girih, named, None) if module == "numpy" and named else None


# Functions that do not need the values of the tensor.
_KNOWN: dict[str, Callable[[Tensor], Any]] = {
    "shape": lambda x: x.shape,
    "ndim": lambda x: x.ndim,
    "size": lambda x: x.size,
    "iscomplexobj": lambda x: "complex" in x.dtype.name,
    "isrealobj": lambda x: "complex" not in x.dtype.name,
}


def function(called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A NumPy function with a tensor among its arguments."""
    name, module = called.__name__, called.__module__
    if name in _KNOWN and len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
        return _KNOWN[name](args[0])
    equivalent = _equivalent(module, name)
    if equivalent is not None:
        args, kwargs = _translated(name, args, kwargs)
        if _takes(equivalent, args, kwargs):
            return equivalent(*args, **kwargs)
    return called(*_values(args), **_values(kwargs))


def _translated(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Translates NumPy's argument names to Girih's; drops defaults that NumPy passes explicitly."""
    kwargs = {k: v for k, v in kwargs.items() if not (v is None and k in ("out", "dtype"))}
    if args == () and "a" in kwargs:
        args = (kwargs.pop("a"),)
    if name == "transpose" and len(args) == 2 and args[1] is not None:
        args = (args[0], *args[1])
    elif name == "transpose" and kwargs.get("axes") is not None:
        args = (args[0], *kwargs.pop("axes"))
    elif name in ("std", "var") and "ddof" in kwargs:
        kwargs["correction"] = kwargs.pop("ddof")
    elif name == "clip":
        renamed = {"a_min": "min", "a_max": "max"}
        kwargs = {renamed.get(k, k): v for k, v in kwargs.items()}
    return args, kwargs

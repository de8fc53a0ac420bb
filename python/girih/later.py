"""Functions and methods whose modules are imported at their first use: names, and the lookup.

A method of the table is an attribute of the class from the start, so that it can be listed and
completed; its function is looked up, and the module with it imported, when it is first needed.
"""

from __future__ import annotations

import sys
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from ._girih import Tensor

if TYPE_CHECKING:
    import inspect

__all__ = ["FUNCTIONS", "METHODS", "LaterMethod", "install"]

#: Functions of the package by the modules that have them, which are imported at first use.
FUNCTIONS = {
    "arranging": """
        append block block_diag chunk delete diag_embed dsplit hsplit insert narrow unflatten
        vsplit
    """,
    "elementary": """
        addcdiv addcmul bitwise_count cbrt deg2rad divmod float_power fmax fmin frac frexp gcd
        heaviside iscomplex isneginf isposinf isreal lcm ldexp lerp log_cosh logaddexp2 modf
        polar rad2deg view_as_complex view_as_real
    """,
    "grids": """
        diag_indices fromfunction geomspace identity ix_ logspace ravel_multi_index tril_indices
        triu_indices unravel_index
    """,
    "ordering": """
        AMinMax KthValue Mode aminmax argpartition average ediff1d gradient kthvalue lexsort
        mode msort partition ptp std_mean unwrap var_mean
    """,
    "linear": """
        addbmm addmm addmv addr baddbmm cartesian_prod cdist combinations correlate dist matvec
        vecmat
    """,
    "products": """
        convolve gather_mm segmented_mm
    """,
    "segments": """
        segment_max segment_mean segment_min segment_prod segment_sum
    """,
    "selection": """
        diagonal_scatter index_add index_copy index_fill index_put index_reduce index_select
        masked_fill masked_scatter masked_select scatter scatter_add scatter_reduce
        select_scatter slice_scatter
    """,
    "shapes": """
        eval_shape
    """,
    "meshes": """
        implicit_reshards mesh_mode shard shard_map with_sharding_constraint
    """,
    "sets": """
        intersect1d setdiff1d setxor1d trim_zeros union1d unique_consecutive
    """,
}

# Methods that are functions of the package under the same name.
_SAME = """
addbmm addcdiv addcmul addmm addmv addr aminmax argpartition argwhere atan2 baddbmm bincount
bitwise_and bitwise_count bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor cbrt chunk
combinations copysign corrcoef count_nonzero cov cumulative_prod cumulative_sum deg2rad diag
diag_embed diagflat diagonal_scatter diff dist divide dot expand_dims fliplr flipud float_power
floor_divide fmax fmin fmod frac frexp gcd greater greater_equal hardshrink heaviside hypot igamma
igammac index_add index_copy index_fill index_put index_reduce index_select inner isin isneginf
isposinf isreal kron kthvalue lcm ldexp lerp less less_equal log_cosh logaddexp logaddexp2
logical_and logical_or logical_xor masked_fill masked_scatter masked_select maximum minimum mode
moveaxis msort multiply narrow nextafter not_equal outer positive power prelu ptp rad2deg
remainder roll rot90 scatter scatter_add scatter_reduce searchsorted select_scatter slice_scatter
subtract tile topk tril triu unflatten unique_consecutive vdot
"""
# Functions under another name.
_RENAMED = {
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh",
    "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2",
    "arctanh": "atanh", "bmm": "matmul", "cholesky": "linalg.cholesky", "conj_physical": "conj",
    "conjugate": "conj", "copy": "positive", "det": "linalg.det", "dsplit": "dsplit",
    "eq": "equal", "fix": "trunc", "ge": "greater_equal", "ger": "outer", "gt": "greater",
    "hsplit": "hsplit", "inverse": "linalg.inv", "le": "less_equal", "logit": "special.logit",
    "lt": "less", "matrix_exp": "linalg.expm", "matrix_power": "linalg.matrix_power",
    "mm": "matmul", "movedim": "moveaxis", "mul": "multiply", "mv": "matmul",
    "mvlgamma": "special.multigammaln", "ne": "not_equal", "neg": "negative",
    "norm": "linalg.norm", "pinverse": "linalg.pinv", "pow": "power", "qr": "linalg.qr",
    "repeat_interleave": "repeat", "resolve_conj": "positive", "resolve_neg": "positive",
    "sgn": "sign", "sinc": "special.sinc", "slogdet": "linalg.slogdet", "swapdims": "swapaxes",
    "take_along_dim": "take_along_axis", "tensor_split": "array_split", "true_divide": "divide",
    "vsplit": "vsplit", "xlogy": "special.xlogy",
}  # fmt: skip
# Functions of ``girih.methods`` under the same name.
_OWN = """
add adjoint bernoulli_ clamp_max clamp_min clone contiguous copy_ cross dim div element_size
expand_as exponential_ fill_ fill_diagonal_ is_complex is_contiguous is_floating_point is_nonzero
is_same_size is_signed logdet new_empty new_full new_ones new_tensor new_zeros normal_ numel
random_ reshape_as select split sub sum_to_size t type type_as unbind unfold uniform_ unique
view_as where zero_
"""
# Casts to a dtype.
_CASTS = {
    "bfloat16": "bfloat16", "bool": "bool", "byte": "uint8", "cdouble": "complex128",
    "cfloat": "complex64", "char": "int8", "double": "float64", "float": "float32",
    "half": "float16", "int": "int32", "long": "int64", "short": "int16",
}  # fmt: skip
# Methods without the underscore, whose result becomes the value of the object.
_IN_PLACE = """
abs_ absolute_ acos_ acosh_ add_ addbmm_ addcdiv_ addcmul_ addmm_ addmv_ addr_ arccos_ arccosh_
arcsin_ arcsinh_ arctan2_ arctan_ arctanh_ asin_ asinh_ atan2_ atan_ atanh_ baddbmm_ bitwise_and_
bitwise_left_shift_ bitwise_not_ bitwise_or_ bitwise_right_shift_ bitwise_xor_ ceil_ clamp_
clamp_max_ clamp_min_ clip_ conj_physical_ copysign_ cos_ cosh_ cumprod_ cumsum_ deg2rad_ digamma_
div_ divide_ eq_ erf_ erfc_ erfinv_ exp2_ exp_ expm1_ fix_ float_power_ floor_ floor_divide_ fmod_
frac_ gcd_ ge_ greater_ greater_equal_ gt_ heaviside_ hypot_ i0_ igamma_ igammac_ index_add_
index_copy_ index_fill_ index_put_ index_reduce_ lcm_ ldexp_ le_ lerp_ less_ less_equal_ lgamma_
log10_ log1p_ log2_ log_ logical_and_ logical_not_ logical_or_ logical_xor_ logit_ lt_
masked_fill_ masked_scatter_ mul_ multiply_ mvlgamma_ nan_to_num_ ne_ neg_ negative_ nextafter_
not_equal_ pow_ rad2deg_ reciprocal_ relu_ remainder_ round_ rsqrt_ scatter_ scatter_add_
scatter_reduce_ sgn_ sigmoid_ sign_ sin_ sinc_ sinh_ sqrt_ square_ sub_ subtract_ tan_ tanh_ tril_
triu_ true_divide_ trunc_ xlogy_
"""

#: Where the function of each method is: its path in the package, "cast DTYPE" or "in place".
METHODS = {
    **{name: name for name in _SAME.split()},
    **_RENAMED,
    **{name: f"methods.{name}" for name in _OWN.split()},
    **{name: f"cast {dtype}" for name, dtype in _CASTS.items()},
    "ndimension": "methods.dim",
    "nelement": "methods.numel",
    **dict.fromkeys(_IN_PLACE.split(), "in place"),
}


class LaterMethod:
    """A method of tensors whose function is looked up when it is first needed."""

    __slots__ = ("_found", "name")

    _found: Any

    def __init__(self, name: str) -> None:
        self.name, self._found = name, None

    @property
    def function(self) -> Any:
        """The function, whose first argument is the tensor."""
        if self._found is None:
            from . import methods

            self._found = methods.method(self.name)
            if isinstance(self._found, FunctionType):
                # A function in the class binds without a call of Python code.
                setattr(Tensor, self.name, self._found)
        return self._found

    @property
    def __signature__(self) -> inspect.Signature:
        """The parameters of the function, of which the first is the tensor."""
        import inspect

        signature = inspect.signature(self.function)
        first, *others = signature.parameters.values()
        first = first.replace(name="self", kind=first.POSITIONAL_ONLY, annotation=first.empty)
        return signature.replace(parameters=[first, *others])

    def __call__(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        return self.function(tensor, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # The name and the documentation of the function.
        return getattr(self.function, name)

    def __get__(self, tensor: Any, cls: Any = None) -> Any:
        if tensor is None:
            return self
        return MethodType(self._found or self.function, tensor)


def _adjoint(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix; of a vector or number the conjugate."""
    if self.ndim > 2:
        from .errors import ShapeError

        raise ShapeError(f"H: a matrix is expected, got {list(self.shape)}; see mH")
    return self.T.conj()


def _adjoints(self: Tensor) -> Tensor:
    """The conjugate transposes of matrices, the last two axes."""
    return self.mT.conj()


def _missing(self: Tensor, name: str) -> Any:
    """The error for an attribute that a tensor does not have says what to write instead."""
    if name[:1] == "_":
        raise AttributeError(f"'Tensor' object has no attribute {name!r}", name=name, obj=self)
    from .synonyms import missing_method

    raise missing_method(self, name)


class _Einops:
    """A finder that adds this package's backend to einops when einops is imported."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """The specification of einops' backends, whose loader adds the backend; None for others."""
        if name != "einops._backends":
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                from . import einops_backend  # noqa: F401

            loader.exec_module = exec_module
        return spec


def install() -> None:
    """Gives the class its methods. The package calls it when it is imported."""
    if "einops" in sys.modules:
        from . import einops_backend  # noqa: F401
    sys.meta_path.insert(0, _Einops)
    for name in METHODS:
        setattr(Tensor, name, LaterMethod(name))
    Tensor.H = property(_adjoint)  # type: ignore[assignment]
    Tensor.mH = property(_adjoints)  # type: ignore[assignment]
    Tensor.__getattr__ = _missing  # type: ignore[attr-defined]

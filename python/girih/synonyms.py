"""Other names of functions, and what AttributeError says of names that this package does not have.

For an alias, ``girih.NAME`` is the object under its name in Girih. ``girih.hints`` has the texts
for names whose function differs, or that are a method, a module or another idiom here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._girih import Tensor

__all__ = [
    "ALIASES",
    "MODULE_HINTS",
    "OPTIMIZER_HINTS",
    "Answer",
    "answer",
    "attribute",
    "missing",
    "missing_attribute",
    "missing_method",
]

#: Other names of the same functions, by the module that has them.
ALIASES = {
    "girih": {
        "absolute": "abs",
        "adjoint": "Tensor.adjoint",
        "amax": "max",
        "amin": "min",
        "arccos": "acos",
        "arccosh": "acosh",
        "arcsin": "asin",
        "arcsinh": "asinh",
        "arctan": "atan",
        "arctan2": "atan2",
        "arctanh": "atanh",
        "around": "round",
        "array": "asarray",
        "as_tensor": "asarray",
        "asanyarray": "asarray",
        "batch_matmul": "matmul",
        "bessel_i0e": "special.i0e",
        "bessel_i1e": "special.i1e",
        "betainc": "special.betainc",
        "bilinear": "nn.functional.bilinear",
        "bmm": "matmul",
        "broadcast_tensors": "broadcast_arrays",
        "cdouble": "complex128",
        "cfloat": "complex64",
        "cholesky": "linalg.cholesky",
        "clamp_max": "Tensor.clamp_max",
        "clamp_min": "Tensor.clamp_min",
        "clone": "positive",
        "conj_physical": "conj",
        "conjugate": "conj",
        "convert_element_type": "astype",
        "copy": "positive",
        "cumlogsumexp": "logcumsumexp",
        "degrees": "rad2deg",
        "det": "linalg.det",
        "detach": "stop_gradient",
        "div": "divide",
        "double": "float64",
        "eq": "equal",
        "erf_inv": "erfinv",
        "fabs": "abs",
        "feature_alpha_dropout": "nn.functional.feature_alpha_dropout",
        "fix": "trunc",
        "flatten": "Tensor.flatten",
        "float": "float32",
        "from_numpy": "asarray",
        "ge": "greater_equal",
        "ger": "outer",
        "gt": "greater",
        "half": "float16",
        "in1d": "isin",
        "inference_mode": "no_grad",
        "int": "int32",
        "integer_pow": "power",
        "inverse": "linalg.inv",
        "invert": "bitwise_not",
        "is_complex": "Tensor.is_complex",
        "is_finite": "isfinite",
        "is_floating_point": "Tensor.is_floating_point",
        "is_nonzero": "Tensor.is_nonzero",
        "is_same_size": "Tensor.is_same_size",
        "is_signed": "Tensor.is_signed",
        "jit": "compile",
        "le": "less_equal",
        "left_shift": "bitwise_left_shift",
        "logdet": "Tensor.logdet",
        "logistic": "sigmoid",
        "logit": "special.logit",
        "long": "int64",
        "lt": "less",
        "make_jaxpr": "make_graph",
        "matrix_exp": "linalg.expm",
        "matrix_power": "linalg.matrix_power",
        "matrix_rank": "linalg.matrix_rank",
        "mm": "matmul",
        "mod": "remainder",
        "movedim": "moveaxis",
        "mul": "multiply",
        "mv": "matmul",
        "mvlgamma": "special.multigammaln",
        "ne": "not_equal",
        "neg": "negative",
        "norm": "linalg.norm",
        "numel": "Tensor.numel",
        "pdist": "nn.functional.pdist",
        "pinv": "linalg.pinv",
        "pinverse": "linalg.pinv",
        "promote_types": "result_type",
        "qr": "linalg.qr",
        "radians": "deg2rad",
        "reduce_max": "max",
        "reduce_min": "min",
        "reduce_prod": "prod",
        "reduce_sum": "sum",
        "rem": "fmod",
        "remat": "checkpoint",
        "repeat_interleave": "repeat",
        "resolve_conj": "positive",
        "resolve_neg": "positive",
        "rev": "flip",
        "right_shift": "bitwise_right_shift",
        "rint": "round",
        "row_stack": "vstack",
        "sgn": "sign",
        "shift_left": "bitwise_left_shift",
        "shift_right_arithmetic": "bitwise_right_shift",
        "short": "int16",
        "sinc": "special.sinc",
        "single": "float32",
        "slogdet": "linalg.slogdet",
        "sub": "subtract",
        "swapdims": "swapaxes",
        "t": "Tensor.t",
        "take_along_dim": "take_along_axis",
        "tensor_split": "array_split",
        "top_k": "topk",
        "trapz": "trapezoid",
        "true_divide": "divide",
        "unbind": "Tensor.unbind",
        "xlogy": "special.xlogy",
        "zeta": "special.zeta",
    },
    "girih.nn": {
        "hard_sigmoid": "functional.hardsigmoid",
        "hard_silu": "functional.hardswish",
        "hard_swish": "functional.hardswish",
        "hard_tanh": "functional.hardtanh",
        "logsumexp": "girih.logsumexp",
        "soft_sign": "functional.softsign",
        "swish": "functional.silu",
    },
    "girih.nn.functional": {
        "hard_sigmoid": "hardsigmoid",
        "logsigmoid": "log_sigmoid",
        "native_channel_shuffle": "channel_shuffle",
        "swish": "silu",
    },
    "girih.special": {
        "bessel_i0e": "i0e",
        "bessel_i1e": "i1e",
        "erf_inv": "erfinv",
        "igamma": "gammainc",
        "igammac": "gammaincc",
        "lgamma": "gammaln",
        "modified_bessel_i0": "i0",
        "modified_bessel_i1": "i1",
        "psi": "digamma",
        "sigmoid": "expit",
    },
    "girih.linalg": {
        "inverse": "inv",
        "matrix_exp": "expm",
    },
    "girih.random": {
        "PRNGKey": "key",
        "randn": "normal",
        "seed": "manual_seed",
        "standard_normal": "normal",
    },
}


#: What PyTorch's modules have and this package's have not, or have in another form.
MODULE_HINTS = {
    "cuda": "model.to(device), with a device of girih.devices()",
    "cpu": "model.to('cpu')",
    "xpu": "model.to(device)",
    "ipu": "model.to(device)",
    "mtia": "model.to(device)",
    "T_destination": "dict[str, girih.Tensor]",
    "dump_patches": "nothing: state dicts have no versions",
    "call_super_init": "nothing: the constructor of Module takes no arguments",
    "get_extra_state": "a buffer, which state_dict has, or gr.save of a dict of your own",
    "set_extra_state": "a buffer, which load_state_dict loads, or gr.load",
    "register_full_backward_pre_hook": "Tensor.register_hook on the result of the module",
    "register_state_dict_post_hook": "a subclass that defines state_dict",
    "register_load_state_dict_pre_hook": "a subclass that defines load_state_dict",
    "type": "model.astype(dtype)",
    "share_memory": "nothing: the processes of girih.data load data, not models",
    "to_empty": "model.to(device)",
    "load_checkpoint": "model.load_state_dict(girih.load(path))",
    "save": "girih.save(path, model)",
    "save_pretrained": "girih.save(path, model)",
    "register_full_backward_hook": "Tensor.register_hook on the result of the module",
    "register_backward_hook": "Tensor.register_hook on the result of the module",
    "register_state_dict_pre_hook": "a subclass that defines state_dict",
    "register_load_state_dict_post_hook": "a subclass that defines load_state_dict",
    "_parameters": "dict(model.named_parameters(recurse=False))",
    "_buffers": "dict(model.named_buffers(recurse=False))",
    "_modules": "dict(model.named_children())",
    "fit": "a loop over girih.data.DataLoader; see the guide on training",
    "init": "the constructor: parameters are made when the module is",
    "variables": "model.parameters_tree() and model.buffers_tree()",
}

#: What PyTorch's and Optax's optimisers have and this package's have not, or in another form.
OPTIMIZER_HINTS = {
    "defaults": "optimizer.param_groups[0]",
    "register_step_pre_hook": "a call before optimizer.step()",
    "register_step_post_hook": "a call after optimizer.step()",
    "register_load_state_dict_pre_hook": "a call before optimizer.load_state_dict",
    "register_load_state_dict_post_hook": "a call after optimizer.load_state_dict",
    "register_state_dict_pre_hook": "a call before optimizer.state_dict()",
    "register_state_dict_post_hook": "a call after optimizer.state_dict()",
    "profile_hook_step": "girih.profile()",
    "OptimizerPreHook": "a call before optimizer.step()",
    "OptimizerPostHook": "a call after optimizer.step()",
    "minimize": "loss.backward() and optimizer.step()",
    "apply_gradients": "optimizer.update(model, grads)",
    "apply_updates": "optimizer.apply(grads, state, parameters)",
    "scheduler": "girih.optim.lr_scheduler, or a function as learning_rate",
    "consolidate_state_dict": "optimizer.state_dict()",
}


def missing_attribute(thing: Any, name: str, hints: dict[str, str]) -> AttributeError:
    """The error for a name that an object does not have.

    Raises:
        AttributeError: A property of that name has failed; this is its own error.
    """
    held = getattr(type(thing), name, None)
    if isinstance(held, property) and held.fget is not None:
        held.fget(thing)
    text = f"{type(thing).__name__!r} object has no attribute {name!r}"
    if name in hints:
        text += f"; here that is {hints[name]}"
    return AttributeError(text, name=name)


class Answer:
    """What to say of a name that a module or class does not have.

    Attributes:
        text: What to write instead, or why there is no such thing.
        declined: Whether there is nothing to write instead.
    """

    __slots__ = ("declined", "text")

    def __init__(self, text: str, declined: bool) -> None:
        self.text, self.declined = text, declined


@cache
def _reasons() -> dict[str, str]:
    from .declined import DECLINED

    return {name: reason for reason, names in DECLINED.items() for name in names.split()}


def answer(place: str, name: str) -> Answer | None:
    """The answer for a name that a place does not have; None if there is none.

    Args:
        place: A module, or "girih.Tensor".
        name: The name that was looked for.
    """
    from .declined import PATTERNS
    from .hints import HINTS

    if (hint := HINTS.get(place, {}).get(name)) is not None:
        return Answer(hint, False)
    if (reason := _reasons().get(name)) is not None:
        return Answer(reason, True)
    for pattern, declined, text in PATTERNS:
        if (found := re.fullmatch(pattern, name)) is not None:
            return Answer(found.expand(text), declined)
    return _by_form(place, name)


def _by_form(place: str, name: str) -> Answer | None:
    """The answer for a name that is another one with an ending."""
    from .hints import HINTS
    from .later import METHODS

    plain = name.removesuffix("_")
    if name.endswith("_") and place != "girih.Tensor":
        if name in METHODS:
            return Answer(f"the method x.{name}()", False)
        if place == "girih" and plain in HINTS["girih.Tensor"]:
            return Answer(HINTS["girih.Tensor"][plain], False)
        if _has(place, plain):
            return Answer(f"x = {_short(place)}.{plain}(x), since tensors are values", False)
    if name.endswith("_copy"):
        plain = name.removesuffix("_copy")
        if _has(place, plain):
            return Answer(f"{_short(place)}.{plain}: tensors are values", False)
        if hasattr(_class(), plain):
            return Answer(f"the method x.{plain}(): tensors are values", False)
    return None


def _class() -> Any:
    from ._girih import Tensor

    return Tensor


def _has(place: str, name: str) -> bool:
    from importlib import import_module

    module = import_module(place)
    return name in module.__all__ or name in ALIASES.get(place, {})


def _short(place: str) -> str:
    return place.replace("girih", "gr", 1)


def _text(found: Answer | None) -> str:
    if found is None:
        return ""
    return f"; declined: {found.text}" if found.declined else f"; here that is {found.text}"


def missing(place: str, name: str) -> AttributeError:
    """The error for a name that a module does not have."""
    text = f"module {place!r} has no attribute {name!r}"
    return AttributeError(text + _text(answer(place, name)), name=name)


def missing_method(tensor: Tensor, name: str) -> AttributeError:
    """The error for an attribute that a tensor does not have."""
    text = f"'Tensor' object has no attribute {name!r}"
    return AttributeError(text + _text(answer("girih.Tensor", name)), name=name, obj=tensor)


def attribute(place: str, name: str) -> Any:
    """The object that a module has under another name.

    Raises:
        AttributeError: It has none; the text says what to write instead.
    """
    if (meant := ALIASES[place].get(name)) is None or name.startswith("_"):
        raise missing(place, name)
    from importlib import import_module
    from operator import attrgetter

    if meant.startswith("girih."):
        place, meant = "girih", meant.removeprefix("girih.")
    return attrgetter(meant)(import_module(place))

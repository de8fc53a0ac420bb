"""The tables for `test_torch_oracle.py`, one row per case: functions, modules, optimisers.

A row has the name in both libraries, the shapes of the operands, and options, which are passed to
both libraries. If the libraries' spellings differ, an option is written ``Two(ours, theirs)``.
Operands are floating-point numbers from a domain, unless the shape is one of the kinds below.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any


@dataclass(frozen=True)
class Two:
    """The values of an option in Girih and in PyTorch."""

    ours: Any
    theirs: Any


class Leave:
    """Used in place of a value: the option is not passed."""

    def __repr__(self) -> str:
        return "leave"


@dataclass(frozen=True)
class Labels:
    """Integers below a bound."""

    shape: tuple[int, ...]
    classes: int


@dataclass(frozen=True)
class Signs:
    """Targets -1 and 1."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Within:
    """Numbers between two bounds; with ``fixed``, they are not differentiated."""

    shape: tuple[int, ...]
    low: float
    high: float
    fixed: bool = False


def rows(text: str) -> list[str]:
    return text.split()


def unit(*shape: int, fixed: bool = False) -> Within:
    """Probabilities."""
    return Within(shape, 0.05, 0.95, fixed)


def positive(*shape: int, fixed: bool = False) -> Within:
    return Within(shape, 0.3, 2.5, fixed)


def fixed(*shape: int) -> Within:
    """Targets: numbers that are not differentiated."""
    return Within(shape, -2.0, 2.0, True)


X, IMAGE = (3, 5), (2, 4, 7, 6)
LINE, CUBE = (2, 4, 9), (2, 4, 5, 4, 6)
NEVER = Leave()


def axis(value: int) -> Two:
    return Two({"axis": value}, {"dim": value})


REDUCTIONS: list[dict[str, Any]] = [{"reduction": r} for r in ("mean", "sum", "none")]


def loss(*options: dict[str, Any]) -> list[dict[str, Any]]:
    """Each reduction once, then each option once with the mean."""
    return [*REDUCTIONS, *options]


#: ``(function here, function of torch.nn.functional or torch, operands, options)``.
FUNCTIONS: list[tuple[str, str, list[Any], list[dict[str, Any]]]] = [
    *[(f, f, [X], [{}]) for f in rows(
        "relu relu6 hardsigmoid hardswish mish selu silu sigmoid softplus softsign tanh tanhshrink "
        "hardtanh elu celu leaky_relu hardshrink softshrink gelu")],
    ("log_sigmoid", "logsigmoid", [X], [{}]),
    ("elu", "elu", [X], [{"alpha": 0.5}, {"alpha": 2.0}]),
    ("celu", "celu", [X], [{"alpha": 0.5}, {"alpha": 2.0}]),
    ("leaky_relu", "leaky_relu", [X], [{"negative_slope": 0.2}]),
    ("hardtanh", "hardtanh", [X], [{"min_val": -0.3, "max_val": 1.2}]),
    ("hardshrink", "hardshrink", [X], [{"lambd": 1.0}]),
    ("softshrink", "softshrink", [X], [{"lambd": 1.0}]),
    ("threshold", "threshold", [X], [{"threshold": 0.1, "value": 20.0}]),
    ("gelu", "gelu", [X], [{"approximate": "tanh"}]),
    ("prelu", "prelu", [X, (1,)], [{}]),
    ("prelu", "prelu", [IMAGE, (4,)], [{}]),
    ("glu", "glu", [(3, 6)], [{}, {"dim": 1}]),
    *[(f, f, [X], [{"dim": -1}, {"dim": 0}]) for f in rows("softmax log_softmax softmin")],
    ("normalize", "normalize", [X], [{"dim": 1}, {"p": 1.0, "dim": 0}, {"p": 3.0, "dim": 1}, {"p": inf, "dim": 1}]),
    ("cosine_similarity", "cosine_similarity", [X, X], [{"dim": 1}, {"dim": 0}]),
    ("pairwise_distance", "pairwise_distance", [X, X], [{}, {"p": 1.0}, {"p": 3.0}, {"p": inf}]),
    ("pdist", "pdist", [X], [{}, {"p": 1.0}, {"p": 3.0}, {"p": inf}]),
    # Reductions and rows.
    *[(f, f, [X], [{"dim": 1}, {"dim": 0, "keepdim": True}]) for f in rows("logsumexp amax amin")],
    *[(f, f, [X], [{"dim": 1}, {"dim": 0, "correction": Two(0.0, 0)}]) for f in ("torch_var", "torch_std")],
    *[(f, f, [X], [{"dim": 1}, {"dim": 0}]) for f in rows("cumsum cumprod logcumsumexp")],
    *[(f, f, [X, X], [{}]) for f in rows("maximum minimum atan2 hypot logaddexp")],
    ("power", "pow", [positive(3, 5), X], [{}]),
    ("fmod", "fmod", [X, positive(3, 5)], [{}]),
    ("as_strided", "as_strided", [X], [{"size": (3, 2), "stride": (1, 2), "storage_offset": 1}]),
    # Convolutions and related functions.
    *[(f"conv{n}d", f"conv{n}d", [x, (6, 4, *k), (6,)], [
        {}, {"stride": 2}, {"padding": 1}, {"padding": "same"}, {"dilation": 2}, {"stride": 2, "padding": 1, "dilation": 2},
    ]) for n, x, k in ((1, LINE, (3,)), (2, IMAGE, (3, 2)), (3, (1, 4, 5, 4, 6), (2, 1, 2)))],
    *[(f"conv{n}d", f"conv{n}d", [x, (6, 2, *k)], [{"groups": 2}]) for n, x, k in ((1, LINE, (3,)), (2, IMAGE, (3, 2)))],
    *[(f"conv_transpose{n}d", f"conv_transpose{n}d", [x, (4, 3, *k), (3,)], [
        {}, {"stride": 2}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2},
    ]) for n, x, k in ((1, LINE, (3,)), (2, (1, 4, 3, 4), (3, 2)), (3, (1, 4, 2, 3, 2), (2, 1, 2)))],
    ("unfold", "unfold", [IMAGE], [{"kernel_size": 2}, {"kernel_size": (3, 2), "stride": 2, "padding": 1}]),
    ("fold", "fold", [(2, 8, 12)], [{"output_size": (4, 5), "kernel_size": 2}]),
    *[(f"max_pool{n}d", f"max_pool{n}d", [x], [
        {"kernel_size": 2}, {"kernel_size": 3, "stride": 1}, {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": 2, "stride": 1, "dilation": 2}, {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    ]) for n, x in ((1, LINE), (2, IMAGE), (3, CUBE))],
    *[(f"avg_pool{n}d", f"avg_pool{n}d", [x], [
        {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
        {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    ]) for n, x in ((1, LINE), (2, IMAGE), (3, CUBE))],
    *[(f"lp_pool{n}d", f"lp_pool{n}d", [Within(x, 0.1, 2.0)], [
        {"norm_type": 2.0, "kernel_size": 2}, {"norm_type": 3.0, "kernel_size": 3, "stride": 2},
    ]) for n, x in ((1, LINE), (2, IMAGE), (3, CUBE))],
    *[(f"adaptive_{k}_pool{n}d", f"adaptive_{k}_pool{n}d", [x], [{"output_size": 2}, {"output_size": 3}])
      for k in ("avg", "max") for n, x in ((1, LINE), (2, IMAGE), (3, CUBE))],
    *[("interpolate", "interpolate", [x], [
        {"size": s, "mode": m, "align_corners": Two(a or False, a)} for s in (sizes,) for a in corners
    ]) for x, sizes, m, corners in (
        (LINE, (13,), "nearest", [None]), (LINE, (5,), "linear", [False, True]),
        (IMAGE, (3, 9), "nearest", [None]), (IMAGE, (3, 9), "nearest-exact", [None]),
        (IMAGE, (9, 5), "bilinear", [False, True]), (IMAGE, (9, 5), "bicubic", [False, True]),
        (IMAGE, (3, 4), "area", [None]), (CUBE, (3, 5, 7), "trilinear", [False, True]))],
    # Norms and attention.
    ("layer_norm", "layer_norm", [X], [{"normalized_shape": (5,)}, {"normalized_shape": (3, 5), "eps": 0.1}]),
    ("rms_norm", "rms_norm", [X], [{"normalized_shape": (5,), "eps": 1e-5}]),
    ("group_norm", "torch_group_norm", [IMAGE, (4,), (4,)], [{"num_groups": 2}, {"num_groups": 4, "eps": 0.1}]),
    ("batch_norm", "torch_batch_norm", [IMAGE, (4,), (4,)], [{}, {"eps": 0.1}]),
    ("one_hot", "one_hot", [Labels((2, 3), 4)], [{"num_classes": 4, "dtype": Two("int64", NEVER)}]),
    ("instance_norm", "torch_instance_norm", [IMAGE, (4,), (4,)], [{}]),
    ("scaled_dot_product_attention", "scaled_dot_product_attention", [(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 2)],
     [{}, {"is_causal": True}, {"scale": 0.3}]),
    # Losses.
    *[(f, f, [X, X], loss()) for f in rows("mse_loss l1_loss smooth_l1_loss huber_loss")],
    ("smooth_l1_loss", "smooth_l1_loss", [X, X], [{"beta": 0.5}, {"beta": 2.0}]),
    ("huber_loss", "huber_loss", [X, X], [{"delta": 0.5}, {"delta": 2.0}]),
    ("binary_cross_entropy", "binary_cross_entropy", [unit(3, 5), unit(3, 5, fixed=True)], loss()),
    ("binary_cross_entropy_with_logits", "binary_cross_entropy_with_logits", [X, unit(3, 5)], loss()),
    ("cross_entropy", "cross_entropy", [X, Labels((3,), 5)], loss(
        {"ignore_index": 2}, {"label_smoothing": 0.2}, {"label_smoothing": 0.2, "ignore_index": 1, "reduction": "sum"})),
    ("cross_entropy", "cross_entropy", [(2, 4, 3), Labels((2, 3), 4)], [{"axis": Two(1, NEVER)}]),
    ("cross_entropy", "cross_entropy", [X, unit(3, 5, fixed=True)], loss({"label_smoothing": 0.2})),
    ("nll_loss", "nll_loss", [X, Labels((3,), 5)], loss({"ignore_index": 0})),
    ("kl_div", "kl_div", [X, unit(3, 5)], loss()),
    ("kl_div", "kl_div", [X, X], [{"log_target": True}]),
    ("hinge_embedding_loss", "hinge_embedding_loss", [X, Signs(X)], loss({"margin": 0.3})),
    ("margin_ranking_loss", "margin_ranking_loss", [(5,), (5,), Signs((5,))], loss({"margin": 0.3})),
    ("soft_margin_loss", "soft_margin_loss", [X, Signs(X)], loss()),
    ("cosine_embedding_loss", "cosine_embedding_loss", [X, X, Signs((3,))], loss({"margin": 0.3})),
    ("triplet_margin_loss", "triplet_margin_loss", [X, X, X], loss({"margin": 0.3}, {"p": 1.0}, {"swap": True})),
    ("poisson_nll_loss", "poisson_nll_loss", [X, positive(3, 5, fixed=True)], loss({"full": True})),
    ("poisson_nll_loss", "poisson_nll_loss", [positive(3, 5), positive(3, 5, fixed=True)], [{"log_input": False}]),
    ("gaussian_nll_loss", "gaussian_nll_loss", [X, fixed(3, 5), positive(3, 5)], loss({"full": True})),
]  # fmt: skip

#: ``(class, constructor's arguments, options, operands)``; the class has the same name in both
#: libraries.
MODULES: list[tuple[str, tuple[Any, ...], list[dict[str, Any]], list[Any]]] = [
    *[(m, (), [{}], [X]) for m in rows(
        "ReLU ReLU6 Sigmoid SiLU Tanh GELU ELU CELU SELU Hardsigmoid Hardswish Hardtanh Hardshrink "
        "Softshrink LeakyReLU LogSigmoid Mish PReLU Softplus Softsign Tanhshrink")],
    ("GELU", (), [{"approximate": "tanh"}], [X]),
    ("ELU", (), [{"alpha": 0.5}], [X]),
    ("PReLU", (4,), [{}], [IMAGE]),
    ("Threshold", (0.1, 2.0), [{}], [X]),
    ("Softmax", (1,), [{}], [X]), ("Softmin", (1,), [{}], [X]), ("LogSoftmax", (1,), [{}], [X]),
    ("GLU", (), [{}], [(3, 6)]),
    ("Linear", (5, 3), [{}, {"bias": False}], [X]),
    ("Embedding", (7, 4), [{}], [Labels((2, 3), 7)]),
    ("Flatten", (), [{}], [IMAGE]),
    ("Bilinear", (5, 4, 3), [{}, {"bias": False}], [X, (3, 4)]),
    ("ChannelShuffle", (2,), [{}], [IMAGE]),
    ("EmbeddingBag", (7, 4), [{}, {"mode": "sum"}], [Labels((2, 3), 7)]),
    ("RNNCell", (5, 4), [{}, {"nonlinearity": "relu"}], [X]), ("GRUCell", (5, 4), [{}], [X]),
    ("LayerNorm", (5,), [{}, {"eps": 0.1}], [X]),
    ("RMSNorm", (5,), [{"eps": 1e-5}], [X]),
    ("GroupNorm", (2, 4), [{}, {"affine": False}], [IMAGE]),
    ("BatchNorm1d", (5,), [{}, {"eps": 0.1}, {"momentum": 0.3}], [(6, 5)]),
    ("BatchNorm2d", (4,), [{}], [IMAGE]), ("BatchNorm3d", (4,), [{}], [CUBE]),
    ("InstanceNorm1d", (4,), [{"affine": True}], [LINE]), ("InstanceNorm2d", (4,), [{"affine": True}], [IMAGE]),
    ("InstanceNorm3d", (4,), [{"affine": True}], [CUBE]),
    *[(f"Conv{n}d", (4, 6, 3), [{}, {"stride": 2, "padding": 1}, {"groups": 2, "bias": False}, {"padding": "same"}], [x])
      for n, x in ((1, LINE), (2, IMAGE), (3, CUBE))],
    *[(f"ConvTranspose{n}d", (4, 3, 2), [{}, {"stride": 2, "output_padding": 1}], [x])
      for n, x in ((1, LINE), (2, (1, 4, 3, 4)), (3, (1, 4, 2, 3, 2)))],
    *[(f"{k}Pool{n}d", (2,), [{}, {"stride": 1}], [x])
      for k in ("Max", "Avg") for n, x in ((1, LINE), (2, IMAGE), (3, CUBE))],
    *[(f"Adaptive{k}Pool{n}d", (2,), [{}], [x])
      for k in ("Max", "Avg") for n, x in ((1, LINE), (2, IMAGE), (3, CUBE))],
    *[(f"LPPool{n}d", (2.0, 2), [{}], [Within(x, 0.1, 2.0)]) for n, x in ((1, LINE), (2, IMAGE), (3, CUBE))],
    ("Upsample", (), [{"size": (9, 5)}], [IMAGE]),
    *[(m, (), loss(), [X, X]) for m in rows("MSELoss L1Loss SmoothL1Loss HuberLoss")],
    ("BCELoss", (), loss(), [unit(3, 5), unit(3, 5, fixed=True)]),
    ("BCEWithLogitsLoss", (), loss(), [X, unit(3, 5)]),
    ("CrossEntropyLoss", (), loss({"ignore_index": 1}, {"label_smoothing": 0.1}), [X, Labels((3,), 5)]),
    ("NLLLoss", (), loss({"ignore_index": 1}), [X, Labels((3,), 5)]),
    ("KLDivLoss", (), loss(), [X, unit(3, 5)]),
    ("HingeEmbeddingLoss", (), loss(), [X, Signs(X)]),
    ("MarginRankingLoss", (), loss(), [(5,), (5,), Signs((5,))]),
    ("SoftMarginLoss", (), loss(), [X, Signs(X)]),
    ("CosineEmbeddingLoss", (), loss(), [X, X, Signs((3,))]),
    ("TripletMarginLoss", (), loss({"swap": True}), [X, X, X]),
    ("TripletMarginWithDistanceLoss", (), loss({"margin": 0.3}), [X, X, X]),
    ("MultiMarginLoss", (), loss(), [X, Labels((3,), 5)]),
    ("MultiLabelSoftMarginLoss", (), loss(), [X, unit(3, 5, fixed=True)]),
    ("PoissonNLLLoss", (), loss({"full": True}), [X, positive(3, 5, fixed=True)]),
    ("GaussianNLLLoss", (), loss({"full": True}), [X, fixed(3, 5), positive(3, 5)]),
]  # fmt: skip

#: Names in both libraries that no row compares, with the reason.
ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(rows("FractionalMaxPool2d FractionalMaxPool3d fractional_max_pool2d fractional_max_pool3d"),
                    "they draw other random numbers"),
    "AdaptiveLogSoftmaxWithLoss": "tests of its own compare it",
    **dict.fromkeys(rows("dropout dropout1d dropout2d dropout3d feature_alpha_dropout Dropout Dropout1d Dropout2d Dropout3d alpha_dropout AlphaDropout "
                         "FeatureAlphaDropout gumbel_softmax"), "they draw other random numbers"),
    **dict.fromkeys(rows("Module ModuleDict ModuleList Parameter ParameterDict ParameterList Sequential"),
                    "they hold what is compared"),
    **dict.fromkeys(rows("GRU LSTM RNN LSTMCell MultiheadAttention Transformer TransformerDecoder "
                         "TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer"),
                    "test_sequence_layers.py and tests of their own compare them"),
    **dict.fromkeys(rows("MaxUnpool1d MaxUnpool2d MaxUnpool3d CTCLoss MultiLabelMarginLoss"),
                    "their functions are compared"),
    **dict.fromkeys(rows("Muon LBFGS"), "test_optim_more.py compares them"),
    "pad": "its widths are NumPy's; test_arrange.py compares it with NumPy",
}  # fmt: skip

#: ``(class, options)``; the class has the same name in both libraries.
OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}),
    ("SGD", {"weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3, "maximize": True}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    *[(name, {}) for name in rows("Adam AdamW Adamax NAdam RAdam RMSprop Adagrad Adadelta")],
    *[(name, {"weight_decay": 0.1}) for name in rows("Adam AdamW Adamax NAdam RAdam RMSprop Adagrad Adadelta")],
    *[(name, {"betas": (0.8, 0.9), "eps": 1e-3}) for name in rows("Adam AdamW Adamax NAdam RAdam")],
    *[(name, {"amsgrad": True, "maximize": True}) for name in rows("Adam AdamW")],
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adadelta", {"rho": 0.5}),
    ("Rprop", {}),
    ("Rprop", {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.06), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lambd": 0.1, "alpha": 0.5, "t0": 2.0, "weight_decay": 0.1}),
    *[("Adafactor", options) for options in (
        {}, {"weight_decay": 0.1, "maximize": True}, {"eps": (1e-2, 0.5), "d": 2.0, "beta2_decay": -0.3})],
]  # fmt: skip

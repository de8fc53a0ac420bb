//! Composites: ops that graphs name and whose decomposition consists of primitives.

pub(super) mod decompose;
mod long;
mod vjp;

use super::reduce::reduced_spec;
use super::*;
use crate::NodeId;

pub(super) const fn composite(
    name: &'static str,
    doc: &'static str,
    infer: fn(OpCall<'_>) -> Result<TensorSpec>,
    decompose: fn(&mut Decomposition<'_>) -> Result<NodeId>,
) -> OpDef {
    OpDef {
        name,
        doc,
        class: Class::Composite,
        arity: (1, 1),
        infer,
        derivative: Derivative::Decompose,
        decompose: Some(decompose),
        ..OpDef::BLANK
    }
}

/// The same composite with a derivative rule, used if the rule gives a better program than
/// differentiating the decomposition.
pub(super) const fn with_rule(rule: fn(&mut Vjp<'_>) -> Result<Cotangents>, def: OpDef) -> OpDef {
    OpDef { derivative: Derivative::Rule(rule), ..def }
}

/// A composite that graph inspection reports in another category.
const fn as_category(category: Category, def: OpDef) -> OpDef {
    OpDef { category: Some(category), ..def }
}

fn any(call: OpCall<'_>) -> Result<TensorSpec> {
    Ok(call.inputs[0].clone())
}

fn moved(call: OpCall<'_>) -> Result<TensorSpec> {
    match call.op.attrs {
        Attrs::Devices { .. } => any(call),
        _ => Err(Error::InvalidArgument { op: call.name(), reason: "needs devices".into() }),
    }
}

fn resharded(call: OpCall<'_>) -> Result<TensorSpec> {
    let Attrs::Sharding(sharding) = &call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs a sharding".into() });
    };
    sharding.spec().check(sharding.mesh(), call.inputs[0].shape.rank())?;
    any(call)
}

fn numeric(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    let ok = dtype.is_int() || dtype.is_float();
    require_dtype(call, dtype, ok, "an integer or real floating-point dtype")?;
    any(call)
}

pub(super) fn floating(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype.is_float(), "a floating-point dtype")?;
    any(call)
}

fn inexact(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype.is_inexact(), "a floating-point or complex dtype")?;
    any(call)
}

fn along_axis(call: OpCall<'_>) -> Result<TensorSpec> {
    let Attrs::Axis(axis) = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs an axis".into() });
    };
    let rank = call.inputs[0].shape.rank();
    if axis as usize >= rank {
        return Err(Error::AxisOutOfRange { op: call.name(), axis: axis as i64, rank });
    }
    floating(call)
}

fn mean(call: OpCall<'_>) -> Result<TensorSpec> {
    inexact(call)?;
    reduced_spec(call)
}

pub(super) fn floating_pair(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = same_dtype(call)?;
    require_dtype(call, dtype, dtype.is_float(), "a real floating-point dtype")?;
    let shape = call.inputs[0].shape.broadcast(&call.inputs[1].shape, call.name())?;
    Ok(TensorSpec { shape, dtype })
}

fn over_axes(call: OpCall<'_>) -> Result<TensorSpec> {
    floating(call)?;
    reduced_spec(call)
}

pub(super) fn layer_norm(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = same_dtype(call)?;
    require_dtype(call, dtype, dtype.is_float(), "a floating-point dtype")?;
    let Attrs::Norm { ndims, .. } = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs axes".into() });
    };
    let shape = &call.inputs[0].shape;
    let ndims = ndims as usize;
    if ndims == 0 || ndims > shape.rank() {
        return Err(Error::InvalidShape {
            op: call.name(),
            shape: shape.clone(),
            reason: format!("{ndims} trailing axes cannot be normalised"),
        });
    }
    for affine in &call.inputs[1..] {
        if !affine.shape.equals(&shape.part(shape.rank() - ndims..)) {
            return Err(Error::ShapeMismatch {
                op: call.name(),
                lhs: shape.clone(),
                rhs: affine.shape.clone(),
                reason: format!("weight and bias must have the last {ndims} sizes of the first"),
            });
        }
    }
    any(call)
}

fn cross_entropy(call: OpCall<'_>) -> Result<TensorSpec> {
    let [logits, labels] = call.inputs else { unreachable!("arity is checked") };
    require_dtype(call, logits.dtype, logits.dtype.is_float(), "floating-point logits")?;
    require_dtype(call, labels.dtype, labels.dtype.is_int(), "integer class labels")?;
    let rank = logits.shape.rank();
    if rank == 0 || !logits.shape.part(..rank - 1).equals(&labels.shape) {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: logits.shape.clone(),
            rhs: labels.shape.clone(),
            reason: "labels must have the logits' shape without the last (class) axis".into(),
        });
    }
    Ok(TensorSpec { shape: labels.shape.clone(), dtype: logits.dtype })
}

/// Identity through which no gradient flows.
pub static STOP_GRADIENT: OpDef = OpDef {
    category: Some(Category::Elementwise),
    derivative: Derivative::Zero("stop_gradient was asked for"),
    ..composite(
        "stop_gradient",
        "The same value, held constant by gradients.",
        any,
        decompose::same,
    )
};
/// The same value on another device (attribute `Devices`). Evaluation partitions a recording at
/// this op into one closed graph for each device, so that the op is the identity in compiled
/// graphs.
pub static TO_DEVICE: OpDef = OpDef {
    linear: Linearity::All,
    category: Some(Category::Elementwise),
    samples: samples::to_device,
    python: Python::Named("Tensor.to_device"),
    ..with_rule(
        vjp::to_device,
        composite("to_device", "The same value, on another device.", moved, decompose::same),
    )
};
/// The same value under another sharding (attribute `Sharding`). A program is partitioned at this op;
/// in the program of one processor, the op is the identity.
pub static RESHARD: OpDef = OpDef {
    linear: Linearity::All,
    category: Some(Category::Elementwise),
    samples: samples::reshard,
    python: Python::Named("Tensor.shard"),
    ..with_rule(
        vjp::reshard,
        composite("reshard", "The same value, under another sharding.", resharded, decompose::same),
    )
};
/// `max(x, 0)`, NaN for NaN; derivative 0 at 0.
pub static RELU: OpDef = as_category(
    Category::Elementwise,
    with_rule(
        vjp::relu,
        composite("relu", "Each element, or zero where it is negative.", numeric, decompose::relu),
    ),
);
/// `1 / (1 + exp(-x))`.
pub static SIGMOID: OpDef = OpDef {
    category: Some(Category::Elementwise),
    names_kernels: true,
    ..with_rule(
        vjp::sigmoid,
        composite("sigmoid", "The logistic function of each element.", inexact, decompose::sigmoid),
    )
};
/// `log(sigmoid(x))`, without overflow.
pub static LOG_SIGMOID: OpDef = full(as_category(
    Category::Elementwise,
    with_rule(
        vjp::log_sigmoid,
        composite(
            "log_sigmoid",
            "The logarithm of the logistic function of each element.",
            floating,
            decompose::log_sigmoid,
        ),
    ),
));
/// `x * sigmoid(x)`.
pub static SILU: OpDef = as_category(
    Category::Elementwise,
    composite("silu", "Each element times its logistic function.", floating, decompose::silu),
);
/// `log(1 + exp(x))`, without overflow.
pub static SOFTPLUS: OpDef = full(as_category(
    Category::Elementwise,
    with_rule(
        vjp::softplus,
        composite("softplus", "log(1 + exp(x)).", floating, decompose::softplus),
    ),
));
/// `x * Phi(x)`: by erfc, or by the tanh approximation (attribute `Approximate`).
pub static GELU: OpDef = OpDef {
    category: Some(Category::Elementwise),
    names_kernels: true,
    samples: samples::gelu,
    ..composite(
        "gelu",
        "The Gaussian error linear unit of each element.",
        floating,
        decompose::gelu,
    )
};
/// `log(exp(a) + exp(b))` without overflow.
pub static LOGADDEXP: OpDef = OpDef {
    category: Some(Category::Elementwise),
    arity: (2, 2),
    precision: Precision::Full,
    ..with_rule(
        vjp::logaddexp,
        composite(
            "logaddexp",
            "The logarithm of the sum of two tensors' exponentials.",
            floating_pair,
            decompose::logaddexp,
        ),
    )
};
/// Arithmetic mean over axes; NaN for an empty sum.
pub static MEAN: OpDef = OpDef {
    linear: Linearity::All,
    factors: Factoring::Rule(factoring::at_once),
    category: Some(Category::Reduction),
    samples: samples::reductions,
    ..composite("mean", "The mean of the elements along some axes.", mean, decompose::mean)
};
/// Variance over axes (attribute `Moments`), by the two-pass formula.
pub static VAR: OpDef = OpDef {
    factors: Factoring::Rule(factoring::at_once),
    category: Some(Category::Reduction),
    samples: samples::moments,
    ..with_rule(
        vjp::var,
        composite(
            "var",
            "The variance of the elements along some axes.",
            over_axes,
            decompose::var,
        ),
    )
};
/// `log(sum(exp(x)))` without overflow; -inf for an empty sum.
pub static LOGSUMEXP: OpDef = OpDef {
    factors: Factoring::Rule(factoring::log_sums),
    category: Some(Category::Reduction),
    samples: samples::reductions,
    precision: Precision::Full,
    ..with_rule(
        vjp::logsumexp,
        composite(
            "logsumexp",
            "The logarithm of the sum of exponentials along some axes.",
            over_axes,
            decompose::logsumexp,
        ),
    )
};
/// Exponentials normalised to a sum of 1 along an axis.
pub static SOFTMAX: OpDef = OpDef {
    factors: Factoring::Rule(factoring::along),
    samples: samples::along_axis,
    precision: Precision::Full,
    ..with_rule(
        vjp::softmax,
        composite(
            "softmax",
            "Exponentials normalised to sum to one along an axis.",
            along_axis,
            decompose::softmax,
        ),
    )
};
/// Logarithm of softmax, without underflow.
pub static LOG_SOFTMAX: OpDef = OpDef {
    factors: Factoring::Rule(factoring::along),
    samples: samples::along_axis,
    precision: Precision::Full,
    ..with_rule(
        vjp::log_softmax,
        composite(
            "log_softmax",
            "The logarithm of softmax along an axis.",
            along_axis,
            decompose::log_softmax,
        ),
    )
};
/// Layer normalisation over the last axes (attribute `Norm`), optionally scaled and shifted: Ba,
/// Kiros and Hinton 2016, eq. 4.
pub static LAYER_NORM: OpDef = OpDef {
    linear: Linearity::In(&[&[1, 2]]),
    factors: Factoring::Rule(factoring::norm),
    batching: Some(Batching::First),
    samples: samples::layer_norm,
    arity: (1, 3),
    precision: Precision::Full,
    ..with_rule(
        vjp::layer_norm,
        composite(
            "layer_norm",
            "Elements normalised over the last axes, then scaled and shifted.",
            layer_norm,
            decompose::layer_norm,
        ),
    )
};
/// `-log_softmax(logits)[label]` for each row; the last axis is the classes. A label out of range
/// is an error.
pub static CROSS_ENTROPY: OpDef = OpDef {
    factors: Factoring::Rule(factoring::cross_entropy),
    samples: samples::cross_entropy,
    arity: (2, 2),
    precision: Precision::Full,
    can_fail: true,
    ..with_rule(
        vjp::cross_entropy,
        composite(
            "cross_entropy",
            "The negative log-likelihood of integer labels under softmax of logits.",
            cross_entropy,
            decompose::cross_entropy,
        ),
    )
};
/// `-(y log x + (1 - y) log(1 - x))` for probabilities `x` and targets `y`; logarithms are clamped
/// to at least -100.
pub static BINARY_CROSS_ENTROPY: OpDef = OpDef {
    linear: Linearity::AffineIn(&[&[1]]),
    factors: Factoring::Rule(factoring::elementwise),
    batching: Some(Batching::Broadcast),
    arity: (2, 2),
    domain: (0.1, 0.9),
    precision: Precision::Full,
    ..with_rule(
        vjp::binary_cross_entropy,
        composite(
            "binary_cross_entropy",
            "The negative log-likelihood of targets under probabilities, logarithms at least -100.",
            floating_pair,
            decompose::binary_cross_entropy,
        ),
    )
};

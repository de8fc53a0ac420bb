//! Losses.

use crate::args::{Axes, TensorArg};
use crate::errors::invalid;
use crate::functions::{Out, out};
use crate::location;
use girih::losses::{self, ClassOptions, Reduction, Triplet};
use pyo3::prelude::*;

fn reduction(op: &str, name: &str) -> PyResult<Reduction> {
    match name {
        "none" => Ok(Reduction::None),
        "mean" => Ok(Reduction::Mean),
        "sum" => Ok(Reduction::Sum),
        other => {
            Err(invalid(format!("{op}: reduction must be 'mean', 'sum' or 'none', got '{other}'")))
        }
    }
}

/// Losses of tensors and numbers, in this order, that `girih::losses` has under the same names.
macro_rules! simple_losses {
    ($($name:ident ($($tensor:ident),*; $($arg:ident: $ty:ty = $default:expr),*) $doc:literal;)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = ($($tensor,)* $($arg=$default,)* reduction="mean"))]
        #[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
        fn $name(
            py: Python<'_>, $($tensor: TensorArg,)* $($arg: $ty,)* reduction: &str
        ) -> Out {
            let _called = location::enter!(py);
            let reduction = self::reduction(stringify!($name), reduction)?;
            out(losses::$name($(&$tensor.0,)* $($arg,)* reduction))
        })*

        fn register_simple(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

simple_losses! {
    mse_loss(x, target;) "``(x - target)**2``. Shapes must be equal.";
    l1_loss(x, target;) "``abs(x - target)``. Shapes must be equal.";
    smooth_l1_loss(x, target; beta: f64 = 1.0)
        "``d**2 / (2 * beta)`` where ``d = abs(x - target)`` is below beta, ``d - beta / 2`` elsewhere.";
    huber_loss(x, target; delta: f64 = 1.0)
        "``d**2 / 2`` where ``d = abs(x - target)`` is at most delta, ``delta * (d - delta / 2)`` elsewhere.";
    kl_div(x, target; log_target: bool = false)
        "``target * (log(target) - x)``, x log-probabilities, as the targets are with log_target.";
    hinge_loss(x, target; margin: f64 = 1.0) "``max(0, margin - x * target)``, targets -1 and 1.";
    hinge_embedding_loss(x, target; margin: f64 = 1.0)
        "``x`` where the target is 1, ``max(0, margin - x)`` where it is -1.";
    margin_ranking_loss(x1, x2, target; margin: f64 = 0.0)
        "``max(0, -target * (x1 - x2) + margin)``, targets -1 and 1.";
    soft_margin_loss(x, target;) "``log(1 + exp(-x * target))``, targets -1 and 1.";
    cosine_embedding_loss(x1, x2, target; margin: f64 = 0.0)
        "``1 - cos(x1, x2)`` where the target is 1, ``max(0, cos(x1, x2) - margin)`` where it is -1; vectors on the last axis.";
    poisson_nll_loss(x, target; log_input: bool = true, full: bool = false, eps: f64 = 1e-8)
        "``exp(x) - target * x``, or ``x - target * log(x + eps)`` without log_input; with full Stirling's term.";
    gaussian_nll_loss(x, target, var; full: bool = false, eps: f64 = 1e-6)
        "``(log(var) + (x - target)**2 / var) / 2``, variances at least eps; with full the constant too.";
}

/// ``max(0, |anchor - positive| - |anchor - negative| + margin)`` by p-norms along the last axis;
/// with swap the positive's distance from the negative counts if that is smaller.
#[pyfunction]
#[pyo3(signature = (
    anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=false, reduction="mean"
))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn triplet_margin_loss(
    py: Python<'_>,
    anchor: TensorArg,
    positive: TensorArg,
    negative: TensorArg,
    margin: f64,
    p: f64,
    eps: f64,
    swap: bool,
    reduction: &str,
) -> Out {
    let _called = location::enter!(py);
    let reduction = self::reduction("triplet_margin_loss", reduction)?;
    let options = Triplet { margin, p, eps, swap };
    out(losses::triplet_margin_loss(&anchor.0, &positive.0, &negative.0, options, reduction))
}

/// ``-(target * log(x) + (1 - target) * log(1 - x))`` of probabilities x, logarithms at least -100.
#[pyfunction]
#[pyo3(signature = (x, target, weight=None, reduction="mean"))]
fn binary_cross_entropy(
    py: Python<'_>,
    x: TensorArg,
    target: TensorArg,
    weight: Option<TensorArg>,
    reduction: &str,
) -> Out {
    let _called = location::enter!(py);
    let reduction = self::reduction("binary_cross_entropy", reduction)?;
    let weight = weight.map(|w| w.0);
    out(losses::binary_cross_entropy(&x.0, &target.0, weight.as_ref(), reduction))
}

/// binary_cross_entropy of ``sigmoid(x)``, without overflow; pos_weight weighs positive targets.
#[pyfunction]
#[pyo3(signature = (x, target, weight=None, reduction="mean", pos_weight=None))]
fn binary_cross_entropy_with_logits(
    py: Python<'_>,
    x: TensorArg,
    target: TensorArg,
    weight: Option<TensorArg>,
    reduction: &str,
    pos_weight: Option<TensorArg>,
) -> Out {
    let _called = location::enter!(py);
    let reduction = self::reduction("binary_cross_entropy_with_logits", reduction)?;
    let (weight, positive) = (weight.map(|w| w.0), pos_weight.map(|w| w.0));
    out(losses::binary_cross_entropy_with_logits(
        &x.0,
        &target.0,
        weight.as_ref(),
        positive.as_ref(),
        reduction,
    ))
}

/// Minus the log-probability at each label; weight has one entry per class, labels equal to
/// ignore_index do not count. Classes are on the last axis unless told otherwise.
#[pyfunction]
#[pyo3(signature = (log_probabilities, labels, weight=None, ignore_index=None, reduction="mean", axis=None, *, dim=None))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn nll_loss(
    py: Python<'_>,
    log_probabilities: TensorArg,
    labels: TensorArg,
    weight: Option<TensorArg>,
    ignore_index: Option<i64>,
    reduction: &str,
    axis: Option<Axes>,
    dim: Option<Axes>,
) -> Out {
    let _called = location::enter!(py);
    let reduction = self::reduction("nll_loss", reduction)?;
    let weight = weight.map(|w| w.0);
    let options = ClassOptions {
        axis: crate::args::axis("nll_loss", axis, dim, -1)?,
        weight: weight.as_ref(),
        ignore_index,
        ..ClassOptions::default()
    };
    out(losses::nll_loss(&log_probabilities.0, &labels.0, options, reduction))
}

/// The cross entropy of softmax of logits with labels: class indices, or probabilities of the
/// logits' shape. weight has one entry per class, labels equal to ignore_index do not count,
/// label_smoothing gives a share to all classes. Classes are on the last axis unless told otherwise.
#[pyfunction]
#[pyo3(signature = (
    logits, labels, reduction="mean", *, weight=None, ignore_index=None, label_smoothing=0.0,
    axis=None, dim=None
))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn cross_entropy(
    py: Python<'_>,
    logits: TensorArg,
    labels: TensorArg,
    reduction: &str,
    weight: Option<TensorArg>,
    ignore_index: Option<i64>,
    label_smoothing: f64,
    axis: Option<Axes>,
    dim: Option<Axes>,
) -> Out {
    let _called = location::enter!(py);
    let reduction = self::reduction("cross_entropy", reduction)?;
    let weight = weight.map(|w| w.0);
    let options = ClassOptions {
        axis: crate::args::axis("cross_entropy", axis, dim, -1)?,
        weight: weight.as_ref(),
        ignore_index,
        label_smoothing,
    };
    out(losses::cross_entropy(&logits.0, &labels.0, options, reduction))
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_simple(m)?;
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        triplet_margin_loss binary_cross_entropy binary_cross_entropy_with_logits nll_loss
        cross_entropy
    }
    Ok(())
}

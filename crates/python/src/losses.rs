//! Loss functions.

use crate::args::{Axes, TensorArg};
use crate::errors::{IntoPy, invalid};
use crate::functions::{Out, out};
use crate::location;
use crate::scalars;
use girih::Tensor;
use girih::losses::{
    self, ClassOptions, Ctc, GaussianNll, Mean, PoissonNll, Reduction, Targets, Triplet,
};
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;

fn reduction(op: &str, name: &str) -> PyResult<Reduction> {
    match name {
        "none" => Ok(Reduction::None),
        "batchmean" if op == "kl_div" => Ok(Reduction::BatchMean),
        "mean" => Ok(Reduction::Mean),
        "sum" => Ok(Reduction::Sum),
        other => {
            let more = if op == "kl_div" { "'batchmean', " } else { "" };
            Err(invalid(format!(
                "{op}: reduction must be {more}'mean', 'sum' or 'none', got '{other}'"
            )))
        }
    }
}

/// Warns if shapes differ but broadcast, because an operand then usually lacks an axis, or has an
/// extra axis, by mistake.
fn stretches(py: Python<'_>, op: &str, [x, target]: [&Tensor; 2]) -> PyResult<()> {
    let (x, target) = (x.shape(), target.shape());
    if x == target {
        return Ok(());
    }
    let message = format!(
        "{op}: predictions have shape {x} and targets {target}, which broadcast; give both one shape \
         if that is not meant"
    );
    let message = std::ffi::CString::new(message)?;
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, location::user_level(py))
}

/// Defines losses of tensors and numbers, in this order, which `girih::losses` has under the same
/// names; its argument after the tensors follows `=>`.
macro_rules! simple_losses {
    ($($name:ident $($check:ident)? ($first:ident $(, $tensor:ident)*;
        $($arg:ident: $ty:ty = $default:expr),* $(=> $options:expr)?) $doc:literal;)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = ($first, $($tensor,)* $($arg=$default,)* reduction="mean"))]
        #[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
        fn $name(
            py: Python<'_>, $first: TensorArg, $($tensor: TensorArg,)*
            $(#[pyo3(from_py_with = scalars::param)] $arg: $ty,)*
            #[pyo3(from_py_with = scalars::text)] reduction: &str
        ) -> Out {
            let _called = location::enter!(py);
            let reduction = self::reduction(stringify!($name), reduction)?;
            let loss = out(losses::$name(&$first.0, $(&$tensor.0,)* $($options,)? reduction))?;
            let _tensors = [&$first.0 $(, &$tensor.0)*];
            $($check(py, stringify!($name), _tensors)?;)?
            Ok(loss)
        })*

        fn register_simple(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

simple_losses! {
    mse_loss stretches(x, target;) "``(x - target)**2``. Shapes broadcast, with a warning.";
    l1_loss stretches(x, target;) "``abs(x - target)``. Shapes broadcast, with a warning.";
    smooth_l1_loss stretches(x, target; beta: f64 = 1.0 => beta)
        "``d**2 / (2 * beta)`` where ``d = abs(x - target)`` is below beta, ``d - beta / 2`` elsewhere.";
    huber_loss stretches(x, target; delta: f64 = 1.0 => delta)
        "``d**2 / 2`` where ``d = abs(x - target)`` is at most delta, ``delta * (d - delta / 2)`` elsewhere.";
    kl_div(x, target; log_target: bool = false
        => if log_target { Targets::LogProbabilities } else { Targets::Probabilities })
        "``target * (log(target) - x)`` of log-probabilities x; with log_target the targets are log-probabilities too. The reduction 'batchmean' divides the sum by the size of the first axis.";
    hinge_loss(x, target; margin: f64 = 1.0 => margin) "``max(0, margin - x * target)``, with targets -1 and 1.";
    hinge_embedding_loss(x, target; margin: f64 = 1.0 => margin)
        "``x`` where the target is 1, ``max(0, margin - x)`` where it is -1.";
    margin_ranking_loss(x1, x2, target; margin: f64 = 0.0 => margin)
        "``max(0, -target * (x1 - x2) + margin)``, with targets -1 and 1.";
    soft_margin_loss(x, target;) "``log(1 + exp(-x * target))``, with targets -1 and 1.";
    cosine_embedding_loss(x1, x2, target; margin: f64 = 0.0 => margin)
        "``1 - cos(x1, x2)`` where the target is 1, ``max(0, cos(x1, x2) - margin)`` where it is -1; the vectors are on the last axis.";
    multilabel_margin_loss(x, target;)
        "``sum(max(0, 1 - x[j] + x[i])) / classes`` over the labels j of a row, up to the first negative label, and the other classes i; the classes are on the last axis.";
    poisson_nll_loss(x, target; log_input: bool = true, full: bool = false, eps: f64 = 1e-8
        => PoissonNll { mean: if log_input { Mean::Logarithm } else { Mean::Value }, full, eps })
        "``exp(x) - target * x``, or ``x - target * log(x + eps)`` without log_input; full adds Stirling's term.";
    gaussian_nll_loss(x, target, var; full: bool = false, eps: f64 = 1e-6
        => GaussianNll { full, eps })
        "``(log(var) + (x - target)**2 / var) / 2``, with variances of at least eps; full adds the constant.";
}

/// ``max(0, |anchor - positive| - |anchor - negative| + margin)`` with p-norms along the last axis;
/// with swap, the distance between positive and negative is used if it is smaller.
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
    #[pyo3(from_py_with = scalars::number)] margin: f64,
    #[pyo3(from_py_with = scalars::number)] p: f64,
    #[pyo3(from_py_with = scalars::number)] eps: f64,
    #[pyo3(from_py_with = scalars::flag)] swap: bool,
    #[pyo3(from_py_with = scalars::text)] reduction: &str,
) -> Out {
    let _called = location::enter!(py);
    let reduction = self::reduction("triplet_margin_loss", reduction)?;
    let options = Triplet { margin, p, eps, swap };
    out(losses::triplet_margin_loss(&anchor.0, &positive.0, &negative.0, options, reduction))
}

/// ``-(target * log(x) + (1 - target) * log(1 - x))`` of probabilities x, with logarithms of at
/// least -100.
#[pyfunction]
#[pyo3(signature = (x, target, weight=None, reduction="mean"))]
fn binary_cross_entropy(
    py: Python<'_>,
    x: TensorArg,
    target: TensorArg,
    weight: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::text)] reduction: &str,
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
    #[pyo3(from_py_with = scalars::text)] reduction: &str,
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

/// The negative log-probability at each label; weight has one entry per class, sample_weight one per
/// label, and labels equal to ignore_index are ignored. The mean is weighted. Classes are on the
/// last axis by default.
#[pyfunction]
#[pyo3(signature = (log_probabilities, labels, weight=None, ignore_index=Some(girih::losses::IGNORED), reduction="mean", axis=None, *, dim=None, sample_weight=None))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn nll_loss(
    py: Python<'_>,
    log_probabilities: TensorArg,
    labels: TensorArg,
    weight: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::maybe_whole)] ignore_index: Option<i64>,
    #[pyo3(from_py_with = scalars::text)] reduction: &str,
    axis: Option<Axes>,
    dim: Option<Axes>,
    sample_weight: Option<TensorArg>,
) -> Out {
    let _called = location::enter!(py);
    let reduction = self::reduction("nll_loss", reduction)?;
    let (weight, sample_weight) = (weight.map(|w| w.0), sample_weight.map(|w| w.0));
    let options = ClassOptions {
        axis: crate::args::axis("nll_loss", axis, dim, -1)?,
        weight: weight.as_ref(),
        sample_weight: sample_weight.as_ref(),
        ignore_index,
        ..ClassOptions::default()
    };
    out(losses::nll_loss(&log_probabilities.0, &labels.0, options, reduction))
}

/// The cross entropy between softmax of logits and labels: class indices, or probabilities with the
/// shape of the logits. weight has one entry per class, sample_weight one per label, labels equal to
/// ignore_index are ignored, and label_smoothing distributes a fraction over all classes. The mean
/// is weighted. Classes are on the last axis by default.
#[pyfunction]
#[pyo3(signature = (
    logits, labels, reduction="mean", *, weight=None, ignore_index=Some(girih::losses::IGNORED), label_smoothing=0.0,
    axis=None, dim=None, sample_weight=None
))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn cross_entropy(
    py: Python<'_>,
    logits: TensorArg,
    labels: TensorArg,
    #[pyo3(from_py_with = scalars::text)] reduction: &str,
    weight: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::maybe_whole)] ignore_index: Option<i64>,
    #[pyo3(from_py_with = scalars::number)] label_smoothing: f64,
    axis: Option<Axes>,
    dim: Option<Axes>,
    sample_weight: Option<TensorArg>,
) -> Out {
    let _called = location::enter!(py);
    let reduction = self::reduction("cross_entropy", reduction)?;
    let (weight, sample_weight) = (weight.map(|w| w.0), sample_weight.map(|w| w.0));
    let options = ClassOptions {
        axis: crate::args::axis("cross_entropy", axis, dim, -1)?,
        weight: weight.as_ref(),
        sample_weight: sample_weight.as_ref(),
        ignore_index,
        label_smoothing,
    };
    out(losses::cross_entropy(&logits.0, &labels.0, options, reduction))
}

/// ``sum(max(0, margin - x[label] + x[i])**p) / classes`` over the other classes i, with p 1 or 2,
/// times the entry of weight for the label. Shapes: x [..., classes], labels [...].
#[pyfunction]
#[pyo3(signature = (x, labels, p=1, margin=1.0, weight=None, reduction="mean"))]
fn multi_margin_loss(
    py: Python<'_>,
    x: TensorArg,
    labels: TensorArg,
    #[pyo3(from_py_with = scalars::whole)] p: i64,
    #[pyo3(from_py_with = scalars::number)] margin: f64,
    weight: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::text)] reduction: &str,
) -> Out {
    let _called = location::enter!(py);
    let reduction = self::reduction("multi_margin_loss", reduction)?;
    let weight = weight.map(|w| w.0);
    out(losses::multi_margin_loss(&x.0, &labels.0, p, margin, weight.as_ref(), reduction))
}

/// The mean of binary_cross_entropy_with_logits over classes, the last axis, weighted by class.
#[pyfunction]
#[pyo3(signature = (x, target, weight=None, reduction="mean"))]
fn multilabel_soft_margin_loss(
    py: Python<'_>,
    x: TensorArg,
    target: TensorArg,
    weight: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::text)] reduction: &str,
) -> Out {
    let _called = location::enter!(py);
    let reduction = self::reduction("multilabel_soft_margin_loss", reduction)?;
    let weight = weight.map(|w| w.0);
    out(losses::multilabel_soft_margin_loss(&x.0, &target.0, weight.as_ref(), reduction))
}

/// The negative log-probability of label sequences, summed over their alignments in time with the
/// blank class between labels. Shapes: log_probabilities [time, batch, classes], labels [batch,
/// longest] or all on one axis, input_lengths and target_lengths [batch]; or all without the batch
/// axis. The mean first divides each entry by its number of labels. Impossible sequences have
/// infinite loss, or zero loss with zero_infinity.
#[pyfunction]
#[pyo3(signature = (
    log_probabilities, labels, input_lengths, target_lengths, blank=0, reduction="mean",
    zero_infinity=false
))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn ctc_loss(
    py: Python<'_>,
    log_probabilities: TensorArg,
    labels: TensorArg,
    input_lengths: TensorArg,
    target_lengths: TensorArg,
    #[pyo3(from_py_with = scalars::whole)] blank: i64,
    #[pyo3(from_py_with = scalars::text)] reduction: &str,
    #[pyo3(from_py_with = scalars::flag)] zero_infinity: bool,
) -> Out {
    let _called = location::enter!(py);
    let reduction = self::reduction("ctc_loss", reduction)?;
    let options = Ctc { blank, zero_infinity };
    let (mut x, mut labels) = (log_probabilities.0, labels.0);
    let (mut steps, mut lengths) = (input_lengths.0, target_lengths.0);
    let single = x.rank() == 2;
    if single {
        x = x.unsqueeze(1).py()?;
        labels = labels.reshape([1, -1]).py()?;
        (steps, lengths) = (steps.reshape(-1).py()?, lengths.reshape(-1).py()?);
    }
    let loss = losses::ctc_loss(&x, &labels, (&steps, &lengths), options, reduction).py()?;
    match single && reduction == Reduction::None {
        true => out(loss.squeeze(0)),
        false => Ok(crate::tensor::PyTensor(loss)),
    }
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_simple(m)?;
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        triplet_margin_loss binary_cross_entropy binary_cross_entropy_with_logits nll_loss
        cross_entropy multi_margin_loss multilabel_soft_margin_loss ctc_loss
    }
    Ok(())
}

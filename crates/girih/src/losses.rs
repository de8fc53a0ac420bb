//! Losses: measures of the difference between predictions and targets, per element or reduced.
//!
//! Regression losses and the triplet loss broadcast their operands; the other losses require equal
//! shapes of predictions and targets. Half floats are computed in f32 and rounded once.

use crate::{Error, Result, Tensor, precision, where_};
use girih_ir::shape::normalize_axis;
use girih_ir::{DType, OpCode};

mod ctc;
mod likelihood;
mod margin;

pub use ctc::{Ctc, ctc_loss};
pub use likelihood::{
    GaussianNll, Mean, PoissonNll, Targets, gaussian_nll_loss, kl_div, poisson_nll_loss,
};
pub use margin::{multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss};

/// The reduction of the elements of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// No reduction.
    None,
    /// The mean; the weighted mean if the elements have weights.
    Mean,
    /// The sum.
    Sum,
    /// The sum divided by the size of the first axis.
    BatchMean,
}

impl Reduction {
    fn of(self, loss: &Tensor) -> Result<Tensor> {
        match self {
            Reduction::None => Ok(loss.clone()),
            Reduction::Mean => loss.mean_all(),
            Reduction::Sum => loss.sum_all(),
            Reduction::BatchMean => {
                let others: Vec<i64> = (1..loss.rank() as i64).collect();
                loss.sum(&others)?.mean_all()
            }
        }
    }
}

/// Class weights, ignored labels and label smoothing.
#[derive(Clone, Copy)]
pub struct ClassOptions<'a> {
    /// The axis of the classes.
    pub axis: i64,
    /// One weight per class.
    pub weight: Option<&'a Tensor>,
    /// One weight per label. The mean is that of the weighted losses: their sum over the sum of the
    /// weights.
    pub sample_weight: Option<&'a Tensor>,
    /// A label whose rows are ignored. Every other label must be a class; an invalid label is an
    /// error when the loss is computed.
    pub ignore_index: Option<i64>,
    /// The share of probability that is distributed evenly over all classes.
    pub label_smoothing: f64,
}

/// The default label whose rows are ignored.
pub const IGNORED: i64 = -100;

impl Default for ClassOptions<'_> {
    fn default() -> Self {
        ClassOptions {
            axis: -1,
            weight: None,
            sample_weight: None,
            ignore_index: Some(IGNORED),
            label_smoothing: 0.0,
        }
    }
}

fn same_shape(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.shape().equals(&b.shape()) {
        return Ok(());
    }
    let (lhs, rhs, reason) =
        (a.shape(), b.shape(), "predictions and targets must have one shape".into());
    Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into())
}

/// The operands, which must have equal shapes, in the compute dtype, and the dtype of the result.
fn operands(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor, DType)> {
    same_shape(op, a, b)?;
    wide(a, b)
}

/// As [`operands`], for shapes that broadcast.
fn stretched(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor, DType)> {
    a.shape().broadcast(&b.shape(), op)?;
    wide(a, b)
}

/// The dtype of the loss of operands that promote to `dtype`.
fn full(dtype: DType) -> DType {
    precision::computed_in(OpCode::CrossEntropy, dtype.to_float())
}

fn wide(a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor, DType)> {
    let dtype = full(a.dtype().promote(b.dtype())?);
    Ok((a.astype(dtype.widened())?, b.astype(dtype.widened())?, dtype))
}

fn finish(loss: Result<Tensor>, dtype: DType, reduction: Reduction) -> Result<Tensor> {
    reduction.of(&loss?)?.astype(dtype)
}

fn positive(op: &str, name: &str, value: f64) -> Result<()> {
    if value > 0.0 {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!("{op}: {name} must be positive, got {value}")))
}

/// The squared error: `(x - y)^2`. Shapes broadcast.
#[track_caller]
pub fn mse_loss(x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let (x, y, dtype) = stretched("mse_loss", x, y)?;
    finish(x.sub(&y)?.square(), dtype, reduction)
}

/// The absolute error: `|x - y|`. Shapes broadcast.
#[track_caller]
pub fn l1_loss(x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let (x, y, dtype) = stretched("l1_loss", x, y)?;
    finish(x.sub(&y)?.abs(), dtype, reduction)
}

/// Splits a difference for a piecewise loss. Returns the absolute value of the difference, whether
/// the absolute value is below a bound, and the square of the difference where the absolute value
/// is below the bound (0 elsewhere). The function does not square the absolute value, because its
/// derivative jumps at 0, nor a large difference, because the derivative of the square times 0 may
/// be NaN.
fn near(difference: &Tensor, bound: f64) -> Result<(Tensor, Tensor, Tensor)> {
    let d = difference.abs()?;
    let inside = d.lt(bound)?;
    let square = where_(&inside, difference, 0.0)?.square()?;
    Ok((d, inside, square))
}

/// `d^2 / (2 beta)` if `d = |x - y|` is below beta, else `d - beta / 2`: Girshick 2015, eq. 3.
///
/// Errors: [`Error::InvalidArgument`] for a negative beta.
#[track_caller]
pub fn smooth_l1_loss(x: &Tensor, y: &Tensor, beta: f64, reduction: Reduction) -> Result<Tensor> {
    if beta == 0.0 {
        return l1_loss(x, y, reduction);
    }
    positive("smooth_l1_loss", "beta", beta)?;
    let (x, y, dtype) = stretched("smooth_l1_loss", x, y)?;
    let (d, inside, square) = near(&x.sub(&y)?, beta)?;
    let (near, far) = (square.mul(0.5 / beta)?, d.sub(0.5 * beta)?);
    finish(where_(&inside, &near, &far), dtype, reduction)
}

/// `d^2 / 2` if `d = |x - y|` is below delta, else `delta (d - delta / 2)`: Huber 1964.
///
/// Errors: [`Error::InvalidArgument`] unless delta is positive.
#[track_caller]
pub fn huber_loss(x: &Tensor, y: &Tensor, delta: f64, reduction: Reduction) -> Result<Tensor> {
    positive("huber_loss", "delta", delta)?;
    let (x, y, dtype) = stretched("huber_loss", x, y)?;
    let (d, inside, square) = near(&x.sub(&y)?, delta)?;
    let (near, far) = (square.mul(0.5)?, d.sub(0.5 * delta)?.mul(delta)?);
    finish(where_(&inside, &near, &far), dtype, reduction)
}

/// `-(y log x + (1 - y) log(1 - x))`, with logarithms clamped to at least -100; `x` are
/// probabilities.
#[track_caller]
pub fn binary_cross_entropy(
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    reduction: Reduction,
) -> Result<Tensor> {
    let (x, y, dtype) = operands("binary_cross_entropy", x, y)?;
    let loss = Tensor::record(OpCode::BinaryCrossEntropy.into(), &[&x, &y])?;
    finish(weighted(loss, weight), dtype, reduction)
}

fn weighted(loss: Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
    match weight {
        None => Ok(loss),
        Some(weight) => loss.mul(&weight.astype(loss.dtype())?),
    }
}

/// `-(w y log s(x) + (1 - y) log(1 - s(x)))` with the logistic function `s`, without overflow; `w`
/// is `positive_weight`.
#[track_caller]
pub fn binary_cross_entropy_with_logits(
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    positive_weight: Option<&Tensor>,
    reduction: Reduction,
) -> Result<Tensor> {
    let (x, y, dtype) = operands("binary_cross_entropy_with_logits", x, y)?;
    let loss = match positive_weight {
        // `log(1 + exp(-|x|)) + max(x, 0) - x y`, which is finite and exact for large `|x|`. Unlike
        // the absolute value, the selection has the correct derivative at 0.
        None => {
            let positive = x.gt(0.0)?;
            let tail = where_(&positive, &x.neg()?, &x)?.softplus()?;
            let slope = where_(&positive, &y.neg()?.add(1.0)?, &y.neg()?)?;
            tail.add(&x.mul(&slope)?)?
        }
        Some(w) => {
            let w = w.astype(x.dtype())?;
            let positive = y.mul(&w)?.mul(&x.neg()?.softplus()?)?;
            positive.add(&y.neg()?.add(1.0)?.mul(&x.softplus()?)?)?
        }
    };
    finish(weighted(loss, weight), dtype, reduction)
}

/// The loss and weight of each row, for integer labels.
struct RowLosses {
    loss: Tensor,
    weight: Option<Tensor>,
}

impl RowLosses {
    fn reduced(self, reduction: Reduction) -> Result<Tensor> {
        match (reduction, &self.weight) {
            (Reduction::Mean, Some(weight)) => self.loss.sum_all()?.div(&weight.sum_all()?),
            _ => reduction.of(&self.loss),
        }
    }
}

/// Moves the axis of classes to the end.
fn classes_last(op: &'static str, x: &Tensor, axis: i64) -> Result<Tensor> {
    let axis = normalize_axis(op, axis, x.rank())?;
    if axis + 1 == x.rank() {
        return Ok(x.clone());
    }
    let mut order: Vec<i64> = (0..x.rank() as i64).filter(|&a| a != axis as i64).collect();
    order.push(axis as i64);
    x.permute(&order)
}

fn check_labels(op: &'static str, x: &Tensor, labels: &Tensor) -> Result<()> {
    let shape = x.shape();
    if !labels.dtype().is_int() {
        let (dtype, expected) = (labels.dtype(), "integer class labels");
        return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
    }
    if shape.rank() == 0 || !shape.part(..shape.rank() - 1).equals(&labels.shape()) {
        let (lhs, rhs) = (shape, labels.shape());
        let reason = "labels must have the predictions' shape without the axis of classes".into();
        return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
    }
    Ok(())
}

/// The size of the last axis.
fn last(x: &Tensor) -> girih_ir::Dim {
    x.shape().dim(x.rank() - 1)
}

fn check_weight(op: &'static str, x: &Tensor, weight: Option<&Tensor>) -> Result<()> {
    match weight {
        Some(w) if w.rank() != 1 || x.rank() == 0 || !w.shape().dim(0).equals(last(x)) => {
            let classes = if x.rank() == 0 { 0.into() } else { last(x) };
            let (lhs, rhs) = (x.shape(), w.shape());
            let reason = format!("expected one weight per class, [{classes}]");
            Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into())
        }
        _ => Ok(()),
    }
}

/// Multiplies losses and their weights by one weight per row.
fn per_sample(op: &'static str, rows: RowLosses, samples: Option<&Tensor>) -> Result<RowLosses> {
    let Some(samples) = samples else { return Ok(rows) };
    if !samples.shape().equals(&rows.loss.shape()) {
        let (lhs, rhs) = (rows.loss.shape(), samples.shape());
        let reason = "expected one sample_weight per label (first)".into();
        return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
    }
    let samples = samples.astype(rows.loss.dtype())?;
    let weight = match &rows.weight {
        Some(weight) => weight.mul(&samples)?,
        None => samples.clone(),
    };
    Ok(RowLosses { loss: rows.loss.mul(&samples)?, weight: Some(weight) })
}

/// Replaces the ignored label by class 0, and returns the mask of ignored rows; `None` if the
/// labels' dtype cannot represent the ignored label.
fn counted(labels: &Tensor, ignore: Option<i64>) -> Result<(Tensor, Option<Tensor>)> {
    let held = |index: &i64| {
        let range = labels.dtype().int_range();
        range.is_some_and(|(min, max)| (min..=max).contains(&i128::from(*index)))
    };
    let Some(index) = ignore.filter(held) else { return Ok((labels.clone(), None)) };
    let ignored = labels.eq(index)?;
    Ok((where_(&ignored, 0, labels)?, Some(ignored)))
}

/// The loss and weight of each row of log-probabilities, for integer labels.
fn label_rows(
    op: &'static str,
    log_p: &Tensor,
    labels: &Tensor,
    options: &ClassOptions<'_>,
) -> Result<RowLosses> {
    let (labels, ignored) = counted(labels, options.ignore_index)?;
    let labels = labels.check_labels(last(log_p).get())?;
    let picked = log_p.take_along_axis(&labels.unsqueeze(-1)?, -1)?.squeeze(-1)?;
    let mut loss = picked.neg()?;
    let mut weight = None;
    let smoothing = options.label_smoothing;
    let mut rest = (smoothing > 0.0).then(|| -> Result<Tensor> {
        let each = match options.weight {
            None => log_p.neg()?,
            Some(w) => log_p.neg()?.mul(&w.astype(log_p.dtype())?)?,
        };
        let classes = last(log_p).get().max(1);
        each.sum(-1)?.mul(smoothing / classes as f64)
    });
    if let Some(w) = options.weight {
        let w = w.astype(log_p.dtype())?.take(&labels, 0)?;
        loss = loss.mul(&w)?;
        weight = Some(w);
    }
    if let Some(rest) = rest.take() {
        loss = loss.mul(1.0 - smoothing)?.add(&rest?)?;
    }
    let RowLosses { mut loss, mut weight } =
        per_sample(op, RowLosses { loss, weight }, options.sample_weight)?;
    if let Some(ignored) = &ignored {
        loss = where_(ignored, 0.0, &loss)?;
        let one = Tensor::ones(loss.shape(), loss.dtype())?;
        weight = Some(where_(ignored, 0.0, weight.as_ref().unwrap_or(&one))?);
    }
    Ok(RowLosses { loss, weight })
}

/// The negative log-probability of each label.
///
/// Shapes: log-probabilities with an axis of classes, labels without that axis.
#[track_caller]
pub fn nll_loss(
    log_p: &Tensor,
    labels: &Tensor,
    options: ClassOptions<'_>,
    reduction: Reduction,
) -> Result<Tensor> {
    let op = "nll_loss";
    let log_p = classes_last(op, log_p, options.axis)?;
    check_labels(op, &log_p, labels)?;
    check_weight(op, &log_p, options.weight)?;
    let dtype = full(log_p.dtype());
    let rows = label_rows(op, &log_p.astype(dtype.widened())?, labels, &options)?;
    rows.reduced(reduction)?.astype(dtype)
}

/// The cross entropy of the softmax of logits with labels. Labels are class indices of the logits'
/// shape without the axis of classes, or probabilities of the logits' shape.
///
/// Errors: a shape error for labels or weights that do not fit; [`Error::InvalidArgument`] for a
/// smoothing outside `0..=1`, or an `ignore_index` with probabilities.
#[track_caller]
pub fn cross_entropy(
    logits: &Tensor,
    labels: &Tensor,
    options: ClassOptions<'_>,
    reduction: Reduction,
) -> Result<Tensor> {
    let op = "cross_entropy";
    let smoothing = options.label_smoothing;
    if !(0.0..=1.0).contains(&smoothing) {
        return Err(Error::InvalidArgument(format!(
            "{op}: label_smoothing must be in [0, 1], got {smoothing}"
        )));
    }
    let logits = classes_last(op, logits, options.axis)?;
    let logits = logits.astype(full(logits.dtype()))?;
    let dtype = logits.dtype();
    check_weight(op, &logits, options.weight)?;
    if labels.dtype().is_float() {
        let labels = classes_last(op, labels, options.axis)?;
        let loss = of_probabilities(&logits.astype(dtype.widened())?, &labels, &options)?;
        // The mean is over rows, independent of the class weights.
        let rows = per_sample(op, RowLosses { loss, weight: None }, options.sample_weight)?;
        return rows.reduced(reduction)?.astype(dtype);
    }
    check_labels(op, &logits, labels)?;
    if options.weight.is_none() && options.sample_weight.is_none() && smoothing == 0.0 {
        let (labels, ignored) = counted(labels, options.ignore_index)?;
        let loss = logits.cross_entropy(&labels)?;
        let Some(ignored) = ignored else { return reduction.of(&loss) };
        let loss = where_(&ignored, 0.0, &loss)?;
        if reduction != Reduction::Mean {
            return reduction.of(&loss);
        }
        let loss = loss.astype(dtype.widened())?;
        let count = where_(&ignored, 0.0, 1.0)?.astype(loss.dtype())?.sum_all()?;
        return loss.sum_all()?.div(&count)?.astype(dtype);
    }
    let log_p = logits.astype(dtype.widened())?.log_softmax(-1)?;
    label_rows(op, &log_p, labels, &options)?.reduced(reduction)?.astype(dtype)
}

fn of_probabilities(logits: &Tensor, p: &Tensor, options: &ClassOptions<'_>) -> Result<Tensor> {
    let op = "cross_entropy";
    if options.ignore_index.is_some_and(|index| index != IGNORED) {
        return Err(Error::InvalidArgument(format!(
            "{op}: ignore_index is for labels that are class indices, not probabilities"
        )));
    }
    same_shape(op, logits, p)?;
    let mut p = p.astype(logits.dtype())?;
    let smoothing = options.label_smoothing;
    if smoothing > 0.0 {
        let classes = last(logits).get().max(1);
        p = p.mul(1.0 - smoothing)?.add(smoothing / classes as f64)?;
    }
    let each = weighted(logits.log_softmax(-1)?.mul(&p)?, options.weight)?;
    each.sum(-1)?.neg()
}

/// The hinge loss: `max(0, margin - x y)` for targets -1 and 1.
#[track_caller]
pub fn hinge_loss(x: &Tensor, y: &Tensor, margin: f64, reduction: Reduction) -> Result<Tensor> {
    let (x, y, dtype) = operands("hinge_loss", x, y)?;
    finish(x.mul(&y)?.neg()?.add(margin)?.relu(), dtype, reduction)
}

/// `x` if the target is 1, `max(0, margin - x)` if it is -1.
#[track_caller]
pub fn hinge_embedding_loss(
    x: &Tensor,
    y: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let (x, y, dtype) = operands("hinge_embedding_loss", x, y)?;
    let far = x.neg()?.add(margin)?.relu()?;
    finish(where_(&y.eq(1)?, &x, &far), dtype, reduction)
}

/// `max(0, -y (a - b) + margin)`: `a` should be larger than `b` if the target is 1, smaller if it
/// is -1.
#[track_caller]
pub fn margin_ranking_loss(
    a: &Tensor,
    b: &Tensor,
    y: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let (a, b, dtype) = operands("margin_ranking_loss", a, b)?;
    same_shape("margin_ranking_loss", &a, y)?;
    let y = y.astype(a.dtype())?;
    finish(b.sub(&a)?.mul(&y)?.add(margin)?.relu(), dtype, reduction)
}

/// The soft margin loss: `log(1 + exp(-x y))` for targets -1 and 1.
#[track_caller]
pub fn soft_margin_loss(x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let (x, y, dtype) = operands("soft_margin_loss", x, y)?;
    finish(x.mul(&y)?.neg()?.softplus(), dtype, reduction)
}

/// `1 - cos(a, b)` if the target is 1, `max(0, cos(a, b) - margin)` if it is -1. The vectors are on
/// the last axis.
#[track_caller]
pub fn cosine_embedding_loss(
    a: &Tensor,
    b: &Tensor,
    y: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let op = "cosine_embedding_loss";
    let (a, b, dtype) = operands(op, a, b)?;
    let cos = a.cosine_similarity(&b, -1, 1e-8)?;
    same_shape(op, &cos, y)?;
    let near = cos.neg()?.add(1.0)?;
    let far = cos.sub(margin)?.relu()?;
    finish(where_(&y.eq(1)?, &near, &far), dtype, reduction)
}

/// The distance and margin of a triplet loss.
#[derive(Clone, Copy, Debug)]
pub struct Triplet {
    /// The amount by which the negative should be farther from the anchor than the positive.
    pub margin: f64,
    /// The order of the norm.
    pub p: f64,
    /// The number that is added to differences.
    pub eps: f64,
    /// Whether the distance between the positive and the negative is used if it is smaller.
    pub swap: bool,
}

impl Default for Triplet {
    fn default() -> Self {
        Triplet { margin: 1.0, p: 2.0, eps: 1e-6, swap: false }
    }
}

/// `max(0, |a - positive| - |a - negative| + margin)` with vectors on the last axis: Balntas et al.
/// 2016.
#[track_caller]
pub fn triplet_margin_loss(
    anchor: &Tensor,
    positive: &Tensor,
    negative: &Tensor,
    options: Triplet,
    reduction: Reduction,
) -> Result<Tensor> {
    let op = "triplet_margin_loss";
    anchor.shape().broadcast(&positive.shape(), op)?.broadcast(&negative.shape(), op)?;
    let dtype = full(anchor.dtype().promote(positive.dtype())?.promote(negative.dtype())?);
    let [a, p, n] = [anchor, positive, negative].map(|t| t.astype(dtype.widened()));
    let (a, p, n) = (a?, p?, n?);
    let near = a.pairwise_distance(&p, options.p, options.eps)?;
    let mut far = a.pairwise_distance(&n, options.p, options.eps)?;
    if options.swap {
        far = far.minimum(&p.pairwise_distance(&n, options.p, options.eps)?)?;
    }
    finish(near.sub(&far)?.add(options.margin)?.relu(), dtype, reduction)
}

//! Connectionist temporal classification: the probability of a sequence of labels, summed over all
//! alignments with the time steps.

use super::Reduction;
use crate::ops::concat;
use crate::{Error, Result, ScanOptions, Tensor, scan_with, stack, where_};
use girih_ir::{DType, Shape};

/// A finite number that represents log 0, so that sums and differences and their gradients are
/// finite.
const NEVER: f64 = -1e30;

/// Options of [`ctc_loss`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Ctc {
    /// The class of the blank, which means no label.
    pub blank: i64,
    /// Whether impossible sequences have the loss 0 instead of infinity.
    pub zero_infinity: bool,
}

fn mismatch(op: &'static str, a: &Tensor, b: &Tensor, reason: &str) -> Error {
    let (lhs, rhs) = (a.shape(), b.shape());
    girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason: reason.into() }.into()
}

/// Converts concatenated labels of several entries to rows, padded to the longest entry.
fn rows(labels: &Tensor, lengths: &Tensor) -> Result<Tensor> {
    // The result's shape depends on the lengths. If they have no value yet, use the number of all
    // labels as the maximum length.
    let longest = match lengths.max_all().and_then(|t| t.item::<i64>()) {
        Ok(longest) => longest.max(0) as usize,
        Err(_) => labels.numel(),
    };
    let batch = lengths.numel();
    let starts = lengths.cumsum(0)?.sub(lengths)?.unsqueeze(1)?;
    let index = starts.add(&Tensor::iota([batch, longest], 1, DType::I64)?)?;
    if labels.numel() == 0 {
        return Tensor::zeros([batch, longest], DType::I64);
    }
    labels.take(&index.minimum(labels.numel() as i64 - 1)?, 0)
}

/// `log(exp(a) + exp(b))` for values of at least [`NEVER`].
fn plus(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.logaddexp(b)
}

/// `a` shifted right by `n` along its last axis, filled with [`NEVER`].
fn moved(a: &Tensor, n: usize) -> Result<Tensor> {
    let (shape, size) = (a.shape(), a.shape()[1]);
    let n = n.min(size);
    let front = Tensor::full(NEVER, shape.with_dim(1, n), a.dtype())?;
    concat(&[&front, &a.narrow(1, 0, size - n)?], 1)
}

/// The negative log-probability of each sequence of labels: Graves et al. 2006, section 4.1.
///
/// Shapes: log-probabilities `[time, batch, classes]`; labels `[batch, longest]`, or concatenated
/// in one axis; the numbers of steps and labels per entry, `[batch]`. The mean is over the entries'
/// losses, each divided by its number of labels.
///
/// Errors: a shape error for operands that do not fit; a dtype error for labels or lengths that are
/// not integers; [`Error::InvalidArgument`] for a blank that is not a class. An entry with too few
/// steps for its labels has an infinite loss.
#[track_caller]
pub fn ctc_loss(
    log_p: &Tensor,
    labels: &Tensor,
    (steps, lengths): (&Tensor, &Tensor),
    options: Ctc,
    reduction: Reduction,
) -> Result<Tensor> {
    let op = "ctc_loss";
    let shape = log_p.shape();
    if shape.rank() != 3 {
        let reason = "expected log-probabilities [time, batch, classes]".into();
        return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
    }
    let (batch, classes) = (shape.dim(1), shape[2]);
    if !(0..classes as i64).contains(&options.blank) {
        let reason = format!("{op}: blank is {}, expected a class below {classes}", options.blank);
        return Err(Error::InvalidArgument(reason));
    }
    for t in [labels, steps, lengths] {
        if !t.dtype().is_int() {
            let (dtype, expected) = (t.dtype(), "integers as labels and lengths");
            return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
        }
    }
    for t in [steps, lengths] {
        if t.rank() != 1 || !t.shape().dim(0).equals(batch) {
            return Err(mismatch(op, log_p, t, "expected one length per entry of the batch"));
        }
    }
    if !(labels.rank() == 1 || labels.rank() == 2 && labels.shape().dim(0).equals(batch)) {
        return Err(mismatch(op, log_p, labels, "expected labels [batch, longest] or [all]"));
    }
    let [labels, steps, lengths] = [labels, steps, lengths].map(|t| t.astype(DType::I64));
    let (labels, steps, lengths) = (labels?, steps?, lengths?);
    let labels = if labels.rank() == 1 { rows(&labels, &lengths)? } else { labels };
    let dtype = super::full(log_p.dtype());
    let log_p = log_p.astype(dtype.widened())?;
    // The padding after an entry's labels is arbitrary.
    let valid = Tensor::iota(labels.shape(), 1, DType::I64)?.lt(&lengths.unsqueeze(1)?)?;
    let labels = where_(&valid, &labels, 0)?.check_labels(classes)?;
    let forward = alphas(&log_p, &labels, &steps, options.blank)?;
    let loss = ends(&forward, &lengths)?.neg()?;
    let never = loss.gt(-0.5 * NEVER)?;
    let instead = if options.zero_infinity { 0.0 } else { f64::INFINITY };
    let loss = where_(&never, instead, &loss)?;
    let loss = match reduction {
        Reduction::Mean => loss.div(&lengths.maximum(1)?.astype(loss.dtype())?)?,
        _ => loss,
    };
    reduction.of(&loss)?.astype(dtype)
}

/// The forward variables after each entry's last step, `[batch, 2 longest + 1]`, over the labels
/// with blanks between, before and after them.
fn alphas(log_p: &Tensor, labels: &Tensor, steps: &Tensor, blank: i64) -> Result<Tensor> {
    let (time, batch) = (log_p.shape()[0], log_p.shape().dim(1));
    let longest = labels.shape()[1];
    let size = 2 * longest + 1;
    let rows = |columns: usize| Shape::of_dims([batch, columns.into()]);
    let blanks = Tensor::full(blank, rows(longest), DType::I64)?;
    let pairs = stack(&[&blanks, labels], -1)?.reshape(rows(2 * longest))?;
    let states = concat(&[&pairs, &Tensor::full(blank, rows(1), DType::I64)?], 1)?;
    let emitted = log_p.take_along_axis(&states.unsqueeze(0)?, -1)?;
    // A blank between two labels can be skipped unless the labels are equal.
    let front = Tensor::full(blank, rows(size.min(2)), DType::I64)?;
    let before = concat(&[&front, &states.narrow(1, 0, size - size.min(2))?], 1)?;
    let skips = states.ne(blank)?.logical_and(&states.ne(&before)?)?;
    let running = Tensor::iota(Shape::of_dims([time.into(), batch]), 0, DType::I64)?
        .lt(steps)?
        .unsqueeze(-1)?;
    let start = Tensor::iota(rows(size), 1, DType::I64)?.eq(0)?;
    let start = where_(&start, 0.0, NEVER)?.astype(log_p.dtype())?;
    let step = |carry: &[Tensor], parts: &[Tensor]| {
        let alpha = &carry[0];
        let skipped = where_(&carry[1], &moved(alpha, 2)?, NEVER)?;
        let into = plus(&plus(alpha, &moved(alpha, 1)?)?, &skipped)?;
        let next = into.add(&parts[0])?.maximum(NEVER)?;
        Ok((vec![where_(&parts[1], &next, alpha)?, carry[1].clone()], Vec::new()))
    };
    let (mut last, _) =
        scan_with(step, &[start, skips], &[emitted, running], ScanOptions::length(time))?;
    Ok(last.swap_remove(0))
}

/// The log-probability of ending in the last label or in the blank after it.
fn ends(alpha: &Tensor, lengths: &Tensor) -> Result<Tensor> {
    let at = lengths.mul(2)?.unsqueeze(-1)?;
    let pick = |index: &Tensor| alpha.take_along_axis(index, -1)?.squeeze(-1);
    let blank = pick(&at)?;
    let label = pick(&at.sub(1)?.maximum(0)?)?;
    plus(&blank, &where_(&lengths.gt(0)?, &label, NEVER)?)
}

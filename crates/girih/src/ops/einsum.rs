//! Einstein summation of any number of tensors. The subscripts are parsed (`subscripts`), an order
//! of pairwise contractions is chosen (`path`), and the contractions are recorded as permutes,
//! reshapes, matrix products and sums, so that gradients and fusion need no special rules.

mod path;
mod subscripts;

pub use path::{ContractionPath, PathStep};

use crate::{Error, Result, Tensor, precision};
use girih_ir::ops::AxisSet;
use girih_ir::{Attrs, DType, Dim, Op, OpCode, Shape};
use path::Strategy;
use subscripts::{Label, Subscripts};

/// The algorithm that chooses the order of contractions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Optimize {
    /// The optimal order for few operands, the greedy order for many.
    #[default]
    Auto,
    /// The optimal order for up to 16 operands, the greedy order for more.
    Optimal,
    /// The greedy order.
    Greedy,
    /// From left to right.
    No,
}

/// A tensor with one label per axis.
#[derive(Clone)]
struct Labelled {
    tensor: Tensor,
    labels: Vec<Label>,
}

/// The axes that a number of axes stands for in [`Tensor::tensordot`]: the last ones of `a` and the
/// first ones of `b`.
///
/// Errors: [`Error::InvalidArgument`] for a negative number, and for more axes than an operand has.
pub fn tensordot_axes(count: i64, a: &Tensor, b: &Tensor) -> Result<(Vec<i64>, Vec<i64>)> {
    let (left, right) = (a.rank(), b.rank());
    match (0..=left.min(right) as i64).contains(&count) {
        true => Ok(((-count..0).collect(), (0..count).collect())),
        false => Err(Error::InvalidArgument(format!(
            "tensordot: {count} axes cannot be summed, the operands have {left} and {right}"
        ))),
    }
}

/// The letter of an integer label, for operands whose axes are labelled by numbers: letters have the
/// order of the numbers. `None` from 52 on.
pub fn einsum_label(label: u32) -> Option<char> {
    match label {
        0..26 => char::from_u32('A' as u32 + label),
        26..52 => char::from_u32('a' as u32 + label - 26),
        _ => None,
    }
}

/// The sum over all labels that are not in the output, of the products of the operands:
/// `"ij,jk->ik"`. Without an explicit output, the output consists of the labels that occur once,
/// sorted. `...` stands for axes that broadcast. A label that occurs twice in an operand takes its
/// diagonal. Axes of size one broadcast.
///
/// Dtypes: operands are promoted; bool becomes i64, as in matrix products.
///
/// Errors: [`Error::InvalidArgument`] for subscripts that do not parse or fit the operands; a shape
/// error for sizes that differ.
#[track_caller]
pub fn einsum(subscripts: &str, operands: &[&Tensor], optimize: Optimize) -> Result<Tensor> {
    let shapes: Vec<Shape> = operands.iter().map(|t| t.shape()).collect();
    let parsed = Subscripts::parse(subscripts, &shapes)?;
    let path = find(&parsed, &shapes, optimize);
    let mut dtypes = operands.iter().map(|t| t.dtype());
    let dtype = match dtypes.try_fold(DType::Bool, DType::promote)? {
        DType::Bool => crate::default_int(),
        dtype => dtype,
    };
    let mut terms = Vec::with_capacity(operands.len());
    for (tensor, labels) in operands.iter().zip(&parsed.inputs) {
        let term = Labelled { tensor: tensor.astype(dtype)?, labels: labels.clone() };
        terms.push(term.diagonal(&parsed)?);
    }
    for step in &path.steps {
        let mut taken: Vec<Labelled> = Vec::with_capacity(step.operands.len());
        for &position in step.operands.iter().rev() {
            taken.push(terms.remove(position));
        }
        taken.reverse();
        let needed =
            |l: Label| parsed.output.contains(&l) || terms.iter().any(|t| t.labels.contains(&l));
        terms.push(contract(taken, needed)?);
    }
    let last = terms.pop().ok_or_else(|| Error::InvalidArgument("einsum: no operands".into()))?;
    last.summed(|l| parsed.output.contains(&l))?.arranged(&parsed)
}

/// The order of contractions that [`einsum`] uses, with its cost.
///
/// Errors: as [`einsum`].
#[track_caller]
pub fn einsum_path(
    subscripts: &str,
    shapes: &[Shape],
    optimize: Optimize,
) -> Result<ContractionPath> {
    Ok(find(&Subscripts::parse(subscripts, shapes)?, shapes, optimize))
}

fn find(parsed: &Subscripts, shapes: &[Shape], optimize: Optimize) -> ContractionPath {
    let strategy = match optimize {
        Optimize::Auto if shapes.len() <= path::FEW => Strategy::Exact,
        Optimize::Optimal => Strategy::Exact,
        Optimize::Auto | Optimize::Greedy => Strategy::Greedy,
        Optimize::No => Strategy::InOrder,
    };
    path::find(parsed, strategy)
}

/// Executes one step of a path, with one or two operands.
fn contract(taken: Vec<Labelled>, needed: impl Fn(Label) -> bool) -> Result<Labelled> {
    let mut taken = taken.into_iter();
    let first = taken.next().ok_or_else(|| Error::InvalidArgument("einsum: empty step".into()))?;
    let mut product = first;
    for next in taken {
        product = pair(product, next, &needed)?;
    }
    product.summed(&needed)
}

/// The product of two terms, summed over the shared labels that are not needed.
fn pair(a: Labelled, b: Labelled, needed: &impl Fn(Label) -> bool) -> Result<Labelled> {
    // Labels of only one term are summed before the product.
    let a = a.without_ones(&b)?.summed(|l| needed(l) || b.labels.contains(&l))?;
    let b = b.without_ones(&a)?.summed(|l| needed(l) || a.labels.contains(&l))?;
    let shared = |l: &Label| b.labels.contains(l);
    let batch: Vec<Label> = a.labels.iter().copied().filter(|l| shared(l) && needed(*l)).collect();
    let inner: Vec<Label> = a.labels.iter().copied().filter(|l| shared(l) && !needed(*l)).collect();
    let left: Vec<Label> = a.labels.iter().copied().filter(|l| !shared(l)).collect();
    let right: Vec<Label> = b.labels.iter().copied().filter(|l| !a.labels.contains(l)).collect();
    let labels: Vec<Label> = batch.iter().chain(&left).chain(&right).copied().collect();
    let sizes = |t: &Labelled, labels: &[Label]| -> Vec<Dim> {
        labels.iter().map(|&l| t.size(l)).collect()
    };
    let (batch_sizes, inner_sizes) = (sizes(&a, &batch), sizes(&a, &inner));
    let (left_sizes, right_sizes) = (sizes(&a, &left), sizes(&b, &right));
    let product = |sizes: &[Dim]| sizes.iter().copied().product::<Dim>();
    let shape = |parts: &[&[Dim]]| -> Shape { parts.concat().into_iter().collect() };
    let result = shape(&[&batch_sizes, &left_sizes, &right_sizes]);
    let (x, y) = (a.ordered(&[&batch, &left, &inner])?, b.ordered(&[&batch, &inner, &right])?);
    if inner.is_empty() {
        let ones = vec![Dim::from(1); right.len()];
        let x = x.reshape(shape(&[&batch_sizes, &left_sizes, &ones]))?;
        let ones = vec![Dim::from(1); left.len()];
        let y = y.reshape(shape(&[&batch_sizes, &ones, &right_sizes]))?;
        return Ok(Labelled { tensor: x.mul(&y)?, labels });
    }
    let k = product(&inner_sizes);
    let x = x.reshape(shape(&[&batch_sizes, &[product(&left_sizes), k]]))?;
    let y = y.reshape(shape(&[&batch_sizes, &[k, product(&right_sizes)]]))?;
    let dtype = precision::computed_in(OpCode::Matmul, x.dtype());
    let (x, y) = (x.astype(dtype)?, y.astype(dtype)?);
    let out = Tensor::record(OpCode::Matmul.into(), &[&x, &y])?;
    Ok(Labelled { tensor: out.reshape(result)?, labels })
}

impl Labelled {
    fn axis(&self, label: Label) -> Option<usize> {
        self.labels.iter().position(|&l| l == label)
    }

    fn size(&self, label: Label) -> Dim {
        self.axis(label).map_or(1.into(), |axis| self.tensor.shape().dim(axis))
    }

    /// Removes axes of size one where the other term has a larger size, so that they broadcast.
    fn without_ones(self, other: &Labelled) -> Result<Labelled> {
        let meets = |l: Label| other.axis(l).is_some() && !other.size(l).equals(1);
        self.dropped(|t, l| t.size(l) != other.size(l) && t.size(l).equals(1) && meets(l))
    }

    fn dropped(self, which: impl Fn(&Labelled, Label) -> bool) -> Result<Labelled> {
        let kept: Vec<Label> = self.labels.iter().copied().filter(|&l| !which(&self, l)).collect();
        if kept.len() == self.labels.len() {
            return Ok(self);
        }
        let shape: Shape = kept.iter().map(|&l| self.size(l)).collect();
        Ok(Labelled { tensor: self.tensor.reshape(shape)?, labels: kept })
    }

    /// Sums over the labels that are not needed, in the tensor's dtype.
    fn summed(self, needed: impl Fn(Label) -> bool) -> Result<Labelled> {
        let axes: AxisSet = (0..self.labels.len()).filter(|&i| !needed(self.labels[i])).collect();
        if axes.is_empty() {
            return Ok(self);
        }
        let op = Op::new(OpCode::ReduceSum, Attrs::axes(axes, false));
        let tensor = Tensor::record(op, &[&self.tensor])?;
        let labels = self.labels.iter().copied().filter(|&l| needed(l)).collect();
        Ok(Labelled { tensor, labels })
    }

    /// The tensor with its axes in the order of `labels`.
    fn ordered(&self, labels: &[&[Label]]) -> Result<Tensor> {
        let order: Vec<i64> =
            labels.concat().iter().filter_map(|&l| self.axis(l)).map(|a| a as i64).collect();
        match order.iter().enumerate().all(|(i, &a)| i as i64 == a) {
            true => Ok(self.tensor.clone()),
            false => self.tensor.permute(&order),
        }
    }

    /// Takes the diagonal of axes with the same label: every `n + 1`-th element of the flattened
    /// square.
    fn diagonal(self, parsed: &Subscripts) -> Result<Labelled> {
        let mut term = self;
        loop {
            let twice = |&(i, l): &(usize, &Label)| term.labels[..i].contains(l);
            let Some((second, &label)) = term.labels.iter().enumerate().find(twice) else {
                return Ok(term);
            };
            let first = term.axis(label).unwrap_or(0);
            let shape = term.tensor.shape();
            let n = parsed.size(label).get();
            // If the sizes are 1 and `n`, keep the axis of size `n`, since the other axis
            // broadcasts.
            if shape[first] != shape[second] || shape[first] == 1 {
                let single = if shape[first] == 1 { first } else { second };
                term.tensor = term.tensor.squeeze(single as i64)?;
                term.labels.remove(single);
                continue;
            }
            let rest = (0..shape.rank()).filter(|&a| a != first && a != second);
            let order: Vec<i64> = rest.clone().chain([first, second]).map(|a| a as i64).collect();
            let sizes: Vec<usize> = rest.clone().map(|a| shape[a]).collect();
            let flat = term.tensor.permute(&order)?;
            let flat = flat.reshape(sizes.iter().copied().chain([n * n]).collect::<Shape>())?;
            let lead =
                sizes.iter().map(|&size| girih_ir::ops::SliceDim { start: 0, size, step: 1 });
            let along = girih_ir::ops::SliceDim { start: 0, size: n, step: n + 1 };
            let tensor = flat.slice_dims(lead.chain([along]).collect())?;
            let labels = rest.map(|a| term.labels[a]).chain([label]).collect();
            term = Labelled { tensor, labels };
        }
    }

    /// The result, with its axes in the order of the output.
    fn arranged(self, parsed: &Subscripts) -> Result<Tensor> {
        let tensor = self.ordered(&[&parsed.output])?;
        let shape: Shape = parsed.output.iter().map(|&l| parsed.size(l)).collect();
        match tensor.shape() == shape {
            true => Ok(tensor),
            // Labels whose axes all have size one in this term must be broadcast.
            false => tensor.broadcast_to(shape),
        }
    }
}

#[track_caller]
fn mismatch(op: &'static str, a: &Tensor, b: &Tensor, reason: String) -> Error {
    girih_ir::Error::ShapeMismatch { op, lhs: a.shape(), rhs: b.shape(), reason }.into()
}

impl Tensor {
    /// The sum of products over pairs of axes of both tensors. The result has the other axes of
    /// this tensor, then those of the other tensor.
    ///
    /// Errors: [`Error::InvalidArgument`] unless both lists of axes have the same length; a shape
    /// error for sizes that differ; an axis error for duplicate axes.
    #[track_caller]
    pub fn tensordot(&self, other: &Tensor, axes: (&[i64], &[i64])) -> Result<Tensor> {
        let op = "tensordot";
        if axes.0.len() != axes.1.len() {
            return Err(Error::InvalidArgument(format!(
                "{op}: {} axes of the first cannot be paired with {} of the second",
                axes.0.len(),
                axes.1.len()
            )));
        }
        let mut labels: (Vec<Label>, Vec<Label>) = (Vec::new(), Vec::new());
        let ranks = (self.rank(), other.rank());
        labels.0.extend(0..ranks.0 as Label);
        labels.1.extend((0..ranks.1).map(|i| (ranks.0 + i) as Label));
        for (&i, &j) in axes.0.iter().zip(axes.1) {
            let i = girih_ir::shape::normalize_axis(op, i, ranks.0)?;
            let j = girih_ir::shape::normalize_axis(op, j, ranks.1)?;
            let (a, b) = (self.shape()[i], other.shape()[j]);
            if a != b {
                return Err(mismatch(
                    op,
                    self,
                    other,
                    format!("axis {i} has {a}, axis {j} has {b}"),
                ));
            }
            let met = labels.1.iter().filter(|&&l| l == i as Label).count();
            if met > 0 || (labels.1[j] as usize) < ranks.0 {
                return Err(girih_ir::Error::DuplicateAxis { op, axis: i }.into());
            }
            labels.1[j] = i as Label;
        }
        let free: Vec<Label> = labels.0.iter().copied().filter(|l| !labels.1.contains(l)).collect();
        let rest: Vec<Label> =
            labels.1.iter().copied().filter(|&l| l as usize >= ranks.0).collect();
        let kept: Vec<Label> = free.into_iter().chain(rest).collect();
        let dtype = match self.dtype().promote(other.dtype())? {
            DType::Bool => crate::default_int(),
            dtype => dtype,
        };
        let a = Labelled { tensor: self.astype(dtype)?, labels: labels.0 };
        let b = Labelled { tensor: other.astype(dtype)?, labels: labels.1 };
        pair_exact(a, b, &kept)
    }

    /// The outer product of the flattened tensors: `[n] [m] -> [n, m]`.
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        self.reshape([-1, 1])?.mul(&other.reshape([1, -1])?)
    }

    /// The sum of products over the last axes of both tensors; the product if one is a scalar.
    ///
    /// Errors: a shape error for last axes of different sizes.
    #[track_caller]
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 || other.rank() == 0 {
            return self.mul(other);
        }
        self.tensordot(other, (&[-1], &[-1]))
    }

    /// NumPy's dot: the inner product of vectors, or the matrix product; for more axes, the sum
    /// over the last axis of this tensor and the second-last of the other.
    ///
    /// Errors: a shape error for sizes that differ.
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Result<Tensor> {
        match (self.rank(), other.rank()) {
            (0, _) | (_, 0) => self.mul(other),
            (_, 1) => self.tensordot(other, (&[-1], &[-1])),
            _ => self.tensordot(other, (&[-1], &[-2])),
        }
    }

    /// The sum of products along an axis, which counts from the end if negative; the other axes
    /// broadcast. The first operand is conjugated, as in the inner product of complex vectors.
    ///
    /// Errors: a shape error for sizes that differ along the axis, or that do not broadcast.
    #[track_caller]
    pub fn vecdot(&self, other: &Tensor, axis: i64) -> Result<Tensor> {
        let op = "vecdot";
        let last = |x: &Tensor| -> Result<Tensor> {
            let at = girih_ir::shape::normalize_axis(op, axis, x.rank())? as i64;
            let mut order: Vec<i64> = (0..x.rank() as i64).filter(|&a| a != at).collect();
            order.push(at);
            x.permute(&order)
        };
        let (a, b) = (last(&self.conj()?)?, last(other)?);
        let sizes = [&a, &b].map(|x| x.shape().last().copied());
        if sizes[0] != sizes[1] {
            let reason = format!("axis {axis} must have one size");
            return Err(mismatch(op, self, other, reason));
        }
        einsum("...i,...i->...", &[&a, &b], Optimize::No)
    }

    /// The sum of products of all elements of the flattened tensors; the first operand is
    /// conjugated.
    ///
    /// Errors: a shape error for different numbers of elements.
    #[track_caller]
    pub fn vdot(&self, other: &Tensor) -> Result<Tensor> {
        if self.numel() != other.numel() {
            let reason = "both must have as many elements".into();
            return Err(mismatch("vdot", self, other, reason));
        }
        self.conj()?.reshape(-1)?.tensordot(&other.reshape(-1)?, (&[0], &[0]))
    }

    /// The Kronecker product: one block of the other tensor per element of this tensor. Missing
    /// leading axes have size one.
    #[track_caller]
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(other.rank());
        let (mut a, mut b, mut out) = (Vec::new(), Vec::new(), Vec::new());
        let (left, right) = (self.shape(), other.shape());
        for i in 0..rank {
            let size = |s: &Shape| match (i + s.rank()).checked_sub(rank) {
                Some(axis) => s[axis] as i64,
                None => 1,
            };
            let (n, m) = (size(&left), size(&right));
            a.extend([n, 1]);
            b.extend([1, m]);
            out.push(n * m);
        }
        if rank * 2 > girih_ir::MAX_RANK {
            // The product has two axes per axis of the result, which must not exceed the maximum
            // rank.
            let reason = format!("at most {} axes", girih_ir::MAX_RANK / 2);
            return Err(mismatch("kron", self, other, reason));
        }
        self.reshape(&a)?.mul(&other.reshape(&b)?)?.reshape(&out)
    }
}

/// Contracts two terms whose axes of size one do not broadcast.
fn pair_exact(a: Labelled, b: Labelled, kept: &[Label]) -> Result<Tensor> {
    let out = pair(a, b, &|l| kept.contains(&l))?;
    out.summed(|l| kept.contains(&l))?.ordered(&[kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_axes_stands_for_the_last_and_the_first_ones() {
        let of = |shape: &[usize]| Tensor::ones(shape.to_vec(), DType::F32).unwrap();
        let (a, b) = (of(&[2, 3, 4]), of(&[3, 4]));
        assert_eq!(tensordot_axes(2, &a, &b), Ok((vec![-2, -1], vec![0, 1])));
        assert_eq!(tensordot_axes(0, &a, &b), Ok((vec![], vec![])));
        assert!(tensordot_axes(3, &a, &b).is_err() && tensordot_axes(-1, &a, &b).is_err());
    }

    #[test]
    fn labels_are_letters_in_the_order_of_their_numbers() {
        let letters: String = (0..52).filter_map(einsum_label).collect();
        assert!(letters.starts_with("ABC") && letters.ends_with("xyz") && letters.len() == 52);
        assert!(letters.chars().is_sorted());
        assert_eq!(einsum_label(52), None);
    }
}

//! Optimisers that treat a parameter as a matrix: Muon and Adafactor.

use super::rule::{Rule, Scalars, State, kept, optimizer, ratio};
use crate::linalg::matrix_transpose;
use crate::{DType, Error, Result, Tensor, keepdims};

/// The factor of [`Muon`]'s rate for a matrix of `m` rows and `n` columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MuonRate {
    /// `sqrt(max(1, m / n))`.
    #[default]
    Original,
    /// `0.2 sqrt(max(m, n))`, for rates as in AdamW.
    MatchRmsAdamW,
    /// `sqrt(m / n)`.
    SpectralUnclamped,
}

impl MuonRate {
    fn factor(self, rows: usize, columns: usize) -> f64 {
        let share = rows as f64 / columns.max(1) as f64;
        match self {
            MuonRate::Original => share.max(1.0).sqrt(),
            MuonRate::MatchRmsAdamW => 0.2 * (rows.max(columns) as f64).sqrt(),
            MuonRate::SpectralUnclamped => share.sqrt(),
        }
    }
}

optimizer! {
    /// Momentum, orthogonalised by Newton-Schulz iterations to the nearest matrix with orthonormal
    /// rows or columns. It is for the weights of hidden layers; a convolution kernel is treated as
    /// the matrix `[out, in * window]`.
    ///
    /// Source: Jordan et al. 2024; Liu et al. 2025 for [`MuonRate::MatchRmsAdamW`]; in PyTorch's
    /// form, but computed in f32 where PyTorch rounds to bf16.
    Muon {
        /// The fraction of the parameter that is subtracted, times the rate.
        weight_decay: f64 = 0.1,
        /// The decay of the velocity.
        momentum: f64 = 0.95,
        /// Whether to use Nesterov momentum.
        nesterov: bool = true,
        /// The coefficients of the iteration's polynomial, of degree 1, 3 and 5.
        ns_coefficients: (f64, f64, f64) = (3.4445, -4.775, 2.0315),
        /// The lower bound of the norm by which the matrix is divided.
        eps: f64 = 1e-7,
        /// The number of iterations, 1 to 99.
        ns_steps: usize = 5,
        /// The factor of the rate.
        adjust_lr: MuonRate = MuonRate::Original,
    }
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
    (0.0..=1.0).contains(momentum) => "momentum must be in [0, 1], got {momentum}",
    *eps >= 0.0 => "eps must not be negative, got {eps}",
    (1..100).contains(ns_steps) => "ns_steps must be from 1 to 99, got {ns_steps}",
}

impl Muon {
    /// Iterates on the smaller side of a matrix.
    fn orthogonal(&self, x: &Tensor, is_tall: bool) -> Result<Tensor> {
        let (a, b, c) = self.ns_coefficients;
        let turned = |x: &Tensor| if is_tall { matrix_transpose(x) } else { Ok(x.clone()) };
        let mut x = turned(x)?;
        let norm = norm(&x)?;
        x = match self.eps > 0.0 {
            true => x.div(&norm.maximum(self.eps)?)?,
            false => ratio(&x, &norm, 0.0)?,
        };
        for _ in 0..self.ns_steps {
            let gram = x.matmul(&matrix_transpose(&x)?)?;
            let weights = gram.mul(b)?.add(&gram.matmul(&gram)?.mul(c)?)?;
            x = x.mul(a)?.add(&weights.matmul(&x)?)?;
        }
        turned(&x)
    }
}

impl Rule for Muon {
    kept!(Muon);

    fn slots(&self) -> usize {
        1
    }

    fn initial(&self, _: usize, p: &Tensor, dtype: DType) -> Result<Tensor> {
        if p.shape().len() < 2 {
            return Err(Error::InvalidArgument(format!(
                "Muon: a parameter of shape {:?} is no matrix; give it to another optimiser",
                p.shape()
            )));
        }
        Tensor::zeros(p.shape(), dtype)
    }

    fn scalars(&self, _: &Tensor, rate: &Tensor, _: &[Tensor]) -> Result<(Scalars, Vec<Tensor>)> {
        let keep = 1.0 - rate.mul(self.weight_decay)?;
        Ok((vec![rate.clone(), keep], Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let mixed = |old: &Tensor| old.mul(self.momentum)?.add(&g.mul(1.0 - self.momentum)?);
        let velocity = mixed(slots[0])?;
        let step = if self.nesterov { mixed(&velocity)? } else { velocity.clone() };
        let shape = p.shape();
        let (rows, columns) = (shape[0], shape[1..].iter().product());
        let step = self.orthogonal(&step.reshape((rows, columns))?, rows > columns)?;
        let step = step.reshape(&shape[..])?.mul(self.adjust_lr.factor(rows, columns))?;
        Ok(vec![p.mul(&scalars[1])?.sub(&scalars[0].mul(&step)?)?, velocity])
    }
}

optimizer! {
    /// Adam without momentum that stores the mean squares of a matrix as a row and a column.
    ///
    /// The state of a matrix `[..., m, n]` has `m + n` numbers instead of `m n`. The step is relative
    /// to the size of the parameter, and bounded by the learning rate.
    ///
    /// Source: Shazeer and Stern 2018, in PyTorch's form.
    Adafactor {
        /// The exponent of the step count that gives the weight of new squares, not positive.
        beta2_decay: f64 = -0.8,
        /// The first number (by default the precision of the dtype), squared, is the lower bound of
        /// squares; the second is the lower bound of the size of a parameter.
        eps: (Option<f64>, f64) = (None, 1e-3),
        /// The bound of the root mean square of a step before the rate.
        d: f64 = 1.0,
        /// The fraction of the parameter that is subtracted, times the rate.
        weight_decay: f64 = 0.0,
    }
    *beta2_decay <= 0.0 => "beta2_decay must not be positive, got {beta2_decay}",
    eps.0.is_none_or(|eps| eps >= 0.0) && eps.1 >= 0.0 => "eps must not be negative, got {eps:?}",
    *d >= 1.0 => "d must be at least 1, got {d}",
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
}

/// Adafactor's slots of a parameter.
const ROW: usize = 0;

impl Rule for Adafactor {
    kept!(Adafactor);

    fn slots(&self) -> usize {
        2
    }

    fn initial(&self, slot: usize, p: &Tensor, dtype: DType) -> Result<Tensor> {
        let mut shape = p.shape().to_vec();
        match shape.len() {
            // A vector stores all mean squares, in the row.
            0 | 1 if slot != ROW => shape.clear(),
            0 | 1 => {}
            rank => shape[rank - if slot == ROW { 1 } else { 2 }] = 1,
        }
        Tensor::zeros(shape, dtype)
    }

    fn scalars(
        &self,
        count: &Tensor,
        rate: &Tensor,
        _: &[Tensor],
    ) -> Result<(Scalars, Vec<Tensor>)> {
        let steps = count.add(1)?;
        let share = steps.pow(self.beta2_decay)?;
        let bounded = rate.minimum(&steps.pow(-0.5)?)?;
        Ok((vec![share, bounded, 1.0 - rate.mul(self.weight_decay)?], Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let smallest = self.eps.0.unwrap_or(match p.dtype() {
            DType::F64 => f64::EPSILON,
            _ => f32::EPSILON.into(),
        });
        let [share, rate, keep] = scalars else { unreachable!("three scalars") };
        let root = (p.numel().max(1) as f64).sqrt();
        let rate = rate.mul(&norm(p)?.div(root)?.maximum(self.eps.1)?)?;
        let squares = g.mul(g)?;
        let toward = |old: &Tensor, new: &Tensor| old.add(&share.mul(&new.sub(old)?)?);
        let (row, column, squares) = if p.shape().len() > 1 {
            let row = toward(slots[0], &squares.mean(keepdims(-1))?)?;
            let column = toward(slots[1], &squares.mean(keepdims(-2))?)?;
            let whole = row.mean(keepdims(-2))?.maximum(smallest)?;
            let squares = ratio(&row.mul(&column)?, &whole, 0.0)?;
            (row, column, squares)
        } else {
            let row = toward(slots[0], &squares)?;
            (row.clone(), slots[1].clone(), row)
        };
        let step = match smallest * smallest > 0.0 {
            true => g.mul(&squares.maximum(smallest * smallest)?.rsqrt()?)?,
            false => ratio(g, &squares.sqrt()?, 0.0)?,
        };
        let bounded = norm(&step)?.div(root * self.d)?.maximum(1.0)?;
        let new = p.mul(keep)?.sub(&rate.div(&bounded)?.mul(&step)?)?;
        Ok(vec![new, row, column])
    }
}

fn norm(x: &Tensor) -> Result<Tensor> {
    x.mul(x)?.sum_all()?.sqrt()
}

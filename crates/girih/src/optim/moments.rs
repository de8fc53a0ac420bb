//! Adam and its variants: running means of the gradients and of their squares.

use super::rule::{Rule, Scalars, State, decayed, is_decay, kept, mean, optimizer, ratio};
use crate::{DType, Result, Tensor, where_};

/// A number to the power of a tensor, in f64.
fn power(base: f64, exponent: &Tensor) -> Result<Tensor> {
    Tensor::full(base, [], DType::F64)?.pow(exponent)
}

/// The divisors that correct the bias of means that start at zero.
fn corrections(betas: (f64, f64), count: &Tensor) -> Result<(Tensor, Tensor)> {
    let steps = count.add(1)?;
    Ok((1.0 - power(betas.0, &steps)?, 1.0 - power(betas.1, &steps)?))
}

/// The new means of the gradient and of its square.
fn means(betas: (f64, f64), g: &Tensor, slots: &[&Tensor]) -> Result<(Tensor, Tensor)> {
    Ok((mean(betas.0, slots[0], g)?, mean(betas.1, slots[1], &g.mul(g)?)?))
}

/// The rate over the correction of the mean, and the factor of the root of the mean of squares.
fn corrected(betas: (f64, f64), count: &Tensor, rate: &Tensor) -> Result<Scalars> {
    let (first, second) = corrections(betas, count)?;
    Ok(vec![rate.div(&first)?, second.rsqrt()?])
}

/// Adam's step from a parameter, of which decoupled weight decay has been subtracted.
fn adam(
    (betas, eps): ((f64, f64), f64),
    p: &Tensor,
    g: &Tensor,
    slots: &[&Tensor],
    scalars: &[Tensor],
) -> Result<Vec<Tensor>> {
    let (m, v) = means(betas, g, slots)?;
    let largest = slots.get(2).map(|largest| largest.maximum(&v)).transpose()?;
    let root = largest.as_ref().unwrap_or(&v).sqrt()?.mul(&scalars[1])?;
    let new = p.sub(&ratio(&scalars[0].mul(&m)?, &root, eps)?)?;
    Ok([new, m, v].into_iter().chain(largest).collect())
}

optimizer! {
    /// Adaptive moments.
    ///
    /// Source: Kingma and Ba 2015, algorithm 1; Reddi et al. 2018 for `amsgrad`, in PyTorch's form.
    Adam {
        /// The decays of the means of the gradient and of its square.
        betas: (f64, f64) = (0.9, 0.999),
        /// A number added to the denominator, not negative. With 0, an element without a gradient so
        /// far does not move.
        eps: f64 = 1e-8,
        /// The multiple of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
        /// Whether to use the maximum of the mean of squares so far.
        amsgrad: bool = false,
    }
    is_decay(betas.0) && is_decay(betas.1) => "betas must be in [0, 1), got {betas:?}",
    *eps >= 0.0 => "eps must not be negative, got {eps}",
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
}

impl Rule for Adam {
    kept!(Adam);

    fn slots(&self) -> usize {
        if self.amsgrad { 3 } else { 2 }
    }

    fn scalars(
        &self,
        count: &Tensor,
        rate: &Tensor,
        _: &[Tensor],
    ) -> Result<(Scalars, Vec<Tensor>)> {
        Ok((corrected(self.betas, count, rate)?, Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let g = decayed(p, g, self.weight_decay)?;
        adam((self.betas, self.eps), p, &g, slots, scalars)
    }
}

optimizer! {
    /// Adam with decoupled weight decay: `p -= lr weight_decay p` beside Adam's step.
    ///
    /// Source: Loshchilov and Hutter 2019, algorithm 2 (the schedule multiplier is in the rate).
    AdamW {
        /// The decays of the means of the gradient and of its square.
        betas: (f64, f64) = (0.9, 0.999),
        /// A number added to the denominator, not negative. With 0, an element without a gradient so
        /// far does not move.
        eps: f64 = 1e-8,
        /// The fraction of the parameter that is subtracted, times the rate.
        weight_decay: f64 = 0.01,
        /// Whether to use the maximum of the mean of squares so far.
        amsgrad: bool = false,
    }
    is_decay(betas.0) && is_decay(betas.1) => "betas must be in [0, 1), got {betas:?}",
    *eps >= 0.0 => "eps must not be negative, got {eps}",
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
}

impl Rule for AdamW {
    kept!(AdamW);

    fn slots(&self) -> usize {
        if self.amsgrad { 3 } else { 2 }
    }

    fn scalars(
        &self,
        count: &Tensor,
        rate: &Tensor,
        _: &[Tensor],
    ) -> Result<(Scalars, Vec<Tensor>)> {
        let mut scalars = corrected(self.betas, count, rate)?;
        scalars.push(1.0 - rate.mul(self.weight_decay)?);
        Ok((scalars, Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        adam((self.betas, self.eps), &p.mul(&scalars[2])?, g, slots, scalars)
    }
}

optimizer! {
    /// Adam with a decayed maximum of gradients in place of the mean of squares.
    ///
    /// Source: Kingma and Ba 2015, algorithm 2, in PyTorch's form (`eps` inside the maximum).
    Adamax {
        /// The decays of the mean of the gradient and of its maximum.
        betas: (f64, f64) = (0.9, 0.999),
        /// A number added to the absolute value of the gradient, not negative.
        eps: f64 = 1e-8,
        /// The multiple of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
    }
    is_decay(betas.0) && is_decay(betas.1) => "betas must be in [0, 1), got {betas:?}",
    *eps >= 0.0 => "eps must not be negative, got {eps}",
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
}

impl Rule for Adamax {
    kept!(Adamax);

    fn slots(&self) -> usize {
        2
    }

    fn scalars(
        &self,
        count: &Tensor,
        rate: &Tensor,
        _: &[Tensor],
    ) -> Result<(Scalars, Vec<Tensor>)> {
        Ok((vec![rate.div(&corrections(self.betas, count)?.0)?], Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let g = decayed(p, g, self.weight_decay)?;
        let m = mean(self.betas.0, slots[0], &g)?;
        let u = slots[1].mul(self.betas.1)?.maximum(&g.abs()?.add(self.eps)?)?;
        let scaled = scalars[0].mul(&m)?;
        let step = if self.eps > 0.0 { scaled.div(&u)? } else { ratio(&scaled, &u, 0.0)? };
        Ok(vec![p.sub(&step)?, m, u])
    }
}

optimizer! {
    /// Adam with Nesterov momentum.
    ///
    /// Source: Dozat 2016, in PyTorch's form, with its schedule of the momentum.
    NAdam {
        /// The decays of the means of the gradient and of its square.
        betas: (f64, f64) = (0.9, 0.999),
        /// A number added to the denominator, not negative. With 0, an element without a gradient so
        /// far does not move.
        eps: f64 = 1e-8,
        /// The multiple of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
        /// The decay of the momentum.
        momentum_decay: f64 = 4e-3,
    }
    is_decay(betas.0) && is_decay(betas.1) => "betas must be in [0, 1), got {betas:?}",
    *eps >= 0.0 => "eps must not be negative, got {eps}",
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
    *momentum_decay >= 0.0 => "momentum_decay must not be negative, got {momentum_decay}",
}

impl Rule for NAdam {
    kept!(NAdam);

    fn slots(&self) -> usize {
        2
    }

    /// The product of the momenta so far.
    fn globals(&self) -> Result<Vec<Tensor>> {
        Ok(vec![Tensor::ones([], DType::F64)?])
    }

    fn scalars(
        &self,
        count: &Tensor,
        rate: &Tensor,
        globals: &[Tensor],
    ) -> Result<(Scalars, Vec<Tensor>)> {
        let mu = |step: Tensor| -> Result<Tensor> {
            let decay = power(0.96, &step.mul(self.momentum_decay)?)?;
            Ok((1.0 - decay.mul(0.5)?) * self.betas.0)
        };
        let (now, ahead) = (mu(count.add(1)?)?, mu(count.add(2)?)?);
        let product = globals[0].mul(&now)?;
        let gradient = rate.mul(&(1.0 - &now))?.div(&(1.0 - &product))?;
        let mean = rate.mul(&ahead)?.div(&(1.0 - product.mul(&ahead)?))?;
        let scale = corrections(self.betas, count)?.1.rsqrt()?;
        Ok((vec![gradient, mean, scale], vec![product]))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let g = decayed(p, g, self.weight_decay)?;
        let (m, v) = means(self.betas, &g, slots)?;
        let step = scalars[0].mul(&g)?.add(&scalars[1].mul(&m)?)?;
        let step = ratio(&step, &v.sqrt()?.mul(&scalars[2])?, self.eps)?;
        Ok(vec![p.sub(&step)?, m, v])
    }
}

optimizer! {
    /// Adam with a rectified adaptive rate, which starts when the variance of the squares is known.
    ///
    /// Source: Liu et al. 2020, algorithm 2, in PyTorch's form.
    RAdam {
        /// The decays of the means of the gradient and of its square.
        betas: (f64, f64) = (0.9, 0.999),
        /// A number added to the denominator, not negative. With 0, an element without a gradient so
        /// far does not move.
        eps: f64 = 1e-8,
        /// The multiple of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
    }
    is_decay(betas.0) && is_decay(betas.1) => "betas must be in [0, 1), got {betas:?}",
    *eps >= 0.0 => "eps must not be negative, got {eps}",
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
}

impl Rule for RAdam {
    kept!(RAdam);

    fn slots(&self) -> usize {
        2
    }

    fn scalars(
        &self,
        count: &Tensor,
        rate: &Tensor,
        _: &[Tensor],
    ) -> Result<(Scalars, Vec<Tensor>)> {
        let (first, second) = corrections(self.betas, count)?;
        let limit = 2.0 / (1.0 - self.betas.1) - 1.0;
        let passed = count.add(1)?.mul(2.0)?;
        let length = limit - passed.mul(&(1.0 - &second))?.div(&second)?;
        let known = length.gt(5.0)?;
        let over = where_(&known, &length, 6.0)?;
        let rectified = over.sub(4.0)?.mul(&over.sub(2.0)?)?.mul(limit)?;
        let rectified = rectified.div(&over.mul((limit - 4.0) * (limit - 2.0))?)?;
        let (none, scaled) = (rate.mul(0.0)?, rate.div(&first)?);
        let plain = where_(&known, &none, &scaled)?;
        let adaptive = scaled.mul(&rectified.mul(&second)?.sqrt()?)?;
        Ok((vec![plain, where_(&known, &adaptive, &none)?], Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let (m, v) = means(self.betas, &decayed(p, g, self.weight_decay)?, slots)?;
        let rate = scalars[0].add(&ratio(&scalars[1], &v.sqrt()?, self.eps)?)?;
        Ok(vec![p.sub(&rate.mul(&m)?)?, m, v])
    }
}

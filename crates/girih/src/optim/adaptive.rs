//! Optimisers with a learning rate per element, from squares or signs of gradients.

use super::rule::{Rule, Scalars, State, decayed, is_decay, kept, mean, optimizer, ratio};
use crate::{DType, Result, Tensor, where_};

optimizer! {
    /// Divides gradients by the root of a running mean of their squares.
    ///
    /// Source: Hinton 2012, lecture 6e; Graves 2013 for `centered`; in PyTorch's form.
    RmsProp {
        /// The decay of the mean of squares.
        alpha: f64 = 0.99,
        /// A number added to the denominator, not negative. With 0, an element without a gradient so
        /// far does not move.
        eps: f64 = 1e-8,
        /// The multiple of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
        /// The decay of the velocity; 0 for no velocity.
        momentum: f64 = 0.0,
        /// Whether to divide by the standard deviation of the gradient instead.
        centered: bool = false,
    }
    is_decay(*alpha) => "alpha must be in [0, 1), got {alpha}",
    *eps >= 0.0 => "eps must not be negative, got {eps}",
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
    *momentum >= 0.0 => "momentum must not be negative, got {momentum}",
}

impl Rule for RmsProp {
    kept!(RmsProp);

    fn slots(&self) -> usize {
        1 + usize::from(self.centered) + usize::from(self.momentum != 0.0)
    }

    fn scalars(&self, _: &Tensor, rate: &Tensor, _: &[Tensor]) -> Result<(Scalars, Vec<Tensor>)> {
        Ok((vec![rate.clone()], Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let g = decayed(p, g, self.weight_decay)?;
        let mut square = mean(self.alpha, slots[0], &g.mul(&g)?)?;
        let mut kept = vec![square.clone()];
        if self.centered {
            let mean = mean(self.alpha, slots[1], &g)?;
            // The difference of the rounded means may be a little below zero.
            square = square.sub(&mean.mul(&mean)?)?.maximum(0.0)?;
            kept.push(mean);
        }
        let mut step = ratio(&g, &square.sqrt()?, self.eps)?;
        if self.momentum != 0.0 {
            step = slots[kept.len()].mul(self.momentum)?.add(&step)?;
            kept.push(step.clone());
        }
        kept.insert(0, p.sub(&scalars[0].mul(&step)?)?);
        Ok(kept)
    }
}

optimizer! {
    /// Divides gradients by the root of the sum of their squares.
    ///
    /// Source: Duchi et al. 2011, in PyTorch's form.
    Adagrad {
        /// The rate of step `t` (from 0) is divided by `1 + t lr_decay`.
        lr_decay: f64 = 0.0,
        /// The multiple of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
        /// The initial value of the sums.
        initial_accumulator_value: f64 = 0.0,
        /// A number added to the denominator, not negative. With 0, an element without a gradient so
        /// far does not move.
        eps: f64 = 1e-10,
    }
    *lr_decay >= 0.0 => "lr_decay must not be negative, got {lr_decay}",
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
    *initial_accumulator_value >= 0.0 =>
        "initial_accumulator_value must not be negative, got {initial_accumulator_value}",
    *eps >= 0.0 => "eps must not be negative, got {eps}",
}

impl Rule for Adagrad {
    kept!(Adagrad);

    fn slots(&self) -> usize {
        1
    }

    fn initial(&self, _: usize, p: &Tensor, dtype: DType) -> Result<Tensor> {
        Tensor::full(self.initial_accumulator_value, p.shape(), dtype)
    }

    fn scalars(
        &self,
        count: &Tensor,
        rate: &Tensor,
        _: &[Tensor],
    ) -> Result<(Scalars, Vec<Tensor>)> {
        let rate = match self.lr_decay {
            0.0 => rate.clone(),
            decay => rate.div(&count.mul(decay)?.add(1.0)?)?,
        };
        Ok((vec![rate], Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let g = decayed(p, g, self.weight_decay)?;
        let total = slots[0].add(&g.mul(&g)?)?;
        let step = ratio(&g, &total.sqrt()?, self.eps)?;
        Ok(vec![p.sub(&scalars[0].mul(&step)?)?, total])
    }
}

optimizer! {
    /// Scales gradients by the ratio of the root mean squares of past steps and past gradients.
    ///
    /// Source: Zeiler 2012, algorithm 1, with a rate as in PyTorch.
    Adadelta {
        /// The decay of both means.
        rho: f64 = 0.9,
        /// A number added to numerator and denominator, not negative. With 0, no element moves.
        eps: f64 = 1e-6,
        /// The multiple of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
    }
    (0.0..=1.0).contains(rho) => "rho must be in [0, 1], got {rho}",
    *eps >= 0.0 => "eps must not be negative, got {eps}",
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
}

impl Rule for Adadelta {
    kept!(Adadelta);

    fn slots(&self) -> usize {
        2
    }

    fn scalars(&self, _: &Tensor, rate: &Tensor, _: &[Tensor]) -> Result<(Scalars, Vec<Tensor>)> {
        Ok((vec![rate.clone()], Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let g = decayed(p, g, self.weight_decay)?;
        let v = mean(self.rho, slots[0], &g.mul(&g)?)?;
        let above = slots[1].add(self.eps)?.sqrt()?;
        let below = v.add(self.eps)?.sqrt()?;
        let scale = if self.eps > 0.0 { above.div(&below)? } else { ratio(&above, &below, 0.0)? };
        let step = scale.mul(&g)?;
        let delta = mean(self.rho, slots[1], &step.mul(&step)?)?;
        Ok(vec![p.sub(&scalars[0].mul(&step)?)?, v, delta])
    }
}

optimizer! {
    /// Steps of equal size by the sign of the mean gradient, with decoupled weight decay. Its rate is
    /// a third to a tenth of Adam's.
    ///
    /// Source: Chen et al. 2023, algorithm 2.
    Lion {
        /// The decays of the mean that gives the sign, and of the mean in the state.
        betas: (f64, f64) = (0.9, 0.99),
        /// The fraction of the parameter that is subtracted, times the rate.
        weight_decay: f64 = 0.0,
    }
    is_decay(betas.0) && is_decay(betas.1) => "betas must be in [0, 1), got {betas:?}",
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
}

impl Rule for Lion {
    kept!(Lion);

    fn slots(&self) -> usize {
        1
    }

    fn scalars(&self, _: &Tensor, rate: &Tensor, _: &[Tensor]) -> Result<(Scalars, Vec<Tensor>)> {
        Ok((vec![rate.clone(), 1.0 - rate.mul(self.weight_decay)?], Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let step = mean(self.betas.0, slots[0], g)?.sign()?;
        let new = p.mul(&scalars[1])?.sub(&scalars[0].mul(&step)?)?;
        Ok(vec![new, mean(self.betas.1, slots[0], g)?])
    }
}

optimizer! {
    /// Steps by the signs of gradients, for full batches; each element has its own step size, which
    /// starts at the learning rate. A step size grows while the sign of the gradient stays the same.
    /// If the sign changes, the step size shrinks and the element is not updated.
    ///
    /// Source: Riedmiller and Braun 1993, in PyTorch's form.
    Rprop {
        /// The factors by which step sizes shrink and grow.
        etas: (f64, f64) = (0.5, 1.2),
        /// The smallest and the largest step size.
        step_sizes: (f64, f64) = (1e-6, 50.0),
    }
    0.0 < etas.0 && etas.0 < 1.0 && 1.0 < etas.1 =>
        "etas must be below and above 1, got {etas:?}",
    0.0 < step_sizes.0 && step_sizes.0 <= step_sizes.1 =>
        "step_sizes must ascend from above 0, got {step_sizes:?}",
}

impl Rule for Rprop {
    kept!(Rprop);

    fn slots(&self) -> usize {
        2
    }

    fn scalars(
        &self,
        count: &Tensor,
        rate: &Tensor,
        _: &[Tensor],
    ) -> Result<(Scalars, Vec<Tensor>)> {
        // Step sizes are zero before the first step, which adds the rate.
        Ok((vec![where_(&count.eq(0)?, rate, &rate.mul(0.0)?)?], Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let turned = g.mul(slots[0])?;
        let (same, other) = (turned.gt(0.0)?, turned.lt(0.0)?);
        let old = slots[1].add(&scalars[0])?;
        let (grown, fallen) = (old.mul(self.etas.1)?, old.mul(self.etas.0)?);
        let size = where_(&same, &grown, &where_(&other, &fallen, &old)?)?;
        let size = size.clip(self.step_sizes.0, self.step_sizes.1)?;
        let rested = where_(&other, 0.0, g)?;
        Ok(vec![p.sub(&rested.sign()?.mul(&size)?)?, rested, size])
    }
}

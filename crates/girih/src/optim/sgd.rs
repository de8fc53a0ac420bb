//! Stochastic gradient descent, and its average.

use super::rule::{Rule, Scalars, State, decayed, kept, optimizer};
use crate::{Result, Tensor, where_};

optimizer! {
    /// Stochastic gradient descent, optionally with momentum: `v = momentum v + (1 - dampening) g`
    /// (`v = g` in the first step), `p -= lr v`; with `nesterov` `p -= lr (g + momentum v)`.
    ///
    /// Source: Sutskever et al. 2013, in PyTorch's form (the rate outside the velocity).
    Sgd {
        /// The decay of the velocity; 0 for no velocity.
        momentum: f64 = 0.0,
        /// Whether to use Nesterov momentum; needs momentum and no dampening.
        nesterov: bool = false,
        /// The multiple of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
        /// The fraction of the gradient that is not added to the velocity.
        dampening: f64 = 0.0,
    }
    *momentum >= 0.0 => "momentum must not be negative, got {momentum}",
    !nesterov || *momentum > 0.0 => "nesterov needs momentum above 0, got {momentum}",
    !nesterov || *dampening == 0.0 => "nesterov takes no dampening, got {dampening}",
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
}

impl Rule for Sgd {
    kept!(Sgd);

    fn slots(&self) -> usize {
        (self.momentum != 0.0).into()
    }

    fn scalars(
        &self,
        count: &Tensor,
        rate: &Tensor,
        _: &[Tensor],
    ) -> Result<(Scalars, Vec<Tensor>)> {
        let mut scalars = vec![rate.clone()];
        if self.momentum != 0.0 && self.dampening != 0.0 {
            let share = count.mul(0.0)?.add(1.0 - self.dampening)?;
            scalars.push(where_(&count.eq(0)?, 1.0, &share)?);
        }
        Ok((scalars, Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let g = decayed(p, g, self.weight_decay)?;
        let [old] = slots else { return Ok(vec![p.sub(&scalars[0].mul(&g)?)?]) };
        let added = match scalars.get(1) {
            Some(share) => share.mul(&g)?,
            None => g.clone(),
        };
        let velocity = old.mul(self.momentum)?.add(&added)?;
        let direction = match self.nesterov {
            true => g.add(&velocity.mul(self.momentum)?)?,
            false => velocity.clone(),
        };
        Ok(vec![p.sub(&scalars[0].mul(&direction)?)?, velocity])
    }
}

optimizer! {
    /// Gradient descent with a decreasing rate; its slot has the average of the parameters.
    ///
    /// Source: Polyak and Juditsky 1992, in PyTorch's form.
    Asgd {
        /// The decay of the rate, and the fraction of the parameter that is subtracted.
        lambd: f64 = 1e-4,
        /// The exponent of the decay of the rate.
        alpha: f64 = 0.75,
        /// The step after which parameters are averaged.
        t0: f64 = 1e6,
        /// The multiple of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
    }
    *weight_decay >= 0.0 => "weight_decay must not be negative, got {weight_decay}",
}

impl Asgd {
    /// The averages of the parameters, in their order; none before the first step.
    pub fn averages(&self) -> &[Tensor] {
        self.state.slot(0)
    }
}

impl Rule for Asgd {
    kept!(Asgd);

    fn slots(&self) -> usize {
        1
    }

    fn scalars(
        &self,
        count: &Tensor,
        rate: &Tensor,
        _: &[Tensor],
    ) -> Result<(Scalars, Vec<Tensor>)> {
        let slowed = rate.mul(self.lambd)?.mul(count)?.add(1.0)?.pow(self.alpha)?;
        let eta = rate.div(&slowed)?;
        let share = count.sub(self.t0)?.maximum(1.0)?.reciprocal()?;
        let keep = 1.0 - eta.mul(self.lambd)?;
        Ok((vec![eta, keep, share], Vec::new()))
    }

    fn moved(
        &self,
        p: &Tensor,
        g: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let (eta, keep, share) = (&scalars[0], &scalars[1], &scalars[2]);
        let new = p.mul(keep)?.sub(&eta.mul(&decayed(p, g, self.weight_decay)?)?)?;
        let average = slots[0].add(&new.sub(slots[0])?.mul(share)?)?;
        let average = where_(&share.eq(1.0)?, &new, &average)?;
        Ok(vec![new, average])
    }
}

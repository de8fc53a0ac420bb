//! Optimisers: from parameters and gradients to new parameters, lazily. State and hyperparameters
//! are tensors, so that changing a learning rate never compiles anything.

use crate::{Result, Tensor};
use girih_ir::DType;

/// Adam (Kingma and Ba 2015, algorithm 1), with the decoupled weight decay of Loshchilov and
/// Hutter 2019 if that is not zero.
pub struct Adam {
    /// Step size.
    pub learning_rate: f64,
    /// Decay of the first and second moment.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, per step and unit of learning rate.
    pub weight_decay: f64,
    step: i32,
    moments: Vec<(Tensor, Tensor)>,
}

impl Adam {
    /// With the paper's defaults but for the learning rate.
    pub fn new(learning_rate: f64) -> Adam {
        Adam {
            learning_rate,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            step: 0,
            moments: Vec::new(),
        }
    }

    /// The parameters after one step. Evaluate them together with [`Adam::state`].
    pub fn update(&mut self, parameters: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Tensor>> {
        if self.moments.is_empty() {
            let zeros = |p: &Tensor| Tensor::zeros(p.shape(), p.dtype());
            self.moments =
                parameters.iter().map(|p| Ok((zeros(p)?, zeros(p)?))).collect::<Result<_>>()?;
        }
        self.step += 1;
        let (b1, b2) = self.betas;
        let scalar = |v: f64| Tensor::from_slice(&[v as f32], []);
        let learning_rate = scalar(self.learning_rate)?;
        let (bias1, bias2) = (scalar(1.0 - b1.powi(self.step))?, scalar(1.0 - b2.powi(self.step))?);
        let mut updated = Vec::with_capacity(parameters.len());
        for ((p, g), (m, v)) in parameters.iter().zip(gradients).zip(&mut self.moments) {
            let float = |t: &Tensor| {
                t.astype(if p.dtype() == DType::F64 { DType::F64 } else { DType::F32 })
            };
            *m = m.mul(b1)?.add(&g.mul(1.0 - b1)?)?;
            *v = v.mul(b2)?.add(&g.mul(g)?.mul(1.0 - b2)?)?;
            let root = v.div(&float(&bias2)?)?.sqrt()?.add(self.eps)?;
            let mut step = m.div(&float(&bias1)?)?.div(&root)?;
            if self.weight_decay != 0.0 {
                step = step.add(&p.mul(self.weight_decay)?)?;
            }
            updated.push(p.sub(&step.mul(&learning_rate)?.astype(p.dtype())?)?);
        }
        Ok(updated)
    }

    /// The moments, to be evaluated with the parameters.
    pub fn state(&self) -> Vec<Tensor> {
        self.moments.iter().flat_map(|(m, v)| [m.clone(), v.clone()]).collect()
    }
}

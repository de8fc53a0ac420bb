//! Layers and losses over explicit parameters. A module owns its parameters as tensors; training
//! takes them out, differentiates a function of them, and puts the updated ones back.

use crate::{Result, Tensor};
use girih_ir::DType;

/// Something with parameters that maps a tensor to a tensor.
pub trait Module {
    /// The value at `x` with the given parameters, as many as [`Module::parameters`] gives.
    fn apply(&self, parameters: &[Tensor], x: &Tensor) -> Result<Tensor>;

    /// The parameters, in a fixed order.
    fn parameters(&self) -> Vec<Tensor>;

    /// Replaces the parameters, in the same order.
    fn set_parameters(&mut self, parameters: &[Tensor]);

    /// The value at `x` with the module's own parameters.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.apply(&self.parameters(), x)
    }
}

/// `x @ weight + bias`.
pub struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// Weights `[inputs, outputs]` drawn by He et al. 2015 for rectifiers, biases zero.
    pub fn new(inputs: usize, outputs: usize) -> Result<Linear> {
        let scale = (2.0 / inputs.max(1) as f64).sqrt();
        let weight = Tensor::randn([inputs, outputs], DType::F32)?.mul(scale)?;
        Ok(Linear { weight, bias: Tensor::zeros([outputs], DType::F32)? })
    }
}

impl Module for Linear {
    fn apply(&self, parameters: &[Tensor], x: &Tensor) -> Result<Tensor> {
        x.matmul(&parameters[0])?.add(&parameters[1])
    }

    fn parameters(&self) -> Vec<Tensor> {
        vec![self.weight.clone(), self.bias.clone()]
    }

    fn set_parameters(&mut self, parameters: &[Tensor]) {
        self.weight = parameters[0].clone();
        self.bias = parameters[1].clone();
    }
}

/// `max(x, 0)`.
pub struct Relu;

impl Module for Relu {
    fn apply(&self, _: &[Tensor], x: &Tensor) -> Result<Tensor> {
        x.relu()
    }

    fn parameters(&self) -> Vec<Tensor> {
        Vec::new()
    }

    fn set_parameters(&mut self, _: &[Tensor]) {}
}

/// Modules one after the other.
pub struct Sequential(pub Vec<Box<dyn Module>>);

impl Module for Sequential {
    fn apply(&self, parameters: &[Tensor], x: &Tensor) -> Result<Tensor> {
        let mut rest = parameters;
        self.0.iter().try_fold(x.clone(), |x, module| {
            let (own, others) = rest.split_at(module.parameters().len());
            rest = others;
            module.apply(own, &x)
        })
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.0.iter().flat_map(|m| m.parameters()).collect()
    }

    fn set_parameters(&mut self, parameters: &[Tensor]) {
        let mut rest = parameters;
        for module in &mut self.0 {
            let (own, others) = rest.split_at(module.parameters().len());
            module.set_parameters(own);
            rest = others;
        }
    }
}

/// Mean cross-entropy of integer labels under softmax of logits.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    logits.cross_entropy(labels)?.mean(None, false)
}

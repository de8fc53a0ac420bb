//! Layers and losses over explicit parameters. A module owns its parameters as tensors; training
//! takes them out, differentiates a function of them, and puts the updated ones back.

use crate::{Error, Result, Tensor, where_};
use girih_ir::DType;

/// Something with parameters that maps a tensor to a tensor.
pub trait Module {
    /// The value at `x` with the given parameters, as many as [`Module::parameters`] gives.
    ///
    /// Errors: [`Error::InvalidArgument`] for fewer or more; what recording the layers gives.
    fn apply(&self, parameters: &[Tensor], x: &Tensor) -> Result<Tensor>;

    /// The parameters, in a fixed order.
    fn parameters(&self) -> Vec<Tensor> {
        Vec::new()
    }

    /// Replaces the parameters, in the same order.
    ///
    /// Errors: [`Error::InvalidArgument`] for fewer or more, or another shape or dtype.
    fn set_parameters(&mut self, parameters: &[Tensor]) -> Result<()> {
        check_count(parameters, 0)
    }

    /// Switches between training, as modules are made, and evaluation.
    fn train(&mut self, training: bool) {
        let _ = training;
    }

    /// The value at `x` with the module's own parameters.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.apply(&self.parameters(), x)
    }

    /// Number of elements of all parameters.
    fn num_parameters(&self) -> usize {
        self.parameters().iter().map(Tensor::numel).sum()
    }
}

fn check_count(parameters: &[Tensor], expected: usize) -> Result<()> {
    if parameters.len() == expected {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "the module has {expected} parameters, got {}",
        parameters.len()
    )))
}

/// Puts new tensors in the place of old ones of the same specs; all of them or none.
fn replace(old: &mut [&mut Tensor], new: &[Tensor]) -> Result<()> {
    check_count(new, old.len())?;
    for (i, (old, new)) in old.iter().zip(new).enumerate() {
        if old.spec() != new.spec() {
            return Err(Error::InvalidArgument(format!(
                "parameter {i} of the module is {}, got {}",
                old.spec(),
                new.spec()
            )));
        }
    }
    old.iter_mut().zip(new).for_each(|(old, new)| **old = new.clone());
    Ok(())
}

/// `x @ weight + bias`.
pub struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// Weights `[inputs, outputs]` and biases `[outputs]`, f32, uniform in ±1/sqrt(inputs).
    pub fn new(inputs: usize, outputs: usize) -> Result<Linear> {
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        let uniform =
            |shape: &[usize]| Tensor::rand(shape, DType::F32)?.mul(2.0 * bound)?.sub(bound);
        Ok(Linear { weight: uniform(&[inputs, outputs])?, bias: uniform(&[outputs])? })
    }
}

impl Module for Linear {
    fn apply(&self, parameters: &[Tensor], x: &Tensor) -> Result<Tensor> {
        check_count(parameters, 2)?;
        x.matmul(&parameters[0])?.add(&parameters[1])
    }

    fn parameters(&self) -> Vec<Tensor> {
        vec![self.weight.clone(), self.bias.clone()]
    }

    fn set_parameters(&mut self, parameters: &[Tensor]) -> Result<()> {
        replace(&mut [&mut self.weight, &mut self.bias], parameters)
    }
}

/// `max(x, 0)`.
pub struct Relu;

impl Module for Relu {
    fn apply(&self, parameters: &[Tensor], x: &Tensor) -> Result<Tensor> {
        check_count(parameters, 0)?;
        x.relu()
    }
}

/// The Gaussian error linear unit, by erf.
pub struct Gelu;

impl Module for Gelu {
    fn apply(&self, parameters: &[Tensor], x: &Tensor) -> Result<Tensor> {
        check_count(parameters, 0)?;
        x.gelu(false)
    }
}

/// In training zeroes elements with probability `p` and scales the others by `1 / (1 - p)`; else
/// the identity.
pub struct Dropout {
    p: f64,
    training: bool,
}

impl Dropout {
    /// Errors: [`Error::InvalidArgument`] unless `0 <= p < 1`.
    pub fn new(p: f64) -> Result<Dropout> {
        if !(0.0..1.0).contains(&p) {
            return Err(Error::InvalidArgument(format!("Dropout: p must be in [0, 1), got {p}")));
        }
        Ok(Dropout { p, training: true })
    }
}

impl Module for Dropout {
    fn apply(&self, parameters: &[Tensor], x: &Tensor) -> Result<Tensor> {
        check_count(parameters, 0)?;
        if !self.training || self.p == 0.0 {
            return Ok(x.clone());
        }
        let keep = Tensor::rand(x.shape(), DType::F32)?.ge(self.p)?;
        where_(&keep, &x.mul(1.0 / (1.0 - self.p))?, 0.0)
    }

    fn train(&mut self, training: bool) {
        self.training = training;
    }
}

/// Modules one after the other.
pub struct Sequential(pub Vec<Box<dyn Module>>);

impl Sequential {
    /// Each module with its share of the parameters.
    fn shares<'a>(&self, parameters: &'a [Tensor]) -> Result<Vec<&'a [Tensor]>> {
        let counts: Vec<usize> = self.0.iter().map(|m| m.parameters().len()).collect();
        check_count(parameters, counts.iter().sum())?;
        let mut rest = parameters;
        let share = |&count: &usize| {
            let (own, others) = rest.split_at(count);
            rest = others;
            own
        };
        Ok(counts.iter().map(share).collect())
    }
}

impl Module for Sequential {
    fn apply(&self, parameters: &[Tensor], x: &Tensor) -> Result<Tensor> {
        let shares = self.shares(parameters)?;
        let modules = self.0.iter().zip(shares);
        modules.into_iter().try_fold(x.clone(), |x, (module, own)| module.apply(own, &x))
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.0.iter().flat_map(|m| m.parameters()).collect()
    }

    fn set_parameters(&mut self, parameters: &[Tensor]) -> Result<()> {
        let shares = self.shares(parameters)?;
        self.0.iter_mut().zip(shares).try_for_each(|(module, own)| module.set_parameters(own))
    }

    fn train(&mut self, training: bool) {
        self.0.iter_mut().for_each(|m| m.train(training));
    }
}

/// Mean cross-entropy of integer labels under softmax of logits.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    logits.cross_entropy(labels)?.mean(None, false)
}

//! Optimisers: lazy maps from parameters and gradients to new parameters. The state and all values
//! that may change between steps are tensors, so that one compiled program serves all steps.

use crate::nn::Module;
use crate::{Error, Result, Tensor, eval, where_};
use girih_ir::DType;

/// Updates parameters by their gradients.
///
/// ```
/// use girih::optim::{Optimizer, Sgd};
/// use girih::{Tensor, eval, value_and_grad};
///
/// let loss = value_and_grad(|x| x[0].sub(3.0)?.square()?.sum(None, false));
/// let mut x = vec![Tensor::from_slice(&[0.0f32, 5.0], [2])?];
/// let mut optimizer = Sgd::new(0.1);
/// optimizer.init(&x)?;
/// for _ in 0..100 {
///     let (_, gradients) = loss(&x)?;
///     x = optimizer.update(&x, &gradients)?;
///     eval(x.iter().chain(optimizer.state()))?;
/// }
/// assert!(x[0].to_vec::<f32>()?.iter().all(|x| (x - 3.0).abs() < 1e-4));
/// # Ok::<(), girih::Error>(())
/// ```
pub trait Optimizer {
    /// Creates the state for these parameters and evaluates both, so that the first step runs the
    /// same program as the others.
    fn init(&mut self, parameters: &[Tensor]) -> Result<()>;

    /// The parameters after one step, lazily. Evaluate them together with [`Optimizer::state`].
    ///
    /// Errors: [`Error::InvalidArgument`] unless there is one gradient per parameter, of its shape,
    /// and as many parameters as were passed to [`Optimizer::init`].
    fn update(&mut self, parameters: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Tensor>>;

    /// The state carried between steps, which must be evaluated with the parameters.
    fn state(&self) -> &[Tensor];

    /// Updates a model by the gradients of its parameters, in their order, and evaluates the model,
    /// the state and the loss in one run.
    ///
    /// Errors: as [`Optimizer::update`]; [`Error::Evaluation`], after which the model has its
    /// previous parameters.
    fn step(&mut self, model: &dyn Module, loss: &Tensor, gradients: &[Tensor]) -> Result<()> {
        let before = model.parameters();
        let updated = self.update(&before, gradients)?;
        model.set_parameters(&updated)?;
        let state: Vec<Tensor> = model.state_dict().into_iter().map(|(_, tensor)| tensor).collect();
        let computed = eval(state.iter().chain(self.state()).chain([loss]));
        if computed.is_err() {
            model.set_parameters(&before)?;
        }
        computed
    }
}

fn zeros_like(parameters: &[Tensor]) -> Result<Vec<Tensor>> {
    parameters.iter().map(|p| Tensor::zeros(p.shape(), p.dtype())).collect()
}

fn check(parameters: &[Tensor], gradients: &[Tensor], known: usize) -> Result<()> {
    let (p, g) = (parameters.len(), gradients.len());
    if p != g || p != known {
        return Err(Error::InvalidArgument(format!(
            "the optimizer was made for {known} parameters (see init), got {p} and {g} gradients"
        )));
    }
    for (i, (p, g)) in parameters.iter().zip(gradients).enumerate() {
        if p.shape() != g.shape() {
            return Err(Error::InvalidArgument(format!(
                "parameter {i} has shape {}, its gradient {}",
                p.shape(),
                g.shape()
            )));
        }
    }
    Ok(())
}

/// A value of the current step, passed to the program as an argument.
struct Scalar {
    single: Tensor,
    double: Tensor,
}

impl Scalar {
    fn new(value: f64) -> Result<Scalar> {
        let double = Tensor::from_slice(&[value], [])?;
        Ok(Scalar { single: Tensor::from_slice(&[value as f32], [])?, double })
    }

    /// The value in the precision for parameters of this dtype.
    fn of(&self, dtype: DType) -> &Tensor {
        if dtype == DType::F64 { &self.double } else { &self.single }
    }
}

/// `parameter - step`, in the parameter's dtype.
fn stepped(parameter: &Tensor, step: &Tensor) -> Result<Tensor> {
    parameter.sub(step)?.astype(parameter.dtype())
}

/// Stochastic gradient descent, with momentum as in Sutskever et al. 2013 if it is not zero.
pub struct Sgd {
    /// The step size.
    pub learning_rate: f64,
    /// The factor of the previous step's velocity.
    pub momentum: f64,
    /// The multiple of the parameter that is added to the gradient.
    pub weight_decay: f64,
    parameters: usize,
    velocity: Vec<Tensor>,
}

impl Sgd {
    /// Gradient descent without momentum or weight decay.
    pub fn new(learning_rate: f64) -> Sgd {
        Sgd::with_momentum(learning_rate, 0.0)
    }

    /// Gradient descent with momentum.
    pub fn with_momentum(learning_rate: f64, momentum: f64) -> Sgd {
        Sgd { learning_rate, momentum, weight_decay: 0.0, parameters: 0, velocity: Vec::new() }
    }
}

impl Optimizer for Sgd {
    fn init(&mut self, parameters: &[Tensor]) -> Result<()> {
        self.parameters = parameters.len();
        self.velocity = match self.momentum {
            0.0 => Vec::new(),
            _ => zeros_like(parameters)?,
        };
        eval(parameters.iter().chain(&self.velocity))
    }

    fn update(&mut self, parameters: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Tensor>> {
        check(parameters, gradients, self.parameters)?;
        let rate = Scalar::new(self.learning_rate)?;
        let mut velocity = Vec::with_capacity(self.velocity.len());
        let mut updated = Vec::with_capacity(parameters.len());
        for (i, (p, g)) in parameters.iter().zip(gradients).enumerate() {
            let mut direction = g.clone();
            if self.weight_decay != 0.0 {
                direction = direction.add(&p.mul(self.weight_decay)?)?;
            }
            if let Some(v) = self.velocity.get(i) {
                direction = v.mul(self.momentum)?.add(&direction)?.astype(p.dtype())?;
                velocity.push(direction.clone());
            }
            updated.push(stepped(p, &direction.mul(rate.of(p.dtype()))?)?);
        }
        self.velocity = velocity;
        Ok(updated)
    }

    fn state(&self) -> &[Tensor] {
        &self.velocity
    }
}

/// `numerator / (root + eps)`, and zero where the denominator is zero: without `eps`, an element
/// that has had no gradient so far would become NaN.
fn ratio(numerator: &Tensor, root: &Tensor, eps: f64) -> Result<Tensor> {
    if eps > 0.0 {
        return numerator.div(&root.add(eps)?);
    }
    let at_rest = root.eq(0.0)?;
    where_(&at_rest, 0.0, &numerator.div(&where_(&at_rest, 1.0, root)?)?)
}

/// Adam (Kingma and Ba 2015, algorithm 1), with the decoupled weight decay of Loshchilov and Hutter
/// 2019 (AdamW) if it is not zero.
pub struct Adam {
    /// The step size.
    pub learning_rate: f64,
    /// The decay rates of the first and second moments.
    pub betas: (f64, f64),
    /// The number that is added to the square root of the second moment, not negative. With 0, an
    /// element without a gradient so far does not move.
    pub eps: f64,
    /// The decoupled weight decay, multiplied by the learning rate.
    pub weight_decay: f64,
    step: i32,
    /// The first and second moments of the parameters, alternating.
    moments: Vec<Tensor>,
}

impl Adam {
    /// Adam with the paper's defaults except for the learning rate.
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

    /// AdamW: Adam with a weight decay of 0.01.
    pub fn with_decay(learning_rate: f64) -> Adam {
        Adam { weight_decay: 0.01, ..Adam::new(learning_rate) }
    }
}

impl Optimizer for Adam {
    fn init(&mut self, parameters: &[Tensor]) -> Result<()> {
        self.step = 0;
        let (first, second) = (zeros_like(parameters)?, zeros_like(parameters)?);
        self.moments = first.into_iter().zip(second).flat_map(|(m, v)| [m, v]).collect();
        eval(parameters.iter().chain(&self.moments))
    }

    fn update(&mut self, parameters: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Tensor>> {
        check(parameters, gradients, self.moments.len() / 2)?;
        if self.eps.is_nan() || self.eps < 0.0 {
            let eps = self.eps;
            return Err(Error::InvalidArgument(format!(
                "Adam: eps must not be negative, got {eps}"
            )));
        }
        let (b1, b2) = self.betas;
        let step = self.step.saturating_add(1);
        let rate = Scalar::new(self.learning_rate)?;
        let bias1 = Scalar::new(1.0 - b1.powi(step))?;
        let bias2 = Scalar::new(1.0 - b2.powi(step))?;
        let mut moments = Vec::with_capacity(self.moments.len());
        let mut updated = Vec::with_capacity(parameters.len());
        for ((p, g), state) in parameters.iter().zip(gradients).zip(self.moments.chunks_exact(2)) {
            let dtype = p.dtype();
            let m = state[0].mul(b1)?.add(&g.mul(1.0 - b1)?)?.astype(dtype)?;
            let v = state[1].mul(b2)?.add(&g.mul(g)?.mul(1.0 - b2)?)?.astype(dtype)?;
            let root = v.div(bias2.of(dtype))?.sqrt()?;
            let mean = m.div(bias1.of(dtype))?;
            let mut direction = ratio(&mean, &root, self.eps)?;
            if self.weight_decay != 0.0 {
                direction = direction.add(&p.mul(self.weight_decay)?)?;
            }
            updated.push(stepped(p, &direction.mul(rate.of(dtype))?)?);
            moments.extend([m, v]);
        }
        (self.step, self.moments) = (step, moments);
        Ok(updated)
    }

    fn state(&self) -> &[Tensor] {
        &self.moments
    }
}

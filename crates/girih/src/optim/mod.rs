//! Optimisers: lazy maps from parameters and gradients to new parameters. The state and all values
//! that may change between steps are tensors, so that one compiled program serves all steps.
//!
//! Names, settings, defaults and update rules are those of Python's `girih.optim`: the same numbers,
//! to the last bit. Settings are public fields, which may be changed between steps, with a method of
//! the same name to set them at once: `Sgd::new(0.1).momentum(0.9).nesterov(true)`.

mod adaptive;
mod average;
mod lbfgs;
mod matrices;
mod moments;
mod rule;
pub mod schedules;
mod sgd;

pub use adaptive::{Adadelta, Adagrad, Lion, RmsProp, Rprop};
pub use average::Ema;
pub use lbfgs::Lbfgs;
pub use matrices::{Adafactor, Muon, MuonRate};
pub use moments::{Adam, AdamW, Adamax, NAdam, RAdam};
pub use rule::{Rule, Scalars, State};
pub use schedules::Schedule;
pub use sgd::{Asgd, Sgd};

use crate::nn::Module;
use crate::{Result, Tensor, eval};

/// Updates parameters by their gradients.
///
/// ```
/// use girih::optim::{Optimizer, Sgd};
/// use girih::{Tensor, eval, value_and_grad};
///
/// let loss = value_and_grad(|x| x[0].sub(3.0)?.square()?.sum_all());
/// let mut x = vec![Tensor::new([0.0f32, 5.0])?];
/// let mut optimizer = Sgd::new(0.1);
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
    /// same program as the others. The first [`Optimizer::update`] does it where it was not called.
    ///
    /// Errors: a dtype error for a parameter that is not of floats; those of evaluation.
    fn init(&mut self, parameters: &[Tensor]) -> Result<()>;

    /// The parameters after one step, lazily. Evaluate them together with [`Optimizer::state`].
    ///
    /// Errors: [`crate::Error::InvalidArgument`] unless there is one gradient per parameter, of its
    /// shape, and as many parameters as were passed to [`Optimizer::init`], and for settings out of
    /// range.
    fn update(&mut self, parameters: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Tensor>>;

    /// The state carried between steps, which must be evaluated with the parameters.
    fn state(&self) -> &[Tensor];

    /// Updates a model by the gradients of its parameters, in their order, and evaluates the model,
    /// the state and the loss in one run.
    ///
    /// Errors: as [`Optimizer::update`]; [`crate::Error::Evaluation`], after which the model has its
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

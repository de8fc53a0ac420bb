//! Layers that own their parameters. They correspond to Python's `girih.nn`: the same names and the
//! same layout of weights (`[outputs, inputs, …]`), so that each can read the other's files.
//!
//! A module holds tensors in [`Variable`]s. It lists them by name in [`Module::visit`], the only
//! method that it defines, which `#[derive(Module)]` writes. Names, state dicts, loading, counting
//! and training follow from it. Variables are replaced through a shared reference, so that training
//! and loading a model need no `mut`. A module that maps one tensor to one is a [`Layer`], of which
//! [`Sequential`] is made; other modules have whatever `forward` they need.
//!
//! ```
//! use girih::nn::{self, Layer, Linear, Module, Relu, Sequential};
//! use girih::optim::{Adam, Optimizer};
//! use girih::{Result, Tensor, losses};
//!
//! #[derive(Module)]
//! struct Net {
//!     body: Sequential,
//!     head: Linear,
//! }
//!
//! impl Net {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         self.head.forward(&self.body.forward(x)?)
//!     }
//! }
//!
//! let net = Net {
//!     body: Sequential::new().then(Linear::new(2, 8)?).then(Relu),
//!     head: Linear::new(8, 1)?,
//! };
//! let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["body.0.weight", "body.0.bias", "head.weight", "head.bias"]);
//!
//! let x = Tensor::new([[0.0f32, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])?;
//! let y = Tensor::new([[0.0f32], [1.0], [2.0], [3.0]])?;
//! let mut optimizer = Adam::new(0.01);
//! let mut last = f32::INFINITY;
//! for _ in 0..100 {
//!     let (loss, gradients) = nn::value_and_grad(&net, |net| {
//!         losses::mse_loss(&net.forward(&x)?, &y, losses::Reduction::Mean)
//!     })?;
//!     optimizer.step(&net, &loss, &gradients)?;
//!     last = loss.item()?;
//! }
//! assert!(last < 1.0);
//! # Ok::<(), girih::Error>(())
//! ```

mod activation;
mod attention;
mod conv;
pub mod init;
mod layers;
mod norm;
mod pool;
mod train;
mod variable;

pub use activation::*;
pub use attention::MultiheadAttention;
pub use conv::{
    Conv, Conv1d, Conv2d, Conv3d, ConvTranspose, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
};
pub use layers::{Dropout, Embedding, Flatten, Linear, Sequential};
pub use norm::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm};
pub use pool::{AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, LpPool, MaxPool};
pub use train::{functional_call, value_and_grad};
pub use variable::{Mode, Variable, Visitor};

use crate::{Error, Result, Tensor, io};
use std::path::Path;

#[doc(inline)]
pub use girih_derive::Module;

/// State by name: parameters, buffers, training modes and submodules. `#[derive(Module)]` implements
/// it for a struct of them.
///
/// ```
/// use girih::nn::{Layer, Linear, Module, Variable};
/// use girih::{DType, Result, Tensor};
///
/// #[derive(Module)]
/// struct Scaled {
///     layers: Vec<Linear>,
///     scale: Variable,
///     #[module(buffer)]
///     seen: Variable,
///     power: f64, // numbers are no state
/// }
///
/// impl Layer for Scaled {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         let y = self.layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x))?;
///         y.mul(&self.scale.get().pow(self.power)?)
///     }
/// }
///
/// let one = || Tensor::ones([], DType::F32).map(Variable::new);
/// let layers = vec![Linear::without_bias(2, 3)?, Linear::without_bias(3, 1)?];
/// let net = Scaled { layers, scale: one()?, seen: one()?, power: 2.0 };
/// let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["layers.0.weight", "layers.1.weight", "scale"]);
/// assert_eq!(net.state_dict().len(), 4);
/// # Ok::<(), girih::Error>(())
/// ```
///
/// Threads may share modules. Training a module changes it for all threads. While a gradient is
/// recorded ([`value_and_grad`]), the module's parameters are placeholders, and other threads must
/// not use the module.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module",
    note = "derive(Module) makes a struct one; #[module(skip)] leaves a field out, \
            #[module(parameter)] says that it is a variable"
)]
pub trait Module: Send + Sync {
    /// Passes the module's variables, modes and submodules to the visitor, in order of definition.
    /// A module that has none of these need not define the method.
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        let _ = visitor;
    }

    /// The parameters, in the order of [`Module::named_parameters`].
    fn parameters(&self) -> Vec<Tensor> {
        visited(self).parameters().map(|(_, variable)| variable.get()).collect()
    }

    /// The parameters with their dotted names. A shared parameter has the first of its names.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        visited(self).parameters().map(|(name, variable)| (name.into(), variable.get())).collect()
    }

    /// Parameters and buffers by dotted name, as a file of the module contains them.
    fn state_dict(&self) -> Vec<(String, Tensor)> {
        let visited = visited(self);
        let all = visited.parameters().chain(visited.buffers());
        all.map(|(name, variable)| (name.to_string(), variable.get())).collect()
    }

    /// Replaces all parameters, in the order of [`Module::parameters`]; on an error no parameter is
    /// replaced.
    ///
    /// Errors: [`Error::InvalidArgument`] for a wrong number of parameters, or a parameter of
    /// another shape.
    fn set_parameters(&self, parameters: &[Tensor]) -> Result<()> {
        let visited = visited(self);
        let own: Vec<(&str, &Variable)> = visited.parameters().collect();
        if own.len() != parameters.len() {
            return Err(Error::InvalidArgument(format!(
                "the module has {} parameters, got {}",
                own.len(),
                parameters.len()
            )));
        }
        own.iter().zip(parameters).try_for_each(|((name, own), new)| own.check(name, new))?;
        own.iter().zip(parameters).for_each(|((_, own), new)| own.put(new.clone()));
        Ok(())
    }

    /// Replaces all parameters and buffers by those of a [`Module::state_dict`], cast to the dtypes
    /// of the module's tensors and moved to their devices; on an error no tensor is replaced. Of
    /// the names of a shared parameter, one suffices.
    ///
    /// Errors: [`Error::InvalidArgument`] for missing and unexpected names, all of which the
    /// message lists, for a tensor of another shape, for different values of a shared parameter, and
    /// for a cast that would drop imaginary parts or fractions.
    fn load_state_dict(&self, values: &[(String, Tensor)]) -> Result<()> {
        load(&visited(self), values)
    }

    /// Writes the [`Module::state_dict`] to an `.npz` or `.safetensors` file.
    ///
    /// Errors: as [`io::save`].
    fn save(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        io::save(path, &self.state_dict())
    }

    /// Reads a file that [`Module::save`] or Python's `gr.save(path, model.state_dict())` wrote.
    ///
    /// Errors: as [`io::load`] and [`Module::load_state_dict`].
    fn load(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        self.load_state_dict(&io::load(path)?)
    }

    /// Switches to training, the initial mode: dropout is random, and batch norms use the
    /// statistics of their batch.
    fn train(&self) {
        visited(self).modes().for_each(|mode| mode.set(true));
    }

    /// Switches to evaluation: dropout is the identity, and batch norms use their running
    /// statistics.
    fn eval(&self) {
        visited(self).modes().for_each(|mode| mode.set(false));
    }

    /// The number of elements of all parameters.
    fn num_parameters(&self) -> usize {
        self.parameters().iter().map(Tensor::numel).sum()
    }
}

/// A module that maps a tensor to a tensor. Functions of a tensor are layers without parameters.
pub trait Layer: Module {
    /// The module's output for `x`.
    ///
    /// Errors: those of recording the layers.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
}

impl<F: Fn(&Tensor) -> Result<Tensor> + Send + Sync> Module for F {}

impl<F: Fn(&Tensor) -> Result<Tensor> + Send + Sync> Layer for F {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self(x)
    }
}

/// The variables and modes of a module.
pub(crate) fn visited<M: Module + ?Sized>(module: &M) -> Visitor<'_> {
    let mut visitor = Visitor::default();
    module.visit(&mut visitor);
    visitor
}

fn load(visited: &Visitor<'_>, values: &[(String, Tensor)]) -> Result<()> {
    let mut given: Vec<Option<&Tensor>> = vec![None; visited.all().count()];
    let mut unexpected = Vec::new();
    for (name, value) in values {
        match visited.position(name) {
            Some(at) => {
                let first = *given[at].get_or_insert(value);
                if !first.is_same(value) && first.to_bytes()? != value.to_bytes()? {
                    return Err(Error::InvalidArgument(format!(
                        "load_state_dict: {name} is another name of a shared parameter, for which \
                         there is a different value"
                    )));
                }
            }
            None => unexpected.push(name.as_str()),
        }
    }
    let pairs = || visited.all().zip(&given);
    let missing: Vec<&str> =
        pairs().filter(|(_, given)| given.is_none()).map(|((name, _), _)| name).collect();
    if !missing.is_empty() || !unexpected.is_empty() {
        return Err(Error::InvalidArgument(format!(
            "load_state_dict: missing {missing:?}, unexpected {unexpected:?}"
        )));
    }
    let fitted = |((name, own), given): ((&str, &Variable), &Option<&Tensor>)| {
        given.map(|given| own.fitted(name, given)).transpose()
    };
    let fitted: Vec<Option<Tensor>> = pairs().map(fitted).collect::<Result<_>>()?;
    for ((_, own), new) in visited.all().zip(fitted) {
        new.into_iter().for_each(|new| own.put(new));
    }
    Ok(())
}

//! Gradients of tensors by the tape: `requires_grad`, `grad`, hooks.

use crate::{Result, Tensor};
use girih_record::tape;
use std::sync::Arc;

/// A function of a gradient, which may return a replacement.
pub type Hook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;

/// The live tensors on which this thread has called [`Tensor::backward`] since the last call of
/// this function. A step of an optimiser computes these losses in the same program as the
/// parameters, because they share most of their operations.
pub fn take_roots() -> Vec<Tensor> {
    tape::take_roots().into_iter().map(Tensor::from_node).collect()
}

impl Tensor {
    /// Whether [`Tensor::backward`] of a result of the tensor computes the tensor's gradient.
    pub fn requires_grad(&self) -> bool {
        self.node().is_tracked()
    }

    /// Whether the tensor is not a result of tensors that require gradients.
    pub fn is_leaf(&self) -> bool {
        tape::is_leaf(self.node())
    }

    /// Sets whether the tensor requires a gradient from now on: see [`Tensor::backward`].
    ///
    /// Errors: [`crate::Error::InvalidArgument`] for a dtype that is not floating-point or complex, and
    /// for switching off the gradient of a result of others that require gradients.
    pub fn set_requires_grad(&self, on: bool) -> Result<()> {
        tape::set_requires_grad(self.node(), on)
    }

    /// The gradient that [`Tensor::backward`] has accumulated so far.
    pub fn grad(&self) -> Option<Tensor> {
        tape::grad(self.node()).map(Tensor::from_node)
    }

    /// Replaces or clears the gradient.
    ///
    /// Errors: [`crate::Error::InvalidArgument`] for a gradient of another shape or dtype, and for a
    /// tensor that does not require a gradient.
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        tape::set_grad(self.node(), grad.map(|grad| grad.node().clone()))
    }

    /// Makes [`Tensor::backward`] keep the gradient of a tensor that is not a leaf.
    ///
    /// Errors: [`crate::Error::InvalidArgument`] for a tensor that does not require a gradient.
    pub fn retain_grad(&self) -> Result<()> {
        tape::retain_grad(self.node())
    }

    /// Registers a function that is called with the tensor's gradient whenever [`Tensor::backward`]
    /// has computed it; its result, if any, replaces the gradient. Returns a number for
    /// [`Tensor::remove_hook`].
    ///
    /// Errors: [`crate::Error::InvalidArgument`] for a tensor that does not require a gradient.
    pub fn register_hook(&self, hook: Hook) -> Result<u64> {
        let of_node: tape::Hook = Arc::new(move |gradient| {
            let replaced = hook(&Tensor::from_node(gradient.clone()))?;
            Ok(replaced.map(|tensor| tensor.node().clone()))
        });
        tape::register_hook(self.node(), of_node)
    }

    /// Removes a hook, if it exists, from this tensor and from those that took its place.
    pub fn remove_hook(&self, number: u64) {
        tape::remove_hook(number);
    }

    /// Makes this tensor a variable in place of another one, whose value a handle held before: it
    /// requires a gradient, and has the gradient and the hooks of the other tensor.
    ///
    /// Errors: those of [`Tensor::set_requires_grad`] and [`Tensor::set_grad`].
    pub fn take_place_of(&self, old: &Tensor) -> Result<()> {
        tape::take_place_of(self.node(), old.node())
    }
}

/// Runs `f` and returns its result; tensors that `f` records do not require gradients.
///
/// ```
/// use girih::{Tensor, no_grad};
///
/// let x = Tensor::from_slice(&[1.0f32], [1])?;
/// x.set_requires_grad(true)?;
/// assert!(x.mul(2.0)?.requires_grad());
/// assert!(!no_grad(|| x.mul(2.0))?.requires_grad());
/// # Ok::<(), girih::Error>(())
/// ```
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    girih_record::scopes::no_grad(f)
}

//! Gradients of functions of a module, and calls with other parameters.

use super::variable::Restore;
use super::{Module, Variable, visited};
use crate::{Result, Tensor, Trace};

/// The value of a function of a module, a scalar, and its gradients with respect to the module's
/// parameters, in their order. Both are lazy.
///
/// Changes of buffers during the call (running statistics) persist.
///
/// ```
/// use girih::nn::{self, Layer, Linear};
/// use girih::{DType, Tensor};
///
/// let (model, x) = (Linear::new(2, 1)?, Tensor::ones([3, 2], DType::F32)?);
/// let (_, gradients) = nn::value_and_grad(&model, |model| model.forward(&x)?.sum_all())?;
/// assert_eq!(gradients[1].to_vec::<f32>()?, [3.0]);
/// # Ok::<(), girih::Error>(())
/// ```
///
/// Errors: those of the function; [`crate::Error::Transform`] if the value is not a scalar or not a
/// float.
pub fn value_and_grad<M: Module + ?Sized>(
    model: &M,
    f: impl FnOnce(&M) -> Result<Tensor>,
) -> Result<(Tensor, Vec<Tensor>)> {
    let visited = visited(model);
    let parameters: Vec<&Variable> = visited.parameters().map(|(_, variable)| variable).collect();
    let buffers: Vec<&Variable> = visited.buffers().map(|(_, variable)| variable).collect();
    let held: Vec<Tensor> = parameters.iter().map(|variable| variable.get()).collect();
    let buffered: Vec<Tensor> = buffers.iter().map(|variable| variable.get()).collect();
    let restore = Restore::of(model);
    let mut trace = Trace::new();
    let placeholders: Vec<Tensor> = held.iter().map(|tensor| trace.placeholder(tensor)).collect();
    parameters.iter().zip(&placeholders).for_each(|(v, placeholder)| v.put(placeholder.clone()));
    let value = f(model)?;
    // Buffers assigned during the call depend on placeholders, which the derivative resolves.
    let changed: Vec<(&Variable, Tensor)> = buffers
        .iter()
        .zip(&buffered)
        .map(|(variable, before)| (*variable, variable.get(), before))
        .filter(|(_, now, before)| !now.is_same(before))
        .map(|(variable, now, _)| (variable, now))
        .collect();
    drop(restore);
    let outputs: Vec<&Tensor> =
        std::iter::once(&value).chain(changed.iter().map(|(_, tensor)| tensor)).collect();
    let (wrt, arguments): (Vec<&Tensor>, Vec<&Tensor>) =
        (placeholders.iter().collect(), held.iter().collect());
    let (mut outputs, gradients) = trace.gradients(&outputs, &wrt, &arguments)?;
    for ((variable, _), resolved) in changed.iter().zip(outputs.drain(1..)) {
        variable.put(resolved);
    }
    Ok((outputs.swap_remove(0), gradients))
}

/// Calls a function of a module with other parameters, in their order. Afterwards the module has
/// its previous parameters and buffers.
///
/// Errors: those of the function; as [`Module::set_parameters`].
pub fn functional_call<M: Module + ?Sized, T>(
    model: &M,
    parameters: &[Tensor],
    f: impl FnOnce(&M) -> Result<T>,
) -> Result<T> {
    let _restore = Restore::of(model);
    model.set_parameters(parameters)?;
    f(model)
}

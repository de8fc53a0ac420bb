//! Calls: checkpoints, whose values the derivative rematerialises, and ops composed of other ops.

use super::functions::traced;
use super::{Body, Captures, Invariant, RegionRole, at_least_one, record, results, with_captures};
use crate::{Error, Result, Tensor};
use girih_ir::ops::control::{CallMode, Control};
use girih_ir::ops::{Attrs, Class};
use girih_ir::{OpCode, TensorSpec};
use girih_record::node::Node;
use std::sync::Arc;

/// A recorded function that can be called again without tracing it.
pub struct Recording {
    control: Arc<Control>,
    takes: Vec<TensorSpec>,
    /// Further operands: data and constants that the function created itself.
    data: Vec<Tensor>,
}

impl Recording {
    /// The results for these operands, whose specs must be those of the recording; as
    /// [`Body::call`].
    ///
    /// Errors: [`Error::InvalidArgument`] for operands of other specs; [`Error::Record`].
    #[track_caller]
    pub fn call(&self, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        let given: Vec<TensorSpec> = operands.iter().map(Tensor::spec).collect();
        if given != self.takes {
            let list = |specs: &[TensorSpec]| {
                specs.iter().map(|s| s.to_string()).collect::<Vec<_>>().join(", ")
            };
            return Err(Error::InvalidArgument(format!(
                "the function was recorded for ({}), got ({})",
                list(&self.takes),
                list(&given)
            )));
        }
        let operands: Vec<Tensor> = operands.iter().chain(&self.data).cloned().collect();
        results(OpCode::Call, &self.control, &operands)
    }
}

/// The values of a checkpointed function that its derivative keeps instead of recomputing them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Saved {
    /// Nothing except the arguments.
    #[default]
    Nothing,
    /// Results of matrix products and convolutions, the most expensive ops.
    Contractions,
}

impl Saved {
    /// Whether the derivative keeps `value`, which the function recorded.
    pub fn keeps(self, value: &Tensor) -> bool {
        match self {
            Saved::Nothing => false,
            Saved::Contractions => is_contraction(value.node()),
        }
    }
}

/// Whether a node is a constant or data, which a function can create itself.
fn is_data(node: &Node) -> bool {
    node.is_constant() || node.has_value()
}

fn is_contraction(node: &Node) -> bool {
    node.code().def().class == Class::Contraction || matches!(node.attrs(), Attrs::Conv(_))
}

impl Body {
    /// The results of the function for `operands`, one operand per placeholder. Its reverse-mode
    /// derivative recomputes the function, except for the values for which `keeps` returns true.
    /// `keeps` is called for each value that the function recorded and its results need, in
    /// topological order. Random draws of the function are drawn once.
    ///
    /// Errors: [`Error::Record`]; those of `keeps`.
    #[track_caller]
    pub fn checkpoint<E: From<Error>>(
        mut self,
        operands: &[Tensor],
        mut keeps: impl FnMut(&Tensor) -> Result<bool, E>,
    ) -> Result<Vec<Tensor>, E> {
        let given = self.outputs.len();
        let walk = self.walk(Invariant::Inside);
        let mut saved: Vec<Tensor> = Vec::new();
        for (node, _) in walk.nodes.iter().filter(|(_, place)| *place == RegionRole::Inside) {
            let value = Tensor::from_node(node.clone());
            if keeps(&value)? {
                saved.push(value);
            }
        }
        let effects = self.effects(Invariant::Inside, 0)?;
        saved.extend(
            effects.into_iter().filter(|t| !saved.iter().any(|s| s.is_same(t))).collect::<Vec<_>>(),
        );
        let saves = saved.len() as u32;
        self.outputs.extend(saved);
        let control = Control { mode: CallMode::Checkpoint, saves, ..Control::default() };
        let mut results = record_call(control, &self, operands)?;
        results.truncate(given);
        Ok(results)
    }

    /// The function in a form that can be called again. `None` if the function draws random numbers
    /// or captures tensors from outside, which can differ at the next call.
    pub fn recording(&self) -> Option<Recording> {
        let walk = self.walk(Invariant::Inside);
        let mut captures = Captures::default();
        walk.capture(self, &mut captures);
        if !captures.nodes.iter().all(|node| self.start.is_new(node) && is_data(node)) {
            return None;
        }
        let takes: Vec<TensorSpec> = self.placeholders.iter().map(Tensor::spec).collect();
        at_least_one(&self.placeholders, &mut captures);
        let control = Control::default().with_regions(vec![walk.region(self, &captures)]);
        let data = with_captures(std::iter::empty(), &captures);
        Some(Recording { control: Arc::new(control), takes, data })
    }

    /// The results of the function for `operands`, as one op whose derivatives and batching rule
    /// are those of the function. The compiler inlines the function and fuses it with the
    /// surrounding ops.
    ///
    /// Errors: [`Error::Record`].
    #[track_caller]
    pub fn call(&self, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        let body = self.with_effects(Invariant::Inside, 0)?;
        let mut results = record_call(Control::default(), &body, operands)?;
        results.truncate(self.outputs.len());
        Ok(results)
    }
}

/// Records a call.
#[track_caller]
fn record_call(control: Control, body: &Body, operands: &[Tensor]) -> Result<Vec<Tensor>> {
    let walk = body.walk(Invariant::Inside);
    let mut captures = Captures::default();
    walk.capture(body, &mut captures);
    at_least_one(operands, &mut captures);
    let control = control.with_regions(vec![walk.region(body, &captures)]);
    record(OpCode::Call, control, &with_captures(operands.iter().cloned(), &captures))
}

/// The results of `f` for `operands`, differentiated with rematerialisation: the derivative
/// recomputes `f` instead of keeping its values, which saves memory in deep networks. See
/// [`Saved`].
///
/// Errors: those of `f`.
///
/// ```
/// use girih::{Saved, Tensor, checkpoint, grad};
///
/// let block = |x: &[Tensor]| Ok(vec![x[0].sin()?.exp()?]);
/// let loss = |x: &[Tensor]| checkpoint(block, Saved::Nothing, x)?[0].sum_all();
/// let x = Tensor::from_slice(&[0.0f32], [1])?;
/// assert_eq!(grad(loss)(&[x])?[0].to_vec::<f32>()?, [1.0]);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn checkpoint(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    policy: Saved,
    operands: &[Tensor],
) -> Result<Vec<Tensor>> {
    let specs: Vec<TensorSpec> = operands.iter().map(Tensor::spec).collect();
    traced(&specs, f)?.checkpoint(operands, |value| Ok(policy.keeps(value)))
}

/// The results of `f` for `operands` as one op, a custom op composed of other ops. Text and files
/// contain the op as a call of a region. Derivatives and batching follow from the region, and the
/// compiler inlines the region.
///
/// Errors: those of `f`.
///
/// ```
/// use girih::{Tensor, call, grad};
///
/// let swish = |x: &[Tensor]| Ok(vec![x[0].mul(&x[0].sigmoid()?)?]);
/// let x = Tensor::from_slice(&[0.0f64], [1])?;
/// let y = call(swish, &[x.clone()])?.remove(0);
/// assert_eq!(y.to_vec::<f64>()?, [0.0]);
/// let slope = grad(|x| call(swish, x)?[0].sum_all())(&[x])?;
/// assert_eq!(slope[0].to_vec::<f64>()?, [0.5]);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn call(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    operands: &[Tensor],
) -> Result<Vec<Tensor>> {
    let specs: Vec<TensorSpec> = operands.iter().map(Tensor::spec).collect();
    traced(&specs, f)?.call(operands)
}

/// The same values behind an optimisation barrier: no pass merges ops before it with ops after it,
/// and the operands are computed before any user of the results. Derivatives pass through.
///
/// Errors: [`Error::Record`].
///
/// ```
/// use girih::{Tensor, optimization_barrier};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
/// let y = optimization_barrier(&[x.sin()?])?.remove(0);
/// assert_eq!(y.to_vec::<f32>()?, x.sin()?.to_vec::<f32>()?);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn optimization_barrier(operands: &[Tensor]) -> Result<Vec<Tensor>> {
    if operands.is_empty() {
        return Ok(Vec::new());
    }
    let specs: Vec<TensorSpec> = operands.iter().map(Tensor::spec).collect();
    let body = traced(&specs, |x| Ok(x.to_vec()))?;
    record_call(Control { mode: CallMode::Isolated, ..Control::default() }, &body, operands)
}

//! Calls: checkpoints, whose values are computed again for the derivative, and ops made of others.

use super::functions::traced;
use super::{Body, Captures, Place, at_least_one, record, results, with_captures};
use crate::node::{Node, State};
use crate::{Error, Result, Tensor};
use girih_ir::ops::control::{CallMode, Control};
use girih_ir::ops::{Attrs, Class};
use girih_ir::{OpCode, TensorSpec};
use std::sync::Arc;

/// A function as it was recorded, to be called again without running it.
pub struct Recording {
    control: Arc<Control>,
    takes: Vec<TensorSpec>,
    /// Further operands: what the function made itself.
    data: Vec<Tensor>,
}

impl Recording {
    /// The results at these operands, of the specs that it was recorded for; as [`Body::call`].
    ///
    /// Errors: [`Error::Record`].
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

/// Which values of a checkpointed function its derivative keeps instead of computing them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Saved {
    /// None but the arguments.
    #[default]
    Nothing,
    /// Results of matrix products and convolutions, which cost most.
    Products,
}

impl Saved {
    /// Whether the derivative keeps a value that the function recorded.
    pub fn keeps(self, value: &Tensor) -> bool {
        match self {
            Saved::Nothing => false,
            Saved::Products => is_product(value.node()),
        }
    }
}

/// True of values that a function made itself: constants and data.
fn is_data(node: &Node) -> bool {
    node.is_constant() || matches!(*node.state(), State::Available(_))
}

fn is_product(node: &Node) -> bool {
    node.code().def().class == Class::Contraction || matches!(node.attrs(), Attrs::Conv(_))
}

impl Body {
    /// The results of the function at `operands`, one for each placeholder. Its reverse-mode
    /// derivative computes the function again, but for the values that `keeps` holds of: it is asked
    /// about each value that the function recorded and its results need, in the order of recording.
    /// Random draws of the function are drawn once.
    ///
    /// Errors: [`Error::Record`]; those of `keeps`.
    #[track_caller]
    pub fn checkpoint<E: From<Error>>(
        mut self,
        operands: &[Tensor],
        mut keeps: impl FnMut(&Tensor) -> Result<bool, E>,
    ) -> Result<Vec<Tensor>, E> {
        let given = self.outputs.len();
        let walk = self.walk(true);
        let mut saved: Vec<Tensor> = Vec::new();
        for (node, _) in walk.nodes.iter().filter(|(_, place)| *place == Place::Inside) {
            let value = Tensor::from_node(node.clone());
            if keeps(&value)? {
                saved.push(value);
            }
        }
        let saves = saved.len() as u32;
        self.outputs.extend(saved);
        let control = Control { mode: CallMode::Checkpoint, saves, ..Control::default() };
        let mut results = record_call(control, &self, operands)?;
        results.truncate(given);
        Ok(results)
    }

    /// The function, to be called again; None if it draws random numbers or refers to tensors outside,
    /// which another call may find to be others.
    pub fn recording(&self) -> Option<Recording> {
        let walk = self.walk(true);
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

    /// The results of the function at `operands`, as one op whose derivatives and batches are those of
    /// the function. Compiled, the function takes its place and is fused with what is around it.
    ///
    /// Errors: [`Error::Record`].
    #[track_caller]
    pub fn call(&self, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        record_call(Control::default(), self, operands)
    }
}

/// Records a call.
#[track_caller]
fn record_call(control: Control, body: &Body, operands: &[Tensor]) -> Result<Vec<Tensor>> {
    let walk = body.walk(true);
    let mut captures = Captures::default();
    walk.capture(body, &mut captures);
    at_least_one(operands, &mut captures);
    let control = control.with_regions(vec![walk.region(body, &captures)]);
    record(OpCode::Call, control, &with_captures(operands.iter().cloned(), &captures))
}

/// The results of `f` at `operands`, differentiated by computing `f` again instead of keeping its
/// values (rematerialisation): for the memory of deep networks. See [`Saved`].
///
/// Errors: those of `f`.
///
/// ```
/// use girih::{Saved, Tensor, checkpoint, grad};
///
/// let block = |x: &[Tensor]| Ok(vec![x[0].sin()?.exp()?]);
/// let loss = |x: &[Tensor]| checkpoint(block, Saved::Nothing, x)?[0].sum(None, false);
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

/// The results of `f` at `operands` as one op: an op of a user that is made of other ops. It is printed
/// and kept in files as a call of a region; derivatives and batches follow from the region, and compiled
/// the region takes the call's place.
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
/// let slope = grad(|x| call(swish, x)?[0].sum(None, false))(&[x])?;
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

/// The same values, which no pass merges with anything on the other side: they are computed before
/// what uses them, as one unit each side. Derivatives go through.
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

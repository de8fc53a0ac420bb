//! Calls: checkpoints, whose values are computed again for the derivative, and functions with
//! derivative rules of their own.

use super::functions::traced;
use super::{Body, Captures, Place, Walk, at_least_one, record, with_captures};
use crate::node::Node;
use crate::{Error, Result, Tensor};
use girih_ir::ops::control::{CallMode, Control};
use girih_ir::ops::{Attrs, Class};
use girih_ir::{OpCode, TensorSpec};
use std::sync::Arc;

/// Which values of a checkpointed function its derivative keeps instead of computing them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Saved {
    /// None but the arguments.
    #[default]
    Nothing,
    /// Results of matrix products and convolutions, which cost most.
    Products,
}

fn is_product(node: &Node) -> bool {
    node.code().def().class == Class::Contraction || matches!(node.attrs(), Attrs::Conv(_))
}

impl Body {
    /// The results of the function at `operands`, one for each placeholder. Its reverse-mode
    /// derivative computes the function again, but for the values that `policy` names and `more`,
    /// which are tensors that the function recorded. Random draws of the function are drawn once.
    ///
    /// Errors: [`Error::Record`].
    #[track_caller]
    pub fn checkpoint(
        mut self,
        operands: &[Tensor],
        policy: Saved,
        more: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let given = self.outputs.len();
        let inside = |walk: &Walk, tensor: &Tensor| {
            let own = |(node, place): &(Arc<Node>, Place)| {
                Arc::ptr_eq(node, tensor.node()) && *place == Place::Inside
            };
            walk.nodes.iter().any(own)
        };
        let walk = self.walk(true);
        let mut saved: Vec<Tensor> = more.iter().filter(|t| inside(&walk, t)).cloned().collect();
        if policy == Saved::Products {
            let products = walk.nodes.iter().filter(|(_, place)| *place == Place::Inside);
            let products = products.filter(|(node, _)| is_product(node));
            saved.extend(products.map(|(node, _)| Tensor::from_node(node.clone())));
        }
        let saves = saved.len() as u32;
        self.outputs.extend(saved);
        let control = Control { mode: CallMode::Checkpoint, saves, ..Control::default() };
        let mut results = record_call(control, &self, &[], operands)?;
        results.truncate(given);
        Ok(results)
    }

    /// The results of the function at `operands`, as one op whose derivatives and batches are those of
    /// the function. Compiled, the function takes its place and is fused with what is around it.
    ///
    /// Errors: [`Error::Record`].
    #[track_caller]
    pub fn call(&self, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        record_call(Control::default(), self, &[], operands)
    }

    /// The results of the function at `operands`, differentiated by `rule`: a function of the same
    /// arguments and of a tangent for each floating-point or complex one, which gives the results and
    /// a tangent for each floating-point or complex result. Reverse mode uses the rule's transpose.
    ///
    /// Errors: [`Error::Record`] for a rule that takes or gives other values.
    #[track_caller]
    pub fn custom_jvp(&self, rule: &Body, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        record_call(Control::default(), self, &[(rule, operands.len())], operands)
    }

    /// The results of the function at `operands`, differentiated by a reverse rule: `forward` takes the
    /// arguments and gives the results, then residuals; `backward` takes the residuals, then a
    /// cotangent for each floating-point or complex result, and gives one for each such argument.
    ///
    /// Errors: [`Error::Record`] for a rule that takes or gives other values.
    #[track_caller]
    pub fn custom_vjp(
        &self,
        forward: &Body,
        backward: &Body,
        operands: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let rules = [(forward, operands.len()), (backward, 0)];
        record_call(Control::default(), self, &rules, operands)
    }
}

/// Records a call. Each rule comes with the number of its placeholders that stand for operands.
#[track_caller]
fn record_call(
    control: Control,
    body: &Body,
    rules: &[(&Body, usize)],
    operands: &[Tensor],
) -> Result<Vec<Tensor>> {
    let bodies: Vec<(&Body, usize)> =
        rules.iter().copied().chain([(body, body.placeholders.len())]).collect();
    let walks: Vec<Walk> = bodies.iter().map(|(b, _)| b.walk(true)).collect();
    let mut captures = Captures::default();
    for (walk, (body, _)) in walks.iter().zip(&bodies) {
        walk.capture(body, &mut captures);
    }
    at_least_one(operands, &mut captures);
    let specs: Vec<TensorSpec> = operands.iter().map(Tensor::spec).collect();
    let region = |(walk, &(body, own)): (&Walk, &(&Body, usize))| {
        let (first, rest) = body.placeholders.split_at(own);
        // A rule that does not take the operands has inputs for them that it does not use.
        let unused = if own == 0 { &specs[..] } else { &[] };
        let arguments = first.iter().map(|p| (p.spec(), Some(p.node().clone())));
        let captured = captures.nodes.iter().map(|n| (n.spec(), Some(n.clone())));
        let further = rest.iter().map(|p| (p.spec(), Some(p.node().clone())));
        let unused = unused.iter().map(|spec| (spec.clone(), None));
        walk.region_of(body, unused.chain(arguments).chain(captured).chain(further))
    };
    let regions = walks.iter().zip(&bodies).map(region).collect();
    let carries = if rules.is_empty() { 0 } else { operands.len() as u32 };
    let control = Control { carries, ..control }.with_regions(regions);
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
    traced(&specs, f)?.checkpoint(operands, policy, &[])
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
    record_call(Control { mode: CallMode::Isolated, ..Control::default() }, &body, &[], operands)
}

/// The results of `f` at `operands`, differentiated by `rule` instead of through `f`. The rule is a
/// function of the operands and of a tangent for each floating-point or complex one; it gives the
/// results and their tangents, and is linear in the tangents.
///
/// Errors: [`Error::Record`] for a rule that gives other values; those of both functions.
///
/// ```
/// use girih::{Tensor, custom_jvp, grad};
///
/// // A clamp through which gradients pass unchanged.
/// let through = |x: &[Tensor]| {
///     let f = |x: &[Tensor]| Ok(vec![x[0].minimum(1.0)?]);
///     let rule = |x: &[Tensor], t: &[Tensor]| Ok((vec![x[0].minimum(1.0)?], vec![t[0].clone()]));
///     custom_jvp(f, rule, x)?[0].sum(None, false)
/// };
/// let x = Tensor::from_slice(&[0.5f32, 3.0], [2])?;
/// assert_eq!(grad(through)(&[x])?[0].to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn custom_jvp(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    rule: impl FnOnce(&[Tensor], &[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)>,
    operands: &[Tensor],
) -> Result<Vec<Tensor>> {
    let specs: Vec<TensorSpec> = operands.iter().map(Tensor::spec).collect();
    let inexact = specs.iter().filter(|s| s.dtype.is_inexact());
    let all: Vec<TensorSpec> = specs.iter().chain(inexact).cloned().collect();
    let body = traced(&specs, f)?;
    let rule = traced(&all, |x| {
        let (operands, tangents) = x.split_at(specs.len());
        let (mut outputs, tangents) = rule(operands, tangents)?;
        outputs.extend(tangents);
        Ok(outputs)
    })?;
    body.custom_jvp(&rule, operands)
}

/// The results of `f` at `operands`, differentiated in reverse by a rule instead of through `f`.
/// `forward` gives the results and residuals; `backward` takes the residuals and a cotangent for each
/// floating-point or complex result, and gives one for each such operand.
///
/// Errors: [`Error::Record`] for rules that give other values; those of the functions;
/// [`Error::Transform`] when it is differentiated in forward mode.
#[track_caller]
pub fn custom_vjp(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    forward: impl FnOnce(&[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)>,
    backward: impl FnOnce(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>>,
    operands: &[Tensor],
) -> Result<Vec<Tensor>> {
    let specs: Vec<TensorSpec> = operands.iter().map(Tensor::spec).collect();
    let body = traced(&specs, f)?;
    let forward = traced(&specs, |x| {
        let (mut outputs, residuals) = forward(x)?;
        outputs.extend(residuals);
        Ok(outputs)
    })?;
    let given = body.outputs.len();
    let Some(residuals) = forward.outputs.get(given..) else {
        let found = forward.outputs.len();
        return Err(Error::InvalidArgument(format!(
            "custom_vjp: the forward part gives {found} values; expected the {given} results and \
             residuals"
        )));
    };
    let count = residuals.len();
    let cotangents = body.outputs.iter().filter(|t| t.dtype().is_inexact());
    let all: Vec<TensorSpec> = residuals.iter().chain(cotangents).map(Tensor::spec).collect();
    let backward = traced(&all, |x| {
        let (residuals, cotangents) = x.split_at(count);
        backward(residuals, cotangents)
    })?;
    body.custom_vjp(&forward, &backward, operands)
}

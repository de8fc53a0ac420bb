//! Functions with custom derivative rules. The rules are functions that are traced on placeholders
//! when a derivative of the call is taken, and not before.

use super::functions::traced;
use super::{Body, Captures, Invariant, RegionRole, at_least_one, record, with_captures};
use crate::{Error, Result, Tensor, outside};
use girih_ir::ops::control::{Control, Recorded, Rules, RulesLater};
use girih_ir::ops::host::HostFailure;
use girih_ir::{Graph, NodeId, OpCode, TensorSpec};
use girih_record::axes::BoundAxis;
use girih_record::context::Context;
use girih_record::order::ancestors;
use girih_record::{Node, State};
use girih_sync::foreign;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// The derivative rules of a function, for front ends whose functions are not Rust closures: see
/// [`Body::with_rules`].
pub trait DerivativeRules: Send + Sync {
    /// The function's name, for messages.
    fn name(&self) -> &str;

    /// True for one forward-mode rule, from which reverse mode follows; false for the two parts of
    /// a reverse-mode rule.
    fn is_forward(&self) -> bool;

    /// Traces the rules on placeholders, for arguments of these specs. A forward rule takes the
    /// arguments and a tangent for each floating-point or complex argument; it returns the results
    /// and a tangent for each floating-point or complex result. The first part of a reverse rule
    /// takes the arguments and returns the results, then residuals. The second part takes the
    /// residuals and a cotangent for each floating-point or complex result, and returns a cotangent
    /// for each floating-point or complex argument.
    ///
    /// Errors: those of the functions.
    fn run(&self, arguments: &[TensorSpec]) -> Result<Vec<Body>, HostFailure>;
}

/// The derivative rules of one call.
struct OfCall {
    rules: Arc<dyn DerivativeRules>,
    /// The number of the function's arguments, which are the leading operands of the call.
    arguments: usize,
    /// The nodes of the other operands.
    known: Vec<Arc<Node>>,
    /// The named batch axes at the call of the function.
    axes: Vec<BoundAxis>,
}

impl Rules for OfCall {
    fn name(&self) -> &str {
        self.rules.name()
    }

    fn is_forward(&self) -> bool {
        self.rules.is_forward()
    }

    fn record(&self, operands: &[TensorSpec]) -> Result<Recorded, HostFailure> {
        foreign::assert_allowed();
        let context = Context::current();
        let mut frame = context.frame();
        let missing = self.axes.iter().filter(|axis| !context.axes().iter().any(|a| a.is(axis)));
        for axis in missing.collect::<Vec<_>>() {
            frame = frame.with_axis(axis.clone());
        }
        context.within(frame, || self.recorded(operands))
    }
}

impl OfCall {
    fn recorded(&self, operands: &[TensorSpec]) -> Result<Recorded, HostFailure> {
        let (arguments, known) = operands.split_at(self.arguments);
        let failed = |error: Error| HostFailure::new(error.to_string()).with_payload(error);
        let bodies = self.rules.run(arguments)?;
        let region = |body: &Body, takes_arguments: bool| {
            let (own, further) = match takes_arguments {
                true => body.placeholders.split_at(arguments.len()),
                false => (&[][..], &body.placeholders[..]),
            };
            let own = own.iter().map(|p| Some(p.node().clone()));
            let own = own.chain(std::iter::repeat(None)).zip(arguments);
            let mut inputs: Vec<(TensorSpec, Option<Arc<Node>>)> =
                own.map(|(node, spec)| (spec.clone(), node)).collect();
            inputs.extend(known.iter().cloned().zip(self.known.iter().cloned().map(Some)));
            inputs.extend(further.iter().map(|p| (p.spec(), Some(p.node().clone()))));
            body.rule(inputs).map_err(failed)
        };
        match &bodies[..] {
            [rule] => Ok(Recorded::Jvp(region(rule, true)?)),
            [forward, backward] => {
                let (forward, backward) = (region(forward, true)?, region(backward, false)?);
                Ok(Recorded::Vjp { forward, backward })
            }
            _ => Err(HostFailure::new(format!("{} rules; expected one or two", bodies.len()))),
        }
    }
}

/// Whether a tensor depends on a placeholder of a function being traced, so that it has no value.
fn is_traced(tensor: &Tensor) -> bool {
    let placeholder =
        |node: &Arc<Node>| node.code() == OpCode::Input && matches!(*node.state(), State::Leaf);
    ancestors(&[tensor], |_| false).iter().any(placeholder)
}

impl Body {
    /// The graph of a rule that a transform records. `inputs` are the graph's inputs in order, each
    /// with the node that it stands for. Other tensors from outside are leaves of the graph
    /// ([`girih_ir::Op::outside`]).
    ///
    /// Errors: [`Error::InvalidArgument`] if a tensor from outside is used and no transform is
    /// active.
    fn rule(&self, inputs: Vec<(TensorSpec, Option<Arc<Node>>)>) -> Result<Graph> {
        let walk = self.walk(Invariant::Inside);
        let mut graph = Graph::new();
        let mut ids: FxHashMap<*const Node, NodeId> = FxHashMap::default();
        for (spec, node) in inputs {
            let id = graph.leaf(OpCode::Input.into(), spec);
            if let Some(node) = node {
                ids.insert(Arc::as_ptr(&node), id);
            }
        }
        let mut captures = Captures::default();
        walk.capture(self, &mut captures);
        for node in &captures.nodes {
            if ids.contains_key(&Arc::as_ptr(node)) {
                continue;
            }
            let constant = node.is_constant() && node.op().attrs != girih_ir::Attrs::None;
            let op = match constant {
                true => node.op(),
                false => girih_ir::Op::outside(outside::number(node)?),
            };
            ids.insert(Arc::as_ptr(node), graph.leaf(op, node.spec()));
        }
        for (node, place) in &walk.nodes {
            let id = match place {
                _ if ids.contains_key(&Arc::as_ptr(node)) => continue,
                RegionRole::Inside => {
                    let mut inputs: SmallVec<[NodeId; 3]> = SmallVec::new();
                    node.state().for_each_input(|i| inputs.push(ids[&Arc::as_ptr(i)]));
                    graph.push_unchecked(node.op(), &inputs, node.spec())
                }
                RegionRole::Copied => graph.leaf(node.op(), node.spec()),
                RegionRole::Draw | RegionRole::Outside => continue,
            };
            ids.insert(Arc::as_ptr(node), id);
        }
        graph.set_outputs(self.outputs.iter().map(|t| ids[&Arc::as_ptr(t.node())]));
        Ok(graph)
    }

    /// The graph of a rule whose inputs are the placeholders; see [`girih_ir::Op::outside`].
    ///
    /// Errors: [`Error::InvalidArgument`] for random draws; for tensors from outside if no
    /// transform is active.
    pub fn to_rule(&self) -> Result<Graph> {
        if let Some((draw, _)) =
            self.walk(Invariant::Inside).nodes.iter().find(|(n, _)| self.start.draws(n))
        {
            return Err(Error::InvalidArgument(format!(
                "a batching rule draws random numbers ({}); draw by keys of gr.random, or outside",
                draw.code().def().name
            )));
        }
        let inputs = self.placeholders.iter().map(|p| (p.spec(), Some(p.node().clone())));
        self.rule(inputs.collect())
    }

    /// The results of the function for `operands`, differentiated by rules that are traced when a
    /// derivative is taken. `referred` are tensors that the rules may use. Those that depend on
    /// placeholders of functions being traced become operands of the call, so that the call's
    /// batching rule batches them.
    ///
    /// Errors: [`Error::Record`].
    #[track_caller]
    pub fn with_rules(
        &self,
        rules: Arc<dyn DerivativeRules>,
        operands: &[Tensor],
        referred: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let axes = Context::current().axes();
        let walk = self.walk(Invariant::Inside);
        let mut captures = Captures::default();
        walk.capture(self, &mut captures);
        let is_operand = |t: &Tensor| operands.iter().any(|o| o.is_same(t));
        let members: Vec<Tensor> =
            axes.iter().map(|axis| Tensor::from_node(axis.index().clone())).collect();
        for tensor in referred.iter().chain(&members) {
            if !is_operand(tensor) && is_traced(tensor) {
                captures.add(tensor.node());
            }
        }
        at_least_one(operands, &mut captures);
        let region = walk.region(self, &captures);
        let known = captures.nodes.clone();
        let rules = Arc::new(OfCall { rules, arguments: operands.len(), known, axes });
        let control = Control {
            carries: operands.len() as u32,
            later: Some(RulesLater::new(rules)),
            ..Control::default()
        };
        let control = control.with_regions(vec![region]);
        record(OpCode::Call, control, &with_captures(operands.iter().cloned(), &captures))
    }
}

/// A forward rule given as a closure.
struct Jvp<R>(R);

fn failure(error: Error) -> HostFailure {
    HostFailure::new(error.to_string()).with_payload(error)
}

impl<R> DerivativeRules for Jvp<R>
where
    R: Fn(&[Tensor], &[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)> + Send + Sync,
{
    fn name(&self) -> &str {
        "custom_jvp"
    }

    fn is_forward(&self) -> bool {
        true
    }

    fn run(&self, arguments: &[TensorSpec]) -> Result<Vec<Body>, HostFailure> {
        let inexact = arguments.iter().filter(|s| s.dtype.is_inexact());
        let all: Vec<TensorSpec> = arguments.iter().chain(inexact).cloned().collect();
        let rule = traced(&all, |x| {
            let (operands, tangents) = x.split_at(arguments.len());
            let (mut outputs, tangents) = (self.0)(operands, tangents)?;
            outputs.extend(tangents);
            Ok(outputs)
        });
        Ok(vec![rule.map_err(failure)?])
    }
}

/// The two parts of a reverse rule given as closures, for a function with results of these specs.
struct Vjp<F, B> {
    forward: F,
    backward: B,
    results: Vec<TensorSpec>,
}

impl<F, B> DerivativeRules for Vjp<F, B>
where
    F: Fn(&[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)> + Send + Sync,
    B: Fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync,
{
    fn name(&self) -> &str {
        "custom_vjp"
    }

    fn is_forward(&self) -> bool {
        false
    }

    fn run(&self, arguments: &[TensorSpec]) -> Result<Vec<Body>, HostFailure> {
        let forward = traced(arguments, |x| {
            let (mut outputs, residuals) = (self.forward)(x)?;
            outputs.extend(residuals);
            Ok(outputs)
        });
        let forward = forward.map_err(failure)?;
        let given = self.results.len();
        let Some(residuals) = forward.outputs.get(given..) else {
            let found = forward.outputs.len();
            return Err(HostFailure::new(format!(
                "the forward part gives {found} values; expected the {given} results and residuals"
            )));
        };
        let count = residuals.len();
        let cotangents = forward.outputs[..given].iter().filter(|t| t.dtype().is_inexact());
        let all: Vec<TensorSpec> = residuals.iter().chain(cotangents).map(Tensor::spec).collect();
        let backward = traced(&all, |x| {
            let (residuals, cotangents) = x.split_at(count);
            (self.backward)(residuals, cotangents)
        });
        Ok(vec![forward, backward.map_err(failure)?])
    }
}

/// The results of `f` for `operands`, differentiated by `rule` instead of through `f`. The rule
/// takes the operands and a tangent for each floating-point or complex operand. It returns the
/// results and their tangents, and must be linear in the tangents. The rule is called when a
/// derivative is taken, and may call the function itself, so that derivatives of all orders use the
/// rule.
///
/// A captured tensor that is differentiated or batched must be passed as an operand.
///
/// Errors: [`Error::Record`]; those of `f`. When a derivative is taken: those of the rule, and
/// [`Error::Transform`] for a rule that returns values of other specs.
///
/// ```
/// use girih::{Tensor, custom_jvp, grad};
///
/// // A clamp through which gradients pass unchanged.
/// let through = |x: &[Tensor]| {
///     let f = |x: &[Tensor]| Ok(vec![x[0].minimum(1.0)?]);
///     let rule = |x: &[Tensor], t: &[Tensor]| Ok((vec![x[0].minimum(1.0)?], vec![t[0].clone()]));
///     custom_jvp(f, rule, x)?[0].sum_all()
/// };
/// let x = Tensor::from_slice(&[0.5f32, 3.0], [2])?;
/// assert_eq!(grad(through)(&[x])?[0].to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn custom_jvp(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    rule: impl Fn(&[Tensor], &[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)> + Send + Sync + 'static,
    operands: &[Tensor],
) -> Result<Vec<Tensor>> {
    let specs: Vec<TensorSpec> = operands.iter().map(Tensor::spec).collect();
    traced(&specs, f)?.with_rules(Arc::new(Jvp(rule)), operands, &[])
}

/// The results of `f` for `operands`, differentiated in reverse mode by a rule instead of through
/// `f`. `forward` returns the results and residuals. `backward` takes the residuals and a cotangent
/// for each floating-point or complex result, and returns a cotangent for each such operand. Both
/// functions are called when a derivative is taken; `forward` then replaces `f`.
///
/// A captured tensor that is differentiated or batched must be passed as an operand.
///
/// Errors: [`Error::Record`]; those of `f`. When a derivative is taken: those of the rule, and
/// [`Error::Transform`] for rules that return values of other specs, and for forward mode.
///
/// ```
/// use girih::{Tensor, custom_vjp, grad};
///
/// // The gradient is halved.
/// let halved = |x: &[Tensor]| {
///     let forward = |x: &[Tensor]| Ok((x.to_vec(), Vec::new()));
///     let backward = |_: &[Tensor], ct: &[Tensor]| Ok(vec![ct[0].mul(0.5)?]);
///     custom_vjp(|x| Ok(x.to_vec()), forward, backward, x)?[0].sum_all()
/// };
/// let x = Tensor::from_slice(&[0.5f32, 3.0], [2])?;
/// assert_eq!(grad(halved)(&[x])?[0].to_vec::<f32>()?, [0.5, 0.5]);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn custom_vjp(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    forward: impl Fn(&[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)> + Send + Sync + 'static,
    backward: impl Fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    operands: &[Tensor],
) -> Result<Vec<Tensor>> {
    let specs: Vec<TensorSpec> = operands.iter().map(Tensor::spec).collect();
    let body = traced(&specs, f)?;
    let results = body.outputs.iter().map(Tensor::spec).collect();
    body.with_rules(Arc::new(Vjp { forward, backward, results }), operands, &[])
}

//! Forward-mode derivatives: rewrites a graph with a tangent for each value that depends on the
//! varying arguments.
//!
//! An op's JVP rule follows from its VJP rule. The VJP rule is linear in the cotangent, so its
//! transpose maps the operands' tangents to the result's tangent (Townsend 2017, "A new trick for
//! calculating Jacobian vector products"). Reverse mode itself computes the transpose, on a graph
//! of one op. Branches and loops get regions that compute values and tangents in one pass, so that
//! a loop runs once and saves nothing of its iterations.

mod regions;

use crate::Result;
use crate::control::{self, Calls};
use crate::effects;
use crate::reverse::cotangents;
use crate::rules::{self, Mode};
use girih_ir::ops::control::{CallRules, Control, ControlOp};
use girih_ir::ops::{Class, Derivative, Vjp};
use girih_ir::{Graph, GraphBuilder, Node, NodeId, Op};
use std::collections::HashMap;
use std::sync::Arc;

/// The id that stands for no node: see [`Transformed::map`].
pub const DEAD: NodeId = NodeId(u32::MAX);

/// A graph that a transform has rewritten.
#[derive(Debug)]
pub struct Transformed {
    /// The new graph.
    pub graph: Graph,
    /// For each node of the old graph, the node of the new graph with its value; [`DEAD`] for ops
    /// that no output needs.
    pub map: Vec<NodeId>,
    /// Arguments that only the new graph has, in the order that the transform specifies.
    pub added: Vec<NodeId>,
}

/// The graph with the Jacobian-vector products of its outputs: for each output, the derivative
/// along the tangents of the nodes `wrt`.
///
/// The new graph's outputs are those of `graph`, then a tangent for each of them with the output's
/// spec. The tangent is zero if the output does not depend on `wrt` or is neither floating-point
/// nor complex. The added arguments are the tangents of `wrt` in order, with these nodes' specs.
///
/// Errors: [`WrtNotFloat`](crate::Error::WrtNotFloat), [`UnknownNode`](crate::Error::UnknownNode),
/// [`NoDerivative`](crate::Error::NoDerivative).
///
/// Cost: linear in the nodes; loops run once.
pub fn jvp(graph: &Graph, wrt: &[NodeId]) -> Result<Transformed> {
    with_tangents(graph, wrt, false)
}

/// As [`jvp`], but the values do not depend on the tangents. A loop appears twice, once for its
/// values alone, so that other tangents do not require recomputing the values.
///
/// Errors: as [`jvp`].
pub fn linearize(graph: &Graph, wrt: &[NodeId]) -> Result<Transformed> {
    with_tangents(graph, wrt, true)
}

fn with_tangents(graph: &Graph, wrt: &[NodeId], apart: bool) -> Result<Transformed> {
    crate::reverse::check_wrt(graph, wrt)?;
    let graph = &*rules::settle(graph, graph.outputs(), wrt, Mode::Forward)?;
    let mut b = GraphBuilder::default();
    let arguments: Vec<NodeId> = graph.arguments().map(|id| copy_leaf(&mut b, graph, id)).collect();
    let added: Vec<NodeId> = wrt.iter().map(|&id| b.input(graph.spec(id).clone())).collect();
    let mut forward = Forward::new(&mut b, graph);
    forward.apart = apart;
    for (&id, &tangent) in wrt.iter().zip(&added) {
        forward.seed(id, tangent)?;
    }
    forward.run(&arguments)?;
    let Forward { primals, tangents, .. } = forward;
    let values: Vec<NodeId> = graph.outputs().iter().map(|o| primals[o.index()]).collect();
    let mut outputs = values.clone();
    for (&output, value) in graph.outputs().iter().zip(values) {
        outputs.push(tangents[output.index()].unwrap_or_else(|| b.zeros_like(value)));
    }
    Ok(Transformed { graph: b.finish(outputs), map: primals, added })
}

/// A copy of an argument or a constant.
pub(crate) fn copy_leaf(b: &mut GraphBuilder, graph: &Graph, id: NodeId) -> NodeId {
    let node = graph.node(id);
    b.leaf(node.op.clone(), node.spec.clone())
}

/// The state of rewriting one graph.
struct Forward<'a> {
    b: &'a mut GraphBuilder,
    graph: &'a Graph,
    calls: Calls,
    /// For each node, its value.
    primals: Vec<NodeId>,
    /// For each node, its tangent; `None` for a node that does not vary.
    tangents: Vec<Option<NodeId>>,
    /// Branches and loops whose regions compute tangents, by their first result.
    done: HashMap<NodeId, Varying>,
    /// The results of branches and loops as the graph has them, by first result and index.
    own: HashMap<(NodeId, usize), NodeId>,
    /// Whether branches and loops additionally compute their values without tangents.
    apart: bool,
}

/// A call whose regions compute tangents in addition to values.
struct Varying {
    control: Arc<Control>,
    operands: Vec<NodeId>,
    /// For each old result, its new index, and the index of its tangent.
    results: Vec<(usize, Option<usize>)>,
}

impl<'a> Forward<'a> {
    fn new(b: &'a mut GraphBuilder, graph: &'a Graph) -> Forward<'a> {
        let (primals, tangents) = (vec![DEAD; graph.len()], vec![None; graph.len()]);
        let (calls, done) = (Calls::of(graph), HashMap::new());
        let own = HashMap::new();
        Forward { b, graph, calls, primals, tangents, done, own, apart: false }
    }

    /// Adds a tangent to a node.
    fn seed(&mut self, id: NodeId, tangent: NodeId) -> Result<()> {
        let before = self.tangents[id.index()];
        self.tangents[id.index()] = Some(match before {
            Some(before) => self.b.add(before, tangent)?,
            None => tangent,
        });
        Ok(())
    }

    /// Rewrites all nodes, with these arguments.
    fn run(&mut self, arguments: &[NodeId]) -> Result<()> {
        let (mut arguments, live) = (arguments.iter(), self.graph.live());
        for (id, node) in self.graph.nodes() {
            if !live[id.index()] && node.op.class() != Class::Leaf {
                continue;
            }
            self.b.record_as(self.graph, id);
            let value = match node.op.class() {
                _ if node.op.takes_argument() => *arguments.next().expect("all are given"),
                Class::Leaf => copy_leaf(self.b, self.graph, id),
                Class::Control => {
                    self.control(id, node)?;
                    continue;
                }
                _ => {
                    let inputs = self.values(&node.inputs).into();
                    self.b.append(Node { op: node.op.clone(), inputs, spec: node.spec.clone() })
                }
            };
            self.primals[id.index()] = value;
            let varies = node.inputs.iter().any(|i| self.tangents[i.index()].is_some());
            if varies && self.tangents[id.index()].is_none() && node.spec.dtype.is_inexact() {
                self.tangents[id.index()] = self.tangent(node, value)?;
            }
        }
        Ok(())
    }

    fn values(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        nodes.iter().map(|id| self.primals[id.index()]).collect()
    }

    fn tangents(&self, nodes: &[NodeId]) -> Vec<Option<NodeId>> {
        nodes.iter().map(|id| self.tangents[id.index()]).collect()
    }

    fn tangent(&mut self, node: &Node, value: NodeId) -> Result<Option<NodeId>> {
        let (inputs, tangents) = (self.values(&node.inputs), self.tangents(&node.inputs));
        match node.op.def().derivative {
            Derivative::Zero(_) => Ok(None),
            Derivative::Refused(reason) => Err(control::refused(node.op.name(), reason)),
            Derivative::Rule(rule) => transposed(self.b, node, rule, value, &inputs, &tangents),
            Derivative::Decompose => decomposed(self.b, node, &inputs, &tangents),
            Derivative::Regions => unreachable!("ops of control are seen to before"),
        }
    }

    /// Rewrites a result of a branch or loop, with its tangent.
    fn control(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let leader = self.calls.leader(id);
        if !self.done.contains_key(&leader) {
            let varying = self.varying(leader, node)?;
            self.done.insert(leader, varying);
        }
        let (result, _) = node.op.as_control().expect("the op is one of control");
        if self.apart {
            self.primals[id.index()] = self.own_result(leader, node, result)?;
        }
        let call = &self.done[&leader];
        let (value, tangent) = call.results[result];
        let mut emit = |result| {
            let op = Op::control(node.op.code, call.control.clone(), result);
            self.b.emit(op, &call.operands)
        };
        let tangent = tangent.map(&mut emit).transpose()?;
        if !self.apart {
            self.primals[id.index()] = emit(value)?;
        }
        self.tangents[id.index()] = tangent;
        Ok(())
    }

    /// A result of a branch or loop as the graph has it. Each result of a call has one node, since
    /// a second one might become another call with the same effect.
    fn own_result(&mut self, leader: NodeId, node: &Node, result: usize) -> Result<NodeId> {
        if let Some(&id) = self.own.get(&(leader, result)) {
            return Ok(id);
        }
        let (_, control) = node.op.as_control().expect("the op is one of control");
        let (op, inputs) =
            (Op::control(node.op.code, control.clone(), result), self.values(&node.inputs));
        let id = self.b.emit(op, &inputs)?;
        self.own.insert((leader, result), id);
        Ok(id)
    }

    /// A call without its ops with an effect, whose values it takes as operands, and the operands
    /// with their tangents.
    #[allow(clippy::type_complexity, reason = "the parts of a call")]
    fn separated(
        &mut self,
        leader: NodeId,
        node: &Node,
        code: ControlOp,
    ) -> Result<(Arc<Control>, Vec<NodeId>, Vec<Option<NodeId>>)> {
        let (_, control) = node.op.as_control().expect("the op is one of control");
        let (mut inputs, mut tangents) = (self.values(&node.inputs), self.tangents(&node.inputs));
        let skip = (code == ControlOp::Cond) as usize;
        let saved = effects::outputs(control, effects::first(code, control));
        let operands = inputs[skip..].iter().map(|&id| self.b.spec(id));
        let specs = effects::operand_specs(control, operands);
        let new = Arc::new(effects::separated(code, control, &specs, &saved)?);
        let at = skip + effects::position(code, control, specs.len());
        for (i, &number) in saved.iter().enumerate() {
            inputs.insert(at + i, self.own_result(leader, node, number)?);
            tangents.insert(at + i, None);
        }
        Ok((new, inputs, tangents))
    }

    fn varying(&mut self, leader: NodeId, node: &Node) -> Result<Varying> {
        let (_, control) = node.op.as_control().expect("the op is one of control");
        let (mut inputs, mut tangents) = (self.values(&node.inputs), self.tangents(&node.inputs));
        if tangents.iter().all(Option::is_none) {
            let results = (0..control.num_results(node.op.code)).map(|r| (r, None)).collect();
            return Ok(Varying { control: control.clone(), operands: inputs, results });
        }
        let code = node.op.code.control().expect("the op is one of control");
        let mut control = control.clone();
        let derived = code != ControlOp::Call || matches!(control.call_rules(), CallRules::Derived);
        if self.apart && node.op.has_effect() && derived {
            (control, inputs, tangents) = self.separated(leader, node, code)?;
        }
        match code {
            ControlOp::Cond => regions::branch(self.b, &control, &inputs, &tangents),
            ControlOp::Call => regions::called(self.b, &control, &inputs, &tangents),
            ControlOp::WhileLoop | ControlOp::Scan => {
                regions::repeated(self.b, &control, &inputs, &tangents)
            }
        }
    }
}

/// The tangent of an op's result, by the transpose of its VJP rule.
fn transposed(
    b: &mut GraphBuilder,
    node: &Node,
    rule: fn(&mut Vjp<'_>) -> girih_ir::Result<girih_ir::ops::Cotangents>,
    value: NodeId,
    inputs: &[NodeId],
    tangents: &[Option<NodeId>],
) -> Result<Option<NodeId>> {
    let mut r = GraphBuilder::default();
    let mut arguments = Vec::with_capacity(2 * inputs.len() + 2);
    let operands: Vec<NodeId> = inputs
        .iter()
        .map(|&id| match b.graph().literal(id) {
            // Copy constants, since rules may inspect them.
            Some(value) => r.constant(value, b.shape(id).clone()),
            None => {
                arguments.push(id);
                r.input(b.spec(id).clone())
            }
        })
        .collect();
    let output = r.input(node.spec.clone());
    let ct = r.input(node.spec.clone());
    // The transpose does not depend on the cotangent, so any node of its spec will do.
    arguments.extend([value, value]);
    let wanted: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let given = rule(&mut Vjp {
        b: &mut r,
        op: node.op.clone(),
        inputs: &operands,
        wanted: &wanted,
        output,
        ct,
    })?;
    let (mut outputs, mut along) = (Vec::new(), Vec::new());
    for (cotangent, tangent) in given.into_iter().zip(tangents) {
        if let (Some(cotangent), &Some(tangent)) = (cotangent, tangent) {
            along.push(r.input(b.spec(tangent).clone()));
            outputs.push(cotangent);
            arguments.push(tangent);
        }
    }
    if outputs.is_empty() {
        return Ok(None);
    }
    let graph = cotangents(&r.finish([]), &outputs, &along, &[ct])?;
    let linear = !graph.live()[ct.index()];
    debug_assert!(linear, "the reverse rule of {} is not linear in the cotangent", node.op.name());
    if !linear {
        let reason = "the reverse rule is not linear in the cotangent, so no forward rule follows";
        return Err(control::refused(node.op.name(), reason));
    }
    Ok(Some(b.inline(&control::trimmed(&graph), &arguments)?[0]))
}

/// The tangent of a composite, by its decomposition.
fn decomposed(
    b: &mut GraphBuilder,
    node: &Node,
    inputs: &[NodeId],
    tangents: &[Option<NodeId>],
) -> Result<Option<NodeId>> {
    let mut r = GraphBuilder::default();
    let operands: Vec<NodeId> = inputs.iter().map(|&id| r.input(b.spec(id).clone())).collect();
    let result = r.decompose(&node.op, &operands)?;
    let definition = r.finish([result]);
    Ok(along(b, &definition, inputs, tangents)?[0].1)
}

/// Rewrites a graph with these values and tangents of its arguments; returns the values and
/// tangents of its outputs.
fn along(
    b: &mut GraphBuilder,
    graph: &Graph,
    arguments: &[NodeId],
    tangents: &[Option<NodeId>],
) -> Result<Vec<(NodeId, Option<NodeId>)>> {
    let mut forward = Forward::new(b, graph);
    for (id, tangent) in graph.arguments().zip(tangents) {
        if let Some(tangent) = *tangent {
            forward.seed(id, tangent)?;
        }
    }
    forward.run(arguments)?;
    let outputs = graph.outputs().iter();
    Ok(outputs.map(|o| (forward.primals[o.index()], forward.tangents[o.index()])).collect())
}

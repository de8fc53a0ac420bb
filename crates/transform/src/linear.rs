//! Checks that a program is linear in some of its values, which its transpose requires. The check
//! uses the linearity of each op's definition
//! ([`OpDef::is_linear_in`](girih_ir::ops::OpDef::is_linear_in)).

use girih_ir::graph::Node;
use girih_ir::ops::control::ControlOp;
use girih_ir::{Graph, NodeId, OpCode};
use smallvec::SmallVec;
use std::sync::Arc;

/// The first op in a program that is not linear in operands which depend on the values of interest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} is not linear in {}", listed(.operands))]
pub struct NotLinear {
    /// The node. For an op within a region, the node that runs the region.
    pub node: NodeId,
    /// Name of the op.
    pub op: &'static str,
    /// Positions of the operands, from 0.
    pub operands: Vec<usize>,
}

fn listed(operands: &[usize]) -> String {
    let numbers: Vec<String> = operands.iter().map(|at| (at + 1).to_string()).collect();
    match &*numbers {
        [only] => format!("operand {only}"),
        _ => format!("operands {} together", numbers.join(" and ")),
    }
}

/// How a value depends on the values of interest.
#[derive(Clone, Debug, PartialEq)]
enum Dependence {
    None,
    Linear,
    /// Nonlinearly; the first nonlinear op on the path.
    Other(Arc<NotLinear>),
}

impl Dependence {
    /// The combined dependence of a value that may be either of two values.
    fn or(&self, other: &Dependence) -> Dependence {
        match (self, other) {
            (Dependence::Other(_), _) | (_, Dependence::None) => self.clone(),
            _ => other.clone(),
        }
    }
}

/// Checks that the outputs of a graph are jointly linear in the values of the nodes `wrt`, up to
/// added constants.
///
/// Errors: the first op that is not linear.
///
/// Cost: linear in the nodes; the body of a loop is visited until the dependence of its carries is
/// a fixed point.
pub fn check_linear(graph: &Graph, wrt: &[NodeId]) -> Result<(), NotLinear> {
    let mut values = vec![Dependence::None; graph.len()];
    wrt.iter().for_each(|id| values[id.index()] = Dependence::Linear);
    for found in follow(graph, values) {
        if let Dependence::Other(cause) = found {
            return Err((*cause).clone());
        }
    }
    Ok(())
}

/// The dependence of the outputs, given the dependence of some nodes.
fn follow(graph: &Graph, mut values: Vec<Dependence>) -> Vec<Dependence> {
    for (id, node) in graph.nodes() {
        if values[id.index()] == Dependence::None {
            let given: Vec<Dependence> =
                node.inputs.iter().map(|input| values[input.index()].clone()).collect();
            values[id.index()] = of_node(id, node, &given);
        }
    }
    graph.outputs().iter().map(|id| values[id.index()].clone()).collect()
}

fn of_node(id: NodeId, node: &Node, given: &[Dependence]) -> Dependence {
    let marked: SmallVec<[bool; 4]> = given.iter().map(|d| *d != Dependence::None).collect();
    if !marked.contains(&true) || node.op.code == OpCode::StopGradient {
        return Dependence::None;
    }
    if let Some(op) = node.op.code.control() {
        return of_control(id, node, op, given);
    }
    if let Some(earlier) = given.iter().find(|d| matches!(d, Dependence::Other(_))) {
        return earlier.clone();
    }
    match node.spec.dtype.is_inexact() && node.op.def().is_linear_in(&node.op, &marked) {
        true => Dependence::Linear,
        false => not_linear(id, node, marked.iter().enumerate().filter(|(_, m)| **m).map(|m| m.0)),
    }
}

fn not_linear(node: NodeId, of: &Node, operands: impl Iterator<Item = usize>) -> Dependence {
    let (op, operands) = (of.op.name(), operands.collect());
    Dependence::Other(Arc::new(NotLinear { node, op, operands }))
}

/// The dependence of a result of a control op.
fn of_control(id: NodeId, node: &Node, op: ControlOp, given: &[Dependence]) -> Dependence {
    let (number, control) = node.op.as_control().expect("an op of control has a control");
    let regions = &control.regions[..];
    let found = match op {
        ControlOp::Call => of_region(regions.last(), given)[number].clone(),
        // A predicate is an integer or bool, so its dependence is never linear.
        ControlOp::Cond if given[0] != Dependence::None => given[0].clone(),
        ControlOp::Cond => {
            let branches = regions.iter().map(|branch| of_region(Some(branch), &given[1..]));
            let branches: Vec<_> = branches.map(|branch| branch[number].clone()).collect();
            branches.iter().fold(Dependence::None, |found, branch| found.or(branch))
        }
        ControlOp::WhileLoop | ControlOp::Scan => {
            let carries = control.carries as usize;
            let (carried, results) = of_loop(regions.last(), carries, given);
            let condition = match op {
                ControlOp::WhileLoop => of_region(regions.first(), &carried)[0].clone(),
                _ => Dependence::None,
            };
            match condition {
                // The number of iterations depends on the values, so the loop is not linear.
                Dependence::Linear => not_linear(id, node, 0..carries),
                Dependence::Other(_) => condition,
                // The last results of a scan are its carries' histories.
                Dependence::None if number >= results.len() => {
                    carried[number - results.len()].clone()
                }
                Dependence::None if number < carries => carried[number].clone(),
                Dependence::None => results[number].clone(),
            }
        }
    };
    match found {
        Dependence::Other(_) if given.contains(&found) => found,
        // Name the op within the region, but the node that the user recorded.
        Dependence::Other(cause) => {
            Dependence::Other(Arc::new(NotLinear { node: id, ..(*cause).clone() }))
        }
        found => found,
    }
}

/// The dependence of a loop's body operands after any number of iterations, and of its results.
fn of_loop(
    body: Option<&Graph>,
    carries: usize,
    given: &[Dependence],
) -> (Vec<Dependence>, Vec<Dependence>) {
    let mut given = given.to_vec();
    loop {
        let results = of_region(body, &given);
        let before = given.clone();
        for (given, result) in given[..carries].iter_mut().zip(&results) {
            *given = given.or(result);
        }
        // The dependence of each carry changes at most twice.
        if given == before {
            return (given, results);
        }
    }
}

/// The dependence of the outputs of a region, given the dependence of its inputs.
fn of_region(region: Option<&Graph>, given: &[Dependence]) -> Vec<Dependence> {
    let Some(region) = region else { return Vec::new() };
    let mut values = vec![Dependence::None; region.len()];
    for (input, given) in region.arguments().zip(given) {
        values[input.index()] = given.clone();
    }
    follow(region, values)
}

//! Whether a program is linear in some of its values: what its transpose needs to exist. Follows from what
//! the definitions of the ops say ([`OpDef::is_linear_in`](girih_ir::ops::OpDef::is_linear_in)).

use girih_ir::graph::Node;
use girih_ir::ops::control::ControlOp;
use girih_ir::{Graph, NodeId, OpCode};
use smallvec::SmallVec;
use std::sync::Arc;

/// The first op in a program that is not linear in operands which depend on what the program is to be
/// linear in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} is not linear in {}", listed(.operands))]
pub struct NotLinear {
    /// The node; of an op within a region, the node that runs the region.
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

/// How a value depends on the values that the program is to be linear in.
#[derive(Clone, Debug, PartialEq)]
enum Dependence {
    None,
    Linear,
    /// Not linearly, since the first op on the way is not linear.
    Other(Arc<NotLinear>),
}

impl Dependence {
    /// That of a value which is one of two, or of which nothing else is known.
    fn or(&self, other: &Dependence) -> Dependence {
        match (self, other) {
            (Dependence::Other(_), _) | (_, Dependence::None) => self.clone(),
            _ => other.clone(),
        }
    }
}

/// Checks that the outputs of a graph are linear in the values of the nodes `wrt` together, up to constants
/// that are added.
///
/// Errors: the first op that is not.
///
/// Cost: linear in the nodes; the body of a loop is gone through until what its carries depend on stays
/// the same.
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

/// How the outputs depend, where the values of some nodes depend as they are said to.
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

/// How the result depends that a node of control is.
fn of_control(id: NodeId, node: &Node, op: ControlOp, given: &[Dependence]) -> Dependence {
    let (number, control) = node.op.as_control().expect("an op of control has a control");
    let regions = &control.regions[..];
    let found = match op {
        ControlOp::Call => of_region(regions.last(), given)[number].clone(),
        // A choice by integers, which nothing depends on linearly.
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
                // The number of iterations depends on the values.
                Dependence::Linear => not_linear(id, node, 0..carries),
                Dependence::Other(_) => condition,
                // A scan's last results are the values of its carries in all iterations.
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
        // Of the op within the region, as the node that a user recorded.
        Dependence::Other(cause) => {
            Dependence::Other(Arc::new(NotLinear { node: id, ..(*cause).clone() }))
        }
        found => found,
    }
}

/// How the operands of a loop's body depend after any number of iterations, and its results.
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
        // Each carry changes twice at most.
        if given == before {
            return (given, results);
        }
    }
}

/// How the outputs of a region depend, with its inputs as they are said to.
fn of_region(region: Option<&Graph>, given: &[Dependence]) -> Vec<Dependence> {
    let Some(region) = region else { return Vec::new() };
    let mut values = vec![Dependence::None; region.len()];
    for (input, given) in region.arguments().zip(given) {
        values[input.index()] = given.clone();
    }
    follow(region, values)
}

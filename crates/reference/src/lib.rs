//! The reference evaluator, which defines the meaning of a graph by the simplest loops. Tests
//! compare all other implementations with it. Elementwise ops are computed by [`girih_ir::scalar`],
//! as in constant folding, so that one module defines their meaning. [`matrix`] dispatches the ops on
//! matrices to `girih-linalg`, for the executors as well: factors of matrices are not unique, so
//! another implementation would compute other factors.
//!
//! Values are faithful to their dtype: half floats are rounded after each op and summed in f32, f32
//! is computed in f32, integers wrap. The evaluator is slow and not meant to run programs.
#![forbid(unsafe_code)]

mod control;
mod fourier;
mod library;
pub mod matrix;
mod structure;

use girih_ir::ops::{Attrs, Class};
use girih_ir::{Array, Error, Graph, Literal, Node, NodeId, OpCode, Result, scalar};

/// Evaluates a graph's outputs. `arguments` are the values of [`Graph::arguments`], in order. The
/// argument of a random leaf is the leaf's value; a run-time scalar is an array of its node's shape
/// or a scalar. Composites are evaluated by their decompositions.
///
/// Errors: [`Error::InvalidArgument`] for missing arguments or arguments of a wrong spec,
/// [`Error::IndexOutOfBounds`] for an index out of bounds.
pub fn evaluate(graph: &Graph, arguments: &[Array]) -> Result<Vec<Array>> {
    let decomposed = graph.decomposed()?;
    let graph = decomposed.as_ref().unwrap_or(graph);
    let live = graph.live();
    let mut arguments = arguments.iter();
    let mut values: Vec<Option<Array>> = vec![None; graph.len()];
    for (id, node) in graph.nodes() {
        let argument = if node.op.takes_argument() {
            Some(arguments.next().ok_or_else(|| misfit(node, "nothing"))?)
        } else {
            None
        };
        if !live[id.index()] {
            continue;
        }
        let value = match argument {
            Some(argument) => bind(node, argument)?,
            None => {
                let operand = |i: &NodeId| {
                    values[i.index()].as_ref().expect("operands of live nodes are evaluated before")
                };
                compute(node, &node.inputs.iter().map(operand).collect::<Vec<_>>())?
            }
        };
        values[id.index()] = Some(value);
    }
    let output = |o: &NodeId| values[o.index()].clone().expect("outputs are live");
    Ok(graph.outputs().iter().map(output).collect())
}

fn misfit(node: &Node, found: &str) -> Error {
    let reason = format!("an argument of spec {} is expected, got {found}", node.spec);
    Error::InvalidArgument { op: node.op.name(), reason }
}

fn bind(node: &Node, argument: &Array) -> Result<Array> {
    if argument.spec() == &node.spec {
        return Ok(argument.clone());
    }
    let spec = argument.spec();
    if node.op.code == OpCode::Constant && spec.numel() == 1 && spec.dtype == node.spec.dtype {
        return Ok(Array::splat(node.spec.clone(), argument.get(0)));
    }
    Err(misfit(node, &spec.to_string()))
}

fn compute(node: &Node, operands: &[&Array]) -> Result<Array> {
    match node.op.class() {
        Class::Leaf => Ok(leaf(node)),
        Class::Elementwise => Ok(elementwise(node, operands)),
        Class::Reduction => Ok(structure::reduce(node, operands[0])),
        Class::Contraction => Ok(structure::matmul(node, operands[0], operands[1])),
        Class::View | Class::Reshape => Ok(structure::view(node, operands[0])),
        Class::Combine => Ok(structure::combine(node, operands)),
        Class::Index => structure::index(node, operands),
        Class::Library => library::routine(node, operands),
        Class::Control => control::run(node, operands),
        Class::Composite => unreachable!("composites are replaced by their definitions before"),
    }
}

fn leaf(node: &Node) -> Array {
    let dtype = node.spec.dtype;
    match node.op.attrs {
        Attrs::Value(bits) => Array::splat(node.spec.clone(), Literal { dtype, bits }),
        Attrs::Axis(axis) => Array::from_fn(node.spec.clone(), |index| {
            Literal::from_i64(dtype, index[axis as usize] as i64)
        }),
        _ => unreachable!("all other leaves take an argument"),
    }
}

fn elementwise(node: &Node, operands: &[&Array]) -> Array {
    let mut args = Vec::with_capacity(operands.len());
    Array::from_fn(node.spec.clone(), |index| {
        args.clear();
        args.extend(operands.iter().map(|x| x.broadcast_at(index)));
        scalar::apply(&node.op, node.spec.dtype, &args)
    })
}

#[cfg(test)]
mod tests;

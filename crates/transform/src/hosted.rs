//! The VJP rule of a batched custom op: the op's own rule for one member, batched.

use crate::batch::{self, vmap};
use crate::{Error, Result};
use girih_ir::graph::Node;
use girih_ir::ops::host::HostCall;
use girih_ir::ops::{Cotangents, Vjp};
use girih_ir::{AxisSet, Dim, Graph, GraphBuilder, NodeId, Op, Shape, TensorSpec};
use std::sync::Arc;

type Rule = fn(&mut Vjp<'_>) -> girih_ir::Result<Cotangents>;

/// The cotangents of a call's operands from the cotangent of its result, if the op is called once
/// for each member of a batch; `None` for all other nodes.
///
/// Errors: the errors of the rule; an error for an op without a rule.
pub(crate) fn cotangents(
    b: &mut GraphBuilder,
    node: &Node,
    ct: NodeId,
    wanted: &[bool],
    rule: Rule,
) -> Result<Option<Cotangents>> {
    let Some((result, call)) = node.op.as_host() else { return Ok(None) };
    if call.levels().next().is_none() {
        return Ok(None);
    }
    let operands: Vec<TensorSpec> = node.inputs.iter().map(|&i| b.spec(i).clone()).collect();
    let (mut graph, positions) = of_member(call, result, &operands, wanted, rule)?;
    for (size, batched) in call.levels().rev() {
        graph = on_batch(&graph, size, batched, &positions)?;
    }
    let given: Vec<NodeId> = node.inputs.iter().copied().chain([ct]).collect();
    let mut cotangents = Cotangents::from_elem(None, operands.len());
    for (at, id) in positions.into_iter().zip(b.inline(&graph, &given)?) {
        cotangents[at] = Some(id);
    }
    Ok(Some(cotangents))
}

/// The graph from the operands of one member and the cotangent of its result to the cotangents of
/// the operands, and the positions of the operands with a cotangent.
fn of_member(
    call: &HostCall,
    result: usize,
    operands: &[TensorSpec],
    wanted: &[bool],
    rule: Rule,
) -> Result<(Graph, Vec<usize>)> {
    let member = call.member();
    let mut b = GraphBuilder::default();
    let mut inputs = Vec::with_capacity(operands.len());
    for (at, spec) in operands.iter().enumerate() {
        let levels = call.levels().filter(|(_, batched)| batched[at]).count();
        let shape: Shape = spec.shape.dims().skip(levels).collect();
        inputs.push(b.input(TensorSpec { shape, dtype: spec.dtype }));
    }
    let ct = b.input(member.results()[result].clone());
    let op = Op::host(Arc::new(member), result);
    let output = b.emit(op.clone(), &inputs)?;
    let found = rule(&mut Vjp { b: &mut b, op, inputs: &inputs, wanted, output, ct })?;
    let found = found.into_iter().enumerate().filter_map(|(at, id)| Some((at, id?)));
    let (positions, outputs): (Vec<usize>, Vec<NodeId>) = found.unzip();
    Ok((b.finish(outputs), positions))
}

/// Adds one batch level to the graph. The cotangent of an unbatched operand is the sum of the
/// members' cotangents.
fn on_batch(graph: &Graph, size: Dim, batched: &[bool], positions: &[usize]) -> Result<Graph> {
    let marks: Vec<bool> = batched.iter().copied().chain([true]).collect();
    let (transformed, marked) = vmap(graph, &marks, size)?;
    let outputs = transformed.graph.outputs().to_vec();
    let mut b = GraphBuilder::from_graph(transformed.graph);
    let fitting = |((&id, marked), &at): ((&NodeId, bool), &usize)| {
        let whole = match marked {
            true => id,
            false => b.broadcast_to(id, batch::with_batch(size, &b.shape(id).clone()))?,
        };
        match batched[at] {
            true => Ok(whole),
            false => Ok(b.sum(whole, AxisSet::one(0), false)?),
        }
    };
    let outputs: Vec<NodeId> =
        outputs.iter().zip(marked).zip(positions).map(fitting).collect::<Result<_, Error>>()?;
    Ok(b.finish(outputs))
}

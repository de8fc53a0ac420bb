//! Rotation of a loop by the padding of a carry: a carry that each iteration pads is carried padded,
//! so the iteration that computes the carry also writes it in its border. An explicit step of a
//! partial differential equation then reads and writes one array, where it read and wrote three.

use super::{Loop, Loops, Users, is_computed};
use girih_ir::graph::Operands;
use girih_ir::ops::control::Control;
use girih_ir::ops::{Attrs, Class, PadDim, SliceDim};
use girih_ir::{Graph, GraphBuilder, NodeId, Op, OpCode, Result, Shape};
use std::sync::Arc;

pub(super) fn run(graph: &Graph, loops: &Loops) -> Result<Option<Graph>> {
    let padded: Vec<Vec<Padded>> = loops.all.iter().map(padded_carries).collect();
    if padded.iter().all(Vec::is_empty) {
        return Ok(None);
    }
    let controls: Result<Vec<Arc<Control>>> =
        loops.all.iter().zip(&padded).map(|(of, padded)| rotated(of, padded)).collect();
    let controls = controls?;
    let mut inputs: Vec<Option<Operands>> = vec![None; loops.all.len()];
    graph.rewrite_nodes(|b, id, node| {
        let Some(&(at, result)) = loops.of_node.get(&id) else { return Ok(None) };
        if padded[at].is_empty() {
            return Ok(None);
        }
        if inputs[at].is_none() {
            let mut operands = node.inputs.clone();
            for Padded { carry, pad, .. } in &padded[at] {
                operands[*carry] = b.emit(pad.clone(), &[operands[*carry]])?;
            }
            inputs[at] = Some(operands);
        }
        let operands = inputs[at].as_ref().expect("they were just made");
        let op = Op::control(OpCode::Scan, controls[at].clone(), result);
        let value = b.emit(op, operands)?;
        match padded[at].iter().find(|padded| padded.carry == result) {
            Some(padded) => padded.inner(b, value).map(Some),
            None => Ok(Some(value)),
        }
    })
}

/// A carry that is to be carried padded.
struct Padded {
    carry: usize,
    /// The op that pads the carry, and the nodes of the body that do so.
    pad: Op,
    nodes: Vec<NodeId>,
    /// The carry's shape without the padding.
    shape: Shape,
}

impl Padded {
    /// The carry, from the padded carry.
    fn inner(&self, b: &mut GraphBuilder, padded: NodeId) -> Result<NodeId> {
        let widths = widths(&self.pad).iter();
        let dims = widths.zip(self.shape.hints()).map(|(width, &size)| {
            let start = width.low;
            SliceDim { start, size, step: 1 }
        });
        b.emit(Op::new(OpCode::Slice, Attrs::slice(dims.collect(), &self.shape)), &[padded])
    }
}

/// The widths of a pad.
fn widths(pad: &Op) -> &[PadDim] {
    let Attrs::Pad(pad) = &pad.attrs else { unreachable!("pad carries widths") };
    &pad.0
}

/// The carries of a scan that its body pads at the borders, computes, and otherwise only reads
/// element by element. The history of such a carry would be larger if it was padded, so the graph
/// must not need it.
fn padded_carries(of: &Loop) -> Vec<Padded> {
    let body = of.body();
    let users = Users::of(body);
    let history = |carry: usize| of.results.contains(&(body.outputs().len() + carry));
    let borders = |op: &Op| op.code == OpCode::Pad && widths(op).iter().all(|w| w.interior == 0);
    let reads = |id: NodeId| {
        let node = body.node(id);
        node.op.class() == Class::Elementwise || matches!(node.op.code, OpCode::Pad | OpCode::Slice)
    };
    let padded = |(carry, id): (usize, NodeId)| {
        let (of_carry, shape) = (&users.of[id.index()], &body.spec(id).shape);
        let pad = of_carry.iter().map(|&user| &body.node(user).op).find(|op| borders(op))?;
        let computed = is_computed(body.node(body.outputs()[carry]));
        let read = users.outputs[id.index()] == 0 && of_carry.iter().all(|&user| reads(user));
        let moves = computed && read && !shape.is_symbolic() && !history(carry);
        let same = |user: &NodeId| body.node(*user).op == *pad;
        let nodes = of_carry.iter().copied().filter(same).collect();
        moves.then(|| Padded { carry, pad: pad.clone(), nodes, shape: shape.clone() })
    };
    body.arguments().take(of.carries()).enumerate().filter_map(padded).collect()
}

/// The scan's regions with padded carries.
fn rotated(of: &Loop, padded: &[Padded]) -> Result<Arc<Control>> {
    if padded.is_empty() {
        return Ok(of.control.clone());
    }
    let body = of.body();
    let mut b = GraphBuilder::default();
    let mut map: Vec<Option<NodeId>> = vec![None; body.len()];
    let mut inner: Vec<(NodeId, &Padded)> = Vec::new();
    for (argument, id) in body.arguments().enumerate() {
        let padded = padded.iter().find(|padded| padded.carry == argument);
        let spec = body.spec(padded.map_or(id, |padded| padded.nodes[0]));
        let input = b.input(spec.clone());
        map[id.index()] = Some(input);
        if let Some(padded) = padded {
            padded.nodes.iter().for_each(|node| map[node.index()] = Some(input));
            inner.push((id, padded));
        }
    }
    for (id, padded) in inner {
        let input = map[id.index()].expect("every argument has an input");
        map[id.index()] = Some(padded.inner(&mut b, input)?);
    }
    let mut outputs = b.copy_nodes(body, map, body.outputs());
    for Padded { carry, pad, .. } in padded {
        outputs[*carry] = b.emit(pad.clone(), &[outputs[*carry]])?;
    }
    Ok(Arc::new((*of.control).clone().with_regions(vec![b.finish(outputs)])))
}

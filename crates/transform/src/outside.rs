//! Lifts captured tensors. Recorded rules refer to tensors outside by leaves; in the graphs and
//! regions of a derivative these leaves become operands, so that regions are closed again.

use girih_ir::ops::Class;
use girih_ir::ops::control::{Control, ControlOp};
use girih_ir::{Graph, GraphBuilder, Node, NodeId, Op, OpCode, TensorSpec};
use std::collections::HashMap;
use std::sync::Arc;

/// The tensors that regions capture, each once, with their specs.
type Keys = Vec<(u64, TensorSpec)>;

fn collect(graph: &Graph, keys: &mut Keys) {
    for (_, node) in graph.nodes() {
        if let Some(key) = node.op.as_outside()
            && !keys.iter().any(|(known, _)| *known == key)
        {
            keys.push((key, node.spec.clone()));
        }
        if let Some((_, control)) = node.op.as_control() {
            control.regions.iter().for_each(|region| collect(region, keys));
        }
    }
}

/// Lifts the captured tensors of a control op with `operands` operands. Returns the control with
/// one more operand for each tensor that its regions capture, and the numbers of these tensors;
/// `None` if there are none.
pub fn lift_control(
    code: OpCode,
    control: &Control,
    operands: usize,
) -> Option<(Control, Vec<u64>)> {
    let mut keys = Keys::new();
    control.regions.iter().for_each(|region| collect(region, &mut keys));
    if keys.is_empty() {
        return None;
    }
    // Other inputs of a region, such as tangents, follow.
    let at = match code.control() {
        Some(ControlOp::Cond) => operands - 1,
        Some(ControlOp::WhileLoop | ControlOp::Scan | ControlOp::Call) | None => operands,
    };
    let regions = control.regions.iter().map(|region| lift_region(region, at, &keys)).collect();
    Some((control.with_regions(regions), keys.into_iter().map(|(key, _)| key).collect()))
}

fn lift_region(graph: &Graph, at: usize, keys: &Keys) -> Graph {
    let mut b = GraphBuilder::default();
    let mut known: HashMap<u64, NodeId> = HashMap::new();
    let specs: Vec<TensorSpec> = graph.arguments().map(|id| graph.spec(id).clone()).collect();
    let (first, rest) = specs.split_at(at.min(specs.len()));
    let mut arguments: Vec<NodeId> = first.iter().map(|spec| b.input(spec.clone())).collect();
    for (key, spec) in keys {
        known.insert(*key, b.input(spec.clone()));
    }
    arguments.extend(rest.iter().map(|spec| b.input(spec.clone())));
    let mut arguments = arguments.into_iter();
    let mut argument = |b: &mut GraphBuilder, node: &Node| match node.op.takes_argument() {
        true => arguments.next().expect("they are counted"),
        false => b.leaf(node.op.clone(), node.spec.clone()),
    };
    let map = copied(&mut b, graph, &mut argument, &mut |_, key, _| known[&key]);
    b.finish(graph.outputs().iter().map(|o| map[o.index()]))
}

/// Rewrites a graph with lifted regions; returns the new ids.
fn copied(
    b: &mut GraphBuilder,
    graph: &Graph,
    leaf: &mut dyn FnMut(&mut GraphBuilder, &Node) -> NodeId,
    outside: &mut dyn FnMut(&mut GraphBuilder, u64, &TensorSpec) -> NodeId,
) -> Vec<NodeId> {
    let mut map: Vec<NodeId> = Vec::with_capacity(graph.len());
    let mut lifted: HashMap<(*const Control, usize), (Arc<Control>, Keys)> = HashMap::new();
    for (_, node) in graph.nodes() {
        if let Some(key) = node.op.as_outside() {
            map.push(outside(b, key, &node.spec));
            continue;
        }
        if node.op.class() == Class::Leaf {
            map.push(leaf(b, node));
            continue;
        }
        let mut inputs: Vec<NodeId> = node.inputs.iter().map(|i| map[i.index()]).collect();
        let mut op = node.op.clone();
        if let Some((result, control)) = node.op.as_control() {
            let count = inputs.len();
            let entry = lifted.entry((Arc::as_ptr(control), count)).or_insert_with(|| {
                let mut keys = Keys::new();
                control.regions.iter().for_each(|region| collect(region, &mut keys));
                match lift_control(op.code, control, count) {
                    Some((new, _)) => (Arc::new(new), keys),
                    None => (control.clone(), keys),
                }
            });
            inputs.extend(entry.1.iter().map(|(key, spec)| outside(b, *key, spec)));
            op = Op::control(op.code, entry.0.clone(), result);
        }
        map.push(b.append(Node { op, inputs: inputs.into(), spec: node.spec.clone() }));
    }
    map
}

/// A graph with inputs for the tensors that it captures.
#[derive(Debug)]
pub struct Lifted {
    /// The graph.
    pub graph: Graph,
    /// For each node of the old graph, its id in the new one.
    pub map: Vec<NodeId>,
    /// The added inputs, with the numbers of the tensors.
    pub outside: Vec<(NodeId, u64)>,
}

/// Replaces the tensors that a graph captures by inputs.
pub fn lift(graph: &Graph) -> Lifted {
    let mut b = GraphBuilder::default();
    let mut found: Vec<(NodeId, u64)> = Vec::new();
    let mut leaf = |b: &mut GraphBuilder, node: &Node| b.leaf(node.op.clone(), node.spec.clone());
    let mut outside = |b: &mut GraphBuilder, key: u64, spec: &TensorSpec| {
        let known = found.iter().find(|(_, known)| *known == key).map(|(id, _)| *id);
        known.unwrap_or_else(|| {
            let id = b.input(spec.clone());
            found.push((id, key));
            id
        })
    };
    let map = copied(&mut b, graph, &mut leaf, &mut outside);
    let graph = b.finish(graph.outputs().iter().map(|o| map[o.index()]));
    Lifted { graph, map, outside: found }
}

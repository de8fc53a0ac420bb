//! Code motion between scans and the graph around them, in four rewrites.
//!
//! - [`share`]: the scan of a derivative recomputes matmuls from the history of its forward scan.
//!   Instead the forward scan stacks them (common subexpression elimination across two loops).
//! - [`hoist`]: loop-invariant code motion out of the body (Aho et al., *Compilers*, section 9.5).
//! - [`sink`]: a carry that only accumulates matmuls becomes one matmul of their stacked operands
//!   after the loop.
//! - [`pads`]: a carry that each iteration pads is carried padded (loop rotation).
//!
//! Only the bodies determine which ops move. The set of used results has no influence, since
//! evaluating a value early must not change its bits. ([`pads`] keeps all bits, and depends on them.)
//!
//! Laws. Never worse: no matmul is computed more often. A stacked value trades memory for
//! computation; a checkpoint of the body prevents it. Terminates: each change removes an op from a
//! body, or the pad of a carry. Not exact for floats: one matmul over all iterations sums in
//! another order than one matmul for each iteration, within the error bound of either order. Shared
//! and invariant values keep their bits.

mod hoist;
mod pads;
mod share;
mod sink;

use crate::Pass;
use girih_ir::graph::Operands;
use girih_ir::ops::control::{Control, ControlOp};
use girih_ir::ops::{Attrs, Class};
use girih_ir::{Graph, GraphBuilder, Node, NodeId, Op, OpCode, Result, Shape, TensorSpec};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The pass that this module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopMotion;

impl Pass for LoopMotion {
    fn name(&self) -> &str {
        "loop_motion"
    }

    fn run(&self, graph: &Graph) -> Result<Option<Graph>> {
        let mut current: Option<Graph> = None;
        // After a rewrite, a rewrite that ran before it may apply, so repeat them.
        loop {
            let mut changed = false;
            for rewrite in [share::run, hoist::run, sink::run, pads::run] {
                let loops = Loops::of(current.as_ref().unwrap_or(graph));
                if loops.all.is_empty() {
                    return Ok(current);
                }
                if let Some(next) = rewrite(current.as_ref().unwrap_or(graph), &loops)? {
                    (current, changed) = (Some(next), true);
                }
            }
            if !changed {
                return Ok(current);
            }
        }
    }
}

/// A scan: its regions, its operands, and which of its results the graph uses.
struct Loop {
    control: Arc<Control>,
    inputs: Operands,
    /// Indices of the results that have live nodes.
    results: Vec<usize>,
}

impl Loop {
    fn body(&self) -> &Graph {
        self.control.body()
    }

    fn carries(&self) -> usize {
        self.control.carries as usize
    }

    /// One past the last sliced operand.
    fn slices_end(&self) -> usize {
        self.carries() + self.control.slices as usize
    }

    /// The kind of operand that an argument of the body is.
    fn kind(&self, argument: usize) -> Kind {
        match argument {
            a if a < self.carries() => Kind::Carry,
            a if a < self.slices_end() => Kind::Slice,
            _ => Kind::Captured,
        }
    }

    /// The body's nodes that depend only on captured operands and constants.
    fn invariants(&self) -> Vec<bool> {
        let body = self.body();
        let mut invariant = vec![false; body.len()];
        for (argument, id) in body.arguments().enumerate() {
            invariant[id.index()] = self.kind(argument) == Kind::Captured;
        }
        for (id, node) in body.nodes() {
            if !node.op.takes_argument() {
                invariant[id.index()] = node.inputs.iter().all(|i| invariant[i.index()]);
            }
        }
        invariant
    }
}

/// How a scan uses an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Carry,
    Slice,
    Captured,
}

/// The scans of a graph, in the order of their first nodes.
struct Loops {
    all: Vec<Loop>,
    /// For each node that is a result of a scan, the scan and the index of the result.
    of_node: FxHashMap<NodeId, (usize, usize)>,
}

impl Loops {
    fn of(graph: &Graph) -> Loops {
        let mut loops = Loops { all: Vec::new(), of_node: FxHashMap::default() };
        if graph.nodes().all(|(_, node)| node.op.code != OpCode::Scan) {
            return loops;
        }
        let live = graph.live();
        let mut known: FxHashMap<(Op, &[NodeId]), usize> = FxHashMap::default();
        for (id, node) in graph.nodes().filter(|(id, _)| live[id.index()]) {
            let Some((result, control)) = node.op.as_control() else { continue };
            if node.op.code.control() != Some(ControlOp::Scan) {
                continue;
            }
            let key = (node.op.with_result(0), &node.inputs[..]);
            let at = *known.entry(key).or_insert_with(|| {
                let (control, inputs) = (control.clone(), node.inputs.clone());
                loops.all.push(Loop { control, inputs, results: Vec::new() });
                loops.all.len() - 1
            });
            loops.all[at].results.push(result);
            loops.of_node.insert(id, (at, result));
        }
        loops
    }

    /// Rewrites the graph with edited scans. `operand` returns new operands of a scan, as nodes of
    /// the new graph. `replaced` returns the replacement of a result that the scan no longer has.
    fn rewrite(
        &self,
        graph: &Graph,
        edits: &[Edit],
        mut operand: impl FnMut(&mut GraphBuilder, &Moved<'_>, usize, usize) -> Result<NodeId>,
        mut replaced: impl FnMut(&mut GraphBuilder, &Moved<'_>, usize, usize) -> Result<Option<NodeId>>,
    ) -> Result<Option<Graph>> {
        let new: Vec<Arc<Control>> = self.all.iter().zip(edits).map(|(l, e)| e.apply(l)).collect();
        let mut inputs: Vec<Option<Operands>> = vec![None; self.all.len()];
        graph.rewrite_nodes(|b, id, node| {
            let Some(&(at, result)) = self.of_node.get(&id) else { return Ok(None) };
            let (edit, old) = (&edits[at], &self.all[at]);
            if inputs[at].is_none() {
                let moved = Moved { old: &node.inputs, inputs: &inputs, controls: &new };
                let (front, captured) = node.inputs.split_at(old.slices_end());
                let mut all = Operands::from_slice(front);
                for which in 0..edit.slices.len() {
                    all.push(operand(b, &moved, at, which)?);
                }
                all.extend_from_slice(captured);
                for which in edit.slices.len()..edit.slices.len() + edit.captured.len() {
                    all.push(operand(b, &moved, at, which)?);
                }
                inputs[at] = Some(all);
            }
            let moved = Moved { old: &node.inputs, inputs: &inputs, controls: &new };
            if let Some(id) = replaced(b, &moved, at, result)? {
                return Ok(Some(id));
            }
            match edit.is_empty() {
                true => Ok(None),
                false => moved.result(b, at, edit.renumbered(old, result)).map(Some),
            }
        })
    }
}

/// The nodes of the new graph that an edit may refer to.
struct Moved<'a> {
    /// The old operands of the current scan.
    old: &'a [NodeId],
    inputs: &'a [Option<Operands>],
    controls: &'a [Arc<Control>],
}

impl Moved<'_> {
    /// A result of an edited scan, by its new index.
    fn result(&self, b: &mut GraphBuilder, at: usize, number: usize) -> Result<NodeId> {
        let inputs = self.inputs[at].as_ref().expect("an edited scan comes before its users");
        b.emit(Op::control(OpCode::Scan, self.controls[at].clone(), number), inputs)
    }
}

/// How the body of a scan changes.
#[derive(Default)]
struct Edit {
    /// Nodes of the body that become slices of new operands, in the operands' order.
    slices: Vec<NodeId>,
    /// Nodes of the body that become new captured operands, in the operands' order.
    captured: Vec<NodeId>,
    /// Nodes that the body additionally returns and that the scan stacks.
    outputs: Vec<NodeId>,
}

impl Edit {
    fn is_empty(&self) -> bool {
        self.slices.is_empty() && self.captured.is_empty() && self.outputs.is_empty()
    }

    /// Index of the result that stacks a node of the body; adds the result if there is none.
    fn stacks(&mut self, of: &Loop, node: NodeId) -> usize {
        let given = of.body().outputs();
        if let Some(at) = given[of.carries()..].iter().position(|&o| o == node) {
            return of.carries() + at;
        }
        let at = self.outputs.iter().position(|&o| o == node).unwrap_or_else(|| {
            self.outputs.push(node);
            self.outputs.len() - 1
        });
        given.len() + at
    }

    /// The new index of a result: histories of carries follow the body's outputs.
    fn renumbered(&self, of: &Loop, result: usize) -> usize {
        let given = of.body().outputs().len();
        if result < given { result } else { result + self.outputs.len() }
    }

    fn apply(&self, of: &Loop) -> Arc<Control> {
        if self.is_empty() {
            return of.control.clone();
        }
        let body = of.body();
        let mut b = GraphBuilder::default();
        let mut map: Vec<Option<NodeId>> = vec![None; body.len()];
        let arguments: Vec<NodeId> = body.arguments().collect();
        let (front, captured) = arguments.split_at(of.slices_end());
        for ids in [front, &self.slices, captured, &self.captured] {
            for id in ids {
                map[id.index()] = Some(b.input(body.spec(*id).clone()));
            }
        }
        let outputs: Vec<NodeId> = body.outputs().iter().chain(&self.outputs).copied().collect();
        let outputs = b.copy_nodes(body, map, &outputs);
        let new = Control {
            slices: of.control.slices + self.slices.len() as u32,
            ..(*of.control).clone()
        };
        Arc::new(new.with_regions(vec![b.finish(outputs)]))
    }
}

/// The live users of a body's nodes.
struct Users {
    /// For each node, its users, once for each use as operand.
    of: Vec<Vec<NodeId>>,
    /// For each node, the number of outputs that are this node.
    outputs: Vec<usize>,
    live: Vec<bool>,
}

impl Users {
    fn of(body: &Graph) -> Users {
        let live = body.live();
        let (mut of, mut outputs) = (vec![Vec::new(); body.len()], vec![0; body.len()]);
        body.outputs().iter().for_each(|o| outputs[o.index()] += 1);
        for (id, node) in body.nodes().filter(|(id, _)| live[id.index()]) {
            node.inputs.iter().for_each(|i| of[i.index()].push(id));
        }
        Users { of, outputs, live }
    }

    fn live(&self, id: NodeId) -> bool {
        self.live[id.index()]
    }

    /// Number of uses of the node as operand or output.
    fn count(&self, id: NodeId) -> usize {
        self.of[id.index()].len() + self.outputs[id.index()]
    }

    /// The only user, if the node is not an output.
    fn only(&self, id: NodeId) -> Option<NodeId> {
        match self.of[id.index()][..] {
            [user] if self.outputs[id.index()] == 0 => Some(user),
            _ => None,
        }
    }
}

/// Number of elements of a value, at the traced sizes.
fn elements(spec: &TensorSpec) -> usize {
    spec.shape.hints().iter().product()
}

/// True for permutations and reshapes.
fn is_view(node: &Node) -> bool {
    matches!(node.op.code, OpCode::Permute | OpCode::Reshape)
}

/// Follows permutations and reshapes from a node to the node that it is a view of.
fn viewed(body: &Graph, mut id: NodeId) -> NodeId {
    while is_view(body.node(id)) {
        id = body.node(id).inputs[0];
    }
    id
}

/// Applies the body's views from an argument to `id` to the argument's operand outside of the scan.
/// If the operand is sliced, the result has the iteration axis in front.
fn view_outside(
    b: &mut GraphBuilder,
    body: &Graph,
    id: NodeId,
    operand: NodeId,
    sliced: bool,
) -> Result<NodeId> {
    let mut chain = Vec::new();
    let mut at = id;
    while is_view(body.node(at)) {
        chain.push(at);
        at = body.node(at).inputs[0];
    }
    let mut value = operand;
    for id in chain.into_iter().rev() {
        let node = body.node(id);
        let lead = sliced as usize;
        value = match node.op.code {
            OpCode::Permute => {
                let Attrs::Perm(perm) = &node.op.attrs else { unreachable!("its attribute") };
                let perm = perm.iter().map(|&axis| axis as usize + lead);
                let perm: Vec<usize> = (0..lead).chain(perm).collect();
                b.permute(value, &perm)?
            }
            _ => {
                let first = sliced.then(|| b.shape(operand).dim(0));
                let shape = first.into_iter().chain(node.spec.shape.dims());
                b.reshape(value, shape.collect::<Shape>())?
            }
        };
    }
    Ok(value)
}

/// True for ops with arithmetic and without a side effect.
fn is_computed(node: &Node) -> bool {
    matches!(node.op.class(), Class::Elementwise | Class::Reduction | Class::Contraction)
}

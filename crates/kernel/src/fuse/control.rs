//! Lowers branches and loops: their regions become programs inside one kernel.
//!
//! An operand that is the same constant at every point, a literal or a run-time scalar, is a
//! constant inside the regions too, so that it takes no memory; a carry starts from it.

use super::buffers::Buffers;
use super::build::argument_positions;
use super::plan::Group;
use super::{LowerError, Lowering};
use crate::control::{Control, Feed, Flow, Splat};
use crate::ir::{Buffer, BufferKind, Core, Kernel, KernelProgram};
use girih_ir::ops::control::ControlOp;
use girih_ir::{DType, Graph, Node, NodeId, OpCode, TensorSpec};
use smallvec::smallvec;

/// The operands of the regions: the index of a branch is not an operand of its regions.
fn operands(node: &Node) -> &[NodeId] {
    match node.op.code {
        OpCode::Cond => &node.inputs[1..],
        _ => &node.inputs,
    }
}

/// The number of operands that iterations replace: none for a call.
fn carries_of(node: &Node) -> usize {
    match node.op.as_control() {
        Some((_, control)) if node.op.code != OpCode::Call => control.carries as usize,
        _ => 0,
    }
}

/// Whether the operand needs no memory.
pub(super) fn is_constant(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).op.code == OpCode::Constant
}

/// The operands of a control op that must be in memory.
pub(super) fn in_memory<'a>(graph: &'a Graph, node: &'a Node) -> impl Iterator<Item = NodeId> + 'a {
    let index = (node.op.code == OpCode::Cond).then(|| node.inputs[0]);
    let rest = operands(node).iter().copied().filter(|&id| !is_constant(graph, id));
    index.into_iter().chain(rest)
}

/// The programs of an op's regions. Arguments of buffers are numbered like the op's operands, and
/// arguments of scalars like the graph's arguments.
///
/// Errors: [`LowerError::Composite`] if a region has a composite; [`LowerError::Region`] if
/// operands and regions do not fit.
pub(super) fn programs(
    lowering: Lowering<'_>,
    id: NodeId,
) -> Result<Vec<KernelProgram>, LowerError> {
    let graph = lowering.graph;
    let node = graph.node(id);
    let (_, control) = node.op.as_control().expect("the op is one of control");
    // The kernel relies on the regions' sizes when it writes to the graph's memory.
    let specs: Vec<&TensorSpec> = node.inputs.iter().map(|&i| graph.spec(i)).collect();
    let fits = node.op.infer(&specs).map(drop);
    fits.map_err(|source| LowerError::Region { node: id, source: Box::new(source) })?;
    let positions = argument_positions(graph);
    let operands = operands(node);
    let carries = carries_of(node);
    let constant = |i: usize| i >= carries && is_constant(graph, operands[i]);
    let program = |region: &Graph| {
        let mut inner = Graph::with_capacity(region.len());
        let (mut next, mut kept) = (0, Vec::new());
        for (_, n) in region.nodes() {
            if !n.op.takes_argument() {
                inner.append(n.clone());
                continue;
            }
            let op =
                if constant(next) { graph.node(operands[next]).op.clone() } else { n.op.clone() };
            if op.takes_argument() {
                kept.push(next);
            }
            inner.append(Node { op, ..n.clone() });
            next += 1;
        }
        inner.set_outputs(region.outputs().iter().copied());
        let mut program = super::run(Lowering { graph: &inner, ..lowering }, None)?.program;
        let scalar = |k: usize| positions[operands[kept[k]].index()] as usize;
        program.renumber_arguments(&scalar, &|k| kept[k]);
        Ok(program)
    };
    // Regions with the derivative rules of a call are not run.
    let skipped = if node.op.code == OpCode::Call { control.regions.len() - 1 } else { 0 };
    control.regions.iter().skip(skipped).map(program).collect()
}

/// The source of a carry or captured value.
fn feed(graph: &Graph, id: NodeId, carry: bool, positions: &[u32], buffers: &mut Buffers) -> Feed {
    let spec = graph.spec(id);
    let value = match graph.literal(id) {
        Some(literal) => Splat::Literal(literal),
        None if is_constant(graph, id) => {
            Splat::Scalar { argument: positions[id.index()] as usize, dtype: spec.dtype }
        }
        None => return Feed::Buffer(buffers.of(graph, id)),
    };
    match carry {
        true => Feed::Splat { value, numel: spec.numel() },
        false => Feed::Nothing,
    }
}

/// The kernel that computes the demanded results of a control op. Its workspace is a buffer.
pub(super) fn kernel(
    graph: &Graph,
    group: &Group,
    programs: Vec<KernelProgram>,
    buffers: &mut Buffers,
) -> Kernel {
    let root = graph.node(group.root);
    let (_, control) = root.op.as_control().expect("the op is one of control");
    let carries = carries_of(root);
    let positions = argument_positions(graph);
    let mut results = Vec::new();
    for &id in &group.stores {
        let (number, _) = graph.node(id).op.as_control().expect("results are of one op");
        if results.len() <= number {
            results.resize(number + 1, None);
        }
        results[number] = Some(buffers.of(graph, id));
    }
    let flow = match root.op.code.control().expect("the op is one of control") {
        ControlOp::Cond => {
            let index = root.inputs[0];
            let dtype = graph.spec(index).dtype;
            Flow::Cond { index: buffers.of(graph, index), dtype }
        }
        ControlOp::Call => Flow::Call,
        ControlOp::WhileLoop => Flow::While,
        ControlOp::Scan => Flow::Scan { length: control.length.get(), reverse: control.reverse },
    };
    let feeds = operands(root).iter().enumerate();
    let feeds = feeds.map(|(i, &id)| feed(graph, id, i < carries, &positions, buffers));
    let operands = feeds.collect();
    let slices = control.slices as usize;
    let mut control =
        Control { flow, carries, slices, operands, results, workspace: None, programs };
    let numel = control.workspace_parts().bytes;
    if numel > 0 {
        let workspace = Buffer { dtype: DType::U8, numel, kind: BufferKind::Computed };
        control.workspace = Some(buffers.add(workspace));
    }
    Kernel {
        name: root.op.name().into(),
        extents: smallvec![1],
        parallel: 1,
        accesses: Vec::new(),
        core: Core::Control(Box::new(control)),
        body: Default::default(),
        stores: Vec::new(),
    }
}

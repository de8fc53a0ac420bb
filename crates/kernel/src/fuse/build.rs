//! Builds the program of a plan: first its kernels, consumers first, then its buffers in the order
//! in which they are written.

use super::kernel::{Builder, Inputs, Rebuild};
use super::memo::Memo;
use super::plan::{self, Group, GroupRole, Plan};
use super::{Lowering, Refusals, control};
use crate::custom;
use crate::ir::{Buffer, BufferId, BufferKind, Core, Item, Kernel, Program, Routine};
use girih_ir::{Class, DType, Graph, NodeId, OpCode};
use smallvec::{SmallVec, smallvec};

/// A program, the nodes of its kernels, and the refusals.
pub(super) struct Built {
    pub program: Program,
    /// The nodes that each kernel computes.
    pub nodes: Vec<Vec<NodeId>>,
    /// The node whose value each buffer holds; `None` for buffers that hold no node's value.
    pub values: Vec<Option<NodeId>>,
    /// The refusals, if they are recorded.
    pub refusals: Refusals,
}

/// Lowers a planned graph.
pub(super) fn program(lowering: Lowering<'_>, mut plan: Plan) -> Built {
    let Lowering { graph, target, .. } = lowering;
    let arguments = argument_positions(graph);
    let mut memo = Memo::new(graph.len());
    let mut kernels: Vec<Kernel> = Vec::with_capacity(plan.groups.len());
    let mut nodes: Vec<Vec<NodeId>> = Vec::with_capacity(plan.groups.len());
    let mut extra: Vec<Buffer> = Vec::new();
    let mut push = |(kernel, computed): (Kernel, Vec<NodeId>), kernels: &mut Vec<Kernel>| {
        kernels.push(kernel);
        nodes.push(computed);
    };
    let mut groups = std::mem::take(&mut plan.groups).into_iter().peekable();
    // This descending order also meets nodes that the plan fused and the builder moved to memory: a
    // kernel moves only nodes to memory that precede its root.
    for id in graph.ids().rev() {
        if !plan.memory[id.index()] || is_argument(graph, id) || graph.spec(id).numel() == 0 {
            continue;
        }
        let mut planned = false;
        while let Some(group) = groups.next_if(|g| g.root == id) {
            planned = true;
            if group.role == GroupRole::Library {
                for kernel in called(graph, &group, plan.programs.remove(&id), &mut extra) {
                    push((kernel, group.stores.to_vec()), &mut kernels);
                }
                continue;
            }
            let mut inputs = Inputs { graph, target, plan: &mut plan, arguments: &arguments };
            push(build(&mut inputs, &mut memo, &group), &mut kernels);
        }
        // Further results of a routine are computed by the kernel of the first one.
        if !planned && !matches!(graph.node(id).op.class(), Class::Library | Class::Control) {
            // A kernel that was built before may store the node as well: remove that store.
            for kernel in &mut kernels {
                kernel.stores.retain(|s| s.access.buffer.0 != id.0);
            }
            let group = Group::unplanned(graph, id);
            let mut inputs = Inputs { graph, target, plan: &mut plan, arguments: &arguments };
            push(build(&mut inputs, &mut memo, &group), &mut kernels);
        }
    }
    kernels.reverse();
    nodes.reverse();
    let (program, values) = assign_buffers(graph, &arguments, kernels, &extra);
    Built { program, nodes, values, refusals: plan.refusals }
}

/// The kernels of a routine, a branch, a loop, or a custom op, the last one first. Buffers that
/// belong to no node are added to `extra`, and numbered after the nodes.
fn called(
    graph: &Graph,
    group: &Group,
    programs: Option<Vec<Program>>,
    extra: &mut Vec<Buffer>,
) -> Vec<Kernel> {
    let Some(mut programs) = programs else { return vec![library(graph, group)] };
    let root = graph.node(group.root);
    let next = |extra: &[Buffer]| BufferId((graph.len() + extra.len()) as u32);
    if root.op.class() == Class::Control {
        let kernel = control::kernel(graph, group, programs, next(extra));
        if let Core::Control(control) = &kernel.core
            && control.workspace.is_some()
        {
            let numel = control.layout().bytes;
            extra.push(Buffer { dtype: DType::U8, numel, kind: BufferKind::Computed });
        }
        return vec![kernel];
    }
    let program = programs.pop().expect("an op of a user has one program");
    let operand = |position: usize| BufferId(base(graph, root.inputs[position]).0);
    let number = |id: &NodeId| graph.node(*id).op.as_host().map(|(number, _)| number);
    let result = |wanted: usize| {
        let found = group.stores.iter().find(|id| number(id) == Some(wanted));
        found.map(|id| BufferId(id.0))
    };
    let spare = |buffer: Buffer| {
        extra.push(buffer);
        BufferId((graph.len() + extra.len() - 1) as u32)
    };
    let mut kernels = custom::kernels_of(program, operand, result, spare);
    kernels.reverse();
    kernels
}

/// Builds a kernel and returns it with the nodes that it computes. Starts again whenever something
/// that the kernel needs had to change. This terminates, since each time another value moves to
/// memory or a dimension is split into proper factors.
fn build(inputs: &mut Inputs<'_>, memo: &mut Memo, group: &Group) -> (Kernel, Vec<NodeId>) {
    let mut splits: SmallVec<[(usize, usize); 2]> = SmallVec::new();
    loop {
        memo.clear();
        match Builder::new(inputs, memo, group, &splits).build() {
            Ok(built) => return built,
            Err(Rebuild::Split { dim, inner }) => splits.push((dim, inner)),
            Err(Rebuild::ValueMoved) => splits.clear(),
        }
    }
}

/// The kernel of a library routine: its batch is the dimensions that are in no operand's or
/// result's item.
fn library(graph: &Graph, group: &Group) -> Kernel {
    let root = graph.node(group.root);
    let rank = root.op.def().item_rank;
    let item = |id: NodeId, axes: &dyn Fn(usize) -> usize| {
        let spec = graph.spec(id);
        let dims = &spec.shape[spec.shape.rank() - axes(spec.shape.rank())..];
        Item { buffer: BufferId(base(graph, id).0), dtype: spec.dtype, dims: dims.into() }
    };
    let mut results: SmallVec<[Option<Item>; 3]> = SmallVec::new();
    for &id in &group.stores {
        let number = graph.node(id).op.attrs.library().0 as usize;
        if results.len() <= number {
            results.resize(number + 1, None);
        }
        results[number] = Some(item(id, &|axes| rank.result(number, axes)));
    }
    let operands = root.inputs.iter().map(|&i| item(i, &|axes| rank.operand(axes))).collect();
    let batches = root.inputs.first().map_or(1, |&first| {
        let shape = &graph.spec(first).shape;
        shape[..shape.rank() - rank.operand(shape.rank())].iter().product()
    });
    Kernel {
        name: root.op.name().into(),
        extents: smallvec![batches],
        parallel: 1,
        accesses: Vec::new(),
        core: Core::Library(Box::new(Routine { op: root.op.with_result(0), operands, results })),
        body: Default::default(),
        stores: Vec::new(),
    }
}

/// The position of each node among the graph's arguments; meaningless for other nodes.
pub(super) fn argument_positions(graph: &Graph) -> Vec<u32> {
    let mut next = 0;
    let position = |(_, node): (NodeId, &girih_ir::Node)| {
        next += node.op.takes_argument() as u32;
        next.wrapping_sub(1)
    };
    graph.nodes().map(position).collect()
}

fn is_argument(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op.code, OpCode::Input | OpCode::Parameter)
}

/// Numbers the buffers in order of first occurrence: arguments, then results in the order of
/// writing. Before this, a buffer has the number of the node that it holds. Numbers after the nodes
/// belong to no node: workspaces, and temporaries of custom kernels.
fn assign_buffers(
    graph: &Graph,
    arguments: &[u32],
    mut kernels: Vec<Kernel>,
    extra: &[Buffer],
) -> (Program, Vec<Option<NodeId>>) {
    let (mut buffers, mut values) = (Vec::new(), Vec::new());
    let mut numbers: Vec<Option<BufferId>> = vec![None; graph.len() + extra.len()];
    let mut number = |node: NodeId, numbers: &mut Vec<Option<BufferId>>| {
        *numbers[node.index()].get_or_insert_with(|| {
            values.push((node.index() < graph.len()).then_some(node));
            if node.index() >= graph.len() {
                buffers.push(extra[node.index() - graph.len()].clone());
                return BufferId(buffers.len() as u32 - 1);
            }
            let spec = graph.spec(node);
            let kind = match is_argument(graph, node) {
                true => BufferKind::Argument(arguments[node.index()] as usize),
                false => BufferKind::Computed,
            };
            buffers.push(Buffer { dtype: spec.dtype, numel: spec.numel(), kind });
            BufferId(buffers.len() as u32 - 1)
        })
    };
    for id in graph.ids().filter(|&id| is_argument(graph, id)) {
        number(id, &mut numbers);
    }
    for kernel in &mut kernels {
        for buffer in kernel.buffers_mut() {
            *buffer = number(NodeId(buffer.0), &mut numbers);
        }
    }
    let outputs = graph.outputs().iter().map(|&o| number(base(graph, o), &mut numbers)).collect();
    (Program { buffers, kernels, outputs }, values)
}

/// The node that has a value's memory: reshapes share the memory of their operand.
pub(super) fn base(graph: &Graph, mut id: NodeId) -> NodeId {
    while graph.node(id).op.class() == Class::Reshape {
        id = graph.node(id).inputs[0];
    }
    id
}

impl Group {
    /// The kernel of a node that the plan had meant to fuse.
    fn unplanned(graph: &Graph, root: NodeId) -> Group {
        let node = graph.node(root);
        let reduces = matches!(node.op.class(), Class::Reduction | Class::Contraction)
            && !plan::is_empty_reduction(graph, node);
        Group::new(root, GroupRole::Value, reduces.then_some(root))
    }
}

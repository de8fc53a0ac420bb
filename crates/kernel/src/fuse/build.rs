//! Builds the program of a plan, consumers first.

use super::buffers::{Buffers, is_argument};
use super::kernel::{Builder, Inputs, Rebuild};
use super::memo::Memo;
use super::plan::{self, Group, GroupRole, Plan};
use super::{Lowering, Refusals, control};
use crate::custom;
use crate::dead::remove_dead_stores;
use crate::ir::{Buffer, BufferId, Core, Item, Kernel, KernelProgram, Routine};
use girih_ir::{Class, Graph, NodeId};
use smallvec::{SmallVec, smallvec};

/// A program, the nodes of its kernels, and the refusals.
pub(super) struct Built {
    pub program: KernelProgram,
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
    let mut buffers = Buffers::new(graph.len());
    let mut memo = Memo::new(graph.len());
    let mut kernels: Vec<Kernel> = Vec::with_capacity(plan.groups.len());
    let mut nodes: Vec<Vec<NodeId>> = Vec::with_capacity(plan.groups.len());
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
                for kernel in called(graph, &group, plan.programs.remove(&id), &mut buffers) {
                    push((kernel, group.stores.to_vec()), &mut kernels);
                }
                continue;
            }
            let (plan, buffers) = (&mut plan, &mut buffers);
            let mut inputs = Inputs { graph, target, plan, arguments: &arguments, buffers };
            push(build(&mut inputs, &mut memo, &group), &mut kernels);
        }
        // Further results of a routine are computed by the kernel of the first result.
        if !planned && !matches!(graph.node(id).op.class(), Class::Library | Class::Control) {
            // A kernel that was built before may store the node as well: remove that store.
            let stored = buffers.of(graph, id);
            for kernel in &mut kernels {
                kernel.stores.retain(|s| s.access.buffer != stored);
            }
            let group = Group::unplanned(graph, id);
            let (plan, buffers) = (&mut plan, &mut buffers);
            let mut inputs = Inputs { graph, target, plan, arguments: &arguments, buffers };
            push(build(&mut inputs, &mut memo, &group), &mut kernels);
        }
    }
    kernels.reverse();
    nodes.reverse();
    let mut live = buffers.of_outputs(graph);
    let needed = remove_dead_stores(&mut kernels, &mut live);
    let (mut of_kernels, mut of_nodes) = (needed.iter(), needed.iter());
    kernels.retain(|_| of_kernels.next().is_some_and(|needed| *needed));
    nodes.retain(|_| of_nodes.next().is_some_and(|needed| *needed));
    let (program, values) = buffers.finish(graph, &arguments, kernels);
    Built { program, nodes, values, refusals: plan.refusals }
}

/// The kernels of a routine, a branch, a loop, or a custom op, the last one first.
fn called(
    graph: &Graph,
    group: &Group,
    programs: Option<Vec<KernelProgram>>,
    buffers: &mut Buffers,
) -> Vec<Kernel> {
    let Some(mut programs) = programs else { return vec![library(graph, group, buffers)] };
    let root = graph.node(group.root);
    if root.op.class() == Class::Control {
        return vec![control::kernel(graph, group, programs, buffers)];
    }
    let program = programs.pop().expect("an op of a user has one program");
    let operands: Vec<BufferId> =
        root.inputs.iter().map(|&input| buffers.of(graph, input)).collect();
    let number = |id: NodeId| graph.node(id).op.as_host().map(|(number, _)| number);
    let results: Vec<_> =
        group.stores.iter().map(|&id| (number(id), buffers.of(graph, id))).collect();
    let result = |wanted: usize| {
        let found = results.iter().find(|(number, _)| *number == Some(wanted));
        found.map(|(_, buffer)| *buffer)
    };
    let spare = |buffer: Buffer| buffers.add(buffer);
    let mut kernels = custom::kernels_of(program, |position| operands[position], result, spare);
    kernels.reverse();
    kernels
}

/// Builds a kernel and returns it with the nodes that it computes. Starts again whenever the plan
/// changes because of a requirement of the kernel. This terminates, since each time another value
/// moves to memory or a dimension is split into proper factors.
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
fn library(graph: &Graph, group: &Group, buffers: &mut Buffers) -> Kernel {
    let root = graph.node(group.root);
    let rank = root.op.def().item_rank;
    let mut item = |id: NodeId, axes: &dyn Fn(usize) -> usize| {
        let spec = graph.spec(id);
        let dims = &spec.shape[spec.shape.rank() - axes(spec.shape.rank())..];
        Item { buffer: buffers.of(graph, id), dtype: spec.dtype, dims: dims.into() }
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

impl Group {
    /// The kernel of a node that the plan had assigned to the kernels of its consumers.
    fn unplanned(graph: &Graph, root: NodeId) -> Group {
        let node = graph.node(root);
        let reduces = matches!(node.op.class(), Class::Reduction | Class::Contraction)
            && !plan::is_empty_reduction(graph, node);
        Group::new(root, GroupRole::Value, reduces.then_some(root))
    }
}

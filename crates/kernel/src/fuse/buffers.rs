//! The buffers of a program under construction. A buffer gets an id when a kernel first names it;
//! at the end, the buffers are numbered in the order in which kernels write and read them.

use crate::ir::{Buffer, BufferId, BufferKind, Kernel, KernelProgram};
use girih_ir::{Class, Graph, NodeId, OpCode};

/// The contents of a buffer.
enum Contents {
    /// The value of a node.
    Value(NodeId),
    /// Not the value of a node: a workspace, or a temporary of a custom kernel.
    Other(Buffer),
}

/// The buffers that the kernels of a graph name.
pub(super) struct Buffers {
    /// The buffer of each node.
    of_node: Vec<Option<BufferId>>,
    /// The contents of each buffer, by id.
    contents: Vec<Contents>,
}

impl Buffers {
    /// The buffers for a graph with that many nodes.
    pub fn new(nodes: usize) -> Buffers {
        Buffers { of_node: vec![None; nodes], contents: Vec::new() }
    }

    /// The buffer that holds a value. A reshape is in the buffer of its operand.
    pub fn of(&mut self, graph: &Graph, node: NodeId) -> BufferId {
        let node = base(graph, node);
        if let Some(id) = self.of_node[node.index()] {
            return id;
        }
        let id = self.push(Contents::Value(node));
        self.of_node[node.index()] = Some(id);
        id
    }

    /// Adds a buffer that holds no node's value.
    pub fn add(&mut self, buffer: Buffer) -> BufferId {
        self.push(Contents::Other(buffer))
    }

    /// For each buffer, whether it holds a result of the graph.
    pub fn of_outputs(&mut self, graph: &Graph) -> Vec<bool> {
        let outputs: Vec<BufferId> = graph.outputs().iter().map(|&id| self.of(graph, id)).collect();
        let mut held = vec![false; self.contents.len()];
        outputs.iter().for_each(|id| held[id.0 as usize] = true);
        held
    }

    fn push(&mut self, contents: Contents) -> BufferId {
        self.contents.push(contents);
        BufferId(self.contents.len() as u32 - 1)
    }

    /// The program of these kernels, and the node whose value each of its buffers holds. Buffers
    /// are numbered by their first occurrence: arguments, then results in the order of writing.
    /// `positions` are those of nodes among the graph's arguments.
    pub fn finish(
        mut self,
        graph: &Graph,
        positions: &[u32],
        mut kernels: Vec<Kernel>,
    ) -> (KernelProgram, Vec<Option<NodeId>>) {
        let arguments = graph.ids().filter(|&id| is_argument(graph, id));
        let arguments: Vec<BufferId> = arguments.map(|id| self.of(graph, id)).collect();
        let outputs = graph.outputs().iter();
        let mut outputs: Vec<BufferId> = outputs.map(|&id| self.of(graph, id)).collect();
        let mut numbers: Vec<Option<BufferId>> = vec![None; self.contents.len()];
        let (mut buffers, mut values) = (Vec::new(), Vec::new());
        let mut number = |id: BufferId| {
            *numbers[id.0 as usize].get_or_insert_with(|| {
                let (buffer, value) = match &self.contents[id.0 as usize] {
                    Contents::Value(node) => (buffer_of(graph, positions, *node), Some(*node)),
                    Contents::Other(buffer) => (buffer.clone(), None),
                };
                buffers.push(buffer);
                values.push(value);
                BufferId(buffers.len() as u32 - 1)
            })
        };
        for id in arguments {
            number(id);
        }
        let named = kernels.iter_mut().flat_map(Kernel::buffers_mut);
        named.chain(&mut outputs).for_each(|id| *id = number(*id));
        (KernelProgram { buffers, kernels, outputs }, values)
    }
}

/// The buffer of a node's value.
fn buffer_of(graph: &Graph, positions: &[u32], node: NodeId) -> Buffer {
    let spec = graph.spec(node);
    let kind = match is_argument(graph, node) {
        true => BufferKind::Argument(positions[node.index()] as usize),
        false => BufferKind::Computed,
    };
    Buffer { dtype: spec.dtype, numel: spec.numel(), kind }
}

/// Whether the caller supplies the node's value in a buffer.
pub(super) fn is_argument(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op.code, OpCode::Input | OpCode::Parameter)
}

/// The node that owns the memory of a value: reshapes share the memory of their operand.
pub(super) fn base(graph: &Graph, mut id: NodeId) -> NodeId {
    while graph.node(id).op.class() == Class::Reshape {
        id = graph.node(id).inputs[0];
    }
    id
}

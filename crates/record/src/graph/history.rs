//! The history of a recording: ops with their operands, kept when their values are computed.
//!
//! A node drops its edges with its value, so that nothing keeps operands alive. For looking at what
//! was recorded, in eager mode for instance, a graph may keep a description of each node beside it.

use crate::node::Node;
use girih_ir::{NodeId, OpCode};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::fmt::Write as _;
use std::sync::{Arc, Weak};

/// The ops that were recorded in a graph, with their operands. It holds no values.
#[derive(Default)]
pub(super) struct History {
    graph: girih_ir::Graph,
    /// The nodes by address, which no other node has as long as `nodes` refers to them.
    ids: FxHashMap<usize, NodeId>,
    /// The number of each node in its recording, and the node.
    nodes: Vec<(u32, Weak<Node>)>,
}

impl History {
    /// Adds a node that was just recorded.
    pub fn add(&mut self, node: &Arc<Node>) {
        let mut operands: SmallVec<[Arc<Node>; 3]> = SmallVec::new();
        let state = node.state();
        state.for_each_input(|operand| operands.push(operand.clone()));
        let is_data = state.is_available();
        drop(state);
        let inputs: SmallVec<[NodeId; 3]> = operands.iter().map(|i| self.id_of(i)).collect();
        let op = match is_data && node.code() != OpCode::Parameter {
            true => OpCode::Input.into(),
            false => node.op(),
        };
        self.append(node, op, &inputs);
    }

    /// The node's place in the history. A node that was recorded elsewhere is an input.
    fn id_of(&mut self, node: &Arc<Node>) -> NodeId {
        match self.ids.get(&(Arc::as_ptr(node) as usize)) {
            Some(&id) => id,
            None => self.append(node, OpCode::Input.into(), &[]),
        }
    }

    fn append(&mut self, node: &Arc<Node>, op: girih_ir::Op, inputs: &[NodeId]) -> NodeId {
        let id = self.graph.push_unchecked(op, inputs, node.spec());
        self.ids.insert(Arc::as_ptr(node) as usize, id);
        self.nodes.push((node.id(), Arc::downgrade(node)));
        id
    }

    /// One line per node: number, op, operands, spec, state.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for ((_, node), (number, held)) in self.graph.nodes().zip(&self.nodes) {
            let operand = |id: &NodeId| format!("%{}", self.nodes[id.index()].0);
            let operands: Vec<String> = node.inputs.iter().map(operand).collect();
            let state = held.upgrade().map(|held| held.value_state().to_string());
            let (op, operands) = (node.op.name(), operands.join(", "));
            let state = state.unwrap_or_else(|| "dropped".into());
            let _ = writeln!(text, "  %{number} = {op}({operands}) -> {} ({state})", node.spec);
        }
        text
    }

    /// The graph that led to these nodes; `None` if one of them is not in the history.
    pub fn graph_of(&self, targets: &[&Arc<Node>]) -> Option<girih_ir::Graph> {
        let id = |node: &&Arc<Node>| self.ids.get(&(Arc::as_ptr(node) as usize)).copied();
        let outputs = targets.iter().map(id).collect::<Option<Vec<NodeId>>>()?;
        Some(self.graph.part(&outputs).0)
    }
}

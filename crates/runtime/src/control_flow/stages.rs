//! The cut of a graph at its control ops: the stage of each node, the groups of results of one
//! control op, and the values that must be in memory.

use girih_ir::{Graph, Node, NodeId, OpCode};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The role of a node in the cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StageRole {
    /// An argument that is a tensor.
    Argument,
    /// A constant, a run-time scalar or an iota: each segment has a copy, because the leaf needs no
    /// memory.
    Copied,
    /// A result of a control op.
    Control,
    /// Part of a segment.
    Segment,
}

pub(super) fn role(node: &Node) -> StageRole {
    match node.op.code {
        _ if node.op.as_control().is_some() => StageRole::Control,
        OpCode::Input | OpCode::Parameter => StageRole::Argument,
        OpCode::Constant | OpCode::Iota => StageRole::Copied,
        _ => StageRole::Segment,
    }
}

/// The results of one control op.
pub(super) struct Group {
    pub stage: usize,
    pub results: Vec<NodeId>,
}

/// How a graph is cut.
pub(super) struct Stages {
    /// The stage of each node.
    pub stage: Vec<usize>,
    pub groups: Vec<Group>,
    /// The number of stages.
    pub count: usize,
    /// Nodes of segments, and copied leaves, whose values must be in memory.
    pub in_memory: BTreeSet<NodeId>,
    /// The time of each node's last use, as of [`segment_time`] and [`group_time`].
    pub last_use: Vec<usize>,
}

/// The time at which the segment of a stage runs, in the order of the plan.
pub(super) fn segment_time(stage: usize) -> usize {
    2 * stage
}

/// The time at which the control ops of a stage run.
pub(super) fn group_time(stage: usize) -> usize {
    2 * stage + 1
}

impl Stages {
    pub fn of(graph: &Graph) -> Stages {
        let live = graph.live();
        let mut stages = Stages {
            stage: vec![0; graph.len()],
            groups: Vec::new(),
            count: 1,
            in_memory: graph.outputs().iter().copied().collect(),
            last_use: vec![0; graph.len()],
        };
        for (id, node) in graph.nodes().filter(|(id, _)| live[id.index()]) {
            let ready = |i: &NodeId| {
                stages.stage[i.index()] + usize::from(role(graph.node(*i)) == StageRole::Control)
            };
            let stage = node.inputs.iter().map(ready).max().unwrap_or(0);
            stages.stage[id.index()] = stage;
            let control = role(node) == StageRole::Control;
            stages.count = stages.count.max(stage + 1 + usize::from(control));
            if control {
                stages.join(graph, id, stage);
            }
            let time = if control { group_time(stage) } else { segment_time(stage) };
            for &input in &node.inputs {
                let last = &mut stages.last_use[input.index()];
                *last = time.max(*last);
                let copied = role(graph.node(input)) == StageRole::Copied;
                if control || (!copied && stages.stage[input.index()] < stage) {
                    stages.in_memory.insert(input);
                }
            }
        }
        stages
            .in_memory
            .retain(|&id| matches!(role(graph.node(id)), StageRole::Segment | StageRole::Copied));
        stages
    }

    /// Adds a result to the group of its control op.
    fn join(&mut self, graph: &Graph, id: NodeId, stage: usize) {
        let node = graph.node(id);
        let same = |group: &&mut Group| {
            let other = graph.node(group.results[0]);
            let controls = (node.op.as_control(), other.op.as_control());
            let (Some((_, a)), Some((_, b))) = controls else { return false };
            other.op.code == node.op.code
                && other.inputs == node.inputs
                && (Arc::ptr_eq(a, b) || a == b)
        };
        match self.groups.iter_mut().find(same) {
            Some(group) => group.results.push(id),
            None => self.groups.push(Group { stage, results: vec![id] }),
        }
    }
}

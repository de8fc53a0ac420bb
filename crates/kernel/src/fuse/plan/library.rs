//! Library routines, branches and loops in a plan: each call is a kernel of its own that computes
//! all its results.

use super::{Demand, GroupRole, Planner};
use crate::custom;
use crate::fuse::{LowerError, Refusal, control};
use girih_ir::{Class, Graph, Node, NodeId, Op, TensorSpec};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

impl Planner<'_> {
    /// Plans a routine, a branch or a loop. Nothing is fused with it, because its operands and
    /// results are dense in memory. All demanded results of one call are computed by one kernel,
    /// which runs at the position of the first result.
    ///
    /// Errors: [`LowerError::Composite`] in a region; [`LowerError::Region`] for kernels of a
    /// custom op that do not fit their operands.
    pub(super) fn library(
        &mut self,
        id: NodeId,
        node: &Node,
        demand: Demand,
    ) -> Result<(), LowerError> {
        self.plan.memory[id.index()] = true;
        if demand.wanted {
            let reason = match node.op.class() {
                Class::Control => Refusal::Control,
                _ => Refusal::Library,
            };
            self.refuse(id, demand, reason);
            self.results.push(id);
        }
        if self.leaders[&id] != id {
            return Ok(());
        }
        let own = |result: &NodeId| self.leaders[result] == id;
        let stores: SmallVec<[NodeId; 1]> = self.results.iter().copied().filter(own).collect();
        if stores.is_empty() {
            return Ok(());
        }
        let kernel = self.root(id, GroupRole::Library);
        let needed: SmallVec<[Option<usize>; 3]> =
            stores.iter().map(|&id| self.graph.node(id).op.as_host().map(|host| host.0)).collect();
        self.plan.groups[kernel as usize].stores = stores;
        let dense = Demand::dense(kernel);
        if node.op.class() == Class::Control {
            let programs = control::programs(self.lowering(), id)?;
            self.plan.programs.insert(id, programs);
            let needed = control::in_memory(self.graph, node);
            needed.for_each(|input| self.demands[input.index()].merge(dense));
            return Ok(());
        }
        if let Some((_, call)) = node.op.as_host() {
            let operands: Vec<&TensorSpec> =
                node.inputs.iter().map(|&input| self.graph.spec(input)).collect();
            if let Some(program) = custom::program_of(call, &operands) {
                let region = |source| LowerError::Region { node: id, source: Box::new(source) };
                let mut program = program.map_err(region)?;
                // Remove results that nothing reads, and the kernels that only compute such
                // results.
                custom::prune(&mut program, |number| needed.contains(&Some(number)));
                for position in custom::operands_of(&program) {
                    self.demands[node.inputs[position].index()].merge(dense);
                }
                self.plan.programs.insert(id, vec![program]);
                return Ok(());
            }
        }
        node.inputs.iter().for_each(|input| self.demands[input.index()].merge(dense));
        Ok(())
    }
}

/// For each live, nonempty result of a library routine, a branch or a loop: the first such result
/// of the same call, that is, of the same op, attributes and operands.
pub(super) fn leaders(graph: &Graph) -> FxHashMap<NodeId, NodeId> {
    let mut leaders = FxHashMap::default();
    // The first result of the last call of that op, and its results so far.
    type Results<'a> = (NodeId, SmallVec<[&'a Op; 4]>);
    let mut calls: FxHashMap<(Op, &[NodeId]), Results<'_>> = FxHashMap::default();
    let several = |node: &Node| matches!(node.op.class(), Class::Library | Class::Control);
    if !graph.nodes().any(|(_, n)| several(n)) {
        return leaders;
    }
    let live = graph.live();
    for (id, node) in graph.nodes() {
        let routine = several(node) && node.spec.numel() > 0;
        if routine && live[id.index()] {
            let key = (node.op.with_result(0), node.inputs.as_slice());
            let (leader, results) = calls.entry(key).or_insert_with(|| (id, SmallVec::new()));
            if results.contains(&&node.op) {
                // A second occurrence of the same result, which no pass has merged, belongs to
                // another call.
                (*leader, *results) = (id, SmallVec::new());
            }
            results.push(&node.op);
            leaders.insert(id, *leader);
        }
    }
    leaders
}

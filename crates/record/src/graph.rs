//! Recording graphs: the scopes in which nodes are recorded. A graph numbers and counts its nodes,
//! and holds weak references to the live ones; it keeps no node alive.

mod history;

use crate::error::{Error, Result};
use crate::node::{Node, TensorState};
use girih_ir::Class;
use girih_sync::{Mutex, MutexGuard};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use history::History;

/// A recording graph, shared by its handles.
#[derive(Clone)]
pub struct RecordingGraph(Arc<Recording>);

struct Recording {
    id: u64,
    registry: Mutex<Registry>,
}

struct Registry {
    /// The number of the next node.
    next: u32,
    nodes: Vec<Weak<Node>>,
    /// The number of entries at which dead entries are swept. It grows with the number of live
    /// entries, so that the amortised cost of sweeping is constant per node.
    sweep_at: usize,
    /// The recorded ops, if the graph keeps them.
    history: Option<Box<History>>,
}

static NEXT_GRAPH: AtomicU64 = AtomicU64::new(0);

const SWEEP_MIN: usize = 1024;

impl RecordingGraph {
    /// A new, empty graph.
    pub fn new() -> RecordingGraph {
        RecordingGraph::recording(None)
    }

    /// A new, empty graph that keeps the ops that are recorded in it, with their operands, when
    /// their values have been computed or dropped: for looking at graphs, in eager mode as well.
    /// [`RecordingGraph::dump`] shows them. The graph grows with each op as long as it lives; it holds
    /// no values.
    pub fn with_history() -> RecordingGraph {
        RecordingGraph::recording(Some(Box::default()))
    }

    fn recording(history: Option<Box<History>>) -> RecordingGraph {
        let registry = Registry { next: 0, nodes: Vec::new(), sweep_at: SWEEP_MIN, history };
        RecordingGraph(Arc::new(Recording {
            id: NEXT_GRAPH.fetch_add(1, Ordering::Relaxed),
            registry: Mutex::new(registry),
        }))
    }

    /// The graph that led to these nodes, computed or not, if this graph keeps its history and
    /// they were recorded in it.
    pub(crate) fn history_of(&self, targets: &[&Arc<Node>]) -> Option<girih_ir::Graph> {
        self.registry().history.as_ref()?.graph_of(targets)
    }

    /// The graph's number, unique in this process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The number of nodes ever recorded in this graph, modulo 2^32.
    pub fn num_nodes(&self) -> usize {
        self.registry().next as usize
    }

    /// The nodes recorded in this graph that are still reachable, in recording order.
    pub fn live(&self) -> Vec<Arc<Node>> {
        self.registry().nodes.iter().filter_map(Weak::upgrade).collect()
    }

    /// The nodes recorded in this graph that are reachable and have no value yet, in recording
    /// order. Constants and placeholders are left out, since they are not computed.
    pub fn unrealized(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.live();
        nodes.retain(|node| {
            let op = node.op();
            let computed = op.class() != Class::Leaf || op.is_random();
            computed && node.value_state() != TensorState::Available
        });
        nodes
    }

    /// The nodes with these numbers.
    ///
    /// Errors: [`Error::InvalidArgument`] if there is no such node, or nothing reaches it any more.
    pub fn nodes(&self, ids: &[u32]) -> Result<Vec<Arc<Node>>> {
        let live = self.live();
        let find = |&id: &u32| {
            let found = live.iter().find(|node| node.id() == id).cloned();
            found.ok_or_else(|| {
                Error::InvalidArgument(format!(
                    "graph {} has no live node {id}; it has recorded {} and holds {}",
                    self.id(),
                    self.num_nodes(),
                    live.len()
                ))
            })
        };
        ids.iter().map(find).collect()
    }

    /// The reachable nodes of this graph, one per line: number, op, spec, state. Unlike a drawing
    /// of a tensor's ancestors, the text contains computed nodes too. A graph with a history
    /// ([`RecordingGraph::with_history`]) shows all of its nodes, with their operands.
    pub fn dump(&self) -> String {
        let mut text = format!("{self:?}\n");
        let history = self.registry().history.as_ref().map(|history| history.lines());
        if let Some(lines) = history {
            return text + &lines;
        }
        for node in self.live() {
            let (id, op, spec) = (node.id(), node.code().def().name, node.spec());
            text += &format!("  %{id} = {op} -> {spec} ({})\n", node.value_state());
        }
        text
    }

    /// The live nodes whose numbers are close to `id`.
    pub(crate) fn around(&self, id: u32) -> Vec<Arc<Node>> {
        /// The largest distance between numbers of results of one call, and the maximum number of
        /// entries visited.
        const REACH: u32 = 8;
        const MAX_CHECKED: usize = 4096;
        let registry = self.registry();
        // At most one entry per recorded node follows a node, whether or not dead entries were
        // swept.
        let since = registry.next.wrapping_sub(id) as usize;
        let first = registry.nodes.len().saturating_sub(since.saturating_add(REACH as usize));
        let live = registry.nodes[first..].iter().take(MAX_CHECKED).filter_map(Weak::upgrade);
        let live = live.take_while(|node| node.id() <= id.saturating_add(REACH));
        live.filter(|node| node.id().abs_diff(id) <= REACH).collect()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Each critical section leaves the registry consistent, even if it unwinds.
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn add(&self, make: impl FnOnce(u32) -> Node) -> Arc<Node> {
        let mut registry = self.registry();
        let id = registry.next;
        registry.next = id.wrapping_add(1);
        let node = Arc::new(make(id));
        registry.nodes.push(Arc::downgrade(&node));
        if let Some(history) = &mut registry.history {
            history.add(&node);
        }
        if registry.nodes.len() >= registry.sweep_at {
            registry.sweep();
        }
        node
    }
}

/// Drops the dead entries of a graph. Does nothing if the graph is locked, such as when a node is
/// dropped while its graph is visited.
pub(crate) fn sweep(graph: &RecordingGraph) {
    if let Ok(mut registry) = graph.0.registry.try_lock() {
        registry.sweep();
        registry.nodes.shrink_to_fit();
    }
}

impl Registry {
    fn sweep(&mut self) {
        self.nodes.retain(|n| n.strong_count() > 0);
        self.sweep_at = (2 * self.nodes.len()).max(SWEEP_MIN);
    }
}

impl Default for RecordingGraph {
    fn default() -> Self {
        RecordingGraph::new()
    }
}

impl PartialEq for RecordingGraph {
    fn eq(&self, other: &RecordingGraph) -> bool {
        self.id() == other.id()
    }
}

impl fmt::Debug for RecordingGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph(id={}, nodes={})", self.id(), self.num_nodes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scopes::GraphScope;
    use crate::testing::{constant, elements, op};
    use girih_ir::OpCode;

    #[test]
    fn a_graph_lists_its_live_tensors_without_keeping_them_alive() {
        let graph = RecordingGraph::new();
        let _scope = GraphScope::new(&graph);
        let kept = constant(0.0, 2);
        for _ in 0..5000 {
            let _ = op(OpCode::Neg, &[&kept]);
        }
        assert_eq!(graph.num_nodes(), 5001);
        assert_eq!(graph.live().len(), 1);
        let held = graph.registry().nodes.len();
        assert!(held <= SWEEP_MIN, "{held} registry entries for one live node");
        drop(kept);
        assert!(graph.live().is_empty());
    }

    #[test]
    fn a_graph_is_freed_with_its_scope_although_a_tensor_escapes() {
        let graph = RecordingGraph::new();
        let (scope, recording) = (GraphScope::new(&graph), Arc::downgrade(&graph.0));
        drop(graph);
        let escaped = op(OpCode::Neg, &[&constant(1.0, 2)]);
        assert!(recording.upgrade().is_some());
        drop(scope);
        assert!(recording.upgrade().is_none());
        assert_eq!(elements(&escaped), [-1.0, -1.0]);
    }
}

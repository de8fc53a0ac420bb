//! Contexts: each thread's current recording graph, and the scopes that swap it for a while.
//!
//! A recording graph is the scope in which nodes were made. It numbers them, counts them, and
//! knows the live ones through weak references; it keeps nothing alive.

use crate::Tensor;
use crate::node::{Node, State};
use girih_ir::{Op, TensorSpec};
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A recording graph, shared by its handles.
#[derive(Clone)]
pub struct Graph(Arc<Recording>);

struct Recording {
    id: u64,
    registry: Mutex<Registry>,
}

struct Registry {
    /// Number of the next node.
    next: u32,
    nodes: Vec<Weak<Node>>,
    /// Length at which dead entries are swept out; grows with the live ones, so that sweeping
    /// costs each node a constant.
    sweep_at: usize,
}

static NEXT_GRAPH: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static CURRENT: RefCell<Graph> = RefCell::new(Graph::new());
}

const SWEEP_MIN: usize = 1024;

impl Graph {
    /// A new, empty graph. Enter it with [`ReuseScope`].
    pub fn new() -> Graph {
        Graph(Arc::new(Recording {
            id: NEXT_GRAPH.fetch_add(1, Ordering::Relaxed),
            registry: Mutex::new(Registry { next: 0, nodes: Vec::new(), sweep_at: SWEEP_MIN }),
        }))
    }

    /// A number no other graph of this process has.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Number of nodes ever recorded here (modulo 2^32).
    pub fn num_nodes(&self) -> usize {
        self.registry().next as usize
    }

    /// Tensors recorded here that are still reachable, in the order they were recorded.
    pub fn live(&self) -> Vec<Tensor> {
        self.registry().nodes.iter().filter_map(Weak::upgrade).map(Tensor::from_node).collect()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Each critical section leaves the registry whole, also when it unwinds.
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, op: Op, spec: &TensorSpec, state: State) -> Arc<Node> {
        let mut registry = self.registry();
        let id = registry.next;
        registry.next = id.wrapping_add(1);
        let node = Arc::new(Node::new(op, spec, state, id));
        registry.nodes.push(Arc::downgrade(&node));
        if registry.nodes.len() >= registry.sweep_at {
            registry.nodes.retain(|n| n.strong_count() > 0);
            registry.sweep_at = (2 * registry.nodes.len()).max(SWEEP_MIN);
        }
        node
    }
}

impl Default for Graph {
    fn default() -> Self {
        Graph::new()
    }
}

impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        self.id() == other.id()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph(id={}, nodes={})", self.id(), self.num_nodes())
    }
}

/// The graph this thread records to.
pub fn current_graph() -> Graph {
    CURRENT.with_borrow(Graph::clone)
}

/// Records to this thread's graph.
pub(crate) fn add_node(op: Op, spec: &TensorSpec, state: State) -> Arc<Node> {
    CURRENT.with_borrow(|graph| graph.add(op, spec, state))
}

/// Makes `graph` the thread's current one and gives the previous. For front ends whose scopes do
/// not nest like Rust's; others use [`Scope`] and [`ReuseScope`].
pub fn swap_graph(graph: Graph) -> Graph {
    CURRENT.with_borrow_mut(|current| std::mem::replace(current, graph))
}

/// Records to a fresh graph until dropped.
#[must_use = "the scope ends when it is dropped"]
pub struct Scope {
    graph: Graph,
    _reuse: ReuseScope,
}

impl Scope {
    /// Enters a fresh graph.
    #[allow(clippy::new_without_default, reason = "entering a scope is an effect")]
    pub fn new() -> Scope {
        let graph = Graph::new();
        Scope { _reuse: ReuseScope::new(&graph), graph }
    }

    /// The graph entered.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
}

/// Records to a given graph until dropped. Belongs to the thread that entered it.
#[must_use = "the scope ends when it is dropped"]
pub struct ReuseScope {
    previous: Option<Graph>,
    _not_send: PhantomData<*const ()>,
}

impl ReuseScope {
    /// Enters `graph`.
    pub fn new(graph: &Graph) -> ReuseScope {
        ReuseScope { previous: Some(swap_graph(graph.clone())), _not_send: PhantomData }
    }
}

impl Drop for ReuseScope {
    fn drop(&mut self) {
        if let Some(previous) = self.previous.take() {
            swap_graph(previous);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_restore() {
        let outer = current_graph();
        let graph = Graph::new();
        {
            let first = Scope::new();
            let second = Scope::new();
            assert_ne!(first.graph(), second.graph());
            assert_eq!(&current_graph(), second.graph());
            {
                let _reuse = ReuseScope::new(&graph);
                assert_eq!(current_graph(), graph);
            }
            assert_eq!(&current_graph(), second.graph());
        }
        assert_eq!(current_graph(), outer);
    }

    #[test]
    fn a_graph_knows_its_live_tensors_and_keeps_none() {
        let scope = Scope::new();
        let kept = Tensor::zeros([2], crate::DType::F32).unwrap();
        for _ in 0..5000 {
            let _ = kept.neg().unwrap();
        }
        assert_eq!(scope.graph().num_nodes(), 5001);
        assert_eq!(scope.graph().live().len(), 1);
        let held = scope.graph().0.registry.lock().unwrap().nodes.len();
        assert!(held <= SWEEP_MIN, "{held} registry entries for one live node");
        let graph = scope.graph().clone();
        drop(kept);
        assert!(graph.live().is_empty());
    }
}

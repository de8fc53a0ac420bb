//! Orders of recorded nodes: from operands to users, and as recorded.

use crate::node::Node;
use rustc_hash::FxHashSet;
use std::borrow::Borrow;
use std::sync::Arc;

/// A step of a depth-first search.
pub(crate) enum Visit {
    Enter(Arc<Node>),
    Exit(Arc<Node>),
}

/// Sorts nodes by number if operands then still precede users. Each recording graph numbers its
/// nodes, so the order is valid unless several graphs are involved.
pub fn in_recording_order(nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
    let mut sorted = nodes.clone();
    sorted.sort_by_key(|node| node.id());
    let mut seen: FxHashSet<*const Node> = FxHashSet::default();
    let ordered = sorted.iter().all(|node| {
        let mut ready = true;
        node.state().for_each_input(|input| ready &= seen.contains(&Arc::as_ptr(input)));
        seen.insert(Arc::as_ptr(node));
        ready
    });
    if ordered { sorted } else { nodes }
}

/// All ancestors of the targets, operands before users. Operands of a node for which `stop` returns
/// true are not visited.
pub fn ancestors<H: Borrow<Arc<Node>>>(
    targets: &[&H],
    stop: impl Fn(&Arc<Node>) -> bool,
) -> Vec<Arc<Node>> {
    let mut seen: FxHashSet<*const Node> = FxHashSet::default();
    let mut order = Vec::new();
    let mut stack: Vec<Visit> = Vec::new();
    for target in targets {
        stack.push(Visit::Enter((*target).borrow().clone()));
        while let Some(visit) = stack.pop() {
            match visit {
                Visit::Exit(node) => order.push(node),
                Visit::Enter(node) => {
                    if !seen.insert(Arc::as_ptr(&node)) {
                        continue;
                    }
                    stack.push(Visit::Exit(node.clone()));
                    if !stop(&node) {
                        let first = stack.len();
                        node.state().for_each_input(|i| stack.push(Visit::Enter(i.clone())));
                        stack[first..].reverse();
                    }
                }
            }
        }
    }
    order
}

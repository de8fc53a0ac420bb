//! The values that a kernel under construction has computed.

use crate::ir::Val;
use girih_ir::NodeId;

/// Values of the kernel under construction, by node, map and block. Its memory is reused from
/// kernel to kernel.
pub(super) struct Memo {
    /// The latest entry of each node.
    heads: Vec<u32>,
    entries: Vec<Entry>,
}

/// A computed value.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub node: NodeId,
    pub at: At,
    pub val: Val,
    next: u32,
}

/// The end of a node's entries.
const NO_ENTRY: u32 = u32::MAX;

/// The location of a computation: its block and its map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// Whether the value is computed in the prologue, not in the body.
    pub prologue: bool,
    /// The number of the map.
    pub map: u32,
}

impl Memo {
    /// A memo for a graph with that many nodes.
    pub fn new(nodes: usize) -> Memo {
        Memo { heads: vec![NO_ENTRY; nodes], entries: Vec::new() }
    }

    /// Removes all values, in time proportional to their number.
    pub fn clear(&mut self) {
        for entry in self.entries.drain(..) {
            self.heads[entry.node.index()] = NO_ENTRY;
        }
    }

    /// All entries of a node.
    pub fn of(&self, node: NodeId) -> impl Iterator<Item = &Entry> {
        let entry = |i: u32| self.entries.get(i as usize);
        std::iter::successors(entry(self.heads[node.index()]), move |e| entry(e.next))
    }

    /// The value of a node at `at`.
    pub fn get(&self, node: NodeId, at: At) -> Option<Val> {
        self.of(node).find(|e| e.at == at).map(|e| e.val)
    }

    /// Adds a value.
    pub fn put(&mut self, node: NodeId, at: At, val: Val) {
        let next = std::mem::replace(&mut self.heads[node.index()], self.entries.len() as u32);
        self.entries.push(Entry { node, at, val, next });
    }
}

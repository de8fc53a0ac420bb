//! The process's own memory after very large graphs: what the allocator of the system keeps of their
//! nodes and programs is given back.

use crate::context;

/// Nodes from which on what a graph took is worth giving back: that costs milliseconds.
pub(crate) const LARGE: usize = 1 << 16;

/// To be called after so many nodes have been let go of.
pub(crate) fn let_go(nodes: usize) {
    if nodes >= LARGE {
        context::sweep();
        girih_cpu::give_back_memory();
    }
}

//! Memory of the process after very large graphs: returns to the operating system the memory that
//! the system allocator keeps after nodes and programs are dropped.

use crate::context;

/// The number of nodes from which returning memory is worthwhile, since it takes milliseconds.
pub(crate) const LARGE: usize = 1 << 16;

/// Returns unused memory to the operating system if `nodes` is at least `LARGE`. The function must
/// be called after `nodes` nodes have been dropped.
pub(crate) fn return_memory(nodes: usize) {
    if nodes >= LARGE {
        context::sweep();
        crate::devices::cpu::give_back_memory();
    }
}

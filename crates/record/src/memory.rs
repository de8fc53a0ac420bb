//! Memory of the process after very large graphs: returns to the operating system the memory that
//! the system allocator keeps after nodes and programs are dropped.

use crate::cpu::give_back_memory;
use girih_sync::OnceLock;

/// The number of nodes from which returning memory is worthwhile, since it takes milliseconds.
const LARGE: usize = 1 << 16;

/// Drops what refers to dropped nodes and is not needed any more.
static SWEEP: OnceLock<fn()> = OnceLock::new();

/// Sets the function that is called before memory is returned: it drops what the modules above keep
/// of dropped nodes. Only the first call has an effect.
pub(crate) fn set_sweep(sweep: fn()) {
    let _ = SWEEP.set(sweep);
}

/// Returns unused memory to the operating system if `nodes` is at least [`LARGE`]. The function
/// must be called after `nodes` nodes have been dropped.
pub(crate) fn return_memory(nodes: usize) {
    if nodes >= LARGE {
        if let Some(sweep) = SWEEP.get() {
            sweep();
        }
        give_back_memory();
    }
}

//! Memory of the threads for packed operands and partial results, and pointers to it.

use crate::kernel::Line;
use std::cell::Cell;

thread_local! {
    /// Packed blocks of a chunk, and the chunk's part of C until the epilogue has read it.
    pub(super) static CHUNK: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    /// A, which is packed or computed before all chunks run.
    pub(super) static WHOLE_A: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    /// The sums along K of the rows of an A of bytes.
    pub(super) static ROW_SUMS: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    /// The partial results of split-K.
    pub(super) static PARTIAL_RESULTS: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    /// The block of A that a prologue computes.
    pub(super) static A_BLOCK: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Memory that several threads write, each at different addresses.
#[derive(Clone, Copy)]
pub(super) struct SharedMemory(pub *mut f32);
// SAFETY: each chunk of the packing writes its own tiles; they are read after all of it.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    pub fn get(&self) -> *mut f32 {
        self.0
    }
}

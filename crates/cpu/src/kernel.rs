//! A kernel made ready for the CPU: the portable executor or a matrix product, run on the pool.

use crate::matmul::Matmul;
use crate::pool::Pool;
use girih_kernel::{Bindings, Core, ExecError, Kernel, Prepared};
use std::cell::Cell;

/// A kernel made ready to run, shared freely between threads.
pub struct LoadedKernel {
    prepared: Prepared,
    matmul: Option<Matmul>,
}

/// 64 bytes at a cache line's alignment.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line(#[allow(dead_code)] [u8; 64]);

/// Memory of a thread that grows to what it is asked for and is kept. Taken while in use, so that
/// a nested use gets memory of its own.
pub(crate) fn with_memory<R>(
    slot: &'static std::thread::LocalKey<Cell<Vec<Line>>>,
    bytes: usize,
    f: impl FnOnce(*mut u8) -> R,
) -> R {
    if bytes == 0 {
        return f(std::ptr::dangling_mut::<Line>() as *mut u8);
    }
    let mut memory = slot.take();
    let lines = bytes.div_ceil(64);
    if memory.len() < lines {
        memory.resize(lines, Line([0; 64]));
    }
    let result = f(memory.as_mut_ptr() as *mut u8);
    slot.set(memory);
    result
}

thread_local! {
    static WORKSPACE: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

impl LoadedKernel {
    /// Makes a verified kernel ready.
    ///
    /// Panics: if the kernel is not well formed.
    pub fn new(kernel: &Kernel) -> LoadedKernel {
        let matmul = match &kernel.core {
            Core::Matmul { lhs, rhs } => Matmul::new(kernel, lhs, rhs),
            _ => None,
        };
        LoadedKernel { prepared: Prepared::new(kernel), matmul }
    }

    /// Runs the kernel to its end. The bindings' workspace is not used: the kernel brings its own.
    ///
    /// Errors: [`ExecError::IndexOutOfBounds`]; of several, the one of the first chunk.
    /// Cost: no allocation once the threads' scratch memory has grown to the kernel's needs.
    ///
    /// # Safety
    /// The bindings fulfil [`Bindings`]' contract but for the workspace.
    pub unsafe fn run(&self, bindings: &Bindings<'_>, pool: &Pool) -> Result<(), ExecError> {
        if let Some(matmul) = &self.matmul {
            // SAFETY: the caller's promise; the matmul was made from the same kernel.
            return unsafe { matmul.run(&self.prepared, bindings, pool) };
        }
        let cost = self.prepared.cost_ns();
        with_memory(&WORKSPACE, self.prepared.workspace_bytes(), |workspace| {
            let bindings = Shared(Bindings { workspace, ..*bindings });
            for phase in 0..self.prepared.phases() {
                let chunks = self.prepared.chunks(phase);
                // SAFETY: the caller's promise; phases run in order, each chunk once.
                pool.run(chunks, cost, &|chunk, scratch| unsafe {
                    self.prepared.run_chunk(phase, chunk, bindings.get(), scratch)
                })?;
            }
            Ok(())
        })
    }
}

/// Bindings used by several threads at once.
pub(crate) struct Shared<'a>(pub Bindings<'a>);

// SAFETY: chunks of a phase write disjoint elements and read none that others write; that is what
// `Prepared` and `Matmul` make them from and what the bindings' contract promises of the buffers.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    pub fn get(&self) -> &Bindings<'a> {
        &self.0
    }
}

//! The JIT compiler: generates vector loops at run time, in microseconds each.
//!
//! The executor of `girih-exec` passes chains of loops ([`Chain`]) and loops over whole kernels
//! ([`CycleChain`]). `lower` turns each into a straight-line program of the vector IR (`ir`);
//! elementary functions are traced into it (`trace`). A linear pass allocates registers
//! (`allocate`), an encoder (`emitter`, with `avx512` or `avx2`) emits the loop around the program,
//! and the code is placed in memory that is never writable and executable at the same time
//! (`arena`). GEMMs ask for micro-kernels (`microkernel`, `dots`, `amx`, `vnni`, `indirect`), which
//! are emitted without the IR.
//!
//! Generated code computes the same bits as the executor's own loops (except for payloads of NaNs):
//! the same operations in the same order, without contraction. The executor's loops run where the
//! generator does not support an op or the machine. `GIRIH_JIT=0` disables generated code.

mod allocate;
pub(crate) mod amx;
mod arena;
mod arithmetic;
mod asm;
mod avx2;
mod avx512;
mod cycle;
pub(crate) mod dots;
mod emitter;
mod function;
pub(crate) mod indirect;
mod ir;
mod legal;
mod lower;
pub(crate) mod microkernel;
mod ops;
mod scalar;
mod stored;
mod symbols;
#[cfg(test)]
mod tests;
pub(crate) mod tile_shapes;
mod trace;
mod vector;
pub(crate) mod vnni;

pub(crate) use function::forget;
#[cfg(test)]
pub(crate) use tests::{as_if, generates, on_each_level};

use girih_exec::{Chain, ChainOp, Compiled, CompiledCycle, CycleChain};

/// Whether chains with that op can be compiled on this machine.
pub(crate) fn knows(op: ChainOp) -> bool {
    function::enabled() && lower::knows(op)
}

/// Compiles a chain to a function, with a name for profilers; `None` if the chain exceeds the limits
/// of the compiler.
pub(crate) fn compile(chain: &Chain, name: &str) -> Option<Box<dyn Compiled>> {
    Some(Box::new(function::of_chain(chain, name)?))
}

/// Compiles a cycle to a function, with a name for profilers; `None` if the cycle exceeds the limits
/// of the compiler.
pub(crate) fn compile_cycle(chain: &CycleChain, name: &str) -> Option<Box<dyn CompiledCycle>> {
    Some(Box::new(cycle::CycleFunction::new(chain, name)?))
}

//! The JIT compiler: generates vector loops at run time, in microseconds each.
//!
//! The executor of `girih-kernel` passes chains of loops ([`Chain`]). `lower` turns each into a
//! straight-line program of the vector IR (`ir`); elementary functions are traced into it
//! (`trace`). A linear pass allocates registers (`allocate`), an encoder (`emitter`, with `avx512`
//! or `avx2`) emits the loop around the program, and the code is placed in memory that is never
//! writable and executable at the same time (`arena`).
//!
//! Generated code computes the same bits as the executor's own loops (except for payloads of NaNs):
//! the same operations in the same order, without contraction. The executor's loops run where the
//! generator does not support an op or the machine. `GIRIH_JIT=0` disables generated code.

#[cfg(target_arch = "x86_64")]
mod allocate;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod arena;
#[cfg(target_arch = "x86_64")]
mod arithmetic;
#[cfg(target_arch = "x86_64")]
mod asm;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod dots;
#[cfg(target_arch = "x86_64")]
mod emitter;
#[cfg(target_arch = "x86_64")]
mod function;
#[cfg(target_arch = "x86_64")]
pub(crate) mod indirect;
#[cfg(target_arch = "x86_64")]
mod ir;
#[cfg(target_arch = "x86_64")]
mod legal;
#[cfg(target_arch = "x86_64")]
mod lower;
#[cfg(target_arch = "x86_64")]
pub(crate) mod microkernel;
#[cfg(target_arch = "x86_64")]
mod ops;
#[cfg(target_arch = "x86_64")]
mod scalar;
#[cfg(target_arch = "x86_64")]
mod stored;
#[cfg(target_arch = "x86_64")]
mod symbols;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tile_shapes;
#[cfg(target_arch = "x86_64")]
mod trace;
#[cfg(target_arch = "x86_64")]
mod vector;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vnni;

use girih_exec::{Chain, ChainOp, Compiled};
use girih_runtime::env::flag;

/// True if chains with that op can be compiled on this machine.
#[cfg(target_arch = "x86_64")]
pub(crate) fn knows(op: ChainOp) -> bool {
    function::enabled() && lower::knows(op)
}

/// Compiles a chain to a function, with a name for profilers; `None` if the chain exceeds the limits
/// of the compiler.
#[cfg(target_arch = "x86_64")]
pub(crate) fn compile(chain: &Chain, name: &str) -> Option<Box<dyn Compiled>> {
    Some(Box::new(function::of_chain(chain, name)?))
}

/// There is no generator for other machines.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn knows(_: ChainOp) -> bool {
    false
}

/// There is no generator for other machines.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn compile(_: &Chain, _: &str) -> Option<Box<dyn Compiled>> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) use tests::{as_if, generates, on_each_level};

/// Clears the cache of compiled functions; functions in use remain valid.
pub(crate) fn forget() {
    #[cfg(target_arch = "x86_64")]
    function::forget();
}

/// Errors: [`girih_runtime::Error::Configuration`] if an environment variable of the code generator
/// has an invalid value.
pub(crate) fn check_environment() -> girih_runtime::Result<()> {
    ["GIRIH_JIT", "GIRIH_PERF_MAP", "GIRIH_GDB"].iter().try_for_each(|&v| flag(&[v]).map(drop))
}

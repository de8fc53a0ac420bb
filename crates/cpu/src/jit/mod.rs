//! Code generation at run time: loops over vectors, compiled in microseconds.
//!
//! The executor of `girih-kernel` hands over chains of loops ([`Chain`]). Each becomes a
//! straight-line program of the vector IR (`ir`); elementary functions write themselves into it
//! (`trace`). A linear pass gives its values registers (`allocate`), an encoder (`emitter`, with
//! `avx512` or `avx2`) writes the loop around it, and the code goes to memory that is never writable
//! and executable at once (`arena`).
//!
//! Generated code computes what the executor's own loops compute, to the bit (but for payloads of
//! NaNs): the same operations in the same order, nothing contracted. What the generator does not
//! know, and machines it does not know, are left to those. `GIRIH_JIT=0` leaves them all.

#[cfg(target_arch = "x86_64")]
mod allocate;
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
mod ir;
#[cfg(target_arch = "x86_64")]
mod legal;
#[cfg(target_arch = "x86_64")]
mod lower;
#[cfg(target_arch = "x86_64")]
mod ops;
#[cfg(target_arch = "x86_64")]
pub(crate) mod quads;
#[cfg(target_arch = "x86_64")]
mod scalar;
#[cfg(target_arch = "x86_64")]
mod stored;
#[cfg(target_arch = "x86_64")]
pub(crate) mod strewn;
#[cfg(target_arch = "x86_64")]
mod symbols;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tile;
#[cfg(target_arch = "x86_64")]
mod trace;
#[cfg(target_arch = "x86_64")]
pub(crate) mod unit;

use girih_kernel::Kernel;
use girih_kernel::exec::{Chain, ChainOp, Compiled, Compiler, RowProduct};
use girih_runtime::env::flag;

/// The compiler of this machine's code.
pub(crate) struct Generator;

#[cfg(target_arch = "x86_64")]
impl Compiler for Generator {
    fn knows(&self, op: ChainOp) -> bool {
        function::enabled() && lower::knows(op)
    }

    fn compile(&self, chain: &Chain, name: &str) -> Option<Box<dyn Compiled>> {
        Some(Box::new(function::of_chain(chain, name)?))
    }

    fn product(&self, kernel: &Kernel, rows: &[usize]) -> Option<Box<dyn RowProduct>> {
        crate::kernel::row_product(kernel, rows)
    }
}

/// Other machines have no generator.
#[cfg(not(target_arch = "x86_64"))]
impl Compiler for Generator {
    fn knows(&self, _: ChainOp) -> bool {
        false
    }

    fn compile(&self, _: &Chain, _: &str) -> Option<Box<dyn Compiled>> {
        None
    }

    fn product(&self, kernel: &Kernel, rows: &[usize]) -> Option<Box<dyn RowProduct>> {
        crate::kernel::row_product(kernel, rows)
    }
}

/// Forgets the functions that are kept for chains that come again; those in use stay.
pub(crate) fn forget() {
    #[cfg(target_arch = "x86_64")]
    function::forget();
}

/// Errors: [`girih_runtime::Error::Configuration`] if a variable that generated code heeds says
/// nothing usable.
pub(crate) fn check_environment() -> girih_runtime::Result<()> {
    ["GIRIH_JIT", "GIRIH_PERF_MAP", "GIRIH_GDB"].iter().try_for_each(|&v| flag(&[v]).map(drop))
}

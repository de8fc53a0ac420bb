//! Replaces the JIT compiler on machines that it does not support: the executor's own loops run.

use girih_exec::{Chain, ChainOp, Compiled, CompiledCycle, CycleChain};

/// False: no chain can be compiled.
pub(crate) fn knows(_: ChainOp) -> bool {
    false
}

/// `None`: no chain can be compiled.
pub(crate) fn compile(_: &Chain, _: &str) -> Option<Box<dyn Compiled>> {
    None
}

/// `None`: no cycle can be compiled.
pub(crate) fn compile_cycle(_: &CycleChain, _: &str) -> Option<Box<dyn CompiledCycle>> {
    None
}

/// There is no cache of compiled functions.
pub(crate) fn forget() {}

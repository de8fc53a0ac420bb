//! The compiler that the executor of `girih-exec` calls on the host: `jit` compiles chains of loops
//! and cycles of chains, and `strategy` chooses how the GEMMs of kernels over rows are multiplied.

use crate::jit;
use crate::strategy::{Part, Strategy};
use girih_exec::{Chain, ChainOp, Compiled, CompiledCycle, CompiledGemm, Compiler, CycleChain};
use girih_kernel::Kernel;

/// The compiler for this machine.
pub(crate) struct HostCompiler;

impl Compiler for HostCompiler {
    fn knows(&self, op: ChainOp) -> bool {
        jit::knows(op)
    }

    fn compile(&self, chain: &Chain, name: &str) -> Option<Box<dyn Compiled>> {
        jit::compile(chain, name)
    }

    fn compile_cycle(&self, chain: &CycleChain, name: &str) -> Option<Box<dyn CompiledCycle>> {
        jit::compile_cycle(chain, name)
    }

    fn rowwise_gemm(&self, kernel: &Kernel, rows: &[usize]) -> Option<Box<dyn CompiledGemm>> {
        match Strategy::of(kernel, Part::Rows(rows)) {
            Strategy::Rowwise(gemm) => Some(gemm),
            _ => None,
        }
    }
}

//! A GEMM in generated micro-kernels that is ready to run.

use super::microkernels::Function;
use super::operand::Operand;
use super::plan::{BlockedGemm, ReadB, Variant, plan};
use super::problem::Problem;
use crate::pool::Pool;
use crate::prepacked::PrepackedStore;
use girih_exec::{Bindings, ExecError, Prepared};
use girih_kernel::Kernel;

/// A GEMM that is ready to run.
pub(crate) struct GeneratedGemm(pub(super) Variant);

impl GeneratedGemm {
    /// A GEMM whose operands are in memory or computed by `maps` (prologues). `None` for dtypes and
    /// machines without generated micro-kernels, and for kernels of other forms.
    pub fn new(kernel: &Kernel, maps: &[Kernel]) -> Option<GeneratedGemm> {
        plan(Problem::new(kernel, maps)?).map(GeneratedGemm)
    }

    /// Runs the GEMM and the epilogue of its kernel. `store` may hold an operand prepacked.
    ///
    /// # Safety
    /// `prepared` is of the same kernel; the bindings fulfil their contract except for the
    /// workspace.
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
        store: Option<&dyn PrepackedStore>,
    ) -> Result<(), ExecError> {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.0 {
                Variant::Small(gemm) => gemm.run(bindings, pool),
                Variant::AmxVnni(gemm) => gemm.run(prepared, bindings, pool, store),
                Variant::Transposed(gemm) => gemm.run(prepared, bindings, pool, store),
                Variant::Dots(gemm) => gemm.run(prepared, bindings, pool),
                Variant::Blocked(gemm) => gemm.run(prepared, bindings, pool, store),
            }
        }
    }

    /// The buffer of the operand that the GEMM can read prepacked: B, or the filters of a
    /// transposed convolution.
    pub fn prepackable(&self) -> Option<usize> {
        match &self.0 {
            Variant::Dots(_) | Variant::Small(_) => None,
            Variant::AmxVnni(gemm) => gemm.prepackable(),
            Variant::Transposed(gemm) => gemm.prepackable(),
            Variant::Blocked(gemm) => gemm.prepackable(),
        }
    }

    /// The approximate time on one core in nanoseconds.
    pub fn cost_ns(&self) -> u64 {
        match &self.0 {
            Variant::Small(gemm) => gemm.cost_ns(),
            Variant::AmxVnni(gemm) => gemm.cost_ns(),
            Variant::Transposed(gemm) => gemm.cost_ns(),
            Variant::Dots(gemm) => gemm.cost_ns(),
            Variant::Blocked(gemm) => gemm.cost_ns(),
        }
    }

    /// The buffer of B and the time of packing it on one core in nanoseconds, if B is packed before
    /// it is multiplied.
    pub fn packing(&self) -> Option<(usize, u64)> {
        match &self.0 {
            Variant::Blocked(gemm) if gemm.packs_b_ahead() => {
                let Operand::Memory(b) = &gemm.problem.b else { return None };
                Some((b.buffer, gemm.packing_ns()))
            }
            _ => None,
        }
    }

    /// The machine code of the micro-kernels and prologues.
    pub fn code(&self) -> Vec<Vec<u8>> {
        match &self.0 {
            Variant::Small(_) => vec![],
            Variant::AmxVnni(gemm) => with_prologues(gemm.functions(), &gemm.problem),
            Variant::Transposed(gemm) => with_prologues(gemm.functions(), &gemm.problem),
            Variant::Dots(gemm) => with_prologues(gemm.functions(), &gemm.problem),
            Variant::Blocked(gemm) => gemm.code(),
        }
    }
}

impl BlockedGemm {
    /// The machine code of the micro-kernels and prologues.
    pub(super) fn code(&self) -> Vec<Vec<u8>> {
        match &self.b {
            ReadB::PackedAhead(kernels) | ReadB::Pairs(kernels) => {
                with_prologues(kernels.functions(), &self.problem)
            }
            ReadB::PackedByFirstTile { first, others, .. } => {
                with_prologues(first.functions().chain(others.functions()), &self.problem)
            }
            ReadB::Indirect(indirect) => with_prologues(indirect.functions(), &self.problem),
        }
    }
}

/// The machine code of micro-kernels and of the prologues of a problem.
fn with_prologues<'a, Call: 'a>(
    microkernels: impl Iterator<Item = &'a Function<Call>>,
    problem: &Problem,
) -> Vec<Vec<u8>> {
    let prologues = [&problem.a, &problem.b].into_iter().filter_map(|operand| operand.prologue());
    let code = microkernels.map(|function| function.bytes().to_vec());
    code.chain(prologues.flat_map(|prologue| prologue.code())).collect()
}

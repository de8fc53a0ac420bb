//! GEMM in generated micro-kernels, for f32, halves and integers of up to 32 bits, on machines with
//! AVX2 or AVX-512.
//!
//! A [`Problem`] says what is computed, a [`Strategy`] how: `plan` chooses the strategy by one
//! table. Most GEMMs are blocked (Goto and van de Geijn; BLIS). The columns of B are divided into
//! panels. Several panels form a slab, which is packed into the L2 cache and used by all row tiles.
//! If a chunk has few row tiles, the first tile reads B in memory and packs it for the others.
//! Weights that many runs use stay packed (`prepacked`). A is packed once for all chunks, or read in
//! memory if there are few columns.
//!
//! A convolution is a GEMM. The rows, the columns and K of an operand may each have any number of
//! strided dimensions, so the windows of an image are the B of a GEMM: the windows are packed
//! directly from the image (there is no im2col matrix), or read through an indirection if A has few
//! rows (`indirect`). A fused operand (prologue) is computed block by block as it is packed
//! (`prologue`).
//!
//! Halves are widened to f32 when they are read, accumulated in f32 and rounded once. (The bfloat16
//! dot-product instructions would flush subnormals and round twice per pair, and on Sapphire Rapids
//! they have half the throughput of these multiply-adds.) Each element is one chain of
//! multiply-adds for any blocking, so neither the number of threads nor the position of the element
//! changes its bits. With split-K (`split_k`), each element has one chain per part; a dot product
//! (`dots`) has one chain per lane. Integers are accumulated modulo 2^32 for every operand and
//! result dtype. GEMMs of bfloat16 with many rows, and all but the smallest of bytes, run on AMX
//! (`amx_vnni`) if the machine has it, which is several times as fast. Without AMX, GEMMs of bytes
//! run on VNNI if there is VNNI.

mod amx_vnni;
mod blocking;
mod chunk;
#[cfg(test)]
mod describe;
mod dots;
mod drive;
mod indirect;
mod integers;
mod memory;
mod microkernels;
mod operand;
mod pack;
mod panels;
mod plan;
mod prepacked;
mod problem;
mod prologue;
mod rowwise;
mod split_k;
#[cfg(test)]
mod tests;

use crate::pool::Pool;
use crate::prepacked::PrepackedStore;
use girih_kernel::{Bindings, ExecError, Kernel, Prepared};
use microkernels::Function;
use plan::{BlockedGemm, ReadB, Strategy, plan};
use problem::Problem;
pub(crate) use rowwise::RowwiseGemm;

/// A GEMM that is ready to run.
pub(crate) struct Gemm(Strategy);

impl Gemm {
    /// A GEMM whose operands are in memory or computed by `maps` (prologues). `None` for dtypes and
    /// machines without generated micro-kernels, and for kernels of other forms.
    pub fn new(kernel: &Kernel, maps: &[Kernel]) -> Option<Gemm> {
        plan(Problem::new(kernel, maps)?).map(Gemm)
    }

    /// Runs the GEMM and the epilogue of its kernel. `store` may hold B prepacked.
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
                Strategy::AmxVnni(gemm) => gemm.run(prepared, bindings, pool),
                Strategy::Dots(gemm) => gemm.run(prepared, bindings, pool),
                Strategy::Blocked(gemm) => gemm.run(prepared, bindings, pool, store),
            }
        }
    }

    /// The buffer of B, if the GEMM can read B prepacked.
    pub fn prepackable(&self) -> Option<usize> {
        match &self.0 {
            Strategy::AmxVnni(_) | Strategy::Dots(_) => None,
            Strategy::Blocked(gemm) => gemm.prepackable(),
        }
    }

    /// The machine code of the micro-kernels and prologues.
    pub fn code(&self) -> Vec<Vec<u8>> {
        match &self.0 {
            Strategy::AmxVnni(gemm) => with_prologues(gemm.functions(), &gemm.problem),
            Strategy::Dots(gemm) => with_prologues(gemm.functions(), &gemm.problem),
            Strategy::Blocked(gemm) => gemm.code(),
        }
    }
}

impl BlockedGemm {
    /// The machine code of the micro-kernels and prologues.
    fn code(&self) -> Vec<Vec<u8>> {
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

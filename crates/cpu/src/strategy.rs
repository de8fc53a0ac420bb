//! The choice of how a GEMM is multiplied. [`Strategy::of`] makes it for all kernels: for GEMMs on
//! all threads ([`crate::kernel`]), and for those of kernels over rows, which the executor asks the
//! compiler for ([`crate::compiler`]).
//!
//! The strategy is the first of this table that can multiply the GEMM:
//!
//! | strategy | GEMMs |
//! | --- | --- |
//! | [`Strategy::Generated`] | f32, halves and integers of up to 32 bits, on machines with AVX2 or AVX-512; `gemm::plan` chooses the variant |
//! | [`Strategy::InOrder`] | others with fused operands |
//! | [`Strategy::Library`] | others of floats and complex numbers, unless `GIRIH_ISA` limits the instruction set |
//! | [`Strategy::Portable`] | others, and kernels without a GEMM |
//!
//! [`Strategy::Rowwise`] takes the place of the first and the third in a kernel over rows.

#[cfg(target_arch = "x86_64")]
use crate::gemm::{GeneratedGemm, RowwiseGemm};
use crate::library_gemm::LibraryGemm;
use girih_exec::CompiledGemm;
use girih_kernel::{Core, Kernel, RowwiseCore};

/// How a GEMM is multiplied.
#[allow(clippy::large_enum_variant, reason = "the kernel moves it into a box at once")]
pub(crate) enum Strategy<'a> {
    /// In generated micro-kernels, which also compute fused operands as they pack them.
    #[cfg(target_arch = "x86_64")]
    Generated {
        gemm: GeneratedGemm,
        /// The kernel of the GEMM itself, without the maps that compute its operands.
        kernel: &'a Kernel,
    },
    /// By the `gemm` crate.
    Library(LibraryGemm),
    /// The maps that compute operands run first and store them; then the GEMM runs by the strategy
    /// for operands in memory.
    InOrder(&'a RowwiseCore),
    /// On a few rows at a time, in generated micro-kernels or by the `gemm` crate.
    Rowwise(Box<dyn CompiledGemm>),
    /// By the plain loops of the executor.
    Portable,
}

/// The part of a GEMM that is computed at a time.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    /// All of it, on all threads.
    Whole,
    /// These numbers of rows, on one thread: the GEMM is a part of a kernel over rows.
    Rows(&'a [usize]),
}

impl<'a> Strategy<'a> {
    /// The strategy for the GEMM of a kernel.
    pub fn of(kernel: &'a Kernel, part: Part<'_>) -> Strategy<'a> {
        let chosen = match (part, &kernel.core) {
            (Part::Rows(rows), _) => rowwise(kernel, rows).map(Strategy::Rowwise),
            (Part::Whole, Core::Gemm { .. }) => {
                generated(kernel, &[]).or_else(|| library(kernel).map(Strategy::Library))
            }
            (Part::Whole, Core::Rows(rows)) if kernel.points() == 1 => {
                let prologues_and_gemm = rows.prologues_and_gemm();
                prologues_and_gemm
                    .map(|(maps, gemm)| generated(gemm, maps).unwrap_or(Strategy::InOrder(rows)))
            }
            _ => None,
        };
        chosen.unwrap_or(Strategy::Portable)
    }
}

/// A GEMM in generated micro-kernels; `maps` are prologues that compute its operands as they are
/// packed.
#[cfg(target_arch = "x86_64")]
fn generated<'a>(kernel: &'a Kernel, maps: &[Kernel]) -> Option<Strategy<'a>> {
    let gemm = GeneratedGemm::new(kernel, maps)?;
    #[cfg(test)]
    crate::dump::record_gemm(gemm.describe());
    Some(Strategy::Generated { gemm, kernel })
}

#[cfg(not(target_arch = "x86_64"))]
fn generated<'a>(_: &'a Kernel, _: &[Kernel]) -> Option<Strategy<'a>> {
    None
}

/// A GEMM through the `gemm` crate.
fn library(kernel: &Kernel) -> Option<LibraryGemm> {
    let gemm = LibraryGemm::new(kernel)?;
    #[cfg(all(test, target_arch = "x86_64"))]
    crate::dump::record_gemm(gemm.describe());
    Some(gemm)
}

/// The GEMM of a kernel over rows that is run on these numbers of rows at a time.
fn rowwise(kernel: &Kernel, rows: &[usize]) -> Option<Box<dyn CompiledGemm>> {
    #[cfg(target_arch = "x86_64")]
    if let Some(gemm) = RowwiseGemm::new(kernel, rows) {
        #[cfg(test)]
        crate::dump::record_gemm(gemm.describe());
        return Some(Box::new(gemm));
    }
    Some(Box::new(library(kernel)?))
}

//! The problem that a GEMM solves: sizes, operands and destination. The plan decides how to solve
//! it.

use super::integers;
use super::operand::{CMatrix, CTile, Matrix, Operand};
use girih_exec::{Bindings, BodyPart, ExecError, Prepared, Scratch};
use girih_kernel::{Core, Kernel};
use smallvec::SmallVec;
use std::ops::Range;

/// `C = A B` for each entry of a batch, followed by the epilogue of the kernel. A convolution is
/// the same problem: several strided dimensions of B are its columns and its K.
pub(super) struct Problem {
    /// The extents of the batch, and their product.
    pub batch: SmallVec<[usize; 4]>,
    pub batches: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Operand,
    pub b: Operand,
    /// C, if the kernel has no epilogue.
    pub c: Option<CMatrix>,
    /// The size in bytes of an element as the epilogue reads it.
    core_bytes: usize,
}

/// The rows and columns of one entry of the batch.
#[derive(Clone)]
pub(super) struct CBlock {
    pub batch: usize,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
}

impl Problem {
    /// The problem of a kernel whose operands are in memory or computed by `maps`. `None` for
    /// dtypes that no micro-kernel multiplies, for maps that compute no operand in lines, and for
    /// other kernels.
    pub fn new(kernel: &Kernel, maps: &[Kernel]) -> Option<Problem> {
        let Core::Gemm { lhs, rhs, .. } = &kernel.core else { return None };
        let dims = kernel.gemm_dims()?;
        let (m, n, k) = (kernel.size(&dims.rows), kernel.size(&dims.columns), kernel.reduced());
        let a = Operand::new(maps, Matrix::new(kernel, lhs, &dims.rows)?, [m, k]);
        let b = Operand::new(maps, Matrix::new(kernel, rhs, &dims.columns)?, [n, k]);
        let fused = [&a, &b].iter().filter(|operand| operand.prologue().is_some()).count();
        (fused >= maps.len()).then_some(())?;
        let batch: SmallVec<[usize; 4]> = SmallVec::from_slice(&kernel.extents[dims.batch.clone()]);
        Some(Problem {
            batches: batch.iter().product(),
            batch,
            m,
            n,
            k,
            a,
            b,
            c: CMatrix::new(kernel, &dims),
            core_bytes: integers::core_bytes(kernel)?,
        })
    }

    /// The same problem as `C^T = B^T A^T`. `C` has one column, so its elements keep their order.
    pub fn transposed_column(self) -> Problem {
        let Problem { m, n, a, b, c, .. } = self;
        debug_assert_eq!(n, 1);
        let c = c.and_then(CMatrix::transposed_column);
        Problem { m: n, n: m, a: b, b: a, c, ..self }
    }

    /// The same problem, with `ld` elements between the lines of the blocks of a fused A.
    pub fn with_a_ld(self, ld: usize) -> Problem {
        Problem { a: self.a.with_ld(ld), ..self }
    }

    /// The same problem, with `ld` elements between the lines of the blocks of a fused B.
    pub fn with_b_ld(self, ld: usize) -> Problem {
        Problem { b: self.b.with_ld(ld), ..self }
    }

    /// Whether all GEMMs of the batch have the same A.
    pub fn has_one_a(&self) -> bool {
        self.a.in_memory().is_same_in_batch(&self.batch)
    }

    /// The approximate time on one core in nanoseconds: the larger of the time of arithmetic with
    /// packing, and the time of reading B. `element_work` is the number of multiplications per
    /// element of B, and `k` counts elements or pairs.
    pub fn cost_ns(&self, k: usize, element_work: usize) -> u64 {
        let reading = self.b_elements(k).saturating_mul(self.b.in_memory().stored.size()) / 25;
        self.arithmetic_ns(k, element_work).max(reading as u64)
    }

    /// The part of [`Problem::cost_ns`] that is the time of arithmetic with packing.
    pub fn arithmetic_ns(&self, k: usize, element_work: usize) -> u64 {
        (self.b_elements(k).saturating_mul(element_work) / 80) as u64
    }

    fn b_elements(&self, k: usize) -> usize {
        self.n.saturating_mul(k).saturating_mul(self.batches)
    }

    /// C in memory from the first row and column of a block on, if the kernel has no epilogue.
    pub fn c_tile(&self, block: &CBlock, bindings: &Bindings<'_>) -> Option<CTile> {
        let CBlock { batch, rows, columns } = block;
        let c = self.c.as_ref()?;
        Some(c.tile(bindings, &self.batch, *batch, rows.start, columns.start))
    }

    /// Runs the epilogue on a block whose sums are in `tile`, and overwrites the sums.
    ///
    /// # Safety
    /// As [`Prepared::run_body`] for the points of the block; `tile` holds their sums.
    pub unsafe fn run_epilogue(
        &self,
        prepared: &Prepared,
        block: &CBlock,
        tile: CTile,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let sizes = (block.rows.len(), block.columns.len());
        // SAFETY: the caller's promise; the 32-bit sums are not read again.
        unsafe { integers::narrow(tile, sizes, self.core_bytes) };
        let part = self.body_part(block, tile);
        // SAFETY: the caller's promise.
        unsafe { prepared.run_body(&part, bindings, scratch) }
    }

    /// A block whose sums are in `tile`, in the form in which the epilogue takes it.
    pub fn body_part(&self, CBlock { batch, rows, columns }: &CBlock, tile: CTile) -> BodyPart {
        BodyPart {
            point: (batch * self.m + rows.start) * self.n + columns.start,
            row: self.n,
            rows: rows.len(),
            columns: columns.len(),
            core: tile.start as *const u8,
            pitch: tile.ldc * (4 / self.core_bytes) as isize,
        }
    }

    /// The size in bytes of an element as the epilogue reads it.
    #[cfg(test)]
    pub fn core_bytes(&self) -> usize {
        self.core_bytes
    }
}

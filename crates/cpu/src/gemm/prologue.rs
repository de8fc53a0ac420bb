//! Fused operands (prologues): A or B is computed block by block as it is packed, in memory of the
//! thread.

use super::operand::{Matrix, along};
use crate::compiler::HostCompiler;
use crate::dims::Dims;
use girih_exec::{Bindings, Lines, Points, Scratch};
use girih_kernel::Kernel;
use smallvec::SmallVec;
use std::ops::Range;

/// A prologue, the order of the elements that it computes, and the layout of its blocks.
pub(super) struct Prologue {
    points: Points,
    /// The layout that the operand would have in memory; points of the map are numbered in the
    /// order of this layout.
    matrix: Matrix,
    /// Whether lines of a block run along K, not along rows or columns.
    along_k: bool,
    /// The number of points between consecutive lines.
    line_stride: usize,
    /// The number of rows or columns of the operand, and K.
    sizes: [usize; 2],
    /// The number of elements between consecutive lines of a block.
    ld: usize,
    /// The layout of a block, as an operand that begins at the result of [`Prologue::fill`].
    block: Matrix,
}

/// A range of rows or columns of an operand, and a range of K.
pub(super) struct OperandBlock {
    pub batch: usize,
    pub outer: Range<usize>,
    pub k_range: Range<usize>,
}

impl Prologue {
    /// The prologue of the operand with that layout, whose `sizes` are rows or columns, and K; its
    /// blocks have whole lines. `None` unless one of the maps computes the operand in lines. The
    /// maps are those of a [`RowwiseCore::prologues_and_gemm`].
    ///
    /// [`RowwiseCore::prologues_and_gemm`]: girih_kernel::RowwiseCore::prologues_and_gemm
    pub fn new(maps: &[Kernel], matrix: &Matrix, sizes: [usize; 2]) -> Option<Prologue> {
        let computes = |map: &&Kernel| map.stores[0].access.buffer.0 as usize == matrix.buffer;
        let map = maps.iter().find(computes)?;
        let (outer, k_stride) = (matrix.outer.stride()?, matrix.k_dims.stride()?);
        let along_k = k_stride == 1 && (outer != 1 || sizes[1] >= sizes[0]);
        let (line, line_stride) = if along_k { (k_stride, outer) } else { (outer, k_stride) };
        let line_stride = usize::try_from(line_stride).ok().filter(|_| line == 1)?;
        let points = Points::compiled(map, &HostCompiler);
        let ld = sizes[along_k as usize];
        let block = block_layout(matrix, along_k, sizes, ld);
        Some(Prologue { points, matrix: matrix.clone(), along_k, line_stride, sizes, ld, block })
    }

    /// The same prologue with `ld` elements between the lines of a block.
    pub fn with_ld(self, ld: usize) -> Prologue {
        let block = block_layout(&self.matrix, self.along_k, self.sizes, ld);
        Prologue { ld, block, ..self }
    }

    /// The layout that the operand would have in memory.
    pub fn in_memory(&self) -> &Matrix {
        &self.matrix
    }

    /// The layout of a block, as an operand that begins at the result of [`Prologue::fill`].
    pub fn block(&self) -> &Matrix {
        &self.block
    }

    /// Whether lines of blocks run along K.
    pub fn along_k(&self) -> bool {
        self.along_k
    }

    /// The size in bytes of a block of `outer` rows or columns and `k` indices of K.
    pub fn bytes(&self, outer: usize, k: usize) -> usize {
        let lines = if self.along_k { outer } else { k };
        lines * self.ld * self.matrix.stored.size()
    }

    /// Computes a block. Returns the address at which an operand of the layout of the block would
    /// begin.
    ///
    /// # Safety
    /// The bindings are those of the GEMM; the block lies in the operand, whose batch has these
    /// extents; `to` has room for the block.
    pub unsafe fn fill(
        &self,
        block: &OperandBlock,
        extents: &[usize],
        to: *mut u8,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> *const u8 {
        let (matrix, size) = (&self.matrix, self.matrix.stored.size());
        let (lines, line) = match self.along_k {
            true => (&block.outer, &block.k_range),
            false => (&block.k_range, &block.outer),
        };
        let first = matrix.offset
            + along(extents, &matrix.batch, block.batch)
            + matrix.outer.at(block.outer.start)
            + matrix.k_dims.at(block.k_range.start);
        let all = Lines {
            first: first as usize,
            points: line.len(),
            lines: lines.len(),
            step: self.line_stride,
            to,
            pitch: self.ld * size,
        };
        // SAFETY: the caller's promise.
        let done = unsafe { self.points.run_lines(&all, (matrix.buffer, size), bindings, scratch) };
        // Maps that may fail compute no operand, so this is a defect that checked mode found.
        if let Err(error) = done {
            crate::checked::report(error);
        }
        to.wrapping_sub((lines.start * self.ld + line.start) * size)
    }

    /// The machine code of the prologue.
    pub fn code(&self) -> Vec<Vec<u8>> {
        self.points.machine_code()
    }
}

/// The layout of a block with `ld` elements between its lines, which run along K or not.
fn block_layout(matrix: &Matrix, along_k: bool, sizes: [usize; 2], ld: usize) -> Matrix {
    let steps = if along_k { [ld, 1] } else { [1, ld] };
    let [outer, k_dims] = [0, 1].map(|i| Dims::new([(sizes[i], steps[i] as isize)].into_iter()));
    let batch = SmallVec::from_elem(0, matrix.batch.len());
    Matrix { outer, k_dims, batch, offset: 0, ..matrix.clone() }
}

//! Fused operands (prologues): A or B is computed block by block as it is packed, in memory of the
//! thread.

use super::operand::{Operand, along};
use crate::compiler::HostCompiler;
use crate::dims::Dims;
use girih_kernel::exec::{Lines, Points};
use girih_kernel::{Bindings, Kernel, Scratch};
use smallvec::SmallVec;
use std::ops::Range;

/// The most elements of a block of B, unless a single row of a chunk has more. The block stays in
/// the L2 cache until it is packed.
pub(super) const MAX_B_BLOCK_ELEMENTS: usize = 1 << 17;

/// The most elements of a block of A, unless one tile of rows has more.
pub(super) const MAX_A_BLOCK_ELEMENTS: usize = 1 << 14;

/// A prologue and the order of the elements that it computes.
pub(super) struct Prologue {
    points: Points,
    /// The layout that the operand would have in memory; points of the map are numbered like it.
    layout: Operand,
    /// Lines of a block run along K, not along rows or columns.
    along_k: bool,
    /// Points between consecutive lines.
    line_stride: usize,
    /// Rows or columns of the operand, and K.
    sizes: [usize; 2],
    /// Elements between consecutive lines of a block.
    ld: usize,
}

/// A range of rows or columns of an operand, and a range of K.
pub(super) struct OperandBlock {
    pub batch: usize,
    pub outer: Range<usize>,
    pub k_range: Range<usize>,
}

impl Prologue {
    /// The prologue of the operand with that `layout`, whose `sizes` are rows or columns, and K.
    /// `None` unless one of the maps computes the operand in lines. The maps are those of a
    /// [`RowwiseCore::prologues_and_gemm`].
    ///
    /// [`RowwiseCore::prologues_and_gemm`]: girih_kernel::RowwiseCore::prologues_and_gemm
    pub fn new(maps: &[Kernel], layout: &Operand, sizes: [usize; 2]) -> Option<Prologue> {
        let makes = |map: &&Kernel| map.stores[0].access.buffer.0 as usize == layout.buffer;
        let map = maps.iter().find(makes)?;
        let (outer, k_stride) = (layout.outer.stride()?, layout.k_dims.stride()?);
        let along_k = k_stride == 1 && (outer != 1 || sizes[1] >= sizes[0]);
        let (line, line_stride) = if along_k { (k_stride, outer) } else { (outer, k_stride) };
        let line_stride = usize::try_from(line_stride).ok().filter(|_| line == 1)?;
        let points = Points::compiled(map, &HostCompiler);
        Some(Prologue { points, layout: layout.clone(), along_k, line_stride, sizes, ld: 0 })
    }

    /// The layout that the operand would have in memory.
    pub fn layout(&self) -> &Operand {
        &self.layout
    }

    /// True if lines of blocks run along K.
    pub fn along_k(&self) -> bool {
        self.along_k
    }

    /// Sets the elements between lines of a block. Returns the layout of a block as an operand that
    /// begins at the result of [`Prologue::fill`].
    pub fn in_blocks(&mut self, ld: usize) -> Operand {
        self.ld = ld;
        let of =
            |size: usize, line_stride: usize| Dims::new([(size, line_stride as isize)].into_iter());
        let steps = if self.along_k { [ld, 1] } else { [1, ld] };
        let [outer, k_dims] = [0, 1].map(|i| of(self.sizes[i], steps[i]));
        let batch = SmallVec::from_elem(0, self.layout.batch.len());
        Operand { outer, k_dims, batch, offset: 0, ..self.layout.clone() }
    }

    /// Bytes of a block of `outer` rows or columns and `k` indices of K.
    pub fn bytes(&self, outer: usize, k: usize) -> usize {
        let lines = if self.along_k { outer } else { k };
        lines * self.ld * self.layout.stored.size()
    }

    /// Computes a block. Returns the address at which an operand of this layout would begin.
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
        let (layout, size) = (&self.layout, self.layout.stored.size());
        let (lines, line) = match self.along_k {
            true => (&block.outer, &block.k_range),
            false => (&block.k_range, &block.outer),
        };
        let first = layout.offset
            + along(extents, &layout.batch, block.batch)
            + layout.outer.at(block.outer.start)
            + layout.k_dims.at(block.k_range.start);
        let all = Lines {
            first: first as usize,
            points: line.len(),
            lines: lines.len(),
            step: self.line_stride,
            to,
            pitch: self.ld * size,
        };
        // SAFETY: the caller's promise.
        let done = unsafe { self.points.run_lines(&all, (layout.buffer, size), bindings, scratch) };
        debug_assert!(done.is_ok(), "maps that may fail compute no operand");
        to.wrapping_sub((lines.start * self.ld + line.start) * size)
    }

    /// The machine code of the prologue.
    pub fn code(&self) -> Vec<Vec<u8>> {
        self.points.machine_code()
    }
}

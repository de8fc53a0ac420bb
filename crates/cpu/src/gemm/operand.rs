//! The operands A and B, and C: in memory, or fused.

use super::microkernels::{LANES, Stored};
use super::prologue::{OperandBlock, Prologue};
use crate::dims::Dims;
use girih_exec::{Bindings, Scratch};
use girih_ir::DType;
use girih_kernel::{Access, GemmDims, Inst, Kernel};
use smallvec::SmallVec;
use std::ops::Range;

/// The source of the elements of an operand when it is packed. Prepacked weights are a third
/// source, which only a launch knows ([`BlockB`](super::chunk::BlockB)).
pub(super) enum Operand {
    /// The operand is in memory.
    Memory(Matrix),
    /// A map (the prologue) computes the operand block by block.
    Fused(Box<Prologue>),
}

impl Operand {
    /// The operand with that layout in memory, which is fused if one of the maps computes it.
    /// `sizes` has the number of rows or columns, and K.
    pub fn new(maps: &[Kernel], matrix: Matrix, sizes: [usize; 2]) -> Operand {
        match Prologue::new(maps, &matrix, sizes) {
            Some(prologue) => Operand::Fused(Box::new(prologue)),
            None => Operand::Memory(matrix),
        }
    }

    /// The prologue of a fused operand.
    pub fn prologue(&self) -> Option<&Prologue> {
        match self {
            Operand::Memory(_) => None,
            Operand::Fused(prologue) => Some(prologue.as_ref()),
        }
    }

    /// The layout in memory. For a fused operand, the layout that it would have if it were in
    /// memory.
    pub fn in_memory(&self) -> &Matrix {
        match self {
            Operand::Memory(matrix) => matrix,
            Operand::Fused(prologue) => prologue.in_memory(),
        }
    }

    /// The layout that packing reads: the layout of the operand in memory, or of a block of a fused
    /// operand.
    pub fn packed_from(&self) -> &Matrix {
        match self {
            Operand::Memory(matrix) => matrix,
            Operand::Fused(prologue) => prologue.block(),
        }
    }

    /// The same operand, with `ld` elements between the lines of the blocks of a fused operand.
    pub fn with_ld(self, ld: usize) -> Operand {
        match self {
            Operand::Memory(matrix) => Operand::Memory(matrix),
            Operand::Fused(prologue) => Operand::Fused(Box::new((*prologue).with_ld(ld))),
        }
    }

    /// The size in bytes of a block of `outer` rows or columns and `k` indices of K, if the operand
    /// is fused.
    pub fn block_bytes(&self, outer: usize, k: usize) -> usize {
        self.prologue().map_or(0, |prologue| prologue.bytes(outer, k))
    }

    /// The address at which the operand would begin if all of it had the layout of the block. The
    /// operand is in memory, or the block is first computed to `to`.
    ///
    /// # Safety
    /// As [`Prologue::fill`].
    pub unsafe fn start(
        &self,
        block: &OperandBlock,
        extents: &[usize],
        to: *mut u8,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> *const u8 {
        match self {
            Operand::Memory(matrix) => matrix.start(bindings, extents, block.batch),
            // SAFETY: the caller's promise.
            Operand::Fused(prologue) => unsafe {
                prologue.fill(block, extents, to, bindings, scratch)
            },
        }
    }
}

/// The layout of A or B. Rows, columns and K may each have several strided dimensions, as the
/// windows of an image have.
#[derive(Clone)]
pub(super) struct Matrix {
    pub buffer: usize,
    pub stored: Stored,
    pub offset: isize,
    pub batch: SmallVec<[isize; 4]>,
    /// The rows of A, or the columns of B.
    pub outer: Dims,
    pub k_dims: Dims,
}

impl Matrix {
    /// `outer` has the dimensions of rows or columns. Returns `None` for dtypes that no
    /// micro-kernel reads.
    pub fn new(kernel: &Kernel, access: &Access, outer: &Range<usize>) -> Option<Matrix> {
        let all = kernel.gemm_dims()?;
        let stored = match access.dtype {
            DType::F32 => Stored::F32,
            DType::F16 => Stored::F16,
            DType::BF16 => Stored::BF16,
            DType::I8 => Stored::I8,
            DType::U8 => Stored::U8,
            DType::I16 => Stored::I16,
            DType::U16 => Stored::U16,
            DType::I32 | DType::U32 => Stored::I32,
            _ => return None,
        };
        Some(Matrix {
            buffer: access.buffer.0 as usize,
            stored,
            offset: access.offset,
            batch: SmallVec::from_slice(&access.strides[all.batch]),
            outer: Dims::of(kernel, access, outer),
            k_dims: Dims::of(kernel, access, &all.contracted),
        })
    }

    /// The address at which the matrix of an entry of the batch begins.
    pub fn start(&self, bindings: &Bindings<'_>, extents: &[usize], batch: usize) -> *const u8 {
        let element = self.offset + along(extents, &self.batch, batch);
        let size = self.stored.size() as isize;
        (bindings.buffers[self.buffer] as *const u8).wrapping_offset(element * size)
    }

    /// Whether packing should read along K, because consecutive elements along K are contiguous.
    pub fn along_k(&self) -> bool {
        let run = self.k_dims.inner_stride() == 1 && self.k_dims.inner_extent() >= LANES;
        run && self.outer.inner_stride() != 1
    }

    /// Whether all entries of a batch with these extents have the same matrix.
    pub fn is_same_in_batch(&self, extents: &[usize]) -> bool {
        self.batch.iter().zip(extents).all(|(stride, extent)| *stride == 0 || *extent == 1)
    }

    /// The number of bytes between the rows of B, if B has contiguous columns.
    pub fn row_major_ldb(&self) -> Option<isize> {
        let ldb = self.k_dims.stride()? * self.stored.size() as isize;
        (self.outer.stride() == Some(1)).then_some(ldb)
    }
}

/// The number of elements from the first matrix of a batch to the matrix of an entry.
pub(super) fn along(extents: &[usize], strides: &[isize], mut batch: usize) -> isize {
    let mut element = 0;
    for (&extent, &stride) in extents.iter().zip(strides).rev() {
        element += (batch % extent) as isize * stride;
        batch /= extent;
    }
    element
}

/// Writes the distances of the matrices of consecutive entries of a batch, from entry `first` on, to
/// `to`; without a division for each.
pub(super) fn along_all(extents: &[usize], strides: &[isize], first: usize, to: &mut [isize]) {
    let (mut digits, mut rest) = (SmallVec::<[usize; 4]>::from_elem(0, extents.len()), first);
    for (digit, &extent) in digits.iter_mut().zip(extents).rev() {
        *digit = rest % extent;
        rest /= extent;
    }
    let mut element = along(extents, strides, first);
    for to in to {
        *to = element;
        for ((digit, &extent), &stride) in digits.iter_mut().zip(extents).zip(strides).rev() {
            (*digit, element) = (*digit + 1, element + stride);
            if *digit < extent {
                break;
            }
            (*digit, element) = (0, element - extent as isize * stride);
        }
    }
}

/// The result of a GEMM: its first element, and the number of elements between rows. Elements have
/// 32 bits: f32, or the bits of an integer.
#[derive(Clone, Copy)]
pub(super) struct CTile {
    pub start: *mut f32,
    pub ldc: isize,
}

/// The destination of a GEMM that has no epilogue; its columns are contiguous.
pub(super) struct CMatrix {
    buffer: usize,
    offset: isize,
    /// The number of elements from entry to entry along each dimension of the batch.
    pub batch: SmallVec<[isize; 4]>,
    /// The number of elements between rows.
    pub ldc: isize,
}

impl CMatrix {
    /// Returns `None` if the kernel has an epilogue, which then reads C from a tile.
    pub fn new(kernel: &Kernel, dims: &GemmDims) -> Option<CMatrix> {
        let ([Inst::Core { dtype: DType::F32 | DType::I32 | DType::U32 }], [store]) =
            (kernel.body.insts.as_slice(), kernel.stores.as_slice())
        else {
            return None;
        };
        let access = &store.access;
        let step = |range: &Range<usize>| Dims::of(kernel, access, range).stride();
        (step(&dims.columns) == Some(1)).then_some(())?;
        Some(CMatrix {
            buffer: access.buffer.0 as usize,
            offset: access.offset,
            batch: SmallVec::from_slice(&access.strides[dims.batch.clone()]),
            ldc: step(&dims.rows)?,
        })
    }

    /// The transpose of a C that has one column, if the transpose's columns are contiguous.
    pub fn transposed_column(self) -> Option<CMatrix> {
        (self.ldc == 1).then_some(self)
    }

    /// The first element of the first entry of the batch.
    pub fn start(&self, bindings: &Bindings<'_>) -> *mut f32 {
        (bindings.buffers[self.buffer] as *mut f32).wrapping_offset(self.offset)
    }

    /// C from a row and a column of an entry of the batch on.
    pub fn tile(
        &self,
        bindings: &Bindings<'_>,
        extents: &[usize],
        batch: usize,
        row: usize,
        column: usize,
    ) -> CTile {
        let element = self.offset
            + along(extents, &self.batch, batch)
            + row as isize * self.ldc
            + column as isize;
        let start = (bindings.buffers[self.buffer] as *mut f32).wrapping_offset(element);
        CTile { start, ldc: self.ldc }
    }
}

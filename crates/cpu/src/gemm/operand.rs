//! The memory layout of the matrices of a GEMM.

use super::microkernels::{LANES, Stored};
use crate::dims::Dims;
use girih_ir::DType;
use girih_kernel::{Access, Bindings, GemmDims, Inst, Kernel};
use smallvec::SmallVec;
use std::ops::Range;

/// An operand, A or B.
#[derive(Clone)]
pub(super) struct Operand {
    pub buffer: usize,
    pub stored: Stored,
    pub offset: isize,
    pub batch: SmallVec<[isize; 4]>,
    /// Rows of A, columns of B.
    pub outer: Dims,
    pub k_dims: Dims,
}

impl Operand {
    pub fn new(kernel: &Kernel, access: &Access, outer: &Range<usize>) -> Option<Operand> {
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
        Some(Operand {
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

    /// True if packing should read along K, because consecutive elements along K are contiguous.
    pub fn along_k(&self) -> bool {
        let run = self.k_dims.inner_stride() == 1 && self.k_dims.inner_extent() >= LANES;
        run && self.outer.inner_stride() != 1
    }
}

/// Elements from the first matrix of a batch to the matrix of an entry.
pub(super) fn along(extents: &[usize], strides: &[isize], mut batch: usize) -> isize {
    let mut element = 0;
    for (&extent, &stride) in extents.iter().zip(strides).rev() {
        element += (batch % extent) as isize * stride;
        batch /= extent;
    }
    element
}

/// The result of a GEMM: its first element, and elements between rows. Elements have 32 bits: f32,
/// or the bits of an integer.
#[derive(Clone, Copy)]
pub(super) struct CTile {
    pub start: *mut f32,
    pub ldc: isize,
}

/// The destination of a GEMM that has no epilogue; its columns are contiguous.
pub(super) struct CMatrix {
    buffer: usize,
    offset: isize,
    batch: SmallVec<[isize; 4]>,
    ldc: isize,
}

impl CMatrix {
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

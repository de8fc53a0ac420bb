//! Memory of other libraries as tensors: its owner, its layout, and whether it may be shared.
//!
//! A tensor is a value, and an op on it may run much later. Memory that its owner can still write
//! is therefore copied, unless the caller asks to share it.

use crate::errors::{IntoPy, exception, invalid};
use crate::interpreter::detach;
use girih_ir::{DType, TensorSpec};
use girih_record::Result;
use girih_record::foreign::ForeignRun;
pub use girih_record::foreign::{ForeignLayout, dense_strides};
use girih_record::placement::shares_host_memory;
use girih_runtime::{Buffer, DeviceId, Value};
use pyo3::prelude::*;
use std::any::Any;
use std::sync::Arc;

/// A front end's tensor, as an import makes it of memory.
pub trait FromMemory: Sized + Send {
    /// A tensor with a copy of row-major bytes.
    ///
    /// Errors: as there is no memory for it.
    fn from_bytes(spec: &TensorSpec, bytes: &[u8]) -> Result<Self>;
    /// A tensor whose bytes are read in parts: `read` fills memory with the bytes from an offset on.
    ///
    /// Errors: as for [`FromMemory::from_bytes`].
    fn from_reader(spec: &TensorSpec, read: impl FnMut(usize, &mut [u8])) -> Result<Self>;
    /// A tensor that shares a value.
    ///
    /// Errors: those of a value that is smaller than the spec says.
    fn from_value(spec: &TensorSpec, value: Value) -> Result<Self>;
    /// Whether nobody can write the memory of an object of Python while its owner lives.
    fn is_constant(object: &Bound<'_, PyAny>) -> bool;
}

/// How an import treats memory of another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Import {
    /// `copy=True`: always copies.
    Copy,
    /// `copy=None`: shares the memory only if nobody can write it.
    Safe,
    /// `copy=False`: shares the memory, or fails.
    Share,
}

impl Import {
    /// The mode that the argument `copy` selects.
    pub fn of(copy: Option<bool>) -> Import {
        match copy {
            None => Import::Safe,
            Some(true) => Import::Copy,
            Some(false) => Import::Share,
        }
    }
}

/// An array in memory of another owner.
pub struct Foreign {
    /// The address of the first element.
    pub address: usize,
    /// The shape and dtype, and the strides.
    pub layout: ForeignLayout,
    /// Whether the bytes of a number are in the byte order of other machines.
    pub swapped: bool,
    /// Whether nobody can write the memory while its owner lives.
    pub constant: bool,
    /// The owner, which keeps the memory valid.
    pub owner: Box<dyn Any + Send + Sync>,
}

impl Foreign {
    /// A tensor of the elements. It shares their memory if `how` demands or allows sharing.
    ///
    /// # Safety
    /// `owner` keeps every element readable that shape and strides reach from the address.
    pub unsafe fn tensor<T: FromMemory>(
        self,
        py: Python<'_>,
        what: &str,
        how: Import,
    ) -> PyResult<T> {
        self.check(what)?;
        let spec = &self.layout.spec;
        if spec.numel() == 0 {
            return detach(py, || T::from_bytes(spec, &[])).py();
        }
        let obstacle = if how == Import::Copy || how == Import::Safe && !self.constant {
            Some("it was asked for")
        } else if !shares_host_memory().py()? {
            Some("the device has memory of its own")
        } else {
            // SAFETY: the caller upholds the same contract.
            unsafe { self.obstacle() }
        };
        match obstacle {
            None => {
                let size = spec.size_bytes();
                let owner = Arc::new(Shared { address: self.address, size, _owner: self.owner });
                let buffer = Buffer::shared(DeviceId::HOST, owner, 0..size);
                T::from_value(&self.layout.spec, Value::new(buffer)).py()
            }
            Some(why) if how == Import::Share => {
                Err(must_copy(what, &format!("{why}, so that its memory is no tensor's as it is")))
            }
            // SAFETY: the caller upholds the same contract.
            Some(_) => unsafe { self.copied(py) },
        }
    }

    /// Fails for descriptions that no memory can match: the number of strides differs from the
    /// number of axes, or elements have invalid addresses.
    fn check(&self, what: &str) -> PyResult<()> {
        let Foreign { layout, address, .. } = self;
        let ForeignLayout { spec, strides } = layout;
        spec.shape.check("asarray", spec.dtype).py()?;
        if strides.len() != spec.shape.rank() {
            let (found, rank) = (strides.len(), spec.shape.rank());
            return Err(invalid(format!("{what}: {found} strides for an array of rank {rank}")));
        }
        if spec.numel() == 0 {
            return Ok(());
        }
        if layout.extent().is_none() {
            return Err(invalid(format!(
                "{what}: the strides {strides:?} reach beyond the address space"
            )));
        }
        match layout.fits_at(*address) {
            true => Ok(()),
            false => Err(invalid(format!("{what}: no array of {spec} is at address {address:#x}"))),
        }
    }

    /// The reason why a tensor cannot use the memory as it is; `None` if it can.
    ///
    /// # Safety
    /// As for [`Foreign::tensor`].
    unsafe fn obstacle(&self) -> Option<&'static str> {
        let Foreign { layout, address, .. } = self;
        let spec = &layout.spec;
        if !layout.is_dense() {
            return Some("its elements are not row-major");
        }
        if self.swapped {
            return Some("its bytes are in the order of other machines");
        }
        if !address.is_multiple_of(spec.dtype.real().size()) {
            return Some("its elements are not aligned");
        }
        if spec.dtype == DType::Bool {
            // SAFETY: the array is dense, so these bytes are its elements; the caller guarantees
            // that they are readable.
            let bytes =
                unsafe { std::slice::from_raw_parts(*address as *const u8, spec.size_bytes()) };
            if bytes.iter().any(|&b| b > 1) {
                return Some("some of its bools are neither 0 nor 1");
            }
        }
        None
    }

    /// # Safety
    /// As for [`Foreign::tensor`].
    unsafe fn copied<T: FromMemory>(self, py: Python<'_>) -> PyResult<T> {
        let Foreign { address, ref layout, swapped, .. } = self;
        let spec = &layout.spec;
        let is_dense = layout.strides == dense_strides(spec);
        let plain = spec.dtype != DType::Bool && !swapped && is_dense;
        if plain {
            // SAFETY: the array is dense, so these bytes are its elements; the caller guarantees
            // that they are readable.
            let bytes =
                unsafe { std::slice::from_raw_parts(address as *const u8, spec.size_bytes()) };
            return detach(py, || T::from_bytes(spec, bytes)).py();
        }
        let part = spec.dtype.real().size();
        let read = |at: usize, out: &mut [u8]| {
            assert!(out.len() <= spec.size_bytes().saturating_sub(at), "a part of the whole");
            // SAFETY: the caller upholds the same contract.
            unsafe { gather(address as *const u8, layout, at, out) };
            if spec.dtype == DType::Bool {
                out.iter_mut().for_each(|b| *b = (*b != 0) as u8);
            }
            if swapped {
                out.chunks_exact_mut(part).for_each(<[u8]>::reverse);
            }
        };
        detach(py, || T::from_reader(spec, read)).py()
    }
}

/// The dense elements of an array of another owner.
struct Shared {
    address: usize,
    size: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: made for a dense array whose elements the owner keeps readable
        // (`Foreign::tensor`). The caller of `asarray` agreed that nobody writes them.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.size) }
    }
}

/// Fills `out` with the bytes of the elements in row-major order, from byte `at`.
///
/// # Safety
/// Every element that shape and strides reach must be readable.
unsafe fn gather(start: *const u8, layout: &ForeignLayout, at: usize, out: &mut [u8]) {
    layout.for_each_run(at, out.len(), |ForeignRun { from, to, len }| {
        let to = out[to..][..len].as_mut_ptr();
        // SAFETY: the run is part of the array, so the caller guarantees `len` readable bytes from
        // `from` on; `to` is that long.
        unsafe { copy_few(start.offset(from), to, len) };
    });
}

/// Copies bytes; the bytes of a single element are copied without a call.
///
/// # Safety
/// As for `std::ptr::copy_nonoverlapping`.
#[inline]
unsafe fn copy_few(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller upholds the same contract.
    unsafe {
        match len {
            1 => *to = *from,
            2 => std::ptr::copy_nonoverlapping(from, to, 2),
            4 => std::ptr::copy_nonoverlapping(from, to, 4),
            8 => std::ptr::copy_nonoverlapping(from, to, 8),
            16 => std::ptr::copy_nonoverlapping(from, to, 16),
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

/// The error of `copy=False` where a copy is needed.
pub fn must_copy(what: &str, why: &str) -> PyErr {
    let message = format!("{what}: copy=False forbids a copy, but {why}; leave copy out");
    exception("CopyRequiredError", message)
}

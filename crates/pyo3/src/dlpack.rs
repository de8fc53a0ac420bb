//! DLPack (version 1 of its C structures, and legacy capsules): sharing tensors with other
//! libraries without a copy, in both directions.

use crate::errors::{IntoPy, exception, invalid};
use crate::foreign::{Foreign, FromMemory, Import};
use crate::interpreter::{intern, try_attach};
use crate::protocols::has;
use girih_ir::{DType, Shape, TensorSpec};
use girih_record::dlpack::{
    DlDataType, DlDevice, DlTensor, IS_COPIED, MAJOR, Managed, ManagedVersioned, READ_ONLY,
};
use girih_record::foreign::{ForeignLayout, dense_strides};
use girih_runtime::Value;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ffi::{CStr, c_void};

const LEGACY: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_LEGACY: &CStr = c"used_dltensor";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// A tensor in host memory, for other libraries.
pub struct Exported {
    /// The shape and dtype; the elements are row-major.
    pub spec: TensorSpec,
    /// The address of the first element.
    pub address: u64,
    /// The value that keeps the memory alive.
    pub value: Value,
    /// Whether the memory was copied for the consumer, who may then write it.
    pub is_copy: bool,
}

/// The memory to which an exported tensor points.
struct Export {
    shape: Vec<i64>,
    strides: Vec<i64>,
    _value: Value,
}

fn dtype(data_type: DlDataType) -> PyResult<DType> {
    data_type.dtype().ok_or_else(|| {
        let DlDataType { code, bits, lanes } = data_type;
        let message =
            format!("DLPack type code {code} with {bits} bits x {lanes} has no dtype here");
        exception("DTypeError", message)
    })
}

/// Exports a tensor as a capsule: versioned if the consumer supports version 1.
///
/// # Safety
/// The value keeps the elements of the spec readable at the address, and writable if it is a copy.
pub unsafe fn export(
    py: Python<'_>,
    tensor: Exported,
    versioned: bool,
) -> PyResult<Bound<'_, PyAny>> {
    let Exported { spec, address, value, is_copy } = tensor;
    let mut export = Box::new(Export {
        shape: spec.shape.iter().map(|&d| d as i64).collect(),
        strides: spec.shape.strides().iter().map(|&s| s as i64).collect(),
        _value: value,
    });
    let dl = DlTensor {
        data: address as *mut c_void,
        device: DlDevice::CPU,
        ndim: spec.shape.rank() as i32,
        dtype: spec.dtype.into(),
        shape: export.shape.as_mut_ptr(),
        strides: export.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context = Box::into_raw(export).cast();
    let (pointer, name): (*mut c_void, &CStr) = if versioned {
        let (major, minor, flags) = (MAJOR, 0, if is_copy { IS_COPIED } else { READ_ONLY });
        let deleter = Some(delete_versioned as unsafe extern "C" fn(_));
        let managed = ManagedVersioned { major, minor, context, deleter, flags, tensor: dl };
        (Box::into_raw(Box::new(managed)).cast(), VERSIONED)
    } else {
        let managed = Managed { tensor: dl, context, deleter: Some(delete_legacy) };
        (Box::into_raw(Box::new(managed)).cast(), LEGACY)
    };
    // SAFETY: the thread is attached; the capsule owns `pointer` until a consumer renames it.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer, name.as_ptr(), Some(delete_capsule));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

unsafe extern "C" fn delete_legacy(managed: *mut Managed) {
    // SAFETY: called once, with the pointer that `export` leaked.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Export>()));
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: called once, with the pointer that `export` leaked.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Export>()));
    }
}

/// Frees the tensor of a capsule that no consumer has taken.
unsafe extern "C" fn delete_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter passes a capsule that `export` created; its name identifies its
    // contents, and a consumer that took the contents has renamed it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, LEGACY.as_ptr()) == 1 {
            delete_legacy(ffi::PyCapsule_GetPointer(capsule, LEGACY.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

/// An imported tensor; calls the producer's deleter when the last tensor over its memory is
/// dropped.
enum Imported {
    Legacy(*mut Managed),
    Versioned(*mut ManagedVersioned),
}

// SAFETY: DLPack's contract allows calling the deleter from any thread; the memory is only read.
unsafe impl Send for Imported {}
// SAFETY: as above; nothing is reachable through a shared reference.
unsafe impl Sync for Imported {}

impl Imported {
    fn delete(&self) {
        match *self {
            // SAFETY: the structure was taken out of its capsule, so this is its only owner.
            Imported::Legacy(managed) => unsafe {
                if let Some(deleter) = (*managed).deleter {
                    deleter(managed);
                }
            },
            // SAFETY: as above.
            Imported::Versioned(managed) => unsafe {
                if let Some(deleter) = (*managed).deleter {
                    deleter(managed);
                }
            },
        }
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // The producer's deleter may use Python objects.
        try_attach(|_| self.delete());
    }
}

/// Imports an object with `__dlpack__` as a tensor. `what` is the name of the user's function.
pub fn import<T: FromMemory>(object: &Bound<'_, PyAny>, what: &str, how: Import) -> PyResult<T> {
    let capsule = request(object)?;
    let raw = capsule.as_ptr();
    // SAFETY: `raw` is a live capsule; its name identifies its structure, and renaming it takes
    // ownership of that structure, which `Imported` then frees once.
    let (owner, dl) = unsafe {
        if ffi::PyCapsule_IsValid(raw, VERSIONED.as_ptr()) == 1 {
            let managed: *mut ManagedVersioned =
                ffi::PyCapsule_GetPointer(raw, VERSIONED.as_ptr()).cast();
            if (*managed).major != MAJOR {
                let found = (*managed).major;
                return Err(invalid(format!("from_dlpack: version {found} is not known, only 1")));
            }
            ffi::PyCapsule_SetName(raw, USED_VERSIONED.as_ptr());
            (Imported::Versioned(managed), &(*managed).tensor)
        } else if ffi::PyCapsule_IsValid(raw, LEGACY.as_ptr()) == 1 {
            let managed: *mut Managed = ffi::PyCapsule_GetPointer(raw, LEGACY.as_ptr()).cast();
            ffi::PyCapsule_SetName(raw, USED_LEGACY.as_ptr());
            (Imported::Legacy(managed), &(*managed).tensor)
        } else {
            return Err(invalid("from_dlpack: __dlpack__ gave no unused DLPack capsule"));
        }
    };
    if dl.device.device_type != DlDevice::CPU.device_type {
        let kind = dl.device.device_type;
        let message = format!("from_dlpack: the data is on DLPack device type {kind}, not the CPU");
        return Err(PyBufferError::new_err(message));
    }
    share(object, owner, dl, what, how)
}

fn request<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    if !has(object, intern!(object.py(), "__dlpack__")) {
        let kind = object.get_type().name()?;
        let message = format!("from_dlpack: a {kind} has no __dlpack__; use asarray");
        return Err(exception("DTypeError", message));
    }
    let kwargs = PyDict::new(object.py());
    kwargs.set_item("max_version", (1, 0))?;
    let capsule = match object.call_method("__dlpack__", (), Some(&kwargs)) {
        // Producers before version 1 do not support the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
            object.call_method0("__dlpack__")?
        }
        other => other?,
    };
    Ok(capsule.cast_into::<PyCapsule>()?)
}

fn share<T: FromMemory>(
    object: &Bound<'_, PyAny>,
    owner: Imported,
    dl: &DlTensor,
    what: &str,
    how: Import,
) -> PyResult<T> {
    let rank = usize::try_from(dl.ndim).map_err(|_| invalid(format!("{what}: negative rank")))?;
    let dtype = dtype(dl.dtype)?;
    if rank > 0 && dl.shape.is_null() {
        return Err(invalid(format!("{what}: a DLPack tensor of rank {rank} has no shape")));
    }
    // SAFETY: the producer guarantees `ndim` sizes, and `ndim` strides unless the pointer is null,
    // while the structure lives; `owner` keeps it alive.
    let (shape, strides) = unsafe {
        let slice = |p: *mut i64| match rank {
            0 => &[],
            _ => std::slice::from_raw_parts(p.cast_const(), rank),
        };
        (slice(dl.shape), (!dl.strides.is_null()).then(|| slice(dl.strides)))
    };
    let shape = Shape::from_signed("from_dlpack", shape).py()?;
    let spec = TensorSpec { shape, dtype };
    spec.shape.check("from_dlpack", dtype).py()?;
    let size = dtype.size() as i64;
    let strides = match strides {
        Some(strides) => strides.iter().map(|&s| s.checked_mul(size).map(|s| s as isize)).collect(),
        None => Some(dense_strides(&spec)),
    };
    let strides = strides.ok_or_else(|| invalid(format!("{what}: strides beyond 64 bits")))?;
    let address = (dl.data as usize).wrapping_add(dl.byte_offset as usize);
    let (constant, owner) = (T::is_constant(object), Box::new(owner));
    let layout = ForeignLayout { spec, strides };
    let foreign = Foreign { address, layout, swapped: false, constant, owner };
    // SAFETY: the producer guarantees the elements that shape and strides reach, while the
    // structure lives.
    unsafe { foreign.tensor(object.py(), what, how) }
}

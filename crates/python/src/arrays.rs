//! Arrays of other libraries as tensors: the owner of their memory, whether the memory may be
//! shared, and the protocols: DLPack (`dlpack`), NumPy's array interface, the buffer protocol.
//!
//! A tensor is a value, and an op on it may run much later. Memory that its owner can still write
//! is therefore copied, unless the caller asks to share it.

use crate::args::described;
use crate::data::Memory;
use crate::dlpack;
use crate::errors::{IntoPy, exception, invalid};
use crate::interpreter::{detach, intern, try_attach};
use crate::protocols::has;
use girih::runtime::{Buffer, DeviceId, Value};
use girih::{DType, Shape, Tensor, TensorSpec};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple, PyType};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::Arc;

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
    /// The shape and dtype.
    pub spec: TensorSpec,
    /// The distance between neighbouring elements of each axis, in bytes.
    pub strides: Vec<isize>,
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
    pub unsafe fn tensor(self, py: Python<'_>, what: &str, how: Import) -> PyResult<Tensor> {
        self.check(what)?;
        if self.spec.numel() == 0 {
            return detach(py, || Tensor::from_bytes(&self.spec, [])).py();
        }
        let obstacle = if how == Import::Copy || how == Import::Safe && !self.constant {
            Some("it was asked for")
        } else if !girih::shares_host_memory().py()? {
            Some("the device has memory of its own")
        } else {
            // SAFETY: the caller upholds the same contract.
            unsafe { self.obstacle() }
        };
        match obstacle {
            None => {
                let size = self.spec.size_bytes();
                let owner = Arc::new(Shared { address: self.address, size, _owner: self.owner });
                let buffer = Buffer::shared(DeviceId::HOST, owner, 0..size);
                Tensor::from_value(&self.spec, Value::new(buffer)).py()
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
        let Foreign { spec, strides, address, .. } = self;
        spec.shape.check("asarray", spec.dtype).py()?;
        if strides.len() != spec.shape.rank() {
            let (found, rank) = (strides.len(), spec.shape.rank());
            return Err(invalid(format!("{what}: {found} strides for an array of rank {rank}")));
        }
        if spec.numel() == 0 {
            return Ok(());
        }
        let (low, high) = self.extent().ok_or_else(|| {
            invalid(format!("{what}: the strides {strides:?} reach beyond the address space"))
        })?;
        let begin = address.checked_add_signed(low).filter(|&a| a > 0);
        match begin.and(address.checked_add_signed(high)) {
            Some(end) if end <= isize::MAX as usize => Ok(()),
            _ => Err(invalid(format!("{what}: no array of {spec} is at address {address:#x}"))),
        }
    }

    /// The range of bytes that the elements occupy, relative to the first element: the
    /// (non-positive) begin and the end.
    fn extent(&self) -> Option<(isize, isize)> {
        extent(&self.spec, &self.strides)
    }

    /// The reason why a tensor cannot use the memory as it is; `None` if it can.
    ///
    /// # Safety
    /// As for [`Foreign::tensor`].
    unsafe fn obstacle(&self) -> Option<&'static str> {
        let Foreign { spec, strides, address, .. } = self;
        let dense = dense_strides(spec);
        let mut axes = strides.iter().zip(&dense).zip(spec.shape.iter());
        if !axes.all(|((have, want), &size)| size == 1 || have == want) {
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
    unsafe fn copied(self, py: Python<'_>) -> PyResult<Tensor> {
        let Foreign { address, ref spec, ref strides, swapped, .. } = self;
        let plain = spec.dtype != DType::Bool && !swapped && *strides == dense_strides(spec);
        if plain {
            // SAFETY: the array is dense, so these bytes are its elements; the caller guarantees
            // that they are readable.
            let bytes =
                unsafe { std::slice::from_raw_parts(address as *const u8, spec.size_bytes()) };
            return detach(py, || Tensor::from_bytes(spec, bytes)).py();
        }
        let part = spec.dtype.real().size();
        let read = |at: usize, out: &mut [u8]| {
            // SAFETY: the caller upholds the same contract.
            unsafe { gather(address as *const u8, spec, strides, at, out) };
            if spec.dtype == DType::Bool {
                out.iter_mut().for_each(|b| *b = (*b != 0) as u8);
            }
            if swapped {
                out.chunks_exact_mut(part).for_each(<[u8]>::reverse);
            }
        };
        detach(py, || Tensor::from_reader(spec, read)).py()
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

/// The Python objects that own imported memory.
struct Owner(Option<(Py<PyAny>, Py<PyDict>)>);

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(objects) = self.0.take() {
            // Objects that outlive the interpreter are not freed.
            let objects = ManuallyDrop::new(objects);
            try_attach(|_| drop(ManuallyDrop::into_inner(objects)));
        }
    }
}

/// Row-major strides in bytes.
fn dense_strides(spec: &TensorSpec) -> Vec<isize> {
    spec.shape.strides().iter().map(|s| s * spec.dtype.size() as isize).collect()
}

/// The range of bytes that the elements occupy, relative to the first element; `None` if the range
/// exceeds the address space.
fn extent(spec: &TensorSpec, strides: &[isize]) -> Option<(isize, isize)> {
    let mut bounds = (0isize, spec.dtype.size() as isize);
    for (&stride, &size) in strides.iter().zip(spec.shape.iter()) {
        let reach = stride.checked_mul(isize::try_from(size).ok()?.checked_sub(1)?)?;
        let bound = if reach < 0 { &mut bounds.0 } else { &mut bounds.1 };
        *bound = bound.checked_add(reach)?;
    }
    Some(bounds)
}

/// Fills `out` with the bytes of the elements in row-major order, from byte `at`.
///
/// # Safety
/// Every element that shape and strides reach must be readable.
unsafe fn gather(
    start: *const u8,
    spec: &TensorSpec,
    strides: &[isize],
    at: usize,
    out: &mut [u8],
) {
    let size = spec.dtype.size();
    // Find the longest contiguous inner block, which is copied at once.
    let mut run = size;
    let mut outer = spec.shape.rank();
    while outer > 0 && (strides[outer - 1] == run as isize || spec.shape[outer - 1] == 1) {
        run *= spec.shape[outer - 1];
        outer -= 1;
    }
    let mut index: Vec<usize> = vec![0; outer];
    let mut rest = at / run;
    for (axis, place) in index.iter_mut().enumerate().rev() {
        *place = rest % spec.shape[axis];
        rest /= spec.shape[axis];
    }
    let (mut skipped, mut filled) = (at % run, 0);
    // Along the last axis, the source advances by one stride.
    while filled < out.len() {
        let offset: isize = index.iter().zip(strides).map(|(&i, &s)| i as isize * s).sum();
        let last = outer.checked_sub(1);
        let (count, step) = last.map_or((1, 0), |a| (spec.shape[a] - index[a], strides[a]));
        let mut done = 0;
        while done < count && filled < out.len() {
            let len = (run - skipped).min(out.len() - filled);
            // SAFETY: the index is within the shape, so the caller guarantees `run` readable bytes
            // here, of which `len` bytes from `skipped` on are copied.
            unsafe {
                let from = start.offset(offset + done as isize * step).add(skipped);
                copy_few(from, out[filled..].as_mut_ptr(), len);
            }
            (skipped, filled, done) = (0, filled + len, done + 1);
        }
        if let Some(axis) = last {
            index[axis] += done;
        }
        for axis in (1..outer).rev() {
            if index[axis] == spec.shape[axis] {
                index[axis] = 0;
                index[axis - 1] += 1;
            }
        }
    }
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

/// Converts an array of another library to a tensor; `None` if the object supports no known
/// protocol.
pub fn import(object: &Bound<'_, PyAny>, how: Import) -> PyResult<Option<Tensor>> {
    let py = object.py();
    // A class has the attributes of its instances, so exclude classes.
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyType>() {
        return Ok(None);
    }
    let described = has(object, intern!(py, "__array_interface__"));
    if has(object, intern!(py, "__dlpack__")) {
        match dlpack::import(object, "asarray", how) {
            // NumPy does not export read-only arrays (before 2.1) and some of its dtypes.
            Err(error) if described && error.is_instance_of::<PyBufferError>(py) => {}
            outcome => return outcome.map(Some),
        }
    }
    if described {
        return from_array_interface(object, how).map(Some);
    }
    if let Some(tensor) = from_buffer(object, how)? {
        return Ok(Some(tensor));
    }
    if has(object, intern!(py, "__array__")) {
        let array = object.call_method0(intern!(py, "__array__"))?;
        if has(&array, intern!(py, "__array_interface__")) {
            return from_array_interface(&array, how).map(Some);
        }
    }
    Ok(None)
}

/// True if nobody can write an array's memory: the chain of its bases ends at a tensor or `bytes`.
pub fn is_constant(object: &Bound<'_, PyAny>) -> bool {
    let py = object.py();
    let mut object = object.clone();
    // A NumPy view references the owner of its memory; chains of views are short.
    for _ in 0..8 {
        if object.is_instance_of::<Memory>() || object.is_exact_instance_of::<PyBytes>() {
            return true;
        }
        let Ok(base) = object.getattr(intern!(py, "base")) else { return false };
        object = base;
    }
    false
}

/// The elements of an object with NumPy's array interface, version 3. Every field of the interface
/// is checked, except that its pointer refers to that many elements, which cannot be checked.
fn from_array_interface(object: &Bound<'_, PyAny>, how: Import) -> PyResult<Tensor> {
    let interface = object.getattr(intern!(object.py(), "__array_interface__"))?;
    let interface = interface.cast_into::<PyDict>().map_err(|e| {
        invalid(format!("__array_interface__ is a dict, got {}", described(&e.into_inner())))
    })?;
    let optional = |name: &str| Ok::<_, PyErr>(interface.get_item(name)?.filter(|f| !f.is_none()));
    let field = |name: &str| {
        let found = optional(name)?;
        found.ok_or_else(|| invalid(format!("__array_interface__ has no '{name}'")))
    };
    if let Some(version) = optional("version")?
        && !version.eq(3)?
    {
        return Err(invalid(format!("__array_interface__ has version {version}; this reads 3")));
    }
    if optional("mask")?.is_some() {
        return Err(invalid(
            "__array_interface__ has a mask, which tensors have not; fill it first",
        ));
    }
    let (dtype, swapped) = interface_dtype(&field("typestr")?, object)?;
    let sizes: Vec<i64> = entries(&field("shape")?, "shape")?;
    let shape = Shape::from_signed("asarray", &sizes).py()?;
    let spec = TensorSpec { shape, dtype };
    spec.shape.check("asarray", dtype).py()?;
    let strides = match optional("strides")? {
        Some(strides) => entries(&strides, "strides")?,
        None => dense_strides(&spec),
    };
    let place = match optional("data")? {
        Some(data) => match data.cast_into::<PyTuple>() {
            Ok(pointer) => ElementSource::Pointer(pointer),
            Err(other) => ElementSource::Buffer(other.into_inner()),
        },
        // The object itself implements the buffer protocol.
        None => ElementSource::Buffer(object.clone()),
    };
    let offset = optional("offset")?.map_or(Ok(0), |o| integer(&o, "offset"))?;
    let constant = is_constant(object);
    // Keep the interface, too: the interface of a NumPy scalar owns the copy that its pointer
    // refers to.
    let owner = Owner(Some((object.clone().unbind(), interface.clone().unbind())));
    let foreign = |address, owner| Foreign { address, spec, strides, swapped, constant, owner };
    match place {
        ElementSource::Pointer(pointer) => {
            let address = pointer.get_item(0).ok().and_then(|p| p.extract::<usize>().ok());
            let address = address.ok_or_else(|| {
                let found = described(pointer.as_any());
                invalid(format!("__array_interface__['data'] starts with an address, got {found}"))
            })?;
            // SAFETY: the owner of the interface guarantees the memory that its shape and strides
            // reach.
            unsafe { foreign(address, Box::new(owner)).tensor(object.py(), "asarray", how) }
        }
        ElementSource::Buffer(data) if how == Import::Share => {
            let why = format!("the memory of {} has no address here", described(&data));
            Err(must_copy("asarray", &why))
        }
        ElementSource::Buffer(data) => {
            let bytes = bytes_of(&data)?;
            let len = bytes.as_bytes().len();
            let start = bytes.as_bytes().as_ptr() as usize;
            let foreign = foreign(start.wrapping_add_signed(offset), Box::new(owner));
            let inside = foreign.spec.numel() == 0
                || foreign.strides.len() == foreign.spec.shape.rank()
                    && foreign.extent().is_some_and(|(low, high)| {
                        let begin = offset.checked_add(low);
                        let end = offset.checked_add(high);
                        begin.is_some_and(|b| b >= 0) && end.is_some_and(|e| e <= len as isize)
                    });
            if !inside {
                let Foreign { spec, strides, .. } = foreign;
                return Err(invalid(format!(
                    "__array_interface__: {spec} with strides {strides:?} from byte {offset} on is \
                     not inside a buffer of {len} bytes"
                )));
            }
            // SAFETY: the bounds are checked, and `bytes` lives to the end of this block: the
            // tensor is a copy.
            unsafe { foreign.tensor(object.py(), "asarray", Import::Copy) }
        }
    }
}

/// The place of the elements, according to an array interface.
enum ElementSource<'py> {
    Pointer(Bound<'py, PyTuple>),
    Buffer(Bound<'py, PyAny>),
}

fn integer(object: &Bound<'_, PyAny>, field: &str) -> PyResult<isize> {
    object.extract().map_err(|_| {
        invalid(format!("__array_interface__['{field}'] is an integer, got {}", described(object)))
    })
}

/// The integers of a field that is a tuple of integers.
fn entries<'py, T>(object: &Bound<'py, PyAny>, field: &str) -> PyResult<Vec<T>>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let bad = || {
        let found = described(object);
        invalid(format!("__array_interface__['{field}'] is a tuple of integers, got {found}"))
    };
    let tuple = object.cast::<PyTuple>().map_err(|_| bad())?;
    tuple.iter().map(|item| item.extract().map_err(|_| bad())).collect()
}

/// The contents of an object with the buffer protocol.
fn bytes_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = object.py();
    let view = py.import("builtins")?.getattr("memoryview")?.call1((object,));
    let view = view.map_err(|_| {
        let found = described(object);
        invalid(format!("__array_interface__['data'] is a tuple or a buffer, got {found}"))
    })?;
    Ok(view.call_method0("tobytes")?.cast_into::<PyBytes>()?)
}

/// The dtype of an array-interface type string, and whether its byte order differs from this
/// machine's. The dtype's name distinguishes bfloat16 from other 2-byte records.
fn interface_dtype(
    typestr: &Bound<'_, PyAny>,
    object: &Bound<'_, PyAny>,
) -> PyResult<(DType, bool)> {
    let text: String = typestr.extract().map_err(|_| {
        invalid(format!("__array_interface__['typestr'] is a str, got {}", described(typestr)))
    })?;
    let order = text.chars().next().filter(|c| "<>|".contains(*c));
    let dtype = match order.and(text.get(1..)).unwrap_or_default() {
        "b1" => Some(DType::Bool),
        "u1" => Some(DType::U8),
        "u2" => Some(DType::U16),
        "u4" => Some(DType::U32),
        "u8" => Some(DType::U64),
        "c8" => Some(DType::C64),
        "c16" => Some(DType::C128),
        "i1" => Some(DType::I8),
        "i2" => Some(DType::I16),
        "i4" => Some(DType::I32),
        "i8" => Some(DType::I64),
        "f2" => Some(DType::F16),
        "f4" => Some(DType::F32),
        "f8" => Some(DType::F64),
        "V2" => object
            .getattr("dtype")
            .and_then(|d| d.getattr("name")?.extract::<String>())
            .ok()
            .filter(|n| n == "bfloat16")
            .map(|_| DType::BF16),
        _ => None,
    };
    let dtype = dtype.ok_or_else(|| {
        let message = format!(
            "an array of dtype {text} has no tensor dtype; convert it first, for example with \
             .astype('float32')"
        );
        exception("DTypeError", message)
    })?;
    let other = if cfg!(target_endian = "big") { '<' } else { '>' };
    Ok((dtype, order == Some(other) && dtype.size() > 1))
}

/// The elements of an object with Python's buffer protocol (`bytes`, `array.array`, `memoryview`).
/// They are read through `memoryview`, because the stable ABI of Python 3.10 has no other access to
/// buffers.
fn from_buffer(object: &Bound<'_, PyAny>, how: Import) -> PyResult<Option<Tensor>> {
    let py = object.py();
    let Ok(view) = py.import("builtins")?.getattr("memoryview")?.call1((object,)) else {
        return Ok(None);
    };
    if how == Import::Share {
        let kind = object.get_type().name()?;
        return Err(must_copy("asarray", &format!("the memory of a {kind} has no address here")));
    }
    let format: String = view.getattr("format")?.extract()?;
    let size: usize = view.getattr("itemsize")?.extract()?;
    let dtype = buffer_dtype(format.trim_start_matches(['@', '=']), size).ok_or_else(|| {
        exception("DTypeError", format!("a buffer of format '{format}' has no tensor dtype"))
    })?;
    let shape: Vec<i64> = view.getattr("shape")?.extract()?;
    let shape = Shape::from_signed("asarray", &shape).py()?;
    let bytes = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    let bytes = bytes.as_bytes();
    detach(py, || Tensor::from_bytes(&TensorSpec { shape, dtype }, bytes)).py().map(Some)
}

fn buffer_dtype(format: &str, size: usize) -> Option<DType> {
    Some(match (format, size) {
        ("?", 1) => DType::Bool,
        ("B" | "c", 1) => DType::U8,
        ("b", 1) => DType::I8,
        ("h" | "i" | "l" | "q" | "n", 2) => DType::I16,
        ("i" | "l" | "q" | "n", 4) => DType::I32,
        ("l" | "q" | "n", 8) => DType::I64,
        ("H" | "I" | "L" | "Q" | "N", 2) => DType::U16,
        ("I" | "L" | "Q" | "N", 4) => DType::U32,
        ("L" | "Q" | "N", 8) => DType::U64,
        ("Zf", 8) => DType::C64,
        ("Zd", 16) => DType::C128,
        ("e", 2) => DType::F16,
        ("f", 4) => DType::F32,
        ("d", 8) => DType::F64,
        _ => return None,
    })
}

//! Arrays of other libraries as tensors, by the protocol that they have: DLPack, NumPy's array
//! interface, or the buffer protocol. Whether memory is shared or copied: `girih_pyo3::foreign`.

use crate::args::described;
use crate::data::Memory;
use crate::errors::{IntoPy, exception, invalid};
use crate::interpreter::{detach, intern, try_attach};
use crate::protocols::has;
use crate::tensor::PyTensor;
use girih::io::dtype_of_type_string;
use girih::runtime::Value;
use girih::{DType, Shape, Tensor, TensorSpec};
use girih_pyo3::dlpack;
pub use girih_pyo3::foreign::Import;
use girih_pyo3::foreign::{Foreign, ForeignLayout, FromMemory, dense_strides, must_copy};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple, PyType};
use std::mem::ManuallyDrop;

impl FromMemory for PyTensor {
    fn from_bytes(spec: &TensorSpec, bytes: &[u8]) -> girih::Result<PyTensor> {
        Tensor::from_bytes(spec, bytes).map(PyTensor)
    }

    fn from_reader(
        spec: &TensorSpec,
        read: impl FnMut(usize, &mut [u8]),
    ) -> girih::Result<PyTensor> {
        Tensor::from_reader(spec, read).map(PyTensor)
    }

    fn from_value(spec: &TensorSpec, value: Value) -> girih::Result<PyTensor> {
        Tensor::from_value(spec, value).map(PyTensor)
    }

    /// True if the chain of the object's bases ends at a tensor or `bytes`.
    fn is_constant(object: &Bound<'_, PyAny>) -> bool {
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
        match dlpack::import::<PyTensor>(object, "asarray", how) {
            // NumPy does not export read-only arrays (before 2.1) and some of its dtypes.
            Err(error) if described && error.is_instance_of::<PyBufferError>(py) => {}
            outcome => return outcome.map(|tensor| Some(tensor.0)),
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
    let layout = ForeignLayout { spec, strides };
    let place = match optional("data")? {
        Some(data) => match data.cast_into::<PyTuple>() {
            Ok(pointer) => ElementSource::Pointer(pointer),
            Err(other) => ElementSource::Buffer(other.into_inner()),
        },
        // The object itself implements the buffer protocol.
        None => ElementSource::Buffer(object.clone()),
    };
    let offset = optional("offset")?.map_or(Ok(0), |o| integer(&o, "offset"))?;
    let constant = PyTensor::is_constant(object);
    // Keep the interface, too: the interface of a NumPy scalar owns the copy that its pointer
    // refers to.
    let owner = Owner(Some((object.clone().unbind(), interface.clone().unbind())));
    let foreign = |address, owner| Foreign { address, layout, swapped, constant, owner };
    match place {
        ElementSource::Pointer(pointer) => {
            let address = pointer.get_item(0).ok().and_then(|p| p.extract::<usize>().ok());
            let address = address.ok_or_else(|| {
                let found = described(pointer.as_any());
                invalid(format!("__array_interface__['data'] starts with an address, got {found}"))
            })?;
            // SAFETY: the owner of the interface guarantees the memory that its shape and strides
            // reach.
            let tensor = unsafe {
                foreign(address, Box::new(owner)).tensor::<PyTensor>(object.py(), "asarray", how)?
            };
            Ok(tensor.0)
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
            let ForeignLayout { spec, strides } = &foreign.layout;
            let inside = spec.numel() == 0
                || strides.len() == spec.shape.rank() && foreign.layout.fits_in(offset, len);
            if !inside {
                return Err(invalid(format!(
                    "__array_interface__: {spec} with strides {strides:?} from byte {offset} on is \
                     not inside a buffer of {len} bytes"
                )));
            }
            // SAFETY: the bounds are checked, and `bytes` lives to the end of this block: the
            // tensor is a copy.
            let tensor =
                unsafe { foreign.tensor::<PyTensor>(object.py(), "asarray", Import::Copy)? };
            Ok(tensor.0)
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
    let is_bfloat16 = || {
        let name = object.getattr("dtype").and_then(|d| d.getattr("name")?.extract::<String>());
        name.is_ok_and(|name| name == "bfloat16")
    };
    let found = dtype_of_type_string(&text).filter(|_| !text.starts_with('='));
    // Other records have two bytes, too.
    let found = found.filter(|(dtype, _)| *dtype != DType::BF16 || is_bfloat16());
    found.ok_or_else(|| {
        let message = format!(
            "an array of dtype {text} has no tensor dtype; convert it first, for example with \
             .astype('float32')"
        );
        exception("DTypeError", message)
    })
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

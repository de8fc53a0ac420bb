//! Host data in and out: Python values, NumPy's array interface, memory shared without a copy.

use crate::dtype::DTypeArg;
use crate::errors::{IntoPy, exception, invalid};
use crate::tensor::{DeviceArg, PyTensor};
use girih::{DType, Tensor, TensorSpec};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType,
};

/// Anything array-like as a tensor: a tensor, a number, nested sequences of numbers and tensors, an
/// object with NumPy's array interface, DLPack, or a buffer. Row-major memory of arrays is shared.
pub fn as_tensor(object: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    convert_to(object, dtype, false)
}

fn convert_to(object: &Bound<'_, PyAny>, dtype: Option<DType>, copy: bool) -> PyResult<Tensor> {
    let tensor = convert(object, dtype, copy)?;
    match dtype {
        Some(dtype) => tensor.astype(dtype).py(),
        None => Ok(tensor),
    }
}

fn convert(object: &Bound<'_, PyAny>, dtype: Option<DType>, copy: bool) -> PyResult<Tensor> {
    if let Ok(tensor) = object.cast::<PyTensor>() {
        return Ok(tensor.borrow().0.clone());
    }
    if object.is_instance_of::<PyBool>() {
        let byte = object.extract::<bool>()? as u8;
        return upload(object.py(), &TensorSpec::scalar(DType::Bool), vec![byte]);
    }
    if object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyComplex>()
    {
        return Nested::default().read(object, dtype);
    }
    // A class has its instances' attributes.
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyType>() {
        return Err(not_array_like(object));
    }
    if object.hasattr(intern!(object.py(), "__array_interface__"))? {
        return from_array_interface(object, copy);
    }
    if object.hasattr(intern!(object.py(), "__dlpack__"))? {
        return crate::dlpack::import(object, copy);
    }
    if let Some(tensor) = from_buffer(object)? {
        return Ok(tensor);
    }
    let number = object.is_instance_of::<PyInt>()
        || object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyComplex>();
    if number || is_sequence(object)? {
        return Nested::default().read(object, dtype);
    }
    if object.hasattr("__complex__")? && !object.hasattr("__float__")? {
        let complex = object.py().get_type::<PyComplex>().call1((object,))?;
        return Nested::default().read(&complex, dtype);
    }
    if object.hasattr("__float__")? {
        let value = object.extract::<f64>()? as f32;
        let spec = TensorSpec::scalar(DType::F32);
        return upload(object.py(), &spec, value.to_ne_bytes().to_vec());
    }
    Err(not_array_like(object))
}

/// Bytes as a tensor. Detached: the copy may wait for a run whose end needs the interpreter.
pub fn upload(py: Python<'_>, spec: &TensorSpec, bytes: Vec<u8>) -> PyResult<Tensor> {
    py.detach(|| Tensor::from_bytes(spec, bytes)).py()
}

fn not_array_like(object: &Bound<'_, PyAny>) -> PyErr {
    let kind = object.get_type().name().map(|n| n.to_string()).unwrap_or_default();
    let message = format!(
        "cannot make a tensor of a {kind}; give numbers, nested lists of numbers, or an array"
    );
    exception("DTypeError", message)
}

/// Numbers from nested sequences, as they are met.
#[derive(Default)]
struct Nested {
    shape: Vec<usize>,
    floats: Vec<f64>,
    ints: Vec<i128>,
    /// Imaginary parts: empty, or as many as there are numbers up to the last complex one.
    imag: Vec<f64>,
    any_float: bool,
    any_int: bool,
}

impl Nested {
    fn read(mut self, object: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
        if let Some(parts) = tensors(object, dtype)? {
            let refs: Vec<&Tensor> = parts.iter().collect();
            return girih::stack(&refs, 0).py();
        }
        self.measure(object)?;
        self.collect(object, 0)?;
        let target =
            dtype.unwrap_or(match (self.any_float, self.any_int, self.floats.is_empty()) {
                _ if !self.imag.is_empty() => DType::C64,
                (true, ..) | (_, _, true) => DType::F32,
                (_, true, _) => girih::default_int(),
                _ => DType::Bool,
            });
        if !self.imag.is_empty() && !target.is_complex() {
            let message = format!("complex numbers make no tensor of dtype {target}");
            return Err(exception("DTypeError", message));
        }
        let spec = TensorSpec::new(std::mem::take(&mut self.shape), target);
        upload(object.py(), &spec, self.bytes(target)?)
    }

    /// The numbers in a dtype's memory.
    fn bytes(&self, target: DType) -> PyResult<Vec<u8>> {
        let part = target.real();
        let mut bytes = Vec::with_capacity(self.floats.len() * target.size());
        let mut push = |l: girih::Literal| {
            bytes.extend_from_slice(&l.bits.to_le_bytes()[..part.size()]);
        };
        for (i, (&float, &int)) in self.floats.iter().zip(&self.ints).enumerate() {
            push(match self.any_float || target.is_inexact() {
                true => girih::Literal::from_f64(part, float),
                false => checked(int, target)?,
            });
            if target.is_complex() {
                let imag = self.imag.get(i).copied().unwrap_or(0.0);
                push(girih::Literal::from_f64(part, imag));
            }
        }
        Ok(bytes)
    }

    fn measure(&mut self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut level = object.clone();
        while is_sequence(&level)? {
            if self.shape.len() >= girih::ir::MAX_RANK {
                return Err(invalid("asarray: the lists are nested too deeply for a tensor"));
            }
            let len = level.len()?;
            self.shape.push(len);
            if len == 0 {
                break;
            }
            level = level.get_item(0)?;
        }
        Ok(())
    }

    // Recursion is over the nesting just measured, at most `MAX_RANK` deep.
    fn collect(&mut self, object: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if depth < self.shape.len() {
            if !is_sequence(object)? || object.len()? != self.shape[depth] {
                return Err(exception(
                    "ShapeError",
                    format!(
                        "asarray: lists of unequal lengths make no tensor; expected {} elements \
                         at depth {depth}, got {}",
                        self.shape[depth],
                        object.repr()?
                    ),
                ));
            }
            for item in object.try_iter()? {
                self.collect(&item?, depth + 1)?;
            }
            return Ok(());
        }
        if let Ok(value) = object.cast::<PyBool>() {
            self.push(value.is_true() as i64 as f64, value.is_true().into());
        } else if object.is_instance_of::<PyInt>() {
            self.any_int = true;
            let value = crate::args::wide_integer(object)?;
            self.push(value as f64, value);
        } else if object.is_instance_of::<PyComplex>() {
            let value = crate::args::complex(object)?;
            self.any_float = true;
            self.imag.resize(self.floats.len(), 0.0);
            self.imag.push(value.im);
            self.push(value.re, 0);
        } else if let Ok(value) = object.extract::<f64>() {
            self.any_float = true;
            self.push(value, value as i128);
        } else {
            return Err(not_array_like(object));
        }
        Ok(())
    }

    fn push(&mut self, float: f64, int: i128) {
        self.floats.push(float);
        self.ints.push(int);
    }
}

fn checked(value: i128, dtype: DType) -> PyResult<girih::Literal> {
    match dtype.int_range() {
        Some((min, max)) if dtype != DType::Bool && !(min..=max).contains(&value) => {
            let message = format!("{value} does not fit in dtype {dtype}; it holds {min} to {max}");
            Err(invalid(message))
        }
        _ => Ok(girih::Literal::from_int(dtype, value)),
    }
}

fn is_sequence(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return Ok(true);
    }
    let other = object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.hasattr("keys")?;
    Ok(!other && object.hasattr("__len__")? && object.hasattr("__getitem__")?)
}

/// The elements of a sequence as tensors, if any of them is a tensor or an array.
fn tensors(object: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Option<Vec<Tensor>>> {
    if !is_sequence(object)? {
        return Ok(None);
    }
    let items = object.try_iter()?.collect::<PyResult<Vec<_>>>()?;
    let is_array = |o: &Bound<'_, PyAny>| {
        o.is_instance_of::<PyTensor>()
            || o.hasattr(intern!(o.py(), "__array_interface__")).unwrap_or(false)
    };
    if !items.iter().any(is_array) {
        return Ok(None);
    }
    items.iter().map(|i| as_tensor(i, dtype)).collect::<PyResult<_>>().map(Some)
}

/// The dtype of an array-interface type string; the name tells bfloat16 from other 2-byte records.
fn interface_dtype(typestr: &str, object: &Bound<'_, PyAny>) -> PyResult<DType> {
    let native = !typestr.starts_with('>') || cfg!(target_endian = "big");
    let dtype = match (native, typestr.get(1..).unwrap_or_default()) {
        (true, "b1") => Some(DType::Bool),
        (true, "u1") => Some(DType::U8),
        (true, "u2") => Some(DType::U16),
        (true, "u4") => Some(DType::U32),
        (true, "u8") => Some(DType::U64),
        (true, "c8") => Some(DType::C64),
        (true, "c16") => Some(DType::C128),
        (true, "i1") => Some(DType::I8),
        (true, "i2") => Some(DType::I16),
        (true, "i4") => Some(DType::I32),
        (true, "i8") => Some(DType::I64),
        (true, "f2") => Some(DType::F16),
        (true, "f4") => Some(DType::F32),
        (true, "f8") => Some(DType::F64),
        (true, "V2") => object
            .getattr("dtype")
            .and_then(|d| d.getattr("name")?.extract::<String>())
            .ok()
            .filter(|n| n == "bfloat16")
            .map(|_| DType::BF16),
        _ => None,
    };
    dtype.ok_or_else(|| {
        let message = format!(
            "an array of dtype {typestr} has no tensor dtype; convert it first, for example with \
             .astype('float32')"
        );
        exception("DTypeError", message)
    })
}

/// The elements of an object with Python's buffer protocol (`bytes`, `array.array`, `memoryview`),
/// read through `memoryview`: the stable ABI of Python 3.10 has no other way.
fn from_buffer(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    let py = object.py();
    let Ok(view) = py.import("builtins")?.getattr("memoryview")?.call1((object,)) else {
        return Ok(None);
    };
    let format: String = view.getattr("format")?.extract()?;
    let size: usize = view.getattr("itemsize")?.extract()?;
    let dtype = match (format.trim_start_matches(['@', '=']), size) {
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
        _ => {
            let message = format!("a buffer of format '{format}' has no tensor dtype");
            return Err(exception("DTypeError", message));
        }
    };
    let shape: Vec<usize> = view.getattr("shape")?.extract()?;
    let bytes = view.call_method0("tobytes")?;
    let bytes = bytes.cast::<PyBytes>()?;
    upload(py, &TensorSpec::new(shape, dtype), bytes.as_bytes().to_vec()).map(Some)
}

/// A tensor over an object with NumPy's array interface (version 3 of its specification): over its
/// memory if that is row-major and aligned and `copy` does not forbid it, else a copy.
fn from_array_interface(object: &Bound<'_, PyAny>, copy: bool) -> PyResult<Tensor> {
    let interface = object.getattr("__array_interface__")?;
    let interface = interface.cast::<PyDict>()?;
    let field = |name: &str| {
        let found = interface.get_item(name)?;
        found.ok_or_else(|| invalid(format!("the array interface has no '{name}'")))
    };
    let typestr: String = field("typestr")?.extract()?;
    if let Some(swapped) = other_byte_order(object, &typestr)? {
        return from_array_interface(&swapped, false);
    }
    let dtype = interface_dtype(&typestr, object)?;
    let shape: Vec<usize> = field("shape")?.extract()?;
    let spec = TensorSpec::new(shape, dtype);
    let dense: Vec<isize> =
        spec.shape.strides().iter().map(|s| s * dtype.size() as isize).collect();
    let strides: Vec<isize> = match interface.get_item("strides")? {
        Some(strides) if !strides.is_none() => strides.extract()?,
        _ => dense.clone(),
    };
    let address: usize = match interface.get_item("data")? {
        Some(data) if !data.is_none() => data.get_item(0)?.extract()?,
        _ => return Err(invalid("the array interface has no data pointer")),
    };
    let is_dense =
        strides.iter().zip(&dense).zip(spec.shape.iter()).all(|((a, b), &n)| n == 1 || a == b);
    if is_dense && !copy && address.is_multiple_of(dtype.size()) && spec.numel() > 0 {
        let handle = girih::runtime::DeviceHandle::physical(address as u64);
        // The interface as well: that of a NumPy scalar owns the copy its pointer leads to.
        let owner = Box::new((object.clone().unbind(), interface.clone().unbind()));
        let buffer = girih::runtime::Buffer::foreign(handle, spec.size_bytes(), owner);
        return Ok(Tensor::from_value(&spec, girih::runtime::Value::new(buffer)));
    }
    // SAFETY: the interface's owner, alive here, vouches for the memory that its shape and strides
    // reach.
    let bytes = unsafe { gather(address as *const u8, &spec, &strides) };
    upload(object.py(), &spec, bytes)
}

/// The array in this machine's byte order, if it is in the other.
fn other_byte_order<'py>(
    object: &Bound<'py, PyAny>,
    typestr: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let other = if cfg!(target_endian = "big") { '<' } else { '>' };
    if !typestr.starts_with(other) || !object.hasattr("astype")? {
        return Ok(None);
    }
    let native = object.getattr("dtype")?.call_method1("newbyteorder", ("=",))?;
    object.call_method1("astype", (native,)).map(Some)
}

/// The elements at byte strides from `start`, row-major.
///
/// # Safety
/// Every element that shape and strides reach must be readable.
pub unsafe fn gather(start: *const u8, spec: &TensorSpec, strides: &[isize]) -> Vec<u8> {
    let size = spec.dtype.size();
    let mut out = Vec::with_capacity(spec.size_bytes());
    if spec.numel() == 0 {
        return out;
    }
    // The longest dense tail is copied at once.
    let mut run = size;
    let mut outer = spec.shape.rank();
    while outer > 0 && (strides[outer - 1] == run as isize || spec.shape[outer - 1] == 1) {
        run *= spec.shape[outer - 1];
        outer -= 1;
    }
    let mut index = vec![0usize; outer];
    loop {
        let offset: isize = index.iter().zip(strides).map(|(&i, &s)| i as isize * s).sum();
        // SAFETY: `index` is inside the shape, so the caller vouches for `run` bytes here.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(start.offset(offset), run) });
        let Some(axis) = (0..outer).rev().find(|&a| index[a] + 1 < spec.shape[a]) else {
            return out;
        };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

/// Keeps a tensor's memory while NumPy looks at it.
#[pyclass(frozen, module = "girih._girih")]
struct Memory {
    address: u64,
    spec: TensorSpec,
    typestr: &'static str,
    _value: girih::runtime::Value,
}

#[pymethods]
impl Memory {
    /// NumPy's description of the memory. Returns: dict[str, Any].
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, self.spec.shape.iter())?)?;
        interface.set_item("typestr", self.typestr)?;
        // Read only: tensors are values, and others may share this memory.
        interface.set_item("data", (self.address, true))?;
        Ok(interface)
    }
}

/// The tensor as a read-only NumPy array over the same memory.
pub fn to_numpy<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let spec = tensor.spec();
    let typestr = match spec.dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        // NumPy has none of its own; the extension type of ml_dtypes reads these bits.
        DType::BF16 => "<u2",
    };
    let (address, value) = py.detach(|| tensor.address()).py()?;
    let bfloat16 = spec.dtype == DType::BF16;
    let memory = Memory { address, spec, typestr, _value: value };
    let array = numpy.call_method1("asarray", (Py::new(py, memory)?,))?;
    if !bfloat16 {
        return Ok(array);
    }
    let Ok(ml_dtypes) = py.import("ml_dtypes") else {
        let message = "NumPy has no bfloat16; use .astype(girih.float32).numpy(), or install \
                       ml_dtypes";
        return Err(exception("DTypeError", message.into()));
    };
    array.call_method1("view", (ml_dtypes.getattr("bfloat16")?,))
}

/// The values as nested lists, or a number for a scalar.
pub fn to_list<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let spec = tensor.spec();
    let bytes = py.detach(|| tensor.to_bytes()).py()?;
    let mut elements = bytes.chunks_exact(spec.dtype.size()).map(|e| number(py, spec.dtype, e));
    nest(py, &spec.shape, &mut elements)
}

/// An element's memory as a Python number.
fn number<'py>(py: Python<'py>, dtype: DType, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let literal = |dtype, bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        girih::Literal { dtype, bits: u64::from_le_bytes(word) }
    };
    Ok(match dtype {
        DType::Bool => PyBool::new(py, bytes[0] != 0).to_owned().into_any(),
        d if d.is_complex() => {
            let (re, im) = bytes.split_at(d.size() / 2);
            let part = |bytes| literal(d.real(), bytes).as_f64();
            PyComplex::from_doubles(py, part(re), part(im)).into_any()
        }
        d if d.is_float() => PyFloat::new(py, literal(d, bytes).as_f64()).into_any(),
        DType::U64 => literal(dtype, bytes).bits.into_pyobject(py)?.into_any(),
        d => literal(d, bytes).as_i64().into_pyobject(py)?.into_any(),
    })
}

// Recursion is over axes, at most `MAX_RANK` deep.
fn nest<'py>(
    py: Python<'py>,
    shape: &[usize],
    elements: &mut impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some((&size, inner)) = shape.split_first() else {
        return elements.next().unwrap_or_else(|| Err(invalid("the tensor has no elements")));
    };
    let items = (0..size).map(|_| nest(py, inner, elements)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, items)?.into_any())
}

/// A tensor of numbers, nested sequences, or an array of another library. Arrays whose memory is
/// row-major are shared, not copied, and must not change while the tensor lives; `copy=True`
/// copies them. Python floats give float32, ints int64, bools bool, complex numbers complex64.
/// Never a literal of the graph: other values are the same program.
#[pyfunction]
#[pyo3(signature = (value, /, dtype=None, *, device=None, copy=None))]
fn asarray<'py>(
    value: &Bound<'py, PyAny>,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let _ = device;
    if let Ok(tensor) = value.cast::<PyTensor>()
        && dtype.as_ref().is_none_or(|d| d.0 == tensor.borrow().0.dtype())
    {
        // Values are shared; a copy is an object of its own.
        return match copy {
            Some(true) => {
                Ok(Bound::new(value.py(), PyTensor(tensor.borrow().0.clone()))?.into_any())
            }
            _ => Ok(value.clone()),
        };
    }
    let array = value.is_instance_of::<PyTensor>()
        || value.hasattr("__array_interface__")?
        || value.hasattr("__dlpack__")?;
    if copy == Some(false) && !array {
        return Err(invalid(
            "asarray: numbers and lists can only be copied, copy=False forbids it",
        ));
    }
    let tensor = convert_to(value, dtype.map(|d| d.0), copy == Some(true))?;
    Ok(Bound::new(value.py(), PyTensor(tensor))?.into_any())
}

/// asarray with a copy.
#[pyfunction]
#[pyo3(signature = (value, dtype=None))]
fn tensor(value: &Bound<'_, PyAny>, dtype: Option<DTypeArg>) -> PyResult<PyTensor> {
    convert_to(value, dtype.map(|d| d.0), true).map(PyTensor)
}

/// A tensor from what pickling kept.
#[pyfunction]
fn _restore(py: Python<'_>, bytes: Vec<u8>, shape: Vec<usize>, dtype: &str) -> PyResult<PyTensor> {
    let spec = TensorSpec::new(shape, DType::parse(dtype).py()?);
    upload(py, &spec, bytes).map(PyTensor)
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Memory>()?;
    m.add_function(wrap_pyfunction!(asarray, m)?)?;
    m.add_function(wrap_pyfunction!(tensor, m)?)?;
    m.add_function(wrap_pyfunction!(_restore, m)?)
}

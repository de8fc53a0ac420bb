//! Conversion of host data: from numbers and lists (the module `arrays` converts other arrays), and
//! to NumPy arrays and lists.

use crate::args::{OperandArg, described};
use crate::arrays::{self, Import};
use crate::compiled::PyDim;
use crate::devices::{DeviceArg, placed};
use crate::dtype::DTypeArg;
use crate::errors::{IntoPy, exception, invalid};
use crate::interpreter::{detach, intern};
use crate::protocols::{has, is_array};
use crate::scalars;
use crate::sequences::{self, Listed};
use crate::symbolic_float::PySymbolicFloat;
use crate::tensor::PyTensor;
use girih::io::type_string;
use girih::{DType, Tensor, TensorSpec};
use girih_pyo3::foreign::must_copy;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType,
};

/// Converts an array-like object to a tensor: a tensor, a number, nested sequences of numbers and
/// tensors, or an object with DLPack, NumPy's array interface, or a buffer. Memory that its owner
/// can write is copied.
pub fn as_tensor(object: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    convert_to(object, dtype, Import::Safe)
}

fn convert_to(object: &Bound<'_, PyAny>, dtype: Option<DType>, how: Import) -> PyResult<Tensor> {
    let tensor = convert(object, dtype, how)?;
    match dtype {
        Some(dtype) if how == Import::Share && dtype != tensor.dtype() => {
            let why = format!("its dtype is {}, not {dtype}", tensor.dtype());
            Err(must_copy("asarray", &why))
        }
        Some(dtype) => tensor.astype(dtype).py(),
        None => Ok(tensor),
    }
}

fn convert(object: &Bound<'_, PyAny>, dtype: Option<DType>, how: Import) -> PyResult<Tensor> {
    if let Ok(tensor) = object.cast::<PyTensor>() {
        return Ok(tensor.borrow().0.clone());
    }
    let traced = object.is_instance_of::<PySymbolicFloat>() || object.is_instance_of::<PyDim>();
    if let Some(operand) = traced.then(|| OperandArg::of(object)).transpose()?.flatten() {
        return girih::number(operand.operand(), dtype).py();
    }
    let number = object.is_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyComplex>();
    let listed =
        object.is_exact_instance_of::<PyList>() || object.is_exact_instance_of::<PyTuple>();
    if !number
        && !listed
        && let Some(tensor) = arrays::import(object, how)?
    {
        return Ok(tensor);
    }
    if how == Import::Share {
        let kind = object.get_type().name()?;
        return Err(must_copy("asarray", &format!("a {kind} has no memory of elements")));
    }
    from_numbers(object, dtype)
}

/// Converts a Python number, an object that converts to a number, or nested sequences of numbers.
fn from_numbers(object: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    if object.is_instance_of::<PyBool>() {
        let byte = object.extract::<bool>()? as u8;
        return upload(object.py(), &TensorSpec::scalar(DType::Bool), &[byte]);
    }
    let text = object.is_instance_of::<PyString>() || object.is_instance_of::<PyType>();
    // Sparse arrays raise an error for `len()`.
    if text || is_sparse(object) {
        return Err(not_array_like(object));
    }
    let number = object.is_instance_of::<PyInt>()
        || object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyComplex>();
    if number || is_sequence(object) {
        return Nested::default().read(object, dtype);
    }
    let py = object.py();
    let has_float = has(object, intern!(py, "__float__"));
    if has(object, intern!(py, "__complex__")) && !has_float {
        let complex = object.py().get_type::<PyComplex>().call1((object,))?;
        return Nested::default().read(&complex, dtype);
    }
    if has_float {
        let value = object.extract::<f64>()? as f32;
        let spec = TensorSpec::scalar(DType::F32);
        return upload(object.py(), &spec, &value.to_ne_bytes());
    }
    Err(not_array_like(object))
}

/// Creates a tensor from bytes. The interpreter is released, because creating the first executor,
/// and a long copy, take time.
pub fn upload(py: Python<'_>, spec: &TensorSpec, bytes: &[u8]) -> PyResult<Tensor> {
    detach(py, || Tensor::from_bytes(spec, bytes)).py()
}

/// True for sparse arrays of SciPy and PyData.
fn is_sparse(object: &Bound<'_, PyAny>) -> bool {
    let py = object.py();
    has(object, intern!(py, "nnz"))
        && (has(object, intern!(py, "toarray")) || has(object, intern!(py, "todense")))
}

fn not_array_like(object: &Bound<'_, PyAny>) -> PyErr {
    let kind = object.get_type().name().map(|n| n.to_string()).unwrap_or_default();
    let message = if is_sparse(object) {
        format!("cannot make a tensor of a {kind}, which is sparse; give its .toarray()")
    } else {
        format!(
            "cannot make a tensor of a {kind}; give numbers, nested lists of numbers, or an array"
        )
    };
    exception("DTypeError", message)
}

/// Collects the numbers of nested sequences in order.
#[derive(Default)]
struct Nested {
    shape: Vec<usize>,
    floats: Vec<f64>,
    ints: Vec<i128>,
    /// Imaginary parts: empty, or as many as there are numbers up to the last complex number.
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
        upload(object.py(), &spec, &self.bytes(target)?)
    }

    /// The numbers in the memory format of a dtype.
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
        while is_sequence(&level) {
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

    // The recursion follows the shape measured before, so it is at most `MAX_RANK` deep.
    fn collect(&mut self, object: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if depth < self.shape.len() {
            if !is_sequence(object) || object.len()? != self.shape[depth] {
                return Err(exception(
                    "ShapeError",
                    format!(
                        "asarray: lists of unequal lengths make no tensor; expected {} elements \
                         at depth {depth}, got {}",
                        self.shape[depth],
                        described(object)
                    ),
                ));
            }
            return items(object)?.iter().try_for_each(|item| self.collect(item, depth + 1));
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

fn is_sequence(object: &Bound<'_, PyAny>) -> bool {
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return true;
    }
    let py = object.py();
    let other = object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || has(object, intern!(py, "keys"));
    !other && has(object, intern!(py, "__len__")) && has(object, intern!(py, "__getitem__"))
}

/// The memory that a number takes while it is read from a sequence: its object, a reference to it,
/// and its values as a float and as an integer.
const BYTES_PER_NUMBER: usize = 64;

/// The items of a sequence; fails unless their number equals its length, and if there is no memory
/// for them.
fn items<'py>(object: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let len = object.len()?;
    if let Some(len) = sequences::known_len(object) {
        Tensor::check_room(len, BYTES_PER_NUMBER).py()?;
    }
    let mut items = Vec::new();
    // Read one more than the length, to detect objects with more items; an iterator may be
    // infinite.
    sequences::for_each(object, usize::MAX, |item| {
        items.push(item);
        if items.len() > len {
            return Err(wrong_length(object, len, items.len()));
        }
        if items.len().is_power_of_two() {
            Tensor::check_room(items.len(), BYTES_PER_NUMBER).py()?;
        }
        Ok(())
    })?;
    match items.len() == len {
        true => Ok(items),
        false => Err(wrong_length(object, len, items.len())),
    }
}

fn wrong_length(object: &Bound<'_, PyAny>, len: usize, found: usize) -> PyErr {
    invalid(format!(
        "asarray: a {} says its length is {len} and gives {} {found} items",
        sequences::class_name(object),
        if found < len { "only" } else { "at least" },
    ))
}

/// True for a tensor or an array, and for lists that hold one at some depth.
fn holds_array(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<bool> {
    if object.is_exact_instance_of::<PyFloat>() || object.is_instance_of::<PyInt>() {
        return Ok(false);
    }
    if object.is_exact_instance_of::<PyList>() || object.is_exact_instance_of::<PyTuple>() {
        // Measuring the shape rejects deeper lists, and lists that contain themselves.
        if depth >= girih::ir::MAX_RANK {
            return Ok(false);
        }
        let mut found = false;
        sequences::for_each(object, usize::MAX, |item| {
            found = found || holds_array(&item, depth + 1)?;
            Ok(())
        })?;
        return Ok(found);
    }
    Ok(object.is_instance_of::<PyTensor>() || is_array(object))
}

/// The elements of a sequence as tensors, if any of them is or holds a tensor or an array.
fn tensors(object: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Option<Vec<Tensor>>> {
    if !is_sequence(object) {
        return Ok(None);
    }
    let items = items(object)?;
    let mut found = false;
    for item in &items {
        found = found || holds_array(item, 1)?;
    }
    if !found {
        return Ok(None);
    }
    items.iter().map(|i| as_tensor(i, dtype)).collect::<PyResult<_>>().map(Some)
}

/// Keeps a tensor's memory alive while a NumPy array refers to it.
#[pyclass(frozen, module = "girih._girih")]
pub struct Memory {
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
        // Read-only, because tensors are immutable and may share this memory.
        interface.set_item("data", (self.address, true))?;
        Ok(interface)
    }
}

/// A read-only NumPy array over the tensor's memory.
pub fn to_numpy<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let spec = tensor.spec();
    // NumPy has no bfloat16; the extension type of ml_dtypes reinterprets these bits.
    let typestr = type_string(if spec.dtype == DType::BF16 { DType::U16 } else { spec.dtype });
    let (address, value) = detach(py, || tensor.address()).py()?;
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

/// The values as nested lists; a number for a scalar.
pub fn to_list<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let spec = tensor.spec();
    // A list needs an object and a pointer for each element.
    Tensor::check_room(spec.numel(), spec.dtype.size() + 32).py()?;
    let bytes = detach(py, || tensor.to_bytes()).py()?;
    let mut elements = bytes.chunks_exact(spec.dtype.size()).map(|e| number(py, spec.dtype, e));
    nest(py, &spec.shape, &mut elements)
}

/// Converts an element's bytes to a Python number.
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

// The recursion is over axes, so it is at most `MAX_RANK` deep.
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

/// Converts numbers, nested sequences or an array of another library to a tensor. Arrays are
/// copied, except arrays that nobody can write, such as a result of a tensor's `numpy()`.
/// `copy=False` shares an array's memory, which must not change while the tensor, or ops recorded
/// on it, exist; it raises CopyRequiredError where sharing is impossible: for numbers, lists,
/// another dtype, and elements that are not row-major. Python floats give float32, ints int64,
/// bools bool, complex numbers complex64. The values never become literals of the graph: other
/// values use the same program.
#[pyfunction]
#[pyo3(signature = (value, /, dtype=None, *, device=None, copy=None))]
fn asarray<'py>(
    value: &Bound<'py, PyAny>,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
    #[pyo3(from_py_with = scalars::maybe_flag)] copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(tensor) = value.cast::<PyTensor>()
        && dtype.as_ref().is_none_or(|d| d.0 == tensor.borrow().0.dtype())
        && device.is_none_or(|d| d.0 == tensor.borrow().0.device())
    {
        // Tensors are immutable values, so a copy is another handle.
        return match copy {
            Some(true) => {
                Ok(Bound::new(value.py(), PyTensor(tensor.borrow().0.clone()))?.into_any())
            }
            _ => Ok(value.clone()),
        };
    }
    let convert = || convert_to(value, dtype.map(|d| d.0), Import::of(copy)).map(PyTensor);
    Ok(Bound::new(value.py(), placed(device, convert)?)?.into_any())
}

/// Like asarray with a copy.
#[pyfunction]
#[pyo3(signature = (value, dtype=None, *, device=None))]
fn tensor(
    value: &Bound<'_, PyAny>,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
) -> PyResult<PyTensor> {
    placed(device, || convert_to(value, dtype.map(|d| d.0), Import::Copy).map(PyTensor))
}

/// Rebuilds a tensor from its pickled data, on its device. Pickles of earlier versions have no
/// device.
///
/// Errors: a `DeviceError` if this process has no such device.
#[pyfunction]
#[pyo3(signature = (bytes, shape, dtype, device=None, requires_grad=false))]
fn _restore(
    #[pyo3(from_py_with = scalars::bytes)] bytes: &[u8],
    shape: Listed<usize>,
    #[pyo3(from_py_with = scalars::text)] dtype: &str,
    device: Option<DeviceArg>,
    #[pyo3(from_py_with = scalars::flag)] requires_grad: bool,
    py: Python<'_>,
) -> PyResult<PyTensor> {
    let spec = TensorSpec::new(shape.0, DType::parse(dtype).py()?);
    let tensor = placed(device, || upload(py, &spec, bytes).map(PyTensor))?;
    if requires_grad {
        tensor.0.set_requires_grad(true).py()?;
    }
    Ok(tensor)
}

/// Sets how tensors are printed: the maximum number of digits after the decimal point, the number
/// of elements above which axes are shortened, the number of elements shown at both ends, the
/// characters per line, and whether small numbers are written without an exponent. Settings that
/// are not given do not change.
#[pyfunction]
#[pyo3(signature = (precision=None, threshold=None, edgeitems=None, linewidth=None, suppress=None))]
fn set_printoptions(
    #[pyo3(from_py_with = scalars::maybe_whole)] precision: Option<usize>,
    #[pyo3(from_py_with = scalars::maybe_whole)] threshold: Option<usize>,
    #[pyo3(from_py_with = scalars::maybe_whole)] edgeitems: Option<usize>,
    #[pyo3(from_py_with = scalars::maybe_whole)] linewidth: Option<usize>,
    #[pyo3(from_py_with = scalars::maybe_flag)] suppress: Option<bool>,
) {
    let old = girih::print_options();
    girih::set_print_options(girih::PrintOptions {
        // NumPy prints at most this many digits.
        precision: precision.unwrap_or(old.precision).min(64),
        threshold: threshold.unwrap_or(old.threshold),
        edgeitems: edgeitems.unwrap_or(old.edgeitems),
        linewidth: linewidth.unwrap_or(old.linewidth),
        suppress: suppress.unwrap_or(old.suppress),
    });
}

/// The settings of printing: see set_printoptions. Returns: dict[str, int | builtins.bool].
#[pyfunction]
fn get_printoptions(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let (options, dict) = (girih::print_options(), PyDict::new(py));
    dict.set_item("precision", options.precision)?;
    dict.set_item("threshold", options.threshold)?;
    dict.set_item("edgeitems", options.edgeitems)?;
    dict.set_item("linewidth", options.linewidth)?;
    dict.set_item("suppress", options.suppress)?;
    Ok(dict)
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Memory>()?;
    m.add_function(wrap_pyfunction!(asarray, m)?)?;
    m.add_function(wrap_pyfunction!(set_printoptions, m)?)?;
    m.add_function(wrap_pyfunction!(get_printoptions, m)?)?;
    m.add_function(wrap_pyfunction!(tensor, m)?)?;
    m.add_function(wrap_pyfunction!(_restore, m)?)
}

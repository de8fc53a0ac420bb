//! The `Tensor` class: properties, conversions, and the operators (`operators`). The methods that
//! are functions too are in `functions`.

mod iterator;
mod operators;

use crate::args::{IntArg, OperandArg, axis_list, shape_or_sizes, sizes};
use crate::data::{to_list, to_numpy};
use crate::devices::DeviceArg;
use crate::dtype::{DTypeArg, PyDType};
use crate::errors::{IntoPy, exception, invalid};
use crate::interpreter::detach;
use crate::scalars;
use crate::{dlpack, indexing, location};
use girih::{Device, Size, Tensor, TensorSpec};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

pub use iterator::TensorIterator;

/// A lazy tensor: a handle to a value that is computed when it is needed. Values are immutable;
/// assignment to a part of the tensor, or an operator such as ``+=``, gives the handle another
/// value.
#[pyclass(name = "Tensor", module = "girih")]
pub struct PyTensor(pub Tensor);

/// The supported revisions of the array API standard; each revision extends the previous one.
const ARRAY_API: [&str; 5] = ["2021.12", "2022.12", "2023.12", "2024.12", "2025.12"];

/// Bytes, shape and dtype of a pickled tensor.
type Pickled<'py> = (Bound<'py, PyBytes>, Bound<'py, PyTuple>, &'static str, &'static str, bool);

type MaybeTensor<'py> = PyResult<Bound<'py, PyAny>>;

impl PyTensor {
    /// The value of the only element, for conversions to Python numbers.
    pub fn scalar<'py>(&self, py: Python<'py>, what: &'static str) -> MaybeTensor<'py> {
        if self.0.numel() != 1 {
            let (what, shape) = (what, self.0.shape());
            return Err(crate::errors::raise(girih::Error::NotScalar { what, shape }));
        }
        let _called = location::enter_operator(py);
        to_list(py, &self.0.reshape(()).py()?)
    }
}

/// The spec of an object that is a tensor.
pub fn spec_of(object: &Bound<'_, PyAny>) -> Option<TensorSpec> {
    Some(object.cast::<PyTensor>().ok()?.borrow().0.spec())
}

#[pymethods]
impl PyTensor {
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let _called = location::enter!(key.py());
        self.0.index(&indexing::entries(key)?).map(PyTensor).py()
    }

    fn __contains__(&self, value: OperandArg, py: Python<'_>) -> PyResult<bool> {
        let _called = location::enter!(py);
        let found = self.0.eq(value.operand()).and_then(|same| same.any(..)).py()?;
        detach(py, || found.item::<bool>()).py()
    }

    fn __len__(&self) -> PyResult<usize> {
        let shape = self.0.shape();
        let first = shape.first().copied();
        first.ok_or_else(|| {
            exception(
                "DTypeError",
                "len() of unsized object: a tensor of rank 0 has no length".into(),
            )
        })
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> MaybeTensor<'py> {
        let rows = TensorIterator { tensor: self.0.clone(), next: 0, len: self.__len__()? };
        Ok(Bound::new(py, rows)?.into_any())
    }

    /// The sizes of the axes. Returns: tuple[int, ...].
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        crate::compiled::shape_object(py, &self.0.shape())
    }

    /// The element type. Returns: DType.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.0.dtype())
    }

    /// The number of axes. Returns: int.
    #[getter]
    fn ndim(&self) -> usize {
        self.0.rank()
    }

    /// The number of elements. Returns: int.
    #[getter]
    fn size<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        crate::compiled::dim_object(py, self.0.shape().count())
    }

    /// The number of bytes of all elements. Returns: int.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.spec().size_bytes()
    }

    /// The distance between neighbouring elements of each axis in bytes, as if the tensor were
    /// row-major.
    /// Returns: tuple[int, ...].
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.spec().byte_strides())
    }

    /// The distance between neighbouring elements of each axis, or of one axis, in elements.
    /// Returns: Any.
    #[pyo3(signature = (dim=None))]
    fn stride<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = scalars::maybe_whole)] dim: Option<i64>,
    ) -> MaybeTensor<'py> {
        let strides = self.0.spec().strides();
        match dim {
            None => Ok(PyTuple::new(py, strides)?.into_any()),
            Some(dim) => {
                let axis = girih::ir::shape::normalize_axis("stride", dim, strides.len());
                let axis = axis.map_err(girih::Error::from).py()?;
                Ok(strides[axis].into_pyobject(py)?.into_any())
            }
        }
    }

    /// The real part; real numbers are unchanged.
    #[getter]
    fn real(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.real().map(PyTensor).py()
    }

    /// The imaginary part; zeros for real numbers.
    #[getter]
    fn imag(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.imag().map(PyTensor).py()
    }

    /// The device of the value. Returns: str.
    #[getter]
    fn device(&self) -> &'static str {
        self.0.device().name()
    }

    /// Whether the tensor has no value yet. Returns: bool.
    #[getter]
    fn is_lazy(&self) -> bool {
        self.0.is_lazy()
    }

    /// The tensor with its axes reversed. Returns: Tensor.
    #[getter(T)]
    fn t(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.t().map(PyTensor).py()
    }

    /// The tensor with its last two axes exchanged. Returns: Tensor.
    #[getter(mT)]
    fn mt(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.swapaxes(-1, -2).map(PyTensor).py()
    }

    /// The same elements with another shape; one size may be -1.
    #[pyo3(signature = (shape=None, *sizes))]
    pub fn reshape(
        &self,
        shape: Option<&Bound<'_, PyAny>>,
        sizes: &Bound<'_, PyTuple>,
    ) -> PyResult<PyTensor> {
        let _called = location::enter!(sizes.py());
        self.0.reshape(&shape_or_sizes("reshape", shape, sizes)?).map(PyTensor).py()
    }

    /// Permutes the axes into the given order.
    #[pyo3(signature = (*axes))]
    fn permute(&self, axes: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let _called = location::enter!(axes.py());
        self.0.permute(&axis_list(axes)?).map(PyTensor).py()
    }

    /// Permutes the axes into the given order; two ints exchange these two axes; without arguments
    /// the order is reversed.
    #[pyo3(signature = (*axes))]
    pub fn transpose(&self, axes: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let _called = location::enter!(axes.py());
        if axes.is_empty() {
            return self.0.t().map(PyTensor).py();
        }
        let order = axis_list(axes)?;
        match (axes.len(), order.as_slice()) {
            // For a matrix, a permutation and a swap of two axes are the same. A repeated axis is
            // not a permutation.
            (2, &[a, b]) => {
                let of = |axis| girih::ir::shape::normalize_axis("transpose", axis, self.0.rank());
                match (of(a).py()?, of(b).py()?) {
                    (a, b) if a == b => self.0.permute(&order),
                    _ => self.0.swapaxes(a, b),
                }
            }
            _ => self.0.permute(&order),
        }
        .map(PyTensor)
        .py()
    }

    /// Exchanges two axes.
    fn swapaxes(&self, py: Python<'_>, axis1: IntArg, axis2: IntArg) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.swapaxes(axis1.0, axis2.0).map(PyTensor).py()
    }

    /// Broadcasts the tensor to a shape.
    #[pyo3(signature = (shape=None, *sizes))]
    pub fn broadcast_to(
        &self,
        shape: Option<&Bound<'_, PyAny>>,
        sizes: &Bound<'_, PyTuple>,
    ) -> PyResult<PyTensor> {
        let _called = location::enter!(sizes.py());
        let sizes = shape_or_sizes("broadcast_to", shape, sizes)?;
        let shape = girih::shape_of("broadcast_to", &sizes).py()?;
        self.0.broadcast_to(shape).map(PyTensor).py()
    }

    /// Same as broadcast_to; a size of -1 keeps the axis.
    #[pyo3(signature = (*shape))]
    fn expand(&self, shape: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let _called = location::enter!(shape.py());
        let mut shape = sizes(shape)?;
        let own = self.0.shape();
        for (size, own) in shape.iter_mut().rev().zip(own.dims().rev()) {
            if *size == Size::Known(-1) {
                *size = Size::Symbolic(own);
            }
        }
        let shape = girih::shape_of("expand", &shape).py()?;
        self.0.broadcast_to(shape).map(PyTensor).py()
    }

    /// All elements along one axis; or merges the axes from start_dim to end_dim.
    #[pyo3(signature = (start_dim=IntArg(0), end_dim=IntArg(-1)))]
    fn flatten(&self, py: Python<'_>, start_dim: IntArg, end_dim: IntArg) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.flatten(start_dim.0, end_dim.0).map(PyTensor).py()
    }

    /// Casts to another dtype.
    fn astype(&self, py: Python<'_>, dtype: DTypeArg) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.astype(dtype.0).map(PyTensor).py()
    }

    /// The tensor with another dtype, on another device, or both: x.to(dtype), x.to(device),
    /// x.to(device, dtype), or x.to(other) for the dtype and device of another tensor. With
    /// non_blocking, the evaluation of the tensor and the copy start immediately, and the call does
    /// not wait for them; reading the tensor waits.
    #[pyo3(signature = (target=None, dtype=None, non_blocking=false, *, device=None))]
    fn to(
        &self,
        target: Option<&Bound<'_, PyAny>>,
        dtype: Option<DTypeArg>,
        #[pyo3(from_py_with = scalars::flag)] non_blocking: bool,
        device: Option<DeviceArg>,
        py: Python<'_>,
    ) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        let (mut dtype, mut device) = (dtype.map(|d| d.0), device.map(|d| d.0));
        if let Some(target) = target {
            if let Ok(other) = target.cast::<PyTensor>() {
                let other = &other.borrow().0;
                (dtype, device) = (dtype.or(Some(other.dtype())), device.or(Some(other.device())));
            } else if let Ok(found) = target.extract::<DTypeArg>() {
                dtype = dtype.or(Some(found.0));
            } else {
                device = device.or(Some(target.extract::<DeviceArg>()?.0));
            }
        }
        let moved = match device {
            Some(device) => self.0.to_device(device).py()?,
            None => self.0.clone(),
        };
        let result = dtype.map_or(Ok(moved.clone()), |dtype| moved.astype(dtype)).py()?;
        if non_blocking {
            match detach(py, || girih::async_eval([&result])) {
                // A traced tensor has no value yet; running the traced function makes the copy.
                Ok(())
                | Err(girih::Error::TracedValue { .. } | girih::Error::OutsideValue { .. }) => {}
                Err(error) => return Err(crate::errors::raise(error)),
            }
        }
        Ok(PyTensor(result))
    }

    /// The tensor on the host's processor: itself if it is already there, otherwise a copy.
    fn cpu(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.to_device(Device::CPU).map(PyTensor).py()
    }

    /// The same value, which gradients treat as a constant.
    fn detach(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.stop_gradient().map(PyTensor).py()
    }

    /// The state of the value: "lazy", "scheduled" or "available". Returns: str.
    fn state(&self) -> String {
        self.0.state().to_string()
    }

    /// The number of the tensor's node in the graph that recorded it. Returns: int.
    #[getter]
    fn node_id(&self) -> u32 {
        self.0.id()
    }

    /// Sets a hint on the tensor. Hints never change a value; programs captured or traced from the
    /// tensor keep them, in files too, and user-defined passes can read them. The compiler reads
    /// one hint: ``fuse`` with the value ``no`` makes the op run in separate kernels, not fused
    /// with its operands or its users. Returns: None.
    fn set_hint(
        &self,
        #[pyo3(from_py_with = scalars::text)] key: &str,
        #[pyo3(from_py_with = scalars::text)] value: &str,
    ) -> PyResult<()> {
        self.0.set_hint(key, value).py()
    }

    /// The hints that set_hint has set on the tensor. Returns: dict[str, str].
    #[getter]
    fn hints(&self) -> std::collections::BTreeMap<String, String> {
        self.0.hints()
    }

    /// Computes the value immediately; returns the tensor itself.
    fn eval<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let tensor = slf.borrow().0.clone();
        if !tensor.has_value() {
            detach(slf.py(), || tensor.eval().map(|_| ())).py()?;
        }
        Ok(slf.clone())
    }

    /// Same as eval.
    fn execute<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        PyTensor::eval(slf)
    }

    /// Same as eval.
    fn realize<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        PyTensor::eval(slf)
    }

    /// Same as eval.
    fn materialize<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        PyTensor::eval(slf)
    }

    /// The only element as a Python number. Evaluates. Returns: Any.
    fn item<'py>(&self, py: Python<'py>) -> MaybeTensor<'py> {
        self.scalar(py, "item()")
    }

    /// The elements as nested lists. Evaluates. Returns: Any.
    fn tolist<'py>(&self, py: Python<'py>) -> MaybeTensor<'py> {
        to_list(py, &self.0)
    }

    /// The elements as a read-only NumPy array over the same memory. Evaluates. Returns: Any.
    fn numpy<'py>(&self, py: Python<'py>) -> MaybeTensor<'py> {
        to_numpy(py, &self.0)
    }

    /// The elements as a read-only memoryview over the same memory, with their type and shape.
    /// Evaluates. There is no memoryview of bfloat16: convert it first. Returns: memoryview.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> MaybeTensor<'py> {
        if self.0.dtype() == girih::DType::BF16 {
            let message = "data: buffers have no bfloat16; use .astype(girih.float32).data";
            return Err(crate::errors::exception("DTypeError", message.into()));
        }
        to_numpy(py, &self.0)?.getattr("data")
    }

    /// Higher than the priority of NumPy arrays, whose operators then defer to this class.
    #[classattr]
    fn __array_priority__() -> f64 {
        1000.0
    }

    /// Implements NumPy's ufuncs: records the equivalent op, if there is one.
    #[pyo3(signature = (ufunc, method, *inputs, **kwargs))]
    fn __array_ufunc__<'py>(
        &self,
        ufunc: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = scalars::text)] method: &str,
        inputs: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> MaybeTensor<'py> {
        let py = ufunc.py();
        let kwargs = kwargs.cloned().unwrap_or_else(|| PyDict::new(py));
        let module = py.import("girih.protocols")?;
        module.call_method1("ufunc", (ufunc, method, inputs, kwargs))
    }

    /// Implements NumPy's other functions: records the equivalent op, if there is one.
    fn __array_function__<'py>(
        &self,
        func: &Bound<'py, PyAny>,
        types: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> MaybeTensor<'py> {
        let _ = types;
        let module = func.py().import("girih.protocols")?;
        module.call_method1("function", (func, args, kwargs))
    }

    /// A NumPy array of the elements: one that NumPy may write to, or with copy=False the read-only
    /// view that numpy() returns.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = scalars::maybe_flag)] copy: Option<bool>,
    ) -> MaybeTensor<'py> {
        let array = to_numpy(py, &self.0)?;
        let kwargs = PyDict::new(py);
        match (dtype, copy) {
            (None, Some(false)) => return Ok(array),
            // Compiled code such as SciPy's accepts only writable memory.
            (None, _) => return array.call_method0("copy"),
            (Some(dtype), _) => kwargs.set_item("dtype", dtype)?,
        }
        kwargs.set_item("copy", copy.unwrap_or(true))?;
        if copy == Some(false) && !array.getattr("dtype")?.eq(dtype)? {
            return Err(pyo3::exceptions::PyValueError::new_err(
                "a conversion of dtype needs a copy, and copy=False forbids one",
            ));
        }
        array.call_method("astype", (), Some(&kwargs))
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        #[pyo3(from_py_with = scalars::maybe_flag)] copy: Option<bool>,
    ) -> MaybeTensor<'py> {
        let _ = stream;
        if dl_device.is_some_and(|device| device != (1, 0)) {
            let message = "the tensor is on the CPU, DLPack device (1, 0)";
            return Err(pyo3::exceptions::PyBufferError::new_err(message));
        }
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        dlpack::export(py, &self.0, versioned, copy == Some(true))
    }

    /// The namespace of functions for tensors, in the sense of the array API standard: this
    /// package. Returns: Any.
    #[pyo3(signature = (*, api_version=None))]
    fn __array_namespace__<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = scalars::maybe_text)] api_version: Option<&str>,
    ) -> MaybeTensor<'py> {
        match api_version {
            Some(version) if !ARRAY_API.contains(&version) => Err(invalid(format!(
                "array API version '{version}' is not implemented; these are: {}",
                ARRAY_API.join(", ")
            ))),
            _ => Ok(py.import("girih")?.into_any()),
        }
    }

    /// The tensor on a device: itself if it is already there, otherwise a copy that is made when it
    /// is needed. Gradients are copied in the opposite direction.
    #[pyo3(signature = (device, /, *, stream=None))]
    fn to_device(
        &self,
        py: Python<'_>,
        device: DeviceArg,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTensor> {
        let _ = stream;
        let _called = location::enter!(py);
        self.0.to_device(device.0).map(PyTensor).py()
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    fn __copy__(&self) -> PyTensor {
        PyTensor(self.0.clone())
    }

    // Tensors are immutable values, so a copy is another handle; but a tensor that requires a
    // gradient has a gradient of its own.
    #[pyo3(signature = (memo, /))]
    fn __deepcopy__(&self, memo: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let _ = memo;
        if !self.0.requires_grad() || !self.0.is_leaf() {
            return Ok(PyTensor(self.0.clone()));
        }
        let copy = self.0.stop_gradient().py()?;
        copy.set_requires_grad(true).py()?;
        copy.set_grad(self.0.grad()).py()?;
        Ok(PyTensor(copy))
    }

    /// Pickles the values with the device and whether the tensor requires a gradient.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Pickled<'py>)> {
        let bytes = detach(py, || self.0.to_bytes()).py()?;
        let bytes = PyBytes::new(py, &bytes);
        let shape = PyTuple::new(py, self.0.shape().iter())?;
        let restore = py.import("girih._girih")?.getattr("_restore")?;
        let (dtype, device) = (self.0.dtype().name(), self.0.device().name());
        Ok((restore, (bytes, shape, dtype, device, self.0.requires_grad())))
    }

    /// The bytes of the elements, row-major, as bytes of a NumPy array. Evaluates. Returns: bytes.
    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = detach(py, || self.0.to_bytes()).py()?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        match detach(py, || self.0.debug_text()) {
            Ok(text) => Ok(text),
            // Print the spec of a placeholder: printing while tracing is not an error.
            Err(girih::Error::TracedValue { .. } | girih::Error::OutsideValue { .. }) => {
                Ok(format!("tensor(traced, {})", self.0.spec()))
            }
            // Printing a donated tensor does not need its value.
            Err(girih::Error::Donated { .. }) => Ok(format!("tensor(donated, {})", self.0.spec())),
            Err(error) => Err(crate::errors::raise(error)),
        }
    }

    /// The HTML that a notebook shows: values, dtype and shape. Returns: str.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let text = self.__str__(py)?;
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let (dtype, shape) = (self.0.dtype().name(), self.0.shape());
        Ok(format!("<pre>{text}</pre><small>{dtype} {shape}</small>"))
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        match detach(py, || self.0.values_text()) {
            Ok(text) => Ok(text),
            Err(girih::Error::TracedValue { .. } | girih::Error::OutsideValue { .. }) => {
                Ok(format!("tensor(traced, {})", self.0.spec()))
            }
            Err(girih::Error::Donated { .. }) => Ok(format!("tensor(donated, {})", self.0.spec())),
            Err(error) => Err(crate::errors::raise(error)),
        }
    }

    fn __format__(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::text)] spec: &str,
    ) -> PyResult<String> {
        if spec.is_empty() {
            return self.__str__(py);
        }
        self.scalar(py, "a format specification")?.call_method1("__format__", (spec,))?.extract()
    }
}

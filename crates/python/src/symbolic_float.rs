//! Symbolic floats: Python floats that were passed to a compiled function, and values computed from
//! them and from symbolic sizes. They are scalars of the program and have no value during tracing.

use crate::args::OperandArg;
use crate::data::to_list;
use crate::errors::IntoPy;
use crate::location;
use crate::scalars;
use crate::tensor::PyTensor;
use girih::ir::OpCode;
use girih::{DType, Operand, SymbolicNumber, Tensor};
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::PyFloat;

/// A float argument of a function that is being compiled, or a value computed from such an argument
/// or from a symbolic size. Like a float, it takes the dtype of the tensor with which it is
/// combined; each call has its own value. If Python needs the value of an argument (``if``,
/// ``float``, ``math``), an error is raised: name the argument in ``static_argnames``. Values that
/// depend on sizes alone are fixed in this case, as sizes are.
#[pyclass(name = "SymbolicFloat", module = "girih", frozen)]
pub struct PySymbolicFloat(SymbolicNumber);

type Result<'py> = PyResult<Bound<'py, PyAny>>;

/// The name of Python's method for an operator, and the op.
pub type Operator = (&'static str, OpCode);

pub const ADD: Operator = ("__add__", OpCode::Add);
pub const SUB: Operator = ("__sub__", OpCode::Sub);
pub const MUL: Operator = ("__mul__", OpCode::Mul);
pub const DIV: Operator = ("__truediv__", OpCode::Div);
pub const FLOOR_DIV: Operator = ("__floordiv__", OpCode::FloorDivide);
pub const MOD: Operator = ("__mod__", OpCode::Remainder);
pub const POW: Operator = ("__pow__", OpCode::Pow);

impl PySymbolicFloat {
    /// An argument of the function.
    pub fn argument(tensor: Tensor) -> PySymbolicFloat {
        PySymbolicFloat(SymbolicNumber::argument(tensor))
    }

    /// A known Python number, or a size.
    pub fn known(operand: Operand<'_>) -> PyResult<PySymbolicFloat> {
        SymbolicNumber::known(operand).map(PySymbolicFloat).py()
    }

    /// The value as a float64 tensor.
    pub fn as_tensor(&self) -> &Tensor {
        self.0.tensor()
    }

    /// Converts the other operand; None for objects that are not real numbers.
    fn real(object: &Bound<'_, PyAny>) -> PyResult<Option<PySymbolicFloat>> {
        if let Ok(number) = object.cast::<PySymbolicFloat>() {
            return Ok(Some(PySymbolicFloat(number.get().0.clone())));
        }
        match OperandArg::of(object)? {
            Some(OperandArg::Bool(v)) => PySymbolicFloat::known(Operand::Int(v as i128)).map(Some),
            Some(operand @ (OperandArg::Int(_) | OperandArg::Float(_) | OperandArg::Size(_))) => {
                PySymbolicFloat::known(operand.operand()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Applies an operator, to values at traced sizes by Python's arithmetic.
    pub fn of(
        py: Python<'_>,
        (name, code): Operator,
        a: &PySymbolicFloat,
        b: &PySymbolicFloat,
    ) -> PyResult<PySymbolicFloat> {
        let value = match a.0.both_known(&b.0) {
            // A root of a negative number is complex, so the conversion fails.
            Some((x, y)) => PyFloat::new(py, x).call_method1(name, (y,))?.extract::<f64>().ok(),
            None => None,
        };
        SymbolicNumber::binary(code, &a.0, &b.0, value).map(PySymbolicFloat).py()
    }

    /// The value as a Python object.
    fn value<'py>(&self, py: Python<'py>, what: &'static str) -> Result<'py> {
        let _called = location::enter_operator(py);
        match self.0.fixed() {
            Some(value) => Ok(PyFloat::new(py, value).into_any()),
            None => PyTensor(self.0.tensor().clone()).scalar(py, what),
        }
    }

    fn binary<'py>(
        &self,
        operator: Operator,
        other: &Bound<'py, PyAny>,
        reflected: bool,
    ) -> Result<'py> {
        let py = other.py();
        let _called = location::enter_operator(py);
        let Some(other) = PySymbolicFloat::real(other)? else {
            return Ok(py.NotImplemented().into_bound(py));
        };
        let (a, b) = if reflected { (&other, self) } else { (self, &other) };
        Ok(Bound::new(py, PySymbolicFloat::of(py, operator, a, b)?)?.into_any())
    }
}

/// The op of a comparison.
pub fn code_of(op: CompareOp) -> OpCode {
    match op {
        CompareOp::Lt => OpCode::Lt,
        CompareOp::Le => OpCode::Le,
        CompareOp::Eq => OpCode::Eq,
        CompareOp::Ne => OpCode::Ne,
        CompareOp::Gt => OpCode::Gt,
        CompareOp::Ge => OpCode::Ge,
    }
}

#[pymethods]
impl PySymbolicFloat {
    /// Creates a symbolic float from a float64 tensor without axes.
    #[new]
    fn new(
        #[pyo3(from_py_with = crate::scalars::object)] x: Bound<'_, PyTensor>,
    ) -> PySymbolicFloat {
        PySymbolicFloat::argument(x.borrow().0.clone())
    }

    /// The number as a float64 tensor. Returns: Tensor.
    #[getter]
    fn tensor(&self) -> PyTensor {
        PyTensor(self.0.tensor().clone())
    }

    fn __add__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(ADD, other, false)
    }

    fn __radd__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(ADD, other, true)
    }

    fn __sub__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(SUB, other, false)
    }

    fn __rsub__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(SUB, other, true)
    }

    fn __mul__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(MUL, other, false)
    }

    fn __rmul__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(MUL, other, true)
    }

    fn __truediv__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(DIV, other, false)
    }

    fn __rtruediv__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(DIV, other, true)
    }

    fn __floordiv__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(FLOOR_DIV, other, false)
    }

    fn __rfloordiv__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(FLOOR_DIV, other, true)
    }

    fn __mod__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(MOD, other, false)
    }

    fn __rmod__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.binary(MOD, other, true)
    }

    fn __pow__<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        modulo: Option<&Bound<'py, PyAny>>,
    ) -> Result<'py> {
        match modulo {
            Some(modulo) => Ok(modulo.py().NotImplemented().into_bound(modulo.py())),
            None => self.binary(POW, other, false),
        }
    }

    fn __rpow__<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        modulo: Option<&Bound<'py, PyAny>>,
    ) -> Result<'py> {
        match modulo {
            Some(modulo) => Ok(modulo.py().NotImplemented().into_bound(modulo.py())),
            None => self.binary(POW, other, true),
        }
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<PySymbolicFloat> {
        let _called = location::enter_operator(py);
        PySymbolicFloat::of(py, MUL, &PySymbolicFloat::known(Operand::Float(-1.0))?, self)
    }

    fn __pos__(&self) -> PySymbolicFloat {
        PySymbolicFloat(self.0.clone())
    }

    fn __abs__(&self, py: Python<'_>) -> PyResult<PySymbolicFloat> {
        let _called = location::enter_operator(py);
        self.0.abs().map(PySymbolicFloat).py()
    }

    // Returns a bool tensor whose value each call decides; for expressions of sizes alone, the
    // answer.
    fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, op: CompareOp) -> Result<'py> {
        let py = other.py();
        let _called = location::enter_operator(py);
        let Some(other) = PySymbolicFloat::real(other)? else {
            return Ok(py.NotImplemented().into_bound(py));
        };
        if let Some((a, b)) = self.0.both_fixed(&other.0) {
            return PyFloat::new(py, a).rich_compare(b, op);
        }
        let out = SymbolicNumber::compare(code_of(op), &self.0, &other.0).py()?;
        Ok(Bound::new(py, PyTensor(out))?.into_any())
    }

    // Equality has no answer while tracing, so hash by identity.
    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        slf.as_ptr() as isize >> 4
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.value(py, "a truth value")?.is_truthy()
    }

    fn __float__<'py>(&self, py: Python<'py>) -> Result<'py> {
        self.value(py, "float()")
    }

    fn __int__<'py>(&self, py: Python<'py>) -> Result<'py> {
        py.get_type::<pyo3::types::PyInt>().call1((self.value(py, "int()")?,))
    }

    /// Makes NumPy leave operators to this class and to tensors. Returns: None.
    #[classattr]
    fn __array_ufunc__() -> Option<bool> {
        None
    }

    fn __repr__(&self) -> &'static str {
        "<float of a function being compiled>"
    }

    fn __format__(&self, #[pyo3(from_py_with = scalars::text)] spec: &str) -> &'static str {
        let _ = spec;
        self.__repr__()
    }
}

/// The number that a compiled function returns: a Python number, or a symbolic number if the call
/// is part of another function being compiled. Returns: Any.
#[pyfunction]
pub fn returned_number<'py>(py: Python<'py>, x: &PyTensor) -> Result<'py> {
    match girih::is_tracing() && x.0.dtype() == DType::F64 {
        true => Ok(Bound::new(py, PySymbolicFloat::argument(x.0.clone()))?.into_any()),
        false => to_list(py, &x.0),
    }
}

/// Adds this file's class and function.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySymbolicFloat>()?;
    m.add_function(wrap_pyfunction!(returned_number, m)?)
}

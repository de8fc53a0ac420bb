//! Symbolic sizes as Python numbers, and functions traced for `girih.compile`.

use crate::errors::{IntoPy, invalid, raise};
use crate::interpreter::detach;
use crate::location;
use crate::program::PyProgram;
use crate::sequences::Listed;
use crate::symbolic_float::{
    ADD, DIV, FLOOR_DIV, MOD, MUL, Operator, POW, PySymbolicFloat, SUB, code_of,
};
use crate::tensor::PyTensor;
use girih::ir::OpCode;
use girih::{
    BoundProgram, Device, DeviceScope, Dim, DynamicDim, Operand, Shape, Tensor, TensorSpec,
    TracedProgram, compare_sizes, size_operator,
};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyNotImplementedError, PyZeroDivisionError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyTuple};
use std::sync::{Arc, Mutex};

/// A size that differs between calls of a function being compiled. The results of arithmetic are
/// symbolic too, and functions that take sizes accept it. If it is used as a number (``int``,
/// ``range``, an index), the compiled program is valid for this size alone; a comparison makes the
/// program valid for the sizes with the same result of the comparison.
#[pyclass(name = "SymbolicDim", module = "girih", frozen)]
pub struct PyDim(pub Dim);

/// The other operand of an operator.
enum Other {
    Dim(Dim),
    Int(i64),
    Float(f64),
}

impl Other {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Other>> {
        if let Ok(dim) = object.cast::<PyDim>() {
            return Ok(Some(Other::Dim(dim.get().0)));
        }
        if object.is_instance_of::<PyInt>() {
            return crate::args::integer(object).map(|v| Some(Other::Int(v)));
        }
        if object.is_instance_of::<PyFloat>() {
            return object.extract().map(|v| Some(Other::Float(v)));
        }
        Ok(None)
    }

    /// The operand as a size, if it is a size.
    fn dim(&self) -> Option<Dim> {
        match *self {
            Other::Dim(dim) => Some(dim),
            Other::Int(v) => usize::try_from(v).ok().map(Dim::from),
            Other::Float(_) => None,
        }
    }

    /// The operand as a Python number; a symbolic size is fixed to its value.
    fn number<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match *self {
            Other::Dim(dim) => (dim.get() as i64).into_pyobject(py)?.into_any(),
            Other::Int(v) => v.into_pyobject(py)?.into_any(),
            Other::Float(v) => v.into_pyobject(py)?.into_any(),
        })
    }
}

type Result<'py> = PyResult<Bound<'py, PyAny>>;

/// Converts a size to a Python int, or to a symbolic size.
pub fn dim_object<'py>(py: Python<'py>, dim: Dim) -> Result<'py> {
    match dim.known() {
        Some(size) => Ok(size.into_pyobject(py)?.into_any()),
        None => Ok(Bound::new(py, PyDim(dim))?.into_any()),
    }
}

/// Converts a shape to a Python tuple.
pub fn shape_object<'py>(py: Python<'py>, shape: &Shape) -> PyResult<Bound<'py, PyTuple>> {
    if !shape.is_symbolic() {
        return PyTuple::new(py, shape.iter());
    }
    let dims: Vec<Bound<'py, PyAny>> =
        shape.dims().map(|dim| dim_object(py, dim)).collect::<PyResult<_>>()?;
    PyTuple::new(py, dims)
}

/// Applies an operator: to sizes, if both operands are sizes and the result is a size; otherwise to
/// numbers.
fn operator<'py>(py: Python<'py>, operator: Operator, a: Other, b: Option<Other>) -> Result<'py> {
    let Some(b) = b else { return Ok(py.NotImplemented().into_bound(py)) };
    let _called = location::enter_operator(py);
    if let (Some(x), Some(y)) = (a.dim(), b.dim())
        && let Some(dim) = size_operator(operator.1, x, y)
    {
        return dim_object(py, dim);
    }
    of_numbers(py, operator, &a, &b)
}

/// As [`operator`], for an operator with a number on its left side whose result is never a size.
fn operator_of_number<'py>(
    py: Python<'py>,
    operator: Operator,
    a: &Bound<'py, PyAny>,
    b: Dim,
) -> Result<'py> {
    let Some(a) = Other::of(a)? else { return Ok(py.NotImplemented().into_bound(py)) };
    let _called = location::enter_operator(py);
    of_numbers(py, operator, &a, &Other::Dim(b))
}

fn of_numbers<'py>(py: Python<'py>, operator: Operator, a: &Other, b: &Other) -> Result<'py> {
    match real_operator(py, operator, a, b)? {
        Some(out) => Ok(out),
        None => a.number(py)?.call_method1(operator.0, (b.number(py)?,)),
    }
}

/// Applies an operator whose result is a real number that depends on the sizes. None for other
/// operators.
fn real_operator<'py>(
    py: Python<'py>,
    operator: Operator,
    a: &Other,
    b: &Other,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let real = matches!(a, Other::Float(_)) || matches!(b, Other::Float(_));
    match operator.1 {
        OpCode::Div => {}
        OpCode::Add | OpCode::Sub | OpCode::Mul | OpCode::Pow if real => {}
        _ => return Ok(None),
    }
    let number = |other: &Other| match *other {
        Other::Dim(dim) => PySymbolicFloat::known(Operand::Size(dim)),
        Other::Int(v) => PySymbolicFloat::known(Operand::Int(v.into())),
        Other::Float(v) => PySymbolicFloat::known(Operand::Float(v)),
    };
    let out = PySymbolicFloat::of(py, operator, &number(a)?, &number(b)?)?;
    Ok(Some(Bound::new(py, out)?.into_any()))
}

/// Fails for a division by the size 0.
fn check_divisor(divisor: Option<Dim>) -> PyResult<()> {
    match divisor.is_some_and(|divisor| divisor.equals(0)) {
        true => Err(PyZeroDivisionError::new_err("integer division or modulo by zero")),
        false => Ok(()),
    }
}

#[pymethods]
impl PyDim {
    fn __add__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        let b = Other::of(other)?;
        if let Some(Other::Int(v @ ..0)) = b {
            let positive = (v.unsigned_abs() as usize).into();
            return match size_operator(OpCode::Sub, self.0, positive) {
                Some(dim) => dim_object(other.py(), dim),
                None => Other::Int(self.0.get() as i64 + v).number(other.py()),
            };
        }
        operator(other.py(), ADD, Other::Dim(self.0), b)
    }

    fn __radd__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.__add__(other)
    }

    fn __sub__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        operator(other.py(), SUB, Other::Dim(self.0), Other::of(other)?)
    }

    fn __rsub__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        match Other::of(other)? {
            Some(a) => operator(other.py(), SUB, a, Some(Other::Dim(self.0))),
            None => Ok(other.py().NotImplemented().into_bound(other.py())),
        }
    }

    fn __mul__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        operator(other.py(), MUL, Other::Dim(self.0), Other::of(other)?)
    }

    fn __rmul__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        self.__mul__(other)
    }

    fn __floordiv__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        let b = Other::of(other)?;
        check_divisor(b.as_ref().and_then(Other::dim))?;
        operator(other.py(), FLOOR_DIV, Other::Dim(self.0), b)
    }

    fn __rfloordiv__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        let Some(a) = Other::of(other)? else {
            return Ok(other.py().NotImplemented().into_bound(other.py()));
        };
        check_divisor(Some(self.0))?;
        operator(other.py(), FLOOR_DIV, a, Some(Other::Dim(self.0)))
    }

    fn __mod__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        let b = Other::of(other)?;
        check_divisor(b.as_ref().and_then(Other::dim))?;
        operator(other.py(), MOD, Other::Dim(self.0), b)
    }

    fn __rmod__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        operator_of_number(other.py(), MOD, other, self.0)
    }

    fn __truediv__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        operator(other.py(), DIV, Other::Dim(self.0), Other::of(other)?)
    }

    fn __rtruediv__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<'py> {
        operator_of_number(other.py(), DIV, other, self.0)
    }

    fn __pow__<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        modulo: Option<&Bound<'py, PyAny>>,
    ) -> Result<'py> {
        if modulo.is_some() {
            return Err(PyNotImplementedError::new_err("pow of a size with a modulus"));
        }
        operator(other.py(), POW, Other::Dim(self.0), Other::of(other)?)
    }

    fn __neg__(&self, py: Python<'_>) -> i64 {
        let _called = location::enter_operator(py);
        -(self.0.get() as i64)
    }

    fn __rpow__<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        modulo: Option<&Bound<'py, PyAny>>,
    ) -> Result<'py> {
        if modulo.is_some() {
            return Err(PyNotImplementedError::new_err("pow of a size with a modulus"));
        }
        operator_of_number(other.py(), POW, other, self.0)
    }

    fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, op: CompareOp) -> Result<'py> {
        let py = other.py();
        let Some(b) = Other::of(other)? else { return Ok(py.NotImplemented().into_bound(py)) };
        let _called = location::enter_operator(py);
        let Some(of) = b.dim() else {
            return Other::Dim(self.0).number(py)?.rich_compare(b.number(py)?, op);
        };
        let answer = compare_sizes(code_of(op), self.0, of).unwrap_or_default();
        Ok(answer.into_pyobject(py)?.to_owned().into_any())
    }

    fn __hash__(&self, py: Python<'_>) -> usize {
        let _called = location::enter_operator(py);
        self.0.get()
    }

    fn __bool__(&self, py: Python<'_>) -> bool {
        let _called = location::enter_operator(py);
        !self.0.equals(0)
    }

    fn __index__(&self, py: Python<'_>) -> usize {
        let _called = location::enter_operator(py);
        self.0.get()
    }

    fn __int__(&self, py: Python<'_>) -> usize {
        let _called = location::enter_operator(py);
        self.0.get()
    }

    fn __float__(&self, py: Python<'_>) -> f64 {
        let _called = location::enter_operator(py);
        self.0.get() as f64
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// The dynamic axes of one argument in Python's form: axis, name, the range if there is one, and the
/// size of a tile if the axis is tiled.
type Axes = Vec<(i64, String, Option<(usize, Option<usize>)>, Option<usize>)>;

/// A traced function.
#[pyclass(name = "TracedFunction", module = "girih._girih", frozen)]
pub struct PyTraced(pub Arc<TracedProgram>);

fn tensors(py: Python<'_>, list: &[Py<PyTensor>]) -> Vec<Tensor> {
    list.iter().map(|t| t.borrow(py).0.clone()).collect()
}

fn specs(py: Python<'_>, list: &[Py<PyTensor>]) -> Vec<TensorSpec> {
    list.iter().map(|t| t.borrow(py).0.spec()).collect()
}

/// The error of tracing: the function's exception, or the library's error.
pub struct Failure(pub PyErr);

impl From<girih::Error> for Failure {
    fn from(error: girih::Error) -> Failure {
        Failure(raise(error))
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure(error)
    }
}

/// Traces a function that is called with one tensor per argument (named by ``names``) and returns a
/// list of tensors. Gives the program, the positions of the outside tensors that it needs, and for
/// each outside tensor the position of the first one that is the same tensor.
/// Returns: tuple[TracedFunction, list[int], list[int]].
#[pyfunction]
fn trace_function(
    py: Python<'_>,
    args: Listed<Py<PyTensor>>,
    dynamic: Listed<Axes>,
    outside: Listed<Py<PyTensor>>,
    names: Listed<String>,
    traced: Bound<'_, PyAny>,
) -> PyResult<(PyTraced, Vec<usize>, Vec<usize>)> {
    crate::location::enter(py);
    let named = |(axis, name, range, tile)| DynamicDim { axis, name, range, tile };
    let dims: Vec<Vec<DynamicDim>> =
        dynamic.into_iter().map(|axes| axes.into_iter().map(named).collect()).collect();
    let before = tensors(py, &outside);
    let run = |placeholders: &[Tensor]| -> std::result::Result<_, Failure> {
        girih::name_arguments(placeholders, names);
        let placeholders: Vec<PyTensor> = placeholders.iter().cloned().map(PyTensor).collect();
        let outputs = traced.call1((placeholders,));
        // Undo assignments of the function to outside tensors, which must not keep placeholders.
        let mut changed = false;
        for (handle, before) in outside.iter().zip(&before) {
            changed |= !handle.borrow(py).0.is_same(before);
            handle.borrow_mut(py).0 = before.clone();
        }
        let outputs: Vec<Py<PyTensor>> = outputs?.extract()?;
        if changed {
            return Err(Failure(invalid(
                "compile: the function assigns to a part of a tensor outside; return the new value \
                 instead, and assign it where the function is called",
            )));
        }
        Ok(tensors(py, &outputs))
    };
    let arguments = tensors(py, &args);
    let arguments: Vec<&Tensor> = arguments.iter().collect();
    let _scope = DeviceScope::new(Device::common("compile", &arguments).py()?);
    let shardings: Vec<_> = arguments.iter().map(|tensor| tensor.placement()).collect();
    let found = TracedProgram::trace(&specs(py, &args), &dims, &shardings, &before, run);
    let (program, used) = found.map_err(|Failure(error)| error)?;
    let first = |tensor: &Tensor| before.iter().position(|t| t.is_same(tensor)).unwrap_or_default();
    Ok((PyTraced(Arc::new(program)), used, before.iter().map(first).collect()))
}

/// Whether this thread is tracing a function to compile it. Returns: bool.
#[pyfunction]
fn is_tracing() -> bool {
    girih::is_tracing()
}

#[pymethods]
impl PyTraced {
    /// The reason why the program is not valid for these arguments; None if it is valid.
    /// Returns: str | None.
    fn refuses(&self, py: Python<'_>, args: Listed<Py<PyTensor>>) -> Option<String> {
        let reason = self.0.refuses_context(&tensors(py, &args));
        reason.or_else(|| self.0.refuses(&specs(py, &args)))
    }

    /// How a call with arguments that the program serves runs: "exact", "symbolic", "tiled: 3 tiles"
    /// or "compile". Returns: str.
    fn path(&self, py: Python<'_>, args: Listed<Py<PyTensor>>) -> PyResult<String> {
        let given = tensors(py, &args);
        let bound = BoundProgram::new(self.0.clone(), &specs(py, &args)).py()?;
        Ok(detach(py, || bound.path(&given)).to_string())
    }

    /// The first outside tensor whose shape or dtype differs from tracing; None if all agree.
    /// Returns: int | None.
    fn differs(&self, py: Python<'_>, outside: Listed<Py<PyAny>>) -> Option<usize> {
        let same = |(object, spec): (&Py<PyAny>, &TensorSpec)| {
            let tensor = object.bind(py).cast::<PyTensor>();
            tensor.is_ok_and(|tensor| tensor.borrow().0.spec() == *spec)
        };
        outside.iter().zip(self.0.captures()).position(|pair| !same(pair))
    }

    /// Runs the program on these arguments and these values of the outside tensors that it needs.
    /// Returns: list[Tensor].
    fn call(
        &self,
        py: Python<'_>,
        args: Listed<Py<PyTensor>>,
        outside: Listed<Py<PyTensor>>,
    ) -> PyResult<Vec<PyTensor>> {
        crate::location::enter(py);
        let (args, outside) = (tensors(py, &args), tensors(py, &outside));
        let run = || {
            let refs: (Vec<&Tensor>, Vec<&Tensor>) =
                (args.iter().collect(), outside.iter().collect());
            self.0.call(&refs.0, &refs.1)
        };
        Ok(detach(py, run).py()?.into_iter().map(PyTensor).collect())
    }

    /// The program as a `Program` that contains the outside tensors, which are given with a name
    /// and whether they are parameters. Names of inputs and outputs are as for `capture`.
    /// Returns: Program.
    fn export(
        &self,
        py: Python<'_>,
        outside: Listed<(String, Py<PyTensor>, bool)>,
        names: Listed<String>,
        output_names: Listed<String>,
    ) -> PyResult<PyProgram> {
        let outside: Vec<(String, Tensor, bool)> = outside
            .into_iter()
            .map(|(name, tensor, parameter)| (name, tensor.borrow(py).0.clone(), parameter))
            .collect();
        let mut program = detach(py, || self.0.export(&outside)).py()?;
        crate::program::name(&mut program, names.0, output_names.0)?;
        Ok(PyProgram(Mutex::new(program)))
    }

    /// The conditions on sizes under which the program is valid. Returns: list[str].
    #[getter]
    fn guards(&self) -> Vec<String> {
        self.0.guards()
    }

    /// Milliseconds of compiling the program, or of loading it from the caches. Returns: float.
    #[getter]
    fn compile_time_ms(&self) -> f64 {
        self.0.compile_time().as_secs_f64() * 1e3
    }

    /// The graph as traced. Returns: str.
    #[getter]
    fn text(&self) -> String {
        self.0.graph().to_string()
    }
}

/// Adds this file's classes and functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyDim>()?;
    m.add_class::<PyTraced>()?;
    m.add_function(wrap_pyfunction!(is_tracing, m)?)?;
    m.add_function(wrap_pyfunction!(trace_function, m)?)
}

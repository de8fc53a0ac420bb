//! Assignment: `x[index] = value`, operators such as `+=`, and the functions behind them,
//! `x.at[index].set(value)`.
//!
//! A tensor's value never changes. Assignment computes a new value and binds it to the Python
//! object on the left, so every reference to that object sees the new value. Other objects keep
//! their values: unlike in NumPy, `y = x[0]` is not a view of `x`.

use crate::args::{OperandArg, described};
use crate::data::as_tensor;
use crate::errors::{IntoPy, exception};
use crate::functions::{Out, out};
use crate::interpreter::detach;
use crate::tensor::PyTensor;
use crate::{indexing, location, scalars};
use girih::ir::OpCode;
use girih::{Index, OutOfRange, Tensor, Update};
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// Maximum time that an assignment waits for another thread to finish reading the object.
const PATIENCE: Duration = Duration::from_secs(60);

/// Gives a Python tensor object another value. Waits for threads that compute its current value.
fn rebind(object: &Bound<'_, PyTensor>, value: Tensor) -> PyResult<()> {
    let old = object.try_borrow().ok().map(|tensor| tensor.0.clone());
    if let Some(old) = old {
        value.prepare_to_replace(&old).py()?;
    }
    let start = Instant::now();
    loop {
        match object.try_borrow_mut() {
            Ok(mut tensor) => {
                tensor.0 = value;
                return Ok(());
            }
            Err(error) if start.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => detach(object.py(), || std::thread::sleep(Duration::from_micros(100))),
        }
    }
}

/// Whether two Python tensors have one value: the same node of a graph. Returns: bool.
#[pyfunction]
fn is_same(a: &PyTensor, b: &PyTensor) -> bool {
    a.0.is_same(&b.0)
}

/// Whether a tensor depends on an argument of a function that is being traced. Returns: bool.
#[pyfunction]
fn is_traced(tensor: &PyTensor) -> bool {
    tensor.0.is_traced()
}

/// Gives a Python tensor object the value of another one, as an assignment does. Returns: None.
#[pyfunction(name = "rebind")]
fn rebind_to(tensor: &Bound<'_, PyTensor>, value: &Bound<'_, PyTensor>) -> PyResult<()> {
    let value = value.borrow().0.clone();
    rebind(tensor, value)
}

/// Computes `object op= other`: the operator's result, in the dtype and shape of the object.
fn in_place(code: OpCode, object: &Bound<'_, PyTensor>, other: &Bound<'_, PyAny>) -> PyResult<()> {
    let old = object.borrow().0.clone();
    let operand = match OperandArg::of(other)? {
        Some(operand) => operand,
        None => OperandArg::Tensor(as_tensor(other, None)?),
    };
    let _called = location::enter!(object.py());
    rebind(object, old.in_place(code, operand.operand()).py()?)
}

macro_rules! in_place_operators {
    ($($name:ident $code:ident,)*) => {
        #[pymethods]
        impl PyTensor {
            $(fn $name(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
                in_place(OpCode::$code, slf, other)
            })*
        }
    };
}

in_place_operators! {
    __iadd__ Add,
    __isub__ Sub,
    __imul__ Mul,
    __itruediv__ Div,
    __ifloordiv__ FloorDivide,
    __imod__ Remainder,
    __iand__ And,
    __ior__ Or,
    __ixor__ Xor,
}

#[pymethods]
impl PyTensor {
    fn __ipow__(
        slf: &Bound<'_, Self>,
        other: &Bound<'_, PyAny>,
        _modulo: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        in_place(OpCode::Pow, slf, other)
    }

    fn __imatmul__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        let (old, other) = (slf.borrow().0.clone(), as_tensor(other, None)?);
        let _called = location::enter!(slf.py());
        rebind(slf, old.matmul_in_place(&other).py()?)
    }

    fn __setitem__(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let old = slf.borrow().0.clone();
        let (entries, value) = (indexing::entries(key)?, value.extract::<OperandArg>()?);
        let _called = location::enter!(slf.py());
        let update = || old.index_update(&entries, Update::Set, value.operand());
        let new = if evaluates(&entries) { detach(slf.py(), update) } else { update() }.py()?;
        // An assignment of a whole tensor has the value itself, whose gradient is not that of x.
        let whole = matches!(&value, OperandArg::Tensor(value) if value.is_same(&new));
        rebind(slf, if whole && old.requires_grad() { new.stop_gradient().py()? } else { new })
    }

    /// Elements cannot be deleted. Returns: None.
    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let message = format!(
            "del: the elements of a tensor cannot be deleted; index those to keep, got the index {}",
            described(key)
        );
        Err(exception("DTypeError", message))
    }

    /// Selects elements by index, ``x.at[index]``, to read or update them:
    /// ``x.at[index].set(value)`` and similar methods return a new tensor and leave ``x``
    /// unchanged. Returns: At.
    #[getter]
    fn at(&self) -> PyAt {
        PyAt(self.0.clone())
    }
}

/// True if applying the index entries may evaluate a tensor among them.
pub fn evaluates(entries: &[Index]) -> bool {
    entries.iter().any(|e| matches!(e, Index::Mask(_)))
}

/// A tensor whose elements are to be selected by an index for an update.
#[pyclass(name = "At", module = "girih._girih", frozen)]
struct PyAt(Tensor);

#[pymethods]
impl PyAt {
    /// Returns: Indexed.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<PyIndexed> {
        Ok(PyIndexed { tensor: self.0.clone(), entries: indexing::entries(key)? })
    }
}

/// The elements of a tensor that an index selects.
#[pyclass(name = "Indexed", module = "girih._girih", frozen)]
struct PyIndexed {
    tensor: Tensor,
    entries: Vec<Index>,
}

impl PyIndexed {
    fn update(
        &self,
        py: Python<'_>,
        update: Update,
        value: &OperandArg,
        mode: Option<&str>,
    ) -> Out {
        let _called = location::enter!(py);
        let (x, entries) = (&self.tensor, &self.entries);
        let mode = OutOfRange::of_mode("at", mode, None).py()?;
        let run = || match mode {
            None => x.index_update(entries, update, value.operand()),
            Some(mode) => x.index_update_within(entries, update, value.operand(), mode),
        };
        out(if evaluates(entries) { detach(py, run) } else { run() })
    }
}

macro_rules! updates {
    ($($name:ident $update:ident $doc:literal,)*) => {
        #[pymethods]
        impl PyIndexed {
            $(#[doc = $doc]
            #[pyo3(signature = (value, *, mode=None))]
            fn $name(
                &self,
                py: Python<'_>,
                value: OperandArg,
                #[pyo3(from_py_with = scalars::maybe_text)] mode: Option<&str>,
            ) -> Out {
                self.update(py, Update::$update, &value, mode)
            })*
        }
    };
}

updates! {
    set Set "The tensor with these elements replaced; of several values for one element the last stays. Returns: Tensor.",
    add Add "The tensor with the value added to these elements, as often as each is named. Returns: Tensor.",
    subtract Subtract "The tensor with the value subtracted from these elements, as often as each is named. Returns: Tensor.",
    multiply Multiply "The tensor with these elements multiplied by the value, as often as each is named. Returns: Tensor.",
    divide Divide "The tensor with these elements divided by the value, as often as each is named. Returns: Tensor.",
    power Power "The tensor with these elements raised to the value, as often as each is named. Returns: Tensor.",
    min Min "The tensor with the smaller of each of these elements and the value. Returns: Tensor.",
    max Max "The tensor with the larger of each of these elements and the value. Returns: Tensor.",
}

#[pymethods]
impl PyIndexed {
    /// The selected elements. Positions out of range raise when evaluated, unless the mode is
    /// "clip", "wrap" or "fill". Returns: Tensor.
    #[pyo3(signature = (*, mode=None, fill_value=None))]
    fn get(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::maybe_text)] mode: Option<&str>,
        fill_value: Option<OperandArg>,
    ) -> Out {
        let _called = location::enter!(py);
        let fill = fill_value.as_ref().map(OperandArg::operand);
        let mode = OutOfRange::of_mode("at", mode, fill.as_ref()).py()?;
        let (x, entries) = (&self.tensor, &self.entries);
        let run = || match mode {
            None => x.index(entries),
            Some(mode) => x.index_within(entries, mode, fill),
        };
        out(if evaluates(entries) { detach(py, run) } else { run() })
    }

    /// The tensor with the selected elements replaced by the function's result for them, which must
    /// keep their dtype. Returns: Tensor.
    fn apply(&self, py: Python<'_>, function: &Bound<'_, PyAny>) -> Out {
        let elements = self.get(py, None, None)?;
        let dtype = elements.0.dtype();
        let value: OperandArg = function.call1((Bound::new(py, elements)?,))?.extract()?;
        if let OperandArg::Tensor(t) = &value
            && t.dtype() != dtype
        {
            let message =
                format!("apply: the function made {} of {dtype}; it must keep it", t.dtype());
            return Err(exception("DTypeError", message));
        }
        self.update(py, Update::Set, &value, None)
    }
}

/// Adds this file's classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyAt>()?;
    m.add_class::<PyIndexed>()?;
    m.add_function(wrap_pyfunction!(is_same, m)?)?;
    m.add_function(wrap_pyfunction!(is_traced, m)?)?;
    m.add_function(wrap_pyfunction!(rebind_to, m)?)
}

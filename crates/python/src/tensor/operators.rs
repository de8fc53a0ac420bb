//! The operators of `Tensor`: arithmetic, comparisons, conversions to Python numbers.

use super::{MaybeTensor, PyTensor};
use crate::args::OperandArg;
use crate::errors::{IntoPy, exception, invalid};
use crate::location;
use girih::Operand;
use girih::ir::OpCode;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;

/// Records a binary op, or returns `NotImplemented` so that Python tries the other operand's class.
fn binary<'py>(
    code: OpCode,
    this: &PyTensor,
    other: &Bound<'py, PyAny>,
    reflected: bool,
) -> MaybeTensor<'py> {
    let py = other.py();
    let Some(operand) = OperandArg::of(other)? else {
        return Ok(py.NotImplemented().into_bound(py));
    };
    let _called = location::enter_operator(py);
    let (a, b) = (Operand::Tensor(&this.0), operand.operand());
    let (a, b) = if reflected { (b, a) } else { (a, b) };
    let out = girih::binary(code, a, b).py()?;
    Ok(Bound::new(py, PyTensor(out))?.into_any())
}

fn matmul<'py>(this: &PyTensor, other: &Bound<'py, PyAny>, reflected: bool) -> MaybeTensor<'py> {
    let py = other.py();
    let operand = match OperandArg::of(other)? {
        Some(OperandArg::Tensor(tensor)) => tensor,
        Some(_) => return Err(invalid("matmul: neither operand may be a scalar; use * for that")),
        None => return Ok(py.NotImplemented().into_bound(py)),
    };
    let _called = location::enter!(py);
    let out = if reflected { operand.matmul(&this.0) } else { this.0.matmul(&operand) };
    Ok(Bound::new(py, PyTensor(out.py()?))?.into_any())
}

#[pymethods]
impl PyTensor {
    fn __add__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Add, self, other, false)
    }

    fn __radd__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Add, self, other, true)
    }

    fn __sub__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Sub, self, other, false)
    }

    fn __rsub__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Sub, self, other, true)
    }

    fn __mul__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Mul, self, other, false)
    }

    fn __rmul__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Mul, self, other, true)
    }

    fn __truediv__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Div, self, other, false)
    }

    fn __rtruediv__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Div, self, other, true)
    }

    fn __floordiv__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::FloorDivide, self, other, false)
    }

    fn __rfloordiv__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::FloorDivide, self, other, true)
    }

    fn __mod__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Remainder, self, other, false)
    }

    fn __rmod__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Remainder, self, other, true)
    }

    fn __and__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::And, self, other, false)
    }

    fn __rand__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::And, self, other, true)
    }

    fn __or__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Or, self, other, false)
    }

    fn __ror__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Or, self, other, true)
    }

    fn __xor__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Xor, self, other, false)
    }

    fn __rxor__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::Xor, self, other, true)
    }

    fn __lshift__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::ShiftLeft, self, other, false)
    }

    fn __rlshift__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::ShiftLeft, self, other, true)
    }

    fn __rshift__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::ShiftRight, self, other, false)
    }

    fn __rrshift__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        binary(OpCode::ShiftRight, self, other, true)
    }

    fn __pow__<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        modulo: Option<&Bound<'py, PyAny>>,
    ) -> MaybeTensor<'py> {
        if modulo.is_some() {
            return Err(invalid("pow: a third argument is not supported; use % after **"));
        }
        binary(OpCode::Pow, self, other, false)
    }

    fn __rpow__<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        modulo: Option<&Bound<'py, PyAny>>,
    ) -> MaybeTensor<'py> {
        if modulo.is_some() {
            return Err(invalid("pow: a third argument is not supported; use % after **"));
        }
        binary(OpCode::Pow, self, other, true)
    }

    fn __matmul__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        matmul(self, other, false)
    }

    fn __rmatmul__<'py>(&self, other: &Bound<'py, PyAny>) -> MaybeTensor<'py> {
        matmul(self, other, true)
    }

    fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, op: CompareOp) -> MaybeTensor<'py> {
        let code = match op {
            CompareOp::Lt => OpCode::Lt,
            CompareOp::Le => OpCode::Le,
            CompareOp::Eq => OpCode::Eq,
            CompareOp::Ne => OpCode::Ne,
            CompareOp::Gt => OpCode::Gt,
            CompareOp::Ge => OpCode::Ge,
        };
        binary(code, self, other, false)
    }

    // Equality is elementwise, so hash by identity.
    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        slf.as_ptr() as isize >> 4
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.neg().map(PyTensor).py()
    }

    fn __pos__(&self) -> PyTensor {
        PyTensor(self.0.clone())
    }

    fn __abs__(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.abs().map(PyTensor).py()
    }

    fn __invert__(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let _called = location::enter!(py);
        self.0.bitwise_not().map(PyTensor).py()
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.scalar(py, "a truth value")?.is_truthy()
    }

    fn __float__<'py>(&self, py: Python<'py>) -> MaybeTensor<'py> {
        let value = self.scalar(py, "float()")?;
        py.get_type::<pyo3::types::PyFloat>().call1((value,))
    }

    fn __int__<'py>(&self, py: Python<'py>) -> MaybeTensor<'py> {
        let value = self.scalar(py, "int()")?;
        py.get_type::<pyo3::types::PyInt>().call1((value,))
    }

    fn __complex__<'py>(&self, py: Python<'py>) -> MaybeTensor<'py> {
        let value = self.scalar(py, "complex()")?;
        py.get_type::<pyo3::types::PyComplex>().call1((value,))
    }

    fn __index__<'py>(&self, py: Python<'py>) -> MaybeTensor<'py> {
        if !self.0.dtype().is_int() || self.0.rank() != 0 {
            let spec = self.0.spec();
            let message = format!("only an integer tensor of rank 0 can be an index, got {spec}");
            return Err(exception("DTypeError", message));
        }
        self.scalar(py, "an index")
    }
}

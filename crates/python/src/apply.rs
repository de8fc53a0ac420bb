//! Ops recorded by name, and the conversion of their attributes from Python.

use crate::args::{OperandArg, wide_integer};
use crate::compiled::{PyDim, dim_object};
use crate::dtype::PyDType;
use crate::errors::{IntoPy, invalid};
use crate::location;
use crate::program::{PyNode, PyProgram};
use crate::scalars;
use crate::sequences;
use crate::tensor::PyTensor;
use girih::{Attribute, Dim, Program, Tensor};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyDict, PyFloat, PyInt, PyList, PySlice, PyString, PyTuple, PyTypeMethods,
};
use std::sync::Mutex;

/// Records an op, given by its name or by a node, on operands. Returns: Tensor.
#[pyfunction]
#[pyo3(signature = (op, /, *operands, **attributes))]
fn apply(
    py: Python<'_>,
    op: &Bound<'_, PyAny>,
    operands: &Bound<'_, PyTuple>,
    attributes: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyTensor> {
    location::enter(py);
    let operands: Vec<OperandArg> =
        operands.iter().map(|operand| operand.extract()).collect::<PyResult<_>>()?;
    // Python numbers get the dtype of the first tensor.
    let dtype = operands.iter().find_map(|operand| match operand {
        OperandArg::Tensor(tensor) => Some(tensor.dtype()),
        _ => None,
    });
    let tensor = |operand: &OperandArg| match operand {
        OperandArg::Tensor(tensor) => Ok(tensor.clone()),
        number => girih::number(number.operand(), dtype),
    };
    let operands: Vec<Tensor> = operands.iter().map(tensor).collect::<girih::Result<_>>().py()?;
    let operands: Vec<&Tensor> = operands.iter().collect();
    let given = attributes.map(pairs).transpose()?.unwrap_or_default();
    if let Ok(node) = op.cast::<PyNode>() {
        if let Some((name, _)) = given.first() {
            return Err(invalid(format!(
                "apply: a node has its attributes, got '{name}' too; give apply the op's name, \
                 node.op, with other attributes"
            )));
        }
        return node.get().0.apply(&operands).map(PyTensor).py();
    }
    let Ok(name) = op.cast::<PyString>() else {
        let class = op.get_type().name()?;
        return Err(invalid(format!("apply: expected the name of an op or a node, got {class}")));
    };
    let given: Vec<(&str, Attribute)> =
        given.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    girih::apply(scalars::text(name.as_any())?, &operands, &given).map(PyTensor).py()
}

fn pairs(attributes: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Attribute)>> {
    let pair = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let value = from_python(&name, &value)?;
        Ok((name, value))
    };
    attributes.iter().map(pair).collect()
}

fn from_python(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Attribute> {
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Attribute::Bool(value.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return wide_integer(value).map(Attribute::Int);
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Attribute::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return scalars::own_text(value).map(Attribute::Text);
    }
    if let Ok(dtype) = value.cast::<PyDType>() {
        return Ok(Attribute::DType(dtype.get().0));
    }
    if let Ok(dim) = value.cast::<PyDim>() {
        return Ok(Attribute::Size(dim.get().0));
    }
    if let Ok(bounds) = value.cast::<PySlice>() {
        let part = |part: &str, default: Option<usize>| -> PyResult<Dim> {
            let found = bounds.getattr(part)?;
            if let Ok(dim) = found.cast::<PyDim>() {
                return Ok(dim.get().0);
            }
            let size: Option<usize> = found.extract().map_err(|_| {
                invalid(format!("apply: attribute '{name}': {part} is {found}, expected a size"))
            })?;
            let size = size.or(default).ok_or_else(|| {
                invalid(format!("apply: attribute '{name}': a slice without {part}; name it"))
            })?;
            Ok(size.into())
        };
        return Ok(Attribute::Range(
            part("start", Some(0))?,
            part("stop", None)?,
            part("step", Some(1))?,
        ));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = sequences::read(value, sequences::MANY, Ok)?;
        let programs: Option<Vec<_>> = items
            .iter()
            .map(|item| Some(item.cast::<PyProgram>().ok()?.get().program().graph().clone()))
            .collect();
        if let Some(programs) = programs.filter(|programs| !programs.is_empty()) {
            return Ok(Attribute::Graphs(programs));
        }
        let items = items.iter().map(|item| from_python(name, item));
        return Ok(Attribute::List(items.collect::<PyResult<_>>()?));
    }
    // Integers and floats of other libraries, such as NumPy's scalars.
    if let Ok(value) = value.call_method0("__index__") {
        return wide_integer(&value).map(Attribute::Int);
    }
    let class = value.get_type().name()?;
    Err(invalid(format!(
        "apply: attribute '{name}' is a {class}; expected a bool, int, float, str, dtype, slice, \
         program, or a list or tuple of these"
    )))
}

/// Converts an attribute to a Python object.
pub fn to_python<'py>(py: Python<'py>, value: &Attribute) -> PyResult<Bound<'py, PyAny>> {
    let size = |size: &Dim| dim_object(py, *size);
    Ok(match value {
        Attribute::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Attribute::Int(value) => value.into_pyobject(py)?.into_any(),
        Attribute::Float(value) => value.into_pyobject(py)?.into_any(),
        Attribute::Text(text) => text.into_pyobject(py)?.into_any(),
        Attribute::DType(dtype) => Bound::new(py, PyDType(*dtype))?.into_any(),
        Attribute::Size(dim) => size(dim)?,
        Attribute::Range(start, end, step) => {
            let parts = (size(start)?, size(end)?, size(step)?);
            py.get_type::<PySlice>().call1(parts)?
        }
        Attribute::List(items) => {
            let items = items.iter().map(|item| to_python(py, item));
            PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Attribute::Graphs(graphs) => {
            let program = |graph: &girih::ir::Graph| {
                Py::new(py, PyProgram(Mutex::new(Program::of_graph(graph.clone()))))
            };
            let programs = graphs.iter().map(program).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, programs)?.into_any()
        }
    })
}

/// Adds this file's function.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(apply, m)?)
}

//! Tensor contractions: einsum and related functions.

use crate::args::{Axes, TensorArg, described};
use crate::errors::{IntoPy, invalid};
use crate::functions::{Out, out};
use crate::location;
use crate::scalars;
use crate::sequences::{self, Pair};
use girih::{Optimize, Shape, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyString, PyTuple};

/// Reads the subscripts and operands: a string and tensors, or tensors that are each followed by a
/// list of integers (and `...`), with an optional list for the output at the end.
fn summation(args: &Bound<'_, PyTuple>) -> PyResult<(String, Vec<Tensor>)> {
    let Ok(first) = args.get_item(0) else {
        return Err(invalid("einsum: give subscripts and operands"));
    };
    if let Ok(text) = first.cast::<PyString>() {
        let operands = args.iter().skip(1).map(|t| t.extract::<TensorArg>().map(|t| t.0));
        return Ok((text.to_string(), operands.collect::<PyResult<_>>()?));
    }
    let mut terms = Vec::new();
    let mut operands = Vec::new();
    for pair in args.iter().collect::<Vec<_>>().chunks(2) {
        match pair {
            [operand, labels] => {
                operands.push(operand.extract::<TensorArg>()?.0);
                terms.push(letters(labels)?);
            }
            [output] => {
                return Ok((format!("{}->{}", terms.join(","), letters(output)?), operands));
            }
            _ => {}
        }
    }
    Ok((terms.join(","), operands))
}

/// Converts integer labels to letters in the same order.
fn letters(labels: &Bound<'_, PyAny>) -> PyResult<String> {
    let mut text = String::new();
    sequences::for_each(labels, sequences::FEW, |label| {
        if label.is_instance_of::<PyEllipsis>() {
            text.push_str("...");
            return Ok(());
        }
        let letter = match label.is_instance_of::<PyInt>() {
            true => label.extract::<u32>().ok().and_then(girih::einsum_label),
            false => None,
        };
        text.push(letter.ok_or_else(|| {
            let found = described(&label);
            invalid(format!("einsum: labels are integers from 0 to 51 or ..., got {found}"))
        })?);
        Ok(())
    })?;
    Ok(text)
}

fn strategy(optimize: Option<&Bound<'_, PyAny>>) -> PyResult<Optimize> {
    let Some(optimize) = optimize else { return Ok(Optimize::Auto) };
    if let Ok(on) = optimize.cast::<PyBool>() {
        return Ok(if on.is_true() { Optimize::Auto } else { Optimize::No });
    }
    match optimize.extract::<String>().unwrap_or_default().as_str() {
        "auto" => Ok(Optimize::Auto),
        "optimal" => Ok(Optimize::Optimal),
        "greedy" => Ok(Optimize::Greedy),
        _ => Err(invalid(format!(
            "einsum: optimize is a bool, 'auto', 'optimal' or 'greedy', got {optimize}"
        ))),
    }
}

/// Products of operands, summed over the labels that the output does not name:
/// ``einsum("ij,jk->ik", a, b)``, or ``einsum(a, [0, 1], b, [1, 2], [0, 2])``. ``...`` stands for
/// axes that broadcast. The order of contractions is the cheapest for few operands, and is found
/// greedily for many operands (``optimize``: a bool, 'auto', 'optimal' or 'greedy'); see
/// einsum_path.
#[pyfunction]
#[pyo3(signature = (*operands, optimize=None))]
fn einsum(operands: &Bound<'_, PyTuple>, optimize: Option<&Bound<'_, PyAny>>) -> Out {
    let _called = location::enter!(operands.py());
    let (subscripts, tensors) = summation(operands)?;
    let refs: Vec<&Tensor> = tensors.iter().collect();
    out(girih::einsum(&subscripts, &refs, strategy(optimize)?))
}

/// The order of contractions that einsum uses: positions among the remaining operands, where each
/// result is appended at the end, and a description of the cost.
/// Returns: tuple[list[tuple[int, ...]], str].
#[pyfunction]
#[pyo3(signature = (*operands, optimize=None))]
fn einsum_path<'py>(
    operands: &Bound<'py, PyTuple>,
    optimize: Option<&Bound<'py, PyAny>>,
) -> PyResult<(Vec<Bound<'py, PyTuple>>, String)> {
    let _called = location::enter!(operands.py());
    let (subscripts, tensors) = summation(operands)?;
    let shapes: Vec<Shape> = tensors.iter().map(Tensor::shape).collect();
    let path = girih::einsum_path(&subscripts, &shapes, strategy(optimize)?).py()?;
    let step = |s: &girih::PathStep| PyTuple::new(operands.py(), &s.operands);
    let steps = path.steps.iter().map(step).collect::<PyResult<Vec<_>>>()?;
    Ok((steps, path.to_string()))
}

/// Sums of products over the last n axes of x1 and the first n axes of x2 (two by default), or over
/// the axes that two lists name. The result has the other axes of x1, then those of x2.
#[pyfunction]
#[pyo3(signature = (x1, x2, /, axes=None))]
fn tensordot(py: Python<'_>, x1: TensorArg, x2: TensorArg, axes: Option<&Bound<'_, PyAny>>) -> Out {
    let _called = location::enter!(py);
    let count = match axes {
        None => Some(2),
        Some(axes) => axes.extract::<i64>().ok(),
    };
    let (left, right) = match (count, axes) {
        (Some(n), _) => girih::tensordot_axes(n, &x1.0, &x2.0).py()?,
        (None, Some(axes)) => {
            let list = |axes: &Axes| axes.as_slice().unwrap_or_default().to_vec();
            match axes.extract::<Pair<Axes>>() {
                Ok(Pair(left, right)) => (list(&left), list(&right)),
                Err(_) => {
                    return Err(invalid(format!(
                        "tensordot: axes is a number or two lists of axes, got {}",
                        described(axes)
                    )));
                }
            }
        }
        (None, None) => unreachable!("no axes mean two"),
    };
    out(x1.0.tensordot(&x2.0, (&left, &right)))
}

macro_rules! products {
    ($($name:ident $doc:literal,)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x1, x2, /))]
        fn $name(py: Python<'_>, x1: TensorArg, x2: TensorArg) -> Out {
            let _called = location::enter!(py);
            out(x1.0.$name(&x2.0))
        })*

        fn register_products(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

products! {
    outer "The outer product of the flattened tensors: each element of x1 times each element of x2. Shapes: [n] and [m] -> [n, m].",
    inner "Sums of products over the last axes of both operands; the product if one operand is a scalar.",
    dot "NumPy's dot: the inner product of vectors, the product of matrices, otherwise sums of products over the last axis of x1 and the second-last axis of x2.",
    vdot "The sum of the products of all elements of the flattened tensors.",
    kron "The Kronecker product: each element of x1 times a block x2.",
}

/// Sums of products along an axis, the last by default; other axes broadcast.
#[pyfunction]
#[pyo3(signature = (x1, x2, /, *, axis=-1))]
fn vecdot(
    py: Python<'_>,
    x1: TensorArg,
    x2: TensorArg,
    #[pyo3(from_py_with = scalars::whole)] axis: i64,
) -> Out {
    let _called = location::enter!(py);
    out(x1.0.vecdot(&x2.0, axis))
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_products(m)?;
    m.add_function(wrap_pyfunction!(einsum, m)?)?;
    m.add_function(wrap_pyfunction!(einsum_path, m)?)?;
    m.add_function(wrap_pyfunction!(vecdot, m)?)?;
    m.add_function(wrap_pyfunction!(tensordot, m)?)
}

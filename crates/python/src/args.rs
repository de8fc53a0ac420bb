//! Conversion of arguments from Python: tensors and array-likes, scalars, axes, shapes.

use crate::compiled::PyDim;
use crate::data::as_tensor;
use crate::errors::{exception, invalid};
use crate::interpreter::intern;
use crate::protocols::{has, is_array};
pub use crate::scalars::{described, integer, wide_integer};
use crate::sequences;
use crate::symbolic_float::PySymbolicFloat;
use crate::tensor::PyTensor;
use girih::{Complex64, Dim, Operand, Shape, Size, Tensor};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList, PyTuple};
use smallvec::SmallVec;

/// A tensor, or an object that `asarray` converts to one.
pub struct TensorArg(pub Tensor);

impl<'a, 'py> FromPyObject<'a, 'py> for TensorArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyTensor>() {
            Ok(tensor) => Ok(TensorArg(tensor.borrow().0.clone())),
            Err(_) => as_tensor(&object, None).map(TensorArg),
        }
    }
}

/// An operand: a tensor, a Python scalar that adapts to the other operand, or an array.
pub enum OperandArg {
    Tensor(Tensor),
    Bool(bool),
    Int(i128),
    Float(f64),
    Complex(Complex64),
    /// A real number whose value is known only when a program runs.
    Weak(Tensor),
    /// A symbolic size.
    Size(Dim),
}

impl OperandArg {
    /// Converts the argument to the library's operand type.
    pub fn operand(&self) -> Operand<'_> {
        match self {
            OperandArg::Tensor(t) => Operand::Tensor(t),
            OperandArg::Bool(v) => Operand::Bool(*v),
            OperandArg::Int(v) => Operand::Int(*v),
            OperandArg::Float(v) => Operand::Float(*v),
            OperandArg::Complex(v) => Operand::Complex(*v),
            OperandArg::Weak(t) => Operand::Weak(t),
            OperandArg::Size(size) => Operand::Size(*size),
        }
    }

    /// Converts a Python object to an operand; `None` for an object that is not a scalar, tensor or
    /// array: a binary operator then lets the other operand's class try.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<OperandArg>> {
        if let Ok(tensor) = object.cast::<PyTensor>() {
            return Ok(Some(OperandArg::Tensor(tensor.borrow().0.clone())));
        }
        if object.is_exact_instance_of::<PyFloat>() {
            return Ok(Some(OperandArg::Float(object.extract()?)));
        }
        if let Ok(value) = object.cast::<PyBool>() {
            return Ok(Some(OperandArg::Bool(value.is_true())));
        }
        if object.is_instance_of::<PyInt>() {
            return wide_integer(object).map(|v| Some(OperandArg::Int(v)));
        }
        if let Ok(dim) = object.cast::<PyDim>() {
            return Ok(Some(OperandArg::Size(dim.get().0)));
        }
        if let Ok(number) = object.cast::<PySymbolicFloat>() {
            return Ok(Some(OperandArg::Weak(number.get().as_tensor().clone())));
        }
        if object.is_exact_instance_of::<PyComplex>() {
            return complex(object).map(|v| Some(OperandArg::Complex(v)));
        }
        if is_array(object) {
            return Ok(Some(OperandArg::Tensor(as_tensor(object, None)?)));
        }
        if object.is_instance_of::<PyFloat>() {
            return Ok(Some(OperandArg::Float(object.extract()?)));
        }
        if object.is_instance_of::<PyComplex>() {
            return complex(object).map(|v| Some(OperandArg::Complex(v)));
        }
        Ok(None)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for OperandArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match OperandArg::of(&object)? {
            Some(operand) => Ok(operand),
            None => as_tensor(&object, None).map(OperandArg::Tensor),
        }
    }
}

/// Reads a Python complex number.
pub fn complex(object: &Bound<'_, PyAny>) -> PyResult<Complex64> {
    let part = |name| object.getattr(name)?.extract::<f64>();
    Ok(Complex64::new(part("real")?, part("imag")?))
}

/// An integer argument. A value of another type raises a `DTypeError`, which is a `TypeError`; an
/// integer that does not fit 64 bits raises an `InvalidArgumentError`.
#[derive(Clone, Copy)]
pub struct IntArg(pub i64);

impl<'a, 'py> FromPyObject<'a, 'py> for IntArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyInt>() {
            return integer(&object).map(IntArg);
        }
        object.extract().map(IntArg).map_err(|error| {
            // Do not hide an error from the value's own `__index__`.
            if !error.is_instance_of::<PyTypeError>(object.py()) {
                return error;
            }
            exception("DTypeError", format!("an integer is expected, got {}", described(&object)))
        })
    }
}

/// An integer argument that may exceed 64 bits, such as the exclusive bound of all 64-bit integers.
/// A value of another type raises a `DTypeError`.
#[derive(Clone, Copy)]
pub struct WideIntArg(pub i128);

impl<'a, 'py> FromPyObject<'a, 'py> for WideIntArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyInt>() {
            let value = object
                .extract()
                .map_err(|_| invalid(format!("the integer {} does not fit in 128 bits", &*object)));
            return value.map(WideIntArg);
        }
        match object.extract::<u64>() {
            Ok(value) => Ok(WideIntArg(value.into())),
            Err(_) => IntArg::extract(object).map(|value| WideIntArg(value.0.into())),
        }
    }
}

/// A size: an integer that is not negative, or a symbolic size.
#[derive(Clone, Copy)]
pub struct SizeArg(pub Dim);

impl<'a, 'py> FromPyObject<'a, 'py> for SizeArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(dim) = object.cast::<PyDim>() {
            return Ok(SizeArg(dim.get().0));
        }
        let size = Shape::from_signed("size", &[object.extract::<IntArg>()?.0]);
        size.map(|shape| SizeArg(shape.dim(0))).map_err(|error| crate::errors::raise(error.into()))
    }
}

/// Axes: one integer, several integers, or none given.
#[derive(Default)]
pub struct Axes(pub Option<SmallVec<[i64; 4]>>);

impl Axes {
    /// A single axis.
    pub fn one(axis: i64) -> Axes {
        Axes(Some(SmallVec::from_elem(axis, 1)))
    }

    /// The axes as the slice that the library's functions take; `None` if none are given.
    pub fn as_slice(&self) -> Option<&[i64]> {
        self.0.as_deref()
    }

    /// The axes of a reduction, which keeps them with size one if `keepdims`.
    pub fn reduced(&self, keepdims: bool) -> girih::ReducedAxes {
        girih::Axes::from(self.as_slice()).reduced(keepdims)
    }

    /// The only axis, if one is given; an error if several are given.
    pub fn single(&self, op: &str) -> PyResult<Option<i64>> {
        match self.as_slice() {
            None => Ok(None),
            Some([axis]) => Ok(Some(*axis)),
            Some(axes) => Err(invalid(format!("{op}: takes one axis, got {axes:?}"))),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Axes {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Axes(None));
        }
        if object.is_instance_of::<PyInt>() {
            return integer(&object).map(Axes::one);
        }
        if let Ok(axis) = object.extract::<i64>() {
            return Ok(Axes::one(axis));
        }
        let wrong = |found: &Bound<'_, PyAny>| {
            invalid(format!(
                "an axis is an integer or a tuple of integers, got {}",
                described(found)
            ))
        };
        if !object.is_instance_of::<PyTuple>() && !object.is_instance_of::<PyList>() {
            return Err(wrong(&object));
        }
        let mut axes = SmallVec::new();
        sequences::for_each(&object, sequences::FEW, |item| {
            axes.push(match item.is_instance_of::<PyInt>() {
                true => integer(&item)?,
                false => item.extract().map_err(|_| wrong(&item))?,
            });
            Ok(())
        })?;
        Ok(Axes(Some(axes)))
    }
}

/// An argument that is an axis, or the indices where a function of PyTorch has them.
pub enum PlaceArg {
    Axes(Axes),
    Indices(Tensor),
}

impl<'a, 'py> FromPyObject<'a, 'py> for PlaceArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let array = object.is_instance_of::<PyTensor>() || is_array(&object);
        match array || object.is_instance_of::<PyList>() {
            true => Ok(PlaceArg::Indices(as_tensor(&object, None)?)),
            false => object.extract().map(PlaceArg::Axes),
        }
    }
}

/// `axis` or its other spelling `dim`; not both.
pub fn axes(axis: Option<Axes>, dim: Option<Axes>) -> PyResult<Axes> {
    match (axis, dim) {
        (Some(Axes(Some(_))), Some(Axes(Some(_)))) => Err(two_spellings()),
        (Some(Axes(None)) | None, Some(axes)) => Ok(axes),
        (axis, _) => Ok(axis.unwrap_or_default()),
    }
}

fn two_spellings() -> PyErr {
    invalid("axis and dim are two spellings of one argument; give one")
}

/// `axis`, which has a default, or its other spelling `dim`; not both.
pub fn axis_or_dim(axis: IntArg, dim: Option<IntArg>, default: i64) -> PyResult<i64> {
    match dim {
        Some(_) if axis.0 != default => Err(two_spellings()),
        Some(dim) => Ok(dim.0),
        None => Ok(axis.0),
    }
}

/// One axis with a default.
pub fn axis(op: &str, axis: Option<Axes>, dim: Option<Axes>, default: i64) -> PyResult<i64> {
    Ok(axes(axis, dim)?.single(op)?.unwrap_or(default))
}

/// Whether reduced axes are kept. An integer argument is an error: it is often meant as a second
/// axis.
pub struct KeepArg(bool);

impl<'a, 'py> FromPyObject<'a, 'py> for KeepArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(KeepArg).map_err(|_| {
            let found = described(&object);
            let message = format!(
                "True or False is expected, got {found}; several axes are one tuple, as in \
                 axis=(0, 1)"
            );
            exception("DTypeError", message)
        })
    }
}

/// `keepdims` or its other spelling `keepdim`.
pub fn keep(keepdims: Option<KeepArg>, keepdim: Option<bool>) -> PyResult<bool> {
    match (keepdims.map(|keep| keep.0), keepdim) {
        (Some(a), Some(b)) if a != b => {
            Err(invalid("keepdims and keepdim are two spellings of one argument and disagree"))
        }
        (a, b) => Ok(a.or(b).unwrap_or(false)),
    }
}

/// The number that is subtracted from the number of elements in the divisor of a variance:
/// `correction`, or by its other names `ddof`, and `unbiased` for 1 or 0.
pub fn correction(
    correction: Option<f64>,
    ddof: Option<f64>,
    unbiased: Option<bool>,
) -> PyResult<f64> {
    let unbiased = unbiased.map(|unbiased| f64::from(u8::from(unbiased)));
    let given = [correction, ddof, unbiased].into_iter().flatten();
    if given.clone().count() > 1 {
        return Err(invalid(
            "correction, ddof and unbiased are spellings of one argument; give one",
        ));
    }
    Ok(given.sum())
}

/// Sizes given as one integer, one sequence, or several integers.
pub fn sizes(args: &Bound<'_, PyTuple>) -> PyResult<Vec<Size>> {
    if args.len() == 1 {
        let only = args.get_item(0)?;
        if !only.is_instance_of::<PyInt>() && has(&only, intern!(args.py(), "__iter__")) {
            return sequence(&only);
        }
    }
    sequence(args.as_any())
}

/// Axes in the forms in which [`sizes`] takes sizes.
pub fn axis_list(args: &Bound<'_, PyTuple>) -> PyResult<Vec<i64>> {
    Ok(sizes(args)?.into_iter().map(Size::get).collect())
}

/// Reads a shape from the parameters `shape, *sizes`: one integer, one sequence, or several
/// integers.
pub fn shape_or_sizes(
    op: &str,
    shape: Option<&Bound<'_, PyAny>>,
    more: &Bound<'_, PyTuple>,
) -> PyResult<Vec<Size>> {
    match shape {
        None if more.is_empty() => Ok(Vec::new()),
        None => Err(invalid(format!("{op}: a size is an integer, got None"))),
        Some(shape) if more.is_empty() => Ok(shape.extract::<ShapeArg>()?.0),
        Some(first) => {
            let all = PyTuple::new(first.py(), [first.clone()])?.add(more)?;
            sequence(&all)
        }
    }
}

fn sequence(object: &Bound<'_, PyAny>) -> PyResult<Vec<Size>> {
    sequences::read(object, sequences::FEW, |item| {
        if let Ok(dim) = item.cast::<PyDim>() {
            return Ok(Size::Symbolic(dim.get().0));
        }
        item.extract::<i64>().map(Size::Known).map_err(|_| {
            let what = described(&item);
            let message = format!("a shape is made of integers that fit 64 bits, got {what}");
            match item.is_instance_of::<PyInt>() {
                true => invalid(message),
                false => exception("DTypeError", message),
            }
        })
    })
}

/// A shape: one integer or a sequence of integers.
pub struct ShapeArg(pub Vec<Size>);

impl ShapeArg {
    /// The sizes as numbers; symbolic sizes are fixed to their values.
    pub fn numbers(&self) -> Vec<i64> {
        self.0.iter().map(|size| size.get()).collect()
    }

    /// The shape, after checking its sizes.
    pub fn shape(&self, op: &'static str) -> PyResult<Shape> {
        girih::shape_of(op, &self.0).map_err(crate::errors::raise)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for ShapeArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyInt>() {
            return Ok(ShapeArg(vec![Size::Known(integer(&object)?)]));
        }
        if let Ok(dim) = object.cast::<PyDim>() {
            return Ok(ShapeArg(vec![Size::Symbolic(dim.get().0)]));
        }
        sequence(&object).map(ShapeArg)
    }
}

/// Sizes as written: one integer or a sequence of integers. See [`SizesArg::at_least`].
pub struct SizesArg(pub Vec<i64>);

impl SizesArg {
    /// A single size.
    pub fn one(size: i64) -> SizesArg {
        SizesArg(vec![size])
    }

    /// The sizes, each of which must be at least `least`. The error names the function and the
    /// argument.
    pub fn at_least(&self, least: usize, op: &str, argument: &str) -> PyResult<Vec<usize>> {
        let sizes = self.0.iter().map(|&s| usize::try_from(s).ok().filter(|&s| s >= least));
        sizes.collect::<Option<_>>().ok_or_else(|| {
            let found = match &self.0[..] {
                [one] => one.to_string(),
                many => format!("{many:?}"),
            };
            invalid(format!("{op}: {argument} must be at least {least}, got {found}"))
        })
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for SizesArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let ShapeArg(sizes) = object.extract()?;
        Ok(SizesArg(sizes.iter().map(|size| size.get()).collect()))
    }
}

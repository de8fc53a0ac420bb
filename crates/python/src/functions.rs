//! Functions of the module, and methods with the same names: one declaration defines both.

use crate::args::{
    Axes, IntArg, KeepArg, OperandArg, PlaceArg, TensorArg, axes, axis, axis_list, keep,
};
use crate::dtype::DTypeArg;
use crate::errors::{IntoPy, invalid};
use crate::location;
use crate::scalars;
use crate::sequences::Listed;
use crate::tensor::PyTensor;
use girih::ir::OpCode;
use girih::{DType, OutOfRange, Shape, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The result type of a function that returns a tensor.
pub(crate) type Out = PyResult<PyTensor>;

/// Converts a library result to a Python tensor.
pub(crate) fn out(result: girih::Result<Tensor>) -> Out {
    result.map(PyTensor).py()
}

/// The result type of a function that returns two tensors.
pub(crate) type Pair = PyResult<(PyTensor, PyTensor)>;

/// Converts a library result of two tensors to Python tensors.
pub(crate) fn pair(result: girih::Result<(Tensor, Tensor)>) -> Pair {
    result.map(|(a, b)| (PyTensor(a), PyTensor(b))).py()
}

/// Defines a function and a method for each row: for the elementwise table, then for functions that
/// are not ops.
macro_rules! elementwise {
    (
        unary { $($how:ident $method:ident $ucode:ident $udef:path, $unary:ident $udoc:literal;)* }
        binary { $($how2:ident $bm:ident $bcode:ident $bdef:path, $binary:ident $bdoc:literal;)* }
    ) => {
        unary! { table_functions $($unary $method $udoc,)* }

        mod binary_functions {
            use super::*;

            $(#[doc = $bdoc]
            #[pyfunction]
            #[pyo3(signature = (x1, x2, /))]
            pub fn $binary(py: Python<'_>, x1: OperandArg, x2: OperandArg) -> Out {
                let _called = location::enter!(py);
                out(girih::binary(OpCode::$bcode, x1.operand(), x2.operand()))
            })*

            pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
                $(m.add_function(wrap_pyfunction!($binary, m)?)?;)*
                Ok(())
            }
        }
    };
}

macro_rules! unary {
    ($functions:ident $($name:ident $method:ident $doc:literal,)*) => {
        #[pymethods]
        impl PyTensor {
            $(#[doc = $doc]
            fn $name(&self, py: Python<'_>) -> Out {
                let _called = location::enter!(py);
                out(self.0.$method())
            })*
        }

        mod $functions {
            use super::*;

            $(#[doc = $doc]
            #[pyfunction]
            #[pyo3(signature = (x, /))]
            pub fn $name(py: Python<'_>, x: TensorArg) -> Out {
                let _called = location::enter!(py);
                out(x.0.$method())
            })*

            pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
                $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
                Ok(())
            }
        }
    };
}

girih::ir::elementwise_table! { elementwise }

unary! {
    unary_functions
    square square "``x * x``.",
    reciprocal reciprocal "``1 / x``.",
    logical_not logical_not "Whether each element is zero. Dtype: bool.",
    angle angle "The angle in the complex plane; 0 or pi for real numbers.",
}

macro_rules! reductions {
    ($($name:ident $doc:literal;)*) => {
        #[pymethods]
        impl PyTensor {
            $(#[doc = $doc]
            #[pyo3(signature = (axis=None, keepdims=None, *, dim=None, keepdim=None))]
            fn $name(
                &self,
                py: Python<'_>,
                axis: Option<Axes>,
                keepdims: Option<KeepArg>,
                dim: Option<Axes>,
                #[pyo3(from_py_with = scalars::maybe_flag)] keepdim: Option<bool>,
            ) -> Out {
                let _called = location::enter!(py);
                out(self.0.$name(axes(axis, dim)?.reduced(keep(keepdims, keepdim)?)))
            })*
        }

        mod reduction_functions {
            use super::*;

            $(#[doc = $doc]
            #[pyfunction]
            #[pyo3(signature = (x, axis=None, keepdims=None, *, dim=None, keepdim=None))]
            pub fn $name(
                py: Python<'_>,
                x: TensorArg,
                axis: Option<Axes>,
                keepdims: Option<KeepArg>,
                dim: Option<Axes>,
                #[pyo3(from_py_with = scalars::maybe_flag)] keepdim: Option<bool>,
            ) -> Out {
                PyTensor(x.0).$name(py, axis, keepdims, dim, keepdim)
            })*

            pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
                $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
                Ok(())
            }
        }
    };
}

reductions! {
    mean "Mean over axes, all by default; NaN if there are no elements. Integers give float32.";
    max "Largest element over axes, all by default; NaN if any element is NaN. Without elements, a ShapeError.";
    min "Smallest element over axes, all by default; NaN if any element is NaN. Without elements, a ShapeError.";
    any "Whether any element is nonzero, over axes, all by default. Dtype: bool.";
    all "Whether all elements are nonzero, over axes, all by default. Dtype: bool.";
    logsumexp "``log(sum(exp(x)))`` over axes, without overflow; -inf if there are no elements.";
}

/// Defines functions and methods with the same names; the tensor is the first argument of the
/// function. The functions are in a module of this name.
macro_rules! both {
    ($module:ident: $($(#[doc = $doc:literal])+ fn $name:ident($x:ident, $py:ident
        $(, $arg:ident: $ty:ty $(= $default:tt)?)* $(; $($kw:ident: $kwty:ty),*)?) $body:block)*) => {
        #[pymethods]
        impl PyTensor {
            $($(#[doc = $doc])+
            #[pyo3(signature = ($($arg $(= $default)?),* $(, *, $($kw=None),*)?))]
            fn $name(
                &self, $py: Python<'_>
                $(, #[pyo3(from_py_with = crate::scalars::param)] $arg: $ty)*
                $($(, #[pyo3(from_py_with = crate::scalars::param)] $kw: $kwty)*)?
            ) -> Out {
                let _called = location::enter!($py);
                let $x = &self.0;
                $body
            })*
        }

        mod $module {
            use super::*;

            $($(#[doc = $doc])+
            #[pyfunction]
            #[pyo3(signature = (x $(, $arg $(= $default)?)* $(, *, $($kw=None),*)?))]
            pub fn $name(
                $py: Python<'_>, x: TensorArg
                $(, #[pyo3(from_py_with = crate::scalars::param)] $arg: $ty)*
                $($(, #[pyo3(from_py_with = crate::scalars::param)] $kw: $kwty)*)?
            ) -> Out {
                PyTensor(x.0).$name($py $(, $arg)* $($(, $kw)*)?)
            })*

            pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
                $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
                Ok(())
            }
        }
    };
}

pub(crate) use both;

/// Casts a result to the given dtype.
fn in_dtype(tensor: girih::Result<Tensor>, dtype: Option<DTypeArg>) -> Out {
    out(tensor.and_then(|t| match dtype {
        Some(dtype) => t.astype(dtype.0),
        None => Ok(t),
    }))
}

/// Casts the operand of a sum to the given dtype, in which the sum is then computed.
fn summand(x: &Tensor, dtype: Option<&DTypeArg>) -> PyResult<Tensor> {
    match dtype {
        Some(dtype) if dtype.0 != DType::Bool => x.astype(dtype.0).py(),
        _ => Ok(x.clone()),
    }
}

both! {
    functions_too:

    /// Sum over axes, all by default. Signed integers and bool are summed in int64, unsigned
    /// integers in uint64.
    fn sum(x, py, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
        dtype: Option<DTypeArg>, dim: Option<Axes>, keepdim: Option<bool>) {
        let x = summand(x, dtype.as_ref())?;
        in_dtype(x.sum(axes(axis, dim)?.reduced(keep(keepdims, keepdim)?)), dtype)
    }

    /// Product over axes, all by default. Signed integers and bool are multiplied in int64,
    /// unsigned integers in uint64.
    fn prod(x, py, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
        dtype: Option<DTypeArg>, dim: Option<Axes>, keepdim: Option<bool>) {
        let x = summand(x, dtype.as_ref())?;
        in_dtype(x.prod(axes(axis, dim)?.reduced(keep(keepdims, keepdim)?)), dtype)
    }

    /// Index of the first largest element along an axis, or of the flattened tensor. Dtype: int64.
    fn argmax(x, py, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
        dim: Option<Axes>, keepdim: Option<bool>) {
        let axis = axes(axis, dim)?.single("argmax")?;
        out(x.argmax(girih::Axes::from(axis).reduced(keep(keepdims, keepdim)?)))
    }

    /// Index of the first smallest element along an axis, or of the flattened tensor. Dtype: int64.
    fn argmin(x, py, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
        dim: Option<Axes>, keepdim: Option<bool>) {
        let axis = axes(axis, dim)?.single("argmin")?;
        out(x.argmin(girih::Axes::from(axis).reduced(keep(keepdims, keepdim)?)))
    }

    /// Variance over axes, all by default; the sum of squares is divided by ``n - correction``, n
    /// by default.
    fn var(x, py, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
        correction: Option<f64>, ddof: Option<f64>, unbiased: Option<bool>, dim: Option<Axes>,
        keepdim: Option<bool>) {
        let (axes, lack) = (axes(axis, dim)?, crate::args::correction(correction, ddof, unbiased)?);
        out(x.var_with(axes.reduced(keep(keepdims, keepdim)?), lack))
    }

    /// Removes axes of size one: the given axes, or all.
    fn squeeze(x, py, axis: Option<Axes> = None; dim: Option<Axes>) {
        out(x.squeeze(axes(axis, dim)?.as_slice()))
    }

    /// Inserts an axis of size one.
    fn unsqueeze(x, py, axis: Option<Axes> = None; dim: Option<Axes>) {
        out(x.unsqueeze(crate::args::axis("unsqueeze", axis, dim, 0)?))
    }

    /// Reverses the elements along axes, all by default.
    fn flip(x, py, axis: Option<Axes> = None; dim: Option<Axes>, dims: Option<Axes>) {
        out(x.flip(axes(axis, Some(axes(dim, dims)?))?.as_slice()))
    }

    /// Exponentials normalised to sum to one along an axis, the last by default, or over several
    /// axes together.
    fn softmax(x, py, axis: Option<Axes> = None; dim: Option<Axes>) {
        out(match axes(axis, dim)?.as_slice() {
            None => x.softmax(-1),
            Some([axis]) => x.softmax(*axis),
            Some(axes) => x.over_axes("softmax", axes, |x| x.softmax(-1)),
        })
    }

    /// Logarithm of softmax, without underflow, along an axis, the last by default, or over several
    /// axes together.
    fn log_softmax(x, py, axis: Option<Axes> = None; dim: Option<Axes>) {
        out(match axes(axis, dim)?.as_slice() {
            None => x.log_softmax(-1),
            Some([axis]) => x.log_softmax(*axis),
            Some(axes) => x.over_axes("log_softmax", axes, |x| x.log_softmax(-1)),
        })
    }

    /// ``x * Phi(x)``, by erf or by the tanh formula.
    fn gelu(x, py, approximate: &str = "none") {
        match approximate {
            "none" => out(x.gelu()),
            "tanh" => out(x.gelu_tanh()),
            other => Err(invalid(format!("gelu: approximate is 'none' or 'tanh', got '{other}'"))),
        }
    }

    /// Rounds to the nearest integer, or to the given number of decimal places, halves to even. A
    /// negative number of places rounds to tens, hundreds and so on, for integers too.
    fn round(x, py, decimals: i32 = 0) {
        out(if decimals == 0 { x.round() } else { x.round_to(decimals) })
    }

    /// Elements limited to ``min..max``; either or both may be missing.
    fn clip(x, py, min: Option<OperandArg> = None, max: Option<OperandArg> = None) {
        out(x.clip_to(min.as_ref().map(OperandArg::operand), max.as_ref().map(OperandArg::operand)))
    }

    /// Elements at integer indices along an axis, or of the flattened tensor. Negative indices
    /// count from the end; others out of range raise when evaluated, unless the mode is "clip",
    /// "wrap" or "fill".
    fn take(x, py, indices: TensorArg, axis: Option<Axes> = None;
        dim: Option<Axes>, mode: Option<&str>, fill_value: Option<OperandArg>) {
        let (x, axis) = crate::sorting::along("take", x, axis, dim)?;
        let fill = fill_value.as_ref().map(OperandArg::operand);
        match OutOfRange::of_mode("take", mode, fill.as_ref()).py()? {
            None => out(x.take(&indices.0, axis)),
            Some(mode) => out(x.take_within(&indices.0, axis, mode, fill)),
        }
    }

    /// Elements at integer indices along an axis, position by position.
    fn take_along_axis(x, py, indices: TensorArg, axis: Option<Axes> = None; dim: Option<Axes>) {
        out(x.take_along_axis(&indices.0, crate::args::axis("take_along_axis", axis, dim, -1)?))
    }

    /// The element at each index along an axis, position by position. The result has the shape of
    /// the indices, whose other axes may be shorter than the tensor's. The axis may come first, as
    /// in PyTorch.
    fn gather(x, py, indices: Option<TensorArg> = None, axis: Option<PlaceArg> = None;
        dim: Option<Axes>, index: Option<TensorArg>) {
        let (indices, axis) = gathered(indices, axis, dim, index)?;
        out(x.gather(&indices, axis))
    }
}

/// The indices and the axis of a gather, in either order.
fn gathered(
    indices: Option<TensorArg>,
    axis: Option<PlaceArg>,
    dim: Option<Axes>,
    index: Option<TensorArg>,
) -> PyResult<(Tensor, i64)> {
    let (indices, axis) = match (indices, axis, index) {
        (Some(first), Some(PlaceArg::Indices(indices)), None) => {
            // The first argument is the axis, which the conversion has made a tensor.
            if first.0.rank() > 0 || !first.0.dtype().is_int() {
                return Err(invalid("gather: give the indices, and an axis as an integer"));
            }
            let axis = detach_item(&first.0)?;
            (indices, Axes::one(axis))
        }
        (Some(first), None, Some(index)) if first.0.rank() == 0 => {
            (index.0, Axes::one(detach_item(&first.0)?))
        }
        (Some(indices), axis, None) | (None, axis, Some(indices)) => match axis {
            None => (indices.0, Axes::default()),
            Some(PlaceArg::Axes(axis)) => (indices.0, axis),
            Some(PlaceArg::Indices(_)) => {
                return Err(invalid("gather: give the indices, and an axis as an integer"));
            }
        },
        _ => return Err(invalid("gather: give the indices once, as `indices` or as `index`")),
    };
    Ok((indices, crate::args::axis("gather", Some(axis), dim, -1)?))
}

/// The integer in a tensor that was made of a Python integer.
fn detach_item(x: &Tensor) -> PyResult<i64> {
    crate::interpreter::attach(|py| crate::interpreter::detach(py, || x.item::<i64>())).py()
}

#[pymethods]
impl PyTensor {
    /// Matrix product of operands of any rank, as in NumPy. Shapes: [..., m, k] and [..., k, n] ->
    /// [..., m, n]; leading axes broadcast.
    fn matmul(&self, py: Python<'_>, other: TensorArg) -> Out {
        let _called = location::enter!(py);
        out(self.0.matmul(&other.0))
    }
}

// A separate block: a function called `std` next to macros that refer to the crate `std` is
// ambiguous.
#[pymethods]
impl PyTensor {
    /// Standard deviation over axes; see var.
    #[pyo3(signature = (
        axis=None, keepdims=None, *, correction=None, ddof=None, unbiased=None, dim=None,
        keepdim=None
    ))]
    fn std(
        &self,
        py: Python<'_>,
        axis: Option<Axes>,
        keepdims: Option<KeepArg>,
        #[pyo3(from_py_with = scalars::maybe_number)] correction: Option<f64>,
        #[pyo3(from_py_with = scalars::maybe_number)] ddof: Option<f64>,
        #[pyo3(from_py_with = scalars::maybe_flag)] unbiased: Option<bool>,
        dim: Option<Axes>,
        #[pyo3(from_py_with = scalars::maybe_flag)] keepdim: Option<bool>,
    ) -> Out {
        let _called = location::enter!(py);
        let (axes, keep) = (axes(axis, dim)?, keep(keepdims, keepdim)?);
        let lack = crate::args::correction(correction, ddof, unbiased)?;
        out(self.0.std_with(axes.reduced(keep), lack))
    }
}

/// Standard deviation over axes; see var.
#[pyfunction]
#[pyo3(name = "std")]
#[pyo3(signature = (
    x, axis=None, keepdims=None, *, correction=None, ddof=None, unbiased=None, dim=None, keepdim=None
))]
fn std_(
    py: Python<'_>,
    x: TensorArg,
    axis: Option<Axes>,
    keepdims: Option<KeepArg>,
    #[pyo3(from_py_with = scalars::maybe_number)] correction: Option<f64>,
    #[pyo3(from_py_with = scalars::maybe_number)] ddof: Option<f64>,
    #[pyo3(from_py_with = scalars::maybe_flag)] unbiased: Option<bool>,
    dim: Option<Axes>,
    #[pyo3(from_py_with = scalars::maybe_flag)] keepdim: Option<bool>,
) -> Out {
    PyTensor(x.0).std(py, axis, keepdims, correction, ddof, unbiased, dim, keepdim)
}

/// Matrix product of operands of any rank, as in NumPy. Shapes: [..., m, k] and [..., k, n] ->
/// [..., m, n]; leading axes broadcast.
#[pyfunction]
#[pyo3(signature = (x1, x2, /))]
fn matmul(py: Python<'_>, x1: TensorArg, x2: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(x1.0.matmul(&x2.0))
}

/// The same elements.
#[pyfunction]
#[pyo3(signature = (x, /))]
fn positive(x: TensorArg) -> PyTensor {
    PyTensor(x.0)
}

/// Whether both are nonzero. Dtype: bool.
#[pyfunction]
#[pyo3(signature = (x1, x2, /))]
fn logical_and(py: Python<'_>, x1: TensorArg, x2: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(x1.0.logical_and(&x2.0))
}

/// Whether either is nonzero. Dtype: bool.
#[pyfunction]
#[pyo3(signature = (x1, x2, /))]
fn logical_or(py: Python<'_>, x1: TensorArg, x2: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(x1.0.logical_or(&x2.0))
}

/// Whether exactly one is nonzero. Dtype: bool.
#[pyfunction]
#[pyo3(signature = (x1, x2, /))]
fn logical_xor(py: Python<'_>, x1: TensorArg, x2: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(x1.0.logical_xor(&x2.0))
}

/// The real part; real numbers are unchanged.
#[pyfunction]
#[pyo3(signature = (x, /))]
fn real(py: Python<'_>, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(x.0.real())
}

/// The imaginary part; zeros for real numbers.
#[pyfunction]
#[pyo3(signature = (x, /))]
fn imag(py: Python<'_>, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(x.0.imag())
}

/// The same elements with another shape; one size may be -1. Tensors are values, so it does not
/// matter whether the elements are copied.
#[pyfunction]
#[pyo3(signature = (x, /, shape=None, *sizes, copy=None))]
fn reshape(
    x: TensorArg,
    shape: Option<&Bound<'_, PyAny>>,
    sizes: &Bound<'_, PyTuple>,
    #[pyo3(from_py_with = scalars::maybe_flag)] copy: Option<bool>,
) -> Out {
    let _ = copy;
    PyTensor(x.0).reshape(shape, sizes)
}

/// Permutes the axes into the given order.
#[pyfunction]
#[pyo3(signature = (x, *axes))]
fn permute(py: Python<'_>, x: TensorArg, axes: &Bound<'_, PyTuple>) -> Out {
    let _called = location::enter!(py);
    out(x.0.permute(&axis_list(axes)?))
}

/// Permutes the axes into the given order; two ints exchange these two axes; without arguments the
/// order is reversed.
#[pyfunction]
#[pyo3(signature = (x, *axes))]
fn transpose(x: TensorArg, axes: &Bound<'_, PyTuple>) -> Out {
    PyTensor(x.0).transpose(axes)
}

/// Exchanges two axes.
#[pyfunction]
fn swapaxes(py: Python<'_>, x: TensorArg, axis1: IntArg, axis2: IntArg) -> Out {
    let _called = location::enter!(py);
    out(x.0.swapaxes(axis1.0, axis2.0))
}

/// Broadcasts the tensor to a shape.
#[pyfunction]
#[pyo3(signature = (x, /, shape=None, *sizes))]
fn broadcast_to(x: TensorArg, shape: Option<&Bound<'_, PyAny>>, sizes: &Bound<'_, PyTuple>) -> Out {
    PyTensor(x.0).broadcast_to(shape, sizes)
}

/// Inserts an axis of size one, or several axes at the given positions of the result.
#[pyfunction]
#[pyo3(signature = (x, axis=None, *, dim=None))]
fn expand_dims(py: Python<'_>, x: TensorArg, axis: Option<Axes>, dim: Option<Axes>) -> Out {
    let _called = location::enter!(py);
    let axes = crate::args::axes(axis, dim)?;
    out(x.0.expand_dims(axes.as_slice().unwrap_or(&[0])))
}

/// Joins tensors of equal shape along a new axis.
#[pyfunction]
#[pyo3(signature = (tensors, axis=None, *, dim=None))]
fn stack(py: Python<'_>, tensors: Listed<TensorArg>, axis: Option<Axes>, dim: Option<Axes>) -> Out {
    let _called = location::enter!(py);
    let refs: Vec<&Tensor> = tensors.iter().map(|t| &t.0).collect();
    out(girih::stack(&refs, self::axis("stack", axis, dim, 0)?))
}

/// One-hot vectors along a new last axis: one at each index, zero elsewhere; float32 by default.
#[pyfunction]
#[pyo3(signature = (indices, num_classes, *, dtype=None))]
fn one_hot(
    py: Python<'_>,
    indices: TensorArg,
    num_classes: IntArg,
    dtype: Option<DTypeArg>,
) -> Out {
    let _called = location::enter!(py);
    let classes = Shape::from_signed("one_hot", &[num_classes.0]).py()?.numel();
    out(indices.0.one_hot(classes, dtype.map_or(DType::F32, |d| d.0)))
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    table_functions::register(m)?;
    unary_functions::register(m)?;
    binary_functions::register(m)?;
    reduction_functions::register(m)?;
    functions_too::register(m)?;
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        std_ matmul real imag positive logical_and logical_or logical_xor reshape permute
        transpose swapaxes broadcast_to expand_dims stack one_hot
    }
    m.add("bitwise_invert", m.getattr("bitwise_not")?)
}

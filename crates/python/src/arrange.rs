//! Functions that rearrange elements. The functions that join and split tensors are in `join`.

mod join;

use crate::args::{
    Axes, IntArg, OperandArg, ShapeArg, SizeArg, SizesArg, TensorArg, axes, axis_or_dim, described,
};
use crate::compiled::PyDim;
use crate::devices::{DeviceArg, placed};
use crate::dtype::DTypeArg;
use crate::errors::{IntoPy, invalid};
use crate::functions::{Out, out};
use crate::interpreter::detach;
use crate::location;
use crate::scalars;
use crate::search::nonzero;
use crate::sequences::{Listed, Pair, PerAxis};
use crate::tensor::PyTensor;
use girih::{DType, Dim, PadMode, Shape, Size, Tensor, Update};
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyFloat, PyInt, PyList, PyTuple};

/// The result type of a function that returns several tensors.
pub(crate) type Many = PyResult<Vec<PyTensor>>;

/// Converts a library result of several tensors to Python tensors.
pub(crate) fn many(result: girih::Result<Vec<Tensor>>) -> Many {
    Ok(result.py()?.into_iter().map(PyTensor).collect())
}

fn refs(tensors: &[TensorArg]) -> Vec<&Tensor> {
    tensors.iter().map(|t| &t.0).collect()
}

/// Converts integers to sizes; negative integers are an error.
pub(crate) fn counts(op: &'static str, values: &[i64]) -> PyResult<Vec<usize>> {
    Ok(Shape::from_signed(op, values).py()?.to_vec())
}

/// Moves elements along axes by shift positions; elements moved past the end reappear at the start.
/// Without axes, elements move in row-major order.
#[pyfunction]
#[pyo3(signature = (x, shift, axis=None, *, dims=None))]
fn roll(
    py: Python<'_>,
    x: TensorArg,
    shift: &Bound<'_, PyAny>,
    axis: Option<Axes>,
    dims: Option<Axes>,
) -> Out {
    let _called = location::enter!(py);
    let axis = axes(axis, dims)?;
    if let Ok(places) = shift.cast::<PyDim>() {
        let places = places.get().0;
        let Some(axes) = axis.as_slice() else {
            let flat = x.0.reshape(-1).and_then(|flat| flat.roll_by(places, 0));
            return out(flat.and_then(|flat| flat.reshape(x.0.shape())));
        };
        let rolled = |x: Tensor, &axis: &i64| x.roll_by(places, axis);
        return out(axes.iter().try_fold(x.0, rolled));
    }
    if let Ok(shifts) = shift.extract::<ShapeArg>()
        && shifts.0.iter().any(|shift| matches!(shift, Size::Symbolic(_)))
        && let Some(axes) = axis.as_slice()
        && axes.len() == shifts.0.len()
    {
        let rolled = |x: Tensor, (shift, &axis): (&Size, &i64)| match *shift {
            Size::Symbolic(places) => x.roll_by(places, axis),
            Size::Known(places) => x.roll(&[places], Some(&[axis])),
        };
        return out(shifts.0.iter().zip(axes).try_fold(x.0, rolled));
    }
    let shift: Axes = shift.extract()?;
    let shift = shift.as_slice().ok_or_else(|| invalid("roll: a shift is needed"))?;
    // Broadcast one shift to several axes, or several shifts to one axis, as NumPy does.
    let axes = match axis.as_slice() {
        Some(&[one]) => Some(vec![one; shift.len()]),
        axes => axes.map(<[i64]>::to_vec),
    };
    out(x.0.roll(shift, axes.as_deref()))
}

/// The sizes and the offset of a strided view, none of which is negative.
fn sizes_and_offset(op: &str, size: &SizesArg, offset: IntArg) -> PyResult<(Vec<usize>, usize)> {
    let offset = SizesArg::one(offset.0).at_least(0, op, "storage_offset")?;
    Ok((size.at_least(0, op, "size")?, offset[0]))
}

/// A strided view: element ``(i, j, ...)`` is the element at the storage offset plus ``i`` times
/// the first stride plus ``j`` times the second, and so on, counted in row-major order. A negative
/// stride runs backwards.
#[pyfunction]
#[pyo3(signature = (x, size, stride, storage_offset=IntArg(0)))]
fn as_strided(
    py: Python<'_>,
    x: TensorArg,
    size: SizesArg,
    stride: SizesArg,
    storage_offset: IntArg,
) -> Out {
    let _called = location::enter!(py);
    let (size, offset) = sizes_and_offset("as_strided", &size, storage_offset)?;
    out(x.0.as_strided(&size, &stride.0, offset))
}

/// The tensor with the elements that ``as_strided`` selects replaced by the elements of ``src``.
#[pyfunction]
#[pyo3(signature = (x, src, size, stride, storage_offset=IntArg(0)))]
fn as_strided_scatter(
    py: Python<'_>,
    x: TensorArg,
    src: TensorArg,
    size: SizesArg,
    stride: SizesArg,
    storage_offset: IntArg,
) -> Out {
    let _called = location::enter!(py);
    let (size, offset) = sizes_and_offset("as_strided_scatter", &size, storage_offset)?;
    out(x.0.as_strided_scatter(&src.0, &size, &stride.0, offset))
}

/// Repeats the tensor the given number of times along each axis.
#[pyfunction]
fn tile(py: Python<'_>, x: TensorArg, repetitions: &Bound<'_, PyAny>) -> Out {
    let _called = location::enter!(py);
    if let Ok(sizes) = repetitions.extract::<ShapeArg>()
        && sizes.0.iter().any(|size| matches!(size, Size::Symbolic(_)))
    {
        let counts: Vec<Dim> = sizes.shape("tile")?.dims().collect();
        return out(x.0.tile(&counts));
    }
    let repetitions: Axes = repetitions.extract()?;
    out(x.0.tile(&counts("tile", repetitions.as_slice().unwrap_or_default())?))
}

/// Repeats each element next to itself along an axis, or in row-major order. The repetitions are an
/// int for all slices, or one number for each slice; the numbers are evaluated.
#[pyfunction]
#[pyo3(signature = (x, repeats, axis=None, *, dim=None))]
fn repeat(
    py: Python<'_>,
    x: TensorArg,
    repeats: &Bound<'_, PyAny>,
    axis: Option<Axes>,
    dim: Option<Axes>,
) -> Out {
    let _called = location::enter!(py);
    let axis = crate::args::axes(axis, dim)?.single("repeat")?;
    if let Ok(count) = repeats.cast::<PyDim>() {
        return out(x.0.repeat(count.get().0, axis));
    }
    if repeats.is_instance_of::<PyInt>() {
        let count = counts("repeat", &[crate::args::integer(repeats)?])?[0];
        return out(x.0.repeat(count, axis));
    }
    let each = repeats.extract::<TensorArg>()?.0;
    out(detach(py, || x.0.repeat_each(&each, axis)))
}

/// Moves axes to other positions; the other axes keep their order.
#[pyfunction]
fn moveaxis(py: Python<'_>, x: TensorArg, source: Axes, destination: Axes) -> Out {
    let _called = location::enter!(py);
    let (from, to) = (source.as_slice(), destination.as_slice());
    out(x.0.moveaxis(from.unwrap_or_default(), to.unwrap_or_default()))
}

/// Rotates the tensor by k times 90 degrees in the plane of two axes, from the first axis towards
/// the second.
#[pyfunction]
#[pyo3(signature = (x, k=IntArg(1), axes=Pair(IntArg(0), IntArg(1))))]
fn rot90(py: Python<'_>, x: TensorArg, k: IntArg, axes: Pair<IntArg>) -> Out {
    let _called = location::enter!(py);
    out(x.0.rot90(k.0, (axes.0.0, axes.1.0)))
}

/// Elements reversed along the first axis.
#[pyfunction]
fn flipud(py: Python<'_>, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(x.0.flip(0))
}

/// Elements reversed along the second axis.
#[pyfunction]
fn fliplr(py: Python<'_>, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(x.0.flip(1))
}

/// The last two axes exchanged.
#[pyfunction]
fn matrix_transpose(py: Python<'_>, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(girih::linalg::matrix_transpose(&x.0))
}

/// Axes in the given order.
#[pyfunction]
fn permute_dims(py: Python<'_>, x: TensorArg, axes: Axes) -> Out {
    let _called = location::enter!(py);
    out(x.0.permute(axes.as_slice().unwrap_or_default()))
}

/// All elements along one axis.
#[pyfunction]
fn ravel(py: Python<'_>, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(x.0.reshape(-1))
}

macro_rules! triangles {
    ($($name:ident $doc:literal,)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x, /, k=IntArg(0), *, diagonal=None))]
        fn $name(py: Python<'_>, x: TensorArg, k: IntArg, diagonal: Option<IntArg>) -> Out {
            let _called = location::enter!(py);
            out(x.0.$name(diagonal.unwrap_or(k).0))
        })*
    };
}

triangles! {
    tril "Matrices with zeros above the k-th diagonal.",
    triu "Matrices with zeros below the k-th diagonal.",
}

/// Ones on and below the k-th diagonal, zeros above; float32 by default.
#[pyfunction]
#[pyo3(signature = (n, m=None, k=IntArg(0), *, dtype=None, device=None))]
fn tri(
    py: Python<'_>,
    n: SizeArg,
    m: Option<SizeArg>,
    k: IntArg,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
) -> Out {
    let _called = location::enter!(py);
    let dtype = dtype.map_or(DType::F32, |d| d.0);
    placed(device, || out(Tensor::tri(n.0, m.unwrap_or(n).0, k.0, dtype)))
}

/// A matrix with the elements of a vector on its k-th diagonal; for a matrix, its k-th diagonal.
#[pyfunction]
#[pyo3(signature = (x, k=IntArg(0), *, diagonal=None))]
fn diag(py: Python<'_>, x: TensorArg, k: IntArg, diagonal: Option<IntArg>) -> Out {
    let _called = location::enter!(py);
    out(x.0.diag(diagonal.unwrap_or(k).0))
}

/// A matrix with all elements of the tensor on its k-th diagonal.
#[pyfunction]
#[pyo3(signature = (x, k=IntArg(0), *, offset=None))]
fn diagflat(py: Python<'_>, x: TensorArg, k: IntArg, offset: Option<IntArg>) -> Out {
    let _called = location::enter!(py);
    out(x.0.reshape(-1).and_then(|flat| flat.diag(offset.unwrap_or(k).0)))
}

/// The diagonal of two axes, as the last axis.
#[pyfunction]
#[pyo3(signature = (x, offset=IntArg(0), axis1=IntArg(0), axis2=IntArg(1)))]
fn diagonal(py: Python<'_>, x: TensorArg, offset: IntArg, axis1: IntArg, axis2: IntArg) -> Out {
    let _called = location::enter!(py);
    out(x.0.diagonal(offset.0, axis1.0, axis2.0))
}

/// The sum of the diagonal of two axes. Integers are summed in int64.
#[pyfunction]
#[pyo3(signature = (x, offset=IntArg(0), axis1=IntArg(0), axis2=IntArg(1), *, dtype=None))]
fn trace(
    py: Python<'_>,
    x: TensorArg,
    offset: IntArg,
    axis1: IntArg,
    axis2: IntArg,
    dtype: Option<DTypeArg>,
) -> Out {
    let _called = location::enter!(py);
    let x = dtype.map_or(Ok(x.0.clone()), |d| x.0.astype(d.0)).py()?;
    out(x.trace(offset.0, axis1.0, axis2.0))
}

/// Differences of neighbouring elements along an axis, taken n times; for bool, whether neighbours
/// differ. prepend and append are first joined to the axis.
#[pyfunction]
#[pyo3(signature = (x, n=IntArg(1), axis=IntArg(-1), prepend=None, append=None, *, dim=None))]
fn diff(
    py: Python<'_>,
    x: TensorArg,
    n: IntArg,
    axis: IntArg,
    prepend: Option<TensorArg>,
    append: Option<TensorArg>,
    dim: Option<IntArg>,
) -> Out {
    let _called = location::enter!(py);
    let (n, axis) = (counts("diff", &[n.0])?[0], axis_or_dim(axis, dim, -1)?);
    let (prepend, append) = (prepend.map(|t| t.0), append.map(|t| t.0));
    out(x.0.diff(n, axis, prepend.as_ref(), append.as_ref()))
}

/// Grids of coordinates from tensors with one axis each; with indexing 'xy' the first two axes are
/// exchanged. With sparse, the grids have size one along the other axes. Returns: tuple[Tensor, ...].
#[pyfunction]
#[pyo3(signature = (*tensors, indexing="xy", sparse=false))]
fn meshgrid<'py>(
    py: Python<'py>,
    tensors: Listed<TensorArg>,
    #[pyo3(from_py_with = scalars::text)] indexing: &str,
    #[pyo3(from_py_with = scalars::flag)] sparse: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let _called = location::enter!(py);
    let indexing = match indexing {
        "xy" => girih::Indexing::Xy,
        "ij" => girih::Indexing::Ij,
        other => return Err(invalid(format!("meshgrid: indexing is 'xy' or 'ij', got '{other}'"))),
    };
    let tensors = refs(&tensors);
    let grids = match sparse {
        true => girih::sparse_meshgrid(&tensors, indexing),
        false => girih::meshgrid(&tensors, indexing),
    };
    PyTuple::new(py, many(grids)?)
}

/// Elements of x where the condition holds, and of y elsewhere; all three broadcast. With the
/// condition alone, the result of nonzero. Returns: Any.
#[pyfunction]
#[pyo3(name = "where", signature = (condition, x=None, y=None, /))]
fn where_<'py>(
    py: Python<'py>,
    condition: TensorArg,
    x: Option<OperandArg>,
    y: Option<OperandArg>,
) -> PyResult<Bound<'py, PyAny>> {
    let _called = location::enter!(py);
    match (x, y) {
        (Some(x), Some(y)) => {
            let chosen = girih::where_(&condition.0, x.operand(), y.operand()).py()?;
            Ok(Bound::new(py, PyTensor(chosen))?.into_any())
        }
        (None, None) => Ok(nonzero(py, condition, None, IntArg(0))?.into_any()),
        _ => Err(invalid("where: give both of x and y, or neither")),
    }
}

/// Pads axes; the widths are one number, one pair (before, after), or one pair per axis. The new
/// elements are a constant value, or depend on the elements inside by the mode: 'edge', 'reflect',
/// 'symmetric' or 'wrap', as in NumPy.
#[pyfunction]
#[pyo3(signature = (x, widths, mode=None, value=None, *, constant_values=None))]
fn pad(
    x: TensorArg,
    widths: &Bound<'_, PyAny>,
    mode: Option<&Bound<'_, PyAny>>,
    value: Option<OperandArg>,
    constant_values: Option<OperandArg>,
) -> Out {
    let _called = location::enter!(widths.py());
    let widths = pad_widths(widths, x.0.rank())?;
    let named = mode.and_then(|m| m.extract::<String>().ok());
    let value = match (mode, &named) {
        // The value may be passed in the mode's position.
        (Some(mode), None) => Some(mode.extract::<OperandArg>()?),
        _ => value.or(constant_values),
    };
    let mode = match named.as_deref() {
        None | Some("constant") => None,
        Some("edge") => Some(PadMode::Edge),
        Some("reflect") => Some(PadMode::Reflect),
        Some("symmetric") => Some(PadMode::Symmetric),
        Some("wrap") => Some(PadMode::Wrap),
        Some(other) => {
            return Err(invalid(format!(
                "pad: mode is 'constant', 'edge', 'reflect', 'symmetric' or 'wrap', got '{other}'"
            )));
        }
    };
    match (mode, value) {
        (Some(mode), None) => out(x.0.pad_with(&widths, mode)),
        (Some(_), Some(_)) => Err(invalid("pad: only the mode 'constant' takes a value")),
        // The default value, and any float without a fraction, fits integer tensors, too.
        (None, Some(OperandArg::Float(v))) if !x.0.dtype().is_float() && v.fract() == 0.0 => {
            out(x.0.pad(&widths, v as i64))
        }
        (None, value) => {
            let zero = OperandArg::Bool(false);
            out(x.0.pad(&widths, value.as_ref().unwrap_or(&zero).operand()))
        }
    }
}

fn pad_widths(widths: &Bound<'_, PyAny>, rank: usize) -> PyResult<Vec<(usize, usize)>> {
    if let Ok(width) = widths.extract::<usize>() {
        return Ok(vec![(width, width); rank]);
    }
    if let Ok(Pair(before, after)) = widths.extract::<Pair<usize>>() {
        return Ok(vec![(before, after); rank]);
    }
    match widths.extract::<PerAxis<Pair<usize>>>() {
        Ok(pairs) => {
            let pairs: Vec<(usize, usize)> = pairs.iter().map(|pair| (pair.0, pair.1)).collect();
            // One pair applies to all axes.
            if let &[pair] = &pairs[..] { Ok(vec![pair; rank]) } else { Ok(pairs) }
        }
        Err(_) => Err(invalid(format!(
            "pad: widths are one number, one (before, after), or one such pair per axis, none \
             negative; got {}",
            described(widths)
        ))),
    }
}

/// Broadcasts tensors to their common shape. Returns: tuple[Tensor, ...].
#[pyfunction]
#[pyo3(signature = (*tensors))]
fn broadcast_arrays(py: Python<'_>, tensors: Listed<TensorArg>) -> PyResult<Bound<'_, PyTuple>> {
    let _called = location::enter!(py);
    PyTuple::new(py, many(girih::broadcast_arrays(&refs(&tensors)))?)
}

/// The shape to which shapes broadcast. Returns: tuple[int, ...].
#[pyfunction]
#[pyo3(signature = (*shapes))]
fn broadcast_shapes<'py>(
    py: Python<'py>,
    shapes: Listed<ShapeArg>,
) -> PyResult<Bound<'py, PyTuple>> {
    let shapes =
        shapes.iter().map(|s| s.shape("broadcast_shapes")).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, girih::broadcast_shapes(&shapes).py()?.iter())
}

macro_rules! at_least {
    ($($name:ident $rank:literal $doc:literal,)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        fn $name(py: Python<'_>, x: TensorArg) -> Out {
            let _called = location::enter!(py);
            out(x.0.at_least($rank))
        })*
    };
}

at_least! {
    atleast_1d 1 "The tensor with at least one axis.",
    atleast_2d 2 "The tensor with at least two axes.",
    atleast_3d 3 "The tensor with at least three axes.",
}

/// The indices of the elements of a shape, one row per axis. Dtype: int64.
#[pyfunction]
#[pyo3(signature = (shape, *, device=None))]
fn indices(py: Python<'_>, shape: ShapeArg, device: Option<DeviceArg>) -> Out {
    let _called = location::enter!(py);
    let shape = shape.shape("indices")?;
    placed(device, || out(girih::indices(&shape)))
}

/// Replaces the elements at the indices along an axis, position by position. The result is a new
/// tensor: x does not change.
#[pyfunction]
#[pyo3(signature = (x, indices, values, axis=None, *, dim=None))]
fn put_along_axis(
    py: Python<'_>,
    x: TensorArg,
    indices: TensorArg,
    values: OperandArg,
    axis: Option<Axes>,
    dim: Option<Axes>,
) -> Out {
    let _called = location::enter!(py);
    let axis = crate::args::axis("put_along_axis", axis, dim, -1)?;
    out(x.0.put_along_axis(&indices.0, values.operand(), axis, Update::Set))
}

#[pymethods]
impl PyTensor {
    /// All elements along one axis.
    fn ravel(&self, py: Python<'_>) -> Out {
        let _called = location::enter!(py);
        out(self.0.reshape(-1))
    }

    /// Repeats each element next to itself along an axis, or in row-major order.
    #[pyo3(signature = (repeats, axis=None, *, dim=None))]
    fn repeat(
        &self,
        py: Python<'_>,
        repeats: &Bound<'_, PyAny>,
        axis: Option<Axes>,
        dim: Option<Axes>,
    ) -> Out {
        repeat(py, TensorArg(self.0.clone()), repeats, axis, dim)
    }

    /// The diagonal of two axes, as the last axis.
    #[pyo3(signature = (offset=IntArg(0), axis1=IntArg(0), axis2=IntArg(1)))]
    fn diagonal(&self, py: Python<'_>, offset: IntArg, axis1: IntArg, axis2: IntArg) -> Out {
        let _called = location::enter!(py);
        out(self.0.diagonal(offset.0, axis1.0, axis2.0))
    }

    /// The sum of the diagonal of two axes. Integers are summed in int64.
    #[pyo3(signature = (offset=IntArg(0), axis1=IntArg(0), axis2=IntArg(1)))]
    fn trace(&self, py: Python<'_>, offset: IntArg, axis1: IntArg, axis2: IntArg) -> Out {
        let _called = location::enter!(py);
        out(self.0.trace(offset.0, axis1.0, axis2.0))
    }
}

#[pymethods]
impl PyTensor {
    /// The same elements with another shape, or with their bits reinterpreted as another dtype; a
    /// dtype of another size scales the last axis. Python's float and complex mean the dtypes of
    /// this tensor's precision if its dtype is floating point or complex.
    #[pyo3(signature = (shape, /, *sizes))]
    fn view(&self, shape: &Bound<'_, PyAny>, sizes: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let listed = shape.is_instance_of::<PyTuple>() || shape.is_instance_of::<PyList>();
        let size = shape.is_instance_of::<PyInt>() || shape.is_instance_of::<PyDim>();
        if listed || size || !sizes.is_empty() {
            return self.reshape(Some(shape), sizes);
        }
        let _called = location::enter!(shape.py());
        let own = self.0.dtype();
        let dtype = if own.is_inexact() && shape.is(shape.py().get_type::<PyFloat>()) {
            own.real()
        } else if own.is_inexact() && shape.is(shape.py().get_type::<PyComplex>()) {
            own.complex()
        } else {
            shape.extract::<DTypeArg>()?.0
        };
        self.0.bitcast(dtype).map(PyTensor).py()
    }
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        where_ pad roll tile repeat moveaxis rot90 flipud fliplr matrix_transpose permute_dims ravel tril triu
        tri diag diagflat diagonal trace diff meshgrid broadcast_arrays broadcast_shapes atleast_1d
        atleast_2d atleast_3d indices put_along_axis as_strided as_strided_scatter
    }
    join::register(m)
}

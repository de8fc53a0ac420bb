//! Statistics, approximate comparisons, interpolation, polynomials, histograms, window functions.

use crate::args::{Axes, IntArg, KeepArg, OperandArg, TensorArg, axes, keep};
use crate::arrange::counts;
use crate::dtype::DTypeArg;
use crate::errors::{IntoPy, invalid};
use crate::functions::{Out, both, out};
use crate::interpreter::detach;
use crate::location;
use crate::scalars;
use crate::search::{BinsArg, heights, sized};
use crate::sequences;
use crate::tensor::PyTensor;
use girih::{
    Beyond, Covariance, DType, Nans, Powers, Quantile, Side, Tensor, Tolerance, Variables,
};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// The fractions of a quantile: numbers in a range, or a tensor, whose values are not checked.
pub struct Fractions {
    values: Tensor,
    outside: Option<f64>,
    percent: bool,
}

/// Fractions between 0 and 1.
pub struct Share(Fractions);
/// Percentages between 0 and 100.
pub struct Percent(Fractions);

impl Fractions {
    fn of(object: Borrowed<'_, '_, PyAny>, percent: bool) -> PyResult<Fractions> {
        let top = if percent { 100.0 } else { 1.0 };
        let many = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
        let numbers = match object.extract::<f64>() {
            _ if object.is_instance_of::<PyTensor>() => vec![],
            Ok(number) => vec![number],
            // Other objects, such as nested lists, are converted below.
            Err(_) if many => sequences::read(&object, sequences::MANY, |v| {
                Ok(v.extract::<f64>().unwrap_or(0.0))
            })?,
            Err(_) => vec![],
        };
        let outside = numbers.into_iter().find(|v| !(0.0..=top).contains(v));
        Ok(Fractions {
            values: crate::data::as_tensor(&object, Some(DType::F64))?,
            outside,
            percent,
        })
    }

    fn checked(self, op: &str) -> PyResult<Tensor> {
        let top = if self.percent { "100" } else { "1" };
        match self.outside {
            Some(v) => Err(invalid(format!("{op}: q is from 0 to {top}, got {v}"))),
            None if self.percent => self.values.astype(DType::F64).and_then(|q| q.div(100.0)).py(),
            None => Ok(self.values),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Share {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Fractions::of(object, false).map(Share)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Percent {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Fractions::of(object, true).map(Percent)
    }
}

macro_rules! over_axes {
    ($($name:ident $doc:literal;)*) => {
        both! {
            over_axes:

            $(#[doc = $doc]
            fn $name(x, py, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
                dim: Option<Axes>, keepdim: Option<bool>) {
                out(x.$name(axes(axis, dim)?.reduced(keep(keepdims, keepdim)?)))
            })*
        }
    };
}

over_axes! {
    median "The middle element over axes, all by default, or the mean of the two middle elements. NaN if any element is NaN, or if there are no elements. Integers give float32.";
    nanmedian "The median of the elements that are not NaN. Integers give float32.";
    nansum "Sum of the elements that are not NaN, over axes, all by default. Signed integers and bool are summed in int64, unsigned integers in uint64.";
    nanprod "Product of the elements that are not NaN, over axes, all by default.";
    nanmean "Mean of the elements that are not NaN, over axes, all by default; NaN if there are no such elements. Integers give float32.";
    nanmax "Largest of the elements that are not NaN, over axes, all by default; NaN if there are no such elements.";
    nanmin "Smallest of the elements that are not NaN, over axes, all by default; NaN if there are no such elements.";
}

macro_rules! positions {
    ($($name:ident $doc:literal;)*) => {
        both! {
            positions:

            $(#[doc = $doc]
            fn $name(x, py, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
                dim: Option<Axes>, keepdim: Option<bool>) {
                let axis = axes(axis, dim)?.single(stringify!($name))?;
                out(x.$name(girih::Axes::from(axis).reduced(keep(keepdims, keepdim)?)))
            })*
        }
    };
}

positions! {
    nanargmax "Index of the first largest element that is not NaN, along an axis, or of the flattened tensor; -1 if all elements are NaN. Dtype: int64.";
    nanargmin "Index of the first smallest element that is not NaN, along an axis, or of the flattened tensor; -1 if all elements are NaN. Dtype: int64.";
}

/// Fails for a method that has no weighted form.
fn weighted(op: &str, method: Option<&str>) -> PyResult<()> {
    match method {
        None | Some("inverted_cdf") => Ok(()),
        Some(method) => {
            Err(invalid(format!("{op}: with weights the method is 'inverted_cdf', got '{method}'")))
        }
    }
}

both! {
    more:

    /// The value below which a fraction q (from 0 to 1) of the elements lies, over axes, all by
    /// default; several q give a new first axis. method is any of NumPy's method names, 'linear' by
    /// default. With weights each element counts as often as its weight says, and the method is
    /// 'inverted_cdf'. NaN if any element is NaN. Integers give float32.
    fn quantile(x, py, q: Share, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
        method: Option<&str>, dim: Option<Axes>, keepdim: Option<bool>, weights: Option<TensorArg>) {
        let (q, over) = (q.0.checked("quantile")?, axes(axis, dim)?.reduced(keep(keepdims, keepdim)?));
        if let Some(weights) = weights {
            weighted("quantile", method)?;
            return out(x.weighted_quantile(&q, over, &weights.0));
        }
        out(x.quantile(&q, over, of_name(method)?))
    }

    /// The quantile at q percent, from 0 to 100; see quantile.
    fn percentile(x, py, q: Percent, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
        method: Option<&str>, dim: Option<Axes>, keepdim: Option<bool>, weights: Option<TensorArg>) {
        let (q, over) = (q.0.checked("percentile")?, axes(axis, dim)?.reduced(keep(keepdims, keepdim)?));
        if let Some(weights) = weights {
            weighted("percentile", method)?;
            return out(x.weighted_quantile(&q, over, &weights.0));
        }
        out(x.quantile(&q, over, of_name(method)?))
    }

    /// The quantile of the elements that are not NaN; see quantile.
    fn nanquantile(x, py, q: Share, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
        method: Option<&str>, dim: Option<Axes>, keepdim: Option<bool>, weights: Option<TensorArg>) {
        let (q, over) = (q.0.checked("nanquantile")?, axes(axis, dim)?.reduced(keep(keepdims, keepdim)?));
        if let Some(weights) = weights {
            weighted("nanquantile", method)?;
            return out(x.weighted_nanquantile(&q, over, &weights.0));
        }
        out(x.nanquantile(&q, over, of_name(method)?))
    }

    /// The quantile at q percent, from 0 to 100, of the elements that are not NaN; see quantile.
    fn nanpercentile(x, py, q: Percent, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
        method: Option<&str>, dim: Option<Axes>, keepdim: Option<bool>, weights: Option<TensorArg>) {
        let (q, over) = (q.0.checked("nanpercentile")?, axes(axis, dim)?.reduced(keep(keepdims, keepdim)?));
        if let Some(weights) = weights {
            weighted("nanpercentile", method)?;
            return out(x.weighted_nanquantile(&q, over, &weights.0));
        }
        out(x.nanquantile(&q, over, of_name(method)?))
    }

    /// Variance of the elements that are not NaN, over axes, all by default; see var. NaN if there
    /// are not more than correction such elements.
    fn nanvar(x, py, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
        correction: Option<f64>, ddof: Option<f64>, unbiased: Option<bool>, dim: Option<Axes>,
        keepdim: Option<bool>) {
        let keep = keep(keepdims, keepdim)?;
        let lack = crate::args::correction(correction, ddof, unbiased)?;
        out(x.nanvar_with(axes(axis, dim)?.reduced(keep), lack))
    }

    /// Standard deviation of the elements that are not NaN; see nanvar.
    fn nanstd(x, py, axis: Option<Axes> = None, keepdims: Option<KeepArg> = None;
        correction: Option<f64>, ddof: Option<f64>, unbiased: Option<bool>, dim: Option<Axes>,
        keepdim: Option<bool>) {
        let keep = keep(keepdims, keepdim)?;
        let lack = crate::args::correction(correction, ddof, unbiased)?;
        out(x.nanstd_with(axes(axis, dim)?.reduced(keep), lack))
    }

    /// Running sums that ignore NaN, along an axis, or of the flattened tensor.
    fn nancumsum(x, py, axis: Option<Axes> = None; dtype: Option<DTypeArg>, dim: Option<Axes>) {
        let (x, axis) = crate::sorting::along("nancumsum", x, axis, dim)?;
        out(x.nancumsum(axis, dtype.map(|d| d.0)))
    }

    /// Running products that ignore NaN, along an axis, or of the flattened tensor.
    fn nancumprod(x, py, axis: Option<Axes> = None; dtype: Option<DTypeArg>, dim: Option<Axes>) {
        let (x, axis) = crate::sorting::along("nancumprod", x, axis, dim)?;
        out(x.nancumprod(axis, dtype.map(|d| d.0)))
    }

    /// Replaces NaN and infinities by numbers: by default NaN by 0 and infinities by the extremes
    /// of the dtype.
    fn nan_to_num(x, py, nan: f64 = 0.0, posinf: Option<f64> = None, neginf: Option<f64> = None) {
        out(x.nan_to_num(nan, posinf, neginf))
    }

    /// Elements limited to ``min..max``; either or both may be missing. The same as clip.
    fn clamp(x, py, min: Option<OperandArg> = None, max: Option<OperandArg> = None) {
        out(x.clip_to(min.as_ref().map(OperandArg::operand), max.as_ref().map(OperandArg::operand)))
    }
}

fn of_name(method: Option<&str>) -> PyResult<Quantile> {
    method.map_or(Ok(Quantile::default()), Quantile::parse).py()
}

/// Whether elements are equal or ``abs(x1 - x2) <= atol + rtol * abs(x2)``. Dtype: bool.
#[pyfunction]
#[pyo3(signature = (x1, x2, rtol=1e-5, atol=1e-8, equal_nan=false))]
fn isclose(
    py: Python<'_>,
    x1: OperandArg,
    x2: OperandArg,
    #[pyo3(from_py_with = scalars::number)] rtol: f64,
    #[pyo3(from_py_with = scalars::number)] atol: f64,
    #[pyo3(from_py_with = scalars::flag)] equal_nan: bool,
) -> Out {
    let _called = location::enter!(py);
    out(girih::isclose(x1.operand(), x2.operand(), Tolerance { rtol, atol, equal_nan }))
}

/// Whether all elements are close; see isclose. A bool scalar.
#[pyfunction]
#[pyo3(signature = (x1, x2, rtol=1e-5, atol=1e-8, equal_nan=false))]
fn allclose(
    py: Python<'_>,
    x1: OperandArg,
    x2: OperandArg,
    #[pyo3(from_py_with = scalars::number)] rtol: f64,
    #[pyo3(from_py_with = scalars::number)] atol: f64,
    #[pyo3(from_py_with = scalars::flag)] equal_nan: bool,
) -> Out {
    let _called = location::enter!(py);
    out(girih::allclose(x1.operand(), x2.operand(), Tolerance { rtol, atol, equal_nan }))
}

fn nans(equal: bool) -> Nans {
    if equal { Nans::Equal } else { Nans::Distinct }
}

/// Whether the tensors have the same shape and equal elements. A bool scalar.
#[pyfunction]
#[pyo3(signature = (x1, x2, equal_nan=false))]
fn array_equal(
    py: Python<'_>,
    x1: TensorArg,
    x2: TensorArg,
    #[pyo3(from_py_with = scalars::flag)] equal_nan: bool,
) -> Out {
    let _called = location::enter!(py);
    out(girih::array_equal(&x1.0, &x2.0, nans(equal_nan)))
}

#[pymethods]
impl PyTensor {
    /// Whether all elements are close to those of another tensor; see isclose. A bool scalar.
    #[pyo3(signature = (other, rtol=1e-5, atol=1e-8, equal_nan=false))]
    fn allclose(
        &self,
        py: Python<'_>,
        other: OperandArg,
        #[pyo3(from_py_with = scalars::number)] rtol: f64,
        #[pyo3(from_py_with = scalars::number)] atol: f64,
        #[pyo3(from_py_with = scalars::flag)] equal_nan: bool,
    ) -> Out {
        let _called = location::enter!(py);
        out(girih::allclose(&self.0, other.operand(), Tolerance { rtol, atol, equal_nan }))
    }

    /// Whether each element is close to that of another tensor; see isclose. Dtype: bool.
    #[pyo3(signature = (other, rtol=1e-5, atol=1e-8, equal_nan=false))]
    fn isclose(
        &self,
        py: Python<'_>,
        other: OperandArg,
        #[pyo3(from_py_with = scalars::number)] rtol: f64,
        #[pyo3(from_py_with = scalars::number)] atol: f64,
        #[pyo3(from_py_with = scalars::flag)] equal_nan: bool,
    ) -> Out {
        let _called = location::enter!(py);
        out(girih::isclose(&self.0, other.operand(), Tolerance { rtol, atol, equal_nan }))
    }
}

fn variables(rowvar: bool) -> Variables {
    if rowvar { Variables::Rows } else { Variables::Columns }
}

/// The covariance matrix of variables: the rows of x and y, or the columns without rowvar. The
/// divisor is the number of observations minus ddof, which is 1 unless bias; fweights are the
/// frequencies and aweights the weights of the observations.
#[pyfunction]
#[pyo3(signature = (x, y=None, rowvar=true, bias=false, ddof=None, fweights=None, aweights=None))]
#[allow(clippy::too_many_arguments)]
fn cov(
    py: Python<'_>,
    x: TensorArg,
    y: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::flag)] rowvar: bool,
    #[pyo3(from_py_with = scalars::flag)] bias: bool,
    #[pyo3(from_py_with = scalars::maybe_number)] ddof: Option<f64>,
    fweights: Option<TensorArg>,
    aweights: Option<TensorArg>,
) -> Out {
    let _called = location::enter!(py);
    let settings = Covariance {
        variables: variables(rowvar),
        correction: ddof.or(bias.then_some(0.0)),
        frequencies: fweights.as_ref().map(|w| &w.0),
        weights: aweights.as_ref().map(|w| &w.0),
    };
    out(girih::cov(&x.0, y.as_ref().map(|y| &y.0), &settings))
}

/// The correlation coefficients of variables: the rows of x and y, or the columns without rowvar.
#[pyfunction]
#[pyo3(signature = (x, y=None, rowvar=true))]
fn corrcoef(
    py: Python<'_>,
    x: TensorArg,
    y: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::flag)] rowvar: bool,
) -> Out {
    let _called = location::enter!(py);
    out(girih::corrcoef(&x.0, y.as_ref().map(|y| &y.0), variables(rowvar)))
}

/// The piecewise linear function through the points (xp, fp), at x; xp must ascend unless a period
/// is given. left and right are the values below and above the points, by default the first and
/// last of fp.
#[pyfunction]
#[pyo3(signature = (x, xp, fp, left=None, right=None, period=None))]
fn interp(
    py: Python<'_>,
    x: TensorArg,
    xp: TensorArg,
    fp: TensorArg,
    left: Option<OperandArg>,
    right: Option<OperandArg>,
    #[pyo3(from_py_with = scalars::maybe_number)] period: Option<f64>,
) -> Out {
    let _called = location::enter!(py);
    let [left, right] = [&left, &right].map(|v| v.as_ref().map(OperandArg::operand));
    out(girih::interp(&x.0, &xp.0, &fp.0, Beyond { left, right, period }))
}

/// The interval between neighbouring bins, which ascend or descend, into which each element falls;
/// 0 is before the first. An interval includes its lower end, or with right its upper end. Dtype:
/// int64.
#[pyfunction]
#[pyo3(signature = (x, bins, right=false))]
fn digitize(
    py: Python<'_>,
    x: TensorArg,
    bins: TensorArg,
    #[pyo3(from_py_with = scalars::flag)] right: bool,
) -> Out {
    let _called = location::enter!(py);
    out(girih::digitize(&x.0, &bins.0, if right { Side::Right } else { Side::Left }))
}

/// The integral along an axis of the piecewise linear function through samples y at positions x, or
/// at distance dx.
#[pyfunction]
#[pyo3(signature = (y, x=None, dx=1.0, axis=IntArg(-1)))]
fn trapezoid(
    py: Python<'_>,
    y: TensorArg,
    x: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::number)] dx: f64,
    axis: IntArg,
) -> Out {
    let _called = location::enter!(py);
    out(girih::trapezoid(&y.0, x.as_ref().map(|x| &x.0), dx, axis.0))
}

/// The polynomial with coefficients p, the highest power first, at x.
#[pyfunction]
fn polyval(py: Python<'_>, p: TensorArg, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(girih::polyval(&p.0, &x.0))
}

/// The coefficients, the highest power first, of the polynomial of degree deg that fits the points
/// (x, y) by least squares with weights w.
#[pyfunction]
#[pyo3(signature = (x, y, deg, rcond=None, w=None))]
fn polyfit(
    py: Python<'_>,
    x: TensorArg,
    y: TensorArg,
    deg: IntArg,
    #[pyo3(from_py_with = scalars::maybe_number)] rcond: Option<f64>,
    w: Option<TensorArg>,
) -> Out {
    let _called = location::enter!(py);
    let degree = counts("polyfit", &[deg.0])?[0];
    out(girih::polyfit(&x.0, &y.0, degree, rcond, w.as_ref().map(|w| &w.0)))
}

/// The Vandermonde matrix of a vector: n powers of its elements as columns, the highest first
/// unless increasing.
#[pyfunction]
#[pyo3(signature = (x, n=None, increasing=false))]
fn vander(
    py: Python<'_>,
    x: TensorArg,
    n: Option<IntArg>,
    #[pyo3(from_py_with = scalars::flag)] increasing: bool,
) -> Out {
    let _called = location::enter!(py);
    let columns = n.map(|n| counts("vander", &[n.0])).transpose()?.map(|n| n[0]);
    let powers = if increasing { Powers::Ascending } else { Powers::Descending };
    out(girih::vander(&x.0, columns, powers))
}

/// The number of points in each cell of a grid, or the sum of their weights, with a row per
/// interval of x and a column per interval of y; and the edges of both. bins and range are as in
/// histogram, or a pair with one for each. Returns: tuple[Tensor, Tensor, Tensor].
#[pyfunction]
#[pyo3(signature = (x, y, bins=None, range=None, density=false, weights=None))]
fn histogram2d(
    py: Python<'_>,
    x: TensorArg,
    y: TensorArg,
    bins: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = scalars::maybe_two_bounds)] range: Option<[(f64, f64); 2]>,
    #[pyo3(from_py_with = scalars::flag)] density: bool,
    weights: Option<TensorArg>,
) -> PyResult<(PyTensor, PyTensor, PyTensor)> {
    let _called = location::enter!(py);
    // A list or tuple of two items has one item per axis, as in NumPy; two edges are passed as a
    // tensor.
    let pair = bins.filter(|b| b.is_instance_of::<PyTuple>() || b.is_instance_of::<PyList>());
    let pair = pair.filter(|pair| pair.len().is_ok_and(|len| len == 2));
    let each = |i: usize| match pair {
        Some(pair) => BinsArg::of(Some(&pair.get_item(i)?)),
        None => BinsArg::of(bins),
    };
    let (rows, columns) = (each(0)?, each(1)?);
    let bins = [rows.bins(range.map(|r| r[0])), columns.bins(range.map(|r| r[1]))];
    let weights = weights.as_ref().map(|w| &w.0);
    let (counted, rows, columns) =
        girih::histogram2d(&x.0, &y.0, [&bins[0], &bins[1]], weights, heights(density)).py()?;
    Ok((PyTensor(counted), PyTensor(rows), PyTensor(columns)))
}

/// The distinct elements in ascending order, or the distinct slices along an axis; optionally with
/// the position of the first occurrence of each, the position among them of each element or slice,
/// and the number of occurrences. All NaNs are one value unless equal_nan is false. Evaluates x,
/// unless a size is given: then there are that many elements, and missing ones are fill_value, by
/// default the smallest element. Returns: Any.
#[pyfunction]
#[pyo3(signature = (
    x, return_index=false, return_inverse=false, return_counts=false, axis=None, *, equal_nan=true,
    size=None, fill_value=None
))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn unique<'py>(
    py: Python<'py>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::flag)] return_index: bool,
    #[pyo3(from_py_with = scalars::flag)] return_inverse: bool,
    #[pyo3(from_py_with = scalars::flag)] return_counts: bool,
    axis: Option<Axes>,
    #[pyo3(from_py_with = scalars::flag)] equal_nan: bool,
    size: Option<IntArg>,
    fill_value: Option<OperandArg>,
) -> PyResult<Bound<'py, PyAny>> {
    let _called = location::enter!(py);
    let axis = axis.unwrap_or_default().single("unique")?;
    let found = match (sized("unique", size)?, axis) {
        (None, None) if !return_index && !return_inverse => {
            let (values, counts) = detach(py, || x.0.unique_counts(nans(equal_nan))).py()?;
            return match return_counts {
                true => Ok(PyTuple::new(py, [PyTensor(values), PyTensor(counts)])?.into_any()),
                false => Ok(Bound::new(py, PyTensor(values))?.into_any()),
            };
        }
        (None, axis) => detach(py, || x.0.unique_along(axis, nans(equal_nan))).py()?,
        (Some(size), None) => {
            let fill = fill_value.as_ref().map(OperandArg::operand);
            x.0.unique_of(size, fill, nans(equal_nan)).py()?
        }
        (Some(size), Some(axis)) => {
            return Err(invalid(format!(
                "unique: size={size} is for elements, got axis={axis}; without size, slices along \
                 an axis are compared"
            )));
        }
    };
    let asked = [
        (true, found.values),
        (return_index, found.indices),
        (return_inverse, found.inverse),
        (return_counts, found.counts),
    ];
    let mut results: Vec<PyTensor> =
        asked.into_iter().filter(|(asked, _)| *asked).map(|(_, t)| PyTensor(t)).collect();
    match results.len() {
        1 => Ok(Bound::new(py, results.swap_remove(0))?.into_any()),
        _ => Ok(PyTuple::new(py, results)?.into_any()),
    }
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    over_axes::register(m)?;
    positions::register(m)?;
    more::register(m)?;
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        isclose allclose array_equal cov corrcoef interp digitize trapezoid polyval polyfit vander
        histogram2d unique
    }
    Ok(())
}

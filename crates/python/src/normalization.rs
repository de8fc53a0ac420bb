//! Normalisation over axes, channels and groups.

use crate::args::{IntArg, ShapeArg, TensorArg};
use crate::errors::{invalid, raise};
use crate::functions::{Out, out};
use crate::location;
use crate::scalars;
use crate::windows::count;
use girih::Shape;
use pyo3::prelude::*;

/// Fails unless the last axes of a shape have these sizes.
fn ends_with(op: &'static str, shape: Shape, sizes: &Shape) -> PyResult<()> {
    let lead = shape.rank().checked_sub(sizes.rank()).filter(|_| sizes.rank() > 0);
    if lead.is_some_and(|lead| shape.part(lead..).equals(sizes)) {
        return Ok(());
    }
    let reason = "the last axes of the first must have the normalized sizes".to_string();
    let (lhs, rhs) = (shape, sizes.clone());
    Err(raise(girih::ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into()))
}

/// Normalises over the last axes, whose sizes are given (an int is the size of the last axis), then
/// scales and shifts.
#[pyfunction]
#[pyo3(signature = (x, normalized_shape, weight=None, bias=None, eps=1e-5))]
fn layer_norm(
    py: Python<'_>,
    x: TensorArg,
    normalized_shape: ShapeArg,
    weight: Option<TensorArg>,
    bias: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::number)] eps: f64,
) -> Out {
    let _called = location::enter!(py);
    let sizes = normalized_shape.shape("layer_norm")?;
    ends_with("layer_norm", x.0.shape(), &sizes)?;
    let (weight, bias) = (weight.map(|w| w.0), bias.map(|b| b.0));
    out(x.0.layer_norm(sizes.rank(), weight.as_ref(), bias.as_ref(), eps))
}

/// Normalises each channel (axis 1) by running_mean and running_var, or with training=True by the
/// statistics of this batch; then scales and shifts.
#[pyfunction]
#[pyo3(signature = (
    x, running_mean=None, running_var=None, weight=None, bias=None, training=false, eps=1e-5
))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn batch_norm(
    py: Python<'_>,
    x: TensorArg,
    running_mean: Option<TensorArg>,
    running_var: Option<TensorArg>,
    weight: Option<TensorArg>,
    bias: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::flag)] training: bool,
    #[pyo3(from_py_with = scalars::number)] eps: f64,
) -> Out {
    let _called = location::enter!(py);
    let statistics = match (training, &running_mean, &running_var) {
        (true, ..) => None,
        (false, Some(mean), Some(var)) => Some((&mean.0, &var.0)),
        (false, ..) => {
            return Err(invalid(
                "batch_norm: give running_mean and running_var, or training=True for the batch's own",
            ));
        }
    };
    let (weight, bias) = (weight.map(|w| w.0), bias.map(|b| b.0));
    out(x.0.batch_norm(statistics, weight.as_ref(), bias.as_ref(), eps))
}

/// Normalises groups of channels (axis 1) of each batch entry, then scales and shifts each channel.
#[pyfunction]
#[pyo3(signature = (x, num_groups, weight=None, bias=None, eps=1e-5))]
fn group_norm(
    py: Python<'_>,
    x: TensorArg,
    num_groups: IntArg,
    weight: Option<TensorArg>,
    bias: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::number)] eps: f64,
) -> Out {
    let _called = location::enter!(py);
    let (weight, bias) = (weight.map(|w| w.0), bias.map(|b| b.0));
    let groups = count("group_norm", "num_groups", num_groups)?;
    out(x.0.group_norm(groups, weight.as_ref(), bias.as_ref(), eps))
}

/// Normalises each channel (axis 1) of each batch entry over its spatial axes, or by running_mean
/// and running_var with use_input_stats=False; then scales and shifts.
#[pyfunction]
#[pyo3(signature = (
    x, weight=None, bias=None, eps=1e-5, *, running_mean=None, running_var=None,
    use_input_stats=true
))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn instance_norm(
    py: Python<'_>,
    x: TensorArg,
    weight: Option<TensorArg>,
    bias: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::number)] eps: f64,
    running_mean: Option<TensorArg>,
    running_var: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::flag)] use_input_stats: bool,
) -> Out {
    let _called = location::enter!(py);
    let statistics = match (use_input_stats, &running_mean, &running_var) {
        (true, ..) => None,
        (false, Some(mean), Some(var)) => Some((&mean.0, &var.0)),
        (false, ..) => {
            return Err(invalid(
                "instance_norm: give running_mean and running_var, or use_input_stats=True",
            ));
        }
    };
    let (weight, bias) = (weight.map(|w| w.0), bias.map(|b| b.0));
    out(x.0.instance_norm(statistics, weight.as_ref(), bias.as_ref(), eps))
}

/// Divides by the root mean square over the last axes, whose sizes are given, then scales.
#[pyfunction]
#[pyo3(signature = (x, normalized_shape, weight=None, eps=1e-6))]
fn rms_norm(
    py: Python<'_>,
    x: TensorArg,
    normalized_shape: ShapeArg,
    weight: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::number)] eps: f64,
) -> Out {
    let _called = location::enter!(py);
    let sizes = normalized_shape.shape("rms_norm")?;
    ends_with("rms_norm", x.0.shape(), &sizes)?;
    out(x.0.rms_norm(sizes.rank(), weight.as_ref().map(|w| &w.0), eps))
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! { layer_norm batch_norm group_norm instance_norm rms_norm }
    Ok(())
}

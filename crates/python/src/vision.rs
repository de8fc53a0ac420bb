//! Channel and pixel shuffles, sampling at positions, embedding tables, random activations.

use crate::args::{Axes, IntArg, ShapeArg, TensorArg};
use crate::errors::invalid;
use crate::functions::{Out, out};
use crate::location;
use crate::networks::corners;
use crate::scalars;
use crate::windows::count;
use girih::{BagMode, Bags, EmbeddingOptions, GridOptions, Outside, Sampling, Tensor};
use pyo3::prelude::*;

/// Rearranges channels into spatial positions. Shapes: [..., c * r * r, h, w] -> [..., c, h * r, w
/// * r] for an upscale_factor r.
#[pyfunction]
fn pixel_shuffle(py: Python<'_>, x: TensorArg, upscale_factor: IntArg) -> Out {
    let _called = location::enter!(py);
    out(x.0.pixel_shuffle(count("pixel_shuffle", "upscale_factor", upscale_factor)?))
}

/// Rearranges spatial positions into channels, the inverse of pixel_shuffle. Shapes: [..., c, h *
/// r, w * r] -> [..., c * r * r, h, w] for a downscale_factor r.
#[pyfunction]
fn pixel_unshuffle(py: Python<'_>, x: TensorArg, downscale_factor: IntArg) -> Out {
    let _called = location::enter!(py);
    out(x.0.pixel_unshuffle(count("pixel_unshuffle", "downscale_factor", downscale_factor)?))
}

/// Interleaves the channels (axis 1) of the groups.
#[pyfunction]
fn channel_shuffle(py: Python<'_>, x: TensorArg, groups: IntArg) -> Out {
    let _called = location::enter!(py);
    out(x.0.channel_shuffle(count("channel_shuffle", "groups", groups)?))
}

/// Divides by ``(k + alpha * mean(x**2))**beta``, with the mean over size neighbouring channels
/// (axis 1).
#[pyfunction]
#[pyo3(signature = (x, size, alpha=1e-4, beta=0.75, k=1.0))]
fn local_response_norm(
    py: Python<'_>,
    x: TensorArg,
    size: IntArg,
    #[pyo3(from_py_with = scalars::number)] alpha: f64,
    #[pyo3(from_py_with = scalars::number)] beta: f64,
    #[pyo3(from_py_with = scalars::number)] k: f64,
) -> Out {
    let _called = location::enter!(py);
    let size = count("local_response_norm", "size", size)?;
    out(x.0.local_response_norm(size, alpha, beta, k))
}

/// Sampling positions for grid_sample by an affine map for each batch entry. Shapes: theta [batch,
/// n, n + 1], a shape [batch, channels, sizes...] with n sizes -> [batch, sizes..., n].
#[pyfunction]
#[pyo3(signature = (theta, size, align_corners=false))]
fn affine_grid(
    py: Python<'_>,
    theta: TensorArg,
    size: ShapeArg,
    #[pyo3(from_py_with = scalars::flag)] align_corners: bool,
) -> Out {
    let _called = location::enter!(py);
    let (size, maps) = (size.shape("affine_grid")?, theta.0.shape());
    if size.rank() < 3 || maps.rank() != 3 || !size.dim(0).equals(maps.dim(0)) {
        return Err(invalid(format!(
            "affine_grid: size is a shape [batch, channels, sizes...] with a map for each batch \
             entry, got {size} and maps of shape {maps}"
        )));
    }
    out(theta.0.affine_grid(&size[2..], corners(align_corners)))
}

/// Samples x at the positions of a grid, whose coordinates are from -1 to 1, the last axis first.
/// Shapes: [batch, channels, sizes...], grid [batch, out..., n] -> [batch, channels, out...]. The
/// mode is 'bilinear', 'nearest' or (for two axes) 'bicubic'; positions outside get 'zeros', the
/// 'border' or its 'reflection'. With align_corners -1 and 1 are the centres of the outermost
/// elements, otherwise their outer edges.
#[pyfunction]
#[pyo3(signature = (x, grid, mode="bilinear", padding_mode="zeros", align_corners=false))]
fn grid_sample(
    py: Python<'_>,
    x: TensorArg,
    grid: TensorArg,
    #[pyo3(from_py_with = scalars::text)] mode: &str,
    #[pyo3(from_py_with = scalars::text)] padding_mode: &str,
    #[pyo3(from_py_with = scalars::flag)] align_corners: bool,
) -> Out {
    let _called = location::enter!(py);
    let mode = match mode {
        "bilinear" | "linear" | "trilinear" => Sampling::Linear,
        "nearest" => Sampling::Nearest,
        "bicubic" | "cubic" => Sampling::Cubic,
        other => {
            return Err(invalid(format!(
                "grid_sample: mode is 'bilinear', 'nearest' or 'bicubic', got '{other}'"
            )));
        }
    };
    let outside = match padding_mode {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        other => {
            return Err(invalid(format!(
                "grid_sample: padding_mode is 'zeros', 'border' or 'reflection', got '{other}'"
            )));
        }
    };
    out(x.0.grid_sample(&grid.0, GridOptions { mode, outside, corners: corners(align_corners) }))
}

/// Looks up rows of the table weight by integer indices. The row padding_idx gets no gradient; rows
/// with a norm above max_norm are scaled to it; scale_grad_by_freq divides the gradient of a row by
/// the number of its look-ups. Shapes: weight [rows, features], indices [...] -> [..., features].
#[pyfunction]
#[pyo3(signature = (
    indices, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=false
))]
fn embedding(
    py: Python<'_>,
    indices: TensorArg,
    weight: TensorArg,
    #[pyo3(from_py_with = scalars::maybe_whole)] padding_idx: Option<i64>,
    #[pyo3(from_py_with = scalars::maybe_number)] max_norm: Option<f64>,
    #[pyo3(from_py_with = scalars::number)] norm_type: f64,
    #[pyo3(from_py_with = scalars::flag)] scale_grad_by_freq: bool,
) -> Out {
    let _called = location::enter!(py);
    let options = EmbeddingOptions { padding_idx, max_norm, norm_type, scale_grad_by_freq };
    out(weight.0.embedding(&indices.0, &options))
}

/// Reduces bags of rows of the table weight by 'sum', 'mean' or 'max'. Indices are [bags, n], or on
/// one axis with the offsets at which bags begin (and with include_last_offset the end of the last
/// bag). Rows at padding_idx are ignored; per_sample_weights scale the rows of sums. Shapes: ->
/// [bags, features].
#[pyfunction]
#[pyo3(signature = (
    indices, weight, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=false,
    mode="mean", per_sample_weights=None, include_last_offset=false, padding_idx=None
))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn embedding_bag(
    py: Python<'_>,
    indices: TensorArg,
    weight: TensorArg,
    offsets: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::maybe_number)] max_norm: Option<f64>,
    #[pyo3(from_py_with = scalars::number)] norm_type: f64,
    #[pyo3(from_py_with = scalars::flag)] scale_grad_by_freq: bool,
    #[pyo3(from_py_with = scalars::text)] mode: &str,
    per_sample_weights: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::flag)] include_last_offset: bool,
    #[pyo3(from_py_with = scalars::maybe_whole)] padding_idx: Option<i64>,
) -> Out {
    let _called = location::enter!(py);
    let mode = match mode {
        "sum" => BagMode::Sum,
        "mean" => BagMode::Mean,
        "max" => BagMode::Max,
        other => {
            return Err(invalid(format!(
                "embedding_bag: mode is 'sum', 'mean' or 'max', got '{other}'"
            )));
        }
    };
    let bags = match &offsets {
        None => Bags::Rows,
        Some(offsets) => Bags::Offsets(&offsets.0, include_last_offset),
    };
    let options = EmbeddingOptions { padding_idx, max_norm, norm_type, scale_grad_by_freq };
    let weights = per_sample_weights.map(|w| w.0);
    out(weight.0.embedding_bag(&indices.0, bags, mode, weights.as_ref(), &options))
}

/// Sets elements to the value at which selu saturates, then scales and shifts to preserve mean 0
/// and variance 1; returns x itself unless training. With whole_channels there is one draw for each
/// channel (axis 1) of each batch entry.
#[pyfunction]
#[pyo3(signature = (x, p=0.5, training=true, *, whole_channels=false))]
fn alpha_dropout(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::number)] p: f64,
    #[pyo3(from_py_with = scalars::flag)] training: bool,
    #[pyo3(from_py_with = scalars::flag)] whole_channels: bool,
) -> Out {
    let _called = location::enter!(py);
    let spatial = if whole_channels { x.0.rank().saturating_sub(2) } else { 0 };
    out(x.0.alpha_dropout(crate::networks::while_training(p, training), spatial))
}

/// ``x``, or a slope times x where x is negative: in training the slopes are drawn from
/// lower..upper, otherwise the slope is their mean.
#[pyfunction]
#[pyo3(signature = (x, lower=0.125, upper=1.0 / 3.0, training=false))]
fn rrelu(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::number)] lower: f64,
    #[pyo3(from_py_with = scalars::number)] upper: f64,
    #[pyo3(from_py_with = scalars::flag)] training: bool,
) -> Out {
    let _called = location::enter!(py);
    out(if training { x.0.rrelu(lower, upper) } else { x.0.rrelu_mean(lower, upper) })
}

/// Samples of categories through which gradients flow: softmax along an axis, the last by default,
/// of (logits plus noise) / tau. With hard one element is 1 and the others are 0, with the gradient
/// of the soft samples.
#[pyfunction]
#[pyo3(signature = (logits, tau=1.0, hard=false, axis=None, *, dim=None))]
fn gumbel_softmax(
    py: Python<'_>,
    logits: TensorArg,
    #[pyo3(from_py_with = scalars::number)] tau: f64,
    #[pyo3(from_py_with = scalars::flag)] hard: bool,
    axis: Option<Axes>,
    dim: Option<Axes>,
) -> Out {
    let _called = location::enter!(py);
    let axis = crate::args::axis("gumbel_softmax", axis, dim, -1)?;
    let (logits, sample) =
        (logits.0, if hard { Tensor::gumbel_one_hot } else { Tensor::gumbel_softmax });
    out(sample(&logits, tau, axis))
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        pixel_shuffle pixel_unshuffle channel_shuffle local_response_norm affine_grid grid_sample
        embedding embedding_bag alpha_dropout rrelu gumbel_softmax
    }
    Ok(())
}

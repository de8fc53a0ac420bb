//! Functions for neural networks: convolutions, norms, attention, activations.

use crate::args::{Axes, IntArg, SizesArg, TensorArg};
use crate::errors::invalid;
use crate::functions::{Out, Pair, out, pair};
use crate::location;
use crate::scalars;
use crate::sequences;
use crate::windows::{PaddingArg, count, exactly};
use girih::{AttentionOptions, ConvOptions, Corners, Interpolation, PadMode, Tensor};
use pyo3::prelude::*;

fn kernel_rank(op: &'static str, weight: &Tensor, n: usize) -> PyResult<()> {
    if weight.rank() == n + 2 {
        return Ok(());
    }
    let reason = format!("the kernel must have {} axes, got {}", n + 2, weight.rank());
    let shape = weight.shape();
    Err(crate::errors::raise(girih::ir::Error::InvalidShape { op, shape, reason }.into()))
}

/// The stride, padding and dilation of a kernel.
fn moves(
    op: &str,
    stride: &SizesArg,
    padding: &PaddingArg,
    dilation: &SizesArg,
) -> PyResult<ConvOptions> {
    Ok(ConvOptions {
        stride: stride.at_least(1, op, "stride")?,
        padding: padding.get(op)?,
        dilation: dilation.at_least(1, op, "dilation")?,
        ..ConvOptions::default()
    })
}

/// The source of padding values, by PyTorch's names.
fn padding_mode_of(op: &str, name: &str) -> PyResult<Option<PadMode>> {
    match name {
        "zeros" => Ok(None),
        "reflect" => Ok(Some(PadMode::Reflect)),
        "replicate" => Ok(Some(PadMode::Edge)),
        "circular" => Ok(Some(PadMode::Wrap)),
        other => Err(invalid(format!(
            "{op}: padding_mode is 'zeros', 'reflect', 'replicate' or 'circular', got '{other}'"
        ))),
    }
}

macro_rules! convolutions {
    ($($name:ident $transpose:ident $n:literal $doc:literal $transpose_doc:literal;)*) => {
        $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (
            x, weight, bias=None, stride=SizesArg::one(1), padding=PaddingArg::none(),
            dilation=SizesArg::one(1), groups=IntArg(1), padding_mode="zeros", *,
            input_dilation=SizesArg::one(1), flip=false
        ))]
        #[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
        fn $name(
            py: Python<'_>,
            x: TensorArg,
            weight: TensorArg,
            bias: Option<TensorArg>,
            stride: SizesArg,
            padding: PaddingArg,
            dilation: SizesArg,
            groups: IntArg,
            #[pyo3(from_py_with = scalars::text)] padding_mode: &str,
            input_dilation: SizesArg,
            #[pyo3(from_py_with = scalars::flag)] flip: bool,
        ) -> Out {
            let _called = location::enter!(py);
            let op = stringify!($name);
            kernel_rank(op, &weight.0, $n)?;
            let options = ConvOptions {
                groups: count(op, "groups", groups)?,
                padding_mode: padding_mode_of(op, padding_mode)?,
                input_dilation: input_dilation.at_least(1, op, "input_dilation")?,
                flip,
                ..moves(op, &stride, &padding, &dilation)?
            };
            out(x.0.conv(&weight.0, bias.as_ref().map(|b| &b.0), &options))
        }

        #[doc = $transpose_doc]
        #[pyfunction]
        #[pyo3(signature = (
            x, weight, bias=None, stride=SizesArg::one(1), padding=PaddingArg::none(),
            output_padding=SizesArg::one(0), groups=IntArg(1), dilation=SizesArg::one(1)
        ))]
        #[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
        fn $transpose(
            py: Python<'_>,
            x: TensorArg,
            weight: TensorArg,
            bias: Option<TensorArg>,
            stride: SizesArg,
            padding: PaddingArg,
            output_padding: SizesArg,
            groups: IntArg,
            dilation: SizesArg,
        ) -> Out {
            let _called = location::enter!(py);
            let op = stringify!($transpose);
            kernel_rank(op, &weight.0, $n)?;
            let options = ConvOptions {
                groups: count(op, "groups", groups)?,
                output_padding: output_padding.at_least(0, op, "output_padding")?,
                ..moves(op, &stride, &padding, &dilation)?
            };
            out(x.0.conv_transpose(&weight.0, bias.as_ref().map(|b| &b.0), &options))
        }
        )*

        fn register_convolutions(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;
            m.add_function(wrap_pyfunction!($transpose, m)?)?;)*
            Ok(())
        }
    };
}

convolutions! {
    conv1d conv_transpose1d 1
        "Cross-correlation along one axis. Shapes: x [batch, in, n], weight [out, in / groups, k], bias [out]; the batch axis may be absent. input_dilation puts zeros between the elements of x; with flip the weight is reversed."
        "The transpose of conv1d as a map of x. Shapes: x [batch, in, n], weight [in, out / groups, k], bias [out].";
    conv2d conv_transpose2d 2
        "Cross-correlation along two axes. Shapes: x [batch, in, h, w], weight [out, in / groups, kh, kw], bias [out]; the batch axis may be absent. input_dilation puts zeros between the elements of x; with flip the weight is reversed."
        "The transpose of conv2d as a map of x. Shapes: x [batch, in, h, w], weight [in, out / groups, kh, kw], bias [out].";
    conv3d conv_transpose3d 3
        "Cross-correlation along three axes. Shapes: x [batch, in, d, h, w], weight [out, in / groups, kd, kh, kw], bias [out]; the batch axis may be absent. input_dilation puts zeros between the elements of x; with flip the weight is reversed."
        "The transpose of conv3d as a map of x. Shapes: x [batch, in, d, h, w], weight [in, out / groups, kd, kh, kw], bias [out].";
}

/// Sliding windows over the last axes, a view: the elements of a window are new axes after the
/// positions of the windows, [..., n] -> [..., count, size].
#[pyfunction]
#[pyo3(signature = (x, kernel_size, stride=SizesArg::one(1), dilation=SizesArg::one(1)))]
fn windows(
    py: Python<'_>,
    x: TensorArg,
    kernel_size: SizesArg,
    stride: SizesArg,
    dilation: SizesArg,
) -> Out {
    let _called = location::enter!(py);
    let op = "windows";
    let size = kernel_size.at_least(1, op, "kernel_size")?;
    let (stride, dilation) =
        (stride.at_least(1, op, "stride")?, dilation.at_least(1, op, "dilation")?);
    out(x.0.windows(&size, &stride, &dilation))
}

/// The patches under a convolution kernel, as columns. Shapes: [batch, channels, ...] to [batch,
/// channels * kernel, positions], with as many spatial axes as kernel_size has entries.
#[pyfunction]
#[pyo3(signature = (
    x, kernel_size, dilation=SizesArg::one(1), padding=PaddingArg::none(),
    stride=SizesArg::one(1)
))]
fn unfold(
    py: Python<'_>,
    x: TensorArg,
    kernel_size: SizesArg,
    dilation: SizesArg,
    padding: PaddingArg,
    stride: SizesArg,
) -> Out {
    let _called = location::enter!(py);
    let n = if kernel_size.0.len() == 1 {
        x.0.rank().saturating_sub(2).max(1)
    } else {
        kernel_size.0.len()
    };
    let size = exactly("unfold", "kernel_size", &kernel_size, n)?;
    out(x.0.unfold(&size, &moves("unfold", &stride, &padding, &dilation)?))
}

/// The transpose of unfold: the sum of overlapping patches, on axes with the sizes output_size.
#[pyfunction]
#[pyo3(signature = (
    x, output_size, kernel_size, dilation=SizesArg::one(1), padding=PaddingArg::none(),
    stride=SizesArg::one(1)
))]
fn fold(
    py: Python<'_>,
    x: TensorArg,
    output_size: SizesArg,
    kernel_size: SizesArg,
    dilation: SizesArg,
    padding: PaddingArg,
    stride: SizesArg,
) -> Out {
    let _called = location::enter!(py);
    let n = output_size.0.len();
    let size = exactly("fold", "kernel_size", &kernel_size, n)?;
    let output = output_size.at_least(0, "fold", "output_size")?;
    out(x.0.fold(&output, &size, &moves("fold", &stride, &padding, &dilation)?))
}

pub(crate) fn corners(align: bool) -> Corners {
    if align { Corners::Centres } else { Corners::Edges }
}

/// Resamples the spatial axes of [batch, channels, ...] to a size or by factors. Modes: "nearest",
/// "nearest-exact", "linear" (or "bilinear", "trilinear"), "bicubic" (or "cubic"), "area". With
/// align_corners the first and last elements keep their positions. With antialias, linear and cubic
/// take means over all elements when they shrink.
#[pyfunction]
#[pyo3(signature = (
    x, size=None, scale_factor=None, mode="nearest", align_corners=false, antialias=false
))]
fn interpolate(
    x: TensorArg,
    size: Option<SizesArg>,
    scale_factor: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = scalars::text)] mode: &str,
    #[pyo3(from_py_with = scalars::flag)] align_corners: bool,
    #[pyo3(from_py_with = scalars::flag)] antialias: bool,
    py: Python<'_>,
) -> Out {
    let _called = location::enter!(py);
    let kind = match mode {
        "linear" | "bilinear" | "trilinear" if antialias => Interpolation::LinearAntialiased,
        "cubic" | "bicubic" if antialias => Interpolation::CubicAntialiased,
        "nearest" | "nearest-exact" | "area" if antialias => {
            return Err(invalid(format!(
                "interpolate: antialias is for linear and cubic interpolation, got mode '{mode}'"
            )));
        }
        "nearest" => Interpolation::Nearest,
        "nearest-exact" => Interpolation::NearestExact,
        "linear" | "bilinear" | "trilinear" => Interpolation::Linear,
        "cubic" | "bicubic" => Interpolation::Cubic,
        "area" => Interpolation::Area,
        other => {
            return Err(invalid(format!(
                "interpolate: mode is 'nearest', 'nearest-exact', 'linear', 'cubic' or 'area', got \
                 '{other}'"
            )));
        }
    };
    let scales: Option<Vec<f64>> = match scale_factor {
        None => None,
        Some(one) if one.extract::<f64>().is_ok() => Some(vec![one.extract()?]),
        Some(many) => Some(sequences::read(many, sequences::FEW, |scale| scalars::number(&scale))?),
    };
    let shape = x.0.shape();
    match (size, scales) {
        (Some(size), None) => {
            let size = size.at_least(0, "interpolate", "size")?;
            out(x.0.interpolate(&size, None, kind, corners(align_corners)))
        }
        (None, Some(scales)) => {
            if scales.iter().any(|s| !s.is_finite() || *s <= 0.0) {
                return Err(invalid(format!(
                    "interpolate: scale factors must be positive, got {scales:?}"
                )));
            }
            let n = shape.rank().saturating_sub(2);
            if scales.len() != 1 && scales.len() != n {
                return Err(invalid(format!(
                    "interpolate: {} scale factors for {n} spatial axes",
                    scales.len()
                )));
            }
            let scaled =
                |i: usize| (shape[2 + i] as f64 * scales[i % scales.len()]).floor() as usize;
            let sizes: Vec<usize> = (0..n).map(scaled).collect();
            out(x.0.interpolate(&sizes, Some(&scales), kind, corners(align_corners)))
        }
        _ => Err(invalid("interpolate: give one of size and scale_factor")),
    }
}

/// ``softmax(query @ key.mT * scale + attn_mask) @ value``. Shapes: query [..., heads, n, e], key
/// [..., heads, m, e], value [..., heads, m, f]; with fewer heads, each head of keys and values
/// serves a group of consecutive query heads. The mask broadcasts to [..., heads, n, m]: bool, True
/// to attend to a key, or numbers that are added. With is_causal query i attends only to keys up to
/// i. A query that attends to no key gets zeros. The scale is 1 / sqrt(e) by default; weights are
/// dropped with probability dropout_p. enable_gqa=False rejects keys with fewer heads. sinks
/// [heads] are scores that belong to no key: the weights of a query sum to less than one.
#[pyfunction]
#[pyo3(signature = (query, key, value, attn_mask=None, dropout_p=0.0, is_causal=false, scale=None, enable_gqa=true, *, sinks=None))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn scaled_dot_product_attention(
    py: Python<'_>,
    query: TensorArg,
    key: TensorArg,
    value: TensorArg,
    attn_mask: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::number)] dropout_p: f64,
    #[pyo3(from_py_with = scalars::flag)] is_causal: bool,
    #[pyo3(from_py_with = scalars::maybe_number)] scale: Option<f64>,
    #[pyo3(from_py_with = scalars::flag)] enable_gqa: bool,
    sinks: Option<TensorArg>,
) -> Out {
    let _called = location::enter!(py);
    let heads = |x: &Tensor| x.rank().checked_sub(3).map(|axis| x.shape().dim(axis));
    if !enable_gqa && heads(&query.0) != heads(&key.0) {
        return Err(invalid(format!(
            "scaled_dot_product_attention: enable_gqa=False, but query has shape {} and key {}",
            query.0.shape(),
            key.0.shape()
        )));
    }
    let mask = attn_mask.map(|m| m.0);
    let options = AttentionOptions { mask: mask.as_ref(), causal: is_causal, scale };
    if let Some(sinks) = sinks {
        if dropout_p != 0.0 {
            return Err(invalid(format!(
                "scaled_dot_product_attention: sinks go without dropout, got dropout_p={dropout_p}"
            )));
        }
        return out(query.0.attention_with_sinks(&key.0, &value.0, &options, &sinks.0));
    }
    if dropout_p == 0.0 {
        return out(query.0.attention(&key.0, &value.0, &options));
    }
    let result = query.0.attention_with_weights(&key.0, &value.0, &options, dropout_p);
    out(result.map(|(result, _)| result))
}

/// As scaled_dot_product_attention, with the attention weights: ``(result, weights)``, where
/// weights is [..., heads, n, m]. Returns: tuple[Tensor, Tensor].
#[pyfunction]
#[pyo3(signature = (query, key, value, attn_mask=None, dropout_p=0.0, is_causal=false, scale=None))]
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn attention_with_weights(
    py: Python<'_>,
    query: TensorArg,
    key: TensorArg,
    value: TensorArg,
    attn_mask: Option<TensorArg>,
    #[pyo3(from_py_with = scalars::number)] dropout_p: f64,
    #[pyo3(from_py_with = scalars::flag)] is_causal: bool,
    #[pyo3(from_py_with = scalars::maybe_number)] scale: Option<f64>,
) -> Pair {
    let _called = location::enter!(py);
    let mask = attn_mask.map(|m| m.0);
    let options = AttentionOptions { mask: mask.as_ref(), causal: is_causal, scale };
    pair(query.0.attention_with_weights(&key.0, &value.0, &options, dropout_p))
}

macro_rules! activations {
    ($($name:ident ($($arg:ident: $ty:ty = $default:expr),*) $doc:literal;)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x $(, $arg=$default)*))]
        fn $name(
            py: Python<'_>,
            x: TensorArg
            $(, #[pyo3(from_py_with = scalars::param)] $arg: $ty)*
        ) -> Out {
            let _called = location::enter!(py);
            out(x.0.$name($($arg),*))
        })*

        fn register_activations(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

activations! {
    elu(alpha: f64 = 1.0) "``x``, or ``alpha * (exp(x) - 1)`` where it is not positive.";
    selu() "The exponential linear unit scaled to keep mean 0 and variance 1.";
    celu(alpha: f64 = 1.0) "``x``, or ``alpha * (exp(x / alpha) - 1)`` where it is not positive.";
    leaky_relu(negative_slope: f64 = 0.01) "``x``, or ``negative_slope * x`` where it is not positive.";
    relu6() "``x`` limited to 0..6.";
    hardtanh(min_val: f64 = -1.0, max_val: f64 = 1.0) "``x`` limited to min_val..max_val.";
    hardsigmoid() "``(x + 3) / 6`` limited to 0..1.";
    hardswish() "``x * hardsigmoid(x)``.";
    mish() "``x * tanh(softplus(x))``.";
    softsign() "``x / (1 + abs(x))``.";
    tanhshrink() "``x - tanh(x)``.";
    threshold(threshold: f64 = 0.0, value: f64 = 0.0) "``x`` where it is above the threshold, value elsewhere.";
    hardshrink(lambd: f64 = 0.5) "``x``, or 0 where ``abs(x) <= lambd``.";
    softshrink(lambd: f64 = 0.5) "``x`` moved toward 0 by lambd, 0 where that passes it.";
}

/// ``x``, or ``weight * x`` where x is not positive; with one weight, or one weight per channel
/// (axis 1).
#[pyfunction]
fn prelu(py: Python<'_>, x: TensorArg, weight: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(x.0.prelu(&weight.0))
}

/// The first half of an axis, the last by default, times the sigmoid of the second half.
#[pyfunction]
#[pyo3(signature = (x, axis=None, *, dim=None))]
fn glu(py: Python<'_>, x: TensorArg, axis: Option<Axes>, dim: Option<Axes>) -> Out {
    let _called = location::enter!(py);
    out(x.0.glu(crate::args::axis("glu", axis, dim, -1)?))
}

/// Softmax of the negative along an axis, the last by default.
#[pyfunction]
#[pyo3(signature = (x, axis=None, *, dim=None))]
fn softmin(py: Python<'_>, x: TensorArg, axis: Option<Axes>, dim: Option<Axes>) -> Out {
    let _called = location::enter!(py);
    out(x.0.softmin(crate::args::axis("softmin", axis, dim, -1)?))
}

/// The probability of dropout, which is zero outside of training; an invalid probability is an
/// error in both modes.
pub fn while_training(p: f64, training: bool) -> f64 {
    if training || !(0.0..=1.0).contains(&p) { p } else { 0.0 }
}

/// Zeroes elements with probability p and scales the rest by ``1 / (1 - p)``; returns x itself
/// unless training. With whole_channels there is one draw for each channel (axis 1) of each batch
/// entry, with spatial_axes one draw for all elements of that many last axes.
#[pyfunction]
#[pyo3(signature = (x, p=0.5, training=true, *, whole_channels=false, spatial_axes=None))]
fn dropout(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::number)] p: f64,
    #[pyo3(from_py_with = scalars::flag)] training: bool,
    #[pyo3(from_py_with = scalars::flag)] whole_channels: bool,
    #[pyo3(from_py_with = scalars::maybe_whole)] spatial_axes: Option<usize>,
) -> Out {
    let _called = location::enter!(py);
    let after_channels = if whole_channels { x.0.rank().saturating_sub(2) } else { 0 };
    let p = while_training(p, training);
    out(x.0.dropout(p, spatial_axes.unwrap_or(after_channels)))
}

/// Divides by the p-norm along an axis, with norms of at least eps.
#[pyfunction]
#[pyo3(signature = (x, p=2.0, axis=None, eps=1e-12, *, dim=None))]
fn normalize(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::number)] p: f64,
    axis: Option<Axes>,
    #[pyo3(from_py_with = scalars::number)] eps: f64,
    dim: Option<Axes>,
) -> Out {
    let _called = location::enter!(py);
    out(x.0.normalize(p, crate::args::axis("normalize", axis, dim, 1)?, eps))
}

/// The cosine of the angle between vectors along an axis of the broadcast shape, by default axis 1,
/// or the only axis; the norms are at least eps.
#[pyfunction]
#[pyo3(signature = (x1, x2, axis=None, eps=1e-8, *, dim=None))]
fn cosine_similarity(
    py: Python<'_>,
    x1: TensorArg,
    x2: TensorArg,
    axis: Option<Axes>,
    #[pyo3(from_py_with = scalars::number)] eps: f64,
    dim: Option<Axes>,
) -> Out {
    let _called = location::enter!(py);
    let only = x1.0.rank().max(x2.0.rank()) < 2;
    let axis = crate::args::axis("cosine_similarity", axis, dim, if only { 0 } else { 1 })?;
    out(x1.0.cosine_similarity(&x2.0, axis, eps))
}

/// The p-norm of ``x1 - x2 + eps`` along the last axis, which is kept with size 1 if keepdims.
#[pyfunction]
#[pyo3(signature = (x1, x2, p=2.0, eps=1e-6, keepdims=None, *, keepdim=None))]
fn pairwise_distance(
    py: Python<'_>,
    x1: TensorArg,
    x2: TensorArg,
    #[pyo3(from_py_with = scalars::number)] p: f64,
    #[pyo3(from_py_with = scalars::number)] eps: f64,
    keepdims: Option<crate::args::KeepArg>,
    #[pyo3(from_py_with = scalars::maybe_flag)] keepdim: Option<bool>,
) -> Out {
    let _called = location::enter!(py);
    let distance = x1.0.pairwise_distance(&x2.0, p, eps);
    match crate::args::keep(keepdims, keepdim)? {
        true => out(distance.and_then(|d| d.unsqueeze(-1))),
        false => out(distance),
    }
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_convolutions(m)?;
    register_activations(m)?;
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        windows unfold fold interpolate
        scaled_dot_product_attention attention_with_weights prelu glu softmin dropout normalize cosine_similarity
        pairwise_distance
    }
    Ok(())
}

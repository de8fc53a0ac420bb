//! Pooling over the windows of the last (spatial) axes, with the positions of maxima, and
//! unpooling. A list with one entry applies to all spatial axes.

use super::conv::{PerAxis, spread, windows};
use super::resample::uneven;
use super::{Operand, Padding, Update, where_};
use crate::{Error, Result, Tensor, keepdims};
use girih_ir::ops::PadDim;
use girih_ir::ops::pool::{Pool, PoolDim};
use girih_ir::ops::window::WindowDim;
use girih_ir::{Attrs, DType, Literal, Op, OpCode, Shape};
use std::sync::Arc;

/// The geometry of a pooling.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    /// The sizes of a window.
    pub size: Vec<usize>,
    /// Distances between windows; by default the sizes.
    pub stride: Option<Vec<usize>>,
    /// The padding.
    pub padding: Padding,
    /// Distances between the elements of a window.
    pub dilation: Vec<usize>,
    /// Whether a last window may extend beyond the padding, if it starts before the end.
    pub ceil_mode: bool,
    /// Whether a mean includes padding.
    pub count_include_pad: bool,
    /// The divisor of a mean, instead of the number of counted elements.
    pub divisor: Option<f64>,
}

impl PoolOptions {
    /// Options for adjacent windows of these sizes.
    pub fn new(size: impl Into<PerAxis>) -> PoolOptions {
        PoolOptions {
            size: size.into().0,
            stride: None,
            padding: Padding::Valid,
            dilation: vec![1],
            ceil_mode: false,
            count_include_pad: true,
            divisor: None,
        }
    }

    /// With these distances between windows: `PoolOptions::new([3, 3]).stride(2).padding(1)`.
    #[must_use]
    pub fn stride(self, stride: impl Into<PerAxis>) -> PoolOptions {
        PoolOptions { stride: Some(stride.into().0), ..self }
    }

    /// With this padding: a [`Padding`], or the elements before and after all axes, or each.
    #[must_use]
    pub fn padding(self, padding: impl Into<Padding>) -> PoolOptions {
        PoolOptions { padding: padding.into(), ..self }
    }

    /// With these distances between the elements of a window.
    #[must_use]
    pub fn dilation(self, dilation: impl Into<PerAxis>) -> PoolOptions {
        PoolOptions { dilation: dilation.into().0, ..self }
    }

    /// The windows on the last axes of a shape.
    fn dims(&self, op: &'static str, shape: &Shape) -> Result<Vec<PoolDim>> {
        let n = self.size.len();
        if shape.rank() < n {
            let (shape, reason) = (shape.clone(), format!("{n} axes are pooled"));
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        }
        let size = |i: usize| shape.dim(shape.rank() - n + i);
        let strides = self.stride.as_ref().unwrap_or(&self.size);
        let windows = windows(op, &self.size, strides, &self.dilation)?;
        let padding = self.padding.pairs(op, size, &windows)?;
        let dim = |i: usize| {
            let (w, (low, high)) = (&windows[i], padding[i]);
            PoolDim {
                size: w.size,
                stride: w.step,
                dilation: w.dilation,
                low,
                high,
                extra: if self.ceil_mode { beyond(size(i).get(), w, low, high) } else { 0 },
            }
        };
        Ok((0..n).map(dim).collect())
    }
}

/// The number of elements by which the last window that starts inside extends beyond the padding.
fn beyond(size: usize, w: &WindowDim, low: usize, high: usize) -> usize {
    let (size, low, high) = (size as i128, low as i128, high as i128);
    let (padded, reach, step) = (size + low + high, w.reach() as i128, w.step.max(1) as i128);
    let rest = padded - reach;
    let mut count = (rest + step - 1).div_euclid(step) + 1;
    if (count - 1) * step >= size + low {
        count -= 1;
    }
    if count < 1 { 0 } else { ((count - 1) * step + reach - padded).max(0) as usize }
}

/// The smallest value of a dtype.
fn lowest(dtype: DType) -> Literal {
    match dtype.int_range() {
        Some((min, _)) => Literal::from_int(dtype, min),
        None => Literal::from_f64(dtype, f64::NEG_INFINITY),
    }
}

/// The product of the last `n` sizes.
fn spatial(shape: &Shape, n: usize) -> usize {
    shape[shape.rank() - n..].iter().product()
}

impl Tensor {
    #[track_caller]
    fn pooled(&self, code: OpCode, options: &PoolOptions) -> Result<Tensor> {
        let dims = options.dims(code.def().name, &self.shape())?;
        let pool = Pool { dims, count_padding: options.count_include_pad };
        Tensor::record(Op::new(code, Attrs::Pool(Arc::new(pool))), &[self])
    }

    /// The windows of a pooling of the last axes padded with `fill`, each flattened into a new last
    /// axis.
    #[track_caller]
    fn pool_windows(&self, dims: &[PoolDim], fill: Literal) -> Result<Tensor> {
        let lead = self.rank() - dims.len();
        let border = |d: &PoolDim| PadDim { low: d.low, high: d.high + d.extra, interior: 0 };
        let around = std::iter::repeat_n(PadDim::default(), lead).chain(dims.iter().map(border));
        let padded = self.padded(around.collect(), fill)?;
        let of = |f: fn(&PoolDim) -> usize| dims.iter().map(f).collect::<Vec<_>>();
        let windows = padded.windows(&of(|d| d.size), &of(|d| d.stride), &of(|d| d.dilation))?;
        let n = dims.len();
        let shape = windows.shape();
        let inner = spatial(&shape, n);
        windows.reshape(shape.part(..lead + n).dims().chain([inner.into()]).collect::<Shape>())
    }

    /// The maximum of each window of the last axes; there are as many pooled axes as window sizes.
    /// NaN propagates; padding is ignored. A window of only padding gives the smallest value of the
    /// dtype, which is negative infinity for floating-point dtypes.
    ///
    /// Errors: a shape error for a window larger than the padded axis.
    #[track_caller]
    pub fn max_pool(&self, options: &PoolOptions) -> Result<Tensor> {
        self.pooled(OpCode::MaxPool, options)
    }

    /// As [`Tensor::max_pool`], with the index of each maximum among the elements of the pooled
    /// axes, in row-major order; the first of equal elements. A window of only padding has the
    /// index -1. [`Tensor::max_unpool`] takes these indices.
    #[track_caller]
    pub fn max_pool_with_indices(&self, options: &PoolOptions) -> Result<(Tensor, Tensor)> {
        let largest = self.max_pool(options)?;
        let shape = self.shape();
        let dims = options.dims("max_pool", &shape)?;
        let plane = Shape::from(&shape[shape.rank() - dims.len()..]);
        let (windows, best) = (self.stop_gradient()?, largest.stop_gradient()?.unsqueeze(-1)?);
        let windows = windows.pool_windows(&dims, lowest(self.dtype()))?;
        let places = Tensor::iota([plane.numel()], 0, DType::I64)?.reshape(plane)?;
        let places = places.pool_windows(&dims, Literal::from_i64(DType::I64, -1))?;
        let mut chosen = windows.eq(&best)?;
        if self.dtype().is_float() {
            chosen = chosen.logical_or(&windows.isnan()?)?;
        }
        // Padding may equal the maximum, but must not be selected.
        let chosen = chosen.logical_and(&places.ge(0)?)?;
        let none = Tensor::constant(Literal::from_i64(DType::I64, i64::MAX), Shape::scalar());
        let first = where_(&chosen, &places, Operand::Tensor(&none))?.min(-1)?;
        let absent = Tensor::constant(Literal::from_i64(DType::I64, -1), Shape::scalar());
        Ok((largest, where_(&first.eq(&none)?, &absent, Operand::Tensor(&first))?))
    }

    /// The elements at flat indices into the last `n` axes.
    #[track_caller]
    fn picked(&self, index: &Tensor, n: usize) -> Result<Tensor> {
        let flat = |t: &Tensor| {
            let shape = t.shape();
            let lead = shape.part(..shape.rank() - n);
            t.reshape(lead.dims().chain([spatial(&shape, n).into()]).collect::<Shape>())
        };
        flat(self)?.take_along_axis(&flat(index)?, -1)?.reshape(index.shape())
    }

    /// Unpooling: places the elements at the indices of [`Tensor::max_pool_with_indices`], with
    /// zeros elsewhere. The last axes of the result have the given sizes, to which the indices
    /// refer. An element with the index -1, from a window of only padding, is dropped.
    ///
    /// Errors: a shape error unless there is an index per element; on evaluation, an index error
    /// for an index less than -1 or beyond the last element.
    #[track_caller]
    pub fn max_unpool(&self, indices: &Tensor, sizes: &[usize]) -> Result<Tensor> {
        let (op, shape, n) = ("max_unpool", self.shape(), sizes.len());
        if shape != indices.shape() || shape.rank() < n {
            let reason = format!("an index is expected for each element, over {n} last axes");
            let (lhs, rhs) = (shape, indices.shape());
            return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
        }
        let lead = shape.part(..shape.rank() - n);
        let flat = lead.dims().chain([spatial(&shape, n).into()]).collect::<Shape>();
        let whole = sizes.iter().fold(1, |n: usize, &size| n.saturating_mul(size));
        // One additional element receives the dropped elements.
        let empty = Tensor::zeros(
            lead.dims().chain([whole.saturating_add(1).into()]).collect::<Shape>(),
            self.dtype(),
        )?;
        let (values, indices) = (self.reshape(flat.clone())?, indices.reshape(flat)?);
        // Negative indices mark absent elements; unsigned ones are positions, whatever their size.
        let indices = match indices.dtype().is_signed() {
            false => indices,
            true => {
                let indices = indices.astype(DType::I64)?;
                let beyond = indices.neg()?.add(whole as i64 - 1)?;
                where_(&indices.lt(0)?, &beyond, Operand::Tensor(&indices))?
            }
        };
        let placed = empty.put_along_axis(&indices, &values, -1, Update::Set)?;
        let placed = placed.narrow(-1, 0, whole)?;
        placed.reshape(lead.dims().chain(sizes.iter().map(|&s| s.into())).collect::<Shape>())
    }

    /// The mean of each window of the last axes. Integers become f32.
    ///
    /// Errors: as [`Tensor::max_pool`]; a dilation other than 1; [`Error::InvalidArgument`] for a
    /// divisor of zero.
    #[track_caller]
    pub fn avg_pool(&self, options: &PoolOptions) -> Result<Tensor> {
        let x = self.astype(self.dtype().to_float())?;
        let mean = x.pooled(OpCode::AvgPool, options)?;
        let Some(divisor) = options.divisor else { return Ok(mean) };
        if divisor == 0.0 {
            return Err(Error::InvalidArgument("avg_pool: divisor_override must not be 0".into()));
        }
        let dims = options.dims("avg_pool", &x.shape())?;
        let wide = x.astype(x.dtype().widened())?;
        let zero = Literal::from_i64(wide.dtype(), 0);
        let sums = wide.pool_windows(&dims, zero)?.sum(-1)?;
        sums.div(divisor)?.astype(x.dtype())
    }

    /// `sum(|x|^p)^(1/p)` of each window of the last axes.
    ///
    /// Errors: as [`Tensor::max_pool`]; [`Error::InvalidArgument`] for an exponent that is not
    /// positive.
    #[track_caller]
    pub fn lp_pool(&self, p: f64, options: &PoolOptions) -> Result<Tensor> {
        if p.is_nan() || p <= 0.0 {
            return Err(Error::InvalidArgument(format!(
                "lp_pool: the exponent must be positive, got {p}"
            )));
        }
        let x = self.astype(self.dtype().to_float())?;
        // Record `max_pool` to check the windows.
        x.max_pool(options)?;
        let dims = options.dims("lp_pool", &x.shape())?;
        let wide = x.astype(x.dtype().widened())?;
        let windows = wide.pool_windows(&dims, Literal::from_i64(wide.dtype(), 0))?;
        let norm = windows.vector_norm(p, -1, false)?;
        if dims.iter().all(|d| d.extra == 0) || p.is_infinite() {
            return norm.astype(x.dtype());
        }
        // Scale as if the elements beyond the padding were like the other elements of their window.
        let lead = x.rank() - dims.len();
        let shape = x.shape();
        let sizes = shape[lead..].iter().zip(&dims).map(|(size, d)| size + d.low + d.high);
        let there = Tensor::ones(sizes.collect::<Shape>(), wide.dtype())?;
        let inside: Vec<PoolDim> = dims.iter().map(|d| PoolDim { low: 0, high: 0, ..*d }).collect();
        let counts = there.pool_windows(&inside, Literal::from_i64(wide.dtype(), 0))?;
        let whole = dims.iter().map(|d| d.size).product::<usize>();
        let share = counts.sum(-1)?.reciprocal()?.mul(whole as f64)?;
        norm.mul(&share.pow(1.0 / p)?)?.astype(x.dtype())
    }

    /// As [`Tensor::adaptive_max_pool`], with the index of each maximum among the elements of the
    /// pooled axes, in row-major order; the first of equal elements.
    ///
    /// Errors: as [`Tensor::adaptive_avg_pool`].
    #[track_caller]
    pub fn adaptive_max_pool_with_indices(&self, sizes: &[usize]) -> Result<(Tensor, Tensor)> {
        self.adaptive_max_pool(sizes)?;
        let (shape, n) = (self.shape(), sizes.len());
        let lead = shape.rank() - n;
        let plane = Shape::from(&shape[lead..]);
        let flat = Tensor::iota([plane.numel()], 0, DType::I64)?.reshape(plane)?;
        let (mut x, mut index) = (self.stop_gradient()?, flat.broadcast_to(shape)?);
        // Process the last axis first, so that the first element in row-major order is selected.
        for (i, &size) in sizes.iter().enumerate().rev() {
            let axis = lead + i;
            let (elements, counted, _) = uneven(&x, axis, size)?;
            let (places, ..) = uneven(&index, axis, size)?;
            let least = Tensor::constant(lowest(x.dtype()), Shape::scalar());
            let kept = where_(&counted, &elements, Operand::Tensor(&least))?;
            let inside = axis as i64 + 1;
            let best = kept.argmax(keepdims(inside))?;
            let pick = |t: &Tensor| t.take_along_axis(&best, inside)?.squeeze(inside);
            (x, index) = (pick(&kept)?, pick(&places)?);
        }
        Ok((self.picked(&index, n)?, index))
    }
}

/// The sizes for [`Tensor::max_unpool`] that invert a pooling, assuming that its windows covered
/// the axes exactly.
///
/// Errors: [`Error::InvalidArgument`] for lists whose lengths do not fit.
pub fn unpooled_sizes(sizes: &[usize], options: &PoolOptions) -> Result<Vec<usize>> {
    let (op, n) = ("max_unpool", sizes.len());
    let strides = options.stride.as_ref().unwrap_or(&options.size);
    let windows = windows(op, &spread(op, "kernel_size", &options.size, n)?, strides, &[1])?;
    let padding = options.padding.pairs(op, |i| sizes[i].into(), &windows)?;
    let size = |i: usize| {
        let (w, (low, high)) = (&windows[i], padding[i]);
        (sizes[i].max(1) - 1)
            .saturating_mul(w.step)
            .saturating_add(w.size)
            .saturating_sub(low.saturating_add(high))
    };
    Ok((0..n).map(size).collect())
}

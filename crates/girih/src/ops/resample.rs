//! Resampling of spatial axes, one axis at a time: interpolation, and adaptive poolings, whose
//! windows follow from the result's size.

use super::conv::spread;
use super::index::Index;
use super::{PoolOptions, where_};
use crate::{Error, Operand, Result, Tensor, keepdims};
use girih_ir::DType;

/// The interpolation method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The element at the position rounded down.
    Nearest,
    /// The element whose centre is nearest.
    NearestExact,
    /// Linear interpolation between centres.
    Linear,
    /// Cubic convolution, Keys 1981, with `a = -3/4`.
    Cubic,
    /// Linear, with a filter as wide as a result element where there are fewer of them, so that
    /// nothing is left out.
    LinearAntialiased,
    /// Cubic with `a = -1/2`, and a filter as in [`Interpolation::LinearAntialiased`].
    CubicAntialiased,
    /// The mean of the elements in the window.
    Area,
}

/// The points of two grids over one image that coincide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Corners {
    /// The outer edges of the outermost elements.
    #[default]
    Edges,
    /// The centres of the outermost elements.
    Centres,
}

/// The sampling positions along one axis.
#[derive(Clone, Copy)]
struct Grid {
    from: usize,
    to: usize,
    /// The distance of positions in elements.
    ratio: f64,
    corners: Corners,
}

impl Grid {
    /// The positions in units of elements, f64; at the centres of results unless those of the corners coincide.
    fn positions(&self) -> Result<Tensor> {
        let index = Tensor::iota([self.to], 0, DType::F64)?;
        match (self.corners, self.to) {
            (Corners::Centres, 0 | 1) => index.mul(0.0),
            (Corners::Centres, to) => index.mul((self.from - 1) as f64)?.div((to - 1) as f64),
            (Corners::Edges, _) => index.add(0.5)?.mul(self.ratio)?.sub(0.5),
        }
    }

    /// Indices clamped to the axis.
    fn index(&self, positions: &Tensor) -> Result<Tensor> {
        let last = self.from as f64 - 1.0;
        positions.clip(0.0, last)?.astype(DType::I64)
    }
}

/// One weight per position, in the dtype of `like` and shaped to broadcast along `axis`.
fn weight(w: &Tensor, like: &Tensor, axis: usize) -> Result<Tensor> {
    let mut shape = vec![1i64; like.rank() - axis];
    shape[0] = w.numel() as i64;
    w.astype(like.dtype())?.reshape(&shape)
}

fn nearest(x: &Tensor, axis: usize, grid: Grid, exact: bool) -> Result<Tensor> {
    let Grid { from, to, ratio, .. } = grid;
    if ratio == from as f64 / to as f64 && from > 0 && to > 0 {
        // Views, where each element is repeated, or taken from as many, a whole number of times.
        if to % from == 0 {
            return x.repeat(to / from, Some(axis as i64));
        }
        if from % to == 0 {
            let step = from / to;
            let start = Some(if exact { step / 2 } else { 0 } as i64);
            let mut entries = vec![Index::ALL; axis];
            entries.push(Index::Slice { start, stop: None, step: step as i64 });
            return x.index(&entries);
        }
    }
    let index = Tensor::iota([grid.to], 0, DType::F64)?;
    let index = if exact { index.add(0.5)? } else { index };
    let scaled = match grid.ratio == grid.from as f64 / grid.to as f64 {
        // Multiply before dividing, so that whole positions stay exact.
        true => index.mul(grid.from as f64)?.div(grid.to as f64)?,
        false => index.mul(grid.ratio)?,
    };
    x.take(&grid.index(&scaled.floor()?)?, axis as i64)
}

fn linear(x: &Tensor, axis: usize, grid: Grid) -> Result<Tensor> {
    let positions = grid.positions()?.maximum(0.0)?;
    let low = positions.floor()?;
    let (left, right) = (grid.index(&low)?, grid.index(&low.add(1.0)?)?);
    let share = weight(&positions.sub(&low)?, x, axis)?;
    let rest = share.neg()?.add(1.0)?;
    let (left, right) = (x.take(&left, axis as i64)?, x.take(&right, axis as i64)?);
    left.mul(&rest)?.add(&right.mul(&share)?)
}

/// The weights of four neighbours, where `t` is the distance from the second.
pub(super) fn cubic_weights(t: &Tensor) -> Result<[Tensor; 4]> {
    const A: f64 = -0.75;
    // |d| <= 1: ((A + 2) d - (A + 3)) d d + 1
    let near = |d: &Tensor| d.mul(A + 2.0)?.sub(A + 3.0)?.mul(d)?.mul(d)?.add(1.0);
    // 1 < |d| < 2: ((A d - 5 A) d + 8 A) d - 4 A
    let far = |d: &Tensor| d.mul(A)?.sub(5.0 * A)?.mul(d)?.add(8.0 * A)?.mul(d)?.sub(4.0 * A);
    let back = t.neg()?.add(1.0)?;
    Ok([far(&t.add(1.0)?)?, near(t)?, near(&back)?, far(&back.add(1.0)?)?])
}

fn cubic(x: &Tensor, axis: usize, grid: Grid) -> Result<Tensor> {
    let positions = grid.positions()?;
    let low = positions.floor()?;
    let weights = cubic_weights(&positions.sub(&low)?)?;
    let mut sum: Option<Tensor> = None;
    for (i, w) in weights.iter().enumerate() {
        let index = grid.index(&low.add(i as f64 - 1.0)?)?;
        let term = x.take(&index, axis as i64)?.mul(&weight(w, x, axis)?)?;
        sum = Some(match sum {
            None => term,
            Some(sum) => sum.add(&term)?,
        });
    }
    sum.ok_or_else(|| Error::InvalidArgument("interpolate: no weights".into()))
}

/// The triangle and the cubic convolution with `a = -1/2`, at distances that are not negative.
fn filter(distance: &Tensor, cubic: bool) -> Result<Tensor> {
    let d = distance;
    if !cubic {
        return d.neg()?.add(1.0)?.maximum(0.0);
    }
    let near = d.mul(1.5)?.sub(2.5)?.mul(d)?.mul(d)?.add(1.0)?;
    let far = d.mul(-0.5)?.add(2.5)?.mul(d)?.sub(4.0)?.mul(d)?.add(2.0)?;
    where_(&d.lt(1.0)?, &near, &where_(&d.lt(2.0)?, &far, 0.0)?)
}

/// Weighted means of the elements below a filter around each position. The filter is stretched to
/// the distance of two positions if that is more than an element.
fn antialiased(x: &Tensor, axis: usize, grid: Grid, cubic: bool) -> Result<Tensor> {
    let ratio = match (grid.corners, grid.to) {
        (Corners::Centres, 0 | 1) => 0.0,
        (Corners::Centres, to) => (grid.from - 1) as f64 / (to - 1) as f64,
        (Corners::Edges, _) => grid.ratio,
    };
    let stretch = ratio.max(1.0);
    let support = if cubic { 2.0 * stretch } else { stretch };
    let window = ((2.0 * support).ceil() as usize).min(grid.from).max(1);
    let centre = Tensor::iota([grid.to, window], 0, DType::F64)?.add(0.5)?.mul(ratio)?;
    let start = centre.sub(support - 0.5)?.floor()?.maximum(0.0)?;
    let stop = centre.add(support + 0.5)?.floor()?.minimum(grid.from as f64)?;
    let index = Tensor::iota([grid.to, window], 1, DType::F64)?.add(&start)?;
    let distance = index.sub(&centre)?.add(0.5)?.abs()?.div(stretch)?;
    let weights = where_(&index.lt(&stop)?, &filter(&distance, cubic)?, 0.0)?;
    let weights = weights.div(&weights.sum(keepdims(1))?)?;
    let elements = x.take(&grid.index(&index)?, axis as i64)?;
    let mut shape = vec![1i64; x.rank() - axis + 1];
    (shape[0], shape[1]) = (grid.to as i64, window as i64);
    let weights = weights.astype(x.dtype())?.reshape(&shape)?;
    elements.mul(&weights)?.sum(axis as i64 + 1)
}

/// The number of elements of the longest of `n` windows over `size` elements. With
/// `size = q n + r`, a window has `q` elements and up to two more from the remainders `i r mod n`;
/// in lowest terms, `r / n` takes every remainder.
fn longest_window(size: usize, n: usize) -> usize {
    let (whole, mut rest) = (size / n, size % n);
    let mut divisor = n;
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    whole + (size % n / divisor).min(2)
}

/// The elements of uneven windows along an axis, `[…, windows, longest, …]`, the mask of the
/// elements in the windows, and the windows' lengths, both shaped to broadcast. Window `i` of `n`
/// over `size` elements is `floor(i size / n) .. ceil((i + 1) size / n)`.
pub(super) fn uneven(x: &Tensor, axis: usize, n: usize) -> Result<(Tensor, Tensor, Tensor)> {
    let size = x.shape()[axis];
    // Check the bounds, since the positions below are computed in i64.
    girih_ir::Shape::from([n, size + 1]).check("adaptive_pool", DType::I64)?;
    let longest = longest_window(size, n);
    let (size, windows) = (size as i64, n as i64);
    let i = Tensor::iota([n, longest], 0, DType::I64)?;
    let starts = i.mul(size)?.floor_divide(windows)?;
    let stops = i.add(1)?.mul(size)?.add(windows - 1)?.floor_divide(windows)?;
    let index = starts.add(&Tensor::iota([n, longest], 1, DType::I64)?)?;
    let counted = index.lt(&stops)?;
    let elements = x.take(&index.minimum(size - 1)?, axis as i64)?;
    let mut shape = vec![1i64; x.rank() - axis + 1];
    (shape[0], shape[1]) = (windows, longest as i64);
    let lengths = stops.sub(&starts)?;
    Ok((elements, counted.reshape(&shape)?, lengths.reshape(&shape)?))
}

#[derive(Clone, Copy, PartialEq)]
enum Adaptive {
    Mean,
    Max,
}

fn adaptive_axis(x: &Tensor, axis: usize, n: usize, kind: Adaptive) -> Result<Tensor> {
    let (elements, counted, lengths) = uneven(x, axis, n)?;
    let inside = [axis as i64 + 1];
    match kind {
        Adaptive::Max => {
            let lowest = x.dtype().int_range().map(|(min, _)| min);
            let kept = match lowest {
                Some(min) => where_(&counted, &elements, Operand::Int(min))?,
                None => where_(&counted, &elements, f64::NEG_INFINITY)?,
            };
            // Select by index, so that only the first of equal elements receives the gradient, as
            // in `max_pool`.
            let first = kept.argmax(keepdims(inside[0]))?;
            kept.take_along_axis(&first, inside[0])?.squeeze(inside)
        }
        Adaptive::Mean => {
            let kept = where_(&counted, &elements, 0.0)?;
            let sum = kept.sum(inside)?;
            let lengths = lengths.narrow(1, 0, 1)?.squeeze(1)?;
            sum.div(&lengths.astype(x.dtype())?)
        }
    }
}

impl Tensor {
    /// Resamples the spatial axes of `[batch, channels, …]` to the given sizes. `scales`, the
    /// numbers of result elements per element, determine the positions instead of the sizes. If
    /// centres of corners coincide (for linear and cubic), the first and the last elements keep
    /// their positions.
    ///
    /// Integers become f32 unless the mode is `Nearest` or `NearestExact`.
    ///
    /// Errors: a shape error for empty spatial axes; [`Error::InvalidArgument`] for lists whose
    /// lengths do not fit.
    #[track_caller]
    pub fn interpolate(
        &self,
        sizes: &[usize],
        scales: Option<&[f64]>,
        mode: Interpolation,
        corners: Corners,
    ) -> Result<Tensor> {
        let (op, shape) = ("interpolate", self.shape());
        let n = shape.rank().saturating_sub(2);
        let sizes = spread(op, "size", sizes, n)?;
        let scales = scales.map(|s| spread(op, "scale_factor", s, n)).transpose()?;
        if n == 0 || shape[2..].contains(&0) || sizes.contains(&0) {
            let reason = format!("[batch, channels, spatial…] cannot be resampled to {sizes:?}");
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        }
        if mode == Interpolation::Area {
            return self.adaptive_avg_pool(&sizes);
        }
        let keeps = matches!(mode, Interpolation::Nearest | Interpolation::NearestExact);
        let x = if keeps { self.clone() } else { self.astype(self.dtype().to_float())? };
        let dtype = x.dtype();
        let mut x = if keeps { x } else { x.astype(dtype.widened())? };
        for (i, &to) in sizes.iter().enumerate() {
            let from = shape[2 + i];
            let ratio = match &scales {
                Some(scales) => 1.0 / scales[i],
                None => from as f64 / to as f64,
            };
            let grid = Grid { from, to, ratio, corners };
            if from == to && (ratio == 1.0 || corners == Corners::Centres) {
                continue;
            }
            x = match mode {
                Interpolation::Nearest => nearest(&x, 2 + i, grid, false)?,
                Interpolation::NearestExact => nearest(&x, 2 + i, grid, true)?,
                Interpolation::Linear => linear(&x, 2 + i, grid)?,
                Interpolation::LinearAntialiased => antialiased(&x, 2 + i, grid, false)?,
                Interpolation::CubicAntialiased => antialiased(&x, 2 + i, grid, true)?,
                _ => cubic(&x, 2 + i, grid)?,
            };
        }
        x.astype(dtype)
    }

    #[track_caller]
    fn adaptive(&self, op: &'static str, sizes: &[usize], kind: Adaptive) -> Result<Tensor> {
        let (shape, n) = (self.shape(), sizes.len());
        let lead = shape.rank().checked_sub(n);
        let Some(lead) = lead.filter(|&l| !shape[l..].contains(&0) && !sizes.contains(&0)) else {
            let reason = format!("the last axes cannot be pooled to sizes {sizes:?}");
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        };
        if shape[lead..].iter().zip(sizes).all(|(&have, &want)| have.is_multiple_of(want)) {
            let windows = shape[lead..].iter().zip(sizes).map(|(have, want)| have / want);
            let options = PoolOptions::new(windows.collect::<Vec<usize>>());
            return match kind {
                Adaptive::Mean => self.avg_pool(&options),
                Adaptive::Max => self.max_pool(&options),
            };
        }
        let dtype = self.dtype();
        let wide = if kind == Adaptive::Mean { dtype.widened() } else { dtype };
        let mut x = self.astype(wide)?;
        // Process the last axis first, so that the first of equal elements in row-major order is
        // selected.
        for (i, &want) in sizes.iter().enumerate().rev() {
            if shape[lead + i] != want {
                x = adaptive_axis(&x, lead + i, want, kind)?;
            }
        }
        x.astype(dtype)
    }

    /// The means of windows of the last axes that are placed so that the result has the given
    /// sizes. Integers become f32.
    ///
    /// Errors: a shape error for empty axes or sizes of zero.
    #[track_caller]
    pub fn adaptive_avg_pool(&self, sizes: &[usize]) -> Result<Tensor> {
        let x = self.astype(self.dtype().to_float())?;
        x.adaptive("adaptive_avg_pool", sizes, Adaptive::Mean)
    }

    /// The maxima of windows of the last axes that are placed so that the result has the given
    /// sizes.
    ///
    /// Errors: as [`Tensor::adaptive_avg_pool`].
    #[track_caller]
    pub fn adaptive_max_pool(&self, sizes: &[usize]) -> Result<Tensor> {
        self.adaptive("adaptive_max_pool", sizes, Adaptive::Max)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_longest_window_is_the_maximum_over_all_windows() {
        for size in 1..60usize {
            for n in 1..60usize {
                let length = |i: usize| ((i + 1) * size).div_ceil(n) - i * size / n;
                let longest = (0..n).map(length).max().unwrap();
                assert_eq!(super::longest_window(size, n), longest, "{n} windows over {size}");
            }
        }
    }
}

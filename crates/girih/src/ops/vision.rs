//! Functions on images and channels: pixel and channel shuffles, grid sampling, and local response
//! normalisation.

use super::{Corners, where_};
use crate::{Error, Result, Tensor};
use girih_ir::{DType, Dim, Shape};

/// The interpolation of [`Tensor::grid_sample`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Linear interpolation between the neighbouring elements.
    Linear,
    /// The nearest element.
    Nearest,
    /// Cubic convolution, Keys 1981, with `a = -3/4`; only for two spatial axes.
    Cubic,
}

/// The values that [`Tensor::grid_sample`] reads outside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Zeros.
    Zeros,
    /// The outermost elements.
    Border,
    /// The elements mirrored at the border.
    Reflection,
}

/// The interpretation of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridOptions {
    /// The interpolation.
    pub mode: Sampling,
    /// The values outside the image.
    pub outside: Outside,
    /// Which points of the outermost elements -1 and 1 are.
    pub corners: Corners,
}

fn bad_shape(op: &'static str, shape: Shape, reason: String) -> Error {
    girih_ir::Error::InvalidShape { op, shape, reason }.into()
}

/// Reflects `x` at `low` and `high` repeatedly, until it is in between.
fn reflected(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    let span = high - low;
    if span <= 0.0 {
        return x.mul(0.0);
    }
    let away = x.sub(low)?.abs()?;
    let turns = away.div(span)?.floor()?.stop_gradient()?;
    let rest = away.sub(&turns.mul(span)?)?;
    let odd = turns.remainder(2.0)?.eq(1.0)?;
    where_(&odd, &rest.neg()?.add(high)?, &rest.add(low)?)
}

/// The positions of a grid along one axis.
struct Positions {
    /// The positions in units of elements, f32 or f64, of shape `[batch, positions]`.
    at: Tensor,
    size: usize,
}

impl Positions {
    fn new(grid: &Tensor, size: usize, options: &GridOptions) -> Result<Positions> {
        let n = size as f64;
        let at = match options.corners {
            Corners::Centres => grid.add(1.0)?.mul((n - 1.0) / 2.0)?,
            Corners::Edges => grid.add(1.0)?.mul(n)?.sub(1.0)?.div(2.0)?,
        };
        let positions = Positions { at, size };
        // The cubic mode reflects each of its four elements instead.
        if options.mode == Sampling::Cubic {
            return Ok(positions);
        }
        let at = positions.inside(&positions.at, options)?;
        Ok(Positions { at, size })
    }

    /// Moves positions into the image, unless the values outside the image are zeros.
    fn inside(&self, at: &Tensor, options: &GridOptions) -> Result<Tensor> {
        let last = self.size as f64 - 1.0;
        let at = match options.outside {
            Outside::Zeros => return Ok(at.clone()),
            Outside::Border => at.clone(),
            Outside::Reflection if options.corners == Corners::Centres => reflected(at, 0.0, last)?,
            Outside::Reflection => reflected(at, -0.5, last + 0.5)?,
        };
        at.clip(0.0, last)
    }

    /// The index at a whole position, clamped to the axis, and whether the position is inside.
    fn index(&self, whole: &Tensor) -> Result<(Tensor, Tensor)> {
        let last = self.size as f64 - 1.0;
        let valid = whole.ge(0.0)?.logical_and(&whole.le(last)?)?;
        // NaN cannot be converted to an index, so use 0.
        let safe = where_(&valid, &whole.clip(0.0, last)?, 0.0)?;
        Ok((safe.astype(DType::I64)?, valid))
    }

    /// Positions and weights of the elements that contribute to a value.
    fn taps(&self, options: &GridOptions) -> Result<Vec<(Tensor, Tensor)>> {
        let one = || Tensor::ones(self.at.shape(), self.at.dtype());
        match options.mode {
            Sampling::Nearest => Ok(vec![(self.at.round()?, one()?)]),
            Sampling::Linear => {
                let low = self.at.floor()?.stop_gradient()?;
                let share = self.at.sub(&low)?;
                Ok(vec![(low.clone(), share.neg()?.add(1.0)?), (low.add(1.0)?, share)])
            }
            Sampling::Cubic => {
                let low = self.at.floor()?.stop_gradient()?;
                let weights = super::resample::cubic_weights(&self.at.sub(&low)?)?;
                let tap =
                    |(i, w)| Ok((self.inside(&low.add(i as f64 - 1.0)?, options)?.round()?, w));
                weights.into_iter().enumerate().map(tap).collect()
            }
        }
    }
}

impl Tensor {
    /// Moves channels to space: `[…, c r^2, h, w] -> […, c, h r, w r]`. Shi et al. 2016.
    ///
    /// Errors: a shape error unless `r^2` divides the channels.
    #[track_caller]
    pub fn pixel_shuffle(&self, r: usize) -> Result<Tensor> {
        let (op, shape) = ("pixel_shuffle", self.shape());
        let lead = shape.rank().checked_sub(3);
        let Some(lead) = lead.filter(|&l| r > 0 && shape[l].is_multiple_of(r.saturating_mul(r)))
        else {
            let reason = format!("expected […, a multiple of {r} * {r} channels, h, w]");
            return Err(bad_shape(op, shape, reason));
        };
        let [c, h, w] = [0, 1, 2].map(|i| shape[lead + i]);
        let around = || shape.part(..lead);
        let unmerged: Shape =
            around().dims().chain([c / (r * r), r, r, h, w].map(Dim::from)).collect();
        let at = lead as i64;
        let order = (0..at).chain([at, at + 3, at + 1, at + 4, at + 2]).collect::<Vec<_>>();
        let joined: Shape =
            around().dims().chain([c / (r * r), h * r, w * r].map(Dim::from)).collect();
        self.reshape(unmerged)?.permute(&order)?.reshape(joined)
    }

    /// Moves space to channels, the inverse of [`Tensor::pixel_shuffle`]:
    /// `[…, c, h r, w r] -> […, c r^2, h, w]`.
    ///
    /// Errors: a shape error unless `r` divides the last two axes.
    #[track_caller]
    pub fn pixel_unshuffle(&self, r: usize) -> Result<Tensor> {
        let (op, shape) = ("pixel_unshuffle", self.shape());
        let lead = shape.rank().checked_sub(3);
        let divides = |&l: &usize| r > 0 && shape[l + 1..].iter().all(|n| n.is_multiple_of(r));
        let Some(lead) = lead.filter(divides) else {
            let reason = format!("expected […, channels, h, w], the last two multiples of {r}");
            return Err(bad_shape(op, shape, reason));
        };
        let [c, h, w] = [shape[lead], shape[lead + 1] / r, shape[lead + 2] / r];
        let around = || shape.part(..lead);
        let unmerged: Shape = around().dims().chain([c, h, r, w, r].map(Dim::from)).collect();
        let at = lead as i64;
        let order = (0..at).chain([at, at + 2, at + 4, at + 1, at + 3]).collect::<Vec<_>>();
        let joined: Shape = around().dims().chain([c * r * r, h, w].map(Dim::from)).collect();
        self.reshape(unmerged)?.permute(&order)?.reshape(joined)
    }

    /// Interleaves the groups of channels (axis 1). Zhang et al. 2018.
    ///
    /// Errors: a shape error unless the groups divide the channels.
    #[track_caller]
    pub fn channel_shuffle(&self, groups: usize) -> Result<Tensor> {
        let (op, shape) = ("channel_shuffle", self.shape());
        if shape.rank() < 2 || groups == 0 || !shape[1].is_multiple_of(groups) {
            let reason = format!("expected [batch, a multiple of {groups} channels, …]");
            return Err(bad_shape(op, shape, reason));
        }
        let unmerged = [shape.dim(0), groups.into(), (shape[1] / groups).into()].into_iter();
        let unmerged: Shape = unmerged.chain(shape.part(2..).dims()).collect();
        self.reshape(unmerged)?.swapaxes(1, 2)?.reshape(shape)
    }

    /// Divides by a power of the mean square over `size` neighbouring channels (axis 1),
    /// `x / (k + alpha * mean)^beta`: Krizhevsky et al. 2012, with a mean instead of the sum.
    ///
    /// Errors: a shape error without channels; [`Error::InvalidArgument`] for a size of 0.
    #[track_caller]
    pub fn local_response_norm(
        &self,
        size: usize,
        alpha: f64,
        beta: f64,
        k: f64,
    ) -> Result<Tensor> {
        let (op, shape) = ("local_response_norm", self.shape());
        if shape.rank() < 2 {
            return Err(bad_shape(op, shape, "expected [batch, channels, …]".into()));
        }
        if size == 0 {
            return Err(Error::InvalidArgument(format!("{op}: size must be at least 1, got 0")));
        }
        let dtype = self.dtype().to_float();
        let x = self.astype(dtype.widened())?;
        let mut widths = vec![(0, 0); shape.rank()];
        widths[shape.rank() - 1] = (size / 2, (size - 1) / 2);
        let last = shape.rank() as i64 - 1;
        let squares = x.square()?.moveaxis(&[1], &[last])?.pad(&widths, 0.0)?;
        let mean = squares.windows(&[size], &[1], &[1])?.mean(-1)?;
        let scale = mean.moveaxis(&[last], &[1])?.mul(alpha)?.add(k)?;
        x.div(&scale.pow(beta)?)?.astype(dtype)
    }

    /// The grid for [`Tensor::grid_sample`] of an affine map of each batch entry:
    /// `[batch, n, n + 1] -> [batch, sizes…, n]`. Coordinates run from -1 to 1, which are
    /// `corners` of the outermost elements; that of the last axis comes first.
    ///
    /// Errors: a shape error unless the number of rows is the number of sizes.
    #[track_caller]
    pub fn affine_grid(&self, sizes: &[usize], corners: Corners) -> Result<Tensor> {
        let (op, shape, n) = ("affine_grid", self.shape(), sizes.len());
        if shape.rank() != 3 || shape[1] != n || shape[2] != n + 1 {
            let reason = format!("expected [batch, {n}, {}] for {n} spatial axes", n + 1);
            return Err(bad_shape(op, shape, reason));
        }
        let dtype = self.dtype().to_float();
        let theta = self.astype(dtype.widened())?;
        let along = |axis: usize| -> Result<Tensor> {
            let size = sizes[axis] as f64;
            let index = Tensor::iota(Shape::from(sizes), axis, theta.dtype())?;
            match corners {
                Corners::Centres if sizes[axis] <= 1 => index.mul(0.0),
                Corners::Centres => index.mul(2.0 / (size - 1.0))?.sub(1.0),
                Corners::Edges => index.mul(2.0)?.add(1.0)?.div(size.max(1.0))?.sub(1.0),
            }
        };
        let mut columns = (0..n).rev().map(along).collect::<Result<Vec<_>>>()?;
        columns.push(Tensor::ones(Shape::from(sizes), theta.dtype())?);
        let base = super::stack(&columns, -1)?;
        let count = sizes.iter().product::<usize>();
        let base = base.reshape(Shape::from([count, n + 1]))?;
        let grid = base.product(&theta.swapaxes(1, 2)?)?;
        let all = [shape.dim(0)].into_iter().chain(sizes.iter().map(|&s| s.into()));
        grid.reshape(all.chain([n.into()]).collect::<Shape>())?.astype(dtype)
    }

    /// Samples `[batch, channels, in…]` at the positions of a grid `[batch, out…, n]`, for `n`
    /// spatial axes: `[batch, channels, out…]`. Coordinates run from -1 to 1, that of the last axis
    /// first. Jaderberg et al. 2015.
    ///
    /// Errors: a shape error for axes that do not fit or are empty; [`Error::InvalidArgument`] for
    /// the cubic mode with a number of spatial axes other than two.
    #[track_caller]
    pub fn grid_sample(&self, grid: &Tensor, options: GridOptions) -> Result<Tensor> {
        let (op, shape, by) = ("grid_sample", self.shape(), grid.shape());
        let n = shape.rank().saturating_sub(2);
        let fits = n > 0
            && by.rank() == n + 2
            && by[n + 1] == n
            && by.dim(0).equals(shape.dim(0))
            && !shape[2..].contains(&0);
        if !fits {
            let reason = "expected [batch, channels, sizes…], none of them 0, and a grid [batch, \
                          sizes…, n] for n spatial axes"
                .into();
            return Err(girih_ir::Error::ShapeMismatch { op, lhs: shape, rhs: by, reason }.into());
        }
        if options.mode == Sampling::Cubic && n != 2 {
            return Err(Error::InvalidArgument(format!(
                "{op}: the mode 'bicubic' is for two spatial axes, got {n}"
            )));
        }
        let dtype = self.dtype().promote(grid.dtype())?.to_float();
        let count = by[1..=n].iter().product::<usize>();
        let flat = |t: &Tensor, axis: usize| -> Result<Tensor> {
            t.narrow(-1, axis, 1)?.reshape(Shape::of_dims([by.dim(0), 1usize.into(), count.into()]))
        };
        let grid = grid.astype(dtype.widened())?;
        let axes: Vec<Positions> = (0..n)
            .map(|i| Positions::new(&flat(&grid, n - 1 - i)?, shape[2 + i], &options))
            .collect::<Result<_>>()?;
        let pixels = shape[2..].iter().product::<usize>();
        let x = self.astype(dtype.widened())?;
        let x = x.reshape(Shape::of_dims([shape.dim(0), shape.dim(1), pixels.into()]))?;
        let sampled = sample(&x, &axes, &options)?;
        let out: Shape = shape.part(..2).dims().chain(by.part(1..=n).dims()).collect();
        sampled.reshape(out)?.astype(dtype)
    }
}

/// One combination of taps of all axes.
struct Term {
    flat: Tensor,
    weight: Tensor,
    /// Whether the tap is inside along every axis.
    valid: Tensor,
}

/// The weighted sum over all combinations of the axes' taps.
fn sample(x: &Tensor, axes: &[Positions], options: &GridOptions) -> Result<Tensor> {
    let mut terms: Vec<Term> = Vec::new();
    for (i, axis) in axes.iter().enumerate() {
        let mut next = Vec::new();
        for (at, weight) in axis.taps(options)? {
            let (index, valid) = axis.index(&at)?;
            if i == 0 {
                next.push(Term { flat: index, weight, valid });
                continue;
            }
            for term in &terms {
                next.push(Term {
                    flat: term.flat.mul(axis.size as i64)?.add(&index)?,
                    weight: term.weight.mul(&weight)?,
                    valid: term.valid.logical_and(&valid)?,
                });
            }
        }
        terms = next;
    }
    let mut sum: Option<Tensor> = None;
    for Term { flat, weight, valid } in terms {
        let picked = x.take_along_axis(&flat, -1)?;
        let term = where_(&valid, &picked.mul(&weight)?, 0.0)?;
        sum = Some(match sum {
            None => term,
            Some(sum) => sum.add(&term)?,
        });
    }
    sum.ok_or_else(|| Error::InvalidArgument("grid_sample: no axes to sample along".into()))
}

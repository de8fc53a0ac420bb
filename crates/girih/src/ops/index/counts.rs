//! Counts of elements: by value, and by histogram interval.

use super::Index;
use super::search::{integers, known};
use crate::{Error, Result, Tensor, where_};
use girih_ir::{Attrs, DType, Op, OpCode};

/// The value of a histogram for an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heights {
    /// The number of elements in it, or the sum of their weights.
    Counts,
    /// Its share of all that is counted, divided by its width.
    Density,
}

/// The intervals of a histogram.
pub enum Bins<'a> {
    /// `count` equal intervals over a range; without a range, from the smallest element to the
    /// largest.
    Equal {
        /// The number of intervals.
        count: usize,
        /// The lower edge of the first interval and the upper edge of the last.
        range: Option<(f64, f64)>,
    },
    /// The intervals between neighbours in an ascending tensor of one axis.
    Edges(&'a Tensor),
}

impl Tensor {
    /// The number of occurrences of 0, 1, 2, … among non-negative integers, or the sums of their
    /// weights. The result has at least `minlength` elements. Evaluates the tensor, since the
    /// result's length depends on the largest element.
    ///
    /// Errors: a dtype error unless the tensor holds integers; a shape error unless the tensor has
    /// one axis and the weights have its shape; [`Error::InvalidArgument`] for negative elements.
    #[track_caller]
    pub fn bincount(&self, weights: Option<&Tensor>, minlength: usize) -> Result<Tensor> {
        let ones = self.counted(weights)?;
        let length = match self.numel() {
            0 => 0,
            _ => {
                let ends = crate::stack(&[&self.max_all()?, &self.min_all()?], 0)?;
                let ends = integers("bincount", &ends)?;
                if let Some(negative) = ends.iter().find(|&&v| v < 0) {
                    return Err(Error::InvalidArgument(format!(
                        "bincount: elements must not be negative, got {negative}"
                    )));
                }
                ends[0] as usize + 1
            }
        };
        let length = length.max(minlength);
        ones.gathered_into(self, length)
    }

    /// As [`bincount`](Tensor::bincount), of the integers from 0 below `length`; other elements are
    /// left out. The tensor is not evaluated.
    #[track_caller]
    pub fn bincount_of(&self, weights: Option<&Tensor>, length: usize) -> Result<Tensor> {
        let ones = self.counted(weights)?;
        let index = self.astype(DType::I64)?;
        let last = i64::try_from(length).unwrap_or(i64::MAX);
        let outside = index.lt(0)?.logical_or(&index.ge(last)?)?;
        // They are counted behind the others.
        let index = where_(&outside, last, &index)?;
        ones.gathered_into(&index, length + 1)?.index(&[Index::Slice {
            start: None,
            stop: Some(last),
            step: 1,
        }])
    }

    /// The number that each element adds to its count, after checking the operands of a count.
    #[track_caller]
    fn counted(&self, weights: Option<&Tensor>) -> Result<Tensor> {
        let (op, shape, dtype) = ("bincount", self.shape(), self.dtype());
        if !dtype.is_int() {
            let expected = "integers";
            return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
        }
        if shape.rank() != 1 {
            let reason = "a tensor of one axis is expected".into();
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        }
        match weights {
            None => Tensor::ones(shape, DType::I64),
            Some(weights) if weights.shape() == shape => weights.astype(weights.dtype().to_float()),
            Some(weights) => {
                let reason = "the weights must have the tensor's shape".into();
                let (lhs, rhs) = (shape, weights.shape());
                Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into())
            }
        }
    }

    /// Adds these elements to a tensor of zeros at the given indices; both have one axis.
    #[track_caller]
    fn gathered_into(&self, indices: &Tensor, length: usize) -> Result<Tensor> {
        let size = u32::try_from(length).map_err(|_| {
            Error::InvalidArgument(format!("a result of {length} counts is too long"))
        })?;
        let op = Op::new(OpCode::ScatterAdd, Attrs::Scatter { axis: 0, size });
        Tensor::record(op, &[indices, self])
    }

    /// The edges of a histogram's intervals, one more than intervals, in the tensor's dtype (f32
    /// for integers).
    ///
    /// Errors: [`Error::InvalidArgument`] for no intervals, a range that descends or is not finite,
    /// elements that are not finite without a range, or edges that descend; a shape error for edges that are not one axis of at least two.
    #[track_caller]
    pub fn histogram_bin_edges(&self, bins: &Bins<'_>) -> Result<Tensor> {
        let dtype = self.dtype().to_float();
        let (count, range) = match *bins {
            Bins::Equal { count, range } => (count, range),
            Bins::Edges(edges) if edges.rank() == 1 && edges.numel() >= 2 => {
                ascending(edges)?;
                return Ok(edges.clone());
            }
            Bins::Edges(edges) => {
                let reason = "edges are one axis of at least two elements".into();
                let (op, shape) = ("histogram", edges.shape());
                return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
            }
        };
        if count == 0 {
            return Err(Error::InvalidArgument("histogram: at least one bin is needed".into()));
        }
        // Half floats do not hold the numbers of all edges.
        let wide = dtype.widened();
        let width = |low: f64, high: f64| match wide {
            DType::F64 => high - low,
            _ => f64::from(high as f32 - low as f32),
        };
        let (low, high) = match range {
            Some((low, high)) if low <= high && width(low, high).is_finite() => {
                (Tensor::full(low, [], wide)?, Tensor::full(high, [], wide)?)
            }
            Some((low, high)) => {
                return Err(Error::InvalidArgument(format!(
                    "histogram: the range must ascend and be finite, got {low} to {high}"
                )));
            }
            None if self.numel() == 0 => (Tensor::zeros([], wide)?, Tensor::ones([], wide)?),
            None => {
                let ends = (self.min_all()?, self.max_all()?);
                let (low, high) = (ends.0.astype(wide)?, ends.1.astype(wide)?);
                finite(&low, &high)?;
                (low, high)
            }
        };
        // Widen a range of width zero, like NumPy.
        let widen = low.eq(&high)?.astype(wide)?.mul(0.5)?;
        let (low, high) = (low.sub(&widen)?, high.add(&widen)?);
        let step = high.sub(&low)?.div(count as f64)?;
        let index = Tensor::iota([count + 1], 0, wide)?;
        let edges = index.mul(&step)?.add(&low)?;
        crate::where_(&index.eq(count as f64)?, &high, &edges)?.astype(dtype)
    }

    /// The number of elements in each interval, or the sum of their weights; and the edges. The
    /// last interval includes its upper edge. Elements outside all intervals, and NaN, are not
    /// counted.
    ///
    /// Dtypes: i64 for counts; the weights' dtype for sums of weights; the edges' dtype for
    /// densities.
    ///
    /// Errors: those of [`Tensor::histogram_bin_edges`]; a shape error for weights of another
    /// shape.
    #[track_caller]
    pub fn histogram(
        &self,
        bins: &Bins<'_>,
        weights: Option<&Tensor>,
        heights: Heights,
    ) -> Result<(Tensor, Tensor)> {
        let edges = self.histogram_bin_edges(bins)?;
        let count = edges.numel() - 1;
        let (at, inside) = self.reshape(-1)?.interval(&edges)?;
        let weights = self.weights_of("histogram", weights)?;
        let counted = crate::where_(&inside, &weights, &Tensor::zeros([], weights.dtype())?)?;
        let total = counted.gathered_into(&at, count)?;
        if heights == Heights::Counts {
            return Ok((total, edges));
        }
        let total = total.astype(edges.dtype().to_float())?;
        let sum = total.sum_all()?;
        Ok((total.div(&sum)?.div(&edges.diff(1, 0, None, None)?)?, edges))
    }

    /// The index of the interval of each element (one axis), 0 for elements outside all intervals;
    /// and whether the element is in an interval.
    #[track_caller]
    fn interval(&self, edges: &Tensor) -> Result<(Tensor, Tensor)> {
        let count = edges.numel() as i64 - 1;
        let dtype = self.dtype().promote(edges.dtype())?;
        let (x, sorted) = (self.astype(dtype)?, edges.astype(dtype)?);
        let at = x.counted_below(&sorted, true)?.sub(1)?;
        let last = x.eq(&sorted.index(&[super::Index::At(-1)])?)?;
        let at = crate::where_(&last, count - 1, &at)?;
        let inside = at.ge(0)?.bitwise_and(&at.lt(count)?)?;
        Ok((crate::where_(&inside, &at, 0)?, inside))
    }

    /// One weight per element, in row-major order; ones if there are no weights.
    fn weights_of(&self, op: &'static str, weights: Option<&Tensor>) -> Result<Tensor> {
        match weights {
            None => Tensor::ones([self.numel()], DType::I64),
            Some(weights) if weights.shape() == self.shape() => weights.reshape(-1),
            Some(weights) => {
                let reason = "the weights must have the tensor's shape".into();
                let (lhs, rhs) = (self.shape(), weights.shape());
                Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into())
            }
        }
    }
}

/// Fails unless the smallest and the largest element are finite, and so is their distance: there are
/// no equal intervals between them otherwise. Evaluates both, unless a traced function computes
/// them.
#[track_caller]
fn finite(low: &Tensor, high: &Tensor) -> Result<()> {
    let Some(values) = known(&crate::stack(&[low, high, &high.sub(low)?], 0)?)? else {
        return Ok(());
    };
    match values.iter().all(|value| value.is_finite()) {
        true => Ok(()),
        false => Err(Error::InvalidArgument(format!(
            "histogram: the elements range from {} to {}, which is no finite range; give a range, or \
             replace NaN and infinities",
            values[0], values[1]
        ))),
    }
}

/// Fails unless edges ascend; equal neighbours are allowed. Evaluates the edges. Edges that a
/// traced function computes have no values yet and are not checked.
#[track_caller]
fn ascending(edges: &Tensor) -> Result<()> {
    let Some(values) = known(edges)? else { return Ok(()) };
    match values.windows(2).position(|pair| pair[0] > pair[1]) {
        None => Ok(()),
        Some(at) => Err(Error::InvalidArgument(format!(
            "histogram: edges must ascend, got {} before {} at index {at}; sort them first",
            values[at],
            values[at + 1]
        ))),
    }
}

/// The number of points in each cell of a grid, or the sum of their weights, with a row per
/// interval of `x` and a column per interval of `y`; and the edges of both. Intervals, weights,
/// densities and dtypes are those of [`Tensor::histogram`].
///
/// Errors: those of [`Tensor::histogram`]; a shape error unless `x` and `y` have one axis and the
/// same length.
#[track_caller]
pub fn histogram2d(
    x: &Tensor,
    y: &Tensor,
    bins: [&Bins<'_>; 2],
    weights: Option<&Tensor>,
    heights: Heights,
) -> Result<(Tensor, Tensor, Tensor)> {
    if x.rank() != 1 || x.shape() != y.shape() {
        let reason = "one x and one y per point are expected, along one axis".into();
        let (op, lhs, rhs) = ("histogram2d", x.shape(), y.shape());
        return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
    }
    let (rows, columns) = (x.histogram_bin_edges(bins[0])?, y.histogram_bin_edges(bins[1])?);
    let (height, width) = (rows.numel() - 1, columns.numel() - 1);
    let ((at_x, in_x), (at_y, in_y)) = (x.interval(&rows)?, y.interval(&columns)?);
    let weights = x.weights_of("histogram2d", weights)?;
    let inside = in_x.bitwise_and(&in_y)?;
    let counted = crate::where_(&inside, &weights, &Tensor::zeros([], weights.dtype())?)?;
    let at = at_x.mul(width as i64)?.add(&at_y)?;
    let total = counted.gathered_into(&at, height * width)?;
    let total = total.reshape([height as i64, width as i64])?;
    if heights == Heights::Counts {
        return Ok((total, rows, columns));
    }
    let dtype = rows.dtype().promote(columns.dtype())?.to_float();
    let total = total.astype(dtype)?;
    let share = total.div(&total.sum_all()?)?;
    let (heights, widths) = (rows.diff(1, 0, None, None)?, columns.diff(1, 0, None, None)?);
    let out = share.div(&heights.unsqueeze(1)?)?.div(&widths)?;
    Ok((out, rows, columns))
}

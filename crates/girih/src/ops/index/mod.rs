//! Indexing: basic indices as lazy views, gathers by integer tensors and masks, and updates of
//! indexed elements.

mod bounds;
mod counts;
mod entries;
mod plan;
mod search;
mod sized;
mod symbolic;
mod update;

pub use bounds::OutOfRange;
pub use counts::{Bins, Heights, histogram2d};
pub use entries::{IndexRange, Indices};
pub use search::{Unique, broadcast_shapes};
pub(crate) use search::{integers, known};
pub use update::Update;

use super::Size;
use crate::{Result, Tensor};
use girih_ir::ops::SliceDim;
use girih_ir::shape::normalize_axis;
use girih_ir::{Attrs, AxisSet, DType, Dim, Op, OpCode, Shape};
use plan::{Axis, IndexPlan};

/// One entry of an index expression, as in `x[i, a:b:c, ..., None]`.
#[derive(Clone)]
pub enum Index {
    /// A single position; the axis is removed. A negative position counts from the end.
    At(i64),
    /// `start:stop:step` with NumPy's rules for omitted and out-of-range bounds.
    Slice {
        /// The first index.
        start: Option<i64>,
        /// The index before which the slice stops.
        stop: Option<i64>,
        /// The step, not zero; a negative step runs backwards.
        step: i64,
    },
    /// A single position that may be symbolic.
    AtSize(Dim),
    /// `start:stop`, whose bounds may be symbolic.
    Between {
        /// The first index.
        start: Option<Size>,
        /// The index before which the slice stops.
        stop: Option<Size>,
    },
    /// As many whole axes as needed.
    Ellipsis,
    /// A new axis of size one.
    NewAxis,
    /// Positions given by a tensor of integers. Several such tensors broadcast together. Their axes
    /// replace the first indexed axis; if other entries lie between the tensors or an
    /// [`Index::At`], their axes come first, as in NumPy.
    Take(Tensor),
    /// Like [`Index::Take`], with known smallest and largest position: see [`Index::listed`].
    Listed {
        /// The positions.
        tensor: Tensor,
        /// The smallest position; 0 if there are no positions.
        least: i128,
        /// The largest position; -1 if there are no positions.
        most: i128,
    },
    /// The positions where a bool tensor is true; the mask covers as many axes as it has. A mask of
    /// rank 0 adds an axis of size one or zero.
    Mask(Tensor),
}

impl Index {
    /// The whole axis.
    pub const ALL: Index = Index::Slice { start: None, stop: None, step: 1 };

    /// The entry with symbolic sizes replaced by their values; guards fix the sizes to these
    /// values.
    fn fixed(&self) -> Index {
        match self {
            Index::AtSize(at) => Index::At(at.get() as i64),
            Index::Between { start, stop } => {
                Index::Slice { start: start.map(Size::get), stop: stop.map(Size::get), step: 1 }
            }
            other => other.clone(),
        }
    }

    /// An index by a tensor whose positions are read now. A position out of range is then an error
    /// of the indexing call, not of the evaluation of its result. Evaluates the tensor; meant for
    /// host data.
    ///
    /// Errors: those of evaluation.
    pub fn listed(tensor: Tensor) -> Result<Index> {
        let (dtype, bytes) = (tensor.dtype(), tensor.to_bytes()?);
        let position = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            girih_ir::Literal { dtype, bits: u64::from_le_bytes(word) }.as_int()
        };
        let mut positions = bytes.chunks_exact(dtype.size()).map(position);
        let (mut least, mut most) = positions.next().map_or((0, -1), |first| (first, first));
        for position in positions {
            (least, most) = (least.min(position), most.max(position));
        }
        Ok(Index::Listed { tensor, least, most })
    }
}

impl Tensor {
    /// Indexes the tensor: a lazy view if no entry is a tensor, else a gather. Masks are evaluated,
    /// since the result's shape depends on the number of selected elements.
    ///
    /// ```
    /// use girih::{DType, Index, Tensor};
    ///
    /// let x = Tensor::arange(0..12, DType::I64)?.reshape([3, 4])?;
    /// assert_eq!(x.index((-1, ..2))?.to_vec::<i64>()?, [8, 9]);
    /// assert_eq!(x.index((.., 1))?.to_vec::<i64>()?, [1, 5, 9]);
    /// assert_eq!(x.index((0, Index::step(.., -2)))?.to_vec::<i64>()?, [3, 1]);
    /// assert_eq!(x.index((Index::NewAxis, 1..))?.shape(), [1, 2, 4]);
    /// assert_eq!(x.index(&x.gt(9)?)?.to_vec::<i64>()?, [10, 11]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: an index error for a position out of range (when the result is computed, if a tensor
    /// contains it), too many indices, a mask that does not fit, or tensors that do not broadcast;
    /// a dtype error for index tensors that are neither integers nor bool;
    /// [`crate::Error::InvalidArgument`] for a step of zero.
    #[track_caller]
    pub fn index(&self, entries: impl Into<Indices>) -> Result<Tensor> {
        self.indexed(&entries.into())
    }

    #[track_caller]
    fn indexed(&self, entries: &[Index]) -> Result<Tensor> {
        let symbolic = |e: &Index| matches!(e, Index::Take(t) if t.shape().is_symbolic());
        if (self.shape().is_symbolic() || entries.iter().any(symbolic))
            && let Some(out) = self.index_symbolic(entries)?
        {
            return Ok(out);
        }
        let plan = IndexPlan::new("index", &self.shape(), entries)?;
        let x = self.under(&plan.from)?;
        let range = plan.range();
        let out = match range {
            None => x.part(&plan.outside(None))?,
            // The slices of the other axes are views through which the gather reads.
            Some((axis, last)) if axis == last => {
                let Axis::Take(by) = &plan.axes[axis] else { unreachable!("found by range()") };
                x.part(&plan.outside(range))?.take(&by.tensor, axis as i64)?
            }
            // Merging axes requires dense axes, so take the slices of the other axes afterwards.
            Some((first, last)) => {
                let taken =
                    x.merged(first, last)?.take(&plan.linear((first, last))?, first as i64)?;
                let added = plan.common.rank() + plan.between((first, last)).len();
                let outside = plan.outside(range);
                let inner = &taken.shape()[first..first + added];
                let whole = inner.iter().map(|&size| (SliceDim { start: 0, size, step: 1 }, false));
                let parts = outside[..first].iter().copied().chain(whole);
                taken.part(&parts.chain(outside[last + 1..].iter().copied()).collect::<Vec<_>>())?
            }
        };
        let out = out.under(&plan.in_place().0)?;
        match plan.order() {
            None => Ok(out),
            Some(order) => out.permuted(order),
        }
    }

    /// Reshapes the tensor; the same tensor if it has the shape already.
    #[track_caller]
    fn under(&self, shape: &Shape) -> Result<Tensor> {
        if self.shape() == *shape {
            return Ok(self.clone());
        }
        Tensor::record(Op::new(OpCode::Reshape, Attrs::shape(shape.clone())), &[self])
    }

    #[track_caller]
    fn permuted(&self, order: Vec<usize>) -> Result<Tensor> {
        Tensor::record(Op::new(OpCode::Permute, Attrs::perm(order)), &[self])
    }

    /// Merges axes `first..=last` into one.
    #[track_caller]
    fn merged(&self, first: usize, last: usize) -> Result<Tensor> {
        let shape = self.shape();
        let size = shape[first..=last].iter().product();
        let sizes = shape[..first].iter().chain([&size]).chain(&shape[last + 1..]);
        self.under(&sizes.copied().collect())
    }

    /// Slices each axis, some of them backwards; the same tensor if everything is taken.
    #[track_caller]
    fn part(&self, parts: &[(SliceDim, bool)]) -> Result<Tensor> {
        let out = match is_whole(parts, &self.shape()) {
            true => self.clone(),
            false => self.slice_dims(parts.iter().map(|p| p.0).collect())?,
        };
        out.flipped(parts)
    }

    /// Reverses the axes of backward slices.
    #[track_caller]
    fn flipped(&self, parts: &[(SliceDim, bool)]) -> Result<Tensor> {
        let backward = |(i, p): (usize, &(SliceDim, bool))| p.1.then_some(i);
        let axes: AxisSet = parts.iter().enumerate().filter_map(backward).collect();
        match axes.is_empty() {
            true => Ok(self.clone()),
            false => Tensor::record(Op::new(OpCode::Flip, Attrs::axes(axes, false)), &[self]),
        }
    }

    /// Slices along an axis by index; the indices' axes replace the axis. Negative indices count
    /// from the end; an index out of range is an error when the result is computed.
    #[track_caller]
    pub fn take(&self, indices: &Tensor, axis: i64) -> Result<Tensor> {
        let axis = normalize_axis("take", axis, self.rank())?;
        Tensor::record(Op::new(OpCode::Take, Attrs::Axis(axis as u8)), &[self, indices])
    }

    /// One element per index along an axis, with the other coordinates unchanged. The other axes
    /// broadcast.
    #[track_caller]
    pub fn take_along_axis(&self, indices: &Tensor, axis: i64) -> Result<Tensor> {
        let axis = normalize_axis("take_along_axis", axis, self.rank())?;
        let (x, indices) = self.lanes("take_along_axis", indices, axis)?;
        let op = Op::new(OpCode::TakeAlongAxis, Attrs::Axis(axis as u8));
        Tensor::record(op, &[&x, &indices])
    }

    /// The element at each index along an axis, with the other coordinates unchanged. The result
    /// has the shape of the indices, whose other axes may be shorter than the tensor's.
    ///
    /// Errors: a shape error for indices of another rank, or with a longer axis other than `axis`;
    /// index errors when the result is computed.
    #[track_caller]
    pub fn gather(&self, indices: &Tensor, axis: i64) -> Result<Tensor> {
        let op = "gather";
        let axis = normalize_axis(op, axis, self.rank())?;
        let (shape, by) = (self.shape(), indices.shape());
        let others = (0..shape.rank()).filter(|&a| a != axis);
        if by.rank() != shape.rank() || others.clone().any(|a| by[a] > shape[a]) {
            let reason = format!(
                "the indices must have as many axes as the tensor, none but axis {axis} longer"
            );
            return Err(girih_ir::Error::ShapeMismatch { op, lhs: shape, rhs: by, reason }.into());
        }
        let mut x = self.clone();
        for a in others.filter(|&a| !by.dim(a).equals(shape.dim(a))) {
            x = x.narrow(a as i64, 0, by[a])?;
        }
        let op = Op::new(OpCode::TakeAlongAxis, Attrs::Axis(axis as u8));
        Tensor::record(op, &[&x, indices])
    }

    /// One-hot rows on a new last axis: one at the given index and zero elsewhere.
    ///
    /// Errors: a dtype error unless the indices are integers; an index error, when the result is
    /// computed, for an index outside `0..classes`.
    #[track_caller]
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Result<Tensor> {
        if !self.dtype().is_int() {
            let expected = "an integer dtype for the indices";
            let (op, dtype) = ("one_hot", self.dtype());
            return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
        }
        let columns = Tensor::iota([classes], 0, DType::I64)?;
        self.check_labels(classes)?.unsqueeze(-1)?.eq(&columns)?.astype(dtype)
    }

    /// Class labels as i64; a label outside `0..classes` is an error when the result is computed.
    #[track_caller]
    pub(crate) fn check_labels(&self, classes: usize) -> Result<Tensor> {
        Tensor::record(Op::new(OpCode::CheckLabel, Attrs::Size(classes)), &[self])
    }

    /// Indices of an axis of `size` elements as i64, counted from its front; an index outside of the
    /// axis is an error when the result is computed.
    #[track_caller]
    pub(crate) fn counted_from_front(&self, size: usize) -> Result<Tensor> {
        Tensor::record(Op::new(OpCode::WrapIndex, Attrs::Size(size)), &[self])
    }

    /// Broadcasts this tensor and indices along one of its axes on all other axes.
    #[track_caller]
    fn lanes(&self, op: &'static str, indices: &Tensor, axis: usize) -> Result<(Tensor, Tensor)> {
        let (shape, by) = (self.shape(), indices.shape());
        if shape.rank() != by.rank() {
            let reason = "tensor and indices must have as many axes".to_string();
            let (lhs, rhs) = (shape, by);
            return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
        }
        let common = shape.with_dim(axis, 1usize).broadcast(&by.with_dim(axis, 1usize), op)?;
        let x = self.broadcast_to(common.with_dim(axis, shape.dim(axis)))?;
        Ok((x, indices.broadcast_to(common.with_dim(axis, by.dim(axis)))?))
    }
}

/// Whether the slices cover the whole shape, in any direction.
fn is_whole(parts: &[(SliceDim, bool)], shape: &Shape) -> bool {
    let whole = |(p, &size): (&(SliceDim, bool), &usize)| {
        p.0.start == 0 && p.0.size == size && p.0.step == 1
    };
    parts.iter().zip(shape.iter()).all(whole)
}

impl IndexPlan {
    /// The positions of the indexed elements along the merged axes `first..=last`. The result has
    /// the axes of the index tensors, then those of the slices between them. Each index is checked
    /// against its own axis.
    #[track_caller]
    fn linear(&self, (first, last): (usize, usize)) -> Result<Tensor> {
        let between = self.between((first, last));
        let (rank, count) = (self.common.rank(), between.len());
        let full: Shape = self.common.iter().chain(&between).copied().collect();
        let strides = Shape::from(&self.from[first..=last]).strides();
        let (mut sum, mut fixed, mut seen): (Option<Tensor>, i64, usize) = (None, 0, 0);
        for (axis, &stride) in (first..=last).zip(&strides) {
            let stride = stride as i64;
            let term = match &self.axes[axis] {
                Axis::At(i) => {
                    fixed += *i as i64 * stride;
                    continue;
                }
                Axis::Take(by) => {
                    let wrap = Op::new(OpCode::WrapIndex, Attrs::Size(self.from[axis]));
                    let inside = match by.inside {
                        true => by.tensor.clone(),
                        false => Tensor::record(wrap, &[&by.tensor])?,
                    };
                    let shape = by.tensor.shape();
                    let sizes = shape.iter().copied().chain(std::iter::repeat_n(1, count));
                    inside.scaled(stride)?.under(&sizes.collect())?
                }
                &Axis::Part(dim, backward) => {
                    let last = dim.size.saturating_sub(1) * dim.step;
                    let (start, step) = match backward {
                        true => (dim.start + last, -(dim.step as i64)),
                        false => (dim.start, dim.step as i64),
                    };
                    fixed += start as i64 * stride;
                    let iota = Tensor::iota(full.clone(), rank + seen, DType::I64)?;
                    seen += 1;
                    iota.scaled(step * stride)?
                }
            };
            sum = Some(match sum {
                None => term,
                Some(sum) => sum.add(&term)?,
            });
        }
        let sum = sum.expect("the first axis is indexed by a tensor");
        let sum = if fixed == 0 { sum } else { sum.add(fixed)? };
        sum.broadcast_to(full)
    }
}

impl Tensor {
    #[track_caller]
    fn scaled(&self, factor: i64) -> Result<Tensor> {
        if factor == 1 { Ok(self.clone()) } else { self.mul(factor) }
    }
}

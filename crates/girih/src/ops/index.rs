//! Indexing: basic indices as lazy views, and elements addressed by tensors of integers.

use crate::{Error, Result, Tensor};
use girih_ir::ops::SliceDim;
use girih_ir::shape::normalize_axis;
use girih_ir::{Attrs, AxisSet, Op, OpCode, Shape};

/// One entry of an index expression, as in `x[i, a:b:c, ..., None]`.
#[derive(Clone)]
pub enum Index {
    /// A single position; the axis disappears. Negative counts from the end.
    At(i64),
    /// `start:stop:step` with NumPy's rules for what is left out or out of range.
    Slice {
        /// First index.
        start: Option<i64>,
        /// Index before which to stop.
        stop: Option<i64>,
        /// Distance, not zero; negative runs backwards.
        step: i64,
    },
    /// As many full axes as are needed.
    Ellipsis,
    /// A new axis of size one.
    NewAxis,
    /// Positions given by a tensor of integers, whose axes replace the indexed one; or come first,
    /// as in NumPy, where other entries lie between it and an [`Index::At`].
    Take(Tensor),
}

/// What one axis comes to: the positive-step part, and whether to run through it backwards.
fn resolve_slice(
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
    size: usize,
) -> Result<(SliceDim, bool)> {
    if step == 0 {
        return Err(Error::InvalidArgument("slice: the step must not be zero".into()));
    }
    let n = size as i64;
    let clamp = |i: i64, low: i64, high: i64| {
        let i = if i < 0 { i.saturating_add(n) } else { i };
        i.clamp(low, high)
    };
    let backward = step < 0;
    let (low, high) = if backward { (-1, n - 1) } else { (0, n) };
    let start = start.map_or(if backward { high } else { low }, |i| clamp(i, low, high));
    let stop = stop.map_or(if backward { low } else { high }, |i| clamp(i, low, high));
    let distance = if backward { start - stop } else { stop - start };
    let stride = step.unsigned_abs();
    let count = (distance.max(0) as u64).div_ceil(stride) as usize;
    let first = match (backward, count) {
        (_, 0) => 0,
        (false, _) => start as usize,
        (true, _) => start as usize - (count - 1) * stride as usize,
    };
    Ok((SliceDim { start: first, size: count, step: (stride as usize).min(size.max(1)) }, backward))
}

/// True if positions and tensors of positions have other entries between them.
fn is_split(entries: &[Index]) -> bool {
    let positions = |e: &Index| matches!(e, Index::At(_) | Index::Take(_));
    let (first, last) = (entries.iter().position(positions), entries.iter().rposition(positions));
    let (Some(first), Some(last)) = (first, last) else { return false };
    !entries[first..=last].iter().all(positions)
}

/// What the entries of an index expression come to, axis by axis.
#[derive(Default)]
struct Resolved {
    dims: Vec<SliceDim>,
    flipped: AxisSet,
    /// The shape of the result, but for what `take` puts in.
    shape: Vec<usize>,
    /// Position in `shape` and indices of the one tensor index.
    take: Option<(usize, Tensor)>,
}

impl Resolved {
    fn whole_axes(&mut self, sizes: &[usize]) {
        for &size in sizes {
            self.dims.push(SliceDim { start: 0, size, step: 1 });
            self.shape.push(size);
        }
    }

    fn axis(&mut self, index: &Index, size: usize) -> Result<()> {
        let axis = self.dims.len();
        match index {
            &Index::At(i) => {
                let n = size as i64;
                if !(-n..n).contains(&i) {
                    let op = "index";
                    return Err(
                        girih_ir::Error::IndexOutOfBounds { op, index: i, axis, size }.into()
                    );
                }
                self.dims.push(SliceDim { start: i.rem_euclid(n) as usize, size: 1, step: 1 });
            }
            &Index::Slice { start, stop, step } => {
                let (dim, backward) = resolve_slice(start, stop, step, size)?;
                if backward {
                    self.flipped.insert(axis);
                }
                self.shape.push(dim.size);
                self.dims.push(dim);
            }
            Index::Take(indices) => {
                if self.take.is_some() {
                    return Err(Error::InvalidArgument(
                        "index: one tensor of indices at a time; use take_along_axis, or index \
                         again"
                            .into(),
                    ));
                }
                self.take = Some((self.shape.len(), indices.clone()));
                self.whole_axes(&[size]);
            }
            Index::Ellipsis | Index::NewAxis => unreachable!("they index no axis"),
        }
        Ok(())
    }
}

impl Tensor {
    /// The part an index expression names, as a lazy view where it names no tensor.
    ///
    /// Errors: an index error for a position outside its axis or too many indices;
    /// [`Error::InvalidArgument`] for a step of zero, two ellipses, or two tensors of indices.
    #[track_caller]
    pub fn index(&self, entries: &[Index]) -> Result<Tensor> {
        let shape = self.shape();
        let indexed =
            entries.iter().filter(|e| !matches!(e, Index::Ellipsis | Index::NewAxis)).count();
        if indexed > shape.rank() {
            let (op, given, rank) = ("index", indexed, shape.rank());
            return Err(girih_ir::Error::TooManyIndices { op, given, rank }.into());
        }
        if entries.iter().filter(|e| matches!(e, Index::Ellipsis)).count() > 1 {
            return Err(Error::InvalidArgument("index: only one ellipsis may be given".into()));
        }
        let spare = shape.rank() - indexed;
        let mut resolved = Resolved::default();
        for entry in entries {
            let axis = resolved.dims.len();
            match entry {
                Index::NewAxis => resolved.shape.push(1),
                Index::Ellipsis => resolved.whole_axes(&shape[axis..axis + spare]),
                entry => resolved.axis(entry, shape[axis])?,
            }
        }
        resolved.whole_axes(&shape[resolved.dims.len()..]);
        let taken = resolved.take.as_ref().map(|(axis, indices)| (*axis, indices.rank()));
        let out = self.apply(resolved)?;
        match taken {
            Some((axis, count)) if is_split(entries) => {
                let rank = out.rank() as i64;
                let (axis, count) = (axis as i64, count as i64);
                let axes = (axis..axis + count).chain(0..axis).chain(axis + count..rank);
                out.permute(&axes.collect::<Vec<_>>())
            }
            _ => Ok(out),
        }
    }

    #[track_caller]
    fn apply(&self, resolved: Resolved) -> Result<Tensor> {
        let Resolved { dims, flipped, shape, take } = resolved;
        let from = self.shape();
        let whole = |(d, &size): (&SliceDim, &usize)| d.start == 0 && d.size == size && d.step == 1;
        let mut out = match dims.iter().zip(from.iter()).all(whole) {
            true => self.clone(),
            false => self.slice_dims(dims)?,
        };
        if !flipped.is_empty() {
            out = Tensor::record(Op::new(OpCode::Flip, Attrs::axes(flipped, false)), &[&out])?;
        }
        let shape: Shape = shape.into();
        if out.shape() != shape {
            out = Tensor::record(Op::new(OpCode::Reshape, Attrs::shape(shape)), &[&out])?;
        }
        match take {
            None => Ok(out),
            Some((axis, indices)) => out.take(&indices, axis as i64),
        }
    }

    /// Slices along an axis by index; the indices' axes replace it. Negative indices count from
    /// the end; an index outside the axis is an error when the result is computed.
    #[track_caller]
    pub fn take(&self, indices: &Tensor, axis: i64) -> Result<Tensor> {
        let axis = normalize_axis("take", axis, self.rank())?;
        Tensor::record(Op::new(OpCode::Take, Attrs::Axis(axis as u8)), &[self, indices])
    }

    /// One element per index along an axis, the other coordinates unchanged.
    #[track_caller]
    pub fn take_along_axis(&self, indices: &Tensor, axis: i64) -> Result<Tensor> {
        let axis = normalize_axis("take_along_axis", axis, self.rank())?;
        Tensor::record(Op::new(OpCode::TakeAlongAxis, Attrs::Axis(axis as u8)), &[self, indices])
    }

    /// Rows that are one at the given index and zero elsewhere, on a new last axis. An index
    /// outside `0..classes` gives a row of zeros.
    #[track_caller]
    pub fn one_hot(&self, classes: usize, dtype: girih_ir::DType) -> Result<Tensor> {
        if !self.dtype().is_int() {
            let expected = "an integer dtype for the indices";
            let (op, dtype) = ("one_hot", self.dtype());
            return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
        }
        let columns = Tensor::iota([classes], 0, girih_ir::DType::I64)?;
        self.astype(girih_ir::DType::I64)?.unsqueeze(-1)?.eq(&columns)?.astype(dtype)
    }
}

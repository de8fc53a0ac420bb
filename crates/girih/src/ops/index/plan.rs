//! Plans of index expressions, by NumPy's rules: entries are resolved axis by axis, masks are
//! converted to positions, and the position of the index tensors' axes in the result is determined.
//! Reading and updating use the same plan.

use super::Index;
use crate::{Error, Result, Tensor};
use girih_ir::ops::SliceDim;
use girih_ir::{DType, Shape};

/// The operation along one axis of `from`.
pub(super) enum Axis {
    /// A slice, reversed if the flag is set.
    Part(SliceDim, bool),
    /// A single position.
    At(usize),
    /// Positions given by a tensor.
    Take(Positions),
}

/// Positions along one axis, given by a tensor.
pub(super) struct Positions {
    pub tensor: Tensor,
    /// Whether all positions are known to be in range and not negative.
    pub inside: bool,
}

/// An entry of the expression as it appears in the result, in order.
enum Slot {
    NewAxis,
    Axis(usize),
}

/// An index expression resolved against a shape.
pub(super) struct IndexPlan {
    /// The indexed shape with the axes of each mask merged into one, and an axis of size one for
    /// each mask of rank 0.
    pub from: Shape,
    /// The operation along each axis of `from`.
    pub axes: Vec<Axis>,
    slots: Vec<Slot>,
    /// Whether other entries separate positions and index tensors; the index tensors' axes then
    /// come first.
    split: bool,
    /// The broadcast shape of the index tensors.
    pub common: Shape,
}

/// Resolves a slice: the equivalent slice with a positive step, and whether it is reversed.
pub(super) fn resolve_slice(
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

/// Whether other entries separate positions and index tensors.
fn is_split(entries: &[Index]) -> bool {
    let positions = |e: &Index| {
        matches!(
            e,
            Index::At(_)
                | Index::AtSize(_)
                | Index::Take(_)
                | Index::Listed { .. }
                | Index::Mask(_)
        )
    };
    let (first, last) = (entries.iter().position(positions), entries.iter().rposition(positions));
    let (Some(first), Some(last)) = (first, last) else { return false };
    !entries[first..=last].iter().all(positions)
}

/// The number of axes of the indexed tensor that an entry consumes.
pub(super) fn taken_axes(entry: &Index) -> usize {
    match entry {
        Index::Ellipsis | Index::NewAxis => 0,
        Index::At(_)
        | Index::AtSize(_)
        | Index::Slice { .. }
        | Index::Between { .. }
        | Index::Take(_)
        | Index::Listed { .. } => 1,
        Index::Mask(mask) => mask.rank(),
    }
}

/// Checks how many axes the entries consume; returns the number of axes of the ellipsis, or of the
/// omitted trailing entries.
pub(super) fn spare_axes(op: &'static str, entries: &[Index], rank: usize) -> Result<usize> {
    let given: usize = entries.iter().map(taken_axes).sum();
    if given > rank {
        return Err(girih_ir::Error::TooManyIndices { op, given, rank }.into());
    }
    if entries.iter().filter(|e| matches!(e, Index::Ellipsis)).count() > 1 {
        return Err(invalid(op, "only one ellipsis (...) may be given".into()));
    }
    Ok(rank - given)
}

/// Fails for a position out of range.
fn in_axis(op: &'static str, index: i128, axis: usize, size: usize) -> Result<()> {
    let n = size as i128;
    match (-n..n).contains(&index) {
        true => Ok(()),
        false => {
            let index = index.into();
            Err(girih_ir::Error::IndexOutOfBounds { op, index, axis, size }.into())
        }
    }
}

fn invalid(op: &'static str, reason: String) -> Error {
    girih_ir::Error::InvalidIndex { op, reason }.into()
}

impl IndexPlan {
    /// Resolves entries against a shape. Masks are evaluated, since the shape of the result depends
    /// on their number of positions.
    ///
    /// Errors: index errors for positions out of range, too many indices, masks that do not fit
    /// their axes, and tensors that do not broadcast together; a dtype error for index tensors that
    /// are neither integers nor bool.
    pub fn new(op: &'static str, shape: &Shape, entries: &[Index]) -> Result<IndexPlan> {
        let spare = spare_axes(op, entries, shape.rank())?;
        let mut plan = IndexPlan {
            from: Shape::scalar(),
            axes: Vec::with_capacity(shape.rank()),
            slots: Vec::with_capacity(entries.len() + spare),
            split: false,
            common: Shape::scalar(),
        };
        let mut axis = 0;
        for entry in entries {
            match entry {
                Index::NewAxis => plan.slots.push(Slot::NewAxis),
                Index::Ellipsis => {
                    plan.whole(&shape[axis..axis + spare]);
                    axis += spare;
                }
                Index::Mask(mask) => plan.mask(op, mask, axis, &shape[axis..])?,
                entry => plan.axis(op, entry, axis, shape[axis])?,
            }
            axis += taken_axes(entry);
        }
        plan.whole(&shape[axis..]);
        plan.split = is_split(entries);
        Ok(plan)
    }

    fn push(&mut self, size: usize, axis: Axis) {
        self.from.push(size);
        self.slots.push(Slot::Axis(self.axes.len()));
        self.axes.push(axis);
    }

    fn whole(&mut self, sizes: &[usize]) {
        for &size in sizes {
            self.push(size, Axis::Part(SliceDim { start: 0, size, step: 1 }, false));
        }
    }

    fn axis(&mut self, op: &'static str, entry: &Index, axis: usize, size: usize) -> Result<()> {
        match entry {
            Index::AtSize(_) | Index::Between { .. } => {
                self.axis(op, &entry.fixed(), axis, size)?;
            }
            &Index::At(index) => {
                in_axis(op, index.into(), axis, size)?;
                self.push(size, Axis::At(index.rem_euclid(size as i64) as usize));
            }
            &Index::Slice { start, stop, step } => {
                let (dim, backward) = resolve_slice(start, stop, step, size)?;
                self.push(size, Axis::Part(dim, backward));
            }
            Index::Listed { tensor, least, most } => {
                if tensor.numel() > 0 {
                    in_axis(op, *most, axis, size)?;
                    in_axis(op, *least, axis, size)?;
                }
                self.meet(op, &tensor.shape())?;
                let positions = Positions { tensor: tensor.clone(), inside: *least >= 0 };
                self.push(size, Axis::Take(positions));
            }
            Index::Take(tensor) => {
                if !tensor.dtype().is_int() {
                    let expected = "integers or bool";
                    let dtype = tensor.dtype();
                    let error = girih_ir::Error::DTypeUnsupported { op, dtype, expected };
                    return Err(error.into());
                }
                self.meet(op, &tensor.shape())?;
                if size == 0 && tensor.numel() > 0 {
                    let count = tensor.numel();
                    return Err(girih_ir::Error::EmptyAxis { op, axis, count }.into());
                }
                let tensor = tensor.clone();
                self.push(size, Axis::Take(Positions { tensor, inside: false }));
            }
            Index::Ellipsis | Index::NewAxis | Index::Mask(_) => unreachable!("handled before"),
        }
        Ok(())
    }

    fn mask(&mut self, op: &'static str, mask: &Tensor, axis: usize, rest: &[usize]) -> Result<()> {
        check_mask(op, mask, axis, &Shape::from(rest))?;
        let tensor = match mask.rank() {
            0 => {
                let count = mask.truth()? as usize;
                Tensor::zeros([count], DType::I64)?
            }
            _ => super::search::positions(mask)?,
        };
        self.meet(op, &tensor.shape())?;
        let size = rest[..mask.rank()].iter().product();
        self.push(size, Axis::Take(Positions { tensor, inside: true }));
        Ok(())
    }

    /// Broadcasts a tensor's shape with those of the previous index tensors.
    fn meet(&mut self, op: &'static str, shape: &Shape) -> Result<()> {
        match self.common.broadcast(shape, op) {
            Ok(common) => self.common = common,
            Err(_) => {
                let common = &self.common;
                return Err(invalid(
                    op,
                    format!("tensors of indices of shapes {common} and {shape} do not broadcast"),
                ));
            }
        }
        Ok(())
    }

    /// The first and the last axis of `from` that a tensor indexes, if any.
    pub fn range(&self) -> Option<(usize, usize)> {
        let takes = |a: &Axis| matches!(a, Axis::Take(_));
        let first = self.axes.iter().position(takes)?;
        self.axes.iter().rposition(takes).map(|last| (first, last))
    }

    /// The slice of each axis outside `range` (of every axis without a range), and the whole axis
    /// inside; with a flag for reversed slices.
    pub fn outside(&self, range: Option<(usize, usize)>) -> Vec<(SliceDim, bool)> {
        let inside = |i: usize| range.is_some_and(|(first, last)| (first..=last).contains(&i));
        let part = |(i, axis): (usize, &Axis)| match *axis {
            _ if inside(i) => (SliceDim { start: 0, size: self.from[i], step: 1 }, false),
            Axis::Part(dim, backward) => (dim, backward),
            Axis::At(start) => (SliceDim { start, size: 1, step: 1 }, false),
            Axis::Take(_) => unreachable!("axes indexed by tensors are inside the range"),
        };
        self.axes.iter().enumerate().map(part).collect()
    }

    /// The sizes of the slices between the first and the last axis that a tensor indexes.
    pub fn between(&self, (first, last): (usize, usize)) -> Vec<usize> {
        let size = |axis: &Axis| match axis {
            Axis::Part(dim, _) => Some(dim.size),
            Axis::At(_) | Axis::Take(_) => None,
        };
        self.axes[first..=last].iter().filter_map(size).collect()
    }

    /// The shape of the result with the index tensors' axes at the first indexed axis; and the
    /// number of axes before them.
    pub fn in_place(&self) -> (Shape, usize) {
        let mut shape = Shape::scalar();
        let mut before = None;
        for slot in &self.slots {
            match slot {
                Slot::NewAxis => shape.push(1),
                &Slot::Axis(axis) => match &self.axes[axis] {
                    Axis::Part(dim, _) => shape.push(dim.size),
                    Axis::At(_) => {}
                    Axis::Take(_) if before.is_none() => {
                        before = Some(shape.rank());
                        self.common.iter().for_each(|&size| shape.push(size));
                    }
                    Axis::Take(_) => {}
                },
            }
        }
        (shape, before.unwrap_or(0))
    }

    /// The permutation that moves the index tensors' axes to the front of the result, if it differs
    /// from `in_place`.
    pub fn order(&self) -> Option<Vec<usize>> {
        let ((shape, before), count) = (self.in_place(), self.common.rank());
        if !self.split || before == 0 || count == 0 {
            return None;
        }
        Some(
            (before..before + count).chain(0..before).chain(before + count..shape.rank()).collect(),
        )
    }

    /// The shape of the result.
    pub fn result(&self) -> Shape {
        let (shape, _) = self.in_place();
        match self.order() {
            None => shape,
            Some(order) => order.into_iter().map(|axis| shape[axis]).collect(),
        }
    }
}

/// Fails unless the mask has the sizes of the axes that it covers.
pub(super) fn check_mask(op: &'static str, mask: &Tensor, axis: usize, rest: &Shape) -> Result<()> {
    for (i, (have, want)) in mask.shape().dims().zip(rest.dims()).enumerate() {
        if !have.equals(want) {
            let axis = axis + i;
            return Err(invalid(
                op,
                format!("a mask of size {have} does not fit axis {axis} of size {want}"),
            ));
        }
    }
    Ok(())
}

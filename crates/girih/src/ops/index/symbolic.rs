//! Index expressions on tensors with symbolic sizes. An axis keeps its symbol if it is taken whole,
//! if it is sliced or indexed at a known or symbolic distance from either end, or if it is indexed
//! by a single tensor. Other expressions fix the sizes and use the general implementation.
//!
//! A slice must start at a known number. A slice at a known distance from the end is therefore
//! taken from the reversed axis, where it has that distance from the start.

use super::{Index, Update};
use crate::ops::elementwise::binary;
use crate::ops::{Operand, Size};
use crate::{Result, Tensor};
use girih_ir::ops::{OfSize, Real, SliceDim};
use girih_ir::{Attrs, AxisSet, DType, Dim, Op, OpCode, Shape, TensorSpec};
use girih_record::node::State;
use std::sync::Arc;

/// The slice of an axis, and its symbolic size.
#[derive(Clone, Copy)]
struct Taken {
    dim: SliceDim,
    size: Dim,
    /// Whether the axis is reversed before the slice, and the slice afterwards.
    before: bool,
    after: bool,
}

impl Taken {
    fn forward(start: usize, size: Dim, step: usize) -> Taken {
        let dim = SliceDim { start, size: size.hint(), step };
        Taken { dim, size, before: false, after: false }
    }

    fn whole(size: Dim) -> Taken {
        Taken::forward(0, size, 1)
    }
}

/// A position on an axis, by its distance from the start or from the end.
#[derive(Clone, Copy)]
enum Position {
    Front(Dim),
    Back(Dim),
}

impl Position {
    /// The position of a slice's bound; a bound beyond the axis is at its end.
    fn of(bound: Size, axis: Dim) -> Position {
        match bound {
            Size::Known(at) if at < 0 => {
                let distance = at.unsigned_abs() as usize;
                match axis.at_least(distance) {
                    true => Position::Back(distance.into()),
                    false => Position::Front(0.into()),
                }
            }
            Size::Known(at) if axis.at_least(at as usize) => Position::Front((at as usize).into()),
            Size::Symbolic(at) if axis.at_least(at) => match (axis - at).known() {
                Some(distance) => Position::Back(distance.into()),
                None => Position::Front(at),
            },
            _ => Position::Back(0.into()),
        }
    }

    fn index_in(self, axis: Dim) -> Dim {
        match self {
            Position::Front(at) => at,
            Position::Back(distance) => axis - distance,
        }
    }
}

/// `start..stop` of an axis; `None` for unsupported slices.
fn cut(start: Option<Size>, stop: Option<Size>, step: i64, axis: Dim) -> Option<Taken> {
    match (start, stop, step) {
        (None, None, 1) => return Some(Taken::whole(axis)),
        (None, None, -1) => return Some(Taken { before: true, ..Taken::whole(axis) }),
        _ => {}
    }
    let step = usize::try_from(step).ok().filter(|&step| step > 0)?;
    let first = start.map_or(Position::Front(0.into()), |at| Position::of(at, axis));
    let end = stop.map_or(Position::Back(0.into()), |at| Position::of(at, axis));
    let (from, to) = (first.index_in(axis), end.index_in(axis));
    let length = if to.at_least(from) { to - from } else { 0.into() };
    let size = if step == 1 { length } else { (length + (step - 1)).floor_div(step) };
    match (first, end) {
        (Position::Front(at), _) if at.known().is_some() => {
            Some(Taken::forward(at.known()?, size, step))
        }
        (_, Position::Back(distance)) if step == 1 => {
            let taken = Taken::forward(distance.known()?, size, 1);
            Some(Taken { before: true, after: true, ..taken })
        }
        _ => None,
    }
}

/// One position of an axis; `None` for unsupported positions and positions out of range.
fn at(position: Size, axis: Dim) -> Option<Taken> {
    let one = |start| Taken::forward(start, 1.into(), 1);
    let from_end = |distance: usize| {
        axis.at_least(distance).then(|| Taken { before: true, ..one(distance - 1) })
    };
    match position {
        Size::Known(at) if at < 0 => from_end(at.unsigned_abs() as usize),
        Size::Known(at) => axis.at_least(Dim::from(at as usize) + 1usize).then(|| one(at as usize)),
        Size::Symbolic(at) if axis.at_least(at + 1usize) => from_end((axis - at).known()?),
        Size::Symbolic(_) => None,
    }
}

/// A partially resolved expression.
#[derive(Default)]
struct Resolved {
    parts: Vec<Taken>,
    /// The result's sizes without the index tensor.
    shape: Vec<Dim>,
    /// The index tensor, the axis that it indexes, and the position of its axes in the result.
    take: Option<(Tensor, usize, usize)>,
}

impl Resolved {
    fn keep(&mut self, part: Taken) -> bool {
        self.shape.push(part.size);
        self.parts.push(part);
        true
    }

    fn look_up(&mut self, by: Tensor, axis: usize, size: Dim) -> bool {
        if self.take.is_some() || size.equals(0) {
            return false;
        }
        self.take = Some((by, axis, self.shape.len()));
        self.parts.push(Taken::whole(size));
        true
    }

    /// Resolves an entry; `false` for an unsupported entry.
    fn entry(&mut self, entry: &Index, shape: &Shape, spare: usize) -> bool {
        let axis = self.parts.len();
        let one = |resolved: &mut Resolved, position| match at(position, shape.dim(axis)) {
            Some(part) => {
                resolved.parts.push(part);
                true
            }
            None => false,
        };
        match entry {
            Index::NewAxis => self.shape.push(1.into()),
            Index::Ellipsis => {
                (axis..axis + spare).for_each(|i| {
                    self.keep(Taken::whole(shape.dim(i)));
                });
            }
            &Index::Slice { start, stop, step } => {
                let (start, stop) = (start.map(Size::Known), stop.map(Size::Known));
                return cut(start, stop, step, shape.dim(axis)).is_some_and(|p| self.keep(p));
            }
            &Index::Between { start, stop } => {
                return cut(start, stop, 1, shape.dim(axis)).is_some_and(|p| self.keep(p));
            }
            &Index::At(position) => return one(self, Size::Known(position)),
            &Index::AtSize(position) => {
                let size = shape.dim(axis);
                return one(self, Size::Symbolic(position))
                    || (size.at_least(position + 1usize)
                        && self.look_up(Tensor::of_size(position), axis, size));
            }
            Index::Take(tensor) => {
                return tensor.dtype().is_int()
                    && self.look_up(tensor.clone(), axis, shape.dim(axis));
            }
            Index::Listed { .. } | Index::Mask(_) => return false,
        }
        true
    }
}

impl Tensor {
    /// A size as an i64 scalar, whose value follows the size at each call.
    pub(crate) fn of_size(size: Dim) -> Tensor {
        let of = OfSize { size, correction: Real::from(0.0), numerator: None };
        let op = Op::new(OpCode::Constant, Attrs::OfSize(Arc::new(of)));
        Tensor::with_state(op, &TensorSpec::scalar(DType::I64), State::Literal)
    }

    #[track_caller]
    fn reversed(&self, parts: &[Taken], which: impl Fn(&Taken) -> bool) -> Result<Tensor> {
        let axes: AxisSet =
            parts.iter().enumerate().filter(|(_, part)| which(part)).map(|(i, _)| i).collect();
        match axes.is_empty() {
            true => Ok(self.clone()),
            false => Tensor::record(Op::new(OpCode::Flip, Attrs::axes(axes, false)), &[self]),
        }
    }

    /// Resolves an expression for this shape; `None` if the general implementation must resolve it.
    fn resolved(&self, op: &'static str, entries: &[Index]) -> Result<Option<Resolved>> {
        let shape = self.shape();
        let spare = super::plan::spare_axes(op, entries, shape.rank())?;
        let positions = |e: &&Index| matches!(e, Index::At(_) | Index::AtSize(_) | Index::Take(_));
        let takes = entries.iter().any(|e| matches!(e, Index::Take(_)));
        if takes && entries.iter().filter(positions).count() > 1 {
            return Ok(None);
        }
        let mut found = Resolved::default();
        if !entries.iter().all(|entry| found.entry(entry, &shape, spare)) {
            return Ok(None);
        }
        for i in found.parts.len()..shape.rank() {
            found.keep(Taken::whole(shape.dim(i)));
        }
        Ok(Some(found))
    }

    /// Indexes the tensor; `None` if the general implementation must do it.
    #[track_caller]
    pub(super) fn index_symbolic(&self, entries: &[Index]) -> Result<Option<Tensor>> {
        let Some(found) = self.resolved("index", entries)? else { return Ok(None) };
        let parts = &found.parts;
        let mut out = self.reversed(parts, |part| part.before)?;
        let part: Shape = parts.iter().map(|p| p.size).collect();
        if part != self.shape() {
            out = out.slice_of(parts.iter().map(|p| p.dim).collect(), &part)?;
        }
        out = out.reversed(parts, |part| part.after)?;
        let mut result = found.shape;
        if let Some((indices, axis, at)) = found.take {
            out = out.take(&indices, axis as i64)?;
            result.splice(at..at, indices.shape().dims());
        }
        out.reshape(result.into_iter().collect::<Shape>()).map(Some)
    }

    /// Updates the indexed elements; `None` if the general implementation must do it. The value has
    /// the tensor's dtype.
    #[track_caller]
    pub(super) fn update_symbolic(
        &self,
        entries: &[Index],
        update: Update,
        value: &Tensor,
    ) -> Result<Option<Tensor>> {
        let Some(found) = self.resolved("index_update", entries)? else { return Ok(None) };
        let (parts, mut result) = (&found.parts, found.shape);
        let part: Shape = parts.iter().map(|p| p.size).collect();
        let mut shape: Vec<Dim> = part.dims().collect();
        if let Some((indices, axis, at)) = &found.take {
            result.splice(*at..*at, indices.shape().dims());
            shape.splice(*axis..*axis + 1, indices.shape().dims());
        }
        let mut value = value.clone();
        while value.rank() > result.len() && value.shape().dim(0).is(1) {
            value = value.squeeze(0)?;
        }
        let value = value.broadcast_to(Shape::of_dims(result))?.reshape(Shape::of_dims(shape))?;
        let forward = self.reversed(parts, |part| part.before)?;
        let dims: Vec<SliceDim> = parts.iter().map(|p| p.dim).collect();
        let is_part = part != self.shape();
        let old = if is_part { forward.slice_of(dims.clone(), &part)? } else { forward.clone() };
        let new = match (&found.take, update.code()) {
            (Some((indices, axis, _)), _) => old.scatter(indices, &value, *axis as i64, update)?,
            (None, code) => {
                let value = value.reversed(parts, |part| part.after)?;
                match code {
                    None => value,
                    Some(code) => binary(code, Operand::Tensor(&old), Operand::Tensor(&value))?,
                }
            }
        };
        let whole = match is_part {
            false => new,
            true => {
                let op = Op::new(OpCode::UpdateSlice, Attrs::slice(dims, &part));
                Tensor::record(op, &[&forward, &new])?
            }
        };
        whole.reversed(parts, |part| part.before).map(Some)
    }
}

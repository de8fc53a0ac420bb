//! Updates of indexed elements: each returns a new tensor in which the elements are replaced by, or
//! combined with, a value. `x.at[index].set(value)` and assignments in Python use it.

use super::plan::{Axis, IndexPlan, check_mask};
use super::{Index, Indices, is_whole};
use crate::ops::elementwise::{binary, where_};
use crate::ops::{Operand, kept_dtype, value_in};
use crate::{Result, Tensor};
use girih_ir::ops::{ScatterMode, SliceDim};
use girih_ir::{Attrs, Dim, Op, OpCode, Shape};
use std::sync::Arc;

/// The operation of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The value replaces the elements.
    Set,
    /// The value is added.
    Add,
    /// The value is subtracted.
    Subtract,
    /// The elements are multiplied by the value.
    Multiply,
    /// The elements are divided by the value.
    Divide,
    /// The elements are raised to the power of the value.
    Power,
    /// The minimum of element and value, or NaN if either is NaN.
    Min,
    /// The maximum of element and value, or NaN if either is NaN.
    Max,
}

impl Update {
    pub(super) fn code(self) -> Option<OpCode> {
        Some(match self {
            Update::Set => return None,
            Update::Add => OpCode::Add,
            Update::Subtract => OpCode::Sub,
            Update::Multiply => OpCode::Mul,
            Update::Divide => OpCode::Div,
            Update::Power => OpCode::Pow,
            Update::Min => OpCode::Minimum,
            Update::Max => OpCode::Maximum,
        })
    }

    /// The reduction of several updates of one element by a scatter, before the op or instead of
    /// it.
    fn mode(self) -> ScatterMode {
        match self {
            Update::Set => ScatterMode::Set,
            Update::Add | Update::Subtract => ScatterMode::Add,
            // x / a / b = x / (a b), and likewise for powers.
            Update::Multiply | Update::Divide | Update::Power => ScatterMode::Mul,
            Update::Min => ScatterMode::Min,
            Update::Max => ScatterMode::Max,
        }
    }
}

impl Tensor {
    /// This tensor with the indexed elements replaced by, or combined with, a value that broadcasts
    /// to them. Shape and dtype stay. If index tensors contain an element several times, all of its
    /// updates are applied; for [`Update::Set`] the last one in row-major order wins.
    ///
    /// Nothing is evaluated except masks that are combined with other tensors or with one value per
    /// element.
    ///
    /// Errors: those of [`Tensor::index`]; a shape error for a value that does not broadcast; a
    /// dtype error if the result cannot be stored in the tensor's dtype. For [`Update::Set`] the
    /// value is converted as by `astype`.
    #[doc(alias = "slice_assign")]
    #[track_caller]
    pub fn index_update<'a>(
        &self,
        entries: impl Into<Indices>,
        update: Update,
        value: impl Into<Operand<'a>>,
    ) -> Result<Tensor> {
        self.updated(&entries.into(), update, value.into())
    }

    #[track_caller]
    fn updated(&self, entries: &[Index], update: Update, value: Operand<'_>) -> Result<Tensor> {
        let value = match update {
            Update::Set => value_in(value, self.dtype())?,
            _ => {
                kept_dtype("index_update", update.code(), self.dtype(), value)?;
                value_in(value, self.dtype())?
            }
        };
        if let Some(out) = self.update_by_mask(entries, update, &value)? {
            return Ok(out);
        }
        let symbolic = |e: &Index| matches!(e, Index::Take(t) if t.shape().is_symbolic());
        if (self.shape().is_symbolic() || entries.iter().any(symbolic))
            && let Some(out) = self.update_symbolic(entries, update, &value)?
        {
            return Ok(out);
        }
        let plan = IndexPlan::new("index_update", &self.shape(), entries)?;
        let x = self.under(&plan.from)?;
        let out = x.update_by_plan(&plan, update, &value)?;
        out.under(&self.shape())
    }

    /// An update by a single mask, with a value that is the same for all selected elements: a
    /// `where`, so that the mask is not evaluated.
    #[track_caller]
    fn update_by_mask(
        &self,
        entries: &[Index],
        update: Update,
        value: &Tensor,
    ) -> Result<Option<Tensor>> {
        let whole = |e: &Index| {
            matches!(e, Index::Ellipsis | Index::Slice { start: None, stop: None, step: 1 })
        };
        let Some(at) = entries.iter().position(|e| matches!(e, Index::Mask(_))) else {
            return Ok(None);
        };
        let (Index::Mask(mask), others) = (&entries[at], (&entries[..at], &entries[at + 1..]))
        else {
            unreachable!("found just now")
        };
        let ellipsis = others.0.iter().any(|e| matches!(e, Index::Ellipsis));
        if !others.0.iter().chain(others.1).all(whole) || ellipsis {
            return Ok(None);
        }
        let (shape, count) = (self.shape(), mask.rank());
        let after = shape.rank().checked_sub(at + count);
        let trailing = others.1.iter().filter(|e| !matches!(e, Index::Ellipsis)).count();
        let Some(after) = after.filter(|&after| after >= trailing) else { return Ok(None) };
        check_mask("index_update", mask, at, &shape.part(at..))?;
        // The value's axis over the selected elements, if it has one, must have size one.
        let sizes = value.shape();
        if sizes.rank() > at + 1 + after {
            return Ok(None);
        }
        let value = match sizes.rank().checked_sub(after + 1) {
            Some(axis) if !sizes.dim(axis).equals(1) => return Ok(None),
            Some(axis) => {
                let ones = std::iter::repeat_n(Dim::from(1), count);
                let shape = sizes.dims().take(axis).chain(ones);
                value.under(&shape.chain(sizes.dims().skip(axis + 1)).collect())?
            }
            None => value.clone(),
        };
        let value = value.broadcast_to(shape.clone())?;
        let own = mask.shape();
        let aligned = own.dims().chain(std::iter::repeat_n(1.into(), after)).collect();
        let mask = mask.under(&aligned)?.broadcast_to(shape)?;
        let changed = match update.code() {
            None => value,
            Some(code) => binary(code, Operand::Tensor(self), Operand::Tensor(&value))?,
        };
        where_(&mask, &changed, self).map(Some)
    }

    /// Updates this tensor, which must have the plan's shape.
    #[track_caller]
    fn update_by_plan(&self, plan: &IndexPlan, update: Update, value: &Tensor) -> Result<Tensor> {
        let range = plan.range();
        let parts = plan.outside(range);
        let value = arranged(plan, value, range, &parts)?;
        let forward: Vec<(SliceDim, bool)> = parts.iter().map(|p| (p.0, false)).collect();
        let old = self.part(&forward)?;
        let new = match range {
            None => match update.code() {
                None => value,
                Some(code) => binary(code, Operand::Tensor(&old), Operand::Tensor(&value))?,
            },
            Some((first, last)) => {
                let merged = old.merged(first, last)?;
                let index = match &plan.axes[first] {
                    Axis::Take(by) if first == last => by.tensor.clone(),
                    _ => plan.linear((first, last))?,
                };
                merged.scatter(&index, &value, first as i64, update)?.under(&old.shape())?
            }
        };
        if is_whole(&parts, &self.shape()) {
            return Ok(new);
        }
        let dims = parts.into_iter().map(|p| p.0).collect();
        let op = Op::new(OpCode::UpdateSlice, Attrs::Slice(Arc::new(dims)));
        Tensor::record(op, &[self, &new])
    }

    /// This tensor with slices along an axis replaced by, or combined with, updates, by index. In
    /// the updates' shape, the indices' axes replace the axis. Several updates of one element are
    /// all applied, in row-major order.
    ///
    /// Errors: a shape error unless the updates have the shape of the result of [`Tensor::take`];
    /// index errors when the result is computed.
    #[track_caller]
    pub fn scatter(
        &self,
        indices: &Tensor,
        updates: &Tensor,
        axis: i64,
        update: Update,
    ) -> Result<Tensor> {
        self.scatter_by(OpCode::Scatter, indices, updates, axis, update)
    }

    /// This tensor with one element per index along an axis replaced by, or combined with, an
    /// update; the other coordinates are unchanged. Updates broadcast to the indices.
    #[track_caller]
    pub fn put_along_axis<'a>(
        &self,
        indices: &Tensor,
        values: impl Into<Operand<'a>>,
        axis: i64,
        update: Update,
    ) -> Result<Tensor> {
        let values = values.into();
        if update != Update::Set {
            kept_dtype("put_along_axis", update.code(), self.dtype(), values)?;
        }
        let values = value_in(values, self.dtype())?;
        let axis = girih_ir::shape::normalize_axis("put_along_axis", axis, self.rank())?;
        let (x, indices) = self.lanes("put_along_axis", indices, axis)?;
        if x.shape() != self.shape() {
            let (op, lhs, rhs) = ("put_along_axis", self.shape(), indices.shape());
            let reason = "the indices' other axes must broadcast to the tensor's".into();
            return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
        }
        let values = values.broadcast_to(indices.shape())?;
        self.scatter_by(OpCode::ScatterAlongAxis, &indices, &values, axis as i64, update)
    }

    #[track_caller]
    fn scatter_by(
        &self,
        code: OpCode,
        indices: &Tensor,
        updates: &Tensor,
        axis: i64,
        update: Update,
    ) -> Result<Tensor> {
        let axis = girih_ir::shape::normalize_axis(code.def().name, axis, self.rank())? as u8;
        let op = Op::new(code, Attrs::ScatterInto { axis, mode: update.mode() });
        match update {
            Update::Subtract => Tensor::record(op, &[self, indices, &updates.neg()?]),
            Update::Divide | Update::Power => {
                let ones = Tensor::ones(self.shape(), self.dtype())?;
                let all = Tensor::record(op, &[&ones, indices, updates])?;
                let code = update.code().expect("only set has none");
                binary(code, Operand::Tensor(self), Operand::Tensor(&all))
            }
            _ => Tensor::record(op, &[self, indices, updates]),
        }
    }
}

/// Broadcasts a value to the shape of the indexed elements, and arranges it like the gather of
/// [`Tensor::index`] before its final permutation, without reversed axes.
#[track_caller]
fn arranged(
    plan: &IndexPlan,
    value: &Tensor,
    range: Option<(usize, usize)>,
    parts: &[(SliceDim, bool)],
) -> Result<Tensor> {
    let result = plan.result();
    let mut value = value.clone();
    // Like NumPy, allow additional leading axes of size one.
    while value.rank() > result.rank() && value.shape()[0] == 1 {
        value = value.under(&Shape::from(&value.shape()[1..]))?;
    }
    if !value.shape().broadcasts_to(&result) {
        let (op, lhs, rhs) = ("index_update", value.shape(), result);
        let reason = "the value (first) must broadcast to what the index names (second)".into();
        return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
    }
    let mut value = value.broadcast_to(result)?;
    if let Some(order) = plan.order() {
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
        value = value.permuted(inverse)?;
    }
    let Some((first, last)) = range else {
        let sizes = parts.iter().map(|p| p.0.size).collect();
        return value.under(&sizes)?.flipped(parts);
    };
    let added = plan.common.iter().copied().chain(plan.between((first, last)));
    let added: Vec<(SliceDim, bool)> =
        added.map(|size| (SliceDim { start: 0, size, step: 1 }, false)).collect();
    let all = [&parts[..first], &added, &parts[last + 1..]].concat();
    value.under(&all.iter().map(|p| p.0.size).collect())?.flipped(&all)
}

//! Indexing with a rule for positions out of range: they are clipped, wrapped around, or left out of
//! the operation. Without a rule they are errors of the evaluation.

use super::plan::{spare_axes, taken_axes};
use super::{Index, Update};
use crate::ops::value_in;
use crate::{Error, Operand, Result, Tensor, concat, where_};
use girih_ir::shape::normalize_axis;
use girih_ir::{DType, Dim, Shape};

/// The rule for positions out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfRange {
    /// They are the nearest position in range.
    Clip,
    /// They are taken modulo the size of the axis.
    Wrap,
    /// Reading gives a value that stands for "nothing", and updates leave them out.
    Drop,
}

impl OutOfRange {
    /// The rule of a mode, as NumPy names it; `None` for positions that must be in range. A value for
    /// elements that are not there means [`OutOfRange::Drop`], and needs that mode if there is one.
    ///
    /// Errors: [`Error::InvalidArgument`], in the name of `op`, for other modes, and for a value that
    /// the mode does not use.
    pub fn of_mode(
        op: &str,
        mode: Option<&str>,
        fill: Option<&Operand<'_>>,
    ) -> Result<Option<OutOfRange>> {
        let found = match mode {
            None if fill.is_some() => Some(OutOfRange::Drop),
            None | Some("raise") => None,
            Some("clip") => Some(OutOfRange::Clip),
            Some("wrap") => Some(OutOfRange::Wrap),
            Some("fill" | "drop") => Some(OutOfRange::Drop),
            Some(other) => {
                return Err(Error::InvalidArgument(format!(
                    "{op}: mode is 'raise', 'clip', 'wrap', 'fill' or 'drop', got '{other}'"
                )));
            }
        };
        match fill.is_some() && found != Some(OutOfRange::Drop) {
            true => Err(Error::InvalidArgument(format!(
                "{op}: fill_value needs mode='fill', got {mode:?}"
            ))),
            false => Ok(found),
        }
    }
}

/// The value of elements that are not there: NaN, the smallest signed integer, the largest unsigned
/// integer or true.
fn nothing(dtype: DType) -> Operand<'static> {
    match dtype.int_range() {
        Some((0, max)) => Operand::Int(max),
        Some((min, _)) => Operand::Int(min),
        None => Operand::Float(f64::NAN),
    }
}

fn operand(size: Dim) -> Operand<'static> {
    size.known().map_or(Operand::Size(size), |size| Operand::Int(size as i128))
}

/// Positions on an axis as i64, in range for [`OutOfRange::Clip`] and [`OutOfRange::Wrap`]. With
/// [`OutOfRange::Drop`] positions out of range are 0, and the second result is a mask of the others.
/// Negative positions count from the end if `from_end`.
#[track_caller]
fn in_range(
    op: &'static str,
    positions: &Tensor,
    size: Dim,
    mode: OutOfRange,
    from_end: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let dtype = positions.dtype();
    if !dtype.is_int() {
        let expected = "integers";
        return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
    }
    let n = operand(size);
    // Unsigned positions that i64 cannot hold are out of range.
    let at = match (dtype, mode) {
        (DType::U64, OutOfRange::Wrap) => positions.remainder(n)?.astype(DType::I64)?,
        (DType::U64, _) => positions.minimum(n)?.astype(DType::I64)?,
        _ => positions.astype(DType::I64)?,
    };
    if mode == OutOfRange::Wrap {
        return Ok((at.remainder(n)?, None));
    }
    let at = match from_end && !matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64) {
        true => where_(&at.lt(0)?, &at.add(n)?, &at)?,
        false => at,
    };
    if mode == OutOfRange::Clip {
        let last = Tensor::full(n, [], DType::I64)?.sub(1)?;
        return Ok((at.minimum(&last)?.maximum(0)?, None));
    }
    let inside = at.ge(0)?.bitwise_and(&at.lt(n)?)?;
    Ok((where_(&inside, &at, 0)?, Some(inside)))
}

/// Fails for positions on an axis without elements, which have no nearest position.
fn not_empty(op: &'static str, axis: usize, size: Dim, positions: &Tensor) -> Result<()> {
    match size.equals(0) && positions.numel() > 0 {
        true => {
            let count = positions.numel();
            Err(girih_ir::Error::EmptyAxis { op, axis, count }.into())
        }
        false => Ok(()),
    }
}

impl Tensor {
    /// Slices along an axis by index, as [`Tensor::take`], with a rule for indices out of range.
    /// Negative indices count from the end, but for [`OutOfRange::Clip`], where they are clipped to
    /// 0, as in NumPy. `fill` is the value of slices that are not there: by default NaN, the
    /// smallest signed integer, the largest unsigned integer or true.
    ///
    /// Errors: a dtype error for indices that are not integers, or a fill that the dtype cannot
    /// represent; an index error for clipped or wrapped indices of an empty axis.
    #[track_caller]
    pub fn take_within(
        &self,
        indices: &Tensor,
        axis: i64,
        mode: OutOfRange,
        fill: Option<Operand<'_>>,
    ) -> Result<Tensor> {
        let op = "take";
        let at = normalize_axis(op, axis, self.rank())?;
        let size = self.shape().dim(at);
        let (indices, inside) = in_range(op, indices, size, mode, mode != OutOfRange::Clip)?;
        let Some(inside) = inside else {
            not_empty(op, at, size, &indices)?;
            return self.take(&indices, axis);
        };
        let fill = value_in(fill.unwrap_or(nothing(self.dtype())), self.dtype())?;
        if size.equals(0) {
            let (shape, by) = (self.shape(), indices.shape());
            let dims = shape.dims().take(at).chain(by.dims()).chain(shape.dims().skip(at + 1));
            return fill.broadcast_to(Shape::of_dims(dims));
        }
        let taken = self.take(&indices, axis)?;
        let after = self.rank() - at - 1;
        let dims: Shape =
            inside.shape().dims().chain(std::iter::repeat_n(1.into(), after)).collect();
        where_(&inside.reshape(dims)?, &taken, &fill)
    }

    /// The indexed elements, as [`Tensor::index`], with a rule for positions out of range; `fill` as
    /// in [`Tensor::take_within`]. Negative positions count from the end.
    ///
    /// Errors: those of [`Tensor::index`] but for positions out of range; as
    /// [`Tensor::take_within`].
    #[track_caller]
    pub fn index_within(
        &self,
        entries: &[Index],
        mode: OutOfRange,
        fill: Option<Operand<'_>>,
    ) -> Result<Tensor> {
        let (entries, inside) = self.entries_within("index", entries, mode)?;
        let Some(inside) = inside else { return self.index(&entries) };
        let fill = value_in(fill.unwrap_or(nothing(self.dtype())), self.dtype())?;
        let (x, entries) = self.with_place_for(&entries, &inside, &fill)?;
        x.index(&entries)
    }

    /// This tensor with the indexed elements replaced by, or combined with, a value, as
    /// [`Tensor::index_update`], with a rule for positions out of range. Negative positions count
    /// from the end.
    ///
    /// Errors: those of [`Tensor::index_update`] but for positions out of range; an index error for
    /// clipped or wrapped positions on an empty axis.
    #[track_caller]
    pub fn index_update_within<'a>(
        &self,
        entries: &[Index],
        update: Update,
        value: impl Into<Operand<'a>>,
        mode: OutOfRange,
    ) -> Result<Tensor> {
        let (entries, inside) = self.entries_within("index_update", entries, mode)?;
        let Some(inside) = inside else { return self.index_update(&entries, update, value) };
        let one = value_in(Operand::Int(1), self.dtype())?;
        let (x, entries) = self.with_place_for(&entries, &inside, &one)?;
        let out = x.index_update(&entries, update, value)?;
        let end = |&size: &usize| Index::Slice { start: None, stop: Some(size as i64), step: 1 };
        out.index(self.shape().iter().map(end).collect::<Vec<_>>())
    }

    /// The entries with positions in range; and for [`OutOfRange::Drop`] a mask of the positions
    /// that are in range on all axes, if there are such entries.
    #[track_caller]
    fn entries_within(
        &self,
        op: &'static str,
        entries: &[Index],
        mode: OutOfRange,
    ) -> Result<(Vec<Index>, Option<Tensor>)> {
        let shape = self.shape();
        let spare = spare_axes(op, entries, shape.rank())?;
        let (mut axis, mut all) = (0, None);
        let mut result = Vec::with_capacity(entries.len());
        for entry in entries {
            let tensor = match entry {
                Index::Take(tensor) | Index::Listed { tensor, .. } => tensor.clone(),
                &Index::At(at) => {
                    let n = shape[axis] as i64;
                    match (-n..n).contains(&at) {
                        true => {
                            result.push(entry.clone());
                            axis += 1;
                            continue;
                        }
                        false => Tensor::full(Operand::Int(at.into()), [], DType::I64)?,
                    }
                }
                other => {
                    axis += match other {
                        Index::Ellipsis => spare,
                        other => taken_axes(other),
                    };
                    result.push(other.clone());
                    continue;
                }
            };
            let (at, inside) = in_range(op, &tensor, shape.dim(axis), mode, true)?;
            if inside.is_none() {
                not_empty(op, axis, shape.dim(axis), &at)?;
            }
            all = match (all, inside) {
                (Some(all), Some(inside)) => Some(Tensor::bitwise_and(&all, &inside)?),
                (all, inside) => all.or(inside),
            };
            result.push(Index::Take(at));
            axis += 1;
        }
        Ok((result, all))
    }

    /// This tensor with one more element at the end of each axis that a tensor indexes, of the value
    /// `end`; and the entries with that element in place of positions that are not `inside`.
    #[track_caller]
    fn with_place_for(
        &self,
        entries: &[Index],
        inside: &Tensor,
        end: &Tensor,
    ) -> Result<(Tensor, Vec<Index>)> {
        let shape = self.shape();
        let spare = spare_axes("index", entries, shape.rank())?;
        let (mut axis, mut x) = (0, self.clone());
        let mut result = Vec::with_capacity(entries.len());
        for entry in entries {
            match entry {
                Index::Take(at) => {
                    let n = Tensor::full(operand(shape.dim(axis)), [], DType::I64)?;
                    let one = end.broadcast_to(x.shape().with_dim(axis, 1usize))?;
                    x = concat(&[&x, &one], axis as i64)?;
                    result.push(Index::Take(where_(inside, at, &n)?));
                }
                // A slice ends where it did before the axis grew.
                other => result.push(other.clone()),
            }
            axis += match entry {
                Index::Ellipsis => spare,
                other => taken_axes(other),
            };
        }
        Ok((x, result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_for_missing_elements_needs_a_mode_that_uses_it() {
        let fill = Operand::Int(0);
        let of = |mode, fill| OutOfRange::of_mode("take", mode, fill);
        assert_eq!(of(None, None), Ok(None));
        assert_eq!(of(Some("raise"), None), Ok(None));
        assert_eq!(of(Some("wrap"), None), Ok(Some(OutOfRange::Wrap)));
        assert_eq!(of(None, Some(&fill)), Ok(Some(OutOfRange::Drop)));
        assert_eq!(of(Some("fill"), Some(&fill)), Ok(Some(OutOfRange::Drop)));
        assert!(of(Some("clip"), Some(&fill)).is_err());
        assert!(of(Some("nearest"), None).unwrap_err().to_string().starts_with("take: mode is"));
    }
}

//! Shapes and tensor specs: sizes, strides, broadcasting, and overflow-checked counts.

use crate::{DType, Error, Result};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;

/// Most dimensions a tensor may have: axis sets are 32-bit masks.
pub const MAX_RANK: usize = 32;

/// Sizes of a tensor's dimensions, outermost first. Up to rank 4 it is stored inline.
#[derive(PartialEq, Eq, Hash, Default, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape(SmallVec<[usize; 4]>);

impl Shape {
    /// The shape of a scalar, `[]`.
    pub fn scalar() -> Self {
        Shape::default()
    }

    /// From signed sizes, as front ends give them.
    ///
    /// Errors: [`Error::NegativeSize`], [`Error::RankTooLarge`], [`Error::SizeOverflow`] (counted
    /// for the widest dtype).
    pub fn from_signed(op: &'static str, sizes: &[i64]) -> Result<Self> {
        let mut shape = Shape::default();
        for (index, &size) in sizes.iter().enumerate() {
            let size =
                usize::try_from(size).map_err(|_| Error::NegativeSize { op, size, index })?;
            shape.0.push(size);
        }
        shape.check(op, DType::F64)?;
        Ok(shape)
    }

    /// The first `rank` (at most 4) of four sizes: the cheapest way to make a small shape.
    #[inline]
    pub fn inline(sizes: [usize; 4], rank: usize) -> Self {
        Shape(SmallVec::from_buf_and_len(sizes, rank))
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements; 1 for a scalar. Cannot overflow for a checked shape.
    pub fn numel(&self) -> usize {
        self.0.iter().product()
    }

    /// Fails when the rank or the bytes of a tensor of this shape are out of range. A zero
    /// dimension does not excuse the others: strides are computed from their product too.
    pub fn check(&self, op: &'static str, dtype: DType) -> Result<()> {
        if self.rank() > MAX_RANK {
            return Err(Error::RankTooLarge { op, rank: self.rank() });
        }
        self.0
            .iter()
            .try_fold(dtype.size(), |bytes, &d| bytes.checked_mul(d.max(1)))
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .map(|_| ())
            .ok_or_else(|| Error::SizeOverflow { op, shape: self.clone(), dtype })
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> SmallVec<[isize; 4]> {
        let mut strides: SmallVec<[isize; 4]> = SmallVec::from_elem(0, self.rank());
        let mut step = 1isize;
        for (stride, &size) in strides.iter_mut().zip(&self.0).rev() {
            *stride = step;
            step *= size.max(1) as isize;
        }
        strides
    }

    /// The shape two operands broadcast to: aligned at the last axis, sizes equal or 1.
    ///
    /// Errors: [`Error::ShapeMismatch`] naming the axis.
    pub fn broadcast(&self, other: &Shape, op: &'static str) -> Result<Shape> {
        if self == other {
            return Ok(self.clone());
        }
        let rank = self.rank().max(other.rank());
        let at = |s: &Shape, i: usize| (i + s.rank()).checked_sub(rank).map_or(1, |i| s[i]);
        let mut out = SmallVec::with_capacity(rank);
        for i in 0..rank {
            match (at(self, i), at(other, i)) {
                (a, b) if a == b => out.push(a),
                (1, b) => out.push(b),
                (a, 1) => out.push(a),
                (a, b) => {
                    return Err(Error::ShapeMismatch {
                        op,
                        lhs: self.clone(),
                        rhs: other.clone(),
                        reason: format!(
                            "axis {} has sizes {a} and {b}; they must be equal, or one of them 1",
                            i as isize - rank as isize
                        ),
                    });
                }
            }
        }
        Ok(Shape(out))
    }

    /// True if a tensor of this shape broadcasts to `to` without changing it.
    pub fn broadcasts_to(&self, to: &Shape) -> bool {
        self.rank() <= to.rank()
            && self.iter().rev().zip(to.iter().rev()).all(|(&a, &b)| a == b || a == 1)
    }

    /// The shape without the given axes, or with size 1 there when `keepdims`.
    pub fn reduced(&self, axes: crate::AxisSet, keepdims: bool) -> Shape {
        let kept = self.0.iter().enumerate().filter_map(|(i, &d)| match axes.contains(i) {
            false => Some(d),
            true => keepdims.then_some(1),
        });
        Shape(kept.collect())
    }

    /// A copy with `size` at `axis`.
    pub fn with_dim(&self, axis: usize, size: usize) -> Shape {
        let mut shape = self.clone();
        shape.0[axis] = size;
        shape
    }

    /// Appends a dimension.
    pub fn push(&mut self, size: usize) {
        self.0.push(size);
    }
}

impl Clone for Shape {
    #[inline]
    fn clone(&self) -> Shape {
        // A copy of the memory, where the derived clone goes element by element.
        Shape(SmallVec::from_slice(&self.0))
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Self {
        Shape(SmallVec::from_slice(sizes))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Self {
        Shape(SmallVec::from_slice(&sizes))
    }
}

impl From<Vec<usize>> for Shape {
    fn from(sizes: Vec<usize>) -> Self {
        Shape(SmallVec::from_vec(sizes))
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        Shape(iter.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            write!(f, "{}{d}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Static description of a value: what is known of it without computing it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Sizes.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl TensorSpec {
    /// A spec from its parts.
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Self {
        TensorSpec { shape: shape.into(), dtype }
    }

    /// A scalar's spec.
    pub fn scalar(dtype: DType) -> Self {
        TensorSpec { shape: Shape::scalar(), dtype }
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    /// Bytes of a dense tensor of this spec.
    pub fn size_bytes(&self) -> usize {
        self.numel() * self.dtype.size()
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype.short(), self.shape)
    }
}

/// `axis` counted from the end when negative.
///
/// Errors: [`Error::AxisOutOfRange`].
pub fn normalize_axis(op: &'static str, axis: i64, rank: usize) -> Result<usize> {
    let r = rank as i64;
    if (-r..r).contains(&axis) {
        Ok(axis.rem_euclid(r) as usize)
    } else {
        Err(Error::AxisOutOfRange { op, axis, rank })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_aligns_at_the_last_axis_and_stretches_ones() {
        let s = |v: &[usize]| Shape::from(v);
        assert_eq!(s(&[2, 1, 3]).broadcast(&s(&[4, 1]), "add"), Ok(s(&[2, 4, 3])));
        assert_eq!(s(&[]).broadcast(&s(&[0, 5]), "add"), Ok(s(&[0, 5])));
        assert_eq!(s(&[1]).broadcast(&s(&[0]), "add"), Ok(s(&[0])));
        let err = s(&[2, 3]).broadcast(&s(&[4]), "add").unwrap_err();
        assert!(err.to_string().contains("[2, 3]") && err.to_string().contains("[4]"), "{err}");
    }

    #[test]
    fn counts_that_do_not_fit_are_errors_even_next_to_a_zero() {
        let huge = Shape::from([1 << 32, 1 << 32]);
        assert!(matches!(huge.check("zeros", DType::F32), Err(Error::SizeOverflow { .. })));
        assert!(Shape::from([1 << 32, 1 << 32, 0]).check("zeros", DType::F32).is_err());
        assert!(Shape::from([0, 5]).check("zeros", DType::F32).is_ok());
        assert_eq!(Shape::scalar().numel(), 1);
        assert!(matches!(
            Shape::from_signed("zeros", &[3, -1]),
            Err(Error::NegativeSize { size: -1, index: 1, .. })
        ));
    }

    #[test]
    fn strides_are_row_major() {
        assert_eq!(Shape::from([2, 3, 4]).strides().as_slice(), &[12, 4, 1]);
        assert_eq!(Shape::from([2, 0, 4]).strides().as_slice(), &[4, 4, 1]);
        assert!(Shape::scalar().strides().is_empty());
    }
}

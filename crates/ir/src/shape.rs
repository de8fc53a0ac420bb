//! Shapes and tensor specs: sizes, strides, broadcasting, and overflow-checked counts.

mod conversions;

use crate::dim::Sizes;
use crate::{DType, Dim, Error, Result};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Index};
use std::slice::SliceIndex;
use std::sync::Arc;

/// Maximum rank of a tensor, since axis sets are 32-bit masks.
pub const MAX_RANK: usize = 32;

/// Sizes of a tensor's dimensions, outermost first. Shapes up to rank 4 are stored inline.
///
/// While a function is traced for many sizes, some sizes may be symbolic ([`Dim`]). Reading them as
/// numbers, by dereferencing or indexing, specialises the trace to the traced sizes and adds a
/// guard; [`Shape::dim`] and sizes computed from it do not. `==` compares shapes for all sizes,
/// [`Shape::equals`] at the traced sizes.
#[derive(Default, Serialize, Deserialize)]
pub struct Shape {
    sizes: SmallVec<[usize; 4]>,
    /// All dimensions, if any dimension is symbolic. Graphs in caches and files have none.
    #[serde(skip)]
    dims: Option<Arc<Vec<Dim>>>,
}

impl Shape {
    /// The shape of a scalar, `[]`.
    pub fn scalar() -> Self {
        Shape::default()
    }

    const fn of(sizes: SmallVec<[usize; 4]>) -> Self {
        Shape { sizes, dims: None }
    }

    /// From signed sizes, which front ends use.
    ///
    /// Errors: [`Error::NegativeSize`], [`Error::RankTooLarge`], [`Error::CountOverflow`]. The byte
    /// count is checked later, when the dtype is known.
    pub fn from_signed(op: &'static str, sizes: &[i64]) -> Result<Self> {
        let mut shape = Shape::default();
        for (index, &size) in sizes.iter().enumerate() {
            let size =
                usize::try_from(size).map_err(|_| Error::NegativeSize { op, size, index })?;
            shape.sizes.push(size);
        }
        // The dtype is not known yet. Limit the number of elements as if each element had eight
        // bytes.
        shape.check(op, DType::F64).map_err(|error| match error {
            Error::SizeOverflow { op, shape, .. } => Error::CountOverflow { op, shape },
            error => error,
        })?;
        Ok(shape)
    }

    /// The first `rank` (at most 4) of four sizes: the cheapest constructor of a small shape.
    #[inline]
    pub fn inline(sizes: [usize; 4], rank: usize) -> Self {
        Shape::of(SmallVec::from_buf_and_len(sizes, rank))
    }

    /// From sizes that may be symbolic.
    pub fn of_dims(dims: impl IntoIterator<Item = Dim>) -> Self {
        dims.into_iter().collect()
    }

    /// Number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// Number of dimensions.
    #[inline]
    pub fn len(&self) -> usize {
        self.rank()
    }

    /// True for the shape of a scalar.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// True if a size is symbolic.
    #[inline]
    pub fn is_symbolic(&self) -> bool {
        self.dims.is_some()
    }

    /// The size of an axis, possibly symbolic.
    ///
    /// Panics if the axis is out of range.
    #[inline]
    pub fn dim(&self, axis: usize) -> Dim {
        match &self.dims {
            None => self.sizes[axis].into(),
            Some(dims) => dims[axis],
        }
    }

    /// All sizes, possibly symbolic.
    pub fn dims(&self) -> impl DoubleEndedIterator<Item = Dim> + ExactSizeIterator + Clone + '_ {
        (0..self.rank()).map(|axis| self.dim(axis))
    }

    /// The traced sizes, without a guard, for messages and estimates. No program may depend on
    /// them.
    #[inline]
    pub fn hints(&self) -> &[usize] {
        &self.sizes
    }

    /// Number of elements; 1 for a scalar. Cannot overflow for a checked shape.
    pub fn numel(&self) -> usize {
        match self.dims {
            None => self.sizes.iter().product(),
            Some(_) => self.count().get(),
        }
    }

    /// Number of elements, possibly symbolic.
    pub fn count(&self) -> Dim {
        self.dims().product()
    }

    /// The shape of a range of axes.
    ///
    /// Panics if an axis is out of range.
    pub fn part(
        &self,
        axes: impl SliceIndex<[usize], Output = [usize]> + SliceIndex<[Dim], Output = [Dim]>,
    ) -> Shape {
        match &self.dims {
            None => self.sizes[axes].into(),
            Some(dims) => dims[axes].iter().copied().collect(),
        }
    }

    /// True if there are no elements. Adds a guard for symbolic sizes.
    pub fn has_no_elements(&self) -> bool {
        self.dims().any(|dim| dim.equals(0))
    }

    /// Compares the shapes at the traced sizes. Adds a guard unless the answer is the same for all
    /// sizes.
    pub fn equals(&self, other: &Shape) -> bool {
        if self == other {
            return true;
        }
        if self.rank() != other.rank() {
            return false;
        }
        if !self.is_symbolic() && !other.is_symbolic() {
            return false;
        }
        // If static sizes differ, the shapes differ for all sizes, and no guard is needed.
        let pairs = || self.dims().zip(other.dims());
        let static_pair =
            |(a, b): (Dim, Dim)| a.known().zip(b.known()).is_some_and(|(a, b)| a != b);
        !pairs().any(static_pair) && pairs().all(|(a, b)| a.equals(b))
    }

    /// Replaces symbols by sizes.
    ///
    /// Errors: [`Error::SizeOverflow`] for a shape that is too large; [`Error::InvalidShape`] if a
    /// size would be negative or a symbol has no size.
    pub fn bind(&self, op: &'static str, dtype: DType, sizes: &Sizes) -> Result<Shape> {
        let Some(dims) = &self.dims else { return Ok(self.clone()) };
        let bound: Option<SmallVec<[usize; 4]>> =
            dims.iter().map(|dim| dim.evaluate(sizes)).collect();
        let bound = bound.map(Shape::of).ok_or_else(|| Error::InvalidShape {
            op,
            shape: self.clone(),
            reason: "it has no value at the sizes given".into(),
        })?;
        bound.check(op, dtype)?;
        Ok(bound)
    }

    /// Fails if the rank or the byte count of a tensor of this shape is out of range. The check
    /// ignores zero sizes, since strides are products of the other sizes. For a symbolic shape it
    /// checks the traced sizes; [`Shape::bind`] checks the bound sizes.
    pub fn check(&self, op: &'static str, dtype: DType) -> Result<()> {
        if self.rank() > MAX_RANK {
            return Err(Error::RankTooLarge { op, rank: self.rank() });
        }
        self.sizes
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
        for (stride, &size) in strides.iter_mut().zip(self.iter()).rev() {
            *stride = step;
            step *= size.max(1) as isize;
        }
        strides
    }

    /// The broadcast shape of two operands: axes align at the last one, and sizes are equal or 1.
    ///
    /// Errors: [`Error::ShapeMismatch`] naming the axis.
    pub fn broadcast(&self, other: &Shape, op: &'static str) -> Result<Shape> {
        if self == other {
            return Ok(self.clone());
        }
        if self.is_symbolic() || other.is_symbolic() {
            return self.broadcast_symbolic(other, op);
        }
        let rank = self.rank().max(other.rank());
        let at = |s: &Shape, i: usize| (i + s.rank()).checked_sub(rank).map_or(1, |i| s.sizes[i]);
        let mut out = SmallVec::with_capacity(rank);
        for i in 0..rank {
            match (at(self, i), at(other, i)) {
                (a, b) if a == b => out.push(a),
                (1, b) => out.push(b),
                (a, 1) => out.push(a),
                (a, b) => {
                    return Err(self.no_broadcast(other, op, i as isize - rank as isize, a, b));
                }
            }
        }
        Ok(Shape::of(out))
    }

    fn broadcast_symbolic(&self, other: &Shape, op: &'static str) -> Result<Shape> {
        let rank = self.rank().max(other.rank());
        let one = Dim::from(1);
        let at = |s: &Shape, i: usize| (i + s.rank()).checked_sub(rank).map_or(one, |i| s.dim(i));
        let stretches = |a: Dim, b: Dim| a.hint() == 1 && b.hint() != 1 && a.equals(1);
        let joined = |i: usize| {
            let (a, b) = (at(self, i), at(other, i));
            // First the cases without a guard: if one size is 1, the other size is the result.
            if a == b || b == one {
                Ok(a)
            } else if a == one || stretches(a, b) {
                Ok(b)
            } else if stretches(b, a) {
                Ok(a)
            } else if a.equals(b) {
                Ok(if a.known().is_some() { a } else { b })
            } else {
                Err(self.no_broadcast(other, op, i as isize - rank as isize, a, b))
            }
        };
        (0..rank).map(joined).collect()
    }

    fn no_broadcast(
        &self,
        other: &Shape,
        op: &'static str,
        axis: isize,
        a: impl fmt::Display,
        b: impl fmt::Display,
    ) -> Error {
        Error::ShapeMismatch {
            op,
            lhs: self.clone(),
            rhs: other.clone(),
            reason: format!(
                "axis {axis} has sizes {a} and {b}; they must be equal, or one of them 1"
            ),
        }
    }

    /// True if broadcasting this shape to `to` is valid and results in `to`. Adds a guard for
    /// symbolic sizes.
    pub fn broadcasts_to(&self, to: &Shape) -> bool {
        let fits = |(a, b): (Dim, Dim)| a == b || a == Dim::from(1) || a.equals(b) || a.equals(1);
        self.rank() <= to.rank() && self.dims().rev().zip(to.dims().rev()).all(fits)
    }

    /// The shape without the given axes, or with size 1 at these axes if `keepdims`.
    pub fn reduced(&self, axes: crate::AxisSet, keepdims: bool) -> Shape {
        if self.is_symbolic() {
            let kept = self.dims().enumerate().filter_map(|(i, d)| match axes.contains(i) {
                false => Some(d),
                true => keepdims.then_some(1.into()),
            });
            return kept.collect();
        }
        let kept = self.sizes.iter().enumerate().filter_map(|(i, &d)| match axes.contains(i) {
            false => Some(d),
            true => keepdims.then_some(1),
        });
        Shape::of(kept.collect())
    }

    /// A copy in which the axis `axis` has size `size`.
    pub fn with_dim(&self, axis: usize, size: impl Into<Dim>) -> Shape {
        let size = size.into();
        if self.is_symbolic() || size.known().is_none() {
            return self
                .dims()
                .enumerate()
                .map(|(i, d)| if i == axis { size } else { d })
                .collect();
        }
        let mut shape = self.clone();
        shape.sizes[axis] = size.hint();
        shape
    }

    /// Appends a dimension.
    pub fn push(&mut self, size: impl Into<Dim>) {
        let size = size.into();
        if self.is_symbolic() || size.known().is_none() {
            *self = self.dims().chain([size]).collect();
        } else {
            self.sizes.push(size.hint());
        }
    }
}

impl Clone for Shape {
    #[inline]
    fn clone(&self) -> Shape {
        // A memory copy; the derived clone would copy each element separately.
        Shape { sizes: SmallVec::from_slice(&self.sizes), dims: self.dims.clone() }
    }
}

/// A shape with symbolic sizes equals no numbers.
impl<const N: usize> PartialEq<[usize; N]> for Shape {
    fn eq(&self, other: &[usize; N]) -> bool {
        self.dims.is_none() && self.sizes[..] == other[..]
    }
}

impl PartialEq for Shape {
    #[inline]
    fn eq(&self, other: &Shape) -> bool {
        self.sizes == other.sizes
            && match (&self.dims, &other.dims) {
                (None, None) => true,
                (Some(a), Some(b)) => a == b,
                _ => false,
            }
    }
}

impl Eq for Shape {}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.sizes.hash(state);
    }
}

impl PartialOrd for Shape {
    fn partial_cmp(&self, other: &Shape) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Shape {
    fn cmp(&self, other: &Shape) -> Ordering {
        (**self).cmp(&**other)
    }
}

/// The sizes as numbers. Specialises symbolic sizes to the traced sizes.
impl Deref for Shape {
    type Target = [usize];

    #[inline]
    fn deref(&self) -> &[usize] {
        if let Some(dims) = &self.dims {
            fix(dims);
        }
        &self.sizes
    }
}

#[cold]
fn fix(dims: &[Dim]) {
    dims.iter().for_each(|dim| {
        dim.get();
    });
}

/// Sizes as numbers. Specialises the indexed symbolic sizes to the traced sizes.
impl<I: SliceIndex<[usize]> + SliceIndex<[Dim]> + Clone> Index<I> for Shape
where
    <I as SliceIndex<[Dim]>>::Output: Fixed,
{
    type Output = <I as SliceIndex<[usize]>>::Output;

    #[inline]
    fn index(&self, index: I) -> &Self::Output {
        if let Some(dims) = &self.dims {
            dims[index.clone()].fix();
        }
        &self.sizes[index]
    }
}

/// The dimensions that an index expression selects.
pub trait Fixed {
    /// Specialises symbolic sizes to the traced sizes.
    fn fix(&self);
}

impl Fixed for Dim {
    fn fix(&self) {
        self.get();
    }
}

impl Fixed for [Dim] {
    fn fix(&self) {
        fix(self);
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.dims().enumerate() {
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

/// Static description of a value: its shape and dtype.
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

    /// Row-major strides in elements.
    pub fn strides(&self) -> SmallVec<[isize; 4]> {
        self.shape.strides()
    }

    /// Row-major strides in bytes.
    pub fn byte_strides(&self) -> SmallVec<[isize; 4]> {
        self.strides().iter().map(|stride| stride * self.dtype.size() as isize).collect()
    }

    /// Compares the specs at the traced sizes: see [`Shape::equals`].
    pub fn equals(&self, other: &TensorSpec) -> bool {
        self.dtype == other.dtype && self.shape.equals(&other.shape)
    }

    /// Bytes of a dense tensor of this spec, at the traced sizes if it is symbolic.
    pub fn size_bytes(&self) -> usize {
        self.shape.hints().iter().product::<usize>() * self.dtype.size()
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype.short(), self.shape)
    }
}

/// Normalises an axis; a negative axis counts from the end.
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
    fn element_counts_that_overflow_are_errors_even_with_a_zero_size() {
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
    fn specs_say_shape_dtype_bytes_and_strides() {
        let spec = TensorSpec::new([4096, 1024], DType::F32);
        assert_eq!(spec.strides().as_slice(), [1024, 1]);
        assert_eq!(spec.byte_strides().as_slice(), [4096, 4]);
        assert_eq!((spec.numel(), spec.size_bytes()), (4 << 20, 16 << 20));
        let spec = TensorSpec::new([3, 1, 5], DType::U32);
        assert_eq!((spec.dtype, spec.byte_strides().as_slice()), (DType::U32, &[20, 20, 4][..]));
        assert!(TensorSpec::scalar(DType::F64).byte_strides().is_empty());
        let count = |shape: &[usize], dtype| {
            let spec = TensorSpec::new(shape, dtype);
            (spec.numel(), spec.size_bytes())
        };
        assert_eq!(count(&[], DType::BF16), (1, 2));
        assert_eq!(count(&[3, 5], DType::BF16), (15, 30));
        assert_eq!(count(&[0, 5], DType::F32), (0, 0));
    }

    #[test]
    fn strides_are_row_major() {
        assert_eq!(Shape::from([2, 3, 4]).strides().as_slice(), &[12, 4, 1]);
        assert_eq!(Shape::from([2, 0, 4]).strides().as_slice(), &[4, 4, 1]);
        assert!(Shape::scalar().strides().is_empty());
    }
}

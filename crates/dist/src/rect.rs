//! Rectangles of a tensor: a contiguous range along each dimension.

use smallvec::SmallVec;
use std::fmt;

/// A position or a number of elements along each dimension.
pub type Extent = SmallVec<[usize; 4]>;

/// The elements of a tensor in a range along each dimension.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rect {
    /// The index of the first element.
    pub start: Extent,
    /// The number of elements along each dimension.
    pub extent: Extent,
}

impl Rect {
    /// All elements of a tensor.
    pub fn whole(shape: &[usize]) -> Rect {
        Rect { start: SmallVec::from_elem(0, shape.len()), extent: SmallVec::from_slice(shape) }
    }

    /// The number of elements, 1 for a scalar. Saturates.
    pub fn len(&self) -> usize {
        if self.is_empty() { 0 } else { self.extent.iter().fold(1, |n, &e| n.saturating_mul(e)) }
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.extent.contains(&0)
    }

    /// The elements that both have; `None` if there are none.
    pub fn intersection(&self, other: &Rect) -> Option<Rect> {
        let mut both = self.clone();
        for axis in 0..self.start.len() {
            let start = self.start[axis].max(other.start[axis]);
            let end =
                (self.start[axis] + self.extent[axis]).min(other.start[axis] + other.extent[axis]);
            if start >= end {
                return None;
            }
            (both.start[axis], both.extent[axis]) = (start, end - start);
        }
        Some(both)
    }

    /// The position of the first element within a rectangle that contains this one: where a
    /// transfer's elements are in a shard.
    ///
    /// Panics if this one begins before the other.
    pub fn offset_in(&self, outer: &Rect) -> Extent {
        self.start.iter().zip(&outer.start).map(|(own, first)| own - first).collect()
    }

    /// True if all elements of the other rectangle are here.
    pub fn contains(&self, other: &Rect) -> bool {
        other.is_empty() || self.intersection(other).as_ref() == Some(other)
    }

    /// At most `parts` rectangles of nearly equal size that have the elements, cut along the longest
    /// dimension, the first one among equals.
    pub(crate) fn split(&self, parts: usize) -> Vec<Rect> {
        let longest = (0..self.extent.len()).rev().max_by_key(|&axis| self.extent[axis]);
        let Some(axis) = longest.filter(|_| parts > 1) else { return vec![self.clone()] };
        let pieces = (0..parts).filter_map(|part| {
            let size = self.extent[axis];
            // As equal as possible, unlike the chunks of a sharding: nobody sees these pieces.
            let (start, end) = (size * part / parts, size * (part + 1) / parts);
            let mut piece = self.clone();
            piece.start[axis] += start;
            piece.extent[axis] = end - start;
            (!piece.is_empty()).then_some(piece)
        });
        pieces.collect()
    }
}

impl fmt::Display for Rect {
    /// Half-open ranges, as in `[0..2, 4..8]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, (start, extent)) in self.start.iter().zip(&self.extent).enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{start}..{}", start + extent)?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Rect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn rect(start: [usize; 2], extent: [usize; 2]) -> Rect {
        Rect { start: start.into_iter().collect(), extent: extent.into_iter().collect() }
    }

    #[test]
    fn rectangles_intersect_and_contain() {
        let (a, b) = (rect([0, 2], [4, 4]), rect([2, 0], [4, 3]));
        let both = a.intersection(&b).unwrap();
        assert_eq!((both.to_string(), both.len()), ("[2..4, 2..3]".into(), 2));
        assert_eq!(both.offset_in(&b)[..], [0, 2]);
        assert!(a.contains(&both) && b.contains(&both) && !a.contains(&b));
        assert_eq!(a.intersection(&rect([4, 2], [1, 1])), None);
        assert!(a.contains(&rect([9, 9], [0, 1])), "no elements");
        let scalar = Rect { start: smallvec![], extent: smallvec![] };
        assert_eq!((scalar.len(), scalar.intersection(&scalar)), (1, Some(scalar.clone())));
    }

    #[test]
    fn parts_of_a_rectangle_are_nearly_equal() {
        let whole = rect([1, 5], [3, 10]);
        let parts = whole.split(4);
        assert_eq!(parts.iter().map(Rect::len).collect::<Vec<_>>(), [6, 9, 6, 9]);
        assert_eq!(parts[1].to_string(), "[1..4, 7..10]");
        assert_eq!(rect([0, 0], [2, 1]).split(4).len(), 2, "no empty parts");
    }
}

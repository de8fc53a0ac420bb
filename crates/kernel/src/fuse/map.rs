//! Maps from a kernel's iteration space to the indices of a tensor, and their composition through
//! views and reshapes. Unlike in the graph's index maps, an index may depend on several dimensions,
//! as after a reshape that merges axes.

use girih_ir::IndexMap;
use smallvec::{SmallVec, smallvec};

/// Sizes of an iteration space's dimensions, or strides along them.
pub(super) type Dims<T> = SmallVec<[T; 6]>;

/// The index along one axis: `offset + sum(step * i[dim])`. Terms are sorted by dimension and have
/// nonzero steps, so that equal maps compare equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub offset: isize,
    pub terms: SmallVec<[(u32, isize); 2]>,
}

impl Axis {
    /// The constant index 0.
    pub fn zero() -> Axis {
        Axis { offset: 0, terms: SmallVec::new() }
    }

    /// The index equal to a dimension.
    pub fn dim(dim: usize) -> Axis {
        Axis { offset: 0, terms: smallvec![(dim as u32, 1)] }
    }

    /// Adds `by` times another index.
    fn add(&mut self, other: &Axis, by: isize) {
        self.offset += by * other.offset;
        for &(dim, step) in &other.terms {
            self.add_term(dim, by * step);
        }
    }

    /// Adds a multiple of a dimension.
    pub fn add_term(&mut self, dim: u32, step: isize) {
        if step == 0 {
            return;
        }
        match self.terms.binary_search_by_key(&dim, |t| t.0) {
            Err(at) => self.terms.insert(at, (dim, step)),
            Ok(at) => {
                self.terms[at].1 += step;
                if self.terms[at].1 == 0 {
                    self.terms.remove(at);
                }
            }
        }
    }
}

/// The index along every axis of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AffineMap(pub SmallVec<[Axis; 4]>);

/// The reason why a map cannot be composed with a reshape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoMap {
    /// The map could be composed if the dimension were split into an outer dimension and a
    /// dimension of `inner` points.
    Split { dim: u32, inner: usize },
    /// The indices are not affine in the dimensions.
    NotAffine,
}

impl AffineMap {
    /// The map of an operand's indices, given those of the result (`self`) and the op's index map
    /// of the operand. The index along an axis of size one is always 0.
    pub fn through(&self, inner: &IndexMap, sizes: &[usize]) -> AffineMap {
        let axis = |(a, &size): (&girih_ir::index_map::AxisIndex, &usize)| {
            if size == 1 {
                return Axis::zero();
            }
            let mut out = Axis { offset: a.offset, terms: SmallVec::new() };
            a.terms.iter().for_each(|&(d, step)| out.add(&self.0[d], step));
            out
        };
        AffineMap(inner.0.iter().zip(sizes).map(axis).collect())
    }

    /// The offset and the stride along each dimension in a tensor with the given strides.
    pub fn strides(&self, tensor: &[isize], dims: usize) -> (isize, Dims<isize>) {
        let mut offset = 0;
        let mut out: Dims<isize> = smallvec![0; dims];
        for (axis, &stride) in self.0.iter().zip(tensor) {
            offset += axis.offset * stride;
            for &(dim, step) in &axis.terms {
                out[dim as usize] += step * stride;
            }
        }
        (offset, out)
    }

    /// The map of the indices of `to`, given that `self` maps those of `from`, where one shape is a
    /// reshape of the other: both count the same elements in the same order. Axes are matched in
    /// the smallest groups of equal product; a group's linear index is split into digits.
    pub fn reshape(
        &self,
        from: &[usize],
        to: &[usize],
        extents: &[usize],
    ) -> Result<AffineMap, NoMap> {
        let mut out = AffineMap(SmallVec::new());
        let (mut i, mut j) = (0, 0);
        while j < to.len() {
            if to[j] == 1 {
                out.0.push(Axis::zero());
                j += 1;
                continue;
            }
            while from[i] == 1 {
                i += 1;
            }
            let (i0, j0) = (i, j);
            let (mut have, mut want) = (from[i], to[j]);
            (i, j) = (i + 1, j + 1);
            while have != want {
                if have < want {
                    have *= from[i];
                    i += 1;
                } else {
                    want *= to[j];
                    j += 1;
                }
            }
            let mut linear = Axis::zero();
            let mut stride = have as isize;
            for (axis, &size) in self.0[i0..i].iter().zip(&from[i0..i]) {
                stride /= size as isize;
                linear.add(axis, stride);
            }
            digits(&linear, &to[j0..j], extents, &mut out.0)?;
        }
        Ok(out)
    }
}

/// Splits a linear index into indices along axes of the given sizes, if no combination of the
/// dimensions carries from one axis into the next.
fn digits(
    linear: &Axis,
    sizes: &[usize],
    extents: &[usize],
    out: &mut SmallVec<[Axis; 4]>,
) -> Result<(), NoMap> {
    if let [_] = sizes {
        out.push(linear.clone());
        return Ok(());
    }
    let first = out.len();
    let last = |dim: u32| extents[dim as usize] as isize - 1;
    // The digits are those of the smallest index; the rest of each axis bounds its movement.
    let down = |&(dim, step): &(u32, isize)| step.min(0) * last(dim);
    let mut rest = linear.offset + linear.terms.iter().map(down).sum::<isize>();
    let mut places: SmallVec<[(isize, isize); 4]> = SmallVec::new();
    let mut stride: isize = sizes.iter().product::<usize>() as isize;
    for &size in sizes {
        stride /= size as isize;
        let digit = rest / stride;
        rest %= stride;
        places.push((stride, size as isize - 1 - digit));
        out.push(Axis { offset: digit, terms: SmallVec::new() });
    }
    for &(dim, step) in &linear.terms {
        let at = places.iter().position(|p| p.0 <= step.abs()).ok_or(NoMap::NotAffine)?;
        let (stride, left) = places[at];
        if step % stride != 0 {
            return Err(NoMap::NotAffine);
        }
        let by = step / stride;
        let reach = by.abs() * last(dim);
        if reach > left {
            return Err(carry(dim, by, sizes[at], extents[dim as usize]));
        }
        places[at].1 -= reach;
        let axis = &mut out[first + at];
        axis.offset += reach * (by < 0) as isize;
        axis.add_term(dim, by);
    }
    Ok(())
}

/// A dimension that moves `by` per step along an axis of size `size`, and carries into the axis
/// before.
fn carry(dim: u32, by: isize, size: usize, extent: usize) -> NoMap {
    let by = by.unsigned_abs();
    let inner = size / by;
    match size.is_multiple_of(by) && inner > 1 && inner < extent && extent.is_multiple_of(inner) {
        true => NoMap::Split { dim, inner },
        false => NoMap::NotAffine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(rank: usize) -> AffineMap {
        AffineMap((0..rank).map(Axis::dim).collect())
    }

    #[test]
    fn merging_axes_is_affine() {
        let map = identity(2).reshape(&[2, 3], &[6], &[2, 3]).unwrap();
        assert_eq!(map.strides(&[1], 2), (0, smallvec![3, 1]));
    }

    #[test]
    fn splitting_an_axis_asks_for_a_split_dimension() {
        let split = identity(1).reshape(&[6], &[2, 3], &[6]);
        assert_eq!(split, Err(NoMap::Split { dim: 0, inner: 3 }));
        let map = identity(2).reshape(&[2, 3], &[6], &[2, 3]).unwrap();
        assert_eq!(map.reshape(&[6], &[2, 1, 3], &[2, 3]).unwrap().0[2], Axis::dim(1));
    }

    #[test]
    fn axes_without_a_common_grid_have_no_map() {
        assert_eq!(
            identity(2).reshape(&[4, 6], &[8, 3], &[4, 6]),
            Err(NoMap::Split { dim: 1, inner: 3 })
        );
        assert_eq!(identity(2).reshape(&[2, 3], &[3, 2], &[2, 3]), Err(NoMap::NotAffine));
    }

    #[test]
    fn a_flipped_merge_splits_again() {
        // Index 5 - (3 * i0 + i1) over [2, 3].
        let flipped = AffineMap(smallvec![Axis { offset: 5, terms: smallvec![(0, -3), (1, -1)] }]);
        let map = flipped.reshape(&[6], &[2, 3], &[2, 3]).unwrap();
        assert_eq!(map.0[0], Axis { offset: 1, terms: smallvec![(0, -1)] });
        assert_eq!(map.0[1], Axis { offset: 2, terms: smallvec![(1, -1)] });
    }
}

//! The region of a tensor that a tile reads or writes.

use crate::{Repeat, Runs, Strides};
use girih_ir::TensorSpec;
use smallvec::SmallVec;

/// A box of a dense, row-major tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// The offset of the first element in bytes.
    pub offset: usize,
    /// The number of elements along each axis, and the stride in the tensor in bytes.
    pub axes: SmallVec<[(usize, usize); 4]>,
    /// The size of an element in bytes.
    pub item: usize,
    /// Whether the elements are contiguous in the tensor.
    pub dense: bool,
}

impl Region {
    /// The box of a tensor with that start and those extents.
    pub fn new(tensor: &TensorSpec, start: &[usize], extents: &[usize]) -> Region {
        let item = tensor.dtype.size();
        let mut axes = SmallVec::new();
        let (mut stride, mut offset, mut dense, mut cut) = (item, 0, true, false);
        for axis in (0..extents.len()).rev() {
            let (size, extent) = (tensor.shape[axis], extents[axis]);
            // Inside an axis of which the box has only a part, a dense box has at most one index
            // per outer axis.
            dense &= !cut || extent == 1;
            cut |= extent < size;
            axes.push((extent, stride));
            offset += start[axis] * stride;
            stride *= size;
        }
        axes.reverse();
        Region { offset, axes, item, dense }
    }

    /// Whether the box has no elements.
    pub fn is_empty(&self) -> bool {
        self.axes.iter().any(|(extent, _)| *extent == 0)
    }

    /// The strides of the box in the tensor, in elements.
    pub fn strides(&self) -> Strides {
        self.axes.iter().map(|(_, stride)| stride / self.item).collect()
    }

    /// The copy between the box, from its first element on, and a dense block with `block` elements
    /// along each axis. `gather`: from the tensor to the block; else from the block to the tensor.
    pub fn runs(&self, block: &[usize], gather: bool) -> Runs {
        let mut copy = Runs::dense(self.item);
        let mut step = self.item;
        let mut repeats: Vec<Repeat> = Vec::new();
        for (axis, &(count, stride)) in self.axes.iter().enumerate().rev() {
            let (source, target) = if gather { (stride, step) } else { (step, stride) };
            step *= block[axis];
            // Merge runs that are contiguous in source and target.
            let whole = repeats.is_empty() && source == copy.run && target == copy.run;
            match whole {
                true => copy.run *= count,
                false if count == 1 => {}
                false => repeats.push(Repeat { count, source, target }),
            }
        }
        repeats.reverse();
        copy.repeats = repeats.into();
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use girih_ir::DType;

    fn spec() -> TensorSpec {
        TensorSpec::new([4, 6, 10], DType::F32)
    }

    #[test]
    fn regions_of_contiguous_elements_are_dense() {
        let dense =
            |start: [usize; 3], extents: [usize; 3]| Region::new(&spec(), &start, &extents).dense;
        assert!(dense([2, 0, 0], [2, 6, 10]) && dense([3, 1, 0], [1, 2, 10]));
        assert!(dense([1, 2, 3], [1, 1, 4]) && dense([0, 0, 0], [4, 6, 10]));
        assert!(!dense([0, 0, 0], [2, 2, 10]) && !dense([0, 0, 0], [1, 2, 9]));
        assert_eq!(Region::new(&spec(), &[2, 1, 3], &[1, 1, 1]).offset, (2 * 60 + 10 + 3) * 4);
    }

    #[test]
    fn the_tiles_of_a_matrix_are_as_far_apart_as_their_rows() {
        // [4096, 512] in tiles of 1024 rows: 1024 * 512 elements of 4 bytes.
        let matrix = TensorSpec::new([4096, 512], DType::F32);
        let tile = |i: usize| Region::new(&matrix, &[i * 1024, 0], &[1024, 512]);
        let offsets: Vec<usize> = (0..4).map(|i| tile(i).offset).collect();
        assert_eq!(offsets, [0, 2_097_152, 4_194_304, 6_291_456]);
        assert!((0..4).all(|i| tile(i).dense));
    }

    #[test]
    fn copies_take_the_longest_runs() {
        let region = Region::new(&spec(), &[1, 2, 0], &[2, 3, 10]);
        let copy = region.runs(&[2, 3, 10], true);
        assert_eq!((copy.run, copy.bytes()), (120, 240));
        assert_eq!(copy.repeats[..], [Repeat { count: 2, source: 240, target: 120 }]);
        let back = region.runs(&[2, 3, 10], false);
        assert_eq!(back.repeats[..], [Repeat { count: 2, source: 120, target: 240 }]);
        // The rows of a larger block have a larger stride.
        let short = Region::new(&spec(), &[0, 0, 8], &[4, 6, 2]);
        let padded = short.runs(&[4, 6, 4], true);
        assert_eq!((padded.run, padded.bytes()), (8, 192));
        let rows = [(4, 240, 96), (6, 40, 16)].map(|(count, source, target)| Repeat {
            count,
            source,
            target,
        });
        assert_eq!(padded.repeats[..], rows);
        let whole = Region::new(&spec(), &[0; 3], &[4, 6, 10]).runs(&[4, 6, 10], true);
        assert_eq!((whole.run, whole.repeats.len()), (960, 0));
    }
}

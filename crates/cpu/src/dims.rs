//! The strided dimensions of an operand that together form one dimension of a GEMM: M, N or K.

use girih_kernel::{Access, Kernel};
use smallvec::SmallVec;
use std::ops::Range;

/// `(extent, stride)`, outermost first, merged as far as the strides allow; no extent is 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Dims(SmallVec<[(usize, isize); 3]>);

impl Dims {
    pub fn new(dims: impl Iterator<Item = (usize, isize)>) -> Dims {
        let mut merged: SmallVec<[(usize, isize); 3]> = SmallVec::new();
        for (extent, stride) in dims.filter(|d| d.0 != 1) {
            match merged.last_mut() {
                Some(last) if last.1 == stride * extent as isize => {
                    *last = (last.0 * extent, stride);
                }
                _ => merged.push((extent, stride)),
            }
        }
        Dims(merged)
    }

    /// The extents and strides of an access along some dimensions of a kernel.
    pub fn of(kernel: &Kernel, access: &Access, dims: &Range<usize>) -> Dims {
        Dims::new(dims.clone().map(|d| (kernel.extents[d], access.strides[d])))
    }

    /// The stride from each index to the next, if it is constant.
    pub fn stride(&self) -> Option<isize> {
        match self.0.as_slice() {
            [] => Some(1),
            [(_, stride)] => Some(*stride),
            _ => None,
        }
    }

    /// The stride along the innermost dimension.
    pub fn inner_stride(&self) -> isize {
        self.0.last().map_or(1, |d| d.1)
    }

    /// The number of consecutive indices at the innermost stride.
    pub fn inner_extent(&self) -> usize {
        self.0.last().map_or(1, |d| d.0)
    }

    /// Whether consecutive indices are closer in memory than those of the other dimensions, or
    /// equally close and in longer runs.
    pub fn is_denser_than(&self, other: &Dims) -> bool {
        let by =
            |dims: &Dims| (dims.inner_stride().unsigned_abs(), usize::MAX - dims.inner_extent());
        by(self) < by(other)
    }

    /// The strides along the other dimensions, innermost first.
    pub fn outer_strides(&self) -> impl Iterator<Item = isize> {
        self.0.iter().rev().skip(1).map(|d| d.1)
    }

    /// The distance from the first index to an index.
    pub fn at(&self, mut index: usize) -> isize {
        let mut element = 0;
        for &(extent, stride) in self.0.iter().rev() {
            element += (index % extent) as isize * stride;
            index /= extent;
        }
        element
    }

    /// Writes the distances of the indices from `first` on to `to`.
    pub fn fill(&self, first: usize, to: &mut [isize]) {
        let stride = self.inner_stride();
        self.runs(first, to.len(), |done, start, n| {
            for (i, to) in to[done..done + n].iter_mut().enumerate() {
                *to = start + i as isize * stride;
            }
        });
    }

    /// Calls `f(done, distance, len)` for each run at the innermost stride among the `n` indices
    /// from `first` on; `done` counts the indices before the run.
    #[inline(always)]
    pub fn runs(&self, first: usize, n: usize, mut f: impl FnMut(usize, isize, usize)) {
        let Some((&(extent, stride), outer)) = self.0.split_last() else {
            return (0..n).for_each(|i| f(i, 0, 1));
        };
        let (mut inner, mut rest) = (first % extent, first / extent);
        // The outer dimensions are counted like an odometer: runs may be as short as a
        // convolution's kernel, and divisions are expensive.
        let mut start = 0;
        let mut digits: SmallVec<[usize; 3]> = SmallVec::from_elem(0, outer.len());
        for (digit, &(extent, stride)) in digits.iter_mut().zip(outer).rev() {
            *digit = rest % extent;
            rest /= extent;
            start += *digit as isize * stride;
        }
        let mut done = 0;
        while done < n {
            let len = (extent - inner).min(n - done);
            f(done, start + inner as isize * stride, len);
            (done, inner) = (done + len, 0);
            for (digit, &(extent, stride)) in digits.iter_mut().zip(outer).rev() {
                (*digit, start) = (*digit + 1, start + stride);
                if *digit < extent {
                    break;
                }
                (*digit, start) = (0, start - extent as isize * stride);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_follow_the_dimensions_in_row_major_order() {
        let dims = Dims::new([(2, 100), (1, 7), (3, 10), (4, 1)].into_iter());
        let all: Vec<isize> = (0..24).map(|i| i / 12 * 100 + i / 4 % 3 * 10 + i % 4).collect();
        assert_eq!((0..24).map(|i| dims.at(i)).collect::<Vec<_>>(), all);
        for first in 0..24 {
            let mut some = vec![0; 24 - first];
            dims.fill(first, &mut some);
            assert_eq!(some, all[first..]);
        }
        assert_eq!(Dims::new([(3, 4), (4, 1)].into_iter()).stride(), Some(1));
        assert_eq!((dims.stride(), dims.inner_stride()), (None, 1));
        assert_eq!(Dims::new([(1, 9)].into_iter()).at(0), 0);
    }
}

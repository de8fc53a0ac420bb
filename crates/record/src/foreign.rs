//! The layout of arrays in memory of other libraries: which bytes the elements occupy, and the runs
//! of contiguous bytes in which they are copied. Reading the memory is the front end's business.

use girih_ir::TensorSpec;

/// The layout of an array relative to its first element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignLayout {
    /// The shape and dtype.
    pub spec: TensorSpec,
    /// The distance between neighbouring elements of each axis, in bytes; negative if the axis goes
    /// down in memory.
    pub strides: Vec<isize>,
}

/// Row-major strides in bytes.
pub fn dense_strides(spec: &TensorSpec) -> Vec<isize> {
    spec.shape.strides().iter().map(|s| s * spec.dtype.size() as isize).collect()
}

/// A part of an array that is contiguous in memory, and its place among the bytes of the elements
/// in row-major order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignRun {
    /// The first byte in memory, relative to the first element.
    pub from: isize,
    /// The first byte in row-major order, counted from where the walk began.
    pub to: usize,
    /// The number of bytes.
    pub len: usize,
}

impl ForeignLayout {
    /// The row-major layout.
    pub fn dense(spec: TensorSpec) -> ForeignLayout {
        let strides = dense_strides(&spec);
        ForeignLayout { spec, strides }
    }

    /// The range of bytes that the elements occupy, relative to the first element: the
    /// (non-positive) begin and the end. `None` if the range exceeds the address space.
    pub fn extent(&self) -> Option<(isize, isize)> {
        let mut bounds = (0isize, self.spec.dtype.size() as isize);
        for (&stride, &size) in self.strides.iter().zip(self.spec.shape.iter()) {
            let reach = stride.checked_mul(isize::try_from(size).ok()?.checked_sub(1)?)?;
            let bound = if reach < 0 { &mut bounds.0 } else { &mut bounds.1 };
            *bound = bound.checked_add(reach)?;
        }
        Some(bounds)
    }

    /// Whether an array with elements may be at an address: its elements are neither at address 0
    /// nor beyond the address space.
    pub fn fits_at(&self, address: usize) -> bool {
        let Some((low, high)) = self.extent() else { return false };
        let begin = address.checked_add_signed(low).filter(|&begin| begin > 0);
        let end = begin.and(address.checked_add_signed(high));
        end.is_some_and(|end| end <= isize::MAX as usize)
    }

    /// Whether all elements are inside of `len` bytes of memory, the first one at `offset`.
    pub fn fits_in(&self, offset: isize, len: usize) -> bool {
        self.extent().is_some_and(|(low, high)| {
            let begin = offset.checked_add(low);
            let end = offset.checked_add(high);
            begin.is_some_and(|b| b >= 0) && end.is_some_and(|e| e <= len as isize)
        })
    }

    /// Whether the elements are row-major without gaps. The stride of an axis of size 1 does not
    /// count.
    pub fn is_dense(&self) -> bool {
        let dense = dense_strides(&self.spec);
        let mut axes = self.strides.iter().zip(&dense).zip(self.spec.shape.iter());
        axes.all(|((have, want), &size)| size == 1 || have == want)
    }

    /// Calls `copy` with the runs that make up `len` bytes of the elements in row-major order, from
    /// byte `at` on.
    #[inline]
    pub fn for_each_run(&self, at: usize, len: usize, mut copy: impl FnMut(ForeignRun)) {
        let ForeignLayout { spec, strides } = self;
        let size = spec.dtype.size();
        // Find the longest contiguous inner block, which is copied at once.
        let mut run = size;
        let mut outer = spec.shape.rank();
        while outer > 0 && (strides[outer - 1] == run as isize || spec.shape[outer - 1] == 1) {
            run *= spec.shape[outer - 1];
            outer -= 1;
        }
        let mut index: Vec<usize> = vec![0; outer];
        let mut rest = at / run;
        for (axis, place) in index.iter_mut().enumerate().rev() {
            *place = rest % spec.shape[axis];
            rest /= spec.shape[axis];
        }
        let (mut skipped, mut filled) = (at % run, 0);
        // Along the last axis, the source advances by one stride.
        while filled < len {
            let offset: isize = index.iter().zip(strides).map(|(&i, &s)| i as isize * s).sum();
            let last = outer.checked_sub(1);
            let (count, step) = last.map_or((1, 0), |a| (spec.shape[a] - index[a], strides[a]));
            let mut done = 0;
            while done < count && filled < len {
                let part = (run - skipped).min(len - filled);
                let from = offset + done as isize * step + skipped as isize;
                copy(ForeignRun { from, to: filled, len: part });
                (skipped, filled, done) = (0, filled + part, done + 1);
            }
            if let Some(axis) = last {
                index[axis] += done;
            }
            for axis in (1..outer).rev() {
                if index[axis] == spec.shape[axis] {
                    index[axis] = 0;
                    index[axis - 1] += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use girih_ir::DType;

    fn layout(shape: &[usize], dtype: DType, strides: &[isize]) -> ForeignLayout {
        ForeignLayout { spec: TensorSpec::new(shape.to_vec(), dtype), strides: strides.to_vec() }
    }

    /// The bytes from `at` on that the runs gather from memory whose first element is at `first`.
    fn gathered(layout: &ForeignLayout, memory: &[u8], first: usize, at: usize) -> Vec<u8> {
        let mut out = vec![0; layout.spec.size_bytes() - at];
        layout.for_each_run(at, out.len(), |ForeignRun { from, to, len }| {
            let from = first.checked_add_signed(from).unwrap();
            out[to..][..len].copy_from_slice(&memory[from..][..len]);
        });
        out
    }

    #[test]
    fn a_transposed_array_is_gathered_element_by_element() {
        let memory: Vec<u8> = (0..6).collect();
        let transposed = layout(&[3, 2], DType::U8, &[1, 3]);
        assert!(!transposed.is_dense());
        assert_eq!(gathered(&transposed, &memory, 0, 0), [0, 3, 1, 4, 2, 5]);
        assert_eq!(gathered(&transposed, &memory, 0, 3), [4, 2, 5]);
    }

    #[test]
    fn an_axis_may_go_down_and_rows_may_have_gaps() {
        let memory: Vec<u8> = (0..8).collect();
        let reversed = layout(&[2, 3], DType::U8, &[-4, 1]);
        assert_eq!(reversed.extent(), Some((-4, 3)));
        assert_eq!(gathered(&reversed, &memory, 4, 0), [4, 5, 6, 0, 1, 2]);
        assert_eq!(gathered(&reversed, &memory, 4, 2), [6, 0, 1, 2]);
        assert!(reversed.fits_in(4, 7) && !reversed.fits_in(4, 6) && !reversed.fits_in(3, 8));
    }

    #[test]
    fn runs_are_as_long_as_memory_is_contiguous() {
        let dense = ForeignLayout::dense(TensorSpec::new([2, 3], DType::F32));
        assert!(dense.is_dense());
        let mut runs = Vec::new();
        dense.for_each_run(0, 24, |run| runs.push(run));
        assert_eq!(runs, [ForeignRun { from: 0, to: 0, len: 24 }]);
        // The stride of an axis of size 1 does not count.
        assert!(layout(&[1, 3], DType::F32, &[999, 4]).is_dense());
    }

    #[test]
    fn arrays_beyond_the_address_space_fit_nowhere() {
        let far = layout(&[3], DType::U8, &[isize::MAX]);
        assert_eq!(far.extent(), None);
        assert!(!far.fits_at(16));
        let down = layout(&[3], DType::U8, &[-8]);
        assert!(down.fits_at(17) && !down.fits_at(16) && !down.fits_at(8));
        assert!(!layout(&[1], DType::U8, &[1]).fits_at(usize::MAX - 1));
    }
}

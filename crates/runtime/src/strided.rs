//! Strided arrays in memory, and copies between them: views, transposes and slices of arrays in
//! host and device memory.

use crate::{Error, Repeat, Result, Runs};
use girih_ir::TensorSpec;
use smallvec::SmallVec;

/// The layout of an array's elements in a block of memory. Strides are in bytes and may be negative
/// or 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strided {
    /// The offset of the first element in bytes.
    pub offset: usize,
    /// The size and the stride in bytes of each axis.
    axes: SmallVec<[(usize, isize); 4]>,
    /// The size of an element in bytes.
    item: usize,
}

impl Strided {
    /// The row-major array of a spec at offset 0.
    pub fn dense(spec: &TensorSpec) -> Strided {
        let mut axes: SmallVec<[(usize, isize); 4]> = SmallVec::new();
        let mut step = spec.dtype.size() as isize;
        for &size in spec.shape.iter().rev() {
            axes.push((size, step));
            step = step.saturating_mul(size.max(1) as isize);
        }
        axes.reverse();
        Strided { offset: 0, axes, item: spec.dtype.size() }
    }

    /// An array with any strides.
    ///
    /// Errors: [`Error::Region`] unless there is a stride for each axis, and all elements have
    /// offsets from 0 to `isize::MAX`.
    pub fn new(
        offset: usize,
        shape: &[usize],
        byte_strides: &[isize],
        item: usize,
    ) -> Result<Strided> {
        let axes = shape.iter().copied().zip(byte_strides.iter().copied()).collect();
        let array = Strided { offset, axes, item };
        match shape.len() == byte_strides.len() && array.reach().is_some() {
            true => Ok(array),
            false => Err(Error::Region(format!(
                "an array of shape {shape:?} with strides {byte_strides:?} from byte {offset} on has \
                 elements in front of its memory, or beyond all memory"
            ))),
        }
    }

    /// The number of elements along each axis.
    pub fn shape(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.axes.iter().map(|&(size, _)| size)
    }

    /// The stride in bytes of each axis.
    pub fn byte_strides(&self) -> impl ExactSizeIterator<Item = isize> + '_ {
        self.axes.iter().map(|&(_, stride)| stride)
    }

    /// The size of an element in bytes.
    pub fn item(&self) -> usize {
        self.item
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.axes.iter().map(|&(size, _)| size).product()
    }

    /// The range of bytes from the first element's start to the last element's end in memory;
    /// `None` if an offset is negative or overflows.
    fn reach(&self) -> Option<(usize, usize)> {
        self.axes.iter().try_fold(self.item, |all, &(size, _)| all.checked_mul(size))?;
        if self.numel() == 0 {
            return Some((self.offset, self.offset));
        }
        let (mut low, mut high) = (self.offset, self.offset.checked_add(self.item)?);
        for &(size, stride) in &self.axes {
            let reach = stride.unsigned_abs().checked_mul(size - 1)?;
            match stride < 0 {
                true => low = low.checked_sub(reach)?,
                false => high = high.checked_add(reach)?,
            }
        }
        isize::try_from(high).ok()?;
        Some((low, high))
    }

    /// The number of bytes from the first to the last element in memory, including gaps.
    pub fn size_bytes(&self) -> usize {
        self.reach().map_or(0, |(low, high)| high - low)
    }

    /// Fails unless all elements are within `size` bytes.
    ///
    /// Errors: [`Error::Region`].
    pub fn check(&self, size: usize) -> Result<()> {
        match self.reach() {
            Some((_, high)) if high <= size => Ok(()),
            reach => Err(Error::Region(format!(
                "the elements of an array of shape {:?} end at byte {}, and its memory has {size}",
                self.shape().collect::<Vec<_>>(),
                reach.map_or(usize::MAX, |(_, high)| high)
            ))),
        }
    }

    /// The same elements with permuted axes.
    ///
    /// Errors: [`Error::Region`] unless `order` is a permutation of the axes.
    pub fn transpose(&self, order: &[usize]) -> Result<Strided> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.axes.len()) {
            let rank = self.axes.len();
            return Err(Error::Region(format!("{order:?} does not name each of {rank} axes once")));
        }
        let axes = order.iter().map(|&axis| self.axes[axis]).collect();
        Ok(Strided { axes, ..*self })
    }

    /// `count` elements of an axis from index `start` with step `step`, which may be negative.
    ///
    /// Errors: [`Error::Region`] for elements out of range.
    pub fn slice(&self, axis: usize, start: usize, count: usize, step: isize) -> Result<Strided> {
        let size = self.axes.get(axis).map_or(0, |&(size, _)| size);
        let last = (count.saturating_sub(1) as isize).checked_mul(step);
        let last = last.and_then(|reach| start.checked_add_signed(reach));
        if axis >= self.axes.len() || count > 0 && (start >= size || last.is_none_or(|l| l >= size))
        {
            return Err(Error::Region(format!(
                "{count} elements from {start} by {step} reach beyond axis {axis}, of size {size}"
            )));
        }
        let mut sliced = self.clone();
        let stride = self.axes[axis].1;
        sliced.axes[axis] = (count, stride.saturating_mul(step));
        if count > 0 {
            sliced.offset = self.offset.wrapping_add_signed(stride * start as isize);
        }
        Ok(sliced)
    }

    /// The box of the array with the given start and extent.
    ///
    /// Errors: as [`Strided::slice`].
    pub fn region(&self, start: &[usize], extent: &[usize]) -> Result<Strided> {
        if start.len() != self.axes.len() || extent.len() != self.axes.len() {
            let rank = self.axes.len();
            return Err(Error::Region(format!(
                "a box from {start:?} of sizes {extent:?} must have rank {rank}"
            )));
        }
        let mut region = self.clone();
        for (axis, (&start, &count)) in start.iter().zip(extent).enumerate() {
            region = region.slice(axis, start, count, 1)?;
        }
        Ok(region)
    }

    /// The copies of each element to its position in an array of the same shape in other memory: the
    /// offsets of the first byte in both, and the runs. There are several copies if an axis has
    /// strides of opposite signs in the two arrays.
    ///
    /// Errors: [`Error::Region`] for arrays whose shapes or element sizes differ.
    pub fn copies(&self, target: &Strided) -> Result<Vec<(usize, usize, Runs)>> {
        if !self.shape().eq(target.shape()) || self.item != target.item {
            let of = |a: &Strided| (a.shape().collect::<Vec<_>>(), a.item);
            let ((shape, item), (other, other_item)) = (of(self), of(target));
            return Err(Error::Region(format!(
                "an array of shape {shape:?} with elements of {item} bytes cannot be copied to one of \
                 shape {other:?} with elements of {other_item}"
            )));
        }
        if self.numel() == 0 {
            return Ok(Vec::new());
        }
        let (mut source, mut start) = (self.offset, target.offset);
        let (mut forwards, mut against): (Vec<Repeat>, Vec<(usize, usize, usize)>) =
            Default::default();
        for (&(count, s), &(_, t)) in self.axes.iter().zip(&target.axes) {
            if count == 1 {
                continue;
            }
            // Traverse an axis backwards if its stride in the target is negative, so that the
            // stride becomes positive.
            let s = match t < 0 {
                true => {
                    let back = count as isize - 1;
                    source = source.wrapping_add_signed(s * back);
                    start = start.wrapping_add_signed(t * back);
                    -s
                }
                false => s,
            };
            let (source, target) = (s.unsigned_abs(), t.unsigned_abs());
            match s < 0 {
                true => against.push((count, source, target)),
                false => forwards.push(Repeat { count, source, target }),
            }
        }
        let (run, repeats) = longest_runs(self.item, forwards);
        let mut starts = vec![(source, start)];
        for (count, back, forth) in against {
            let each =
                |&(s, t): &(usize, usize)| (0..count).map(move |i| (s - i * back, t + i * forth));
            starts = starts.iter().flat_map(each).collect();
        }
        let copy = |(s, t)| (s, t, Runs { run, repeats: repeats.clone() });
        Ok(starts.into_iter().map(copy).collect())
    }

    /// Copies each element to its position in an array of the same shape, both in host memory.
    ///
    /// Errors: [`Error::Region`] for arrays whose shapes or element sizes differ, or that exceed
    /// their memory.
    pub fn copy_on_host(&self, from: &[u8], target: &Strided, to: &mut [u8]) -> Result<()> {
        self.check(from.len())?;
        target.check(to.len())?;
        for (source, start, runs) in self.copies(target)? {
            runs.for_each(|s, t| {
                let run = &from[source + s..source + s + runs.run];
                to[start + t..start + t + runs.run].copy_from_slice(run);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Merges axes with positive strides in both arrays to the longest runs and the fewest repeats, in
/// the order of the target's memory.
fn longest_runs(item: usize, mut axes: Vec<Repeat>) -> (usize, SmallVec<[Repeat; 3]>) {
    axes.sort_by_key(|axis| std::cmp::Reverse((axis.target, axis.source)));
    let mut run = item;
    while let Some(inner) = axes.pop_if(|axis| axis.source == run && axis.target == run) {
        run *= inner.count;
    }
    let mut repeats: SmallVec<[Repeat; 3]> = SmallVec::new();
    for axis in axes {
        match repeats.last_mut() {
            // One step of the outer axis equals the whole inner axis.
            Some(outer)
                if outer.source == axis.source * axis.count
                    && outer.target == axis.target * axis.count =>
            {
                *outer = Repeat { count: outer.count * axis.count, ..axis };
            }
            _ => repeats.push(axis),
        }
    }
    (run, repeats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use girih_ir::DType;

    /// The bytes of each element of an array, in row-major order.
    fn elements(array: &Strided, memory: &[u8]) -> Vec<Vec<u8>> {
        let shape: Vec<usize> = array.shape().collect();
        let strides: Vec<isize> = array.byte_strides().collect();
        let place = |mut number: usize| {
            let mut at = array.offset as isize;
            for (size, stride) in shape.iter().zip(&strides).rev() {
                at += (number % size) as isize * stride;
                number /= size;
            }
            memory[at as usize..at as usize + array.item].to_vec()
        };
        (0..array.numel()).map(place).collect()
    }

    fn numbered(size: usize) -> Vec<u8> {
        (0..size).map(|i| (i % 251) as u8).collect()
    }

    /// Views of a dense array of shape [4, 3, 5]: transposed, sliced, backwards, repeated.
    fn views(item: usize) -> Vec<Strided> {
        let dtype = [DType::U8, DType::I16, DType::F32][item.ilog2() as usize];
        let dense = Strided::dense(&TensorSpec::new([4, 3, 5], dtype));
        let reversed = dense.slice(0, 3, 4, -1).unwrap();
        let both = reversed.slice(2, 4, 5, -1).unwrap();
        let every_other = dense.slice(2, 1, 2, 2).unwrap();
        let one = dense.region(&[1, 2, 3], &[1, 1, 1]).unwrap();
        let nothing = dense.region(&[4, 0, 0], &[0, 3, 5]).unwrap();
        let repeated = Strided::new(3, &[4, 3, 5], &[0, item as isize, 0], item).unwrap();
        let orders = [[0, 1, 2], [2, 1, 0], [1, 2, 0]];
        let transposed = |view: &Strided| orders.map(|order| view.transpose(&order).unwrap());
        let all = [dense, reversed, both, every_other, one, nothing, repeated];
        all.iter().flat_map(transposed).collect()
    }

    #[test]
    fn every_pair_of_views_is_copied_element_by_element() {
        for item in [1, 2, 4] {
            for source in views(item) {
                for target in views(item).iter().filter(|t| t.shape().eq(source.shape())) {
                    if target.byte_strides().any(|stride| stride == 0) {
                        continue;
                    }
                    let memory = numbered(source.offset + 60 * item);
                    let mut written = vec![255; 60 * item];
                    source.copy_on_host(&memory, target, &mut written).unwrap();
                    let found = elements(target, &written);
                    assert_eq!(found, elements(&source, &memory), "{source:?} to {target:?}");
                    let touched = written.iter().filter(|&&byte| byte != 255).count();
                    assert!(touched <= source.numel() * item, "no other byte is written");
                }
            }
        }
    }

    #[test]
    fn size_bytes_spans_the_first_to_the_last_element() {
        let dense = Strided::dense(&TensorSpec::new([4, 6], DType::F32));
        assert_eq!((dense.size_bytes(), dense.numel()), (96, 24));
        let column = dense.slice(1, 2, 1, 1).unwrap();
        assert_eq!((column.size_bytes(), column.numel() * 4, column.offset), (76, 16, 8));
        assert_eq!(dense.transpose(&[1, 0]).unwrap().size_bytes(), 96);
        assert_eq!(dense.slice(0, 3, 2, -2).unwrap().size_bytes(), 72, "rows 3 and 1");
        assert_eq!(dense.slice(0, 0, 0, 1).unwrap().size_bytes(), 0);
        let of_view = column.slice(0, 1, 2, 1).unwrap();
        assert_eq!((of_view.offset, of_view.size_bytes()), (32, 28), "views of views add offsets");
        assert_eq!(Strided::new(0, &[1000], &[0], 4).unwrap().size_bytes(), 4);
        assert_eq!(Strided::dense(&TensorSpec::new([], DType::F64)).size_bytes(), 8);
    }

    #[test]
    fn dense_parts_are_copied_in_the_longest_runs() {
        let spec = TensorSpec::new([4, 6, 10], DType::F32);
        let (dense, packed) = (Strided::dense(&spec), |shape: &[usize]| {
            Strided::dense(&TensorSpec::new(shape.to_vec(), DType::F32))
        });
        let copies = dense.copies(&dense).unwrap();
        assert_eq!((copies.len(), copies[0].2.run, copies[0].2.repeats.len()), (1, 960, 0));
        let rows = dense.region(&[1, 2, 0], &[2, 3, 10]).unwrap();
        let copies = rows.copies(&packed(&[2, 3, 10])).unwrap();
        assert_eq!(
            (copies[0].2.run, &copies[0].2.repeats[..]),
            (120, &[Repeat { count: 2, source: 240, target: 120 }][..])
        );
        // Two backward axes are copied forwards.
        let back = dense.slice(0, 3, 4, -1).unwrap();
        let copies = back.copies(&back).unwrap();
        assert_eq!((copies.len(), copies[0].2.run), (1, 960));
        assert_eq!(back.copies(&dense).unwrap().len(), 4);
    }

    #[test]
    fn arrays_beyond_their_memory_are_refused() {
        assert!(matches!(Strided::new(8, &[3], &[-8], 4), Err(Error::Region(_))), "in front");
        assert!(Strided::new(16, &[3], &[-8], 4).is_ok());
        assert!(Strided::new(0, &[3], &[isize::MAX], 4).is_err());
        assert!(Strided::new(0, &[3, 2], &[8], 4).is_err());
        let dense = Strided::dense(&TensorSpec::new([4, 6], DType::F32));
        assert!(dense.check(96).is_ok() && dense.check(95).is_err());
        assert!(dense.slice(0, 2, 3, 1).is_err() && dense.slice(0, 1, 3, -1).is_err());
        assert!(dense.slice(2, 0, 1, 1).is_err() && dense.transpose(&[0, 0]).is_err());
        assert!(dense.region(&[0], &[1]).is_err());
        let other = Strided::dense(&TensorSpec::new([6, 4], DType::F32));
        assert!(matches!(
            dense.copy_on_host(&[0; 96], &other, &mut [0; 96]),
            Err(Error::Region(_))
        ));
        assert!(dense.copy_on_host(&[0; 95], &dense, &mut [0; 96]).is_err());
    }
}

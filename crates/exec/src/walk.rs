//! Strided walks over ranges of a flattened iteration space.
//!
//! The executor numbers the points of a space in row-major order of its dimensions and works on
//! ranges of these numbers. A [`Walk`] maps these numbers to one operand's elements. Its dimensions
//! are merged as far as the operand's strides allow, so a dense operand is a single run for any
//! number of dimensions of the space.

use smallvec::SmallVec;

/// The maximum length of runs of which several are processed at a time.
const SHORT: usize = 16;

/// The positions of an operand's elements by linear index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Walk {
    /// The element at position 0.
    pub offset: isize,
    /// `(extent, stride)`, outermost first; no extent is 1.
    dims: SmallVec<[(usize, isize); 4]>,
}

impl Walk {
    /// A walk over dimensions of these extents and strides.
    pub fn new(offset: isize, dims: impl DoubleEndedIterator<Item = (usize, isize)>) -> Walk {
        let mut merged: SmallVec<[(usize, isize); 4]> = SmallVec::new();
        for (extent, stride) in dims.filter(|d| d.0 != 1) {
            match merged.last_mut() {
                Some(last) if last.1 == stride * extent as isize => {
                    *last = (last.0 * extent, stride);
                }
                _ => merged.push((extent, stride)),
            }
        }
        Walk { offset, dims: merged }
    }

    /// Whether the same element is read at every position.
    pub fn is_splat(&self) -> bool {
        self.dims.iter().all(|d| d.1 == 0)
    }

    /// Whether consecutive positions are contiguous elements.
    pub fn is_dense(&self) -> bool {
        matches!(self.dims.as_slice(), [] | [(_, 1)])
    }

    /// The length and stride of runs of equally spaced elements.
    pub fn inner(&self) -> (usize, isize) {
        self.dims.last().copied().unwrap_or((usize::MAX, 0))
    }

    /// The distance between consecutive runs of `len` positions, and the number of runs for which
    /// that distance is constant, counted from each multiple of that number. The innermost
    /// dimension is a multiple of `len`.
    pub fn run_steps(&self, len: usize) -> (isize, usize) {
        match *self.dims.as_slice() {
            [.., (extent, stride), (inner, _)] if inner == len => (stride, extent),
            [.., (inner, stride)] if inner > len => (stride * len as isize, inner / len),
            _ => (0, usize::MAX),
        }
    }

    /// The distance from the element at a position to the element `row` positions later, if this is
    /// also the distance from there to the element of the next row, and so on for `rows` rows.
    pub fn row_step(&self, position: usize, (rows, row): (usize, usize)) -> Option<isize> {
        // The number of positions of the dimensions inside of the one that rows move along.
        let mut inner = 1;
        for &(extent, stride) in self.dims.iter().rev() {
            if row % inner != 0 {
                return None;
            }
            let step = row / inner;
            // A row of whole multiples of this dimension moves along an outer dimension.
            if step % extent != 0 {
                let last = position / inner % extent + (rows - 1) * step;
                return (last < extent).then_some(stride * step as isize);
            }
            inner *= extent;
        }
        // There is no position after all dimensions; a walk without dimensions has one element.
        (rows == 1 || self.dims.is_empty()).then_some(0)
    }

    /// The tiles of the range, if its elements are contiguous along the dimension before the last:
    /// the number of lines of a tile, the number of elements of a line, and the distance between
    /// elements of a line. The range consists of whole tiles. `None` otherwise.
    pub fn tiles(&self, position: usize, n: usize) -> Option<(usize, usize, isize)> {
        let [.., (down, 1), (across, stride)] = self.dims[..] else { return None };
        let whole = |of: usize| position.is_multiple_of(of) && n.is_multiple_of(of);
        if !whole(across) || down < 4 || stride.unsigned_abs() <= 1 {
            return None;
        }
        let lines = n / across;
        let part = lines < down && (position / across) % down + lines <= down;
        let down = if part { lines } else { down };
        (part || whole(down * across)).then_some((down, across, stride))
    }

    /// The element at a position.
    pub fn at(&self, position: usize) -> isize {
        self.offset + self.distance(position)
    }

    /// The distance from the element at position 0 to the element at a position.
    pub fn distance(&self, mut position: usize) -> isize {
        let Some((&(_, outermost), inner)) = self.dims.split_first() else { return 0 };
        let mut distance = 0;
        for &(extent, stride) in inner.iter().rev() {
            distance += (position % extent) as isize * stride;
            position /= extent;
        }
        distance + position as isize * outermost
    }

    /// The smallest and the largest element at `n` positions; `None` for no positions.
    pub fn span(&self, position: usize, n: usize) -> Option<(isize, isize)> {
        let mut span: Option<(isize, isize)> = None;
        if n > 0 {
            self.runs(position, n, |_, element, stride, len| {
                let last = element + stride * (len as isize - 1);
                let (low, high) = (element.min(last), element.max(last));
                span = Some(span.map_or((low, high), |(l, h)| (l.min(low), h.max(high))));
            });
        }
        span
    }

    /// Whether both walks have the same distances.
    pub fn is_parallel(&self, other: &Walk) -> bool {
        self.dims == other.dims
    }

    /// The length of the runs of equally spaced elements, if the runs are too short to be processed
    /// one by one.
    pub fn short_runs(&self) -> Option<usize> {
        let [.., (_, _), (extent, _)] = self.dims[..] else { return None };
        (extent <= SHORT).then_some(extent)
    }

    /// As [`Walk::runs`] for several runs of equal length at a time, where `run_stride` is the
    /// constant distance between runs: calls `f(done, element, (run_stride, runs), (stride, len))`.
    pub fn grids(
        &self,
        position: usize,
        n: usize,
        mut f: impl FnMut(usize, isize, (isize, usize), (isize, usize)),
    ) {
        let [.., (outer, run_stride), (extent, stride)] = self.dims[..] else {
            return self.runs(position, n, |done, element, stride, len| {
                f(done, element, (0, 1), (stride, len));
            });
        };
        let mut done = 0;
        while done < n {
            let at = position + done;
            let (inside, left) = (at % extent, n - done);
            let (runs, len) = match inside == 0 && left >= extent {
                true => ((left / extent).min(outer - at / extent % outer), extent),
                false => (1, (extent - inside).min(left)),
            };
            f(done, self.at(at), (run_stride, runs), (stride, len));
            done += runs * len;
        }
    }

    /// Calls `f(done, element, stride, len)` for each run of equally spaced elements in the range
    /// `[position, position + n)`; `done` counts the positions before the run.
    #[inline(always)]
    pub fn runs(&self, position: usize, n: usize, mut f: impl FnMut(usize, isize, isize, usize)) {
        let Some((&(extent, stride), outer)) = self.dims.split_last() else {
            return f(0, self.offset, 0, n);
        };
        if outer.is_empty() {
            return f(0, self.offset + position as isize * stride, stride, n);
        }
        let (mut inner, mut rest) = (position % extent, position / extent);
        // Count the outer dimensions like an odometer, because rows may be short and divisions are
        // expensive.
        let mut row = self.offset;
        let mut digits: SmallVec<[usize; 4]> = SmallVec::from_elem(0, outer.len());
        for (digit, &(extent, stride)) in digits.iter_mut().zip(outer).rev() {
            *digit = rest % extent;
            rest /= extent;
            row += *digit as isize * stride;
        }
        let mut done = 0;
        while done < n {
            let len = (extent - inner).min(n - done);
            f(done, row + inner as isize * stride, stride, len);
            (done, inner) = (done + len, 0);
            for (digit, &(extent, stride)) in digits.iter_mut().zip(outer).rev() {
                (*digit, row) = (*digit + 1, row + stride);
                if *digit < extent {
                    break;
                }
                (*digit, row) = (0, row - extent as isize * stride);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_walks_have_one_run_and_broadcasts_have_one_run_per_row() {
        let dense = Walk::new(3, [(2, 12), (3, 4), (4, 1)].into_iter());
        assert!(dense.is_dense() && dense.at(23) == 26);
        let bias = Walk::new(0, [(5, 0), (4, 1)].into_iter());
        let mut seen = vec![];
        bias.runs(2, 7, |done, e, s, len| seen.push((done, e, s, len)));
        assert_eq!(seen, [(0, 2, 1, 2), (2, 0, 1, 4), (6, 0, 1, 1)]);
        assert!(Walk::new(7, [(5, 0), (4, 0)].into_iter()).is_splat());
    }

    #[test]
    fn tiles_are_found_where_the_last_dimension_but_one_is_consecutive() {
        let w = Walk::new(5, [(3, 640), (8, 1), (4, 100)].into_iter());
        let rows = Walk::new(0, [(7, 1), (512, 0)].into_iter());
        assert_eq!((rows.run_steps(512), rows.run_steps(256)), ((1, 7), (0, 2)));
        let dense = Walk::new(3, [(usize::MAX, 1)].into_iter());
        assert_eq!(dense.run_steps(512), (512, usize::MAX / 512));
        assert_eq!(Walk::new(0, [(512, 1)].into_iter()).run_steps(512), (0, usize::MAX));
        assert_eq!(w.tiles(32, 64), Some((8, 4, 100)));
        assert_eq!(w.tiles(16, 64), None, "from one tile into the next");
        assert_eq!(w.tiles(0, 40), None, "more than a tile, less than two");
        assert_eq!(w.tiles(4, 28), Some((7, 4, 100)), "lines of one tile");
        assert_eq!(w.tiles(2, 16), None, "half a line");
        assert_eq!(Walk::new(0, [(3, 640), (8, 4), (4, 1)].into_iter()).tiles(0, 32), None);
    }

    #[test]
    fn rows_have_a_step_exactly_where_their_distances_are_equal() {
        let walks = [
            Walk::new(3, [(6, 40), (4, 9), (5, 1)].into_iter()),
            Walk::new(0, [(120, 1)].into_iter()),
            Walk::new(0, [(6, 20), (20, 0)].into_iter()),
            Walk::new(9, [(2, -3), (12, 0), (5, -1)].into_iter()),
        ];
        let (mut found, mut none) = (0, 0);
        for w in &walks {
            for row in [1, 2, 4, 5, 10, 20, 40, 60] {
                for (p, rows) in [(0, 2), (3, 2), (15, 3), (40, 2), (5, 4)] {
                    if p + (rows - 1) * row >= 120 {
                        continue;
                    }
                    let at = |i: usize| w.at(p + i * row);
                    match w.row_step(p, (rows, row)) {
                        Some(step) => {
                            found += 1;
                            let wanted: Vec<isize> =
                                (0..rows as isize).map(|i| at(0) + i * step).collect();
                            assert_eq!((0..rows).map(at).collect::<Vec<_>>(), wanted);
                        }
                        None => none += 1,
                    }
                }
            }
            assert_eq!(w.row_step(0, (1, 120)), Some(0), "a single row");
        }
        assert!(found > 80 && none > 10, "{found} {none}");
    }

    #[test]
    fn grids_cover_several_runs() {
        let w = Walk::new(7, [(3, 90), (4, -5), (5, 0)].into_iter());
        assert_eq!(
            (w.short_runs(), Walk::new(0, [(9, 1)].into_iter()).short_runs()),
            (Some(5), None)
        );
        for (p, n) in [(0, 60), (13, 40), (5, 15), (59, 1), (22, 2)] {
            let mut next = 0;
            w.grids(p, n, |done, element, (run_stride, runs), (stride, len)| {
                assert_eq!(done, next);
                for i in 0..runs * len {
                    let (run, at) = ((i / len) as isize, (i % len) as isize);
                    assert_eq!(element + run_stride * run + stride * at, w.at(p + done + i));
                }
                next += runs * len;
            });
            assert_eq!(next, n);
        }
    }

    #[test]
    fn the_span_is_that_of_the_elements() {
        let w = Walk::new(100, [(3, -7), (4, 20), (5, -1)].into_iter());
        for (p, n) in [(0, 60), (13, 40), (59, 1), (4, 2)] {
            let at = || (p..p + n).map(|p| w.at(p));
            assert_eq!(w.span(p, n), Some((at().min().unwrap(), at().max().unwrap())));
        }
        assert_eq!(w.span(3, 0), None);
    }

    #[test]
    fn runs_agree_with_at_for_negative_and_large_strides() {
        let w = Walk::new(100, [(3, -7), (1, 9), (4, 20), (5, -1)].into_iter());
        for (p, n) in [(0, 60), (13, 40), (59, 1)] {
            w.runs(p, n, |done, e, s, len| {
                for i in 0..len {
                    assert_eq!(e + s * i as isize, w.at(p + done + i));
                }
            });
        }
    }
}

//! Copies of elements of any dtype between memory and blocks: strided, transposed, gathered.

#[cfg(target_arch = "x86_64")]
mod bytes;

use super::walk::Walk;
use super::{Bindings, ExecError, Isa};
use girih_ir::DType;
use std::mem::MaybeUninit;

/// Calls `$f::<T>` for a type of `$size` bytes.
macro_rules! by_size {
    ($size:expr, $f:ident($($arg:expr),*)) => {
        match $size {
            1 => $f::<u8>($($arg),*),
            2 => $f::<u16>($($arg),*),
            4 => $f::<u32>($($arg),*),
            8 => $f::<u64>($($arg),*),
            _ => $f::<[u64; 2]>($($arg),*),
        }
    };
}

/// # Safety
/// `from` is valid for `size` bytes, `out` for `n` elements of that size.
pub(super) unsafe fn splat(out: *mut u8, from: *const u8, size: u8, n: usize) {
    unsafe fn fill<T: Copy>(out: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise, for `T`.
        unsafe { super::ops::slice_mut::<T>(out, n).fill((from as *const T).read_unaligned()) }
    }
    // SAFETY: the caller's promise.
    unsafe { by_size!(size, fill(out, from, n)) }
}

/// Prefetches `n` elements from an address on, on machines that support it.
#[inline(always)]
pub(super) fn prefetch<T>(at: *const T, n: usize) {
    #[cfg(target_arch = "x86_64")]
    for byte in (0..n * size_of::<T>()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64; a prefetch reads nothing and faults nowhere.
        unsafe { _mm_prefetch((at as *const i8).wrapping_add(byte), _MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, n);
}

/// Transposes: element `[i, j]` of `to` is element `[j, i]` of `from`. The strides are elements
/// between rows. Whole cache lines are read and written at a time, because rows with power-of-two
/// strides map to few cache sets.
///
/// # Safety
/// `to` is valid for `rows` rows of `columns` elements, and `from` for `columns` rows of `rows`.
/// They do not overlap.
unsafe fn transpose<T: Copy>(
    to: *mut T,
    to_stride: isize,
    from: *const T,
    from_stride: isize,
    rows: usize,
    columns: usize,
) {
    const SIDE: usize = 16;
    for j in (0..columns).step_by(SIDE) {
        // The hardware prefetcher does not follow rows of `from`, which are short and far apart, so
        // prefetch the next ones.
        for next in j + SIDE..(j + 2 * SIDE).min(columns) {
            prefetch(from.wrapping_offset(next as isize * from_stride), rows);
        }
        for i in (0..rows).step_by(SIDE) {
            // SAFETY: the block lies in both matrices.
            unsafe {
                let to = to.offset(i as isize * to_stride).add(j);
                let from = from.offset(j as isize * from_stride).add(i);
                if rows - i < SIDE || columns - j < SIDE {
                    for j in 0..SIDE.min(columns - j) {
                        for i in 0..SIDE.min(rows - i) {
                            let element = *from.offset(j as isize * from_stride).add(i);
                            *to.offset(i as isize * to_stride).add(j) = element;
                        }
                    }
                    continue;
                }
                #[cfg(target_arch = "x86_64")]
                if size_of::<T>() == 1 {
                    bytes::transpose((to.cast(), to_stride), (from.cast(), from_stride));
                    continue;
                }
                let mut block = MaybeUninit::<[[T; SIDE]; SIDE]>::uninit();
                let block = block.as_mut_ptr() as *mut T;
                for j in 0..SIDE {
                    let line = from.offset(j as isize * from_stride) as *const [T; SIDE];
                    *(block.add(j * SIDE) as *mut [T; SIDE]) = *line;
                }
                for i in 0..SIDE {
                    let line: [T; SIDE] = std::array::from_fn(|j| *block.add(j * SIDE + i));
                    *(to.offset(i as isize * to_stride) as *mut [T; SIDE]) = line;
                }
            }
        }
    }
}

/// Copies `n` elements in reverse: element `i` of `to` is the element `i` before `from`.
///
/// # Safety
/// Both are valid for `n` elements, which do not overlap.
unsafe fn reverse<T: Copy>(to: *mut T, from: *const T, n: usize) {
    /// # Safety
    /// As [`reverse`].
    #[inline(always)]
    unsafe fn any<T: Copy>(to: *mut T, from: *const T, n: usize) {
        for i in 0..n {
            // SAFETY: the caller's promise.
            unsafe { *to.add(i) = *from.sub(i) };
        }
    }
    /// # Safety
    /// As [`reverse`]; the machine has AVX2, whose shuffles reverse vectors of any elements.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn avx2<T: Copy>(to: *mut T, from: *const T, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { any(to, from, n) }
    }
    // SAFETY: the caller's promise; the machine was asked.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if Isa::best() >= Isa::Avx2 {
            return avx2(to, from, n);
        }
        any(to, from, n)
    }
}

/// Copies runs of a few elements to a contiguous destination.
///
/// # Safety
/// `to` is valid for the elements of all runs, and the runs lie in memory valid for reads.
#[inline(always)]
unsafe fn runs_of<T: Copy>(
    to: *mut T,
    from: *const T,
    (run_stride, runs): (isize, usize),
    (stride, len): (isize, usize),
) {
    for run in 0..runs {
        for i in 0..len {
            // SAFETY: the caller's promise.
            unsafe {
                let element = from.offset(run_stride * run as isize + stride * i as isize);
                *to.add(run * len + i) = *element;
            }
        }
    }
}

/// The number of elements that [`long_runs`] moves at a time.
const PIECE: usize = 4;

/// [`runs_of`] at least [`PIECE`] elements that are contiguous or the same: pieces of constant length,
/// the last of which overlaps the one before.
///
/// # Safety
/// As [`runs_of`]; the stride is 0 or 1.
unsafe fn long_runs<T: Copy>(
    to: *mut T,
    from: *const T,
    (run_stride, runs): (isize, usize),
    (stride, len): (isize, usize),
) {
    debug_assert!(len >= PIECE && (stride == 0 || stride == 1));
    for run in 0..runs {
        // SAFETY: the pieces lie in the run, and the caller's promise.
        unsafe {
            let (to, from) = (to.add(run * len), from.offset(run_stride * run as isize));
            let piece = |at: usize| {
                let elements = match stride {
                    0 => [*from; PIECE],
                    _ => (from.add(at) as *const [T; PIECE]).read(),
                };
                (to.add(at) as *mut [T; PIECE]).write(elements);
            };
            for at in (0..len - PIECE).step_by(PIECE) {
                piece(at);
            }
            piece(len - PIECE);
        }
    }
}

/// [`runs_of`] a constant length, with loops of their own for the most frequent strides.
///
/// # Safety
/// As [`runs_of`].
unsafe fn short_runs<T: Copy, const LEN: usize>(
    to: *mut T,
    from: *const T,
    grid: (isize, usize),
    stride: isize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (stride, grid.0) {
            (0, 1) => runs_of(to, from, (1, grid.1), (0, LEN)),
            (0, _) => runs_of(to, from, grid, (0, LEN)),
            _ => runs_of(to, from, grid, (stride, LEN)),
        }
    }
}

/// Copies contiguous elements to runs of `len` elements, `LEN` unless it is 0.
///
/// # Safety
/// `from` is valid for the elements of all runs, and the runs lie in memory valid for writes. The
/// elements are those of the runs, or do not overlap them.
#[inline(always)]
unsafe fn put_runs<T: Copy, const LEN: usize>(
    to: *mut T,
    from: *const T,
    (run_stride, runs): (isize, usize),
    (stride, len): (isize, usize),
) {
    let len = if LEN > 0 { LEN } else { len };
    for run in 0..runs {
        for i in 0..len {
            // SAFETY: the caller's promise.
            unsafe {
                let to = to.offset(run_stride * run as isize + stride * i as isize);
                *to = *from.add(run * len + i);
            }
        }
    }
}

/// # Safety
/// `out` is valid for `n` elements; the walk stays inside the buffer at `base`.
pub(super) unsafe fn read(
    out: *mut u8,
    base: *const u8,
    walk: &Walk,
    size: u8,
    p: usize,
    n: usize,
) {
    unsafe fn copy<T: Copy>(out: *mut u8, base: *const u8, walk: &Walk, p: usize, n: usize) {
        let (out, base) = (out as *mut T, base as *const T);
        if let Some((down, across, stride)) = walk.tiles(p, n) {
            for done in (0..n).step_by(down * across) {
                // SAFETY: the tile lies inside the buffer and its elements inside the block.
                unsafe {
                    let (to, from) = (out.add(done), base.offset(walk.at(p + done)));
                    transpose(to, across as isize, from, stride, down, across);
                }
            }
            return;
        }
        if let Some(extent) = walk.short_runs() {
            walk.grids(p, n, |done, element, grid, run| {
                // SAFETY: the runs end at `n` at most, and their elements lie inside the buffer.
                unsafe {
                    let (to, from) = (out.add(done), base.offset(element));
                    match (extent, run) {
                        (2, (stride, 2)) => short_runs::<T, 2>(to, from, grid, stride),
                        (3, (stride, 3)) => short_runs::<T, 3>(to, from, grid, stride),
                        (4, (stride, 4)) => short_runs::<T, 4>(to, from, grid, stride),
                        (_, (stride @ 0..=1, len @ PIECE..)) => {
                            long_runs(to, from, grid, (stride, len));
                        }
                        (_, (stride, len)) => runs_of(to, from, grid, (stride, len)),
                    }
                }
            });
            return;
        }
        walk.runs(p, n, |done, element, stride, len| {
            // SAFETY: `done + len <= n`, and the run's elements lie inside the buffer.
            unsafe {
                let (to, from) = (out.add(done), base.offset(element));
                match stride {
                    1 => std::ptr::copy_nonoverlapping(from, to, len),
                    0 => std::slice::from_raw_parts_mut(to, len).fill(*from),
                    -1 => reverse(to, from, len),
                    // A separate loop, so that it is vectorised.
                    2 => {
                        for i in 0..len {
                            *to.add(i) = *from.add(2 * i);
                        }
                    }
                    _ => {
                        for i in 0..len {
                            *to.add(i) = *from.offset(stride * i as isize);
                        }
                    }
                }
            }
        });
    }
    // SAFETY: the caller's promise.
    unsafe { by_size!(size, copy(out, base, walk, p, n)) }
}

/// # Safety
/// `from` is valid for `n` elements; the walk stays inside the buffer at `base`, and no other
/// thread uses the elements it reaches.
pub(super) unsafe fn write(
    base: *mut u8,
    walk: &Walk,
    size: u8,
    from: *const u8,
    p: usize,
    n: usize,
) {
    unsafe fn copy<T: Copy>(base: *mut u8, walk: &Walk, from: *const u8, p: usize, n: usize) {
        let (base, from) = (base as *mut T, from as *const T);
        if let Some((down, across, stride)) = walk.tiles(p, n) {
            for done in (0..n).step_by(down * across) {
                // SAFETY: as for reads.
                unsafe {
                    let (from, to) = (from.add(done), base.offset(walk.at(p + done)));
                    transpose(to, stride, from, across as isize, across, down);
                }
            }
            return;
        }
        if walk.short_runs().is_some() {
            walk.grids(p, n, |done, element, grid, (stride, len)| {
                // SAFETY: as below.
                unsafe {
                    let (from, to) = (from.add(done), base.offset(element));
                    match len {
                        2 => put_runs::<T, 2>(to, from, grid, (stride, 2)),
                        3 => put_runs::<T, 3>(to, from, grid, (stride, 3)),
                        4 => put_runs::<T, 4>(to, from, grid, (stride, 4)),
                        _ => put_runs::<T, 0>(to, from, grid, (stride, len)),
                    }
                }
            });
            return;
        }
        walk.runs(p, n, |done, element, stride, len| {
            // SAFETY: `done + len <= n`, and the run's elements lie inside the buffer. The source
            // may be the buffer itself (a dense load stored in place), hence `copy`.
            unsafe {
                let (from, to) = (from.add(done), base.offset(element));
                if stride == 1 {
                    std::ptr::copy(from, to, len);
                } else {
                    for i in 0..len {
                        *to.offset(stride * i as isize) = *from.add(i);
                    }
                }
            }
        });
    }
    // SAFETY: the caller's promise.
    unsafe { by_size!(size, copy(base, walk, from, p, n)) }
}

/// An axis that indices address. The indices are converted to i64; those of dtype u64 from 2^63 on
/// are then negative, and must not be taken for indices that count from the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexedAxis {
    size: usize,
    unsigned: bool,
}

impl IndexedAxis {
    /// An axis of that size, addressed by indices of a dtype.
    pub fn new(size: usize, indices: DType) -> IndexedAxis {
        IndexedAxis { size, unsigned: indices == DType::U64 }
    }

    /// A checked index. Negative indices of signed dtypes count from the end.
    #[inline(always)]
    pub fn wrap(self, index: i64) -> Result<isize, ExecError> {
        let from_end = if self.unsigned { 0 } else { self.size as i64 };
        let wrapped = if index < 0 { index.wrapping_add(from_end) } else { index };
        if (wrapped as u64) < self.size as u64 {
            Ok(wrapped as isize)
        } else {
            Err(ExecError::IndexOutOfBounds { index: self.given(index), size: self.size })
        }
    }

    /// A checked class label.
    pub fn label(self, label: i64) -> Result<isize, ExecError> {
        let classes = self.size;
        match (label as u64) < classes as u64 {
            true => Ok(label as isize),
            false => Err(ExecError::LabelOutOfRange { label: self.given(label), classes }),
        }
    }

    /// An index before the conversion to i64.
    #[cold]
    fn given(self, index: i64) -> i128 {
        if self.unsigned { i128::from(index as u64) } else { index.into() }
    }
}

/// The elements that a gather accesses: those of `walk`, each moved by its index times
/// `stride`.
#[derive(Clone, Debug)]
pub(crate) struct Indexed {
    /// The elements at index 0.
    pub walk: Walk,
    /// The number of elements moved per unit of the index.
    pub stride: isize,
    /// The axis.
    pub axis: IndexedAxis,
    /// The number of consecutive points that have one index, counted from each multiple of it.
    pub repeats: usize,
}

impl Indexed {
    /// The number of points that have one index from which on a gather copies runs of elements.
    const RUN: usize = 8;

    /// Calls `f` with the number of points before each, and the element accessed there; stops at an
    /// index out of bounds.
    #[inline(always)]
    fn each(
        &self,
        indices: &[i64],
        p: usize,
        mut f: impl FnMut(usize, isize),
    ) -> Result<(), ExecError> {
        let mut failed = Ok(());
        self.walk.grids(p, indices.len(), |done, element, (run_stride, runs), (stride, len)| {
            if failed.is_err() {
                return;
            }
            for (run, indices) in indices[done..][..runs * len].chunks(len).enumerate() {
                let first = element + run_stride * run as isize;
                for (i, &index) in indices.iter().enumerate() {
                    match self.axis.wrap(index) {
                        Ok(index) => {
                            let element = first + stride * i as isize + index * self.stride;
                            f(done + run * len + i, element);
                        }
                        Err(error) => {
                            failed = Err(error);
                            return;
                        }
                    }
                }
            }
        });
        failed
    }

    /// Checks each element that a gather accesses, in checked mode. It stops at an index out of bounds,
    /// which the access reports.
    pub fn check(
        &self,
        bindings: &Bindings<'_>,
        buffer: usize,
        indices: &[i64],
        p: usize,
        size: usize,
    ) -> Result<(), ExecError> {
        let mut checked = Ok(());
        let check = |_, element| {
            if checked.is_ok() {
                checked = bindings.check_elements(buffer, (element, element), size);
            }
        };
        // The gather reports an index out of bounds.
        let _ = self.each(indices, p, check);
        checked
    }

    /// Gathers the elements at the points from `p` on, one per index.
    ///
    /// # Safety
    /// `out` is valid for as many elements of `size` bytes as there are indices; every element of the
    /// walk, moved by a checked index, lies inside the buffer at `base`.
    pub unsafe fn gather(
        &self,
        out: *mut u8,
        base: *const u8,
        indices: &[i64],
        p: usize,
        size: u8,
    ) -> Result<(), ExecError> {
        /// # Safety
        /// As [`Indexed::gather`], for `T`.
        unsafe fn elements<T: Copy>(
            at: &Indexed,
            out: *mut u8,
            base: *const u8,
            indices: &[i64],
            p: usize,
        ) -> Result<(), ExecError> {
            let (out, base) = (out as *mut T, base as *const T);
            // SAFETY: the index is inside its axis, so the element is inside the buffer.
            at.each(indices, p, |i, element| unsafe { *out.add(i) = *base.offset(element) })
        }
        if self.repeats < Indexed::RUN {
            // SAFETY: the caller's promise.
            return unsafe { by_size!(size, elements(self, out, base, indices, p)) };
        }
        // The points that have one index are a strided copy.
        let (mut done, bytes) = (0, size as usize);
        while done < indices.len() {
            let at = p + done;
            let n = (self.repeats - at % self.repeats).min(indices.len() - done);
            let moved = self.axis.wrap(indices[done])? * self.stride;
            // SAFETY: the index is inside its axis, so the elements are inside the buffer.
            unsafe {
                let base = base.offset(moved * bytes as isize);
                read(out.add(done * bytes), base, &self.walk, size, at, n);
            }
            done += n;
        }
        Ok(())
    }
}

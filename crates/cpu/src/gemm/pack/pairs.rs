//! Packing of short integers as pairs along K, with AVX2. One instruction multiplies two pairs and
//! adds the products (`vpmaddwd`), modulo 2^32.

use super::avx2::{WIDTH, store, transpose};
use super::{PackBlock, RowMajorB};
use crate::gemm::microkernels::{LANES, Stored};
use std::arch::x86_64::*;

/// A short integer in memory.
trait Short: Copy {
    /// The value as a 16-bit integer.
    fn short(self) -> i16;

    /// Loads sixteen consecutive elements as 16-bit integers.
    ///
    /// # Safety
    /// The elements are valid for reads; the machine has AVX2.
    unsafe fn sixteen(from: *const Self) -> __m256i;

    /// Loads eight consecutive elements as 16-bit integers.
    ///
    /// # Safety
    /// As [`Short::sixteen`].
    unsafe fn eight(from: *const Self) -> __m128i;
}

macro_rules! short {
    ($($type:ty, $widen_16:expr, $widen_8:expr;)+) => {$(
        impl Short for $type {
            fn short(self) -> i16 {
                self as i16
            }

            #[inline(always)]
            unsafe fn sixteen(from: *const Self) -> __m256i {
                // SAFETY: the caller's promise.
                unsafe { $widen_16(from) }
            }

            #[inline(always)]
            unsafe fn eight(from: *const Self) -> __m128i {
                // SAFETY: the caller's promise.
                unsafe { $widen_8(from) }
            }
        }
    )+};
}

short! {
    i8, |from: *const i8| _mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast())),
        |from: *const i8| _mm_cvtepi8_epi16(_mm_loadl_epi64(from.cast()));
    u8, |from: *const u8| _mm256_cvtepu8_epi16(_mm_loadu_si128(from.cast())),
        |from: *const u8| _mm_cvtepu8_epi16(_mm_loadl_epi64(from.cast()));
    i16, |from: *const i16| _mm256_loadu_si256(from.cast()),
        |from: *const i16| _mm_loadu_si128(from.cast());
}

/// Packs a block, as [`pack`](super::pack).
///
/// # Safety
/// As there; the machine has AVX2.
pub(super) unsafe fn pack(block: &PackBlock<'_>, to: *mut u32, width: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match block.stored {
            Stored::I8 => pack_as(block, block.start.cast::<i8>(), to, width),
            Stored::U8 => pack_as(block, block.start, to, width),
            Stored::I16 => pack_as(block, block.start.cast::<i16>(), to, width),
            other => unreachable!("{other:?} is no short integer"),
        }
    }
}

/// Packs rows, as [`RowMajorB::pack`].
///
/// # Safety
/// As there; the machine has AVX2.
pub(super) unsafe fn pack_rows(rows: &RowMajorB, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        match rows.stored {
            Stored::I8 => rows_as::<i8>(rows, to),
            Stored::U8 => rows_as::<u8>(rows, to),
            Stored::I16 => rows_as::<i16>(rows, to),
            other => unreachable!("{other:?} is no short integer"),
        }
    }
}

/// A pair of integers as the bits of one element.
fn pair(first: i16, second: i16) -> u32 {
    first as u16 as u32 | (second as u16 as u32) << 16
}

/// # Safety
/// As [`pack_rows`].
#[target_feature(enable = "avx2")]
unsafe fn rows_as<T: Short>(rows: &RowMajorB, to: *mut u32) {
    let pairs = rows.rows.div_ceil(2);
    for k in 0..pairs {
        let row = |k: usize| rows.start.wrapping_offset(k as isize * rows.ldb).cast::<T>();
        let first = row(2 * k);
        let second = (2 * k + 1 < rows.rows).then(|| row(2 * k + 1));
        for row in [row(2 * k), row(2 * k + 1)] {
            rows.prefetch_after(row.cast(), rows.columns * size_of::<T>());
        }
        for column in (0..rows.columns).step_by(rows.nr) {
            let columns = rows.nr.min(rows.columns - column);
            let width = columns.next_multiple_of(LANES);
            let panel = to.wrapping_add(column * pairs + k * width);
            let [first, second] =
                [Some(first), second].map(|row| row.map(|r| r.wrapping_add(column)));
            // SAFETY: elements of both rows; the panel has room.
            unsafe {
                interleave(first, second, columns, panel);
                panel.add(columns).write_bytes(0, width - columns);
            }
        }
    }
}

/// Writes the pairs of the elements of two rows; a row that is `None` consists of zeros.
///
/// # Safety
/// `n` elements of the rows are valid for reads, `to` for as many pairs.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn interleave<T: Short>(
    first: Option<*const T>,
    second: Option<*const T>,
    n: usize,
    to: *mut u32,
) {
    let whole = n - n % WIDTH;
    // SAFETY: the caller's promise.
    unsafe {
        for i in (0..whole).step_by(WIDTH) {
            let eight = |row: Option<*const T>| match row {
                Some(row) => T::eight(row.add(i)),
                None => _mm_setzero_si128(),
            };
            let (a, b) = (eight(first), eight(second));
            _mm_storeu_si128(to.add(i).cast(), _mm_unpacklo_epi16(a, b));
            _mm_storeu_si128(to.add(i + 4).cast(), _mm_unpackhi_epi16(a, b));
        }
        for i in whole..n {
            let [a, b] = [first, second].map(|row| row.map_or(0, |row| (*row.add(i)).short()));
            to.add(i).write(pair(a, b));
        }
    }
}

/// # Safety
/// As [`pack`].
#[target_feature(enable = "avx2")]
unsafe fn pack_as<T: Short>(block: &PackBlock<'_>, start: *const T, to: *mut u32, width: usize) {
    for (first, columns, lanes) in block.vectors(width) {
        let mut offsets = [0; LANES];
        let offsets = block.offsets(columns, &mut offsets);
        let run = offsets.windows(2).all(|w| w[1] - w[0] == 1);
        let to = to.wrapping_add(first);
        // SAFETY: the caller's promise, for at most sixteen columns.
        unsafe {
            match block.along_k {
                true => along_k(block, start, offsets, to, width, lanes),
                false => across(block, start, (offsets, run), to, width, lanes),
            }
        }
    }
}

/// Packs columns whose elements are not contiguous along K.
///
/// # Safety
/// As [`pack`], for the columns with these offsets; `lanes` are those that are written.
#[target_feature(enable = "avx2")]
unsafe fn across<T: Short>(
    block: &PackBlock<'_>,
    start: *const T,
    (offsets, run): (&[isize], bool),
    to: *mut u32,
    width: usize,
    lanes: usize,
) {
    for (k, pair_offsets) in block.k_offsets.chunks(2).enumerate() {
        let to = to.wrapping_add(k * width);
        let row = |i: usize| pair_offsets.get(i).map(|&k| start.wrapping_offset(k));
        let (first, second) = (row(0), row(1));
        // SAFETY: elements of the block; lanes within the width.
        unsafe {
            if let (true, Some(&column)) = (run, offsets.first()) {
                let [first, second] =
                    [first, second].map(|row| row.map(|row| row.wrapping_offset(column)));
                interleave(first, second, offsets.len(), to);
            } else {
                for (lane, &column) in offsets.iter().enumerate() {
                    let at = |row: Option<*const T>| {
                        row.map_or(0, |row| (*row.wrapping_offset(column)).short())
                    };
                    to.add(lane).write(pair(at(first), at(second)));
                }
            }
            to.add(offsets.len()).write_bytes(0, lanes - offsets.len());
        }
    }
}

/// Packs columns whose elements are mostly contiguous along K.
///
/// # Safety
/// As [`across`].
#[target_feature(enable = "avx2")]
unsafe fn along_k<T: Short>(
    block: &PackBlock<'_>,
    start: *const T,
    offsets: &[isize],
    to: *mut u32,
    width: usize,
    lanes: usize,
) {
    let mut k = 0;
    while k < block.k_offsets.len() {
        let rest = &block.k_offsets[k..block.k_offsets.len().min(k + 2 * WIDTH)];
        let dense = rest.len() == 2 * WIDTH && rest.windows(2).all(|w| w[1] - w[0] == 1);
        let to = to.wrapping_add(k / 2 * width);
        if !dense {
            let some = PackBlock { k_offsets: rest, indices: block.indices.clone(), ..*block };
            // SAFETY: the caller's promise, for a part of K.
            unsafe { across(&some, start, (offsets, false), to, width, lanes) };
            k += rest.len();
            continue;
        }
        let start = start.wrapping_offset(rest[0]);
        for first in (0..lanes).step_by(WIDTH) {
            let some = &offsets[first.min(offsets.len())..offsets.len().min(first + WIDTH)];
            let lanes = WIDTH.min(lanes - first);
            let to = to.wrapping_add(first).cast::<f32>();
            let mut rows = [_mm256_setzero_ps(); WIDTH];
            // SAFETY: sixteen elements from here on are the columns'; stores stay within the width.
            unsafe {
                for (row, &column) in rows.iter_mut().zip(some) {
                    let at = start.wrapping_offset(column);
                    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(4 * LANES).cast());
                    *row = _mm256_castsi256_ps(T::sixteen(at));
                }
                transpose(&mut rows);
                for (i, row) in rows.iter().enumerate() {
                    store(to.wrapping_add(i * width), *row, lanes);
                }
            }
        }
        k += rest.len();
    }
}

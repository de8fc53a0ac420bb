//! Packing with AVX-512.

use super::{PackBlock, RowMajorB, RowOfPanel, size};
use crate::gemm::microkernels::LANES;
use smallvec::SmallVec;
use std::arch::x86_64::*;
use std::ops::Range;

/// Packs rows, as [`RowMajorB::pack`].
///
/// # Safety
/// As there; the machine has AVX-512 F, BW and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn rows_as<const S: u8>(rows: &RowMajorB, to: *mut f32) {
    for k in 0..rows.rows {
        for RowOfPanel { from, columns, panel, .. } in rows.panels_of_row(k, to) {
            for column in (0..columns).step_by(LANES) {
                // SAFETY: the vector's lanes are elements of the row; its panel has room.
                unsafe {
                    let from = from.wrapping_offset(column as isize * size(S));
                    let vector = load::<S>(from, lanes(columns - column));
                    _mm512_storeu_ps(panel.wrapping_add(column), vector);
                }
            }
        }
    }
}

/// The mask of the first `n` lanes.
pub(in crate::gemm) fn lanes(n: usize) -> u16 {
    ((1u32 << n.min(LANES)) - 1) as u16
}

/// Loads the elements of the lanes in `mask`, which are contiguous in memory, as f32 or 32-bit
/// integers. The other lanes are zero.
///
/// # Safety
/// Elements in these lanes are valid for reads.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn load<const S: u8>(from: *const u8, mask: u16) -> __m512 {
    // SAFETY: masked lanes are not touched.
    unsafe {
        match S {
            0 => _mm512_maskz_loadu_ps(mask, from as *const f32),
            1 => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from as *const i16)),
            2..=4 => {
                let words = _mm256_maskz_loadu_epi16(mask, from as *const i16);
                _mm512_castsi512_ps(match S {
                    2 => _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(words)),
                    3 => _mm512_cvtepi16_epi32(words),
                    _ => _mm512_cvtepu16_epi32(words),
                })
            }
            _ => {
                let bytes = _mm_maskz_loadu_epi8(mask, from as *const i8);
                _mm512_castsi512_ps(match S {
                    5 => _mm512_cvtepi8_epi32(bytes),
                    _ => _mm512_cvtepu8_epi32(bytes),
                })
            }
        }
    }
}

/// Packs a block, as [`pack`](super::pack).
///
/// # Safety
/// As there; the machine has AVX-512 F, BW and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn pack_as<const S: u8>(block: &PackBlock<'_>, to: *mut f32, width: usize) {
    for (first, columns, written) in block.vectors(width) {
        let store = lanes(written);
        // SAFETY: the caller's promise, for a vector of columns.
        unsafe {
            let to = to.add(first);
            match block.along_k {
                true => transposed::<S>(block, columns, to, width, store),
                false => vectors::<S>(block, columns, to, width, store),
            }
        }
    }
}

/// The maximum number of segments for which merging them is cheaper than a gather.
const MAX_SEGMENTS: usize = 5;

/// Columns of a vector with a constant stride: their lanes, a mask of the elements of two vectors
/// in memory that hold them, and the distance of the element of lane 0.
#[derive(Clone, Copy)]
struct Segment {
    lanes: u16,
    elements: u32,
    origin: isize,
}

/// The columns of a vector as segments; the stride within a segment, the innermost step, is 1 or 2.
fn segments(block: &PackBlock<'_>, columns: &Range<usize>) -> SmallVec<[Segment; LANES]> {
    let mut segments: SmallVec<[Segment; LANES]> = SmallVec::new();
    let step = block.outer.inner_stride();
    block.outer.runs(columns.start, columns.len(), |lane, element, len| {
        let spread = if step == 1 { u64::MAX } else { 0x5555_5555 };
        let elements = (spread & ((1 << (len * step as usize)) - 1)) << (lane * step as usize);
        let origin = element - lane as isize * step;
        segments.push(Segment { lanes: lanes(len) << lane, elements: elements as u32, origin });
    });
    segments
}

/// Packs a vector of columns, by merging segments if there are few segments.
///
/// # Safety
/// As [`pack_as`], for these columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn vectors<const S: u8>(
    block: &PackBlock<'_>,
    columns: Range<usize>,
    to: *mut f32,
    width: usize,
    store: u16,
) {
    // SAFETY: as for this function.
    unsafe {
        if matches!(block.outer.inner_stride(), 1 | 2) {
            let segments = segments(block, &columns);
            match block.outer.inner_stride() {
                _ if segments.len() > MAX_SEGMENTS => {}
                1 => return merged::<S, 1>(block, &segments, to, width, store),
                _ => return merged::<S, 2>(block, &segments, to, width, store),
            }
        }
        gathered::<S>(block, columns, to, width, store);
    }
}

/// Packs a vector of columns that is merged from segments with stride `STEP`. The most frequent
/// numbers of segments each have an unrolled loop without branches.
///
/// # Safety
/// As [`pack_as`], for the segments' columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn merged<const S: u8, const STEP: usize>(
    block: &PackBlock<'_>,
    segments: &[Segment],
    to: *mut f32,
    width: usize,
    store: u16,
) {
    let mut to = to;
    // SAFETY: each segment's elements are elements of the block; the store stays within the width.
    let mut each = |segments: &[Segment]| unsafe {
        for &k_offset in block.k_offsets {
            let start = block.start.wrapping_offset(k_offset * size(S));
            let mut vector = _mm512_setzero_ps();
            for segment in segments {
                vector = merge::<S, STEP>(vector, segment, start);
            }
            _mm512_mask_storeu_ps(to, store, vector);
            to = to.wrapping_add(width);
        }
    };
    match *segments {
        [a] => each(&[a]),
        [a, b] => each(&[a, b]),
        [a, b, c] => each(&[a, b, c]),
        [a, b, c, d] => each(&[a, b, c, d]),
        _ => each(segments),
    }
}

/// Replaces a segment's lanes in a vector with the elements in memory.
///
/// # Safety
/// The segment's elements, counted from `start`, are valid for reads.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn merge<const S: u8, const STEP: usize>(
    vector: __m512,
    segment: &Segment,
    start: *const u8,
) -> __m512 {
    let at = start.wrapping_offset(segment.origin * size(S));
    let (near, far) = (segment.elements as u16, (segment.elements >> LANES) as u16);
    // SAFETY: masked elements are not touched.
    unsafe {
        if STEP == 1 {
            return _mm512_mask_mov_ps(vector, segment.lanes, load::<S>(at, near));
        }
        let beyond = at.wrapping_offset(LANES as isize * size(S));
        let (near, far) = (load::<S>(at, near), load::<S>(beyond, far));
        let even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        _mm512_mask_mov_ps(vector, segment.lanes, _mm512_permutex2var_ps(near, even, far))
    }
}

/// Packs a vector of columns with irregular distances by a gather.
///
/// # Safety
/// As [`pack_as`], for these columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn gathered<const S: u8>(
    block: &PackBlock<'_>,
    columns: Range<usize>,
    to: *mut f32,
    width: usize,
    store: u16,
) {
    let mut offsets = [0; LANES];
    let offsets = block.offsets(columns, &mut offsets);
    let origin = offsets.first().copied().unwrap_or(0);
    let mut index = [0i32; LANES];
    let mut near = S == 0;
    for (index, &offset) in index.iter_mut().zip(offsets) {
        let distance = i32::try_from(offset - origin);
        near &= distance.is_ok();
        *index = distance.unwrap_or(0);
    }
    let mask = lanes(offsets.len());
    // SAFETY: an array of sixteen words.
    let index = unsafe { _mm512_loadu_si512(index.as_ptr().cast()) };
    for (k, &k_offset) in block.k_offsets.iter().enumerate() {
        let start = block.start.wrapping_offset((k_offset + origin) * size(S));
        // SAFETY: lanes of the mask are elements of the block; the store stays within the width.
        unsafe {
            let mut vector = _mm512_setzero_ps();
            if near {
                vector = _mm512_mask_i32gather_ps::<4>(vector, mask, index, start.cast());
            } else {
                for (lane, &offset) in offsets.iter().enumerate() {
                    let at = start.wrapping_offset((offset - origin - lane as isize) * size(S));
                    vector = _mm512_mask_mov_ps(vector, 1 << lane, load::<S>(at, 1 << lane));
                }
            }
            _mm512_mask_storeu_ps(to.add(k * width), store, vector);
        }
    }
}

/// Packs a vector of columns whose elements are contiguous along K.
///
/// # Safety
/// As [`pack_as`], for these columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn transposed<const S: u8>(
    block: &PackBlock<'_>,
    columns: Range<usize>,
    to: *mut f32,
    width: usize,
    store: u16,
) {
    let mut offsets = [0; LANES];
    let offsets = block.offsets(columns, &mut offsets);
    let mut k = 0;
    while k < block.k_offsets.len() {
        let run = block.run_along_k(k, LANES);
        let start = block.start.wrapping_offset(block.k_offsets[k] * size(S));
        let mut rows = [_mm512_setzero_ps(); LANES];
        // SAFETY: `run` elements from here on are the column's; stores stay within the width.
        unsafe {
            for (row, &column) in rows.iter_mut().zip(offsets) {
                // The columns can be more streams than the hardware prefetcher follows, so prefetch
                // them explicitly.
                let ahead = start.wrapping_offset((column + 2 * LANES as isize) * size(S));
                _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                *row = load::<S>(start.wrapping_offset(column * size(S)), lanes(run));
            }
            transpose(&mut rows);
            for (i, row) in rows.iter().take(run).enumerate() {
                _mm512_mask_storeu_ps(to.add((k + i) * width), store, *row);
            }
        }
        k += run;
    }
}

/// Transposes 16 by 16 elements.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose(rows: &mut [__m512; LANES]) {
    let double = |v: __m512| _mm512_castps_pd(v);
    let single = |v: __m512d| _mm512_castpd_ps(v);
    let mut pairs = [_mm512_setzero_ps(); LANES];
    for i in (0..LANES).step_by(2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    let mut groups = [_mm512_setzero_ps(); LANES];
    for i in (0..LANES).step_by(4) {
        for j in 0..2 {
            let (a, b) = (double(pairs[i + j]), double(pairs[i + 2 + j]));
            groups[i + 2 * j] = single(_mm512_unpacklo_pd(a, b));
            groups[i + 2 * j + 1] = single(_mm512_unpackhi_pd(a, b));
        }
    }
    // groups[4 i + j], 128-bit lane p: rows 4 i.. of column 4 p + j.
    for j in 0..4 {
        let (a, b, c, d) = (groups[j], groups[4 + j], groups[8 + j], groups[12 + j]);
        let (ab, ab2) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
        let (cd, cd2) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
        rows[j] = _mm512_shuffle_f32x4::<0x88>(ab, cd);
        rows[8 + j] = _mm512_shuffle_f32x4::<0xdd>(ab, cd);
        rows[4 + j] = _mm512_shuffle_f32x4::<0x88>(ab2, cd2);
        rows[12 + j] = _mm512_shuffle_f32x4::<0xdd>(ab2, cd2);
    }
}

/// As [`super::transpose_rows`]. Rows of the result that begin at the same place in a cache line are
/// written line by line.
///
/// # Safety
/// As there; the machine has AVX-512 F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn transpose_rows(
    (from, row): (*const f32, usize),
    (n, columns): (usize, usize),
    to: *mut f32,
    ld: isize,
) {
    let mut i = 0;
    while i < n {
        let before_line = LANES - (to as usize / size_of::<f32>() + i) % LANES;
        let at_once = if ld % LANES as isize == 0 { before_line } else { LANES };
        let at_once = at_once.min(n - i);
        for j in (0..columns).step_by(LANES) {
            let mut rows = [_mm512_setzero_ps(); LANES];
            // SAFETY: elements of the rows and of the transposed rows.
            unsafe {
                for (r, to) in rows[..at_once].iter_mut().enumerate() {
                    *to = _mm512_loadu_ps(from.add((i + r) * row + j));
                }
                transpose(&mut rows);
                for (c, row) in rows[..LANES.min(columns - j)].iter().enumerate() {
                    let to = to.offset((j + c) as isize * ld + i as isize);
                    _mm512_mask_storeu_ps(to, lanes(at_once), *row);
                }
            }
        }
        i += at_once;
    }
}

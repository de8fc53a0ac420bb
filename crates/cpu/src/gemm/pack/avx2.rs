//! Packing with AVX2.

use super::{PackBlock, RowMajorB, RowOfPanel, element, size};
use crate::gemm::microkernels::LANES;
use smallvec::SmallVec;
use std::arch::x86_64::*;
use std::ops::Range;

/// The number of lanes of a register.
pub(super) const WIDTH: usize = 8;

/// Packs rows, as [`RowMajorB::pack`].
///
/// # Safety
/// As there; the machine has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn rows_as<const S: u8>(rows: &RowMajorB, to: *mut f32) {
    for k in 0..rows.rows {
        for RowOfPanel { from, columns, panel, width } in rows.panels_of_row(k, to) {
            // SAFETY: elements of the row; its panel has room.
            unsafe { run::<S>(from, columns, panel, width) };
        }
    }
}

/// Packs `n` consecutive elements, and pads with zeros to `width` elements.
///
/// # Safety
/// The elements are valid for reads, `to` for the width.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run<const S: u8>(from: *const u8, n: usize, to: *mut f32, width: usize) {
    let whole = n - n % WIDTH;
    // SAFETY: the caller's promise.
    unsafe {
        for i in (0..whole).step_by(WIDTH) {
            let vector = load::<S>(from.wrapping_offset(i as isize * size(S)));
            _mm256_storeu_ps(to.wrapping_add(i), vector);
        }
        for i in whole..n {
            *to.wrapping_add(i) = element::<S>(from.wrapping_offset(i as isize * size(S)));
        }
        to.wrapping_add(n).write_bytes(0, width - n);
    }
}

/// Loads eight consecutive elements as f32 or 32-bit integers.
///
/// # Safety
/// The elements are valid for reads.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load<const S: u8>(from: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        match S {
            0 => _mm256_loadu_ps(from.cast()),
            1 => _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
            2..=4 => {
                let words = _mm_loadu_si128(from.cast());
                _mm256_castsi256_ps(match S {
                    2 => _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(words)),
                    3 => _mm256_cvtepi16_epi32(words),
                    _ => _mm256_cvtepu16_epi32(words),
                })
            }
            _ => {
                let bytes = _mm_loadl_epi64(from.cast());
                _mm256_castsi256_ps(match S {
                    5 => _mm256_cvtepi8_epi32(bytes),
                    _ => _mm256_cvtepu8_epi32(bytes),
                })
            }
        }
    }
}

/// Packs a block, as [`pack`](super::pack).
///
/// # Safety
/// As there; the machine has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn pack_as<const S: u8>(block: &PackBlock<'_>, to: *mut f32, width: usize) {
    for (first, columns, lanes) in block.vectors(width) {
        // SAFETY: the caller's promise, for at most sixteen columns.
        unsafe {
            let to = to.add(first);
            match block.along_k {
                true => transposed::<S>(block, columns, to, width, lanes),
                false => vectors::<S>(block, columns, to, width, lanes),
            }
        }
    }
}

/// Consecutive lanes of a register whose elements have a constant stride in memory: a mask of the
/// lanes, and the distance at which the element of lane 0 would be.
#[derive(Clone, Copy)]
struct Segment {
    lanes: __m256i,
    origin: isize,
}

/// The segments of a register.
type Segments = SmallVec<[Segment; WIDTH]>;

/// The maximum number of segments of a register for which merging them is faster than loading
/// element by element.
const MAX_SEGMENTS: usize = 4;

/// A mask of lanes.
#[target_feature(enable = "avx2")]
fn mask(lanes: Range<usize>) -> __m256i {
    let lane: [i32; WIDTH] = std::array::from_fn(|i| if lanes.contains(&i) { -1 } else { 0 });
    // SAFETY: an array of eight words.
    unsafe { _mm256_loadu_si256(lane.as_ptr().cast()) }
}

/// The columns of a vector as segments with stride 1 or 2.
#[target_feature(enable = "avx2")]
fn segments(block: &PackBlock<'_>, columns: &Range<usize>) -> [Segments; 2] {
    let mut segments = <[Segments; 2]>::default();
    let step = block.outer.inner_stride();
    block.outer.runs(columns.start, columns.len(), |lane, element, len| {
        for (half, segments) in segments.iter_mut().enumerate() {
            let first = half * WIDTH;
            let (start, end) = (lane.max(first), (lane + len).min(first + WIDTH));
            if start < end {
                let origin = element + (first as isize - lane as isize) * step;
                segments.push(Segment { lanes: mask(start - first..end - first), origin });
            }
        }
    });
    segments
}

/// Packs at most sixteen columns, by merging segments of f32 if there are few segments.
///
/// # Safety
/// As [`pack_as`], for these columns; `lanes` are those that are written.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn vectors<const S: u8>(
    block: &PackBlock<'_>,
    columns: Range<usize>,
    to: *mut f32,
    width: usize,
    lanes: usize,
) {
    // SAFETY: as for this function.
    unsafe {
        let step = block.outer.inner_stride();
        if S == 0 && lanes.is_multiple_of(WIDTH) && matches!(step, 1 | 2) {
            let segments = segments(block, &columns);
            let segments = &segments[..lanes / WIDTH];
            if segments.iter().all(|of| of.len() <= MAX_SEGMENTS) {
                return match step {
                    1 => merged::<1>(block, segments, to, width),
                    _ => merged::<2>(block, segments, to, width),
                };
            }
        }
        let mut offsets = [0; LANES];
        let offsets = block.offsets(columns, &mut offsets);
        for (k, &k_offset) in block.k_offsets.iter().enumerate() {
            let (start, to) = (block.start.wrapping_offset(k_offset * size(S)), to.add(k * width));
            for (lane, &offset) in offsets.iter().enumerate() {
                *to.add(lane) = element::<S>(start.wrapping_offset(offset * size(S)));
            }
            to.add(offsets.len()).write_bytes(0, lanes - offsets.len());
        }
    }
}

/// Packs the columns of one or two registers, which are merged from segments with stride `STEP`.
/// The most frequent numbers of segments each have a loop without branches.
///
/// # Safety
/// As [`pack_as`], for the segments' columns.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn merged<const STEP: usize>(
    block: &PackBlock<'_>,
    segments: &[Segments],
    to: *mut f32,
    width: usize,
) {
    for (half, segments) in segments.iter().enumerate() {
        let mut to = to.wrapping_add(half * WIDTH);
        // SAFETY: each segment's elements are elements of the block; the store stays within the
        // width.
        let mut each = |segments: &[Segment]| unsafe {
            for &k_offset in block.k_offsets {
                let start = block.start.cast::<f32>().wrapping_offset(k_offset);
                let mut vector = _mm256_setzero_ps();
                for segment in segments {
                    vector = _mm256_or_ps(vector, segment_lanes::<STEP>(segment, start));
                }
                _mm256_storeu_ps(to, vector);
                to = to.wrapping_add(width);
            }
        };
        match *segments.as_slice() {
            [a] => each(&[a]),
            [a, b] => each(&[a, b]),
            [a, b, c] => each(&[a, b, c]),
            _ => each(segments),
        }
    }
}

/// The elements of a segment in its lanes, and zeros in the other lanes.
///
/// # Safety
/// The segment's elements, counted from `start`, are valid for reads.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn segment_lanes<const STEP: usize>(segment: &Segment, start: *const f32) -> __m256 {
    let at = start.wrapping_offset(segment.origin);
    // SAFETY: masked elements are not touched.
    unsafe {
        if STEP == 1 {
            return _mm256_maskload_ps(at, segment.lanes);
        }
        // Lane i gets element 2 i of memory, so widen the masks of lanes to masks of pairs.
        let pair = |lanes: __m128i| _mm256_cvtepu32_epi64(lanes);
        let near = pair(_mm256_castsi256_si128(segment.lanes));
        let far = pair(_mm256_extracti128_si256::<1>(segment.lanes));
        let near = _mm256_maskload_ps(at, near);
        let far = _mm256_maskload_ps(at.wrapping_add(WIDTH), far);
        let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(near, far));
        _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(even))
    }
}

/// Packs at most sixteen columns whose elements are contiguous along K.
///
/// # Safety
/// As [`pack_as`], for these columns; `lanes` are those that are written.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn transposed<const S: u8>(
    block: &PackBlock<'_>,
    columns: Range<usize>,
    to: *mut f32,
    width: usize,
    lanes: usize,
) {
    let mut offsets = [0; LANES];
    let offsets = block.offsets(columns, &mut offsets);
    let mut k = 0;
    while k < block.k_offsets.len() {
        let run = block.run_along_k(k, WIDTH);
        let start = block.start.wrapping_offset(block.k_offsets[k] * size(S));
        let to = to.wrapping_add(k * width);
        for first in (0..lanes).step_by(WIDTH) {
            let some = &offsets[first.min(offsets.len())..offsets.len().min(first + WIDTH)];
            let lanes = WIDTH.min(lanes - first);
            let to = to.wrapping_add(first);
            // SAFETY: `run` elements from here on are the columns'; stores stay within the width.
            unsafe {
                if run == WIDTH {
                    let mut rows = [_mm256_setzero_ps(); WIDTH];
                    for (row, &column) in rows.iter_mut().zip(some) {
                        // The columns can be more streams than the hardware prefetcher follows, so
                        // prefetch them explicitly.
                        let ahead = start.wrapping_offset((column + 4 * WIDTH as isize) * size(S));
                        _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                        *row = load::<S>(start.wrapping_offset(column * size(S)));
                    }
                    transpose(&mut rows);
                    for (i, row) in rows.iter().enumerate() {
                        store(to.wrapping_add(i * width), *row, lanes);
                    }
                } else {
                    for i in 0..run {
                        let to = to.wrapping_add(i * width);
                        for (lane, &column) in some.iter().enumerate() {
                            let at = start.wrapping_offset((column + i as isize) * size(S));
                            *to.add(lane) = element::<S>(at);
                        }
                        to.add(some.len()).write_bytes(0, lanes - some.len());
                    }
                }
            }
        }
        k += run;
    }
}

/// Stores the first lanes of a register. (Masked stores take tens of cycles on Zen 2 and 3.)
///
/// # Safety
/// `to` is valid for writes of `lanes` elements.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn store(to: *mut f32, vector: __m256, lanes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if lanes == WIDTH {
            return _mm256_storeu_ps(to, vector);
        }
        let (mut rest, mut at) = (_mm256_castps256_ps128(vector), to);
        if lanes >= 4 {
            _mm_storeu_ps(at, rest);
            (rest, at) = (_mm256_extractf128_ps::<1>(vector), at.add(4));
        }
        if lanes & 2 != 0 {
            _mm_storel_pd(at.cast(), _mm_castps_pd(rest));
            (rest, at) = (_mm_movehl_ps(rest, rest), at.add(2));
        }
        if lanes & 1 != 0 {
            _mm_store_ss(at, rest);
        }
    }
}

/// As [`super::transpose_rows`].
///
/// # Safety
/// As there; the machine has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose_rows(
    (from, row): (*const f32, usize),
    (n, columns): (usize, usize),
    to: *mut f32,
    ld: isize,
) {
    for i in (0..n).step_by(WIDTH) {
        for j in (0..columns).step_by(WIDTH) {
            let (lanes, columns) = (WIDTH.min(n - i), WIDTH.min(columns - j));
            let mut rows = [_mm256_setzero_ps(); WIDTH];
            // SAFETY: elements of the rows and of the transposed rows.
            unsafe {
                for (r, to) in rows[..lanes].iter_mut().enumerate() {
                    *to = _mm256_loadu_ps(from.add((i + r) * row + j));
                }
                transpose(&mut rows);
                for (c, row) in rows[..columns].iter().enumerate() {
                    store(to.offset((j + c) as isize * ld + i as isize), *row, lanes);
                }
            }
        }
    }
}

/// Transposes 8 by 8 elements.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn transpose(rows: &mut [__m256; WIDTH]) {
    let double = |v: __m256| _mm256_castps_pd(v);
    let single = |v: __m256d| _mm256_castpd_ps(v);
    let mut pairs = [_mm256_setzero_ps(); WIDTH];
    for i in (0..WIDTH).step_by(2) {
        pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    // fours[4 i + j], 128-bit lane p: rows 4 i.. of column 4 p + j.
    let mut fours = [_mm256_setzero_ps(); WIDTH];
    for i in (0..WIDTH).step_by(4) {
        for j in 0..2 {
            let (a, b) = (double(pairs[i + j]), double(pairs[i + 2 + j]));
            fours[i + 2 * j] = single(_mm256_unpacklo_pd(a, b));
            fours[i + 2 * j + 1] = single(_mm256_unpackhi_pd(a, b));
        }
    }
    for j in 0..4 {
        rows[j] = _mm256_permute2f128_ps::<0x20>(fours[j], fours[4 + j]);
        rows[4 + j] = _mm256_permute2f128_ps::<0x31>(fours[j], fours[4 + j]);
    }
}

/// As [`super::add_chains`].
///
/// # Safety
/// As there; the machine has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn add_chains(
    a: *const f32,
    (start, ldb): (*const u8, isize),
    (k, n): (usize, usize),
    chains: &mut [f32],
    to: *mut f32,
) {
    chains.fill(0.0);
    for i in 0..k {
        let row = start.wrapping_offset(i as isize * ldb).cast::<f32>();
        let sums = &mut chains[i % LANES * n..][..n];
        // SAFETY: the row's factor.
        let factor = unsafe { a.add(i).read_unaligned() };
        for (j, sum) in sums.iter_mut().enumerate() {
            // SAFETY: an element of the row.
            *sum = factor.mul_add(unsafe { row.add(j).read_unaligned() }, *sum);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        let (lower, upper) = chains.split_at_mut(width * n);
        lower.iter_mut().zip(upper).for_each(|(sum, x)| *sum += *x);
        width /= 2;
    }
    // SAFETY: the caller's promise.
    unsafe { to.copy_from_nonoverlapping(chains.as_ptr(), n) };
}

/// Adds floats, or integers that are given as floats with their bits.
#[inline]
#[target_feature(enable = "avx2")]
fn add(a: __m256, b: __m256, integers: bool) -> __m256 {
    match integers {
        true => {
            let [a, b] = [a, b].map(|v| _mm256_castps_si256(v));
            _mm256_castsi256_ps(_mm256_add_epi32(a, b))
        }
        false => _mm256_add_ps(a, b),
    }
}

/// As [`super::add_lanes`], which has the order of the additions.
///
/// # Safety
/// As there; the machine has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn add_lanes(chains: *const f32, sums: &mut [f32], integers: bool) {
    for (i, sums) in sums.chunks_mut(WIDTH).enumerate() {
        let mut lanes = [_mm256_setzero_ps(); WIDTH];
        for (j, lanes) in lanes[..sums.len()].iter_mut().enumerate() {
            let from = chains.wrapping_add((i * WIDTH + j) * LANES);
            // SAFETY: the caller's promise.
            let [low, high] = unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(WIDTH))] };
            *lanes = add(low, high, integers);
        }
        // After this, vector `l` has lane `l` of all sums.
        transpose(&mut lanes);
        let mut width = WIDTH / 2;
        while width > 0 {
            for l in 0..width {
                lanes[l] = add(lanes[l], lanes[l + width], integers);
            }
            width /= 2;
        }
        match sums.len() {
            // SAFETY: eight sums.
            WIDTH => unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), lanes[0]) },
            n => {
                let mut all = [0f32; WIDTH];
                // SAFETY: eight elements.
                unsafe { _mm256_storeu_ps(all.as_mut_ptr(), lanes[0]) };
                sums.copy_from_slice(&all[..n]);
            }
        }
    }
}

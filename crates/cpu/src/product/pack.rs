//! Copies of parts of operands, as f32 and in the order in which the inner loops read them.

use crate::jit::tile::{LANES, Stored};
use std::arch::x86_64::*;

/// Columns of the widest panel.
pub(super) const WIDEST: usize = 8 * LANES;

/// A part of an operand: where it starts, and the distances of its rows or columns and of its
/// shared indices, in elements.
pub(super) struct Part<'a> {
    pub start: *const u8,
    pub stored: Stored,
    pub outer: &'a [isize],
    pub shared: &'a [isize],
    /// Elements mostly follow one another along the shared dimension.
    pub along_shared: bool,
}

/// Writes element `(j, k)` of the part to `to[k * width + j]`, and zeros to the rest of the width.
///
/// # Safety
/// The part's elements are valid for reads; `to` for `width` floats per shared index. There are at
/// most `width` outer indices, and not more than [`WIDEST`]. The machine has AVX-512 F, BW and VL.
pub(super) unsafe fn pack(part: &Part<'_>, to: *mut f32, width: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match part.stored {
            Stored::F32 => pack_as::<0>(part, to, width),
            Stored::F16 => pack_as::<1>(part, to, width),
            Stored::BF16 => pack_as::<2>(part, to, width),
        }
    }
}

/// The lanes of a vector.
fn lanes(n: usize) -> u16 {
    ((1u32 << n.min(LANES)) - 1) as u16
}

/// Bytes of an element.
const fn size(stored: u8) -> isize {
    if stored == 0 { 4 } else { 2 }
}

/// Elements in these lanes, which follow one another in memory, as f32; zeros in the others.
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
            _ => {
                let words = _mm256_maskz_loadu_epi16(mask, from as *const i16);
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(words)))
            }
        }
    }
}

/// # Safety
/// As [`pack`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack_as<const S: u8>(part: &Part<'_>, to: *mut f32, width: usize) {
    for first in (0..width).step_by(LANES) {
        let columns = part.outer.get(first..).unwrap_or(&[]);
        let columns = &columns[..columns.len().min(LANES)];
        let store = lanes(width - first);
        // SAFETY: the caller's promise, for a vector of columns.
        unsafe {
            let to = to.add(first);
            match part.along_shared {
                true => transposed::<S>(part, columns, to, width, store),
                false => vectors::<S>(part, columns, to, width, store),
            }
        }
    }
}

/// A vector of columns, gathered from pieces that follow one another in memory.
///
/// # Safety
/// As [`pack`], for these columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn vectors<const S: u8>(
    part: &Part<'_>,
    columns: &[isize],
    to: *mut f32,
    width: usize,
    store: u16,
) {
    // The lanes of each piece, and where lane 0 would be.
    let mut pieces = [(0u16, 0isize); LANES];
    let mut count = 0;
    for (lane, &column) in columns.iter().enumerate() {
        let origin = column - lane as isize;
        if count == 0 || pieces[count - 1].1 != origin {
            pieces[count] = (0, origin);
            count += 1;
        }
        pieces[count - 1].0 |= 1 << lane;
    }
    let near = |c: &isize| i32::try_from(c - columns[0]).is_ok();
    if S == 0 && count > 4 && columns.iter().all(near) {
        // SAFETY: as for this function.
        return unsafe { gathered(part, columns, to, width, store) };
    }
    for (k, &shared) in part.shared.iter().enumerate() {
        let start = part.start.wrapping_offset(shared * size(S));
        let at = |origin: isize| start.wrapping_offset(origin * size(S));
        // SAFETY: each piece's lanes are elements of the part; the store stays within the width.
        unsafe {
            let mut vector = load::<S>(at(pieces[0].1), pieces[0].0);
            for &(mask, origin) in &pieces[1..count.max(1)] {
                vector = _mm512_mask_mov_ps(vector, mask, load::<S>(at(origin), mask));
            }
            _mm512_mask_storeu_ps(to.add(k * width), store, vector);
        }
    }
}

/// A vector of columns that lie apart.
///
/// # Safety
/// As [`pack`], for these columns of f32, which lie within 32 bits of one another.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn gathered(part: &Part<'_>, columns: &[isize], to: *mut f32, width: usize, store: u16) {
    let mut index = [0i32; LANES];
    for (index, &column) in index.iter_mut().zip(columns) {
        *index = (column - columns[0]) as i32;
    }
    let mask = lanes(columns.len());
    // SAFETY: an array of sixteen words.
    let index = unsafe { _mm512_loadu_si512(index.as_ptr().cast()) };
    for (k, &shared) in part.shared.iter().enumerate() {
        let start = part.start.wrapping_offset((shared + columns[0]) * 4);
        // SAFETY: lanes of the mask are elements of the part; the store stays within the width.
        unsafe {
            let zero = _mm512_setzero_ps();
            let vector = _mm512_mask_i32gather_ps::<4>(zero, mask, index, start.cast());
            _mm512_mask_storeu_ps(to.add(k * width), store, vector);
        }
    }
}

/// A vector of columns whose elements follow one another along the shared dimension.
///
/// # Safety
/// As [`pack`], for these columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn transposed<const S: u8>(
    part: &Part<'_>,
    columns: &[isize],
    to: *mut f32,
    width: usize,
    store: u16,
) {
    let mut k = 0;
    while k < part.shared.len() {
        let rest = &part.shared[k..part.shared.len().min(k + LANES)];
        let run = 1 + rest.windows(2).take_while(|w| w[1] - w[0] == 1).count();
        let start = part.start.wrapping_offset(rest[0] * size(S));
        let mut rows = [_mm512_setzero_ps(); LANES];
        // SAFETY: `run` elements from here on are the column's; stores stay within the width.
        unsafe {
            for (row, &column) in rows.iter_mut().zip(columns) {
                // Columns may be many and far apart: more streams than the processor follows.
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

/// Rows become columns.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(rows: &mut [__m512; LANES]) {
    let double = |v: __m512| _mm512_castps_pd(v);
    let single = |v: __m512d| _mm512_castpd_ps(v);
    let mut pairs = [_mm512_setzero_ps(); LANES];
    for i in (0..LANES).step_by(2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    let mut quads = [_mm512_setzero_ps(); LANES];
    for i in (0..LANES).step_by(4) {
        for j in 0..2 {
            let (a, b) = (double(pairs[i + j]), double(pairs[i + 2 + j]));
            quads[i + 2 * j] = single(_mm512_unpacklo_pd(a, b));
            quads[i + 2 * j + 1] = single(_mm512_unpackhi_pd(a, b));
        }
    }
    // quads[4 i + j], part p of 128 bits: rows 4 i.. of column 4 p + j.
    for j in 0..4 {
        let (a, b, c, d) = (quads[j], quads[4 + j], quads[8 + j], quads[12 + j]);
        let (ab, ab2) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
        let (cd, cd2) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
        rows[j] = _mm512_shuffle_f32x4::<0x88>(ab, cd);
        rows[8 + j] = _mm512_shuffle_f32x4::<0xdd>(ab, cd);
        rows[4 + j] = _mm512_shuffle_f32x4::<0x88>(ab2, cd2);
        rows[12 + j] = _mm512_shuffle_f32x4::<0xdd>(ab2, cd2);
    }
}

/// The sum of the lanes of each vector of sixteen, always in the same order.
///
/// # Safety
/// `chains` is valid for sixteen floats per sum, `sums` for that many. The machine has AVX-512 F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn add_lanes(chains: *const f32, sums: &mut [f32]) {
    for (i, sum) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *sum = _mm512_reduce_add_ps(unsafe { _mm512_loadu_ps(chains.add(i * LANES)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use girih_kernel::Isa;

    #[test]
    fn parts_of_any_strides_are_packed_in_order_with_zeros_to_the_width() {
        if Isa::best() < Isa::Avx512 {
            return;
        }
        let data: Vec<f32> = (0..40_000).map(|i| (i % 251) as f32).collect();
        let f16: Vec<half::f16> = data.iter().map(|&x| half::f16::from_f32(x)).collect();
        let bf16: Vec<half::bf16> = data.iter().map(|&x| half::bf16::from_f32(x)).collect();
        // Dense, transposed, steps of two, rows of seven.
        let outers: [fn(isize) -> isize; 5] =
            [|j| j, |j| j * 150, |j| 2 * j, |j| j / 7 * 30 + j % 7, |j| j / 3 * 40 - j % 3 + 2];
        let shares: [fn(isize) -> isize; 3] = [|k| k * 100, |k| k, |k| k / 6 * 50 + k % 6];
        for (outer, shared) in outers.iter().flat_map(|o| shares.iter().map(move |s| (o, s))) {
            for (columns, width) in [(1, 1), (8, 8), (9, 9), (16, 16), (37, 48), (48, 48), (14, 14)]
            {
                let outer: Vec<isize> = (0..columns).map(outer).collect();
                for k in [1, 5, 16, 21] {
                    let shared: Vec<isize> = (0..k).map(shared).collect();
                    for stored in [Stored::F32, Stored::F16, Stored::BF16] {
                        let start: *const u8 = match stored {
                            Stored::F32 => data.as_ptr().cast(),
                            Stored::F16 => f16.as_ptr().cast(),
                            Stored::BF16 => bf16.as_ptr().cast(),
                        };
                        for along_shared in [false, true] {
                            let part = Part {
                                start,
                                stored,
                                outer: &outer,
                                shared: &shared,
                                along_shared,
                            };
                            let mut to = vec![-1.0; k as usize * width];
                            // SAFETY: the largest distance is below the data's length.
                            unsafe { pack(&part, to.as_mut_ptr(), width) };
                            for (i, &got) in to.iter().enumerate() {
                                let (k, j) = (i / width, i % width);
                                let at = |o: &isize| data[(o + shared[k]) as usize];
                                let want = outer.get(j).map_or(0.0, at);
                                assert_eq!(got, want, "{stored:?} {columns} {k} {j}");
                            }
                        }
                    }
                }
            }
        }
    }
}

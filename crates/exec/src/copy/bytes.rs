//! Transposition of bytes in vector registers of SSE2, which every x86-64 has.

use std::arch::x86_64::{
    __m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_unpackhi_epi8, _mm_unpacklo_epi8,
};

/// The number of rows and columns of a block.
const SIDE: usize = 16;

/// Transposes 16 by 16 bytes: byte `[i, j]` of `to` is byte `[j, i]` of `from`. Each is an address with
/// the number of bytes from row to row.
///
/// # Safety
/// The rows are valid for 16 bytes each, and those of `to` do not overlap those of `from`.
pub(super) unsafe fn transpose(to: (*mut u8, isize), from: (*const u8, isize)) {
    // SAFETY: the caller's promise.
    let mut rows: [__m128i; SIDE] = std::array::from_fn(|i| unsafe {
        _mm_loadu_si128(from.0.offset(i as isize * from.1).cast())
    });
    // Interleaving row `i` with row `i + 8` rotates the four bits of the number of a row and the four of
    // the number of a column by one bit; after four times, they have changed places.
    for _ in 0..SIDE.ilog2() {
        rows = std::array::from_fn(|i| {
            let (a, b) = (rows[i / 2], rows[i / 2 + SIDE / 2]);
            // SAFETY: every x86-64 has SSE2.
            unsafe {
                match i % 2 {
                    0 => _mm_unpacklo_epi8(a, b),
                    _ => _mm_unpackhi_epi8(a, b),
                }
            }
        });
    }
    for (i, row) in rows.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(to.0.offset(i as isize * to.1).cast(), row) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_change_rows_and_columns() {
        let from: [[u8; 20]; SIDE] =
            std::array::from_fn(|i| std::array::from_fn(|j| (i * 20 + j) as u8));
        let mut to = [[0u8; 24]; SIDE];
        // SAFETY: 16 rows of at least 16 bytes each.
        unsafe { transpose((to.as_mut_ptr().cast(), 24), (from.as_ptr().cast(), 20)) };
        for (i, row) in to.iter().enumerate() {
            for (j, byte) in row[..SIDE].iter().enumerate() {
                assert_eq!(*byte, from[j][i], "{i} {j}");
            }
            assert_eq!(row[SIDE..], [0; 8], "bytes beside the block stay");
        }
    }
}

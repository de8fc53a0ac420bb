//! Packing of B for AMX and VNNI. A panel has two tiles of 16 columns per block of K. A row of a
//! tile holds, for each column, a pair of 16-bit words or a group of four bytes that are
//! consecutive along K; zeros fill the panel beyond the operand.

use super::avx512::transpose;
use crate::gemm::microkernels::{K_BLOCK_BYTES, MICROTILE, PANEL_BLOCK_BYTES, TILE_ROWS};
use std::arch::x86_64::*;

/// The order of the elements of B in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gemm) enum Layout {
    /// Row-major.
    RowMajor,
    /// Column-major.
    ColumnMajor,
}

/// Some columns of B.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct ColumnsOfB {
    /// The first element, and the number of bytes to the next row (row-major) or column
    /// (column-major).
    pub start: *const u8,
    pub ldb: isize,
    pub layout: Layout,
    /// The size of an element in bytes: 1 or 2.
    pub element_bytes: usize,
    pub columns: usize,
    pub k: usize,
}

impl ColumnsOfB {
    /// The number of columns whose elements of one row fill a cache line.
    pub fn per_cache_line(element_bytes: usize) -> usize {
        K_BLOCK_BYTES.div_ceil(element_bytes).max(MICROTILE)
    }

    /// The size of a panel in bytes.
    pub fn panel_bytes(&self) -> usize {
        (self.k * self.element_bytes).div_ceil(K_BLOCK_BYTES) * PANEL_BLOCK_BYTES
    }

    /// Packs the columns, panel after panel.
    ///
    /// # Safety
    /// The elements are valid for reads, `to` for the panels. The machine has AVX-512 F, BW and VL.
    pub unsafe fn pack(&self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.layout, self.element_bytes) {
                (Layout::ColumnMajor, _) => self.transposed(to),
                (Layout::RowMajor, 2) => self.interleave_pairs(to),
                (Layout::RowMajor, _) => self.interleave_groups(to),
            }
        }
    }

    /// The address of byte `byte` of row (or column) `row`.
    fn at(&self, row: usize, byte: usize) -> *const u8 {
        self.start.wrapping_offset(row as isize * self.ldb).wrapping_add(byte)
    }

    /// The address of a row of a panel's tiles.
    fn panel_row(&self, to: *mut u8, panel: usize, row: usize) -> *mut u8 {
        to.wrapping_add(
            panel * self.panel_bytes()
                + row / TILE_ROWS * PANEL_BLOCK_BYTES
                + row % TILE_ROWS * K_BLOCK_BYTES,
        )
    }

    /// # Safety
    /// As [`ColumnsOfB::pack`].
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn interleave_pairs(&self, to: *mut u8) {
        // Word 2 i of a result is word i of the first row, word 2 i + 1 is word i of the second
        // row.
        let order = |first: i16| {
            let mut words = [0; 32];
            for (i, word) in words.iter_mut().enumerate() {
                *word = first + i as i16 / 2 + i as i16 % 2 * 32;
            }
            words
        };
        let (low, high) = (order(0), order(16));
        // SAFETY: arrays of 32 words; the caller's promise.
        unsafe {
            let low = _mm512_loadu_si512(low.as_ptr().cast());
            let high = _mm512_loadu_si512(high.as_ptr().cast());
            for pair in 0..(2 * self.k).next_multiple_of(K_BLOCK_BYTES) / 4 {
                for (panel, first) in (0..self.columns).step_by(MICROTILE).enumerate() {
                    let mask = mask(self.columns - first);
                    let row = |i: usize| match i < self.k {
                        true => _mm512_maskz_loadu_epi16(mask, self.at(i, 2 * first).cast()),
                        false => _mm512_setzero_si512(),
                    };
                    let (first, second) = (row(2 * pair), row(2 * pair + 1));
                    let first_tile = self.panel_row(to, panel, pair);
                    let second_tile = first_tile.wrapping_add(PANEL_BLOCK_BYTES / 2);
                    _mm512_storeu_si512(
                        first_tile.cast(),
                        _mm512_permutex2var_epi16(first, low, second),
                    );
                    let high = _mm512_permutex2var_epi16(first, high, second);
                    _mm512_storeu_si512(second_tile.cast(), high);
                }
            }
        }
    }

    /// # Safety
    /// As [`ColumnsOfB::pack`], for bytes.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn interleave_groups(&self, to: *mut u8) {
        // Permutes words that are pairs of rows 0 and 1 of 16 columns, followed by pairs of rows 2
        // and 3, so that both pairs of each column are adjacent.
        let mut order = [0i16; 32];
        for (i, word) in order.iter_mut().enumerate() {
            *word = (i / 16 * 8 + i % 2 * 16 + i % 16 / 2) as i16;
        }
        // SAFETY: an array of 32 words; the caller's promise.
        unsafe {
            // `black_box` hides the order from the compiler, which would otherwise emit dozens of
            // shuffles instead of these four.
            let order = _mm512_loadu_si512(std::hint::black_box(&order).as_ptr().cast());
            for group in 0..self.k.next_multiple_of(K_BLOCK_BYTES) / 4 {
                let whole = 4 * group + 4 <= self.k;
                for (panel, first) in (0..self.columns).step_by(MICROTILE).enumerate() {
                    let mask = mask(self.columns - first);
                    let row = |i: usize| match 4 * group + i {
                        i if whole && mask == u32::MAX => {
                            _mm256_loadu_si256(self.at(i, first).cast())
                        }
                        i if i < self.k => _mm256_maskz_loadu_epi8(mask, self.at(i, first).cast()),
                        _ => _mm256_setzero_si256(),
                    };
                    let (rows_0, rows_1) = (both(row(0), row(2)), both(row(1), row(3)));
                    let low = _mm512_unpacklo_epi8(rows_0, rows_1);
                    let high = _mm512_unpackhi_epi8(rows_0, rows_1);
                    let low = _mm512_permutexvar_epi16(order, low);
                    let high = _mm512_permutexvar_epi16(order, high);
                    let first_tile = self.panel_row(to, panel, group);
                    let second_tile = first_tile.wrapping_add(PANEL_BLOCK_BYTES / 2);
                    for (i, vector) in [low, high].into_iter().enumerate() {
                        let (first_tile, second_tile) =
                            (first_tile.add(32 * i), second_tile.add(32 * i));
                        _mm256_storeu_si256(first_tile.cast(), _mm512_castsi512_si256(vector));
                        _mm256_storeu_si256(
                            second_tile.cast(),
                            _mm512_extracti64x4_epi64::<1>(vector),
                        );
                    }
                }
            }
        }
    }

    /// Packs column-major bytes or words: each column already has the 32-bit words of the tiles'
    /// rows, which are transposed.
    ///
    /// # Safety
    /// As [`ColumnsOfB::pack`].
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn transposed(&self, to: *mut u8) {
        let bytes = self.k * self.element_bytes;
        for first in (0..self.columns.next_multiple_of(MICROTILE)).step_by(TILE_ROWS) {
            for done in (0..bytes).step_by(K_BLOCK_BYTES) {
                let there = u64::MAX >> K_BLOCK_BYTES.saturating_sub(bytes - done);
                let mut rows = [_mm512_setzero_ps(); TILE_ROWS];
                let columns = first..self.columns.min(first + TILE_ROWS);
                for (row, column) in rows.iter_mut().zip(columns) {
                    let from = self.at(column, done).cast();
                    // SAFETY: the mask has only bytes of the column.
                    *row = _mm512_castsi512_ps(unsafe { _mm512_maskz_loadu_epi8(there, from) });
                }
                transpose(&mut rows);
                let half = first % MICROTILE / TILE_ROWS * (PANEL_BLOCK_BYTES / 2);
                let to = self
                    .panel_row(to, first / MICROTILE, done / K_BLOCK_BYTES * TILE_ROWS)
                    .wrapping_add(half);
                for (i, row) in rows.iter().enumerate() {
                    // SAFETY: the panel has room.
                    unsafe {
                        _mm512_storeu_si512(
                            to.add(i * K_BLOCK_BYTES).cast(),
                            _mm512_castps_si512(*row),
                        )
                    };
                }
            }
        }
    }
}

/// The mask of a panel's columns.
fn mask(columns: usize) -> u32 {
    u32::MAX >> MICROTILE.saturating_sub(columns)
}

/// A 512-bit vector from its two halves.
#[target_feature(enable = "avx512f")]
fn both(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

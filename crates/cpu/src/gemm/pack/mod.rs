//! Packing: copies a block of an operand as f32 or 32-bit integers, in the order in which the
//! micro-kernels read it.

pub(super) mod avx2;
pub(super) mod avx512;
mod pairs;
pub(super) mod vnni;

use crate::dims::Dims;
use crate::gemm::microkernels::{LANES, Stored, avx512_enabled};
use half::{bf16, f16};
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::ops::Range;

/// Calls a function with the number of a data type in memory as its const argument.
macro_rules! by_stored {
    ($stored:expr, $function:ident $arguments:tt) => {
        match $stored {
            Stored::F32 | Stored::I32 => $function::<0> $arguments,
            Stored::F16 => $function::<1> $arguments,
            Stored::BF16 => $function::<2> $arguments,
            Stored::I16 => $function::<3> $arguments,
            Stored::U16 => $function::<4> $arguments,
            Stored::I8 => $function::<5> $arguments,
            Stored::U8 => $function::<6> $arguments,
            Stored::Pair => unreachable!("operands in memory have no pairs"),
        }
    };
}
pub(super) use by_stored;

/// A block of an operand: its address, the dimensions of its rows or columns and their range, and
/// the distances of its indices of K in elements.
pub(super) struct PackBlock<'a> {
    pub start: *const u8,
    pub stored: Stored,
    pub outer: &'a Dims,
    pub indices: Range<usize>,
    pub k_offsets: &'a [isize],
    /// Whether elements are mostly contiguous along K.
    pub along_k: bool,
    /// Whether pairs of elements along K are packed ([`Stored::Pair`]).
    pub pairs: bool,
}

impl PackBlock<'_> {
    /// The columns by vector: the position of the first lane in a width, the columns, and the number
    /// of lanes that are written.
    #[inline(always)]
    fn vectors(&self, width: usize) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
        let (start, end) = (self.indices.start, self.indices.end);
        (0..width).step_by(LANES).map(move |first| {
            let columns = (start + first).min(end)..(start + first + LANES).min(end);
            (first, columns, LANES.min(width - first))
        })
    }

    /// The number of elements from index `k` of K on that are contiguous in memory, at most `max`.
    #[inline(always)]
    fn run_along_k(&self, k: usize, max: usize) -> usize {
        let rest = &self.k_offsets[k..self.k_offsets.len().min(k + max)];
        1 + rest.windows(2).take_while(|w| w[1] - w[0] == 1).count()
    }

    /// The distances of at most one vector of columns.
    pub fn offsets<'b>(&self, columns: Range<usize>, to: &'b mut [isize; LANES]) -> &'b [isize] {
        let offsets = &mut to[..columns.len()];
        self.outer.fill(columns.start, offsets);
        offsets
    }
}

/// Writes element `(j, k)` of the block to `to[k * width + j]`, and zeros to the rest of the width; or
/// pair `(j, k)`, whose second integer is zero beyond the end of an odd K.
///
/// # Safety
/// The block's elements are valid for reads; `to` for `width` floats per index of K or pair. There
/// are at most `width` outer indices. Micro-kernels can be generated for the machine.
pub(super) unsafe fn pack(block: &PackBlock<'_>, to: *mut f32, width: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if block.pairs {
            return pairs::pack(block, to.cast(), width);
        }
        by_stored!(block.stored, pack_as(block, to, width))
    }
}

/// # Safety
/// As [`pack`].
unsafe fn pack_as<const S: u8>(block: &PackBlock<'_>, to: *mut f32, width: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if avx512_enabled() {
            avx512::pack_as::<S>(block, to, width);
        } else {
            avx2::pack_as::<S>(block, to, width);
        }
    }
}

/// Rows with contiguous columns, which are packed into panels.
pub(super) struct RowMajorB {
    /// The first element of the first row, and the number of bytes to the next row.
    pub start: *const u8,
    pub ldb: isize,
    pub stored: Stored,
    pub rows: usize,
    pub columns: usize,
    /// The number of columns of a panel.
    pub nr: usize,
    /// Whether pairs of elements along K are packed ([`Stored::Pair`]).
    pub pairs: bool,
    /// The prefetch distance in rows.
    pub prefetched: isize,
}

/// The part of a row that a panel holds.
struct RowOfPanel {
    /// The first element.
    from: *const u8,
    columns: usize,
    /// The row of the panel, and its width: the number of columns rounded up to whole vectors.
    panel: *mut f32,
    width: usize,
}

impl RowMajorB {
    /// The parts of row `k` by panel; the panels are at `to`. Prefetches a later row.
    #[inline(always)]
    fn panels_of_row(&self, k: usize, to: *mut f32) -> impl Iterator<Item = RowOfPanel> {
        let size = self.stored.size();
        let row = self.start.wrapping_offset(k as isize * self.ldb);
        self.prefetch_after(row, self.columns * size);
        (0..self.columns).step_by(self.nr).map(move |first| {
            let columns = self.nr.min(self.columns - first);
            let width = columns.next_multiple_of(LANES);
            let panel = to.wrapping_add(first * self.rows + k * width);
            RowOfPanel { from: row.wrapping_add(first * size), columns, panel, width }
        })
    }

    /// Packs the rows panel by panel, as [`pack`] would pack each panel. It reads whole rows,
    /// because columns of a large matrix may map to few cache sets.
    ///
    /// # Safety
    /// The rows are valid for reads, `to` for the panels. Micro-kernels can be generated for the
    /// machine.
    pub unsafe fn pack(&self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.pairs {
                return pairs::pack_rows(self, to.cast());
            }
            by_stored!(self.stored, rows_as(self, to))
        }
    }

    /// Prefetches `bytes` bytes of the row that is [`RowMajorB::prefetched`] rows after a row. The
    /// hardware prefetcher does not follow rows that are short and far apart.
    #[inline(always)]
    pub fn prefetch_after(&self, row: *const u8, bytes: usize) {
        let next = row.wrapping_offset(self.prefetched * self.ldb);
        for line in (0..bytes).step_by(64) {
            // SAFETY: prefetches have no effect but on the caches, at any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(line).cast()) };
        }
    }
}

/// # Safety
/// As [`RowMajorB::pack`].
unsafe fn rows_as<const S: u8>(rows: &RowMajorB, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        if avx512_enabled() {
            avx512::rows_as::<S>(rows, to);
        } else {
            avx2::rows_as::<S>(rows, to);
        }
    }
}

/// The size in bytes of an element of the data type with that number.
pub(super) const fn size(stored: u8) -> isize {
    match stored {
        0 => 4,
        1..=4 => 2,
        _ => 1,
    }
}

/// An element in its packed form: an f32, or the bits of a 32-bit integer.
///
/// # Safety
/// The element is valid for reads.
#[inline]
pub(super) unsafe fn element<const S: u8>(from: *const u8) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let integer = |value: i32| f32::from_bits(value as u32);
        match S {
            0 => from.cast::<f32>().read_unaligned(),
            1 => from.cast::<f16>().read_unaligned().to_f32(),
            2 => from.cast::<bf16>().read_unaligned().to_f32(),
            3 => integer(from.cast::<i16>().read_unaligned() as i32),
            4 => integer(from.cast::<u16>().read_unaligned() as i32),
            5 => integer(from.cast::<i8>().read() as i32),
            _ => integer(from.read() as i32),
        }
    }
}

/// The sums of the lanes of vectors of sixteen: the upper half of the lanes is added to the lower half
/// until one lane is left.
///
/// # Safety
/// `chains` is valid for sixteen lanes per sum. Micro-kernels can be generated for the machine.
pub(super) unsafe fn add_lanes(chains: *const f32, sums: &mut [f32], integers: bool) {
    // SAFETY: the caller's promise. AVX-512 would add the same vectors.
    unsafe { avx2::add_lanes(chains, sums, integers) }
}

/// Multiplies row `k` of a matrix by `a[k]` for each of the `k` rows, and adds the products of each of
/// the `n` columns to 16 chains, one per row modulo 16; then adds the chains as [`add_lanes`] to `to`. `rows`
/// is the first element and the number of bytes from row to row.
///
/// # Safety
/// The rows of floats are valid for reads, `a` for a float per row, `chains` for writes of 16 floats per
/// column, and `to` of a float per column. Micro-kernels can be generated for the machine.
pub(super) unsafe fn add_chains(
    a: *const f32,
    rows: (*const u8, isize),
    (k, n): (usize, usize),
    chains: *mut f32,
    to: *mut f32,
) {
    // SAFETY: the caller's promise. Wider vectors would wait for the same memory.
    unsafe {
        let chains = std::slice::from_raw_parts_mut(chains, LANES * n);
        avx2::add_chains(a, rows, (k, n), chains, to);
    }
}

/// Transposes `n` rows of `row` elements, a multiple of the lanes of a register: writes element
/// `(i, j)` to `to[j * ld + i]`, for the first `columns` columns.
///
/// # Safety
/// `from` is valid for reads of the rows, `to` for writes of these elements. Micro-kernels can be
/// generated for the machine.
pub(super) unsafe fn transpose_rows(
    rows: (*const f32, usize),
    sizes: (usize, usize),
    to: *mut f32,
    ld: isize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if avx512_enabled() {
            avx512::transpose_rows(rows, sizes, to, ld);
        } else {
            avx2::transpose_rows(rows, sizes, to, ld);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_of_any_strides_are_packed_in_order_and_zero_padded() {
        if !crate::gemm::microkernels::generates() {
            return;
        }
        let data: Vec<f32> = (0..40_000).map(|i| (i % 251) as f32).collect();
        let f16: Vec<half::f16> = data.iter().map(|&x| half::f16::from_f32(x)).collect();
        let bf16: Vec<half::bf16> = data.iter().map(|&x| half::bf16::from_f32(x)).collect();
        let words: Vec<u16> = data.iter().map(|&x| x as u16).collect();
        let bytes: Vec<u8> = data.iter().map(|&x| x as u8).collect();
        let starts: [(Stored, *const u8); 5] = [
            (Stored::F32, data[2..].as_ptr().cast()),
            (Stored::F16, f16[2..].as_ptr().cast()),
            (Stored::BF16, bf16[2..].as_ptr().cast()),
            (Stored::U16, words[2..].as_ptr().cast()),
            (Stored::U8, bytes[2..].as_ptr()),
        ];
        // Dense, transposed, strides of two, rows of seven.
        let outers: [&[(usize, isize)]; 8] = [
            &[(64, 1)],
            &[(64, 150)],
            &[(64, 2)],
            &[(10, 30), (7, 1)],
            &[(10, 30), (7, 2)],
            &[(30, 40), (3, -1)],
            &[(20, 50), (5, 2)],
            &[(5, 900), (4, 30), (3, 1)],
        ];
        let k_layouts: [fn(isize) -> isize; 3] = [|k| k * 100, |k| k, |k| k / 6 * 50 + k % 6];
        for (outer, k_offsets) in outers.iter().flat_map(|o| k_layouts.iter().map(move |s| (o, s)))
        {
            for (columns, width) in
                [(1, 1), (8, 8), (9, 9), (16, 16), (24, 24), (19, 24), (37, 48), (48, 48), (14, 14)]
            {
                let outer = Dims::new(outer.iter().copied());
                // Start after the first column, as panels except the first do.
                let indices = 3..3 + columns;
                for k in [1, 5, 16, 21] {
                    let k_offsets: Vec<isize> = (0..k).map(k_offsets).collect();
                    for (stored, start) in starts {
                        for along_k in [false, true] {
                            let block = PackBlock {
                                start,
                                stored,
                                outer: &outer,
                                indices: indices.clone(),
                                k_offsets: &k_offsets,
                                along_k,
                                pairs: false,
                            };
                            let mut to = vec![-1.0; k as usize * width];
                            // SAFETY: the largest distance is below the data's length.
                            unsafe { pack(&block, to.as_mut_ptr(), width) };
                            for (i, &got) in to.iter().enumerate() {
                                let (k, j) = (i / width, i % width);
                                let want = match j < columns {
                                    true => data[(2 + outer.at(3 + j) + k_offsets[k]) as usize],
                                    false => 0.0,
                                };
                                let got = match stored.is_integer() && j < columns {
                                    true => got.to_bits() as f32,
                                    false => got,
                                };
                                assert_eq!(got, want, "{stored:?} {columns} {k} {j}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn pairs_of_any_strides_are_packed_in_order_and_zero_padded() {
        if !crate::gemm::microkernels::generates() {
            return;
        }
        let bytes: Vec<u8> = (0..40_000).map(|i| (i * 7 % 256) as u8).collect();
        let words: Vec<i16> = (0..40_000).map(|i| (i as i16).wrapping_mul(7919)).collect();
        let value = |stored: Stored, at: usize| match stored {
            Stored::I8 => bytes[at] as i8 as i16,
            Stored::U8 => bytes[at] as i16,
            _ => words[at],
        };
        let outers: [&[(usize, isize)]; 4] =
            [&[(64, 1)], &[(64, 150)], &[(10, 30), (7, 1)], &[(30, 40), (3, -1)]];
        let k_layouts: [fn(isize) -> isize; 3] = [|k| k * 100, |k| k, |k| k / 6 * 50 + k % 6];
        for (outer, k_layout) in outers.iter().flat_map(|o| k_layouts.iter().map(move |s| (o, s))) {
            let outer = Dims::new(outer.iter().copied());
            for (columns, width) in [(1, 1), (6, 6), (8, 16), (9, 16), (16, 16), (37, 48)] {
                for (k, stored) in
                    [(1, Stored::I8), (2, Stored::U8), (37, Stored::I8), (40, Stored::I16)]
                {
                    let k_offsets: Vec<isize> = (0..k).map(k_layout).collect();
                    let start = match stored {
                        Stored::I16 => words[2..].as_ptr().cast(),
                        _ => bytes[2..].as_ptr(),
                    };
                    for along_k in [false, true] {
                        let block = PackBlock {
                            start,
                            stored,
                            outer: &outer,
                            indices: 3..3 + columns,
                            k_offsets: &k_offsets,
                            along_k,
                            pairs: true,
                        };
                        let mut to = vec![-1.0f32; (k as usize).div_ceil(2) * width];
                        // SAFETY: the largest distance is below the data's length.
                        unsafe { pack(&block, to.as_mut_ptr(), width) };
                        for (i, got) in to.iter().enumerate() {
                            let (pair, j) = (i / width, i % width);
                            let integer = |index: usize| match k_offsets.get(index) {
                                Some(k) if j < columns => {
                                    value(stored, (2 + outer.at(3 + j) + k) as usize) as u16 as u32
                                }
                                _ => 0,
                            };
                            let want = integer(2 * pair) | integer(2 * pair + 1) << 16;
                            assert_eq!(got.to_bits(), want, "{stored:?} {columns} {k} {pair} {j}");
                        }
                    }
                }
            }
        }
    }
}

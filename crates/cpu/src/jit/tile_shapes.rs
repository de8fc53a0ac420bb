//! The shapes of tiles that the vector registers of this machine hold.

use super::function::level;
use super::stored::Stored;
use super::vector;
use girih_exec::Isa;

/// The maximum number of rows (mr) of a micro-kernel with `nr_vectors` vectors, on this machine.
pub(crate) fn max_mr(nr_vectors: usize) -> usize {
    let avx512 = [16, 14, 9, 6, 5, 4, 3, 2];
    let avx2 = [6, 2, 1, 1, 1, 1, 1, 1];
    let rows = if level() >= Isa::Avx512 { avx512 } else { avx2 };
    rows[nr_vectors.clamp(1, 8) - 1]
}

/// The maximum number of vectors (nr / 16) of a micro-kernel with `rows` rows, on this machine.
pub(crate) fn max_nr_vectors(rows: usize) -> usize {
    match rows {
        1 if level() < Isa::Avx512 => 6,
        2 if level() < Isa::Avx512 => 2,
        _ if level() < Isa::Avx512 => 1,
        1 | 2 => 8,
        3 => 7,
        4 => 6,
        5 => 5,
        6 => 4,
        7..=9 | 15 | 16 => 3,
        _ => 2,
    }
}

/// Whether `n` consecutive elements of B in memory can be read by vectors: AVX2 has masked loads of
/// 32-bit elements only.
pub(crate) fn reads_in_place(stored: Stored, n: usize) -> bool {
    level() >= Isa::Avx512 || stored.size() == 4 || n.is_multiple_of(vector::lanes(Isa::Avx2))
}

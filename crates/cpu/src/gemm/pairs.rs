//! GEMM of bytes and signed 16-bit integers as pairs along K, of which one instruction multiplies and
//! adds two (`vpmaddwd`). The blocking and the micro-kernels count pairs instead of elements of K.

use super::Gemm;
use super::blocking::Blocking;
use super::microkernels::Stored;
use std::ops::Range;

/// The fewest rows for which packing B as pairs pays.
const MIN_M: usize = 4;

impl Gemm {
    /// True if packing pairs of short integers is faster than widening them to 32 bits.
    pub(super) fn worth_pairs(&self) -> bool {
        let short = self.lhs.stored.is_short() && self.rhs.stored.is_short();
        let other = self.dots.is_some() || self.amx_vnni.is_some();
        let prologues = self.prologues.iter().any(Option::is_some);
        short && !other && !prologues && self.m >= MIN_M
    }

    /// Packs pairs along K from here on.
    pub(super) fn multiply_pairs(&mut self) {
        // Integers are neither read through an indirection nor, as A, in memory.
        debug_assert!(self.a_in_place.is_none() && self.indirect.is_none());
        let k = self.k.div_ceil(2);
        let blocking = Blocking::new(self.m, self.n, k);
        (self.pairs, self.k, self.in_place_b_kernels) = (true, k, None);
        self.blocking = if self.batches == 1 { blocking.along_rows() } else { blocking };
    }

    /// The data type of packed operands.
    pub(super) fn packed(&self) -> Stored {
        if self.pairs { Stored::Pair } else { self.rhs.stored.packed() }
    }

    /// The elements of a range of K, which may count pairs.
    pub(super) fn k_elements(&self, k_range: &Range<usize>) -> Range<usize> {
        match self.pairs {
            true => 2 * k_range.start..(2 * k_range.end).min(self.lhs.k_dims.len()),
            false => k_range.clone(),
        }
    }
}

//! GEMM of integers: sums have 32 bits, modulo 2^32. An epilogue on narrower integers reads the low
//! bits.

use super::microkernels::{LANES, avx512_enabled};
use super::operand::CTile;
use super::pack::avx512::lanes;
use girih_kernel::{Core, Kernel};
use std::arch::x86_64::*;

/// The size in bytes of an element as the epilogue of a GEMM reads it. `None` for sums of more than
/// 32 bits.
pub(super) fn core_bytes(kernel: &Kernel) -> Option<usize> {
    let Core::Gemm { dtype, .. } = kernel.core else { return None };
    if !dtype.is_int() {
        return Some(4);
    }
    Some(dtype.size()).filter(|&size| size <= 4)
}

/// Narrows rows of 32-bit sums in place to their low `bytes` bytes; each row keeps its address.
///
/// # Safety
/// The rows are valid. Micro-kernels can be generated for the machine.
pub(super) unsafe fn narrow(tile: CTile, (rows, columns): (usize, usize), bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 if !avx512_enabled() => narrow_on_avx2(tile, rows, columns, |sum| sum as u8),
            2 if !avx512_enabled() => narrow_on_avx2(tile, rows, columns, |sum| sum as u16),
            1 => narrow_to::<1>(tile, rows, columns),
            2 => narrow_to::<2>(tile, rows, columns),
            _ => {}
        }
    }
}

/// # Safety
/// As [`narrow`]; the machine has AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn narrow_to<const BYTES: usize>(tile: CTile, rows: usize, columns: usize) {
    for row in 0..rows {
        let from = tile.start.wrapping_offset(row as isize * tile.ldc) as *mut i32;
        for column in (0..columns).step_by(LANES) {
            let mask = lanes(columns - column);
            // SAFETY: lanes of the row; the store is no longer than the load before it.
            unsafe {
                let sums = _mm512_maskz_loadu_epi32(mask, from.add(column));
                let to = (from as *mut u8).add(BYTES * column);
                match BYTES {
                    1 => _mm512_mask_cvtepi32_storeu_epi8(to.cast(), mask, sums),
                    _ => _mm512_mask_cvtepi32_storeu_epi16(to.cast(), mask, sums),
                }
            }
        }
    }
}

/// # Safety
/// As [`narrow`]; the machine has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn narrow_on_avx2<T>(tile: CTile, rows: usize, columns: usize, of: impl Fn(u32) -> T) {
    for row in 0..rows {
        let from = tile.start.wrapping_offset(row as isize * tile.ldc) as *const u32;
        for column in 0..columns {
            // SAFETY: an element of the row; the narrow element ends no later than it.
            unsafe { (from as *mut T).add(column).write(of(*from.add(column))) };
        }
    }
}

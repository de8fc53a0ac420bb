//! Random numbers: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
//! as 1, 2, 3", SC 2011) and how random leaves draw from it.
//!
//! A leaf's argument is a [`RandomKey`]. The element at linear position `p` of the leaf depends
//! only on key, offset and `p`:
//!
//! * Block `b` of a leaf is the generator's output for the key `(key mod 2^32, key >> 32)` and the
//!   counter `(c mod 2^32, c >> 32, stream, 0)`, where `c = offset + b` (wrapping) and `stream` is
//!   0 for uniform, 1 for normal draws and 2 for bits, so that different kinds of draw never share
//!   a block.
//! * Draws of 32 bits (f32, f16, bf16) take four elements from a block: element `p` is word
//!   `p mod 4` of block `p / 4`. Draws of 64 bits (f64, i64) take two: element `p` is words
//!   `2 (p mod 2)` (low) and `2 (p mod 2) + 1` (high) of block `p / 2`.
//! * Uniform: the top 24 (f32) or 53 (f64) bits, as a fraction in `[0, 1)`. Halves are the f32 draw
//!   rounded down, so 1 never appears.
//! * Normal: Box and Muller on the draws of elements `2 i` and `2 i + 1`: with `u` in `(0, 1]` from
//!   the first (its fraction, plus one unit) and the turn `v` in `[0, 1)` from the second,
//!   `sqrt(-2 log u)` times `cos(2 pi v)` and `sin(2 pi v)` are the two elements. Halves are the
//!   f32 draw rounded to nearest.

use crate::isa::Isa;
use crate::math;
use girih_ir::random::philox_blocks;
use girih_ir::{DType, OpCode};
use std::array;

/// Key and position of the generator: the argument of a random leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomKey {
    /// The seed.
    pub key: u64,
    /// The number of blocks already drawn from the seed.
    pub offset: u64,
}

/// The number of blocks that a leaf of `numel` elements draws. The generator's offset advances by
/// this number.
pub fn blocks(code: OpCode, dtype: DType, numel: usize) -> u64 {
    debug_assert!(stream(code).is_some(), "{code:?} draws nothing");
    (numel as u64).div_ceil(per_block(dtype))
}

/// The number of elements of that dtype that are drawn from one block.
fn per_block(dtype: DType) -> u64 {
    if dtype.size() == 8 { 2 } else { 4 }
}

/// The counter word that separates the kinds of draw; `None` for an op that draws nothing.
pub(crate) fn stream(code: OpCode) -> Option<u32> {
    match code {
        OpCode::RandomUniform => Some(0),
        OpCode::RandomNormal => Some(1),
        OpCode::RandomBits => Some(2),
        _ => None,
    }
}

/// Words of blocks, or elements computed from them: `[w][i]` is the word or element `w` of block `i`.
type Blocks<T, const N: usize> = [[T; N]; 4];

/// `N` blocks of a leaf, from block `first` on.
#[inline(always)]
fn blocks_from<const N: usize>(key: RandomKey, stream: u32, first: u64) -> Blocks<u32, N> {
    let start = key.offset.wrapping_add(first);
    let mut words = [[0; N], [0; N], [stream; N], [0; N]];
    let [low, high, ..] = &mut words;
    for (i, (low, high)) in low.iter_mut().zip(high).enumerate() {
        let c = start.wrapping_add(i as u64);
        (*low, *high) = (c as u32, (c >> 32) as u32);
    }
    philox_blocks(words, [key.key as u32, (key.key >> 32) as u32])
}

/// Computes elements from words: `PER_BLOCK` elements of `Item` per block.
pub(crate) trait Draw {
    /// The element.
    type Item: Copy + Default;
    /// The elements of the blocks; the entries beyond `PER_BLOCK` are unused.
    fn draw<const N: usize>(words: &Blocks<u32, N>) -> Blocks<Self::Item, N>;
    /// The number of elements per block.
    const PER_BLOCK: usize;
    /// The counter word.
    const STREAM: u32;
}

#[inline(always)]
fn unit_f32(w: u32) -> f32 {
    (w >> 8) as f32 * (1.0 / 16_777_216.0)
}

#[inline(always)]
fn unit_f64(lo: u32, hi: u32) -> f64 {
    let bits = (hi as u64) << 21 | (lo as u64) >> 11;
    bits as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// Uniform draws of f32.
pub(crate) struct UniformF32;
impl Draw for UniformF32 {
    type Item = f32;
    const PER_BLOCK: usize = 4;
    const STREAM: u32 = 0;
    #[inline(always)]
    fn draw<const N: usize>(words: &Blocks<u32, N>) -> Blocks<f32, N> {
        words.map(|words| words.map(unit_f32))
    }
}

/// Uniform draws of f64.
pub(crate) struct UniformF64;
impl Draw for UniformF64 {
    type Item = f64;
    const PER_BLOCK: usize = 2;
    const STREAM: u32 = 0;
    #[inline(always)]
    fn draw<const N: usize>(w: &Blocks<u32, N>) -> Blocks<f64, N> {
        let unit = |lo: &[u32; N], hi: &[u32; N]| array::from_fn(|i| unit_f64(lo[i], hi[i]));
        [unit(&w[0], &w[1]), unit(&w[2], &w[3]), [0.0; N], [0.0; N]]
    }
}

/// Normal draws of f32.
pub(crate) struct NormalF32;
impl Draw for NormalF32 {
    type Item = f32;
    const PER_BLOCK: usize = 4;
    const STREAM: u32 = 1;
    #[inline(always)]
    fn draw<const N: usize>(w: &Blocks<u32, N>) -> Blocks<f32, N> {
        let mut out = [[0.0; N]; 4];
        for pair in 0..2 {
            for i in 0..N {
                let u = unit_f32(w[2 * pair][i]) + 1.0 / 16_777_216.0;
                let r = (-2.0 * math::log(u)).sqrt();
                let (s, c) = math::sincos_turns(unit_f32(w[2 * pair + 1][i]) as f64);
                (out[2 * pair][i], out[2 * pair + 1][i]) = (r * c as f32, r * s as f32);
            }
        }
        out
    }
}

/// Normal draws of f64.
pub(crate) struct NormalF64;
impl Draw for NormalF64 {
    type Item = f64;
    const PER_BLOCK: usize = 2;
    const STREAM: u32 = 1;
    #[inline(always)]
    fn draw<const N: usize>(w: &Blocks<u32, N>) -> Blocks<f64, N> {
        let mut out = [[0.0; N]; 4];
        for i in 0..N {
            let u = unit_f64(w[0][i], w[1][i]) + 1.0 / 9_007_199_254_740_992.0;
            let r = (-2.0 * math::double::log(u)).sqrt();
            let (s, c) = math::sincos_turns(unit_f64(w[2][i], w[3][i]));
            (out[0][i], out[1][i]) = (r * c, r * s);
        }
        out
    }
}

/// 64 random bits.
pub(crate) struct Bits;
impl Draw for Bits {
    type Item = i64;
    const PER_BLOCK: usize = 2;
    const STREAM: u32 = 2;
    #[inline(always)]
    fn draw<const N: usize>(w: &Blocks<u32, N>) -> Blocks<i64, N> {
        let join = |lo: u32, hi: u32| ((hi as u64) << 32 | lo as u64) as i64;
        let all = |lo: &[u32; N], hi: &[u32; N]| array::from_fn(|i| join(lo[i], hi[i]));
        [all(&w[0], &w[1]), all(&w[2], &w[3]), [0; N], [0; N]]
    }
}

/// The number of blocks that are computed at a time, in vector registers.
const GROUP: usize = 16;

/// Elements `start, start + stride, ...` of a leaf.
#[inline(always)]
pub(crate) fn fill<D: Draw>(out: &mut [D::Item], key: RandomKey, start: isize, stride: isize) {
    let per = D::PER_BLOCK as u64;
    if stride != 1 {
        for (i, o) in out.iter_mut().enumerate() {
            let p = start.wrapping_add(stride.wrapping_mul(i as isize)) as u64;
            let elements = D::draw::<1>(&blocks_from(key, D::STREAM, p / per));
            *o = elements[(p % per) as usize][0];
        }
        return;
    }
    let (mut p, mut done) = (start as u64, 0);
    while done < out.len() {
        let skip = (p % per) as usize;
        let n = (GROUP * D::PER_BLOCK - skip).min(out.len() - done);
        let group = D::draw::<GROUP>(&blocks_from(key, D::STREAM, p / per));
        let out = &mut out[done..done + n];
        if n == GROUP * D::PER_BLOCK {
            for i in 0..GROUP {
                for (o, line) in out[i * D::PER_BLOCK..][..D::PER_BLOCK].iter_mut().zip(&group) {
                    *o = line[i];
                }
            }
        } else {
            for (i, o) in out.iter_mut().enumerate() {
                *o = group[(skip + i) % D::PER_BLOCK][(skip + i) / D::PER_BLOCK];
            }
        }
        done += n;
        p += n as u64;
    }
}

/// Fills memory with elements `start, start + stride, ...` of a leaf: `(out, key, start, stride, n)`.
pub(crate) type RandomFn = unsafe fn(*mut u8, RandomKey, isize, isize, usize);

/// The function of a draw for a level that [`Isa::available`] lists. All levels draw the same bits.
pub(crate) fn select<D: Draw>(isa: Isa) -> RandomFn {
    match isa {
        Isa::Baseline => baseline::<D>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::<D>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::<D>,
        #[cfg(not(target_arch = "x86_64"))]
        _ => baseline::<D>,
    }
}

/// # Safety
/// `out` is valid for `n` elements of the draw's item, and aligned to it.
#[inline(always)]
unsafe fn baseline<D: Draw>(out: *mut u8, key: RandomKey, start: isize, stride: isize, n: usize) {
    // SAFETY: the caller's promise.
    fill::<D>(unsafe { crate::ops::slice_mut(out, n) }, key, start, stride)
}

/// # Safety
/// As [`baseline`], on a machine with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2")]
unsafe fn avx2<D: Draw>(out: *mut u8, key: RandomKey, start: isize, stride: isize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { baseline::<D>(out, key, start, stride, n) }
}

/// # Safety
/// As [`baseline`], on a machine with AVX-512 F, DQ, BW and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,avx512f,avx512dq,avx512bw,avx512vl")]
unsafe fn avx512<D: Draw>(out: *mut u8, key: RandomKey, start: isize, stride: isize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { baseline::<D>(out, key, start, stride, n) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_leaf_has_the_numbers_of_the_whole_leaf() {
        fn check<D: Draw>()
        where
            D::Item: PartialEq + std::fmt::Debug,
        {
            let key = RandomKey { key: 0x1234_5678_9abc_def0, offset: u64::MAX - 3 };
            let mut all = vec![D::Item::default(); 300];
            fill::<D>(&mut all, key, 0, 1);
            for start in [0, 1, 2, 3, 7, 64, 131] {
                let mut part = vec![D::Item::default(); 100];
                fill::<D>(&mut part, key, start, 1);
                assert_eq!(part, all[start as usize..][..100]);
                fill::<D>(&mut part[..30], key, start + 116, -4);
                let back: Vec<_> = (0..30).map(|i| all[(start + 116 - 4 * i) as usize]).collect();
                assert_eq!(part[..30], back);
            }
        }
        check::<UniformF32>();
        check::<UniformF64>();
        check::<NormalF32>();
        check::<NormalF64>();
        check::<Bits>();
    }

    #[test]
    fn every_level_draws_the_same_bits() {
        fn check<D: Draw>()
        where
            D::Item: PartialEq + std::fmt::Debug,
        {
            let key = RandomKey { key: u64::MAX - 5, offset: u32::MAX as u64 - 20 };
            let draw = |isa, start, stride| {
                let mut all = vec![D::Item::default(); 333];
                // SAFETY: the memory of as many elements; the machine runs the level.
                unsafe { select::<D>(isa)(all.as_mut_ptr().cast(), key, start, stride, 333) };
                all
            };
            for isa in Isa::available() {
                for (start, stride) in [(0, 1), (3, 1), (9, 5)] {
                    assert_eq!(draw(isa, start, stride), draw(Isa::Baseline, start, stride));
                }
            }
        }
        check::<UniformF32>();
        check::<UniformF64>();
        check::<NormalF32>();
        check::<NormalF64>();
        check::<Bits>();
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let key = RandomKey { key: 7, offset: 0 };
        let n = 1 << 18;
        let mut u = vec![0f32; n];
        fill::<UniformF32>(&mut u, key, 0, 1);
        let mean = u.iter().map(|&x| x as f64).sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 2e-3 && u.iter().all(|x| (0.0..1.0).contains(x)), "{mean}");
        let mut z = vec![0f64; n];
        fill::<NormalF64>(&mut z, key, 0, 1);
        let moment = |k: i32| z.iter().map(|x| x.powi(k)).sum::<f64>() / n as f64;
        assert!(moment(1).abs() < 1e-2 && (moment(2) - 1.0).abs() < 2e-2);
        assert!(moment(3).abs() < 5e-2 && (moment(4) - 3.0).abs() < 1e-1);
    }

    #[test]
    fn a_leaf_consumes_whole_random_blocks() {
        assert_eq!(blocks(OpCode::RandomUniform, DType::F32, 9), 3);
        assert_eq!(blocks(OpCode::RandomNormal, DType::F64, 9), 5);
        assert_eq!(blocks(OpCode::RandomBits, DType::I64, 0), 0);
    }
}

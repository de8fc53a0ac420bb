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

use crate::math;
use girih_ir::random::philox;
use girih_ir::{DType, OpCode};

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

/// Block `b` of a leaf.
#[inline(always)]
fn block(key: RandomKey, stream: u32, b: u64) -> [u32; 4] {
    let c = key.offset.wrapping_add(b);
    philox([c as u32, (c >> 32) as u32, stream, 0], [key.key as u32, (key.key >> 32) as u32])
}

/// Computes elements from a block's words: `PER_BLOCK` elements of `Item` per block.
pub(crate) trait Draw {
    /// The element.
    type Item: Copy + Default;
    /// The block's elements; the entries beyond `PER_BLOCK` are unused.
    fn draw(words: [u32; 4]) -> [Self::Item; 4];
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
    fn draw(w: [u32; 4]) -> [f32; 4] {
        w.map(unit_f32)
    }
}

/// Uniform draws of f64.
pub(crate) struct UniformF64;
impl Draw for UniformF64 {
    type Item = f64;
    const PER_BLOCK: usize = 2;
    const STREAM: u32 = 0;
    #[inline(always)]
    fn draw(w: [u32; 4]) -> [f64; 4] {
        [unit_f64(w[0], w[1]), unit_f64(w[2], w[3]), 0.0, 0.0]
    }
}

/// Normal draws of f32.
pub(crate) struct NormalF32;
impl Draw for NormalF32 {
    type Item = f32;
    const PER_BLOCK: usize = 4;
    const STREAM: u32 = 1;
    #[inline(always)]
    fn draw(w: [u32; 4]) -> [f32; 4] {
        let pair = |a: u32, b: u32| {
            let u = unit_f32(a) + 1.0 / 16_777_216.0;
            let r = (-2.0 * math::log(u)).sqrt();
            let (s, c) = math::sincos_turns(unit_f32(b) as f64);
            (r * c as f32, r * s as f32)
        };
        let ((a, b), (c, d)) = (pair(w[0], w[1]), pair(w[2], w[3]));
        [a, b, c, d]
    }
}

/// Normal draws of f64.
pub(crate) struct NormalF64;
impl Draw for NormalF64 {
    type Item = f64;
    const PER_BLOCK: usize = 2;
    const STREAM: u32 = 1;
    #[inline(always)]
    fn draw(w: [u32; 4]) -> [f64; 4] {
        let u = unit_f64(w[0], w[1]) + 1.0 / 9_007_199_254_740_992.0;
        let r = (-2.0 * math::double::log(u)).sqrt();
        let (s, c) = math::sincos_turns(unit_f64(w[2], w[3]));
        [r * c, r * s, 0.0, 0.0]
    }
}

/// 64 random bits.
pub(crate) struct Bits;
impl Draw for Bits {
    type Item = i64;
    const PER_BLOCK: usize = 2;
    const STREAM: u32 = 2;
    #[inline(always)]
    fn draw(w: [u32; 4]) -> [i64; 4] {
        let join = |lo: u32, hi: u32| ((hi as u64) << 32 | lo as u64) as i64;
        [join(w[0], w[1]), join(w[2], w[3]), 0, 0]
    }
}

/// Elements `start, start + stride, ...` of a leaf.
#[inline(always)]
pub(crate) fn fill<D: Draw>(out: &mut [D::Item], key: RandomKey, start: isize, stride: isize) {
    let per = D::PER_BLOCK as u64;
    if stride != 1 {
        for (i, o) in out.iter_mut().enumerate() {
            let p = start.wrapping_add(stride.wrapping_mul(i as isize)) as u64;
            *o = D::draw(block(key, D::STREAM, p / per))[(p % per) as usize];
        }
        return;
    }
    const GROUP: usize = 16;
    let (mut p, mut done) = (start as u64, 0);
    while done < out.len() {
        // Process a group of blocks at a time, so that the rounds run in vector registers.
        let first = p / per;
        let mut group = [[D::Item::default(); 4]; GROUP];
        for (i, slot) in group.iter_mut().enumerate() {
            *slot = D::draw(block(key, D::STREAM, first.wrapping_add(i as u64)));
        }
        let skip = (p % per) as usize;
        let n = (GROUP * D::PER_BLOCK - skip).min(out.len() - done);
        for (i, o) in out[done..done + n].iter_mut().enumerate() {
            *o = group[(skip + i) / D::PER_BLOCK][(skip + i) % D::PER_BLOCK];
        }
        done += n;
        p += n as u64;
    }
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

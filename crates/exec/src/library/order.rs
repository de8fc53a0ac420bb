//! The order of real numbers.

use super::Element;
use half::{bf16, f16};
use std::cmp::Ordering;
use std::ops::{BitOr, BitXor, Not};

/// Elements with a total order. NaN is larger than every number, and the zeros are equal.
pub(crate) trait Ordered: Element {
    /// An integer of the same size, with the same order.
    type Key: Ord + Copy + Not<Output = Self::Key> + Send + Sync;
    fn key(self) -> Self::Key;
    /// An unsigned integer of the same size.
    type Rank: Rank;
    /// An integer with the same order.
    fn rank(self) -> Self::Rank;
    /// The number of a rank: 0 for that of both zeros, and one NaN for that of all.
    fn of_rank(rank: Self::Rank) -> Self;
    /// A NaN, or the largest integer.
    const NAN: Self;
    /// Whether the rank tells the element: not for NaN and -0.
    fn is_told(self) -> bool;
    fn order(self, other: Self) -> Ordering;
    fn is_nan(self) -> bool;
}

/// Unsigned integers that are sorted.
pub(crate) trait Rank:
    Element + Ord + BitXor<Output = Self> + BitOr<Output = Self> + Not<Output = Self> + Into<u64>
{
}
impl Rank for u8 {}
impl Rank for u16 {}
impl Rank for u32 {}
impl Rank for u64 {}

macro_rules! ordered {
    ($($int:ty => $rank:ty)*; $($float:ty => $key:ty)*) => {
        $(impl Ordered for $int {
            const NAN: $int = <$int>::MAX;
            type Key = $int;
            #[inline(always)]
            fn key(self) -> $int {
                self
            }
            type Rank = $rank;
            #[inline(always)]
            fn rank(self) -> $rank {
                (self ^ <$int>::MIN) as $rank
            }
            #[inline(always)]
            fn of_rank(rank: $rank) -> $int {
                rank as $int ^ <$int>::MIN
            }
            #[inline(always)]
            fn is_told(self) -> bool {
                true
            }
            #[inline(always)]
            fn order(self, other: Self) -> Ordering {
                self.cmp(&other)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
        })*
        $(impl Ordered for $float {
            const NAN: $float = <$float>::NAN;
            type Key = $key;
            #[inline(always)]
            fn key(self) -> $key {
                let bits = self.to_bits() as $key;
                let rising = if bits < 0 { bits ^ <$key>::MAX } else { bits };
                let zero = if bits == <$key>::MIN { 0 } else { rising };
                let nan = bits & <$key>::MAX > <$float>::INFINITY.to_bits() as $key;
                if nan { <$key>::MAX } else { zero }
            }
            type Rank = <$key as Ordered>::Rank;
            #[inline(always)]
            fn rank(self) -> Self::Rank {
                self.key().rank()
            }
            #[inline(always)]
            fn of_rank(rank: Self::Rank) -> $float {
                let rising = <$key>::of_rank(rank);
                let bits = if rising < 0 { rising ^ <$key>::MAX } else { rising };
                <$float>::from_bits(bits as Self::Rank)
            }
            #[inline(always)]
            fn is_told(self) -> bool {
                let bits = self.to_bits() as $key;
                bits & <$key>::MAX <= <$float>::INFINITY.to_bits() as $key && bits != <$key>::MIN
            }
            #[inline(always)]
            fn order(self, other: Self) -> Ordering {
                self.partial_cmp(&other).unwrap_or_else(|| self.is_nan().cmp(&other.is_nan()))
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self != self
            }
        })*
    };
}

ordered!(
    u8 => u8 u16 => u16 u32 => u32 u64 => u64 i8 => u8 i16 => u16 i32 => u32 i64 => u64;
    f16 => i16 bf16 => i16 f32 => i32 f64 => i64
);

//! The types over which elementary functions are generic: a float, or a value of a program that is
//! being generated.
//!
//! A function over [`Single`] or [`Double`] is straight-line code of IEEE and integer operations.
//! With `f32` and `f64`, the portable executor's loops inline it; with a code generator's values,
//! it is traced to generated code. So both compute the same bits, and each function is written
//! once.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// Floats with the operations of elementary functions.
pub trait Float:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The type of constants.
    type Item;
    /// The bits, as signed integers.
    type Bits: Bits<Float = Self, Mask = Self::Mask>;
    /// The results of comparisons.
    type Mask: Mask;

    /// A constant.
    fn of(x: Self::Item) -> Self;
    /// The magnitude.
    fn abs(self) -> Self;
    /// The magnitude of `self` with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// `self * by + plus`, rounded once.
    fn fma(self, by: Self, plus: Self) -> Self;
    /// `self < other`; false for NaN.
    fn less(self, other: Self) -> Self::Mask;
    /// `self == other`; false for NaN.
    fn equal(self, other: Self) -> Self::Mask;
    /// `mask ? then : other`.
    fn select(mask: Self::Mask, then: Self, other: Self) -> Self;
    /// The bits.
    fn to_bits(self) -> Self::Bits;

    /// `self` clamped to `low` and `high`; NaN is preserved.
    #[inline(always)]
    fn clamped(self, low: Self, high: Self) -> Self {
        let x = Self::select(high.less(self), high, self);
        Self::select(x.less(low), low, x)
    }
}

/// Booleans.
pub trait Mask: Copy {
    /// The conjunction.
    fn and(self, other: Self) -> Self;
    /// The disjunction.
    fn or(self, other: Self) -> Self;
    /// The complement.
    fn not(self) -> Self;
}

/// Integers; arithmetic wraps.
pub trait Bits: Copy {
    /// Floats with these bits.
    type Float;
    /// The results of comparisons.
    type Mask: Mask;
    /// The type of constants.
    type Item;

    /// A constant.
    fn of(x: Self::Item) -> Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The difference.
    fn minus(self, other: Self) -> Self;
    /// The conjunction.
    fn and(self, other: Self) -> Self;
    /// The disjunction.
    fn or(self, other: Self) -> Self;
    /// The value shifted left.
    fn left(self, by: u32) -> Self;
    /// The value shifted right arithmetically.
    fn right(self, by: u32) -> Self;
    /// The value shifted right logically.
    fn right_zeros(self, by: u32) -> Self;
    /// Whether no bit is set.
    fn is_zero(self) -> Self::Mask;
    /// Whether the highest bit is set.
    fn is_negative(self) -> Self::Mask;
    /// The bits as floats.
    fn as_float(self) -> Self::Float;
}

/// Adding this to an f32 rounds it to an integer, which is then in the sum's low bits.
pub const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// f32s.
pub trait Single: Float<Item = f32, Bits: Bits<Item = i32, Float = Self>> {
    /// f64s with the same number of lanes.
    type Wide: Double<Narrow = Self, Mask = Self::Mask>;

    /// The value converted to f64, which is exact.
    fn widen(self) -> Self::Wide;
    /// The floats nearest to signed integers.
    fn of_integers(x: Self::Bits) -> Self;

    /// The product of `self`, a number from one half to two, and two to the power of the integer
    /// `round - ROUND`, if the result is normal: the integer is added to the exponent. For a NaN,
    /// the result is any number.
    #[inline(always)]
    fn scaled_in_range(self, round: Self) -> Self {
        self.to_bits().plus(round.to_bits().left(23)).as_float()
    }

    /// The product of `self`, a number from one half to two, and two to the power of the integer
    /// `round - ROUND`, whose magnitude is at most 254. The product is rounded once.
    #[inline(always)]
    fn scaled(self, round: Self) -> Self {
        scaled_by_parts(self, round)
    }
}

/// [`Single::scaled`] by two factors. Neither factor leaves the normal range, and only the last
/// product rounds.
#[inline(always)]
pub fn scaled_by_parts<F: Single>(x: F, round: F) -> F {
    let pow2 = |k: F::Bits| k.plus(F::Bits::of(127)).left(23).as_float();
    let k = round.to_bits().minus(F::Bits::of(ROUND.to_bits() as i32));
    let half = k.right(1);
    x * pow2(half) * pow2(k.minus(half))
}

/// f64s.
pub trait Double: Float<Item = f64, Bits: Bits<Item = i64>> {
    /// f32s with the same number of lanes.
    type Narrow: Single<Wide = Self, Mask = Self::Mask>;

    /// The value rounded to the nearest f32.
    fn narrow(self) -> Self::Narrow;
}

impl Mask for bool {
    #[inline(always)]
    fn and(self, other: bool) -> bool {
        self & other
    }

    #[inline(always)]
    fn or(self, other: bool) -> bool {
        self | other
    }

    #[inline(always)]
    fn not(self) -> bool {
        !self
    }
}

macro_rules! scalars {
    ($float:ident $signed:ident $unsigned:ident) => {
        impl Float for $float {
            type Item = $float;
            type Bits = $signed;
            type Mask = bool;

            #[inline(always)]
            fn of(x: $float) -> $float {
                x
            }

            #[inline(always)]
            fn abs(self) -> $float {
                $float::abs(self)
            }

            #[inline(always)]
            fn copysign(self, sign: $float) -> $float {
                $float::copysign(self, sign)
            }

            #[inline(always)]
            fn sqrt(self) -> $float {
                $float::sqrt(self)
            }

            #[inline(always)]
            fn fma(self, by: $float, plus: $float) -> $float {
                self.mul_add(by, plus)
            }

            #[inline(always)]
            fn less(self, other: $float) -> bool {
                self < other
            }

            #[inline(always)]
            fn equal(self, other: $float) -> bool {
                self == other
            }

            #[inline(always)]
            fn select(mask: bool, then: $float, other: $float) -> $float {
                if mask { then } else { other }
            }

            #[inline(always)]
            fn to_bits(self) -> $signed {
                $float::to_bits(self) as $signed
            }
        }

        impl Bits for $signed {
            type Float = $float;
            type Mask = bool;
            type Item = $signed;

            #[inline(always)]
            fn of(x: $signed) -> $signed {
                x
            }

            #[inline(always)]
            fn plus(self, other: $signed) -> $signed {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: $signed) -> $signed {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn and(self, other: $signed) -> $signed {
                self & other
            }

            #[inline(always)]
            fn or(self, other: $signed) -> $signed {
                self | other
            }

            #[inline(always)]
            fn left(self, by: u32) -> $signed {
                self << by
            }

            #[inline(always)]
            fn right(self, by: u32) -> $signed {
                self >> by
            }

            #[inline(always)]
            fn right_zeros(self, by: u32) -> $signed {
                (self as $unsigned >> by) as $signed
            }

            #[inline(always)]
            fn is_zero(self) -> bool {
                self == 0
            }

            #[inline(always)]
            fn is_negative(self) -> bool {
                self < 0
            }

            #[inline(always)]
            fn as_float(self) -> $float {
                $float::from_bits(self as $unsigned)
            }
        }
    };
}
scalars!(f32 i32 u32);
scalars!(f64 i64 u64);

impl Single for f32 {
    type Wide = f64;

    #[inline(always)]
    fn widen(self) -> f64 {
        self as f64
    }

    #[inline(always)]
    fn of_integers(x: i32) -> f32 {
        x as f32
    }
}

impl Double for f64 {
    type Narrow = f32;

    #[inline(always)]
    fn narrow(self) -> f32 {
        self as f32
    }
}

/// Horner's rule: `(((c[0] x + c[1]) x + c[2]) x + ...`.
#[inline(always)]
pub(super) fn horner<F: Float, const N: usize>(x: F, c: [F::Item; N]) -> F
where
    F::Item: Copy,
{
    let mut y = F::of(c[0]);
    let mut i = 1;
    while i < N {
        y = y.fma(x, F::of(c[i]));
        i += 1;
    }
    y
}

/// Horner's rule with an initial value: `((y x + c[0]) x + c[1]) x + ...`.
#[inline(always)]
pub(super) fn horner_from<F: Float, const N: usize>(mut y: F, x: F, c: [F::Item; N]) -> F
where
    F::Item: Copy,
{
    let mut i = 0;
    while i < N {
        y = y.fma(x, F::of(c[i]));
        i += 1;
    }
    y
}

/// `c[0] + c[1] x + c[2] x^2 + ...` by Horner's rule.
#[inline(always)]
pub(super) fn poly<F: Float, const N: usize>(x: F, c: [F::Item; N]) -> F
where
    F::Item: Copy,
{
    let mut y = F::of(c[N - 1]);
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        y = y.fma(x, F::of(c[i]));
    }
    y
}

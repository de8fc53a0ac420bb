//! What elementary functions are written over: one f32, or a value of a program being generated.
//!
//! A function over [`Float`] is a straight line of IEEE and integer operations. With `f32` it is
//! what the portable executor's loops inline; with a code generator's values it writes itself as
//! code. So both compute the same bits, and each function is written once.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// f32s with what functions do to them.
pub trait Float:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The 32 bits of one, as signed integers.
    type Bits: Bits<Float = Self>;
    /// Outcomes of comparisons.
    type Mask: Copy;

    /// A constant.
    fn of(x: f32) -> Self;
    /// The magnitude.
    fn abs(self) -> Self;
    /// This magnitude with that sign.
    fn copysign(self, sign: Self) -> Self;
    /// `self < other`; false for NaN.
    fn less(self, other: Self) -> Self::Mask;
    /// `self == other`; false for NaN.
    fn equal(self, other: Self) -> Self::Mask;
    /// `mask ? then : other`.
    fn select(mask: Self::Mask, then: Self, other: Self) -> Self;
    /// The bits.
    fn to_bits(self) -> Self::Bits;
}

/// 32-bit integers; arithmetic wraps.
pub trait Bits: Copy {
    /// The floats of these bits.
    type Float;

    /// A constant.
    fn of(x: i32) -> Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The difference.
    fn minus(self, other: Self) -> Self;
    /// The conjunction.
    fn and(self, other: Self) -> Self;
    /// Shifted left.
    fn left(self, by: u32) -> Self;
    /// Shifted right, filled with the sign.
    fn right(self, by: u32) -> Self;
    /// The nearest floats.
    fn to_float(self) -> Self::Float;
    /// The floats with these bits.
    fn as_float(self) -> Self::Float;
}

impl Float for f32 {
    type Bits = i32;
    type Mask = bool;

    #[inline(always)]
    fn of(x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn abs(self) -> f32 {
        f32::abs(self)
    }

    #[inline(always)]
    fn copysign(self, sign: f32) -> f32 {
        f32::copysign(self, sign)
    }

    #[inline(always)]
    fn less(self, other: f32) -> bool {
        self < other
    }

    #[inline(always)]
    fn equal(self, other: f32) -> bool {
        self == other
    }

    #[inline(always)]
    fn select(mask: bool, then: f32, other: f32) -> f32 {
        if mask { then } else { other }
    }

    #[inline(always)]
    fn to_bits(self) -> i32 {
        f32::to_bits(self) as i32
    }
}

impl Bits for i32 {
    type Float = f32;

    #[inline(always)]
    fn of(x: i32) -> i32 {
        x
    }

    #[inline(always)]
    fn plus(self, other: i32) -> i32 {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn minus(self, other: i32) -> i32 {
        self.wrapping_sub(other)
    }

    #[inline(always)]
    fn and(self, other: i32) -> i32 {
        self & other
    }

    #[inline(always)]
    fn left(self, by: u32) -> i32 {
        self << by
    }

    #[inline(always)]
    fn right(self, by: u32) -> i32 {
        self >> by
    }

    #[inline(always)]
    fn to_float(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn as_float(self) -> f32 {
        f32::from_bits(self as u32)
    }
}

/// Horner's rule: `(((c[0] x + c[1]) x + c[2]) x + ...`.
#[inline(always)]
pub(super) fn horner<F: Float, const N: usize>(x: F, c: [f32; N]) -> F {
    let mut y = F::of(c[0]);
    let mut i = 1;
    while i < N {
        y = y * x + F::of(c[i]);
        i += 1;
    }
    y
}

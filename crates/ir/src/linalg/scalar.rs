//! The numbers that matrices are made of.

use num_complex::Complex;
use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A real or complex number.
pub trait Scalar:
    Copy
    + Debug
    + Default
    + PartialEq
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// The dtype of its absolute value.
    type Real: Real;
    /// One.
    const ONE: Self;
    /// A real number.
    fn real(value: Self::Real) -> Self;
    /// The real part.
    fn re(self) -> Self::Real;
    /// The complex conjugate.
    fn conj(self) -> Self;
    /// The absolute value, without overflow.
    fn modulus(self) -> Self::Real;
    /// Times a real number.
    fn scale(self, by: Self::Real) -> Self;
    /// The quotient, without overflow on the way.
    fn over(self, by: Self) -> Self;
    /// As a complex number.
    fn complex(self) -> Complex<Self::Real>;
}

/// A real number.
pub trait Real: Scalar<Real = Self> + PartialOrd {
    /// Twice the relative error of rounding.
    const EPSILON: Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// True for NaN.
    fn is_nan(self) -> bool;
    /// True for what is neither NaN nor infinite.
    fn is_finite(self) -> bool;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// The length of `(self, other)`, without overflow.
    fn hypot(self, other: Self) -> Self;
    /// The absolute value with another's sign.
    fn with_sign(self, of: Self) -> Self;
}

macro_rules! reals {
    ($($ty:ident $hypot:path, $log:path;)*) => {
        $(impl Scalar for $ty {
            type Real = $ty;
            const ONE: $ty = 1.0;

            #[inline(always)]
            fn real(value: $ty) -> $ty {
                value
            }

            #[inline(always)]
            fn re(self) -> $ty {
                self
            }

            #[inline(always)]
            fn conj(self) -> $ty {
                self
            }

            #[inline(always)]
            fn modulus(self) -> $ty {
                self.abs()
            }

            #[inline(always)]
            fn scale(self, by: $ty) -> $ty {
                self * by
            }

            #[inline(always)]
            fn over(self, by: $ty) -> $ty {
                self / by
            }

            #[inline(always)]
            fn complex(self) -> Complex<$ty> {
                Complex::new(self, 0.0)
            }
        }

        impl Real for $ty {
            const EPSILON: $ty = $ty::EPSILON;

            fn sqrt(self) -> $ty {
                self.sqrt()
            }

            fn is_nan(self) -> bool {
                self.is_nan()
            }

            fn is_finite(self) -> bool {
                self.is_finite()
            }

            fn ln(self) -> $ty {
                $log(self)
            }

            fn hypot(self, other: $ty) -> $ty {
                $hypot(self, other)
            }

            fn with_sign(self, of: $ty) -> $ty {
                self.abs().copysign(of)
            }
        }

        impl Scalar for Complex<$ty> {
            type Real = $ty;
            const ONE: Complex<$ty> = Complex::new(1.0, 0.0);

            #[inline(always)]
            fn real(value: $ty) -> Complex<$ty> {
                Complex::new(value, 0.0)
            }

            #[inline(always)]
            fn re(self) -> $ty {
                self.re
            }

            #[inline(always)]
            fn conj(self) -> Complex<$ty> {
                Complex::new(self.re, -self.im)
            }

            #[inline(always)]
            fn modulus(self) -> $ty {
                $hypot(self.re, self.im)
            }

            #[inline(always)]
            fn scale(self, by: $ty) -> Complex<$ty> {
                Complex::new(self.re * by, self.im * by)
            }

            /// Smith's: the larger part of the divisor is divided by first.
            #[inline]
            fn over(self, by: Complex<$ty>) -> Complex<$ty> {
                if by.im == 0.0 {
                    Complex::new(self.re / by.re, self.im / by.re)
                } else if by.re.abs() >= by.im.abs() {
                    let ratio = by.im / by.re;
                    let scale = by.re + by.im * ratio;
                    let (re, im) = (self.re + self.im * ratio, self.im - self.re * ratio);
                    Complex::new(re / scale, im / scale)
                } else {
                    let ratio = by.re / by.im;
                    let scale = by.im + by.re * ratio;
                    let (re, im) = (self.re * ratio + self.im, self.im * ratio - self.re);
                    Complex::new(re / scale, im / scale)
                }
            }

            #[inline(always)]
            fn complex(self) -> Complex<$ty> {
                self
            }
        })*
    };
}

// The library's own functions give the same bits on every machine; the system's do not.
reals! {
    f32 libm::hypotf, libm::logf;
    f64 libm::hypot, libm::log;
}

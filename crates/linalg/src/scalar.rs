//! The number types of matrices.

use super::eig::{double_start, settle_pair, single_start};
use super::large::Large;
use num_complex::Complex;
use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A real or complex number.
pub trait Scalar:
    Large
    + Copy
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
    /// The type of the absolute value.
    type Real: Real<Complex = Self::Complex>;
    /// The complex type of the same precision.
    type Complex: Scalar<Real = Self::Real, Complex = Self::Complex>;
    /// One.
    const ONE: Self;
    /// True for complex numbers.
    const COMPLEX: bool;
    /// Converts a real number.
    fn real(value: Self::Real) -> Self;
    /// The real part.
    fn re(self) -> Self::Real;
    /// The imaginary part.
    fn im(self) -> Self::Real;
    /// The complex conjugate.
    fn conj(self) -> Self;
    /// The absolute value, without overflow.
    fn modulus(self) -> Self::Real;
    /// The product with a real number.
    fn scale(self, by: Self::Real) -> Self;
    /// The quotient without intermediate overflow.
    fn over(self, by: Self) -> Self;
    /// Converts to a complex number.
    fn complex(self) -> Self::Complex;
    /// The first column of a QR step on the rows `first..=last` of a Hessenberg matrix with `n`
    /// columns. The step has at least three rows for real numbers, and two for complex numbers.
    fn start(h: &[Self], n: usize, first: usize, last: usize, exceptional: bool) -> Vec<Self>;
    /// The eigenvalues of an isolated 2x2 block of a Hessenberg matrix; makes the block triangular
    /// if possible. Not called for complex numbers, whose rows all become isolated.
    fn settle(h: &mut [Self], z: &mut [Self], n: usize, i: usize)
    -> (Self::Complex, Self::Complex);
}

/// A real number.
pub trait Real: Scalar<Real = Self> + PartialOrd {
    /// Machine epsilon: twice the relative rounding error.
    const EPSILON: Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// True for NaN.
    fn is_nan(self) -> bool;
    /// True unless the number is NaN or infinite.
    fn is_finite(self) -> bool;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// `sqrt(self^2 + other^2)` without overflow.
    fn hypot(self, other: Self) -> Self;
    /// The absolute value with the sign of `of`.
    fn with_sign(self, of: Self) -> Self;
    /// The complex number with imaginary part `im`.
    fn with_imag(self, im: Self) -> Self::Complex;
    /// Rounds to this type.
    fn of(value: f64) -> Self;
}

macro_rules! reals {
    ($($ty:ident $hypot:path, $log:path;)*) => {
        $(impl Scalar for $ty {
            type Real = $ty;
            type Complex = Complex<$ty>;
            const ONE: $ty = 1.0;
            const COMPLEX: bool = false;

            #[inline(always)]
            fn real(value: $ty) -> $ty {
                value
            }

            #[inline(always)]
            fn re(self) -> $ty {
                self
            }

            #[inline(always)]
            fn im(self) -> $ty {
                0.0
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

            fn start(h: &[$ty], n: usize, first: usize, last: usize, odd: bool) -> Vec<$ty> {
                double_start(h, n, first, last, odd)
            }

            fn settle(
                h: &mut [$ty],
                z: &mut [$ty],
                n: usize,
                i: usize,
            ) -> (Complex<$ty>, Complex<$ty>) {
                settle_pair(h, z, n, i)
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

            fn with_imag(self, im: $ty) -> Complex<$ty> {
                Complex::new(self, im)
            }

            fn of(value: f64) -> $ty {
                value as $ty
            }
        }

        impl Scalar for Complex<$ty> {
            type Real = $ty;
            type Complex = Complex<$ty>;
            const ONE: Complex<$ty> = Complex::new(1.0, 0.0);
            const COMPLEX: bool = true;

            #[inline(always)]
            fn real(value: $ty) -> Complex<$ty> {
                Complex::new(value, 0.0)
            }

            #[inline(always)]
            fn re(self) -> $ty {
                self.re
            }

            #[inline(always)]
            fn im(self) -> $ty {
                self.im
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

            /// Smith's method: divides by the larger part of the divisor first.
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

            fn start(
                h: &[Complex<$ty>],
                n: usize,
                first: usize,
                last: usize,
                odd: bool,
            ) -> Vec<Complex<$ty>> {
                single_start(h, n, first, last, odd)
            }

            fn settle(
                h: &mut [Complex<$ty>],
                _: &mut [Complex<$ty>],
                n: usize,
                i: usize,
            ) -> (Complex<$ty>, Complex<$ty>) {
                (h[i * n + i], h[(i + 1) * n + i + 1])
            }
        })*
    };
}

// The functions of the `libm` crate give the same bits on every machine; the functions of the
// system do not.
reals! {
    f32 libm::hypotf, libm::logf;
    f64 libm::hypot, libm::log;
}

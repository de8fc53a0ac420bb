//! One element of an array.

use crate::{DType, Literal};
use num_complex::{Complex, Complex64};
use std::ops::Deref;

/// A literal, with an imaginary part for complex dtypes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element {
    real: Literal,
    /// Bits of the imaginary part, with the width of the real part; 0 for real dtypes.
    imag: u64,
}

impl Element {
    /// An element from the bits of both parts, as [`Literal::bits`]; `imag` is 0 for real dtypes.
    pub fn from_bits(dtype: DType, real: u64, imag: u64) -> Element {
        Element { real: Literal { dtype, bits: real }, imag }
    }

    /// A complex number, with its parts rounded to the dtype's parts.
    pub fn from_complex(dtype: DType, value: Complex64) -> Element {
        debug_assert!(dtype.is_complex());
        let part = |v| Literal::from_f64(dtype.real(), v).bits;
        Element::from_bits(dtype, part(value.re), part(value.im))
    }

    /// The value as a complex number, with imaginary part 0 for real dtypes.
    pub fn complex(self) -> Complex64 {
        let imag = Literal { dtype: self.real.dtype.real(), bits: self.imag };
        let imag = if self.real.dtype.is_complex() { imag.as_f64() } else { 0.0 };
        Complex::new(self.real.as_f64(), imag)
    }

    /// Bits of the imaginary part; 0 for real dtypes.
    pub fn imag_bits(self) -> u64 {
        self.imag
    }

    /// The element as a literal; `None` unless its imaginary part is +0.
    pub fn literal(self) -> Option<Literal> {
        (self.imag == 0).then_some(self.real)
    }

    /// True if a part is NaN.
    pub fn is_nan(self) -> bool {
        let value = self.complex();
        self.real.dtype.is_inexact() && (value.re.is_nan() || value.im.is_nan())
    }

    /// Converts to another dtype, as [`Literal::cast`]. Complex to bool is true if either part is
    /// not 0; complex to real drops the imaginary part.
    pub fn cast(self, dtype: DType) -> Element {
        match (self.real.dtype.is_complex(), dtype) {
            (true, DType::Bool) => {
                let value = self.complex();
                Literal::from_i64(dtype, (value.re != 0.0 || value.im != 0.0) as i64).into()
            }
            (true, dtype) if dtype.is_complex() => Element::from_complex(dtype, self.complex()),
            _ => self.real.cast(dtype).into(),
        }
    }
}

impl From<Literal> for Element {
    fn from(real: Literal) -> Element {
        Element { real, imag: 0 }
    }
}

/// Real elements dereference to their literals.
impl Deref for Element {
    type Target = Literal;

    fn deref(&self) -> &Literal {
        &self.real
    }
}

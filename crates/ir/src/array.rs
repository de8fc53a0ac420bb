//! Dense arrays: the samples of ops, and the values of the reference evaluator.

use crate::{DType, Element, Literal, Shape, TensorSpec};
use std::fmt;

/// A dense row-major array. Two arrays are equal if their specs and bits are equal.
#[derive(Clone, PartialEq)]
pub struct Array {
    spec: TensorSpec,
    bits: Vec<u64>,
    /// Imaginary parts of complex elements; empty for real dtypes.
    imag: Vec<u64>,
}

/// All indices of a shape in row-major order.
pub fn indices(shape: &Shape) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = shape.clone();
    (0..shape.numel()).map(move |flat| {
        let mut rest = flat;
        let mut index = vec![0; shape.rank()];
        for (i, &size) in index.iter_mut().zip(shape.iter()).rev() {
            *i = rest % size;
            rest /= size;
        }
        index
    })
}

/// Row-major position of a multi-index.
pub fn flat(shape: &Shape, index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |flat, (&size, &i)| flat * size + i)
}

impl Array {
    /// An array from its elements in row-major order.
    ///
    /// Panics if the number of elements differs from the shape's, or an element has another dtype.
    pub fn new<E: Into<Element>>(spec: TensorSpec, elements: impl IntoIterator<Item = E>) -> Array {
        let mut array = Array { spec, bits: Vec::new(), imag: Vec::new() };
        for element in elements {
            let element = element.into();
            assert_eq!(element.dtype, array.spec.dtype, "an element has another dtype");
            array.bits.push(element.bits);
            if element.dtype.is_complex() {
                array.imag.push(element.imag_bits());
            }
        }
        assert_eq!(
            array.bits.len(),
            array.spec.numel(),
            "the number of elements of {}",
            array.spec
        );
        array
    }

    /// An array from numbers, converted as by [`Literal::from_f64`].
    ///
    /// Panics as [`Array::new`] does.
    pub fn from_f64(shape: impl Into<Shape>, dtype: DType, elements: &[f64]) -> Array {
        let elements = elements.iter().map(|&e| Literal::from_f64(dtype, e));
        Array::new(TensorSpec::new(shape, dtype), elements)
    }

    /// An array whose elements are all `value`.
    pub fn splat(spec: TensorSpec, value: impl Into<Element>) -> Array {
        let count = spec.numel();
        Array::new(spec, std::iter::repeat_n(value.into(), count))
    }

    /// An array whose elements are computed from their index.
    pub fn from_fn<E: Into<Element>>(
        spec: TensorSpec,
        element: impl FnMut(&[usize]) -> E,
    ) -> Array {
        let mut element = element;
        let elements: Vec<E> = indices(&spec.shape).map(|i| element(&i)).collect();
        Array::new(spec, elements)
    }

    /// An array from bytes in row-major order, as [`Array::to_bytes`] returns them.
    ///
    /// Panics if the number of bytes differs from the spec's.
    pub fn from_bytes(spec: TensorSpec, bytes: &[u8]) -> Array {
        assert_eq!(bytes.len(), spec.size_bytes(), "the bytes of {spec}");
        let (dtype, size) = (spec.dtype, spec.dtype.size());
        let width = if dtype.is_complex() { size / 2 } else { size };
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let element = |bytes: &[u8]| {
            let (real, imag) = bytes.split_at(width);
            let unused = 64 - 8 * width as u32;
            match dtype.is_int() {
                true if dtype.is_signed() => {
                    let value = (word(real) << unused) as i64 >> unused;
                    Literal::from_i64(dtype, value).into()
                }
                _ => Element::from_bits(dtype, word(real), word(imag)),
            }
        };
        let elements: Vec<Element> = bytes.chunks_exact(size).map(element).collect();
        Array::new(spec, elements)
    }

    /// The elements' bytes, little-endian, in row-major order.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (dtype, mut out) = (self.spec.dtype, Vec::with_capacity(self.spec.size_bytes()));
        let width = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
        for (i, bits) in self.bits.iter().enumerate() {
            out.extend_from_slice(&bits.to_le_bytes()[..width]);
            if let Some(imag) = self.imag.get(i) {
                out.extend_from_slice(&imag.to_le_bytes()[..width]);
            }
        }
        out
    }

    /// Shape and dtype.
    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// The element at a row-major position.
    pub fn get(&self, flat: usize) -> Element {
        let imag = self.imag.get(flat).copied().unwrap_or_default();
        Element::from_bits(self.spec.dtype, self.bits[flat], imag)
    }

    /// Replaces the element at a row-major position by a value of the array's dtype.
    pub fn set(&mut self, flat: usize, value: impl Into<Element>) {
        let value = value.into();
        assert_eq!(value.dtype, self.spec.dtype, "an element has another dtype");
        self.bits[flat] = value.bits;
        if value.dtype.is_complex() {
            self.imag[flat] = value.imag_bits();
        }
    }

    /// The element at an index.
    pub fn at(&self, index: &[usize]) -> Element {
        self.get(flat(&self.spec.shape, index))
    }

    /// The element that broadcasting reads at an index of the larger shape.
    pub fn broadcast_at(&self, index: &[usize]) -> Element {
        let lead = index.len() - self.spec.shape.rank();
        let clamp = |(&i, &size): (&usize, &usize)| if size == 1 { 0 } else { i };
        let own: Vec<usize> = index[lead..].iter().zip(self.spec.shape.iter()).map(clamp).collect();
        self.at(&own)
    }

    /// All elements, in row-major order.
    pub fn elements(&self) -> impl Iterator<Item = Element> + '_ {
        (0..self.bits.len()).map(|flat| self.get(flat))
    }

    /// All elements as floats, in row-major order; the real parts of complex elements.
    pub fn to_f64(&self) -> Vec<f64> {
        self.elements().map(|e| e.as_f64()).collect()
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.spec)?;
        let text = |e: Element| match e.dtype.is_complex() {
            true => e.complex().to_string(),
            false => e.to_string(),
        };
        f.debug_list().entries(self.elements().map(text)).finish()
    }
}

//! Dense arrays of the reference evaluator.

use crate::{DType, Literal, Shape, TensorSpec};
use std::fmt;

/// A dense row-major array. Two arrays are equal if their specs and bits are.
#[derive(Clone, PartialEq)]
pub struct Array {
    spec: TensorSpec,
    bits: Vec<u64>,
}

/// All indices of a shape in row-major order.
pub(super) fn indices(shape: &Shape) -> impl Iterator<Item = Vec<usize>> + use<> {
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

/// Row-major position of an index.
pub(super) fn flat(shape: &Shape, index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |flat, (&size, &i)| flat * size + i)
}

impl Array {
    /// From the elements in row-major order.
    ///
    /// Panics if there are more or fewer than the shape holds, or one is of another dtype.
    pub fn new(spec: TensorSpec, elements: impl IntoIterator<Item = Literal>) -> Array {
        let bits: Vec<u64> = elements
            .into_iter()
            .inspect(|e| assert_eq!(e.dtype, spec.dtype, "an element has another dtype"))
            .map(|e| e.bits)
            .collect();
        assert_eq!(bits.len(), spec.numel(), "the number of elements of {spec}");
        Array { spec, bits }
    }

    /// From numbers, converted as [`Literal::from_f64`] does.
    ///
    /// Panics as [`Array::new`] does.
    pub fn from_f64(shape: impl Into<Shape>, dtype: DType, elements: &[f64]) -> Array {
        let elements = elements.iter().map(|&e| Literal::from_f64(dtype, e));
        Array::new(TensorSpec::new(shape, dtype), elements)
    }

    /// One value everywhere.
    pub fn splat(spec: TensorSpec, value: Literal) -> Array {
        let count = spec.numel();
        Array::new(spec, std::iter::repeat_n(value, count))
    }

    /// Each element from its index.
    pub fn from_fn(spec: TensorSpec, element: impl FnMut(&[usize]) -> Literal) -> Array {
        let mut element = element;
        let elements: Vec<Literal> = indices(&spec.shape).map(|i| element(&i)).collect();
        Array::new(spec, elements)
    }

    /// Shape and dtype.
    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// The element at a row-major position.
    pub fn get(&self, flat: usize) -> Literal {
        Literal { dtype: self.spec.dtype, bits: self.bits[flat] }
    }

    /// Replaces the element at a row-major position by a value of the array's dtype.
    pub fn set(&mut self, flat: usize, value: Literal) {
        assert_eq!(value.dtype, self.spec.dtype, "an element has another dtype");
        self.bits[flat] = value.bits;
    }

    /// The element at an index.
    pub(super) fn at(&self, index: &[usize]) -> Literal {
        self.get(flat(&self.spec.shape, index))
    }

    /// The element that broadcasting puts at an index of the larger shape.
    pub(super) fn broadcast_at(&self, index: &[usize]) -> Literal {
        let lead = index.len() - self.spec.shape.rank();
        let clamp = |(&i, &size): (&usize, &usize)| if size == 1 { 0 } else { i };
        let own: Vec<usize> = index[lead..].iter().zip(self.spec.shape.iter()).map(clamp).collect();
        self.at(&own)
    }

    /// All elements, in row-major order.
    pub fn elements(&self) -> impl Iterator<Item = Literal> + '_ {
        self.bits.iter().map(|&bits| Literal { dtype: self.spec.dtype, bits })
    }

    /// All elements as floats, in row-major order.
    pub fn to_f64(&self) -> Vec<f64> {
        self.elements().map(Literal::as_f64).collect()
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.spec)?;
        f.debug_list().entries(self.elements().map(|e| e.to_string())).finish()
    }
}

//! Shapes from numbers, symbolic sizes, arrays and tuples.

use super::Shape;
use crate::Dim;
use smallvec::SmallVec;
use std::sync::Arc;

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Self {
        Shape::of(SmallVec::from_slice(sizes))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Self {
        Shape::of(SmallVec::from_slice(&sizes))
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(sizes: &[usize; N]) -> Self {
        Shape::from(&sizes[..])
    }
}

/// A shape with one axis.
impl From<usize> for Shape {
    fn from(size: usize) -> Self {
        Shape::from([size])
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Self {
        shape.clone()
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {
        $(impl From<($(sized!($name),)*)> for Shape {
            #[allow(non_snake_case)]
            fn from(($($name,)*): ($(sized!($name),)*)) -> Self {
                Shape::from([$($name),*])
            }
        })*
    };
}

macro_rules! sized {
    ($name:ident) => {
        usize
    };
}

tuples! { ; A; A B; A B C; A B C D; A B C D E; A B C D E F; }

impl From<&Vec<usize>> for Shape {
    fn from(sizes: &Vec<usize>) -> Self {
        Shape::from(&sizes[..])
    }
}

impl From<Vec<usize>> for Shape {
    fn from(sizes: Vec<usize>) -> Self {
        Shape::of(SmallVec::from_vec(sizes))
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        Shape::of(iter.into_iter().collect())
    }
}

impl FromIterator<Dim> for Shape {
    fn from_iter<I: IntoIterator<Item = Dim>>(iter: I) -> Self {
        let dims: SmallVec<[Dim; 4]> = iter.into_iter().collect();
        let symbolic = dims.iter().any(|dim| dim.known().is_none());
        Shape {
            sizes: dims.iter().map(|dim| dim.hint()).collect(),
            dims: symbolic.then(|| Arc::new(dims.to_vec())),
        }
    }
}

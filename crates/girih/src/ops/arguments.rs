//! Axes and sizes as callers write them: a number, an array, a slice, `..` for all axes, or a tuple
//! of sizes.

use super::Size;
use girih_ir::{Dim, Shape};
use smallvec::{SmallVec, smallvec};
use std::ops::RangeFull;

/// Axes of a tensor: `1`, `[0, -1]`, a slice or vector of numbers, or `..` for all axes. Negative
/// axes count from the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axes(Option<SmallVec<[i64; 4]>>);

impl Axes {
    /// All axes, as `..`.
    pub const ALL: Axes = Axes(None);

    /// The axes; `None` for all axes.
    pub fn as_slice(&self) -> Option<&[i64]> {
        self.0.as_deref()
    }

    /// These axes as the argument of a reduction, which keeps them with size one if `keepdims`; for
    /// front ends in which it is a flag. See [`keepdims`].
    pub fn reduced(self, keepdims: bool) -> ReducedAxes {
        ReducedAxes { axes: self, keepdims }
    }
}

/// The axes that a reduction combines: anything that is [`Axes`], or [`keepdims`] of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReducedAxes {
    pub(crate) axes: Axes,
    pub(crate) keepdims: bool,
}

impl ReducedAxes {
    /// The axes; `None` for all axes.
    pub fn as_slice(&self) -> Option<&[i64]> {
        self.axes.as_slice()
    }
}

impl<A: Into<Axes>> From<A> for ReducedAxes {
    fn from(axes: A) -> ReducedAxes {
        axes.into().reduced(false)
    }
}

/// The axes of a reduction, which stay with size one in its result.
///
/// ```
/// use girih::{DType, Tensor, keepdims};
///
/// let x = Tensor::ones([2, 3], DType::F32)?;
/// assert_eq!(x.sum(1)?.shape(), [2]);
/// assert_eq!(x.sum(keepdims(1))?.shape(), [2, 1]);
/// assert_eq!(x.sum(keepdims(..))?.shape(), [1, 1]);
/// # Ok::<(), girih::Error>(())
/// ```
pub fn keepdims(axes: impl Into<Axes>) -> ReducedAxes {
    axes.into().reduced(true)
}

/// A number of an index or a size as i64. A number beyond i64 is out of range in any use, and stays
/// so.
pub(crate) trait Number: Copy {
    fn number(self) -> i64;
}

impl Number for i32 {
    fn number(self) -> i64 {
        self.into()
    }
}

impl Number for i64 {
    fn number(self) -> i64 {
        self
    }
}

impl Number for usize {
    fn number(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl From<$number> for Axes {
            fn from(axis: $number) -> Axes {
                Axes(Some(smallvec![axis.number()]))
            }
        }

        impl<const N: usize> From<[$number; N]> for Axes {
            fn from(axes: [$number; N]) -> Axes {
                Axes::from(&axes[..])
            }
        }

        impl<const N: usize> From<&[$number; N]> for Axes {
            fn from(axes: &[$number; N]) -> Axes {
                Axes::from(&axes[..])
            }
        }

        impl From<&[$number]> for Axes {
            fn from(axes: &[$number]) -> Axes {
                Axes(Some(axes.iter().map(|axis| axis.number()).collect()))
            }
        }

        impl From<Vec<$number>> for Axes {
            fn from(axes: Vec<$number>) -> Axes {
                Axes::from(&axes[..])
            }
        }

        impl From<&Vec<$number>> for Axes {
            fn from(axes: &Vec<$number>) -> Axes {
                Axes::from(&axes[..])
            }
        }

        impl From<$number> for Size {
            fn from(size: $number) -> Size {
                Size::Known(size.number())
            }
        }

        impl From<$number> for Sizes {
            fn from(size: $number) -> Sizes {
                Sizes::List(smallvec![size.into()])
            }
        })*
    };
}

numbers! { i32 i64 usize }

impl From<RangeFull> for Axes {
    fn from(_: RangeFull) -> Axes {
        Axes::ALL
    }
}

impl From<Option<i64>> for Axes {
    fn from(axis: Option<i64>) -> Axes {
        Axes(axis.map(|axis| smallvec![axis]))
    }
}

impl From<Option<&[i64]>> for Axes {
    fn from(axes: Option<&[i64]>) -> Axes {
        Axes(axes.map(SmallVec::from_slice))
    }
}

/// The sizes of a reshaped tensor: a number, an array, slice, vector or tuple of numbers, one of
/// which may be -1, or a [`Shape`].
#[derive(Clone, Debug)]
pub enum Sizes {
    /// A shape.
    Shape(Shape),
    /// Sizes, one of which may be -1, which is inferred.
    List(SmallVec<[Size; 4]>),
}

impl From<Dim> for Size {
    fn from(size: Dim) -> Size {
        match size.known() {
            Some(size) => size.into(),
            None => Size::Symbolic(size),
        }
    }
}

/// The sizes of a scalar.
impl From<()> for Sizes {
    fn from(_: ()) -> Sizes {
        Sizes::Shape(Shape::scalar())
    }
}

impl From<Shape> for Sizes {
    fn from(shape: Shape) -> Sizes {
        Sizes::Shape(shape)
    }
}

impl From<&Shape> for Sizes {
    fn from(shape: &Shape) -> Sizes {
        Sizes::Shape(shape.clone())
    }
}

impl<S: Into<Size> + Copy> From<&[S]> for Sizes {
    fn from(sizes: &[S]) -> Sizes {
        Sizes::List(sizes.iter().map(|&size| size.into()).collect())
    }
}

impl<S: Into<Size> + Copy> From<Vec<S>> for Sizes {
    fn from(sizes: Vec<S>) -> Sizes {
        Sizes::from(&sizes[..])
    }
}

impl<S: Into<Size> + Copy> From<&Vec<S>> for Sizes {
    fn from(sizes: &Vec<S>) -> Sizes {
        Sizes::from(&sizes[..])
    }
}

impl<S: Into<Size> + Copy, const N: usize> From<[S; N]> for Sizes {
    fn from(sizes: [S; N]) -> Sizes {
        Sizes::from(&sizes[..])
    }
}

impl<S: Into<Size> + Copy, const N: usize> From<&[S; N]> for Sizes {
    fn from(sizes: &[S; N]) -> Sizes {
        Sizes::from(&sizes[..])
    }
}

macro_rules! tuples {
    ($($($name:ident)+,)*) => {
        $(impl<$($name: Into<Size>),+> From<($($name,)+)> for Sizes {
            #[allow(non_snake_case)]
            fn from(($($name,)+): ($($name,)+)) -> Sizes {
                Sizes::List(smallvec![$($name.into()),+])
            }
        })*
    };
}

tuples! { A, A B, A B C, A B C D, A B C D E, A B C D E F, }

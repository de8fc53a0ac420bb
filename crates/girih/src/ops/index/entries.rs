//! Index expressions as Rust code writes them: `x.index((0, 1..-1, ..))`.

use super::Index;
use crate::ops::arguments::Number;
use crate::{DType, Tensor};
use smallvec::{SmallVec, smallvec};
use std::ops::{
    Bound, Deref, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo,
    RangeToInclusive,
};

/// The entries of an index expression: one entry, or a tuple, array, slice or vector of entries. An
/// entry is a number, a range of numbers, a tensor of integers or a mask, or an [`Index`]. Negative
/// numbers count from the end, also as bounds of ranges. `..` is a whole axis.
///
/// Clippy takes a range of literals such as `1..-1` for a mistake; crates that use them allow
/// `clippy::reversed_empty_ranges`.
#[derive(Clone)]
pub struct Indices(SmallVec<[Index; 4]>);

impl Deref for Indices {
    type Target = [Index];

    fn deref(&self) -> &[Index] {
        &self.0
    }
}

/// A range of positions along an axis, such as `1..-1` or `..`.
pub trait IndexRange {
    /// The first index and the index before which the range stops, if given.
    fn bounds(self) -> (Option<i64>, Option<i64>);
}

impl IndexRange for RangeFull {
    fn bounds(self) -> (Option<i64>, Option<i64>) {
        (None, None)
    }
}

/// The bounds of a range of numbers. The last position of an inclusive range that ends at -1 is the
/// last of the axis.
fn bounds<N: Number>(range: &impl RangeBounds<N>) -> (Option<i64>, Option<i64>) {
    let start = match range.start_bound() {
        Bound::Included(at) | Bound::Excluded(at) => Some(at.number()),
        Bound::Unbounded => None,
    };
    let stop = match range.end_bound() {
        Bound::Included(at) => at.number().checked_add(1).filter(|&stop| stop != 0),
        Bound::Excluded(at) => Some(at.number()),
        Bound::Unbounded => None,
    };
    (start, stop)
}

impl Index {
    /// A slice with a step: `Index::step(1..9, 2)`, or `Index::step(.., -1)` for an axis backwards.
    /// The step must not be zero, which is an error of the indexing call.
    pub fn step(range: impl IndexRange, step: i64) -> Index {
        let (start, stop) = range.bounds();
        Index::Slice { start, stop, step }
    }
}

/// Entries that consist of one.
macro_rules! entry {
    ($($ty:ty),*) => {
        $(impl From<$ty> for Indices {
            fn from(entry: $ty) -> Indices {
                Indices(smallvec![entry.into()])
            }
        })*
    };
}

macro_rules! ranges {
    ($number:ty: $($range:ident),*) => {
        $(impl IndexRange for $range<$number> {
            fn bounds(self) -> (Option<i64>, Option<i64>) {
                bounds::<$number>(&self)
            }
        }

        impl From<$range<$number>> for Index {
            fn from(range: $range<$number>) -> Index {
                Index::step(range, 1)
            }
        }

        entry!($range<$number>);)*
    };
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl From<$number> for Index {
            fn from(at: $number) -> Index {
                Index::At(at.number())
            }
        }

        entry!($number);
        ranges!($number: Range, RangeFrom, RangeTo, RangeInclusive, RangeToInclusive);)*
    };
}

numbers! { i32 i64 usize }

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        Index::ALL
    }
}

/// A mask if the tensor is of bools, else positions.
impl From<&Tensor> for Index {
    fn from(tensor: &Tensor) -> Index {
        tensor.clone().into()
    }
}

/// A mask if the tensor is of bools, else positions.
impl From<Tensor> for Index {
    fn from(tensor: Tensor) -> Index {
        match tensor.dtype() {
            DType::Bool => Index::Mask(tensor),
            _ => Index::Take(tensor),
        }
    }
}

entry!(Index, RangeFull, &Tensor, Tensor);

impl From<&[Index]> for Indices {
    fn from(entries: &[Index]) -> Indices {
        Indices(entries.iter().cloned().collect())
    }
}

impl<const N: usize> From<&[Index; N]> for Indices {
    fn from(entries: &[Index; N]) -> Indices {
        Indices::from(&entries[..])
    }
}

impl<const N: usize> From<[Index; N]> for Indices {
    fn from(entries: [Index; N]) -> Indices {
        Indices(entries.into_iter().collect())
    }
}

impl From<&Vec<Index>> for Indices {
    fn from(entries: &Vec<Index>) -> Indices {
        Indices::from(&entries[..])
    }
}

impl From<Vec<Index>> for Indices {
    fn from(entries: Vec<Index>) -> Indices {
        Indices(entries.into())
    }
}

macro_rules! tuples {
    ($($($name:ident)+,)*) => {
        $(impl<$($name: Into<Index>),+> From<($($name,)+)> for Indices {
            #[allow(non_snake_case)]
            fn from(($($name,)+): ($($name,)+)) -> Indices {
                Indices(smallvec![$($name.into()),+])
            }
        })*
    };
}

tuples! { A, A B, A B C, A B C D, A B C D E, A B C D E F, }

//! Loops over a block of elements, for ops of one and two operands and for `Where`.

use crate::isa::{BlockFn, Isa, Loop, select};
use std::marker::PhantomData;

/// An op of one operand.
pub(crate) trait Unary<T> {
    type Out: Copy;
    fn eval(x: T) -> Self::Out;
    /// Recomputes the elements for which `eval` gives no valid result.
    #[inline(always)]
    fn repair(_: &mut [Self::Out], _: &[T]) {}
}

/// An op of two operands of one type.
pub(crate) trait Binary<T> {
    type Out: Copy;
    fn eval(a: T, b: T) -> Self::Out;
}

pub(crate) struct Map1<O, T>(PhantomData<(O, T)>);
impl<T: Copy, O: Unary<T>> Loop for Map1<O, T> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: valid for `n` elements, aligned and not overlapping, by the contract of `run`.
        let (out, a) = unsafe { (slice_mut::<O::Out>(out, n), slice::<T>(a, n)) };
        for (o, &a) in out.iter_mut().zip(a) {
            *o = O::eval(a);
        }
        O::repair(out, a);
    }
}

pub(crate) struct Map2<O, T>(PhantomData<(O, T)>);
impl<T: Copy, O: Binary<T>> Loop for Map2<O, T> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize) {
        // SAFETY: as in `Map1`.
        let (out, a, b) =
            unsafe { (slice_mut::<O::Out>(out, n), slice::<T>(a, n), slice::<T>(b, n)) };
        for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *o = O::eval(a, b);
        }
    }
}

struct Choose<T>(PhantomData<T>);
impl<T: Copy> Loop for Choose<T> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, c: *const u8, a: *const u8, b: *const u8, n: usize) {
        // SAFETY: as in `Map1`; the condition is one byte per element.
        let (out, c) = unsafe { (slice_mut::<T>(out, n), slice::<u8>(c, n)) };
        // SAFETY: as above.
        let (a, b) = unsafe { (slice::<T>(a, n), slice::<T>(b, n)) };
        for (((o, &c), &a), &b) in out.iter_mut().zip(c).zip(a).zip(b) {
            *o = if c != 0 { a } else { b };
        }
    }
}

/// # Safety
/// `p` is valid for reads of `n` aligned elements.
#[inline(always)]
pub(crate) unsafe fn slice<'a, T>(p: *const u8, n: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(p as *const T, n) }
}

/// # Safety
/// `p` is valid for writes of `n` aligned elements that nothing else refers to.
#[inline(always)]
pub(crate) unsafe fn slice_mut<'a, T>(p: *mut u8, n: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(p as *mut T, n) }
}

/// The loop of `Where` on values of `size` bytes.
pub(crate) fn choose(size: usize, isa: Isa) -> BlockFn {
    match size {
        1 => select::<Choose<u8>>(isa),
        2 => select::<Choose<u16>>(isa),
        4 => select::<Choose<u32>>(isa),
        8 => select::<Choose<u64>>(isa),
        _ => select::<Choose<[u64; 2]>>(isa),
    }
}

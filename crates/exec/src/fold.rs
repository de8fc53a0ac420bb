//! Folds: the loops that combine elements in reductions, and the cascade that combines blocks as a
//! tree.
//!
//! The tree depends only on the number of elements, so no bit depends on their layout, split or
//! access. Each block of [`BLOCK`](super::BLOCK) consecutive elements is folded by lanes: element
//! `i` is combined into lane `i mod` [`LANES`], each lane starting from the identity, and then the
//! upper half of the lanes is combined into the lower half repeatedly. Blocks are combined pairwise
//! by a [`Cascade`]. Splitting the sequence at a power of two of blocks preserves the tree.
//!
//! A block of a product of floats has one lane, so that its elements are multiplied in order, as in
//! NumPy: where large and small factors alternate, every lane but one would overflow or underflow,
//! although no product of the first factors does.

use super::complex;
use super::copy::prefetch;
use super::isa::{BlockFn, Isa, Loop, select};
use super::ops::{Add, And, Binary, Maximum, Minimum, Mul, Or, slice, slice_mut};
use girih_ir::DType;
use girih_kernel::ReduceOp;
use num_complex::Complex;
use std::marker::PhantomData;

/// The number of lanes in the fold of a block.
pub(crate) const LANES: usize = crate::REDUCTION.lanes;

/// The loops of one reduction on one compute type.
#[derive(Clone, Copy)]
pub(crate) struct Fold {
    /// `(out, x, len as an address, _, rows)`: folds `rows` rows of `len` elements each; the number
    /// is passed in place of an operand's address.
    pub rows: BlockFn,
    /// `(out, x, blocks, _, rows)`: like `rows`, for elements that are the results of one block
    /// each.
    pub blocks: BlockFn,
    /// `(acc, x, _, _, n)`: `acc[i] = acc[i] op x[i]`; does not overlap.
    pub combine: BlockFn,
    /// `(lanes, x, step, rows, n)`: folds each of `n` columns of at most a block of rows, which are
    /// `step` bytes apart; the numbers are passed in place of addresses. `lanes` has room for `n`
    /// elements per lane; the first `n` elements are the results.
    pub columns: BlockFn,
    /// `(out, _, _, _, n)`: fills with the identity.
    pub identity: BlockFn,
    /// The number of lanes of a block: [`LANES`], or one.
    pub lanes: usize,
    /// Whether any order of the combinations gives the same bits.
    pub exact: bool,
    /// The result that no further element changes, if there is one, as a byte.
    pub last: Option<u8>,
}

/// A reduction's combination with its identity.
trait Monoid<T>: Binary<T, Out = T> {
    const IDENTITY: T;
    /// Whether the elements of a block are combined in order, in one lane.
    const IN_ORDER: bool = false;
    /// Whether any order of the combinations gives the same bits, which is true for integers.
    const EXACT: bool = true;
    /// As [`Fold::last`].
    const LAST: Option<u8> = None;
}
macro_rules! monoid {
    ($exact:literal; $($op:ident: $($t:ident $id:expr),*;)*) => { $($(impl Monoid<$t> for $op {
        const IDENTITY: $t = $id;
        const EXACT: bool = $exact;
    })*)* };
}
monoid! {
    true;
    Add: u8 0, u16 0, u32 0, u64 0;
    Mul: u8 1, u16 1, u32 1, u64 1;
    Maximum: u8 0, u16 0, u32 0, u64 0, i8 i8::MIN, i16 i16::MIN, i32 i32::MIN, i64 i64::MIN;
    Minimum: u8 u8::MAX, u16 u16::MAX, u32 u32::MAX, u64 u64::MAX, i8 i8::MAX, i16 i16::MAX, i32 i32::MAX, i64 i64::MAX;
}
monoid! {
    false;
    Add: f32 0.0, f64 0.0;
    Maximum: f32 f32::NEG_INFINITY, f64 f64::NEG_INFINITY;
    Minimum: f32 f32::INFINITY, f64 f64::INFINITY;
}
impl Monoid<u8> for Or {
    const IDENTITY: u8 = 0;
    const LAST: Option<u8> = Some(1);
}
impl Monoid<u8> for And {
    const IDENTITY: u8 = 1;
    const LAST: Option<u8> = Some(0);
}

macro_rules! product_of_floats {
    ($($t:ident)*) => { $(
        impl Monoid<$t> for Mul {
            const IDENTITY: $t = 1.0;
            const IN_ORDER: bool = true;
            const EXACT: bool = false;
        }
    )* };
}
product_of_floats!(f32 f64);

macro_rules! complex_monoid {
    ($($t:ident)*) => { $(
        impl Monoid<Complex<$t>> for complex::Add {
            const IDENTITY: Complex<$t> = Complex::new(0.0, 0.0);
            const EXACT: bool = false;
        }
        impl Monoid<Complex<$t>> for complex::Prod {
            const IDENTITY: Complex<$t> = Complex::new(1.0, 0.0);
            const IN_ORDER: bool = true;
            const EXACT: bool = false;
        }
    )* };
}
complex_monoid!(f32 f64);

/// Folds one row of at most a block by lanes.
#[inline(always)]
fn row<T: Copy, M: Monoid<T>>(x: &[T]) -> T {
    if M::EXACT {
        // The compiler divides the loop into lanes of its own.
        return x.iter().fold(M::IDENTITY, |total, &x| M::eval(total, x));
    }
    // Every lane index is a constant, so the lanes are in registers.
    let mut lanes = [M::IDENTITY; LANES];
    let mut parts = x.chunks_exact(LANES);
    for part in &mut parts {
        for i in 0..LANES {
            lanes[i] = M::eval(lanes[i], part[i]);
        }
    }
    let rest = parts.remainder();
    if !rest.is_empty() {
        // Combining with the identity changes no bit: no lane is ever -0 in a sum.
        let mut last = [M::IDENTITY; LANES];
        last[..rest.len()].copy_from_slice(rest);
        for i in 0..LANES {
            lanes[i] = M::eval(lanes[i], last[i]);
        }
    }
    // Through memory: otherwise the compiler would shape the vectors of the loop above by the pairs
    // below, and use an eighth of each vector.
    let lanes = std::hint::black_box(&mut lanes);
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = M::eval(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Folds rows of `len` elements each in order. Some rows are folded at once, because each waits for
/// the latency of every combination.
#[inline(always)]
fn rows_in_order<T: Copy, M: Monoid<T>>(out: &mut [T], x: &[T], len: usize) {
    const AT_ONCE: usize = 8;
    let (groups, rest) = out.split_at_mut(out.len() - out.len() % AT_ONCE);
    let (grouped, single) = x.split_at(groups.len() * len);
    for (out, x) in groups.chunks_exact_mut(AT_ONCE).zip(grouped.chunks_exact(AT_ONCE * len)) {
        let mut totals = [M::IDENTITY; AT_ONCE];
        for i in 0..len {
            for (r, total) in totals.iter_mut().enumerate() {
                *total = M::eval(*total, x[r * len + i]);
            }
        }
        out.copy_from_slice(&totals);
    }
    for (o, x) in rest.iter_mut().zip(single.chunks_exact(len)) {
        *o = x.iter().fold(M::IDENTITY, |total, &x| M::eval(total, x));
    }
}

/// The number of rows whose lanes are reduced at once, so that vectors stay full.
const TOGETHER: usize = LANES / 2;

/// Combines the two halves of each row of `2 * W` values.
#[inline(always)]
fn halve<T: Copy, M: Monoid<T>, const W: usize>(x: &[T], out: &mut [T]) {
    let (x, out) = (&x[..2 * W * TOGETHER], &mut out[..W * TOGETHER]);
    for r in 0..TOGETHER {
        for i in 0..W {
            out[r * W + i] = M::eval(x[r * 2 * W + i], x[r * 2 * W + W + i]);
        }
    }
}

/// Computes [`row`] for [`TOGETHER`] rows that consist of one element per lane.
#[inline(always)]
fn lanes<T: Copy, M: Monoid<T>>(x: &[T], out: &mut [T]) {
    let mut a = [M::IDENTITY; TOGETHER * LANES / 2];
    let mut b = [M::IDENTITY; TOGETHER * LANES / 4];
    // Through memory after each step: otherwise the compiler would shape the vectors of all steps
    // by the pairs of the last one.
    halve::<T, M, 16>(x, &mut a);
    halve::<T, M, 8>(std::hint::black_box(&a), &mut b);
    halve::<T, M, 4>(std::hint::black_box(&b), &mut a);
    halve::<T, M, 2>(std::hint::black_box(&a), &mut b);
    halve::<T, M, 1>(std::hint::black_box(&b), out);
}

struct FoldRows<M, T>(PhantomData<(M, T)>);
impl<T: Copy, M: Monoid<T>> Loop for FoldRows<M, T> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, x: *const u8, len: *const u8, _: *const u8, rows: usize) {
        let len = len.addr();
        // SAFETY: the caller passes `rows` results and `rows * len` elements.
        let (mut out, mut x) = unsafe { (slice_mut::<T>(out, rows), slice::<T>(x, rows * len)) };
        if M::IN_ORDER {
            return rows_in_order::<T, M>(out, x, len);
        }
        while len == LANES && out.len() >= TOGETHER {
            let (first, rest) = out.split_at_mut(TOGETHER);
            lanes::<T, M>(&x[..TOGETHER * LANES], first);
            (out, x) = (rest, &x[TOGETHER * LANES..]);
        }
        for (o, x) in out.iter_mut().zip(x.chunks_exact(len)) {
            *o = row::<T, M>(x);
        }
    }
}

/// The combination of a sequence in the order of a [`Cascade`].
fn tree<T: Copy, M: Monoid<T>>(x: &[T]) -> T {
    if let [one] = x {
        return *one;
    }
    let (first, second) = x.split_at(x.len().next_power_of_two() / 2);
    M::eval(tree::<T, M>(first), tree::<T, M>(second))
}

struct Blocks<M, T>(PhantomData<(M, T)>);
impl<T: Copy, M: Monoid<T>> Loop for Blocks<M, T> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, x: *const u8, len: *const u8, _: *const u8, rows: usize) {
        let len = len.addr();
        // SAFETY: the caller passes `rows` results and `rows * len` elements.
        let (out, x) = unsafe { (slice_mut::<T>(out, rows), slice::<T>(x, rows * len)) };
        for (o, x) in out.iter_mut().zip(x.chunks_exact(len)) {
            *o = tree::<T, M>(x);
        }
    }
}

struct Combine<M, T>(PhantomData<(M, T)>);
impl<T: Copy, M: Monoid<T>> Loop for Combine<M, T> {
    #[inline(always)]
    unsafe fn run(acc: *mut u8, x: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: valid for `n` elements and not overlapping, by the contract of `run`.
        let (acc, x) = unsafe { (slice_mut::<T>(acc, n), slice::<T>(x, n)) };
        for (a, &x) in acc.iter_mut().zip(x) {
            *a = M::eval(*a, x);
        }
    }
}

/// The distance in rows at which rows are prefetched: the hardware prefetcher does not follow rows
/// that are short and far apart.
const PREFETCHED: usize = 8;

struct Columns<M, T>(PhantomData<(M, T)>);
impl<T: Copy, M: Monoid<T>> Loop for Columns<M, T> {
    #[inline(always)]
    unsafe fn run(lanes: *mut u8, x: *const u8, step: *const u8, rows: *const u8, n: usize) {
        let (step, rows) = (step.addr() as isize, rows.addr());
        let count = if M::IN_ORDER || M::EXACT { 1 } else { LANES };
        // SAFETY: valid for `n` elements per lane, by the contract of `run`.
        let lanes = unsafe { slice_mut::<T>(lanes, count * n) };
        lanes.fill(M::IDENTITY);
        for k in 0..rows {
            let row = x.wrapping_offset(k as isize * step);
            let ahead = row.wrapping_offset(PREFETCHED as isize * step);
            prefetch(ahead.cast::<T>(), n);
            // SAFETY: the row has `n` elements, which do not overlap the lanes.
            let row = unsafe { slice::<T>(row, n) };
            let lane = &mut lanes[k % count * n..][..n];
            for (a, &x) in lane.iter_mut().zip(row) {
                *a = M::eval(*a, x);
            }
        }
        let mut width = count / 2;
        while width > 0 {
            let (lower, upper) = lanes.split_at_mut(width * n);
            for (a, &x) in lower.iter_mut().zip(&*upper) {
                *a = M::eval(*a, x);
            }
            width /= 2;
        }
    }
}

struct Identity<M, T>(PhantomData<(M, T)>);
impl<T: Copy, M: Monoid<T>> Loop for Identity<M, T> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, _: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: valid for `n` elements, by the contract of `run`.
        unsafe { slice_mut::<T>(out, n) }.fill(M::IDENTITY);
    }
}

fn fold_of<M: Monoid<T>, T: Copy>(isa: Isa) -> Fold {
    Fold {
        rows: select::<FoldRows<M, T>>(isa),
        blocks: select::<Blocks<M, T>>(isa),
        combine: select::<Combine<M, T>>(isa),
        columns: select::<Columns<M, T>>(isa),
        identity: select::<Identity<M, T>>(isa),
        lanes: if M::IN_ORDER { 1 } else { LANES },
        exact: M::EXACT,
        last: M::LAST,
    }
}

/// The loops of a reduction (not an arg reduction) on a compute type.
pub(crate) fn fold(op: ReduceOp, dtype: DType, isa: Isa) -> Fold {
    macro_rules! wrapping {
        ($m:ident) => {
            match dtype {
                DType::Bool | DType::U8 | DType::I8 => fold_of::<$m, u8>(isa),
                DType::U16 | DType::I16 => fold_of::<$m, u16>(isa),
                DType::U32 | DType::I32 => fold_of::<$m, u32>(isa),
                DType::U64 | DType::I64 => fold_of::<$m, u64>(isa),
                DType::F64 => fold_of::<$m, f64>(isa),
                _ => fold_of::<$m, f32>(isa),
            }
        };
    }
    macro_rules! ordered {
        ($m:ident) => {
            match dtype {
                DType::I8 => fold_of::<$m, i8>(isa),
                DType::I16 => fold_of::<$m, i16>(isa),
                DType::I32 => fold_of::<$m, i32>(isa),
                DType::I64 => fold_of::<$m, i64>(isa),
                _ => wrapping!($m),
            }
        };
    }
    match op {
        ReduceOp::Sum if dtype == DType::C64 => fold_of::<complex::Add, Complex<f32>>(isa),
        ReduceOp::Sum if dtype == DType::C128 => fold_of::<complex::Add, Complex<f64>>(isa),
        ReduceOp::Prod if dtype == DType::C64 => fold_of::<complex::Prod, Complex<f32>>(isa),
        ReduceOp::Prod if dtype == DType::C128 => fold_of::<complex::Prod, Complex<f64>>(isa),
        ReduceOp::Sum => wrapping!(Add),
        ReduceOp::Prod => wrapping!(Mul),
        ReduceOp::Max => ordered!(Maximum),
        ReduceOp::Min => ordered!(Minimum),
        ReduceOp::Any => fold_of::<Or, u8>(isa),
        ReduceOp::All => fold_of::<And, u8>(isa),
        ReduceOp::ArgMax | ReduceOp::ArgMin => unreachable!("arg reductions have their own loops"),
    }
}

/// Pairwise combination of a sequence of vectors, in space logarithmic in its length: a binary
/// counter, whose bit `i` is set if level `i` holds the combination of `2^i` vectors.
pub(crate) struct Cascade {
    levels: *mut u8,
    level_bytes: usize,
    element_bytes: usize,
    n: usize,
    combine: BlockFn,
    count: usize,
}

impl Cascade {
    /// The number of levels that `count` vectors need.
    pub fn levels(count: usize) -> usize {
        (usize::BITS - count.leading_zeros()) as usize
    }

    /// An empty cascade of vectors of `n` elements.
    ///
    /// # Safety
    /// `levels` is valid for [`Cascade::levels`] of the sequence's length times `level_bytes`
    /// bytes, unused by others while the cascade lives; `n * element_bytes <= level_bytes`, and
    /// `combine` takes such elements.
    pub unsafe fn new(
        levels: *mut u8,
        level_bytes: usize,
        element_bytes: usize,
        n: usize,
        combine: BlockFn,
    ) -> Cascade {
        Cascade { levels, level_bytes, element_bytes, n, combine, count: 0 }
    }

    fn level(&self, i: usize) -> *mut u8 {
        // Within the allocation by the contract of `new`: `i` is below the number of levels.
        self.levels.wrapping_add(i * self.level_bytes)
    }

    /// Appends a vector, which is not in the levels.
    ///
    /// # Safety
    /// `x` is valid for `n` elements and does not overlap the levels.
    pub unsafe fn push(&mut self, x: *const u8) {
        let null = std::ptr::null();
        let mut carry = x;
        let mut i = 0;
        // SAFETY: levels and vector are valid for `n` elements and distinct.
        unsafe {
            while self.count >> i & 1 == 1 {
                // The level is the earlier operand.
                (self.combine)(self.level(i), carry, null, null, self.n);
                carry = self.level(i);
                i += 1;
            }
            std::ptr::copy_nonoverlapping(carry, self.level(i), self.n * self.element_bytes);
        }
        self.count += 1;
    }

    /// The combination of all vectors, at least one.
    ///
    /// # Safety
    /// As for [`Cascade::new`].
    pub unsafe fn finish(self) -> *const u8 {
        let null = std::ptr::null();
        debug_assert!(self.count > 0, "a cascade has a vector");
        let mut carry = self.level(self.count.trailing_zeros() as usize);
        let mut later = self.count & (self.count - 1);
        while later > 0 {
            let level = self.level(later.trailing_zeros() as usize);
            // SAFETY: both levels are valid for `n` elements and distinct.
            unsafe { (self.combine)(level, carry, null, null, self.n) };
            carry = level;
            later &= later - 1;
        }
        carry
    }
}

/// The loops of an arg reduction on one compute type.
#[derive(Clone, Copy)]
pub(crate) struct ArgFold {
    /// Continues the search of one row: `(state, x, base index, n)`. The state is a value and its
    /// index, which is -1 before the first element.
    pub scan: BlockFn,
    /// Continues `n` searches by one element each: `(values, indices, x, index, n)`.
    pub step: unsafe fn(*mut u8, *mut i64, *const u8, i64, usize),
}

/// The best element of a row so far.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ArgState {
    value: u64,
    /// The index of the element.
    pub index: i64,
}

impl ArgState {
    /// The state before the first element.
    pub const START: ArgState = ArgState { value: 0, index: -1 };
}

/// The order of an arg reduction.
trait Better<T> {
    /// Whether `x` replaces `best`, which comes earlier.
    fn better(x: T, best: T) -> bool;

    /// As [`Better::better`], of elements that are no NaNs.
    fn beats(x: T, best: T) -> bool;
}
struct Largest;
struct Smallest;
macro_rules! better {
    ($($t:ident)*) => { $(
        // `x != x` is false for integers; a NaN is better than anything but an earlier NaN.
        #[allow(clippy::eq_op)]
        impl Better<$t> for Largest {
            #[inline(always)]
            fn better(x: $t, best: $t) -> bool { x > best || x != x && best == best }
            #[inline(always)]
            fn beats(x: $t, best: $t) -> bool { x > best }
        }
        #[allow(clippy::eq_op)]
        impl Better<$t> for Smallest {
            #[inline(always)]
            fn better(x: $t, best: $t) -> bool { x < best || x != x && best == best }
            #[inline(always)]
            fn beats(x: $t, best: $t) -> bool { x < best }
        }
    )* };
}
better!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

/// The first index of an element that equals `value`, or of a NaN if `value` is one.
#[inline(always)]
fn first<T: Copy + PartialEq>(x: &[T], value: T) -> Option<usize> {
    const AT_ONCE: usize = 64;
    #[allow(clippy::eq_op, reason = "only a NaN differs from itself")]
    let is = |x: T| (x == value) | (value != value) & (x != x);
    // A loop that ends early is not vectorised, so whole groups are compared first.
    let found = |x: &[T]| x.iter().fold(false, |any, &x| any | is(x));
    let group = x.chunks(AT_ONCE).position(found)? * AT_ONCE;
    Some(group + x[group..].iter().position(|&x| is(x))?)
}

/// The best of elements that are no NaNs.
#[inline(always)]
fn best_of<B: Better<T>, T: Copy>(x: &[T]) -> T {
    let mut lanes = [x[0]; LANES];
    let mut parts = x.chunks_exact(LANES);
    for part in &mut parts {
        for i in 0..LANES {
            lanes[i] = if B::beats(part[i], lanes[i]) { part[i] } else { lanes[i] };
        }
    }
    let all = lanes.iter().chain(parts.remainder());
    all.fold(x[0], |best, &x| if B::beats(x, best) { x } else { best })
}

/// `(state, x, base as an address, _, n)`: continues an arg reduction with `n` elements, the first of
/// which has the index `base`.
struct Scan<B, T>(PhantomData<(B, T)>);
impl<T: Copy + PartialEq, B: Better<T>> Loop for Scan<B, T> {
    #[inline(always)]
    unsafe fn run(state: *mut u8, x: *const u8, base: *const u8, _: *const u8, n: usize) {
        // SAFETY: the caller passes a state, which was only used with this type, and `n` elements.
        let (x, state) = unsafe { (slice::<T>(x, n), &mut *state.cast::<ArgState>()) };
        #[allow(clippy::eq_op, reason = "only a NaN differs from itself")]
        let nan = x.iter().fold(false, |any, &x| any | (x != x));
        let best = match nan {
            #[allow(clippy::eq_op, reason = "only a NaN differs from itself")]
            true => *x.iter().find(|&&x| x != x).expect("there is one"),
            false => best_of::<B, T>(x),
        };
        let value = (&raw mut state.value) as *mut T;
        // SAFETY: `T` is at most eight bytes; an earlier call wrote the value.
        unsafe {
            if state.index < 0 || B::better(best, value.read()) {
                value.write(best);
                let index = first(x, best).expect("it is one of the elements");
                state.index = (base.addr() + index) as i64;
            }
        }
    }
}

/// # Safety
/// All operands are valid for `n` elements and distinct; at index 0 the accumulators may be unset.
unsafe fn step<B: Better<T>, T: Copy>(
    best: *mut u8,
    at: *mut i64,
    x: *const u8,
    index: i64,
    n: usize,
) {
    // SAFETY: the caller's promise.
    let (best, at, x) =
        unsafe { (slice_mut::<T>(best, n), slice_mut::<i64>(at as *mut u8, n), slice::<T>(x, n)) };
    for ((best, at), &x) in best.iter_mut().zip(at).zip(x) {
        let take = index == 0 || B::better(x, *best);
        *best = if take { x } else { *best };
        *at = if take { index } else { *at };
    }
}

/// The loops of an arg reduction on a compute type.
pub(crate) fn arg_fold(op: ReduceOp, dtype: DType, isa: Isa) -> ArgFold {
    fn of<B: Better<T>, T: Copy + PartialEq>(isa: Isa) -> ArgFold {
        ArgFold { scan: select::<Scan<B, T>>(isa), step: step::<B, T> }
    }
    macro_rules! typed {
        ($t:ident) => {
            if op == ReduceOp::ArgMax { of::<Largest, $t>(isa) } else { of::<Smallest, $t>(isa) }
        };
    }
    match dtype {
        DType::Bool | DType::U8 => typed!(u8),
        DType::I8 => typed!(i8),
        DType::I16 => typed!(i16),
        DType::I32 => typed!(i32),
        DType::I64 => typed!(i64),
        DType::U16 => typed!(u16),
        DType::U32 => typed!(u32),
        DType::U64 => typed!(u64),
        DType::F64 => typed!(f64),
        DType::F32 | DType::F16 | DType::BF16 => typed!(f32),
        DType::C64 | DType::C128 => unreachable!("complex numbers are in no order"),
    }
}

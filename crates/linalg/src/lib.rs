//! Dense linear algebra on row-major slices: the routines of the ops on matrices. The reference
//! evaluator and the executors call the same functions, because factors are not unique, so
//! independent implementations would only agree on the factors' defining properties. Tests check
//! these properties and compare with LAPACK.
//!
//! Real and complex numbers share the code. Small matrices are factored here. Their sums have an
//! order that depends only on the sizes and use no fused multiply-add, so that their bits are equal
//! on all machines. Large matrices are factored by a library (`large`).
#![forbid(unsafe_code)]

mod balance;
mod blocked;
mod cofactors;
mod eig;
mod eigh;
mod factor;
mod large;
mod scalar;
mod svd;
mod team;

pub use cofactors::{cofactor_slopes, cofactors};
pub use eig::{Eig, eig};
pub use eigh::eigh;
pub use factor::{Qr, cholesky, det, inv, lu, qr, slogdet, solve, solve_triangular};
pub use large::{Large, Triangle};
pub use scalar::{Real, Scalar};
pub use svd::{Svd, svd};
pub use team::{Alone, Team, apart};

use std::borrow::Cow;

/// Why an algorithm cannot process a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A zero pivot.
    #[error("the matrix is singular: pivot {0} is zero")]
    Singular(usize),
    /// A leading minor that is not positive.
    #[error("the matrix is not positive definite: its leading minor of order {0} is not positive")]
    NotPositiveDefinite(usize),
    /// NaN or an infinity.
    #[error("the matrix has NaN or infinite elements")]
    NotFinite,
    /// An iteration that does not converge, for instance because of NaN.
    #[error(
        "the iteration for eigenvalues or singular values does not converge; look for NaN and infinities"
    )]
    NotConverged,
}

/// Maximum number of steps for one eigenvalue or singular value; a few are typical.
const MAX_STEPS: usize = 75;

/// Sizes (the smaller of rows and columns) from which the library's routines are at least as fast
/// for every type of number. Below these sizes, the setup of the library's routines costs more than
/// the routines save.
mod from {
    pub const LU: usize = 40;
    pub const CHOLESKY: usize = 24;
    pub const QR: usize = 96;
    pub const EIGH: usize = 48;
    pub const SVD: usize = 96;
}

/// The number of rows from which on a step of an own loop takes long enough to ask whether the team
/// was stopped.
const MIN_POLLED: usize = 64;

/// True if the library should process a matrix of this size, with threshold `from`: its elements
/// must be finite, and so must sums of their squares. This crate's routines process all other
/// matrices.
fn is_large<T: Scalar>(a: &[T], size: usize, from: usize) -> bool {
    size >= from && {
        let largest = largest(a);
        largest.is_finite() && !is_extreme(largest)
    }
}

/// The largest absolute value of a real or imaginary part; NaN if any part is NaN.
fn largest<T: Scalar>(a: &[T]) -> T::Real {
    const LANES: usize = 16;
    let zero = T::Real::default();
    let (mut lanes, mut nan) = ([zero; LANES], [zero; LANES]);
    for chunk in a.chunks(LANES) {
        for ((lane, nan), x) in lanes.iter_mut().zip(&mut nan).zip(chunk) {
            let (re, im) = (x.re().modulus(), x.im().modulus());
            *lane = if re > *lane { re } else { *lane };
            *lane = if im > *lane { im } else { *lane };
            // Zero for finite numbers, NaN for NaN and infinities. Infinities are also the largest.
            *nan = *nan + re * zero + im * zero;
        }
    }
    let larger = |m: T::Real, &x: &T::Real| if x > m { x } else { m };
    let largest = lanes.iter().fold(zero, larger);
    match largest.is_finite() && nan.iter().any(|nan| nan.is_nan()) {
        true => T::Real::of(f64::NAN),
        false => largest,
    }
}

/// True if squares of elements of magnitude up to `largest`, or sums of these squares, may overflow
/// or underflow: LAPACK's bounds.
fn is_extreme<R: Real>(largest: R) -> bool {
    let (above, below) = (largest / R::EPSILON, largest * R::EPSILON);
    let extreme = !(above * above).is_finite() || below * below * R::EPSILON == R::default();
    extreme && largest.is_finite() && largest != R::default()
}

/// Divides the matrix by a power of two near its largest element, and returns that power. The
/// division is exact and prevents overflow. If scaling is unnecessary, nothing is copied and the
/// power is one.
fn scaled<T: Scalar>(a: &[T]) -> (Cow<'_, [T]>, T::Real) {
    let (one, half) = (T::Real::ONE, T::Real::of(0.5));
    let (largest, mut power) = (largest(a), one);
    if !is_extreme(largest) {
        return (Cow::Borrowed(a), one);
    }
    while power + power <= largest {
        power = power + power;
    }
    // The reciprocal of the power must not overflow.
    while power > largest && (one / (power * half)).is_finite() {
        power = power * half;
    }
    let reciprocal = one / power;
    (a.iter().map(|x| x.scale(reciprocal)).collect(), power)
}

/// Multiplies by the power that [`scaled`] returned.
fn restore<T: Scalar>(values: &mut [T], power: T::Real) {
    if power != T::Real::ONE {
        values.iter_mut().for_each(|x| *x = x.scale(power));
    }
}

/// The identity, `rows` by `columns`.
fn eye<T: Scalar>(rows: usize, columns: usize) -> Vec<T> {
    let mut out = vec![T::default(); rows * columns];
    (0..rows.min(columns)).for_each(|i| out[i * columns + i] = T::ONE);
    out
}

/// The conjugate transpose of a matrix of `rows` by `columns`.
fn adjoint<T: Scalar>(a: &[T], rows: usize, columns: usize) -> Vec<T> {
    let mut out = transpose(a, rows, columns);
    if T::COMPLEX {
        out.iter_mut().for_each(|x| *x = x.conj());
    }
    out
}

/// The transpose of a matrix of `rows` by `columns`, in tiles.
fn transpose<T: Scalar>(a: &[T], rows: usize, columns: usize) -> Vec<T> {
    const TILE: usize = 8;
    let mut out = vec![T::default(); rows * columns];
    let whole = (rows - rows % TILE, columns - columns % TILE);
    for top in (0..whole.0).step_by(TILE) {
        for left in (0..whole.1).step_by(TILE) {
            let row = |i: usize| &a[(top + i) * columns + left..][..TILE];
            let tile: [&[T]; TILE] = std::array::from_fn(row);
            for j in 0..TILE {
                let to = &mut out[(left + j) * rows + top..][..TILE];
                to.iter_mut().zip(&tile).for_each(|(to, row)| *to = row[j]);
            }
        }
    }
    for i in 0..rows {
        for j in (if i < whole.0 { whole.1 } else { 0 })..columns {
            out[j * rows + i] = a[i * columns + j];
        }
    }
    out
}

/// `to -= factor * from`, element by element.
fn subtract<T: Scalar>(to: &mut [T], factor: T, from: &[T]) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to = *to - factor * from);
}

/// The sum of products, in eight independent partial sums.
fn dot<T: Scalar>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::default(); 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest = a.remainder().iter().zip(b.remainder());
    let rest = rest.fold(T::default(), |sum, (&a, &b)| sum + a * b);
    for (a, b) in a.zip(b) {
        for (sum, (&a, &b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum = *sum + a * b;
        }
    }
    sums.into_iter().fold(rest, |sum, x| sum + x)
}

/// Mutable slices of two rows of a matrix.
fn two_rows<T>(a: &mut [T], columns: usize, i: usize, j: usize) -> (&mut [T], &mut [T]) {
    debug_assert!(i < j);
    let (head, tail) = a.split_at_mut(j * columns);
    (&mut head[i * columns..(i + 1) * columns], &mut tail[..columns])
}

/// Rotates two rows: `(x, y)` becomes `(c x + s y, c y - s x)`.
fn rotate<T: Scalar>(a: &mut [T], columns: usize, i: usize, j: usize, c: T::Real, s: T::Real) {
    if columns == 0 {
        return;
    }
    let (x, y) = two_rows(a, columns, i, j);
    for (x, y) in x.iter_mut().zip(y) {
        let (p, q) = (*x, *y);
        *x = p.scale(c) + q.scale(s);
        *y = q.scale(c) - p.scale(s);
    }
}

/// A Householder reflection `I - tau v v^H`.
struct Reflector<T> {
    v: Vec<T>,
    tau: T,
}

impl<T: Scalar> Reflector<T> {
    /// The reflection whose adjoint maps `x` to a real multiple of the first unit vector, and that
    /// multiple. The sign is LAPACK's.
    fn new(mut x: Vec<T>) -> (Reflector<T>, T::Real) {
        let alpha = x[0];
        let rest = norm(&x[1..]);
        if rest == T::Real::default() && alpha == T::real(alpha.re()) {
            return (Reflector { v: vec![T::default(); x.len()], tau: T::default() }, alpha.re());
        }
        let length = rest.hypot(alpha.modulus());
        let beta = if alpha.re() < T::Real::default() { length } else { -length };
        let scale = alpha - T::real(beta);
        x[1..].iter_mut().for_each(|x| *x = x.over(scale));
        x[0] = T::ONE;
        (Reflector { v: x, tau: (T::real(beta) - alpha).scale(T::Real::ONE / beta) }, beta)
    }

    /// `A -= factor v (v^H A)` for the rows of `A` from `first` on and its columns from `from` on.
    fn left(&self, factor: T, a: &mut [T], columns: usize, first: usize, from: usize) {
        if factor == T::default() {
            return;
        }
        let mut sums = vec![T::default(); columns - from];
        for (i, v) in self.v.iter().enumerate() {
            let row = &a[(first + i) * columns + from..(first + i + 1) * columns];
            subtract(&mut sums, -v.conj(), row);
        }
        for (i, &v) in self.v.iter().enumerate() {
            let row = &mut a[(first + i) * columns + from..(first + i + 1) * columns];
            subtract(row, factor * v, &sums);
        }
    }

    /// `A -= tau (A v) v^H` for the columns of `A` from `first` on and its rows from `from` on.
    fn right(&self, a: &mut [T], columns: usize, first: usize, from: usize) {
        if self.tau == T::default() || columns == 0 {
            return;
        }
        for row in a.chunks_exact_mut(columns).skip(from) {
            let row = &mut row[first..];
            let factor = self.tau * dot(&row[..self.v.len()], &self.v);
            row.iter_mut().zip(&self.v).for_each(|(a, v)| *a = *a - factor * v.conj());
        }
    }
}

/// The first `columns` columns of the product of reflections; reflection `i` acts from row
/// `first + i` on.
fn product<T: Scalar>(
    reflectors: &[Reflector<T>],
    rows: usize,
    columns: usize,
    first: usize,
) -> Vec<T> {
    let mut q = eye(rows, columns);
    for (k, reflector) in reflectors.iter().enumerate().rev() {
        reflector.left(reflector.tau, &mut q, columns, first + k, 0);
    }
    q
}

/// The Euclidean norm without overflow.
fn norm<T: Scalar>(x: &[T]) -> T::Real {
    let largest = x.iter().fold(T::Real::default(), |m, x| {
        let x = x.modulus();
        if x > m || x.is_nan() { x } else { m }
    });
    if largest == T::Real::default() || largest.is_nan() {
        return largest;
    }
    let square = |x: &T| {
        let x = x.modulus() / largest;
        x * x
    };
    largest * x.iter().fold(T::Real::default(), |sum, x| sum + square(x)).sqrt()
}

#[cfg(test)]
mod tests;

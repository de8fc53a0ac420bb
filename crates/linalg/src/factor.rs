//! Cholesky, LU and QR factorisations, and solvers that use them.

use super::large::Triangle;
use super::{
    Failure, MIN_POLLED, Real, Reflector, Scalar, Team, eye, from, is_large, product, restore,
    scaled, subtract,
};

/// Cholesky factor: the lower triangular `L` with `A = L L^H`, or its adjoint with `upper`. Only
/// the same triangle of `a` is read.
///
/// Errors: [`Failure::NotPositiveDefinite`].
pub fn cholesky<T: Scalar>(
    a: &[T],
    n: usize,
    upper: bool,
    team: &dyn Team,
) -> Result<Vec<T>, Failure> {
    if is_large(a, n, from::CHOLESKY) {
        return T::cholesky(a, n, upper, team).map_err(Failure::NotPositiveDefinite);
    }
    // Factor the upper triangle: each step subtracts multiples of one row from the rows below it,
    // and rows are contiguous in memory.
    let mut u = a.to_vec();
    if !upper {
        reflect(&mut u, n, |above, below| *above = below.conj());
    }
    for k in 0..n {
        let (above, below) = u.split_at_mut((k + 1) * n);
        let row = &mut above[k * n..];
        let square = row[k].re();
        // The comparison also rejects NaN.
        if square.partial_cmp(&T::Real::default()) != Some(std::cmp::Ordering::Greater) {
            return Err(Failure::NotPositiveDefinite(k + 1));
        }
        let pivot = square.sqrt();
        row[..k].fill(T::default());
        row[k] = T::real(pivot);
        row[k + 1..].iter_mut().for_each(|x| *x = x.scale(T::Real::ONE / pivot));
        for (i, other) in (k + 1..n).zip(below.chunks_exact_mut(n)) {
            subtract(&mut other[i..], row[i].conj(), &row[i..]);
        }
    }
    if !upper {
        reflect(&mut u, n, |above, below| *below = std::mem::take(above).conj());
    }
    Ok(u)
}

/// Calls `f` with each element above the diagonal and its mirrored element.
fn reflect<T>(a: &mut [T], n: usize, f: impl Fn(&mut T, &mut T)) {
    for i in 0..n {
        let (row, below) = a[i * n..].split_at_mut(n);
        for (above, other) in row[i + 1..].iter_mut().zip(below.chunks_exact_mut(n)) {
            f(above, &mut other[i]);
        }
    }
}

/// The LU factors in one matrix, and whether the permutation is odd.
pub(super) struct Lu<T> {
    factors: Vec<T>,
    /// The source row of each row, or the source column of each column.
    origins: Vec<usize>,
    odd: bool,
    /// True if columns were permuted, as by the library; the upper factor then has a unit diagonal.
    /// Otherwise rows were permuted, and the lower factor has a unit diagonal.
    by_columns: bool,
}

/// Scales `x` by a power of epsilon to a modulus near one. Returns `y` and `p` with
/// `x = y * EPSILON^-p`. Zero, NaN and infinities are returned unchanged.
fn moderate<T: Scalar>(mut x: T) -> (T, i32) {
    let (unit, back) = (T::Real::EPSILON, T::Real::ONE / T::Real::EPSILON);
    let (mut size, mut power) = (x.modulus(), 0);
    if size == T::Real::default() || !size.is_finite() {
        return (x, 0);
    }
    while size > back {
        (x, size, power) = (x.scale(unit), size * unit, power + 1);
    }
    while size < unit {
        (x, size, power) = (x.scale(back), size * back, power - 1);
    }
    (x, power)
}

impl<T: Scalar> Lu<T> {
    pub(super) fn new(a: &[T], n: usize, team: &dyn Team) -> Lu<T> {
        if is_large(a, n, from::LU) {
            let mut factors = a.to_vec();
            let (origins, odd) = T::lu(&mut factors, n, team);
            let lu = Lu { factors, origins, odd, by_columns: true };
            // The library divides by every pivot.
            let divides = |k: usize| T::ONE.over(lu.pivot(k)).modulus().is_finite();
            if (0..n).all(divides) || team.stopped() {
                return lu;
            }
        }
        Lu::by_rows(a, n, team)
    }

    fn by_rows(a: &[T], n: usize, team: &dyn Team) -> Lu<T> {
        let origins = (0..n).collect();
        let mut lu = Lu { factors: a.to_vec(), origins, odd: false, by_columns: false };
        for k in 0..n {
            if n >= MIN_POLLED && team.stopped() {
                break;
            }
            let size = |i: usize| lu.factors[i * n + k].modulus();
            let mut pivot = k;
            for i in k + 1..n {
                if size(i) > size(pivot) {
                    pivot = i;
                }
            }
            if pivot != k {
                let (a, b) = super::two_rows(&mut lu.factors, n, k, pivot);
                a.swap_with_slice(b);
                lu.origins.swap(k, pivot);
                lu.odd = !lu.odd;
            }
            let (above, below) = lu.factors.split_at_mut((k + 1) * n);
            let row = &above[k * n..];
            if row[k] == T::default() {
                continue;
            }
            for other in below.chunks_exact_mut(n) {
                let factor = other[k].over(row[k]);
                other[k] = factor;
                subtract(&mut other[k + 1..], factor, &row[k + 1..]);
            }
        }
        lu
    }

    fn pivot(&self, k: usize) -> T {
        self.factors[k * self.origins.len() + k]
    }

    pub(super) fn zero_pivot(&self) -> Option<usize> {
        (0..self.origins.len()).find(|&k| self.pivot(k) == T::default())
    }

    /// The product of the pivots, without intermediate overflow.
    pub(super) fn det(&self) -> T {
        let sign = if self.odd { -T::ONE } else { T::ONE };
        let times = |(product, power): (T, i32), k: usize| {
            let (pivot, of_pivot) = moderate(self.pivot(k));
            let (product, of_product) = moderate(product * pivot);
            (product, power + of_pivot + of_product)
        };
        let (mut det, power) = (0..self.origins.len()).fold((sign, 0), times);
        let (unit, back) = (T::Real::EPSILON, T::Real::ONE / T::Real::EPSILON);
        for _ in 0..power.unsigned_abs() {
            det = det.scale(if power > 0 { back } else { unit });
        }
        det
    }

    /// Errors: [`Failure::Singular`], if a pivot is zero.
    fn check(&self) -> Result<(), Failure> {
        self.zero_pivot().map_or(Ok(()), |k| Err(Failure::Singular(k)))
    }

    /// Solves `A X = B`; infinite or NaN for a singular matrix.
    fn divide(&self, b: &[T], columns: usize, team: &dyn Team) -> Vec<T> {
        let n = self.origins.len();
        let row = |i: usize| i * columns..(i + 1) * columns;
        let factor =
            |upper: bool| Triangle { a: &self.factors, n, upper, unit: upper == self.by_columns };
        if self.by_columns {
            let mut y = b.to_vec();
            T::substitute(factor(false), &mut y, columns, team);
            T::substitute(factor(true), &mut y, columns, team);
            let mut x = vec![T::default(); n * columns];
            for (j, &to) in self.origins.iter().enumerate() {
                x[row(to)].copy_from_slice(&y[row(j)]);
            }
            return x;
        }
        let mut x: Vec<T> = self.origins.iter().flat_map(|&i| &b[row(i)]).copied().collect();
        substitute(factor(false), &mut x, columns);
        substitute(factor(true), &mut x, columns);
        x
    }

    /// The inverse; infinite or NaN for a singular matrix.
    pub(super) fn invert(&self, team: &dyn Team) -> Vec<T> {
        let n = self.origins.len();
        match self.by_columns {
            true => T::inverse(&self.factors, &self.origins, team),
            false => self.divide(&eye(n, n), n, team),
        }
    }
}

/// Substitution with one triangle of a row-major matrix, in place.
fn substitute<T: Scalar>(triangle: Triangle<'_, T>, x: &mut [T], columns: usize) {
    let Triangle { a, n, upper, unit } = triangle;
    if columns == 0 {
        return;
    }
    for step in 0..n {
        let i = if upper { n - 1 - step } else { step };
        let others = if upper { i + 1..n } else { 0..i };
        for j in others {
            let (to, from) = match i < j {
                true => super::two_rows(x, columns, i, j),
                false => {
                    let (from, to) = super::two_rows(x, columns, j, i);
                    (to, from)
                }
            };
            subtract(to, a[i * n + j], from);
        }
        if !unit {
            let pivot = a[i * n + i];
            x[i * columns..(i + 1) * columns].iter_mut().for_each(|x| *x = x.over(pivot));
        }
    }
}

/// LU factorisation with partial pivoting: both factors in one matrix, without the unit diagonal of
/// the lower factor, and the source row of each row as real numbers. A singular matrix has a zero
/// on the diagonal.
pub fn lu<T: Scalar>(a: &[T], n: usize, team: &dyn Team) -> (Vec<T>, Vec<T::Real>) {
    let Lu { factors, origins, .. } = Lu::by_rows(a, n, team);
    (factors, origins.into_iter().map(|i| T::Real::of(i as f64)).collect())
}

/// Solves `A X = B` for the `columns` columns of `b`.
///
/// Errors: [`Failure::Singular`].
pub fn solve<T: Scalar>(
    a: &[T],
    b: &[T],
    n: usize,
    columns: usize,
    team: &dyn Team,
) -> Result<Vec<T>, Failure> {
    let lu = Lu::new(a, n, team);
    lu.check()?;
    Ok(lu.divide(b, columns, team))
}

/// The inverse. With `any`, the inverse of a singular matrix is infinite or NaN instead of an
/// error.
///
/// Errors: [`Failure::Singular`].
pub fn inv<T: Scalar>(a: &[T], n: usize, any: bool, team: &dyn Team) -> Result<Vec<T>, Failure> {
    let lu = Lu::new(a, n, team);
    if !any {
        lu.check()?;
    }
    Ok(lu.invert(team))
}

/// Solves `T X = B` for one triangle `T`.
///
/// Errors: [`Failure::Singular`].
pub fn solve_triangular<T: Scalar>(
    triangle: Triangle<'_, T>,
    b: &[T],
    columns: usize,
    team: &dyn Team,
) -> Result<Vec<T>, Failure> {
    let Triangle { a, n, unit, .. } = triangle;
    let zero = (0..n).find(|&i| !unit && a[i * n + i] == T::default());
    if let Some(i) = zero {
        return Err(Failure::Singular(i));
    }
    let mut x = b.to_vec();
    match columns > 0 && is_large(a, n, from::LU) {
        true => T::substitute(triangle, &mut x, columns, team),
        false => substitute(triangle, &mut x, columns),
    }
    Ok(x)
}

/// The determinant.
pub fn det<T: Scalar>(a: &[T], n: usize, team: &dyn Team) -> T {
    Lu::new(a, n, team).det()
}

/// The sign (or phase) of the determinant and the logarithm of its absolute value; zero and minus
/// infinity for a singular matrix.
pub fn slogdet<T: Scalar>(a: &[T], n: usize, team: &dyn Team) -> (T, T::Real) {
    let lu = Lu::new(a, n, team);
    let mut sign = if lu.odd { -T::ONE } else { T::ONE };
    let mut log = T::Real::default();
    for k in 0..n {
        let (pivot, size) = (lu.pivot(k), lu.pivot(k).modulus());
        if size == T::Real::default() {
            return (T::default(), size.ln());
        }
        sign = sign * pivot.over(T::real(size));
        log = log + size.ln();
    }
    (sign, log)
}

/// `A = Q R`, with orthonormal columns in `q` and an upper triangular `r`.
pub struct Qr<T> {
    /// The factor `Q`, `m` by `k`; empty unless requested.
    pub q: Vec<T>,
    /// The factor `R`, `k` by `n`.
    pub r: Vec<T>,
}

/// QR factorisation of a matrix of `m` by `n`; `k` is `m` if `complete`, otherwise the smaller of
/// `m` and `n`.
pub fn qr<T: Scalar>(
    a: &[T],
    [m, n]: [usize; 2],
    complete: bool,
    with_q: bool,
    team: &dyn Team,
) -> Qr<T> {
    let (a, power) = scaled(a);
    let mut out = match is_large(&a, m.min(n), from::QR) {
        true => T::qr(&a, [m, n], complete, with_q, team),
        false => reflected(a.into_owned(), [m, n], complete, with_q),
    };
    restore(&mut out.r, power);
    out
}

/// As [`qr`], by unblocked Householder reflections.
fn reflected<T: Scalar>(mut r: Vec<T>, [m, n]: [usize; 2], complete: bool, with_q: bool) -> Qr<T> {
    let k = if complete { m } else { m.min(n) };
    let mut reflectors = Vec::with_capacity(m.min(n));
    for j in 0..m.min(n) {
        let column = (j..m).map(|i| r[i * n + j]).collect();
        let (reflector, beta) = Reflector::new(column);
        reflector.left(reflector.tau.conj(), &mut r, n, j, j);
        r[j * n + j] = T::real(beta);
        (j + 1..m).for_each(|i| r[i * n + j] = T::default());
        reflectors.push(reflector);
    }
    r.truncate(k * n);
    let q = if with_q { product(&reflectors, m, k, 0) } else { Vec::new() };
    Qr { q, r }
}

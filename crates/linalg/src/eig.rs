//! Eigenvalues and eigenvectors of general square matrices. The matrix is balanced, reduced to
//! Hessenberg form by Householder reflections, and reduced to Schur form by the shifted QR
//! algorithm (for real matrices with 2x2 blocks for pairs of conjugate eigenvalues). Back
//! substitution gives the eigenvectors.
//!
//! Source: Golub and Van Loan, Matrix Computations, 7.4 to 7.6; EISPACK's balanc and hqr2; the
//! exceptional shifts of LAPACK's dlahqr.

use super::balance::Balance;
use super::{
    Failure, MAX_STEPS, MIN_POLLED, Real, Reflector, Scalar, Team, largest, norm, product, restore,
    scaled,
};

/// Eigenvalues, and eigenvectors as columns of length one, if requested.
#[derive(Debug, PartialEq)]
pub struct Eig<T: Scalar> {
    /// The eigenvalues, in no particular order. Conjugate eigenvalues of real matrices are exactly
    /// conjugate and adjacent; the eigenvalue with positive imaginary part is first.
    pub values: Vec<T::Complex>,
    /// The eigenvectors as columns. The largest element of a complex eigenvector is real and
    /// positive.
    pub vectors: Vec<T::Complex>,
}

/// Decomposes a matrix of `n` by `n`; without vectors, `vectors` is empty.
///
/// Errors: [`Failure::NotFinite`], [`Failure::NotConverged`].
pub fn eig<T: Scalar>(
    a: &[T],
    n: usize,
    with_vectors: bool,
    team: &dyn Team,
) -> Result<Eig<T>, Failure> {
    if !largest(a).is_finite() {
        return Err(Failure::NotFinite);
    }
    let (h, power) = scaled(a);
    let mut h = h.into_owned();
    let balance = Balance::new(&mut h, n);
    let stopped = || n >= MIN_POLLED && team.stopped();
    let mut vectors =
        vec![<T::Complex as Default>::default(); if with_vectors { n * n } else { 0 }];
    let mut z = hessenberg(&mut h, n, with_vectors, &stopped);
    let found = match z.as_mut() {
        Some(z) => triangular(&mut h, z, n, &stopped)?,
        None => None,
    };
    let (Some(mut values), Some(z)) = (found, z) else {
        return Ok(Eig { values: vec![T::Complex::default(); n], vectors });
    };
    if with_vectors {
        let mut pair: Option<Vec<T::Complex>> = None;
        for j in 0..n {
            if stopped() {
                break;
            }
            let vector = match pair.take() {
                Some(first) => first.iter().map(|x| x.conj()).collect(),
                None => {
                    let x = backwards(&h, n, j, values[j]);
                    let mut vector = combined(&z, n, &x);
                    balance.undo(&mut vector);
                    normalize::<T>(&mut vector, values[j]);
                    if x.len() == j + 2 {
                        pair = Some(vector.clone());
                    }
                    vector
                }
            };
            vector.iter().enumerate().for_each(|(i, &x)| vectors[i * n + j] = x);
        }
    }
    restore(&mut values, power);
    Ok(Eig { values, vectors })
}

/// Reduces a matrix to Hessenberg form; returns the product of the reflections, or `None` once
/// `stopped`.
fn hessenberg<T: Scalar>(
    h: &mut [T],
    n: usize,
    with_vectors: bool,
    stopped: &dyn Fn() -> bool,
) -> Option<Vec<T>> {
    let mut reflectors = Vec::with_capacity(n);
    for k in 0..n.saturating_sub(1) {
        if stopped() {
            return None;
        }
        let column = (k + 1..n).map(|i| h[i * n + k]).collect();
        let (reflector, beta) = Reflector::new(column);
        reflector.left(reflector.tau.conj(), h, n, k + 1, k);
        reflector.right(h, n, k + 1, 0);
        (k + 1..n).for_each(|i| h[i * n + k] = T::default());
        h[(k + 1) * n + k] = T::real(beta);
        reflectors.push(reflector);
    }
    Some(if with_vectors { product(&reflectors, n, n, 1) } else { Vec::new() })
}

/// Reduces a Hessenberg matrix to Schur form; applies the transformations to the columns of `z`,
/// unless it is empty. Returns the eigenvalues, or `None` once `stopped`.
fn triangular<T: Scalar>(
    h: &mut [T],
    z: &mut [T],
    n: usize,
    stopped: &dyn Fn() -> bool,
) -> Result<Option<Vec<T::Complex>>, Failure> {
    let mut values = vec![T::Complex::default(); n];
    let (mut end, mut step) = (n, 0);
    let whole = norm(h);
    while end > 0 {
        if stopped() {
            return Ok(None);
        }
        let (first, last) = (block(h, n, end - 1, whole), end - 1);
        if first == last {
            values[last] = h[last * n + last].complex();
        } else if first + 1 == last && !T::COMPLEX {
            (values[first], values[last]) = T::settle(h, z, n, first);
        } else {
            if step == MAX_STEPS {
                return Err(Failure::NotConverged);
            }
            // Use an exceptional shift every tenth step, which breaks cycles.
            let start = T::start(h, n, first, last, step % 10 == 9);
            chase(h, z, n, first, last, start);
            step += 1;
            continue;
        }
        (end, step) = (first, 0);
    }
    Ok(Some(values))
}

/// The first row of the active block that ends with row `last`: sets the first negligible
/// subdiagonal element to zero.
fn block<T: Scalar>(h: &mut [T], n: usize, last: usize, whole: T::Real) -> usize {
    for l in (1..=last).rev() {
        let mut size = h[(l - 1) * n + l - 1].modulus() + h[l * n + l].modulus();
        if size == T::Real::default() {
            size = whole;
        }
        if h[l * n + l - 1].modulus() <= T::Real::EPSILON * size {
            h[l * n + l - 1] = T::default();
            return l;
        }
    }
    0
}

/// One implicit QR step (bulge chasing) on the rows `first..=last`. `start` is its first column,
/// whose length is the number of rows of each reflection.
fn chase<T: Scalar>(h: &mut [T], z: &mut [T], n: usize, first: usize, last: usize, start: Vec<T>) {
    let width = start.len();
    for k in first..last {
        let rows = k..(k + width).min(last + 1);
        let column = match k == first {
            true => start.clone(),
            false => rows.clone().map(|i| h[i * n + k - 1]).collect(),
        };
        let (reflector, beta) = Reflector::new(column);
        reflector.left(reflector.tau.conj(), h, n, k, k);
        if k > first {
            rows.for_each(|i| h[i * n + k - 1] = T::default());
            h[k * n + k - 1] = T::real(beta);
        }
        // Rows further down are zero in these columns.
        let reached = (k + width + 1).min(n);
        reflector.right(&mut h[..reached * n], n, k, 0);
        reflector.right(z, n, k, 0);
    }
}

/// The first column of Francis's double-shift step: the first column of `(H - x)(H - y)`, divided
/// by the first subdiagonal element, where `x` and `y` are the eigenvalues of the trailing 2x2
/// block of the matrix `H`.
pub(super) fn double_start<R: Real>(
    h: &[R],
    n: usize,
    first: usize,
    last: usize,
    exceptional: bool,
) -> Vec<R> {
    let at = |i: usize, j: usize| h[i * n + j];
    let (mut x, mut y) = (at(last, last), at(last - 1, last - 1));
    let mut w = at(last, last - 1) * at(last - 1, last);
    if exceptional {
        let s = at(last, last - 1).modulus() + at(last - 1, last - 2).modulus();
        x = x + s * R::of(0.75);
        y = x;
        w = s * s * R::of(-0.4375);
    }
    let (corner, below) = (at(first, first), at(first + 1, first));
    let (r, s) = (x - corner, y - corner);
    vec![
        (r * s - w) / below + at(first, first + 1),
        at(first + 1, first + 1) - corner - r - s,
        at(first + 2, first + 1),
    ]
}

/// The first column of a single-shift step with Wilkinson's shift: the first column of the matrix
/// minus the eigenvalue of its trailing 2x2 block that is closer to the last element.
pub(super) fn single_start<T: Scalar<Complex = T>>(
    h: &[T],
    n: usize,
    first: usize,
    last: usize,
    exceptional: bool,
) -> Vec<T> {
    let at = |i: usize, j: usize| h[i * n + j];
    let d = at(last, last);
    let shift = if exceptional {
        d + T::real(at(last, last - 1).modulus() * T::Real::of(0.75))
    } else {
        let half = (at(last - 1, last - 1) - d).scale(T::Real::of(0.5));
        let product = at(last - 1, last) * at(last, last - 1);
        let root = root(half * half + product);
        let (plus, minus) = (half + root, half - root);
        let larger = if plus.modulus() >= minus.modulus() { plus } else { minus };
        if larger == T::default() { d } else { d - product.over(larger) }
    };
    vec![at(first, first) - shift, at(first + 1, first)]
}

/// The principal square root.
fn root<T: Scalar<Complex = T>>(z: T) -> T {
    let (x, y, half) = (z.re(), z.im(), T::Real::of(0.5));
    let larger = ((x.modulus() + z.modulus()) * half).sqrt();
    if larger == T::Real::default() {
        return T::default();
    }
    let other = y * half / larger;
    match x < T::Real::default() {
        true => other.modulus().with_imag(larger.with_sign(y)),
        false => larger.with_imag(other),
    }
}

/// The eigenvalues of an isolated 2x2 block, which is made triangular if they are real.
pub(super) fn settle_pair<R: Real>(
    h: &mut [R],
    z: &mut [R],
    n: usize,
    i: usize,
) -> (R::Complex, R::Complex) {
    let (diagonal, below) = (i * n + i, (i + 1) * n + i);
    let (a, b, c, d) = (h[diagonal], h[diagonal + 1], h[below], h[below + 1]);
    let half = (a - d) * R::of(0.5);
    let (w, zero) = (b * c, R::default());
    let square = half * half + w;
    if square < zero {
        let root = (-square).sqrt();
        return ((d + half).with_imag(root), (d + half).with_imag(-root));
    }
    let reach = half + square.sqrt().with_sign(half);
    let first = d + reach;
    let second = if reach == zero { first } else { d - w / reach };
    let length = c.hypot(reach);
    let (cos, sin) = (reach / length, c / length);
    super::rotate(h, n, i, i + 1, cos, sin);
    for row in h.chunks_exact_mut(n).take(i + 2).chain(z.chunks_exact_mut(n)) {
        let (x, y) = (row[i], row[i + 1]);
        (row[i], row[i + 1]) = (x * cos + y * sin, y * cos - x * sin);
    }
    (h[diagonal], h[below], h[below + 1]) = (first, zero, second);
    (first.complex(), second.complex())
}

/// The eigenvector of a quasi-triangular matrix for its `j`-th eigenvalue, by back substitution, up
/// to its last nonzero element: element `j`, or `j + 1` in a 2x2 block.
fn backwards<T: Scalar>(h: &[T], n: usize, j: usize, value: T::Complex) -> Vec<T::Complex> {
    let at = |i: usize, k: usize| h[i * n + k].complex();
    let one = <T::Complex as Scalar>::ONE;
    let blocked = |i: usize| i + 1 < n && h[(i + 1) * n + i] != T::default();
    let mut x = vec![T::Complex::default(); if blocked(j) { j + 2 } else { j + 1 }];
    x[j] = one;
    if blocked(j) {
        let (b, c) = (at(j, j + 1), at(j + 1, j));
        match c.modulus() >= b.modulus() {
            true => (x[j], x[j + 1]) = ((value - at(j + 1, j + 1)).over(c), one),
            false => x[j + 1] = (value - at(j, j)).over(b),
        }
    }
    let least = least(h, value);
    let mut i = j;
    while i > 0 {
        i -= 1;
        let two = i > 0 && blocked(i - 1);
        let rest = |i: usize, from: usize| {
            (from..x.len()).fold(T::Complex::default(), |sum, k| sum - at(i, k) * x[k])
        };
        if two {
            let mut above = (at(i - 1, i - 1) - value, at(i - 1, i), rest(i - 1, i + 1));
            let mut below = (at(i, i - 1), at(i, i) - value, rest(i, i + 1));
            if below.0.modulus() > above.0.modulus() {
                std::mem::swap(&mut above, &mut below);
            }
            let factor = below.0.over(above.0);
            let pivot = away(below.1 - factor * above.1, least);
            x[i] = (below.2 - factor * above.2).over(pivot);
            x[i - 1] = (above.2 - above.1 * x[i]).over(above.0);
            i -= 1;
        } else {
            x[i] = rest(i, i + 1).over(away(at(i, i) - value, least));
        }
        // Rescale to prevent overflow, since only the direction matters.
        let size = norm(&x[i..]);
        if size > T::Real::ONE / T::Real::EPSILON {
            x.iter_mut().for_each(|x| *x = x.scale(T::Real::ONE / size));
        }
    }
    x
}

/// The smallest difference from an eigenvalue that back substitution divides by.
fn least<T: Scalar>(h: &[T], value: T::Complex) -> T::Real {
    let (epsilon, whole) = (T::Real::EPSILON, norm(h));
    let whole = if whole == T::Real::default() { T::Real::ONE } else { whole };
    let (near, tiny) = (epsilon * value.modulus(), epsilon * epsilon * epsilon * whole);
    if near > tiny { near } else { tiny }
}

/// `x`, or `least` if the modulus of `x` is smaller.
fn away<C: Scalar>(x: C, least: C::Real) -> C {
    if x.modulus() < least { C::real(least) } else { x }
}

/// The product of `z` and the vector `x`.
fn combined<T: Scalar>(z: &[T], n: usize, x: &[T::Complex]) -> Vec<T::Complex> {
    let sum = |row: &[T]| {
        row.iter().zip(x).fold(T::Complex::default(), |sum, (z, &x)| sum + z.complex() * x)
    };
    z.chunks_exact(n).map(sum).collect()
}

/// Normalises a vector to length one and a complex vector's largest element to a positive real. A
/// real vector keeps its sign.
fn normalize<T: Scalar>(x: &mut [T::Complex], value: T::Complex) {
    let mut length = T::Complex::real(norm(x));
    if T::COMPLEX || value.im() != T::Real::default() {
        let mut largest = T::Complex::default();
        for &x in x.iter() {
            if x.modulus() > largest.modulus() {
                largest = x;
            }
        }
        length = length * largest.scale(T::Real::ONE / largest.modulus());
    }
    x.iter_mut().for_each(|x| *x = x.over(length));
}

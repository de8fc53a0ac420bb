//! Eigenvalues and eigenvectors of Hermitian matrices: reduction to a real tridiagonal matrix by
//! Householder reflections, then the implicit QL algorithm. Source: Golub and Van Loan, Matrix
//! Computations, 8.3; EISPACK's imtql2.

use super::{
    Failure, MAX_STEPS, Real, Reflector, Scalar, Team, adjoint, dot, from, is_large, product,
    restore, rotate, scaled, subtract, transpose,
};

/// Eigenvalues and eigenvectors.
type Spectrum<T> = (Vec<<T as Scalar>::Real>, Vec<T>);

/// Eigenvalues in ascending order, and eigenvectors as columns if requested (otherwise empty). Only
/// one triangle of `a` is read.
///
/// Errors: [`Failure::NotConverged`].
pub fn eigh<T: Scalar>(
    a: &[T],
    n: usize,
    upper: bool,
    with_vectors: bool,
    team: &dyn Team,
) -> Result<Spectrum<T>, Failure> {
    let whole = hermitian(a, n, upper);
    let (a, power) = scaled(&whole);
    let (mut values, vectors) = match is_large(&a, n, from::EIGH) {
        true => T::eigh(&a, n, with_vectors, team)?,
        false => small(a.into_owned(), n, with_vectors)?,
    };
    restore(&mut values, power);
    Ok((values, vectors))
}

/// As [`eigh`], for a matrix with both triangles.
fn small<T: Scalar>(mut a: Vec<T>, n: usize, with_vectors: bool) -> Result<Spectrum<T>, Failure> {
    let mut reflectors = Vec::with_capacity(n);
    for k in 0..n.saturating_sub(1) {
        let column = (k + 1..n).map(|i| a[i * n + k]).collect();
        let (reflector, beta) = Reflector::new(column);
        a[(k + 1) * n + k] = T::real(beta);
        both_sides(&reflector, &mut a[(k + 1) * n..], n, k + 1);
        reflectors.push(reflector);
    }
    let mut values: Vec<T::Real> = (0..n).map(|i| a[i * n + i].re()).collect();
    let mut beside: Vec<T::Real> = (1..n).map(|i| a[i * n + i - 1].re()).collect();
    beside.push(T::Real::default());
    // Store vectors as rows, so that rotations access contiguous memory.
    let mut vectors = match with_vectors {
        true => transpose(&product(&reflectors, n, n, 1), n, n),
        false => Vec::new(),
    };
    ql(&mut values, &mut beside, &mut vectors)?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| values[i].partial_cmp(&values[j]).unwrap_or(std::cmp::Ordering::Equal));
    let sorted = order.iter().map(|&i| values[i]).collect();
    if !with_vectors {
        return Ok((sorted, Vec::new()));
    }
    let column = |at: usize| vectors[order[at % n] * n + at / n];
    Ok((sorted, (0..n * n).map(column).collect()))
}

/// `H^H A H` for the Hermitian matrix in the columns from `first` on of rows of `n` elements, as
/// the rank-2 update `A - w v^H - v w^H`.
fn both_sides<T: Scalar>(reflector: &Reflector<T>, a: &mut [T], n: usize, first: usize) {
    let (v, tau) = (&reflector.v, reflector.tau);
    if tau == T::default() {
        return;
    }
    let mut w: Vec<T> = a.chunks_exact(n).map(|row| tau * dot(&row[first..], v)).collect();
    let over_v: Vec<T> = v.iter().map(|v| v.conj()).collect();
    let half = (tau.conj() * dot(&over_v, &w)).re() * T::Real::of(0.5);
    subtract(&mut w, T::real(half), v);
    let over_w: Vec<T> = w.iter().map(|w| w.conj()).collect();
    for ((row, &w), &v) in a.chunks_exact_mut(n).zip(&w).zip(v) {
        for ((a, &over_v), &over_w) in row[first..].iter_mut().zip(&over_v).zip(&over_w) {
            *a = *a - w * over_v - v * over_w;
        }
    }
}

/// Completes a Hermitian matrix from one of its triangles.
fn hermitian<T: Scalar>(a: &[T], n: usize, upper: bool) -> Vec<T> {
    let (mut out, other) = (a.to_vec(), adjoint(a, n, n));
    for i in 0..n {
        let rest = if upper { i * n..i * n + i } else { i * n + i + 1..(i + 1) * n };
        out[rest.clone()].copy_from_slice(&other[rest]);
        out[i * n + i] = T::real(out[i * n + i].re());
    }
    out
}

/// Diagonalises a real tridiagonal matrix; `e[i]` couples `d[i]` and `d[i + 1]`. Applies the
/// rotations to the rows of `z`, unless it is empty.
fn ql<T: Scalar>(d: &mut [T::Real], e: &mut [T::Real], z: &mut [T]) -> Result<(), Failure> {
    let n = d.len();
    let columns = if z.is_empty() { 0 } else { n };
    let (zero, one) = (T::Real::default(), T::Real::ONE);
    for l in 0..n {
        for step in 0.. {
            let small = |i: usize| {
                let scale = d[i].modulus() + d[i + 1].modulus();
                e[i].modulus() <= T::Real::EPSILON * scale
            };
            let m = (l..n - 1).find(|&i| small(i)).unwrap_or(n - 1);
            if m == l {
                break;
            }
            if step == MAX_STEPS {
                return Err(Failure::NotConverged);
            }
            let mut g = (d[l + 1] - d[l]) / (e[l] + e[l]);
            let r = g.hypot(one);
            g = d[m] - d[l] + e[l] / (g + r.with_sign(g));
            let (mut s, mut c, mut p) = (one, one, zero);
            let mut split = false;
            for i in (l..m).rev() {
                let (f, b) = (s * e[i], c * e[i]);
                let r = f.hypot(g);
                e[i + 1] = r;
                if r == zero {
                    d[i + 1] = d[i + 1] - p;
                    e[m] = zero;
                    split = true;
                    break;
                }
                (s, c) = (f / r, g / r);
                g = d[i + 1] - p;
                let r = (d[i] - g) * s + (c + c) * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
                rotate(z, columns, i, i + 1, c, -s);
            }
            if !split {
                d[l] = d[l] - p;
                e[l] = g;
                e[m] = zero;
            }
        }
    }
    Ok(())
}

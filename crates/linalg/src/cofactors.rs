//! Cofactors, which are the derivatives of determinants, and the derivatives of cofactors. Regular
//! matrices use the inverse; all other matrices use the singular value decomposition, without
//! division by singular values.

use super::factor::{Lu, det};
use super::{Failure, Real, Scalar, Svd, Team, norm, subtract, svd, transpose};

/// The transposed inverse and the determinant of a sufficiently regular matrix. With condition
/// number `c`, their product loses `c` times the rounding error, since each has its own error.
fn regular<T: Scalar>(a: &[T], n: usize, team: &dyn Team) -> Option<(Vec<T>, T)> {
    let lu = Lu::new(a, n, team);
    if lu.zero_pivot().is_some() {
        return None;
    }
    let inverse = lu.invert(team);
    let size = T::Real::of(n as f64);
    let bound = size * (T::Real::ONE / T::Real::EPSILON).sqrt() * T::Real::of(1.0 / 16.0);
    // The comparison is false for NaN.
    let fine = norm(a) * norm(&inverse) <= bound;
    let det = lu.det();
    let taken = fine && det.modulus().is_finite() && det != T::default();
    taken.then(|| (transpose(&inverse, n, n), det))
}

/// Singular values and vectors, and the product of the determinants of both vector matrices.
fn turned<T: Scalar>(a: &[T], n: usize, team: &dyn Team) -> Result<(Svd<T>, T), Failure> {
    let parts = svd(a, n, n, false, true, team)?;
    let turn = det(&parts.u, n, team) * det(&parts.vh, n, team);
    Ok((parts, turn))
}

/// The product of all singular values except those with an index in `but`.
fn others<R: Real>(s: &[R], but: [usize; 2]) -> R {
    let rest = s.iter().enumerate().filter(|(i, _)| !but.contains(i));
    rest.fold(R::ONE, |product, (_, &s)| product * s)
}

/// NaN for every element, if the singular values did not converge.
fn undefined<T: Scalar>(n: usize) -> Vec<T> {
    vec![T::real(T::Real::of(f64::NAN)); n * n]
}

/// The sum of `core[k][l] conj(u_k) v_l^T` over the left vectors `u_k` and the right ones `v_l`.
fn from_core<T: Scalar>(core: &[T], parts: &Svd<T>, n: usize) -> Vec<T> {
    let right: Vec<T> = parts.vh.iter().map(|v| v.conj()).collect();
    let left: Vec<T> = parts.u.iter().map(|u| u.conj()).collect();
    matmul(&left, &matmul(core, &right, n), n)
}

fn matmul<T: Scalar>(a: &[T], b: &[T], n: usize) -> Vec<T> {
    let mut out = vec![T::default(); n * n];
    for (i, to) in out.chunks_exact_mut(n.max(1)).enumerate() {
        for k in 0..n {
            subtract(to, -a[i * n + k], &b[k * n..(k + 1) * n]);
        }
    }
    out
}

/// The cofactor matrix, `det(A) A^-T`.
pub fn cofactors<T: Scalar>(a: &[T], n: usize, team: &dyn Team) -> Vec<T> {
    if let Some((inverse, det)) = regular(a, n, team) {
        return inverse.iter().map(|&x| det * x).collect();
    }
    let Ok((parts, turn)) = turned(a, n, team) else { return undefined(n) };
    let mut core = vec![T::default(); n * n];
    (0..n).for_each(|k| core[k * n + k] = turn.scale(others(&parts.s, [k, k])));
    from_core(&core, &parts, n)
}

/// The gradient of the weighted sum of cofactors. With `X = A^-T` it is
/// `det(A) (sum(w o X) X - X w^T X)`. In the basis of the singular vectors, `B = U^H A V` is
/// diagonal and the weights are `M = U^H w V`. A diagonal element of `B` is a factor of all other
/// diagonal cofactors. An off-diagonal element only affects the cofactor at the mirrored position.
pub fn cofactor_slopes<T: Scalar>(a: &[T], w: &[T], n: usize, team: &dyn Team) -> Vec<T> {
    if let Some((inverse, det)) = regular(a, n, team) {
        let sum = w.iter().zip(&inverse).fold(T::default(), |sum, (&w, &x)| sum + w * x);
        let across = matmul(&inverse, &matmul(&transpose(w, n, n), &inverse, n), n);
        return inverse.iter().zip(&across).map(|(&x, &y)| det * (sum * x - y)).collect();
    }
    let Ok((parts, turn)) = turned(a, n, team) else { return undefined(n) };
    let (left, right) = (super::adjoint(&parts.u, n, n), super::adjoint(&parts.vh, n, n));
    let weights = matmul(&left, &matmul(w, &right, n), n);
    let mut core = vec![T::default(); n * n];
    for i in 0..n {
        for k in (0..n).filter(|&k| k != i) {
            let rest = turn.scale(others(&parts.s, [i, k]));
            core[i * n + i] = core[i * n + i] + rest * weights[k * n + k];
            core[i * n + k] = -(rest * weights[k * n + i]);
        }
    }
    from_core(&core, &parts, n)
}

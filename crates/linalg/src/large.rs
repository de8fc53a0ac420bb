//! Factorisations of large matrices by the `faer` crate, with blocked and divide-and-conquer
//! algorithms. This module converts between its column-major and our row-major matrices.
//!
//! Each `faer` routine runs on one thread. Work that is worth several threads is partitioned here
//! and in `blocked`, by sizes only. The order of every sum depends only on sizes and the processor,
//! so the bits do not depend on the number of threads. `faer` detects the processor's instructions
//! itself, including fused multiply-add. Its bits may therefore differ between processors, and
//! `GIRIH_ISA` has no effect on it.

use crate::team::{Team, apart, stripes};
use crate::{Failure, Qr, Real, Scalar, Svd, blocked, transpose};
use faer::diag::{DiagMut, DiagRef};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor as llt;
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as reflect_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as reflect,
};
use faer::linalg::qr::no_pivoting::factor;
use faer::linalg::svd::{self as singular, ComputeSvdVectors};
use faer::linalg::{evd, triangular_solve as triangular};
use faer::traits::{ComplexField, Conjugate};
use faer::{Auto, Conj, Mat, MatMut, MatRef, Par};
use num_complex::Complex;

/// Matrix size below which divide and conquer stops dividing.
const WHOLE: usize = 64;

/// Real eigenvalues or singular values, and their vectors.
type Spectrum<T> = (Vec<<T as Scalar>::Real>, Vec<T>);

/// The library's routines, compiled in this crate once for each type of number.
pub trait Large: Sized {
    /// LU factorisation in place: a lower factor, and an upper factor with unit diagonal. Returns
    /// the source column of each column, and whether the permutation is odd. The factors are
    /// invalid after a zero pivot, or a pivot without a finite reciprocal.
    fn lu(a: &mut [Self], n: usize, team: &dyn Team) -> (Vec<usize>, bool);
    /// Substitution with one triangle of a matrix, in place; with `unit`, its diagonal is taken as
    /// ones.
    fn substitute(a: Triangle<'_, Self>, x: &mut [Self], columns: usize, team: &dyn Team);
    /// The inverse, from the LU factors and the columns' sources.
    fn inverse(factors: &[Self], columns: &[usize], team: &dyn Team) -> Vec<Self>;
    /// The lower Cholesky factor, or its adjoint with `upper`.
    ///
    /// Errors: the order of a leading minor that is not positive.
    fn cholesky(a: &[Self], n: usize, upper: bool, team: &dyn Team) -> Result<Vec<Self>, usize>;
    /// As [`crate::qr`].
    fn qr(a: &[Self], size: [usize; 2], complete: bool, with_q: bool, team: &dyn Team) -> Qr<Self>;
    /// As [`crate::eigh`], for a matrix with both triangles.
    fn eigh(
        a: &[Self],
        n: usize,
        with_vectors: bool,
        team: &dyn Team,
    ) -> Result<Spectrum<Self>, Failure>
    where
        Self: Scalar;
    /// As [`crate::svd`].
    fn svd(
        a: &[Self],
        m: usize,
        n: usize,
        full: bool,
        with_vectors: bool,
        team: &dyn Team,
    ) -> Result<Svd<Self>, Failure>
    where
        Self: Scalar;
}

/// One triangle of a row-major square matrix.
pub struct Triangle<'a, T> {
    /// The matrix.
    pub a: &'a [T],
    /// Number of rows.
    pub n: usize,
    /// True for the upper triangle, false for the lower triangle.
    pub upper: bool,
    /// True if the diagonal is taken as ones.
    pub unit: bool,
}

macro_rules! large {
    ($($ty:ty),*) => {
        $(impl Large for $ty {
            // A row-major matrix is the transpose in column-major order.
            fn lu(a: &mut [$ty], n: usize, team: &dyn Team) -> (Vec<usize>, bool) {
                blocked::lu(a, n, team)
            }

            fn substitute(a: Triangle<'_, $ty>, x: &mut [$ty], columns: usize, team: &dyn Team) {
                substitute(a, x, columns, team)
            }

            fn inverse(factors: &[$ty], columns: &[usize], team: &dyn Team) -> Vec<$ty> {
                blocked::inverse(factors, columns, team)
            }

            fn cholesky(
                a: &[$ty],
                n: usize,
                upper: bool,
                team: &dyn Team,
            ) -> Result<Vec<$ty>, usize> {
                cholesky(a, n, upper, team)
            }

            fn qr(
                a: &[$ty],
                size: [usize; 2],
                complete: bool,
                with_q: bool,
                team: &dyn Team,
            ) -> Qr<$ty> {
                qr(a, size, complete, with_q, team)
            }

            fn eigh(
                a: &[$ty],
                n: usize,
                with_vectors: bool,
                team: &dyn Team,
            ) -> Result<Spectrum<$ty>, Failure> {
                eigh(a, n, with_vectors, team)
            }

            fn svd(
                a: &[$ty],
                m: usize,
                n: usize,
                full: bool,
                with_vectors: bool,
                team: &dyn Team,
            ) -> Result<Svd<$ty>, Failure> {
                svd(a, m, n, full, with_vectors, team)
            }
        })*
    };
}

large!(f32, f64, Complex<f32>, Complex<f64>);

/// Numbers that both `faer` and this crate's routines accept.
pub(crate) trait Both: Scalar + ComplexField + Conjugate<Canonical = Self> {}

impl<T: Scalar + ComplexField + Conjugate<Canonical = T>> Both for T {}

fn substitute<T: Both>(a: Triangle<'_, T>, x: &mut [T], columns: usize, team: &dyn Team) {
    let Triangle { a, n, upper, unit } = a;
    let a = MatRef::from_row_major_slice(a, n, n);
    let solve = match (upper, unit) {
        (false, false) => triangular::solve_lower_triangular_in_place,
        (false, true) => triangular::solve_unit_lower_triangular_in_place,
        (true, false) => triangular::solve_upper_triangular_in_place,
        (true, true) => triangular::solve_unit_upper_triangular_in_place,
    };
    let x = MatMut::from_row_major_slice_mut(x, n, columns);
    stripes(team, x, n * n / 2, |_, stripe| solve(a, stripe, Par::Seq));
}

fn cholesky<T: Both>(a: &[T], n: usize, upper: bool, team: &dyn Team) -> Result<Vec<T>, usize> {
    // `faer` reads a lower triangle in column-major order, which is the upper triangle in row-major
    // order.
    let mut l = if upper { a.to_vec() } else { transpose(a, n, n) };
    (0..n).for_each(|i| l[i * n + i] = T::real(l[i * n + i].re()));
    let factored = apart(team, cubic_ns(n, n, n, 48), move || {
        let scratch = llt::cholesky_in_place_scratch::<T>(n, Par::Seq, Default::default());
        let mut memory = MemBuffer::new(scratch);
        llt::cholesky_in_place(
            MatMut::from_column_major_slice_mut(&mut l, n, n),
            Default::default(),
            Par::Seq,
            MemStack::new(&mut memory),
            Default::default(),
        )
        .map(|_| l)
        .map_err(|llt::LltError::NonPositivePivot { index }| index + 1)
    });
    let Some(l) = factored else { return Ok(vec![T::default(); n * n]) };
    let mut l = l?;
    (0..n).for_each(|j| l[j * n..j * n + j].fill(T::default()));
    Ok(if upper { l } else { transpose(&l, n, n) })
}

/// The approximate time of a routine of `m n k / per_ns` nanoseconds.
fn cubic_ns(m: usize, n: usize, k: usize, per_ns: usize) -> u64 {
    (m.saturating_mul(n).saturating_mul(k) / per_ns) as u64
}

fn qr<T: Both>(
    a: &[T],
    [m, n]: [usize; 2],
    complete: bool,
    with_q: bool,
    team: &dyn Team,
) -> Qr<T> {
    let least = m.min(n);
    let k = if complete { m } else { least };
    let mut columns = transpose(a, m, n);
    let reflections = blocked::qr(&mut columns, m, n, team);
    let mut q = if with_q { reflections.product(m, k, team) } else { Vec::new() };
    let mut r = transpose(&columns, n, m);
    r.truncate(k * n);
    if T::COMPLEX {
        turn(&mut q, &mut r, m, n, least);
    }
    Qr { q: transpose(&q, if with_q { k } else { 0 }, m), r }
}

/// Makes the diagonal of `r` real, as LAPACK does; `q` is column-major.
fn turn<T: Scalar>(q: &mut [T], r: &mut [T], m: usize, n: usize, least: usize) {
    for i in 0..least {
        let row = &mut r[i * n + i..(i + 1) * n];
        let size = row[0].modulus();
        if size == T::Real::default() {
            continue;
        }
        let diagonal = size.with_sign(row[0].re());
        let phase = row[0].scale(T::Real::ONE / diagonal);
        row.iter_mut().for_each(|x| *x = *x * phase.conj());
        row[0] = T::real(diagonal);
        let column = q.iter_mut().skip(i * m).take(m);
        column.for_each(|x| *x = *x * phase);
    }
}

/// A tridiagonal matrix's eigenvalues and eigenvectors (column-major), and the reflections that
/// reduced the original matrix to it.
struct Reduced<T> {
    values: Vec<T>,
    vectors: Vec<T>,
    reflections: Mat<T>,
    scales: Mat<T>,
}

/// Reduces a Hermitian matrix to a tridiagonal one and diagonalises that.
fn reduced_eigh<T: Both>(
    mut reduced: Mat<T>,
    n: usize,
    with_vectors: bool,
) -> Result<Reduced<T>, Failure> {
    let params = evd::SelfAdjointEvdParams { recursion_threshold: WHOLE, ..Auto::<T>::auto() };
    let wanted = match with_vectors {
        true => evd::ComputeEigenvectors::Yes,
        false => evd::ComputeEigenvectors::No,
    };
    let scratch = evd::self_adjoint_evd_scratch::<T>(n, wanted, Par::Seq, params.into());
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    let mut scales = Mat::<T>::zeros(factor::recommended_block_size::<T>(n, n), n - 1);
    let (band, tridiag) = (reduced.as_mut(), params.tridiag.into());
    evd::tridiag::tridiag_in_place(band, scales.as_mut(), Par::Seq, stack, tridiag);
    let diagonal: Vec<T> = (0..n).map(|i| reduced[(i, i)]).collect();
    let beside: Vec<T> = (1..n).map(|i| reduced[(i, i - 1)]).collect();
    let mut values = vec![T::default(); n];
    let mut vectors = vec![T::default(); if with_vectors { n * n } else { 0 }];
    let view = with_vectors.then(|| MatMut::from_column_major_slice_mut(&mut vectors, n, n));
    evd::tridiagonal_self_adjoint_evd(
        DiagRef::from_slice(&diagonal),
        DiagRef::from_slice(&beside),
        DiagMut::from_slice_mut(&mut values),
        view,
        Par::Seq,
        stack,
        params.into(),
    )
    .map_err(|evd::EvdError::NoConvergence| Failure::NotConverged)?;
    Ok(Reduced { values, vectors, reflections: reduced, scales })
}

fn eigh<T: Both>(
    a: &[T],
    n: usize,
    with_vectors: bool,
    team: &dyn Team,
) -> Result<Spectrum<T>, Failure> {
    let matrix = MatRef::from_row_major_slice(a, n, n).to_owned();
    let found = apart(team, cubic_ns(n, n, n, 4), move || reduced_eigh(matrix, n, with_vectors));
    let Some(found) = found else {
        let vectors = vec![T::default(); if with_vectors { n * n } else { 0 }];
        return Ok((vec![Default::default(); n], vectors));
    };
    let Reduced { values, mut vectors, reflections, scales } = found?;
    let values = values.iter().map(|value| value.re()).collect();
    if !with_vectors {
        return Ok((values, vectors));
    }
    // Transform the tridiagonal matrix's eigenvectors back to those of the original matrix.
    let view = MatMut::from_column_major_slice_mut(&mut vectors, n, n);
    let basis = reflections.get(1.., ..n - 1);
    stripes(team, view, n * n, |_, stripe| {
        let size = reflect_scratch::<T>(n - 1, scales.nrows(), stripe.ncols());
        let mut memory = MemBuffer::new(size);
        let (stripe, stack) = (stripe.get_mut(1.., ..), MemStack::new(&mut memory));
        reflect(basis, scales.as_ref(), Conj::No, stripe, Par::Seq, stack);
    });
    Ok((values, transpose(&vectors, n, n)))
}

fn svd<T: Both>(
    a: &[T],
    m: usize,
    n: usize,
    full: bool,
    with_vectors: bool,
    team: &dyn Team,
) -> Result<Svd<T>, Failure> {
    let least = m.min(n);
    let (left, right) = match (with_vectors, full) {
        (false, _) => (0, 0),
        (true, false) => (least, least),
        (true, true) => (m, n),
    };
    let matrix = a.to_vec();
    let cost_ns = cubic_ns(m, n, least, 2);
    let found = apart(team, cost_ns, move || {
        column_major_svd(&matrix, [m, n], [left, right], full, with_vectors)
    });
    let zeros = |count: usize| vec![T::default(); count];
    let Some(found) = found else {
        let s = vec![Default::default(); least];
        return Ok(Svd { u: zeros(m * left), s, vh: zeros(n * right) });
    };
    let [s, u, mut v] = found?;
    // A column-major matrix is the transpose in row-major order.
    v.iter_mut().for_each(|v| *v = Scalar::conj(*v));
    let s = s.iter().map(|s| s.re()).collect();
    Ok(Svd { u: transpose(&u, left, m), s, vh: v })
}

/// Singular values, and `left` and `right` singular vectors, column-major.
fn column_major_svd<T: Both>(
    a: &[T],
    [m, n]: [usize; 2],
    [left, right]: [usize; 2],
    full: bool,
    with_vectors: bool,
) -> Result<[Vec<T>; 3], Failure> {
    let params = singular::SvdParams { recursion_threshold: WHOLE, ..Auto::<T>::auto() };
    let wanted = match (with_vectors, full) {
        (false, _) => ComputeSvdVectors::No,
        (true, false) => ComputeSvdVectors::Thin,
        (true, true) => ComputeSvdVectors::Full,
    };
    let mut memory =
        MemBuffer::new(singular::svd_scratch::<T>(m, n, wanted, wanted, Par::Seq, params.into()));
    let mut s = vec![T::default(); m.min(n)];
    let (mut u, mut v) = (vec![T::default(); m * left], vec![T::default(); n * right]);
    singular::svd(
        MatRef::from_row_major_slice(a, m, n),
        DiagMut::from_slice_mut(&mut s),
        with_vectors.then(|| MatMut::from_column_major_slice_mut(&mut u, m, left)),
        with_vectors.then(|| MatMut::from_column_major_slice_mut(&mut v, n, right)),
        Par::Seq,
        MemStack::new(&mut memory),
        params.into(),
    )
    .map_err(|singular::SvdError::NoConvergence| Failure::NotConverged)?;
    Ok([s, u, v])
}

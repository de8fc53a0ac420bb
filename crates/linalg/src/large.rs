//! Large matrices: blocked algorithms and divide and conquer, by the `faer` crate. Here is what lies
//! between its matrices by columns and ours by rows.
//!
//! It runs on the calling thread and adds in an order fixed by sizes and processor: the bits are the
//! same however many threads there are. It asks the processor itself for its instructions, fused
//! multiply-adds among them, so that other processors' bits may differ, and `GIRIH_ISA` does not
//! reach it.

use crate::{Failure, Qr, Real, Scalar, Svd, eye, transpose};
use faer::diag::DiagMut;
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::linalg::cholesky::llt::factor as llt;
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as apply,
};
use faer::linalg::lu::partial_pivoting::{factor as plu, inverse as inverted};
use faer::linalg::qr::no_pivoting::factor;
use faer::linalg::svd::{self as singular, ComputeSvdVectors};
use faer::linalg::{evd, triangular_solve as triangular};
use faer::perm::PermRef;
use faer::traits::{ComplexField, Conjugate};
use faer::{Auto, Conj, Mat, MatMut, MatRef, Par};
use num_complex::Complex;

/// Rows from which divide and conquer cuts no further.
const WHOLE: usize = 64;

/// Real eigenvalues or singular values, and vectors.
type Spectrum<T> = (Vec<<T as Scalar>::Real>, Vec<T>);

/// The routines, compiled in this crate once for each kind of number.
pub trait Large: Sized {
    /// Row-pivoted triangular factors by columns, the row each row came from, and whether the number
    /// of exchanges is odd. After a pivot of zero, or one with no finite reciprocal, they are not to
    /// be used.
    fn lu(a: &[Self], n: usize) -> (Vec<Self>, Vec<usize>, bool);
    /// Solves with one triangle of a matrix by rows, or `by_columns`, in place; with `unit`, as if
    /// its diagonal were ones.
    fn substitute(a: Triangle<'_, Self>, x: &mut [Self], columns: usize);
    /// The inverse, from the factors and the rows' origins.
    fn inverse(factors: &[Self], rows: &[usize]) -> Vec<Self>;
    /// The lower triangular factor, or with `upper` its adjoint.
    ///
    /// Errors: the order of a leading minor that is not positive.
    fn cholesky(a: &[Self], n: usize, upper: bool) -> Result<Vec<Self>, usize>;
    /// As [`crate::qr`].
    fn qr(a: &[Self], m: usize, n: usize, complete: bool, with_q: bool) -> Qr<Self>;
    /// As [`crate::eigh`], of a matrix whose triangles are both there.
    fn eigh(a: &[Self], n: usize, with_vectors: bool) -> Result<Spectrum<Self>, Failure>
    where
        Self: Scalar;
    /// As [`crate::svd`].
    fn svd(
        a: &[Self],
        m: usize,
        n: usize,
        full: bool,
        with_vectors: bool,
    ) -> Result<Svd<Self>, Failure>
    where
        Self: Scalar;
}

/// One triangle of a square matrix.
pub struct Triangle<'a, T> {
    /// The matrix.
    pub a: &'a [T],
    /// Its rows.
    pub n: usize,
    /// Column after column, not row after row.
    pub by_columns: bool,
    /// The upper triangle.
    pub upper: bool,
    /// Its diagonal counts as ones.
    pub unit: bool,
}

macro_rules! large {
    ($($ty:ty),*) => {
        $(impl Large for $ty {
            fn lu(a: &[$ty], n: usize) -> (Vec<$ty>, Vec<usize>, bool) {
                lu(a, n)
            }

            fn substitute(a: Triangle<'_, $ty>, x: &mut [$ty], columns: usize) {
                substitute(a, x, columns)
            }

            fn inverse(factors: &[$ty], rows: &[usize]) -> Vec<$ty> {
                inverse(factors, rows)
            }

            fn cholesky(a: &[$ty], n: usize, upper: bool) -> Result<Vec<$ty>, usize> {
                cholesky(a, n, upper)
            }

            fn qr(a: &[$ty], m: usize, n: usize, complete: bool, with_q: bool) -> Qr<$ty> {
                qr(a, m, n, complete, with_q)
            }

            fn eigh(a: &[$ty], n: usize, with_vectors: bool) -> Result<Spectrum<$ty>, Failure> {
                eigh(a, n, with_vectors)
            }

            fn svd(
                a: &[$ty],
                m: usize,
                n: usize,
                full: bool,
                with_vectors: bool,
            ) -> Result<Svd<$ty>, Failure> {
                svd(a, m, n, full, with_vectors)
            }
        })*
    };
}

large!(f32, f64, Complex<f32>, Complex<f64>);

/// What both `faer` and the routines beside take.
trait Both: Scalar + ComplexField + Conjugate<Canonical = Self> {}

impl<T: Scalar + ComplexField + Conjugate<Canonical = T>> Both for T {}

fn lu<T: Both>(a: &[T], n: usize) -> (Vec<T>, Vec<usize>, bool) {
    let mut factors = transpose(a, n, n);
    let (mut rows, mut places) = (vec![0; n], vec![0; n]);
    let mut memory =
        MemBuffer::new(plu::lu_in_place_scratch::<usize, T>(n, n, Par::Seq, Default::default()));
    let (info, _) = plu::lu_in_place(
        MatMut::from_column_major_slice_mut(&mut factors, n, n),
        &mut rows,
        &mut places,
        Par::Seq,
        MemStack::new(&mut memory),
        Default::default(),
    );
    (factors, rows, info.transposition_count % 2 == 1)
}

fn substitute<T: Both>(triangle: Triangle<'_, T>, x: &mut [T], columns: usize) {
    let Triangle { a, n, by_columns, upper, unit } = triangle;
    let a = match by_columns {
        true => MatRef::from_column_major_slice(a, n, n),
        false => MatRef::from_row_major_slice(a, n, n),
    };
    let x = MatMut::from_row_major_slice_mut(x, n, columns);
    match (upper, unit) {
        (false, false) => triangular::solve_lower_triangular_in_place(a, x, Par::Seq),
        (false, true) => triangular::solve_unit_lower_triangular_in_place(a, x, Par::Seq),
        (true, false) => triangular::solve_upper_triangular_in_place(a, x, Par::Seq),
        (true, true) => triangular::solve_unit_upper_triangular_in_place(a, x, Par::Seq),
    }
}

fn inverse<T: Both>(factors: &[T], rows: &[usize]) -> Vec<T> {
    let n = rows.len();
    let mut places = vec![0; n];
    rows.iter().enumerate().for_each(|(place, &row)| places[row] = place);
    let factors = MatRef::from_column_major_slice(factors, n, n);
    let mut out = vec![T::default(); n * n];
    let mut memory = MemBuffer::new(inverted::inverse_scratch::<usize, T>(n, Par::Seq));
    inverted::inverse(
        MatMut::from_column_major_slice_mut(&mut out, n, n),
        factors,
        factors,
        PermRef::new_checked(rows, &places, n),
        Par::Seq,
        MemStack::new(&mut memory),
    );
    transpose(&out, n, n)
}

fn cholesky<T: Both>(a: &[T], n: usize, upper: bool) -> Result<Vec<T>, usize> {
    // Only a lower triangle by columns is read: that of the transpose lies there already.
    let mut l = if upper { a.to_vec() } else { transpose(a, n, n) };
    (0..n).for_each(|i| l[i * n + i] = T::real(l[i * n + i].re()));
    let mut memory =
        MemBuffer::new(llt::cholesky_in_place_scratch::<T>(n, Par::Seq, Default::default()));
    llt::cholesky_in_place(
        MatMut::from_column_major_slice_mut(&mut l, n, n),
        Default::default(),
        Par::Seq,
        MemStack::new(&mut memory),
        Default::default(),
    )
    .map_err(|llt::LltError::NonPositivePivot { index }| index + 1)?;
    (0..n).for_each(|j| l[j * n..j * n + j].fill(T::default()));
    Ok(if upper { l } else { transpose(&l, n, n) })
}

fn qr<T: Both>(a: &[T], m: usize, n: usize, complete: bool, with_q: bool) -> Qr<T> {
    let least = m.min(n);
    let k = if complete { m } else { least };
    let block = factor::recommended_block_size::<T>(m, n).max(16).min(least);
    let mut columns = transpose(a, m, n);
    let mut scales = Mat::<T>::zeros(block, least);
    let mut memory = MemBuffer::new(StackReq::any_of(&[
        factor::qr_in_place_scratch::<T>(m, n, block, Par::Seq, Default::default()),
        apply_scratch::<T>(m, block, k),
    ]));
    let stack = MemStack::new(&mut memory);
    let view = MatMut::from_column_major_slice_mut(&mut columns, m, n);
    factor::qr_in_place(view, scales.as_mut(), Par::Seq, stack, Default::default());
    let mut q = Vec::new();
    if with_q {
        // The identity by columns.
        q = eye(k, m);
        apply(
            MatRef::from_column_major_slice(&columns[..m * least], m, least),
            scales.as_ref(),
            Conj::No,
            MatMut::from_column_major_slice_mut(&mut q, m, k),
            Par::Seq,
            stack,
        );
    }
    let mut r = transpose(&columns, n, m);
    r.truncate(k * n);
    r.chunks_exact_mut(n).enumerate().for_each(|(i, row)| row[..i.min(n)].fill(T::default()));
    if T::COMPLEX {
        turn(&mut q, &mut r, m, n, least);
    }
    Qr { q: transpose(&q, if with_q { k } else { 0 }, m), r }
}

/// Makes the diagonal of `r` real, as LAPACK's is; `q` lies by columns.
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

fn eigh<T: Both>(a: &[T], n: usize, with_vectors: bool) -> Result<Spectrum<T>, Failure> {
    let params = evd::SelfAdjointEvdParams { recursion_threshold: WHOLE, ..Auto::<T>::auto() };
    let wanted = match with_vectors {
        true => evd::ComputeEigenvectors::Yes,
        false => evd::ComputeEigenvectors::No,
    };
    let mut memory =
        MemBuffer::new(evd::self_adjoint_evd_scratch::<T>(n, wanted, Par::Seq, params.into()));
    let mut values = vec![T::default(); n];
    let mut vectors = vec![T::default(); if with_vectors { n * n } else { 0 }];
    let view = with_vectors.then(|| MatMut::from_column_major_slice_mut(&mut vectors, n, n));
    evd::self_adjoint_evd(
        MatRef::from_row_major_slice(a, n, n),
        DiagMut::from_slice_mut(&mut values),
        view,
        Par::Seq,
        MemStack::new(&mut memory),
        params.into(),
    )
    .map_err(|evd::EvdError::NoConvergence| Failure::NotConverged)?;
    let vectors = if with_vectors { transpose(&vectors, n, n) } else { vectors };
    Ok((values.iter().map(|value| value.re()).collect(), vectors))
}

fn svd<T: Both>(
    a: &[T],
    m: usize,
    n: usize,
    full: bool,
    with_vectors: bool,
) -> Result<Svd<T>, Failure> {
    let params = singular::SvdParams { recursion_threshold: WHOLE, ..Auto::<T>::auto() };
    let wanted = match (with_vectors, full) {
        (false, _) => ComputeSvdVectors::No,
        (true, false) => ComputeSvdVectors::Thin,
        (true, true) => ComputeSvdVectors::Full,
    };
    let least = m.min(n);
    let (left, right) = match (with_vectors, full) {
        (false, _) => (0, 0),
        (true, false) => (least, least),
        (true, true) => (m, n),
    };
    let mut memory =
        MemBuffer::new(singular::svd_scratch::<T>(m, n, wanted, wanted, Par::Seq, params.into()));
    let mut s = vec![T::default(); least];
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
    // What lies by columns is the transpose by rows.
    v.iter_mut().for_each(|v| *v = Scalar::conj(*v));
    let s = s.iter().map(|s| s.re()).collect();
    Ok(Svd { u: transpose(&u, left, m), s, vh: v })
}

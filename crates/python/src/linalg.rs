//! Linear algebra for `girih.linalg`, which gives names to the results.

use crate::args::{Axes, IntArg, OperandArg, TensorArg, axes};
use crate::errors::{IntoPy, invalid};
use crate::functions::{Out, out};
use crate::location;
use crate::scalars;
use crate::sequences::Listed;
use crate::tensor::PyTensor;
use girih::linalg::{self, MatrixNorm};
use girih::linalg::{Diagonal, Factors, Triangle};
use pyo3::prelude::*;

type Pair = PyResult<(PyTensor, PyTensor)>;
type Triple = PyResult<(PyTensor, PyTensor, PyTensor)>;

fn pair(result: girih::Result<(girih::Tensor, girih::Tensor)>) -> Pair {
    result.map(|(a, b)| (PyTensor(a), PyTensor(b))).py()
}

fn triangle(upper: bool) -> Triangle {
    if upper { Triangle::Upper } else { Triangle::Lower }
}

fn factors(full: bool) -> Factors {
    if full { Factors::Full } else { Factors::Reduced }
}

/// The Cholesky factor of positive definite matrices.
#[pyfunction]
fn linalg_cholesky(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::flag)] upper: bool,
) -> Out {
    let _called = location::enter!(py);
    out(linalg::cholesky(&x.0, triangle(upper)))
}

/// Determinants.
#[pyfunction]
fn linalg_det(py: Python<'_>, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(linalg::det(&x.0))
}

/// Signs and logarithms of determinants. Returns: tuple[Tensor, Tensor].
#[pyfunction]
fn linalg_slogdet(py: Python<'_>, x: TensorArg) -> Pair {
    let _called = location::enter!(py);
    pair(linalg::slogdet(&x.0))
}

/// Inverses.
#[pyfunction]
fn linalg_inv(py: Python<'_>, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(linalg::inv(&x.0))
}

/// Solutions of linear systems.
#[pyfunction]
fn linalg_solve(py: Python<'_>, x1: TensorArg, x2: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(linalg::solve(&x1.0, &x2.0))
}

/// Solutions of triangular systems.
#[pyfunction]
fn linalg_solve_triangular(
    py: Python<'_>,
    x1: TensorArg,
    x2: TensorArg,
    #[pyo3(from_py_with = scalars::flag)] lower: bool,
    #[pyo3(from_py_with = scalars::flag)] unit_diagonal: bool,
) -> Out {
    let _called = location::enter!(py);
    let diagonal = if unit_diagonal { Diagonal::Unit } else { Diagonal::Stored };
    out(linalg::solve_triangular(&x1.0, &x2.0, triangle(!lower), diagonal))
}

/// Orthonormal columns and a triangular matrix. Returns: tuple[Tensor, Tensor].
#[pyfunction]
fn linalg_qr(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::flag)] complete: bool,
) -> Pair {
    let _called = location::enter!(py);
    pair(linalg::qr(&x.0, factors(complete)))
}

/// Both triangular factors in one matrix, and the order of the rows.
/// Returns: tuple[Tensor, Tensor].
#[pyfunction]
fn linalg_lu_factor(py: Python<'_>, x: TensorArg) -> Pair {
    let _called = location::enter!(py);
    pair(linalg::lu_factor(&x.0))
}

/// Solutions of linear systems, from triangular factors.
#[pyfunction]
fn linalg_lu_solve(py: Python<'_>, x1: TensorArg, x2: TensorArg, b: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(linalg::lu_solve(&x1.0, &x2.0, &b.0))
}

/// A permutation and triangular factors. Returns: tuple[Tensor, Tensor, Tensor].
#[pyfunction]
fn linalg_lu(py: Python<'_>, x: TensorArg) -> Triple {
    let _called = location::enter!(py);
    linalg::lu(&x.0).map(|(p, l, u)| (PyTensor(p), PyTensor(l), PyTensor(u))).py()
}

/// Exponentials of matrices.
#[pyfunction]
fn linalg_expm(py: Python<'_>, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(linalg::expm(&x.0))
}

/// Condition numbers.
#[pyfunction]
#[pyo3(signature = (x, ord=None))]
fn linalg_cond(py: Python<'_>, x: TensorArg, ord: Option<&Bound<'_, PyAny>>) -> Out {
    let _called = location::enter!(py);
    out(linalg::cond(&x.0, ord.map(matrix_norm_of).transpose()?))
}

/// Products of many matrices.
#[pyfunction]
fn linalg_multi_dot(py: Python<'_>, tensors: Listed<TensorArg>) -> Out {
    let _called = location::enter!(py);
    out(linalg::multi_dot(&tensors.iter().map(|t| &t.0).collect::<Vec<_>>()))
}

/// Eigenvalues and eigenvectors of symmetric matrices. Returns: tuple[Tensor, Tensor].
#[pyfunction]
fn linalg_eigh(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::flag)] upper: bool,
) -> Pair {
    let _called = location::enter!(py);
    pair(linalg::eigh(&x.0, triangle(upper)))
}

/// Eigenvalues of symmetric matrices.
#[pyfunction]
fn linalg_eigvalsh(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::flag)] upper: bool,
) -> Out {
    let _called = location::enter!(py);
    out(linalg::eigvalsh(&x.0, triangle(upper)))
}

/// Eigenvalues and eigenvectors. Returns: tuple[Tensor, Tensor].
#[pyfunction]
fn linalg_eig(py: Python<'_>, x: TensorArg) -> Pair {
    let _called = location::enter!(py);
    pair(linalg::eig(&x.0))
}

/// Eigenvalues.
#[pyfunction]
fn linalg_eigvals(py: Python<'_>, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(linalg::eigvals(&x.0))
}

/// Singular vectors and values. Returns: tuple[Tensor, Tensor, Tensor].
#[pyfunction]
fn linalg_svd(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::flag)] full_matrices: bool,
) -> Triple {
    let _called = location::enter!(py);
    linalg::svd(&x.0, factors(full_matrices))
        .map(|(u, s, v)| (PyTensor(u), PyTensor(s), PyTensor(v)))
        .py()
}

/// Singular values.
#[pyfunction]
fn linalg_svdvals(py: Python<'_>, x: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(linalg::svdvals(&x.0))
}

/// Moore-Penrose inverses.
#[pyfunction]
#[pyo3(signature = (x, rtol=None))]
fn linalg_pinv(py: Python<'_>, x: TensorArg, rtol: Option<OperandArg>) -> Out {
    let _called = location::enter!(py);
    out(linalg::pinv(&x.0, rtol.as_ref().map(OperandArg::operand)))
}

/// Ranks.
#[pyfunction]
#[pyo3(signature = (x, rtol=None))]
fn linalg_matrix_rank(py: Python<'_>, x: TensorArg, rtol: Option<OperandArg>) -> Out {
    let _called = location::enter!(py);
    out(linalg::matrix_rank(&x.0, rtol.as_ref().map(OperandArg::operand)))
}

/// Least squares: solution, residuals, rank, singular values.
/// Returns: tuple[Tensor, Tensor, Tensor, Tensor].
#[pyfunction]
#[pyo3(signature = (x1, x2, rtol=None))]
fn linalg_lstsq(
    py: Python<'_>,
    x1: TensorArg,
    x2: TensorArg,
    rtol: Option<OperandArg>,
) -> PyResult<(PyTensor, PyTensor, PyTensor, PyTensor)> {
    let _called = location::enter!(py);
    let found = linalg::lstsq(&x1.0, &x2.0, rtol.as_ref().map(OperandArg::operand)).py()?;
    Ok((
        PyTensor(found.solution),
        PyTensor(found.residuals),
        PyTensor(found.rank),
        PyTensor(found.singular_values),
    ))
}

/// Powers of square matrices.
#[pyfunction]
fn linalg_matrix_power(py: Python<'_>, x: TensorArg, n: IntArg) -> Out {
    let _called = location::enter!(py);
    out(linalg::matrix_power(&x.0, n.0))
}

/// The diagonals of the last two axes.
#[pyfunction]
fn linalg_diagonal(py: Python<'_>, x: TensorArg, offset: IntArg) -> Out {
    let _called = location::enter!(py);
    out(linalg::diagonal(&x.0, offset.0))
}

/// The sums of the diagonals of the last two axes.
#[pyfunction]
fn linalg_trace(py: Python<'_>, x: TensorArg, offset: IntArg) -> Out {
    let _called = location::enter!(py);
    out(linalg::trace(&x.0, offset.0))
}

/// The outer product of two vectors.
#[pyfunction]
fn linalg_outer(py: Python<'_>, x1: TensorArg, x2: TensorArg) -> Out {
    let _called = location::enter!(py);
    out(linalg::outer(&x1.0, &x2.0))
}

/// Cross products of vectors with three elements.
#[pyfunction]
fn linalg_cross(py: Python<'_>, x1: TensorArg, x2: TensorArg, axis: Axes) -> Out {
    let _called = location::enter!(py);
    out(linalg::cross(&x1.0, &x2.0, axis.single("cross")?.unwrap_or(-1)))
}

/// Norms of vectors.
#[pyfunction]
#[pyo3(signature = (x, ord, keepdims, axis=None))]
fn linalg_vector_norm(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::number)] ord: f64,
    #[pyo3(from_py_with = scalars::flag)] keepdims: bool,
    axis: Option<Axes>,
) -> Out {
    let _called = location::enter!(py);
    out(linalg::vector_norm(&x.0, axes(axis, None)?.reduced(keepdims), ord))
}

/// The matrix norm with this name or order.
fn matrix_norm_of(ord: &Bound<'_, PyAny>) -> PyResult<MatrixNorm> {
    Ok(match ord.extract::<String>().as_deref() {
        Ok("fro") => MatrixNorm::Frobenius,
        Ok("nuc") => MatrixNorm::Nuclear,
        Ok(other) => {
            return Err(invalid(format!(
                "matrix_norm: no norm is called '{other}'; 'fro' or 'nuc'"
            )));
        }
        Err(_) => MatrixNorm::Order(ord.extract()?),
    })
}

/// Norms of matrices.
#[pyfunction]
fn linalg_matrix_norm(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::flag)] keepdims: bool,
    ord: &Bound<'_, PyAny>,
) -> Out {
    let _called = location::enter!(py);
    let norm = matrix_norm_of(ord)?;
    out(linalg::matrix_norm(&x.0, girih::Axes::from([-2, -1]).reduced(keepdims), norm))
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        linalg_cholesky linalg_det linalg_slogdet linalg_inv linalg_solve linalg_solve_triangular
        linalg_qr linalg_eigh linalg_eigvalsh linalg_eig linalg_eigvals linalg_svd linalg_svdvals linalg_pinv
        linalg_matrix_rank linalg_lstsq linalg_matrix_power linalg_diagonal
        linalg_trace linalg_outer linalg_cross linalg_vector_norm
        linalg_matrix_norm linalg_lu_factor linalg_lu_solve linalg_lu linalg_expm linalg_cond
        linalg_multi_dot
    }
    Ok(())
}

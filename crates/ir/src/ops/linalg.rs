//! Ops on matrices: the last two axes of an operand. The crate `girih-linalg` has their routines.

mod pinv;
mod vjp;

pub use pinv::PINV;

use super::sort::settings;
use super::*;
use crate::{Dim, Shape};

/// Number of rows and columns of an operand's matrices.
fn matrix(call: OpCall<'_>, spec: &TensorSpec) -> Result<(usize, usize)> {
    let taken = matches!(spec.dtype, DType::F32 | DType::F64 | DType::C64 | DType::C128);
    require_dtype(call, spec.dtype, taken, "float32, float64, complex64 or complex128")?;
    // The sizes of the batch may be symbolic.
    let Some(batch) = spec.shape.rank().checked_sub(2) else {
        return Err(Error::InvalidShape {
            op: call.name(),
            shape: spec.shape.clone(),
            reason: "a matrix, or a batch of them, is needed".into(),
        });
    };
    Ok((spec.shape.dim(batch).get(), spec.shape.dim(batch + 1).get()))
}

fn square(call: OpCall<'_>, spec: &TensorSpec) -> Result<usize> {
    let (rows, columns) = matrix(call, spec)?;
    if rows == columns {
        return Ok(rows);
    }
    let reason = format!("square matrices are needed, these are {rows} by {columns}");
    Err(Error::InvalidShape { op: call.name(), shape: spec.shape.clone(), reason })
}

/// A shape of the operand's batch axes, followed by `item`.
fn batch_of(spec: &TensorSpec, item: &[usize]) -> Shape {
    let batch = spec.shape.rank() - 2;
    spec.shape.dims().take(batch).chain(item.iter().map(Dim::from)).collect()
}

fn like(spec: &TensorSpec, item: &[usize]) -> Result<TensorSpec> {
    Ok(TensorSpec { shape: batch_of(spec, item), dtype: spec.dtype })
}

/// As [`like`], with the real dtype.
fn real_like(spec: &TensorSpec, item: &[usize]) -> Result<TensorSpec> {
    Ok(TensorSpec { shape: batch_of(spec, item), dtype: spec.dtype.real() })
}

fn same_square(call: OpCall<'_>) -> Result<TensorSpec> {
    settings(call, 1)?;
    square(call, call.inputs[0])?;
    Ok(call.inputs[0].clone())
}

fn det(call: OpCall<'_>) -> Result<TensorSpec> {
    settings(call, 1)?;
    square(call, call.inputs[0])?;
    like(call.inputs[0], &[])
}

fn slogdet(call: OpCall<'_>) -> Result<TensorSpec> {
    let (result, ..) = settings(call, 2)?;
    square(call, call.inputs[0])?;
    if result == 0 { like(call.inputs[0], &[]) } else { real_like(call.inputs[0], &[]) }
}

fn solve(call: OpCall<'_>) -> Result<TensorSpec> {
    settings(call, 1)?;
    same_dtype(call)?;
    let [a, b] = call.inputs else { unreachable!("arity is checked") };
    let (n, (rows, columns)) = (square(call, a)?, matrix(call, b)?);
    if rows != n || !batch_of(a, &[n, columns]).equals(&b.shape) {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: a.shape.clone(),
            rhs: b.shape.clone(),
            reason: "the second must have as many rows as the first, and its batch axes".into(),
        });
    }
    Ok((*b).clone())
}

/// Checks two square matrices of equal size.
fn weighted(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = solve(call)?;
    square(call, call.inputs[1])?;
    Ok(spec)
}

fn qr(call: OpCall<'_>) -> Result<TensorSpec> {
    let (result, complete, _) = settings(call, 2)?;
    let (m, n) = matrix(call, call.inputs[0])?;
    let k = if complete { m } else { m.min(n) };
    like(call.inputs[0], &if result == 0 { [m, k] } else { [k, n] })
}

fn lu(call: OpCall<'_>) -> Result<TensorSpec> {
    let (result, ..) = settings(call, 2)?;
    let n = square(call, call.inputs[0])?;
    if result == 0 { like(call.inputs[0], &[n, n]) } else { real_like(call.inputs[0], &[n]) }
}

fn eigh(call: OpCall<'_>) -> Result<TensorSpec> {
    let (result, ..) = settings(call, 2)?;
    let n = square(call, call.inputs[0])?;
    if result == 0 { real_like(call.inputs[0], &[n]) } else { like(call.inputs[0], &[n, n]) }
}

fn eig(call: OpCall<'_>) -> Result<TensorSpec> {
    let (result, ..) = settings(call, 2)?;
    let n = square(call, call.inputs[0])?;
    let sizes = [n, n];
    let shape = batch_of(call.inputs[0], &sizes[..1 + result as usize]);
    Ok(TensorSpec { shape, dtype: call.inputs[0].dtype.complex() })
}

fn svd(call: OpCall<'_>) -> Result<TensorSpec> {
    let (result, full, _) = settings(call, 3)?;
    let (m, n) = matrix(call, call.inputs[0])?;
    let k = m.min(n);
    match (result, full) {
        (0, false) => like(call.inputs[0], &[m, k]),
        (0, true) => like(call.inputs[0], &[m, m]),
        (1, _) => real_like(call.inputs[0], &[k]),
        (_, false) => like(call.inputs[0], &[k, n]),
        (_, true) => like(call.inputs[0], &[n, n]),
    }
}

const MATRIX: OpDef = OpDef {
    class: Class::Library,
    arity: (1, 1),
    item_rank: ItemRank::Matrix(&[2]),
    infer: same_square,
    samples: samples::matrices,
    ..OpDef::BLANK
};

/// Cholesky factorisation of a positive definite matrix: the lower factor, or the upper factor with
/// the flag.
pub static CHOLESKY: OpDef = OpDef {
    can_fail: true,
    name: "cholesky",
    doc: "The triangular factor of positive definite matrices, of which one triangle is read.",
    derivative: Derivative::Rule(vjp::cholesky),
    python: Python::Named("linalg.cholesky"),
    ..MATRIX
};
/// Solves `a x = b` for `x`.
pub static SOLVE: OpDef = OpDef {
    linear: Linearity::In(&[&[1]]),
    factors: Factoring::Rule(factoring::solve),
    can_fail: true,
    name: "solve",
    doc: "What a square matrix must be multiplied with to give another.",
    arity: (2, 2),
    infer: solve,
    derivative: Derivative::Rule(vjp::solve),
    python: Python::Named("linalg.solve"),
    ..MATRIX
};
/// Solves `a x = b` for `x` with the lower triangle of `a`, or the upper triangle with the flag.
/// Size 1 means a unit diagonal.
pub static SOLVE_TRIANGULAR: OpDef = OpDef {
    linear: Linearity::In(&[&[1]]),
    factors: Factoring::Rule(factoring::solve),
    can_fail: true,
    name: "solve_triangular",
    doc: "What a triangular matrix must be multiplied with to give another.",
    arity: (2, 2),
    infer: solve,
    derivative: Derivative::Rule(vjp::solve_triangular),
    python: Python::Named("linalg.solve_triangular"),
    ..MATRIX
};
/// The inverse. With the flag, the inverse of a singular matrix is infinite or NaN instead of an
/// error.
pub static INV: OpDef = OpDef {
    can_fail: true,
    name: "inv",
    doc: "The inverse of square matrices.",
    derivative: Derivative::Rule(vjp::inv),
    python: Python::Named("linalg.inv"),
    ..MATRIX
};
/// The determinant.
pub static DET: OpDef = OpDef {
    name: "det",
    doc: "The determinant of square matrices.",
    item_rank: ItemRank::Matrix(&[0]),
    infer: det,
    derivative: Derivative::Rule(vjp::det),
    python: Python::Named("linalg.det"),
    ..MATRIX
};
/// The cofactor matrix, which is the derivative of the determinant, also for singular matrices.
pub static COFACTORS: OpDef = OpDef {
    name: "cofactors",
    doc: "Cofactors of square matrices: the derivatives of their determinants.",
    derivative: Derivative::Rule(vjp::cofactors),
    python: Python::Nothing("the gradient of det makes it"),
    ..MATRIX
};
/// `cofactor_slopes(a, w)`: the gradient of `sum(cofactors(a) * w)` with respect to `a`, which is
/// the second derivative of the determinant, also for singular matrices.
pub static COFACTOR_SLOPES: OpDef = OpDef {
    linear: Linearity::In(&[&[1]]),
    name: "cofactor_slopes",
    doc: "The gradient of the sum of square matrices' cofactors times weights.",
    arity: (2, 2),
    infer: weighted,
    derivative: Derivative::Rule(vjp::cofactor_slopes),
    samples: samples::slopes,
    python: Python::Nothing("the second derivative of det is made of it"),
    ..MATRIX
};
/// The determinant's sign (result 0) and the logarithm of its absolute value (result 1).
pub static SLOGDET: OpDef = OpDef {
    name: "slogdet",
    doc: "Sign and logarithm of the absolute value of determinants.",
    item_rank: ItemRank::Matrix(&[0, 0]),
    infer: slogdet,
    derivative: Derivative::Rule(vjp::slogdet),
    python: Python::Named("linalg.slogdet"),
    ..MATRIX
};
/// LU factorisation with partial pivoting. Result 0 holds both triangular factors in one matrix,
/// without the unit diagonal of the lower factor. Result 1 holds the row permutation as real
/// numbers.
pub static LU: OpDef = OpDef {
    name: "lu",
    doc: "Lower and upper triangular factors of square matrices whose rows are exchanged.",
    item_rank: ItemRank::Matrix(&[2, 1]),
    infer: lu,
    derivative: Derivative::Rule(vjp::lu),
    python: Python::Named("linalg.lu"),
    ..MATRIX
};
/// QR factorisation: orthonormal columns (result 0) and the upper triangular matrix (result 1). The
/// flag requests the complete form.
pub static QR: OpDef = OpDef {
    name: "qr",
    doc: "Orthonormal columns and the triangular matrix to multiply them with.",
    item_rank: ItemRank::Matrix(&[2, 2]),
    infer: qr,
    derivative: Derivative::Rule(vjp::qr),
    python: Python::Named("linalg.qr"),
    ..MATRIX
};
/// Eigendecomposition of Hermitian matrices: eigenvalues in ascending order (result 0) and
/// eigenvectors as columns (result 1). Only the lower triangle is read, or only the upper triangle
/// with the flag.
pub static EIGH: OpDef = OpDef {
    can_fail: true,
    name: "eigh",
    doc: "Eigenvalues and eigenvectors of Hermitian matrices, of which one triangle is read.",
    item_rank: ItemRank::Matrix(&[1, 2]),
    infer: eigh,
    derivative: Derivative::Rule(vjp::eigh),
    python: Python::Named("linalg.eigh"),
    ..MATRIX
};
/// Eigendecomposition of square matrices: eigenvalues (result 0) and eigenvectors as columns
/// (result 1), both complex.
pub static EIG: OpDef = OpDef {
    can_fail: true,
    name: "eig",
    doc: "Eigenvalues and eigenvectors of square matrices.",
    item_rank: ItemRank::Matrix(&[1, 2]),
    infer: eig,
    derivative: Derivative::Rule(vjp::eig),
    samples: samples::eigen,
    python: Python::Named("linalg.eig"),
    ..MATRIX
};
/// Singular value decomposition: left singular vectors as columns (result 0), singular values in
/// descending order (1), right singular vectors as rows (2). The flag requests all vectors.
pub static SVD: OpDef = OpDef {
    can_fail: true,
    name: "svd",
    doc: "Singular values and vectors.",
    item_rank: ItemRank::Matrix(&[2, 1, 2]),
    infer: svd,
    derivative: Derivative::Rule(vjp::svd),
    python: Python::Named("linalg.svd"),
    ..MATRIX
};

//! Dispatches ops on matrices to their routines in `girih-linalg`. No other module maps these ops
//! to functions.

use girih_ir::{Op, OpCode};
use girih_linalg::{
    Eig, Failure, Qr, Scalar, Svd, Team, Triangle, cholesky, cofactor_slopes, cofactors, det, eig,
    eigh, inv, lu, qr, slogdet, solve, solve_triangular, svd,
};
use smallvec::{SmallVec, smallvec};

/// A result, whose numbers have the operands' type, or the real or complex type of the same
/// precision.
pub enum MatrixResult<T: Scalar> {
    /// Numbers of the operands' type.
    Same(Vec<T>),
    /// Real numbers.
    Real(Vec<T::Real>),
    /// Complex numbers.
    Complex(Vec<T::Complex>),
}

/// An operand: a matrix's elements, and its number of rows and columns.
pub type Matrix<'a, T> = (&'a [T], [usize; 2]);

/// Computes an op on one matrix, or on one pair of matrices. `needed` marks the results to compute;
/// the others may be empty. The routines use `team` for large matrices.
///
/// Errors: the errors of the routine. Panics: if `op` is not an op on matrices.
pub fn call<T: Scalar>(
    op: &Op,
    operands: &[Matrix<'_, T>],
    needed: &[bool],
    team: &dyn Team,
) -> Result<SmallVec<[MatrixResult<T>; 3]>, Failure> {
    let (_, flag, size) = op.attrs.library();
    let (a, [m, n]) = operands[0];
    let needs = |i: usize| needed.get(i).copied().unwrap_or(false);
    let right = |i: usize| (operands[i].0, operands[i].1[1]);
    Ok(match op.code {
        OpCode::Cholesky => smallvec![MatrixResult::Same(cholesky(a, n, flag, team)?)],
        OpCode::Solve => {
            let (b, columns) = right(1);
            smallvec![MatrixResult::Same(solve(a, b, n, columns, team)?)]
        }
        OpCode::SolveTriangular => {
            let (b, columns) = right(1);
            let triangle = Triangle { a, n, upper: flag, unit: size != 0 };
            smallvec![MatrixResult::Same(solve_triangular(triangle, b, columns, team)?)]
        }
        OpCode::Inv => smallvec![MatrixResult::Same(inv(a, n, flag, team)?)],
        OpCode::Det => smallvec![MatrixResult::Same(vec![det(a, n, team)])],
        OpCode::Cofactors => smallvec![MatrixResult::Same(cofactors(a, n, team))],
        OpCode::CofactorSlopes => {
            smallvec![MatrixResult::Same(cofactor_slopes(a, operands[1].0, n, team))]
        }
        OpCode::Slogdet => {
            let (sign, log) = slogdet(a, n, team);
            smallvec![MatrixResult::Same(vec![sign]), MatrixResult::Real(vec![log])]
        }
        OpCode::Lu => {
            let (factors, rows) = lu(a, n, team);
            smallvec![MatrixResult::Same(factors), MatrixResult::Real(rows)]
        }
        OpCode::Qr => {
            let Qr { q, r } = qr(a, [m, n], flag, needs(0), team);
            smallvec![MatrixResult::Same(q), MatrixResult::Same(r)]
        }
        OpCode::Eigh => {
            let (values, vectors) = eigh(a, n, flag, needs(1), team)?;
            smallvec![MatrixResult::Real(values), MatrixResult::Same(vectors)]
        }
        OpCode::Eig => {
            let Eig { values, vectors } = eig(a, n, needs(1), team)?;
            smallvec![MatrixResult::Complex(values), MatrixResult::Complex(vectors)]
        }
        OpCode::Svd => {
            let Svd { u, s, vh } = svd(a, m, n, flag, needs(0) || needs(2), team)?;
            smallvec![MatrixResult::Same(u), MatrixResult::Real(s), MatrixResult::Same(vh)]
        }
        code => unreachable!("{} is no op on matrices", code.def().name),
    })
}

//! Routines on matrices: the functions of [`girih_reference::matrix`] on one item of a batch.

use super::{Args, Element};
use crate::ExecError;
use girih_ir::Op;
use girih_linalg::Scalar;
use girih_reference::matrix::{MatrixResult, call};
use smallvec::SmallVec;

/// Computes the needed results and copies them to their buffers.
///
/// Errors: [`ExecError::Linalg`].
pub(super) fn run<T>(op: &Op, args: &mut Args<'_>) -> Result<(), ExecError>
where
    T: Element + Scalar<Real: Element, Complex: Element>,
{
    let operand = |i: usize| {
        let (data, dims) = &args.operands[i];
        (T::of(*data), [dims[0], dims[1]])
    };
    let operands: SmallVec<[_; 2]> = (0..args.operands.len()).map(operand).collect();
    let needed: SmallVec<[bool; 3]> = args.results.iter().map(Option::is_some).collect();
    let parts =
        call::<T>(op, &operands, &needed, args.team).map_err(|failure| ExecError::Linalg {
            op: op.name(),
            reason: match args.batch {
                Some(at) => format!("matrix {at} of the batch: {failure}"),
                None => failure.to_string(),
            },
        })?;
    for (i, part) in parts.into_iter().enumerate() {
        match part {
            MatrixResult::Same(values) => copy(args.result::<T>(i), &values),
            MatrixResult::Complex(values) => copy(args.result::<T::Complex>(i), &values),
            MatrixResult::Real(values) => copy(args.result::<T::Real>(i), &values),
        }
    }
    Ok(())
}

fn copy<T: Copy>(to: Option<&mut [T]>, from: &[T]) {
    if let Some(to) = to {
        to.copy_from_slice(from);
    }
}

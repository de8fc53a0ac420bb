//! Scenarios of single kernels on [`ELEMENTS`] elements, which show how many instructions run
//! outside generated code for each element: those of chunks, rows, blocks and calls.

use crate::{Once, matrix};
use girih::{Result, Tensor};

/// Elements of the operand.
const ROWS: usize = 512;
const ELEMENTS: usize = ROWS * ROWS;

/// A program of one operand of 512 x 512, which runs from the cache.
fn of(function: fn(&Tensor) -> Result<Tensor>) -> Result<Once> {
    let x = matrix(ROWS, ELEMENTS / ROWS)?;
    function(&x)?.eval()?;
    Ok(Box::new(move || function(&x)?.eval().map(drop)))
}

pub fn add() -> Result<Once> {
    of(|x| x.add(x))
}

pub fn transposed() -> Result<Once> {
    of(|x| x.permute([1, 0])?.add(x))
}

pub fn sum_of_rows() -> Result<Once> {
    of(|x| x.sum(1))
}

pub fn sum_of_columns() -> Result<Once> {
    of(|x| x.sum(0))
}

/// The reduction over an axis of four elements.
pub fn short_sum() -> Result<Once> {
    of(|x| x.reshape([ELEMENTS as i64 / 4, 4])?.sum(1))
}

pub fn softmax() -> Result<Once> {
    of(|x| x.softmax(1))
}

pub fn gemm() -> Result<Once> {
    of(|x| x.matmul(x))
}

//! Branches and loops whose functions are Rust closures.

use super::Body;
use crate::{Error, Result, Tensor};
use girih_ir::{DType, Dim, Literal, TensorSpec};

fn specs(tensors: &[Tensor]) -> Vec<TensorSpec> {
    tensors.iter().map(Tensor::spec).collect()
}

/// Traces a function on placeholders.
pub(super) fn traced(
    specs: &[TensorSpec],
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Body> {
    let mut body = Body::new();
    let arguments: Vec<Tensor> = specs.iter().map(|s| body.placeholder(s)).collect();
    body.outputs = f(&arguments)?;
    body.outputs.iter().try_for_each(|output| output.check().map(drop))?;
    Ok(body)
}

/// The results of `if_true` if the scalar `predicate` is true, else those of `if_false`. Both are
/// functions of the operands, and may capture other tensors. Only one of them is computed, at the
/// evaluation of the results; recording does not read the predicate.
///
/// Errors: [`Error::InvalidArgument`] unless both return tensors of the same shapes and dtypes;
/// [`Error::Record`] unless the predicate is a bool scalar.
///
/// ```
/// use girih::{Tensor, cond};
///
/// let x = Tensor::from_slice(&[3.0f32], [1])?;
/// let positive = x.gt(0.0)?.all(..)?;
/// let y = cond(&positive, |x| Ok(vec![x[0].sqrt()?]), |x| Ok(vec![x[0].neg()?]), &[x])?;
/// assert_eq!(y[0].to_vec::<f32>()?, [3.0f32.sqrt()]);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn cond(
    predicate: &Tensor,
    if_true: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    if_false: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    operands: &[Tensor],
) -> Result<Vec<Tensor>> {
    let specs = specs(operands);
    let branches = [traced(&specs, if_false)?, traced(&specs, if_true)?];
    Body::cond("cond", predicate, &branches, operands, &[])
}

/// A function on tensors that a branch or loop runs.
pub type Function<'a> = &'a dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// The results of the branch whose number is the integer scalar `index`, clamped to the existing
/// branches; as [`cond`].
///
/// Errors: as [`cond`].
#[track_caller]
pub fn switch(
    index: &Tensor,
    branches: &[Function<'_>],
    operands: &[Tensor],
) -> Result<Vec<Tensor>> {
    let specs = specs(operands);
    let bodies: Result<Vec<Body>> = branches.iter().map(|f| traced(&specs, f)).collect();
    Body::cond("switch", index, &bodies?, operands, &[])
}

/// Applies `body` to the carries, starting from `init`, as long as `condition` returns true for the
/// carries.
///
/// Forward-mode derivatives pass through the loop; reverse mode needs [`bounded_while_loop`],
/// [`scan`] or [`fori_loop`].
///
/// Errors: [`Error::InvalidArgument`] if the body changes a shape or dtype, if the condition does
/// not return a bool scalar, or if either draws random numbers.
///
/// ```
/// use girih::{Tensor, while_loop};
///
/// let init = Tensor::from_slice(&[1i64], [])?;
/// let power = while_loop(|x| x[0].lt(1000), |x| Ok(vec![x[0].mul(2)?]), &[init])?;
/// assert_eq!(power[0].item::<i64>()?, 1024);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn while_loop(
    condition: impl FnOnce(&[Tensor]) -> Result<Tensor>,
    body: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    init: &[Tensor],
) -> Result<Vec<Tensor>> {
    let specs = specs(init);
    let condition = traced(&specs, |x| Ok(vec![condition(x)?]))?;
    let body = traced(&specs, body)?;
    Body::while_loop(&condition, &body, init, &[])
}

/// The maximum total size in bytes for which reverse mode keeps the carries of all steps of a
/// bounded loop.
const STACKED_BYTES: usize = 1 << 24;

/// As [`while_loop`], with at most `limit` iterations. Reverse mode passes through the loop: it is
/// a [`scan`] of `limit` steps, in which the steps after the end compute nothing. If `limit`
/// carries take up to 16 MiB, or their size is symbolic, reverse mode keeps the carry of every
/// step. Larger loops run in blocks of about `sqrt(limit)` steps; reverse mode keeps the first
/// carry of each block and recomputes the other carries block by block.
///
/// Errors: as [`while_loop`].
///
/// ```
/// use girih::{Tensor, bounded_while_loop, grad};
///
/// // Newton's square root.
/// let root = |a: &[Tensor]| {
///     let wrong = |x: &[Tensor]| x[0].mul(&x[0])?.sub(&a[0])?.abs()?.gt(1e-6);
///     let better = |x: &[Tensor]| Ok(vec![a[0].div(&x[0])?.add(&x[0])?.mul(0.5)?]);
///     Ok(bounded_while_loop(wrong, better, a, 20)?.swap_remove(0))
/// };
/// let four = Tensor::from_slice(&[4.0f64], [])?;
/// assert!((grad(root)(&[four])?[0].item::<f64>()? - 0.25).abs() < 1e-6);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn bounded_while_loop(
    condition: impl Fn(&[Tensor]) -> Result<Tensor>,
    body: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    init: &[Tensor],
    limit: usize,
) -> Result<Vec<Tensor>> {
    let carries: Vec<Tensor> =
        std::iter::once(condition(init)?).chain(init.iter().cloned()).collect();
    let step = |carries: &[Tensor], _: &[Tensor]| {
        let (goes_on, values) = (&carries[0], &carries[1..]);
        let values = cond(goes_on, &body, |values| Ok(values.to_vec()), values)?;
        let goes_on = goes_on.bitwise_and(&condition(&values)?)?;
        Ok((std::iter::once(goes_on).chain(values).collect(), Vec::new()))
    };
    let steps = |carries: &[Tensor], count| -> Result<Vec<Tensor>> {
        Ok(scan_with(step, carries, &[], ScanOptions::length(count))?.0)
    };
    let known = |c: &Tensor| if c.shape().is_symbolic() { 0 } else { c.spec().size_bytes() };
    let bytes = limit.saturating_mul(init.iter().map(known).sum());
    let mut results = if bytes <= STACKED_BYTES {
        steps(&carries, limit)?
    } else {
        let block = (limit - 1).isqrt() + 1;
        let blocks = |carries: &[Tensor], _: &[Tensor]| Ok((steps(carries, block)?, Vec::new()));
        let (carries, _) = scan_with(blocks, &carries, &[], ScanOptions::length(limit / block))?;
        steps(&carries, limit % block)?
    };
    Ok(results.split_off(1))
}

/// Carries `init` through `f`, a function of the carries and of one slice of each of `xs` along
/// their leading axis. `f` returns the next carries and the values to be stacked. Returns the last
/// carries and the stacked values. [`scan_with`] goes backwards, or a number of times without `xs`.
///
/// Errors: [`Error::InvalidArgument`] if `xs` have different lengths, if no length is known, or if
/// `f` changes a carry's shape or dtype.
///
/// ```
/// use girih::{Tensor, scan};
///
/// let xs = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3])?;
/// let sum = |c: &[Tensor], x: &[Tensor]| {
///     let next = c[0].add(&x[0])?;
///     Ok((vec![next.clone()], vec![next]))
/// };
/// let (last, running) = scan(sum, &[Tensor::from_slice(&[0.0f32], [])?], &[xs])?;
/// assert_eq!(last[0].item::<f32>()?, 6.0);
/// assert_eq!(running[0].to_vec::<f32>()?, [1.0, 3.0, 6.0]);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn scan(
    f: impl FnOnce(&[Tensor], &[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)>,
    init: &[Tensor],
    xs: &[Tensor],
) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    scan_with(f, init, xs, ScanOptions::default())
}

/// Options of [`scan_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// The number of iterations, which is needed if there is nothing to go along.
    pub length: Option<usize>,
    /// Whether to go from the last slices to the first; the stacked values keep their places.
    pub reverse: bool,
}

impl ScanOptions {
    /// With a number of iterations.
    pub fn length(length: usize) -> ScanOptions {
        ScanOptions { length: Some(length), reverse: false }
    }
}

/// [`scan`] with a number of iterations, or backwards.
///
/// Errors: as [`scan`].
#[track_caller]
pub fn scan_with(
    f: impl FnOnce(&[Tensor], &[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)>,
    init: &[Tensor],
    xs: &[Tensor],
    options: ScanOptions,
) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    let ScanOptions { length, reverse } = options;
    let length = scan_length(xs, length.map(Dim::from))?;
    let mut all = specs(init);
    for x in xs {
        let shape = x.shape();
        let part = shape.part(shape.rank().min(1)..);
        all.push(TensorSpec { shape: part, dtype: x.dtype() });
    }
    let mut given = 0;
    let body = traced(&all, |arguments| {
        let (carries, parts) = arguments.split_at(init.len());
        let (mut outputs, stacks) = f(carries, parts)?;
        given = outputs.len();
        outputs.extend(stacks);
        Ok(outputs)
    })?;
    if given != init.len() {
        let reason =
            format!("scan: the function returns {given} values for {} carries", init.len());
        return Err(Error::InvalidArgument(reason));
    }
    let mut results = Body::scan("scan", &body, init, xs, length, reverse, &[])?;
    let stacks = results.split_off(init.len());
    Ok((results, stacks))
}

/// The number of iterations: the length of the leading axes, which must agree with `length` if
/// given.
///
/// Errors: [`Error::InvalidArgument`] for lengths that differ or are missing, and for a scalar in
/// `xs`.
pub fn scan_length(xs: &[Tensor], length: Option<Dim>) -> Result<Dim> {
    let mut found = length;
    for x in xs {
        let shape = x.shape();
        let Some(size) = shape.dims().next() else {
            let reason = format!("scan: xs need a leading axis to go along, got {}", x.spec());
            return Err(Error::InvalidArgument(reason));
        };
        let expected = *found.get_or_insert(size);
        if !expected.equals(size) {
            return Err(Error::InvalidArgument(format!(
                "scan: the leading axes of xs and length must be one number, got {expected} and \
                 {size}"
            )));
        }
    }
    found.ok_or_else(|| {
        Error::InvalidArgument("scan: without xs the number of iterations must be given".into())
    })
}

/// Applies `body`, a function of the iteration number and the carries, to the carries for each
/// number from `lower` up to but excluding `upper`, starting from `init`.
///
/// Errors: as [`scan`].
#[track_caller]
pub fn fori_loop(
    lower: i64,
    upper: i64,
    body: impl FnOnce(&Tensor, &[Tensor]) -> Result<Vec<Tensor>>,
    init: &[Tensor],
) -> Result<Vec<Tensor>> {
    let length = usize::try_from(i128::from(upper) - i128::from(lower)).unwrap_or(0);
    let start = Tensor::constant(Literal::from_i64(DType::I64, lower), Default::default());
    let carries: Vec<Tensor> = std::iter::once(start).chain(init.iter().cloned()).collect();
    let step = |carries: &[Tensor], _: &[Tensor]| {
        let mut outputs = vec![carries[0].add(1)?];
        outputs.extend(body(&carries[0], &carries[1..])?);
        Ok((outputs, Vec::new()))
    };
    let (mut results, _) = scan_with(step, &carries, &[], ScanOptions::length(length))?;
    Ok(results.split_off(1))
}

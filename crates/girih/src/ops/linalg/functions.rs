//! Condition numbers, the matrix exponential, and products of several matrices.

use super::{MatrixNorm, inv, matrix_norm, sizes, solve, svdvals, widened};
use crate::control::cond as branch;
use crate::{Error, Result, Tensor, keepdims, scan, where_};

/// The condition number: the norm of the matrix times the norm of its inverse; by default the
/// largest singular value divided by the smallest. Infinite for a singular matrix.
///
/// Errors: those of [`matrix_norm`]; a shape error for empty matrices, and for norms other than 2
/// and -2 of matrices that are not square.
#[track_caller]
pub fn cond(x: &Tensor, norm: Option<MatrixNorm>) -> Result<Tensor> {
    let (m, n) = sizes("cond", x)?;
    if m.min(n) == 0 {
        let (op, shape, reason) = ("cond", x.shape(), "an empty matrix has none".into());
        return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
    }
    match norm.unwrap_or(MatrixNorm::Order(2.0)) {
        MatrixNorm::Order(ord) if ord.abs() == 2.0 => {
            let s = svdvals(x)?;
            let (large, small) = (s.max(-1)?, s.min(-1)?);
            let (above, below) = if ord > 0.0 { (large, small) } else { (small, large) };
            // A zero matrix is singular too.
            let nothing = above.eq(0.0)?.bitwise_and(&below.eq(0.0)?)?;
            where_(&nothing, f64::INFINITY, &above.div(&below)?)
        }
        norm if m == n => {
            let determined = svdvals(x)?.min(keepdims(-1))?.ne(0.0)?.unsqueeze(-1)?;
            let safe = where_(&determined, x, &Tensor::eye(n, x.dtype())?)?;
            let of = |x: &Tensor| matrix_norm(x, [-2, -1], norm);
            let product = of(x)?.mul(&of(&inv(&safe)?)?)?;
            where_(&determined.squeeze([-1, -2])?, &product, f64::INFINITY)
        }
        _ => {
            let reason = format!("norms but 2 and -2 need square matrices, these are {m} by {n}");
            Err(girih_ir::Error::InvalidShape { op: "cond", shape: x.shape(), reason }.into())
        }
    }
}

/// The maximum number of halvings, enough for norms of more than `2^64`.
const HALVINGS: usize = 64;

/// The exponential of square matrices, by scaling and squaring: N. J. Higham, "The scaling and
/// squaring method for the matrix exponential revisited", SIAM Journal on Matrix Analysis and
/// Applications 26, 2005, with the approximant of degree 13.
///
/// Errors: a shape error unless the matrices are square.
#[track_caller]
pub fn expm(x: &Tensor) -> Result<Tensor> {
    const THETA: f64 = 5.371920351148152;
    // The coefficients relative to the first, in ascending order of powers.
    const C: [f64; 14] = [
        1.0,
        0.5,
        0.12,
        0.018333333333333333,
        0.0019927536231884057,
        0.00016304347826086958,
        1.0351966873706003e-5,
        5.175983436853002e-7,
        2.0431513566525008e-8,
        6.306022705717595e-10,
        1.48377004840414e-11,
        2.529153491597966e-13,
        2.8101705462199623e-15,
        1.5440497506703088e-17,
    ];
    let (m, n) = sizes("expm", x)?;
    if m != n {
        let reason = format!("square matrices are needed, these are {m} by {n}");
        return Err(girih_ir::Error::InvalidShape { op: "expm", shape: x.shape(), reason }.into());
    }
    if x.numel() == 0 {
        return x.astype(x.dtype().to_float());
    }
    let (x, dtype) = widened(x)?;
    let norm = matrix_norm(&x, keepdims([-2, -1]), MatrixNorm::Order(1.0))?.stop_gradient()?;
    let times = norm.div(THETA)?.log2()?.ceil()?.maximum(0.0)?.minimum(HALVINGS as f64)?;
    let times = where_(&norm.isfinite()?, &times, 0.0)?.stop_gradient()?;
    let x = x.mul(&times.neg()?.exp2()?)?;
    let one = Tensor::eye(n, x.dtype())?;
    let x2 = x.product(&x)?;
    let x4 = x2.product(&x2)?;
    let x6 = x4.product(&x2)?;
    let sum = |c: [f64; 3]| x6.mul(c[2])?.add(&x4.mul(c[1])?)?.add(&x2.mul(c[0])?);
    let odd = x6.product(&sum([C[9], C[11], C[13]])?)?.add(&sum([C[3], C[5], C[7]])?)?;
    let odd = x.product(&odd.add(&one.mul(C[1])?)?)?;
    let even = x6.product(&sum([C[8], C[10], C[12]])?)?.add(&sum([C[2], C[4], C[6]])?)?;
    let even = even.add(&one)?;
    let start = solve(&even.sub(&odd)?, &even.add(&odd)?)?;
    let most = times.max_all()?;
    let step = |carries: &[Tensor], parts: &[Tensor]| {
        let squared =
            |x: &[Tensor]| Ok(vec![where_(&parts[0].lt(&times)?, &x[0].product(&x[0])?, &x[0])?]);
        let kept = |x: &[Tensor]| Ok(vec![x[0].clone()]);
        Ok((branch(&parts[0].lt(&most)?, squared, kept, carries)?, Vec::new()))
    };
    let numbers = Tensor::iota([HALVINGS], 0, times.dtype())?;
    let (mut powers, _) = scan(step, &[start], &[numbers])?;
    powers.swap_remove(0).astype(dtype)
}

/// The product of matrices, in the order with the fewest operations. The first may be a vector,
/// treated as a row, and the last a vector, treated as a column.
///
/// Errors: [`Error::InvalidArgument`] for fewer than two; a shape error for sizes that do not fit,
/// and for more than two axes.
#[track_caller]
pub fn multi_dot(factors: &[&Tensor]) -> Result<Tensor> {
    let op = "multi_dot";
    let [first, .., last] = factors else {
        let given = factors.len();
        return Err(Error::InvalidArgument(format!(
            "multi_dot: at least two matrices are needed, got {given}"
        )));
    };
    for (i, factor) in factors.iter().enumerate() {
        let end = i == 0 || i + 1 == factors.len();
        if factor.rank() != 2 && !(end && factor.rank() == 1) {
            let reason = "matrices are expected; the first and the last may be vectors".into();
            return Err(girih_ir::Error::InvalidShape { op, shape: factor.shape(), reason }.into());
        }
    }
    let mut matrices: Vec<Tensor> = factors.iter().map(|&f| f.clone()).collect();
    let count = matrices.len();
    if first.rank() == 1 {
        matrices[0] = first.unsqueeze(0)?;
    }
    if last.rank() == 1 {
        matrices[count - 1] = last.unsqueeze(1)?;
    }
    let mut product = chain(&matrices)?;
    if last.rank() == 1 {
        product = product.squeeze(-1)?;
    }
    if first.rank() == 1 { product.squeeze(0) } else { Ok(product) }
}

/// Optimal matrix chain multiplication: Cormen, Leiserson, Rivest and Stein, "Introduction to
/// Algorithms", 14.2.
#[track_caller]
fn chain(matrices: &[Tensor]) -> Result<Tensor> {
    let count = matrices.len();
    let sizes: Vec<f64> = std::iter::once(matrices[0].shape()[0])
        .chain(matrices.iter().map(|m| m.shape()[1]))
        .map(|size| size as f64)
        .collect();
    let mut costs = vec![vec![(0.0f64, 0usize); count]; count];
    for length in 1..count {
        for low in 0..count - length {
            let high = low + length;
            let cost = |cut: usize| {
                let outer = sizes[low] * sizes[cut + 1] * sizes[high + 1];
                (costs[low][cut].0 + costs[cut + 1][high].0 + outer, cut)
            };
            let best = (low..high).map(cost).reduce(|a, b| if b.0 < a.0 { b } else { a });
            costs[low][high] = best.unwrap_or_default();
        }
    }
    // Compute the products bottom-up with an explicit stack: the pending ranges, and the finished
    // products.
    let (mut tasks, mut made) = (vec![(0, count - 1, false)], Vec::new());
    while let Some((low, high, ready)) = tasks.pop() {
        if low == high {
            made.push(matrices[low].clone());
        } else if ready {
            let (right, left) = (made.pop(), made.pop());
            let (Some(right), Some(left)) = (right, left) else { unreachable!("both are made") };
            made.push(left.matmul(&right)?);
        } else {
            let cut = costs[low][high].1;
            tasks.extend([(low, high, true), (cut + 1, high, false), (low, cut, false)]);
        }
    }
    Ok(made.swap_remove(0))
}

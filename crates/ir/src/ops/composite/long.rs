//! Normalisations of rows that are larger than the caches: they read each row twice instead of
//! three times, since one pass computes all statistics.
//!
//! A row is divided into blocks that fit in the L1 cache. For each block the first pass computes
//! the maximum and the sum of exponentials relative to it (Milakov and Gimelshein 2018), or the
//! mean and the sum of squared differences from it (Chan, Golub and LeVeque 1983). The blocks'
//! statistics are combined into the row's.

use super::*;
use crate::ops::window::WindowDim;
use crate::{Dim, GraphBuilder, Shape};
use smallvec::{SmallVec, smallvec};

/// A tensor of shape `[…, n]` as blocks: `[…, P, block]`, and the remainder of each row, `[…, 1,
/// r]`, if there is one.
type Blocks = SmallVec<[NodeId; 2]>;

/// Number of elements of a row, if it is statically known to be long.
fn long(b: &GraphBuilder, extent: Dim) -> Option<usize> {
    extent.known().filter(|&n| n > b.target.max_cached_row)
}

/// The blocks of rows along the last axis, if the rows are long.
fn blocks(b: &mut GraphBuilder, x: NodeId) -> Result<Option<Blocks>> {
    let shape = b.shape(x).clone();
    let Some(last) = shape.rank().checked_sub(1) else { return Ok(None) };
    let Some(extent) = long(b, shape.dim(last)) else { return Ok(None) };
    let of = |size| WindowDim { extent, size, step: size, dilation: 1 };
    let block = b.target.row_block;
    let mut blocks: Blocks = smallvec![b.windows(x, vec![of(block)])?];
    let rest = extent % block;
    if rest > 0 {
        let rest = b.slice_axis(x, last, extent - rest, rest)?;
        let one_block = shape.dims().take(last).chain([1.into(), b.shape(rest).dim(last)]);
        blocks.push(b.reshape(rest, one_block.collect::<Shape>())?);
    }
    Ok(Some(blocks))
}

/// For each row the maximum and the sum of exponentials relative to it, both `[…, 1]`. With
/// `finite`, an infinite maximum is replaced by 0 in the exponentials.
pub(super) fn exponentials(
    b: &mut GraphBuilder,
    x: NodeId,
    finite: bool,
) -> Result<Option<[NodeId; 2]>> {
    let Some(blocks) = blocks(b, x)? else { return Ok(None) };
    let (last, rank) = (AxisSet::one(b.shape(x).rank()), b.shape(x).rank());
    let (mut most, mut sums) = (Blocks::new(), Blocks::new());
    for block in blocks {
        let max = b.max(block, last, true)?;
        // A block whose elements are all -inf contributes 0.
        let shift = finite_or_zero(b, max)?;
        let shifted = b.sub(block, shift)?;
        let exp = b.exp(shifted)?;
        most.push(max);
        sums.push(b.sum(exp, last, true)?);
    }
    let axis = (rank - 1) as u8;
    let (most, sums) = (b.concat(&most, axis)?, b.concat(&sums, axis)?);
    let along = AxisSet::one(rank - 1);
    let max = b.max(most, along, true)?;
    let max = if finite { finite_or_zero(b, max)? } else { max };
    let difference = b.sub(most, max)?;
    let shares = b.exp(difference)?;
    let shares = b.transpose(shares)?;
    // A matrix product keeps the combination out of the first pass's kernel. If the combination
    // were fused into that kernel, each block's sum would wait for the maximum of the row.
    let sum = b.matmul(shares, sums)?;
    let row: Shape = b.shape(x).part(..rank - 1).dims().chain([1.into()]).collect();
    Ok(Some([b.reshape(max, row.clone())?, b.reshape(sum, row)?]))
}

/// `x`, or 0 where it is infinite or NaN.
pub(super) fn finite_or_zero(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let finite = b.isfinite(x)?;
    let zero = b.scalar_like(x, 0.0);
    b.select(finite, x, zero)
}

/// For each row the mean and the sum of squared differences from it, if the axes are the last ones
/// and a row is long. Both have size 1 along the axes.
pub(super) fn moments(
    b: &mut GraphBuilder,
    x: NodeId,
    axes: AxisSet,
) -> Result<Option<[NodeId; 2]>> {
    let shape = b.shape(x).clone();
    let lead = shape.rank() - axes.iter().count();
    let count = shape.dims().skip(lead).product::<Dim>();
    if axes.iter().any(|axis| axis < lead) || long(b, count).is_none() {
        return Ok(None);
    }
    let rows = b.reshape(x, shape.dims().take(lead).chain([count]).collect::<Shape>())?;
    let Some(blocks) = blocks(b, rows)? else { return Ok(None) };
    let (within, along) = (AxisSet::one(lead + 1), AxisSet::one(lead));
    let mut parts: SmallVec<[[NodeId; 2]; 2]> = SmallVec::new();
    let mut total = None;
    for &block in &blocks {
        let sums = b.sum(block, within, true)?;
        let size = b.scalar_like(sums, b.shape(block).dim(lead + 1).get() as f64);
        parts.push([b.div(sums, size)?, size]);
        let sum = b.sum(sums, along, true)?;
        total = Some(add(b, total, sum)?);
    }
    let total = total.expect("a long row has a block");
    let count = b.scalar_like(total, count.get() as f64);
    let mean = b.div(total, count)?;
    let mut squares = None;
    for (&block, [of_block, size]) in blocks.iter().zip(parts) {
        let centred = b.sub(block, of_block)?;
        let square = b.mul(centred, centred)?;
        let inside = b.sum(square, within, true)?;
        let inside = b.sum(inside, along, true)?;
        let difference = b.sub(of_block, mean)?;
        let square = b.mul(difference, difference)?;
        let between = b.sum(square, along, true)?;
        let between = b.mul(between, size)?;
        let sum = b.add(inside, between)?;
        squares = Some(add(b, squares, sum)?);
    }
    let squares = squares.expect("a long row has a block");
    let result = shape.reduced(axes, true);
    Ok(Some([b.reshape(mean, result.clone())?, b.reshape(squares, result)?]))
}

/// Adds `x` to an optional sum.
fn add(b: &mut GraphBuilder, sum: Option<NodeId>, x: NodeId) -> Result<NodeId> {
    sum.map_or(Ok(x), |sum| b.add(sum, x))
}

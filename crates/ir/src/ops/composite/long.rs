//! Rows too long for the caches: what normalises them reads them once for all it needs to know of
//! them, and once more, instead of three times.
//!
//! A row is taken in pieces that stay in the first cache. Each gives its largest element and the sum
//! of its exponentials below that (Milakov and Gimelshein 2018), or its mean and the squares of the
//! differences from that (Chan, Golub and LeVeque 1983); a row's are made of those of its pieces.

use super::*;
use crate::ops::window::WindowDim;
use crate::{Dim, GraphBuilder, Shape};
use smallvec::{SmallVec, smallvec};

/// Elements of a row that the caches hold.
const LONG: usize = 1 << 16;
/// Elements of a piece.
const PIECE: usize = 1 << 12;

/// The pieces of `[…, n]`, of `[…, P, PIECE]` elements, and the rest of each row, of `[…, 1, r]`, if
/// there is one.
type Pieces = SmallVec<[NodeId; 2]>;

/// A row's number of elements, if it is known to be long.
fn long(extent: Dim) -> Option<usize> {
    extent.known().filter(|&n| n > LONG)
}

/// The pieces of rows along the last axis, if they are long.
fn pieces(b: &mut GraphBuilder, x: NodeId) -> Result<Option<Pieces>> {
    let shape = b.shape(x).clone();
    let Some(last) = shape.rank().checked_sub(1) else { return Ok(None) };
    let Some(extent) = long(shape.dim(last)) else { return Ok(None) };
    let of = |size| WindowDim { extent, size, step: size, dilation: 1 };
    let mut pieces: Pieces = smallvec![b.windows(x, vec![of(PIECE)])?];
    let rest = extent % PIECE;
    if rest > 0 {
        let rest = b.slice_axis(x, last, extent - rest, rest)?;
        let one_piece = shape.dims().take(last).chain([1.into(), b.shape(rest).dim(last)]);
        pieces.push(b.reshape(rest, one_piece.collect::<Shape>())?);
    }
    Ok(Some(pieces))
}

/// Of each row the largest element and the sum of the exponentials of the differences from it, both
/// of `[…, 1]`. With `finite`, of an infinite maximum from 0.
pub(super) fn exponentials(
    b: &mut GraphBuilder,
    x: NodeId,
    finite: bool,
) -> Result<Option<[NodeId; 2]>> {
    let Some(pieces) = pieces(b, x)? else { return Ok(None) };
    let (last, rank) = (AxisSet::one(b.shape(x).rank()), b.shape(x).rank());
    let (mut most, mut sums) = (Pieces::new(), Pieces::new());
    for piece in pieces {
        let max = b.max(piece, last, true)?;
        // A piece of nothing but -inf adds nothing.
        let shift = finite_or_zero(b, max)?;
        let shifted = b.sub(piece, shift)?;
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
    // A product, because no kernel takes the sums on before it has them all: what gives a piece's sum
    // would wait for the maximum of the row.
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

/// Of each row the mean and the sum of the squares of the differences from it, if the axes are the
/// last ones and a row is long; both have size 1 along the axes.
pub(super) fn moments(
    b: &mut GraphBuilder,
    x: NodeId,
    axes: AxisSet,
) -> Result<Option<[NodeId; 2]>> {
    let shape = b.shape(x).clone();
    let lead = shape.rank() - axes.iter().count();
    let count = shape.dims().skip(lead).product::<Dim>();
    if axes.iter().any(|axis| axis < lead) || long(count).is_none() {
        return Ok(None);
    }
    let rows = b.reshape(x, shape.dims().take(lead).chain([count]).collect::<Shape>())?;
    let Some(pieces) = pieces(b, rows)? else { return Ok(None) };
    let (within, along) = (AxisSet::one(lead + 1), AxisSet::one(lead));
    let mut parts: SmallVec<[[NodeId; 2]; 2]> = SmallVec::new();
    let mut total = None;
    for &piece in &pieces {
        let sums = b.sum(piece, within, true)?;
        let size = b.scalar_like(sums, b.shape(piece).dim(lead + 1).get() as f64);
        parts.push([b.div(sums, size)?, size]);
        let sum = b.sum(sums, along, true)?;
        total = Some(add(b, total, sum)?);
    }
    let total = total.expect("a long row has a piece");
    let count = b.scalar_like(total, count.get() as f64);
    let mean = b.div(total, count)?;
    let mut squares = None;
    for (&piece, [of_piece, size]) in pieces.iter().zip(parts) {
        let centred = b.sub(piece, of_piece)?;
        let square = b.mul(centred, centred)?;
        let inside = b.sum(square, within, true)?;
        let inside = b.sum(inside, along, true)?;
        let difference = b.sub(of_piece, mean)?;
        let square = b.mul(difference, difference)?;
        let between = b.sum(square, along, true)?;
        let between = b.mul(between, size)?;
        let sum = b.add(inside, between)?;
        squares = Some(add(b, squares, sum)?);
    }
    let squares = squares.expect("a long row has a piece");
    let result = shape.reduced(axes, true);
    Ok(Some([b.reshape(mean, result.clone())?, b.reshape(squares, result)?]))
}

/// The sum of what there is.
fn add(b: &mut GraphBuilder, sum: Option<NodeId>, x: NodeId) -> Result<NodeId> {
    sum.map_or(Ok(x), |sum| b.add(sum, x))
}

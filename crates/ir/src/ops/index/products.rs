//! Of updates that are multiplied where they fall on one element: each one's product of the others,
//! without division, so that it is right where some are 0, and so are its derivatives.
//!
//! Updates are sorted by their index. Running products from both ends, which begin anew with each
//! index, then give what comes before an update and what comes behind it.

use super::{Op, OpCode, Vjp, axis_of};
use crate::ops::Attrs;
use crate::{DType, GraphBuilder, NodeId, Result, Shape};

/// For each update of a scatter that multiplies, the product of all other updates of its element.
pub(super) fn others(v: &mut Vjp<'_>) -> Result<NodeId> {
    let axis = axis_of(&v.op) as usize;
    let (indices, updates) = (v.inputs[1], v.inputs[2]);
    let size = v.b.shape(v.inputs[0])[axis];
    let indices = v.b.emit(Op::new(OpCode::WrapIndex, Attrs::Size(size)), &[indices])?;
    let dtype = v.b.dtype(updates);
    let wide = v.b.widen(updates)?;
    let shape = v.b.shape(updates).clone();
    // The axes that indices run over last, as one.
    let rank = v.b.shape(indices).rank();
    let lanes = v.op.code == OpCode::ScatterAlongAxis;
    let over = if lanes { axis..axis + 1 } else { axis..axis + rank };
    let order: Vec<usize> =
        (0..shape.rank()).filter(|a| !over.contains(a)).chain(over.clone()).collect();
    let moved = v.b.permute(wide, &order)?;
    let moved_shape = v.b.shape(moved).clone();
    let kept = shape.rank() - over.len();
    let count = moved_shape.part(kept..).count();
    let rows: Shape = moved_shape.part(..kept).dims().chain([count]).collect();
    let factors = v.b.reshape(moved, rows.clone())?;
    let keys = if lanes { v.b.permute(indices, &order)? } else { indices };
    let keys = match lanes {
        true => keys,
        false => {
            let flat = v.b.reshape(keys, Shape::of_dims([count]))?;
            v.b.broadcast_to(flat, rows.clone())?
        }
    };
    let out = products(v.b, keys, factors)?;
    let out = v.b.reshape(out, moved_shape)?;
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
    let out = v.b.permute(out, &inverse)?;
    v.b.cast(out, dtype)
}

/// Along rows, the product of the other factors of the same key.
fn products(b: &mut GraphBuilder, keys: NodeId, factors: NodeId) -> Result<NodeId> {
    let last = b.shape(factors).rank() - 1;
    let sort = Op::new(OpCode::Sort, Attrs::routine(false));
    let (sorted, origin) = (b.emit(sort.clone(), &[keys])?, b.emit(sort.with_result(1), &[keys])?);
    let factors = b.take_along_axis(factors, origin, last as u8)?;
    let index = b.iota(b.shape(factors).clone(), DType::I64, last as u8);
    let one = b.scalar_like(index, 1.0);
    let mut bound = |right: bool| {
        b.emit(Op::new(OpCode::SearchSorted, Attrs::routine(right)), &[sorted, sorted])
    };
    let (first, end) = (bound(false)?, bound(true)?);
    let behind = b.add(index, one)?;
    let (first, last_of) = (b.eq(first, index)?, b.eq(end, behind)?);
    let (before, after) = (running(b, factors, first, false)?, running(b, factors, last_of, true)?);
    let product = b.mul(before, after)?;
    // Back to where each came from.
    let nodes = [factors, origin, product];
    super::put_back(b, OpCode::ScatterAddAlongAxis, last as u8, nodes)
}

/// The product of the factors before each, from the last `start` on.
fn running(b: &mut GraphBuilder, factors: NodeId, start: NodeId, flag: bool) -> Result<NodeId> {
    let (zero, one) = (b.scalar_like(factors, 0.0), b.scalar_like(factors, 1.0));
    let carried = b.select(start, zero, factors)?;
    let begun = b.select(start, factors, zero)?;
    let op = Op::new(OpCode::Recurrence, Attrs::routine(flag)).with_result(1);
    let before = b.emit(op, &[carried, begun])?;
    b.select(start, one, before)
}

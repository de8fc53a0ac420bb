//! The derivative of scatters that multiply: for each update, the product of the other updates of
//! its element. It is computed without division, so that it and its derivatives are valid for
//! zeros.
//!
//! Updates are sorted by index. Segmented running products from both ends give the product of the
//! updates before and after each update.

use super::{Op, OpCode, Vjp, axis_of};
use crate::ops::Attrs;
use crate::{DType, GraphBuilder, NodeId, Result, Shape};

/// For each update of a multiplying scatter, the product of all other updates of its element.
pub(super) fn others(v: &mut Vjp<'_>) -> Result<NodeId> {
    let axis = axis_of(&v.op) as usize;
    let (indices, updates) = (v.inputs[1], v.inputs[2]);
    let size = v.b.shape(v.inputs[0])[axis];
    let indices = v.b.emit(Op::new(OpCode::WrapIndex, Attrs::Size(size)), &[indices])?;
    let dtype = v.b.dtype(updates);
    let wide = v.b.widen(updates)?;
    let shape = v.b.shape(updates).clone();
    // Move the indexed axes last and merge them.
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

/// Along rows, the product of the other factors with the same key.
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
    // Undo the sort.
    let nodes = [factors, origin, product];
    super::put_back(b, OpCode::ScatterAddAlongAxis, last as u8, nodes)
}

/// The running product of the factors before each one, restarted at `start`.
fn running(b: &mut GraphBuilder, factors: NodeId, start: NodeId, flag: bool) -> Result<NodeId> {
    let (zero, one) = (b.scalar_like(factors, 0.0), b.scalar_like(factors, 1.0));
    let carried = b.select(start, zero, factors)?;
    let begun = b.select(start, factors, zero)?;
    let op = Op::new(OpCode::Recurrence, Attrs::routine(flag)).with_result(1);
    let before = b.emit(op, &[carried, begun])?;
    b.select(start, one, before)
}

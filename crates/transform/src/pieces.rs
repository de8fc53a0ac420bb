//! Cotangents of parts of a tensor, put side by side: each user of a slice sends back zeros but for
//! its slice. Adding up what queries, keys and values got of one projection would write and read the
//! whole of it for each of them.

use crate::Result;
use girih_ir::ops::{Attrs, PadDim};
use girih_ir::{GraphBuilder, Literal, NodeId, OpCode};

/// Part of one axis and all of the others, zeros besides.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Piece {
    axis: usize,
    start: usize,
    end: usize,
    /// What is between the zeros.
    inner: NodeId,
    /// The node, zeros included.
    whole: NodeId,
}

impl Piece {
    /// `None` for nodes that are no padding of one axis, and for sizes that are not fixed.
    pub fn of(b: &GraphBuilder, whole: NodeId) -> Option<Piece> {
        let node = b.graph().node(whole);
        let (OpCode::Pad, Attrs::Pad(pad)) = (node.op.code, &node.op.attrs) else { return None };
        if pad.1 != Literal::from_i64(b.dtype(whole), 0).bits {
            return None;
        }
        let mut padded = pad.0.iter().enumerate().filter(|(_, d)| **d != PadDim::default());
        let (axis, dim) = padded.next()?;
        if padded.next().is_some() || dim.interior != 0 {
            return None;
        }
        let inner = node.inputs[0];
        let size = b.shape(inner).dim(axis).known()?;
        b.shape(whole).dim(axis).known()?;
        Some(Piece { axis, start: dim.low, end: dim.low + size, inner, whole })
    }

    fn overlaps(&self, other: &Piece) -> bool {
        self.axis != other.axis || (self.start < other.end && other.start < self.end)
    }
}

/// The sum of pieces of one tensor: those that do not overlap are joined, not added.
pub(crate) fn sum(b: &mut GraphBuilder, pieces: &[Piece]) -> Result<Option<NodeId>> {
    let mut sets: Vec<Vec<Piece>> = Vec::new();
    for piece in pieces {
        match sets.iter_mut().find(|set| set.iter().all(|other| !piece.overlaps(other))) {
            Some(set) => set.push(*piece),
            None => sets.push(vec![*piece]),
        }
    }
    let mut sum = None;
    for mut set in sets {
        let joined = join(b, &mut set)?;
        sum = Some(match sum {
            None => joined,
            Some(sum) => b.add(sum, joined)?,
        });
    }
    Ok(sum)
}

/// Pieces of one axis, none of which overlap, side by side.
fn join(b: &mut GraphBuilder, pieces: &mut [Piece]) -> Result<NodeId> {
    let &mut [Piece { axis, whole, .. }, _, ..] = pieces else { return Ok(pieces[0].whole) };
    pieces.sort_by_key(|piece| (piece.start, piece.end));
    let (shape, dtype) = (b.shape(whole).clone(), b.dtype(whole));
    let zeros = |b: &mut GraphBuilder, size: usize| {
        b.constant(Literal::from_i64(dtype, 0), shape.with_dim(axis, size))
    };
    let (mut parts, mut end) = (Vec::with_capacity(pieces.len()), 0);
    for piece in &*pieces {
        if piece.start > end {
            parts.push(zeros(b, piece.start - end));
        }
        parts.push(piece.inner);
        end = piece.end;
    }
    let size = shape.dim(axis).get();
    if size > end {
        parts.push(zeros(b, size - end));
    }
    Ok(b.concat(&parts, axis as u8)?)
}

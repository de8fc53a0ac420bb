//! Joins the cotangents of slices of one tensor. Each slice's cotangent is zero outside of the
//! slice. If queries, keys and values are slices of one projection, adding their cotangents would
//! read and write the whole tensor for each of them; concatenating them writes it once.

use crate::Result;
use girih_ir::ops::{Attrs, PadDim};
use girih_ir::{GraphBuilder, Literal, NodeId, OpCode};

/// A slice of one axis, padded with zeros to the whole axis.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Piece {
    axis: usize,
    start: usize,
    end: usize,
    /// The slice, without zeros.
    inner: NodeId,
    /// The padded node.
    whole: NodeId,
}

impl Piece {
    /// `None` for nodes that are not a zero padding of one axis, and for symbolic sizes.
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

/// The sum of padded slices of one tensor. Disjoint slices are concatenated instead of added.
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

/// Concatenates disjoint slices of one axis.
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

//! Joins the cotangents of slices of one tensor. Each slice's cotangent is zero outside of the
//! slice. If queries, keys and values are slices of one projection, adding their cotangents would
//! read and write the whole tensor for each slice; concatenating the cotangents writes the tensor
//! once.

use crate::Result;
use crate::reverse::wide_sum;
use girih_ir::ops::{Attrs, PadDim};
use girih_ir::{GraphBuilder, Literal, NodeId, OpCode};

/// A slice of one axis, padded with zeros to the whole axis.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct PaddedSlice {
    axis: usize,
    start: usize,
    end: usize,
    /// The slice, without zeros.
    inner: NodeId,
    /// The padded node.
    whole: NodeId,
}

impl PaddedSlice {
    /// `None` for nodes that are not a zero padding of one axis, and for symbolic sizes.
    pub fn of(b: &GraphBuilder, whole: NodeId) -> Option<PaddedSlice> {
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
        Some(PaddedSlice { axis, start: dim.low, end: dim.low + size, inner, whole })
    }

    fn overlaps(&self, other: &PaddedSlice) -> bool {
        self.axis != other.axis || (self.start < other.end && other.start < self.end)
    }
}

/// The sum of padded slices of one tensor, in f32 if several sums of half floats were added.
/// Disjoint slices are concatenated instead of added.
pub(crate) fn sum(b: &mut GraphBuilder, slices: &[PaddedSlice]) -> Result<Option<NodeId>> {
    let mut sets: Vec<Vec<PaddedSlice>> = Vec::new();
    for slice in slices {
        match sets.iter_mut().find(|set| set.iter().all(|other| !slice.overlaps(other))) {
            Some(set) => set.push(*slice),
            None => sets.push(vec![*slice]),
        }
    }
    let mut sum = None;
    for mut set in sets {
        let joined = join(b, &mut set)?;
        sum = Some(match sum {
            None => joined,
            Some(sum) => wide_sum(b, sum, joined)?,
        });
    }
    Ok(sum)
}

/// Concatenates disjoint slices of one axis.
fn join(b: &mut GraphBuilder, slices: &mut [PaddedSlice]) -> Result<NodeId> {
    let &mut [PaddedSlice { axis, whole, .. }, _, ..] = slices else { return Ok(slices[0].whole) };
    slices.sort_by_key(|slice| (slice.start, slice.end));
    let (shape, dtype) = (b.shape(whole).clone(), b.dtype(whole));
    let zeros = |b: &mut GraphBuilder, size: usize| {
        b.constant(Literal::from_i64(dtype, 0), shape.with_dim(axis, size))
    };
    let (mut parts, mut end) = (Vec::with_capacity(slices.len()), 0);
    for slice in &*slices {
        if slice.start > end {
            parts.push(zeros(b, slice.start - end));
        }
        parts.push(slice.inner);
        end = slice.end;
    }
    let size = shape.dim(axis).get();
    if size > end {
        parts.push(zeros(b, size - end));
    }
    Ok(b.concat(&parts, axis as u8)?)
}

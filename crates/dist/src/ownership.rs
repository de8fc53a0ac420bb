//! Ownership: which elements of a tensor each processor has under a sharding.
//!
//! A dimension is cut in chunks of `ceil(size / parts)` elements. Several axes on it act as one, the
//! first the major one: ten elements over 2 x 4 are 2, 2, 2, 2, 2, 0, 0, 0. A shard without elements
//! is as legal as any. Source: GSPMD's tiled shardings, DTensor's `Shard`, with the global shape kept.

use crate::axis::Split;
use crate::rect::Rect;
use girih_ir::sharding::{AxisRef, DeviceMesh};
use girih_ir::{OpCode, Result, Sharding};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};

/// The number of parts into which axes of a mesh cut a dimension.
pub fn parts(mesh: &DeviceMesh, axes: &[AxisRef]) -> usize {
    axes.iter().map(|axis| size_of(mesh, axis)).product()
}

/// The part of a dimension that a processor has, of those into which axes of a mesh cut it.
pub(crate) fn part(mesh: &DeviceMesh, axes: &[AxisRef], position: usize) -> usize {
    axes.iter().fold(0, |major, axis| {
        major * size_of(mesh, axis) + mesh.index_of(axis, position).expect(VALID)
    })
}

const VALID: &str = "a spec is checked against its mesh before it is used";

pub(crate) fn size_of(mesh: &DeviceMesh, axis: &AxisRef) -> usize {
    mesh.size_of(axis).expect(VALID)
}

/// The elements that each processor has, in the mesh's order. An empty shard starts at the end of
/// its dimension at the latest.
///
/// Errors: [`girih_ir::Error::InvalidArgument`] for more entries than dimensions; likewise for the
/// other functions of this module.
pub fn rectangles(sharding: &Sharding, shape: &[usize]) -> Result<Vec<Rect>> {
    let (mesh, spec) = (sharding.mesh(), sharding.spec());
    spec.check(mesh, shape.len())?;
    let cuts: SmallVec<[_; 4]> =
        (0..shape.len()).map(|dim| (spec.axes_of(dim), parts(mesh, spec.axes_of(dim)))).collect();
    let shard = |position| {
        let mut rect = Rect { start: smallvec![], extent: smallvec![] };
        for (&size, &(axes, parts)) in shape.iter().zip(&cuts) {
            let (start, len) = Split::Block { parts }.range(size, part(mesh, axes, position));
            rect.start.push(start);
            rect.extent.push(len);
        }
        rect
    };
    Ok((0..mesh.len()).map(shard).collect())
}

/// The shape of a processor's shard.
///
/// Panics if the mesh has no such processor.
pub fn local_shape(sharding: &Sharding, shape: &[usize], position: usize) -> Result<Vec<usize>> {
    let (mesh, spec) = (sharding.mesh(), sharding.spec());
    spec.check(mesh, shape.len())?;
    assert!(position < mesh.len(), "the mesh has {} processors, not {position}", mesh.len());
    let len = |(dim, &size): (usize, &usize)| {
        let axes = spec.axes_of(dim);
        Split::Block { parts: parts(mesh, axes) }.range(size, part(mesh, axes, position)).1
    };
    Ok(shape.iter().enumerate().map(len).collect())
}

/// The shape of the largest shard, which the first processor has.
pub fn largest_shape(sharding: &Sharding, shape: &[usize]) -> Result<Vec<usize>> {
    local_shape(sharding, shape, 0)
}

/// True if every processor has the whole tensor.
pub fn is_fully_replicated(sharding: &Sharding, shape: &[usize]) -> Result<bool> {
    let whole = Rect::whole(shape);
    let all = rectangles(sharding, shape)?.iter().all(|rect| *rect == whole);
    Ok(all && partial_axes(sharding).is_empty())
}

/// The axes of more than one processor over which the values of a sharding are partial.
pub(crate) fn partial_axes(sharding: &Sharding) -> Vec<AxisRef> {
    let merged = sharding.spec().merged(sharding.mesh());
    let axes = merged.partial.into_keys();
    axes.filter(|axis| size_of(sharding.mesh(), axis) > 1).collect()
}

/// For each processor, the first processor with which it shares partial values: values of equal
/// numbers are combined.
fn partial_groups(sharding: &Sharding) -> Option<(OpCode, Vec<u32>)> {
    let (mesh, axes) = (sharding.mesh(), partial_axes(sharding));
    if axes.is_empty() {
        return None;
    }
    let mut first = std::collections::BTreeMap::new();
    let leader = |position| {
        let group = without(mesh, &axes, position);
        *first.entry(group).or_insert(mesh.device(position))
    };
    Some((sharding.spec().partial_op()?, (0..mesh.len()).map(leader).collect()))
}

/// The position of the processor that is first along some axes and else where `position` is.
pub(crate) fn without(mesh: &DeviceMesh, axes: &[AxisRef], position: usize) -> usize {
    let mut found = position;
    for axis in axes {
        let at = mesh.axis(axis.name()).expect(VALID);
        let shape = mesh.shape();
        let stride: usize = shape[at + 1..].iter().product();
        let minor = axis.sub().map_or(1, |sub| shape[at] / (sub.pre_size * sub.size));
        found -= mesh.index_of(axis, position).expect(VALID) * minor * stride;
    }
    found
}

/// True if each device has the same elements of a tensor under both shardings, and the same partial
/// values are combined: a reshard moves nothing and changes nothing. Names of axes, axes of size 1
/// and the order of the processors do not count.
pub fn same_ownership(a: &Sharding, b: &Sharding, shape: &[usize]) -> Result<bool> {
    let owned = |sharding: &Sharding| -> Result<_> {
        let mesh = sharding.mesh();
        let groups = partial_groups(sharding);
        let op = groups.as_ref().map(|(op, _)| *op);
        let mut owned = Vec::with_capacity(mesh.len());
        for (position, rect) in rectangles(sharding, shape)?.into_iter().enumerate() {
            let device = mesh.device(position);
            // Where an empty shard starts does not matter.
            let rect = (!rect.is_empty()).then_some(rect);
            owned.push((device, rect, groups.as_ref().map(|(_, leaders)| leaders[position])));
        }
        owned.sort();
        Ok((op, owned))
    };
    let (op, mut first) = owned(a)?;
    let (other, mut second) = owned(b)?;
    renumber(&mut first);
    renumber(&mut second);
    Ok(op == other && first == second)
}

/// True if each device has the same elements of every tensor under both shardings, and the same
/// partial values are combined. Priorities and open dimensions do not count, nor does what
/// [`same_ownership`] leaves out.
pub fn equivalent(a: &Sharding, b: &Sharding) -> bool {
    if a == b {
        return true;
    }
    if a.mesh().is_ghost() != b.mesh().is_ghost() {
        return false;
    }
    let rank = a.spec().dims.len().max(b.spec().dims.len());
    let cuts = |of: &Sharding| -> Vec<usize> {
        (0..rank).map(|dim| parts(of.mesh(), of.spec().axes_of(dim))).collect()
    };
    // With one element for each part, two devices have the same elements if they have the same part.
    let shape = cuts(a);
    shape == cuts(b) && same_ownership(a, b, &shape).unwrap_or(false)
}

/// Hashes what [`equivalent`] shardings have in common.
pub fn hash_ownership(sharding: &Sharding, state: &mut impl Hasher) {
    let (mesh, spec) = (sharding.mesh(), sharding.spec());
    (mesh.len(), mesh.is_ghost()).hash(state);
    for (dim, entry) in spec.dims.iter().enumerate() {
        match parts(mesh, &entry.axes) {
            1 => {}
            parts => (dim, parts).hash(state),
        }
    }
    if !partial_axes(sharding).is_empty() {
        spec.partial_op().map(|op| op.def().name).hash(state);
    }
}

/// Names each group by its lowest device.
fn renumber(owned: &mut [(u32, Option<Rect>, Option<u32>)]) {
    let mut lowest = std::collections::BTreeMap::new();
    for (device, _, group) in owned {
        *group = group.map(|leader| *lowest.entry(leader).or_insert(*device));
    }
}

#[cfg(test)]
mod tests;

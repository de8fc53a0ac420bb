//! Index maps: affine maps from an op's iteration space to the elements of its operands and result.
//! Kernels are generated from them, views are composed with them, and factors are derived from
//! them.

use crate::ops::{Attrs, AxisSet, OpCall};
use crate::{Shape, TensorSpec};
use smallvec::{SmallVec, smallvec};

/// Index along one tensor axis: `offset + sum(step * i[dim])`. Windows have two terms for each
/// axis, all other relations have one term or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct AxisIndex {
    /// Index at the origin.
    pub offset: isize,
    /// Iteration dimensions that move along this axis, with their steps in elements.
    pub terms: SmallVec<[(usize, isize); 2]>,
}

impl AxisIndex {
    /// The index equal to an iteration dimension.
    pub fn dim(dim: usize) -> Self {
        AxisIndex::affine(0, dim, 1)
    }

    /// The index `offset + step * i[dim]`.
    pub fn affine(offset: isize, dim: usize, step: isize) -> Self {
        AxisIndex { offset, terms: smallvec![(dim, step)] }
    }

    /// Index 0, whatever the iteration dimensions are.
    pub fn zero() -> Self {
        AxisIndex::default()
    }

    /// Adds a multiple of a dimension.
    fn add(&mut self, dim: usize, step: isize) {
        match self.terms.iter_mut().find(|t| t.0 == dim) {
            Some(term) => term.1 += step,
            None => self.terms.push((dim, step)),
        }
    }
}

/// Index along every axis of one tensor, as a function of the iteration space.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct IndexMap(pub SmallVec<[AxisIndex; 4]>);

impl IndexMap {
    /// Axis `i` follows dimension `first + i`.
    pub fn identity(first: usize, rank: usize) -> Self {
        IndexMap((first..first + rank).map(AxisIndex::dim).collect())
    }

    /// Substitutes `self` into `inner`, which is a map over the axes of a result. Returns the map
    /// that `inner` becomes if this result is read through `self`.
    pub fn then(&self, inner: &IndexMap) -> IndexMap {
        let axis = |a: &AxisIndex| {
            let mut out = AxisIndex { offset: a.offset, terms: SmallVec::new() };
            for &(dim, step) in &a.terms {
                let outer = &self.0[dim];
                out.offset += step * outer.offset;
                outer.terms.iter().for_each(|&(d, s)| out.add(d, step * s));
            }
            out
        };
        IndexMap(inner.0.iter().map(axis).collect())
    }

    /// The offset at the origin and the stride for each iteration dimension, both in elements, for
    /// a tensor with these strides.
    pub fn strides(&self, tensor: &[isize], dims: usize) -> (isize, SmallVec<[isize; 6]>) {
        let mut offset = 0;
        let mut out: SmallVec<[isize; 6]> = smallvec![0; dims];
        for (axis, &stride) in self.0.iter().zip(tensor) {
            offset += axis.offset * stride;
            for &(dim, step) in &axis.terms {
                out[dim] += step * stride;
            }
        }
        (offset, out)
    }
}

/// An op as a loop nest: the extents of the iteration space, the number of leading parallel
/// dimensions (the others are reduced), and an index map for each operand. The result is written in
/// row-major order of the parallel dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// Size of each dimension.
    pub extents: SmallVec<[usize; 6]>,
    /// Leading dimensions that index the result.
    pub parallel: usize,
    /// One index map for each operand.
    pub operands: SmallVec<[IndexMap; 3]>,
}

fn broadcast_map(from: &Shape, to: &Shape) -> IndexMap {
    let lead = to.rank() - from.rank();
    let axis = |(i, &size): (usize, &usize)| match size == 1 && to[lead + i] != 1 {
        true => AxisIndex::zero(),
        false => AxisIndex::dim(lead + i),
    };
    IndexMap(from.iter().enumerate().map(axis).collect())
}

fn over_result(out: &TensorSpec, operands: impl IntoIterator<Item = IndexMap>) -> Iteration {
    Iteration {
        extents: out.shape.iter().copied().collect(),
        parallel: out.shape.rank(),
        operands: operands.into_iter().collect(),
    }
}

/// All operands broadcast to the result.
pub fn elementwise_iteration(call: OpCall<'_>, out: &TensorSpec) -> Iteration {
    over_result(out, call.inputs.iter().map(|s| broadcast_map(&s.shape, &out.shape)))
}

/// The operand broadcasts to the result.
pub fn broadcast_iteration(call: OpCall<'_>, out: &TensorSpec) -> Iteration {
    elementwise_iteration(call, out)
}

/// Result axis `i` is operand axis `perm[i]`.
pub fn permute_iteration(call: OpCall<'_>, out: &TensorSpec) -> Iteration {
    let Attrs::Perm(perm) = &call.op.attrs else { unreachable!("permute carries a permutation") };
    let mut map = IndexMap::identity(0, perm.len());
    for (i, &axis) in perm.iter().enumerate() {
        map.0[axis as usize] = AxisIndex::dim(i);
    }
    over_result(out, [map])
}

/// Result index `i` is operand index `start + step * i`.
pub fn slice_iteration(call: OpCall<'_>, out: &TensorSpec) -> Iteration {
    let Attrs::Slice(dims) = &call.op.attrs else { unreachable!("slice carries bounds") };
    let axis = |(i, d): (usize, &crate::ops::SliceDim)| {
        AxisIndex::affine(d.start as isize, i, d.step as isize)
    };
    over_result(out, [IndexMap(dims.iter().enumerate().map(axis).collect())])
}

/// Flipped axes run backwards from the last element.
pub fn flip_iteration(call: OpCall<'_>, out: &TensorSpec) -> Iteration {
    let Attrs::Axes { axes, .. } = call.op.attrs else { unreachable!("flip carries axes") };
    let mut map = IndexMap::identity(0, out.shape.rank());
    for axis in axes.iter() {
        let last = out.shape[axis].max(1) as isize - 1;
        map.0[axis] = AxisIndex::affine(last, axis, -1);
    }
    over_result(out, [map])
}

/// Element `k` of window `i` is at `i * step + k * dilation`. The axes of the window elements are
/// the result's last axes.
pub fn windows_iteration(call: OpCall<'_>, out: &TensorSpec) -> Iteration {
    let Attrs::Windows(dims) = &call.op.attrs else { unreachable!("windows carry windows") };
    let rank = call.inputs[0].shape.rank();
    let lead = rank - dims.len();
    let mut map = IndexMap::identity(0, rank);
    for (i, d) in dims.iter().enumerate() {
        let axis = &mut map.0[lead + i];
        *axis = AxisIndex::affine(0, lead + i, d.step as isize);
        axis.add(rank + i, d.dilation as isize);
    }
    over_result(out, [map])
}

/// Parallel axes first, then the reduced axes.
pub fn reduce_iteration(call: OpCall<'_>, _: &TensorSpec) -> Iteration {
    let Attrs::Axes { axes, .. } = call.op.attrs else { unreachable!("reductions carry axes") };
    let shape = &call.inputs[0].shape;
    let kept = AxisSet(AxisSet::all(shape.rank()).0 & !axes.0);
    let mut map = IndexMap::identity(0, shape.rank());
    let mut extents = SmallVec::new();
    for (dim, axis) in kept.iter().chain(axes.iter()).enumerate() {
        map.0[axis] = AxisIndex::dim(dim);
        extents.push(shape[axis]);
    }
    Iteration { extents, parallel: kept.len(), operands: smallvec![map] }
}

/// `b… m n | k`: batch axes, rows and columns are parallel, K is reduced.
pub fn matmul_iteration(call: OpCall<'_>, out: &TensorSpec) -> Iteration {
    let rank = out.shape.rank();
    let k = rank;
    let operand = |shape: &Shape, rows: usize, cols: usize| {
        let batch = Shape::from(&shape[..shape.rank() - 2]);
        let mut map = broadcast_map(&batch, &Shape::from(&out.shape[..rank - 2]));
        map.0.push(AxisIndex::dim(rows));
        map.0.push(AxisIndex::dim(cols));
        map
    };
    let (a, b) = (&call.inputs[0].shape, &call.inputs[1].shape);
    Iteration {
        extents: out.shape.iter().copied().chain([a[a.rank() - 1]]).collect(),
        parallel: rank,
        operands: smallvec![operand(a, rank - 2, k), operand(b, k, rank - 1)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Op, OpCode};

    #[test]
    fn maps_of_views_compose_by_substitution() {
        // A [4, 6] tensor sliced by [1:4:2, ::3] to [2, 2], then transposed, then flipped along
        // axis 0.
        let sliced = IndexMap(smallvec![AxisIndex::affine(1, 0, 2), AxisIndex::affine(0, 1, 3),]);
        let transposed = IndexMap(smallvec![AxisIndex::dim(1), AxisIndex::dim(0)]);
        let flipped = IndexMap(smallvec![AxisIndex::affine(1, 0, -1), AxisIndex::dim(1)]);
        let map = flipped.then(&transposed).then(&sliced);
        let (offset, strides) = map.strides(&[6, 1], 2);
        assert_eq!((offset, strides.as_slice()), (6 + 3, &[-3, 12][..]));
    }

    #[test]
    fn windows_of_a_flipped_axis_have_negative_strides() {
        // Windows of three elements with step two, over ten elements in reverse order.
        let mut axis = AxisIndex::affine(0, 0, 2);
        axis.add(1, 1);
        let windows = IndexMap(smallvec![axis]);
        let flipped = IndexMap(smallvec![AxisIndex::affine(9, 0, -1)]);
        let (offset, strides) = windows.then(&flipped).strides(&[4], 2);
        assert_eq!((offset, strides.as_slice()), (36, &[-8, -4][..]));
    }

    #[test]
    fn a_matmul_iterates_batch_rows_columns_then_the_shared_axis() {
        let (a, b) = (TensorSpec::new([5, 2, 3], DType::F32), TensorSpec::new([3, 4], DType::F32));
        let op = Op::from(OpCode::Matmul);
        let out = op.infer(&[&a, &b]).unwrap();
        let it = matmul_iteration(OpCall { op: &op, inputs: &[&a, &b] }, &out);
        assert_eq!(it.extents.as_slice(), &[5, 2, 4, 3]);
        assert_eq!(it.operands[0].strides(&a.shape.strides(), 4).1.as_slice(), &[6, 3, 0, 1]);
        assert_eq!(it.operands[1].strides(&b.shape.strides(), 4).1.as_slice(), &[0, 0, 1, 4]);
    }
}

//! The iteration space of a kernel under construction: axes of a tensor, split where a reshape
//! needs it, laid out as dimensions; and the merging of adjacent dimensions.

use super::map::{Axis, Dims};
use super::plan::{Group, GroupRole, scattered};
use girih_ir::{Attrs, Class, Graph, Iteration, Node, NodeId, OpCode};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// The role of a dimension. Dimensions of equal role may merge, and a batch dimension may merge
/// into rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DimRole {
    /// Parallel, or a batch dimension of a GEMM.
    Parallel,
    /// Rows (M) of a GEMM.
    Rows,
    /// Columns (N) of a GEMM.
    Columns,
    /// Reduced, or the K of a GEMM.
    Reduced,
    /// A scatter's dimension along which updates may collide.
    Colliding,
}

#[derive(Clone, Debug)]
struct SpaceAxis {
    role: DimRole,
    /// The sizes of the dimensions into which the axis is split, outermost first.
    factors: SmallVec<[usize; 2]>,
}

impl SpaceAxis {
    /// Axes of one element have no dimension, except in GEMMs, whose axes are identified by
    /// position.
    fn dropped(&self) -> bool {
        let named = matches!(self.role, DimRole::Rows | DimRole::Columns | DimRole::Reduced);
        !named && self.factors.as_slice() == [1]
    }
}

/// The axes of an iteration space.
#[derive(Clone, Debug)]
pub(super) struct Space {
    axes: SmallVec<[SpaceAxis; 6]>,
}

/// The loops over a space: one for each dimension.
#[derive(Clone, Debug)]
pub(super) struct LoopNest {
    /// The sizes of the dimensions.
    pub extents: Dims<usize>,
    /// The roles of the dimensions.
    pub roles: Dims<DimRole>,
    /// The number of parallel dimensions.
    pub parallel: usize,
    /// The index along each axis of the space.
    pub axes: SmallVec<[Axis; 6]>,
}

impl Space {
    /// A space whose axes are all parallel.
    pub fn parallel(sizes: &[usize]) -> Space {
        Space::with_roles(sizes, |_| DimRole::Parallel)
    }

    /// A space whose axes have the given roles.
    pub fn with_roles(sizes: &[usize], role: impl Fn(usize) -> DimRole) -> Space {
        let axis =
            |(i, &size): (usize, &usize)| SpaceAxis { role: role(i), factors: smallvec![size] };
        Space { axes: sizes.iter().enumerate().map(axis).collect() }
    }

    /// A space whose leading axes are parallel, and whose other axes are reduced. There is at least
    /// one reduced dimension, so that a reduction over a single element still combines it with the
    /// identity.
    pub fn reduce(sizes: &[usize], parallel: usize) -> Space {
        let mut space = Space::parallel(&sizes[..parallel]);
        let reduced = sizes[parallel..].iter().filter(|&&size| size != 1);
        // Axes of one element stay in the list but get no dimension.
        let role = |&size: &usize| if size == 1 { DimRole::Parallel } else { DimRole::Reduced };
        for size in &sizes[parallel..] {
            space.axes.push(SpaceAxis { role: role(size), factors: smallvec![*size] });
        }
        if reduced.count() == 0 {
            space.axes.push(SpaceAxis { role: DimRole::Reduced, factors: smallvec![1] });
        }
        space
    }

    /// Splits the dimension with that number into an outer dimension and a dimension of `inner`
    /// points.
    pub fn split(&mut self, dim: usize, inner: usize) {
        let mut next = 0;
        for axis in self.axes.iter_mut().filter(|a| !a.dropped()) {
            if dim < next + axis.factors.len() {
                let factor = &mut axis.factors[dim - next];
                *factor /= inner;
                axis.factors.insert(dim - next + 1, inner);
                return;
            }
            next += axis.factors.len();
        }
    }

    /// Numbers the dimensions.
    pub fn loop_nest(&self) -> LoopNest {
        let mut out = LoopNest {
            extents: Dims::new(),
            roles: Dims::new(),
            parallel: 0,
            axes: SmallVec::new(),
        };
        for axis in &self.axes {
            let mut index = Axis::zero();
            if !axis.dropped() {
                let mut step: usize = axis.factors.iter().product();
                for &factor in &axis.factors {
                    step /= factor;
                    // A dimension of one point contributes nothing.
                    if factor != 1 {
                        index.add_term(out.extents.len() as u32, step as isize);
                    }
                    out.extents.push(factor);
                    out.roles.push(axis.role);
                }
            }
            out.axes.push(index);
        }
        out.parallel = out.roles.iter().filter(|r| **r != DimRole::Reduced).count();
        out
    }
}

/// The node whose value a kernel's body ends with.
pub(super) fn value_of(graph: &Graph, group: &Group) -> NodeId {
    let inputs = &graph.node(group.root).inputs;
    match group.role {
        GroupRole::Value | GroupRole::Fill => group.root,
        GroupRole::Part { operand, .. } => inputs[operand],
        GroupRole::Scatter => {
            let updates = scattered(graph.node(group.root)).updates;
            if graph.spec(updates).numel() == 0 { group.root } else { updates }
        }
        GroupRole::Library => unreachable!("routines are not built from loops"),
    }
}

/// The iteration space of a kernel.
pub(super) fn of_kernel(graph: &Graph, group: &Group, core: Option<&(NodeId, Iteration)>) -> Space {
    let value = value_of(graph, group);
    let sizes = &graph.spec(value).shape;
    if let Some((core, nest)) = core {
        if graph.node(*core).op.class() == Class::Reduction {
            return Space::reduce(&nest.extents, nest.parallel);
        }
        let (rows, columns) = (nest.parallel - 2, nest.parallel - 1);
        return Space::with_roles(&nest.extents, |i| match i {
            i if i < rows => DimRole::Parallel,
            i if i == rows => DimRole::Rows,
            i if i == columns => DimRole::Columns,
            _ => DimRole::Reduced,
        });
    }
    let root = graph.node(group.root);
    let (GroupRole::Scatter, Some(indexed)) = (group.role, indexed_axes(graph, root)) else {
        return Space::parallel(sizes);
    };
    Space::with_roles(sizes, |i| match indexed.contains(&i) && value != group.root {
        true => DimRole::Colliding,
        false => DimRole::Parallel,
    })
}

/// The axes of a scatter's updates that its indices address.
pub(super) fn indexed_axes(graph: &Graph, node: &Node) -> Option<Range<usize>> {
    let (Attrs::Scatter { axis, .. } | Attrs::ScatterInto { axis, .. }) = node.op.attrs else {
        return None;
    };
    let rank = match node.op.code {
        OpCode::ScatterAdd | OpCode::Scatter => graph.spec(scattered(node).indices).shape.rank(),
        _ => 1,
    };
    Some(axis as usize..axis as usize + rank)
}

/// Merges adjacent dimensions wherever all strides permit it. Strides with fewer dimensions are
/// over the leading dimensions. `rhs` is the index of B in `strides`; B must not move along
/// dimensions that become rows.
pub(super) fn collapse(nest: &mut LoopNest, strides: &mut [&mut Dims<isize>], rhs: Option<usize>) {
    for outer in (0..nest.extents.len().saturating_sub(1)).rev() {
        let inner = outer + 1;
        let (a, b) = (nest.roles[outer], nest.roles[inner]);
        if a != b && (a, b) != (DimRole::Parallel, DimRole::Rows) {
            continue;
        }
        let (outer_size, inner_size) = (nest.extents[outer], nest.extents[inner]);
        let even = |s: &Dims<isize>| s[outer] == s[inner] * inner_size as isize;
        let alone = outer_size == 1 || inner_size == 1;
        let rows = a != b;
        if rows && rhs.is_some_and(|rhs| strides[rhs][outer] != 0) {
            continue;
        }
        if !alone && !strides.iter().all(|s| s.len() <= inner || even(s)) {
            continue;
        }
        for s in strides.iter_mut().filter(|s| s.len() > inner) {
            if inner_size == 1 {
                s[inner] = s[outer];
            }
            s.remove(outer);
        }
        nest.extents[inner] *= outer_size;
        nest.extents.remove(outer);
        nest.roles.remove(outer);
        nest.parallel -= (a != DimRole::Reduced) as usize;
    }
    let Some(rhs) = rhs else { return };
    // Other batch dimensions along which B does not move become rows.
    for at in (0..nest.parallel).rev() {
        match nest.roles[at] {
            DimRole::Parallel if strides[rhs][at] == 0 => nest.roles[at] = DimRole::Rows,
            DimRole::Parallel => break,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_dimensions_merge_and_transposed_ones_do_not() {
        let mut nest = Space::parallel(&[2, 1, 3, 4]).loop_nest();
        assert_eq!(nest.extents.as_slice(), &[2, 3, 4]);
        let (mut a, mut b) = (smallvec![12, 4, 1], smallvec![0, 4, 1]);
        collapse(&mut nest, &mut [&mut a, &mut b], None);
        assert_eq!(nest.extents.as_slice(), &[2, 12]);
        assert_eq!((a.as_slice(), b.as_slice()), (&[12, 1][..], &[0, 1][..]));
    }

    #[test]
    fn a_split_axis_moves_by_both_its_dimensions() {
        let mut space = Space::reduce(&[6, 1, 8], 2);
        space.split(0, 3);
        let nest = space.loop_nest();
        assert_eq!((nest.extents.as_slice(), nest.parallel), (&[2, 3, 8][..], 2));
        assert_eq!(nest.axes[0].terms.as_slice(), &[(0, 3), (1, 1)]);
        assert!(nest.axes[1].terms.is_empty());
    }

    #[test]
    fn batch_merges_into_rows_where_the_other_operand_ignores_both() {
        let roles = [DimRole::Parallel, DimRole::Rows, DimRole::Columns, DimRole::Reduced];
        let mut nest = Space::with_roles(&[5, 2, 4, 3], |i| roles[i]).loop_nest();
        let (mut a, mut b) = (smallvec![6, 3, 0, 1], smallvec![0, 0, 1, 4]);
        collapse(&mut nest, &mut [&mut a, &mut b], Some(1));
        assert_eq!((nest.extents.as_slice(), nest.parallel), (&[10, 4, 3][..], 2));
        let mut nest = Space::with_roles(&[5, 1, 4, 3], |i| roles[i]).loop_nest();
        let (mut a, mut b) = (smallvec![3, 0, 0, 1], smallvec![12, 0, 1, 4]);
        collapse(&mut nest, &mut [&mut a, &mut b], Some(1));
        assert_eq!(nest.extents.as_slice(), &[5, 1, 4, 3]);
    }
}

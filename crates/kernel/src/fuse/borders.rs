//! Borders of padding. A pad is lowered to a kernel that fills the whole result and a kernel that
//! stores the operand in the middle. If the result is large and not padded row by row in the cache
//! (see [`super::rows`]), the first kernel then costs as much memory traffic as the second one. This
//! pass replaces it by a kernel that fills the elements around the operand only.
//!
//! The elements of the operand are runs at regular distances: of rows, of planes, and so on. The
//! border is the elements before the first run, the gaps between the runs, with one map per
//! dimension, and the elements after the last run.

use super::Lowering;
use super::build::Built;
use crate::ir::{Access, Core, Kernel, KernelProgram, RowwiseCore, Store};
use smallvec::SmallVec;

/// Replaces fills by fills of borders where that pays.
pub(super) fn split(lowering: Lowering<'_>, built: &mut Built) {
    let Built { program, .. } = built;
    for at in 0..program.kernels.len() {
        if let Some(border) = border_of(program, at, lowering.target.min_border_bytes) {
            program.kernels[at] = border;
        }
    }
}

/// The kernel that fills the border only, if kernel `at` fills a buffer of at least `min_bytes`
/// into which one later kernel stores.
fn border_of(program: &KernelProgram, at: usize, min_bytes: usize) -> Option<Kernel> {
    let fill = &program.kernels[at];
    let buffer = fill.fills_in_order().filter(|_| fill.accesses.is_empty())?;
    let of = &program.buffers[buffer.0 as usize];
    if fill.points() != of.numel || of.size_bytes() < min_bytes {
        return None;
    }
    let mut writers = program.kernels[at + 1..].iter().filter(|k| k.writes().any(|b| b == buffer));
    let (inner, None) = (writers.next()?, writers.next()) else { return None };
    // The index of a scatter moves its store.
    if matches!(inner.core, Core::Scatter { .. }) {
        return None;
    }
    let store = inner.stores.iter().find(|store| store.access.buffer == buffer)?;
    let inside = Inside::of(&store.access, &inner.extents[..inner.parallel])?;
    let parts = inside.border(of.numel);
    let cost: usize = parts.iter().map(|part| part.cost(of.dtype.size())).sum();
    if parts.is_empty() || 2 * cost > of.size_bytes() {
        return None;
    }
    let part = |part: &Part| Kernel {
        name: "pad_fill".into(),
        parallel: part.extents.len(),
        extents: part.extents.clone(),
        stores: fill.stores.iter().map(|store| part.store(store)).collect(),
        ..fill.clone()
    };
    let parts = parts.iter().map(part).collect();
    Some(Kernel {
        name: "pad_border".into(),
        extents: SmallVec::from_slice(&[1]),
        parallel: 1,
        accesses: Vec::new(),
        core: Core::Rows(Box::new(RowwiseCore { parts, locals: Vec::new() })),
        body: Default::default(),
        stores: Vec::new(),
    })
}

/// The elements in the middle of a buffer: runs of consecutive elements, the first at `offset`.
struct Inside {
    offset: usize,
    /// The stride and the number of steps of each dimension, the largest stride first. The last
    /// dimension is the run.
    dims: SmallVec<[(usize, usize); 6]>,
}

/// A part of a border: runs of consecutive elements along the last dimension.
struct Part {
    offset: isize,
    extents: SmallVec<[usize; 6]>,
    strides: SmallVec<[isize; 6]>,
}

impl Inside {
    /// The elements of a store; `None` if they are not runs of consecutive elements.
    fn of(access: &Access, extents: &[usize]) -> Option<Inside> {
        let mut dims: SmallVec<[(usize, usize); 6]> = SmallVec::new();
        for (&stride, &extent) in access.strides.iter().zip(extents).filter(|d| *d.1 > 1) {
            dims.push((usize::try_from(stride).ok()?, extent));
        }
        dims.sort_unstable_by(|a, b| b.cmp(a));
        let inside = Inside { offset: usize::try_from(access.offset).ok()?, dims };
        let dims = &inside.dims;
        let nested = (0..dims.len()).all(|d| inside.span(d + 1) <= dims[d].0);
        (dims.last()?.0 == 1 && nested).then_some(inside)
    }

    /// The number of elements from the first to the last one of the dimensions from `first` on.
    fn span(&self, first: usize) -> usize {
        1 + self.dims[first..].iter().map(|(stride, steps)| stride * (steps - 1)).sum::<usize>()
    }

    /// The other elements of a buffer of `numel` elements.
    fn border(&self, numel: usize) -> Vec<Part> {
        let dense = |offset: usize, extent: usize| Part {
            offset: offset as isize,
            extents: SmallVec::from_slice(&[extent]),
            strides: SmallVec::from_slice(&[1]),
        };
        let gap = |(d, &(stride, steps)): (usize, &(usize, usize))| {
            let span = self.span(d + 1);
            let outer = self.dims[..d].iter().copied().chain([(stride, steps - 1)]);
            let dims = || outer.clone().chain([(1, stride - span)]);
            Part {
                offset: (self.offset + span) as isize,
                extents: dims().map(|(_, extent)| extent).collect(),
                strides: dims().map(|(stride, _)| stride as isize).collect(),
            }
        };
        let end = self.offset + self.span(0);
        let mut parts = vec![dense(0, self.offset)];
        parts.extend(self.dims.iter().enumerate().map(gap));
        parts.push(dense(end, numel - end));
        parts.retain(|part| part.extents.iter().all(|&extent| extent > 0));
        parts
    }
}

impl Part {
    /// The store of a fill, for this part.
    fn store(&self, store: &Store) -> Store {
        let (offset, strides) = (self.offset, self.strides.clone());
        Store { access: Access { offset, strides, ..store.access.clone() }, ..store.clone() }
    }

    /// The time of filling the part, in the time of filling one byte of a dense buffer.
    fn cost(&self, size: usize) -> usize {
        /// The cost of starting a run.
        const RUN: usize = 192;
        let points: usize = self.extents.iter().product();
        let runs = points / self.extents.last().copied().unwrap_or(1);
        points * size + runs * RUN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::BufferId;
    use girih_ir::DType;

    /// The access of these strides and extents.
    fn access(offset: isize, dims: &[(isize, usize)]) -> (Access, Vec<usize>) {
        let strides = dims.iter().map(|d| d.0).collect();
        let access = Access { buffer: BufferId(0), dtype: DType::F32, offset, strides };
        (access, dims.iter().map(|d| d.1).collect())
    }

    /// Checks that the inside and its border are each element once.
    fn check(offset: isize, dims: &[(isize, usize)], numel: usize) -> usize {
        let (access, extents) = access(offset, dims);
        let inside = Inside::of(&access, &extents).expect("runs");
        let mut count = vec![0; numel];
        let mut visit = |offset: isize, extents: &[usize], strides: &[isize]| {
            for point in 0..extents.iter().product() {
                let (mut rest, mut at): (usize, isize) = (point, offset);
                for (extent, stride) in extents.iter().zip(strides).rev() {
                    at += (rest % extent) as isize * stride;
                    rest /= extent;
                }
                count[at as usize] += 1;
            }
        };
        visit(access.offset, &extents, &access.strides);
        let parts = inside.border(numel);
        parts.iter().for_each(|part| visit(part.offset, &part.extents, &part.strides));
        assert!(count.iter().all(|&n| n == 1), "{offset} {dims:?} {count:?}");
        parts.len()
    }

    #[test]
    fn a_border_is_every_element_around_the_runs() {
        assert_eq!(check(2, &[(1, 5)], 9), 2);
        assert_eq!(check(0, &[(1, 5)], 9), 1, "padded at the end");
        assert_eq!(check(4, &[(1, 5)], 9), 1, "padded at the start");
        assert_eq!(check(7, &[(6, 3), (1, 4)], 30), 3);
        assert_eq!(check(7, &[(1, 4), (6, 3)], 30), 3, "in any order of dimensions");
        assert_eq!(check(43, &[(30, 2), (6, 3), (1, 4)], 120), 4);
        assert_eq!(check(30, &[(30, 2), (6, 5), (1, 6)], 120), 2, "whole planes are one run");
        assert_eq!(check(31, &[(30, 2), (6, 5), (1, 4), (1, 1)], 120), 4, "padded columns");
    }

    #[test]
    fn stores_of_other_forms_have_no_border() {
        let of = |offset, dims: &[(isize, usize)]| {
            let (access, extents) = access(offset, dims);
            Inside::of(&access, &extents).is_some()
        };
        assert!(of(7, &[(6, 3), (1, 4)]));
        assert!(!of(7, &[(6, 3), (2, 2)]), "elements with gaps");
        assert!(!of(20, &[(-6, 3), (1, 4)]), "backwards");
        assert!(!of(0, &[(3, 3), (1, 4)]), "overlapping runs");
        assert!(!of(3, &[(1, 1)]), "a single element");
    }

    #[test]
    fn a_scatter_onto_a_fill_has_no_border() {
        // Updates of 3 rows, which the index moves by a row or not, and the same store of a map.
        let program = |inner: &str| {
            let text = format!(
                "b0 = argument 0: i64[1]\nb1 = argument 1: f32[6000]\nb2 = f32[8000]\n\
                 fill over [8000]\n  v0 = 2.0:f32\n  b2[i0] = v0\n\
                 inner over [6000]\n{inner}  v0 = load b1[i0]\n  b2[i0] = v0\noutputs: [b2]"
            );
            KernelProgram::parse(&text)
        };
        let scatter = "  scatter_add onto + 2000*b0[0] of 2, independent []\n";
        let scatter = program(scatter).expect("a scatter onto a fill");
        assert_eq!(border_of(&scatter, 0, 0), None);
        // Alone, the map leaves elements that only the fill writes.
        let mut map = scatter;
        map.kernels[1].core = Core::Map;
        assert!(border_of(&map, 0, 0).is_some());
    }
}

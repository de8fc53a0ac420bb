//! Index expressions on tensors with symbolic sizes. Axes taken whole, cut at a known distance from
//! either end or looked up by one tensor keep their symbols; whatever else there is fixes them and
//! goes the general way.

use super::Index;
use crate::{Result, Tensor};
use girih_ir::ops::SliceDim;
use girih_ir::{Dim, Shape};

/// What is taken of an axis, and how much that is.
type Taken = (SliceDim, Dim);

fn whole(size: Dim) -> Taken {
    (SliceDim { start: 0, size: size.hint(), step: 1 }, size)
}

/// `start..stop` of an axis; None for what is not handled here.
fn cut(start: Option<i64>, stop: Option<i64>, step: i64, size: Dim) -> Option<Taken> {
    if (start, stop, step) == (None, None, 1) {
        return Some(whole(size));
    }
    if let Some(size) = size.known() {
        let (part, backward) = super::plan::resolve_slice(start, stop, step, size).ok()?;
        return (!backward).then(|| (part, part.size.into()));
    }
    let first = usize::try_from(start.unwrap_or(0)).ok().filter(|_| step == 1)?;
    let end = match stop {
        None => size,
        Some(stop) => {
            let distance = usize::try_from(stop.unsigned_abs()).ok()?;
            match (size.at_least(distance), stop < 0) {
                (true, true) => size - distance,
                (true, false) => distance.into(),
                (false, true) => return None,
                (false, false) => size,
            }
        }
    };
    let taken = end.at_least(first).then(|| end - first)?;
    Some((SliceDim { start: first, size: taken.hint(), step: 1 }, taken))
}

/// An expression in the course of being resolved.
#[derive(Default)]
struct Resolved {
    parts: Vec<Taken>,
    /// The result's sizes, were there no tensor.
    shape: Vec<Dim>,
    /// The tensor, the axis it looks up, and the axis of the result where its own begin.
    take: Option<(Tensor, usize, usize)>,
}

impl Resolved {
    fn keep(&mut self, part: Taken) {
        self.shape.push(part.1);
        self.parts.push(part);
    }

    /// False for an entry that is not handled here.
    fn entry(&mut self, entry: &Index, shape: &Shape, spare: usize) -> bool {
        let axis = self.parts.len();
        match entry {
            Index::NewAxis => self.shape.push(1.into()),
            Index::Ellipsis => (axis..axis + spare).for_each(|i| self.keep(whole(shape.dim(i)))),
            &Index::Slice { start, stop, step } => match cut(start, stop, step, shape.dim(axis)) {
                Some(part) => self.keep(part),
                None => return false,
            },
            &Index::At(at) => {
                let size = shape.dim(axis);
                let back = size.known().filter(|_| at < 0).map_or(0, |size| size as i64);
                let Ok(start) = usize::try_from(at + back) else { return false };
                if !size.at_least(Dim::from(start) + 1usize) {
                    return false;
                }
                self.parts.push((SliceDim { start, size: 1, step: 1 }, 1.into()));
            }
            Index::Take(tensor) => {
                if self.take.is_some() || !tensor.dtype().is_int() || shape.dim(axis).equals(0) {
                    return false;
                }
                self.take = Some((tensor.clone(), axis, self.shape.len()));
                self.parts.push(whole(shape.dim(axis)));
            }
            Index::Listed { .. } | Index::Mask(_) => return false,
        }
        true
    }
}

impl Tensor {
    /// What an expression names; None if it is to be resolved the general way.
    #[track_caller]
    pub(super) fn index_symbolic(&self, entries: &[Index]) -> Result<Option<Tensor>> {
        let shape = self.shape();
        let spare = super::plan::spare_axes("index", entries, shape.rank())?;
        let positions = |e: &&Index| matches!(e, Index::At(_) | Index::Take(_));
        let takes = entries.iter().any(|e| matches!(e, Index::Take(_)));
        if takes && entries.iter().filter(positions).count() > 1 {
            return Ok(None);
        }
        let mut found = Resolved::default();
        if !entries.iter().all(|entry| found.entry(entry, &shape, spare)) {
            return Ok(None);
        }
        (found.parts.len()..shape.rank()).for_each(|i| found.keep(whole(shape.dim(i))));
        let part: Shape = found.parts.iter().map(|p| p.1).collect();
        let mut out = match part == shape {
            true => self.clone(),
            false => self.slice_of(found.parts.iter().map(|p| p.0).collect(), &part)?,
        };
        let mut result = found.shape;
        if let Some((indices, axis, at)) = found.take {
            out = out.take(&indices, axis as i64)?;
            result.splice(at..at, indices.shape().dims());
        }
        out.reshape_to(result.into_iter().collect()).map(Some)
    }
}

//! Checks of a spec against a mesh, and its shortest form on the mesh.

use super::{AxisRef, DeviceMesh, P, SubAxis, invalid};
use crate::Result;
use crate::factors::Role;
use std::fmt;

/// The place in a spec that names an axis.
#[derive(Clone, Copy)]
enum Place {
    Dim(usize),
    Replicated,
    Partial,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Dim(dim) => write!(f, "dimension {dim}"),
            Place::Replicated => f.write_str("the replicated axes"),
            Place::Partial => f.write_str("the partial axes"),
        }
    }
}

/// The whole axis, of a size, as its own sub-axis.
fn part(axis: &AxisRef, size: usize) -> SubAxis {
    axis.sub().unwrap_or(SubAxis { pre_size: 1, size })
}

impl P {
    fn uses(&self) -> impl Iterator<Item = (Place, &AxisRef)> {
        let dims = self.dims.iter().enumerate();
        let dims = dims.flat_map(|(i, dim)| dim.axes.iter().map(move |axis| (Place::Dim(i), axis)));
        let replicated = self.replicated.iter().map(|axis| (Place::Replicated, axis));
        let partial = self.partial.keys().map(|axis| (Place::Partial, axis));
        dims.chain(replicated).chain(partial)
    }

    /// Checks the spec for tensors of a rank on a mesh.
    ///
    /// Errors: [`Error::InvalidArgument`](crate::Error::InvalidArgument) as [`P::check_axes`], and for
    /// more entries than dimensions.
    pub fn check(&self, mesh: &DeviceMesh, rank: usize) -> Result<()> {
        self.check_axes(mesh)?;
        if self.dims.len() > rank {
            let (entries, on) = (self.dims.len(), mesh.summary());
            return Err(invalid(format!(
                "{self} on {on} has {entries} entries for a tensor of rank {rank}; give at most one \
                 entry for each dimension"
            )));
        }
        Ok(())
    }

    /// Checks that the spec names axes of a mesh, each part of an axis once.
    ///
    /// Errors: [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an axis that the mesh does
    /// not have, an axis in two places, a sub-axis that does not divide its axis, sub-axes that
    /// overlap or do not divide each other, and for partial values that no op or two ops combine.
    pub fn check_axes(&self, mesh: &DeviceMesh) -> Result<()> {
        let uses: Vec<(Place, &AxisRef)> = self.uses().collect();
        for (i, &(place, axis)) in uses.iter().enumerate() {
            let size = self.check_axis(mesh, place, axis)?;
            for &(earlier, other) in uses[..i].iter().filter(|(_, a)| a.name() == axis.name()) {
                self.check_pair(mesh, size, (earlier, other), (place, axis))?;
            }
        }
        let ops: Vec<_> = self.partial.values().map(|op| op.def().name).collect();
        if let Some(op) = self.partial.values().find(|op| !Role::COMBINING.contains(op)) {
            let known: Vec<_> = Role::COMBINING.iter().map(|op| op.def().name).collect();
            return Err(invalid(format!(
                "{self} has partial values of {}, which does not combine parts in any order; use one \
                 of {}",
                op.def().name,
                known.join(", ")
            )));
        }
        match ops.iter().find(|op| **op != ops[0]) {
            None => Ok(()),
            Some(op) => Err(invalid(format!(
                "{self} has partial values of {} and of {op}, whose order would matter; combine one \
                 of them first",
                ops[0]
            ))),
        }
    }

    /// Checks one axis and returns the size of the whole axis.
    fn check_axis(&self, mesh: &DeviceMesh, place: Place, axis: &AxisRef) -> Result<usize> {
        let on = mesh.summary();
        let Some(at) = mesh.axis(axis.name()) else {
            return Err(invalid(format!(
                "{place} of {self} names axis {:?}, which is no axis of {on}; name one of its axes",
                axis.name()
            )));
        };
        let size = mesh.sized_axes()[at].size;
        let SubAxis { pre_size, size: parts } = part(axis, size);
        let product = pre_size.checked_mul(parts).unwrap_or(0);
        let trivial = axis.sub().is_some_and(|sub| sub.size == 1);
        if product == 0 || trivial || !size.is_multiple_of(product) {
            return Err(invalid(format!(
                "{place} of {self} names sub-axis {axis}, and {pre_size} x {parts} does not divide \
                 the size of axis {:?} of {on}; choose divisors of {size}, the second at least 2",
                axis.name()
            )));
        }
        Ok(size)
    }

    fn check_pair(
        &self,
        mesh: &DeviceMesh,
        size: usize,
        (earlier, other): (Place, &AxisRef),
        (place, axis): (Place, &AxisRef),
    ) -> Result<()> {
        let on = mesh.summary();
        if other.sub().is_none() && axis.sub().is_none() {
            return Err(invalid(format!(
                "axis {axis} of {on} is twice in {self}, in {earlier} and in {place}; an axis cuts one \
                 dimension of a tensor, so remove it from one of them"
            )));
        }
        let (mut major, mut minor) = (part(other, size), part(axis, size));
        if major.pre_size > minor.pre_size {
            (major, minor) = (minor, major);
        }
        let before = major.pre_size * major.size;
        let reason = if minor.pre_size < before {
            "overlap"
        } else if !minor.pre_size.is_multiple_of(before) {
            "do not divide each other"
        } else {
            return Ok(());
        };
        Err(invalid(format!(
            "axes {other} in {earlier} and {axis} in {place} of {self} {reason} on axis {:?} of {on}; \
             the pre-size of the second must be a multiple of the pre-size and size of the first",
            axis.name()
        )))
    }

    /// The spec with neighbouring sub-axes merged, and a sub-axis that is a whole axis written as the
    /// axis: its shortest form on a mesh on which it is valid. A front end may warn if it differs.
    pub fn merged(&self, mesh: &DeviceMesh) -> P {
        let mut spec = self.clone();
        if self.uses().all(|(_, axis)| axis.sub().is_none()) {
            return spec;
        }
        for dim in &mut spec.dims {
            dim.axes = merge(dim.axes.drain(..).map(|axis| (axis, ())), mesh)
                .map(|(axis, ())| axis)
                .collect();
        }
        let replicated = spec.replicated.into_iter().map(|axis| (axis, ()));
        spec.replicated = merge(replicated, mesh).map(|(axis, ())| axis).collect();
        spec.partial = merge(spec.partial.into_iter(), mesh).collect();
        spec
    }
}

/// Merges sub-axes of one axis that follow each other and have equal labels.
fn merge<L: PartialEq>(
    axes: impl Iterator<Item = (AxisRef, L)>,
    mesh: &DeviceMesh,
) -> impl Iterator<Item = (AxisRef, L)> {
    let mut merged: Vec<(AxisRef, L)> = Vec::new();
    for (axis, label) in axes {
        if let (Some((last, of)), Some(sub)) = (merged.last_mut(), axis.sub())
            && let Some(before) = last.sub()
            && (last.name(), &*of, sub.pre_size)
                == (axis.name(), &label, before.pre_size.saturating_mul(before.size))
        {
            *last = {
                let size = before.size.saturating_mul(sub.size);
                AxisRef::sub_axis(axis.name(), before.pre_size, size)
            };
        } else {
            merged.push((axis, label));
        }
    }
    merged.into_iter().map(|(axis, label)| {
        let whole = axis.sub().is_some_and(|sub| {
            let size = mesh.axis(axis.name()).map(|at| mesh.sized_axes()[at].size);
            sub.pre_size == 1 && Some(sub.size) == size
        });
        (if whole { AxisRef::new(axis.name()) } else { axis }, label)
    })
}

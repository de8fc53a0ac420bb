//! Shardings: how the dimensions of a tensor map to the axes of a mesh of processors. This module
//! has meshes and specs as data and text, and checks a spec against a mesh; which elements a
//! processor owns, and how shardings move through a graph, is `girih-dist`'s.
//!
//! A spec has an entry for each dimension. In text, `<dp, *>` cuts the first dimension over axis
//! `dp` and leaves the second one whole:
//!
//! ```text
//! <dp, *>                          entries: an axis, or nothing
//! <(dp, tp)>                       several axes act as one, the first is the major one
//! <tp:(2)2>                        a sub-axis: size 2, below a major part of size 2
//! <dp?, ?>                         open: propagation may add axes
//! <dp p1>                          a priority other than 0, which is the strongest
//! <*; replicated={dp}>             axes that may not cut the tensor
//! <*; partial={tp: add}>           values along tp are added to give the tensor's value
//! ```
//!
//! Sources: Shardy's sharding representation (axes, sub-axes, open dimensions, priorities, replicated
//! axes), JAX's `PartitionSpec`, DTensor's `Partial` placement.

mod check;
mod mesh;
mod spec;
mod table;
#[cfg(test)]
mod tests;
mod text;

pub use mesh::{DeviceMesh, Link, MAX_PROCESSORS};
pub use spec::{AxisRef, DimSpec, P, SubAxis};
pub(crate) use table::Table;
pub(crate) use text::{mesh as read_mesh, spec as read_spec};

use crate::{Error, Result};
use std::fmt;

/// A mesh and a spec that is valid on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sharding {
    mesh: DeviceMesh,
    spec: P,
}

impl Sharding {
    /// A sharding.
    ///
    /// Errors: [`Error::InvalidArgument`] as [`P::check_axes`].
    pub fn new(mesh: DeviceMesh, spec: P) -> Result<Sharding> {
        spec.check_axes(&mesh)?;
        Ok(Sharding { mesh, spec })
    }

    /// The sharding with which every processor of a mesh has the whole tensor.
    pub fn replicated(mesh: DeviceMesh) -> Sharding {
        Sharding { mesh, spec: P::default() }
    }

    /// The sharding of a tensor with one more leading dimension, which is whole.
    pub(crate) fn with_leading_dimension(&self) -> Sharding {
        let mut spec = self.spec.clone();
        if !spec.dims.is_empty() {
            spec.dims.insert(0, DimSpec::default());
        }
        Sharding { mesh: self.mesh.clone(), spec }
    }

    /// The sharding of one element along the leading dimension of a tensor.
    pub fn without_leading_dimension(&self) -> Sharding {
        let mut spec = self.spec.clone();
        if !spec.dims.is_empty() {
            spec.dims.remove(0);
        }
        Sharding { mesh: self.mesh.clone(), spec }
    }

    /// The mesh.
    pub fn mesh(&self) -> &DeviceMesh {
        &self.mesh
    }

    /// The spec.
    pub fn spec(&self) -> &P {
        &self.spec
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.spec, self.mesh)
    }
}

fn invalid(reason: String) -> Error {
    Error::InvalidArgument { op: "sharding", reason }
}

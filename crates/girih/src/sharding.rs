//! Shardings: meshes of processors, specs of tensors on them, and the programs into which a mesh divides a
//! saved program. The processors need not exist: a plan has shapes, transfers and bytes.
//!
//! ```
//! use girih::sharding::{DeviceMesh, P, Sharding, rectangles};
//!
//! let mesh = DeviceMesh::new(&[2, 4], &["dp", "tp"])?;
//! let sharding = Sharding::new(mesh, "<dp, *>".parse::<P>()?)?;
//! assert_eq!(rectangles(&sharding, &[5, 3])?[7].to_string(), "[3..5, 0..3]");
//! # Ok::<(), girih::Error>(())
//! ```

pub use girih_dist::partition::{Exchange, Partition, Source, Stage, ValueId};
pub use girih_dist::{
    Assembly, Kind, Piece, Rect, Reshard, is_fully_replicated, largest_shape, local_shape,
    rectangles, reshard, same_ownership,
};
pub use girih_ir::sharding::{AxisRef, DeviceMesh, DimSpec, Link, P, Sharding};

use crate::{Error, Program, Result};
use girih_ir::NodeId;

impl Program {
    /// The programs of the processors of a mesh, and what they exchange, for inputs and held values
    /// with these specs, by name. What is not named is whole on every processor. Symbolic sizes have
    /// their values at tracing.
    ///
    /// Errors: [`Error::InvalidArgument`] for a name that no input and no held tensor has, or that is
    /// given twice, and for a spec that is not valid for its tensor on the mesh.
    pub fn partition(&self, mesh: &DeviceMesh, specs: &[(&str, P)]) -> Result<Partition> {
        let graph = self.example()?;
        let named = self.argument_names();
        let names: Vec<&str> = named.iter().map(|(_, name)| name.as_str()).collect();
        for (at, (name, spec)) in specs.iter().enumerate() {
            if specs[..at].iter().any(|(other, _)| other == name) {
                return Err(Error::InvalidArgument(format!("two specs are given for '{name}'")));
            }
            let Some((id, _)) = named.iter().find(|(_, known)| known == name) else {
                let known = names.join(", ");
                return Err(Error::InvalidArgument(format!(
                    "no input and no value of the program is called '{name}'; there are {known}"
                )));
            };
            let fits = spec.check(mesh, graph.spec(*id).shape.rank());
            fits.map_err(|error| Error::InvalidArgument(format!("the spec of '{name}': {error}")))?;
        }
        let given = |name: &&str| {
            let spec = specs.iter().find(|(of, _)| of == name);
            spec.map_or_else(P::default, |(_, spec)| spec.clone())
        };
        let arguments: Vec<P> = names.iter().map(given).collect();
        let outputs = vec![None; graph.outputs().len()];
        Ok(girih_dist::partition::partition(&graph, mesh, &arguments, &outputs)?)
    }

    /// The arguments of the graph, held or not, with their names.
    pub fn argument_names(&self) -> Vec<(NodeId, String)> {
        self.graph().arguments().map(|id| (id, self.name(id))).collect()
    }
}

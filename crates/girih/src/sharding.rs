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
    Assembly, Drawing, Kind, Piece, Rect, Reshard, drawing, equivalent, hash_ownership,
    is_fully_replicated, largest_shape, local_shape, parts, rectangles, reshard, same_ownership,
};
pub use girih_ir::factors::Role;
pub use girih_ir::sharding::{AxisRef, DeviceMesh, DimSpec, Link, MAX_PROCESSORS, P, Sharding};

pub use girih_record::eval::Collective;
pub use girih_runtime::mesh::MeshMode;

use crate::{Device, Error, Program, Result, Tensor};
use girih_ir::{NodeId, OpCode};

/// The mesh with the first devices of the host: `cpu`, `cpu:1` and so on.
///
/// Errors: [`Error::DeviceUnavailable`] if there are fewer; those of the environment.
pub fn on_host(mesh: DeviceMesh) -> Result<DeviceMesh> {
    let mut devices = Vec::new();
    for number in 0..mesh.len() {
        match Device::named(&format!("cpu:{number}")) {
            Ok(device) => devices.push(u32::from(device.index())),
            Err(Error::DeviceUnavailable { name, .. }) => {
                let (on, needed) = (mesh.summary(), mesh.len());
                let reason = format!(
                    "{on} has {needed} processors, and the host has {number} device(s); set \
                     GIRIH_HOST_DEVICES={needed} before the process starts, call \
                     gr.set_host_devices({needed}), or give devices=\"ghost\" to plan without devices"
                );
                return Err(Error::DeviceUnavailable { name, reason });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(mesh.with_devices(&devices)?)
}

/// The names of the devices of a mesh, in its order; `None` for a ghost mesh.
pub fn device_names(mesh: &DeviceMesh) -> Option<Vec<String>> {
    let name = |&device: &u32| {
        let known = u8::try_from(device).ok().and_then(Device::numbered);
        known.map_or_else(|| format!("device {device}"), |device| device.name().to_string())
    };
    Some(mesh.devices()?.iter().map(name).collect())
}

/// The op with a name that may combine partial values.
///
/// Errors: [`Error::InvalidArgument`], with the names that there are.
pub fn combining(name: &str) -> Result<OpCode> {
    Role::combining(name).ok_or_else(|| {
        let known: Vec<&str> = Role::COMBINING.iter().map(|op| op.def().name).collect();
        let known = known.join(", ");
        Error::InvalidArgument(format!("'{name}' combines no partial values; use one of {known}"))
    })
}

/// The programs of the processors that would compute some tensors on one mesh, and their collectives.
/// Nothing is computed, and the mesh may be a ghost.
///
/// Errors: [`Error::InvalidArgument`] for tensors that are not on one mesh.
pub fn plan(targets: &[&Tensor]) -> Result<(Partition, Vec<Collective>)> {
    let targets: Vec<_> = targets.iter().map(|tensor| tensor.node()).collect();
    girih_record::eval::plan_on_mesh(&targets)
}

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

//! The side table of a graph: the shardings of values that have one. A sharding is a decision, so it
//! is beside the graph and not in a [`TensorSpec`](crate::TensorSpec), which follows from the op.
//!
//! All shardings of a graph and of its regions are on one mesh, since a graph is for one device or
//! one mesh. A graph without shardings has no table: its key, text and file are as if there were
//! none. Passes and rewrites work on the graph of one device and drop the table.

use super::{DeviceMesh, P, Sharding, invalid};
use crate::{Error, Graph, NodeId, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The shardings of the nodes of a graph, on one mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) mesh: DeviceMesh,
    pub(crate) specs: BTreeMap<NodeId, P>,
}

impl Graph {
    /// The mesh of the graph's shardings, or of those of its regions; `None` if no value has one.
    pub fn mesh(&self) -> Option<&DeviceMesh> {
        self.own_mesh().or_else(|| {
            let mut controls = self.nodes().filter_map(|(_, node)| Some(node.op.as_control()?.1));
            controls.find_map(|control| control.regions.iter().find_map(Graph::mesh))
        })
    }

    /// The mesh of the graph's shardings.
    pub(crate) fn own_mesh(&self) -> Option<&DeviceMesh> {
        self.shardings.as_ref().map(|table| &table.mesh)
    }

    /// The partition spec of a value on the graph's mesh, if it has one.
    pub fn partition(&self, id: NodeId) -> Option<&P> {
        self.shardings.as_ref()?.specs.get(&id)
    }

    /// The sharding of a value, if it has one.
    pub fn sharding(&self, id: NodeId) -> Option<Sharding> {
        let table = self.shardings.as_ref()?;
        let spec = table.specs.get(&id)?.clone();
        Some(Sharding { mesh: table.mesh.clone(), spec })
    }

    /// The nodes with a sharding, ascending, with their specs.
    pub fn partitions(&self) -> impl Iterator<Item = (NodeId, &P)> {
        self.shardings.iter().flat_map(|table| table.specs.iter().map(|(id, spec)| (*id, spec)))
    }

    /// Sets the sharding of a value.
    ///
    /// Errors: [`Error::InvalidArgument`] for a spec with more entries than the value has dimensions,
    /// and for another mesh than that of the graph's other shardings.
    ///
    /// Panics if the graph does not have the node.
    pub fn set_sharding(&mut self, id: NodeId, sharding: Sharding) -> Result<()> {
        let Sharding { mesh, spec } = sharding;
        spec.check(&mesh, self.spec(id).shape.rank())?;
        let table = Table { mesh: mesh.clone(), specs: BTreeMap::new() };
        let table = Arc::make_mut(self.shardings.get_or_insert_with(|| Arc::new(table)));
        if table.mesh != mesh {
            let (mesh, on) = (mesh.summary(), table.mesh.summary());
            return Err(invalid(format!(
                "{id} is to be sharded over {mesh}, and other values of the graph are over {on}; a \
                 graph is for one mesh"
            )));
        }
        table.specs.insert(id, spec);
        Ok(())
    }

    /// Removes all shardings of the graph, not those of its regions.
    pub fn clear_shardings(&mut self) {
        self.shardings = None;
    }

    /// Appends the shardings, if there are any. The name of the mesh does not count, nor how a spec
    /// is written.
    pub(crate) fn encode_shardings(&self, out: &mut Vec<u8>) {
        let Some(table) = &self.shardings else { return };
        let mut text = |text: String| {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        text(table.mesh.clone().unnamed().to_string());
        for (id, spec) in &table.specs {
            text(format!("{id}{}", spec.merged(&table.mesh)));
        }
    }

    /// The table of a copy of the graph in which nodes have other numbers; those without a number
    /// are not in the copy.
    pub(crate) fn moved_shardings(
        &self,
        number: impl Fn(NodeId) -> Option<NodeId>,
    ) -> Option<Arc<Table>> {
        let table = self.shardings.as_ref()?;
        let moved = |(id, spec): (&NodeId, &P)| Some((number(*id)?, spec.clone()));
        let specs = table.specs.iter().filter_map(moved).collect();
        Some(Arc::new(Table { mesh: table.mesh.clone(), specs }))
    }

    /// Checks that the shardings are valid for their values, and that all regions are on the mesh.
    pub(crate) fn verify_shardings(&self) -> Result<()> {
        let Some(on) = self.mesh() else { return Ok(()) };
        let broken = |at: NodeId, reason: String| Error::Invalid { at: at.to_string(), reason };
        for (id, spec) in self.partitions() {
            if id.index() >= self.len() {
                return Err(broken(id, "it has a sharding and does not exist".into()));
            }
            let checked = spec.check(on, self.spec(id).shape.rank());
            checked.map_err(|error| broken(id, error.to_string()))?;
        }
        for (id, node) in self.nodes() {
            let Some((_, control)) = node.op.as_control() else { continue };
            let mut meshes = control.regions.iter().filter_map(Graph::mesh);
            if let Some(mesh) = meshes.find(|mesh| *mesh != on) {
                let (mesh, on) = (mesh.summary(), on.summary());
                return Err(broken(id, format!("a region is sharded over {mesh}, not over {on}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

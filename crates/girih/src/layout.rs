//! Layouts of tensors on the processing elements (PEs) of a wafer: their tiles, the transfers between
//! them, and plans of layouts and memory for a saved program.
//!
//! ```
//! use girih::layout::{MeshLayout, transform};
//!
//! let rows = MeshLayout::row_partition(4)?;
//! let gather = transform(&rows, &MeshLayout::single_pe(), &[10, 3], 4)?;
//! assert_eq!((gather.kind.to_string(), gather.cost.bytes_moved), ("GATHER".into(), 84));
//! # Ok::<(), girih::layout::LayoutError>(())
//! ```

pub use girih_dist::{
    FabricCost, GraphLayouts, LayoutConstraints, LayoutError, LayoutKind, LayoutPlanner,
    MemoryBudget, MemoryPlan, MemoryUsage, MeshAxis, MeshLayout, OperandTransform, Pe, Placement,
    ResultTransform, Tile, TileRect, TileTransfer, Transform, memory_usage_per_pe, plan_memory,
    transform,
};

use crate::{Error, Program, Result};
use girih_ir::{Graph, NodeId};
use std::collections::BTreeMap;

/// One layout for all values of a graph. All PEs of its mesh have the values of a rank that it does
/// not divide, such as scalars.
pub fn for_all(graph: &Graph, layout: &MeshLayout) -> BTreeMap<NodeId, MeshLayout> {
    let whole = MeshLayout::replicated(layout.rows(), layout.cols());
    let whole = whole.unwrap_or_else(|_| layout.clone());
    let of = |id| match layout.spec(graph.spec(id).shape.rank()) {
        Ok(_) => layout.clone(),
        Err(_) => whole.clone(),
    };
    graph.ids().map(|id| (id, of(id))).collect()
}

impl Program {
    /// The node with a name: of an argument, or the one that [`Program::nodes`] gives it.
    ///
    /// Errors: [`Error::InvalidArgument`], with the names of the arguments.
    pub fn node_named(&self, name: &str) -> Result<NodeId> {
        let arguments = self.argument_names();
        if let Some((id, _)) = arguments.iter().find(|(_, known)| known == name) {
            return Ok(*id);
        }
        if let Some(node) = self.nodes().iter().find(|node| node.name == name) {
            return Ok(NodeId(node.id as u32));
        }
        let known: Vec<&str> = arguments.iter().map(|(_, name)| name.as_str()).collect();
        let known = known.join(", ");
        Err(Error::InvalidArgument(format!(
            "no value of the program is called '{name}'; its arguments are {known}, and other values \
             have the names that its nodes have"
        )))
    }
}

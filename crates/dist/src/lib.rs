//! Distribution of tensors over processors. [`rectangles`] gives what each processor of a mesh owns
//! under a [`Sharding`](girih_ir::Sharding); a [`MeshLayout`] distributes over a mesh with axes
//! `(row, col)`, also in blocks assigned cyclically or by a table.
//!
//! For the processing elements of a wafer, [`transform()`] gives and prices the transfers between
//! layouts, [`LayoutPlanner`] chooses the layouts of a graph, and [`plan_memory`] places their tiles.
//!
//! This crate computes with sizes. It moves no data, knows no devices and no buffers, and has no list
//! of ops: it asks an op's factors and its definition.
#![forbid(unsafe_code)]

mod axis;
mod drawing;
mod error;
mod fabric;
mod fit;
mod layout;
mod memory;
mod ownership;
pub mod partition;
mod planner;
pub mod propagate;
mod rect;
mod reshard;
mod transform;

pub use axis::{Span, spans};
pub use drawing::{Drawing, drawing};
pub use error::{LayoutError, Result};
pub use fabric::{FabricCost, WAVELET_BYTES};
pub use fit::{LayoutConstraints, MemoryUsage, memory_usage_per_pe};
pub use layout::{LayoutKind, MeshAxis, MeshLayout, Pe, Tile, TileRect};
pub use memory::{
    DoubleBuffer, MemoryBudget, MemoryPlan, MemoryRegion, PeMemory, Placement, plan_memory,
};
pub use ownership::{
    equivalent, hash_ownership, is_fully_replicated, largest_shape, local_shape, parts, rectangles,
    same_ownership,
};
pub use planner::{GraphLayouts, LayoutPlanner, OperandTransform, ResultTransform};
pub use rect::{Extent, Rect};
pub(crate) use reshard::layouts::mesh_of as layout_mesh;
pub use reshard::{Assembly, Kind, Phase, Piece, Reshard, Transfer, reshard};
pub use transform::{TileTransfer, Transform, TransformKind, combine_cost, transform};

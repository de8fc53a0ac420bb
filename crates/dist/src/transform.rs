//! Transforms: the exact transfers between the processing elements (PEs) of a fabric that change a
//! tensor from one layout to another, and their cost.
//!
//! Where the layouts are shardings, these are the transfers of a reshard; blocks that are assigned
//! cyclically and tables have more rectangles for each PE. A PE that several can serve gets its
//! elements from the nearest, the one that has sent least among equals.

use crate::fabric::{FabricCost, price};
use crate::layout::{MeshLayout, Pe};
use crate::rect::{Extent, Rect};
use crate::reshard::{Phase, layouts, reshard};
use crate::{LayoutError, Result};
use girih_ir::{P, Sharding};
use std::fmt;

/// The kinds of transforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransformKind {
    /// Each PE keeps its elements.
    Identity,
    /// The same tiles are on other PEs.
    Redistribute,
    /// Several PEs get the whole tensor.
    Replicate,
    /// One PE gets the tiles of several.
    Gather,
    /// A tensor that one PE has, or each of several, is divided in tiles.
    Scatter,
    /// The same axes of the mesh split other axes of the tensor.
    Transpose,
    /// Any other change.
    Reshard,
}

impl fmt::Display for TransformKind {
    /// The name as the documents write it: `RESHARD`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_uppercase())
    }
}

/// Elements that a PE sends to a PE, or copies if both are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileTransfer {
    /// The PE that has the elements.
    pub source: Pe,
    /// The PE that needs them.
    pub target: Pe,
    /// The elements, in indices of the whole tensor.
    pub rect: Rect,
    /// The index of the first element in the source's tile.
    pub source_start: Extent,
    /// The index of the first element in the target's tile.
    pub target_start: Extent,
}

impl TileTransfer {
    /// True if no data moves between PEs.
    pub fn is_local(&self) -> bool {
        self.source == self.target
    }
}

/// The transfers from one layout to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transform {
    /// The kind of change.
    pub kind: TransformKind,
    /// All pieces of the new tiles, with those that a PE has already.
    pub transfers: Vec<TileTransfer>,
    /// The cost of the transfers.
    pub cost: FabricCost,
}

/// The transfers that change a tensor of a shape from one layout to another, whose meshes have PE
/// (0, 0) in common, for elements of `item` bytes.
///
/// Errors: as [`MeshLayout::rectangles`], for both layouts; [`LayoutError::Size`] for more processors
/// than a mesh may have.
///
/// Cost: linear in the PEs and the transfers, times the copies of an element; for a table, the product
/// of both layouts' rectangles.
pub fn transform(
    from: &MeshLayout,
    to: &MeshLayout,
    shape: &[usize],
    item: usize,
) -> Result<Transform> {
    let width = from.cols().max(to.cols());
    let (kind, transfers) = layouts::between(from, to, shape, width)?;
    let place = |layout: &MeshLayout, pe, rect: &Rect| -> Result<Extent> {
        Ok(layout.local_index_in(pe, &rect.start, shape)?.into_iter().collect())
    };
    let transfers = transfers.into_iter().map(|transfer| {
        let (source, target) = (pe_of(transfer.source, width), pe_of(transfer.target, width));
        let rect = transfer.rect;
        let (source_start, target_start) = (place(from, source, &rect)?, place(to, target, &rect)?);
        Ok(TileTransfer { source, target, rect, source_start, target_start })
    });
    let transfers = transfers.collect::<Result<Vec<TileTransfer>>>()?;
    let cost = price(transfers.iter().map(|t| (t.source, t.target, &t.rect)), item);
    Ok(Transform { kind, transfers, cost })
}

/// The cost of changing a value from a spec on a mesh with axes `(row, col)`, which may be partial,
/// to a layout, for elements of `item` bytes. `None` if no sharding describes the layout.
///
/// Errors: as [`transform`]; [`LayoutError::Spec`] for a spec that is not valid.
pub fn combine_cost(
    (rows, cols): (usize, usize),
    spec: &P,
    to: &MeshLayout,
    shape: &[usize],
    item: usize,
) -> Result<Option<FabricCost>> {
    let width = cols.max(to.cols());
    let Some(wanted) = to.spec(shape.len())? else { return Ok(None) };
    let invalid = |error: girih_ir::Error| LayoutError::Spec(error.to_string());
    let mesh = layouts::mesh_of(rows, cols, width)?;
    let from = Sharding::new(mesh, spec.clone()).map_err(invalid)?;
    let mesh = layouts::mesh_of(to.rows(), to.cols(), width)?;
    let wanted = Sharding::new(mesh, wanted).map_err(invalid)?;
    let plan = reshard(&from, &wanted, shape).map_err(invalid)?;
    let phase = |phase: &Phase| {
        let transfers = phase.transfers.iter();
        price(transfers.map(|t| (pe_of(t.source, width), pe_of(t.target, width), &t.rect)), item)
    };
    Ok(Some(plan.phases.iter().map(phase).fold(FabricCost::default(), |all, one| all + one)))
}

/// The PE of a device of a fabric with rows of `width` PEs.
fn pe_of(device: u32, width: usize) -> Pe {
    Pe { row: device as usize / width, col: device as usize % width }
}

#[cfg(test)]
mod tests;

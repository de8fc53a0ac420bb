//! The transfers between two layouts on one fabric, and what kind of change they are.

use super::Transfer;
use super::grid::Grid;
use super::plan::Plan;
use crate::layout::MeshLayout;
use crate::rect::Rect;
use crate::transform::TransformKind;
use crate::{LayoutError, Result};
use girih_ir::DeviceMesh;
use std::collections::{BTreeMap, BTreeSet};

/// The processors of a layout as devices of a fabric with rows of `width` PEs.
pub(crate) fn mesh_of(rows: usize, cols: usize, width: usize) -> Result<DeviceMesh> {
    let too_many = |_| LayoutError::Size {
        what: "the number of processors",
        found: rows.saturating_mul(cols),
    };
    let mesh = DeviceMesh::new(&[rows, cols], &["row", "col"]).map_err(too_many)?;
    let device = |at: usize| u32::try_from(at / cols * width + at % cols);
    let devices = (0..rows * cols).map(device).collect::<std::result::Result<Vec<_>, _>>();
    let devices = devices.map_err(|_| LayoutError::Size {
        what: "the number of processors of the fabric",
        found: rows.saturating_mul(width),
    })?;
    Ok(mesh.with_devices(&devices).expect("each processor has a device of its own"))
}

/// The kind of the change from one layout to another, and the transfers between the processors of
/// a fabric with rows of `width` PEs.
pub(crate) fn between(
    from: &MeshLayout,
    to: &MeshLayout,
    shape: &[usize],
    width: usize,
) -> Result<(TransformKind, Vec<Transfer>)> {
    let grid = |layout: &MeshLayout| {
        Grid::of_layout(layout, shape, mesh_of(layout.rows(), layout.cols(), width)?)
    };
    let plan = Plan::between(grid(from)?, grid(to)?);
    if owned(&plan.from) == owned(&plan.to) {
        return Ok((TransformKind::Identity, plan.kept_shards()));
    }
    let (phases, _) = plan.phases();
    let transfers = phases.into_iter().flat_map(|phase| phase.transfers).collect();
    Ok((plan.transform_kind(from, to, shape)?, transfers))
}

/// The elements of each device that has any.
fn owned(grid: &Grid) -> BTreeMap<u32, Vec<Rect>> {
    let rects = |position| (grid.mesh.device(position), grid.rects(position).collect::<Vec<_>>());
    let all = (0..grid.mesh.len()).map(rects);
    all.filter(|(_, rects)| !rects.is_empty()).collect()
}

/// The different tiles with elements, each the rectangles of one processor.
fn tiles(grid: &Grid) -> BTreeSet<Vec<Rect>> {
    owned(grid).into_values().collect()
}

impl Plan<'_> {
    fn transform_kind(
        &self,
        from: &MeshLayout,
        to: &MeshLayout,
        shape: &[usize],
    ) -> Result<TransformKind> {
        let (old, new) = (tiles(&self.from), tiles(&self.to));
        let holders = owned(&self.to).len();
        let kind = match (old.len(), new.len()) {
            (_, 1) if holders > 1 => TransformKind::Replicate,
            (2.., 1) => TransformKind::Gather,
            (1, 2..) => TransformKind::Scatter,
            _ if old == new => TransformKind::Redistribute,
            _ if moves_axes(from, to, shape.len())? => TransformKind::Transpose,
            _ => TransformKind::Reshard,
        };
        Ok(kind)
    }
}

/// True if the same axes of one mesh split other axes of the tensor.
fn moves_axes(from: &MeshLayout, to: &MeshLayout, rank: usize) -> Result<bool> {
    if (from.rows(), from.cols()) != (to.rows(), to.cols()) {
        return Ok(false);
    }
    let (Some(from), Some(to)) = (from.sharding(rank)?, to.sharding(rank)?) else {
        return Ok(false);
    };
    let [from, to] = [from, to].map(|sharding| {
        let spec = sharding.spec().merged(sharding.mesh());
        spec.dims.into_iter().flat_map(|dim| dim.axes).collect::<BTreeSet<_>>()
    });
    Ok(from == to)
}

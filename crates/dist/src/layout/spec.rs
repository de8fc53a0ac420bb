//! Layouts as shardings over a mesh with axes `row` and `col`, and back.

use super::{MeshAxis, MeshLayout};
use crate::Result;
use crate::axis::Split;
use crate::error::LayoutError;
use girih_ir::{DeviceMesh, DimSpec, P, Sharding};

impl MeshLayout {
    /// The layout as a sharding of tensors of a rank, over a mesh with axes `row` and `col` and the
    /// processors in row-major order. `None` for blocks that are assigned cyclically and for a
    /// table, which no spec of axes describes.
    ///
    /// Errors: [`LayoutError::Rank`]; [`LayoutError::Size`] for more processors than a mesh may have.
    pub fn sharding(&self, rank: usize) -> Result<Option<Sharding>> {
        let Some(spec) = self.spec(rank)? else { return Ok(None) };
        let too_many =
            |_| LayoutError::Size { what: "the number of processors", found: self.total_pes() };
        let mesh = DeviceMesh::new(&[self.rows, self.cols], &["row", "col"]).map_err(too_many)?;
        let sharding = Sharding::new(mesh, spec);
        Ok(Some(sharding.expect("each axis is named once, by with_axes")))
    }

    /// As [`MeshLayout::sharding`], over a mesh without devices: PEs are no devices of a process.
    ///
    /// Errors: as [`MeshLayout::sharding`].
    pub fn ghost_sharding(&self, rank: usize) -> Result<Option<Sharding>> {
        let ghost = |sharding: Sharding| {
            let (mesh, spec) = (sharding.mesh().clone().ghost(), sharding.spec().clone());
            Sharding::new(mesh, spec).expect("the spec is valid on the mesh")
        };
        Ok(self.sharding(rank)?.map(ghost))
    }

    /// The spec of the layout's sharding, over axes `row` and `col`.
    ///
    /// Errors: [`LayoutError::Rank`].
    pub fn spec(&self, rank: usize) -> Result<Option<P>> {
        let splits = self.splits(rank)?;
        let entry = |&(split, axis): &(Split, MeshAxis)| match (split, axis) {
            (Split::Whole, _) => Some(DimSpec::default()),
            (Split::Block { .. }, MeshAxis::Row) => Some("row".into()),
            (Split::Block { .. }, MeshAxis::Col) => Some("col".into()),
            (Split::Block { .. }, MeshAxis::Both) => Some(DimSpec::new(["row", "col"])),
            (Split::Cyclic { .. }, _) => None,
        };
        let entries: Option<Vec<DimSpec>> = splits.iter().map(entry).collect();
        Ok(entries.filter(|_| self.custom.is_none()).map(P::new))
    }

    /// The simplest kind of layout that is the same for tensors of a rank: `RowPartition(4)` for
    /// `Grid(4, 1)`.
    ///
    /// Errors: [`LayoutError::Rank`].
    pub fn simplest(&self, rank: usize) -> Result<MeshLayout> {
        let spec = self.spec(rank)?;
        let simple = spec.map(|spec| MeshLayout::of_spec(self.rows, self.cols, &spec, rank));
        Ok(simple.transpose()?.flatten().unwrap_or_else(|| self.clone()))
    }

    /// The layout of tensors of a rank that a spec over axes `row` and `col` describes, as the simplest
    /// kind. `None` for a spec that is partial, or that no layout describes.
    ///
    /// Errors: [`LayoutError::Size`] for zero or too many processors.
    pub fn of_spec(rows: usize, cols: usize, spec: &P, rank: usize) -> Result<Option<MeshLayout>> {
        let size = |name: &str| if name == "row" { rows } else { cols };
        if spec.partial.keys().any(|axis| size(axis.name()) > 1) {
            return Ok(None);
        }
        let mut axes = Vec::with_capacity(rank);
        for dim in 0..rank {
            let of_dim = spec.axes_of(dim).iter().filter(|axis| size(axis.name()) > 1);
            let of_dim: Vec<_> = of_dim.collect();
            if of_dim.iter().any(|axis| axis.sub().is_some()) {
                return Ok(None);
            }
            let names: Vec<&str> = of_dim.iter().map(|axis| axis.name()).collect();
            axes.push(match names[..] {
                [] => None,
                ["row"] => Some(MeshAxis::Row),
                ["col"] => Some(MeshAxis::Col),
                ["row", "col"] => Some(MeshAxis::Both),
                _ => return Ok(None),
            });
        }
        let cut = |dim: usize| axes.get(dim).copied().flatten();
        let others = axes.iter().skip(2).all(Option::is_none);
        let layout = match (cut(0), cut(1)) {
            (None, None) if others && rows.saturating_mul(cols) == 1 => MeshLayout::single_pe(),
            (None, None) if others => MeshLayout::replicated(rows, cols)?,
            (Some(MeshAxis::Row), None) if others && cols == 1 => MeshLayout::row_partition(rows)?,
            (None, Some(MeshAxis::Col)) if others && rows == 1 => MeshLayout::col_partition(cols)?,
            (Some(MeshAxis::Row), Some(MeshAxis::Col)) => MeshLayout::grid(rows, cols)?,
            _ => MeshLayout::grid(rows, cols)?.with_axes(&axes)?,
        };
        Ok(Some(layout))
    }
}

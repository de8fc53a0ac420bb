//! The shards of a sharding as a grid of cells, each with the processors that have it.

use crate::axis::Split;
use crate::ownership::{part, parts};
use crate::rect::{Extent, Rect};
use girih_ir::{DeviceMesh, Result, Sharding};
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;

/// A dimension, cut in chunks.
struct Dimension {
    size: usize,
    parts: usize,
}

impl Dimension {
    fn range(&self, part: usize) -> (usize, usize) {
        Split::Block { parts: self.parts }.range(self.size, part)
    }

    /// The first and the last part with elements of a range that is not empty.
    fn touched(&self, start: usize, len: usize) -> (usize, usize) {
        let owner = |at| Split::Block { parts: self.parts }.owner(self.size, at).unwrap_or(0);
        (owner(start), owner(start + len - 1))
    }
}

/// A cell of the grid: a shard that one or more processors have.
pub(super) type Cell = usize;

pub(super) struct Grid<'a> {
    pub(super) mesh: &'a DeviceMesh,
    dims: Vec<Dimension>,
    /// The cell of each processor.
    pub(super) cells: Vec<Cell>,
    /// The processors that have a cell.
    pub(super) owners: Vec<Vec<usize>>,
    /// The coordinates of each processor.
    coordinates: Vec<Vec<usize>>,
    positions: HashMap<u32, usize>,
}

impl<'a> Grid<'a> {
    pub(super) fn new(sharding: &'a Sharding, shape: &[usize]) -> Result<Grid<'a>> {
        let (mesh, spec) = (sharding.mesh(), sharding.spec());
        spec.check(mesh, shape.len())?;
        let axes = |dim: usize| spec.axes_of(dim);
        let dims: Vec<Dimension> = shape
            .iter()
            .enumerate()
            .map(|(dim, &size)| Dimension { size, parts: parts(mesh, axes(dim)) })
            .collect();
        let cell = |position| {
            let dims = dims.iter().enumerate();
            dims.fold(0, |cell, (dim, of)| cell * of.parts + part(mesh, axes(dim), position))
        };
        let cells: Vec<Cell> = (0..mesh.len()).map(cell).collect();
        let mut owners = vec![Vec::new(); dims.iter().map(|dim| dim.parts).product()];
        for (position, &cell) in cells.iter().enumerate() {
            owners[cell].push(position);
        }
        let coordinates = (0..mesh.len()).map(|position| mesh.coordinates(position)).collect();
        let positions = (0..mesh.len()).map(|position| (mesh.device(position), position)).collect();
        Ok(Grid { mesh, dims, cells, owners, coordinates, positions })
    }

    /// The processor of a device.
    pub(super) fn position(&self, device: u32) -> Option<usize> {
        self.positions.get(&device).copied()
    }

    /// The elements of a cell.
    pub(super) fn rect(&self, cell: Cell) -> Rect {
        let mut rect = Rect { start: smallvec![], extent: smallvec![] };
        let mut rest = cell;
        for dim in self.dims.iter().rev() {
            let (start, len) = dim.range(rest % dim.parts);
            rect.start.push(start);
            rect.extent.push(len);
            rest /= dim.parts;
        }
        rect.start.reverse();
        rect.extent.reverse();
        rect
    }

    /// The elements of a processor.
    pub(super) fn shard(&self, position: usize) -> Rect {
        self.rect(self.cells[position])
    }

    /// The cells that have elements of a rectangle, with these elements.
    pub(super) fn overlapping(&self, rect: &Rect) -> Vec<(Cell, Rect)> {
        if rect.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<(Cell, Extent, Extent)> = vec![(0, smallvec![], smallvec![])];
        for (axis, dim) in self.dims.iter().enumerate() {
            let (start, end) = (rect.start[axis], rect.start[axis] + rect.extent[axis]);
            let (first, last) = dim.touched(start, end - start);
            let mut longer = Vec::with_capacity(found.len() * (last - first + 1));
            for (cell, starts, extents) in &found {
                for part in first..=last {
                    let (low, len) = dim.range(part);
                    let (from, to) = (low.max(start), (low + len).min(end));
                    let (mut starts, mut extents) = (starts.clone(), extents.clone());
                    starts.push(from);
                    extents.push(to - from);
                    longer.push((cell * dim.parts + part, starts, extents));
                }
            }
            found = longer;
        }
        found.into_iter().map(|(cell, start, extent)| (cell, Rect { start, extent })).collect()
    }

    /// The number of axes along which two processors are at different places.
    pub(super) fn distance(&self, a: usize, b: usize) -> usize {
        let pairs = self.coordinates[a].iter().zip(&self.coordinates[b]);
        pairs.filter(|(a, b)| a != b).count()
    }

    /// The processors with a cell in groups of equal keys, in order.
    pub(super) fn groups(
        &self,
        cell: Cell,
        key: impl Fn(usize) -> usize,
    ) -> Vec<SmallVec<[usize; 4]>> {
        let mut groups: Vec<(usize, SmallVec<[usize; 4]>)> = Vec::new();
        let mut places = HashMap::new();
        for &position in &self.owners[cell] {
            let key = key(position);
            let place = *places.entry(key).or_insert_with(|| {
                groups.push((key, smallvec![]));
                groups.len() - 1
            });
            groups[place].1.push(position);
        }
        groups.into_iter().map(|(_, members)| members).collect()
    }
}

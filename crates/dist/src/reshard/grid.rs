//! The shards of a sharding, or the tiles of a layout, as cells, each with the processors that have
//! it.

use crate::axis::Split;
use crate::layout::{MeshAxis, MeshLayout};
use crate::ownership::{part, parts};
use crate::rect::{Extent, Rect};
use girih_ir::{DeviceMesh, Result, Sharding};
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;

/// A dimension, cut in chunks of one length; the last ones may have fewer elements or none.
struct Dimension {
    size: usize,
    chunk: usize,
    chunks: usize,
}

impl Dimension {
    fn new(size: usize, split: Split) -> Dimension {
        let chunk = split.block(size);
        let chunks = match split {
            Split::Cyclic { .. } => size.div_ceil(chunk),
            _ => split.parts(),
        };
        Dimension { size, chunk, chunks }
    }

    fn range(&self, chunk: usize) -> (usize, usize) {
        let start = chunk.saturating_mul(self.chunk).min(self.size);
        (start, self.chunk.min(self.size - start))
    }

    /// The first and the last chunk with elements of a range that is not empty.
    fn touched(&self, start: usize, len: usize) -> (usize, usize) {
        (start / self.chunk, (start + len - 1) / self.chunk)
    }
}

/// A cell: elements that one or more processors have. Cells do not overlap.
pub(super) type Cell = usize;

/// The elements of the cells.
enum Cells {
    /// Chunks of each dimension, in row-major order.
    Product(Vec<Dimension>),
    /// A rectangle for each processor.
    Table(Vec<Rect>),
}

pub(super) struct Grid {
    pub(super) mesh: DeviceMesh,
    places: Cells,
    /// The cells of each processor, ascending: one for a sharding.
    pub(super) cells: Vec<SmallVec<[Cell; 1]>>,
    /// The processors that have a cell.
    pub(super) owners: Vec<Vec<usize>>,
    /// The coordinates of each processor.
    coordinates: Vec<Vec<usize>>,
    positions: HashMap<u32, usize>,
}

impl Grid {
    pub(super) fn new(sharding: &Sharding, shape: &[usize]) -> Result<Grid> {
        let (mesh, spec) = (sharding.mesh(), sharding.spec());
        spec.check(mesh, shape.len())?;
        let axes = |dim: usize| spec.axes_of(dim);
        let dims: Vec<Dimension> = shape
            .iter()
            .enumerate()
            .map(|(dim, &size)| {
                Dimension::new(size, Split::Block { parts: parts(mesh, axes(dim)) })
            })
            .collect();
        let cell = |position| {
            let dims = dims.iter().enumerate();
            dims.fold(0, |cell, (dim, of)| cell * of.chunks + part(mesh, axes(dim), position))
        };
        let cells = (0..mesh.len()).map(|position| smallvec![cell(position)]).collect();
        Ok(Grid::of(mesh.clone(), Cells::Product(dims), cells))
    }

    /// A rectangle of elements for each processor of a mesh, which may overlap.
    pub(super) fn of_rects(mesh: &DeviceMesh, rects: &[Rect]) -> Grid {
        let cells = (0..mesh.len()).map(|position| smallvec![position]).collect();
        Grid::of(mesh.clone(), Cells::Table(rects.to_vec()), cells)
    }

    /// The tiles of a layout, on its processors as the devices of a mesh.
    pub(super) fn of_layout(
        layout: &MeshLayout,
        shape: &[usize],
        mesh: DeviceMesh,
    ) -> crate::Result<Grid> {
        if let Some(custom) = layout.table(shape)? {
            let rect = |(start, extent): &(Vec<usize>, Vec<usize>)| Rect {
                start: start.iter().copied().collect(),
                extent: extent.iter().copied().collect(),
            };
            let rects: Vec<Rect> = custom.tiles.iter().map(rect).collect();
            return Ok(Grid::of_rects(&mesh, &rects));
        }
        let whole = |(split, axis): (Split, MeshAxis)| match split.parts() {
            1 => (Split::Whole, axis),
            _ => (split, axis),
        };
        let splits: Vec<_> = layout.splits(shape.len())?.into_iter().map(whole).collect();
        let dims =
            shape.iter().zip(&splits).map(|(&size, &(split, _))| Dimension::new(size, split));
        let dims: Vec<Dimension> = dims.collect();
        let cells = layout.pes().map(|pe| {
            let mut cells: SmallVec<[Cell; 1]> = smallvec![0];
            for (dim, &(split, axis)) in dims.iter().zip(&splits) {
                let first = if split == Split::Whole { 0 } else { layout.part(pe, axis) };
                let own = (first..dim.chunks).step_by(split.parts());
                let longer = |&cell: &Cell| own.clone().map(move |chunk| cell * dim.chunks + chunk);
                cells = cells.iter().flat_map(longer).collect();
            }
            cells
        });
        let cells = cells.collect();
        Ok(Grid::of(mesh, Cells::Product(dims), cells))
    }

    fn of(mesh: DeviceMesh, places: Cells, cells: Vec<SmallVec<[Cell; 1]>>) -> Grid {
        let number = match &places {
            Cells::Product(dims) => dims.iter().map(|dim| dim.chunks).product(),
            Cells::Table(rects) => rects.len(),
        };
        let mut owners = vec![Vec::new(); number];
        for (position, cells) in cells.iter().enumerate() {
            cells.iter().for_each(|&cell| owners[cell].push(position));
        }
        let coordinates = (0..mesh.len()).map(|position| mesh.coordinates(position)).collect();
        let positions = (0..mesh.len()).map(|position| (mesh.device(position), position)).collect();
        Grid { mesh, places, cells, owners, coordinates, positions }
    }

    /// True if a processor has a cell.
    pub(super) fn has(&self, position: usize, cell: Cell) -> bool {
        self.cells[position].binary_search(&cell).is_ok()
    }

    /// The rectangles of a processor that have elements.
    pub(super) fn rects(&self, position: usize) -> impl Iterator<Item = Rect> + '_ {
        let rects = self.cells[position].iter().map(|&cell| self.rect(cell));
        rects.filter(|rect| !rect.is_empty())
    }

    /// The processor of a device.
    pub(super) fn position(&self, device: u32) -> Option<usize> {
        self.positions.get(&device).copied()
    }

    /// The elements of a cell.
    pub(super) fn rect(&self, cell: Cell) -> Rect {
        let dims = match &self.places {
            Cells::Product(dims) => dims,
            Cells::Table(rects) => return rects[cell].clone(),
        };
        let mut rect = Rect { start: smallvec![], extent: smallvec![] };
        let mut rest = cell;
        for dim in dims.iter().rev() {
            let (start, len) = dim.range(rest % dim.chunks);
            rect.start.push(start);
            rect.extent.push(len);
            rest /= dim.chunks;
        }
        rect.start.reverse();
        rect.extent.reverse();
        rect
    }

    /// The elements of a processor of a sharding.
    pub(super) fn shard(&self, position: usize) -> Rect {
        self.rect(self.cells[position][0])
    }

    /// The cells that have elements of a rectangle, with these elements.
    pub(super) fn overlapping(&self, rect: &Rect) -> Vec<(Cell, Rect)> {
        if rect.is_empty() {
            return Vec::new();
        }
        let dims = match &self.places {
            Cells::Product(dims) => dims,
            Cells::Table(rects) => {
                let both = |(cell, own): (Cell, &Rect)| Some((cell, own.intersection(rect)?));
                return rects.iter().enumerate().filter_map(both).collect();
            }
        };
        let mut found: Vec<(Cell, Extent, Extent)> = vec![(0, smallvec![], smallvec![])];
        for (axis, dim) in dims.iter().enumerate() {
            let (start, end) = (rect.start[axis], rect.start[axis] + rect.extent[axis]);
            let (first, last) = dim.touched(start, end - start);
            let mut longer = Vec::with_capacity(found.len() * (last - first + 1));
            for (cell, starts, extents) in &found {
                for chunk in first..=last {
                    let (low, len) = dim.range(chunk);
                    let (from, to) = (low.max(start), (low + len).min(end));
                    let (mut starts, mut extents) = (starts.clone(), extents.clone());
                    starts.push(from);
                    extents.push(to - from);
                    longer.push((cell * dim.chunks + chunk, starts, extents));
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

    /// The hops between a processor of a fabric and one of another grid on it.
    pub(super) fn hops(&self, own: usize, other: &Grid, position: usize) -> usize {
        let pairs = self.coordinates[own].iter().zip(&other.coordinates[position]);
        pairs.map(|(a, b)| a.abs_diff(*b)).sum()
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

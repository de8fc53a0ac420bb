//! Layouts: the distribution of a tensor over a mesh of processors with axes `(row, col)`.

use crate::axis::{Span, Split};
use crate::{LayoutError, Result};
use std::sync::Arc;

/// A processor of a mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pe {
    /// The row.
    pub row: usize,
    /// The column.
    pub col: usize,
}

/// The axis of a mesh that splits an axis of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MeshAxis {
    /// Across the rows.
    Row,
    /// Across the columns.
    Col,
    /// Across all processors in row-major order, for a tensor with one long axis.
    Both,
}

impl MeshAxis {
    /// True if the axes have no axis of the mesh in common.
    fn excludes(self, other: MeshAxis) -> bool {
        self != other && self != MeshAxis::Both && other != MeshAxis::Both
    }
}

/// A rectangle of a tensor that a processor owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileRect {
    /// The index of the first element in the tensor.
    pub start: Vec<usize>,
    /// The index of the first element in the processor's tile.
    pub local: Vec<usize>,
    /// The number of elements along each axis.
    pub extent: Vec<usize>,
}

/// Kinds of layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayoutKind {
    /// One processor has the whole tensor.
    SinglePe,
    /// The first axis is split over the rows of a mesh with one column.
    RowPartition,
    /// The second axis is split over the columns of a mesh with one row.
    ColPartition,
    /// The first two axes are split over rows and columns.
    Grid,
    /// The first two axes are split over rows and columns in blocks, assigned cyclically.
    BlockCyclic,
    /// A table has a rectangle for each processor.
    Custom,
    /// Each processor has the whole tensor.
    Replicated,
}

/// The distribution of a tensor over the processors of a mesh. If a size is not divisible, the last
/// processors have fewer elements, or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MeshLayout {
    kind: LayoutKind,
    rows: usize,
    cols: usize,
    /// The block sizes along rows and columns, for [`LayoutKind::BlockCyclic`].
    block: (usize, usize),
    /// The axis of the mesh over which each axis of the tensor is split, if set by `with_axes`.
    axes: Option<Vec<Option<MeshAxis>>>,
    custom: Option<Arc<Custom>>,
}

/// The rectangle of a processor, as start and extent.
pub type Tile = (Vec<usize>, Vec<usize>);

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Custom {
    shape: Vec<usize>,
    /// The rectangle of each processor, in row-major order.
    pub(crate) tiles: Vec<Tile>,
}

impl MeshLayout {
    fn of(kind: LayoutKind, rows: usize, cols: usize) -> Result<MeshLayout> {
        for (what, found) in [("the number of rows", rows), ("the number of columns", cols)] {
            if found == 0 || rows.checked_mul(cols).is_none() {
                return Err(LayoutError::Size { what, found });
            }
        }
        Ok(MeshLayout { kind, rows, cols, block: (0, 0), axes: None, custom: None })
    }

    /// A layout with the whole tensor on processor (0, 0).
    pub fn single_pe() -> MeshLayout {
        let (kind, block) = (LayoutKind::SinglePe, (0, 0));
        MeshLayout { kind, rows: 1, cols: 1, block, axes: None, custom: None }
    }

    /// A layout that splits the first axis over `rows` processors.
    ///
    /// Errors: [`LayoutError::Size`] for zero or too many processors; likewise for the other
    /// constructors.
    pub fn row_partition(rows: usize) -> Result<MeshLayout> {
        MeshLayout::of(LayoutKind::RowPartition, rows, 1)
    }

    /// A layout that splits the second axis over `cols` processors.
    pub fn col_partition(cols: usize) -> Result<MeshLayout> {
        MeshLayout::of(LayoutKind::ColPartition, 1, cols)
    }

    /// A layout that splits the first axis over rows and the second axis over columns.
    pub fn grid(rows: usize, cols: usize) -> Result<MeshLayout> {
        MeshLayout::of(LayoutKind::Grid, rows, cols)
    }

    /// As [`MeshLayout::grid`], but in blocks of `block_rows` by `block_cols` elements assigned
    /// cyclically.
    pub fn block_cyclic(
        rows: usize,
        cols: usize,
        block_rows: usize,
        block_cols: usize,
    ) -> Result<MeshLayout> {
        for (what, found) in
            [("the rows of a block", block_rows), ("the columns of a block", block_cols)]
        {
            if found == 0 {
                return Err(LayoutError::Size { what, found });
            }
        }
        let layout = MeshLayout::of(LayoutKind::BlockCyclic, rows, cols)?;
        Ok(MeshLayout { block: (block_rows, block_cols), ..layout })
    }

    /// A layout with the whole tensor on every processor.
    pub fn replicated(rows: usize, cols: usize) -> Result<MeshLayout> {
        MeshLayout::of(LayoutKind::Replicated, rows, cols)
    }

    /// A layout with a rectangle, given as start and extent, for each processor in row-major order.
    /// The layout is for tensors of shape `shape`.
    ///
    /// Errors: [`LayoutError::Size`]; [`LayoutError::Cover`] unless each element is in exactly one
    /// rectangle.
    pub fn custom(
        rows: usize,
        cols: usize,
        shape: &[usize],
        tiles: Vec<Tile>,
    ) -> Result<MeshLayout> {
        let layout = MeshLayout::of(LayoutKind::Custom, rows, cols)?;
        if tiles.len() != rows * cols {
            let found = tiles.len();
            let reason = format!("{found} rectangles for {} processors", rows * cols);
            return Err(LayoutError::Cover(reason));
        }
        let volume =
            |extent: &[usize]| extent.iter().try_fold(1usize, |all, &n| all.checked_mul(n));
        let mut covered = 0usize;
        for (at, (start, extent)) in tiles.iter().enumerate() {
            let inside = start.len() == shape.len()
                && extent.len() == shape.len()
                && (0..shape.len())
                    .all(|a| start[a].checked_add(extent[a]).is_some_and(|e| e <= shape[a]));
            if !inside {
                let reason = format!(
                    "rectangle {at} from {start:?} of {extent:?} is not inside of {shape:?}"
                );
                return Err(LayoutError::Cover(reason));
            }
            let meets = |(other, size): &Tile| {
                // A rectangle without elements meets none.
                (0..shape.len()).all(|a| {
                    let (low, high) = (start[a].max(other[a]), start[a] + extent[a]);
                    low < high.min(other[a] + size[a])
                })
            };
            if let Some(other) = tiles[..at].iter().position(meets) {
                return Err(LayoutError::Cover(format!(
                    "rectangles {other} and {at} have elements in common"
                )));
            }
            covered = covered.saturating_add(volume(extent).unwrap_or(usize::MAX));
        }
        if volume(shape) != Some(covered) {
            let reason =
                format!("the rectangles have {covered} elements, a tensor of {shape:?} has others");
            return Err(LayoutError::Cover(reason));
        }
        let custom = Custom { shape: shape.to_vec(), tiles };
        Ok(MeshLayout { custom: Some(Arc::new(custom)), ..layout })
    }

    /// As [`MeshLayout::custom`], with the rectangle that a function gives each processor.
    ///
    /// Errors: as [`MeshLayout::custom`].
    pub fn custom_by(
        rows: usize,
        cols: usize,
        shape: &[usize],
        tile: impl FnMut(Pe) -> Tile,
    ) -> Result<MeshLayout> {
        let tiles = MeshLayout::of(LayoutKind::Custom, rows, cols)?.pes().map(tile).collect();
        MeshLayout::custom(rows, cols, shape, tiles)
    }

    /// The layout with other axes of the mesh: `axes` has, for each axis of the tensor, the axis of
    /// the mesh over which it is split, or `None`. The tensor is replicated along an axis of the
    /// mesh that splits no axis of the tensor.
    ///
    /// Errors: [`LayoutError::Axes`] for a duplicate axis, for both axes where blocks are assigned
    /// cyclically, and for layouts that split no axes or have a table.
    pub fn with_axes(self, axes: &[Option<MeshAxis>]) -> Result<MeshLayout> {
        let mut named = axes.iter().flatten().enumerate();
        if named.any(|(at, &a)| !axes.iter().flatten().skip(at + 1).all(|&b| a.excludes(b))) {
            return Err(LayoutError::Axes(format!(
                "an axis of the mesh splits one axis at most: {axes:?}"
            )));
        }
        match self.kind {
            LayoutKind::BlockCyclic if axes.contains(&Some(MeshAxis::Both)) => {
                Err(LayoutError::Axes(format!("{self} has blocks for one axis of the mesh each")))
            }
            LayoutKind::SinglePe | LayoutKind::Custom | LayoutKind::Replicated => {
                Err(LayoutError::Axes(format!("{self} has no axes to be chosen")))
            }
            _ => Ok(MeshLayout { axes: Some(axes.to_vec()), ..self }),
        }
    }

    /// The shape for which a layout with a table is, and the rectangle of each processor as start and
    /// extent, in row-major order.
    pub fn tiles(&self) -> Option<(&[usize], &[Tile])> {
        self.custom.as_ref().map(|custom| (&custom.shape[..], &custom.tiles[..]))
    }

    /// The kind of layout.
    pub fn kind(&self) -> LayoutKind {
        self.kind
    }

    /// The number of rows of the mesh.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns of the mesh.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The number of processors of the mesh.
    pub fn total_pes(&self) -> usize {
        self.rows * self.cols
    }

    /// The processors in row-major order.
    pub fn pes(&self) -> impl Iterator<Item = Pe> + use<> {
        let cols = self.cols;
        (0..self.total_pes()).map(move |at| Pe { row: at / cols, col: at % cols })
    }

    /// The split of each axis of a tensor, and the axis of the mesh over which it is split.
    ///
    /// Errors: [`LayoutError::Rank`].
    pub(crate) fn splits(&self, rank: usize) -> Result<Vec<(Split, MeshAxis)>> {
        use LayoutKind::*;
        let wrong =
            |expected| Err(LayoutError::Rank { layout: self.to_string(), expected, found: rank });
        let default = |axis: usize| match (self.kind, axis) {
            (RowPartition | Grid | BlockCyclic, 0) => Some(MeshAxis::Row),
            (ColPartition | Grid | BlockCyclic, 1) => Some(MeshAxis::Col),
            _ => None,
        };
        let axes: Vec<Option<MeshAxis>> = match &self.axes {
            Some(axes) if axes.len() != rank => return wrong("of as many axes as it names"),
            Some(axes) => axes.clone(),
            None if self.kind == RowPartition && rank < 1 => return wrong("of rank 1 or more"),
            None if matches!(self.kind, ColPartition | Grid | BlockCyclic) && rank < 2 => {
                return wrong("of rank 2 or more");
            }
            None => (0..rank).map(default).collect(),
        };
        let split = |axis: Option<MeshAxis>| {
            let Some(axis) = axis else { return (Split::Whole, MeshAxis::Row) };
            let (parts, block) = match axis {
                MeshAxis::Row => (self.rows, self.block.0),
                MeshAxis::Col => (self.cols, self.block.1),
                MeshAxis::Both => (self.total_pes(), 0),
            };
            match self.kind {
                BlockCyclic => (Split::Cyclic { parts, block }, axis),
                _ => (Split::Block { parts }, axis),
            }
        };
        Ok(axes.into_iter().map(split).collect())
    }

    /// The table of a custom layout, which must be for tensors of this shape.
    pub(crate) fn table(&self, shape: &[usize]) -> Result<Option<&Custom>> {
        match &self.custom {
            Some(custom) if custom.shape != shape => Err(LayoutError::Cover(format!(
                "the layout is for tensors of {:?}, found {shape:?}",
                custom.shape
            ))),
            custom => Ok(custom.as_deref()),
        }
    }

    fn number(&self, pe: Pe) -> Result<usize> {
        match pe.row < self.rows && pe.col < self.cols {
            true => Ok(pe.row * self.cols + pe.col),
            false => Err(LayoutError::Outside {
                what: "processor",
                at: vec![pe.row, pe.col],
                size: vec![self.rows, self.cols],
            }),
        }
    }

    /// The rectangles of a tensor that a processor owns; none if it has no elements. At their local
    /// positions, they fill the processor's tile exactly.
    ///
    /// Errors: [`LayoutError::Rank`], [`LayoutError::Outside`], [`LayoutError::Cover`].
    pub fn rectangles(&self, pe: Pe, shape: &[usize]) -> Result<Vec<TileRect>> {
        let number = self.number(pe)?;
        let mut spans: Vec<Vec<Span>> = Vec::new();
        match self.table(shape)? {
            Some(custom) => {
                let (start, extent) = &custom.tiles[number];
                let span = |(&start, &len)| vec![Span { start, local: 0, len }];
                spans.extend(start.iter().zip(extent).map(span));
            }
            None => {
                for (&size, (split, axis)) in shape.iter().zip(self.splits(shape.len())?) {
                    spans.push(split.spans(size, self.part(pe, axis)));
                }
            }
        }
        let mut rects = vec![TileRect { start: vec![], local: vec![], extent: vec![] }];
        for spans in spans {
            let longer = |rect: &TileRect, span: &Span| {
                let mut rect = rect.clone();
                rect.start.push(span.start);
                rect.local.push(span.local);
                rect.extent.push(span.len);
                rect
            };
            let all =
                rects.iter().flat_map(|rect| spans.iter().map(move |span| longer(rect, span)));
            rects = all.collect();
        }
        rects.retain(|rect| rect.extent.iter().all(|&n| n > 0));
        Ok(rects)
    }

    /// The shape of a processor's tile.
    ///
    /// Errors: as [`MeshLayout::rectangles`].
    pub fn tile_shape(&self, pe: Pe, shape: &[usize]) -> Result<Vec<usize>> {
        let number = self.number(pe)?;
        if let Some(custom) = self.table(shape)? {
            return Ok(custom.tiles[number].1.clone());
        }
        let splits = self.splits(shape.len())?;
        let len = |(&size, (split, axis)): (&usize, (Split, MeshAxis))| {
            split.len(size, self.part(pe, axis))
        };
        Ok(shape.iter().zip(splits).map(len).collect())
    }

    /// Whether a processor is the first of the processors with the same elements: the one with the
    /// lowest row and column.
    ///
    /// Errors: as [`MeshLayout::rectangles`].
    pub fn is_first_copy(&self, pe: Pe, shape: &[usize]) -> Result<bool> {
        self.number(pe)?;
        if self.table(shape)?.is_some() {
            return Ok(true);
        }
        let splits = self.splits(shape.len())?;
        let split_over = |axis: MeshAxis| {
            splits.iter().any(|&(split, a)| split != Split::Whole && !a.excludes(axis))
        };
        let first = |axis, at| at == 0 || split_over(axis);
        Ok(first(MeshAxis::Row, pe.row) && first(MeshAxis::Col, pe.col))
    }

    /// The processors that have an element.
    ///
    /// Errors: [`LayoutError::Outside`] for an index out of range; as [`MeshLayout::rectangles`].
    pub fn owners(&self, index: &[usize], shape: &[usize]) -> Result<Vec<Pe>> {
        let inside = index.len() == shape.len() && index.iter().zip(shape).all(|(i, n)| i < n);
        if !inside {
            let (at, size) = (index.to_vec(), shape.to_vec());
            return Err(LayoutError::Outside { what: "element", at, size });
        }
        let has = |&pe: &Pe| match self.table(shape) {
            Ok(Some(custom)) => {
                let (start, extent) = &custom.tiles[pe.row * self.cols + pe.col];
                (0..index.len()).all(|a| (start[a]..start[a] + extent[a]).contains(&index[a]))
            }
            _ => self.splits(shape.len()).is_ok_and(|splits| {
                let owns =
                    |((&index, &size), (split, axis)): ((&usize, &usize), (Split, MeshAxis))| {
                        split.owner(size, index).is_none_or(|owner| owner == self.part(pe, axis))
                    };
                index.iter().zip(shape).zip(splits).all(owns)
            }),
        };
        self.table(shape)?;
        self.splits(shape.len())?;
        Ok(self.pes().filter(has).collect())
    }

    /// The first processor that has an element.
    ///
    /// Errors: as [`MeshLayout::owners`].
    pub fn pe_for_element(&self, index: &[usize], shape: &[usize]) -> Result<Pe> {
        let owners = self.owners(index, shape)?;
        Ok(owners.first().copied().expect("each element has an owner"))
    }

    /// The index of an element in its owners' tiles.
    ///
    /// Errors: as [`MeshLayout::owners`].
    pub fn local_index(&self, index: &[usize], shape: &[usize]) -> Result<Vec<usize>> {
        self.local_index_in(self.pe_for_element(index, shape)?, index, shape)
    }

    /// The index of an element in the tile of one of its owners.
    pub(crate) fn local_index_in(
        &self,
        owner: Pe,
        index: &[usize],
        shape: &[usize],
    ) -> Result<Vec<usize>> {
        if let Some(custom) = self.table(shape)? {
            let (start, _) = &custom.tiles[self.number(owner)?];
            return Ok(index.iter().zip(start).map(|(i, s)| i - s).collect());
        }
        let splits = self.splits(shape.len())?;
        let local = |((&index, &size), (split, _)): ((&usize, &usize), (Split, _))| {
            split.local(size, index)
        };
        Ok(index.iter().zip(shape).zip(splits).map(local).collect())
    }

    /// The offset in bytes of the first element of a processor's tile in the row-major tensor, for
    /// elements of `item` bytes; `None` if the processor has no elements.
    ///
    /// Errors: as [`MeshLayout::rectangles`].
    pub fn tile_offset(&self, pe: Pe, shape: &[usize], item: usize) -> Result<Option<usize>> {
        let rects = self.rectangles(pe, shape)?;
        let offset = |rect: &TileRect| {
            let at = rect.start.iter().zip(shape);
            at.fold(0usize, |all, (start, size)| all * size + start) * item
        };
        Ok(rects.first().map(offset))
    }

    /// The size of a processor's tile in bytes, for elements of `item` bytes. Saturates.
    ///
    /// Errors: as [`MeshLayout::rectangles`].
    pub fn tile_bytes(&self, pe: Pe, shape: &[usize], item: usize) -> Result<usize> {
        let tile = self.tile_shape(pe, shape)?;
        // A saturated product with a later zero would be wrong.
        let empty = tile.contains(&0);
        Ok(if empty { 0 } else { tile.into_iter().fold(item, usize::saturating_mul) })
    }

    /// The size of the largest tile in bytes, for elements of `item` bytes.
    ///
    /// Errors: as [`MeshLayout::rectangles`].
    pub fn memory_per_pe(&self, shape: &[usize], item: usize) -> Result<usize> {
        if self.custom.is_none() {
            // The first processor has the largest tile.
            return self.tile_bytes(Pe::default(), shape, item);
        }
        let bytes = |pe| self.tile_bytes(pe, shape, item);
        self.pes().map(bytes).try_fold(0, |most, bytes| Ok(most.max(bytes?)))
    }

    /// Whether each processor has the same elements of a tensor of this shape under both layouts,
    /// so that a redistribution moves no data.
    ///
    /// Errors: as [`MeshLayout::rectangles`].
    pub fn compatible_with(&self, other: &MeshLayout, shape: &[usize]) -> Result<bool> {
        if (self.rows, self.cols) != (other.rows, other.cols) {
            return Ok(false);
        }
        for pe in self.pes() {
            if self.rectangles(pe, shape)? != other.rectangles(pe, shape)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The processor's position along an axis of the mesh.
    pub(crate) fn part(&self, pe: Pe, axis: MeshAxis) -> usize {
        match axis {
            MeshAxis::Row => pe.row,
            MeshAxis::Col => pe.col,
            MeshAxis::Both => pe.row * self.cols + pe.col,
        }
    }
}

mod spec;
mod text;

#[cfg(test)]
mod tests;

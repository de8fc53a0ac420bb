//! Which layouts fit the memory of the processing elements (PEs) of a wafer, and the one that needs
//! the fewest of them.
//!
//! Source: the layout planner of the design's document on memory and layout; unlike there, all meshes
//! of the fabric are searched, and a layout that is found fits.

use crate::{LayoutError, MeshAxis, MeshLayout, Pe, Result};
use girih_ir::sharding::MAX_PROCESSORS;

/// The limits that a layout must keep, and the preferences among layouts that keep them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayoutConstraints {
    /// The most bytes of a tile.
    pub max_memory_per_pe: usize,
    /// The fewest elements of the largest tile, if there is more than one.
    pub min_tile_elements: usize,
    /// The rows of the fabric.
    pub max_pe_rows: usize,
    /// The columns of the fabric.
    pub max_pe_cols: usize,
    /// Whether tiles that are nearly square are better than others.
    pub prefer_square_tiles: bool,
}

impl Default for LayoutConstraints {
    /// 32 KB for a tile of at least 64 elements, on the 750 x 994 usable PEs of a WSE-2.
    fn default() -> LayoutConstraints {
        LayoutConstraints {
            max_memory_per_pe: 32 * 1024,
            min_tile_elements: 64,
            max_pe_rows: 750,
            max_pe_cols: 994,
            prefer_square_tiles: true,
        }
    }
}

/// The bytes of a tensor's tiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryUsage {
    /// The bytes of the smallest tile, which is 0 if a PE has no elements.
    pub min: usize,
    /// The bytes of the largest tile.
    pub max: usize,
    /// The mean over all PEs of the layout.
    pub average: f64,
    /// The sum. Saturates.
    pub total: usize,
}

/// The bytes of the tiles of a tensor, for elements of `item` bytes.
///
/// Errors: as [`MeshLayout::rectangles`].
pub fn memory_usage_per_pe(
    layout: &MeshLayout,
    shape: &[usize],
    item: usize,
) -> Result<MemoryUsage> {
    let (mut min, mut max, mut total) = (usize::MAX, 0, 0usize);
    for pe in layout.pes() {
        let bytes = layout.tile_bytes(pe, shape, item)?;
        (min, max, total) = (min.min(bytes), max.max(bytes), total.saturating_add(bytes));
    }
    Ok(MemoryUsage { min, max, average: total as f64 / layout.total_pes() as f64, total })
}

/// The bytes of a tensor. Saturates.
fn bytes_of(shape: &[usize], item: usize) -> usize {
    match shape.contains(&0) {
        true => 0,
        false => shape.iter().fold(item, |all, &size| all.saturating_mul(size)),
    }
}

/// A mesh, and the axes of a tensor that its axes split.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    rows: usize,
    cols: usize,
    axes: Vec<Option<MeshAxis>>,
}

impl Candidate {
    fn tile(&self, shape: &[usize]) -> Vec<usize> {
        let parts = |axis: &Option<MeshAxis>| match axis {
            None => 1,
            Some(MeshAxis::Row) => self.rows,
            Some(MeshAxis::Col) => self.cols,
            Some(MeshAxis::Both) => self.rows.saturating_mul(self.cols),
        };
        shape.iter().zip(&self.axes).map(|(size, axis)| size.div_ceil(parts(axis))).collect()
    }

    /// The layout, as a kind without axes if there is one.
    fn layout(&self) -> Result<MeshLayout> {
        use MeshAxis::*;
        match &self.axes[..] {
            [Some(Row)] => MeshLayout::row_partition(self.rows),
            [Some(Row), Some(Col), rest @ ..] if rest.iter().all(Option::is_none) => {
                MeshLayout::grid(self.rows, self.cols)
            }
            axes => MeshLayout::grid(self.rows, self.cols)?.with_axes(axes),
        }
    }
}

impl LayoutConstraints {
    /// The fewest PEs that have the bytes of a tensor, if its sizes could be divided at will.
    pub fn min_pes(&self, shape: &[usize], item: usize) -> usize {
        bytes_of(shape, item).div_ceil(self.max_memory_per_pe.max(1)).max(1)
    }

    /// The layout with the fewest PEs whose tiles fit; among equals the one with the lowest
    /// [`score`](LayoutConstraints::score), then with fewer rows. A tensor that fits one PE is on
    /// one. A vector is split over rows, or over all processors if there are not enough rows; a
    /// tensor of higher rank along two of its axes.
    ///
    /// Errors: [`LayoutError::Fit`] if no layout fits.
    ///
    /// Cost: linear in the rows of the fabric, for each pair of axes.
    pub fn auto(&self, shape: &[usize], item: usize) -> Result<MeshLayout> {
        if bytes_of(shape, item) <= self.max_memory_per_pe {
            return Ok(MeshLayout::single_pe());
        }
        let mut candidates = self.over_one_axis_each(shape, item);
        self.retain(&mut candidates, shape);
        if candidates.is_empty() {
            candidates = self.over_both(shape, item);
            self.retain(&mut candidates, shape);
        }
        let best = candidates.into_iter().min_by(|a, b| {
            let score = |c: &Candidate| self.score(&c.tile(shape), item);
            let pes = |c: &Candidate| c.rows.saturating_mul(c.cols);
            let by_score = || score(a).total_cmp(&score(b));
            pes(a).cmp(&pes(b)).then_with(by_score).then_with(|| a.rows.cmp(&b.rows))
        });
        let Some(best) = best else { return Err(self.nothing_fits(shape, item)) };
        best.layout()
    }

    /// The distance of a tile from a square of the largest size; lower is better. `|ln(rows / columns)|`
    /// of the tile as a matrix, whose columns are its last axis, plus the part of a PE's memory that
    /// it leaves. The transfers of ops are priced by the planner of a graph, not here.
    pub fn score(&self, tile: &[usize], item: usize) -> f64 {
        let aspect = match tile {
            [leading @ .., last] if self.prefer_square_tiles && !leading.is_empty() => {
                (bytes_of(leading, 1) as f64 / *last as f64).ln().abs()
            }
            _ => 0.0,
        };
        aspect + 1.0 - bytes_of(tile, item) as f64 / self.max_memory_per_pe as f64
    }

    /// Checks that a layout is on the fabric and its tiles fit.
    ///
    /// Errors: [`LayoutError::Fit`]; as [`MeshLayout::rectangles`].
    pub fn check(&self, layout: &MeshLayout, shape: &[usize], item: usize) -> Result<()> {
        self.check_memory(layout, shape, item)?;
        let elements = layout.memory_per_pe(shape, item)? / item.max(1);
        let least = self.min_tile_elements;
        if layout.total_pes() > 1 && elements < least {
            return Err(LayoutError::Fit(format!(
                "{layout} of a tensor of {shape:?} has tiles of {elements} elements, fewer than \
                 {least}; use {}",
                self.cure(shape, item)
            )));
        }
        Ok(())
    }

    /// Checks that a layout is on the fabric and its tiles are not too large.
    pub(crate) fn check_memory(
        &self,
        layout: &MeshLayout,
        shape: &[usize],
        item: usize,
    ) -> Result<()> {
        let (rows, cols) = (self.max_pe_rows, self.max_pe_cols);
        if layout.rows() > rows || layout.cols() > cols {
            return Err(LayoutError::Fit(format!(
                "{layout} has {} x {} PEs, the fabric {rows} x {cols}; use {}",
                layout.rows(),
                layout.cols(),
                self.cure(shape, item)
            )));
        }
        let (bytes, limit) = (layout.memory_per_pe(shape, item)?, self.max_memory_per_pe);
        if bytes > limit {
            let of_first = layout.tile_shape(Pe::default(), shape)?;
            return Err(LayoutError::Fit(format!(
                "{layout} of a tensor of {shape:?} has tiles of {bytes} B, more than the {limit} B of \
                 a PE; the first one is {of_first:?}; use {}",
                self.cure(shape, item)
            )));
        }
        Ok(())
    }

    /// A layout that fits, as advice.
    pub(crate) fn cure(&self, shape: &[usize], item: usize) -> String {
        match self.auto(shape, item) {
            Ok(layout) => layout.to_string(),
            Err(_) => "a smaller tensor, for no layout fits the fabric".into(),
        }
    }

    fn nothing_fits(&self, shape: &[usize], item: usize) -> LayoutError {
        let LayoutConstraints { max_pe_rows: rows, max_pe_cols: cols, min_tile_elements, .. } =
            self;
        LayoutError::Fit(format!(
            "no layout fits a tensor of {shape:?}, {} B, on {rows} x {cols} PEs with tiles of \
             {min_tile_elements} elements to {} B; split the tensor, or use smaller elements",
            bytes_of(shape, item),
            self.max_memory_per_pe
        ))
    }

    fn retain(&self, candidates: &mut Vec<Candidate>, shape: &[usize]) {
        candidates.retain(|c| bytes_of(&c.tile(shape), 1) >= self.min_tile_elements);
    }

    /// The most rows of a mesh.
    fn rows(&self) -> usize {
        self.max_pe_rows.min(MAX_PROCESSORS)
    }

    /// For each number of rows, the fewest columns with which the tiles fit.
    fn over_one_axis_each(&self, shape: &[usize], item: usize) -> Vec<Candidate> {
        let of_axes = |row: usize, col: usize| {
            let mut axes = vec![None; shape.len()];
            axes[row] = Some(MeshAxis::Row);
            axes[col] = Some(MeshAxis::Col);
            axes
        };
        if let &[size] = shape {
            let rows = parts_that_fit(size, item, self.max_memory_per_pe);
            let rows = rows.filter(|&rows| rows <= self.max_pe_rows);
            let axes = vec![Some(MeshAxis::Row)];
            return rows.map(|rows| Candidate { rows, cols: 1, axes }).into_iter().collect();
        }
        let mut found = Vec::new();
        for (row, col) in (0..shape.len()).flat_map(|i| (i + 1..shape.len()).map(move |j| (i, j))) {
            let others = shape.iter().enumerate().filter(|&(at, _)| at != row && at != col);
            let slice = others.fold(item, |all, (_, &size)| all.saturating_mul(size));
            for rows in 1..=self.rows().min(shape[row]) {
                let line = slice.saturating_mul(shape[row].div_ceil(rows));
                let cols = parts_that_fit(shape[col], line, self.max_memory_per_pe);
                let cols = cols.filter(|&cols| cols <= self.max_pe_cols);
                found.extend(cols.map(|cols| Candidate { rows, cols, axes: of_axes(row, col) }));
            }
        }
        found
    }

    /// For each axis and number of rows, the fewest columns with which the tiles fit, if all
    /// processors split this axis.
    fn over_both(&self, shape: &[usize], item: usize) -> Vec<Candidate> {
        let mut found = Vec::new();
        for (axis, &size) in shape.iter().enumerate() {
            let others = shape.iter().enumerate().filter(|&(at, _)| at != axis);
            let line = others.fold(item, |all, (_, &size)| all.saturating_mul(size));
            let Some(parts) = parts_that_fit(size, line, self.max_memory_per_pe) else { continue };
            for rows in 1..=self.rows().min(parts) {
                let cols = parts.div_ceil(rows);
                if cols <= self.max_pe_cols {
                    let mut axes = vec![None; shape.len()];
                    axes[axis] = Some(MeshAxis::Both);
                    found.push(Candidate { rows, cols, axes });
                }
            }
        }
        found
    }
}

/// The fewest parts of `size` elements of `item` bytes that fit a limit.
fn parts_that_fit(size: usize, item: usize, limit: usize) -> Option<usize> {
    let most = limit / item.max(1);
    (most > 0).then(|| size.div_ceil(most))
}

impl MeshLayout {
    /// The layout with the fewest PEs of a WSE-2 on which a tensor fits:
    /// [`LayoutConstraints::auto`] with the default constraints.
    ///
    /// Errors: [`LayoutError::Fit`] if no layout fits.
    pub fn auto(shape: &[usize], item: usize) -> Result<MeshLayout> {
        LayoutConstraints::default().auto(shape, item)
    }
}

#[cfg(test)]
mod tests;

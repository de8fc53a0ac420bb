//! Drawings of shardings: a box for each part of a tensor, with the devices that have it. A tensor of
//! rank 2 is a table, one of rank 1 a row, and one of a higher rank a table for each part of its
//! leading dimensions.

mod svg;
mod text;

use crate::ownership::{partial_axes, rectangles};
use girih_ir::{Result, Sharding};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The form of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawing {
    /// Lines of text.
    Text,
    /// An SVG document.
    Svg,
}

/// The most rows and columns of a table, and the most tables, that are drawn.
const MOST: usize = 16;

/// The most characters of the devices in a box.
const LABEL: usize = 24;

/// A table of boxes.
struct Table {
    /// The part of the leading dimensions, if there are any.
    title: String,
    /// The ranges of the rows and of the columns; empty for a tensor without such a dimension.
    rows: Vec<String>,
    columns: Vec<String>,
    /// The devices of each box, by row.
    boxes: Vec<Vec<String>>,
}

/// The tables of a tensor, and what is said below them.
struct Tables {
    tables: Vec<Table>,
    notes: Vec<String>,
}

/// Draws which devices have which elements of a tensor. Long dimensions are drawn in part.
///
/// Errors: [`girih_ir::Error::InvalidArgument`] for more entries than dimensions.
pub fn drawing(sharding: &Sharding, shape: &[usize], form: Drawing) -> Result<String> {
    let tables = tables(sharding, shape)?;
    Ok(match form {
        Drawing::Text => text::written(&tables),
        Drawing::Svg => svg::written(&tables),
    })
}

/// The parts of each dimension, as start and end, ascending.
type Cuts = Vec<Vec<(usize, usize)>>;

fn tables(sharding: &Sharding, shape: &[usize]) -> Result<Tables> {
    let mesh = sharding.mesh();
    let mut cuts: Cuts = vec![Vec::new(); shape.len()];
    // The devices of each part, by the number of the part along each dimension.
    let mut owners: BTreeMap<Vec<usize>, Vec<u32>> = BTreeMap::new();
    let mut without = Vec::new();
    let rects = rectangles(sharding, shape)?;
    for rect in rects.iter().filter(|rect| !rect.is_empty()) {
        for (dim, cuts) in cuts.iter_mut().enumerate() {
            cuts.push((rect.start[dim], rect.start[dim] + rect.extent[dim]));
        }
    }
    for cuts in &mut cuts {
        cuts.sort_unstable();
        cuts.dedup();
    }
    for (position, rect) in rects.iter().enumerate() {
        let device = mesh.device(position);
        if rect.is_empty() {
            without.push(device);
            continue;
        }
        let part = cuts.iter().zip(&rect.start);
        let part = part.map(|(cuts, start)| cuts.partition_point(|cut| cut.0 < *start));
        owners.entry(part.collect()).or_default().push(device);
    }
    let mut notes = Vec::new();
    if !without.is_empty() {
        notes.push(format!("without elements: {}", numbers(&mut without)));
    }
    if let (partial, Some(op)) = (partial_axes(sharding), sharding.spec().partial_op())
        && !partial.is_empty()
    {
        let axes: Vec<String> = partial.iter().map(ToString::to_string).collect();
        notes.push(format!("partial ({}) along {}", op.def().name, axes.join(", ")));
    }
    Ok(Tables { tables: tables_of(&cuts, &mut owners, &mut notes), notes })
}

/// The tables of the parts, for each part of the leading dimensions.
fn tables_of(
    cuts: &Cuts,
    owners: &mut BTreeMap<Vec<usize>, Vec<u32>>,
    notes: &mut Vec<String>,
) -> Vec<Table> {
    let leading = cuts.len().saturating_sub(2);
    for (dim, cuts) in cuts.iter().enumerate().skip(leading) {
        if cuts.len() > MOST {
            notes.push(format!("the first {MOST} of {} parts of dimension {dim}", cuts.len()));
        }
    }
    let count = cuts[..leading].iter().fold(1usize, |all, cuts| all.saturating_mul(cuts.len()));
    if count > MOST {
        notes.push(format!("the first {MOST} of {count} tables"));
    }
    let mut tables = Vec::new();
    let mut at = vec![0; leading];
    while tables.len() < count.min(MOST) {
        let dims = cuts[..leading].iter().zip(&at).map(|(cuts, &part)| range(cuts[part]));
        let mut title: String = dims.fold("[".into(), |title, dim| title + &dim + ", ");
        title.push_str(":, :]");
        let mut table = table(&cuts[leading..], |end| {
            let part: Vec<usize> = at.iter().chain(end).copied().collect();
            owners.get_mut(&part).map(|devices| numbers(devices)).unwrap_or_default()
        });
        if leading > 0 {
            table.title = title;
        }
        tables.push(table);
        // The next part of the leading dimensions, the last one fastest.
        for dim in (0..leading).rev() {
            at[dim] += 1;
            if at[dim] < cuts[dim].len() {
                break;
            }
            at[dim] = 0;
        }
    }
    tables
}

/// The table of the last dimensions, at most two.
fn table(cuts: &[Vec<(usize, usize)>], mut owners: impl FnMut(&[usize]) -> String) -> Table {
    let labels = |cuts: &[(usize, usize)]| -> Vec<String> {
        cuts.iter().take(MOST).map(|&cut| range(cut)).collect()
    };
    // A tensor without elements has no parts, and no boxes.
    let len = |cuts: &[_]| cuts.len().min(MOST);
    let (rows, columns, height, width) = match cuts {
        [] => (vec![], vec![], 1, 1),
        [only] => (vec![], labels(only), 1, len(only)),
        [rows, columns, ..] => (labels(rows), labels(columns), len(rows), len(columns)),
    };
    let mut boxed = |row: usize, column: usize| {
        let part = [row, column];
        owners(&part[2 - cuts.len()..])
    };
    let boxes = (0..height).map(|row| (0..width).map(|column| boxed(row, column)).collect());
    Table { title: String::new(), rows, boxes: boxes.collect(), columns }
}

fn range((start, end): (usize, usize)) -> String {
    format!("{start}..{end}")
}

/// Numbers with a dash for those that follow each other, as `0-3, 8`.
fn numbers(numbers: &mut [u32]) -> String {
    numbers.sort_unstable();
    let mut text = String::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        if text.len() > LABEL {
            let _ = write!(text, ", ... ({})", numbers.len());
            break;
        }
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = match run {
            [only] => write!(text, "{comma}{only}"),
            [first, second] => write!(text, "{comma}{first}, {second}"),
            [first, .., last] => write!(text, "{comma}{first}-{last}"),
            [] => Ok(()),
        };
    }
    text
}

#[cfg(test)]
mod tests;

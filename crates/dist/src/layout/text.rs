//! The text of layouts, as `Grid(4, 8)`.

use super::{LayoutKind, MeshAxis, MeshLayout};
use crate::{LayoutError, Result};
use std::fmt;
use std::str::FromStr;

impl fmt::Display for MeshLayout {
    /// As `Grid(4, 8)`. A layout with axes has a number for each axis of the tensor: `[1, -1, 0]`
    /// splits the first one over the columns of the mesh, the third one over its rows, and the second
    /// one not at all; `[0+1]` splits it over all processors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MeshLayout { rows, cols, block: (br, bc), .. } = self;
        match self.kind {
            LayoutKind::SinglePe => write!(f, "SinglePE"),
            LayoutKind::RowPartition => write!(f, "RowPartition({rows})"),
            LayoutKind::ColPartition => write!(f, "ColPartition({cols})"),
            LayoutKind::Grid => write!(f, "Grid({rows}, {cols})"),
            LayoutKind::BlockCyclic => write!(f, "BlockCyclic({rows}, {cols}, {br}, {bc})"),
            LayoutKind::Custom => write!(f, "Custom({rows}, {cols})"),
            LayoutKind::Replicated => write!(f, "Replicated({rows}, {cols})"),
        }?;
        let number = |axis: &Option<MeshAxis>| match axis {
            None => "-1",
            Some(MeshAxis::Row) => "0",
            Some(MeshAxis::Col) => "1",
            Some(MeshAxis::Both) => "0+1",
        };
        match &self.axes {
            Some(axes) => {
                write!(f, "[{}]", axes.iter().map(number).collect::<Vec<_>>().join(", "))
            }
            None => Ok(()),
        }
    }
}

impl FromStr for MeshLayout {
    type Err = LayoutError;

    /// Parses the format that [`MeshLayout`] prints, except for custom layouts, whose text does not
    /// contain the table.
    fn from_str(text: &str) -> Result<MeshLayout> {
        let wrong = || LayoutError::Text(text.to_string());
        if let Some((layout, axes)) = text.trim().strip_suffix(']').and_then(|t| t.split_once('['))
        {
            let axis = |number: &str| match number.trim() {
                "-1" => Ok(None),
                "0" => Ok(Some(MeshAxis::Row)),
                "1" => Ok(Some(MeshAxis::Col)),
                "0+1" => Ok(Some(MeshAxis::Both)),
                _ => Err(wrong()),
            };
            let axes = axes.split(',').filter(|_| !axes.trim().is_empty()).map(axis);
            let axes = axes.collect::<Result<Vec<Option<MeshAxis>>>>()?;
            return layout.parse::<MeshLayout>()?.with_axes(&axes);
        }
        let (name, rest) = match text.trim().split_once('(') {
            Some((name, rest)) => (name, rest.strip_suffix(')').ok_or_else(wrong)?),
            None => (text.trim(), ""),
        };
        let numbers = rest.split(',').filter(|n| !n.trim().is_empty()).map(|n| n.trim().parse());
        let numbers: Vec<usize> =
            numbers.collect::<std::result::Result<_, _>>().map_err(|_| wrong())?;
        match (name, &numbers[..]) {
            ("SinglePE", []) => Ok(MeshLayout::single_pe()),
            ("RowPartition", &[rows]) => MeshLayout::row_partition(rows),
            ("ColPartition", &[cols]) => MeshLayout::col_partition(cols),
            ("Grid", &[rows, cols]) => MeshLayout::grid(rows, cols),
            ("BlockCyclic", &[rows, cols, br, bc]) => MeshLayout::block_cyclic(rows, cols, br, bc),
            ("Replicated", &[rows, cols]) => MeshLayout::replicated(rows, cols),
            _ => Err(wrong()),
        }
    }
}

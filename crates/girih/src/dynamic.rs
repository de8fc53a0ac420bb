//! Axes of arguments whose sizes may differ from call to call.

use crate::{Error, Result};
use girih_ir::dim::{Symbol, is_name};
use girih_ir::shape::normalize_axis;
use girih_ir::{Dim, Shape, TensorSpec};

/// An axis whose size may differ from call to call.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicDim {
    /// The axis; a negative axis counts from the end.
    pub axis: i64,
    /// The name of the size. Axes with the same name have the same size.
    pub name: String,
    /// The minimum size and the optional maximum size, if the user declared them. Without a range
    /// any size is allowed; an axis without elements gets a separate program.
    pub range: Option<(usize, Option<usize>)>,
    /// The size of a tile along the axis: calls with a larger size run tile by tile; see
    /// [`crate::Compiled::tile`].
    pub tile: Option<usize>,
}

impl DynamicDim {
    /// An axis of any size.
    pub fn new(axis: i64, name: &str) -> DynamicDim {
        DynamicDim { axis, name: name.into(), range: None, tile: None }
    }
}

impl From<(i64, &str)> for DynamicDim {
    fn from((axis, name): (i64, &str)) -> DynamicDim {
        DynamicDim::new(axis, name)
    }
}

fn invalid(shape: &Shape, reason: String) -> Error {
    girih_ir::Error::InvalidShape { op: "compile", shape: shape.clone(), reason }.into()
}

/// The spec of an argument with symbolic sizes for its dynamic axes.
pub(crate) fn symbolic_spec(
    spec: &TensorSpec,
    dims: &[DynamicDim],
    named: &mut Vec<Dim>,
) -> Result<TensorSpec> {
    let mut shape = spec.shape.clone();
    for dynamic in dims {
        let DynamicDim { axis, name, range, tile: _ } = dynamic;
        if !is_name(name) {
            return Err(Error::InvalidArgument(format!(
                "compile: '{name}' is no name of a dimension; use letters, digits and underscores, \
                 as in 'batch'"
            )));
        }
        let axis = normalize_axis("compile", *axis, shape.rank())?;
        let size = spec.shape[axis];
        let (min, max) = range.unwrap_or((1, None));
        if size < min || max.is_some_and(|max| size > max) {
            if range.is_none() {
                continue;
            }
            let max = max.map_or("any number".to_string(), |max| max.to_string());
            return Err(invalid(
                &spec.shape,
                format!("axis {axis} ('{name}') has size {size}; expected {min} to {max}"),
            ));
        }
        let dim = Dim::symbol(name, size, min, max);
        let known = named.iter().find(|d| d.as_symbol().is_some_and(|s| s.name() == name));
        match known {
            Some(known) if *known != dim => {
                let reason = format!(
                    "axis {axis} ('{name}') has size {size} where another axis of that name has {}; \
                     axes of one name have one size and one range",
                    known.hint()
                );
                return Err(invalid(&spec.shape, reason));
            }
            Some(_) => {}
            None => named.push(dim),
        }
        shape = shape.with_dim(axis, dim);
    }
    Ok(TensorSpec { shape, dtype: spec.dtype })
}

/// The sizes of tiles along the axes of symbols.
pub(crate) fn tiles(
    dims: &[Vec<DynamicDim>],
    symbols: &[&'static Symbol],
) -> Result<Vec<(&'static Symbol, usize)>> {
    let mut tiles: Vec<(&'static Symbol, usize)> = Vec::new();
    for DynamicDim { name, tile, .. } in dims.iter().flatten() {
        let Some(tile) = *tile else { continue };
        if tile == 0 {
            return Err(Error::InvalidArgument(format!(
                "compile: the tile along '{name}' has size 0, expected at least 1"
            )));
        }
        let Some(symbol) = symbols.iter().find(|symbol| symbol.name() == name) else { continue };
        match tiles.iter().find(|(known, _)| std::ptr::eq(*known, *symbol)) {
            Some((_, other)) if *other != tile => {
                return Err(Error::InvalidArgument(format!(
                    "compile: the tiles along '{name}' have sizes {other} and {tile}; axes of one \
                     name have one tile"
                )));
            }
            Some(_) => {}
            None => tiles.push((symbol, tile)),
        }
    }
    Ok(tiles)
}

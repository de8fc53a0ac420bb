//! Arguments for the strides, padding and dilation of kernels and windows.

use crate::args::{IntArg, SizesArg, described};
use crate::errors::invalid;
use crate::sequences::{Pair, PerAxis};
use girih::Padding;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Padding as written: one width, widths per axis, pairs per axis, or a name. [`PaddingArg::get`],
/// which takes the name of the function for errors, checks it.
pub enum PaddingArg {
    Name(String),
    Widths(Vec<(i64, i64)>),
    Other(String),
}

impl PaddingArg {
    /// No padding.
    pub fn none() -> PaddingArg {
        PaddingArg::Widths(vec![(0, 0)])
    }

    /// Converts the padding to the library's type.
    pub fn get(&self, op: &str) -> PyResult<Padding> {
        let found = match self {
            PaddingArg::Name(name) => match name.to_lowercase().as_str() {
                "same" => return Ok(Padding::Same),
                "valid" => return Ok(Padding::Valid),
                _ => format!("'{name}'"),
            },
            PaddingArg::Widths(pairs) => {
                let size = |&w: &i64| usize::try_from(w).ok();
                let pair = |(a, b): &(i64, i64)| Some((size(a)?, size(b)?));
                match pairs.iter().map(pair).collect::<Option<_>>() {
                    Some(pairs) => return Ok(Padding::Explicit(pairs)),
                    None => match &pairs[..] {
                        [(a, b)] if a == b => a.to_string(),
                        pairs if pairs.iter().all(|(a, b)| a == b) => {
                            format!("{:?}", pairs.iter().map(|p| p.0).collect::<Vec<_>>())
                        }
                        pairs => format!("{pairs:?}"),
                    },
                }
            }
            PaddingArg::Other(found) => found.clone(),
        };
        Err(invalid(format!(
            "{op}: padding must be 'same', 'valid', one width, one per axis, or a pair (before, \
             after) per axis, none negative; got {found}"
        )))
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for PaddingArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(name) = object.cast::<PyString>() {
            return Ok(PaddingArg::Name(name.to_string()));
        }
        if let Ok(SizesArg(widths)) = object.extract::<SizesArg>() {
            return Ok(PaddingArg::Widths(widths.iter().map(|&w| (w, w)).collect()));
        }
        match object.extract::<PerAxis<Pair<i64>>>() {
            Ok(pairs) => {
                Ok(PaddingArg::Widths(pairs.iter().map(|pair| (pair.0, pair.1)).collect()))
            }
            Err(_) => Ok(PaddingArg::Other(described(&object))),
        }
    }
}

/// Checks that a count is at least 1.
pub fn count(op: &str, what: &str, value: IntArg) -> PyResult<usize> {
    match usize::try_from(value.0) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(invalid(format!("{op}: {what} must be at least 1, got {}", value.0))),
    }
}

/// Checks that there are exactly `n` sizes, each at least 1; a single size stands for all axes.
pub fn exactly(op: &str, what: &str, sizes: &SizesArg, n: usize) -> PyResult<Vec<usize>> {
    let sizes = sizes.at_least(1, op, what)?;
    match sizes.len() {
        1 => Ok(vec![sizes[0]; n]),
        len if len == n => Ok(sizes),
        len => Err(invalid(format!("{op}: {what} has {len} entries, expected one or {n}"))),
    }
}

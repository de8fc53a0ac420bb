//! Distribution of tensors over processors: a [`MeshLayout`] determines which part of a tensor
//! belongs to which processor of a mesh with axes `(row, col)`.
//!
//! This crate only uses sizes; it does not depend on dtypes, memory or data movement.
#![forbid(unsafe_code)]

mod axis;
mod error;
mod layout;

pub use axis::{Span, spans};
pub use error::{LayoutError, Result};
pub use layout::{LayoutKind, MeshAxis, MeshLayout, Pe, TileRect};

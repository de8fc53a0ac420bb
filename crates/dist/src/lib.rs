//! How tensors are distributed over processors: a [`MeshLayout`] says which part of a tensor belongs to
//! which processor of a mesh with axes `(row, col)`.
//!
//! This crate knows sizes only: not what the elements are, where they are, or how they get there.
#![forbid(unsafe_code)]

mod axis;
mod error;
mod layout;

pub use axis::{Span, spans};
pub use error::{LayoutError, Result};
pub use layout::{LayoutKind, MeshAxis, MeshLayout, Pe, TileRect};

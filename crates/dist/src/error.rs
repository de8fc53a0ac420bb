//! What a layout cannot be, or cannot be asked.

use thiserror::Error;

/// What can be wrong with a layout, or with a question to it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// A number of processors or elements that has to be at least 1, or small enough to count.
    #[error(
        "{what} is {found}; expected at least 1, and no more processors in all than can be counted"
    )]
    Size {
        /// What it is the number of.
        what: &'static str,
        /// The number.
        found: usize,
    },
    /// A tensor of another rank than the layout is for.
    #[error(
        "{layout} is for tensors {expected}, found rank {found}; say which axes it splits by with_axes"
    )]
    Rank {
        /// The layout.
        layout: String,
        /// The ranks that it is for.
        expected: &'static str,
        /// The tensor's rank.
        found: usize,
    },
    /// An axis of the mesh named twice, or a wrong number of names.
    #[error("with_axes: {0}")]
    Axes(String),
    /// A processor or an element outside.
    #[error("{what} {at:?} is outside of {size:?}")]
    Outside {
        /// What is outside.
        what: &'static str,
        /// Where it is.
        at: Vec<usize>,
        /// The size that it is outside of.
        size: Vec<usize>,
    },
    /// Rectangles that do not cover a tensor exactly once.
    #[error("{0}")]
    Cover(String),
    /// Text that is no layout.
    #[error(
        "{0:?} is no layout; expected SinglePE, RowPartition(n), ColPartition(n), Grid(r, c), \
         BlockCyclic(r, c, br, bc) or Replicated(r, c)"
    )]
    Text(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, LayoutError>;

//! The errors of layouts.

use thiserror::Error;

/// An invalid layout, or an invalid query of a layout.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// A number of processors or elements that is zero or too large.
    #[error(
        "{what} is {found}; expected at least 1, and no more processors in all than can be counted"
    )]
    Size {
        /// The meaning of the number.
        what: &'static str,
        /// The number.
        found: usize,
    },
    /// The rank of the tensor does not fit the layout.
    #[error(
        "{layout} is for tensors {expected}, found rank {found}; say which axes it splits by with_axes"
    )]
    Rank {
        /// The layout.
        layout: String,
        /// The ranks that the layout supports.
        expected: &'static str,
        /// The tensor's rank.
        found: usize,
    },
    /// A duplicate axis of the mesh, or axes that the layout does not allow.
    #[error("with_axes: {0}")]
    Axes(String),
    /// A processor or an element out of range.
    #[error("{what} {at:?} is outside of {size:?}")]
    Outside {
        /// Whether a processor or an element is out of range.
        what: &'static str,
        /// The position.
        at: Vec<usize>,
        /// The bounds.
        size: Vec<usize>,
    },
    /// Rectangles that do not cover a tensor exactly once.
    #[error("{0}")]
    Cover(String),
    /// A tile that is too large for a processor, or too small to be worth one, or a mesh that is
    /// larger than the fabric. Names the sizes and the cure.
    #[error("{0}")]
    Fit(String),
    /// A graph that cannot be planned as it is: a value without a layout, or a symbolic size.
    #[error("{0}")]
    Graph(String),
    /// A spec that is not valid on the mesh of a layout.
    #[error("{0}")]
    Spec(String),
    /// Text that does not describe a layout.
    #[error(
        "{0:?} is no layout; expected SinglePE, RowPartition(n), ColPartition(n), Grid(r, c), \
         BlockCyclic(r, c, br, bc) or Replicated(r, c)"
    )]
    Text(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, LayoutError>;

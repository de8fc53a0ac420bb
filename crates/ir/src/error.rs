//! Errors of recording: everything that can be wrong with an op's operands or attributes, found at
//! the line that records it.

use crate::{DType, Shape};

/// Result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a graph or with an op about to be recorded. Every variant carries the
/// offending values and says what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two operands whose shapes do not fit together.
    #[error("{op}: shapes {lhs} and {rhs} do not fit: {reason}")]
    ShapeMismatch {
        /// Name of the op.
        op: &'static str,
        /// Left or first shape.
        lhs: Shape,
        /// Right or second shape.
        rhs: Shape,
        /// What would have fitted.
        reason: String,
    },
    /// A shape, or an attribute that describes one, that the op cannot take.
    #[error("{op}: {reason} (operand has shape {shape})")]
    InvalidShape {
        /// Name of the op.
        op: &'static str,
        /// The operand's shape.
        shape: Shape,
        /// What is wrong and what was expected.
        reason: String,
    },
    /// An axis outside `-rank..rank`.
    #[error("{op}: axis {axis} is out of range for a tensor of rank {rank}; expected {}", axis_range(*rank))]
    AxisOutOfRange {
        /// Name of the op.
        op: &'static str,
        /// The axis as given.
        axis: i64,
        /// Rank of the operand.
        rank: usize,
    },
    /// An axis named twice.
    #[error("{op}: axis {axis} is named more than once; name each axis once")]
    DuplicateAxis {
        /// Name of the op.
        op: &'static str,
        /// The repeated axis, normalised.
        axis: usize,
    },
    /// An element index outside its axis.
    #[error("{op}: index {index} is out of bounds for axis {axis} of size {size}")]
    IndexOutOfBounds {
        /// Name of the op.
        op: &'static str,
        /// The index as given.
        index: i64,
        /// The axis it indexes.
        axis: usize,
        /// Size of that axis.
        size: usize,
    },
    /// Indices into an axis that has no elements.
    #[error("{op}: axis {axis} has size 0, so that no index is inside it; got {count} indices")]
    EmptyAxis {
        /// Name of the op.
        op: &'static str,
        /// The axis they index.
        axis: usize,
        /// How many indices there are.
        count: usize,
    },
    /// An index expression that makes no sense for the tensor.
    #[error("{op}: {reason}")]
    InvalidIndex {
        /// Name of the op.
        op: &'static str,
        /// What is wrong and what was expected.
        reason: String,
    },
    /// More indices than axes.
    #[error("{op}: {given} indices are too many for a tensor of rank {rank}")]
    TooManyIndices {
        /// Name of the op.
        op: &'static str,
        /// How many were given.
        given: usize,
        /// Rank of the tensor.
        rank: usize,
    },
    /// A dtype the op does not take.
    #[error("{op}: dtype {dtype} is not supported; expected {expected}")]
    DTypeUnsupported {
        /// Name of the op.
        op: &'static str,
        /// The operand's dtype.
        dtype: DType,
        /// What the op takes.
        expected: &'static str,
    },
    /// Operands that must share a dtype and do not.
    #[error("{op}: dtypes {lhs} and {rhs} differ; cast one of them with astype")]
    DTypeMismatch {
        /// Name of the op.
        op: &'static str,
        /// First dtype.
        lhs: DType,
        /// Second dtype.
        rhs: DType,
    },
    /// Two dtypes that no dtype holds together.
    #[error(
        "dtypes {lhs} and {rhs} have no common dtype (no integer dtype holds both); cast one of them with astype"
    )]
    NoCommonDType {
        /// First dtype.
        lhs: DType,
        /// Second dtype.
        rhs: DType,
    },
    /// A scalar that the dtype cannot hold.
    #[error("{value} does not fit in dtype {dtype}; {hint}")]
    ScalarOutOfRange {
        /// The scalar, as written.
        value: String,
        /// The dtype it should have become.
        dtype: DType,
        /// What to do.
        hint: &'static str,
    },
    /// No dtype of that name.
    #[error("unknown dtype '{name}'; expected one of {}", crate::dtype::names())]
    UnknownDType {
        /// The name as given.
        name: String,
    },
    /// A negative dimension.
    #[error("{op}: dimension {index} of the shape is {size}; sizes must not be negative")]
    NegativeSize {
        /// Name of the op.
        op: &'static str,
        /// The size as given.
        size: i64,
        /// Position in the shape.
        index: usize,
    },
    /// Too many elements, of whichever dtype: an eighth of `isize::MAX` at most.
    #[error("{op}: a tensor of shape {shape} has more elements than a tensor may have")]
    CountOverflow {
        /// Name of the op.
        op: &'static str,
        /// The shape.
        shape: Shape,
    },
    /// Element or byte count beyond `isize::MAX`.
    #[error(
        "{op}: a tensor of shape {shape} and dtype {dtype} has more bytes than can be addressed"
    )]
    SizeOverflow {
        /// Name of the op.
        op: &'static str,
        /// The shape.
        shape: Shape,
        /// The dtype.
        dtype: DType,
    },
    /// More dimensions than [`crate::MAX_RANK`].
    #[error("{op}: rank {rank} is more than the {} dimensions a tensor may have", crate::MAX_RANK)]
    RankTooLarge {
        /// Name of the op.
        op: &'static str,
        /// The rank asked for.
        rank: usize,
    },
    /// A call with operands or attributes the op does not have.
    #[error("{op}: {reason}")]
    InvalidArgument {
        /// Name of the op.
        op: &'static str,
        /// What was given and what is expected.
        reason: String,
    },
    /// Text that is no graph.
    #[error("line {line}, column {column}: {reason}\n{snippet}")]
    Parse {
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What was found and what was expected.
        reason: String,
        /// The line with a caret under the place.
        snippet: String,
    },
    /// Bytes that are no file of a format.
    #[error("not a valid {format} file: at byte {offset}, {reason}")]
    Format {
        /// The format.
        format: &'static str,
        /// Where reading stopped.
        offset: u64,
        /// What was found and what was expected.
        reason: String,
    },
    /// A failure in code of a user that was asked for a graph.
    #[error("{reason}")]
    User {
        /// What that code says.
        reason: String,
    },
    /// A broken invariant of a closed graph, found by the verifier.
    #[error("invalid graph at {at}: {reason}")]
    Invalid {
        /// Where, as printed.
        at: String,
        /// Which invariant and how.
        reason: String,
    },
}

fn axis_range(rank: usize) -> String {
    match rank {
        0 => "no axis at all (the tensor is a scalar)".to_string(),
        r => format!("{}..={}", -(r as i64), r - 1),
    }
}

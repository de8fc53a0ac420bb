//! Errors of recording: invalid operands or attributes of an op, reported at the line that records
//! the op.

use crate::{DType, Shape};

/// Result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An index as a program gives it: of a signed dtype, or of an unsigned one beyond the signed range.
/// It takes less room in an error than a wider integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenIndex {
    bits: u64,
    unsigned: bool,
}

impl From<i128> for GivenIndex {
    fn from(index: i128) -> GivenIndex {
        GivenIndex { bits: index as u64, unsigned: index > i64::MAX.into() }
    }
}

impl From<GivenIndex> for i128 {
    fn from(index: GivenIndex) -> i128 {
        if index.unsigned { index.bits.into() } else { (index.bits as i64).into() }
    }
}

impl std::fmt::Display for GivenIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        i128::from(*self).fmt(f)
    }
}

/// An error in a graph, or in an op that is about to be recorded. Every variant carries the
/// offending values and says what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two operands whose shapes do not match.
    #[error("{op}: shapes {lhs} and {rhs} do not fit: {reason}")]
    ShapeMismatch {
        /// Name of the op.
        op: &'static str,
        /// Left or first shape.
        lhs: Shape,
        /// Right or second shape.
        rhs: Shape,
        /// The shapes that would match.
        reason: String,
    },
    /// A shape, or a shape attribute, that the op does not accept.
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
        index: GivenIndex,
        /// The indexed axis.
        axis: usize,
        /// Size of that axis.
        size: usize,
    },
    /// Indices into an axis without elements.
    #[error("{op}: axis {axis} has size 0, so that no index is inside it; got {count} indices")]
    EmptyAxis {
        /// Name of the op.
        op: &'static str,
        /// The indexed axis.
        axis: usize,
        /// The number of indices.
        count: usize,
    },
    /// An index expression that is invalid for the tensor.
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
        /// The number of given indices.
        given: usize,
        /// Rank of the tensor.
        rank: usize,
    },
    /// A dtype that the op does not accept.
    #[error("{op}: dtype {dtype} is not supported; expected {expected}")]
    DTypeUnsupported {
        /// Name of the op.
        op: &'static str,
        /// The operand's dtype.
        dtype: DType,
        /// The dtypes that the op accepts.
        expected: &'static str,
    },
    /// Operands whose dtypes must be equal but differ.
    #[error("{op}: dtypes {lhs} and {rhs} differ; cast one of them with astype")]
    DTypeMismatch {
        /// Name of the op.
        op: &'static str,
        /// First dtype.
        lhs: DType,
        /// Second dtype.
        rhs: DType,
    },
    /// Two dtypes without a common dtype.
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
        /// The dtype to which the scalar should be converted.
        dtype: DType,
        /// What to do.
        hint: &'static str,
    },
    /// A name that is not the name of a dtype.
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
    /// More elements than an eighth of `isize::MAX`, for any dtype.
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
        /// The rank of the result.
        rank: usize,
    },
    /// Operands or attributes that the op does not accept.
    #[error("{op}: {reason}")]
    InvalidArgument {
        /// Name of the op.
        op: &'static str,
        /// What was given and what is expected.
        reason: String,
    },
    /// Text that is not a graph.
    #[error("line {line}, column {column}: {reason}\n{snippet}")]
    Parse {
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What was found and what was expected.
        reason: String,
        /// The line, with a caret below the column.
        snippet: String,
    },
    /// Bytes that are not a valid file of a format.
    #[error("not a valid {format} file: at byte {offset}, {reason}")]
    Format {
        /// The format.
        format: &'static str,
        /// Where reading stopped.
        offset: u64,
        /// What was found and what was expected.
        reason: String,
    },
    /// A failure in user code that was called to record a graph.
    #[error("{reason}")]
    User {
        /// The user code's message.
        reason: String,
    },
    /// A broken invariant of a closed graph, found by the verifier.
    #[error("invalid graph at {at}: {reason}")]
    Invalid {
        /// The place, as the text form prints it.
        at: String,
        /// The invariant and how it is broken.
        reason: String,
    },
}

fn axis_range(rank: usize) -> String {
    match rank {
        0 => "no axis at all (the tensor is a scalar)".to_string(),
        r => format!("{}..={}", -(r as i64), r - 1),
    }
}

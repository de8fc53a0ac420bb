//! The errors of compiling, loading and running plans.

use girih_ir::{GivenIndex, TensorSpec};

/// Result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of compiling or running a graph. Tensors whose evaluation failed stay lazy and may be
/// evaluated again.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No free block is large enough.
    #[error(
        "out of memory on {device}: {requested} bytes requested, {in_use} of {capacity} bytes in \
         use, largest free block {largest_free} bytes; drop tensors you no longer need, evaluate \
         in smaller parts, or raise GIRIH_MEMORY_LIMIT"
    )]
    OutOfMemory {
        /// Name of the device.
        device: String,
        /// The number of bytes requested.
        requested: usize,
        /// The size of the largest block that could be allocated.
        largest_free: usize,
        /// The number of bytes in use.
        in_use: usize,
        /// The number of bytes of all regions.
        capacity: usize,
    },
    /// The system has no host memory for the process.
    #[error(
        "out of memory: the system has no {requested} bytes for this process; work in smaller parts"
    )]
    HostMemory {
        /// The number of bytes requested.
        requested: usize,
    },
    /// A handle that does not refer to `size` bytes of the device's memory.
    #[error("{handle} does not name {size} bytes of {device}")]
    InvalidHandle {
        /// Name of the device.
        device: String,
        /// The handle as text.
        handle: String,
        /// The size of the access in bytes.
        size: usize,
    },
    /// An argument whose kind or spec does not match the program.
    #[error("argument {index}: expected {expected}, got {found}")]
    ArgumentMismatch {
        /// The index of the argument.
        index: usize,
        /// The kind or spec in the plan.
        expected: String,
        /// The kind or spec of the argument.
        found: String,
    },
    /// Several arguments whose kinds or specs do not match the program.
    #[error("{}", .0.iter().map(Error::to_string).collect::<Vec<_>>().join("; "))]
    ArgumentMismatches(
        /// An [`Error::ArgumentMismatch`] for each argument, in order.
        Vec<Error>,
    ),
    /// A wrong number of arguments.
    #[error("the plan takes {expected} arguments, got {found}")]
    ArgumentCount {
        /// The plan's number of arguments.
        expected: usize,
        /// The number of arguments that were passed.
        found: usize,
    },
    /// An index operand that is out of bounds for its axis.
    #[error("{operation}: index {index} is out of bounds for an axis of size {size}")]
    IndexOutOfBounds {
        /// The kernel that found the index.
        operation: String,
        /// The index.
        index: GivenIndex,
        /// The size of the axis.
        size: usize,
    },
    /// A class label that is out of range.
    #[error(
        "{operation}: class label {label} is not among the {classes} classes 0..{classes}; labels \
         that do not count are marked with ignore_index"
    )]
    LabelOutOfRange {
        /// The kernel that found the label.
        operation: String,
        /// The label.
        label: GivenIndex,
        /// The number of classes.
        classes: usize,
    },
    /// A matrix that a linear algebra routine rejects: singular, not positive definite, or not
    /// converging.
    #[error("{operation}: {reason}")]
    Linalg {
        /// The kernel of the routine.
        operation: String,
        /// The reason, and the index of the matrix in the batch.
        reason: String,
    },
    /// A NaN in a result, while checks for NaNs are enabled.
    #[error("{} gives a NaN, the first of this program (debug_nans)", first_nan(op, inside))]
    NotANumber {
        /// The op of the evaluated graph whose result has the NaN.
        op: String,
        /// The index of the op's node.
        node: u32,
        /// The op inside a region that produced the NaN, if `op` is a control op.
        inside: Option<Box<NanInside>>,
    },
    /// A call that would wait, inside of a callback that a run waits for.
    #[error("{0} inside of a callback, which a run waits for; wait outside of the callback")]
    Nested(&'static str),
    /// A failed user-defined op or callback.
    #[error("{0}")]
    Host(girih_ir::ops::host::HostFailure),
    /// The device failed while it ran an operation.
    #[error("{operation} failed on {device}: {reason}")]
    Launch {
        /// The operation.
        operation: String,
        /// Name of the device.
        device: String,
        /// The device's error message.
        reason: String,
    },
    /// In checked mode (`GIRIH_CHECK=1`), a kernel accessed memory that is not its own: a defect in
    /// Girih.
    #[error(
        "{operation} on {device}: {fault}; GIRIH_CHECK found this, please report it with the program \
         and gr.explain of its result"
    )]
    MemoryFault {
        /// The kernel.
        operation: String,
        /// Name of the device.
        device: String,
        /// The buffer, the bytes and the bounds.
        fault: String,
    },
    /// A run that exceeded its executor's time limit.
    #[error(
        "the run took longer than its limit of {seconds} s and was stopped in {operation}; raise \
         timeout_seconds of the executor's configuration, or evaluate in smaller parts"
    )]
    Timeout {
        /// The interrupted operation.
        operation: String,
        /// The limit in seconds.
        seconds: f64,
    },
    /// A run that the user or another thread cancelled.
    #[error("the run was cancelled in {operation}")]
    Cancelled {
        /// The interrupted operation.
        operation: String,
    },
    /// The back end could not compile the graph.
    #[error("compilation failed: {0}")]
    Compile(String),
    /// The graph is invalid.
    #[error(transparent)]
    Graph(#[from] girih_ir::Error),
    /// An environment variable with an invalid value.
    #[error("{variable}={value}: expected {expected}")]
    Configuration {
        /// The name of the variable.
        variable: &'static str,
        /// The value.
        value: String,
        /// The valid values.
        expected: &'static str,
    },
    /// A submission that was not run because a submission that it depends on failed.
    #[error("an operation this one depends on has failed: {0}")]
    Dependency(Box<Error>),
    /// A submission that was not run because an earlier submission of the same queue failed.
    #[error("not run, since an earlier operation of the same stream has failed: {0}")]
    Skipped(Box<Error>),
    /// An alignment that is not a power of two.
    #[error("memory cannot be aligned to {0} bytes; give a power of two")]
    Alignment(usize),
    /// A block of host memory that belongs to another pool.
    #[error("the block is of the host memory pool {owner}, not of pool {pool}; release it there")]
    ForeignBlock {
        /// The id of the pool that the block was released to.
        pool: u64,
        /// The id of the pool that owns the block.
        owner: u64,
    },
    /// An array whose elements are out of bounds, or do not fit the target.
    #[error("{0}")]
    Region(String),
    /// A layout that does not support the tensor.
    #[error(transparent)]
    Layout(#[from] girih_dist::LayoutError),
    /// The time between two events was requested before both were reached.
    #[error(
        "the {which} event has not been {}: record both events and synchronize the later one before \
         asking for the time between them",
        if *recorded { "reached" } else { "recorded" }
    )]
    EventNotReached {
        /// The `first` or the `second` of the two events.
        which: &'static str,
        /// Whether the event was recorded.
        recorded: bool,
    },
    /// The run was in progress when the process forked, and this is the child. The parent has the
    /// outcome.
    #[error("the run was under way in another thread when the process forked")]
    Forked,
    /// Tensors that a tiled program does not support.
    #[error("tiled launch: {0}")]
    Tiling(String),
    /// The arguments of a run were bound for another plan than the one that is run.
    #[error("the arguments were bound for another plan: bind them for the plan that is run")]
    OtherPlan,
    /// The plan's binary is not loaded on the device.
    #[error("program {index} of the plan is not loaded")]
    NotLoaded {
        /// The index of the binary in the plan.
        index: usize,
    },
}

/// The op in a region that produced a NaN.
#[derive(Debug, Clone, PartialEq)]
pub struct NanInside {
    /// The name of the op.
    pub op: String,
    /// The spec of its result.
    pub spec: TensorSpec,
    /// The enclosing control ops, innermost first: `iteration 3 of scan in branch 1 of cond`.
    pub place: String,
    /// The id of the source line that recorded the op ([`girih_ir::Graph::source`]); 0 if unknown.
    pub source: u32,
}

/// The op that produced the first NaN, and the enclosing control ops if it is in a region.
fn first_nan(op: &str, inside: &Option<Box<NanInside>>) -> String {
    match inside {
        Some(inside) => format!("{} in {}", inside.op, inside.place),
        None => op.to_string(),
    }
}

impl Error {
    /// The error of a submission that depends on a failed one. Errors do not nest: the cause is the
    /// first failure, however long the chain of submissions is.
    pub(crate) fn dependency(cause: Error) -> Error {
        Error::Dependency(cause.root())
    }

    /// The error of a submission after a failed one of the same queue.
    pub(crate) fn skipped(cause: &Error) -> Error {
        Error::Skipped(cause.clone().root())
    }

    fn root(self) -> Box<Error> {
        match self {
            Error::Dependency(cause) | Error::Skipped(cause) => cause,
            cause => Box::new(cause),
        }
    }

    /// For an error that a kernel reports about the values it was given: the kernel's name, and the
    /// message without the name.
    pub fn in_kernel(&self) -> Option<(&str, String)> {
        match self {
            Error::IndexOutOfBounds { operation, .. }
            | Error::LabelOutOfRange { operation, .. }
            | Error::Linalg { operation, .. } => {
                let message = self.to_string();
                let reason = message.strip_prefix(operation)?.strip_prefix(": ")?;
                Some((operation, reason.to_string()))
            }
            _ => None,
        }
    }

    /// The error for a spec that does not match the plan's.
    pub(crate) fn spec_mismatch(index: usize, expected: &TensorSpec, found: &TensorSpec) -> Error {
        Error::ArgumentMismatch { index, expected: expected.to_string(), found: found.to_string() }
    }
}

/// The message of a panic.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("internal error: {}", text.unwrap_or("a panic without a message"))
}

//! What can go wrong when plans are compiled, loaded and run.

use girih_ir::TensorSpec;

/// Result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of compiling or running. Tensors whose evaluation failed stay lazy and may be
/// evaluated again.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No block of that size is free.
    #[error(
        "out of memory on {device}: {requested} bytes asked for, {in_use} of {capacity} bytes in \
         use, largest free block {largest_free} bytes; drop tensors you no longer need, evaluate \
         in smaller pieces, or raise GIRIH_MEMORY_LIMIT"
    )]
    OutOfMemory {
        /// Name of the device.
        device: String,
        /// Bytes asked for.
        requested: usize,
        /// Largest block that would have been granted.
        largest_free: usize,
        /// Bytes in use.
        in_use: usize,
        /// Bytes of all regions.
        capacity: usize,
    },
    /// The process gets no memory for what it needs beside the device's.
    #[error(
        "out of memory: the system has no {requested} bytes for this process; work in smaller pieces"
    )]
    HostMemory {
        /// Bytes asked for.
        requested: usize,
    },
    /// A handle that does not name `size` bytes of the device's memory.
    #[error("{handle} does not name {size} bytes of {device}")]
    InvalidHandle {
        /// Name of the device.
        device: String,
        /// The handle, as printed.
        handle: String,
        /// Bytes that were to be accessed.
        size: usize,
    },
    /// A program's argument of another kind or spec than it was compiled for.
    #[error("argument {index}: expected {expected}, got {found}")]
    ArgumentMismatch {
        /// Position of the argument.
        index: usize,
        /// What the plan expects.
        expected: String,
        /// What it was given.
        found: String,
    },
    /// Several arguments of another kind or spec than the program was compiled for.
    #[error("{}", .0.iter().map(Error::to_string).collect::<Vec<_>>().join("; "))]
    ArgumentMismatches(
        /// An [`Error::ArgumentMismatch`] for each, in their order.
        Vec<Error>,
    ),
    /// Fewer or more arguments than the plan takes.
    #[error("the plan takes {expected} arguments, got {found}")]
    ArgumentCount {
        /// How many the plan takes.
        expected: usize,
        /// How many it was given.
        found: usize,
    },
    /// An index operand pointed outside its axis.
    #[error("{operation}: index {index} is out of bounds for an axis of size {size}")]
    IndexOutOfBounds {
        /// The kernel that met it.
        operation: String,
        /// The index.
        index: i64,
        /// Size of the axis.
        size: usize,
    },
    /// A class label that names no class.
    #[error(
        "{operation}: class label {label} is not among the {classes} classes 0..{classes}; labels \
         that do not count are marked with ignore_index"
    )]
    LabelOutOfRange {
        /// The kernel that met it.
        operation: String,
        /// The label.
        label: i64,
        /// Number of classes.
        classes: usize,
    },
    /// A matrix that linear algebra cannot take: singular, not positive definite, not converging.
    #[error("{operation}: {reason}")]
    Linalg {
        /// The kernel that met it.
        operation: String,
        /// What is wrong with it, and with which of a batch.
        reason: String,
    },
    /// A NaN in a result while NaNs are looked for.
    #[error("{} gives a NaN, the first of this program (debug_nans)", first_nan(op, inside))]
    NotANumber {
        /// The op of the graph that was run whose result has it.
        op: String,
        /// The op's node.
        node: u32,
        /// The op that gave it, where the other is an op of control.
        inside: Option<Box<NanInside>>,
    },
    /// An op of a user, or a callback, that failed.
    #[error("{0}")]
    Host(girih_ir::ops::host::HostFailure),
    /// The device failed while it ran an operation.
    #[error("{operation} failed on {device}: {reason}")]
    Launch {
        /// The operation.
        operation: String,
        /// Name of the device.
        device: String,
        /// What the device says.
        reason: String,
    },
    /// The run took longer than its executor allows.
    #[error(
        "the run took longer than its limit of {seconds} s and was stopped in {operation}; raise \
         timeout_seconds of the executor's configuration, or evaluate in smaller pieces"
    )]
    Timeout {
        /// What it was doing.
        operation: String,
        /// The limit.
        seconds: f64,
    },
    /// The run was cancelled by its user or another thread.
    #[error("the run was cancelled in {operation}")]
    Cancelled {
        /// What it was doing.
        operation: String,
    },
    /// The back end could not compile the graph.
    #[error("compilation failed: {0}")]
    Compile(String),
    /// The graph itself is wrong.
    #[error(transparent)]
    Graph(#[from] girih_ir::Error),
    /// An environment variable that says nothing usable.
    #[error("{variable}={value}: expected {expected}")]
    Configuration {
        /// Name of the variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// An earlier submission that this one needs has failed.
    #[error("an operation this one depends on has failed: {0}")]
    Dependency(Box<Error>),
    /// The submission came after one of the same queue that failed, so it was not run.
    #[error("not run, since an earlier operation of the same stream has failed: {0}")]
    Skipped(Box<Error>),
    /// An alignment that is no power of two.
    #[error("memory cannot be aligned to {0} bytes; give a power of two")]
    Alignment(usize),
    /// A block of host memory that is another pool's.
    #[error("the block is of the host memory pool {owner}, not of pool {pool}; release it there")]
    ForeignBlock {
        /// The pool that was given the block.
        pool: u64,
        /// The pool that it is of.
        owner: u64,
    },
    /// An array whose elements are not where it says, or do not fit where they are to go.
    #[error("{0}")]
    Region(String),
    /// A layout that is not for the tensor.
    #[error(transparent)]
    Layout(#[from] girih_dist::LayoutError),
    /// The time between two events was asked for before both were reached.
    #[error(
        "the {which} event has not been {}: record both events and synchronize the later one before \
         asking for the time between them",
        if *recorded { "reached" } else { "recorded" }
    )]
    EventNotReached {
        /// The `first` or the `second` of the two events.
        which: &'static str,
        /// Whether it was recorded.
        recorded: bool,
    },
    /// The process forked, and this is the child; the parent has the outcome.
    #[error("the run was under way in another thread when the process forked")]
    Forked,
    /// Tensors that a program of tiles does not cover.
    #[error("tiled launch: {0}")]
    Tiling(String),
    /// The plan's binary is not loaded on the device.
    #[error("program {index} of the plan is not loaded")]
    NotLoaded {
        /// Position of the binary in the plan.
        index: usize,
    },
}

/// The op of a region that gave a NaN.
#[derive(Debug, Clone, PartialEq)]
pub struct NanInside {
    /// Its name.
    pub op: String,
    /// Of its result.
    pub spec: TensorSpec,
    /// What was run then, from the innermost out: `iteration 3 of scan in branch 1 of cond`.
    pub place: String,
    /// The line that recorded it ([`girih_ir::Graph::source`]); 0 if unknown.
    pub source: u32,
}

/// The op that gave the first NaN, and where it ran if that is not the graph itself.
fn first_nan(op: &str, inside: &Option<Box<NanInside>>) -> String {
    match inside {
        Some(inside) => format!("{} in {}", inside.op, inside.place),
        None => op.to_string(),
    }
}

impl Error {
    /// The failure of a submission that needs another, which has failed. Errors do not nest: the cause is
    /// the first failure, however long the chain of submissions is.
    pub(crate) fn dependency(cause: Error) -> Error {
        Error::Dependency(cause.root())
    }

    /// The failure of a submission behind a failed one.
    pub(crate) fn skipped(cause: &Error) -> Error {
        Error::Skipped(cause.clone().root())
    }

    fn root(self) -> Box<Error> {
        match self {
            Error::Dependency(cause) | Error::Skipped(cause) => cause,
            cause => Box::new(cause),
        }
    }

    /// A mismatch between the spec a plan expects and the one it was given.
    pub(crate) fn spec_mismatch(index: usize, expected: &TensorSpec, found: &TensorSpec) -> Error {
        Error::ArgumentMismatch { index, expected: expected.to_string(), found: found.to_string() }
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("internal error: {}", text.unwrap_or("a panic without a message"))
}

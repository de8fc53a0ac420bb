//! The errors a user of the library meets.

use crate::location::Location;
use std::fmt;

/// Result of the library's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the values that made it so and what to do.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An op cannot be recorded with these operands or attributes.
    #[error(transparent)]
    Record(Box<girih_ir::Error>),
    /// A gradient cannot be taken.
    #[error(transparent)]
    Transform(Box<girih_transform::Error>),
    /// Compilation or execution failed; the tensors stay lazy and may be evaluated again.
    #[error("{source}{}", At(.at))]
    Evaluation {
        /// What the runtime says.
        source: Box<girih_runtime::Error>,
        /// The ops that may be meant, most likely first: name, dtype and shape, and at the end the
        /// line that recorded it.
        at: Vec<String>,
    },
    /// The value of a placeholder was asked for while a function is traced.
    #[error(
        "{what} needs a value{} that depends on {}, of shape {shape}; it has no value while the \
         function is traced. To decide by it within the graph use `cond`, `switch`, `while_loop`, \
         `scan` or `where`; else keep the decision out of the traced function, or pass the value as \
         a static argument{}", Recorded(.at), Named(.argument), Static(.argument)
    )]
    TracedValue {
        /// What was attempted.
        what: &'static str,
        /// The argument, if it has a name.
        argument: Option<String>,
        /// The argument's shape.
        shape: String,
        /// The line that recorded what was asked for, if known.
        at: Option<Location>,
    },
    /// The value of a tensor was asked for that a function being compiled refers to.
    #[error(
        "{what} needs a value{} that depends on a tensor of shape {shape} which the function being \
         compiled refers to or draws at random; each call of the program may find another one there, \
         so that its value must not become part of the program. To decide by it within the graph use \
         `cond`, `switch`, `while_loop`, `scan` or `where`; else read it outside, and pass what was \
         decided as an argument", At(.at)
    )]
    OutsideValue {
        /// What was attempted.
        what: &'static str,
        /// The tensor's shape.
        shape: String,
        /// The line that recorded what was asked for, if known.
        at: Vec<String>,
    },
    /// The value of a tensor was asked for that a compiled function was given to overwrite.
    #[error(
        "a tensor of shape {shape} was donated to a compiled function, which may have written its \
         results over it; go on with the function's results instead, or do not name the argument in \
         `donate`"
    )]
    Donated {
        /// The tensor's shape.
        shape: String,
    },
    /// Data of another length than the shape says.
    #[error("{found} elements do not fill a tensor of shape {shape}, which holds {expected}")]
    DataLength {
        /// The shape.
        shape: girih_ir::Shape,
        /// Elements of the shape.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// Data read as another element type than the tensor's.
    #[error("the tensor holds {found}, not {expected}; convert it with astype first")]
    ElementType {
        /// The type asked for.
        expected: girih_ir::DType,
        /// The tensor's dtype.
        found: girih_ir::DType,
    },
    /// One value was asked of a tensor with more or none.
    #[error("{what} needs a tensor with exactly one element, got shape {shape}")]
    NotScalar {
        /// What was attempted.
        what: &'static str,
        /// The tensor's shape.
        shape: girih_ir::Shape,
    },
    /// A file that cannot be read or written.
    #[error("'{path}': {reason}")]
    Io {
        /// The file.
        path: String,
        /// The kind of failure.
        kind: std::io::ErrorKind,
        /// What the operating system says.
        reason: String,
    },
    /// A device that Girih does not know.
    #[error("there is no device '{name}'; the devices are: {choices}")]
    UnknownDevice {
        /// The name given.
        name: String,
        /// The names there are.
        choices: String,
    },
    /// A device that is not here.
    #[error(
        "device '{name}' is unavailable: {reason}; girih.devices() lists the devices that there are"
    )]
    DeviceUnavailable {
        /// The device.
        name: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// An op, or a program, whose operands are on several devices.
    #[error(
        "{op}: the operands are on several devices ({}); move them to one, as with x.to_device(device)",
        .operands.join(", ")
    )]
    MixedDevices {
        /// The op.
        op: &'static str,
        /// Dtype, shape and device of each operand.
        operands: Vec<String>,
    },
    /// An operator that could not be recorded.
    #[error("{source} (recorded at {at})")]
    Operator {
        /// Why.
        source: Box<Error>,
        /// The line of the operator.
        at: String,
    },
    /// An argument that no op can take.
    #[error("{0}")]
    InvalidArgument(String),
}

impl Error {
    /// What the operating system says of a file.
    pub(crate) fn io(path: &std::path::Path, error: &std::io::Error) -> Error {
        Error::Io {
            path: path.display().to_string(),
            kind: error.kind(),
            reason: error.to_string(),
        }
    }

    pub(crate) fn evaluation(source: girih_runtime::Error, ops: Vec<String>) -> Error {
        let mut at: Vec<String> = Vec::new();
        for op in ops {
            if !at.contains(&op) {
                at.push(op);
            }
        }
        Error::Evaluation { source: Box::new(source), at }
    }
}

/// An argument of a function being traced, for messages.
struct Named<'a>(&'a Option<String>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "argument {name} of the function being compiled"),
            None => write!(f, "an argument of a function being traced"),
        }
    }
}

/// How an argument is made static.
struct Static<'a>(&'a Option<String>);

impl fmt::Display for Static<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(_) => write!(f, " (`static_argnames`)"),
            None => Ok(()),
        }
    }
}

struct Recorded<'a>(&'a Option<Location>);

impl fmt::Display for Recorded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, " (recorded at {line})"))
    }
}

struct At<'a>(&'a Vec<String>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => Ok(()),
            [one] => write!(f, " ({one})"),
            many => write!(f, " (one of: {})", many.join("; ")),
        }
    }
}

// Boxed: results pass through every op, and an error's shapes are large.
impl From<girih_ir::Error> for Error {
    fn from(error: girih_ir::Error) -> Error {
        Error::Record(Box::new(error))
    }
}

impl From<girih_transform::Error> for Error {
    fn from(error: girih_transform::Error) -> Error {
        // A rule's own error is what the caller wants to see.
        if let girih_transform::Error::Host(failure) = &error
            && let Some(raised) = failure.payload.as_ref().and_then(|p| p.downcast_ref::<Error>())
        {
            return raised.clone();
        }
        Error::Transform(Box::new(error))
    }
}

impl From<girih_runtime::Error> for Error {
    fn from(source: girih_runtime::Error) -> Error {
        match source {
            girih_runtime::Error::Graph(error) => error.into(),
            source => Error::Evaluation { source: Box::new(source), at: Vec::new() },
        }
    }
}

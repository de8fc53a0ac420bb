//! The errors that the library returns.

use crate::location::Location;
use std::fmt;

/// The result type of the library's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, with the values that caused it and a suggestion.
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
    #[error("{}", Failed(source, .at))]
    Evaluation {
        /// The runtime's error.
        source: Box<girih_runtime::Error>,
        /// The ops that are the likely causes, most likely first: name, dtype and shape, and the
        /// line that recorded the op.
        at: Vec<String>,
    },
    /// The value of a placeholder was requested while a function is traced.
    #[error(
        "{what} needs a value{} that depends on {}, of shape {shape}; it has no value while the \
         function is traced. To decide by it within the graph use `cond`, `switch`, `while_loop`, \
         `scan` or `where`; else keep the decision out of the traced function, or pass the value as \
         a static argument{}", Recorded(.at), Named(.argument), Static(.argument)
    )]
    TracedValue {
        /// The attempted operation.
        what: &'static str,
        /// The argument, if it has a name.
        argument: Option<String>,
        /// The argument's shape.
        shape: String,
        /// The line that recorded the requested tensor, if known.
        at: Option<Location>,
    },
    /// The value of a captured tensor was requested while a function is compiled.
    #[error(
        "{what} needs a value{} that depends on a tensor of shape {shape} which the function being \
         compiled refers to or draws at random; each call of the program may find another one there, \
         so that its value must not become part of the program. To decide by it within the graph use \
         `cond`, `switch`, `while_loop`, `scan` or `where`; else read it outside, and pass what was \
         decided as an argument", At(.at)
    )]
    OutsideValue {
        /// The attempted operation.
        what: &'static str,
        /// The tensor's shape.
        shape: String,
        /// The line that recorded the requested tensor, if known.
        at: Vec<String>,
    },
    /// The value of a donated tensor was requested.
    #[error(
        "a tensor of shape {shape} was donated to a compiled function, which may have written its \
         results over it; go on with the function's results instead, or do not name the argument in \
         `donate`"
    )]
    Donated {
        /// The tensor's shape.
        shape: String,
    },
    /// The length of the data does not match the shape.
    #[error("{found} elements do not fill a tensor of shape {shape}, which holds {expected}")]
    DataLength {
        /// The shape.
        shape: girih_ir::Shape,
        /// The number of elements of the shape.
        expected: usize,
        /// The number of elements given.
        found: usize,
    },
    /// The data was requested as an element type other than the tensor's dtype.
    #[error("the tensor holds {found}, not {expected}; convert it with astype first")]
    ElementType {
        /// The requested type.
        expected: girih_ir::DType,
        /// The tensor's dtype.
        found: girih_ir::DType,
    },
    /// A single value was requested of a tensor that does not have exactly one element.
    #[error("{what} needs a tensor with exactly one element, got shape {shape}")]
    NotScalar {
        /// The attempted operation.
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
        /// The operating system's message.
        reason: String,
    },
    /// A device with an unknown name.
    #[error("there is no device '{name}'; the devices are: {choices}")]
    UnknownDevice {
        /// The name given.
        name: String,
        /// The existing names.
        choices: String,
    },
    /// A device that is unavailable.
    #[error(
        "device '{name}' is unavailable: {reason}; girih.devices() lists the devices that there are"
    )]
    DeviceUnavailable {
        /// The device.
        name: String,
        /// The reason why it is unavailable.
        reason: String,
    },
    /// The operands of an op, or of a program, are on several devices.
    #[error(
        "{op}: the operands are on several devices ({}); move them to one, as with x.to_device(device)",
        .operands.join(", ")
    )]
    MixedDevices {
        /// The op.
        op: &'static str,
        /// The dtype, shape and device of each operand.
        operands: Vec<String>,
    },
    /// An operator that could not be recorded.
    #[error("{source} (recorded at {at})")]
    Operator {
        /// The reason.
        source: Box<Error>,
        /// The line of the operator.
        at: String,
    },
    /// An invalid argument of a function.
    #[error("{0}")]
    InvalidArgument(String),
}

/// The error of an evaluation that failed, with the ops that are the likely causes.
pub fn evaluation_error(source: girih_runtime::Error, ops: Vec<String>) -> Error {
    let mut at: Vec<String> = Vec::new();
    for op in ops {
        if !at.contains(&op) {
            at.push(op);
        }
    }
    Error::Evaluation { source: Box::new(source), at }
}

/// An argument of a traced function, for messages.
struct Named<'a>(&'a Option<String>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "argument {name} of the function being compiled"),
            None => write!(f, "an argument of a function being traced"),
        }
    }
}

/// A suggestion to make an argument static, for messages.
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

/// The failure of a run, for messages: the user's op and line first where a kernel reports them, for
/// the name of a fused kernel tells a user nothing.
struct Failed<'a>(&'a girih_runtime::Error, &'a Vec<String>);

impl fmt::Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failed(source, ops) = self;
        let Some((kernel, reason)) = source.in_kernel().filter(|_| !ops.is_empty()) else {
            return write!(f, "Execution failed: {source}{}", At(ops));
        };
        match ops.as_slice() {
            [one] => write!(f, "Execution failed: {one}: {reason}")?,
            many => write!(f, "Execution failed: one of {}: {reason}", many.join("; "))?,
        }
        // An op that is a kernel of its own has the op's name.
        match ops.iter().any(|op| op.split(' ').next() == Some(kernel)) {
            true => Ok(()),
            false => write!(f, " (kernel {kernel})"),
        }
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

// Boxed because every op returns a result, and the shapes in an error are large.
impl From<girih_ir::Error> for Error {
    fn from(error: girih_ir::Error) -> Error {
        Error::Record(Box::new(error))
    }
}

impl From<girih_transform::Error> for Error {
    fn from(error: girih_transform::Error) -> Error {
        // An error that a rule returned is passed to the caller unchanged.
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

//! Conversion of the library's errors to the classes of `girih.errors`.

use crate::interpreter::{Held, Once, attach, try_attach};
use crate::location::of_called;
use girih_ir::ops::host::HostFailure;
use girih_record::Error;
use girih_transform::Error as TransformError;
use pyo3::prelude::*;
use pyo3::types::PyModule;
use std::cell::RefCell;

/// The name of the class in `girih.errors` for an error.
fn class(error: &Error) -> &'static str {
    match error {
        Error::Record(error) => record_class(error),
        Error::Transform(error) => transform_class(error),
        Error::DataLength { .. } | Error::NotScalar { .. } => "ShapeError",
        Error::Evaluation { source, .. } => run_class(source),
        Error::TracedValue { .. } | Error::OutsideValue { .. } => "TracedValueError",
        Error::ElementType { .. } => "DTypeError",
        Error::UnknownDevice { .. }
        | Error::MixedDevices { .. }
        | Error::DeviceUnavailable { .. } => "DeviceError",
        _ => "InvalidArgumentError",
    }
}

fn transform_class(error: &TransformError) -> &'static str {
    use TransformError::*;
    match error {
        OutputNotFloat { .. } | WrtNotFloat { .. } => "DTypeError",
        CotangentMismatch { expected, found, .. } if expected.shape == found.shape => "DTypeError",
        OutputNotScalar { .. } | CotangentMismatch { .. } => "ShapeError",
        Graph(error) => record_class(error),
        _ => "InvalidArgumentError",
    }
}

fn record_class(error: &girih_ir::Error) -> &'static str {
    use girih_ir::Error::*;
    match error {
        ShapeMismatch { .. }
        | InvalidShape { .. }
        | NegativeSize { .. }
        | SizeOverflow { .. }
        | CountOverflow { .. }
        | RankTooLarge { .. } => "ShapeError",
        AxisOutOfRange { .. } | DuplicateAxis { .. } => "AxisError",
        IndexOutOfBounds { .. }
        | EmptyAxis { .. }
        | InvalidIndex { .. }
        | TooManyIndices { .. } => "IndexOutOfBoundsError",
        DTypeUnsupported { .. }
        | DTypeMismatch { .. }
        | NoCommonDType { .. }
        | UnknownDType { .. } => "DTypeError",
        Parse { .. } | Format { .. } => "FormatError",
        _ => "InvalidArgumentError",
    }
}

fn run_class(error: &girih_runtime::Error) -> &'static str {
    use girih_runtime::Error::*;
    match error {
        OutOfMemory { .. } | HostMemory { .. } => "OutOfMemoryError",
        IndexOutOfBounds { .. } | LabelOutOfRange { .. } => "IndexOutOfBoundsError",
        Linalg { .. } => "LinAlgError",
        Dependency(cause) => run_class(cause),
        Timeout { .. } => "EvaluationTimeoutError",
        Cancelled { .. } => "EvaluationCancelledError",
        Configuration { .. } | Nested(_) => "InvalidArgumentError",
        InvalidHandle { .. } => "DeviceError",
        _ => "EvaluationError",
    }
}

/// A new exception of the class in `girih.errors` with this name.
pub fn exception(class: &str, message: String) -> PyErr {
    static ERRORS: Once<Py<PyModule>> = Once::new();
    attach(|py| {
        let made = ERRORS
            .get_or_try_init(py, || py.import("girih.errors").map(Bound::unbind))
            .and_then(|errors| errors.bind(py).getattr(class)?.call1((message,)));
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    })
}

/// An `InvalidArgumentError`.
pub fn invalid(message: impl Into<String>) -> PyErr {
    exception("InvalidArgumentError", of_called(message.into()))
}

thread_local! {
    /// The exception that a signal handler raised while this thread waited for the library.
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs the handlers of pending signals, as the interpreter does between bytecodes. True if a
/// handler raised an exception: the wait of this thread must then stop. It has an effect only on
/// the main thread.
pub fn interrupted() -> bool {
    if INTERRUPT.with_borrow(Option::is_some) {
        return true;
    }
    // A handler may call the library, which may wait and come here again, so nothing is borrowed.
    match try_attach(|py| py.check_signals()) {
        Some(Ok(())) => INTERRUPT.with_borrow(Option::is_some),
        Some(Err(raised)) => {
            INTERRUPT.set(Some(raised));
            true
        }
        // Nobody waits any more.
        None => true,
    }
}

/// The exception of a signal handler, if it is the cause of a cancelled evaluation.
pub fn take_interrupt(error: Option<&Error>) -> Option<PyErr> {
    let Some(Error::Evaluation { source, .. }) = error else { return None };
    let cancelled = matches!(**source, girih_runtime::Error::Cancelled { .. });
    cancelled.then(|| INTERRUPT.take())?
}

/// The exception that a Python function raised for an op.
fn of_failure(failure: &HostFailure) -> Option<PyErr> {
    let raised = failure.payload.as_ref()?.downcast_ref::<Held<PyErr>>()?;
    Some(attach(|py| raised.clone_ref(py)))
}

/// The exception of a failed callback.
fn of_callback(error: &girih_runtime::Error) -> Option<PyErr> {
    match error {
        girih_runtime::Error::Host(failure) => of_failure(failure),
        girih_runtime::Error::Dependency(cause) => of_callback(cause),
        _ => None,
    }
}

/// Turns a library error into its Python exception.
pub fn raise(error: Error) -> PyErr {
    if let Error::Io { kind, .. } = &error {
        // Raise the class that Python's own file functions raise, such as `FileNotFoundError`.
        return std::io::Error::new(*kind, error.to_string()).into();
    }
    if let Some(interrupt) = take_interrupt(Some(&error)) {
        return interrupt;
    }
    if let Error::Transform(failed) = &error
        && let TransformError::Host(failure) = &**failed
        && let Some(raised) = of_failure(failure)
    {
        return raised;
    }
    if let Error::Evaluation { source, .. } = &error
        && let Some(raised) = of_callback(source)
    {
        return raised;
    }
    let message = error.to_string();
    let message = match error {
        Error::Record(_) | Error::InvalidArgument(_) => of_called(message),
        _ => message,
    };
    exception(class(&error), message)
}

/// Converts a library result to a Python result.
pub trait IntoPy<T> {
    /// The value, or the exception.
    fn py(self) -> PyResult<T>;
}

impl<T> IntoPy<T> for girih_record::Result<T> {
    fn py(self) -> PyResult<T> {
        self.map_err(raise)
    }
}

impl<T> IntoPy<T> for girih_ir::Result<T> {
    fn py(self) -> PyResult<T> {
        self.map_err(|error| raise(error.into()))
    }
}

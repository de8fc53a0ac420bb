//! Streams and events from Python.

use crate::contexts::sync;
use crate::devices::DeviceArg;
use crate::errors::IntoPy;
use crate::interpreter::detach;
use crate::scalars;
use girih::{Context, Event, Stream};
use pyo3::prelude::*;

/// An ordered sequence of evaluations on a device.
///
/// Evaluations on one stream run one after the other, and evaluations on several streams may run at
/// the same time. A tensor that is computed on one stream may be used on another stream, which
/// waits for its value.
#[pyclass(name = "Stream", module = "girih", frozen, eq)]
#[derive(PartialEq)]
pub struct PyStream(pub Stream);

#[pymethods]
impl PyStream {
    #[new]
    #[pyo3(signature = (priority=0, *, device=None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::whole)] priority: i32,
        device: Option<DeviceArg>,
    ) -> PyResult<PyStream> {
        sync(py);
        let device = device.map_or_else(|| Context::current().device(), |d| d.0);
        Ok(PyStream(Stream::on(device, priority).py()?))
    }

    /// The name of the device that the stream's programs run on. Returns: str.
    #[getter]
    fn device(&self) -> &'static str {
        self.0.device().name()
    }

    /// The number of the stream on its device; the default stream of the first thread has 0.
    /// Returns: int.
    #[getter]
    fn index(&self) -> usize {
        self.0.index()
    }

    /// Waits until all work submitted so far is done. Returns: None.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        detach(py, || self.0.synchronize()).py()
    }

    /// Whether all work submitted so far is done. Returns: bool.
    fn query(&self) -> bool {
        self.0.query()
    }

    /// Records an event, by default a new one, which is reached when all work submitted so far is
    /// done.
    /// Returns: Event.
    #[pyo3(signature = (event=None))]
    fn record_event<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = scalars::maybe_object)] event: Option<Bound<'py, PyEvent>>,
    ) -> PyResult<Bound<'py, PyEvent>> {
        let event = match event {
            Some(event) => event,
            None => Bound::new(py, PyEvent::default())?,
        };
        self.0.record(&event.get().0);
        Ok(event)
    }

    /// Makes work submitted from now on wait for the last record of an event. Returns: None.
    fn wait_event(&self, #[pyo3(from_py_with = scalars::object)] event: Bound<'_, PyEvent>) {
        self.0.wait(&event.get().0);
    }

    /// Makes work submitted from now on wait for all work submitted to another stream so far.
    /// Returns: None.
    fn wait_stream(&self, #[pyo3(from_py_with = scalars::object)] stream: Bound<'_, PyStream>) {
        self.0.wait_stream(&stream.get().0);
    }

    fn __hash__(&self) -> usize {
        self.0.index()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// A point in a stream that other streams and the host can wait for.
#[pyclass(name = "Event", module = "girih", frozen)]
#[derive(Default)]
pub struct PyEvent(Event);

#[pymethods]
impl PyEvent {
    /// Every event measures time; enable_timing and blocking are there for programs written for
    /// other libraries.
    #[new]
    #[pyo3(signature = (enable_timing=true, blocking=false))]
    fn new(
        #[pyo3(from_py_with = scalars::flag)] enable_timing: bool,
        #[pyo3(from_py_with = scalars::flag)] blocking: bool,
    ) -> PyEvent {
        let _ = (enable_timing, blocking);
        PyEvent::default()
    }

    /// Records the event on a stream, by default the current one: it is reached when all work
    /// submitted to the stream so far is done. Returns: None.
    #[pyo3(signature = (stream=None))]
    fn record(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::maybe_object)] stream: Option<Bound<'_, PyStream>>,
    ) -> PyResult<()> {
        stream_or_current(py, stream)?.record(&self.0);
        Ok(())
    }

    /// Makes work submitted from now on to a stream, by default the current one, wait for the last
    /// record of the event. Returns: None.
    #[pyo3(signature = (stream=None))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::maybe_object)] stream: Option<Bound<'_, PyStream>>,
    ) -> PyResult<()> {
        stream_or_current(py, stream)?.wait(&self.0);
        Ok(())
    }

    /// Whether the last record has been reached, or there is no record. Returns: bool.
    fn query(&self) -> bool {
        self.0.query()
    }

    /// Waits until the last record has been reached. Returns: None.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        detach(py, || self.0.synchronize()).py()
    }

    /// Milliseconds between the last record of this event and that of a later event.
    /// Returns: float.
    fn elapsed_time(
        &self,
        #[pyo3(from_py_with = scalars::object)] end: Bound<'_, PyEvent>,
    ) -> PyResult<f64> {
        self.0.elapsed_ms(&end.get().0).py()
    }

    fn __repr__(&self) -> String {
        format!("Event(reached={})", if self.0.query() { "True" } else { "False" })
    }
}

fn stream_or_current(py: Python<'_>, stream: Option<Bound<'_, PyStream>>) -> PyResult<Stream> {
    if let Some(stream) = stream {
        return Ok(stream.get().0.clone());
    }
    sync(py);
    Context::current().stream().py()
}

/// The stream to which programs of this context are submitted on the current device.
/// Returns: Stream.
#[pyfunction]
fn current_stream(py: Python<'_>) -> PyResult<PyStream> {
    Ok(PyStream(stream_or_current(py, None)?))
}

/// The default stream of a device, number 0, or of the current device if none is given. If no stream
/// is set, programs of the first thread that uses the device are submitted to it, and those of each
/// other thread to a stream of that thread, as with CUDA's per-thread default streams.
/// Returns: Stream.
#[pyfunction]
#[pyo3(signature = (device=None))]
fn default_stream(py: Python<'_>, device: Option<DeviceArg>) -> PyResult<PyStream> {
    sync(py);
    let device = device.map_or_else(|| Context::current().device(), |d| d.0);
    Ok(PyStream(Stream::default_of(device).py()?))
}

/// Waits until all work submitted so far to any stream of a device, or of all devices if none is
/// given, is done. Returns: None.
#[pyfunction]
#[pyo3(signature = (device=None))]
fn synchronize(py: Python<'_>, device: Option<DeviceArg>) -> PyResult<()> {
    detach(py, || girih::synchronize(device.map(|d| d.0))).py()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyStream>()?;
    m.add_class::<PyEvent>()?;
    m.add_function(wrap_pyfunction!(current_stream, m)?)?;
    m.add_function(wrap_pyfunction!(default_stream, m)?)?;
    m.add_function(wrap_pyfunction!(synchronize, m)?)
}

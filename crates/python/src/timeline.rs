//! Timelines from Python: the times of kernels, copies and compilations.

use crate::errors::{IntoPy, invalid};
use crate::interpreter::detach;
use crate::scalars;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;

/// Name, kind, stream, start and duration in seconds, bytes, device, chunks, and chunks of workers
/// of a span.
type SpanRow = (String, &'static str, Option<usize>, f64, f64, usize, &'static str, u64, u64);

/// Records the work of the process between start and stop.
#[pyclass(name = "TimelineHandle", module = "girih._girih", frozen)]
pub struct PyTimeline(Mutex<Option<girih::Timeline>>);

impl PyTimeline {
    fn with<T>(&self, read: impl FnOnce(&girih::Timeline) -> T) -> PyResult<T> {
        let timeline = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let started = timeline.as_ref().ok_or_else(|| {
            invalid("profile: nothing was recorded yet: enter it with `with gr.profile() as p:`")
        })?;
        Ok(read(started))
    }
}

#[pymethods]
impl PyTimeline {
    #[new]
    fn new() -> PyTimeline {
        PyTimeline(Mutex::new(None))
    }

    /// Starts recording, and drops the spans recorded before. Returns: None.
    fn start(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(girih::Timeline::start());
    }

    /// Stops recording. Returns: None.
    fn stop(&self) {
        let mut timeline = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(timeline) = timeline.as_mut() {
            timeline.stop();
        }
    }

    /// Name, kind, stream, start and duration in seconds, bytes, device, chunks, and chunks of
    /// workers of each span.
    /// Returns: list[tuple[str, str, builtins.int | None, builtins.float, builtins.float, builtins.int, str, builtins.int, builtins.int]].
    fn spans(&self) -> PyResult<Vec<SpanRow>> {
        let row = |span: girih::Span| {
            let (start, duration) = (span.start.as_secs_f64(), span.duration.as_secs_f64());
            let device = girih::span_device(span.device);
            let (name, kind, stream, bytes) =
                (span.name, span.kind.name(), span.stream, span.bytes);
            let counts = span.counts;
            let (chunks, of_workers) = (counts.chunks, counts.chunks_of_workers);
            (name, kind, stream, start, duration, bytes, device, chunks, of_workers)
        };
        self.with(|timeline| timeline.spans().into_iter().map(row).collect())
    }

    /// Milliseconds of the compilation spans. Returns: float.
    fn compile_time_ms(&self) -> PyResult<f64> {
        self.with(|timeline| timeline.compile_time().as_secs_f64() * 1e3)
    }

    /// Milliseconds of all other spans. Returns: float.
    fn execution_time_ms(&self) -> PyResult<f64> {
        self.with(|timeline| timeline.execution_time().as_secs_f64() * 1e3)
    }

    /// The number of spans that were dropped, oldest first, because there were too many.
    /// Returns: int.
    fn dropped(&self) -> PyResult<usize> {
        self.with(girih::Timeline::dropped)
    }

    /// A table of the spans by name, sorted by descending time. Returns: str.
    fn table(&self) -> PyResult<String> {
        self.with(girih::Timeline::table)
    }

    /// Writes the spans in Chrome's trace event format. Returns: None.
    fn save(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::path)] path: PathBuf,
    ) -> PyResult<()> {
        let write = || self.with(|timeline| timeline.save(&path));
        detach(py, write)?.py()
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTimeline>()
}

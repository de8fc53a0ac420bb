//! Timelines: the times of kernels, copies and compilations, as a table, a trace file, or data.

mod page;

use crate::{Device, Result, io};
use girih_runtime::trace::{Recording, Span, SpanKind};
use girih_runtime::{ChunkCounts, DeviceId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The activity of the process between the start and the stop of a timeline, on all threads and
/// streams.
///
/// ```
/// use girih::{Tensor, Timeline};
///
/// let mut timeline = Timeline::start();
/// (Tensor::from_slice(&[1.0f32, 2.0], [2])? + 1.0).to_vec::<f32>()?;
/// timeline.stop();
/// assert!(!timeline.spans().is_empty());
/// let json = timeline.chrome_trace(); // for https://ui.perfetto.dev or chrome://tracing
/// assert!(json.contains("traceEvents"));
/// # Ok::<(), girih::Error>(())
/// ```
pub struct Timeline {
    recording: Option<Recording>,
    spans: Vec<Span>,
    dropped: usize,
}

/// The total of the spans of one kind and name.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanTotal {
    /// The kernel's name; for other spans the name of the kind.
    pub name: String,
    /// The kind of activity.
    pub kind: SpanKind,
    /// The number of spans.
    pub calls: usize,
    /// The total time of the spans.
    pub total: Duration,
    /// The number of bytes copied.
    pub bytes: usize,
    /// Counts of how the work was divided among threads.
    pub counts: ChunkCounts,
}

impl Timeline {
    /// Starts recording.
    pub fn start() -> Timeline {
        Timeline { recording: Some(Recording::new()), spans: Vec::new(), dropped: 0 }
    }

    /// Stops recording; a second call has no effect.
    pub fn stop(&mut self) {
        if let Some(recording) = self.recording.take() {
            self.spans = recording.spans();
            self.dropped = recording.dropped();
        }
    }

    /// The spans so far, in the order in which they ended.
    pub fn spans(&self) -> Vec<Span> {
        self.recording.as_ref().map_or_else(|| self.spans.clone(), Recording::spans)
    }

    /// The number of spans that were dropped, the earliest first, because there were too many.
    pub fn dropped(&self) -> usize {
        self.recording.as_ref().map_or(self.dropped, Recording::dropped)
    }

    /// The total time of the spans that compile.
    pub fn compile_time(&self) -> Duration {
        self.time_of(|kind| kind == SpanKind::Compile)
    }

    /// The total time of all other spans: kernels, copies and host functions.
    pub fn execution_time(&self) -> Duration {
        self.time_of(|kind| kind != SpanKind::Compile)
    }

    fn time_of(&self, counts: impl Fn(SpanKind) -> bool) -> Duration {
        let spans = self.spans();
        spans.iter().filter(|span| counts(span.kind)).map(|span| span.duration).sum()
    }

    /// Totals by name, in decreasing order of time.
    pub fn totals(&self) -> Vec<SpanTotal> {
        let mut totals: BTreeMap<(SpanKind, String), SpanTotal> = BTreeMap::new();
        for span in self.spans() {
            let key = (span.kind, span.name.clone());
            let total = totals.entry(key).or_insert_with(|| SpanTotal {
                name: span.name,
                kind: span.kind,
                calls: 0,
                total: Duration::ZERO,
                bytes: 0,
                counts: ChunkCounts::NONE,
            });
            total.calls += 1;
            total.total += span.duration;
            total.bytes += span.bytes;
            total.counts = total.counts + span.counts;
        }
        let mut totals: Vec<SpanTotal> = totals.into_values().collect();
        totals.sort_by_key(|total| std::cmp::Reverse(total.total));
        totals
    }

    /// [`Timeline::totals`] as a table.
    pub fn table(&self) -> String {
        let totals = self.totals();
        let all: Duration = totals.iter().map(|total| total.total).sum();
        let width = totals.iter().map(|total| total.name.len()).max().unwrap_or(0).clamp(4, 48);
        let mut text = format!(
            "{:width$}  {:>7}  {:>11}  {:>11}  share  {:>7}  {:>7}\n",
            "name", "calls", "total us", "mean us", "chunks", "others"
        );
        for total in &totals {
            let us = total.total.as_secs_f64() * 1e6;
            let share = 100.0 * us / (all.as_secs_f64() * 1e6).max(f64::MIN_POSITIVE);
            let name: String = total.name.chars().take(width).collect();
            let (calls, mean) = (total.calls, us / total.calls as f64);
            let ChunkCounts { chunks, chunks_of_workers } = total.counts;
            text += &format!(
                "{name:width$}  {calls:>7}  {us:>11.1}  {mean:>11.2}  {share:>4.0}%  {chunks:>7}  \
                 {chunks_of_workers:>7}\n"
            );
        }
        text
    }

    /// Writes [`Timeline::chrome_trace`] to a file, or [`Timeline::html`] if the name ends in
    /// `.html`. The file is written atomically.
    ///
    /// Errors: [`crate::Error::Io`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let is_page = path.extension().is_some_and(|extension| extension == "html");
        let text = if is_page { self.html() } else { self.chrome_trace() };
        io::write(path, text.as_bytes())
    }

    /// The spans as a self-contained HTML page with a row per stream, and with panning and zoom.
    pub fn html(&self) -> String {
        page::page(&self.chrome_trace(), "girih timeline")
    }

    /// The spans in Chrome's trace event format, which Perfetto reads: a complete event per span,
    /// with times in microseconds, a process per device and a thread per stream.
    pub fn chrome_trace(&self) -> String {
        let spans = self.spans();
        let thread = |stream: Option<usize>| stream.map_or(0, |index| index + 1);
        let process =
            |id: DeviceId| Device::with_id(id).map_or(0, |device| device.index()) as u64 + 1;
        let mut processes: BTreeMap<u64, &str> = BTreeMap::new();
        let mut threads: BTreeMap<(u64, usize), String> = BTreeMap::new();
        let mut events = Vec::with_capacity(spans.len() + 4);
        for span in &spans {
            let pid = process(span.device);
            processes.insert(pid, span_device(span.device));
            threads.entry((pid, thread(span.stream))).or_insert_with(|| match span.stream {
                Some(index) => format!("stream {index}"),
                None => "host".to_string(),
            });
            let mut event = json!({
                "name": span.name,
                "cat": span.kind.name(),
                "ph": "X",
                "ts": span.start.as_secs_f64() * 1e6,
                "dur": span.duration.as_secs_f64() * 1e6,
                "pid": pid,
                "tid": thread(span.stream),
            });
            if span.bytes > 0 {
                event["args"] = json!({"bytes": span.bytes});
            }
            events.push(event);
        }
        let named = |((pid, tid), name): ((u64, usize), String)| {
            json!({
                "name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name},
            })
        };
        let process = |(pid, name): (u64, &str)| {
            let name = format!("girih {name}");
            json!({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}})
        };
        let names = processes.into_iter().map(process).chain(threads.into_iter().map(named));
        let all: Vec<Value> = names.chain(events).collect();
        json!({"traceEvents": all, "displayTimeUnit": "ns"}).to_string()
    }
}

/// The name of a span's device; the host's name for an unregistered device, such as a test's.
pub fn span_device(id: DeviceId) -> &'static str {
    Device::with_id(id).unwrap_or(Device::CPU).name()
}

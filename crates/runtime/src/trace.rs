//! Traces: the time and stream of each primitive, and the times of compilations.
//!
//! While no [`Recording`] is open, tracing costs one load of a counter per primitive.

use crate::device::{Enqueued, Position};
use crate::{ChunkCounts, Device, DeviceId, Result};
use girih_sync::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The maximum number of spans in a recording, which keeps the latest ones.
pub const MAX_SPANS: usize = 1 << 20;

/// The kind of work in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpanKind {
    /// A kernel ran.
    Launch,
    /// Host bytes were copied to the device.
    CopyToDevice,
    /// Device bytes were copied to the host.
    CopyFromDevice,
    /// Device bytes were copied within the device.
    CopyOnDevice,
    /// A function of the host ran as a step of a plan.
    Host,
    /// A graph was compiled, or its program restored from the cache on disk.
    Compile,
}

impl SpanKind {
    /// `launch`, `copy_to_device`, `copy_from_device`, `copy_on_device`, `host` or `compile`.
    pub fn name(self) -> &'static str {
        match self {
            SpanKind::Launch => "launch",
            SpanKind::CopyToDevice => "copy_to_device",
            SpanKind::CopyFromDevice => "copy_from_device",
            SpanKind::CopyOnDevice => "copy_on_device",
            SpanKind::Host => "host",
            SpanKind::Compile => "compile",
        }
    }
}

/// The span of one primitive or one compilation.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The kernel's name; for other kinds the name of the kind.
    pub name: String,
    /// The kind of work.
    pub kind: SpanKind,
    /// The device of the work.
    pub device: DeviceId,
    /// The number of the stream on that device; `None` for work of the host without a stream.
    pub stream: Option<usize>,
    /// The number of the primitive in its stream, from 0; 0 for work of the host.
    pub number: u64,
    /// The start, as the time since the process's first use of the trace clock.
    pub start: Duration,
    /// The duration.
    pub duration: Duration,
    /// The number of bytes copied; 0 for other kinds.
    pub bytes: usize,
    /// How the work was divided among threads.
    pub counts: ChunkCounts,
}

#[derive(Default)]
struct Spans {
    kept: VecDeque<Span>,
    dropped: usize,
}

/// Records the spans of the whole process from its creation to its drop.
pub struct Recording(Arc<Mutex<Spans>>);

/// The open recordings, and their number.
static OPEN: Mutex<Vec<Weak<Mutex<Spans>>>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Recording {
    /// Starts recording.
    #[allow(clippy::new_without_default, reason = "recording is an effect")]
    pub fn new() -> Recording {
        let spans = Arc::new(Mutex::new(Spans::default()));
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&spans));
        COUNT.fetch_add(1, Relaxed);
        Recording(spans)
    }

    /// The spans so far, in the order in which they ended.
    pub fn spans(&self) -> Vec<Span> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).kept.iter().cloned().collect()
    }

    /// The number of spans, the earliest ones, that were dropped to keep [`MAX_SPANS`].
    pub fn dropped(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).dropped
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Relaxed);
        let own = Arc::downgrade(&self.0);
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !own.ptr_eq(other));
    }
}

/// Calls `work` of the host, and records its duration if a recording is open.
#[inline]
pub(crate) fn span<T>(
    kind: SpanKind,
    device: &dyn Device,
    stream: Option<usize>,
    name: impl FnOnce() -> String,
    work: impl FnOnce() -> T,
) -> T {
    if COUNT.load(Relaxed) == 0 {
        return work();
    }
    let (before, start) = (ChunkCounts::of_thread(), now());
    let result = work();
    let (duration, counts) = (now() - start, ChunkCounts::of_thread() - before);
    let device = device.id();
    note(Span { name: name(), kind, device, stream, number: 0, start, duration, bytes: 0, counts });
    result
}

/// Calls `enqueue`, and records the time until its primitive is done if a recording is open.
#[inline]
pub(crate) fn enqueued(
    kind: SpanKind,
    device: &dyn Device,
    at: Position,
    bytes: usize,
    name: impl FnOnce() -> String,
    enqueue: impl FnOnce() -> Result<Enqueued>,
) -> Result<Enqueued> {
    if COUNT.load(Relaxed) == 0 {
        return enqueue();
    }
    let (before, start) = (ChunkCounts::of_thread(), now());
    let result = enqueue();
    let (name, device, stream) = (name(), device.id(), Some(at.queue));
    let counts = ChunkCounts::of_thread() - before;
    let span = Span {
        name,
        kind,
        device,
        stream,
        number: at.number,
        start,
        bytes,
        counts,
        duration: Duration::ZERO,
    };
    let done = move || note(Span { duration: now() - start, ..span });
    match &result {
        Ok(Enqueued::Outstanding(completion)) => completion.then(move |_| done()),
        _ => done(),
    }
    result
}

fn now() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

#[cold]
fn note(span: Span) {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for recording in open.iter().filter_map(Weak::upgrade) {
        let mut spans = recording.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.kept.len() >= MAX_SPANS {
            spans.kept.pop_front();
            spans.dropped += 1;
        }
        spans.kept.push_back(span.clone());
    }
}

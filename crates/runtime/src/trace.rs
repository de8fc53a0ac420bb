//! Traces: when each primitive ran, on which stream, and when programs were compiled.
//!
//! While no [`Recording`] is open, all that this costs is one load of a counter for each primitive.

use crate::{Device, DeviceId};
use girih_sync::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Most spans that a recording keeps, the latest ones.
pub const MOST_SPANS: usize = 1 << 20;

/// What a span of time was spent on.
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

/// One primitive, or one compilation.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The kernel's name; for others that of the kind.
    pub name: String,
    /// What the time was spent on.
    pub kind: SpanKind,
    /// The device that it was work for.
    pub device: DeviceId,
    /// The stream of that device it was submitted to; None for work of the host that needs no stream.
    pub stream: Option<usize>,
    /// Since the process' first look at the clock.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
    /// Bytes copied; 0 for other kinds.
    pub bytes: usize,
}

#[derive(Default)]
struct Spans {
    kept: VecDeque<Span>,
    dropped: usize,
}

/// Collects the spans of the whole process from its start to its drop.
pub struct Recording(Arc<Mutex<Spans>>);

/// Recordings that are open, and how many.
static OPEN: Mutex<Vec<Weak<Mutex<Spans>>>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Recording {
    /// Starts to record.
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

    /// How many spans were dropped, the earliest ones, because there were more than [`MOST_SPANS`].
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

/// Does `work`, and notes how long it took where anybody records.
#[inline]
pub(crate) fn span<T>(
    kind: SpanKind,
    device: &dyn Device,
    stream: Option<usize>,
    bytes: usize,
    name: impl FnOnce() -> String,
    work: impl FnOnce() -> T,
) -> T {
    if COUNT.load(Relaxed) == 0 {
        return work();
    }
    let start = now();
    let result = work();
    let (duration, device) = (now() - start, device.id());
    note(Span { name: name(), kind, device, stream, start, duration, bytes });
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
        if spans.kept.len() >= MOST_SPANS {
            spans.kept.pop_front();
            spans.dropped += 1;
        }
        spans.kept.push_back(span.clone());
    }
}

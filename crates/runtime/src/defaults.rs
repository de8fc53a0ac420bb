//! Default streams: the streams for the work of threads that do not name a stream.

use crate::Stream;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

thread_local! {
    /// The default streams of this thread, one for each scheduler that it has used.
    static OWN: RefCell<Vec<Arc<Stream>>> = const { RefCell::new(Vec::new()) };
    /// The default stream that the thread used last, unless a call has taken it.
    static RECENT: Cell<Option<Arc<Stream>>> = const { Cell::new(None) };
}

/// The default streams of a device: one per thread, so that threads do not wait for each other,
/// like CUDA's per-thread default streams.
pub(crate) struct DefaultStreams {
    first: Arc<Stream>,
    /// Whether `first` already belongs to a thread.
    taken: AtomicBool,
}

impl DefaultStreams {
    /// The default streams of `first`'s device. The first thread that asks for its stream gets
    /// `first`.
    pub fn new(first: Arc<Stream>) -> DefaultStreams {
        DefaultStreams { first, taken: AtomicBool::new(false) }
    }

    /// The stream that exists from the beginning.
    pub fn first(&self) -> &Arc<Stream> {
        &self.first
    }

    /// Calls `f` with the default stream of this thread. Usually changes no reference count.
    pub fn with_thread<T>(&self, f: impl FnOnce(&Stream) -> T) -> T {
        let scheduler = self.first.queue().scheduler();
        let recent = RECENT.try_with(Cell::take).ok().flatten();
        let recent = recent.filter(|stream| Arc::ptr_eq(stream.queue().scheduler(), scheduler));
        let stream = recent.unwrap_or_else(|| self.of_thread());
        let result = f(&stream);
        // A thread that is ending keeps nothing.
        let _ = RECENT.try_with(|recent| recent.set(Some(stream)));
        result
    }

    /// The default stream of this thread. The thread drops it when it ends; submitted work still
    /// runs.
    pub fn of_thread(&self) -> Arc<Stream> {
        let scheduler = self.first.queue().scheduler();
        let find = |own: &RefCell<Vec<Arc<Stream>>>| {
            let mut own = own.borrow_mut();
            if let Some(found) = own.iter().find(|s| Arc::ptr_eq(s.queue().scheduler(), scheduler))
            {
                return found.clone();
            }
            let stream = match self.taken.swap(true, Relaxed) {
                true => Arc::new(Stream::new(scheduler)),
                false => self.first.clone(),
            };
            own.push(stream.clone());
            stream
        };
        // A thread that is ending has dropped its streams.
        OWN.try_with(find).unwrap_or_else(|_| self.first.clone())
    }
}

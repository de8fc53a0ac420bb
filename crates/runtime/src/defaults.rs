//! Default streams: where programs of threads go that name no stream.

use crate::Stream;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

thread_local! {
    /// The default streams of this thread, of each scheduler that it has asked.
    static OWN: RefCell<Vec<Arc<Stream>>> = const { RefCell::new(Vec::new()) };
}

/// The streams of a device to which threads submit that name none: one for each thread, so that threads
/// do not wait for each other, as with CUDA's per-thread default streams.
pub(crate) struct DefaultStreams {
    first: Arc<Stream>,
    /// Some thread has the first.
    taken: AtomicBool,
}

impl DefaultStreams {
    /// Streams of `first`'s device, of which the first thread that asks has `first`.
    pub fn new(first: Arc<Stream>) -> DefaultStreams {
        DefaultStreams { first, taken: AtomicBool::new(false) }
    }

    /// The stream that is there from the beginning.
    pub fn first(&self) -> &Arc<Stream> {
        &self.first
    }

    /// The stream of this thread, which ends with the thread; what was submitted to it still runs.
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
        // A thread that ends has none any more.
        OWN.try_with(find).unwrap_or_else(|_| self.first.clone())
    }
}

//! Scopes: they replace the current graph, device or stream of a thread until they are dropped.

use crate::axes::BoundAxis;
use crate::context::{Context, swap_graph};
use crate::device::Device;
use crate::error::Result;
use crate::graph::RecordingGraph;
use crate::stream::Stream;
use std::marker::PhantomData;

/// Records in a given graph until dropped. The scope belongs to the thread that entered it.
#[must_use = "the scope ends when it is dropped"]
pub struct GraphScope {
    previous: Option<RecordingGraph>,
    _not_send: PhantomData<*const ()>,
}

impl GraphScope {
    /// Enters `graph`.
    pub fn new(graph: &RecordingGraph) -> GraphScope {
        GraphScope { previous: Some(swap_graph(graph.clone())), _not_send: PhantomData }
    }
}

impl Drop for GraphScope {
    fn drop(&mut self) {
        if let Some(previous) = self.previous.take() {
            swap_graph(previous);
        }
    }
}

/// Makes a device current until dropped: data is placed on it, and constants and random draws are
/// recorded for it.
#[must_use = "the scope ends when it is dropped"]
pub struct DeviceScope {
    previous: Option<Device>,
    _not_send: PhantomData<*const ()>,
}

impl DeviceScope {
    /// Enters the scope.
    pub fn new(device: Device) -> DeviceScope {
        let previous = Context::current().swap_device(Some(device));
        DeviceScope { previous, _not_send: PhantomData }
    }
}

impl Drop for DeviceScope {
    fn drop(&mut self) {
        Context::current().swap_device(self.previous.take());
    }
}

/// Submits this thread's programs to a stream until dropped.
#[must_use = "the scope ends when it is dropped"]
pub struct StreamScope {
    previous: Option<Stream>,
    _not_send: PhantomData<*const ()>,
}

impl StreamScope {
    /// Enters the scope.
    pub fn new(stream: &Stream) -> StreamScope {
        let previous = Context::current().swap_stream(Some(stream.clone()));
        StreamScope { previous, _not_send: PhantomData }
    }
}

impl Drop for StreamScope {
    fn drop(&mut self) {
        Context::current().swap_stream(self.previous.take());
    }
}

impl Stream {
    /// A new stream of the current device. If streams are scheduled by priority, streams with lower
    /// numbers come first, as in CUDA.
    ///
    /// Errors: [`crate::Error::Evaluation`] if the environment variables do not allow the device to
    /// be set up.
    pub fn new(priority: i32) -> Result<Stream> {
        Stream::on(Context::current().device(), priority)
    }

    /// The default stream of the current device; see [`Stream::default_of`].
    ///
    /// Errors: as [`Stream::new`].
    pub fn default_stream() -> Result<Stream> {
        Stream::default_of(Context::current().device())
    }

    /// The current stream of this thread.
    ///
    /// Errors: as [`Stream::new`].
    pub fn current() -> Result<Stream> {
        Context::current().stream()
    }
}

impl BoundAxis {
    /// Calls a function in which collectives may use the axis.
    pub fn within<R>(self, f: impl FnOnce() -> R) -> R {
        let context = Context::current();
        context.within(context.frame().with_axis(self), f)
    }
}

/// Runs `f` and returns its result; nodes that `f` records do not require gradients.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    let context = Context::current();
    context.within(context.frame().with_grad(false), f)
}

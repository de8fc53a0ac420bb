//! Contexts: each thread's current recording graph, device, executor, stream and modes, and the
//! recording of nodes in it.

mod changes;
mod frame;

use crate::axes::BoundAxis;
use crate::device::Device;
use crate::devices;
use crate::error::{Error, Result};
use crate::executor::DeviceExecutor;
use crate::graph::{self, RecordingGraph};
use crate::location::Scope as NamedScope;
use crate::mesh::placed;
use crate::node::{CompactSpec, Node, State};
use crate::place::Place;
use crate::stream::Stream;
use crate::tape;
use girih_ir::{Attrs, DType, Op, Sharding, TensorSpec};
use girih_runtime::mesh::MeshMode;
use girih_runtime::{CompileOptions, PlanExecutor};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

pub use changes::FrameChanges;
pub use frame::Frame;

thread_local! {
    static CURRENT: RefCell<Frame> = RefCell::new(Frame::new());
    /// The modes of the current frame, cached for recording; 0 until the environment variables are
    /// read.
    static MODES: Cell<u8> = const { Cell::new(0) };
}

const KNOWN: u8 = 1;
const EAGER: u8 = 2;
const VERIFY: u8 = 4;
const NANS: u8 = 8;
const AUTOCAST_F16: u8 = 16;
const AUTOCAST_BF16: u8 = 32;
/// The frame has no device, executor, stream and compile options of its own.
const PLAIN: u8 = 64;

/// Drops the dead entries of the current thread's graph, unless the frame is borrowed.
fn sweep() {
    let graph = CURRENT.try_with(|frame| frame.try_borrow().ok().map(|frame| frame.graph.clone()));
    if let Ok(Some(graph)) = graph {
        graph::sweep(&graph);
    }
}

/// The environment variables that enable eager mode; the first variable that is set determines the
/// mode.
const EAGER_VARIABLES: [&str; 3] =
    ["GIRIH_EAGER_MAX_GRAPH", "NABLA_EAGER_MAX_GRAPH", "EAGER_MAX_GRAPH"];
/// The environment variables that enable shape verification; the first variable that is set
/// determines the mode.
const VERIFY_VARIABLES: [&str; 2] = ["GIRIH_VERIFY_SHAPES", "NABLA_VERIFY_EAGER_SHAPES"];

/// The calling thread's context.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    _not_send: PhantomData<*const ()>,
}

impl Context {
    /// The calling thread's context, created at the first use.
    #[inline]
    pub fn current() -> Context {
        Context { _not_send: PhantomData }
    }

    /// The graph that ops are recorded in.
    pub fn graph(&self) -> RecordingGraph {
        CURRENT.with_borrow(|frame| frame.graph.clone())
    }

    /// Records in `graph` from now on; `ReuseScope` does so for a scope.
    pub fn set_graph(&self, graph: &RecordingGraph) {
        CURRENT.with_borrow_mut(|frame| frame.graph = graph.clone());
    }

    /// The device on which data is placed, and for which constants and random draws are recorded:
    /// the device of a scope (`DeviceScope`), else the device of the context's executor,
    /// else the device of the process.
    pub fn device(&self) -> Device {
        let chosen = CURRENT.with_borrow(|frame| {
            frame.device.or_else(|| frame.executor.as_ref().map(DeviceExecutor::device))
        });
        chosen.unwrap_or_else(Device::of_process)
    }

    /// The executor of this context's device: the context's own executor, or else the device's
    /// executor.
    ///
    /// Errors: if the device's executor cannot be created because of invalid environment variables.
    pub fn executor(&self) -> Result<DeviceExecutor> {
        self.executor_for(self.device())
    }

    /// The executor for this context's programs on `device`.
    ///
    /// Errors: as [`Context::executor`].
    pub fn executor_for(&self, device: Device) -> Result<DeviceExecutor> {
        Ok(self.executor_ref(device)?.into_owned())
    }

    /// As [`Context::executor_for`], but borrows the device's executor, because all threads would
    /// write to the reference count of the executor otherwise.
    #[inline]
    pub fn executor_ref(&self, device: Device) -> Result<Cow<'static, DeviceExecutor>> {
        let own = CURRENT.with_borrow(|frame| frame.executor.clone());
        match own.filter(|own| own.device() == device) {
            Some(own) => Ok(Cow::Owned(own)),
            None => devices::executor(device).map(Cow::Borrowed),
        }
    }

    /// Runs this context's programs with `executor` from now on.
    pub fn set_executor(&self, executor: &DeviceExecutor) {
        let frame = self.frame();
        self.swap(frame.with_executor(executor.clone()));
    }

    /// The stream that this context's programs are submitted to: the stream set for its device, or
    /// the thread's own ([`Stream::of_thread`]).
    ///
    /// Errors: as [`Context::executor`].
    pub fn stream(&self) -> Result<Stream> {
        let device = self.device();
        match CURRENT.with_borrow(|frame| frame.stream.clone()) {
            Some(stream) if stream.device() == device => Ok(stream),
            _ => Stream::of_thread(device),
        }
    }

    /// Submits this context's programs to `stream` from now on; `StreamScope` does so for
    /// a scope.
    pub fn set_stream(&self, stream: &Stream) {
        self.swap_stream(Some(stream.clone()));
    }

    /// Sets or clears the stream, and returns the previous one.
    pub fn swap_stream(&self, stream: Option<Stream>) -> Option<Stream> {
        CURRENT.with_borrow_mut(|frame| {
            let left = std::mem::replace(&mut frame.stream, stream);
            refresh_plain(frame);
            left
        })
    }

    /// Sets or clears the current device, and returns the previous one.
    pub fn swap_device(&self, device: Option<Device>) -> Option<Device> {
        CURRENT.with_borrow_mut(|frame| {
            let left = std::mem::replace(&mut frame.device, device);
            refresh_plain(frame);
            left
        })
    }

    /// Calls `f` with the stream for programs on `executor`.
    #[inline]
    pub fn with_runtime_stream<T>(
        &self,
        executor: &PlanExecutor,
        f: impl FnOnce(&girih_runtime::Stream) -> T,
    ) -> T {
        match self.is_plain() {
            Ok(true) => executor.with_thread_stream(f),
            _ => f(&self.runtime_stream(executor)),
        }
    }

    /// The stream for programs on `executor`.
    pub fn runtime_stream(&self, executor: &PlanExecutor) -> Arc<girih_runtime::Stream> {
        let device = executor.device().id();
        let chosen = CURRENT.with_borrow(|frame| {
            let stream = frame.stream.as_ref().map(Stream::runtime);
            stream.filter(|s| s.queue().scheduler().device().id() == device).cloned()
        });
        chosen.unwrap_or_else(|| executor.thread_stream())
    }

    /// Whether the context has no device, executor, stream and compile options of its own, but uses
    /// those of the process, the device and the thread.
    ///
    /// Errors: as [`Context::eager`].
    #[inline]
    pub fn is_plain(&self) -> Result<bool> {
        Ok(modes()? & PLAIN != 0)
    }

    /// Whether ops are computed as soon as they are recorded.
    ///
    /// Errors: [`crate::Error::Evaluation`] if the value of the environment variable is invalid.
    #[inline]
    pub fn eager(&self) -> Result<bool> {
        eager()
    }

    /// Switches eager mode on or off: in eager mode, ops are computed as soon as they are recorded.
    /// Eager mode helps to find an op that goes wrong; the numbers, gradients and recorded nodes
    /// are the same as in lazy mode.
    pub fn set_eager(&self, on: bool) {
        let frame = self.frame();
        self.swap(frame.with_eager(on));
    }

    /// In which order the devices of a mesh run.
    pub fn mesh_mode(&self) -> MeshMode {
        CURRENT.with_borrow(|frame| frame.mesh_mode)
    }

    /// Whether operands on a mesh may be resharded for an op.
    pub fn implicit_reshards(&self) -> bool {
        CURRENT.with_borrow(|frame| frame.implicit_reshards)
    }

    /// Whether results of tensors that require gradients require gradients too.
    #[inline]
    pub fn grad(&self) -> bool {
        CURRENT.with_borrow(|frame| frame.grad)
    }

    /// Whether compilation verifies the shapes of kernels against the shape rules.
    ///
    /// Errors: as [`Context::eager`].
    pub fn verify_shapes(&self) -> Result<bool> {
        Ok(modes()? & VERIFY != 0)
    }

    /// Switches shape verification at each compilation on or off.
    pub fn set_verify_shapes(&self, on: bool) {
        let frame = self.frame();
        self.swap(frame.with_verify_shapes(on));
    }

    /// Whether a NaN in the result of an evaluation or of a compiled function is an error that
    /// names the op that computed it: see [`Frame::with_debug_nans`]. The environment variable
    /// `GIRIH_DEBUG_NANS=1` sets the initial value.
    ///
    /// Errors: as [`Context::eager`], for that variable.
    pub fn debug_nans(&self) -> Result<bool> {
        Ok(modes()? & NANS != 0)
    }

    /// The half dtype in which autocast computes products, if any: see `autocast`.
    #[inline]
    pub fn autocast(&self) -> Option<DType> {
        let modes = match MODES.get() {
            // Recording reports an invalid environment variable, so ignore the error here.
            0 => modes().unwrap_or(0),
            known => known,
        };
        match modes & (AUTOCAST_F16 | AUTOCAST_BF16) {
            0 => None,
            AUTOCAST_F16 => Some(DType::F16),
            _ => Some(DType::BF16),
        }
    }

    /// The compile options of the context, or else those of the executor.
    #[inline]
    pub fn options(&self, executor: &PlanExecutor) -> CompileOptions {
        self.own_options().unwrap_or_else(|| executor.options())
    }

    /// The compile options of the context, if it has options of its own.
    #[inline]
    pub fn own_options(&self) -> Option<CompileOptions> {
        CURRENT.with_borrow(|frame| frame.options)
    }

    /// The named batch axes of the calling thread, the outermost first.
    pub fn axes(&self) -> Vec<BoundAxis> {
        CURRENT.with_borrow(|frame| frame.axes.clone())
    }

    /// Whether the calling thread is in a function that is batched over a named axis.
    pub fn has_named_axes(&self) -> bool {
        CURRENT.with_borrow(|frame| !frame.axes.is_empty())
    }

    /// The whole state of the context.
    pub fn frame(&self) -> Frame {
        let scope = NamedScope::current();
        CURRENT.with_borrow(|frame| Frame { scope, ..frame.clone() })
    }

    /// Replaces the whole state of the context and returns the previous one. For front ends whose
    /// scopes do not nest like Rust's.
    pub fn swap(&self, frame: Frame) -> Frame {
        MODES.set(0);
        let scope = NamedScope::current();
        frame.scope.clone().set();
        let left = CURRENT.with_borrow_mut(|current| std::mem::replace(current, frame));
        Frame { scope, ..left }
    }

    /// Runs `f` in another frame, and returns its result.
    pub fn within<R>(&self, frame: Frame, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<Frame>);
        impl Drop for Restore {
            fn drop(&mut self) {
                if let Some(frame) = self.0.take() {
                    Context::current().swap(frame);
                }
            }
        }
        let _restore = Restore(Some(self.swap(frame)));
        f()
    }
}

/// Updates the mode [`PLAIN`] of the current frame, which has changed.
fn refresh_plain(frame: &Frame) {
    if MODES.get() != 0 {
        MODES.set(MODES.get() & !PLAIN | frame.plain());
    }
}

fn modes() -> Result<u8> {
    match MODES.get() {
        0 => {
            let modes = CURRENT.with_borrow(Frame::modes)?;
            MODES.set(modes);
            Ok(modes)
        }
        modes => Ok(modes),
    }
}

/// Whether ops are computed as soon as they are recorded.
#[inline]
pub fn eager() -> Result<bool> {
    Ok(modes()? & EAGER != 0)
}

/// The graph in which this thread records.
pub fn current_graph() -> RecordingGraph {
    Context::current().graph()
}

/// Records a node in this thread's graph. `place` is the place that follows from the operands, or
/// `None` for a leaf.
pub fn add_node(op: Op, spec: &TensorSpec, place: Option<Place>, state: State) -> Arc<Node> {
    let place = match &op.attrs {
        Attrs::Devices { to, .. } => moved(place, *to),
        Attrs::Sharding(sharding) => resharded(place, sharding),
        _ => place,
    };
    add(place, state, |place, state, id| Node::new(op, spec, place, state, id))
}

/// The place of the result of a move to the device with number `to`. A number that no device of
/// this process has, such as a number from another process's file, does not change the place.
fn moved(place: Option<Place>, to: u8) -> Option<Place> {
    let Some(device) = Device::numbered(to) else { return place };
    Some(Place::committed(device).with_tracked(place.is_some_and(Place::is_tracked)))
}

/// The place of the result of a reshard. A mesh whose devices this process does not have, such as that
/// of another process's file, does not change the place.
fn resharded(place: Option<Place>, sharding: &Sharding) -> Option<Place> {
    let Ok(placement) = placed(sharding) else { return place };
    Some(Place::sharded(placement).with_tracked(place.is_some_and(Place::is_tracked)))
}

/// Like [`add_node`], with a compact spec.
pub fn add_compact(op: Op, spec: CompactSpec, place: Option<Place>, state: State) -> Arc<Node> {
    add(place, state, |place, state, id| Node::of_compact(op, spec, place, state, id))
}

#[inline]
fn add(
    place: Option<Place>,
    state: State,
    make: impl FnOnce(Place, State, u32) -> Node,
) -> Arc<Node> {
    let place = place.unwrap_or_else(|| place_of_leaf(&state));
    let node = CURRENT.with_borrow(|frame| frame.graph.add(|id| make(place, state, id)));
    if place.is_tracked() {
        note(&node);
    }
    node
}

/// Records the step of a node with a tracked operand, if the tape records nodes now.
#[cold]
fn note(node: &Arc<Node>) {
    if Context::current().grad() {
        tape::note(node);
    }
}

/// Data is committed to the device that holds it; other leaves can be computed anywhere.
fn place_of_leaf(state: &State) -> Place {
    match state {
        State::Available(value) => Place::committed(Device::of(value)),
        _ => Place::floating(Context::current().device()),
    }
}

/// Records a node that carries an error in the current graph.
pub fn add_failed(spec: &TensorSpec, error: Error) -> Arc<Node> {
    CURRENT.with_borrow(|frame| frame.graph.add(|id| Node::failed(spec, error, id)))
}

/// Makes `graph` the thread's current graph and returns the previous one. For front ends whose
/// scopes do not nest like Rust's; other callers use the scopes.
pub fn swap_graph(graph: RecordingGraph) -> RecordingGraph {
    CURRENT.with_borrow_mut(|current| std::mem::replace(&mut current.graph, graph))
}

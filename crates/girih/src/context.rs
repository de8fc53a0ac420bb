//! Contexts: each thread's current recording graph, device, executor, stream and modes, and the
//! scopes that replace them temporarily.
//!
//! A recording graph is the scope in which nodes are recorded. It numbers and counts its nodes, and
//! holds weak references to the live nodes; the graph keeps no node alive.

mod frame;
mod history;

use crate::collective::BoundAxis;
use crate::devices::Device;
use crate::executor::Executor;
use crate::location::Scope as NamedScope;
use crate::node::{CompactSpec, Node, State};
use crate::place::Place;
use crate::{Error, Result, Stream, Tensor, TensorState, tape};
use girih_ir::{Attrs, Class, DType, Op, TensorSpec};
use girih_runtime::CompileOptions;
use girih_sync::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

pub use frame::Frame;
use history::History;

/// A recording graph, shared by its handles.
#[derive(Clone)]
pub struct Graph(Arc<Recording>);

struct Recording {
    id: u64,
    registry: Mutex<Registry>,
}

struct Registry {
    /// The number of the next node.
    next: u32,
    nodes: Vec<Weak<Node>>,
    /// The number of entries at which dead entries are swept. It grows with the number of live
    /// entries, so that the amortised cost of sweeping is constant per node.
    sweep_at: usize,
    /// The recorded ops, if the graph keeps them.
    history: Option<Box<History>>,
}

static NEXT_GRAPH: AtomicU64 = AtomicU64::new(0);

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

const SWEEP_MIN: usize = 1024;

impl Graph {
    /// A new, empty graph. Enter it with [`ReuseScope`].
    pub fn new() -> Graph {
        Graph::recording(None)
    }

    /// A new, empty graph that keeps the ops that are recorded in it, with their operands, when
    /// their values have been computed or dropped: for looking at graphs, in eager mode as well.
    /// [`Graph::dump`] and [`graph_text`](crate::graph_text) show them. The graph grows with each
    /// op as long as it lives; it holds no values.
    pub fn with_history() -> Graph {
        Graph::recording(Some(Box::default()))
    }

    fn recording(history: Option<Box<History>>) -> Graph {
        let registry = Registry { next: 0, nodes: Vec::new(), sweep_at: SWEEP_MIN, history };
        Graph(Arc::new(Recording {
            id: NEXT_GRAPH.fetch_add(1, Ordering::Relaxed),
            registry: Mutex::new(registry),
        }))
    }

    /// The graph that led to these tensors, computed or not, if this graph keeps its history and
    /// they were recorded in it.
    pub(crate) fn history_of(&self, targets: &[&Tensor]) -> Option<girih_ir::Graph> {
        self.registry().history.as_ref()?.graph_of(targets)
    }

    /// The graph's number, unique in this process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The number of nodes ever recorded in this graph, modulo 2^32.
    pub fn num_nodes(&self) -> usize {
        self.registry().next as usize
    }

    /// Tensors recorded in this graph that are still reachable, in recording order.
    pub fn live(&self) -> Vec<Tensor> {
        self.registry().nodes.iter().filter_map(Weak::upgrade).map(Tensor::from_node).collect()
    }

    /// Tensors recorded in this graph that are reachable and have no value yet, in recording order.
    /// Constants and placeholders are left out, since they are not computed.
    pub fn unrealized(&self) -> Vec<Tensor> {
        let mut tensors = self.live();
        tensors.retain(|t| {
            let op = t.node().op();
            let computed = op.class() != Class::Leaf || op.is_random();
            computed && t.state() != TensorState::Available
        });
        tensors
    }

    /// The tensor of the node with this number ([`Tensor::id`]).
    ///
    /// Errors: [`Error::InvalidArgument`] if there is no such node, or nothing reaches it any more.
    pub fn tensor(&self, id: u32) -> Result<Tensor> {
        self.tensors(&[id]).map(|mut found| found.remove(0))
    }

    /// The tensors of the nodes with these numbers.
    pub(crate) fn tensors(&self, ids: &[u32]) -> Result<Vec<Tensor>> {
        let live = self.live();
        let find = |&id: &u32| {
            let found = live.iter().find(|t| t.id() == id).cloned();
            found.ok_or_else(|| {
                Error::InvalidArgument(format!(
                    "graph {} has no live node {id}; it has recorded {} and holds {}",
                    self.id(),
                    self.num_nodes(),
                    live.len()
                ))
            })
        };
        ids.iter().map(find).collect()
    }

    /// The reachable nodes of this graph, one per line: number, op, spec, state. Unlike a drawing
    /// of a tensor's ancestors, the text contains computed nodes too. A graph with a history
    /// ([`Graph::with_history`]) shows all of its nodes, with their operands.
    pub fn dump(&self) -> String {
        let mut text = format!("{self:?}\n");
        let history = self.registry().history.as_ref().map(|history| history.lines());
        if let Some(lines) = history {
            return text + &lines;
        }
        for tensor in self.live() {
            let (id, op, spec) = (tensor.id(), tensor.op_name(), tensor.spec());
            text += &format!("  %{id} = {op} -> {spec} ({})\n", tensor.state());
        }
        text
    }

    /// The live nodes whose numbers are close to `id`.
    pub(crate) fn around(&self, id: u32) -> Vec<Arc<Node>> {
        /// The largest distance between numbers of results of one call, and the maximum number of
        /// entries visited.
        const REACH: u32 = 8;
        const MAX_CHECKED: usize = 4096;
        let registry = self.registry();
        // At most one entry per recorded node follows a node, whether or not dead entries were
        // swept.
        let since = registry.next.wrapping_sub(id) as usize;
        let first = registry.nodes.len().saturating_sub(since.saturating_add(REACH as usize));
        let live = registry.nodes[first..].iter().take(MAX_CHECKED).filter_map(Weak::upgrade);
        let live = live.take_while(|node| node.id() <= id.saturating_add(REACH));
        live.filter(|node| node.id().abs_diff(id) <= REACH).collect()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Each critical section leaves the registry consistent, even if it unwinds.
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, make: impl FnOnce(u32) -> Node) -> Arc<Node> {
        let mut registry = self.registry();
        let id = registry.next;
        registry.next = id.wrapping_add(1);
        let node = Arc::new(make(id));
        registry.nodes.push(Arc::downgrade(&node));
        if let Some(history) = &mut registry.history {
            history.add(&node);
        }
        if registry.nodes.len() >= registry.sweep_at {
            registry.sweep();
        }
        node
    }
}

/// Drops the dead entries of the current thread's graph. Does nothing if the frame is borrowed or
/// the graph is locked, such as when a node is dropped while its graph is visited.
pub(crate) fn sweep() {
    let graph = CURRENT.try_with(|frame| frame.try_borrow().ok().map(|frame| frame.graph.clone()));
    if let Ok(Some(graph)) = graph
        && let Ok(mut registry) = graph.0.registry.try_lock()
    {
        registry.sweep();
        registry.nodes.shrink_to_fit();
    }
}

impl Registry {
    fn sweep(&mut self) {
        self.nodes.retain(|n| n.strong_count() > 0);
        self.sweep_at = (2 * self.nodes.len()).max(SWEEP_MIN);
    }
}

impl Default for Graph {
    fn default() -> Self {
        Graph::new()
    }
}

impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        self.id() == other.id()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph(id={}, nodes={})", self.id(), self.num_nodes())
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
    pub fn current() -> Context {
        Context { _not_send: PhantomData }
    }

    /// The graph that ops are recorded in.
    pub fn graph(&self) -> Graph {
        CURRENT.with_borrow(|frame| frame.graph.clone())
    }

    /// Records in `graph` from now on; [`ReuseScope`] does so for a scope.
    pub fn set_graph(&self, graph: &Graph) {
        CURRENT.with_borrow_mut(|frame| frame.graph = graph.clone());
    }

    /// The device on which data is placed, and for which constants and random draws are recorded:
    /// the device of a scope ([`crate::DeviceScope`]), else the device of the context's executor,
    /// else the device of the process.
    pub fn device(&self) -> Device {
        let chosen = CURRENT.with_borrow(|frame| {
            frame.device.or_else(|| frame.executor.as_ref().map(Executor::device))
        });
        chosen.unwrap_or_else(Device::of_process)
    }

    /// The executor of this context's device: the context's own executor, or else the device's
    /// executor.
    ///
    /// Errors: if the device's executor cannot be created because of invalid environment variables.
    pub fn executor(&self) -> Result<Executor> {
        self.executor_for(self.device())
    }

    /// The executor for this context's programs on `device`.
    ///
    /// Errors: as [`Context::executor`].
    pub(crate) fn executor_for(&self, device: Device) -> Result<Executor> {
        Ok(self.executor_ref(device)?.into_owned())
    }

    /// As [`Context::executor_for`], but borrows the device's executor, because all threads would
    /// write to the reference count of the executor otherwise.
    pub(crate) fn executor_ref(&self, device: Device) -> Result<Cow<'static, Executor>> {
        let own = CURRENT.with_borrow(|frame| frame.executor.clone());
        match own.filter(|own| own.device() == device) {
            Some(own) => Ok(Cow::Owned(own)),
            None => device.executor().map(Cow::Borrowed),
        }
    }

    /// Runs this context's programs with `executor` from now on.
    pub fn set_executor(&self, executor: &Executor) {
        let frame = self.frame();
        self.swap(frame.with_executor(executor.clone()));
    }

    /// The stream that this context's programs are submitted to: the stream set for its device, or
    /// the thread's default stream.
    ///
    /// Errors: as [`Context::executor`].
    pub fn stream(&self) -> Result<Stream> {
        let device = self.device();
        match CURRENT.with_borrow(|frame| frame.stream.clone()) {
            Some(stream) if stream.device() == device => Ok(stream),
            _ => Stream::default_of(device),
        }
    }

    /// Submits this context's programs to `stream` from now on; [`crate::StreamScope`] does so for
    /// a scope.
    pub fn set_stream(&self, stream: &Stream) {
        self.swap_stream(Some(stream.clone()));
    }

    /// Sets or clears the stream, and returns the previous one.
    pub(crate) fn swap_stream(&self, stream: Option<Stream>) -> Option<Stream> {
        CURRENT.with_borrow_mut(|frame| {
            let left = std::mem::replace(&mut frame.stream, stream);
            refresh_plain(frame);
            left
        })
    }

    /// Sets or clears the current device, and returns the previous one.
    pub(crate) fn swap_device(&self, device: Option<Device>) -> Option<Device> {
        CURRENT.with_borrow_mut(|frame| {
            let left = std::mem::replace(&mut frame.device, device);
            refresh_plain(frame);
            left
        })
    }

    /// Calls `f` with the stream for programs on `executor`.
    pub(crate) fn with_runtime_stream<T>(
        &self,
        executor: &girih_runtime::PlanExecutor,
        f: impl FnOnce(&girih_runtime::Stream) -> T,
    ) -> T {
        match self.is_plain() {
            Ok(true) => executor.with_thread_stream(f),
            _ => f(&self.runtime_stream(executor)),
        }
    }

    pub(crate) fn runtime_stream(
        &self,
        executor: &girih_runtime::PlanExecutor,
    ) -> Arc<girih_runtime::Stream> {
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
    pub(crate) fn is_plain(&self) -> Result<bool> {
        Ok(modes()? & PLAIN != 0)
    }

    /// Whether ops are computed as soon as they are recorded.
    ///
    /// Errors: [`crate::Error::Evaluation`] if the value of the environment variable is invalid.
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

    /// Whether results of tensors that require gradients require gradients too.
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

    /// The half dtype in which autocast computes products, if any: see [`crate::autocast`].
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
    pub(crate) fn options(&self, executor: &girih_runtime::PlanExecutor) -> CompileOptions {
        self.own_options().unwrap_or_else(|| executor.options())
    }

    /// The compile options of the context, if it has options of its own.
    pub(crate) fn own_options(&self) -> Option<CompileOptions> {
        CURRENT.with_borrow(|frame| frame.options)
    }

    /// The named batch axes of the calling thread, the outermost first.
    pub(crate) fn axes(&self) -> Vec<BoundAxis> {
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
pub(crate) fn eager() -> Result<bool> {
    Ok(modes()? & EAGER != 0)
}

/// The graph in which this thread records.
pub fn current_graph() -> Graph {
    Context::current().graph()
}

/// Records a node in this thread's graph. `place` is the place that follows from the operands, or
/// `None` for a leaf.
pub(crate) fn add_node(op: Op, spec: &TensorSpec, place: Option<Place>, state: State) -> Arc<Node> {
    let place = match op.attrs {
        Attrs::Devices { to, .. } => moved(place, to),
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

/// Like [`add_node`], with a compact spec.
pub(crate) fn add_compact(
    op: Op,
    spec: CompactSpec,
    place: Option<Place>,
    state: State,
) -> Arc<Node> {
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
        tape::note(&node);
    }
    node
}

/// Data is committed to the device that holds it; other leaves can be computed anywhere.
fn place_of_leaf(state: &State) -> Place {
    match state {
        State::Available(value) => Place::committed(Device::of(value)),
        _ => Place::floating(Context::current().device()),
    }
}

/// Records a node that carries an error in the current graph.
pub(crate) fn add_failed(spec: &TensorSpec, error: crate::Error) -> Arc<Node> {
    CURRENT.with_borrow(|frame| frame.graph.add(|id| Node::failed(spec, error, id)))
}

/// Makes `graph` the thread's current graph and returns the previous one. For front ends whose
/// scopes do not nest like Rust's; other callers use [`Scope`] and [`ReuseScope`].
pub fn swap_graph(graph: Graph) -> Graph {
    CURRENT.with_borrow_mut(|current| std::mem::replace(&mut current.graph, graph))
}

/// Records in a fresh graph until dropped.
#[must_use = "the scope ends when it is dropped"]
pub struct Scope {
    graph: Graph,
    _reuse: ReuseScope,
}

impl Scope {
    /// Enters a fresh graph.
    #[allow(clippy::new_without_default, reason = "entering a scope is an effect")]
    pub fn new() -> Scope {
        let graph = Graph::new();
        Scope { _reuse: ReuseScope::new(&graph), graph }
    }

    /// The graph of the scope.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
}

/// Records in a given graph until dropped. The scope belongs to the thread that entered it.
#[must_use = "the scope ends when it is dropped"]
pub struct ReuseScope {
    previous: Option<Graph>,
    _not_send: PhantomData<*const ()>,
}

impl ReuseScope {
    /// Enters `graph`.
    pub fn new(graph: &Graph) -> ReuseScope {
        ReuseScope { previous: Some(swap_graph(graph.clone())), _not_send: PhantomData }
    }
}

impl Drop for ReuseScope {
    fn drop(&mut self) {
        if let Some(previous) = self.previous.take() {
            swap_graph(previous);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_restore() {
        let outer = current_graph();
        let graph = Graph::new();
        {
            let first = Scope::new();
            let second = Scope::new();
            assert_ne!(first.graph(), second.graph());
            assert_eq!(&current_graph(), second.graph());
            {
                let _reuse = ReuseScope::new(&graph);
                assert_eq!(current_graph(), graph);
            }
            assert_eq!(&current_graph(), second.graph());
        }
        assert_eq!(current_graph(), outer);
    }

    #[test]
    fn a_graph_lists_its_live_tensors_without_keeping_them_alive() {
        let scope = Scope::new();
        let kept = Tensor::zeros([2], crate::DType::F32).unwrap();
        for _ in 0..5000 {
            let _ = kept.neg().unwrap();
        }
        assert_eq!(scope.graph().num_nodes(), 5001);
        assert_eq!(scope.graph().live().len(), 1);
        let held = scope.graph().0.registry.lock().unwrap().nodes.len();
        assert!(held <= SWEEP_MIN, "{held} registry entries for one live node");
        let graph = scope.graph().clone();
        drop(kept);
        assert!(graph.live().is_empty());
    }

    #[test]
    fn a_graph_is_freed_with_its_scope_although_a_tensor_escapes() {
        let scope = Scope::new();
        let recording = Arc::downgrade(&scope.graph().0);
        let escaped = Tensor::ones([2], crate::DType::F32).unwrap().neg().unwrap();
        assert!(recording.upgrade().is_some());
        drop(scope);
        assert!(recording.upgrade().is_none());
        assert_eq!(escaped.to_vec::<f32>().unwrap(), [-1.0, -1.0]);
    }

    #[test]
    fn a_tensor_is_found_by_the_number_of_its_node_while_something_reaches_it() {
        let scope = Scope::new();
        let x = Tensor::ones([2], crate::DType::F32).unwrap();
        let y = x.neg().unwrap();
        assert!(scope.graph().tensor(y.id()).unwrap().is_same(&y));
        y.eval().unwrap();
        assert!(scope.graph().tensor(y.id()).unwrap().is_same(&y));
        let id = y.id();
        drop(y);
        for id in [id, 77] {
            let error = scope.graph().tensor(id).unwrap_err();
            assert!(error.to_string().contains(&format!("no live node {id}")), "{error}");
        }
    }
}

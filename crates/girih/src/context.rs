//! The contexts and the recording graphs of the engine, with tensors for nodes.

use crate::{Executor, Result, Tensor};
use girih_ir::DType;
pub use girih_record::context::{Frame, FrameChanges};
use girih_record::graph::RecordingGraph;
use girih_record::stream::Stream;
use girih_record::{Device, context, scopes};
use std::fmt;

/// A recording graph, shared by its handles.
#[derive(Clone, Default, PartialEq)]
pub struct Graph(RecordingGraph);

impl Graph {
    /// A new, empty graph. Enter it with [`ReuseScope`].
    pub fn new() -> Graph {
        Graph(RecordingGraph::new())
    }

    /// A new, empty graph that keeps the ops that are recorded in it, with their operands, when
    /// their values have been computed or dropped: for looking at graphs, in eager mode as well.
    /// [`Graph::dump`] and [`graph_text`](crate::graph_text) show them. The graph grows with each
    /// op as long as it lives; it holds no values.
    pub fn with_history() -> Graph {
        Graph(RecordingGraph::with_history())
    }

    /// The graph's number, unique in this process.
    pub fn id(&self) -> u64 {
        self.0.id()
    }

    /// The number of nodes ever recorded in this graph, modulo 2^32.
    pub fn num_nodes(&self) -> usize {
        self.0.num_nodes()
    }

    /// Tensors recorded in this graph that are still reachable, in recording order.
    pub fn live(&self) -> Vec<Tensor> {
        self.0.live().into_iter().map(Tensor::from_node).collect()
    }

    /// Tensors recorded in this graph that are reachable and have no value yet, in recording order.
    /// Constants and placeholders are left out, since they are not computed.
    pub fn unrealized(&self) -> Vec<Tensor> {
        self.0.unrealized().into_iter().map(Tensor::from_node).collect()
    }

    /// The tensor of the node with this number ([`Tensor::id`]).
    ///
    /// Errors: [`crate::Error::InvalidArgument`] if there is no such node, or nothing reaches it any more.
    pub fn tensor(&self, id: u32) -> Result<Tensor> {
        self.tensors(&[id]).map(|mut found| found.remove(0))
    }

    /// The tensors of the nodes with these numbers.
    pub(crate) fn tensors(&self, ids: &[u32]) -> Result<Vec<Tensor>> {
        Ok(self.0.nodes(ids)?.into_iter().map(Tensor::from_node).collect())
    }

    /// The reachable nodes of this graph, one per line: number, op, spec, state. Unlike a drawing
    /// of a tensor's ancestors, the text contains computed nodes too. A graph with a history
    /// ([`Graph::with_history`]) shows all of its nodes, with their operands.
    pub fn dump(&self) -> String {
        self.0.dump()
    }
}

impl From<Graph> for RecordingGraph {
    fn from(graph: Graph) -> RecordingGraph {
        graph.0
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The calling thread's context.
#[derive(Clone, Copy, Debug)]
pub struct Context(girih_record::Context);

impl Context {
    /// The calling thread's context, created at the first use.
    #[inline]
    pub fn current() -> Context {
        Context(girih_record::Context::current())
    }

    /// The graph that ops are recorded in.
    pub fn graph(&self) -> Graph {
        Graph(self.0.graph())
    }

    /// Records in `graph` from now on; [`ReuseScope`] does so for a scope.
    pub fn set_graph(&self, graph: &Graph) {
        self.0.set_graph(&graph.0);
    }

    /// The device on which data is placed, and for which constants and random draws are recorded:
    /// the device of a scope ([`crate::DeviceScope`]), else the device of the context's executor,
    /// else the device of the process.
    pub fn device(&self) -> Device {
        self.0.device()
    }

    /// The executor of this context's device: the context's own executor, or else the device's
    /// executor.
    ///
    /// Errors: if the device's executor cannot be created because of invalid environment variables.
    pub fn executor(&self) -> Result<Executor> {
        self.0.executor().map(Executor::from)
    }

    /// Runs this context's programs with `executor` from now on.
    pub fn set_executor(&self, executor: &Executor) {
        self.0.set_executor(executor.engine());
    }

    /// The stream that this context's programs are submitted to: the stream set for its device, or
    /// the thread's default stream.
    ///
    /// Errors: as [`Context::executor`].
    pub fn stream(&self) -> Result<Stream> {
        self.0.stream()
    }

    /// Submits this context's programs to `stream` from now on; [`crate::StreamScope`] does so for
    /// a scope.
    pub fn set_stream(&self, stream: &Stream) {
        self.0.set_stream(stream);
    }

    /// Whether ops are computed as soon as they are recorded.
    ///
    /// Errors: [`crate::Error::Evaluation`] if the value of the environment variable is invalid.
    #[inline]
    pub fn eager(&self) -> Result<bool> {
        self.0.eager()
    }

    /// Switches eager mode on or off: in eager mode, ops are computed as soon as they are recorded.
    /// Eager mode helps to find an op that goes wrong; the numbers, gradients and recorded nodes
    /// are the same as in lazy mode.
    pub fn set_eager(&self, on: bool) {
        self.0.set_eager(on);
    }

    /// Whether results of tensors that require gradients require gradients too.
    #[inline]
    pub fn grad(&self) -> bool {
        self.0.grad()
    }

    /// Whether compilation verifies the shapes of kernels against the shape rules.
    ///
    /// Errors: as [`Context::eager`].
    pub fn verify_shapes(&self) -> Result<bool> {
        self.0.verify_shapes()
    }

    /// Switches shape verification at each compilation on or off.
    pub fn set_verify_shapes(&self, on: bool) {
        self.0.set_verify_shapes(on);
    }

    /// Whether a NaN in the result of an evaluation or of a compiled function is an error that
    /// names the op that computed it: see [`Frame::with_debug_nans`]. The environment variable
    /// `GIRIH_DEBUG_NANS=1` sets the initial value.
    ///
    /// Errors: as [`Context::eager`], for that variable.
    pub fn debug_nans(&self) -> Result<bool> {
        self.0.debug_nans()
    }

    /// The half dtype in which autocast computes products, if any: see [`crate::autocast`].
    #[inline]
    pub fn autocast(&self) -> Option<DType> {
        self.0.autocast()
    }

    /// Whether the calling thread is in a function that is batched over a named axis.
    pub fn has_named_axes(&self) -> bool {
        self.0.has_named_axes()
    }

    /// The whole state of the context.
    pub fn frame(&self) -> Frame {
        self.0.frame()
    }

    /// Replaces the whole state of the context and returns the previous one. For front ends whose
    /// scopes do not nest like Rust's.
    pub fn swap(&self, frame: Frame) -> Frame {
        self.0.swap(frame)
    }

    /// Runs `f` in another frame, and returns its result.
    pub fn within<R>(&self, frame: Frame, f: impl FnOnce() -> R) -> R {
        self.0.within(frame, f)
    }
}

/// The graph in which this thread records.
pub fn current_graph() -> Graph {
    Graph(context::current_graph())
}

/// Makes `graph` the thread's current graph and returns the previous one. For front ends whose
/// scopes do not nest like Rust's; other callers use [`Scope`] and [`ReuseScope`].
pub fn swap_graph(graph: Graph) -> Graph {
    Graph(context::swap_graph(graph.0))
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
pub struct ReuseScope(#[expect(dead_code, reason = "ends when it is dropped")] scopes::GraphScope);

impl ReuseScope {
    /// Enters `graph`.
    pub fn new(graph: &Graph) -> ReuseScope {
        ReuseScope(scopes::GraphScope::new(&graph.0))
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

//! Evaluation: cuts the needed graph out of the recording, has it planned, and runs it.
//!
//! What an evaluation computes is claimed under one lock, so that two threads never compute a node
//! twice: the second finds it scheduled and waits for the first. Compiling and running happen
//! outside that lock.

use crate::error::Error;
use crate::location::Location;
use crate::node::{Node, Scheduled, State, drop_state};
use crate::{Result, Tensor, context};
use girih_ir::{Attrs, Class, Graph, Literal, NodeId, Op, OpCode, TensorSpec};
use girih_runtime::{Argument, CompileOptions, Completion, Executor, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The executor of the host device, made when first needed.
pub(crate) fn executor() -> Result<&'static Executor> {
    static EXECUTOR: OnceLock<Result<Executor, girih_runtime::Error>> = OnceLock::new();
    EXECUTOR.get_or_init(girih_cpu::executor).as_ref().map_err(|error| error.clone().into())
}

/// Held while a graph is cut out and its nodes are claimed.
static CLAIM: Mutex<()> = Mutex::new(());

/// Computes the values of tensors, all in one run: shared work is done once. Tensors that have
/// theirs already cost nothing.
///
/// Errors: [`Error::Evaluation`]; the tensors stay lazy and may be evaluated again.
/// [`Error::TracedValue`] if one depends on the argument of a function being traced.
pub fn eval<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    while !run(&targets, true)? {}
    for tensor in targets {
        settle(tensor.node())?;
    }
    Ok(())
}

/// Starts the evaluation of tensors and returns at once. Reading a value waits for it.
///
/// Errors: what compiling and binding fail with; failures of the run itself surface when a value
/// is read.
pub fn async_eval<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    while !run(&targets, false)? {}
    Ok(())
}

/// The tensor's data, computed if need be. `what` is for the error of a traced value.
pub(crate) fn value(tensor: &Tensor, what: &'static str) -> Result<Value> {
    if let State::Available(value) = &*tensor.node().state() {
        return Ok(value.clone());
    }
    eval([tensor]).map_err(|error| match error {
        Error::TracedValue { shape, at, .. } => Error::TracedValue { what, shape, at },
        error => error,
    })?;
    match &*tensor.node().state() {
        State::Available(value) => Ok(value.clone()),
        _ => unreachable!("a successful evaluation leaves its targets available"),
    }
}

/// One attempt; false if another thread's evaluation had to be waited for first.
fn run(targets: &[&Tensor], wait: bool) -> Result<bool> {
    if targets.iter().all(|t| matches!(&*t.node().state(), State::Available(_))) {
        return Ok(true);
    }
    let guard = CLAIM.lock().unwrap_or_else(PoisonError::into_inner);
    let cut = match cut(targets, true)? {
        Cut::Ready(cut) => cut,
        Cut::Blocked(completion) => {
            drop(guard);
            // Its failure is its own caller's matter; here the nodes are lazy again then.
            let _ = completion.wait();
            return Ok(false);
        }
    };
    if cut.outputs.is_empty() {
        return Ok(true);
    }
    let completion = Completion::pending();
    let claim = Claim { outputs: cut.output_nodes(), completion: completion.clone() };
    claim.take();
    drop(guard);

    let executor = executor()?;
    let outcome = executor
        .plan(&cut.graph, executor.options())
        .and_then(|plan| Ok((executor.bind(&plan, &cut.arguments)?, plan)))
        .and_then(|((block, values), plan)| {
            claim.bind(&values);
            executor.start(&plan, &block, cut.after.clone(), completion.clone(), wait)
        });
    match outcome {
        Ok(()) if wait => claim.settle_all(),
        Ok(()) => {}
        Err(error) => {
            completion.finish(Err(error.clone()));
            claim.settle_all();
            let at = cut.suspects(&error);
            return Err(Error::evaluation(error, at));
        }
    }
    Ok(true)
}

/// Nodes an evaluation has taken on.
struct Claim {
    outputs: Vec<Arc<Node>>,
    completion: Arc<Completion>,
}

impl Claim {
    fn take(&self) {
        for node in &self.outputs {
            let mut state = node.state();
            let lazy = std::mem::replace(&mut *state, State::Leaf);
            let completion = self.completion.clone();
            *state = State::Scheduled(Box::new(Scheduled { lazy, completion, value: None }));
        }
    }

    fn bind(&self, values: &[Value]) {
        for (node, value) in self.outputs.iter().zip(values) {
            if let State::Scheduled(scheduled) = &mut *node.state() {
                scheduled.value = Some(value.clone());
            }
        }
    }

    fn settle_all(&self) {
        for node in &self.outputs {
            // The outcome is reported once, by the caller.
            let _ = settle(node);
        }
    }
}

/// Waits for a scheduled node and makes it available, or lazy again if its run failed.
fn settle(node: &Arc<Node>) -> Result<()> {
    let completion = match &*node.state() {
        State::Scheduled(scheduled) => scheduled.completion.clone(),
        _ => return Ok(()),
    };
    let outcome = completion.wait();
    let mut state = node.state();
    let old = match std::mem::replace(&mut *state, State::Leaf) {
        State::Scheduled(scheduled) if Arc::ptr_eq(&scheduled.completion, &completion) => {
            let Scheduled { lazy, value, .. } = *scheduled;
            match (&outcome, value) {
                (Ok(()), Some(value)) => {
                    *state = State::Available(value);
                    Some(lazy)
                }
                _ => {
                    *state = lazy;
                    None
                }
            }
        }
        // Another thread has settled it.
        other => {
            *state = other;
            None
        }
    };
    drop(state);
    // Outside the lock: the operands' own states may be visited on the way down.
    old.map(drop_state);
    outcome.map_err(|error| Error::evaluation(error, Vec::new()))
}

/// A closed graph cut out of the recording, with everything a run of it needs.
struct CutGraph {
    graph: Graph,
    /// The recorded node behind each node of the graph.
    nodes: Vec<Arc<Node>>,
    arguments: Vec<Argument>,
    /// Runs of scheduled operands.
    after: SmallVec<[Arc<Completion>; 2]>,
    /// Nodes to be computed and kept: the lazy targets, then intermediates somebody holds.
    outputs: Vec<NodeId>,
}

enum Cut {
    Ready(CutGraph),
    /// Another evaluation is computing an operand and has not bound its memory yet.
    Blocked(Arc<Completion>),
}

impl CutGraph {
    fn output_nodes(&self) -> Vec<Arc<Node>> {
        self.outputs.iter().map(|id| self.nodes[id.index()].clone()).collect()
    }

    /// Lines of the ops that an error most likely means.
    fn suspects(&self, error: &girih_runtime::Error) -> Vec<Location> {
        use girih_runtime::Error::{IndexOutOfBounds, OutOfMemory};
        let at = |id: NodeId| self.nodes[id.index()].location();
        let ids: Vec<NodeId> = match error {
            IndexOutOfBounds { .. } => self
                .graph
                .nodes()
                .filter(|(_, n)| n.op.class() == Class::Index)
                .map(|n| n.0)
                .collect(),
            OutOfMemory { .. } => self
                .graph
                .ids()
                .max_by_key(|&id| self.graph.spec(id).size_bytes())
                .into_iter()
                .collect(),
            _ => self.outputs.clone(),
        };
        ids.into_iter().map(at).filter(|l| l.is_known()).collect()
    }
}

enum Visit {
    Enter(Arc<Node>),
    Exit(Arc<Node>),
}

/// Depth-first from the targets, operands first; so equal computations are cut out alike, whatever
/// the order they were recorded in. `keep`: also compute what others hold.
fn cut(targets: &[&Tensor], keep: bool) -> Result<Cut> {
    let mut cut = CutGraph {
        graph: Graph::new(),
        nodes: Vec::new(),
        arguments: Vec::new(),
        after: SmallVec::new(),
        outputs: Vec::new(),
    };
    let mut ids: FxHashMap<*const Node, NodeId> = FxHashMap::default();
    // One per reference from within the graph, to tell references from outside.
    let mut uses: Vec<u32> = Vec::new();
    let mut stack: Vec<Visit> = Vec::new();
    for target in targets {
        stack.push(Visit::Enter(target.node().clone()));
        while let Some(visit) = stack.pop() {
            match visit {
                Visit::Enter(node) => {
                    if ids.contains_key(&Arc::as_ptr(&node)) {
                        continue;
                    }
                    let leaf = leaf(&node, &mut cut)?;
                    match leaf {
                        Leaf::Is(op) => {
                            let spec = node.spec();
                            let id = cut.graph.leaf(op, spec);
                            ids.insert(Arc::as_ptr(&node), id);
                            cut.nodes.push(node);
                            uses.push(0);
                        }
                        Leaf::Blocked(completion) => return Ok(Cut::Blocked(completion)),
                        Leaf::No => {
                            stack.push(Visit::Exit(node.clone()));
                            let state = node.state();
                            let first = stack.len();
                            state.for_each_input(|input| {
                                if !ids.contains_key(&Arc::as_ptr(input)) {
                                    stack.push(Visit::Enter(input.clone()));
                                }
                            });
                            // Popped last in, first out: the first operand comes first.
                            stack[first..].reverse();
                        }
                    }
                }
                Visit::Exit(node) => {
                    if ids.contains_key(&Arc::as_ptr(&node)) {
                        continue;
                    }
                    let mut inputs: SmallVec<[NodeId; 3]> = SmallVec::new();
                    node.state().for_each_input(|input| inputs.push(ids[&Arc::as_ptr(input)]));
                    inputs.iter().for_each(|i| uses[i.index()] += 1);
                    let id = cut.graph.push_unchecked(node.op(), &inputs, node.spec());
                    ids.insert(Arc::as_ptr(&node), id);
                    cut.nodes.push(node);
                    uses.push(0);
                }
            }
        }
    }
    let mut is_output = vec![false; cut.nodes.len()];
    for target in targets {
        let id = ids[&Arc::as_ptr(target.node())];
        if !is_output[id.index()] && is_computed(&cut, id) {
            is_output[id.index()] = true;
            cut.outputs.push(id);
        }
    }
    if keep {
        for id in cut.graph.ids() {
            // Our own list holds one reference.
            let outside = Arc::strong_count(&cut.nodes[id.index()]) > uses[id.index()] as usize + 1;
            if outside && !is_output[id.index()] && is_computed(&cut, id) && worth_keeping(&cut, id)
            {
                cut.outputs.push(id);
            }
        }
    }
    cut.graph.set_outputs(cut.outputs.iter().copied());
    Ok(Cut::Ready(cut))
}

/// False for values that are there or scheduled already.
fn is_computed(cut: &CutGraph, id: NodeId) -> bool {
    !matches!(cut.graph.node(id).op.code, OpCode::Input | OpCode::Parameter)
}

/// False for what costs nothing to make again: constants, and views of values that are there.
fn worth_keeping(cut: &CutGraph, id: NodeId) -> bool {
    let node = cut.graph.node(id);
    match node.op.class() {
        Class::Leaf => node.op.is_random(),
        Class::View | Class::Reshape => is_computed(cut, node.inputs[0]),
        _ => true,
    }
}

enum Leaf {
    Is(Op),
    Blocked(Arc<Completion>),
    No,
}

/// How a node enters the graph as a leaf, with its argument; or that it is none.
fn leaf(node: &Arc<Node>, cut: &mut CutGraph) -> Result<Leaf> {
    let value = match &*node.state() {
        State::Available(value) => Some(value.clone()),
        State::Random { key, offset } => {
            cut.arguments.push(Argument::RandomKey { key: *key, offset: *offset });
            return Ok(Leaf::Is(node.op()));
        }
        State::Scheduled(scheduled) => match (&scheduled.value, scheduled.completion.poll()) {
            // Its run has failed: lazy again as soon as somebody settles it.
            (_, Some(Err(_))) => return Ok(Leaf::Blocked(scheduled.completion.clone())),
            (None, _) => return Ok(Leaf::Blocked(scheduled.completion.clone())),
            (Some(value), done) => {
                if done.is_none() {
                    cut.after.push(scheduled.completion.clone());
                }
                Some(value.clone())
            }
        },
        State::Leaf if node.code() == OpCode::Constant => {
            return Ok(Leaf::Is(constant(node, &mut cut.arguments)));
        }
        State::Leaf if node.code() == OpCode::Input => {
            return Err(Error::TracedValue {
                what: "evaluation",
                shape: node.shape().to_string(),
                at: Vec::new(),
            });
        }
        State::Leaf => return Ok(Leaf::Is(node.op())),
        State::Unary(_, input) => view_of_data(node, input),
        State::Binary(..) | State::Nary(..) => None,
    };
    let Some(value) = value else { return Ok(Leaf::No) };
    if !matches!(&*node.state(), State::Available(_) | State::Scheduled(_)) {
        let lazy = std::mem::replace(&mut *node.state(), State::Available(value.clone()));
        drop_state(lazy);
    }
    let code = match node.code() {
        OpCode::Parameter => OpCode::Parameter,
        _ => OpCode::Input,
    };
    cut.arguments.push(Argument::Tensor(value, node.spec()));
    Ok(Leaf::Is(code.into()))
}

/// A slice of whole leading rows of data that is there is that data, further on, and so is there
/// too: a loop over batches runs one program, whatever the batch's position.
fn view_of_data(node: &Node, input: &Arc<Node>) -> Option<Value> {
    let Attrs::Slice(dims) = node.attrs() else { return None };
    let shape = input.shape();
    let (rows, inner) = dims.split_first()?;
    let whole = |(d, &size): (&girih_ir::ops::SliceDim, &usize)| d.start == 0 && d.size == size;
    if rows.step != 1 || !inner.iter().zip(&shape[1..]).all(whole) {
        return None;
    }
    let State::Available(value) = &*input.state() else { return None };
    let row_bytes = shape[1..].iter().product::<usize>() * node.dtype().size();
    Some(Value { buffer: value.buffer.clone(), offset: value.offset + rows.start * row_bytes })
}

/// Values that let the compiler simplify are part of the program; all others are run-time scalars,
/// so that a learning rate never causes a recompile.
fn constant(node: &Node, arguments: &mut Vec<Argument>) -> Op {
    let &Attrs::Value(bits) = node.attrs() else { return node.op() };
    let value = Literal { dtype: node.dtype(), bits }.as_f64();
    if [0.0, 1.0, -1.0, 2.0, 0.5].contains(&value) || !value.is_finite() {
        return node.op();
    }
    arguments.push(Argument::Scalar(bits));
    OpCode::Constant.into()
}

/// The graph that leads to some tensors, as recorded: before any pass, with data as leaves.
///
/// Errors: [`Error::TracedValue`] never: placeholders are inputs here.
pub fn graph_of<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Graph> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    let (graph, ids) = recorded(&targets);
    let mut graph = graph;
    graph.set_outputs(targets.iter().map(|t| ids[&Arc::as_ptr(t.node())]));
    Ok(graph)
}

/// The recorded graph in recording order, with the position of each node.
pub(crate) fn recorded(targets: &[&Tensor]) -> (Graph, FxHashMap<*const Node, NodeId>) {
    let nodes = in_recording_order(ancestors(targets, |_| false));
    let mut graph = Graph::new();
    let mut ids: FxHashMap<*const Node, NodeId> = FxHashMap::default();
    for node in &nodes {
        let mut inputs: SmallVec<[NodeId; 3]> = SmallVec::new();
        let state = node.state();
        state.for_each_input(|input| inputs.push(ids[&Arc::as_ptr(input)]));
        let (op, spec) = match &*state {
            State::Available(_) if node.code() == OpCode::Parameter => (node.op(), node.spec()),
            State::Available(_) => (OpCode::Input.into(), node.spec()),
            // Nothing is fed to a random leaf by the user, but to a reader it is data.
            State::Random { .. } => (OpCode::Input.into(), node.spec()),
            _ => (node.op(), node.spec()),
        };
        ids.insert(Arc::as_ptr(node), graph.push_unchecked(op, &inputs, spec));
    }
    (graph, ids)
}

/// Sorted by number, as long as that leaves operands before users: numbers are those of the graph
/// that recorded a node, so it does unless several graphs are involved.
fn in_recording_order(nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
    let mut sorted = nodes.clone();
    sorted.sort_by_key(|node| node.id());
    let mut seen: FxHashSet<*const Node> = FxHashSet::default();
    let ordered = sorted.iter().all(|node| {
        let mut ready = true;
        node.state().for_each_input(|input| ready &= seen.contains(&Arc::as_ptr(input)));
        seen.insert(Arc::as_ptr(node));
        ready
    });
    if ordered { sorted } else { nodes }
}

/// Everything the targets depend on, operands before users. Nothing beyond a node for which `stop`
/// holds.
pub(crate) fn ancestors(targets: &[&Tensor], stop: impl Fn(&Arc<Node>) -> bool) -> Vec<Arc<Node>> {
    let mut seen: FxHashSet<*const Node> = FxHashSet::default();
    let mut order = Vec::new();
    let mut stack: Vec<Visit> = Vec::new();
    for target in targets {
        stack.push(Visit::Enter(target.node().clone()));
        while let Some(visit) = stack.pop() {
            match visit {
                Visit::Exit(node) => order.push(node),
                Visit::Enter(node) => {
                    if !seen.insert(Arc::as_ptr(&node)) {
                        continue;
                    }
                    stack.push(Visit::Exit(node.clone()));
                    if !stop(&node) {
                        let first = stack.len();
                        node.state().for_each_input(|i| stack.push(Visit::Enter(i.clone())));
                        stack[first..].reverse();
                    }
                }
            }
        }
    }
    order
}

/// What compiling a graph came to, without running it.
#[derive(Clone, Debug)]
pub struct CompilationInfo {
    /// Time for passes, lowering and compilation; nearly nothing for a cached program.
    pub compile_time: Duration,
    /// Nodes as recorded.
    pub num_nodes: usize,
    /// Nodes after the passes.
    pub num_nodes_optimized: usize,
    /// Kernels of the program.
    pub num_kernels: usize,
    /// The graph as recorded.
    pub graph: Graph,
    /// The graph after the passes.
    pub optimized: Graph,
    /// The kernels, as text.
    pub kernels: String,
}

/// Compiles what leads to some tensors without running it; a later evaluation finds it in the
/// cache. With `optimize` false, no pass or fusion changes the graph (composites still become
/// primitives, which is what backends understand).
pub fn compile_graph<'a>(
    tensors: impl IntoIterator<Item = &'a Tensor>,
    optimize: bool,
) -> Result<CompilationInfo> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    let executor = executor()?;
    let options = match optimize {
        true => executor.options(),
        false => CompileOptions { passes: 0, fusion: 0 },
    };
    let cut = loop {
        let _guard = CLAIM.lock().unwrap_or_else(PoisonError::into_inner);
        match cut(&targets, true)? {
            Cut::Ready(cut) => break cut,
            Cut::Blocked(completion) => {
                drop(_guard);
                let _ = completion.wait();
            }
        }
    };
    let start = Instant::now();
    let plan = executor.plan(&cut.graph, options)?;
    let compile_time = start.elapsed();
    let explained = girih_cpu::explain(&cut.graph, options)?;
    Ok(CompilationInfo {
        compile_time,
        num_nodes: cut.graph.len(),
        num_nodes_optimized: if optimize { explained.optimized.len() } else { cut.graph.len() },
        num_kernels: plan.launches(),
        graph: cut.graph,
        optimized: explained.optimized,
        kernels: explained.kernels,
    })
}

/// Counts of everything the process has compiled and run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lookups in the program cache that found a program.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Programs compiled.
    pub compiles: u64,
    /// Kernels of the programs now cached.
    pub cached_kernels: usize,
    /// Bytes of cached programs.
    pub cache_size_bytes: usize,
    /// Programs run.
    pub runs: u64,
    /// Kernels launched.
    pub launches: u64,
    /// Bytes of device memory in use.
    pub memory_bytes: usize,
    /// Most bytes of device memory in use at once.
    pub peak_memory_bytes: usize,
}

/// Counts so far.
pub fn cache_stats() -> Result<Stats> {
    let executor = executor()?;
    let (cache, counters) = (executor.cache_stats(), executor.counters());
    let memory = executor.device().allocator().stats();
    Ok(Stats {
        hits: cache.hits,
        misses: cache.misses,
        compiles: counters.compiles,
        cached_kernels: cache.cached_kernels,
        cache_size_bytes: cache.cache_size_bytes,
        runs: counters.runs,
        launches: counters.launches,
        memory_bytes: memory.in_use,
        peak_memory_bytes: memory.peak,
    })
}

/// Forgets all compiled programs.
pub fn clear_cache() -> Result<()> {
    executor()?.clear_cache();
    Ok(())
}

/// Measures peak memory anew from here.
pub fn reset_peak_memory() -> Result<()> {
    executor()?.device().allocator().reset_peak();
    Ok(())
}

/// Sets how many threads kernels may use, the calling one included (at least 1). Results do not
/// depend on it.
pub fn set_num_threads(threads: usize) -> Result<()> {
    Ok(girih_cpu::set_num_threads(threads)?)
}

/// Switches passes and fusions on and off for what is compiled from here on.
pub fn set_options(options: CompileOptions) -> Result<()> {
    executor()?.set_options(options);
    Ok(())
}

/// A tensor over bytes in the layout of `spec`, copied to the device.
pub(crate) fn from_bytes(spec: &TensorSpec, bytes: &[u8]) -> Result<Tensor> {
    let device = executor()?.device();
    let buffer = device.allocator().allocate(bytes.len())?;
    device.copy_to_device(bytes, buffer.handle())?;
    Ok(Tensor::available(OpCode::Input, spec, Value::new(buffer)))
}

/// The tensor's elements, row-major.
pub(crate) fn to_bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let value = value(tensor, "reading a tensor")?;
    let mut bytes = vec![0; tensor.spec().size_bytes()];
    executor()?.device().copy_from_device(value.handle(), &mut bytes)?;
    Ok(bytes)
}

/// Records a leaf in the current graph that is fed from outside while a function is traced.
pub(crate) fn placeholder(spec: &TensorSpec) -> Tensor {
    Tensor::from_node(context::add_node(OpCode::Input.into(), spec, State::Leaf))
}

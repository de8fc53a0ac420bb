//! Evaluation: cuts the needed graph out of the recording, has it planned, and runs it.
//!
//! What an evaluation computes is claimed under one lock, so that two threads never compute a node
//! twice: the second finds it scheduled and waits for the first. Compiling and running happen
//! outside that lock.

use crate::cut::{Cut, CutGraph, cut};
use crate::error::Error;
use crate::node::{Node, Scheduled, State, drop_state};
use crate::{Result, Tensor, context};
use girih_ir::{OpCode, TensorSpec};
use girih_runtime::{Completion, Executor, Value};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The executor of the host device, made when first needed.
pub(crate) fn executor() -> Result<&'static Executor> {
    static EXECUTOR: OnceLock<Result<Executor, girih_runtime::Error>> = OnceLock::new();
    EXECUTOR.get_or_init(girih_cpu::executor).as_ref().map_err(|error| error.clone().into())
}

/// Held while a graph is cut out and its nodes are claimed.
static CLAIM: Mutex<()> = Mutex::new(());

/// Runs `f` while no other thread cuts or claims.
pub(crate) fn while_claiming<T>(f: impl FnOnce() -> T) -> T {
    let _guard = CLAIM.lock().unwrap_or_else(PoisonError::into_inner);
    f()
}

/// Computes the values of tensors, all in one run: shared work is done once. Tensors that have
/// theirs already cost nothing.
///
/// Errors: [`Error::Evaluation`]; the tensors stay lazy and may be evaluated again.
/// [`Error::TracedValue`] if one depends on the argument of a function being traced.
pub fn eval<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    loop {
        while !run(&targets, true)? {}
        // A run of somebody else's that fails leaves its tensors lazy: then it is this caller's to
        // compute them, and to be told why that fails.
        if targets.iter().all(|t| settle(t.node())) {
            return Ok(());
        }
    }
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

/// One attempt; false if something another evaluation has had to be waited for first. What is held
/// is kept if there is memory for it.
fn run(targets: &[&Tensor], wait: bool) -> Result<bool> {
    match attempt(targets, wait, true) {
        Err(Error::Evaluation { source, .. })
            if matches!(*source, girih_runtime::Error::OutOfMemory { .. }) =>
        {
            attempt(targets, wait, false)
        }
        outcome => outcome,
    }
}

fn attempt(targets: &[&Tensor], wait: bool, keep: bool) -> Result<bool> {
    if targets.iter().all(|t| matches!(&*t.node().state(), State::Available(_))) {
        return Ok(true);
    }
    let executor = executor()?;
    let (cut, claim) = match while_claiming(|| claim(targets, keep))? {
        Claimed::Work(cut, claim) => (cut, claim),
        Claimed::Nothing => return Ok(true),
        Claimed::Blocked(node) => {
            // Its failure is its own caller's matter; it is lazy again then.
            settle(&node);
            return Ok(false);
        }
    };
    let completion = claim.completion.clone();
    let outcome = executor
        .plan(&cut.graph, executor.options())
        .and_then(|plan| Ok((executor.bind(&plan, &cut.arguments)?, plan)))
        .and_then(|((block, values), plan)| {
            claim.bind(&values);
            if !wait {
                // Settled by the thread that runs it, so that a loop that never reads keeps no
                // history.
                let claim = claim.clone();
                completion.then(move |outcome| claim.settle(outcome.is_ok()));
            }
            executor.start(&plan, &block, cut.after.clone(), completion.clone(), wait)
        });
    match outcome {
        Ok(()) if wait => claim.settle(true),
        Ok(()) => claim.queued(),
        Err(error) => {
            completion.finish(Err(error.clone()));
            claim.settle(false);
            if let girih_runtime::Error::Dependency(_) = error {
                // What it waited for is lazy again, to be computed here.
                return Ok(false);
            }
            let at = cut.suspects(&error);
            return Err(Error::evaluation(error, at));
        }
    }
    Ok(true)
}

enum Claimed {
    Work(CutGraph, Arc<Claim>),
    /// All targets are there or queued.
    Nothing,
    /// Another evaluation has this node; settle it first.
    Blocked(Arc<Node>),
}

/// Cuts out what the targets need and takes it on. To be called while claiming.
fn claim(targets: &[&Tensor], keep: bool) -> Result<Claimed> {
    let cut = match cut(targets, keep)? {
        Cut::Ready(cut) if cut.outputs.is_empty() => return Ok(Claimed::Nothing),
        Cut::Ready(cut) => cut,
        Cut::Blocked(node) => return Ok(Claimed::Blocked(node)),
    };
    let (outputs, completion) = (cut.output_nodes(), Completion::pending());
    let claim = Claim { outputs, completion, settled: AtomicBool::new(false) };
    claim.take();
    Ok(Claimed::Work(cut, Arc::new(claim)))
}

/// Nodes an evaluation has taken on.
struct Claim {
    outputs: Vec<Arc<Node>>,
    completion: Arc<Completion>,
    settled: AtomicBool,
}

impl Claim {
    fn take(&self) {
        for node in &self.outputs {
            let mut state = node.state();
            let lazy = std::mem::replace(&mut *state, State::Leaf);
            let completion = self.completion.clone();
            let scheduled = Scheduled { lazy, completion, value: None, queued: false };
            *state = State::Scheduled(Box::new(scheduled));
        }
    }

    fn for_each_scheduled(&self, mut f: impl FnMut(usize, &mut Scheduled)) {
        for (i, node) in self.outputs.iter().enumerate() {
            if let State::Scheduled(scheduled) = &mut *node.state()
                && Arc::ptr_eq(&scheduled.completion, &self.completion)
            {
                f(i, scheduled);
            }
        }
    }

    fn bind(&self, values: &[Value]) {
        self.for_each_scheduled(|i, scheduled| scheduled.value = values.get(i).cloned());
    }

    /// The run is in its queue: runs submitted from here on come after it.
    fn queued(&self) {
        self.for_each_scheduled(|_, scheduled| scheduled.queued = true);
    }

    /// Settles the nodes when the run is done. Never waits: one that failed may be another's by now.
    fn settle(&self, succeeded: bool) {
        self.settled.store(true, Ordering::Relaxed);
        self.outputs.iter().for_each(|node| finish(node, &self.completion, succeeded));
    }
}

impl Drop for Claim {
    /// An evaluation that unwinds must not leave others waiting for it.
    fn drop(&mut self) {
        if !*self.settled.get_mut() {
            let reason = "internal error: the evaluation was abandoned".to_string();
            self.completion.finish(Err(girih_runtime::Error::Compile(reason)));
            self.settle(false);
        }
    }
}

/// Waits for a scheduled node, which is then available, or lazy again if its run failed. True if it
/// is available.
pub(crate) fn settle(node: &Arc<Node>) -> bool {
    let completion = match &*node.state() {
        State::Scheduled(scheduled) => scheduled.completion.clone(),
        State::Available(_) => return true,
        _ => return false,
    };
    let outcome = completion.wait();
    finish(node, &completion, outcome.is_ok());
    matches!(&*node.state(), State::Available(_))
}

/// Makes a node available, or lazy again, when the run of that completion is done; does nothing if
/// somebody has done so before, whatever the node is by now.
fn finish(node: &Node, completion: &Arc<Completion>, succeeded: bool) {
    let mut state = node.state();
    match &*state {
        State::Scheduled(scheduled) if Arc::ptr_eq(&scheduled.completion, completion) => {}
        _ => return,
    }
    let State::Scheduled(scheduled) = std::mem::replace(&mut *state, State::Leaf) else {
        unreachable!("matched above");
    };
    let Scheduled { lazy, value, .. } = *scheduled;
    match value {
        Some(value) if succeeded => {
            *state = State::Available(value);
            drop(state);
            // Outside the lock: the operands' own states may be visited on the way down.
            drop_state(lazy);
        }
        _ => *state = lazy,
    }
}

/// A tensor over bytes in the layout of `spec`, copied to the device.
pub(crate) fn from_bytes(spec: &TensorSpec, bytes: Box<[u8]>) -> Result<Tensor> {
    let value = executor()?.upload(bytes)?;
    Ok(Tensor::available(OpCode::Input, spec, value))
}

/// The tensor's elements, row-major.
pub(crate) fn to_bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let value = value(tensor, "reading a tensor")?;
    let bytes = executor()?.download(&value, tensor.spec().size_bytes())?;
    Ok(bytes.into_vec())
}

/// Records a leaf in the current graph that is fed from outside while a function is traced.
pub(crate) fn placeholder(spec: &TensorSpec) -> Tensor {
    Tensor::from_node(context::add_node(OpCode::Input.into(), spec, State::Leaf))
}

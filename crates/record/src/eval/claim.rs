//! Claims: an evaluation claims the nodes that it computes while no other cut can contain them, so
//! that two threads never compute a node twice.

use crate::cut::{Cut, CutGraph, Transferred, cut};
use crate::error::{Result, evaluation_error};
use crate::mesh::Home;
use crate::nested;
use crate::node::{Held, Node, Scheduled, State, drop_state};
use girih_runtime::{Completion, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The outcome of claiming.
#[allow(clippy::large_enum_variant, reason = "a claim is matched at once, so boxing only costs")]
pub(super) enum Claimed {
    Work(CutGraph, Arc<Claim>),
    /// All targets are available or queued.
    Nothing,
    /// Another evaluation computes this node; settle it first.
    Blocked(Arc<Node>),
    /// The values of these nodes must first be copied from other devices.
    Elsewhere(Vec<Arc<Node>>),
}

/// Cuts the graph of the targets and claims its outputs.
pub(super) fn claim(
    home: Home,
    targets: &[&Arc<Node>],
    transferred: &Transferred,
    keep: bool,
) -> Result<Claimed> {
    let take = |cut: &CutGraph| (!cut.outputs.is_empty()).then(|| Arc::new(Claim::take(cut)));
    Ok(match cut(home, targets, transferred, keep, take)? {
        Cut::Ready(cut, Some(claim)) => Claimed::Work(cut, claim),
        Cut::Ready(_, None) => Claimed::Nothing,
        Cut::Blocked(node) => Claimed::Blocked(node),
        Cut::Elsewhere(nodes) => Claimed::Elsewhere(nodes),
    })
}

/// The nodes that an evaluation computes.
pub(super) struct Claim {
    outputs: Vec<Arc<Node>>,
    pub(super) completion: Arc<Completion>,
    settled: AtomicBool,
}

impl Claim {
    /// Marks the outputs of a graph as scheduled. Must be called while no other cut can contain
    /// them.
    fn take(cut: &CutGraph) -> Claim {
        let (outputs, completion) = (cut.output_nodes(), Completion::pending());
        for node in &outputs {
            let mut state = node.state();
            let lazy = std::mem::replace(&mut *state, State::Leaf);
            let completion = completion.clone();
            let scheduled = Scheduled { lazy, completion, value: None, queued: false };
            *state = State::Scheduled(Box::new(scheduled));
        }
        Claim { outputs, completion, settled: AtomicBool::new(false) }
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

    pub(super) fn bind(&self, values: &[Value]) {
        self.for_each_scheduled(|i, scheduled| {
            scheduled.value = values.get(i).cloned().map(Held::One);
        });
    }

    /// Binds the outputs of a run on a mesh.
    pub(super) fn bind_held(&self, values: &[Held]) {
        self.for_each_scheduled(|i, scheduled| scheduled.value = values.get(i).cloned());
    }

    /// Marks the run as queued: runs submitted from now on execute after it.
    pub(super) fn queued(&self) {
        self.for_each_scheduled(|_, scheduled| scheduled.queued = true);
    }

    /// Settles the nodes after the run. The method never waits, because a node of a failed run may
    /// already belong to another evaluation.
    pub(super) fn settle(&self, succeeded: bool) {
        self.settled.store(true, Ordering::Relaxed);
        self.outputs.iter().for_each(|node| finish(node, &self.completion, succeeded));
    }
}

impl Drop for Claim {
    /// Settles the claim if the evaluation unwinds, so that no other evaluation waits for it.
    fn drop(&mut self) {
        if !*self.settled.get_mut() {
            let reason = "internal error: the evaluation was abandoned".to_string();
            self.completion.finish(Err(girih_runtime::Error::Compile(reason)));
            self.settle(false);
        }
    }
}

/// Waits for a scheduled node. The node is then available, or lazy again if its run failed. Returns
/// whether the node is available.
fn settle(node: &Arc<Node>) -> bool {
    let completion = match &*node.state() {
        State::Scheduled(scheduled) => scheduled.completion.clone(),
        state => return state.is_available(),
    };
    let outcome = completion.wait();
    finish(node, &completion, outcome.is_ok());
    node.has_value()
}

/// Like `settle`, but returns an error if the user of this thread interrupts the wait.
pub fn settle_or_interrupt(node: &Arc<Node>) -> Result<bool> {
    let completion = match &*node.state() {
        State::Scheduled(scheduled) => scheduled.completion.clone(),
        state => return Ok(state.is_available()),
    };
    nested::check("reading a tensor that is being computed")?;
    match completion.wait_or_interrupt() {
        // The run belongs to another evaluation and continues.
        Err(error @ girih_runtime::Error::Cancelled { .. }) if completion.poll().is_none() => {
            Err(evaluation_error(error, Vec::new()))
        }
        _ => Ok(settle(node)),
    }
}

/// Makes a node available, or lazy again, after the run of `completion`. Does nothing if the node
/// was settled before, whatever its current state.
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
            *state = value.into();
            drop(state);
            // Drop the old state outside the lock, because dropping visits the operands' states.
            drop_state(lazy);
        }
        _ => *state = lazy,
    }
}

//! The tape of the imperative autograd interface: `x.requires_grad_()`, `loss.backward()`,
//! `x.grad`.
//!
//! The tape stores how tensors were computed from tensors that require gradients. This information
//! is separate from the nodes: a node drops its edges once it is evaluated, whereas its step stays
//! on the tape until the node is dropped or `backward` has used the step. Other nodes are not
//! tracked, and programs that use `grad` only test one bit per recorded operand.

use crate::error::{Error, Result};
use crate::node::{Node, Pending, drop_all};
use girih_ir::ops::Derivative;
use girih_sync::{Foreign, Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, Weak};

/// A function of a gradient, which may return a replacement.
pub type Hook = Arc<dyn Fn(&Arc<Node>) -> Result<Option<Arc<Node>>> + Send + Sync>;

/// The operands of a node's step.
pub type Operands = SmallVec<[Arc<Node>; 3]>;

/// How a node was computed.
#[derive(Clone, Default)]
pub struct Step {
    /// The operands.
    pub operands: Operands,
    /// Other results of a call with an effect, which its derivative reads: computed again, the call
    /// would have the effect again, and perhaps other results.
    pub results: Box<[Arc<Node>]>,
}

impl Step {
    fn into_nodes(self) -> impl Iterator<Item = Arc<Node>> {
        self.operands.into_iter().chain(self.results)
    }
}

/// The gradient state of a tensor.
#[derive(Clone, Default)]
pub struct Notes {
    /// Whether the tensor requires a gradient itself, rather than as a result of other tensors.
    pub leaf: bool,
    /// Whether the tensor's gradient is kept although the tensor is not a leaf.
    pub retains: bool,
    /// Whether a handle of the tensor has another value by now, which has its gradient state.
    pub replaced: bool,
    /// The gradient so far.
    pub grad: Option<Arc<Node>>,
    /// The functions of the gradient, with their numbers.
    pub hooks: Vec<(u64, Foreign<Hook>)>,
}

#[derive(Default)]
struct Tape {
    steps: FxHashMap<usize, Step>,
    notes: FxHashMap<usize, Notes>,
    /// The number of the last hook.
    next: u64,
}

static TAPE: Mutex<Option<Tape>> = Mutex::new(None);

/// The maximum number of tensors that a thread remembers to have called `backward` on.
const MOST_ROOTS: usize = 64;

thread_local! {
    /// The tensors on which this thread has called `backward` since [`take_roots`].
    static ROOTS: RefCell<VecDeque<Weak<Node>>> = const { RefCell::new(VecDeque::new()) };
}

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has taken gradients, by `backward` or by a transform.
pub fn gradients_taken() -> u64 {
    TAKEN.get()
}

/// Counts that gradients are taken.
pub fn count_gradients() {
    TAKEN.set(TAKEN.get() + 1);
}

/// Remembers that `backward` was called on a tensor.
pub fn add_root(node: &Arc<Node>) {
    ROOTS.with_borrow_mut(|roots| {
        if roots.len() == MOST_ROOTS {
            roots.pop_front();
        }
        roots.push_back(Arc::downgrade(node));
    });
}

/// The live tensors on which this thread has called `backward` since the last call of
/// this function. A step of an optimiser computes these losses in the same program as the
/// parameters, because they share most of their operations.
pub fn take_roots() -> Vec<Arc<Node>> {
    let roots = ROOTS.with_borrow_mut(std::mem::take);
    roots.iter().filter_map(Weak::upgrade).collect()
}

/// Locks the tape. The caller must drop nodes and tensors taken from it outside the lock.
fn tape() -> MutexGuard<'static, Option<Tape>> {
    TAPE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(node: &Arc<Node>) -> usize {
    Arc::as_ptr(node) as usize
}

/// Records a step for a node with a tracked operand, unless no gradient flows through the node.
#[cold]
pub fn note(node: &Arc<Node>) {
    let passes = !matches!(node.code().def().derivative, Derivative::Zero(_));
    if !passes || !node.dtype().is_inexact() {
        return;
    }
    let mut operands = Operands::new();
    node.state().for_each_input(|i| operands.push(i.clone()));
    node.track(forget);
    let step = Step { operands, ..Step::default() };
    tape().get_or_insert_default().steps.insert(address(node), step);
}

/// Adds other results of the node's call to its step.
pub fn keep(node: &Arc<Node>, results: impl Iterator<Item = Arc<Node>>) {
    let results = results.filter(|result| !Arc::ptr_eq(result, node)).collect();
    if let Some(step) = tape().as_mut().and_then(|tape| tape.steps.get_mut(&address(node))) {
        step.results = results;
    }
}

/// Removes a node that is dropped, and returns the nodes of its step.
fn forget(address: usize) -> Pending {
    let mut tape = tape();
    let (step, notes) = match tape.as_mut() {
        Some(known) => (known.steps.remove(&address), known.notes.remove(&address)),
        None => (None, None),
    };
    drop(tape);
    drop(notes);
    step.into_iter().flat_map(Step::into_nodes).collect()
}

/// Removes the steps of these nodes. The nodes stay tracked, so that a second `backward` through
/// them is an error rather than an incomplete gradient.
pub fn release<'a>(nodes: impl Iterator<Item = &'a Arc<Node>>) {
    let mut stack = Pending::new();
    let mut tape = tape();
    if let Some(known) = tape.as_mut() {
        for node in nodes {
            let step = known.steps.remove(&address(node));
            stack.extend(step.into_iter().flat_map(Step::into_nodes));
        }
    }
    drop(tape);
    drop_all(stack);
}

/// The step of a tracked node; `None` for a leaf, or if its step was released.
pub fn step(node: &Arc<Node>) -> Option<Step> {
    tape().as_ref()?.steps.get(&address(node)).cloned()
}

/// The gradient state of a node, if any.
pub fn notes(node: &Arc<Node>) -> Option<Notes> {
    tape().as_ref()?.notes.get(&address(node)).cloned()
}

/// Changes the gradient state of a node.
pub fn with_notes<R>(node: &Arc<Node>, change: impl FnOnce(&mut Notes) -> R) -> R {
    let mut tape = tape();
    change(tape.get_or_insert_default().notes.entry(address(node)).or_default())
}

/// Whether a node is not a result of tensors that require gradients.
pub fn is_leaf(node: &Arc<Node>) -> bool {
    !node.is_tracked() || notes(node).is_some_and(|n| n.leaf)
}

/// Sets whether the tensor requires a gradient from now on.
///
/// Errors: [`Error::InvalidArgument`] for a dtype that is not floating-point or complex, and
/// for switching off the gradient of a result of others that require gradients.
pub fn set_requires_grad(node: &Arc<Node>, on: bool) -> Result<()> {
    node.check()?;
    if on && !node.dtype().is_inexact() {
        return Err(Error::InvalidArgument(format!(
            "requires_grad: the tensor is {}; expected a floating-point or complex dtype",
            node.spec()
        )));
    }
    match (on, is_leaf(node)) {
        (true, true) => {
            node.track(forget);
            with_notes(node, |notes| notes.leaf = true);
        }
        (true, false) => {}
        (false, false) => {
            return Err(Error::InvalidArgument(
                "requires_grad: the tensor is a result of others that require gradients; use \
                 detach for one that does not"
                    .into(),
            ));
        }
        (false, true) => {
            node.untrack();
            drop(forget(address(node)));
        }
    }
    Ok(())
}

/// The gradient that `backward` has accumulated so far.
pub fn grad(node: &Arc<Node>) -> Option<Arc<Node>> {
    notes(node).and_then(|notes| notes.grad)
}

/// Replaces or clears the gradient.
///
/// Errors: [`Error::InvalidArgument`] for a gradient of another shape or dtype, and for a tensor
/// that does not require a gradient.
pub fn set_grad(node: &Arc<Node>, grad: Option<Arc<Node>>) -> Result<()> {
    if let Some(grad) = &grad
        && (grad.spec() != node.spec() || !node.is_tracked())
    {
        return Err(Error::InvalidArgument(format!(
            "grad: the gradient of {} that requires {} cannot be {}; expected its spec, of a \
             tensor that requires a gradient",
            node.spec(),
            if node.is_tracked() { "one" } else { "none" },
            grad.spec()
        )));
    }
    if node.is_tracked() {
        let old = with_notes(node, |notes| std::mem::replace(&mut notes.grad, grad));
        drop(old);
    }
    Ok(())
}

/// Makes `backward` keep the gradient of a tensor that is not a leaf.
///
/// Errors: [`Error::InvalidArgument`] for a tensor that does not require a gradient.
pub fn retain_grad(node: &Arc<Node>) -> Result<()> {
    check_tracked(node, "retain_grad")?;
    with_notes(node, |notes| notes.retains = true);
    Ok(())
}

/// Registers a function that is called with the tensor's gradient whenever `backward` has computed
/// it; its result, if any, replaces the gradient. Returns a number for [`remove_hook`].
///
/// Errors: [`Error::InvalidArgument`] for a tensor that does not require a gradient.
pub fn register_hook(node: &Arc<Node>, hook: Hook) -> Result<u64> {
    check_tracked(node, "register_hook")?;
    let number = {
        let mut tape = tape();
        let known = tape.get_or_insert_default();
        known.next += 1;
        known.next
    };
    with_notes(node, |notes| notes.hooks.push((number, hook.into())));
    Ok(number)
}

/// Removes a hook, if it exists, from its tensor and from those that took its place.
pub fn remove_hook(number: u64) {
    let mut removed = Vec::new();
    if let Some(known) = tape().as_mut() {
        for notes in known.notes.values_mut() {
            if let Some(at) = notes.hooks.iter().position(|(n, _)| *n == number) {
                removed.push(notes.hooks.remove(at));
            }
        }
    }
}

/// Makes a tensor a variable in place of another one, whose value a handle held before: it requires
/// a gradient, and has the gradient and the hooks of the other tensor.
///
/// Errors: those of [`set_requires_grad`] and [`set_grad`].
pub fn take_place_of(node: &Arc<Node>, old: &Arc<Node>) -> Result<()> {
    set_requires_grad(node, true)?;
    set_grad(node, grad(old))?;
    let hooks = with_notes(old, |notes| {
        notes.replaced = true;
        notes.hooks.clone()
    });
    let before = with_notes(node, |notes| std::mem::replace(&mut notes.hooks, hooks));
    drop(before);
    Ok(())
}

fn check_tracked(node: &Arc<Node>, what: &str) -> Result<()> {
    node.check()?;
    match node.is_tracked() {
        true => Ok(()),
        false => Err(Error::InvalidArgument(format!(
            "{what}: the tensor {} requires no gradient; call requires_grad_() on a tensor that \
             it follows from, before it is computed",
            node.spec()
        ))),
    }
}

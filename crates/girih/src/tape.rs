//! The tape of the imperative style: `x.requires_grad_()`, `loss.backward()`, `x.grad`.
//!
//! It remembers how tensors came from those that require gradients, beside the nodes: a node drops its
//! edges once it is evaluated, and its step on the tape stays until the node goes, or until
//! `backward` has used it. Nothing else is tracked, and programs that use `grad` pay one test of a
//! bit for each operand they record.

use crate::context::Context;
use crate::node::{Node, Pending, drop_all};
use crate::{Error, Result, Tensor};
use girih_ir::ops::Derivative;
use girih_sync::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};

/// A function of a gradient, which may give another in its place.
pub type Hook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;

/// How a node came from others.
pub(crate) type Operands = SmallVec<[Arc<Node>; 3]>;

/// Users' notes on a tensor.
#[derive(Clone, Default)]
pub(crate) struct Notes {
    /// It requires a gradient itself, and is no result of others that do.
    pub leaf: bool,
    /// Its gradient is wanted though it is no leaf.
    pub retains: bool,
    pub grad: Option<Tensor>,
    pub hooks: Vec<(u64, Hook)>,
}

#[derive(Default)]
struct Tape {
    steps: FxHashMap<usize, Operands>,
    notes: FxHashMap<usize, Notes>,
    /// Number of the next hook.
    next: u64,
}

static TAPE: Mutex<Option<Tape>> = Mutex::new(None);

/// The tape, locked. Whoever takes nodes or tensors from it drops them outside the lock.
fn tape() -> MutexGuard<'static, Option<Tape>> {
    TAPE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(node: &Arc<Node>) -> usize {
    Arc::as_ptr(node) as usize
}

/// Notes a node of which an operand is tracked, unless no gradient flows through it.
#[cold]
pub(crate) fn note(node: &Arc<Node>) {
    let passes = !matches!(node.code().def().derivative, Derivative::Zero(_));
    if !passes || !node.dtype().is_inexact() || !Context::current().grad() {
        return;
    }
    let mut operands = Operands::new();
    node.state().for_each_input(|i| operands.push(i.clone()));
    node.set_tracked(true);
    tape().get_or_insert_default().steps.insert(address(node), operands);
}

/// Forgets a node that goes, and gives the nodes that its step held.
pub(crate) fn forget(address: usize) -> Operands {
    let mut tape = tape();
    let Some(known) = tape.as_mut() else { return Operands::new() };
    let (operands, notes) = (known.steps.remove(&address), known.notes.remove(&address));
    drop(tape);
    drop(notes);
    operands.unwrap_or_default()
}

/// Forgets how these nodes came from others. They stay tracked: a second derivative of them is an
/// error, not a gradient that lacks something.
pub(crate) fn release<'a>(nodes: impl Iterator<Item = &'a Arc<Node>>) {
    let mut stack = Pending::new();
    let mut tape = tape();
    if let Some(known) = tape.as_mut() {
        for node in nodes {
            stack.extend(known.steps.remove(&address(node)).into_iter().flatten());
        }
    }
    drop(tape);
    drop_all(stack);
}

/// The operands of a tracked node; None if it is a leaf, or if its step was released.
pub(crate) fn operands(node: &Arc<Node>) -> Option<Operands> {
    tape().as_ref()?.steps.get(&address(node)).cloned()
}

/// The notes on a node, if there are any.
pub(crate) fn notes(node: &Arc<Node>) -> Option<Notes> {
    tape().as_ref()?.notes.get(&address(node)).cloned()
}

/// Changes what is noted on a node.
pub(crate) fn with_notes<R>(node: &Arc<Node>, change: impl FnOnce(&mut Notes) -> R) -> R {
    let mut tape = tape();
    change(tape.get_or_insert_default().notes.entry(address(node)).or_default())
}

impl Tensor {
    /// True if [`Tensor::backward`] of a result of the tensor gives a gradient to it, or through it.
    pub fn requires_grad(&self) -> bool {
        self.node().is_tracked()
    }

    /// True unless the tensor is a result of others that require gradients.
    pub fn is_leaf(&self) -> bool {
        !self.requires_grad() || notes(self.node()).is_some_and(|n| n.leaf)
    }

    /// Makes the tensor require a gradient, or not, from here on: see [`Tensor::backward`].
    ///
    /// Errors: [`Error::InvalidArgument`] for a dtype that is no floating-point or complex one, and for
    /// a result of others that require gradients, which cannot stop.
    pub fn set_requires_grad(&self, on: bool) -> Result<()> {
        self.node().check()?;
        if on && !self.dtype().is_inexact() {
            return Err(Error::InvalidArgument(format!(
                "requires_grad: the tensor is {}; expected a floating-point or complex dtype",
                self.spec()
            )));
        }
        match (on, self.is_leaf()) {
            (true, true) => {
                self.node().set_tracked(true);
                with_notes(self.node(), |notes| notes.leaf = true);
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
                self.node().set_tracked(false);
                forget(address(self.node()));
            }
        }
        Ok(())
    }

    /// The gradient that [`Tensor::backward`] has summed up so far.
    pub fn grad(&self) -> Option<Tensor> {
        notes(self.node()).and_then(|notes| notes.grad)
    }

    /// Replaces the gradient, or forgets it.
    ///
    /// Errors: [`Error::InvalidArgument`] for a gradient of another shape or dtype, and for a tensor
    /// that requires none.
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        if let Some(grad) = &grad
            && (grad.spec() != self.spec() || !self.requires_grad())
        {
            return Err(Error::InvalidArgument(format!(
                "grad: the gradient of {} that requires {} cannot be {}; expected its spec, of a \
                 tensor that requires a gradient",
                self.spec(),
                if self.requires_grad() { "one" } else { "none" },
                grad.spec()
            )));
        }
        if self.requires_grad() {
            let old = with_notes(self.node(), |notes| std::mem::replace(&mut notes.grad, grad));
            drop(old);
        }
        Ok(())
    }

    /// Has [`Tensor::backward`] keep the gradient of a tensor that is no leaf.
    ///
    /// Errors: [`Error::InvalidArgument`] for a tensor that requires no gradient.
    pub fn retain_grad(&self) -> Result<()> {
        self.check_tracked("retain_grad")?;
        with_notes(self.node(), |notes| notes.retains = true);
        Ok(())
    }

    /// Calls a function with the gradient of the tensor whenever [`Tensor::backward`] has computed it;
    /// its result, if any, takes the gradient's place. Gives a number for [`Tensor::remove_hook`].
    ///
    /// Errors: [`Error::InvalidArgument`] for a tensor that requires no gradient.
    pub fn register_hook(&self, hook: Hook) -> Result<u64> {
        self.check_tracked("register_hook")?;
        let number = {
            let mut tape = tape();
            let known = tape.get_or_insert_default();
            known.next += 1;
            known.next
        };
        with_notes(self.node(), |notes| notes.hooks.push((number, hook)));
        Ok(number)
    }

    /// Takes a hook back; nothing happens if it is gone.
    pub fn remove_hook(&self, number: u64) {
        if notes(self.node()).is_some() {
            let removed = with_notes(self.node(), |notes| {
                let at = notes.hooks.iter().position(|(n, _)| *n == number);
                at.map(|at| notes.hooks.remove(at))
            });
            drop(removed);
        }
    }

    fn check_tracked(&self, what: &str) -> Result<()> {
        self.node().check()?;
        match self.requires_grad() {
            true => Ok(()),
            false => Err(Error::InvalidArgument(format!(
                "{what}: the tensor {} requires no gradient; call requires_grad_() on a tensor that \
                 it follows from, before it is computed",
                self.spec()
            ))),
        }
    }
}

/// Runs `f` and gives its result; nothing that `f` records requires gradients.
///
/// ```
/// use girih::{Tensor, no_grad};
///
/// let x = Tensor::from_slice(&[1.0f32], [1])?;
/// x.set_requires_grad(true)?;
/// assert!(x.mul(2.0)?.requires_grad());
/// assert!(!no_grad(|| x.mul(2.0))?.requires_grad());
/// # Ok::<(), girih::Error>(())
/// ```
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    let context = Context::current();
    context.within(context.frame().with_grad(false), f)
}

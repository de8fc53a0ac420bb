//! Functions being traced for [`crate::compile`], on the thread that calls them.
//!
//! A program must not keep what its calls have to find out anew. So while a function is traced the
//! values of the tensors that it refers to, and of its random draws, may not be read; and its draws
//! take no place in the generator's sequence, but are noted in their order: each run of the program
//! takes places for all of them, as the function itself would.

use crate::cut::ancestors;
use crate::node::{Node, State};
use crate::{Error, Result, Tensor};
use girih_ir::{DType, OpCode, Shape};
use rustc_hash::FxHashSet;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A random draw of a function: what is drawn, of which shape.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    pub code: OpCode,
    pub dtype: DType,
    pub shape: Shape,
}

/// A function being traced.
struct Active {
    /// The key of its draws, which no generator has; their offsets count them.
    key: u64,
    draws: Vec<Draw>,
    /// The generator was started anew by the function: what it draws since is the same each time.
    seeded: bool,
    /// Tensors that calls of the program give anew.
    outside: FxHashSet<*const Node>,
    /// The function has asked on which device a tensor is.
    asked_device: bool,
    /// Arguments, by node, with their names.
    names: Vec<(*const Node, String)>,
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static ACTIVE: RefCell<Vec<Active>> = const { RefCell::new(Vec::new()) };
}

/// True while the calling thread traces a function to compile it: values of tensors may then be
/// unknown, and what the function does happens once.
#[inline]
pub fn is_active() -> bool {
    DEPTH.get() > 0
}

/// The trace of a function, which ends when this is dropped.
pub(crate) struct Tracing {
    key: u64,
}

impl Tracing {
    /// Begins tracing a function that refers to these tensors.
    pub fn begin(outside: &[Tensor]) -> Tracing {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Keys are only compared with those of traces under way, and of their nodes.
        let key =
            NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1 << 63;
        let outside = outside.iter().map(|t| Arc::as_ptr(t.node())).collect();
        let active = Active {
            key,
            draws: Vec::new(),
            seeded: false,
            outside,
            asked_device: false,
            names: Vec::new(),
        };
        ACTIVE.with_borrow_mut(|all| all.push(active));
        DEPTH.set(DEPTH.get() + 1);
        Tracing { key }
    }

    /// Whether what the function records may depend on the device of its arguments.
    pub fn asked_device(&self) -> bool {
        ACTIVE.with_borrow(|all| all.iter().any(|own| own.key == self.key && own.asked_device))
    }

    /// What the function has drawn so far, in order.
    pub fn draws(&self) -> Vec<Draw> {
        ACTIVE.with_borrow(|all| {
            let own = all.iter().find(|active| active.key == self.key);
            own.map(|active| active.draws.clone()).unwrap_or_default()
        })
    }

    /// Which of the draws has this place, if it is one of the function's.
    pub fn draw_at(&self, (key, offset): (u64, u64)) -> Option<usize> {
        (key == self.key).then_some(offset as usize)
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        ACTIVE.with_borrow_mut(|all| all.retain(|active| active.key != self.key));
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Says how the arguments of the function being traced are called, for messages.
pub fn name_arguments(placeholders: &[Tensor], names: impl IntoIterator<Item = String>) {
    let nodes = placeholders.iter().map(|p| Arc::as_ptr(p.node()));
    ACTIVE.with_borrow_mut(|all| {
        if let Some(active) = all.last_mut() {
            active.names.extend(nodes.zip(names));
        }
    });
}

/// The name of an argument.
pub(crate) fn name_of(node: &Arc<Node>) -> Option<String> {
    ACTIVE.with_borrow(|all| {
        let mut named = all.iter().flat_map(|active| &active.names);
        named.find(|(known, _)| *known == Arc::as_ptr(node)).map(|(_, name)| name.clone())
    })
}

/// The place of a draw of the function being traced; nothing if there is none, or if it has started
/// the generator anew.
pub(crate) fn draw(code: OpCode, dtype: DType, shape: &Shape) -> Option<(u64, u64)> {
    if !is_active() {
        return None;
    }
    ACTIVE.with_borrow_mut(|all| {
        let active = all.last_mut().filter(|active| !active.seeded)?;
        active.draws.push(Draw { code, dtype, shape: shape.clone() });
        Some((active.key, active.draws.len() as u64 - 1))
    })
}

/// The place that the next draw of the function being traced has; as [`draw`].
pub(crate) fn position() -> Option<(u64, u64)> {
    if !is_active() {
        return None;
    }
    ACTIVE.with_borrow(|all| {
        let active = all.last().filter(|active| !active.seeded)?;
        Some((active.key, active.draws.len() as u64))
    })
}

/// The function being traced asks on which device a tensor is.
pub(crate) fn device_asked() {
    if is_active() {
        ACTIVE.with_borrow_mut(|all| all.iter_mut().for_each(|active| active.asked_device = true));
    }
}

/// The generator is started anew.
pub(crate) fn seeded() {
    if is_active() {
        ACTIVE.with_borrow_mut(|all| all.iter_mut().for_each(|active| active.seeded = true));
    }
}

/// Fails if the value of a tensor is the matter of each call of a function being traced.
///
/// Errors: [`Error::OutsideValue`].
pub(crate) fn check_read(tensor: &Tensor, what: &'static str) -> Result<()> {
    if !is_active() {
        return Ok(());
    }
    ACTIVE.with_borrow(|all| {
        let found = ancestors(&[tensor], |_| false).into_iter().find(|node| {
            let drawn = match *node.state() {
                State::Random { key, .. } => Some(key),
                _ => None,
            };
            let own = |active: &Active| {
                active.outside.contains(&Arc::as_ptr(node)) || drawn == Some(active.key)
            };
            all.iter().any(own)
        });
        let Some(node) = found else { return Ok(()) };
        let line = tensor.node().location();
        let at = line.is_known().then(|| format!("recorded at {line}"));
        let shape = node.shape().to_string();
        Err(Error::OutsideValue { what, shape, at: at.into_iter().collect() })
    })
}

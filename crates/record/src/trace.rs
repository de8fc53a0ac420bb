//! Tracing of functions for compilation, on the thread that calls them.
//!
//! A program must not contain values that can differ between calls. While a function is traced, the
//! values of captured tensors and of random draws therefore cannot be read. The function's draws do
//! not advance the generator; they are recorded in order, and each run of the program consumes a
//! part of the generator's sequence for all of them, as the function itself would.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::node::{Node, State};
use crate::order::ancestors;
use girih_ir::{DType, OpCode, Shape};
use rustc_hash::FxHashSet;
use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A random draw of a function: the distribution, dtype and shape.
#[derive(Clone, Debug)]
pub struct Draw {
    /// The distribution.
    pub code: OpCode,
    /// The dtype.
    pub dtype: DType,
    /// The shape.
    pub shape: Shape,
}

/// A function being traced.
struct Active {
    /// The key of the function's draws, which no generator uses; their offsets are their numbers.
    key: u64,
    draws: Vec<Draw>,
    /// Whether the function has reseeded the generator, after which its draws are the same at each
    /// call.
    seeded: bool,
    /// Captured tensors, which calls of the program supply.
    outside: FxHashSet<*const Node>,
    /// Whether the function has queried the device of a tensor.
    asked_device: bool,
    /// Placeholders with the names of their arguments.
    names: Vec<(*const Node, String)>,
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static ACTIVE: RefCell<Vec<Active>> = const { RefCell::new(Vec::new()) };
}

/// Whether the calling thread traces a function for compilation. Values of tensors may then be
/// unknown, and side effects of the function happen only once.
#[inline]
pub fn is_active() -> bool {
    DEPTH.get() > 0
}

/// The tracing of a function, until dropped.
pub struct Tracing {
    key: u64,
}

impl Tracing {
    /// Begins to trace a function with these captured tensors.
    pub fn begin<H: Borrow<Arc<Node>>>(outside: &[H]) -> Tracing {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Keys are only compared with keys of active traces and of their nodes.
        let key =
            NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1 << 63;
        let outside = outside.iter().map(|tensor| Arc::as_ptr(tensor.borrow())).collect();
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

    /// Whether the function has queried the device of a tensor, so that its recording may depend on
    /// the device.
    pub fn asked_device(&self) -> bool {
        ACTIVE.with_borrow(|all| all.iter().any(|own| own.key == self.key && own.asked_device))
    }

    /// The function's draws so far, in order.
    pub fn draws(&self) -> Vec<Draw> {
        ACTIVE.with_borrow(|all| {
            let own = all.iter().find(|active| active.key == self.key);
            own.map(|active| active.draws.clone()).unwrap_or_default()
        })
    }

    /// The number of the draw at this position, if it is a draw of this function.
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

/// Sets the names of the arguments of the function being traced, for messages.
pub fn name_arguments<H: Borrow<Arc<Node>>>(
    placeholders: &[H],
    names: impl IntoIterator<Item = String>,
) {
    let nodes = placeholders.iter().map(|placeholder| Arc::as_ptr(placeholder.borrow()));
    ACTIVE.with_borrow_mut(|all| {
        if let Some(active) = all.last_mut() {
            active.names.extend(nodes.zip(names));
        }
    });
}

/// The name of a placeholder's argument.
pub fn name_of(node: &Arc<Node>) -> Option<String> {
    ACTIVE.with_borrow(|all| {
        let mut named = all.iter().flat_map(|active| &active.names);
        named.find(|(known, _)| *known == Arc::as_ptr(node)).map(|(_, name)| name.clone())
    })
}

/// Records a draw of the function being traced and returns its position; `None` if no function is
/// traced, or if it has reseeded the generator.
pub fn draw(code: OpCode, dtype: DType, shape: &Shape) -> Option<(u64, u64)> {
    if !is_active() {
        return None;
    }
    ACTIVE.with_borrow_mut(|all| {
        let active = all.last_mut().filter(|active| !active.seeded)?;
        active.draws.push(Draw { code, dtype, shape: shape.clone() });
        Some((active.key, active.draws.len() as u64 - 1))
    })
}

/// The position of the next draw of the function being traced; `None` as for [`draw`].
pub fn position() -> Option<(u64, u64)> {
    if !is_active() {
        return None;
    }
    ACTIVE.with_borrow(|all| {
        let active = all.last().filter(|active| !active.seeded)?;
        Some((active.key, active.draws.len() as u64))
    })
}

/// Notes that the function being traced queries the device of a tensor.
fn device_asked() {
    if is_active() {
        ACTIVE.with_borrow_mut(|all| all.iter_mut().for_each(|active| active.asked_device = true));
    }
}

/// The device of a node, on which the recording of a function being traced then depends.
pub fn device_of(node: &Node) -> Device {
    device_asked();
    node.place().device()
}

/// Notes that the generator is reseeded.
pub fn seeded() {
    if is_active() {
        ACTIVE.with_borrow_mut(|all| all.iter_mut().for_each(|active| active.seeded = true));
    }
}

/// Fails if the value of a tensor can differ between calls of a function being traced.
///
/// Errors: [`Error::OutsideValue`].
pub fn check_read(node: &Arc<Node>, what: &'static str) -> Result<()> {
    if !is_active() {
        return Ok(());
    }
    ACTIVE.with_borrow(|all| {
        let found = ancestors(&[node], |_| false).into_iter().find(|node| {
            let drawn = match *node.state() {
                State::Random { key, .. } => Some(key),
                _ => None,
            };
            let own = |active: &Active| {
                active.outside.contains(&Arc::as_ptr(node)) || drawn == Some(active.key)
            };
            all.iter().any(own)
        });
        let Some(outside) = found else { return Ok(()) };
        let line = node.location();
        let at = line.is_known().then(|| format!("recorded at {line}"));
        let shape = outside.shape().to_string();
        Err(Error::OutsideValue { what, shape, at: at.into_iter().collect() })
    })
}

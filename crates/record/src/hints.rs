//! Hints on tensors. Since few tensors have hints, a table outside the nodes holds them, and it is
//! read when a graph is cut or traced; recording has no overhead for hints.

use crate::error::{Error, Result};
use crate::node::Node;
use girih_ir::hints::{FUSE, Hints, NO};
use girih_ir::pfgb::{LAYOUT, StoredLayout};
use girih_ir::{Graph, NodeId, Shape};
use girih_sync::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, Weak};

/// Hints by the address of their node. The weak reference keeps the address from being reused.
type Table = FxHashMap<usize, (Weak<Node>, Hints)>;

static HINTED: Mutex<Option<Table>> = Mutex::new(None);
/// The number of entries, so that programs without hints skip the lookup.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The table size from which entries of dropped tensors are removed before the table grows.
const FIRST_SWEEP: usize = 256;

/// Sets a hint of a node, replacing the previous value of the key. Hints never change a value.
/// Programs captured or traced from the node keep its hints, in files too, and passes of users can
/// read them. The compiler reads one hint: `fuse` with the value `no` computes the op in a kernel
/// of its own. Hints do not affect what was compiled or computed before.
///
/// Errors: as [`check`].
pub fn set(node: &Arc<Node>, key: &str, value: &str) -> Result<()> {
    check(key, value, &node.shape())?;
    put(node, key, value);
    Ok(())
}

fn put(node: &Arc<Node>, key: &str, value: &str) {
    let mut table = HINTED.lock().unwrap_or_else(PoisonError::into_inner);
    let table = table.get_or_insert_default();
    if table.len() >= FIRST_SWEEP && table.len() == table.capacity() {
        table.retain(|_, (node, _)| node.strong_count() > 0);
    }
    let entry = || (Arc::downgrade(node), Hints::new());
    let (_, hints) = table.entry(Arc::as_ptr(node) as usize).or_insert_with(entry);
    hints.insert(key.into(), value.into());
    COUNT.store(table.len(), Relaxed);
}

/// Copies the hints of a program's node to the node recorded for it, except the node's name and
/// scope, which belong to the program.
pub fn put_all(node: &Arc<Node>, hints: &Hints) {
    let own = |key: &str| key == "name" || key == "scope";
    hints.iter().filter(|(key, _)| !own(key)).for_each(|(key, value)| put(node, key, value));
}

/// Checks that a node of this shape can have the hint.
///
/// Errors: [`Error::InvalidArgument`] for an empty key, for a value of `fuse` other than `no`, and
/// for a `layout` that does not fit the shape.
pub fn check(key: &str, value: &str, shape: &Shape) -> Result<()> {
    let wrong = |text: String| Err(Error::InvalidArgument(format!("set_hint: {text}")));
    match key {
        "" => wrong("the key is empty; give a word".into()),
        FUSE if value != NO => wrong(format!(
            "'fuse' takes 'no', found '{value}'; an op without the hint is fused where that pays"
        )),
        LAYOUT => match StoredLayout::parse(value, shape) {
            Ok(_) => Ok(()),
            Err(expected) => wrong(format!("'layout' takes {expected}")),
        },
        _ => Ok(()),
    }
}

/// Whether any tensor has hints.
pub fn any() -> bool {
    COUNT.load(Relaxed) > 0
}

/// The hints of a node, if any.
pub fn of(node: &Arc<Node>) -> Option<Hints> {
    if !any() {
        return None;
    }
    let table = HINTED.lock().unwrap_or_else(PoisonError::into_inner);
    table.as_ref()?.get(&(Arc::as_ptr(node) as usize)).map(|(_, hints)| hints.clone())
}

/// Copies the hints of a recorded node to its node in a graph.
pub fn note(graph: &mut Graph, id: NodeId, node: &Arc<Node>) {
    if any() {
        note_all(graph, [(id, node)]);
    }
}

/// Copies the hints of recorded nodes to their nodes in a graph.
pub fn note_all<'a>(graph: &mut Graph, nodes: impl IntoIterator<Item = (NodeId, &'a Arc<Node>)>) {
    let table = HINTED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(table) = table.as_ref() else { return };
    for (id, node) in nodes {
        let hints = table.get(&(Arc::as_ptr(node) as usize)).map(|(_, hints)| hints);
        for (key, value) in hints.into_iter().flatten() {
            graph.set_hint(id, key, value);
        }
    }
}

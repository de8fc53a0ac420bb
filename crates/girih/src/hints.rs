//! Hints on tensors. Few tensors have any, so they stand in a table beside the nodes, which find them
//! when a graph is cut out or traced; recording pays nothing for them.

use crate::node::Node;
use crate::{Error, Result, Tensor};
use girih_ir::hints::{FUSE, Hints, NO};
use girih_ir::pfgb::{LAYOUT, Layout};
use girih_ir::{Graph, NodeId, Shape};
use girih_sync::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, Weak};

/// Hints by the address of their node, which is no other's as long as the entry refers to the node.
type Table = FxHashMap<usize, (Weak<Node>, Hints)>;

static HINTED: Mutex<Option<Table>> = Mutex::new(None);
/// Entries of the table, so that programs without hints do not look.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// From so many entries on, those of tensors that are gone are dropped before the table grows.
const FIRST_SWEEP: usize = 256;

impl Tensor {
    /// Puts a hint on the tensor, in place of what the key held before. Hints never change a value;
    /// programs captured or traced from the tensor keep them, in files too, and passes of users see
    /// them. The compiler reads one: `fuse` with the value `no` has the op computed in kernels of its
    /// own, apart from its operands and its users. What has been compiled or computed before stays
    /// as it is; forward mode and `vmap` give results without hints.
    ///
    /// Errors: [`Error::InvalidArgument`] for an empty key, for another value of `fuse`, and for a
    /// `layout` that the tensor cannot have.
    ///
    /// ```
    /// use girih::Tensor;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 4.0], [2])?;
    /// let y = x.sqrt()?;
    /// y.set_hint("fuse", "no")?;
    /// assert_eq!(y.hints()["fuse"], "no");
    /// let z = y.exp()?;
    /// assert_eq!(girih::explain([&z])?.kernels.len(), 2);
    /// # Ok::<(), girih::Error>(())
    /// ```
    pub fn set_hint(&self, key: &str, value: &str) -> Result<()> {
        check(key, value, &self.spec().shape)?;
        self.put(key, value);
        Ok(())
    }

    fn put(&self, key: &str, value: &str) {
        let mut table = HINTED.lock().unwrap_or_else(PoisonError::into_inner);
        let table = table.get_or_insert_default();
        if table.len() >= FIRST_SWEEP && table.len() == table.capacity() {
            table.retain(|_, (node, _)| node.strong_count() > 0);
        }
        let node = self.node();
        let entry = || (Arc::downgrade(node), Hints::new());
        let (_, hints) = table.entry(Arc::as_ptr(node) as usize).or_insert_with(entry);
        hints.insert(key.into(), value.into());
        COUNT.store(table.len(), Relaxed);
    }

    /// Puts the hints on a program's node on the tensor that it is recorded as. The node's name and
    /// its scope say where it is in that program, and stay there.
    pub(crate) fn put_hints(&self, hints: &Hints) {
        let own = |key: &str| key == "name" || key == "scope";
        hints.iter().filter(|(key, _)| !own(key)).for_each(|(key, value)| self.put(key, value));
    }

    /// The hints that [`Tensor::set_hint`] put on the tensor.
    pub fn hints(&self) -> Hints {
        of(self.node()).unwrap_or_default()
    }
}

/// Whether a node of this shape can have the hint.
pub(crate) fn check(key: &str, value: &str, shape: &Shape) -> Result<()> {
    let wrong = |text: String| Err(Error::InvalidArgument(format!("set_hint: {text}")));
    match key {
        "" => wrong("the key is empty; give a word".into()),
        FUSE if value != NO => wrong(format!(
            "'fuse' takes 'no', found '{value}'; an op without the hint is fused where that pays"
        )),
        LAYOUT => match Layout::parse(value, shape) {
            Ok(_) => Ok(()),
            Err(expected) => wrong(format!("'layout' takes {expected}")),
        },
        _ => Ok(()),
    }
}

/// Whether any tensor has hints.
pub(crate) fn any() -> bool {
    COUNT.load(Relaxed) > 0
}

fn of(node: &Arc<Node>) -> Option<Hints> {
    if !any() {
        return None;
    }
    let table = HINTED.lock().unwrap_or_else(PoisonError::into_inner);
    table.as_ref()?.get(&(Arc::as_ptr(node) as usize)).map(|(_, hints)| hints.clone())
}

/// Puts the hints on a recorded node on the node of a graph that stands for it.
pub(crate) fn note(graph: &mut Graph, id: NodeId, node: &Arc<Node>) {
    if any() {
        note_all(graph, [(id, node)]);
    }
}

/// Puts the hints on recorded nodes on the nodes of a graph that stand for them.
pub(crate) fn note_all<'a>(
    graph: &mut Graph,
    nodes: impl IntoIterator<Item = (NodeId, &'a Arc<Node>)>,
) {
    let table = HINTED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(table) = table.as_ref() else { return };
    for (id, node) in nodes {
        let hints = table.get(&(Arc::as_ptr(node) as usize)).map(|(_, hints)| hints);
        for (key, value) in hints.into_iter().flatten() {
            graph.set_hint(id, key, value);
        }
    }
}

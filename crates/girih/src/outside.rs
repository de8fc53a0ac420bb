//! Tensors from outside that recorded rules refer to: custom derivative rules, and batching rules
//! of custom ops. The graph of a rule has numbered leaves for them, and the caller that records the
//! transformed graph replaces the leaves by the tensors.

use crate::{Error, Result, Tensor};
use girih_ir::{Graph, NodeId, Op};
use girih_record::node::Node;
use girih_sync::Mutex;
use girih_transform::lift_control;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::{Arc, PoisonError};

thread_local! {
    /// The tensors that the active transforms of this thread refer to, the innermost transform
    /// last.
    static CAPTURES: RefCell<Vec<FxHashMap<u64, Tensor>>> = const { RefCell::new(Vec::new()) };
}

/// An active transform, until dropped.
pub(crate) struct Captures;

impl Captures {
    pub fn begin() -> Captures {
        CAPTURES.with_borrow_mut(|captures| captures.push(FxHashMap::default()));
        Captures
    }

    /// The tensors from outside that rules have referred to so far.
    pub fn tensors(&self) -> FxHashMap<u64, Tensor> {
        CAPTURES.with_borrow(|captures| captures.last().cloned().unwrap_or_default())
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        let captures = CAPTURES.with_borrow_mut(Vec::pop);
        // Drop the tensors after the borrow of the list has ended.
        drop(captures);
    }
}

/// The number of a tensor that a rule refers to; the active transform keeps the tensor alive.
///
/// Errors: [`Error::InvalidArgument`] if no transform is active.
pub(crate) fn number(node: &Arc<Node>) -> Result<u64> {
    let key = Arc::as_ptr(node) as usize as u64;
    let known = CAPTURES.with_borrow_mut(|captures| {
        let tensors = captures.last_mut()?;
        tensors.entry(key).or_insert_with(|| Tensor::from_node(node.clone()));
        Some(())
    });
    known.ok_or_else(|| {
        Error::InvalidArgument(format!(
            "a rule refers to a tensor outside, {}, where no transform is under way; pass it as an \
             argument",
            node.spec()
        ))
    })?;
    Ok(key)
}

/// A control-flow op whose regions take tensors from outside as operands, with the tensors'
/// numbers; `None` if its regions refer to no such tensors.
type Lifted = Option<(Op, Vec<u64>)>;

/// Replaces numbered leaves by nodes in the result of a transform.
#[derive(Default)]
pub(crate) struct Outside {
    nodes: FxHashMap<u64, Arc<Node>>,
    /// Lifted ops by their control attributes and number of operands.
    lifted: Mutex<FxHashMap<(usize, usize), Lifted>>,
}

impl Outside {
    pub fn new(tensors: FxHashMap<u64, Tensor>) -> Outside {
        let nodes = tensors.into_iter().map(|(key, t)| (key, t.node().clone())).collect();
        Outside { nodes, ..Outside::default() }
    }

    /// The node that replaces a leaf.
    pub fn leaf(&self, graph: &Graph, id: NodeId) -> Option<Arc<Node>> {
        self.nodes.get(&graph.node(id).op.as_outside()?).cloned()
    }

    /// The op of a node, with the tensors that its regions refer to as additional operands; `None`
    /// if there are none.
    pub fn op(&self, graph: &Graph, id: NodeId) -> Option<(Op, Vec<Arc<Node>>)> {
        if self.nodes.is_empty() {
            return None;
        }
        let node = graph.node(id);
        let (result, control) = node.op.as_control()?;
        let key = (Arc::as_ptr(control) as usize, node.inputs.len());
        let mut lifted = self.lifted.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = lifted.entry(key).or_insert_with(|| {
            let (new, keys) = lift_control(node.op.code, control, node.inputs.len())?;
            Some((Op::control(node.op.code, Arc::new(new), 0), keys))
        });
        let (op, keys) = entry.as_ref()?;
        let (_, control) = op.as_control()?;
        let op = Op::control(node.op.code, control.clone(), result);
        Some((op, keys.iter().map(|key| self.nodes[key].clone()).collect()))
    }
}

//! Tensors outside that rules refer to which a transform records: rules of functions with derivatives
//! of their own, batching rules of users' ops. A rule's graph has leaves for them, by number; whoever
//! records the transformed graph puts the tensors in place.

use crate::node::Node;
use crate::{Error, Result, Tensor};
use girih_ir::{Graph, NodeId, Op};
use girih_sync::Mutex;
use girih_transform::lift_control;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::{Arc, PoisonError};

thread_local! {
    /// What the transforms under way on this thread have met, the innermost last.
    static MET: RefCell<Vec<FxHashMap<u64, Tensor>>> = const { RefCell::new(Vec::new()) };
}

/// A transform under way.
pub(crate) struct Met;

impl Met {
    pub fn begin() -> Met {
        MET.with_borrow_mut(|met| met.push(FxHashMap::default()));
        Met
    }

    /// The tensors that were met so far.
    pub fn tensors(&self) -> FxHashMap<u64, Tensor> {
        MET.with_borrow(|met| met.last().cloned().unwrap_or_default())
    }
}

impl Drop for Met {
    fn drop(&mut self) {
        let met = MET.with_borrow_mut(Vec::pop);
        // What it held goes when the list is free again.
        drop(met);
    }
}

/// The number of a tensor that a rule refers to; the transform under way keeps the tensor.
///
/// Errors: [`Error::InvalidArgument`] if there is none.
pub(crate) fn number(node: &Arc<Node>) -> Result<u64> {
    let key = Arc::as_ptr(node) as usize as u64;
    let known = MET.with_borrow_mut(|met| {
        let tensors = met.last_mut()?;
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

/// An op whose regions have tensors as operands, with the numbers of the tensors; `None` if its regions
/// refer to none.
type Lifted = Option<(Op, Vec<u64>)>;

/// Nodes in place of numbers, in what a transform wrote.
#[derive(Default)]
pub(crate) struct Outside {
    nodes: FxHashMap<u64, Arc<Node>>,
    /// By what ops run and their number of operands.
    lifted: Mutex<FxHashMap<(usize, usize), Lifted>>,
}

impl Outside {
    pub fn new(tensors: FxHashMap<u64, Tensor>) -> Outside {
        let nodes = tensors.into_iter().map(|(key, t)| (key, t.node().clone())).collect();
        Outside { nodes, ..Outside::default() }
    }

    /// The node that a leaf stands for.
    pub fn leaf(&self, graph: &Graph, id: NodeId) -> Option<Arc<Node>> {
        self.nodes.get(&graph.node(id).op.as_outside()?).cloned()
    }

    /// The op of a node with the tensors that its regions refer to as further operands; `None` if there
    /// are none.
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

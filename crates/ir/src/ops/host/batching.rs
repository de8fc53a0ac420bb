//! How `vmap` batches custom ops.

use crate::Graph;

/// How `vmap` batches a custom op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HostBatching {
    /// There is no rule: `vmap` of the op is an error.
    None,
    /// The op is called for each member of the batch in turn.
    #[default]
    Sequential,
    /// The op is called once; operands without the batch get a leading axis of size one.
    ExpandDims,
    /// The op is called once; all operands have the batch as leading axis.
    BroadcastAll,
    /// The op records a graph for each batch: [`CustomOp::batch`](super::CustomOp::batch).
    Rule,
}

/// The batched op as a graph: its inputs are the operands, its outputs the results. The marks say
/// which results have the batch as their leading axis.
pub type HostBatch = (Graph, Vec<bool>);

impl HostBatching {
    /// Every rule.
    pub const ALL: [HostBatching; 5] = [
        HostBatching::None,
        HostBatching::Sequential,
        HostBatching::ExpandDims,
        HostBatching::BroadcastAll,
        HostBatching::Rule,
    ];

    /// Name in text forms.
    pub fn name(self) -> &'static str {
        match self {
            HostBatching::None => "none",
            HostBatching::Sequential => "sequential",
            HostBatching::ExpandDims => "expand_dims",
            HostBatching::BroadcastAll => "broadcast_all",
            HostBatching::Rule => "rule",
        }
    }
}

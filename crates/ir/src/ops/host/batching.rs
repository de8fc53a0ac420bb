//! How ops of users take a batch.

use crate::Graph;

/// How a host op takes a batch, as `vmap` gives it.
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

/// A batch of calls of an op: a graph of the operands, with the results as outputs, and which of these
/// have the batch as their leading axis.
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

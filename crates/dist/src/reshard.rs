//! Reshards: the exact transfers between devices that change a value from one sharding to another.
//!
//! A device needs the elements of its new shard that are not in its old one. Each is sent to it once,
//! from the nearest device that has it, the one that has sent least among equals. Partial values are
//! combined first: the devices of a group share the elements that they need, combine their parts
//! (the halves of an all-reduce), and send on what others need. A value becomes partial without a
//! transfer where a device of each group has the elements: the others hold the op's identity.
//!
//! Sources: intersections of old and new tiles as in GSPMD's reshards; reduce-scatter and all-gather
//! as the parts of an all-reduce: Thakur, Rabenseifner and Gropp 2005.

mod cost;
mod grid;
mod kind;
pub(crate) mod layouts;
mod lower;
mod plan;
#[cfg(test)]
mod tests;

pub use lower::{Assembly, Piece};

use crate::ownership::same_ownership;
use crate::rect::Rect;
use girih_ir::{OpCode, Result, Sharding};
use std::fmt;

/// Elements that a device sends to a device, in indices of the whole tensor. Where both are the same
/// device, it copies them from its old shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The device that has the elements.
    pub source: u32,
    /// The device that needs them.
    pub target: u32,
    /// The elements.
    pub rect: Rect,
}

impl Transfer {
    /// True if no data crosses between devices.
    pub fn is_local(&self) -> bool {
        self.source == self.target
    }
}

/// Transfers that may run at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// If given, the transfers of one rectangle to one target follow each other, and the target
    /// combines them by this op in their order.
    pub combine: Option<OpCode>,
    /// The transfers; those of one target do not overlap, except where they are combined.
    pub transfers: Vec<Transfer>,
}

/// The collective that a reshard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Each device keeps its shard.
    Identity,
    /// Each device keeps a part of its shard.
    Slice,
    /// Each device holds its shard or the identity of the op, and the values become partial.
    Partial(OpCode),
    /// Each device gathers whole shards of others.
    AllGather,
    /// Each device gets a part of the shards of others, as axes move to other dimensions.
    AllToAll,
    /// Each device sends its shard to at most one other.
    Permute,
    /// Each device gets the elements that an op needs for the device's part of its result, such as those
    /// around its shard.
    Halo,
    /// One device sends all of its shard to others.
    Broadcast,
    /// One device sends a part of its shard to each other.
    Scatter,
    /// One device gets the shards of all others.
    Gather,
    /// Partial values are combined; each device gets what it had a part of.
    AllReduce(OpCode),
    /// Partial values are combined; each device gets a part of what it had a part of.
    ReduceScatter(OpCode),
    /// Any other transfers.
    General,
}

impl fmt::Display for Kind {
    /// The name of the collective, as in `all_reduce`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Identity => "identity",
            Kind::Slice => "slice",
            Kind::Partial(_) => "partial",
            Kind::AllGather => "all_gather",
            Kind::AllToAll => "all_to_all",
            Kind::Permute => "permute",
            Kind::Halo => "halo",
            Kind::Broadcast => "broadcast",
            Kind::Scatter => "scatter",
            Kind::Gather => "gather",
            Kind::AllReduce(_) => "all_reduce",
            Kind::ReduceScatter(_) => "reduce_scatter",
            Kind::General => "general",
        })
    }
}

/// The transfers of a reshard. The first phase reads the old shards, each next one what the phase
/// before has written; the last one writes the new shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshard {
    /// The collective.
    pub kind: Kind,
    /// One phase, or two if partial values are combined.
    pub phases: Vec<Phase>,
    /// The op whose identity the elements of new shards are that no transfer writes.
    pub fill: Option<OpCode>,
}

impl Reshard {
    /// The transfers between different devices.
    pub fn crossing(&self) -> impl Iterator<Item = &Transfer> {
        self.phases.iter().flat_map(|phase| &phase.transfers).filter(|t| !t.is_local())
    }

    /// The bytes that cross between devices, for elements of `item` bytes.
    pub fn bytes_moved(&self, item: usize) -> usize {
        let elements = self.crossing().map(|transfer| transfer.rect.len());
        elements.fold(0usize, usize::saturating_add).saturating_mul(item)
    }
}

/// The transfers that change tensors of a shape from one sharding to another. The meshes may differ;
/// devices with equal numbers are the same device, and those of a ghost mesh are its positions.
///
/// Errors: [`girih_ir::Error::InvalidArgument`] for a spec with more entries than dimensions.
///
/// Cost: linear in the processors and the transfers, times the copies of an element.
pub fn reshard(from: &Sharding, to: &Sharding, shape: &[usize]) -> Result<Reshard> {
    let plan = plan::Plan::new(from, to, shape)?;
    if same_ownership(from, to, shape)? {
        let phases = vec![Phase { combine: None, transfers: plan.kept_shards() }];
        return Ok(Reshard { kind: Kind::Identity, phases, fill: None });
    }
    let (phases, fill) = plan.phases();
    let kind = plan.kind(&phases);
    Ok(Reshard { kind, phases, fill })
}

/// The transfers after which each device has a rectangle of elements, which may be any.
///
/// Errors: as [`reshard`].
pub(crate) fn reshard_to_rects(
    from: &Sharding,
    rects: &[Rect],
    shape: &[usize],
) -> Result<Reshard> {
    let plan = plan::Plan::to_rects(from, rects, shape)?;
    let (phases, fill) = plan.phases();
    Ok(Reshard { kind: Kind::Halo, phases, fill })
}

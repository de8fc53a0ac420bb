//! Partition specs: for each dimension of a tensor, the axes of a mesh that cut it.

use crate::OpCode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A part of an axis: the axis is written as a product of `pre_size`, `size` and a rest, the first
/// the major one, and the sub-axis is the middle factor. Source: Shardy, `"x":(m)k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubAxis {
    /// The product of the sizes before the sub-axis.
    pub pre_size: usize,
    /// The number of parts into which the sub-axis cuts.
    pub size: usize,
}

/// An axis of a mesh by name, or a sub-axis of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AxisRef {
    name: Arc<str>,
    sub: Option<SubAxis>,
}

impl AxisRef {
    /// A whole axis.
    pub fn new(name: &str) -> AxisRef {
        AxisRef { name: name.into(), sub: None }
    }

    /// A sub-axis.
    pub fn sub_axis(name: &str, pre_size: usize, size: usize) -> AxisRef {
        AxisRef { name: name.into(), sub: Some(SubAxis { pre_size, size }) }
    }

    /// The name of the axis.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The part of the axis; `None` for the whole axis.
    pub fn sub(&self) -> Option<SubAxis> {
        self.sub
    }
}

impl From<&str> for AxisRef {
    fn from(name: &str) -> AxisRef {
        AxisRef::new(name)
    }
}

/// The entry of a spec for one dimension.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DimSpec {
    /// The axes that cut the dimension. Several axes act as one, the first is the major one.
    pub axes: Vec<AxisRef>,
    /// True if propagation may add axes.
    pub is_open: bool,
    /// When entries conflict, the one with the lower number wins.
    pub priority: u32,
}

impl DimSpec {
    /// A closed entry of priority 0.
    pub fn new<A: Into<AxisRef>>(axes: impl IntoIterator<Item = A>) -> DimSpec {
        DimSpec { axes: axes.into_iter().map(Into::into).collect(), ..DimSpec::default() }
    }

    /// The entry, open.
    pub fn open(self) -> DimSpec {
        DimSpec { is_open: true, ..self }
    }

    /// The entry with a priority.
    pub fn with_priority(self, priority: u32) -> DimSpec {
        DimSpec { priority, ..self }
    }
}

impl From<&str> for DimSpec {
    fn from(axis: &str) -> DimSpec {
        DimSpec::new([axis])
    }
}

impl From<Option<&str>> for DimSpec {
    fn from(axis: Option<&str>) -> DimSpec {
        DimSpec::new(axis)
    }
}

impl<const N: usize> From<[&str; N]> for DimSpec {
    fn from(axes: [&str; N]) -> DimSpec {
        DimSpec::new(axes)
    }
}

/// A partition spec. Dimensions without an entry are not cut. It names axes of a mesh that it does
/// not know; [`Sharding::new`](super::Sharding::new) checks it against one.
///
/// `==` compares specs as they are written. Specs that are written otherwise may own the same
/// elements, which `girih-dist` decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct P {
    /// The entries, one for each of the first dimensions.
    pub dims: Vec<DimSpec>,
    /// Axes that may not cut the tensor.
    pub replicated: BTreeSet<AxisRef>,
    /// Axes along which the processors hold partial values, and the op of
    /// [`Role::COMBINING`](crate::factors::Role::COMBINING) that combines them.
    pub partial: BTreeMap<AxisRef, OpCode>,
}

impl P {
    /// A spec with these entries.
    pub fn new<D: Into<DimSpec>>(dims: impl IntoIterator<Item = D>) -> P {
        P { dims: dims.into_iter().map(Into::into).collect(), ..P::default() }
    }

    /// The spec with another axis that may not cut the tensor.
    pub fn with_replicated(mut self, axis: impl Into<AxisRef>) -> P {
        self.replicated.insert(axis.into());
        self
    }

    /// The spec with another axis of partial values.
    pub fn with_partial(mut self, axis: impl Into<AxisRef>, op: OpCode) -> P {
        self.partial.insert(axis.into(), op);
        self
    }

    /// The axes that cut a dimension.
    pub fn axes_of(&self, dim: usize) -> &[AxisRef] {
        self.dims.get(dim).map_or(&[], |dim| &dim.axes)
    }

    /// The op that combines partial values; `None` if there are none.
    pub fn partial_op(&self) -> Option<OpCode> {
        self.partial.values().next().copied()
    }
}

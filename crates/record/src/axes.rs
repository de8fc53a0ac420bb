//! Named batch axes, by which collectives of a batched function name the other members.

use crate::node::Node;
use girih_ir::ops::collective::NamedAxis;
use std::sync::Arc;

/// A named batch axis, valid while the batched function is called.
#[derive(Clone)]
pub struct BoundAxis {
    axis: NamedAxis,
    /// The member's index along the axis.
    index: Arc<Node>,
}

impl BoundAxis {
    /// An axis whose member's index is `index`.
    pub fn new(axis: NamedAxis, index: Arc<Node>) -> BoundAxis {
        BoundAxis { axis, index }
    }

    /// The name and the size of the axis.
    pub fn axis(&self) -> &NamedAxis {
        &self.axis
    }

    /// The member's index along the axis.
    pub fn index(&self) -> &Arc<Node> {
        &self.index
    }

    /// Whether `self` and `other` are the same axis of the same batch.
    pub fn is(&self, other: &BoundAxis) -> bool {
        Arc::ptr_eq(&self.index, &other.index)
    }
}

impl std::fmt::Debug for BoundAxis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundAxis").field("axis", &self.axis).finish_non_exhaustive()
    }
}

//! Layouts of the values of a graph, and the transforms between them.

use crate::fabric::FabricCost;
use crate::layout::MeshLayout;
use crate::transform::TransformKind;
use girih_ir::{NodeId, P};
use std::collections::BTreeMap;

/// A value that ops take in another layout than its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandTransform {
    /// The value.
    pub value: NodeId,
    /// The layout in which the ops take it.
    pub to: MeshLayout,
    /// The ops and the positions of their operands, ascending. All use the one copy.
    pub users: Vec<(NodeId, usize)>,
    /// What kind of change it is.
    pub kind: TransformKind,
    /// What it costs.
    pub cost: FabricCost,
}

impl OperandTransform {
    /// The op that reads it first.
    pub(crate) fn first_user(&self) -> Option<NodeId> {
        self.users.first().map(|&(user, _)| user)
    }
}

/// A result that an op computes in another way than its layout: as partial values, which are combined,
/// or in other tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultTransform {
    /// The op.
    pub value: NodeId,
    /// Rows and columns of the mesh on which it runs.
    pub mesh: (usize, usize),
    /// The spec of what it computes, over axes `row` and `col`.
    pub spec: P,
    /// What it costs to give the value its layout.
    pub cost: FabricCost,
}

/// The layouts of a graph's values, and what moves between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphLayouts {
    /// The layout of each value that the outputs need. A literal needs none: it is in each program.
    pub layouts: BTreeMap<NodeId, MeshLayout>,
    /// The operands that are taken in other layouts, one for each value and layout.
    pub operands: Vec<OperandTransform>,
    /// The results that are not computed in their layouts, by op.
    pub results: Vec<ResultTransform>,
}

impl GraphLayouts {
    /// The number of transforms.
    pub fn num_transforms(&self) -> usize {
        self.operands.len() + self.results.len()
    }

    /// The cost of all transforms, one after the other.
    pub fn cost(&self) -> FabricCost {
        let costs = self.operands.iter().map(|t| t.cost);
        let costs = costs.chain(self.results.iter().map(|t| t.cost));
        costs.fold(FabricCost::default(), |all, one| all + one)
    }
}

//! Layouts of the values of a graph, and the transforms between them.
//!
//! An op runs on the mesh of one of its operands or of its result. The layouts of its operands there follow from its
//! factors, forward and backward: a product on a grid takes the left operand in rows that all columns
//! have, and the right one in columns that all rows have. Partial values are combined at the op.
//! Layouts are chosen so that the least bytes move, then the fewest wavelets.
//!
//! Source: dynamic programming over trees, as for tree tilings (Aho and Johnson 1976).

mod prices;
mod search;
mod text;
mod ways;

pub(crate) use prices::tensor;

use crate::fabric::FabricCost;
use crate::fit::LayoutConstraints;
use crate::layout::MeshLayout;
use crate::memory::{MemoryBudget, MemoryPlan, plan_memory};
use crate::transform::TransformKind;
use crate::{LayoutError, Result};
use girih_ir::{Graph, NodeId, P};
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
    /// The kind of change.
    pub kind: TransformKind,
    /// The cost of the transfers.
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
    /// The spec of the result as the op computes it, over axes `row` and `col`.
    pub spec: P,
    /// The cost of giving the value its layout.
    pub cost: FabricCost,
}

/// The layouts of a graph's values, and the transforms between them.
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
    /// The layout of a value.
    pub(crate) fn layout(&self, id: NodeId) -> Result<&MeshLayout> {
        self.layouts.get(&id).ok_or_else(|| {
            LayoutError::Graph(format!("there is no layout for {id}; give each value a layout"))
        })
    }

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

/// Chooses the layouts of a graph's values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayoutPlanner {
    /// The limits of each layout.
    pub constraints: LayoutConstraints,
}

impl LayoutPlanner {
    /// Layouts with the least communication: of each value that `allowed` has, one of those listed
    /// there; of another argument the one with the fewest PEs; and of the result of an op one in which
    /// it comes out of the op, or the one with the fewest PEs. Exact on trees, for these layouts.
    ///
    /// Errors: [`LayoutError::Fit`] if the tiles of a value do not fit in any of its layouts;
    /// [`LayoutError::Graph`] for symbolic sizes; as [`transform`](crate::transform).
    ///
    /// Cost: linear in the values, times the combinations of four layouts of each operand (at most
    /// 64), times that of a transform, each of which is priced once.
    pub fn plan(
        &self,
        graph: &Graph,
        allowed: &BTreeMap<NodeId, Vec<MeshLayout>>,
    ) -> Result<GraphLayouts> {
        let most = self.constraints.max_memory_per_pe;
        search::Search::new(&self.constraints, most, graph, allowed).run()
    }

    /// Layouts as [`LayoutPlanner::plan`] chooses them, whose values fit in the memory of the PEs
    /// together: the most bytes of a tile that is not given are halved until they do.
    ///
    /// Errors: as [`LayoutPlanner::plan`] and [`plan_memory`].
    pub fn plan_within(
        &self,
        graph: &Graph,
        allowed: &BTreeMap<NodeId, Vec<MeshLayout>>,
        budget: &MemoryBudget,
    ) -> Result<(GraphLayouts, MemoryPlan)> {
        let mut most = self.constraints.max_memory_per_pe;
        let mut plan = self.plan(graph, allowed)?;
        loop {
            let error = match plan_memory(graph, &plan, budget) {
                Ok(memory) => return Ok((plan, memory)),
                Err(error) => error,
            };
            if most == 0 {
                return Err(error);
            }
            most /= 2;
            let search = search::Search::new(&self.constraints, most, graph, allowed);
            plan = search.run().map_err(|_| error)?;
        }
    }

    /// The transforms that a graph needs under given layouts of all its values. A copy of a value in
    /// another layout is made once for all its users.
    ///
    /// Errors: as [`LayoutPlanner::plan`]; [`LayoutError::Graph`] for a value without a layout.
    pub fn insert_transforms(
        &self,
        graph: &Graph,
        layouts: BTreeMap<NodeId, MeshLayout>,
    ) -> Result<GraphLayouts> {
        search::insert(graph, layouts, &prices::Prices::default(), &self.constraints)
    }
}

#[cfg(test)]
mod tests;

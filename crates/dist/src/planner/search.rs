//! The search for layouts: the cheapest way to have each value in each of a few layouts, from the
//! arguments to the outputs. It is exact on trees, by dynamic programming. Where a value has several
//! users, each counts the cost of the value, and the last user's choice is taken.

use super::prices::{Prices, Tensor, tensor};
use super::ways::{Way, ways};
use super::{GraphLayouts, OperandTransform, ResultTransform};
use crate::fabric::FabricCost;
use crate::fit::LayoutConstraints;
use crate::layout::MeshLayout;
use crate::transform::TransformKind;
use crate::{LayoutError, Result};
use girih_ir::{Graph, NodeId};
use std::collections::BTreeMap;

/// The layouts that are kept of a value.
const KEPT: usize = 4;

/// The most combinations of the operands' layouts.
const COMBINATIONS: usize = 64;

/// A layout of a value, and the cheapest way to have the value in it.
struct Choice {
    layout: MeshLayout,
    cost: FabricCost,
    /// The choice of each distinct operand.
    operands: Vec<usize>,
}

pub(super) struct Search<'a> {
    /// For layouts that are given.
    constraints: &'a LayoutConstraints,
    /// For layouts that are found.
    limits: LayoutConstraints,
    graph: &'a Graph,
    allowed: &'a BTreeMap<NodeId, Vec<MeshLayout>>,
    prices: Prices,
    choices: BTreeMap<NodeId, Vec<Choice>>,
}

/// The operands of a node that have a layout, each once.
fn distinct(graph: &Graph, id: NodeId) -> Vec<NodeId> {
    let mut found: Vec<NodeId> = Vec::new();
    for &input in &graph.node(id).inputs {
        if graph.literal(input).is_none() && !found.contains(&input) {
            found.push(input);
        }
    }
    found
}

/// The values that need a layout.
pub(super) fn needed(graph: &Graph) -> impl DoubleEndedIterator<Item = NodeId> + '_ {
    let live = graph.live();
    graph.ids().filter(move |id| live[id.index()] && graph.literal(*id).is_none())
}

impl<'a> Search<'a> {
    /// A search for layouts with tiles of at most `most` bytes, except those that are given.
    pub(super) fn new(
        constraints: &'a LayoutConstraints,
        most: usize,
        graph: &'a Graph,
        allowed: &'a BTreeMap<NodeId, Vec<MeshLayout>>,
    ) -> Search<'a> {
        let limits = LayoutConstraints { max_memory_per_pe: most, ..*constraints };
        let (prices, choices) = (Prices::default(), BTreeMap::new());
        Search { constraints, limits, graph, allowed, prices, choices }
    }

    /// The cheapest layouts.
    pub(super) fn run(mut self) -> Result<GraphLayouts> {
        for id in needed(self.graph) {
            let mut choices = self.choices_of(id)?;
            choices.sort_by_key(|choice| choice.cost);
            if !self.allowed.contains_key(&id) {
                choices.truncate(KEPT);
            }
            self.choices.insert(id, choices);
        }
        let mut taken: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut layouts = BTreeMap::new();
        for id in needed(self.graph).rev() {
            let choice = &self.choices[&id][taken.get(&id).copied().unwrap_or(0)];
            layouts.insert(id, choice.layout.clone());
            for (input, &at) in distinct(self.graph, id).into_iter().zip(&choice.operands) {
                taken.entry(input).or_insert(at);
            }
        }
        insert(self.graph, layouts, &self.prices, &self.limits)
    }

    /// The combinations of the operands' choices.
    fn combinations(&self, operands: &[NodeId]) -> Vec<Vec<usize>> {
        let mut kept = usize::MAX;
        while operands.iter().map(|id| self.choices[id].len().min(kept)).product::<usize>()
            > COMBINATIONS
            && kept > 1
        {
            kept = if kept == usize::MAX { COMBINATIONS } else { kept - 1 };
        }
        let mut found = vec![Vec::new()];
        for id in operands {
            let choices = 0..self.choices[id].len().min(kept);
            let longer = |combination: &Vec<usize>| {
                let combination = combination.clone();
                choices
                    .clone()
                    .map(move |at| [&combination[..], &[at]].concat())
                    .collect::<Vec<_>>()
            };
            found = found.iter().flat_map(longer).collect();
        }
        found
    }

    /// The layouts of the operands, under a combination of choices of the distinct ones.
    fn operands(
        &self,
        id: NodeId,
        distinct: &[NodeId],
        combination: &[usize],
    ) -> Vec<Option<&MeshLayout>> {
        let layout = |input: &NodeId| {
            let at = distinct.iter().position(|operand| operand == input)?;
            Some(&self.choices[input][combination[at]].layout)
        };
        self.graph.node(id).inputs.iter().map(layout).collect()
    }

    fn choices_of(&self, id: NodeId) -> Result<Vec<Choice>> {
        let (shape, item) = tensor(self.graph, id)?;
        let operands = distinct(self.graph, id);
        let combinations = self.combinations(&operands);
        let candidates = match self.allowed.get(&id) {
            Some(allowed) => {
                for layout in allowed {
                    self.constraints.check_memory(layout, &shape, item)?;
                }
                allowed.clone()
            }
            None => self.candidates(id, &operands, &combinations)?,
        };
        if operands.is_empty() {
            let choice = |layout| Choice { layout, cost: FabricCost::default(), operands: vec![] };
            return Ok(candidates.into_iter().map(choice).collect());
        }
        let mut found = Vec::new();
        for layout in candidates {
            let mut best: Option<Choice> = None;
            for combination in &combinations {
                let layouts = self.operands(id, &operands, combination);
                let Some((_, priced)) = self.best_way(id, &layouts, &layout)? else { continue };
                let before = operands.iter().zip(combination);
                let before = before.map(|(id, &at)| self.choices[id][at].cost);
                let cost = before.fold(priced, |all, one| all + one);
                if best.as_ref().is_none_or(|best| cost < best.cost) {
                    let (layout, operands) = (layout.clone(), combination.clone());
                    best = Some(Choice { layout, cost, operands });
                }
            }
            found.extend(best);
        }
        match found.is_empty() {
            true => Err(LayoutError::Fit(format!(
                "no way to compute {id} of {shape:?} fits {} B on each PE; give it or its operands \
                 layouts over more PEs, or split it",
                self.limits.max_memory_per_pe
            ))),
            false => Ok(found),
        }
    }

    fn best_way(
        &self,
        id: NodeId,
        layouts: &[Option<&MeshLayout>],
        wanted: &MeshLayout,
    ) -> Result<Option<(Way, FabricCost)>> {
        best_way(self.graph, id, layouts, wanted, &self.prices, &self.limits, &|_, _| false)
    }

    /// The layouts in which a value comes out of its op, and the one with the fewest PEs.
    fn candidates(
        &self,
        id: NodeId,
        operands: &[NodeId],
        combinations: &[Vec<usize>],
    ) -> Result<Vec<MeshLayout>> {
        let (shape, item) = tensor(self.graph, id)?;
        let mut found: Vec<MeshLayout> = Vec::new();
        for combination in combinations.iter().filter(|_| !operands.is_empty()) {
            let layouts = self.operands(id, operands, combination);
            for way in ways(self.graph, id, &layouts, None, &self.prices)? {
                for layout in way.landings(shape.len())? {
                    let fits = self.limits.check_memory(&layout, &shape, item).is_ok();
                    if fits && !found.contains(&layout) {
                        found.push(layout);
                    }
                }
            }
        }
        let auto = self.limits.auto(&shape, item);
        match auto {
            Ok(layout) if !found.contains(&layout) => found.push(layout),
            Err(error) if found.is_empty() => return Err(error),
            _ => {}
        }
        Ok(found)
    }
}

/// The cheapest way to compute an op from operands in given layouts, with the result in a wanted one.
/// A copy of an operand that is there already costs nothing.
fn best_way(
    graph: &Graph,
    id: NodeId,
    layouts: &[Option<&MeshLayout>],
    wanted: &MeshLayout,
    prices: &Prices,
    limits: &LayoutConstraints,
    is_there: &dyn Fn(NodeId, &MeshLayout) -> bool,
) -> Result<Option<(Way, FabricCost)>> {
    let of_result = tensor(graph, id)?;
    let simplest = wanted.simplest(of_result.0.len())?;
    let inputs = &graph.node(id).inputs;
    let fits = |layout: &MeshLayout, (shape, item): &Tensor| {
        limits.check_memory(layout, shape, *item).is_ok()
    };
    // Of equal ways the one with the cheaper result: a copy of an operand may serve other ops.
    let mut best: Option<(Way, [FabricCost; 2])> = None;
    for way in ways(graph, id, layouts, Some(wanted), prices)? {
        // What does not fit is not priced: a copy on all PEs has many transfers.
        let computed = way.computed(of_result.0.len())?;
        if computed.is_some_and(|layout| layout != simplest && !fits(&layout, &of_result)) {
            continue;
        }
        let of_inputs = inputs.iter().map(|&input| tensor(graph, input));
        let of_inputs = of_inputs.collect::<Result<Vec<_>>>()?;
        let operands = || layouts.iter().zip(&way.operands).zip(&of_inputs);
        let keeps = |own: &MeshLayout, to: &MeshLayout, (shape, _): &Tensor| {
            own.simplest(shape.len()).as_ref() == Ok(to)
        };
        let fit = |((own, to), of): ((&Option<&MeshLayout>, &MeshLayout), _)| {
            own.is_none_or(|own| keeps(own, to, of) || fits(to, of))
        };
        if !operands().all(fit) {
            continue;
        }
        let Some(of_way) = prices.result(&way, wanted, &of_result)? else { continue };
        let mut cost = of_way;
        let mut copies: Vec<(NodeId, &MeshLayout)> = Vec::new();
        for (&input, ((own, to), of)) in inputs.iter().zip(operands()) {
            let Some(own) = own else { continue };
            if !copies.contains(&(input, to)) && !is_there(input, to) {
                copies.push((input, to));
                cost = cost + prices.operand(own, to, of)?.1;
            }
        }
        let key = [cost, of_way];
        if best.as_ref().is_none_or(|(_, least)| key < *least) {
            best = Some((way, key));
        }
    }
    Ok(best.map(|(way, [cost, _])| (way, cost)))
}

/// The transforms that a graph needs under layouts of its values.
pub(super) fn insert(
    graph: &Graph,
    layouts: BTreeMap<NodeId, MeshLayout>,
    prices: &Prices,
    limits: &LayoutConstraints,
) -> Result<GraphLayouts> {
    let mut plan = GraphLayouts { layouts, ..GraphLayouts::default() };
    for id in needed(graph) {
        let inputs = &graph.node(id).inputs;
        let wanted = plan.layout(id)?;
        if inputs.is_empty() {
            continue;
        }
        let own: Vec<Option<&MeshLayout>> = inputs.iter().map(|id| plan.layouts.get(id)).collect();
        let is_there = |value: NodeId, to: &MeshLayout| {
            plan.operands.iter().any(|t| t.value == value && t.to == *to)
        };
        let best = best_way(graph, id, &own, wanted, prices, limits, &is_there)?;
        let Some((way, _)) = best else {
            return Err(LayoutError::Fit(format!(
                "{id} cannot be computed as {wanted} within {} B on each PE; use a layout over more \
                 PEs",
                limits.max_memory_per_pe
            )));
        };
        let of_result = tensor(graph, id)?;
        let price = prices.result(&way, wanted, &of_result)?.unwrap_or_default();
        let computed = MeshLayout::of_spec(way.mesh.0, way.mesh.1, &way.spec, of_result.0.len())?;
        let transformed = match computed {
            Some(computed) => {
                prices.operand(&computed, wanted, &of_result)?.0 != TransformKind::Identity
            }
            None => true,
        };
        let (mesh, spec) = (way.mesh, way.spec.clone());
        if transformed {
            plan.results.push(ResultTransform { value: id, mesh, spec, cost: price });
        }
        take_operands(graph, id, &way, &mut plan, prices)?;
    }
    Ok(plan)
}

/// Adds the operands of an op that it takes in other layouts than theirs.
fn take_operands(
    graph: &Graph,
    id: NodeId,
    way: &Way,
    plan: &mut GraphLayouts,
    prices: &Prices,
) -> Result<()> {
    for (at, (&value, to)) in graph.node(id).inputs.iter().zip(&way.operands).enumerate() {
        let Some(own) = plan.layouts.get(&value) else { continue };
        let (kind, cost) = prices.operand(own, to, &tensor(graph, value)?)?;
        if kind == TransformKind::Identity {
            continue;
        }
        match plan.operands.iter_mut().find(|t| t.value == value && t.to == *to) {
            Some(copy) => copy.users.push((id, at)),
            None => {
                let (to, users) = (to.clone(), vec![(id, at)]);
                plan.operands.push(OperandTransform { value, to, users, kind, cost });
            }
        }
    }
    Ok(())
}

//! The linear maps of `linearize` and `vjp`: the part of a derivative that depends on tangents or
//! cotangents, with the residuals of the function that it needs.

use super::Splice;
use crate::{Error, Result, Tensor};
use girih_ir::{Graph, NodeId, TensorSpec};
use rustc_hash::FxHashMap;

/// A linear map of tensors, which [`Linear::call`] records. It holds the residuals of the function
/// that it needs, so that the function is recorded only once.
pub struct Linear {
    name: &'static str,
    graph: Graph,
    splice: Splice,
    /// Values that do not depend on the map's arguments, and that the map uses.
    known: FxHashMap<NodeId, Tensor>,
    /// Nodes that depend on the map's arguments, in order.
    steps: Vec<NodeId>,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
}

impl Splice {
    /// Records the first `count` outputs of a graph, and all nodes that the other outputs need and
    /// that do not depend on `inputs`. The remaining nodes form the map.
    pub(super) fn linear(
        self,
        name: &'static str,
        graph: Graph,
        inputs: Vec<NodeId>,
        count: usize,
    ) -> (Vec<Tensor>, Linear) {
        let live = graph.live();
        let mut varies = vec![false; graph.len()];
        inputs.iter().for_each(|id| varies[id.index()] = true);
        let (mut recorded, mut known) = (FxHashMap::default(), FxHashMap::default());
        let mut steps = Vec::new();
        for (id, node) in graph.nodes() {
            varies[id.index()] |= node.inputs.iter().any(|i| varies[i.index()]);
            if !live[id.index()] || inputs.contains(&id) {
                continue;
            }
            if !varies[id.index()] {
                let tensor = self.tensor(&graph, id, |i| &recorded[&i]);
                recorded.insert(id, tensor);
                continue;
            }
            steps.push(id);
            for i in node.inputs.iter().filter(|i| !varies[i.index()]) {
                known.insert(*i, recorded[i].clone());
            }
        }
        let (values, outputs) = graph.outputs().split_at(count);
        let values = values.iter().map(|o| recorded[o].clone()).collect();
        let outputs = outputs.to_vec();
        for o in outputs.iter().filter(|o| !varies[o.index()]) {
            known.insert(*o, recorded[o].clone());
        }
        (values, Linear { name, graph, splice: self, known, steps, inputs, outputs })
    }
}

impl Linear {
    /// The residuals: values of the function that the map needs.
    pub fn residuals(&self) -> impl Iterator<Item = &Tensor> {
        self.known.values()
    }

    /// The specs of the map's arguments.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &TensorSpec> {
        self.inputs.iter().map(|&id| self.graph.spec(id))
    }

    /// Applies the map to these tensors, whose specs must be [`Linear::inputs`]. The results are
    /// lazy.
    ///
    /// Errors: [`Error::InvalidArgument`] for a wrong number of tensors, or other specs.
    pub fn call(&self, tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
        let part = if self.name == "vjp" { "cotangent" } else { "tangent" };
        check(self.name, part, self.inputs().cloned(), tensors)?;
        tensors.iter().try_for_each(|t| t.node().check())?;
        let given = self.inputs.iter().copied().zip(tensors.iter().map(|&t| t.clone()));
        let mut all: FxHashMap<NodeId, Tensor> = given.collect();
        let find = |all: &FxHashMap<NodeId, Tensor>, id: NodeId| {
            all.get(&id).or_else(|| self.known.get(&id)).expect("all operands are known").clone()
        };
        for &id in &self.steps {
            let tensor = self.splice.tensor(&self.graph, id, |i| {
                all.get(&i).or_else(|| self.known.get(&i)).expect("all operands are known")
            });
            all.insert(id, tensor);
        }
        Ok(self.outputs.iter().map(|&id| find(&all, id)).collect())
    }
}

/// Fails unless the tensors have these specs.
pub(super) fn check(
    op: &str,
    part: &str,
    specs: impl ExactSizeIterator<Item = TensorSpec>,
    tensors: &[&Tensor],
) -> Result<()> {
    let (expected, found) = (specs.len(), tensors.len());
    if expected != found {
        return Err(Error::InvalidArgument(format!("{op}: takes {expected} {part}s, got {found}")));
    }
    for (i, (spec, tensor)) in specs.zip(tensors).enumerate() {
        if !spec.equals(&tensor.spec()) {
            return Err(Error::InvalidArgument(format!(
                "{op}: {part} {i} is {}; expected {spec}, as the value it belongs to",
                tensor.spec()
            )));
        }
    }
    Ok(())
}

//! The stages of a partition under construction: for each stage and processor a graph, and the values
//! that pass between stages.

use super::exchange::Exchange;
use girih_ir::{Graph, GraphBuilder, NodeId, Op, Result, TensorSpec};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

/// A value of a partitioned program, of which each processor has a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// An argument of a stage's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The processor's part of an argument of the graph, by its position among the arguments.
    Argument(usize),
    /// The processor's part of a result or of an exchanged value of an earlier stage.
    Value(ValueId),
}

/// A part of the program between exchanges.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The graph of each processor, in the mesh's order. Equal graphs are shared.
    pub programs: Vec<Arc<Graph>>,
    /// The arguments of the programs.
    pub arguments: Vec<Source>,
    /// The outputs of the programs.
    pub results: Vec<ValueId>,
    /// The exchanges of values after the programs.
    pub exchanges: Vec<Exchange>,
}

/// The source of the parts of a value.
enum Origin {
    /// An op in a stage: the node of each processor.
    Node(usize, Vec<NodeId>),
    /// An exchange at the end of the stage before this one.
    Arrival(usize),
    /// A leaf that any stage may have.
    Leaf(Op),
    /// An argument of the graph, which any stage may have.
    Argument(usize, Op),
}

struct Value {
    origin: Origin,
    /// Shape and dtype of each processor's part.
    specs: Vec<TensorSpec>,
}

#[derive(Default)]
struct Draft {
    builders: Vec<GraphBuilder>,
    arguments: Vec<Source>,
    results: Vec<ValueId>,
    /// The leaves for values of other stages, by processor.
    imported: HashMap<ValueId, Vec<NodeId>>,
    exchanges: Vec<Exchange>,
}

impl Draft {
    /// Makes a value of the stage one of its results.
    fn export(&mut self, value: ValueId) {
        if !self.results.contains(&value) {
            self.results.push(value);
        }
    }
}

/// Stages under construction.
pub(super) struct Stages {
    devices: usize,
    stages: Vec<Draft>,
    values: Vec<Value>,
}

impl Stages {
    pub fn new(devices: usize) -> Stages {
        Stages { devices, stages: Vec::new(), values: Vec::new() }
    }

    fn add(&mut self, origin: Origin, specs: Vec<TensorSpec>) -> ValueId {
        debug_assert_eq!(specs.len(), self.devices);
        self.values.push(Value { origin, specs });
        ValueId(self.values.len() as u32 - 1)
    }

    /// Shape and dtype of each processor's part.
    pub fn specs(&self, value: ValueId) -> &[TensorSpec] {
        &self.values[value.index()].specs
    }

    pub fn leaf(&mut self, op: Op, specs: Vec<TensorSpec>) -> ValueId {
        self.add(Origin::Leaf(op), specs)
    }

    pub fn argument(&mut self, index: usize, op: Op, specs: Vec<TensorSpec>) -> ValueId {
        self.add(Origin::Argument(index, op), specs)
    }

    /// The value with parts of these shapes, if all elements of the value are equal.
    pub fn refilled(&mut self, value: ValueId, specs: Vec<TensorSpec>) -> Option<ValueId> {
        use girih_ir::OpCode::Constant;
        match &self.values[value.index()].origin {
            Origin::Leaf(op) if op.code == Constant => Some(self.leaf(op.clone(), specs)),
            Origin::Argument(index, op) if op.code == Constant => {
                Some(self.argument(*index, op.clone(), specs))
            }
            _ => None,
        }
    }

    /// The first stage that can have the value.
    fn stage_of(&self, value: ValueId) -> usize {
        match self.values[value.index()].origin {
            Origin::Node(stage, _) | Origin::Arrival(stage) => stage,
            Origin::Leaf(_) | Origin::Argument(..) => 0,
        }
    }

    fn draft(&mut self, stage: usize) -> &mut Draft {
        while self.stages.len() <= stage {
            let builders = (0..self.devices).map(|_| GraphBuilder::default()).collect();
            self.stages.push(Draft { builders, ..Draft::default() });
        }
        &mut self.stages[stage]
    }

    /// The nodes of a value in a stage, by processor.
    fn nodes(&mut self, value: ValueId, stage: usize) -> Vec<NodeId> {
        if let Origin::Node(at, nodes) = &self.values[value.index()].origin {
            if *at == stage {
                return nodes.clone();
            }
            let at = *at;
            self.draft(at).export(value);
        }
        self.draft(stage);
        let (draft, Value { origin, specs }) =
            (&mut self.stages[stage], &self.values[value.index()]);
        if let Some(nodes) = draft.imported.get(&value) {
            return nodes.clone();
        }
        let op = match origin {
            Origin::Leaf(op) => op.clone(),
            Origin::Argument(index, op) => {
                draft.arguments.push(Source::Argument(*index));
                op.clone()
            }
            Origin::Node(..) | Origin::Arrival(_) => {
                draft.arguments.push(Source::Value(value));
                girih_ir::OpCode::Input.into()
            }
        };
        let leaf = |(b, spec): (&mut GraphBuilder, &TensorSpec)| b.leaf(op.clone(), spec.clone());
        let nodes: Vec<NodeId> = draft.builders.iter_mut().zip(specs).map(leaf).collect();
        draft.imported.insert(value, nodes.clone());
        nodes
    }

    /// Adds ops to the first stage that has all operands: `emit` records those of one processor.
    pub fn emit(
        &mut self,
        inputs: &[ValueId],
        mut emit: impl FnMut(&mut GraphBuilder, usize, &[NodeId]) -> Result<NodeId>,
    ) -> Result<ValueId> {
        let stage = inputs.iter().map(|&value| self.stage_of(value)).max().unwrap_or(0);
        let operands: Vec<Vec<NodeId>> =
            inputs.iter().map(|&value| self.nodes(value, stage)).collect();
        let (mut nodes, mut specs) = (Vec::new(), Vec::new());
        for (at, b) in self.draft(stage).builders.iter_mut().enumerate() {
            let inputs: SmallVec<[NodeId; 4]> = operands.iter().map(|nodes| nodes[at]).collect();
            let node = emit(b, at, &inputs)?;
            specs.push(b.spec(node).clone());
            nodes.push(node);
        }
        Ok(self.add(Origin::Node(stage, nodes), specs))
    }

    /// Adds an exchange of a value; the result has parts of these shapes.
    pub fn exchange(
        &mut self,
        from: ValueId,
        specs: Vec<TensorSpec>,
        exchange: impl FnOnce(ValueId, ValueId) -> Exchange,
    ) -> ValueId {
        let from = match self.values[from.index()].origin {
            // Leaves and arguments become results of the first stage.
            Origin::Leaf(_) | Origin::Argument(..) => {
                let nodes = self.nodes(from, 0);
                let specs = self.specs(from).to_vec();
                self.add(Origin::Node(0, nodes), specs)
            }
            _ => from,
        };
        let stage = self.stage_of(from);
        let to = self.add(Origin::Arrival(stage + 1), specs);
        let is_node = matches!(self.values[from.index()].origin, Origin::Node(..));
        let draft = self.draft(stage);
        if is_node {
            draft.export(from);
        }
        draft.exchanges.push(exchange(from, to));
        to
    }

    /// The stages. The values are results of the program: each must be known to its reader.
    pub fn finish(mut self, outputs: impl Iterator<Item = ValueId>) -> Vec<Stage> {
        for value in outputs {
            let stage = self.stage_of(value);
            if let Origin::Arrival(_) = self.values[value.index()].origin {
                continue;
            }
            let nodes = self.nodes(value, stage);
            if !matches!(self.values[value.index()].origin, Origin::Node(..)) {
                self.values[value.index()].origin = Origin::Node(stage, nodes);
            }
            self.draft(stage).export(value);
        }
        let values = &self.values;
        let finish = |draft: Draft| {
            let mut programs: Vec<Arc<Graph>> = Vec::with_capacity(draft.builders.len());
            for (at, b) in draft.builders.into_iter().enumerate() {
                let node = |value: &ValueId| match &values[value.index()].origin {
                    Origin::Node(_, nodes) => nodes[at],
                    _ => unreachable!("results are nodes"),
                };
                let graph = b.finish(draft.results.iter().map(node));
                let equal = programs.iter().find(|known| ***known == graph).cloned();
                programs.push(equal.unwrap_or_else(|| Arc::new(graph)));
            }
            let Draft { arguments, results, exchanges, .. } = draft;
            Stage { programs, arguments, results, exchanges }
        };
        self.stages.into_iter().map(finish).collect()
    }
}

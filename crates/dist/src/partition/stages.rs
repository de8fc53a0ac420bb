//! The stages of a partition under construction: for each stage a graph for each class of processors,
//! and the values that pass between stages.
//!
//! The processors of a class have the same graph so far. A class is split where an op has another
//! form on some of its processors, so that planning for a thousand equal processors costs as much as
//! for one.

use super::each::{Each, Forms};
use super::exchange::Exchange;
use girih_ir::{Graph, GraphBuilder, NodeId, Op, Result, TensorSpec};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
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

/// The node of each class. A class that was split off since has the node of the class it was a part
/// of.
type Nodes = SmallVec<[NodeId; 1]>;

/// The source of the parts of a value.
enum Origin {
    /// An op in a stage.
    Node(usize, Nodes),
    /// An exchange at the end of the stage before this one.
    Arrival(usize),
    /// A leaf that any stage may have.
    Leaf(Op),
    /// An argument of the graph, which any stage may have.
    Argument(usize, Op),
}

/// Shape and dtype of each processor's part.
pub(super) type Specs = Arc<Each<TensorSpec>>;

struct Value {
    origin: Origin,
    specs: Specs,
}

/// Processors with the same graph.
struct Class {
    builder: GraphBuilder,
    /// The class that it was split off from.
    parent: usize,
    /// One of the processors.
    member: usize,
}

struct Draft {
    classes: Vec<Class>,
    class_of: Vec<u32>,
    arguments: Vec<Source>,
    results: Vec<ValueId>,
    /// The leaves for values of other stages.
    imported: HashMap<ValueId, Nodes>,
    exchanges: Vec<Exchange>,
}

impl Draft {
    fn new(devices: usize) -> Draft {
        let all = Class { builder: GraphBuilder::default(), parent: 0, member: 0 };
        Draft {
            classes: vec![all],
            class_of: vec![0; devices],
            arguments: Vec::new(),
            results: Vec::new(),
            imported: HashMap::new(),
            exchanges: Vec::new(),
        }
    }

    /// Makes a value of the stage one of its results.
    fn export(&mut self, value: ValueId) {
        if !self.results.contains(&value) {
            self.results.push(value);
        }
    }

    /// Splits classes whose processors have different forms.
    fn split(&mut self, forms: &Forms) {
        let Some(forms) = forms else { return };
        let mut known: HashMap<(u32, u32), u32> = HashMap::new();
        for (position, &form) in forms.iter().enumerate() {
            let class = self.class_of[position];
            if forms[self.classes[class as usize].member] == form {
                continue;
            }
            self.class_of[position] = *known.entry((class, form)).or_insert_with(|| {
                let builder = self.classes[class as usize].builder.clone();
                self.classes.push(Class { builder, parent: class as usize, member: position });
                self.classes.len() as u32 - 1
            });
        }
    }

    /// The node of a class.
    fn node(&self, nodes: &Nodes, mut class: usize) -> NodeId {
        while class >= nodes.len() {
            class = self.classes[class].parent;
        }
        nodes[class]
    }

    /// Adds a node to each class, whose processors have one form.
    fn add(
        &mut self,
        forms: &Forms,
        mut node: impl FnMut(&Draft, &mut GraphBuilder, usize, usize) -> Result<NodeId>,
    ) -> Result<Nodes> {
        self.split(forms);
        let mut nodes = Nodes::with_capacity(self.classes.len());
        for class in 0..self.classes.len() {
            let member = self.classes[class].member;
            let form = forms.as_ref().map_or(0, |forms| forms[member] as usize);
            let mut builder = std::mem::take(&mut self.classes[class].builder);
            let added = node(self, &mut builder, class, form);
            self.classes[class].builder = builder;
            nodes.push(added?);
        }
        Ok(nodes)
    }

    fn finish(self, values: &[Value]) -> Stage {
        let outputs = |class: usize| -> Vec<NodeId> {
            let node = |value: &ValueId| match &values[value.index()].origin {
                Origin::Node(_, nodes) => self.node(nodes, class),
                _ => unreachable!("results are nodes"),
            };
            self.results.iter().map(node).collect()
        };
        let outputs: Vec<Vec<NodeId>> = (0..self.classes.len()).map(outputs).collect();
        let mut known: HashSet<Arc<Graph>> = HashSet::new();
        let shared = |(class, outputs): (Class, Vec<NodeId>)| {
            let graph = class.builder.finish(outputs);
            let equal = known.get(&graph).cloned();
            equal.unwrap_or_else(|| {
                let graph = Arc::new(graph);
                known.insert(graph.clone());
                graph
            })
        };
        let programs: Vec<Arc<Graph>> = self.classes.into_iter().zip(outputs).map(shared).collect();
        let programs = self.class_of.iter().map(|&class| programs[class as usize].clone());
        Stage {
            programs: programs.collect(),
            arguments: self.arguments,
            results: self.results,
            exchanges: self.exchanges,
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

    fn add(&mut self, origin: Origin, specs: Specs) -> ValueId {
        self.values.push(Value { origin, specs });
        ValueId(self.values.len() as u32 - 1)
    }

    pub fn leaf(&mut self, op: Op, specs: Specs) -> ValueId {
        self.add(Origin::Leaf(op), specs)
    }

    pub fn argument(&mut self, index: usize, op: Op, specs: Specs) -> ValueId {
        self.add(Origin::Argument(index, op), specs)
    }

    /// The value with parts of these shapes, if all elements of the value are equal.
    pub fn refilled(&mut self, value: ValueId, specs: &Specs) -> Option<ValueId> {
        use girih_ir::OpCode::Constant;
        match &self.values[value.index()].origin {
            Origin::Leaf(op) if op.code == Constant => Some(self.leaf(op.clone(), specs.clone())),
            Origin::Argument(index, op) if op.code == Constant => {
                Some(self.argument(*index, op.clone(), specs.clone()))
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
            self.stages.push(Draft::new(self.devices));
        }
        &mut self.stages[stage]
    }

    /// The nodes of a value in a stage.
    fn nodes(&mut self, value: ValueId, stage: usize) -> Nodes {
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
        let nodes = draft.add(specs.forms(), |_, b, _, form| {
            Ok(b.leaf(op.clone(), specs.distinct()[form].clone()))
        });
        let nodes = nodes.expect("leaves are recorded without checks");
        draft.imported.insert(value, nodes.clone());
        nodes
    }

    /// Adds an op to the first stage that has all operands: `emit` records the given form. The
    /// result has parts of these shapes.
    pub fn emit(
        &mut self,
        inputs: &[ValueId],
        specs: Specs,
        forms: &Forms,
        mut emit: impl FnMut(&mut GraphBuilder, usize, &[NodeId]) -> Result<NodeId>,
    ) -> Result<ValueId> {
        let stage = inputs.iter().map(|&value| self.stage_of(value)).max().unwrap_or(0);
        let operands: SmallVec<[Nodes; 4]> =
            inputs.iter().map(|&value| self.nodes(value, stage)).collect();
        let nodes = self.draft(stage).add(forms, |draft, b, class, form| {
            let inputs: SmallVec<[NodeId; 4]> =
                operands.iter().map(|nodes| draft.node(nodes, class)).collect();
            emit(b, form, &inputs)
        })?;
        Ok(self.add(Origin::Node(stage, nodes), specs))
    }

    /// Adds an exchange of a value; the result has parts of these shapes.
    pub fn exchange(
        &mut self,
        from: ValueId,
        specs: Specs,
        exchange: impl FnOnce(ValueId, ValueId) -> Exchange,
    ) -> ValueId {
        let from = match self.values[from.index()].origin {
            // Leaves and arguments become results of the first stage.
            Origin::Leaf(_) | Origin::Argument(..) => {
                let nodes = self.nodes(from, 0);
                let specs = self.values[from.index()].specs.clone();
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
        self.stages.into_iter().map(|draft| draft.finish(values)).collect()
    }
}

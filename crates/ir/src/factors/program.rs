//! The factors of a whole program: how the axes of its arguments and outputs correspond, and which
//! results can be computed from a part of an axis. Tiled launches partition programs by them.
//!
//! The factors of each op are joined along the values between ops. A factor is whole in the program
//! if one op needs it whole. It is also whole if it is reduced before the end, since partial
//! results are combined only for outputs of the program.

use super::{AxisFactors, Factors, Role, write_axes};
use crate::ops::Attrs;
use crate::{Class, Dim, Graph, NodeId, OpCode, Shape, TensorSpec};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The results that can be computed from a part of a program factor's range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramRole {
    /// A part of the arguments gives the same part of each output with the factor.
    Pointwise,
    /// A part of the arguments gives partial outputs; [`ProgramFactors::combines`] names the ops
    /// that combine them.
    Reduced,
    /// The outputs need the whole axis, for this reason.
    Whole(String),
}

/// One factor of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFactor {
    /// The results that can be computed from a part of the factor's range.
    pub role: ProgramRole,
    /// Size of the factor in the program.
    pub size: Dim,
}

/// How the axes of a program's arguments and outputs correspond, by factors.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramFactors {
    factors: Vec<ProgramFactor>,
    arguments: Vec<Vec<AxisFactors>>,
    outputs: Vec<Vec<AxisFactors>>,
    /// For each output, the op that combines its partial results along each factor.
    combines: Vec<BTreeMap<usize, OpCode>>,
    /// The axes of every node. Factors that no argument and no output has are numbered last.
    nodes: Vec<Vec<AxisFactors>>,
}

impl ProgramFactors {
    /// The factors of a graph. The arguments are [`Graph::arguments`].
    pub fn of(graph: &Graph) -> ProgramFactors {
        let mut joined = Joined::default();
        for id in graph.ids() {
            joined.add(graph, id);
        }
        joined.finish(graph)
    }

    /// The factors of arguments and outputs by number, starting with the first argument's factors.
    pub fn factors(&self) -> &[ProgramFactor] {
        &self.factors
    }

    /// The axes of each argument; a run-time scalar has the axes of its node.
    pub fn arguments(&self) -> &[Vec<AxisFactors>] {
        &self.arguments
    }

    /// The axes of each output.
    pub fn outputs(&self) -> &[Vec<AxisFactors>] {
        &self.outputs
    }

    /// The op that combines an output's partial results along a factor. None if a part of the
    /// factor gives no partial result of the output.
    pub fn combines(&self, output: usize, factor: usize) -> Option<OpCode> {
        self.combines[output].get(&factor).copied()
    }

    /// The neutral value with which an argument may be padded along a reduced factor without
    /// changing the outputs. None if there is no such value, because the reduction's operand is not
    /// an argument.
    pub fn padding(&self, graph: &Graph, argument: usize, factor: usize) -> Option<f64> {
        let id = graph.arguments().nth(argument)?;
        let mut found = None;
        for (output, &node) in graph.outputs().iter().enumerate() {
            let Some(code) = self.combines(output, factor) else { continue };
            let reducing = graph.node(node);
            let has =
                |input: &&NodeId| self.nodes[input.index()].iter().flatten().any(|f| *f == factor);
            let mut reduced = reducing.inputs.iter().filter(has);
            if !reduced.all(|input| graph.node(*input).op.takes_argument()) {
                return None;
            }
            let dtype = reducing.spec.dtype;
            let value = match (reducing.op.class(), code) {
                (Class::Contraction, _) => 0.0,
                (_, OpCode::Maximum | OpCode::Minimum | OpCode::Logaddexp) if !dtype.is_float() => {
                    return None;
                }
                _ => code.neutral(dtype).as_f64(),
            };
            if reducing.inputs.contains(&id) && *found.get_or_insert(value) != value {
                return None;
            }
        }
        found
    }

    /// The same program with other factor sizes, by number. None if changing the shapes is not
    /// enough.
    pub fn resized(&self, graph: &Graph, sizes: &[usize]) -> Option<Graph> {
        let shape_of = |id: NodeId| -> Shape {
            let (axes, old) = (&self.nodes[id.index()], &graph.spec(id).shape);
            // Axes that no argument and no output has keep their size.
            let inner = |axis: &AxisFactors| axis.iter().any(|&f| f >= sizes.len());
            let dim = |(axis, old): (&AxisFactors, Dim)| match inner(axis) {
                true => old,
                false => axis.iter().map(|&f| Dim::from(sizes[f])).product(),
            };
            Shape::of_dims(axes.iter().zip(old.dims()).map(dim))
        };
        let mut new = Graph::with_capacity(graph.len());
        for (id, node) in graph.nodes() {
            let spec = TensorSpec::new(shape_of(id), node.spec.dtype);
            if node.op.class() == Class::Leaf {
                new.leaf(node.op.clone(), spec);
                continue;
            }
            let mut op = node.op.clone();
            if let Attrs::Shape(_) = op.attrs {
                op.attrs = Attrs::Shape(Arc::new(spec.shape.clone()));
            }
            let made = new.push(op, &node.inputs).ok()?;
            (*new.spec(made) == spec).then_some(())?;
        }
        new.set_outputs(graph.outputs().iter().copied());
        Some(new)
    }
}

/// Factors of nodes while they are joined, as classes of a union-find.
#[derive(Default)]
struct Joined {
    parents: Vec<usize>,
    classes: Vec<JoinedClass>,
    nodes: Vec<Vec<AxisFactors>>,
}

#[derive(Clone)]
struct JoinedClass {
    size: Dim,
    /// The reason why the class is whole, if it is whole.
    whole: Option<String>,
    /// Nodes that reduce the class.
    reduced: Vec<(NodeId, OpCode)>,
}

impl Joined {
    fn class(&mut self, size: Dim, whole: Option<&str>) -> usize {
        self.parents.push(self.parents.len());
        let whole = whole.map(String::from);
        self.classes.push(JoinedClass { size, whole, reduced: Vec::new() });
        self.parents.len() - 1
    }

    fn root(&self, mut class: usize) -> usize {
        while self.parents[class] != class {
            class = self.parents[class];
        }
        class
    }

    fn make_whole(&mut self, class: usize, why: &str) {
        let root = self.root(class);
        self.classes[root].whole.get_or_insert_with(|| why.into());
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        if a == b {
            return;
        }
        let gone = self.classes[b].clone();
        self.parents[b] = a;
        self.classes[a].reduced.extend(gone.reduced);
        if let Some(why) = gone.whole {
            self.make_whole(a, &why);
        }
    }

    /// Joins two factorisations of one axis; if their sizes differ, all their factors are whole.
    fn join_axes(&mut self, a: &[usize], b: &[usize]) {
        let sizes = |of: &[usize]| -> Vec<Dim> {
            of.iter().map(|&class| self.classes[self.root(class)].size).collect()
        };
        if sizes(a) == sizes(b) {
            a.iter().zip(b).for_each(|(&a, &b)| self.join(a, b));
        } else {
            let why = "an axis is divided in two ways";
            a.iter().chain(b).for_each(|&class| self.make_whole(class, why));
        }
    }

    fn fresh_axes(&mut self, shape: &Shape, whole: Option<&str>) -> Vec<AxisFactors> {
        shape.dims().map(|size| AxisFactors::from_slice(&[self.class(size, whole)])).collect()
    }

    fn add(&mut self, graph: &Graph, id: NodeId) {
        let node = graph.node(id);
        let given = node.op.takes_argument() && !node.op.is_random();
        let specs: Vec<&TensorSpec> = node.inputs.iter().map(|&i| graph.spec(i)).collect();
        let factors = match given {
            true => None,
            false => Some(node.op.factors(&specs, &node.spec)),
        };
        let axes = match factors {
            None => self.fresh_axes(&node.spec.shape, None),
            Some(Ok(factors)) => self.joined(graph, id, &factors),
            Some(Err(why)) => {
                let why = format!("{}: {why}", node.op.def().name);
                for input in &node.inputs {
                    let classes: Vec<usize> =
                        self.nodes[input.index()].iter().flatten().copied().collect();
                    classes.into_iter().for_each(|class| self.make_whole(class, &why));
                }
                self.fresh_axes(&node.spec.shape, Some(&why))
            }
        };
        self.nodes.push(axes);
    }

    /// Joins the factors of a call with those of its operands, and returns the result's axes.
    fn joined(&mut self, graph: &Graph, id: NodeId, factors: &Factors) -> Vec<AxisFactors> {
        let node = graph.node(id);
        let name = node.op.def().name;
        let inputs: Vec<&Shape> = node.inputs.iter().map(|&i| &graph.spec(i).shape).collect();
        // A size that the shapes do not determine is 0, which equals no class's size.
        let sizes = factors.sizes(&inputs, &node.spec.shape);
        let sizes = sizes.unwrap_or_else(|_| vec![Dim::from(0); factors.factors().len()]);
        // For each factor of the op, the classes that it maps to.
        let mut map: Vec<Option<AxisFactors>> = vec![None; factors.factors().len()];
        for (input, axes) in node.inputs.iter().zip(factors.operands()) {
            let own = self.nodes[input.index()].clone();
            for (mine, of_op) in own.iter().zip(axes) {
                self.join_axis(mine, of_op, (&mut map, &sizes), name);
            }
        }
        for (f, factor) in factors.factors().iter().enumerate() {
            let classes = match map[f].clone() {
                Some(classes) => classes,
                None => AxisFactors::from_slice(&[self.class(sizes[f], None)]),
            };
            for &class in &classes {
                match factor.role {
                    Role::Pointwise => {}
                    Role::Reduced(code) => {
                        let root = self.root(class);
                        self.classes[root].reduced.push((id, code));
                    }
                    Role::Whole => self.make_whole(class, &format!("{name} needs it whole")),
                }
            }
            map[f] = Some(classes);
        }
        let mut result = vec![AxisFactors::new(); factors.result().len()];
        for (classes, axis) in result.iter_mut().zip(factors.result()) {
            axis.iter().for_each(|&f| classes.extend(map[f].iter().flatten().copied()));
        }
        result
    }

    /// Joins one axis of a value with the op's factors of this axis.
    fn join_axis(
        &mut self,
        mine: &[usize],
        of_op: &[usize],
        (map, sizes): (&mut [Option<AxisFactors>], &[Dim]),
        name: &str,
    ) {
        match of_op {
            [] => {
                let why = format!("{name} stretches it");
                mine.iter().for_each(|&class| self.make_whole(class, &why));
                return;
            }
            &[f] => {
                match map[f].clone() {
                    Some(known) => self.join_axes(&known, mine),
                    None => map[f] = Some(mine.into()),
                }
                return;
            }
            _ => {}
        }
        let same = mine.len() == of_op.len()
            && mine.iter().zip(of_op).all(|(&c, &f)| self.classes[self.root(c)].size == sizes[f]);
        let why = format!("{name} divides it");
        if !same {
            mine.iter().for_each(|&class| self.make_whole(class, &why));
        }
        for (at, &f) in of_op.iter().enumerate() {
            let own = match same {
                true => mine[at],
                false => self.class(sizes[f], Some(&why)),
            };
            match map[f].clone() {
                Some(known) => self.join_axes(&known, &[own]),
                None => map[f] = Some(AxisFactors::from_slice(&[own])),
            }
        }
    }

    /// Makes factors whole that one tensor has twice, or that are reduced before the end.
    fn settle(&mut self, graph: &Graph) {
        for axes in self.nodes.clone() {
            let mut roots: Vec<usize> = axes.iter().flatten().map(|&c| self.root(c)).collect();
            roots.sort_unstable();
            for pair in roots.windows(2).filter(|pair| pair[0] == pair[1]) {
                self.make_whole(pair[0], "it is twice in one tensor");
            }
        }
        let mut used = vec![false; graph.len()];
        graph.nodes().flat_map(|(_, n)| &n.inputs).for_each(|input| used[input.index()] = true);
        for class in 0..self.classes.len() {
            for (node, _) in self.classes[class].reduced.clone() {
                if used[node.index()] || !graph.outputs().contains(&node) {
                    let name = graph.node(node).op.def().name;
                    self.make_whole(class, &format!("{name} reduces it before the end"));
                }
            }
        }
    }

    fn finish(mut self, graph: &Graph) -> ProgramFactors {
        self.settle(graph);
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let mut order = Vec::new();
        let ends: Vec<NodeId> = graph.arguments().chain(graph.outputs().iter().copied()).collect();
        let rest = graph.ids();
        let mut outer = 0;
        for (at, id) in ends.iter().copied().chain(rest).enumerate() {
            for &class in self.nodes[id.index()].iter().flatten() {
                let root = self.root(class);
                numbers.entry(root).or_insert_with(|| {
                    order.push(root);
                    order.len() - 1
                });
            }
            if at < ends.len() {
                outer = order.len();
            }
        }
        let number = |axis: &AxisFactors| axis.iter().map(|&c| numbers[&self.root(c)]).collect();
        let nodes: Vec<Vec<AxisFactors>> =
            self.nodes.iter().map(|axes| axes.iter().map(number).collect()).collect();
        let factor = |&root: &usize| {
            let JoinedClass { size, whole, reduced } = self.classes[root].clone();
            let role = match (whole, reduced.is_empty()) {
                (Some(why), _) => ProgramRole::Whole(why),
                (None, true) => ProgramRole::Pointwise,
                (None, false) => ProgramRole::Reduced,
            };
            ProgramFactor { role, size }
        };
        let combined = |output: &NodeId| {
            let reduces = |&root: &usize| {
                let found = self.classes[root].reduced.iter().find(|(node, _)| node == output);
                found.map(|&(_, code)| (numbers[&root], code))
            };
            order.iter().filter_map(reduces).collect()
        };
        ProgramFactors {
            factors: order[..outer].iter().map(factor).collect(),
            arguments: graph.arguments().map(|id| nodes[id.index()].clone()).collect(),
            outputs: graph.outputs().iter().map(|id| nodes[id.index()].clone()).collect(),
            combines: graph.outputs().iter().map(combined).collect(),
            nodes,
        }
    }
}

impl fmt::Display for ProgramFactors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, tensors: &[Vec<AxisFactors>]| {
            for (i, axes) in tensors.iter().enumerate() {
                f.write_str(if i > 0 { ", " } else { "" })?;
                write_axes(f, axes)?;
            }
            Ok(())
        };
        list(f, &self.arguments)?;
        f.write_str(if self.arguments.is_empty() { "-> " } else { " -> " })?;
        list(f, &self.outputs)?;
        let mut separator = "; ";
        for (i, factor) in self.factors.iter().enumerate() {
            let name = super::name(i);
            match &factor.role {
                ProgramRole::Pointwise => continue,
                ProgramRole::Reduced => {
                    let codes = (0..self.outputs.len()).filter_map(|o| self.combines(o, i));
                    let mut names: Vec<&str> = codes.map(|code| code.def().name).collect();
                    names.dedup();
                    write!(f, "{separator}{name}: {}", names.join(" or "))?;
                }
                ProgramRole::Whole(_) => write!(f, "{separator}{name}: whole")?,
            }
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Each op and its derivatives, with each dimension of each operand cut evenly, unevenly, by two axes,
//! and into shards of which some are empty, equal the op on whole operands (NB-115).

use crate::simulator::check;
use girih_ir::ops::{Class, Sample};
use girih_ir::sharding::{DeviceMesh, DimSpec, P};
use girih_ir::{Array, Graph, GraphBuilder, NodeId, OpCode};

/// A program with its arguments; `like` has for each argument the operand whose sharding it has.
struct Case {
    graph: Graph,
    arguments: Vec<Array>,
    like: Vec<Option<usize>>,
}

impl Case {
    fn value(sample: &Sample) -> Option<(Case, Vec<NodeId>)> {
        let mut b = GraphBuilder::default();
        let inputs: Vec<NodeId> = sample.inputs.iter().map(|x| b.input(x.spec().clone())).collect();
        let output = b.emit(sample.op.clone(), &inputs).ok()?;
        let (graph, arguments) = (b.finish([output]), sample.inputs.clone());
        let like = (0..arguments.len()).map(Some).collect();
        Some((Case { graph, arguments, like }, inputs))
    }

    /// The op's derivative along its operands.
    fn jvp(sample: &Sample) -> Option<Case> {
        let (Case { graph, mut arguments, mut like }, inputs) = Case::value(sample)?;
        let is_float = |at: &usize| sample.inputs[*at].spec().dtype.is_float();
        let along: Vec<usize> = (0..inputs.len()).filter(is_float).collect();
        let wrt: Vec<NodeId> = along.iter().map(|&at| inputs[at]).collect();
        let graph = girih_transform::jvp(&graph, &wrt).ok()?.graph;
        arguments.extend(along.iter().map(|&at| sample.inputs[at].clone()));
        like.extend(along.into_iter().map(Some));
        Some(Case { graph, arguments, like })
    }

    /// The op's gradients with a cotangent of ones.
    fn vjp(sample: &Sample) -> Option<Case> {
        let (Case { graph, mut arguments, mut like }, inputs) = Case::value(sample)?;
        let output = graph.outputs()[0];
        let spec = graph.spec(output).clone();
        let mut b = GraphBuilder::from_graph(graph);
        let cotangent = b.input(spec.clone());
        let graph = b.finish([output]);
        let is_float = |id: &NodeId| graph.spec(*id).dtype.is_float();
        let wrt: Vec<NodeId> = inputs.into_iter().filter(is_float).collect();
        let graph = girih_transform::vjp(&graph, &[output], &[cotangent], &wrt).ok()?;
        arguments
            .push(Array::from_fn(spec.clone(), |_| girih_ir::Literal::from_i64(spec.dtype, 1)));
        like.push(None);
        Some(Case { graph, arguments, like })
    }

    /// Checks the program with each dimension of each operand cut. Returns the number of runs.
    fn check(&self, sample: &Sample) -> usize {
        if girih_reference::evaluate(&self.graph, &self.arguments).is_err() {
            return 0;
        }
        let mut runs = 0;
        for (operand, x) in sample.inputs.iter().enumerate() {
            for dim in 0..x.spec().shape.rank() {
                for (mesh, axes) in meshes() {
                    let mut cut = P::default();
                    cut.dims.resize(dim, DimSpec::default());
                    cut.dims.push(DimSpec::new(axes.iter().copied()));
                    let spec = |like: &Option<usize>| match *like == Some(operand) {
                        true => cut.clone(),
                        false => P::default(),
                    };
                    let specs: Vec<P> = self.like.iter().map(spec).collect();
                    let outputs = vec![None; self.graph.outputs().len()];
                    check(&self.graph, &mesh, &specs, &self.arguments, &outputs);
                    runs += 1;
                }
            }
        }
        runs
    }
}

fn meshes() -> [(DeviceMesh, &'static [&'static str]); 4] {
    let of = |shape: &[usize], axes: &[&str]| DeviceMesh::new(shape, axes).unwrap();
    [
        (of(&[2], &["x"]), &["x"]),
        (of(&[3], &["x"]), &["x"]),
        (of(&[2, 2], &["x", "y"]), &["x", "y"]),
        (of(&[7], &["x"]), &["x"]),
    ]
}

fn samples() -> impl Iterator<Item = Sample> {
    let all = OpCode::ALL.iter().flat_map(|code| code.samples());
    all.filter(|sample| sample.op.class() != Class::Leaf)
}

#[test]
fn every_op_on_every_sharded_axis_equals_the_whole_op() {
    let run = |sample: Sample| Case::value(&sample).map_or(0, |(case, _)| case.check(&sample));
    let runs: usize = samples().map(run).sum();
    assert!(runs > 2000, "{runs} runs");
}

#[test]
fn derivatives_on_every_sharded_axis_equal_those_of_the_whole_op() {
    let run = |sample: Sample| {
        let cases = [Case::jvp(&sample), Case::vjp(&sample)];
        cases.iter().flatten().map(|case| case.check(&sample)).sum::<usize>()
    };
    let runs: usize = samples().map(run).sum();
    assert!(runs > 2000, "{runs} runs");
}

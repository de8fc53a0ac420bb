//! A training step of a transformer on a mesh of data and tensor parallelism, as Megatron shards it: what
//! moves, and how long it takes to plan.

use crate::simulator::check;
use girih_dist::partition::{Exchange, Partition, Stage, partition};
use girih_ir::ops::{Attrs, Real};
use girih_ir::sharding::{DeviceMesh, P};
use girih_ir::{Array, DType, Graph, GraphBuilder, NodeId, Op, OpCode, Result, TensorSpec};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

struct Model {
    layers: usize,
    batch: usize,
    sequence: usize,
    heads: usize,
    width: usize,
}

/// The shapes of a layer's parameters and their specs: columns of the first product of each pair, rows of
/// the second.
fn parameters(h: usize) -> Vec<(Vec<usize>, &'static str)> {
    let norm = || [(vec![h], "<*>"), (vec![h], "<*>")];
    let projection = |spec| (vec![h, h], spec);
    let columns = (0..3).flat_map(|_| [projection("<*, tp>"), (vec![h], "<tp>")]);
    let mut all: Vec<(Vec<usize>, &'static str)> = norm().into();
    all.extend(columns);
    all.extend([projection("<tp, *>"), (vec![h], "<*>")]);
    all.extend(norm());
    all.extend([(vec![h, 4 * h], "<*, tp>"), (vec![4 * h], "<tp>")]);
    all.extend([(vec![4 * h, h], "<tp, *>"), (vec![h], "<*>")]);
    all
}

fn norm(b: &mut GraphBuilder, x: NodeId, scale: NodeId, shift: NodeId) -> Result<NodeId> {
    let attrs = Attrs::Norm { ndims: 1, eps: Real::from(1e-5) };
    b.emit(Op::new(OpCode::LayerNorm, attrs), &[x, scale, shift])
}

fn linear(b: &mut GraphBuilder, x: NodeId, w: NodeId, bias: NodeId) -> Result<NodeId> {
    let y = b.matmul(x, w)?;
    b.add(y, bias)
}

impl Model {
    fn layer(&self, b: &mut GraphBuilder, x: NodeId, p: &[NodeId]) -> Result<NodeId> {
        let (batch, heads) = (self.batch, self.heads);
        let (s, d) = (self.sequence, self.width / self.heads);
        let normed = norm(b, x, p[0], p[1])?;
        let head = |b: &mut GraphBuilder, w, bias| {
            let y = linear(b, normed, w, bias)?;
            let y = b.reshape(y, [batch, s, heads, d])?;
            b.permute(y, &[0, 2, 1, 3])
        };
        let q = head(b, p[2], p[3])?;
        let k = head(b, p[4], p[5])?;
        let v = head(b, p[6], p[7])?;
        let attrs = Attrs::Attention { causal: true, scale: Real::from((d as f64).sqrt().recip()) };
        let mixed = b.emit(Op::new(OpCode::Attention, attrs), &[q, k, v])?;
        let mixed = b.permute(mixed, &[0, 2, 1, 3])?;
        let mixed = b.reshape(mixed, [batch, s, self.width])?;
        let mixed = linear(b, mixed, p[8], p[9])?;
        let x = b.add(x, mixed)?;
        let normed = norm(b, x, p[10], p[11])?;
        let hidden = linear(b, normed, p[12], p[13])?;
        let hidden = b.op(OpCode::Gelu, &[hidden])?;
        let out = linear(b, hidden, p[14], p[15])?;
        b.add(x, out)
    }

    /// The graph of a step, with the specs of its arguments and outputs: the new parameters.
    fn step(&self) -> Result<(Graph, Vec<P>)> {
        let shape = [self.batch, self.sequence, self.width];
        let mut b = GraphBuilder::default();
        let input =
            |b: &mut GraphBuilder, shape: &[usize]| b.input(TensorSpec::new(shape, DType::F32));
        let mut x = input(&mut b, &shape);
        let target = input(&mut b, &shape);
        let mut specs: Vec<P> = vec!["<dp>".parse()?, "<dp>".parse()?];
        let mut weights = Vec::new();
        for _ in 0..self.layers {
            for (shape, spec) in parameters(self.width) {
                weights.push(input(&mut b, &shape));
                specs.push(spec.parse()?);
            }
        }
        for p in weights.chunks(16) {
            x = self.layer(&mut b, x, p)?;
        }
        let error = b.sub(x, target)?;
        let graph = b.finish([x]);
        let graph = girih_transform::vjp(&graph, &[x], &[error], &weights).unwrap();
        let gradients = graph.outputs()[1..].to_vec();
        let mut b = GraphBuilder::from_graph(graph);
        let rate = b.scalar(DType::F32, 0.125);
        let mut new = Vec::new();
        for (w, gradient) in weights.into_iter().zip(gradients) {
            let step = b.mul(gradient, rate)?;
            new.push(b.sub(w, step)?);
        }
        Ok((b.finish(new), specs))
    }

    /// The bytes that Megatron moves: four all-reduces of the activations for each layer over the
    /// processors of `tp`, and one of each gradient over those of `dp`.
    fn bound(&self, dp: usize, tp: usize) -> usize {
        let activations = 4 * self.batch * self.sequence * self.width;
        // Parameters that are not cut along `tp` are stored by each of its processors.
        let stored = parameters(self.width).into_iter().map(|(shape, spec)| {
            let copies = if spec.contains("tp") { 1 } else { tp };
            shape.iter().product::<usize>() * copies
        });
        let gradients = self.layers * stored.sum::<usize>();
        4 * self.layers * 2 * (tp - 1) * activations + 2 * (dp - 1) * 4 * gradients
    }
}

fn outputs(specs: &[P]) -> Vec<Option<P>> {
    specs[2..].iter().cloned().map(Some).collect()
}

fn arguments(graph: &Graph) -> Vec<Array> {
    let arguments = graph.arguments().enumerate().map(|(seed, id)| {
        let spec = graph.spec(id);
        let element = |i: usize| ((i * 7 + seed * 3) % 11) as f64 / 8.0 - 0.6;
        let elements: Vec<f64> = (0..spec.numel()).map(element).collect();
        Array::from_f64(spec.shape.clone(), spec.dtype, &elements)
    });
    arguments.collect()
}

fn moved(plan: &Partition) -> usize {
    plan.exchanges().map(|exchange| exchange.bytes()).sum()
}

#[test]
fn a_small_step_equals_the_reference_and_moves_what_megatron_does() {
    let model = Model { layers: 2, batch: 2, sequence: 3, heads: 2, width: 4 };
    let (graph, specs) = model.step().unwrap();
    let mesh = DeviceMesh::new(&[2, 2], &["dp", "tp"]).unwrap();
    let plan = check(&graph, &mesh, &specs, &arguments(&graph), &outputs(&specs));
    assert!(moved(&plan) <= model.bound(2, 2), "{} bytes", moved(&plan));
}

/// The most different programs of a stage.
fn programs(plan: &Partition) -> usize {
    let different =
        |stage: &Stage| stage.programs.iter().map(Arc::as_ptr).collect::<HashSet<_>>().len();
    plan.stages.iter().map(different).max().unwrap_or(0)
}

#[test]
fn a_step_of_48_layers_is_planned_for_1024_processors() {
    let model = Model { layers: 48, batch: 32, sequence: 2048, heads: 96, width: 12288 };
    let (graph, specs) = model.step().unwrap();
    let mesh = DeviceMesh::new(&[32, 32], &["dp", "tp"]).unwrap().ghost();
    let start = Instant::now();
    let plan = partition(&graph, &mesh, &specs, &outputs(&specs)).unwrap();
    println!("{} nodes are planned in {:?}", graph.len(), start.elapsed());
    assert!(moved(&plan) <= model.bound(32, 32), "{} of {}", moved(&plan), model.bound(32, 32));
    assert_eq!(programs(&plan), 1, "all processors have one program");
    // The gradients of the activations that enter are not needed, so there is one all-reduce less.
    let activations = plan.exchanges().filter(|exchange| exchange.tensor.shape.rank() == 3);
    assert_eq!(activations.count(), 4 * 48 - 1);
    let axes = |exchange: &Exchange| exchange.axes().join(" ");
    let axes: HashSet<String> = plan.exchanges().map(axes).collect();
    assert!(axes.contains("dp") && axes.contains("tp"), "{axes:?}");
}

/// Parameters that are cut over the processors of data parallelism (ZeRO-3) are gathered for the forward
/// and for the backward half, and their derivatives are scattered: three times their bytes.
#[test]
fn cut_parameters_are_gathered_where_they_are_used() {
    let zero = |specs: &mut Vec<P>| specs[2..].fill("<dp>".parse().unwrap());
    let model = Model { layers: 1, batch: 4, sequence: 3, heads: 2, width: 4 };
    let (graph, mut specs) = model.step().unwrap();
    zero(&mut specs);
    let mesh = DeviceMesh::new(&[4], &["dp"]).unwrap();
    check(&graph, &mesh, &specs, &arguments(&graph), &outputs(&specs));
    let model = Model { layers: 4, batch: 32, sequence: 2048, heads: 96, width: 12288 };
    let (graph, mut specs) = model.step().unwrap();
    zero(&mut specs);
    let mesh = DeviceMesh::new(&[32], &["dp"]).unwrap().ghost();
    let plan = partition(&graph, &mesh, &specs, &outputs(&specs)).unwrap();
    let elements: usize =
        parameters(model.width).iter().map(|(shape, _)| shape.iter().product::<usize>()).sum();
    assert!(moved(&plan) <= 3 * 31 * 4 * model.layers * elements, "{} bytes", moved(&plan));
    assert_eq!(programs(&plan), 1);
}

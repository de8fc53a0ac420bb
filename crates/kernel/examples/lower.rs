//! Lowers the training step of a small classifier, prints the program and the time it took:
//! `cargo run --release -p girih-kernel --example lower`.

use girih_ir::{
    Attrs, AxisSet, DType, Graph, GraphBuilder, NodeId, Op, OpCode, Result, TensorSpec,
};
use girih_kernel::{FusionOptions, Target, lower_explained};
use std::time::Instant;

const BATCH: usize = 64;
const SIZES: [usize; 4] = [64, 128, 128, 10];

struct Layer {
    weight: NodeId,
    bias: NodeId,
    /// The input of the layer.
    input: NodeId,
    /// Where the activation passes values through.
    mask: Option<NodeId>,
}

fn forward(b: &mut GraphBuilder, mut x: NodeId) -> Result<(Vec<Layer>, NodeId)> {
    let mut layers = Vec::new();
    for (i, sizes) in SIZES.windows(2).enumerate() {
        let weight = b.input(TensorSpec::new([sizes[0], sizes[1]], DType::F32));
        let bias = b.input(TensorSpec::new([sizes[1]], DType::F32));
        let product = b.matmul(x, weight)?;
        let mut y = b.add(product, bias)?;
        let mut mask = None;
        if i + 2 < SIZES.len() {
            let zero = b.scalar_like(y, 0.0);
            mask = Some(b.gt(y, zero)?);
            y = b.maximum(y, zero)?;
        }
        layers.push(Layer { weight, bias, input: x, mask });
        x = y;
    }
    Ok((layers, x))
}

/// The loss, and its gradient with respect to the logits.
fn cross_entropy(b: &mut GraphBuilder, logits: NodeId, labels: NodeId) -> Result<[NodeId; 2]> {
    let last = AxisSet::one(1);
    let max = b.max(logits, last, true)?;
    let shifted = b.sub(logits, max)?;
    let e = b.exp(shifted)?;
    let sum = b.sum(e, last, true)?;
    let log = b.log(sum)?;
    let scores = b.sub(shifted, log)?;
    let iota = Op::new(OpCode::Iota, Attrs::Axis(1));
    let classes = b.leaf(iota, TensorSpec::new([BATCH, SIZES[3]], DType::I64));
    let labels = b.reshape(labels, [BATCH, 1])?;
    let hit = b.eq(classes, labels)?;
    let hot = b.cast(hit, DType::F32)?;
    let picked = b.mul(scores, hot)?;
    let total = b.sum(picked, AxisSet::all(2), false)?;
    let scale = b.scalar(DType::F32, -1.0 / BATCH as f64);
    let loss = b.mul(total, scale)?;
    let p = b.div(e, sum)?;
    let d = b.sub(p, hot)?;
    let scale = b.scalar(DType::F32, 1.0 / BATCH as f64);
    Ok([loss, b.mul(d, scale)?])
}

/// Adam's new value and moments.
fn adam(b: &mut GraphBuilder, p: NodeId, grad: NodeId, rate: NodeId) -> Result<[NodeId; 3]> {
    let spec = b.spec(p).clone();
    let (m, v) = (b.input(spec.clone()), b.input(spec));
    let moment = |b: &mut GraphBuilder, old: NodeId, new: NodeId, beta: f64| {
        let (keep, take) = (b.scalar_like(old, beta), b.scalar_like(old, 1.0 - beta));
        let (old, new) = (b.mul(old, keep)?, b.mul(new, take)?);
        b.add(old, new)
    };
    let m = moment(b, m, grad, 0.9)?;
    let square = b.mul(grad, grad)?;
    let v = moment(b, v, square, 0.999)?;
    let root = b.sqrt(v)?;
    let eps = b.scalar_like(root, 1e-8);
    let root = b.add(root, eps)?;
    let step = b.div(m, root)?;
    let step = b.mul(step, rate)?;
    Ok([b.sub(p, step)?, m, v])
}

fn step() -> Result<Graph> {
    let b = &mut GraphBuilder::default();
    let x = b.input(TensorSpec::new([BATCH, SIZES[0]], DType::F32));
    let labels = b.input(TensorSpec::new([BATCH], DType::I64));
    let rate = b.leaf(OpCode::Constant.into(), TensorSpec::scalar(DType::F32));
    let (layers, logits) = forward(b, x)?;
    let [loss, mut grad] = cross_entropy(b, logits, labels)?;
    let mut outputs = vec![loss];
    for layer in layers.iter().rev() {
        if let Some(mask) = layer.mask {
            let zero = b.scalar_like(grad, 0.0);
            grad = b.select(mask, grad, zero)?;
        }
        let (input, weight) = (b.transpose(layer.input)?, b.transpose(layer.weight)?);
        let of_weight = b.matmul(input, grad)?;
        let of_bias = b.sum(grad, AxisSet::one(0), false)?;
        grad = b.matmul(grad, weight)?;
        outputs.extend(adam(b, layer.weight, of_weight, rate)?);
        outputs.extend(adam(b, layer.bias, of_bias, rate)?);
    }
    Ok(std::mem::take(b).finish(outputs))
}

fn main() -> Result<()> {
    let graph = step()?;
    let explained =
        lower_explained(&graph, FusionOptions::ALL, &Target::CPU).expect("the graph is primitive");
    println!("{}", explained.program);
    for refused in &explained.refusals {
        let (node, reason) = (refused.node, refused.reason);
        println!("{node} = {}: {reason:?}", graph.node(node).op.name());
    }
    let mut best = f64::INFINITY;
    for _ in 0..2000 {
        let start = Instant::now();
        std::hint::black_box(girih_kernel::lower(&graph, FusionOptions::ALL, &Target::CPU)).ok();
        best = best.min(start.elapsed().as_secs_f64() * 1e6);
    }
    let (nodes, kernels) = (graph.len(), explained.program.kernels.len());
    println!("{nodes} nodes, {kernels} kernels: lowered in {best:.1} us");
    Ok(())
}

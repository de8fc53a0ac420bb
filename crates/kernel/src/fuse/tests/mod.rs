//! Tests of lowering: which kernels result, which fusions are refused and why, the text of
//! programs, and that no fusion changes a result.

mod control;
mod dead;
mod eval;
mod golden;
mod horizontal;
mod interpreted;
mod library;
mod prologue;
mod refusals;
mod rows;
mod structure;

use super::*;
use girih_ir::golden;
use girih_ir::{Attrs, AxisSet, DType, GraphBuilder, Op, OpCode, Result, TensorSpec};

/// Fusion within kernels, but not of kernels with each other.
const VERTICAL: FusionOptions =
    FusionOptions { rows: false, matmul_prologue: false, horizontal: false, ..FusionOptions::ALL };

/// The same, and GEMMs that compute their operands.
const VERTICAL_AND_PROLOGUE: FusionOptions = FusionOptions { matmul_prologue: true, ..VERTICAL };

/// An f32 input.
fn input<const N: usize>(b: &mut GraphBuilder, shape: [usize; N]) -> NodeId {
    b.input(TensorSpec::new(shape, DType::F32))
}

/// The graph of the outputs of `record`.
fn graph<const N: usize>(record: impl FnOnce(&mut GraphBuilder) -> Result<[NodeId; N]>) -> Graph {
    let mut b = GraphBuilder::default();
    let outputs = record(&mut b).expect("the test's graph is well-formed");
    b.finish(outputs)
}

fn relu(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let zero = b.scalar_like(x, 0.0);
    b.maximum(x, zero)
}

fn sigmoid(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let one = b.scalar_like(x, 1.0);
    let n = b.neg(x)?;
    let e = b.exp(n)?;
    let d = b.add(one, e)?;
    b.div(one, d)
}

fn gelu(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let half = b.scalar_like(x, 0.5);
    let root = b.scalar_like(x, -std::f64::consts::FRAC_1_SQRT_2);
    let scaled = b.mul(x, root)?;
    let phi = b.erfc(scaled)?;
    let half = b.mul(x, half)?;
    b.mul(half, phi)
}

fn mean(b: &mut GraphBuilder, x: NodeId, axes: AxisSet, keepdims: bool) -> Result<NodeId> {
    let count: usize = axes.iter().map(|a| b.shape(x)[a]).product();
    let sum = b.sum(x, axes, keepdims)?;
    let count = b.scalar_like(sum, count as f64);
    b.div(sum, count)
}

fn softmax(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let last = AxisSet::one(b.shape(x).rank() - 1);
    let max = b.max(x, last, true)?;
    let shifted = b.sub(x, max)?;
    let e = b.exp(shifted)?;
    let sum = b.sum(e, last, true)?;
    b.div(e, sum)
}

fn layer_norm(b: &mut GraphBuilder, x: NodeId, w: NodeId, bias: NodeId) -> Result<NodeId> {
    let last = AxisSet::one(b.shape(x).rank() - 1);
    let m = mean(b, x, last, true)?;
    let d = b.sub(x, m)?;
    let squares = b.mul(d, d)?;
    let var = mean(b, squares, last, true)?;
    let eps = b.scalar_like(x, 1e-5);
    let var = b.add(var, eps)?;
    let r = b.rsqrt(var)?;
    let y = b.mul(d, r)?;
    let y = b.mul(y, w)?;
    b.add(y, bias)
}

/// A run-time scalar.
fn parameter(b: &mut GraphBuilder) -> NodeId {
    b.leaf(OpCode::Constant.into(), TensorSpec::scalar(DType::F32))
}

/// The names of the kernels of the fully fused program, in order.
fn names(graph: &Graph) -> Vec<String> {
    let program = lower(graph, VERTICAL, &Target::CPU).expect("the graph is primitive");
    program.kernels.into_iter().map(|k| k.name).collect()
}

//! Samples of control flow: branches and loops over small regions.

use super::*;
use crate::Dim;
use crate::ops::control::{CallMode, Control};
use crate::testing::region;
use crate::{Graph, GraphBuilder};

fn vector() -> TensorSpec {
    TensorSpec::new([2], DType::F64)
}

fn double(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    b.add(x, x)
}

/// `(x + x, y)` or `(x * y, x)`.
fn branches(code: OpCode) -> Vec<Sample> {
    let specs = [vector(), vector()];
    let zero = region(&specs, |b, x| Ok(vec![double(b, x[0])?, x[1]]));
    let one = region(&specs, |b, x| Ok(vec![b.mul(x[0], x[1])?, x[0]]));
    let two = region(&specs, |b, x| Ok(vec![b.maximum(x[0], x[1])?, b.add(x[0], x[1])?]));
    let operands = |index: Array| vec![index, spread(&[2], (-1.5, 1.6)), spread(&[2], (0.5, 1.0))];
    let sample = |regions: &[&Graph], result, index: Array| {
        let graphs = regions.iter().map(|&g| g.clone()).collect();
        let control = Arc::new(Control::default().with_regions(graphs));
        Sample::new(Op::control(code, control, result), operands(index))
    };
    let truth = |value| Array::from_f64([], DType::Bool, &[value]);
    let number = |value| Array::from_f64([], DType::I64, &[value]);
    vec![
        sample(&[&zero, &one], 0, truth(1.0)),
        sample(&[&zero, &one], 1, truth(0.0)),
        sample(&[&zero, &one, &two], 0, number(2.0)),
        sample(&[&zero, &one, &two], 1, number(-7.0)),
    ]
}

/// `i += 1; (x, y) = (y, x * c)` while `i < 5`.
fn counted(code: OpCode) -> Vec<Sample> {
    let specs = [TensorSpec::scalar(DType::I64), vector(), vector(), vector()];
    let condition = region(&specs, |b, x| {
        let five = b.scalar(DType::I64, 5.0);
        Ok(vec![b.lt(x[0], five)?])
    });
    let body = region(&specs, |b, x| {
        let one = b.scalar(DType::I64, 1.0);
        Ok(vec![b.add(x[0], one)?, x[2], b.mul(x[1], x[3])?])
    });
    let control = Control { carries: 3, ..Control::default() }.with_regions(vec![condition, body]);
    let control = Arc::new(control);
    let sample = |result, start| {
        let start = Array::from_f64([], DType::I64, &[start]);
        let rest = [(-1.5, 1.6), (1.0, 2.0), (0.5, 1.0)].map(|range| spread(&[2], range));
        let operands: Vec<Array> = std::iter::once(start).chain(rest).collect();
        Sample::new(Op::control(code, control.clone(), result), operands)
    };
    vec![sample(1, 0.0), sample(0, 2.0), sample(2, 9.0)]
}

/// `(c, d) = (c * k + x, c); y = c * x` over three slices.
fn scanned(code: OpCode) -> Vec<Sample> {
    let body = region(&[vector(), vector(), vector(), vector()], |b, x| {
        let [c, _, part, k] = *x else { unreachable!("four are given") };
        let product = b.mul(c, k)?;
        Ok(vec![b.add(product, part)?, c, b.mul(c, part)?])
    });
    let control = |reverse, length| {
        let control = Control {
            carries: 2,
            slices: 1,
            length: Dim::from(length),
            reverse,
            ..Control::default()
        };
        Arc::new(control.with_regions(vec![body.clone()]))
    };
    let sample = |reverse, length, result| {
        let operands = [
            spread(&[2], (-1.5, 1.6)),
            spread(&[2], (0.2, 1.0)),
            spread(&[length, 2], (-1.0, 1.0)),
            spread(&[2], (0.5, 1.0)),
        ];
        Sample::new(Op::control(code, control(reverse, length), result), operands)
    };
    vec![
        sample(false, 3, 0),
        sample(false, 3, 1),
        sample(false, 3, 2),
        sample(true, 3, 2),
        sample(true, 4, 3),
        sample(false, 2, 4),
        sample(false, 1, 0),
        sample(false, 0, 1),
    ]
}

/// `(x * sin(y), x + y)`: inlined, checkpointed, isolated, and with custom derivative rules.
fn called(code: OpCode) -> Vec<Sample> {
    let two = [vector(), vector()];
    let body = region(&two, |b, x| {
        let sin = b.sin(x[1])?;
        Ok(vec![b.mul(x[0], sin)?, b.add(x[0], x[1])?])
    });
    let saving = region(&two, |b, x| {
        let sin = b.sin(x[1])?;
        Ok(vec![b.mul(x[0], sin)?, b.add(x[0], x[1])?, sin])
    });
    let four = [vector(), vector(), vector(), vector()];
    let jvp = region(&four, |b, x| {
        let (sin, cos) = (b.sin(x[1])?, b.cos(x[1])?);
        let along = [b.mul(x[2], sin)?, b.mul(x[0], cos)?];
        let bent = b.mul(along[1], x[3])?;
        let outputs = [b.mul(x[0], sin)?, b.add(x[0], x[1])?];
        Ok(vec![outputs[0], outputs[1], b.add(along[0], bent)?, b.add(x[2], x[3])?])
    });
    let forward = region(&two, |b, x| {
        let (sin, cos) = (b.sin(x[1])?, b.cos(x[1])?);
        Ok(vec![b.mul(x[0], sin)?, b.add(x[0], x[1])?, sin, b.mul(x[0], cos)?])
    });
    let six: Vec<TensorSpec> = vec![vector(); 6];
    let backward = region(&six, |b, x| {
        let (of_x, of_y) = (b.mul(x[4], x[2])?, b.mul(x[4], x[3])?);
        Ok(vec![b.add(of_x, x[5])?, b.add(of_y, x[5])?])
    });
    let sample = |regions: &[&Graph], mode, saves, result| {
        let graphs = regions.iter().map(|&g| g.clone()).collect();
        let carries = if regions.len() > 1 { 2 } else { 0 };
        let control = Control { carries, mode, saves, ..Control::default() };
        let control = Arc::new(control.with_regions(graphs));
        let operands = vec![spread(&[2], (-1.5, 1.6)), spread(&[2], (0.5, 1.0))];
        Sample::new(Op::control(code, control, result), operands)
    };
    vec![
        sample(&[&body], CallMode::Inline, 0, 0),
        sample(&[&body], CallMode::Checkpoint, 0, 1),
        sample(&[&body], CallMode::Checkpoint, 0, 0),
        sample(&[&saving], CallMode::Checkpoint, 1, 0),
        sample(&[&body], CallMode::Isolated, 0, 0),
        sample(&[&jvp, &body], CallMode::Inline, 0, 0),
        sample(&[&forward, &backward, &body], CallMode::Inline, 0, 0),
    ]
}

pub(in crate::ops) fn samples(code: OpCode) -> Vec<Sample> {
    match code {
        OpCode::Cond => branches(code),
        OpCode::WhileLoop => counted(code),
        OpCode::Call => called(code),
        _ => scanned(code),
    }
}

/// The op with f64 in its regions replaced by `dtype`; the op unchanged if that fails.
pub(super) fn with_dtype(op: &Op, dtype: DType) -> Op {
    let Some((result, control)) = op.as_control() else { return op.clone() };
    let graphs: Result<Vec<Graph>> = control.regions.iter().map(|g| retyped(g, dtype)).collect();
    match graphs {
        Ok(graphs) => Op::control(op.code, Arc::new(control.with_regions(graphs)), result),
        Err(_) => op.clone(),
    }
}

fn retyped(graph: &Graph, dtype: DType) -> Result<Graph> {
    let mut new = Graph::new();
    for (_, node) in graph.nodes() {
        match node.op.class() {
            Class::Leaf => {
                let float = node.spec.dtype == DType::F64;
                let spec = TensorSpec {
                    dtype: if float { dtype } else { node.spec.dtype },
                    ..node.spec.clone()
                };
                new.leaf(node.op.clone(), spec)
            }
            _ => new.push(node.op.clone(), &node.inputs)?,
        };
    }
    new.set_outputs(graph.outputs().iter().copied());
    Ok(new)
}

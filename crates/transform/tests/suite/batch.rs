//! Every op with each operand batched, and with all, compared with the op on each member of the
//! batch.

use crate::support::{self, has_forward, program};
use girih_ir::dim::Guards;
use girih_ir::ops::collective::{AxisName, NamedAxis};
use girih_ir::ops::host::{
    CustomOp, HostBatch, HostBatching, HostCall, HostFailure, HostView, HostViewMut,
};
use girih_ir::ops::{Class, Sample};
use girih_ir::{
    Array, DType, Dim, Element, Graph, GraphBuilder, Literal, NodeId, Op, OpCode, TensorSpec,
};
use girih_reference::evaluate;
use girih_transform::{BatchAxis, gradients, jvp, vmap};
use std::sync::Arc;

const SIZE: usize = 3;

/// Three variants of an operand within the op's domain.
fn members(x: &Array) -> Vec<Array> {
    let vary = |m: usize| {
        let mut new = x.clone();
        for i in 0..x.spec().numel() {
            // A rotation of the elements, so that the op still accepts the numbers.
            let from = match (x.spec().dtype.is_inexact(), x.spec().shape.rank()) {
                (true, 2..) => i,
                _ => (i + m) % x.spec().numel(),
            };
            new.set(i, x.get(from));
        }
        if x.spec().dtype.is_inexact() {
            for i in 0..x.spec().numel() {
                let (dtype, value) =
                    (x.spec().dtype, new.get(i).complex() * (1.0 - 0.01 * m as f64));
                match dtype.is_complex() {
                    true => new.set(i, Element::from_complex(dtype, value)),
                    false => new.set(i, Literal::from_f64(dtype, value.re)),
                }
            }
        }
        new
    };
    (0..SIZE).map(vary).collect()
}

fn stack(parts: &[Array]) -> Array {
    let spec = parts[0].spec();
    let shape = std::iter::once(parts.len()).chain(spec.shape.iter().copied());
    let mut all = Array::from_f64(
        shape.collect::<girih_ir::Shape>(),
        spec.dtype,
        &vec![0.0; parts.len() * spec.numel()],
    );
    for (m, part) in parts.iter().enumerate() {
        (0..spec.numel()).for_each(|i| all.set(m * spec.numel() + i, part.get(i)));
    }
    all
}

fn graph_of(sample: &Sample) -> Graph {
    let mut b = GraphBuilder::default();
    let inputs: Vec<NodeId> = sample.inputs.iter().map(|a| b.input(a.spec().clone())).collect();
    let y = b.emit(sample.op.clone(), &inputs).unwrap();
    b.finish([y])
}

/// Compares the graph with the marked arguments batched to the graph on each member.
#[track_caller]
fn compare(what: &str, graph: &Graph, inputs: &[Array], marks: &[bool], tolerance: f64) {
    let (new, batched) =
        vmap(graph, marks, Dim::from(SIZE)).unwrap_or_else(|e| panic!("{what}: {e}"));
    new.graph.verify().unwrap_or_else(|e| panic!("{what}: {e}\n{}", new.graph));
    let varied: Vec<Vec<Array>> = inputs.iter().map(members).collect();
    let given: Vec<Array> = varied
        .iter()
        .zip(marks)
        .map(|(parts, &mark)| if mark { stack(parts) } else { parts[0].clone() })
        .collect();
    let found =
        evaluate(&new.graph, &given).unwrap_or_else(|e| panic!("{what}: {e}\n{}", new.graph));
    for m in 0..SIZE {
        let own: Vec<Array> = varied
            .iter()
            .zip(marks)
            .map(|(parts, &mark)| parts[if mark { m } else { 0 }].clone())
            .collect();
        let expected = evaluate(graph, &own).unwrap();
        for ((all, expected), &batched) in found.iter().zip(&expected).zip(&batched) {
            let count = expected.spec().numel();
            assert_eq!(all.spec().numel(), count * if batched { SIZE } else { 1 }, "{what}");
            for i in 0..count {
                let at = if batched { m * count + i } else { i };
                let (a, e) = (all.get(at).complex(), expected.get(i).complex());
                let close = a == e || (a - e).norm() <= tolerance * (1.0 + e.norm());
                let close = close || (a.is_nan() && e.is_nan());
                assert!(close, "{what}, member {m}: {a}, alone {e}\n{}", new.graph);
            }
        }
    }
}

fn samples() -> impl Iterator<Item = Sample> {
    OpCode::ALL.iter().filter(|c| c.def().class != Class::Leaf).flat_map(|c| c.samples())
}

/// The batchings to test: each operand alone, and all.
fn ways(count: usize) -> Vec<Vec<bool>> {
    let mut ways: Vec<Vec<bool>> =
        (0..count).map(|one| (0..count).map(|i| i == one).collect()).collect();
    if count > 1 {
        ways.push(vec![true; count]);
    }
    ways
}

/// True for samples whose operands have elements, so that they can be varied.
fn is_varied(sample: &Sample) -> bool {
    sample.inputs.iter().all(|x| x.spec().numel() > 0)
}

#[test]
fn every_batched_op_is_the_op_on_each_member() {
    for sample in samples().filter(is_varied) {
        let graph = graph_of(&sample);
        for marks in ways(sample.inputs.len()) {
            compare(&format!("{:?} {marks:?}", sample.op), &graph, &sample.inputs, &marks, 1e-12);
        }
    }
}

#[test]
fn batched_derivatives_are_the_derivatives_of_each_member() {
    for sample in support::samples().filter(is_varied).filter(has_forward) {
        let (graph, wrt) = program(&sample);
        let reverse = gradients(&graph, graph.outputs()[0], &wrt, None).unwrap();
        let along = jvp(&graph, &wrt).unwrap().graph;
        let mut with_tangents = sample.inputs.clone();
        with_tangents.extend(wrt.iter().map(|&id| {
            let spec = graph.spec(id);
            Array::from_f64(spec.shape.clone(), spec.dtype, &vec![0.7; spec.numel()])
        }));
        for marks in ways(sample.inputs.len()) {
            let what = format!("gradient of {:?} {marks:?}", sample.op);
            compare(&what, &reverse, &sample.inputs, &marks, 1e-9);
            let what = format!("tangent of {:?} {marks:?}", sample.op);
            let mut marks = marks;
            marks.resize(with_tangents.len(), true);
            compare(&what, &along, &with_tangents, &marks, 1e-9);
        }
    }
}

#[test]
fn nested_batches_apply_the_op_to_each_member() {
    for sample in samples().filter(is_varied) {
        let graph = graph_of(&sample);
        let all = vec![true; sample.inputs.len()];
        let (inner, _) = vmap(&graph, &all, Dim::from(SIZE)).unwrap();
        let inputs: Vec<Array> = sample.inputs.iter().map(|x| stack(&members(x))).collect();
        compare(&format!("{:?}", sample.op), &inner.graph, &inputs, &all, 1e-12);
    }
}

#[test]
fn one_program_serves_every_size_of_the_batch() {
    // An affine layer and a solve, with a symbolic batch size.
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([4], DType::F64));
    let w = b.input(TensorSpec::new([4, 4], DType::F64));
    let row = b.reshape(x, [1, 4]).unwrap();
    let y = b.matmul(row, w).unwrap();
    let y = b.tanh(y).unwrap();
    let column = b.reshape(y, [4, 1]).unwrap();
    let solve = girih_ir::Op::new(OpCode::Solve, girih_ir::Attrs::routine(false));
    let y = b.emit(solve, &[w, column]).unwrap();
    let graph = b.finish([y]);
    let size = Dim::symbol("batch", 3, 1, None);
    let guards = Guards::new();
    let new = {
        let _entered = guards.enter();
        vmap(&graph, &[true, false], size).unwrap()
    };
    assert!(guards.collected().is_empty(), "{:?}", guards.collected());
    let text = new.0.graph.to_string();
    assert!(text.contains("batch"), "{text}");
}

/// Two collectives over `i`, batched over this axis and over another.
#[test]
fn collectives_become_ops_along_their_own_axis_only() {
    let axis = NamedAxis { name: AxisName::new("i").unwrap(), size: 3.into() };
    let mut b = GraphBuilder::default();
    let (x, index) =
        (b.input(TensorSpec::new([2], DType::F64)), b.input(TensorSpec::new([], DType::I64)));
    let sum = b.emit(Op::collective(OpCode::AllReduce, axis.clone()), &[x, index]).unwrap();
    let all = b.emit(Op::collective(OpCode::AllGather, axis), &[x, index]).unwrap();
    let graph = b.finish([sum, all]);
    let batch = |name| {
        let axis = BatchAxis { size: 3.into(), name: Some(name) };
        let (new, batched) = vmap(&graph, &[true, true], axis).unwrap();
        new.graph.verify().unwrap();
        (new.graph.to_string(), batched)
    };
    let (own, batched) = batch("i");
    assert_eq!(batched, [false, false]);
    assert!(own.contains("reduce_sum(%0, dim=[0])") && !own.contains("all_"), "{own}");
    let (other, batched) = batch("j");
    assert_eq!(batched, [true, true]);
    let kept =
        ["all_reduce(%0, %", "axis=i, size=3) -> [3, 2]", "all_gather(%0, %", "-> [3, 3, 2]"];
    assert!(kept.iter().all(|part| other.contains(part)), "{other}");
}

/// Doubles its operand. Its batching rule multiplies by two; if `WRONG`, the result has no batch
/// axis.
struct Double<const WRONG: bool>;

impl<const WRONG: bool> CustomOp for Double<WRONG> {
    fn name(&self) -> &str {
        "double"
    }

    fn infer(&self, operands: &[&TensorSpec]) -> girih_ir::Result<Vec<TensorSpec>> {
        Ok(vec![operands[0].clone()])
    }

    fn run(&self, _: &[HostView<'_>], _: &mut [HostViewMut<'_>]) -> Result<(), HostFailure> {
        Err(HostFailure::new("is not called for a batch"))
    }

    fn batch(
        &self,
        size: Dim,
        operands: &[TensorSpec],
        marks: &[bool],
    ) -> Option<Result<HostBatch, HostFailure>> {
        assert_eq!((operands[0].shape.dim(0), marks), (size, &[true][..]));
        let mut b = GraphBuilder::default();
        let x = b.input(operands[0].clone());
        let y = b.add(x, x).unwrap();
        Some(Ok((b.finish([y]), vec![!WRONG])))
    }
}

fn batch_of(op: Arc<dyn CustomOp>) -> Result<Graph, girih_transform::Error> {
    let mut b = GraphBuilder::default();
    let spec = TensorSpec::new([2], DType::F64);
    let x = b.input(spec.clone());
    let call = HostCall::new(op, vec![spec], HostBatching::Rule, false);
    let y = b.emit(Op::host(call.into(), 0), &[x]).unwrap();
    vmap(&b.finish([y]), &[true], Dim::from(SIZE)).map(|(new, _)| new.graph)
}

#[test]
fn an_op_with_a_rule_is_batched_by_its_graph() {
    let graph = batch_of(Arc::new(Double::<false>)).unwrap();
    graph.verify().unwrap();
    let x = Array::from_f64([SIZE, 2], DType::F64, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let doubled = &evaluate(&graph, &[x]).unwrap()[0];
    assert_eq!(doubled.to_f64(), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
}

#[test]
fn a_batching_rule_with_a_wrong_result_spec_is_refused() {
    let error = batch_of(Arc::new(Double::<true>)).unwrap_err().to_string();
    assert!(error.contains("double") && error.contains("without the batch"), "{error}");
}

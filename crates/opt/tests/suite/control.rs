//! Tests of passes on branches and loops, one fact for each test.

use crate::common::{Cases, becomes_its_input, f32s, input, splat, unchanged};
use girih_ir::ops::AxisSet;
use girih_ir::ops::control::Control;
use girih_ir::{
    Array, DType, Graph, GraphBuilder, Literal, NodeId, Op, OpCode, Result, TensorSpec, testing,
};
use girih_opt::passes::{Branch, Prune};
use girih_opt::{OptOptions, Pass, PassManager, optimize};
use girih_reference::evaluate;
use std::sync::Arc;

/// A region of f32[2] operands.
fn region(
    operands: usize,
    record: impl FnOnce(&mut GraphBuilder, &[NodeId]) -> Result<Vec<NodeId>>,
) -> Graph {
    testing::region(&vec![TensorSpec::new([2], DType::F32); operands], record)
}

fn control(code: OpCode, control: Control, regions: Vec<Graph>, result: usize) -> Op {
    Op::control(code, Arc::new(control.with_regions(regions)), result)
}

fn negated_or_doubled() -> Vec<Graph> {
    vec![
        region(1, |b, x| Ok(vec![b.neg(x[0])?, x[0]])),
        region(1, |b, x| Ok(vec![b.add(x[0], x[0])?, x[0]])),
    ]
}

#[test]
fn a_conditional_with_a_literal_predicate_is_replaced_by_its_branch() {
    let mut cases = Cases::default();
    let mut on = |index: Literal| {
        cases.add(Branch, |b| {
            let (x, p) = (f32s(b, &[2]), b.constant(index, []));
            let op = |n| control(OpCode::Cond, Control::default(), negated_or_doubled(), n);
            let (y, same) = (b.emit(op(0), &[p, x])?, b.emit(op(1), &[p, x])?);
            b.mul(y, same)
        });
    };
    // The first branch, the second, the first and the second.
    on(Literal::from_i64(DType::Bool, 0));
    on(Literal::from_i64(DType::Bool, 1));
    on(Literal::from_i64(DType::I8, -5));
    on(Literal { dtype: DType::U64, bits: u64::MAX });
    cases.compare("a_conditional_with_a_literal_predicate_is_replaced_by_its_branch");
    unchanged(Branch, |b| {
        let (x, p) = (f32s(b, &[2]), input(b, &[], DType::Bool));
        b.emit(control(OpCode::Cond, Control::default(), negated_or_doubled(), 0), &[p, x])
    });
}

#[test]
fn loops_of_zero_iterations_return_their_initial_carries() {
    let mut cases = Cases::default();
    let body = || region(2, |b, x| Ok(vec![b.add(x[0], x[1])?, b.neg(x[0])?]));
    let scan = |result| {
        let none = Control { carries: 1, length: 0.into(), ..Control::default() };
        control(OpCode::Scan, none, vec![body()], result)
    };
    becomes_its_input(Branch, |b| {
        let (x, k) = (f32s(b, &[2]), f32s(b, &[2]));
        b.emit(scan(0), &[x, k])
    });
    cases.add(Branch, |b| {
        let (x, k) = (f32s(b, &[2]), f32s(b, &[2]));
        b.emit(scan(1), &[x, k])
    });
    becomes_its_input(Branch, |b| {
        let never = region(1, |b, _| Ok(vec![b.scalar(DType::Bool, 0.0)]));
        let next = region(1, |b, x| Ok(vec![b.neg(x[0])?]));
        let x = f32s(b, &[2]);
        let once = Control { carries: 1, ..Control::default() };
        b.emit(control(OpCode::WhileLoop, once, vec![never, next], 0), &[x])
    });
    cases.compare("loops_of_zero_iterations_return_their_initial_carries");
}

#[test]
fn unused_carries_and_results_of_loops_are_removed() {
    // The carries are a (used), b (only its own update reads it) and k (never changes); the last
    // operand is a captured literal.
    let body = || {
        region(5, |b, x| {
            let [a, c, k, part, half] = *x else { unreachable!("five are given") };
            let (scaled, next) = (b.mul(a, half)?, b.neg(c)?);
            let sum = b.add(scaled, k)?;
            Ok(vec![sum, next, k, b.add(c, part)?])
        })
    };
    let mut b = GraphBuilder::default();
    let operands: Vec<NodeId> = (0..3).map(|_| f32s(&mut b, &[2])).collect();
    let xs = f32s(&mut b, &[3, 2]);
    let half = splat(&mut b, &[2], DType::F32, 0.5);
    let all = [&operands[..], &[xs, half]].concat();
    let scan = Control { carries: 3, slices: 1, length: 3.into(), ..Control::default() };
    let op = |result| control(OpCode::Scan, scan.clone(), vec![body()], result);
    let (last, fixed) = (b.emit(op(0), &all).unwrap(), b.emit(op(2), &all).unwrap());
    let repeated = b.emit(op(6), &all).unwrap();
    let graph = b.finish([last, fixed, repeated]);
    let pruned = Prune.run(&graph).unwrap().unwrap();
    pruned.verify().unwrap();
    assert_eq!(Prune.run(&pruned), Ok(None));
    let (_, left) = pruned.nodes().find_map(|(_, n)| n.op.as_control()).unwrap();
    assert_eq!((left.carries, left.slices), (1, 0), "{pruned}");
    assert_eq!(left.regions[0].arguments().count(), 2, "{pruned}");
    assert_eq!(pruned.outputs()[1], NodeId(2), "a carry that never changes is its operand");
    assert_eq!(pruned.node(pruned.outputs()[2]).op.code, OpCode::BroadcastTo);
    let values: Vec<Array> = graph
        .arguments()
        .map(|id| {
            let spec = graph.spec(id);
            let values: Vec<f64> = (0..spec.numel()).map(|i| i as f64 - 1.5).collect();
            Array::from_f64(spec.shape.clone(), DType::F32, &values)
        })
        .collect();
    assert_eq!(evaluate(&graph, &values).unwrap(), evaluate(&pruned, &values).unwrap());
}

#[test]
fn carries_read_by_a_condition_are_kept() {
    let condition = region(2, |b, x| {
        let sum = b.sum(x[1], AxisSet::all(1), false)?;
        let limit = b.scalar(DType::F32, 9.0);
        Ok(vec![b.lt(sum, limit)?])
    });
    let body = region(2, |b, x| {
        let one = b.scalar(DType::F32, 1.0);
        Ok(vec![b.neg(x[0])?, b.add(x[1], one)?])
    });
    let mut b = GraphBuilder::default();
    let (x, y) = (f32s(&mut b, &[2]), f32s(&mut b, &[2]));
    let two = Control { carries: 2, ..Control::default() };
    let op = control(OpCode::WhileLoop, two, vec![condition, body], 0);
    let out = b.emit(op, &[x, y]).unwrap();
    assert_eq!(Prune.run(&b.finish([out])), Ok(None));
}

#[test]
fn regions_are_optimised_by_the_same_passes() {
    let branches = vec![
        region(1, |b, x| {
            let zero = b.scalar(DType::F32, 1.0);
            let same = b.mul(x[0], zero)?;
            let twice = b.neg(same)?;
            Ok(vec![b.neg(twice)?])
        }),
        region(1, |b, x| Ok(vec![b.op(OpCode::Silu, x)?])),
    ];
    let mut b = GraphBuilder::default();
    let (p, x) = (input(&mut b, &[], DType::Bool), f32s(&mut b, &[2]));
    let op = control(OpCode::Cond, Control::default(), branches, 0);
    let out = b.emit(op, &[p, x]).unwrap();
    let graph = b.finish([out]);
    let optimized = optimize(&graph, OptOptions::default()).unwrap().graph;
    let text = optimized.to_string();
    assert!(text.contains("{\n    %0 = input([2], f32)\n    outputs: [%0]\n  }"), "{text}");
    assert!(!text.contains("silu"), "{text}");
    let mut manager = PassManager::create_default(OptOptions::default());
    let stages = manager.record(true).run(&graph).unwrap().stages;
    assert!(stages.iter().any(|stage| stage.pass == "regions"));
    assert_eq!(optimize(&graph, OptOptions::none()).unwrap().graph, graph);
}

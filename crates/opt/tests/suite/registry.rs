//! Walks over the op registry: passes preserve the values of every op's samples, and their results
//! are well-formed.

use girih_ir::ops::Sample;
use girih_ir::{Array, GraphBuilder, OpCode};
use girih_opt::{OptOptions, optimize};
use girih_reference::evaluate;

#[track_caller]
fn check(sample: &Sample) {
    let mut b = GraphBuilder::default();
    let operand = |x: &Array| b.input(x.spec().clone());
    let inputs: Vec<_> = sample.inputs.iter().map(operand).collect();
    let y = b.emit(sample.op.clone(), &inputs).unwrap();
    let graph = b.finish([y]);
    let optimized = optimize(&graph, OptOptions::default()).unwrap();
    let kept = optimized.live_arguments.iter().map(|&i| sample.inputs[i].clone());
    let (kept, optimized) = (kept.collect::<Vec<_>>(), optimized.graph);
    optimized.verify().unwrap();
    let before = evaluate(&graph, &sample.inputs).unwrap().remove(0);
    let after = evaluate(&optimized, &kept).unwrap().remove(0);
    assert_eq!(before.spec(), after.spec(), "{optimized}");
    for (a, b) in before.to_f64().into_iter().zip(after.to_f64()) {
        let close = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-13 * a.abs();
        assert!(close, "{:?} was {before:?} and is {after:?}\n{optimized}", sample.op);
    }
}

#[test]
fn optimizing_any_op_changes_no_value() {
    OpCode::ALL.iter().flat_map(|code| code.samples()).for_each(|sample| check(&sample));
}

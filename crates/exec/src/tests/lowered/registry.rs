//! A walk over the op registry: every op, on its samples in every dtype it takes, lowers with and
//! without fusion, and the portable executor agrees with the reference evaluator.

use super::*;
use girih_ir::Class;
use girih_ir::ops::Sample;

/// Relative and absolute tolerance: a few units in the last place, including sums.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        DType::F32 | DType::C64 => 2e-6,
        DType::F64 | DType::C128 => 1e-14,
        _ => 0.0,
    }
}

#[track_caller]
fn check(sample: &Sample) {
    let mut b = GraphBuilder::default();
    let inputs: Vec<NodeId> = sample.inputs.iter().map(|x| b.input(x.spec().clone())).collect();
    let y = b.emit(sample.op.clone(), &inputs).expect("the op takes the sample");
    let spec = b.spec(y).clone();
    let graph = b.finish([y]);
    let expected = evaluate(&graph, &sample.inputs).expect("the op has a meaning").remove(0);
    let graph = graph.decomposed().expect("definitions are well-formed").unwrap_or(graph);
    for options in [FusionOptions::NONE, FusionOptions::ALL] {
        let program = lowered(&graph, options);
        let found = run_arrays(&program, &sample.inputs, &spec);
        let slack = sample.inputs.iter().map(|x| tolerance(x.spec().dtype)).fold(0.0, f64::max);
        for (f, e) in found.elements().zip(expected.elements()) {
            let same = f == e || (f.is_nan() && e.is_nan());
            let (f, e) = (f.complex(), e.complex());
            let close = same || f == e || (f - e).norm() <= slack * (1.0 + e.norm());
            assert!(close, "{:?} is {found:?}, expected {expected:?}\n{program}", sample.op);
        }
    }
}

#[test]
fn every_op_lowers_and_agrees_with_the_reference_in_every_dtype() {
    for &code in OpCode::ALL {
        let mut taken = 0;
        for sample in code.samples() {
            check(&sample);
            let floats = sample.inputs.iter().any(|x| x.spec().dtype == DType::F64);
            for dtype in DType::ALL.into_iter().filter(|_| floats) {
                let sample = sample.with_dtype(dtype);
                if sample.infer().is_ok() {
                    check(&sample);
                }
            }
            taken += 1;
        }
        assert!(taken > 0 || code.def().class == Class::Leaf, "{code:?}");
    }
}

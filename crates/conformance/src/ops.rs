//! Checks of every op on the device.

use crate::rig::{Rig, Subject};
use girih_ir::ops::Sample;
use girih_ir::{DType, GraphBuilder, OpCode};

/// Every op has the reference's results for its samples in every dtype that it takes.
pub fn every_op_computes_the_reference_in_every_dtype(subject: &Subject) {
    let rig = subject.rig();
    for &code in OpCode::ALL {
        for sample in code.samples() {
            check(&rig, &sample);
            let floats = sample.inputs.iter().any(|x| x.spec().dtype == DType::F64);
            for dtype in DType::ALL.into_iter().filter(|_| floats) {
                let sample = sample.with_dtype(dtype);
                if sample.infer().is_ok() {
                    check(&rig, &sample);
                }
            }
        }
    }
}

#[track_caller]
fn check(rig: &Rig, sample: &Sample) {
    let mut b = GraphBuilder::default();
    let inputs: Vec<_> = sample.inputs.iter().map(|x| b.input(x.spec().clone())).collect();
    let y = b.emit(sample.op.clone(), &inputs).expect("the op takes the sample");
    let graph = b.finish([y]);
    rig.check(&format!("{:?}", sample.op), &graph, &sample.inputs);
}

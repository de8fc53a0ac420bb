//! Every op evaluates on its samples.

use super::*;

#[test]
fn every_op_evaluates_on_its_samples() {
    for sample in OpCode::ALL.iter().flat_map(|code| code.samples()) {
        let spec = sample.infer().expect("the op takes its sample");
        let mut b = GraphBuilder::default();
        let inputs: Vec<_> = sample.inputs.iter().map(|x| b.input(x.spec().clone())).collect();
        let y = b.emit(sample.op.clone(), &inputs).unwrap();
        let values = evaluate(&b.finish([y]), &sample.inputs);
        let values = values.unwrap_or_else(|e| panic!("{}: {e}", sample.op.name()));
        assert_eq!(values[0].spec(), &spec, "{}", sample.op.name());
    }
}

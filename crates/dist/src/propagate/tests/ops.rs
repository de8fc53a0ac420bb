//! Every op of the registry takes operands of any sharding.

use super::*;
use girih_ir::Array;
use girih_ir::testing::Rng;

fn random_spec(rng: &mut Rng, rank: usize) -> P {
    let mut spec = P::new(vec![None::<&str>; rng.below(rank + 1)]);
    let by = [OpCode::Add, OpCode::Maximum][rng.below(2)];
    for axis in ["dp", "tp", "pp"] {
        match rng.below(6) {
            0 => drop(spec.partial.insert(axis.into(), by)),
            1 => drop(spec.replicated.insert(axis.into())),
            _ if spec.dims.is_empty() => {}
            place => {
                let len = spec.dims.len();
                spec.dims[place % len].axes.push(axis.into());
            }
        }
    }
    spec
}

#[test]
fn every_op_has_a_step_for_operands_of_any_sharding() {
    let (mut rng, mesh) = (Rng(42), mesh());
    let (mut steps, mut cut) = (0, 0);
    for sample in OpCode::ALL.iter().flat_map(|code| code.samples()) {
        let inputs: Vec<&TensorSpec> = sample.inputs.iter().map(Array::spec).collect();
        let result = sample.infer().unwrap();
        let Ok(factors) = sample.op.factors(&inputs, &result) else { continue };
        for _ in 0..10 {
            let specs: Vec<P> =
                inputs.iter().map(|x| random_spec(&mut rng, x.shape.rank())).collect();
            let operands = inputs.iter().zip(&specs);
            let operands: Vec<Operand<'_>> =
                operands.map(|(tensor, spec)| Operand { tensor, spec }).collect();
            let (operands, result, op) = (&operands[..], &result, Some(&sample.op));
            let call = Call { factors: &factors, operands, result, mesh: &mesh, op };
            let wanted = random_spec(&mut rng, result.shape.rank());
            for step in [step(&call), backward(&call, &wanted)] {
                let step = step.unwrap_or_else(|e| panic!("{}: {e}\n{factors}", sample.op.name()));
                let tensors = inputs.iter().copied().chain([result]);
                for (spec, tensor) in step.operands.iter().chain([&step.result]).zip(tensors) {
                    assert_eq!(spec.check(&mesh, tensor.shape.rank()), Ok(()), "{factors}");
                    assert_eq!(spec.dims.len(), tensor.shape.rank());
                }
                let reduces =
                    step.reduced.iter().all(|(axis, op)| step.result.partial.get(axis) == Some(op));
                assert!(reduces, "{factors}: {}", text(&step));
                steps += 1;
                cut += step.result.dims.iter().any(|dim| !dim.axes.is_empty()) as usize;
            }
        }
    }
    assert!(steps > 5000 && cut > steps / 3, "{cut} of {steps}");
}

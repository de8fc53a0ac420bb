//! Branches and loops: their operands and results, and the errors that the verifier finds.

use super::*;
use crate::control::{Control, Feed, Flow};
use crate::ir::Core;
use crate::target::ControlFlow;
use crate::verify::verify;
use girih_ir::ops::control::Control as Regions;
use girih_ir::testing::{region, scanned};
use std::sync::Arc;

fn spec() -> TensorSpec {
    TensorSpec::new([2], DType::F64)
}

fn control_of(program: &KernelProgram) -> &Control {
    let found = program.kernels.iter().find_map(|k| match &k.core {
        Core::Control(control) => Some(&**control),
        _ => None,
    });
    found.expect("there is a control kernel")
}

#[test]
fn a_loop_is_one_kernel_with_the_results_that_are_asked_for() {
    let g = graph(|b| {
        let (c, x, k) =
            (b.input(spec()), b.input(TensorSpec::new([3, 2], DType::F64)), b.input(spec()));
        let control = scanned(3, false);
        let result = |b: &mut GraphBuilder, n| {
            b.emit(Op::control(OpCode::Scan, control.clone(), n), &[c, x, k])
        };
        let (stack, last) = (result(b, 1)?, result(b, 0)?);
        result(b, 2)?;
        Ok([last, stack])
    });
    assert_eq!(names(&g), ["scan"]);
    let program = lower(&g, FusionOptions::ALL, &Target::CPU).unwrap();
    let control = control_of(&program);
    assert_eq!(control.flow, Flow::Scan { length: 3, reverse: false });
    assert!(control.results.len() == 2 && control.results.iter().all(Option::is_some));
    // One of the carry's two buffers is the result.
    assert_eq!(control.workspace_parts().bytes, 128, "{program}");
    let text = program.to_string();
    assert!(
        text.contains("= scan of 3 parts with 1 carries and 1 slices(b0, b1, b2) in b"),
        "{text}"
    );
    assert!(text.contains("    b0 = argument 0: f64[2]"), "{text}");
    let traffic = program.kernels[0].traffic(&program.buffers);
    assert_eq!(traffic.flops, 3 * 4);
}

#[test]
fn a_target_whose_host_runs_loops_refuses_them() {
    let g = graph(|b| {
        let (c, x, k) =
            (b.input(spec()), b.input(TensorSpec::new([3, 2], DType::F64)), b.input(spec()));
        Ok([b.emit(Op::control(OpCode::Scan, scanned(3, false), 0), &[c, x, k])?])
    });
    let target = Target { control_flow: ControlFlow::Host, ..Target::CPU };
    let error = lower(&g, FusionOptions::ALL, &target).unwrap_err();
    assert!(matches!(error, LowerError::Unsupported { op: "scan", .. }), "{error}");
    assert!(error.to_string().contains("the host runs them"), "{error}");
}

#[test]
fn operands_and_results_of_a_loop_are_stored_in_memory() {
    let g = graph(|b| {
        let x = b.input(TensorSpec::new([2, 3], DType::F64));
        let (c, k) = (b.input(spec()), b.input(spec()));
        let t = b.transpose(x)?;
        let last = b.emit(Op::control(OpCode::Scan, scanned(3, false), 0), &[c, t, k])?;
        Ok([b.neg(last)?])
    });
    let explained = lower_explained(&g, FusionOptions::ALL, &Target::CPU).unwrap();
    let named = explained.refusals.iter().map(|r| (g.node(r.node).op.name(), r.reason));
    let expected = [("permute", Refusal::Memory), ("scan", Refusal::Control)];
    assert_eq!(named.collect::<Vec<_>>(), expected, "{}", explained.program);
}

#[test]
fn a_composite_in_a_region_is_refused() {
    let g = graph(|b| {
        let p = b.input(TensorSpec::scalar(DType::Bool));
        let x = b.input(spec());
        let branch = region(&[spec()], |b, x| Ok(vec![b.op(OpCode::Silu, x)?]));
        let control = Regions::default().with_regions(vec![branch.clone(), branch]);
        Ok([b.emit(Op::control(OpCode::Cond, Arc::new(control), 0), &[p, x])?])
    });
    assert!(matches!(
        lower(&g, FusionOptions::ALL, &Target::CPU),
        Err(LowerError::Composite { op: "silu", .. })
    ));
}

#[track_caller]
fn damaged(part: &str, damage: impl FnOnce(&mut KernelProgram)) {
    let g = graph(|b| {
        let (c, x, k) =
            (b.input(spec()), b.input(TensorSpec::new([3, 2], DType::F64)), b.input(spec()));
        let control = scanned(3, false);
        let op = |n| Op::control(OpCode::Scan, control.clone(), n);
        let last = b.emit(op(0), &[c, x, k])?;
        Ok([last, b.emit(op(1), &[c, x, k])?, b.emit(op(2), &[c, x, k])?])
    });
    let mut program = lower(&g, FusionOptions::ALL, &Target::CPU).unwrap();
    verify(&program).unwrap();
    damage(&mut program);
    let error = verify(&program).unwrap_err();
    assert!(error.reason.contains(part), "{error}\n{program}");
}

fn inner(program: &mut KernelProgram) -> &mut Control {
    match &mut program.kernels[0].core {
        Core::Control(control) => control,
        core => unreachable!("{core:?}"),
    }
}

#[test]
fn the_verifier_sees_what_is_wrong_with_a_loop() {
    damaged("do not fit the branch or loop", |p| inner(p).programs.clear());
    damaged("do not fit the branch or loop", |p| inner(p).flow = Flow::While);
    damaged("do not fit the branch or loop", |p| inner(p).carries = 9);
    damaged("a program of the branch or loop is invalid: kernel 0", |p| {
        inner(p).programs[0].kernels[0].extents[0] = 0
    });
    damaged("operand 1 holds 6 elements of f64, but a program takes 8 elements of f64", |p| {
        inner(p).flow = Flow::Scan { length: 4, reverse: false };
    });
    damaged("operand 2, which a program reads, is not in memory", |p| {
        inner(p).operands[2] = Feed::Nothing
    });
    damaged("result 0 holds", |p| inner(p).results.swap(0, 1));
    damaged("the programs do not give result 3", |p| {
        let result = inner(p).results[0];
        inner(p).results.push(result);
    });
    damaged("stored twice", |p| inner(p).results[2] = inner(p).results[1]);
    damaged("has no buffer b99, which it returns", |p| {
        inner(p).programs[0].outputs[0] = crate::BufferId(99)
    });
}

#[test]
fn too_small_a_workspace_is_refused() {
    damaged("the workspace must have", |p| inner(p).workspace = None);
    damaged("the workspace must have", |p| {
        let id = inner(p).workspace.unwrap().0 as usize;
        p.buffers[id].numel -= 1;
    });
}

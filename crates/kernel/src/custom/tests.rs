//! Custom ops in graphs: their kernels, alone and in batches, and what is rejected.

use super::*;
use crate::Target;
use crate::fuse::{FusionOptions, lower};
use crate::ir::ReduceOp;
use girih_ir::ops::host::{CustomOp, HostBatching, HostCall, HostFailure, HostView, HostViewMut};
use girih_ir::{DType, Dim, GraphBuilder, Op};
use std::sync::Arc;

const ROW_SUMS: &str = "\
b0 = argument 0: {T}[{m*k}]
b1 = argument 1: {T}[{m}]
b2 = {T}[{m}]
b3 = {T}[{m}]
row_sums over [{m} | {k}]
  prologue:
    v0 = load b0[{k}*i0 + i1]
  reduce sum v0
  v0 = core: {T}
  b2[i0] = v0
scale over [{m}]
  v0 = load b2[i0]
  v1 = load b1[i0]
  v2 = mul(v0, v1): {T}
  b3[i0] = v2
outputs: [b3]";

fn dtypes(list: &[DType]) -> DTypes {
    vec![("T".to_string(), list.to_vec())]
}

fn row_sums() -> KernelTemplate {
    let both = dtypes(&[DType::F32, DType::F64]);
    KernelTemplate::new("test.row_sums", "T[m, k], T[m] -> T[m]", both, ROW_SUMS).unwrap()
}

/// An op that is lowered and does not run.
struct Custom(KernelTemplate);

impl CustomOp for Custom {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn infer(&self, operands: &[&TensorSpec]) -> Result<Vec<TensorSpec>> {
        self.0.results(operands)
    }

    fn run(&self, _: &[HostView<'_>], _: &mut [HostViewMut<'_>]) -> Result<(), HostFailure> {
        unreachable!("no test runs it")
    }

    fn kernels(&self, operands: &[&TensorSpec]) -> Option<Result<String>> {
        Some(self.0.program(operands).map(|program| program.to_string()))
    }
}

/// A call of the op with f64 results of these sizes.
fn call(template: KernelTemplate, results: &[usize]) -> HostCall {
    let specs = results.iter().map(|&size| spec([size])).collect();
    HostCall::new(Arc::new(Custom(template)), specs, HostBatching::Sequential, false)
}

fn spec<const N: usize>(shape: [usize; N]) -> TensorSpec {
    TensorSpec::new(shape, DType::F64)
}

#[test]
fn lowering_puts_the_kernels_among_those_of_the_program() {
    let mut b = GraphBuilder::default();
    let (x, y) = (b.input(spec([2, 3])), b.input(spec([2])));
    let (negated, call) = (b.neg(x).unwrap(), Arc::new(call(row_sums(), &[2])));
    let sums = b.emit(Op::host(call, 0), &[negated, y]).unwrap();
    let out = b.exp(sums).unwrap();
    let program = lower(&b.finish([out]), FusionOptions::NONE, &Target::CPU).unwrap();
    let names: Vec<&str> = program.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["neg", "row_sums", "scale", "exp"], "{program}");
    let reduces = |k: &Kernel| matches!(k.core, Core::Reduce { op: ReduceOp::Sum, .. });
    assert!(reduces(&program.kernels[1]));
    assert!(program.kernels.iter().all(|k| !matches!(k.core, Core::Library(_))));
}

#[test]
fn a_batch_is_a_dimension_of_the_kernels() {
    let op = row_sums();
    let member = op.program(&[&spec([2, 3]), &spec([2])]).unwrap();
    let batched = member.clone().batched(4, &[true, false]);
    crate::verify::verify(&batched).unwrap();
    assert_eq!(batched.kernels[0].extents.as_slice(), [4, 2, 3]);
    assert_eq!(batched.kernels[1].accesses[1].strides.as_slice(), [0, 1]);
    let call = call(op, &[2]);
    let call =
        call.batched(Dim::from(4), vec![true, false]).batched(Dim::from(5), vec![false, true]);
    let program = program_of(&call, &[&spec([4, 2, 3]), &spec([5, 2])]).unwrap().unwrap();
    assert_eq!(program.kernels[0].extents.as_slice(), [5, 4, 2, 3]);
    assert_eq!(program.buffers[3].numel, 5 * 4 * 2);
}

#[track_caller]
fn refused(error: Error, expected: &str) {
    let text = error.to_string();
    assert!(text.contains(expected), "{text}");
}

#[test]
fn invalid_kernel_templates_are_refused_when_created() {
    let new = |signature: &str, text: &str| {
        KernelTemplate::new("k", signature, dtypes(&[DType::F32]), text).unwrap_err()
    };
    let good = "T[m, k], T[m] -> T[m]";
    refused(new("T[m, k] T[m]", ROW_SUMS), "expected a signature such as");
    refused(new("T[m, k], T[m]] -> T[m]", ROW_SUMS), "expected a signature such as");
    refused(new("T[m, k], U[m] -> T[m]", ROW_SUMS), "'U' in 'T[m, k], U[m] -> T[m]' is no dtype");
    refused(
        new("T[m, k], T[m] -> T[n]", ROW_SUMS),
        "'n' in 'T[m, k], T[m] -> T[n]' is a size of no operand",
    );
    refused(
        new("f32[m, k], f32[m] -> f32[m]", ROW_SUMS),
        "dtypes are given for 'T', which no operand",
    );
    refused(new("T[m+1, k], T[m] -> T[m]", ROW_SUMS), "sizes of operands in");
    refused(
        new(good, &ROW_SUMS.replace("{m*k}", "{m*n}")),
        "has {m*n}; expected a dtype or a size",
    );
    refused(new(good, &ROW_SUMS.replace("{m*k}", "{m*k")), "'{m*k]' is not closed on its line");
    refused(
        new(good, &ROW_SUMS.replace("reduce sum", "reduce mean")),
        "line 8, column 10: expected one of sum",
    );
    let library = "b0 = argument 0: f32[4]\nb1 = f32[4]\nsort over [1]\n  b1[4] = sort(result=0, size=0)(b0[4])\noutputs: [b1]";
    refused(new("T[m] -> T[m]", library), "calls a routine; expected maps, reductions");
    let random = "b0 = f32[4]\nr over [4]\n  v0 = random_uniform(argument 0, i0): f32\n  b0[i0] = v0\noutputs: [b0]";
    refused(new("T[m] -> T[m]", random), "draws random numbers");
}

#[test]
fn operands_that_do_not_fit_are_refused_with_what_was_expected() {
    let op = row_sums();
    let at = |operands: &[&TensorSpec]| op.program(operands).unwrap_err();
    refused(
        at(&[&spec([2, 3])]),
        "'test.row_sums' takes T[m, k], T[m] -> T[m] with T in f32, f64; expected 2 operands, got 1",
    );
    refused(at(&[&spec([2, 3]), &spec([3])]), "operand 1 is f64[3], of another size");
    refused(at(&[&spec([2, 3]), &spec([])]), "operand 1 is f64[], of another rank");
    let half = TensorSpec::new([2], DType::F16);
    refused(at(&[&spec([2, 3]), &half]), "operand 1 is f16[2], of another dtype");
    refused(
        at(&[&spec([2, 0]), &spec([2])]),
        "with m = 2, k = 0: line 5, column 1: kernel 0 row_sums: V1",
    );
    let check = |from: &str, to: &str, expected: &str| {
        let text = ROW_SUMS.replace(from, to);
        let op = KernelTemplate::new("k", "T[m, k], T[m] -> T[m]", dtypes(&[DType::F64]), &text)
            .unwrap();
        refused(op.program(&[&spec([2, 3]), &spec([2])]).unwrap_err(), expected);
    };
    check("{k}*i0 + i1", "{k}*i0 + 2*i1", "V4: b0[3*i0 + 2*i1] reaches 0..=7 of 6");
    check("argument 1: {T}[{m}]", "argument 1: {T}[{2*m}]", "b1 is f64[4]; operand 1 is f64[2]");
    check("argument 1", "argument 2", "b1 is argument 2; expected 0 to 1");
    check("outputs: [b3]", "outputs: [b1]", "output 0 is b1, an argument or another output");
    check("outputs: [b3]", "outputs: []", "0 outputs; the signature gives 1");
    check("over [{m}]\n", "over [{m//2}]\n", "V8: b3 holds 1 of 2 elements");
}

#[test]
fn unused_results_are_not_computed() {
    let text = "b0 = argument 0: f64[3]\nb1 = argument 1: f64[3]\nb2 = f64[3]\nb3 = f64[3]\nb4 = f64[3]\n\
                both over [3]\n  v0 = load b0[i0]\n  v1 = neg(v0): f64\n  b2[i0] = v1\n  b4[i0] = v0\n\
                second over [3]\n  v0 = load b1[i0]\n  b3[i0] = v0\noutputs: [b2, b3]";
    let op =
        KernelTemplate::new("k", "f64[3], f64[3] -> f64[3], f64[3]", Vec::new(), text).unwrap();
    let mut b = GraphBuilder::default();
    let (x, y) = (b.input(spec([3])), b.input(spec([3])));
    let y = b.exp(y).unwrap();
    let first = b.emit(Op::host(Arc::new(call(op, &[3, 3])), 0), &[x, y]).unwrap();
    let program = lower(&b.finish([first]), FusionOptions::ALL, &Target::CPU).unwrap();
    assert_eq!(program.kernels.len(), 1, "{program}");
    assert_eq!((program.kernels[0].name.as_str(), program.kernels[0].stores.len()), ("both", 1));
}

#[test]
fn a_result_of_a_negative_size_is_refused() {
    let text = "b0 = argument 0: f64[{n}]\nb1 = f64[{n-300}]\nlast over [{n-300}]\n  \
                v0 = load b0[{n-1} + {0-1}*i0]\n  b1[i0] = v0\noutputs: [b1]";
    let op = KernelTemplate::new("k", "f64[n] -> f64[n-300]", Vec::new(), text).unwrap();
    assert_eq!(op.results(&[&spec([303])]).unwrap(), [spec([3])]);
    refused(
        op.results(&[&spec([299])]).unwrap_err(),
        "a result of f64[n] -> f64[n-300] has no size with n = 299",
    );
}

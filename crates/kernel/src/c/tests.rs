//! The exact C text of small programs. `girih-exec` tests that the C of many programs runs.

use super::*;
use girih_ir::golden;

#[track_caller]
fn check(text: &str, file: &str) {
    let program = KernelProgram::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let printed = print(&program);
    assert!(printed.starts_with(HEAD) && printed.contains("#include <math.h>\n"), "{printed}");
    let code = printed.split_once("#include <string.h>\n").expect("the last header").1;
    golden!(format!("c/{file}.c"), code);
}

#[test]
fn a_reduction_is_a_loop_in_a_loop() {
    check(
        "b0 = argument 0: f32[6]
         b1 = f32[2]
         fused_mul_reduce_sum over [2 | 3]
           prologue:
             v0 = load b0[3*i0 + i1]
             v1 = mul(v0, v0): f32
           reduce sum v1
           v0 = core: f32
           v1 = argument 4: f32
           v2 = exp(v0): f32
           v3 = maximum(v2, v1): f32
           b1[i0] = v3
         outputs: [b1]",
        "a_reduction_is_a_loop_in_a_loop",
    );
}

#[test]
fn a_gemm_of_integers_wraps_and_extends_its_operands() {
    check(
        "b0 = argument 0: i8[8]
         b1 = argument 1: u8[12]
         b2 = i32[6]
         matmul over [2, 3 | 4]
           matmul b0[4*i0 + i2] by b1[4*i1 + i2] in i32
           v0 = core: i32
           b2[3*i0 + i1] = v0
         outputs: [b2]",
        "a_gemm_of_integers_wraps_and_extends_its_operands",
    );
}

#[test]
fn parts_of_a_row_kernel_share_one_loop() {
    check(
        "b0 = argument 0: bf16[12]
         b1 = bf16[2]
         b2 = i64[2]
         \"shift & find\" over [2]
           local b1: 2 bytes a row
           reduce_max over [2 | 2, 3]
             prologue:
               v0 = load b0[6*i0 + 3*i1 + i2]
             reduce max v0
             v0 = core: bf16
             b1[i0] = v0
           argmax over [2 | 2, 3]
             prologue:
               v0 = load b0[6*i0 + 3*i1 + i2]
               v1 = load b1[i0]
               v2 = sub(v0, v1): bf16
             reduce argmax v2
             v0 = core: i64
             b2[i0] = v0
         outputs: [b2]",
        "parts_of_a_row_kernel_share_one_loop",
    );
}

const SPLIT: &str = "b0 = argument 0: f32[12]
b1 = f32[12]
b2 = f32[4]
fused_exp_reduce_sum over [4]
  local b1: 12 bytes a row
  exp over [2, 6]
    v0 = load b0[6*i0 + i1]
    v1 = exp(v0): f32
    b1[6*i0 + i1] = v1
  reduce_sum over [4 | 3]
    prologue:
      v0 = load b1[3*i0 + i1]
    reduce sum v0
    v0 = core: f32
    b2[i0] = v0
outputs: [b2]";

#[test]
fn rows_may_divide_a_dimension() {
    check(SPLIT, "rows_may_divide_a_dimension");
}

const SCATTER: &str = "b0 = argument 0: i64[3]
b1 = argument 1: f32[6]
b2 = f32[8]
b3 = f32[8]
b4 = i64[8]
scatter over [3, 2]
  scatter_add + 2*b0[i0] of 4, independent [1]
  v0 = load b1[2*i0 + i1]
  b2[i1] = v0
sort over [2]
  b3[4], b4[4] = sort(result=0, size=0)(b2[4])
outputs: [b3, b3, b0]";

#[test]
fn a_routine_is_an_external_function_and_repeated_results_are_copied() {
    check(SCATTER, "a_routine_is_an_external_function_and_repeated_results_are_copied");
}

#[test]
fn a_scan_has_two_arrays_for_each_carry() {
    check(
        "b0 = argument 0: f32[2]
         b1 = argument 1: f32[6]
         b2 = f32[2]
         b3 = u8[512]
         scan over []
           b2 = scan of 3 parts in reverse with 1 carries and 1 slices(b0, b1) in b3 {
             b0 = argument 0: f32[2]
             b1 = argument 1: f32[2]
             b2 = f32[2]
             add over [2]
               v0 = load b0[i0]
               v1 = load b1[i0]
               v2 = add(v0, v1): f32
               b2[i0] = v2
             outputs: [b2]
           }
         outputs: [b2]",
        "a_scan_has_two_arrays_for_each_carry",
    );
}

#[test]
fn the_example_of_the_documentation_is_what_is_printed() {
    let page = include_str!("../../../../docs/explain.md");
    let text = "b0 = argument 0: f32[25088]
b1 = argument 1: f32[7840]
b2 = f32[320]
b3 = f32[10]
fused_matmul_relu over [32, 10 | 784]
  matmul b0[784*i0 + i2] by b1[i1 + 10*i2]
  v0 = core: f32
  v1 = 0.0:f32
  v2 = maximum(v0, v1): f32
  b2[10*i0 + i1] = v2
reduce_sum over [10 | 32]
  prologue:
    v0 = load b2[i0 + 10*i1]
  reduce sum v0
  v0 = core: f32
  b3[i0] = v0
outputs: [b3, b2]";
    let printed = print(&KernelProgram::parse(text).unwrap());
    let kernels = &printed[printed.find("/* fused_matmul_relu").unwrap()..];
    assert!(page.contains(&format!("```c\n{}\n```", kernels.trim())), "{kernels}");
}

#[test]
fn names_and_comments_are_valid() {
    assert_eq!(identifier("fused_add"), "fused_add");
    assert_eq!(identifier("2 sums, */"), "kernel_2_sums____");
    assert_eq!(identifier(""), "kernel_");
    assert_eq!(comment(" a */ b"), "a * / b");
    assert!(helpers::occurs("exp_c128", "x = exp_c128(y)"));
    assert!(!helpers::occurs("exp_c128", "x = rexp_c128(y) + exp_c1280"));
}

//! The text form: printed text is parsed back, and invalid text is rejected with its position.

use crate::ir::{BufferKind, Inst, KernelProgram};
use girih_ir::{DType, Error, Literal};

/// Fails unless a program equals its parsed text. Lowering calls this with each program that it
/// gives in the tests of this crate.
#[track_caller]
pub fn round_trip(program: &KernelProgram) {
    let text = program.to_string();
    let parsed = KernelProgram::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(&parsed, program, "{text}");
    assert_eq!(parsed.to_string(), text);
}

const REDUCTION: &str = "\
b0 = argument 0: f32[6]
b1 = f32[2]
fused_mul_reduce_sum over [2 | 3]
  prologue:
    v0 = load b0[3*i0 + i1]
    v1 = mul(v0, v0): f32
  reduce sum v1
  v0 = core: f32
  b1[i0] = v0
outputs: [b1]";

const MATMUL: &str = "\
b0 = argument 0: f32[8]
b1 = argument 1: f32[12]
b2 = f32[6]
matmul over [2, 3 | 4]
  matmul b0[4*i0 + i2] by b1[4*i1 + i2]
  v0 = core: f32
  b2[3*i0 + i1] = v0
outputs: [b2]";

const SCATTER: &str = "\
b0 = argument 0: i64[3]
b1 = argument 1: f32[6]
b2 = f32[8]
scatter over [3, 2]
  scatter_add + 2*b0[i0] of 4, independent [1]
  v0 = load b1[2*i0 + i1]
  b2[i1] = v0
outputs: [b2]";

const GATHER: &str = "\
b0 = argument 0: f16[8]
b1 = argument 1: i32[3]
b2 = argument 2: bf16[3]
b3 = f16[3]
b4 = f64[3]
\"take, then add\" over [3]
  v0 = load b1[-i0 + 2]
  v1 = gather b0[i0 - 0] + 2*v0 of 3
  v2 = load b2[i0]
  v3 = 0x7e01:f16
  v4 = add(v1, v3): f16
  v5 = iota 3 - 2*i0: f64
  v6 = argument 3: f64
  v7 = mul(v5, v6): f64
  b3[i0] = v4
  b4[i0] = v7
outputs: [b4, b3]";

const LOOP: &str = "\
b0 = argument 0: f32[2]
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
outputs: [b2]";

const SORT: &str = "\
b0 = argument 0: f32[8]
b1 = i64[8]
sort over [2]
  _, b1[4] = sort(result=0, size=0)(b0[4])
outputs: [b1]";

const ALL: [&str; 6] = [REDUCTION, MATMUL, SCATTER, GATHER, LOOP, SORT];

#[test]
fn every_kind_of_kernel_is_read_and_printed_again() {
    for text in ALL {
        let program: KernelProgram = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
        round_trip(&program);
    }
    for text in [REDUCTION, MATMUL, SCATTER, SORT] {
        assert_eq!(KernelProgram::parse(text).unwrap().to_string(), text);
    }
    let program = KernelProgram::parse(GATHER).unwrap();
    let kernel = &program.kernels[0];
    assert_eq!((kernel.name.as_str(), kernel.accesses.len()), ("take, then add", 3));
    assert_eq!(kernel.accesses[0].strides.as_slice(), [-1]);
    let nan = Literal { dtype: DType::F16, bits: 0x7e01 };
    assert_eq!(kernel.body.insts[3], Inst::Literal(nan));
    assert_eq!(program.buffers[2].kind, BufferKind::Argument(2));
}

#[test]
fn white_space_and_comments_mean_nothing() {
    let squeezed = "# a sum of squares\nb0=argument 0:f32[6] b1=f32[2] k over[2|3] prologue: \
                    v0=load b0[i1+i0+ -1+2*i0- -1] v1=mul(v0,v0):f32 # squares\n reduce sum v1 \
                    v0=core:f32 b1[i0]=v0 outputs:[b1]";
    let mut program = KernelProgram::parse(squeezed).unwrap();
    program.kernels[0].name = "fused_mul_reduce_sum".into();
    assert_eq!(program, KernelProgram::parse(REDUCTION).unwrap());
}

#[test]
fn literals_keep_their_bits() {
    for dtype in DType::ALL {
        for value in [0.0, 1.0, -0.0, 0.1, 1e-40, f64::MAX, f64::NEG_INFINITY, f64::NAN, -f64::NAN]
        {
            let mut program = KernelProgram::parse(REDUCTION).unwrap();
            let literal = Literal::from_f64(dtype, value);
            program.kernels[0].body.push(Inst::Literal(literal));
            round_trip(&program);
        }
    }
}

#[track_caller]
fn refused(text: &str, from: &str, to: &str, place: (usize, usize), expected: &str) {
    assert!(text.contains(from), "{from}");
    let broken = text.replacen(from, to, 1);
    let error = KernelProgram::parse(&broken).expect_err(&broken);
    let Error::Parse { line, column, reason, snippet } = &error else { panic!("{error:?}") };
    assert!(reason.contains(expected), "{reason}\n{snippet}");
    assert_eq!((*line, *column), place, "{reason}\n{snippet}");
}

#[test]
fn text_that_is_no_program_is_refused_with_its_place() {
    refused("", "", "", (1, 1), "expected a kernel (NAME over [SIZES]) or the outputs");
    refused(
        REDUCTION,
        "b1 = f32",
        "b2 = f32",
        (2, 1),
        "expected b1: buffers are numbered in order",
    );
    refused(REDUCTION, "f32[2]", "float[2]", (2, 6), "expected one of bool, u8");
    refused(REDUCTION, "[2 | 3]", "[2 ; 3]", (3, 30), "expected ','");
    refused(REDUCTION, "load b0", "load b7", (5, 15), "b7 is not declared above; b0 to b1 are");
    refused(REDUCTION, "3*i0 + i1", "3*i0 + i2", (5, 25), "expected i0 to i1");
    refused(REDUCTION, "3*i0", "99999999999999999999*i0", (5, 18), "out of the range of 64 bits");
    refused(
        REDUCTION,
        "mul(v0, v0)",
        "mull(v0, v0)",
        (6, 10),
        "there is no op 'mull'; did you mean",
    );
    refused(REDUCTION, "mul(v0, v0)", "sort(v0, v0)", (6, 10), "sort is no elementwise op");
    refused(REDUCTION, "mul(v0, v0)", "mul(v0, v1)", (6, 18), "v1 is not defined above");
    refused(
        REDUCTION,
        "v1 = mul",
        "v2 = mul",
        (6, 5),
        "expected v1: values of a block are numbered",
    );
    refused(REDUCTION, "reduce sum", "reduce mean", (7, 10), "expected one of sum, prod, max");
    refused(REDUCTION, "b1[i0] = v0", "b1[i0] = v4", (9, 12), "v4 is not defined above");
    refused(REDUCTION, "outputs: [b1]", "outputs: [b1", (10, 13), "expected ','");
    refused(
        REDUCTION,
        "outputs: [b1]",
        "outputs: [b1] b",
        (10, 15),
        "expected the end of the text",
    );
    refused(GATHER, "0x7e01:f16", "0x17e01:f16", (10, 8), "expected a value of dtype f16");
    refused(GATHER, "\"take, then add\"", "\"take", (6, 1), "expected a kernel");
    refused(SORT, "size=0)", "size=0, way=1)", (4, 37), "unexpected attribute 'way'");
    refused(SORT, "b1[4] =", "b1 =", (4, 3), "expected sizes, as in b1[4]");
    refused(LOOP, "in reverse", "in order", (6, 27), "expected 'reverse'");
    refused(LOOP, "1 carries", "carries", (6, 40), "expected a number of carries");
}

#[test]
fn verifier_errors_are_reported_at_the_kernel() {
    let refused = |text: &str, from: &str, to: &str, rule: &str| {
        let line =
            1 + text.lines().position(|l| l.contains(" over [") && !l.starts_with(' ')).unwrap();
        refused(text, from, to, (line, 1), rule);
    };
    refused(REDUCTION, "3*i0 + i1", "3*i0 + i1 + 1", "V4: b0[1 + 3*i0 + i1] reaches 1..=6 of 6");
    refused(REDUCTION, "3*i0 + i1", "3*i0 - i1", "V4: b0[3*i0 - i1] reaches -2..=3");
    refused(REDUCTION, "[2 | 3]", "[2 | 0]", "V1: an extent is zero");
    refused(REDUCTION, "v0 = core: f32", "v0 = core: f64", "V2");
    refused(REDUCTION, "reduce sum", "reduce any", "V3: reduce any needs bools, got f32");
    refused(REDUCTION, "b1 = f32[2]", "b1 = f64[2]", "V6");
    refused(
        REDUCTION,
        "b1 = f32[2]",
        "b1 = argument 1: f32[2]",
        "V7: the kernel writes b1, an argument",
    );
    refused(MATMUL, "4*i1 + i2]", "4*i0 + i2]", "V5");
    refused(
        MATMUL,
        "b2[3*i0 + i1] = v0",
        "b2[i0 + i1] = v0",
        "V6: b2[i0 + i1] writes elements twice",
    );
    refused(GATHER, "2*v0 of 3", "2*v0 of 4", "V4");
    refused(GATHER, "add(v1, v3): f16", "add(v1, v2): f16", "V3");
    refused(SCATTER, "2*b0[i0] of 4", "2*b0[i0] of 5", "V4");
    refused(
        SCATTER,
        "independent [1]",
        "independent [0]",
        "V6: b2[i1] writes elements of several points",
    );
    refused(SCATTER, "b2 = f32[8]", "b2 = f32[9]", "V8: b2[i1] is not set to zero as a whole");
    refused(SCATTER, "b2 = f32[8]", "b2 = bool[8]", "V3: scatter: dtype bool");
    refused(LOOP, "u8[512]", "u8[8]", "V10");
    refused(SORT, "b1[4] =", "b1[8] =", "V9");
}

#[test]
fn outputs_with_unwritten_elements_are_refused() {
    let halves = |second: &str| {
        format!(
            "b0 = argument 0: f32[2]\nb1 = f32[4]\nfirst over [2]\n  v0 = load b0[i0]\n  \
             b1[2*i0] = v0\nsecond over [2]\n  v0 = load b0[i0]\n  {second} = v0\noutputs: [b1]"
        )
    };
    KernelProgram::parse(&halves("b1[2*i0 + 1]")).unwrap();
    for second in ["b1[2*i0]", "b1[i0]"] {
        let error = KernelProgram::parse(&halves(second)).expect_err(second).to_string();
        assert!(
            error.contains("V8: it is not known that every element of b1 is written"),
            "{error}"
        );
    }
    let once = halves("b1[2*i0 + 1]").replace("second over [2]", "second over [1]");
    let error = KernelProgram::parse(&once).expect_err("three of four").to_string();
    assert!(error.contains("V8: b1 holds 3 of 4 elements"), "{error}");
}

#[test]
fn the_border_around_a_part_and_the_part_are_disjoint() {
    // 3 rows of 4 elements in 5 rows of 6: 7 elements before them, 2 in each gap, 7 after them.
    let padded = |gaps: &str| {
        format!(
            "b0 = argument 0: f32[12]\nb1 = f32[30]\nhead over [7]\n  v0 = 0.0:f32\n  b1[i0] = v0\n\
             gaps over [2, 2]\n  v0 = 0.0:f32\n  {gaps} = v0\n\
             tail over [7]\n  v0 = 0.0:f32\n  b1[23 + i0] = v0\n\
             inside over [3, 4]\n  v0 = load b0[4*i0 + i1]\n  b1[7 + 6*i0 + i1] = v0\noutputs: [b1]"
        )
    };
    KernelProgram::parse(&padded("b1[11 + 6*i0 + i1]")).unwrap();
    for gaps in
        ["b1[10 + 6*i0 + i1]", "b1[12 + 6*i0 + i1]", "b1[11 + 5*i0 + i1]", "b1[11 + 2*i0 + i1]"]
    {
        let error = KernelProgram::parse(&padded(gaps)).expect_err(gaps).to_string();
        assert!(error.contains("V8: it is not known that every element"), "{gaps}: {error}");
    }
}

//! Programs that violate one rule each.

use super::*;
use crate::ir::BufferKind;
use crate::{FusionOptions, Target, lower};
use girih_ir::{GraphBuilder, OpCode, Result};

/// A GEMM with an epilogue, and a reduction: a program to break.
fn program() -> Result<KernelProgram> {
    let mut b = GraphBuilder::default();
    let spec = TensorSpec::new([4, 4], DType::F32);
    let (x, y) = (b.input(spec.clone()), b.input(spec));
    let matmul = b.matmul(x, y)?;
    let (n, e) = (b.neg(matmul)?, b.exp(x)?);
    let both = b.add(n, e)?;
    let sum = b.sum(both, girih_ir::AxisSet::one(1), false)?;
    Ok(lower(&b.finish([sum]), FusionOptions::ALL, &Target::CPU).expect("the graph is primitive"))
}

#[track_caller]
fn check(rule: &str, damage: impl FnOnce(&mut KernelProgram)) {
    let mut program = program().unwrap();
    verify(&program).unwrap();
    damage(&mut program);
    let Err(err) = verify(&program) else { panic!("nothing is wrong with {program}") };
    assert!(err.reason.starts_with(rule), "{err}\n{program}");
}

#[test]
fn each_rule_detects_its_violation() {
    check("V1", |p| p.kernels[0].extents[0] = 0);
    check("V1", |p| p.kernels[0].extents[0] = usize::MAX);
    check("V2", |p| p.kernels[0].stores[0].value = Val(9));
    check("V2", |p| p.kernels[0].body.insts.rotate_left(1));
    check("V3", |p| {
        let exp = Inst::Op { code: OpCode::Exp, args: vec![Val(0)].into(), dtype: DType::F64 };
        p.kernels[0].body.push(exp);
    });
    check("V4", |p| p.kernels[1].accesses[0].offset = 1);
    check("V4", |p| p.kernels[1].accesses[0].dtype = DType::F64);
    check("V4", |p| {
        p.kernels[1].accesses[0].strides.pop();
    });
    check("V5", |p| match &mut p.kernels[0].core {
        Core::Gemm { lhs, rhs, .. } => std::mem::swap(lhs, rhs),
        core => unreachable!("{core:?}"),
    });
    check("V5", |p| match &mut p.kernels[0].core {
        Core::Gemm { dtype, .. } => *dtype = DType::F64,
        core => unreachable!("{core:?}"),
    });
    check("V5", |p| match &mut p.kernels[0].core {
        Core::Gemm { columns, .. } => *columns = 2,
        core => unreachable!("{core:?}"),
    });
    check("V6", |p| p.kernels[0].stores[0].access.strides[0] = 1);
    check("V6", |p| {
        let store = p.kernels[0].stores[0].clone();
        p.kernels[0].stores.push(store);
    });
    check("V7", |p| {
        let output = p.outputs[0].0 as usize;
        p.buffers[output].kind = BufferKind::Argument(0);
    });
    check("V8", |p| p.kernels.swap(0, 1));
    check("V8", |p| {
        p.kernels.remove(1);
    });
}

/// A kernel over rows with the local `b1`. Other kernels of the table follow it or precede it.
const LOCAL: &str = "\
pass over [2]
  local b1: 8 bytes a row
  first over [4]
    v0 = load b0[i0]
    b1[i0] = v0
  second over [4]
    v0 = load b1[i0]
    v1 = neg(v0): f32
    b2[i0] = v1
";

/// A kernel of each core that reads `b1`, and one that writes it; `b0` and `b2` to `b9` are other
/// buffers of the dtypes that the cores need.
const TOUCHING: [(&str, &str, &str); 7] = [
    (
        "map",
        "k over [4]\n  v0 = load b1[i0]\n  b3[i0] = v0\n",
        "k over [4]\n  v0 = load b0[i0]\n  b1[i0] = v0\n",
    ),
    (
        "reduce",
        "k over [2 | 2]\n  prologue:\n    v0 = load b1[2*i0 + i1]\n  reduce sum v0\n  \
         v0 = core: f32\n  b4[i0] = v0\n",
        "k over [4 | 1]\n  prologue:\n    v0 = load b0[i0]\n  reduce sum v0\n  v0 = core: f32\n  \
         b1[i0] = v0\n",
    ),
    (
        "gemm",
        "k over [2, 2 | 2]\n  matmul b1[2*i0 + i2] by b0[i1 + 2*i2]\n  v0 = core: f32\n  \
         b3[2*i0 + i1] = v0\n",
        "k over [2, 2 | 2]\n  matmul b0[2*i0 + i2] by b0[i1 + 2*i2]\n  v0 = core: f32\n  \
         b1[2*i0 + i1] = v0\n",
    ),
    (
        "scatter",
        "k over [4]\n  scatter_add + 1*b5[i0] of 4, independent []\n  v0 = load b1[i0]\n  \
         b3[0] = v0\n",
        "k over [4]\n  scatter_add + 1*b5[i0] of 4, independent []\n  v0 = load b0[i0]\n  \
         b1[0] = v0\n",
    ),
    (
        "library",
        "k over [2]\n  _, b6[2] = sort(result=0, size=0)(b1[2])\n",
        "k over [2]\n  b1[2], _ = sort(result=0, size=0)(b0[2])\n",
    ),
    (
        "control",
        "k over []\n  b3 = call(b1) in b7 {\n    b0 = argument 0: f32[4]\n    b1 = f32[4]\n    \
         k over [4]\n      v0 = load b0[i0]\n      b1[i0] = v0\n    outputs: [b1]\n  }\n",
        "k over []\n  b1 = call(b0) in b7 {\n    b0 = argument 0: f32[4]\n    b1 = f32[4]\n    \
         k over [4]\n      v0 = load b0[i0]\n      b1[i0] = v0\n    outputs: [b1]\n  }\n",
    ),
    (
        "rows",
        "k over [2]\n  one over [4]\n    v0 = load b1[i0]\n    b3[i0] = v0\n",
        "k over [2]\n  one over [4]\n    v0 = load b0[i0]\n    b1[i0] = v0\n",
    ),
];

/// The program of these kernels, which is not verified.
fn unverified(kernels: &[&str]) -> KernelProgram {
    let buffers = "b0 = argument 0: f32[4]\nb1 = f32[4]\nb2 = f32[4]\nb3 = f32[4]\nb4 = f32[2]\n\
                   b5 = argument 1: i64[4]\nb6 = i64[4]\nb7 = u8[256]\n";
    let text = format!("{buffers}{}outputs: [b2]", kernels.concat());
    KernelProgram::read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[track_caller]
fn violates(rule: &str, program: &KernelProgram) {
    let Err(err) = verify(program) else { panic!("nothing is wrong with {program}") };
    assert!(err.reason.contains(rule), "{err}\n{program}");
}

#[test]
fn a_kernel_of_any_core_that_touches_the_local_of_another_kernel_is_refused() {
    verify(&unverified(&[LOCAL])).unwrap();
    for (core, reads, writes) in TOUCHING {
        violates("V12: b1 is a local of another kernel", &unverified(&[LOCAL, reads]));
        violates("V12: b1 is a local of another kernel", &unverified(&[LOCAL, writes]));
        // Nothing has written the local yet.
        violates("V8: b1 holds 0 of 4 elements", &unverified(&[reads, LOCAL]));
        violates("V12: b1 is a local, but used by", &unverified(&[writes, LOCAL]));
        // Without the kernel over rows, the kernel that writes the buffer gives it memory.
        let alone = unverified(&[&LOCAL.replace("  local b1: 8 bytes a row\n", ""), reads]);
        verify(&alone).unwrap_or_else(|e| panic!("{core}: {e}\n{alone}"));
    }
}

#[test]
fn a_kernel_of_any_core_that_touches_no_buffer_of_the_program_is_refused() {
    for (core, reads, writes) in TOUCHING {
        for text in [reads, writes] {
            let without = LOCAL.replace("  local b1: 8 bytes a row\n", "");
            let mut program = unverified(&[if text == reads { &without } else { "" }, text]);
            program.outputs.clear();
            verify(&program).unwrap_or_else(|e| panic!("{core}: {e}\n{program}"));
            let kernel = program.kernels.last_mut().unwrap();
            let named = kernel.buffers_mut().count();
            assert!(named > 1, "{core}");
            for at in 0..named {
                let mut broken = program.clone();
                let kernel = broken.kernels.last_mut().unwrap();
                *kernel.buffers_mut().nth(at).unwrap() = BufferId(99);
                violates("V4: the program has no buffer", &broken);
            }
        }
    }
}

#[test]
fn a_local_passes_rows_from_one_part_to_a_later_one() {
    let local = "pass over [2]\n  local b1: 8 bytes a row\n";
    let stored = "  first over [4]\n    v0 = load b0[i0]\n    b1[i0] = v0\n";
    let other = "  second over [4]\n    v0 = load b0[i0]\n    b2[i0] = v0\n";
    let read = "  third over [4]\n    v0 = load b1[i0]\n    b2[i0] = v0\n";
    verify(&unverified(&[local, stored, read])).unwrap();
    violates("V12: no part reads the local b1", &unverified(&[local, stored, other]));
    violates("V12: no part reads the local b1", &unverified(&[local, read, stored]));
    violates("V12: no part writes the local b1", &unverified(&[local, other]));
    let twice = "  local b1: 8 bytes a row\n";
    violates("V12: b1 is a local twice", &unverified(&[local, twice, stored, read]));
    let argument = "pass over [2]\n  local b0: 8 bytes a row\n";
    violates("V12: the local b0 is an argument", &unverified(&[argument, stored, read]));
    let mut returned = unverified(&[local, stored, read]);
    returned.outputs.push(BufferId(1));
    violates("V12: b1 is a local of another kernel", &returned);
    // One row is no exception: independent parts would run as maps of their own.
    let one = ["pass over [1]\n  local b1: 16 bytes a row\n", stored, other];
    violates("V12: no part reads the local b1", &unverified(&one));
}

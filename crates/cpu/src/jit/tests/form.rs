//! Checks generated code by disassembly: instructions are those of the level, and a few loops have
//! the expected instructions.

use super::*;
use girih_ir::golden;

/// The instructions before the constants, one per line; checks that they belong to the level.
pub(super) fn disassembly(code: &[u8]) -> String {
    let mut text = String::new();
    for (inst, line) in crate::disassembly::x86::disassemble(code) {
        text += &format!("{line}\n");
        assert!(!inst.is_invalid(), "the last of\n{text}");
        for feature in inst.cpuid_features() {
            let level = super::super::function::level();
            assert!(allowed(level, *feature), "{feature:?} in the last of\n{text}");
        }
    }
    text
}

/// The instructions of a whole iteration.
pub(super) fn iteration(code: &[u8]) -> String {
    let text = disassembly(code);
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.iter().position(|l| l.contains(" jbe ")).expect("a loop");
    let (_, target) = lines[end].rsplit_once(' ').expect("a target");
    let target = u64::from_str_radix(target.trim_end_matches('h'), 16).expect("an address");
    let start = lines.iter().position(|l| l.trim_start().starts_with(&format!("{target:x} ")));
    let line = |l: &&str| l.trim_start().split_once(' ').expect("an address").1.to_owned();
    let loop_ = &lines[start.expect("the loop's start")..=end];
    loop_.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// True if every machine of a level has the feature.
fn allowed(isa: Isa, feature: iced_x86::CpuidFeature) -> bool {
    use iced_x86::CpuidFeature::*;
    let avx2 = matches!(
        feature,
        INTEL8086 | INTEL386 | SSE | X64 | MULTIBYTENOP | AVX | AVX2 | F16C | FMA
    );
    let avx512 = matches!(feature, AVX512F | AVX512DQ | AVX512BW | AVX512VL | BMI2);
    avx2 || avx512 && isa == Isa::Avx512
}

/// `h = (x + y) / 2; if h > 1/2 { h } else { 1/2 }` of f32 and f16.
fn bounded_mean() -> Kernel {
    let mut maker = Maker::new(1, 64);
    let x = maker.load(DType::F32, Walk::Dense, 0);
    let y = maker.load(DType::F16, Walk::Dense, 0);
    let y = maker.op(OpCode::Cast, &[y], DType::F32);
    let half = maker.push(Inst::Literal(Literal::from_f64(DType::F32, 0.5)), DType::F32);
    let sum = maker.op(OpCode::Add, &[x, y], DType::F32);
    let scaled = maker.op(OpCode::Mul, &[sum, half], DType::F32);
    let positive = maker.op(OpCode::Gt, &[scaled, half], DType::Bool);
    let out = maker.op(OpCode::Where, &[positive, scaled, half], DType::F32);
    maker.store(out);
    maker.kernel
}

#[test]
fn the_loop_of_a_sum_with_a_constant_under_a_bound() {
    if Isa::best() < Isa::Avx512 || !super::super::function::enabled() {
        return;
    }
    golden!(
        "jit/the_loop_of_a_sum_with_a_constant_under_a_bound.txt",
        disassembly(&code_of(&bounded_mean()))
    );
}

#[test]
fn loops_of_either_level_and_of_wide_lanes() {
    if Isa::best() < Isa::Avx512 || !super::super::function::enabled() {
        return;
    }
    let wide = || {
        let mut maker = Maker::new(1, 64);
        let x = maker.load(DType::F64, Walk::Dense, 0);
        let i = maker.load(DType::I32, Walk::Dense, 0);
        let positive = maker.op(OpCode::Gt, &[i, i], DType::Bool);
        let y = maker.op(OpCode::Cast, &[i], DType::F64);
        let sum = maker.op(OpCode::Add, &[x, y], DType::F64);
        let out = maker.op(OpCode::Where, &[positive, sum, x], DType::F64);
        let out = maker.op(OpCode::Cast, &[out], DType::F32);
        maker.store(out);
        maker.kernel
    };
    golden!("jit/wide_lanes_on_avx512.txt", iteration(&code_of(&wide())));
    LEVEL.set(Some(Isa::Avx2));
    golden!("jit/a_bounded_mean_on_avx2.txt", iteration(&code_of(&bounded_mean())));
    golden!("jit/wide_lanes_on_avx2.txt", iteration(&code_of(&wide())));
    LEVEL.set(None);
}

#[test]
fn every_instruction_of_every_op_decodes() {
    at_each_level(|| {
        for (code, operands, to) in known() {
            let mut maker = Maker::new(2, 64);
            let walks = [Walk::Dense, Walk::Column, Walk::Row];
            let args = operands.iter().zip(walks).map(|(&d, walk)| maker.load(d, walk, 0));
            let args: Vec<Val> = args.collect();
            let y = maker.op(code, &args, to);
            maker.store(y);
            let text = disassembly(&code_of(&maker.kernel));
            // The callee-saved registers are restored, and transitions to SSE code are not slow.
            assert!(text.contains("vzeroupper"), "{text}");
        }
    });
}

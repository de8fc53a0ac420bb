//! Checks generated code by disassembly: instructions are those of the level, and a few loops have
//! the expected instructions.

use super::*;

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
    insta::assert_snapshot!(disassembly(&code_of(&bounded_mean())), @r"
      0 push rsi
      1 push rdi
      2 push rdx
      3 push rcx
      4 vbroadcastss zmm30,[124h] ; 0.5
      e mov rdx,[rdi]
     15 mov rcx,[rdi+8]
     1c mov r8,[rdi+10h]
     23 xor rax,rax
     26 sub rsi,10h
     2a jb 0000000000000074h
     30 nop [rax+rax]
     39 nop [rax]
     40 vcvtph2ps zmm0,[rdx+rax*2]
     47 vmovups zmm1,[rcx+rax*4]
     4e vaddps zmm0,zmm1,zmm0
     54 vmulps zmm0,zmm0,zmm30
     5a vmaxps zmm0,zmm0,zmm30
     60 vmovups [r8+rax*4],zmm0
     67 add rax,10h
     6b cmp rax,rsi
     6e jbe 0000000000000040h
     74 add rsi,10h
     78 sub rsi,rax
     7b je 00000000000000B9h
     81 mov rdi,0FFFFFFFFFFFFFFFFh
     88 bzhi edi,edi,esi
     8d kmovd k1,edi
     92 vcvtph2ps zmm0{k1}{z},[rdx+rax*2]
     99 vmovups zmm1{k1}{z},[rcx+rax*4]
     a0 vaddps zmm0,zmm1,zmm0
     a6 vmulps zmm0,zmm0,zmm30
     ac vmaxps zmm0,zmm0,zmm30
     b2 vmovups [r8+rax*4]{k1},zmm0
     b9 mov rax,[rsp+8]
     c1 sub rax,1
     c5 je 000000000000011Ah
     cb mov [rsp+8],rax
     d3 mov rdi,[rsp+10h]
     db mov rsi,[rsp]
     e3 mov rax,[rsi]
     ea add [rdi],rax
     f1 mov rax,[rsi+8]
     f8 add [rdi+8],rax
     ff mov rax,[rsi+10h]
    106 add [rdi+10h],rax
    10d mov rsi,[rsp+18h]
    115 jmp 000000000000000Eh
    11a add rsp,20h
    11e vzeroupper
    121 ret
    ");
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
    insta::assert_snapshot!(iteration(&code_of(&wide())), @r"
    vmovups ymm0,[rdx+rax*4]
    vpcmpltd k2,ymm0,ymm0
    vcvtdq2pd zmm0,ymm0
    vmovupd zmm1,[rcx+rax*8]
    vaddpd zmm0,zmm1,zmm0
    vblendmpd zmm0{k2},zmm1,zmm0
    vcvtpd2ps ymm0,zmm0
    vmovups [r8+rax*4],ymm0
    add rax,8
    cmp rax,rsi
    jbe 0000000000000040h
    ");
    LEVEL.set(Some(Isa::Avx2));
    insta::assert_snapshot!(iteration(&code_of(&bounded_mean())), @r"
    vcvtph2ps ymm0,[rdx+rax*2]
    vmovups ymm1,[r8+rax*4]
    vaddps ymm0,ymm1,ymm0
    vmulps ymm0,ymm0,ymm14
    vmaxps ymm0,ymm0,ymm14
    vmovups [r9+rax*4],ymm0
    add rax,8
    cmp rax,rsi
    jbe 0000000000000040h
    ");
    insta::assert_snapshot!(iteration(&code_of(&wide())), @r"
    vmovups xmm0,[rdx+rax*4]
    vpcmpgtd xmm1,xmm0,xmm0
    vpmovsxdq ymm1,xmm1
    vcvtdq2pd ymm0,xmm0
    vmovups ymm2,[r8+rax*8]
    vaddpd ymm0,ymm2,ymm0
    vblendvpd ymm0,ymm2,ymm0,ymm1
    vcvtpd2ps xmm0,ymm0
    vmovups [r9+rax*4],xmm0
    add rax,4
    cmp rax,rsi
    jbe 0000000000000040h
    ");
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

//! Non-temporal stores.

use super::super::{allocate::allocate, avx512, lower::lower};
use super::*;
use girih_exec::{Chain, ChainOp, Def};

/// `x + y`, and `(x + y) * y` of f64.
fn sums(dtype: DType, streamed: bool) -> Chain {
    let input = Def::Input { dtype, step: 1, beside: None };
    let op = |code, args: [u16; 2]| {
        let op = ChainOp::Op(code, dtype);
        Def::Op { op, args: SmallVec::from_slice(&args), dtype }
    };
    let defs = vec![input.clone(), input, op(OpCode::Add, [0, 1]), op(OpCode::Mul, [2, 1])];
    Chain { defs, outputs: vec![2, 3], fold: None, streamed }
}

#[test]
fn streaming_stores_give_the_same_results_at_any_alignment() {
    if !super::super::function::enabled() {
        return;
    }
    for n in [0, 1, 15, 16, 17, 64, 1000] {
        for (input, output) in [(0, 0), (0, 4), (1, 0), (4, 4)] {
            let mut memory = vec![vec![0f32; n + 32]; 4];
            // From the start of a cache line.
            let start = |m: &mut Vec<f32>, at: usize| {
                let line = m.as_ptr().align_offset(64);
                m[line + at..].as_mut_ptr()
            };
            let [x, y, sum, product] = [(0, input), (1, input), (2, output), (3, output)]
                .map(|(i, at)| start(&mut memory[i], at));
            for i in 0..n {
                // SAFETY: each has room for `n` elements after the offset.
                unsafe { (*x.add(i), *y.add(i)) = (i as f32 * 0.3, 7.0 - i as f32) };
            }
            let function = crate::jit::compile(&sums(DType::F32, true), "sums").unwrap();
            // SAFETY: as above; all are aligned to their elements and do not overlap.
            unsafe {
                function.run(&[x, y, sum, product].map(|p| p.cast()), n);
                for i in 0..n {
                    let expected = *x.add(i) + *y.add(i);
                    assert_eq!((*sum.add(i), *product.add(i)), (expected, expected * *y.add(i)));
                }
                // In place.
                let expected: Vec<f32> = (0..n).map(|i| *sum.add(i)).collect();
                function.run(&[x, y, x, product].map(|p| p.cast()), n);
                assert_eq!((0..n).map(|i| *x.add(i)).collect::<Vec<_>>(), expected);
            }
        }
    }
}

#[test]
fn streaming_functions_use_nontemporal_stores_and_a_fence() {
    if Isa::best() < Isa::Avx512 || !super::super::function::enabled() {
        return;
    }
    for (dtype, store) in [(DType::F32, "vmovntps"), (DType::F64, "vmovntpd")] {
        let program = lower(&sums(dtype, true)).unwrap();
        let allocated = allocate(&program, &avx512::registers(&program)).unwrap();
        let text = form::disassembly(&avx512::emit(&program, &allocated, true).unwrap());
        assert_eq!(text.matches(store).count(), 2, "{text}");
        assert_eq!(text.matches("sfence").count(), 1, "{text}");
        let text = form::disassembly(&avx512::emit(&program, &allocated, false).unwrap());
        assert!(!text.contains("vmovnt") && !text.contains("sfence"), "{text}");
    }
}

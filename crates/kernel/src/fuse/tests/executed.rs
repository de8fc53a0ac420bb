//! Fused and unfused programs on the portable executor give the same bits, also those of sums and
//! products: the tree by which a reduction combines its elements depends on their number only
//! ([`crate::target::ReductionOrder`]).

use super::eval::Data;
use super::*;
use crate::exec::{Bindings, Prepared, Scratch};
use crate::ir::{BufferKind, Program};
use girih_ir::Literal;
use girih_ir::testing::graph_of_floats;
use proptest::prelude::*;

/// Runs a program with f64 and i64 arguments; returns the words of its outputs.
pub(super) fn run(program: &Program, arguments: &[Data]) -> Vec<Vec<u64>> {
    let words = |b: &crate::ir::Buffer| -> Vec<u64> {
        match b.kind {
            BufferKind::Argument(i) => {
                arguments[i].iter().map(|v| Literal::from_f64(b.dtype, *v).bits).collect()
            }
            BufferKind::Computed => vec![u64::MAX; b.size_bytes().div_ceil(8)],
        }
    };
    let mut memory: Vec<Vec<u64>> = program.buffers.iter().map(words).collect();
    let buffers: Vec<*mut u8> = memory.iter_mut().map(|m| m.as_mut_ptr().cast()).collect();
    // A scalar's bits, or a random leaf's key: any value will do.
    let scalar = |a: &Data| [a.first().copied().unwrap_or(0.0).to_bits(), 0];
    let scalars: Vec<[u64; 2]> = arguments.iter().map(scalar).collect();
    let mut scratch = Scratch::new();
    for kernel in &program.kernels {
        let prepared = Prepared::new(kernel);
        let lines = prepared.workspace_bytes().div_ceil(64) + 1;
        let mut workspace = vec![0u64; lines * 8];
        let start = workspace.as_mut_ptr().cast::<u8>();
        let workspace = start.wrapping_add(start.align_offset(64));
        let bindings = Bindings { buffers: &buffers, arguments: &scalars, workspace };
        // SAFETY: the buffers have the program's sizes, are 8-aligned and distinct, and only this
        // thread uses them; the workspace is long enough from its first aligned byte on.
        unsafe { prepared.run(&bindings, &mut scratch) }.expect("all indices are in range");
    }
    program.outputs.iter().map(|o| memory[o.0 as usize].clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fusing_changes_no_bit(
        choices in proptest::collection::vec(any::<u16>(), 40..160),
        bits in 0..=FusionOptions::ALL.bits(),
    ) {
        let (graph, arguments) = graph_of_floats(&choices);
        let plain = lower(&graph, FusionOptions::NONE, &Target::CPU).unwrap();
        let expected = run(&plain, &arguments);
        for options in [FusionOptions::ALL, FusionOptions::from_bits(bits)] {
            let program = lower(&graph, options, &Target::CPU).unwrap();
            let got = run(&program, &arguments);
            prop_assert_eq!(got, expected.clone(), "{:?}\n{}\n{}\n{}", options, graph, plain, program);
        }
    }
}

//! Fused and unfused programs on the portable executor give the same bits, also those of sums and
//! products: the tree by which a reduction combines its elements depends on their number only
//! ([`crate::target::ReductionOrder`]).

use super::eval::Data;
use super::*;
use crate::exec::run_program;
use crate::ir::{BufferKind, Program};
use girih_ir::Literal;
use girih_ir::testing::graph_of_floats;
use proptest::prelude::*;

/// Runs a program with arguments that are real numbers; returns the bytes of its outputs.
pub(super) fn run(program: &Program, arguments: &[Data]) -> Vec<Vec<u8>> {
    // An argument of no buffer is a run-time scalar, or a random key, for which any value will do.
    let dtype = |position: usize| {
        let buffer = program.buffers.iter().find(|b| b.kind == BufferKind::Argument(position));
        buffer.map_or(DType::F64, |b| b.dtype)
    };
    let bytes = |(position, values): (usize, &Data)| -> Vec<u8> {
        let dtype = dtype(position);
        let literal = |&v: &f64| Literal::from_f64(dtype, v).bits.to_le_bytes();
        values.iter().flat_map(|v| literal(v).into_iter().take(dtype.size())).collect()
    };
    let buffers: Vec<Vec<u8>> = arguments.iter().enumerate().map(bytes).collect();
    let scalar = |a: &Data| [a.first().copied().unwrap_or(0.0).to_bits(), 0];
    let scalars: Vec<[u64; 2]> = arguments.iter().map(scalar).collect();
    run_program(program, &buffers, &scalars).expect("all indices are in range")
}

/// Runs a program as [`run`]; returns its outputs, which are f64.
pub(super) fn run_to_f64(program: &Program, arguments: &[Data]) -> Vec<Data> {
    let number = |word: &[u8]| f64::from_le_bytes(word.try_into().expect("eight bytes"));
    let numbers = |bytes: Vec<u8>| bytes.chunks(8).map(number).collect();
    run(program, arguments).into_iter().map(numbers).collect()
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

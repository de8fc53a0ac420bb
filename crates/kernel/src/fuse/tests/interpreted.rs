//! Random graphs: programs with every set of options compute the bits that the graph's evaluator
//! does.

use super::eval::{self, Data};
use super::*;
use crate::verify::verify;
use girih_ir::testing::graph_of_floats;
use proptest::prelude::*;

fn same(a: &[Data], b: &[Data]) -> bool {
    let bits = |d: &Data| d.iter().map(|v| (v.is_nan(), v.to_bits())).collect::<Vec<_>>();
    let equal = |(a, b): (&Data, &Data)| {
        bits(a).iter().zip(bits(b)).all(|(a, b)| *a == b || (a.0 && b.0)) && a.len() == b.len()
    };
    a.len() == b.len() && a.iter().zip(b).all(equal)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_fusion_computes_what_the_graph_says(
        choices in proptest::collection::vec(any::<u16>(), 40..160),
        bits in 0..=FusionOptions::ALL.bits(),
    ) {
        let (graph, arguments) = graph_of_floats(&choices);
        let expected = eval::graph(&graph, &arguments);
        for options in [FusionOptions::ALL, FusionOptions::NONE, FusionOptions::from_bits(bits)] {
            let program = lower(&graph, options, &Target::CPU).unwrap();
            verify(&program).unwrap();
            prop_assert_eq!(super::dead::unread(&program), [], "{}\n{}", graph, program);
            let got = eval::program(&program, &arguments);
            prop_assert!(same(&got, &expected), "{options:?}\n{graph}\n{program}\n{got:?}\n{expected:?}");
        }
    }
}

//! Fused and unfused programs on the portable executor give the same bits, also those of sums and
//! products: the tree by which a reduction combines its elements depends on their number only
//! ([`girih_kernel::target::ReductionOrder`]).

use super::*;
use girih_ir::testing::graph_of_floats;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fusing_changes_no_bit(
        choices in proptest::collection::vec(any::<u16>(), 40..160),
        bits in 0..=FusionOptions::ALL.bits(),
    ) {
        let (graph, arguments) = graph_of_floats(&choices);
        let plain = lowered(&graph, FusionOptions::NONE);
        let expected = run(&plain, &arguments);
        for options in [FusionOptions::ALL, FusionOptions::from_bits(bits)] {
            let program = lowered(&graph, options);
            let got = run(&program, &arguments);
            prop_assert_eq!(got, expected.clone(), "{:?}\n{}\n{}\n{}", options, graph, plain, program);
        }
    }
}

/// Fusion within kernels, but not of kernels with each other.
const VERTICAL: FusionOptions =
    FusionOptions { rows: false, matmul_prologue: false, horizontal: false, ..FusionOptions::ALL };

/// Fails unless fusing kernels with each other gives that number of kernels, and the bits of the
/// kernels that are not fused.
#[track_caller]
fn check(graph: &Graph, kernels: usize) {
    let data = |(n, id): (usize, NodeId)| -> Data {
        let number = |i: usize| ((i + n) * 7919 % 1000) as f64 / 500.0 - 1.0;
        (0..graph.spec(id).numel()).map(number).collect()
    };
    let arguments: Vec<Data> = graph.arguments().enumerate().map(data).collect();
    let (fused, unfused) = (lowered(graph, FusionOptions::ALL), lowered(graph, VERTICAL));
    assert_eq!(fused.kernels.len(), kernels, "{fused}");
    assert!(unfused.kernels.len() > kernels, "{unfused}");
    assert_eq!(run(&fused, &arguments), run(&unfused, &arguments), "{fused}");
}

#[test]
fn attention_by_rows_has_the_bits_of_its_parts() {
    // Rows that make up one group, several groups, and groups of two sizes.
    for (batch, queries, keys) in [(1, 40, 33), (3, 200, 150), (2, 131, 3000)] {
        let shapes = [[batch, queries, 3], [batch, keys, 3], [batch, keys, 2]];
        let g = graph(|b| {
            let [q, k, v] = shapes.map(|shape| b.input(TensorSpec::new(shape, DType::F64)));
            let k = b.transpose(k)?;
            let scores = b.matmul(q, k)?;
            let max = b.max(scores, AxisSet::one(2), true)?;
            let shifted = b.sub(scores, max)?;
            let e = b.exp(shifted)?;
            let sum = b.sum(e, AxisSet::one(2), true)?;
            let p = b.div(e, sum)?;
            let y = b.matmul(p, v)?;
            Ok(vec![b.neg(y)?])
        });
        check(&g, 1);
    }
}

#[test]
fn updates_of_many_parameters_have_the_bits_of_their_kernels() {
    let shapes = [[3, 5], [1, 1], [300, 100], [7, 64], [1, 30]];
    let g = graph(|b| {
        let mut outputs = Vec::new();
        for shape in shapes {
            let [p, g, m] = [(); 3].map(|()| b.input(TensorSpec::new(shape, DType::F64)));
            let decay = b.scalar_like(m, 0.9);
            let decayed = b.mul(m, decay)?;
            let m = b.add(decayed, g)?;
            outputs.extend([b.sub(p, m)?, m]);
        }
        Ok(outputs)
    });
    check(&g, 1);
}

#[test]
fn a_small_kernel_that_reads_the_result_of_another_runs_after_it() {
    let g = graph(|b| {
        let x = b.input(TensorSpec::new([10, 10], DType::F32));
        let y = b.exp(x)?;
        let t = b.transpose(y)?;
        Ok(vec![y, b.add(x, t)?])
    });
    check(&g, 1);
}

#[test]
fn a_gemm_computes_its_operands_where_it_reads_views_of_them() {
    let g = graph(|b| {
        let spec = |shape: &[usize]| TensorSpec::new(shape, DType::F32);
        let (x, w) = (b.input(spec(&[2, 3, 8])), b.input(spec(&[6, 8])));
        let (x, w) = (b.abs(x)?, b.abs(w)?);
        let (x, w) = (b.reshape(x, [6, 8])?, b.transpose(w)?);
        Ok(vec![b.matmul(x, w)?])
    });
    check(&g, 1);
}

//! One graph per reason for a refused fusion.

use super::*;
use crate::target::RowLimits;

/// The reasons of vertical fusion, by op name.
#[track_caller]
fn check(graph: &Graph, expected: &[(&str, Refusal)]) {
    let refused = refusals(graph, VERTICAL);
    let vertical = refused.iter().copied().filter(|(_, reason)| *reason != Refusal::Disabled);
    assert_eq!(vertical.collect::<Vec<_>>(), expected);
}

#[track_caller]
fn check_with(graph: &Graph, options: FusionOptions, expected: &[(&str, Refusal)]) {
    assert_eq!(refusals(graph, options), expected);
}

/// The reasons given, by op name.
fn refusals(graph: &Graph, options: FusionOptions) -> Vec<(&'static str, Refusal)> {
    let explained = lower_explained(graph, options, &Target::CPU).unwrap();
    assert_eq!(explained.program, lower(graph, options, &Target::CPU).unwrap());
    let named = explained.refusals.iter().map(|r| (graph.node(r.node).op.name(), r.reason));
    named.collect()
}

#[test]
fn a_disabled_fusion_says_so() {
    let g = graph(|b| {
        let x = input(b, [4, 4]);
        let e = b.exp(x)?;
        let t = b.transpose(e)?;
        let n = b.neg(t)?;
        let s = b.sum(n, AxisSet::all(2), false)?;
        Ok([b.abs(s)?])
    });
    let disabled = ["exp", "permute", "neg", "reduce_sum"].map(|op| (op, Refusal::Disabled));
    check_with(&g, FusionOptions::NONE, &disabled);
    check(&g, &[]);
}

#[test]
fn a_disabled_pass_over_kernels_names_each_fusion_it_would_make() {
    let norm = |size: usize| {
        graph(|b| {
            let x = input(b, [size, size]);
            let m = b.max(x, AxisSet::one(1), true)?;
            let d = b.sub(x, m)?;
            Ok([b.exp(d)?])
        })
    };
    let rows = FusionOptions { rows: false, ..FusionOptions::ALL };
    let vertical = ("reduce_max", Refusal::Space);
    check_with(&norm(512), FusionOptions::ALL, &[vertical]);
    check_with(&norm(512), rows, &[("reduce_max", Refusal::Disabled), vertical]);
    // Horizontal fusion fuses small kernels all the same.
    check_with(&norm(64), rows, &[vertical]);

    let scaled = graph(|b| {
        let (x, w, s) = (input(b, [64, 64]), input(b, [64, 64]), input(b, [64]));
        let w = b.mul(w, s)?;
        Ok([b.matmul(x, w)?])
    });
    let prologue = FusionOptions { matmul_prologue: false, ..FusionOptions::ALL };
    check_with(&scaled, FusionOptions::ALL, &[]);
    check_with(&scaled, prologue, &[("mul", Refusal::Disabled), ("mul", Refusal::Memory)]);

    let updates = graph(|b| {
        let (x, y) = (input(b, [64]), input(b, [32]));
        Ok([b.exp(x)?, b.exp(y)?])
    });
    let horizontal = FusionOptions { horizontal: false, ..FusionOptions::ALL };
    check_with(&updates, FusionOptions::ALL, &[]);
    check_with(&updates, horizontal, &[("exp", Refusal::Disabled)]);

    // Without vertical fusion there are no passes over kernels, so nothing else is refused.
    let elementwise = FusionOptions { elementwise: false, ..FusionOptions::ALL };
    check_with(&updates, elementwise, &[]);
}

#[test]
fn an_output_consumed_over_another_space_is_stored_first() {
    let g = graph(|b| {
        let x = input(b, [4, 4]);
        let e = b.exp(x)?;
        let t = b.transpose(e)?;
        Ok([e, b.neg(t)?])
    });
    check(&g, &[("exp", Refusal::Output)]);
}

#[test]
fn an_output_consumed_in_order_is_stored_on_the_way() {
    let g = graph(|b| {
        let x = input(b, [4, 4]);
        let e = b.exp(x)?;
        let r = b.reshape(e, [16])?;
        Ok([e, b.neg(r)?])
    });
    check(&g, &[]);
    assert_eq!(names(&g), ["fused_exp_neg"]);
}

#[test]
fn operands_of_gemms_live_in_memory() {
    let g = graph(|b| {
        let x = input(b, [4, 4]);
        let e = b.exp(x)?;
        Ok([b.matmul(e, x)?])
    });
    check(&g, &[("exp", Refusal::Memory)]);
}

#[test]
fn an_expensive_value_of_several_kernels_is_stored_and_a_cheap_one_recomputed() {
    let shared = |code: OpCode| {
        graph(|b| {
            let x = input(b, [4]);
            let e = b.op(code, &[x])?;
            let all = AxisSet::all(1);
            Ok([b.sum(e, all, false)?, b.max(e, all, false)?])
        })
    };
    check(&shared(OpCode::Exp), &[("exp", Refusal::Shared)]);
    check(&shared(OpCode::Neg), &[]);
}

#[test]
fn the_first_of_several_kernels_stores_what_it_computes_in_order() {
    let g = graph(|b| {
        let x = input(b, [4]);
        let e = b.exp(x)?;
        Ok([b.neg(e)?, b.abs(e)?])
    });
    check(&g, &[]);
    assert_eq!(names(&g), ["fused_exp_neg", "abs"]);
    // The layer's kernel stores the pre-activation that the gradient needs.
    let g = graph(|b| {
        let (x, w, bias) = (input(b, [8, 4]), input(b, [4, 6]), input(b, [6]));
        let y = b.matmul(x, w)?;
        let y = b.add(y, bias)?;
        let r = relu(b, y)?;
        let t = b.transpose(r)?;
        let square = b.matmul(t, r)?;
        let mask = b.gt(y, r)?;
        Ok([square, mask])
    });
    check(&g, &[("maximum", Refusal::Memory)]);
    assert_eq!(names(&g), ["fused_matmul_add_relu", "matmul", "gt"]);
}

#[test]
fn a_random_leaf_of_several_kernels_is_drawn_once() {
    let g = graph(|b| {
        let r = b.leaf(OpCode::RandomUniform.into(), TensorSpec::new([4], DType::F32));
        let s = b.sum(r, AxisSet::all(1), false)?;
        Ok([s, b.neg(r)?])
    });
    check(&g, &[("random_uniform", Refusal::Shared)]);
}

#[test]
fn an_expensive_value_is_not_recomputed_by_broadcasting() {
    let g = graph(|b| {
        let (x, y) = (input(b, [8, 4]), input(b, [4]));
        let e = b.exp(y)?;
        let n = b.neg(e)?;
        Ok([b.add(x, n)?])
    });
    check(&g, &[("exp", Refusal::Broadcast)]);
    assert_eq!(names(&g), ["exp", "fused_neg_add"]);
}

#[test]
fn an_expensive_value_is_not_computed_for_each_of_two_views() {
    let g = graph(|b| {
        let x = input(b, [4, 4]);
        let e = b.exp(x)?;
        let t = b.transpose(e)?;
        Ok([b.add(e, t)?])
    });
    check(&g, &[("exp", Refusal::TwoViews)]);
    assert_eq!(names(&g), ["exp", "fused_add"].map(|n| n.trim_start_matches("fused_")));
}

#[test]
fn a_reduction_is_consumed_over_its_own_space_only() {
    let g = graph(|b| {
        let x = input(b, [4, 4]);
        let s = b.sum(x, AxisSet::one(1), true)?;
        Ok([b.div(x, s)?])
    });
    check(&g, &[("reduce_sum", Refusal::Space)]);
}

#[test]
fn a_kernel_has_one_core() {
    let g = graph(|b| {
        let (x, y) = (input(b, [4, 4]), input(b, [4, 4]));
        let (s, m) = (b.sum(x, AxisSet::one(1), false)?, b.max(y, AxisSet::one(1), false)?);
        Ok([b.div(s, m)?])
    });
    check(&g, &[("reduce_sum", Refusal::CoreTaken)]);
    assert_eq!(names(&g), ["reduce_sum", "fused_reduce_max_div"]);
}

#[test]
fn a_reshape_without_a_common_grid_goes_through_memory() {
    let g = graph(|b| {
        let x = input(b, [2, 3]);
        let t = b.transpose(x)?;
        let e = b.neg(t)?;
        let r = b.reshape(e, [2, 3])?;
        Ok([b.add(r, x)?])
    });
    check(&g, &[("neg", Refusal::Reshape)]);
}

#[test]
fn an_epilogue_may_split_the_columns() {
    let g = graph(|b| {
        let (x, w, bias) = (input(b, [8, 4]), input(b, [4, 6]), input(b, [2, 1]));
        let y = b.matmul(x, w)?;
        let y = b.reshape(y, [8, 2, 3])?;
        Ok([b.add(y, bias)?])
    });
    check(&g, &[]);
    assert_eq!(names(&g), ["fused_matmul_add"]);
}

#[test]
fn a_kernel_has_a_largest_size() {
    let g = graph(|b| {
        let mut x = input(b, [4]);
        for _ in 0..150 {
            x = b.neg(x)?;
        }
        Ok([x])
    });
    check(&g, &[("neg", Refusal::KernelSize)]);
}

#[test]
fn what_is_written_in_parts_is_complete_before_it_is_read() {
    let g = graph(|b| {
        let (x, y) = (input(b, [4]), input(b, [4]));
        let both = b.concat(&[x, y], 0)?;
        Ok([b.exp(both)?])
    });
    check(&g, &[("concat", Refusal::Parts)]);
    assert_eq!(names(&g), ["concat", "concat", "exp"]);
}

/// The fusions that passes over kernels refuse: the value, the consumer and the reason.
fn of_kernels(graph: &Graph, options: FusionOptions, target: &Target) -> Vec<String> {
    let explained = lower_explained(graph, options, target).unwrap();
    let passes: Vec<usize> = explained.refusals.iter().map(|r| r.reason.pass()).collect();
    assert!(passes.is_sorted(), "{passes:?}");
    let name = |id: NodeId| graph.node(id).op.name();
    let later = explained.refusals.iter().filter(|r| r.reason.is_of_kernels());
    let line = |r: &Refused| {
        let consumer = r.consumer.expect("these passes know the consumer");
        format!("{} by {}: {}", name(r.node), name(consumer), r.reason.code())
    };
    later.map(line).collect()
}

#[test]
fn kernels_without_common_rows_or_with_long_or_few_rows_do_not_run_row_by_row() {
    let refused = |shape: [usize; 2], axis: usize| {
        let g = graph(|b| {
            let x = input(b, shape);
            let max = b.max(x, AxisSet::one(axis), true)?;
            Ok([b.sub(x, max)?])
        });
        of_kernels(&g, FusionOptions::ALL, &Target::CPU)
    };
    let one = |reason: &str| vec![format!("reduce_max by sub: {reason}")];
    assert_eq!(refused([100, 100], 0), one("rows"));
    assert_eq!(refused([100, 100_000], 1), one("row_length"));
    assert_eq!(refused([4, 50_000], 1), one("few_rows"));
    assert!(refused([100, 100], 1).is_empty());
    // A sum over everything has no rows, so it is no candidate.
    let g = graph(|b| {
        let x = input(b, [100, 100]);
        let max = b.max(x, AxisSet::one(1), false)?;
        Ok([b.sum(max, AxisSet::one(0), false)?, max])
    });
    assert!(of_kernels(&g, FusionOptions::ALL, &Target::CPU).is_empty());
}

#[test]
fn a_refusal_is_removed_if_a_later_pass_fuses_the_two_kernels() {
    let g = graph(|b| {
        let x = input(b, [10, 10]);
        let y = b.exp(x)?;
        let t = b.transpose(y)?;
        Ok([y, b.add(x, t)?])
    });
    let row_by_row = FusionOptions { horizontal: false, ..FusionOptions::ALL };
    assert_eq!(of_kernels(&g, row_by_row, &Target::CPU), ["exp by add: rows"]);
    assert!(of_kernels(&g, FusionOptions::ALL, &Target::CPU).is_empty());
}

#[test]
fn a_kernel_over_rows_has_a_highest_number_of_parts() {
    let g = graph(|b| {
        let x = input(b, [100, 100]);
        Ok([softmax(b, x)?])
    });
    let of = |max_parts| {
        let rows = RowLimits { max_parts, ..Target::CPU.rows };
        of_kernels(&g, FusionOptions::ALL, &Target { rows, ..Target::CPU })
    };
    assert_eq!(of(2), ["reduce_max by sub: row_parts"]);
    assert!(of(3).is_empty());
}

#[test]
fn a_gemm_computes_no_operand_that_is_shared_large_packed_often_or_read_in_short_runs() {
    let refused = |record: fn(&mut GraphBuilder) -> Result<[NodeId; 2]>| {
        of_kernels(&graph(record), VERTICAL_AND_PROLOGUE, &Target::CPU)
    };
    let one = |reason: &str| vec![format!("neg by matmul: {reason}")];
    let shared = refused(|b| {
        let (x, w) = (input(b, [8, 4]), input(b, [4, 6]));
        let x = b.neg(x)?;
        Ok([b.matmul(x, w)?, x])
    });
    assert_eq!(shared, one("operand_shared"));
    let broadcast = refused(|b| {
        let (x, w) = (input(b, [8, 4]), input(b, [3, 4, 6]));
        let x = b.neg(x)?;
        let x = b.broadcast_to(x, [3, 8, 4])?;
        Ok([b.matmul(x, w)?, w])
    });
    assert_eq!(broadcast, one("operand_shared"));
    let large = refused(|b| {
        let (x, w) = (input(b, [2049, 2048]), input(b, [2048, 8]));
        let x = b.neg(x)?;
        Ok([b.matmul(x, w)?, w])
    });
    assert_eq!(large, one("operand_size"));
    let many_rows = refused(|b| {
        let (x, w) = (input(b, [513, 4]), input(b, [4, 6]));
        let w = b.neg(w)?;
        Ok([b.matmul(x, w)?, x])
    });
    assert_eq!(many_rows, one("operand_rows"));
    let column_major = refused(|b| {
        let (x, w) = (input(b, [8, 12]), input(b, [8, 6]));
        let x = b.neg(x)?;
        let x = b.transpose(x)?;
        Ok([b.matmul(x, w)?, w])
    });
    assert_eq!(column_major, one("operand_order"));
}

#[test]
fn the_reason_of_a_prologue_replaces_that_a_gemm_reads_memory() {
    let g = graph(|b| {
        let (x, w) = (input(b, [8, 4]), input(b, [4, 6]));
        let x = b.neg(x)?;
        Ok([b.matmul(x, w)?, x])
    });
    check(&g, &[("neg", Refusal::Memory)]);
    check_with(&g, VERTICAL_AND_PROLOGUE, &[("neg", Refusal::OperandShared)]);
}

#[test]
fn a_group_of_small_kernels_has_a_highest_size() {
    let sums = |count: usize| {
        let mut b = GraphBuilder::default();
        let one = |b: &mut GraphBuilder| {
            let x = input(b, [400, 10]);
            b.sum(x, AxisSet::one(0), false).unwrap()
        };
        let outputs: Vec<NodeId> = (0..count).map(|_| one(&mut b)).collect();
        of_kernels(&b.finish(outputs), FusionOptions::ALL, &Target::CPU)
    };
    assert!(sums(8).is_empty());
    assert_eq!(sums(10), ["reduce_sum by reduce_sum: group_size"], "reported once for a group");
}

#[test]
fn a_refusal_names_the_op_that_would_have_had_the_value() {
    let consumers = |g: &Graph| {
        let refusals = lower_explained(g, VERTICAL, &Target::CPU).unwrap().refusals;
        let name = |id: Option<NodeId>| id.map(|id| g.node(id).op.name());
        let vertical = refusals.iter().filter(|r| r.reason != Refusal::Disabled);
        vertical.map(|r| (name(Some(r.node)), name(r.consumer))).collect::<Vec<_>>()
    };
    // Through a view, and past a consumer that could have fused it.
    let g = graph(|b| {
        let x = input(b, [4, 4]);
        let e = b.exp(x)?;
        let n = b.neg(e)?;
        let t = b.transpose(e)?;
        let m = b.matmul(t, x)?;
        Ok([n, m])
    });
    assert_eq!(consumers(&g), []);
    let g = graph(|b| {
        let x = input(b, [4, 4]);
        let e = b.exp(x)?;
        let t = b.transpose(e)?;
        Ok([b.matmul(t, x)?])
    });
    assert_eq!(consumers(&g), [(Some("exp"), Some("matmul"))]);
    let g = graph(|b| {
        let (x, y) = (input(b, [2, 3]), input(b, [2, 3]));
        let t = b.transpose(x)?;
        let e = b.neg(t)?;
        let r = b.reshape(e, [2, 3])?;
        Ok([b.add(r, y)?])
    });
    assert_eq!(consumers(&g), [(Some("neg"), Some("add"))]);
}

#[test]
fn every_reason_has_a_code_and_a_sentence_about_the_two_nodes() {
    let mut codes = std::collections::HashSet::new();
    for reason in Refusal::ALL {
        assert!(codes.insert(reason.code()), "{reason:?}");
        let sentence = reason.sentence();
        assert!(sentence.contains("{value}") && sentence.contains("{user}"), "{reason:?}");
    }
}

#[test]
fn the_nodes_of_a_kernel_are_those_it_computes() {
    let g = graph(|b| {
        let (x, w, bias) = (input(b, [8, 4]), input(b, [4, 6]), input(b, [6]));
        let y = b.matmul(x, w)?;
        let y = b.add(y, bias)?;
        let t = b.transpose(y)?;
        let r = b.reshape(t, [48])?;
        Ok([relu(b, y)?, r])
    });
    let explained = lower_explained(&g, VERTICAL, &Target::CPU).unwrap();
    let ops = |nodes: &Vec<NodeId>| nodes.iter().map(|&n| g.node(n).op.name()).collect::<Vec<_>>();
    let nodes: Vec<_> = explained.nodes.iter().map(ops).collect();
    let expected = [vec!["matmul", "add"], vec!["permute"], vec!["maximum"]];
    assert_eq!(nodes, expected, "{}", explained.program);
}

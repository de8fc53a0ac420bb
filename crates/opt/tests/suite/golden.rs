//! Golden tests of each pass, one fact for each test: a program and the expected text.

use crate::common::{Cases, becomes_its_input, f32s, input, splat, unchanged};
use girih_ir::ops::{Attrs, AxisSet, PadDim, SliceDim};
use girih_ir::{
    Array, DType, DecompositionTarget, Graph, GraphBuilder, Literal, NodeId, Op, OpCode, Result,
    TensorSpec, golden,
};
use girih_opt::passes::{
    Cse, DeadCode, Decompose, Fold, Isolate, LogSoftmax, MatmulChain, Simplify,
};
use girih_opt::{OptOptions, Pass, PassFlag, PassManager, optimize};
use girih_reference::evaluate;

#[test]
fn dead_code_goes_and_arguments_stay_in_order() {
    let mut b = GraphBuilder::default();
    let (unused, x) = (f32s(&mut b, &[2]), f32s(&mut b, &[3]));
    b.exp(unused).unwrap();
    let y = b.neg(x).unwrap();
    let graph = b.finish([y]);
    let clean = DeadCode.run(&graph).unwrap().unwrap();
    golden!("dead_code_goes_and_arguments_stay_in_order.txt", clean);
    assert_eq!(DeadCode.run(&clean), Ok(None));
}

#[test]
fn arguments_the_program_does_not_need_are_reported() {
    let mut b = GraphBuilder::default();
    let (x, y) = (input(&mut b, &[3], DType::I32), input(&mut b, &[3], DType::I32));
    let rate = b.leaf(OpCode::Constant.into(), TensorSpec::scalar(DType::I32));
    let zero = b.scalar(DType::I32, 0.0);
    let nothing = b.mul(zero, y).unwrap();
    let sum = b.add(x, nothing).unwrap();
    let out = b.mul(sum, rate).unwrap();
    let graph = b.finish([out]);
    let optimized = optimize(&graph, OptOptions::default()).unwrap();
    assert_eq!(optimized.live_arguments, [0, 2]);
    assert_eq!(optimized.graph.len(), 3);
    let nothing_runs = optimize(&graph, OptOptions::none()).unwrap();
    assert_eq!(nothing_runs.live_arguments, [0, 1, 2]);
    assert_eq!(nothing_runs.graph, graph);
}

#[test]
fn simple_powers_are_products_quotients_and_roots_also_of_special_values() {
    let specials = [0.0, -0.0, 1.0, -2.5, 7.3, 1e-40, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    for (dtype, exponent) in [DType::F32, DType::F64, DType::BF16]
        .into_iter()
        .flat_map(|d| [2.0, 3.0, -1.0, 0.5].map(|e| (d, e)))
    {
        let mut b = GraphBuilder::default();
        let x = input(&mut b, &[specials.len()], dtype);
        let exponent = b.scalar(dtype, exponent);
        let y = b.pow(x, exponent).unwrap();
        let graph = b.finish([y]);
        let simple = optimize(&graph, OptOptions::default()).unwrap().graph;
        let kept = dtype == DType::BF16 && graph.literal(exponent).unwrap().is(3.0);
        assert_eq!(simple.nodes().any(|(_, n)| n.op.code == OpCode::Pow), kept, "{simple}");
        let values = specials.iter().map(|&v| Literal::from_f64(dtype, v));
        let arguments = [Array::new(graph.spec(x).clone(), values)];
        let of = |graph| evaluate(graph, &arguments).unwrap()[0].to_f64();
        for (want, found) in of(&graph).into_iter().zip(of(&simple)) {
            let near = (want - found).abs() <= 1e-6 * want.abs();
            let same = want == found && want.is_sign_negative() == found.is_sign_negative();
            assert!(near || same || want.is_nan() && found.is_nan(), "{want} {found}\n{simple}");
            assert!(found != 0.0 || same, "{want} {found}\n{simple}");
        }
    }
}

#[test]
fn equal_subexpressions_merge_also_commuted() {
    let mut cases = Cases::default();
    cases.add(Cse, |b| {
        let (x, y) = (f32s(b, &[2]), f32s(b, &[2]));
        let (s, t) = (b.add(x, y)?, b.add(y, x)?);
        b.mul(s, t)
    });
    unchanged(Cse, |b| {
        let (x, y) = (f32s(b, &[2]), f32s(b, &[2]));
        let (s, t) = (b.sub(x, y)?, b.sub(y, x)?);
        b.mul(s, t)
    });
    cases.compare("equal_subexpressions_merge_also_commuted");
}

#[test]
fn leaves_and_ops_with_different_attributes_never_merge() {
    unchanged(Cse, |b| {
        let x = f32s(b, &[2, 2]);
        let (s, t) = (b.softmax(x, 0)?, b.softmax(x, 1)?);
        b.add(s, t)
    });
    for code in [OpCode::Input, OpCode::RandomNormal, OpCode::Constant] {
        unchanged(Cse, |b| {
            let spec = TensorSpec::new([2], DType::F32);
            let (x, y) = (b.leaf(code.into(), spec.clone()), b.leaf(code.into(), spec));
            b.add(x, y)
        });
    }
    // Equal bits, but another shape or dtype.
    unchanged(Cse, |b| {
        let (x, y) = (splat(b, &[2], DType::F32, 0.0), splat(b, &[1], DType::F32, 0.0));
        b.add(x, y)
    });
}

#[test]
fn splats_fold_to_splats_whatever_their_shape() {
    let mut cases = Cases::default();
    cases.add(Fold, |b| {
        let (x, y) = (splat(b, &[1000, 1], DType::F32, 1.0), splat(b, &[3], DType::F32, 0.5));
        b.add(x, y)
    });
    cases.add(Fold, |b| {
        let x = splat(b, &[3], DType::F32, 7.9);
        let x = b.broadcast_to(x, [2, 3])?;
        b.cast(x, DType::I32)
    });
    cases.add(Fold, |b| {
        let (x, y) = (splat(b, &[], DType::F16, 2048.0), splat(b, &[], DType::F16, 1.0));
        b.add(x, y)
    });
    cases.compare("splats_fold_to_splats_whatever_their_shape");
}

#[test]
fn reductions_and_random_numbers_do_not_fold() {
    unchanged(Fold, |b| {
        let x = splat(b, &[3], DType::F32, 1.5);
        b.sum(x, AxisSet::one(0), false)
    });
    unchanged(Fold, |b| {
        let x = splat(b, &[2, 3], DType::I32, 2.0);
        b.max(x, AxisSet::one(1), true)
    });
    unchanged(Fold, |b| {
        let x = b.leaf(OpCode::RandomNormal.into(), TensorSpec::new([3], DType::F32));
        b.neg(x)
    });
}

#[test]
fn results_that_ieee_leaves_open_and_runtime_constants_do_not_fold() {
    unchanged(Fold, |b| {
        let x = splat(b, &[], DType::F32, 1.0);
        b.exp(x)
    });
    unchanged(Fold, |b| {
        let x = splat(b, &[], DType::F32, 0.0);
        b.div(x, x)
    });
    unchanged(Fold, |b| {
        let (x, y) = (splat(b, &[], DType::F32, 0.0), splat(b, &[], DType::F32, -0.0));
        b.maximum(x, y)
    });
    unchanged(Fold, |b| {
        let rate = b.leaf(OpCode::Constant.into(), TensorSpec::scalar(DType::F32));
        b.neg(rate)
    });
    unchanged(Fold, |b| {
        let x = splat(b, &[2], DType::F32, 1.0);
        b.pad(x, vec![PadDim { low: 1, high: 0, interior: 0 }], Literal::from_f64(DType::F32, 0.0))
    });
}

/// `x op literal`, with the literal of another shape.
fn with_scalar(code: OpCode, dtype: DType, shape: &[usize], value: f64) -> String {
    let mut b = GraphBuilder::default();
    let x = input(&mut b, &[3], dtype);
    let c = splat(&mut b, shape, dtype, value);
    let out = b.op(code, &[x, c]).unwrap();
    let result = optimize(&b.finish([out]), OptOptions::default()).unwrap().graph;
    let (_, last) = result.nodes().last().unwrap();
    format!("{}{}", last.op.name(), last.spec.shape)
}

#[test]
fn neutral_elements_go_only_where_every_bit_stays() {
    let f = DType::F32;
    assert_eq!(with_scalar(OpCode::Mul, f, &[], 1.0), "input[3]");
    assert_eq!(with_scalar(OpCode::Div, f, &[], 1.0), "input[3]");
    assert_eq!(with_scalar(OpCode::Sub, f, &[], 0.0), "input[3]");
    assert_eq!(with_scalar(OpCode::Add, f, &[], -0.0), "input[3]");
    assert_eq!(with_scalar(OpCode::Pow, f, &[], 1.0), "input[3]");
    assert_eq!(with_scalar(OpCode::Add, f, &[], 0.0), "add[3]", "-0 + 0 is 0");
    assert_eq!(with_scalar(OpCode::Sub, f, &[], -0.0), "sub[3]", "-0 - -0 is 0");
    assert_eq!(with_scalar(OpCode::Mul, f, &[], 0.0), "mul[3]", "NaN * 0 is NaN");
    assert_eq!(with_scalar(OpCode::Pow, f, &[], 0.5), "where[3]", "sqrt(-inf) is NaN");
    assert_eq!(with_scalar(OpCode::Pow, f, &[], 2.0), "mul[3]");
    assert_eq!(with_scalar(OpCode::Mul, f, &[], -1.0), "neg[3]");
    assert_eq!(with_scalar(OpCode::Add, DType::I32, &[], 0.0), "input[3]");
    assert_eq!(with_scalar(OpCode::Mul, DType::I32, &[], 0.0), "constant[3]");
    // The result keeps its shape.
    assert_eq!(with_scalar(OpCode::Mul, f, &[2, 1], 1.0), "broadcast_to[2, 3]");
    assert_eq!(with_scalar(OpCode::And, DType::Bool, &[], 1.0), "input[3]");
    assert_eq!(with_scalar(OpCode::Or, DType::U8, &[], 255.0), "constant[3]");
}

#[test]
fn negations_cancel() {
    let mut cases = Cases::default();
    becomes_its_input(Simplify, |b| {
        let x = f32s(b, &[2]);
        let y = b.neg(x)?;
        b.neg(y)
    });
    cases.add(Simplify, |b| {
        let (x, y) = (f32s(b, &[2]), f32s(b, &[2]));
        let y = b.neg(y)?;
        b.add(y, x)
    });
    unchanged(Simplify, |b| {
        let x = f32s(b, &[2]);
        b.sub(x, x)
    });
    cases.compare("negations_cancel");
}

#[test]
fn selects_with_a_known_result_are_simplified() {
    let mut cases = Cases::default();
    becomes_its_input(Simplify, |b| {
        let (x, y) = (f32s(b, &[2]), f32s(b, &[]));
        let c = splat(b, &[], DType::Bool, 1.0);
        b.select(c, x, y)
    });
    cases.add(Simplify, |b| {
        let (c, x) = (input(b, &[2], DType::Bool), f32s(b, &[]));
        b.select(c, x, x)
    });
    cases.compare("selects_with_a_known_result_are_simplified");
}

#[test]
fn casts_that_lose_nothing_merge() {
    let mut cases = Cases::default();
    let casts = |b: &mut GraphBuilder, dtypes: [DType; 3]| {
        let x = input(b, &[2], dtypes[0]);
        let wide = b.cast(x, dtypes[1])?;
        b.cast(wide, dtypes[2])
    };
    becomes_its_input(Simplify, |b| casts(b, [DType::F16, DType::F32, DType::F16]));
    cases.add(Simplify, |b| casts(b, [DType::F16, DType::F32, DType::BF16]));
    unchanged(Simplify, |b| casts(b, [DType::F32, DType::F16, DType::F32]));
    unchanged(Simplify, |b| casts(b, [DType::I32, DType::F64, DType::I8]));
    unchanged(Simplify, |b| casts(b, [DType::I32, DType::Bool, DType::I32]));
    cases.compare("casts_that_lose_nothing_merge");
}

#[test]
fn bitcasts_merge() {
    let mut cases = Cases::default();
    let bitcasts = |b: &mut GraphBuilder, own: DType, dtypes: &[DType]| {
        let x = input(b, &[2], own);
        let to = |x, &dtype: &DType| b.emit(Op::new(OpCode::Bitcast, Attrs::DType(dtype)), &[x]);
        dtypes.iter().try_fold(x, to)
    };
    becomes_its_input(Simplify, |b| bitcasts(b, DType::F32, &[DType::I32, DType::F32]));
    becomes_its_input(Simplify, |b| bitcasts(b, DType::F64, &[DType::F64]));
    cases.add(Simplify, |b| bitcasts(b, DType::F16, &[DType::I16, DType::BF16, DType::U16]));
    cases.compare("bitcasts_merge");
}

#[test]
fn chains_of_views_shorten() {
    let mut cases = Cases::default();
    becomes_its_input(Simplify, |b| {
        let x = f32s(b, &[2, 3]);
        let x = b.transpose(x)?;
        b.transpose(x)
    });
    cases.add(Simplify, |b| {
        let x = f32s(b, &[2, 3]);
        let x = b.reshape(x, [6])?;
        b.reshape(x, [3, 2])
    });
    cases.add(Simplify, |b| {
        let x = f32s(b, &[3]);
        let x = b.reshape(x, [1, 1, 3])?;
        let x = b.reshape(x, [1, 3])?;
        b.broadcast_to(x, [2, 3])
    });
    cases.add(Simplify, |b| {
        let x = f32s(b, &[20]);
        let x = b.slice(x, vec![SliceDim { start: 1, size: 8, step: 2 }])?;
        b.slice(x, vec![SliceDim { start: 2, size: 2, step: 3 }])
    });
    becomes_its_input(Simplify, |b| {
        let x = f32s(b, &[1, 4]);
        let flip = |axes| Op::new(OpCode::Flip, Attrs::axes(axes, false));
        let x = b.emit(flip(AxisSet::all(2)), &[x])?;
        b.emit(flip(AxisSet::one(1)), &[x])
    });
    cases.compare("chains_of_views_shorten");
}

#[test]
fn broadcasts_are_removed_unless_they_determine_the_shape() {
    let mut cases = Cases::default();
    cases.add(Simplify, |b| {
        let (x, y) = (f32s(b, &[2, 3]), f32s(b, &[3]));
        let y = b.broadcast_to(y, [2, 3])?;
        b.mul(x, y)
    });
    unchanged(Simplify, |b| {
        let x = f32s(b, &[3]);
        let y = b.broadcast_to(x, [2, 3])?;
        b.mul(x, y)
    });
    cases.compare("broadcasts_are_removed_unless_they_determine_the_shape");
}

#[test]
fn reductions_of_single_elements_are_views() {
    let mut cases = Cases::default();
    becomes_its_input(Simplify, |b| {
        let x = f32s(b, &[3]);
        b.max(x, AxisSet::default(), false)
    });
    // A sum of floats starts from 0, so that the sum of -0 is 0.
    cases.add(Simplify, |b| {
        let x = f32s(b, &[3]);
        b.sum(x, AxisSet::default(), false)
    });
    cases.add(Simplify, |b| {
        let x = f32s(b, &[3, 1]);
        b.max(x, AxisSet::one(1), false)
    });
    cases.compare("reductions_of_single_elements_are_views");
}

#[test]
fn a_mean_is_the_sum_over_the_count() {
    let mut cases = Cases::default();
    cases.add(Decompose::default(), |b| {
        let x = f32s(b, &[4, 5]);
        b.mean(x, AxisSet::one(1), false)
    });
    cases.compare("a_mean_is_the_sum_over_the_count");
}

#[test]
fn a_composite_that_the_target_computes_as_a_whole_is_not_decomposed() {
    let target = DecompositionTarget { native: &[OpCode::Softmax], ..DecompositionTarget::CPU };
    unchanged(Decompose { target }, |b| {
        let x = f32s(b, &[2, 3]);
        b.softmax(x, 1)
    });
    let mut b = GraphBuilder::default();
    let x = f32s(&mut b, &[2, 3]);
    let y = b.softmax(x, 1).unwrap();
    let graph = b.finish([y]);
    let manager = PassManager::for_target(OptOptions::default(), target);
    assert_eq!(manager.run(&graph).unwrap().graph, graph);
    assert_ne!(optimize(&graph, OptOptions::default()).unwrap().graph, graph);
}

#[test]
fn the_logarithm_of_a_softmax_is_a_log_softmax_unless_switched_off() {
    let mut cases = Cases::default();
    let build = |b: &mut GraphBuilder| {
        let x = f32s(b, &[2, 3]);
        let p = b.softmax(x, 1)?;
        b.log(p)
    };
    cases.add(LogSoftmax, build);
    let divisions = |options| {
        let mut b = GraphBuilder::default();
        let out = build(&mut b).unwrap();
        let graph = optimize(&b.finish([out]), options).unwrap().graph;
        graph.nodes().filter(|(_, n)| n.op.code == OpCode::Div).count()
    };
    assert_eq!(divisions(OptOptions::default()), 0);
    assert_eq!(divisions(OptOptions::default().without(PassFlag::LogSoftmax)), 1);
    cases.compare("the_logarithm_of_a_softmax_is_a_log_softmax_unless_switched_off");
}

#[test]
fn the_logarithm_of_an_underflowing_softmax_becomes_finite() {
    let mut b = GraphBuilder::default();
    let x = f32s(&mut b, &[2]);
    let p = b.softmax(x, 0).unwrap();
    let out = b.log(p).unwrap();
    let graph = b.finish([out]);
    let argument = Array::from_f64([2], DType::F32, &[0.0, -1000.0]);
    let run = |graph: &Graph| evaluate(graph, std::slice::from_ref(&argument)).unwrap()[0].to_f64();
    assert_eq!(run(&graph), [0.0, f64::NEG_INFINITY], "as IEEE 754 has it");
    let optimized = optimize(&graph, OptOptions::default()).unwrap().graph;
    assert_eq!(run(&optimized), [0.0, -1000.0]);
}

#[test]
fn a_chain_of_matmuls_is_multiplied_in_the_cheapest_order() {
    let mut cases = Cases::default();
    // Matrix by matrix by vector: 100 * 10 + 10 * 5 instead of 100 * 10 * 5 + 100 * 5.
    cases.add(MatmulChain, |b| {
        let (x, y, z) = (f32s(b, &[100, 10]), f32s(b, &[10, 5]), f32s(b, &[5, 1]));
        let xy = b.matmul(x, y)?;
        b.matmul(xy, z)
    });
    cases.compare("a_chain_of_matmuls_is_multiplied_in_the_cheapest_order");
}

#[test]
fn a_matmul_that_is_also_used_elsewhere_is_no_part_of_a_chain() {
    let is_no_chain = |outputs: fn(&mut GraphBuilder, NodeId, NodeId) -> Vec<NodeId>| {
        let mut b = GraphBuilder::default();
        let (x, y, z) = (f32s(&mut b, &[100, 10]), f32s(&mut b, &[10, 5]), f32s(&mut b, &[5, 1]));
        let xy = b.matmul(x, y).unwrap();
        let xyz = b.matmul(xy, z).unwrap();
        let outputs = outputs(&mut b, xy, xyz);
        assert_eq!(MatmulChain.run(&b.finish(outputs)), Ok(None));
    };
    is_no_chain(|_, xy, xyz| vec![xy, xyz]);
    is_no_chain(|b, xy, xyz| vec![b.neg(xy).unwrap(), xyz]);
    // Both orders have the same cost.
    unchanged(MatmulChain, |b| {
        let (x, y, z) = (f32s(b, &[4, 4]), f32s(b, &[4, 4]), f32s(b, &[4, 4]));
        let yz = b.matmul(y, z)?;
        b.matmul(x, yz)
    });
    // Longer than the limit: no search and no deep recursion.
    unchanged(MatmulChain, |b| {
        let mut x = f32s(b, &[100, 2]);
        for _ in 0..20_000 {
            let y = f32s(b, &[2, 2]);
            x = b.matmul(x, y)?;
        }
        Ok(x)
    });
}

#[test]
fn matmuls_are_reordered_only_on_request() {
    let mut b = GraphBuilder::default();
    let (x, y, z) = (f32s(&mut b, &[100, 10]), f32s(&mut b, &[10, 5]), f32s(&mut b, &[5, 1]));
    let xy = b.matmul(x, y).unwrap();
    let xyz = b.matmul(xy, z).unwrap();
    let graph = b.finish([xyz]);
    assert_eq!(optimize(&graph, OptOptions::default()).unwrap().graph, graph);
    let asked = OptOptions::default().with(PassFlag::MatmulChain);
    let shapes = |g: &Graph| g.nodes().map(|(_, n)| n.spec.shape.to_string()).collect::<Vec<_>>();
    let optimized = optimize(&graph, asked).unwrap().graph;
    assert_eq!(shapes(&optimized)[3..], ["[10, 1]", "[100, 1]"]);
}

#[test]
fn a_pass_sees_all_that_the_outputs_need_in_one_call() {
    use std::sync::{Arc, Mutex};
    struct Spy(Arc<Mutex<Vec<String>>>);
    impl Pass for Spy {
        fn name(&self) -> &'static str {
            "spy"
        }
        fn run(&self, graph: &Graph) -> Result<Option<Graph>> {
            self.0.lock().unwrap().push(graph.to_string());
            Ok(None)
        }
    }
    let mut b = GraphBuilder::default();
    let (x, y) = (f32s(&mut b, &[4, 2]), f32s(&mut b, &[2, 3]));
    let product = b.matmul(x, y).unwrap();
    let out = b.relu(product).unwrap();
    let sum = b.sum(out, AxisSet::all(2), false).unwrap();
    let graph = b.finish([sum]);
    let before = graph.to_string();
    let seen = Arc::new(Mutex::new(Vec::new()));
    PassManager::new().add_pass(Spy(seen.clone())).run(&graph).unwrap();
    assert_eq!(*seen.lock().unwrap(), [before.as_str()], "one call, every node");
    // Passes work on copies: ids into the input graph stay valid.
    optimize(&graph, OptOptions::default()).unwrap();
    assert_eq!(graph.to_string(), before);
}

#[test]
fn a_pass_that_fails_is_named() {
    struct Clumsy;
    impl Pass for Clumsy {
        fn name(&self) -> &'static str {
            "clumsy"
        }
        fn run(&self, graph: &Graph) -> Result<Option<Graph>> {
            graph.rewrite(|b, _| b.op(OpCode::Add, &[]).map(Some))
        }
    }
    let mut b = GraphBuilder::default();
    let x = f32s(&mut b, &[4]);
    let error = PassManager::new().add_pass(Clumsy).run(&b.finish([x])).unwrap_err().to_string();
    assert!(error.contains("pass clumsy: add"), "{error}");
}

#[test]
fn a_pass_that_always_changes_something_stops_at_ten_rounds() {
    struct Restless;
    impl Pass for Restless {
        fn name(&self) -> &'static str {
            "restless"
        }
        fn run(&self, graph: &Graph) -> Result<Option<Graph>> {
            Ok(Some(graph.clone()))
        }
    }
    let mut b = GraphBuilder::default();
    let x = f32s(&mut b, &[]);
    let graph = b.finish([x]);
    let mut manager = PassManager::new();
    let result = manager.add_pass(Restless).record(true).run(&graph).unwrap();
    assert_eq!(result.iterations, 10);
    assert_eq!(result.stages.len(), 11);
    assert_eq!(result.stages[0].pass, "input");
    for rounds in [0, 1, 3, 25] {
        let mut manager = PassManager::new();
        manager.add_pass(Restless).max_iterations(rounds);
        assert_eq!(manager.run(&graph).unwrap().iterations, rounds);
    }
}

#[test]
fn a_pass_that_breaks_the_interface_is_found_out() {
    struct Vandal;
    impl Pass for Vandal {
        fn name(&self) -> &'static str {
            "vandal"
        }
        fn run(&self, graph: &Graph) -> Result<Option<Graph>> {
            let mut b = GraphBuilder::from_graph(graph.clone());
            let y = b.scalar(DType::F32, 1.0);
            Ok(Some(b.finish([y])))
        }
    }
    let mut b = GraphBuilder::default();
    let x = f32s(&mut b, &[4]);
    let error = PassManager::new().add_pass(Vandal).run(&b.finish([x])).unwrap_err().to_string();
    assert!(error.contains("vandal") && error.contains("(f32[4]) -> (f32[])"), "{error}");
}

#[test]
fn every_rewrite_has_a_name_of_its_own() {
    let mut names = std::collections::HashSet::new();
    assert!(Simplify::rules().all(|rule| names.insert(rule.name)));
}

#[test]
fn an_op_that_is_not_to_be_fused_becomes_a_call() {
    let text = "Graph:
  %0 = input([2], f32)
  %1 = sin(%0) -> [2] {fuse=\"no\"}
  %2 = exp(%1) -> [2]
  outputs: [%2]";
    let graph = Graph::parse(text).unwrap();
    let apart = Isolate.run(&graph).unwrap().unwrap();
    golden!("an_op_that_is_not_to_be_fused_becomes_a_call.txt", apart);
    assert_eq!(Isolate.run(&apart), Ok(None));
    let plain = Graph::parse(&text.replace(" {fuse=\"no\"}", "")).unwrap();
    assert_eq!(Isolate.run(&plain), Ok(None));
}

#[test]
fn hints_that_no_pass_knows_change_nothing() {
    let text = "Graph:
  %0 = input([2], f32)
  %1 = constant([2], f32, 1.0)
  %2 = mul(%0, %1) -> [2]
  %3 = exp(%2) -> [2]
  %4 = exp(%2) -> [2]
  %5 = add(%3, %4) -> [2]
  outputs: [%5]";
    let plain = Graph::parse(text).unwrap();
    let mut hinted = plain.clone();
    for id in plain.ids() {
        hinted.set_hint(id, "unheard_of", "yes");
    }
    let encoded = |graph: &Graph| {
        let optimized = optimize(graph, OptOptions::default()).unwrap().graph;
        let mut bytes = Vec::new();
        optimized.encode(&mut bytes);
        (bytes, optimized.len())
    };
    assert_eq!(encoded(&hinted), encoded(&plain));
    assert!(encoded(&plain).1 < plain.len());
}

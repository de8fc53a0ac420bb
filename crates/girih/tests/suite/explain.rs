//! Tests of explanations: passes, fusion, lines, memory and the cache. The cache is the process's,
//! so programs here have unique sizes.

use girih::runtime::{Lookup, Placement};
use girih::{DType, Result, Tensor, explain, explain_graph, ir};

fn layer(rows: usize) -> Result<Tensor> {
    let x = Tensor::ones([rows, 7], DType::F32)?;
    let w = Tensor::randn([7, 5], DType::F32)?;
    let bias = Tensor::randn([5], DType::F32)?;
    girih::eval([&x, &w, &bias])?;
    let y = x.matmul(&w)?.add(&bias)?.relu()?;
    y.softmax(1)
}

#[test]
fn every_stage_is_shown_with_kernels_lines_and_costs() -> Result<()> {
    let out = layer(31)?;
    let e = explain([&out])?;
    assert_eq!(e.stages[0].pass, "input");
    assert_eq!(e.stages[0].text, e.graph.to_string());
    assert_eq!(e.stages.last().unwrap().text, e.optimized.to_string());
    assert!(e.stages.iter().any(|s| s.pass == "decompose" && s.text.contains("reduce_max")));
    assert_eq!(e.kernels[0].name, "fused_matmul_add_relu");
    let flops = 31 * 5 * (2 * 7 + 1 + 1);
    assert_eq!(e.kernels[0].traffic.flops, flops);
    assert_eq!(e.kernels[0].traffic.bytes_read, 4 * (31 * 7 + 7 * 5 + 5));
    assert_eq!(e.kernels[0].traffic.bytes_written, 4 * 31 * 5);
    assert!(e.traffic().flops > flops);
    // Every kernel has its source line, in this file, and the recorded op.
    for kernel in &e.kernels {
        assert!(kernel.lines.iter().all(|l| l.contains("explain.rs:")), "{:?}", kernel.lines);
        assert!(!kernel.lines.is_empty() && !kernel.ops.is_empty());
    }
    let last = e.kernels.last().unwrap();
    assert!(last.ops.iter().all(|op| op.recorded.is_some_and(|(_, name)| name == "softmax")));
    assert_eq!(e.operations.len(), e.kernels.len());
    assert!(e.operations.iter().all(|op| op.steps == ["launch"]));
    let text = e.to_string();
    for part in [
        "Recorded: ",
        "Passes: ",
        "Kernels: ",
        "Not fused: ",
        "Bottlenecks, ",
        "Operations",
        "Memory: ",
        "Cache",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    assert!(out.is_lazy(), "explaining runs nothing");
    Ok(())
}

#[test]
fn a_refusal_names_both_ops_and_gives_a_reason() -> Result<()> {
    let e = explain([&layer(32)?])?;
    assert!(!e.refusals.is_empty(), "a softmax is several kernels:\n{e}");
    for refusal in &e.refusals {
        let user = refusal.user.expect("something reads it");
        for node in [refusal.value, user] {
            let name = format!("{node} {}", e.optimized.node(node).op.name());
            assert!(refusal.sentence.contains(&name), "{} has no {name}", refusal.sentence);
        }
        assert!(refusal.line.is_some());
    }
    Ok(())
}

/// The bottlenecks of a graph of f32 inputs.
fn bottlenecks<const N: usize>(
    shapes: [&[usize]; N],
    record: impl FnOnce(&mut ir::GraphBuilder, [ir::NodeId; N]) -> ir::Result<Vec<ir::NodeId>>,
) -> Result<Vec<(&'static str, usize)>> {
    let mut b = ir::GraphBuilder::default();
    let inputs = shapes.map(|shape| b.input(ir::TensorSpec::new(shape, DType::F32)));
    let outputs = record(&mut b, inputs)?;
    let e = explain_graph(&b.finish(outputs))?;
    for found in &e.bottlenecks {
        let line = format!("  {}, kernel {}", found.code, found.kernel);
        assert!(e.to_string().contains(&line) && e.to_string().contains(&found.sentence), "{e}");
        assert!(found.lost_ns > 0);
    }
    Ok(e.bottlenecks.iter().map(|found| (found.code, found.kernel)).collect())
}

#[test]
fn slow_reads_are_bottlenecks() -> Result<()> {
    let strided = |step: usize| {
        bottlenecks([&[1 << 24]], |b, [x]| {
            let dim = ir::ops::SliceDim { start: 0, size: (1 << 24) / step, step };
            let part = b.slice(x, vec![dim])?;
            Ok(vec![b.exp(part)?])
        })
    };
    assert_eq!(strided(64)?, [("strided_read", 0)]);
    assert_eq!(strided(1)?, []);
    let gathered = |row: usize| {
        bottlenecks([&[1 << 24 >> row, 1 << row], &[1 << 18]], |b, [table, at]| {
            let at = b.cast(at, DType::I64)?;
            let take = ir::Op::new(ir::OpCode::Take, ir::Attrs::Axis(0));
            Ok(vec![b.emit(take, &[table, at])?])
        })
    };
    assert_eq!(gathered(0)?, [("scattered_read", 0)]);
    assert_eq!(gathered(6)?, []);
    Ok(())
}

#[test]
fn what_no_code_or_one_loop_runs_is_a_bottleneck() -> Result<()> {
    let sums = |dtype: DType| {
        bottlenecks([&[1 << 18, 3]], |b, [x]| {
            let x = b.cast(x, dtype)?;
            Ok(vec![b.sum(x, ir::AxisSet::one(1), false)?])
        })
    };
    assert!(sums(DType::C64)?.contains(&("short_reduction", 0)));
    assert_eq!(sums(DType::F32)?, []);
    Ok(())
}

#[test]
fn an_operand_that_is_computed_in_each_run_is_packed_in_each_run() -> Result<()> {
    let product = |computed: bool| {
        bottlenecks([&[128, 1024], &[1024, 1024]], |b, [x, w]| {
            let w = if computed { b.neg(w)? } else { w };
            Ok(vec![b.matmul(x, w)?, w])
        })
    };
    assert_eq!(product(false)?, []);
    let found = product(true)?;
    // Without generated micro-kernels nothing is prepacked.
    assert!(found == [("repacking", 1)] || found.is_empty(), "{found:?}");
    Ok(())
}

#[test]
fn the_memory_plan_adds_up_and_dead_temporaries_make_room() -> Result<()> {
    // A chain of products: each needs its operand in memory, which is dead after the next product.
    let mut x = Tensor::ones([16, 16], DType::F32)?;
    girih::eval([&x])?;
    for _ in 0..6 {
        x = x.matmul(&x)?;
    }
    let m = explain([&x])?.memory;
    let size = 16 * 16 * 4;
    assert_eq!((m.argument_bytes, m.output_bytes), (size, size));
    assert_eq!((m.temporary_bytes, m.unshared_temporary_bytes), (2 * size, 5 * size));
    assert_eq!(m.peak_bytes, 4 * size);
    let reusing = m.buffers.iter().filter(|b| !b.reuses.is_empty()).count();
    assert_eq!(reusing, 3, "{:?}", m.buffers);
    for buffer in &m.buffers {
        assert_eq!(buffer.written_by.is_none(), matches!(buffer.placement, Placement::Argument(_)));
    }
    Ok(())
}

#[test]
fn a_miss_says_which_field_of_the_key_differs() -> Result<()> {
    let out = layer(41)?;
    girih::compile_graph([&out])?;
    assert_eq!(explain([&out])?.cache, Lookup::Hit);
    let other = layer(43)?;
    // Twice: an explanation does not add the program to the cache.
    for _ in 0..2 {
        let Lookup::Differs(fields) = explain([&other])?.cache else { panic!("no miss") };
        assert_eq!(fields[0], "shape of argument 0: [41, 7] -> [43, 7]");
    }
    Ok(())
}

#[test]
fn arguments_that_simplify_away_are_not_moved() -> Result<()> {
    let x = Tensor::from_slice(&[1i32, 2, 3], [3])?;
    let y = Tensor::from_slice(&[4i32, 5, 6], [3])?;
    let e = explain([&x.add(&y.mul(0)?)?.neg()?])?;
    assert_eq!(e.unused_arguments, [1]);
    let read = e.memory.buffers.iter().map(|b| b.placement);
    assert!(read.clone().all(|p| p != Placement::Argument(1)), "{:?}", read.collect::<Vec<_>>());
    Ok(())
}

#[test]
fn closed_graphs_and_values_that_are_there_are_explained_too() -> Result<()> {
    let mut b = ir::GraphBuilder::default();
    let x = b.input(ir::TensorSpec::new([3], DType::F64));
    let y = b.exp(x)?;
    let e = explain_graph(&b.finish([y]))?;
    assert_eq!((e.kernels.len(), e.kernels[0].name.as_str()), (1, "exp"));
    assert!(e.lines.iter().all(Option::is_none) && e.kernels[0].lines.is_empty());
    let mut lying = ir::Graph::new();
    let x = lying.leaf(ir::OpCode::Input.into(), ir::TensorSpec::new([3], DType::F64));
    let y =
        lying.push_unchecked(ir::OpCode::Neg.into(), &[x], ir::TensorSpec::new([4], DType::F64));
    lying.set_outputs([y]);
    assert!(explain_graph(&lying).unwrap_err().to_string().contains("f64[3]"));
    let there = Tensor::ones([2], DType::F32)?;
    girih::eval([&there])?;
    let e = explain([&there])?;
    assert_eq!((e.kernels.len(), e.memory.peak_bytes), (0, 0), "{e}");
    Ok(())
}

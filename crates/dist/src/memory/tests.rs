//! Tests of memory plans: the documented figures, and random graphs.

use super::*;
use girih_ir::testing::Rng;
use girih_ir::{DType, GraphBuilder, TensorSpec};

fn budget(data: usize) -> MemoryBudget {
    MemoryBudget { total: data, code: 0, stack: 0, routing: 0 }
}

fn layout(text: &str) -> MeshLayout {
    text.parse().unwrap()
}

/// One layout for all values.
fn all(graph: &Graph, text: &str) -> GraphLayouts {
    let layouts = graph.ids().map(|id| (id, layout(text))).collect();
    GraphLayouts { layouts, ..GraphLayouts::default() }
}

fn input(b: &mut GraphBuilder, shape: &[usize]) -> NodeId {
    b.input(TensorSpec::new(shape, DType::F32))
}

/// The bytes that a plan uses on the fullest PE, whatever fits.
fn peak(graph: &Graph, text: &str) -> usize {
    let plan = plan_memory(graph, &all(graph, text), &budget(1 << 30)).unwrap();
    check(&plan);
    plan.max_pe_memory_used()
}

/// ML-59: regions that are live at once do not overlap, and nothing is wasted that need not be.
fn check(plan: &MemoryPlan) {
    for (at, a) in plan.placements.iter().enumerate() {
        for b in &plan.placements[..at] {
            let both = a.live.0 <= b.live.1 && b.live.0 <= a.live.1;
            let handed_over = a.reuses == Some(b.value) && a.live.0 == b.live.1;
            assert!(!both || handed_over || !a.region.overlaps(&b.region), "{a:?} {b:?}");
        }
    }
    let last = plan.placements.iter().map(|p| p.live.0).max().unwrap_or(0);
    let live = |at: usize| {
        let live = plan.placements.iter().filter(|p| p.live.0 <= at && at <= p.live.1);
        let taken = |p: &&Placement| p.reuses.is_none() || p.live.0 < at;
        live.filter(taken).map(|p| p.region.size).sum::<usize>()
    };
    let most = (0..=last).map(live).max().unwrap_or(0);
    assert!(plan.max_pe_memory_used() >= most, "less than lives at once");
}

/// ML-06, 49.
#[test]
fn a_budget_reserves_code_stack_and_routing() {
    let budget = MemoryBudget::default();
    assert_eq!(budget.data(), Ok(36_864));
    assert_eq!(MemoryBudget { routing: 2048, ..budget }.data(), Ok(34 * 1024));
    assert!(LayoutConstraints::default().max_memory_per_pe <= 34 * 1024);
    let none = MemoryBudget { code: 50_000, ..budget }.data().unwrap_err().to_string();
    assert_eq!(
        none,
        "49152 B - 50000 B code - 4096 B stack - 0 B routing leaves no memory for data; reserve less"
    );
}

/// ML-46.
#[test]
fn regions_without_bytes_overlap_none() {
    let region = |offset, size| MemoryRegion { offset, size, name: String::new() };
    assert!(!region(0, 8).overlaps(&region(8, 8)) && !region(0, 8).overlaps(&region(4, 0)));
    assert!(region(0, 8).overlaps(&region(2, 2)) && region(0, 8).overlaps(&region(4, 8)));
}

/// ML-52, 53, 50.
#[test]
fn a_plan_that_does_not_fit_is_refused_with_a_cure() {
    let mut b = GraphBuilder::default();
    let x = input(&mut b, &[10_000]);
    let graph = b.finish([x]);
    let error = |text: &str| {
        let plan = plan_memory(&graph, &all(&graph, text), &MemoryBudget::default());
        plan.unwrap_err().to_string()
    };
    assert_eq!(
        error("SinglePE"),
        "PE (0, 0) exceeds memory: 40000 > 36864 (49152 B - 8192 B code - 4096 B stack - 0 B routing), \
         as do 1 of 1 PEs; the largest region is tensor_0 of %0 with 40000 B as SinglePE; use \
         RowPartition(2)"
    );
    assert!(error("Replicated(2, 2)").contains("as do 4 of 4 PEs"));
    // Ten parameters of 4 KB, of which each would fit.
    let mut b = GraphBuilder::default();
    let parameters: Vec<NodeId> = (0..10).map(|_| input(&mut b, &[1024])).collect();
    let mut sum = parameters[0];
    for &parameter in &parameters[1..] {
        sum = b.add(sum, parameter).unwrap();
    }
    let graph = b.finish([sum]);
    let plan = plan_memory(&graph, &all(&graph, "SinglePE"), &MemoryBudget::default());
    let error = plan.unwrap_err().to_string();
    assert!(error.starts_with("PE (0, 0) exceeds memory: 40960 > 36864"), "{error}");
    assert!(error.ends_with("use RowPartition(2)"), "{error}");
    // ML-51.
    let missing = plan_memory(&graph, &GraphLayouts::default(), &MemoryBudget::default());
    assert_eq!(
        missing.unwrap_err().to_string(),
        "there is no layout for %0; give each value a layout"
    );
}

/// ML-56..58, 60.
#[test]
fn values_take_the_place_of_values_that_are_dead() {
    let mut b = GraphBuilder::default();
    let mut x = input(&mut b, &[16, 16]);
    for _ in 0..10 {
        x = b.transpose(x).unwrap();
    }
    let chain = b.finish([x]);
    assert_eq!(peak(&chain, "SinglePE"), 2 * 1024, "two slots, not ten");
    let mut b = GraphBuilder::default();
    let x = input(&mut b, &[16, 16]);
    let (left, right) = (b.transpose(x).unwrap(), b.transpose(x).unwrap());
    let diamond = b.matmul(left, right).unwrap();
    assert_eq!(peak(&b.finish([diamond]), "SinglePE"), 3 * 1024);
    let mut b = GraphBuilder::default();
    let mut x = input(&mut b, &[16, 16]);
    for _ in 0..10 {
        x = b.neg(x).unwrap();
    }
    let unary = b.finish([x]);
    assert_eq!(peak(&unary, "SinglePE"), 1024, "in place");
    let plan = plan_memory(&unary, &all(&unary, "Grid(2, 2)"), &MemoryBudget::default()).unwrap();
    assert_eq!((plan.max_pe_memory_used(), plan.without_reuse()), (256, 11 * 256));
    assert_eq!((plan.total_memory_used(), plan.mesh()), (1024, (2, 2)));
    assert!((plan.average_utilization() - 256.0 / 36_864.0).abs() < 1e-12);
    assert_eq!(plan.pe(Pe { row: 1, col: 1 }).free_bytes(), 36_864 - 256);
    let mut b = GraphBuilder::default();
    let x = input(&mut b, &[256]);
    let y = b.neg(x).unwrap();
    let both = b.finish([y, x]);
    assert_eq!(peak(&both, "SinglePE"), 2 * 1024, "an output is not written over");
}

/// ML-62.
#[test]
fn a_transform_has_old_and_new_tiles_at_once() {
    let mut b = GraphBuilder::default();
    let x = input(&mut b, &[64, 64]);
    let y = b.neg(x).unwrap();
    let graph = b.finish([y]);
    let mut layouts = all(&graph, "Grid(2, 2)");
    layouts.layouts.insert(x, layout("RowPartition(4)"));
    layouts.operands.push(crate::OperandTransform {
        value: x,
        to: layout("Grid(2, 2)"),
        users: vec![(y, 0)],
        kind: crate::TransformKind::Reshard,
        cost: crate::FabricCost::default(),
    });
    let plan = plan_memory(&graph, &layouts, &MemoryBudget::default()).unwrap();
    check(&plan);
    // The old tiles, the new ones and the result, 4 KB each.
    assert_eq!(plan.max_pe_memory_used(), 3 * 4096);
    let names = plan.placements.iter().map(|placement| placement.region.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["tensor_0", "transform_0_1_0", "tensor_1"]);
    assert!(plan_memory(&graph, &layouts, &budget(3 * 4096 - 1)).is_err());
}

/// ML-105.
#[test]
fn double_buffers_fill_the_data_memory() {
    let budget = MemoryBudget::default();
    let stream = budget.double_buffer(4096).unwrap();
    let regions = stream.buffers.iter().chain([&stream.scratch]);
    let regions: Vec<(usize, usize)> = regions.map(|r| (r.offset, r.size)).collect();
    assert_eq!(regions, [(0, 16_384), (16_384, 16_384), (32_768, 4096)]);
    assert_eq!((stream.peak(), stream.steps(1 << 20)), (36_864, 64));
    let less = MemoryBudget { routing: 2048, ..budget }.double_buffer(4096).unwrap();
    assert_eq!((less.buffers[0].size, less.peak()), (15_360, 34_816));
    assert!(budget.double_buffer(36_860).is_err());
}

/// A random graph of elementwise ops, transposes and products of square matrices and vectors.
fn random_graph(rng: &mut Rng) -> Graph {
    let mut b = GraphBuilder::default();
    let mut values: Vec<NodeId> = (0..1 + rng.below(3)).map(|_| input(&mut b, &[12, 12])).collect();
    for _ in 0..rng.below(20) {
        let (x, y) = (values[rng.below(values.len())], values[rng.below(values.len())]);
        let value = match rng.below(5) {
            0 => b.add(x, y),
            1 => b.matmul(x, y),
            2 => b.transpose(x),
            3 => b.sum(x, girih_ir::ops::AxisSet::one(1), true).and_then(|s| b.mul(x, s)),
            _ => b.neg(x),
        };
        values.push(value.unwrap());
    }
    let outputs =
        (0..1 + rng.below(2)).map(|_| values[rng.below(values.len())]).collect::<Vec<_>>();
    b.finish(outputs)
}

/// ML-59, 61.
#[test]
fn plans_of_random_graphs_are_sound_and_never_larger_than_without_reuse() {
    let mut rng = Rng(42);
    for _ in 0..500 {
        let graph = random_graph(&mut rng);
        for text in ["SinglePE", "Grid(3, 5)", "RowPartition(4)"] {
            let plan = plan_memory(&graph, &all(&graph, text), &budget(1 << 30)).unwrap();
            check(&plan);
            assert!(plan.max_pe_memory_used() <= plan.without_reuse());
            let half = MemoryPlan { available: plan.max_pe_memory_used() / 2, ..plan.clone() };
            let over: Vec<Pe> = half.pes().filter(|&pe| half.used(pe) > half.available).collect();
            assert_eq!(half.over(), (over[0], over.len()), "{text}");
            let fullest = plan.pes().map(|pe| plan.pe(pe).used).max().unwrap_or(0);
            assert_eq!(fullest, plan.max_pe_memory_used());
        }
    }
}

//! Tests of planners: the documented examples, and plans of trees against all assignments.

use super::*;
use crate::{MemoryBudget, plan_memory};
use girih_ir::ops::AxisSet;
use girih_ir::testing::Rng;
use girih_ir::{DType, GraphBuilder, TensorSpec};

fn layout(text: &str) -> MeshLayout {
    text.parse().unwrap()
}

fn input(b: &mut GraphBuilder, shape: &[usize]) -> NodeId {
    b.input(TensorSpec::new(shape, DType::F32))
}

fn allowed(given: &[(NodeId, &str)]) -> BTreeMap<NodeId, Vec<MeshLayout>> {
    given.iter().map(|&(id, text)| (id, vec![layout(text)])).collect()
}

/// A planner without a limit of memory, for examples that are too large for a PE.
fn unlimited() -> LayoutPlanner {
    let constraints =
        LayoutConstraints { max_memory_per_pe: 1 << 40, ..LayoutConstraints::default() };
    LayoutPlanner { constraints }
}

/// The transforms, as `%value to layout: KIND bytes`.
fn text(plan: &GraphLayouts) -> Vec<String> {
    let operands = plan
        .operands
        .iter()
        .map(|t| format!("{} to {}: {} {}", t.value, t.to, t.kind, t.cost.bytes_moved));
    let results = plan.results.iter().map(|t| {
        let layout = &plan.layouts[&t.value];
        format!("{} from {} to {layout}: {}", t.value, t.spec, t.cost.bytes_moved)
    });
    operands.chain(results).collect()
}

/// A product of matrices with these layouts.
fn product(a: &str, b: &str, c: Option<&str>, sizes: [usize; 3]) -> GraphLayouts {
    let mut g = GraphBuilder::default();
    let (x, y) = (input(&mut g, &[sizes[0], sizes[1]]), input(&mut g, &[sizes[1], sizes[2]]));
    let z = g.matmul(x, y).unwrap();
    let graph = g.finish([z]);
    let mut given = allowed(&[(x, a), (y, b)]);
    given.extend(c.map(|c| (z, vec![layout(c)])));
    unlimited().plan(&graph, &given).unwrap()
}

/// ML-65: B is replicated, which is smaller; ML-88, 89, 102.
#[test]
fn the_documented_matrix_products() {
    let plan = product("RowPartition(4)", "ColPartition(4)", None, [1024, 512, 256]);
    assert_eq!(text(&plan), ["%1 to Replicated(4, 1): REPLICATE 1966080"]);
    assert_eq!(plan.layouts[&NodeId(2)], layout("RowPartition(4)"));
    let plan = product("RowPartition(4)", "Grid(4, 1)[-1, 0]", None, [1024, 512, 256]);
    assert_eq!(text(&plan), ["%1 to Replicated(4, 1): REPLICATE 1572864"]);
    // Grids: each PE has its rows of A and its columns of B.
    let plan = product("Grid(4, 4)", "Grid(4, 4)", Some("Grid(4, 4)"), [64, 64, 64]);
    let bytes = 12 * 64 * 64 * 4 / 4;
    assert_eq!(
        text(&plan),
        [
            format!("%0 to Grid(4, 4)[0, -1]: RESHARD {bytes}"),
            format!("%1 to Grid(4, 4)[-1, 1]: RESHARD {bytes}")
        ]
    );
    let given = product("Grid(2, 8)", "Grid(4, 4)[-1, 1]", Some("Grid(4, 4)"), [64, 64, 64]);
    assert_eq!(given.num_transforms(), 1);
    assert_eq!(
        (given.operands[0].kind, given.operands[0].value),
        (TransformKind::Reshard, NodeId(0))
    );
    // An operand that has what is needed is not touched, and contracted parts are added up.
    assert_eq!(
        product("Grid(4, 4)[0, -1]", "Grid(4, 4)[-1, 1]", None, [64; 3]).num_transforms(),
        0
    );
    let split = product("ColPartition(4)", "Grid(1, 4)[1, -1]", None, [8, 64, 8]);
    assert_eq!(text(&split), ["%2 from <*, *; partial={col: add}> to SinglePE: 768"]);
}

/// ML-87: a bias, and a scalar that is in the program.
#[test]
fn broadcast_operands_are_replicated_along_the_other_axis() {
    let mut g = GraphBuilder::default();
    let (x, bias) = (input(&mut g, &[64, 512]), input(&mut g, &[512]));
    let y = g.add(x, bias).unwrap();
    let half = g.scalar(DType::F32, 0.5);
    let z = g.mul(y, half).unwrap();
    let graph = g.finish([z]);
    let plan = LayoutPlanner::default().plan(&graph, &allowed(&[(x, "Grid(4, 4)")])).unwrap();
    assert_eq!(
        text(&plan),
        [format!("%1 to Grid(4, 4)[1]: RESHARD {}", 15 * 128 * 4)]
            .map(|t| { t.replace("RESHARD", &plan.operands[0].kind.to_string()) })
    );
    assert_eq!(plan.layouts[&z], layout("Grid(4, 4)"));
    plan_memory(&graph, &plan, &MemoryBudget::default()).unwrap();
}

/// ML-90: 15 partial sums move.
#[test]
fn a_sum_of_a_grid_combines_partial_sums() {
    let mut g = GraphBuilder::default();
    let x = input(&mut g, &[64, 64]);
    let sum = g.sum(x, AxisSet::all(2), false).unwrap();
    let rows = g.sum(x, AxisSet::one(1), false).unwrap();
    let graph = g.finish([sum, rows]);
    let plan = LayoutPlanner::default().plan(&graph, &allowed(&[(x, "Grid(4, 4)")])).unwrap();
    assert_eq!(
        text(&plan),
        [
            "%1 from <; partial={col: add, row: add}> to SinglePE: 60".to_string(),
            format!("%2 from <row; partial={{col: add}}> to RowPartition(4): {}", 12 * 16 * 4)
        ]
    );
    plan_memory(&graph, &plan, &MemoryBudget::default()).unwrap();
}

/// ML-85, 86: one copy for all users, and a second run finds the same.
#[test]
fn a_value_is_transformed_once_for_all_users() {
    let mut g = GraphBuilder::default();
    let x = input(&mut g, &[64, 64]);
    let (square, negated) = (g.mul(x, x).unwrap(), g.neg(x).unwrap());
    let graph = g.finish([square, negated]);
    let layouts = [(x, "RowPartition(4)"), (square, "Grid(2, 2)"), (negated, "Grid(2, 2)")];
    let layouts: BTreeMap<NodeId, MeshLayout> =
        layouts.into_iter().map(|(id, text)| (id, layout(text))).collect();
    let planner = LayoutPlanner::default();
    let plan = planner.insert_transforms(&graph, layouts.clone()).unwrap();
    assert_eq!(plan.num_transforms(), 1);
    assert_eq!(plan.operands[0].users, [(square, 0), (square, 1), (negated, 0)]);
    assert_eq!(planner.insert_transforms(&graph, layouts), Ok(plan.clone()));
    let memory = plan_memory(&graph, &plan, &MemoryBudget::default()).unwrap();
    assert_eq!(memory.placements.len(), 4);
    let missing = planner.insert_transforms(&graph, BTreeMap::new()).unwrap_err();
    assert_eq!(missing.to_string(), "there is no layout for %0; give each value a layout");
}

/// The network of the documents: three linear layers on 32 rows.
fn network() -> (Graph, Vec<NodeId>) {
    let mut g = GraphBuilder::default();
    let mut h = input(&mut g, &[32, 1024]);
    let mut weights = Vec::new();
    for (rows, cols) in [(1024, 512), (512, 256), (256, 10)] {
        let (w, bias) = (input(&mut g, &[rows, cols]), input(&mut g, &[cols]));
        let product = g.matmul(h, w).unwrap();
        let zero = g.scalar(DType::F32, 0.0);
        let sum = g.add(product, bias).unwrap();
        h = g.maximum(sum, zero).unwrap();
        weights.push(w);
    }
    (g.finish([h]), weights)
}

/// ML-118, 39, 63.
#[test]
fn the_documented_network_is_planned_within_the_memory_of_a_pe() {
    let (graph, _) = network();
    let (planner, budget) = (LayoutPlanner::default(), MemoryBudget::default());
    let nothing = BTreeMap::new();
    let plan = planner.plan(&graph, &nothing).unwrap();
    let too_much = plan_memory(&graph, &plan, &budget).unwrap_err().to_string();
    assert!(too_much.starts_with("PE (0, 0) exceeds memory: "), "{too_much}");
    // Each value where it needs the fewest PEs.
    let fewest = plan.layouts.keys();
    let fewest = fewest.map(|&id| (id, MeshLayout::auto(&graph.spec(id).shape, 4).unwrap()));
    let greedy = planner.insert_transforms(&graph, fewest.collect()).unwrap();
    assert!(plan.cost() <= greedy.cost(), "{:?} {:?}", plan.cost(), greedy.cost());
    // Smaller tiles, so that all that lives at once fits.
    let (_, memory) = planner.plan_within(&graph, &nothing, &budget).unwrap();
    assert!(memory.max_pe_memory_used() <= 36_864);
    assert!(memory.max_pe_memory_used() < memory.without_reuse());
}

/// ML-119: the layouts of the documented weights. Their tiles on PE (0, 0) alone are 41,652 B, so that
/// the network does not fit.
#[test]
fn the_documented_weights_are_used_where_they_are() {
    let (graph, weights) = network();
    let planner = LayoutPlanner::default();
    let documented = ["Grid(11, 12)", "Grid(5, 7)", "SinglePE"];
    let given: Vec<(NodeId, &str)> = weights.into_iter().zip(documented).collect();
    let plan = planner.plan(&graph, &allowed(&given)).unwrap();
    assert_eq!(
        text(&plan),
        [
            "%0 to Grid(11, 12)[-1, 0]: RESHARD 1560832",
            "%2 to Grid(1, 12)[1]: SCATTER 1876",
            "%6 to Grid(5, 7)[-1, 0]: RESHARD 445568",
            "%8 to Grid(1, 7)[1]: SCATTER 876",
            "%13 to Grid(1, 7)[1, -1]: SCATTER 8760",
            "%3 from <*, col; partial={row: add}> to ColPartition(12): 655360",
            "%9 from <*, col; partial={row: add}> to ColPartition(7): 131072",
            "%15 from <*, *; partial={col: add}> to SinglePE: 7680",
        ]
    );
    let within = planner.plan_within(&graph, &allowed(&given), &MemoryBudget::default());
    let error = within.unwrap_err().to_string();
    assert!(error.starts_with("PE (0, 0) exceeds memory: "), "{error}");
}

/// A random tree of at most eight values, with up to four layouts for each.
fn random_tree(rng: &mut Rng) -> (Graph, BTreeMap<NodeId, Vec<MeshLayout>>) {
    let mut g = GraphBuilder::default();
    let mut open: Vec<NodeId> = (0..1 + rng.below(3)).map(|_| input(&mut g, &[8, 8])).collect();
    while g.graph().len() < 7 {
        let x = open.swap_remove(rng.below(open.len()));
        let value = match (open.is_empty(), rng.below(4)) {
            (false, 0) => g.add(x, open.pop().unwrap()),
            (false, 1) => g.matmul(x, open.pop().unwrap()),
            (_, 2) => g.transpose(x),
            _ => g.softmax(x, rng.below(2) as u8),
        };
        open.push(value.unwrap());
    }
    let graph = g.finish([open[0]]);
    let all = ["SinglePE", "RowPartition(2)", "Grid(2, 2)", "Grid(2, 2)[1, 0]", "ColPartition(2)"];
    let some = |_: NodeId| {
        let first = rng.below(all.len());
        (0..1 + rng.below(3)).map(|at| layout(all[(first + at) % all.len()])).collect::<Vec<_>>()
    };
    let ids: Vec<NodeId> = search::needed(&graph).collect();
    let lists: Vec<Vec<MeshLayout>> = ids.iter().copied().map(some).collect();
    (graph, ids.into_iter().zip(lists).collect())
}

/// ML-103.
#[test]
fn plans_of_trees_are_as_cheap_as_the_best_of_all_assignments() {
    let (mut rng, planner) = (Rng(42), LayoutPlanner::default());
    let prices = prices::Prices::default();
    for _ in 0..40 {
        let (graph, lists) = random_tree(&mut rng);
        let plan = planner.plan(&graph, &lists).unwrap();
        let number: usize = lists.values().map(Vec::len).product();
        let cost = |mut number: usize| {
            let layouts = lists.iter().map(|(&id, list)| {
                let layout = list[number % list.len()].clone();
                number /= list.len();
                (id, layout)
            });
            let layouts = layouts.collect();
            search::insert(&graph, layouts, &prices, &planner.constraints).unwrap().cost()
        };
        let best = (0..number).map(cost).min().unwrap();
        assert_eq!(plan.cost(), best, "{:?}", text(&plan));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut g = GraphBuilder::default();
    let x = input(&mut g, &[1024, 1024]);
    let y = g.neg(x).unwrap();
    let graph = g.finish([y]);
    let planner = LayoutPlanner::default();
    let error = planner.plan(&graph, &allowed(&[(x, "SinglePE")])).unwrap_err().to_string();
    assert!(
        error.contains("4194304 B, more than the 32768 B") && error.ends_with("use Grid(8, 16)")
    );
    let plan = planner.plan(&graph, &BTreeMap::new()).unwrap();
    assert_eq!((plan.num_transforms(), &plan.layouts[&y]), (0, &layout("Grid(8, 16)")));
}

/// A layout that is given may be larger than those that are found when memory is short.
#[test]
fn given_layouts_keep_their_tiles_when_memory_is_short() {
    let mut g = GraphBuilder::default();
    let x = input(&mut g, &[64, 64]);
    let y = g.neg(x).unwrap();
    let (z, w) = (input(&mut g, &[64, 64]), input(&mut g, &[64, 64]));
    let sum = g.add(z, w).unwrap();
    let graph = g.finish([y, sum]);
    let given = allowed(&[(x, "SinglePE"), (y, "SinglePE")]);
    let planner = LayoutPlanner::default();
    let (plan, memory) = planner.plan_within(&graph, &given, &MemoryBudget::default()).unwrap();
    assert_eq!((&plan.layouts[&x], &plan.layouts[&y]), (&layout("SinglePE"), &layout("SinglePE")));
    assert_eq!(plan.layouts[&sum], layout("ColPartition(2)"));
    assert_eq!((plan.num_transforms(), memory.max_pe_memory_used()), (0, 32_768));
    let leaves = allowed(&[(x, "SinglePE"), (y, "SinglePE"), (z, "SinglePE"), (w, "SinglePE")]);
    assert!(planner.plan_within(&graph, &leaves, &MemoryBudget::default()).is_err());
}

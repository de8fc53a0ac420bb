//! Helpers for tests of passes: build a graph, compare what a pass makes of it.

use girih_ir::{DType, Graph, GraphBuilder, Literal, NodeId, OpCode, Result, TensorSpec, golden};
use girih_opt::Pass;
use girih_opt::passes::DeadCode;

/// The results of a pass on several graphs, as the text of a golden file.
#[derive(Default)]
pub struct Cases(String);

impl Cases {
    /// Adds the graph that `build` records, and what the pass and then dead code elimination make of
    /// it. Checks that a second run changes nothing.
    #[track_caller]
    pub fn add(
        &mut self,
        pass: impl Pass,
        build: impl FnOnce(&mut GraphBuilder) -> Result<NodeId>,
    ) {
        let graph = record(build);
        let changed = run(&pass, &graph).expect("the pass changes the graph");
        let [before, after] = [&graph, &changed].map(|graph| body(graph).join("\n  "));
        self.0 += &format!("{}:\n  {before}\nbecomes\n  {after}\n\n", pass.name());
    }

    /// Compares the cases with a golden file.
    #[track_caller]
    pub fn compare(self, file: &str) {
        golden!(format!("{file}.txt"), self.0);
    }
}

/// Checks that a pass and then dead code elimination leave the first input of the graph that `build`
/// records. A second run changes nothing.
#[track_caller]
pub fn becomes_its_input(pass: impl Pass, build: impl FnOnce(&mut GraphBuilder) -> Result<NodeId>) {
    let graph = record(build);
    let changed = run(&pass, &graph).expect("the pass changes the graph");
    let ops = changed.nodes().filter(|(_, node)| node.op.code != OpCode::Input).count();
    assert_eq!((ops, changed.outputs()), (0, &[NodeId(0)][..]), "{graph}\nbecomes {changed}");
}

/// Checks that a pass changes nothing in the graph that `build` records.
#[track_caller]
pub fn unchanged(pass: impl Pass, build: impl FnOnce(&mut GraphBuilder) -> Result<NodeId>) {
    let graph = record(build);
    assert_eq!(pass.run(&graph), Ok(None), "from\n{graph}");
}

fn record(build: impl FnOnce(&mut GraphBuilder) -> Result<NodeId>) -> Graph {
    let mut b = GraphBuilder::default();
    let out = build(&mut b).unwrap();
    b.finish([out])
}

/// The graph after a pass and dead code elimination, if the pass changes it.
#[track_caller]
fn run(pass: &impl Pass, graph: &Graph) -> Option<Graph> {
    let changed = pass.run(graph).unwrap()?;
    changed.verify().unwrap();
    assert_eq!(pass.run(&changed), Ok(None), "a second run changes\n{changed}");
    Some(DeadCode.run(&changed).unwrap().unwrap_or(changed))
}

/// The lines of a graph without the header.
fn body(graph: &Graph) -> Vec<String> {
    let text = graph.to_string();
    text.lines().skip(1).map(|line| line.strip_prefix("  ").unwrap_or(line).to_string()).collect()
}

/// An input of this shape and dtype.
pub fn input(b: &mut GraphBuilder, shape: &[usize], dtype: DType) -> NodeId {
    b.input(TensorSpec::new(shape, dtype))
}

/// An input of dtype f32.
pub fn f32s(b: &mut GraphBuilder, shape: &[usize]) -> NodeId {
    input(b, shape, DType::F32)
}

/// A splat constant.
pub fn splat(b: &mut GraphBuilder, shape: &[usize], dtype: DType, value: f64) -> NodeId {
    b.constant(Literal::from_f64(dtype, value), shape)
}

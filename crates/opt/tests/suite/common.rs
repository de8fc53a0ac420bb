//! Helpers for tests of passes: build a graph, compare its text.

use girih_ir::{DType, GraphBuilder, Literal, NodeId, Result, TensorSpec};
use girih_opt::Pass;
use girih_opt::passes::DeadCode;

/// Runs a pass and then dead code elimination on the graph that `build` records. Compares the ops
/// of the result, without header and inputs. The text is `"unchanged"` if the pass changes nothing.
/// Checks that a second run changes nothing.
#[track_caller]
pub fn check(
    pass: impl Pass,
    expected: &str,
    build: impl FnOnce(&mut GraphBuilder) -> Result<NodeId>,
) {
    let mut b = GraphBuilder::default();
    let out = build(&mut b).unwrap();
    let graph = b.finish([out]);
    let Some(changed) = pass.run(&graph).unwrap() else {
        assert_eq!(expected, "unchanged", "nothing changed in\n{graph}");
        return;
    };
    changed.verify().unwrap();
    assert_eq!(pass.run(&changed), Ok(None), "a second run changes\n{changed}");
    let clean = DeadCode.run(&changed).unwrap().unwrap_or(changed);
    let lines: Vec<String> = clean.to_string().lines().map(|l| l.trim().to_string()).collect();
    let shown: Vec<&str> =
        lines.iter().skip(1).map(String::as_str).filter(|l| !l.contains("= input")).collect();
    assert_eq!(shown.join("\n"), expected, "from\n{graph}");
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
